//! Single-precision GEMM: `C = alpha * A * B + beta * C + bias`, clamped.
//!
//! A register tile (see `kernel.rs`) keeps up to 8 x 3 vectors of C while it runs over a block of
//! k. The loops around it are, from the outside: blocks of rows of C whose part of A stays in the
//! L2 cache, blocks of k, panels of columns of B, and the tiles of a panel.
//!
//! A is read in place if its rows are contiguous: eight concurrent row streams cost nothing extra,
//! so weights stored as `[out, in]` need no packing as the left operand. B is packed panel by panel
//! if its rows are not contiguous, or if their stride is so large that the copy pays off.
//! [`PackedRhs::pack`] packs it once ahead of time.
//!
//! GEMMs with at most four rows or columns whose operands are both contiguous in k (a linear layer
//! on one token) use `dot.rs`: each weight is used once, so memory bandwidth is the bound.
//!
//! [`gemm_workspace_len`] returns the workspace for all threads. With less workspace the result is
//! the same, but fewer threads take part; without any, plain loops replace the tiles where packing
//! is required.

mod dot;
mod driver;
mod kernel;
pub(crate) mod operand;
pub(crate) mod patches;
#[cfg(test)]
mod tests;

pub(crate) use driver::{GRAIN, Problem, Target, part, run as run_problem, slot_len, sum_block};
pub(crate) use kernel::{Tile, next_panel_part, run as run_tile};

use super::simd::Tier;
use super::storage::Stored;
use crate::parallel::Parallel;
use operand::{Lhs, Operand, Rhs};

/// Execution resources of a computation.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The instruction set.
    pub tier: Tier,
    /// The thread pool.
    pub parallel: &'a dyn Parallel,
}

/// Read-only strided matrix: element (i, j) is at `i * row_stride + j * col_stride`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a, E> {
    data: &'a [E],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a, E: Stored> Matrix<'a, E> {
    /// Returns `None` if an element would lie outside the data.
    pub fn new(
        data: &'a [E],
        rows: usize,
        cols: usize,
        row_stride: usize,
        col_stride: usize,
    ) -> Option<Self> {
        (rows == 0 || cols == 0 || last(rows, cols, row_stride, col_stride)? < data.len())
            .then_some(Matrix { data, rows, cols, row_stride, col_stride })
    }

    /// A contiguous row-major matrix.
    pub fn row_major(data: &'a [E], rows: usize, cols: usize) -> Option<Self> {
        Self::new(data, rows, cols, cols, 1)
    }

    /// The transposed view.
    #[must_use]
    pub fn transposed(self) -> Self {
        Matrix {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }

    fn operand(&self, other: usize, k: usize) -> Operand<'a, E> {
        Operand { data: self.data, other, inner_len: usize::MAX, outer: 0, inner: k }
    }
}

fn last(rows: usize, cols: usize, row_stride: usize, col_stride: usize) -> Option<usize> {
    (rows - 1).checked_mul(row_stride)?.checked_add((cols - 1).checked_mul(col_stride)?)
}

/// Mutable strided matrix: element (i, j) is at `i * row_stride + j * col_stride`, and no two
/// elements overlap.
#[derive(Debug)]
pub struct MatrixMut<'a> {
    data: &'a mut [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a> MatrixMut<'a> {
    /// Returns `None` if an element would lie outside the data, or two would overlap.
    pub fn new(
        data: &'a mut [f32],
        rows: usize,
        cols: usize,
        row_stride: usize,
        col_stride: usize,
    ) -> Option<Self> {
        if rows > 0 && cols > 0 {
            let inside = last(rows, cols, row_stride, col_stride)? < data.len();
            // Sufficient for distinct offsets: the stride of one dim exceeds the span of the
            // other.
            let by_rows = (cols == 1 || col_stride > 0)
                && (rows == 1 || row_stride > (cols - 1).checked_mul(col_stride)?);
            let by_cols = (rows == 1 || row_stride > 0)
                && (cols == 1 || col_stride > (rows - 1).checked_mul(row_stride)?);
            if !inside || !(by_rows || by_cols) {
                return None;
            }
        }
        Some(MatrixMut { data, rows, cols, row_stride, col_stride })
    }

    /// A contiguous row-major matrix.
    pub fn row_major(data: &'a mut [f32], rows: usize, cols: usize) -> Option<Self> {
        Self::new(data, rows, cols, cols, 1)
    }
}

