//! Convolution in a plain loop: any element type, any memory order, no scratch memory.
//!
//! The output is computed in its memory order, in runs over its innermost dim. Loops over taps are
//! limited to the input, so that no parameter makes them longer than the tensors.

use super::convolution::{Call, call};
use super::feature_map::{CHANNELS, DIMS, SPACE, for_each_row};
use crate::linear::Ring;
use crate::number::{load, store};
use torchlet_core::rules::window::{Taps, Window};
use torchlet_core::{Invoke, KernelError, Parallel, ScalarType};

/// Number of input channels that are converted at a time, to buffers on the stack.
const BLOCK: usize = 32;

/// A convolution with its data.
pub(super) struct Job<'a> {
    pub(super) call: &'a Call,
    pub(super) scalar_type: ScalarType,
    pub(super) input: &'a [u8],
    pub(super) weight: &'a [u8],
    pub(super) bias: Option<&'a [u8]>,
}

/// The taps over one dim that contribute to an output position: their number, the first tap and its
/// input position, and the steps of both.
#[derive(Clone, Copy)]
struct Reach {
    taps: Taps,
    tap_step: usize,
    /// Step of the input position; negative for a transposed convolution.
    step: isize,
}

impl Reach {
    fn new(window: &Window, transposed: bool, at: usize, input: usize) -> Self {
        if !transposed {
            let taps = window.taps(at, input);
            return Reach { taps, tap_step: 1, step: window.dilation() as isize };
        }
        // Input i and tap t contribute to output i * stride - padding + t * dilation. Matching taps
        // have `at + padding - t * dilation` divisible by the stride; they repeat with a period of
        // at most `stride` taps.
        let none = Reach { taps: Taps::default(), tap_step: 1, step: 0 };
        let (stride, dilation) = (window.stride() as i64, window.dilation() as i64);
        let target = at as i64 + window.padding() as i64;
        let common = gcd(stride, dilation);
        if target % common != 0 {
            return none;
        }
        let (tap_step, step) = (stride / common, dilation / common);
        // The input index must be below `input`: t * dilation > target - input * stride.
        let least = (target - (input as i64 - 1) * stride).max(0);
        let mut tap = (least + dilation - 1) / dilation;
        // At most `tap_step` attempts. Input positions of these taps differ, so the loop also ends
        // after `input` attempts.
        let mut attempts = tap_step;
        while (target - tap * dilation) % stride != 0 {
            attempts -= 1;
            tap += 1;
            if attempts == 0 || tap >= window.kernel() as i64 || tap * dilation > target {
                return none;
            }
        }
        if tap >= window.kernel() as i64 || tap * dilation > target {
            return none;
        }
        let position = (target - tap * dilation) / stride;
        let by_input = position / step + 1;
        let by_kernel = (window.kernel() as i64 - 1 - tap) / tap_step + 1;
        let count = by_input.min(by_kernel);
        let taps = Taps { first: tap as usize, count: count as usize, start: position as usize };
        Reach { taps, tap_step: tap_step as usize, step: -(step as isize) }
    }

    fn each(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        (0..self.taps.count).map(|i| {
            let position = self.taps.start as isize + i as isize * self.step;
            (self.taps.first + i * self.tap_step, position as usize)
        })
    }
}

