//! Lifetime-based memory planning: tensors that are not alive at the same time share memory. More
//! than one buffer is used only if the device limits the size of an allocation.

use crate::error::Error;
use crate::state::{State, Storage};
use crate::steps::Step;
use crate::tensors::{TensorId, element_of, padded_bytes};
use std::collections::HashMap;
use torchlet_graph::graph::{Graph, Value};
use torchlet_graph::plan::{Arena, Lifetime};

/// A tensor to place: its bytes, and the first and last step that use it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) bytes: u64,
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// The location of a tensor: the index of a buffer, and an offset in bytes.
type Slot = (usize, u64);

/// Returns a location for each request, and the bytes of each buffer. Greedy: requests are placed
/// largest first, each in the first buffer with room below `most` bytes, at the lowest offset that
/// is free during its lifetime. A larger request gets a buffer of its own.
///
/// # Errors
/// The total overflows.
fn place(requests: &[Request], align: u64, most: u64) -> Result<(Vec<Slot>, Vec<u64>), Error> {
    let size = |bytes: u64| usize::try_from(bytes).map_err(|_| uncountable());
    let (align, limit) = (size(align)?, size(most).unwrap_or(usize::MAX));
    let mut order: Vec<(usize, Request)> = requests.iter().copied().enumerate().collect();
    order.sort_by_key(|(_, request)| std::cmp::Reverse(request.bytes));
    let mut slots = vec![(0, 0u64); requests.len()];
    let mut buffers: Vec<Arena> = Vec::new();
    for (index, Request { bytes, first, last }) in order {
        let (bytes, lifetime) = (size(bytes)?, Lifetime { first, last });
        let mut places = buffers.iter_mut().enumerate();
        let found = places
            .find_map(|(number, room)| Some((number, room.take_below(bytes, lifetime, limit)?)));
        let (number, offset) = match found {
            Some(found) => found,
            None if limit == usize::MAX && !buffers.is_empty() => return Err(uncountable()),
            None => {
                let mut room = Arena::new(align);
                let offset = room.take(bytes, lifetime).ok_or_else(uncountable)?;
                buffers.push(room);
                (buffers.len() - 1, offset)
            }
        };
        if let Some(slot) = slots.get_mut(index) {
            *slot = (number, offset as u64);
        }
    }
    Ok((slots, buffers.iter().map(|room| room.end() as u64).collect()))
}

fn end_of(offset: u64, bytes: u64) -> Result<u64, Error> {
    offset.checked_add(bytes).ok_or_else(uncountable)
}

fn aligned(offset: u64, align: u64) -> Result<u64, Error> {
    offset.checked_next_multiple_of(align).ok_or_else(uncountable)
}

fn uncountable() -> Error {
    Error::OutOfMemory("the tensors of the graph exceed the address space".to_owned())
}

/// The kinds of memory, each with its own buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Intermediate tensors, which share memory.
    Tensors,
    /// Constants and state that belong to this graph.
    Constants,
    /// Constants that never change, which other graphs may share.
    Weights,
}

/// The memory location of a tensor.
#[derive(Debug, Clone, Copy)]
pub struct Location {
    /// The kind of memory that the tensor lies in.
    pub memory: Memory,
    /// The index of the buffer within its kind of memory.
    pub buffer: usize,
    /// The offset in the buffer, in bytes.
    pub offset: u64,
    /// The bytes of the tensor.
    pub bytes: u64,
}

/// The location of each tensor that has memory, by its id.
pub type Locations = HashMap<TensorId, Location>;

/// The locations of all tensors, and the sizes of the buffers in bytes.
#[derive(Debug, Default)]
pub struct MemoryPlan {
    /// The locations of tensors, except aliases, which lie in the memory of another tensor.
    pub places: Locations,
    /// The sizes of the buffers for intermediate tensors.
    pub tensors: Vec<u64>,
    /// The sizes of the buffers for constants that belong to the graph.
    pub constants: Vec<u64>,
    /// The sizes of the buffers for weights that other graphs may share.
    pub weights: Vec<u64>,
    /// Weights that are already on the device.
    pub shared: Vec<TensorId>,
}

/// How a constant is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In a buffer of the graph, because it may change or cannot be shared.
    Own,
    /// In a buffer that other graphs may share, because it never changes.
    Weight,
    /// Already on the device, in an allocation of this many bytes.
    Shared(u64),
}

