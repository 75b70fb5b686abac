//! Generates modules of programs with different module features, and files with the inputs and
//! PyTorch outputs of their test cases. With `SHARE_ACTIVATIONS` in the environment, only programs
//! that can share activation memory.

#[path = "../link.rs"]
mod link;

use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};
use torchlet_build::{Image, Program};
use torchlet_core::{BundledProgram, Scalar, ValueRef};

const VARIABLE: &str = "SHARE_ACTIVATIONS";

/// A program below `tests/fixtures`, its data files, and whether it can share activation memory.
struct Case(&'static str, &'static [&'static str], bool);

const CASES: &[Case] = &[
    Case("programs/two_methods", &[], true),
    Case(
        "programs/external_two_files",
        &["external_two_files.weight.ptd", "external_two_files.bias.ptd"],
        true,
    ),
    Case("programs/state_unplanned", &[], true),
    Case("programs/many_inputs", &[], false),
    Case("programs/dynamic_rows", &[], false),
    Case("digits/digits_unplanned_io", &[], false),
    Case("tinyml/lstm_step_apart", &[], false),
    Case("tinyml/digits", &[], true),
];

fn main() -> Result<(), Box<dyn Error>> {
    link::main();
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    println!("cargo::rustc-check-cfg=cfg(shared)");
    let shared = env::var_os(VARIABLE).is_some();
    if shared {
        println!("cargo::rustc-cfg=shared");
    }
    let out = env::var("OUT_DIR")?;
    let fixtures = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../tests/fixtures");
    let mut image = Image::new();
    for Case(name, data, _) in CASES.iter().filter(|case| case.2 || !shared) {
        let file = fixtures.join(name).with_extension("bpte");
        let data = data.iter().map(|data| file.with_file_name(data));
        image = image.program(data.fold(Program::new(&file), Program::data));
        let stem = file.file_stem().ok_or("a file")?.to_string_lossy();
        write_cases(&fs::read(&file)?, &Path::new(&out).join(&*stem))?;
    }
    let image = if shared { image.share_activations() } else { image };
    Ok(image.write()?)
}

/// Writes each input and output of each test case: tensors as bytes, scalars as Rust literals.
fn write_cases(bundle: &[u8], stem: &Path) -> Result<(), Box<dyn Error>> {
    for suite in BundledProgram::from_bytes(bundle)?.suites()? {
        let suite = suite?;
        for (number, case) in suite.cases()?.enumerate() {
            let case = case?;
            let name = format!("{}.{}.{number}", stem.display(), suite.method_name()?);
            for (index, value) in case.inputs()?.enumerate() {
                write_value(&format!("{name}.in{index}"), &value?)?;
            }
            for (index, value) in case.expected_outputs()?.enumerate() {
                write_value(&format!("{name}.out{index}"), &value?)?;
            }
        }
    }
    Ok(())
}

fn write_value(path: &str, value: &ValueRef<'_>) -> Result<(), Box<dyn Error>> {
    match value {
        ValueRef::Tensor(tensor) => {
            let mut sizes = String::new();
            write!(sizes, "{:?}", &*tensor.info().sizes)?;
            fs::write(format!("{path}.sizes"), sizes)?;
            fs::write(path, tensor.bytes())?;
        }
        ValueRef::Scalar(Scalar::Int(number)) => fs::write(path, format!("{number}i64"))?,
        ValueRef::Scalar(Scalar::Bool(number)) => fs::write(path, number.to_string())?,
        ValueRef::Scalar(Scalar::Double(number)) => fs::write(path, format!("{number:?}f64"))?,
        _ => {}
    }
    Ok(())
}
