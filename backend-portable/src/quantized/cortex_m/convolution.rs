//! Convolutions of 8-bit pictures.

use super::{Scale, dot, finish, int, picture};
use crate::compute::split::for_each_chunk_mut;
use crate::shape::bad;
use crate::table::kernels;
use torchlet_core::Param::{Int, IntList, OptionalTensor, Out, Tensor};
use torchlet_core::rules::window::{Window, Windows, windows};
use torchlet_core::{
    Arguments, Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, ScalarType, TensorInfo,
};

kernels! { CONVOLUTION:
    /// `cortex_m::quantized_conv2d.out(input, weight, bias, stride, padding, dilation, input_offset, output_offset, requantize_multipliers,
    /// requantize_shifts, activation_min, activation_max, scratch, out)`: a weight of output channels, rows, columns and
    /// input channels of a group.
    QUANTIZED_CONV2D_OUT = Kernel::new(
        "cortex_m::quantized_conv2d.out",
        &[
            Tensor,
            Tensor,
            OptionalTensor,
            IntList,
            IntList,
            IntList,
            Int,
            Int,
            Tensor,
            Tensor,
            Int,
            Int,
            Tensor,
            Out,
        ],
        |ctx| {
            let (input, weight) = (ctx.info(0)?, ctx.info(1)?);
            let (channels, depth) = (input.size(1), weight.size(3));
            let outputs = weight.sizes.first().copied().unwrap_or(0);
            if depth == 0
                || channels % depth != 0
                || channels == 0
                || weight.size(0) % (channels / depth) != 0
            {
                return Err(bad(1, "does not divide the channels into groups"));
            }
            prepare(ctx, PLAIN, outputs, &|window, _, size| window.convolved(size), convolve)
        },
    );
    /// `cortex_m::quantized_depthwise_conv2d.out(input, weight, bias, stride, padding, dilation, depth_multiplier, input_offset,
    /// output_offset, requantize_multipliers, requantize_shifts, activation_min, activation_max, scratch, out)`: a weight of 1,
    /// rows, columns and output channels.
    QUANTIZED_DEPTHWISE_CONV2D_OUT = Kernel::new(
        "cortex_m::quantized_depthwise_conv2d.out",
        &[
            Tensor,
            Tensor,
            OptionalTensor,
            IntList,
            IntList,
            IntList,
            Int,
            Int,
            Int,
            Tensor,
            Tensor,
            Int,
            Int,
            Tensor,
            Out,
        ],
        |ctx| {
            let (input, weight) = (ctx.info(0)?, ctx.info(1)?);
            let outputs = weight.sizes.get(3).copied().unwrap_or(0);
            let channels = i64::try_from(input.size(1)).unwrap_or(0);
            if weight.size(0) != 1
                || channels.checked_mul(ctx.int(6)?) != Some(outputs.into())
                || outputs == 0
            {
                return Err(bad(1, "does not have as many channels as the input times the multiplier"));
            }
            prepare(ctx, DEPTHWISE, outputs, &|window, _, size| window.convolved(size), depthwise)
        },
    );
    /// `cortex_m::quantized_transpose_conv2d.out(input, weight, bias, stride, padding, output_padding, dilation, input_offset, output_offset,
    /// requantize_multipliers, requantize_shifts, activation_min, activation_max, scratch, output_scratch, out)`: a weight
    /// of output channels, rows, columns and input channels.
    QUANTIZED_TRANSPOSE_CONV2D_OUT = Kernel::new(
        "cortex_m::quantized_transpose_conv2d.out",
        &[
            Tensor,
            Tensor,
            OptionalTensor,
            IntList,
            IntList,
            IntList,
            IntList,
            Int,
            Int,
            Tensor,
            Tensor,
            Int,
            Int,
            Tensor,
            Tensor,
            Out,
        ],
        |ctx| {
            let (input, weight) = (ctx.info(0)?, ctx.info(1)?);
            let outputs = weight.sizes.first().copied().unwrap_or(0);
            if weight.size(3) != input.size(1) || outputs == 0 {
                return Err(bad(1, "has another number of channels than the input"));
            }
            let extra = [ctx.list_int(5, 0)?, ctx.list_int(5, ctx.list_len(5)?.saturating_sub(1))?];
            let extra = extra.map(|extra| usize::try_from(extra).ok());
            let size = |window: &Window, dim: usize, size: usize| {
                window.transposed(size, extra.get(dim).copied()??)
            };
            prepare(ctx, TRANSPOSED, outputs, &size, convolve_transposed)
        },
    );
}

