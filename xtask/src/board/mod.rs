//! Runs the firmware images of `boards/` in QEMU, and compares their outputs with those of the host
//! in the same run.

mod compare;
mod compiled;
mod demo;
mod faults;
mod figures;
mod image;
mod log;
mod machines;
mod programs;
mod uf2;

use crate::process::root;
use crate::size::Sizes;
use anyhow::{Result, bail, ensure};
use compare::Host;
use compiled::COMPILED;
use demo::DEMO;
use figures::{Figures, Operators};
pub(crate) use figures::{Limits, parse as parse_limits, print as print_limits, stack};
use image::Image;
use machines::{BOARDS, Board, Machine};
use object::{Object, ObjectSymbol};
use programs::PROGRAMS;
use std::path::{Path, PathBuf};

#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// The boards (folders below boards/) [default: all]. qemu-cortex-m4 alone is the demo: its log
    /// is shown and compared with its snapshot, not with this machine
    boards: Vec<String>,
    /// Show all log lines
    #[arg(long)]
    log: bool,
    /// Record the demo's log, and sizes and instruction counts, as the new expectation
    #[arg(long)]
    overwrite: bool,
    /// Show the instructions of each operator
    #[arg(long)]
    operators: bool,
    /// Run boards with this program instead of their own, and show their logs: qemu-cortex-m4 (the
    /// default) with a `.pte` file for the same image, other boards with any `.bpte` file with one
    /// input tensor
    #[arg(long, value_name = "FILE", conflicts_with = "overwrite")]
    model: Option<PathBuf>,
}

