//! Element-wise and layout operators on int8 tensors: quantize, add, multiply, divide, minimum,
//! maximum, lookup tables, transpose and pad.

use super::{expect_type, int, scale};
use crate::compute::q8::elementwise::{self, Context, Product, Sum};
use crate::compute::simd::Tier;
use crate::map::{Two, map};
use crate::number::unsupported;
use crate::quantized::affine::{
    DEQUANTIZE_FORM, QUANTIZE_FORM, dequantize, prepare_dequantize, prepare_quantize, quantize,
};
use crate::real::Real;
use crate::shape::maps::{Map, Maps};
use crate::shape::{bad, same_type, walk_of};
use crate::table::kernels;
use torchlet_core::Param::{Float, Int, IntList, Out, Tensor};
use torchlet_core::layout::same_layout;
use torchlet_core::rules::{View, broadcast};
use torchlet_core::{
    Arguments, Elements, Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, ScalarType,
    TensorInfo,
};

kernels! { ELEMENTWISE:
    /// `cortex_m::quantize_per_tensor.out(input, scale, zero_point,
    /// quant_min, quant_max, dtype, out)`: quantizes with one scale and zero point.
    CORTEX_M_QUANTIZE_PER_TENSOR_OUT = Kernel::new(
        "cortex_m::quantize_per_tensor.out",
        &[Tensor, Float, Int, Int, Int, Int, Out],
        |ctx| {
            prepare_quantize(
                ctx,
                QUANTIZE_FORM,
                [
                    |ctx| quantize::<f32>(ctx, QUANTIZE_FORM),
                    |ctx| quantize::<f64>(ctx, QUANTIZE_FORM),
                ],
            )
        },
    )
    .with_elements(Elements::Float);
    /// `cortex_m::dequantize_per_tensor.out(input, scale, zero_point,
    /// quant_min, quant_max, dtype, out)`: dequantizes with one scale and zero point.
    CORTEX_M_DEQUANTIZE_PER_TENSOR_OUT = Kernel::new(
        "cortex_m::dequantize_per_tensor.out",
        &[Tensor, Float, Int, Int, Int, Int, Out],
        |ctx| {
            prepare_dequantize(
                ctx,
                DEQUANTIZE_FORM,
                [
                    |ctx| dequantize::<f32>(ctx, DEQUANTIZE_FORM),
                    |ctx| dequantize::<f64>(ctx, DEQUANTIZE_FORM),
                ],
            )
        },
    )
    .with_elements(Elements::Float);
    /// `cortex_m::quantized_add.out(self, zero_point, multiplier, shift,
    /// other, zero_point, multiplier, shift, output_zero_point, output_multiplier,
    /// output_shift, activation_min, activation_max, out)`: addition, requantized and clamped.
    QUANTIZED_ADD_OUT = Kernel::new(
        "cortex_m::quantized_add.out",
        &[Tensor, Int, Int, Int, Tensor, Int, Int, Int, Int, Int, Int, Int, Int, Out],
        |ctx| {
            for arg in [2, 6, 9] {
                scale(ctx, arg)?;
            }
            prepare_two(ctx, 4, 13, |ctx| {
                // Bits of precision that rescaling adds: 20 for int8, 15 for int16.
                let headroom = if ctx.info(0)?.scalar_type == ScalarType::Char { 20 } else { 15 };
                let sum = Sum {
                    zeros: [int(ctx, 1)?, int(ctx, 5)?],
                    scales: [scale(ctx, 2)?, scale(ctx, 6)?],
                    headroom,
                    scale: scale(ctx, 9)?,
                    offset: int(ctx, 8)?,
                    bounds: (int(ctx, 11)?, int(ctx, 12)?),
                };
                match same_layout_data(ctx, [0, 4], 13)? {
                    Some((same_layout_data, out)) => {
                        elementwise::add(context(ctx), sum, same_layout_data, out);
                        Ok(())
                    }
                    None => map(ctx, [0, 4], 13, &widening(|quantized| sum.of(quantized))),
                }
            })
        },
    );
    /// `cortex_m::quantized_mul.out(self, zero_point, other, zero_point,
    /// output_zero_point, output_multiplier, output_shift, out)`: multiplication, requantized.
    QUANTIZED_MUL_OUT = Kernel::new(
        "cortex_m::quantized_mul.out",
        &[Tensor, Int, Tensor, Int, Int, Int, Int, Out],
        |ctx| {
            scale(ctx, 5)?;
            prepare_two(ctx, 2, 7, |ctx| {
                let product = Product {
                    zeros: [int(ctx, 1)?, int(ctx, 3)?],
                    scale: scale(ctx, 5)?,
                    offset: int(ctx, 4)?,
                    bounds: type_bounds(ctx, 7)?,
                };
                match same_layout_data(ctx, [0, 2], 7)? {
                    Some((same_layout_data, out)) => {
                        elementwise::multiply(context(ctx), product, same_layout_data, out);
                        Ok(())
                    }
                    None => map(ctx, [0, 2], 7, &widening(|quantized| product.of(quantized))),
                }
            })
        },
    );
    /// `cortex_m::quantized_div.out(self, zero_point, other, zero_point,
    /// output_zero_point, output_scale, out)`: division by zero gives zero.
    QUANTIZED_DIV_OUT = Kernel::new(
        "cortex_m::quantized_div.out",
        &[Tensor, Int, Tensor, Int, Int, Float, Out],
        |ctx| {
            prepare_two(ctx, 2, 6, |ctx| {
                let (a_zero, b_zero, zero) = (int(ctx, 1)?, int(ctx, 3)?, int(ctx, 4)?);
                let (scale, (low, high)) = (ctx.float(5)? as f32, type_bounds(ctx, 6)?);
                map(
                    ctx,
                    [0, 2],
                    6,
                    &Two(|a: i64, b: i64| {
                        let a = (a as i32).wrapping_sub(a_zero);
                        let b = (b as i32).wrapping_sub(b_zero);
                        let quotient = if b == 0 { 0.0 } else { a as f32 / b as f32 };
                        ((quotient * scale).round_even() as i64)
                            .saturating_add(zero.into())
                            .clamp(low.into(), high.into())
                    }),
                )
            })
        },
    );
    /// `cortex_m::quantized_activation.out(input, lut, out)`: lookup in a table of 256 entries, the
    /// first for -128.
    QUANTIZED_ACTIVATION_OUT =
        Kernel::new("cortex_m::quantized_activation.out", &[Tensor, Tensor, Out], |ctx| {
            for arg in 0..3 {
                expect_type(ctx, arg, ScalarType::Char)?;
            }
            if ctx.info(1)?.numel() != 256 {
                return Err(bad(1, "lookup table: expected 256 elements"));
            }
            let sizes = ctx.info(0)?.sizes;
            ctx.resize(2, &sizes)?;
            Ok(Plan::new(|ctx| {
                let table = ctx.tensor(1)?;
                let table = table.data::<i8>()?;
                map(ctx, [0], 2, &|value: i64| {
                    table.get((value + 128) as usize & 255).map_or(0, |&result| result.into())
                })
            }))
        });
    /// `cortex_m::minimum.out(self, other, out)`: the element-wise minimum.
    MINIMUM_OUT = Kernel::new("cortex_m::minimum.out", &[Tensor, Tensor, Out], |ctx| {
        prepare_two(ctx, 1, 2, |ctx| map(ctx, [0, 1], 2, &Two(|a: i64, b: i64| a.min(b))))
    });
    /// `cortex_m::maximum.out(self, other, out)`: the element-wise maximum.
    MAXIMUM_OUT = Kernel::new("cortex_m::maximum.out", &[Tensor, Tensor, Out], |ctx| {
        prepare_two(ctx, 1, 2, |ctx| map(ctx, [0, 1], 2, &Two(|a: i64, b: i64| a.max(b))))
    });
    /// `cortex_m::transpose.out(input, perm, out)`: permutes the dims.
    TRANSPOSE_OUT = Kernel::new("cortex_m::transpose.out", &[Tensor, IntList, Out], |ctx| {
        let view = permuted(ctx)?;
        ctx.resize(2, view.sizes())?;
        same_type(ctx, 0, 2)?;
        Ok(Plan::new(|ctx| {
            let view = permuted(ctx)?;
            let (input, out) = (ctx.tensor(0)?, ctx.out(2)?);
            let (walk, size) = (walk_of(out.info(), &view)?, input.scalar_type.size());
            crate::shape::moves::copy(ctx.parallel(), size, &walk, input.bytes(), out.into_bytes());
            Ok(())
        }))
    });
    /// `cortex_m::pad.out(input, pre_pad, post_pad, pad_value, out)`: pads with a constant value.
    PAD_OUT = Kernel::new("cortex_m::pad.out", &[Tensor, IntList, IntList, Int, Out], |ctx| {
        expect_type(ctx, 0, ScalarType::Char)?;
        same_type(ctx, 0, 4)?;
        let info = ctx.info(0)?;
        let mut pads = heapless::Vec::<i64, 8, u8>::new();
        for dim in (0..info.rank()).rev() {
            let own = padding(ctx, &info, dim)?;
            if own.iter().any(|&pad| pad < 0) {
                return Err(bad(1, "padding: expected at least 0"));
            }
            pads.extend_from_slice(&own).map_err(|_| bad(0, "more dims than the highest supported \
                                                             rank"))?;
        }
        let sizes = torchlet_core::rules::pad(&info.sizes, &pads);
        let sizes = sizes.ok_or(bad(1, "padded shape is too large"))?;
        ctx.resize(4, &sizes)?;
        Ok(Plan::new(|ctx| {
            let (value, info) = (ctx.int(3)? as i8, ctx.info(0)?);
            let mut before = [0isize; 4];
            for (dim, before) in before.iter_mut().enumerate().take(info.rank()) {
                *before = isize::try_from(padding(ctx, &info, dim)?[0]).unwrap_or(isize::MAX);
            }
            let (input, out) = (ctx.tensor(0)?, ctx.out(4)?);
            let strides = info.strides();
            let maps = Maps::new(out.info(), |dim| {
                let (len, before) = (info.size(dim), before.get(dim).copied().unwrap_or(0));
                let map = Map::Pad { len, before };
                let same = before == 0 && len == out.info().size(dim);
                (if same { Map::Same } else { map }, strides.get(dim).copied().unwrap_or(0))
            });
            maps.copy::<u8>(ctx.parallel(), input.bytes(), value as u8, out.into_bytes());
            Ok(())
        }))
    });
}

