//! Damaged files: an error or a result, never a panic, a hang or unbounded memory.

use std::path::Path;
use torchlet::core::{Scalar, ValueMeta};
use torchlet::{Limits, Module, ScalarType, Tensor, Value};

/// Programs with various features: state, branches, loops, delegates, several methods, unusual
/// values.
const PROGRAMS: &[&str] = &[
    "ops/arithmetic/add_dynamic.bpte",
    "digits/digits.pte",
    "formats/delegate_named_data.pte",
    "programs/cond.bpte",
    "programs/scan.bpte",
    "programs/state_initialized.bpte",
    "programs/state_shared.bpte",
    "programs/two_methods.pte",
    "programs/many_dtypes.bpte",
    "ops/factors/svd_2x5x3_full_f32.bpte",
    "ops/factors/qr_wide_f32.bpte",
    "ops/factors/solve_f32.bpte",
    "ops/special_distinct/unique_f32.bpte",
    "ops/special_order/searchsorted_sorter.bpte",
    "ops/special_running/cummax_odd.bpte",
];

fn read(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    std::fs::read(path).unwrap()
}

/// Loads and runs every method, as far as possible.
fn use_all(bytes: Vec<u8>) {
    let mut limits = Limits::HOST;
    limits.backward_jumps = 100;
    let builder = Module::builder().threads(1).memory_limit(16 << 20).limits(limits);
    let Ok(mut module) = builder.from_bytes(bytes) else { return };
    let Ok(names) = module.method_names() else { return };
    for name in names.iter().take(4) {
        let Ok(meta) = module.method_meta(name) else { continue };
        let mut inputs = Vec::new();
        for index in 0..meta.input_count().min(16) {
            inputs.push(match meta.input(index) {
                Ok(Some(ValueMeta::Tensor(input))) if input.info.nbytes() < 1 << 20 => {
                    let shape: Vec<usize> =
                        (0..input.info.rank()).map(|dim| input.info.size(dim)).collect();
                    let scalar_type = input.info.scalar_type;
                    Tensor::ones(scalar_type, &shape).map_or(Value::None, Value::from)
                }
                Ok(Some(ValueMeta::Scalar(Scalar::Int(value)))) => Value::Int(value),
                Ok(Some(ValueMeta::Scalar(other))) => other.into(),
                _ => Value::None,
            });
        }
        let _ = module.memory_report(name);
        if module.execute(name, inputs).is_ok() {
            let _ = module.reset(name);
        }
    }
}

#[test]
fn truncated_files() {
    for name in PROGRAMS {
        let bytes = read(name);
        // Every length of the header, then a sample.
        let step = (bytes.len() / 500).max(1);
        for len in (0..bytes.len().min(300)).chain((300..bytes.len()).step_by(step)) {
            use_all(bytes[..len].to_vec());
        }
    }
}

#[test]
fn damaged_files() {
    let mut seed = 0x5eed_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    for name in PROGRAMS {
        let original = read(name);
        for _ in 0..1500 {
            let mut bytes = original.clone();
            for _ in 0..1 + random(3) {
                let place = random(bytes.len());
                match random(3) {
                    0 => bytes[place] ^= 1 << random(8),
                    1 => bytes[place] = [0, 1, 0x7f, 0x80, 0xff][random(5)],
                    _ => {
                        let end = (place + 4).min(bytes.len());
                        bytes[place..end].fill([0, 0xff, 0x7f][random(3)]);
                    }
                }
            }
            use_all(bytes);
        }
    }
}

#[test]
fn absurd_sizes_need_no_memory() {
    let huge = Tensor::zeros(ScalarType::Double, &[1 << 30, 1 << 27]);
    assert_eq!(huge.unwrap_err().code(), 0x21);
}
