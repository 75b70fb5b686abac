//! Sizes of whole images with a program and nothing else (`boards/image-size`), without logs, as in
//! a product.

use super::{Sizes, TARGET, is_writable, list_symbols, read, without_root};
use crate::page::{self, grouped};
use crate::process::{self, cargo, root, target_dir};
use anyhow::{Context, Result, bail, ensure};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

/// A program with limits for its image, slightly above the size when it was last changed (rustc
/// 1.95, opt-level z). Lower them when it shrinks. The original aims of 80,000 and 64,000 bytes of
/// flash are met and must stay so.
struct Case {
    name: &'static str,
    /// File below `tests/fixtures`.
    model: &'static str,
    /// Whether it is compiled instead of interpreted.
    compiled: bool,
    flash: u64,
    ram: u64,
}

const CASES: &[Case] = &[
    case("digits, f32", "digits/digits.pte", false, 78_520, 16_800),
    case("digits, int8", "tinyml/digits.pte", false, 62_650, 3_900),
    case("digits, f32, compiled", "digits/digits.pte", true, 29_700, 7_040),
];

const fn case(
    name: &'static str,
    model: &'static str,
    compiled: bool,
    flash: u64,
    ram: u64,
) -> Case {
    Case { name, model, compiled, flash, ram }
}

/// Bytes of flash by component.
#[derive(Default)]
pub(crate) struct Split {
    pub(crate) model: u64,
    pub(crate) core: u64,
    pub(crate) kernels: u64,
    pub(crate) rest: u64,
}

/// Bytes of RAM by use, named as in `torchlet-build`.
#[derive(Default)]
struct Memory {
    arena: u64,
    planned: u64,
    scratch: u64,
}

/// Links each image, shows the sizes of its components, and compares them with the limits.
pub(super) fn run(symbols: usize) -> Result<()> {
    println!(
        "\nwhole images without logs, {TARGET}, opt-level z, LTO, types of the program alone:"
    );
    for case in CASES {
        let chip =
            CHIPS.iter().find(|chip| chip.target == TARGET).context("no chip has this target")?;
        let elf = link(chip, case.model, case.compiled)?;
        let sizes = Sizes::of(&elf)?;
        let (flash, ram) = (sizes.flash(), sizes.ram());
        let Split { model, core, kernels, rest } = split(&elf, flash)?;
        let Memory { arena, planned, scratch } = memory(&elf)?;
        println!(
            "  {:<22} flash {flash:>6}: model {model}, core {core}, kernels {kernels}, rest {rest}",
            case.name
        );
        println!(
            "  {:<22} ram   {ram:>6}: arena {arena}, planned {planned}, scratch {scratch}",
            ""
        );
        list_symbols(&elf, symbols)?;
        for (what, found, limit) in [("flash", flash, case.flash), ("RAM", ram, case.ram)] {
            ensure!(
                found <= limit,
                "the image of {} uses {found} bytes of {what}, more than the limit of {limit}",
                case.name
            );
        }
    }
    Ok(())
}

/// A processor to link images for. (Programs for AArch64 allocate their memory at run time.)
struct Chip {
    name: &'static str,
    target: &'static str,
    cpu: Option<&'static str>,
    /// Features of the image.
    features: &'static [&'static str],
    /// The board that runs the models on it.
    board: &'static str,
}

/// This feature requires instructions of Cortex-M3 and newer.
const SMALL: &[&str] = &["small-mem"];

const CHIPS: &[Chip] = &[
    Chip {
        name: "Cortex-M4F",
        target: TARGET,
        cpu: None,
        features: SMALL,
        board: "qemu-cortex-m4f",
    },
    Chip {
        name: "Cortex-M55",
        target: "thumbv8m.main-none-eabihf",
        cpu: Some("cortex-m55"),
        features: SMALL,
        board: "qemu-cortex-m55",
    },
    Chip {
        name: "Cortex-M0",
        target: "thumbv6m-none-eabi",
        cpu: None,
        features: &[],
        board: "qemu-cortex-m0",
    },
    Chip {
        name: "RV32IMAC",
        target: "riscv32imac-unknown-none-elf",
        cpu: None,
        features: &[],
        board: "qemu-riscv32",
    },
];

/// Models of the boards: names, and files below `tests/fixtures`, smallest first. Large ones need
/// minutes to link.
const MODELS: &[(&str, &str)] = &[
    ("digits_int8", "tinyml/digits.pte"),
    ("lstm_step", "tinyml/lstm_step.pte"),
    ("digits", "digits/digits.pte"),
    ("keyword_spotting", "tinyml/keyword_spotting.pte"),
    ("image_classification", "tinyml/image_classification.pte"),
    ("mlp", "tinyml/mlp.pte"),
    ("visual_wake_words", "tinyml/visual_wake_words.pte"),
    ("anomaly_detection", "tinyml/anomaly_detection.pte"),
];

