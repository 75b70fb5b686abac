//! Prefetches weights into the device's cache before the GEMM that reads them.
//!
//! GEMMs on matrix units are so fast that they wait for weights from memory: in ViT-B/16, whose
//! weights exceed the cache, this was a fifth of the time of the GEMMs. Norms and attention read
//! little and leave memory bandwidth unused. Each of them therefore runs concurrently with a
//! prefetch dispatch, which reads the weights of the following GEMMs. A prefetch has no other
//! effect, and no dispatch depends on it.

use crate::commands::{Binding, BufferId, Command};
use crate::device::PipelineKey;
use crate::error::Error;
use crate::state::{State, Storage};
use crate::steps::Step;
use crate::tensors::{TensorId, u32_of};
use std::borrow::Cow;
use std::collections::HashSet;
use torchlet_shaders::{Feature, Pipeline, Prefetch, PrefetchPush, PushConstants};

/// The minimum bytes of a constant for which its step counts as reading weights itself; the weights
/// of norms are smaller.
const MIN_OWN_WEIGHTS: u64 = 16 << 10;
/// Replaces both minimum sizes if prefetching is explicitly enabled.
const MIN_IF_ENABLED: u64 = 1 << 10;

/// Invocations per workgroup, and the bytes that each reads.
const WORKGROUP: u32 = 128;
const BYTES_EACH: u64 = 8 * 16;

/// The bytes of the output buffer, which nothing reads.
pub const OUTPUT_BYTES: u64 = 16;

/// Returns the weights to prefetch, in step order, each with the index of the step that runs
/// concurrently. If `wanted` is `None`, returns only prefetches that are expected to be faster.
pub(crate) fn plan(state: &State, steps: &[Step], wanted: Option<bool>) -> Vec<(usize, TensorId)> {
    let profile = &state.profile.prefetch;
    let always = wanted == Some(true);
    if wanted == Some(false) || !(always || state.processors() >= profile.processors) {
        return Vec::new();
    }
    let [least_own, least] =
        if always { [MIN_IF_ENABLED; 2] } else { [MIN_OWN_WEIGHTS, profile.least] };
    let weights: Vec<Vec<(TensorId, u64)>> =
        steps.iter().map(|step| weights_of(state, step, least_own)).collect();
    let is_large = |(_, bytes): &&(TensorId, u64)| *bytes >= least;
    let mut seen = HashSet::new();
    let distinct = weights.iter().flatten().filter(is_large).filter(|(id, _)| seen.insert(*id));
    let all = distinct.map(|(_, bytes)| *bytes).fold(0, u64::saturating_add);
    let mut plan = Vec::new();
    if all < profile.total && !always {
        return plan;
    }
    // The last step that reads no weights, and the bytes that are prefetched during it.
    let mut beside: Option<(usize, u64)> = None;
    for (index, (step, own)) in steps.iter().zip(weights).enumerate() {
        if own.is_empty() {
            beside = Some((index, 0));
            continue;
        }
        let made = step.accesses.iter().find(|access| access.written);
        let made = made.and_then(|access| state.tensor(access.tensor).ok());
        let is_short = made.is_some_and(|tensor| tensor.numel() < profile.long_gemm);
        let on_units = step.key.module.features.contains(&Feature::CooperativeMatrix);
        let waits = always || (on_units && is_short);
        for (id, bytes) in own.iter().filter(is_large).copied() {
            let Some((at, read)) = beside.as_mut().filter(|_| waits) else { continue };
            if read.saturating_add(bytes) <= profile.most {
                *read += bytes;
                plan.push((*at, id));
            }
        }
    }
    plan
}

/// Returns the constants that a step reads and that have at least `least` bytes, with their sizes.
fn weights_of(state: &State, step: &Step, least: u64) -> Vec<(TensorId, u64)> {
    let read = step.accesses.iter().filter(|access| !access.written);
    read.filter_map(|access| {
        let root = state.tensor(state.root(access.tensor)).ok()?;
        let bytes = state.tensor(access.tensor).ok()?.bytes();
        let is_large = matches!(root.storage, Storage::Constant(_)) && bytes >= least;
        is_large.then_some((access.tensor, bytes))
    })
    .collect()
}

/// Returns the key of the prefetch pipeline.
pub(crate) fn pipeline() -> PipelineKey {
    let constants = Prefetch {}.constants();
    PipelineKey { module: Prefetch::MODULE, constants, workgroup: [WORKGROUP, 1, 1] }
}

