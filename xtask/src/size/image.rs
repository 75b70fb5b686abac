//! Whole images of a program and nothing else (`boards/image-size`): without logs, as a product would be flashed.

use super::{Sizes, TARGET, list_symbols, read};
use crate::process::{self, cargo, root, target_dir};
use anyhow::{Result, ensure};
use object::{Object, ObjectSymbol, SymbolKind};

/// A program, and the bytes that its image may take: what it took when it was last changed (rustc 1.95, opt-level z). Lower them
/// when it shrinks. The aims, 80,000 and 64,000 bytes of flash, are met: it is to stay so.
struct Case {
    name: &'static str,
    /// The file below `tests/fixtures`.
    model: &'static str,
    flash: u64,
    ram: u64,
}

const CASES: &[Case] = &[
    Case { name: "digits, f32", model: "digits/digits.pte", flash: 79_999, ram: 17_700 },
    Case { name: "digits, int8", model: "tinyml/digits.pte", flash: 63_600, ram: 5_350 },
];

/// Bytes of flash by what they are for.
#[derive(Default)]
struct Split {
    model: u64,
    core: u64,
    kernels: u64,
    rest: u64,
}

/// Bytes of RAM by what they are for, as `torchlet-build` names it.
#[derive(Default)]
struct Memory {
    arena: u64,
    planned: u64,
    scratch: u64,
}

/// Links each image, shows where its bytes go, and compares them with the limits.
pub(super) fn run(symbols: usize) -> Result<()> {
    println!(
        "\nwhole images without logs, {TARGET}, opt-level z, LTO, types of the program alone:"
    );
    for case in CASES {
        let elf = link(case)?;
        let sizes = Sizes::of(&elf)?;
        let (flash, ram) = (sizes.flash(), sizes.ram());
        let Split { model, core, kernels, rest } = split(&elf, flash)?;
        let Memory { arena, planned, scratch } = memory(&elf)?;
        println!(
            "  {:<13} flash {flash:>6}: model {model}, core {core}, kernels {kernels}, rest {rest}",
            case.name
        );
        println!(
            "  {:<13} ram   {ram:>6}: arena {arena}, planned {planned}, scratch {scratch}",
            ""
        );
        list_symbols(&elf, symbols)?;
        for (what, found, limit) in [("flash", flash, case.flash), ("RAM", ram, case.ram)] {
            ensure!(
                found <= limit,
                "the image of {} takes {found} bytes of {what}, more than the limit of {limit}",
                case.name
            );
        }
    }
    Ok(())
}

fn link(case: &Case) -> Result<Vec<u8>> {
    let out = target_dir().join("image-size");
    let mut build = cargo(&["build", "--quiet", "--release", "--locked", "--target-dir"]);
    build.arg(&out).current_dir(root().join("boards/image-size"));
    build.env("MODEL", root().join("tests/fixtures").join(case.model));
    process::run(build)?;
    read(&out.join(TARGET).join("release/image-size"))
}

/// Sums up symbols by the crate that they come from. What has none is among the rest.
fn split(elf: &[u8], flash: u64) -> Result<Split> {
    let mut split = Split::default();
    let file = object::File::parse(elf)?;
    for symbol in file.symbols() {
        let is_stored = matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Data);
        if !is_stored || is_ram(symbol.address()) {
            continue;
        }
        let name = format!("{:#}", rustc_demangle::demangle(symbol.name()?));
        let bytes = match &name {
            name if name.contains("model::PROGRAM") => &mut split.model,
            // A function of core's that was made for a kernel is the kernel's.
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

/// Sums up the statics of [`Memory`] by their names.
fn memory(elf: &[u8]) -> Result<Memory> {
    let mut memory = Memory::default();
    let file = object::File::parse(elf)?;
    for symbol in file.symbols().filter(|symbol| is_ram(symbol.address())) {
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

/// Whether an address of a Cortex-M is one of RAM.
fn is_ram(address: u64) -> bool {
    (0x2000_0000..0x4000_0000).contains(&address)
}
