//! Inferred shapes and dtypes are those that PyTorch exported.

mod fixtures;

use std::collections::BTreeSet;
use std::path::Path;
use torchlet_core::{BundledProgram, Program, Registry};
use torchlet_graph::front::{FrontEnd, Vocabulary};
use torchlet_graph::graph::{Graph, Node};
use torchlet_graph::infer::{infer, is_inferred};
use torchlet_graph::method;

/// Compares the results of a call, if all shapes are static. Returns whether it could.
fn compare(graph: &Graph<'_>, node: &Node, path: &Path) -> Result<bool, String> {
    let (out, inputs) = node.args.split_last().unwrap();
    let tensors = inputs.iter().chain([out]).flat_map(|id| graph.items(id));
    let is_dynamic = tensors.filter_map(|id| graph.tensor(*id)).any(|it| it.dynamic);
    if is_dynamic || !is_inferred(node.operator) {
        return Ok(false);
    }
    let fail = |what: &dyn std::fmt::Debug| {
        format!("{}: {}: {what:?}", path.file_name().unwrap().display(), node.operator.name())
    };
    let made = infer(graph, node.operator, inputs).map_err(|error| fail(&error))?;
    let outs: Vec<_> = graph.items(out).iter().filter_map(|id| graph.tensor(*id)).collect();
    if outs.len() != made.len() {
        return Err(fail(&(made.len(), outs.len())));
    }
    // The instruction lacks the dtype of operators that create tensors.
    let has_type = node.operator.omitted_arguments().is_empty();
    for (made, out) in made.iter().zip(outs) {
        if made.shape() != out.sizes || (has_type && made.scalar_type != out.scalar_type) {
            return Err(fail(&(made, out.scalar_type, &out.sizes)));
        }
    }
    Ok(true)
}

#[test]
fn results_are_those_that_pytorch_exported() {
    let registry = Registry::new().with_kernels(&torchlet_portable::KERNELS).unwrap();
    let vocabulary = Vocabulary::of(&registry);
    let (mut compared, mut failures) = (BTreeSet::new(), Vec::new());
    for path in fixtures::files("fixtures/ops", &["bpte"]) {
        let file = std::fs::read(&path).unwrap();
        let bundle = BundledProgram::from_bytes(&file).unwrap();
        let program = Program::from_bytes(bundle.program().unwrap()).unwrap();
        let program = method::Program::read(&program).unwrap();
        for method in &program.methods {
            for run in FrontEnd::new(method, &[], &[], &vocabulary).runs().unwrap() {
                for node in &run.graph.nodes {
                    match compare(&run.graph, node, &path) {
                        Ok(true) => drop(compared.insert(node.operator)),
                        Ok(false) => {}
                        Err(failure) => failures.push(failure),
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert!(compared.len() > 150, "{} operators", compared.len());
}
