//! The constants of a graph, and their bytes on the device.

use crate::bfloat16;
use crate::derived::{Derived, Source, Transposed};
use crate::error::Error;
use crate::memory_plan::{Location, Memory};
use crate::state::{Contents, State, Storage};
use crate::tensors::TensorId;
use std::borrow::Cow;
use std::collections::HashMap;
use torchlet_graph::graph::{Graph, Value};
use torchlet_shaders::Element;

/// Bytes of constants uploaded at a time, unless a single piece is larger.
const CHUNK: u64 = 32 << 20;
/// The size of the pieces into which larger constants are divided, where possible.
const PIECE: u64 = CHUNK / 4;

/// A constant, or a piece of a large one, to be uploaded.
#[derive(Debug)]
pub struct Constant<'c> {
    /// The index of the target buffer.
    pub buffer: usize,
    offset: u64,
    bytes: usize,
    origin: Origin<'c>,
}

/// The source of a constant's bytes.
#[derive(Debug, Clone, Copy)]
enum Origin<'c> {
    Bytes(&'c [u8]),
    /// `bfloat16` bytes, to be converted to this element type.
    Converted(&'c [u8], Element),
    /// Bytes computed by a derivation, from this byte offset on.
    Derived(&'c Derived, &'c Graph<'c>, &'c State, usize),
    /// Zero bytes.
    Zeros,
}

impl<'c> Origin<'c> {
    /// Returns the granularity in bytes: a piece of this constant must be a multiple of it.
    fn grain(&self) -> usize {
        match self {
            Origin::Bytes(_) | Origin::Zeros => 1,
            Origin::Converted(_, element) => element.size(),
            Origin::Derived(derived, ..) => derived.grain(),
        }
    }

    /// Returns the same source from the byte offset `start` on, which must be a multiple of the
    /// granularity.
    fn from(&self, start: usize) -> Self {
        match *self {
            Origin::Bytes(bytes) => Origin::Bytes(bytes.get(start..).unwrap_or_default()),
            Origin::Converted(bytes, element) => {
                let start = start / element.size() * bfloat16::SIZE;
                Origin::Converted(bytes.get(start..).unwrap_or_default(), element)
            }
            Origin::Derived(derived, graph, state, from) => {
                Origin::Derived(derived, graph, state, from.saturating_add(start))
            }
            Origin::Zeros => Origin::Zeros,
        }
    }
}

impl Constant<'_> {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes as u64)
    }

    /// Writes the bytes of the constant into `target`.
    ///
    /// # Errors
    /// `target` is larger than the constant.
    pub fn write(&self, target: &mut [u8]) -> Result<(), Error> {
        match self.origin {
            Origin::Bytes(bytes) => match bytes.get(..target.len()) {
                Some(bytes) => target.copy_from_slice(bytes),
                None => {
                    return Err(Error::Invalid(format!(
                        "internal error: a constant has {} bytes, expected at least {}",
                        bytes.len(),
                        target.len()
                    )));
                }
            },
            Origin::Converted(bytes, element) => bfloat16::convert(bytes, element, target),
            Origin::Zeros => target.fill(0),
            Origin::Derived(derived, graph, state, from) => {
                make(derived, graph, state, from, target)?;
            }
        }
        Ok(())
    }
}

/// Computes bytes of a derived constant, from the offset `from` on.
fn make(
    derived: &Derived,
    graph: &Graph<'_>,
    state: &State,
    from: usize,
    target: &mut [u8],
) -> Result<(), Error> {
    if let Derived::Transposed(Transposed { source, matrices }) = derived
        && let Storage::Constant(Contents::Converted(element)) = state.tensor(source.id)?.storage
    {
        // Transposed before the conversion from `bfloat16`; otherwise, each piece would convert the
        // whole constant again.
        let (here, there) = (bfloat16::SIZE, element.size());
        let source = Source { element: Element::F16, ..*source };
        let turned = Derived::Transposed(Transposed { source, matrices: *matrices });
        let mut bytes = vec![0; target.len() / there * here];
        turned.make(
            &|id| bytes_of(graph, state, id).map(Cow::from),
            from / there * here,
            &mut bytes,
        )?;
        bfloat16::convert(&bytes, element, target);
        return Ok(());
    }
    derived.make(&|id| device_bytes(graph, state, id), from, target)
}

