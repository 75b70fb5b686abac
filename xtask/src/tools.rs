//! What the commands need beside cargo: how to find out that it is there, and how to get it.

use crate::process::{self, command, output, succeeds};
use anyhow::{Result, bail};

/// The targets that core and kernels are built for without an operating system.
pub(crate) const EMBEDDED_TARGETS: &[&str] =
    &["thumbv7em-none-eabihf", "thumbv6m-none-eabi", "riscv32imc-unknown-none-elf"];

/// Makes sure that the standard library of the embedded targets is there.
pub(crate) fn embedded_targets() -> Result<()> {
    let sysroot = output(command("rustc", &["--print", "sysroot"]))?;
    let libraries =
        std::path::PathBuf::from(String::from_utf8(sysroot)?.trim()).join("lib/rustlib");
    let missing: Vec<&str> = EMBEDDED_TARGETS
        .iter()
        .copied()
        .filter(|target| !libraries.join(target).join("lib").is_dir())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut args = vec!["target", "add"];
    args.extend(&missing);
    if !succeeds("rustup", &["--version"]) {
        bail!(
            "the Rust targets {missing:?} are missing: install rustup, then `rustup {}`",
            args.join(" ")
        );
    }
    process::run(command("rustup", &args))
}

/// Makes sure that there is a nightly toolchain with Miri. The error says why there is none.
pub(crate) fn miri() -> Result<()> {
    let present = || succeeds("rustup", &["run", "nightly", "cargo", "miri", "--version"]);
    if present() {
        return Ok(());
    }
    if !succeeds("rustup", &["--version"]) {
        bail!("Miri needs rustup, which is not installed");
    }
    let install =
        ["toolchain", "install", "nightly", "--profile", "minimal", "-c", "miri", "-c", "rust-src"];
    process::run(command("rustup", &install))?;
    if !present() {
        bail!("this nightly has no Miri; try `rustup {}` another day", install.join(" "));
    }
    Ok(())
}

/// Makes sure that QEMU for Arm is there.
pub(crate) fn qemu() -> Result<()> {
    program(
        "qemu-system-arm",
        "qemu-system-arm",
        "Fedora: `dnf install qemu-system-arm`; macOS: `brew install qemu`; \
         or leave the board out: `cargo xtask test --skip board`",
    )
}

/// Makes sure that the validator of SPIR-V is there.
pub(crate) fn spirv_val() -> Result<()> {
    program(
        "spirv-val",
        "spirv-tools",
        "Fedora: `dnf install spirv-tools`; macOS: `brew install spirv-tools`",
    )
}

/// Makes sure that there is a C++ compiler, for the compiler of shaders.
pub(crate) fn cpp_compiler() -> Result<()> {
    program("c++", "g++", "Fedora: `dnf install gcc-c++`; macOS: `xcode-select --install`")
}

/// Makes sure that a program is there that answers to `--version`, by installing Debian's package if need be.
fn program(name: &str, package: &str, elsewhere: &str) -> Result<()> {
    let present = || succeeds(name, &["--version"]);
    if present() {
        return Ok(());
    }
    apt_install(&[package]);
    if present() {
        return Ok(());
    }
    bail!("{name} is missing. Debian, Ubuntu: `apt-get install {package}`; {elsewhere}")
}

/// Installs Debian's packages where that is possible; the caller looks whether it was.
pub(crate) fn apt_install(packages: &[&str]) {
    if !succeeds("apt-get", &["--version"]) {
        return;
    }
    let is_root = output(command("id", &["-u"])).is_ok_and(|id| id.trim_ascii() == b"0");
    let (program, first): (&str, &[&str]) =
        if is_root { ("apt-get", &[]) } else { ("sudo", &["-n", "apt-get"]) };
    let apt = |args: &[&str]| {
        let mut apt = command(program, &[first, args].concat());
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        process::run(apt)
    };
    let install = [&["install", "--yes", "--no-install-recommends"], packages].concat();
    if apt(&install).is_err() {
        // A fresh machine has no list of packages yet.
        let _ = apt(&["update"]);
        let _ = apt(&install);
    }
}
