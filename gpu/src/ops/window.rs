//! Sliding windows over two or three dims: the checked window arguments of convolutions and
//! pooling.

use crate::error::Error;

/// The maximum of sizes, strides and offsets for which shader arithmetic fits in 32 bits.
const LIMIT: i64 = 1 << 30;

/// A window in one dim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) kernel: i32,
    pub(super) stride: i32,
    pub(super) padding: i32,
    pub(super) dilation: i32,
}

impl Window {
    /// A window of one element with stride one, for absent dims.
    pub(super) const NONE: Window = Window { kernel: 1, stride: 1, padding: 0, dilation: 1 };

    pub(super) fn new(
        kernel: i64,
        stride: i64,
        padding: i64,
        dilation: i64,
    ) -> Result<Self, Error> {
        let checked = |value: i64, least: i64, what: &str| -> Result<i32, Error> {
            i32::try_from(value).ok().filter(|_| value >= least && value <= LIMIT).ok_or_else(
                || Error::Invalid(format!("{what}: expected {least} to {LIMIT}, found {value}")),
            )
        };
        let window = Window {
            kernel: checked(kernel, 1, "kernel size")?,
            stride: checked(stride, 1, "stride")?,
            padding: checked(padding, 0, "padding")?,
            dilation: checked(dilation, 1, "dilation")?,
        };
        if window.reach() > LIMIT {
            return Err(Error::Invalid(format!(
                "kernel size {kernel} with dilation {dilation} spans {} elements, the limit is \
                 {LIMIT}",
                window.reach()
            )));
        }
        Ok(window)
    }

    /// Returns the extent of the window in elements, from the first to the last, including
    /// dilation.
    pub(super) fn reach(&self) -> i64 {
        (i64::from(self.kernel) - 1) * i64::from(self.dilation) + 1
    }

    /// Returns the number of windows over `size` elements. With `ceil`, an incomplete last window
    /// counts.
    pub(super) fn count(&self, size: usize, ceil: bool) -> Result<usize, Error> {
        let (stride, padding) = (i64::from(self.stride), i64::from(self.padding));
        let size = checked_size(size)?;
        let room = size + 2 * padding - self.reach();
        if size == 0 || room < 0 {
            return Err(Error::Invalid(format!(
                "a kernel that spans {} elements does not fit {size} elements with padding \
                 {padding}",
                self.reach()
            )));
        }
        let mut count = (if ceil { (room + stride - 1) / stride } else { room / stride }) + 1;
        // The last window starts inside the input or the padding before it.
        if ceil && (count - 1) * stride >= size + padding {
            count -= 1;
        }
        self.bounded(count)
    }

    /// Returns the output size of a transposed convolution.
    pub(super) fn transposed_count(
        &self,
        size: usize,
        output_padding: i64,
    ) -> Result<usize, Error> {
        let largest = i64::from(self.stride).max(self.dilation.into());
        if output_padding < 0 || output_padding >= largest {
            return Err(Error::Invalid(format!(
                "output padding: expected 0 to {}, found {output_padding}",
                largest - 1
            )));
        }
        let size = checked_size(size)?;
        let count = (size - 1) * i64::from(self.stride) - 2 * i64::from(self.padding)
            + self.reach()
            + output_padding;
        if size == 0 || count < 1 {
            return Err(Error::Invalid(format!(
                "input size {size} gives an output size of {count}, expected at least 1"
            )));
        }
        self.bounded(count)
    }

    /// Checks that all positions that shaders compute, including some beyond the end, fit in 32
    /// bits.
    fn bounded(&self, count: i64) -> Result<usize, Error> {
        let end = count
            .checked_add(4)
            .and_then(|count| count.checked_mul(i64::from(self.stride)))
            .and_then(|end| end.checked_add(i64::from(self.padding) + self.reach()));
        match (usize::try_from(count), end) {
            (Ok(count), Some(end)) if end < LIMIT * 2 => Ok(count),
            _ => Err(Error::unsupported(format!(
                "a convolution or pooling to {count} elements per dim"
            ))),
        }
    }
}

/// The depth dim of a 3D operator: the window in that dim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Depth {
    pub(super) window: Window,
    /// Planes per channel, of input and output.
    pub(super) size: usize,
    pub(super) out_size: usize,
}

fn checked_size(size: usize) -> Result<i64, Error> {
    i64::try_from(size).ok().filter(|size| *size <= LIMIT).ok_or_else(|| {
        Error::unsupported(format!("a dim of {size} elements; the limit is {LIMIT}"))
    })
}

/// Parses values for two dims. One value applies to both; an empty list means `default`.
pub(super) fn pair(values: &[i64], default: Option<[i64; 2]>) -> Result<[i64; 2], Error> {
    match (values, default) {
        ([both], _) => Ok([*both, *both]),
        ([y, x], _) => Ok([*y, *x]),
        ([], Some(default)) => Ok(default),
        _ => Err(Error::Invalid(format!(
            "expected one or two values for two dims, found {values:?}"
        ))),
    }
}

/// Parses values for three dims. One value applies to all.
pub(super) fn triple(values: &[i64]) -> Result<[i64; 3], Error> {
    match *values {
        [all] => Ok([all; 3]),
        [z, y, x] => Ok([z, y, x]),
        _ => Err(Error::Invalid(format!(
            "expected one or three values for three dims, found {values:?}"
        ))),
    }
}

/// Checks that the number of elements fits in 31 bits.
pub(super) fn checked_numel(sizes: &[usize]) -> Result<usize, Error> {
    sizes
        .iter()
        .try_fold(1usize, |numel, size| numel.checked_mul(*size))
        .filter(|numel| *numel <= i32::MAX as usize)
        .ok_or_else(|| {
            Error::unsupported(format!(
                "a tensor of shape {sizes:?}; the limit is 2^31 - 1 elements"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_counted() {
        let window = Window::new(3, 2, 1, 1).unwrap();
        assert_eq!(window.count(224, false).unwrap(), 112);
        assert_eq!(window.count(7, true).unwrap(), 4);
        assert_eq!(Window::new(2, 2, 0, 1).unwrap().count(5, true).unwrap(), 3);
        // The third window would start in the padding after the input.
        assert_eq!(Window::new(2, 3, 1, 1).unwrap().count(5, true).unwrap(), 2);
        assert_eq!(window.transposed_count(4, 1).unwrap(), 8);
    }

    #[test]
    fn nonsense_is_refused() {
        for [kernel, stride, padding, dilation] in [
            [0, 1, 0, 1],
            [1, 0, 0, 1],
            [1, 1, -1, 1],
            [1, 1, 0, 0],
            [-1, 1, 0, 1],
            [1 << 20, 1, 0, 1 << 20],
            [i64::MAX, 1, 0, 1],
            [1, i64::MIN, 0, 1],
        ] {
            assert!(Window::new(kernel, stride, padding, dilation).is_err());
        }
        let window = Window::new(5, 1, 1, 1).unwrap();
        assert!(window.count(2, false).is_err());
        assert!(window.count(0, false).is_err());
        assert!(window.count(usize::MAX, false).is_err());
        assert!(window.transposed_count(0, 0).is_err());
        assert!(window.transposed_count(4, 7).is_err());
        assert!(Window::new(1, 1 << 30, 0, 1).unwrap().transposed_count(1 << 20, 0).is_err());
    }
}
