//! Convolutions: parsing of their arguments, and choice of the algorithm.

use super::matmul::{Product, SHARES, Windows, share, workgroup};
use super::tiling::{is_tiled, windows_are_tiled};
use super::views::gather;
use super::weights::transposed;
use super::window::{Depth, Window, checked_numel, pair, triple};
use super::{Entry, product};
use crate::derived::Matrices;
use crate::device::is_parallel;
use crate::encoder::{Access, Encoder, read, u32_of, write};
use crate::error::Error;
use crate::stages::Epilogue;
use crate::tensors::Operand;
use torchlet_graph::graph::{Node, ValueId};
use torchlet_graph::operators::{Conv1dArgs, ConvolutionArgs, ConvolutionWithClampArgs, Operator};
use torchlet_shaders::{
    Convolution, ConvolutionDepthwise, ConvolutionDepthwisePush, ConvolutionPush, Element,
};

pub(super) mod channels_last;
mod staged;
mod transposed;

pub(super) const OPERATORS: &[Entry] = &[
    product(Operator::CONVOLUTION, |e, args| full(e, &ConvolutionArgs::of(args)?.into())),
    product(Operator::CONV_WITH_CLAMP, clamped),
    product(Operator::ET_VK_CONV_WITH_CLAMP, clamped),
    product(Operator::ET_VK_CONV2D_GEMM, clamped),
    product(Operator::ET_VK_CONV1D_PW, of_rows),
    product(Operator::ET_VK_CONV1D_DW, of_rows),
];

/// The arguments that all floating-point convolution operators have.
pub(crate) struct ConvolutionCall {
    pub(crate) input: ValueId,
    pub(crate) weight: ValueId,
    bias: ValueId,
    pub(crate) stride: ValueId,
    pub(crate) padding: ValueId,
    pub(crate) dilation: ValueId,
    /// Whether the convolution is transposed, and the output padding if it is.
    pub(crate) transposed: Option<[ValueId; 2]>,
    pub(crate) groups: ValueId,
    /// A lower and an upper bound of the output values.
    pub(crate) bounds: Option<[ValueId; 2]>,
    pub(crate) out: ValueId,
}

impl ConvolutionCall {
    /// Returns the arguments of a call, if it is a convolution.
    pub(crate) fn of(call: &Node) -> Option<Self> {
        let plain = || ConvolutionArgs::matching(call).map(Self::from);
        let clamped = || ConvolutionWithClampArgs::matching(call).map(Self::from);
        plain().or_else(clamped).or_else(|| Conv1dArgs::matching(call).map(Self::from))
    }
}

macro_rules! convolution_calls {
    ($($call:ident: |$it:ident| $transposed:expr, $bounds:expr;)*) => {$(
        impl From<$call> for ConvolutionCall {
            fn from($it: $call) -> Self {
                let $call { input, weight, bias, stride, padding, dilation, groups, out, .. } = $it;
                ConvolutionCall {
                    input,
                    weight,
                    bias,
                    stride,
                    padding,
                    dilation,
                    transposed: $transposed,
                    groups,
                    bounds: $bounds,
                    out,
                }
            }
        }
    )*};
}

convolution_calls! {
    ConvolutionArgs: |call| Some([call.transposed, call.output_padding]), None;
    ConvolutionWithClampArgs: |call| Some([call.transposed, call.output_padding]),
        Some([call.output_min, call.output_max]);
    Conv1dArgs: |call| None, Some([call.output_min, call.output_max]);
}

/// A convolution from `[batch, in_channels, size[0], size[1]]` to
/// `[batch, out_channels, out_size[0], out_size[1]]`. In 3D convolutions, a depth dim
/// precedes rows and columns.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) input: Operand,
    pub(super) out: Operand,
    pub(super) weight: Operand,
    pub(super) bias: Option<Operand>,
    is_transposed: bool,
    pub(super) window: [Window; 2],
    pub(super) batch: usize,
    pub(super) groups: usize,
    /// Channels per group.
    pub(super) in_channels: usize,
    pub(super) out_channels: usize,
    pub(super) size: [usize; 2],
    pub(super) out_size: [usize; 2],
    /// The depth dim of a 3D convolution.
    pub(super) depth: Option<Depth>,
    /// The maximum number of outputs per channel.
    pub(super) bound: usize,
    /// The maximum batch size.
    pub(super) most: usize,
    pub(super) epilogue: Epilogue,
}

