//! Fuses RMSNorm into `et_vk.rms_norm.default(x, weight, epsilon)`.
//!
//! Matches `x · rsqrt(mean(x², -1, keepdim) + epsilon) · weight`, backwards. The square may be a
//! power or a multiplication, and factors may be in any order. In 16-bit graphs, a conversion to
//! `f32` and one back may surround it, with the weight inside or outside.
//!
//! Needs: a graph in which each value is produced once, before its uses. The weights must have a
//! fixed size other than one, or all shapes must be fixed. Rows of dynamic tensors then have as
//! many elements as the weights: the only other size that broadcasts is one, which exporters do not
//! use for dynamic dims. Keeps: norms over other dims than the last, and norms without weights.
//! Rounding: the fused call computes in `f32` and rounds once; intermediate rounding is dropped.

use super::rewrite::{Rewriter, each_call};
use super::uses::inputs;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::Operator;
use torchlet_core::ScalarType;

/// Fuses the calls of RMSNorm. Returns the number of changes.
pub fn run(graph: &mut Graph<'_>) -> usize {
    each_call(graph, |rewriter, node| {
        let (Some(out), Some(norm)) = (node.args.last().copied(), find(rewriter, node)) else {
            return false;
        };
        let epsilon = rewriter.value(Value::Double(norm.epsilon));
        rewriter.call(Operator::ET_VK_RMS_NORM, &[norm.input, norm.weight, epsilon], out);
        true
    })
}

struct Norm {
    input: ValueId,
    weight: ValueId,
    epsilon: f64,
}

fn find(rewriter: &Rewriter<'_, '_>, node: &Node) -> Option<Norm> {
    let out = *node.args.last()?;
    // The last call may be a conversion to the graph's type.
    let product = match narrowed(rewriter, node) {
        Some(product) => rewriter.producer(product)?,
        None => node,
    };
    let (Operator::MUL_TENSOR, [a, b]) = (product.operator, inputs(product)) else { return None };
    [(*a, *b), (*b, *a)].into_iter().find_map(|(normal, weight)| {
        let inner = rewriter.producer(normal)?;
        let normal = narrowed(rewriter, inner).unwrap_or(normal);
        let (input, epsilon) = normalised(rewriter, normal)?;
        let input = widened(rewriter, input).unwrap_or(input);
        let weight = widened(rewriter, weight).unwrap_or(weight);
        let (input_tensor, out_tensor) = (rewriter.tensor(input)?, rewriter.tensor(out)?);
        let weight_tensor = rewriter.tensor(weight)?;
        let is_fixed = |tensor: &Tensor<'_>| !tensor.dynamic;
        let rows_are = is_fixed(weight_tensor)
            && (weight_tensor.sizes != [1] || (is_fixed(input_tensor) && is_fixed(out_tensor)));
        let types = [input_tensor, weight_tensor].map(|tensor| tensor.scalar_type);
        let fits = rows_are
            && input_tensor.sizes == out_tensor.sizes
            && weight_tensor.sizes == input_tensor.sizes.last_chunk::<1>()?
            && types == [out_tensor.scalar_type; 2]
            && rewriter.is_lasting(input)
            && rewriter.is_lasting(weight);
        fits.then_some(Norm { input, weight, epsilon })
    })
}

/// The input of a conversion from `f32` to a 16-bit float type.
fn narrowed(rewriter: &Rewriter<'_, '_>, node: &Node) -> Option<ValueId> {
    let (from, to) = converted(rewriter, node)?;
    is_narrow(to)
        .then(|| inputs(node).first().copied())
        .flatten()
        .filter(|_| from == ScalarType::Float)
}

