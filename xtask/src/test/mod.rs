//! The one test command: a list of steps, each of which can be run alone.

use crate::process::{self, cargo, command, output};
use crate::tools::{self, EMBEDDED_TARGETS};
use crate::{board, deps, shaders, size, vulkan};
use anyhow::{Result, bail};
use serde_json::Value;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The steps to run; all if none is named
    steps: Vec<String>,
    /// Steps to leave out
    #[arg(long)]
    skip: Vec<String>,
    /// Lists the steps
    #[arg(long)]
    list: bool,
}

/// How a step ended without failing.
enum Outcome {
    Passed,
    /// It could not run here, for this reason.
    NotRun(String),
}

struct Step {
    name: &'static str,
    about: &'static str,
    run: fn() -> Result<Outcome>,
}

/// In order: quick ones first, and last the tests, so that cargo's results end the output.
const STEPS: &[Step] = &[
    Step { name: "fmt", about: "the formatting is rustfmt's", run: fmt },
    Step {
        name: "deps",
        about: "licences, sources and duplicates of dependencies",
        run: deps_step,
    },
    Step {
        name: "shaders",
        about: "the shader modules are valid and what their sources compile to",
        run: shaders_step,
    },
    Step { name: "clippy", about: "no warnings, with every combination of features", run: clippy },
    Step { name: "doc", about: "the documentation builds without warnings", run: doc },
    Step { name: "no-std", about: "core and kernels build for microcontrollers", run: no_std },
    Step { name: "size", about: "core stays within its flash budget", run: size_step },
    Step {
        name: "board",
        about: "the firmware runs in QEMU and prints what it should",
        run: board_step,
    },
    Step {
        name: "vulkan",
        about: "the Vulkan tests on a software driver, under validation layers",
        run: vulkan_step,
    },
    Step { name: "miri", about: "core's tests under Miri", run: miri },
    Step { name: "test", about: "the tests of the workspace, but for those on Vulkan", run: test },
];

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.list {
        for step in STEPS {
            println!("{:<8} {}", step.name, step.about);
        }
        return Ok(());
    }
    for name in options.steps.iter().chain(&options.skip) {
        if !STEPS.iter().any(|step| step.name == name) {
            bail!("there is no step {name}; `cargo xtask test --list` lists them");
        }
    }
    let chosen = STEPS.iter().filter(|step| {
        let named = |names: &[String]| names.iter().any(|name| name == step.name);
        (options.steps.is_empty() || named(&options.steps)) && !named(&options.skip)
    });
    let chosen: Vec<&Step> = chosen.collect();
    let begin = Instant::now();
    // Miri uses one processor for minutes and builds to a folder of its own: the other steps need not wait for it.
    let mut beside = chosen
        .iter()
        .find(|step| step.name == "miri" && chosen.len() > 1)
        .and_then(|step| Beside::start(step.name).ok());
    let (mut summary, mut failed) = (Vec::new(), Vec::new());
    for step in chosen {
        println!("\n== {}: {}", step.name, step.about);
        let start = Instant::now();
        let result = match beside.take_if(|beside| beside.name == step.name) {
            Some(beside) => beside.finish(),
            None => (step.run)(),
        };
        let result = match result {
            Ok(Outcome::Passed) => "ok".to_owned(),
            Ok(Outcome::NotRun(why)) => format!("NOT RUN: {why}"),
            Err(error) => {
                failed.push(step.name);
                format!("FAILED: {error:#}")
            }
        };
        let line = format!("{:<8} {:>6.1} s  {result}", step.name, start.elapsed().as_secs_f64());
        println!("== {line}");
        summary.push(line);
    }
    println!("\n{}\nall      {:>6.1} s", summary.join("\n"), begin.elapsed().as_secs_f64());
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

/// A step that runs in a process of its own, beside the others.
struct Beside {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Beside {
    fn start(name: &'static str) -> Result<Self> {
        let log = process::target_dir().join(format!("xtask-{name}.log"));
        let file = File::create(&log)?;
        let program = std::env::current_exe()?;
        let mut step = command(&program.to_string_lossy(), &["test", name]);
        step.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        Ok(Beside { name, child: step.spawn()?, log })
    }

