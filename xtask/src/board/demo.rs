//! The demo board for newcomers: one model, and its own main function. Its log is compared with a
//! snapshot (`expected.txt`) and with the host. It also runs another program without any change.

use super::compare::Host;
use super::image::Image;
use super::machines::{Board, Machine};
use crate::process::root;
use crate::size::Sizes;
use anyhow::{Context, Result, bail, ensure};
use std::path::PathBuf;

/// An emulated Cortex-M4.
pub(super) const DEMO: Board = Board {
    name: "qemu-cortex-m4",
    target: "thumbv7em-none-eabihf",
    models: &["digits"],
    machine: Some(Machine {
        program: "qemu-system-arm",
        args: &["-machine", "mps2-an386"],
        tick: 40_000,
        takes_files: false,
    }),
};

/// Snapshot of its log, in its folder.
const EXPECTED: &str = "expected.txt";

/// Another program with the same input.
const OTHER: &str = "tests/fixtures/tinyml/digits.pte";

/// Tolerance of values against host and snapshot: `absolute + relative * |expected|`.
const TOLERANCE: (f32, f32) = (1e-4, 1e-4);

/// Runs the demo and compares its log with the snapshot.
pub(super) fn show() -> Result<()> {
    let lines = shown()?;
    compare_lines(&lines, &std::fs::read_to_string(snapshot())?)?;
    println!("as expected ({}); `cargo xtask board` also compares with this machine", EXPECTED);
    Ok(())
}

/// Runs the demo with its program and another one, and compares both with the host.
pub(super) fn check(host: &mut Host, overwrite: bool) -> Result<()> {
    let lines = shown()?;
    let snapshot = snapshot();
    if overwrite {
        let text: String = lines.iter().map(|line| rounded(line) + "\n").collect();
        std::fs::write(&snapshot, text)?;
    }
    compare_lines(&lines, &std::fs::read_to_string(&snapshot)?)?;
    compare_host(&lines, host, "tests/fixtures/digits/digits.pte")?;
    println!("as expected, and as on the host");
    compare_host(&run(&[("MODEL", &format!("../../{OTHER}"))])?, host, OTHER)?;
    println!("as on the host with another program: {OTHER}");
    Ok(())
}

/// Runs the demo and prints its log.
fn shown() -> Result<Vec<String>> {
    let lines = run(&[])?;
    for line in &lines {
        println!("  {line}");
    }
    Ok(lines)
}

fn snapshot() -> PathBuf {
    root().join("boards").join(DEMO.name).join(EXPECTED)
}

fn run(variables: &[(&str, &str)]) -> Result<Vec<String>> {
    let image = Image::build(&DEMO, variables)?;
    println!("image: {}", Sizes::of(&image.elf)?);
    image.run(DEMO.machine.as_ref().context("an output of QEMU")?, &[])
}

fn compare_host(lines: &[String], host: &mut Host, program: &str) -> Result<()> {
    let expected = host.picture(program)?;
    let found: Vec<f32> = lines.iter().filter_map(|line| number(line)).map(|(_, it)| it).collect();
    let (count, wanted) = (found.len(), expected.len());
    ensure!(count == wanted, "expected {wanted} values as on the host, found {count}");
    for (index, (found, host)) in found.iter().zip(&expected).enumerate() {
        ensure!(close(*found, *host), "logit {index}: {found} on the board, {host} on the host");
    }
    Ok(())
}

/// Parses a line with a logit.
fn number(line: &str) -> Option<(&str, f32)> {
    let (label, number) = line.rsplit_once(": ")?;
    label.starts_with("logit").then_some(())?;
    Some((label, number.parse().ok()?))
}

/// Rounds the value of a line, for the snapshot.
fn rounded(line: &str) -> String {
    match number(line) {
        Some((label, number)) => format!("{label}: {number:.4}"),
        None => line.to_owned(),
    }
}

fn close(found: f32, expected: f32) -> bool {
    (found - expected).abs() <= TOLERANCE.0 + TOLERANCE.1 * expected.abs()
}

fn compare_lines(lines: &[String], expected: &str) -> Result<()> {
    let same = |found: &str, expected: &str| match (number(found), number(expected)) {
        (Some((a, found)), Some((b, expected))) => a == b && close(found, expected),
        _ => found == expected,
    };
    let expected: Vec<&str> = expected.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let wanted = expected.get(index).copied().unwrap_or("(nothing)");
        if !same(line, wanted) {
            bail!(
                "line {} differs:\n  expected: {wanted}\n  found:    {line}\n\
                 `cargo xtask board --overwrite` accepts it",
                index + 1
            );
        }
    }
    ensure!(
        lines.len() == expected.len(),
        "found {} lines, expected {}",
        lines.len(),
        expected.len()
    );
    Ok(())
}
