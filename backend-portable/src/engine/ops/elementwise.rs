//! Element-wise operators on strided, broadcast tensors. They run in place if the operand is not
//! used again.

use super::{Operation, ends};
use crate::compute::functions::{
    Abs, Add, AddScaled, Clamp, Div, Exp, From, Gelu, GeluTanh, HardSigmoid, HardSwish, Map1, Map2,
    Maximum, Minimum, Mul, Neg, Reciprocal, Rsqrt, Sigmoid, Silu, Sqrt, Sub, Tanh, With, map1,
    map1_in_place, map2, map2_in_place,
};
use crate::compute::gemm::{Context, ShapeMismatch};
use crate::compute::simd::Simd;
use crate::compute::split::{Outcome, Serial, chunk_len, for_each_chunk_mut};
use crate::engine::builder::{Builder, Refusal};
use crate::engine::numbers::Precision;
use crate::engine::plan::{Io, READS, Step};
use crate::engine::view::{View, numel};
use std::vec::Vec;
use torchlet_graph::graph::{Value, ValueId};
use torchlet_graph::operators::{
    AddArgs, AddScalarArgs, BinaryArgs, BinaryScalarArgs, ClampArgs, GeluArgs, HardtanhArgs,
    LeakyReluArgs, Operator,
};

/// Minimum number of elements per thread.
const GRAIN: usize = 1 << 14;
/// Number of elements that are gathered at a time.
const BLOCK: usize = 256;

/// Returns the lowering function of an operator.
pub(super) fn find(operator: Operator) -> Option<Operation> {
    Some(match operator {
        Operator::ABS => |builder, args| unary(builder, args, Unary::Abs),
        Operator::NEG => |builder, args| unary(builder, args, Unary::Neg),
        Operator::EXP => |builder, args| unary(builder, args, Unary::Exp),
        Operator::SQRT => |builder, args| unary(builder, args, Unary::Sqrt),
        Operator::RSQRT => |builder, args| unary(builder, args, Unary::Rsqrt),
        Operator::RECIPROCAL => |builder, args| unary(builder, args, Unary::Reciprocal),
        Operator::SIGMOID => |builder, args| unary(builder, args, Unary::Sigmoid),
        Operator::TANH => |builder, args| unary(builder, args, Unary::Tanh),
        Operator::SILU => |builder, args| unary(builder, args, Unary::Silu),
        Operator::HARDSWISH => |builder, args| unary(builder, args, Unary::HardSwish),
        Operator::HARDSIGMOID => |builder, args| unary(builder, args, Unary::HardSigmoid),
        Operator::RELU => |builder, args| clamp(builder, args, 0.0, f32::INFINITY),
        Operator::HARDTANH => |builder, args| {
            let call = HardtanhArgs::of(args)?;
            let (min, max) = (builder.number(call.min_val)?, builder.number(call.max_val)?);
            clamp(builder, args, min as f32, max as f32)
        },
        Operator::CLAMP => |builder, args| {
            let call = ClampArgs::of(args)?;
            let min = builder.optional_number(call.min)?;
            let max = builder.optional_number(call.max)?;
            let min = min.map_or(f32::NEG_INFINITY, |min| min as f32);
            let max = max.map_or(f32::INFINITY, |max| max as f32);
            clamp(builder, args, min, max)
        },
        Operator::LEAKY_RELU => |builder, args| {
            let slope = builder.number(LeakyReluArgs::of(args)?.negative_slope)? as f32;
            unary(builder, args, Unary::LeakyRelu(slope))
        },
        Operator::GELU => |builder, args| {
            let approximate = GeluArgs::of(args)?.approximate.map(|id| builder.value(id));
            match approximate {
                Some(Value::String(text)) if text == "tanh" => {
                    unary(builder, args, Unary::GeluTanh)
                }
                Some(Value::String(text)) if text != "none" => {
                    Err(std::format!("GELU with approximate = '{text}'; expected 'none' or 'tanh'"))
                }
                _ => unary(builder, args, Unary::Gelu),
            }
        },
        Operator::ADD_TENSOR => |builder, args| scaled(builder, args, 1.0),
        Operator::SUB_TENSOR => |builder, args| scaled(builder, args, -1.0),
        Operator::MUL_TENSOR => |builder, args| binary(builder, args, Binary::Mul),
        Operator::DIV_TENSOR => |builder, args| binary(builder, args, Binary::Div),
        Operator::MAXIMUM => |builder, args| binary(builder, args, Binary::Maximum),
        Operator::MINIMUM => |builder, args| binary(builder, args, Binary::Minimum),
        Operator::ADD_SCALAR => |builder, args| {
            let call = AddScalarArgs::of(args)?;
            let out = call.out;
            let addend = beside(builder, call.other, out)? * beside(builder, call.alpha, out)?;
            unary(builder, args, Unary::With(Binary::Add, addend))
        },
        Operator::SUB_SCALAR => |builder, args| {
            let call = AddScalarArgs::of(args)?;
            let out = call.out;
            let less = beside(builder, call.other, out)? * beside(builder, call.alpha, out)?;
            unary(builder, args, Unary::With(Binary::Sub, less))
        },
        Operator::MUL_SCALAR => |builder, args| {
            let factor = builder.number(BinaryScalarArgs::of(args)?.other)? as f32;
            unary(builder, args, Unary::With(Binary::Mul, factor))
        },
        Operator::DIV_SCALAR => |builder, args| {
            let divisor = builder.number(BinaryScalarArgs::of(args)?.other)? as f32;
            unary(builder, args, Unary::With(Binary::Div, divisor))
        },
        _ => return None,
    })
}

