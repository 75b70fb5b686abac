#![doc = env!("CARGO_PKG_DESCRIPTION")]
//!
//! Runs each program on the input of its first test case, compares the outputs with PyTorch's, and
//! prints clock ticks and the stack that the run used. Outputs of int8 programs must be equal.

#![no_std]
#![no_main]

use firmware::{clock_ticks, exit, stack, start_clock};
use semihosting::println;
use torchlet::core::AlignedBytes;
use torchlet::firmware::Nested;

/// A file that the build script wrote, aligned for its elements.
macro_rules! file {
    ($name:ident, $ending:literal) => {
        &AlignedBytes(*include_bytes!(concat!(env!("OUT_DIR"), "/", stringify!($name), $ending))).0
    };
}

/// Runs a program; returns whether its outputs are as expected.
macro_rules! check {
    ($name:ident, $tolerance:literal) => {{
        static INPUT: &[u8] = file!($name, ".input");
        static EXPECTED: &[u8] = file!($name, ".expected");
        let name = stringify!($name);
        match ($name::load(), $name::forward::Input0::from_bytes(INPUT)) {
            (Ok(mut model), Some(input)) => {
                let depth = stack::paint();
                let start = clock_ticks();
                let output = model.forward(input);
                let ticks = clock_ticks() - start;
                let used = stack::used(depth);
                println!("{name}: memory {} stack {used}", $name::forward::MEMORY);
                println!("{name}: run ticks {ticks}");
                let expected = $name::forward::Output0::from_bytes(EXPECTED);
                let passed = match (&output, expected) {
                    (Ok(output), Some(expected)) => {
                        let found = $name::forward::Output0::flat(core::slice::from_ref(*output));
                        let expected =
                            $name::forward::Output0::flat(core::slice::from_ref(expected));
                        let mut pairs = found.iter().zip(expected);
                        pairs.all(|(found, expected): (&f32, &f32)| {
                            (found - expected).abs() <= $tolerance
                        })
                    }
                    _ => false,
                };
                println!("{name}: {}", if passed { "passed" } else { "other outputs" });
                passed
            }
            _ => false,
        }
    }};
}

include!(concat!(env!("OUT_DIR"), "/models.rs"));

#[cfg_attr(target_arch = "arm", cortex_m_rt::entry)]
#[cfg_attr(target_arch = "riscv32", riscv_rt::entry)]
fn main() -> ! {
    start_clock();
    exit(check_all())
}
