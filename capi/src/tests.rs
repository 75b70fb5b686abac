//! Tests of the interface from Rust: sizes of handles, state, and unplanned tensors of bundled
//! programs.

use crate::handle::{self, Handle, Room};
use crate::meta::*;
use crate::method::*;
use crate::program::*;
use crate::registry::*;
use crate::status::*;
use crate::tensor::*;
use core::mem::{MaybeUninit, zeroed};
use core::ptr;
use std::path::Path;
use std::println;
use std::string::{String, ToString};
use std::vec::Vec;
use torchlet_core::{ArenaBlock, BundledProgram};

fn fixture(name: &str) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures");
    std::fs::read(root.join(name)).unwrap()
}

/// Aligned memory of an exact size.
struct Memory {
    blocks: Vec<ArenaBlock>,
    size: usize,
}

impl Memory {
    fn new(size: usize) -> Self {
        Memory { blocks: std::vec![ArenaBlock::UNINIT; size.div_ceil(16)], size }
    }

    fn of(bytes: &[u8]) -> Self {
        let mut memory = Memory::new(bytes.len());
        for (target, byte) in ArenaBlock::bytes(&mut memory.blocks).iter_mut().zip(bytes) {
            *target = MaybeUninit::new(*byte);
        }
        memory
    }

    fn buffer(&mut self) -> torchlet_buffer {
        torchlet_buffer { data: self.blocks.as_mut_ptr().cast(), size: self.size }
    }
}

/// Asserts that a call succeeds.
fn ok(call: impl FnOnce(*const torchlet_error_message) -> torchlet_status) {
    let (status, text) = result(call);
    assert_eq!(status, TORCHLET_OK, "{text}");
}

fn result(
    call: impl FnOnce(*const torchlet_error_message) -> torchlet_status,
) -> (torchlet_status, String) {
    let mut bytes = [0u8; 200];
    let text = torchlet_error_message { data: bytes.as_mut_ptr().cast(), size: bytes.len() };
    let status = call(&text);
    let end = bytes.iter().position(|byte| *byte == 0).unwrap();
    (status, String::from_utf8(bytes[..end].to_vec()).unwrap())
}

/// A method of a bundled program, loaded into memory of exact sizes.
struct Loaded {
    method: torchlet_method,
    // Borrowed by the method.
    _program: torchlet_program,
    _memory: Vec<Memory>,
}

impl Loaded {
    fn new(file: &str, name: &core::ffi::CStr) -> Self {
        let file = fixture(file);
        let bundle = BundledProgram::from_bytes(&file).unwrap();
        let mut bytes = Memory::of(bundle.program().unwrap());
        // SAFETY: all handles are plain data, for which zeros are valid; buffers and names outlive
        // the method.
        unsafe {
            let (mut program, mut registry, mut meta, mut method): (
                torchlet_program,
                torchlet_registry,
                torchlet_method_meta,
                torchlet_method,
            ) = (zeroed(), zeroed(), zeroed(), zeroed());
            let lent = bytes.buffer();
            ok(|text| torchlet_program_open(&mut program, lent.data, lent.size, text));
            ok(|text| torchlet_registry_init(&mut registry, text));
            ok(|text| torchlet_registry_add_all_kernels(&mut registry, text));
            ok(|text| torchlet_program_method_meta(&program, name.as_ptr(), &mut meta, text));
            let mut size = 0;
            ok(|text| torchlet_method_meta_table_size(&meta, ptr::null(), &mut size, text));
            let mut tables = Memory::new(size);
            let lent = tables.buffer();
            ok(|text| {
                let options = ptr::null();
                torchlet_method_prepare(
                    &mut method,
                    &meta,
                    &registry,
                    options,
                    lent.data,
                    lent.size,
                    text,
                )
            });
            let mut needs = torchlet_needs { tables: 0, arena: 0, scratch: 0 };
            ok(|text| torchlet_method_needs(&method, &mut needs, text));
            let (mut arena, mut scratch) = (Memory::new(needs.arena), Memory::new(needs.scratch));
            let mut planned = Vec::new();
            for index in 0..torchlet_method_meta_planned_count(&meta) {
                ok(|text| torchlet_method_meta_planned_size(&meta, index, &mut size, text));
                planned.push(Memory::new(size));
            }
            let buffers: Vec<torchlet_buffer> = planned.iter_mut().map(Memory::buffer).collect();
            let memory = torchlet_memory {
                arena: arena.buffer(),
                scratch: scratch.buffer(),
                planned: buffers.as_ptr(),
                planned_count: buffers.len(),
            };
            ok(|text| torchlet_method_finish(&mut method, &memory, text));
            planned.extend([bytes, tables, arena, scratch]);
            Loaded { method, _program: program, _memory: planned }
        }
    }

