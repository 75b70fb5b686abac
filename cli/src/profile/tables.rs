//! Profiles as tables and as JSON.

use super::Report;
use super::roofline::{Processor, Roof};
use super::work::{Amount, Bounded};
use crate::terminal::{BAD, FAINT, GOOD, NAME, TITLE, WARN, bytes, count, duration, paint};
use anstream::println;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use torchlet_devtools::{Row, Statistics};

/// Maximum number of calls shown without `--calls`.
const MAX_CALLS_SHOWN: usize = 15;

/// Shows the tables.
pub(super) fn show(report: &Report, all_calls: bool) {
    let profile = &report.profile;
    let whole = profile.total();
    let runs = format!(
        "{}, p10 {}, p90 {}",
        count(profile.runs.len(), "run"),
        time(whole.p10),
        time(whole.p90)
    );
    println!("{} {}", paint(TITLE, time(whole.p50)), paint(FAINT, runs));
    let table = Table { whole: whole.p50, report };
    let by_name = |row: &Row| Some(row.name.clone());
    table.show("operator", &profile.by_operator(), &table.amounts(by_name), usize::MAX);
    table.rest();
    if report.source.is_some() {
        let module = |row: &Row| report.module(row);
        table.show(
            "module of the source",
            &profile.grouped_by(module),
            &table.amounts(module),
            usize::MAX,
        );
    }
    let mut calls = profile.rows.clone();
    let max = if all_calls { usize::MAX } else { MAX_CALLS_SHOWN };
    if !all_calls {
        calls.sort_by(|a, b| b.statistics().p50.total_cmp(&a.statistics().p50));
    }
    for row in &mut calls {
        row.name = described(row);
    }
    let amounts =
        profile.rows.iter().map(|row| (described(row), report.work.bounded(row))).collect();
    let title = if all_calls { "call, in order" } else { "call, the longest" };
    table.show(title, &calls, &amounts, max);
    roofline(report);
    loading(report);
    memory(report);
    against(report);
}

fn described(row: &Row) -> String {
    let number = row.instruction.map_or(String::new(), |number| format!("{number}"));
    let part = row.part.map_or(String::new(), |part| format!(".{part}"));
    let detail = if row.detail == "host" { "" } else { &row.detail };
    format!("#{number}{part} {} {detail}", row.name).trim_end().to_owned()
}

fn time(nanoseconds: f64) -> String {
    duration(Duration::from_secs_f64(nanoseconds.max(0.0) / 1e9))
}

struct Table<'r> {
    whole: f64,
    report: &'r Report,
}

impl Table<'_> {
    /// Sums the work of rows by name.
    fn amounts(&self, name: impl Fn(&Row) -> Option<String>) -> BTreeMap<String, Bounded> {
        let mut amounts: BTreeMap<String, Bounded> = BTreeMap::new();
        for row in &self.report.profile.rows {
            if let Some(name) = name(row) {
                amounts.entry(name).or_default().add(self.report.work.bounded(row));
            }
        }
        amounts
    }

    fn show(&self, what: &str, rows: &[Row], amounts: &BTreeMap<String, Bounded>, max: usize) {
        let header = format!(
            "{:>11} {:>11} {:>11}  {:>6}  {:>5}  {:>9} {:>9} {:>6}  {what}",
            "p50", "p10", "p90", "share", "calls", "GFLOP/s", "GB/s", "roof"
        );
        println!("\n{}", paint(TITLE, header));
        for row in rows.iter().take(max) {
            let Statistics { p10, p50, p90, .. } = row.statistics();
            let bounded = amounts.get(&row.name).copied().unwrap_or_default();
            let amount = bounded.amount;
            let reached = bounded.share(p50).map(percent);
            let share = 100.0 * p50 / self.whole.max(1.0);
            let device = if row.on_device { paint(FAINT, " on the device") } else { String::new() };
            println!(
                "{:>11} {:>11} {:>11}  {share:>5.1}%  {:>5}  {:>9} {:>9} {:>6}  {}{device}",
                time(p50),
                time(p10),
                time(p90),
                row.calls,
                rate(amount.operations, p50),
                rate(amount.bytes, p50),
                reached.unwrap_or_default(),
                paint(NAME, &row.name),
            );
        }
        if rows.len() > max {
            println!(
                "{}",
                paint(FAINT, format!("and {} more: --calls shows them", rows.len() - max))
            );
        }
    }

    fn rest(&self) {
        let rest = Statistics::of(&self.report.profile.unaccounted()).p50;
        let share = 100.0 * rest / self.whole.max(1.0);
        let line =
            format!("{:>11} {:>23}  {share:>5.1}%  {:>33}  between calls", time(rest), "", "");
        println!("{}", paint(FAINT, line));
    }
}

