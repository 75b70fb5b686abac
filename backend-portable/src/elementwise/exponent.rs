//! Numbers taken apart: `frexp`.

use crate::number::{load, store, unsupported};
use crate::table::kernels;
use torchlet_core::Param::{Out, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError, Plan, ScalarType};

kernels! {
    /// `aten::frexp.Tensor_out(self, mantissa, exponent)`: `self` is `mantissa * 2^exponent`, and the mantissa from a half to below
    /// one. Zero, infinities and what is no number are their own mantissas.
    FREXP_TENSOR_OUT = Kernel::new("aten::frexp.Tensor_out", &[Tensor, Out, Out], |ctx| {
        let input = ctx.info(0)?;
        if !input.scalar_type.is_floating() {
            return Err(unsupported(0, input.scalar_type));
        }
        for arg in [1, 2] {
            ctx.resize(arg, &input.sizes)?;
        }
        for (arg, wanted) in [(1, input.scalar_type), (2, ScalarType::Int)] {
            let found = ctx.info(arg)?;
            if found.scalar_type != wanted {
                return Err(unsupported(arg, found.scalar_type));
            }
            // All in the order in which they lie.
            if !found.same_layout_as(&input) {
                return Err(KernelError::layout(arg));
            }
        }
        Ok(Plan::new(frexp))
    });
}

/// Elements that are handled together.
const BLOCK: usize = 64;

fn frexp(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<f64>()?;
    let input = ctx.tensor(0)?;
    let (mut mantissa, mut exponent) = (ctx.out(1)?, ctx.out(2)?);
    let (scalar_type, size) = (input.scalar_type, input.scalar_type.size());
    let (mut values, mut powers) = ([0.0f64; BLOCK], [0i64; BLOCK]);
    let mantissas = mantissa.bytes_mut().chunks_mut(BLOCK * size);
    let exponents = exponent.bytes_mut().chunks_mut(BLOCK * size_of::<i32>());
    for (block, (mantissas, exponents)) in mantissas.zip(exponents).enumerate() {
        let count = mantissas.len() / size;
        let (values, powers) = (&mut values[..count], &mut powers[..count]);
        load(scalar_type, input.bytes(), (block * BLOCK) as isize, 1, values);
        for (value, power) in values.iter_mut().zip(powers.iter_mut()) {
            *power = 0;
            if value.is_finite() && *value != 0.0 {
                let (fraction, exponent) = libm::frexp(*value);
                (*value, *power) = (fraction, exponent.into());
            }
        }
        store(scalar_type, mantissas, values);
        store(ScalarType::Int, exponents, powers);
    }
    Ok(())
}
