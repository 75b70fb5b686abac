//! Runs the test cases of bundled programs with these kernels over core alone:
//! `cargo run --example verify --features std -- FILE.bpte…`. (The `torchlet verify` command does more.)
//! With `TIMES=n` in the environment, each method then runs n times, and a table says what its operators took; with
//! `TIMES_EACH=1` also each instruction. `THREADS` is the number of threads.

use torchlet_core::{
    AlignedBytes, BundledProgram, Event, EventTracer, LoadOptions, MethodMemory, Parallel, Program,
    Registry, ScalarType, TensorRef, ValueRef,
};

fn aligned(bytes: usize) -> Vec<AlignedBytes<[u8; 16]>> {
    vec![AlignedBytes([0; 16]); bytes.div_ceil(16)]
}

fn view(memory: &mut [AlignedBytes<[u8; 16]>], bytes: usize) -> &mut [u8] {
    let len = memory.len() * 16;
    // SAFETY: `AlignedBytes<[u8; 16]>` is 16 plain bytes; the slice is borrowed exclusively.
    let all = unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<u8>(), len) };
    &mut all[..bytes]
}

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

fn values(tensor: &TensorRef) -> Vec<f64> {
    let strides = tensor.strides();
    let size = tensor.scalar_type.size();
    let mut values = Vec::new();
    for i in 0..tensor.numel() {
        let (mut rest, mut at) = (i, 0);
        for dim in (0..tensor.rank()).rev() {
            at += rest % tensor.size(dim) * strides[dim];
            rest /= tensor.size(dim);
        }
        let b = &tensor.bytes()[at * size..(at + 1) * size];
        if tensor.scalar_type == ScalarType::ComplexFloat {
            let parts = b.chunks_exact(4).map(|part| f32::from_le_bytes(part.try_into().unwrap()));
            values.extend(parts.map(f64::from));
            continue;
        }
        values.push(match tensor.scalar_type {
            ScalarType::Float => f64::from(f32::from_le_bytes(b.try_into().unwrap())),
            ScalarType::Double => f64::from_le_bytes(b.try_into().unwrap()),
            ScalarType::Half => half::f16::from_le_bytes(b.try_into().unwrap()).to_f64(),
            ScalarType::BFloat16 => half::bf16::from_le_bytes(b.try_into().unwrap()).to_f64(),
            ScalarType::Long => i64::from_le_bytes(b.try_into().unwrap()) as f64,
            ScalarType::Int => f64::from(i32::from_le_bytes(b.try_into().unwrap())),
            ScalarType::Short => f64::from(i16::from_le_bytes(b.try_into().unwrap())),
            ScalarType::UInt16 => f64::from(u16::from_le_bytes(b.try_into().unwrap())),
            ScalarType::Char => f64::from(b[0] as i8),
            ScalarType::Byte => f64::from(b[0]),
            ScalarType::Bool => f64::from(u8::from(b[0] != 0)),
            other => panic!("{other}"),
        });
    }
    values
}

fn compare(found: &ValueRef, expected: &ValueRef, rtol: f64, atol: f64) -> Result<f64, String> {
    match (found, expected) {
        (ValueRef::Tensor(found), ValueRef::Tensor(expected)) => {
            if found.sizes != expected.sizes || found.scalar_type != expected.scalar_type {
                return Err(format!("{} expected {}", found.info(), expected.info()));
            }
            let mut worst = 0f64;
            for (i, (a, b)) in values(found).into_iter().zip(values(expected)).enumerate() {
                let same = a == b || a.is_nan() && b.is_nan();
                let error = (a - b).abs();
                if !same && (error.is_nan() || error > atol + rtol * b.abs()) {
                    return Err(format!("element {i}: {a} expected {b} ({})", found.info()));
                }
                worst = worst.max(if same { 0.0 } else { error });
            }
            Ok(worst)
        }
        (ValueRef::Scalar(a), ValueRef::Scalar(b)) if a.to_f64() == b.to_f64() => Ok(0.0),
        (ValueRef::None, ValueRef::None) => Ok(0.0),
        (a, b) => Err(format!("{a:?} expected {b:?}")),
    }
}

