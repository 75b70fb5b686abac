//! `col2im`: accumulation of window columns into images.

use super::backward::{feature_map, for_each, shape_mismatch};
use super::feature_map::SPACE;
use crate::linear::Ring;
use crate::number::{ComputeType, load, store, unsupported};
use crate::shape::{bad, contiguous, same_type};
use crate::table::kernels;
use torchlet_core::Param::{IntList, Out, Tensor};
use torchlet_core::layout::Sizes;
use torchlet_core::rules::window::{Window, Windows, windows};
use torchlet_core::{Arguments, Invoke, Kernel, KernelError, Plan, Prepare};

kernels! { COLUMNS:
    /// `aten::col2im.out(self, output_size, kernel_size, dilation, padding, stride, out)`: each
    /// pixel is the sum of the window elements at its position. The columns
    /// `[batch, channels * taps, windows]` are contiguous.
    COL2IM_OUT = Kernel::new(
        "aten::col2im.out",
        &[Tensor, IntList, IntList, IntList, IntList, IntList, Out],
        prepare,
    );
}

fn read_windows(ctx: &Arguments) -> Result<Windows, KernelError> {
    let windows = windows(2, &ctx.ints(2)?, &ctx.ints(5)?, &ctx.ints(4)?, &ctx.ints(3)?);
    windows.ok_or(bad(
        2,
        "kernel_size, dilation, padding or stride: expected one or two values in range",
    ))
}

fn prepare(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let (input, windows) = (ctx.info(0)?, read_windows(ctx)?);
    let (batch, [rows, columns]) = match &input.sizes[..] {
        [rows, columns] => (None, [*rows, *columns]),
        [batch, rows, columns] => (Some(*batch), [*rows, *columns]),
        _ => return Err(KernelError::rank(0, input.rank())),
    };
    let size = ctx.ints(1)?;
    let [height, width] = *size else { return Err(bad(1, "expected a positive height and width")) };
    let as_size = |size: i64| i32::try_from(size).ok().filter(|size| *size > 0);
    let space = as_size(height)
        .zip(as_size(width))
        .ok_or(bad(1, "expected a positive height and width"))?;
    let window_counts = windows.iter().zip([space.0, space.1]);
    let mut window_counts = window_counts.map(|(window, size)| window.convolved(size as usize));
    let window_counts =
        window_counts.try_fold(1usize, |all, window_counts| all.checked_mul(window_counts?));
    let taps = windows.iter().try_fold(1i64, |all, window| all.checked_mul(window.kernel() as i64));
    let channels =
        taps.filter(|taps| i64::from(rows) % taps == 0).map(|taps| i64::from(rows) / taps);
    let channels =
        channels.and_then(|channels| i32::try_from(channels).ok()).ok_or(shape_mismatch(0))?;
    if window_counts != usize::try_from(columns).ok() {
        return Err(shape_mismatch(0));
    }
    let sizes: Sizes = batch.into_iter().chain([channels, space.0, space.1]).collect();
    ctx.resize(6, &sizes)?;
    same_type(ctx, 0, 6)?;
    contiguous(0, &input)?;
    Ok(Plan::new(match ComputeType::of(input.scalar_type) {
        Some(ComputeType::F32) => run::<f32>,
        Some(ComputeType::F64) => run::<f64>,
        _ => return Err(unsupported(0, input.scalar_type)),
    }))
}

/// The taps that cover a position, with their windows. Iterates over taps or windows, whichever are
/// fewer.
fn taps_at(
    window: Window,
    position: usize,
    windows: usize,
) -> impl Iterator<Item = (usize, usize)> + Clone {
    let (taps, at) = ((window.kernel(), window.dilation()), position + window.padding());
    let windows = (windows, window.stride());
    let by_tap = taps.0 <= windows.0;
    let ((few, step), (many, other_step)) = if by_tap { (taps, windows) } else { (windows, taps) };
    (0..few).filter_map(move |number| {
        let rest = at.checked_sub(number.checked_mul(step)?)?;
        let other = rest / other_step;
        let is_there = rest.is_multiple_of(other_step) && other < many;
        is_there.then_some(if by_tap { (number, other) } else { (other, number) })
    })
}

fn run<C: Ring>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (input, windows) = (ctx.tensor(0)?, read_windows(ctx)?);
    let [down, across] = windows[..] else { return Err(shape_mismatch(2)) };
    let out = ctx.out(6)?;
    let to = feature_map(&out, 2, 6)?;
    let [_, height, width] = to.space();
    let window_counts = [down.convolved(height), across.convolved(width)];
    let [Some(high), Some(wide)] = window_counts else { return Err(shape_mismatch(0)) };
    let (scalar_type, size) = (input.scalar_type, input.scalar_type.size());
    let out = out.into_bytes();
    for_each(to.sizes, |index| {
        let [batch, channel, ..] = index;
        let mut sum = C::default();
        let columns = taps_at(across, index[SPACE + 2], wide);
        for (y, row) in taps_at(down, index[SPACE + 1], high) {
            for (x, column) in columns.clone() {
                let tap = (batch * to.sizes[1] + channel) * down.kernel() + y;
                let at = ((tap * across.kernel() + x) * high + row) * wide + column;
                let mut value = [C::default()];
                load(scalar_type, input.bytes(), at as isize, 0, &mut value);
                sum = sum.mul_add(value[0], C::of_bool(true));
            }
        }
        let at: usize = index.iter().zip(to.strides).map(|(i, stride)| i * stride).sum();
        if let Some(out) = out.get_mut(at * size..(at + 1) * size) {
            store(scalar_type, out, &[sum]);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_at_agrees_for_both_loops() {
        for (kernel, stride, padding, dilation) in [(3, 1, 1, 1), (2, 3, 0, 2), (5, 2, 2, 3)] {
            let window = Window::new(kernel, stride, padding, dilation).unwrap();
            for windows in [1, 2, 4, 7] {
                for position in 0..20 {
                    let all =
                        (0..window.kernel()).flat_map(|tap| (0..windows).map(move |n| (tap, n)));
                    let is_there = |&(tap, number): &(usize, usize)| {
                        number * window.stride() + tap * window.dilation()
                            == position + window.padding()
                    };
                    let mut found: Vec<_> = taps_at(window, position, windows).collect();
                    found.sort_unstable();
                    assert_eq!(found, all.filter(is_there).collect::<Vec<_>>());
                }
            }
        }
    }

    /// With few windows, this terminates quickly, however large the kernel is.
    #[test]
    fn huge_kernels_terminate() {
        let giant = Window::new(i32::MAX.into(), 1, 0, 1).unwrap();
        for position in 0..1000 {
            assert!(taps_at(giant, position, 1).eq([(position, 0)]));
        }
    }
}
