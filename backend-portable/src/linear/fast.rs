//! Matrix multiplication with the GEMM engine: `f32`, and `f16` and `bf16` accumulated in `f32`.

use super::{BatchedMatmul, MatrixLayout, plain};
use crate::compute::gemm::{
    Bias, Context, Epilogue, Matrix, MatrixMut, PackedRhs, ShapeMismatch, gemm, gemm_packed,
    gemm_workspace_len,
};
use crate::compute::simd::Tier;
use crate::compute::split::{Parts, for_each_job};
use crate::compute::storage::Stored;
use crate::number::{Number, elements, elements_mut};
use torchlet_core::rules::matmul::MatmulShape;
use torchlet_core::{Invoke, KernelError, Parallel, ScalarType, Serial, TensorRef};

/// Maximum number of `f32` results that are buffered before they are narrowed.
const MAX_STAGED: usize = 1 << 14;
/// Maximum length of a block of k in the GEMM engine. A shorter k can need as much workspace as a
/// longer one.
const MAX_K_BLOCK: usize = 512;

/// Number of rows of results that are buffered in `f32`.
fn staged_rows(product: &MatmulShape) -> usize {
    (MAX_STAGED / product.n.max(1)).clamp(1, product.m.max(1))
}

/// Scratch bytes for full speed, for all strides.
pub(super) fn scratch_bytes(
    scalar_type: ScalarType,
    product: &MatmulShape,
    tier: Tier,
    threads: usize,
) -> usize {
    let &MatmulShape { m, k, n, .. } = product;
    if m == 0 || n == 0 {
        return 0;
    }
    let workspace = |m: usize, n: usize| {
        let exact = gemm_workspace_len(tier, threads, m, n, k).unwrap_or(0);
        exact.max(gemm_workspace_len(tier, threads, m, n, k.min(MAX_K_BLOCK)).unwrap_or(0))
    };
    let floats = match scalar_type {
        // The strides determine which operand is the left one.
        ScalarType::Float => workspace(m, n).max(workspace(n, m)),
        ScalarType::Half | ScalarType::BFloat16 if tier != Tier::SCALAR => {
            let rows = staged_rows(product);
            workspace(rows, n).saturating_add(rows.saturating_mul(n))
        }
        _ => 0,
    };
    floats.saturating_mul(size_of::<f32>())
}

/// Size of the packed right operand. `None` if packing brings no gain: the scalar tier reads it in
/// place, and so do GEMVs if it is contiguous in k.
pub(super) fn packed_bytes(
    scalar_type: ScalarType,
    product: &MatmulShape,
    layout: MatrixLayout,
    tier: Tier,
) -> Option<usize> {
    if scalar_type != ScalarType::Float || tier == Tier::SCALAR || layout.col != 1 || product.k < 2
    {
        return None;
    }
    PackedRhs::len(tier, product.k, product.n)?.checked_mul(size_of::<f32>()).filter(|&len| len > 0)
}

fn mismatch(arg: usize) -> impl Fn(ShapeMismatch) -> KernelError {
    move |_| short(arg)
}

fn short(arg: usize) -> KernelError {
    KernelError::argument(arg, "internal error: the data is shorter than the shape requires")
}

fn matrix<E: Stored>(
    arg: usize,
    data: &[E],
    layout: MatrixLayout,
    rows: usize,
    cols: usize,
) -> Result<Matrix<'_, E>, KernelError> {
    let data = data.get(layout.start..).unwrap_or(&[]);
    Matrix::new(data, rows, cols, layout.row, layout.col).ok_or(short(arg))
}

/// Packs the right operand.
pub(super) fn pack(
    tensor: &TensorRef,
    arg: usize,
    product: &MatmulShape,
    layout: MatrixLayout,
    parallel: &dyn Parallel,
    packed: &mut [u8],
) -> Result<(), KernelError> {
    let b = matrix(arg, tensor.data::<f32>()?, layout, product.k, product.n)?;
    let context = Context { tier: Tier::detect(), parallel };
    PackedRhs::pack(context, b, elements_mut(packed)).map_err(mismatch(arg))?;
    Ok(())
}

