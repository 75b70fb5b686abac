//! Instruction counts of 8-bit kernels on emulated Cortex-M (`boards/kernel-counts`), layer by
//! layer, compared with other libraries.

mod models;
mod peers;

use crate::board::{Limits, parse_limits, print_limits};
use crate::page::{self, grouped};
use crate::process::{self, cargo, command, root, target_dir};
use anyhow::{Context, Result, bail, ensure};
use models::MODELS;
use peers::PEERS;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

#[derive(clap::Args, Default)]
pub(crate) struct LayerOptions {
    /// Sources of CMSIS-NN (github.com/ARM-software/CMSIS-NN), to build with arm-none-eabi-gcc and
    /// count in the same image [default: use the recorded counts]
    #[arg(long, value_name = "DIR")]
    cmsis_nn: Option<PathBuf>,
    /// Also sources of TFLite Micro (github.com/tensorflow/tflite-micro), whose reference kernels
    /// are built with arm-none-eabi-g++. Clones of gemmlowp and ruy must be where its own build
    /// puts them: tensorflow/lite/micro/tools/make/downloads
    #[arg(long, value_name = "DIR")]
    tflite_micro: Option<PathBuf>,
    /// Record the results as new limits, and write them into boards/README.md
    #[arg(long)]
    overwrite: bool,
}

/// A processor, and the QEMU machine with it.
struct Chip {
    name: &'static str,
    target: &'static str,
    machine: &'static str,
    /// Flags for rustc and GCC.
    rust: &'static str,
    c: &'static [&'static str],
    /// Clock period in picoseconds.
    tick: u64,
    /// Maximum instructions of all layers together, in percent of CMSIS-NN's.
    most: u64,
}

const CHIPS: &[Chip] = &[
    Chip {
        name: "Cortex-M4",
        target: "thumbv7em-none-eabihf",
        machine: "mps2-an386",
        rust: "-Ctarget-cpu=cortex-m4",
        c: &["-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16"],
        tick: 40_000,
        most: 80,
    },
    Chip {
        name: "Cortex-M55",
        target: "thumbv8m.main-none-eabihf",
        machine: "mps3-an547",
        rust: "-Ctarget-cpu=cortex-m55",
        c: &["-mcpu=cortex-m55"],
        tick: 31_250,
        most: 85,
    },
];

/// Maximum instructions of the layers of a model, in percent of CMSIS-NN's.
const MOST_OF_MODEL: u64 = 110;

/// Tolerances above and below a layer's limit in percent, as for models on boards.
const TOLERANCE: u64 = 5;
const SLACK: u64 = 20;

const OWN: &str = "torchlet";
const SECTION: &str = "kernels";
const MODEL_SECTION: &str = "kernels of models";

/// Instructions of a layer: torchlet's, and those of the peers if counted.
type Counts = (u64, [Option<u64>; PEERS.len()]);

/// Counts by chip and layer.
type Found = BTreeMap<&'static str, BTreeMap<String, Counts>>;

pub(crate) fn run(options: &LayerOptions) -> Result<()> {
    crate::tools::qemu()?;
    crate::tools::targets(&CHIPS.iter().map(|chip| chip.target).collect::<Vec<_>>())?;
    let folders = [options.cmsis_nn.as_deref(), options.tflite_micro.as_deref()];
    for (peer, folder) in PEERS.iter().zip(folders) {
        if let Some(folder) = folder {
            crate::tools::arm_toolchain()?;
            peer.check(folder)?;
        }
    }
    let path = root().join("boards/kernel-counts/counts.txt");
    let limits = parse_limits(&std::fs::read_to_string(&path).unwrap_or_default())?;
    let (mut found, mut wrong) = (Found::new(), Vec::new());
    for chip in CHIPS {
        println!("\n-- {}", chip.name);
        let layers = layers(chip, folders, &limits)?;
        for (layer, counts) in &layers {
            println!("  {layer:29}{}", shown(counts));
            if !options.overwrite {
                let name = name_of(chip, layer);
                wrong.extend(compare(&name, counts.0, known(&limits, &name, OWN)));
            }
        }
        let all = layers.values().map(|counts| (1, *counts));
        let sum = sum(all).context("CMSIS-NN's instructions are missing for some layers")?;
        println!("  {:29}{}", "all of them", shown(&sum));
        wrong.extend(exceeded(chip.name, &sum, chip.most));
        for (model, parts) in MODELS {
            let sum = of_model(parts, &layers)?;
            println!("  {:29}{}", format!("of {model}"), shown(&sum));
            wrong.extend(exceeded(&format!("{} {model}", chip.name), &sum, MOST_OF_MODEL));
        }
        found.insert(chip.name, layers);
    }
    if options.overwrite {
        std::fs::write(&path, HEAD.to_owned() + &print_limits(&limits_of(&found)))?;
        page::replace(page::BOARDS, SECTION, &table(&found))?;
        page::replace(page::BOARDS, MODEL_SECTION, &model_table(&found)?)?;
    }
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
}

