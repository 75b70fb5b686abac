//! The Vulkan tests on a software driver with the Khronos validation layers. Any message of the
//! layers is a failure.
//!
//! Each integration test runs in a separate process. A software driver slows down with every device
//! and pipeline that its process has created: a single process for all tests costs 70 % more
//! processor time.

use crate::process::{self, EVERYTHING, cargo, command, target_dir};
use crate::tools::SoftwareVulkan;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

/// Tells tests whether a Vulkan device is `required`, or that Vulkan tests are `off`.
pub(crate) const TEST_VARIABLE: &str = "TORCHLET_TEST_VULKAN";

/// Settings of the layers: log errors, warnings and performance hints, with synchronization
/// validation, to standard output.
const SETTINGS: &str = "\
khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
khronos_validation.log_filename = stdout
khronos_validation.report_flags = error,warn,perf
khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT
";

/// Occurs in every message of the layers.
const MARK: &str = "msgNum: ";

/// Message identifiers caused by the test that breaks the rules deliberately.
const EXPECTED: &[&str] = &["VUID-VkBufferCreateInfo-size", "SYNC-HAZARD-WRITE-AFTER-WRITE"];

pub(crate) fn run(software: &SoftwareVulkan) -> Result<()> {
    let folder = target_dir().join("vulkan-layers");
    std::fs::create_dir_all(&folder)?;
    let settings = folder.join("vk_layer_settings.txt");
    std::fs::write(&settings, SETTINGS).with_context(|| settings.display().to_string())?;
    let on_software = |mut command: Command| -> Command {
        // The current variable, and that of older loaders.
        command.env("VK_DRIVER_FILES", &software.driver);
        command.env("VK_ICD_FILENAMES", &software.driver);
        command.env(TEST_VARIABLE, "required");
        command
    };
    let watched = |command: Command| -> Command {
        let mut command = on_software(command);
        command.env("VK_INSTANCE_LAYERS", "VK_LAYER_KHRONOS_validation");
        command.env("VK_LAYER_SETTINGS_PATH", &settings);
        // The layers would not see the creation of pipelines cached by an earlier run.
        command.env("TORCHLET_VULKAN_PIPELINE_CACHE", "off");
        command
    };

    let programs = test_programs()?;

    println!("The layers must report the errors of this test:");
    let mut breaking = programs.library("torchlet_vulkan")?.command();
    breaking.args(["--quiet", "--ignored", "--exact", "device::validation::rules_are_broken"]);
    let messages = messages(watched(breaking))?;
    for expected in EXPECTED {
        if !messages.iter().any(|message| message.contains(expected)) {
            bail!("the validation layers are not active: {expected} was not reported");
        }
    }

    println!("No messages are permitted in these tests:");
    for library in LIBRARIES {
        run_without_messages(watched(programs.library(library)?.command()))?;
    }
    let mut tests = Vec::new();
    for program in programs.0.iter().filter(|it| it.kind == "test") {
        let mut found = program.tests()?;
        // `device_is_there` of tests/common/vulkan.rs checks the names.
        found.retain(|test| program.name.starts_with("vulkan") || test.contains("gpu"));
        tests.extend(found.into_iter().map(|test| (program, test)));
    }
    ensure!(!tests.is_empty(), "no test runs on a device");
    // Damaged blobs first: this test takes longest.
    tests.sort_by_key(|(program, _)| program.name != "vulkan_hostile");
    // `wgpu` validates itself, and records commands that the layers call slow.
    let (webgpu, mut tests): (Vec<_>, Vec<_>) =
        tests.into_iter().partition(|(program, _)| program.name == "webgpu");
    ensure!(!webgpu.is_empty(), "no test runs through WebGPU");
    run_each_in_a_process(&webgpu, &on_software)?;
    run_each_in_a_process(&tests, &watched)?;

    println!("Nor with every optional feature of the device disabled:");
    // The folding of workgroups does not depend on features.
    let folded = "fixtures::workgroups_fold_into_the_next_dimension";
    tests.retain(|(program, test)| program.name == "vulkan" && test != folded);
    run_each_in_a_process(&tests, &|command| {
        let mut command = watched(command);
        command.env("TORCHLET_VULKAN_DISABLE", "all");
        command
    })
}

/// Libraries whose unit tests may open a device. Those of the others run without layers, in
/// `cargo xtask test test`.
const LIBRARIES: &[&str] = &["torchlet", "torchlet_vulkan"];

/// A built test program.
struct TestProgram {
    name: String,
    /// `lib` for a library's unit tests, or `test`.
    kind: String,
    manifest: PathBuf,
    executable: PathBuf,
}

