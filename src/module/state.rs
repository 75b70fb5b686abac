//! State tensors of methods: list, read, write, save and load them by name.

#[cfg(feature = "safetensors")]
use super::Module;
use super::group::Group;
use super::method::Method;
use crate::error::Error;
use crate::tensor::Tensor;
#[cfg(feature = "safetensors")]
use std::collections::BTreeSet;
use torchlet_core::{DelegateError, InputError, ProgramError, TensorInfo};

/// A tensor of a method's [state](crate::Module#state).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateTensor {
    /// Index of its value in the method, which identifies it for reads and writes. State tensors
    /// held by delegates have indices after those of the method's values.
    pub value: usize,
    /// Name in the model, if the exporter kept it (ExecuTorch: `emit_mutable_buffer_names`).
    pub name: Option<String>,
    /// Dtype, shape and layout.
    pub info: TensorInfo,
    /// Planned buffer and offset, if it is in planned memory.
    location: Option<(usize, usize)>,
    /// Delegate that holds the tensor and index in that delegate, if a delegate holds it.
    delegate: Option<[usize; 2]>,
}

impl StateTensor {
    /// The name, or `#` and the value index if it has none.
    #[cfg(feature = "safetensors")]
    fn key(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("#{}", self.value))
    }
}

/// State tensors of one method of a group. Values that share memory are listed once, with a name if
/// any of them has one.
fn state_of(group: &Group, index: usize) -> Result<Vec<StateTensor>, Error> {
    let state = group.with(index, |method| {
        let state = method.state();
        let state = state.map(|state| {
            let location = method.meta().planned_offset(state.value)?;
            let (value, name, info) = (state.value, state.name.map(String::from), state.info);
            Ok(StateTensor { value, name, info, location, delegate: None })
        });
        let kept = method.delegate_state().zip(method.meta().value_count()..);
        let kept = kept.map(|((delegate, state), value)| {
            let (name, info) = (state.name.map(String::from), state.info);
            Ok(StateTensor { value, name, info, location: None, delegate: Some(delegate) })
        });
        state.chain(kept).collect::<Result<Vec<_>, _>>()
    })?;
    let of_load = |error: ProgramError| Error::of_load(&group.entry(index).name, error);
    let state = state.map_err(of_load)?;
    let mut once: Vec<StateTensor> = Vec::new();
    for tensor in state {
        let same = once.iter_mut().find(|other| {
            tensor.location.is_some()
                && other.location == tensor.location
                && other.info == tensor.info
        });
        match same {
            Some(other) => other.name = other.name.take().or(tensor.name),
            None => once.push(tensor),
        }
    }
    Ok(once)
}

