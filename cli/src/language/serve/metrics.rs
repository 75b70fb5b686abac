//! Metrics in Prometheus text format.

use super::jobs::Counts;
use super::models::Models;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A metric per model: name, type, help, and value.
type Metric = (&'static str, &'static str, &'static str, fn(&Counts) -> f64);

const MODEL_METRICS: [Metric; 9] = [
    ("sessions", "gauge", "Sessions that process requests.", |counts| gauge(&counts.sessions)),
    ("generations_waiting", "gauge", "Waiting generation requests.", |counts| {
        gauge(&counts.waiting)
    }),
    ("generations_running", "gauge", "Running generation requests.", |counts| {
        gauge(&counts.running)
    }),
    ("generations_total", "counter", "Completed generation requests.", |counts| {
        counter(&counts.done)
    }),
    ("generations_failed_total", "counter", "Failed generation requests.", |counts| {
        counter(&counts.failed)
    }),
    (
        "generations_abandoned_total",
        "counter",
        "Generation requests whose client disconnected.",
        |counts| counter(&counts.abandoned),
    ),
    ("prompt_tokens_total", "counter", "Prompt tokens processed.", |counts| {
        counter(&counts.prompt_tokens)
    }),
    ("generated_tokens_total", "counter", "Tokens generated.", |counts| {
        counter(&counts.generated_tokens)
    }),
    ("generation_seconds_total", "counter", "Time spent on generation.", |counts| {
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
    begin(&mut text, "requests_total", "counter", "All HTTP requests.");
    let _ = writeln!(text, "torchlet_requests_total {}", counter(requests));
    begin(&mut text, "connections", "gauge", "Open connections.");
    let _ = writeln!(text, "torchlet_connections {}", gauge(connections));
    for (name, kind, help, read) in MODEL_METRICS {
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
