//! Bounded work: loading takes time proportional to the file size, and requests of a file are
//! limited.

mod common;

use common::backend::Demo;
use common::builder::{Instruction, Method, Program, Value, tensor};
use common::{Aligned, Arena};
use std::time::{Duration, Instant};
use torchlet_core::{
    self as core, InitError, Invoke, Kernel, KernelError, Limit, Limits, LoadOptions, MemoryNeeds,
    Param, Plan, PointerWidth, Prepare, ProgramError, Registry,
};

fn nothing(_: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    Ok(())
}

fn prepare(_: &mut Prepare<'_, '_>) -> Result<Plan, KernelError> {
    Ok(Plan::new(nothing))
}

static KERNELS: &[Kernel] = &[
    Kernel::new("t::ints", &[Param::IntList, Param::Out], prepare),
    Kernel::new("t::join", &[Param::TensorList, Param::Out], prepare),
    Kernel::new("t::pad", &[Param::String, Param::Out], prepare),
    Kernel::new("t::split", &[Param::Tensor, Param::OutList], prepare),
    Kernel::new("t::to", &[Param::Tensor, Param::Out], prepare),
];

/// Prepares the first method of a file. Returns its memory needs and the number of steps.
fn prepare_file(file: &[u8], limits: Limits) -> Result<(MemoryNeeds, u64), InitError> {
    let file = Aligned::from(file);
    let backend = Demo::default();
    let program = core::Program::from_bytes(file.bytes())?;
    let meta = program.method_meta("forward")?;
    let registry = Registry::new().with_kernels(KERNELS).unwrap().with_backend(&backend).unwrap();
    let mut tables = Arena::new(meta.table_bytes(&limits)?);
    let options = LoadOptions::default().with_limits(limits);
    let prepared = meta.prepare(tables.bytes_mut(), &registry, options)?;
    Ok((prepared.needs(), prepared.steps()))
}

/// One instruction with `outputs` outputs, in descending memory order.
fn split(outputs: usize) -> Vec<u8> {
    let mut method = Method::new("forward", &[16 * (outputs as i64 + 1)]);
    let x = method.input(tensor(&[4]).at(0, 0));
    let items: Vec<i32> = (0..outputs)
        .map(|index| method.tensor(tensor(&[4]).at(0, 16 * (outputs - index) as u64)))
        .collect();
    let list = method.list(&items);
    method.call("t::split", &[x, list]);
    method.outputs = items;
    Program::of(method)
}

#[test]
fn overlap_analysis_is_near_linear() {
    let steps = |outputs: usize| {
        let file = split(outputs);
        let (_, steps) = prepare_file(&file, Limits::HOST).unwrap();
        assert!(steps < file.len() as u64, "{steps} steps for {} bytes", file.len());
        steps
    };
    // Comparing all pairs of 4,000 outputs took eight million steps.
    let (few, many) = if cfg!(miri) { (10, 20) } else { (500, 4000) };
    assert!(steps(many) < steps(few) * (many / few) as u64 * 9, "{} {}", steps(few), steps(many));
}

/// The items of a list that is an argument of many calls count for each call.
#[test]
fn shared_list_items_are_bounded() {
    let (items, calls) = if cfg!(miri) { (120, 60) } else { (2000, 2000) };
    let mut method = Method::new("forward", &[64]);
    let x = method.input(tensor(&[4]).at(0, 0));
    let y = method.tensor(tensor(&[4]).at(0, 16));
    let list = method.list(&vec![x; items]);
    for _ in 0..calls {
        method.call("t::join", &[list, y]);
    }
    let error = prepare_file(&Program::of(method), Limits::HOST).unwrap_err();
    assert!(error.to_string().contains("shared more often"), "{error}");

    let mut method = Method::new("forward", &[64]);
    let one = method.value(Value::Int(1));
    let y = method.tensor(tensor(&[4]).at(0, 16));
    let list = method.value(Value::IntList(vec![one.into(); items]));
    for _ in 0..calls {
        method.call("t::ints", &[list, y]);
    }
    let error = prepare_file(&Program::of(method), Limits::HOST).unwrap_err();
    assert!(error.to_string().contains("shared more often"), "{error}");

    let mut method = Method::new("forward", &[64]);
    let x = method.input(tensor(&[4]).at(0, 0));
    let list = method.list(&vec![x; items]);
    for _ in 0..calls {
        method.outputs.push(list);
    }
    let error = prepare_file(&Program::of(method), Limits::HOST).unwrap_err();
    assert!(error.to_string().contains("shared more often"), "{error}");
}

