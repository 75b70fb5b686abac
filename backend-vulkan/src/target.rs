//! The compiler's partitioning target for Vulkan.

use crate::{BACKEND_NAME, VulkanBackend};
use torchlet_core::{Backend, Rates};
use torchlet_gpu::Support;
use torchlet_graph::Target;
use torchlet_graph::graph::{Graph, Node};
use torchlet_graph::operators::Operator;

/// A Vulkan device as a target of the compiler.
#[derive(Debug, Clone, Default)]
pub struct VulkanTarget {
    support: Support,
    rates: Option<Rates>,
}

impl VulkanTarget {
    /// Returns the target for a device with only the guarantees of Vulkan 1.1.
    pub fn any() -> Self {
        Self::default()
    }

    /// Returns the target for the device that a backend uses; [`any`](Self::any) if the backend
    /// finds no device.
    pub fn of(backend: &VulkanBackend) -> Self {
        let Ok(context) = backend.context(None) else { return Self::any() };
        let support = Support::new(context.features.clone(), context.limits.clone());
        VulkanTarget { support, rates: backend.rates() }
    }

    /// Sets the performance estimates of the device.
    #[must_use]
    pub fn with_rates(self, rates: Option<Rates>) -> Self {
        VulkanTarget { rates, ..self }
    }

    /// Checks whether the device can run a whole graph as one delegate.
    ///
    /// # Errors
    /// The reason why the device cannot run the graph, as text for the user.
    pub fn runs(&self, graph: &Graph<'_>) -> Result<(), String> {
        self.support.runs(graph)
    }
}

/// A Vulkan device as a target for foreign shaders, which do not mix with other calls in a region.
#[derive(Debug, Clone, Default)]
pub struct ShaderTarget {
    rates: Option<Rates>,
}

impl ShaderTarget {
    /// Returns the target, with performance estimates of the device.
    pub fn new(rates: Option<Rates>) -> Self {
        ShaderTarget { rates }
    }
}

impl Target for ShaderTarget {
    fn backend(&self) -> &'static str {
        BACKEND_NAME
    }

    fn accepts(&self, _graph: &Graph<'_>, node: &Node) -> Result<(), String> {
        match node.operator {
            Operator::SHADER => Ok(()),
            _ => Err("a call that is not a foreign shader".to_owned()),
        }
    }

    fn rates(&self) -> Option<Rates> {
        self.rates
    }
}

impl Target for VulkanTarget {
    fn backend(&self) -> &'static str {
        BACKEND_NAME
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
        torchlet_gpu::fuse(region);
    }
}
