//! Matrix multiplication operators: `mm`, `bmm`, `addmm` and related ones.
//!
//! Every operator describes its call as [`BatchedMatmul`]: a batch of multiplications of strided
//! matrices with an optional addend. The element type determines the algorithm: `fast.rs` runs
//! `f32`, `f16` and `bf16` on the GEMM engine; `plain.rs` is a loop for every type and layout,
//! without workspace.

mod addbmm;
mod complex;
mod experts;
mod fast;
mod hadamard;
mod int_mm;
mod operators;
mod plain;
#[cfg(test)]
mod tests;
mod trilinear;

pub use addbmm::*;
pub use experts::*;
pub use hadamard::*;
pub use int_mm::*;
pub use operators::*;
pub use trilinear::*;

use crate::machine;
use crate::number::{Compute, ComputeType, unsupported};
use crate::types;
use crate::walk::Steps;
use torchlet_core::layout::MAX_RANK;
use torchlet_core::rules::matmul::MatmulShape;
use torchlet_core::{Invoke, KernelError, Plan, Prepare, Scalar, ScalarType, TensorInfo};

/// A compute type with multiply-add; integer overflow wraps.
pub(crate) trait Ring: Compute {
    /// `self + a * b`
    #[must_use]
    fn mul_add(self, a: Self, b: Self) -> Self;
}

impl Ring for f32 {
    #[inline(always)]
    fn mul_add(self, a: Self, b: Self) -> Self {
        self + a * b
    }
}

impl Ring for f64 {
    #[inline(always)]
    fn mul_add(self, a: Self, b: Self) -> Self {
        self + a * b
    }
}

impl Ring for i64 {
    #[inline(always)]
    fn mul_add(self, a: Self, b: Self) -> Self {
        self.wrapping_add(a.wrapping_mul(b))
    }
}

/// Layout of a matrix: element (i, j) is at `start + i * row + j * col`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MatrixLayout {
    start: usize,
    row: usize,
    col: usize,
}

impl MatrixLayout {
    /// Layout of the last two dims of a tensor. A vector is a single row.
    fn last_two(info: &TensorInfo) -> Self {
        let strides = info.strides();
        let mut last = strides.iter().rev().copied();
        let (col, row) = (last.next().unwrap_or(0), last.next().unwrap_or(0));
        MatrixLayout { start: 0, row, col }
    }

    fn transposed(self) -> Self {
        MatrixLayout { row: self.col, col: self.row, ..self }
    }
}

/// Batch dims, with the strides of left operand, right operand and result.
#[derive(Debug, Clone, Copy, Default)]
struct Batch {
    rank: usize,
    sizes: [usize; MAX_RANK],
    steps: [[usize; 3]; MAX_RANK],
}

impl Batch {
    fn push(&mut self, size: usize, steps: [usize; 3]) {
        if let (Some(slot), Some(own)) =
            (self.sizes.get_mut(self.rank), self.steps.get_mut(self.rank))
        {
            *slot = size;
            *own = steps;
            self.rank += 1;
        }
    }

    fn count(&self) -> usize {
        self.sizes.iter().take(self.rank).product()
    }

    /// Offsets of the matrices at a batch index.
    fn starts(&self, mut index: usize) -> [usize; 3] {
        let mut starts = [0; 3];
        for (&size, steps) in self.sizes.iter().zip(&self.steps).take(self.rank).rev() {
            for (start, step) in starts.iter_mut().zip(steps) {
                *start += index % size.max(1) * step;
            }
            index /= size.max(1);
        }
        starts
    }
}

/// Addend of the results: `beta * addend`, broadcast to the output's shape.
#[derive(Clone, Copy)]
struct Addend {
    arg: usize,
    beta: Scalar,
    /// Strides over the output's dims.
    steps: Steps,
}

/// `out = alpha * a * b + beta * addend`, for each matrix of a batch.
#[derive(Clone)]
struct BatchedMatmul {
    /// Argument indices of left operand, right operand and result.
    args: [usize; 3],
    product: MatmulShape,
    /// Layouts of the first matrix of left operand, right operand and result.
    layouts: [MatrixLayout; 3],
    batch: Batch,
    alpha: Scalar,
    addend: Option<Addend>,
    /// The output, which determines the strides of the addend.
    out: TensorInfo,
}

impl BatchedMatmul {
    /// Layouts of the matrices at a batch index.
    fn layouts(&self, index: usize) -> [MatrixLayout; 3] {
        let starts = self.batch.starts(index);
        let mut layouts = self.layouts;
        for (layout, start) in layouts.iter_mut().zip(starts) {
            layout.start += start;
        }
        layouts
    }

    /// The addend at a batch index. Only for outputs with at most one batch dim.
    fn addend_layout(&self, index: usize) -> Option<(Addend, MatrixLayout)> {
        let addend = self.addend?;
        let mut last = self.out.rank();
        let mut step = || {
            last = last.checked_sub(1)?;
            usize::try_from(*addend.steps.strides.get(last)?).ok()
        };
        let col = step().unwrap_or(0);
        // A vector output is a row or a column, so both strides are valid.
        let row = if self.out.rank() == 1 { col } else { step().unwrap_or(0) };
        let start = step().unwrap_or(0) * index;
        Some((addend, MatrixLayout { start, row, col }))
    }
}

/// Checks the arguments that all matrix multiplications have, and selects the algorithm.
///
/// `tensors` are all tensor arguments, which must have the same type. `right` is the layout of the
/// right operand, and whether a constant one is packed when the method is loaded.
fn prepare(
    ctx: &mut Prepare,
    tensors: &[usize],
    product: MatmulShape,
    right: Option<(MatrixLayout, bool)>,
    invoke: torchlet_core::InvokeFn,
    pack: torchlet_core::PackFn,
) -> Result<Plan, KernelError> {
    let mut scalar_type = None;
    for &arg in tensors {
        let found = ctx.info(arg)?.scalar_type;
        let known = ComputeType::of(found).is_some() && found != ScalarType::Bool;
        if !known || scalar_type.is_some_and(|first| first != found) {
            return Err(unsupported(arg, found));
        }
        scalar_type = Some(found);
    }
    let scalar_type = scalar_type.unwrap_or(ScalarType::Float);
    let tier = machine::tier(ctx);
    let scratch = fast::scratch_bytes(scalar_type, &product, tier, ctx.threads());
    let mut plan = Plan::new(invoke).with_scratch_up_to(scratch);
    if let Some((layout, true)) = right
        && let Some(bytes) = fast::packed_bytes(scalar_type, &product, layout, tier)
    {
        plan = plan.with_packed(bytes, pack);
    }
    Ok(plan)
}

/// Computes the matrix multiplications.
fn run(ctx: &mut Invoke, matmuls: &BatchedMatmul) -> Result<(), KernelError> {
    if matmuls.out.numel() == 0 {
        // Returns early, because a batch of empty results can be arbitrarily large.
        return Ok(());
    }
    match matmuls.out.scalar_type {
        ScalarType::Float if types::has(ScalarType::Float) => fast::run_f32(ctx, matmuls),
        ScalarType::Half if types::has(ScalarType::Half) => {
            fast::run_narrow::<half::f16>(ctx, matmuls)
        }
        ScalarType::BFloat16 if types::has(ScalarType::BFloat16) => {
            fast::run_narrow::<half::bf16>(ctx, matmuls)
        }
        ScalarType::Double => plain::run::<f64>(ctx, matmuls),
        _ => plain::run::<i64>(ctx, matmuls),
    }
}
