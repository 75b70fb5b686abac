//! Moves state into the delegate of the region that uses it.
//!
//! A cell is a state tensor of a method, such as a KV cache. By default, a cell is an input and an
//! output of each region that uses it, so every run copies it in and out. If a single region is the
//! only user, the cell can live inside that region's delegate, which starts with the initial
//! contents and keeps the updates. Then nothing is copied, however large a cache is. State that
//! several regions, host instructions, other methods or callers access stays a tensor of the
//! method.

use crate::emit::first_bytes;
use crate::front::Run;
use crate::graph::{Graph, Value, ValueId};
use crate::method::{Method, MethodTensor, MethodValue, TensorData};
use crate::partition::{Part, Region, arguments};
use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;
use torchlet_core::ShapeDynamism;

/// State tensors that only instructions of this method access, and whose memory overlaps with no
/// other tensor.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cells {
    /// First and last instruction that uses each tensor.
    mentions: BTreeMap<usize, (usize, usize)>,
}

/// Returns the planned buffers in which several methods have tensors.
pub(crate) fn shared_buffers(methods: &[Method<'_>]) -> BTreeSet<usize> {
    let (mut used, mut shared) = (BTreeSet::new(), BTreeSet::new());
    for method in methods {
        let places = method.values.iter().filter_map(|value| match value {
            MethodValue::Tensor(tensor) => Some(tensor.location?.0),
            _ => None,
        });
        let own: BTreeSet<usize> = places.collect();
        shared.extend(used.intersection(&own).copied());
        used.extend(own);
    }
    // The first buffer holds activations, which methods do not share.
    shared.remove(&0);
    shared
}

/// Returns the initial contents of a tensor, empty for zeros. Returns `None` if the tensor cannot
/// be a cell.
fn contents<'p>(tensor: &MethodTensor<'p>) -> Option<Cow<'p, [u8]>> {
    let rank = tensor.info.rank();
    let is_plain = tensor.info.dim_order.iter().map(|dim| usize::from(*dim)).eq(0..rank);
    if !is_plain || tensor.dynamism != ShapeDynamism::Static || tensor.info.nbytes() == 0 {
        return None;
    }
    match &tensor.data {
        TensorData::None => Some(Cow::Borrowed(&[])),
        TensorData::Inside(bytes) => first_bytes(bytes, &tensor.info).ok(),
        TensorData::Outside => None,
    }
}

impl Cells {
    /// Finds the cells of a method. `shared` are planned buffers that other methods use as well;
    /// `fresh` are tensors whose contents do not survive a run.
    pub(crate) fn of(
        method: &Method<'_>,
        shared: &BTreeSet<usize>,
        fresh: &BTreeSet<usize>,
    ) -> Self {
        let interface = method.inputs.iter().chain(&method.outputs);
        let interface: BTreeSet<usize> =
            interface.flat_map(|value| method.with_items(*value)).collect();
        let mut mentions = BTreeMap::new();
        for value in alone_in_memory(method, fresh) {
            let Some(tensor) = method.tensor(value) else { continue };
            let is_own = tensor.location.is_some_and(|(buffer, _)| !shared.contains(&buffer));
            if is_own && !interface.contains(&value) && contents(tensor).is_some() {
                mentions.insert(value, (usize::MAX, 0));
            }
        }
        for (at, instruction) in method.instructions.iter().enumerate() {
            for value in instruction.values().flat_map(|value| method.with_items(value)) {
                if let Some((first, last)) = mentions.get_mut(&value) {
                    *first = at.min(*first);
                    *last = at;
                }
            }
        }
        Cells { mentions }
    }

    /// Whether all uses of a tensor are among these instructions.
    fn is_within(&self, value: usize, instructions: &Range<usize>) -> bool {
        let mentions = self.mentions.get(&value);
        mentions.is_some_and(|(first, last)| {
            instructions.contains(first) && instructions.contains(last)
        })
    }

