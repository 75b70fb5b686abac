//! Queries of operators: values, their shapes and elements.

use super::constants::code_lines;
use super::{Builder, Purpose, Refusal};
use crate::engine::numbers::Precision;
use crate::engine::ops::{EngineForms, Epilogue};
use crate::engine::plan::{Element, Home};
use crate::engine::view::{View, numel};
use std::borrow::ToOwned;
use std::format;
use torchlet_graph::FusedForms;
use torchlet_graph::graph::{Node, Tensor, Value, ValueId};

impl<'g, 'p> Builder<'g, 'p> {
    /// The value with this id.
    pub(in crate::engine) fn value(&self, id: ValueId) -> &'g Value<'p> {
        self.graph.values.get(id).unwrap_or(&Value::None)
    }

    /// The items of a list, with the lifetime of the graph.
    pub(in crate::engine) fn members(&self, id: ValueId) -> &'g [ValueId] {
        match self.graph.values.get(id) {
            Some(Value::List(items)) => items,
            _ => &[],
        }
    }

    /// The items of a list, or the value itself if it is not a list.
    pub(in crate::engine) fn items(&self, id: &'g ValueId) -> &'g [ValueId] {
        self.graph.items(id)
    }

    pub(super) fn tensor(&self, id: ValueId) -> Result<&'g Tensor<'p>, Refusal> {
        match self.value(id) {
            Value::Tensor(tensor) => Ok(tensor),
            _ => Err(format!("value {id}: expected a tensor")),
        }
    }

    /// Element type of a tensor.
    ///
    /// # Errors
    /// If the value is not a tensor or the engine does not support its dtype.
    pub(in crate::engine) fn element(&self, id: ValueId) -> Result<Element, Refusal> {
        let tensor = self.tensor(id)?;
        let found =
            Element::of(tensor.scalar_type).filter(|_| tensor.host_type == tensor.scalar_type);
        let scalar_type = tensor.scalar_type;
        found.ok_or_else(|| {
            format!("dtype {scalar_type}; expected float16, bfloat16, float32 or int8")
        })
    }

    /// Storage format of a float tensor outside the engine.
    ///
    /// # Errors
    /// If the value is not a tensor of floats.
    pub(in crate::engine) fn precision(&self, id: ValueId) -> Result<Precision, Refusal> {
        let precision = Precision::of(self.tensor(id)?.scalar_type);
        precision.ok_or_else(|| "an int8 tensor; expected floating point".to_owned())
    }

    /// Whether the elements are computed in this region.
    pub(in crate::engine) fn is_computed(&self, view: &View) -> bool {
        let home = self.buffers.get(view.buffer).map(|buffer| &buffer.home);
        matches!(home, Some(Home::Shared | Home::Output(_)))
    }

    /// Element type of a view.
    pub(in crate::engine) fn element_of(&self, view: &View) -> Element {
        self.buffers.get(view.buffer).map_or(Element::Float, |buffer| buffer.element)
    }

    /// Whether a value has remaining uses.
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

    /// A tensor of floats.
    pub(in crate::engine) fn view(&mut self, id: ValueId) -> Result<View, Refusal> {
        match self.element(id)? {
            Element::Float => self.any(id),
            Element::Code => Err("an int8 tensor; expected floating point".to_owned()),
        }
    }

    /// A quantized tensor.
    pub(in crate::engine) fn codes(&mut self, id: ValueId) -> Result<View, Refusal> {
        match self.element(id)? {
            Element::Code => self.any(id),
            Element::Float => Err("a floating-point tensor; expected int8".to_owned()),
        }
    }

    /// A tensor of any element type.
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
            None => return Err(format!("value {id} is read before it is computed")),
        };
        let buffer = self.buffer(home, len, element);
        let view = View::whole(buffer, &tensor.sizes);
        self.place(id, view.clone());
        Ok(view)
    }

    /// Number of elements. Zero is only valid in a plan for known shapes.
    pub(super) fn count(&self, sizes: &[usize]) -> Result<usize, Refusal> {
        match numel(sizes) {
            Some(0) if !matches!(self.purpose, Purpose::Plan(_)) => {
                Err(format!("an empty tensor of shape {sizes:?}"))
            }
            Some(count) => Ok(count),
            None => Err(format!("a tensor of shape {sizes:?}, which exceeds the address space")),
        }
    }

    /// The calls that the call being lowered was fused from.
    pub(in crate::engine) fn parts(&self) -> &'g [Node] {
        self.graph.nodes.get(self.node).map_or(&[], |node| &node.parts)
    }

    /// Whether a call supports an epilogue.
    pub(in crate::engine) fn has_epilogue(&self, node: &Node) -> bool {
        EngineForms.has_epilogue(self.graph, node)
    }

    /// Sets the epilogue of the contraction that is lowered next.
    pub(in crate::engine) fn set_epilogue(&mut self, epilogue: Epilogue) {
        self.epilogue = epilogue;
    }

    /// Removes and returns the epilogue of the contraction being lowered.
    pub(in crate::engine) fn take_epilogue(&mut self) -> Epilogue {
        core::mem::take(&mut self.epilogue)
    }

    /// Whether steps will be run, so that the shapes of all values are known.
    pub(in crate::engine) fn is_plan(&self) -> bool {
        matches!(self.purpose, Purpose::Plan(_))
    }

    /// Whether only support is being queried: no data is read or packed.
    pub(in crate::engine) fn is_question(&self) -> bool {
        matches!(self.purpose, Purpose::Question)
    }

    /// Shape of an input of a call.
    pub(in crate::engine) fn sizes(&self, id: ValueId) -> Result<&[usize], Refusal> {
        match self.views.get(&id) {
            Some(view) => Ok(&view.sizes),
            None => Ok(&self.tensor(id)?.sizes),
        }
    }

    /// An integer input of the region.
    pub(in crate::engine) fn given_integer(&self, id: ValueId) -> Option<i64> {
        self.numbers.get(&id).copied()
    }

    /// Checks a shape against the graph's shape, or against its upper bounds.
    pub(super) fn check_shape(&self, id: ValueId, found: &[usize]) -> Result<(), Refusal> {
        let tensor = self.tensor(id)?;
        let fits = match self.purpose {
            Purpose::Plan(_) if self.varies => {
                let mut sizes = tensor.sizes.iter().zip(found);
                tensor.sizes.len() == found.len() && sizes.all(|(bound, size)| size <= bound)
            }
            // Shapes computed from upper bounds need not equal the bounds in the program.
            Purpose::Question | Purpose::Packing(_) if tensor.dynamic => {
                tensor.sizes.len() == found.len()
            }
            _ => tensor.sizes == found,
        };
        match fits {
            true => Ok(()),
            false => {
                let expected = &tensor.sizes;
                Err(format!("output: expected shape {expected:?}, computed {found:?}"))
            }
        }
    }
}
