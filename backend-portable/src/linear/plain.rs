//! Matrix multiplication in a plain loop: any element type, any layout, no workspace.

use super::{BatchedMatmul, MatrixLayout, Ring};
use crate::compute::split::{chunk_of_work, for_each_chunk_mut};
use crate::number::{load, store};
use torchlet_core::{Invoke, KernelError, Parallel, ScalarType, TensorRef};

/// Columns that are accumulated together, and terms that are converted together.
pub(super) const BLOCK: usize = 32;
/// Minimum multiply-adds for each thread.
pub(super) const GRAIN: usize = 1 << 15;

/// A matrix multiplication computed in `C`.
struct Job<'a, C> {
    scalar_type: ScalarType,
    n: usize,
    k: usize,
    a: &'a [u8],
    a_layout: MatrixLayout,
    b: &'a [u8],
    b_layout: MatrixLayout,
    alpha: C,
    /// Scale, data and layout of the addend.
    addend: Option<(C, &'a [u8], MatrixLayout)>,
}

impl<C: Ring> Job<'_, C> {
    /// Computes columns `j..` of row `i`, as many as `out` has.
    fn block(&self, i: usize, j: usize, out: &mut [C]) {
        out.fill(C::default());
        let read = |bytes: &[u8], start: usize, stride: usize, values: &mut [C]| {
            load(self.scalar_type, bytes, start as isize, stride as isize, values);
        };
        let (mut terms, mut row) = ([C::default(); BLOCK], [C::default(); BLOCK]);
        let row = &mut row[..out.len().min(BLOCK)];
        for first in (0..self.k).step_by(BLOCK) {
            let terms = &mut terms[..BLOCK.min(self.k - first)];
            let a = self.a_layout;
            read(self.a, a.start + i * a.row + first * a.col, a.col, terms);
            for (p, &term) in terms.iter().enumerate() {
                let b = self.b_layout;
                read(self.b, b.start + (first + p) * b.row + j * b.col, b.col, row);
                for (sum, &value) in out.iter_mut().zip(row.iter()) {
                    *sum = sum.mul_add(term, value);
                }
            }
        }
        for sum in out.iter_mut() {
            *sum = C::default().mul_add(self.alpha, *sum);
        }
        if let Some((beta, bytes, layout)) = self.addend {
            read(bytes, layout.start + i * layout.row + j * layout.col, layout.col, row);
            for (sum, &value) in out.iter_mut().zip(row.iter()) {
                *sum = sum.mul_add(beta, value);
            }
        }
    }

    /// Computes contiguous rows of results, starting with row `first`.
    fn rows(&self, first: usize, out: &mut [u8]) {
        let size = self.scalar_type.size();
        let mut sums = [C::default(); BLOCK];
        for (i, row) in out.chunks_mut((self.n * size).max(1)).enumerate() {
            for (block, part) in row.chunks_mut(BLOCK * size).enumerate() {
                let sums = &mut sums[..part.len() / size];
                self.block(first + i, block * BLOCK, sums);
                store(self.scalar_type, part, sums);
            }
        }
    }
}

/// Computes the matrix multiplications in `C`.
pub(super) fn run<C: Ring>(ctx: &mut Invoke, matmuls: &BatchedMatmul) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let [a, b, out] = matmuls.args;
    let (a, b) = (ctx.tensor(a)?, ctx.tensor(b)?);
    let addend = matmuls.addend.map(|addend| ctx.tensor(addend.arg)).transpose()?;
    let out = ctx.out(out)?.into_bytes();
    compute::<C>(ctx.parallel(), matmuls, &a, &b, addend.as_ref(), out);
    Ok(())
}

/// Like [`run`], with the tensors as arguments.
pub(super) fn compute<C: Ring>(
    parallel: &dyn Parallel,
    matmuls: &BatchedMatmul,
    a: &TensorRef,
    b: &TensorRef,
    addend: Option<&TensorRef>,
    out: &mut [u8],
) {
    let product = &matmuls.product;
    let size = matmuls.out.scalar_type.size();
    for index in 0..matmuls.batch.count() {
        let [mut a_layout, mut b_layout, mut c] = matmuls.layouts(index);
        let (mut m, mut n, mut a, mut b) = (product.m, product.n, a.bytes(), b.bytes());
        let mut addend = matmuls
            .addend_layout(index)
            .zip(addend)
            .map(|((add, layout), tensor)| (C::of_scalar(add.beta), tensor.bytes(), layout));
        // Longer rows are faster, and contiguous rows of results can be split among threads.
        if c.row == 1 && (c.col != 1 || n == 1) {
            (a_layout, b_layout) = (b_layout.transposed(), a_layout.transposed());
            (m, n, a, b, c) = (n, m, b, a, c.transposed());
            addend = addend.map(|(beta, bytes, layout)| (beta, bytes, layout.transposed()));
        }
        if m == 0 || n == 0 {
            continue;
        }
        let job = Job {
            scalar_type: matmuls.out.scalar_type,
            n,
            k: product.k,
            a,
            a_layout,
            b,
            b_layout,
            alpha: C::of_scalar(matmuls.alpha),
            addend,
        };
        if (c.col == 1 || n == 1) && (c.row == n || m == 1) {
            let Some(out) = out.get_mut(c.start * size..(c.start + m * n) * size) else { continue };
            let row = n * size;
            let work = n.saturating_mul(product.k);
            let rows = chunk_of_work(parallel, m, work, GRAIN);
            for_each_chunk_mut(parallel, out, rows.saturating_mul(row), &|chunk, out| {
                job.rows(chunk * rows, out);
            });
            continue;
        }
        let mut sums = [C::default(); BLOCK];
        for i in 0..m {
            for first in (0..n).step_by(BLOCK) {
                let sums = &mut sums[..BLOCK.min(n - first)];
                job.block(i, first, sums);
                for (j, sum) in sums.iter().enumerate() {
                    let at = (c.start + i * c.row + (first + j) * c.col) * size;
                    if let Some(out) = out.get_mut(at..at + size) {
                        store(matmuls.out.scalar_type, out, core::slice::from_ref(sum));
                    }
                }
            }
        }
    }
}