    /// Moves each cell into the region of a run that is its only user, if `keeps` holds for the
    /// region's processor. Returns the affected tensors of the method, which are then unused.
    pub(crate) fn give<'p>(
        &self,
        method: &Method<'p>,
        run: &mut Run<'p>,
        parts: &mut [Part],
        keeps: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let graph = &mut run.graph;
        let touched = Touched::of(graph, parts);
        let mut given: BTreeMap<ValueId, usize> = BTreeMap::new();
        for (new, old) in graph.updates.clone() {
            let value = run.origins.get(&old).copied();
            let value = value.filter(|value| self.is_within(*value, &run.instructions));
            let Some((value, tensor)) = value.and_then(|it| Some((it, method.tensor(it)?))) else {
                continue;
            };
            let (Some(data), Some(part)) = (contents(tensor), touched.keeper(graph, new, old))
            else {
                continue;
            };
            let Some(Part::Device(processor, region)) = parts.get_mut(part) else { continue };
            if !keeps(*processor) {
                continue;
            }
            let Some(Value::Tensor(cell)) = graph.values.get_mut(old) else { continue };
            (cell.data, cell.changes, cell.dynamic) = (Some(data), Some(true), false);
            graph.names.extend(tensor.name.clone().map(|name| (old, name)));
            region.cells.push((new, old));
            given.insert(old, value);
        }
        if given.is_empty() {
            return Vec::new();
        }
        graph.inputs.retain(|id| !given.contains_key(id));
        graph.updates.retain(|(_, old)| !given.contains_key(old));
        let mut taken: BTreeSet<ValueId> = graph.outputs.iter().copied().collect();
        taken.extend(graph.updates.iter().map(|(new, _)| *new));
        for (index, part) in parts.iter_mut().enumerate() {
            let Part::Device(_, region) = part else { continue };
            region.inputs.retain(|id| !given.contains_key(id));
            let Region { outputs, cells, .. } = region;
            let is_news: BTreeSet<ValueId> = cells.iter().map(|(new, _)| *new).collect();
            outputs.retain(|id| {
                !is_news.contains(id) || taken.contains(id) || touched.is_read_beside(*id, index)
            });
        }
        given.into_values().collect()
    }
}

/// Returns the tensors of a method whose memory overlaps with no other tensor.
pub(crate) fn alone_in_memory(method: &Method<'_>, fresh: &BTreeSet<usize>) -> Vec<usize> {
    let tensors = method.values.iter().enumerate().filter_map(|(value, it)| match it {
        MethodValue::Tensor(tensor) if !fresh.contains(&value) => {
            let (buffer, start) = tensor.location?;
            let bytes = tensor.info.nbytes();
            (bytes > 0).then_some((buffer, start, start.saturating_add(bytes), value))
        }
        _ => None,
    });
    let mut tensors: Vec<(usize, usize, usize, usize)> = tensors.collect();
    tensors.sort_unstable();
    let mut alone = Vec::new();
    let mut rest = tensors.as_slice();
    while let Some(((buffer, _, first_end, value), behind)) = rest.split_first() {
        // Tensors that overlap, directly or through tensors before them.
        let mut end = *first_end;
        let together = behind.iter().take_while(|(other, start, other_end, _)| {
            let overlaps = other == buffer && *start < end;
            if overlaps {
                end = end.max(*other_end);
            }
            overlaps
        });
        let count = together.count();
        if count == 0 {
            alone.push(*value);
        }
        rest = behind.get(count..).unwrap_or_default();
    }
    alone
}

/// Producers and readers of the values of a graph.
struct Touched {
    /// The part that produces each value.
    makers: BTreeMap<ValueId, usize>,
    /// The part that reads each value; `None` if several do.
    readers: BTreeMap<ValueId, Option<usize>>,
    /// Number of updates that each value is part of.
    updates: BTreeMap<ValueId, usize>,
}

impl Touched {
    fn of(graph: &Graph<'_>, parts: &[Part]) -> Self {
        let (mut makers, mut readers) = (BTreeMap::new(), BTreeMap::new());
        for (index, part) in parts.iter().enumerate() {
            let (Part::Host(nodes) | Part::Device(_, Region { nodes, .. })) = part;
            for node in nodes.iter().filter_map(|node| graph.nodes.get(*node)) {
                let (taken, made) = arguments(graph, node);
                makers.extend(made.into_iter().map(|id| (id, index)));
                for id in taken {
                    let reader = readers.entry(id).or_insert(Some(index));
                    *reader = reader.filter(|reader| *reader == index);
                }
            }
        }
        let mut updates = BTreeMap::new();
        for (new, old) in &graph.updates {
            // A value that is updated with itself is no cell, either.
            *updates.entry(*old).or_insert(0) += 1;
            if !makers.contains_key(new) {
                *updates.entry(*new).or_insert(0) += 1;
            }
        }
        Touched { makers, readers, updates }
    }

    /// Returns the part that produces the new value of a cell and is the only reader of the old
    /// one.
    fn keeper(&self, graph: &Graph<'_>, new: ValueId, old: ValueId) -> Option<usize> {
        let part = *self.makers.get(&new)?;
        let reads = self.readers.get(&old).is_none_or(|reader| *reader == Some(part));
        let is_once = self.updates.get(&old) == Some(&1) && !graph.outputs.contains(&old);
        (reads && is_once && graph.are_alike(new, old)).then_some(part)
    }

