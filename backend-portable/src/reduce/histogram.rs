//! Histograms: `histc`.

use crate::number::{load, round_through, store, unsupported};
use crate::real::{Real, by_type};
use crate::table::kernels;
use torchlet_core::Param::{Int, Out, Scalar, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError, Plan, Prepare};

kernels! {
    /// `aten::histc.out(self, bins, min, max, out)`: the number of values in each of `bins` bins of
    /// equal width from `min` to `max`. If both are equal, the bins extend over the range of the
    /// values.
    HISTC_OUT = Kernel::new("aten::histc.out", &[Tensor, Int, Scalar, Scalar, Out], prepare);
}

/// Number of values that are converted at a time, to a buffer on the stack.
const BLOCK: usize = 64;

fn prepare(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let bins = i32::try_from(ctx.int(1)?).ok().filter(|bins| *bins > 0);
    ctx.resize(
        4,
        &[bins.ok_or(KernelError::argument(1, "number of bins: expected 1 to 2^31 - 1"))?],
    )?;
    let (found, made) = (ctx.info(0)?.scalar_type, ctx.info(4)?.scalar_type);
    if found != made {
        return Err(unsupported(4, made));
    }
    by_type(ctx, 0, [histogram::<f32>, histogram::<f64>])
}

fn histogram<C: Real + PartialOrd>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let input = ctx.tensor(0)?;
    let (count, scalar_type) = (input.numel(), input.scalar_type);
    // As in PyTorch, half values are rounded after each step, which affects the edges.
    let rounded = |value: C| {
        let mut values = [value];
        round_through(scalar_type, &mut values);
        values[0]
    };
    let ends = [ctx.scalar(2)?, ctx.scalar(3)?];
    let [low, high] = ends.map(|end| rounded(C::of_scalar(end)));
    let each = |visit: &mut dyn FnMut(C)| {
        let mut block = [C::default(); BLOCK];
        for start in (0..count).step_by(BLOCK) {
            let block = &mut block[..BLOCK.min(count - start)];
            load(scalar_type, input.bytes(), start as isize, 1, block);
            block.iter().for_each(|value| visit(*value));
        }
    };
    let (mut low, mut high) = (low, high);
    if low == high && count > 0 {
        let mut ends = None;
        each(&mut |value| {
            let (least, largest) = ends.unwrap_or((value, value));
            let least = if value < least || value.to_f64().is_nan() { value } else { least };
            ends = Some((
                least,
                if value > largest || value.to_f64().is_nan() { value } else { largest },
            ));
        });
        (low, high) = ends.unwrap_or((low, high));
    }
    if low == high {
        (low, high) = (rounded(low - C::real(1.0)), rounded(high + C::real(1.0)));
    }
    let is_finite = |value: C| value.to_f64().is_finite();
    if !is_finite(low) || !is_finite(high) || low > high {
        return Err(KernelError::argument(2, "range: expected finite limits in increasing order"));
    }
    let mut out = ctx.out(4)?;
    let bins = out.numel();
    let size = scalar_type.size();
    out.bytes_mut().fill(0);
    let (parts, width) = (rounded(C::count(bins)), rounded(high - low));
    each(&mut |value| {
        if !(value >= low && value <= high) {
            return;
        }
        let offset = rounded(rounded(rounded(value - low) * parts) / width).to_f64() as usize;
        let offset = offset.min(bins - 1) * size;
        if let Some(bytes) = out.bytes_mut().get_mut(offset..offset + size) {
            let mut known = [C::default()];
            load(scalar_type, bytes, 0, 1, &mut known);
            known[0] = known[0] + C::real(1.0);
            store(scalar_type, bytes, &known);
        }
    });
    Ok(())
}
