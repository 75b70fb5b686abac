//! Recognition of attention masks.

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

/// An `f32` value at or below this absorbs every score that is added to it.
const ABSORBING: f64 = -1e30;

/// How a mask applies to attention scores.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mask {
    /// A tensor that is added to the scores.
    Added(ValueId),
    /// A number that replaces scores where a condition holds.
    Filled {
        /// The condition.
        condition: ValueId,
        /// Whether scores are replaced where the condition is false.
        inverted: bool,
        /// The number.
        number: f64,
    },
}

impl Mask {
    /// Candidates for the unmasked scores, each with its mask, including the scores without a mask.
    pub(super) fn candidates(
        rewriter: &Rewriter<'_, '_>,
        scores: ValueId,
    ) -> Vec<(ValueId, Option<Mask>)> {
        let mut found = Vec::from([(scores, None)]);
        let Some(node) = rewriter.producer(scores) else { return found };
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
        // The unmasked scores must have the same shape.
        let sizes = rewriter.sizes(scores);
        found.retain(|(inner, _)| rewriter.sizes(*inner) == sizes);
        found
    }

    /// Adds the mask as a tensor to be added to scores of rank 4, `[batches, heads, rows, keys]`.
    /// `scores` are those that the mask applied to, whose leading dims may differ.
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
            // Attention broadcasts the mask itself.
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

/// Adds a constant scalar tensor.
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

/// The number that fills a tensor.
pub(super) fn filled(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<f64> {
    if let Some(number) = rewriter.number(id) {
        return Some(number);
    }
    let node = rewriter.producer(id)?;
    let at = match node.operator {
        Operator::SCALAR_TENSOR => 0,
        Operator::FULL | Operator::FULL_LIKE => 1,
        Operator::ZEROS | Operator::ZEROS_LIKE => return Some(0.0),
        _ => return None,
    };
    rewriter.number(*inputs(node).get(at)?)
}

/// Known properties of a constant mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    /// Each row can attend to a key.
    pub(super) shows_each_row: bool,
    /// Row `i` sees exactly the keys up to `i` plus this offset.
    pub(super) causal: Option<usize>,
}

/// Properties of a constant, independent of the attention call.
#[derive(Debug, Clone, Copy, Default)]
struct Looked {
    shows_each_row: bool,
    /// The causal offset, if each matrix is causal, with the number of rows and keys.
    causal: Option<(usize, [usize; 2])>,
}

/// How a tensor is used as a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    Added,
    FilledWhereSet,
    FilledWhereNot,
}

/// Cache of the properties of masks.
#[derive(Default)]
pub(super) struct Masks(BTreeMap<(ValueId, Use), Looked>);

impl Masks {
    /// Properties of a mask for `[rows, keys]` scores.
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
        // With a finite fill value, the keys of a fully masked row weigh equally. `shows_each_row`
        // also holds if the mask broadcasts to more rows; the offset holds only for the same sizes.
        let causal = looked.causal.filter(|(_, own)| *own == sizes).map(|(offset, _)| offset);
        Known { shows_each_row: looked.shows_each_row || fills_numbers, causal }
    }
}

/// Inspects the constant that a mask consists of, or that its condition is.
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

/// If a mask selects between two numbers: the condition, and the numbers where it is true and where
/// it is false.
fn chosen(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<(ValueId, [f64; 2])> {
    let [condition, set, clear] = *rewriter.call_of(id, Operator::WHERE_SELF)? else { return None };
    let scalar_type = rewriter.scalar_type(id)?;
    let number = |id| rounded(scalar_type, filled(rewriter, id)?);
    Some((condition, [number(set)?, number(clear)?]))
}
