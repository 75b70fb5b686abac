//! State without a place in the memory plan.
//!
//! Exporters can leave mutable buffers out of the plan. Such state looks like a constant if it has
//! an initial value, and like any tensor that the compiler plans if it has none. Before a method is
//! compiled, it gets a place, and is like other state then.

use crate::error::Error;
use crate::front::Vocabulary;
use crate::method::{Instruction, Method, MethodTensor, MethodValue, TensorData};
use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use torchlet_core::ShapeDynamism;

/// At what multiples state starts.
const ALIGN: usize = 16;

impl Method<'_> {
    /// Gives places in a planned buffer to state that has none: constants that instructions write,
    /// and tensors without data of which something is read before it was written. Exporters elide
    /// views of the former: these have its name and its data, and get its place.
    ///
    /// # Errors
    /// There is no such buffer, or a view is of another size than its state.
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
        let buffer = buffer
            .ok_or_else(|| Error::unsupported("state of so many methods in a buffer each"))?;
        let too_large = || Error::unsupported("more state than a program can say");
        let mut end = self.planned.get(buffer).copied().unwrap_or(0);
        for value in state {
            if let Some(MethodValue::Tensor(tensor)) = self.values.get_mut(value) {
                tensor.place = Some((buffer, end));
                end = end
                    .checked_add(tensor.info.nbytes())
                    .and_then(|end| end.checked_next_multiple_of(ALIGN))
                    .ok_or_else(too_large)?;
            }
        }
        for (view, state) in views {
            let place = self.tensor(state).and_then(|state| state.place);
            if let Some(MethodValue::Tensor(view)) = self.values.get_mut(view) {
                (view.place, view.data, view.name) = (place, TensorData::None, None);
            }
        }
        self.planned.resize(self.planned.len().max(buffer + 1), 0);
        if let Some(size) = self.planned.get_mut(buffer) {
            *size = end;
        }
        Ok(())
    }

    /// The tensors that kernels and moves write.
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

    /// The views of state with initial data that exporters elided, each with its state.
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
                return Err(Error::unsupported("a view of state that is of another size"));
            }
            views.insert(value, state);
        }
        Ok(views)
    }

    /// The tensors without data and place, not the caller's, that may be read before they are
    /// written.
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
                tensor.place.is_none()
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

/// Whether two tensors have the same entry of the file for their data.
fn is_same_data(a: &TensorData<'_>, b: &TensorData<'_>) -> bool {
    match (a, b) {
        (TensorData::Inside(Cow::Borrowed(a)), TensorData::Inside(Cow::Borrowed(b))) => {
            (a.as_ptr(), a.len()) == (b.as_ptr(), b.len())
        }
        // Storage that lends nothing.
        (TensorData::Inside(a), TensorData::Inside(b)) => a == b,
        // Found by name.
        (TensorData::Outside, TensorData::Outside) => true,
        _ => false,
    }
}