/// Returns the dispatch that prefetches a tensor of this many bytes.
pub(crate) fn command(weights: Binding, bytes: u64) -> Result<Command<'static>, Error> {
    let size = bytes.min(weights.size);
    let weights = Binding { size, ..weights };
    let quads = u32_of(usize::try_from(size / 16).unwrap_or(usize::MAX))?;
    // Declared as not written, so that prefetches do not wait for each other.
    let buffer = BufferId::PrefetchOutput;
    let output = Binding { buffer, offset: 0, size: OUTPUT_BYTES, written: false };
    let groups = size.div_ceil(u64::from(WORKGROUP) * BYTES_EACH);
    let groups = u32_of(usize::try_from(groups).unwrap_or(usize::MAX))?;
    Ok(Command::Dispatch {
        key: Cow::Owned(pipeline()),
        bindings: vec![weights, output],
        push: Cow::Owned(PrefetchPush { quads }.bytes()),
        groups: [groups, 1, 1],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{DeviceFeatures, DeviceKind};
    use crate::encode::encode;
    use crate::ops::testing::tensor;
    use torchlet_core::ScalarType;
    use torchlet_graph::graph::{Graph, Node, Value};
    use torchlet_graph::operators::Operator;

    /// Plans `layers` GEMMs with 8 MB of weights, two after each activation. Returns the steps with
    /// prefetches, and the number of prefetches of each.
    fn planned(
        layers: usize,
        rows: usize,
        wanted: Option<bool>,
        change: impl FnOnce(&mut State),
    ) -> Vec<(usize, usize)> {
        let half = |sizes: &[usize], is_constant| tensor(ScalarType::Half, sizes, is_constant);
        let mut values = vec![half(&[rows, 2048], false), Value::None];
        let mut nodes = Vec::new();
        let mut last = 0;
        for layer in 0..layers {
            let next = values.len();
            if layer % 2 == 0 {
                values.push(half(&[rows, 2048], false));
                nodes.push(Node::new(Operator::ABS, vec![last, next]));
                last = next;
            }
            let weight = values.len();
            values.extend([half(&[2048, 2048], true), half(&[rows, 2048], false)]);
            nodes.push(Node::new(Operator::LINEAR, vec![last, weight, 1, weight + 1]));
            last = weight + 1;
        }
        for value in &mut values {
            if let Value::Tensor(tensor) = value {
                tensor.dynamic = false;
            }
        }
        let graph =
            Graph { values, nodes, inputs: vec![0], outputs: vec![last], ..Graph::default() };
        let mut state = State::new(&graph, HashSet::new()).unwrap();
        state.busy = DeviceKind::Discrete.busy_invocations();
        state.features = DeviceFeatures::multiplying_halves();
        state.limits.shared = 48 << 10;
        change(&mut state);
        let steps = encode(&graph, &mut state, true).unwrap().0;
        let mut counts: Vec<(usize, usize)> = Vec::new();
        for (beside, id) in plan(&state, &steps, wanted) {
            assert!(matches!(state.tensor(state.root(id)).unwrap().storage, Storage::Constant(_)));
            assert!(weights_of(&state, &steps[beside], MIN_OWN_WEIGHTS).is_empty());
            match counts.last_mut() {
                Some((last, count)) if *last == beside => *count += 1,
                _ => counts.push((beside, 1)),
            }
        }
        counts
    }

    #[test]
    fn gemm_weights_are_prefetched_beside_other_steps() {
        assert_eq!(planned(8, 256, None, |_| ()), [(0, 2), (3, 2), (6, 2), (9, 2)]);
    }

    #[test]
    fn weights_that_fit_the_cache_are_not_prefetched() {
        assert_eq!(planned(4, 256, None, |_| ()), []);
    }

    /// GEMMs whose time is that of loading their weights.
    #[test]
    fn memory_bound_gemms_have_no_prefetch() {
        assert_eq!(planned(8, 1, None, |_| ()), []);
    }

    #[test]
    fn long_gemms_have_no_prefetch() {
        assert_eq!(planned(8, 512, None, |_| ()), []);
    }

    #[test]
    fn explicit_prefetch_setting_applies() {
        assert_eq!(planned(8, 256, Some(false), |_| ()), []);
        assert_eq!(planned(2, 1, Some(true), |state| state.busy /= 2), [(0, 2)]);
    }

    #[test]
    fn no_prefetch_on_small_devices_or_without_matrix_units() {
        assert_eq!(planned(8, 256, None, |state| state.busy /= 2), []);
        assert_eq!(planned(8, 256, None, |state| state.features = DeviceFeatures::default()), []);
    }
}
