//! Where the time of a run goes, as a table.

use crate::terminal::{FAINT, NAME, TITLE, duration, paint};
use std::collections::BTreeMap;
use std::time::Duration;
use torchlet::{ProfileKind, Profiler};

/// Shows the time of each operator and delegate, most expensive first.
pub(crate) fn show(profiler: &Profiler) {
    let mut sums: BTreeMap<(bool, String), (u64, Duration, usize)> = BTreeMap::new();
    let (mut runs, mut whole) = (0, Duration::ZERO);
    for entry in profiler.entries() {
        match entry.kind {
            ProfileKind::Execute => {
                runs += entry.count;
                whole += entry.total;
            }
            ProfileKind::Operator | ProfileKind::Delegate | ProfileKind::DelegatePart => {
                let part = entry.kind == ProfileKind::DelegatePart;
                let sum = sums.entry((part, entry.name)).or_default();
                sum.0 += entry.count;
                sum.1 += entry.total;
                sum.2 += 1;
            }
            _ => {}
        }
    }
    let runs = runs.max(1);
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by_key(|((part, _), (_, total, _))| (*part, std::cmp::Reverse(*total)));
    let header = format!("{:>12}  {:>6}  {:>6}  {}", "time", "share", "calls", "operator");
    anstream::println!("\n{}", paint(TITLE, header));
    let mut accounted = Duration::ZERO;
    let share = |time: Duration| 100.0 * time.as_secs_f64() / whole.as_secs_f64().max(1e-12);
    let each = |time: Duration| duration(time.div_f64(runs as f64));
    for ((part, name), (count, total, _)) in rows {
        if !part {
            accounted += total;
        }
        let calls = count.div_ceil(runs);
        let name = if part { format!("  {name}") } else { name };
        anstream::println!(
            "{:>12}  {:>5.1}%  {calls:>6}  {}",
            each(total),
            share(total),
            paint(NAME, name)
        );
    }
    let rest = whole.saturating_sub(accounted);
    let rest_line = format!("{:>12}  {:>5.1}%  {:>6}  between them", each(rest), share(rest), "");
    anstream::println!("{}", paint(FAINT, rest_line));
    anstream::println!("{:>12}  {:>5.1}%  {:>6}  one run", each(whole), 100.0, "");
}
