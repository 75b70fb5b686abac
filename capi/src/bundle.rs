//! Bundled programs (`.bpte`): a program with inputs for tests, and the outputs that PyTorch gave.

use crate::fault::Fault;
use crate::handle::{self, handle};
use crate::pointer;
use crate::status::{run, torchlet_status, torchlet_text, value};
use crate::values::{torchlet_string, torchlet_value};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use torchlet_core::error::ProgramError;
use torchlet_core::{BundledProgram, TestCase, TestSuite, ValueRef};

/// A bundled program, in memory of the caller. It never changes, so that many threads can use it,
/// and need not be closed.
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

/// Whether bytes are those of a bundled program.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_is_bundle(data: *const c_void, size: usize) -> bool {
    value(false, || {
        // SAFETY: the caller's promise.
        let bytes = unsafe { pointer::bytes(data, size, "data").ok()? };
        Some(BundledProgram::is_bundled(bytes))
    })
}

/// Opens a bundled program that is in memory, and gives the program in it, to be opened with
/// `torchlet_program_open`; where the bundle starts at a multiple of 16, that does, too.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The bytes must stay, and not change, as long as the
/// bundle or its program is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_bundle_open(
    bundle: *mut torchlet_bundle,
    data: *const c_void,
    size: usize,
    program: *mut *const c_void,
    program_size: *mut usize,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let opened = BundledProgram::from_bytes(pointer::bytes(data, size, "data")?)?;
            let inner = opened.program()?;
            pointer::put(program, inner.as_ptr().cast(), "program")?;
            pointer::put(program_size, inner.len(), "program_size")?;
            handle::open(bundle, opened)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Number of test suites: one for each method that is tested. 0 if the file is malformed.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_bundle_suite_count(bundle: *const torchlet_bundle) -> usize {
    // SAFETY: the caller's promise.
    value(0, || Some(unsafe { handle::get(bundle).ok()? }.suites().ok()?.count()))
}

/// The method that a suite tests, and how many cases it has. Those of a program with state run in
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
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        let suite = self::suite(unsafe { handle::get(bundle)? }, suite)?;
        let (name, cases) = (suite.method_name()?, suite.cases()?.count());
        // SAFETY: the caller's promise.
        unsafe {
            pointer::put(method, torchlet_string::of(name), "method")?;
            pointer::put(case_count, cases, "case_count")
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// How many inputs a case has, and how many outputs are expected of it.
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
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        let case = self::case(unsafe { handle::get(bundle)? }, suite, case)?;
        let (inputs, outputs) = (case.inputs()?.count(), case.expected_outputs()?.count());
        // SAFETY: the caller's promise.
        unsafe {
            pointer::put(input_count, inputs, "input_count")?;
            pointer::put(output_count, outputs, "output_count")
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Writes value `index` of those that a case has.
///
/// # Safety
/// A pointer that is not null points to memory for a value.
unsafe fn give(
    mut values: impl Iterator<Item = Result<ValueRef<'static>, ProgramError>>,
    (what, index): (&'static str, usize),
    count: usize,
    result: *mut torchlet_value,
) -> Result<(), Fault> {
    let found = values.nth(index).ok_or(Fault::Index { what, index, count })??;
    // SAFETY: the caller's promise.
    unsafe { pointer::put(result, torchlet_value::of(&found), "result") }
}

/// An input of a case, as `torchlet_method_set_input` takes it. What it points to belongs to the
/// bundle.
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
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let case = self::case(handle::get(bundle)?, suite, case)?;
            give(case.inputs()?, ("input", index), case.inputs()?.count(), result)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// An output that is expected of a case. What it points to belongs to the bundle.
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
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let case = self::case(handle::get(bundle)?, suite, case)?;
            let (values, count) = (case.expected_outputs()?, case.expected_outputs()?.count());
            give(values, ("output", index), count, result)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}
