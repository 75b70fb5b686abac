//! Tools besides cargo: detection and installation.

use crate::process::{self, command, output, succeeds};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// Bare-metal targets of core and kernels.
pub(crate) const EMBEDDED_TARGETS: &[&str] =
    &["thumbv7em-none-eabihf", "thumbv6m-none-eabi", "riscv32imc-unknown-none-elf"];

/// Ensures that the standard library of the bare-metal targets is installed.
pub(crate) fn embedded_targets() -> Result<()> {
    targets(EMBEDDED_TARGETS)
}

/// Ensures that the standard library of these targets is installed.
pub(crate) fn targets(targets: &[&str]) -> Result<()> {
    let sysroot = output(command("rustc", &["--print", "sysroot"]))?;
    let libraries =
        std::path::PathBuf::from(String::from_utf8(sysroot)?.trim()).join("lib/rustlib");
    let missing: Vec<&str> = targets
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

/// Ensures that a toolchain is installed, with at least cargo and the compiler.
pub(crate) fn toolchain(name: &str) -> Result<()> {
    // Installing an existing toolchain would update it.
    if succeeds("rustup", &["run", name, "cargo", "--version"]) {
        return Ok(());
    }
    install_toolchain(name, &[])
}

/// Installs a toolchain; `extras` are additional arguments for rustup.
fn install_toolchain(name: &str, extras: &[&str]) -> Result<()> {
    if !succeeds("rustup", &["--version"]) {
        bail!("Rust {name} needs rustup, which is not installed");
    }
    let install = ["toolchain", "install", name, "--no-self-update", "--profile", "minimal"];
    process::run(command("rustup", &[&install, extras].concat()))
}

/// Ensures that a nightly toolchain with Miri is installed.
pub(crate) fn miri() -> Result<()> {
    let present = || succeeds("rustup", &["run", "nightly", "cargo", "miri", "--version"]);
    if present() {
        return Ok(());
    }
    install_toolchain("nightly", &["--component", "miri", "--component", "rust-src"])?;
    if !present() {
        bail!("this nightly has no Miri; try `rustup update nightly` another day");
    }
    Ok(())
}

/// Ensures that QEMU for Arm and RISC-V is installed.
pub(crate) fn qemu() -> Result<()> {
    for (name, package) in [
        ("qemu-system-arm", "qemu-system-arm"),
        ("qemu-system-aarch64", "qemu-system-arm"),
        ("qemu-system-riscv32", "qemu-system-misc"),
    ] {
        let fedora = name.replace("riscv32", "riscv");
        let elsewhere = format!(
            "Fedora: `dnf install {fedora}`; macOS: `brew install qemu`; \
             or skip the boards: `cargo xtask test --skip board`"
        );
        program(name, package, &elsewhere)?;
    }
    Ok(())
}

/// Ensures that the SPIR-V validator is installed.
pub(crate) fn spirv_val() -> Result<()> {
    program(
        "spirv-val",
        "spirv-tools",
        "Fedora: `dnf install spirv-tools`; macOS: `brew install spirv-tools`",
    )
}

/// Ensures that a C++ compiler is installed, for the shader compiler.
pub(crate) fn cpp_compiler() -> Result<()> {
    program("c++", "g++", "Fedora: `dnf install gcc-c++`; macOS: `xcode-select --install`")
}

/// Ensures that the tools for programs in C and C++ are installed.
pub(crate) fn c_toolchain() -> Result<()> {
    let elsewhere = "or skip C: `cargo xtask test --skip capi`";
    for (name, package) in [
        ("cc", "gcc"),
        ("c++", "g++"),
        ("cmake", "cmake"),
        ("make", "make"),
        ("pkg-config", "pkg-config"),
        ("valgrind", "valgrind"),
    ] {
        program(name, package, elsewhere)?;
    }
    Ok(())
}

/// Ensures that a Python with venv is installed.
pub(crate) fn python() -> Result<()> {
    // Debian has venv and pip in separate packages.
    let present = || {
        let wanted = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))";
        command("python3", &["-c", wanted]).output().is_ok_and(|output| output.status.success())
    };
    if present() {
        return Ok(());
    }
    apt_install(&["python3", "python3-venv"]);
    if !present() {
        bail!(
            "Python 3.11 or later with venv is missing. Debian, Ubuntu: `apt-get install python3 \
             python3-venv`; Fedora: `dnf install python3`; or skip Python: `cargo xtask test --skip \
             python`"
        );
    }
    Ok(())
}

