//! Several models on one server.

use crate::{MODEL, Server, expected, run};
use serde_json::{Value, json};
use std::sync::mpsc;
use std::thread;

const FOURBIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../llm/model/8da4w.pte");

fn serve(more: &[&str]) -> Server {
    let second = format!("four bits={FOURBIT}");
    Server::of(MODEL, &[&[second.as_str()], more].concat())
}

fn prompt(model: &str, count: usize) -> Value {
    json!({"model": model, "prompt": "In the beginning", "temperature": 0, "max_tokens": count})
}

fn text(answer: &Value) -> &str {
    answer["choices"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// The output of `generate` with this model.
fn alone(model: &str) -> String {
    let arguments = ["generate", model, "--temperature", "0", "-n", "40", "--prompt"];
    let output = run(&[&arguments[..], &["In the beginning"]].concat(), "");
    String::from_utf8(output.stdout).unwrap().trim_end_matches('\n').into()
}

#[test]
fn a_request_names_its_model() {
    let server = serve(&["--max-context-len", "four bits=64", "--api-key", "secret"]);
    let list = server.ask("GET", "/v1/models", "secret", "").1;
    let list: Value = serde_json::from_str(&list).unwrap();
    let names: Vec<&Value> = list["data"].as_array().unwrap().iter().map(|m| &m["id"]).collect();
    assert_eq!(names, ["fp32", "four bits"]);
    let (status, one) = server.ask("GET", "/v1/models/four%20bits", "secret", "");
    assert!(status == 200 && one.contains(r#""id":"four bits""#), "{one}");

    for (name, file) in [("fp32", MODEL), ("four bits", FOURBIT)] {
        let (status, answer) = server.complete("/v1/completions", &prompt(name, 40));
        assert_eq!((status, &answer["model"]), (200, &json!(name)));
        assert_eq!(text(&answer), alone(file), "{name}");
    }
    let fp32 = server.complete("/v1/completions", &prompt("fp32", 40)).1;
    assert!(expected().starts_with(text(&fp32)));

    // Options for one model do not affect the other.
    let long = "word ".repeat(100);
    for (name, status) in [("fp32", 200), ("four bits", 400)] {
        let body = json!({"model": name, "prompt": long, "max_tokens": 1});
        assert_eq!(server.complete("/v1/completions", &body).0, status, "{name}");
    }

    for (model, status, code) in [
        (json!("gpt-5"), 404, json!("model_not_found")),
        (json!(5), 404, json!("model_not_found")),
        (Value::Null, 400, Value::Null),
    ] {
        for path in ["/v1/completions", "/v1/chat/completions"] {
            let messages = json!([{"role": "user", "content": "x"}]);
            let body = match path {
                "/v1/completions" => json!({"model": model, "prompt": "x"}),
                _ => json!({"model": model, "messages": messages}),
            };
            let (found, refused) = server.complete(path, &body);
            let error = &refused["error"];
            assert_eq!((found, &error["code"]), (status, &code), "{refused}");
            assert_eq!(error["type"], "invalid_request_error");
            assert!(error["message"].to_string().contains("'fp32', 'four bits'"), "{refused}");
        }
    }
    let (status, refused) = server.ask("GET", "/v1/models/gpt-5", "secret", "");
    assert!(status == 404 && refused.contains("model_not_found"), "{refused}");

    let metrics = server.ask("GET", "/metrics", "secret", "").1;
    for line in [
        "torchlet_generations_total{model=\"fp32\"} 3",
        "torchlet_generations_total{model=\"four bits\"} 1",
        "torchlet_generations_failed_total{model=\"fp32\"} 0",
        "torchlet_generations_failed_total{model=\"four bits\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
}

/// A server with a single model accepts any model name.
#[test]
fn a_single_model_needs_no_name() {
    let server = Server::new(&[]);
    for model in [json!("gpt-5"), json!(5), Value::Null] {
        let mut body = prompt("", 5);
        body["model"] = model;
        let (status, answer) = server.complete("/v1/completions", &body);
        assert_eq!((status, &answer["model"]), (200, &json!("fp32")));
    }
}

/// Models have separate queues: a full queue does not affect the other model, and outputs are the
/// same as without concurrency.
#[test]
fn models_run_concurrently() {
    let server = serve(&["--queue", "2"]);
    let expected = [alone(MODEL), alone(FOURBIT)];
    // One long request and two waiting ones fill the queue.
    let mut long = prompt("fp32", 300);
    long["logit_bias"] = json!({"1": -100, "3": -100});
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        for _ in 0..24 {
            let (server, long, tell) = (&server, &long, tell.clone());
            scope.spawn(move || tell.send(server.complete("/v1/completions", long).0));
        }
        drop(tell);
        // A refusal shows that the queue is full.
        let mut statuses = Vec::new();
        while !statuses.contains(&429) {
            statuses.push(told.recv().expect("no request was rejected"));
        }
        let others: Vec<_> = (0..2)
            .map(|_| {
                let (server, body) = (&server, prompt("four bits", 40));
                scope.spawn(move || server.complete("/v1/completions", &body))
            })
            .collect();
        for other in others {
            let (status, answer) = other.join().unwrap();
            assert_eq!(status, 200, "{answer}");
            assert_eq!(text(&answer), expected[1]);
        }
        statuses.extend(told.iter());
        let of = |status: u16| statuses.iter().filter(|found| **found == status).count();
        // At least the two waiting requests succeed, even if all arrive before the first one
        // starts.
        assert!(of(200) >= 2 && of(200) + of(429) == 24, "{statuses:?}");
    });
    assert_eq!(text(&server.complete("/v1/completions", &prompt("fp32", 40)).1), expected[0]);
    assert_eq!(server.ask("GET", "/health", "", "").0, 200);
}
