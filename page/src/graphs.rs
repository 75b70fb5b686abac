//! Graphs for display: calls of a method and its delegates, and collapsed versions of them.

use super::layout::{self, Layout};
use crate::SourceModules;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use torchlet::core::Scalar;
use torchlet::graph::graph::{self, Graph};
use torchlet::graph::method::{Instruction, Method, MethodValue, TensorData};
use torchlet::portable::KERNELS;
use torchlet_devtools::Profile;

/// Node of a displayed graph.
#[derive(Debug, Clone, Default)]
pub(super) struct Call {
    label: String,
    /// Indices of the calls whose results it reads.
    reads: Vec<usize>,
    instruction: Option<u32>,
    part: Option<u32>,
    module: Option<String>,
    details: Vec<[String; 2]>,
    /// Indices in the page's list of constants.
    constants: Vec<usize>,
    /// Time in nanoseconds.
    time: Option<f64>,
    /// Number of calls that it represents.
    count: usize,
}

/// Deduplicated constants of calls.
#[derive(Default)]
pub(super) struct Constants {
    known: BTreeMap<(usize, usize), usize>,
    /// Index by a keyed hash of the contents: the compiled program maps the file a second time, at
    /// other addresses.
    contents: HashMap<u64, usize>,
    hasher: RandomState,
    /// Program that constants are added for.
    pub(super) side: &'static str,
    pub(super) list: Vec<Value>,
    /// Remaining number of thumbnails.
    left: usize,
}

/// Names of the program as exported and as compiled.
pub(super) const EXPORTED: &str = "exported";
pub(super) const COMPILED: &str = "compiled";

/// Maximum number of constants with statistics and thumbnails.
const MAX_THUMBNAILS: usize = 400;
/// Maximum number of displayed list items: many calls can read the same list.
const MAX_ITEMS: usize = 64;

/// Formats the items of a list. `described` must not descend into lists, which can contain
/// themselves.
fn listed<T>(items: &[T], described: impl Fn(&T) -> String) -> String {
    let mut texts: Vec<String> = items.iter().take(MAX_ITEMS).map(described).collect();
    texts.extend((items.len() > MAX_ITEMS).then(|| format!("… of {}", items.len())));
    format!("[{}]", texts.join(", "))
}

impl Constants {
    pub(super) fn new() -> Self {
        Constants { left: MAX_THUMBNAILS, ..Constants::default() }
    }

    fn add(
        &mut self,
        name: &str,
        what: String,
        data: &[u8],
        (scalar_type, shape): (torchlet::ScalarType, &[usize]),
    ) -> usize {
        let key = (data.as_ptr() as usize, data.len());
        if let Some(location) = self.known.get(&key) {
            return *location;
        }
        let hash = self.hasher.hash_one((data, shape, scalar_type as i64));
        if let Some(location) = self.contents.get(&hash).copied().filter(|_| self.side != EXPORTED)
        {
            self.known.insert(key, location);
            return location;
        }
        let figures = match self.left {
            0 => Value::Null,
            _ => super::weights::object(scalar_type, shape, data),
        };
        self.left = self.left.saturating_sub(1);
        self.list.push(json!({
            "name": name,
            "what": what,
            "bytes": data.len(),
            "figures": figures,
            "side": self.side,
        }));
        self.known.insert(key, self.list.len() - 1);
        self.contents.insert(hash, self.list.len() - 1);
        self.list.len() - 1
    }
}

/// Information about calls from outside of the file.
pub(super) struct Known<'k> {
    pub(super) source: Option<&'k dyn SourceModules>,
    pub(super) profile: Option<&'k Profile>,
    /// Whether instructions have the indices of the exported file.
    pub(super) is_as_exported: bool,
}

impl Known<'_> {
    fn time(&self, instruction: u32, part: Option<u32>) -> Option<f64> {
        let rows = self.profile?.rows.iter();
        let own = rows.filter(|row| row.instruction == Some(instruction));
        let own = own.filter(|row| part.is_none() || (row.part == part && row.name.contains('.')));
        let times: Vec<f64> = own.map(|row| row.statistics().p50).collect();
        (!times.is_empty()).then(|| times.iter().sum())
    }

    fn module(&self, instruction: u32, part: Option<u32>) -> Option<String> {
        let source = self.source?;
        let module = match (self.is_as_exported, part) {
            (true, Some(part)) => source.part(instruction, part),
            (true, None) => source.module(instruction),
            (false, Some(part)) => source.compiled(part),
            (false, None) => None,
        };
        module.map(str::to_owned)
    }
}

