//! Text format of graphs for tests, with one line per value or call.
//!
//! ```text
//! in x f32[2,4]
//! const w f32[4,4] = 0.5          (one value for all elements, or all values; zeros if absent)
//! var cache f32[2,4]              (neither an input nor the result of a call)
//! y f32[2,4] = aten.mul.Tensor(x, x)
//! [a f32[2,4], b f32[2]] = aten.max.dim(y, 1, false)
//! update a cache
//! out y
//! ```

use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::Operator;
use crate::passes::constant::encode;
use crate::passes::{dead, verify};
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use torchlet_core::ScalarType;

const TYPES: [(&str, ScalarType); 9] = [
    ("f32", ScalarType::Float),
    ("f16", ScalarType::Half),
    ("bf16", ScalarType::BFloat16),
    ("f64", ScalarType::Double),
    ("i32", ScalarType::Int),
    ("i64", ScalarType::Long),
    ("u8", ScalarType::Byte),
    ("i8", ScalarType::Char),
    ("bool", ScalarType::Bool),
];

/// Parses a graph.
pub(crate) fn parse(text: &str) -> Graph<'static> {
    let mut parser = Parser::default();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.iter().for_each(|line| parser.declare(line));
    lines.iter().for_each(|line| parser.line(line));
    parser.graph
}

