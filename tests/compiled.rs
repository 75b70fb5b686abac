//! Compiled programs yield the same results as the exported ones over several calls: state, views
//! of state, constants, copies.

#![cfg(all(feature = "std", feature = "portable"))]

use std::borrow::Cow;
use torchlet::core::{Program as File, Registry, Scalar, ScalarType, ShapeDynamism, TensorInfo};
use torchlet::portable::KERNELS;
use torchlet::portable::engine::CpuTarget;
use torchlet::{Module, RunOn, Tensor};
use torchlet_graph::method::{Instruction, Method, MethodTensor, MethodValue, Program, TensorData};
use torchlet_graph::{Processors, cpu};

/// Builder of a method with fp32 tensors.
struct Builder<'p>(Method<'p>);

impl<'p> Builder<'p> {
    fn new(planned: &[usize]) -> Self {
        let name = String::from("forward");
        Builder(Method { name, planned: planned.to_vec(), ..Method::default() })
    }

    /// Adds a tensor at a planned buffer and offset.
    fn tensor(&mut self, sizes: &[i32], place: (usize, usize)) -> usize {
        self.add(sizes, Some(place), TensorData::None)
    }

    fn constant(&mut self, sizes: &[i32], numbers: &[f32]) -> usize {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.add(sizes, None, TensorData::Inside(Cow::Owned(bytes)))
    }

    fn add(
        &mut self,
        sizes: &[i32],
        location: Option<(usize, usize)>,
        data: TensorData<'p>,
    ) -> usize {
        let info = TensorInfo::contiguous(ScalarType::Float, sizes).unwrap();
        let dynamism = ShapeDynamism::Static;
        self.0.add(MethodValue::Tensor(MethodTensor { info, dynamism, location, data, name: None }))
    }

    fn int(&mut self, number: i64) -> usize {
        self.0.add(MethodValue::Scalar(Scalar::Int(number)))
    }

    fn call(&mut self, name: &str, args: &[usize]) {
        let (name, overload) = name.split_once('.').unwrap_or((name, ""));
        let (name, overload) = (name.to_owned(), overload.to_owned());
        self.0.instructions.push(Instruction::Kernel { name, overload, args: args.to_vec() });
    }

    fn copy(&mut self, to: usize, from: usize) {
        let no = self.0.add(MethodValue::Scalar(Scalar::Bool(false)));
        self.call("aten::copy_", &[to, from, no, to]);
    }

    fn add_up(&mut self, a: usize, b: usize, out: usize) {
        let one = self.int(1);
        self.call("aten::add.out", &[a, b, one, out, out]);
    }
}

fn module(bytes: Vec<u8>) -> Module {
    Module::builder().threads(1).run_on(RunOn::AsExported).from_bytes(bytes).unwrap()
}

/// Compiles a program for these processors.
fn compiled(bytes: &[u8], processors: Processors<'_>) -> Module {
    let registry = Registry::new().with_kernels(&KERNELS).unwrap();
    let file = File::from_bytes(bytes).unwrap();
    let compiled = cpu::compile(&file, &[], processors, &registry).unwrap();
    module(compiled.program.write().unwrap().to_bytes())
}

/// Runs a method three times in each form: exported, compiled for kernels, and compiled for the CPU
/// engine. All must yield the same values. Returns those of the last run.
fn same(method: Builder<'_>, sizes: &[usize]) -> Vec<Vec<f32>> {
    let bytes = Program { methods: vec![method.0], named: Vec::new() }.write().unwrap().to_bytes();
    let greedy = CpuTarget::greedy();
    let mut kernels = compiled(&bytes, Processors::NONE);
    let mut engine = compiled(&bytes, Processors::preferring(&[&greedy]));
    let mut exported = module(bytes);
    let mut last = Vec::new();
    for round in 0..3 {
        let input = Tensor::rand(ScalarType::Float, sizes, 7 + round).unwrap();
        let expected = exported.forward(&input).unwrap();
        assert_eq!(kernels.forward(&input).unwrap(), expected, "kernels, round {round}");
        assert_eq!(engine.forward(&input).unwrap(), expected, "engine, round {round}");
        last = expected.iter().map(|out| out.tensor().unwrap().to_vec().unwrap()).collect();
    }
    last
}