fn full(e: &mut Encoder<'_, '_>, call: &ConvolutionCall) -> Result<(), Error> {
    convolution(e, call)?.map_or(Ok(()), |shape| shape.encode(e))
}

fn clamped(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    full(e, &ConvolutionWithClampArgs::of(args)?.into())
}

fn of_rows(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    full(e, &Conv1dArgs::of(args)?.into())
}

fn clamp(e: &Encoder<'_, '_>, low: ValueId, high: ValueId) -> Result<Epilogue, Error> {
    Ok(Epilogue::clamp(
        e.optional_float(low)?.unwrap_or(f64::NEG_INFINITY),
        e.optional_float(high)?.unwrap_or(f64::INFINITY),
    ))
}

/// Parses a convolution and sets the shape of its output; `None` if the output is empty.
fn convolution(e: &mut Encoder<'_, '_>, call: &ConvolutionCall) -> Result<Option<Shape>, Error> {
    let clamp = match call.bounds {
        Some([low, high]) => clamp(e, low, high)?,
        None => Epilogue::none(),
    };
    let transposed = match call.transposed {
        Some([transposed, output_padding]) if e.bool(transposed)? => Some(e.ints(output_padding)?),
        _ => None,
    };
    let transposed = transposed.as_ref();
    let groups = e.int(call.groups)?;
    let (input, weight) = (e.tensor(call.input)?, e.tensor(call.weight)?);
    let bias = e.optional_tensor(call.bias)?;
    for operand in [Some(&input), Some(&weight), bias.as_ref()].into_iter().flatten() {
        checked_numel(&operand.sizes)?;
        if !operand.element.is_floating() {
            return Err(Error::unsupported(format!(
                "convolution with operands of type {:?}; expected floating point",
                operand.element
            )));
        }
    }
    let misfit = || {
        let (input, weight) = (&input.sizes, &weight.sizes);
        Error::Invalid(format!("input shape {input:?} does not match weight shape {weight:?}"))
    };

    // Add the missing leading dims with size 1, and a batch dim if the input has none.
    let (lines, kernel) = match weight.sizes[..] {
        [_, _, x] => (1, [1, 1, x]),
        [_, _, y, x] => (2, [1, y, x]),
        [_, _, z, y, x] => (3, [z, y, x]),
        _ => return Err(misfit()),
    };
    let (batch, channels, size) = match (lines, &input.sizes[..]) {
        (1, [channels, x]) => (1, *channels, [1, 1, *x]),
        (1, [batch, channels, x]) => (*batch, *channels, [1, 1, *x]),
        (2, [channels, y, x]) => (1, *channels, [1, *y, *x]),
        (2, [batch, channels, y, x]) => (*batch, *channels, [1, *y, *x]),
        (3, [channels, z, y, x]) => (1, *channels, [*z, *y, *x]),
        (3, [batch, channels, z, y, x]) => (*batch, *channels, [*z, *y, *x]),
        _ => return Err(misfit()),
    };
    let lists = [e.ints(call.stride)?, e.ints(call.padding)?, e.ints(call.dilation)?];
    let of_each = |values: &Vec<i64>| match lines {
        3 => triple(values),
        _ => pair(values, None).map(|[y, x]| [1, y, x]),
    };
    let mut window = [Window::NONE; 3];
    let [stride, padding, dilation] =
        [of_each(&lists[0])?, of_each(&lists[1])?, of_each(&lists[2])?];
    for dim in 3 - lines..3 {
        let kernel = i64::try_from(kernel[dim]).unwrap_or(i64::MAX);
        window[dim] = Window::new(kernel, stride[dim], padding[dim], dilation[dim])?;
    }
    let groups = usize::try_from(groups)
        .ok()
        .filter(|groups| *groups > 0 && channels > 0 && channels.is_multiple_of(*groups))
        .ok_or_else(|| {
            Error::Invalid(format!(
                "{channels} input channels are not divisible into {groups} groups"
            ))
        })?;
    let in_channels = channels / groups;
    // Weights are `[out, in / groups, ..]`, for transposed convolutions `[in, out / groups, ..]`.
    let out_channels = match transposed {
        Some(_) => weight.size(1),
        None => weight.size(0) / groups,
    };
    let fits = match transposed {
        Some(_) => weight.size(0) == channels,
        None => weight.size(0) == out_channels * groups && weight.size(1) == in_channels,
    };
    if !fits || out_channels == 0 {
        return Err(misfit());
    }
    let all_channels = out_channels
        .checked_mul(groups)
        .ok_or_else(|| Error::unsupported("more than 2^64 output channels"))?;
    if let Some(bias) = bias.as_ref().filter(|bias| bias.numel() != all_channels) {
        return Err(Error::Invalid(format!(
            "bias: expected {all_channels} elements, found shape {:?}",
            bias.sizes
        )));
    }
    let mut out_size = [1, 1, 1];
    for dim in 3 - lines..3 {
        out_size[dim] = match transposed {
            Some(output_padding) => {
                let output_padding = match (lines, &output_padding[..]) {
                    (3, []) => [0; 3],
                    (3, values) => triple(values)?,
                    (_, values) => pair(values, Some([0, 0])).map(|[y, x]| [0, y, x])?,
                };
                window[dim].transposed_count(size[dim], output_padding[dim])?
            }
            None => window[dim].count(size[dim], false)?,
        };
    }
    let mut sizes = input.sizes[..input.rank() - lines - 1].to_vec();
    sizes.push(all_channels);
    sizes.extend(&out_size[3 - lines..]);
    checked_numel(&sizes)?;
    let out = e.resize(e.out_id(&[call.out])?, &sizes)?;
    if !out.element.is_floating() {
        return Err(Error::unsupported(format!(
            "convolution with an output of type {:?}; expected floating point",
            out.element
        )));
    }
    if out.numel() == 0 {
        return Ok(None);
    }
    let bounds = e.bound_sizes(&out);
    let plane = bounds.iter().rev().take(lines).copied().fold(1, usize::saturating_mul);
    let most = checked_numel(&bounds)? / all_channels.saturating_mul(plane).max(1);
    let ([wz, wy, wx], [z, y, x], [out_z, out_y, out_x]) = (window, size, out_size);
    let (window, size, out_size, depth) = match [wy, wx] {
        // If only the depth is convolved, each plane counts as a row.
        [Window::NONE, Window::NONE] if lines == 3 => {
            ([wz, Window::NONE], [z, y * x], [out_z, out_y * out_x], None)
        }
        _ => {
            let depth = Depth { window: wz, size: z, out_size: out_z };
            // Decided by the largest shape, so that dynamic shapes always use the same kernels.
            let most_planes = e.bound_sizes(&input).iter().rev().nth(2).copied().unwrap_or(1);
            let is_deep = lines == 3 && (wz != Window::NONE || most_planes.max(z) > 1);
            let depth = Some(depth).filter(|_| is_deep);
            ([wy, wx], [y, x], [out_y, out_x], depth)
        }
    };
    Ok(Some(Shape {
        input,
        out,
        weight,
        bias,
        is_transposed: transposed.is_some(),
        window,
        batch,
        groups,
        in_channels,
        out_channels,
        size,
        out_size,
        depth,
        bound: plane.max(1),
        most: most.max(1),
        epilogue: e.take_epilogue().unwrap_or(clamp),
    }))
}

