//! Random programs with control flow and state. Compiled programs must compute the same as kernels
//! called one by one.
//!
//! Programs have the structure of exported ones: nested conditions and loops, views without
//! instructions, results moved out of branches, buffers updated anywhere, planned memory that later
//! tensors reuse. All values are small integers, so that every processor computes exactly the same.

use super::mutate::Random;
use std::borrow::Cow;
use torchlet::core::{Program as File, Registry, Scalar, ScalarType, ShapeDynamism, TensorInfo};
use torchlet::graph::graph::{Graph, Node};
use torchlet::graph::method::{
    Instruction, Method, MethodTensor, MethodValue, Program, TensorData,
};
use torchlet::graph::{Processors, Target, cpu};
use torchlet::portable::engine::CpuTarget;
use torchlet::{Module, ModuleBuilder, RunOn, Tensor, Value};

/// Shapes of float tensors, all with the same number of elements.
const SHAPES: [&[i32]; 5] = [&[4], &[2, 2], &[1, 4], &[4, 1], &[2, 1, 2]];
/// Shapes of conditions.
const FLAGS: [&[i32]; 3] = [&[], &[1], &[1, 1]];
/// Bytes per tensor in planned memory.
const SLOT: usize = 16;
/// Initial data of state: one entry of the file, as exporters deduplicate equal buffers.
static INITIAL: [u8; SLOT] = {
    let [a, b, c, d] =
        [1.0f32.to_le_bytes(), 2.0f32.to_le_bytes(), (-1.0f32).to_le_bytes(), [0; 4]];
    [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], c[0], c[1], c[2], c[3], d[0], d[1], d[2], d[3]]
};

/// Location of a tensor's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Home {
    /// Buffer and offset.
    Planned(usize, usize),
    /// Unplanned state, by index.
    Unplanned(usize),
    /// A constant, or a view that an instruction creates.
    Elsewhere,
}

/// A readable tensor.
#[derive(Debug, Clone, Copy)]
struct Known {
    value: usize,
    sizes: &'static [i32],
    home: Home,
    /// Home of the base tensor, if an instruction created this view: it changes with its base.
    follows: Option<Home>,
    is_constant: bool,
}

/// A program under construction.
struct Builder<'r> {
    random: &'r mut Random,
    method: Method<'static>,
    floats: Vec<Known>,
    flags: Vec<Known>,
    /// Scalars that instructions have set.
    numbers: Vec<usize>,
    /// Free offsets in the planned buffer.
    free: Vec<usize>,
    /// Statements that may still be added.
    left: usize,
}

