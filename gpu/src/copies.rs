//! Copies between tensors and staging memory.

use crate::commands::{Binding, Command};
use crate::device::{Limits, PipelineKey};
use crate::error::Error;
use crate::tensors::{padded_bytes, u32_of};
use std::borrow::Cow;
use torchlet_shaders::{Element, Gather, GatherPush, MAX_DIMS, Pipeline, PushConstants};

/// Builds a copy between a tensor and its staging memory; converts if the types differ.
pub(crate) fn copy(
    limits: &Limits,
    (from, from_element): (Binding, Element),
    (to, to_element): (Binding, Element),
    numel: usize,
) -> Result<Command<'static>, Error> {
    let (from, to) = (Binding { written: false, ..from }, Binding { written: true, ..to });
    if from_element == to_element {
        let size = padded_bytes(from_element, numel).min(from.size).min(to.size);
        return Ok(Command::Copy { from: Binding { size, ..from }, to: Binding { size, ..to } });
    }
    let key = conversion(from_element, to_element);
    let push = GatherPush {
        numel: u32_of(numel)?,
        base: 0,
        rank: 0,
        sizes: [1; MAX_DIMS],
        strides: [0; MAX_DIMS],
    };
    let groups = [u32_of(numel.div_ceil(4).div_ceil(64))?.max(1), 1, 1];
    // A size that cannot be folded is rejected when it is recorded.
    let groups = limits.folded(groups, 0).unwrap_or(groups);
    Ok(Command::Dispatch {
        key: Cow::Owned(key),
        bindings: vec![from, to],
        push: Cow::Owned(push.bytes()),
        groups,
    })
}

/// The pipeline that converts elements of one type to another.
pub(crate) fn conversion(from: Element, to: Element) -> PipelineKey {
    let pipeline = Gather { input: from, output: to, contiguous: true, by_four: false };
    let constants = pipeline.constants();
    PipelineKey { module: Gather::MODULE, constants, workgroup: [64, 1, 1] }
}
