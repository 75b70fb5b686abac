//! The one test command: a list of steps, each of which can be run alone.

mod beside;
mod features;
mod steps;
mod usage;

use anyhow::{Result, bail};
use beside::Beside;
use std::path::PathBuf;
use steps::{Outcome, STEPS, Step};
use usage::Watch;

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
    /// Only notes what cannot run on this machine, instead of failing
    #[arg(long)]
    allow_missing: bool,
    /// Writes the lines of the summary to this file, too
    #[arg(long, hide = true)]
    summary: Option<PathBuf>,
}

impl Options {
    /// The steps to run, in order.
    fn chosen(&self) -> Result<Vec<&'static Step>> {
        for name in self.steps.iter().chain(&self.skip) {
            if !STEPS.iter().any(|step| step.name == name) {
                bail!("there is no step {name}; `cargo xtask test --list` lists them");
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
    let all = Watch::start();
    let (beside, here): (Vec<_>, Vec<_>) =
        options.chosen()?.into_iter().partition(|step| step.beside);
    // Steps that run beside nothing run here, where one sees them.
    let (mut beside, here) = match (&beside[..], &here[..]) {
        ([], _) | (_, []) => (None, [beside, here].concat()),
        _ => (Some(Beside::start(&beside, options.allow_missing)?), here),
    };
    let mut summary = Summary::default();
    for step in here {
        if let Some(beside) = beside.take_if(|beside| beside.has_ended()) {
            beside.finish(&mut summary)?;
        }
        println!("\n== {}: {}", step.name, step.about);
        let watch = Watch::start();
        let result = (step.run)();
        summary.add(step.name, &watch, result, options.allow_missing);
    }
    if let Some(beside) = beside {
        println!("\n== waiting for the steps beside these");
        beside.finish(&mut summary)?;
    }
    if let Some(file) = &options.summary {
        std::fs::write(file, summary.lines.join("\n"))?;
    }
    println!("\n{}\nall      {all}", summary.lines.join("\n"));
    if summary.failed.is_empty() { Ok(()) } else { bail!("failed: {}", summary.failed.join(", ")) }
}

/// How the steps ended: a line for each, and the names of those that make the command fail.
#[derive(Default)]
struct Summary {
    lines: Vec<String>,
    failed: Vec<String>,
}

impl Summary {
    fn add(&mut self, name: &str, watch: &Watch, result: Result<Outcome>, allow_missing: bool) {
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
        let line = format!("{name:<8} {watch}  {result}");
        println!("== {line}");
        self.lines.push(line);
    }
}
