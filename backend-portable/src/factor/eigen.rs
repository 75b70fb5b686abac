//! Eigenvalues and eigenvectors of general real matrices; they may be complex.
//!
//! The algorithm is that of LAPACK's `geev`: balancing, reduction to Hessenberg form by Givens
//! rotations, and to real Schur form by Francis double-shift QR steps. Back substitution gives the
//! eigenvectors. They are scaled to length 1, and complex ones are rotated so that their largest
//! element is real. Real eigenvalues are computed in real arithmetic; complex ones are conjugate
//! pairs.

use super::{Matrix, Shape, f64_bytes, read, resize, start, steps};
use crate::elementwise::complex::{Complex, part};
use crate::number::{store, unsupported};
use crate::scratch;
use crate::table::kernels;
use torchlet_core::Param::{Out, Tensor};
use torchlet_core::{Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, TensorMut};

kernels! { EIGEN:
    /// `aten::linalg_eig.out(self, eigenvalues, eigenvectors)`: eigenvalues and eigenvectors of
    /// real matrices; the eigenvectors are columns.
    LINALG_EIG_OUT = Kernel::new("aten::linalg_eig.out", &[Tensor, Out, Out], |ctx| {
        let shape = Shape::square(ctx, 0)?;
        let of = complex_type(ctx, 2)?;
        resize(ctx, 2, &[shape.rows, shape.cols], of)?;
        prepare(ctx, &shape, |ctx| eig(ctx, true))
    });
    /// `aten::linalg_eigvals.out(self, out)`: eigenvalues of real matrices.
    LINALG_EIGVALS_OUT = Kernel::new("aten::linalg_eigvals.out", &[Tensor, Out], |ctx| {
        let shape = Shape::square(ctx, 0)?;
        prepare(ctx, &shape, |ctx| eig(ctx, false))
    });
}

/// Returns the complex dtype of an output, after checking that its parts have the dtype of the
/// matrices.
fn complex_type(ctx: &Prepare, out: usize) -> Result<torchlet_core::ScalarType, KernelError> {
    let (of, found) = (ctx.info(0)?.scalar_type, ctx.info(out)?.scalar_type);
    if part(found) == Some(of) { Ok(found) } else { Err(unsupported(out, found)) }
}

fn prepare(ctx: &mut Prepare, shape: &Shape, invoke: InvokeFn) -> Result<Plan, KernelError> {
    let of = complex_type(ctx, 1)?;
    resize(ctx, 1, &[shape.rows], of)?;
    let bytes = f64_bytes(&[[2, shape.numel], [7, shape.rows]])?;
    Ok(Plan::new(invoke).with_scratch(bytes))
}

/// Maximum number of QR steps for one eigenvalue. Every tenth step uses exceptional shifts.
const MAX_STEPS: usize = 300;

/// Writes a complex number.
fn put(tensor: &mut TensorMut, at: isize, value: Complex<f64>) {
    let (scalar_type, size) = (tensor.scalar_type, tensor.scalar_type.size());
    let offset = usize::try_from(at).ok().and_then(|at| at.checked_mul(size));
    let bytes = offset.and_then(|start| tensor.bytes_mut().get_mut(start..start + size));
    if let (Some(bytes), Some(part)) = (bytes, part(scalar_type)) {
        store(part, bytes, &value);
    }
}