/// An element-wise function with one operand.
#[derive(Debug, Clone, Copy)]
enum Unary {
    Abs,
    Neg,
    Exp,
    Sqrt,
    Rsqrt,
    Reciprocal,
    Sigmoid,
    Tanh,
    Silu,
    HardSwish,
    HardSigmoid,
    Gelu,
    GeluTanh,
    LeakyRelu(f32),
    Clamp(f32, f32),
    With(Binary, f32),
    /// Rounding to a narrower float format.
    Rounded(Precision),
}

/// An element-wise function with two operands.
#[derive(Debug, Clone, Copy)]
pub(super) enum Binary {
    Add,
    AddScaled(f32),
    Sub,
    Mul,
    Div,
    Maximum,
    Minimum,
}

fn clamp(
    builder: &mut Builder<'_, '_>,
    args: &[ValueId],
    min: f32,
    max: f32,
) -> Result<(), Refusal> {
    if min.is_nan() || max.is_nan() {
        return Err("clamp with a NaN limit".into());
    }
    unary(builder, args, Unary::Clamp(min, max))
}

fn unary(builder: &mut Builder<'_, '_>, args: &[ValueId], function: Unary) -> Result<(), Refusal> {
    let (input, out) = ends(args)?;
    let input = builder.view(input)?;
    let result = of_each(builder, &input, function)?;
    builder.define(out, result)
}

fn of_each(builder: &mut Builder<'_, '_>, input: &View, function: Unary) -> Result<View, Refusal> {
    let out = target(builder, &[input], input.sizes.clone())?;
    let walk = Loops::new(&out, [input, input]);
    builder.push(Map { walk, function: Function::Unary(function) }, &[input], &out);
    Ok(out)
}

/// Clamps the elements.
pub(super) fn clamped(
    builder: &mut Builder<'_, '_>,
    input: &View,
    [min, max]: [f32; 2],
) -> Result<View, Refusal> {
    of_each(builder, input, Unary::Clamp(min, max))
}

/// Appends a step that rounds the elements to a float format.
pub(super) fn rounded(
    builder: &mut Builder<'_, '_>,
    input: View,
    precision: Precision,
) -> Result<View, Refusal> {
    match precision {
        Precision::Single => Ok(input),
        _ => of_each(builder, &input, Unary::Rounded(precision)),
    }
}

