//! Flash sizes on a microcontroller: of the core alone, and of whole program images ([`image`]).

mod image;

pub(crate) use image::{Split, split};

use crate::process::{self, cargo, root, target_dir};
use anyhow::{Context, Result, bail};
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SectionKind};
use std::path::Path;

/// Maximum flash bytes that the core may add to an image without it (`boards/core-size`), without
/// error messages. Measured at the last change: 34,500 bytes (rustc 1.95, thumbv7em-none-eabihf),
/// including 1,400 bytes for unplanned state, which images of programs without such state omit.
/// Checkouts at different paths differ by a few bytes, because the hashes of crates decide the
/// order of functions. Lower it when the core shrinks; the aim is 32 kB.
const LIMIT: u64 = 34_560;

const TARGET: &str = "thumbv7em-none-eabihf";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of the largest functions and constants to list
    #[arg(long, default_value_t = 15)]
    symbols: usize,
    /// Instead, link each model of the boards for these chips (default: all), and write the sizes
    /// into boards/README.md
    #[arg(long, num_args = 0.., value_name = "CHIP")]
    models: Option<Vec<String>>,
}

impl Default for Options {
    fn default() -> Self {
        Options { symbols: 15, models: None }
    }
}

/// Bytes of an image by kind of section.
#[derive(Default)]
pub(crate) struct Sizes {
    text: u64,
    constants: u64,
    data: u64,
    bss: u64,
}

impl Sizes {
    /// Bytes in flash, including initial values of variables.
    pub(crate) fn flash(&self) -> u64 {
        self.text + self.constants + self.data
    }

    /// Bytes of variables.
    pub(crate) fn ram(&self) -> u64 {
        self.data + self.bss
    }

    /// Sums the loaded sections of an ELF file, except reserved stack and heap.
    pub(crate) fn of(elf: &[u8]) -> Result<Self> {
        let file = object::File::parse(elf)?;
        let mut sizes = Sizes::default();
        for section in file.sections() {
            let is_loaded = has_flag(section.flags(), object::elf::SHF_ALLOC);
            // Start-up code of some processors reserves all remaining memory for stack and heap.
            let is_reserved = section.name().is_ok_and(|name| [".stack", ".heap"].contains(&name));
            if !is_loaded || is_reserved {
                continue;
            }
            let bytes = match section.kind() {
                SectionKind::Text => &mut sizes.text,
                SectionKind::UninitializedData => &mut sizes.bss,
                _ if is_writable(section.flags()) => &mut sizes.data,
                _ => &mut sizes.constants,
            };
            *bytes += section.size();
        }
        Ok(sizes)
    }
}

/// Whether a section holds variables.
fn is_writable(flags: SectionFlags) -> bool {
    has_flag(flags, object::elf::SHF_WRITE)
}

fn has_flag(flags: SectionFlags, flag: u32) -> bool {
    matches!(flags, SectionFlags::Elf { sh_flags } if sh_flags & u64::from(flag) != 0)
}

impl std::fmt::Display for Sizes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Sizes { text, constants, data, bss } = self;
        let flash = self.flash();
        write!(
            f,
            ".text {text:>7}  .rodata {constants:>6}  .data {data:>5}  .bss {bss:>6}  flash \
             {flash:>7}"
        )
    }
}

fn link(features: &[&str]) -> Result<Vec<u8>> {
    let dir = root().join("boards/core-size");
    let out = target_dir().join("core-size");
    let features = features.join(",");
    let mut build = cargo(&["build", "--quiet", "--release", "--locked", "--target", TARGET]);
    build.args(["--features", &features]).arg("--target-dir").arg(&out).current_dir(dir);
    build.arg("--config").arg(format!("build.rustflags=[\"{}\"]", without_root()));
    process::run(build)?;
    read(&out.join(TARGET).join("release/core-size"))
}

/// A flag of rustc that removes the path of the checkout from the locations of panics: sizes must
/// not depend on its length.
fn without_root() -> String {
    format!("--remap-path-prefix={}=.", root().display())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

pub(crate) fn run(options: &Options) -> Result<()> {
    crate::tools::embedded_targets()?;
    if let Some(chips) = &options.models {
        return image::models(chips);
    }
    let empty = Sizes::of(&link(&["empty"])?)?;
    let messages = Sizes::of(&link(&["messages"])?)?;
    let plain = link(&[])?;
    let sizes = Sizes::of(&plain)?;
    println!("torchlet-core, {TARGET}, opt-level z, LTO, one backend and one trivial operator:");
    println!("  whole image           {sizes}");
    println!("  with error messages   {messages}");
    println!("  without core          {empty}");
    let core = sizes.flash().saturating_sub(empty.flash());
    println!(
        "core: {core} bytes of flash, in addition to {} of an image without it",
        empty.flash()
    );
    list_symbols(&plain, options.symbols)?;
    if core > LIMIT {
        bail!("core uses {core} bytes of flash, more than the limit of {LIMIT}");
    }
    image::run(options.symbols)
}

fn list_symbols(elf: &[u8], count: usize) -> Result<()> {
    let file = object::File::parse(elf)?;
    let mut symbols: Vec<(u64, &str)> = file
        .symbols()
        .filter_map(|symbol| Some((symbol.size(), symbol.name().ok()?)))
        .filter(|(size, _)| *size > 0)
        .collect();
    symbols.sort_unstable_by(|a, b| b.cmp(a));
    for (size, name) in symbols.iter().take(count) {
        println!("  {size:>6}  {:#}", rustc_demangle::demangle(name));
    }
    Ok(())
}
