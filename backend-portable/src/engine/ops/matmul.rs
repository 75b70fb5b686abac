//! Matrix multiplication, with constant right operands packed ahead of time.

use super::moves::copy;
use crate::compute::gemm::{
    Bias, Context, Epilogue, Matrix, MatrixMut, PackedRhs, ShapeMismatch, gemm, gemm_packed,
    gemm_workspace_len,
};
use crate::compute::simd::Tier;
use crate::compute::split::{Outcome, Serial, for_each_chunks_mut};
use crate::compute::storage::Stored;
use crate::engine::builder::{Builder, Refusal};
use crate::engine::numbers::{Precision, typed};
use crate::engine::packed::{Constant, Form};
use crate::engine::plan::{Io, Step};
use crate::engine::view::View;
use half::{bf16, f16};
use std::vec::Vec;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{AddmmArgs, LinearArgs, MmArgs};

/// Lowers `input · weightᵀ + bias`.
pub(super) fn linear(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = LinearArgs::of(args)?;
    let input = builder.view(call.input)?;
    let weight = call.weight;
    let [n, k] = *builder.sizes(weight)? else { return Err("weights: expected 2 dims".into()) };
    let rows = input.numel().checked_div(k).ok_or("weights without columns")?;
    let a = builder.reshaped(&input, &[rows, k])?;
    let right = Right::new(builder, weight, [k, n], true)?;
    let bias = match builder.optional(call.bias)? {
        Some(bias) => Some(bias.expanded(&[rows, n]).ok_or_else(|| {
            std::format!("bias: expected {n} elements, found shape {:?}", bias.sizes)
        })?),
        None => None,
    };
    let mut sizes = input.sizes;
    if let Some(last) = sizes.last_mut() {
        *last = n;
    }
    let c = multiply(builder, a, right, bias, 1.0, 1.0)?;
    let c = c
        .reshaped(&sizes)
        .ok_or("internal error: the output of a linear layer has another number of elements")?;
    builder.define(call.out, c)
}

/// Lowers `beta · self + alpha · mat1 · mat2`.
pub(super) fn addmm(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = AddmmArgs::of(args)?;
    let addend = builder.view(call.input)?;
    let a = builder.view(call.mat1)?;
    let right = call.mat2;
    let [k, n] = *builder.sizes(right)? else {
        return Err("GEMM operands: expected 2 dims".into());
    };
    let &[m, _] = &a.sizes[..] else { return Err("GEMM operands: expected 2 dims".into()) };
    let (beta, alpha) = (builder.number(call.beta)?, builder.number(call.alpha)?);
    let addend =
        addend.expanded(&[m, n]).ok_or("addend: expected a shape that broadcasts to the output")?;
    let right = Right::new(builder, right, [k, n], false)?;
    let c = multiply(builder, a, right, Some(addend), alpha as f32, beta as f32)?;
    builder.define(call.out, c)
}

/// Lowers `mm` and `bmm`.
pub(super) fn matmul(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = MmArgs::of(args)?;
    let a = builder.view(call.input)?;
    let id = call.mat2;
    let c = match *builder.sizes(id)? {
        [k, n] => {
            let right = Right::new(builder, id, [k, n], false)?;
            multiply(builder, a, right, None, 1.0, 0.0)?
        }
        [_, _, _] => batched(builder, a, id)?,
        _ => return Err("GEMM operands: expected 2 dims".into()),
    };
    builder.define(call.out, c)
}

fn batched(builder: &mut Builder<'_, '_>, a: View, b: ValueId) -> Result<View, Refusal> {
    let b = builder.view(b)?;
    let (&[count, m, k], &[other, same, n]) = (&a.sizes[..], &b.sizes[..]) else {
        return Err(std::format!(
            "batched GEMM operands: expected 3 dims, found shapes {:?} and {:?}",
            a.sizes,
            b.sizes
        ));
    };
    if other != count || same != k {
        return Err(std::format!("operand shapes {:?} and {:?} do not match", a.sizes, b.sizes));
    }
    let out = builder.make(&[count, m, n])?;
    builder.push(
        Batch { count, shape: [m, k, n], a: MatrixLayout::of(&a), b: MatrixLayout::of(&b) },
        &[&a, &b],
        &out,
    );
    Ok(out)
}

