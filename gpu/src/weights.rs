//! The identity of weights, by which several graphs find the weights that they have in common.
//!
//! Methods of one program, and delegates of one method, refer to the same bytes of a file. Weights
//! are identified by their host address: while a graph that borrows these bytes exists, no other
//! data can be at that address. This does not hold if a method was leaked with `mem::forget`, so a
//! hash of sampled contents must match as well.

use crate::derived::{Derived, Matrices, Rows, Source, Transposed};
use crate::state::{Contents, State, Storage};
use crate::tensors::TensorId;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hasher};
use torchlet_graph::graph::{Graph, Value};
use torchlet_shaders::Element;

/// The minimum bytes of a weight that graphs share.
const MIN_BYTES: usize = 16 << 10;

/// The identity of a weight on the device: its host bytes, and the layout that shaders read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Weight {
    address: usize,
    bytes: usize,
    sample: u64,
    /// The element type to which the host bytes are converted, if any.
    converted: Option<Element>,
    /// The computation of the weight from its host bytes, if it is derived.
    made: Option<Made>,
}

/// A computation of a weight from its host bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Made {
    /// Transposed matrices with elements of this size.
    Transposed(usize, Matrices),
    /// 4-bit values, two per byte.
    Nibbles,
    /// Packed rows of quantized values.
    Packed(Rows),
}

/// Returns the shareable weights of a graph by tensor: large constants of the file that never
/// change, and weights derived from them. The bytes that the graph borrows must outlive the
/// compiled graph.
pub(crate) fn weights(
    graph: &Graph<'_>,
    state: &State,
    changing: &HashSet<TensorId>,
) -> HashMap<TensorId, Weight> {
    let lent = |id: TensorId| match (&state.tensor(id).ok()?.storage, graph.values.get(id)?) {
        (Storage::Constant(Contents::Graph | Contents::Converted(_)), Value::Tensor(tensor)) => {
            match &tensor.data {
                Some(Cow::Borrowed(bytes))
                    if bytes.len() >= MIN_BYTES && !changing.contains(&id) =>
                {
                    Some(*bytes)
                }
                _ => None,
            }
        }
        _ => None,
    };
    let weight = |id: TensorId| {
        if changing.contains(&id) {
            return None;
        }
        let (source, made) = match &state.tensor(id).ok()?.storage {
            Storage::Constant(Contents::Graph | Contents::Converted(_)) => (id, None),
            Storage::Constant(Contents::Derived(Derived::Transposed(Transposed {
                source: Source { id, element },
                matrices,
            }))) => (*id, Some(Made::Transposed(element.size(), *matrices))),
            Storage::Constant(Contents::Derived(Derived::Nibbles(nibbles))) => {
                (nibbles.source.id, Some(Made::Nibbles))
            }
            Storage::Constant(Contents::Derived(Derived::Packed(packed))) => {
                (packed.source.id, Some(Made::Packed(packed.rows)))
            }
            _ => return None,
        };
        let bytes = lent(source)?;
        let converted = match &state.tensor(source).ok()?.storage {
            Storage::Constant(Contents::Converted(element)) => Some(*element),
            _ => None,
        };
        let (address, sample) = (bytes.as_ptr().addr(), sample(bytes));
        Some((id, Weight { address, bytes: bytes.len(), sample, converted, made }))
    };
    (0..state.tensors.len()).filter_map(weight).collect()
}

/// Hashes 64 samples at equal distances, and the last bytes.
fn sample(bytes: &[u8]) -> u64 {
    const PARTS: usize = 64;
    const PART: usize = 32;
    let stride = bytes.len() / PARTS;
    let parts = (0..PARTS).filter_map(|part| bytes.get(part * stride..)?.get(..PART));
    let last = bytes.last_chunk::<PART>().map(<[u8; PART]>::as_slice);
    let mut hasher = DefaultHasher::new();
    parts.chain(last).for_each(|part| hasher.write(part));
    hasher.finish()
}
