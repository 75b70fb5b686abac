//! Statistics, histograms and thumbnails of constants.

use serde_json::{Value, json};
use torchlet::ScalarType;
use torchlet::Tensor;

/// Number of histogram bars, and maximum number of sampled elements.
const HISTOGRAM_BARS: usize = 40;
const MAX_SAMPLES: usize = 1 << 16;
/// Side length of a thumbnail in pixels.
const SIDE: usize = 32;

/// Number of elements converted at a time.
const BLOCK: usize = 1 << 12;
/// Maximum samples per thumbnail pixel along each axis.
const EACH: usize = 4;

/// Elements of a constant, which are converted in blocks: a constant can be as large as its file.
struct Elements<'b> {
    scalar_type: ScalarType,
    bytes: &'b [u8],
    count: usize,
}

impl<'b> Elements<'b> {
    /// Returns `None` if the bytes are too short.
    fn new(scalar_type: ScalarType, shape: &[usize], bytes: &'b [u8]) -> Option<Self> {
        let count = shape.iter().try_fold(1usize, |count, size| count.checked_mul(*size))?;
        let bytes = bytes.get(..count.checked_mul(scalar_type.size())?)?;
        Some(Elements { scalar_type, bytes, count })
    }

    fn numbers(&self, bytes: &[u8]) -> Option<Vec<f64>> {
        let count = bytes.len() / self.scalar_type.size().max(1);
        Tensor::from_bytes(self.scalar_type, &[count], bytes).ok()?.to_f64_vec().ok()
    }

    /// Elements at a bounded number of indices. Indices out of range are skipped.
    fn at(&self, positions: impl Iterator<Item = usize>) -> Option<Vec<f64>> {
        let size = self.scalar_type.size();
        let mut picked = Vec::new();
        for position in positions.filter(|position| *position < self.count) {
            picked.extend_from_slice(self.bytes.get(position * size..(position + 1) * size)?);
        }
        self.numbers(&picked)
    }

    /// Number of elements that are NaN or infinite.
    fn odd(&self) -> Option<usize> {
        let blocks = self.bytes.chunks(BLOCK * self.scalar_type.size().max(1));
        blocks
            .map(|block| Some(self.numbers(block)?.iter().filter(|it| !it.is_finite()).count()))
            .sum()
    }
}

/// JSON description of a constant, whose bytes are in row-major order.
pub(super) fn object(scalar_type: ScalarType, shape: &[usize], bytes: &[u8]) -> Value {
    figures(scalar_type, shape, bytes).unwrap_or(Value::Null)
}

fn figures(scalar_type: ScalarType, shape: &[usize], bytes: &[u8]) -> Option<Value> {
    let elements = Elements::new(scalar_type, shape, bytes)?;
    let step = elements.count.div_ceil(MAX_SAMPLES).max(1);
    let seen = elements.at((0..elements.count).step_by(step))?;
    let seen: Vec<f64> = seen.into_iter().filter(|it| it.is_finite()).collect();
    if seen.is_empty() {
        return None;
    }
    let (min, max) = seen.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| {
        (min.min(*value), max.max(*value))
    });
    let mean = seen.iter().sum::<f64>() / seen.len() as f64;
    let variance = seen.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / seen.len() as f64;
    let mut bars = vec![0u32; HISTOGRAM_BARS];
    for value in &seen {
        let index =
            if max > min { (value - min) / (max - min) * HISTOGRAM_BARS as f64 } else { 0.0 };
        if let Some(bar) = bars.get_mut((index as usize).min(HISTOGRAM_BARS - 1)) {
            *bar += 1;
        }
    }
    let round = |value: f64| (value * 1e6).round() / 1e6;
    Some(json!({
        "min": round(min),
        "max": round(max),
        "mean": round(mean),
        "std": round(variance.sqrt()),
        "odd": elements.odd()?,
        "bars": bars,
        "thumb": thumbnail(shape, &elements, min, max),
    }))
}

/// Thumbnail: each pixel is the mean of its elements, scaled to 0..99. Rows are the first dim.
/// `Null` for tensors with less than two dims.
fn thumbnail(shape: &[usize], elements: &Elements<'_>, min: f64, max: f64) -> Value {
    let [rows, rest @ ..] = shape else { return Value::Null };
    let columns: usize = rest.iter().product();
    if rest.is_empty() || *rows < 2 || columns < 2 {
        return Value::Null;
    }
    let (height, width) = ((*rows).min(SIDE), columns.min(SIDE));
    let range = if max > min { max - min } else { 1.0 };
    // 128-bit arithmetic avoids overflow for huge shapes.
    let bound = |index: usize, whole: usize, parts: usize| {
        (index as u128 * whole as u128 / parts as u128) as usize
    };
    let mut pixels = Vec::with_capacity(height * width);
    for row in 0..height {
        for column in 0..width {
            let (from, to) = (bound(row, *rows, height), bound(row + 1, *rows, height));
            let (left, right) = (bound(column, columns, width), bound(column + 1, columns, width));
            // A few samples per pixel suffice.
            let each =
                |from: usize, to: usize| (from..to).step_by((to - from).div_ceil(EACH).max(1));
            let positions =
                each(from, to).flat_map(|row| each(left, right).map(move |at| row * columns + at));
            let numbers = elements.at(positions).unwrap_or_default();
            let finite = numbers.iter().filter(|value| value.is_finite());
            let count = finite.clone().count().max(1);
            let mean = finite.sum::<f64>() / count as f64;
            pixels.push(((mean - min) / range * 99.0).clamp(0.0, 99.0) as u8);
        }
    }
    json!({ "width": width, "height": height, "points": pixels })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_and_thumbnails() {
        let bytes: Vec<u8> = [0f32, 1.0, 2.0, 3.0].iter().flat_map(|it| it.to_le_bytes()).collect();
        let found = object(ScalarType::Float, &[2, 2], &bytes);
        assert_eq!(
            (&found["min"], &found["max"], &found["mean"]),
            (&0.0.into(), &3.0.into(), &1.5.into())
        );
        assert_eq!(found["std"], 1.118034);
        assert_eq!(found["bars"].as_array().unwrap().iter().filter(|bar| **bar == 1).count(), 4);
        assert_eq!(found["thumb"]["points"], json!([0, 33, 66, 99]));
        assert!(object(ScalarType::Float, &[4], &bytes)["thumb"].is_null());
        assert!(object(ScalarType::Float, &[5], &bytes).is_null(), "too few bytes");
        let odd =
            object(ScalarType::Float, &[2], &[f32::NAN.to_le_bytes(), 1f32.to_le_bytes()].concat());
        assert_eq!((&odd["odd"], &odd["min"]), (&1.into(), &1.0.into()));
        assert!(object(ScalarType::Float, &[usize::MAX, 2], &bytes).is_null(), "too many elements");
    }

    #[test]
    fn large_constants_are_read_in_blocks() {
        let count = 3 * BLOCK + 5;
        let mut bytes: Vec<u8> = (0..count).flat_map(|at| (at as f32).to_le_bytes()).collect();
        bytes[4 * (count - 1)..].copy_from_slice(&f32::INFINITY.to_le_bytes());
        let found = object(ScalarType::Float, &[1, count], &bytes);
        assert_eq!((&found["odd"], &found["max"]), (&1.into(), &((count - 2) as f64).into()));
    }
}
