//! Compiles the programs of the fixtures named in `MODELS` (default: the int8 ones), and writes
//! their first test cases. `BOARD` is the folder with the memory map.

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

const MODELS: &str = "digits,keyword_spotting,image_classification,visual_wake_words,\
                      anomaly_detection";

fn main() -> Result<(), Box<dyn Error>> {
    for name in ["BOARD", "MODELS"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let board = var("BOARD").unwrap_or_else(|_| "qemu-cortex-m4f".into());
    println!("cargo::rustc-link-search={}/../{board}", env!("CARGO_MANIFEST_DIR"));
    link::scripts();
    let models = var("MODELS").unwrap_or_else(|_| MODELS.into());
    let out = var("OUT_DIR")?;
    let (mut image, mut entries) = (Image::new(), String::new());
    for name in models.split(',') {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
        let file = fixtures.join("tinyml").join(name).with_extension("bpte");
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
        writeln!(entries, "    passed &= check!({name});")?;
    }
    let text = format!(
        "torchlet::program!({models});\n\nfn check_all() -> bool {{\n    let mut passed = \
         true;\n{entries}    passed\n}}\n"
    );
    fs::write(Path::new(&out).join("models.rs"), text)?;
    Ok(image.write()?)
}
