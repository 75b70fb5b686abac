//! Pooling over two dimensions.

use super::window::{Window, checked_numel, pair};
use super::{Entry, operator};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::Operator;
use torchlet_shaders::{Pool, PoolPush};

pub(super) const OPERATORS: &[Entry] = &[
    operator(Operator::MAX_POOL2D, max_pool),
    operator(Operator::MAX_POOL2D_WITH_INDICES, max_pool),
    operator(Operator::ADAPTIVE_AVG_POOL2D, adaptive),
    operator(Operator::AVG_POOL1D, |e, args| {
        let input = e.tensor(e.arg(args, 0)?)?;
        let ceil = optional(e, args, 4)?.unwrap_or(0) != 0;
        let windows = Windows::read(e, args, vec![1], ceil)?;
        let count_padding = optional(e, args, 5)?.unwrap_or(1) != 0;
        let kind = Kind::Mean { count_padding, divisor: 0 };
        pool(e, args, &input, windows.in_one_dimension()?, kind)
    }),
    operator(Operator::AVG_POOL2D, |e, args| {
        let ceil = optional(e, args, 4)?.unwrap_or(0) != 0;
        let count_padding = optional(e, args, 5)?.unwrap_or(1) != 0;
        let divisor = optional(e, args, 6)?;
        let divisor = match divisor {
            None => 0,
            Some(divisor) => i32::try_from(divisor)
                .ok()
                .filter(|divisor| *divisor != 0)
                .ok_or_else(|| Error::Invalid(format!("divisor {divisor}")))?,
        };
        let windows = Windows::read(e, args, vec![1, 1], ceil)?;
        let input = e.tensor(e.arg(args, 0)?)?;
        pool(e, args, &input, windows, Kind::Mean { count_padding, divisor })
    }),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Largest,
    Mean { count_padding: bool, divisor: i32 },
}

/// An integer argument that may be left out or be nothing.
fn optional(e: &Encoder<'_, '_>, args: &[ValueId], position: usize) -> Result<Option<i64>, Error> {
    if args.len() > position + 1 { e.optional_int(args[position]) } else { Ok(None) }
}

fn max_pool(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let dilation = if args.len() > 5 { e.ints(args[4])? } else { vec![1] };
    let ceil = optional(e, args, 5)?.unwrap_or(0) != 0;
    let windows = Windows::read(e, args, dilation, ceil)?;
    let input = e.tensor(e.arg(args, 0)?)?;
    pool(e, args, &input, windows, Kind::Largest)
}

/// Means of as many windows as the output has elements, which divide the input.
fn adaptive(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let input = e.tensor(e.arg(args, 0)?)?;
    let wanted = pair(&e.ints(e.arg(args, 1)?)?, None)?;
    let first = input.rank().saturating_sub(2);
    let mut kernel = Vec::new();
    for (dim, wanted) in wanted.into_iter().enumerate() {
        let size = input.size(first + dim) as i64;
        if wanted < 1 || size % wanted != 0 {
            return Err(Error::unsupported(format!(
                "{wanted} windows of several sizes over {size}"
            )));
        }
        kernel.push(size / wanted);
    }
    let (stride, padding) = (Vec::new(), Vec::new());
    let windows = Windows { lines: 2, kernel, stride, padding, dilation: vec![1], ceil: false };
    pool(e, args, &input, windows, Kind::Mean { count_padding: true, divisor: 0 })
}

/// The integers of an argument that may be left out or be nothing.
fn list(e: &Encoder<'_, '_>, args: &[ValueId], position: usize) -> Result<Vec<i64>, Error> {
    Ok(if args.len() > position + 1 {
        e.optional_ints(args[position])?.unwrap_or_default()
    } else {
        Vec::new()
    })
}

/// What calls say of their windows, for each dimension or for all.
#[derive(Debug, Clone)]
struct Windows {
    /// How many dimensions they slide over: one counts as two of which the first is 1.
    lines: usize,
    kernel: Vec<i64>,
    stride: Vec<i64>,
    padding: Vec<i64>,
    dilation: Vec<i64>,
    ceil: bool,
}

