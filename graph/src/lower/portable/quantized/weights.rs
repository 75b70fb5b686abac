//! Quantized weight matrices and their scales.

use crate::error::Error;
use crate::graph::ValueId;
use crate::lower::portable::builder::{Builder, Info};
use crate::operators::{Operator, WeightPacking};
use alloc::format;
use torchlet_core::ScalarType;

/// Scales of a matrix: one per row, or `[group, row]` with several groups per row.
pub(in crate::lower::portable) struct Scales {
    pub(in crate::lower::portable) tensor: ValueId,
    /// Group size in elements.
    pub(in crate::lower::portable) group: Option<i64>,
}

/// Unpacks quantized weights to an int8 matrix of `rows` by `columns`. The stored matrix may be
/// larger.
pub(in crate::lower::portable) fn unpacked(
    b: &mut Builder<'_, '_>,
    stored: ValueId,
    form: WeightPacking,
    rows: usize,
    columns: usize,
) -> Result<ValueId, Error> {
    let info = b.info(stored)?;
    let width = match form {
        WeightPacking::Bytes => columns,
        _ => columns.div_ceil(2),
    };
    if info.rank() != 2 || info.size(0) < rows || info.size(1) < width || columns == 0 {
        return Err(Error::Invalid(format!(
            "weight shape {:?} is too small for {rows}x{columns} weights",
            info.sizes
        )));
    }
    let part = b.slice_known(stored, 0, 0, rows, 1)?;
    let part = b.slice_known(part, 1, 0, width, 1)?;
    if form == WeightPacking::Bytes {
        return b.cast(part, ScalarType::Char);
    }
    let low_first = form == WeightPacking::LowNibbleFirst;
    let bytes = b.cast(part, ScalarType::Int)?;
    let low = b.with_number(Operator::BITWISE_AND_SCALAR, bytes, 15.0)?;
    let high = b.with_number(Operator::BITWISE_RIGHT_SHIFT_TENSOR_SCALAR, bytes, 4.0)?;
    let high = b.with_number(Operator::BITWISE_AND_SCALAR, high, 15.0)?;
    let [first, second] = if low_first { [low, high] } else { [high, low] };
    let codes = b.interleave(first, second)?;
    let codes = b.slice_known(codes, 1, 0, columns, 1)?;
    let codes = b.with_number(Operator::SUB_SCALAR, codes, 8.0)?;
    b.cast(codes, ScalarType::Char)
}

/// Dequantizes with one scale per index of dim `axis`.
pub(in crate::lower::portable) fn by_channel(
    b: &mut Builder<'_, '_>,
    codes: ValueId,
    scales: ValueId,
    axis: usize,
) -> Result<ValueId, Error> {
    let made = b.info(codes)?.with_type(ScalarType::Float);
    let scales = b.cast(scales, ScalarType::Float)?;
    let (none, axis) = (b.none(), b.new_int(axis as i64));
    let (low, high) = (b.new_int(-128), b.new_int(127));
    let number = b.new_int(ScalarType::Char as i64);
    let inputs = [codes, scales, none, axis, low, high, number, none];
    Ok(b.call(Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_CHANNEL, &inputs, made))
}

/// Dequantizes a matrix.
pub(in crate::lower::portable) fn dequantized(
    b: &mut Builder<'_, '_>,
    codes: ValueId,
    scales: &Scales,
) -> Result<ValueId, Error> {
    let info = b.info(codes)?;
    let (rows, columns) = (info.size(0), info.size(1));
    let tensor = b.info(scales.tensor)?;
    let Some(group) = group_size(scales, &tensor, rows, columns)? else {
        let flat = b.view_known(scales.tensor, &[elements(&tensor)])?;
        let flat = b.slice_known(flat, 0, 0, rows, 1)?;
        return by_channel(b, codes, flat, 0);
    };
    let by_row = by_row(b, scales.tensor, rows, columns.div_ceil(group))?;
    if columns % group == 0 {
        // Each group becomes a row.
        let groups = columns / group;
        let codes = b.view_known(codes, &[rows * groups, group])?;
        let flat = b.view_known(by_row, &[rows * groups])?;
        let numbers = by_channel(b, codes, flat, 0)?;
        return b.view_known(numbers, &[rows, columns]);
    }
    let numbers = b.cast(codes, ScalarType::Float)?;
    let spread = spread(b, by_row, group, columns)?;
    b.binary(Operator::MUL_TENSOR, numbers, spread)
}