/// Sums up the time of each operator and instruction.
#[derive(Default)]
struct Clock {
    started: std::sync::OnceLock<std::time::Instant>,
    spent: std::sync::Mutex<std::collections::BTreeMap<(String, usize), Vec<u64>>>,
}

impl EventTracer for Clock {
    fn begin(&self, _: &Event<'_>) -> u64 {
        self.started.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
    }

    fn end(&self, event: &Event<'_>, token: u64) {
        let took = self.begin(event) - token;
        let key = (event.name.to_owned(), event.instruction);
        self.spent.lock().unwrap().entry(key).or_default().push(took);
    }
}

impl Clock {
    fn clear(&self) {
        self.spent.lock().unwrap().clear();
    }

    /// Medians of each instruction, summed up by operator; the slowest first.
    fn print(&self, each: bool) {
        let mut by_name: std::collections::BTreeMap<String, (u64, usize)> = Default::default();
        let mut all = Vec::new();
        for ((name, instruction), times) in self.spent.lock().unwrap().iter_mut() {
            times.sort();
            let median = times[times.len() / 2];
            let entry = by_name.entry(name.clone()).or_default();
            *entry = (entry.0 + median, entry.1 + 1);
            all.push((median, *instruction, name.clone()));
        }
        let mut rows: Vec<_> = by_name.into_iter().collect();
        rows.sort_by_key(|(_, (time, _))| std::cmp::Reverse(*time));
        for (name, (time, count)) in rows {
            println!("{:10.1} us {count:4} x {name}", time as f64 / 1e3);
        }
        if each {
            all.sort_by_key(|(time, ..)| std::cmp::Reverse(*time));
            for (time, instruction, name) in all {
                println!("{:10.1} us  instruction {instruction:4} {name}", time as f64 / 1e3);
            }
        }
    }
}

/// The tensor in another dim order, in `memory`: bundled inputs may lie otherwise than the program wants them.
fn relaid<'m>(
    tensor: &TensorRef<'m>,
    dim_order: &[u8],
    memory: &'m mut Vec<AlignedBytes<[u8; 16]>>,
) -> ValueRef<'m> {
    if dim_order.len() != tensor.rank() || *dim_order == tensor.dim_order[..] {
        return tensor.clone().into();
    }
    let mut info = tensor.info().clone();
    info.dim_order.copy_from_slice(dim_order);
    let (from, to, size) = (tensor.strides(), info.strides(), info.scalar_type.size());
    *memory = aligned(info.nbytes());
    let bytes = view(memory, info.nbytes());
    for i in 0..info.numel() {
        let (mut rest, mut at, mut target) = (i, 0, 0);
        for dim in (0..info.rank()).rev() {
            let index = rest % info.size(dim);
            rest /= info.size(dim);
            (at, target) = (at + index * from[dim], target + index * to[dim]);
        }
        let element = &tensor.bytes()[at * size..(at + 1) * size];
        bytes[target * size..(target + 1) * size].copy_from_slice(element);
    }
    TensorRef::new(info, bytes).expect("as many bytes").into()
}

