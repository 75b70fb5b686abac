//! Operators on matrices that are given as factors: solving, inverses, products of Householder
//! reflections, and unpacking of factors.

use super::lu::{factor, solve_factored};
use super::{
    Matrix, Shape, append_sizes, batch_of, broadcast_sizes, f64_bytes, read, read_in, resize,
    resize_to, start_in, with_batch, write, write_transposed, write_vector,
};
use crate::number::{load, unsupported};
use crate::scratch;
use crate::table::kernels;
use torchlet_core::Param::{Bool, Out, Tensor};
use torchlet_core::{
    Arguments, Invoke, Kernel, KernelError, Plan, Prepare, ScalarType, TensorInfo, TensorRef,
};

kernels! { KNOWN:
    /// `aten::cholesky_solve.out(self, input2, upper, out)`: solves `A * X = self`, given the
    /// Cholesky factor `input2` of `A`.
    CHOLESKY_SOLVE_OUT = Kernel::new(
        "aten::cholesky_solve.out",
        &[Tensor, Tensor, Bool, Out],
        |ctx| {
            prepare_solution(ctx, 1, 0, &[3])?;
            plan_of_two(ctx, cholesky_solve)
        },
    );
    /// `aten::cholesky_inverse.out(self, upper, out)`: the inverse of the matrix whose Cholesky
    /// factor is `self`.
    CHOLESKY_INVERSE_OUT = Kernel::new("aten::cholesky_inverse.out", &[Tensor, Bool, Out], |ctx| {
        let (shape, of) = (Shape::square(ctx, 0)?, ctx.info(0)?.scalar_type);
        resize(ctx, 2, &[shape.rows, shape.cols], of)?;
        Ok(Plan::new(cholesky_inverse).with_scratch(f64_bytes(&[[2, shape.numel]])?))
    });
    /// `aten::triangular_solve.X(self, A, upper, transpose, unitriangular, X, M)`: solves
    /// `A * X = self`, or `transposed A * X = self`, with the upper or lower triangle of `A`. `M`
    /// is a copy of `A`.
    TRIANGULAR_SOLVE_X = Kernel::new(
        "aten::triangular_solve.X",
        &[Tensor, Tensor, Bool, Bool, Bool, Out, Out],
        |ctx| {
            prepare_solution(ctx, 1, 0, &[5])?;
            let (a, n) = (ctx.info(1)?, Shape::square(ctx, 1)?.rows);
            let sizes = append_sizes(batch_of(&ctx.info(5)?), &[n, n])?;
            resize_to(ctx, 6, &sizes, a.scalar_type)?;
            plan_of_two(ctx, triangular_solve)
        },
    );
    /// `aten::linalg_lu_solve.out(LU, pivots, B, left, adjoint, out)`: solves `A * X = B`, or
    /// `X * A = B` if `left` is false, given the LU factors of `A`. With `adjoint`, `A` is
    /// transposed.
    LINALG_LU_SOLVE_OUT = Kernel::new(
        "aten::linalg_lu_solve.out",
        &[Tensor, Tensor, Tensor, Bool, Bool, Out],
        |ctx| {
            let shape = Shape::square(ctx, 0)?;
            check_pivots(ctx, &shape, 1)?;
            let right = prepare_sided(ctx, &shape, "shape does not match the matrices")?;
            let bytes = f64_bytes(&[[1, shape.numel], [1, right.numel], [1, shape.rows]])?;
            Ok(Plan::new(lu_solve).with_scratch(bytes))
        },
    );
    /// `aten::lu_unpack.out(LU_data, LU_pivots, unpack_data, unpack_pivots, P, L, U)`: unpacks an
    /// LU factorisation into the permutation matrix and both triangular factors.
    LU_UNPACK_OUT = Kernel::new(
        "aten::lu_unpack.out",
        &[Tensor, Tensor, Bool, Bool, Out, Out, Out],
        |ctx| {
            let shape = Shape::of(&ctx.info(0)?, 0)?;
            check_pivots(ctx, &shape, 1)?;
            let wanted = [ctx.bool(3)?, ctx.bool(2)?];
            prepare_parts(ctx, &shape, 4, wanted)?;
            plan_of_parts(&shape, wanted, lu_unpack)
        },
    );
    /// `aten::linalg_lu.out(A, pivot, P, L, U)`: LU factorisation into a permutation, a lower and
    /// an upper triangular matrix.
    LINALG_LU_OUT = Kernel::new("aten::linalg_lu.out", &[Tensor, Bool, Out, Out, Out], |ctx| {
        if !ctx.bool(1)? {
            return Err(KernelError::unsupported("LU factorization without pivoting"));
        }
        let shape = Shape::of(&ctx.info(0)?, 0)?;
        prepare_parts(ctx, &shape, 2, [true, true])?;
        plan_of_parts(&shape, [true, true], lu)
    });
    /// `aten::geqrf.a(self, a, tau)`: Householder QR factorisation in LAPACK's format. `a` has R in
    /// its upper triangle and, below it, the reflection vectors, whose first elements are an
    /// implicit 1; `tau` has the scales of the reflections.
    GEQRF_A = Kernel::new("aten::geqrf.a", &[Tensor, Out, Out], |ctx| {
        let (shape, of) = (Shape::of(&ctx.info(0)?, 0)?, ctx.info(0)?.scalar_type);
        let least = shape.rows.min(shape.cols);
        resize(ctx, 1, &[shape.rows, shape.cols], of)?;
        resize(ctx, 2, &[least], of)?;
        Ok(Plan::new(geqrf).with_scratch(f64_bytes(&[[1, shape.numel], [1, least]])?))
    });
    /// `aten::linalg_householder_product.out(input, tau, out)`: the first columns of the product of
    /// Householder reflections.
    LINALG_HOUSEHOLDER_PRODUCT_OUT = Kernel::new(
        "aten::linalg_householder_product.out",
        &[Tensor, Tensor, Out],
        |ctx| {
            let (shape, of) = (Shape::of(&ctx.info(0)?, 0)?, ctx.info(0)?.scalar_type);
            let count = reflections(ctx, &shape)?;
            resize(ctx, 2, &[shape.rows, shape.cols], of)?;
            let bytes = f64_bytes(&[[2, shape.numel], [1, count]])?;
            Ok(Plan::new(householder_product).with_scratch(bytes))
        },
    );
    /// `aten::ormqr.out(self, input2, input3, left, transpose, out)`: multiplies `input3` with the
    /// product of Householder reflections, or with its transpose, on the left or on the right.
    /// `self` has the vectors of the reflections, `input2` their scales. The batch sizes must be
    /// equal.
    ORMQR_OUT = Kernel::new(
        "aten::ormqr.out",
        &[Tensor, Tensor, Tensor, Bool, Bool, Out],
        |ctx| {
            let shape = Shape::of(&ctx.info(0)?, 0)?;
            let count = reflections(ctx, &shape)?;
            let other = prepare_sided(ctx, &shape, "shape does not match the reflections")?;
            if batch_of(&ctx.info(0)?) != batch_of(&ctx.info(2)?) {
                let what = "expected the batch sizes of the reflections";
                return Err(KernelError::argument(2, what));
            }
            let bytes = f64_bytes(&[[1, shape.numel], [2, other.numel], [1, count]])?;
            Ok(Plan::new(ormqr).with_scratch(bytes))
        },
    );
}

