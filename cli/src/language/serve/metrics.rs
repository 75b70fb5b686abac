//! Metrics in Prometheus text format.

use super::jobs::Counts;
use super::models::Models;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A metric per model: name, type, help, and value.
type Metric = (&'static str, &'static str, &'static str, fn(&Counts) -> f64);

const OF_MODELS: [Metric; 9] = [
    ("sessions", "gauge", "Sessions that work on requests.", |counts| gauge(&counts.sessions)),
    ("generations_waiting", "gauge", "Requests for text that wait.", |counts| {
        gauge(&counts.waiting)
    }),
    ("generations_running", "gauge", "Requests for text that are worked on.", |counts| {
        gauge(&counts.running)
    }),
    ("generations_total", "counter", "Texts that were generated.", |counts| counter(&counts.done)),
    ("generations_failed_total", "counter", "Requests for text that failed.", |counts| {
        counter(&counts.failed)
    }),
    ("generations_abandoned_total", "counter", "Requests whose client left.", |counts| {
        counter(&counts.abandoned)
    }),
    ("prompt_tokens_total", "counter", "Tokens of prompts that were fed.", |counts| {
        counter(&counts.prompt_tokens)
    }),
    ("generated_tokens_total", "counter", "Tokens that were generated.", |counts| {
        counter(&counts.generated_tokens)
    }),
    ("generation_seconds_total", "counter", "Time that generating took.", |counts| {
        counter(&counts.busy_microseconds) / 1e6
    }),
];

fn gauge(count: &AtomicUsize) -> f64 {
    count.load(Ordering::Relaxed) as f64
}

fn counter(count: &AtomicU64) -> f64 {
    count.load(Ordering::Relaxed) as f64
}

/// Formats the metrics of the server and of each model.
pub(super) fn of(requests: &AtomicU64, connections: &AtomicUsize, models: &Models) -> String {
    let mut text = String::new();
    let begin = |text: &mut String, name: &str, kind: &str, help: &str| {
        let _ = writeln!(text, "# HELP torchlet_{name} {help}\n# TYPE torchlet_{name} {kind}");
    };
    begin(&mut text, "requests_total", "counter", "Requests of all kinds.");
    let _ = writeln!(text, "torchlet_requests_total {}", counter(requests));
    begin(&mut text, "connections", "gauge", "Connections that are open.");
    let _ = writeln!(text, "torchlet_connections {}", gauge(connections));
    for (name, kind, help, read) in OF_MODELS {
        begin(&mut text, name, kind, help);
        for model in models.iter() {
            let value = read(&model.queue.counts);
            let _ = writeln!(text, "torchlet_{name}{{model=\"{}\"}} {value}", escaped(&model.name));
        }
    }
    text
}

/// Escapes a label value.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn labels_are_quoted() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
