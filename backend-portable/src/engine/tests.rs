//! Compares whole plans with their calls run one at a time: buffer sharing, in-place updates and
//! fusion must not change results.

mod halves;

use super::builder::Builder;
use super::given::Given;
use super::numbers::Precision;
use super::ops::EngineForms;
use super::packed::Packs;
use super::packer::WeightPacker;
use super::plan::Memory;
use crate::compute::gemm::Context;
use crate::compute::simd::Tier;
use crate::compute::split::Serial;
use crate::compute::threads::ThreadPool;
use std::sync::Arc;
use std::vec;
use std::vec::Vec;
use torchlet_core::{Parallel, ScalarType};
use torchlet_graph::Packer;
use torchlet_graph::graph::{Graph, Node, Tensor, Value, ValueId};
use torchlet_graph::operators::Operator;
use torchlet_graph::passes::epilogue;

/// Pseudorandom number generator (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    fn number(&mut self) -> f32 {
        self.below(2001) as f32 / 1000.0 - 1.0
    }

    fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.number()).collect()
    }
}

fn tensor(sizes: &[usize], data: Option<Vec<f32>>) -> Value<'static> {
    let bytes = |data: Vec<f32>| data.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    Value::Tensor(Tensor {
        scalar_type: ScalarType::Float,
        host_type: ScalarType::Float,
        sizes: sizes.to_vec(),
        dynamic: false,
        data: data.map(|data| bytes(data).into()),
        changes: None,
    })
}

/// A graph under construction.
struct Maker {
    graph: Graph<'static>,
    random: Random,
    /// All tensors of the graph so far.
    tensors: Vec<ValueId>,
    /// The tensor that was permuted most recently.
    permuted: Option<ValueId>,
}

impl Maker {
    fn new(seed: u64, inputs: &[&[usize]]) -> Self {
        let mut maker = Maker {
            graph: Graph::default(),
            random: Random(seed),
            tensors: Vec::new(),
            permuted: None,
        };
        for sizes in inputs {
            let id = maker.value(tensor(sizes, None));
            maker.graph.inputs.push(id);
            maker.tensors.push(id);
        }
        maker
    }

    fn value(&mut self, value: Value<'static>) -> ValueId {
        self.graph.values.push(value);
        self.graph.values.len() - 1
    }

    fn ints(&mut self, items: &[i64]) -> ValueId {
        self.value(Value::IntList(items.to_vec()))
    }

    fn int(&mut self, item: i64) -> ValueId {
        self.value(Value::Int(item))
    }

    fn constant(&mut self, sizes: &[usize]) -> ValueId {
        let data = self.random.values(sizes.iter().product());
        self.value(tensor(sizes, Some(data)))
    }

    fn sizes(&self, id: ValueId) -> Vec<usize> {
        sizes(&self.graph, id).to_vec()
    }

    fn call(&mut self, operator: Operator, inputs: &[ValueId], sizes: &[usize]) -> ValueId {
        let out = self.value(tensor(sizes, None));
        let args = inputs.iter().copied().chain([out]).collect();
        self.graph.nodes.push(Node::new(operator, args));
        self.tensors.push(out);
        out
    }

    /// A random earlier tensor, preferring recent and permuted ones.
    fn any(&mut self) -> ValueId {
        if let Some(permuted) = self.permuted.filter(|_| self.random.below(4) == 0) {
            return permuted;
        }
        let late = self.random.below(3) > 0;
        let count = self.tensors.len();
        let from = if late { count.saturating_sub(3) } else { 0 };
        self.tensors[from + self.random.below(count - from)]
    }

    fn convolution(&mut self, input: ValueId, kernel: usize) -> Option<ValueId> {
        let [n, c, h, w] = self.sizes(input)[..] else { return None };
        let weights = self.constant(&[c, c, kernel, kernel]);
        let bias = self.constant(&[c]);
        let pad = kernel as i64 / 2;
        let lists = [[1, 1], [pad, pad], [1, 1], [0, 0]].map(|list| self.ints(&list));
        let (no, one) = (self.value(Value::Bool(false)), self.int(1));
        let [stride, padding, dilation, extra] = lists;
        let args = [input, weights, bias, stride, padding, dilation, no, extra, one];
        Some(self.call(Operator::CONVOLUTION, &args, &[n, c, h, w]))
    }

