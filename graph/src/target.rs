//! Interface between the compiler and a processor.

use crate::graph::{Graph, Node};
use crate::operators::Operator;
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

    /// Fuses the calls of a region, as the backend does when it loads the region. Compiled programs
    /// have the calls before fusion; the report shows the fused ones.
    fn fuse(&self, _region: &mut Graph<'_>) {}
}

/// Fused forms that a processor supports. Passes make the fused calls, and backends run the same
/// passes when they load a region. Implementations ask the dispatch table of the backend.
pub trait FusedForms {
    /// Whether a matrix multiplication or convolution supports an epilogue: the addition of a
    /// tensor, then an activation. See [`epilogue`](crate::passes::epilogue).
    fn has_epilogue(&self, _graph: &Graph<'_>, _contraction: &Node) -> bool {
        false
    }

    /// Whether epilogues support a call as their activation.
    fn is_activation(&self, _graph: &Graph<'_>, _node: &Node) -> bool {
        false
    }

    /// Whether an operator that may change the order of elements is free, so that an activation of
    /// its result can be fused into the call before it.
    fn is_view(&self, _operator: Operator) -> bool {
        false
    }

    /// Whether a contraction moves behind the call that computes the tensor it adds. If not, it
    /// adds only tensors that are computed before it.
    fn moves_contractions(&self) -> bool {
        true
    }
}

/// Packs the weights of regions for the current machine at compile time. The packer owns the packed
/// data; compiled programs borrow it.
pub trait Packer {
    /// Returns the name of the backend whose regions it packs.
    fn backend(&self) -> &'static str;

    /// Returns the region with packed weights. A call of
    /// [`torchlet.packed`](Operator::PACKED) replaces each packed constant.
    /// Constants that cannot be packed remain unchanged.
    fn pack<'p>(&'p self, region: Graph<'p>) -> Graph<'p>;
}
