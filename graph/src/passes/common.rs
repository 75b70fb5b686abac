//! Common-subexpression elimination (CSE).
//!
//! Two calls are equal if they have the same operator, output dtype and arguments. As arguments,
//! known scalars, strings, lists and small constants are compared by value, and large constants by
//! the address of their data.
//!
//! Needs: a graph in which each value is produced once, before its uses. Keeps: calls with effects
//! or randomness, calls that read overwritten values, and distinct graph outputs.

use super::rewrite::{Rewriter, each_call};
use super::uses::inputs;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::Operator;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Maximum size in bytes of a constant that is compared by its contents.
const SMALL: usize = 64;

/// Removes calls that repeat others. Returns the number of removed calls.
pub fn run(graph: &mut Graph<'_>) -> usize {
    let mut known = Known::default();
    each_call(graph, |rewriter, node| known.merge(rewriter, node))
}

/// Calls and values seen so far. Equal calls, and equal values, have equal keys.
#[derive(Default)]
struct Known {
    contents: BTreeMap<Content, ValueId>,
    lists: BTreeMap<Vec<ValueId>, ValueId>,
    /// Representative of each value, memoized.
    forms: BTreeMap<ValueId, ValueId>,
    /// The output of each call.
    calls: BTreeMap<(Operator, Option<ScalarType>, Vec<ValueId>), ValueId>,
}

/// Key of a value that no call produces.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Content {
    None,
    Int(i64),
    Double(u64),
    Bool(bool),
    String(String),
    Ints(Vec<i64>),
    Doubles(Vec<u64>),
    Bools(Vec<bool>),
    Small(ScalarType, Vec<usize>, Vec<u8>),
    Large(ScalarType, Vec<usize>, usize, usize),
}

impl Content {
    fn of(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<Self> {
        Some(match rewriter.get(id)? {
            Value::None => Content::None,
            Value::Int(value) => Content::Int(*value),
            Value::Double(value) => Content::Double(value.to_bits()),
            Value::Bool(value) => Content::Bool(*value),
            Value::String(text) => Content::String(text.clone()),
            Value::DoubleList(items) => {
                Content::Doubles(items.iter().map(|item| item.to_bits()).collect())
            }
            Value::BoolList(items) => Content::Bools(items.clone()),
            Value::IntList(_) | Value::List(_) => Content::Ints(rewriter.ints(id)?.into_owned()),
            Value::SymInt(_) => return None,
            Value::Tensor(_) => {
                let (Tensor { scalar_type, sizes, .. }, data) = rewriter.constant(id)?;
                let (scalar_type, sizes) = (*scalar_type, sizes.clone());
                if data.len() <= SMALL {
                    Content::Small(scalar_type, sizes, data.to_vec())
                } else {
                    Content::Large(scalar_type, sizes, data.as_ptr() as usize, data.len())
                }
            }
        })
    }
}

impl Known {
    fn merge(&mut self, rewriter: &mut Rewriter<'_, '_>, node: &Node) -> bool {
        let operator = node.operator;
        let Some(out) = node.args.last().copied() else { return false };
        if operator.traits().has_effect() || operator.traits().is_random || !node.parts.is_empty() {
            return false;
        }
        if !rewriter.reads_lasting(node) {
            return false;
        }
        let arguments = inputs(node).iter().map(|id| self.form(rewriter, *id)).collect();
        let call = (operator, rewriter.scalar_type(out), arguments);
        let Some(first) = self.calls.get(&call).copied() else {
            self.calls.insert(call, out);
            return false;
        };
        match (rewriter.get(out), rewriter.get(first)) {
            (Some(Value::List(items)), Some(Value::List(first))) if items.len() == first.len() => {
                let pairs: Vec<_> = items.iter().copied().zip(first.iter().copied()).collect();
                let replaced =
                    pairs.into_iter().filter(|(id, first)| rewriter.replace(*id, *first));
                replaced.count() == self.items(rewriter, out)
            }
            _ => rewriter.replace(out, first),
        }
    }

    fn items(&self, rewriter: &Rewriter<'_, '_>, list: ValueId) -> usize {
        match rewriter.get(list) {
            Some(Value::List(items)) => items.len(),
            _ => 0,
        }
    }

    /// The representative of a value: the first value equal to it.
    fn form(&mut self, rewriter: &Rewriter<'_, '_>, id: ValueId) -> ValueId {
        if let Some(form) = self.forms.get(&id) {
            return *form;
        }
        let form = match (Content::of(rewriter, id), rewriter.get(id)) {
            (Some(content), _) => *self.contents.entry(content).or_insert(id),
            (None, Some(Value::List(items))) => {
                let items = items.iter().map(|item| match rewriter.get(*item) {
                    // Lists are not nested.
                    Some(Value::List(_)) => *item,
                    _ => self.form(rewriter, *item),
                });
                let items = items.collect();
                *self.lists.entry(items).or_insert(id)
            }
            _ => id,
        };
        self.forms.insert(id, form);
        form
    }
}

#[cfg(test)]
mod tests {
    use crate::passes::text;

    #[test]
    fn what_is_computed_twice_is_computed_once() {
        let mut graph = text::parse(
            "in x f32[2,4]
             const one f32[] = 1
             const uno f32[] = 1
             a f32[2,4] = aten.add.Tensor(x, one, 1)
             b f32[2,4] = aten.add.Tensor(x, uno, 1)
             c f32[4,4] = aten.cat.default([a, a], 0)
             d f32[4,4] = aten.cat.default([b, b], 0)
             e f32[4,4] = aten.mul.Tensor(c, d)
             out e",
        );
        assert_eq!(super::run(&mut graph), 2);
        assert_eq!(text::calls(&graph)[2], "%7 = aten.mul.Tensor(%5, %5)");
    }

    #[test]
    fn what_differs_in_any_way_stays() {
        let text = "in x f32[2,4]
             a f16[2,4] = aten._to_copy.default(x)
             b f64[2,4] = aten._to_copy.default(x)
             c f32[2,4] = aten.add.Scalar(x, 1, 1)
             d f32[2,4] = aten.add.Scalar(x, 1.0, 1)
             e f32[2,4] = aten.add.Scalar(x, 1, 2)
             f f32[2,4] = aten.native_dropout.default(x, 0.5, true)
             g f32[2,4] = aten.native_dropout.default(x, 0.5, true)
             out a b c d e f g";
        assert_eq!(super::run(&mut text::parse(text)), 0);
    }

    #[test]
    fn a_buffer_is_read_again_after_a_write() {
        let mut graph = text::parse(
            "in x f32[1,1,1,4]
             var cache f32[1,8,1,4]
             a f32[1,8,1,4] = aten.neg.default(cache)
             b f32[1,1,1,4] = llama.update_cache.default(x, cache, 0)
             c f32[1,8,1,4] = aten.neg.default(cache)
             d f32[1,8,1,4] = aten.sub.Tensor(a, c)
             out d",
        );
        assert_eq!(super::run(&mut graph), 0);
    }

    #[test]
    fn two_outputs_stay_two() {
        let mut graph = text::parse(
            "in x f32[4]
             a f32[4] = aten.neg.default(x)
             b f32[4] = aten.neg.default(x)
             out a b",
        );
        assert_eq!(super::run(&mut graph), 0);
        assert_eq!(graph.outputs, [1, 2]);
    }
}
