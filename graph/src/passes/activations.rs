//! Fuses decomposed activations.
//!
//! - `x · sigmoid(x)` is SiLU.
//! - `x · ½ · (1 + erf(x / √2))` is GELU, and `x · ½ · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))` is
//!   the tanh approximation of GELU. Factors may be in any order, and be multiplications or
//!   divisions.
//! - `x · clamp(x + 3, 0, 6) / 6` is hard swish, `clamp(x + 3, 0, 6) / 6` hard sigmoid.
//! - A clamp from below and a clamp from above become one, if the lower limit does not exceed the
//!   upper one.
//!
//! Needs: a graph in which each value is produced once, before its uses. Keeps: patterns whose
//! constants differ from the exact constants by more than the rounding of `f32` or of the graph's
//! dtype. Rounding: the fused call computes PyTorch's function of that name, without intermediate
//! rounding to the graph's dtype.

use super::constant::rounded;
use super::rewrite::{Rewriter, each_call};
use super::uses::inputs;
use super::views::scaled;
use crate::graph::{Graph, Node, Value, ValueId};
use crate::operators::Operator;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
use torchlet_core::ScalarType;

/// Fuses activations. Returns the number of changes.
pub fn run(graph: &mut Graph<'_>) -> usize {
    each_call(graph, |rewriter, node| {
        let Some(out) = node.args.last().copied() else { return false };
        if node.operator == Operator::CLAMP {
            return clamp_once(rewriter, node, out).is_some();
        }
        let Some((input, operator, text)) = activation(rewriter, node) else { return false };
        let description =
            |id| rewriter.tensor(id).map(|tensor| (tensor.scalar_type, &tensor.sizes));
        let same = description(input) == description(out);
        let floating =
            rewriter.scalar_type(out).is_some_and(|scalar_type| scalar_type.is_floating());
        if !same || !floating || !rewriter.is_lasting(input) {
            return false;
        }
        let mut args = vec![input];
        args.extend(text.map(|text| rewriter.value(Value::String(String::from(text)))));
        rewriter.call(operator, &args, out);
        true
    })
}

/// If a call completes an activation: the input of the activation, the fused operator, and the
/// `approximate` argument of GELU.
fn activation(
    rewriter: &Rewriter<'_, '_>,
    node: &Node,
) -> Option<(ValueId, Operator, Option<&'static str>)> {
    let Product { factor, values } = Product::of(rewriter, node)?;
    let scalar_type = rewriter.scalar_type(*node.args.last()?)?;
    match values[..] {
        [a, b] => [(a, b), (b, a)].into_iter().find_map(|(input, gate)| {
            if factor == 1.0 && call_of_one(rewriter, gate, Operator::SIGMOID) == Some(input) {
                return Some((input, Operator::SILU, None));
            }
            if is(scalar_type, factor, 1.0 / 6.0) && ramp(rewriter, gate) == Some(input) {
                return Some((input, Operator::HARDSWISH, None));
            }
            let inner =
                is(scalar_type, factor, 0.5).then(|| plus(rewriter, gate, 1.0)).flatten()?;
            if error_function(rewriter, inner) == Some(input) {
                return Some((input, Operator::GELU, Some("none")));
            }
            let approximate = hyperbolic_tangent(rewriter, inner) == Some(input);
            approximate.then_some((input, Operator::GELU, Some("tanh")))
        }),
        [gate] if is(scalar_type, factor, 1.0 / 6.0) => {
            Some((ramp(rewriter, gate)?, Operator::HARDSIGMOID, None))
        }
        _ => None,
    }
}