/// Checks that the right-hand side has as many rows as a square matrix, and resizes outputs to its
/// shape with the common broadcast batch.
fn prepare_solution(
    ctx: &mut Prepare,
    matrix: usize,
    right: usize,
    outs: &[usize],
) -> Result<(), KernelError> {
    let shape = Shape::square(ctx, matrix)?;
    let (a, b) = (ctx.info(matrix)?, ctx.info(right)?);
    let other = Shape::of(&b, right)?;
    let fits = other.rows == shape.rows && a.scalar_type == b.scalar_type;
    let Some(sizes) = broadcast_sizes(&a, &b, other.rows, other.cols)?.filter(|_| fits) else {
        return Err(KernelError::argument(right, "shape does not match the matrices"));
    };
    outs.iter().try_for_each(|out| resize_to(ctx, *out, &sizes, b.scalar_type))
}

/// Checks that argument 2 has as many rows (if argument 3 is true, else columns) as the matrices in
/// argument 0. Resizes output 5 to the shape of argument 2, with the broadcast batch.
fn prepare_sided(
    ctx: &mut Prepare,
    shape: &Shape,
    otherwise: &'static str,
) -> Result<Shape, KernelError> {
    let (a, b) = (ctx.info(0)?, ctx.info(2)?);
    let other = Shape::of(&b, 2)?;
    let side = if ctx.bool(3)? { other.rows } else { other.cols };
    let fits = side == shape.rows && a.scalar_type == b.scalar_type;
    let Some(sizes) = broadcast_sizes(&a, &b, other.rows, other.cols)?.filter(|_| fits) else {
        return Err(KernelError::argument(2, otherwise));
    };
    resize_to(ctx, 5, &sizes, a.scalar_type)?;
    Ok(other)
}