/// Bias vector of a GEMM.
#[derive(Clone, Copy, Debug, Default)]
pub enum Bias<'a> {
    /// No bias.
    #[default]
    None,
    /// Element i is added to row i.
    Rows(&'a [f32]),
    /// Element j is added to column j.
    Cols(&'a [f32]),
}

/// Epilogue of a GEMM: `clamp(alpha * sum + bias + beta * C, min, max)`.
#[derive(Clone, Copy, Debug)]
pub struct Epilogue<'a> {
    /// Scale of `A * B`.
    pub alpha: f32,
    /// Scale of the previous contents of C, which are not read if it is zero.
    pub beta: f32,
    /// Bias of rows or columns.
    pub bias: Bias<'a>,
    /// Lower bound: 0 for ReLU, minus infinity if unbounded. NaN passes through.
    pub min: f32,
    /// Upper bound: 6 for ReLU6, infinity if unbounded.
    pub max: f32,
}

impl Default for Epilogue<'_> {
    fn default() -> Self {
        Epilogue {
            alpha: 1.0,
            beta: 0.0,
            bias: Bias::None,
            min: f32::NEG_INFINITY,
            max: f32::INFINITY,
        }
    }
}

/// `x` clamped to `lo..=hi`; NaN stays NaN.
#[inline(always)]
pub(crate) fn limit(x: f32, lo: f32, hi: f32) -> f32 {
    if x < lo {
        lo
    } else if x > hi {
        hi
    } else {
        x
    }
}

/// The shapes of operands and bias do not match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShapeMismatch;

impl core::fmt::Display for ShapeMismatch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("operand shapes do not match")
    }
}

impl core::error::Error for ShapeMismatch {}

/// A right operand packed for the register tile of a tier.
#[derive(Clone, Copy, Debug)]
pub struct PackedRhs<'a, E = f32> {
    data: &'a [E],
    tier: Tier,
    k: usize,
    n: usize,
}

impl<'a> PackedRhs<'a> {
    /// Packed length of a `k x n` operand in elements; `None` if it exceeds the address space.
    pub fn len(tier: Tier, k: usize, n: usize) -> Option<usize> {
        operand::packed_len(tier, n, k)
    }

    /// Packs `b` into `storage`.
    ///
    /// # Errors
    /// If `storage` is shorter than [`PackedRhs::len`].
    pub fn pack<E: Stored>(
        context: Context<'_>,
        b: Matrix<'_, E>,
        storage: &'a mut [f32],
    ) -> Result<Self, ShapeMismatch> {
        let tier = context.tier;
        let len = Self::len(tier, b.rows, b.cols).ok_or(ShapeMismatch)?;
        let data = storage.get_mut(..len).ok_or(ShapeMismatch)?;
        operand::pack_rhs(context, b.cols, b.rows, &b.operand(b.col_stride, b.row_stride), data);
        Ok(PackedRhs { data, tier, k: b.rows, n: b.cols })
    }
}

impl<'a, E: Stored> PackedRhs<'a, E> {
    /// Like [`PackedRhs::pack`], but keeps the element type. Elements are widened when they are
    /// used, panel by panel.
    ///
    /// # Errors
    /// If `storage` is shorter than [`PackedRhs::len`].
    pub fn pack_as_is(
        context: Context<'_>,
        b: Matrix<'_, E>,
        storage: &'a mut [E],
    ) -> Result<Self, ShapeMismatch> {
        let tier = context.tier;
        let len = PackedRhs::len(tier, b.rows, b.cols).ok_or(ShapeMismatch)?;
        let data = storage.get_mut(..len).ok_or(ShapeMismatch)?;
        let operand = b.operand(b.col_stride, b.row_stride);
        operand::pack_rhs_as_is(context, b.cols, b.rows, &operand, data);
        Ok(PackedRhs { data, tier, k: b.rows, n: b.cols })
    }

    /// Wraps storage that an earlier call of [`PackedRhs::pack`] or [`PackedRhs::pack_as_is`]
    /// filled for the same tier and shape.
    ///
    /// # Errors
    /// If `data` is shorter than [`PackedRhs::len`].
    pub fn from_packed(
        tier: Tier,
        k: usize,
        n: usize,
        data: &'a [E],
    ) -> Result<Self, ShapeMismatch> {
        let len = PackedRhs::len(tier, k, n);
        let data = len.and_then(|len| data.get(..len)).ok_or(ShapeMismatch)?;
        Ok(PackedRhs { data, tier, k, n })
    }
}

