//! Processors that a program is compiled for.

use crate::target::Target;
use torchlet_core::Rates;

/// Processors that a program is compiled for, in order of preference. Kernels run the calls that no
/// processor supports.
#[derive(Clone, Copy)]
pub struct Processors<'t> {
    pub(crate) targets: &'t [&'t dyn Target],
    kernels: Option<Rates>,
    by_cost: bool,
}

impl<'t> Processors<'t> {
    /// No processors: kernels run all calls.
    pub const NONE: Self = Processors { targets: &[], kernels: None, by_cost: false };

    /// Assigns each call to the first of these processors that supports it.
    pub fn preferring(targets: &'t [&'t dyn Target]) -> Self {
        Processors { targets, ..Self::NONE }
    }

    /// Assigns calls so that the estimated total time is minimal. The estimates need the rates of
    /// all processors and of the kernels. If any rate is missing, calls are assigned as by
    /// [`preferring`](Self::preferring).
    pub fn cheapest(targets: &'t [&'t dyn Target]) -> Self {
        Processors { targets, by_cost: true, ..Self::NONE }
    }

    /// Sets the rates of the kernels, so that the report contains time estimates for kernels too.
    #[must_use]
    pub fn with_kernels(self, rates: Rates) -> Self {
        Processors { kernels: Some(rates), ..self }
    }

    /// Whether all processors work in host memory.
    pub(crate) fn share_memory(&self) -> bool {
        self.targets.iter().all(|target| target.shares_memory())
    }

    /// Whether estimated times decide between devices with their own memory and other processors.
    pub(crate) fn are_compared(&self) -> bool {
        let all_known = self.targets.iter().all(|target| target.rates().is_some());
        self.by_cost && all_known && self.kernels.is_some() && !self.share_memory()
    }

    /// Returns the rates of a processor, or of the kernels for `None`.
    pub(crate) fn rates(&self, processor: Option<usize>) -> Option<Rates> {
        match processor {
            Some(place) => self.targets.get(place)?.rates(),
            None => self.kernels,
        }
    }

    /// Returns the backend of a processor, or `kernels` for `None`.
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