/// Creates a plan with scratch memory for a matrix of argument 0 and one of argument 1.
fn plan_of_two(ctx: &Prepare, invoke: torchlet_core::InvokeFn) -> Result<Plan, KernelError> {
    let (a, b) = (Shape::of(&ctx.info(0)?, 0)?, Shape::of(&ctx.info(1)?, 1)?);
    Ok(Plan::new(invoke).with_scratch(f64_bytes(&[[1, a.numel], [1, b.numel]])?))
}

pub(super) fn check_pivots(args: &Arguments, shape: &Shape, arg: usize) -> Result<(), KernelError> {
    let pivots = args.info(arg)?;
    if pivots.scalar_type != ScalarType::Int {
        return Err(unsupported(arg, pivots.scalar_type));
    }
    if pivots.sizes != with_batch(&args.info(0)?, &[shape.rows.min(shape.cols)])? {
        return Err(KernelError::argument(
            arg,
            "expected a pivot for each diagonal element of the factors",
        ));
    }
    Ok(())
}

/// Resizes `P`, `L` and `U`; outputs that are not requested become empty.
fn prepare_parts(
    ctx: &mut Prepare,
    shape: &Shape,
    first: usize,
    [rows, factors]: [bool; 2],
) -> Result<(), KernelError> {
    let of = ctx.info(0)?.scalar_type;
    let least = shape.rows.min(shape.cols);
    let sizes = [[shape.rows, shape.rows], [shape.rows, least], [least, shape.cols]];
    for (out, (sizes, wanted)) in (first..).zip(sizes.iter().zip([rows, factors, factors])) {
        if wanted {
            resize(ctx, out, sizes, of)?;
        } else {
            ctx.resize(out, &[0])?;
        }
    }
    Ok(())
}

fn plan_of_parts(
    shape: &Shape,
    wanted: [bool; 2],
    invoke: torchlet_core::InvokeFn,
) -> Result<Plan, KernelError> {
    let [exchanged, factors] = parts(shape, wanted);
    let all = [[1, shape.numel], exchanged, factors, [2, shape.rows], [1, shape.cols]];
    Ok(Plan::new(invoke).with_scratch(f64_bytes(&all)?))
}

/// Sizes of the permutation matrix and of the larger factor; 0 if not requested.
fn parts(shape: &Shape, [rows, factors]: [bool; 2]) -> [[usize; 2]; 2] {
    let least = shape.rows.min(shape.cols);
    let sides = [[shape.rows, shape.rows], [least, shape.rows.max(shape.cols)]];
    [if rows { sides[0] } else { [0; 2] }, if factors { sides[1] } else { [0; 2] }]
}

/// Number of Householder reflections.
fn reflections(args: &Arguments, shape: &Shape) -> Result<usize, KernelError> {
    let (info, tau) = (args.info(0)?, args.info(1)?);
    let count = tau.rank().checked_sub(1).map_or(0, |last| tau.size(last));
    let fits = with_batch(&info, &[count])? == tau.sizes
        && count <= shape.cols
        && shape.cols <= shape.rows;
    if !fits || tau.scalar_type != info.scalar_type {
        return Err(KernelError::argument(1, "shape does not match the reflections"));
    }
    Ok(count)
}

/// Reads vector `index` of a batch.
fn read_vector(tensor: &TensorRef, index: usize, out: &mut [f64]) {
    let info: &TensorInfo = tensor.info();
    let batch = info.sizes.get(..info.rank().saturating_sub(1)).unwrap_or_default();
    read_vector_in(tensor, batch, index, out);
}

