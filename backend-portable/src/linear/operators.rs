//! Matrix multiplication operators, described as [`BatchedMatmul`].

use super::{Addend, Batch, BatchedMatmul, MatrixLayout, complex, fast, prepare, run};
use crate::elementwise::Real;
use crate::elementwise::complex::by_part;
use crate::table::kernels;
use crate::walk::Steps;
use torchlet_core::Param::{OptionalTensor, Out, Scalar as Number, Tensor};
use torchlet_core::rules::matmul::{MatmulShape, bmm, linear, mm};
use torchlet_core::{
    Arguments, Invoke, Kernel, KernelError, PackFn, Plan, Prepare, Scalar, TensorInfo,
};

kernels! { PRODUCTS:
    /// `aten::mm.out(self, mat2, out)`: matrix multiplication.
    MM_OUT = Kernel::new("aten::mm.out", &[Tensor, Tensor, Out], |ctx| {
        let (product, sizes) =
            mm(&ctx.info(0)?.sizes, &ctx.info(1)?.sizes).ok_or(mismatched(1))?;
        ctx.resize(2, &sizes)?;
        fn of_complex<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
            complex::run::<C>(ctx, &BatchedMatmul::matrices(ctx, [0, 1, 2], None)?)
        }
        if let Some(plan) = complex::plan(ctx, &[0, 1, 2], by_part!(of_complex))? {
            return Ok(plan);
        }
        plan(ctx, &[0, 1, 2], product, (1, pack::<1>), |ctx| {
            run(ctx, &BatchedMatmul::matrices(ctx, [0, 1, 2], None)?)
        })
    });
    /// `aten::bmm.out(self, mat2, out)`: batched matrix multiplication.
    BMM_OUT = Kernel::new("aten::bmm.out", &[Tensor, Tensor, Out], |ctx| {
        let (product, sizes) =
            bmm(&ctx.info(0)?.sizes, &ctx.info(1)?.sizes).ok_or(mismatched(1))?;
        ctx.resize(2, &sizes)?;
        fn of_complex<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
            complex::run::<C>(ctx, &BatchedMatmul::batched(ctx, [0, 1, 2], None)?)
        }
        if let Some(plan) = complex::plan(ctx, &[0, 1, 2], by_part!(of_complex))? {
            return Ok(plan);
        }
        prepare(
            ctx,
            &[0, 1, 2],
            product,
            None,
            |ctx| run(ctx, &BatchedMatmul::batched(ctx, [0, 1, 2], None)?),
            never,
        )
    });
    /// `aten::addmm.out(self, mat1, mat2, beta, alpha, out)`: `beta * self + alpha * mat1 * mat2`.
    ADDMM_OUT =
        Kernel::new("aten::addmm.out", &[Tensor, Tensor, Tensor, Number, Number, Out], |ctx| {
            let (product, sizes) =
                mm(&ctx.info(1)?.sizes, &ctx.info(2)?.sizes).ok_or(mismatched(2))?;
            ctx.resize(5, &sizes)?;
            check_addend(ctx, &sizes)?;
            plan(ctx, &[0, 1, 2, 5], product, (2, pack::<2>), |ctx| {
                run(ctx, &BatchedMatmul::matrices(ctx, [1, 2, 5], Some((3, 4)))?)
            })
        });
    /// `aten::baddbmm.out(self, batch1, batch2, beta, alpha, out)`:
    /// `beta * self + alpha * batch1 * batch2`.
    BADDBMM_OUT =
        Kernel::new("aten::baddbmm.out", &[Tensor, Tensor, Tensor, Number, Number, Out], |ctx| {
            let (product, sizes) =
                bmm(&ctx.info(1)?.sizes, &ctx.info(2)?.sizes).ok_or(mismatched(2))?;
            ctx.resize(5, &sizes)?;
            check_addend(ctx, &sizes)?;
            let invoke = |ctx: &mut Invoke| {
                run(ctx, &BatchedMatmul::batched(ctx, [1, 2, 5], Some((3, 4)))?)
            };
            prepare(ctx, &[0, 1, 2, 5], product, None, invoke, never)
        });
    /// `aten::addmv.out(self, mat, vec, beta, alpha, out)`: `beta * self + alpha * mat * vec`.
    ADDMV_OUT =
        Kernel::new("aten::addmv.out", &[Tensor, Tensor, Tensor, Number, Number, Out], |ctx| {
            let (product, sizes) = addmv_shape(&ctx.info(1)?, &ctx.info(2)?)?;
            ctx.resize(5, &sizes)?;
            check_addend(ctx, &sizes)?;
            prepare(ctx, &[0, 1, 2, 5], product, None, addmv, never)
        });
    /// `aten::dot.out(self, tensor, out)`: the dot product of two vectors.
    DOT_OUT = Kernel::new("aten::dot.out", &[Tensor, Tensor, Out], |ctx| {
        let product = dot_shape(&ctx.info(0)?, &ctx.info(1)?)?;
        ctx.resize(2, &[])?;
        prepare(ctx, &[0, 1, 2], product, None, dot, never)
    });
    /// `aten::linear.out(input, weight, bias, out)`: `input * transposed weight + bias`, over the
    /// last dim.
    LINEAR_OUT = Kernel::new("aten::linear.out", &[Tensor, Tensor, OptionalTensor, Out], |ctx| {
        let (product, sizes) =
            linear(&ctx.info(0)?.sizes, &ctx.info(1)?.sizes).ok_or(mismatched(1))?;
        ctx.resize(3, &sizes)?;
        if let Some(bias) = ctx.optional_info(2)? {
            if bias.rank() > 1 || (bias.numel() != 1 && bias.numel() != product.n) {
                return Err(mismatched(2));
            }
            return prepare(ctx, &[0, 1, 2, 3], product, None, linear_run, never);
        }
        prepare(ctx, &[0, 1, 3], product, None, linear_run, never)
    });
}

