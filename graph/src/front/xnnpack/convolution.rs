//! Convolution, pooling and resizing. The blob uses NHWC, PyTorch NCHW.

use super::builder::{Builder, Limits};
use super::schema::{ConvolutionTable, PoolTable, ResizeTable};
use crate::error::Error;
use crate::front::convolution::Convolution;
use crate::graph::{Value, ValueId};
use crate::operators::Operator;
use alloc::format;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Permutation from NHWC to NCHW.
const CHANNELS_FIRST: [usize; 4] = [0, 3, 1, 2];
/// Permutation from NCHW to NHWC.
const CHANNELS_LAST: [usize; 4] = [0, 2, 3, 1];

/// Kinds of convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Filters `[outputs, height, width, inputs per group]`.
    Plain,
    /// Filters `[1, height, width, outputs]`.
    Depthwise,
    /// Transposed convolution, filters `[outputs, height, width, inputs per group]`.
    Transposed,
}

/// Converts a size or stride of the blob.
fn size(number: u32) -> Result<usize, Error> {
    let size = usize::try_from(number).ok().filter(|size| i32::try_from(*size).is_ok());
    size.ok_or_else(|| Error::Invalid(format!("size {number} exceeds 2^31 - 1")))
}

fn four(sizes: &[usize]) -> Result<[usize; 4], Error> {
    sizes.try_into().map_err(|_| Error::Invalid(format!("expected 4 dims, found shape {sizes:?}")))
}

fn first(sizes: [usize; 4]) -> [usize; 4] {
    CHANNELS_FIRST.map(|dim| sizes[dim])
}

/// Spatial padding.
#[derive(Debug, Clone, Copy)]
struct Padding {
    top: usize,
    right: usize,
    bottom: usize,
    left: usize,
}

impl Padding {
    /// Creates padding from its sizes in the order top, right, bottom, left.
    fn of(sides: [u32; 4]) -> Result<Self, Error> {
        let [top, right, bottom, left] = sides.map(size);
        Ok(Padding { top: top?, right: right?, bottom: bottom?, left: left? })
    }

    /// Whether the padding is symmetric.
    fn is_even(self) -> bool {
        self.top == self.bottom && self.left == self.right
    }

    /// Adds an explicit pad call for the asymmetric part of the padding. Returns the padded NCHW
    /// tensor and the remaining symmetric padding.
    fn evened<'p>(
        self,
        builder: &mut Builder<'p>,
        value: ValueId,
        filler: f64,
    ) -> Result<(ValueId, [usize; 2]), Error> {
        let even = [self.top.min(self.bottom), self.left.min(self.right)];
        let [height, width] = even;
        let more = [self.left - width, self.right - width, self.top - height, self.bottom - height];
        if more == [0; 4] {
            return Ok((value, even));
        }
        let mut sizes = four(&builder.sizes(value)?)?;
        let large = || Error::Invalid(format!("padding {more:?} exceeds the address space"));
        for (at, [before, after]) in [(3, [more[0], more[1]]), (2, [more[2], more[3]])] {
            let grown = sizes[at].checked_add(before).and_then(|size| size.checked_add(after));
            sizes[at] = grown.ok_or_else(large)?;
        }
        let (list, filler) = (builder.ints(more), builder.push(Value::Double(filler)));
        Ok((builder.call(Operator::CONSTANT_PAD_ND, &[value, list, filler], &sizes)?, even))
    }
}