/// The right operand of a matrix multiplication.
enum Right<'p> {
    /// Packed for the instruction set of this machine.
    Packed { data: Constant<'p>, precision: Precision, k: usize, n: usize },
    /// An unpacked matrix: a view `[k, n]`.
    Plain(View),
    /// A constant that would be packed, if only support is queried.
    Later { k: usize, n: usize },
}

impl<'p> Right<'p> {
    /// Creates the operand `[k, n]` from a value, which may be stored transposed.
    fn new(
        builder: &mut Builder<'_, 'p>,
        id: ValueId,
        [k, n]: [usize; 2],
        transposed: bool,
    ) -> Result<Self, Refusal> {
        let tier = builder.machine.tier;
        let packed = PackedRhs::len(tier, k, n).ok_or("a matrix that exceeds the address space")?;
        // Packing pads the columns; very narrow matrices would become more than twice as large.
        let pays = tier != Tier::SCALAR && packed <= k.saturating_mul(n).saturating_mul(2);
        if pays && builder.is_constant(id) {
            if builder.is_question() {
                return Ok(Right::Later { k, n });
            }
            let precision = builder.precision(id)?;
            let form = Form::Matmul { k, n, transposed };
            let len = precision.words(packed);
            let data = builder.packed_bytes(id, form, len, |context, data, packed| {
                let strides = if transposed { [1, k] } else { [n, 1] };
                let pack = Pack { context, shape: [k, n], strides, packed };
                match precision {
                    Precision::Single => pack.of(&typed(data, f32::from_le_bytes)),
                    Precision::Half => pack.of(&typed(data, f16::from_le_bytes)),
                    Precision::BFloat => pack.of(&typed(data, bf16::from_le_bytes)),
                }
            })?;
            return Ok(Right::Packed { data, precision, k, n });
        }
        let view = builder.view(id)?;
        let view = if transposed { view.permuted(&[1, 0]) } else { Some(view) };
        view.map(Right::Plain).ok_or_else(|| "GEMM operands: expected 2 dims".into())
    }

    fn sizes(&self) -> [usize; 2] {
        match self {
            Right::Packed { k, n, .. } | Right::Later { k, n } => [*k, *n],
            Right::Plain(view) => [0, 1].map(|dim| view.sizes.get(dim).copied().unwrap_or(0)),
        }
    }
}

/// Appends `alpha · a · b + beta · addend`; the result is row-major.
fn multiply<'p>(
    builder: &mut Builder<'_, 'p>,
    a: View,
    right: Right<'p>,
    addend: Option<View>,
    alpha: f32,
    beta: f32,
) -> Result<View, Refusal> {
    let [k, n] = right.sizes();
    let &[m, same] = &a.sizes[..] else { return Err("GEMM operands: expected 2 dims".into()) };
    if same != k {
        return Err(std::format!("operand shapes {:?} and [{k}, {n}] do not match", a.sizes));
    }
    let mut epilogue = builder.take_epilogue();
    let mut out = builder.make(&[m, n])?;
    let addend = addend.filter(|_| beta != 0.0);
    // An addend with one row, or with the same row for all, is a bias. Any other addend is copied
    // to the output first.
    let is_row = |view: &View| m == 1 || view.strides.first() == Some(&0);
    let bias = addend
        .clone()
        .filter(|view| beta == 1.0 && is_row(view) && (n == 1 || view.strides.get(1) == Some(&1)));
    let beta = match (&addend, &bias) {
        (Some(addend), None) => {
            copy(builder, addend, &out);
            beta
        }
        _ => epilogue.add_in_place(builder, &mut out),
    };
    let mut reads = std::vec![a.clone()];
    let b = match right {
        Right::Packed { data, precision, .. } => Operand::Packed(data, precision),
        Right::Plain(view) => {
            let layout = MatrixLayout::of(&view);
            reads.push(view);
            Operand::Plain(layout)
        }
        Right::Later { .. } => Operand::Nothing,
    };
    let bias = bias.map(|view| {
        let at = view.offset;
        reads.push(view);
        (reads.len() - 1, at)
    });
    let limits = epilogue.take_limits();
    let step = Matmul { shape: [m, k, n], a: MatrixLayout::of(&a), b, bias, alpha, beta, limits };
    let reads: Vec<&View> = reads.iter().collect();
    builder.push(step, &reads, &out);
    epilogue.apply(builder, out)
}

