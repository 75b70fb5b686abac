//! The compiler's partitioning target for a GPU.

use crate::passes;
use crate::support::Support;
use torchlet_core::Rates;
use torchlet_graph::Target;
use torchlet_graph::graph::{Graph, Node};

/// A GPU as a target of the compiler.
#[derive(Debug, Clone)]
pub struct GpuTarget {
    backend: &'static str,
    support: Support,
    rates: Option<Rates>,
}

impl GpuTarget {
    /// Creates the target for a device with this support. `backend` runs the compiled regions.
    pub fn new(backend: &'static str, support: Support, rates: Option<Rates>) -> Self {
        GpuTarget { backend, support, rates }
    }

    /// Sets the performance estimates of the device.
    #[must_use]
    pub fn with_rates(self, rates: Option<Rates>) -> Self {
        GpuTarget { rates, ..self }
    }

    /// Checks whether the device can run a whole graph as one delegate.
    ///
    /// # Errors
    /// The reason why the device cannot run the graph, as text for the user.
    pub fn runs(&self, graph: &Graph<'_>) -> Result<(), String> {
        self.support.runs(graph)
    }
}

impl Target for GpuTarget {
    fn backend(&self) -> &'static str {
        self.backend
    }

    fn accepts(&self, graph: &Graph<'_>, node: &Node) -> Result<(), String> {
        self.support.accepts(graph, node)
    }

    fn accepts_each(&self, graph: &Graph<'_>) -> Vec<Result<(), String>> {
        self.support.accepts_each(graph)
    }

    fn rates(&self) -> Option<Rates> {
        self.rates
    }

    fn fuse(&self, region: &mut Graph<'_>) {
        passes::run(region);
    }
}