impl Method<'_> {
    /// State tensors of the method. Of the state in delegates, it lists what the torchlet compiler
    /// put there.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn state(&self) -> Result<Vec<StateTensor>, Error> {
        state_of(self.group, self.index)
    }

    /// State tensor of the method with this name.
    ///
    /// # Errors
    /// The method has no such state tensor.
    pub fn state_named(&self, name: &str) -> Result<StateTensor, Error> {
        let state = self.state()?;
        let found = state.iter().find(|tensor| tensor.name.as_deref() == Some(name)).cloned();
        found.ok_or_else(|| Error::StateNames {
            missing: Vec::new(),
            unknown: vec![format!("{}/{name}", self.name())],
        })
    }

    fn state_error(&self, tensor: &str, source: InputError) -> Error {
        Error::State { method: self.name().into(), tensor: tensor.into(), source }
    }

    fn delegate_error(&self, value: usize, source: DelegateError) -> Error {
        let (method, tensor) = (self.name().into(), format!("#{value}"));
        Error::DelegateState { method, tensor, source }
    }

    /// The delegate that holds a state tensor, with the tensor's description. `None` if no delegate
    /// does.
    fn in_delegate(&self, value: usize) -> Result<Option<([usize; 2], TensorInfo)>, Error> {
        self.group.with(self.index, |method| {
            let number = value.checked_sub(method.meta().value_count())?;
            let (delegate, state) = method.delegate_state().nth(number)?;
            Some((delegate, state.info))
        })
    }

    /// Copies a state tensor of the method, identified by its [value index](StateTensor::value).
    ///
    /// # Errors
    /// The value is not a state tensor, or the copy cannot be allocated.
    pub fn read_state(&self, value: usize) -> Result<Tensor, Error> {
        if let Some((delegate, info)) = self.in_delegate(value)? {
            let mut tensor = Tensor::zeros(info.scalar_type, &shape_of(&info))?;
            let read = |method: &torchlet_core::Method<'_>| {
                method.read_delegate_state(delegate, tensor.bytes_mut())
            };
            let read = self.group.with(self.index, read)?;
            return match read {
                Ok(()) => Ok(tensor),
                Err(source) => Err(self.delegate_error(value, source)),
            };
        }
        let state = self.group.with(self.index, |method| method.state_ref(value))?;
        Tensor::try_from(&state.map_err(|source| self.state_error(&format!("#{value}"), source))?)
    }

    /// Overwrites a state tensor of the method, identified by its [value
    /// index](StateTensor::value). The new tensor may have any memory layout.
    ///
    /// # Errors
    /// The value is not a state tensor, or `tensor` has another dtype or shape.
    pub fn write_state(&mut self, value: usize, tensor: &Tensor) -> Result<(), Error> {
        if let Some((delegate, info)) = self.in_delegate(value)? {
            let fitting = fits(&info, tensor.info());
            fitting.map_err(|source| self.state_error(&format!("#{value}"), source))?;
            let tensor = tensor.to_dim_order(&info.dim_order)?;
            let written = self.group.with_mut(self.index, |mut method| {
                method.write_delegate_state(delegate, tensor.bytes())
            })?;
            return written.map_err(|source| self.delegate_error(value, source));
        }
        let written = self.group.with_mut(self.index, |method| {
            let mut state = method.into_state_mut(value)?;
            fits(state.info(), tensor.info())?;
            // The dtype and shape match, so only the allocation can fail.
            let converted = tensor.to_dim_order(&state.info().dim_order);
            Ok(converted.map(|tensor| state.bytes_mut().copy_from_slice(tensor.bytes())))
        })?;
        written.map_err(|source| self.state_error(&format!("#{value}"), source))?
    }

    /// Fills the part of a state tensor that belongs to one of several
    /// [sequences](crate::ModuleBuilder::sequences) with zeros, its initial contents.
    ///
    /// # Errors
    /// The value is not a state tensor, or has no such slot.
    pub fn clear_state_slot(&mut self, value: usize, slot: usize) -> Result<(), Error> {
        let range = |info: &TensorInfo| {
            let count = info.sizes.first().and_then(|count| usize::try_from(*count).ok());
            let bytes = count.filter(|count| slot < *count).map(|count| info.nbytes() / count);
            let bytes =
                bytes.ok_or(InputError::Index { index: slot, count: count.unwrap_or(0) })?;
            Ok(slot * bytes..(slot + 1) * bytes)
        };
        let failed = |source| Error::State {
            method: self.name().into(),
            tensor: format!("#{value}"),
            source,
        };
        if self.in_delegate(value)?.is_some() {
            let mut tensor = self.read_state(value)?;
            let range = range(tensor.info()).map_err(failed)?;
            tensor.bytes_mut().get_mut(range).unwrap_or_default().fill(0);
            return self.write_state(value, &tensor);
        }
        let cleared = self.group.with_mut(self.index, |method| {
            let mut state = method.into_state_mut(value)?;
            let range = range(state.info())?;
            state.bytes_mut().get_mut(range).unwrap_or_default().fill(0);
            Ok(())
        })?;
        cleared.map_err(|source| self.state_error(&format!("#{value}"), source))
    }
}

fn shape_of(info: &TensorInfo) -> Vec<usize> {
    (0..info.rank()).map(|dim| info.size(dim)).collect()
}

/// Checks that a tensor has the dtype and shape of a state tensor.
pub(crate) fn fits(state: &TensorInfo, tensor: &TensorInfo) -> Result<(), InputError> {
    if state.scalar_type != tensor.scalar_type {
        let (expected, found) = (state.scalar_type, tensor.scalar_type);
        return Err(InputError::ScalarType { expected, found });
    }
    if state.sizes != tensor.sizes {
        let [expected, found] =
            [&state.sizes, &tensor.sizes].map(|sizes| torchlet_core::error::ShapeNote::new(sizes));
        return Err(InputError::Shape { expected, found, bound: false });
    }
    Ok(())
}

/// A state tensor of a module: its key in saved files, and the method that accesses it.
#[cfg(feature = "safetensors")]
struct StateEntry {
    key: String,
    method: String,
    tensor: StateTensor,
}

#[cfg(feature = "safetensors")]
impl Module {
    /// State tensors of a group. Tensors shared by several methods are listed once, under the first
    /// of them.
    fn group_state(group: &Group) -> Result<Vec<StateEntry>, Error> {
        let (mut kept, mut places) = (Vec::new(), BTreeSet::new());
        for (index, method) in group.names().enumerate() {
            for tensor in state_of(group, index)? {
                let is_listed = tensor.location.is_some_and(|place| !places.insert(place));
                if !is_listed {
                    let key = format!("{method}/{}", tensor.key());
                    kept.push(StateEntry { key, method: method.into(), tensor });
                }
            }
        }
        Ok(kept)
    }

