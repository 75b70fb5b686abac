//! Values of a blob: tensors in memory order (usually channels last) and their quantization.

use super::schema::{
    ConstantTable, PerChannelTable, PerGroupTable, PerRowTable, PerTensorTable, QuantizedTable,
    TensorTable, ValueTable,
};
use crate::budget::Budget;
use crate::error::Error;
use crate::front::header::part;
use crate::graph::Tensor;
use crate::named::{Named, read_named};
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use half::f16;
use torchlet_core::ScalarType;
use torchlet_core::format::flatbuffer::Vector;
use torchlet_core::layout::MAX_RANK;

/// A tensor of a blob.
#[derive(Debug)]
pub(super) struct Described<'p> {
    pub(super) tensor: Tensor<'p>,
    pub(super) coding: Coding<'p>,
    /// Argument index in the delegate call.
    pub(super) external: Option<usize>,
}

/// Quantization of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Coding<'p> {
    /// Not quantized.
    Plain,
    /// `(quantized - zero_point) * scale`
    PerTensor { scale: f32, zero_point: i32 },
    /// `quantized * scale`, with a scale per index of a dim.
    PerChannel { dim: usize, scales: Cow<'p, [u8]> },
    /// `quantized * scale` for a matrix, with a scale per group of `size` adjacent values in a row.
    PerGroup { size: usize, scales: Cow<'p, [u8]> },
    /// Floats, rounded as by dynamic int8 quantization with a scale and a zero point per row, where
    /// a row spans the last `inner_dims` dims.
    PerRow { inner_dims: usize },
}

/// The constants of a blob.
pub(super) struct Constants<'n, 'p> {
    entries: Vector<'p, ConstantTable<'p>>,
    /// Bytes after the graph.
    data: &'p [u8],
    named: &'n Named<'n, 'p>,
    /// Unpacked bytes of each unpacked constant, by offset and key.
    unpacked: BTreeMap<(u64, &'p str), usize>,
    /// Sum of `unpacked`: bytes of distinct data.
    distinct_bytes: usize,
    /// Bytes unpacked in total, counting repeated unpacking of shared data.
    unpacked_bytes: usize,
}

/// Limit for unpacked bytes: `TIMES` the distinct bytes, plus `SMALL`. Otherwise, many values that
/// share a packed constant could take far more memory than the file.
const TIMES: usize = 4;
const SMALL: usize = 1 << 20;

impl<'n, 'p> Constants<'n, 'p> {
    pub(super) fn new(
        entries: Vector<'p, ConstantTable<'p>>,
        data: &'p [u8],
        named: &'n Named<'n, 'p>,
    ) -> Self {
        Constants {
            entries,
            data,
            named,
            unpacked: BTreeMap::new(),
            distinct_bytes: 0,
            unpacked_bytes: 0,
        }
    }

    fn entry(&self, index: u32) -> Result<ConstantTable<'p>, Error> {
        let missing = || Error::Invalid(format!("constant {index} does not exist"));
        self.entries.get(usize::try_from(index).unwrap_or(usize::MAX))?.ok_or_else(missing)
    }

    /// Reads the first bytes of a constant.
    fn read(&self, index: u32, bytes: usize) -> Result<Cow<'p, [u8]>, Error> {
        let entry = self.entry(index)?;
        match entry.named_key()? {
            Some(key) if entry.offset()? == u64::MAX => read_named(self.named, key, bytes),
            _ => {
                part(self.data, entry.offset()?, bytes as u64).map(Cow::Borrowed).ok_or_else(|| {
                    Error::Invalid(format!(
                        "constant {index} of {bytes} bytes lies outside the delegate's data"
                    ))
                })
            }
        }
    }

    /// Like [`Self::read`], but for packed data that grows when it is unpacked.
    fn read_packed(&mut self, index: u32, bytes: usize) -> Result<Cow<'p, [u8]>, Error> {
        let read = self.read(index, bytes)?;
        let entry = self.entry(index)?;
        let place = (entry.offset()?, entry.named_key()?.unwrap_or(""));
        let longest = self.unpacked.entry(place).or_default();
        self.distinct_bytes = self.distinct_bytes.saturating_add(bytes.saturating_sub(*longest));
        *longest = bytes.max(*longest);
        self.unpacked_bytes = self.unpacked_bytes.saturating_add(bytes);
        if self.unpacked_bytes > self.distinct_bytes.saturating_mul(TIMES).saturating_add(SMALL) {
            return Err(Error::unsupported("int4 constants that too many values share"));
        }
        Ok(read)
    }
}

/// Decodes a float of a blob.
pub(super) fn float(bits: u32) -> f32 {
    f32::from_bits(bits)
}

