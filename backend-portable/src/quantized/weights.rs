//! Quantized embedding tables and weights, and addition of quantized tensors.

use crate::index::{Indices, index_type};
use crate::number::{ComputeType, load, store, unsupported};
use crate::real::Real;
use crate::shape::{bad, contiguous};
use crate::table::kernels;
use crate::walk::Walk;
use torchlet_core::Param::{Float, Int, OptionalInt, OptionalTensor, Out, Tensor};
use torchlet_core::{
    Arguments, Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, ScalarType, TensorInfo,
    TensorRef,
};

/// A kernel that gathers rows of a `$bits`-bit table into argument `$out`.
macro_rules! quantized_embedding {
    ($operator:literal, $bits:literal, $out:literal, [$($extra:ident)?]) => {
        Kernel::new(
            $operator,
            &[Tensor, Tensor, OptionalTensor, Int, Int, Tensor, $($extra,)? Out],
            |ctx| prepare_embedding(ctx, $bits, $out, |ctx| embedding(ctx, $bits, $out)),
        )
    };
}

kernels! { WEIGHTS:
    /// `quantized_decomposed::embedding_byte.out(weight, weight_scales,
    /// weight_zero_points, weight_quant_min, weight_quant_max, indices, …, out)`: gathers and
    /// dequantizes rows of an 8-bit table.
    EMBEDDING_BYTE_OUT = quantized_embedding!("quantized_decomposed::embedding_byte.out", 8, 6, []);
    /// `quantized_decomposed::embedding_byte.dtype_out(weight, weight_scales,
    /// weight_zero_points, weight_quant_min, weight_quant_max, indices, …, out)`: like
    /// [`EMBEDDING_BYTE_OUT`], with a dtype argument.
    EMBEDDING_BYTE_DTYPE_OUT = quantized_embedding!(
        "quantized_decomposed::embedding_byte.dtype_out",
        8,
        7,
        [OptionalInt]
    );
    /// `quantized_decomposed::embedding_2bit.out(weight, weight_scales,
    /// weight_zero_points, weight_quant_min, weight_quant_max, indices, …, out)`: gathers and
    /// dequantizes rows of a 2-bit table.
    EMBEDDING_2BIT_OUT = quantized_embedding!("quantized_decomposed::embedding_2bit.out", 2, 6, []);
    /// `quantized_decomposed::embedding_2bit.dtype_out(weight, weight_scales,
    /// weight_zero_points, weight_quant_min, weight_quant_max, indices, …, out)`: like
    /// [`EMBEDDING_2BIT_OUT`], with a dtype argument.
    EMBEDDING_2BIT_DTYPE_OUT = quantized_embedding!(
        "quantized_decomposed::embedding_2bit.dtype_out",
        2,
        7,
        [OptionalInt]
    );
    /// `quantized_decomposed::embedding_4bit.out(weight, weight_scales,
    /// weight_zero_points, weight_quant_min, weight_quant_max, indices, …, out)`: gathers and
    /// dequantizes rows of a 4-bit table.
    EMBEDDING_4BIT_OUT = quantized_embedding!("quantized_decomposed::embedding_4bit.out", 4, 6, []);
    /// `quantized_decomposed::embedding_4bit.dtype_out(weight, weight_scales,
    /// weight_zero_points, weight_quant_min, weight_quant_max, indices, …, out)`: like
    /// [`EMBEDDING_4BIT_OUT`], with a dtype argument.
    EMBEDDING_4BIT_DTYPE_OUT = quantized_embedding!(
        "quantized_decomposed::embedding_4bit.dtype_out",
        4,
        7,
        [OptionalInt]
    );
    /// `quantized_decomposed::mixed_mm.out(input, weight, weight_scales, weight_zero_points, out)`:
    /// matrix multiplication with an int8 weight of shape `[k, n]`, which has a scale for each row.
    MIXED_MM_OUT = Kernel::new(
        "quantized_decomposed::mixed_mm.out",
        &[Tensor, Tensor, Tensor, OptionalTensor, Out],
        |ctx| prepare_mixed(ctx, 0, 4, |ctx| mixed(ctx, 4, false)),
    );
    /// `quantized_decomposed::mixed_linear.out(input, weight, weight_scales,
    /// weight_zero_points, dtype, out)`: linear layer with an int8 weight of shape `[n, k]`, which
    /// has a scale for each row and group of columns.
    MIXED_LINEAR_OUT = Kernel::new(
        "quantized_decomposed::mixed_linear.out",
        &[Tensor, Tensor, Tensor, OptionalTensor, OptionalInt, Out],
        |ctx| prepare_mixed(ctx, 1, 5, |ctx| mixed(ctx, 5, true)),
    );
    /// `quantized_decomposed::add.out(a, a_scale, a_zero_point, a_quant_min,
    /// a_quant_max, b, b_scale, …, out_scale, …, out)`: dequantizes both tensors, adds them and
    /// quantizes the sum.
    ADD_OUT = Kernel::new(
        "quantized_decomposed::add.out",
        &[Tensor, Float, Int, Int, Int, Tensor, Float, Int, Int, Int, Float, Int, Int, Int, Out],
        |ctx| {
            let (a, b) = (ctx.info(0)?, ctx.info(5)?);
            if a.sizes != b.sizes {
                return Err(bad(5, "expected the shape of argument 0"));
            }
            ctx.resize(14, &a.sizes)?;
            let out = ctx.info(14)?;
            for (arg, found) in [(0, &a), (5, &b), (14, &out)] {
                if found.scalar_type != a.scalar_type || !a.scalar_type.is_integral(false) {
                    return Err(unsupported(arg, found.scalar_type));
                }
            }
            Ok(Plan::new(add))
        },
    );
}