/// Workspaces below `boards/`, including that folder itself.
pub(crate) fn workspaces() -> Result<Vec<PathBuf>> {
    let boards = root().join("boards");
    let mut found = vec![boards.clone()];
    for entry in std::fs::read_dir(boards)? {
        let path = entry?.path();
        let manifest = std::fs::read_to_string(path.join("Cargo.toml"));
        if manifest.is_ok_and(|text| text.lines().any(|line| line == "[workspace]")) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The models that a board runs.
pub(crate) fn models(board: &str) -> &'static [&'static str] {
    BOARDS.iter().find(|known| known.name == board).map_or(&[], |board| board.models)
}

/// Runs boards and shows the instructions of each operator; with `overwrite`, writes them into the
/// boards' page.
pub(crate) fn bench(boards: &[String], overwrite: bool) -> Result<()> {
    crate::tools::qemu()?;
    let is_chosen = |name: &str| boards.is_empty() || boards.iter().any(|it| it == name);
    let with_models = || BOARDS.iter().filter(|board| !board.models.is_empty());
    if let Some(name) = boards.iter().find(|name| with_models().all(|known| known.name != **name)) {
        let names: Vec<&str> = with_models().map(|board| board.name).collect();
        bail!("no board {name} runs models; expected one of {}", names.join(", "));
    }
    let mut operators = Operators::default();
    for board in with_models().filter(|board| is_chosen(board.name)) {
        let Some(machine) = &board.machine else { continue };
        println!("\n-- {}", board.name);
        crate::tools::targets(&[board.target])?;
        let lines = Image::build(board, &[])?.run(machine, &files(board, machine))?;
        for ran in log::parse(&lines)?.iter().filter(|ran| !ran.model.contains(' ')) {
            println!("  {}", ran.model);
            figures::show_operators(ran, machine);
            operators.add(board.name, ran, machine);
        }
    }
    if overwrite { operators.write() } else { Ok(()) }
}

/// Arguments for the host files that a board reads its models from.
fn files(board: &Board, machine: &Machine) -> Vec<String> {
    let files = board.models.iter().filter(|_| machine.takes_files);
    files.map(|model| compare::argument(model)).collect()
}

pub(crate) fn run(options: &Options) -> Result<()> {
    crate::tools::qemu()?;
    let all = || [&DEMO, &PROGRAMS, &COMPILED].into_iter().chain(BOARDS);
    let names = || all().map(|board| board.name);
    if let Some(name) = options.boards.iter().find(|name| names().all(|known| known != **name)) {
        bail!("no board {name}; expected one of {}", names().collect::<Vec<_>>().join(", "));
    }
    if let Some(model) = &options.model {
        let names = match &options.boards[..] {
            [] => vec![DEMO.name],
            names => names.iter().map(String::as_str).collect(),
        };
        let boards: Vec<&Board> = all().filter(|board| names.contains(&board.name)).collect();
        return boards.into_iter().try_for_each(|board| try_out(board, model));
    }
    let is_chosen =
        |name: &str| options.boards.is_empty() || options.boards.iter().any(|it| it == name);
    let chosen = || all().filter(|board| is_chosen(board.name));
    crate::tools::targets(&chosen().map(|board| board.target).collect::<Vec<_>>())?;
    if options.boards == [DEMO.name] && !options.overwrite {
        // Nothing is built for the host then, so that newcomers wait as little as possible.
        return demo::show();
    }
    let (mut host, mut figures) = (Host::default(), Figures::default());
    let mut failed = Vec::new();
    for board in chosen() {
        println!("\n-- {}", board.name);
        let result = match board.name {
            name if name == DEMO.name => demo::check(&mut host, options.overwrite),
            name if name == PROGRAMS.name => programs::check(),
            name if name == COMPILED.name => compiled::check(&mut figures),
            name => check(board, &mut host, &mut figures, options).and_then(|()| match name {
                SWAPPED_BOARD => check_swapped(board, &mut host),
                _ => Ok(()),
            }),
        };
        if let Err(error) = result {
            println!("{}: {error:#}", board.name);
            failed.push(board.name);
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    figures.check(options.overwrite)
}

/// Builds a board's image; if QEMU emulates the machine, runs it and compares the results.
fn check(board: &Board, host: &mut Host, figures: &mut Figures, options: &Options) -> Result<()> {
    let image = Image::build(board, &[])?;
    let sizes = Sizes::of(&image.elf)?;
    println!("image: {sizes}");
    figures.image(board, &image.elf, &sizes)?;
    let has_heap = board.machine.as_ref().is_some_and(|machine| machine.takes_files);
    match (allocator(&image.elf)?, has_heap) {
        (Some(name), false) => bail!("the image contains an allocator: {name}"),
        (None, true) => bail!("the allocator of the board with a heap was not found"),
        _ => {}
    }
    if board.name == UF2_BOARD {
        println!("copy to the board: {}", image.write_converted("uf2", &uf2::of(&image.elf)?)?);
    }
    let Some(machine) = &board.machine else { return Ok(()) };
    let lines = image.run(machine, &files(board, machine))?;
    if options.log {
        for line in &lines {
            println!("  {line}");
        }
    }
    let all = log::parse(&lines)?;
    let (plain, special): (Vec<_>, Vec<_>) = all.iter().partition(|ran| !ran.model.contains(' '));
    let ran: Vec<&str> = plain.iter().map(|ran| ran.model.as_str()).collect();
    ensure!(ran == board.models, "ran {ran:?}, expected {:?}", board.models);
    for ran in plain {
        host.compare(ran)?;
        show(ran, machine);
        if options.operators {
            figures::show_operators(ran, machine);
        }
        figures.model(board.name, ran, machine)?;
    }
    ensure!(!all.is_empty(), "no model ran");
    for ran in special {
        host.compare(ran)?;
        let stack = if ran.stack == 0 { String::new() } else { format!(", stack {} B", ran.stack) };
        println!("  {}: as on the host{stack}", ran.model);
        if board.models.is_empty() {
            figures.stack(board, ran.stack);
        }
    }
    let with = |special: &str| all.iter().filter(|ran| ran.model.ends_with(special)).count();
    if board.models.contains(&"mlp") {
        ensure!(with(" shared") == 2 && with(" external") == 1, "some special runs are missing");
    }
    let kernels = lines.iter().find(|line| line.starts_with("kernels: "));
    if let Some(kernels) = kernels {
        println!("  {kernels}");
    }
    let has_own_kernels = DSP_BOARDS.contains(&board.name);
    ensure!(kernels.is_some() == has_own_kernels, "compared kernels: {kernels:?}");
    faults::check(&lines)
}

/// Boards with 8-bit kernels in special instructions, which they compare with plain loops.
const DSP_BOARDS: [&str; 3] = ["qemu-cortex-m33", "qemu-cortex-m4f", "qemu-cortex-m55"];

/// The smallest board, also built with another program.
const SWAPPED_BOARD: &str = "qemu-cortex-m0";

/// Builds a board with another program, without any other change, and compares the outputs.
fn check_swapped(board: &Board, host: &mut Host) -> Result<()> {
    let Some(machine) = &board.machine else { return Ok(()) };
    let file = root().join("tests/fixtures").join(compare::OWN_FILE);
    let image = Image::build(board, &[("TORCHLET_MODEL", &file.to_string_lossy())])?;
    let lines = image.run(machine, &[])?;
    let all = log::parse(&lines)?;
    let ran: Vec<&str> = all.iter().map(|ran| ran.model.as_str()).collect();
    ensure!(ran.first() == Some(&compare::OWN), "ran {ran:?}, expected {}", compare::OWN);
    for ran in &all {
        host.compare(ran)?;
    }
    println!("  {}, as a replacement of its own program: as on the host", compare::OWN_FILE);
    faults::check(&lines)
}

/// Builds a board with a user's program, runs it, and shows the log.
fn try_out(board: &Board, model: &Path) -> Result<()> {
    let variable = if board.name == DEMO.name { "MODEL" } else { "TORCHLET_MODEL" };
    let machine = board.machine.as_ref().filter(|machine| !machine.takes_files);
    let machine = machine.filter(|_| !board.models.is_empty());
    let Some(machine) = machine else {
        bail!("{} cannot run another program in QEMU", board.name);
    };
    crate::tools::targets(&[board.target])?;
    let model = std::path::absolute(model)?;
    ensure!(model.is_file(), "no file {}", model.display());
    let image = Image::build(board, &[(variable, &model.to_string_lossy())])?;
    println!("image: {}", Sizes::of(&image.elf)?);
    for line in image.run(machine, &[])? {
        println!("  {line}");
    }
    Ok(())
}

/// The board that is flashed with UF2 files.
const UF2_BOARD: &str = "rp2350";

/// Finds an allocator in an image. Without one, the linker found no allocation.
fn allocator(elf: &[u8]) -> Result<Option<String>> {
    let file = object::File::parse(elf)?;
    let mut names = file.symbols().filter_map(|symbol| symbol.name().ok());
    // Allocator entry points and vector growth; inlining determines which of them are left.
    let found = names.find(|name| {
        name.contains("__rust_alloc") || name.contains("__rust_realloc") || name.contains("raw_vec")
    });
    Ok(found.map(str::to_owned))
}

/// Prints the results of a model.
fn show(ran: &log::Ran, machine: &Machine) {
    let [program, arena, planned, scratch] = ran.sizes;
    let class = ran.class.map_or(String::new(), |class| format!("class {class}, "));
    println!(
        "  {}: as on the host: {class}{} instructions ({} to load, {} between operators), program \
         {program} B, arena {arena} B, planned {planned} B, scratch {scratch} B, stack {} B",
        ran.model,
        machine.instructions(ran.run_ticks),
        machine.instructions(ran.load_ticks),
        figures::dispatch(ran, machine),
        ran.stack,
    );
}
