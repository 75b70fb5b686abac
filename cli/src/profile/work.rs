//! Work of calls, and the time that it requires on a processor.

use super::roofline::{Processor, Roof, measured, roof};
use crate::arguments::{ModelOptions, Roofline};
use crate::model;
use std::collections::BTreeMap;
use torchlet::core::{Registry, ScalarType, ValueMeta};
use torchlet::graph;
use torchlet::{Module, Value};
use torchlet_devtools::{Profile, Row};

/// An amount of work: arithmetic operations and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Amount {
    pub(super) operations: f64,
    pub(super) bytes: f64,
}

impl Amount {
    pub(super) fn add(&mut self, other: Amount) {
        self.operations += other.operations;
        self.bytes += other.bytes;
    }

    fn times(self, count: f64) -> Amount {
        Amount { operations: self.operations * count, bytes: self.bytes * count }
    }
}

/// Work, and the minimum time for it in nanoseconds; zero if unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Bounded {
    pub(super) amount: Amount,
    pub(super) bound: f64,
}

impl Bounded {
    pub(super) fn add(&mut self, other: Bounded) {
        self.amount.add(other.amount);
        self.bound += other.bound;
    }

    /// The share of the peak rate that was reached, given the time in nanoseconds.
    pub(super) fn share(&self, nanoseconds: f64) -> Option<f64> {
        (self.bound > 0.0 && nanoseconds > 0.0).then(|| self.bound / nanoseconds)
    }
}

/// Instruction index, and index of a call within a delegate.
type Number = (u32, Option<u32>);

/// Work of a method's calls, as far as shapes determine it, and peak rates of the processors.
#[derive(Debug, Clone, Default)]
pub(super) struct Work {
    calls: BTreeMap<Number, Calls>,
    /// Number of rows that compute on a device, and the name of the longest, by call.
    device_rows: BTreeMap<Number, (usize, String)>,
    pub(super) roofs: BTreeMap<Processor, Roof>,
    /// Peak rates measured before the program ran.
    earlier: BTreeMap<Processor, Roof>,
    /// Whether inputs were smaller than the shapes in the program, so that the work is unknown.
    pub(super) has_smaller_inputs: bool,
}

/// Calls with the same index: more than one if a delegate without indices was decomposed, or if
/// calls were merged.
#[derive(Debug, Clone, Copy, Default)]
struct Calls {
    count: usize,
    amount: Amount,
    /// The part with fp16, bf16 or quantized results, which GPUs compute at another rate. The still
    /// higher rate for quantized values on some devices is not measured.
    fp16: Amount,
}

impl Work {
    /// Computes the work of a run with these inputs.
    pub(super) fn of(module: &Module, method: &str, values: &[Value]) -> Self {
        if !have_max_size(module, method, values) {
            return Work { has_smaller_inputs: true, ..Work::default() };
        }
        let Ok(registry) = Registry::new().with_kernels(&torchlet::portable::KERNELS) else {
            return Work::default();
        };
        let mut work = Work::default();
        // Work is optional: times are shown without it if it cannot be computed.
        let methods = graph::work(&module.program(), module.data(), &registry, &model::prepare);
        let methods = methods.unwrap_or_default();
        for (_, calls) in methods.into_iter().filter(|(name, _)| name == method) {
            for call in calls {
                let Ok(instruction) = u32::try_from(call.instruction) else { continue };
                let amount = Amount { operations: call.operations, bytes: call.bytes };
                let calls = work.calls.entry((instruction, call.part)).or_default();
                calls.count += 1;
                calls.amount.add(amount);
                let narrow = [ScalarType::Half, ScalarType::BFloat16, ScalarType::Char];
                if call.scalar_type.is_some_and(|it| narrow.contains(&it)) {
                    calls.fp16.add(amount);
                }
            }
        }
        work
    }