/// Calls of a method, with its inputs and outputs. `delegates` are the input counts of delegates,
/// if known.
pub(super) fn of_method(
    method: &Method<'_>,
    delegates: &[Option<usize>],
    known: &Known<'_>,
    constants: &mut Constants,
) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut writers = Writers::default();
    for (index, value) in method.inputs.iter().enumerate() {
        writers.write(method, *value, calls.len());
        calls.push(end(format!("input {index}"), described(method, *value)));
    }
    for (index, instruction) in method.instructions.iter().enumerate() {
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        let mut call = Call { instruction: Some(number), count: 1, ..Call::default() };
        // Index of the first argument that is written.
        let (args, first): (Vec<usize>, usize) = match instruction {
            Instruction::Kernel { name, overload, args } => {
                let full =
                    if overload.is_empty() { name.clone() } else { format!("{name}.{overload}") };
                let kernel = KERNELS.iter().find(|kernel| kernel.name == full);
                let first = kernel.and_then(|it| it.params.iter().position(|param| param.is_out()));
                call.label = full;
                // Arguments after those of the schema repeat results.
                let count = kernel.map_or(args.len(), |kernel| kernel.params.len());
                let args: Vec<usize> = args.iter().copied().take(count).collect();
                let first = first.unwrap_or(args.len().saturating_sub(1));
                (args, first)
            }
            Instruction::Delegate { delegate, args } => {
                let backend = method.delegates.get(*delegate).map_or("?", |it| &it.backend);
                call.label = format!("{backend} #{delegate}");
                let is_new =
                    |arg: &usize| !writers.values.contains_key(arg) && is_made(method, *arg);
                let known = delegates.get(*delegate).copied().flatten();
                let written = known.or_else(|| args.iter().position(is_new));
                (args.clone(), written.unwrap_or(args.len()))
            }
            Instruction::Move { from, to } => {
                call.label = "move".into();
                (vec![*from, *to], 1)
            }
            Instruction::JumpFalse { condition, destination } => {
                call.label = format!("jump if false, to #{destination}");
                (vec![*condition], 1)
            }
            _ => continue,
        };
        let own = calls.len();
        for (location, arg) in args.iter().enumerate() {
            let items = method.values.get(*arg).into_iter().flat_map(MethodValue::items);
            for value in items.chain([*arg]) {
                if location >= first {
                    continue;
                }
                call.reads.extend(writers.of(method, value));
                if let Some(tensor) = method.tensor(value)
                    && let TensorData::Inside(data) = &tensor.data
                    && tensor.location.is_none()
                {
                    let shape: Vec<usize> =
                        (0..tensor.info.rank()).map(|dim| tensor.info.size(dim)).collect();
                    let name = tensor.name.clone().unwrap_or_else(|| format!("value {value}"));
                    let what = (tensor.info.scalar_type, &shape[..]);
                    call.constants.push(constants.add(&name, tensor.info.to_string(), data, what));
                }
            }
            let what = if location >= first { "writes" } else { "reads" };
            call.details.push([what.into(), described(method, *arg)]);
        }
        for value in args.iter().skip(first) {
            let items: Vec<usize> =
                method.values.get(*value).into_iter().flat_map(MethodValue::items).collect();
            for value in items.into_iter().chain([*value]) {
                writers.write(method, value, own);
            }
        }
        call.reads.sort_unstable();
        call.reads.dedup();
        call.time = known.time(number, None);
        call.module = known.module(number, None);
        calls.push(call);
    }
    for (index, value) in method.outputs.iter().enumerate() {
        let mut call = end(format!("output {index}"), described(method, *value));
        call.reads.extend(writers.of(method, *value));
        calls.push(call);
    }
    calls
}

/// Writers of values and of memory: exporters omit views, which read memory that another value
/// wrote.
#[derive(Default)]
struct Writers {
    values: BTreeMap<usize, usize>,
    locations: BTreeMap<(usize, usize), usize>,
}

impl Writers {
    fn write(&mut self, method: &Method<'_>, value: usize, call: usize) {
        self.values.insert(value, call);
        if let Some(location) = method.tensor(value).and_then(|tensor| tensor.location) {
            self.locations.insert(location, call);
        }
    }

