//! Converts Fourier transforms to matrix multiplications with constant cosines and sines.

use super::builder::Builder;
use super::ops::operands;
use super::spirv::{Call, TensorType};
use crate::error::Error;
use crate::graph::ValueId;
use crate::operators::Operator;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Largest size of a transformed dim: the matrices have its square.
const MAX_SIZE: usize = 1024;

/// A complex tensor; a real one has no imaginary part.
#[derive(Clone, Copy)]
struct Complex {
    real: ValueId,
    imaginary: Option<ValueId>,
}

/// Adds `FFT2D`, or `RFFT2D` if the input is real. Returns the real and the imaginary part.
pub(super) fn transform(
    b: &mut Builder<'_, '_>,
    call: &Call,
    is_complex: bool,
) -> Result<Vec<ValueId>, Error> {
    let (input, inverse) = if is_complex {
        let [inverse, _, real, imaginary] = operands(&call.operands)?;
        let input = Complex { real: b.read(real)?, imaginary: Some(b.read(imaginary)?) };
        (input, b.module.int(inverse)? != 0)
    } else {
        let [_, input] = operands(&call.operands)?;
        (Complex { real: b.read(input)?, imaginary: None }, false)
    };
    let &[batch, height, width] = &b.sizes(input.real)?[..] else {
        return Err(Error::invalid("an input of another rank than 3"));
    };
    if height.max(width) > MAX_SIZE || b.scalar_type(input.real)? != ScalarType::Float {
        return Err(Error::Unsupported(format!(
            "a transform of {height} x {width} values: expected fp32, and at most {MAX_SIZE}"
        )));
    }
    let columns = if is_complex { width } else { width / 2 + 1 };
    let expected = [batch, height, columns];
    let fits = |of: &TensorType| of.sizes == expected && of.scalar_type == ScalarType::Float;
    if !b.two_results(call)?.into_iter().all(fits) {
        return Err(Error::Invalid(format!("the results are not fp32 tensors {expected:?}")));
    }
    let sign = if inverse { 1.0 } else { -1.0 };
    // The rows of the matrix are the positions in the input.
    let [cosines, sines] = matrices(b, batch, [width, columns], sign, false)?;
    let wide = |b: &mut Builder<'_, '_>, value: ValueId, matrix: ValueId| {
        b.call(Operator::BMM, &[value, matrix], ScalarType::Float, &[batch, height, columns])
    };
    let rows = multiplied(b, input, [cosines, sines], &wide)?;
    let [cosines, sines] = matrices(b, batch, [height, height], sign, true)?;
    let tall = |b: &mut Builder<'_, '_>, value: ValueId, matrix: ValueId| {
        b.call(Operator::BMM, &[matrix, value], ScalarType::Float, &[batch, height, columns])
    };
    let made = multiplied(b, rows, [cosines, sines], &tall)?;
    Ok(vec![made.real, made.imaginary.unwrap_or(made.real)])
}

type Multiply<'f> = &'f dyn Fn(&mut Builder<'_, '_>, ValueId, ValueId) -> ValueId;

/// Multiplies a complex tensor by a complex matrix.
fn multiplied(
    b: &mut Builder<'_, '_>,
    input: Complex,
    [cosines, sines]: [ValueId; 2],
    multiply: Multiply<'_>,
) -> Result<Complex, Error> {
    let real = multiply(b, input.real, cosines);
    let imaginary = multiply(b, input.real, sines);
    let Some(other) = input.imaginary else {
        return Ok(Complex { real, imaginary: Some(imaginary) });
    };
    let (one, across) = (b.int(1), multiply(b, other, sines));
    let real = b.same(Operator::SUB_TENSOR, &[real, across, one])?;
    let across = multiply(b, other, cosines);
    let imaginary = b.same(Operator::ADD_TENSOR, &[imaginary, across, one])?;
    Ok(Complex { real, imaginary: Some(imaginary) })
}

/// Cosines and sines of a transform from the first size to the second, for each batch.
fn matrices(
    b: &mut Builder<'_, '_>,
    batch: usize,
    [from, to]: [usize; 2],
    sign: f64,
    transposed: bool,
) -> Result<[ValueId; 2], Error> {
    let [rows, columns] = if transposed { [to, from] } else { [from, to] };
    let matrix = |b: &mut Builder<'_, '_>, function: fn(f64) -> f64| {
        let angle = |row: usize, column: usize| {
            let turns = (row * column % from) as f64 / from.max(1) as f64;
            sign * core::f64::consts::TAU * turns
        };
        let of = TensorType { scalar_type: ScalarType::Float, sizes: vec![1, rows, columns] };
        b.computed(&of, || {
            let positions = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
            let values = positions.map(|(row, column)| function(angle(row, column)) as f32);
            Ok(values.flat_map(f32::to_le_bytes).collect())
        })
    };
    // Both operands of a batched multiplication have the batch.
    let (cosines, sines) = (matrix(b, libm::cos)?, matrix(b, libm::sin)?);
    let sizes = [batch, rows, columns];
    Ok([b.expand(cosines, &sizes)?, b.expand(sines, &sizes)?])
}
