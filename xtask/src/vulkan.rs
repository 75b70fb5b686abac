//! The Vulkan tests on a software driver, with the Khronos validation layers watching: any message
//! of theirs is a failure.

use crate::process::{self, EVERYTHING, cargo, command, target_dir};
use crate::tools::SoftwareVulkan;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable that tells tests whether there has to be a Vulkan device (`required`), or that they
/// are run elsewhere (`off`).
pub(crate) const TEST_VARIABLE: &str = "TORCHLET_TEST_VULKAN";

/// How the layers are set: everything that hints at a mistake, missing barriers among it, goes to
/// standard output.
const SETTINGS: &str = "\
khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
khronos_validation.log_filename = stdout
khronos_validation.report_flags = error,warn,perf
khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT
";

/// What every message of the layers has, in the middle of a line or at its start.
const MARK: &str = "msgNum: ";

/// The kinds of messages that the test which breaks rules on purpose causes.
const EXPECTED: &[&str] = &["VUID-VkBufferCreateInfo-size", "SYNC-HAZARD-WRITE-AFTER-WRITE"];

pub(crate) fn run(software: &SoftwareVulkan) -> Result<()> {
    let folder = target_dir().join("vulkan-layers");
    std::fs::create_dir_all(&folder)?;
    let settings = folder.join("vk_layer_settings.txt");
    std::fs::write(&settings, SETTINGS).with_context(|| settings.display().to_string())?;
    let watched = |mut command: Command| -> Command {
        command.env("VK_INSTANCE_LAYERS", "VK_LAYER_KHRONOS_validation");
        command.env("VK_LAYER_SETTINGS_PATH", &settings);
        // The name of today, and that of older loaders.
        command.env("VK_DRIVER_FILES", &software.driver);
        command.env("VK_ICD_FILENAMES", &software.driver);
        command.env(TEST_VARIABLE, "required");
        // Pipelines that an earlier run left would not be made under the layers' eyes.
        command.env("TORCHLET_VULKAN_PIPELINE_CACHE", "off");
        command
    };

    let test = |args: &[&str]| watched(cargo(&[&["test"][..], EVERYTHING, args].concat()));
    let units = unit_tests()?;

    println!("The layers have to notice what this breaks:");
    let mut breaking = units.command("torchlet_vulkan")?;
    breaking.args(["--quiet", "--ignored", "--exact", "device::validation::rules_are_broken"]);
    let messages = messages(watched(breaking))?;
    for expected in EXPECTED {
        if !messages.iter().any(|message| message.contains(expected)) {
            bail!("the validation layers do not watch: {expected} is missing");
        }
    }

    println!("And nothing here:");
    for library in LIBRARIES {
        silent(watched(units.command(library)?))?;
    }
    silent(test(&["--no-fail-fast", "--test", "vulkan*"]))?;
    println!("Nor here, with every optional feature of the device switched off:");
    // How work is folded has nothing to do with features.
    let folded = "fixtures::workgroups_fold_into_the_next_dimension";
    let mut plain = test(&["--test", "vulkan", "--", "--skip", folded]);
    plain.env("TORCHLET_VULKAN_DISABLE", "all");
    silent(plain)
}

/// The libraries whose unit tests may open a device. Those of the others run without layers, as
/// `cargo xtask test test`.
const LIBRARIES: &[&str] = &["torchlet", "torchlet_vulkan"];

/// Programs with the unit tests of libraries: the name of each, its manifest, and where it is.
struct UnitTests(Vec<(String, PathBuf, PathBuf)>);

/// Builds the unit tests of all libraries, as other tests have them: to build some alone would be
/// to build all again, for other sets of features.
fn unit_tests() -> Result<UnitTests> {
    let build = ["test", "--no-run", "--quiet", "--lib", "--message-format"];
    let built =
        process::output(cargo(&[&build[..], &["json-render-diagnostics"], EVERYTHING].concat()))?;
    let mut found = Vec::new();
    for line in String::from_utf8(built)?.lines() {
        let message: Value = serde_json::from_str(line)?;
        let [name, manifest, program] =
            [&message["target"]["name"], &message["manifest_path"], &message["executable"]]
                .map(Value::as_str);
        if message["profile"]["test"] == true
            && let (Some(name), Some(manifest), Some(program)) = (name, manifest, program)
        {
            found.push((name.to_owned(), manifest.into(), program.into()));
        }
    }
    Ok(UnitTests(found))
}

impl UnitTests {
    /// Runs those of a library where cargo would.
    fn command(&self, library: &str) -> Result<Command> {
        let mut of_library = self.0.iter().filter(|(name, ..)| name == library);
        let (_, manifest, program) =
            of_library.next().with_context(|| format!("{library} has no unit tests"))?;
        ensure!(of_library.next().is_none(), "there are several libraries {library}");
        let mut tests = command(&program.to_string_lossy(), &[]);
        tests.current_dir(manifest.parent().unwrap_or(Path::new(".")));
        Ok(tests)
    }
}

/// Runs a command that the layers have nothing to say about.
fn silent(command: Command) -> Result<()> {
    let messages = messages(command)?;
    if let Some(first) = messages.first() {
        bail!("{} messages of the validation layers, the first of them: {first}", messages.len());
    }
    Ok(())
}

/// Runs a command and gives the messages of the layers. Where it fails, they are part of the
/// reason.
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
