//! Runs the C firmware of `capi/firmware` in QEMU, and compares its output with `expected.txt`. Its
//! logits must equal those of the programs on the host.

use crate::process::{self, command, root, target_dir};
use crate::size::Sizes;
use crate::tools;
use anyhow::{Context, Result, bail, ensure};
use object::{Object, ObjectSymbol};
use std::path::Path;

/// Tolerance of values: `absolute + relative * |expected|`.
const TOLERANCE: (f32, f32) = (1e-4, 1e-4);

/// Symbols that indicate an allocation.
const ALLOCATORS: &[&str] = &["malloc", "_malloc_r", "_sbrk", "_sbrk_r", "__rust_alloc"];

pub(crate) fn run(overwrite: bool) -> Result<()> {
    tools::arm_toolchain()?;
    let build = target_dir().join("capi/firmware");
    cmake("capi/firmware", &build, &[])?;
    // The same library through the module for Zephyr.
    let cargo = format!("-DTORCHLET_CARGO_TARGET_DIR={}", build.join("torchlet/cargo").display());
    let through_module = target_dir().join("capi/zephyr");
    cmake("capi/zephyr/standin", &through_module, &[&cargo])?;
    Sizes::of(&std::fs::read(through_module.join("digits"))?)?;
    esp_idf()?;
    let image = build.join("digits");
    let elf = std::fs::read(&image)?;
    println!("firmware in C: {}", Sizes::of(&elf)?);
    no_allocator(&elf)?;
    let printed = emulate(&image)?;
    if overwrite {
        std::fs::write(expected_path(), &printed)?;
    }
    let expected = std::fs::read_to_string(expected_path())?;
    let (found, expected): (Vec<&str>, Vec<&str>) =
        (printed.lines().collect(), expected.lines().collect());
    ensure!(
        found.len() == expected.len(),
        "found {} lines, expected {}",
        found.len(),
        expected.len()
    );
    for (found, expected) in found.iter().zip(&expected) {
        ensure!(
            same(found, expected),
            "the firmware printed `{found}`, expected `{expected}`; `cargo xtask capi \
         --overwrite-firmware` accepts it"
        );
    }
    Ok(())
}

/// Runs an image in QEMU, and returns what it printed.
pub(crate) fn emulate(image: &Path) -> Result<String> {
    let mut qemu = command("timeout", &["60", "qemu-system-arm", "-machine", "mps2-an386"]);
    qemu.args(["-nographic", "-monitor", "none", "-serial", "none"]);
    qemu.args(["-semihosting-config", "enable=on,target=native", "-kernel"]).arg(image);
    qemu.stdin(std::process::Stdio::null());
    // It prints to standard error.
    let output = qemu.output().context("timeout, of coreutils, is missing")?;
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    println!("{printed}");
    ensure!(output.status.success(), "the firmware failed: {}", output.status);
    Ok(printed)
}

/// Configures and builds a folder for the microcontroller.
fn cmake(source: &str, build: &Path, definitions: &[&str]) -> Result<()> {
    let toolchain = root().join("capi/firmware/arm-none-eabi.cmake");
    let build = build.to_string_lossy().into_owned();
    let mut configure = command("cmake", &["-S", source, "-B", &build]);
    configure.arg(format!("-DCMAKE_TOOLCHAIN_FILE={}", toolchain.display())).args(definitions);
    process::run(configure)?;
    process::run(command("cmake", &["--build", &build]))
}

/// Configures the component for ESP-IDF with a stub of its build system, which builds nothing.
fn esp_idf() -> Result<()> {
    for (chip, target) in [
        ("esp32c3", Some("riscv32imc-unknown-none-elf")),
        ("esp32h2", Some("riscv32imac-unknown-none-elf")),
        ("esp32p4", Some("riscv32imafc-unknown-none-elf")),
        ("esp32s3", None),
    ] {
        let build = target_dir().join("capi/esp-idf").join(chip).to_string_lossy().into_owned();
        let mut configure = command("cmake", &["-S", "capi/esp-idf/standin", "-B", &build]);
        let output = configure.arg(format!("-DIDF_TARGET={chip}")).output()?;
        let printed =
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let is_right = match target {
            Some(target) => {
                let line = format!("target {target}, features messages, links torchlet::torchlet");
                output.status.success() && printed.contains(&line)
            }
            None => printed.contains(&format!("does not support {chip}")),
        };
        ensure!(is_right, "{chip}: {printed}");
    }
    Ok(())
}

/// Fails if an image links an allocator.
fn no_allocator(elf: &[u8]) -> Result<()> {
    let file = object::File::parse(elf)?;
    for name in file.symbols().filter_map(|symbol| symbol.name().ok()) {
        ensure!(!ALLOCATORS.contains(&name), "the firmware contains an allocator: {name}");
    }
    Ok(())
}

fn expected_path() -> std::path::PathBuf {
    root().join("capi/firmware/expected.txt")
}

/// Fails if a program's output has other logits, or another class, than the firmware's.
pub(super) fn compare_logits(printed: &str) -> Result<()> {
    let expected = std::fs::read_to_string(expected_path())?;
    let wanted: Vec<&str> = expected.lines().filter(|line| is_result(line)).collect();
    let found: Vec<&str> = printed.lines().filter(|line| is_result(line)).collect();
    ensure!(wanted.len() == 11, "{} results in expected.txt", wanted.len());
    let agree = found.len() == wanted.len() && found.iter().zip(&wanted).all(|(a, b)| same(a, b));
    if !agree {
        bail!("it printed\n{printed}\nbut the firmware printed\n{expected}");
    }
    Ok(())
}

fn is_result(line: &str) -> bool {
    line.starts_with("logit ") || line.starts_with("class: ")
}

/// Whether two lines are equal, with a tolerance for floats.
fn same(found: &str, expected: &str) -> bool {
    let number = |line: &str| -> Option<(String, f32)> {
        let (label, number) = line.rsplit_once(": ")?;
        number.contains('.').then_some(())?;
        Some((label.to_owned(), number.parse().ok()?))
    };
    match (number(found), number(expected)) {
        (Some((label, found)), Some((wanted, expected))) => {
            let allowed = TOLERANCE.0 + TOLERANCE.1 * expected.abs();
            label == wanted && (found - expected).abs() <= allowed
        }
        _ => found == expected,
    }
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn numbers_agree_to_a_tolerance_and_words_exactly() {
        assert!(same("logit 1: 2.00010", "logit 1: 2.00000"));
        assert!(!same("logit 1: 2.00100", "logit 1: 2.00000"));
        assert!(!same("logit 2: 2.00000", "logit 1: 2.00000"));
        assert!(same("class: 2", "class: 2") && !same("class: 3", "class: 2"));
    }
}
