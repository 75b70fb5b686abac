//! Program metadata as JSON.

use serde_json::{Value, json};
use torchlet::core::{ProgramError, Scalar, ShapeDynamism, ValueMeta};
use torchlet::{Error, Module, Origin};

/// Describes the methods, and whether the program was compiled.
pub(crate) fn program(module: &Module) -> Result<Value, Error> {
    let mut methods = Vec::new();
    for name in module.method_names()? {
        let meta = module.method_meta(&name)?;
        let inputs: Vec<Value> =
            (0..meta.input_count()).map(|index| value(meta.input(index))).collect();
        let outputs: Vec<Value> =
            (0..meta.output_count()).map(|index| value(meta.output(index))).collect();
        let backends: Vec<&str> =
            (0..meta.delegate_count()).filter_map(|index| meta.delegate_backend(index)).collect();
        methods.push(json!({
            "name": name, "inputs": inputs, "outputs": outputs, "backends": backends, "cases": cases(module, &name)?,
        }));
    }
    let compiled = match module.origin() {
        Origin::Compiled | Origin::Cached => json!({ "compiled": true }),
        Origin::NotCompiled(why) => json!({ "compiled": false, "why": why.to_string() }),
        _ => json!({ "compiled": false }),
    };
    Ok(json!({ "fileBytes": module.file_size(), "methods": methods, "origin": compiled }))
}

/// Number of test cases of a method.
fn cases(module: &Module, method: &str) -> Result<usize, Error> {
    let malformed = |source: ProgramError| Error::Format { path: None, source };
    let Some(bundled) = module.bundled() else { return Ok(0) };
    for suite in bundled.suites().map_err(malformed)? {
        let suite = suite.map_err(malformed)?;
        if suite.method_name().map_err(malformed)? == method {
            return Ok(suite.cases().map_err(malformed)?.count());
        }
    }
    Ok(0)
}

fn value(meta: Result<Option<ValueMeta<'_>>, ProgramError>) -> Value {
    match meta {
        Ok(Some(ValueMeta::Tensor(tensor))) => {
            let shape: Vec<usize> =
                (0..tensor.info.rank()).map(|dim| tensor.info.size(dim)).collect();
            let dynamic = tensor.dynamism != ShapeDynamism::Static;
            json!({
                "kind": "tensor", "dtype": tensor.info.scalar_type.name(), "shape": shape,
                "dynamic": dynamic, "name": tensor.name
            })
        }
        Ok(Some(ValueMeta::Scalar(Scalar::Int(value)))) => {
            // A JavaScript number is exact up to 53 bits only.
            json!({ "kind": "int", "value": value.to_string() })
        }
        Ok(Some(ValueMeta::Scalar(Scalar::Double(value)))) => {
            json!({ "kind": "float", "value": value })
        }
        Ok(Some(ValueMeta::Scalar(Scalar::Bool(value)))) => {
            json!({ "kind": "bool", "value": value })
        }
        Ok(Some(ValueMeta::String(text))) => json!({ "kind": "string", "value": text }),
        Ok(Some(ValueMeta::List(len))) => json!({ "kind": "list", "length": len }),
        Ok(_) => json!({ "kind": "none" }),
        Err(error) => json!({ "kind": "malformed", "why": error.to_string() }),
    }
}
