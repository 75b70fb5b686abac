//! Conversion between host tensors and device memory: element types and element order.

use crate::bfloat16;
use crate::error::Error;
use std::sync::Mutex;
use torchlet_core::{Parallel, ScalarType, Serial, TensorInfo};
use torchlet_shaders::Element;

/// Converts row-major host elements to the element types of the device. 64-bit types are narrowed,
/// integers with saturation, and `bfloat16` is widened.
pub(crate) fn to_device(scalar_type: ScalarType, bytes: &[u8]) -> Vec<u8> {
    let mut converted = vec![0; device_bytes(scalar_type, bytes.len())];
    convert(scalar_type, bytes, &mut converted, &Serial);
    converted
}

/// Returns the device bytes for a number of host bytes.
fn device_bytes(scalar_type: ScalarType, bytes: usize) -> usize {
    match scalar_type {
        ScalarType::Long | ScalarType::Double => bytes / 2,
        ScalarType::BFloat16 => bytes.saturating_mul(2),
        _ => bytes,
    }
}

/// Converts row-major host elements to the device types.
fn convert(scalar_type: ScalarType, bytes: &[u8], target: &mut [u8], parallel: &dyn Parallel) {
    match scalar_type {
        ScalarType::Long => {
            each(bytes, target, |it| saturated(i64::from_le_bytes(it)).to_le_bytes())
        }
        ScalarType::Double => {
            each(bytes, target, |it| (f64::from_le_bytes(it) as f32).to_le_bytes())
        }
        ScalarType::BFloat16 => bfloat16::convert(bytes, Element::F32, target),
        _ => copy(bytes, target, parallel),
    }
}

/// Converts device elements back to row-major host elements.
fn restore(scalar_type: ScalarType, source: &[u8], bytes: &mut [u8], parallel: &dyn Parallel) {
    match scalar_type {
        ScalarType::Long => {
            each(source, bytes, |it| i64::from(i32::from_le_bytes(it)).to_le_bytes())
        }
        ScalarType::Double => {
            each(source, bytes, |it| f64::from(f32::from_le_bytes(it)).to_le_bytes())
        }
        ScalarType::BFloat16 => {
            each(source, bytes, |it| half::bf16::from_f32(f32::from_le_bytes(it)).to_le_bytes())
        }
        _ => copy(source, bytes, parallel),
    }
}

/// The bytes that a thread copies at a time (`PIECE`), and the minimum bytes for a multi-threaded
/// copy (`SHARED`). One thread copies about 12 GB/s and starts within 20 µs.
const PIECE: usize = 128 << 10;
const SHARED: usize = 1 << 20;
/// The maximum number of threads per copy.
const MAX_THREADS: usize = 8;

/// Copies as many bytes as the shorter slice has.
fn copy(source: &[u8], target: &mut [u8], parallel: &dyn Parallel) {
    let count = source.len().min(target.len());
    let (Some(source), Some(target)) = (source.get(..count), target.get_mut(..count)) else {
        return;
    };
    let pieces = Mutex::new(source.chunks(PIECE).zip(target.chunks_mut(PIECE)));
    let next = || pieces.lock().ok().and_then(|mut pieces| pieces.next());
    let work = || {
        while let Some((source, target)) = next() {
            target.copy_from_slice(source);
        }
    };
    if source.len() >= SHARED {
        parallel.run(parallel.threads().min(MAX_THREADS), &|_| work());
    }
    // This thread copies everything, or the rest if other threads helped.
    work();
}

/// Converts each element with a function.
fn each<const FROM: usize, const TO: usize>(
    source: &[u8],
    target: &mut [u8],
    function: impl Fn([u8; FROM]) -> [u8; TO],
) {
    for (from, to) in source.as_chunks().0.iter().zip(target.as_chunks_mut().0) {
        *to = function(*from);
    }
}

/// Saturates to 32 bits, so that an index that is out of range stays out of range.
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

/// Writes a host tensor into staging memory, with conversion to the device's element type.
///
/// # Errors
/// The memory is too small.
pub fn to_staging(
    info: &TensorInfo,
    bytes: &[u8],
    target: &mut [u8],
    parallel: &dyn Parallel,
) -> Result<(), Error> {
    let short = || Error::invalid("internal error: an input exceeds its staging memory");
    let mut ordered = Vec::new();
    let row_major = if info.is_contiguous() {
        bytes
    } else {
        let size = info.scalar_type.size();
        ordered.reserve(bytes.len());
        in_row_major_order(info, |at| {
            ordered.extend_from_slice(bytes.get(at..at + size).unwrap_or_default())
        });
        &ordered
    };
    let count = device_bytes(info.scalar_type, row_major.len());
    convert(info.scalar_type, row_major, target.get_mut(..count).ok_or_else(short)?, parallel);
    Ok(())
}

/// Reads a host tensor from staging memory, with conversion from the device's element type.
///
/// # Errors
/// The memory is too small.
pub fn from_staging(
    source: &[u8],
    info: &TensorInfo,
    bytes: &mut [u8],
    parallel: &dyn Parallel,
) -> Result<(), Error> {
    let size = info.scalar_type.size();
    let short = || Error::invalid("internal error: an output exceeds its staging memory");
    let count = info.numel() * size;
    let source = source.get(..device_bytes(info.scalar_type, count)).ok_or_else(short)?;
    if info.is_contiguous() {
        restore(info.scalar_type, source, bytes.get_mut(..count).ok_or_else(short)?, parallel);
        return Ok(());
    }
    let mut row_major = vec![0; count];
    restore(info.scalar_type, source, &mut row_major, parallel);
    let mut elements = row_major.chunks_exact(size);
    in_row_major_order(info, |at| {
        if let (Some(element), Some(target)) = (elements.next(), bytes.get_mut(at..at + size)) {
            target.copy_from_slice(element);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread pool that never runs its tasks.
    struct Idle;

    impl Parallel for Idle {
        fn threads(&self) -> usize {
            2
        }

        fn run(&self, _: usize, _: &(dyn Fn(usize) + Sync)) {}
    }

    /// A thread pool with one thread per task.
    struct Threads;

    impl Parallel for Threads {
        fn threads(&self) -> usize {
            3
        }

        fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
            std::thread::scope(|scope| {
                (0..count).for_each(|index| drop(scope.spawn(move || task(index))));
            });
        }
    }

    #[test]
    fn copy_is_complete_for_any_thread_pool() {
        for size in [0, 1, PIECE + 1, SHARED, 3 * SHARED + 5] {
            let source: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            for parallel in [&Serial as &dyn Parallel, &Idle, &Threads] {
                let mut target = vec![0; size];
                copy(&source, &mut target, parallel);
                assert!(source == target, "{size} bytes, {} threads", parallel.threads());
            }
        }
    }
}
