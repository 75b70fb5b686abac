//! Programs of `torch.export.save` compute PyTorch's outputs on every processor, and damaged ones
//! are refused.

#![cfg(all(feature = "std", feature = "portable", feature = "pt2"))]

#[cfg(feature = "vulkan")]
#[path = "common/vulkan.rs"]
mod device;

use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use torchlet::core::Registry;
use torchlet::portable::KERNELS;
use torchlet::portable::engine::{CpuEngine, CpuTarget};
use torchlet::{Module, ModuleBuilder, RunOn, ScalarType, Tensor, Value};
use torchlet_graph::{Processors, cpu};

/// Maximum error, relative to the largest expected value.
const TOLERANCE: f64 = 1e-5;
/// The same for GPUs, whose elementary functions are less accurate.
#[cfg(feature = "vulkan")]
const ON_GPUS: f64 = 1e-3;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pt2")
}

/// The archives, with the names of their cases.
fn archives() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "pt2") {
            let name = path.file_stem().unwrap().to_str().unwrap();
            found.push((path.clone(), name.trim_end_matches("_core").to_owned()));
        }
    }
    found.sort();
    assert!(found.len() >= 14, "{found:?}");
    found
}

fn archive(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name).with_extension("pt2")).unwrap()
}

fn plain() -> ModuleBuilder {
    Module::builder().threads(1).without_default_backends().backend(Arc::new(CpuEngine::new()))
}

fn numbers(tensor: &Json) -> Vec<f64> {
    let values = tensor["values"].as_array().unwrap().iter();
    let number =
        |value: &Json| value.as_f64().or(value.as_bool().map(|it| f64::from(u8::from(it))));
    values.map(|value| number(value).unwrap()).collect()
}

fn tensor(value: &Json) -> Tensor {
    let shape: Vec<usize> =
        value["shape"].as_array().unwrap().iter().map(|it| it.as_u64().unwrap() as usize).collect();
    let values = numbers(value);
    match value["dtype"].as_str().unwrap() {
        "float32" => {
            Tensor::from_vec(&shape, values.iter().map(|it| *it as f32).collect::<Vec<_>>())
        }
        "int64" => Tensor::from_vec(&shape, values.iter().map(|it| *it as i64).collect::<Vec<_>>()),
        "bool" => {
            Tensor::from_bools(&shape, &values.iter().map(|it| *it != 0.0).collect::<Vec<_>>())
        }
        other => panic!("{other}"),
    }
    .unwrap()
}

/// Runs the cases of an archive in order, and compares all outputs.
fn check(module: &mut Module, cases: &str, tolerance: f64) -> Result<usize, String> {
    let text = std::fs::read_to_string(folder().join(cases).with_extension("json")).unwrap();
    let json: Json = serde_json::from_str(&text).unwrap();
    let mut compared = 0;
    for case in json["cases"].as_array().unwrap() {
        let inputs = case["inputs"].as_array().unwrap().iter();
        let inputs: Vec<Value> = inputs.map(|input| tensor(input).into()).collect();
        let outputs = module.execute("forward", inputs).map_err(|error| error.to_string())?;
        let expected = case["outputs"].as_array().unwrap();
        if outputs.len() != expected.len() {
            return Err(format!("{} outputs", outputs.len()));
        }
        for (at, (output, wanted)) in outputs.iter().zip(expected).enumerate() {
            let Value::Tensor(output) = output else { return Err(format!("output {at}")) };
            let shape: Vec<u64> = output.shape().iter().map(|size| *size as u64).collect();
            if wanted["shape"] != serde_json::json!(shape) {
                return Err(format!("output {at}: {shape:?}, expected {}", wanted["shape"]));
            }
            let dtype = output.scalar_type().name();
            if wanted["dtype"] != dtype {
                return Err(format!("output {at}: {dtype}, expected {}", wanted["dtype"]));
            }
            let (found, wanted) = (output.to_f64_vec().unwrap(), numbers(wanted));
            let largest = wanted.iter().fold(1e-3f64, |most, value| most.max(value.abs()));
            for (element, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                let error = (found - wanted).abs();
                // NaN is no small error.
                if error.is_nan() || error > tolerance * largest {
                    return Err(format!("output {at}[{element}]: {found}, expected {wanted}"));
                }
                compared += 1;
            }
        }
    }
    Ok(compared)
}

