//! Bundled programs (`.bpte`): a program with test inputs and the outputs that PyTorch computed.

use crate::fault::Fault;
use crate::handle::{self, handle};
use crate::pointer;
use crate::status::{body, torchlet_error_message, torchlet_status, value};
use crate::values::{torchlet_string, torchlet_value};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use torchlet_core::error::ProgramError;
use torchlet_core::{BundledProgram, TestCase, TestSuite, ValueRef};

/// A bundled program, in memory of the caller. It is immutable, so many threads can use it at once;
/// it need not be closed.
#[repr(C)]
pub struct torchlet_bundle {
    opaque: u64,
    words: [MaybeUninit<usize>; 6],
}

handle!(torchlet_bundle, BundledProgram<'static>, "the bundled program", 7);

fn suite(bundle: &BundledProgram<'static>, index: usize) -> Result<TestSuite<'static>, Fault> {
    let found = bundle.suites()?.nth(index).transpose()?;
    let count = || Ok::<_, ProgramError>(bundle.suites()?.count());
    Ok(match found {
        Some(suite) => suite,
        None => return Err(Fault::Index { what: "test suite", index, count: count()? }),
    })
}

fn case(
    bundle: &BundledProgram<'static>,
    suite: usize,
    index: usize,
) -> Result<TestCase<'static>, Fault> {
    let suite = self::suite(bundle, suite)?;
    match suite.cases()?.nth(index).transpose()? {
        Some(case) => Ok(case),
        None => Err(Fault::Index { what: "test case", index, count: suite.cases()?.count() }),
    }
}

/// Whether the bytes are a bundled program.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_is_bundle(data: *const c_void, size: usize) -> bool {
    value(false, || {
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { pointer::bytes(data, size, "data").ok()? };
        Some(BundledProgram::is_bundled(bytes))
    })
}

/// Opens a bundled program in memory, and returns the inner program, to be opened with
/// `torchlet_program_open`. The inner program is aligned to 16 bytes if the bundle is.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The bytes must stay valid and unchanged as long as the
/// bundle or its program is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_bundle_open(
    bundle: *mut torchlet_bundle,
    data: *const c_void,
    size: usize,
    program: *mut *const c_void,
    program_size: *mut usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let opened = BundledProgram::from_bytes(pointer::bytes(data, size, "data")?)?;
        let inner = opened.program()?;
        pointer::put(program, inner.as_ptr().cast(), "program")?;
        pointer::put(program_size, inner.len(), "program_size")?;
        handle::open(bundle, opened)
    })
}

/// Number of test suites, one for each tested method; 0 if the file is malformed.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_bundle_suite_count(bundle: *const torchlet_bundle) -> usize {
    // SAFETY: guaranteed by the caller.
    value(0, || Some(unsafe { handle::get(bundle).ok()? }.suites().ok()?.count()))
}

/// The method that a suite tests, and its number of cases. Cases of a method with state must run in
/// order on one loaded method. The name belongs to the bundle.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_bundle_suite(
    bundle: *const torchlet_bundle,
    suite: usize,
    method: *mut torchlet_string,
    case_count: *mut usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let suite = self::suite(handle::get(bundle)?, suite)?;
        let (name, cases) = (suite.method_name()?, suite.cases()?.count());
        pointer::put(method, torchlet_string::of(name), "method")?;
        pointer::put(case_count, cases, "case_count")
    })
}

/// Number of inputs and expected outputs of a case.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_bundle_case(
    bundle: *const torchlet_bundle,
    suite: usize,
    case: usize,
    input_count: *mut usize,
    output_count: *mut usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let case = self::case(handle::get(bundle)?, suite, case)?;
        let (inputs, outputs) = (case.inputs()?.count(), case.expected_outputs()?.count());
        pointer::put(input_count, inputs, "input_count")?;
        pointer::put(output_count, outputs, "output_count")
    })
}

/// Writes a value of a case by index.
///
/// # Safety
/// `result` is null, or points to memory for a value.
unsafe fn give(
    mut values: impl Iterator<Item = Result<ValueRef<'static>, ProgramError>>,
    (what, index): (&'static str, usize),
    count: usize,
    result: *mut torchlet_value,
) -> Result<(), Fault> {
    let found = values.nth(index).ok_or(Fault::Index { what, index, count })??;
    // SAFETY: guaranteed by the caller.
    unsafe { pointer::put(result, torchlet_value::of(&found), "result") }
}

/// An input of a case, for `torchlet_method_set_input`. Its data belongs to the bundle.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_bundle_input(
    bundle: *const torchlet_bundle,
    suite: usize,
    case: usize,
    index: usize,
    result: *mut torchlet_value,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let case = self::case(handle::get(bundle)?, suite, case)?;
        give(case.inputs()?, ("input", index), case.inputs()?.count(), result)
    })
}

/// An expected output of a case. Its data belongs to the bundle.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_bundle_output(
    bundle: *const torchlet_bundle,
    suite: usize,
    case: usize,
    index: usize,
    result: *mut torchlet_value,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let case = self::case(handle::get(bundle)?, suite, case)?;
        let (values, count) = (case.expected_outputs()?, case.expected_outputs()?.count());
        give(values, ("output", index), count, result)
    })
}