/// Prepares a binary operator with broadcasting.
fn prepare_two(
    ctx: &mut Prepare,
    second: usize,
    out: usize,
    invoke: InvokeFn,
) -> Result<Plan, KernelError> {
    let (a, b) = (ctx.info(0)?, ctx.info(second)?);
    if !matches!(a.scalar_type, ScalarType::Char | ScalarType::Short) {
        return Err(unsupported(0, a.scalar_type));
    }
    let sizes =
        broadcast(&a.sizes, &b.sizes).ok_or(bad(second, "operand shapes do not broadcast"))?;
    ctx.resize(out, &sizes)?;
    same_type(ctx, 0, second)?;
    same_type(ctx, 0, out)?;
    Ok(Plan::new(invoke))
}

/// Returns the data of both inputs and the output, if all have the same sizes and layout.
#[expect(clippy::type_complexity)]
fn same_layout_data<'c>(
    ctx: &mut Invoke<'c, '_>,
    inputs: [usize; 2],
    out: usize,
) -> Result<Option<([&'c [i8]; 2], &'c mut [i8])>, KernelError> {
    let alike = {
        let out = ctx.info(out)?;
        let alike = |info: TensorInfo| {
            info.scalar_type == ScalarType::Char
                && info.sizes == out.sizes
                && same_layout(&info.sizes, &info.dim_order, &out.dim_order)
        };
        alike(ctx.info(inputs[0])?) && alike(ctx.info(inputs[1])?)
    };
    if !alike {
        return Ok(None);
    }
    let [a, b] = [ctx.tensor(inputs[0])?, ctx.tensor(inputs[1])?];
    Ok(Some(([a.data::<i8>()?, b.data::<i8>()?], ctx.out(out)?.into_data::<i8>()?)))
}

fn context<'a>(ctx: &Invoke<'a, '_>) -> Context<'a> {
    Context { tier: Tier::detect(), parallel: ctx.parallel() }
}

/// Adapts a function of two quantized values to the loop of element-wise operators ([`map`]).
fn widening(of: impl Fn([i32; 2]) -> i32 + Sync) -> Two<impl Fn(i64, i64) -> i64 + Sync> {
    Two(move |a: i64, b: i64| of([a as i32, b as i32]).into())
}

/// Minimum and maximum of an argument's integer type.
fn type_bounds(ctx: &Arguments, arg: usize) -> Result<(i32, i32), KernelError> {
    Ok(match ctx.info(arg)?.scalar_type {
        ScalarType::Char => (-128, 127),
        _ => (-32768, 32767),
    })
}

fn permuted(ctx: &Arguments) -> Result<View, KernelError> {
    let view = View::of(&ctx.info(0)?).and_then(|view| view.permute(&ctx.ints(1).ok()?));
    view.ok_or(bad(1, "expected a permutation of the dims"))
}

/// Padding before and after a dim of argument 0. The lists, arguments 1 and 2, have four
/// elements, right-aligned to the dims; in memory order if the tensor is channels last.
fn padding(ctx: &Arguments, info: &TensorInfo, dim: usize) -> Result<[i64; 2], KernelError> {
    let &[_, channels, height, width] = &info.sizes[..] else {
        let first = 4usize.checked_sub(info.rank());
        let position = first.ok_or(KernelError::rank(0, info.rank()))? + dim;
        return Ok([ctx.list_int(1, position)?, ctx.list_int(2, position)?]);
    };
    let last = channels == 1 || height == 1 && width == 1 || info.dim_order == [0, 2, 3, 1];
    let position = if last { [0, 3, 1, 2].get(dim).copied().unwrap_or(dim) } else { dim };
    Ok([ctx.list_int(1, position)?, ctx.list_int(2, position)?])
}