/// Returns a float tensor with the precision of its dtype. 16-bit values that this region computed
/// are rounded, for operators whose result depends on the last bit.
pub(super) fn as_stored(builder: &mut Builder<'_, '_>, id: ValueId) -> Result<View, Refusal> {
    let view = builder.view(id)?;
    if !builder.is_computed(&view) {
        return Ok(view);
    }
    let precision = builder.precision(id)?;
    rounded(builder, view, precision)
}

/// Decodes the scalar operand of an addition, rounded to the dtype of the result, as in PyTorch.
fn beside(
    builder: &Builder<'_, '_>,
    number: impl Into<Option<ValueId>>,
    out: ValueId,
) -> Result<f32, Refusal> {
    let mut number = [builder.number(number)? as f32];
    builder.precision(out)?.round(&mut number);
    Ok(number[0])
}

/// Lowers `a + sign * alpha * b`.
fn scaled(builder: &mut Builder<'_, '_>, args: &[ValueId], sign: f32) -> Result<(), Refusal> {
    let call = AddArgs::of(args)?;
    let (a, b) = (builder.view(call.input)?, builder.view(call.other)?);
    let factor = beside(builder, call.alpha, call.out)? * sign;
    let function = match factor {
        1.0 => Binary::Add,
        -1.0 => Binary::Sub,
        factor => Binary::AddScaled(factor),
    };
    let result = broadcasting(builder, &a, &b, function)?;
    builder.define(call.out, result)
}

fn binary(
    builder: &mut Builder<'_, '_>,
    args: &[ValueId],
    function: Binary,
) -> Result<(), Refusal> {
    let call = BinaryArgs::of(args)?;
    let (a, b) = (builder.view(call.input)?, builder.view(call.other)?);
    let result = broadcasting(builder, &a, &b, function)?;
    builder.define(call.out, result)
}

/// Applies a function to two operands, which are broadcast to each other.
pub(super) fn broadcasting(
    builder: &mut Builder<'_, '_>,
    a: &View,
    b: &View,
    function: Binary,
) -> Result<View, Refusal> {
    let sizes = broadcast(&a.sizes, &b.sizes);
    let expanded =
        |view: &View| view.expanded(&sizes).ok_or("operands whose shapes do not broadcast");
    let (a, b) = (expanded(a)?, expanded(b)?);
    let result = target(builder, &[&a, &b], sizes)?;
    let walk = Loops::new(&result, [&a, &b]);
    builder.push(Map { walk, function: Function::Binary(function) }, &[&a, &b], &result);
    Ok(result)
}

/// Computes the broadcast shape of two operands, assuming that they are compatible.
fn broadcast(a: &[usize], b: &[usize]) -> Vec<usize> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let mut sizes = long.to_vec();
    for (size, other) in sizes.iter_mut().rev().zip(short.iter().rev()) {
        if *size == 1 {
            *size = *other;
        }
    }
    sizes
}

/// Chooses the destination of a result: in place of the first operand if this is its last use, else
/// a new tensor in the same memory order.
fn target(
    builder: &mut Builder<'_, '_>,
    operands: &[&View],
    sizes: Vec<usize>,
) -> Result<View, Refusal> {
    let fits = |view: &&&View| view.sizes == sizes && view.is_dense();
    let like = operands.iter().find(fits);
    if let Some(first) = like
        && operands.first().is_some_and(|it| it == first)
        && operands.iter().skip(1).all(|other| other.buffer != first.buffer)
        && builder.is_last_use(first)
    {
        builder.overwrite(first);
        return Ok((**first).clone());
    }
    match like {
        Some(view) => builder.make_in_order(&sizes, &view.order()),
        None => builder.make(&sizes),
    }
}

/// Loop nest over a result and its operands, merged where strides allow.
struct Loops {
    /// Offsets of the result and the operands in their buffers.
    starts: [usize; 3],
    /// Size of each loop and strides of both operands, the innermost loop last. The result is
    /// contiguous in this order.
    dims: Vec<(usize, [usize; 2])>,
    in_place: bool,
}