impl Builder<'_> {
    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound)
    }

    fn int(&mut self, number: i64) -> usize {
        self.method.add(MethodValue::Scalar(Scalar::Int(number)))
    }

    fn call(&mut self, name: &str, args: &[usize]) {
        let (name, overload) = name.split_once('.').unwrap_or((name, ""));
        let (name, overload) = (name.to_owned(), overload.to_owned());
        self.method.instructions.push(Instruction::Kernel { name, overload, args: args.to_vec() });
    }

    fn tensor(
        &mut self,
        scalar_type: ScalarType,
        sizes: &'static [i32],
        home: Home,
        data: TensorData<'static>,
        name: Option<String>,
    ) -> Known {
        let location = match home {
            Home::Planned(buffer, offset) => Some((buffer, offset)),
            _ => None,
        };
        let info = TensorInfo::contiguous(scalar_type, sizes).expect("a small tensor");
        let is_constant = home == Home::Elsewhere && !matches!(data, TensorData::None);
        let dynamism = ShapeDynamism::Static;
        let tensor = MethodTensor { info, dynamism, location, data, name };
        let value = self.method.add(MethodValue::Tensor(tensor));
        Known { value, sizes, home, follows: None, is_constant }
    }

    /// Allocates an unused offset in the first buffer.
    fn place(&mut self) -> Home {
        let again = self.below(3) > 0 && !self.free.is_empty();
        let offset = if again {
            let at = self.below(self.free.len());
            self.free.swap_remove(at)
        } else {
            let end = self.method.planned[0];
            self.method.planned[0] = end + SLOT;
            end
        };
        Home::Planned(0, offset)
    }

    fn float(&mut self, sizes: &'static [i32]) -> Known {
        let home = self.place();
        self.tensor(ScalarType::Float, sizes, home, TensorData::None, None)
    }

    fn flag(&mut self, sizes: &'static [i32]) -> Known {
        let home = self.place();
        self.tensor(ScalarType::Bool, sizes, home, TensorData::None, None)
    }

    fn any_float(&mut self) -> Known {
        // Recent tensors are more likely.
        let count = self.floats.len();
        let back = self.below(count).min(self.below(count));
        self.floats[count - 1 - back]
    }

    /// A view of a tensor in another shape: elided, created by an instruction, or copied.
    fn view(&mut self, of: Known, scalar_type: ScalarType, sizes: &'static [i32]) -> Known {
        let named = match of.home {
            Home::Unplanned(number) => {
                let data = TensorData::Inside(Cow::Borrowed(&INITIAL[..]));
                Some((data, Some(format!("state.{number}"))))
            }
            _ => None,
        };
        match (self.below(4), of.home) {
            (0 | 1, Home::Planned(..)) => {
                // Exporters give views of state the data and name of their base.
                let (data, name) = match self.method.tensor(of.value) {
                    Some(tensor) => (tensor.data.clone(), tensor.name.clone()),
                    None => (TensorData::None, None),
                };
                let view = self.tensor(scalar_type, sizes, of.home, data, name);
                Known { follows: of.follows, ..view }
            }
            (0 | 1, Home::Unplanned(_)) => {
                let (data, name) = named.unwrap_or_default();
                self.tensor(scalar_type, sizes, of.home, data, name)
            }
            (2, _) if !of.is_constant => {
                let dims = sizes.iter().map(|size| self.int((*size).into())).collect();
                let dims = self.method.add(MethodValue::Ints(dims));
                let view = self.tensor(scalar_type, sizes, Home::Elsewhere, TensorData::None, None);
                self.call("executorch_prim::et_view.default", &[of.value, dims, view.value]);
                let follows = of.follows.or(Some(of.home));
                Known { follows, is_constant: false, ..view }
            }
            _ => {
                let dims = sizes.iter().map(|size| self.int((*size).into())).collect();
                let dims = self.method.add(MethodValue::Ints(dims));
                let home = self.place();
                let copy = self.tensor(scalar_type, sizes, home, TensorData::None, None);
                self.call("aten::view_copy.out", &[of.value, dims, copy.value, copy.value]);
                copy
            }
        }
    }

    fn shaped(&mut self, of: Known, sizes: &'static [i32]) -> Known {
        match of.sizes == sizes {
            true => of,
            false => self.view(of, ScalarType::Float, sizes),
        }
    }

    /// Clamps values to a small range.
    fn clamped(&mut self, of: Known) -> Known {
        let (low, high) = (self.int(-9), self.int(9));
        let out = self.float(of.sizes);
        self.call("aten::clamp.out", &[of.value, low, high, out.value, out.value]);
        out
    }

    fn computed(&mut self) -> Known {
        let a = self.any_float();
        match self.below(6) {
            0 => {
                let out = self.float(a.sizes);
                self.call("aten::neg.out", &[a.value, out.value, out.value]);
                out
            }
            1 => {
                let out = self.float(a.sizes);
                self.call("aten::relu.out", &[a.value, out.value, out.value]);
                out
            }
            2 if !self.numbers.is_empty() => {
                let at = self.below(self.numbers.len());
                let (number, one) = (self.numbers[at], self.int(1));
                let out = self.float(a.sizes);
                self.call("aten::add.Scalar_out", &[a.value, number, one, out.value, out.value]);
                self.clamped(out)
            }
            3 => {
                let b = self.any_float();
                let (a, b) = (self.shaped(a, SHAPES[1]), self.shaped(b, SHAPES[1]));
                let out = self.float(SHAPES[1]);
                self.call("aten::mm.out", &[a.value, b.value, out.value, out.value]);
                self.clamped(out)
            }
            kind => {
                let b = self.any_float();
                let b = self.shaped(b, a.sizes);
                let (one, out) = (self.int(1), self.float(a.sizes));
                let name = if kind == 4 { "aten::add.out" } else { "aten::sub.out" };
                self.call(name, &[a.value, b.value, one, out.value, out.value]);
                self.clamped(out)
            }
        }
    }

    fn compared(&mut self, of: Known, name: &str, number: i64) -> Known {
        let number = self.int(number);
        let out = self.flag(of.sizes);
        self.call(name, &[of.value, number, out.value, out.value]);
        out
    }

    /// Returns a value that a jump can read.
    fn condition(&mut self) -> usize {
        if self.below(5) == 0 && !self.numbers.is_empty() {
            let at = self.below(self.numbers.len());
            let (number, other) = (self.numbers[at], self.below(4) as i64 - 1);
            let other = self.int(other);
            let truth = self.method.add(MethodValue::Scalar(Scalar::Bool(false)));
            self.call("executorch_prim::gt.Scalar", &[number, other, truth]);
            return truth;
        }
        let flag = if self.below(3) == 0 && !self.flags.is_empty() {
            let at = self.below(self.flags.len());
            self.flags[at]
        } else {
            let x = self.any_float();
            let limit = self.below(7) as i64 - 3;
            let all = self.compared(x, "aten::gt.Scalar_out", limit);
            match self.below(4) {
                0 => all,
                _ => {
                    let any = self.flag(FLAGS[0]);
                    self.call("aten::any.all_out", &[all.value, any.value, any.value]);
                    any
                }
            }
        };
        let shapes: &[&'static [i32]] = if FLAGS.contains(&flag.sizes) { &FLAGS } else { &SHAPES };
        let mut flag = flag;
        for _ in 0..self.below(3) {
            let sizes = shapes[self.random.below(shapes.len())];
            flag = self.view(flag, ScalarType::Bool, sizes);
        }
        self.flags.push(flag);
        flag.value
    }

    fn jump(&mut self, condition: usize) -> usize {
        let jump = Instruction::JumpFalse { condition, destination: 0 };
        self.method.instructions.push(jump);
        self.method.instructions.len() - 1
    }

    /// An unconditional jump.
    fn always(&mut self) -> usize {
        let never = self.method.add(MethodValue::Scalar(Scalar::Bool(false)));
        self.jump(never)
    }

    fn lead(&mut self, jump: usize, to: usize) {
        if let Instruction::JumpFalse { destination, .. } = &mut self.method.instructions[jump] {
            *destination = to;
        }
    }

    /// Overwrites a tensor by a move, or in place.
    fn overwrite(&mut self, target: Known, source: Known) {
        // Exporters never do so, and the engine refuses to overwrite what it reads.
        if target.home == source.home {
            return;
        }
        if self.below(2) == 0
            && target.sizes.len() == source.sizes.len()
            && target.sizes == source.sizes
        {
            let (from, to) = (source.value, target.value);
            self.method.instructions.push(Instruction::Move { from, to });
        } else {
            let source = self.shaped(source, target.sizes);
            let no = self.method.add(MethodValue::Scalar(Scalar::Bool(false)));
            self.call("aten::copy_", &[target.value, source.value, no, target.value]);
        }
        self.changed(target.home);
    }

    /// Stops reading views that instructions created of this memory, because a graph has their old
    /// contents.
    fn changed(&mut self, home: Home) {
        self.floats.retain(|known| known.follows != Some(home));
        self.flags.retain(|known| known.follows != Some(home));
    }

    /// Statements of a branch or loop. Their results are not visible afterwards.
    fn scope(&mut self, inside: impl FnOnce(&mut Self) -> Vec<(Known, Known)>) {
        let values = |all: &[Known]| all.iter().map(|known| known.value).collect::<Vec<usize>>();
        let (floats, flags) = (values(&self.floats), values(&self.flags));
        let numbers = self.numbers.len();
        let first = self.method.values.len();
        let taken = self.free.clone();
        let end = self.method.planned[0];
        let moves = inside(self);
        for (target, source) in moves {
            self.overwrite(target, source);
        }
        self.floats.retain(|known| floats.contains(&known.value));
        self.flags.retain(|known| flags.contains(&known.value));
        self.numbers.truncate(numbers);
        // Frees memory allocated inside, except that of views of outer tensors.
        let is_new = |offset: &usize| *offset >= end || taken.contains(offset);
        let made = self.method.values[first..].iter().filter_map(|value| match value {
            MethodValue::Tensor(tensor) => tensor.location,
            _ => None,
        });
        let made: Vec<usize> =
            made.filter(|(buffer, _)| *buffer == 0).map(|(_, offset)| offset).collect();
        for offset in made {
            if is_new(&offset) && !self.free.contains(&offset) {
                self.free.push(offset);
            }
        }
    }

    fn branches(&mut self, depth: usize) {
        let condition = self.condition();
        let results: Vec<Known> = (0..self.below(3))
            .map(|_| {
                let sizes = SHAPES[self.below(SHAPES.len())];
                self.float(sizes)
            })
            .collect();
        let to_else = self.jump(condition);
        let mut to_end = 0;
        for is_else in [false, true] {
            let results = results.clone();
            self.scope(|inside| {
                let count = 1 + inside.below(3);
                inside.statements(count, depth + 1);
                let pick = |target: Known| {
                    let source = inside.any_float();
                    let source = inside.shaped(source, target.sizes);
                    (target, source)
                };
                results.into_iter().map(pick).collect()
            });
            if !is_else {
                to_end = self.always();
                self.lead(to_else, self.method.instructions.len());
            }
        }
        self.lead(to_end, self.method.instructions.len());
        self.floats.extend(results);
    }

    /// Loop-carried values, with their initial values.
    fn carried(&mut self) -> Vec<Known> {
        let carried: Vec<Known> = (0..1 + self.below(2))
            .map(|_| {
                let start = self.any_float();
                let carry = self.float(start.sizes);
                self.overwrite(carry, start);
                carry
            })
            .collect();
        // Views that instructions created of tensors changed in the loop would differ in each
        // iteration.
        self.floats.retain(|known| known.follows.is_none());
        self.flags.retain(|known| known.follows.is_none());
        self.floats.extend(&carried);
        carried
    }

    fn counted(&mut self, depth: usize) {
        let carried = self.carried();
        let (counter, count) = (self.int(0), 1 + self.below(3) as i64);
        let start = self.method.instructions.len();
        self.scope(|inside| {
            inside.numbers.push(counter);
            let statements = 1 + inside.below(3);
            inside.statements(statements, depth + 1);
            let next = |carry: Known| {
                let next = inside.any_float();
                (carry, inside.shaped(next, carry.sizes))
            };
            carried.into_iter().map(next).collect()
        });
        let (one, count) = (self.int(1), self.int(count));
        let truth = self.method.add(MethodValue::Scalar(Scalar::Bool(false)));
        self.call("executorch_prim::add.Scalar", &[counter, one, counter]);
        self.call("executorch_prim::eq.Scalar", &[counter, count, truth]);
        let back = self.jump(truth);
        self.lead(back, start);
        self.call("executorch_prim::sub.Scalar", &[counter, count, counter]);
    }

    fn while_less(&mut self, depth: usize) {
        let x = self.any_float();
        let (carry, x) = (self.float(x.sizes), self.clamped(x));
        self.overwrite(carry, x);
        self.floats.retain(|known| known.follows.is_none());
        self.flags.retain(|known| known.follows.is_none());
        let start = self.method.instructions.len();
        let mut exit = 0;
        self.scope(|inside| {
            let less = inside.compared(carry, "aten::lt.Scalar_out", -6);
            let mut any = inside.flag(FLAGS[0]);
            inside.call("aten::any.all_out", &[less.value, any.value, any.value]);
            for _ in 0..inside.below(2) {
                let sizes = FLAGS[inside.below(3)];
                any = inside.view(any, ScalarType::Bool, sizes);
            }
            exit = inside.jump(any.value);
            let statements = 1 + inside.below(2);
            // Do not change the carry elsewhere, so that it is certain to grow.
            inside.statements(statements, depth + 1);
            let (one, alpha) = (inside.int(1), inside.int(1));
            let next = inside.float(carry.sizes);
            let args = [carry.value, one, alpha, next.value, next.value];
            inside.call("aten::add.Scalar_out", &args);
            vec![(carry, next)]
        });
        let back = self.always();
        self.lead(back, start);
        self.lead(exit, self.method.instructions.len());
        self.floats.push(carry);
    }

    fn statements(&mut self, count: usize, depth: usize) {
        for _ in 0..count {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            match self.below(12) {
                0 | 1 if depth < 3 => self.branches(depth),
                2 if depth < 2 => self.counted(depth),
                3 if depth < 2 => self.while_less(depth),
                4 => {
                    let (of, sizes) = (self.any_float(), SHAPES[self.below(SHAPES.len())]);
                    let view = self.view(of, ScalarType::Float, sizes);
                    self.floats.push(view);
                }
                5 | 6 => {
                    let target = self.any_float();
                    if !target.is_constant && target.follows.is_none() {
                        let source = self.any_float();
                        self.overwrite(target, source);
                    }
                }
                7 => {
                    self.condition();
                }
                8 => {
                    let x = self.any_float();
                    let number = self.method.add(MethodValue::Scalar(Scalar::Double(0.0)));
                    self.call("aten::_local_scalar_dense", &[x.value, number]);
                    self.numbers.push(number);
                }
                _ => {
                    let made = self.computed();
                    self.floats.push(made);
                }
            }
        }
    }

    fn state(&mut self, number: usize) {
        let sizes = SHAPES[self.below(SHAPES.len())];
        let initial = || TensorData::Inside(Cow::Borrowed(&INITIAL[..]));
        let kind = self.below(4);
        let name = (kind == 3 || self.below(2) == 0).then(|| format!("state.{number}"));
        let (home, data) = match kind {
            0 => (self.place(), TensorData::None),
            1 => {
                let end = self.method.planned[1];
                self.method.planned[1] = end + SLOT;
                (Home::Planned(1, end), TensorData::None)
            }
            2 => {
                let end = self.method.planned[1];
                self.method.planned[1] = end + SLOT;
                (Home::Planned(1, end), initial())
            }
            _ => (Home::Unplanned(number), initial()),
        };
        let state = self.tensor(ScalarType::Float, sizes, home, data, name);
        self.floats.push(state);
        if kind == 3 {
            // Without an update it would be a constant.
            let again = self.clamped(state);
            self.overwrite(state, again);
        }
    }
}

