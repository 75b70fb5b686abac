//! Compiles a graph: rewrites, tunes, plans, loads and records it.

use crate::error::Error;
use crate::load::{Build, Planned};
use crate::matrix_benchmark::{is_open, settle};
use crate::session::Session;
use crate::stopwatch::Stopwatch;
use crate::tuning::{choices, tune};
use std::collections::HashSet;
use torchlet_gpu::matrix_units::Benchmark;
use torchlet_gpu::{StateTensor, rewrite};
use torchlet_graph::graph::Graph;

/// Compiles a graph for a device into a session that can run it.
pub(crate) fn compile(
    build: Build<'_>,
    mut graph: Graph<'_>,
    state_tensors: Vec<StateTensor>,
    watch: &mut Stopwatch,
) -> Result<Session, Error> {
    let context = build.context;
    rewrite(&mut graph, &context.planned())?;
    tune(build, &graph)?;
    watch.lap("measure");
    let planned = Planned::new(build, graph, state_tensors, choices(context), watch)?;
    let benchmark = match is_open(context) {
        true => Benchmark::of(&context.planned(), planned.steps()),
        false => None,
    };
    let Some(benchmark) = benchmark else {
        return planned.load(build, &HashSet::new(), watch)?.record(build, watch);
    };
    let loaded = planned.load(build, &benchmark.pipelines, watch)?;
    let (uses_units, why) = settle(&benchmark, build)?;
    watch.lap_of("compare matrix units", why);
    if uses_units {
        return loaded.record(build, watch);
    }
    // The benchmark found that matrix units are slow, so the graph is compiled again without them.
    // This happens once per device, because the result is stored. The memory is freed first,
    // because two copies may not fit on the device.
    let (graph, state_tensors) = loaded.unload();
    let planned = Planned::new(build, graph, state_tensors, choices(context), watch)?;
    planned.load(build, &HashSet::new(), watch)?.record(build, watch)
}