/// Merges two clamps that have one limit each.
fn clamp_once(rewriter: &mut Rewriter<'_, '_>, node: &Node, out: ValueId) -> Option<()> {
    let [inner, low, high] = *inputs(node) else { return None };
    let [input, inner_low, inner_high] = *rewriter.call_of(inner, Operator::CLAMP)? else {
        return None;
    };
    let is_none = |id: &ValueId| rewriter.is_none(Some(id));
    let (low, high) = match [low, high, inner_low, inner_high].each_ref().map(is_none) {
        [true, false, false, true] => (inner_low, high),
        [false, true, true, false] => (low, inner_high),
        _ => return None,
    };
    if rewriter.number(low)? > rewriter.number(high)? {
        return None;
    }
    let types = [input, inner, out].map(|id| rewriter.scalar_type(id));
    if types[0] != types[1] || types[1] != types[2] {
        return None;
    }
    rewriter.call(Operator::CLAMP, &[input, low, high], out);
    Some(())
}

/// Whether `number` equals `other`, up to the rounding of `other`, or of its reciprocal, to the
/// dtype.
fn is(scalar_type: ScalarType, number: f64, other: f64) -> bool {
    let near = |ratio: f64| (ratio - 1.0).abs() < 1e-6;
    near(number / other)
        || rounded(scalar_type, other).is_some_and(|other| near(number / other))
        || rounded(scalar_type, other.recip()).is_some_and(|divisor| near(number * divisor))
}

/// A product of a number and values. Values with other uses are not decomposed further.
struct Product {
    factor: f64,
    values: Vec<ValueId>,
}

impl Product {
    fn of(rewriter: &Rewriter<'_, '_>, node: &Node) -> Option<Self> {
        let mut product = Product { factor: 1.0, values: Vec::new() };
        product.multiply(rewriter, node, 4).then_some(product)
    }

