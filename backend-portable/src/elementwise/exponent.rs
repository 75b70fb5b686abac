//! Decomposition into mantissa and exponent: `frexp`.

use crate::number::{ComputeType, elements_mut, load, store, unsupported};
use crate::real::Real;
use crate::table::kernels;
use torchlet_core::Param::{Out, Tensor};
use torchlet_core::{Invoke, InvokeFn, Kernel, KernelError, Plan, ScalarType};

kernels! {
    /// `aten::frexp.Tensor_out(self, mantissa, exponent)`: decomposes `self` into
    /// `mantissa * 2^exponent` with a mantissa in `0.5..1`. Zero, infinities and NaN are their own
    /// mantissas.
    FREXP_TENSOR_OUT = Kernel::new("aten::frexp.Tensor_out", &[Tensor, Out, Out], |ctx| {
        let input = ctx.info(0)?;
        let run: InvokeFn = match ComputeType::of(input.scalar_type) {
            Some(ComputeType::F32) => frexp::<f32>,
            Some(ComputeType::F64) => frexp::<f64>,
            _ => return Err(unsupported(0, input.scalar_type)),
        };
        for arg in [1, 2] {
            ctx.resize(arg, &input.sizes)?;
        }
        for (arg, wanted) in [(1, input.scalar_type), (2, ScalarType::Int)] {
            let found = ctx.info(arg)?;
            if found.scalar_type != wanted {
                return Err(unsupported(arg, found.scalar_type));
            }
            // Elements are processed in memory order.
            if !found.same_layout_as(&input) {
                return Err(KernelError::layout(arg));
            }
        }
        Ok(Plan::new(run))
    });
}

/// Number of values that are converted at a time, to a buffer on the stack.
const BLOCK: usize = 64;

fn frexp<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let input = ctx.tensor(0)?;
    let (mut mantissa, mut exponent) = (ctx.out(1)?, ctx.out(2)?);
    let (scalar_type, size) = (input.scalar_type, input.scalar_type.size());
    let mut values = [C::default(); BLOCK];
    let mantissas = mantissa.bytes_mut().chunks_mut(BLOCK * size);
    let exponents = elements_mut::<i32>(exponent.bytes_mut()).chunks_mut(BLOCK);
    for (block, (mantissas, exponents)) in mantissas.zip(exponents).enumerate() {
        let values = &mut values[..exponents.len()];
        load(scalar_type, input.bytes(), (block * BLOCK) as isize, 1, values);
        for (value, exponent) in values.iter_mut().zip(exponents) {
            *exponent = 0;
            let finite = value.abs() < C::real(f64::INFINITY);
            if finite && value.truth() {
                (*value, *exponent) = value.frexp();
            }
        }
        store(scalar_type, mantissas, values);
    }
    Ok(())
}
