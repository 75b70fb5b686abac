//! `torchlet bundle`.

use crate::arguments::BundleArguments;
use crate::budget::Budget;
use crate::failure::Failure;
use crate::lower::write;
use crate::terminal::{FAINT, NAME, bytes, count, paint};
use crate::{cases, inputs, model, npy};
use std::io::Write;
use std::path::Path;
use torchlet::core::{Scalar, ValueRef};
use torchlet::graph::{self, Bundle};
use torchlet::{Module, Value};

/// Adds a test case to a program: inputs, and expected outputs from files or from a run.
pub(crate) fn bundle(arguments: &BundleArguments) -> Result<(), Failure> {
    let fail =
        |error: graph::Error| Failure::new(format!("cannot create the bundled program: {error}"));
    let mut module = model::open(&arguments.model, &arguments.model_options)?;
    let name = model::choose_method(&module, arguments.method.as_deref())?;
    let mut budget = model::budget(&mut module, &name, &arguments.model_options)?;
    let given = inputs::gather(&module, &name, &arguments.inputs, &mut budget)?;
    let expected = match arguments.expect.as_slice() {
        [] => module.execute(&name, &given[..])?,
        files => read(files, module.method_meta(&name)?.output_count(), &mut budget)?,
    };
    let mut bundle = Bundle::default();
    if let Some(cases) = module.bundled() {
        bundle.add_all(&cases).map_err(fail)?;
    }
    let [given, expected]: [Vec<ValueRef<'_>>; 2] =
        [&given, &expected].map(|values| values.iter().map(lend).collect());
    bundle.add(&name, &given, &expected).map_err(fail)?;
    let file = bundle.finish(&program(&module, &arguments.model)?).map_err(fail)?;
    write(&arguments.out, |out| out.write_all(&file))?;
    let cases = {
        let again = Module::from_bytes(file.clone())?;
        let suites = cases::suites(&again)?;
        suites.iter().map(|suite| suite.cases.len()).sum()
    };
    let what = format!("{}, {}", count(cases, "test case"), bytes(file.len() as u64));
    anstream::println!("{}  {}", paint(NAME, arguments.out.display()), paint(FAINT, what));
    Ok(())
}

/// Returns the bytes of the unbundled program, unchanged.
fn program(module: &Module, path: &Path) -> Result<Vec<u8>, Failure> {
    if let Some(bundled) = module.bundled() {
        let program = bundled.program().map_err(|error| Failure::new(error.to_string()))?;
        return Ok(program.to_vec());
    }
    std::fs::read(path)
        .map_err(|error| Failure::new(format!("cannot read '{}': {error}", path.display())))
}

/// Reads the expected outputs of a method from files.
fn read(
    files: &[std::path::PathBuf],
    outputs: usize,
    budget: &mut Budget,
) -> Result<Vec<Value>, Failure> {
    let mut values = Vec::new();
    for path in files {
        let is_archive = path.extension().is_some_and(|extension| extension == "npz");
        let tensors = if is_archive {
            npy::read_archive(path, budget)?
        } else {
            vec![npy::read(path, budget)?]
        };
        values.extend(tensors.into_iter().map(Value::from));
    }
    if values.len() != outputs {
        let found = values.len();
        return Err(Failure::new(format!(
            "the method has {outputs} outputs, but --expect has {found} files; pass one per \
             output, in order"
        )));
    }
    Ok(values)
}

fn lend(value: &Value) -> ValueRef<'_> {
    match value {
        Value::Tensor(tensor) => tensor.as_tensor_ref().into(),
        Value::Int(value) => Scalar::Int(*value).into(),
        Value::Float(value) => Scalar::Double(*value).into(),
        Value::Bool(value) => Scalar::Bool(*value).into(),
        Value::String(text) => ValueRef::String(text),
        _ => ValueRef::None,
    }
}