    /// A transposed convolution of stride two, in two groups if the number of channels is even.
    fn transposed(&mut self, input: ValueId) -> Option<ValueId> {
        let [n, c, h, w] = self.sizes(input)[..] else { return None };
        if h * w > 64 {
            return None;
        }
        let groups = 1 + (c + 1) % 2;
        let weights = self.constant(&[c, 3, 4, 3]);
        let bias = self.constant(&[3 * groups]);
        let lists = [[2, 2], [1, 0], [1, 1], [0, 1]].map(|list| self.ints(&list));
        let (yes, groups_id) = (self.value(Value::Bool(true)), self.int(groups as i64));
        let [stride, padding, dilation, extra] = lists;
        let args = [input, weights, bias, stride, padding, dilation, yes, extra, groups_id];
        let out = [n, 3 * groups, (h - 1) * 2 + 2, (w - 1) * 2 + 4];
        Some(self.call(Operator::CONVOLUTION, &args, &out))
    }

    fn bilinear(&mut self, input: ValueId) -> Option<ValueId> {
        let [n, c, h, w] = self.sizes(input)[..] else { return None };
        let sizes = self.ints(&[h as i64 + 1, w as i64 + 2]);
        let corners = self.random.below(2) == 0;
        let (corners, none) = (self.value(Value::Bool(corners)), self.value(Value::None));
        let args = [input, sizes, corners, none];
        Some(self.call(Operator::UPSAMPLE_BILINEAR2D_VEC, &args, &[n, c, h + 1, w + 2]))
    }

    /// Adds a random call if it fits.
    fn step(&mut self) -> Option<()> {
        let input = self.any();
        let sizes = self.sizes(input);
        let rank = sizes.len();
        match self.random.below(16) {
            0 => self.convolution(input, 1)?,
            1 => self.convolution(input, 3)?,
            2 => self.call(Operator::RELU, &[input], &sizes),
            3 => self.call(Operator::SIGMOID, &[input], &sizes),
            4 | 5 => {
                let alike = |id: &&ValueId| self.sizes(**id) == sizes;
                let others: Vec<ValueId> = self.tensors.iter().filter(alike).copied().collect();
                let other = others[self.random.below(others.len())];
                let one = self.int(1);
                self.call(Operator::ADD_TENSOR, &[input, other, one], &sizes)
            }
            6 => {
                let row = self.constant(&sizes[rank - 1..]);
                self.call(Operator::MUL_TENSOR, &[input, row], &sizes)
            }
            7 => {
                let [a, b] = [self.random.below(rank), self.random.below(rank)];
                let mut permuted = sizes.clone();
                permuted.swap(a, b);
                let dims = [a, b].map(|dim| self.int(dim as i64));
                let args = [input, dims[0], dims[1]];
                let out = self.call(Operator::TRANSPOSE_COPY_INT, &args, &permuted);
                self.permuted = Some(out);
                out
            }
            8 => {
                let shape = [sizes[0], sizes[1..].iter().product()];
                let ints = self.ints(&shape.map(|size| size as i64));
                self.call(Operator::VIEW_COPY, &[input, ints], &shape)
            }
            9 => {
                let dim = self.random.below(rank);
                let end = 1 + self.random.below(sizes[dim]);
                let start = self.random.below(end);
                let args = [dim, start, end, 1].map(|number| self.int(number as i64));
                let mut part = sizes.clone();
                part[dim] = end - start;
                self.call(
                    Operator::SLICE_COPY_TENSOR,
                    &[input, args[0], args[1], args[2], args[3]],
                    &part,
                )
            }
            10 => {
                let dim = self.random.below(rank);
                let mut joined = sizes.clone();
                joined[dim] *= 2;
                let (list, dim) = (self.value(Value::List(vec![input; 2])), self.int(dim as i64));
                self.call(Operator::CAT, &[list, dim], &joined)
            }
            11 => {
                let (dim, no) = (self.int(-1), self.value(Value::Bool(false)));
                self.call(Operator::SOFTMAX, &[input, dim, no], &sizes)
            }
            12 => {
                let dim = self.random.below(rank);
                let mut mean = sizes.clone();
                mean[dim] = 1;
                let (dims, yes) = (self.ints(&[dim as i64]), self.value(Value::Bool(true)));
                let none = self.value(Value::None);
                self.call(Operator::MEAN_DIM, &[input, dims, yes, none], &mean)
            }
            13 => self.transposed(input)?,
            14 => self.bilinear(input)?,
            _ => {
                let [m, k] = sizes[..] else { return None };
                let (weights, bias) = (self.constant(&[5, k]), self.constant(&[5]));
                self.call(Operator::LINEAR, &[input, weights, bias], &[m, 5])
            }
        };
        Some(())
    }
}

