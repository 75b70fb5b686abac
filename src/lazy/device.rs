//! Devices: they compile what was recorded, keep the programs, and run them.

use super::node::{Cell, Given, Recorded, Value, lock};
use super::program::{Plan, program};
use crate::error::Error;
use crate::module::{DEFAULT_MEMORY_LIMIT, Module};
use crate::processor::RunOn;
use crate::tensor::Tensor as HostTensor;
use crate::threads::Threads;
use crate::value::Value as HostValue;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, Weak};
use torchlet_graph::Location;
use torchlet_graph::infer::TensorType;

/// Maximum number of calls that are compiled as one program. Longer records run in pieces, which
/// bounds the time of compiling; pieces of the same structure are compiled once.
const MAX_CALLS: usize = 1024;
/// Number of compiled programs that a device keeps, by default.
const PROGRAMS: usize = 64;

/// Device that computes recorded tensors. Clones are the same device.
///
/// A device computes for one thread at a time; others wait.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    run_on: RunOn,
    is_strict: bool,
    threads: OnceLock<Threads>,
    programs: Mutex<Programs>,
}

/// Compiled programs by their structure.
struct Programs {
    found: HashMap<Vec<u64>, Compiled>,
    capacity: usize,
    /// Maximum number of bytes of all programs.
    max_bytes: u64,
    memory_limit: u64,
    clock: u64,
    stats: Stats,
    /// Operators that the CPU computes for the device.
    fallbacks: BTreeSet<String>,
}

struct Compiled {
    module: Module,
    used: u64,
    /// Bytes of the file, with the weights, and of the loaded method.
    bytes: u64,
    /// The weights that are compiled in.
    weights: Vec<Weak<Cell>>,
}

/// What a device did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Number of programs that were compiled.
    pub compiled: u64,
    /// Number of programs that ran.
    pub runs: u64,
    /// Number of calls in these programs, before fusion.
    pub calls: u64,
}

impl Device {
    fn new(run_on: RunOn, is_strict: bool) -> Self {
        let programs = Programs {
            found: HashMap::new(),
            capacity: PROGRAMS,
            max_bytes: DEFAULT_MEMORY_LIMIT,
            memory_limit: DEFAULT_MEMORY_LIMIT,
            clock: 0,
            stats: Stats::default(),
            fallbacks: BTreeSet::new(),
        };
        let (threads, programs) = (OnceLock::new(), Mutex::new(programs));
        Device(Arc::new(Inner { run_on, is_strict, threads, programs }))
    }

    /// Returns the CPU.
    pub fn cpu() -> Self {
        static CPU: LazyLock<Device> = LazyLock::new(|| Device::new(RunOn::Cpu, false));
        CPU.clone()
    }

    /// Returns the first device of a [device API](crate::DEVICE_APIS), by its name, or the CPU.
    ///
    /// # Errors
    /// No device of the API is usable, or this build lacks it.
    pub fn named(name: &str) -> Result<Self, Error> {
        static DEVICES: Mutex<BTreeMap<&str, Device>> = Mutex::new(BTreeMap::new());
        let fail = |reason: String| Error::NoDevice { name: name.into(), reason };
        let run_on: RunOn = name.parse().map_err(|error| fail(format!("{error}")))?;
        let RunOn::Device(name) = run_on else {
            return match run_on {
                RunOn::Cpu => Ok(Device::cpu()),
                _ => Err(fail("expected the name of a device".into())),
            };
        };
        if let Some(device) = lock(&DEVICES).get(name) {
            return Ok(device.clone());
        }
        let backend = crate::device_backend(name).ok_or_else(|| fail("no such device".into()))?;
        backend.is_available().map_err(|error| fail(error.to_string()))?;
        Ok(lock(&DEVICES).entry(name).or_insert_with(|| Device::new(run_on, false)).clone())
    }

    /// Returns the same device, which refuses operators that it lacks instead of computing them on
    /// the CPU. Tensors of the two devices do not mix.
    #[must_use]
    pub fn strict(&self) -> Self {
        Device::new(self.0.run_on, true)
    }

