//! Operators that change the resolution of planes.

use super::views::gather;
use super::{Entry, operator};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{
    GridPriorsArgs, GridSamplerArgs, Operator, PixelShuffleArgs, UpsampleAntialiasArgs,
    UpsampleBilinearArgs, UpsampleNearestArgs,
};
use torchlet_shaders::functions::resample;
use torchlet_shaders::{
    Element, GridPriors, GridPriorsPush, GridSample, GridSamplePush, Resample, ResamplePush,
    Upsample, UpsamplePush,
};

pub(super) const OPERATORS: &[Entry] = &[
    operator(Operator::UPSAMPLE_NEAREST2D_VEC, |e, args| {
        let call = UpsampleNearestArgs::of(args)?;
        upsample(e, args, [call.output_size, call.scale_factors], None)
    }),
    operator(Operator::UPSAMPLE_BILINEAR2D_VEC, |e, args| {
        let call = UpsampleBilinearArgs::of(args)?;
        let align_corners = e.bool(call.align_corners)?;
        upsample(e, args, [call.output_size, call.scale_factors], Some(align_corners))
    }),
    operator(Operator::GRID_SAMPLER_2D, grid_sampler),
    operator(Operator::UPSAMPLE_BILINEAR2D_AA, |e, args| antialiased(e, args, resample::LINEAR)),
    operator(Operator::UPSAMPLE_BICUBIC2D_AA, |e, args| antialiased(e, args, resample::CUBIC)),
    operator(Operator::ET_VK_GRID_PRIORS, |e, args| {
        let call = GridPriorsArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let (stride, offset) = (e.float(call.stride)?, e.float(call.offset)?);
        let rank = input.rank();
        if rank < 2 {
            return Err(Error::Invalid(format!(
                "input: expected at least 2 dims, found shape {:?}",
                input.sizes
            )));
        }
        let (height, width) = (input.size(rank - 2), input.size(rank - 1));
        let out = e.out(args)?;
        let out = e.resize(out.id, &[height * width, 2])?;
        let push = GridPriorsPush {
            numel: u32_of(out.numel())?,
            width: u32_of(width)?,
            stride: stride as f32,
            offset: offset as f32,
        };
        let pipeline = GridPriors { output: out.element };
        e.dispatch_by_four(&pipeline, [write(out.id)], &push, out.numel())
    }),
    operator(Operator::PIXEL_SHUFFLE, |e, args| {
        let call = PixelShuffleArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let factor = e.int(call.upscale_factor)?;
        let out = e.out(args)?.id;
        pixel_shuffle(e, &input, factor, out)
    }),
];

fn grid_sampler(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = GridSamplerArgs::of(args)?;
    let (input, grid) = (e.tensor(call.input)?, e.tensor(call.grid)?);
    let (mode, padding) = (e.int(call.interpolation_mode)?, e.int(call.padding_mode)?);
    let align_corners = e.bool(call.align_corners)?;
    let fits = input.rank() == 4
        && grid.rank() == 4
        && grid.size(3) == 2
        && grid.size(0) == input.size(0)
        && input.numel() > 0;
    if !fits {
        let (input, grid) = (&input.sizes, &grid.sizes);
        return Err(Error::Invalid(format!(
            "expected a nonempty input [n, c, h, w] and a grid [n, h, w, 2], found shapes \
             {input:?} and {grid:?}"
        )));
    }
    let choice = |number: i64| u32::try_from(number).ok().filter(|number| *number < 3);
    let (Some(mode), Some(padding)) = (choice(mode), choice(padding)) else {
        return Err(Error::Invalid(format!(
            "interpolation_mode and padding_mode: expected 0 to 2, found {mode} and {padding}"
        )));
    };
    let out = e.out(args)?;
    let out = e.resize(out.id, &[input.size(0), input.size(1), grid.size(1), grid.size(2)])?;
    u32_of(input.numel())?;
    u32_of(grid.numel())?;
    let push = GridSamplePush {
        numel: u32_of(out.numel())?,
        channels: u32_of(input.size(1))?,
        height: u32_of(input.size(2))?,
        width: u32_of(input.size(3))?,
        out_plane: u32_of(grid.size(1) * grid.size(2))?,
    };
    let pipeline = GridSample {
        input: input.element,
        grid: grid.element,
        output: out.element,
        mode,
        padding,
        align_corners,
    };
    let accesses = [read(input.id), read(grid.id), write(out.id)];
    e.dispatch_by_four(&pipeline, accesses, &push, out.numel())
}

/// Encodes pixel shuffle: moves channels into planes that are `factor` times as high and wide.
pub(super) fn pixel_shuffle(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    factor: i64,
    out: ValueId,
) -> Result<(), Error> {
    let factor = usize::try_from(factor).ok().filter(|factor| (1..=1 << 12).contains(factor));
    let rank = input.rank();
    let Some(factor) =
        factor.filter(|factor| rank >= 3 && input.size(rank - 3).is_multiple_of(factor * factor))
    else {
        return Err(Error::Invalid(format!(
            "input shape {:?} has no channels that are divisible by the square of the \
             upscale_factor",
            input.sizes
        )));
    };
    let (channels, height, width) =
        (input.size(rank - 3), input.size(rank - 2), input.size(rank - 1));
    let out_channels = channels / (factor * factor);
    let batch: usize = input.sizes[..rank - 3].iter().product();
    let plane = (height * width) as i64;
    let mut sizes = input.sizes[..rank - 3].to_vec();
    sizes.extend([out_channels, height * factor, width * factor]);
    let out = e.resize(out, &sizes)?;
    let view = [batch, out_channels, height, factor, width, factor];
    let factor = factor as i64;
    let channel = plane * factor * factor;
    let strides = [channel * out_channels as i64, channel, width as i64, plane * factor, 1, plane];
    gather(e, input, &out, &view, &strides, 0)
}

