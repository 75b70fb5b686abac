//! Language models on the command line and on the server.
#![cfg(feature = "serve")]

mod answers;
mod models;
mod sequences;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Cursor, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use torchlet::llm::{GenerationConfig, Input, Overrides, Runner, Sampling, Tokenizer};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../llm/model/fp32.pte");

fn torchlet(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_torchlet"));
    command.env("TORCHLET_COMPILE_CACHE", "off").env_remove("TORCHLET_API_KEY");
    command.args(arguments).args(["--backend", "cpu", "--threads", "1"]);
    command
}

fn run(arguments: &[&str], input: impl AsRef<[u8]>) -> Output {
    let mut command = torchlet(arguments);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_ref()).unwrap();
    child.wait_with_output().unwrap()
}

/// PyTorch's continuation of "In the beginning".
fn expected() -> String {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../llm/model/expected.json"));
    let cases: Value = serde_json::from_str(&text.unwrap()).unwrap();
    cases[0]["text"].as_str().unwrap().into()
}

#[test]
fn generate_writes_only_the_text() {
    let arguments = ["generate", MODEL, "--temperature", "0", "-n", "40", "--stats=json"];
    let output = run(&arguments, "In the beginning\n");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.len() > 60 && expected().starts_with(text.trim_end_matches('\n')), "{text}");
    let stats = String::from_utf8(output.stderr).unwrap();
    let stats: Value =
        serde_json::from_str(stats.strip_prefix("PyTorchObserver ").unwrap()).unwrap();
    assert_eq!(stats["generated_tokens"], 40);
}

#[test]
fn chat_answers_each_line_and_can_reset() {
    let arguments = ["chat", MODEL, "--temperature", "0", "-n", "12"];
    let lines = b"Tell me about Moses.\nWh\xff\nWhat about David?\n/reset\nTell me about Moses.\n/stats\n/quit\nnever\n";
    let output = run(&arguments, lines);
    assert!(String::from_utf8(output.stderr).unwrap().contains("not in UTF-8"));
    let text = String::from_utf8(output.stdout).unwrap();
    let said: Vec<&str> = text.lines().collect();
    assert_eq!(said[0], said[2], "{text}");
    assert_ne!(said[0], said[1]);
    assert!(text.contains("of 512 tokens") && !text.contains("never"), "{text}");
}