/// Constants to upload, sorted by their offset in memory.
#[derive(Debug)]
pub struct Constants<'c>(Vec<Constant<'c>>);

impl<'c> Constants<'c> {
    /// Collects the constants in one kind of memory that satisfy `wanted`.
    ///
    /// # Errors
    /// A constant has no bytes, or more bytes than were planned.
    pub fn of(
        graph: &'c Graph<'_>,
        state: &'c State,
        places: &HashMap<TensorId, Location>,
        memory: Memory,
        wanted: impl Fn(TensorId) -> bool,
    ) -> Result<Self, Error> {
        let mut constants = Vec::new();
        for (id, place) in
            places.iter().filter(|(id, place)| place.memory == memory && wanted(**id))
        {
            let Storage::Constant(contents) = &state.tensor(*id)?.storage else { continue };
            let (origin, bytes) = match contents {
                Contents::Derived(derived) => {
                    (Origin::Derived(derived, graph, state, 0), derived.bytes())
                }
                _ => match (bytes_of(graph, state, *id)?, contents) {
                    // Zero-fills the whole allocation.
                    ([], _) => (Origin::Zeros, usize::try_from(place.bytes).unwrap_or(usize::MAX)),
                    (bytes, Contents::Converted(element)) => (
                        Origin::Converted(bytes, *element),
                        bfloat16::converted_bytes(bytes, *element),
                    ),
                    (bytes, _) => (Origin::Bytes(bytes), bytes.len()),
                },
            };
            if bytes as u64 > place.bytes {
                return Err(Error::Invalid(format!(
                    "constant {id}: expected at most {} bytes, found {bytes}",
                    place.bytes
                )));
            }
            constants.extend(pieces(place, bytes, origin));
        }
        constants.sort_by_key(|constant| (constant.buffer, constant.offset));
        Ok(Constants(constants))
    }

    /// Returns the total number of bytes.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|constant| constant.bytes as u64).sum()
    }

    /// Divides the constants by buffer.
    pub fn by_buffer(&self) -> impl Iterator<Item = &[Constant<'c>]> {
        self.0.chunk_by(|a, b| a.buffer == b.buffer)
    }

    /// Divides the constants into chunks of one buffer each that are uploaded together.
    pub fn chunks(&self) -> Vec<&[Constant<'c>]> {
        let mut chunks = Vec::new();
        let mut rest = self.0.as_slice();
        while let Some(first) = rest.first() {
            let limit = first.offset.saturating_add(CHUNK);
            let beside = |constant: &&Constant<'_>| {
                constant.buffer == first.buffer && constant.end() <= limit
            };
            let count = rest.iter().take_while(beside).count().max(1);
            let (chunk, others) = rest.split_at(count);
            chunks.push(chunk);
            rest = others;
        }
        chunks
    }
}

/// Divides a constant into pieces if it is large.
fn pieces<'c>(
    place: &Location,
    bytes: usize,
    origin: Origin<'c>,
) -> impl Iterator<Item = Constant<'c>> + use<'c> {
    let grain = origin.grain().max(1);
    let piece = (PIECE as usize / grain * grain).max(grain);
    let Location { buffer, offset, .. } = *place;
    (0..bytes).step_by(piece).map(move |start| Constant {
        buffer,
        offset: offset.saturating_add(start as u64),
        bytes: piece.min(bytes - start),
        origin: origin.from(start),
    })
}