/// The 16-bit float value that a value is converted to `f32` from.
fn widened(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<ValueId> {
    let node = rewriter.producer(id)?;
    let (from, to) = converted(rewriter, node)?;
    is_narrow(from)
        .then(|| inputs(node).first().copied())
        .flatten()
        .filter(|_| to == ScalarType::Float)
}

fn is_narrow(scalar_type: ScalarType) -> bool {
    matches!(scalar_type, ScalarType::Half | ScalarType::BFloat16)
}

fn converted(rewriter: &Rewriter<'_, '_>, node: &Node) -> Option<(ScalarType, ScalarType)> {
    if !matches!(node.operator, Operator::TO_COPY | Operator::DIM_ORDER_OPS_TO_DIM_ORDER_COPY) {
        return None;
    }
    let from = rewriter.scalar_type(*inputs(node).first()?)?;
    Some((from, rewriter.scalar_type(*node.args.last()?)?))
}

/// The `x` and the epsilon of `x · rsqrt(mean(x²) + epsilon)`.
fn normalised(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<(ValueId, f64)> {
    let [a, b] = rewriter.call_of(id, Operator::MUL_TENSOR)? else { return None };
    [(*a, *b), (*b, *a)].into_iter().find_map(|(input, factor)| {
        let sum = rewriter.call_of(factor, Operator::RSQRT)?.first()?;
        let (mean, epsilon) = sum_with_number(rewriter, *sum)?;
        let [square, dims, keep, ..] = rewriter.call_of(mean, Operator::MEAN_DIM)? else {
            return None;
        };
        let last = rewriter.sizes(input)?.len() as i64 - 1;
        let over_last = matches!(*rewriter.ints(*dims)?, [dim] if dim == -1 || dim == last);
        let fits = over_last
            && rewriter.flag(Some(keep), false)?
            && rewriter.scalar_type(*square) == rewriter.scalar_type(mean)
            && squared(rewriter, *square)? == input;
        fits.then_some((input, epsilon))
    })
}

fn sum_with_number(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<(ValueId, f64)> {
    let node = rewriter.producer(id)?;
    let [a, b, factors @ ..] = inputs(node) else { return None };
    let one = factors.iter().all(|factor| rewriter.number(*factor) == Some(1.0));
    if !matches!(node.operator, Operator::ADD_TENSOR | Operator::ADD_SCALAR) || !one {
        return None;
    }
    let of = |value: ValueId, number| Some((value, rewriter.number(number)?));
    of(*a, *b).or_else(|| of(*b, *a))
}

fn squared(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<ValueId> {
    if let Some([a, b]) = rewriter.call_of(id, Operator::MUL_TENSOR) {
        return (a == b).then_some(*a);
    }
    let [base, exponent] = rewriter.call_of(id, Operator::POW_TENSOR_SCALAR)? else { return None };
    (rewriter.number(*exponent) == Some(2.0)).then_some(*base)
}

#[cfg(test)]
mod tests {
    use crate::passes::text;
    use alloc::string::String;
    use alloc::vec::Vec;

    fn made(text: &str) -> Vec<String> {
        text::right_sides(&text::after(text, super::run))
    }

    const NORM: &str = "in x f32[2,8]
         const w f32[8] = 2
         s f32[2,8] = aten.pow.Tensor_Scalar(x, 2)
         m f32[2,1] = aten.mean.dim(s, [-1], true)
         e f32[2,1] = aten.add.Scalar(m, 1e-6, 1)
         r f32[2,1] = aten.rsqrt.default(e)
         n f32[2,8] = aten.mul.Tensor(x, r)
         o f32[2,8] = aten.mul.Tensor(n, w)
         out o";

    #[test]
    fn a_norm_is_one_call() {
        let expected = ["et_vk.rms_norm.default(%0, %1, 1e-6)"];
        assert_eq!(made(NORM), expected);
        let other = NORM
            .replace("pow.Tensor_Scalar(x, 2)", "mul.Tensor(x, x)")
            .replace("(x, r)", "(r, x)")
            .replace("(n, w)", "(w, n)");
        assert_eq!(made(&other), expected);
    }

    #[test]
    fn what_is_another_norm_stays() {
        for (from, to) in [
            ("x, 2)", "x, 3)"),
            ("[-1]", "[0]"),
            ("(x, r)", "(w, r)"),
            ("m, 1e-6, 1", "m, 1e-6, 2"),
        ] {
            let calls = made(&NORM.replace(from, to));
            assert!(!calls.iter().any(|call| call.contains("rms_norm")), "{to}");
        }
    }

    #[test]
    fn a_norm_of_16_bits_in_between() {
        let expected = ["et_vk.rms_norm.default(%0, %1, 1e-6)"];
        // The weight after the conversion back, and before it.
        for end in [
            "h bf16[2,8] = aten._to_copy.default(n)
             o bf16[2,8] = aten.mul.Tensor(h, w)",
            "v f32[8] = aten._to_copy.default(w)
             p f32[2,8] = aten.mul.Tensor(n, v)
             o bf16[2,8] = aten._to_copy.default(p)",
        ] {
            let calls = made(&alloc::format!(
                "in x bf16[2,8]
                 const w bf16[8] = 2
                 f f32[2,8] = aten._to_copy.default(x)
                 s f32[2,8] = aten.mul.Tensor(f, f)
                 m f32[2,1] = aten.mean.dim(s, [1], true)
                 e f32[2,1] = aten.add.Scalar(m, 1e-6, 1)
                 r f32[2,1] = aten.rsqrt.default(e)
                 n f32[2,8] = aten.mul.Tensor(f, r)
                 {end}
                 out o"
            ));
            assert_eq!(calls, expected);
        }
    }
}