/// Generates a random program.
pub fn program(random: &mut Random) -> Vec<u8> {
    let method = Method { name: "forward".to_owned(), planned: vec![0, 0], ..Method::default() };
    let (floats, flags, numbers) = (Vec::new(), Vec::new(), Vec::new());
    let left = 6 + random.below(20);
    let mut builder = Builder { random, method, floats, flags, numbers, free: Vec::new(), left };
    for _ in 0..1 + builder.below(2) {
        let sizes = SHAPES[builder.below(2)];
        let input = builder.float(sizes);
        builder.floats.push(input);
        builder.method.inputs.push(input.value);
    }
    if builder.below(2) == 0 {
        let sizes = FLAGS[builder.below(2)];
        let input = builder.flag(sizes);
        builder.flags.push(input);
        builder.method.inputs.push(input.value);
    }
    let bytes = [2.0f32, -1.0, 0.0, 1.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let data = TensorData::Inside(Cow::Owned(bytes));
    let constant = builder.tensor(ScalarType::Float, SHAPES[1], Home::Elsewhere, data, None);
    builder.floats.push(constant);
    for number in 0..builder.below(4) {
        builder.state(number);
    }
    builder.statements(usize::MAX, 0);
    for _ in 0..1 + builder.below(5) {
        let flag = builder.below(4) == 0 && !builder.flags.is_empty();
        let output = match flag {
            true => builder.flags[builder.random.below(builder.flags.len())],
            false => builder.any_float(),
        };
        // Callers lend no memory to views.
        if output.follows.is_none() {
            builder.method.outputs.push(output.value);
        }
    }
    let program = Program { methods: vec![builder.method], named: Vec::new() };
    program.write().expect("a small program").to_bytes()
}

/// The CPU engine for a random half of the supported calls, so that delegates and kernels
/// alternate.
struct Sometimes {
    inner: CpuTarget,
    seed: u32,
}

impl Target for Sometimes {
    fn backend(&self) -> &'static str {
        self.inner.backend()
    }

    fn accepts(&self, graph: &Graph<'_>, node: &Node) -> Result<(), String> {
        match Random::new(self.seed.wrapping_add(node.id)).below(2) {
            0 => Err("the random choice is a kernel".to_owned()),
            _ => self.inner.accepts(graph, node),
        }
    }

    fn accepts_each(&self, graph: &Graph<'_>) -> Vec<Result<(), String>> {
        graph.nodes.iter().map(|node| self.accepts(graph, node)).collect()
    }

    fn is_worthwhile(
        &self,
        graph: &Graph<'_>,
        region: &torchlet::graph::Region,
    ) -> Result<(), String> {
        self.inner.is_worthwhile(graph, region)
    }

    fn shares_memory(&self) -> bool {
        true
    }
}

