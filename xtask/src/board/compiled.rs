//! The board that runs compiled programs: one of its models, whose outputs it compares with
//! PyTorch's itself.

use super::figures::Figures;
use super::image::Image;
use super::machines::{Board, Machine};
use crate::size::Sizes;
use anyhow::{Context, Result, ensure};

/// A Cortex-M4F, whose kernels are assembly.
pub(super) const COMPILED: Board = Board {
    name: "qemu-compiled",
    target: "thumbv7em-none-eabihf",
    models: &[],
    machine: Some(Machine {
        program: "qemu-system-arm",
        args: &["-machine", "mps2-an386"],
        tick: 40_000,
        takes_files: false,
    }),
};

/// A model with plain, pointwise and depthwise convolutions, and a linear layer.
const MODEL: &str = "keyword_spotting";

/// Builds and runs the board, and records its size and instructions.
pub(super) fn check(figures: &mut Figures) -> Result<()> {
    let machine = COMPILED.machine.as_ref().context("the board has a machine")?;
    let image = Image::build(&COMPILED, &[("MODELS", MODEL), ("BOARD", "qemu-cortex-m4f")])?;
    let sizes = Sizes::of(&image.elf)?;
    println!("image: {sizes}");
    let lines = image.run_printing(machine)?;
    let line = |start: &str| lines.iter().find_map(|line| line.strip_prefix(start));
    let ticks = line(&format!("{MODEL}: run ticks ")).and_then(|ticks| ticks.parse().ok());
    let run = machine.instructions(ticks.context("no ticks of a run")?);
    ensure!(line(&format!("{MODEL}: passed")).is_some(), "{}", lines.join("\n"));
    println!("  {MODEL}: as in PyTorch, {run} instructions");
    figures.compiled(&COMPILED, &sizes, run);
    Ok(())
}