/// Ensures that a C cross compiler, used as linker, and the C library of another system are
/// installed.
pub(crate) fn cross_compiler(name: &str, package: &str) -> Result<()> {
    if succeeds(name, &["--version"]) {
        return Ok(());
    }
    // Its C library is only a recommended package.
    let library = match package {
        "gcc-aarch64-linux-gnu" => "libc6-dev-arm64-cross",
        "gcc-arm-linux-gnueabihf" => "libc6-dev-armhf-cross",
        "gcc-riscv64-linux-gnu" => "libc6-dev-riscv64-cross",
        "gcc-i686-linux-gnu" => "libc6-dev-i386-cross",
        _ => package,
    };
    apt_install(&[package, library]);
    program(name, package, "package names on other systems are similar")
}

/// Emulator for Windows programs.
pub(crate) const WINE: &str = "wine";

/// Ensures that an emulator of another system is installed.
pub(crate) fn emulator(name: &str) -> Result<()> {
    let package = if name == WINE { "wine" } else { "qemu-user" };
    if name == WINE && !succeeds(name, &["--version"]) {
        apt_install(&["wine64"]);
    }
    program(name, package, &format!("Fedora: `dnf install {package}`"))
}

/// Rust's standard library gets random numbers from a Windows DLL that Wine has since version 9.
/// For older versions, builds a substitute and returns its folder.
pub(crate) fn wine_library(compiler: &str) -> Result<Option<PathBuf>> {
    let version = String::from_utf8(output(command(WINE, &["--version"]))?)?;
    let number = version.trim().trim_start_matches("wine-").split('.').next();
    if number.and_then(|number| number.parse().ok()).is_some_and(|major: u32| major >= 9) {
        return Ok(None);
    }
    let folder = process::target_dir().join("wine");
    std::fs::create_dir_all(&folder)?;
    let library = folder.join("bcryptprimitives.dll");
    let mut compile = command(compiler, &["-shared", "-O1", "xtask/src/wine/random.c", "-o"]);
    compile.arg(library).arg("-ladvapi32");
    process::run(compile)?;
    Ok(Some(folder))
}

/// Ensures that Node.js and npm are installed.
pub(crate) fn node() -> Result<()> {
    let elsewhere = "or skip the browser: `cargo xtask test --skip web`";
    program("node", "nodejs", elsewhere)?;
    program("npm", "npm", elsewhere)
}

/// Ensures that a Java development kit is installed.
pub(crate) fn jdk() -> Result<()> {
    let elsewhere = "or skip Java: `cargo xtask test --skip java`";
    // `java -version` of old versions has one dash, `javac --version` needs Java 9.
    program("javac", "default-jdk-headless", elsewhere)
}

/// Ensures that the Kotlin compiler is installed.
pub(crate) fn kotlin() -> Result<()> {
    let present = || succeeds("kotlinc", &["-version"]);
    if !present() {
        apt_install(&["kotlin"]);
    }
    match present() {
        true => Ok(()),
        false => bail!(
            "kotlinc is missing. Debian, Ubuntu: `apt-get install kotlin`; or skip Java: `cargo \
             xtask test --skip java`"
        ),
    }
}

/// Ensures that JUnit 4 is installed, and returns its jars.
pub(crate) fn junit() -> Result<Vec<PathBuf>> {
    let jars = || {
        let jars =
            ["junit4.jar", "hamcrest.jar"].map(|name| Path::new("/usr/share/java").join(name));
        jars.iter().all(|jar| jar.is_file()).then(|| jars.to_vec())
    };
    if let Some(jars) = jars() {
        return Ok(jars);
    }
    apt_install(&["junit4"]);
    match jars() {
        Some(jars) => Ok(jars),
        None => bail!(
            "JUnit 4 is missing. Debian, Ubuntu: `apt-get install junit4`; or skip Java: `cargo \
             xtask test --skip java`"
        ),
    }
}

