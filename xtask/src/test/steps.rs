//! Test steps.
//!
//! Everything that runs on this machine is built with [`process::EVERYTHING`], so that it is built
//! once. If compiling is the test, code is checked instead of built.

use super::features;
use crate::process::{self, EVERYTHING, cargo, cargo_of, root};
use crate::tools::{self, EMBEDDED_TARGETS};
use crate::{
    api, arduino, bench, board, book, c_programs, capi, deps, java, modules, msrv, python, shaders,
    size, systems, vulkan, web, width,
};
use anyhow::{Context, Result};

/// Result of a step that did not fail.
pub(super) enum Outcome {
    Passed,
    /// The step cannot run here, for this reason.
    NotRun(String),
}

pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Whether it runs in the background: such steps keep one processor busy for long, and build to
    /// separate folders.
    pub(super) is_background: bool,
    pub(super) run: fn() -> Result<Outcome>,
}

/// In order: fast steps first and the tests last, so that cargo's results end the output.
pub(super) const STEPS: &[Step] = &[
    step("fmt", "rustfmt, and prose of at most 100 columns", fmt),
    step("deps", "licences, sources and duplicates of dependencies; cycles of modules", deps_step),
    step("book", "spelling; with mdBook, also the links between the book's pages", book_step),
    background("miri", "tests of core under Miri", miri),
    background("size", "flash budget of core", size_step),
    background("board", "firmware in QEMU: its log matches the expected one", board_step),
    background(
        "c-board",
        "firmware in C and Arduino sketches in QEMU; compiled programs in C",
        c_board_step,
    ),
    step("clippy", "no warnings without features, with each feature alone, and with all", clippy),
    step("msrv", "the libraries compile with the minimum supported Rust version", msrv_step),
    step("api", "the public API of the libraries matches api/", api_step),
    step("doc", "the documentation builds without warnings", doc),
    step("no-std", "core and kernels compile for microcontrollers without warnings", no_std),
    step(
        "systems",
        "the library compiles for other systems; core rejects unsupported processors",
        systems_step,
    ),
    step("capi", "the C header is up to date; C and C++ programs use the library", capi_step),
    step("python", "build and tests of the Python package", python_step),
    step("java", "the jar and its tests on the JVM", java_step),
    step("web", "the JavaScript package and its page, in Node and in a browser", web_step),
    step("shaders", "the shader modules are valid and match their sources", shaders_step),
    step("vulkan", "the Vulkan tests on a software driver with validation layers", vulkan_step),
    step("test", "the tests of the workspace, except for Vulkan", test),
];

const fn step(name: &'static str, about: &'static str, run: fn() -> Result<Outcome>) -> Step {
    Step { name, about, is_background: false, run }
}

const fn background(name: &'static str, about: &'static str, run: fn() -> Result<Outcome>) -> Step {
    Step { name, about, is_background: true, run }
}

fn fmt() -> Result<Outcome> {
    process::run(cargo(&["fmt", "--all", "--check"]))?;
    let mut others = board::workspaces()?;
    others.extend(["fuzz", "java", "python", "web", "web/bind"].map(|folder| root().join(folder)));
    for workspace in others {
        let mut fmt = cargo(&["fmt", "--check"]);
        fmt.current_dir(workspace);
        process::run(fmt)?;
    }
    width::check()?;
    Ok(Outcome::Passed)
}

fn deps_step() -> Result<Outcome> {
    modules::run(&modules::Options::default())?;
    deps::run(&deps::Options::default())?;
    Ok(Outcome::Passed)
}

fn book_step() -> Result<Outcome> {
    if let Err(error) = tools::codespell() {
        return Ok(Outcome::NotRun(error.to_string()));
    }
    book::check()?;
    Ok(Outcome::Passed)
}

fn shaders_step() -> Result<Outcome> {
    Ok(shaders::check()?.map_or(Outcome::Passed, Outcome::NotRun))
}

/// Last arguments of each Clippy call.
const DENY: &[&str] = &["--", "--deny", "warnings"];

fn clippy() -> Result<Outcome> {
    let all = ["clippy", "--quiet", "--all-targets"];
    process::run(cargo(&[&all[..], EVERYTHING, DENY].concat()))?;
    // The build script of `compiled-programs` would compile optimized kernels once more, and the
    // crate has no features.
    let others = ["--workspace", "--exclude", "compiled-programs"];
    process::run(cargo(&[&all[..], &others, DENY].concat()))?;
    // Clippy instead of `check`: it shares artifacts with the calls above, and denies warnings
    // without compiler flags that would rebuild all dependencies.
    for set in features::sets()? {
        let one = ["clippy", "--quiet", "--package", &set.package, "--no-default-features"];
        process::run(cargo(&[&one[..], &["--features", &set.features], DENY].concat()))?;
    }
    Ok(Outcome::Passed)
}

fn msrv_step() -> Result<Outcome> {
    msrv::run()?;
    Ok(Outcome::Passed)
}

