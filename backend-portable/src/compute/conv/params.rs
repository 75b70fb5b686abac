//! Validated parameters of a convolution.

use crate::compute::gemm::patches::Axis;

/// Memory layout of images.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Layout {
    /// `[batch, channel, depth, height, width]`
    ChannelsFirst,
    /// `[batch, depth, height, width, channel]`
    ChannelsLast,
}

/// Parameters of a convolution. Spatial values are `[depth, height, width]`; absent dims have
/// size, kernel, stride and dilation 1, padding 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConvParams {
    /// Batch size.
    pub batch: usize,
    /// Input channels of all groups.
    pub in_channels: usize,
    /// Output channels of all groups.
    pub out_channels: usize,
    /// Number of groups.
    pub groups: usize,
    /// Spatial size of the input.
    pub input: [usize; 3],
    /// Kernel size.
    pub kernel: [usize; 3],
    /// Stride.
    pub stride: [usize; 3],
    /// Zero padding on each side.
    pub padding: [usize; 3],
    /// Dilation of the taps.
    pub dilation: [usize; 3],
    /// Planes, rows and columns added to the result of a transposed convolution.
    pub output_padding: [usize; 3],
    /// Whether this is a transposed convolution.
    pub transposed: bool,
    /// Layout of input and output.
    pub layout: Layout,
}

/// A convolution with validated parameters: no size or coordinate overflows.
#[derive(Clone, Copy, Debug)]
pub struct Conv {
    p: ConvParams,
    pub(super) axes: [Axis; 3],
}

impl Conv {
    /// Validates the parameters. Returns `None` if a kernel size, stride, dilation or group count
    /// is zero, the groups do not divide the channels, the kernel exceeds the padded input, or a
    /// size overflows.
    pub fn new(p: ConvParams) -> Option<Conv> {
        if p.groups == 0
            || !p.in_channels.is_multiple_of(p.groups)
            || !p.out_channels.is_multiple_of(p.groups)
        {
            return None;
        }
        let mut axes = [Axis::TRIVIAL; 3];
        for (i, axis) in axes.iter_mut().enumerate() {
            *axis = axis_of(&p, i)?;
        }
        let fits = |sizes: [usize; 3], first: usize, second: usize| {
            let all =
                sizes.iter().try_fold(first.checked_mul(second)?, |n, &s| n.checked_mul(s))?;
            (all <= isize::MAX as usize / 4).then_some(())
        };
        fits(p.input, p.batch.max(1), p.in_channels)?;
        fits(axes.map(|a| a.output), p.batch.max(1), p.out_channels)?;
        fits(p.kernel, p.in_channels.max(1), p.out_channels.max(1))?;
        Some(Conv { p, axes })
    }

    /// The parameters.
    pub fn params(&self) -> &ConvParams {
        &self.p
    }

    /// Output size, `[depth, height, width]`.
    pub fn output(&self) -> [usize; 3] {
        self.axes.map(|a| a.output)
    }

    /// Turns a convolution over images with one column into one over images with one row. The
    /// memory layout is the same, and loops over a row become long.
    #[cfg(feature = "engine")]
    pub(crate) fn along_rows(self) -> Conv {
        let mut p = self.p;
        let is_one = [p.input[2], p.kernel[2]] == [1; 2];
        if !is_one || p.padding[2] != 0 || p.output_padding[2] != 0 || p.input[1] == 1 {
            return self;
        }
        let lists = [&mut p.input, &mut p.kernel, &mut p.stride, &mut p.padding, &mut p.dilation];
        for list in lists.into_iter().chain([&mut p.output_padding]) {
            list.swap(1, 2);
        }
        Conv::new(p).unwrap_or(self)
    }

    /// Number of input elements.
    pub fn input_len(&self) -> usize {
        self.p.batch * self.p.in_channels * self.p.input.iter().product::<usize>()
    }

    /// Number of output elements.
    pub fn output_len(&self) -> usize {
        self.p.batch * self.p.out_channels * self.output().iter().product::<usize>()
    }

    pub(super) fn taps(&self) -> usize {
        self.p.kernel.iter().product()
    }

    /// Input and output channels of one group.
    pub(super) fn group(&self) -> (usize, usize) {
        (self.p.in_channels / self.p.groups, self.p.out_channels / self.p.groups)
    }
}

fn axis_of(p: &ConvParams, i: usize) -> Option<Axis> {
    let (input, kernel, stride) = (p.input[i], p.kernel[i], p.stride[i]);
    let (padding, dilation) = (p.padding[i], p.dilation[i]);
    if kernel == 0 || stride == 0 || dilation == 0 {
        return None;
    }
    let small = |n: usize| isize::try_from(n).ok().filter(|&n| n <= isize::MAX / 4);
    let reach = dilation.checked_mul(kernel - 1)?;
    let axis = Axis { input, kernel, ..Axis::TRIVIAL };
    small(reach)?;
    small(padding)?;
    small(stride)?;
    if p.transposed {
        let full = input
            .checked_sub(1)?
            .checked_mul(stride)?
            .checked_add(reach)?
            .checked_add(p.output_padding[i])?;
        let output = full.checked_add(1)?.checked_sub(padding.checked_mul(2)?)?;
        small(full)?;
        let (origin, step) = (padding as isize, -(dilation as isize));
        return Some(Axis { output, origin, step, up: stride as isize, ..axis });
    }
    let padded = input.checked_add(padding.checked_mul(2)?)?;
    small(padded)?;
    let output = padded.checked_sub(reach + 1)? / stride + 1;
    Some(Axis {
        output,
        stride: stride as isize,
        origin: -(padding as isize),
        step: dilation as isize,
        ..axis
    })
}
