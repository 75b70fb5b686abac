//! Where the time goes, over all runs.

use crate::recording::{Event, Kind, Location, Recording, Run};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Times that are kept at most: one for each row and run.
const MOST_TIMES: usize = 1 << 24;
/// The part of a delegate's call during which the host waits for a device.
const WAIT: &str = "submit and wait";

/// Times of several runs, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Statistics {
    /// One in ten was at most so long.
    pub p10: f64,
    /// One in two was.
    pub p50: f64,
    /// Nine in ten were.
    pub p90: f64,
    /// The mean.
    pub mean: f64,
    /// The shortest.
    pub min: f64,
    /// The longest.
    pub max: f64,
}

impl Statistics {
    /// Those of these times; percentiles lie between two times where there is none at their place.
    pub fn of(times: &[u64]) -> Self {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let at = |percent: f64| {
            let place = percent / 100.0 * sorted.len().saturating_sub(1) as f64;
            let (low, high) = (place.floor() as usize, place.ceil() as usize);
            let time = |at: usize| sorted.get(at).map_or(0.0, |time| *time as f64);
            time(low) + (time(high) - time(low)) * (place - place.floor())
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

/// A call, or all calls of something.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Row {
    /// The operator, the delegate's part, or what else rows were added up by.
    pub name: String,
    /// What a delegate says of a part, such as a shape.
    pub detail: String,
    /// The instruction; of a part, that of the delegate's call. `None` for sums of several.
    pub instruction: Option<u32>,
    /// The delegate's own number of a part.
    pub part: Option<u32>,
    /// Whether a device did it.
    pub on_device: bool,
    /// Calls in one run.
    pub calls: u64,
    /// The time that it took in each run.
    pub times: Vec<u64>,
}

impl Row {
    /// How long it takes in a run.
    pub fn statistics(&self) -> Statistics {
        Statistics::of(&self.times)
    }
}

/// Where the time of a program goes.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Profile {
    /// The time of each run.
    pub runs: Vec<u64>,
    /// Kernels, and parts of delegates, in the order in which they ran first. Delegates that tell
    /// of no parts are rows themselves.
    pub rows: Vec<Row>,
    /// What loading consisted of, and how long it took: the whole comes last.
    pub load: Vec<(String, u64)>,
}

/// What tells calls apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    instruction: Option<u32>,
    part: Option<u32>,
    name: String,
    location: bool,
}

impl Profile {
    /// Adds up the executions of a recording. The first `warmup` are left out, if there are more;
    /// so are the last ones of a recording whose runs consist of ever other calls, behind some
    /// millions of times.
    pub fn of(recording: &Recording, warmup: usize) -> Self {
        let all: Vec<&Run> = recording.executions().collect();
        let runs = all.get(warmup..).filter(|runs| !runs.is_empty()).unwrap_or(&all);
        let mut profile = Profile::default();
        let mut places: BTreeMap<Key, usize> = BTreeMap::new();
        for (number, run) in runs.iter().enumerate() {
            profile.runs.push(run.whole().map_or_else(|| span(run), Event::nanoseconds));
            profile.add(run, number, &mut places);
            if profile.rows.len().saturating_mul(number + 1) > MOST_TIMES {
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
                    // Of the C++ runtime, there are several.
                    Kind::Load => profile.load.push((event.name.clone(), event.nanoseconds())),
                    _ => {}
                }
            }
        }
        profile
    }

    fn add(&mut self, run: &Run, number: usize, places: &mut BTreeMap<Key, usize>) {
        // The device's work of each call of a delegate, while which the host waits.
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
                    // A delegate that is called again in a loop has waited for all of it.
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
            let place = *places.entry(key).or_insert(self.rows.len());
            if place == self.rows.len() {
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
            if let Some(row) = self.rows.get_mut(place) {
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

    /// The time of a run.
    pub fn whole(&self) -> Statistics {
        Statistics::of(&self.runs)
    }

    /// The time of all that is no row, in each run.
    pub fn rest(&self) -> Vec<u64> {
        let rest = self.runs.iter().enumerate().map(|(run, whole)| {
            let rows = self.rows.iter().filter_map(|row| row.times.get(run));
            let rows = rows.fold(0u64, |sum, time| sum.saturating_add(*time));
            whole.saturating_sub(rows)
        });
        rest.collect()
    }

    /// Rows added up by what they are called here, those that take longest first.
    pub fn by(&self, name: impl Fn(&Row) -> Option<String>) -> Vec<Row> {
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

    /// Rows added up by operator.
    pub fn by_operator(&self) -> Vec<Row> {
        self.by(|row| Some(row.name.clone()))
    }

    /// The profile for [`from_json`](Self::from_json).
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

    /// Reads what [`to_json`](Self::to_json) made.
    ///
    /// # Errors
    /// It is no profile, or not of this format.
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

    /// What became slower or faster than in an earlier profile, by operator, in nanoseconds of a
    /// run: what became slower first.
    pub fn against(&self, earlier: &Profile) -> Vec<(String, f64, f64)> {
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

/// What files of profiles say they are.
const FORMAT: &str = "torchlet profile 1";

/// The time between the first event and the last, of runs that no event spans.
fn span(run: &Run) -> u64 {
    let host = || run.events.iter().filter(|event| event.location != Location::Device);
    let start = host().map(|event| event.start).min().unwrap_or(0);
    host().map(|event| event.end).max().unwrap_or(0).saturating_sub(start)
}

/// Why something is no profile: the part that is not as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfileError(&'static str);

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this is no profile that torchlet wrote: its \"{}\" is not as expected", self.0)
    }
}

impl std::error::Error for ProfileError {}

#[cfg(test)]
mod tests;