fn sizes<'g>(graph: &'g Graph<'_>, id: ValueId) -> &'g [usize] {
    match &graph.values[id] {
        Value::Tensor(tensor) => &tensor.sizes,
        other => panic!("{other:?} has no sizes"),
    }
}

/// The graph after fusion.
fn fused<'p>(graph: &Graph<'p>) -> Graph<'p> {
    let mut graph = graph.clone();
    epilogue::run(&mut graph, &EngineForms);
    graph
}

/// Runs a graph as one plan, twice, and returns its outputs.
fn outputs(graph: &Graph<'_>, inputs: &[&[f32]], parallel: &dyn Parallel) -> Vec<Vec<f32>> {
    let graph = &fused(graph);
    let machine = Context { tier: Tier::detect(), parallel };
    let packs = Packs::default();
    let plan = Builder::new(graph, machine, &packs).build(&Given::of(graph)).unwrap();
    let mut memory = Memory::default();
    memory.fit(&plan).unwrap();
    let mut results: Vec<Vec<f32>> =
        graph.outputs.iter().map(|id| vec![f32::NAN; sizes(graph, *id).iter().product()]).collect();
    // Runs it twice, to check that no state is left from the first run.
    for _ in 0..2 {
        let mut write: Vec<&mut [f32]> = results.iter_mut().map(Vec::as_mut_slice).collect();
        plan.run(&mut memory, inputs, &mut write, parallel, None).unwrap();
    }
    results
}

/// Runs each call as a plan of its own.
fn one_by_one(graph: &Graph<'_>, inputs: &[&[f32]]) -> Vec<Vec<f32>> {
    let mut known: Vec<Option<Vec<f32>>> = vec![None; graph.values.len()];
    for (id, data) in graph.inputs.iter().zip(inputs) {
        known[*id] = Some(data.to_vec());
    }
    for node in &graph.nodes {
        let (out, args) = node.args.split_last().unwrap();
        let taken = args.iter().flat_map(|id| graph.items(id)).copied();
        let mut taken: Vec<ValueId> = taken.filter(|id| known[*id].is_some()).collect();
        taken.dedup();
        let single = Graph {
            values: graph.values.clone(),
            nodes: vec![node.clone()],
            inputs: taken.clone(),
            outputs: vec![*out],
            ..Graph::default()
        };
        let data: Vec<Vec<f32>> = taken.iter().map(|id| known[*id].clone().unwrap()).collect();
        let data: Vec<&[f32]> = data.iter().map(Vec::as_slice).collect();
        known[*out] = outputs(&single, &data, &Serial).pop();
    }
    graph.outputs.iter().map(|id| known[*id].clone().unwrap()).collect()
}