/// Links the models for chips, and writes the sizes into the boards' page. Rows of other chips are
/// kept.
pub(super) fn models(chips: &[String]) -> Result<()> {
    let names = || CHIPS.iter().map(|chip| chip.name);
    if let Some(name) = chips.iter().find(|name| names().all(|known| known != **name)) {
        bail!("no chip {name}; expected one of {}", names().collect::<Vec<_>>().join(", "));
    }
    let is_chosen = |chip: &&Chip| chips.is_empty() || chips.iter().any(|name| name == chip.name);
    let mut rows = page::rows(page::BOARDS, SECTION)?;
    for chip in CHIPS.iter().filter(is_chosen) {
        crate::tools::targets(&[chip.target])?;
        rows.retain(|row| !row.starts_with(&format!("| {} |", chip.name)));
        let runs = crate::board::models(chip.board);
        for (name, model) in MODELS.iter().filter(|(name, _)| runs.contains(name)) {
            let row = row(chip, name, model)?;
            println!("{row}");
            rows.push(row);
            rows.sort();
            page::replace(page::BOARDS, SECTION, &format!("{HEAD}{}\n", rows.join("\n")))?;
        }
    }
    Ok(())
}

/// The table's section in the boards' page.
const SECTION: &str = "images";

const HEAD: &str = "\
| chip | program | flash | core | kernels | program's file | rest | RAM | arena | planned | scratch | rest | stack |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
";

fn row(chip: &Chip, name: &str, model: &str) -> Result<String> {
    let elf = link(chip, model, false)?;
    let sizes = Sizes::of(&elf)?;
    let (flash, ram) = (sizes.flash(), sizes.ram());
    let Split { model, core, kernels, rest } = split(&elf, flash)?;
    let Memory { arena, planned, scratch } = memory(&elf)?;
    let ram_rest = ram.saturating_sub(arena + planned + scratch);
    let numbers = [flash, core, kernels, model, rest, ram, arena, planned, scratch, ram_rest];
    let numbers: Vec<String> = numbers.into_iter().map(grouped).collect();
    let stack = crate::board::stack(chip.board, name)?.map_or(String::new(), grouped);
    Ok(format!("| {} | {name} | {} | {stack} |", chip.name, numbers.join(" | ")))
}

fn link(chip: &Chip, model: &str, compiled: bool) -> Result<Vec<u8>> {
    // Shared with the boards, whose build scripts have the same dependencies.
    let out = target_dir().join("boards");
    let mut build = cargo(&["build", "--quiet", "--release", "--locked", "--target", chip.target]);
    build.arg("--target-dir").arg(&out).current_dir(root().join("boards/image-size"));
    build.args(["--features", &chip.features.join(",")]);
    build.env("MODEL", root().join("tests/fixtures").join(model));
    // The caller's value must not change what is measured.
    match compiled {
        true => build.env("COMPILED", "1"),
        false => build.env_remove("COMPILED"),
    };
    // Replaces the flags of the folder's configuration.
    let mut flags = format!("-C symbol-mangling-version=v0 {}", without_root());
    if let Some(cpu) = chip.cpu {
        flags += &format!(" -C target-cpu={cpu}");
    }
    build.env("RUSTFLAGS", flags);
    process::run(build)?;
    read(&out.join(chip.target).join("release/image-size"))
}

/// Sums the sizes of symbols by crate. Code without symbols is part of the rest.
pub(crate) fn split(elf: &[u8], flash: u64) -> Result<Split> {
    let mut split = Split::default();
    let file = object::File::parse(elf)?;
    for symbol in file.symbols() {
        let is_stored = matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Data);
        if !is_stored || is_variable(&file, &symbol) {
            continue;
        }
        let name = format!("{:#}", rustc_demangle::demangle(symbol.name()?));
        let is_data = symbol.kind() == SymbolKind::Data;
        let bytes = match &name {
            name if is_data && (name.contains("::PROGRAM") || name.contains("::constants::")) => {
                &mut split.model
            }
            // An instance of a core function for a kernel counts as kernel.
            name if name.contains("torchlet_portable") || name.contains("libm::") => {
                &mut split.kernels
            }
            name if name.contains("torchlet_core") => &mut split.core,
            _ => continue,
        };
        *bytes += symbol.size();
    }
    split.rest = flash.saturating_sub(split.model + split.core + split.kernels);
    Ok(split)
}

/// Sums the sizes of the statics of [`Memory`] by name.
fn memory(elf: &[u8]) -> Result<Memory> {
    let mut memory = Memory::default();
    let file = object::File::parse(elf)?;
    for symbol in file.symbols().filter(|symbol| is_variable(&file, symbol)) {
        let name = symbol.name()?;
        let bytes = match name {
            name if name.contains("ARENA_MEMORY") => &mut memory.arena,
            name if name.contains("PLANNED_MEMORY") => &mut memory.planned,
            name if name.contains("SCRATCH_MEMORY") => &mut memory.scratch,
            _ => continue,
        };
        *bytes += symbol.size();
    }
    Ok(memory)
}

/// Whether a symbol is in a writable section.
fn is_variable<'a>(file: &object::File<'a>, symbol: &impl ObjectSymbol<'a>) -> bool {
    let section = symbol.section_index().and_then(|index| file.section_by_index(index).ok());
    section.is_some_and(|section| is_writable(section.flags()))
}