    /// Fills the first input, runs, and returns the first element of the first output.
    fn run(&mut self, number: f32) -> f32 {
        // SAFETY: the method is loaded, and its results are used before the next call.
        unsafe {
            let mut input: torchlet_tensor_mut = zeroed();
            ok(|text| torchlet_method_input_tensor(&mut self.method, 0, &mut input, text));
            let numbers = core::slice::from_raw_parts_mut(input.data.cast::<f32>(), input.size / 4);
            numbers.fill(number);
            ok(|text| torchlet_method_execute(&mut self.method, text));
            let mut output: torchlet_tensor = zeroed();
            ok(|text| torchlet_method_output_tensor(&self.method, 0, &mut output, text));
            output.data.cast::<f32>().read()
        }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: the method is not used afterwards.
        unsafe { torchlet_method_close(&mut self.method) }
    }
}

#[test]
fn handles_have_no_excess_words() {
    fn check<H: Handle>() {
        let (room, handle) = (size_of::<Room<H::Inner>>(), size_of::<H>());
        println!("{}: {room} of {handle} bytes", H::NAME);
        // Some spare room, so that a later version can keep the sizes.
        assert!((handle - room) * 5 <= handle * 2, "{}: {room} of {handle} bytes", H::NAME);
    }
    check::<torchlet_program>();
    check::<torchlet_method_meta>();
    check::<torchlet_registry>();
    check::<torchlet_method>();
    check::<crate::data::torchlet_data>();
}

#[test]
fn handle_marks_are_distinct() {
    // SAFETY: zeros are valid handles.
    unsafe {
        let mut program: torchlet_program = zeroed();
        assert!(handle::get(&program).is_err());
        let file = fixture("digits/digits.pte");
        let mut bytes = Memory::of(&file);
        let lent = bytes.buffer();
        ok(|text| torchlet_program_open(&mut program, lent.data, lent.size, text));
        assert!(handle::get(&program).is_ok());
        // A handle of another type, at the same address.
        let other: *const torchlet_method_meta = ptr::from_ref(&program).cast();
        assert!(handle::get(other).is_err());
        torchlet_program_close(&mut program);
        assert!(handle::get(&program).is_err());
    }
}

#[test]
fn state_is_listed_read_written_and_reset() {
    let mut loaded = Loaded::new("programs/state_named.bpte", c"forward");
    // SAFETY: the method is loaded.
    unsafe {
        let count = torchlet_method_state_count(&loaded.method);
        assert!(count > 0);
        let mut state: torchlet_state = zeroed();
        ok(|text| torchlet_method_state(&loaded.method, 0, &mut state, text));
        assert!(state.bound && state.name.size > 0 && state.info.rank < 16);
        let (status, _) =
            result(|text| torchlet_method_state(&loaded.method, count, &mut state, text));
        assert_eq!(status, TORCHLET_INVALID_ARGUMENT);
        let first = loaded.run(1.0);
        let second = loaded.run(1.0);
        assert_ne!(first, second);
        ok(|text| torchlet_method_reset(&mut loaded.method, text));
        assert_eq!(loaded.run(1.0), first);
        let mut tensor: torchlet_tensor_mut = zeroed();
        ok(|text| torchlet_method_state_tensor(&mut loaded.method, state.value, &mut tensor, text));
        assert!(tensor.size > 0 && !tensor.data.is_null());
        let (status, text) = result(|text| {
            torchlet_method_state_tensor(&mut loaded.method, usize::MAX, &mut tensor, text)
        });
        assert_eq!(status, TORCHLET_INVALID_ARGUMENT, "{text}");
    }
}

