//! Pooling over two dims, and average pooling over three.

use super::window::{Window, checked_numel, pair, triple};
use super::{Entry, operator};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{
    AdaptivePoolArgs, AvgPool1dArgs, AvgPoolArgs, MaxPoolArgs, Operator,
};
use torchlet_shaders::{Element, Pool, PoolPush};

pub(super) const OPERATORS: &[Entry] = &[
    operator(Operator::MAX_POOL2D, max_pool),
    operator(Operator::MAX_POOL2D_WITH_INDICES, max_pool),
    operator(Operator::ADAPTIVE_AVG_POOL1D, |e, args| adaptive(e, args, 1, MEAN)),
    operator(Operator::ADAPTIVE_AVG_POOL2D, |e, args| adaptive(e, args, 2, MEAN)),
    operator(Operator::ADAPTIVE_AVG_POOL3D, adaptive_boxes),
    operator(Operator::ADAPTIVE_MAX_POOL2D, |e, args| adaptive(e, args, 2, Kind::Max)),
    operator(Operator::AVG_POOL1D, |e, args| {
        let call = AvgPool1dArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let ceil = e.optional_bool(call.ceil_mode)?.unwrap_or(false);
        let lists = [Some(call.kernel_size), call.stride, call.padding];
        let windows = Windows::read(e, lists, vec![1], ceil)?;
        let count_padding = e.optional_bool(call.count_include_pad)?.unwrap_or(true);
        let kind = Kind::Mean { count_padding, divisor: 0 };
        pool(e, args, &input, windows.in_one_dimension()?, kind)
    }),
    operator(Operator::AVG_POOL2D, |e, args| {
        let call = AvgPoolArgs::of(args)?;
        let ceil = e.optional_bool(call.ceil_mode)?.unwrap_or(false);
        let count_padding = e.optional_bool(call.count_include_pad)?.unwrap_or(true);
        let divisor = e.optional_int(call.divisor_override)?;
        let divisor = match divisor {
            None => 0,
            Some(divisor) => {
                i32::try_from(divisor).ok().filter(|divisor| *divisor != 0).ok_or_else(|| {
                    Error::Invalid(format!(
                        "divisor_override: expected a nonzero 32-bit integer, found {divisor}"
                    ))
                })?
            }
        };
        let lists = [Some(call.kernel_size), call.stride, call.padding];
        let windows = Windows::read(e, lists, vec![1, 1], ceil)?;
        let input = e.tensor(call.input)?;
        pool(e, args, &input, windows, Kind::Mean { count_padding, divisor })
    }),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Max,
    Mean { count_padding: bool, divisor: i32 },
}

/// The maximum number of elements of a plane, if a single window may cover all of it.
const LARGEST_PLANE: usize = 1 << 22;

/// The mean over all elements of a window.
const MEAN: Kind = Kind::Mean { count_padding: false, divisor: 0 };

fn max_pool(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = MaxPoolArgs::of(args)?;
    let dilation = e.optional_ints(call.dilation)?.unwrap_or_else(|| vec![1]);
    let ceil = e.optional_bool(call.ceil_mode)?.unwrap_or(false);
    let lists = [Some(call.kernel_size), call.stride, call.padding];
    let windows = Windows::read(e, lists, dilation, ceil)?;
    let input = e.tensor(call.input)?;
    pool(e, args, &input, windows, Kind::Max)
}

/// Encodes adaptive pooling, which has a given number of windows.
fn adaptive(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    lines: usize,
    kind: Kind,
) -> Result<(), Error> {
    let call = AdaptivePoolArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let plane = Plane::of(&input, lines, kind)?;
    let wanted = e.ints(call.output_size)?;
    let wanted = match (lines, &wanted[..]) {
        (1, [only]) => [1, *only],
        _ => pair(&wanted, None)?,
    };
    let mut out_size = [0; 2];
    for ((out, wanted), size) in out_size.iter_mut().zip(wanted).zip(plane.size) {
        *out = as_many(wanted, size)?;
    }
    check_size(plane.size)?;
    emit(e, args, &input, &plane, [Window::NONE; 2], out_size, kind, true)
}

