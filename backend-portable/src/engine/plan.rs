//! What is left to do when a region runs: calls of steps over memory that has its places.

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
use torchlet_graph::plan::{Lifetime, Room};

/// How many buffers a step reads at most.
pub(super) const READS: usize = 4;
/// Most elements of a tensor, and of all that a region keeps between its calls: 4 GiB.
pub(super) const MOST: usize = 1 << 30;

/// A computation whose shapes, strides, weights and choices are settled.
pub(super) trait Step: Send + Sync {
    /// Elements of workspace that it takes at its best with so many threads.
    fn workspace(&self, _tier: Tier, _threads: usize) -> usize {
        0
    }

    /// Keeps all that it writes within limits from now on, if it can: those that it has are none.
    fn limit(&mut self, _min: f32, _max: f32) -> bool {
        false
    }

    /// Adds to what is there from now on, if it can, before limits.
    fn accumulate(&mut self) -> bool {
        false
    }

    /// Writes its results to other places from now on, if it can: what is copied from theirs.
    fn move_results(&mut self, _copy: &Copy) -> bool {
        false
    }

    /// Computes.
    ///
    /// # Errors
    /// A buffer is shorter than the plan says.
    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch>;
}

/// What a step works on: whole buffers.
pub(super) struct Io<'a> {
    /// What it reads, in its order. A buffer that it also writes is empty here.
    pub(super) inputs: [&'a [f32]; READS],
    /// What it writes.
    pub(super) out: &'a mut [f32],
    /// Memory that holds nothing from call to call.
    pub(super) workspace: &'a mut [f32],
    /// Instruction set and threads.
    pub(super) context: Context<'a>,
}

/// Where the elements of a buffer are.
#[derive(Debug, Clone)]
pub(super) enum Home<'p> {
    /// In an argument of the region.
    Input(usize),
    /// In a result of it.
    Output(usize),
    /// In memory of its own; none where it only matters that it is constant.
    Constant(Option<Constant<'p>>),
    /// In memory that buffers share.
    Shared,
}

/// What elements are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Element {
    /// Numbers of 32 bits, whatever they have outside.
    Float,
    /// Codes of 8 bits.
    Code,
}

impl Element {
    pub(super) fn of(scalar_type: ScalarType) -> Option<Self> {
        match scalar_type {
            ScalarType::Char => Some(Element::Code),
            other => Precision::of(other).map(|_| Element::Float),
        }
    }

    /// Words that so many take: buffers are of words.
    pub(super) fn words(self, count: usize) -> usize {
        match self {
            Element::Float => count,
            Element::Code => count.div_ceil(4),
        }
    }
}

/// A buffer.
#[derive(Debug, Clone)]
pub(super) struct Buffer<'p> {
    pub(super) home: Home<'p>,
    /// Its elements.
    pub(super) len: usize,
    pub(super) element: Element,
}

/// A call of a step.
pub(super) struct Call<'p> {
    pub(super) step: Box<dyn Step + 'p>,
    pub(super) reads: Vec<BufferId>,
    pub(super) writes: BufferId,
    /// The call of the graph that it is part of.
    pub(super) node: usize,
}

impl Call<'_> {
    /// Whether it reads or writes a buffer.
    pub(super) fn touches(&self, buffer: BufferId) -> bool {
        self.writes == buffer || self.reads.contains(&buffer)
    }
}

/// A buffer's place while the region runs.
#[derive(Debug, Clone, PartialEq)]
enum Place {
    Input(usize),
    Output(usize),
    Constant(usize),
    Shared(Range<usize>),
    Nothing,
}

struct Placed<'p> {
    step: Box<dyn Step + 'p>,
    reads: [Place; READS],
    writes: Place,
    node: usize,
}

/// When a step had run, and the call of the graph that it is part of.
pub(super) type Lap = (usize, Instant);