/// Marks an absent value or argument.
const NONE: u32 = u32::MAX;

/// Returns the element type of an XNNPACK datatype, and whether a byte packs two elements.
fn element(datatype: u8) -> Result<(ScalarType, bool), Error> {
    Ok(match datatype {
        1 => (ScalarType::Float, false),
        2 => (ScalarType::Half, false),
        3 | 6 => (ScalarType::Char, false),
        4 => (ScalarType::Byte, false),
        5 | 7 | 12 => (ScalarType::Int, false),
        8 | 10 => (ScalarType::Char, true),
        // Dynamically quantized tensors are stored as their dequantized values.
        9 | 11 => (ScalarType::Float, false),
        14 => (ScalarType::BFloat16, false),
        other => return Err(Error::Unsupported(format!("XNNPACK dtype {other}"))),
    })
}

/// Reads a value.
pub(super) fn read<'p>(
    value: &ValueTable<'p>,
    constants: &mut Constants<'_, 'p>,
    budget: &mut Budget,
) -> Result<Described<'p>, Error> {
    let missing = || Error::invalid("an XNNPACK value has no description");
    let table = value.0.union_value(1)?.ok_or_else(missing)?;
    let (tensor, quantized) = match value.kind()? {
        1 => (TensorTable(table), None),
        2 => {
            let table = QuantizedTable(table);
            (table.tensor()?.ok_or_else(missing)?, Some(table))
        }
        other => return Err(Error::Invalid(format!("unknown XNNPACK value type {other}"))),
    };
    let (scalar_type, is_packed) = element(tensor.datatype()?)?;
    let sizes = sizes(&tensor, budget)?;
    let data = match tensor.constant()? {
        0 => None,
        index => Some(data(index, &sizes, scalar_type, is_packed, constants)?),
    };
    let coding = match quantized {
        None => Coding::Plain,
        Some(table) => coding(&table, &sizes, constants, budget)?,
    };
    let external = match tensor.external_id()? {
        NONE => None,
        id => Some(usize::try_from(id).unwrap_or(usize::MAX)),
    };
    let tensor = Tensor {
        scalar_type,
        host_type: scalar_type,
        dynamic: data.is_none(),
        changes: data.is_some().then_some(false),
        sizes,
        data,
    };
    // Only arguments of the delegate call have flags, so flags are ignored.
    Ok(Described { tensor, coding, external })
}

fn sizes(tensor: &TensorTable<'_>, budget: &mut Budget) -> Result<Vec<usize>, Error> {
    let dims = tensor.dims()?;
    if dims.len() > MAX_RANK {
        return Err(Error::Invalid(format!(
            "tensor with {} dims; the limit is {MAX_RANK}",
            dims.len()
        )));
    }
    let mut elements = 8usize;
    let mut sizes = Vec::new();
    for size in budget.all(dims)? {
        let large =
            || Error::invalid("tensor exceeds 2^31 - 1 elements per dim or the address space");
        let size = i32::try_from(size).ok().and_then(|size| usize::try_from(size).ok());
        let size = size.ok_or_else(large)?;
        elements = elements
            .checked_mul(size.max(1))
            .filter(|elements| *elements <= isize::MAX as usize)
            .ok_or_else(large)?;
        sizes.push(size);
    }
    Ok(sizes)
}

/// Reads the data of a constant; two elements that share a byte are unpacked.
fn data<'p>(
    index: u32,
    sizes: &[usize],
    scalar_type: ScalarType,
    is_packed: bool,
    constants: &mut Constants<'_, 'p>,
) -> Result<Cow<'p, [u8]>, Error> {
    // `sizes` has checked that this fits.
    let elements: usize = sizes.iter().product();
    if !is_packed {
        return constants.read(index, elements * scalar_type.size());
    }
    let columns = sizes.last().copied().unwrap_or(1);
    let row = columns.div_ceil(2);
    let rows = elements.checked_div(columns).unwrap_or(0);
    let packed = constants.read_packed(index, rows * row)?;
    let mut codes = Vec::with_capacity(elements);
    for row in packed.chunks_exact(row.max(1)) {
        // The lower nibble comes first; the zero point is 8.
        let halves = row.iter().flat_map(|byte| [byte & 15, byte >> 4]);
        codes.extend(halves.take(columns).map(|code| code.wrapping_sub(8)));
    }
    Ok(Cow::Owned(codes))
}

