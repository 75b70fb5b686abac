//! The test command: a list of steps that also run separately.

mod background;
mod features;
mod steps;
mod usage;

use anyhow::{Result, bail};
use background::Background;
use std::path::PathBuf;
use steps::{Outcome, STEPS, Step};
use usage::Stopwatch;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The steps to run [default: all]
    steps: Vec<String>,
    /// Steps to skip
    #[arg(long)]
    skip: Vec<String>,
    /// List the steps
    #[arg(long)]
    list: bool,
    /// Report steps that cannot run on this machine instead of failing
    #[arg(long)]
    allow_missing: bool,
    /// Also write the summary to this file
    #[arg(long, hide = true)]
    summary: Option<PathBuf>,
}

impl Options {
    /// The steps to run, in order.
    fn chosen(&self) -> Result<Vec<&'static Step>> {
        for name in self.steps.iter().chain(&self.skip) {
            if !STEPS.iter().any(|step| step.name == name) {
                bail!("unknown step {name}; `cargo xtask test --list` lists the steps");
            }
        }
        let named = |names: &[String], step: &Step| names.iter().any(|name| name == step.name);
        let chosen = STEPS.iter().filter(|step| {
            (self.steps.is_empty() || named(&self.steps, step)) && !named(&self.skip, step)
        });
        Ok(chosen.collect())
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.list {
        for step in STEPS {
            println!("{:<8} {}", step.name, step.about);
        }
        return Ok(());
    }
    let all = Stopwatch::start();
    let (background, here): (Vec<_>, Vec<_>) =
        options.chosen()?.into_iter().partition(|step| step.is_background);
    // Runs all steps in this process if either group is empty, so that their output is visible.
    let (mut background, here) = match (&background[..], &here[..]) {
        ([], _) | (_, []) => (None, [background, here].concat()),
        _ => (Some(Background::start(&background, options.allow_missing)?), here),
    };
    let mut summary = Summary::default();
    for step in here {
        if let Some(background) = background.take_if(|background| background.has_ended()) {
            background.finish(&mut summary)?;
        }
        println!("\n== {}: {}", step.name, step.about);
        let watch = Stopwatch::start();
        let result = (step.run)();
        summary.add(step.name, &watch, result, options.allow_missing);
    }
    if let Some(background) = background {
        println!("\n== waiting for the background steps");
        background.finish(&mut summary)?;
    }
    if let Some(file) = &options.summary {
        std::fs::write(file, summary.lines.join("\n"))?;
    }
    println!("\n{}\nall      {all}", summary.lines.join("\n"));
    if summary.failed.is_empty() { Ok(()) } else { bail!("failed: {}", summary.failed.join(", ")) }
}

/// Results of the steps: a line for each, and the names of failed ones.
#[derive(Default)]
struct Summary {
    lines: Vec<String>,
    failed: Vec<String>,
}

impl Summary {
    fn add(&mut self, name: &str, watch: &Stopwatch, result: Result<Outcome>, allow_missing: bool) {
        let failed = match &result {
            Ok(Outcome::Passed) => false,
            Ok(Outcome::NotRun(_)) => !allow_missing,
            Err(_) => true,
        };
        if failed {
            self.failed.push(name.to_owned());
        }
        let result = match result {
            Ok(Outcome::Passed) => "ok".to_owned(),
            Ok(Outcome::NotRun(why)) => format!("NOT RUN: {why}"),
            Err(error) => format!("FAILED: {error:#}"),
        };
        println!("== {name:<8} {watch}  {result}");
        self.lines.push(format!("{name:<8} {watch}  {}", shortened(&result)));
    }
}

/// The start of a message that may contain the output of a program. The end of a log is often all
/// that a reader gets, and has to name all steps.
fn shortened(message: &str) -> String {
    const MAX_CHARS: usize = 1500;
    match message.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{} ...", &message[..end]),
        None => message.to_owned(),
    }
}
