//! Between host tensors and device memory: type conversion and order of elements.

use crate::bfloat16;
use crate::error::Error;
use torchlet_core::{ScalarType, TensorInfo};
use torchlet_shaders::Element;

/// The bytes of row-major host elements as the device keeps them: 64-bit types are narrowed, integers to the nearest, and `bfloat16` is widened.
pub(crate) fn to_device(scalar_type: ScalarType, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    Ok(match scalar_type {
        ScalarType::Long => bytes
            .as_chunks::<8>()
            .0
            .iter()
            .flat_map(|value| saturated(i64::from_le_bytes(*value)).to_le_bytes())
            .collect(),
        ScalarType::Double => bytes
            .as_chunks::<8>()
            .0
            .iter()
            .flat_map(|value| (f64::from_le_bytes(*value) as f32).to_le_bytes())
            .collect(),
        ScalarType::BFloat16 => bfloat16::converted(bytes, Element::F32),
        _ => bytes.to_vec(),
    })
}

/// The nearest number of 32 bits: an index that is out of range stays so.
fn saturated(number: i64) -> i32 {
    number.clamp(i32::MIN.into(), i32::MAX.into()) as i32
}

/// Calls `visit` with the byte offset of every element of a tensor, in row-major order.
fn in_row_major_order(info: &TensorInfo, mut visit: impl FnMut(usize)) {
    let (strides, size, rank) = (info.strides(), info.scalar_type.size(), info.rank());
    let mut index = [0usize; torchlet_core::layout::MAX_RANK];
    for _ in 0..info.numel() {
        let at: usize = index.iter().zip(&strides).map(|(index, stride)| index * stride).sum();
        visit(at * size);
        for dim in (0..rank).rev() {
            index[dim] += 1;
            if index[dim] < info.size(dim) {
                break;
            }
            index[dim] = 0;
        }
    }
}

/// Writes a host tensor into memory that the device reads.
pub(crate) fn to_staging(info: &TensorInfo, bytes: &[u8], target: &mut [u8]) -> Result<(), Error> {
    let short = || Error::invalid("an input is larger than its staging memory");
    if !info.is_contiguous() {
        let size = info.scalar_type.size();
        let mut ordered = Vec::with_capacity(bytes.len());
        in_row_major_order(info, |at| {
            ordered.extend_from_slice(bytes.get(at..at + size).unwrap_or_default())
        });
        let converted = to_device(info.scalar_type, &ordered)?;
        target.get_mut(..converted.len()).ok_or_else(short)?.copy_from_slice(&converted);
        return Ok(());
    }
    match info.scalar_type {
        ScalarType::Long | ScalarType::Double | ScalarType::BFloat16 => {
            let converted = to_device(info.scalar_type, bytes)?;
            target.get_mut(..converted.len()).ok_or_else(short)?.copy_from_slice(&converted);
        }
        _ => target.get_mut(..bytes.len()).ok_or_else(short)?.copy_from_slice(bytes),
    }
    Ok(())
}

/// Reads memory that the device wrote into a host tensor.
pub(crate) fn from_staging(
    source: &[u8],
    info: &TensorInfo,
    bytes: &mut [u8],
) -> Result<(), Error> {
    let numel = info.numel();
    let size = info.scalar_type.size();
    let short = || Error::invalid("an output is larger than its staging memory");
    let device_size = match info.scalar_type {
        ScalarType::Long | ScalarType::Double => size / 2,
        ScalarType::BFloat16 => size * 2,
        _ => size,
    };
    let source = source.get(..numel * device_size).ok_or_else(short)?;
    let widened: Vec<u8>;
    let row_major: &[u8] = match info.scalar_type {
        ScalarType::Long => {
            let values = source.as_chunks::<4>().0.iter();
            widened = values
                .flat_map(|value| i64::from(i32::from_le_bytes(*value)).to_le_bytes())
                .collect();
            &widened
        }
        ScalarType::Double => {
            let values = source.as_chunks::<4>().0.iter();
            widened = values
                .flat_map(|value| f64::from(f32::from_le_bytes(*value)).to_le_bytes())
                .collect();
            &widened
        }
        ScalarType::BFloat16 => {
            let values = source.as_chunks::<4>().0.iter();
            widened = values
                .flat_map(|value| half::bf16::from_f32(f32::from_le_bytes(*value)).to_le_bytes())
                .collect();
            &widened
        }
        _ => source,
    };
    if info.is_contiguous() {
        bytes.get_mut(..row_major.len()).ok_or_else(short)?.copy_from_slice(row_major);
        return Ok(());
    }
    let mut elements = row_major.chunks_exact(size);
    in_row_major_order(info, |at| {
        if let (Some(element), Some(target)) = (elements.next(), bytes.get_mut(at..at + size)) {
            target.copy_from_slice(element);
        }
    });
    Ok(())
}