pub(super) fn run_f32(ctx: &mut Invoke, matmuls: &BatchedMatmul) -> Result<(), KernelError> {
    let [a_arg, b_arg, out] = matmuls.args;
    let (a, b) = (ctx.tensor(a_arg)?, ctx.tensor(b_arg)?);
    let addend = matmuls.addend.map(|addend| ctx.tensor(addend.arg)).transpose()?;
    let packed: &[f32] = elements(ctx.packed());
    let workspace: &mut [f32] = elements_mut(ctx.scratch());
    let out = ctx.out(out)?.into_data::<f32>()?;
    let (a, b) = (a.data::<f32>()?, b.data::<f32>()?);
    let addend = addend.as_ref().map(|addend| addend.data::<f32>()).transpose()?;
    let one = One { matmuls, a, b, addend, packed };
    let (count, parallel) = (matmuls.batch.count(), ctx.parallel());
    let MatmulShape { m, n, .. } = matmuls.product;
    let each = m.saturating_mul(n);
    // The batch can run in parallel if the results are contiguous.
    let separate = |index: usize| matmuls.layouts(index)[2].start == index * each;
    let [_, _, c] = matmuls.layouts;
    let dense = (c.col == 1 && (c.row == n || m == 1)) || (c.row == 1 && (c.col == m || n == 1));
    if count >= 2 * parallel.threads() && each > 0 && dense && (0..count).all(separate) {
        let slot = workspace.len() / parallel.threads().max(1);
        let parts = Parts::new(out);
        for_each_job(parallel, count, workspace, slot, &|index, workspace| {
            // SAFETY: each index occurs once, and parts of different indices are `each` elements
            // apart.
            let out = unsafe { parts.part(index * each, each) };
            // All shapes are equal, and the first matrix multiplication would have reported an
            // error.
            let _ = one.compute(&Serial, index, out, workspace);
        });
        return Ok(());
    }
    for index in 0..count {
        let start = matmuls.layouts(index)[2].start;
        one.compute(parallel, index, out.get_mut(start..).unwrap_or_default(), workspace)?;
    }
    Ok(())
}

/// Data of a batch of matrix multiplications.
pub(super) struct One<'a> {
    pub(super) matmuls: &'a BatchedMatmul,
    pub(super) a: &'a [f32],
    pub(super) b: &'a [f32],
    pub(super) addend: Option<&'a [f32]>,
    pub(super) packed: &'a [f32],
}

impl One<'_> {
    /// Computes one matrix multiplication into `out`, which starts with its first element.
    pub(super) fn compute(
        &self,
        parallel: &dyn torchlet_core::Parallel,
        index: usize,
        out: &mut [f32],
        workspace: &mut [f32],
    ) -> Result<(), KernelError> {
        let context = Context { tier: Tier::detect(), parallel };
        let [a_arg, b_arg, out_arg] = self.matmuls.args;
        let MatmulShape { m, k, n, .. } = self.matmuls.product;
        let [a, b, mut c] = self.matmuls.layouts(index);
        c.start = 0;
        let mut epilogue =
            Epilogue { alpha: self.matmuls.alpha.to_f64() as f32, ..Epilogue::default() };
        if let (Some((addend, layout)), Some(data)) =
            (self.matmuls.addend_layout(index), self.addend)
        {
            let data = data.get(layout.start..).unwrap_or(&[]);
            let beta = addend.beta.to_f64() as f32;
            let is_row = layout.row == 0 && (layout.col == 1 || n == 1) && data.len() >= n;
            let is_column = layout.col == 0 && (layout.row == 1 || m == 1) && data.len() >= m;
            if beta == 1.0 && is_row {
                epilogue.bias = Bias::Cols(data);
            } else if beta == 1.0 && is_column {
                epilogue.bias = Bias::Rows(data);
            } else if beta != 0.0 {
                for i in 0..m {
                    for j in 0..n {
                        if let (Some(out), Some(value)) = (
                            out.get_mut(i * c.row + j * c.col),
                            data.get(i * layout.row + j * layout.col),
                        ) {
                            *out = *value;
                        }
                    }
                }
                epilogue.beta = beta;
            }
        }
        let a = matrix(a_arg, self.a, a, m, k)?;
        if !self.packed.is_empty() {
            let b =
                PackedRhs::from_packed(context.tier, k, n, self.packed).map_err(mismatch(b_arg))?;
            let c = MatrixMut::new(out, m, n, c.row, c.col).ok_or(short(out_arg))?;
            return gemm_packed(context, a, b, c, &epilogue, workspace).map_err(mismatch(out_arg));
        }
        let b = matrix(b_arg, self.b, b, k, n)?;
        // The engine writes rows. If the columns of the result are contiguous instead, computes the
        // transposed matrix multiplication.
        let swapped = c.col != 1 && c.row == 1 && n > 1;
        let (a, b, m, n) =
            if swapped { (b.transposed(), a.transposed(), n, m) } else { (a, b, m, n) };
        if swapped {
            c = c.transposed();
            epilogue.bias = match epilogue.bias {
                Bias::None => Bias::None,
                Bias::Rows(bias) => Bias::Cols(bias),
                Bias::Cols(bias) => Bias::Rows(bias),
            };
        }
        let c = MatrixMut::new(out, m, n, c.row, c.col).ok_or(short(out_arg))?;
        gemm(context, a, b, c, &epilogue, workspace).map_err(mismatch(out_arg))
    }
}