/// Whether four neighbouring outputs depend on so few neighbouring inputs that a shader can keep
/// the inputs in registers.
pub(super) fn by_row(window: &Window) -> bool {
    3 * i64::from(window.stride) + window.reach() <= 16
}

impl Shape {
    /// Parses a call as a convolution ([`convolution`]).
    pub(super) fn of(e: &mut Encoder<'_, '_>, call: &Node) -> Result<Option<Self>, Error> {
        match ConvolutionCall::of(call) {
            Some(call) => convolution(e, &call),
            None => Err(Error::Invalid(format!(
                "internal error: {:?} is not a convolution",
                call.operator
            ))),
        }
    }

    /// Emits the dispatches of the convolution.
    pub(super) fn encode(self, e: &mut Encoder<'_, '_>) -> Result<(), Error> {
        if self.is_transposed {
            self.transposed(e)
        } else if self.is_depthwise() {
            self.depthwise(e)
        } else if self.is_pointwise() {
            self.pointwise(e)
        } else if let Some(blocks) = self.staged(e) {
            self.in_blocks(e, blocks)
        } else if self.is_gemm(e) {
            self.product(e)
        } else if self.in_patches(e) {
            self.patches(e)
        } else {
            self.direct(e)
        }
    }

    /// Whether the convolution is depthwise: one input channel per group.
    pub(super) fn is_depthwise(&self) -> bool {
        !self.is_transposed && self.in_channels == 1 && self.groups > 1
    }