#[test]
fn plans_match_single_calls() {
    let pool = ThreadPool::new(2);
    let mut calls = 0;
    for seed in 1..=400 {
        let mut maker =
            Maker::new(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed), &[&[2, 6, 5, 4], &[3, 8]]);
        for _ in 0..12 {
            let _ = maker.step();
        }
        // The outputs are a random subset of the results, and the last one.
        let made = maker.tensors.split_off(2);
        let Some(last) = made.last() else { continue };
        let mut outputs_of: Vec<ValueId> =
            made.iter().copied().filter(|_| maker.random.below(4) == 0).collect();
        outputs_of.push(*last);
        let largest = made.iter().map(|id| maker.sizes(*id).iter().product::<usize>()).max();
        if largest > Some(1 << 14) {
            continue;
        }
        maker.graph.outputs = outputs_of;
        let Maker { graph, mut random, .. } = maker;
        calls += graph.nodes.len();
        let data = [random.values(240), random.values(24)];
        let data: Vec<&[f32]> = data.iter().map(Vec::as_slice).collect();
        let expected = one_by_one(&graph, &data);
        for parallel in [&Serial as &dyn Parallel, &pool] {
            for (found, expected) in outputs(&graph, &data, parallel).iter().zip(&expected) {
                for (found, expected) in found.iter().zip(expected) {
                    let error = (found - expected).abs();
                    assert!(error <= 1e-5 * expected.abs().max(1.0), "seed {seed}: {graph:?}");
                }
            }
        }
    }
    assert!(calls > 2000, "{calls}");
}

/// A reordered copy is shared between all readers, but not after one of them has overwritten it.
#[test]
fn overwritten_copies_are_not_reused() {
    for second in [Operator::RELU, Operator::ADD_TENSOR] {
        let mut maker = Maker::new(11, &[&[2, 3, 4]]);
        let input = maker.graph.inputs[0];
        let dims = [1, 2].map(|dim| maker.int(dim));
        let args = [input, dims[0], dims[1]];
        let permuted = maker.call(Operator::TRANSPOSE_COPY_INT, &args, &[2, 4, 3]);
        let shape = maker.ints(&[4, 6]);
        let first = maker.call(Operator::VIEW_COPY, &[permuted, shape], &[4, 6]);
        let over = maker.call(Operator::SIGMOID, &[first], &[4, 6]);
        let again = maker.call(Operator::VIEW_COPY, &[permuted, shape], &[4, 6]);
        let one = maker.int(1);
        let out = match second {
            Operator::RELU => maker.call(second, &[again], &[4, 6]),
            _ => {
                let (weights, bias) = (maker.constant(&[6, 6]), maker.constant(&[6]));
                let product = maker.call(Operator::LINEAR, &[over, weights, bias], &[4, 6]);
                maker.call(second, &[again, product, one], &[4, 6])
            }
        };
        let last = maker.call(Operator::VIEW_COPY, &[permuted, shape], &[4, 6]);
        maker.graph.outputs = vec![over, out, last];
        let data = maker.random.values(24);
        let expected = one_by_one(&maker.graph, &[&data]);
        assert_eq!(outputs(&maker.graph, &[&data], &Serial), expected);
    }
}

#[test]
fn excessive_repeats_are_rejected() {
    let mut maker = Maker::new(5, &[&[1, 1]]);
    let input = maker.graph.inputs[0];
    let (wide, no) = (maker.ints(&[1024, 1 << 31]), maker.value(Value::Bool(false)));
    let args = [input, wide, no];
    let out = maker.call(Operator::EXPAND_COPY, &args, &[1024, 1 << 31]);
    maker.graph.outputs = vec![out];
    let machine = Context { tier: Tier::detect(), parallel: &Serial };
    let answers = Builder::ask(&maker.graph, &maker.graph.nodes, machine);
    assert!(matches!(&answers[..], [Err(why)] if why.contains("the limit is")), "{answers:?}");
}

#[test]
fn epilogues_are_fused_into_convolutions() {
    let mut maker = Maker::new(7, &[&[1, 4, 6, 6]]);
    let input = maker.graph.inputs[0];
    let first = maker.convolution(input, 3).unwrap();
    let second = maker.convolution(first, 3).unwrap();
    let third = maker.convolution(second, 1).unwrap();
    let one = maker.int(1);
    let sum = maker.call(Operator::ADD_TENSOR, &[first, third, one], &[1, 4, 6, 6]);
    let out = maker.call(Operator::RELU, &[sum], &[1, 4, 6, 6]);
    maker.graph.outputs = vec![out];
    let machine = Context { tier: Tier::detect(), parallel: &Serial };
    let graph = fused(&maker.graph);
    let packs = Packs::default();
    let plan = Builder::new(&graph, machine, &packs).build(&Given::of(&graph)).unwrap();
    // Conversion to channels last, three convolutions, and back: the addition and the clamp are
    // fused.
    assert_eq!(plan.calls(), 5);
}