/// Where the arguments are that not all these operators have at the same place.
#[derive(Debug, Clone, Copy)]
struct Places {
    dilation: usize,
    /// The input's offset, followed by the output's offset, multipliers, shifts, lowest and highest result.
    offset: usize,
    out: usize,
}

const PLAIN: Places = Places { dilation: 5, offset: 6, out: 13 };
const DEPTHWISE: Places = Places { dilation: 5, offset: 7, out: 14 };
const TRANSPOSED: Places = Places { dilation: 6, offset: 7, out: 15 };

/// The windows of a kernel of this many rows and columns.
fn windows_of(
    ctx: &Arguments,
    weight: &TensorInfo,
    places: Places,
) -> Result<Windows, KernelError> {
    let &[_, rows, columns, _] = &weight.sizes[..] else {
        return Err(KernelError::Rank { arg: 1, found: weight.rank() });
    };
    let (stride, padding) = (ctx.ints(3)?, ctx.ints(4)?);
    windows(2, &[rows.into(), columns.into()], &stride, &padding, &ctx.ints(places.dilation)?)
        .filter(|_| !stride.is_empty())
        .ok_or(bad(3, "stride, padding or dilation is out of range"))
}

/// Checks what the operators have in common; returns the output's rows and columns, by `size`.
fn prepare(
    ctx: &mut Prepare,
    places: Places,
    channels: i32,
    size: &dyn Fn(&Window, usize, usize) -> Option<usize>,
    invoke: InvokeFn,
) -> Result<Plan, KernelError> {
    let (input, weight) = (picture(ctx, 0)?, ctx.info(1)?);
    super::expect_type(ctx, 1, ScalarType::Char)?;
    if !weight.is_contiguous() {
        return Err(KernelError::Layout { arg: 1 });
    }
    let windows = windows_of(ctx, &weight, places)?;
    let mut sizes = [0i32; 2];
    for (dim, (size_of, window)) in sizes.iter_mut().zip(&windows).enumerate() {
        let found =
            size(window, dim, input.size(dim + 2)).and_then(|size| i32::try_from(size).ok());
        *size_of = found.ok_or(bad(1, "is larger than the input with its padding"))?;
    }
    let count = usize::try_from(channels).unwrap_or(0);
    for arg in [places.offset + 2, places.offset + 3] {
        super::expect_type(ctx, arg, ScalarType::Int)?;
        if ctx.info(arg)?.numel() != count {
            return Err(bad(arg, "must have a number for each output channel"));
        }
    }
    if let Some(bias) = ctx.optional_info(2)? {
        super::expect_type(ctx, 2, ScalarType::Int)?;
        if bias.numel() != count {
            return Err(bad(2, "must have a number for each output channel"));
        }
    }
    let [rows, columns] = sizes;
    let batch = input.sizes.first().copied().unwrap_or(0);
    ctx.resize(places.out, &[batch, channels, rows, columns])?;
    picture(ctx, places.out)?;
    Ok(Plan::new(invoke))
}

/// Scales, offsets and bounds of the results.
struct Results<'c> {
    multipliers: &'c [i32],
    shifts: &'c [i32],
    bias: &'c [i32],
    input_offset: i32,
    offset: i32,
    bounds: (i32, i32),
}

impl<'c> Results<'c> {
    fn new(ctx: &Invoke<'c, '_>, places: Places) -> Result<Self, KernelError> {
        let at = places.offset;
        let (multipliers, shifts) = (ctx.tensor(at + 2)?, ctx.tensor(at + 3)?);
        let (multipliers, shifts) = (multipliers.data::<i32>()?, shifts.data::<i32>()?);
        let valid = |(&multiplier, &shift): (&i32, &i32)| {
            Scale::new(multiplier.into(), shift.into()).is_some()
        };
        if !multipliers.iter().zip(shifts).all(valid) {
            return Err(bad(at + 3, "has a shift that is out of range"));
        }
        let bias = ctx.optional_tensor(2)?;
        Ok(Results {
            multipliers,
            shifts,
            bias: bias.as_ref().map(|bias| bias.data::<i32>()).transpose()?.unwrap_or(&[]),
            input_offset: int(ctx, at)?,
            offset: int(ctx, at + 1)?,
            bounds: (int(ctx, at + 4)?, int(ctx, at + 5)?),
        })
    }

