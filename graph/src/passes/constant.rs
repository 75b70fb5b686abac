//! Conversions between constant data and `f64`: lossless decoding, and encoding with a single
//! rounding.

use alloc::vec::Vec;
use half::{bf16, f16};
use torchlet_core::ScalarType;

/// Decodes constant data of types that `f64` represents exactly. Decoding ends before the first
/// 64-bit integer that it does not represent.
pub(super) fn decode(
    scalar_type: ScalarType,
    data: &[u8],
) -> Option<impl Iterator<Item = f64> + '_> {
    let size = scalar_type.size();
    let element: fn(&[u8]) -> Option<f64> = match scalar_type {
        ScalarType::Float => |bytes| Some(f32::from_le_bytes(bytes.try_into().ok()?).into()),
        ScalarType::Double => |bytes| Some(f64::from_le_bytes(bytes.try_into().ok()?)),
        ScalarType::Half => |bytes| Some(f16::from_le_bytes(bytes.try_into().ok()?).to_f64_const()),
        ScalarType::BFloat16 => {
            |bytes| Some(bf16::from_le_bytes(bytes.try_into().ok()?).to_f64_const())
        }
        ScalarType::Int => |bytes| Some(i32::from_le_bytes(bytes.try_into().ok()?).into()),
        ScalarType::Long => |bytes| {
            let value = i64::from_le_bytes(bytes.try_into().ok()?);
            (value.unsigned_abs() <= 1 << 53).then_some(value as f64)
        },
        ScalarType::Short => |bytes| Some(i16::from_le_bytes(bytes.try_into().ok()?).into()),
        ScalarType::Char => |bytes| Some(i8::from_le_bytes(bytes.try_into().ok()?).into()),
        ScalarType::Byte | ScalarType::Bool => |bytes| bytes.first().map(|byte| (*byte).into()),
        _ => return None,
    };
    if size == 0 || !data.len().is_multiple_of(size) {
        return None;
    }
    Some(data.chunks_exact(size).map_while(element))
}

/// Multiplies each run of `run` elements by its own factor, rounding once. Returns `None` if a
/// result is not finite, or if factors are missing.
pub(super) fn scaled(
    scalar_type: ScalarType,
    data: &[u8],
    run: usize,
    mut factors: impl Iterator<Item = f64>,
) -> Option<Vec<u8>> {
    let bytes = run.checked_mul(scalar_type.size()).filter(|bytes| *bytes > 0)?;
    let mut scaled = alloc::vec![0; data.len()];
    for (to, from) in scaled.chunks_mut(bytes).zip(data.chunks(bytes)) {
        let factor = factors.next()?;
        if scalar_type == ScalarType::Float {
            let mut are_finite = true;
            for (to, from) in to.as_chunks_mut::<4>().0.iter_mut().zip(from.as_chunks::<4>().0) {
                let number = (f64::from(f32::from_le_bytes(*from)) * factor) as f32;
                are_finite &= number.is_finite();
                *to = number.to_le_bytes();
            }
            if !are_finite {
                return None;
            }
            continue;
        }
        let numbers: Vec<f64> = decode(scalar_type, from)?.map(|number| number * factor).collect();
        let encoded = encode(scalar_type, &numbers).filter(|encoded| encoded.len() == to.len())?;
        if !decode(scalar_type, &encoded)?.all(f64::is_finite) {
            return None;
        }
        to.copy_from_slice(&encoded);
    }
    Some(scaled)
}

/// Encodes values as tensor data, each rounded once, to nearest.
pub(super) fn encode(scalar_type: ScalarType, numbers: &[f64]) -> Option<Vec<u8>> {
    let mut data = Vec::with_capacity(numbers.len().checked_mul(scalar_type.size())?);
    for number in numbers {
        match scalar_type {
            ScalarType::Float => data.extend((*number as f32).to_le_bytes()),
            ScalarType::Double => data.extend(number.to_le_bytes()),
            ScalarType::Half => data.extend(f16::from_f32(odd(*number)).to_le_bytes()),
            ScalarType::BFloat16 => data.extend(bf16::from_f32(odd(*number)).to_le_bytes()),
            ScalarType::Int => data.extend((*number as i32).to_le_bytes()),
            ScalarType::Long => data.extend((*number as i64).to_le_bytes()),
            ScalarType::Char => data.extend((*number as i8).to_le_bytes()),
            ScalarType::Byte | ScalarType::Bool => data.push(*number as u8),
            _ => return None,
        }
    }
    Some(data)
}

/// Rounds a value to a type.
pub(super) fn rounded(scalar_type: ScalarType, number: f64) -> Option<f64> {
    let data = encode(scalar_type, &[number])?;
    decode(scalar_type, &data)?.next()
}

/// Rounds to odd, so that rounding the result to fewer bits gives the same as rounding the
/// original. (The conversions of `half` look at the upper half of an `f64` only.)
fn odd(number: f64) -> f32 {
    let near = number as f32;
    if f64::from(near) == number || number.is_nan() || near.to_bits() & 1 == 1 {
        return near;
    }
    let outwards = number.abs() > f64::from(near).abs();
    let bits = near.to_bits();
    f32::from_bits(if outwards { bits + 1 } else { bits - 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive() {
        let numbers = [0.5, -2.0, 0.0, 4.0];
        for scalar_type in
            [ScalarType::Float, ScalarType::Double, ScalarType::Half, ScalarType::BFloat16]
        {
            let data = encode(scalar_type, &numbers).unwrap();
            assert_eq!(decode(scalar_type, &data).unwrap().collect::<Vec<_>>(), numbers);
        }
    }

    #[test]
    fn they_are_rounded_once() {
        // Just above the middle of two `f16` values, by less than an `f32` resolves.
        let number = 1.0 + f64::from(f16::EPSILON) / 2.0 + 1e-12;
        let data = encode(ScalarType::Half, &[number]).unwrap();
        let rounded = decode(ScalarType::Half, &data).unwrap().next();
        assert_eq!(rounded, Some(1.0 + f64::from(f16::EPSILON)));
    }

    #[test]
    fn runs_have_factors() {
        for scalar_type in [ScalarType::Float, ScalarType::Half] {
            let data = encode(scalar_type, &[1.0, 2.0, 3.0, 4.0]).unwrap();
            let twice = scaled(scalar_type, &data, 2, [2.0, 0.5].into_iter()).unwrap();
            let numbers: Vec<f64> = decode(scalar_type, &twice).unwrap().collect();
            assert_eq!(numbers, [2.0, 4.0, 1.5, 2.0]);
            assert_eq!(scaled(scalar_type, &data, 2, [2.0].into_iter()), None);
            assert_eq!(scaled(scalar_type, &data, 4, [1e39].into_iter()), None);
        }
    }

    #[test]
    fn data_of_the_wrong_length_has_no_numbers() {
        assert!(decode(ScalarType::Float, &[0; 5]).is_none());
    }
}