#[test]
fn support_queries_do_not_read_weights() {
    let mut maker = Maker::new(3, &[&[1, 4, 6, 6]]);
    let input = maker.graph.inputs[0];
    let out = maker.convolution(input, 1).unwrap();
    maker.graph.outputs = vec![out];
    let graph = maker.graph.without_data();
    let machine = Context { tier: Tier::detect(), parallel: &Serial };
    assert_eq!(Builder::ask(&graph, &graph.nodes, machine), [Ok(())]);
    let Err(why) = Builder::new(&graph, machine, &Packs::default()).build(&Given::of(&graph))
    else {
        panic!("must not read data")
    };
    assert!(why.contains("less data than"), "{why}");
}

#[test]
fn weights_packed_ahead_of_time_are_borrowed() {
    let mut maker = Maker::new(9, &[&[2, 8, 6, 6]]);
    let input = maker.graph.inputs[0];
    let first = maker.convolution(input, 3).unwrap();
    let second = maker.convolution(first, 1).unwrap();
    let shape = maker.ints(&[96, 6]);
    let rows = maker.call(Operator::VIEW_COPY, &[second, shape], &[96, 6]);
    let (weights, bias) = (maker.constant(&[32, 6]), maker.constant(&[32]));
    let out = maker.call(Operator::LINEAR, &[rows, weights, bias], &[96, 32]);
    maker.graph.outputs = vec![out];
    let data = maker.random.values(576);
    let expected = outputs(&maker.graph, &[&data], &Serial);
    let packer = WeightPacker::new(Arc::new(ThreadPool::new(2)));
    let graph = packer.pack(maker.graph.clone());
    let has_data = |graph: &Graph<'_>, id: ValueId| matches!(&graph.values[id], Value::Tensor(tensor) if tensor.data.is_some());
    assert_eq!(outputs(&graph, &[&data], &Serial), expected);
    let calls = graph.nodes.iter().filter(|node| node.operator == Operator::PACKED).count();
    if Tier::detect() == Tier::SCALAR {
        assert_eq!(calls, 0);
        return;
    }
    assert_eq!(calls, 3);
    assert!(!has_data(&graph, weights) && has_data(&graph, bias));
    // Packing again does not change anything.
    let again = packer.pack(maker.graph.clone());
    let address = |graph: &Graph<'_>| match &graph.values[graph.nodes[0].args[0]] {
        Value::Tensor(tensor) => tensor.data.as_ref().unwrap().as_ptr(),
        other => panic!("{other:?}"),
    };
    assert_eq!(again.nodes.len(), graph.nodes.len());
    assert_ne!(address(&again), address(&graph), "owned data may be gone and is not cached");
}

#[test]
fn mismatched_packed_weights_are_rejected() {
    let mut maker = Maker::new(9, &[&[4, 32]]);
    let input = maker.graph.inputs[0];
    let (weights, none) = (maker.constant(&[64, 32]), maker.value(Value::None));
    let out = maker.call(Operator::LINEAR, &[input, weights, none], &[4, 64]);
    maker.graph.outputs = vec![out];
    let packer = WeightPacker::new(Arc::new(Serial));
    let graph = packer.pack(maker.graph);
    let Some(call) = graph.nodes.first().filter(|node| node.operator == Operator::PACKED) else {
        assert_eq!(Tier::detect(), Tier::SCALAR);
        return;
    };
    let [data, form, weights] = call.args[..] else { panic!("{call:?}") };
    let machine = Context { tier: Tier::detect(), parallel: &Serial };
    let build = |graph: &Graph<'_>| {
        Builder::new(graph, machine, &Packs::default())
            .build(&Given::of(graph))
            .err()
            .unwrap_or_default()
    };
    assert_eq!(build(&graph), "");
    let mut other_machine = graph.clone();
    if let Value::IntList(form) = &mut other_machine.values[form] {
        form[0] += 1;
    }
    let mut short = graph.clone();
    if let Value::Tensor(tensor) = &mut short.values[data] {
        tensor.sizes[0] -= 1;
    }
    let mut cut = graph.clone();
    if let Value::Tensor(tensor) = &mut cut.values[data] {
        tensor.data = Some(vec![0; 8].into());
    }
    let mut without_form = graph.clone();
    without_form.nodes[0].args.remove(1);
    let mut unused = graph.clone();
    unused.nodes[0].args = vec![data, form, form];
    let why = [other_machine, short, cut, without_form, unused].map(|graph| build(&graph));
    assert!(why.iter().all(|why| !why.is_empty()), "{why:?}");
    assert!(Builder::ask(&graph, &graph.nodes[..1], machine)[0].is_err(), "{weights}");
}

