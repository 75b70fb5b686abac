//! Adds models from the repository's fixtures to the image: programs for `torchlet::program!`, and
//! the inputs of their first test cases.

use std::env::var;
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};
use torchlet_build::{Image, Program};
use torchlet_core::{BundledProgram, ValueRef};

/// Available models: Cargo feature, file below `tests/fixtures`, and number of runs before the
/// output is checked (more than one for models with state).
const MODELS: &[(&str, &str, usize)] = &[
    ("digits", "digits/digits.bpte", 1),
    ("digits_int8", "tinyml/digits.bpte", 1),
    ("keyword_spotting", "tinyml/keyword_spotting.bpte", 1),
    ("visual_wake_words", "tinyml/visual_wake_words.bpte", 1),
    ("image_classification", "tinyml/image_classification.bpte", 1),
    ("anomaly_detection", "tinyml/anomaly_detection.bpte", 1),
    ("lstm_step", "tinyml/lstm_step.bpte", 3),
    ("lstm_step_apart", "tinyml/lstm_step_apart.bpte", 3),
    ("mlp", "tinyml/mlp.bpte", 1),
];

/// Selects a single model for the image, by name or by the path of a `.bpte` file.
const MODEL_VARIABLE: &str = "TORCHLET_MODEL";
/// Environment variable in which shells export the current directory.
const CALLER_DIR: &str = "PWD";
/// Module name of a model given by path.
const CUSTOM_NAME: &str = "own";

/// Number of damaged copies of the smallest program in the image.
const DAMAGED_COPIES: u64 = 4;

fn main() -> Result<(), Box<dyn Error>> {
    // AArch64 images load models at run time; images without `start` have their own programs.
    if var("CARGO_CFG_TARGET_ARCH")? == "aarch64" || env::var_os("CARGO_FEATURE_START").is_none() {
        return Ok(());
    }
    println!("cargo::rerun-if-env-changed={MODEL_VARIABLE}");
    let out = var("OUT_DIR")?;
    let fixtures = Path::new(&var("CARGO_MANIFEST_DIR")?).join("../../tests/fixtures");
    let (mut image, mut names, mut entries) = (Image::new(), String::new(), String::new());
    let mut programs = Vec::new();
    for (name, file, runs) in chosen()? {
        let file = fixtures.join(file);
        let input = format!("{out}/{name}.input");
        let bytes = fs::read(&file)?;
        let bundle = BundledProgram::from_bytes(&bytes)?;
        fs::write(&input, first_input(&bundle)?)?;
        let program = Program::new(&file).name(name);
        // Without lowering, this model copies its weights in every run.
        image = image.program(if name == "mlp" { program.lowered() } else { program });
        write!(names, "{name},")?;
        programs.push((name, runs, input, bundle.program()?.len()));
    }
    let smallest = programs.iter().map(|(.., len)| *len).min();
    for (name, runs, input, len) in &programs {
        let copies = (0..DAMAGED_COPIES).filter(|_| smallest == Some(*len));
        let copies: String = copies.map(|seed| format!("damaged!({name}, {seed}),")).collect();
        writeln!(
            entries,
            "model!({name}, {name:?}, {runs}, include_bytes!({input:?}), &[{copies}]),"
        )?;
    }
    let text = format!(
        "torchlet::program!({names});\n\n/// The models of the image.\n\
         pub(crate) const MODELS: &[Model] = &[\n{entries}];\n",
    );
    fs::write(Path::new(&out).join("models.rs"), text)?;
    Ok(image.write()?)
}

/// The models of the image. Joining an absolute path to the fixtures directory yields that path.
fn chosen() -> Result<Vec<(&'static str, PathBuf, usize)>, Box<dyn Error>> {
    let known = MODELS.iter().map(|(name, file, runs)| (*name, PathBuf::from(file), *runs));
    let Ok(alone) = var(MODEL_VARIABLE) else {
        let is_chosen =
            |name: &str| env::var_os(format!("CARGO_FEATURE_{}", name.to_uppercase())).is_some();
        return Ok(known.filter(|(name, ..)| is_chosen(name)).collect());
    };
    let candidates = candidates(Path::new(&alone))?;
    if let Some(path) = candidates.iter().find(|path| path.is_file()) {
        return Ok(vec![(CUSTOM_NAME, path.clone(), 1)]);
    }
    let names: Vec<&str> = MODELS.iter().map(|(name, ..)| *name).collect();
    let chosen: Vec<_> = known.filter(|(name, ..)| *name == alone).collect();
    match chosen.is_empty() {
        false => Ok(chosen),
        true => Err(format!(
            "{MODEL_VARIABLE}={alone:?} is neither a file ({}) nor one of the models {}",
            candidates
                .iter()
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
                .join(" or "),
            names.join(", ")
        )
        .into()),
    }
}

/// Candidate locations of a file: relative to the directory in which the build was started, as
/// exported by the shell, and to this package's directory, in which Cargo runs build scripts.
fn candidates(path: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let here = std::path::absolute(path)?;
    if path.is_absolute() {
        return Ok(vec![here]);
    }
    println!("cargo::rerun-if-env-changed={CALLER_DIR}");
    let from_caller = env::var_os(CALLER_DIR).map(|folder| Path::new(&folder).join(path));
    Ok(from_caller.into_iter().chain([here]).collect())
}

/// The input bytes of the first test case.
fn first_input(bundle: &BundledProgram<'_>) -> Result<Vec<u8>, Box<dyn Error>> {
    let suite = bundle.suites()?.next().ok_or("no test suite")??;
    let case = suite.cases()?.next().ok_or("no test case")??;
    let inputs: Vec<ValueRef<'_>> = case.inputs()?.collect::<Result<_, _>>()?;
    match &inputs[..] {
        [ValueRef::Tensor(tensor)] => Ok(tensor.bytes().to_vec()),
        _ => Err("expected one tensor as input".into()),
    }
}
