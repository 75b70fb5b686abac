//! Sums and means of complex values, in PyTorch's order for contiguous summands.

use super::Form;
use super::cascade::{add_all, sum_run};
use super::engine::{Geometry, Order};
use crate::elementwise::Arithmetic;
use crate::elementwise::complex::{is_complex, part, write};
use crate::number::{load, unsupported};
use crate::real::Real;
use torchlet_core::rules::reduced_shape;
use torchlet_core::{Invoke, KernelError, Plan, Prepare, ScalarType, Serial};

/// Returns a plan if argument 0 is complex. Resizes `out`, which must have the same dtype, to the
/// reduced shape.
pub(super) fn plan(
    ctx: &mut Prepare,
    form: Form,
    out: usize,
    [single, double]: crate::elementwise::complex::ByPart,
) -> Result<Option<Plan>, KernelError> {
    let input = ctx.info(0)?;
    if !is_complex(input.scalar_type) {
        return Ok(None);
    }
    let found = ctx.info(out)?.scalar_type;
    if found != input.scalar_type {
        return Err(unsupported(out, found));
    }
    let sizes = reduced_shape(&input.sizes, form.dims(ctx, input.rank())?, form.keep(ctx)?);
    ctx.resize(out, &sizes)?;
    let is_double = part(found) == Some(ScalarType::Double);
    Ok(Some(Plan::new(if is_double { double } else { single })))
}

/// Sums, or with `MEAN` averages, argument 0 into `out`.
pub(super) fn sums<C: Real + Arithmetic, const MEAN: bool>(
    ctx: &mut Invoke,
    form: Form,
    out: usize,
) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let input = ctx.tensor(0)?;
    let parts = part(input.scalar_type).ok_or(unsupported(0, input.scalar_type))?;
    let dims = form.dims(ctx, input.rank())?;
    let out = ctx.out(out)?;
    let info = out.info().clone();
    let (size, bytes) = (info.scalar_type.size(), out.into_bytes());
    let geometry = Geometry::new(input.info(), dims, &info, Order::Memory);
    let count = C::count(if MEAN { geometry.count() } else { 1 });
    let [stride] = geometry.elements.inner_steps();
    let of_side = |base: isize, side: isize| {
        let mut total = C::default();
        geometry.elements.for_each_run(0, geometry.count(), &mut |_, [at], len| {
            let add = |i: usize, sums: &mut [C]| {
                let mut block = [C::default(); 16];
                let block = &mut block[..sums.len().min(16)];
                let at = base.wrapping_add(at).wrapping_add(stride.wrapping_mul(i as isize));
                let first = at.wrapping_mul(2).wrapping_add(side);
                load(parts, input.bytes(), first, stride.wrapping_mul(2), block);
                add_all(sums, block);
            };
            // A vector has 32 bytes.
            let sum = match size {
                8 => sum_run::<C, 16>(&Serial, len, add),
                16 => sum_run::<C, 8>(&Serial, len, add),
                _ => sum_run::<C, 4>(&Serial, len, add),
            };
            total = Arithmetic::add(total, sum);
        });
        total / count
    };
    let [step] = geometry.results.inner_steps();
    geometry.results.for_each_run(0, geometry.results.numel(), &mut |first, [at], len| {
        for i in 0..len {
            let base = at.wrapping_add(step.wrapping_mul(i as isize));
            let value = [of_side(base, 0), of_side(base, 1)];
            let bytes = bytes.get_mut((first + i) * size..).and_then(|it| it.get_mut(..size));
            write(info.scalar_type, bytes.unwrap_or_default(), &[value]);
        }
    });
    Ok(())
}
