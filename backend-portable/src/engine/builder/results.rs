//! Creation of tensors and of the steps that compute them.

use super::{Builder, Purpose, Refusal};
use crate::engine::lines::Lines;
use crate::engine::ops;
use crate::engine::packed::Constant;
use crate::engine::plan::{Buffer, Call, Element, Home, MAX, Step};
use crate::engine::view::{BufferId, View, dense_strides};
use std::borrow::ToOwned;
use std::boxed::Box;
use std::format;
use std::sync::Arc;
use std::vec::Vec;
use torchlet_graph::graph::ValueId;

impl<'g, 'p> Builder<'g, 'p> {
    /// Fuses a copy into the step that writes the whole buffer of `from`, if the step supports it,
    /// nothing has read the buffer, and this is its last use.
    pub(super) fn move_results(&mut self, from: &View, to: &View) -> bool {
        let is_whole = self.buffers.get(from.buffer).is_some_and(|it| it.len == from.numel())
            && from.is_dense();
        if !is_whole || !self.is_last_use(from) {
            return false;
        }
        let mut touching = self.calls.iter_mut().filter(|call| call.touches(from.buffer));
        let (Some(maker), None) = (touching.next(), touching.next()) else { return false };
        if maker.writes != from.buffer || !maker.step.move_results(&ops::Copy::new(from, to)) {
            return false;
        }
        maker.writes = to.buffer;
        true
    }

    /// Adds a buffer.
    pub(super) fn buffer(&mut self, home: Home<'p>, len: usize, element: Element) -> BufferId {
        self.buffers.push(Buffer { home, len, element });
        self.pending.push(0);
        self.buffers.len() - 1
    }

    /// A constant that is not in the program.
    pub(in crate::engine) fn made(
        &mut self,
        sizes: &[usize],
        elements: &[f32],
    ) -> Result<View, Refusal> {
        let home = match self.purpose {
            Purpose::Plan(_) => {
                let lines = Lines::of(elements).ok_or("out of memory for constants")?;
                Some(Constant::Shared(Arc::new(lines)))
            }
            Purpose::Question | Purpose::Packing(_) => None,
        };
        let buffer = self.buffer(Home::Constant(home), elements.len(), Element::Float);
        Ok(View::whole(buffer, sizes))
    }

    /// Creates a tensor in dim order.
    pub(in crate::engine) fn make(&mut self, sizes: &[usize]) -> Result<View, Refusal> {
        let order: Vec<usize> = (0..sizes.len()).collect();
        self.make_in_order(sizes, &order)
    }

    pub(super) fn make_of(&mut self, sizes: &[usize], element: Element) -> Result<View, Refusal> {
        let order: Vec<usize> = (0..sizes.len()).collect();
        self.make_of_in_order(sizes, &order, element)
    }

    /// Creates a tensor with the given order of dims, outermost first.
    pub(in crate::engine) fn make_in_order(
        &mut self,
        sizes: &[usize],
        order: &[usize],
    ) -> Result<View, Refusal> {
        self.make_of_in_order(sizes, order, Element::Float)
    }

    /// Like [`make_in_order`](Self::make_in_order), with the given element type.
    pub(in crate::engine) fn make_of_in_order(
        &mut self,
        sizes: &[usize],
        order: &[usize],
        element: Element,
    ) -> Result<View, Refusal> {
        let len = self.count(sizes)?;
        let buffer = self.buffer(Home::Shared, len, element);
        let strides = dense_strides(sizes, order);
        Ok(View { buffer, offset: 0, sizes: sizes.to_vec(), strides })
    }

    /// Defines the view of a value.
    ///
    /// # Errors
    /// If the shape differs from the graph's, or the tensor exceeds the maximum number of elements.
    /// A tensor expanded by strides needs no memory, but would take too long to process.
    pub(in crate::engine) fn define(&mut self, id: ValueId, view: View) -> Result<(), Refusal> {
        if self.count(&view.sizes)? > MAX {
            return Err(format!("a tensor of shape {:?}; the limit is {MAX} elements", view.sizes));
        }
        self.check_shape(id, &view.sizes)?;
        let (tensor, element) = (self.tensor(id)?, self.element(id)?);
        if self.element_of(&view) != element {
            return Err("an output whose dtype differs from the computed one".to_owned());
        }
        let view = match self.purpose {
            // Packing lowers each call independently, with the declared shapes.
            Purpose::Packing(_) if tensor.sizes != view.sizes => {
                self.make_of(&tensor.sizes, element)?
            }
            _ => view,
        };
        self.place(id, view);
        Ok(())
    }

