//! Decomposition of transposed convolutions into plain ones.
//!
//! Outputs whose indices differ by a multiple of the stride use the same taps of the kernel, each
//! at the next input position. Such a set of outputs is a *phase*: a plain convolution of stride
//! one with a subset of the taps, in reverse order. Computed by phases, a transposed convolution
//! multiplies no inserted zeros and writes each output once.

use std::vec::Vec;
use torchlet_core::rules::window::Window;

/// Maximum number of phases per dim. With more, each has too little work.
const MAX_PHASES: usize = 16;

/// The taps of a kernel over one dim that a phase uses, in the order of the phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::engine) struct Taps {
    /// Number of taps of the whole kernel.
    pub(super) kernel: usize,
    first: usize,
    step: usize,
    pub(super) count: usize,
    backwards: bool,
}

impl Taps {
    /// All taps of a kernel, in order.
    pub(super) fn all(kernel: usize) -> Self {
        Taps { kernel, first: 0, step: 1, count: kernel, backwards: false }
    }

    /// Index in the kernel of tap `index` of the phase.
    pub(super) fn at(&self, index: usize) -> usize {
        let index = if self.backwards { self.count - 1 - index } else { index };
        self.first + index * self.step
    }

    /// The fields as integers, for cache keys.
    pub(in crate::engine) fn numbers(&self) -> [usize; 5] {
        [self.kernel, self.first, self.step, self.count, self.backwards.into()]
    }
}

/// A set of outputs over one dim that form a plain convolution of stride one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Phase {
    /// Index of the first output, distance to the next, and number of outputs.
    pub(super) start: usize,
    pub(super) every: usize,
    pub(super) count: usize,
    /// Window of the plain convolution, and number of its first outputs to skip.
    pub(super) window: Window,
    pub(super) skip: usize,
    pub(super) taps: Taps,
}

impl Phase {
    /// A plain convolution as a single phase with all outputs.
    pub(super) fn whole(window: Window, count: usize) -> Self {
        let taps = Taps::all(window.kernel());
        Phase { start: 0, every: 1, count, window, skip: 0, taps }
    }

    /// Decomposes a transposed convolution over one dim. `None` if it has too many phases, or an
    /// output without taps.
    pub(super) fn of_transposed(window: Window, input: usize, output: usize) -> Option<Vec<Self>> {
        if window.stride() > MAX_PHASES {
            return None;
        }
        (0..window.stride().min(output)).map(|start| of(window, input, output, start)).collect()
    }
}

/// The phase whose first output is `start`.
fn of(window: Window, input: usize, output: usize, start: usize) -> Option<Phase> {
    let [kernel, stride, padding, dilation] =
        [window.kernel(), window.stride(), window.padding(), window.dilation()];
    // Distance of consecutive taps of an output, and of the input positions that they read.
    let shared = divisor(stride, dilation);
    let (step, input_step) = (stride / shared, dilation / shared);
    let wide = |number: usize| i64::try_from(number).ok();
    let behind = |tap: usize| -> Option<i64> {
        wide(start)?
            .checked_add(wide(padding)?)?
            .checked_sub(wide(tap)?.checked_mul(wide(dilation)?)?)
    };
    let is_met = |tap: &usize| behind(*tap).is_some_and(|at| at % (stride as i64) == 0);
    let first = (0..step.min(kernel)).find(is_met)?;
    let count = (kernel - 1 - first) / step + 1;
    let reach = wide(count - 1)?.checked_mul(wide(input_step)?)?;
    // Input position that the first output reads through the last tap of the kernel, which is the
    // first tap of the phase.
    let origin = behind(first)? / wide(stride)? - reach;
    let outputs = (output - start).div_ceil(stride);
    let last = wide(outputs)? - 1 + origin + reach;
    let around = (last - (wide(input)? - 1)).max(-origin).max(0);
    let convolved = Window::new(wide(count)?, 1, around, wide(input_step)?)?;
    Some(Phase {
        start,
        every: stride,
        count: outputs,
        window: convolved,
        skip: usize::try_from(around + origin).ok()?,
        taps: Taps { kernel, first, step, count, backwards: true },
    })
}

fn divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the taps and input positions that contribute to each output, by the definition of
    /// transposed convolution.
    fn seen(window: Window, input: usize, output: usize) -> Vec<Vec<(usize, usize)>> {
        let mut all = std::vec![Vec::new(); output];
        for position in 0..input {
            for tap in 0..window.kernel() {
                let at = position * window.stride() + tap * window.dilation();
                if let Some(at) = at.checked_sub(window.padding()).filter(|at| *at < output) {
                    all[at].push((tap, position));
                }
            }
        }
        all
    }

    #[test]
    fn phases_see_what_the_whole_sees() {
        let mut count = 0;
        for numbers in 0..5 * 4 * 4 * 3 * 4 {
            let (kernel, rest) = (numbers % 5 + 1, numbers / 5);
            let (stride, rest) = (rest % 4 + 1, rest / 4);
            let (padding, rest) = (rest % 4, rest / 4);
            let (dilation, input) = (rest % 3 + 1, rest / 3 + 3);
            let window = Window::new(kernel, stride, padding, dilation).unwrap();
            let input = usize::try_from(input).unwrap();
            for extra in 0..2 {
                let Some(output) = window.transposed(input, extra).filter(|size| *size > 0) else {
                    continue;
                };
                let wanted = seen(window, input, output);
                let Some(phases) = Phase::of_transposed(window, input, output) else {
                    assert!(kernel < stride || dilation > 1, "{window:?}");
                    continue;
                };
                let mut outputs = 0;
                for phase in phases {
                    count += 1;
                    let size = phase.window.convolved(input).unwrap();
                    assert!(phase.skip + phase.count <= size, "{window:?} {phase:?}");
                    for index in 0..phase.count {
                        let taps = phase.window.taps(phase.skip + index, input);
                        let mut found: Vec<_> = (0..taps.count)
                            .map(|tap| {
                                let position = taps.start + tap * phase.window.dilation();
                                (phase.taps.at(taps.first + tap), position)
                            })
                            .collect();
                        found.sort_unstable();
                        let mut wanted = wanted[phase.start + index * phase.every].clone();
                        wanted.sort_unstable();
                        assert_eq!(found, wanted, "{window:?} {phase:?} {index}");
                        outputs += 1;
                    }
                }
                assert_eq!(outputs, output);
            }
        }
        assert!(count > 1000, "{count}");
    }
}