fn module(bytes: Vec<u8>, on: RunOn) -> Module {
    let builder: ModuleBuilder = Module::builder().threads(1).run_on(on);
    builder.from_bytes(bytes).expect("a program that loads")
}

/// Compiles a program, which must succeed.
fn compiled(bytes: &[u8], processors: Processors<'_>) -> Vec<u8> {
    let registry = Registry::new().with_kernels(&torchlet_portable::KERNELS).expect("kernels");
    let file = File::from_bytes(bytes).expect("a program");
    let compiled = cpu::compile(&file, &[], processors, &registry).expect("a sound program");
    for method in &compiled.report.methods {
        assert_eq!(method.unchanged_reason, None, "every method is compiled");
    }
    compiled.program.write().expect("a small program").to_bytes()
}

/// Outputs of three successive runs.
fn outputs(module: &mut Module, seed: u32) -> Vec<Vec<f64>> {
    let mut random = Random::new(seed);
    let mut all = Vec::new();
    for _ in 0..3 {
        let meta = module.method_meta("forward").expect("it was loaded");
        let inputs: Vec<Value> = (0..meta.input_count())
            .map(|index| {
                let Ok(Some(torchlet::core::ValueMeta::Tensor(input))) = meta.input(index) else {
                    return Value::None;
                };
                let shape: Vec<usize> =
                    (0..input.info.rank()).map(|dim| input.info.size(dim)).collect();
                let mut number = || random.below(7) as i32 - 3;
                let count = shape.iter().product::<usize>();
                let tensor = match input.info.scalar_type {
                    ScalarType::Bool => {
                        let truths: Vec<u8> = (0..count).map(|_| (number() > 0).into()).collect();
                        Tensor::from_bytes(ScalarType::Bool, &shape, &truths)
                    }
                    _ => {
                        let numbers: Vec<f32> = (0..count).map(|_| number() as f32).collect();
                        Tensor::from_slice(&shape, &numbers)
                    }
                };
                tensor.expect("a small tensor").into()
            })
            .collect();
        let outputs = module.execute("forward", inputs).expect("it runs");
        all.extend(outputs.iter().map(|output| {
            let tensor = output.tensor().expect("outputs are tensors");
            match tensor.scalar_type() {
                ScalarType::Bool => tensor.bytes().iter().map(|byte| (*byte).into()).collect(),
                _ => {
                    let numbers = tensor.to_vec::<f32>().expect("floats");
                    numbers.into_iter().map(f64::from).collect::<Vec<f64>>()
                }
            }
        }));
    }
    all
}

