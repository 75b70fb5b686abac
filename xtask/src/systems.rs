//! Other systems: tested in an emulator if one exists, otherwise compiled.

use crate::process::{self, cargo, command, root, target_dir};
use crate::tools;
use anyhow::{Result, bail};
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Targets to try [default: all]
    targets: Vec<String>,
}

/// How a system is tested.
enum How {
    /// Tests of core and kernels, and the command on real programs, in an emulator.
    Run { linker: &'static str, package: &'static str, runner: &'static [&'static str] },
    /// Libraries and command are compiled but not linked, which would need the system's own tools.
    Compile,
    /// The command is linked statically and runs here.
    Static,
    /// The core refuses to compile for this processor.
    Refuse,
}

struct System {
    target: &'static str,
    how: How,
}

const fn run(
    target: &'static str,
    [linker, package]: [&'static str; 2],
    runner: &'static [&'static str],
) -> System {
    System { target, how: How::Run { linker, package, runner } }
}

const SYSTEMS: &[System] = &[
    run(
        "aarch64-unknown-linux-gnu",
        ["aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"],
        &["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"],
    ),
    run(
        "armv7-unknown-linux-gnueabihf",
        ["arm-linux-gnueabihf-gcc", "gcc-arm-linux-gnueabihf"],
        &["qemu-arm", "-L", "/usr/arm-linux-gnueabihf"],
    ),
    run(
        "riscv64gc-unknown-linux-gnu",
        ["riscv64-linux-gnu-gcc", "gcc-riscv64-linux-gnu"],
        &["qemu-riscv64", "-L", "/usr/riscv64-linux-gnu"],
    ),
    // No emulator is needed: x86-64 processors run 32-bit code.
    run(
        "i686-unknown-linux-gnu",
        ["i686-linux-gnu-gcc", "gcc-i686-linux-gnu"],
        &["/usr/i686-linux-gnu/lib/ld-linux.so.2", "--library-path", "/usr/i686-linux-gnu/lib"],
    ),
    run(
        "x86_64-pc-windows-gnu",
        ["x86_64-w64-mingw32-gcc", "gcc-mingw-w64-x86-64"],
        &[tools::WINE],
    ),
    System { target: "aarch64-apple-darwin", how: How::Compile },
    System { target: "aarch64-apple-ios", how: How::Compile },
    System { target: "aarch64-linux-android", how: How::Compile },
    System { target: "x86_64-unknown-linux-musl", how: How::Static },
    System { target: "s390x-unknown-linux-gnu", how: How::Refuse },
];

/// Systems to compile for with every change: one without Unix interfaces, another Unix, and a
/// 32-bit host.
const DEFAULT_TARGETS: &[&str] =
    &["aarch64-apple-darwin", "x86_64-pc-windows-gnu", "i686-unknown-linux-gnu"];

/// Programs to verify as exported: compiled, they round less often than PyTorch.
const AS_EXPORTED: &[&str] = &["digits/digits_bf16.bpte", "digits/digits_half.bpte"];

/// Programs to verify compiled: with and without the engine, quantized, and with state.
const PROGRAMS: &[&str] = &[
    "digits/digits.bpte",
    "digits/digits_int8.bpte",
    "digits/digits_dynamic_batch.bpte",
    "models/bert.bpte",
    "models/gru_streaming.bpte",
    "models/lstm.bpte",
    "models/mobilenet_v2.bpte",
];

pub(crate) fn run_all(options: &Options) -> Result<()> {
    let is_known = |name: &String| SYSTEMS.iter().any(|system| system.target == name);
    if let Some(name) = options.targets.iter().find(|name| !is_known(name)) {
        let known: Vec<&str> = SYSTEMS.iter().map(|system| system.target).collect();
        bail!("no check for {name}; expected one of {}", known.join(", "));
    }
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for system in SYSTEMS {
        if !options.targets.is_empty() && !options.targets.iter().any(|it| it == system.target) {
            continue;
        }
        println!("\n== {}", system.target);
        let result = match try_one(system) {
            Ok(()) => system.how.result().to_owned(),
            Err(error) => {
                failed.push(system.target);
                format!("FAILED: {error:#}")
            }
        };
        rows.push(format!("| `{}` | {result} |", system.target));
    }
    println!("\n| system | |\n|---|---|\n{}", rows.join("\n"));
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

/// Compiles for the systems of every change, and checks that the core refuses the unsupported one.
pub(crate) fn compile() -> Result<()> {
    tools::targets(DEFAULT_TARGETS)?;
    DEFAULT_TARGETS.iter().try_for_each(|target| check(target, LIBRARY))?;
    let mut refused = SYSTEMS.iter().filter(|system| matches!(system.how, How::Refuse));
    refused.try_for_each(|system| refuse(system.target))
}

impl How {
    /// Result in the table.
    fn result(&self) -> &'static str {
        match self {
            How::Run { .. } => "run",
            How::Compile => "compiled",
            How::Static => "run, without any library",
            How::Refuse => "compilation fails as expected",
        }
    }
}

