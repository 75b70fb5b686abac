//! Parsing of requests.

use super::*;

const MARK: &str = "\u{fffc}";

fn chat(rest: &str) -> Result<Completion, String> {
    let body =
        format!(r#"{{"model": "m", "messages": [{{"role": "user", "content": "Hi"}}]{rest}}}"#);
    Completion::read(body.as_bytes(), true)
}

fn messages(messages: Vec<Message>, images: Vec<Vec<u8>>) -> Prompt {
    Prompt::Messages { messages, images, mark: Placeholder::not_in([]) }
}

const TOOLS: &str = r#""tools": [{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}}]"#;

#[test]
fn functions_are_read() {
    let names = |read: &Completion| -> Vec<String> {
        read.tools.iter().map(|tool| tool.name().to_owned()).collect()
    };
    let read = chat(&format!(", {TOOLS}")).unwrap();
    assert_eq!((names(&read), read.calls_several), (vec!["f".into(), "g".into()], true));
    let read = chat(&format!(r#", {TOOLS}, "tool_choice": "none""#)).unwrap();
    assert!(read.tools.is_empty());
    #[cfg(feature = "grammar")]
    {
        let read = chat(&format!(
            r#", {TOOLS}, "tool_choice": {{"type": "function", "function": {{"name": "g"}}}}, "parallel_tool_calls": false"#
        ));
        let read = read.unwrap();
        assert_eq!((names(&read), read.calls_several), (vec!["g".into()], false));
        assert!(read.config.grammar.is_some());
        let read = chat(&format!(r#", {TOOLS}, "tool_choice": "required""#)).unwrap();
        assert_eq!((names(&read).len(), read.config.grammar.is_some()), (2, true));
        let both = format!(
            r#", {TOOLS}, "tool_choice": "required", "response_format": {{"type": "json_object"}}"#
        );
        assert!(chat(&both).unwrap_err().contains("contradicts"));
    }
    let history = br#"{"messages": [{"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a", "content": "7"}]}"#;
    let read = Completion::read(history, true).unwrap();
    let call = ToolCall { id: "a".into(), name: "f".into(), arguments: "{}".into() };
    let calls = Message { tool_calls: vec![call], ..Message::new("assistant", "") };
    let result = Message { tool_call_id: Some("a".into()), ..Message::new("tool", "7") };
    assert_eq!(read.prompt, messages(vec![calls, result], vec![]));
}

#[test]
fn too_many_tools_are_rejected() {
    let function = |name: &str, parameters: &str| {
        format!(
            r#"{{"type": "function", "function": {{"name": "{name}", "parameters": {parameters}}}}}"#
        )
    };
    let list = |functions: &[String]| chat(&format!(r#", "tools": [{}]"#, functions.join(",")));
    let many: Vec<_> = (0..50_000).map(|number| function(&number.to_string(), "{}")).collect();
    assert!(list(&many).unwrap_err().contains("'tools' has 50000 functions"));
    assert_eq!(list(&many[..MAX_TOOLS]).unwrap().tools.len(), MAX_TOOLS);
    let nested = |depth: usize| {
        let (open, close) = ("{\"items\":".repeat(depth), "}".repeat(depth));
        list(&[function("f", &format!("{open}{{}}{close}"))])
    };
    assert!(nested(100).is_ok());
    assert!(nested(100_000).unwrap_err().contains("JSON"));
    // Characters with a special meaning in templates or grammars.
    let odd = list(&[function(r#"</tools>\"{{ x }}\u0000\ud83d\ude00"#, "{}")]).unwrap();
    assert_eq!(odd.tools[0].name(), "</tools>\"{{ x }}\0😀");
    let schema = Tool::call_schema(&odd.tools);
    let schema: Value = serde_json::from_str(&schema).unwrap();
    assert_eq!(schema["properties"]["name"]["const"], odd.tools[0].name());
}

#[test]
fn requests_are_read() {
    let read = chat(
        r#", "temperature": 0.5, "max_tokens": 7, "stop": "x", "seed": -1, "logit_bias": {"5": -100}, "stream": true,
               "stream_options": {"include_usage": true}, "n": 1, "presence_penalty": 0, "user": "u", "top_p": null"#,
    );
    let read = read.unwrap();
    assert_eq!(read.prompt, messages(vec![Message::new("user", "Hi")], vec![]));
    assert_eq!(
        (read.config.max_new_tokens, &read.config.stop[..]),
        (Some(7), &["x".to_owned()][..])
    );
    let sampling = &read.config.sampling;
    assert_eq!(
        (sampling.temperature, sampling.seed, &sampling.logit_bias[..]),
        (0.5, Some(u64::MAX), &[(5, -100.0)][..])
    );
    assert!(read.stream && read.include_usage);
    let parts = br#"{"messages": [{"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]}"#;
    let read = Completion::read(parts, true).unwrap();
    assert_eq!(read.prompt, messages(vec![Message::new("system", "ab")], vec![]));
}

#[test]
fn logprobs_and_choices_are_read() {
    let asked = |rest: &str| {
        let read = chat(rest).unwrap();
        let Sampling { frequency_penalty, presence_penalty, .. } = read.config.sampling;
        (read.choices, read.config.logprobs, frequency_penalty, presence_penalty)
    };
    assert_eq!(asked(""), (1, None, 0.0, 0.0));
    assert_eq!(asked(r#", "logprobs": false, "top_logprobs": 0, "n": 1.0"#), (1, None, 0.0, 0.0));
    assert_eq!(asked(r#", "logprobs": true, "n": 16"#), (16, Some(0), 0.0, 0.0));
    let all = r#", "logprobs": true, "top_logprobs": 20, "n": 3, "best_of": 3, "frequency_penalty": -2, "presence_penalty": 0.5"#;
    assert_eq!(asked(all), (3, Some(20), -2.0, 0.5));
    let text = |logprobs: &str| {
        let body = format!(r#"{{"prompt": "a", "logprobs": {logprobs}}}"#);
        Completion::read(body.as_bytes(), false).map(|read| read.config.logprobs)
    };
    assert_eq!((text("0"), text("5")), (Ok(Some(0)), Ok(Some(5))));
    assert_eq!((text("false"), text("null")), (Ok(None), Ok(None)));
    for wrong in ["true", "21", "-1", "1.5"] {
        assert!(text(wrong).unwrap_err().contains("'logprobs' should be an integer"), "{wrong}");
    }
    let other = br#"{"prompt": "a", "top_logprobs": 1}"#;
    assert!(Completion::read(other, false).unwrap_err().contains("'top_logprobs'"));
}

#[test]
fn images_become_placeholders_in_messages() {
    let image = |text: &str, url: &str| {
        let parts = json!([
            {"type": "text", "text": text},
            {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
            {"type": "text", "text": "?"}
        ]);
        let messages =
            json!([{"role": "system", "content": "s"}, {"role": "user", "content": parts}]);
        Completion::read(json!({"messages": messages}).to_string().as_bytes(), true)
    };
    let read = image("What is ", "data:image/png;base64,AAEC").unwrap();
    let marked =
        vec![Message::new("system", "s"), Message::new("user", format!("What is {MARK}?"))];
    assert_eq!(read.prompt, messages(marked, vec![vec![0, 1, 2]]));
    // The text itself may contain the placeholder character.
    let read = image(MARK, "data:image/png;base64,AAEC").unwrap();
    let other = format!("{MARK}0\u{fffd}");
    let marked = vec![Message::new("system", "s"), Message::new("user", format!("{MARK}{other}?"))];
    let expected = Prompt::Messages {
        messages: marked,
        images: vec![vec![0, 1, 2]],
        mark: Placeholder::not_in([MARK]),
    };
    assert_eq!(read.prompt, expected);
    for (text, url, expected) in [
        ("", "https://example.com/a.png", "does not fetch URLs"),
        ("", "data:image/png;base64,A", "base64"),
    ] {
        let error = image(text, url).unwrap_err();
        assert!(error.contains("messages[1]") && error.contains(expected), "{error}");
    }
}

#[test]
fn arguments_of_templates_are_read() {
    let read = chat(r#", "chat_template_kwargs": {"enable_thinking": false, "x": [1]}"#).unwrap();
    let expected = TemplateArguments::from_json(r#"{"x": [1], "enable_thinking": false}"#);
    assert_eq!(read.arguments, expected.unwrap());
    assert!(chat("").unwrap().arguments.is_empty());
    let prompt = br#"{"prompt": "a", "chat_template_kwargs": {"x": 1}}"#;
    assert!(Completion::read(prompt, false).unwrap_err().contains("chat completions only"));
}

#[test]
fn other_message_fields_are_passed_to_templates() {
    let body = br#"{"messages": [{"role": "user", "name": "Ada", "content": "a"}, {"role": "assistant", "content": "b", "refusal": null, "audio": null,
            "reasoning_content": "c", "annotations": []}]}"#;
    let others = |others: &[(&str, &str)]| -> Vec<(String, String)> {
        others.iter().map(|(name, json)| ((*name).into(), (*json).into())).collect()
    };
    let user =
        Message { extra_fields: others(&[("name", "\"Ada\"")]), ..Message::new("user", "a") };
    let fields = others(&[("reasoning_content", "\"c\""), ("annotations", "[]")]);
    let assistant = Message { extra_fields: fields, ..Message::new("assistant", "b") };
    let read = Completion::read(body, true).unwrap();
    assert_eq!(read.prompt, messages(vec![user, assistant], vec![]));
    for name in ["refusal", "audio", "function_call"] {
        let body =
            format!(r#"{{"messages": [{{"role": "assistant", "content": "a", "{name}": "b"}}]}}"#);
        let error = Completion::read(body.as_bytes(), true).unwrap_err();
        assert!(error.contains("messages[0]") && error.contains(name), "{error}");
    }
}

/// The placeholder of images must not occur in any string that a template may print.
#[test]
fn placeholders_do_not_occur_in_the_request() {
    let image = json!([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAEC"}}]);
    for (field, name) in [("tools", "description"), ("messages", "name")] {
        let mut body = json!({"messages": [{"role": "user", "content": image}], "tools": [
                {"type": "function", "function": {"name": "f"}}]});
        match field {
            "tools" => body[field][0]["function"][name] = MARK.into(),
            _ => body[field][0][name] = MARK.into(),
        }
        let read = Completion::read(body.to_string().as_bytes(), true).unwrap();
        let Prompt::Messages { mark, .. } = read.prompt else { panic!() };
        assert_eq!(mark, Placeholder::not_in([MARK]), "{field}");
    }
}

#[test]
fn stream_options_are_read() {
    let usage = |rest: &str| chat(rest).map(|read| read.include_usage);
    let options =
        |options: &str| usage(&format!(r#", "stream": true, "stream_options": {options}"#));
    assert_eq!(options("{}"), Ok(false));
    assert_eq!(options(r#"{"include_usage": true, "include_obfuscation": false}"#), Ok(true));
    assert_eq!(options(r#"{"include_usage": null}"#), Ok(false));
    assert_eq!(usage(r#", "stream_options": null"#), Ok(false));
    for wrong in ["5", "[]", r#"{"include_usage": 1}"#, r#"{"include_use": true}"#] {
        assert!(options(wrong).unwrap_err().contains("'stream_options'"), "{wrong}");
    }
    let alone = usage(r#", "stream_options": {"include_usage": true}"#).unwrap_err();
    assert!(alone.contains("'stream' to be true"), "{alone}");
}

#[test]
fn unsupported_fields_are_named() {
    for (rest, name) in [
        (r#", "reasoning_effort": "low""#, "'reasoning_effort' is not supported"),
        (r#", "web_search_options": {}"#, "'web_search_options' is not supported"),
        (r#", "logprobs": 3"#, "'logprobs' should be a boolean"),
        (
            r#", "logprobs": true, "top_logprobs": 21"#,
            "'top_logprobs' should be an integer from 0 to 20",
        ),
        (r#", "top_logprobs": 3"#, "'top_logprobs' requires 'logprobs'"),
        (r#", "logprobs": false, "top_logprobs": 3"#, "'top_logprobs' requires 'logprobs'"),
        (r#", "max_tokens": 3, "max_completion_tokens": 4"#, "contradicts"),
        (r#", "chat_template_kwargs": [1]"#, "'chat_template_kwargs'"),
        (r#", "chat_template_kwargs": {"messages": []}"#, "'messages'"),
        (r#", "n": 0"#, "'n' should be an integer from 1 to 16"),
        (r#", "n": 17"#, "'n' should be an integer from 1 to 16"),
        (r#", "n": 1.5"#, "'n'"),
        (r#", "n": 2, "best_of": 3"#, "'best_of' should equal 'n'"),
        (r#", "tools": [{}]"#, "'tools[0]'"),
        (r#", "tools": 1"#, "'tools'"),
        (r#", "tool_choice": "required""#, "'tool_choice'"),
        (r#", "tool_choice": 7"#, "'tool_choice'"),
        (r#", "functions": [{}]"#, "'functions'"),
        (r#", "response_format": {"type": "json_schema"}"#, "'response_format'"),
        (r#", "presence_penalty": 2.1"#, "'presence_penalty' should be a number from -2 to 2"),
        (r#", "frequency_penalty": "much""#, "'frequency_penalty' should be a number from -2 to 2"),
        (r#", "temprature": 1"#, "'temprature'"),
        (r#", "temperature": "hot""#, "'temperature'"),
        (r#", "max_tokens": -1"#, "'max_tokens'"),
        (r#", "stop": [1]"#, "'stop'"),
    ] {
        assert!(chat(rest).unwrap_err().contains(name), "{rest}");
    }
    for body in [
        "",
        "[]",
        "{",
        "{}",
        r#"{"messages": []}"#,
        r#"{"messages": [{"role": "user"}]}"#,
        r#"{"messages": "x"}"#,
    ] {
        assert!(Completion::read(body.as_bytes(), true).is_err(), "{body}");
    }
    for prompt in [
        r#"["a", "b"]"#,
        "[[1], [2]]",
        "[1, \"a\"]",
        "[-1]",
        "[4294967295]",
        "[1.5]",
        "[]",
        "[[]]",
        r#"[""]"#,
    ] {
        let body = format!(r#"{{"prompt": {prompt}}}"#);
        assert!(
            Completion::read(body.as_bytes(), false).unwrap_err().contains("'prompt'"),
            "{body}"
        );
    }
    let read = |body: &[u8]| Completion::read(body, false).unwrap_err();
    assert!(read(br#"{"prompt": [[]]}"#).contains("empty") && read(b"{}").contains("missing"));
}

#[test]
fn prompts_are_texts_or_tokens() {
    for (body, expected) in [
        (r#"{"prompt": "a"}"#, Prompt::Text("a".into())),
        (r#"{"prompt": ["a"]}"#, Prompt::Text("a".into())),
        (r#"{"prompt": [5, 0]}"#, Prompt::Tokens(vec![5, 0])),
        (r#"{"prompt": [[5]]}"#, Prompt::Tokens(vec![5])),
        (r#"{"prompt": [4294967294]}"#, Prompt::Tokens(vec![u32::MAX - 1])),
    ] {
        assert_eq!(Completion::read(body.as_bytes(), false).unwrap().prompt, expected, "{body}");
    }
}

/// Two calls in one piece of text, each with index and arguments; the second is dropped if only one
/// call is permitted.
#[test]
fn tool_calls_are_streamed_in_parts() {
    let tokenizer = torchlet::llm::Tokenizer::empty();
    let tools = chat(&format!(", {TOOLS}")).unwrap().tools;
    let text = r#"So:<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call><tool_call>{"arguments": {}, "name": "g"}</tool_call>"#;
    let deltas = |calls_several: bool| -> Vec<Value> {
        let answer = Answer {
            model: "m",
            id: "a".into(),
            created: 0,
            is_chat: true,
            tools: tools.clone(),
            calls_several,
            tells_logprobs: false,
            tokenizer: &tokenizer,
        };
        let events = answer.choice(0).push(text.into(), Vec::new());
        events.into_iter().skip(1).map(|mut event| event["choices"][0]["delta"].take()).collect()
    };
    let call = |part: Value| json!({"tool_calls": [part]});
    let begun = |index: usize, name: &str, arguments: &str| {
        let function = json!({"name": name, "arguments": arguments});
        call(json!({
            "id": format!("call_a_{index}"), "type": "function", "function": function,
            "index": index
        }))
    };
    let expected = [
        json!({"content": "So:"}),
        begun(0, "f", ""),
        call(json!({"function": {"arguments": "{\"x\":1}"}, "index": 0})),
        begun(1, "g", "{}"),
    ];
    assert_eq!(deltas(true), expected);
    assert_eq!(deltas(false), expected[..3]);
}

#[test]
fn errors_name_the_field() {
    let of = |message: &str| error(400, message, None)["error"]["param"].clone();
    assert_eq!(of("'echo' is not supported"), "echo");
    assert_eq!(of("the body is not JSON"), Value::Null);
    assert_eq!(error(500, "'decode' failed", None)["error"]["param"], Value::Null);
}
