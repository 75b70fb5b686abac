//! The Vulkan tests on a software driver, with the Khronos validation layers watching: any message of theirs is a failure.

use crate::process::{self, EVERYTHING, cargo, target_dir};
use crate::tools::SoftwareVulkan;
use anyhow::{Context, Result, bail};
use std::process::Command;

/// The variable that tells tests whether there has to be a Vulkan device (`required`), or that they are run elsewhere (`off`).
pub(crate) const TEST_VARIABLE: &str = "TORCHLET_TEST_VULKAN";

/// How the layers are set: everything that hints at a mistake, missing barriers among it, goes to standard output.
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
    // What has no Vulkan in it runs, too: to leave it out would be to build the rest for other sets of features.
    let watched = |args: &[&str]| -> Command {
        let mut command = cargo(&[&["test"][..], EVERYTHING, args].concat());
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

    println!("The layers have to notice what this breaks:");
    let only = ["--", "--ignored", "--exact", "device::validation::rules_are_broken"];
    let messages = messages(watched(&[&["--quiet", "--lib"][..], &only].concat()))?;
    for expected in EXPECTED {
        if !messages.iter().any(|message| message.contains(expected)) {
            bail!("the validation layers do not watch: {expected} is missing");
        }
    }

    println!("And nothing here:");
    silent(watched(&["--no-fail-fast", "--lib", "--test", "vulkan*"]))?;
    println!("Nor here, with every optional feature of the device switched off:");
    // How work is folded has nothing to do with features.
    let folded = "fixtures::work_goes_on_in_the_next_dimension";
    let mut plain = watched(&["--test", "vulkan", "--", "--skip", folded]);
    plain.env("TORCHLET_VULKAN_DISABLE", "all");
    silent(plain)
}

/// Runs a command that the layers have nothing to say about.
fn silent(command: Command) -> Result<()> {
    let messages = messages(command)?;
    if let Some(first) = messages.first() {
        bail!("{} messages of the validation layers, the first of them: {first}", messages.len());
    }
    Ok(())
}

/// Runs a command and gives the messages of the layers. Where it fails, they are part of the reason.
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
