//! Interface between the compiler and a processor.

use crate::graph::{Graph, Node};
use crate::partition::Region;
use alloc::string::String;
use alloc::vec::Vec;
use torchlet_core::Rates;

/// Processor that graphs can be compiled for, through an ExecuTorch backend.
pub trait Target {
    /// Returns the name of the backend that runs the compiled delegates, such as `VulkanBackend`.
    fn backend(&self) -> &'static str;

    /// Checks whether the processor supports a call of a graph without changes. Implementations ask
    /// the dispatch table of the backend, so that the answer matches what the backend does.
    ///
    /// # Errors
    /// The reason for the refusal, worded for users.
    fn accepts(&self, graph: &Graph<'_>, node: &Node) -> Result<(), String>;

    /// Calls [`accepts`](Self::accepts) for each call of a graph, in order. Implementations can
    /// analyse the graph once for all calls.
    fn accepts_each(&self, graph: &Graph<'_>) -> Vec<Result<(), String>> {
        graph.nodes.iter().map(|node| self.accepts(graph, node)).collect()
    }

    /// Checks whether running a region on this processor pays off, apart from kernel times.
    ///
    /// # Errors
    /// The reason why it does not, worded for users.
    fn is_worthwhile(&self, _graph: &Graph<'_>, _region: &Region) -> Result<(), String> {
        Ok(())
    }

    /// Returns the measured speed of the processor, if known.
    fn rates(&self) -> Option<Rates> {
        None
    }

    /// Whether the processor works in host memory, like the kernels. If so, the compiler treats
    /// transfers and views as free, and compiles a method even if the processor supports none of
    /// its calls.
    fn shares_memory(&self) -> bool {
        false
    }
}

/// Packs the weights of regions for the current machine at compile time. The packer owns the packed
/// data; compiled programs borrow it.
pub trait Packer {
    /// Returns the name of the backend whose regions it packs.
    fn backend(&self) -> &'static str;

    /// Returns the region with packed weights. A call of
    /// [`torchlet.packed`](crate::operators::Operator::PACKED) replaces each packed constant.
    /// Constants that cannot be packed remain unchanged.
    fn pack<'p>(&'p self, region: Graph<'p>) -> Graph<'p>;
}
