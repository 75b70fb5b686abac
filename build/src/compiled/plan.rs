//! Memory plan: values whose lifetimes are disjoint share memory.

use super::{Call, CompiledMethod, Step};
use torchlet_core::ARENA_ALIGN;
use torchlet_graph::method::Method;

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
    /// The first and the last step that needs it.
    first: usize,
    last: usize,
}

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
        if step.call == Call::View || step.call == Call::Relu && !is_read_later() {
            roots[step.out] = root;
        }
    }
    steps.retain(|step| step.call != Call::View);
    let mut lifetimes: Vec<Option<(usize, usize)>> = vec![None; count];
    // Steps are numbered from one; inputs exist before.
    for &input in &method.inputs {
        lifetimes[input] = Some((0, 0));
    }
    for (index, step) in steps.iter().enumerate() {
        for &input in &step.inputs {
            match &mut lifetimes[roots[input]] {
                Some((_, last)) => *last = index + 1,
                None => return Err(format!("step {index} reads a value that no step writes")),
            }
        }
        // A call in place keeps the memory of its input.
        lifetimes[roots[step.out]].get_or_insert((index + 1, 0)).1 = index + 1;
    }
    for &output in &method.outputs {
        match &mut lifetimes[roots[output]] {
            Some((_, last)) => *last = usize::MAX,
            None => return Err("an output is a constant".into()),
        }
    }
    let nbytes = |value: usize| method.tensor(value).map_or(0, |tensor| tensor.info.nbytes());
    let mut items = Vec::new();
    for (value, lifetime) in lifetimes.iter().enumerate() {
        let Some((first, last)) = *lifetime else { continue };
        // An input that only quantization reads stays with the caller.
        if last > 0 {
            items.push(Item { owner: Ok(value), len: nbytes(value), first, last });
        }
    }
    for (index, step) in steps.iter().enumerate() {
        let (len, first) = (step.workspace.0, index + 1);
        if len > 0 {
            items.push(Item { owner: Err(index), len, first, last: first });
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

/// The smaller of the plans for two orders: by size, and by time.
fn best(items: &[Item]) -> Option<(Vec<usize>, usize)> {
    let mut orders = [0, 1].map(|_| (0..items.len()).collect::<Vec<usize>>());
    orders[0].sort_by_key(|&at| std::cmp::Reverse(items[at].len));
    orders[1].sort_by_key(|&at| items[at].first);
    let plans = orders.iter().map(|order| placed(items, order));
    plans.collect::<Option<Vec<_>>>()?.into_iter().min_by_key(|plan| plan.1)
}

/// Places items in this order, each at the lowest free offset; returns the offsets and the end.
fn placed(items: &[Item], order: &[usize]) -> Option<(Vec<usize>, usize)> {
    let mut places: Vec<Option<usize>> = vec![None; items.len()];
    let mut memory = 0;
    for &at in order {
        let item = items[at];
        let mut taken: Vec<(usize, usize)> = Vec::new();
        for (other, place) in items.iter().zip(&places) {
            let lives = other.first <= item.last && item.first <= other.last;
            if let (true, &Some(start)) = (lives, place) {
                taken.push((start, start.checked_add(other.len)?));
            }
        }
        taken.sort_unstable();
        let mut start = 0usize;
        for (from, to) in taken {
            if from >= start.checked_add(item.len)? {
                break;
            }
            start = start.max(to.checked_next_multiple_of(ARENA_ALIGN)?);
        }
        places[at] = Some(start);
        memory = memory.max(start.checked_add(item.len)?);
    }
    let memory = i32::try_from(memory).ok()?.unsigned_abs() as usize;
    Some((places.into_iter().map(Option::unwrap_or_default).collect(), memory))
}
