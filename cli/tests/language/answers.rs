//! Log probabilities, several choices, and penalties.

use super::{MODEL, Server, run};
use serde_json::{Value, json};

/// The events of a stream, without the final `[DONE]`.
fn events(body: &str) -> Vec<Value> {
    let mut events: Vec<&str> =
        body.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
    assert_eq!(events.pop(), Some("[DONE]"), "{body}");
    events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

/// Log probabilities are consistent with the distribution and the text, complete and streamed.
#[test]
fn servers_return_logprobs() {
    let server = Server::new(&[]);
    let near = |found: &Value, expected: &Value| {
        let (found, expected) = (found.as_f64().unwrap(), expected.as_f64().unwrap());
        assert!((found - expected).abs() < 1e-4, "{found} {expected}");
    };
    let mut body = json!({"messages": [{"role": "user", "content": "Tell me about Moses."}], "temperature": 0, "max_tokens": 30,
        "logprobs": true, "top_logprobs": 3});
    let (status, whole) = server.complete("/v1/chat/completions", &body);
    assert_eq!(status, 200, "{whole}");
    let content = whole["choices"][0]["logprobs"]["content"].as_array().unwrap();
    let told: String = content.iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert_eq!(told, whole["choices"][0]["message"]["content"].as_str().unwrap());
    for token in content {
        let top = token["top_logprobs"].as_array().unwrap();
        // Greedy sampling chooses the most likely token.
        assert!(top.len() == 3 && top[0]["token"] == token["token"], "{token}");
        assert_eq!(token["bytes"], json!(token["token"].as_str().unwrap().as_bytes()));
        near(&top[0]["logprob"], &token["logprob"]);
        let parts: f64 = top.iter().map(|other| other["logprob"].as_f64().unwrap().exp()).sum();
        assert!(parts <= 1.00001, "{token}");
    }
    body["stream"] = json!(true);
    let chat = events(&server.ask("POST", "/v1/chat/completions", "", &body.to_string()).1);
    let streamed =
        chat.iter().filter_map(|event| event["choices"][0]["logprobs"]["content"].as_array());
    let streamed: Vec<Value> = streamed.flatten().cloned().collect();
    assert_eq!(streamed.len(), content.len());
    for (streamed, whole) in streamed.iter().zip(content) {
        assert_eq!(streamed["token"], whole["token"]);
        // The prompt is cached by now; a prefill of fewer tokens may round differently.
        near(&streamed["logprob"], &whole["logprob"]);
    }

    let mut body = json!({
        "prompt": "In the beginning", "temperature": 0, "max_tokens": 40, "logprobs": 2,
        "stop": ["heaven"]
    });
    let whole = server.complete("/v1/completions", &body).1;
    let (text, told) = (&whole["choices"][0]["text"], &whole["choices"][0]["logprobs"]);
    let text = text.as_str().unwrap();
    let list = |name: &str| told[name].as_array().unwrap().clone();
    let (names, offsets) = (list("tokens"), list("text_offset"));
    assert!(names.len() > 2 && offsets.len() == names.len(), "{told}");
    let characters: Vec<char> = text.chars().collect();
    for (name, offset) in names.iter().zip(&offsets) {
        let rest: String = characters[offset.as_u64().unwrap() as usize..].iter().collect();
        let name = name.as_str().unwrap();
        // The last token may contain the start of the stop string.
        assert!(rest.starts_with(name) || name.starts_with(&rest), "{rest} {name}");
    }
    for ((name, own), top) in names.iter().zip(&list("token_logprobs")).zip(&list("top_logprobs")) {
        near(&top[name.as_str().unwrap()], own);
        assert_eq!(top.as_object().unwrap().len(), 2);
    }
    body["stream"] = json!(true);
    let streamed = events(&server.ask("POST", "/v1/completions", "", &body.to_string()).1);
    let joined = |name: &str| -> Vec<Value> {
        let lists =
            streamed.iter().filter_map(|event| event["choices"][0]["logprobs"][name].as_array());
        lists.flatten().cloned().collect()
    };
    assert_eq!((joined("tokens"), joined("text_offset")), (names, offsets));
    for (streamed, whole) in joined("token_logprobs").iter().zip(&list("token_logprobs")) {
        near(streamed, whole);
    }
    assert_eq!(joined("top_logprobs").len(), list("top_logprobs").len());
    // Log probabilities do not depend on sampling options.
    let mut other =
        json!({"prompt": "In the beginning", "temperature": 0, "max_tokens": 1, "logprobs": 1});
    let plain = server.complete("/v1/completions", &other).1;
    let name = &plain["choices"][0]["logprobs"]["tokens"][0];
    other["logit_bias"] = json!({"50": 100});
    other["temperature"] = json!(0.3);
    let biased = server.complete("/v1/completions", &other).1;
    let biased = &biased["choices"][0]["logprobs"];
    assert_ne!(biased["tokens"][0], *name);
    assert!(biased["token_logprobs"][0].as_f64().unwrap() < -1.0, "{biased}");
    let top = &plain["choices"][0]["logprobs"]["token_logprobs"][0];
    near(&biased["top_logprobs"][0][name.as_str().unwrap()], top);
}

/// Several choices for one prompt, each with its index.
#[test]
fn servers_return_several_choices() {
    let server = Server::new(&[]);
    let mut body = json!({
        "messages": [{"role": "user", "content": "Tell me about Moses."}], "temperature": 1,
        "seed": 5, "max_tokens": 12, "n": 3
    });
    let text = |answer: &Value, index: usize| {
        let choice = &answer["choices"][index];
        assert_eq!(choice["index"], index);
        choice["message"]["content"].as_str().unwrap().to_owned()
    };
    let (status, whole) = server.complete("/v1/chat/completions", &body);
    assert_eq!((status, whole["choices"].as_array().unwrap().len()), (200, 3), "{whole}");
    let texts: Vec<String> = (0..3).map(|index| text(&whole, index)).collect();
    assert!(texts[0] != texts[1] && texts[1] != texts[2], "{texts:?}");
    // The first choice equals a single one with the same seed; the others are reproducible.
    let alone = |seed: u64| {
        let mut body = body.clone();
        (body["n"], body["seed"]) = (json!(1), json!(seed));
        server.complete("/v1/chat/completions", &body).1
    };
    assert_eq!([text(&alone(5), 0), text(&alone(6), 0), text(&alone(7), 0)], texts[..]);
    let tokens = whole["usage"]["completion_tokens"].as_u64().unwrap();
    assert_eq!(whole["usage"]["prompt_tokens"], alone(5)["usage"]["prompt_tokens"]);
    assert!(tokens > 12 && tokens <= 36, "{whole}");

    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let mut streamed = events(&server.ask("POST", "/v1/chat/completions", "", &body.to_string()).1);
    assert_eq!(streamed.pop().unwrap()["usage"], whole["usage"]);
    for (index, text) in texts.iter().enumerate() {
        let own: Vec<&Value> = streamed
            .iter()
            .map(|event| &event["choices"][0])
            .filter(|choice| choice["index"] == index)
            .collect();
        assert_eq!(own[0]["delta"]["role"], "assistant");
        assert!(own.last().unwrap()["finish_reason"].is_string());
        let said = own.iter().filter_map(|choice| choice["delta"]["content"].as_str());
        assert_eq!(&said.collect::<String>(), text);
    }
    let metrics = server.ask("GET", "/metrics", "", "").1;
    assert!(metrics.contains("\ntorchlet_generations_total{model=\"fp32\"} 10\n"), "{metrics}");
}

/// Penalties reduce repetition, in requests and on the command line.
#[test]
fn penalties_reduce_repetition() {
    let server = Server::new(&[]);
    let ask = |name: &str, penalty: f64| {
        let mut body = json!({
            "prompt": "In the beginning", "temperature": 0, "max_tokens": 60, "logprobs": 0
        });
        body[name] = json!(penalty);
        let answer = server.complete("/v1/completions", &body).1;
        let told = &answer["choices"][0];
        (told["text"].as_str().unwrap().to_owned(), told["logprobs"]["tokens"].clone())
    };
    let different = |tokens: &Value| {
        let tokens = tokens.as_array().unwrap();
        let names: std::collections::BTreeSet<&str> =
            tokens.iter().map(|token| token.as_str().unwrap()).collect();
        names.len() as f64 / tokens.len() as f64
    };
    let usual = different(&ask("presence_penalty", 0.0).1);
    for name in ["presence_penalty", "frequency_penalty"] {
        let (text, tokens) = ask(name, 2.0);
        assert!(different(&tokens) > usual, "{text}");
        let option = format!("--{}", name.replace('_', "-"));
        let arguments = [
            "generate",
            MODEL,
            "--temperature",
            "0",
            "-n",
            "60",
            "-p",
            "In the beginning",
            &option,
            "2",
        ];
        let output = String::from_utf8(run(&arguments, "").stdout).unwrap();
        assert_eq!(output.trim_end_matches('\n'), text.trim_end_matches('\n'));
    }
    let (text, tokens) = ask("frequency_penalty", -2.0);
    assert!(different(&tokens) < usual, "{text}");
}