/// Scales of a table or weight: one for each row and group of `group` columns.
struct Groups {
    count: usize,
    group: usize,
}

impl Groups {
    /// Derives the groups from the shape of a table's scales.
    fn new(
        scales: &TensorInfo,
        rows: usize,
        columns: usize,
        arg: usize,
    ) -> Result<Self, KernelError> {
        let count = match scales.rank() {
            1 => 1,
            2 => scales.size(1),
            found => return Err(KernelError::rank(arg, found)),
        };
        if scales.size(0) != rows || count == 0 || !scales.is_contiguous() {
            return Err(bad(
                arg,
                "scales: expected a row of at least one contiguous scale for each row of the \
                 weights",
            ));
        }
        Ok(Groups { count, group: columns.div_ceil(count).max(1) })
    }
}

/// One value of a tensor, as `f32`.
fn value(tensor: &TensorRef, at: usize) -> f32 {
    let mut value = [0f32];
    load(tensor.scalar_type, tensor.bytes(), at as isize, 0, &mut value);
    value[0]
}

fn prepare_embedding(
    ctx: &mut Prepare,
    bits: usize,
    out: usize,
    invoke: InvokeFn,
) -> Result<Plan, KernelError> {
    let (weight, scales, indices) = (ctx.info(0)?, ctx.info(1)?, ctx.info(5)?);
    let whole = matches!(weight.scalar_type, ScalarType::Char | ScalarType::Byte);
    if !(weight.scalar_type == ScalarType::Byte || bits == 8 && whole) {
        return Err(unsupported(0, weight.scalar_type));
    }
    if weight.rank() != 2 {
        return Err(KernelError::rank(0, weight.rank()));
    }
    contiguous(0, &weight)?;
    index_type(5, &indices)?;
    let columns = columns(&weight, bits)?;
    let groups = Groups::new(&scales, weight.size(0), columns, 1)?;
    if columns % groups.count != 0 {
        return Err(bad(1, "number of groups does not divide the number of columns"));
    }
    let mut types = [(1, scales.scalar_type), (1, scales.scalar_type)];
    if let Some(zeros) = ctx.optional_info(2)? {
        if zeros.sizes != scales.sizes || !zeros.is_contiguous() {
            return Err(bad(2, "zero points: expected the shape of the scales, contiguous"));
        }
        types[1] = (2, zeros.scalar_type);
    }
    for (arg, found) in types {
        ComputeType::of(found).ok_or(unsupported(arg, found))?;
    }
    let mut sizes = indices.sizes.clone();
    let width = i32::try_from(columns).map_err(|_| bad(0, "more columns than 2^31 - 1"))?;
    sizes.push(width).map_err(|_| KernelError::rank(5, indices.rank()))?;
    ctx.resize(out, &sizes)?;
    let target = ctx.info(out)?;
    if !target.scalar_type.is_floating() {
        return Err(unsupported(out, target.scalar_type));
    }
    if !target.is_contiguous() || !indices.is_contiguous() {
        return Err(KernelError::layout(out));
    }
    Ok(Plan::new(invoke))
}

