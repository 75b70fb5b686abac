//! Another runtime in a Python process that executes commands.
//!
//! The script writes `ready`. For each line with a number of inferences, it writes a line with as
//! many times in milliseconds. If the runtime is unavailable, it writes `not here: ` and the
//! reason, and exits.

use crate::process::command;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// Prefix of the reason why a runtime is unavailable.
const NOT_HERE: &str = "not here: ";

pub(crate) struct Peer {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// A started peer, or the reason why it is unavailable.
pub(crate) enum Start {
    Ready(Peer),
    NotHere(String),
}

impl Peer {
    /// Starts a script of tests/bench.
    pub(crate) fn start(
        python: &str,
        script: &Path,
        arguments: &[&str],
        threads: usize,
    ) -> Result<Start> {
        let mut start = command(python, &[&script.to_string_lossy()]);
        start.args(arguments).env("OMP_NUM_THREADS", threads.to_string());
        let start = start.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = start.spawn().with_context(|| format!("cannot start {python}"))?;
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("a pipe")?);
        let mut peer = Peer { child, orders, answers };
        loop {
            let line = peer.line()?;
            match line.trim() {
                "ready" => return Ok(Start::Ready(peer)),
                line => {
                    if let Some(why) = line.strip_prefix(NOT_HERE) {
                        return Ok(Start::NotHere(why.to_owned()));
                    }
                }
            }
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("it ended early: {}", self.child.wait()?);
        }
        Ok(line)
    }

    /// Runs inferences and returns their times.
    pub(crate) fn measure(&mut self, iterations: u32) -> Result<Vec<f64>> {
        let orders = self.orders.as_mut().context("a pipe")?;
        writeln!(orders, "{iterations}")?;
        let line = self.line()?;
        line.split_whitespace().map(|time| Ok(time.parse()?)).collect()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The process exits at the end of its input.
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}
