//! Products of matrices in single precision: `C = alpha * A * B + beta * C + bias`, clamped.
//!
//! A register tile (see `kernel.rs`) keeps up to 8 x 3 vectors of C while it runs over a block of
//! K. Around it, in this order: rows of C in blocks whose part of A stays in the second-level
//! cache, blocks of K, panels of columns of B, and the tiles of the panel. A is read in place when
//! its rows are contiguous: eight row streams cost nothing, so weights stored `[out, in]` need no
//! packing on the left. B is copied panel by panel when its rows are not contiguous or so far apart
//! that the copy pays for itself, or packed once by [`PackedRhs::pack`].
//!
//! Products with at most four rows or columns whose operands are both contiguous in k (a linear
//! layer on one token) take another path, `dot.rs`: each weight is used once, so only the speed of
//! reading them counts.
//!
//! Workspace: [`gemm_workspace_len`] says what each thread's panels need. With less the product is
//! still right: fewer threads take part, and with none at all it falls back to plain loops where it
//! has to.

mod dot;
mod driver;
mod kernel;
pub(crate) mod operand;
pub(crate) mod patches;
#[cfg(test)]
mod tests;

pub(crate) use driver::{GRAIN, Problem, Target, part, run as run_problem, slot_len};
pub(crate) use kernel::{Tile, ahead, run as run_tile};

use super::simd::Tier;
use super::storage::Stored;
use crate::parallel::Parallel;
use operand::{Lhs, Operand, Rhs};

/// What every computation needs to know about the machine.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The instruction set.
    pub tier: Tier,
    /// The threads.
    pub parallel: &'a dyn Parallel,
}

/// A matrix to read: element (i, j) is at `i * row_stride + j * col_stride`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a, E> {
    data: &'a [E],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a, E: Stored> Matrix<'a, E> {
    /// `None` when an element would lie outside the data.
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

    /// Rows one after the other.
    pub fn row_major(data: &'a [E], rows: usize, cols: usize) -> Option<Self> {
        Self::new(data, rows, cols, cols, 1)
    }

    /// The same elements with rows and columns exchanged.
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

/// A matrix to write: element (i, j) is at `i * row_stride + j * col_stride`, each at a place of
/// its own.
#[derive(Debug)]
pub struct MatrixMut<'a> {
    data: &'a mut [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a> MatrixMut<'a> {
    /// `None` when an element would lie outside the data, or two at the same place.
    pub fn new(
        data: &'a mut [f32],
        rows: usize,
        cols: usize,
        row_stride: usize,
        col_stride: usize,
    ) -> Option<Self> {
        if rows > 0 && cols > 0 {
            let inside = last(rows, cols, row_stride, col_stride)? < data.len();
            // Both dimensions move, and a step in one goes beyond all of the other.
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

    /// Rows one after the other.
    pub fn row_major(data: &'a mut [f32], rows: usize, cols: usize) -> Option<Self> {
        Self::new(data, rows, cols, cols, 1)
    }
}

/// A vector added to the result.
#[derive(Clone, Copy, Debug, Default)]
pub enum Bias<'a> {
    /// Nothing is added.
    #[default]
    None,
    /// Element i is added to row i.
    Rows(&'a [f32]),
    /// Element j is added to column j.
    Cols(&'a [f32]),
}

/// What happens to the sums before they are stored: `clamp(alpha * sum + bias + beta * C, min,
/// max)`.
#[derive(Clone, Copy, Debug)]
pub struct Epilogue<'a> {
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of the previous contents of C, which are not read when it is zero.
    pub beta: f32,
    /// Added to rows or columns.
    pub bias: Bias<'a>,
    /// Lower limit: 0 for relu, minus infinity for none. NaN passes through.
    pub min: f32,
    /// Upper limit: 6 for relu6, infinity for none.
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

/// `x` limited to `lo..=hi`; NaN stays NaN.
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

/// The operands do not fit each other or the bias.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShapeMismatch;

impl core::fmt::Display for ShapeMismatch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("operand shapes do not fit each other")
    }
}

impl core::error::Error for ShapeMismatch {}

/// A right operand in the layout of one tier's register tile.
#[derive(Clone, Copy, Debug)]
pub struct PackedRhs<'a, E = f32> {
    data: &'a [E],
    tier: Tier,
    k: usize,
    n: usize,
}

impl<'a> PackedRhs<'a> {
    /// Elements that a `k x n` operand takes; `None` when that is more than memory.
    pub fn len(tier: Tier, k: usize, n: usize) -> Option<usize> {
        operand::packed_len(tier, n, k)
    }

    /// Packs `b` into `storage`, which must have [`PackedRhs::len`] elements at least.
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
    /// As [`PackedRhs::pack`], in the type that the elements have. They are widened when they are
    /// used, panel by panel.
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

    /// Takes storage that an earlier call of [`PackedRhs::pack`] or [`PackedRhs::pack_as_is`] with
    /// the same tier and shape has filled.
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

/// Floats of workspace with which the product `m x k` by `k x n` runs at full speed on `threads`
/// threads, whatever the strides and element types; `None` when that is more than memory.
pub fn gemm_workspace_len(
    tier: Tier,
    threads: usize,
    m: usize,
    n: usize,
    k: usize,
) -> Option<usize> {
    driver::slot_len_any(tier, m, n, k)?.checked_mul(threads.max(1))
}

/// `c = clamp(alpha * a * b + bias + beta * c)`
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

/// As [`gemm`], with a right operand that was packed for the same tier.
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
    // SAFETY: `MatrixMut` was built over elements that exist, all different, and is borrowed for
    // this call.
    unsafe {
        let target = Target::new(c.data.as_mut_ptr(), c.row_stride, c.col_stride);
        driver::run(context, &problem, target, workspace);
    }
    Ok(())
}

/// Length of the blocks of k: at most what keeps a panel of B in the nearest caches, all blocks
/// about equal, and a multiple of `step`.
pub(crate) const fn k_block(lanes: usize, k: usize, step: usize) -> usize {
    let most = if lanes > 1 { 512 } else { 128 };
    let (k, step) = (if k == 0 { 1 } else { k }, if step == 0 { 1 } else { step });
    let even = k.div_ceil(k.div_ceil(most));
    match even.div_ceil(step).checked_mul(step) {
        Some(block) => block,
        None => step,
    }
}