/// Packs a right operand without converting its dtype. `shape` is `[k, n]`, `strides` are those of
/// rows and columns.
struct Pack<'a> {
    context: Context<'a>,
    shape: [usize; 2],
    strides: [usize; 2],
    packed: &'a mut [f32],
}

impl Pack<'_> {
    fn of<E: Stored + bytemuck::Pod>(self, data: &[E]) -> Result<(), Refusal> {
        let ([k, n], [row, col]) = (self.shape, self.strides);
        let matrix = Matrix::new(data, k, n, row, col)
            .ok_or("weights with less data than their shape requires")?;
        let packed = match E::as_f32(data) {
            // `pack` transposes blocks of `f32` in registers.
            Some(_) => PackedRhs::pack(self.context, matrix, self.packed).map(drop),
            None => {
                let packed = bytemuck::cast_slice_mut(self.packed);
                PackedRhs::pack_as_is(self.context, matrix, packed).map(drop)
            }
        };
        packed.map_err(|_| "a matrix that exceeds the address space".into())
    }
}

/// A call of the GEMM with a packed right operand of shape `[k, n]`.
struct Packed<'a> {
    context: Context<'a>,
    a: Matrix<'a, f32>,
    shape: [usize; 2],
    c: MatrixMut<'a>,
    epilogue: &'a Epilogue<'a>,
    workspace: &'a mut [f32],
}

impl Packed<'_> {
    fn with<E: Stored + bytemuck::Pod>(self, words: &[f32]) -> Result<(), ShapeMismatch> {
        let Packed { context, a, shape: [k, n], c, epilogue, workspace } = self;
        let b = PackedRhs::<E>::from_packed(context.tier, k, n, bytemuck::cast_slice(words))?;
        gemm_packed(context, a, b, c, epilogue, workspace)
    }
}

/// Layout of a matrix or a batch of matrices: offset, and strides of batch, rows and columns.
#[derive(Debug, Clone, Copy)]
pub(super) struct MatrixLayout {
    at: usize,
    batch: usize,
    row: usize,
    col: usize,
}

impl MatrixLayout {
    /// Layout of a view: the last two dims are rows and columns, the one before is the batch.
    pub(super) fn of(view: &View) -> Self {
        let mut strides = view.strides.iter().rev().copied();
        let mut next = || strides.next().unwrap_or(0);
        let (col, row) = (next(), next());
        MatrixLayout { at: view.offset, batch: next(), row, col }
    }

    /// Layout of a contiguous row-major matrix with `cols` columns.
    pub(super) fn row_major(cols: usize) -> Self {
        MatrixLayout { at: 0, batch: 0, row: cols, col: 1 }
    }

    /// Layout without the first rows of each matrix.
    pub(super) fn rows_from(self, first: usize) -> Self {
        MatrixLayout { at: self.at.saturating_add(first.saturating_mul(self.row)), ..self }
    }

    /// Layout of the transposed matrices.
    pub(super) fn transposed(self) -> Self {
        MatrixLayout { row: self.col, col: self.row, ..self }
    }

    /// Adds matrix `index` of the batch to a row-major matrix with `cols` columns.
    pub(super) fn add(
        &self,
        data: &[f32],
        index: usize,
        cols: usize,
        rows: &mut [f32],
    ) -> Result<(), ShapeMismatch> {
        let mut start = self.at.saturating_add(index.saturating_mul(self.batch));
        for row in rows.chunks_exact_mut(cols) {
            let own = data.get(start..).ok_or(ShapeMismatch)?;
            match self.col {
                0 => {
                    let addend = own.first().ok_or(ShapeMismatch)?;
                    row.iter_mut().for_each(|element| *element += addend);
                }
                step => {
                    let elements = row.iter_mut().zip(own.iter().step_by(step));
                    elements.for_each(|(element, addend)| *element += addend);
                }
            }
            start = start.saturating_add(self.row);
        }
        Ok(())
    }

    /// Returns matrix `index` of the batch.
    pub(super) fn matrix<'a>(
        &self,
        data: &'a [f32],
        index: usize,
        [rows, cols]: [usize; 2],
    ) -> Result<Matrix<'a, f32>, ShapeMismatch> {
        let start = index.checked_mul(self.batch).and_then(|start| start.checked_add(self.at));
        let data = start.and_then(|start| data.get(start..)).ok_or(ShapeMismatch)?;
        Matrix::new(data, rows, cols, self.row, self.col).ok_or(ShapeMismatch)
    }
}