/// Formats the share of the peak rate. A share above 1 means that the measured peak rates are too
/// low.
fn percent(share: f64) -> String {
    if share > 1.0 { ">100%".to_owned() } else { format!("{:.0}%", 100.0 * share) }
}

/// Formats a rate in units of 10⁹ per second.
fn rate(amount: f64, nanoseconds: f64) -> String {
    if amount <= 0.0 || nanoseconds <= 0.0 {
        return String::new();
    }
    format!("{:.1}", amount / nanoseconds)
}

/// Shows the processors' peak rates, and the program's share of them.
fn roofline(report: &Report) {
    if report.work.has_smaller_inputs {
        println!(
            "\nNo roofline: the program's work is known only for its largest inputs, and these are \
             smaller."
        );
    }
    if report.work.roofs.is_empty() {
        return;
    }
    println!("\n{}", paint(TITLE, "roofline"));
    for (processor, roof) in &report.work.roofs {
        let name = match processor {
            Processor::Cpu => "this processor",
            Processor::Gpu => "this GPU",
        };
        let (whose, element) = match (roof.measured, processor) {
            (Some(element), _) => ("measured", format!(" in {element}")),
            (None, Processor::Cpu) => ("by the compiler's model", String::new()),
            (None, Processor::Gpu) => ("by the compiler's model of its kind", String::new()),
        };
        println!(
            "  {name}, {whose}: {}FLOP/s{element}, {}B/s; compute-bound above {:.1} operations per \
             byte",
            large(roof.operations),
            large(roof.bytes),
            roof.operations / roof.bytes,
        );
    }
    let all = report.work.whole(&report.profile);
    println!(
        "  this program: {:.3} GFLOP, {:.1} MB of memory traffic, {:.1} operations per byte; {} at \
         these rates, {} of the measured time",
        all.amount.operations / 1e9,
        all.amount.bytes / 1e6,
        all.amount.operations / all.amount.bytes.max(1.0),
        time(all.bound),
        percent(all.bound / report.profile.total().p50.max(1.0)),
    );
    if all.bound > report.profile.total().p50.max(1.0) {
        let what = "the run is faster than these rates allow, which were measured after it: \
                    another process was running then, or its data fits the caches; profile again \
                    on an idle machine";
        println!("  {}", paint(WARN, what));
    }
    if report.work.roofs.values().any(|roof| roof.measured.is_some()) {
        let what = "the memory rate excludes caches and the arithmetic rate is for floats: calls \
                    whose data fits the caches and int8 matmuls can exceed them";
        println!("  {}", paint(FAINT, what));
    }
}

/// Formats a number with a unit prefix and at least three digits.
fn large(rate: f64) -> String {
    let (scaled, prefix) = if rate < 1e13 { (rate / 1e9, "G") } else { (rate / 1e12, "T") };
    let digits = if scaled < 100.0 { 1 } else { 0 };
    format!("{scaled:.digits$} {prefix}")
}

fn loading(report: &Report) {
    let load = &report.profile.load;
    if load.is_empty() {
        return;
    }
    println!("\n{}", paint(TITLE, format!("{:>11}  loading", "time")));
    for (name, nanoseconds) in load {
        println!("{:>11}  {}", time(*nanoseconds as f64), paint(NAME, name));
    }
}

