//! Planned memory that several methods use in turn.

use super::region::Region;
use crate::error::{InitError, MemoryKind};
use crate::memory::check_lent;
use crate::memory::slot::{Data, UNPLANNED_STATE_BUFFER};
use crate::meta::MethodMeta;
use crate::method::tables::Tables;
use crate::value::Value;
use crate::values::flag;

/// Planned and scratch memory that several methods use in turn.
/// [`Prepared::finish_shared`](crate::Prepared::finish_shared) loads a method into it, and
/// [`SharedMethod::attach`](crate::SharedMethod::attach) lends it to one of the methods.
///
/// Two use cases:
///
/// - *Methods of one program with common state* (ExecuTorch: `share_mutable_buffers`) access the
///   state that the others wrote.
/// - *Methods of several programs* share activation memory, whose contents are not needed after a
///   run. None of them may keep state in it, and outputs must be read before another method runs.
///
/// A tensor counts as state if it has a name or initial data, or if a kernel reads it before it was
/// written. Which arguments a delegate reads is unknown: a tensor without name and initial data
/// that only a delegate reads is not detected as state.
///
/// All methods with common state must be loaded before the first one runs, since loading
/// initialises state.
pub struct SharedMemory<'m> {
    planned: heapless::Vec<Region<'m>, { SharedMemory::MAX_BUFFERS }>,
    scratch: Region<'m>,
    members: Members,
    /// Whether state may differ from its initial values, after a run or a write by the caller.
    started: bool,
    /// Identity of the method whose inputs and activations the memory contains: the address of its
    /// values.
    holder: usize,
}

/// Record of the admitted methods.
#[derive(Clone, Copy, Default)]
pub(crate) struct Members {
    /// The only admissible program (address and length), since one of its methods keeps state in
    /// the memory.
    keeper: Option<(usize, usize)>,
    /// The first admitted program.
    first: Option<(usize, usize)>,
    /// Whether methods of several programs were admitted.
    mixed: bool,
    /// Number of methods. `usize::MAX` marks a method that keeps state among its activations, which
    /// excludes other methods.
    methods: usize,
}

fn refuse(what: &'static str) -> InitError {
    InitError::Shared { what }
}

impl<'m> SharedMemory<'m> {
    /// Maximum number of planned buffers.
    pub const MAX_BUFFERS: usize = 8;

    /// Creates shared memory. Each buffer must be at least as large as the corresponding one of
    /// every method, and start at a multiple of [`ARENA_ALIGN`](crate::ARENA_ALIGN) bytes. The
    /// planned buffers are zeroed.
    ///
    /// # Errors
    /// A buffer is misaligned, or there are more than [`MAX_BUFFERS`](Self::MAX_BUFFERS).
    pub fn new(planned: &mut [&'m mut [u8]], scratch: &'m mut [u8]) -> Result<Self, InitError> {
        let found = planned.len();
        let mut regions = heapless::Vec::new();
        for (index, buffer) in planned.iter_mut().enumerate() {
            let bytes = core::mem::take(buffer);
            check_lent(bytes, 0, MemoryKind::Planned(index))?;
            bytes.fill(0);
            let many = InitError::PlannedBuffers { expected: Self::MAX_BUFFERS, found };
            regions.push(Region::writable(bytes)).map_err(|_| many)?;
        }
        check_lent(scratch, 0, MemoryKind::Scratch)?;
        let scratch = Region::writable(scratch);
        Ok(SharedMemory {
            planned: regions,
            scratch,
            members: Members::default(),
            started: false,
            holder: 0,
        })
    }

    /// Checks that a method may share this memory, and returns the scratch memory.
    pub(crate) fn admit(
        &mut self,
        meta: &MethodMeta<'m>,
        tables: &Tables<'m>,
        scratch: usize,
    ) -> Result<Region<'m>, InitError> {
        let program = meta.program().identity();
        let members = &mut self.members;
        let state = state_of(tables);
        if state.is_some() && self.started {
            return Err(refuse("load all methods that keep state in it before the first one runs"));
        }
        if state == Some(0) && members.methods > 0 {
            return Err(refuse(
                "it keeps state among its activations; \
                 export it with share_mutable_buffers=True, or give it memory of its own",
            ));
        }
        if members.keeper.is_some_and(|keeper| keeper != program)
            || state.is_some() && members.mixed
        {
            return Err(refuse("a method of another program keeps state in it"));
        }
        let available = self.scratch.len();
        if available < scratch {
            let memory = MemoryKind::Scratch;
            return Err(InitError::MemoryTooSmall { memory, needed: scratch, available });
        }
        let (expected, found) = (tables.planned.len(), self.planned.len());
        if expected > found {
            return Err(InitError::PlannedBuffers { expected, found });
        }
        if state.is_some() {
            if members.first.is_some_and(|first| first != program) {
                return Err(refuse(
                    "methods of other programs use it, and this one keeps state in it",
                ));
            }
            members.keeper = Some(program);
        }
        members.mixed |= members.first.is_some_and(|first| first != program);
        members.first = members.first.or(Some(program));
        // State among activations survives only if no other method uses the memory.
        if state == Some(0) {
            members.methods = usize::MAX;
        } else if members.methods == usize::MAX {
            return Err(refuse("a method keeps state among its activations in it"));
        } else {
            members.methods += 1;
        }
        Ok(self.scratch)
    }

