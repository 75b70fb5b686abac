//! Converts matrix multiplications with transposed constants to `aten.linear`, with the weight as
//! it is stored. The weight may also be dequantized from a constant. The patterns are:
//!
//! - `addmm(bias, x, wᵀ)` and `mm(x, wᵀ)`, if `alpha` and `beta` are one and the bias has one
//!   element per column;
//! - `bmm(x, wᵀ)` with the weight repeated for each batch, as exporters write a linear layer with a
//!   non-contiguous input;
//! - a linear layer of a view that keeps rows, which becomes a view of the layer's result, as
//!   `linear` supports inputs of any rank;
//! - the sum of a linear layer, perhaps viewed, and a bias.
//!
//! Needs: a graph in which each value is produced once, before its uses, preferably without
//! redundant copies. All patterns except the first need fixed shapes. Keeps: results without the
//! bias that other calls read. Rounding: as in PyTorch's `linear`, the bias is added before the sum
//! is rounded to the graph's dtype, not after.

use super::rewrite::{Rewriter, each_call};
use super::uses::inputs;
use super::views::{VIEWS, peeled_views, permutation, reshaped, view_into};
use crate::graph::{Graph, Value, ValueId};
use crate::operators::Operator;
use alloc::vec;

/// Converts matrix multiplications to linear layers. Returns the number of changes.
pub fn run(graph: &mut Graph<'_>) -> usize {
    each_call(graph, |rewriter, node| {
        let Some(out) = node.args.last().copied() else { return false };
        let made = match (node.operator, inputs(node)) {
            (Operator::ADDMM, [bias, input, columns, factors @ ..]) => {
                addmm(rewriter, [*bias, *input, *columns], factors, out)
            }
            (Operator::MM, [input, columns]) => stored(rewriter, *columns)
                .and_then(|weight| linear(rewriter, *input, weight, None, out)),
            (Operator::LINEAR, [input, weight, bias]) if is_viewed(rewriter, *input) => {
                let bias = Some(*bias).filter(|bias| !rewriter.is_none(Some(bias)));
                linear(rewriter, *input, *weight, bias, out)
            }
            (Operator::BMM, [input, columns]) => repeated(rewriter, *columns)
                .and_then(|weight| linear(rewriter, *input, weight, None, out)),
            (Operator::ADD_TENSOR, [a, b, factors @ ..]) if are_one(rewriter, factors) => {
                add(rewriter, *a, *b, out).or_else(|| add(rewriter, *b, *a, out))
            }
            _ => None,
        };
        made.is_some()
    })
}

/// Whether the input of a linear layer is a view with the same row length as its source.
fn is_viewed(rewriter: &Rewriter<'_, '_>, input: ValueId) -> bool {
    let [source, input] = [peeled_views(rewriter, input), input].map(|id| rewriter.sizes(id));
    source != input && source.and_then(<[_]>::last) == input.and_then(<[_]>::last)
}

/// Whether all factors are one or absent.
fn are_one(rewriter: &Rewriter<'_, '_>, factors: &[ValueId]) -> bool {
    let one = |id: &ValueId| {
        matches!(rewriter.get(*id), Some(Value::None)) || rewriter.number(*id) == Some(1.0)
    };
    factors.iter().all(one)
}

/// The constant whose transpose a matrix is.
fn stored(rewriter: &Rewriter<'_, '_>, columns: ValueId) -> Option<ValueId> {
    let [rows, width] = *rewriter.sizes(columns)? else { return None };
    let producer = rewriter.producer(columns)?;
    let (weight, order) = permutation(rewriter, producer)
        // The transpose of a vector may be a view.
        .or_else(|| {
            Some((reshaped(rewriter, producer).filter(|_| rows == 1 || width == 1)?, vec![1, 0]))
        })?;
    let fits = order == [1, 0] && rewriter.sizes(weight) == Some(&[width, rows]);
    (fits && is_known(rewriter, weight)).then_some(weight)
}

/// Whether a tensor is constant, or dequantized from a constant, which is computed ahead of time.
fn is_known(rewriter: &Rewriter<'_, '_>, weight: ValueId) -> bool {
    let operator = Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_CHANNEL;
    let codes = rewriter.call_of(weight, operator).and_then(|taken| taken.first());
    rewriter.constant(*codes.unwrap_or(&weight)).is_some()
}

