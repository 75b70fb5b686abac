//! Runs programs in C (`torchlet compile`) in QEMU, and measures them.
//!
//! The test `c_programs` of the crate `compiled-programs` writes them, each with an input and the
//! output that it has on this machine, after it compared both with other implementations. The
//! firmware around them is in `boards/c`.

use crate::board::{Limits, parse_limits, print_limits};
use crate::page::{self, grouped};
use crate::process::{self, EVERYTHING, cargo, command, root, target_dir};
use crate::size::Sizes;
use crate::tools;
use anyhow::{Context, Result, bail, ensure};
use object::{Object, ObjectSymbol};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Record sizes and instruction counts, and write them into docs/figures.md
    #[arg(long)]
    overwrite: bool,
}

/// A processor.
struct Chip {
    name: &'static str,
    /// Folder of the programs, named after the target that they were compiled for.
    folder: &'static str,
    flags: &'static [&'static str],
    /// Linker script below `boards/c`, and machine of QEMU.
    script: &'static str,
    machine: &'static str,
    /// Period of the processor's clock in picoseconds.
    tick: u64,
    /// The programs that fit; all if it is empty.
    programs: &'static [&'static str],
}

const CHIPS: &[Chip] = &[
    Chip {
        name: "Cortex-M4F",
        folder: "cortex-m4f",
        flags: &["-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"],
        script: "an386.ld",
        machine: "mps2-an386",
        tick: 40_000,
        programs: &[],
    },
    Chip {
        name: "Cortex-M55",
        folder: "cortex-m4f",
        flags: &["-mcpu=cortex-m55", "-mfloat-abi=hard"],
        script: "an547.ld",
        machine: "mps3-an547",
        tick: 31_250,
        programs: &[
            "digits",
            "digits_float",
            "keyword_spotting",
            "image_classification",
            "visual_wake_words",
            "anomaly_detection",
            "convolutions",
            "rows",
        ],
    },
    Chip {
        name: "Cortex-M0",
        folder: "cortex-m0",
        flags: &["-mcpu=cortex-m0"],
        script: "microbit.ld",
        machine: "microbit",
        tick: 62_500,
        programs: &["digits", "digits_float", "convolutions", "rows"],
    },
];

/// Programs with figures, and their names in the table.
const MEASURED: &[(&str, &str)] = &[
    ("digits", "digits, int8"),
    ("digits_float", "digits, `float32`"),
    ("keyword_spotting", "keyword spotting"),
    ("image_classification", "image classification"),
    ("visual_wake_words", "visual wake words"),
    ("anomaly_detection", "anomaly detection"),
];

/// Options of programs: those of strict C99, in which the compiler fuses no multiplication with an
/// addition.
const PROGRAM: &[&str] =
    &["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O2", "-mthumb"];

/// QEMU's icount shift: each instruction takes 2^6 ns.
const SHIFT: u32 = 6;

/// Tolerance of the recorded figures in percent, because compilers differ.
const TOLERANCE: u64 = 10;

const FIGURES: &str = "boards/c/figures.txt";

const HEAD: &str = "\
# Programs in C: flash in bytes without weights and other constants, RAM in bytes without stack, and
# instructions of a run. `cargo xtask c-programs` checks them with a tolerance of 10 percent, and
# `cargo xtask c-programs --overwrite` updates them.
";

pub(crate) fn run(options: &Options) -> Result<()> {
    tools::arm_toolchain()?;
    let folder = target_dir().join("c-programs");
    let mut test =
        cargo(&[&["test", "--quiet"][..], EVERYTHING, &["--test", "c_programs"]].concat());
    test.env("TORCHLET_C_PROGRAMS", &folder);
    process::run(test)?;
    let mut found = Limits::new();
    for chip in CHIPS {
        println!("\n-- {}", chip.name);
        for name in programs(chip, &folder.join(chip.folder))? {
            let image = Image::build(chip, &folder.join(chip.folder), &name)?;
            let instructions = image.run(chip).with_context(|| format!("{}: {name}", chip.name))?;
            let [flash, ram] = image.sizes()?;
            println!(
                "  {name:<22} flash {:>7}  RAM {:>7}  instructions {:>11}",
                grouped(flash),
                grouped(ram),
                grouped(instructions)
            );
            if MEASURED.iter().any(|(measured, _)| *measured == name) {
                let figures = [("flash", flash), ("RAM", ram), ("run", instructions)];
                let figures = figures.map(|(what, number)| (what.to_owned(), number));
                found.insert(format!("{} {name}", chip.name), figures.to_vec());
            }
        }
    }
    let path = root().join(FIGURES);
    if options.overwrite {
        std::fs::write(path, HEAD.to_owned() + &print_limits(&found))?;
        return page::replace("docs/figures.md", "c-programs", &table(&found));
    }
    compare(&found, &parse_limits(&std::fs::read_to_string(path)?)?)
}

/// Names of a chip's programs.
fn programs(chip: &Chip, folder: &Path) -> Result<Vec<String>> {
    if !chip.programs.is_empty() {
        return Ok(chip.programs.iter().map(|&name| name.to_owned()).collect());
    }
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "c") {
            names.push(path.file_stem().unwrap_or_default().to_string_lossy().into_owned());
        }
    }
    names.sort();
    ensure!(!names.is_empty(), "{} has no programs", folder.display());
    Ok(names)
}

