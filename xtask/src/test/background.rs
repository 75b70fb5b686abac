//! Runs slow steps in a separate process, concurrently with the others.

use super::Summary;
use super::steps::Step;
use crate::process::{command, target_dir};
use anyhow::{Context, Result};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};

pub(super) struct Background {
    names: Vec<&'static str>,
    child: Child,
    /// Output of the steps.
    log: PathBuf,
    /// Summary lines of the steps.
    summary: PathBuf,
}

impl Background {
    /// Starts this program again to run the steps one after the other.
    pub(super) fn start(steps: &[&'static Step], allow_missing: bool) -> Result<Self> {
        let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
        let log = target_dir().join("xtask-background.log");
        let summary = target_dir().join("xtask-background.summary");
        let file = File::create(&log).with_context(|| log.display().to_string())?;
        std::fs::write(&summary, "")?;
        let program = std::env::current_exe()?;
        let mut test = command(&program.to_string_lossy(), &["test"]);
        test.args(&names).arg("--summary").arg(&summary);
        if allow_missing {
            test.arg("--allow-missing");
        }
        test.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        println!("== in the background: {}", names.join(", "));
        Ok(Background { names, child: test.spawn()?, log, summary })
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for the process, prints its output and adds its results to the summary.
    pub(super) fn finish(mut self, summary: &mut Summary) -> Result<()> {
        let status = self.child.wait()?;
        // The output may not be UTF-8.
        println!("{}", String::from_utf8_lossy(&std::fs::read(&self.log)?));
        let lines = std::fs::read_to_string(&self.summary)?;
        summary.lines.extend(lines.lines().map(str::to_owned));
        if !status.success() {
            summary.failed.push(format!("one of {}", self.names.join(", ")));
        }
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // The process still runs if this one failed; an error means that it has ended.
        let _ = self.child.kill();
    }
}