pub(super) fn mismatched(arg: usize) -> KernelError {
    KernelError::argument(arg, "shape does not match the other operand")
}

/// Checks that argument 0 broadcasts to the result.
pub(super) fn check_addend(ctx: &Prepare, sizes: &[i32]) -> Result<(), KernelError> {
    let addend = ctx.info(0)?;
    let fits =
        torchlet_core::rules::broadcast(&addend.sizes, sizes).is_some_and(|both| *both == *sizes);
    if fits { Ok(()) } else { Err(mismatched(0)) }
}

fn plan(
    ctx: &mut Prepare,
    tensors: &[usize],
    product: MatmulShape,
    (right, pack): (usize, PackFn),
    invoke: torchlet_core::InvokeFn,
) -> Result<Plan, KernelError> {
    let layout = MatrixLayout::last_two(&ctx.info(right)?);
    let packs = ctx.is_constant(right);
    prepare(ctx, tensors, product, Some((layout, packs)), invoke, pack)
}

/// Packs the right operand of a matrix multiplication, argument `B`; the left one is argument
/// `B - 1`.
fn pack<const B: usize>(ctx: &mut Invoke, packed: &mut [u8]) -> Result<(), KernelError> {
    let b = ctx.tensor(B)?;
    let left = ctx.info(B - 1)?;
    let (product, _) = mm(&left.sizes, &b.sizes).ok_or(mismatched(B))?;
    fast::pack(&b, B, &product, MatrixLayout::last_two(&b), ctx.parallel(), packed)
}

fn never(_: &mut Invoke, _: &mut [u8]) -> Result<(), KernelError> {
    Ok(())
}

impl BatchedMatmul {
    fn new(
        ctx: &Arguments,
        args: [usize; 3],
        product: MatmulShape,
        layouts: [MatrixLayout; 3],
        factors: Option<(usize, usize)>,
    ) -> Result<Self, KernelError> {
        let out = ctx.info(args[2])?;
        let (mut alpha, mut addend) = (Scalar::Int(1), None);
        if let Some((beta, alpha_arg)) = factors {
            alpha = ctx.scalar(alpha_arg)?;
            addend = Addend::new(ctx, 0, ctx.scalar(beta)?, &out)?;
        }
        Ok(BatchedMatmul { args, product, layouts, batch: Batch::default(), alpha, addend, out })
    }

    /// A single matrix multiplication. `factors` are the argument indices of beta and alpha; the
    /// addend is argument 0.
    fn matrices(
        ctx: &Arguments,
        args: [usize; 3],
        factors: Option<(usize, usize)>,
    ) -> Result<Self, KernelError> {
        let [a, b, out] = [ctx.info(args[0])?, ctx.info(args[1])?, ctx.info(args[2])?];
        let (product, _) = mm(&a.sizes, &b.sizes).ok_or(mismatched(args[1]))?;
        let layouts = [&a, &b, &out].map(MatrixLayout::last_two);
        BatchedMatmul::new(ctx, args, product, layouts, factors)
    }

    fn batched(
        ctx: &Arguments,
        args: [usize; 3],
        factors: Option<(usize, usize)>,
    ) -> Result<Self, KernelError> {
        let [a, b, out] = [ctx.info(args[0])?, ctx.info(args[1])?, ctx.info(args[2])?];
        let (product, _) = bmm(&a.sizes, &b.sizes).ok_or(mismatched(args[1]))?;
        let layouts = [&a, &b, &out].map(MatrixLayout::last_two);
        let mut matmuls = BatchedMatmul::new(ctx, args, product, layouts, factors)?;
        let first = |info: &TensorInfo| info.strides().first().copied().unwrap_or(0);
        matmuls.batch.push(product.batch, [first(&a), first(&b), first(&out)]);
        Ok(matmuls)
    }
}