fn eig(ctx: &mut Invoke, wants_vectors: bool) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    let input = ctx.tensor(0)?;
    let shape = Shape::square(ctx, 0)?;
    let n = shape.rows;
    let memory = scratch::take::<f64>(ctx, 2 * shape.numel + 7 * n)?;
    let (data, rest) = memory.split_at_mut_checked(shape.numel).unwrap_or_default();
    let (vectors, rest) = rest.split_at_mut_checked(shape.numel).unwrap_or_default();
    let (scales, rest) = rest.split_at_mut_checked(n).unwrap_or_default();
    let (values, rest): (&mut [Complex<f64>], _) =
        rest.as_chunks_mut().0.split_at_mut_checked(n).unwrap_or_default();
    let (solved, vector) = rest.split_at_mut_checked(n).unwrap_or_default();
    let mut values_out = ctx.out(1)?;
    let mut vectors_out = if wants_vectors { Some(ctx.out(2)?) } else { None };
    let mut matrix = Matrix { cols: n, data, parallel };
    let mut basis = Matrix { cols: n, data: vectors, parallel };
    for index in 0..shape.non_empty() {
        read(&input, index, n, matrix.data);
        if matrix.data.iter().any(|value| !value.is_finite()) {
            return Err(KernelError::argument(
                0,
                "expected finite elements, found infinity or NaN",
            ));
        }
        balance(&mut matrix, scales);
        basis.identity();
        to_hessenberg(&mut matrix, &mut basis);
        to_schur(&mut matrix, &mut basis, values)
            .ok_or(KernelError::argument(0, "the eigenvalues of a matrix did not converge"))?;
        let (first, info) = (start(values_out.info(), index, 1), values_out.info());
        let step = info.strides().last().map_or(1, |stride| *stride as isize);
        for (k, value) in values.iter().enumerate() {
            put(&mut values_out, first + step * k as isize, *value);
        }
        let Some(out) = &mut vectors_out else { continue };
        let (first, (row_step, col_step)) = (start(out.info(), index, 2), steps(out.info()));
        for (k, value) in values.iter().enumerate() {
            if matrix.is_cancelled() {
                break;
            }
            // The second vector of a conjugate pair is the conjugate of the first.
            let is_second = value[1] < 0.0;
            if !is_second {
                solve(&matrix, k, *value, solved);
                for (row, element) in vector.iter_mut().enumerate() {
                    *element = product(&basis, row, 0, solved);
                }
                normalize(vector, scales, value[1] == 0.0);
            }
            for (row, element) in vector.iter().enumerate() {
                let element = if is_second { [element[0], -element[1]] } else { *element };
                let at = first + row_step * row as isize + col_step * k as isize;
                put(out, at, element);
            }
        }
    }
    Ok(())
}

/// Scales rows and columns by powers of two until their norms are similar, and stores the scales.
fn balance(matrix: &mut Matrix, scales: &mut [f64]) {
    let n = matrix.cols;
    scales.fill(1.0);
    // Few rounds are ever needed: each reduces the norm by at least 5 %.
    for _ in 0..1000 {
        if matrix.is_cancelled() {
            break;
        }
        let mut is_done = true;
        for (i, scale) in scales.iter_mut().enumerate() {
            let others = || (0..n).filter(|other| *other != i);
            let column: f64 = others().map(|row| matrix.at(row, i).abs()).sum();
            let row: f64 = others().map(|col| matrix.at(i, col).abs()).sum();
            if column == 0.0 || row == 0.0 || !(column + row).is_finite() {
                continue;
            }
            let mut factor = 1.0;
            let (mut high, mut low) = (column, row);
            while high < low / 2.0 {
                (factor, high, low) = (factor * 2.0, high * 2.0, low / 2.0);
            }
            while high >= low * 2.0 {
                (factor, high, low) = (factor / 2.0, high / 2.0, low * 2.0);
            }
            if high + low >= 0.95 * (column + row) {
                continue;
            }
            is_done = false;
            *scale *= factor;
            for other in 0..n {
                matrix.set(i, other, matrix.at(i, other) / factor);
            }
            for other in 0..n {
                matrix.set(other, i, matrix.at(other, i) * factor);
            }
        }
        if is_done {
            return;
        }
    }
}

/// Householder reflection `1 - 2 v v'` of some rows, where `v` has length 1.
#[derive(Clone, Copy)]
struct Reflection<const N: usize>([f64; N]);

impl<const N: usize> Reflection<N> {
    /// The reflection that maps these elements to a multiple of the first unit vector. `None` if
    /// the others are already zero.
    fn of(mut elements: [f64; N]) -> Option<Self> {
        let size = elements.iter().fold(0.0, |size: f64, value| size.max(value.abs()));
        if size == 0.0 || elements.iter().skip(1).all(|value| *value == 0.0) {
            return None;
        }
        elements.iter_mut().for_each(|value| *value /= size);
        let length = |values: &[f64; N]| libm::sqrt(values.iter().map(|v| v * v).sum());
        elements[0] += f64::copysign(length(&elements), elements[0]);
        let length = length(&elements);
        elements.iter_mut().for_each(|value| *value /= length);
        Some(Reflection(elements))
    }

