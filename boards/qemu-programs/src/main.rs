//! Modules that `torchlet-build` wrote, run as firmware runs them, and compared with PyTorch's
//! results: several methods, data outside of the program, memory and state that the caller lends,
//! numbers, shapes that change, second memories. What each test is of says its name; the log has a
//! line for each. Start reading at [`alone`]; the image with `SHARE_ACTIVATIONS` has [`shared`] in
//! its place.

#![no_std]
#![no_main]

use cortex_m as _;
use defmt_semihosting as _;
use semihosting::process::ExitCode;
use torchlet::firmware::{Error, Nested};

#[cfg(not(shared))]
mod alone;
#[cfg(not(shared))]
mod events;
#[cfg(shared)]
mod shared;

#[cfg(not(shared))]
use alone::TESTS;
#[cfg(shared)]
use shared::TESTS;

#[cfg(not(shared))]
torchlet::program!(
    two_methods,
    external_two_files,
    state_unplanned,
    many_inputs,
    dynamic_rows,
    digits_unplanned_io,
    lstm_step_apart,
    digits
);
#[cfg(shared)]
torchlet::program!(two_methods, external_two_files, state_unplanned, digits);

/// What can be wrong.
#[derive(defmt::Format)]
enum Failed {
    /// A program could not be loaded or run.
    Runtime(Error),
    /// What came out is not what PyTorch gave.
    Differs(&'static str),
    /// Something that should have been refused was not, or for another reason.
    NotRefused(&'static str),
}

impl<E: Into<Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Failed::Runtime(error.into())
    }
}

/// A test, and what it is of.
type Test = (&'static str, fn() -> Result<(), Failed>);

/// A tensor of a test case, by the name of its file: see the build script.
macro_rules! tensor {
    ($name:literal) => {
        &const {
            ::torchlet::core::AlignedBytes(*include_bytes!(concat!(env!("OUT_DIR"), "/", $name)))
        }
        .0
    };
}
use tensor;

/// The bytes of a test case as what a method takes or gives.
fn array<T: Nested>(bytes: &'static [u8]) -> Result<&'static T, Failed> {
    T::from_bytes(bytes).ok_or(Failed::Differs("the size of a test case"))
}

fn flat<T: Nested>(value: &T) -> &[T::Element] {
    T::flat(core::slice::from_ref(value))
}

/// Fails unless all elements are these.
fn same<T: Nested + 'static>(
    found: &T,
    expected: &'static [u8],
    what: &'static str,
) -> Result<(), Failed>
where
    T::Element: PartialEq,
{
    let same = flat(found) == flat::<T>(array(expected)?);
    if same { Ok(()) } else { Err(Failed::Differs(what)) }
}

/// Fails unless all elements are close to these: another processor adds up in another order.
fn close<T: Nested<Element = f32> + 'static>(
    found: &T,
    expected: &'static [u8],
    what: &'static str,
) -> Result<(), Failed> {
    close_all(flat(found), flat::<T>(array(expected)?), what)
}

fn close_all(found: &[f32], expected: &[f32], what: &'static str) -> Result<(), Failed> {
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 + 1e-5 * b.abs();
    let all = found.len() == expected.len() && found.iter().zip(expected).all(near);
    if all { Ok(()) } else { Err(Failed::Differs(what)) }
}

#[cortex_m_rt::entry]
fn main() -> ! {
    let mut code = ExitCode::SUCCESS;
    for (name, test) in TESTS {
        match test() {
            Ok(()) => defmt::println!("{=str}: ok", name),
            Err(error) => {
                defmt::println!("{=str}: {}", name, error);
                code = ExitCode::FAILURE;
            }
        }
    }
    code.exit_process()
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    defmt::println!("panic");
    ExitCode::FAILURE.exit_process()
}
