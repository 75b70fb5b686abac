//! Overlap analysis of the arguments of a call.
//!
//! References to the data of all arguments of a call may coexist only if no written range shares
//! bytes with another argument. The run time of the analysis is slightly more than linear in the
//! number of tensors: written ranges are sorted, in chunks, and all others are looked up among
//! them.

use crate::arguments::Arguments;
use crate::error::KernelError;
use crate::memory::ARENA_ALIGN;
use crate::memory::slot::Data;
use crate::runtime_features::{RuntimeFeatures, UNSUPPORTED_BY_IMAGE, has, may_share};
use crate::value::Value;
use crate::values::{Roles, Values, flag};

/// Maximum number of inputs of a call that are read from copies because an output overlaps them.
pub(crate) const MAX_COPIES: usize = 4;

/// Argument indices of the inputs that are read from copies.
pub(crate) type Copies = heapless::Vec<usize, MAX_COPIES>;

/// Number of written ranges that are sorted at a time. The chunk is on the stack, which is small in
/// firmware.
const CHUNK: usize = if cfg!(any(target_pointer_width = "64", feature = "std")) { 512 } else { 24 };

/// Result of the overlap analysis of a call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overlap {
    /// Inputs that share memory with an output, as planned by exporters for in-place operation. The
    /// call reads them from copies.
    pub(crate) copies: Copies,
    /// Whether the input that the kernel can update in place has exactly the memory of its output.
    pub(crate) in_place: bool,
    /// Number of steps of the analysis.
    pub(crate) steps: u64,
}

/// A range in one of several memories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    memory: usize,
    start: usize,
    len: usize,
}

impl Extent {
    const NONE: Self = Extent { memory: 0, start: 0, len: 0 };

    fn end(&self) -> usize {
        self.start.saturating_add(self.len)
    }

    /// Sort key.
    fn key(&self) -> (usize, usize) {
        (self.memory, self.start)
    }

    fn overlaps(&self, other: &Extent) -> bool {
        self.memory == other.memory && self.start < other.end() && other.start < self.end()
    }
}

/// Memory id of tensors with addresses. Before allocation, each planned buffer is a memory of its
/// own.
const ADDRESSES: usize = 0;
/// Memory id of tensors that memory is bound to later: each has a distinct range there.
const UNBOUND: usize = usize::MAX;

/// Memory of a tensor at its upper-bound shape; `None` if empty.
fn extent(values: &Values<'_>, slot: u32) -> Option<Extent> {
    let capacity = values.tensor(slot)?.capacity();
    if capacity == 0 {
        return None;
    }
    let (slot, data) = values.data(slot)?;
    let extent = match data {
        Data::At(region) => {
            Extent { memory: ADDRESSES, start: region.addr(), len: capacity.min(region.len()) }
        }
        Data::Planned { buffer, offset } => {
            Extent { memory: 1 + usize::from(buffer), start: offset, len: capacity }
        }
        Data::None | Data::View(_) => Extent { memory: UNBOUND, start: slot as usize, len: 1 },
    };
    (extent.len > 0).then_some(extent)
}

/// Sorts by memory and start. Shellsort, for its small code size.
fn sort(extents: &mut [Extent]) {
    for gap in [301, 132, 57, 23, 10, 4, 1] {
        for end in gap..extents.len() {
            let mut at = end;
            while let Some(before) = at.checked_sub(gap)
                && let (Some(&a), Some(&b)) = (extents.get(before), extents.get(at))
                && a.key() > b.key()
            {
                // Not `swap`: its handling of aliased items would link a large function that
                // nothing else here uses.
                for (index, extent) in [(before, b), (at, a)] {
                    if let Some(entry) = extents.get_mut(index) {
                        *entry = extent;
                    }
                }
                at = before;
            }
        }
    }
}

/// Finds a range that overlaps `extent` among sorted, disjoint ones.
fn find(sorted: &[Extent], extent: &Extent) -> Option<Extent> {
    let end = sorted.partition_point(|other| {
        other.memory < extent.memory || other.memory == extent.memory && other.start < extent.end()
    });
    let last = sorted.get(end.checked_sub(1)?)?;
    last.overlaps(extent).then_some(*last)
}