    /// Whether windows have one element and stride one.
    pub(super) fn is_pointwise(&self) -> bool {
        !self.is_transposed
            && self.depth.is_none()
            && self.window.iter().all(|window| *window == Window::NONE)
    }

    /// Returns the bias, or any tensor for the unused binding.
    pub(super) fn bias(&self) -> &Operand {
        self.bias.as_ref().unwrap_or(&self.weight)
    }

    /// Returns the residual, or any tensor for the unused binding.
    pub(super) fn residual(&self) -> &Operand {
        self.epilogue.residual.as_ref().unwrap_or(&self.weight)
    }

    fn accesses(&self, weights: &Operand) -> [Access; 5] {
        let [bias, residual] = [self.bias().id, self.residual().id].map(read);
        [read(self.input.id), read(weights.id), bias, residual, write(self.out.id)]
    }

    /// Returns the number of terms per output element: input channels times taps.
    fn terms(&self) -> usize {
        self.in_channels * self.taps()
    }

    /// Returns the number of elements of a window.
    fn taps(&self) -> usize {
        let [y, x] = self.window.map(|window| window.kernel as usize);
        self.depth_window().kernel as usize * y * x
    }

    /// Returns the window in the depth dim; that of a 2D convolution has one element.
    fn depth_window(&self) -> Window {
        self.depth.map_or(Window::NONE, |depth| depth.window)
    }

    /// Returns the number of planes per channel, of input and output.
    fn planes(&self) -> [usize; 2] {
        self.depth.map_or([1, 1], |depth| [depth.size, depth.out_size])
    }

    /// Returns the number of elements per channel, of input and output.
    fn places(&self) -> [usize; 2] {
        let [planes, out_planes] = self.planes();
        let ([y, x], [out_y, out_x]) = (self.size, self.out_size);
        [planes * y * x, out_planes * out_y * out_x]
    }

    /// Returns the weights as `[group][input channel and tap][output channel]`.
    pub(super) fn weights(&self, e: &mut Encoder<'_, '_>) -> Result<Operand, Error> {
        let (count, rows, columns) = (self.groups, self.out_channels, self.terms());
        transposed(e, &self.weight, Matrices { count, rows, columns })
    }

    /// Returns the element types of weights and input, and the maximum GEMM sizes
    /// `[batches, m, n, k]`.
    fn sizes(&self) -> ([Element; 2], [usize; 4]) {
        let batches = self.most * self.groups;
        let sizes = [batches, self.out_channels, self.bound, self.terms()];
        ([self.weight.element, self.input.element], sizes)
    }

    /// Emits a GEMM of the weights and `columns`. With `windows`, the columns are windows of an
    /// image (implicit GEMM).
    fn times(
        self,
        e: &mut Encoder<'_, '_>,
        columns: Operand,
        windows: Option<Windows>,
    ) -> Result<(), Error> {
        let weights = self.weights(e)?;
        let (m, [_, n]) = (self.out_channels, self.places());
        let (batches, terms) = (self.batch * self.groups, self.terms());
        let mut product = Product::new(weights, columns, self.out, [m, n, terms]);
        product.a_transposed = true;
        product.batches = batches;
        product.period = Some(self.groups);
        product.bias = self.bias.map(|bias| (bias, m, [1, 0]));
        product.epilogue = Some(self.epilogue);
        product.bound = Some([self.most * self.groups, m, self.bound]);
        product.windows = windows;
        product.encode(e)
    }

