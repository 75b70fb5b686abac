//! [`Profile`]: times of operators over all runs.

use crate::recording::{Event, Kind, Location, Recording, Run};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Maximum number of stored times: one per row and run.
const MAX_TIMES: usize = 1 << 24;
/// Part of a delegate's call during which the host waits for a device.
const WAIT: &str = "submit and wait";

/// Statistics of the times of several runs, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Statistics {
    /// 10th percentile.
    pub p10: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// Mean.
    pub mean: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
}

impl Statistics {
    /// Computes the statistics of times. Percentiles are interpolated linearly.
    pub fn of(times: &[u64]) -> Self {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let at = |percent: f64| {
            let position = percent / 100.0 * sorted.len().saturating_sub(1) as f64;
            let (low, high) = (position.floor() as usize, position.ceil() as usize);
            let time = |at: usize| sorted.get(at).map_or(0.0, |time| *time as f64);
            time(low) + (time(high) - time(low)) * (position - position.floor())
        };
        let sum: f64 = sorted.iter().map(|time| *time as f64).sum();
        Statistics {
            p10: at(10.0),
            p50: at(50.0),
            p90: at(90.0),
            mean: sum / sorted.len().max(1) as f64,
            min: at(0.0),
            max: at(100.0),
        }
    }
}

/// A call, or the sum of several calls.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Row {
    /// Name of the operator, of the delegate's part, or of the group.
    pub name: String,
    /// Details that a delegate reports for a part, such as a shape. A part is an event within the
    /// delegate, for example a GPU dispatch.
    pub detail: String,
    /// Instruction index; for a part, that of the delegate's call. `None` for a sum of several.
    pub instruction: Option<u32>,
    /// The delegate's identifier of a part.
    pub part: Option<u32>,
    /// Whether it ran on a device.
    pub on_device: bool,
    /// Calls per run.
    pub calls: u64,
    /// Time in each run, in nanoseconds.
    pub times: Vec<u64>,
}

impl Row {
    /// Statistics of the time per run.
    pub fn statistics(&self) -> Statistics {
        Statistics::of(&self.times)
    }
}

/// Profile of a program.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Profile {
    /// Time of each run, in nanoseconds.
    pub runs: Vec<u64>,
    /// Kernels and parts of delegates, in the order of their first run. Delegates that report no
    /// parts have rows of their own.
    pub rows: Vec<Row>,
    /// Stages of loading with their times in nanoseconds. The total comes last.
    pub load: Vec<(String, u64)>,
}

/// Identity of a call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    instruction: Option<u32>,
    part: Option<u32>,
    name: String,
    location: bool,
}

impl Profile {
    /// Sums up the executions of a recording. The first `warmup` runs are skipped, if there are
    /// more. Stores at most about 16 million times (calls × runs) and drops later runs; only
    /// recordings in which nearly every run has calls of its own reach this limit.
    pub fn of(recording: &Recording, warmup: usize) -> Self {
        let all: Vec<&Run> = recording.executions().collect();
        let runs = all.get(warmup..).filter(|runs| !runs.is_empty()).unwrap_or(&all);
        let mut profile = Profile::default();
        let mut indices: BTreeMap<Key, usize> = BTreeMap::new();
        for (number, run) in runs.iter().enumerate() {
            profile.runs.push(run.span().map_or_else(|| span(run), Event::nanoseconds));
            profile.add(run, number, &mut indices);
            if profile.rows.len().saturating_mul(number + 1) > MAX_TIMES {
                break;
            }
        }
        let count = profile.runs.len();
        for row in &mut profile.rows {
            row.times.resize(count, 0);
            row.calls = row.calls.div_ceil(count.max(1) as u64);
        }
        for run in &recording.runs {
            for event in &run.events {
                match event.kind {
                    Kind::DelegateInitPart => {
                        profile.load.push((event.name.clone(), event.nanoseconds()));
                    }
                    // A recording of the C++ runtime has several.
                    Kind::Load => profile.load.push((event.name.clone(), event.nanoseconds())),
                    _ => {}
                }
            }
        }
        profile
    }