    /// Name of the device: `cpu`, or the name of its API.
    pub fn name(&self) -> &'static str {
        self.0.run_on.name()
    }

    /// Counts of compiled programs and runs.
    pub fn stats(&self) -> Stats {
        lock(&self.0.programs).stats
    }

    /// Names of the operators that the CPU computed for this device, because it lacks them. Empty
    /// for the CPU and for [strict](Self::strict) devices.
    pub fn fallbacks(&self) -> Vec<String> {
        lock(&self.0.programs).fallbacks.iter().cloned().collect()
    }

    /// Sets how many compiled programs the device keeps. Default: 64. The least recently used ones
    /// are dropped, with their copies of weights.
    pub fn set_program_cache(&self, programs: usize) {
        let mut state = lock(&self.0.programs);
        state.capacity = programs.max(1);
        state.trim();
    }

    /// Sets how many bytes the compiled programs of the device may have together: files, with their
    /// copies of weights, and loaded methods. Default: 4 GiB. The least recently used ones are
    /// dropped; the latest is always kept. A program whose weights are dropped is dropped when the
    /// next one is compiled.
    pub fn set_program_cache_bytes(&self, bytes: u64) {
        let mut state = lock(&self.0.programs);
        state.max_bytes = bytes;
        state.trim();
    }

    /// Limits the memory of a program in bytes: intermediate results, packed weights, and one copy
    /// of the results. Default: [4 GiB](DEFAULT_MEMORY_LIMIT). Applies to programs that are
    /// compiled from now on.
    pub fn set_memory_limit(&self, bytes: u64) {
        lock(&self.0.programs).memory_limit = bytes;
    }

    /// Drops all compiled programs.
    pub fn clear_program_cache(&self) {
        lock(&self.0.programs).found.clear();
    }

    /// Computes a value, and whatever else is needed again of the calls that it depends on.
    pub(super) fn compute(&self, target: &Value) -> Result<HostTensor, Error> {
        if let Some((operator, reason)) = target.cell.failure() {
            return Err(Error::Call { operator, reason });
        }
        if let Some(known) = target.result() {
            return Ok(known);
        }
        // One thread computes at a time; others find the results.
        let mut programs = lock(&self.0.programs);
        let steps = steps(std::slice::from_ref(target));
        let uses = Uses::of(&steps);
        for at in (0..steps.len()).step_by(MAX_CALLS) {
            let end = steps.len().min(at + MAX_CALLS);
            let piece = &steps[at..end];
            let plan = Plan::of(piece, &uses.outputs(piece, end, target));
            let made = self.run(&mut programs, &plan)?;
            // All results of a call at once: it is forgotten.
            let mut made = plan.outputs().zip(made).peekable();
            while let Some((value, tensor)) = made.next() {
                let mut results = vec![(value.index, tensor)];
                while let Some((other, tensor)) =
                    made.next_if(|(other, _)| other.cell.id == value.cell.id)
                {
                    results.push((other.index, tensor));
                }
                value.cell.set(results);
            }
        }
        drop(programs);
        let missing = || Error::Kind { expected: "tensor", found: "None" };
        target.result().ok_or_else(missing)
    }

    fn run(&self, programs: &mut Programs, plan: &Plan<'_>) -> Result<Vec<HostTensor>, Error> {
        programs.clock += 1;
        let clock = programs.clock;
        if !programs.found.contains_key(plan.key()) {
            let limit = programs.memory_limit;
            programs.drop_unreachable();
            let mut module = self.compile(plan, limit, &mut programs.fallbacks)?;
            let memory = module.method("forward")?.memory_bytes();
            let bytes = module.file_size().saturating_add(memory);
            let weights = plan.weights().map(|value| Arc::downgrade(&value.cell)).collect();
            let compiled = Compiled { module, used: clock, bytes, weights };
            programs.stats.compiled += 1;
            programs.found.insert(plan.key().to_vec(), compiled);
            programs.trim();
        }
        programs.stats.runs += 1;
        programs.stats.calls += plan.calls() as u64;
        let missing = || Error::Kind { expected: "program", found: "None" };
        let compiled = programs.found.get_mut(plan.key()).ok_or_else(missing)?;
        compiled.used = clock;
        let outputs = compiled.module.forward(plan.inputs()?)?;
        outputs.into_iter().map(HostValue::into_tensor).collect()
    }

    /// Compiles a program for this device.
    fn compile(
        &self,
        plan: &Plan<'_>,
        memory_limit: u64,
        fallbacks: &mut BTreeSet<String>,
    ) -> Result<Module, Error> {
        let bytes = program(plan)?;
        let threads = self.0.threads.get_or_init(|| Threads::start(None)).parallel().clone();
        let builder = Module::builder().parallel(threads).run_on(self.0.run_on);
        let module = builder.memory_limit(memory_limit).from_bytes(bytes)?;
        let RunOn::Device(name) = self.0.run_on else { return Ok(module) };
        let own = crate::device_backend(name).map(|backend| backend.name());
        let mut missing = BTreeSet::new();
        for method in module.plan().into_iter().flat_map(|report| &report.methods) {
            for call in &method.calls {
                let backend = match call.location {
                    Location::Device(index) => method.delegates.get(index).map(String::as_str),
                    _ => None,
                };
                if backend != own {
                    missing.insert((call.operator.clone(), call.reason.clone()));
                }
            }
        }
        if let (true, Some((operator, reason))) = (self.0.is_strict, missing.first()) {
            let names: BTreeSet<&str> = missing.iter().map(|(name, _)| name.as_str()).collect();
            let names: Vec<&str> = names.into_iter().collect();
            let because = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
            let reason = format!("the device {self} lacks {}{because}", names.join(", "));
            return Err(Error::Call { operator: operator.clone(), reason });
        }
        for (operator, reason) in missing {
            if !fallbacks.contains(&operator) {
                super::warn(&format!("{operator} runs on the CPU, not on {self}: {reason}"));
                fallbacks.insert(operator);
            }
        }
        Ok(module)
    }
}