/// Places every tensor that steps bind, and all inputs and outputs. Planned tensors share memory;
/// constants have their own. Buffers are at most `most` bytes unless a tensor is larger.
pub(crate) fn plan_memory(
    graph: &Graph<'_>,
    state: &State,
    steps: &[Step],
    align: u64,
    most: u64,
    kind: impl Fn(TensorId) -> Kind,
) -> Result<MemoryPlan, Error> {
    let end = steps.len() + 1;
    let mut lives: HashMap<TensorId, (usize, usize)> = HashMap::new();
    let mut bytes: HashMap<TensorId, u64> = HashMap::new();
    let mut touch = |id: TensorId, at: usize| -> Result<(), Error> {
        let root = state.root(id);
        let life = lives.entry(root).or_insert((at, at));
        *life = (life.0.min(at), life.1.max(at));
        let size = bytes.entry(root).or_insert(0);
        *size = (*size).max(state.tensor(id)?.bytes()).max(state.tensor(root)?.bytes());
        // A shape that depends on integers may be smaller now than its bound in the file.
        if let Some(Value::Tensor(tensor)) = graph.values.get(id) {
            let bound = tensor.sizes.iter().product();
            *size = (*size).max(padded_bytes(element_of(tensor.scalar_type)?, bound));
        }
        Ok(())
    };
    for id in &graph.inputs {
        if state.tensor(*id).is_ok() {
            touch(*id, 0)?;
        }
    }
    for (index, step) in steps.iter().enumerate() {
        for access in &step.accesses {
            touch(access.tensor, index + 1)?;
        }
    }
    for (index, id) in &state.reserved {
        touch(*id, index + 1)?;
    }
    for id in graph.outputs.iter().chain(graph.updates.iter().map(|(new, _)| new)) {
        if state.tensor(*id).is_ok() {
            touch(*id, end)?;
        }
    }
    // State that callers can access has memory even if no call reads it.
    for (_, old) in &graph.updates {
        if state.tensor(*old).is_ok_and(|it| matches!(it.storage, Storage::Constant(_))) {
            touch(*old, end)?;
        }
    }
    // An integer that only a run knows is 0 here if no bound was found, and so may be a size. No
    // step tells when the tensor is used.
    for id in graph.nodes.iter().flat_map(|node| node.args.last()).flat_map(|out| graph.items(out))
    {
        let Some(Value::Tensor(tensor)) = graph.values.get(*id) else { continue };
        let is_empty = state.tensor(*id).is_ok_and(|it| it.numel() == 0);
        if is_empty && !tensor.sizes.contains(&0) {
            touch(*id, 0)?;
            touch(*id, end)?;
        }
    }
    let mut roots: Vec<TensorId> = lives.keys().copied().collect();
    roots.sort_unstable();
    let mut plan = MemoryPlan::default();
    let (mut requests, mut planned) = (Vec::new(), Vec::new());
    for root in roots {
        let ((first, last), size) = (lives[&root], bytes[&root]);
        if let Storage::Constant(contents) = &state.tensor(root)?.storage {
            let bytes = aligned(size.max(contents.len(graph, root) as u64), 16)?;
            let (memory, sizes) = match kind(root) {
                Kind::Shared(found) if found >= bytes => {
                    plan.shared.push(root);
                    continue;
                }
                Kind::Own => (Memory::Constants, &mut plan.constants),
                Kind::Weight | Kind::Shared(_) => (Memory::Weights, &mut plan.weights),
            };
            let (buffer, offset) = append(sizes, bytes, align, most)?;
            plan.places.insert(root, Location { memory, buffer, offset, bytes });
        } else {
            requests.push(Request { bytes: size, first, last });
            planned.push(root);
        }
    }
    let (slots, tensors) = place(&requests, align, most)?;
    plan.tensors = tensors;
    for ((root, request), (buffer, offset)) in planned.into_iter().zip(&requests).zip(slots) {
        let place = Location { memory: Memory::Tensors, buffer, offset, bytes: request.bytes };
        plan.places.insert(root, place);
    }
    Ok(plan)
}

/// Appends a range to the last buffer, or to a new one if that would exceed `most` bytes. Returns
/// the buffer index and the offset.
fn append(sizes: &mut Vec<u64>, bytes: u64, align: u64, most: u64) -> Result<(usize, u64), Error> {
    let begun = sizes.last().copied().unwrap_or(0);
    let (mut offset, mut end) = (begun, end_of(begun, bytes)?);
    if sizes.is_empty() || (end > most && begun > 0) {
        (offset, end) = (0, bytes);
        sizes.push(0);
    }
    if let Some(last) = sizes.last_mut() {
        *last = aligned(end, align)?;
    }
    Ok((sizes.len() - 1, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_lifetimes_get_disjoint_memory() {
        let requests: Vec<Request> = (0..40)
            .map(|i: usize| Request {
                bytes: 16 + (i as u64 * 37) % 300,
                first: i / 2,
                last: i / 2 + i % 5,
            })
            .collect();
        for (most, count) in [(u64::MAX, 1), (700, 2), (100, 20)] {
            let (slots, sizes) = place(&requests, 64, most).unwrap();
            assert!(sizes.len() >= count && (most < u64::MAX || sizes.len() == 1), "{sizes:?}");
            for (i, a) in requests.iter().enumerate() {
                let (buffer, offset) = slots[i];
                assert!(offset % 64 == 0 && offset + a.bytes <= sizes[buffer]);
                // A request larger than the buffer limit has a buffer of its own.
                assert!(offset + a.bytes <= most || offset == 0);
                for (j, b) in requests.iter().enumerate().skip(i + 1) {
                    let together = a.first <= b.last && b.first <= a.last;
                    let (other, start) = slots[j];
                    let apart = offset + a.bytes <= start || start + b.bytes <= offset;
                    assert!(!together || buffer != other || apart, "{i} {j}");
                }
            }
        }
    }

    #[test]
    fn memory_is_reused() {
        let chain: Vec<Request> =
            (0..10).map(|i| Request { bytes: 100, first: i, last: i + 1 }).collect();
        let (_, sizes) = place(&chain, 4, u64::MAX).unwrap();
        assert!(sizes.len() == 1 && sizes[0] <= 208, "{sizes:?}");
    }

    #[test]
    fn overflowing_sizes_are_rejected() {
        let half = Request { bytes: u64::MAX / 2 + 1, first: 0, last: 1 };
        assert!(place(&[half, half], 16, u64::MAX).is_err());
        let apart = Request { first: 2, last: 3, ..half };
        assert_eq!(place(&[half, apart], 16, u64::MAX).unwrap().1, [half.bytes]);
        let all = Request { bytes: u64::MAX, first: 0, last: 1 };
        assert!(place(&[all, Request { bytes: 1, ..all }], 16, u64::MAX).is_err());
    }
}