/// Each instruction reads a tensor that nothing wrote: the search for a covering tensor is bounded.
#[test]
#[cfg_attr(miri, ignore = "needs thousands of tensors, which take too long under Miri")]
fn state_detection_is_linear() {
    let steps = |reads: usize| {
        let mut method = Method::new("forward", &[16 * (reads as i64 + 2)]);
        let y = method.tensor(tensor(&[4]).at(0, 0));
        for read in 0..reads {
            let state = method.tensor(tensor(&[4]).at(0, 16 * (read as u64 + 1)));
            method.call("t::to", &[state, y]);
        }
        prepare_file(&Program::of(method), Limits::HOST).unwrap().1
    };
    let (few, many) = (1000, 4000);
    let ratio = many as u64 / few as u64;
    assert!(steps(many) <= (ratio + 1) * steps(few), "{} and {}", steps(few), steps(many));
}

/// A tensor that a delegate accesses first and a kernel writes later is state: here, two of them
/// exceed the limit.
#[test]
fn tensors_read_by_delegates_and_written_by_kernels_are_state() {
    let is_state = |before: bool, behind: bool| {
        let bytes = (1 << 20) + 64;
        let mut method = Method::new("forward", &[bytes]);
        let x = method.input(tensor(&[4]).at(0, 1 << 20));
        let kept = [0; 2].map(|_| method.tensor(tensor(&[1 << 18]).at(0, 0)));
        method.delegates.push(("BackendWithCompilerDemo", Vec::new()));
        let write = |method: &mut Method, writes: bool| {
            kept.iter().filter(|_| writes).for_each(|it| method.call("t::to", &[x, *it]));
        };
        write(&mut method, before);
        method.then(Instruction::Delegate(0, kept.to_vec()));
        write(&mut method, behind);
        let mut limits = Limits::HOST;
        limits.planned_bytes = bytes as u64;
        match prepare_file(&Program::of(method), limits) {
            Err(InitError::Limit { limit: Limit::PlannedBytes, .. }) => true,
            Err(error) => panic!("{error}"),
            Ok(_) => false,
        }
    };
    assert!(is_state(false, true));
    assert!(!is_state(false, false) && !is_state(true, true) && !is_state(true, false));
}