#[test]
fn unplanned_inputs_and_outputs_are_bound() {
    let mut loaded = Loaded::new("digits/digits_unplanned_io.bpte", c"forward");
    let (mut input, mut output) = (Memory::new(256), Memory::new(40));
    // SAFETY: the method is loaded; the buffers outlive it, because it is dropped below.
    unsafe {
        assert!(torchlet_method_input_is_unbound(&loaded.method, 0));
        assert!(torchlet_method_output_is_unbound(&loaded.method, 0));
        let lent = input.buffer();
        let small =
            result(|text| torchlet_method_bind_input(&mut loaded.method, 0, lent.data, 255, text));
        assert_eq!(small.0, TORCHLET_INVALID_ARGUMENT, "{}", small.1);
        ok(|text| torchlet_method_bind_input(&mut loaded.method, 0, lent.data, lent.size, text));
        let lent = output.buffer();
        ok(|text| torchlet_method_bind_output(&mut loaded.method, 0, lent.data, lent.size, text));
        let first = loaded.run(0.5);
        assert_eq!(lent.data.cast::<f32>().read(), first);
        assert!(!torchlet_method_output_is_unbound(&loaded.method, 0));
        drop(loaded);
    }
}

#[test]
fn panics_become_errors() {
    let (status, text) = result(|text| {
        // SAFETY: the text is that of `result`.
        unsafe { run(text, || panic!("on purpose")) }
    });
    assert_eq!(status, TORCHLET_INTERNAL);
    assert!(text.contains("internal error"), "{text}");
    assert_eq!(value(7, || -> Option<i32> { panic!("on purpose") }), 7);
}

#[test]
fn messages_are_truncated_at_character_boundaries() {
    let mut bytes = [b'x'; 8];
    let text = torchlet_error_message { data: bytes.as_mut_ptr().cast(), size: 4 };
    // SAFETY: the text has four bytes.
    let status = unsafe { run(&text, || Err(crate::fault::Fault::Argument("aé漢"))) };
    assert_eq!(status, TORCHLET_INVALID_ARGUMENT);
    assert_eq!(&bytes, "aé\0xxxx".as_bytes());
    let none = torchlet_error_message { data: ptr::null_mut(), size: 10 };
    // SAFETY: a text without a buffer is not written.
    let status = unsafe { run(&none, || Err(crate::fault::Fault::Null("it"))) };
    assert_eq!(status, TORCHLET_INVALID_ARGUMENT);
}

#[test]
fn every_code_has_a_name_and_every_name_a_code() {
    let mut names = Vec::new();
    for status in 0..0x40 {
        // SAFETY: the names are literals.
        let name = unsafe { core::ffi::CStr::from_ptr(torchlet_status_name(status)) };
        let name = name.to_str().unwrap().to_string();
        if name != "UNKNOWN" {
            assert!(!names.contains(&name), "{name}");
            names.push(name);
        }
    }
    assert_eq!(names.len(), 20, "{names:?}");
}

#[cfg(feature = "log")]
#[test]
fn log_lines_reach_the_function() {
    use core::ffi::c_void;
    use std::sync::atomic::{AtomicUsize, Ordering};
    static LINES: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn count(context: *mut c_void, level: u32, text: *const u8, size: usize) {
        assert!(!context.is_null() && (1..=5).contains(&level) && !text.is_null() && size > 0);
        LINES.fetch_add(1, Ordering::Relaxed);
    }
    let mut context = 1u8;
    // SAFETY: the context is valid as long as the callback is set; it is not used.
    unsafe { crate::log::torchlet_set_log(Some(count), (&raw mut context).cast()) };
    // `load_method` logs the name of the method.
    let mut module = ptr::null_mut();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/digits/digits.pte");
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the path is a string, and the module is closed once.
    unsafe {
        ok(|text| {
            crate::module::torchlet_module_open(path.as_ptr(), ptr::null(), &mut module, text)
        });
        let name = c"forward".as_ptr();
        ok(|text| crate::module::torchlet_module_load_method(module, name, text));
        crate::module::torchlet_module_close(module);
        log::debug!("a line");
        crate::log::torchlet_set_log(None, ptr::null_mut());
        log::debug!("another line");
    }
    assert!(LINES.load(Ordering::Relaxed) >= 1);
}
