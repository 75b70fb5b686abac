//! Autotuning on a device: measures kernel variants, and stores the answers.

use crate::device::Context;
use crate::error::Error;
use crate::load::Build;
use crate::matrix_benchmark;
use crate::trial::Trial;
use std::time::Instant;
use torchlet_gpu::tuning::{open_questions, search};
use torchlet_gpu::{Choices, matrix_units};
use torchlet_graph::graph::Graph;

/// Returns the kernel variants to use on a device.
pub(crate) fn choices(context: &Context) -> Choices {
    let known = || {
        let mut known = context.found.all();
        known.remove(&matrix_units::question());
        Choices::known(known)
    };
    context.variant.map_or_else(known, Choices::forced)
}

/// Finds the best variants for the questions of a graph that have no stored answer, within the time
/// that the context allows.
///
/// # Errors
/// The device was lost. Other errors end the search: calls then use their default variants, and
/// loading reports an error if those fail too.
pub(crate) fn tune(build: Build<'_>, graph: &Graph<'_>) -> Result<(), Error> {
    let context = build.context;
    if context.tune.is_zero() || context.clock.is_none() {
        return Ok(());
    }
    match matrix_benchmark::settle_for(build, graph).and_then(|()| measure(build, graph)) {
        Err(error) if error.is_device_loss() => Err(error),
        _ => Ok(()),
    }
}

fn measure(build: Build<'_>, graph: &Graph<'_>) -> Result<(), Error> {
    let context = build.context;
    let began = Instant::now();
    let open = open_questions(graph, &context.planned(), &context.found.all())?;
    if open.is_empty() {
        return Ok(());
    }
    let is_over = || began.elapsed() >= context.tune;
    let compile = |variant| Trial::new(build, graph, variant);
    context.found.keep(search(open, compile, is_over, Error::is_device_loss)?);
    Ok(())
}
