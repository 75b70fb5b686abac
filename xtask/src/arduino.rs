//! Makes the Arduino library: headers, example sketches, and an archive for each kind of processor.
//!
//! The test compiles the sketches against stubs of an Arduino core, and runs them in QEMU.

use crate::capi::firmware;
use crate::process::{self, built, cargo, command, output, root, target_dir};
use crate::size::Sizes;
use crate::tools;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

/// A library for one kind of processor.
struct Archive {
    /// Its folder below `src`, as Arduino's tools look for it: processor, then FPU and calling
    /// convention.
    folder: &'static str,
    target: &'static str,
    flags: &'static str,
}

/// Boards with the calling convention `softfp` (Arduino's own with Mbed) pass floats in integer
/// registers. Rust's targets for it use no FPU.
const ARCHIVES: &[Archive] = &[
    TESTED,
    Archive { folder: "cortex-m0plus", target: "thumbv6m-none-eabi", flags: "" },
    Archive { folder: "cortex-m3", target: "thumbv7m-none-eabi", flags: "" },
    Archive { folder: "cortex-m4/fpv4-sp-d16-softfp", target: "thumbv7em-none-eabi", flags: "" },
    Archive {
        folder: "cortex-m7/fpv5-d16-hard",
        target: "thumbv7em-none-eabihf",
        flags: "-Ctarget-cpu=cortex-m7",
    },
    Archive { folder: "cortex-m7/fpv4-sp-d16-softfp", target: "thumbv7em-none-eabi", flags: "" },
    Archive {
        folder: "cortex-m33/fpv5-sp-d16-hard",
        target: "thumbv8m.main-none-eabihf",
        flags: "-Ctarget-cpu=cortex-m33",
    },
];

/// The library that the test uses: the one that `capi/firmware` builds.
const TESTED: Archive =
    Archive { folder: "cortex-m4/fpv4-sp-d16-hard", target: "thumbv7em-none-eabihf", flags: "" };

/// An example: its program in `tests/fixtures`, and the header that the sketch includes.
struct Sketch {
    name: &'static str,
    program: &'static str,
    header: &'static str,
    /// Input of the program, as the sketch makes it.
    input: fn() -> Result<PathBuf>,
}

const SKETCHES: [Sketch; 2] = [
    Sketch {
        name: "Digits",
        program: "tinyml/digits.pte",
        header: "digits.h",
        input: || Ok(root().join("tests/fixtures/digits/image_2.npy")),
    },
    Sketch {
        name: "KeywordSpotting",
        program: "tinyml/keyword_spotting.pte",
        header: "keywords.h",
        input: coefficients,
    },
];

/// Makes the library for all processors, and a ZIP archive of it.
pub(crate) fn run() -> Result<()> {
    check_tools()?;
    let archives: Vec<&str> = ARCHIVES.iter().map(|archive| archive.target).collect();
    tools::targets(&archives)?;
    let package = package(ARCHIVES)?;
    test_sketches(&package)?;
    let zip = package.with_file_name("torchlet-arduino.zip");
    let name = zip.to_string_lossy().into_owned();
    let mut pack = command("cmake", &["-E", "tar", "cf", &name, "--format=zip", "torchlet"]);
    pack.current_dir(target_dir().join("arduino"));
    process::run(pack)?;
    println!("{}: {} bytes", zip.display(), std::fs::metadata(&zip)?.len());
    Ok(())
}

/// Makes the library for one processor, and tests the sketches.
pub(crate) fn test() -> Result<()> {
    check_tools()?;
    test_sketches(&package(&[TESTED])?)
}

fn check_tools() -> Result<()> {
    tools::arm_toolchain()
}

/// Makes the folder of the library, and returns it.
fn package(archives: &[Archive]) -> Result<PathBuf> {
    let folder = target_dir().join("arduino/torchlet");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    let source = root().join("arduino");
    copy(&source.join("library.properties"), &folder.join("library.properties"))?;
    copy(&source.join("README.md"), &folder.join("README.md"))?;
    copy(&source.join("src/TorchletArduino.h"), &folder.join("src/TorchletArduino.h"))?;
    for header in ["torchlet.h", "torchlet_kernels.h"] {
        copy(&root().join("capi/include").join(header), &folder.join("src").join(header))?;
    }
    for license in ["LICENSE-MIT", "LICENSE-APACHE"] {
        copy(&root().join(license), &folder.join(license))?;
    }
    for archive in archives {
        let library = build(archive)?;
        let place = folder.join("src").join(archive.folder).join("libtorchlet.a");
        copy(&library, &place)?;
        println!("{}: {} bytes", archive.folder, std::fs::metadata(&place)?.len());
    }
    for Sketch { name, program, header, .. } in &SKETCHES {
        let example = folder.join("examples").join(name);
        let file = format!("{name}.ino");
        copy(&source.join("examples").join(name).join(&file), &example.join(&file))?;
        let (program, header) = (fixture(program), example.join(header));
        let mut convert = torchlet(&["convert"])?;
        convert.arg(program).arg("-o").arg(header);
        process::run(convert)?;
    }
    Ok(folder)
}

