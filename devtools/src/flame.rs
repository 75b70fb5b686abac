//! Flame graphs, and folded stacks: one line per stack, with frames separated by `;`, and its time
//! in nanoseconds.

use crate::recording::{Event, Kind, Recording, Run, RunKind};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Time of all runs as folded stacks, sorted by name.
pub fn folded(recording: &Recording) -> Vec<String> {
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    let mut add = |stack: String, time: u64| {
        let sum = stacks.entry(stack).or_default();
        *sum = sum.saturating_add(time);
    };
    for run in &recording.runs {
        let root = match run.kind {
            RunKind::Load => "load",
            _ => "run",
        };
        let whole = run.span().map_or(0, Event::nanoseconds);
        let mut inside = 0;
        let all_parts = parts_of(run);
        for event in &run.events {
            let is_call =
                matches!(event.kind, Kind::Operator | Kind::Delegate | Kind::DelegateInit);
            if !is_call {
                continue;
            }
            inside = event.nanoseconds().saturating_add(inside);
            let mut in_parts = 0u64;
            for part in parts(&all_parts, event) {
                let stack = format!("{root};{};{}", frame(&event.name), frame(&part.name));
                add(stack, part.nanoseconds());
                in_parts = in_parts.saturating_add(part.nanoseconds());
            }
            let own = event.nanoseconds().saturating_sub(in_parts);
            add(format!("{root};{}", frame(&event.name)), own);
        }
        add(root.to_owned(), whole.saturating_sub(inside));
    }
    let lines = stacks.into_iter().filter(|(_, time)| *time > 0);
    lines.map(|(stack, time)| format!("{stack} {time}")).collect()
}

/// Parts of a run's calls, grouped by call and sorted by start.
type Parts<'r> = BTreeMap<(Kind, Option<u32>), Vec<&'r Event>>;

fn parts_of(run: &Run) -> Parts<'_> {
    let mut parts = Parts::new();
    for event in &run.events {
        if matches!(event.kind, Kind::DelegatePart | Kind::DelegateInitPart) {
            parts.entry((event.kind, event.instruction)).or_default().push(event);
        }
    }
    parts.values_mut().for_each(|parts| parts.sort_by_key(|part| part.start));
    parts
}

/// Parts of a call on the host. Device work is excluded: it overlaps with the wait of the host, and
/// would count twice.
fn parts<'r>(parts: &Parts<'r>, call: &'r Event) -> impl Iterator<Item = &'r Event> {
    let kind = match call.kind {
        Kind::DelegateInit => Kind::DelegateInitPart,
        _ => Kind::DelegatePart,
    };
    let own = parts.get(&(kind, call.instruction)).map(Vec::as_slice).unwrap_or_default();
    let first = own.partition_point(|part| part.start < call.start);
    let within = own.iter().skip(first).take_while(|part| part.start <= call.end);
    within.copied().filter(|part| part.location == call.location && part.end <= call.end)
}

/// A name without the separators of folded stacks.
fn frame(name: &str) -> String {
    name.replace([';', '\n'], ",")
}

/// A frame of the graph with its children.
#[derive(Default)]
struct Frame {
    total: u64,
    calls: BTreeMap<String, Frame>,
}

/// Width of the image, height of a frame, and width of a character.
const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 20.0;
const CHAR_WIDTH: f64 = 6.6;
/// Minimum width of a frame.
const MIN_WIDTH: f64 = 0.3;

/// Draws a flame graph of all runs as an SVG, in light or dark colours. Callers are above their
/// callees, sorted by time.
pub fn svg(recording: &Recording, title: &str) -> String {
    let mut root = Frame::default();
    for line in folded(recording) {
        let Some((stack, time)) = line.rsplit_once(' ') else { continue };
        let time: u64 = time.parse().unwrap_or(0);
        root.total = root.total.saturating_add(time);
        let mut frame = &mut root;
        for name in stack.split(';') {
            frame = frame.calls.entry(name.to_owned()).or_default();
            frame.total = frame.total.saturating_add(time);
        }
    }
    let height = HEIGHT * 5.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"ui-monospace, monospace\" font-size=\"11\">\n\
         <style>svg {{ background: #fff }} text {{ fill: #222; pointer-events: none }} rect {{ stroke: #fff; stroke-width: .5 }} rect:hover {{ stroke: #222 }}\n\
         @media (prefers-color-scheme: dark) {{ svg {{ background: #16181d }} .title {{ fill: #ddd }} rect {{ stroke: #16181d }} rect:hover {{ stroke: #fff }} }}</style>\n\
         <text class=\"title\" x=\"4\" y=\"14\">{}, {}</text>\n",
        escaped(title),
        time(root.total)
    );
    let whole = root.total.max(1) as f64;
    draw(&mut svg, &root, 0.0, 1, whole);
    svg.push_str("</svg>\n");
    svg
}

fn draw(svg: &mut String, frame: &Frame, mut left: f64, depth: usize, whole: f64) {
    let mut calls: Vec<(&String, &Frame)> = frame.calls.iter().collect();
    calls.sort_by_key(|(_, call)| std::cmp::Reverse(call.total));
    for (name, call) in calls {
        let width = WIDTH * call.total as f64 / whole;
        if width >= MIN_WIDTH {
            let top = HEIGHT * depth as f64;
            let share = 100.0 * call.total as f64 / whole;
            let (name, time) = (escaped(name), time(call.total));
            // The colour depends on the name, so that graphs can be compared.
            let hue =
                name.bytes().fold(7u32, |hue, byte| hue.wrapping_mul(31).wrapping_add(byte.into()))
                    % 50;
            let letters = (width / CHAR_WIDTH) as usize;
            let shown: String = match name.chars().count() {
                count if count <= letters.saturating_sub(1) => name.clone(),
                _ if letters > 4 && !name.contains('&') => {
                    name.chars().take(letters - 3).chain(['…']).collect()
                }
                _ => String::new(),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(
                svg,
                "<g><title>{name}: {time}, {share:.1} %</title><rect x=\"{left:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{HEIGHT}\" rx=\"2\" fill=\"hsl({} 80% 65%)\"/><text x=\"{:.1}\" y=\"{:.1}\">{shown}</text></g>",
                10 + hue,
                left + 3.0,
                top + 14.0,
            );
            draw(svg, call, left, depth + 1, whole);
        }
        left += width;
    }
}

fn time(nanoseconds: u64) -> String {
    match nanoseconds as f64 {
        time if time >= 1e6 => format!("{:.3} ms", time / 1e6),
        time => format!("{:.2} µs", time / 1e3),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
