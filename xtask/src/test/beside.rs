//! Steps that run in a process of their own, beside the others.

use super::Summary;
use super::steps::Step;
use crate::process::{command, target_dir};
use anyhow::{Context, Result};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};

pub(super) struct Beside {
    names: Vec<&'static str>,
    child: Child,
    /// What the steps print.
    log: PathBuf,
    /// The lines of their summary.
    summary: PathBuf,
}

impl Beside {
    /// Starts this program again for the steps, which run one after the other.
    pub(super) fn start(steps: &[&'static Step], allow_missing: bool) -> Result<Self> {
        let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
        let log = target_dir().join("xtask-beside.log");
        let summary = target_dir().join("xtask-beside.summary");
        let file = File::create(&log).with_context(|| log.display().to_string())?;
        std::fs::write(&summary, "")?;
        let program = std::env::current_exe()?;
        let mut test = command(&program.to_string_lossy(), &["test"]);
        test.args(&names).arg("--summary").arg(&summary);
        if allow_missing {
            test.arg("--allow-missing");
        }
        test.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        println!("== beside the other steps: {}", names.join(", "));
        Ok(Beside { names, child: test.spawn()?, log, summary })
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for the end, shows what the steps printed and adds how they ended.
    pub(super) fn finish(mut self, summary: &mut Summary) -> Result<()> {
        let status = self.child.wait()?;
        // What programs print need not be text.
        println!("{}", String::from_utf8_lossy(&std::fs::read(&self.log)?));
        let lines = std::fs::read_to_string(&self.summary)?;
        summary.lines.extend(lines.lines().map(str::to_owned));
        if !status.success() {
            summary.failed.push(format!("one of {}", self.names.join(", ")));
        }
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // Only a run that ended early leaves steps running; an error would mean that they have
        // ended.
        let _ = self.child.kill();
    }
}
