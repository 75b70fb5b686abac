//! Constants: their bytes on the host, and their way to the device.

use crate::bfloat16;
use crate::derived::{Derived, Source, Transposed};
use crate::device::{Binding, Buffer, Command, Context, MemoryKind, Recording, hand_over_uploads};
use crate::error::Error;
use crate::memory_plan::{Memory, Place};
use crate::state::{Contents, State, Storage};
use crate::tensors::TensorId;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use torchlet_core::Parallel;
use torchlet_graph::graph::{Graph, Value};
use torchlet_shaders::Element;

/// Bytes of constants that go to the device at once, unless a single piece has more.
const CHUNK: u64 = 32 << 20;
/// What larger constants are cut into, where they can be.
const PIECE: u64 = CHUNK / 4;

/// A constant on its way to the device, or a piece of a large one.
struct Constant<'c> {
    /// The number of its buffer.
    buffer: usize,
    offset: u64,
    bytes: usize,
    origin: Origin<'c>,
}

/// Where the bytes of a constant come from.
#[derive(Clone, Copy)]
enum Origin<'c> {
    Bytes(&'c [u8]),
    /// These are of `bfloat16`.
    Converted(&'c [u8], Element),
    /// They are made, from this one on.
    Derived(&'c Derived, &'c Graph<'c>, &'c State, usize),
    /// They are zeros.
    Nothing,
}

impl<'c> Origin<'c> {
    /// What this is a multiple of, bytes can be cut at.
    fn grain(&self) -> usize {
        match self {
            Origin::Bytes(_) | Origin::Nothing => 1,
            Origin::Converted(_, element) => element.size(),
            Origin::Derived(derived, ..) => derived.grain(),
        }
    }

    /// The same from a byte on, where it can be cut.
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
            Origin::Nothing => Origin::Nothing,
        }
    }
}

impl Constant<'_> {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes as u64)
    }

    fn write(&self, target: &mut [u8]) -> Result<(), Error> {
        match self.origin {
            Origin::Bytes(bytes) => match bytes.get(..target.len()) {
                Some(bytes) => target.copy_from_slice(bytes),
                None => return Err(Error::invalid("a constant has fewer bytes than its place")),
            },
            Origin::Converted(bytes, element) => bfloat16::convert(bytes, element, target),
            Origin::Nothing => target.fill(0),
            Origin::Derived(derived, graph, state, from) => {
                make(derived, graph, state, from, target)?;
            }
        }
        Ok(())
    }
}

/// Makes bytes of a constant, from this one on.
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
        // Turned around before they become others, so that not all have to become others for each
        // piece.
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

/// Constants in the order of their places in memory.
pub(crate) struct ConstantWrites<'c> {
    constants: Vec<Constant<'c>>,
}

/// Where chunks pass, one at a time.
struct Way {
    // Dropped first, which waits: until then the device reads what was staged.
    recording: Recording,
    staging: Buffer,
}

impl Way {
    fn new(context: &Arc<Context>, bytes: u64) -> Result<Self, Error> {
        let staging = Buffer::new(context, bytes, MemoryKind::Upload)?;
        Ok(Way { recording: Recording::of_uploads(context)?, staging })
    }
}

/// Work that can be done beside other work.
pub(crate) type Task<'t> = Box<dyn FnOnce() -> Result<(), Error> + Send + 't>;