    /// Measures the processors that the program may run on, before it does. Load from other
    /// processes makes rates too low: [`Self::find_roofs`] measures again and keeps the larger
    /// ones.
    pub(super) fn find_earlier_roofs(&mut self, how: Roofline, options: &ModelOptions) {
        let mut all = Calls::default();
        for calls in self.calls.values() {
            all.amount.add(calls.amount);
            all.fp16.add(calls.fp16);
        }
        let has_device = model::device(options).is_some();
        for processor in [Processor::Cpu, Processor::Gpu] {
            if !matches!(how, Roofline::Measured)
                || all.amount == Amount::default()
                || (processor == Processor::Gpu && !has_device)
            {
                continue;
            }
            let scalar_type = measured_type(processor, all.amount, all.fp16);
            // Failures are reported by the measurement after the runs.
            if let Ok(Some(found)) = measured(processor, scalar_type, options) {
                self.earlier.insert(processor, found);
            }
        }
    }

    /// Measures the processors that the calls of a profile ran on.
    pub(super) fn find_roofs(
        &mut self,
        profile: &Profile,
        how: Roofline,
        options: &ModelOptions,
        threads: usize,
    ) {
        self.find_device_rows(profile);
        for processor in [Processor::Cpu, Processor::Gpu] {
            let (mut all, mut fp16) = (Amount::default(), Amount::default());
            for (calls, times) in self.calls_of(profile, processor) {
                all.add(calls.amount.times(times));
                fp16.add(calls.fp16.times(times));
            }
            if all == Amount::default() {
                continue;
            }
            let scalar_type = measured_type(processor, all, fp16);
            if let Some(found) = roof(how, processor, scalar_type, options, threads) {
                let earlier = self.earlier.get(&processor);
                self.roofs.insert(processor, earlier.map_or(found, |it| found.larger(it)));
            }
        }
    }

    fn find_device_rows(&mut self, profile: &Profile) {
        let mut longest: BTreeMap<Number, f64> = BTreeMap::new();
        for row in profile.rows.iter().filter(|row| row.on_device && is_work(row)) {
            let Some(instruction) = row.instruction else { continue };
            let (number, time) = ((instruction, row.part), row.statistics().p50);
            let (count, name) = self.device_rows.entry(number).or_default();
            *count += 1;
            let longest = longest.entry(number).or_insert(-1.0);
            if time > *longest {
                (*longest, *name) = (time, row.name.clone());
            }
        }
    }

    /// Calls of a profile that ran on a processor, each with its number of executions per run.
    fn calls_of(
        &self,
        profile: &Profile,
        processor: Processor,
    ) -> impl Iterator<Item = (Calls, f64)> {
        let mut found: BTreeMap<Number, f64> = BTreeMap::new();
        for row in &profile.rows {
            let Some(instruction) = row.instruction else { continue };
            if Processor::of(row) == processor && (row.part.is_none() || is_work(row)) {
                // In a loop, an instruction runs several times.
                let times = if row.part.is_none() { row.calls as f64 } else { 1.0 };
                found.insert((instruction, row.part), times);
            }
        }
        found.into_iter().filter_map(|(number, times)| Some((*self.calls.get(&number)?, times)))
    }

    /// Work of a run, and the minimum time for it.
    pub(super) fn whole(&self, profile: &Profile) -> Bounded {
        let mut whole = Bounded::default();
        for processor in [Processor::Cpu, Processor::Gpu] {
            for (calls, times) in self.calls_of(profile, processor) {
                whole.add(self.bounded_on(processor, calls.amount.times(times)));
            }
        }
        whole
    }

    fn bounded_on(&self, processor: Processor, amount: Amount) -> Bounded {
        let roof = self.roofs.get(&processor);
        Bounded { amount, bound: roof.map_or(0.0, |roof| roof.bound(amount)) }
    }

    /// Work of a row, and the minimum time for it.
    pub(super) fn bounded(&self, row: &Row) -> Bounded {
        self.bounded_on(Processor::of(row), self.row(row).unwrap_or_default())
    }

