//! What images and models take on boards: limits that they are held to, and tables for people.

use super::log::Ran;
use super::machines::Machine;
use crate::process::root;
use crate::size::Sizes;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt::Write;

/// How much more than its limit something may take before it counts, in percent: compilers differ.
const TOLERANCE: u64 = 5;
/// How far below a figure may be, in percent: a limit that is farther off holds nothing.
const SLACK: u64 = 20;

/// The most instructions between two operators.
const DISPATCH: u64 = 200;

/// What was found on a board: an image by its name, a model on a board by both, each with named figures.
#[derive(Default)]
pub(crate) struct Figures(BTreeMap<String, Vec<(&'static str, u64)>>);

impl Figures {
    pub(super) fn image(&mut self, board: &str, sizes: &Sizes) {
        self.0.insert(board.to_owned(), vec![("flash", sizes.flash())]);
    }

    pub(super) fn model(&mut self, board: &str, ran: &Ran, machine: &Machine) -> Result<()> {
        let [program, arena, planned, scratch] = ran.sizes;
        let dispatch = dispatch(ran, machine);
        // Where the clock's ticks are longer than a few instructions, this would be noise.
        if dispatch > DISPATCH {
            bail!("{}: {dispatch} instructions between operators, not {DISPATCH}", ran.model);
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

    /// Compares what was found with the limits, or makes it the limits.
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
            return write_table(&limits);
        }
        let mut above = Vec::new();
        for (name, figures) in &self.0 {
            let known = limits.get(name).with_context(|| {
                format!("{name} has no limits: `cargo xtask board --overwrite` writes them")
            })?;
            for (what, found) in figures {
                let limit = known.iter().find(|(name, _)| name == what).map_or(0, |(_, it)| *it);
                if *found > limit + limit * TOLERANCE / 100 {
                    above.push(format!("{name}: {what} {found}, more than {limit}"));
                } else if *found < limit - limit * SLACK / 100 {
                    above.push(format!(
                        "{name}: {what} {found}, far below {limit}: `cargo xtask board --overwrite` lowers the limit"
                    ));
                }
            }
        }
        if above.is_empty() { Ok(()) } else { bail!("{}", above.join("\n")) }
    }
}

/// Writes the table in the boards' page.
fn write_table(limits: &Limits) -> Result<()> {
    let path = root().join("boards/README.md");
    let text = std::fs::read_to_string(&path)?;
    let (start, end) = ("<!-- figures -->\n", "<!-- end of figures -->");
    let from = text.find(start).context("the page has lost its table")? + start.len();
    let to = from + text[from..].find(end).context("the table has lost its end")?;
    let table = format!("{}{}{}", &text[..from], table(limits), &text[to..]);
    Ok(std::fs::write(path, table)?)
}

fn table(limits: &Limits) -> String {
    let mut text = String::from(
        "\n| board | model | program | arena | planned | scratch | stack | load | run |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for (name, figures) in limits {
        let Some((board, model)) = name.split_once(' ') else { continue };
        // Writing to a string does not fail.
        let _ = write!(text, "| {board} | {model} |");
        for (_, number) in figures.iter().filter(|(what, _)| what != "dispatch") {
            let _ = write!(text, " {} |", grouped(*number));
        }
        text.push('\n');
    }
    text.push_str("\n| image with all of its models | flash |\n|---|---|\n");
    for (name, figures) in limits.iter().filter(|(name, _)| !name.contains(' ')) {
        if let [(_, flash)] = &figures[..] {
            let _ = writeln!(text, "| {name} | {} |", grouped(*flash));
        }
    }
    text.push('\n');
    text
}

/// Instructions of a run that are not those of kernels, for each operator.
fn dispatch(ran: &Ran, machine: &Machine) -> u64 {
    let kernels: u64 = ran.operators.iter().map(|(_, ticks)| ticks).sum();
    let rest = ran.run_ticks.saturating_sub(kernels);
    machine.instructions(rest) / ran.operators.len().max(1) as u64
}

/// Prints what each operator takes.
pub(super) fn show_operators(ran: &Ran, machine: &Machine) {
    for (name, ticks) in &ran.operators {
        println!("    {:>12} {name}", grouped(machine.instructions(*ticks)));
    }
    println!("    {:>12} between two of them", dispatch(ran, machine));
}

const HEAD: &str = "\
# What images take in bytes, and models on boards in bytes and instructions: `cargo xtask board` holds them to it, with 5 percent to
# spare; `cargo xtask board --overwrite` writes it anew. Lower it when something shrinks.
";

type Limits = BTreeMap<String, Vec<(String, u64)>>;

fn parse(text: &str) -> Result<Limits> {
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

fn print(limits: &Limits) -> String {
    let mut text = String::new();
    for (name, figures) in limits {
        let figures: Vec<String> =
            figures.iter().map(|(what, number)| format!("{what} {number}")).collect();
        text += &format!("{name}: {}\n", figures.join(", "));
    }
    text
}

/// A number with its thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_they_are_written() {
        let text = "board: flash 10, ram 2\nboard model: run 1234567\n";
        assert_eq!(print(&parse(text).unwrap()), text);
        assert!(parse("board: flash many").is_err());
    }

    #[test]
    fn thousands_are_apart() {
        assert_eq!([7, 1000, 1_234_567].map(grouped), ["7", "1,000", "1,234,567"]);
    }
}
