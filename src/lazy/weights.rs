//! [`Weights`]: named tensors of safetensors files.

use super::node::{Cell, Value};
use super::{Device, Tensor};
use crate::error::Error;
use crate::files::{FileAccess, FileBytes};
use crate::module::state::file;
use std::collections::BTreeMap;
use std::path::Path;
use torchlet_core::{Limits, Serial};

/// Named tensors, marked as weights: programs that use them are compiled with their elements, which
/// are packed for the device once per program.
#[derive(Debug, Clone)]
pub struct Weights {
    tensors: BTreeMap<String, Tensor>,
}

impl Weights {
    /// Reads the tensors of a [safetensors](https://huggingface.co/docs/safetensors) file.
    ///
    /// # Errors
    /// The file cannot be read or is malformed, or has a dtype that torchlet lacks.
    pub fn load(path: impl AsRef<Path>, device: &Device) -> Result<Self, Error> {
        let limit = Limits::HOST.file_bytes;
        let bytes = FileBytes::open(path.as_ref(), FileAccess::Read, limit, &Serial)?;
        Weights::from_bytes(bytes.bytes(), device)
    }

    /// Reads the tensors of a safetensors file in memory.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn from_bytes(bytes: &[u8], device: &Device) -> Result<Self, Error> {
        let tensors = file::read(bytes)?.into_iter().map(|(name, tensor)| {
            let cell = Cell::leaf(device.clone(), tensor, true);
            (name, Tensor::of_value(Value::first(cell)))
        });
        Ok(Weights { tensors: tensors.collect() })
    }

    /// Returns the tensor of a name.
    ///
    /// # Errors
    /// No tensor has the name.
    pub fn get(&self, name: &str) -> Result<&Tensor, Error> {
        let unknown = || Error::StateNames { missing: Vec::new(), unknown: vec![name.into()] };
        self.tensors.get(name).ok_or_else(unknown)
    }

    /// Returns the names, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Returns the names and tensors, in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }
}
