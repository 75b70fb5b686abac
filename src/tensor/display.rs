//! Prints tensors in PyTorch's format.

use super::Tensor;
use super::number::Number;
use std::collections::HashMap;
use std::fmt::{self, Write};
use torchlet_core::ScalarType;

/// Tensors with more elements are summarized.
const THRESHOLD: usize = 1000;
/// Number of elements at each end of a dim in a summary.
const EDGE: usize = 3;
const LINE_WIDTH: usize = 80;

/// Number format for the elements of one tensor.
enum Style {
    Plain,
    /// All elements are integral: `3.`
    Whole,
    Fixed,
    Scientific,
}

impl Style {
    fn for_numbers(numbers: &[Number]) -> Self {
        let mut sizes = Vec::new();
        for number in numbers {
            match number {
                Number::Float(value) => sizes.push(value.abs()),
                Number::Complex(re, im) => sizes.extend([re.abs(), im.abs()]),
                _ => return Style::Plain,
            }
        }
        sizes.retain(|size| size.is_finite() && *size != 0.0);
        let largest = sizes.iter().copied().fold(0.0, f64::max);
        let smallest = sizes.iter().copied().fold(f64::INFINITY, f64::min);
        let is_wide = largest / smallest > 1000.0 || largest > 1e8;
        match sizes.iter().all(|size| size.fract() == 0.0) {
            _ if is_wide => Style::Scientific,
            true => Style::Whole,
            false if smallest < 1e-4 => Style::Scientific,
            false => Style::Fixed,
        }
    }

    fn float(&self, value: f64) -> String {
        if value.is_nan() {
            return "nan".into();
        }
        if value.is_infinite() {
            return if value > 0.0 { "inf" } else { "-inf" }.into();
        }
        match self {
            Style::Plain => value.to_string(),
            Style::Whole => format!("{value}."),
            Style::Fixed => format!("{value:.4}"),
            Style::Scientific => {
                let text = format!("{value:.4e}");
                match text.split_once('e') {
                    Some((digits, exponent)) => {
                        let exponent: i32 = exponent.parse().unwrap_or(0);
                        let sign = if exponent < 0 { '-' } else { '+' };
                        format!("{digits}e{sign}{:02}", exponent.abs())
                    }
                    None => text,
                }
            }
        }
    }

    fn number(&self, number: Number) -> String {
        match number {
            Number::Bool(value) => if value { "True" } else { "False" }.into(),
            Number::Int(value) => value.to_string(),
            Number::Float(value) => self.float(value),
            Number::Complex(re, im) => {
                let sign = if im.is_sign_negative() { "" } else { "+" };
                format!("{}{sign}{}j", self.float(re), self.float(im))
            }
        }
    }
}

/// Formatted elements of one tensor.
struct Printer<'t> {
    shape: &'t [usize],
    /// Text of each printed element, by memory offset.
    texts: HashMap<usize, String>,
    /// Maximum width of the texts.
    width: usize,
    shortened: bool,
}

impl Printer<'_> {
    /// Printed indices of a dim, with `None` for the elided middle.
    fn shown(&self, size: usize) -> Vec<Option<usize>> {
        if !self.shortened || size <= 2 * EDGE {
            return (0..size).map(Some).collect();
        }
        let tail = (size - EDGE..size).map(Some);
        (0..EDGE).map(Some).chain([None]).chain(tail).collect()
    }

    /// Appends the offsets of the printed elements, in order.
    fn offsets(&self, dim: usize, offset: usize, offsets: &mut Vec<usize>) {
        let Some((&size, inner)) = self.shape[dim..].split_first() else {
            return offsets.push(offset);
        };
        let step: usize = inner.iter().product();
        let shown = self.shown(size).into_iter().flatten();
        shown.for_each(|index| self.offsets(dim + 1, offset + index * step, offsets));
    }

    fn text(&self, place: usize) -> &str {
        self.texts.get(&place).map_or("", String::as_str)
    }

    fn write(&self, f: &mut impl Write, dim: usize, offset: usize, indent: usize) -> fmt::Result {
        let Some((&size, inner)) = self.shape[dim..].split_first() else {
            return f.write_str(self.text(offset));
        };
        f.write_char('[')?;
        if inner.is_empty() {
            let per_line = ((LINE_WIDTH.saturating_sub(indent + 1)) / (self.width + 2)).max(1);
            for (count, index) in self.shown(size).into_iter().enumerate() {
                if count > 0 {
                    f.write_char(',')?;
                    if count % per_line == 0 {
                        write!(f, "\n{:1$}", "", indent + 1)?;
                    } else {
                        f.write_char(' ')?;
                    }
                }
                match index {
                    Some(index) => {
                        write!(f, "{:>1$}", self.text(offset + index), self.width)?;
                    }
                    None => f.write_str("...")?,
                }
            }
        } else {
            let step: usize = inner.iter().product();
            for (count, index) in self.shown(size).into_iter().enumerate() {
                if count > 0 {
                    let lines = inner.len();
                    write!(f, ",{:\n<1$}{2:3$}", "", lines, "", indent + 1)?;
                }
                match index {
                    Some(index) => self.write(f, dim + 1, offset + index * step, indent + 1)?,
                    None => f.write_str("...")?,
                }
            }
        }
        f.write_char(']')
    }
}

