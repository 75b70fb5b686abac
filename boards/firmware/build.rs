//! Takes the models of the image from the repository's fixtures: programs for `torchlet::program!`,
//! and the inputs of their first test cases.

use std::env::var;
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};
use torchlet_build::{Image, Program};
use torchlet_core::{BundledProgram, ValueRef};

/// The models that there are: the feature that has it in the image, the file below
/// `tests/fixtures`, and how many runs its output is looked at after (more than one where it keeps
/// state).
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

/// Names one of the models, or the path of another `.bpte` file, for an image that has no other.
const ALONE: &str = "TORCHLET_MODEL";
/// Where shells say what folder they are in.
const CALLER: &str = "PWD";
/// What a model is called that is no other than a file.
const OWN: &str = "own";

/// How many damaged copies of the smallest program are in the image.
const DAMAGED: u64 = 4;

fn main() -> Result<(), Box<dyn Error>> {
    // There, models are loaded at run time; or the image has programs of its own.
    if var("CARGO_CFG_TARGET_ARCH")? == "aarch64" || env::var_os("CARGO_FEATURE_START").is_none() {
        return Ok(());
    }
    println!("cargo::rerun-if-env-changed={ALONE}");
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
        // As exported, it copies its weights each time.
        image = image.program(if name == "mlp" { program.lowered() } else { program });
        write!(names, "{name},")?;
        programs.push((name, runs, input, bundle.program()?.len()));
    }
    let smallest = programs.iter().map(|(.., len)| *len).min();
    for (name, runs, input, len) in &programs {
        let copies = (0..DAMAGED).filter(|_| smallest == Some(*len));
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

/// The models of the image. A path stands for itself when it is joined to that of the fixtures.
fn chosen() -> Result<Vec<(&'static str, PathBuf, usize)>, Box<dyn Error>> {
    let known = MODELS.iter().map(|(name, file, runs)| (*name, PathBuf::from(file), *runs));
    let Ok(alone) = var(ALONE) else {
        let is_chosen =
            |name: &str| env::var_os(format!("CARGO_FEATURE_{}", name.to_uppercase())).is_some();
        return Ok(known.filter(|(name, ..)| is_chosen(name)).collect());
    };
    let places = places(Path::new(&alone))?;
    if let Some(path) = places.iter().find(|path| path.is_file()) {
        return Ok(vec![(OWN, path.clone(), 1)]);
    }
    let names: Vec<&str> = MODELS.iter().map(|(name, ..)| *name).collect();
    let chosen: Vec<_> = known.filter(|(name, ..)| *name == alone).collect();
    match chosen.is_empty() {
        false => Ok(chosen),
        true => Err(format!(
            "{ALONE} is {alone:?}: no file at {}, and none of the models {}",
            places.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" or "),
            names.join(", ")
        )
        .into()),
    }
}

/// Where a file may be: from the folder of who started the build, which a shell says, and from that
/// of this package, in which Cargo runs this.
fn places(path: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let here = std::path::absolute(path)?;
    if path.is_absolute() {
        return Ok(vec![here]);
    }
    println!("cargo::rerun-if-env-changed={CALLER}");
    let from_caller = env::var_os(CALLER).map(|folder| Path::new(&folder).join(path));
    Ok(from_caller.into_iter().chain([here]).collect())
}

/// The bytes of the input in the first test case.
fn first_input(bundle: &BundledProgram<'_>) -> Result<Vec<u8>, Box<dyn Error>> {
    let suite = bundle.suites()?.next().ok_or("no test suite")??;
    let case = suite.cases()?.next().ok_or("no test case")??;
    let inputs: Vec<ValueRef<'_>> = case.inputs()?.collect::<Result<_, _>>()?;
    match &inputs[..] {
        [ValueRef::Tensor(tensor)] => Ok(tensor.bytes().to_vec()),
        _ => Err("not one tensor as the input".into()),
    }
}
