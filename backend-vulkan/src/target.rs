//! The compiler's partitioning target for Vulkan.

use crate::{BACKEND_NAME, VulkanBackend};
use torchlet_core::{Backend, Rates};
use torchlet_gpu::{GpuTarget, Support};
use torchlet_graph::Target;
use torchlet_graph::graph::{Graph, Node};
use torchlet_graph::operators::Operator;

/// A Vulkan device as a target of the compiler.
#[derive(Debug, Clone)]
pub struct VulkanTarget(GpuTarget);

impl Default for VulkanTarget {
    fn default() -> Self {
        VulkanTarget(GpuTarget::new(BACKEND_NAME, Support::default(), None))
    }
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
        VulkanTarget(GpuTarget::new(BACKEND_NAME, support, backend.rates()))
    }

    /// Sets the performance estimates of the device.
    #[must_use]
    pub fn with_rates(self, rates: Option<Rates>) -> Self {
        VulkanTarget(self.0.with_rates(rates))
    }

    /// Checks whether the device can run a whole graph as one delegate.
    ///
    /// # Errors
    /// The reason why the device cannot run the graph, as text for the user.
    pub fn runs(&self, graph: &Graph<'_>) -> Result<(), String> {
        self.0.runs(graph)
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
        self.0.backend()
    }

    fn accepts(&self, graph: &Graph<'_>, node: &Node) -> Result<(), String> {
        self.0.accepts(graph, node)
    }

    fn accepts_each(&self, graph: &Graph<'_>) -> Vec<Result<(), String>> {
        self.0.accepts_each(graph)
    }

    fn rates(&self) -> Option<Rates> {
        self.0.rates()
    }

    fn fuse(&self, region: &mut Graph<'_>) {
        self.0.fuse(region);
    }
}
