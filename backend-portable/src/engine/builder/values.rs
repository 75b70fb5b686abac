//! What operations ask for: values, their shapes and elements.

use super::constants::code_lines;
use super::{Builder, Purpose, Refusal};
use crate::engine::numbers::Precision;
use crate::engine::plan::{Element, Home};
use crate::engine::view::{View, numel};
use std::borrow::ToOwned;
use std::format;
use torchlet_graph::graph::{Tensor, Value, ValueId};

impl<'g, 'p> Builder<'g, 'p> {
    /// What a value is.
    pub(in crate::engine) fn value(&self, id: ValueId) -> &'g Value<'p> {
        self.graph.values.get(id).unwrap_or(&Value::None)
    }

    /// The same of a value that is the graph's.
    pub(in crate::engine) fn members(&self, id: ValueId) -> &'g [ValueId] {
        match self.graph.values.get(id) {
            Some(Value::List(items)) => items,
            _ => &[],
        }
    }

    /// The values of a list, or the one that is none.
    pub(in crate::engine) fn items(&self, id: &'g ValueId) -> &'g [ValueId] {
        self.graph.items(id)
    }

    pub(super) fn tensor(&self, id: ValueId) -> Result<&'g Tensor<'p>, Refusal> {
        match self.value(id) {
            Value::Tensor(tensor) => Ok(tensor),
            _ => Err("an argument is no tensor".to_owned()),
        }
    }

    /// What the elements of a tensor are.
    ///
    /// # Errors
    /// It is no tensor, or they are something else.
    pub(in crate::engine) fn element(&self, id: ValueId) -> Result<Element, Refusal> {
        let tensor = self.tensor(id)?;
        let found =
            Element::of(tensor.scalar_type).filter(|_| tensor.host_type == tensor.scalar_type);
        let scalar_type = tensor.scalar_type;
        found.ok_or_else(|| {
            format!("the engine computes in floating point of 16 and 32 bits and in 8 bits, not {scalar_type:?}")
        })
    }

    /// How the numbers of a tensor lie outside.
    ///
    /// # Errors
    /// It is no tensor, or has none.
    pub(in crate::engine) fn precision(&self, id: ValueId) -> Result<Precision, Refusal> {
        let precision = Precision::of(self.tensor(id)?.scalar_type);
        precision.ok_or_else(|| "it takes numbers, not codes".to_owned())
    }

    /// Whether elements are computed here.
    pub(in crate::engine) fn is_computed(&self, view: &View) -> bool {
        let home = self.buffers.get(view.buffer).map(|buffer| &buffer.home);
        matches!(home, Some(Home::Shared | Home::Output(_)))
    }

    /// What the elements of a view are.
    pub(in crate::engine) fn element_of(&self, view: &View) -> Element {
        self.buffers.get(view.buffer).map_or(Element::Float, |buffer| buffer.element)
    }

    /// Whether anybody takes a value.
    pub(in crate::engine) fn is_taken(&self, id: ValueId) -> bool {
        self.uses.get(&id).is_some_and(|uses| *uses > 0)
    }

    /// A tensor; `None` for an optional one that is absent.
    pub(in crate::engine) fn optional(
        &mut self,
        id: impl Into<Option<ValueId>>,
    ) -> Result<Option<View>, Refusal> {
        let Some(id) = id.into() else { return Ok(None) };
        match self.value(id) {
            Value::None => Ok(None),
            _ => self.view(id).map(Some),
        }
    }

    /// A tensor of numbers.
    pub(in crate::engine) fn view(&mut self, id: ValueId) -> Result<View, Refusal> {
        match self.element(id)? {
            Element::Float => self.any(id),
            Element::Code => Err("it takes numbers, not codes".to_owned()),
        }
    }

    /// A tensor of codes.
    pub(in crate::engine) fn codes(&mut self, id: ValueId) -> Result<View, Refusal> {
        match self.element(id)? {
            Element::Code => self.any(id),
            Element::Float => Err("it takes codes, not numbers".to_owned()),
        }
    }

    /// A tensor, whatever its elements are.
    pub(in crate::engine) fn any(&mut self, id: ValueId) -> Result<View, Refusal> {
        if let Some(view) = self.views.get(&id) {
            return Ok(view.clone());
        }
        let (tensor, element) = (self.tensor(id)?, self.element(id)?);
        let len = self.count(&tensor.sizes)?;
        let home = match &tensor.data {
            Some(data) => {
                self.plain.insert(id);
                let elements = match self.purpose {
                    Purpose::Plan(_) => Some(match element {
                        Element::Float => self.lent(tensor, data, len)?,
                        Element::Code => code_lines(data, len)?,
                    }),
                    Purpose::Question | Purpose::Packing(_) => None,
                };
                Home::Constant(elements)
            }
            None if self.is_question() => Home::Shared,
            None => return Err("a value is read before it is made".to_owned()),
        };
        let buffer = self.buffer(home, len, element);
        let view = View::whole(buffer, &tensor.sizes);
        self.place(id, view.clone());
        Ok(view)
    }

    /// The elements of a tensor. Only a plan for given shapes can have none.
    pub(super) fn count(&self, sizes: &[usize]) -> Result<usize, Refusal> {
        match numel(sizes) {
            Some(0) if !matches!(self.purpose, Purpose::Plan(_)) => {
                Err("a tensor without elements".to_owned())
            }
            Some(count) => Ok(count),
            None => Err(format!("a tensor of {sizes:?} elements")),
        }
    }

    /// Whether nothing is to be read or packed yet.
    pub(in crate::engine) fn is_question(&self) -> bool {
        matches!(self.purpose, Purpose::Question)
    }

    /// The shape of an input of a call.
    pub(in crate::engine) fn sizes(&self, id: ValueId) -> Result<&[usize], Refusal> {
        match self.views.get(&id) {
            Some(view) => Ok(&view.sizes),
            None => Ok(&self.tensor(id)?.sizes),
        }
    }

    /// An integer that the caller gives.
    pub(in crate::engine) fn given_integer(&self, id: ValueId) -> Option<i64> {
        self.numbers.get(&id).copied()
    }

    /// Whether a value can have a shape: the one that the graph says, or one within it.
    pub(super) fn check_shape(&self, id: ValueId, found: &[usize]) -> Result<(), Refusal> {
        let tensor = self.tensor(id)?;
        let fits = match self.purpose {
            Purpose::Plan(_) if self.varies => {
                let mut sizes = tensor.sizes.iter().zip(found);
                tensor.sizes.len() == found.len() && sizes.all(|(bound, size)| size <= bound)
            }
            // What is computed from bounds needs not be the bound that the program has.
            Purpose::Question | Purpose::Packing(_) if tensor.dynamic => {
                tensor.sizes.len() == found.len()
            }
            _ => tensor.sizes == found,
        };
        match fits {
            true => Ok(()),
            false => {
                let expected = &tensor.sizes;
                Err(format!("it gives the shape {found:?}, the program has {expected:?}"))
            }
        }
    }
}
