//! Memory plan: values whose lifetimes are disjoint share memory.

use super::{Call, CompiledMethod, Step};
use torchlet_core::ARENA_ALIGN;
use torchlet_graph::method::Method;
use torchlet_graph::plan::{Arena, Lifetime};

/// Part of the activation memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl Span {
    pub(crate) const EMPTY: Self = Span { start: 0, len: 0 };
}

/// A value or workspace with a place in memory.
#[derive(Debug, Clone, Copy)]
struct Item {
    /// Index of the value; `Err` with the index of a step for its workspace.
    owner: Result<usize, usize>,
    len: usize,
    /// Steps that need it.
    lifetime: Lifetime,
}

/// Maximum size of the memory: the largest object of a target with 32-bit pointers.
const MAX_MEMORY: usize = i32::MAX as usize;

/// Assigns memory to the values of a method.
pub(super) fn run<'p>(
    method: &Method<'p>,
    mut steps: Vec<Step<'p>>,
) -> Result<CompiledMethod<'p>, String> {
    let count = method.values.len();
    let mut roots: Vec<usize> = (0..count).collect();
    for (index, step) in steps.iter().enumerate() {
        let [input] = step.inputs[..] else { continue };
        let root = roots[input];
        let is_read_later = || {
            let later = steps[index + 1..].iter().flat_map(|step| &step.inputs);
            later.chain(&method.outputs).any(|&value| roots[value] == root)
        };
        if step.call == Call::View || step.call.runs_in_place() && !is_read_later() {
            roots[step.out] = root;
        }
    }
    steps.retain(|step| step.call != Call::View);
    let mut lifetimes: Vec<Option<Lifetime>> = vec![None; count];
    // Steps are numbered from one; inputs exist before.
    for &input in &method.inputs {
        lifetimes[input] = Some(Lifetime { first: 0, last: 0 });
    }
    for (index, step) in steps.iter().enumerate() {
        for &input in &step.inputs {
            match &mut lifetimes[roots[input]] {
                Some(lifetime) => lifetime.last = index + 1,
                None => return Err(format!("step {index} reads a value that no step writes")),
            }
        }
        // A call in place keeps the memory of its input.
        let new = Lifetime { first: index + 1, last: 0 };
        lifetimes[roots[step.out]].get_or_insert(new).last = index + 1;
    }
    for &output in &method.outputs {
        match &mut lifetimes[roots[output]] {
            Some(lifetime) => lifetime.last = usize::MAX,
            None => return Err("an output is a constant".into()),
        }
    }
    let nbytes = |value: usize| method.tensor(value).map_or(0, |tensor| tensor.info.nbytes());
    let mut items = Vec::new();
    for (value, lifetime) in lifetimes.iter().enumerate() {
        let Some(lifetime) = *lifetime else { continue };
        // An input that only quantization reads stays with the caller.
        if lifetime.last > 0 {
            items.push(Item { owner: Ok(value), len: nbytes(value), lifetime });
        }
    }
    for (index, step) in steps.iter().enumerate() {
        let lifetime = Lifetime { first: index + 1, last: index + 1 };
        if step.workspace.0 > 0 {
            items.push(Item { owner: Err(index), len: step.workspace.0, lifetime });
        }
    }
    let (places, memory) = best(&items).ok_or("activations exceed the address space")?;
    let mut spans = vec![Span::EMPTY; count];
    for (item, start) in items.iter().zip(places) {
        let span = Span { start, len: item.len };
        match item.owner {
            Ok(value) => spans[value] = span,
            Err(step) => steps[step].workspace.1 = span,
        }
    }
    let inputs = method.inputs.iter().enumerate();
    let copied = inputs.map(|(index, &value)| (index, spans[value]));
    let copied = copied.filter(|(_, span)| span.len > 0).collect();
    let outputs = method.outputs.iter().map(|&value| spans[roots[value]]).collect();
    Ok(CompiledMethod { steps, copied, outputs, spans, roots, memory })
}

/// The smaller of the plans for two orders: by size, and by time. Returns the offset of each item
/// and the size of the memory.
fn best(items: &[Item]) -> Option<(Vec<usize>, usize)> {
    let mut orders = [0, 1].map(|_| (0..items.len()).collect::<Vec<usize>>());
    orders[0].sort_by_key(|&at| std::cmp::Reverse(items[at].len));
    orders[1].sort_by_key(|&at| items[at].lifetime.first);
    let plans = orders.iter().map(|order| {
        let (mut arena, mut starts) = (Arena::new(ARENA_ALIGN), vec![0; items.len()]);
        for &at in order {
            starts[at] = arena.take_below(items[at].len, items[at].lifetime, MAX_MEMORY)?;
        }
        Some((starts, arena.end()))
    });
    plans.collect::<Option<Vec<_>>>()?.into_iter().min_by_key(|plan| plan.1)
}
