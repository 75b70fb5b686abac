//! Compiles fixture programs, and writes the same programs lowered, for the interpreter. The target
//! is a microcontroller: compiled code runs anywhere, with the algorithms of such a processor.

use std::path::{Path, PathBuf};

mod programs;
use torchlet_build::{Image, Program, Target};

/// Module names, and files below `tests/fixtures`.
const PROGRAMS: &[(&str, &str)] = &[
    ("digits", "tinyml/digits.pte"),
    ("keyword_spotting", "tinyml/keyword_spotting.pte"),
    ("image_classification", "tinyml/image_classification.pte"),
    ("visual_wake_words", "tinyml/visual_wake_words.pte"),
    ("anomaly_detection", "tinyml/anomaly_detection.pte"),
    ("digits_float", "digits/digits.pte"),
    ("digits_channels_last", "digits/digits_channels_last.bpte"),
    ("mlp", "tinyml/mlp.pte"),
    ("conv1d_all", "ops/convolution/conv1d_all.bpte"),
    ("conv2d_channels_last", "ops/convolution/conv2d_channels_last_input.bpte"),
    ("conv2d_groups", "ops/convolution/conv2d_groups.bpte"),
    ("conv2d_many_channels", "ops/convolution/conv2d_many_channels.bpte"),
    ("conv3d_all", "ops/convolution/conv3d_all.bpte"),
    ("conv3d_depthwise", "ops/convolution/conv3d_depthwise.bpte"),
    ("transposed_groups", "ops/transposed_convolution/conv_transpose2d_groups.bpte"),
    ("transposed_many", "ops/transposed_of_many_channels/many_uneven.bpte"),
    ("transposed_volume", "ops/transposed_convolution/conv_transpose3d_dilation.bpte"),
    ("linear_4d", "ops/linear/linear_4d.bpte"),
    ("max_pool_ceil", "ops/pooling/max_pool2d_ceil_padding.bpte"),
];

/// A function that returns a program.
type Written = fn() -> Result<Vec<u8>, torchlet_graph::Error>;

/// Programs that are written here, by module name.
const WRITTEN: &[(&str, Written)] = &[
    ("sum_of_views", programs::sum_of_views),
    ("convolutions", programs::convolutions),
    ("rows", programs::rows),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/fixtures");
    let folder = PathBuf::from(std::env::var("OUT_DIR")?);
    let lowered = folder.join("lowered");
    std::fs::create_dir_all(&lowered)?;
    let target = Target::parse("thumbv7em-none-eabihf")?;
    let exported = folder.join("exported");
    std::fs::create_dir_all(&exported)?;
    let mut programs: Vec<(&str, PathBuf)> =
        PROGRAMS.iter().map(|(name, file)| (*name, fixtures.join(file))).collect();
    for (name, write) in WRITTEN {
        let path = exported.join(name).with_extension("pte");
        std::fs::write(&path, write()?)?;
        programs.push((name, path));
    }
    let program = |(name, path): &(&str, PathBuf)| Program::new(path).name(name);
    let image = |programs: &mut dyn Iterator<Item = Program>| {
        programs.fold(Image::new(), |image, program| image.program(program))
    };
    image(&mut programs.iter().map(program).map(Program::lowered)).write_for(&target, &lowered)?;
    let compiled = image(&mut programs.iter().map(program).map(Program::compiled_only));
    // The same in C, with packed weights and without.
    for name in ["cortex-m4f", "cortex-m0"] {
        let (target, folder) = (Target::parse(name)?, folder.join(name));
        std::fs::create_dir_all(&folder)?;
        for it in &programs {
            let c = program(it).to_c(&target, &format!("{}.h", it.0))?;
            std::fs::write(folder.join(it.0).with_extension("c"), c.source)?;
            std::fs::write(folder.join(it.0).with_extension("h"), c.header)?;
        }
    }
    for source in compiled.write_for(&target, &folder)?.sources {
        println!("cargo::rerun-if-changed={}", source.display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=programs.rs");
    Ok(())
}
