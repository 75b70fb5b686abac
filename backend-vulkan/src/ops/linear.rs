//! Products of matrices.

use super::weights::{transposed, transposed_compactly};
use super::window::checked_numel;
use super::{Entry, product};
use crate::derived::Matrices;
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::stages::Epilogue;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::Operator;
use torchlet_shaders::{Matmul, MatmulPush};

pub(super) const OPERATORS: &[Entry] = &[
    product(Operator::MM, None, |e, args| {
        let (a, b) = (e.tensor(e.arg(args, 0)?)?, e.tensor(e.arg(args, 1)?)?);
        multiply(e, args, a, b, None)
    }),
    product(Operator::BMM, None, |e, args| {
        let (a, b) = (e.tensor(e.arg(args, 0)?)?, e.tensor(e.arg(args, 1)?)?);
        multiply(e, args, a, b, None)
    }),
    product(Operator::ADDMM, None, |e, args| {
        let bias = e.tensor(e.arg(args, 0)?)?;
        let (a, b) = (e.tensor(e.arg(args, 1)?)?, e.tensor(e.arg(args, 2)?)?);
        let (beta, alpha) = (factor(e, args, 3)?, factor(e, args, 4)?);
        multiply(e, args, a, b, Some(Bias { tensor: bias, alpha, beta }))
    }),
    product(Operator::BADDBMM, None, |e, args| {
        let bias = e.tensor(e.arg(args, 0)?)?;
        let (a, b) = (e.tensor(e.arg(args, 1)?)?, e.tensor(e.arg(args, 2)?)?);
        let (beta, alpha) = (factor(e, args, 3)?, factor(e, args, 4)?);
        multiply(e, args, a, b, Some(Bias { tensor: bias, alpha, beta }))
    }),
    product(Operator::LINEAR, None, linear),
];

/// What is added to a product: `alpha * product + beta * tensor`.
struct Bias {
    tensor: Operand,
    alpha: f64,
    beta: f64,
}

/// A factor that is 1 where it is left out.
fn factor(e: &Encoder<'_, '_>, args: &[ValueId], position: usize) -> Result<f64, Error> {
    let given = if args.len() > position + 1 { e.optional_float(args[position])? } else { None };
    Ok(given.unwrap_or(1.0))
}