    fn of(&self, method: &Method<'_>, value: usize) -> Option<usize> {
        let known = self.values.get(&value);
        let location =
            || method.tensor(value).and_then(|tensor| self.locations.get(&tensor.location?));
        known.or_else(location).copied()
    }
}

/// Whether a value is a tensor that a call may produce.
fn is_made(method: &Method<'_>, value: usize) -> bool {
    method.tensor(value).is_some_and(|tensor| matches!(tensor.data, TensorData::None))
}

fn end(label: String, what: String) -> Call {
    Call { label, details: vec![["is".into(), what]], ..Call::default() }
}

fn described(method: &Method<'_>, value: usize) -> String {
    match method.tensor(value) {
        Some(_) => format!("{}  (value {value})", contents(method, value)),
        None => contents(method, value),
    }
}

fn contents(method: &Method<'_>, value: usize) -> String {
    match method.values.get(value) {
        Some(MethodValue::Doubles(items)) => listed(items, |item| format!("{item:?}")),
        Some(MethodValue::Bools(items)) => listed(items, bool::to_string),
        Some(list) if list.items().next().is_some() => {
            let items: Vec<usize> = list.items().collect();
            listed(&items, |item| single(method, *item))
        }
        Some(MethodValue::Ints(_) | MethodValue::Tensors(_)) => "[]".into(),
        Some(MethodValue::OptionalTensors(_)) => "none".into(),
        _ => single(method, value),
    }
}

/// Formats a value that is not a list.
fn single(method: &Method<'_>, value: usize) -> String {
    match method.values.get(value) {
        Some(MethodValue::Tensor(tensor)) => {
            let kind = match (&tensor.data, tensor.location) {
                (TensorData::None, _) => "",
                (_, Some(_)) => ", state",
                _ => ", constant",
            };
            format!("{}{kind}", tensor.info)
        }
        Some(MethodValue::Scalar(Scalar::Int(value))) => value.to_string(),
        Some(MethodValue::Scalar(Scalar::Double(value))) => format!("{value:?}"),
        Some(MethodValue::Scalar(Scalar::Bool(value))) => value.to_string(),
        Some(MethodValue::String(text)) => format!("{text:?}"),
        Some(MethodValue::None) | None => "none".into(),
        _ => "[…]".into(),
    }
}

/// Calls of a delegate's graph.
pub(super) fn of_delegate(
    graph: &Graph<'_>,
    instruction: Option<u32>,
    known: &Known<'_>,
    constants: &mut Constants,
) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut writers: BTreeMap<usize, usize> = BTreeMap::new();
    let value = |id: usize| of_value(graph, id);
    for (index, id) in graph.inputs.iter().enumerate() {
        writers.insert(*id, calls.len());
        calls.push(end(format!("input {index}"), value(*id)));
    }
    for node in &graph.nodes {
        let mut call =
            Call { label: node.title(), part: Some(node.id), count: 1, ..Call::default() };
        call.instruction = instruction;
        if let Some(instruction) = instruction {
            call.time = known.time(instruction, Some(node.id));
            call.module = known.module(instruction, Some(node.id));
        }
        if let Some((out, inputs)) = node.args.split_last() {
            for id in inputs {
                for id in graph.items(id) {
                    call.reads.extend(writers.get(id).copied());
                    if let Some(tensor) = graph.tensor(*id)
                        && let Some(data) = &tensor.data
                    {
                        let what = (tensor.scalar_type, &tensor.sizes[..]);
                        let name =
                            graph.names.get(id).cloned().unwrap_or_else(|| format!("value {id}"));
                        call.constants.push(constants.add(&name, value(*id), data, what));
                    }
                }
                call.details.push(["reads".into(), value(*id)]);
            }
            for id in graph.items(out) {
                writers.insert(*id, calls.len());
            }
            call.details.push(["writes".into(), value(*out)]);
        }
        for part in &node.parts {
            call.details.push(["fused".into(), part.title()]);
        }
        call.reads.sort_unstable();
        call.reads.dedup();
        calls.push(call);
    }
    for (index, id) in graph.outputs.iter().enumerate() {
        let mut call = end(format!("output {index}"), value(*id));
        call.reads.extend(writers.get(id).copied());
        calls.push(call);
    }
    calls
}

