//! Runs modules that `torchlet-build` generated, as firmware would, and compares them with
//! PyTorch's results: several methods, external data, memory and state lent by the caller, scalars,
//! dynamic shapes, second memories. The test names say what is tested; the log has a line for each.
//! Start reading at [`alone`]; the image with `SHARE_ACTIVATIONS` has [`shared`] instead.

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

/// Reasons for a test to fail.
#[derive(defmt::Format)]
enum Failed {
    /// A program could not be loaded or run.
    Runtime(Error),
    /// The output differs from PyTorch's.
    Differs(&'static str),
    /// An operation that should fail succeeded, or failed for another reason.
    NotRefused(&'static str),
}

impl<E: Into<Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Failed::Runtime(error.into())
    }
}

/// Name and function of a test.
type Test = (&'static str, fn() -> Result<(), Failed>);

/// A tensor of a test case, by file name: see the build script.
macro_rules! tensor {
    ($name:literal) => {
        &const {
            ::torchlet::core::AlignedBytes(*include_bytes!(concat!(env!("OUT_DIR"), "/", $name)))
        }
        .0
    };
}
use tensor;

/// Casts the bytes of a test case to a method's input or output type.
fn array<T: Nested>(bytes: &'static [u8]) -> Result<&'static T, Failed> {
    T::from_bytes(bytes).ok_or(Failed::Differs("the size of a test case"))
}

fn flat<T: Nested>(value: &T) -> &[T::Element] {
    T::flat(core::slice::from_ref(value))
}

/// Fails unless all elements are equal to the expected ones.
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

/// Fails unless all elements are close to the expected ones; the order of summation differs between
/// processors.
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