/// `f16` or `bf16` matrix multiplication: accumulated in `f32`, and narrowed some rows at a time.
pub(super) fn run_narrow<E: Stored + Number>(
    ctx: &mut Invoke,
    matmuls: &BatchedMatmul,
) -> Result<(), KernelError> {
    let [a_arg, b_arg, out_arg] = matmuls.args;
    let MatmulShape { m, k, n, .. } = matmuls.product;
    let rows = staged_rows(&matmuls.product);
    let (a, b) = (ctx.tensor(a_arg)?, ctx.tensor(b_arg)?);
    let addend = matmuls.addend.map(|addend| ctx.tensor(addend.arg)).transpose()?;
    let scratch: &mut [f32] = elements_mut(ctx.scratch());
    let out = ctx.out(out_arg)?;
    let [.., c] = matmuls.layouts;
    if scratch.len() <= rows.saturating_mul(n) || c.col != 1 && n > 1 {
        plain::compute::<f32>(ctx.parallel(), matmuls, &a, &b, addend.as_ref(), out.into_bytes());
        return Ok(());
    }
    let (a, b) = (a.data::<E>()?, b.data::<E>()?);
    let addend = addend.as_ref().map(|addend| addend.data::<E>()).transpose()?;
    let out = out.into_data::<E>()?;
    let (staged, workspace) = scratch.split_at_mut(rows * n);
    let context = Context { tier: Tier::detect(), parallel: ctx.parallel() };
    let epilogue = Epilogue { alpha: matmuls.alpha.to_f64() as f32, ..Epilogue::default() };
    for index in 0..matmuls.batch.count() {
        let [a_layout, b_layout, c] = matmuls.layouts(index);
        let b = matrix(b_arg, b, b_layout, k, n)?;
        for first in (0..m).step_by(rows) {
            let count = rows.min(m - first);
            let from = MatrixLayout { start: a_layout.start + first * a_layout.row, ..a_layout };
            let a = matrix(a_arg, a, from, count, k)?;
            let target = MatrixMut::row_major(staged, count, n).ok_or(short(out_arg))?;
            gemm(context, a, b, target, &epilogue, workspace).map_err(mismatch(out_arg))?;
            for (i, sums) in staged.chunks_exact_mut(n.max(1)).take(count).enumerate() {
                let i = first + i;
                if let (Some((add, layout)), Some(data)) = (matmuls.addend_layout(index), addend) {
                    let beta = add.beta.to_f64() as f32;
                    for (j, sum) in sums.iter_mut().enumerate() {
                        if let Some(value) =
                            data.get(layout.start + i * layout.row + j * layout.col)
                        {
                            *sum += beta * Number::to_f32(*value);
                        }
                    }
                }
                if let Some(out) = out.get_mut(c.start + i * c.row..) {
                    E::narrow(sums, out.get_mut(..n).unwrap_or_default());
                }
            }
        }
    }
    Ok(())
}