/// Like [`read_vector`], for an index into a batch shape that the tensor is broadcast to.
fn read_vector_in(tensor: &TensorRef, batch: &[i32], index: usize, out: &mut [f64]) {
    let info: &TensorInfo = tensor.info();
    let step = info.strides().last().map_or(1, |&stride| stride as isize);
    load(info.scalar_type, tensor.bytes(), start_in(info, batch, index, 1), step, out);
}

/// A triangle of a matrix, possibly transposed.
#[derive(Clone, Copy)]
struct Triangle {
    upper: bool,
    transposed: bool,
    /// Whether the diagonal is implicitly one.
    unit: bool,
}

impl Triangle {
    /// Solves a system with this triangle: `right` is the right-hand side, and becomes the
    /// solution.
    fn solve(self, matrix: &Matrix, right: &mut Matrix) {
        let n = matrix.cols;
        let at = |i: usize, j: usize| {
            if self.transposed { matrix.at(j, i) } else { matrix.at(i, j) }
        };
        let from_below = self.upper != self.transposed;
        for col in 0..right.cols {
            if right.is_cancelled() {
                break;
            }
            for step in 0..n {
                let row = if from_below { n - 1 - step } else { step };
                let known = if from_below { row + 1..n } else { 0..row };
                let known: f64 = known.map(|k| at(row, k) * right.at(k, col)).sum();
                let value = right.at(row, col) - known;
                right.set(row, col, if self.unit { value } else { value / at(row, row) });
            }
        }
    }
}

/// Solves a system with the matrix whose Cholesky factor is `matrix`.
fn solve_cholesky(matrix: &Matrix, upper: bool, right: &mut Matrix) {
    Triangle { upper, transposed: upper, unit: false }.solve(matrix, right);
    Triangle { upper, transposed: !upper, unit: false }.solve(matrix, right);
}

fn cholesky_solve(ctx: &mut Invoke) -> Result<(), KernelError> {
    let upper = ctx.bool(2)?;
    each_solution(ctx, 3, None, |matrix, right| solve_cholesky(matrix, upper, right))
}

fn triangular_solve(ctx: &mut Invoke) -> Result<(), KernelError> {
    let triangle = Triangle { upper: ctx.bool(2)?, transposed: ctx.bool(3)?, unit: ctx.bool(4)? };
    each_solution(ctx, 5, Some(6), |matrix, right| triangle.solve(matrix, right))
}

/// Solves for all right-hand sides in argument 0, with the matrices in argument 1. Argument
/// `out_arg` receives the solutions; argument `copies`, if present, receives copies of the
/// matrices.
fn each_solution(
    ctx: &mut Invoke,
    out_arg: usize,
    copies: Option<usize>,
    solve: impl Fn(&Matrix, &mut Matrix),
) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    let (b, a) = (ctx.tensor(0)?, ctx.tensor(1)?);
    let (shape, right) = (Shape::square(ctx, 1)?, Shape::of(b.info(), 0)?);
    let memory = scratch::take::<f64>(ctx, shape.numel + right.numel)?;
    let (data, solution) = memory.split_at_mut_checked(shape.numel).unwrap_or_default();
    let mut out = ctx.out(out_arg)?;
    let count = Shape::of(out.info(), out_arg)?.non_empty();
    let mut matrices = copies.map(|arg| ctx.out(arg)).transpose()?;
    let solved = out.info().clone();
    let batch = batch_of(&solved);
    let written = matrices.as_ref().zip(copies);
    let written = written.map(|(it, arg)| Shape::of(it.info(), arg)).transpose()?;
    let count = written.map_or(count, |written| count.max(written.non_empty()));
    let matrix = Matrix { cols: shape.cols, data, parallel };
    let mut solution = Matrix { cols: right.cols, data: solution, parallel };
    for index in 0..count {
        read_in(&a, batch, index, shape.cols, matrix.data);
        if let Some(matrices) = &mut matrices {
            write(matrices, index, shape.cols, matrix.data);
        }
        read_in(&b, batch, index, right.cols, solution.data);
        solve(&matrix, &mut solution);
        write(&mut out, index, right.cols, solution.data);
    }
    Ok(())
}