fn of_value(graph: &Graph<'_>, id: usize) -> String {
    match graph.values.get(id) {
        Some(graph::Value::List(items)) => listed(items, |item| of_single(graph, *item)),
        Some(graph::Value::IntList(items)) => listed(items, i64::to_string),
        Some(graph::Value::DoubleList(items)) => listed(items, |item| format!("{item:?}")),
        Some(graph::Value::BoolList(items)) => listed(items, bool::to_string),
        _ => of_single(graph, id),
    }
}

/// Formats a value that is not a list.
fn of_single(graph: &Graph<'_>, id: usize) -> String {
    match graph.values.get(id) {
        Some(graph::Value::Tensor(tensor)) => {
            let sizes: Vec<String> = tensor.sizes.iter().map(usize::to_string).collect();
            let kind = match (&tensor.data, tensor.dynamic) {
                (Some(_), _) => ", constant",
                (_, true) => ", at most",
                _ => "",
            };
            format!("{}[{}]{kind}", tensor.scalar_type, sizes.join(", "))
        }
        Some(graph::Value::Int(value)) => value.to_string(),
        Some(graph::Value::Double(value)) => format!("{value:?}"),
        Some(graph::Value::Bool(value)) => value.to_string(),
        Some(graph::Value::String(text)) => format!("{text:?}"),
        Some(graph::Value::SymInt(value)) => format!("symbolic integer, {value} at export"),
        Some(graph::Value::None) | None => "none".into(),
        _ => "[…]".into(),
    }
}

/// Collapses consecutive calls of the same module.
pub(super) fn by_module(calls: &[Call], depth: usize) -> Option<Vec<Call>> {
    let key = |call: &Call| {
        let module = call.module.as_ref()?;
        Some(module.split('.').take(depth).collect::<Vec<_>>().join("."))
    };
    calls.iter().any(|call| call.module.is_some()).then(|| {
        let mut groups: Vec<usize> = Vec::new();
        let mut last: Option<String> = None;
        let mut count = 0;
        for call in calls {
            let own = key(call);
            if own.is_none() || own != last || count == 0 {
                count += 1;
            }
            groups.push(count - 1);
            last = own;
        }
        merged(calls, &groups, |calls| key(calls[0]))
    })
}

/// Collapses chains: calls whose only reader reads nothing else.
pub(super) fn by_chain(calls: &[Call]) -> Vec<Call> {
    let mut readers = vec![0; calls.len()];
    calls.iter().flat_map(|call| &call.reads).for_each(|read| readers[*read] += 1);
    let mut heads: Vec<usize> = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        let joins = match call.reads[..] {
            [read] if call.count > 0 && calls[read].count > 0 && readers[read] == 1 => {
                Some(heads[read])
            }
            _ => None,
        };
        heads.push(joins.unwrap_or(index));
    }
    let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
    for head in &heads {
        let next = numbers.len();
        numbers.entry(*head).or_insert(next);
    }
    let groups: Vec<usize> = heads.iter().map(|head| numbers[head]).collect();
    merged(calls, &groups, |_| None)
}

/// Merges calls by group. The groups that a group reads precede it.
fn merged(
    calls: &[Call],
    groups: &[usize],
    name: impl Fn(&[&Call]) -> Option<String>,
) -> Vec<Call> {
    let count = groups.iter().max().map_or(0, |last| last + 1);
    let mut members: Vec<Vec<&Call>> = vec![Vec::new(); count];
    for (call, group) in calls.iter().zip(groups) {
        members[*group].push(call);
    }
    let one = |(own, members): (usize, &Vec<&Call>)| {
        let Some(first) = members.first() else { return Call::default() };
        let reads = members.iter().flat_map(|call| &call.reads).map(|read| groups[*read]);
        let mut reads: Vec<usize> = reads.filter(|group| *group != own).collect();
        reads.sort_unstable();
        reads.dedup();
        if members.len() == 1 {
            return Call { reads, ..(*first).clone() };
        }
        let short = |call: &&Call| short(&call.label).to_owned();
        let label = name(members).unwrap_or_else(|| {
            let mut parts: Vec<String> = members.iter().map(short).collect();
            parts.dedup();
            match &parts[..] {
                [first, .., last] if parts.len() > 3 => format!("{first} … {last}"),
                _ => parts.join(" → "),
            }
        });
        let times: Vec<f64> = members.iter().filter_map(|call| call.time).collect();
        Call {
            label,
            reads,
            instruction: first.instruction,
            part: None,
            module: first.module.clone(),
            details: members.iter().map(|call| ["call".into(), call.label.clone()]).collect(),
            constants: members.iter().flat_map(|call| &call.constants).copied().collect(),
            time: (!times.is_empty()).then(|| times.iter().sum()),
            count: members.iter().map(|call| call.count).sum(),
        }
    };
    members.iter().enumerate().map(one).collect()
}

