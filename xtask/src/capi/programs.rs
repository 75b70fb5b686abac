//! Tests programs in C and C++ with an installed library, found by CMake and pkg-config, under
//! sanitizers and Valgrind.

use super::firmware;
use crate::process::{self, command, root, target_dir};
use crate::tools;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folder of all builds and of the installation.
fn folder() -> PathBuf {
    target_dir().join("capi")
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Configures and builds a folder with CMake.
fn cmake(source: &str, build: &Path, definitions: &[String]) -> Result<()> {
    let mut configure = command("cmake", &["-S", source, "-B", &text(build), "-Wno-dev"]);
    configure.args(definitions.iter().map(|definition| format!("-D{definition}")));
    process::run(configure)?;
    process::run(command("cmake", &["--build", &text(build), "--parallel", "2"]))
}

pub(super) fn run() -> Result<()> {
    tools::c_toolchain()?;
    let prefix = install()?;
    let found_by = format!("CMAKE_PREFIX_PATH={}", prefix.display());
    examples(&prefix, &found_by)?;
    let fixtures = format!("FIXTURES={}", root().join("tests/fixtures").display());
    // Valgrind checks an optimized build for uninitialized memory; sanitizers check the rest.
    for (name, sanitize) in [("plain", "OFF"), ("sanitized", "ON")] {
        let build = folder().join(name);
        let sanitize = format!("SANITIZE={sanitize}");
        cmake("capi/tests", &build, &[found_by.clone(), fixtures.clone(), sanitize])?;
        process::run(command(
            "ctest",
            &["--test-dir", &text(&build), "--output-on-failure", "--no-tests=error"],
        ))?;
    }
    for test in ["runtime", "errors", "kernels", "together", "module", "low_level"] {
        let leaks = ["--leak-check=full", "--errors-for-leak-kinds=definite"];
        process::run(valgrind(&leaks, test, &[]))?;
    }
    // Helgrind does not understand the standard library's locks, which modules use.
    process::run(valgrind(&["--tool=helgrind"], "threads", &["runtime"]))?;
    Ok(())
}

/// Runs a test under a Valgrind tool.
fn valgrind(tool: &[&str], test: &str, arguments: &[&str]) -> Command {
    let mut valgrind = command("valgrind", &["--quiet", "--error-exitcode=9"]);
    valgrind.args(tool).arg(folder().join("plain").join(test));
    valgrind.arg(root().join("tests/fixtures")).args(arguments);
    valgrind
}

/// Builds and installs the library; returns the prefix. It cannot share the build of the other
/// tests: their feature set contains `defmt`, which links on firmware only.
fn install() -> Result<PathBuf> {
    let (build, prefix) = (folder().join("build"), folder().join("prefix"));
    // Stale files of an earlier version would be found.
    if prefix.is_dir() {
        std::fs::remove_dir_all(&prefix)?;
    }
    let definitions = [
        "TORCHLET_PROFILE=dev".to_owned(),
        "TORCHLET_EXAMPLES=OFF".to_owned(),
        format!("TORCHLET_CARGO_TARGET_DIR={}", target_dir().display()),
        // Differs from the actual prefix, because packagers choose it at installation.
        format!("CMAKE_INSTALL_PREFIX={}", folder().join("elsewhere").display()),
        "CMAKE_INSTALL_LIBDIR=lib".to_owned(),
    ];
    cmake("capi", &build, &definitions)?;
    process::run(command("cmake", &["--install", &text(&build), "--prefix", &text(&prefix)]))?;
    Ok(prefix)
}

/// Builds the examples with CMake (static), and one with pkg-config (shared). All must classify the
/// image as a two, with the firmware's logits.
fn examples(prefix: &Path, found_by: &str) -> Result<()> {
    let build = folder().join("examples");
    cmake("capi/examples", &build, &[found_by.to_owned()])?;
    let digits = root().join("tests/fixtures/digits");
    let run = |program: &Path| {
        let mut run = command(&text(program), &[]);
        run.arg(digits.join("digits.pte")).arg(digits.join("image_2.npy"));
        run.env("LD_LIBRARY_PATH", prefix.join("lib"));
        let printed = String::from_utf8(process::output(run)?)?;
        firmware::compare_logits(&printed).with_context(|| format!("{}", program.display()))
    };
    for example in ["classify", "caller_memory", "classify_cpp"] {
        run(&build.join(example))?;
    }
    let mut flags = command("pkg-config", &["--cflags", "--libs", "torchlet"]);
    flags.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let flags = String::from_utf8(process::output(flags)?)?;
    let is_found = flags.contains("-ltorchlet") && !flags.contains("elsewhere");
    ensure!(is_found, "pkg-config did not find the installed library: {flags}");
    let program = folder().join("classify_shared");
    let mut cc = command("cc", &["-std=c11", "-O1", "capi/examples/classify.c", "-o"]);
    cc.arg(&program).args(flags.split_whitespace());
    process::run(cc)?;
    run(&program)
}
