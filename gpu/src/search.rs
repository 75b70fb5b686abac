//! Argmax over the rows of an output, computed on the device instead of returning the output.
//!
//! Greedy decoding of a language model needs only the argmax of the logits. Computing it on the
//! device is faster than transferring the logits.

use crate::commands::{Binding, BufferId, Command};
use crate::device::{Limits, PipelineKey};
use crate::error::Error;
use crate::plan::{Plan, Updates};
use crate::staging::Staging;
use crate::state::State;
use crate::tensors::{TensorId, u32_of};
use std::borrow::Cow;
use torchlet_shaders::{Argmax, ArgmaxPush, Element, Pipeline, PushConstants};

/// Invocations per workgroup.
const WORKGROUP: u32 = 256;
/// The minimum number of elements per workgroup, if several workgroups share a row.
const SHARE: usize = 8 * WORKGROUP as usize;

/// An argmax search over each row of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Search {
    /// The index of the output.
    pub position: usize,
    pub(crate) id: TensorId,
    input: Element,
    /// The staging memory of the results.
    staging: Staging,
    rows: usize,
    count: usize,
    /// The number of workgroups per row (`parts`), and the number of elements that each searches
    /// (`share`).
    parts: usize,
    share: usize,
}

/// The caller's request to replace an output by its argmax.
pub struct SearchRequest<'w> {
    /// The index of the output among the arguments of the delegate call.
    pub arg: usize,
    /// Receives the index of the largest element of each row.
    pub indices: &'w mut [i32],
}

impl SearchRequest<'_> {
    /// Copies the results from the bytes `found` in staging memory, and returns the number of rows.
    ///
    /// # Errors
    /// `indices` has room for fewer rows.
    pub fn take(self, found: &[u8]) -> Result<usize, Error> {
        let results = found.as_chunks::<4>().0;
        let (rows, room) = (results.len(), self.indices.len());
        let indices = self.indices.get_mut(..rows);
        let indices = indices.ok_or_else(|| {
            Error::Invalid(format!(
                "argmax: the output has {rows} rows, the index buffer has room for {room}"
            ))
        })?;
        for (index, result) in indices.iter_mut().zip(results) {
            *index = i32::from_le_bytes(*result);
        }
        Ok(rows)
    }
}

impl Search {
    /// Plans the search over an output's rows. Returns `None` if it is not possible; the whole
    /// output is then returned.
    pub(crate) fn of(
        plan: &Plan<'_>,
        state: &State,
        updates: &Updates,
        position: usize,
    ) -> Option<Self> {
        let id = *plan.graph.outputs.get(position).filter(|_| position >= updates.new_values)?;
        let staging = (*plan.outputs.get(position)?)?;
        let tensor = state.tensor(id).ok()?;
        // Elements that are rounded when they are returned could become equal, which would change
        // the index of the maximum.
        let is_kept = match tensor.element {
            Element::F16 => matches!(staging.element, Element::F16 | Element::F32),
            Element::F32 => staging.element == Element::F32,
            _ => false,
        };
        let is_placed = plan.memory.places.contains_key(&state.root(id));
        let count = *tensor.sizes.last()?;
        let rows = tensor.numel().checked_div(count)?;
        if !is_kept || !is_placed || state.strided.contains_key(&id) || rows == 0 {
            return None;
        }
        // If there are enough rows to saturate the device, workgroups share no rows.
        let parts = count.div_ceil(SHARE).min(state.busy.div_ceil(rows * WORKGROUP as usize));
        let share = count.div_ceil(parts.max(1)).next_multiple_of(4);
        let parts = count.div_ceil(share);
        let search =
            Search { position, id, input: tensor.element, staging, rows, count, parts, share };
        let is_supported = search.result_bytes() <= staging.bytes
            && state.limits.check_tensor("largest", tensor.bytes()).is_ok()
            && state.limits.check_tensor("largest", search.scratch_bytes()).is_ok()
            && groups(&state.limits, search.parts, rows).is_some();
        is_supported.then_some(search)
    }

    /// Returns the commands of the search; `logits` is the memory of the output.
    pub(crate) fn commands(
        &self,
        logits: Binding,
        limits: &Limits,
    ) -> Result<Vec<Command<'static>>, Error> {
        let Search { input, rows, count, parts, share, .. } = *self;
        let results = self.staging.binding(BufferId::Outputs, true);
        let dispatch = |combines, bindings, counts, parts| {
            dispatch(limits, &Argmax { input, combines }, bindings, rows, counts, parts)
        };
        if parts == 1 {
            return Ok(vec![dispatch(false, [logits, results], [count, share], 1)?]);
        }
        let (buffer, size) = (BufferId::Search, self.scratch_bytes());
        let scratch = Binding { buffer, offset: 0, size, written: true };
        let read = Binding { written: false, ..scratch };
        Ok(vec![
            dispatch(false, [logits, scratch], [count, share], parts)?,
            dispatch(true, [read, results], [parts, parts], 1)?,
        ])
    }

    /// Returns the byte range of the results in the staging memory of outputs.
    pub fn results(&self) -> std::ops::Range<usize> {
        let start = self.staging.offset as usize;
        start..start.saturating_add(self.result_bytes() as usize)
    }

    /// Returns the size of the results in bytes.
    fn result_bytes(&self) -> u64 {
        4 * self.rows as u64
    }

    /// Returns the bytes of the workgroups' partial results.
    pub fn scratch_bytes(&self) -> u64 {
        if self.parts > 1 { 8 * (self.rows * self.parts) as u64 } else { 0 }
    }
}

fn groups(limits: &Limits, parts: usize, rows: usize) -> Option<[u32; 3]> {
    limits.folded([u32_of(parts).ok()?, u32_of(rows).ok()?, 1], 1)
}

fn dispatch(
    limits: &Limits,
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
    let groups = groups(limits, parts, rows);
    let groups = groups.ok_or_else(|| Error::unsupported(format!("argmax over {rows} rows")))?;
    Ok(Command::Dispatch {
        key: Cow::Owned(key),
        bindings: bindings.into(),
        push: Cow::Owned(push.bytes()),
        groups,
    })
}
