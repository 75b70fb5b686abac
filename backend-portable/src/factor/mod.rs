//! Matrix factorisations and operators based on them: determinants, inverses, linear equations,
//! eigenvalues, singular values.
//!
//! The last two dims are a matrix, the others are batch dims. Everything is computed in
//! `f64`, in plain loops: in networks such matrices are small. As in LAPACK, factorisations use
//! partial pivoting, and Householder reflections choose the sign without cancellation. Unlike in
//! LAPACK, elements whose squares overflow or underflow `f64` (above 1e154 or below 1e-154) give
//! wrong factors.

mod eigen;
mod exponential;
mod from_factors;
mod indefinite;
mod lu;
mod orthogonal;
mod pseudo;
mod symmetric;
mod triangular;

pub use eigen::*;
pub use exponential::*;
pub use from_factors::*;
pub use indefinite::*;
pub use lu::*;
pub use orthogonal::*;
pub use pseudo::*;
pub use symmetric::*;
pub use triangular::*;

use crate::compute::split::is_cancelled;
use crate::number::{load, store, unsupported};
use crate::scratch;
use torchlet_core::layout::Sizes;
use torchlet_core::rules::broadcast;
use torchlet_core::{
    Arguments, KernelError, Parallel, Prepare, ScalarType, TensorInfo, TensorMut, TensorRef,
};

/// Shape of a batch of matrices.
#[derive(Debug, Clone, Copy)]
struct Shape {
    rows: usize,
    cols: usize,
    /// Elements of one matrix.
    numel: usize,
    /// Number of matrices.
    count: usize,
}

impl Shape {
    fn of(info: &TensorInfo, arg: usize) -> Result<Self, KernelError> {
        let rank = info.rank();
        if rank < 2 {
            return Err(KernelError::rank(arg, rank));
        }
        if !matches!(info.scalar_type, ScalarType::Float | ScalarType::Double) {
            return Err(unsupported(arg, info.scalar_type));
        }
        let (rows, cols) = (info.size(rank - 2), info.size(rank - 1));
        let large = KernelError::argument(arg, "shape is too large");
        let numel = rows.checked_mul(cols).ok_or(large.clone())?;
        let mut batch = (0..rank - 2).map(|dim| info.size(dim));
        let count = batch.try_fold(1usize, |count, size| count.checked_mul(size)).ok_or(large)?;
        Ok(Shape { rows, cols, numel, count })
    }

    /// Number of non-empty matrices; the batch of empty ones can be arbitrarily large.
    fn non_empty(&self) -> usize {
        if self.numel > 0 { self.count } else { 0 }
    }

    fn square(args: &Arguments, arg: usize) -> Result<Self, KernelError> {
        let shape = Shape::of(&args.info(arg)?, arg)?;
        if shape.rows != shape.cols {
            return Err(KernelError::argument(arg, "expected square matrices"));
        }
        Ok(shape)
    }
}

/// Batch sizes of a tensor of matrices.
fn batch_of(info: &TensorInfo) -> &[i32] {
    info.sizes.get(..info.rank().saturating_sub(2)).unwrap_or_default()
}

/// The batch sizes of a tensor of matrices, followed by `last`.
fn with_batch(info: &TensorInfo, last: &[usize]) -> Result<Sizes, KernelError> {
    append_sizes(batch_of(info), last)
}

/// Appends `last` to batch sizes.
fn append_sizes(batch: &[i32], last: &[usize]) -> Result<Sizes, KernelError> {
    let large = KernelError::argument(0, "shape is too large");
    let mut sizes = Sizes::new();
    sizes.extend_from_slice(batch).map_err(|_| large.clone())?;
    for &size in last {
        let size = i32::try_from(size).map_err(|_| large.clone())?;
        sizes.push(size).map_err(|_| large.clone())?;
    }
    Ok(sizes)
}

/// Resizes an output to the batch sizes of argument 0 followed by `last`, and checks its element
/// type.
fn resize(
    ctx: &mut Prepare,
    out: usize,
    last: &[usize],
    scalar_type: ScalarType,
) -> Result<(), KernelError> {
    let sizes = with_batch(&ctx.info(0)?, last)?;
    resize_to(ctx, out, &sizes, scalar_type)
}

/// Resizes an output, and checks its element type.
fn resize_to(
    ctx: &mut Prepare,
    out: usize,
    sizes: &[i32],
    scalar_type: ScalarType,
) -> Result<(), KernelError> {
    ctx.resize(out, sizes)?;
    let found = ctx.info(out)?.scalar_type;
    if found == scalar_type { Ok(()) } else { Err(unsupported(out, found)) }
}

/// Sizes of `rows` by `cols` matrices in the broadcast batch of two tensors; `None` if the batches
/// do not broadcast.
fn broadcast_sizes(
    a: &TensorInfo,
    b: &TensorInfo,
    rows: usize,
    cols: usize,
) -> Result<Option<Sizes>, KernelError> {
    let batch = broadcast(batch_of(a), batch_of(b));
    batch.map(|batch| append_sizes(&batch, &[rows, cols])).transpose()
}

/// Bytes of scratch memory for several arrays of `f64` values. Each is given as two factors of its
/// length.
fn f64_bytes(parts: &[[usize; 2]]) -> Result<usize, KernelError> {
    let count = parts.iter().try_fold(0usize, |count, [rows, cols]| {
        rows.checked_mul(*cols).and_then(|part| count.checked_add(part))
    });
    scratch::bytes_for(count.unwrap_or(usize::MAX), size_of::<f64>())
}

