//! Methods whose arguments or results are lists, and those that change the shape of a tensor.

use super::record::fail;
use super::tensor::{apply, one};
use super::{Arg, Tensor};
use crate::error::Error;
use torchlet_graph::operators::Operator;

/// Results of an operator with two.
fn pair(made: Vec<Tensor>) -> Result<(Tensor, Tensor), Error> {
    let count = made.len();
    match <[Tensor; 2]>::try_from(made) {
        Ok([one, other]) => Ok((one, other)),
        Err(_) => Err(fail("a call", format!("expected two results, found {count}"))),
    }
}

/// A list of dims, which is empty if absent.
fn listed(dims: Arg) -> Arg {
    match dims {
        Arg::None => Arg::Ints(Vec::new()),
        dims => dims,
    }
}

impl Tensor {
    /// Joins tensors over a dim. Records `cat` of PyTorch.
    ///
    /// # Errors
    /// The shapes do not fit.
    pub fn cat<'a>(tensors: impl AsRef<[&'a Tensor]>, dim: i64) -> Result<Tensor, Error> {
        one("cat", apply(None, Operator::CAT, vec![tensors.as_ref().into(), dim.into()])?)
    }

    /// Joins tensors over a new dim. Records `stack` of PyTorch.
    ///
    /// # Errors
    /// The shapes differ.
    pub fn stack<'a>(tensors: impl AsRef<[&'a Tensor]>, dim: i64) -> Result<Tensor, Error> {
        one("stack", apply(None, Operator::STACK, vec![tensors.as_ref().into(), dim.into()])?)
    }

    /// Elements of `input` where the tensor is true, of `other` elsewhere. Records `where` of
    /// PyTorch, a keyword of Rust.
    ///
    /// # Errors
    /// The shapes do not broadcast.
    pub fn where_(&self, input: impl Into<Arg>, other: impl Into<Arg>) -> Result<Tensor, Error> {
        one(
            "where",
            apply(None, Operator::WHERE_SELF, vec![self.into(), input.into(), other.into()])?,
        )
    }

    /// Elements by tensors of indices, one for each dim; `None` selects all of a dim. Records
    /// `index` of PyTorch. Masks are not supported: their results have shapes that are unknown
    /// before they are computed.
    ///
    /// # Errors
    /// The indices do not broadcast.
    pub fn index(&self, indices: &[Option<&Tensor>]) -> Result<Tensor, Error> {
        one("index", apply(None, Operator::INDEX_TENSOR, vec![self.into(), indices.into()])?)
    }

    /// Maximum over dims; `()` means all. Records `amax` of PyTorch.
    ///
    /// # Errors
    /// A dim is out of range.
    pub fn amax(&self, dim: impl Into<Arg>, keepdim: bool) -> Result<Tensor, Error> {
        one(
            "amax",
            apply(None, Operator::AMAX, vec![self.into(), listed(dim.into()), keepdim.into()])?,
        )
    }

    /// Minimum over dims; `()` means all. Records `amin` of PyTorch.
    ///
    /// # Errors
    /// A dim is out of range.
    pub fn amin(&self, dim: impl Into<Arg>, keepdim: bool) -> Result<Tensor, Error> {
        one(
            "amin",
            apply(None, Operator::AMIN, vec![self.into(), listed(dim.into()), keepdim.into()])?,
        )
    }

    /// Maxima of a dim, and their indices. Records `max` of PyTorch.
    ///
    /// # Errors
    /// The dim is out of range.
    pub fn max_dim(&self, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor), Error> {
        pair(apply(None, Operator::MAX_DIM, vec![self.into(), dim.into(), keepdim.into()])?)
    }

    /// Minima of a dim, and their indices. Records `min` of PyTorch.
    ///
    /// # Errors
    /// The dim is out of range.
    pub fn min_dim(&self, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor), Error> {
        pair(apply(None, Operator::MIN_DIM, vec![self.into(), dim.into(), keepdim.into()])?)
    }

    /// Sorts a dim. Returns the elements and their indices. Records `sort` of PyTorch.
    ///
    /// # Errors
    /// The dim is out of range.
    pub fn sort(&self, dim: i64, descending: bool) -> Result<(Tensor, Tensor), Error> {
        pair(apply(None, Operator::SORT, vec![self.into(), dim.into(), descending.into()])?)
    }

    /// The `k` largest elements of a dim, and their indices. Records `topk` of PyTorch.
    ///
    /// # Errors
    /// The dim is out of range, or has fewer elements.
    pub fn topk(&self, k: i64, dim: i64) -> Result<(Tensor, Tensor), Error> {
        pair(apply(None, Operator::TOPK, vec![self.into(), k.into(), dim.into()])?)
    }

    /// Views of parts of a dim: parts of one size, or of the sizes in a list. Records `split` of
    /// PyTorch.
    ///
    /// # Errors
    /// The sizes do not fit the dim.
    pub fn split(&self, sizes: impl Into<Arg>, dim: i64) -> Result<Vec<Tensor>, Error> {
        let sizes = sizes.into();
        let operator = match sizes {
            Arg::Ints(_) => Operator::SPLIT_WITH_SIZES_COPY,
            _ => Operator::SPLIT_COPY_TENSOR,
        };
        apply(None, operator, vec![self.into(), sizes, dim.into()])
    }

    /// Views of about equal parts of a dim. Records `chunk` of PyTorch.
    ///
    /// # Errors
    /// The dim is out of range.
    pub fn chunk(&self, chunks: i64, dim: i64) -> Result<Vec<Tensor>, Error> {
        apply(None, Operator::CHUNK, vec![self.into(), chunks.into(), dim.into()])
    }

    /// Views of all indices of a dim. Records `unbind` of PyTorch.
    ///
    /// # Errors
    /// The dim is out of range.
    pub fn unbind(&self, dim: i64) -> Result<Vec<Tensor>, Error> {
        apply(None, Operator::UNBIND_COPY_INT, vec![self.into(), dim.into()])
    }

    /// Swaps two dims of the tensor in place. Other tensors that share its memory keep their shape.
    ///
    /// # Errors
    /// A dim is out of range.
    pub fn transpose_(&self, dim0: i64, dim1: i64) -> Result<Tensor, Error> {
        self.become_view(Operator::TRANSPOSE_COPY_INT, vec![dim0.into(), dim1.into()])
    }

    /// Transposes the matrix in place, as [`transpose_`](Self::transpose_).
    ///
    /// # Errors
    /// The tensor has more than 2 dims.
    pub fn t_(&self) -> Result<Tensor, Error> {
        self.become_view(Operator::T_COPY, Vec::new())
    }

    /// Inserts a dim of size 1 in place.
    ///
    /// # Errors
    /// The dim is out of range.
    pub fn unsqueeze_(&self, dim: i64) -> Result<Tensor, Error> {
        self.become_view(Operator::UNSQUEEZE_COPY, vec![dim.into()])
    }

    /// Removes dims of size 1 in place.
    ///
    /// # Errors
    /// None that depends on the tensor.
    pub fn squeeze_(&self) -> Result<Tensor, Error> {
        self.become_view(Operator::SQUEEZE_COPY, Vec::new())
    }
}
