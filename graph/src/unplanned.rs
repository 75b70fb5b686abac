//! Memory for state that the exporter did not plan.
//!
//! Exporters can leave mutable buffers out of the memory plan. With initial data, such a buffer
//! looks like a constant; without, it looks like an activation that the compiler has to plan.
//! Before a method is compiled, its buffers get slots in a planned buffer and become ordinary
//! state.

use crate::error::Error;
use crate::front::Vocabulary;
use crate::method::{Instruction, Method, MethodTensor, MethodValue, TensorData};
use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use torchlet_core::ShapeDynamism;

/// Alignment of state, in bytes.
const ALIGN: usize = 16;

/// Maximum number of planned buffers that receive state, over all methods. Each method with such
/// state also lists the buffers of the methods before it, as empty ones. A program with a thousand
/// methods stays below this limit.
const MAX_BUFFERS: usize = 1 << 20;

/// Planned buffers for the state of methods: each method with such state declares one more buffer.
pub(crate) struct StateBuffers {
    /// Number of the next buffer.
    next: usize,
    /// Buffers that methods may still declare, together.
    left: usize,
}

impl StateBuffers {
    /// Buffers after those of the program.
    pub(crate) fn after(methods: &[Method<'_>]) -> Self {
        let next = methods.iter().map(|method| method.planned.len()).max().unwrap_or(0);
        StateBuffers { next, left: MAX_BUFFERS }
    }

    /// Returns the number of an unused buffer, or `None` if the limit is reached.
    pub(crate) fn unused(&self) -> Option<usize> {
        (self.next < self.left).then_some(self.next)
    }

    /// Counts the buffer if the method declares it.
    pub(crate) fn count(&mut self, method: &Method<'_>) {
        if method.planned.len() > self.next {
            // The method also declares the buffers of all methods before it.
            self.left = self.left.saturating_sub(self.next);
            self.next = method.planned.len();
        }
    }
}

impl Method<'_> {
    /// Assigns slots in a planned buffer to state without one: constants that instructions write,
    /// and tensors without data that may be read before they are written. An elided view of such a
    /// constant has the same name and data as the constant, and gets the same slot.
    ///
    /// # Errors
    /// No buffer is left, the state is too large, or a view differs in size from its state.
    pub(crate) fn place_state(
        &mut self,
        vocabulary: &Vocabulary,
        inputs: &BTreeMap<usize, usize>,
        buffer: Option<usize>,
    ) -> Result<(), Error> {
        let written = self.written(vocabulary);
        let is_constant =
            |value: &usize| self.tensor(*value).is_some_and(MethodTensor::is_constant);
        let mut state: Vec<usize> = written.iter().copied().filter(is_constant).collect();
        let views = self.views_of_state(&state)?;
        state.extend(self.read_first(vocabulary, inputs));
        state.retain(|value| !views.contains_key(value));
        if state.is_empty() {
            return Ok(());
        }
        let buffer = buffer.ok_or_else(|| {
            Error::unsupported("state in a program whose methods have too many planned buffers")
        })?;
        let too_large = || Error::unsupported("state that exceeds the address space");
        let mut end = self.planned.get(buffer).copied().unwrap_or(0);
        for value in state {
            if let Some(MethodValue::Tensor(tensor)) = self.values.get_mut(value) {
                tensor.location = Some((buffer, end));
                end = end
                    .checked_add(tensor.info.nbytes())
                    .and_then(|end| end.checked_next_multiple_of(ALIGN))
                    .ok_or_else(too_large)?;
            }
        }
        for (view, state) in views {
            let place = self.tensor(state).and_then(|state| state.location);
            if let Some(MethodValue::Tensor(view)) = self.values.get_mut(view) {
                (view.location, view.data, view.name) = (place, TensorData::None, None);
            }
        }
        self.planned.resize(self.planned.len().max(buffer + 1), 0);
        if let Some(size) = self.planned.get_mut(buffer) {
            *size = end;
        }
        Ok(())
    }

    /// Returns the tensors that kernels and moves write.
    fn written(&self, vocabulary: &Vocabulary) -> BTreeSet<usize> {
        let values = self.instructions.iter().flat_map(|instruction| match instruction {
            Instruction::Kernel { name, overload, args } => {
                let places = vocabulary.written(name, overload).iter();
                places.filter_map(|place| args.get(*place).copied()).collect()
            }
            Instruction::Move { to, .. } => Vec::from([*to]),
            _ => Vec::new(),
        });
        values.flat_map(|value| self.with_items(value)).collect()
    }

    /// Maps each elided view of state with initial data to that state.
    fn views_of_state(&self, state: &[usize]) -> Result<BTreeMap<usize, usize>, Error> {
        let mut named: BTreeMap<&str, usize> = BTreeMap::new();
        for value in state {
            if let Some(name) = self.tensor(*value).and_then(|tensor| tensor.name.as_deref()) {
                named.entry(name).or_insert(*value);
            }
        }
        let mut views = BTreeMap::new();
        for (value, kind) in self.values.iter().enumerate() {
            let MethodValue::Tensor(tensor) = kind else { continue };
            let name = tensor.name.as_deref().filter(|_| tensor.is_constant());
            let Some(state) = name.and_then(|name| named.get(name)).copied() else { continue };
            let Some(of) = self.tensor(state).filter(|_| state != value) else { continue };
            if !is_same_data(&tensor.data, &of.data) {
                continue;
            }
            if tensor.info.nbytes() != of.info.nbytes() {
                return Err(Error::Unsupported(format!(
                    "values {value} and {state}, which are the same mutable buffer with {} and {} \
                     bytes",
                    tensor.info.nbytes(),
                    of.info.nbytes()
                )));
            }
            views.insert(value, state);
        }
        Ok(views)
    }

    /// Returns the tensors without data and slot, other than inputs and outputs, that may be read
    /// before they are written.
    fn read_first(
        &self,
        vocabulary: &Vocabulary,
        inputs: &BTreeMap<usize, usize>,
    ) -> BTreeSet<usize> {
        let interface = self.inputs.iter().chain(&self.outputs);
        let interface: BTreeSet<usize> =
            interface.flat_map(|value| self.with_items(*value)).collect();
        let mentioned = self.instructions.iter().flat_map(Instruction::values);
        let mentioned = mentioned.flat_map(|value| self.with_items(value));
        let is_unplanned = |value: &usize| {
            self.tensor(*value).is_some_and(|tensor| {
                tensor.location.is_none()
                    && matches!(tensor.data, TensorData::None)
                    && tensor.dynamism == ShapeDynamism::Static
            })
        };
        let mentioned: BTreeSet<usize> = mentioned.filter(is_unplanned).collect();
        if mentioned.is_subset(&interface) {
            return BTreeSet::new();
        }
        let free = self.written_first(vocabulary, inputs);
        mentioned.into_iter().filter(|it| !interface.contains(it) && !free.contains(it)).collect()
    }
}

/// Whether two tensors refer to the same data in the file.
fn is_same_data(a: &TensorData<'_>, b: &TensorData<'_>) -> bool {
    match (a, b) {
        (TensorData::Inside(Cow::Borrowed(a)), TensorData::Inside(Cow::Borrowed(b))) => {
            (a.as_ptr(), a.len()) == (b.as_ptr(), b.len())
        }
        // The storage cannot be borrowed: compare contents.
        (TensorData::Inside(a), TensorData::Inside(b)) => a == b,
        // External data is found by name, and the names are equal.
        (TensorData::Outside, TensorData::Outside) => true,
        _ => false,
    }
}
