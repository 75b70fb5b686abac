//! Execution plans: a sequence of steps over buffers with assigned memory.

use super::lines::Lines;
use super::numbers::Precision;
use super::ops::Copy;
use super::packed::Constant;
use super::view::BufferId;
use crate::compute::gemm::{Context, ShapeMismatch};
use crate::compute::simd::{LINE, Tier};
use crate::compute::split::is_cancelled;
use core::ops::Range;
use std::boxed::Box;
use std::time::Instant;
use std::vec::Vec;
use torchlet_core::{Parallel, ScalarType};
use torchlet_graph::plan::{Arena, Lifetime};

/// Maximum number of input buffers of a step.
pub(super) const READS: usize = 4;
/// Maximum number of elements of a tensor, and of all state that a region keeps between calls (4
/// GiB of `f32`).
pub(super) const MAX: usize = 1 << 30;

/// A computation with fixed shapes, strides, weights and algorithm.
pub(super) trait Step: Send + Sync {
    /// Workspace in elements with which the step is fastest, for a number of threads.
    fn workspace(&self, _tier: Tier, _threads: usize) -> usize {
        0
    }

    /// Fuses a copy into the step: it writes to the destination of the copy from now on. Returns
    /// false if the step does not support it.
    fn move_results(&mut self, _copy: &Copy) -> bool {
        false
    }

    /// Runs the step.
    ///
    /// # Errors
    /// If a buffer is shorter than planned.
    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch>;
}

/// Buffers and context of a step. Buffers are passed whole; steps have offsets into them.
pub(super) struct Io<'a> {
    /// Input buffers in the order of the step. Empty for a buffer that the step also writes.
    pub(super) inputs: [&'a [f32]; READS],
    /// Output buffer.
    pub(super) out: &'a mut [f32],
    /// Workspace, not preserved between calls.
    pub(super) workspace: &'a mut [f32],
    /// Instruction set and threads.
    pub(super) context: Context<'a>,
}

/// Kind of storage of a buffer.
#[derive(Debug, Clone)]
pub(super) enum Home<'p> {
    /// Input of the region.
    Input(usize),
    /// Output of the region.
    Output(usize),
    /// A constant; `None` if its contents are not available, as when only support is queried.
    Constant(Option<Constant<'p>>),
    /// Temporary memory, which buffers with disjoint lifetimes share.
    Shared,
}

/// Element type of a buffer in the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Element {
    /// `f32`, whatever the float dtype outside the region.
    Float,
    /// int8, packed into 32-bit words.
    Code,
}

impl Element {
    pub(super) fn of(scalar_type: ScalarType) -> Option<Self> {
        match scalar_type {
            ScalarType::Char => Some(Element::Code),
            other => Precision::of(other).map(|_| Element::Float),
        }
    }

    /// Number of words that `count` elements occupy. Buffers consist of 32-bit words.
    pub(super) fn words(self, count: usize) -> usize {
        match self {
            Element::Float => count,
            Element::Code => count.div_ceil(4),
        }
    }
}

/// A buffer of a plan.
#[derive(Debug, Clone)]
pub(super) struct Buffer<'p> {
    pub(super) home: Home<'p>,
    /// Number of elements.
    pub(super) len: usize,
    pub(super) element: Element,
}

/// A step with the buffers that it reads and writes.
pub(super) struct Call<'p> {
    pub(super) step: Box<dyn Step + 'p>,
    pub(super) reads: Vec<BufferId>,
    pub(super) writes: BufferId,
    /// Index of the graph's call that was lowered to the step.
    pub(super) node: usize,
}

impl Call<'_> {
    /// Whether the call reads or writes a buffer.
    pub(super) fn touches(&self, buffer: BufferId) -> bool {
        self.writes == buffer || self.reads.contains(&buffer)
    }
}

/// Memory that a buffer is assigned to.
#[derive(Debug, Clone, PartialEq)]
enum Location {
    Input(usize),
    Output(usize),
    Constant(usize),
    Shared(Range<usize>),
    Nothing,
}