/// Returns the offset and the length of a chunk, in bytes.
pub fn extent(chunk: &[Constant<'_>]) -> (u64, u64) {
    let start = chunk.first().map_or(0, |first| first.offset);
    (start, chunk.last().map_or(0, Constant::end) - start)
}

/// Merges the constants of a chunk into ranges, joining neighbours that only padding separates.
pub fn runs<'r>(chunk: &'r [Constant<'_>]) -> impl Iterator<Item = (u64, u64)> + 'r {
    const PADDING: u64 = 256;
    let adjoin = |a: &Constant<'_>, b: &Constant<'_>| b.offset.saturating_sub(a.end()) <= PADDING;
    chunk.chunk_by(adjoin).map(extent)
}

/// Divides memory that begins at offset `start` among the constants of a chunk.
///
/// # Errors
/// A constant lies outside of the memory.
pub fn targets<'t>(
    chunk: &'t [Constant<'t>],
    start: u64,
    memory: &'t mut [u8],
) -> Result<Vec<(&'t Constant<'t>, &'t mut [u8])>, Error> {
    let short = || Error::invalid("internal error: a constant lies outside its buffer");
    let mut targets = Vec::with_capacity(chunk.len());
    let (mut rest, mut at) = (memory, start);
    for constant in chunk {
        let gap = constant.offset.checked_sub(at).and_then(|gap| usize::try_from(gap).ok());
        let (_, behind) = rest.split_at_mut_checked(gap.ok_or_else(short)?).ok_or_else(short)?;
        let (target, behind) = behind.split_at_mut_checked(constant.bytes).ok_or_else(short)?;
        (rest, at) = (behind, constant.end());
        targets.push((constant, target));
    }
    Ok(targets)
}

/// Returns the bytes of a constant that is not derived, in the device's element type.
fn device_bytes<'c>(
    graph: &'c Graph<'_>,
    state: &'c State,
    id: TensorId,
) -> Result<Cow<'c, [u8]>, Error> {
    let bytes = bytes_of(graph, state, id)?;
    Ok(match state.tensor(id)?.storage {
        Storage::Constant(Contents::Converted(element)) => {
            Cow::Owned(bfloat16::converted(bytes, element))
        }
        _ => Cow::Borrowed(bytes),
    })
}

/// Returns the bytes of a constant that is not derived.
fn bytes_of<'c>(graph: &'c Graph<'_>, state: &'c State, id: TensorId) -> Result<&'c [u8], Error> {
    let bytes = match (&state.tensor(id)?.storage, graph.values.get(id)) {
        (Storage::Constant(Contents::Made(bytes)), _) => Some(bytes.as_slice()),
        (
            Storage::Constant(Contents::Graph | Contents::Converted(_)),
            Some(Value::Tensor(tensor)),
        ) => tensor.data.as_deref(),
        _ => None,
    };
    bytes.ok_or_else(|| Error::Invalid(format!("internal error: constant {id} has no data")))
}