/// Label without namespace and overload.
fn short(label: &str) -> &str {
    let name = label.rsplit("::").next().unwrap_or(label);
    let name = name.strip_prefix("aten.").unwrap_or(name);
    name.split('.').next().unwrap_or(name)
}

/// Category of a call, which determines its colour.
fn kind(call: &Call) -> &'static str {
    let name = short(&call.label);
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match () {
        () if call.count == 0 => "end",
        () if call.count > 1 => "group",
        () if name.contains('#') => "delegate",
        () if has(&["conv", "linear", "mm", "sdpa", "attention", "embedding"]) => "heavy",
        () if has(&["norm", "softmax", "mean", "sum", "pool", "amax", "amin", "var"]) => "reduce",
        () if has(&[
            "view",
            "permute",
            "slice",
            "cat",
            "copy",
            "squeeze",
            "expand",
            "clone",
            "select",
            "transpose",
        ]) =>
        {
            "move"
        }
        () if has(&["quant"]) => "quant",
        () => "element",
    }
}

/// JSON description of a graph with its layout.
pub(super) fn object(title: &str, calls: &[Call]) -> Value {
    let nodes: Vec<layout::Node> = calls
        .iter()
        .map(|call| layout::Node {
            characters: shown(call).chars().count(),
            reads: call.reads.clone(),
        })
        .collect();
    let Layout { nodes: locations, edges, width, height } = layout::compute(&nodes);
    let round = |number: f32| (f64::from(number) * 10.0).round() / 10.0;
    let nodes = calls.iter().zip(locations).map(|(call, (x, y, width))| {
        let mut node = json!({
            "l": shown(call),
            "n": call.label,
            "k": kind(call),
            "x": round(x),
            "y": round(y),
            "w": round(width),
            "d": call.details,
        });
        for (key, number) in [("i", call.instruction), ("p", call.part)] {
            if let Some(number) = number {
                node[key] = number.into();
            }
        }
        if let Some(module) = &call.module {
            node["m"] = module.clone().into();
        }
        if let Some(time) = call.time {
            node["t"] = time.into();
        }
        if !call.constants.is_empty() {
            node["c"] = call.constants.clone().into();
        }
        if call.count > 1 {
            node["g"] = call.count.into();
        }
        node
    });
    let edges = edges.into_iter().map(|(from, to, route)| {
        let route: Vec<f64> = route.into_iter().flat_map(|(x, y)| [round(x), round(y)]).collect();
        json!([from, to, route])
    });
    json!({
        "title": title,
        "calls": calls.iter().map(|call| call.count).sum::<usize>(),
        "width": round(width),
        "height": round(height),
        "nodes": nodes.collect::<Vec<_>>(),
        "edges": edges.collect::<Vec<_>>(),
    })
}

fn shown(call: &Call) -> String {
    let label = if call.count == 1 { short(&call.label).to_owned() } else { call.label.clone() };
    match call.count {
        0 | 1 => label,
        count => format!("{label}  ({count})"),
    }
}

/// Maximum nesting depth of modules.
pub(super) fn depth(calls: &[Call]) -> usize {
    let modules = calls.iter().filter_map(|call| call.module.as_ref());
    modules.map(|module| module.split('.').count()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn self_referential_lists_terminate() {
        let values = vec![
            graph::Value::List(vec![0, 1]),
            graph::Value::IntList((0..1000).collect()),
            graph::Value::IntList(vec![4, 5]),
        ];
        let graph = Graph { values, ..Graph::default() };
        assert_eq!(of_value(&graph, 0), "[[…], […]]");
        assert!(of_value(&graph, 1).ends_with("62, 63, … of 1000]"), "{}", of_value(&graph, 1));
        assert_eq!((of_value(&graph, 2), of_value(&graph, 9)), ("[4, 5]".into(), "none".into()));
    }
}