/// Short broadcast rows are gathered, in several blocks; long ones are not. The result may also
/// overwrite an operand.
#[test]
fn rows_of_any_length_broadcast() {
    for columns in [1, 2, 7, 63, 64, 300] {
        let (first, second) = ([3, 50, 5, 1], [3, 1, 5, columns]);
        let mut maker = Maker::new(5, &[&first, &second]);
        let [a, b] = [maker.graph.inputs[0], maker.graph.inputs[1]];
        let whole = [3, 50, 5, columns];
        let product = maker.call(Operator::MUL_TENSOR, &[a, b], &whole);
        let (of_rows, one) = (maker.constant(&[5, 1]), maker.int(1));
        let rest = maker.call(Operator::SUB_TENSOR, &[product, of_rows, one], &whole);
        maker.graph.outputs = vec![rest];
        let Value::Tensor(tensor) = &maker.graph.values[of_rows] else { panic!() };
        let less: Vec<f32> = bytemuck::pod_collect_to_vec(tensor.data.as_deref().unwrap());
        let (a, b) = (maker.random.values(750), maker.random.values(15 * columns));
        let expected = (0..750 * columns).map(|at| {
            let (batch, row, column) = (at / columns / 250, at / columns % 5, at % columns);
            a[at / columns] * b[(batch * 5 + row) * columns + column] - less[row]
        });
        let found = outputs(&maker.graph, &[&a, &b], &Serial);
        assert_eq!(found[0], expected.collect::<Vec<_>>(), "{columns} columns");
    }
}

/// A dynamic shape can have no elements: empty sums are zero and empty means are NaN, as in
/// PyTorch.
#[test]
fn empty_sums_are_zero() {
    let mut maker = Maker::new(3, &[&[5, 8]]);
    let input = maker.graph.inputs[0];
    let (zero, dims) = (maker.int(0), maker.ints(&[0]));
    let no = maker.value(Value::Bool(false));
    let none = maker.value(Value::None);
    let sum = maker.call(Operator::SUM_DIM_INT_LIST, &[input, dims, no, none], &[8]);
    let mean = maker.call(Operator::MEAN_DIM, &[input, dims, no, none], &[8]);
    let list = maker.value(Value::List(vec![sum, mean]));
    let both = maker.call(Operator::CAT, &[list, zero], &[16]);
    maker.graph.outputs = vec![sum, mean, both];
    if let Value::Tensor(tensor) = &mut maker.graph.values[input] {
        tensor.dynamic = true;
    }
    let machine = Context { tier: Tier::detect(), parallel: &Serial };
    let given = [Given::Sizes(vec![0, 8])];
    let plan = Builder::new(&maker.graph, machine, &Packs::default()).build(&given).unwrap();
    let mut memory = Memory::default();
    memory.fit(&plan).unwrap();
    let mut found = [vec![5.0f32; 8], vec![5.0; 8], vec![5.0; 16]];
    let mut write = found.each_mut().map(Vec::as_mut_slice);
    plan.run(&mut memory, &[&[]], &mut write, &Serial, None).unwrap();
    let [sum, mean, both] = found;
    assert_eq!(sum, [0.0; 8]);
    assert!(mean.iter().all(|x| x.is_nan()), "{mean:?}");
    assert!(both[..8] == sum && both[8..].iter().all(|x| x.is_nan()), "{both:?}");
}