impl Loops {
    fn new(out: &View, operands: [&View; 2]) -> Self {
        let order = out.order();
        let stride = |view: &View, dim: usize| view.strides.get(dim).copied().unwrap_or(0);
        let mut dims: Vec<(usize, [usize; 2])> = Vec::new();
        for dim in order {
            let size = out.sizes.get(dim).copied().unwrap_or(1);
            if size == 1 {
                continue;
            }
            let strides = operands.map(|view| stride(view, dim));
            match dims.last_mut() {
                Some((all, outer))
                    if outer.iter().zip(&strides).all(|(o, s)| *o == s.saturating_mul(size)) =>
                {
                    (*all, *outer) = (*all * size, strides);
                }
                _ => dims.push((size, strides)),
            }
        }
        let [a, b] = operands;
        let in_place = a.buffer == out.buffer;
        Loops { starts: [out.offset, a.offset, b.offset], dims, in_place }
    }
}

struct Map {
    walk: Loops,
    function: Function,
}

enum Function {
    Unary(Unary),
    Binary(Binary),
}

/// Consecutive elements of an operand's row.
#[derive(Clone, Copy)]
enum Run<'a> {
    /// In the memory of the result, for in-place operation.
    InPlace,
    /// Contiguous.
    Slice(&'a [f32]),
    /// One value for all elements.
    One(f32),
}

impl Step for Map {
    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        let Io { inputs, out, context, .. } = io;
        let dims = &self.walk.dims;
        let [start, ..] = self.walk.starts;
        let count = numel(&dims.iter().map(|(size, _)| *size).collect::<Vec<_>>());
        let out = out.get_mut(start..).and_then(|out| out.get_mut(..count?));
        let out = out.ok_or(ShapeMismatch)?;
        let inner = dims.last().map_or(1, |(size, _)| (*size).max(1));
        // Chunks consist of whole rows, if there are several rows.
        let grain = chunk_len(context.parallel, out.len(), GRAIN);
        let chunk = if dims.len() > 1 { grain.next_multiple_of(inner) } else { grain };
        let serial = Context { parallel: &Serial, ..context };
        let outcome = Outcome::default();
        for_each_chunk_mut(context.parallel, out, chunk, &|index, out| {
            let range = self.range(serial, inputs, index * chunk, inner, out);
            outcome.note(range.ok_or(ShapeMismatch));
        });
        outcome.result()
    }
}

/// Maximum length of rows that are gathered into blocks. For short rows, the overhead per row
/// exceeds the cost of the copies.
const SHORT: usize = 64;

impl Map {
    /// Computes the elements of the result from element `first` on; rows have `inner` elements.
    fn range(
        &self,
        context: Context<'_>,
        inputs: [&[f32]; READS],
        first: usize,
        inner: usize,
        out: &mut [f32],
    ) -> Option<()> {
        let (mut done, len) = (0, out.len());
        let (mut rows, mut col) = (Rows::new(&self.walk, first / inner), first % inner);
        let [_, starts @ ..] = self.walk.starts;
        let strides = self.walk.dims.last().map_or([0; 2], |(_, strides)| *strides);
        let reads = [!self.walk.in_place, matches!(self.function, Function::Binary(_))];
        let is_short = inner < SHORT && inner < len;
        // The gather buffer is zeroed only if it is needed, because zeroing costs more than a short
        // row.
        if !is_short && strides.iter().all(|stride| *stride <= 1) {
            return self.rows(context, inputs, (rows, col), inner, out, None);
        }
        let mut gathered = [[0.0; BLOCK]; 2];
        if is_short {
            while done < len {
                let count = BLOCK.min(len - done);
                let mut filled = 0;
                while filled < count {
                    let more = (inner - col).min(count - filled);
                    for operand in (0..2).filter(|operand| reads[*operand]) {
                        let stride = strides[operand];
                        let at = starts[operand] + rows.at[operand] + col * stride;
                        let block = gathered[operand].get_mut(filled..filled + more)?;
                        gather(inputs[operand], at, stride, block)?;
                    }
                    (filled, col) = (filled + more, col + more);
                    if col == inner {
                        col = 0;
                        rows.next();
                    }
                }
                let block = |operand: usize| gathered[operand].get(..count).map(Run::Slice);
                let a = if reads[0] { block(0)? } else { Run::InPlace };
                self.apply(context, [a, block(1)?], out.get_mut(done..done + count)?);
                done += count;
            }
            return Some(());
        }
        self.rows(context, inputs, (rows, col), inner, out, Some(&mut gathered))
    }

