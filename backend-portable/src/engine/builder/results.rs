//! What operations make: tensors, and the steps that fill them.

use super::{Builder, Purpose, Refusal};
use crate::engine::lines::Lines;
use crate::engine::ops;
use crate::engine::packed::Constant;
use crate::engine::plan::{Buffer, Call, Element, Home, MOST, Step};
use crate::engine::view::{BufferId, View, dense_strides};
use std::borrow::ToOwned;
use std::boxed::Box;
use std::format;
use std::sync::Arc;
use std::vec::Vec;
use torchlet_graph::graph::ValueId;

impl<'g, 'p> Builder<'g, 'p> {
    /// Lets the step that makes all of a view's buffer write it to another place, if it can, nobody
    /// has read it, and this is its last use.
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

    /// A new buffer.
    pub(super) fn buffer(&mut self, home: Home<'p>, len: usize, element: Element) -> BufferId {
        self.buffers.push(Buffer { home, len, element });
        self.pending.push(0);
        self.buffers.len() - 1
    }

    /// A constant that the program does not have.
    pub(in crate::engine) fn made(
        &mut self,
        sizes: &[usize],
        elements: &[f32],
    ) -> Result<View, Refusal> {
        let home = match self.purpose {
            Purpose::Plan(_) => {
                let lines = Lines::of(elements).ok_or("no memory for constants")?;
                Some(Constant::Shared(Arc::new(lines)))
            }
            Purpose::Question | Purpose::Packing(_) => None,
        };
        let buffer = self.buffer(Home::Constant(home), elements.len(), Element::Float);
        Ok(View::whole(buffer, sizes))
    }

    /// A new tensor in the order of its dimensions.
    pub(in crate::engine) fn make(&mut self, sizes: &[usize]) -> Result<View, Refusal> {
        let order: Vec<usize> = (0..sizes.len()).collect();
        self.make_in_order(sizes, &order)
    }

    pub(super) fn make_of(&mut self, sizes: &[usize], element: Element) -> Result<View, Refusal> {
        let order: Vec<usize> = (0..sizes.len()).collect();
        self.make_of_in_order(sizes, &order, element)
    }

    /// A new tensor whose dimensions lie in this order, outermost first.
    pub(in crate::engine) fn make_in_order(
        &mut self,
        sizes: &[usize],
        order: &[usize],
    ) -> Result<View, Refusal> {
        self.make_of_in_order(sizes, order, Element::Float)
    }

    /// The same, of such elements.
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

    /// Says where a value is.
    ///
    /// # Errors
    /// It has another shape than the graph says, or more elements than memory: what is repeated by
    /// strides takes none, but all the time of the world.
    pub(in crate::engine) fn define(&mut self, id: ValueId, view: View) -> Result<(), Refusal> {
        if self.count(&view.sizes)? > MOST {
            return Err(format!("a tensor of {:?} elements", view.sizes));
        }
        self.check_shape(id, &view.sizes)?;
        let (tensor, element) = (self.tensor(id)?, self.element(id)?);
        if self.element_of(&view) != element {
            return Err("its result is of another type".to_owned());
        }
        let view = match self.purpose {
            // The next call is looked at as by itself.
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

    /// Adds a call of a step, which reads the buffers of some views and writes that of another.
    /// Where there is nothing to write, there is nothing to do.
    pub(in crate::engine) fn push(&mut self, step: impl Step + 'p, reads: &[&View], writes: &View) {
        if writes.numel() == 0 {
            return;
        }
        if reads.iter().any(|view| view.numel() == 0) {
            self.refused = Some("something is made of a tensor without elements".to_owned());
            return;
        }
        let reads = reads.iter().map(|view| view.buffer).collect();
        let node = self.node;
        self.calls.push(Call { step: Box::new(step), reads, writes: writes.buffer, node });
    }

    /// Whether the call that is being added may write over a view, as its last reader.
    pub(in crate::engine) fn is_last_use(&self, view: &View) -> bool {
        let is_shared =
            self.buffers.get(view.buffer).is_some_and(|it| matches!(it.home, Home::Shared));
        is_shared && !self.is_question() && self.pending.get(view.buffer) == Some(&1)
    }

    /// Says that a step will write over a view as its last reader.
    pub(in crate::engine) fn overwrite(&mut self, view: &View) {
        // Neither what was copied from there, nor a copy that is there, is what it was.
        let stays = |from: BufferId, copy: &View| from != view.buffer && copy.buffer != view.buffer;
        self.copies.retain(|(from, _), copy| stays(from.buffer, copy));
    }

    /// Lets the step that makes a view keep its results within limits, if it can and nobody has
    /// read them.
    pub(in crate::engine) fn limit(&mut self, view: &View, min: f32, max: f32) -> bool {
        if !self.is_last_use(view) {
            return false;
        }
        let last = self.calls.iter_mut().rev().find(|call| call.touches(view.buffer));
        last.is_some_and(|call| call.writes == view.buffer && call.step.limit(min, max))
    }

    /// Lets the step that makes `sum` add to `addend` instead, where both are used for the last
    /// time: then their sum is where the addend was.
    pub(in crate::engine) fn add_to(&mut self, addend: &View, sum: &View) -> bool {
        let is_whole = |view: &View| {
            view.is_dense()
                && view.offset == 0
                && self.buffers.get(view.buffer).is_some_and(|it| it.len == view.numel())
        };
        let are_alike = addend.sizes == sum.sizes && addend.has_strides(&sum.strides);
        let [to, from] = [addend.buffer, sum.buffer];
        if !are_alike || to == from || ![addend, sum].into_iter().all(is_whole) {
            return false;
        }
        if !self.is_last_use(addend) || !self.is_last_use(sum) {
            return false;
        }
        // Nobody has read the sum, and nobody touches the addend from where it is made on.
        let last = |id| self.calls.iter().rposition(|call| call.touches(id));
        let (Some(maker), at) = (last(from), last(to)) else { return false };
        let is_free = at.is_none_or(|at| at < maker);
        let Some(call) = self.calls.get_mut(maker).filter(|call| is_free && call.writes == from)
        else {
            return false;
        };
        if !call.step.accumulate() {
            return false;
        }
        call.writes = to;
        self.overwrite(addend);
        true
    }

    /// The same elements in these strides, which are without gaps: as they are, or a copy, which is
    /// made once.
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

    /// The same elements in the order of the dimensions.
    pub(in crate::engine) fn contiguous(&mut self, view: &View) -> Result<View, Refusal> {
        let order: Vec<usize> = (0..view.sizes.len()).collect();
        self.in_strides(view, &dense_strides(&view.sizes, &order))
    }

    /// The same elements in another shape, copied where strides cannot say it.
    pub(in crate::engine) fn reshaped(
        &mut self,
        view: &View,
        sizes: &[usize],
    ) -> Result<View, Refusal> {
        let wrong = || format!("{:?} does not become {sizes:?}", view.sizes);
        match view.reshaped(sizes) {
            Some(reshaped) => Ok(reshaped),
            None => self.contiguous(view)?.reshaped(sizes).ok_or_else(wrong),
        }
    }
}