/// Compares a random program as exported, on kernels, with several compiled variants.
pub fn check(seed: u32, others: &[RunOn]) {
    let bytes = program(&mut Random::new(seed));
    let expected = outputs(&mut module(bytes.clone(), RunOn::AsExported), seed);
    let (greedy, sometimes) = (CpuTarget::greedy(), Sometimes { inner: CpuTarget::greedy(), seed });
    let kernels = compiled(&bytes, Processors::NONE);
    let partly = compiled(&bytes, Processors::preferring(&[&sometimes]));
    let engine = compiled(&bytes, Processors::preferring(&[&greedy]));
    let twice = compiled(&kernels, Processors::NONE);
    let then_engine = compiled(&kernels, Processors::preferring(&[&greedy]));
    let compiled = [
        ("kernels", kernels),
        ("kernels, twice", twice),
        ("kernels, then the engine", then_engine),
        ("the engine", engine),
        ("kernels and the engine", partly),
    ];
    for (what, compiled) in compiled {
        let found = outputs(&mut module(compiled, RunOn::AsExported), seed);
        assert_eq!(found, expected, "program {seed}, compiled for {what}");
    }
    for on in others {
        let found = outputs(&mut module(bytes.clone(), *on), seed);
        assert_eq!(found, expected, "program {seed}, {on:?}");
    }
}