/// Counts the layers on a chip, with all peers whose sources are given; other peers keep the
/// recorded counts.
fn layers(
    chip: &Chip,
    folders: [Option<&Path>; PEERS.len()],
    limits: &Limits,
) -> Result<BTreeMap<String, Counts>> {
    let mut layers = BTreeMap::new();
    let mut take = |lines: &[String], index: Option<usize>| -> Result<()> {
        for (layer, own, peer) in parse(lines, chip)? {
            let name = name_of(chip, &layer);
            let before = || (own, PEERS.each_ref().map(|peer| known(limits, &name, peer.name)));
            let counts: &mut Counts = layers.entry(layer).or_insert_with(before);
            if let Some(index) = index {
                counts.1[index] = peer;
            }
        }
        Ok(())
    };
    for (index, (peer, folder)) in PEERS.iter().zip(folders).enumerate() {
        if let Some(folder) = folder {
            let library = peer.build(chip, folder)?;
            take(&count(chip, Some(&library))?, Some(index))?;
        }
    }
    if folders == [None; PEERS.len()] {
        take(&count(chip, None)?, None)?;
    }
    Ok(layers)
}

/// The name of a layer's limits.
fn name_of(chip: &Chip, layer: &str) -> String {
    format!("{} {layer}", chip.name)
}

/// A recorded count of a layer.
fn known(limits: &Limits, name: &str, what: &str) -> Option<u64> {
    limits.get(name)?.iter().find(|(name, _)| name == what).map(|(_, number)| *number)
}

/// Converts the counts to limits.
fn limits_of(found: &Found) -> Limits {
    let mut limits = Limits::new();
    for (chip, layers) in found {
        for (layer, (own, peers)) in layers {
            let peers = PEERS.iter().zip(peers).filter_map(|(peer, it)| Some((peer.name, (*it)?)));
            let figures = std::iter::once((OWN, *own)).chain(peers);
            let figures = figures.map(|(what, number)| (what.to_owned(), number)).collect();
            limits.insert(format!("{chip} {layer}"), figures);
        }
    }
    limits
}

/// Sums counts with multiplicities. A peer has a sum only if it has all counts; `None` if the first
/// peer lacks one.
fn sum(counts: impl Iterator<Item = (u64, Counts)>) -> Option<Counts> {
    let mut sum = (0, [Some(0); PEERS.len()]);
    for (times, (own, peers)) in counts {
        sum.0 += times * own;
        for (sum, peer) in sum.1.iter_mut().zip(peers) {
            *sum = sum.zip(peer).map(|(sum, peer)| sum + times * peer);
        }
    }
    sum.1[0].is_some().then_some(sum)
}

/// Total counts of a model's layers.
fn of_model(parts: &[(u64, &str)], layers: &BTreeMap<String, Counts>) -> Result<Counts> {
    let counts = parts.iter().map(|(times, layer)| {
        let counts = layers.get(*layer).with_context(|| format!("no layer {layer}"))?;
        Ok((*times, *counts))
    });
    let counts: Vec<_> = counts.collect::<Result<_>>()?;
    sum(counts.into_iter()).context("CMSIS-NN's instructions are missing for some layers")
}

/// Reports a count that exceeds a percentage of CMSIS-NN's.
fn exceeded(what: &str, (own, peers): &Counts, most: u64) -> Option<String> {
    let is_more = peers[0].is_none_or(|peer| own * 100 > peer * most);
    is_more.then(|| format!("{what}: more than {most} % of CMSIS-NN's"))
}

fn ratio(own: u64, peer: u64) -> f64 {
    own as f64 / peer as f64
}

/// Formats counts in columns, with ratios.
fn shown((own, peers): &Counts) -> String {
    let mut text = format!("{:>12}", grouped(*own));
    for (peer, count) in PEERS.iter().zip(peers) {
        if let Some(count) = count {
            let ratio = ratio(*own, *count);
            // Writing to a string does not fail.
            let _ = write!(text, "{:>13} by {} ({ratio:.2})", grouped(*count), peer.title);
        }
    }
    text
}

