//! Indexing with integers and ranges.

use super::{Arg, Tensor};
use crate::error::Error;
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo};

/// Selection of indices of a dim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum At {
    /// One index; the dim is removed. Negative ones count from the end.
    Index(i64),
    /// The indices from `start` to `end`, in steps. Negative bounds count from the end; bounds
    /// beyond the dim are clamped.
    Slice {
        /// First index; the first one if absent.
        start: Option<i64>,
        /// Index after the last one; the end of the dim if absent.
        end: Option<i64>,
        /// Distance of the indices, at least 1.
        step: i64,
    },
    /// A new dim of size 1, as `None` in Python.
    NewDim,
    /// All dims that the other items do not mention, as `...` in Python.
    Ellipsis,
}

impl From<i64> for At {
    fn from(index: i64) -> Self {
        At::Index(index)
    }
}

impl From<RangeFull> for At {
    fn from(_: RangeFull) -> Self {
        At::Slice { start: None, end: None, step: 1 }
    }
}

impl From<Range<i64>> for At {
    fn from(range: Range<i64>) -> Self {
        At::Slice { start: Some(range.start), end: Some(range.end), step: 1 }
    }
}

impl From<RangeInclusive<i64>> for At {
    fn from(range: RangeInclusive<i64>) -> Self {
        // Behind -1 is the end.
        let end = range.end().checked_add(1).filter(|end| *end != 0);
        At::Slice { start: Some(*range.start()), end, step: 1 }
    }
}

impl From<RangeFrom<i64>> for At {
    fn from(range: RangeFrom<i64>) -> Self {
        At::Slice { start: Some(range.start), end: None, step: 1 }
    }
}

impl From<RangeTo<i64>> for At {
    fn from(range: RangeTo<i64>) -> Self {
        At::Slice { start: None, end: Some(range.end), step: 1 }
    }
}

/// Items of an index: one item, a tuple of up to six, or a slice of [`At`].
pub trait Index {
    /// Returns the items.
    fn items(self) -> Vec<At>;
}

impl<T: Into<At>> Index for T {
    fn items(self) -> Vec<At> {
        vec![self.into()]
    }
}

impl Index for &[At] {
    fn items(self) -> Vec<At> {
        self.to_vec()
    }
}

macro_rules! tuples {
    ($(($($name:ident),*)),* $(,)?) => {
        $(
            impl<$($name: Into<At>),*> Index for ($($name,)*) {
                #[allow(non_snake_case, reason = "variables are named like their types")]
                fn items(self) -> Vec<At> {
                    let ($($name,)*) = self;
                    vec![$($name.into()),*]
                }
            }
        )*
    };
}

tuples! { (A, B), (A, B, C), (A, B, C, D), (A, B, C, D, E), (A, B, C, D, E, F) }

impl Tensor {
    /// Returns a view: `x.i((0, .., 2..5))` is `x[0, :, 2:5]` in Python.
    ///
    /// ```
    /// use torchlet::lazy::Tensor;
    ///
    /// let x = Tensor::from_slice(&[2, 3], &[0, 1, 2, 3, 4, 5])?;
    /// assert_eq!(x.i((.., 1..))?.to_vec::<i32>()?, [1, 2, 4, 5]);
    /// assert_eq!(x.i(-1)?.to_vec::<i32>()?, [3, 4, 5]);
    /// // Views share memory.
    /// x.i((.., 0))?.fill_(9)?;
    /// assert_eq!(x.to_vec::<i32>()?, [9, 1, 2, 9, 4, 5]);
    /// # Ok::<(), torchlet::Error>(())
    /// ```
    ///
    /// # Errors
    /// The tensor has fewer dims than the index, or an index is out of range.
    pub fn i(&self, index: impl Index) -> Result<Tensor, Error> {
        let items = index.items();
        let named = items.iter().filter(|it| matches!(it, At::Index(_) | At::Slice { .. })).count();
        let rest = self.rank().checked_sub(named).ok_or_else(|| {
            let reason = format!("{named} indices of {} dims", self.rank());
            super::record::fail("an index", reason)
        })?;
        let mut view = self.clone();
        let mut dim = 0i64;
        for item in items {
            match item {
                At::Index(index) => view = view.select(dim, index)?,
                At::Slice { start: None, end: None, step: 1 } => dim += 1,
                At::Slice { start, end, step } => {
                    let args = [dim.into(), start.into(), end.into(), Arg::Int(step)];
                    view = view.call("slice", args)?;
                    dim += 1;
                }
                At::NewDim => {
                    view = view.unsqueeze(dim)?;
                    dim += 1;
                }
                At::Ellipsis => dim += rest as i64,
            }
        }
        Ok(view)
    }
}