    fn add(&mut self, run: &Run, number: usize, indices: &mut BTreeMap<Key, usize>) {
        // Device time of each delegate call, during which the host waits.
        let mut device: BTreeMap<Option<u32>, u64> = BTreeMap::new();
        let mut with_parts = BTreeSet::new();
        for event in run.events.iter().filter(|event| event.kind == Kind::DelegatePart) {
            with_parts.insert(event.instruction);
            if event.location == Location::Device {
                let work = device.entry(event.instruction).or_default();
                *work = work.saturating_add(event.nanoseconds());
            }
        }
        let mut events: Vec<&Event> = run.events.iter().collect();
        events.sort_by_key(|event| event.start);
        for event in events {
            let mut time = event.nanoseconds();
            match event.kind {
                Kind::Operator => {}
                Kind::Delegate if with_parts.contains(&event.instruction) => continue,
                Kind::Delegate => {}
                Kind::DelegatePart if event.name == WAIT => {
                    // A delegate called several times in a loop waits for its device work only
                    // once.
                    let work = device.get_mut(&event.instruction);
                    let work = work.map_or(0, |left| {
                        let own = (*left).min(time);
                        *left -= own;
                        own
                    });
                    time -= work;
                }
                Kind::DelegatePart => {}
                _ => continue,
            }
            let key = Key {
                instruction: event.instruction,
                part: event.part,
                name: event.name.clone(),
                location: event.location == Location::Device,
            };
            let position = *indices.entry(key).or_insert(self.rows.len());
            if position == self.rows.len() {
                self.rows.push(Row {
                    name: event.name.clone(),
                    detail: event.detail_text(),
                    instruction: event.instruction,
                    part: event.part,
                    on_device: event.location == Location::Device,
                    calls: 0,
                    times: Vec::new(),
                });
            }
            if let Some(row) = self.rows.get_mut(position) {
                if row.times.len() <= number {
                    row.times.resize(number + 1, 0);
                }
                if let Some(last) = row.times.last_mut() {
                    *last = last.saturating_add(time);
                }
                row.calls += 1;
            }
        }
    }

    /// Statistics of the total time per run.
    pub fn total(&self) -> Statistics {
        Statistics::of(&self.runs)
    }

    /// Time of each run that no row accounts for.
    pub fn unaccounted(&self) -> Vec<u64> {
        let rest = self.runs.iter().enumerate().map(|(run, whole)| {
            let rows = self.rows.iter().filter_map(|row| row.times.get(run));
            let rows = rows.fold(0u64, |sum, time| sum.saturating_add(*time));
            whole.saturating_sub(rows)
        });
        rest.collect()
    }

    /// Sums of rows grouped by `name`, longest median first. Rows without a name are dropped.
    pub fn grouped_by(&self, name: impl Fn(&Row) -> Option<String>) -> Vec<Row> {
        let mut sums: BTreeMap<String, Row> = BTreeMap::new();
        for row in &self.rows {
            let Some(name) = name(row) else { continue };
            let sum = sums.entry(name.clone()).or_insert_with(|| Row {
                name,
                detail: String::new(),
                instruction: None,
                part: None,
                on_device: row.on_device,
                calls: 0,
                times: vec![0; self.runs.len()],
            });
            sum.calls = sum.calls.saturating_add(row.calls);
            for (sum, time) in sum.times.iter_mut().zip(&row.times) {
                *sum = sum.saturating_add(*time);
            }
        }
        let mut rows: Vec<Row> = sums.into_values().collect();
        rows.sort_by(|a, b| b.statistics().p50.total_cmp(&a.statistics().p50));
        rows
    }