/// A region that is ready to run.
pub(super) struct Plan<'p> {
    calls: Vec<Placed<'p>>,
    constants: Vec<Constant<'p>>,
    /// The shapes of its results.
    outputs: Vec<Vec<usize>>,
    /// Elements of memory, and of workspace.
    needs: [usize; 2],
    tier: Tier,
}

/// What plans compute in, by turns.
#[derive(Debug, Default)]
pub(super) struct Memory {
    shared: Lines,
    workspace: Lines,
}

impl Memory {
    /// Becomes large enough for a plan; `None` if there is not so much.
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
    /// Gives buffers their places. `None` if there is not so much memory.
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
        let mut room = Room::new(LINE);
        let mut places = std::vec![Place::Nothing; buffers.len()];
        for id in largest {
            let Some(life) = lives.get(id).copied().flatten() else { continue };
            let start = room.take(len(id), life)?;
            *places.get_mut(id)? = Place::Shared(start..start.checked_add(len(id))?);
        }
        let mut constants = Vec::new();
        for (place, buffer) in places.iter_mut().zip(buffers) {
            *place = match &buffer.home {
                Home::Input(index) => Place::Input(*index),
                Home::Output(index) => Place::Output(*index),
                Home::Constant(Some(data)) => {
                    constants.push(data.clone());
                    Place::Constant(constants.len() - 1)
                }
                Home::Constant(None) => Place::Nothing,
                Home::Shared => continue,
            };
        }
        let place = |id: &BufferId| places.get(*id).cloned().unwrap_or(Place::Nothing);
        let workspace = calls.iter().map(|call| call.step.workspace(tier, threads)).max();
        let placed = calls.into_iter().map(|call| {
            let mut reads = [const { Place::Nothing }; READS];
            reads.iter_mut().zip(&call.reads).for_each(|(slot, id)| *slot = place(id));
            Placed { reads, writes: place(&call.writes), step: call.step, node: call.node }
        });
        let calls = placed.collect();
        if room.end().checked_add(workspace.unwrap_or(0))? > MOST {
            return None;
        }
        let needs = [room.end(), workspace.unwrap_or(0)];
        Some(Plan { calls, constants, outputs, needs, tier })
    }

    /// The shapes of its results.
    pub(super) fn outputs(&self) -> &[Vec<usize>] {
        &self.outputs
    }

    /// How many calls it makes.
    #[cfg(test)]
    pub(super) fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Runs all calls, in memory that [fits](Memory::fit), until the run is
    /// [cancelled](Parallel::is_cancelled). Takes the time of each where that is asked for.
    ///
    /// # Errors
    /// An argument is shorter than the region was planned for, or memory.
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
                Place::Shared(range) => {
                    let (before, rest) =
                        shared.split_at_mut_checked(range.start).ok_or(ShapeMismatch)?;
                    let (out, after) =
                        rest.split_at_mut_checked(range.len()).ok_or(ShapeMismatch)?;
                    let (before, after) = (&*before, &*after);
                    (out, Others { before, after, after_at: range.end, outputs: [outputs, &[]] })
                }
                Place::Output(index) => {
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
            for (slot, place) in read.iter_mut().zip(&call.reads) {
                *slot = match place {
                    place if *place == call.writes => &[],
                    Place::Nothing => &[],
                    Place::Input(index) => inputs.get(*index).ok_or(ShapeMismatch)?,
                    Place::Output(index) => others.output(*index).ok_or(ShapeMismatch)?,
                    Place::Constant(index) => {
                        constants.get(*index).ok_or(ShapeMismatch)?.as_slice()
                    }
                    Place::Shared(range) => others.shared(range).ok_or(ShapeMismatch)?,
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

/// What there is beside what is written.
struct Others<'a, 'o> {
    before: &'a [f32],
    after: &'a [f32],
    /// Where `after` begins.
    after_at: usize,
    /// The results before the one that is written, and those behind it; all, where it is none of
    /// them.
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
            // The one that is written comes between.
            Some(behind) => after.get(behind.checked_sub(1)?),
        };
        found.map(|slice| &**slice)
    }
}