/// Builds the C library for a processor, and returns its path.
fn build(archive: &Archive) -> Result<PathBuf> {
    let folder = target_dir().join("capi/firmware/torchlet/cargo");
    let mut build = cargo(&["rustc", "--quiet", "--lib", "--crate-type", "staticlib"]);
    build.args(["--profile", "firmware", "--package", "torchlet-capi", "--no-default-features"]);
    build.args(["--features", "messages", "--target", archive.target]);
    build.env("CARGO_TARGET_DIR", &folder);
    if !archive.flags.is_empty() {
        build.env("RUSTFLAGS", archive.flags);
    }
    process::run(build)?;
    Ok(folder.join(archive.target).join("firmware/libtorchlet_capi.a"))
}

/// Compiles the sketches for a Cortex-M4 with the flags of Arduino's cores, runs them in QEMU, and
/// compares their scores with those on this machine.
fn test_sketches(package: &Path) -> Result<()> {
    for sketch in &SKETCHES {
        let image = link(package, sketch.name)?;
        println!("{}: {}", sketch.name, Sizes::of(&std::fs::read(&image)?)?);
        let printed = firmware::emulate(&image)?;
        let scores = |line: &str| line.parse::<f32>().ok().filter(|_| line.contains('.'));
        let found: Vec<f32> = printed.lines().filter_map(scores).collect();
        let expected = expected(sketch)?;
        // The sketch's loop runs twice.
        let expected = [expected.clone(), expected].concat();
        let is_close = |(found, expected): (&f32, &f32)| (found - expected).abs() <= 1.1e-4;
        ensure!(
            found.len() == expected.len() && found.iter().zip(&expected).all(is_close),
            "{}: the sketch printed {found:?}, expected {expected:?}",
            sketch.name
        );
    }
    Ok(())
}

/// Compiles and links a sketch with the stubs, and returns the image.
fn link(package: &Path, name: &str) -> Result<PathBuf> {
    let (stub, firmware) = (root().join("arduino/stub"), root().join("capi/firmware"));
    let build = target_dir().join("arduino/build").join(name);
    std::fs::create_dir_all(&build)?;
    let processor = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"];
    let warn = ["-Wall", "-Wextra", "-Werror", "-Os", "-ffunction-sections", "-fdata-sections"];
    let cpp = ["-std=gnu++11", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics"];
    let sketch = package.join("examples").join(name).join(format!("{name}.ino"));
    let mut objects = Vec::new();
    for (source, object) in [
        (sketch, "sketch.o"),
        (stub.join("core.cpp"), "core.o"),
        (firmware.join("startup.c"), "startup.o"),
    ] {
        let is_c = source.extension().is_some_and(|extension| extension == "c");
        let compiler = if is_c { "arm-none-eabi-gcc" } else { "arm-none-eabi-g++" };
        let mut compile = command(compiler, &processor);
        compile.args(warn).arg("-I").arg(&firmware);
        if !is_c {
            compile.args(cpp).args(["-include", "Arduino.h", "-x", "c++", "-I"]).arg(&stub);
            compile.arg("-I").arg(package.join("src"));
        }
        let object = build.join(object);
        compile.arg("-c").arg(source).arg("-o").arg(&object);
        process::run(compile)?;
        objects.push(object);
    }
    let image = build.join("sketch.elf");
    // Not by g++, which would link libstdc++.
    let mut link = command("arm-none-eabi-gcc", &processor);
    link.args(objects).args(["-nostartfiles", "--specs=nano.specs", "-Wl,--gc-sections", "-T"]);
    link.arg(firmware.join("mps2_an386.ld")).arg("-L");
    link.arg(package.join("src").join(TESTED.folder)).arg("-ltorchlet").arg("-o").arg(&image);
    process::run(link)?;
    Ok(image)
}

/// The scores of a sketch's program on this machine, with four decimals.
fn expected(sketch: &Sketch) -> Result<Vec<f32>> {
    let mut run = torchlet(&["run", "--backend", "as-exported", "--input"])?;
    run.arg((sketch.input)()?).arg(fixture(sketch.program));
    let printed = String::from_utf8(output(run)?)?;
    let values = printed.split_once("tensor([[").and_then(|(_, rest)| rest.split_once("]])"));
    let (values, _) = values.with_context(|| format!("no tensor in {printed}"))?;
    values.split(',').map(|value| Ok(value.trim().parse()?)).collect()
}

/// Writes the coefficients of the sketch for keyword spotting to a file, and returns its path.
fn coefficients() -> Result<PathBuf> {
    let path = target_dir().join("arduino/coefficients.bin");
    let value = |at: i32| ((at * 37 % 101) - 50) as f32 / 2.0;
    let bytes: Vec<u8> = (0..490).flat_map(|at| value(at).to_le_bytes()).collect();
    std::fs::write(&path, bytes)?;
    Ok(path)
}

fn torchlet(arguments: &[&str]) -> Result<std::process::Command> {
    Ok(command(&built("torchlet")?.to_string_lossy(), arguments))
}

fn fixture(path: &str) -> PathBuf {
    root().join("tests/fixtures").join(path)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::copy(from, to).with_context(|| from.display().to_string())?;
    Ok(())
}
