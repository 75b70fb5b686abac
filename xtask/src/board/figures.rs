//! Memory and instruction counts of images and models on boards: limits, and tables for
//! documentation.

use super::log::Ran;
use super::machines::{Board, Machine};
use crate::page::{self, grouped};
use crate::process::root;
use crate::size::{self, Sizes, Split};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Tolerance above a limit in percent, because compilers differ.
const TOLERANCE: u64 = 5;
/// Tolerance below a limit in percent: a limit that is farther off is ineffective.
const SLACK: u64 = 20;

/// Fixed maximum of instructions between two operators, independent of recorded limits.
const DISPATCH: u64 = 200;

/// Figures found on boards: by image name, or by board and model name.
#[derive(Default)]
pub(crate) struct Figures(BTreeMap<String, Vec<(&'static str, u64)>>);

impl Figures {
    /// Records the size of an image; images with models are split by component.
    pub(super) fn image(&mut self, board: &Board, elf: &[u8], sizes: &Sizes) -> Result<()> {
        let flash = sizes.flash();
        if board.models.is_empty() {
            self.0.insert(board.name.to_owned(), vec![("flash", flash)]);
            return Ok(());
        }
        let Split { model, core, kernels, rest } = size::split(elf, flash)?;
        let figures = vec![
            ("flash", flash),
            ("core", core),
            ("kernels", kernels),
            ("programs", model),
            ("rest", rest),
            ("RAM", sizes.ram()),
        ];
        self.0.insert(board.name.to_owned(), figures);
        Ok(())
    }

    /// Records the size of an image with a compiled program, and the instructions of a run.
    pub(super) fn compiled(&mut self, board: &Board, sizes: &Sizes, run: u64) {
        let figures = vec![("flash", sizes.flash()), ("RAM", sizes.ram()), ("run", run)];
        self.0.insert(board.name.to_owned(), figures);
    }

    /// Records the stack use of an example's task.
    pub(super) fn stack(&mut self, board: &Board, bytes: u64) {
        self.0.entry(board.name.to_owned()).or_default().push(("stack", bytes));
    }

    pub(super) fn model(&mut self, board: &str, ran: &Ran, machine: &Machine) -> Result<()> {
        let [program, arena, planned, scratch] = ran.sizes;
        let dispatch = dispatch(ran, machine);
        if dispatch >= DISPATCH {
            bail!(
                "{}: {dispatch} instructions between operators, expected fewer than {DISPATCH}",
                ran.model
            );
        }
        let figures = vec![
            ("program", program),
            ("arena", arena),
            ("planned", planned),
            ("scratch", scratch),
            ("stack", ran.stack),
            ("load", machine.instructions(ran.load_ticks)),
            ("run", machine.instructions(ran.run_ticks)),
            ("dispatch", dispatch),
        ];
        self.0.insert(format!("{board} {}", ran.model), figures);
        Ok(())
    }

    /// Compares the figures with the limits, or records them as limits.
    pub(super) fn check(&self, overwrite: bool) -> Result<()> {
        let path = root().join("boards/limits.txt");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let mut limits = parse(&text)?;
        if overwrite {
            limits.extend(self.0.iter().map(|(name, figures)| {
                let figures = figures.iter().map(|(what, number)| ((*what).to_owned(), *number));
                (name.clone(), figures.collect())
            }));
            std::fs::write(&path, HEAD.to_owned() + &print(&limits))?;
            return page::replace(page::BOARDS, "figures", &table(&limits));
        }
        let mut above = Vec::new();
        for (name, figures) in &self.0 {
            let known = limits.get(name).with_context(|| {
                format!("{name} has no limits: `cargo xtask board --overwrite` writes them")
            })?;
            for (what, found) in figures {
                let limit = known.iter().find(|(name, _)| name == what).map(|(_, it)| *it);
                let limit = limit.with_context(|| {
                    format!(
                        "{name}: {what} has no limit: `cargo xtask board --overwrite` writes it"
                    )
                })?;
                if *found > limit + limit * TOLERANCE / 100 {
                    above.push(format!("{name}: {what} {found}, more than {limit}"));
                } else if *found < limit - limit * SLACK / 100 {
                    above.push(format!(
                        "{name}: {what} {found}, far below {limit}: `cargo xtask board \
                         --overwrite` lowers the limit"
                    ));
                }
            }
        }
        if above.is_empty() { Ok(()) } else { bail!("{}", above.join("\n")) }
    }
}

fn table(limits: &Limits) -> String {
    let mut text = String::from(
        "| board | model | program | arena | planned | scratch | stack | load | run | dispatch |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (name, figures) in limits {
        let Some((board, model)) = name.split_once(' ') else { continue };
        // Writing to a string does not fail.
        let _ = write!(text, "| {board} | {model} |");
        for (_, number) in figures {
            let _ = write!(text, " {} |", grouped(*number));
        }
        text.push('\n');
    }
    text.push_str(
        "\n| image with all of its models | flash | core | kernels | programs | rest | RAM | stack |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for (name, figures) in limits.iter().filter(|(name, _)| !name.contains(' ')) {
        let _ = write!(text, "| {name} |");
        for what in ["flash", "core", "kernels", "programs", "rest", "RAM", "stack"] {
            let number = figures.iter().find(|(name, _)| name == what);
            let _ = write!(text, " {} |", number.map_or(String::new(), |(_, it)| grouped(*it)));
        }
        text.push('\n');
    }
    text
}

/// Recorded stack use of a model on a board in bytes.
pub(crate) fn stack(board: &str, model: &str) -> Result<Option<u64>> {
    let text = std::fs::read_to_string(root().join("boards/limits.txt"))?;
    let limits = parse(&text)?;
    let figures = limits.get(&format!("{board} {model}"));
    let stack = figures.and_then(|figures| figures.iter().find(|(what, _)| what == "stack"));
    Ok(stack.map(|(_, bytes)| *bytes))
}

/// Instructions of operators: calls per run, and instructions on each board, by model and operator.
#[derive(Default)]
pub(super) struct Operators {
    boards: Vec<&'static str>,
    rows: BTreeMap<(String, String), (usize, BTreeMap<&'static str, u64>)>,
}

impl Operators {
    pub(super) fn add(&mut self, board: &'static str, ran: &Ran, machine: &Machine) {
        if self.boards.last() != Some(&board) {
            self.boards.push(board);
        }
        let mut calls: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
        for (name, ticks) in &ran.operators {
            let (count, sum) = calls.entry(name).or_default();
            *count += 1;
            *sum += ticks;
        }
        for (name, (count, ticks)) in calls {
            let row = self.rows.entry((ran.model.clone(), name.to_owned())).or_default();
            row.0 = count;
            row.1.insert(board, machine.instructions(ticks));
        }
    }

    /// Writes the table into the boards' page.
    pub(super) fn write(&self) -> Result<()> {
        let mut text = String::from("| model | operator | calls |");
        for board in &self.boards {
            let _ = write!(text, " {board} |");
        }
        text += &format!("\n|---|---|---|{}\n", "---|".repeat(self.boards.len()));
        for ((model, operator), (calls, boards)) in &self.rows {
            let _ = write!(text, "| {model} | {operator} | {calls} |");
            for board in &self.boards {
                let number = boards.get(board).map_or(String::new(), |number| grouped(*number));
                let _ = write!(text, " {number} |");
            }
            text.push('\n');
        }
        page::replace(page::BOARDS, "operators", &text)
    }
}

/// Instructions of a run outside of kernels, per operator.
pub(super) fn dispatch(ran: &Ran, machine: &Machine) -> u64 {
    let kernels: u64 = ran.operators.iter().map(|(_, ticks)| ticks).sum();
    let rest = ran.run_ticks.saturating_sub(kernels);
    machine.instructions(rest) / ran.operators.len().max(1) as u64
}

/// Prints the instructions of each operator.
pub(super) fn show_operators(ran: &Ran, machine: &Machine) {
    for (name, ticks) in &ran.operators {
        println!("    {:>12} {name}", grouped(machine.instructions(*ticks)));
    }
    println!("    {:>12} between two of them", dispatch(ran, machine));
}

const HEAD: &str = "\
# Limits for the sizes of images in bytes, and for models on boards in bytes and instructions.
# `cargo xtask board` checks them with a tolerance of 5 percent, and `cargo xtask board --overwrite`
# updates them. Lower a limit when its figure shrinks.
";

/// Named figures of named items.
pub(crate) type Limits = BTreeMap<String, Vec<(String, u64)>>;

pub(crate) fn parse(text: &str) -> Result<Limits> {
    let mut limits = Limits::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, figures) = line.split_once(": ").with_context(|| line.to_owned())?;
        let mut known = Vec::new();
        for figure in figures.split(", ") {
            let (what, number) = figure.split_once(' ').with_context(|| line.to_owned())?;
            known.push((what.to_owned(), number.parse().with_context(|| line.to_owned())?));
        }
        limits.insert(name.to_owned(), known);
    }
    Ok(limits)
}

pub(crate) fn print(limits: &Limits) -> String {
    let mut text = String::new();
    for (name, figures) in limits {
        let figures: Vec<String> =
            figures.iter().map(|(what, number)| format!("{what} {number}")).collect();
        text += &format!("{name}: {}\n", figures.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_round_trip() {
        let text = "board: flash 10, ram 2\nboard model: run 1234567\n";
        assert_eq!(print(&parse(text).unwrap()), text);
        assert!(parse("board: flash many").is_err());
    }
}