    /// Work of a row per run, if it is known.
    fn row(&self, row: &Row) -> Option<Amount> {
        let number = (row.instruction?, row.part);
        let calls = self.calls.get(&number)?;
        if row.part.is_none() {
            // In a loop, an instruction runs several times.
            return Some(calls.amount.times(row.calls as f64));
        }
        let is_told = match self.device_rows.get(&number) {
            // The work of a call is attributed to its longest dispatch.
            Some((_, longest)) if row.on_device && calls.count == 1 => row.name == *longest,
            // Several calls in several rows cannot be told apart.
            Some((rows, _)) if row.on_device => *rows == 1,
            _ => true,
        };
        (is_told && is_work(row)).then_some(calls.amount)
    }
}

/// Whether inputs are at least as large as the shapes in the program, which are upper bounds.
fn have_max_size(module: &Module, method: &str, values: &[Value]) -> bool {
    let Ok(meta) = module.method_meta(method) else { return true };
    values.iter().enumerate().all(|(position, value)| match (value, meta.input(position)) {
        (Value::Tensor(tensor), Ok(Some(ValueMeta::Tensor(largest)))) => {
            tensor.numel() >= largest.info.numel()
        }
        _ => true,
    })
}

/// Whether a part of a delegate computes; transfers have indices of another kind.
pub(super) fn is_work(row: &Row) -> bool {
    row.name.contains("::") || row.name.contains('.')
}

/// Element type whose arithmetic rate bounds a program: float, or half precision for most of the
/// work of a GPU.
fn measured_type(processor: Processor, all: Amount, fp16: Amount) -> ScalarType {
    let is_fp16 = processor == Processor::Gpu && fp16.operations > all.operations / 2.0;
    if is_fp16 { ScalarType::Half } else { ScalarType::Float }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchlet_devtools::Profile;

    #[test]
    fn calls_in_loops_count_each_time() {
        let saved = serde_json::json!({
            "format": "torchlet profile 1", "runs": [9], "load": [],
            "rows": [{ "name": "aten::add.out", "detail": "", "instruction": 2, "calls": 3, "times": [9] }],
        });
        let profile = Profile::from_json(&saved).unwrap();
        let mut work = Work::default();
        let amount = Amount { operations: 10.0, bytes: 4.0 };
        work.calls.insert((2, None), Calls { count: 1, amount, fp16: Amount::default() });
        let all = Amount { operations: 30.0, bytes: 12.0 };
        assert_eq!(work.row(&profile.rows[0]), Some(all));
        assert_eq!(work.whole(&profile), Bounded { amount: all, bound: 0.0 });
        work.roofs.insert(Processor::Cpu, Roof { operations: 1e9, bytes: 1e9, measured: None });
        assert_eq!(work.bounded(&profile.rows[0]), Bounded { amount: all, bound: 30.0 });
        assert_eq!(work.bounded(&profile.rows[0]).share(60.0), Some(0.5));
    }

    /// Device rows by name and time, all of call 0 of the delegate that instruction 0 calls.
    fn rows(rows: &[(&str, u64)]) -> Profile {
        let rows: Vec<_> = rows
            .iter()
            .map(|(name, time)| {
                serde_json::json!({
                    "name": name, "detail": "", "instruction": 0, "part": 0, "on_device": true,
                    "calls": 1, "times": [time]
                })
            })
            .collect();
        let saved = serde_json::json!({
            "format": "torchlet profile 1", "runs": [9], "load": [], "rows": rows
        });
        Profile::from_json(&saved).unwrap()
    }

    #[test]
    fn dispatches_of_one_call_count_once() {
        let profile = rows(&[("aten.mm (sum)", 2), ("aten.mm (product)", 7), ("input (copy)", 9)]);
        let amount = Amount { operations: 10.0, bytes: 4.0 };
        let amounts = |count| {
            let mut work = Work::default();
            work.calls.insert((0, Some(0)), Calls { count, amount, fp16: amount });
            work.find_device_rows(&profile);
            assert_eq!(work.whole(&profile).amount, amount);
            profile.rows.iter().map(|row| work.row(row)).collect::<Vec<_>>()
        };
        assert_eq!(amounts(1), [None, Some(amount), None]);
        assert_eq!(amounts(2), [None, None, None]);
    }
}