/// A tensor of a call: argument index, whether it is in a list, and its memory.
struct CallTensor {
    arg: usize,
    in_list: bool,
    extent: Extent,
}

/// Position of an iteration over the tensors of a call.
#[derive(Default)]
struct Cursor {
    arg: usize,
    /// Index in the list, if the argument is a list.
    position: usize,
}

impl<'m> Arguments<'_, 'm> {
    /// Returns the next tensor among the arguments that has, or will have, memory.
    fn next_tensor(&self, cursor: &mut Cursor) -> Option<CallTensor> {
        while cursor.arg < self.len() {
            let Cursor { arg, position } = *cursor;
            cursor.position += 1;
            let index = self.index(arg)?;
            let list = || self.values.tensor_list(index);
            let (slot, in_list) = match self.values.slot(index) {
                Some(slot) if position == 0 => (Some(slot), false),
                None if list().is_some_and(|items| position < items.len()) => {
                    (self.list_handle(arg, position).ok().flatten(), true)
                }
                _ => {
                    *cursor = Cursor { arg: arg + 1, position: 0 };
                    continue;
                }
            };
            if let Some(extent) = slot.and_then(|slot| extent(self.values, slot)) {
                return Some(CallTensor { arg, in_list, extent });
            }
        }
        None
    }

    /// Analyses which arguments share memory. `roles` defines which arguments are written;
    /// `in_place` is an output and the input that the kernel can update in place.
    ///
    /// # Errors
    /// Two outputs overlap, an output overlaps an input in a list, or more than [`MAX_COPIES`]
    /// inputs overlap outputs.
    pub(crate) fn overlap(
        &self,
        roles: Roles<'_>,
        in_place: Option<(usize, usize)>,
    ) -> Result<Overlap, KernelError> {
        let mut overlap = Overlap::default();
        let mut first = 0usize;
        loop {
            // The next chunk of written ranges, sorted.
            let mut chunk = [Extent::NONE; CHUNK];
            let (mut outs, mut taken) = (0usize, 0usize);
            let mut cursor = Cursor::default();
            while let Some(tensor) = self.next_tensor(&mut cursor) {
                overlap.steps += 1;
                if !roles.is_out(tensor.arg) {
                    continue;
                }
                if outs >= first
                    && let Some(free) = chunk.get_mut(taken)
                {
                    *free = tensor.extent;
                    taken += 1;
                }
                outs += 1;
            }
            let sorted = chunk.get_mut(..taken).unwrap_or_default();
            sort(sorted);
            let overlapping = |pair: &[Extent]| matches!(pair, [a, b] if a.overlaps(b));
            if sorted.windows(2).any(overlapping) {
                let arg = self.first_out(roles);
                return Err(KernelError::overlap(arg, arg));
            }
            let last = first + taken;
            let mut order = 0usize;
            let mut cursor = Cursor::default();
            while let Some(CallTensor { arg, in_list, extent }) = self.next_tensor(&mut cursor) {
                overlap.steps += 1;
                let is_out = roles.is_out(arg);
                if roles.is_scratch(arg) {
                    continue;
                }
                if is_out {
                    order += 1;
                    if order > first && order <= last {
                        continue;
                    }
                }
                let Some(written) = find(sorted, &extent) else { continue };
                if !may_share() {
                    return Err(KernelError::unsupported(UNSUPPORTED_BY_IMAGE));
                }
                if !is_out && !in_list {
                    if written == extent && self.is_in_place(in_place, arg, extent) {
                        overlap.in_place = true;
                        continue;
                    }
                    if overlap.copies.contains(&arg) || overlap.copies.push(arg).is_ok() {
                        continue;
                    }
                }
                return Err(KernelError::overlap(self.first_out(roles), arg));
            }
            first = last;
            if first >= outs {
                return Ok(overlap);
            }
        }
    }

    /// Whether argument `arg` at `at` is the input that the kernel can update in place, with its
    /// output at the same range and with the same dtype and layout: both have the same bytes then.
    fn is_in_place(&self, pair: Option<(usize, usize)>, arg: usize, at: Extent) -> bool {
        let Some((out, input)) = pair else { return false };
        let Some(out) = self.handle(out).ok().flatten() else { return false };
        input == arg
            && extent(self.values, out) == Some(at)
            && match (self.values.tensor(out), self.tensor_argument(input)) {
                (Some(a), Some(b)) => {
                    a.scalar_type == b.scalar_type
                        && a.has_sizes_of(&b)
                        && a.has_order(b.dim_order())
                }
                _ => false,
            }
    }

    fn first_out(&self, roles: Roles<'_>) -> usize {
        (0..self.len()).find(|arg| roles.is_out(*arg)).unwrap_or(0)
    }

    /// Whether any argument is a view that is placed at run time.
    pub(crate) fn has_dynamic_view(&self) -> bool {
        let is_dynamic_view = |index: usize| self.values.has(index, flag::DYNAMIC_VIEW);
        (0..self.len()).any(|arg| {
            self.index(arg).is_some_and(is_dynamic_view)
                || match self.value(arg) {
                    Ok(Value::TensorList(items, _)) if has(RuntimeFeatures::TENSOR_LISTS) => {
                        items.iter().any(|item| is_dynamic_view(crate::value::list_index(*item)))
                    }
                    _ => false,
                }
        })
    }

    /// Inputs that may have to be copied at run time, wherever views are placed by then: the
    /// largest ones, up to [`MAX_COPIES`]. A call with more overlapping inputs fails.
    pub(crate) fn possible_copies(&self, roles: Roles<'_>) -> Copies {
        let mut copies = Copies::new();
        for arg in 0..self.len() {
            let is_input = !roles.is_out(arg) && !roles.is_scratch(arg);
            if is_input && matches!(self.value(arg), Ok(Value::Tensor(_))) {
                // Keep the largest ones.
                let bytes = |arg: &usize| self.capacity(*arg);
                if copies.push(arg).is_err()
                    && let Some(least) = copies.iter_mut().min_by_key(|other| bytes(other))
                    && bytes(least) < bytes(&arg)
                {
                    *least = arg;
                }
            }
        }
        copies
    }

    /// Bytes of a tensor argument at its upper-bound shape.
    fn capacity(&self, arg: usize) -> usize {
        self.tensor_argument(arg).map_or(0, |tensor| tensor.capacity())
    }

    /// Bytes of scratch memory for `scratch` bytes plus copies of these inputs at their upper-bound
    /// shapes.
    pub(crate) fn scratch_with_copies(&self, scratch: usize, copies: &Copies) -> Option<usize> {
        copies.iter().try_fold(scratch, |total, arg| {
            let copy = self.capacity(*arg).checked_next_multiple_of(ARENA_ALIGN)?;
            total.checked_next_multiple_of(ARENA_ALIGN)?.checked_add(copy)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_by_memory_and_start() {
        let mut seed = 9u64;
        // More than the largest gap; kept short under Miri.
        let mut extents: std::vec::Vec<Extent> = (0..if cfg!(miri) { 320 } else { 700 })
            .map(|_| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
                Extent {
                    memory: (seed >> 62) as usize,
                    start: (seed >> 40 & 0xfff) as usize,
                    len: 1,
                }
            })
            .collect();
        sort(&mut extents);
        assert!(extents.is_sorted_by_key(Extent::key));
    }

    #[test]
    fn finds_overlapping_ranges() {
        let range = |memory, start, len| Extent { memory, start, len };
        let sorted = [range(1, 0, 4), range(1, 8, 4), range(2, 0, 100)];
        let found = |memory, start, len| find(&sorted, &range(memory, start, len)).is_some();
        assert!(found(1, 3, 1) && found(1, 7, 2) && found(1, 0, 50) && found(2, 99, 1));
        assert!(!found(1, 4, 4) && !found(1, 12, 50) && !found(3, 0, 9) && !found(0, 0, 9));
    }
}