    /// Waits for the end and shows what the step printed.
    fn finish(mut self) -> Result<Outcome> {
        let status = self.child.wait()?;
        let text = std::fs::read_to_string(&self.log)?;
        println!("{text}");
        if !status.success() {
            bail!("{status}");
        }
        let not_run = text.lines().find_map(|line| line.split_once("NOT RUN: "));
        Ok(not_run.map_or(Outcome::Passed, |(_, why)| Outcome::NotRun(why.to_owned())))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // Only a run that ended early leaves a step running; an error would mean that it has ended.
        let _ = self.child.kill();
    }
}

fn fmt() -> Result<Outcome> {
    process::run(cargo(&["fmt", "--all", "--check"]))?;
    for board in board::workspaces()? {
        let mut fmt = cargo(&["fmt", "--check"]);
        process::run({
            fmt.current_dir(board);
            fmt
        })?;
    }
    Ok(Outcome::Passed)
}

fn deps_step() -> Result<Outcome> {
    deps::run()?;
    Ok(Outcome::Passed)
}

fn shaders_step() -> Result<Outcome> {
    Ok(shaders::check()?.map_or(Outcome::Passed, Outcome::NotRun))
}

/// The name and features, without `default`, of every package in the workspace.
fn packages() -> Result<Vec<(String, Vec<String>)>> {
    let metadata = output(cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_slice(&metadata)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let packages = packages.map(|package| {
        let features = package["features"].as_object().into_iter().flatten();
        let features = features.map(|(name, _)| name.clone()).filter(|name| name != "default");
        (package["name"].as_str().unwrap_or_default().to_owned(), features.collect())
    });
    Ok(packages.collect())
}

/// All subsets of the features where they are few, else each alone, none and all.
fn combinations(features: &[String]) -> Vec<Vec<&str>> {
    let features: Vec<&str> = features.iter().map(String::as_str).collect();
    if features.len() <= 4 {
        let chosen = |bits: usize| {
            let chosen = features.iter().enumerate().filter(move |(bit, _)| bits >> bit & 1 == 1);
            chosen.map(|(_, feature)| *feature).collect()
        };
        return (0..1 << features.len()).map(chosen).collect();
    }
    let mut sets = vec![Vec::new()];
    sets.extend(features.iter().map(|feature| vec![*feature]));
    sets.push(features);
    sets
}

fn clippy() -> Result<Outcome> {
    let deny = ["--", "--deny", "warnings"];
    let everything = ["clippy", "--quiet", "--workspace", "--all-targets", "--all-features"];
    process::run(cargo(&[&everything[..], &deny].concat()))?;
    process::run(cargo(
        &[&["clippy", "--quiet", "--workspace", "--all-targets"][..], &deny].concat(),
    ))?;
    for (package, features) in packages()? {
        if features.is_empty() {
            continue;
        }
        for set in combinations(&features) {
            let set = set.join(",");
            let one = ["clippy", "--quiet", "--package", &package, "--no-default-features"];
            process::run(cargo(&[&one[..], &["--features", &set], &deny].concat()))?;
        }
    }
    Ok(Outcome::Passed)
}

fn doc() -> Result<Outcome> {
    let mut doc = cargo(&["doc", "--quiet", "--workspace", "--no-deps", "--all-features"]);
    doc.env("RUSTDOCFLAGS", "--deny warnings");
    process::run(doc)?;
    Ok(Outcome::Passed)
}

fn no_std() -> Result<Outcome> {
    tools::embedded_targets()?;
    for target in EMBEDDED_TARGETS {
        let packages = ["--package", "torchlet-core", "--package", "torchlet-portable"];
        // That it compiles is the question; optimising takes minutes.
        let plain = ["--config", "profile.dev.package.torchlet-portable.opt-level=0"];
        let build = ["build", "--quiet", "--no-default-features", "--target", target];
        process::run(cargo(&[&build[..], &plain, &packages].concat()))?;
    }
    // The facade, as a firmware would depend on it.
    let facade = ["check", "--quiet", "--package", "torchlet", "--no-default-features"];
    let target = ["--features", "portable", "--target", EMBEDDED_TARGETS[0]];
    process::run(cargo(&[&facade[..], &target].concat()))?;
    Ok(Outcome::Passed)
}

fn size_step() -> Result<Outcome> {
    size::run(&size::Options::default())?;
    Ok(Outcome::Passed)
}

fn board_step() -> Result<Outcome> {
    board::run(&board::Options::default())?;
    Ok(Outcome::Passed)
}

fn miri() -> Result<Outcome> {
    if let Err(error) = tools::miri() {
        return Ok(Outcome::NotRun(error.to_string()));
    }
    let mut miri = command("rustup", &["run", "nightly", "cargo", "miri", "test"]);
    miri.args(["--package", "torchlet-core", "--lib", "--tests"]);
    // Tests read fixtures; pointers are checked strictly; a sine is the same each time, as on a processor.
    let flags =
        ["-Zmiri-disable-isolation", "-Zmiri-strict-provenance", "-Zmiri-deterministic-floats"];
    miri.env("MIRIFLAGS", flags.join(" "));
    miri.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("RUSTC");
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
    let mut test = cargo(&["test", "--workspace", "--all-features", "--no-fail-fast"]);
    test.env(vulkan::TEST_VARIABLE, "off");
    process::run(test)?;
    Ok(Outcome::Passed)
}
