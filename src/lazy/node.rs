//! Recorded calls, and the values that they return.
//!
//! Calls form a graph without cycles: a call refers to its arguments. Once results are computed,
//! the call is forgotten, which frees the graph behind them. Results that nobody can read any more
//! are not computed, and do not keep the call.

use super::Device;
use crate::tensor::Tensor as HostTensor;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use torchlet_graph::infer::TensorType;
use torchlet_graph::operators::Operator;

/// Locks a mutex. A panic of another thread leaves no half-written state behind here.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One result of a call, or a tensor with elements.
#[derive(Clone)]
pub(super) struct Value {
    pub(super) cell: Arc<Cell>,
    pub(super) index: usize,
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

/// Argument of a recorded call.
#[derive(Clone, PartialEq)]
pub(super) enum Given {
    None,
    Value(Value),
    Values(Vec<Option<Value>>),
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    Ints(Vec<i64>),
    Floats(Vec<f64>),
    Bools(Vec<bool>),
}

/// A recorded call.
pub(super) struct Recorded {
    pub(super) operator: Operator,
    pub(super) args: Vec<Given>,
}

/// Results of a call: recorded, computed, or both in part.
pub(super) struct Cell {
    /// Unique number.
    pub(super) id: u64,
    pub(super) device: Device,
    pub(super) types: Vec<TensorType>,
    /// Whether the elements are compiled into programs.
    pub(super) is_weight: bool,
    /// Tensors with elements that the results are computed from.
    pub(super) sources: Sources,
    state: Mutex<State>,
    /// Number of tensors of the user that have each result.
    wanted: Vec<AtomicUsize>,
    /// Number of handles that refer to each result.
    held: Vec<AtomicUsize>,
}

/// Numbers of tensors with elements, without weights, in ascending order; `None` if they are too
/// many to be listed.
pub(super) type Sources = Option<Arc<[u64]>>;

/// Maximum number of listed sources. A loop adds some in each iteration.
const MAX_SOURCES: usize = 64;

fn sources(args: &[Given]) -> Sources {
    let mut found: Arc<[u64]> = Arc::default();
    for value in args.iter().flat_map(Given::values) {
        let own = value.cell.sources.as_ref()?;
        if found.is_empty() {
            found = own.clone();
        } else if !Arc::ptr_eq(&found, own) && own.iter().any(|it| !found.contains(it)) {
            let all: BTreeSet<u64> = found.iter().chain(own.iter()).copied().collect();
            if all.len() > MAX_SOURCES {
                return None;
            }
            found = all.into_iter().collect();
        }
    }
    Some(found)
}

struct State {
    /// The call, unless its results are computed.
    recorded: Option<Arc<Recorded>>,
    results: Vec<Option<HostTensor>>,
    /// Why the call cannot be computed: operator and reason.
    failure: Option<(String, String)>,
}

fn new_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Cell {
    fn new(device: Device, types: Vec<TensorType>, sources: Sources, state: State) -> Self {
        let wanted = types.iter().map(|_| AtomicUsize::new(0)).collect();
        let held = types.iter().map(|_| AtomicUsize::new(0)).collect();
        let (id, state, is_weight) = (new_id(), Mutex::new(state), false);
        Cell { id, device, types, is_weight, sources, state, wanted, held }
    }

    pub(super) fn call(device: Device, types: Vec<TensorType>, recorded: Recorded) -> Arc<Self> {
        let results = types.iter().map(|_| None).collect();
        let sources = sources(&recorded.args);
        let state = State { recorded: Some(Arc::new(recorded)), results, failure: None };
        Arc::new(Cell::new(device, types, sources, state))
    }

    /// A tensor with elements.
    pub(super) fn leaf(device: Device, tensor: HostTensor, is_weight: bool) -> Arc<Self> {
        let (scalar_type, sizes) = (tensor.scalar_type(), tensor.info().sizes.clone());
        let types = vec![TensorType { scalar_type, sizes }];
        let state = State { recorded: None, results: vec![Some(tensor)], failure: None };
        let mut cell = Cell::new(device, types, None, state);
        let own = (!is_weight).then_some(cell.id);
        (cell.is_weight, cell.sources) = (is_weight, Some(own.into_iter().collect()));
        Arc::new(cell)
    }

    /// The elements of another cell, on this device.
    pub(super) fn moved(device: Device, tensor: HostTensor, from: &Cell) -> Arc<Self> {
        let mut cell = Cell::leaf(device, tensor, from.is_weight);
        if let Some(own) = Arc::get_mut(&mut cell) {
            own.sources = from.sources.clone();
        }
        cell
    }

    /// A call that cannot be computed.
    pub(super) fn failed(device: Device, like: TensorType, failure: (String, String)) -> Arc<Self> {
        let state = State { recorded: None, results: vec![None], failure: Some(failure) };
        Arc::new(Cell::new(device, vec![like], None, state))
    }

    /// Whether the elements were given, and not computed from other tensors.
    pub(super) fn is_leaf(&self) -> bool {
        self.is_weight || self.sources.as_deref() == Some(&[self.id])
    }

    pub(super) fn failure(&self) -> Option<(String, String)> {
        lock(&self.state).failure.clone()
    }

    pub(super) fn result(&self, index: usize) -> Option<HostTensor> {
        lock(&self.state).results.get(index).cloned().flatten()
    }

    /// The call, unless its results are computed.
    pub(super) fn recorded(&self) -> Option<Arc<Recorded>> {
        lock(&self.state).recorded.clone()
    }

    /// Sets all computed results, and forgets the call: nobody can read the other ones.
    pub(super) fn set(&self, made: impl IntoIterator<Item = (usize, HostTensor)>) {
        let mut state = lock(&self.state);
        for (index, tensor) in made {
            if let Some(slot) = state.results.get_mut(index) {
                *slot = Some(tensor);
            }
        }
        let forgotten = state.recorded.take();
        drop(state);
        drop(forgotten);
    }

    pub(super) fn is_wanted(&self, index: usize) -> bool {
        self.wanted.get(index).is_some_and(|count| count.load(Ordering::Relaxed) > 0)
    }

    pub(super) fn is_held(&self, index: usize) -> bool {
        self.held.get(index).is_some_and(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// Number of handles that refer to a result.
    pub(super) fn holders(&self) -> usize {
        self.held.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

impl Drop for Cell {
    /// Frees long chains of calls in a loop: recursion would overflow the stack.
    fn drop(&mut self) {
        let own = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut work: Vec<Arc<Recorded>> = own.recorded.take().into_iter().collect();
        while let Some(next) = work.pop() {
            let Some(recorded) = Arc::into_inner(next) else { continue };
            for value in recorded.args.into_iter().flat_map(Given::into_values) {
                if let Some(mut cell) = Arc::into_inner(value.cell) {
                    let state = cell.state.get_mut().unwrap_or_else(PoisonError::into_inner);
                    work.extend(state.recorded.take());
                }
            }
        }
    }
}

impl Value {
    pub(super) fn first(cell: Arc<Cell>) -> Self {
        Value { cell, index: 0 }
    }

    /// Identifies the value: its cell and its index.
    pub(super) fn id(&self) -> (u64, usize) {
        (self.cell.id, self.index)
    }

    /// Dtype and shape. Indices are those of results.
    pub(super) fn tensor_type(&self) -> &TensorType {
        &self.cell.types[self.index]
    }

    /// Counts a tensor of the user that has this value.
    pub(super) fn want(&self) {
        self.cell.wanted[self.index].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a handle that refers to this value.
    pub(super) fn hold(&self) {
        self.cell.held[self.index].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn unhold(&self) {
        self.cell.held[self.index].fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn unwant(&self) {
        self.cell.wanted[self.index].fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn result(&self) -> Option<HostTensor> {
        self.cell.result(self.index)
    }
}

impl Given {
    /// The values in an argument.
    pub(super) fn values(&self) -> impl Iterator<Item = &Value> {
        let (one, list): (Option<&Value>, &[Option<Value>]) = match self {
            Given::Value(value) => (Some(value), &[]),
            Given::Values(values) => (None, values),
            _ => (None, &[]),
        };
        one.into_iter().chain(list.iter().flatten())
    }

    fn into_values(self) -> Vec<Value> {
        match self {
            Given::Value(value) => vec![value],
            Given::Values(values) => values.into_iter().flatten().collect(),
            _ => Vec::new(),
        }
    }
}