    /// Computes row by row, starting at a column of the first row. Works in blocks if elements must
    /// be gathered.
    fn rows(
        &self,
        context: Context<'_>,
        inputs: [&[f32]; READS],
        (mut rows, mut col): (Rows<'_>, usize),
        inner: usize,
        out: &mut [f32],
        mut gathered: Option<&mut [[f32; BLOCK]; 2]>,
    ) -> Option<()> {
        let (mut done, len) = (0, out.len());
        let [_, starts @ ..] = self.walk.starts;
        let strides = self.walk.dims.last().map_or([0; 2], |(_, strides)| *strides);
        let max_len = if gathered.is_some() { BLOCK } else { usize::MAX };
        while done < len {
            let count = (inner - col).min(len - done).min(max_len);
            let [a_block, b_block] = match &mut gathered {
                Some([a, b]) => [a.as_mut_slice(), b.as_mut_slice()],
                None => [[].as_mut_slice(), [].as_mut_slice()],
            };
            let at = |operand: usize| starts[operand] + rows.at[operand] + col * strides[operand];
            let a = match self.walk.in_place {
                false => run(inputs[0], at(0), strides[0], count, a_block)?,
                true => Run::InPlace,
            };
            let b = match self.function {
                Function::Binary(_) => run(inputs[1], at(1), strides[1], count, b_block)?,
                Function::Unary(_) => Run::One(0.0),
            };
            self.apply(context, [a, b], out.get_mut(done..done + count)?);
            (done, col) = (done + count, col + count);
            if col == inner {
                col = 0;
                rows.next();
            }
        }
        Some(())
    }

    fn apply(&self, context: Context<'_>, [a, b]: [Run<'_>; 2], out: &mut [f32]) {
        match self.function {
            Function::Unary(function) => function.apply(context, a, out),
            Function::Binary(function) => function.apply(context, [a, b], out),
        }
    }
}

/// Returns `count` elements of an operand's row, starting at offset `at`.
fn run<'a>(
    data: &'a [f32],
    at: usize,
    stride: usize,
    count: usize,
    block: &'a mut [f32],
) -> Option<Run<'a>> {
    Some(match stride {
        0 => Run::One(*data.get(at)?),
        1 => Run::Slice(data.get(at..)?.get(..count)?),
        _ => {
            let block = block.get_mut(..count)?;
            gather(data, at, stride, block)?;
            Run::Slice(block)
        }
    })
}

/// Fills a block with strided elements of a row, starting at `at`.
fn gather(data: &[f32], at: usize, stride: usize, block: &mut [f32]) -> Option<()> {
    let data = data.get(at..)?;
    match stride {
        0 => block.fill(*data.first()?),
        1 => block.copy_from_slice(data.get(..block.len())?),
        _ => {
            data.get((block.len() - 1) * stride)?;
            let elements = block.iter_mut().zip(data.iter().step_by(stride));
            elements.for_each(|(slot, element)| *slot = *element);
        }
    }
    Some(())
}

/// Cursor over the rows: the offsets of both operands, advanced row by row.
struct Rows<'w> {
    /// The loops around the loop over a row.
    dims: &'w [(usize, [usize; 2])],
    /// Current index of each loop.
    index: Vec<usize>,
    at: [usize; 2],
}

impl<'w> Rows<'w> {
    fn new(walk: &'w Loops, mut row: usize) -> Self {
        let dims = walk.dims.split_last().map_or(&[][..], |(_, outer)| outer);
        let (mut index, mut at) = (std::vec![0; dims.len()], [0; 2]);
        for (index, (size, strides)) in index.iter_mut().zip(dims).rev() {
            *index = row % size;
            row /= size;
            at.iter_mut().zip(strides).for_each(|(at, stride)| *at += *index * stride);
        }
        Rows { dims, index, at }
    }