fn coding<'p>(
    table: &QuantizedTable<'p>,
    sizes: &[usize],
    constants: &mut Constants<'_, 'p>,
    budget: &mut Budget,
) -> Result<Coding<'p>, Error> {
    let kind = table.kind()?;
    let Some(parameters) = table.0.union_value(2)? else { return Ok(Coding::Plain) };
    Ok(match kind {
        1 => {
            let table = PerChannelTable(parameters);
            let dim = usize::try_from(table.dim()?).ok().filter(|dim| *dim < sizes.len());
            let dim = dim.ok_or_else(|| {
                Error::Invalid(format!("per-channel scales over a dim that shape {sizes:?} lacks"))
            })?;
            let count = sizes.get(dim).copied().unwrap_or(0);
            let scales = scales(table.scales()?, table.constant()?, count, 4, constants, budget)?;
            Coding::PerChannel { dim, scales }
        }
        2 => {
            let table = PerTensorTable(parameters);
            Coding::PerTensor { scale: float(table.scale()?), zero_point: table.zero_point()? }
        }
        3 => {
            let inner = usize::try_from(PerRowTable(parameters).inner_dims()?).ok();
            let inner = inner.filter(|dims| (1..=sizes.len()).contains(dims));
            let invalid = || {
                Error::Invalid(format!(
                    "per-row quantization: expected 1 to {} inner dims",
                    sizes.len()
                ))
            };
            Coding::PerRow { inner_dims: inner.ok_or_else(invalid)? }
        }
        4 => {
            let table = PerGroupTable(parameters);
            let size = usize::try_from(table.group_size()?).unwrap_or(0);
            let &[rows, columns] = sizes else {
                return Err(Error::Unsupported(format!(
                    "group-wise quantization of a tensor of shape {sizes:?}; expected 2 dims"
                )));
            };
            if size == 0 || columns % size != 0 {
                return Err(Error::Invalid(format!(
                    "quantization groups of {size} elements do not divide rows of {columns}"
                )));
            }
            // `sizes` has checked that this fits.
            let count = rows * (columns / size);
            let scales = scales(table.scales()?, table.constant()?, count, 2, constants, budget)?;
            Coding::PerGroup { size, scales }
        }
        other => {
            return Err(Error::Unsupported(format!("XNNPACK quantization type {other}")));
        }
    })
}

/// Reads scales as little-endian `f32` values: from the table, as older exporters write them, or
/// from a constant with `size` bytes per scale. Two bytes are a bf16 value, the upper half of an
/// `f32`.
fn scales<'p>(
    inside: Vector<'p, u32>,
    constant: u32,
    count: usize,
    size: usize,
    constants: &mut Constants<'_, 'p>,
    budget: &mut Budget,
) -> Result<Cow<'p, [u8]>, Error> {
    if !inside.is_empty() {
        if inside.len() != count {
            return Err(Error::Invalid(format!("expected {count} scales, found {}", inside.len())));
        }
        return Ok(budget.all(inside)?.into_iter().flat_map(u32::to_le_bytes).collect());
    }
    let length = count
        .checked_mul(size)
        .ok_or_else(|| Error::Invalid(format!("{count} scales exceed the address space")))?;
    if size == 4 {
        return constants.read(constant, length);
    }
    let halves = constants.read_packed(constant, length)?;
    let (halves, _) = halves.as_chunks::<2>();
    Ok(halves.iter().flat_map(|half| [0, 0, half[0], half[1]]).collect())
}

/// Whether little-endian `f32` values convert to a 16-bit dtype without loss.
pub(super) fn is_lossless(data: &[u8], to: ScalarType) -> bool {
    let mut numbers = data.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
    match to {
        ScalarType::BFloat16 => numbers.all(|bits| bits & 0xffff == 0),
        ScalarType::Half => numbers.all(|bits| {
            // For normal fp16 values, the mantissa bits decide.
            let is_normal = (0x3880_0000..0x4780_0000).contains(&(bits & 0x7fff_ffff));
            let number = f32::from_bits(bits);
            if is_normal { bits & 0x1fff == 0 } else { f16::from_f32(number).to_f32() == number }
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_that_16_bits_have_not_are_seen() {
        let is = |number: f32, to| is_lossless(&number.to_le_bytes(), to);
        let small = f16::from_bits(1).to_f32();
        for number in [0.0, -0.0, 1.5, -65504.0, small, 3.0 * small, f32::INFINITY] {
            assert!(is(number, ScalarType::Half), "{number}");
        }
        for number in [0.1, 65520.0, 1e6, 1.5 * small, 1.0 + f32::EPSILON, f32::NAN] {
            assert!(!is(number, ScalarType::Half), "{number}");
        }
        assert!(is(f32::from_bits(0x7e96_0000), ScalarType::BFloat16));
        assert!(!is(1.001, ScalarType::BFloat16) && !is(1.0, ScalarType::Double));
    }
}
