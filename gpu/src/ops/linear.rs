//! Matrix multiplication operators.

use super::layer_norms::LayerNorm;
use super::matmul::Product;
use super::normed::Norm;
use super::quantized::{plain, product_of_rows};
use super::weights::{transposed, transposed_compactly};
use super::window::checked_numel;
use super::{Entry, product};
use crate::derived::Matrices;
use crate::encoder::Encoder;
use crate::error::Error;
use crate::stages::Epilogue;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{AddmmArgs, BaddbmmArgs, MmArgs, Operator};

pub(super) const OPERATORS: &[Entry] = &[
    product(Operator::MM, |e, args| {
        let call = MmArgs::of(args)?;
        let (a, b) = (e.tensor(call.input)?, e.tensor(call.mat2)?);
        multiply(e, args, a, b, None)
    }),
    product(Operator::BMM, |e, args| {
        let call = MmArgs::of(args)?;
        let (a, b) = (e.tensor(call.input)?, e.tensor(call.mat2)?);
        multiply(e, args, a, b, None)
    }),
    product(Operator::ADDMM, |e, args| {
        let call = AddmmArgs::of(args)?;
        let bias = e.tensor(call.input)?;
        let (a, b) = (e.tensor(call.mat1)?, e.tensor(call.mat2)?);
        let (beta, alpha) = (factor(e, call.beta)?, factor(e, call.alpha)?);
        multiply(e, args, a, b, Some(Bias { tensor: bias, alpha, beta }))
    }),
    product(Operator::BADDBMM, |e, args| {
        let call = BaddbmmArgs::of(args)?;
        let bias = e.tensor(call.input)?;
        let (a, b) = (e.tensor(call.batch1)?, e.tensor(call.batch2)?);
        let (beta, alpha) = (factor(e, call.beta)?, factor(e, call.alpha)?);
        multiply(e, args, a, b, Some(Bias { tensor: bias, alpha, beta }))
    }),
    product(Operator::LINEAR, linear),
];

/// The bias of a GEMM: `alpha * (a · b) + beta * tensor`.
struct Bias {
    tensor: Operand,
    alpha: f64,
    beta: f64,
}

/// Returns a scalar argument; 1 if the call lacks it.
fn factor(e: &Encoder<'_, '_>, given: Option<ValueId>) -> Result<f64, Error> {
    Ok(e.optional_float(given)?.unwrap_or(1.0))
}

/// Encodes a multiplication of `[batch, m, k]` by `[batch, k, n]`, or of `[m, k]` by `[k, n]`.
fn multiply(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    a: Operand,
    b: Operand,
    bias: Option<Bias>,
) -> Result<(), Error> {
    let [a_shape, b_shape] = [&a, &b].map(|operand| match operand.sizes[..] {
        [rows, columns] => Some([1, rows, columns]),
        [batch, rows, columns] => Some([batch, rows, columns]),
        _ => None,
    });
    let (Some([batches, m, k]), Some([b_batches, b_k, n])) = (a_shape, b_shape) else {
        return Err(Error::Invalid(format!(
            "operand shapes {:?} and {:?} do not match",
            a.sizes, b.sizes
        )));
    };
    if batches != b_batches || k != b_k || a.rank() != b.rank() {
        return Err(Error::Invalid(format!(
            "operand shapes {:?} and {:?} do not match",
            a.sizes, b.sizes
        )));
    }
    let a_rank = a.rank();
    let sizes = if a_rank == 3 { vec![batches, m, n] } else { vec![m, n] };
    let out = e.resize(e.out_id(args)?, &sizes)?;
    let mut matmul = Product::new(a, b, out, [m, n, k]);
    matmul.batches = batches;
    matmul.bound = match e.bound_sizes(&matmul.out)[..] {
        [m, n] => Some([1, m, n]),
        [batches, m, n] => Some([batches, m, n]),
        _ => None,
    };
    // A bias with a factor of zero is ignored, even if it contains NaN.
    if let Some(bias) = bias.as_ref().filter(|bias| bias.beta == 0.0) {
        matmul.alpha = bias.alpha;
    } else if let Some(bias) = bias {
        let [batch, row, column] = match bias.tensor.sizes[..] {
            [] => [1, 1, 1],
            [column] => [1, 1, column],
            [row, column] => [1, row, column],
            [batch, row, column] if a_rank == 3 => [batch, row, column],
            _ => {
                return Err(Error::Invalid(format!(
                    "bias shape {:?} does not broadcast to {sizes:?}",
                    bias.tensor.sizes
                )));
            }
        };
        let fits = |size: usize, whole: usize| size == 1 || size == whole;
        if !fits(batch, batches) || !fits(row, m) || !fits(column, n) {
            return Err(Error::Invalid(format!(
                "bias shape {:?} does not broadcast to {sizes:?}",
                bias.tensor.sizes
            )));
        }
        let strides = [if row == 1 { 0 } else { column }, if column == 1 { 0 } else { 1 }];
        let batch_stride = if batch == 1 { 0 } else { row * column };
        matmul.bias = Some((bias.tensor, batch_stride, strides));
        (matmul.alpha, matmul.beta) = (bias.alpha, bias.beta);
    }
    matmul.encode(e)
}

fn linear(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let it = plain(e, args)?;
    let epilogue = e.take_epilogue().unwrap_or_else(Epilogue::none);
    if let Some(norm) = LayerNorm::of(e, &it.input)? {
        return norm.multiply(e, it, epilogue);
    }
    let norm = Norm::of(e, &it.input)?;
    if product_of_rows(e, &it, &epilogue, norm)? {
        return Ok(());
    }
    let matrix = Matrices { count: 1, rows: it.n, columns: it.k };
    let transposed = if e.constant(it.weight.id).is_some() {
        transposed(e, &it.weight, matrix)?
    } else {
        transposed_compactly(e, &it.weight, matrix)?
    };
    let mut matmul = Product::new(it.input, transposed, it.out, [it.m, it.n, it.k]);
    matmul.bias = it.bias.map(|bias| (bias, 0, [0, 1]));
    matmul.epilogue = Some(epilogue);
    let bound = checked_numel(&e.bound_sizes(&matmul.out))?;
    matmul.bound = Some([1, (bound / it.n.max(1)).max(1), it.n]);
    matmul.encode(e)
}