/// Does all tasks, several at a time.
pub(crate) fn run_tasks(parallel: &dyn Parallel, tasks: Vec<Task<'_>>) -> Result<(), Error> {
    let tasks: Vec<Mutex<Option<Task<'_>>>> =
        tasks.into_iter().map(|task| Mutex::new(Some(task))).collect();
    let result = Mutex::new(Ok(()));
    parallel.run(tasks.len(), &|index| {
        let slot = tasks.get(index);
        let task = slot.and_then(|slot| slot.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(Err(error)) = task.map(|task| task()) {
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Err(error);
        }
    });
    result.into_inner().unwrap_or_else(PoisonError::into_inner)
}

impl<'c> ConstantWrites<'c> {
    /// The constants that have a place in this memory and for which `wanted` says so.
    pub(crate) fn of(
        graph: &'c Graph<'_>,
        state: &'c State,
        places: &HashMap<TensorId, Place>,
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
                    // Zeros in all of the place.
                    ([], _) => {
                        (Origin::Nothing, usize::try_from(place.bytes).unwrap_or(usize::MAX))
                    }
                    (bytes, Contents::Converted(element)) => (
                        Origin::Converted(bytes, *element),
                        bfloat16::converted_bytes(bytes, *element),
                    ),
                    (bytes, _) => (Origin::Bytes(bytes), bytes.len()),
                },
            };
            if bytes as u64 > place.bytes {
                return Err(Error::invalid("a constant is larger than its place"));
            }
            constants.extend(pieces(place, bytes, origin));
        }
        constants.sort_by_key(|constant| (constant.buffer, constant.offset));
        Ok(ConstantWrites { constants })
    }

    /// All bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.constants.iter().map(|constant| constant.bytes as u64).sum()
    }

    /// Writes the constants into their buffers, beside other tasks.
    pub(crate) fn run(
        &self,
        context: &Arc<Context>,
        buffers: &mut [Buffer],
        parallel: &dyn Parallel,
        others: Vec<Task<'_>>,
    ) -> Result<(), Error> {
        let mut tasks = others;
        let missing = || Error::invalid("a constant lies outside all memory");
        if context.host_writes && buffers.iter_mut().all(|buffer| !buffer.mapped().is_empty()) {
            let mut buffers = buffers.iter_mut().enumerate();
            for constants in self.constants.chunk_by(|a, b| a.buffer == b.buffer) {
                let number = constants.first().map_or(0, |first| first.buffer);
                let found = buffers.find(|(own, _)| *own == number);
                let (_, buffer) = found.ok_or_else(missing)?;
                tasks.extend(writes(constants, 0, buffer.mapped())?);
            }
            return run_tasks(parallel, tasks);
        }
        let chunks = self.chunks();
        let largest = |first: usize, step: usize| {
            let turns = chunks.iter().skip(first).step_by(step);
            turns.map(|chunk| extent(chunk).1).max().unwrap_or(0)
        };
        if largest(0, 1) == 0 {
            return run_tasks(parallel, tasks);
        }
        // While the device copies one chunk, the next one is written beside it, where there is
        // memory for both. A way is gone before what it copies from and to.
        let mut ways = Vec::new();
        if chunks.len() > 1 {
            let both = [0, 1].map(|first| Way::new(context, largest(first, 2).max(4)));
            ways.extend(both.into_iter().flatten());
        }
        if ways.len() != 2 {
            ways.clear();
            ways.push(Way::new(context, largest(0, 1))?);
        }
        let count = ways.len();
        for (turn, chunk) in chunks.into_iter().enumerate() {
            let (start, _) = extent(chunk);
            let number = chunk.first().map_or(0, |first| first.buffer);
            let target = buffers.get(number).ok_or_else(missing)?.raw;
            let Some(Way { recording, staging }) = ways.get_mut(turn % count) else { break };
            recording.wait()?;
            let mut tasks = std::mem::take(&mut tasks);
            tasks.extend(writes(chunk, start, staging.mapped())?);
            run_tasks(parallel, tasks)?;
            let copies: Vec<Command<'_>> = runs(chunk)
                .map(|(first, size)| Command::Copy {
                    from: Binding {
                        buffer: staging.raw,
                        offset: first - start,
                        size,
                        written: false,
                    },
                    to: Binding { buffer: target, offset: first, size, written: true },
                })
                .collect();
            recording.record(&copies, false)?;
            recording.submit()?;
        }
        ways.iter_mut().try_for_each(|way| way.recording.wait())?;
        hand_over_uploads(context)
    }

    fn chunks(&self) -> Vec<&[Constant<'c>]> {
        let mut chunks = Vec::new();
        let mut rest = self.constants.as_slice();
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

/// A constant of so many bytes, cut into pieces if it is large.
fn pieces<'c>(
    place: &Place,
    bytes: usize,
    origin: Origin<'c>,
) -> impl Iterator<Item = Constant<'c>> + use<'c> {
    let grain = origin.grain().max(1);
    let piece = (PIECE as usize / grain * grain).max(grain);
    let Place { buffer, offset, .. } = *place;
    (0..bytes).step_by(piece).map(move |start| Constant {
        buffer,
        offset: offset.saturating_add(start as u64),
        bytes: piece.min(bytes - start),
        origin: origin.from(start),
    })
}

/// Where a chunk starts, and its bytes.
fn extent(chunk: &[Constant<'_>]) -> (u64, u64) {
    let start = chunk.first().map_or(0, |first| first.offset);
    (start, chunk.last().map_or(0, Constant::end) - start)
}

/// The constants of a chunk as ranges with nothing but padding between them.
fn runs<'r>(chunk: &'r [Constant<'_>]) -> impl Iterator<Item = (u64, u64)> + 'r {
    const PADDING: u64 = 256;
    let adjoin = |a: &Constant<'_>, b: &Constant<'_>| b.offset.saturating_sub(a.end()) <= PADDING;
    chunk.chunk_by(adjoin).map(extent)
}

/// A task for each constant of a chunk that starts at `start`: writes it to its place in memory.
fn writes<'t>(
    chunk: &'t [Constant<'_>],
    start: u64,
    memory: &'t mut [u8],
) -> Result<Vec<Task<'t>>, Error> {
    let short = || Error::invalid("a constant lies outside its memory");
    let mut tasks: Vec<Task<'t>> = Vec::new();
    let (mut rest, mut at) = (memory, start);
    for constant in chunk {
        let gap = constant.offset.checked_sub(at).and_then(|gap| usize::try_from(gap).ok());
        let (_, behind) = rest.split_at_mut_checked(gap.ok_or_else(short)?).ok_or_else(short)?;
        let (target, behind) = behind.split_at_mut_checked(constant.bytes).ok_or_else(short)?;
        (rest, at) = (behind, constant.end());
        tasks.push(Box::new(move || constant.write(target)));
    }
    Ok(tasks)
}