    /// Advances to the next row.
    fn next(&mut self) {
        // An index loop instead of iterators, because this code runs for each row.
        let mut dim = self.dims.len();
        while dim > 0 {
            dim -= 1;
            let (size, [a, b]) = self.dims[dim];
            self.index[dim] += 1;
            self.at = [self.at[0] + a, self.at[1] + b];
            if self.index[dim] < size {
                return;
            }
            self.index[dim] = 0;
            self.at = [self.at[0] - size * a, self.at[1] - size * b];
        }
    }
}

impl Unary {
    fn apply(self, context: Context<'_>, a: Run<'_>, out: &mut [f32]) {
        match self {
            Unary::Abs => one(context, Abs, a, out),
            Unary::Neg => one(context, Neg, a, out),
            Unary::Exp => one(context, Exp, a, out),
            Unary::Sqrt => one(context, Sqrt, a, out),
            Unary::Rsqrt => one(context, Rsqrt, a, out),
            Unary::Reciprocal => one(context, Reciprocal, a, out),
            Unary::Sigmoid => one(context, Sigmoid, a, out),
            Unary::Tanh => one(context, Tanh, a, out),
            Unary::Silu => one(context, Silu, a, out),
            Unary::HardSwish => one(context, HardSwish, a, out),
            Unary::HardSigmoid => one(context, HardSigmoid, a, out),
            Unary::Gelu => one(context, Gelu, a, out),
            Unary::GeluTanh => one(context, GeluTanh, a, out),
            Unary::LeakyRelu(slope) => one(context, LeakyRelu(slope), a, out),
            Unary::Clamp(min, max) => one(context, Clamp(min, max), a, out),
            Unary::With(function, number) => function.apply(context, [a, Run::One(number)], out),
            Unary::Rounded(precision) => {
                match a {
                    Run::InPlace => {}
                    Run::Slice(a) => out.copy_from_slice(a),
                    Run::One(number) => out.fill(number),
                }
                precision.round(out);
            }
        }
    }
}

impl Binary {
    fn apply(self, context: Context<'_>, operands: [Run<'_>; 2], out: &mut [f32]) {
        match self {
            Binary::Add => two(context, Add, operands, out),
            Binary::AddScaled(factor) => two(context, AddScaled(factor), operands, out),
            Binary::Sub => two(context, Sub, operands, out),
            Binary::Mul => two(context, Mul, operands, out),
            Binary::Div => two(context, Div, operands, out),
            Binary::Maximum => two(context, Maximum, operands, out),
            Binary::Minimum => two(context, Minimum, operands, out),
        }
    }
}

fn one<M: Map1>(context: Context<'_>, function: M, a: Run<'_>, out: &mut [f32]) {
    match a {
        Run::InPlace => map1_in_place(context, function, out),
        Run::Slice(a) => map1(context, function, a, out),
        Run::One(number) => {
            out.fill(number);
            map1_in_place(context, function, out);
        }
    }
}

fn two<M: Map2>(context: Context<'_>, function: M, operands: [Run<'_>; 2], out: &mut [f32]) {
    match operands {
        [a, Run::One(b)] => one(context, With(function, b), a, out),
        [Run::One(a), b] => one(context, From(a, function), b, out),
        [Run::InPlace, Run::Slice(b)] => map2_in_place(context, function, out, b),
        [Run::Slice(a), Run::Slice(b)] => map2(context, function, a, b, out),
        // Only the first operand can be in place.
        [_, Run::InPlace] => {}
    }
}

/// Leaky ReLU: `x`, multiplied by a factor if negative.
#[derive(Clone, Copy)]
struct LeakyRelu(f32);

impl Map1 for LeakyRelu {
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, x: S::F) -> S::F {
        s.select(s.lt(x, s.splat(0.0)), s.mul(x, s.splat(self.0)), x)
    }
}