fn verify(path: &str, rtol: f64, atol: f64) -> Result<f64, String> {
    let file = std::fs::read(path).map_err(|e| e.to_string())?;
    let mut storage = aligned(file.len());
    view(&mut storage, file.len()).copy_from_slice(&file);
    let bytes: &[u8] = view(&mut storage, file.len());
    let bundle = BundledProgram::from_bytes(bytes).map_err(|e| e.to_string())?;
    let program = Program::from_bytes(bundle.program().map_err(|e| e.to_string())?)
        .map_err(|e| e.to_string())?;
    let registry =
        Registry::new().with_kernels(&torchlet_portable::KERNELS).map_err(|e| e.to_string())?;
    #[cfg(feature = "std")]
    let pool = torchlet_portable::ThreadPool::new(number("THREADS").unwrap_or(2));
    #[cfg(not(feature = "std"))]
    let pool = torchlet_core::Serial;
    let mut worst = 0f64;
    for suite in bundle.suites().unwrap() {
        let suite = suite.unwrap();
        let name = suite.method_name().unwrap();
        let meta = program.method_meta(name).map_err(|e| e.to_string())?;
        let needs = meta.memory_needs(&registry, &[], pool.threads()).map_err(|e| e.to_string())?;
        let mut arena = aligned(needs.arena);
        let mut scratch = aligned(needs.scratch);
        let sizes: Vec<usize> = (0..meta.planned_buffer_count())
            .map(|i| meta.planned_buffer_size(i).unwrap())
            .collect();
        let mut planned: Vec<_> = sizes.iter().map(|size| aligned(*size)).collect();
        let mut planned: Vec<&mut [u8]> =
            planned.iter_mut().zip(&sizes).map(|(memory, size)| view(memory, *size)).collect();
        let mut io: Vec<_> = Vec::new();
        for i in 0..meta.input_count() + meta.output_count() {
            let value = if i < meta.input_count() {
                meta.input(i)
            } else {
                meta.output(i - meta.input_count())
            };
            let bytes = match value.unwrap().unwrap() {
                torchlet_core::ValueMeta::Tensor(tensor) => tensor.info.nbytes(),
                _ => 0,
            };
            io.push((aligned(bytes), bytes));
        }
        let mut io = io.iter_mut();
        let memory = MethodMemory {
            arena: view(&mut arena, needs.arena),
            planned: &mut planned,
            scratch: view(&mut scratch, needs.scratch),
        };
        let times = number("TIMES").unwrap_or(0);
        let clock = Clock::default();
        let mut options = LoadOptions::default().with_parallel(&pool);
        if times > 0 {
            options = options.with_tracer(&clock);
            println!("{path} {name}: arena {} bytes, scratch {}", needs.arena, needs.scratch);
        }
        let mut method =
            program.load_method(name, &registry, memory, options).map_err(|e| e.to_string())?;
        for i in 0..meta.input_count() {
            let (memory, bytes) = io.next().unwrap();
            if method.input_is_unbound(i) {
                method.bind_input(i, view(memory, *bytes)).map_err(|e| e.to_string())?;
            }
        }
        for i in 0..meta.output_count() {
            let (memory, bytes) = io.next().unwrap();
            if method.output_is_unbound(i) {
                method.bind_output(i, view(memory, *bytes)).map_err(|e| e.to_string())?;
            }
        }
        for (number, case) in suite.cases().unwrap().enumerate() {
            let case = case.unwrap();
            for (i, input) in case.inputs().unwrap().enumerate() {
                let input = input.unwrap();
                let mut memory = Vec::new();
                let input = match (&input, meta.input(i)) {
                    (
                        ValueRef::Tensor(tensor),
                        Ok(Some(torchlet_core::ValueMeta::Tensor(wanted))),
                    ) => relaid(tensor, &wanted.info.dim_order, &mut memory),
                    _ => input,
                };
                method.set_input(i, &input).map_err(|e| format!("case {number} input {i}: {e}"))?;
            }
            method.execute().map_err(|e| format!("case {number}: {e}"))?;
            for (i, expected) in case.expected_outputs().unwrap().enumerate() {
                let found = method.output(i).map_err(|e| e.to_string())?;
                let error = compare(&found, &expected.unwrap(), rtol, atol)
                    .map_err(|e| format!("case {number} output {i}: {e}"))?;
                worst = worst.max(error);
            }
        }
        if times > 0 {
            for _ in 0..3 {
                method.execute().map_err(|e| e.to_string())?;
            }
            clock.clear();
            for _ in 0..times {
                method.execute().map_err(|e| e.to_string())?;
            }
            clock.print(number("TIMES_EACH").is_some());
        }
    }
    Ok(worst)
}

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let tolerance = |name: &str, default: f64| {
        std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
    };
    let (rtol, atol) = (tolerance("RTOL", 1e-4), tolerance("ATOL", 1e-5));
    args.sort();
    let mut passed = 0;
    for path in &args {
        match verify(path, rtol, atol) {
            Ok(_) => passed += 1,
            Err(error) => println!("FAIL {path}: {error}"),
        }
    }
    println!("{passed} passed, {} failed", args.len() - passed);
}
