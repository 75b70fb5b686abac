//! Servers whose sessions share runs (`--sequences`).

use super::*;
use std::thread;

const QUANTIZED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../llm/model/8da4w.pte");

/// Requests of all kinds: greedy and sampled, with log probabilities, schemas and stop texts.
fn requests() -> Vec<(&'static str, Value)> {
    let prompts = [
        "In the beginning",
        "And God said",
        "The king of Israel",
        "Tell me about Moses. He was a man who",
        "Now",
        "Behold, the days come, and the word of the Lord came to the prophet, saying",
        "David",
        "Who",
    ];
    let mut requests = Vec::new();
    for (number, prompt) in prompts.into_iter().enumerate() {
        let mut body = json!({"prompt": prompt, "max_tokens": 24 + number, "temperature": 0});
        match number {
            1 => body["logprobs"] = json!(2),
            2 => {
                body["temperature"] = json!(1);
                body["seed"] = json!(5);
            }
            3 => body["stop"] = json!(["and"]),
            5 => body["n"] = json!(2),
            _ => {}
        }
        requests.push(("/v1/completions", body));
    }
    let schema = json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}},
        "required": ["name"], "additionalProperties": false});
    requests.push((
        "/v1/chat/completions",
        json!({
            "messages": [{"role": "user", "content": "Tell me about Moses."}],
            "max_tokens": 40, "temperature": 0,
            "response_format": {"type": "json_schema",
                "json_schema": {"name": "answer", "schema": schema}},
        }),
    ));
    requests
}

/// More clients than slots get the texts that each gets alone, while others leave in the middle.
#[test]
fn clients_get_the_texts_that_each_gets_alone() {
    for model in [MODEL, QUANTIZED] {
        let requests = requests();
        let ask = |server: &Server, (path, body): &(&str, Value)| {
            let (status, answer) = server.complete(path, body);
            assert_eq!(status, 200, "{answer}");
            answer["choices"].clone()
        };
        let expected: Vec<Value> = {
            let server = Server::of(model, &[]);
            requests.iter().map(|request| ask(&server, request)).collect()
        };
        let server = Server::of(model, &["--sequences", "6"]);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let body = json!({"prompt": "In the", "max_tokens": 400, "temperature": 0,
                        "stream": true});
                    let mut stream = TcpStream::connect(&server.address).unwrap();
                    let body = body.to_string();
                    let head = format!(
                        "POST /v1/completions HTTP/1.1\r\nauthorization: Bearer secret\r\n\
                         content-length: {}\r\n\r\n",
                        body.len()
                    );
                    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
                    // Leaves after some tokens.
                    let mut some = [0; 600];
                    stream.read_exact(&mut some).unwrap();
                });
            }
            for (request, expected) in requests.iter().zip(&expected) {
                let server = &server;
                scope.spawn(move || {
                    for _ in 0..2 {
                        assert_eq!(&ask(server, request), expected, "{request:?}");
                    }
                });
            }
        });
        let metrics = server.ask("GET", "/metrics", "secret", "").1;
        assert!(
            metrics.contains("torchlet_sessions{model=") && metrics.contains("} 6"),
            "{metrics}"
        );
    }
}