enum Operand<'p> {
    Plain(MatrixLayout),
    Packed(Constant<'p>, Precision),
    Nothing,
}

/// Step of a single matrix multiplication.
struct Matmul<'p> {
    shape: [usize; 3],
    a: MatrixLayout,
    b: Operand<'p>,
    /// Index of the input buffer with the bias, and offset in it.
    bias: Option<(usize, usize)>,
    alpha: f32,
    beta: f32,
    limits: [f32; 2],
}

impl Step for Matmul<'_> {
    fn workspace(&self, tier: Tier, threads: usize) -> usize {
        let [m, k, n] = self.shape;
        gemm_workspace_len(tier, threads, m, n, k).unwrap_or(0)
    }

    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        let Io { inputs, out, workspace, context } = io;
        let [m, k, n] = self.shape;
        let [a, b, ..] = inputs;
        let a = self.a.matrix(a, 0, [m, k])?;
        let bias = match self.bias {
            Some((read, at)) => {
                let bias = inputs.get(read).and_then(|bias| bias.get(at..)?.get(..n));
                Bias::Cols(bias.ok_or(ShapeMismatch)?)
            }
            None => Bias::None,
        };
        let [min, max] = self.limits;
        let epilogue = Epilogue { alpha: self.alpha, beta: self.beta, bias, min, max };
        let c = MatrixMut::row_major(out, m, n).ok_or(ShapeMismatch)?;
        match &self.b {
            Operand::Packed(data, precision) => {
                let (data, epilogue) = (data.as_slice(), &epilogue);
                let gemm = Packed { context, a, shape: [k, n], c, epilogue, workspace };
                match precision {
                    Precision::Single => gemm.with::<f32>(data),
                    Precision::Half => gemm.with::<f16>(data),
                    Precision::BFloat => gemm.with::<bf16>(data),
                }
            }
            Operand::Plain(layout) => {
                let b = layout.matrix(b, 0, [k, n])?;
                gemm(context, a, b, c, &epilogue, workspace)
            }
            Operand::Nothing => Err(ShapeMismatch),
        }
    }
}

/// Step of a batched matrix multiplication.
struct Batch {
    count: usize,
    shape: [usize; 3],
    a: MatrixLayout,
    b: MatrixLayout,
}

impl Batch {
    /// Returns the number of matrices per task if threads divide the batch.
    fn together(&self, threads: usize) -> Option<usize> {
        (threads > 1 && self.count >= threads).then(|| self.count.div_ceil(threads * 4))
    }
}

impl Step for Batch {
    fn workspace(&self, tier: Tier, threads: usize) -> usize {
        let [m, k, n] = self.shape;
        let one = |threads| gemm_workspace_len(tier, threads, m, n, k).unwrap_or(0);
        match self.together(threads) {
            Some(together) => one(1).saturating_mul(self.count.div_ceil(together)),
            None => one(threads),
        }
    }

    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        let Io { inputs: [a, b, ..], out, workspace, context } = io;
        let [m, k, n] = self.shape;
        let each = m.checked_mul(n).filter(|each| *each > 0).ok_or(ShapeMismatch)?;
        let matmul = |context: Context<'_>, index, out: &mut [f32], workspace: &mut [f32]| {
            let (a, b) = (self.a.matrix(a, index, [m, k])?, self.b.matrix(b, index, [k, n])?);
            let c = MatrixMut::row_major(out, m, n).ok_or(ShapeMismatch)?;
            gemm(context, a, b, c, &Epilogue::default(), workspace)
        };
        let out = out.get_mut(..self.count * each).ok_or(ShapeMismatch)?;
        let Some(together) = self.together(context.parallel.threads()) else {
            let mut outs = out.chunks_exact_mut(each).enumerate();
            return outs.try_for_each(|(index, out)| matmul(context, index, out, workspace));
        };
        let slot = workspace.len() / self.count.div_ceil(together);
        let serial = Context { parallel: &Serial, ..context };
        let outcome = Outcome::default();
        for_each_chunks_mut(
            context.parallel,
            [out, workspace],
            [together * each, slot],
            &|group, [outs, workspace]| {
                for (index, out) in outs.chunks_exact_mut(each).enumerate() {
                    outcome.note(matmul(serial, group * together + index, out, workspace));
                }
            },
        );
        outcome.result()
    }
}