    /// Emits a GEMM of the weights and the input planes.
    fn pointwise(self, e: &mut Encoder<'_, '_>) -> Result<(), Error> {
        let planes = self.input.clone();
        self.times(e, planes, None)
    }

    /// Whether the convolution has enough work for a tiled GEMM.
    fn is_gemm(&self, e: &Encoder<'_, '_>) -> bool {
        let (factors, sizes) = self.sizes();
        windows_are_tiled(e, factors, sizes)
    }

    /// Emits an implicit GEMM of the weights and windows, which are read directly from the input.
    fn product(self, e: &mut Encoder<'_, '_>) -> Result<(), Error> {
        let windows = Windows {
            window: self.window,
            size: self.size,
            picture: self.in_channels * self.places()[0],
            count: self.out_size,
            depth: self.depth,
        };
        let pictures = self.input.clone();
        self.times(e, pictures, Some(windows))
    }

    /// Whether windows do not overlap, and a tiled GEMM over the windows has enough work.
    fn in_patches(&self, e: &Encoder<'_, '_>) -> bool {
        let beside = |window: &Window| {
            window.stride == window.kernel && window.padding == 0 && window.dilation == 1
        };
        let (factors, sizes) = self.sizes();
        let windows = self.window.into_iter().chain([self.depth_window()]);
        self.groups == 1
            && windows.clone().all(|it| beside(&it))
            && is_tiled(e, factors.into(), sizes)
    }

    /// Emits a GEMM of the weights and a matrix of windows, which is materialised first (im2col).
    fn patches(self, e: &mut Encoder<'_, '_>) -> Result<(), Error> {
        let [y, x] = self.window.map(|window| window.kernel as usize);
        let z = self.depth_window().kernel as usize;
        let ([height, width], [rows, columns]) = (self.size, self.out_size);
        let ([_, planes], [channel, places]) = (self.planes(), self.places());
        let shape = [self.batch, self.terms(), places];
        let windows = e.temporary(self.input.element, &shape)?;
        let plane = height * width;
        let sizes = [self.batch, self.in_channels, z, y, x, planes, rows, columns];
        let strides =
            [self.in_channels * channel, channel, plane, width, 1, z * plane, y * width, x];
        let strides = strides.map(|stride| stride as i64);
        gather(e, &self.input, &windows, &sizes, &strides, 0)?;
        self.times(e, windows, None)
    }