    /// Applies the reflection to the rows from `first` on, in columns from `from` on.
    fn rows(self, matrix: &mut Matrix, first: usize, from: usize) {
        for col in from..matrix.cols {
            let dot: f64 =
                self.0.iter().enumerate().map(|(i, v)| v * matrix.at(first + i, col)).sum();
            for (i, v) in self.0.iter().enumerate() {
                matrix.set(first + i, col, matrix.at(first + i, col) - 2.0 * dot * v);
            }
        }
    }

    /// Applies the reflection to the columns from `first` on, in rows before `end`.
    fn columns(self, matrix: &mut Matrix, first: usize, end: usize) {
        for row in 0..end {
            let dot: f64 =
                self.0.iter().enumerate().map(|(i, v)| v * matrix.at(row, first + i)).sum();
            for (i, v) in self.0.iter().enumerate() {
                matrix.set(row, first + i, matrix.at(row, first + i) - 2.0 * dot * v);
            }
        }
    }
}

/// Reduces a matrix to Hessenberg form. Multiplies the rotations into `basis`, which then maps the
/// new coordinates to the original ones.
fn to_hessenberg(matrix: &mut Matrix, basis: &mut Matrix) {
    let n = matrix.cols;
    for k in 0..n.saturating_sub(2) {
        if matrix.is_cancelled() {
            break;
        }
        // Each rotation zeroes an element below the subdiagonal.
        for row in k + 2..n {
            if matrix.at(row, k) == 0.0 {
                continue;
            }
            let (upper, lower) = (matrix.at(k + 1, k), matrix.at(row, k));
            let length = libm::hypot(upper, lower);
            let by = [upper / length, lower / length];
            rotate_rows(matrix, [k + 1, row], k, by);
            matrix.set(row, k, 0.0);
            rotate_columns(matrix, [k + 1, row], n, by);
            rotate_columns(basis, [k + 1, row], n, by);
        }
    }
}

/// Applies the Givens rotation that maps the vector `by` to the first axis to two rows, from column
/// `from` on.
fn rotate_rows(matrix: &mut Matrix, [a, b]: [usize; 2], from: usize, [cosine, sine]: [f64; 2]) {
    for col in from..matrix.cols {
        let (upper, lower) = (matrix.at(a, col), matrix.at(b, col));
        matrix.set(a, col, cosine * upper + sine * lower);
        matrix.set(b, col, cosine * lower - sine * upper);
    }
}

/// Applies that rotation (see [`rotate_rows`]) to two columns, in rows before `end`.
fn rotate_columns(matrix: &mut Matrix, [a, b]: [usize; 2], end: usize, [cosine, sine]: [f64; 2]) {
    for row in 0..end {
        let (left, right) = (matrix.at(row, a), matrix.at(row, b));
        matrix.set(row, a, cosine * left + sine * right);
        matrix.set(row, b, cosine * right - sine * left);
    }
}

/// Reduces a Hessenberg matrix to real Schur form: triangular, except for 2×2 blocks with complex
/// eigenvalues. Returns `None` if the iteration does not converge.
fn to_schur(matrix: &mut Matrix, basis: &mut Matrix, values: &mut [Complex<f64>]) -> Option<()> {
    let mut end = matrix.cols;
    let mut count = 0;
    while let Some(last) = end.checked_sub(1) {
        if matrix.is_cancelled() {
            break;
        }
        let first = block(matrix, last);
        if last - first > 1 {
            if count == MAX_STEPS {
                return None;
            }
            count += 1;
            step(matrix, basis, [first, last], count);
            continue;
        }
        if last == first {
            *values.get_mut(last)? = [matrix.at(last, last), 0.0];
        } else {
            let pair = split(matrix, basis, first);
            values.get_mut(first..=last)?.copy_from_slice(&pair);
        }
        (end, count) = (first, 0);
    }
    Some(())
}

/// Returns the first row of the unreduced block that ends with row `last`. The subdiagonal element
/// before that row is negligible and is set to zero.
fn block(matrix: &mut Matrix, last: usize) -> usize {
    for row in (1..=last).rev() {
        let beside = matrix.at(row - 1, row - 1).abs() + matrix.at(row, row).abs();
        let size = matrix.at(row, row - 1).abs();
        if size <= f64::EPSILON * beside || size < f64::MIN_POSITIVE {
            matrix.set(row, row - 1, 0.0);
            return row;
        }
    }
    0
}

