//! Runs the test cases of bundled programs with these kernels over core alone:
//! `cargo run --example verify --features std -- FILE.bpte…`. (The `torchlet verify` command does more.)

use torchlet_core::{
    AlignedBytes, BundledProgram, LoadOptions, MethodMemory, Program, Registry, ScalarType,
    TensorRef, ValueRef,
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
    let pool = torchlet_portable::ThreadPool::new(2);
    #[cfg(not(feature = "std"))]
    let pool = torchlet_core::Serial;
    let mut worst = 0f64;
    for suite in bundle.suites().unwrap() {
        let suite = suite.unwrap();
        let name = suite.method_name().unwrap();
        let meta = program.method_meta(name).map_err(|e| e.to_string())?;
        let needs = meta.memory_needs(&registry, &[], 2).map_err(|e| e.to_string())?;
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
        let options = LoadOptions::default().with_parallel(&pool);
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
                method
                    .set_input(i, &input.unwrap())
                    .map_err(|e| format!("case {number} input {i}: {e}"))?;
            }
            method.execute().map_err(|e| format!("case {number}: {e}"))?;
            for (i, expected) in case.expected_outputs().unwrap().enumerate() {
                let found = method.output(i).map_err(|e| e.to_string())?;
                let error = compare(&found, &expected.unwrap(), rtol, atol)
                    .map_err(|e| format!("case {number} output {i}: {e}"))?;
                worst = worst.max(error);
            }
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
