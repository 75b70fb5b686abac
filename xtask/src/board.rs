//! Firmware images of `boards/`, run in QEMU: what they print is compared with a snapshot (`expected.txt`
//! beside each) and with what the host computes.

use crate::process::{self, cargo, command, root, target_dir};
use crate::size::Sizes;
use anyhow::{Context, Result, bail, ensure};
use defmt_decoder::{DecodeError, Table};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Takes what the firmware prints as the new expectation
    #[arg(long)]
    overwrite: bool,
}

const TARGET: &str = "thumbv7em-none-eabihf";

/// How long an image may run; it takes about a second.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// How far a number may be from the host's, and the snapshot's: `absolute + relative * |expected|`.
const TOLERANCE: (f32, f32) = (1e-4, 1e-4);

/// The folders below `boards/` that are workspaces of their own.
pub(crate) fn workspaces() -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join("boards"))? {
        let path = entry?.path();
        if path.join("Cargo.toml").is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

pub(crate) fn run(options: &Options) -> Result<()> {
    crate::tools::embedded_targets()?;
    crate::tools::qemu()?;
    let board = root().join("boards/qemu-cortex-m4");
    let lines = run_image(&board)?;
    for line in &lines {
        println!("  {line}");
    }
    let snapshot = board.join("expected.txt");
    if options.overwrite {
        let text: String = lines.iter().map(|line| rounded(line) + "\n").collect();
        std::fs::write(&snapshot, text)?;
    }
    let expected = std::fs::read_to_string(&snapshot)?;
    compare_lines(&lines, &expected)?;
    let host = host_logits(&board)?;
    let found: Vec<f32> = logits(&lines);
    ensure!(
        found.len() == host.len(),
        "{} numbers instead of the host's {}",
        found.len(),
        host.len()
    );
    for (index, (found, host)) in found.iter().zip(&host).enumerate() {
        ensure!(close(*found, *host), "logit {index}: {found} on the board, {host} on the host");
    }
    println!("as expected, and equal to the host to float tolerance");
    Ok(())
}

/// Builds the image, runs it and gives the lines that it logged; an error if it did not exit with success.
fn run_image(board: &Path) -> Result<Vec<String>> {
    let out = target_dir().join("boards");
    let mut build = cargo(&["build", "--quiet", "--release", "--locked"]);
    build.arg("--target-dir").arg(&out).current_dir(board);
    process::run(build)?;
    let name = board.file_name().context("a folder")?;
    let image = out.join(TARGET).join("release").join(name);
    let elf = std::fs::read(&image)?;
    println!("image: {}", Sizes::of(&elf)?);
    let semihosting = "enable=on,target=native";
    let mut qemu = command("qemu-system-arm", &["-machine", "mps2-an386", "-nographic"]);
    qemu.args(["-monitor", "none", "-serial", "none", "-semihosting-config", semihosting]);
    qemu.arg("-kernel").arg(&image);
    println!("$ {}", process::show(&qemu));
    let mut child = qemu.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut stdout = child.stdout.take().context("a pipe")?;
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout.read_to_end(&mut bytes).map(|_| bytes)
    });
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > TIME_LIMIT {
            child.kill()?;
            bail!("the firmware did not end within {} s", TIME_LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let bytes = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
    let lines = decode(&elf, &bytes)?;
    ensure!(status.success(), "the firmware failed ({status}):\n{}", lines.join("\n"));
    Ok(lines)
}

/// The log lines in the frames that the firmware wrote.
fn decode(elf: &[u8], bytes: &[u8]) -> Result<Vec<String>> {
    let table = Table::parse(elf)?.context("the image has no texts of log lines")?;
    let mut decoder = table.new_stream_decoder();
    decoder.received(bytes);
    let mut lines = Vec::new();
    loop {
        match decoder.decode() {
            Ok(frame) => lines.push(frame.display_message().to_string()),
            Err(DecodeError::UnexpectedEof) => return Ok(lines),
            Err(DecodeError::Malformed) if table.encoding().can_recover() => {
                lines.push("(a malformed line)".to_owned());
            }
            Err(DecodeError::Malformed) => bail!("malformed log after: {lines:?}"),
        }
    }
}

/// The number at the end of a line that names one with a fraction.
fn number(line: &str) -> Option<(&str, f32)> {
    let (label, number) = line.rsplit_once(": ")?;
    label.starts_with("logit").then_some(())?;
    Some((label, number.parse().ok()?))
}

/// The line with its number rounded, for the snapshot.
fn rounded(line: &str) -> String {
    match number(line) {
        Some((label, number)) => format!("{label}: {number:.4}"),
        None => line.to_owned(),
    }
}

fn logits(lines: &[String]) -> Vec<f32> {
    lines.iter().filter_map(|line| number(line)).map(|(_, number)| number).collect()
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
                 `cargo xtask board --overwrite` takes it as the new expectation",
                index + 1
            );
        }
    }
    ensure!(lines.len() == expected.len(), "{} lines instead of {}", lines.len(), expected.len());
    Ok(())
}

/// What the host computes for the same program and image, through the `torchlet` command.
fn host_logits(board: &Path) -> Result<Vec<f32>> {
    let digits = root().join("tests/fixtures/digits");
    let out = target_dir().join("boards/host");
    std::fs::create_dir_all(&out)?;
    let mut host = command(&process::built("torchlet")?.to_string_lossy(), &["run"]);
    host.arg(digits.join("digits.pte")).arg("--input").arg(digits.join("image_2.npy"));
    host.arg("--out").arg(&out).stdout(Stdio::null());
    process::run(host)?;
    let mut results: Vec<PathBuf> = std::fs::read_dir(&out)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    results.retain(|path| path.extension().is_some_and(|ending| ending == "npy"));
    let [result] = &results[..] else { bail!("{} arrays in {}", results.len(), out.display()) };
    let bytes = std::fs::read(result)?;
    // Ten float32 behind the header of a .npy.
    let data = bytes.len().checked_sub(40).and_then(|at| bytes.get(at..));
    let data = data.with_context(|| format!("no result for {}", board.display()))?;
    Ok(data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}