/// Encodes adaptive average pooling in 3D: first the mean over rows and columns, then the mean over
/// depth. The planes of a window have equal numbers of elements, so the mean of their means is
/// correct.
fn adaptive_boxes(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = AdaptivePoolArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let wanted = triple(&e.ints(call.output_size)?)?;
    checked_numel(&input.sizes)?;
    let [.., z, y, x] = input.sizes[..] else {
        return Err(Error::Invalid(format!(
            "input: expected at least 3 dims, found shape {:?}",
            input.sizes
        )));
    };
    if !input.element.is_floating() {
        return Err(Error::unsupported(format!("pooling of type {:?}", input.element)));
    }
    let [out_z, out_y, out_x] =
        [as_many(wanted[0], z)?, as_many(wanted[1], y)?, as_many(wanted[2], x)?];
    let out_plane = out_y.checked_mul(out_x).ok_or_else(|| {
        Error::unsupported(format!("adaptive pooling to {out_y} x {out_x} elements"))
    })?;
    as_many(out_plane as i64, out_plane)?;
    check_size([y, x])?;
    check_size([z, out_plane])?;
    let mut sizes = input.sizes[..input.rank() - 3].to_vec();
    sizes.extend([z, out_y, out_x]);
    checked_numel(&sizes)?;
    let planes = e.temporary(Element::F32, &sizes)?;
    let depth = sizes.len() - 3;
    if let Some(size) = sizes.get_mut(depth) {
        *size = out_z;
    }
    checked_numel(&sizes)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &sizes)?;
    let none = [Window::NONE; 2];
    slide(e, [&input, &planes, &planes], [[y, x], [out_y, out_x]], none, MEAN, true)?;
    let along = [[z, out_plane], [out_z, out_plane]];
    slide(e, [&planes, &out, &out], along, none, MEAN, true)
}

/// Checks the number of windows over a dim. The shader multiplies it by the size to compute
/// the edges of windows, which must not overflow.
fn as_many(wanted: i64, size: usize) -> Result<usize, Error> {
    let fits = |wanted: &usize| {
        let edge = wanted.checked_add(1).and_then(|end| end.checked_mul(size.max(1)));
        *wanted > 0 && edge.is_some_and(|edge| edge < 1 << 30)
    };
    let number = usize::try_from(wanted).ok().filter(fits);
    number.ok_or_else(|| {
        Error::unsupported(format!("adaptive pooling of a dim of {size} elements to {wanted}"))
    })
}

/// Rejects empty planes, and planes that are too large for a single window.
fn check_size(size: [usize; 2]) -> Result<(), Error> {
    if size.contains(&0) {
        return Err(Error::Invalid(format!("input: an empty plane of {} x {}", size[0], size[1])));
    }
    if size.iter().product::<usize>() > LARGEST_PLANE {
        return Err(Error::unsupported(format!(
            "pooling of planes of {size:?} elements; the limit is {LARGEST_PLANE} elements"
        )));
    }
    Ok(())
}