struct PlacedCall<'p> {
    step: Box<dyn Step + 'p>,
    reads: [Location; READS],
    writes: Location,
    node: usize,
}

/// Index of the graph's call that a step belongs to, and end time of the step.
pub(super) type Lap = (usize, Instant);

/// An executable plan of a region.
pub(super) struct Plan<'p> {
    calls: Vec<PlacedCall<'p>>,
    constants: Vec<Constant<'p>>,
    /// Shapes of the outputs.
    outputs: Vec<Vec<usize>>,
    /// Size of the temporary memory and of the workspace, in elements.
    needs: [usize; 2],
    tier: Tier,
}

/// Memory of a region; only one of its plans uses it at a time.
#[derive(Debug, Default)]
pub(super) struct Memory {
    shared: Lines,
    workspace: Lines,
}

impl Memory {
    /// Grows the memory to the size that a plan needs; `None` if out of memory.
    pub(super) fn fit(&mut self, plan: &Plan<'_>) -> Option<()> {
        for (lines, needed) in [&mut self.shared, &mut self.workspace].into_iter().zip(plan.needs) {
            if lines.as_slice().len() < needed {
                *lines = Lines::default();
                *lines = Lines::zeroed(needed)?;
            }
        }
        Some(())
    }
}

impl<'p> Plan<'p> {
    /// Creates a plan and assigns memory to the buffers; `None` if out of memory.
    pub(super) fn new(
        calls: Vec<Call<'p>>,
        buffers: &[Buffer<'p>],
        outputs: Vec<Vec<usize>>,
        machine: Context<'_>,
    ) -> Option<Self> {
        let (tier, threads) = (machine.tier, machine.parallel.threads());
        let mut lives: Vec<Option<Lifetime>> = std::vec![None; buffers.len()];
        for (at, call) in calls.iter().enumerate() {
            for id in call.reads.iter().chain([&call.writes]) {
                let life = lives.get_mut(*id)?.get_or_insert(Lifetime { first: at, last: at });
                life.last = at;
            }
        }
        let is_shared =
            |id: &usize| matches!(buffers.get(*id), Some(Buffer { home: Home::Shared, .. }));
        let mut largest: Vec<usize> = (0..buffers.len()).filter(is_shared).collect();
        let len = |id: usize| buffers.get(id).map_or(0, |it| it.element.words(it.len));
        largest.sort_by_key(|id| core::cmp::Reverse(len(*id)));
        let mut arena = Arena::new(LINE);
        let mut locations = std::vec![Location::Nothing; buffers.len()];
        for id in largest {
            let Some(life) = lives.get(id).copied().flatten() else { continue };
            let start = arena.take(len(id), life)?;
            *locations.get_mut(id)? = Location::Shared(start..start.checked_add(len(id))?);
        }
        let mut constants = Vec::new();
        for (location, buffer) in locations.iter_mut().zip(buffers) {
            *location = match &buffer.home {
                Home::Input(index) => Location::Input(*index),
                Home::Output(index) => Location::Output(*index),
                Home::Constant(Some(data)) => {
                    constants.push(data.clone());
                    Location::Constant(constants.len() - 1)
                }
                Home::Constant(None) => Location::Nothing,
                Home::Shared => continue,
            };
        }
        let location = |id: &BufferId| locations.get(*id).cloned().unwrap_or(Location::Nothing);
        let workspace = calls.iter().map(|call| call.step.workspace(tier, threads)).max();
        let placed = calls.into_iter().map(|call| {
            let mut reads = [const { Location::Nothing }; READS];
            reads.iter_mut().zip(&call.reads).for_each(|(slot, id)| *slot = location(id));
            PlacedCall { reads, writes: location(&call.writes), step: call.step, node: call.node }
        });
        let calls = placed.collect();
        if arena.end().checked_add(workspace.unwrap_or(0))? > MAX {
            return None;
        }
        let needs = [arena.end(), workspace.unwrap_or(0)];
        Some(Plan { calls, constants, outputs, needs, tier })
    }

    /// Shapes of the outputs.
    pub(super) fn outputs(&self) -> &[Vec<usize>] {
        &self.outputs
    }

    /// Number of step calls.
    #[cfg(test)]
    pub(super) fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Runs all calls in memory that [fits](Memory::fit), unless the run is
    /// [cancelled](Parallel::is_cancelled). If `laps` is given, records the end time of each call.
    ///
    /// # Errors
    /// If an argument or the memory is shorter than planned.
    pub(super) fn run(
        &self,
        memory: &mut Memory,
        inputs: &[&[f32]],
        outputs: &mut [&mut [f32]],
        parallel: &dyn Parallel,
        mut laps: Option<&mut Vec<Lap>>,
    ) -> Result<(), ShapeMismatch> {
        let constants = &self.constants;
        let context = Context { tier: self.tier, parallel };
        for call in &self.calls {
            if is_cancelled(parallel) {
                break;
            }
            let shared = memory.shared.as_mut_slice();
            let (out, others) = match &call.writes {
                Location::Shared(range) => {
                    let (before, rest) =
                        shared.split_at_mut_checked(range.start).ok_or(ShapeMismatch)?;
                    let (out, after) =
                        rest.split_at_mut_checked(range.len()).ok_or(ShapeMismatch)?;
                    let (before, after) = (&*before, &*after);
                    (out, Others { before, after, after_at: range.end, outputs: [outputs, &[]] })
                }
                Location::Output(index) => {
                    let (before, rest) =
                        outputs.split_at_mut_checked(*index).ok_or(ShapeMismatch)?;
                    let (out, after) = rest.split_first_mut().ok_or(ShapeMismatch)?;
                    let outputs = [&*before, &*after];
                    (
                        &mut **out,
                        Others { before: shared, after: &[], after_at: usize::MAX, outputs },
                    )
                }
                _ => return Err(ShapeMismatch),
            };
            let mut read = [[].as_slice(); READS];
            for (slot, location) in read.iter_mut().zip(&call.reads) {
                *slot = match location {
                    location if *location == call.writes => &[],
                    Location::Nothing => &[],
                    Location::Input(index) => inputs.get(*index).ok_or(ShapeMismatch)?,
                    Location::Output(index) => others.output(*index).ok_or(ShapeMismatch)?,
                    Location::Constant(index) => {
                        constants.get(*index).ok_or(ShapeMismatch)?.as_slice()
                    }
                    Location::Shared(range) => others.shared(range).ok_or(ShapeMismatch)?,
                };
            }
            let workspace = memory.workspace.as_mut_slice();
            call.step.run(Io { inputs: read, out, workspace, context })?;
            if let Some(laps) = &mut laps {
                laps.push((call.node, Instant::now()));
            }
        }
        Ok(())
    }
}

/// Memory that a step can read while it writes its output.
struct Others<'a, 'o> {
    before: &'a [f32],
    after: &'a [f32],
    /// Offset in the buffer at which `after` begins.
    after_at: usize,
    /// The region's outputs before and after the one being written; if no output is written, the
    /// first slice has all of them.
    outputs: [&'a [&'o mut [f32]]; 2],
}

impl<'a> Others<'a, '_> {
    fn shared(&self, range: &Range<usize>) -> Option<&'a [f32]> {
        match range.start.checked_sub(self.after_at) {
            Some(start) => self.after.get(start..range.end.checked_sub(self.after_at)?),
            None => self.before.get(range.clone()),
        }
    }

    fn output(&self, index: usize) -> Option<&'a [f32]> {
        let [before, after] = self.outputs;
        let found = match index.checked_sub(before.len()) {
            None => before.get(index),
            // Skips the output being written.
            Some(behind) => after.get(behind.checked_sub(1)?),
        };
        found.map(|slice| &**slice)
    }
}
