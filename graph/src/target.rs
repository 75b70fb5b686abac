//! What a processor can do.

use crate::graph::{Graph, Node};
use crate::partition::Region;
use alloc::string::String;
use alloc::vec::Vec;
use torchlet_core::Rates;

/// A processor that graphs can be compiled for, through a backend.
pub trait Target {
    /// The name of the backend that delegates of this processor are made for, such as
    /// `VulkanBackend`.
    fn backend(&self) -> &'static str;

    /// Whether it runs a call of a graph as it is. This asks the table that dispatches, so that it
    /// cannot say otherwise than what happens.
    ///
    /// # Errors
    /// Why not, in words for the user.
    fn accepts(&self, graph: &Graph<'_>, node: &Node) -> Result<(), String>;

    /// The same for every call of a graph, in order. What is known of the graph as a whole is found
    /// once.
    fn accepts_each(&self, graph: &Graph<'_>) -> Vec<Result<(), String>> {
        graph.nodes.iter().map(|node| self.accepts(graph, node)).collect()
    }

    /// Whether a region gains from running there, beside what the kernels do.
    ///
    /// # Errors
    /// Why not, in words for the user.
    fn is_worth(&self, _graph: &Graph<'_>, _region: &Region) -> Result<(), String> {
        Ok(())
    }

    /// How fast it is, where that is known.
    fn rates(&self) -> Option<Rates> {
        None
    }

    /// Whether it works in the memory that kernels work in. Then nothing is lost by going back and
    /// forth, views cost nothing, and a method is compiled even if the processor takes nothing of
    /// it.
    fn shares_memory(&self) -> bool {
        false
    }
}

/// Packs the weights of regions for the machine that they run on, while a program is compiled. What
/// it makes lies with the packer, so that programs borrow it.
pub trait Packer {
    /// The backend whose regions they are.
    fn backend(&self) -> &'static str;

    /// The region with weights packed: in place of a constant that calls take packed stands the
    /// result of a call of [`torchlet.packed`](crate::operators::Operator::PACKED). What cannot be
    /// packed stays as it is.
    fn pack<'p>(&'p self, region: Graph<'p>) -> Graph<'p>;
}