/// Parses a graph, runs a pass, and removes dead code. Verifies the graph before and after.
pub(crate) fn after<R>(text: &str, pass: impl FnOnce(&mut Graph<'static>) -> R) -> Graph<'static> {
    let mut graph = parse(text);
    verify::verify(&graph).unwrap();
    pass(&mut graph);
    dead::run(&mut graph);
    verify::verify(&graph).unwrap();
    graph
}

/// Operator names of a graph, in order.
pub(crate) fn operators(graph: &Graph<'_>) -> Vec<&'static str> {
    graph.nodes.iter().map(|node| node.operator.name()).collect()
}

/// Calls of a graph with arguments, without outputs.
pub(crate) fn right_sides(graph: &Graph<'_>) -> Vec<String> {
    let right = |call: String| String::from(call.split_once(" = ").unwrap().1);
    calls(graph).into_iter().map(right).collect()
}

/// Calls of a graph with arguments, one line each. Tensors are `%` and their id; ids of the tensors
/// of a text are counted from zero, in order.
pub(crate) fn calls(graph: &Graph<'_>) -> Vec<String> {
    graph.nodes.iter().map(|node| call(graph, node)).collect()
}

fn call(graph: &Graph<'_>, node: &Node) -> String {
    let (out, inputs) = node.args.split_last().unwrap();
    let inputs: Vec<String> = inputs.iter().map(|id| argument(graph, *id)).collect();
    format!("{} = {}({})", argument(graph, *out), node.operator.name(), inputs.join(", "))
}

fn argument(graph: &Graph<'_>, id: ValueId) -> String {
    match &graph.values[id] {
        Value::None => "none".to_string(),
        Value::Int(value) | Value::SymInt(value) => value.to_string(),
        Value::Double(value) => format!("{value:?}"),
        Value::Bool(value) => value.to_string(),
        Value::String(text) => format!("{text:?}"),
        Value::IntList(items) => format!("{items:?}"),
        Value::DoubleList(items) => format!("{items:?}"),
        Value::BoolList(items) => format!("{items:?}"),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(|id| argument(graph, *id)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Tensor(_) => format!("%{id}"),
    }
}

#[derive(Default)]
struct Parser {
    graph: Graph<'static>,
    names: BTreeMap<String, ValueId>,
}

impl Parser {
    /// Adds the tensors of a line.
    fn declare(&mut self, line: &str) {
        let declaration = line.split_once(" = ").map_or(line, |(declaration, _)| declaration);
        let (first, rest) = declaration.split_once(' ').unwrap();
        match (first, declaration.strip_prefix('[')) {
            ("out" | "update", _) => {}
            ("in" | "var" | "const", _) => self.tensor(rest),
            (_, Some(several)) => {
                split(several.strip_suffix(']').unwrap())
                    .into_iter()
                    .for_each(|it| self.tensor(it));
            }
            _ => self.tensor(declaration),
        }
    }

    /// The tensor of a declaration.
    fn named(&self, declaration: &str) -> ValueId {
        self.names[declaration.split(' ').next().unwrap()]
    }

    fn line(&mut self, line: &str) {
        let (first, rest) = line.split_once(' ').unwrap();
        match first {
            "in" => self.graph.inputs.push(self.named(rest)),
            "var" => {}
            "const" => {
                let (declaration, numbers) = rest.split_once(" = ").unwrap_or((rest, "0"));
                let id = self.named(declaration);
                let Value::Tensor(tensor) = &mut self.graph.values[id] else { unreachable!() };
                let mut numbers: Vec<f64> = numbers
                    .split(' ')
                    .map(|number| number.parse().unwrap_or_else(|_| panic!("{line}")))
                    .collect();
                if numbers.len() == 1 {
                    numbers.resize(tensor.sizes.iter().product(), numbers[0]);
                }
                tensor.data = Some(Cow::Owned(encode(tensor.scalar_type, &numbers).unwrap()));
                tensor.changes = Some(false);
            }
            "out" => self.graph.outputs.extend(rest.split(' ').map(|name| self.names[name])),
            "update" => {
                let (new, old) = rest.split_once(' ').unwrap();
                self.graph.updates.push((self.names[new], self.names[old]));
            }
            _ => self.call(line),
        }
    }

    fn call(&mut self, line: &str) {
        let (declaration, call) = line.split_once(" = ").unwrap_or_else(|| panic!("{line}"));
        let (operator, args) = call.split_once('(').unwrap();
        let args = args.strip_suffix(')').unwrap_or_else(|| panic!("{line}"));
        let mut args: Vec<ValueId> =
            split(args).into_iter().map(|arg| self.argument(arg)).collect();
        let out = match declaration.strip_prefix('[') {
            Some(several) => {
                let items = split(several.strip_suffix(']').unwrap());
                let items = items.into_iter().map(|item| self.named(item)).collect();
                self.value(Value::List(items))
            }
            None => self.named(declaration),
        };
        args.push(out);
        let operator =
            Operator::named(operator).unwrap_or_else(|| panic!("unknown operator {operator}"));
        let id = self.graph.nodes.len() as u32;
        self.graph.nodes.push(Node { id, operator, args, parts: Vec::new() });
    }

    fn tensor(&mut self, declaration: &str) {
        let (name, description) = declaration.split_once(' ').unwrap();
        let (scalar_type, sizes) = description.strip_suffix(']').unwrap().split_once('[').unwrap();
        let (_, scalar_type) = TYPES.into_iter().find(|(name, _)| *name == scalar_type).unwrap();
        let sizes = split(sizes).into_iter().map(|size| size.parse().unwrap()).collect();
        let id = self.value(Value::Tensor(Tensor {
            scalar_type,
            host_type: scalar_type,
            sizes,
            dynamic: false,
            data: None,
            changes: None,
        }));
        assert!(
            self.names.insert(name.to_string(), id).is_none(),
            "the name {name} is declared twice"
        );
    }

    fn argument(&mut self, text: &str) -> ValueId {
        if let Some(id) = self.names.get(text) {
            return *id;
        }
        let value = match text {
            "none" => Value::None,
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ if text.starts_with('"') => Value::String(text.trim_matches('"').to_string()),
            _ if text.starts_with('[') => self.list(split(&text[1..text.len() - 1])),
            _ => match text.parse::<i64>() {
                Ok(value) => Value::Int(value),
                Err(_) => Value::Double(
                    text.parse().unwrap_or_else(|_| panic!("cannot parse the argument {text}")),
                ),
            },
        };
        self.value(value)
    }

    fn list(&mut self, items: Vec<&str>) -> Value<'static> {
        if let Some(ints) = items.iter().map(|item| item.parse().ok()).collect() {
            return Value::IntList(ints);
        }
        Value::List(items.into_iter().map(|item| self.argument(item)).collect())
    }

    fn value(&mut self, value: Value<'static>) -> ValueId {
        self.graph.values.push(value);
        self.graph.values.len() - 1
    }
}

/// Splits at commas outside of brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut items) = (0, 0, Vec::new());
    for (at, letter) in text.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                items.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = text[start..].trim();
    if !last.is_empty() {
        items.push(last);
    }
    items
}