/// The window arguments of a call; each is a list with one value per dim, or one for all.
#[derive(Debug, Clone)]
struct Windows {
    /// The number of pooled dims. 1D pooling counts as 2D with a first dim of size 1.
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
        [kernel, stride, padding]: [Option<ValueId>; 3],
        dilation: Vec<i64>,
        ceil: bool,
    ) -> Result<Self, Error> {
        let list = |id| Ok::<_, Error>(e.optional_ints(id)?.unwrap_or_default());
        let (kernel, stride, padding) = (list(kernel)?, list(stride)?, list(padding)?);
        Ok(Windows { lines: 2, kernel, stride, padding, dilation, ceil })
    }

    /// Converts 1D windows to 2D windows whose first dim has size 1.
    fn in_one_dimension(self) -> Result<Self, Error> {
        let lift = |list: &[i64], neutral: i64| match list {
            [] => Ok(Vec::new()),
            [only] => Ok(vec![neutral, *only]),
            _ => Err(Error::Invalid(format!("expected one value for one dim, found {list:?}"))),
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

/// Returns the pooled dims of a tensor. A single one counts as two, of which the first has
/// size 1.
struct Plane {
    lines: usize,
    size: [usize; 2],
}

impl Plane {
    fn of(input: &Operand, lines: usize, kind: Kind) -> Result<Self, Error> {
        checked_numel(&input.sizes)?;
        // Shaders compare as floats, which represent all 8-bit integers exactly, but not all 32-bit
        // ones.
        let is_code = [Element::I8, Element::U8].contains(&input.element);
        let is_taken = input.element.is_floating() || (is_code && kind == Kind::Max);
        if !is_taken {
            return Err(Error::unsupported(format!("pooling of type {:?}", input.element)));
        }
        match (lines, &input.sizes[..]) {
            (1, [_, x] | [_, _, x]) => Ok(Plane { lines, size: [1, *x] }),
            (2, [_, y, x] | [_, _, y, x]) => Ok(Plane { lines, size: [*y, *x] }),
            _ => Err(Error::Invalid(format!(
                "input: expected {} or {} dims, found shape {:?}",
                lines + 1,
                lines + 2,
                input.sizes
            ))),
        }
    }
}

fn pool(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    input: &Operand,
    windows: Windows,
    kind: Kind,
) -> Result<(), Error> {
    let plane = Plane::of(input, windows.lines, kind)?;
    let kernel = pair(&windows.kernel, None)?;
    let stride = pair(&windows.stride, Some(kernel))?;
    let padding = pair(&windows.padding, Some([0, 0]))?;
    let dilation = pair(&windows.dilation, Some([1, 1]))?;
    let mut window = [Window::NONE; 2];
    let mut out_size = [0; 2];
    for (dim, size) in plane.size.into_iter().enumerate() {
        window[dim] = Window::new(kernel[dim], stride[dim], padding[dim], dilation[dim])?;
        if i64::from(window[dim].padding) * 2 > window[dim].reach() {
            return Err(Error::Invalid(format!(
                "padding {} exceeds half the kernel, which spans {} elements",
                window[dim].padding,
                window[dim].reach()
            )));
        }
        out_size[dim] = window[dim].count(size, windows.ceil)?;
    }
    emit(e, args, input, &plane, window, out_size, kind, false)
}

/// Sets the shapes of the outputs and emits the dispatch.
#[allow(clippy::too_many_arguments)]
fn emit(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    input: &Operand,
    plane: &Plane,
    window: [Window; 2],
    out_size: [usize; 2],
    kind: Kind,
    adaptive: bool,
) -> Result<(), Error> {
    let mut sizes = input.sizes[..input.rank() - plane.lines].to_vec();
    sizes.extend(&out_size[2 - plane.lines..]);
    checked_numel(&sizes)?;
    let outs = e.outs(args)?;
    let first =
        outs.first().copied().ok_or_else(|| Error::invalid("the call has no output tensor"))?;
    let out = e.resize(first, &sizes)?;
    let indices = match outs.get(1) {
        Some(id) if kind == Kind::Max => Some(e.resize(*id, &sizes)?),
        _ => None,
    };
    // Some exporters give unused index outputs no shape.
    let indices = indices.filter(|indices| indices.numel() == out.numel());
    let indices = indices.unwrap_or_else(|| out.clone());
    slide(e, [input, &out, &indices], [plane.size, out_size], window, kind, adaptive)
}

/// Emits the dispatch over planes. If `adaptive` is set, `y` and `x` are ignored. Without an index
/// output, pass `out` as `indices`.
fn slide(
    e: &mut Encoder<'_, '_>,
    [input, out, indices]: [&Operand; 3],
    [size, out_size]: [[usize; 2]; 2],
    [y, x]: [Window; 2],
    kind: Kind,
    adaptive: bool,
) -> Result<(), Error> {
    let (number, count_padding, divisor) = match kind {
        Kind::Max => (u32::from(indices.id != out.id), false, 0),
        Kind::Mean { count_padding, divisor } => (2, count_padding, divisor),
    };
    let pipeline = Pool {
        input: input.element,
        output: out.element,
        indices: indices.element,
        kind: number,
        count_padding,
        adaptive,
    };
    let [in_y, in_x] = size;
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
