//! Recorded calls as a program: its structure as a key, its graph, its inputs.

use super::device::{Step, type_words};
use super::node::{Given, Value};
use super::record::{add, push, tensor};
use crate::error::Error;
use crate::tensor::Tensor as HostTensor;
use crate::value::Value as HostValue;
use std::collections::HashMap;
use torchlet_graph::front::recorded;
use torchlet_graph::graph::{Graph, Node, Value as GraphValue, ValueId};
use torchlet_graph::infer::returns_list;

/// Calls that become a program, and the tensors that they read.
pub(super) struct Plan<'a> {
    steps: &'a [Step],
    outputs: Vec<Value>,
    /// Tensors with elements that the calls read. Weights are compiled in, others are inputs.
    leaves: Vec<Leaf>,
    /// Index of each leaf, by its cell and result.
    indices: HashMap<(u64, usize), usize>,
    key: Vec<u64>,
}

struct Leaf {
    value: Value,
    tensor: HostTensor,
    is_constant: bool,
}

/// Kind of an argument in a key.
#[derive(Clone, Copy)]
enum Tag {
    None,
    Call,
    Leaf,
    List,
    Int,
    Float,
    Bool,
    Text,
    Ints,
    Floats,
    Bools,
}

impl<'a> Plan<'a> {
    /// Plans calls; what they read and do not compute has elements.
    pub(super) fn of(steps: &'a [Step], outputs: &[Value]) -> Self {
        Plan::with_inputs(steps, outputs, &[], false)
    }

    /// Plans calls with these inputs, in this order. With `all_constant`, all other leaves are
    /// compiled in.
    pub(super) fn with_inputs(
        steps: &'a [Step],
        outputs: &[Value],
        inputs: &[Value],
        all_constant: bool,
    ) -> Self {
        let mut plan = Plan {
            steps,
            outputs: outputs.to_vec(),
            leaves: Vec::new(),
            indices: HashMap::new(),
            key: Vec::new(),
        };
        for input in inputs {
            plan.leaf(input, false);
        }
        let numbers: HashMap<u64, usize> =
            steps.iter().enumerate().map(|(at, (cell, _))| (cell.id, at)).collect();
        for (cell, recorded) in steps {
            plan.key.push(recorded.operator.index() as u64);
            plan.key.push(recorded.args.len() as u64);
            for arg in &recorded.args {
                plan.argument(arg, &numbers, all_constant);
            }
            for own in &cell.types {
                type_words(own, &mut plan.key);
            }
        }
        plan.key.push(outputs.len() as u64);
        for output in outputs {
            plan.reference(output, &numbers, all_constant);
        }
        for leaf in &plan.leaves {
            type_words(leaf.value.tensor_type(), &mut plan.key);
            plan.key.push(if leaf.is_constant { leaf.value.cell.id } else { 0 });
        }
        plan
    }

    fn tag(&mut self, tag: Tag) {
        self.key.push(tag as u64);
    }

    /// The index of a tensor with elements. Adds it if it is new.
    fn leaf(&mut self, value: &Value, is_constant: bool) -> Option<usize> {
        if let Some(at) = self.indices.get(&value.id()) {
            return Some(*at);
        }
        let tensor = value.result()?;
        let at = self.leaves.len();
        self.leaves.push(Leaf { value: value.clone(), tensor, is_constant });
        self.indices.insert(value.id(), at);
        Some(at)
    }

    fn reference(&mut self, value: &Value, numbers: &HashMap<u64, usize>, all_constant: bool) {
        // An input may be a tensor that was computed from calls.
        let is_input = self.indices.contains_key(&value.id());
        match numbers.get(&value.cell.id).filter(|_| !is_input) {
            Some(at) => {
                self.tag(Tag::Call);
                self.key.extend([*at as u64, value.index as u64]);
            }
            _ => {
                let is_constant = all_constant || value.cell.is_weight;
                self.tag(Tag::Leaf);
                let at = self.leaf(value, is_constant);
                self.key.push(at.map_or(u64::MAX, |at| at as u64));
            }
        }
    }