/// A graph over `rows` rows, a fixed number or an upper bound. The number of rows is the second
/// input.
fn over_rows(rows: usize, varies: bool) -> (Graph<'static>, Vec<f32>) {
    let mut maker = Maker::new(13, &[&[rows, 8]]);
    let input = maker.graph.inputs[0];
    let number = match varies {
        true => maker.value(Value::SymInt(rows as i64)),
        false => maker.int(rows as i64),
    };
    let (weights, bias) = (maker.constant(&[32, 8]), maker.constant(&[32]));
    let wide = maker.call(Operator::LINEAR, &[input, weights, bias], &[rows, 32]);
    let wide = maker.call(Operator::SILU, &[wide], &[rows, 32]);
    let (heads, width) = (maker.int(4), maker.int(8));
    let shape = maker.value(Value::List(vec![number, heads, width]));
    let split = maker.call(Operator::VIEW_COPY, &[wide, shape], &[rows, 4, 8]);
    let dims = [0, 1].map(|dim| maker.int(dim));
    let args = [split, dims[0], dims[1]];
    let heads = maker.call(Operator::TRANSPOSE_COPY_INT, &args, &[4, rows, 8]);
    let dims = [1, 2].map(|dim| maker.int(dim));
    let permuted =
        maker.call(Operator::TRANSPOSE_COPY_INT, &[heads, dims[0], dims[1]], &[4, 8, rows]);
    let scores = maker.call(Operator::BMM, &[heads, permuted], &[4, rows, rows]);
    let (dim, no) = (maker.int(-1), maker.value(Value::Bool(false)));
    let shares = maker.call(Operator::SOFTMAX, &[scores, dim, no], &[4, rows, rows]);
    let out = maker.call(Operator::BMM, &[shares, heads], &[4, rows, 8]);
    maker.graph.outputs = vec![out, shares];
    if varies {
        maker.graph.inputs.push(number);
        for value in &mut maker.graph.values {
            if let Value::Tensor(tensor) = value {
                tensor.dynamic = tensor.data.is_none();
            }
        }
    }
    let data = maker.random.values(rows * 8);
    (maker.graph, data)
}

#[test]
fn plans_are_built_for_dynamic_shapes() {
    let (graph, _) = over_rows(9, true);
    let machine = Context { tier: Tier::detect(), parallel: &Serial };
    assert!(Builder::ask(&graph, &graph.nodes, machine).iter().all(Result::is_ok));
    let packs = Packs::default();
    let (packed, _) = Builder::pack(&graph, machine, &packs).unwrap();
    for rows in [1, 5, 9, 2, 0] {
        let (expected, data) = over_rows(rows, false);
        let expected = outputs(&expected, &[&data], &Serial);
        let given = [Given::Sizes(vec![rows, 8]), Given::Number(rows as i64)];
        let plan = Builder::new(&graph, machine, &packs).build(&given).unwrap();
        assert_eq!(plan.outputs(), [vec![4, rows, 8], vec![4, rows, rows]]);
        let mut memory = Memory::default();
        memory.fit(&plan).unwrap();
        let mut found: Vec<Vec<f32>> =
            plan.outputs().iter().map(|sizes| vec![0.0; sizes.iter().product()]).collect();
        let mut write: Vec<&mut [f32]> = found.iter_mut().map(Vec::as_mut_slice).collect();
        plan.run(&mut memory, &[&data, &[]], &mut write, &Serial, None).unwrap();
        assert_eq!(found, expected, "{rows} rows");
    }
    // Weights packed ahead of time do not depend on the number of rows either.
    let packer = WeightPacker::new(Arc::new(Serial));
    let again = packer.pack(graph.clone());
    assert!(Builder::pack(&again, machine, &packs).unwrap().0.is_empty());
    // Packed weights do not depend on the number of rows.
    if let [(_, _, lines)] = &packed[..] {
        assert!(Arc::strong_count(lines) == 1 && machine.tier != Tier::SCALAR);
    }
    let why = |given: &[Given]| Builder::new(&graph, machine, &packs).build(given).err();
    for given in [
        vec![Given::Sizes(vec![10, 8]), Given::Number(10)],
        vec![Given::Sizes(vec![3, 8]), Given::Number(4)],
        vec![Given::Sizes(vec![3, 8])],
        vec![Given::Number(3), Given::Number(3)],
    ] {
        assert!(why(&given).is_some(), "{given:?}");
    }
}