fn cholesky_inverse(ctx: &mut Invoke) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    let input = ctx.tensor(0)?;
    let (shape, upper) = (Shape::square(ctx, 0)?, ctx.bool(1)?);
    let memory = scratch::take::<f64>(ctx, 2 * shape.numel)?;
    let (data, solution) = memory.split_at_mut_checked(shape.numel).unwrap_or_default();
    let mut out = ctx.out(2)?;
    let (matrix, mut solution) = (
        Matrix { cols: shape.cols, data, parallel },
        Matrix { cols: shape.cols, data: solution, parallel },
    );
    for index in 0..shape.non_empty() {
        read(&input, index, shape.cols, matrix.data);
        solution.identity();
        solve_cholesky(&matrix, upper, &mut solution);
        write(&mut out, index, shape.cols, solution.data);
    }
    Ok(())
}

/// Reads pivots, and checks that they are valid row numbers.
fn read_pivots(
    tensor: &TensorRef,
    batch: &[i32],
    index: usize,
    rows: usize,
    out: &mut [f64],
) -> Result<(), KernelError> {
    read_vector_in(tensor, batch, index, out);
    let is_row = |pivot: &f64| *pivot >= 1.0 && *pivot <= rows as f64;
    if out.iter().all(is_row) {
        Ok(())
    } else {
        Err(KernelError::argument(1, "a pivot is outside the rows of its matrix"))
    }
}

fn lu_solve(ctx: &mut Invoke) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    let (factors, pivots, b) = (ctx.tensor(0)?, ctx.tensor(1)?, ctx.tensor(2)?);
    let (shape, right) = (Shape::square(ctx, 0)?, Shape::of(b.info(), 2)?);
    let (left, adjoint) = (ctx.bool(3)?, ctx.bool(4)?);
    let memory = scratch::take::<f64>(ctx, shape.numel + right.numel + shape.rows)?;
    let (data, rest) = memory.split_at_mut_checked(shape.numel).unwrap_or_default();
    let (solution, pivot_rows) = rest.split_at_mut_checked(right.numel).unwrap_or_default();
    let mut out = ctx.out(5)?;
    let solved = out.info().clone();
    let batch = batch_of(&solved);
    let count = Shape::of(out.info(), 5)?.non_empty();
    let n = shape.rows;
    let matrix = Matrix { cols: n, data, parallel };
    // `X * A = B` is solved as the transposed equation.
    let columns = if left { right.cols } else { right.rows };
    let mut solution = Matrix { cols: columns, data: solution, parallel };
    for index in 0..count {
        read_in(&factors, batch, index, n, matrix.data);
        read_pivots(&pivots, batch, index, n, pivot_rows)?;
        if left {
            read_in(&b, batch, index, columns, solution.data);
        } else {
            let info = b.info();
            let (first, (row, col)) = (start_in(info, batch, index, 2), super::steps(info));
            for (i, values) in solution.data.chunks_exact_mut(columns.max(1)).enumerate() {
                load(info.scalar_type, b.bytes(), first + col * i as isize, row, values);
            }
        }
        if adjoint == left {
            let (upper, lower) = (true, false);
            Triangle { upper, transposed: true, unit: false }.solve(&matrix, &mut solution);
            Triangle { upper: lower, transposed: true, unit: true }.solve(&matrix, &mut solution);
            for (row, pivot) in pivot_rows.iter().enumerate().rev() {
                solution.swap_rows(row, *pivot as usize - 1);
            }
        } else {
            solve_factored(&matrix, pivot_rows, &mut solution);
        }
        if left {
            write(&mut out, index, columns, solution.data);
        } else {
            write_transposed(&mut out, index, columns, solution.data);
        }
    }
    Ok(())
}

fn lu_unpack(ctx: &mut Invoke) -> Result<(), KernelError> {
    let wanted = [ctx.bool(3)?, ctx.bool(2)?];
    let (factors, pivots) = (ctx.info(0)?, ctx.tensor(1)?);
    each_parts(ctx, 4, wanted, &|index, matrix, pivot_rows| {
        read_pivots(&pivots, batch_of(&factors), index, matrix.rows(), pivot_rows)
    })
}

fn lu(ctx: &mut Invoke) -> Result<(), KernelError> {
    each_parts(ctx, 2, [true, true], &|_, matrix, pivot_rows| {
        factor(matrix, pivot_rows);
        Ok(())
    })
}

/// Function that factors a matrix, given its batch index, and stores its pivots.
type Factors<'f> = &'f dyn Fn(usize, &mut Matrix, &mut [f64]) -> Result<(), KernelError>;

