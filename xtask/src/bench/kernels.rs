//! Instructions of the 8-bit kernels on emulated Cortex-M (`boards/kernel-counts`), layer by layer, beside those of CMSIS-NN's C.

use crate::board::{Limits, parse_limits, print_limits};
use crate::page::{self, grouped};
use crate::process::{self, cargo, command, output, root, target_dir};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

#[derive(clap::Args, Default)]
pub(crate) struct KernelOptions {
    /// A folder with the sources of CMSIS-NN (github.com/ARM-software/CMSIS-NN), to build it with arm-none-eabi-gcc and count its
    /// instructions, too, in the same image. Without it, its counts are those that were written down
    #[arg(long, value_name = "DIR")]
    cmsis_nn: Option<PathBuf>,
    /// Takes what is found as the new limits, and writes it into boards/README.md
    #[arg(long)]
    overwrite: bool,
}

/// A processor, and QEMU's machine with it.
struct Chip {
    name: &'static str,
    target: &'static str,
    machine: &'static str,
    /// What rustc, and what GCC is told.
    rust: &'static str,
    c: &'static [&'static str],
    /// Picoseconds from one tick of its clock to the next.
    tick: u64,
    /// How much of CMSIS-NN's instructions all layers together may take, in percent.
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
        most: 105,
    },
];

/// How CMSIS-NN's own build calls the compiler, and what is asked of all targets.
const C_FLAGS: &[&str] = &[
    "-Ofast",
    "-mthumb",
    "-mfloat-abi=hard",
    "-ffunction-sections",
    "-fdata-sections",
    "-std=c11",
];

/// The folders of its sources that 8-bit layers are made of.
const FOLDERS: &[&str] =
    &["BasicMath", "Convolution", "FullyConnected", "NNSupport", "Pooling", "Softmax", "Transpose"];

/// How much more than its limit a layer may take before it counts, and how far below it may be, in percent: as of models on boards.
const TOLERANCE: u64 = 5;
const SLACK: u64 = 20;

const OWN: &str = "torchlet";
const PEER: &str = "cmsis-nn";
const SECTION: &str = "kernels";

