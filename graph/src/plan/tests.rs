use super::lifetimes::lifetimes;
use crate::method::{Instruction, Method, MethodTensor, MethodValue, Program, TensorData};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::{Scalar, ScalarType, ShapeDynamism, TensorInfo};

/// Deterministic pseudo-random generator (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }
}

fn tensor(bytes: usize) -> MethodValue<'static> {
    let info = TensorInfo::contiguous(ScalarType::Byte, &[bytes as i32]).unwrap();
    MethodValue::Tensor(MethodTensor {
        info,
        dynamism: ShapeDynamism::Static,
        location: None,
        data: TensorData::None,
        name: None,
    })
}

fn call(inputs: &[usize], out: usize) -> Instruction {
    let mut args = inputs.to_vec();
    args.extend([out, out]);
    Instruction::Kernel { name: "aten::cat".to_string(), overload: "out".to_string(), args }
}

fn range(method: &Method<'_>, value: usize) -> Option<(usize, usize)> {
    let tensor = method.tensor(value)?;
    let (_, start) = tensor.location?;
    Some((start, start + tensor.info.nbytes()))
}

/// Simulates a method: each call fills its output with a unique number. Fails if a call reads a
/// tensor that was overwritten in the meantime.
fn simulate(method: &Method<'_>, random: &mut Random) {
    let mut memory = vec![0u32; method.planned.first().copied().unwrap_or(0)];
    let mut written = vec![0u32; method.values.len()];
    let (mut at, mut rounds) = (0, 0);
    while let Some(instruction) = method.instructions.get(at) {
        at += 1;
        match instruction {
            Instruction::Kernel { args, .. } => {
                let (out, inputs) = (args[args.len() - 1], &args[..args.len() - 2]);
                for input in inputs {
                    if let Some((start, end)) = range(method, *input)
                        && written[*input] != 0
                    {
                        let kept = memory[start..end].iter().all(|byte| *byte == written[*input]);
                        assert!(kept, "instruction {at} reads {input}, overwritten, of {method:?}");
                    }
                }
                rounds += 1;
                let (start, end) = range(method, out).unwrap();
                memory[start..end].fill(rounds);
                written[out] = rounds;
            }
            Instruction::JumpFalse { destination, .. } if rounds < 200 && random.below(2) == 0 => {
                at = *destination;
            }
            _ => {}
        }
    }
    for output in &method.outputs {
        if let Some((start, end)) = range(method, *output) {
            assert!(memory[start..end].iter().all(|byte| *byte == written[*output]));
        }
    }
}

#[test]
fn what_is_needed_is_not_overwritten() {
    let mut random = Random(88172645463325252);
    for _ in 0..300 {
        let tensors = 2 + random.below(20);
        let mut method = Method {
            values: (0..tensors).map(|_| tensor(random.below(200))).collect(),
            ..Method::default()
        };
        let condition = method.add(MethodValue::Scalar(Scalar::Bool(true)));
        let count = 1 + random.below(30);
        let mut known = vec![0];
        method.instructions.push(call(&[], 0));
        for at in 1..count {
            if random.below(8) == 0 {
                // Jumps lead forward or backward. A later read may find a tensor unwritten, as
                // after a branch.
                let destination = random.below(count);
                method.instructions.push(Instruction::JumpFalse { condition, destination });
                continue;
            }
            let inputs = [known[random.below(known.len())], known[random.below(known.len())]];
            let out = random.below(tensors);
            if !inputs.contains(&out) {
                known.push(out);
                method.instructions.push(call(&inputs, out));
            } else {
                method.instructions.push(Instruction::Free { value: at % tensors });
            }
        }
        method.outputs = vec![known[known.len() - 1]];
        let times = lifetimes(&method);
        method.plan().unwrap();
        for value in 0..tensors {
            // The caller owns the memory of outputs.
            if method.outputs.contains(&value) {
                assert_eq!(range(&method, value), None);
                let size = method.planned.first().copied().unwrap_or(0);
                method.planned = vec![size + 200];
                if let Some(MethodValue::Tensor(tensor)) = method.values.get_mut(value) {
                    tensor.location = Some((0, size));
                }
            }
        }
        for (a, time) in times.iter().enumerate() {
            for (b, other) in times.iter().enumerate().skip(a + 1) {
                let (Some(time), Some(other)) = (time, other) else { continue };
                let (Some(one), Some(two)) = (range(&method, a), range(&method, b)) else {
                    continue;
                };
                let apart = one.1 <= two.0 || two.1 <= one.0;
                assert!(apart || !time.overlaps(other), "{a} and {b} of {method:?}");
            }
        }
        simulate(&method, &mut random);
    }
}

#[test]
fn memory_is_used_again() {
    let mut method = Method { values: (0..4).map(|_| tensor(100)).collect(), ..Method::default() };
    method.instructions = vec![call(&[], 0), call(&[0], 1), call(&[1], 2), call(&[2], 3)];
    method.plan().unwrap();
    assert_eq!(method.planned, [224]);
    assert_eq!(method.tensor(2).unwrap().location, Some((0, 0)));
}

#[test]
fn state_keeps_its_place_and_views_have_none() {
    let mut method = Method { values: (0..5).map(|_| tensor(32)).collect(), ..Method::default() };
    if let Some(MethodValue::Tensor(state)) = method.values.get_mut(0) {
        state.location = Some((0, 16));
    }
    let view = Instruction::Kernel {
        name: String::from("executorch_prim::et_view"),
        overload: String::from("default"),
        args: vec![1, 2, 3],
    };
    method.instructions = vec![call(&[0], 1), view, call(&[], 2), call(&[3], 4)];
    method.plan().unwrap();
    // Tensor 1 lives as long as its view.
    let locations = [Some((0, 16)), Some((0, 48)), Some((0, 80)), None, Some((0, 80))];
    let found: Vec<_> = (0..5).map(|value| method.tensor(value).unwrap().location).collect();
    assert_eq!(found, locations);
}

/// Removes the slots of everything but state, and plans again.
fn replanned(method: &mut Method<'_>) -> usize {
    let before = lifetimes(method);
    let whole = method.instructions.len();
    for (value, time) in method.values.iter_mut().zip(&before) {
        if let MethodValue::Tensor(tensor) = value
            && time.is_some_and(|time| time.first > 0 || time.last < whole)
        {
            tensor.location = None;
        }
    }
    let planned = core::mem::take(&mut method.planned);
    method.plan().unwrap();
    planned.iter().sum()
}

#[test]
fn real_programs_take_about_the_memory_that_their_exporter_planned() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/");
    let (mut exporters, mut own, mut count) = (0, 0, 0);
    for part in ["digits", "models", "programs"] {
        for entry in std::fs::read_dir([folder, part].concat()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|kind| kind != "bpte") {
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            let bundle = torchlet_core::BundledProgram::from_bytes(&bytes).unwrap();
            let program = torchlet_core::Program::from_bytes(bundle.program().unwrap()).unwrap();
            for method in &mut Program::read(&program).unwrap().methods {
                let before = replanned(method);
                let after: usize = method.planned.iter().sum();
                exporters += before;
                own += after;
                count += 1;
            }
        }
    }
    assert!(count > 80 && own <= exporters, "{own} bytes in {count} methods, {exporters} before");
}