/// Speech-to-text and sharded models reproduce PyTorch's output.
#[test]
fn other_program_forms_run() {
    let forms = concat!(env!("CARGO_MANIFEST_DIR"), "/../llm/forms");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../llm/model/tokenizer.json");
    let tokenizer = torchlet::llm::Tokenizer::load(path).unwrap();
    let read = |name: &str| -> Value {
        let text = std::fs::read_to_string(format!("{forms}/{name}.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let text = |ids: &Value| {
        let ids = ids.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32);
        tokenizer.decode(&ids.collect::<Vec<_>>())
    };
    let said = |arguments: &[&str]| {
        let output = run(&[arguments, &["--tokenizer", path]].concat(), "");
        assert!(output.status.success(), "{}", String::from_utf8(output.stderr).unwrap());
        let text = String::from_utf8(output.stdout).unwrap();
        text.trim_end_matches('\n').to_owned()
    };
    let file = |name: &str| format!("{forms}/{name}");
    let (model, sound) = (file("speech.pte"), file("speech.wav"));
    let start = ["--start-id", "50", "--start-id", "51", "--eos-id", "9999"];
    let heard = said(&[&["transcribe", &model, &sound][..], &start].concat());
    assert_eq!(heard, text(&read("speech")["chosen"]));

    let case = &read("expected")["shards"][1];
    let prompt = text(&case["ids"]);
    let usual = ["--temperature", "0", "--num-bos", "0", "--ignore-eos", "-n", "40"];
    let (first, second) = (file("shards_0.pte"), file("shards_1.pte"));
    let arguments = ["generate", &first, "--shard", &second, "--prompt", &prompt];
    let found = said(&[&arguments[..], &usual].concat());
    assert_eq!(found, text(&case["chosen"]).trim_end_matches('\n'));
}

/// Errors suggest a remedy.
#[test]
fn errors_have_hints() {
    let forms = concat!(env!("CARGO_MANIFEST_DIR"), "/../llm/forms");
    let tokenizer = concat!(env!("CARGO_MANIFEST_DIR"), "/../llm/model/tokenizer.json");
    let told = |arguments: &[&str]| String::from_utf8(run(arguments, "").stderr).unwrap();
    // A tokenizer with 1,024 tokens and a model with 131.
    let model = format!("{forms}/llama_wide.pte");
    let error =
        told(&["generate", &model, "--tokenizer", tokenizer, "--prompt", "In the beginning"]);
    assert!(
        error.contains("the vocabulary has 131 tokens") && error.contains("--tokenizer"),
        "{error}"
    );
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../llm/model/8da4w.pte");
    let mut exported = Command::new(env!("CARGO_BIN_EXE_torchlet"));
    let exported = exported.args(["generate", model, "--prompt", "x", "--backend", "as-exported"]);
    let error = String::from_utf8(exported.output().unwrap().stderr).unwrap();
    assert!(error.contains("XnnpackBackend; --backend cpu"), "{error}");
    let schema = r#"{"type": "array", "items": {"type": "integer"}, "minItems": 40}"#;
    let cut = ["generate", MODEL, "--prompt", "x", "--json-schema", schema, "-n", "5"];
    let cut = told(&cut);
    assert!(cut.contains("does not match the schema: allow more tokens"), "{cut}");
    let sevens = r#"{"type": "array", "items": {"const": 7}, "minItems": 40}"#;
    let ended = ["generate", MODEL, "--prompt", "x", "--json-schema", sevens, "--stop", ","];
    let ended = told(&ended);
    assert!(ended.contains("does not match the schema: a --stop text"), "{ended}");
    // A value that ends at the token limit may be complete.
    let digits = r#"{"type": "integer", "minimum": 0}"#;
    let whole = ["generate", MODEL, "--prompt", "x", "--json-schema", digits];
    assert_eq!(told(&[&whole[..], &["-n", "1", "--temperature", "0"]].concat()), "");
}

/// Options without effect are refused, not ignored.
#[test]
fn options_without_effect_are_refused() {
    let refused = |arguments: &[&str]| {
        let output = run(arguments, "");
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let generate = ["generate", MODEL, "--prompt", "x", "-n", "1"];
    for (option, expected) in [
        (
            &["--logit-bias", "1024=1"][..],
            "logit_bias contains the token 1024, but the vocabulary has 1024 tokens",
        ),
        (&["--chat-template", "x.jinja"], "unexpected argument"),
        (&["--tiling", "canvas"], "--tiling requires an image"),
        // These tests run on the CPU only.
        (&["--device", "0"], "--device 0 has no effect"),
        (&["--max-seq-len", "0"], "max_seq_len is 0, expected 1 or more"),
        (&["--max-context-len", "0"], "max_context_len is 0, expected 1 or more"),
    ] {
        let error = refused(&[&generate[..], option].concat());
        assert!(error.contains(expected), "{option:?}: {error}");
    }
    let tokenizer = concat!(env!("CARGO_MANIFEST_DIR"), "/../llm/model/tokenizer.json");
    for option in [["--tokenizer", tokenizer], ["--eos-id", "1"], ["--bos-id", "1"]] {
        let error = refused(&[&["bench-llm", MODEL, "--prompt-tokens", "1"][..], &option].concat());
        assert!(error.contains("unexpected argument"), "{error}");
    }
    for argument in ["enable_thinking", "a=b", "messages=[]", "a b=1"] {
        let error = refused(&["chat", MODEL, "--template-argument", argument]);
        assert!(error.contains("--template-argument"), "{argument}: {error}");
    }
    // The program's state holds 512 tokens.
    let long = ["-n", "520", "--ignore-eos", "--max-context-len", "1000"];
    let error = refused(&[&generate[..4], &long].concat());
    assert!(
        error.contains(
            "513 tokens in the context: the program declares a limit of 512, and max_context_len"
        ),
        "{error}"
    );
    let error = refused(&["bench-llm", MODEL, "--prompt-tokens", "0,600"]);
    assert!(
        error.contains("600 and 64 more tokens") && error.contains("nothing to measure"),
        "{error}"
    );
}

/// Template variables from the command line; those of a request override them.
#[test]
fn template_arguments_are_passed() {
    let folder = std::env::temp_dir().join(format!("torchlet-arguments-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("template.jinja");
    let source = "{{ bos_token ~ 'In the beginning' if not enable_thinking | default(true) else raise_exception('it thinks of ' ~ topic) }}";
    std::fs::write(&path, source).unwrap();
    let template = path.to_str().unwrap();
    let mut usual = vec!["--chat-template", template];
    for argument in [r#"topic="Moses""#, r#"bos_token="<|begin_of_text|>""#] {
        usual.extend(["--template-argument", argument]);
    }
    let chat = |more: &[&str]| {
        let arguments = ["chat", MODEL, "--temperature", "0", "-n", "20"];
        run(&[&arguments[..], &usual[..], more].concat(), "Hello\n")
    };
    let output = chat(&["--template-argument", "enable_thinking=false"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.len() > 20 && expected().starts_with(text.trim_end_matches('\n')), "{text}");
    let error = String::from_utf8(chat(&[]).stderr).unwrap();
    assert!(error.contains("it thinks of Moses"), "{error}");

    let server = Server::new(&usual);
    let ask = |arguments: Value| {
        let body = json!({
            "messages": [{"role": "user", "content": "x"}], "temperature": 0, "max_tokens": 20,
            "chat_template_kwargs": arguments
        });
        server.ask("POST", "/v1/chat/completions", "", &body.to_string())
    };
    let (status, body) = ask(json!({"enable_thinking": false}));
    let answer: Value = serde_json::from_str(&body).unwrap();
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap_or_default();
    assert!(status == 200 && text.len() > 20 && expected().starts_with(text), "{body}");
    // Variables of a request do not affect the next one.
    let (status, body) = ask(json!({}));
    assert!(status == 400 && body.contains("it thinks of Moses"), "{body}");
    let (status, body) = ask(json!({"topic": "David"}));
    assert!(status == 400 && body.contains("it thinks of David"), "{body}");
    let (status, body) = server.ask(
        "POST",
        "/v1/completions",
        "",
        r#"{"prompt": "a", "logit_bias": {"7": 1, "1024": -100}}"#,
    );
    assert!(status == 400 && body.contains("logit_bias contains the token 1024"), "{body}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A server process, killed on drop.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn new(arguments: &[&str]) -> Self {
        Server::of(MODEL, arguments)
    }

    fn of(model: &str, arguments: &[&str]) -> Self {
        let mut command = torchlet(&[&["serve", model, "--port", "0"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").unwrap().into();
        Server { child, address }
    }

    /// Sends a request; returns status and body.
    fn ask(&self, method: &str, path: &str, key: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nauthorization: Bearer {key}\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.into())
    }

    fn complete(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, body) = self.ask("POST", path, "secret", &body.to_string());
        (status, serde_json::from_str(&body).unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn servers_are_compatible_with_openai() {
    let server = Server::new(&["--api-key", "secret", "--name", "small"]);
    assert_eq!(server.ask("GET", "/health", "", "").0, 200);
    assert_eq!(server.ask("GET", "/v1/models", "wrong!", "").0, 401);
    let (status, models) = server.ask("GET", "/v1/models", "secret", "");
    let models: Value = serde_json::from_str(&models).unwrap();
    assert_eq!((status, &models["data"][0]["id"]), (200, &json!("small")));

    let body =
        json!({"model": "small", "prompt": "In the beginning", "temperature": 0, "max_tokens": 40});
    let (status, whole) = server.complete("/v1/completions", &body);
    let text = whole["choices"][0]["text"].as_str().unwrap();
    assert!(status == 200 && expected().starts_with(text), "{whole}");
    assert_eq!(
        whole["usage"],
        json!({"prompt_tokens": 7, "completion_tokens": 40, "total_tokens": 47})
    );

    let mut body = json!({
        "messages": [{"role": "user", "content": "Tell me about Moses."}], "temperature": 0,
        "max_tokens": 15
    });
    let (_, whole) = server.complete("/v1/chat/completions", &body);
    let said = whole["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    body["stream"] = json!(true);
    let (status, events) = server.ask("POST", "/v1/chat/completions", "secret", &body.to_string());
    let mut events: Vec<&str> =
        events.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
    assert_eq!((status, events.pop()), (200, Some("[DONE]")));
    let events: Vec<Value> =
        events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let text: String = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(text, said);
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "length");

    let schema = json!({"type": "object", "properties": {"king": {"enum": ["Saul", "David"]}, "years": {"type": "integer", "minimum": 1, "maximum": 99}},
        "required": ["king", "years"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "reign", "schema": schema}});
    let ask = |format: &Value| {
        let message = json!([{"role": "user", "content": "Who was king?"}]);
        server.complete(
            "/v1/chat/completions",
            &json!({"messages": message, "temperature": 1, "response_format": format}),
        )
    };
    let (status, answer) = ask(&format);
    let said = answer["choices"][0]["message"]["content"].as_str().unwrap();
    let reign: Value = serde_json::from_str(said).unwrap();
    assert!(status == 200 && answer["choices"][0]["finish_reason"] == "stop", "{answer}");
    assert!(["Saul", "David"].contains(&reign["king"].as_str().unwrap()), "{said}");
    assert!((1..100).contains(&reign["years"].as_i64().unwrap()), "{said}");
    let (status, refused) =
        ask(&json!({"type": "json_schema", "json_schema": {"schema": {"type": "sausage"}}}));
    assert!(status == 400 && refused["error"]["message"].to_string().contains("sausage"));

    let long = json!({"prompt": "word ".repeat(2000)});
    let (status, refused) = server.complete("/v1/completions", &long);
    assert_eq!((status, &refused["error"]["code"]), (400, &json!("context_length_exceeded")));
    for (method, path, body, status) in [
        ("POST", "/v1/completions", "{", 400),
        ("POST", "/v1/chat/completions", &"[".repeat(100_000), 400),
        ("GET", "/v1/completions", "", 405),
        ("GET", "/v1/nothing", "", 404),
    ] {
        assert_eq!(server.ask(method, path, "secret", body).0, status, "{method} {path}");
    }
    // A client that sends too much still receives the error.
    assert_eq!(server.ask("POST", "/v1/completions", "secret", &"a".repeat(9 << 20)).0, 413);
    // Cross-site requests are refused, and bodies are not read without a key.
    let head = |more: &str| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        let request =
            format!("POST /v1/completions HTTP/1.1\r\n{more}content-length: 4000000\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        String::from_utf8(answer[9..].to_vec()).unwrap()
    };
    assert_eq!(head("host: evil.example\r\nauthorization: Bearer secret\r\n"), "403");
    assert_eq!(head("origin: http://evil.example\r\nauthorization: Bearer secret\r\n"), "403");
    assert_eq!(head("authorization: Bearer wrong\r\n"), "401");
    let metrics = server.ask("GET", "/metrics", "secret", "").1;
    assert!(metrics.contains("\ntorchlet_generations_total{model=\"small\"} 4\n"), "{metrics}");
    // The prompt that is too long; the schema was refused before.
    assert!(
        metrics.contains("\ntorchlet_generations_failed_total{model=\"small\"} 1\n"),
        "{metrics}"
    );
}

/// A disconnect stops the generation.
#[test]
fn disconnecting_frees_the_session() {
    let server = Server::new(&[]);
    let body = json!({
        "messages": [{"role": "user", "content": "Hello"}], "stream": true,
        "logit_bias": {"1": -100, "3": -100}
    })
    .to_string();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let head =
        format!("POST /v1/chat/completions HTTP/1.1\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    stream.read_exact(&mut [0; 100]).unwrap();
    drop(stream);
    let body = json!({"prompt": "a", "max_tokens": 1});
    assert_eq!(server.complete("/v1/completions", &body).0, 200);
    let metrics = server.ask("GET", "/metrics", "", "").1;
    assert!(
        metrics.contains("\ntorchlet_generations_abandoned_total{model=\"fp32\"} 1\n"),
        "{metrics}"
    );
}

/// A client may shut down its sending side and still receives its response. A closed connection
/// stops the generation, even before anything was sent.
#[test]
fn clients_may_half_close_the_connection() {
    let server = Server::new(&[]);
    let send = |body: &Value, version: &str| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        let body = body.to_string();
        let head = format!(
            "POST /v1/completions HTTP/{version}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        stream
    };
    let forbid = json!({"1": -100, "3": -100});
    for stream in [false, true] {
        for version in ["1.0", "1.1"] {
            let body = json!({
                "prompt": "In the beginning", "max_tokens": 200, "stream": stream,
                "logit_bias": forbid
            });
            let mut asked = send(&body, version);
            asked.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = String::new();
            asked.read_to_string(&mut answer).unwrap();
            let answer = answer.trim_start_matches("HTTP/1.1 100 Continue\r\n\r\n");
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{stream} {version}: {answer}");
            assert!(answer.contains("\"finish_reason\":\"length\""), "{stream}: {answer}");
        }
    }
    let whole = json!({"prompt": "In the beginning", "n": 16, "logit_bias": forbid});
    let asked = send(&whole, "1.1");
    let running = "\ntorchlet_generations_running{model=\"fp32\"} 1\n";
    while !server.ask("GET", "/metrics", "", "").1.contains(running) {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(asked);
    let body = json!({"prompt": "a", "max_tokens": 1});
    assert_eq!(server.complete("/v1/completions", &body).0, 200);
    let metrics = server.ask("GET", "/metrics", "", "").1;
    assert!(
        metrics.contains("\ntorchlet_generations_abandoned_total{model=\"fp32\"} 1\n"),
        "{metrics}"
    );
}

/// Schemas that would exhaust stack, time or memory are refused by name, and the server keeps
/// working.
#[test]
#[cfg(feature = "grammar")]
fn schemas_cannot_crash_the_server() {
    let server = Server::new(&[]);
    let properties = |count: usize, schema: &Value| {
        let all = (0..count).map(|at| (format!("k{at}"), schema.clone()));
        Value::Object(all.collect())
    };
    let names = |count: usize| (0..count).map(|at| format!("k{at}")).collect::<Vec<_>>();
    let chain = |count: usize| {
        let link = |at| (format!("d{at}"), json!({"$ref": format!("#/$defs/d{}", at + 1)}));
        let mut defs: serde_json::Map<String, Value> = (0..count).map(link).collect();
        defs.insert(format!("d{count}"), json!({"type": "integer"}));
        json!({"$ref": "#/$defs/d0", "$defs": defs})
    };
    let patterns = |count: usize| {
        let all = (0..count).map(|at| (format!("^x{at}y*$"), json!({})));
        json!({"patternProperties": Value::Object(all.collect())})
    };
    let object = |count| json!({"type": "object", "properties": properties(count, &json!({}))});
    let ask = |schema: &Value| {
        let format = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}});
        let messages = json!([{"role": "user", "content": "x"}]);
        let body = json!({"messages": messages, "max_tokens": 4, "response_format": format});
        server.complete("/v1/chat/completions", &body)
    };
    for (limit, schema) in [
        ("too large", object(4500)),
        ("too large", json!({"required": names(6000), "properties": properties(6000, &json!({}))})),
        ("levels", chain(12_000)),
        ("too large", patterns(200)),
        ("too large", json!({"const": "x".repeat(20_000), "enum": names(9000)})),
    ] {
        let (status, answer) = ask(&schema);
        assert!(status == 400 && answer.to_string().contains(limit), "{limit}: {answer}");
    }
    let function = json!({"name": "f", "parameters": object(12_000)});
    let tools = json!([{"type": "function", "function": function}]);
    let (status, answer) = server.complete(
        "/v1/chat/completions",
        &json!({
            "messages": [{"role": "user", "content": "x"}], "tools": tools,
            "tool_choice": "required"
        }),
    );
    assert!(status == 400 && answer.to_string().contains("too large"), "{answer}");
    assert_eq!(ask(&object(20)).0, 200);
    // The command refuses them too.
    let schema = object(4500).to_string();
    let generate = ["generate", MODEL, "--prompt", "x", "-n", "2", "--json-schema", &schema];
    let output = run(&generate, "");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && error.contains("too large"), "{error}");
}

/// The process that compiles a schema for the server has limits of its own, and its exit status
/// tells what it found.
#[test]
#[cfg(all(feature = "grammar", target_os = "linux"))]
fn schemas_are_compiled_in_a_limited_process() {
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_torchlet"));
        let command = command.arg("__compile-schema").stdin(Stdio::piped());
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    let compile = |mut child: Child, schema: &str| {
        child.stdin.take().unwrap().write_all(schema.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let child = start();
    // The process sets its limits before it reads the schema. Its parent may have some of them.
    let has_limits = || {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
        let is_at_most = |name: &str, most: u64| {
            let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
            let mut numbers = line[name.len()..].split_whitespace().take(2);
            numbers.all(|number| number.parse::<u64>().is_ok_and(|number| number <= most))
        };
        is_at_most("Max address space", 1 << 30)
            && is_at_most("Max cpu time", 65)
            && is_at_most("Max core file size", 0)
    };
    let begin = Instant::now();
    while !has_limits() {
        assert!(begin.elapsed() < Duration::from_secs(60), "the process sets no limits");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(compile(child, r#"{"type": "integer"}"#), (Some(0), String::new()));
    let (status, message) = compile(start(), r#"{"type": "sausage"}"#);
    assert!(status == Some(3) && message.contains("sausage"), "{status:?} {message}");
    assert_eq!(compile(start(), "{").0, Some(3));
    // The largest schemas within the limits of `Grammar::json_schema` fit into the memory.
    let names = |count: usize| -> Value {
        let all = (0..count).map(|at| (format!("k{at}"), json!({"type": "integer"})));
        json!({"type": "object", "properties": Value::Object(all.collect())})
    };
    let fits =
        |count: usize| torchlet::llm::Grammar::json_schema(&names(count).to_string()).is_ok();
    let most = (1..60).map(|hundreds| hundreds * 100).take_while(|count| fits(*count)).last();
    let (status, message) = compile(start(), &names(most.unwrap()).to_string());
    assert_eq!(status, Some(0), "{most:?}: {message}");
}

/// By default, names of control tokens in messages are plain text.
#[test]
fn messages_cannot_contain_control_tokens() {
    let usage = |arguments: &[&str]| {
        let server = Server::new(arguments);
        let content = "a<|begin_of_text|>".repeat(20);
        let body = json!({"messages": [{"role": "user", "content": content}], "max_tokens": 1});
        let (status, answer) = server.complete("/v1/chat/completions", &body);
        assert_eq!(status, 200, "{answer}");
        answer["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    let (text, tokens) = (usage(&[]), usage(&["--control-tokens-in-messages"]));
    assert!(text > tokens + 60, "{text} and {tokens}");
}

/// On SIGTERM, the server finishes responses in progress.
#[cfg(unix)]
#[test]
fn shutdown_finishes_running_answers() {
    let mut server = Server::new(&[]);
    let body = json!({
        "prompt": "In those days", "stream": true, "max_tokens": 200, "temperature": 0,
        "logit_bias": {"1": -100}
    });
    let body = body.to_string();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let head = format!("POST /v1/completions HTTP/1.1\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    stream.read_exact(&mut [0; 100]).unwrap();
    let id = server.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("[DONE]"), "{rest}");
    assert!(server.child.wait().unwrap().success());
}

/// `--bos-id` replaces the BOS token.
#[test]
fn bos_tokens_can_be_overridden() {
    let text = |options: &[&str]| {
        let generate =
            ["generate", MODEL, "--temperature", "0", "-n", "8", "-p", "In the beginning"];
        let output = run(&[&generate[..], options].concat(), "");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    // The model's BOS token is 0.
    assert_eq!(text(&["--bos-id", "0"]), text(&[]));
    assert_ne!(text(&["--bos-id", "40", "--num-bos", "3"]), text(&[]));
}

/// A short request runs concurrently with a long one if a second session is available.
#[test]
fn sessions_run_concurrently() {
    let server = Server::new(&["--sessions", "2"]);
    let long = json!({
        "prompt": "In the beginning", "n": 8, "stream": true, "logit_bias": {"1": -100, "3": -100}
    });
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let (long, length) = (long.to_string(), long.to_string().len());
    let head = format!("POST /v1/completions HTTP/1.1\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{long}").as_bytes()).unwrap();
    stream.read_exact(&mut [0; 100]).unwrap();
    let short = json!({"prompt": "In the beginning", "temperature": 0, "max_tokens": 3});
    let (status, answer) = server.complete("/v1/completions", &short);
    assert!(status == 200, "{answer}");
    assert!(expected().starts_with(answer["choices"][0]["text"].as_str().unwrap()), "{answer}");
    // The long response is still in progress: nothing received so far is its end.
    stream.set_nonblocking(true).unwrap();
    let (mut told, mut bytes) = (Vec::new(), [0; 4096]);
    let ended = loop {
        match stream.read(&mut bytes) {
            Ok(0) => break true,
            Ok(count) => told.extend_from_slice(&bytes[..count]),
            Err(error) => break error.kind() != std::io::ErrorKind::WouldBlock,
        }
    };
    let told = String::from_utf8_lossy(&told).into_owned();
    assert!(!ended && !told.contains("[DONE]"), "{told}");
    stream.set_nonblocking(false).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("[DONE]"));
}

/// Starts a long streamed request that counts its events.
fn long_text(server: &Server, words: Arc<AtomicUsize>) -> JoinHandle<()> {
    let body = json!({
        "prompt": "In the beginning", "stream": true, "n": 8, "max_tokens": 400,
        "logit_bias": {"1": -100, "3": -100}
    });
    let (body, length) = (body.to_string(), body.to_string().len());
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let head = format!("POST /v1/completions HTTP/1.1\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    std::thread::spawn(move || {
        // Until the stream or the server ends.
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let is_text = line.starts_with("data: {");
            words.fetch_add(usize::from(is_text), Ordering::Relaxed);
        }
    })
}

/// Events of two long requests during a short one of `short` tokens, on shared threads.
fn shares(short: usize) -> [usize; 2] {
    let server = Server::new(&["--sessions", "3"]);
    let counts = [(); 2].map(|()| Arc::<AtomicUsize>::default());
    let long = [0, 1].map(|at| long_text(&server, counts[at].clone()));
    let now = || [0, 1].map(|at| counts[at].load(Ordering::Relaxed));
    while now().contains(&0) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let before = now();
    let short = json!({
        "prompt": "In the beginning", "temperature": 0, "max_tokens": short,
        "logit_bias": {"1": -100, "3": -100}
    });
    assert_eq!(server.complete("/v1/completions", &short).0, 200);
    let made = [0, 1].map(|at| now()[at] - before[at]);
    // The rest is not needed.
    drop((server, long));
    made
}

/// Concurrent requests share the threads fairly.
#[test]
fn sessions_share_fairly() {
    // Each should generate as many tokens as the short request; a factor of four is tolerated in
    // most tries, since load on the machine delays readers too.
    let is_fair = |made: &&[usize; 2]| made.iter().all(|made| *made >= 40);
    let mut tries = Vec::new();
    while tries.iter().filter(is_fair).count() * 2 <= tries.len().max(2) {
        assert!(tries.len() < 9, "{tries:?} while 160 were received");
        tries.push(shares(160));
    }
}

/// An image in a message reaches the encoder at its position.
#[test]
fn messages_can_contain_images() {
    let forms = concat!(env!("CARGO_MANIFEST_DIR"), "/../llm/forms");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../llm/model/tokenizer.json");
    let (tokenizer, model) = (Tokenizer::load(path).unwrap(), format!("{forms}/multimodal.pte"));
    let pixels: Vec<u8> = (0..16 * 16 * 3).map(|at| (at * 37 % 251) as u8).collect();
    let picture = image::RgbImage::from_raw(16, 16, pixels.clone()).unwrap();
    let mut png = Cursor::new(Vec::new());
    picture.write_to(&mut png, image::ImageFormat::Png).unwrap();
    let planes = (0..3).flat_map(|channel| pixels.iter().skip(channel).step_by(3));
    let planes: Vec<f32> = planes.map(|value| (f32::from(*value) / 255.0 - 0.5) / 0.25).collect();
    let planes = torchlet::Tensor::from_slice(&[1, 3, 16, 16], &planes).unwrap();
    // Tokens in the model's small vocabulary.
    let texts = [tokenizer.decode(&[30, 31]), tokenizer.decode(&[40, 33])];
    let [before, behind] = &texts;
    let config = GenerationConfig {
        max_new_tokens: Some(12),
        sampling: Sampling::greedy(),
        ..GenerationConfig::default()
    };
    let module = torchlet::Module::load(&model).unwrap();
    let mut runner = Runner::new(module, tokenizer, &Overrides::default()).unwrap();
    let inputs = [Input::Text(before), Input::Image(planes.as_tensor_ref()), Input::Text(behind)];
    let expected = runner.generate_from(&inputs, &config, |_| ()).unwrap();

    let template = std::env::temp_dir().join(format!("torchlet-{}.jinja", std::process::id()));
    std::fs::write(&template, "{% for message in messages %}{{ message.content }}{% endfor %}")
        .unwrap();
    let template_path = template.to_str().unwrap();
    let arguments =
        ["--tokenizer", path, "--chat-template", template_path, "--mean", "0.5", "--std", "0.25"];
    let server = Server::of(&model, &arguments);
    let url = format!("data:image/png;base64,{}", STANDARD.encode(png.into_inner()));
    let ask = |url: &str| {
        let content = json!([
            {"type": "text", "text": before}, {"type": "image_url", "image_url": {"url": url}},
            {"type": "text", "text": behind}
        ]);
        let messages = json!([{"role": "user", "content": content}]);
        let body = json!({"messages": messages, "temperature": 0, "max_tokens": 12});
        server.complete("/v1/chat/completions", &body)
    };
    for _ in 0..2 {
        let (status, answer) = ask(&url);
        assert_eq!(
            (status, &answer["choices"][0]["message"]["content"]),
            (200, &json!(expected.text)),
            "{answer}"
        );
        assert_eq!(answer["usage"]["prompt_tokens"], expected.stats.prompt_tokens, "{answer}");
    }
    let (status, answer) = ask("https://example.com/a.png");
    assert!(status == 400 && answer.to_string().contains("does not fetch URLs"), "{answer}");
    let (status, answer) = ask("data:image/png;base64,AAEC");
    assert!(status == 400 && answer.to_string().contains("image 0"), "{answer}");
    std::fs::remove_file(&template).unwrap();
    // A program without a vision encoder.
    let (status, answer) = Server::new(&[]).complete(
        "/v1/chat/completions",
        &json!({
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
            ]
        }),
    );
    assert!(status == 400 && answer.to_string().contains("vision_encoder"), "{answer}");
}

/// A request whose client left the queue is not generated.
#[test]
fn disconnecting_while_queued_costs_nothing() {
    let server = Server::new(&[]);
    let forbid = json!({"1": -100, "3": -100});
    // Long enough to outlast the interval of disconnect checks, and running before the second
    // request arrives.
    let first = json!({"prompt": "In the beginning", "n": 8, "stream": true, "logit_bias": forbid});
    let send = |body: String| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        let length = body.len();
        let head = format!("POST /v1/completions HTTP/1.1\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        stream
    };
    let mut first = send(first.to_string());
    first.read_exact(&mut [0; 100]).unwrap();
    drop(send(json!({"prompt": "a", "max_tokens": 1}).to_string()));
    first.read_to_end(&mut Vec::new()).unwrap();
    let has = |metrics: &str, what: &str, number: usize| {
        metrics
            .contains(&format!("\ntorchlet_generations_{what}_total{{model=\"fp32\"}} {number}\n"))
    };
    // The session reaches the abandoned request after the first is finished.
    let metrics = (0..200)
        .map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            server.ask("GET", "/metrics", "", "").1
        })
        .find(|metrics| has(metrics, "abandoned", 1))
        .expect("an abandoned request is counted");
    assert!(metrics.contains("\ntorchlet_generations_total{model=\"fp32\"} 8\n"), "{metrics}");
}