/// Writes the permutation and both factors of each matrix, if requested.
fn each_parts(
    ctx: &mut Invoke,
    first: usize,
    [rows_wanted, factors_wanted]: [bool; 2],
    make: Factors,
) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    let input = ctx.tensor(0)?;
    let shape = Shape::of(input.info(), 0)?;
    let Shape { rows, cols, numel, .. } = shape;
    let least = rows.min(cols);
    let part_len = parts(&shape, [rows_wanted, factors_wanted]).map(|[a, b]| a * b).iter().sum();
    let memory = scratch::take::<f64>(ctx, numel + part_len + 2 * rows + cols)?;
    let (data, rest) = memory.split_at_mut_checked(numel).unwrap_or_default();
    // A batch of empty matrices can be arbitrarily long: skip it if nothing is written.
    let has_results = (rows_wanted && rows > 0) || (factors_wanted && least > 0);
    let (part, rest) = rest.split_at_mut_checked(part_len).unwrap_or_default();
    let (order, pivots) = rest.split_at_mut_checked(rows).unwrap_or_default();
    let pivots = pivots.get_mut(..least).unwrap_or_default();
    let (mut exchanged, mut lower, mut upper) =
        (ctx.out(first)?, ctx.out(first + 1)?, ctx.out(first + 2)?);
    let mut matrix = Matrix { cols, data, parallel };
    for index in 0..if has_results { shape.count } else { 0 } {
        read(&input, index, cols, matrix.data);
        make(index, &mut matrix, pivots)?;
        if rows_wanted && rows > 0 {
            order.iter_mut().enumerate().for_each(|(row, slot)| *slot = row as f64);
            for (row, pivot) in pivots.iter().enumerate() {
                order.swap(row, *pivot as usize - 1);
            }
            let mut made = Matrix {
                cols: rows,
                data: part.get_mut(..rows * rows).unwrap_or_default(),
                parallel,
            };
            made.data.fill(0.0);
            order.iter().enumerate().for_each(|(col, row)| made.set(*row as usize, col, 1.0));
            write(&mut exchanged, index, rows, made.data);
        }
        if factors_wanted && least > 0 {
            let mut made = Matrix {
                cols: least,
                data: part.get_mut(..rows * least).unwrap_or_default(),
                parallel,
            };
            made.identity();
            for row in 0..rows {
                (0..row.min(least)).for_each(|col| made.set(row, col, matrix.at(row, col)));
            }
            write(&mut lower, index, least, made.data);
            let mut made =
                Matrix { cols, data: part.get_mut(..least * cols).unwrap_or_default(), parallel };
            made.data.fill(0.0);
            for row in 0..least {
                (row..cols).for_each(|col| made.set(row, col, matrix.at(row, col)));
            }
            write(&mut upper, index, cols, made.data);
        }
    }
    Ok(())
}

fn geqrf(ctx: &mut Invoke) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    let input = ctx.tensor(0)?;
    let shape = Shape::of(input.info(), 0)?;
    let Shape { rows, cols, numel, .. } = shape;
    let memory = scratch::take::<f64>(ctx, numel + rows.min(cols))?;
    let (data, lengths) = memory.split_at_mut_checked(numel).unwrap_or_default();
    let (mut out, mut tau) = (ctx.out(1)?, ctx.out(2)?);
    let mut matrix = Matrix { cols, data, parallel };
    for index in 0..shape.non_empty() {
        read(&input, index, cols, matrix.data);
        for (k, length) in lengths.iter_mut().enumerate() {
            if matrix.is_cancelled() {
                break;
            }
            let below: f64 = (k + 1..rows).map(|row| matrix.at(row, k) * matrix.at(row, k)).sum();
            let first = matrix.at(k, k);
            *length = 0.0;
            if below == 0.0 {
                continue;
            }
            let norm = -libm::sqrt(first * first + below).copysign(first);
            *length = (norm - first) / norm;
            for row in k + 1..rows {
                matrix.set(row, k, matrix.at(row, k) / (first - norm));
            }
            matrix.set(k, k, norm);
            for col in k + 1..cols {
                let dot = reflection_dot(&matrix, k, |row| matrix.at(row, col)) * *length;
                matrix.set(k, col, matrix.at(k, col) - dot);
                for row in k + 1..rows {
                    matrix.set(row, col, matrix.at(row, col) - dot * matrix.at(row, k));
                }
            }
        }
        write(&mut out, index, cols, matrix.data);
        write_vector(&mut tau, index, lengths);
    }
    Ok(())
}

