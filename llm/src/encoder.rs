//! Encoders: embeddings of images and sounds, mixed with those of tokens.

use crate::error::Error;
use crate::model::Model;
use std::ops::Range;
use torchlet_core::{ScalarType, TensorInfo, TensorRef, ValueMeta, ValueRef};

/// Maximum input size of an encoder in bytes: hours of sound, or an image of thousands of pixels
/// per side.
const MAX_INPUT: usize = 256 << 20;

/// Part of a prompt.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Input<'i> {
    /// Text. Names of special tokens become these tokens.
    Text(&'i str),
    /// Tokens.
    Tokens(&'i [u32]),
    /// Input of the program's `vision_encoder`
    /// ([`Runner::image_input`](crate::Runner::image_input)): an image of that size, normalized for
    /// the model.
    Image(TensorRef<'i>),
    /// Input of the program's `audio_encoder`
    /// ([`Runner::audio_input`](crate::Runner::audio_input)): audio features.
    Audio(TensorRef<'i>),
}

/// Kind of an encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Image,
    Audio,
}

/// Names of encoder methods, in ExecuTorch 1.5 and in earlier versions.
const NAMES: [(Kind, &str); 3] = [
    (Kind::Image, "vision_encoder"),
    (Kind::Image, "image_encoder"),
    (Kind::Audio, "audio_encoder"),
];

/// Encoders of a program: kind, method name and input.
#[derive(Debug, Clone, Default)]
pub(crate) struct Encoders(Vec<(Kind, String, TensorInfo)>);

/// Output of an encoder: one embedding row per position in the context.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) scalar_type: ScalarType,
    pub(crate) width: usize,
    pub(crate) count: usize,
    bytes: Vec<u8>,
}

impl Encoders {
    pub(crate) fn of(model: &dyn Model, names: &[String]) -> Result<Self, Error> {
        let mut found: Vec<(Kind, String, TensorInfo)> = Vec::new();
        for (kind, name) in NAMES {
            let is_known = found.iter().any(|(other, ..)| *other == kind);
            if is_known || !names.iter().any(|other| other == name) {
                continue;
            }
            let action = format!("read the inputs of the method '{name}'");
            let meta = model.method_meta(name).map_err(Error::model(action))?;
            match (meta.input_count(), meta.input(0)) {
                (1, Ok(Some(ValueMeta::Tensor(tensor)))) => {
                    check_size(name, &tensor.info)?;
                    found.push((kind, name.into(), tensor.info));
                }
                (count, _) => {
                    let message = format!("expected one tensor input, found {count} inputs");
                    return Err(Error::interface(name, message));
                }
            }
        }
        Ok(Encoders(found))
    }

    fn find(&self, kind: Kind) -> Option<&(Kind, String, TensorInfo)> {
        self.0.iter().find(|(other, ..)| *other == kind)
    }

    /// Input tensor of an encoder.
    pub(crate) fn input(&self, kind: Kind) -> Option<&TensorInfo> {
        self.find(kind).map(|(_, _, info)| info)
    }

    pub(crate) fn load(&self, model: &mut dyn Model) -> Result<(), Error> {
        for (_, name, _) in &self.0 {
            model.load(name).map_err(Error::model(format!("load the method '{name}'")))?;
        }
        Ok(())
    }

    /// Computes the embeddings of an image or a sound.
    pub(crate) fn encode(
        &self,
        model: &mut dyn Model,
        kind: Kind,
        input: &TensorRef<'_>,
    ) -> Result<Encoded, Error> {
        let Some((_, name, _)) = self.find(kind) else {
            let name = if kind == Kind::Image { "vision_encoder" } else { "audio_encoder" };
            return Err(Error::interface(
                name,
                "the program has no such encoder, and accepts only text",
            ));
        };
        encode(model, name, input)
    }
}

/// Rejects input sizes beyond any real image or sound: inputs of this size are allocated.
pub(crate) fn check_size(method: &str, info: &TensorInfo) -> Result<(), Error> {
    match info.nbytes() {
        ..=MAX_INPUT => Ok(()),
        bytes => {
            let message = format!("input 0: {info} has {bytes} bytes, more than {MAX_INPUT}");
            Err(Error::interface(method, message))
        }
    }
}

/// Runs an encoder method.
pub(crate) fn encode(
    model: &mut dyn Model,
    name: &str,
    input: &TensorRef<'_>,
) -> Result<Encoded, Error> {
    let mut made = Err("output 0: expected a contiguous tensor".to_owned());
    let read = &mut |index, value: ValueRef<'_>| {
        if let (0, ValueRef::Tensor(tensor)) = (index, value) {
            made = Encoded::of(&tensor);
        }
    };
    model
        .run(name, &[ValueRef::Tensor(input.clone())], read)
        .map_err(Error::model(format!("run '{name}'")))?;
    made.map_err(|message| Error::interface(name, message))
}

impl Encoded {
    /// Copies a tensor of shape `[1, n, width]` or `[n, width]`.
    fn of(tensor: &TensorRef<'_>) -> Result<Self, String> {
        let info = tensor.info();
        let fail = || {
            format!("output 0: expected rows, found {:?} {:?}", info.scalar_type, &info.sizes[..])
        };
        let (batch, count, width) = match info.sizes[..] {
            [batch, count, width] => (batch, count, width),
            [count, width] => (1, count, width),
            _ => return Err(fail()),
        };
        let size = |size: i32| usize::try_from(size).ok().filter(|size| *size > 0);
        let (Some(count), Some(width), true) = (size(count), size(width), batch == 1) else {
            return Err(fail());
        };
        let contiguous = TensorInfo::contiguous(info.scalar_type, &info.sizes);
        match contiguous.as_ref() == Some(info) {
            true => {
                let (scalar_type, bytes) = (info.scalar_type, tensor.bytes().to_vec());
                Ok(Encoded { scalar_type, width, count, bytes })
            }
            false => Err(fail()),
        }
    }

    /// Bytes of a range of rows.
    pub(crate) fn rows(&self, rows: Range<usize>) -> Option<&[u8]> {
        let size = self.width.checked_mul(self.scalar_type.size())?;
        self.bytes.get(rows.start.checked_mul(size)?..rows.end.checked_mul(size)?)
    }

    /// All rows, as a tensor of shape `[1, n, width]`.
    pub(crate) fn tensor(&self) -> Option<TensorRef<'_>> {
        let sizes = [1, i32::try_from(self.count).ok()?, i32::try_from(self.width).ok()?];
        TensorRef::new(TensorInfo::contiguous(self.scalar_type, &sizes)?, &self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversized_inputs_are_rejected() {
        let check = |sizes: &[i32]| {
            check_size("audio_encoder", &TensorInfo::contiguous(ScalarType::Float, sizes).unwrap())
        };
        assert!(check(&[1, 128, 3000]).is_ok());
        assert!(check(&[1, 3, 1 << 15, 1 << 15]).is_err());
        let error = check(&[1, 80, i32::MAX]).unwrap_err().to_string();
        assert!(error.contains("audio_encoder") && error.contains("more than"), "{error}");
    }
}