fn try_one(system: &System) -> Result<()> {
    tools::targets(&[system.target])?;
    match system.how {
        How::Run { linker, package, runner } => {
            tools::cross_compiler(linker, package)?;
            if !runner[0].starts_with('/') {
                tools::emulator(runner[0])?;
            }
            let beside = if runner[0] == tools::WINE { tools::wine_library(linker)? } else { None };
            let with = |mut cargo: Command| {
                if let Some(folder) = &beside {
                    cargo.env("WINEPATH", folder);
                }
                let name = system.target.to_uppercase().replace('-', "_");
                cargo.env(format!("CARGO_TARGET_{name}_LINKER"), linker);
                cargo.env(format!("CARGO_TARGET_{name}_RUNNER"), runner.join(" "));
                // Wine logs verbosely.
                cargo.env("WINEDEBUG", "-all");
                cargo
            };
            let test = ["test", "--quiet", "--no-fail-fast", "--tests", "--target", system.target];
            let packages = ["--package", "torchlet-core", "--package", "torchlet-portable"];
            let all = [&test[..], &packages, &["--features", "torchlet-portable/engine"]];
            process::run(with(cargo(&all.concat())))?;
            verify(system.target, &with)
        }
        How::Compile => check(system.target, COMMAND),
        How::Static => {
            // Rust ships musl; nothing of this machine's C library may be linked.
            verify(system.target, &|cargo| cargo)?;
            let built = target_dir().join(system.target).join("debug/torchlet");
            let kind = process::output(command("readelf", &["-l", &built.to_string_lossy()]))?;
            if String::from_utf8_lossy(&kind).contains("INTERP") {
                bail!("{} is not static", built.display());
            }
            Ok(())
        }
        How::Refuse => refuse(system.target),
    }
}

/// Verifies programs with PyTorch's outputs.
fn verify(target: &str, with: &dyn Fn(Command) -> Command) -> Result<()> {
    let run = ["run", "--quiet", "--package", "torchlet-cli", "--no-default-features"];
    for (backend, programs) in [("auto", PROGRAMS), ("as-exported", AS_EXPORTED)] {
        let mut verify = with(cargo(&[&run[..], &["--target", target, "--"]].concat()));
        verify.args(["verify", "--rtol", "1e-4", "--atol", "1e-5", "--backend", backend]);
        verify.args(programs.iter().map(|name| format!("tests/fixtures/{name}")));
        process::run(verify)?;
    }
    Ok(())
}

/// Package and features of the library and the command, with GPUs.
const LIBRARY: [&str; 2] = ["torchlet", "portable,vulkan,webgpu"];
const COMMAND: [&str; 2] = ["torchlet-cli", "vulkan,webgpu"];

/// Checks that a package compiles with some features.
fn check(target: &str, [package, features]: [&str; 2]) -> Result<()> {
    let check = ["check", "--quiet", "--target", target, "--no-default-features"];
    process::run(cargo(&[&check[..], &["--package", package, "--features", features]].concat()))
}

/// Checks that the core refuses to compile for a processor, with the right message.
fn refuse(target: &str) -> Result<()> {
    tools::targets(&[target])?;
    let mut check = cargo(&["check", "--quiet", "--package", "torchlet-core", "--target", target]);
    let output = check.current_dir(root()).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.success() || !text.contains("big-endian processors are not supported") {
        bail!("core compiles for {target}, or fails with another error: {text}");
    }
    println!("{target}: compilation fails, because core requires little-endian processors");
    Ok(())
}