fn check_all(tolerance: f64, mut open: impl FnMut(&Path) -> Result<Module, torchlet::Error>) {
    let mut failures = Vec::new();
    for (path, cases) in archives() {
        let opened = open(&path).map_err(|error| error.to_string());
        match opened.and_then(|mut module| check(&mut module, &cases, tolerance)) {
            Ok(compared) => assert!(compared >= 10, "{}: {compared}", path.display()),
            Err(why) => failures.push(format!("{}: {why}", path.display())),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn kernels_match_pytorch() {
    check_all(TOLERANCE, |path| plain().run_on(RunOn::AsExported).load(path));
}

#[test]
fn cpus_match_pytorch() {
    check_all(TOLERANCE, |path| plain().run_on(RunOn::Cpu).load(path));
}

#[test]
fn bytes_match_pytorch() {
    check_all(TOLERANCE, |path| {
        plain().run_on(RunOn::Cpu).from_bytes(std::fs::read(path).unwrap())
    });
}

#[test]
#[cfg(feature = "vulkan")]
fn gpus_match_pytorch() {
    if device::device_is_there() {
        check_all(ON_GPUS, |path| device::on_device().threads(1).load(path));
    }
}

/// Writes each archive as a program file, for kernels and for the CPU engine, and opens the file.
#[test]
fn written_programs_match_pytorch() {
    let registry = Registry::new().with_kernels(&KERNELS).unwrap();
    for processors in [Processors::NONE, Processors::preferring(&[&CpuTarget::new()])] {
        check_all(TOLERANCE, |path| {
            let source = plain().run_on(RunOn::AsExported).load(path)?;
            let compiled = cpu::compile(&source.program(), &[], processors, &registry).unwrap();
            let file = compiled.program.write().unwrap().to_bytes();
            plain().run_on(RunOn::AsExported).from_bytes(file)
        });
    }
}

#[test]
fn compiled_programs_are_cached() {
    let folder = std::env::temp_dir().join(format!("torchlet-pt2-{}", std::process::id()));
    let open = |path: &Path| plain().run_on(RunOn::Cpu).compile_cache(&folder).load(path);
    check_all(TOLERANCE, open);
    check_all(TOLERANCE, |path| {
        let module = open(path)?;
        assert_eq!(*module.origin(), torchlet::Origin::Cached, "{}", path.display());
        Ok(module)
    });
    std::fs::remove_dir_all(folder).unwrap();
}

/// Replaces a text of an archive by another one of the same length.
fn replaced(mut file: Vec<u8>, from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut count = 0;
    for at in 0..file.len().saturating_sub(from.len()) {
        if file[at..].starts_with(from.as_bytes()) {
            file[at..at + from.len()].copy_from_slice(to.as_bytes());
            count += 1;
        }
    }
    assert!(count > 0, "{from}");
    file
}

fn refusal(file: Vec<u8>) -> String {
    let opened = plain().run_on(RunOn::AsExported).from_bytes(file);
    opened.err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn unsupported_calls_are_named_at_once() {
    let file = replaced(archive("dynamic_batch"), "aten.gelu.default", "aten.gelV.default");
    let error = refusal(replaced(file, "aten.sigmoid.default", "aten.sigmoiV.default"));
    assert!(error.contains("aten.gelV.default"), "{error}");
    assert!(error.contains("aten.sigmoiV.default"), "{error}");
}

#[test]
fn unsupported_archives_are_explained() {
    for (from, to, expected) in [
        ("\"major\":8", "\"major\":9", "version 9."),
        ("archive_format", "archive_f0rmat", "ZIP"),
        ("\"as_tensor\":{\"name\":\"x\"}", "\"as_tens0r\":{\"name\":\"x\"}", "as_tens0r"),
        ("\"dtype\":7", "\"dtype\":0", "dtype"),
        ("\"use_pickle\": false", "\"use_pickle\": true ", "pickled"),
        ("\"layout\":7", "\"layout\":1", "sparse"),
    ] {
        let error = refusal(replaced(archive("dynamic_batch"), from, to));
        assert!(error.contains(expected), "{from}: {error}");
    }
}

#[test]
fn inputs_beyond_the_declared_range_are_rejected() {
    let mut module = plain().load(folder().join("dynamic_batch.pt2")).unwrap();
    let input = Tensor::ones(ScalarType::Float, &[17, 8]).unwrap();
    let error = module.execute("forward", [Value::from(input)]).unwrap_err().to_string();
    assert!(error.contains("16"), "{error}");
}

/// PyTorch's reasons are parts of the errors.
#[test]
fn guards_refuse_inputs() {
    let text = std::fs::read_to_string(folder().join("guards.json")).unwrap();
    let json: Json = serde_json::from_str(&text).unwrap();
    for (name, on) in [
        ("guards", RunOn::AsExported),
        ("guards", RunOn::Cpu),
        ("guards_core", RunOn::AsExported),
        ("guards_core", RunOn::Cpu),
    ] {
        let mut module =
            plain().run_on(on).load(folder().join(name).with_extension("pt2")).unwrap();
        let refused = json["refused"].as_array().unwrap();
        assert_eq!(refused.len(), 7);
        for case in refused {
            let inputs = case["inputs"].as_array().unwrap().iter();
            let inputs: Vec<Value> = inputs.map(|input| tensor(input).into()).collect();
            let error = module.execute("forward", inputs).unwrap_err().to_string();
            let why = case["why"].as_str().unwrap();
            assert!(error.contains(why), "{name}: {error}, expected {why}");
        }
        check(&mut module, "guards", TOLERANCE).unwrap();
    }
}

#[test]
fn state_has_the_names_of_the_model() {
    let mut module = plain().load(folder().join("counter.pt2")).unwrap();
    let input = Tensor::ones(ScalarType::Float, &[4, 3]).unwrap();
    module.execute("forward", [Value::from(input)]).unwrap();
    let state = module.method("forward").unwrap().state().unwrap();
    let mut names: Vec<&str> = state.iter().filter_map(|tensor| tensor.name.as_deref()).collect();
    names.sort_unstable();
    assert_eq!(names, ["last", "total"]);
}

/// A thousand damaged archives: single bytes, digits of the graph, and truncation.
#[test]
fn damaged_archives_do_no_harm() {
    let mut seed = 1u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below.max(1)
    };
    let (mut opened, mut refused) = (0, 0);
    let archives = archives();
    for round in 0..1000 {
        let (path, _) = &archives[round % archives.len()];
        let mut file = std::fs::read(path).unwrap();
        for _ in 0..=random(3) {
            let at = random(file.len());
            match random(4) {
                0 => file[at] = random(256) as u8,
                1 => file[at] ^= 1 << random(8),
                2 => {
                    let digits = (at..file.len()).find(|at| file[*at].is_ascii_digit());
                    if let Some(at) = digits {
                        file[at] = b'0' + random(10) as u8;
                    }
                }
                _ if random(8) == 0 => file.truncate(at),
                _ => {}
            }
            if file.is_empty() {
                break;
            }
        }
        let builder = plain().run_on(RunOn::Cpu).memory_limit(1 << 20);
        match builder.from_bytes(file) {
            Ok(mut module) => {
                opened += 1;
                let _ = module.execute("forward", Vec::<Value>::new());
            }
            Err(_) => refused += 1,
        }
    }
    assert!(opened > 100 && refused > 100, "{opened} opened, {refused} refused");
}