/// The constant whose transpose each matrix of a batch is.
fn repeated(rewriter: &Rewriter<'_, '_>, columns: ValueId) -> Option<ValueId> {
    let [batches, depth, width] = *rewriter.sizes(columns)? else { return None };
    let mut matrix = peeled_views(rewriter, columns);
    if let Some([source, ..]) = rewriter.call_of(matrix, Operator::EXPAND_COPY) {
        // Expanded over the batch dim, not within the matrix.
        let ends = [matrix, *source].map(|id| rewriter.sizes(id)?.last_chunk::<2>().copied());
        if ends != [Some([depth, width]); 2] {
            return None;
        }
        matrix = peeled_views(rewriter, *source);
    } else if batches != 1 {
        return None;
    }
    let whole = rewriter.sizes(matrix) == Some(&[depth, width]);
    stored(rewriter, matrix).filter(|_| whole)
}

fn addmm(
    rewriter: &mut Rewriter<'_, '_>,
    [bias, input, columns]: [ValueId; 3],
    factors: &[ValueId],
    out: ValueId,
) -> Option<()> {
    let weight = stored(rewriter, columns)?;
    let [width, _] = *rewriter.sizes(weight)? else { return None };
    // A bias of one element would broadcast.
    let fits = rewriter.sizes(bias) == Some(&[width]);
    if !fits || !are_one(rewriter, factors) {
        return None;
    }
    linear(rewriter, input, weight, Some(bias), out)
}

/// Adds a linear layer.
fn linear(
    rewriter: &mut Rewriter<'_, '_>,
    input: ValueId,
    weight: ValueId,
    bias: Option<ValueId>,
    out: ValueId,
) -> Option<()> {
    let scalar_type = rewriter.scalar_type(out)?;
    for id in [Some(input), Some(weight), bias].into_iter().flatten() {
        if rewriter.scalar_type(id)? != scalar_type || !rewriter.is_lasting(id) {
            return None;
        }
    }
    let bias = bias.unwrap_or_else(|| rewriter.value(Value::None));
    // The input may have been flattened only for the matrix multiplication.
    let source = peeled_views(rewriter, input);
    let (sizes, out_sizes) = (rewriter.sizes(source)?, rewriter.sizes(out)?);
    let same_rows = sizes.last() == rewriter.sizes(input)?.last();
    if source == input || !same_rows || !rewriter.is_lasting(source) {
        rewriter.call(Operator::LINEAR, &[input, weight, bias], out);
        return Some(());
    }
    let mut sizes = sizes.to_vec();
    *sizes.last_mut()? = *out_sizes.last()?;
    let whole = rewriter.call_new(Operator::LINEAR, &[source, weight, bias], scalar_type, sizes);
    view_into(rewriter, whole, out)
}

/// Merges the addition of a bias into a linear layer without one.
fn add(rewriter: &mut Rewriter<'_, '_>, sum: ValueId, bias: ValueId, out: ValueId) -> Option<()> {
    let mut product = sum;
    for _ in 0..VIEWS {
        if rewriter.uses(product) != 1 {
            return None;
        }
        match rewriter.producer(product).and_then(|node| reshaped(rewriter, node)) {
            Some(source) => product = source,
            None => break,
        }
    }
    let [input, weight, none] = *rewriter.call_of(product, Operator::LINEAR)? else { return None };
    let [width, _] = *rewriter.sizes(weight)? else { return None };
    let [bias_sizes, sum_sizes, out_sizes] = [bias, sum, out].map(|id| rewriter.sizes(id));
    let fits = matches!(rewriter.get(none), Some(Value::None))
        && bias_sizes == Some(&[width])
        && sum_sizes?.last() == Some(&width)
        && sum_sizes == out_sizes;
    if !fits {
        return None;
    }
    if product == sum {
        return linear(rewriter, input, weight, Some(bias), out);
    }
    let (scalar_type, sizes) = (rewriter.scalar_type(product)?, rewriter.sizes(product)?.to_vec());
    let whole = rewriter.new_tensor(scalar_type, sizes);
    linear(rewriter, input, weight, Some(bias), whole)?;
    view_into(rewriter, whole, out)
}

#[cfg(test)]
mod tests {
    use crate::graph::Graph;
    use crate::passes::{redundant, text};
    use alloc::string::String;
    use alloc::vec::Vec;