pub(crate) fn run(options: &KernelOptions) -> Result<()> {
    crate::tools::qemu()?;
    crate::tools::targets(&CHIPS.iter().map(|chip| chip.target).collect::<Vec<_>>())?;
    if let Some(folder) = &options.cmsis_nn {
        crate::tools::arm_toolchain()?;
        let header = folder.join("Include/arm_nnfunctions.h");
        ensure!(
            header.is_file(),
            "there is no {}: are these CMSIS-NN's sources?",
            header.display()
        );
    }
    let path = root().join("boards/kernel-counts/counts.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let mut limits = parse_limits(&text)?;
    let mut wrong = Vec::new();
    for chip in CHIPS {
        println!("\n-- {}", chip.name);
        let peer =
            options.cmsis_nn.as_deref().map(|folder| build_peer(chip, folder)).transpose()?;
        let lines = count(chip, peer.as_deref())?;
        let mut sums = [0; 2];
        for (layer, (own, peer)) in parse(&lines, chip)? {
            let name = format!("{} {layer}", chip.name);
            let known = limits.get(&name).cloned().unwrap_or_default();
            let known = |what| known.iter().find(|(name, _)| name == what).map(|(_, it)| *it);
            let peer = peer.or(known(PEER));
            if !options.overwrite {
                wrong.extend(compare(&name, own, known(OWN)));
            }
            let beside = peer.map_or(String::new(), |peer| format!("{:>12}", grouped(peer)));
            let ratio = peer.map_or(String::new(), |peer| format!("{:>6.2}", ratio(own, peer)));
            println!("  {layer:28}{:>12}{beside}{ratio}", grouped(own));
            if let Some(peer) = peer {
                sums = [sums[0] + own, sums[1] + peer];
            }
            let figures = [(OWN, Some(own)), (PEER, peer)];
            let figures = figures.into_iter().filter_map(|(what, it)| Some((what.to_owned(), it?)));
            if options.overwrite {
                limits.insert(name, figures.collect());
            }
        }
        let [own, peer] = sums;
        println!("  all of them: {:.2} of CMSIS-NN's instructions", ratio(own, peer));
        if own * 100 > peer * chip.most {
            wrong.push(format!("{}: more than {} % of CMSIS-NN's", chip.name, chip.most));
        }
    }
    if options.overwrite {
        std::fs::write(&path, HEAD.to_owned() + &print_limits(&limits))?;
        page::replace(page::BOARDS, SECTION, &table(&limits))?;
    }
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
}

fn ratio(own: u64, peer: u64) -> f64 {
    own as f64 / peer as f64
}

/// What is wrong with a count, if anything.
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

/// Builds CMSIS-NN and what calls it. Gives the folder of the library.
fn build_peer(chip: &Chip, sources: &Path) -> Result<PathBuf> {
    println!("CMSIS-NN: arm-none-eabi-gcc {} {}", C_FLAGS.join(" "), chip.c.join(" "));
    let sources = std::path::absolute(sources)?;
    let out = target_dir().join("kernel-counts/peer").join(chip.name);
    let _ = std::fs::remove_dir_all(&out);
    std::fs::create_dir_all(&out)?;
    let mut files = vec![root().join("boards/kernel-counts/peer/peer.c")];
    for folder in FOLDERS {
        let folder = sources.join("Source").join(format!("{folder}Functions"));
        let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        for entry in entries {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            // Some compilers lack the types of the others.
            let is_float = ["_f16", "_f32", "_flt"].iter().any(|end| name.ends_with(end));
            if path.extension().is_some_and(|it| it == "c") && !is_float {
                files.push(path);
            }
        }
    }
    let mut compile = command("arm-none-eabi-gcc", C_FLAGS);
    compile.args(chip.c).arg("-c").arg("-I").arg(sources.join("Include"));
    compile.args(&files).current_dir(&out);
    output(compile)?;
    let mut archive = command("arm-none-eabi-ar", &["rcs", "libpeer.a"]);
    for entry in std::fs::read_dir(&out)? {
        archive.arg(entry?.file_name());
    }
    archive.current_dir(&out);
    output(archive)?;
    Ok(out)
}

/// Builds the image for a chip, runs it, and gives what it prints.
fn count(chip: &Chip, peer: Option<&Path>) -> Result<Vec<String>> {
    let out = target_dir().join("kernel-counts");
    let mut build = cargo(&["build", "--quiet", "--release", "--locked", "--target", chip.target]);
    build.arg("--target-dir").arg(&out).current_dir(root().join("boards/kernel-counts"));
    build.env("RUSTFLAGS", chip.rust).env_remove("PEER");
    if let Some(peer) = peer {
        build.env("PEER", peer);
    }
    process::run(build)?;
    // An instruction takes a nanosecond of the machine's time.
    let mut qemu = command("qemu-system-arm", &["-machine", chip.machine, "-icount", "shift=0"]);
    qemu.args(["-display", "none", "-monitor", "none", "-serial", "none"]);
    qemu.args(["-semihosting-config", "enable=on,target=native", "-kernel"]);
    qemu.arg(out.join(chip.target).join("release/kernel-counts"));
    let found = qemu.output().context("cannot start qemu-system-arm")?;
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    ensure!(found.status.success(), "{}\n{text}", process::show(&qemu));
    Ok(text.lines().map(str::to_owned).collect())
}

/// A layer, and its instructions by us and by the peer, if that is there.
type Count = (String, (u64, Option<u64>));

/// What each layer takes.
fn parse(lines: &[String], chip: &Chip) -> Result<Vec<Count>> {
    let mut found: Vec<Count> = Vec::new();
    for line in lines {
        let (layer, what) = line.split_once(": ").with_context(|| line.clone())?;
        let (whose, ticks) = what.split_once(' ').with_context(|| line.clone())?;
        let ticks: u64 = ticks.parse().with_context(|| line.clone())?;
        let count = ticks * chip.tick / 1000;
        match (whose, found.last_mut()) {
            ("own", _) => found.push((layer.to_owned(), (count, None))),
            ("peer", Some((last, counts))) if last == layer => counts.1 = Some(count),
            _ => bail!("{line}"),
        }
    }
    ensure!(!found.is_empty(), "no layer was counted");
    Ok(found)
}

const HEAD: &str = "\
# Instructions of layers as QEMU counts them: ours, which `cargo xtask bench kernels` holds to them, with 5 percent to spare; and CMSIS-NN's,
# as they were when it was last there. `cargo xtask bench kernels --cmsis-nn DIR --overwrite` writes both anew.
";

fn table(limits: &Limits) -> String {
    let mut text = String::from("| layer |");
    let mut layers: BTreeMap<&str, BTreeMap<&str, [Option<u64>; 2]>> = BTreeMap::new();
    for (name, figures) in limits {
        let Some((chip, layer)) = name.split_once(' ') else { continue };
        let of = |what| figures.iter().find(|(name, _)| name == what).map(|(_, number)| *number);
        layers.entry(layer).or_default().insert(chip, [of(OWN), of(PEER)]);
    }
    for chip in CHIPS {
        // Writing to a string does not fail.
        let _ = write!(text, " {} | CMSIS-NN | ratio |", chip.name);
    }
    let _ = writeln!(text, "\n|---|{}", "---|---|---|".repeat(CHIPS.len()));
    for (layer, chips) in layers {
        let _ = write!(text, "| {layer} |");
        for chip in CHIPS {
            let [own, peer] = chips.get(chip.name).copied().unwrap_or_default();
            let shown = |it: Option<u64>| it.map_or(String::new(), grouped);
            let ratio = own.zip(peer).map(|(own, peer)| format!("{:.2}", ratio(own, peer)));
            let _ =
                write!(text, " {} | {} | {} |", shown(own), shown(peer), ratio.unwrap_or_default());
        }
        text.push('\n');
    }
    text
}