/// Firmware with a program.
struct Image {
    /// The program alone.
    object: PathBuf,
    image: PathBuf,
}

impl Image {
    fn build(chip: &Chip, folder: &Path, name: &str) -> Result<Self> {
        let out = folder.join(chip.name);
        std::fs::create_dir_all(&out)?;
        let (object, image) = (out.join(name).with_extension("o"), out.join(name));
        let start = |options: &[&str]| {
            let mut compile = command("arm-none-eabi-gcc", options);
            compile.args(chip.flags).args(["-ffunction-sections", "-fdata-sections", "-I"]);
            compile.arg(folder);
            compile
        };
        let mut compile = start(PROGRAM);
        compile.arg("-c").arg(folder.join(name).with_extension("c")).arg("-o").arg(&object);
        process::run_quietly(compile, &format!("arm-none-eabi-gcc {name}.c"))?;
        let firmware = root().join("boards/c");
        let mut link = start(&["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-O2", "-mthumb"]);
        link.arg("-I").arg(root().join("capi/firmware"));
        link.arg(format!("-DCASE=\"{name}.case.h\"")).arg(format!("-DHEADER=\"{name}.h\""));
        link.arg(format!("-DRUN={name}_forward"));
        link.arg(firmware.join("main.c")).arg(firmware.join("startup.c")).arg(&object);
        link.args(["-nostartfiles", "--specs=nano.specs", "-Wl,--gc-sections", "-L"])
            .arg(&firmware);
        link.arg(format!("-T{}", chip.script)).arg("-o").arg(&image);
        process::run_quietly(link, &format!("arm-none-eabi-gcc -o {name}"))?;
        Ok(Image { object, image })
    }

    /// Runs the image, which compares the output, and returns the instructions of the program.
    fn run(&self, chip: &Chip) -> Result<u64> {
        let mut qemu = command("timeout", &["60", "qemu-system-arm", "-machine", chip.machine]);
        qemu.args(["-display", "none", "-monitor", "none", "-serial", "none"]);
        qemu.args(["-icount", &format!("shift={SHIFT}")]);
        qemu.args(["-semihosting-config", "enable=on,target=native", "-kernel"]).arg(&self.image);
        let output =
            qemu.stdin(Stdio::null()).output().context("timeout, of coreutils, is missing")?;
        let printed =
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        ensure!(output.status.success(), "the output differs, or the run failed: {printed}");
        let ticks = printed.lines().find_map(|line| line.strip_prefix("run ticks "));
        let ticks: u64 = ticks.context("no ticks of the run")?.parse()?;
        Ok((ticks * chip.tick / 1000) >> SHIFT)
    }

    /// Flash without constants, and RAM.
    fn sizes(&self) -> Result<[u64; 2]> {
        let elf = std::fs::read(&self.object)?;
        let sizes = Sizes::of(&elf)?;
        let file = object::File::parse(&elf[..])?;
        let is_constant = |name: &str| {
            ["tl_bytes_", "tl_ints_", "tl_words_", "tl_floats_"]
                .iter()
                .any(|start| name.starts_with(start))
        };
        let constants = file.symbols().filter(|symbol| symbol.name().is_ok_and(is_constant));
        let constants: u64 = constants.map(|symbol| symbol.size()).sum();
        Ok([sizes.flash().saturating_sub(constants), sizes.ram()])
    }
}

/// Fails if figures exceed the recorded ones.
fn compare(found: &Limits, recorded: &Limits) -> Result<()> {
    let mut above = Vec::new();
    for (name, figures) in found {
        let known = recorded.get(name);
        for (what, number) in figures {
            let limit = known.and_then(|known| known.iter().find(|(known, _)| known == what));
            let Some((_, limit)) = limit else {
                bail!("{name} has no {what}: `cargo xtask c-programs --overwrite` records it");
            };
            if *number > limit + limit * TOLERANCE / 100 {
                above.push(format!("{name}: {what} {number}, more than {limit}"));
            }
        }
    }
    if above.is_empty() { Ok(()) } else { bail!("{}", above.join("\n")) }
}

/// The table of the figures' page.
fn table(found: &Limits) -> String {
    let mut text = String::from(
        "| program | processor | flash | RAM | instructions |\n|---|---|---|---|---|\n",
    );
    for chip in CHIPS {
        for (name, title) in MEASURED {
            let Some(figures) = found.get(&format!("{} {name}", chip.name)) else { continue };
            let numbers: Vec<String> = figures.iter().map(|(_, number)| grouped(*number)).collect();
            // Writing to a string does not fail.
            let _ = writeln!(text, "| {title} | {} | {} |", chip.name, numbers.join(" | "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_beyond_the_tolerance_fails() {
        let limits = |run| Limits::from([("chip it".to_owned(), vec![("run".to_owned(), run)])]);
        assert!(compare(&limits(110), &limits(100)).is_ok());
        assert!(compare(&limits(111), &limits(100)).is_err());
        assert!(compare(&limits(1), &Limits::new()).is_err());
    }
}
