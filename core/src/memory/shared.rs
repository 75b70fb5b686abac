//! Planned memory that several methods use in turn.

use super::region::Region;
use crate::error::{InitError, MemoryKind};
use crate::memory::check_lent;
use crate::memory::slot::{Data, OWN_BUFFER};
use crate::meta::MethodMeta;
use crate::method::tables::Tables;
use crate::value::Value;
use crate::values::flag;

/// The most planned buffers that can be shared.
const MAX_SHARED: usize = 8;

/// Planned and scratch memory that several methods use in turn:
/// [`Prepared::finish_shared`](crate::Prepared::finish_shared) loads a method into it,
/// [`SharedMethod::attach`](crate::SharedMethod::attach) gives it to one of them for a while.
///
/// Two ends are served. *Methods of one program* that keep state together (ExecuTorch:
/// `share_mutable_buffers`) find in it what the others wrote. *Methods of several programs* share
/// the memory of activations, of which each run needs none after it ended; of these, none may keep
/// state in it, and outputs are read before another runs.
///
/// What is state is told by names, initial data and what kernels read before it was written. Only a
/// delegate knows which of its arguments it reads: a tensor that a delegate alone reads, without
/// name and initial data, is not known to be state.
///
/// Methods that keep state together are loaded before the first of them runs, as loading gives
/// state its initial values.
pub struct SharedMemory<'m> {
    planned: heapless::Vec<Region<'m>, MAX_SHARED>,
    scratch: Region<'m>,
    members: Members,
    /// State is what runs or the caller made it.
    started: bool,
    /// The method whose inputs and activations are in it: where its values are.
    holder: usize,
}

/// Whose methods were admitted.
#[derive(Clone, Copy, Default)]
pub(crate) struct Members {
    /// Address and length of the only program that is admitted, since one of its methods keeps
    /// state here.
    keeper: Option<(usize, usize)>,
    /// That of the first program that was admitted.
    first: Option<(usize, usize)>,
    /// Whether methods of several programs were admitted.
    mixed: bool,
    /// How many; `usize::MAX` stands for one that keeps state among its activations, so that there
    /// can be no other.
    methods: usize,
}

fn refuse(what: &'static str) -> InitError {
    InitError::Shared { what }
}

impl<'m> SharedMemory<'m> {
    /// Memory for methods each of whose planned buffers and scratch memory are at most as large as
    /// these, which start at multiples of [`ARENA_ALIGN`](crate::ARENA_ALIGN) bytes. It is zeroed.
    ///
    /// # Errors
    /// A memory is misaligned, or there are more than eight buffers.
    pub fn new(planned: &mut [&'m mut [u8]], scratch: &'m mut [u8]) -> Result<Self, InitError> {
        let found = planned.len();
        let mut regions = heapless::Vec::new();
        for (index, buffer) in planned.iter_mut().enumerate() {
            let bytes = core::mem::take(buffer);
            check_lent(bytes, 0, MemoryKind::Planned(index))?;
            bytes.fill(0);
            let many = InitError::PlannedBuffers { expected: MAX_SHARED, found };
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

    /// Checks that a method can be one of those that share this memory, and gives it the scratch
    /// memory.
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
                "it keeps state among its activations; export it with share_mutable_buffers=True, or give it memory of its own",
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
        // State among activations lasts as long as nobody else uses the memory: so nobody else may.
        if state == Some(0) {
            members.methods = usize::MAX;
        } else if members.methods == usize::MAX {
            return Err(refuse("a method keeps state among its activations in it"));
        } else {
            members.methods += 1;
        }
        Ok(self.scratch)
    }

    /// Who is admitted, to be [restored](Self::restore) if a method cannot be loaded after all.
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

    /// Whether a method was loaded into this memory: the same buffers, and so no others.
    pub(crate) fn lends(&self, planned: &[Region<'m>], scratch: Region<'m>) -> bool {
        let same = |region: &Region<'_>, own: &Region<'_>| {
            region.len() == 0 || region.addr() == own.addr() && region.len() <= own.len()
        };
        same(&scratch, &self.scratch)
            && planned.len() <= self.planned.len()
            && planned.iter().zip(&self.planned).all(|(region, own)| same(region, own))
    }

    /// Whether several methods use it.
    pub(crate) fn is_shared(&self) -> bool {
        (2..usize::MAX).contains(&self.members.methods)
    }

    /// From now on, what is in the memory is this method's. Tells whether it was another's.
    pub(crate) fn hold(&mut self, method: usize) -> bool {
        core::mem::replace(&mut self.holder, method) != method
    }

    /// Whether what is in the memory is this method's.
    pub(crate) fn is_held_by(&self, method: usize) -> bool {
        self.holder == method
    }

    /// From now on, state is what runs or the caller made it.
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

/// The first planned buffer that a method keeps state in. State in the method arena is not shared.
fn state_of(tables: &Tables<'_>) -> Option<u16> {
    let values = tables.values.iter();
    values
        .filter(|(_, flags)| flags & flag::STATE != 0)
        .filter_map(|(value, _)| match value {
            Value::Tensor(slot) => match tables.values.tensor(slot)?.data() {
                Data::Planned { buffer, .. } => Some(buffer).filter(|it| *it != OWN_BUFFER),
                _ => None,
            },
            _ => None,
        })
        .min()
}