/// Floats of workspace for an `m x k` by `k x n` GEMM at full speed on `threads` threads, for all
/// strides and element types; `None` if it exceeds the address space.
pub fn gemm_workspace_len(
    tier: Tier,
    threads: usize,
    m: usize,
    n: usize,
    k: usize,
) -> Option<usize> {
    driver::slot_len_any(tier, m, n, k)?.checked_mul(threads.max(1))
}

/// Number of terms that a GEMM of row-major matrices, the right one transposed, adds to each other
/// before their sum is added to the result.
pub(crate) fn linear_sum_block(tier: Tier, m: usize, n: usize, k: usize) -> usize {
    let operand =
        || Operand::<f32> { data: &[], other: k, inner_len: usize::MAX, outer: 0, inner: 1 };
    let (lhs, rhs) = (Lhs::Strided(operand()), Rhs::Strided(operand()));
    sum_block(tier, &Problem { m, n, k, k_step: 1, lhs, rhs, epilogue: Epilogue::default() })
}

/// Computes `c = clamp(alpha * a * b + bias + beta * c)`.
///
/// # Errors
/// If the shapes do not match.
pub fn gemm<A: Stored, B: Stored>(
    context: Context<'_>,
    a: Matrix<'_, A>,
    b: Matrix<'_, B>,
    c: MatrixMut<'_>,
    epilogue: &Epilogue<'_>,
    workspace: &mut [f32],
) -> Result<(), ShapeMismatch> {
    if b.rows != a.cols || b.cols != c.cols {
        return Err(ShapeMismatch);
    }
    let rhs = Rhs::Strided(b.operand(b.col_stride, b.row_stride));
    run(context, a, rhs, c, epilogue, workspace)
}

/// Like [`gemm`], with a right operand that was packed for the same tier.
///
/// # Errors
/// If the shapes or the tiers do not match.
pub fn gemm_packed<A: Stored, B: Stored>(
    context: Context<'_>,
    a: Matrix<'_, A>,
    b: PackedRhs<'_, B>,
    c: MatrixMut<'_>,
    epilogue: &Epilogue<'_>,
    workspace: &mut [f32],
) -> Result<(), ShapeMismatch> {
    if b.k != a.cols || b.n != c.cols || b.tier != context.tier {
        return Err(ShapeMismatch);
    }
    run(context, a, Rhs::Packed(b.data), c, epilogue, workspace)
}

fn run<A: Stored, B: Stored>(
    context: Context<'_>,
    a: Matrix<'_, A>,
    rhs: Rhs<'_, B>,
    c: MatrixMut<'_>,
    epilogue: &Epilogue<'_>,
    workspace: &mut [f32],
) -> Result<(), ShapeMismatch> {
    let fits = match epilogue.bias {
        Bias::None => true,
        Bias::Rows(bias) => bias.len() >= c.rows,
        Bias::Cols(bias) => bias.len() >= c.cols,
    };
    if a.rows != c.rows || !fits {
        return Err(ShapeMismatch);
    }
    let problem = Problem {
        m: c.rows,
        n: c.cols,
        k: a.cols,
        k_step: 1,
        lhs: Lhs::Strided(a.operand(a.row_stride, a.col_stride)),
        rhs,
        epilogue: *epilogue,
    };
    // SAFETY: `MatrixMut::new` checked that all elements exist and are distinct, and `c` is
    // borrowed for this call.
    unsafe {
        let target = Target::new(c.data.as_mut_ptr(), c.row_stride, c.col_stride);
        driver::run(context, &problem, target, workspace);
    }
    Ok(())
}

/// Length of the blocks of k: bounded so that a panel of B stays in the L1 and L2 caches, about
/// equal for all blocks, and a multiple of `step`.
pub(crate) const fn k_block(lanes: usize, k: usize, step: usize) -> usize {
    let max_len = if lanes > 1 { 512 } else { 128 };
    let (k, step) = (if k == 0 { 1 } else { k }, if step == 0 { 1 } else { step });
    let even = k.div_ceil(k.div_ceil(max_len));
    match even.div_ceil(step).checked_mul(step) {
        Some(block) => block,
        None => step,
    }
}
