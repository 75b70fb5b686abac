//! Argmax over the rows of an output, computed on the device instead of returning the output.
//! Greedy decoding of a language model needs only the argmax of the logits, which is faster to
//! compute on the device than the logits are to transfer.

use crate::commands::Purpose;
use crate::compiled::{Compiled, Staging};
use crate::device::{Binding, Buffer, Command, MemoryKind, PipelineKey};
use crate::error::Error;
use crate::tensors::{TensorId, u32_of};
use std::borrow::Cow;
use torchlet_shaders::{Argmax, ArgmaxPush, Element, Pipeline, PushConstants};

/// Invocations per workgroup.
const WORKGROUP: u32 = 256;
/// The minimum number of elements per workgroup if several workgroups share a row.
const SHARE: usize = 8 * WORKGROUP as usize;

/// A search of the rows of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Search {
    /// The index of the output.
    pub(crate) position: usize,
    id: TensorId,
    input: Element,
    /// Where the results are written.
    staging: Staging,
    pub(crate) rows: usize,
    count: usize,
    /// The number of workgroups per row, and the elements that each searches.
    parts: usize,
    share: usize,
}

/// The caller's request for a search.
pub(crate) struct SearchRequest<'w> {
    /// The argument of the call to search.
    pub(crate) arg: usize,
    /// Receives the index of the largest element of each row.
    pub(crate) indices: &'w mut [i32],
}

impl SearchRequest<'_> {
    /// Copies the results from staging memory.
    pub(crate) fn take(self, found: &[u8]) -> Result<usize, Error> {
        let results = found.as_chunks::<4>().0;
        let (rows, room) = (results.len(), self.indices.len());
        let indices = self.indices.get_mut(..rows);
        let indices = indices.ok_or_else(|| {
            Error::Invalid(format!("output: expected at most {room} rows, found {rows}"))
        })?;
        for (index, result) in indices.iter_mut().zip(results) {
            *index = i32::from_le_bytes(*result);
        }
        Ok(rows)
    }
}

impl Compiled {
    /// Plans the search of an output's rows. Returns `None` if it is not possible; the output is
    /// then returned as usual.
    pub(crate) fn search(&self, position: usize) -> Option<Search> {
        let id = *self.graph.outputs.get(position).filter(|_| position >= self.new_values)?;
        let staging = (*self.outputs.get(position)?)?;
        let tensor = self.state.tensor(id).ok()?;
        // Elements that are rounded on their way to the host could become equal there, which
        // changes the result.
        let is_kept = match tensor.element {
            Element::F16 => matches!(staging.element, Element::F16 | Element::F32),
            Element::F32 => staging.element == Element::F32,
            _ => false,
        };
        let is_placed = self.places.contains_key(&self.state.root(id));
        let count = *tensor.sizes.last()?;
        let rows = tensor.numel().checked_div(count)?;
        if !is_kept || !is_placed || self.state.strided.contains_key(&id) || rows == 0 {
            return None;
        }
        // Enough rows may saturate the device without sharing.
        let parts = count.div_ceil(SHARE).min(self.state.busy.div_ceil(rows * WORKGROUP as usize));
        let share = count.div_ceil(parts.max(1)).next_multiple_of(4);
        let parts = count.div_ceil(share);
        let search =
            Search { position, id, input: tensor.element, staging, rows, count, parts, share };
        let is_taken = search.result_bytes() <= staging.bytes
            && self.state.limits.check_tensor("largest", tensor.bytes()).is_ok()
            && self.state.limits.check_tensor("largest", search.left()).is_ok()
            && self.groups(search.parts, rows).is_some();
        is_taken.then_some(search)
    }

    fn groups(&self, parts: usize, rows: usize) -> Option<[u32; 3]> {
        let groups = [u32_of(parts).ok()?, u32_of(rows).ok()?, 1];
        self.state.limits.folded(groups, 1)
    }

    /// Appends the commands of a search.
    pub(crate) fn record_search(
        &mut self,
        search: &Search,
        commands: &mut Vec<Command<'_>>,
        purposes: &mut Vec<Purpose<'_>>,
    ) -> Result<(), Error> {
        let Search { id, input, rows, count, parts, share, .. } = *search;
        let logits = self.binding(id, false)?;
        let results = search.staging.binding(self.output_staging.raw, true);
        if parts == 1 {
            let pipeline = Argmax { input, combines: false };
            commands.push(self.dispatch(&pipeline, [logits, results], rows, [count, share], 1)?);
            purposes.push(Purpose::Search(search.position));
            return Ok(());
        }
        let bytes = search.left();
        if self.left.as_ref().is_none_or(|(_, room)| *room < bytes) {
            // Drops everything that uses the old memory first, since the allocation below may fail.
            self.recording.unbind();
            self.left = None;
            self.kept.clear();
            self.left = Some((Buffer::new(&self.context, bytes, MemoryKind::Device)?, bytes));
        }
        let Some((left, _)) = &self.left else {
            return Err(Error::invalid("partial results have no memory"));
        };
        let left = Binding { buffer: left.raw, offset: 0, size: bytes, written: true };
        let pipeline = Argmax { input, combines: false };
        commands.push(self.dispatch(&pipeline, [logits, left], rows, [count, share], parts)?);
        let (pipeline, left) =
            (Argmax { input, combines: true }, Binding { written: false, ..left });
        commands.push(self.dispatch(&pipeline, [left, results], rows, [parts, parts], 1)?);
        purposes.extend([Purpose::Search(search.position), Purpose::Search(search.position)]);
        Ok(())
    }

    fn dispatch(
        &self,
        pipeline: &Argmax,
        bindings: [Binding; 2],
        rows: usize,
        [count, share]: [usize; 2],
        parts: usize,
    ) -> Result<Command<'static>, Error> {
        let push = ArgmaxPush { rows: u32_of(rows)?, count: u32_of(count)?, share: u32_of(share)? };
        let key = PipelineKey {
            module: Argmax::MODULE,
            constants: pipeline.constants(),
            workgroup: [WORKGROUP, 1, 1],
        };
        let groups = self.groups(parts, rows);
        let groups = groups.ok_or_else(|| Error::unsupported("an argmax over this many rows"))?;
        Ok(Command::Dispatch {
            key: Cow::Owned(key),
            bindings: bindings.into(),
            push: Cow::Owned(push.bytes()),
            groups,
        })
    }

    /// Copies the results of the last run.
    pub(crate) fn found(
        &mut self,
        search: &Search,
        wanted: SearchRequest<'_>,
    ) -> Result<usize, Error> {
        let start = search.staging.offset as usize;
        let found = self.output_staging.mapped().get(start..);
        let found = found.and_then(|rest| rest.get(..search.result_bytes() as usize));
        wanted.take(
            found
                .ok_or_else(|| Error::invalid("the argmax results lie outside of their memory"))?,
        )
    }
}

impl Search {
    /// Returns the bytes of the results.
    fn result_bytes(&self) -> u64 {
        4 * self.rows as u64
    }

    /// Returns the bytes of the workgroups' partial results.
    fn left(&self) -> u64 {
        if self.parts > 1 { 8 * (self.rows * self.parts) as u64 } else { 0 }
    }
}