fn api_step() -> Result<Outcome> {
    api::run(&api::Options::default())?;
    Ok(Outcome::Passed)
}

fn doc() -> Result<Outcome> {
    let mut doc = cargo(&[&["doc", "--quiet", "--no-deps"][..], EVERYTHING].concat());
    doc.env("RUSTDOCFLAGS", "--deny warnings");
    process::run(doc)?;
    Ok(Outcome::Passed)
}

fn no_std() -> Result<Outcome> {
    tools::embedded_targets()?;
    // The board steps test linking and running.
    for target in EMBEDDED_TARGETS {
        let packages = ["torchlet-capi", "torchlet-core", "torchlet-graph", "torchlet-portable"]
            .map(|name| ["--package", name]);
        let packages = packages.concat();
        // Clippy instead of `check`: some code is compiled for these targets only.
        let clippy = ["clippy", "--quiet", "--no-default-features", "--target", target];
        process::run(cargo(&[&clippy[..], &packages, DENY].concat()))?;
    }
    // Code for Helium (Arm's vector extension for microcontrollers).
    let helium = "thumbv8m.main-none-eabihf";
    tools::targets(&[helium])?;
    let clippy = ["clippy", "--quiet", "--no-default-features", "--target", helium];
    let mut clippy = cargo(&[&clippy[..], &["--package", "torchlet-portable"], DENY].concat());
    clippy.env("RUSTFLAGS", "-Ctarget-cpu=cortex-m55");
    process::run(clippy)?;
    // The facade crate, as a dependency of firmware.
    let facade = ["check", "--quiet", "--package", "torchlet", "--no-default-features"];
    let target = ["--features", "portable", "--target", EMBEDDED_TARGETS[0]];
    process::run(cargo(&[&facade[..], &target].concat()))?;
    Ok(Outcome::Passed)
}

fn systems_step() -> Result<Outcome> {
    systems::compile()?;
    Ok(Outcome::Passed)
}

fn size_step() -> Result<Outcome> {
    size::run(&size::Options::default())?;
    Ok(Outcome::Passed)
}

fn board_step() -> Result<Outcome> {
    if let Err(error) = tools::qemu() {
        return Ok(Outcome::NotRun(error.to_string()));
    }
    board::run(&board::Options::default())?;
    bench::layers(&bench::LayerOptions::default())?;
    Ok(Outcome::Passed)
}

fn c_board_step() -> Result<Outcome> {
    if let Err(error) = tools::arm_toolchain() {
        return Ok(Outcome::NotRun(error.to_string()));
    }
    capi::firmware::run(false)?;
    arduino::test()?;
    c_programs::run(&c_programs::Options::default())?;
    Ok(Outcome::Passed)
}

fn capi_step() -> Result<Outcome> {
    if let Err(error) = tools::c_toolchain() {
        return Ok(Outcome::NotRun(error.to_string()));
    }
    capi::run(&capi::Options::default())?;
    Ok(Outcome::Passed)
}

fn python_step() -> Result<Outcome> {
    if let Err(error) = python::check() {
        return Ok(Outcome::NotRun(error.to_string()));
    }
    python::run()?;
    Ok(Outcome::Passed)
}

fn java_step() -> Result<Outcome> {
    if let Err(error) = java::check() {
        return Ok(Outcome::NotRun(error.to_string()));
    }
    java::test()?;
    Ok(Outcome::Passed)
}

fn web_step() -> Result<Outcome> {
    if let Err(error) = web::check() {
        return Ok(Outcome::NotRun(error.to_string()));
    }
    web::test()?;
    Ok(Outcome::Passed)
}

fn miri() -> Result<Outcome> {
    if let Err(error) = tools::miri() {
        return Ok(Outcome::NotRun(error.to_string()));
    }
    let mut miri =
        cargo_of("nightly", &["miri", "test", "--package", "torchlet-core", "--lib", "--tests"]);
    // Isolation is disabled because tests read fixtures. Provenance is checked strictly. Floats are
    // deterministic, as on a processor.
    let flags =
        ["-Zmiri-disable-isolation", "-Zmiri-strict-provenance", "-Zmiri-deterministic-floats"];
    miri.env("MIRIFLAGS", flags.join(" "));
    process::run(miri)?;
    Ok(Outcome::Passed)
}

fn vulkan_step() -> Result<Outcome> {
    let software = match tools::software_vulkan() {
        Ok(software) => software,
        Err(error) => return Ok(Outcome::NotRun(error.to_string())),
    };
    vulkan::run(&software)?;
    Ok(Outcome::Passed)
}

fn test() -> Result<Outcome> {
    let mut test = cargo(&[&["test", "--no-fail-fast"][..], EVERYTHING].concat());
    test.env(vulkan::TEST_VARIABLE, "off");
    let mut failed = Vec::new();
    let result = process::watch(test, |line| {
        if let Some(name) =
            line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED"))
        {
            failed.push(name.to_owned());
        }
    });
    result.with_context(|| format!("failed tests: {}", failed.join(", ")))?;
    Ok(Outcome::Passed)
}
