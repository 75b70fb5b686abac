//! State by name: listed, read, written, saved and loaded.

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
    /// The index of its value in the method, by which it is read and written; what delegates keep
    /// is counted on behind the values.
    pub value: usize,
    /// Its name in the model, where the exporter kept it (ExecuTorch: `emit_mutable_buffer_names`).
    pub name: Option<String>,
    /// Type, shape and layout.
    pub info: TensorInfo,
    /// Planned buffer and offset, where it has a place there.
    place: Option<(usize, usize)>,
    /// The delegate that keeps it, and its number there, where it is kept by one.
    delegate: Option<[usize; 2]>,
}

impl StateTensor {
    /// The name, or the value's index where there is none.
    #[cfg(feature = "safetensors")]
    fn key(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("#{}", self.value))
    }
}

/// The state of one method of a group: each place in memory once, with a name if any of its tensors
/// has one.
fn state_of(group: &Group, index: usize) -> Result<Vec<StateTensor>, Error> {
    let state = group.with(index, |method| {
        let state = method.state();
        let state = state.map(|state| {
            let place = method.meta().planned_place(state.value)?;
            let (value, name, info) = (state.value, state.name.map(String::from), state.info);
            Ok(StateTensor { value, name, info, place, delegate: None })
        });
        let kept = method.delegate_state().zip(method.meta().value_count()..);
        let kept = kept.map(|((delegate, state), value)| {
            let (name, info) = (state.name.map(String::from), state.info);
            Ok(StateTensor { value, name, info, place: None, delegate: Some(delegate) })
        });
        state.chain(kept).collect::<Result<Vec<_>, _>>()
    })?;
    let of_load = |error: ProgramError| Error::of_load(&group.entry(index).name, error);
    let state = state.map_err(of_load)?;
    let mut once: Vec<StateTensor> = Vec::new();
    for tensor in state {
        let same = once.iter_mut().find(|other| {
            tensor.place.is_some() && other.place == tensor.place && other.info == tensor.info
        });
        match same {
            Some(other) => other.name = other.name.take().or(tensor.name),
            None => once.push(tensor),
        }
    }
    Ok(once)
}

impl Method<'_> {
    /// The tensors that the method keeps from run to run. Of what delegates keep, it is what the
    /// compiler put there.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn state(&self) -> Result<Vec<StateTensor>, Error> {
        state_of(self.group, self.index)
    }

    /// The tensor of the method's state that has this name.
    ///
    /// # Errors
    /// There is none.
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

    /// The delegate that keeps a tensor of the state, if one does, and what is kept.
    fn in_delegate(&self, value: usize) -> Result<Option<([usize; 2], TensorInfo)>, Error> {
        self.group.with(self.index, |method| {
            let number = value.checked_sub(method.meta().value_count())?;
            let (delegate, state) = method.delegate_state().nth(number)?;
            Some((delegate, state.info))
        })
    }

    /// A copy of a tensor of the method's state, by the [index](StateTensor::value) of its value.
    ///
    /// # Errors
    /// It is no state, or there is no memory for the copy.
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

    /// Writes a tensor of the method's state, by the [index](StateTensor::value) of its value. Its
    /// memory layout may be any.
    ///
    /// # Errors
    /// It is no state, or the tensor is of another type or shape.
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
            // The type and shape are the same, so that this fails only for want of memory.
            let converted = tensor.to_dim_order(&state.info().dim_order);
            Ok(converted.map(|tensor| state.bytes_mut().copy_from_slice(tensor.bytes())))
        })?;
        written.map_err(|source| self.state_error(&format!("#{value}"), source))?
    }
}

fn shape_of(info: &TensorInfo) -> Vec<usize> {
    (0..info.rank()).map(|dim| info.size(dim)).collect()
}

/// Whether a tensor is of the type and shape of a tensor of the state.
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

/// A tensor of a module's state: its name there, the method that it is read and written through,
/// and where.
#[cfg(feature = "safetensors")]
struct Kept {
    key: String,
    method: String,
    tensor: StateTensor,
}

#[cfg(feature = "safetensors")]
impl Module {
    /// The state of a group. What methods keep together is listed once, under the first of them.
    fn group_state(group: &Group) -> Result<Vec<Kept>, Error> {
        let (mut kept, mut places) = (Vec::new(), BTreeSet::new());
        for (index, method) in group.names().enumerate() {
            for tensor in state_of(group, index)? {
                let is_listed = tensor.place.is_some_and(|place| !places.insert(place));
                if !is_listed {
                    let key = format!("{method}/{}", tensor.key());
                    kept.push(Kept { key, method: method.into(), tensor });
                }
            }
        }
        Ok(kept)
    }

    /// The [state](Self#state) of all loaded methods, without what delegates of the file keep for
    /// themselves: the contents of a [safetensors](https://huggingface.co/docs/safetensors) file,
    /// in which a tensor is named `METHOD/NAME`, as in `decode/cache.keys`, or `METHOD/#INDEX`
    /// where the exporter kept no name. State that methods keep together is in it once, under the
    /// first of them in alphabetical order.
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
    /// A tensor is of a type that such files do not have, or there is no memory.
    pub fn save_state(&mut self) -> Result<Vec<u8>, Error> {
        let mut tensors = Vec::new();
        let groups: Vec<_> =
            self.groups.iter().map(Module::group_state).collect::<Result<_, _>>()?;
        for Kept { key, method, tensor } in groups.into_iter().flatten() {
            let state = self.method(&method)?.read_state(tensor.value)?.to_contiguous()?;
            tensors.push((key, state));
        }
        file::write(&tensors)
    }

    /// Loads what [`save_state`](Self::save_state) gave: methods that it names are loaded if they
    /// were not, and get that state, all of it or, if something does not fit, none. Other methods
    /// keep theirs.
    ///
    /// # Errors
    /// The bytes are no such file, name other tensors than the methods have, or some of another
    /// type or shape.
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
            // Methods that the file says nothing of keep their state.
            if !kept.iter().any(|kept| found.contains_key(&kept.key)) {
                continue;
            }
            for Kept { key, method, tensor } in kept {
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

/// Files of named tensors.
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

    /// The bytes of a file of these tensors, whose elements are in row-major order.
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

    /// The tensors of a file.
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