    /// Sums of rows by operator.
    pub fn by_operator(&self) -> Vec<Row> {
        self.grouped_by(|row| Some(row.name.clone()))
    }

    /// Serializes the profile for [`from_json`](Self::from_json).
    pub fn to_json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            json!({
                "name": row.name,
                "detail": row.detail,
                "instruction": row.instruction,
                "part": row.part,
                "on_device": row.on_device,
                "calls": row.calls,
                "times": row.times,
            })
        });
        let load = self.load.iter().map(|(name, time)| json!({ "name": name, "time": time }));
        json!({
            "format": FORMAT,
            "runs": self.runs,
            "rows": rows.collect::<Vec<_>>(),
            "load": load.collect::<Vec<_>>(),
        })
    }

    /// Parses the result of [`to_json`](Self::to_json).
    ///
    /// # Errors
    /// The value is not a profile, or has another format version.
    pub fn from_json(value: &Value) -> Result<Self, ProfileError> {
        if value["format"] != FORMAT {
            return Err(ProfileError("format"));
        }
        let times = |value: &Value, what| -> Result<Vec<u64>, ProfileError> {
            let items = value.as_array().ok_or(ProfileError(what))?;
            items.iter().map(|time| time.as_u64().ok_or(ProfileError(what))).collect()
        };
        let list = |what| value[what].as_array().ok_or(ProfileError(what));
        let text =
            |value: &Value, what| value.as_str().map(str::to_owned).ok_or(ProfileError(what));
        let runs = times(&value["runs"], "runs")?;
        let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        let row = |row: &Value| {
            Ok(Row {
                name: text(&row["name"], "name")?,
                detail: text(&row["detail"], "detail")?,
                instruction: number(&row["instruction"]),
                part: number(&row["part"]),
                on_device: row["on_device"].as_bool().unwrap_or(false),
                calls: row["calls"].as_u64().ok_or(ProfileError("calls"))?,
                times: Some(times(&row["times"], "times")?)
                    .filter(|times| times.len() == runs.len())
                    .ok_or(ProfileError("times"))?,
            })
        };
        let stage = |stage: &Value| {
            let time = stage["time"].as_u64().ok_or(ProfileError("load"))?;
            Ok((text(&stage["name"], "load")?, time))
        };
        let rows = list("rows")?.iter().map(row).collect::<Result<_, ProfileError>>()?;
        let load = list("load")?.iter().map(stage).collect::<Result<_, ProfileError>>()?;
        Ok(Profile { runs, rows, load })
    }

    /// Compares with an earlier profile: operators with their earlier and current median time in
    /// nanoseconds per run, in the order of decreasing slowdown.
    pub fn compared_with(&self, earlier: &Profile) -> Vec<(String, f64, f64)> {
        let mut changes: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for row in earlier.by_operator() {
            changes.entry(row.name.clone()).or_default().0 = row.statistics().p50;
        }
        for row in self.by_operator() {
            changes.entry(row.name.clone()).or_default().1 = row.statistics().p50;
        }
        let mut changes: Vec<(String, f64, f64)> =
            changes.into_iter().map(|(name, (before, now))| (name, before, now)).collect();
        changes.sort_by(|a, b| (b.2 - b.1).total_cmp(&(a.2 - a.1)));
        changes
    }
}

/// Format identifier of profile files.
const FORMAT: &str = "torchlet profile 1";

/// Time between the first and the last event, for runs without an event that spans them.
fn span(run: &Run) -> u64 {
    let host = || run.events.iter().filter(|event| event.location != Location::Device);
    let start = host().map(|event| event.start).min().unwrap_or(0);
    host().map(|event| event.end).max().unwrap_or(0).saturating_sub(start)
}

/// A malformed profile. Names the invalid field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfileError(&'static str);

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a torchlet profile: the field \"{}\" is missing or invalid", self.0)
    }
}

impl std::error::Error for ProfileError {}

#[cfg(test)]
mod tests;