    /// As [`Product::of`]; a value that is not a product is a product of itself.
    fn of_value(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Self {
        let product = rewriter.producer(id).and_then(|node| Product::of(rewriter, node));
        product.unwrap_or_else(|| Product { factor: 1.0, values: vec![id] })
    }

    /// Multiplies by the result of a call, if that is a product.
    fn multiply(&mut self, rewriter: &Rewriter<'_, '_>, node: &Node, depth: usize) -> bool {
        if let Some((input, factor)) = scaled(rewriter, node) {
            self.factor *= factor;
            self.multiply_value(rewriter, input, depth);
            return true;
        }
        let [a, b] = inputs(node) else { return false };
        if node.operator != Operator::MUL_TENSOR {
            return false;
        }
        self.multiply_value(rewriter, *a, depth);
        self.multiply_value(rewriter, *b, depth);
        true
    }

    fn multiply_value(&mut self, rewriter: &Rewriter<'_, '_>, id: ValueId, depth: usize) {
        let inner = rewriter.producer(id).filter(|_| depth > 0 && rewriter.uses(id) == 1);
        if !inner.is_some_and(|node| self.multiply(rewriter, node, depth - 1)) {
            self.values.push(id);
        }
    }
}

/// The first argument of the call that produces a value, if that call is of this operator.
fn call_of_one(rewriter: &Rewriter<'_, '_>, id: ValueId, operator: Operator) -> Option<ValueId> {
    rewriter.call_of(id, operator)?.first().copied()
}

/// The other operand of an addition of this number.
fn plus(rewriter: &Rewriter<'_, '_>, id: ValueId, number: f64) -> Option<ValueId> {
    let node = rewriter.producer(id)?;
    let [a, b, factors @ ..] = inputs(node) else { return None };
    let one = factors.iter().all(|factor| rewriter.number(*factor) == Some(1.0));
    if !matches!(node.operator, Operator::ADD_TENSOR | Operator::ADD_SCALAR) || !one {
        return None;
    }
    let [is_a, is_b] = [a, b].map(|id| rewriter.number(*id) == Some(number));
    if is_b { Some(*a) } else { is_a.then_some(*b) }
}

/// The `x` of `clamp(x + 3, 0, 6)`.
fn ramp(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<ValueId> {
    let node = rewriter.producer(id)?;
    let [sum, low, high] = inputs(node) else { return None };
    let clamps = matches!(node.operator, Operator::CLAMP | Operator::HARDTANH);
    let bounds = [low, high].map(|id| rewriter.number(*id));
    let fits = clamps && bounds == [Some(0.0), Some(6.0)];
    fits.then(|| plus(rewriter, *sum, 3.0)).flatten()
}

/// The `x` of `erf(x / √2)`.
fn error_function(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<ValueId> {
    let product = Product::of_value(rewriter, call_of_one(rewriter, id, Operator::ERF)?);
    let scalar_type = rewriter.scalar_type(id)?;
    match product.values[..] {
        [input] if is(scalar_type, product.factor, FRAC_1_SQRT_2) => Some(input),
        _ => None,
    }
}

/// The `x` of `tanh(√(2/π) · (x + 0.044715 · x³))`.
fn hyperbolic_tangent(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<ValueId> {
    let product = Product::of_value(rewriter, call_of_one(rewriter, id, Operator::TANH)?);
    let scalar_type = rewriter.scalar_type(id)?;
    let [sum] = product.values[..] else { return None };
    if !is(scalar_type, product.factor, FRAC_2_SQRT_PI * FRAC_1_SQRT_2) {
        return None;
    }
    let [a, b, factors @ ..] = rewriter.call_of(sum, Operator::ADD_TENSOR)? else { return None };
    if !factors.iter().all(|factor| rewriter.number(*factor) == Some(1.0)) {
        return None;
    }
    [(*a, *b), (*b, *a)].into_iter().find_map(|(input, cube)| {
        let cube = Product::of_value(rewriter, cube);
        let powers = cube.values.iter().map(|value| power(rewriter, *value, input));
        let exponent = powers.sum::<Option<f64>>();
        (is(scalar_type, cube.factor, 0.044715) && exponent == Some(3.0)).then_some(input)
    })
}

/// The exponent, if a value is a power of `base`.
fn power(rewriter: &Rewriter<'_, '_>, id: ValueId, base: ValueId) -> Option<f64> {
    if id == base {
        return Some(1.0);
    }
    let [own, exponent] = rewriter.call_of(id, Operator::POW_TENSOR_SCALAR)? else { return None };
    (*own == base).then(|| rewriter.number(*exponent)).flatten()
}

#[cfg(test)]
mod tests {
    use crate::passes::text;
    use alloc::string::String;
    use alloc::vec::Vec;

    fn made(text: &str) -> Vec<String> {
        text::right_sides(&text::after(text, super::run))
    }

    #[test]
    fn silu() {
        let calls = made(
            "in x f32[4]
             in y f32[4]
             s f32[4] = aten.sigmoid.default(x)
             a f32[4] = aten.mul.Tensor(s, x)
             b f32[4] = aten.mul.Tensor(s, y)
             out a b",
        );
        let expected =
            ["aten.sigmoid.default(%0)", "aten.silu.default(%0)", "aten.mul.Tensor(%2, %1)"];
        assert_eq!(calls, expected);
    }

    #[test]
    fn gelu_in_any_order() {
        let halves = [
            "h f32[4] = aten.mul.Scalar(x, 0.5)
             o f32[4] = aten.mul.Tensor(h, g)",
            "h f32[4] = aten.mul.Tensor(g, x)
             o f32[4] = aten.div.Scalar(h, 2)",
        ];
        let gates = [
            "q f32[4] = aten.div.Tensor(x, root)
             e f32[4] = aten.erf.default(q)",
            "q f32[4] = aten.mul.Scalar(x, 0.7071067811865476)
             e f32[4] = aten.erf.default(q)",
        ];
        for half in halves {
            for gate in gates {
                let calls = made(&alloc::format!(
                    "in x f32[4]
                     const root f32[] = 1.4142135623730951
                     {gate}
                     g f32[4] = aten.add.Scalar(e, 1, 1)
                     {half}
                     out o"
                ));
                assert_eq!(calls, ["aten.gelu.default(%0, \"none\")"]);
            }
        }
    }

    const TANH: &str = "in x f32[4]
         p f32[4] = aten.pow.Tensor_Scalar(x, 3)
         c f32[4] = aten.mul.Scalar(p, 0.044715)
         s f32[4] = aten.add.Tensor(x, c, 1)
         m f32[4] = aten.mul.Scalar(s, 0.7978845608028654)
         t f32[4] = aten.tanh.default(m)
         g f32[4] = aten.add.Scalar(t, 1.0, 1)
         h f32[4] = aten.mul.Scalar(x, 0.5)
         o f32[4] = aten.mul.Tensor(h, g)
         out o";

    #[test]
    fn gelu_with_hyperbolic_tangent() {
        let expected = ["aten.gelu.default(%0, \"tanh\")"];
        assert_eq!(made(TANH), expected);
        let products = TANH.replace(
            "p f32[4] = aten.pow.Tensor_Scalar(x, 3)",
            "pp f32[4] = aten.mul.Tensor(x, x)\np f32[4] = aten.mul.Tensor(pp, x)",
        );
        assert_eq!(made(&products), expected);
    }

    #[test]
    fn factors_in_16_bits() {
        let text = TANH.replace("f32", "f16").replace(
            "c f16[4] = aten.mul.Scalar(p, 0.044715)",
            "const k f64[] = 0.044715
             kh f16[] = aten._to_copy.default(k)
             c f16[4] = aten.mul.Tensor(p, kh)",
        );
        assert_eq!(made(&text), ["aten.gelu.default(%0, \"tanh\")"]);
        let text = "in x f16[4]
             const root f16[] = 1.4140625
             q f16[4] = aten.div.Tensor(x, root)
             e f16[4] = aten.erf.default(q)
             g f16[4] = aten.add.Scalar(e, 1, 1)
             h f16[4] = aten.mul.Scalar(x, 0.5)
             o f16[4] = aten.mul.Tensor(h, g)
             out o";
        assert_eq!(made(text), ["aten.gelu.default(%0, \"none\")"]);
    }

    #[test]
    fn what_is_close_is_not_equal() {
        for (from, to) in
            [("0.044715", "0.0447"), ("x, 3", "x, 2"), ("x, 0.5", "x, 0.6"), ("1.0, 1", "1.5, 1")]
        {
            let calls = made(&TANH.replace(from, to));
            assert!(!calls.iter().any(|call| call.contains("gelu")), "{to}");
        }
    }

    #[test]
    fn hard_swish_and_hard_sigmoid() {
        let calls = made(
            "in x f32[4]
             s f32[4] = aten.add.Scalar(x, 3, 1)
             c f32[4] = aten.clamp.default(s, 0, 6)
             m f32[4] = aten.mul.Tensor(x, c)
             a f32[4] = aten.div.Scalar(m, 6)
             b f32[4] = aten.div.Scalar(c, 6)
             out a b",
        );
        assert_eq!(calls, ["aten.hardswish.default(%0)", "aten.hardsigmoid.default(%0)"]);
    }

    #[test]
    fn hard_swish_as_it_is_exported() {
        let text = "in x f32[4]
             const three i64[] = 3
             const six i64[] = 6
             t f32[] = dim_order_ops._to_dim_order_copy.default(three, none, none, none, none, \
                 false, [])
             s f32[4] = aten.add.Tensor(x, t, 1)
             l f32[4] = aten.clamp.default(s, 0, none)
             c f32[4] = aten.clamp.default(l, none, 6)
             m f32[4] = aten.mul.Tensor(x, c)
             u f32[] = dim_order_ops._to_dim_order_copy.default(six, none, none, none, none, \
                 false, [])
             o f32[4] = aten.div.Tensor(m, u)
             out o";
        assert_eq!(made(text), ["aten.hardswish.default(%0)"]);
        let clamps = made(&text.replace("none, 6)", "none, -6)"));
        assert_eq!(clamps.iter().filter(|call| call.contains("clamp")).count(), 2);
    }
}