impl Programs {
    /// Drops programs whose weights are gone: no key matches them any more.
    fn drop_unreachable(&mut self) {
        self.found.retain(|_, program| program.weights.iter().all(|it| it.strong_count() > 0));
    }

    fn trim(&mut self) {
        let mut bytes = self.found.values().fold(0u64, |sum, it| sum.saturating_add(it.bytes));
        while self.found.len() > self.capacity || (bytes > self.max_bytes && self.found.len() > 1) {
            let oldest = self.found.iter().min_by_key(|(_, program)| program.used);
            let Some(key) = oldest.map(|(key, _)| key.clone()) else { return };
            let dropped = self.found.remove(&key).map_or(0, |program| program.bytes);
            bytes = bytes.saturating_sub(dropped);
        }
    }
}

/// A call that has to be computed.
pub(super) type Step = (Arc<Cell>, Arc<Recorded>);

/// Returns the calls that some values depend on and that are not computed, in execution order.
pub(super) fn steps(targets: &[Value]) -> Vec<Step> {
    let mut found: Vec<Step> = Vec::new();
    let mut seen: HashSet<u64> = HashSet::new();
    // Calls whose arguments are being visited, with the arguments that are left.
    let mut work: Vec<(Step, std::vec::IntoIter<Value>)> = Vec::new();
    let mut visit = |value: &Value| {
        if value.result().is_some() || !seen.insert(value.cell.id) {
            return None;
        }
        let recorded = value.cell.recorded()?;
        let values: Vec<Value> = recorded.args.iter().flat_map(Given::values).cloned().collect();
        Some(((value.cell.clone(), recorded), values.into_iter()))
    };
    for target in targets {
        work.extend(visit(target));
        while let Some((step, mut left)) = work.pop() {
            match left.next() {
                Some(value) => {
                    work.push((step, left));
                    work.extend(visit(&value));
                }
                None => found.push(step),
            }
        }
    }
    found
}

/// Uses of the results of calls, by the calls themselves.
struct Uses {
    /// Number of references to each cell.
    counts: HashMap<u64, usize>,
    /// Index of the last call that reads a result.
    last: HashMap<(u64, usize), usize>,
}

impl Uses {
    fn of(steps: &[Step]) -> Self {
        let (mut counts, mut last) = (HashMap::new(), HashMap::new());
        for (at, (_, recorded)) in steps.iter().enumerate() {
            for value in recorded.args.iter().flat_map(Given::values) {
                *counts.entry(value.cell.id).or_default() += 1;
                last.insert((value.cell.id, value.index), at);
            }
        }
        Uses { counts, last }
    }

