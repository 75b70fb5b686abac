//! Compiles the programs of the fixtures named in `MODELS` (default: all), and writes their first
//! test cases. `BOARD` is the folder with the memory map.

use std::env::var;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use torchlet_build::{Image, Program};
use torchlet_core::{BundledProgram, ProgramError, ValueRef};

#[path = "../link.rs"]
#[allow(dead_code, reason = "the folder of the memory map differs")]
mod link;

/// Names, files below `tests/fixtures`, and tolerances of the outputs.
const MODELS: &[(&str, &str, &str)] = &[
    ("digits", "tinyml/digits.bpte", "0.0"),
    ("keyword_spotting", "tinyml/keyword_spotting.bpte", "0.0"),
    ("image_classification", "tinyml/image_classification.bpte", "0.0"),
    ("visual_wake_words", "tinyml/visual_wake_words.bpte", "0.0"),
    ("anomaly_detection", "tinyml/anomaly_detection.bpte", "0.0"),
    ("digits_float", "digits/digits.bpte", "1e-4"),
    ("mlp", "tinyml/mlp.bpte", "1e-4"),
];

fn main() -> Result<(), Box<dyn Error>> {
    for name in ["BOARD", "MODELS"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let board = var("BOARD").unwrap_or_else(|_| "qemu-cortex-m4f".into());
    println!("cargo::rustc-link-search={}/../{board}", env!("CARGO_MANIFEST_DIR"));
    link::scripts();
    let all: Vec<&str> = MODELS.iter().map(|(name, ..)| *name).collect();
    let models = var("MODELS").unwrap_or_else(|_| all.join(","));
    let out = var("OUT_DIR")?;
    let (mut image, mut entries) = (Image::new(), String::new());
    for name in models.split(',') {
        let known = MODELS.iter().find(|(known, ..)| *known == name);
        let (_, file, tolerance) = known.ok_or_else(|| format!("there is no model {name}"))?;
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(file);
        let bytes = fs::read(&file)?;
        let bundle = BundledProgram::from_bytes(&bytes)?;
        let suite = bundle.suites()?.next().ok_or("no test cases")??;
        let case = suite.cases()?.next().ok_or("no test cases")??;
        let data = |value: Option<Result<ValueRef<'_>, ProgramError>>| match value {
            Some(Ok(ValueRef::Tensor(tensor))) => Ok(tensor.bytes().to_vec()),
            _ => Err("the test case has no tensor"),
        };
        for (ending, bytes) in [
            ("input", data(case.inputs()?.next())?),
            ("expected", data(case.expected_outputs()?.next())?),
        ] {
            fs::write(Path::new(&out).join(name).with_extension(ending), bytes)?;
        }
        image = image.program(Program::new(&file).name(name).compiled_only());
        writeln!(entries, "    passed &= check!({name}, {tolerance});")?;
    }
    let text = format!(
        "torchlet::program!({models});\n\nfn check_all() -> bool {{\n    let mut passed = \
         true;\n{entries}    passed\n}}\n"
    );
    fs::write(Path::new(&out).join("models.rs"), text)?;
    Ok(image.write()?)
}