    /// Whether a part other than this one reads a value.
    fn is_read_beside(&self, id: ValueId, part: usize) -> bool {
        self.readers.get(&id).is_some_and(|reader| *reader != Some(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::Instruction;
    use crate::partition::partition;
    use crate::passes::text;
    use alloc::string::String;
    use alloc::vec;
    use torchlet_core::{ScalarType, TensorInfo};

    fn tensor(location: Option<(usize, usize)>, name: &str) -> MethodValue<'static> {
        MethodValue::Tensor(MethodTensor {
            info: TensorInfo::contiguous(ScalarType::Float, &[2]).unwrap(),
            dynamism: ShapeDynamism::Static,
            location,
            data: TensorData::None,
            name: Some(String::from(name)),
        })
    }

    /// A method with one kernel call for each of these argument lists.
    fn method(values: Vec<MethodValue<'static>>, calls: &[&[usize]]) -> Method<'static> {
        let calls = calls.iter().map(|args| Instruction::Kernel {
            name: String::from("any::thing"),
            overload: String::new(),
            args: args.to_vec(),
        });
        Method { values, instructions: calls.collect(), planned: vec![64], ..Method::default() }
    }

    /// A run of a graph whose calls are on the device, except those listed in `host`.
    fn run(text: &str, host: &[usize]) -> (Run<'static>, Vec<Part>) {
        let graph = text::parse(text);
        let on_device = (0..graph.nodes.len()).map(|at| (!host.contains(&at)).then_some(0));
        let on_device: Vec<Option<usize>> = on_device.collect();
        let parts = partition(&graph, &on_device);
        let origins = [(0, 0), (1, 1)].into_iter().collect();
        (Run { instructions: 0..2, graph, origins }, parts)
    }

    const SUM: &str = "in state f32[2]
        in x f32[2]
        sum f32[2] = aten.add.Tensor(state, x, 1)
        y f32[2] = aten.neg.default(sum)
        update sum state
        out y";

    fn given(method: &Method<'static>, text: &str, host: &[usize]) -> (Vec<usize>, Vec<Part>) {
        let (mut run, mut parts) = run(text, host);
        let cells = Cells::of(method, &BTreeSet::new(), &BTreeSet::new());
        (cells.give(method, &mut run, &mut parts, |_| true), parts)
    }

    #[test]
    fn what_one_region_touches_is_its_own() {
        let method = method(vec![tensor(Some((0, 0)), "kept"), tensor(None, "x")], &[&[0, 1]]);
        let (mut run, mut parts) = run(SUM, &[]);
        let cells = Cells::of(&method, &BTreeSet::new(), &BTreeSet::new());
        assert_eq!(cells.give(&method, &mut run, &mut parts, |_| true), [0]);
        let [Part::Device(_, region)] = &parts[..] else { panic!("{parts:?}") };
        assert_eq!((&region.inputs[..], &region.outputs[..]), (&[1][..], &[3][..]));
        let part = region.extract(&mut run.graph, &|_| false);
        let [(new, old)] = part.updates[..] else { panic!() };
        assert_eq!((part.nodes[0].args[3], part.names[&old].as_str()), (new, "kept"));
        let Value::Tensor(cell) = &part.values[old] else { panic!() };
        // The initial contents are zeros, so the constant has no data.
        assert_eq!((cell.changes, cell.data.as_deref()), (Some(true), Some(&[][..])));
        assert!(run.graph.updates.is_empty() && run.graph.inputs == [1]);
    }

    #[test]
    fn what_others_touch_stays() {
        let values = || vec![tensor(Some((0, 0)), "kept"), tensor(None, "x")];
        let plain = method(values(), &[&[0, 1]]);
        assert_eq!(given(&plain, SUM, &[]).0, [0]);
        // A call on the host produces the new value, or reads the old one.
        assert!(given(&plain, SUM, &[0]).0.is_empty());
        let read = SUM.replace("neg.default(sum)", "neg.default(state)");
        assert!(given(&plain, &read, &[1]).0.is_empty());
        // The new value may be used elsewhere.
        let (moved, parts) = given(&plain, &SUM.replace("out y", "out y sum"), &[1]);
        let Part::Device(_, region) = &parts[0] else { panic!() };
        assert_eq!((&moved[..], &region.outputs[..]), (&[0][..], &[2][..]));
        // Other users: an instruction outside the run, the caller, a tensor that overlaps.
        assert!(given(&method(values(), &[&[1], &[1], &[0]]), SUM, &[]).0.is_empty());
        let interface = Method { outputs: vec![0], ..plain.clone() };
        assert!(given(&interface, SUM, &[]).0.is_empty());
        let mut overlapped = plain.clone();
        overlapped.values.push(tensor(Some((0, 4)), "view"));
        assert!(given(&overlapped, SUM, &[]).0.is_empty());
    }

    #[test]
    fn buffers_of_several_methods_are_shared() {
        let values = |buffer| vec![tensor(Some((0, 0)), "a"), tensor(Some((buffer, 0)), "b")];
        let methods = [method(values(1), &[]), method(values(2), &[]), method(values(1), &[])];
        assert_eq!(shared_buffers(&methods), BTreeSet::from([1]));
        let cells = Cells::of(&methods[0], &BTreeSet::from([1]), &BTreeSet::new());
        assert_eq!(cells.mentions.keys().copied().collect::<Vec<_>>(), [0]);
    }
}
