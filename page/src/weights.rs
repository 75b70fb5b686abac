//! Constants: their figures, how their values are distributed, and what they look like.

use serde_json::{Value, json};
use torchlet::ScalarType;
use torchlet::Tensor;

/// Bars of a histogram, and elements that are looked at for it.
const BARS: usize = 40;
const MOST: usize = 1 << 16;
/// The side of a thumbnail.
const SIDE: usize = 32;

/// What a page tells of a constant; its bytes are in the order of its dimensions.
pub(super) fn object(scalar_type: ScalarType, shape: &[usize], bytes: &[u8]) -> Value {
    let tensor = Tensor::from_bytes(scalar_type, shape, bytes);
    let numbers = tensor.and_then(|tensor| tensor.to_f64_vec());
    let Ok(numbers) = numbers else { return Value::Null };
    let step = numbers.len().div_ceil(MOST).max(1);
    let seen: Vec<f64> =
        numbers.iter().step_by(step).copied().filter(|it| it.is_finite()).collect();
    if seen.is_empty() {
        return Value::Null;
    }
    let (min, max) = seen.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| {
        (min.min(*value), max.max(*value))
    });
    let mean = seen.iter().sum::<f64>() / seen.len() as f64;
    let variance = seen.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / seen.len() as f64;
    let mut bars = vec![0u32; BARS];
    for value in &seen {
        let place = if max > min { (value - min) / (max - min) * BARS as f64 } else { 0.0 };
        if let Some(bar) = bars.get_mut((place as usize).min(BARS - 1)) {
            *bar += 1;
        }
    }
    let odd = numbers.iter().filter(|it| !it.is_finite()).count();
    let round = |value: f64| (value * 1e6).round() / 1e6;
    json!({
        "min": round(min),
        "max": round(max),
        "mean": round(mean),
        "std": round(variance.sqrt()),
        "odd": odd,
        "bars": bars,
        "thumb": thumbnail(shape, &numbers, min, max),
    })
}

/// The tensor as a picture of few points, each the mean of what it stands for, from 0 to 99: rows are the first dimension. Nothing of
/// what has less than two dimensions.
fn thumbnail(shape: &[usize], numbers: &[f64], min: f64, max: f64) -> Value {
    let [rows, rest @ ..] = shape else { return Value::Null };
    let columns: usize = rest.iter().product();
    if rest.is_empty() || *rows < 2 || columns < 2 {
        return Value::Null;
    }
    let (height, width) = ((*rows).min(SIDE), columns.min(SIDE));
    let range = if max > min { max - min } else { 1.0 };
    let mut points = Vec::with_capacity(height * width);
    for row in 0..height {
        for column in 0..width {
            let (from, to) = (row * rows / height, (row + 1) * rows / height);
            let (left, right) = (column * columns / width, (column + 1) * columns / width);
            // A few of what a point stands for are enough.
            let each = |from: usize, to: usize| (from..to).step_by((to - from).div_ceil(4).max(1));
            let (mut sum, mut count) = (0.0, 0u32);
            for row in each(from, to) {
                for value in each(left, right).filter_map(|at| numbers.get(row * columns + at)) {
                    if value.is_finite() {
                        (sum, count) = (sum + value, count + 1);
                    }
                }
            }
            let mean = sum / f64::from(count.max(1));
            points.push(((mean - min) / range * 99.0).clamp(0.0, 99.0) as u8);
        }
    }
    json!({ "width": width, "height": height, "points": points })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_and_pictures() {
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
    }
}