    /// Saves the [state](Self#state) of all loaded methods, without state that delegates in the
    /// file keep privately.
    ///
    /// Returns the bytes of a [safetensors](https://huggingface.co/docs/safetensors) file. A tensor
    /// is named `METHOD/NAME`, as in `decode/cache.keys`, or `METHOD/#INDEX` if the exporter kept
    /// no name. State shared between methods is saved once, under the first of them in alphabetical
    /// order.
    ///
    /// ```
    /// # use torchlet::{Module, Tensor};
    /// # let model = "tests/fixtures/programs/state_named.bpte";
    /// # let x = Tensor::from_slice(&[2, 3], &[1.0f32; 6])?;
    /// let mut module = Module::load(model)?;
    /// module.forward(&x)?;
    /// let state = module.save_state()?;
    /// let next = module.forward(&x)?;
    ///
    /// // Later, or in another process:
    /// let mut module = Module::load(model)?;
    /// module.load_state(&state)?;
    /// assert_eq!(module.forward(&x)?, next);
    /// # Ok::<(), torchlet::Error>(())
    /// ```
    ///
    /// # Errors
    /// The file format does not support the dtype of a tensor, or memory is exhausted.
    pub fn save_state(&mut self) -> Result<Vec<u8>, Error> {
        let mut tensors = Vec::new();
        let groups: Vec<_> =
            self.groups.iter().map(Module::group_state).collect::<Result<_, _>>()?;
        for StateEntry { key, method, tensor } in groups.into_iter().flatten() {
            let state = self.method(&method)?.read_state(tensor.value)?.to_contiguous()?;
            tensors.push((key, state));
        }
        file::write(&tensors)
    }

    /// Restores state that [`save_state`](Self::save_state) returned. Methods named in the file are
    /// loaded if needed, and their state is replaced. Other methods keep their state. If any tensor
    /// does not fit, nothing is changed.
    ///
    /// # Errors
    /// The bytes are not a safetensors file, or its tensors differ from those of the methods in
    /// name, dtype or shape.
    pub fn load_state(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut found = file::read(bytes)?;
        for method in self.method_names()? {
            if found.keys().any(|key| key.split_once('/').is_some_and(|(name, _)| name == method)) {
                self.load_method(&method)?;
            }
        }
        let (mut missing, mut fitting) = (Vec::new(), Vec::new());
        for group in &self.groups {
            let kept = Module::group_state(group)?;
            // Methods that the file does not mention keep their state.
            if !kept.iter().any(|kept| found.contains_key(&kept.key)) {
                continue;
            }
            for StateEntry { key, method, tensor } in kept {
                let Some(new) = found.remove(&key) else {
                    missing.push(key);
                    continue;
                };
                fits(&tensor.info, new.info()).map_err(|source| Error::State {
                    method: method.clone(),
                    tensor: key,
                    source,
                })?;
                fitting.push((method, tensor.value, new));
            }
        }
        if !missing.is_empty() || !found.is_empty() {
            return Err(Error::StateNames { missing, unknown: found.into_keys().collect() });
        }
        for (method, value, tensor) in fitting {
            self.method(&method)?.write_state(value, &tensor)?;
        }
        Ok(())
    }
}

/// Reads and writes safetensors files.
#[cfg(feature = "safetensors")]
pub(crate) mod file {
    use crate::error::{Error, TensorError};
    use crate::tensor::Tensor;
    use safetensors::tensor::TensorView;
    use safetensors::{Dtype, SafeTensorError, SafeTensors};
    use std::collections::BTreeMap;
    use torchlet_core::ScalarType;

    const TYPES: [(ScalarType, Dtype); 13] = [
        (ScalarType::Bool, Dtype::BOOL),
        (ScalarType::Byte, Dtype::U8),
        (ScalarType::Char, Dtype::I8),
        (ScalarType::Short, Dtype::I16),
        (ScalarType::Int, Dtype::I32),
        (ScalarType::Long, Dtype::I64),
        (ScalarType::UInt16, Dtype::U16),
        (ScalarType::UInt32, Dtype::U32),
        (ScalarType::UInt64, Dtype::U64),
        (ScalarType::Half, Dtype::F16),
        (ScalarType::BFloat16, Dtype::BF16),
        (ScalarType::Float, Dtype::F32),
        (ScalarType::Double, Dtype::F64),
    ];

    fn fail(error: SafeTensorError) -> Error {
        Error::StateFile { source: Box::new(error) }
    }

    /// Serializes tensors, whose elements must be in row-major order.
    pub(crate) fn write(tensors: &[(String, Tensor)]) -> Result<Vec<u8>, Error> {
        let views = tensors.iter().map(|(name, tensor)| {
            let scalar_type = tensor.scalar_type();
            let unsupported = TensorError::Unsupported { scalar_type, operation: "saving" };
            let dtype = TYPES.iter().find(|(here, _)| *here == scalar_type).ok_or(unsupported)?;
            let view = TensorView::new(dtype.1, tensor.shape().to_vec(), tensor.bytes());
            Ok((name.as_str(), view.map_err(fail)?))
        });
        let views = views.collect::<Result<Vec<_>, Error>>()?;
        safetensors::serialize(views, None).map_err(fail)
    }

    /// Parses a file.
    pub(crate) fn read(bytes: &[u8]) -> Result<BTreeMap<String, Tensor>, Error> {
        let file = SafeTensors::deserialize(bytes).map_err(fail)?;
        let tensors = file.iter().map(|(name, view)| {
            let (_, scalar_type) = TYPES
                .iter()
                .map(|(here, there)| (there, here))
                .find(|(there, _)| **there == view.dtype())
                .ok_or_else(|| fail(SafeTensorError::TensorInvalidInfo))?;
            Ok((name.into(), Tensor::from_bytes(*scalar_type, view.shape(), view.data())?))
        });
        tensors.collect()
    }
}