    /// Snapshot of the admitted methods, to [restore](Self::restore) if loading fails.
    pub(crate) fn members(&self) -> Members {
        self.members
    }

    pub(crate) fn restore(&mut self, members: Members) {
        self.members = members;
    }

    /// The first `size` bytes of buffer `index`.
    pub(crate) fn part(&self, index: usize, size: usize) -> Result<Region<'m>, InitError> {
        let region = self.planned.get(index).copied().unwrap_or(Region::empty());
        let (memory, available) = (MemoryKind::Planned(index), region.len());
        let small = InitError::MemoryTooSmall { memory, needed: size, available };
        region.part(0, size).ok_or(small)
    }

    /// Whether a method was loaded into this memory: its buffers are the same.
    pub(crate) fn is_memory_of(&self, planned: &[Region<'m>], scratch: Region<'m>) -> bool {
        let same = |region: &Region<'_>, own: &Region<'_>| {
            region.len() == 0 || region.addr() == own.addr() && region.len() <= own.len()
        };
        same(&scratch, &self.scratch)
            && planned.len() <= self.planned.len()
            && planned.iter().zip(&self.planned).all(|(region, own)| same(region, own))
    }

    /// Whether several methods use the memory.
    pub(crate) fn is_shared(&self) -> bool {
        (2..usize::MAX).contains(&self.members.methods)
    }

    /// Marks the contents as belonging to a method. Returns whether they belonged to another one.
    pub(crate) fn hold(&mut self, method: usize) -> bool {
        core::mem::replace(&mut self.holder, method) != method
    }

    /// Whether the contents belong to this method.
    pub(crate) fn is_held_by(&self, method: usize) -> bool {
        self.holder == method
    }

    /// Records that state may differ from its initial values.
    pub(crate) fn start(&mut self) {
        self.started = true;
    }
}

impl core::fmt::Debug for SharedMemory<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "SharedMemory({} planned buffers, {} methods)",
            self.planned.len(),
            self.members.methods
        )
    }
}

/// Index of the first planned buffer that a method keeps state in. State in the method arena is not
/// shared.
fn state_of(tables: &Tables<'_>) -> Option<u16> {
    let values = tables.values.iter();
    values
        .filter(|(_, flags)| flags & flag::STATE != 0)
        .filter_map(|(value, _)| match value {
            Value::Tensor(slot) => match tables.values.tensor(slot)?.data() {
                Data::Planned { buffer, .. } => {
                    Some(buffer).filter(|it| *it != UNPLANNED_STATE_BUFFER)
                }
                _ => None,
            },
            _ => None,
        })
        .min()
}