    fn direct(self, e: &mut Encoder<'_, '_>) -> Result<(), Error> {
        let weights = self.weights(e)?;
        let [y, x] = self.window;
        let rows: usize = if self.out_channels > 4 { 8 } else { 4 };
        let (across, down) = (self.bound.div_ceil(4), self.out_channels.div_ceil(rows));
        let images = self.batch * self.groups;
        // Invocations share sums: each adds up a part of the input channels.
        let terms = self.in_channels * self.taps().clamp(1, 8);
        let invocations = (across * down).saturating_mul(self.most * self.groups);
        // With few output channels, each invocation mainly waits for memory, so that more
        // invocations are faster. With more output channels, they would be slower.
        let few = self.out_channels <= 4 && is_parallel(e.busy());
        let times = if few { e.profile().narrow_convolution } else { 1 };
        let busy = e.busy().saturating_mul(times);
        let shares = share(busy, invocations, terms, SHARES);
        let question = ("direct", weights.element, self.sizes(), self.window, self.depth);
        let shares = e.choose(&self.out, question, shares, |usual| {
            let others = [1, 4, 16, 64].into_iter().filter(|shares| shares != usual);
            others.filter(|shares| terms >= *shares).collect()
        });
        let workgroup = workgroup(across, down, shares);
        let partials =
            if shares > 1 { rows * workgroup.iter().product::<u32>() as usize } else { 1 };
        let pipeline = Convolution {
            input: self.input.element,
            weight: weights.element,
            bias: self.bias().element,
            output: self.out.element,
            rows: u32_of(rows)?,
            kernel_x: x.kernel as u32,
            stride_x: x.stride as u32,
            dilation_x: x.dilation as u32,
            by_row: by_row(&x),
            has_bias: self.bias.is_some(),
            shares: u32_of(shares)?,
            partials: u32_of(partials)?,
            activation: self.epilogue.activation,
            residual: self.residual().element,
            has_residual: self.epilogue.residual.is_some(),
            deep: self.depth.is_some(),
        };
        let (z, [planes, out_planes]) = (self.depth_window(), self.planes());
        let push = ConvolutionPush {
            groups: u32_of(self.groups)?,
            in_channels: u32_of(self.in_channels)?,
            out_channels: u32_of(self.out_channels)?,
            pitch: u32_of(weights.size(2))?,
            in_y: self.size[0] as i32,
            in_x: self.size[1] as i32,
            out_y: u32_of(self.out_size[0])?,
            out_x: u32_of(self.out_size[1])?,
            kernel_y: y.kernel as u32,
            stride_y: y.stride,
            padding_y: y.padding,
            padding_x: x.padding,
            dilation_y: y.dilation,
            a: self.epilogue.a,
            b: self.epilogue.b,
            in_z: planes as i32,
            out_z: u32_of(out_planes)?,
            kernel_z: z.kernel as u32,
            stride_z: z.stride,
            padding_z: z.padding,
            dilation_z: z.dilation,
            base_z: 0,
        };
        let accesses = self.accesses(&weights);
        let positions = out_planes * self.out_size[0] * self.out_size[1].div_ceil(4);
        e.dispatch(&pipeline, accesses, &push, [positions, down, images * shares], workgroup)
    }

    /// Emits a depthwise convolution.
    fn depthwise(self, e: &mut Encoder<'_, '_>) -> Result<(), Error> {
        let [y, x] = self.window;
        let (z, [in_z, out_z]) = (self.depth_window(), self.planes());
        let planes = self.batch * self.groups * self.out_channels * out_z;
        // Two rows share inputs if there is enough work.
        let most = self.most * self.groups * self.out_channels;
        let rows = if self.bound.saturating_mul(most) / 8 >= e.busy() { 2 } else { 1 };
        let question = ("depthwise", self.sizes(), self.window, self.depth);
        let rows = e.choose(&self.out, question, rows, |rows| vec![3 - rows]);
        let pipeline = ConvolutionDepthwise {
            input: self.input.element,
            weight: self.weight.element,
            bias: self.bias().element,
            output: self.out.element,
            rows,
            kernel_x: x.kernel as u32,
            kernel_y: y.kernel as u32,
            stride_x: x.stride as u32,
            stride_y: y.stride as u32,
            dilation_x: x.dilation as u32,
            dilation_y: y.dilation as u32,
            by_row: by_row(&x) && y.reach() <= 16 && y.stride <= 4 && x.kernel * y.kernel <= 49,
            has_bias: self.bias.is_some(),
            activation: self.epilogue.activation,
            residual: self.residual().element,
            has_residual: self.epilogue.residual.is_some(),
            deep: self.depth.is_some(),
        };
        let push = ConvolutionDepthwisePush {
            planes: u32_of(planes)?,
            channels: u32_of(self.groups * self.out_channels)?,
            multiplier: u32_of(self.out_channels)?,
            in_y: self.size[0] as i32,
            in_x: self.size[1] as i32,
            out_y: u32_of(self.out_size[0])?,
            out_x: u32_of(self.out_size[1])?,
            padding_y: y.padding,
            padding_x: x.padding,
            a: self.epilogue.a,
            b: self.epilogue.b,
            in_z: in_z as i32,
            out_z: u32_of(out_z)?,
            kernel_z: z.kernel as u32,
            stride_z: z.stride,
            padding_z: z.padding,
            dilation_z: z.dilation,
        };
        let accesses = self.accesses(&self.weight);
        let tiles = self.out_size[0].div_ceil(rows as usize) * self.out_size[1].div_ceil(4);
        e.dispatch_along_x(&pipeline, accesses, &push, planes * tiles)
    }
}
