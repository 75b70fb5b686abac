//! A machine with megabytes of memory and no operating system. It has a heap, reads programs from
//! files of the host, compiles them on the target, and runs both the original and the compiled
//! programs.
//!
//! Files are arguments `NAME=RUNS=FILE.bpte`: name in the log, and number of runs before the output
//! is checked. Start reading at [`models`].

#![no_std]
#![no_main]

extern crate alloc;

use aarch64_rt::entry;
use alloc::ffi::CString;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use defmt::println;
use embedded_alloc::LlffHeap;
use firmware::{Memory, Model};
use semihosting::experimental::env::args;
use semihosting::fs::File;
use semihosting::io::Read;
use torchlet::core::{
    ARENA_ALIGN, ArenaBlock, BundledProgram, LoadOptions, Program, Registry, ValueRef,
};
use torchlet::portable::KERNELS;
use torchlet_graph::{Processors, cpu};

#[global_allocator]
static HEAP: LlffHeap = LlffHeap::empty();

/// Number of damaged copies of the smallest program.
const DAMAGED_COPIES: u64 = 4;

entry!(main);

fn main(_: u64, _: u64, _: u64, _: u64) -> ! {
    // SAFETY: main runs once, and nothing was allocated before.
    unsafe {
        embedded_alloc::init!(HEAP, 64 << 20);
    }
    let succeeded = match models() {
        Ok(models) => firmware::check(&models, &mut memory(&models)),
        Err(error) => {
            println!("error: {=str}", error.as_str());
            false
        }
    };
    println!("heap: {=usize} of {=usize} bytes", HEAP.used(), HEAP.used() + HEAP.free());
    firmware::exit(succeeded)
}

/// Each program in the arguments, original and compiled.
fn models() -> Result<Vec<Model>, String> {
    let arguments = args::<4096>().map_err(|error| format!("no arguments: {error}"))?;
    let mut models = Vec::new();
    for argument in &arguments {
        let argument = argument.map_err(|error| format!("an argument: {error}"))?;
        // The first argument is the name of the image.
        let mut parts = argument.splitn(3, '=');
        let (Some(name), Some(runs), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let runs = runs.parse().map_err(|_| format!("{argument}: expected NAME=RUNS=FILE"))?;
        let of_file = |error: &dyn core::fmt::Display| format!("{path}: {error}");
        let file = read(path).map_err(|error| of_file(&error))?;
        let bundle = BundledProgram::from_bytes(&file).map_err(|error| of_file(&error))?;
        let program = leaked_copy(bundle.program().map_err(|error| of_file(&error))?);
        let input =
            first_input(&bundle).ok_or_else(|| format!("{path}: expected one tensor as input"))?;
        let compiled = compile(program).map_err(|error| of_file(&error))?;
        let kept_name = |text: String| &*String::leak(text);
        models.push(model(kept_name(name.into()), program, input, runs)?);
        models.push(model(kept_name(format!("{name} compiled")), compiled, input, runs)?);
    }
    if let Some(smallest) = models.iter_mut().min_by_key(|model| model.program.len()) {
        let copies: Vec<&[u8]> =
            (0..DAMAGED_COPIES).map(|seed| damaged(smallest.program, seed)).collect();
        smallest.damaged = copies.leak();
    }
    Ok(models)
}

/// Reads a file of the host in chunks.
fn read(path: &str) -> Result<Vec<u8>, String> {
    let error = |error| format!("cannot be read: {error}");
    let name = CString::new(path).map_err(|_| String::from("the name contains a zero byte"))?;
    let mut file = File::open(name.as_c_str()).map_err(error)?;
    let mut bytes = Vec::new();
    let mut piece = vec![0; 4096];
    loop {
        match file.read(&mut piece).map_err(error)? {
            0 => return Ok(bytes),
            count => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

/// Leaked zeroed memory with the alignment of arenas and programs.
fn leaked_zeros(len: usize) -> &'static mut [u8] {
    let memory = vec![0; len + ARENA_ALIGN].leak();
    let start = memory.as_ptr().align_offset(ARENA_ALIGN);
    &mut memory[start..start + len]
}

/// A leaked copy, aligned for weights.
fn leaked_copy(bytes: &[u8]) -> &'static [u8] {
    let memory = leaked_zeros(bytes.len());
    memory.copy_from_slice(bytes);
    memory
}

/// The input bytes of the first test case.
fn first_input(bundle: &BundledProgram<'_>) -> Option<&'static [u8]> {
    let suite = bundle.suites().ok()?.next()?.ok()?;
    let case = suite.cases().ok()?.next()?.ok()?;
    match case.inputs().ok()?.next()?.ok()? {
        ValueRef::Tensor(tensor) => Some(leaked_copy(tensor.bytes())),
        _ => None,
    }
}

fn registry() -> Result<Registry<'static>, String> {
    Registry::new().with_kernels(&KERNELS).map_err(|error| format!("{error}"))
}

/// Compiles a program.
fn compile(program: &'static [u8]) -> Result<&'static [u8], String> {
    let opened = Program::from_bytes(program).map_err(|error| format!("{error}"))?;
    let compiled = cpu::compile(&opened, &[], Processors::NONE, &registry()?);
    let package = compiled.and_then(|compiled| compiled.program.write());
    Ok(leaked_copy(&package.map_err(|error| format!("{error}"))?.to_bytes()))
}

/// A program with its memory requirements.
fn model(
    name: &'static str,
    program: &'static [u8],
    input: &'static [u8],
    runs: usize,
) -> Result<Model, String> {
    let error = |error: &dyn core::fmt::Display| format!("{name}: {error}");
    let opened = Program::from_bytes(program).map_err(|it| error(&it))?;
    let meta = opened.method_meta("forward").map_err(|it| error(&it))?;
    let options = LoadOptions::default();
    let tables = meta.table_bytes(&options.limits).map_err(|it| error(&it))?;
    let mut blocks = vec![ArenaBlock::UNINIT; tables.div_ceil(ARENA_ALIGN)];
    let registry = registry()?;
    let prepared = meta.prepare(ArenaBlock::bytes(&mut blocks), &registry, options);
    let needs = prepared.map_err(|it| error(&it))?.needs();
    let mut planned = Vec::new();
    for index in 0..meta.planned_buffer_count() {
        planned.push(meta.planned_buffer_size(index).map_err(|it| error(&it))?);
    }
    let (arena, planned, scratch) = (needs.whole_arena(), planned.leak(), needs.scratch);
    Ok(Model {
        name,
        program,
        kernels: &KERNELS,
        arena,
        planned,
        scratch,
        input,
        runs,
        damaged: &[],
    })
}

/// The program with some flipped bits.
fn damaged(program: &[u8], seed: u64) -> &'static [u8] {
    let bytes = leaked_zeros(program.len());
    bytes.copy_from_slice(program);
    firmware::damage(bytes, seed);
    bytes
}

/// Memory for the largest of the models, with room for a program after it.
fn memory(models: &[Model]) -> Memory<'static> {
    let most = |of: fn(&Model) -> usize| models.iter().map(of).max().unwrap_or(0);
    let program = most(|model| model.program.len());
    Memory {
        arena: ArenaBlock::from_static(leaked_zeros(most(|model| model.arena) + program)),
        planned: leaked_zeros(most(Model::planned_bytes) + program),
        second: leaked_zeros(most(Model::second_bytes)),
        scratch: leaked_zeros(most(|model| model.scratch)),
    }
}
