//! The masks of attention.

use super::constant::{decode, encode, rounded};
use super::rewrite::Rewriter;
use super::uses::inputs;
use super::views::viewed_as;
use crate::graph::{Tensor, Value, ValueId};
use crate::operators::Operator;
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// A number of `f32` so far below all scores that no sum with one differs from it.
const ABSORBING: f64 = -1e30;

/// How scores are masked.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mask {
    /// This is added to them.
    Added(ValueId),
    /// This number stands in for them where a condition is true.
    Filled {
        /// The condition.
        condition: ValueId,
        /// Whether it is where it is false instead.
        inverted: bool,
        /// The number.
        number: f64,
    },
}

impl Mask {
    /// The ways to see scores as other scores with a mask, or without.
    pub(super) fn candidates(
        rewriter: &Rewriter<'_, '_>,
        scores: ValueId,
    ) -> Vec<(ValueId, Option<Mask>)> {
        let mut found = Vec::from([(scores, None)]);
        let Some(node) = rewriter.maker(scores) else { return found };
        match (node.operator, inputs(node)) {
            (Operator::ADD_TENSOR, [a, b, rest @ ..])
                if rest.iter().all(|factor| rewriter.number(*factor) == Some(1.0)) =>
            {
                found.extend([(*a, Some(Mask::Added(*b))), (*b, Some(Mask::Added(*a)))]);
            }
            (Operator::WHERE_SELF, [condition, a, b]) => {
                for (inner, other, inverted) in [(*b, *a, false), (*a, *b, true)] {
                    let Some(number) = filled(rewriter, other) else { continue };
                    let float = rewriter.scalar_type(scores) == Some(ScalarType::Float);
                    if number == f64::NEG_INFINITY || float && number <= ABSORBING {
                        let condition = *condition;
                        found.push((inner, Some(Mask::Filled { condition, inverted, number })));
                    }
                }
            }
            _ => {}
        }
        // What is masked has the shape of the scores.
        let sizes = rewriter.sizes(scores);
        found.retain(|(inner, _)| rewriter.sizes(*inner) == sizes);
        found
    }

    /// Makes what is added to scores of four dimensions, of batches and heads first, instead of
    /// those that it was made for.
    pub(super) fn make(
        self,
        rewriter: &mut Rewriter<'_, '_>,
        scores: ValueId,
        [batches, heads]: [usize; 2],
    ) -> Option<ValueId> {
        let scalar_type = rewriter.scalar_type(scores)?;
        let scores = rewriter.sizes(scores)?.to_vec();
        let (of_heads, of_batches) = match scores.split_last_chunk::<2>()?.0.split_last() {
            Some((heads, rest)) => (*heads, rest.iter().product()),
            None => (1, 1),
        };
        if [of_batches, of_heads] != [batches, heads] {
            return None;
        }
        let mask = match self {
            // The call broadcasts by itself.
            Mask::Added(mask) => match rewriter.call_of(mask, Operator::EXPAND_COPY) {
                Some([source, ..]) => *source,
                _ => mask,
            },
            Mask::Filled { condition, inverted, number } => {
                let sizes = rewriter.sizes(condition)?.to_vec();
                let fill = single(rewriter, scalar_type, number)?;
                let zero = single(rewriter, scalar_type, 0.0)?;
                let [a, b] = if inverted { [zero, fill] } else { [fill, zero] };
                let args = [condition, a, b];
                if !rewriter.is_lasting(condition) {
                    return None;
                }
                rewriter.call_new(Operator::WHERE_SELF, &args, scalar_type, sizes)
            }
        };
        let tensor = rewriter.tensor(mask)?;
        if !rewriter.is_lasting(mask) || !tensor.scalar_type.is_floating() {
            return None;
        }
        if scores.len() == 4 {
            return (tensor.sizes.len() <= 4).then_some(mask);
        }
        let missing = scores.len().checked_sub(tensor.sizes.len())?;
        let mut sizes = alloc::vec![1; missing];
        sizes.extend(&tensor.sizes);
        let (lead, own) = (scores.get(..scores.len().checked_sub(2)?)?, sizes.split_last_chunk()?);
        let (own_lead, [rows, keys]): (&[usize], &[usize; 2]) = own;
        let (own_heads, own_batches) =
            own_lead.split_last().map_or((1, &[][..]), |(last, rest)| (*last, rest));
        let of_batches = if own_batches.iter().all(|size| *size == 1) {
            1
        } else if own_batches == lead.get(..lead.len().checked_sub(1)?)? {
            batches
        } else {
            return None;
        };
        if own_heads != 1 && own_heads != heads {
            return None;
        }
        viewed_as(rewriter, mask, &[of_batches, own_heads, *rows, *keys])
    }
}

/// A constant of one number.
fn single(
    rewriter: &mut Rewriter<'_, '_>,
    scalar_type: ScalarType,
    number: f64,
) -> Option<ValueId> {
    Some(rewriter.value(Value::Tensor(Tensor {
        scalar_type,
        host_type: scalar_type,
        sizes: Vec::new(),
        dynamic: false,
        data: Some(Cow::Owned(encode(scalar_type, &[number])?)),
        changes: Some(false),
    })))
}

