//! The processors that a program is compiled for.

use crate::target::Target;
use torchlet_core::Rates;

/// The processors that a program is compiled for, in order of preference. Kernels run what none of
/// them takes.
#[derive(Clone, Copy)]
pub struct Processors<'t> {
    pub(crate) targets: &'t [&'t dyn Target],
    kernels: Option<Rates>,
    by_cost: bool,
}

impl<'t> Processors<'t> {
    /// None but the kernels.
    pub const KERNELS: Self = Processors { targets: &[], kernels: None, by_cost: false };

    /// Each call runs on the first of these that takes it.
    pub fn preferring(targets: &'t [&'t dyn Target]) -> Self {
        Processors { targets, ..Self::KERNELS }
    }

    /// Each call runs where the whole takes the least time, as far as it can be told: by the rates
    /// of all of these, and of kernels. Without these, as [`preferring`](Self::preferring).
    pub fn cheapest(targets: &'t [&'t dyn Target]) -> Self {
        Processors { targets, by_cost: true, ..Self::KERNELS }
    }

    /// How fast kernels are: then the report has estimates for them.
    #[must_use]
    pub fn with_kernels(self, rates: Rates) -> Self {
        Processors { kernels: Some(rates), ..self }
    }

    /// Whether all work in the memory of kernels.
    pub(crate) fn share_memory(&self) -> bool {
        self.targets.iter().all(|target| target.shares_memory())
    }

    /// Whether cost decides, between processors that have memory of their own and others.
    pub(crate) fn are_compared(&self) -> bool {
        let all_known = self.targets.iter().all(|target| target.rates().is_some());
        self.by_cost && all_known && self.kernels.is_some() && !self.share_memory()
    }

    /// The rates of a processor, or of kernels.
    pub(crate) fn rates(&self, processor: Option<usize>) -> Option<Rates> {
        match processor {
            Some(place) => self.targets.get(place)?.rates(),
            None => self.kernels,
        }
    }

    /// What a processor, or the kernels, are called.
    pub(crate) fn name(&self, processor: Option<usize>) -> &'static str {
        let target = processor.and_then(|place| self.targets.get(place));
        target.map_or("kernels", |target| target.backend())
    }
}

impl core::fmt::Debug for Processors<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.targets.iter().map(|target| target.backend())).finish()
    }
}
