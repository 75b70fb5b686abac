//! Placing tensors in one buffer, so that those that are not needed at the same time share memory.

use crate::error::Error;
use crate::state::{State, Storage};
use crate::steps::Step;
use crate::tensors::{TensorId, element_of, padded_bytes};
use std::collections::HashMap;
use torchlet_graph::graph::{Graph, Value};

/// A tensor to place: its bytes, and the first and last step that use it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) bytes: u64,
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// An offset for each request, and the bytes in all. Largest first, each at the lowest offset that is free for as long as
/// it lives.
///
/// # Errors
/// There are more bytes than can be counted.
pub(crate) fn place(requests: &[Request], align: u64) -> Result<(Vec<u64>, u64), Error> {
    let mut order: Vec<(usize, Request)> = requests.iter().copied().enumerate().collect();
    order.sort_by_key(|(_, request)| std::cmp::Reverse(request.bytes));
    let mut offsets = vec![0u64; requests.len()];
    // What has a place: the request, its start and its end.
    let mut placed: Vec<(Request, u64, u64)> = Vec::with_capacity(requests.len());
    let mut total = 0;
    for (index, request) in order {
        let mut taken: Vec<(u64, u64)> = placed
            .iter()
            .filter(|(other, ..)| other.first <= request.last && request.first <= other.last)
            .map(|(_, start, end)| (*start, *end))
            .collect();
        taken.sort_unstable();
        let mut offset = 0;
        for (start, end) in taken {
            if end_of(offset, request.bytes)? <= start {
                break;
            }
            offset = offset.max(aligned(end, align)?);
        }
        let end = end_of(offset, request.bytes)?;
        if let Some(slot) = offsets.get_mut(index) {
            *slot = offset;
        }
        total = total.max(end);
        placed.push((request, offset, end));
    }
    Ok((offsets, total))
}

fn end_of(offset: u64, bytes: u64) -> Result<u64, Error> {
    offset.checked_add(bytes).ok_or_else(uncountable)
}

fn aligned(offset: u64, align: u64) -> Result<u64, Error> {
    offset.checked_next_multiple_of(align).ok_or_else(uncountable)
}

fn uncountable() -> Error {
    Error::OutOfMemory("the graph needs more bytes than there can be".to_owned())
}

/// Where a tensor's memory is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// In the memory of constants, rather than that which tensors take turns to use.
    pub(crate) constant: bool,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

pub(crate) type Places = HashMap<TensorId, Place>;

/// Places every tensor that is bound, entered or left: planned ones in shared memory, constants in memory of their own.
pub(crate) fn plan_memory(
    graph: &Graph<'_>,
    state: &State,
    steps: &[Step],
    align: u64,
) -> Result<(Places, u64, u64), Error> {
    let end = steps.len() + 1;
    let mut lives: HashMap<TensorId, (usize, usize)> = HashMap::new();
    let mut bytes: HashMap<TensorId, u64> = HashMap::new();
    let mut touch = |id: TensorId, at: usize| -> Result<(), Error> {
        let root = state.root(id);
        let life = lives.entry(root).or_insert((at, at));
        *life = (life.0.min(at), life.1.max(at));
        let size = bytes.entry(root).or_insert(0);
        *size = (*size).max(state.tensor(id)?.bytes()).max(state.tensor(root)?.bytes());
        // A shape that depends on numbers may be smaller now than the file says it can be.
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
    for id in graph.outputs.iter().chain(graph.updates.iter().map(|(new, _)| new)) {
        if state.tensor(*id).is_ok() {
            touch(*id, end)?;
        }
    }
    // What callers may ask for is there, even if no call reads it.
    for (_, old) in &graph.updates {
        if matches!(state.tensor(*old), Ok(tensor) if matches!(tensor.storage, Storage::Constant(_)))
        {
            touch(*old, end)?;
        }
    }
    let mut roots: Vec<TensorId> = lives.keys().copied().collect();
    roots.sort_unstable();
    let mut places = HashMap::new();
    let (mut requests, mut planned, mut constant_bytes) = (Vec::new(), Vec::new(), 0u64);
    for root in roots {
        let ((first, last), size) = (lives[&root], bytes[&root]);
        if let Storage::Constant(contents) = &state.tensor(root)?.storage {
            let size = aligned(size.max(contents.len(graph, root) as u64), 16)?;
            places.insert(root, Place { constant: true, offset: constant_bytes, bytes: size });
            constant_bytes = aligned(end_of(constant_bytes, size)?, align)?;
        } else {
            requests.push(Request { bytes: size, first, last });
            planned.push(root);
        }
    }
    let (offsets, total) = place(&requests, align)?;
    for ((root, request), offset) in planned.into_iter().zip(&requests).zip(offsets) {
        places.insert(root, Place { constant: false, offset, bytes: request.bytes });
    }
    Ok((places, total, constant_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_that_live_together_do_not_overlap() {
        let requests: Vec<Request> = (0..40)
            .map(|i: usize| Request {
                bytes: 16 + (i as u64 * 37) % 300,
                first: i / 2,
                last: i / 2 + i % 5,
            })
            .collect();
        let (offsets, total) = place(&requests, 64).unwrap();
        for (i, a) in requests.iter().enumerate() {
            assert!(offsets[i] % 64 == 0 && offsets[i] + a.bytes <= total);
            for (j, b) in requests.iter().enumerate().skip(i + 1) {
                let together = a.first <= b.last && b.first <= a.last;
                let apart =
                    offsets[i] + a.bytes <= offsets[j] || offsets[j] + b.bytes <= offsets[i];
                assert!(!together || apart, "{i} {j}");
            }
        }
    }

    #[test]
    fn memory_is_reused() {
        let chain: Vec<Request> =
            (0..10).map(|i| Request { bytes: 100, first: i, last: i + 1 }).collect();
        assert!(place(&chain, 4).unwrap().1 <= 208);
    }

    #[test]
    fn sums_that_overflow_are_refused() {
        let half = Request { bytes: u64::MAX / 2 + 1, first: 0, last: 1 };
        assert!(place(&[half, half], 16).is_err());
        let apart = Request { first: 2, last: 3, ..half };
        assert_eq!(place(&[half, apart], 16).unwrap().1, half.bytes);
        let all = Request { bytes: u64::MAX, first: 0, last: 1 };
        assert!(place(&[all, Request { bytes: 1, ..all }], 16).is_err());
    }
}