/// The number that all elements of a value are.
pub(super) fn filled(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<f64> {
    if let Some(number) = rewriter.number(id) {
        return Some(number);
    }
    let node = rewriter.maker(id)?;
    let at = match node.operator {
        Operator::SCALAR_TENSOR => 0,
        Operator::FULL | Operator::FULL_LIKE => 1,
        Operator::ZEROS | Operator::ZEROS_LIKE => return Some(0.0),
        _ => return None,
    };
    rewriter.number(*inputs(node).get(at)?)
}

/// What a constant mask does in every run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    /// It leaves each row a key to look at.
    pub(super) shows_each_row: bool,
    /// It shows row `i` the keys up to this one behind the `i`-th, and no others.
    pub(super) causal: Option<usize>,
}

/// What a constant says by itself, whatever it is a mask of.
#[derive(Debug, Clone, Copy, Default)]
struct Looked {
    shows_each_row: bool,
    /// The offset, if each of its matrices is causal, and their rows and keys.
    causal: Option<(usize, [usize; 2])>,
}

/// How a value is used as a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    Added,
    FilledWhereSet,
    FilledWhereNot,
}

/// What is known of masks, found once for each.
#[derive(Default)]
pub(super) struct Masks(BTreeMap<(ValueId, Use), Looked>);

impl Masks {
    /// What is known of a mask of so many keys for each of so many rows.
    pub(super) fn known(
        &mut self,
        rewriter: &Rewriter<'_, '_>,
        mask: Mask,
        sizes: [usize; 2],
    ) -> Known {
        let (key, fills_numbers) = match mask {
            Mask::Added(id) => ((id, Use::Added), false),
            Mask::Filled { condition, inverted, number } => {
                let by = if inverted { Use::FilledWhereNot } else { Use::FilledWhereSet };
                ((condition, by), number > f64::NEG_INFINITY)
            }
        };
        let found = || look(rewriter, mask).unwrap_or_default();
        let looked = *self.0.entry(key).or_insert_with(found);
        // All keys of a row weigh as much where all have the same number. What is broadcast to more
        // rows says the same of each.
        let causal = looked.causal.filter(|(_, own)| *own == sizes).map(|(offset, _)| offset);
        Known { shows_each_row: looked.shows_each_row || fills_numbers, causal }
    }
}

/// Looks at each element of the constant that a mask is, or that it is made of.
fn look(rewriter: &Rewriter<'_, '_>, mask: Mask) -> Option<Looked> {
    let (id, numbers) = match mask {
        Mask::Filled { condition, inverted: true, number } => (condition, Some([0.0, number])),
        Mask::Filled { condition, inverted: false, number } => (condition, Some([number, 0.0])),
        Mask::Added(id) => chosen(rewriter, id).map_or((id, None), |(id, all)| (id, Some(all))),
    };
    let (tensor, data) = rewriter.constant(id)?;
    let is_float = numbers.is_some() || tensor.scalar_type == ScalarType::Float;
    let hides = |number: f64| number == f64::NEG_INFINITY || is_float && number <= ABSORBING;
    let mut added = decode(tensor.scalar_type, data)?.map(|element| match numbers {
        Some([set, clear]) => {
            if element == 0.0 {
                clear
            } else {
                set
            }
        }
        None => element,
    });
    let (rows, keys) = match tensor.sizes[..] {
        [] => (1, 1),
        [keys] => (1, keys),
        [.., rows, keys] => (rows, keys),
    };
    let (mut shows_each_row, mut is_causal, mut offset) = (true, true, None);
    for number in 0..tensor.sizes.iter().product::<usize>().checked_div(keys)? {
        let (mut shown, mut end, mut is_finite) = (0usize, 0, false);
        for key in 0..keys {
            let added = added.next()?;
            is_finite |= added > f64::NEG_INFINITY;
            is_causal &= added == 0.0 || hides(added);
            if added == 0.0 {
                (shown, end) = (shown + 1, key + 1);
            }
        }
        shows_each_row &= is_finite;
        if number == 0 {
            offset = shown.checked_sub(1);
        }
        let row = number.checked_rem(rows)?;
        let expected = offset.and_then(|offset| offset.checked_add(row)?.checked_add(1));
        is_causal &= shown == end && expected.is_some_and(|expected| shown == expected.min(keys));
    }
    let causal = offset.filter(|_| is_causal).map(|offset| (offset, [rows, keys]));
    Some(Looked { shows_each_row, causal })
}

/// The condition by which one of two numbers is added, and these as they are in the mask: where it
/// is set, and where not.
fn chosen(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<(ValueId, [f64; 2])> {
    let [condition, set, clear] = *rewriter.call_of(id, Operator::WHERE_SELF)? else { return None };
    let scalar_type = rewriter.scalar_type(id)?;
    let number = |id| rounded(scalar_type, filled(rewriter, id)?);
    Some((condition, [number(set)?, number(clear)?]))
}