    fn argument(&mut self, arg: &Given, numbers: &HashMap<u64, usize>, all_constant: bool) {
        match arg {
            Given::None => self.tag(Tag::None),
            Given::Value(value) => self.reference(value, numbers, all_constant),
            Given::Values(items) => {
                self.tag(Tag::List);
                self.key.push(items.len() as u64);
                for item in items {
                    match item {
                        Some(value) => self.reference(value, numbers, all_constant),
                        None => self.tag(Tag::None),
                    }
                }
            }
            Given::Int(number) => self.words(Tag::Int, [*number as u64]),
            Given::Float(number) => self.words(Tag::Float, [number.to_bits()]),
            Given::Bool(truth) => self.words(Tag::Bool, [u64::from(*truth)]),
            Given::Text(text) => self.list(Tag::Text, text.bytes().map(u64::from)),
            Given::Ints(items) => self.list(Tag::Ints, items.iter().map(|item| *item as u64)),
            Given::Floats(items) => self.list(Tag::Floats, items.iter().map(|it| it.to_bits())),
            Given::Bools(items) => self.list(Tag::Bools, items.iter().map(|it| u64::from(*it))),
        }
    }

    fn words(&mut self, tag: Tag, words: impl IntoIterator<Item = u64>) {
        self.tag(tag);
        self.key.extend(words);
    }

    fn list(&mut self, tag: Tag, words: impl ExactSizeIterator<Item = u64>) {
        self.tag(tag);
        self.key.push(words.len() as u64);
        self.key.extend(words);
    }

    /// The structure of the program. Programs with equal keys compute the same.
    pub(super) fn key(&self) -> &[u64] {
        &self.key
    }

    pub(super) fn outputs(&self) -> impl Iterator<Item = &Value> {
        self.outputs.iter()
    }

    pub(super) fn calls(&self) -> usize {
        self.steps.len()
    }

    /// The inputs of the program.
    pub(super) fn inputs(&self) -> Result<Vec<HostValue>, Error> {
        let inputs = self.leaves.iter().filter(|leaf| !leaf.is_constant);
        Ok(inputs.map(|leaf| HostValue::Tensor(leaf.tensor.clone())).collect())
    }

    /// The tensors that are compiled in.
    pub(super) fn weights(&self) -> impl Iterator<Item = &Value> {
        self.leaves.iter().filter(|leaf| leaf.is_constant).map(|leaf| &leaf.value)
    }

    /// The program as a graph, whose constants are borrowed.
    fn graph(&self) -> Graph<'_> {
        let mut graph = Graph::default();
        // Values of the graph, by cell and result.
        let mut known: HashMap<(u64, usize), ValueId> = HashMap::new();
        for leaf in &self.leaves {
            let data = leaf.is_constant.then(|| leaf.tensor.bytes());
            let id = push(&mut graph, tensor(leaf.value.tensor_type(), data));
            if !leaf.is_constant {
                graph.inputs.push(id);
            }
            known.insert(leaf.value.id(), id);
        }
        for (number, (cell, recorded)) in self.steps.iter().enumerate() {
            let mut find = |graph: &mut Graph<'_>, value: &Value| {
                // Every argument is a leaf or the result of an earlier call.
                *known.entry(value.id()).or_insert_with(|| push(graph, GraphValue::None))
            };
            let mut args: Vec<ValueId> = Vec::with_capacity(recorded.args.len() + 1);
            for arg in &recorded.args {
                args.push(add(&mut graph, arg, &mut find));
            }
            let mut outs = Vec::with_capacity(cell.types.len());
            for (index, own) in cell.types.iter().enumerate() {
                let out = push(&mut graph, tensor(own, None));
                known.entry((cell.id, index)).or_insert(out);
                outs.push(out);
            }
            args.push(match outs[..] {
                [one] if !returns_list(recorded.operator) => one,
                _ => push(&mut graph, GraphValue::List(outs)),
            });
            let id = u32::try_from(number).unwrap_or(u32::MAX);
            graph.nodes.push(Node { id, ..Node::new(recorded.operator, args) });
        }
        for output in &self.outputs {
            graph.outputs.extend(known.get(&output.id()));
        }
        graph
    }
}

/// Returns the bytes of a program that computes the calls: a `.pte` file with kernels only.
pub(super) fn program(plan: &Plan<'_>) -> Result<Vec<u8>, Error> {
    let compiled = |source| Error::Compile { source };
    let program = recorded::program(plan.graph()).map_err(compiled)?;
    Ok(program.write().map_err(compiled)?.to_bytes())
}