/// Encodes resampling: first horizontally, then vertically, with 32-bit intermediate values.
fn antialiased(e: &mut Encoder<'_, '_>, args: &[ValueId], filter: u32) -> Result<(), Error> {
    let call = UpsampleAntialiasArgs::of(args)?;
    let input = e.tensor(call.input)?;
    if input.rank() != 4 || input.numel() == 0 {
        return Err(Error::Invalid(format!(
            "input: expected 4 dims and at least one element, found shape {:?}",
            input.sizes
        )));
    }
    let aligned = e.bool(call.align_corners)?;
    let sizes: Vec<usize> =
        e.ints(call.output_size)?.iter().filter_map(|size| usize::try_from(*size).ok()).collect();
    let [height, width] = sizes[..] else {
        return Err(Error::Invalid(format!("output_size: expected two sizes, found {sizes:?}")));
    };
    let out = e.out(args)?;
    let out = e.resize(out.id, &[input.size(0), input.size(1), height, width])?;
    if !input.element.is_floating() || input.element != out.element {
        return Err(Error::unsupported(format!(
            "antialiased upsampling of {:?} to {:?}; expected the same floating-point type",
            input.element, out.element
        )));
    }
    let across =
        e.temporary(Element::F32, &[input.size(0), input.size(1), input.size(2), width])?;
    let passes = [(3, call.scales_w, &input, &across), (2, call.scales_h, &across, &out)];
    for (dim, factor, from, to) in passes {
        let factor = e.optional_float(factor)?;
        let (in_size, out_size) = (from.size(dim), to.size(dim));
        let scale = step(in_size, out_size, aligned, factor);
        let push = ResamplePush {
            numel: u32_of(to.numel())?,
            in_size: u32_of(in_size)?,
            out_size: u32_of(out_size)?,
            inner: u32_of(to.sizes.iter().skip(dim + 1).product())?,
            scale,
        };
        let pipeline = Resample { input: from.element, output: to.element, filter };
        e.dispatch_by_four(&pipeline, [read(from.id), write(to.id)], &push, to.numel())?;
    }
    Ok(())
}

/// Returns the distance between sampling positions.
fn step(from: usize, to: usize, aligned: bool, factor: Option<f64>) -> f32 {
    match factor {
        _ if aligned && to > 1 => (from as f32 - 1.0) / (to as f32 - 1.0),
        _ if aligned => 0.0,
        // PyTorch uses the inverse of the scale factor, not the ratio of sizes.
        Some(factor) if factor > 0.0 => (1.0 / factor) as f32,
        _ => from as f32 / to as f32,
    }
}

/// Encodes upsampling. `bilinear` selects bilinear interpolation and is its `align_corners`
/// setting; `None` selects nearest neighbour.
fn upsample(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    [output_size, factors]: [ValueId; 2],
    bilinear: Option<bool>,
) -> Result<(), Error> {
    let input = e.tensor(e.ends(args)?.0)?;
    if input.rank() != 4 || input.numel() == 0 {
        return Err(Error::Invalid(format!(
            "input: expected 4 dims and at least one element, found shape {:?}",
            input.sizes
        )));
    }
    let output_size = e.optional_ints(output_size)?;
    let factors = e.optional_floats(factors)?;
    let (height, width) = (input.size(2), input.size(3));
    let sizes: Vec<usize> = match (&output_size, &factors) {
        (Some(sizes), _) if sizes.len() == 2 => {
            sizes.iter().map(|size| usize::try_from(*size).unwrap_or(0)).collect()
        }
        (_, Some(factors)) if factors.len() == 2 => [height, width]
            .iter()
            .zip(factors)
            .map(|(size, factor)| (*size as f64 * factor) as usize)
            .collect(),
        _ => return Err(Error::invalid("expected two output sizes or two scale factors")),
    };
    let out = e.out(args)?;
    let out = e.resize(out.id, &[input.size(0), input.size(1), sizes[0], sizes[1]])?;
    let scale = |axis: usize, from: usize| {
        let to = sizes[axis];
        let given = factors.as_ref().filter(|_| output_size.is_none());
        let factor = given.and_then(|it| it.get(axis)).copied();
        match bilinear {
            // For nearest neighbour, exactly twice the size is an exception.
            None if to == 2 * from => 0.5,
            _ => step(from, to, bilinear == Some(true), factor),
        }
    };
    let push = UpsamplePush {
        numel: u32_of(out.numel())?,
        in_height: u32_of(height)?,
        in_width: u32_of(width)?,
        out_height: u32_of(sizes[0].max(1))?,
        out_width: u32_of(sizes[1].max(1))?,
        scale_y: scale(0, height),
        scale_x: scale(1, width),
    };
    if input.element != out.element {
        return Err(Error::Invalid(format!(
            "output: expected type {:?}, found {:?}",
            input.element, out.element
        )));
    }
    let pipeline = Upsample {
        bilinear: bilinear.is_some(),
        align_corners: bilinear == Some(true),
        element: input.element,
    };
    e.dispatch_by_four(&pipeline, [read(input.id), write(out.id)], &push, out.numel())
}