    /// Returns the results of a piece of the calls, which ends at `end`, that are read later: by
    /// other pieces, by calls outside, or by the user, who holds tensors with them.
    fn outputs(&self, piece: &[Step], end: usize, target: &Value) -> Vec<Value> {
        let mut found = Vec::new();
        for (cell, _) in piece {
            let inside = self.counts.get(&cell.id).copied().unwrap_or(0);
            let is_target = cell.id == target.cell.id;
            // One reference is the step itself, and `target` is another.
            let own = 1 + usize::from(is_target);
            let is_shared = Arc::strong_count(cell) > inside + cell.holders() + own;
            let needs = |index: usize| {
                let is_read = self.last.get(&(cell.id, index)).is_some_and(|last| *last >= end);
                let is_target = is_target && index == target.index;
                is_shared || is_read || is_target || cell.is_wanted(index)
            };
            let indices = 0..cell.types.len();
            if indices.clone().any(needs) {
                // The call is forgotten, so that views of other results need them now.
                let kept = indices.filter(|index| needs(*index) || cell.is_held(*index));
                found.extend(kept.map(|index| Value { cell: cell.clone(), index }));
            }
        }
        found
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Device {}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if self.0.is_strict { f.write_str(" (strict)") } else { Ok(()) }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self})")
    }
}

/// Dtype and shape of a value, for keys.
pub(super) fn type_words(own: &TensorType, words: &mut Vec<u64>) {
    words.extend([own.scalar_type as u64, own.sizes.len() as u64]);
    words.extend(own.sizes.iter().map(|size| *size as u64));
}

#[cfg(test)]
mod tests {
    use super::super::Tensor;
    use super::*;

    /// Results that nobody holds do not keep the calls of earlier iterations.
    #[test]
    fn loops_over_calls_with_several_results_keep_few_of_them() {
        let mut x = Tensor::from_slice(&[4], &[3.0f32, -1.0, 2.0, 0.5]).unwrap();
        let mut cells: Vec<Weak<Cell>> = Vec::new();
        for round in 0..1000 {
            let (values, indices) = x.sort(0, round % 2 == 0).unwrap();
            let view = indices.unsqueeze(0).unwrap();
            cells.push(Arc::downgrade(&values.value().cell));
            drop((indices, view));
            // A result of the call is kept, the other one is not.
            x = values;
            x.to_vec::<f32>().unwrap();
            assert!(cells.iter().filter(|cell| cell.strong_count() > 0).count() <= 2);
        }
        assert_eq!(x.to_vec::<f32>().unwrap(), [-1.0, 0.5, 2.0, 3.0]);
    }

    #[test]
    fn programs_are_dropped_with_their_weights_and_by_bytes() {
        let device = Device::cpu().strict();
        let count = || lock(&device.0.programs).found.len();
        let x = Tensor::from_slice(&[1, 64], &[1.0f32; 64]).unwrap().to(&device).unwrap();
        for round in 0..5 {
            let weight = Tensor::from_slice(&[64, 64], &[round as f32; 4096]).unwrap();
            let weight = weight.to(&device).unwrap().into_weight().unwrap();
            let y = x.matmul(&weight).unwrap().to_vec::<f32>().unwrap();
            assert_eq!(y, [64.0 * round as f32; 64]);
            assert_eq!(count(), 1);
        }
        for length in 1..5 {
            let x = Tensor::from_slice(&[length], &vec![1.0f32; length]).unwrap();
            x.to(&device).unwrap().exp().unwrap().to_vec::<f32>().unwrap();
        }
        assert_eq!(count(), 4);
        device.set_program_cache_bytes(1);
        assert_eq!(count(), 1);
        assert_eq!((&x + 1.0).to_vec::<f32>().unwrap(), [2.0; 64]);
        assert_eq!(count(), 1);
    }

    /// A view of a result that is not read keeps its elements, although the call is forgotten.
    #[test]
    fn views_of_other_results_are_computed_later() {
        let x = Tensor::from_slice(&[3], &[3.0f32, -1.0, 2.0]).unwrap();
        let (values, indices) = x.sort(0, false).unwrap();
        let view = indices.unsqueeze(0).unwrap();
        drop(indices);
        assert_eq!(values.to_vec::<f32>().unwrap(), [-1.0, 2.0, 3.0]);
        view.add_(1).unwrap();
        assert_eq!(view.to_vec::<i64>().unwrap(), [2, 3, 1]);
        let (values, indices) = x.sort(0, false).unwrap();
        let later = indices.add(1).unwrap();
        drop(indices);
        values.to_vec::<f32>().unwrap();
        assert_eq!(later.to_vec::<i64>().unwrap(), [2, 3, 1]);
    }
}