impl fmt::Display for Tensor {
    /// Prints as PyTorch does: `tensor([[1., 2.], [3., 4.]])`, with the dtype unless it is the
    /// default for such values. Tensors with more than 1,000 elements are summarized; a precision
    /// such as `{:.100}` changes this threshold.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(numbers) = self.numbers("printing") else {
            return write!(
                f,
                "tensor(..., shape={:?}, dtype={})",
                self.shape(),
                self.scalar_type()
            );
        };
        f.write_str("tensor(")?;
        if self.numel() == 0 {
            f.write_str("[]")?;
            if self.rank() != 1 {
                write!(f, ", shape={:?}", self.shape())?;
            }
        } else {
            // As PyTorch: only printed elements determine the format.
            let shortened = self.numel() > f.precision().unwrap_or(THRESHOLD);
            let mut printer =
                Printer { shape: self.shape(), texts: HashMap::new(), width: 0, shortened };
            let mut offsets = Vec::new();
            printer.offsets(0, 0, &mut offsets);
            let mut shown = offsets.iter().copied().peekable();
            let numbers = numbers.enumerate();
            let numbers: Vec<Number> = numbers
                .filter(|(place, _)| shown.next_if_eq(place).is_some())
                .map(|(_, number)| number)
                .collect();
            let style = Style::for_numbers(&numbers);
            let texts = numbers.into_iter().map(|number| style.number(number));
            printer.texts = offsets.into_iter().zip(texts).collect();
            printer.width = printer.texts.values().map(String::len).max().unwrap_or(0);
            printer.write(f, 0, 0, 7)?;
        }
        if !matches!(self.scalar_type(), ScalarType::Float | ScalarType::Long | ScalarType::Bool) {
            write!(f, ", dtype={}", self.scalar_type())?;
        }
        f.write_char(')')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected texts were printed by PyTorch.
    #[test]
    fn matches_pytorch_output() {
        let floats = Tensor::from_slice(&[2, 2], &[0.2f32, -1.25, 3.0, 100.5]).unwrap();
        let text = "tensor([[  0.2000,  -1.2500],\n        [  3.0000, 100.5000]])";
        assert_eq!(floats.to_string(), text);
        let whole = Tensor::from_slice(&[3], &[1.0f64, -2.0, f64::NAN]).unwrap();
        assert_eq!(whole.to_string(), "tensor([ 1., -2., nan], dtype=float64)");
        let small = Tensor::from_slice(&[2], &[1e-5f32, 1.5]).unwrap();
        assert_eq!(small.to_string(), "tensor([1.0000e-05, 1.5000e+00])");
        let wide = Tensor::from_slice(&[2], &[1.0f32, 2000.0]).unwrap();
        assert_eq!(wide.to_string(), "tensor([1.0000e+00, 2.0000e+03])");
        let wide = Tensor::from_slice(&[2], &[1e8f32, 5e7]).unwrap();
        assert_eq!(wide.to_string(), "tensor([100000000.,  50000000.])");
        let ints = Tensor::from_slice(&[2, 1, 2], &[1i64, -20, 3, 4]).unwrap();
        assert_eq!(ints.to_string(), "tensor([[[  1, -20]],\n\n        [[  3,   4]]])");
        assert_eq!(Tensor::scalar(2.5f32).unwrap().to_string(), "tensor(2.5000)");
        let bools = Tensor::from_bools(&[2], &[true, false]).unwrap();
        assert_eq!(bools.to_string(), "tensor([ True, False])");
        let empty = Tensor::zeros(ScalarType::Int, &[0, 3]).unwrap();
        assert_eq!(empty.to_string(), "tensor([], shape=[0, 3], dtype=int32)");
    }

    #[test]
    fn large_tensors_are_summarized() {
        let large = Tensor::zeros(ScalarType::Float, &[2000]).unwrap();
        assert_eq!(large.to_string(), "tensor([0., 0., 0., ..., 0., 0., 0.])");
        let cube = Tensor::zeros(ScalarType::Byte, &[100, 100, 100]).unwrap();
        assert_eq!(cube.to_string().matches("...").count(), 1 + 6 * (1 + 6));
        let ten = Tensor::zeros(ScalarType::Float, &[10]).unwrap();
        assert_eq!(format!("{ten:.9}"), "tensor([0., 0., 0., ..., 0., 0., 0.])");
        assert!(!format!("{ten:.10}").contains("..."));
        // Elided elements do not affect the format.
        let mut numbers = vec![0.5f32; 2000];
        numbers[1000] = -1e9;
        let large = Tensor::from_slice(&[1000, 2], &numbers).unwrap();
        let row = "[0.5000, 0.5000]";
        let rows = [[row; 3].join(",\n        "), [row; 3].join(",\n        ")];
        assert_eq!(
            large.to_string(),
            format!("tensor([{}])", rows.join(",\n        ...,\n        "))
        );
    }
}