impl Addend {
    /// Creates the addend. Returns `None` if beta is zero: PyTorch then ignores the addend, even
    /// NaN.
    fn new(
        ctx: &Arguments,
        arg: usize,
        beta: Scalar,
        out: &TensorInfo,
    ) -> Result<Option<Self>, KernelError> {
        let counts =
            if out.scalar_type.is_floating() { beta.to_f64() != 0.0 } else { beta.to_i64() != 0 };
        if !counts {
            return Ok(None);
        }
        let steps = Steps::broadcast(out, &ctx.info(arg)?).ok_or(mismatched(arg))?;
        Ok(Some(Addend { arg, beta, steps }))
    }
}

fn addmv_shape(
    matrix: &TensorInfo,
    vector: &TensorInfo,
) -> Result<(MatmulShape, [i32; 1]), KernelError> {
    match (&*matrix.sizes, &*vector.sizes) {
        (&[rows, k], &[k2]) if k == k2 => {
            Ok((MatmulShape { batch: 1, m: matrix.size(0), k: matrix.size(1), n: 1 }, [rows]))
        }
        _ => Err(mismatched(2)),
    }
}

fn addmv(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (matrix, vector) = (ctx.info(1)?, ctx.info(2)?);
    let (product, _) = addmv_shape(&matrix, &vector)?;
    let column = MatrixLayout { start: 0, row: 1, col: 1 };
    let layouts = [MatrixLayout::last_two(&matrix), column, column];
    let matmuls = BatchedMatmul::new(ctx, [1, 2, 5], product, layouts, Some((3, 4)))?;
    run(ctx, &matmuls)
}

fn dot_shape(a: &TensorInfo, b: &TensorInfo) -> Result<MatmulShape, KernelError> {
    if a.rank() != 1 || a.sizes != b.sizes {
        return Err(mismatched(1));
    }
    Ok(MatmulShape { batch: 1, m: 1, k: a.size(0), n: 1 })
}

fn dot(ctx: &mut Invoke) -> Result<(), KernelError> {
    let product = dot_shape(&ctx.info(0)?, &ctx.info(1)?)?;
    let layout = MatrixLayout { start: 0, row: 1, col: 1 };
    let matmuls = BatchedMatmul::new(ctx, [0, 1, 2], product, [layout; 3], None)?;
    run(ctx, &matmuls)
}

fn linear_run(ctx: &mut Invoke) -> Result<(), KernelError> {
    let [input, weight, out] = [ctx.info(0)?, ctx.info(1)?, ctx.info(3)?];
    let (mut product, _) = linear(&input.sizes, &weight.sizes).ok_or(mismatched(1))?;
    let b = match weight.rank() {
        1 => MatrixLayout { start: 0, row: 1, col: 1 },
        _ => MatrixLayout::last_two(&weight).transposed(),
    };
    let (k, n) = (product.k, product.n);
    let mut batch = Batch::default();
    let (a, c) = if input.is_contiguous() && out.is_contiguous() {
        (MatrixLayout { start: 0, row: k, col: 1 }, MatrixLayout { start: 0, row: n, col: 1 })
    } else {
        // The dim before the last is the rows; earlier ones are the batch.
        let (from, to) = (input.strides(), out.strides());
        let rows = input.rank() - 1;
        let step = |strides: &[usize], dim: usize| strides.get(dim).copied().unwrap_or(1);
        for dim in 0..rows.saturating_sub(1) {
            batch.push(input.size(dim), [step(&from, dim), 0, step(&to, dim)]);
        }
        product.m = if rows > 0 { input.size(rows - 1) } else { 1 };
        let row = |strides: &[usize]| if rows > 0 { step(strides, rows - 1) } else { 0 };
        (
            MatrixLayout { start: 0, row: row(&from), col: step(&from, rows) },
            MatrixLayout { start: 0, row: row(&to), col: step(&to, rows) },
        )
    };
    let mut matmuls = BatchedMatmul::new(ctx, [0, 1, 3], product, [a, b, c], None)?;
    matmuls.batch = batch;
    if let Some(bias) = ctx.optional_info(2)? {
        // The bias varies only over the columns, so it is the same for the whole batch.
        let mut steps = Steps { strides: [0; torchlet_core::layout::MAX_RANK], base: 0 };
        if bias.numel() > 1
            && let Some(step) = steps.strides.get_mut(out.rank().saturating_sub(1))
        {
            *step = 1;
        }
        matmuls.addend = Some(Addend { arg: 2, beta: Scalar::Int(1), steps });
    }
    run(ctx, &matmuls)
}