/// Number of columns of a table that stores several values in a byte.
fn columns(weight: &TensorInfo, bits: usize) -> Result<usize, KernelError> {
    weight.size(1).checked_mul(8 / bits).ok_or(bad(0, "more columns than 2^31 - 1"))
}

/// Unpacks one value of a row.
#[inline(always)]
fn packed(row: &[u8], column: usize, bits: usize, signed: bool) -> f32 {
    match bits {
        2 => {
            let byte = row.get(column / 4).copied().unwrap_or(0);
            f32::from(byte >> (column % 4 * 2) & 3) - 2.0
        }
        4 => {
            // The first of two values is in the upper nibble.
            let byte = row.get(column / 2).copied().unwrap_or(0);
            f32::from(byte >> ((column + 1) % 2 * 4) & 15) - 8.0
        }
        _ => {
            let byte = row.get(column).copied().unwrap_or(0);
            if signed { f32::from(byte as i8) } else { f32::from(byte) }
        }
    }
}

fn embedding(ctx: &mut Invoke, bits: usize, out: usize) -> Result<(), KernelError> {
    let (weight, scales, zeros) = (ctx.tensor(0)?, ctx.tensor(1)?, ctx.optional_tensor(2)?);
    let index = ctx.tensor(5)?;
    let indices = Indices::checked(&index, 5, 0, weight.size(0))?;
    let out = ctx.out(out)?;
    let out_type = out.scalar_type;
    let columns = columns(weight.info(), bits)?;
    let groups = Groups::new(scales.info(), weight.size(0), columns, 1)?;
    let signed = weight.scalar_type == ScalarType::Char;
    let bytes = weight.size(1);
    if columns == 0 {
        return Ok(());
    }
    let mut block = [0f32; 64];
    for (position, out) in out.into_bytes().chunks_mut(columns * out_type.size()).enumerate() {
        let row = usize::try_from(indices.at(position as isize)).unwrap_or(0);
        let data = weight.bytes().get(row * bytes..(row + 1) * bytes).unwrap_or(&[]);
        for group in 0..groups.count {
            let scale = value(&scales, row * groups.count + group);
            let zero = zeros.as_ref().map_or(0.0, |zeros| value(zeros, row * groups.count + group));
            let start = group * groups.group;
            let end = (start + groups.group).min(columns);
            for from in (start..end).step_by(block.len()) {
                let to = (from + block.len()).min(end);
                let values = block.get_mut(..to - from).unwrap_or_default();
                for (value, column) in values.iter_mut().zip(from..to) {
                    *value = (packed(data, column, bits, signed) - zero) * scale;
                }
                let size = out_type.size();
                store(out_type, out.get_mut(from * size..to * size).unwrap_or_default(), values);
            }
        }
    }
    Ok(())
}

/// Checks the operands of a multiplication of a floating-point matrix with an 8-bit one. `shared`
/// is the dim k of the weight.
fn prepare_mixed(
    ctx: &mut Prepare,
    shared: usize,
    out: usize,
    invoke: InvokeFn,
) -> Result<Plan, KernelError> {
    let (input, weight, scales) = (ctx.info(0)?, ctx.info(1)?, ctx.info(2)?);
    for (arg, info) in [(0, &input), (1, &weight)] {
        if info.rank() != 2 {
            return Err(KernelError::rank(arg, info.rank()));
        }
        contiguous(arg, info)?;
    }
    if !input.scalar_type.is_floating() {
        return Err(unsupported(0, input.scalar_type));
    }
    if weight.scalar_type != ScalarType::Char {
        return Err(unsupported(1, weight.scalar_type));
    }
    if !scales.scalar_type.is_floating() {
        return Err(unsupported(2, scales.scalar_type));
    }
    if input.size(1) != weight.size(shared) {
        return Err(bad(
            1,
            "weights: expected as many rows or columns as the last dim of the input",
        ));
    }
    if shared == 0 && scales.rank() != 1 {
        return Err(KernelError::rank(2, scales.rank()));
    }
    Groups::new(&scales, weight.size(0), weight.size(1), 2)?;
    if ctx.optional_info(3)?.is_some() {
        return Err(KernelError::unsupported("zero points in mixed-dtype GEMM"));
    }
    let sizes = [input.sizes.first(), weight.sizes.get(1 - shared)];
    let [Some(&rows), Some(&columns)] = sizes else { return Err(bad(0, "expected 2 dims")) };
    ctx.resize(out, &[rows, columns])?;
    let target = ctx.info(out)?;
    if !target.scalar_type.is_floating() {
        return Err(unsupported(out, target.scalar_type));
    }
    contiguous(out, &target)?;
    Ok(Plan::new(invoke))
}

