//! Delegates whose graphs are serialised again, with information from the surrounding program,
//! yield the same results.

use crate::common::{Fixture, check, check_all, folder, open};
use crate::device::device_is_there;
use crate::fixtures::delegated;
use std::sync::atomic::{AtomicUsize, Ordering};
use torchlet::core::{BundledProgram, Program, ShapeDynamism};
use torchlet::{Module, RunOn};
use torchlet_graph::front::vulkan::{self, Argument, Bound};
use torchlet_graph::method::{Instruction, Method};
use torchlet_graph::{Constants, blob, method};

/// Description of an argument of a delegate's call.
fn argument(method: &Method<'_>, value: usize) -> Argument {
    match method.tensor(value) {
        Some(tensor) => Argument::Tensor {
            scalar_type: tensor.info.scalar_type,
            sizes: tensor.info.sizes.iter().map(|size| *size as usize).collect(),
            dynamic: tensor.dynamism != ShapeDynamism::Static,
            order: tensor.info.dim_order.iter().map(|dim| usize::from(*dim)).collect(),
        },
        None => Argument::Number,
    }
}

/// The program with its Vulkan delegates rewritten, and their number.
fn rewritten(bytes: &[u8]) -> Result<(Vec<u8>, usize), String> {
    let program = Program::from_bytes(bytes).map_err(|error| error.to_string())?;
    let mut written = method::Program::read(&program).map_err(|error| error.to_string())?;
    let mut constants = Constants::new("torchlet.");
    let mut count = 0;
    for method in &mut written.methods {
        for index in 0..method.delegates.len() {
            let call = method.instructions.iter().find_map(|instruction| match instruction {
                Instruction::Delegate { delegate, args } if *delegate == index => Some(args),
                _ => None,
            });
            let arguments: Vec<Argument> =
                call.into_iter().flatten().map(|value| argument(method, *value)).collect();
            let delegate = &mut method.delegates[index];
            if delegate.backend != "VulkanBackend" {
                continue;
            }
            // Delegates of borrowed programs are borrowed, too.
            let std::borrow::Cow::Borrowed(processed) = delegate.processed else {
                return Err("a delegate was copied".to_owned());
            };
            let graph = vulkan::read(processed, &|key| program.named_data(key));
            let bound = graph.and_then(|graph| Bound::new(graph, &arguments));
            let graph = bound.map_err(|error| error.to_string())?.graph;
            let processed =
                blob::write(graph, &mut constants).map_err(|error| error.to_string())?;
            delegate.processed = processed.into();
            count += 1;
        }
    }
    written.named.extend(constants.into_named());
    Ok((written.write().map_err(|error| error.to_string())?.to_bytes(), count))
}

#[test]
fn rewritten_delegates_match() {
    if !device_is_there() {
        return;
    }
    let inside = |fixture: &Fixture| fixture.data.is_empty();
    let fixtures: Vec<Fixture> = delegated().into_iter().filter(inside).collect();
    let (delegates, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failures = check_all(&fixtures, |fixture| {
        let source = open(fixture, Module::builder()).map_err(|error| error.to_string())?;
        let file =
            std::fs::read(folder().join(&fixture.file)).map_err(|error| error.to_string())?;
        let bundle = BundledProgram::from_bytes(&file).map_err(|error| error.to_string())?;
        let program = bundle.program().map_err(|error| error.to_string())?;
        let (bytes, count) = match rewritten(program) {
            // A known limitation of the exporter: the call is ambiguous.
            Err(error) if error.contains("in several ways") => {
                refused.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            result => result?,
        };
        delegates.fetch_add(count, Ordering::Relaxed);
        let mut module = Module::builder().threads(1).run_on(RunOn::AsExported).from_bytes(bytes);
        check(module.as_mut().map_err(|error| error.to_string())?, &source, fixture).map(drop)
    });
    assert!(failures.is_empty(), "{} files differ:\n{}", failures.len(), failures.join("\n"));
    assert!(refused.into_inner() < 3);
    assert!(delegates.into_inner() > 400);
}