/// One double-shift QR step on a block of at least three rows.
fn step(matrix: &mut Matrix, basis: &mut Matrix, [first, last]: [usize; 2], count: usize) {
    let n = matrix.cols;
    let at = |row: usize, col: usize| matrix.at(row, col);
    let (mut sum, mut product) = (
        at(last - 1, last - 1) + at(last, last),
        at(last - 1, last - 1) * at(last, last) - at(last - 1, last) * at(last, last - 1),
    );
    if count.is_multiple_of(10) {
        let size = at(last, last - 1).abs() + at(last - 1, last - 2).abs();
        (sum, product) = (1.5 * size, size * size);
    }
    let (a, b) = (at(first, first), at(first + 1, first));
    let mut vector = [
        a * a + at(first, first + 1) * b - sum * a + product,
        b * (a + at(first + 1, first + 1) - sum),
        b * at(first + 2, first + 1),
    ];
    for k in first..last - 1 {
        let from = if k > first { k - 1 } else { first };
        if let Some(reflection) = Reflection::of(vector) {
            reflection.rows(matrix, k, from);
            reflection.columns(matrix, k, last.min(k + 3) + 1);
            reflection.columns(basis, k, n);
        }
        if k > first {
            matrix.set(k + 1, k - 1, 0.0);
            matrix.set(k + 2, k - 1, 0.0);
        }
        let below = if k + 3 <= last { matrix.at(k + 3, k) } else { 0.0 };
        vector = [matrix.at(k + 1, k), matrix.at(k + 2, k), below];
    }
    if let Some(reflection) = Reflection::of([vector[0], vector[1]]) {
        reflection.rows(matrix, last - 1, last - 2);
        reflection.columns(matrix, last - 1, last + 1);
        reflection.columns(basis, last - 1, n);
    }
    matrix.set(last, last - 2, 0.0);
}

/// Computes the eigenvalues of a 2×2 block. If they are real, makes the block triangular.
fn split(matrix: &mut Matrix, basis: &mut Matrix, first: usize) -> [Complex<f64>; 2] {
    let last = first + 1;
    let (a, b) = (matrix.at(first, first), matrix.at(first, last));
    let (c, d) = (matrix.at(last, first), matrix.at(last, last));
    let half = (a - d) / 2.0;
    let square = half * half + b * c;
    if square < 0.0 {
        let (middle, root) = (d + half, libm::sqrt(-square));
        return [[middle, root], [middle, -root]];
    }
    let first_component = half + f64::copysign(libm::sqrt(square), half);
    let length = libm::hypot(first_component, c);
    if length > 0.0 {
        let by = [first_component / length, c / length];
        rotate_rows(matrix, [first, last], first, by);
        rotate_columns(matrix, [first, last], last + 1, by);
        rotate_columns(basis, [first, last], matrix.cols, by);
    }
    matrix.set(last, first, 0.0);
    [[matrix.at(first, first), 0.0], [matrix.at(last, last), 0.0]]
}

fn multiply(a: Complex<f64>, b: Complex<f64>) -> Complex<f64> {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}

/// Complex division; real operands give a real quotient.
fn divide(a: Complex<f64>, b: Complex<f64>) -> Complex<f64> {
    if b[1] == 0.0 {
        return [a[0] / b[0], a[1] / b[0]];
    }
    let size = b[0].abs().max(b[1].abs());
    let (a, b) = (a.map(|part| part / size), b.map(|part| part / size));
    let square = b[0] * b[0] + b[1] * b[1];
    multiply(a, [b[0], -b[1]]).map(|part| part / square)
}

fn subtract(a: Complex<f64>, b: Complex<f64>) -> Complex<f64> {
    [a[0] - b[0], a[1] - b[1]]
}

/// Dot product of a row, from column `from` on, with a vector.
fn product(matrix: &Matrix, row: usize, from: usize, vector: &[Complex<f64>]) -> Complex<f64> {
    vector.iter().enumerate().skip(from).fold([0.0; 2], |sum, (col, element)| {
        let factor = matrix.at(row, col);
        [sum[0] + factor * element[0], sum[1] + factor * element[1]]
    })
}