/// Offset of the first element of item `index` of a batch: a matrix, vector or scalar, whose rank
/// is `inner`.
fn start(info: &TensorInfo, index: usize, inner: usize) -> isize {
    let batch = info.sizes.get(..info.rank().saturating_sub(inner)).unwrap_or_default();
    start_in(info, batch, index, inner)
}

/// Like [`start`], for an index into a batch shape that the tensor is broadcast to.
fn start_in(info: &TensorInfo, batch: &[i32], index: usize, inner: usize) -> isize {
    let (strides, own) = (info.strides(), info.rank().saturating_sub(inner));
    let (mut rest, mut at) = (index, 0);
    for (from_last, size) in batch.iter().rev().enumerate() {
        let size = usize::try_from(*size).unwrap_or(0).max(1);
        let dim = own.checked_sub(from_last + 1).filter(|dim| info.size(*dim) != 1);
        let stride = dim.and_then(|dim| strides.get(dim)).copied().unwrap_or(0);
        at += rest % size * stride;
        rest /= size;
    }
    at as isize
}

/// Strides of rows and of columns.
fn steps(info: &TensorInfo) -> (isize, isize) {
    let strides = info.strides();
    let mut last = strides.iter().rev().map(|&stride| stride as isize);
    let (col, row) = (last.next().unwrap_or(0), last.next().unwrap_or(0));
    (row, col)
}

/// Reads matrix `index` in row-major order.
fn read(tensor: &TensorRef, index: usize, cols: usize, out: &mut [f64]) {
    read_in(tensor, batch_of(tensor.info()), index, cols, out);
}

/// Like [`read`], for an index into a batch shape that the tensor is broadcast to.
fn read_in(tensor: &TensorRef, batch: &[i32], index: usize, cols: usize, out: &mut [f64]) {
    let (first, (row, col)) = (start_in(tensor.info(), batch, index, 2), steps(tensor.info()));
    for (i, values) in out.chunks_exact_mut(cols.max(1)).enumerate() {
        load(tensor.scalar_type, tensor.bytes(), first + row * i as isize, col, values);
    }
}

/// Writes matrix `index` from row-major values.
fn write(tensor: &mut TensorMut, index: usize, cols: usize, values: &[f64]) {
    let steps = steps(tensor.info());
    write_along(tensor, index, steps, cols, values);
}

/// Writes matrix `index` from the row-major values of its transpose.
fn write_transposed(tensor: &mut TensorMut, index: usize, cols: usize, values: &[f64]) {
    let (row, col) = steps(tensor.info());
    write_along(tensor, index, (col, row), cols, values);
}

fn write_along(
    tensor: &mut TensorMut,
    index: usize,
    (row, col): (isize, isize),
    cols: usize,
    values: &[f64],
) {
    let first = start(tensor.info(), index, 2);
    for (i, values) in values.chunks_exact(cols.max(1)).enumerate() {
        for (j, value) in values.iter().enumerate() {
            put(tensor, first + row * i as isize + col * j as isize, *value);
        }
    }
}

/// Writes vector `index`.
fn write_vector(tensor: &mut TensorMut, index: usize, values: &[f64]) {
    let first = start(tensor.info(), index, 1);
    let step = tensor.info().strides().last().map_or(1, |&stride| stride as isize);
    for (i, value) in values.iter().enumerate() {
        put(tensor, first + step * i as isize, *value);
    }
}

/// Writes scalar `index` of a tensor with one element for each matrix.
fn write_scalar(tensor: &mut TensorMut, index: usize, value: f64) {
    let first = start(tensor.info(), index, 0);
    put(tensor, first, value);
}

fn put(tensor: &mut TensorMut, at: isize, value: f64) {
    let (scalar_type, size) = (tensor.scalar_type, tensor.scalar_type.size());
    let start = usize::try_from(at).ok().and_then(|at| at.checked_mul(size));
    let bytes = start.and_then(|start| tensor.bytes_mut().get_mut(start..start + size));
    if let Some(bytes) = bytes {
        store(scalar_type, bytes, &[value]);
    }
}

/// A row-major matrix.
struct Matrix<'a> {
    cols: usize,
    data: &'a mut [f64],
    parallel: &'a dyn Parallel,
}

impl Matrix<'_> {
    #[inline(always)]
    fn at(&self, row: usize, col: usize) -> f64 {
        self.data.get(row * self.cols + col).copied().unwrap_or(0.0)
    }

    #[inline(always)]
    fn set(&mut self, row: usize, col: usize, value: f64) {
        if let Some(slot) = self.data.get_mut(row * self.cols + col) {
            *slot = value;
        }
    }

    /// Whether the run was cancelled, so that the results are not needed. Factorisations check in
    /// their outermost loops.
    fn is_cancelled(&self) -> bool {
        is_cancelled(self.parallel)
    }

    fn rows(&self) -> usize {
        self.data.len().checked_div(self.cols).unwrap_or(0)
    }

    fn swap_rows(&mut self, a: usize, b: usize) {
        for col in 0..self.cols {
            let (above, below) = (self.at(a, col), self.at(b, col));
            self.set(a, col, below);
            self.set(b, col, above);
        }
    }

    /// Transposes a square matrix in place.
    fn transpose(&mut self) {
        for row in 0..self.cols {
            for col in 0..row {
                let (below, above) = (self.at(row, col), self.at(col, row));
                self.set(row, col, above);
                self.set(col, row, below);
            }
        }
    }

    /// Sets the identity matrix.
    fn identity(&mut self) {
        self.data.fill(0.0);
        for i in 0..self.rows().min(self.cols) {
            self.set(i, i, 1.0);
        }
    }
}