/// Ensures that codespell is installed.
pub(crate) fn codespell() -> Result<()> {
    program("codespell", "codespell", "elsewhere: `pip install codespell`")
}

/// Ensures that Chromium or a relative is installed, and returns its name.
pub(crate) fn chromium() -> Result<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = || names.into_iter().find(|name| succeeds(name, &["--version"]));
    if let Some(name) = found() {
        return Ok(name);
    }
    apt_install(&["chromium"]);
    match found() {
        Some(name) => Ok(name),
        None => bail!(
            "Chromium is missing. Debian: `apt-get install chromium`; or skip the browser: `cargo \
             xtask test --skip web`"
        ),
    }
}

/// Ensures that the tools for firmware in C are installed.
pub(crate) fn arm_toolchain() -> Result<()> {
    embedded_targets()?;
    let elsewhere = "or skip firmware in C: `cargo xtask test --skip c-board`";
    program("cmake", "cmake", elsewhere)?;
    program("make", "make", elsewhere)?;
    program("qemu-system-arm", "qemu-system-arm", elsewhere)?;
    program("arm-none-eabi-gcc", "gcc-arm-none-eabi", elsewhere)?;
    let specs = "-print-file-name=nano.specs";
    let has_newlib = || {
        let found = output(command("arm-none-eabi-gcc", &[specs]));
        found.is_ok_and(|path| path.starts_with(b"/"))
    };
    if !has_newlib() {
        apt_install(&["libnewlib-arm-none-eabi"]);
    }
    if !has_newlib() {
        bail!(
            "newlib for Arm is missing. Debian, Ubuntu: `apt-get install \
             libnewlib-arm-none-eabi`; {elsewhere}"
        );
    }
    Ok(())
}

/// Ensures that a program that responds to `--version` is installed; tries Debian's package if not.
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

/// Requirements of Vulkan tests without a GPU.
pub(crate) struct SoftwareVulkan {
    /// Manifest of the software driver, for the Vulkan loader.
    pub(crate) driver: PathBuf,
}

/// Ensures that a software driver (lavapipe) and the validation layers are installed.
pub(crate) fn software_vulkan() -> Result<SoftwareVulkan> {
    if find_vulkan("icd.d", "lvp_icd").is_none() || find_vulkan(LAYERS, VALIDATION).is_none() {
        apt_install(&["mesa-vulkan-drivers", "vulkan-validationlayers"]);
    }
    let Some(driver) = find_vulkan("icd.d", "lvp_icd") else {
        bail!(
            "the software driver lavapipe is missing. Debian, Ubuntu: `apt-get install \
             mesa-vulkan-drivers`; Fedora: `dnf install mesa-vulkan-drivers`"
        );
    };
    if find_vulkan(LAYERS, VALIDATION).is_none() {
        bail!(
            "Vulkan's validation layers are missing. Debian, Ubuntu: `apt-get install \
             vulkan-validationlayers`; Fedora: `dnf install vulkan-validation-layers`"
        );
    }
    Ok(SoftwareVulkan { driver })
}

const LAYERS: &str = "explicit_layer.d";
const VALIDATION: &str = "VkLayer_khronos_validation";

/// The first manifest of this kind in the Vulkan loader's folders whose name starts so.
fn find_vulkan(kind: &str, start: &str) -> Option<PathBuf> {
    let folders = ["/usr/share/vulkan", "/usr/local/share/vulkan", "/etc/vulkan"];
    let files = folders.iter().filter_map(|folder| Path::new(folder).join(kind).read_dir().ok());
    files
        .flatten()
        .filter_map(|file| Some(file.ok()?.path()))
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start)))
}

/// Tries to install Debian packages; the caller checks the result.
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
        // A fresh machine has no package lists yet.
        let _ = apt(&["update"]);
        let _ = apt(&install);
    }
}