/// A delegate with many arguments after many instructions without any: values that are no arguments
/// are examined, too.
#[test]
#[cfg_attr(miri, ignore = "needs thousands of tensors, which take too long under Miri")]
fn state_detection_of_delegates_is_linear() {
    let count = 1 << 16;
    let mut method = Method::new("forward", &[16 * count]);
    let number = method.value(Value::Int(0));
    let args = (0..count as u64).map(|at| method.tensor(tensor(&[4]).at(0, 16 * at))).collect();
    (0..count).for_each(|_| method.then(Instruction::Move(number, number)));
    method.delegates.push(("BackendWithCompilerDemo", Vec::new()));
    method.then(Instruction::Delegate(0, args));
    let file = Program::of(method);
    let start = Instant::now();
    prepare_file(&file, Limits::HOST).unwrap();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

/// A long string, stored once and shared by many values, counts for each reader.
#[test]
fn shared_strings_are_bounded() {
    static LETTERS: [u8; 4000] = [b'x'; 4000];
    let (letters, times) = if cfg!(miri) { (200, 20) } else { (4000, 100) };
    let name: &'static str = std::str::from_utf8(&LETTERS[..letters]).unwrap();
    let error = |method: Method| prepare_file(&Program::of(method), Limits::HOST).unwrap_err();
    let mut method = Method::new("forward", &[64]);
    let first = method.value(Value::String(name.to_owned()));
    for _ in 0..times {
        method.value(Value::Same(first));
    }
    assert!(error(method).to_string().contains("shared more often"));

    let mut method = Method::new("forward", &[64]);
    let first = method.tensor(tensor(&[4]).at(0, 0).named(name));
    for _ in 0..times {
        method.value(Value::Same(first));
    }
    assert!(error(method).to_string().contains("shared more often"));

    // Checked before the lookup of missing backends.
    let mut method = Method::new("forward", &[64]);
    method.delegates = vec![(name, Vec::new()); times];
    assert!(error(method).to_string().contains("shared more often"));
}

/// A string that is an argument of many calls is not read to determine its kind, and counts for
/// each call that may read it.
#[test]
fn strings_as_arguments_are_bounded() {
    let prepare = |letters: usize, times: usize, delegate: bool| {
        let mut method = Method::new("forward", &[64]);
        let text = method.value(Value::String("x".repeat(letters)));
        let y = method.tensor(tensor(&[4]).at(0, 0));
        method.delegates.push(("BackendWithCompilerDemo", Vec::new()));
        match delegate {
            true => method.then(Instruction::Delegate(0, vec![text; times])),
            false => (0..times).for_each(|_| method.call("t::pad", &[text, y])),
        }
        let file = Program::of(method);
        (prepare_file(&file, Limits::HOST), file.len() as u64)
    };
    for delegate in [true, false] {
        let (letters, times) = if cfg!(miri) { (2000, 100) } else { (1 << 22, 1 << 16) };
        let start = Instant::now();
        let error = prepare(letters, times, delegate).0.unwrap_err();
        assert!(error.to_string().contains("shared more often"), "{error}");
        // Reading the strings would be 256 GiB of work; determining their kind is almost none.
        assert!(start.elapsed() < Duration::from_secs(10) || cfg!(miri), "{:?}", start.elapsed());
    }
    // Short strings, as in real programs, may be shared by all calls.
    let (prepared, bytes) = prepare(8, if cfg!(miri) { 10 } else { 1000 }, false);
    assert!(prepared.unwrap().1 < bytes);
}

/// State tensors are initialised one by one: many at the same offset cost as much as separate ones.
#[test]
fn state_initialisation_is_bounded() {
    let times = if cfg!(miri) { 10 } else { 100 };
    let mut method = Method::new("forward", &[1 << 20]);
    let first = method.tensor(tensor(&[1 << 18]).at(0, 0).named("b.state"));
    for _ in 1..times {
        method.value(Value::Same(first));
    }
    let file = Program::of(method);
    let mut limits = Limits::HOST;
    limits.planned_bytes = times << 20;
    prepare_file(&file, limits).unwrap();
    limits.planned_bytes -= 1;
    let error = prepare_file(&file, limits).unwrap_err();
    let InitError::Limit { limit, found, .. } = error else { panic!("{error}") };
    assert_eq!((limit, found), (Limit::PlannedBytes, times << 20));
}

/// A program with every kind of item.
fn everything() -> Vec<u8> {
    let mut program = Program::default();
    let data = program.constant(&[1.0; 4]);
    let mut method = Method::new("forward", &[256, 64]);
    let x = method.input(tensor(&[4]).at(0, 0));
    let constant = method.tensor(tensor(&[4]).with_data(data));
    let y = method.tensor(tensor(&[4]).at(0, 16));
    let z = method.tensor(tensor(&[4]).at(1, 16));
    let list = method.list(&[y, z]);
    method.call("t::to", &[constant, y]);
    method.call("t::split", &[x, list]);
    method.outputs = vec![y, z];
    program.methods.push(method);
    program.file()
}

/// Exceeding a limit by one is an error that names the limit; the exact value is accepted.
#[test]
fn every_limit_is_named() {
    let file = everything();
    prepare_file(&file, Limits::FIRMWARE).unwrap();
    type Field = fn(&mut Limits) -> &mut u64;
    let limits: [(Limit, Field, u64); 8] = [
        (Limit::FileBytes, |l| &mut l.file_bytes, file.len() as u64),
        (Limit::Values, |l| &mut l.values, 5),
        (Limit::ListItems, |l| &mut l.list_items, 2),
        (Limit::Instructions, |l| &mut l.instructions, 2),
        (Limit::Operators, |l| &mut l.operators, 2),
        (Limit::CallTensors, |l| &mut l.call_tensors, 3),
        (Limit::PlannedBytes, |l| &mut l.planned_bytes, 256 + 64),
        (Limit::ConstantBytes, |l| &mut l.constant_bytes, 16),
    ];
    for (limit, field, enough) in limits {
        let mut exact = Limits::FIRMWARE;
        *field(&mut exact) = enough;
        prepare_file(&file, exact).unwrap_or_else(|error| panic!("{limit}: {error}"));
        let mut short = Limits::FIRMWARE;
        *field(&mut short) = enough - 1;
        let error = prepare_file(&file, short).unwrap_err();
        let InitError::Limit { limit: named, found, allowed } = error else { panic!("{error}") };
        assert_eq!((named, allowed), (limit, enough - 1));
        assert!(found >= enough);
        assert!(error.to_string().contains(&format!("Limits::{limit}")), "{error}");
        assert_eq!(error.code(), core::error::code::OUT_OF_RESOURCES);
    }
}

#[test]
fn delegates_and_lookups_are_limited() {
    let mut method = Method::new("forward", &[]);
    method.delegates = vec![("none", Vec::new()); 3];
    let file = Aligned::from(&Program::of(method)[..]);
    let program = core::Program::from_bytes(file.bytes()).unwrap();
    let meta = program.method_meta("forward").unwrap();
    let mut limits = Limits::HOST;
    limits.delegates = 2;
    let error = meta.table_bytes(&limits).unwrap_err();
    assert!(matches!(error, InitError::Limit { limit: Limit::Delegates, found: 3, .. }), "{error}");

    let file = common::fixture("programs/external_a.pte");
    let data = common::fixture("programs/external_a.shared.ptd");
    let program = core::Program::from_bytes(file.bytes()).unwrap();
    let maps = [core::DataMap::from_bytes(data.bytes()).unwrap()];
    let registry = common::kernels::registry();
    let meta = program.method_meta("forward").unwrap();
    let mut limits = Limits::HOST;
    let mut load = |lookups| {
        limits.name_lookups = lookups;
        let options = LoadOptions::default().with_data(&maps).with_limits(limits);
        let mut tables = Arena::new(meta.table_bytes(&limits).unwrap());
        meta.prepare(tables.bytes_mut(), &registry, options).map(drop)
    };
    load(100).unwrap();
    let error = load(1).unwrap_err();
    assert!(matches!(error, InitError::Limit { limit: Limit::NameLookups, .. }), "{error}");
}

/// A non-terminating loop fails exactly at the limit.
#[test]
fn backward_jumps_are_limited() {
    let mut method = Method::new("forward", &[64]);
    let condition = method.value(Value::Bool(false));
    method.then(Instruction::JumpFalse(condition, 0));
    let file = Aligned::from(&Program::of(method)[..]);
    let program = core::Program::from_bytes(file.bytes()).unwrap();
    let registry = Registry::new();
    let mut memory = common::Memory::of(&program, "forward", &registry, &[]).unwrap();
    let mut limits = Limits::FIRMWARE;
    limits.backward_jumps = 17;
    let options = LoadOptions::default().with_limits(limits);
    let mut method = memory.load(&program, "forward", &registry, options).unwrap();
    let mut steps = 0;
    let error = loop {
        match method.step() {
            Ok(_) => steps += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(steps, 17);
    assert!(error.to_string().contains("Limits::backward_jumps"), "{error}");
}

/// A run is cancelled between two instructions, and the method can run again.
#[test]
fn runs_can_be_cancelled() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let file = Aligned::from(&everything()[..]);
    let program = core::Program::from_bytes(file.bytes()).unwrap();
    let registry = Registry::new().with_kernels(KERNELS).unwrap();
    let cancel = AtomicBool::new(false);
    let mut memory = common::Memory::of(&program, "forward", &registry, &[]).unwrap();
    let options = LoadOptions::default().with_cancel(&cancel);
    let mut method = memory.load(&program, "forward", &registry, options).unwrap();
    method.step().unwrap();
    cancel.store(true, Ordering::Relaxed);
    let error = method.step().unwrap_err();
    assert!(error.to_string().contains("cancelled"), "{error}");
    assert!(method.execute().is_err());
    cancel.store(false, Ordering::Relaxed);
    method.execute().unwrap();
}

/// Sizes, offsets and counts that no machine has.
#[test]
fn absurd_sizes_are_rejected() {
    let one = |planned: &[i64], place: u64, sizes: &[i32]| {
        let mut method = Method::new("forward", planned);
        let x = method.input(tensor(sizes).at(0, place));
        method.outputs = vec![x];
        prepare_file(&Program::of(method), Limits::HOST)
    };
    one(&[64], 48, &[4]).unwrap();
    for (planned, place, sizes) in [
        (vec![64], 52, vec![4]),
        (vec![64], u64::MAX, vec![4]),
        (vec![64], u64::MAX - 15, vec![4]),
        (vec![64], 1 << 32, vec![4]),
        (vec![64], 2, vec![4]),
        (vec![-1], 0, vec![4]),
        (vec![i64::MAX], 0, vec![4]),
        (vec![i64::MAX; 3], 0, vec![4]),
        (vec![i64::MIN], 0, vec![0]),
        (vec![64], 0, vec![i32::MAX, i32::MAX, i32::MAX]),
        (vec![64], 0, vec![-4]),
        (vec![64], 0, vec![0, i32::MAX, i32::MAX, i32::MAX]),
        (vec![64], 0, vec![1; 17]),
        (vec![], 0, vec![4]),
    ] {
        assert!(one(&planned, place, &sizes).is_err(), "{planned:?} {place} {sizes:?}");
    }
    // An empty tensor of maximum rank.
    let (needs, _) = one(&[0], 0, &[0; 16]).unwrap();
    assert_eq!((needs.arena, needs.scratch), (0, 0));
    let (needs, _) = prepare_file(&Program::of(Method::new("forward", &[])), Limits::HOST).unwrap();
    assert_eq!(needs.whole_arena(), 0);
}

/// The table sizes of a microcontroller can be computed on other machines.
#[test]
fn tables_are_smaller_on_small_machines() {
    let file = Aligned::from(&everything()[..]);
    let program = core::Program::from_bytes(file.bytes()).unwrap();
    let meta = program.method_meta("forward").unwrap();
    let bytes = |width| meta.table_use(&Limits::HOST, width).unwrap().total();
    assert_eq!(bytes(PointerWidth::TARGET), meta.table_bytes(&Limits::HOST).unwrap());
    // Computed by hand: 2 regions, 5 immutable values, 4 tensors with fixed shapes, 2 instructions.
    assert_eq!(
        bytes(PointerWidth::Bits32),
        (24 + 5 * 4 + 4 * 20 + 2 * 36usize).next_multiple_of(16)
    );
}

#[test]
fn file_size_limit_is_reported() {
    let error = ProgramError::TooLarge { size: 10, limit: 9 };
    assert!(error.to_string().contains("Limits::file_bytes"));
    assert_eq!(error.code(), core::error::code::OUT_OF_RESOURCES);
}
