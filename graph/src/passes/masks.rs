//! The masks of attention.

use super::constant::{decode, encode};
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

    /// Makes what is added to scores of four dimensions, of batches and heads first, instead of those that it was made for.
    pub(super) fn make(
        self,
        rewriter: &mut Rewriter<'_, '_>,
        scores: ValueId,
        [batches, heads]: [usize; 2],
    ) -> Option<ValueId> {
        let scalar_type = rewriter.scalar_type(scores)?;
        let scores = rewriter.sizes(scores)?.to_vec();
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

/// What is known of constant masks, found once for each.
#[derive(Default)]
pub(super) struct Masks(BTreeMap<ValueId, bool>);

impl Masks {
    /// Whether a mask is known to leave each row a key to look at, in every run.
    pub(super) fn shows_each_row(&mut self, rewriter: &Rewriter<'_, '_>, mask: Mask) -> bool {
        let id = match mask {
            Mask::Added(id) => id,
            Mask::Filled { number, .. } if number > f64::NEG_INFINITY => return true,
            Mask::Filled { condition, .. } => condition,
        };
        *self.0.entry(id).or_insert_with(|| shows(rewriter, id, mask).unwrap_or(false))
    }
}

fn shows(rewriter: &Rewriter<'_, '_>, id: ValueId, mask: Mask) -> Option<bool> {
    let (tensor, data) = rewriter.constant(id)?;
    let keys = (*tensor.sizes.last()?).max(1);
    let (mut visible, mut count) = (false, 0usize);
    for element in decode(tensor.scalar_type, data)? {
        visible |= match mask {
            Mask::Added(_) => element > f64::NEG_INFINITY,
            Mask::Filled { inverted, .. } => (element != 0.0) == inverted,
        };
        count += 1;
        if count % keys == 0 {
            if !visible {
                return Some(false);
            }
            visible = false;
        }
    }
    Some(true)
}