/// The group size; `None` for one scale per row.
fn group_size(
    scales: &Scales,
    tensor: &Info,
    rows: usize,
    columns: usize,
) -> Result<Option<usize>, Error> {
    let bad = || {
        Error::Invalid(format!(
            "scale shape {:?} does not match {rows}x{columns} weights",
            tensor.sizes
        ))
    };
    let Some(group) = scales.group else {
        return if elements(tensor) < rows { Err(bad()) } else { Ok(None) };
    };
    let group = usize::try_from(group).ok().map(|group| group.min(columns));
    let group = group.filter(|group| *group > 0).ok_or_else(bad)?;
    let fits =
        tensor.rank() == 2 && tensor.size(0) >= columns.div_ceil(group) && tensor.last() >= rows;
    if fits { Ok(Some(group)) } else { Err(bad()) }
}

fn elements(info: &Info) -> usize {
    info.sizes.iter().fold(1, |all: usize, size| all.saturating_mul(*size))
}

/// Transposes scales from `[group, row]` to `[row, group]`, without padding.
fn by_row(
    b: &mut Builder<'_, '_>,
    scales: ValueId,
    rows: usize,
    groups: usize,
) -> Result<ValueId, Error> {
    let scales = b.cast(scales, ScalarType::Float)?;
    let part = b.slice_known(scales, 0, 0, groups, 1)?;
    let part = b.slice_known(part, 1, 0, rows, 1)?;
    b.permute(part, &[1, 0])
}

/// Expands scales from `[row, group]` to `[row, column]`.
fn spread(
    b: &mut Builder<'_, '_>,
    by_row: ValueId,
    group: usize,
    columns: usize,
) -> Result<ValueId, Error> {
    let info = b.info(by_row)?;
    let (rows, groups) = (info.size(0), info.size(1));
    let wide = b.unsqueeze(by_row, 2)?;
    let (times, sizes) = (b.new_ints(&[1, 1, group as i64]), [rows, groups, group].to_vec());
    let wide = b.call(Operator::REPEAT, &[wide, times], info.with_sizes(sizes));
    let flat = b.view_known(wide, &[rows, groups.saturating_mul(group)])?;
    b.slice_known(flat, 1, 0, columns, 1)
}

/// Quantizes to int4, packed two per byte, low nibble first.
pub(in crate::lower::portable) fn packed(
    b: &mut Builder<'_, '_>,
    numbers: ValueId,
    info: &Info,
    scales: &Scales,
) -> Result<ValueId, Error> {
    let (rows, columns) = (info.size(0), info.size(1));
    let tensor = b.info(scales.tensor)?;
    let group = group_size(scales, &tensor, rows, columns)?;
    let group =
        group.ok_or_else(|| Error::invalid("int4 weights: expected a group size, found none"))?;
    let by_row = by_row(b, scales.tensor, rows, columns.div_ceil(group))?;
    let spread = spread(b, by_row, group, columns)?;
    let numbers = b.cast(numbers, ScalarType::Float)?;
    let codes = b.binary(Operator::DIV_TENSOR, numbers, spread)?;
    let empty = b.compared(Operator::EQ_SCALAR, spread, 0.0)?;
    let codes = b.masked(codes, empty, 0.0)?;
    let codes = b.unary(Operator::ROUND, codes)?;
    let codes = b.clamp(codes, Some(-8.0), Some(7.0))?;
    let codes = b.with_number(Operator::ADD_SCALAR, codes, 8.0)?;
    let mut codes = b.cast(codes, ScalarType::Int)?;
    if columns % 2 == 1 {
        let (pads, zero) = (b.new_ints(&[0, 1]), b.new_int(0));
        let made = b.info(codes)?.with_sizes([rows, columns + 1].to_vec());
        codes = b.call(Operator::CONSTANT_PAD_ND, &[codes, pads, zero], made);
    }
    let low = b.slice_known(codes, 1, 0, columns + 1, 2)?;
    let high = b.slice_known(codes, 1, 1, columns + 1, 2)?;
    let high = b.with_number(Operator::MUL_SCALAR, high, 16.0)?;
    let bytes = b.binary(Operator::ADD_TENSOR, low, high)?;
    b.cast(bytes, ScalarType::Byte)
}