struct TestPrograms(Vec<TestProgram>);

/// Builds the unit tests of all libraries and all test programs, with the same features as all
/// other tests, to avoid a rebuild.
fn test_programs() -> Result<TestPrograms> {
    let build = ["test", "--no-run", "--quiet", "--lib", "--test", "*", "--message-format"];
    let built =
        process::output(cargo(&[&build[..], &["json-render-diagnostics"], EVERYTHING].concat()))?;
    let mut found = Vec::new();
    for line in String::from_utf8(built)?.lines() {
        let message: Value = serde_json::from_str(line)?;
        let target = &message["target"];
        let texts = [
            &target["name"],
            &target["kind"][0],
            &message["manifest_path"],
            &message["executable"],
        ];
        if message["profile"]["test"] == true
            && let [Some(name), Some(kind), Some(manifest), Some(executable)] =
                texts.map(Value::as_str)
        {
            found.push(TestProgram {
                name: name.to_owned(),
                kind: kind.to_owned(),
                manifest: manifest.into(),
                executable: executable.into(),
            });
        }
    }
    Ok(TestPrograms(found))
}

impl TestPrograms {
    /// The unit tests of a library.
    fn library(&self, name: &str) -> Result<&TestProgram> {
        let mut found = self.0.iter().filter(|it| it.name == name && it.kind != "test");
        let program = found.next().with_context(|| format!("{name} has no unit tests"))?;
        ensure!(found.next().is_none(), "several libraries are named {name}");
        Ok(program)
    }
}

impl TestProgram {
    /// Runs the program in the same folder as cargo would.
    fn command(&self) -> Command {
        let mut tests = command(&self.executable.to_string_lossy(), &[]);
        tests.current_dir(self.manifest.parent().unwrap_or(Path::new(".")));
        tests
    }

    /// Names of the tests.
    fn tests(&self) -> Result<Vec<String>> {
        let mut list = self.command();
        list.args(["--list", "--format", "terse"]);
        let list = String::from_utf8(process::output(list)?)?;
        Ok(list.lines().filter_map(|line| Some(line.strip_suffix(": test")?.to_owned())).collect())
    }
}

/// Runs each test in a separate process, in parallel on all processors.
///
/// # Errors
/// A test failed, or the layers reported something.
fn run_each_in_a_process(
    tests: &[(&TestProgram, String)],
    watched: &(dyn Fn(Command) -> Command + Sync),
) -> Result<()> {
    let waiting = Mutex::new(tests.iter());
    let failures = Mutex::new(Vec::new());
    let next = || waiting.lock().ok()?.next();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((program, test)) = next() {
                    let start = Instant::now();
                    let result = alone(program, test, watched);
                    let (name, seconds) = (&program.name, start.elapsed().as_secs_f64());
                    let outcome = if result.is_ok() { "ok" } else { "FAILED" };
                    println!("test {name}::{test} ... {outcome} <{seconds:.1}s>");
                    if let (Err(error), Ok(mut failures)) = (result, failures.lock()) {
                        println!("{name}::{test}: {error:#}");
                        failures.push(format!("{name}::{test}"));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap_or_default();
    println!("\n{} passed, {} failed", tests.len() - failures.len(), failures.len());
    ensure!(failures.is_empty(), "{} tests failed: {}", failures.len(), failures.join(", "));
    Ok(())
}

/// Runs one test, which must pass without a message of the layers.
fn alone(
    program: &TestProgram,
    test: &str,
    watched: &(dyn Fn(Command) -> Command + Sync),
) -> Result<()> {
    let mut command = watched(program.command());
    command.args(["--exact", test]);
    let output = command.output()?;
    let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let text = texts.concat();
    ensure!(output.status.success(), "{}\n{text}", output.status);
    // Without a matching test, nothing would run.
    ensure!(text.contains("1 passed"), "the test did not run:\n{text}");
    ensure!(!text.contains(MARK), "the validation layers report:\n{text}");
    Ok(())
}

/// Runs a command that must not cause messages of the layers.
fn run_without_messages(command: Command) -> Result<()> {
    let messages = messages(command)?;
    if let Some(first) = messages.first() {
        bail!("{} messages of the validation layers, first: {first}", messages.len());
    }
    Ok(())
}

/// Runs a command and returns the messages of the layers. An error includes their number.
fn messages(command: Command) -> Result<Vec<String>> {
    let mut messages = Vec::new();
    let result = process::watch(command, |line| {
        if line.contains(MARK) {
            messages.push(line.to_owned());
        }
    });
    result.with_context(|| format!("with {} messages of the validation layers", messages.len()))?;
    Ok(messages)
}