/// Dot product of reflection vector `k` with a column.
fn reflection_dot(directions: &Matrix, k: usize, column: impl Fn(usize) -> f64) -> f64 {
    let rest = k + 1..directions.rows();
    column(k) + rest.map(|row| directions.at(row, k) * column(row)).sum::<f64>()
}

fn householder_product(ctx: &mut Invoke) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    let (input, tau) = (ctx.tensor(0)?, ctx.tensor(1)?);
    let shape = Shape::of(input.info(), 0)?;
    let Shape { rows, cols, numel, .. } = shape;
    let lengths_there = tau.info().size(tau.rank().saturating_sub(1));
    let memory = scratch::take::<f64>(ctx, 2 * numel + lengths_there)?;
    let (data, rest) = memory.split_at_mut_checked(numel).unwrap_or_default();
    let (made, lengths) = rest.split_at_mut_checked(numel).unwrap_or_default();
    let mut out = ctx.out(2)?;
    let (matrix, mut made) =
        (Matrix { cols, data, parallel }, Matrix { cols, data: made, parallel });
    for index in 0..shape.non_empty() {
        read(&input, index, cols, matrix.data);
        read_vector(&tau, index, lengths);
        made.identity();
        for (k, length) in lengths.iter().enumerate().rev() {
            if matrix.is_cancelled() {
                break;
            }
            for col in 0..cols {
                let dot = reflection_dot(&matrix, k, |row| made.at(row, col)) * length;
                made.set(k, col, made.at(k, col) - dot);
                for row in k + 1..rows {
                    made.set(row, col, made.at(row, col) - dot * matrix.at(row, k));
                }
            }
        }
        write(&mut out, index, cols, made.data);
    }
    Ok(())
}

fn ormqr(ctx: &mut Invoke) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    let (input, tau, other) = (ctx.tensor(0)?, ctx.tensor(1)?, ctx.tensor(2)?);
    let (shape, right) = (Shape::of(input.info(), 0)?, Shape::of(other.info(), 2)?);
    let lengths_there = tau.info().size(tau.rank().saturating_sub(1));
    let memory = scratch::take::<f64>(ctx, shape.numel + 2 * right.numel + lengths_there)?;
    let (data, rest) = memory.split_at_mut_checked(shape.numel).unwrap_or_default();
    let (given, rest) = rest.split_at_mut_checked(right.numel).unwrap_or_default();
    let (made, lengths) = rest.split_at_mut_checked(right.numel).unwrap_or_default();
    let (on_left, transposed) = (ctx.bool(3)?, ctx.bool(4)?);
    let mut out = ctx.out(5)?;
    // A multiplication from the right is computed as the transposed one from the left: columns are
    // reflected in both cases.
    let cols = if on_left { right.cols } else { right.rows };
    let matrix = Matrix { cols: shape.cols, data, parallel };
    let (given, mut made) =
        (Matrix { cols: right.cols, data: given, parallel }, Matrix { cols, data: made, parallel });
    for index in 0..right.non_empty() {
        read(&input, index, shape.cols, matrix.data);
        read_vector(&tau, index, lengths);
        read(&other, index, right.cols, given.data);
        for row in 0..made.rows() {
            for col in 0..cols {
                let value = if on_left { given.at(row, col) } else { given.at(col, row) };
                made.set(row, col, value);
            }
        }
        let count = lengths.len();
        for step in 0..count {
            if matrix.is_cancelled() {
                break;
            }
            // Starts with the last reflection, unless transposed.
            let k = if on_left == transposed { step } else { count - 1 - step };
            let length = lengths.get(k).copied().unwrap_or(0.0);
            for col in 0..cols {
                let dot = reflection_dot(&matrix, k, |row| made.at(row, col)) * length;
                made.set(k, col, made.at(k, col) - dot);
                for row in k + 1..shape.rows {
                    made.set(row, col, made.at(row, col) - dot * matrix.at(row, k));
                }
            }
        }
        if on_left {
            write(&mut out, index, cols, made.data);
        } else {
            write_transposed(&mut out, index, cols, made.data);
        }
    }
    Ok(())
}