/// Computes the eigenvector of eigenvalue `k` of a matrix in real Schur form. For a conjugate pair,
/// `k` is the first of both.
fn solve(matrix: &Matrix, k: usize, value: Complex<f64>, vector: &mut [Complex<f64>]) {
    let size = matrix.data.iter().fold(0.0, |size: f64, value| size.max(value.abs()));
    let least = (size * f64::EPSILON).max(f64::MIN_POSITIVE);
    vector.fill([0.0; 2]);
    let set = |at: usize, element: Complex<f64>, vector: &mut [Complex<f64>]| {
        if let Some(slot) = vector.get_mut(at) {
            *slot = element;
        }
        // Rescales the vector to avoid overflow.
        if element[0].abs().max(element[1].abs()) > 1e100 {
            vector.iter_mut().flatten().for_each(|part| *part *= 1e-100);
        }
    };
    let shifted = |row: usize| {
        let found = subtract([matrix.at(row, row), 0.0], value);
        if found[0].abs().max(found[1].abs()) < least { [least, 0.0] } else { found }
    };
    let mut end = k;
    set(k, [1.0, 0.0], vector);
    if value[1] != 0.0 {
        let (above, below) = (matrix.at(k, k + 1), matrix.at(k + 1, k));
        let other = if above.abs() >= below.abs() {
            subtract(value, [matrix.at(k, k), 0.0]).map(|part| part / above)
        } else {
            divide([below, 0.0], subtract(value, [matrix.at(k + 1, k + 1), 0.0]))
        };
        set(k + 1, other, vector);
    }
    let known = |row: usize, from: usize, vector: &[Complex<f64>]| {
        product(matrix, row, from, vector).map(|part| -part)
    };
    while let Some(row) = end.checked_sub(1) {
        let before = row.checked_sub(1).filter(|before| matrix.at(row, *before) != 0.0);
        let Some(before) = before else {
            set(row, divide(known(row, row + 1, vector), shifted(row)), vector);
            end = row;
            continue;
        };
        // A 2×2 block: both rows are solved together.
        let (first, second) = (known(before, row + 1, vector), known(row, row + 1, vector));
        let (a, d) = (shifted(before), shifted(row));
        let (b, c) = ([matrix.at(before, row), 0.0], [matrix.at(row, before), 0.0]);
        let mut whole = subtract(multiply(a, d), multiply(b, c));
        let smallest = (least * least).max(f64::MIN_POSITIVE);
        if whole[0].abs().max(whole[1].abs()) < smallest {
            whole = [smallest, 0.0];
        }
        let upper = divide(subtract(multiply(d, first), multiply(b, second)), whole);
        let lower = divide(subtract(multiply(a, second), multiply(c, first)), whole);
        set(row, lower, vector);
        set(before, upper, vector);
        end = before;
    }
}

/// Undoes the balancing of an eigenvector, scales it to length 1 and, if it is complex, rotates it
/// so that its largest element is real.
fn normalize(vector: &mut [Complex<f64>], scales: &[f64], is_real: bool) {
    for (element, scale) in vector.iter_mut().zip(scales) {
        *element = element.map(|part| part * scale);
    }
    let size = vector.iter().flatten().fold(0.0, |size: f64, part| size.max(part.abs()));
    if size == 0.0 {
        return;
    }
    vector.iter_mut().flatten().for_each(|part| *part /= size);
    let length = libm::sqrt(vector.iter().flatten().map(|part| part * part).sum());
    vector.iter_mut().flatten().for_each(|part| *part /= length);
    if is_real {
        return;
    }
    let square = |element: &Complex<f64>| element[0] * element[0] + element[1] * element[1];
    let mut largest = ([1.0, 0.0], 0.0, 0);
    for (at, element) in vector.iter().enumerate() {
        if square(element) > largest.1 {
            largest = (*element, square(element), at);
        }
    }
    let (element, found, index) = largest;
    let back = [element[0], -element[1]].map(|part| part / libm::sqrt(found));
    for element in vector.iter_mut() {
        *element = multiply(*element, back);
    }
    if let Some(element) = vector.get_mut(index) {
        element[1] = 0.0;
    }
}