fn gcd(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

impl Job<'_> {
    /// Computes one output element, at an index of batch, channel, depth, height and width.
    fn element<C: Ring>(&self, at: [usize; DIMS]) -> C {
        let call = self.call;
        let read = |bytes: &[u8], start: usize, stride: usize, values: &mut [C]| {
            load(self.scalar_type, bytes, start as isize, stride as isize, values);
        };
        let mut sum = [C::default()];
        if let Some(bias) = self.bias {
            read(bias, at[CHANNELS], 0, &mut sum);
        }
        let [mut sum] = sum;
        let in_group = call.input.sizes[CHANNELS] / call.groups;
        let out_group = call.out.sizes[CHANNELS] / call.groups;
        let (group, within) = (at[CHANNELS] / out_group.max(1), at[CHANNELS] % out_group.max(1));
        let (from, weight) = (&call.input.strides, &call.weight.strides);
        let (weight_start, weight_step) = if call.transposed {
            (group * in_group * weight[0] + within * weight[1], weight[0])
        } else {
            (at[CHANNELS] * weight[0], weight[1])
        };
        let start = at[0] * from[0] + group * in_group * from[CHANNELS];
        let missing = 3 - call.windows.len();
        let reach = |dim: usize| {
            let window = dim.checked_sub(missing).and_then(|dim| call.windows.get(dim));
            let input = call.input.sizes[SPACE + dim];
            Reach::new(window.unwrap_or(&Window::ONE), call.transposed, at[SPACE + dim], input)
        };
        let reaches = [reach(0), reach(1), reach(2)];
        if in_group == 0 {
            // Returns early, because empty tensors can have any other sizes.
            return sum;
        }
        let (mut values, mut factors) = ([C::default(); BLOCK], [C::default(); BLOCK]);
        for (kd, d) in reaches[0].each() {
            for (kh, h) in reaches[1].each() {
                for (kw, w) in reaches[2].each() {
                    let x = start + d * from[2] + h * from[3] + w * from[4];
                    let y = weight_start + kd * weight[2] + kh * weight[3] + kw * weight[4];
                    for first in (0..in_group).step_by(BLOCK) {
                        let len = BLOCK.min(in_group - first);
                        let (values, factors) = (&mut values[..len], &mut factors[..len]);
                        read(self.input, x + first * from[CHANNELS], from[CHANNELS], values);
                        read(self.weight, y + first * weight_step, weight_step, factors);
                        for (&value, &factor) in values.iter().zip(factors.iter()) {
                            sum = sum.mul_add(value, factor);
                        }
                    }
                }
            }
        }
        sum
    }

    /// Computes the whole output in `C`.
    pub(super) fn run<C: Ring>(&self, parallel: &dyn Parallel, out: &mut [u8]) {
        let weight = &self.call.weight.sizes;
        let terms = weight.iter().product::<usize>() / weight[0].max(1);
        let size = self.scalar_type.size();
        let write = |mut at: [usize; DIMS], inner: usize, row: &mut [u8]| {
            for (i, out) in row.chunks_exact_mut(size).enumerate() {
                at[inner] = i;
                store(self.scalar_type, out, &[self.element::<C>(at)]);
            }
        };
        for_each_row(parallel, &self.call.out, out, size, terms, &write);
    }
}

/// Computes the convolution in `C`.
pub(super) fn run<C: Ring>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let call = call(ctx)?;
    let (input, weight, bias) = (ctx.tensor(0)?, ctx.tensor(1)?, ctx.optional_tensor(2)?);
    let out = ctx.out(9)?;
    let job = Job {
        call: &call,
        scalar_type: out.scalar_type,
        input: input.bytes(),
        weight: weight.bytes(),
        bias: bias.as_ref().map(|bias| bias.bytes()),
    };
    job.run::<C>(ctx.parallel(), out.into_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposed_taps_match_definition() {
        for kernel in 1..6 {
            for stride in 1..5 {
                for padding in 0..3 {
                    for dilation in 1..5 {
                        let window = Window::new(kernel, stride, padding, dilation).unwrap();
                        for input in 1..5i64 {
                            for at in 0..20i64 {
                                let mut expected: Vec<(usize, usize)> = Vec::new();
                                for tap in 0..kernel {
                                    for i in 0..input {
                                        if i * stride - padding + tap * dilation == at {
                                            expected.push((tap as usize, i as usize));
                                        }
                                    }
                                }
                                let reach = Reach::new(&window, true, at as usize, input as usize);
                                assert_eq!(reach.each().collect::<Vec<_>>(), expected);
                            }
                        }
                    }
                }
            }
        }
    }
}