impl Windows {
    fn read(
        e: &Encoder<'_, '_>,
        args: &[ValueId],
        dilation: Vec<i64>,
        ceil: bool,
    ) -> Result<Self, Error> {
        let (stride, padding) = (list(e, args, 2)?, list(e, args, 3)?);
        let kernel = e.ints(e.arg(args, 1)?)?;
        Ok(Windows { lines: 2, kernel, stride, padding, dilation, ceil })
    }

    /// Windows of one dimension over two, of which the first is 1.
    fn in_one_dimension(self) -> Result<Self, Error> {
        let lift = |list: &[i64], neutral: i64| match list {
            [] => Ok(Vec::new()),
            [only] => Ok(vec![neutral, *only]),
            _ => Err(Error::invalid("several numbers for one dimension")),
        };
        Ok(Windows {
            lines: 1,
            kernel: lift(&self.kernel, 1)?,
            stride: lift(&self.stride, 1)?,
            padding: lift(&self.padding, 0)?,
            ..self
        })
    }
}

fn pool(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    input: &Operand,
    windows: Windows,
    kind: Kind,
) -> Result<(), Error> {
    checked_numel(&input.sizes)?;
    if !input.element.is_floating() {
        return Err(Error::unsupported("pooling of integers"));
    }
    let kernel = pair(&windows.kernel, None)?;
    let stride = pair(&windows.stride, Some(kernel))?;
    let padding = pair(&windows.padding, Some([0, 0]))?;
    let dilation = pair(&windows.dilation, Some([1, 1]))?;
    let (outer, in_y, in_x) = match (windows.lines, &input.sizes[..]) {
        (1, [_, in_x] | [_, _, in_x]) => (input.rank() - 1, 1, *in_x),
        (2, [_, in_y, in_x] | [_, _, in_y, in_x]) => (input.rank() - 2, *in_y, *in_x),
        _ => return Err(Error::Invalid(format!("an input of shape {:?}", input.sizes))),
    };
    let mut window = [Window::NONE; 2];
    let mut out_size = [0; 2];
    for (dim, size) in [in_y, in_x].into_iter().enumerate() {
        window[dim] = Window::new(kernel[dim], stride[dim], padding[dim], dilation[dim])?;
        if i64::from(window[dim].padding) * 2 > window[dim].reach() {
            return Err(Error::invalid("the padding is more than half of the window"));
        }
        out_size[dim] = window[dim].count(size, windows.ceil)?;
    }
    let mut sizes = input.sizes[..outer].to_vec();
    sizes.extend(&out_size[2 - windows.lines..]);
    checked_numel(&sizes)?;
    let outs = e.outs(args)?;
    let first = outs.first().copied().ok_or_else(|| Error::invalid("the call has no output"))?;
    let out = e.resize(first, &sizes)?;
    let indices = match outs.get(1) {
        Some(id) if kind == Kind::Largest => Some(e.resize(*id, &sizes)?),
        _ => None,
    };
    // Some exporters give indices that nobody reads no shape.
    let indices = indices.filter(|indices| indices.numel() == out.numel());
    let (number, count_padding, divisor) = match kind {
        Kind::Largest => (u32::from(indices.is_some()), false, 0),
        Kind::Mean { count_padding, divisor } => (2, count_padding, divisor),
    };
    let indices = indices.unwrap_or_else(|| out.clone());
    let pipeline = Pool {
        input: input.element,
        output: out.element,
        indices: indices.element,
        kind: number,
        count_padding,
    };
    let [y, x] = window;
    let push = PoolPush {
        numel: u32_of(out.numel())?,
        in_y: in_y as i32,
        in_x: in_x as i32,
        out_y: u32_of(out_size[0])?,
        out_x: u32_of(out_size[1])?,
        kernel_y: y.kernel,
        kernel_x: x.kernel,
        stride_y: y.stride,
        stride_x: x.stride,
        padding_y: y.padding,
        padding_x: x.padding,
        dilation_y: y.dilation,
        dilation_x: x.dilation,
        divisor,
    };
    let accesses = [read(input.id), write(out.id), write(indices.id)];
    e.dispatch_by_four(&pipeline, accesses, &push, out.numel())
}
