//! What the engine can run, for the compiler: asked by making the steps, without data.

use super::BACKEND_NAME;
use super::builder::Builder;
use super::rates;
use crate::compute::gemm::Context;
use crate::compute::simd::Tier;
use std::borrow::ToOwned;
use std::string::String;
use std::vec::Vec;
use torchlet_core::{Rates, Serial};
use torchlet_graph::graph::{Graph, Node};
use torchlet_graph::{Region, Target};

/// The CPU engine as a target of the compiler.
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuTarget {
    takes_all: bool,
    threads: Option<usize>,
}

impl CpuTarget {
    /// Takes what gains from the engine: regions with products or convolutions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes whatever the engine can run, also where kernels are as fast. For tests.
    #[doc(hidden)]
    pub fn greedy() -> Self {
        CpuTarget { takes_all: true, threads: None }
    }

    /// The same with so many threads, of which its speed is known.
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
        answer.unwrap_or_else(|| Err("there is no call".to_owned()))
    }

    fn accepts_each(&self, graph: &Graph<'_>) -> Vec<Result<(), String>> {
        Builder::ask(graph, &graph.nodes, Self::machine())
    }

    fn is_worth(&self, graph: &Graph<'_>, region: &Region) -> Result<(), String> {
        let mut nodes = region.nodes.iter().filter_map(|index| graph.nodes.get(*index));
        if self.takes_all || nodes.any(|node| node.operator.traits().is_contraction()) {
            return Ok(());
        }
        Err("kernels are as fast, where there are no products or convolutions".to_owned())
    }

    fn shares_memory(&self) -> bool {
        true
    }

    fn rates(&self) -> Option<Rates> {
        self.threads.map(rates::engine)
    }
}