/// Matrices `[batch, m, k]` times `[batch, k, n]`, or without batches.
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
        return Err(Error::Invalid(format!("a product of {:?} and {:?}", a.sizes, b.sizes)));
    };
    if batches != b_batches || k != b_k || a.rank() != b.rank() {
        return Err(Error::Invalid(format!("a product of {:?} and {:?}", a.sizes, b.sizes)));
    }
    let a_rank = a.rank();
    let sizes = if a_rank == 3 { vec![batches, m, n] } else { vec![m, n] };
    let out = e.resize(e.out(args)?.id, &sizes)?;
    let mut matmul = Product::new(a, b, out, [m, n, k]);
    matmul.batches = batches;
    matmul.bound = match e.bound_sizes(&matmul.out)[..] {
        [m, n] => Some([1, m, n]),
        [batches, m, n] => Some([batches, m, n]),
        _ => None,
    };
    // What is multiplied with zero does not count, whatever it is.
    if let Some(bias) = bias.as_ref().filter(|bias| bias.beta == 0.0) {
        matmul.alpha = bias.alpha;
    } else if let Some(bias) = bias {
        let [batch, row, column] = match bias.tensor.sizes[..] {
            [] => [1, 1, 1],
            [column] => [1, 1, column],
            [row, column] => [1, row, column],
            [batch, row, column] if a_rank == 3 => [batch, row, column],
            _ => return Err(Error::Invalid(format!("a bias of shape {:?}", bias.tensor.sizes))),
        };
        let fits = |size: usize, whole: usize| size == 1 || size == whole;
        if !fits(batch, batches) || !fits(row, m) || !fits(column, n) {
            return Err(Error::Invalid(format!(
                "a bias of shape {:?} for a product of shape {sizes:?}",
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
    let (input, weight) = (e.tensor(e.arg(args, 0)?)?, e.tensor(e.arg(args, 1)?)?);
    let bias = if args.len() > 3 { e.optional_tensor(args[2])? } else { None };
    let (Some((k, outer)), [n, weight_k]) = (input.sizes.split_last(), &weight.sizes[..]) else {
        return Err(Error::Invalid(format!("weights of shape {:?}", weight.sizes)));
    };
    let (k, n) = (*k, *n);
    if k != *weight_k {
        let (input, weight) = (&input.sizes, &weight.sizes);
        return Err(Error::Invalid(format!("an input of shape {input:?} and weights {weight:?}")));
    }
    if bias.as_ref().is_some_and(|bias| bias.sizes != [n]) {
        return Err(Error::invalid("the bias does not fit the weights"));
    }
    let m = checked_numel(outer)?;
    let mut sizes = outer.to_vec();
    sizes.push(n);
    let out = e.resize(e.out(args)?.id, &sizes)?;
    let matrix = Matrices { count: 1, rows: n, columns: k };
    let transposed = if e.constant(weight.id).is_some() {
        transposed(e, &weight, matrix)?
    } else {
        transposed_compactly(e, &weight, matrix)?
    };
    let mut matmul = Product::new(input, transposed, out, [m, n, k]);
    matmul.bias = bias.map(|bias| (bias, 0, [0, 1]));
    let bound = checked_numel(&e.bound_sizes(&matmul.out))?;
    matmul.bound = Some([1, (bound / n.max(1)).max(1), n]);
    matmul.encode(e)
}

/// A product of matrices to encode: `out[m][n] = epilogue(alpha * sum of a[m][k] * b[k][n] + beta * bias)` for each batch.
#[derive(Debug)]
pub(super) struct Product {
    a: Operand,
    b: Operand,
    out: Operand,
    m: usize,
    n: usize,
    k: usize,
    pub(super) batches: usize,
    /// After so many batches, `a` and the bias start again.
    pub(super) period: Option<usize>,
    /// `a` is `[k][m]`, from [`transposed`].
    pub(super) a_transposed: bool,
    /// With its strides for batches, and for rows and columns.
    pub(super) bias: Option<(Operand, usize, [usize; 2])>,
    alpha: f64,
    beta: f64,
    /// If not the one of the call.
    pub(super) epilogue: Option<Epilogue>,
    /// Batches, rows and columns at most: what the kernel is chosen by.
    pub(super) bound: Option<[usize; 3]>,
}

impl Product {
    pub(super) fn new(a: Operand, b: Operand, out: Operand, [m, n, k]: [usize; 3]) -> Self {
        Product {
            a,
            b,
            out,
            m,
            n,
            k,
            batches: 1,
            period: None,
            a_transposed: false,
            bias: None,
            alpha: 1.0,
            beta: 1.0,
            epilogue: None,
            bound: None,
        }
    }

    /// Emits the dispatch.
    pub(super) fn encode(self, e: &mut Encoder<'_, '_>) -> Result<(), Error> {
        let Product { a, b, out, m, n, k, batches, .. } = self;
        for operand in [Some(&a), Some(&b), Some(&out), self.bias.as_ref().map(|bias| &bias.0)]
            .into_iter()
            .flatten()
        {
            checked_numel(&operand.sizes)?;
            if !operand.element.is_floating() {
                return Err(Error::unsupported("products of integers"));
            }
        }
        if batches * m * n == 0 {
            return Ok(());
        }
        let a_pitch = if self.a_transposed { a.sizes.last().copied().unwrap_or(m) } else { k };
        let b_pitch = match b.sizes.last() {
            // Transposed weights are padded.
            Some(pitch) if *pitch >= n && b.rank() == 3 && batches == 1 => *pitch,
            _ => n,
        };
        let [bound_batches, bound_m, bound_n] = self.bound.unwrap_or([batches, m, n]);
        let rows: usize = match bound_m {
            1 => 1,
            2 => 2,
            3 | 4 | 9..=12 => 4,
            _ => 8,
        };
        let (columns, tiles) = (bound_n.div_ceil(4), bound_m.div_ceil(rows));
        let shares = share(e.busy(), columns * tiles * bound_batches, k);
        let workgroup = workgroup(columns, tiles, shares);
        let partials =
            if shares > 1 { rows * workgroup.iter().product::<u32>() as usize } else { 1 };
        let (bias, bias_batch, [bias_row, bias_column]) =
            self.bias.clone().unwrap_or_else(|| (a.clone(), 0, [0, 0]));
        let period = self.period.unwrap_or(batches).max(1);
        let epilogue = self.epilogue.or_else(|| e.take_epilogue()).unwrap_or_else(Epilogue::none);
        let residual = epilogue.residual.clone().unwrap_or_else(|| a.clone());
        let pipeline = Matmul {
            a: a.element,
            b: b.element,
            bias: bias.element,
            output: out.element,
            rows: u32_of(rows)?,
            a_transposed: self.a_transposed,
            a_aligned: k.is_multiple_of(4),
            b_aligned: b_pitch.is_multiple_of(4),
            out_aligned: n.is_multiple_of(4),
            has_bias: self.bias.is_some(),
            shares: u32_of(shares)?,
            partials: u32_of(partials)?,
            activation: epilogue.activation,
            residual: residual.element,
            has_residual: epilogue.residual.is_some(),
        };
        let push = MatmulPush {
            m: u32_of(m)?,
            n: u32_of(n)?,
            k: u32_of(k)?,
            a_pitch: u32_of(a_pitch)?,
            b_pitch: u32_of(b_pitch)?,
            a_batch: u32_of(if self.a_transposed { k * a_pitch } else { m * k })?,
            b_batch: u32_of(k * b_pitch)?,
            bias_batch: u32_of(bias_batch)?,
            period: u32_of(period)?,
            bias_row: u32_of(bias_row)?,
            bias_column: u32_of(bias_column)?,
            alpha: self.alpha as f32,
            beta: self.beta as f32,
            a: epilogue.a,
            b: epilogue.b,
        };
        let accesses = [read(a.id), read(b.id), read(bias.id), read(residual.id), write(out.id)];
        let invocations = [n.div_ceil(4), m.div_ceil(rows), batches * shares];
        e.dispatch(&pipeline, accesses, &push, invocations, workgroup)
    }
}

/// How many invocations share a sum over `count` terms, so that `tiles` of them keep the device busy. There are few
/// choices, so that there are few pipelines.
pub(super) fn share(busy: usize, tiles: usize, count: usize) -> usize {
    let worthwhile = |shares: usize| {
        tiles.saturating_mul(shares) <= busy && count >= shares.saturating_mul(LEAST_TERMS)
    };
    [64, 16, 4].into_iter().find(|shares| worthwhile(*shares)).unwrap_or(1)
}

/// The terms that an invocation sums at least.
const LEAST_TERMS: usize = 8;

/// A workgroup for tiles across and down, with sums that are shared.
pub(super) fn workgroup(across: usize, down: usize, shares: usize) -> [u32; 3] {
    match (shares, across > 1, down > 1) {
        (1, true, true) => [16, 4, 1],
        (1, _, false) => [64, 1, 1],
        (1, false, true) => [1, 64, 1],
        (4, true, true) => [16, 2, 4],
        (4, _, false) => [32, 1, 4],
        (4, false, true) => [1, 32, 4],
        (16, true, _) => [8, 1, 16],
        (16, false, _) => [1, 8, 16],
        (_, true, _) => [2, 1, 64],
        (_, false, _) => [1, 2, 64],
    }
}