    fn bias(&self, channel: usize) -> i32 {
        self.bias.get(channel).copied().unwrap_or(0)
    }

    #[inline(always)]
    fn finish(&self, channel: usize, sum: i32) -> i8 {
        let multiplier = self.multipliers.get(channel).copied().unwrap_or(0);
        let shift = self.shifts.get(channel).copied().unwrap_or(0);
        let scale = Scale { multiplier, shift };
        finish(scale.requantize(sum), self.offset, self.bounds)
    }
}

/// A picture's rows, columns and channels.
#[derive(Debug, Clone, Copy)]
struct Extent {
    rows: usize,
    columns: usize,
    channels: usize,
}

impl Extent {
    fn of(info: &TensorInfo) -> Self {
        Extent { rows: info.size(2), columns: info.size(3), channels: info.size(1) }
    }

    /// Where a pixel begins.
    fn at(&self, batch: usize, row: usize, column: usize) -> usize {
        ((batch * self.rows + row) * self.columns + column) * self.channels
    }
}

/// Calls `pixel(batch, row, column, out)` for each pixel of an output.
fn for_each_pixel(
    ctx: &Invoke,
    extent: Extent,
    out: &mut [i8],
    pixel: &(dyn Fn(usize, usize, usize, &mut [i8]) + Sync),
) {
    let row_len = extent.columns * extent.channels;
    for_each_chunk_mut(ctx.parallel(), out, row_len, &|index, out: &mut [i8]| {
        let (batch, row) = (index / extent.rows.max(1), index % extent.rows.max(1));
        for (column, out) in out.chunks_mut(extent.channels.max(1)).enumerate() {
            pixel(batch, row, column, out);
        }
    });
}

fn convolve(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (input, weight) = (ctx.tensor(0)?, ctx.tensor(1)?);
    let (windows, results) = (windows_of(ctx, weight.info(), PLAIN)?, Results::new(ctx, PLAIN)?);
    let &[down, across] = &windows[..] else { return Err(bad(3, "must have two numbers")) };
    let (from, depth) = (Extent::of(input.info()), weight.size(3));
    let (kernel_rows, kernel_columns) = (weight.size(1), weight.size(2));
    let groups = (from.channels / depth.max(1)).max(1);
    let (data, weight) = (input.data::<i8>()?, weight.data::<i8>()?);
    let out = ctx.out(PLAIN.out)?;
    let to = Extent::of(out.info());
    let by_group = (to.channels / groups).max(1);
    let out = out.into_data::<i8>()?;
    for_each_pixel(ctx, to, out, &|batch, row, column, out| {
        let (rows, columns) = (down.taps(row, from.rows), across.taps(column, from.columns));
        for (channel, out) in out.iter_mut().enumerate() {
            let mut sum = results.bias(channel);
            let first = channel / by_group * depth;
            for tap in 0..rows.count {
                let kernel_row = (channel * kernel_rows + rows.first + tap) * kernel_columns;
                let y = rows.start + tap * down.dilation();
                let mut at = from.at(batch, y, columns.start) + first;
                let mut weight_at = (kernel_row + columns.first) * depth;
                // Taps beside each other lie beside each other.
                let joined = groups == 1 && across.dilation() == 1;
                let (turns, len) =
                    if joined { (1, columns.count * depth) } else { (columns.count, depth) };
                for _ in 0..turns {
                    let values = data.get(at..at + len).unwrap_or(&[]);
                    let weights = weight.get(weight_at..weight_at + len).unwrap_or(&[]);
                    sum = sum.wrapping_add(dot(values, weights, results.input_offset));
                    at += across.dilation() * from.channels;
                    weight_at += depth;
                }
            }
            *out = results.finish(channel, sum);
        }
    });
    Ok(())
}

/// Channels that are summed up together.
const LANES: usize = 64;

