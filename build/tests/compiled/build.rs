//! Compiles fixture programs. The target is a microcontroller: compiled code runs anywhere, with
//! the algorithms of such a processor.

use std::path::{Path, PathBuf};
use torchlet_build::{Image, Program, Target};

/// Module names, and files below `tests/fixtures`.
const PROGRAMS: &[(&str, &str)] = &[
    ("digits", "tinyml/digits.pte"),
    ("keyword_spotting", "tinyml/keyword_spotting.pte"),
    ("image_classification", "tinyml/image_classification.pte"),
    ("visual_wake_words", "tinyml/visual_wake_words.pte"),
    ("anomaly_detection", "tinyml/anomaly_detection.pte"),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/fixtures");
    let program =
        |&(name, file): &(&str, &str)| Program::new(fixtures.join(file)).name(name).compiled_only();
    let image = PROGRAMS.iter().map(program).fold(Image::new(), Image::program);
    let folder = PathBuf::from(std::env::var("OUT_DIR")?);
    let written = image.write_for(&Target::parse("thumbv7em-none-eabihf")?, &folder)?;
    for source in written.sources {
        println!("cargo::rerun-if-changed={}", source.display());
    }
    Ok(())
}