fn mixed(ctx: &mut Invoke, out: usize, transposed: bool) -> Result<(), KernelError> {
    let (input, weight, scales) = (ctx.tensor(0)?, ctx.tensor(1)?, ctx.tensor(2)?);
    let out = ctx.out(out)?;
    let out_type = out.scalar_type;
    let (depth, columns) = (input.size(1), out.size(1));
    let groups = Groups::new(scales.info(), weight.size(0), weight.size(1), 2)?;
    let data = weight.data::<i8>()?;
    let (stride, step) = if transposed { (depth, 1) } else { (1, columns) };
    for (position, out) in out.into_bytes().chunks_mut(out_type.size()).enumerate() {
        let (row, column) = (position / columns.max(1), position % columns.max(1));
        let mut sum = 0f32;
        let mut block = [0f32; 64];
        for from in (0..depth).step_by(block.len()) {
            let count = (depth - from).min(block.len());
            let values = block.get_mut(..count).unwrap_or_default();
            load(input.scalar_type, input.bytes(), (row * depth + from) as isize, 1, values);
            for (at, value) in values.iter().enumerate() {
                let k = from + at;
                let scale_at =
                    if transposed { column * groups.count + k / groups.group } else { k };
                let number = data.get(column * stride + k * step).copied().unwrap_or(0);
                sum += value * f32::from(number) * value_at(&scales, scale_at);
            }
        }
        store(out_type, out, &[sum]);
    }
    Ok(())
}

#[inline(always)]
fn value_at(scales: &TensorRef, at: usize) -> f32 {
    match scales.data::<f32>() {
        Ok(scales) => scales.get(at).copied().unwrap_or(0.0),
        Err(_) => value(scales, at),
    }
}

fn affine(ctx: &Arguments, arg: usize) -> Result<(f32, f32), KernelError> {
    Ok((ctx.float(arg)? as f32, ctx.int(arg + 1)? as f32))
}

fn add(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (a, b) = (ctx.tensor(0)?, ctx.tensor(5)?);
    let ((a_scale, a_zero), (b_scale, b_zero)) = (affine(ctx, 1)?, affine(ctx, 6)?);
    let (out_scale, out_zero) = affine(ctx, 10)?;
    let (low, high) = (ctx.int(12)?, ctx.int(13)?);
    let inverse = 1.0 / out_scale;
    let out = ctx.out(14)?;
    let info = out.info().clone();
    let walk = Walk::broadcast(&info, [a.info(), b.info()])?;
    let steps = walk.inner_steps();
    let (size, out) = (info.scalar_type.size(), out.into_bytes());
    let (mut first, mut second, mut sums) = ([0f32; 64], [0f32; 64], [0i64; 64]);
    walk.for_each_run(0, walk.numel(), &mut |start, at, len| {
        for done in (0..len).step_by(64) {
            let count = (len - done).min(64);
            let moved = |i: usize| at[i].wrapping_add(steps[i].wrapping_mul(done as isize));
            load(a.scalar_type, a.bytes(), moved(0), steps[0], &mut first[..count]);
            load(b.scalar_type, b.bytes(), moved(1), steps[1], &mut second[..count]);
            for ((sum, a), b) in sums.iter_mut().zip(&first).zip(&second).take(count) {
                let value = (a - a_zero) * a_scale + (b - b_zero) * b_scale;
                let number = (value * inverse).round_even() + out_zero;
                *sum = (number as i64).max(low).min(high);
            }
            let offset = (start + done) * size;
            let out = out.get_mut(offset..offset + count * size).unwrap_or_default();
            store(info.scalar_type, out, &sums[..count]);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::packed;

    /// The packing of ExecuTorch's quantized embeddings.
    #[test]
    fn packed_values_match_executorch() {
        let four: Vec<f32> = (0..4).map(|column| packed(&[0x1f, 0x80], column, 4, false)).collect();
        assert_eq!(four, [-7.0, 7.0, 0.0, -8.0]);
        let two: Vec<f32> =
            (0..4).map(|column| packed(&[0b11_10_01_00], column, 2, false)).collect();
        assert_eq!(two, [-2.0, -1.0, 0.0, 1.0]);
        assert_eq!(packed(&[0xff], 0, 8, true), -1.0);
        assert_eq!(packed(&[0xff], 0, 8, false), 255.0);
    }
}