/// Reports a count that deviates from its limit.
fn compare(name: &str, own: u64, limit: Option<u64>) -> Option<String> {
    let Some(limit) = limit else {
        return Some(format!("{name} has no limit: --overwrite writes it"));
    };
    if own > limit + limit * TOLERANCE / 100 {
        return Some(format!("{name}: {own} instructions, more than {limit}"));
    }
    (own < limit - limit * SLACK / 100).then(|| {
        format!("{name}: {own} instructions, far below {limit}: --overwrite lowers the limit")
    })
}

/// Builds the image for a chip, runs it, and returns its output.
fn count(chip: &Chip, peer: Option<&Path>) -> Result<Vec<String>> {
    let out = target_dir().join("boards");
    let mut build = cargo(&["build", "--quiet", "--release", "--locked", "--target", chip.target]);
    build.arg("--target-dir").arg(&out).current_dir(root().join("boards/kernel-counts"));
    build.env("RUSTFLAGS", chip.rust).env_remove("PEER");
    if let Some(peer) = peer {
        build.env("PEER", peer);
    }
    process::run(build)?;
    // QEMU's virtual time advances one nanosecond per instruction.
    let mut qemu = command("qemu-system-arm", &["-machine", chip.machine, "-icount", "shift=0"]);
    qemu.args(["-display", "none", "-monitor", "none", "-serial", "none"]);
    qemu.args(["-semihosting-config", "enable=on,target=native", "-kernel"]);
    qemu.arg(out.join(chip.target).join("release/kernel-counts"));
    let found = qemu.output().context("cannot start qemu-system-arm")?;
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    ensure!(found.status.success(), "{}\n{text}", process::show(&qemu));
    Ok(text.lines().map(str::to_owned).collect())
}

/// Parses the counts of each layer, torchlet's and the peer's.
fn parse(lines: &[String], chip: &Chip) -> Result<Vec<(String, u64, Option<u64>)>> {
    let mut found: Vec<(String, u64, Option<u64>)> = Vec::new();
    for line in lines {
        let (layer, what) = line.split_once(": ").with_context(|| line.clone())?;
        let (whose, ticks) = what.split_once(' ').with_context(|| line.clone())?;
        let ticks: u64 = ticks.parse().with_context(|| line.clone())?;
        let count = ticks * chip.tick / 1000;
        match (whose, found.last_mut()) {
            ("own", _) => found.push((layer.to_owned(), count, None)),
            ("peer", Some((last, _, peer))) if last == layer => *peer = Some(count),
            _ => bail!("{line}"),
        }
    }
    ensure!(!found.is_empty(), "no layer was counted");
    Ok(found)
}

const HEAD: &str = "\
# Instructions per layer, counted by QEMU: limits for torchlet's kernels, which `cargo xtask bench
# layers` checks with a tolerance of 5 percent; and counts of CMSIS-NN and of TFLite Micro's
# reference kernels, from the last run in which they were available.
# `cargo xtask bench layers --cmsis-nn DIR --tflite-micro DIR --overwrite` updates all of them.
";

/// Table header with columns for each chip.
fn head(what: &str) -> String {
    let mut text = format!("| {what} |");
    for chip in CHIPS {
        let _ = write!(text, " {} |", chip.name);
        for peer in &PEERS {
            let _ = write!(text, " {} | ratio |", peer.title);
        }
    }
    let columns = CHIPS.len() * (1 + 2 * PEERS.len());
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(columns));
    text
}

/// Table cells of one chip.
fn cells((own, peers): &Counts) -> String {
    let mut text = format!(" {} |", grouped(*own));
    for peer in peers {
        let ratio = peer.map(|peer| format!("{:.2}", ratio(*own, peer)));
        let peer = peer.map_or(String::new(), grouped);
        let _ = write!(text, " {peer} | {} |", ratio.unwrap_or_default());
    }
    text
}

fn table(found: &Found) -> String {
    let mut text = head("layer");
    for layer in found.values().next().into_iter().flat_map(BTreeMap::keys) {
        let _ = write!(text, "| {layer} |");
        for chip in CHIPS {
            // All chips count the same layers.
            text += &found[chip.name].get(layer).map_or(String::new(), cells);
        }
        text.push('\n');
    }
    text
}

fn model_table(found: &Found) -> Result<String> {
    let mut text = head("layers of");
    for (model, parts) in MODELS {
        let _ = write!(text, "| {model} |");
        for chip in CHIPS {
            text += &cells(&of_model(parts, &found[chip.name])?);
        }
        text.push('\n');
    }
    Ok(text)
}