/// The bytes of a constant that is not derived, as they are on the device.
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

/// The bytes of a constant that is not derived.
fn bytes_of<'c>(graph: &'c Graph<'_>, state: &'c State, id: TensorId) -> Result<&'c [u8], Error> {
    let bytes = match (&state.tensor(id)?.storage, graph.values.get(id)) {
        (Storage::Constant(Contents::Made(bytes)), _) => Some(bytes.as_slice()),
        (
            Storage::Constant(Contents::Graph | Contents::Converted(_)),
            Some(Value::Tensor(tensor)),
        ) => tensor.data.as_deref(),
        _ => None,
    };
    bytes.ok_or_else(|| Error::Invalid(format!("constant {id} has no bytes")))
}

/// Frees the bytes of all constants but those that change, which are what a reset gives them again.
pub(crate) fn forget(
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
    use torchlet_core::{ScalarType, Serial};
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

    #[test]
    fn constants_are_written_to_their_places() {
        let sources = [(64, vec![1; 16]), (80, vec![2; 8]), (128, vec![3; 4])];
        let chunk = constants(&sources);
        let mut memory = vec![0; 68];
        run_tasks(&Serial, writes(&chunk, 64, &mut memory).unwrap()).unwrap();
        assert_eq!(memory, [vec![1; 16], vec![2; 8], vec![0; 40], vec![3; 4]].concat());
        let mut short = vec![0; 67];
        assert!(writes(&chunk, 64, &mut short).is_err());
        assert!(writes(&chunk, 65, &mut memory).is_err());
    }

    #[test]
    fn chunks_are_of_bounded_size_but_for_large_pieces() {
        let half = CHUNK as usize / 2;
        let sources = [
            (0, vec![0; half]),
            (half as u64, vec![0; half]),
            (2 * half as u64, vec![0; 2 * half + 4]),
            (5 * half as u64, vec![0; 4]),
        ];
        let all = ConstantWrites { constants: constants(&sources) };
        let sizes: Vec<usize> = all.chunks().iter().map(|chunk| chunk.len()).collect();
        assert_eq!(sizes, [2, 1, 1]);
        assert_eq!(all.bytes(), CHUNK * 2 + 8);
    }

    fn place(bytes: u64) -> Place {
        Place { memory: Memory::Constants, buffer: 0, offset: 64, bytes }
    }

    /// What comes of pieces, which go to the device in chunks of bounded size.
    fn written(constants: Vec<Constant<'_>>) -> Vec<u8> {
        let all = ConstantWrites { constants };
        let (start, bytes) = extent(&all.constants);
        let mut memory = vec![7; bytes as usize];
        assert!(all.chunks().len() > 1);
        for chunk in all.chunks() {
            let (first, bytes) = extent(chunk);
            assert!(bytes <= CHUNK);
            let target = &mut memory[(first - start) as usize..][..bytes as usize];
            run_tasks(&Serial, writes(chunk, first, target).unwrap()).unwrap();
        }
        memory
    }

    #[test]
    fn large_constants_go_to_the_device_in_pieces() {
        let bytes: Vec<u8> = (0..CHUNK + 4).map(|at| (at % 251) as u8).collect();
        let place = place(2 * CHUNK + 16);
        let all = pieces(&place, bytes.len(), Origin::Bytes(&bytes));
        assert!(written(all.collect()) == bytes);
        let all = pieces(&place, 2 * bytes.len(), Origin::Converted(&bytes, Element::F32));
        assert!(written(all.collect()) == bfloat16::converted(&bytes, Element::F32));
        // What starts as zeros has them everywhere.
        let all = pieces(&place, place.bytes as usize, Origin::Nothing);
        assert!(written(all.collect()) == vec![0; place.bytes as usize]);
    }

    #[test]
    fn large_constants_are_made_in_pieces() {
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
    fn ranges_far_apart_are_copied_apart() {
        let sources = [(0, vec![0; 16]), (64, vec![0; 16]), (4096, vec![0; 16])];
        let chunk = constants(&sources);
        assert_eq!(runs(&chunk).collect::<Vec<_>>(), [(0, 80), (4096, 16)]);
    }

    #[test]
    fn the_error_of_a_task_is_told() {
        let tasks: Vec<Task<'_>> =
            vec![Box::new(|| Ok(())), Box::new(|| Err(Error::invalid("no"))), Box::new(|| Ok(()))];
        assert!(run_tasks(&Serial, tasks).is_err());
        assert!(run_tasks(&Serial, Vec::new()).is_ok());
    }
}