fn memory(report: &Report) {
    if report.memory.is_empty() {
        return;
    }
    println!("\n{}", paint(TITLE, format!("{:>11}  memory", "bytes")));
    for (allocator, size) in &report.memory {
        println!("{:>11}  {}", bytes(*size), paint(NAME, allocator));
    }
}

/// Differences below this share of a run are treated as noise.
const NOISE: f64 = 0.005;

fn against(report: &Report) {
    let Some(earlier) = &report.earlier else { return };
    let (before, now) = (earlier.total().p50, report.profile.total().p50);
    let header = format!(
        "{:>11} {:>11} {:>11} {:>8}  against the earlier profile",
        "before", "now", "difference", "ratio"
    );
    println!("\n{}", paint(TITLE, header));
    change(before, now, "one run");
    for (name, before, now) in report.profile.compared_with(earlier) {
        if (now - before).abs() > NOISE * now.max(before).max(report.profile.total().p50) {
            change(before, now, &name);
        }
    }
}

fn change(before: f64, now: f64, name: &str) {
    let (sign, style) = if now > before { ('+', BAD) } else { ('-', GOOD) };
    let difference = format!("{:>11}", format!("{sign}{}", time((now - before).abs())));
    let ratio = if before > 0.0 { format!("{:.2}", now / before) } else { "new".to_owned() };
    let difference = paint(style, difference);
    println!(
        "{:>11} {:>11} {difference} {ratio:>8}  {}",
        time(before),
        time(now),
        paint(NAME, name)
    );
}

/// Returns the profile as JSON.
pub(super) fn object(report: &Report) -> Value {
    let statistics = |times: Statistics| {
        json!({
            "p10": times.p10, "p50": times.p50, "p90": times.p90, "mean": times.mean, "min": times.min,
            "max": times.max
        })
    };
    let row = |row: &Row| {
        let bounded = report.work.bounded(row);
        let Amount { operations, bytes } = bounded.amount;
        json!({
            "name": row.name,
            "detail": row.detail,
            "instruction": row.instruction,
            "part": row.part,
            "on_device": row.on_device,
            "calls": row.calls,
            "nanoseconds": statistics(row.statistics()),
            "operations": operations,
            "bytes": bytes,
            "roof_share": bounded.share(row.statistics().p50),
            "module": report.module(row),
        })
    };
    let sum = |row: &Row| {
        json!({
            "name": row.name, "calls": row.calls, "nanoseconds": statistics(row.statistics())
        })
    };
    let profile = &report.profile;
    let module = |row: &Row| report.module(row);
    let load = profile.load.iter().map(|(name, time)| json!({ "name": name, "nanoseconds": time }));
    let changes = report.earlier.iter().flat_map(|earlier| profile.compared_with(earlier));
    let changes =
        changes.map(|(name, before, now)| json!({ "name": name, "before": before, "now": now }));
    let roof = |(processor, roof): (&Processor, &Roof)| {
        json!({
            "processor": format!("{processor:?}").to_lowercase(),
            "operations": roof.operations,
            "bytes": roof.bytes,
            "measured_in": roof.measured.map(|element| element.to_string()),
        })
    };
    json!({
        "runs": profile.runs.len(),
        "nanoseconds": statistics(profile.total()),
        "operators": profile.by_operator().iter().map(sum).collect::<Vec<_>>(),
        "modules": profile.grouped_by(module).iter().map(sum).collect::<Vec<_>>(),
        "calls": profile.rows.iter().map(row).collect::<Vec<_>>(),
        "load": load.collect::<Vec<_>>(),
        "memory": report.memory,
        "changes": changes.collect::<Vec<_>>(),
        "roofline": report.work.roofs.iter().map(roof).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_above_100_percent_are_marked() {
        assert_eq!([0.0, 0.254, 1.0, 14.53].map(percent), ["0%", "25%", "100%", ">100%"]);
    }

    #[test]
    fn large_numbers_have_units() {
        let texts = [4.44e9, 1.28e11, 2.79e12, 2.256e14].map(large);
        assert_eq!(texts, ["4.4 G", "128 G", "2790 G", "226 T"]);
    }
}
