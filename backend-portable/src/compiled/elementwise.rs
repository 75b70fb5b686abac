//! Element-wise calls, padding, permutation and softmax.

use super::{SoftmaxRow, Span, Sum, TIER, elements, int8, int8_mut, parts};
use crate::compute::q8::elementwise::{Context, add};
use crate::compute::q8::softmax;
use crate::quantized::affine::dequantized;
use torchlet_core::Serial;

/// Quantization of an input of the method, which is read in place.
#[derive(Debug)]
pub struct Quantize {
    /// Reciprocal of the scale.
    pub inverse: f32,
    /// Zero point.
    pub zero: f32,
    /// Minimum and maximum of the results.
    pub bounds: (f32, f32),
    /// Output: int8 values.
    pub out: Span,
}

impl Quantize {
    /// Runs the call.
    pub fn run(&self, input: &[f32], memory: &mut [u8]) {
        /// Adding it leaves no bits for fractions, so the sum is rounded to an integer, ties to
        /// even. The other bits of the sum are that integer.
        const ROUNDING: f32 = 12_582_912.0;
        // Bounds and zero point are integers, so bounding before rounding gives the same results as
        // the kernel.
        let (low, high) = (self.bounds.0 - self.zero, self.bounds.1 - self.zero);
        let offset = (self.zero as i32).wrapping_sub(ROUNDING.to_bits() as i32);
        for (out, &value) in int8_mut(self.out.of_mut(memory)).iter_mut().zip(input) {
            let value = value * self.inverse;
            let bounded = if value < low { low } else { value };
            let bounded = if bounded > high { high } else { bounded };
            let rounded = (bounded + ROUNDING).to_bits() as i32;
            // NaN becomes zero, as in the conversion of `f32` to integers.
            *out = if value.is_nan() { 0 } else { rounded.wrapping_add(offset) as i8 };
        }
    }
}

/// Dequantization.
#[derive(Debug)]
pub struct Dequantize {
    /// Scale.
    pub scale: f32,
    /// Zero point.
    pub zero: f32,
    /// Input: int8 values.
    pub input: Span,
    /// Output: `f32` values.
    pub out: Span,
}

impl Dequantize {
    /// Runs the call.
    pub fn run(&self, memory: &mut [u8]) {
        let Some([input, out]) = parts(memory, [self.input, self.out]) else { return };
        for (out, &value) in elements::<f32>(out).iter_mut().zip(int8(input)) {
            *out = dequantized(value.into(), self.scale, self.zero);
        }
    }
}

/// Addition of quantized tensors of the same shape and memory order.
#[derive(Debug)]
pub struct Add {
    /// Its parameters.
    pub sum: Sum,
    /// Operands, disjoint or the same.
    pub inputs: [Span; 2],
    /// Output.
    pub out: Span,
}

impl Add {
    /// Runs the call.
    pub fn run(&self, memory: &mut [u8]) {
        let [a, b] = self.inputs;
        let context = Context { tier: TIER, parallel: &Serial };
        let sum = |a: &[u8], b: &[u8], out: &mut [u8]| {
            add(context, self.sum, [int8(a), int8(b)], int8_mut(out));
        };
        if a == b {
            let Some([a, out]) = parts(memory, [a, self.out]) else { return };
            sum(a, a, out);
        } else {
            let Some([a, b, out]) = parts(memory, [a, b, self.out]) else { return };
            sum(a, b, out);
        }
    }
}

/// Softmax of int8 rows.
#[derive(Debug)]
pub struct Softmax {
    /// Its parameters.
    pub softmax: SoftmaxRow,
    /// Length of a row.
    pub width: usize,
    /// Input.
    pub input: Span,
    /// Output.
    pub out: Span,
}

impl Softmax {
    /// Runs the call.
    pub fn run(&self, memory: &mut [u8]) {
        let Some([input, out]) = parts(memory, [self.input, self.out]) else { return };
        softmax::rows(&Serial, self.softmax, self.width, int8(input), int8_mut(out));
    }
}

/// Padding with a constant.
#[derive(Debug)]
pub struct Pad {
    /// Sizes of the input, in memory order.
    pub from: [usize; 4],
    /// Sizes of the output, in memory order.
    pub to: [usize; 4],
    /// Padding before each axis.
    pub before: [usize; 4],
    /// Value of the padding.
    pub value: u8,
    /// Input.
    pub input: Span,
    /// Output.
    pub out: Span,
}

impl Pad {
    /// Runs the call.
    pub fn run(&self, memory: &mut [u8]) {
        let Some([input, out]) = parts(memory, [self.input, self.out]) else { return };
        out.fill(self.value);
        let ([outer, middle, inner, width], from) = (self.to, self.from);
        let mut lines = out.chunks_exact_mut(width.max(1));
        for a in 0..outer {
            for b in 0..middle {
                for c in 0..inner {
                    let Some(line) = lines.next() else { return };
                    let at = |axis: usize, index: usize| {
                        let index = index.checked_sub(self.before[axis])?;
                        (index < from[axis]).then_some(index)
                    };
                    let (Some(a), Some(b), Some(c)) = (at(0, a), at(1, b), at(2, c)) else {
                        continue;
                    };
                    let start = ((a * from[1] + b) * from[2] + c) * from[3];
                    let line = line.get_mut(self.before[3]..).unwrap_or_default();
                    let source = input.get(start..start + from[3]).unwrap_or(&[]);
                    if let Some(line) = line.get_mut(..source.len()) {
                        line.copy_from_slice(source);
                    }
                }
            }
        }
    }
}

/// Copy to another memory order.
#[derive(Debug)]
pub struct Permute {
    /// Sizes of the output, in its memory order.
    pub sizes: [usize; 4],
    /// Strides of the input for these axes, in elements.
    pub strides: [usize; 4],
    /// Bytes of an element.
    pub size: usize,
    /// Input.
    pub input: Span,
    /// Output.
    pub out: Span,
}

impl Permute {
    /// Runs the call.
    pub fn run(&self, memory: &mut [u8]) {
        let Some([input, out]) = parts(memory, [self.input, self.out]) else { return };
        let mut items = out.chunks_exact_mut(self.size.max(1));
        let ([outer, middle, inner, width], [a_step, b_step, c_step, d_step]) =
            (self.sizes, self.strides);
        for a in 0..outer {
            for b in 0..middle {
                for c in 0..inner {
                    for d in 0..width {
                        let at = a * a_step + b * b_step + c * c_step + d * d_step;
                        let source = input.get(at * self.size..).unwrap_or(&[]);
                        if let (Some(item), Some(source)) = (items.next(), source.get(..self.size))
                        {
                            item.copy_from_slice(source);
                        }
                    }
                }
            }
        }
    }
}