fn depthwise(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (input, weight) = (ctx.tensor(0)?, ctx.tensor(1)?);
    let windows = windows_of(ctx, weight.info(), DEPTHWISE)?;
    let results = Results::new(ctx, DEPTHWISE)?;
    let &[down, across] = &windows[..] else { return Err(bad(3, "must have two numbers")) };
    let (from, kernel_columns) = (Extent::of(input.info()), weight.size(2));
    let (data, weight) = (input.data::<i8>()?, weight.data::<i8>()?);
    let out = ctx.out(DEPTHWISE.out)?;
    let to = Extent::of(out.info());
    let multiplier = (to.channels / from.channels.max(1)).max(1);
    let out = out.into_data::<i8>()?;
    let offset = results.input_offset;
    for_each_pixel(ctx, to, out, &|batch, row, column, out| {
        let (rows, columns) = (down.taps(row, from.rows), across.taps(column, from.columns));
        for (block, out) in out.chunks_mut(LANES).enumerate() {
            let first = block * LANES;
            let mut sums = [0i32; LANES];
            for (lane, sum) in sums.iter_mut().enumerate().take(out.len()) {
                *sum = results.bias(first + lane);
            }
            for tap in 0..rows.count * columns.count {
                let (down_tap, across_tap) = (tap / columns.count, tap % columns.count);
                let y = rows.start + down_tap * down.dilation();
                let x = columns.start + across_tap * across.dilation();
                let kernel = (rows.first + down_tap) * kernel_columns + columns.first + across_tap;
                let weights = weight.get(kernel * to.channels + first..).unwrap_or(&[]);
                let pixel = from.at(batch, y, x);
                if multiplier == 1 {
                    let values = data.get(pixel + first..).unwrap_or(&[]);
                    let pairs = values.iter().zip(weights).take(out.len());
                    for (sum, (&value, &weight)) in sums.iter_mut().zip(pairs) {
                        let value = i32::from(value).wrapping_add(offset);
                        *sum = sum.wrapping_add(value.wrapping_mul(i32::from(weight)));
                    }
                } else {
                    for (lane, (sum, &weight)) in
                        sums.iter_mut().zip(weights).enumerate().take(out.len())
                    {
                        let at = pixel + (first + lane) / multiplier;
                        let value =
                            data.get(at).map_or(0, |&value| i32::from(value).wrapping_add(offset));
                        *sum = sum.wrapping_add(value.wrapping_mul(i32::from(weight)));
                    }
                }
            }
            for (lane, (out, &sum)) in out.iter_mut().zip(&sums).enumerate() {
                *out = results.finish(first + lane, sum);
            }
        }
    });
    Ok(())
}

fn convolve_transposed(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (input, weight) = (ctx.tensor(0)?, ctx.tensor(1)?);
    let windows = windows_of(ctx, weight.info(), TRANSPOSED)?;
    let results = Results::new(ctx, TRANSPOSED)?;
    let &[down, across] = &windows[..] else { return Err(bad(3, "must have two numbers")) };
    let (from, depth) = (Extent::of(input.info()), weight.size(3));
    let (kernel_rows, kernel_columns) = (weight.size(1), weight.size(2));
    let (data, weight) = (input.data::<i8>()?, weight.data::<i8>()?);
    let out = ctx.out(TRANSPOSED.out)?;
    let to = Extent::of(out.info());
    let out = out.into_data::<i8>()?;
    for_each_pixel(ctx, to, out, &|batch, row, column, out| {
        for (channel, out) in out.iter_mut().enumerate() {
            let mut sum = results.bias(channel);
            for tap_row in 0..kernel_rows {
                let Some(y) = source(&down, row, tap_row, from.rows) else { continue };
                for tap_column in 0..kernel_columns {
                    let x = source(&across, column, tap_column, from.columns);
                    let Some(x) = x else { continue };
                    let at = from.at(batch, y, x);
                    let kernel = (channel * kernel_rows + tap_row) * kernel_columns + tap_column;
                    let values = data.get(at..at + depth).unwrap_or(&[]);
                    let weights = weight.get(kernel * depth..(kernel + 1) * depth).unwrap_or(&[]);
                    sum = sum.wrapping_add(dot(values, weights, results.input_offset));
                }
            }
            *out = results.finish(channel, sum);
        }
    });
    Ok(())
}

/// The input that reaches output `at` through a tap of a transposed convolution.
fn source(window: &Window, at: usize, tap: usize, size: usize) -> Option<usize> {
    let reached =
        at.checked_add(window.padding())?.checked_sub(tap.checked_mul(window.dilation())?)?;
    let source = reached / window.stride();
    (reached % window.stride() == 0 && source < size).then_some(source)
}
