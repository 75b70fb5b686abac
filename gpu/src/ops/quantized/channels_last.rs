//! Conversions of int8 images to channels-last layout and back.

use crate::derived::GROUP;
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::ops::views::gather;
use crate::tensors::Operand;
use torchlet_shaders::{Element, PackInt8, PackInt8Push};

/// Returns the channels and the pixels per channel of an image tensor.
pub(super) fn channels_and_plane(sizes: &[usize]) -> Result<[usize; 2], Error> {
    match sizes {
        [_, channels, height, width] => {
            let plane = height.checked_mul(*width);
            let plane =
                plane.ok_or_else(|| Error::unsupported(format!("images of shape {sizes:?}")))?;
            Ok([*channels, plane])
        }
        _ => Err(Error::Invalid(format!("images: expected 4 dims, found shape {sizes:?}"))),
    }
}

/// Returns the channels-last shape of images.
pub(super) fn channels_last_sizes(pictures: &Operand, [channels, plane]: [usize; 2]) -> [usize; 3] {
    let batches = pictures.numel() / channels.saturating_mul(plane).max(1);
    [batches, plane, channels.next_multiple_of(GROUP)]
}

/// Converts images to channels-last layout.
pub(super) fn to_channels_last(
    e: &mut Encoder<'_, '_>,
    pictures: &Operand,
    channels: [usize; 2],
) -> Result<Operand, Error> {
    let packed = e.temporary(Element::I8, &channels_last_sizes(pictures, channels))?;
    pack(e, pictures, channels, &packed)?;
    Ok(packed)
}

pub(super) fn pack(
    e: &mut Encoder<'_, '_>,
    pictures: &Operand,
    [channels, plane]: [usize; 2],
    packed: &Operand,
) -> Result<(), Error> {
    if packed.numel() == 0 {
        return Ok(());
    }
    let push = PackInt8Push {
        numel: u32_of(packed.numel() / GROUP)?,
        channels: u32_of(channels)?,
        plane: u32_of(plane)?,
    };
    let accesses = [read(pictures.id), write(packed.id)];
    e.dispatch_along_x(&PackInt8 {}, accesses, &push, packed.numel() / GROUP)
}

/// Emits the conversion of int8 images from channels-last layout to the default layout.
pub(super) fn planes(
    e: &mut Encoder<'_, '_>,
    packed: &Operand,
    pictures: &Operand,
) -> Result<(), Error> {
    let [channels, plane] = channels_and_plane(&pictures.sizes)?;
    let pitch = packed.size(2);
    if packed.sizes != channels_last_sizes(pictures, [channels, plane]) {
        let (from, to) = (&packed.sizes, &pictures.sizes);
        return Err(Error::Invalid(format!(
            "channels-last shape {from:?} does not match image shape {to:?}"
        )));
    }
    let sizes = [packed.size(0), channels, plane];
    let steps = [plane * pitch, 1, pitch].map(|step| step as i64);
    gather(e, packed, pictures, &sizes, &steps, 0)
}
