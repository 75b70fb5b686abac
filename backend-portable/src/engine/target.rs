//! Capabilities of the engine, for the compiler. A query lowers calls to steps without their
//! constant data.

use super::BACKEND_NAME;
use super::builder::Builder;
use super::ops::EngineForms;
use super::rates;
use crate::compute::gemm::Context;
use crate::compute::simd::Tier;
use std::borrow::ToOwned;
use std::string::String;
use std::vec::Vec;
use torchlet_core::{Rates, Serial};
use torchlet_graph::graph::{Graph, Node};
use torchlet_graph::passes::epilogue;
use torchlet_graph::{Region, Target};

/// The CPU engine as a target of the compiler.
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuTarget {
    takes_all: bool,
    threads: Option<usize>,
}

impl CpuTarget {
    /// Accepts regions that benefit from the engine: those with matrix multiplications or
    /// convolutions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Accepts every region that the engine can run, even if kernels are equally fast. For tests.
    #[doc(hidden)]
    pub fn greedy() -> Self {
        CpuTarget { takes_all: true, threads: None }
    }

    /// Sets the number of threads for the cost model.
    #[must_use]
    pub fn with_threads(self, threads: usize) -> Self {
        CpuTarget { threads: Some(threads), ..self }
    }

    fn machine() -> Context<'static> {
        Context { tier: Tier::detect(), parallel: &Serial }
    }
}

impl Target for CpuTarget {
    fn backend(&self) -> &'static str {
        BACKEND_NAME
    }

    fn accepts(&self, graph: &Graph<'_>, node: &Node) -> Result<(), String> {
        let nodes = core::slice::from_ref(node);
        let answer = Builder::ask(graph, nodes, Self::machine()).pop();
        answer.unwrap_or_else(|| Err("internal error: a region without calls".to_owned()))
    }

    fn accepts_each(&self, graph: &Graph<'_>) -> Vec<Result<(), String>> {
        Builder::ask(graph, &graph.nodes, Self::machine())
    }

    fn is_worthwhile(&self, graph: &Graph<'_>, region: &Region) -> Result<(), String> {
        let mut nodes = region.nodes.iter().filter_map(|index| graph.nodes.get(*index));
        if self.takes_all || nodes.any(|node| node.operator.traits().is_contraction()) {
            return Ok(());
        }
        Err("a region without GEMMs and convolutions, which kernels run equally fast".to_owned())
    }

    fn shares_memory(&self) -> bool {
        true
    }

    fn fuse(&self, region: &mut Graph<'_>) {
        epilogue::run(region, &EngineForms);
    }

    fn rates(&self) -> Option<Rates> {
        self.threads.map(rates::engine)
    }
}