/// Adds a convolution.
pub(super) fn convolution(
    builder: &mut Builder<'_>,
    table: &ConvolutionTable<'_>,
    kind: Kind,
    limits: Option<Limits>,
) -> Result<(), Error> {
    let groups = size(table.groups()?)?.max(1);
    let out = builder.id(table.output()?)?;
    let input = builder.id(table.input()?)?;
    let input = builder.numbers_in_order(input, &CHANNELS_FIRST)?;
    let mut parts = Vec::from([input]);
    for part in [table.filter()?, table.bias()?] {
        if part != u32::MAX {
            let part = builder.id(part)?;
            parts.push(builder.numbers(part)?);
        }
    }
    builder.make_alike(&mut parts)?;
    let (input, filter, bias) = match parts[..] {
        [input, filter] => (input, filter, builder.none()),
        [input, filter, bias] => (input, filter, bias),
        _ => return Err(Error::invalid("expected a filter, found none")),
    };
    let filter = weights(builder, filter, kind, groups)?;
    let padding = Padding::of([table.top()?, table.right()?, table.bottom()?, table.left()?])?;
    let (input, padding) = match kind {
        Kind::Transposed if !padding.is_even() => {
            return Err(Error::unsupported("transposed convolution with asymmetric padding"));
        }
        Kind::Transposed => (input, [padding.top, padding.left]),
        _ => padding.evened(builder, input, 0.0)?,
    };
    let pair = |height: u32, width: u32| Ok::<_, Error>([size(height)?, size(width)?]);
    let strides = pair(table.stride_height()?, table.stride_width()?)?;
    let dilation = pair(table.dilation_height()?, table.dilation_width()?)?;
    let adjustment = pair(table.adjustment_height()?, table.adjustment_width()?)?;
    let made = first(four(&builder.sizes(out)?)?);
    // Sizes fit into 32 bits.
    let list = |pair: [usize; 2]| pair.map(|item| item as i64).to_vec();
    let convolution = Convolution {
        stride: list(strides),
        padding: list(padding),
        dilation: list(dilation),
        transposed: (kind == Kind::Transposed).then(|| list(adjustment)),
        groups: groups as i64,
    };
    let (operator, inputs) =
        convolution.call([input, filter, bias], &mut |value| builder.push(value));
    let found = builder.call(operator, &inputs, &made)?;
    let found = match limits {
        Some(limits) => builder.limited(found, limits)?,
        None => found,
    };
    builder.store_in_order(found, &CHANNELS_LAST, out, None)
}

/// Converts filters to PyTorch's layout: `[outputs, inputs per group, height, width]`, or
/// `[inputs, outputs per group, height, width]` for transposed convolutions.
fn weights(
    builder: &mut Builder<'_>,
    filter: ValueId,
    kind: Kind,
    groups: usize,
) -> Result<ValueId, Error> {
    let sizes = four(&builder.sizes(filter)?)?;
    match kind {
        Kind::Plain => builder.permuted(filter, &CHANNELS_FIRST),
        Kind::Depthwise => builder.permuted(filter, &[3, 0, 1, 2]),
        Kind::Transposed if groups == 1 => builder.permuted(filter, &[3, 0, 1, 2]),
        Kind::Transposed => {
            let [outputs, height, width, inputs] = sizes;
            if outputs % groups != 0 {
                return Err(Error::Invalid(format!(
                    "{outputs} output channels are not divisible into {groups} groups"
                )));
            }
            let filter =
                builder.view(filter, &[groups, outputs / groups, height, width, inputs])?;
            let filter = builder.permuted(filter, &[0, 4, 1, 2, 3])?;
            let all = groups.checked_mul(inputs).ok_or_else(|| {
                Error::Invalid(format!("{groups} groups of {inputs} channels overflow"))
            })?;
            builder.view(filter, &[all, outputs / groups, height, width])
        }
    }
}