    fn made(text: &str) -> Vec<String> {
        let pass = |graph: &mut Graph<'_>| {
            redundant::run(graph) + super::run(graph) + redundant::run(graph)
        };
        text::calls(&text::after(text, pass))
    }

    #[test]
    fn products_with_transposed_constants() {
        let calls = made(
            "in x f32[4,8]
             const w f32[3,8] = 1
             const b f32[3] = 1
             t f32[8,3] = aten.permute_copy.default(w, [1, 0])
             y f32[4,3] = aten.addmm.default(b, x, t)
             u f32[8,3] = aten.t_copy.default(w)
             z f32[4,3] = aten.mm.default(x, u)
             out y z",
        );
        let expected =
            ["%4 = aten.linear.default(%0, %1, %2)", "%6 = aten.linear.default(%0, %1, none)"];
        assert_eq!(calls, expected);
    }

    #[test]
    fn a_weight_for_all_batches() {
        // An output projection after attention, as exporters write it.
        let calls = made(
            "in x f32[2,16,8]
             const w f32[3,8] = 1
             const b f32[3] = 1
             in r f32[2,16,3]
             t f32[8,3] = aten.permute_copy.default(w, [1, 0])
             e f32[2,8,3] = aten.expand_copy.default(t, [2, 8, 3])
             f f32[2,8,3] = aten.view_copy.default(e, [2, 8, 3])
             y f32[2,16,3] = aten.bmm.default(x, f)
             s f32[2,16,3] = aten.add.Tensor(y, b, 1)
             o f32[2,16,3] = aten.add.Tensor(r, s, 1)
             out o",
        );
        let expected = ["%8 = aten.linear.default(%0, %1, %2)", "%9 = aten.add.Tensor(%3, %8, 1)"];
        assert_eq!(calls, expected);
    }

    #[test]
    fn a_weight_for_one_batch() {
        let calls = made(
            "in x f32[1,16,8]
             const w f32[3,8] = 1
             const b f32[3] = 1
             t f32[8,3] = aten.permute_copy.default(w, [1, 0])
             e f32[1,8,3] = aten.expand_copy.default(t, [1, 8, 3])
             y f32[1,16,3] = aten.bmm.default(x, e)
             v f32[16,3] = aten.view_copy.default(y, [16, 3])
             s f32[16,3] = aten.add.Tensor(b, v, 1)
             out s",
        );
        assert_eq!(calls[0].split_once(" = ").unwrap().1, "aten.linear.default(%0, %1, %2)");
        assert!(calls[1].starts_with("%7 = aten.view_copy.default("));
        assert_eq!(calls.len(), 2);
    }

    #[test]
    fn views_around_a_layer_go() {
        let calls = made(
            "in x f32[2,4,8]
             const w f32[1,8] = 1
             v f32[8,8] = aten.view_copy.default(x, [8, 8])
             t f32[8,1] = aten.permute_copy.default(w, [1, 0])
             y f32[8,1] = aten.mm.default(v, t)
             o f32[2,4,1] = aten.view_copy.default(y, [2, 4, 1])
             out o",
        );
        assert_eq!(calls, ["%5 = aten.linear.default(%0, %1, none)"]);
    }

    #[test]
    fn what_is_not_linear_stays() {
        let text = "in x f32[4,8]
             in t f32[8,3]
             const w f32[3,8] = 1
             const b f32[1] = 1
             const c f32[3] = 1
             wt f32[8,3] = aten.permute_copy.default(w, [1, 0])
             tt f32[3,8] = aten.permute_copy.default(t, [1, 0])
             t2 f32[8,3] = aten.neg.default(t)
             y1 f32[4,3] = aten.addmm.default(b, x, wt)
             y2 f32[4,3] = aten.addmm.default(c, x, wt, 1, 2)
             y3 f32[4,3] = aten.mm.default(x, t2)
             y4 f32[4,3] = aten.mm.default(x, wt)
             y5 f32[4,3] = aten.add.Tensor(y4, c, 1)
             out y1 y2 y3 y4 y5";
        let calls = made(text);
        let linear: Vec<_> = calls.iter().filter(|call| call.contains("linear")).collect();
        // Only the multiplication whose result has other uses.
        assert_eq!(linear, ["%11 = aten.linear.default(%0, %2, none)"]);
    }
}
