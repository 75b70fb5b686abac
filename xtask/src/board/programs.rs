//! The image with modules of many kinds of programs. It compares results with PyTorch's itself, and
//! logs a line for each test.

use super::image::Image;
use super::machines::{Board, Machine};
use anyhow::{Context, Result, ensure};

/// An emulated Cortex-M4 with a second RAM.
pub(super) const PROGRAMS: Board = Board {
    name: "qemu-programs",
    target: "thumbv7em-none-eabihf",
    models: &[],
    machine: Some(Machine {
        program: "qemu-system-arm",
        args: &["-machine", "mps2-an386"],
        tick: 40_000,
        takes_files: false,
    }),
};

/// Number of tests per image: programs with separate memory, and programs that share it.
const IMAGES: [(&[(&str, &str)], usize); 2] = [(&[], 8), (&[("SHARE_ACTIVATIONS", "1")], 1)];

pub(super) fn check() -> Result<()> {
    for (variables, tests) in IMAGES {
        let image = Image::build(&PROGRAMS, variables)?;
        let lines = image.run(PROGRAMS.machine.as_ref().context("an output of QEMU")?, &[])?;
        for line in &lines {
            println!("  {line}");
        }
        let passed = lines.iter().filter(|line| line.ends_with(": ok")).count();
        ensure!(passed == tests, "{passed} tests passed, expected {tests}");
    }
    Ok(())
}