/// Frees the host bytes of all constants except those that change, which a reset restores.
pub fn forget(
    graph: Graph<'_>,
    state: &mut State,
    changes: impl Fn(TensorId) -> bool,
) -> Graph<'static> {
    for (id, tensor) in state.tensors.iter_mut().enumerate() {
        let Some(tensor) = tensor else { continue };
        let Storage::Constant(contents) = &mut tensor.storage else { continue };
        if !changes(id) && !matches!(contents, Contents::Derived(_)) {
            *contents = Contents::Graph;
            continue;
        }
        let Some(Value::Tensor(value)) = graph.values.get(id) else { continue };
        let bytes = value.data.as_deref().unwrap_or_default();
        *contents = match contents {
            Contents::Graph => Contents::Made(bytes.to_vec()),
            Contents::Converted(element) => Contents::Made(bfloat16::converted(bytes, *element)),
            Contents::Made(_) | Contents::Derived(_) => continue,
        };
    }
    graph.without_data()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derived::Matrices;
    use std::collections::HashSet;
    use torchlet_core::ScalarType;
    use torchlet_graph::graph::Tensor;

    fn constants(sources: &[(u64, Vec<u8>)]) -> Vec<Constant<'_>> {
        let constant = |(offset, source): &'_ (u64, Vec<u8>)| (*offset, source.len());
        sources
            .iter()
            .map(|pair| {
                let (offset, bytes) = constant(pair);
                Constant { buffer: 0, offset, bytes, origin: Origin::Bytes(&pair.1) }
            })
            .collect()
    }

    fn write(chunk: &[Constant<'_>], start: u64, memory: &mut [u8]) -> Result<(), Error> {
        targets(chunk, start, memory)?.into_iter().try_for_each(|(it, target)| it.write(target))
    }

    #[test]
    fn constants_are_written_at_their_offsets() {
        let sources = [(64, vec![1; 16]), (80, vec![2; 8]), (128, vec![3; 4])];
        let chunk = constants(&sources);
        let mut memory = vec![0; 68];
        write(&chunk, 64, &mut memory).unwrap();
        assert_eq!(memory, [vec![1; 16], vec![2; 8], vec![0; 40], vec![3; 4]].concat());
        let mut short = vec![0; 67];
        assert!(targets(&chunk, 64, &mut short).is_err());
        assert!(targets(&chunk, 65, &mut memory).is_err());
    }

    #[test]
    fn chunk_size_is_bounded_except_for_large_pieces() {
        let half = CHUNK as usize / 2;
        let sources = [
            (0, vec![0; half]),
            (half as u64, vec![0; half]),
            (2 * half as u64, vec![0; 2 * half + 4]),
            (5 * half as u64, vec![0; 4]),
        ];
        let all = Constants(constants(&sources));
        let sizes: Vec<usize> = all.chunks().iter().map(|chunk| chunk.len()).collect();
        assert_eq!(sizes, [2, 1, 1]);
        assert_eq!(all.bytes(), CHUNK * 2 + 8);
    }

    fn place(bytes: u64) -> Location {
        Location { memory: Memory::Constants, buffer: 0, offset: 64, bytes }
    }

    /// Writes all pieces, in chunks of bounded size, and returns the memory.
    fn written(constants: Vec<Constant<'_>>) -> Vec<u8> {
        let all = Constants(constants);
        let (start, bytes) = extent(&all.0);
        let mut memory = vec![7; bytes as usize];
        assert!(all.chunks().len() > 1);
        for chunk in all.chunks() {
            let (first, bytes) = extent(chunk);
            assert!(bytes <= CHUNK);
            let target = &mut memory[(first - start) as usize..][..bytes as usize];
            write(chunk, first, target).unwrap();
        }
        memory
    }

    #[test]
    fn large_constants_are_uploaded_in_pieces() {
        let bytes: Vec<u8> = (0..CHUNK + 4).map(|at| (at % 251) as u8).collect();
        let place = place(2 * CHUNK + 16);
        let all = pieces(&place, bytes.len(), Origin::Bytes(&bytes));
        assert!(written(all.collect()) == bytes);
        let all = pieces(&place, 2 * bytes.len(), Origin::Converted(&bytes, Element::F32));
        assert!(written(all.collect()) == bfloat16::converted(&bytes, Element::F32));
        // A zero-initialised constant is zero everywhere.
        let all = pieces(&place, place.bytes as usize, Origin::Zeros);
        assert!(written(all.collect()) == vec![0; place.bytes as usize]);
    }

    #[test]
    fn large_constants_are_derived_in_pieces() {
        let (rows, columns) = (3000, 3003);
        for scalar_type in [ScalarType::Float, ScalarType::BFloat16] {
            let bytes = rows * columns * scalar_type.size();
            let data: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
            let mut graph = Graph::default();
            graph.values.push(Value::Tensor(Tensor {
                scalar_type,
                host_type: scalar_type,
                sizes: vec![rows, columns],
                dynamic: false,
                data: Some(data.into()),
                changes: None,
            }));
            let state = State::new(&graph, HashSet::new()).unwrap();
            let source = Source { id: 0, element: Element::F32 };
            let matrices = Matrices { count: 1, rows, columns };
            let derived = Derived::Transposed(Transposed { source, matrices });
            let all =
                pieces(&place(0), derived.bytes(), Origin::Derived(&derived, &graph, &state, 0));
            let mut whole = vec![0; derived.bytes()];
            derived.make(&|id| device_bytes(&graph, &state, id), 0, &mut whole).unwrap();
            assert!(written(all.collect()) == whole, "{scalar_type}");
        }
    }

    #[test]
    fn distant_ranges_are_copied_separately() {
        let sources = [(0, vec![0; 16]), (64, vec![0; 16]), (4096, vec![0; 16])];
        let chunk = constants(&sources);
        assert_eq!(runs(&chunk).collect::<Vec<_>>(), [(0, 80), (4096, 16)]);
    }
}
