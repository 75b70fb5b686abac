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

    /// Checks whether the processor supports a call of a graph as it is. Implementations ask the
    /// dispatch table of the backend, so that the answer matches what the backend does.
    ///
    /// # Errors
    /// The processor does not support the call; the message states the reason for users.
    fn accepts(&self, graph: &Graph<'_>, node: &Node) -> Result<(), String>;

    /// Calls [`accepts`](Self::accepts) for each call of a graph, in order. Implementations can
    /// analyse the graph once for all calls.
    fn accepts_each(&self, graph: &Graph<'_>) -> Vec<Result<(), String>> {
        graph.nodes.iter().map(|node| self.accepts(graph, node)).collect()
    }

    /// Checks whether running a region on this processor pays off, apart from kernel times.
    ///
    /// # Errors
    /// The region does not pay off; the message states the reason for users.
    fn is_worthwhile(&self, _graph: &Graph<'_>, _region: &Region) -> Result<(), String> {
        Ok(())
    }

    /// Returns the measured rates of the processor, if known.
    fn rates(&self) -> Option<Rates> {
        None
    }

    /// Whether the processor works in host memory, like the kernels. If so, the compiler treats
    /// transfers and views as free. It also compiles a method for kernels if the processor supports
    /// none of the method's calls.
    fn shares_memory(&self) -> bool {
        false
    }

    /// Fuses the calls of a region, as the backend does when it loads the region. Compiled programs
    /// contain the calls before fusion; the report shows the fused calls.
    fn fuse(&self, _region: &mut Graph<'_>) {}
}

/// Fused forms: the combinations of calls that a processor can run as one call. Passes fuse the
/// calls, and backends run the same passes when they load a region. Implementations ask the
/// dispatch table of the backend.
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

    /// Whether an operator that may change the order of elements is free. If so, an activation of
    /// the operator's output can be fused into the call before the operator.
    fn is_view(&self, _operator: Operator) -> bool {
        false
    }

    /// Whether a contraction can move to after the call that computes the tensor that its epilogue
    /// adds. If not, an epilogue can add only tensors that are computed before the contraction.
    fn moves_contractions(&self) -> bool {
        true
    }
}

/// Packs the weights of regions for the current machine at compile time. The packer owns the packed
/// data; compiled programs borrow it.
pub trait Packer {
    /// Returns the name of the backend whose regions this packer supports.
    fn backend(&self) -> &'static str;

    /// Returns the region with packed weights. A call of [`torchlet.packed`](Operator::PACKED)
    /// replaces each packed constant. Constants that cannot be packed remain unchanged.
    fn pack<'p>(&'p self, region: Graph<'p>) -> Graph<'p>;
}
