//! Profiles of runs as tables.

use crate::arguments::Profile;
use crate::terminal::{FAINT, NAME, TITLE, duration, paint};
use std::collections::BTreeMap;
use std::time::Duration;
use torchlet::{ProfileEntry, ProfileKind, Profiler};

/// Detail that delegates give for parts measured on the host.
const HOST: &str = "host";

/// Shows the time of each operator and delegate, then of the parts that delegates reported.
pub(crate) fn show(profiler: &Profiler, detail: Profile) {
    let entries = profiler.entries();
    let of = |kind: ProfileKind| entries.iter().filter(move |entry| entry.kind == kind);
    let runs = of(ProfileKind::Execute).map(|entry| entry.count).sum::<u64>().max(1);
    let whole: Duration = of(ProfileKind::Execute).map(|entry| entry.total).sum();

    let table = Table { runs, whole };
    table.header("operator");
    let mut accounted = Duration::ZERO;
    let instructions = of(ProfileKind::Operator).chain(of(ProfileKind::Delegate));
    for sum in by_name(instructions) {
        accounted += sum.total;
        table.row(sum.total, sum.count, &paint(NAME, sum.name));
    }
    table.rest(whole.saturating_sub(accounted), "between calls");
    table.total("one run");

    let parts: Vec<_> = of(ProfileKind::DelegatePart).collect();
    let (host, device): (Vec<_>, Vec<_>) = parts.iter().partition(|entry| entry.detail == HOST);
    if !host.is_empty() {
        table.header("delegates, on the host");
        for sum in in_order(host.into_iter().copied()) {
            table.row(sum.total, sum.count, &paint(NAME, sum.name));
        }
    }
    if !device.is_empty() {
        let whole = device.iter().map(|entry| entry.total).sum();
        let table = Table { runs, whole };
        table.header("delegates, on the device");
        for sum in by_name(device.iter().copied().copied()) {
            table.row(sum.total, sum.count, &paint(NAME, sum.name));
        }
        table.total("one run");
        if detail == Profile::Calls {
            table.header("each call, in order");
            for entry in device {
                let name = format!("#{} {}", entry.part, entry.name);
                let detail = paint(FAINT, &entry.detail);
                table.row(entry.total, entry.count, &format!("{} {detail}", paint(NAME, name)));
            }
        }
    }
    loading(&entries);
}

/// Total time that delegates spent on their devices so far.
pub(crate) fn on_devices(profiler: &Profiler) -> Duration {
    let entries = profiler.entries();
    let parts = entries.iter().filter(|entry| entry.kind == ProfileKind::DelegatePart);
    parts.filter(|entry| entry.detail != HOST).map(|entry| entry.total).sum()
}

/// Shows the steps of delegates' initialization.
fn loading(entries: &[ProfileEntry]) {
    let of = |kind: ProfileKind| entries.iter().filter(move |entry| entry.kind == kind);
    if of(ProfileKind::DelegateInitPart).next().is_none() {
        return;
    }
    let load: Duration = of(ProfileKind::Load).map(|entry| entry.total).sum();
    let delegates: Duration = of(ProfileKind::DelegateInitPart).map(|entry| entry.total).sum();
    // The device may have been opened before the load.
    let whole = load.max(delegates);
    let table = Table { runs: 1, whole };
    table.header("loading");
    for sum in in_order(of(ProfileKind::DelegateInitPart)) {
        let detail = if sum.detail == HOST { "" } else { sum.detail };
        let what = format!("{} {}", paint(NAME, sum.name), paint(FAINT, detail));
        table.row(sum.total, sum.count, what.trim_end());
    }
    table.rest(whole.saturating_sub(delegates), "other");
    table.total("the method");
}

/// Total time of the entries of one name.
struct Sum<'e> {
    name: &'e str,
    detail: &'e str,
    count: u64,
    total: Duration,
}

/// Sums by name, in order of first appearance.
fn in_order<'e>(entries: impl Iterator<Item = &'e ProfileEntry>) -> Vec<Sum<'e>> {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut sums: Vec<Sum<'e>> = Vec::new();
    for entry in entries {
        let place = *places.entry(&entry.name).or_insert(sums.len());
        if place == sums.len() {
            sums.push(Sum {
                name: &entry.name,
                detail: &entry.detail,
                count: 0,
                total: Duration::ZERO,
            });
        }
        sums[place].count += entry.count;
        sums[place].total += entry.total;
    }
    sums
}

/// Sums by name, in descending order of time.
fn by_name<'e>(entries: impl Iterator<Item = &'e ProfileEntry>) -> Vec<Sum<'e>> {
    let mut sums = in_order(entries);
    sums.sort_by_key(|sum| std::cmp::Reverse(sum.total));
    sums
}

/// A table of times per run, and their shares of the total.
struct Table {
    runs: u64,
    whole: Duration,
}

impl Table {
    fn header(&self, what: &str) {
        let header = format!("{:>12}  {:>6}  {:>6}  {what}", "time", "share", "calls");
        anstream::println!("\n{}", paint(TITLE, header));
    }

    fn line(&self, time: Duration, calls: &str, what: &str) -> String {
        let share = 100.0 * time.as_secs_f64() / self.whole.as_secs_f64().max(1e-12);
        let each = duration(time.div_f64(self.runs as f64));
        format!("{each:>12}  {share:>5.1}%  {calls:>6}  {what}")
    }

    fn row(&self, time: Duration, count: u64, what: &str) {
        anstream::println!("{}", self.line(time, &count.div_ceil(self.runs).to_string(), what));
    }

    fn rest(&self, time: Duration, what: &str) {
        anstream::println!("{}", paint(FAINT, self.line(time, "", what)));
    }

    fn total(&self, what: &str) {
        anstream::println!("{}", self.line(self.whole, "", what));
    }
}