    pub(super) fn place(&mut self, id: ValueId, view: View) {
        let uses = self.uses.get(&id).copied().unwrap_or(0);
        if let Some(pending) = self.pending.get_mut(view.buffer) {
            *pending += uses;
        }
        self.views.insert(id, view);
    }

    /// Appends a step that reads the buffers of some views and writes that of another. A step with
    /// an empty output is omitted.
    pub(in crate::engine) fn push(&mut self, step: impl Step + 'p, reads: &[&View], writes: &View) {
        if writes.numel() == 0 {
            return;
        }
        if reads.iter().any(|view| view.numel() == 0) {
            self.refused = Some("an operator that reads an empty tensor".to_owned());
            return;
        }
        let reads = reads.iter().map(|view| view.buffer).collect();
        let node = self.node;
        self.calls.push(Call { step: Box::new(step), reads, writes: writes.buffer, node });
    }

    /// Whether the call being lowered is the last reader of a view, and may overwrite it.
    pub(in crate::engine) fn is_last_use(&self, view: &View) -> bool {
        let is_shared =
            self.buffers.get(view.buffer).is_some_and(|it| matches!(it.home, Home::Shared));
        is_shared && !self.is_question() && self.pending.get(view.buffer) == Some(&1)
    }

    /// Records that a step will overwrite a view as its last reader.
    pub(in crate::engine) fn overwrite(&mut self, view: &View) {
        // Neither copies of this buffer nor copies in it are valid any longer.
        let stays = |from: BufferId, copy: &View| from != view.buffer && copy.buffer != view.buffer;
        self.copies.retain(|(from, _), copy| stays(from.buffer, copy));
    }

    /// Whether the call being lowered is the last reader of a view that covers a whole buffer, so
    /// that a step may add to it.
    pub(in crate::engine) fn can_add_to(&self, view: &View) -> bool {
        let is_whole = view.is_dense()
            && view.offset == 0
            && self.buffers.get(view.buffer).is_some_and(|it| it.len == view.numel());
        is_whole && self.is_last_use(view)
    }

    /// Adds a use to a result that no value names yet, for steps that may overwrite it.
    pub(in crate::engine) fn hold(&mut self, view: &View) {
        if let Some(pending) = self.pending.get_mut(view.buffer) {
            *pending += 1;
        }
    }

    /// Removes the use that [`hold`](Self::hold) added.
    pub(in crate::engine) fn release(&mut self, view: &View) {
        if let Some(pending) = self.pending.get_mut(view.buffer) {
            *pending = pending.saturating_sub(1);
        }
    }

    /// The same elements with the given contiguous strides: the view itself, or a copy that is made
    /// once.
    pub(in crate::engine) fn in_strides(
        &mut self,
        view: &View,
        strides: &[usize],
    ) -> Result<View, Refusal> {
        if view.has_strides(strides) {
            return Ok(View { strides: strides.to_vec(), ..view.clone() });
        }
        let key = (view.clone(), strides.to_vec());
        if let Some(copy) = self.copies.get(&key) {
            return Ok(copy.clone());
        }
        let mut copy = self.make_of(&view.sizes, self.element_of(view))?;
        copy.strides = strides.to_vec();
        ops::copy(self, view, &copy);
        self.copies.insert(key, copy.clone());
        Ok(copy)
    }

    /// The same elements, contiguous in dim order.
    pub(in crate::engine) fn contiguous(&mut self, view: &View) -> Result<View, Refusal> {
        let order: Vec<usize> = (0..view.sizes.len()).collect();
        self.in_strides(view, &dense_strides(&view.sizes, &order))
    }

    /// Reshapes a view, copying if strides cannot express the shape.
    pub(in crate::engine) fn reshaped(
        &mut self,
        view: &View,
        sizes: &[usize],
    ) -> Result<View, Refusal> {
        let wrong = || format!("shape {:?} cannot be reshaped to {sizes:?}", view.sizes);
        match view.reshaped(sizes) {
            Some(reshaped) => Ok(reshaped),
            None => self.contiguous(view)?.reshaped(sizes).ok_or_else(wrong),
        }
    }
}