/// Adds max pooling or average pooling.
pub(super) fn pool(
    builder: &mut Builder<'_>,
    table: &PoolTable<'_>,
    takes_largest: bool,
    limits: Option<Limits>,
) -> Result<(), Error> {
    let out = builder.id(table.output()?)?;
    let input = builder.id(table.input()?)?;
    let input = builder.numbers_in_order(input, &CHANNELS_FIRST)?;
    let padding = Padding::of([table.top()?, table.right()?, table.bottom()?, table.left()?])?;
    let windows = [size(table.height()?)?, size(table.width()?)?];
    let strides = [size(table.stride_height()?)?, size(table.stride_width()?)?];
    let made = first(four(&builder.sizes(out)?)?);
    let found = if takes_largest {
        let dilation = [size(table.dilation_height()?)?, size(table.dilation_width()?)?];
        let (input, padding) = padding.evened(builder, input, f64::NEG_INFINITY)?;
        let (windows, strides) = (builder.ints(windows), builder.ints(strides));
        let (padding, dilation) = (builder.ints(padding), builder.ints(dilation));
        let (scalar_type, no) =
            (builder.tensor(input)?.scalar_type, builder.push(Value::Bool(false)));
        let largest = builder.new_tensor(scalar_type, &made);
        let indices = builder.new_tensor(ScalarType::Long, &made);
        let list = builder.push(Value::List([largest, indices].to_vec()));
        let inputs = [input, windows, strides, padding, dilation, no];
        builder.call_into(Operator::MAX_POOL2D_WITH_INDICES, &inputs, list);
        largest
    } else {
        if !padding.is_even() {
            return Err(Error::unsupported("average pooling with asymmetric padding"));
        }
        let padding = builder.ints([padding.top, padding.left]);
        let (windows, strides) = (builder.ints(windows), builder.ints(strides));
        // The average excludes padding.
        let (no, none) = (builder.push(Value::Bool(false)), builder.none());
        let inputs = [input, windows, strides, padding, no, no, none];
        builder.call(Operator::AVG_POOL2D, &inputs, &made)?
    };
    builder.store_in_order(found, &CHANNELS_LAST, out, limits)
}

/// Adds a mean over height and width.
pub(super) fn mean(
    builder: &mut Builder<'_>,
    input: ValueId,
    out: ValueId,
    limits: Option<Limits>,
) -> Result<(), Error> {
    let input = builder.numbers(input)?;
    let [batch, _, _, channels] = four(&builder.sizes(input)?)?;
    let keeps = builder.sizes(out)?.len() == 4;
    let sizes: Vec<usize> =
        if keeps { [batch, 1, 1, channels].to_vec() } else { [batch, channels].to_vec() };
    let dims = builder.ints([1, 2]);
    let (keep, none) = (builder.push(Value::Bool(keeps)), builder.none());
    let found = builder.call(Operator::MEAN_DIM, &[input, dims, keep, none], &sizes)?;
    builder.store(found, out, limits)
}

/// Adds bilinear resizing.
pub(super) fn resize(
    builder: &mut Builder<'_>,
    table: &ResizeTable<'_>,
    limits: Option<Limits>,
) -> Result<(), Error> {
    /// `XNN_FLAG_TENSORFLOW_LEGACY_MODE`
    const LEGACY: u32 = 4;
    /// `XNN_FLAG_ALIGN_CORNERS`
    const ALIGN_CORNERS: u32 = 8;
    let flags = table.flags()?;
    if flags & LEGACY != 0 {
        return Err(Error::unsupported("bilinear resizing in TensorFlow's legacy mode"));
    }
    let out = builder.id(table.output()?)?;
    let input = builder.id(table.input()?)?;
    let input = builder.numbers_in_order(input, &CHANNELS_FIRST)?;
    let [batch, channels, ..] = four(&builder.sizes(input)?)?;
    let size = [size(table.height()?)?, size(table.width()?)?];
    let list = builder.ints(size);
    let corners = builder.push(Value::Bool(flags & ALIGN_CORNERS != 0));
    let none = builder.none();
    let sizes = [batch, channels, size[0], size[1]];
    let inputs = [input, list, corners, none];
    let found = builder.call(Operator::UPSAMPLE_BILINEAR2D_VEC, &inputs, &sizes)?;
    builder.store_in_order(found, &CHANNELS_LAST, out, limits)
}