#[test]
fn folded_values_are_constants() {
    let mut method = Builder::new(&[64]);
    let w = method.constant(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let x = method.tensor(&[2, 2], (0, 0));
    let (t, out) = (method.tensor(&[2, 2], (0, 16)), method.tensor(&[2, 2], (0, 32)));
    let dims = [method.int(1), method.int(0)];
    let dims = method.0.add(MethodValue::Ints(dims.to_vec()));
    method.call("aten::permute_copy.out", &[w, dims, t, t]);
    method.add_up(x, t, out);
    (method.0.inputs, method.0.outputs) = (vec![x], vec![out]);
    assert!(same(method, &[2, 2])[0][2] >= 2.0);
}

#[test]
fn state_read_through_a_view_first_is_kept() {
    // The view has no instruction: it is planned over the state.
    let mut method = Builder::new(&[96]);
    let state = method.tensor(&[4], (0, 64));
    let x = method.tensor(&[2, 2], (0, 0));
    let view = method.tensor(&[2, 2], (0, 64));
    let sum = method.tensor(&[2, 2], (0, 16));
    let flat = method.tensor(&[4], (0, 16));
    let out = method.tensor(&[2, 2], (0, 32));
    method.add_up(view, x, sum);
    method.add_up(sum, x, out);
    method.copy(state, flat);
    (method.0.inputs, method.0.outputs) = (vec![x], vec![out]);
    same(method, &[2, 2]);
}

#[test]
fn writes_through_a_view_update_state() {
    let mut method = Builder::new(&[128]);
    let (state, view) = (method.tensor(&[4], (0, 64)), method.tensor(&[2, 2], (0, 64)));
    let x = method.tensor(&[4], (0, 0));
    let (sum, square) = (method.tensor(&[4], (0, 16)), method.tensor(&[2, 2], (0, 80)));
    let out = method.tensor(&[2, 2], (0, 32));
    method.add_up(state, x, sum);
    method.copy(state, sum);
    method.add_up(view, view, square);
    method.copy(view, square);
    method.add_up(view, square, out);
    (method.0.inputs, method.0.outputs) = (vec![x], vec![out]);
    same(method, &[4]);
}

#[test]
fn copies_do_not_alias() {
    let mut method = Builder::new(&[128]);
    let (x, a) = (method.tensor(&[4], (0, 0)), method.tensor(&[4], (0, 16)));
    let (b, c) = (method.tensor(&[4], (0, 32)), method.tensor(&[4], (0, 48)));
    let out = method.tensor(&[4], (0, 64));
    method.add_up(x, x, a);
    method.add_up(a, x, b);
    // Afterwards, the target aliases neither an input nor the result of another call.
    method.copy(a, b);
    method.add_up(a, b, c);
    method.copy(c, x);
    method.add_up(c, x, out);
    (method.0.inputs, method.0.outputs) = (vec![x], vec![a, b, c, out]);
    let numbers = same(method, &[4]);
    assert_eq!(numbers[0], numbers[1]);
}

#[test]
fn the_target_of_a_move_shares_its_memory_with_a_later_tensor() {
    let mut method = Builder::new(&[128]);
    let w = method.constant(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let (x, a) = (method.tensor(&[4], (0, 0)), method.tensor(&[4], (0, 16)));
    let (moved, b) = (method.tensor(&[4], (0, 32)), method.tensor(&[4], (0, 48)));
    // `copy_` counts as a read of its target, so the compiler makes `later` a view of `moved`.
    let later = method.tensor(&[2, 2], (0, 32));
    let out = method.tensor(&[2, 2], (0, 64));
    method.add_up(x, x, a);
    let condition = method.0.add(MethodValue::Scalar(Scalar::Bool(true)));
    method.0.instructions.push(Instruction::JumpFalse { condition, destination: 4 });
    method.0.instructions.push(Instruction::Move { from: a, to: moved });
    method.add_up(moved, x, b);
    assert_eq!(method.0.instructions.len(), 4);
    method.copy(later, w);
    method.add_up(later, w, out);
    (method.0.inputs, method.0.outputs) = (vec![x], vec![b, out]);
    assert_eq!(same(method, &[4])[1], [2.0, 4.0, 6.0, 8.0]);
}

#[test]
fn the_target_of_a_copy_shares_its_memory_with_a_later_tensor() {
    let mut method = Builder::new(&[128]);
    let four = method.constant(&[4], &[1.0, 2.0, 3.0, 4.0]);
    let two = method.constant(&[2], &[5.0, 6.0]);
    let x = method.tensor(&[2], (0, 0));
    let (target, sum) = (method.tensor(&[4], (0, 32)), method.tensor(&[4], (0, 48)));
    let (later, out) = (method.tensor(&[2], (0, 32)), method.tensor(&[2], (0, 64)));
    let last = method.tensor(&[2], (0, 80));
    method.copy(target, four);
    let condition = method.0.add(MethodValue::Scalar(Scalar::Bool(true)));
    method.0.instructions.push(Instruction::JumpFalse { condition, destination: 5 });
    method.add_up(target, four, sum);
    method.add_up(x, x, later);
    method.add_up(later, x, out);
    assert_eq!(method.0.instructions.len(), 5);
    method.copy(later, two);
    method.add_up(later, two, last);
    (method.0.inputs, method.0.outputs) = (vec![x], vec![sum, out, last]);
    let values = same(method, &[2]);
    assert_eq!((&values[0][..], &values[2][..]), (&[2.0, 4.0, 6.0, 8.0][..], &[10.0, 12.0][..]));
}

#[test]
fn state_that_is_an_output_stays_where_it_is() {
    let mut method = Builder::new(&[64, 16]);
    let (x, state) = (method.tensor(&[4], (0, 0)), method.tensor(&[4], (1, 0)));
    let sum = method.tensor(&[4], (0, 16));
    method.add_up(state, x, sum);
    method.copy(state, sum);
    (method.0.inputs, method.0.outputs) = (vec![x], vec![state, sum]);
    same(method, &[4]);
}

#[test]
fn methods_still_share_state() {
    // One method writes four values; the other updates the same state and reads it through a view
    // first.
    let mut write = Builder::new(&[64, 32]);
    let (x, state) = (write.tensor(&[4], (0, 0)), write.tensor(&[4], (1, 0)));
    let sum = write.tensor(&[4], (0, 16));
    write.add_up(state, x, sum);
    write.copy(state, sum);
    (write.0.inputs, write.0.outputs) = (vec![x], vec![sum]);
    let mut read = Builder::new(&[64, 32]);
    let (y, view) = (read.tensor(&[2, 2], (0, 0)), read.tensor(&[2, 2], (1, 0)));
    let (state, out) = (read.tensor(&[4], (1, 0)), read.tensor(&[2, 2], (0, 16)));
    let more = read.tensor(&[2, 2], (0, 32));
    read.add_up(view, y, out);
    read.add_up(out, y, more);
    read.copy(state, state);
    (read.0.inputs, read.0.outputs) = (vec![y], vec![out, more]);
    (write.0.name, read.0.name) = ("write".to_owned(), "read".to_owned());
    let methods = vec![write.0, read.0];
    let bytes = Program { methods, named: Vec::new() }.write().unwrap().to_bytes();
    for mut module in [module(bytes.clone()), compiled(&bytes, Processors::NONE)] {
        for _ in 0..2 {
            module.execute("write", Tensor::full(&[4], 1.0f32).unwrap()).unwrap();
        }
        let zeros = Tensor::full(&[2, 2], 0.0f32).unwrap();
        let outputs = module.execute("read", zeros).unwrap();
        let kept = outputs[0].tensor().unwrap();
        assert_eq!(kept.to_vec::<f32>().unwrap(), [2.0; 4]);
    }
}

#[test]
fn shared_data_is_written_once() {
    let mut method = Builder::new(&[64]);
    let bytes: Vec<u8> = vec![0; 1 << 16];
    let program = {
        let x = method.tensor(&[1], (0, 0));
        let mut outputs = Vec::new();
        for _ in 0..2 {
            let info = TensorInfo::contiguous(ScalarType::Float, &[1 << 14]).unwrap();
            outputs.push(method.0.add(MethodValue::Tensor(MethodTensor {
                info,
                dynamism: ShapeDynamism::Static,
                location: None,
                data: TensorData::Inside(Cow::Borrowed(&bytes)),
                name: None,
            })));
        }
        (method.0.inputs, method.0.outputs) = (vec![x], outputs);
        Program {
            methods: vec![method.0.clone(), Method { name: "b".into(), ..method.0 }],
            named: Vec::new(),
        }
    };
    let file = program.write().unwrap().to_bytes();
    assert!(file.len() < bytes.len() * 3 / 2, "{}", file.len());
    // Parsing and writing the file again does not enlarge it either.
    let again = Program::read(&File::from_bytes(&file).unwrap()).unwrap().write().unwrap();
    assert!(again.to_bytes().len() < bytes.len() * 3 / 2);
}
