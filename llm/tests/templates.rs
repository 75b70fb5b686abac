//! Chat templates with the idioms of public models, compared with `transformers`
//! (`export/templates.py`).

use serde_json::{Value, json};
use torchlet_llm::{ChatTemplate, Message, TemplateArguments, Tool, ToolCall};

/// Message fields that [`Message`] has as its own.
const OWN: [&str; 4] = ["role", "content", "tool_calls", "tool_call_id"];

fn message(value: &Value) -> Message {
    let calls = value["tool_calls"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    Message {
        tool_calls: calls
            .map(|call| ToolCall {
                id: text(&call["id"]),
                name: text(&call["function"]["name"]),
                arguments: call["function"]["arguments"].to_string(),
            })
            .collect(),
        tool_call_id: value["tool_call_id"].as_str().map(Into::into),
        extra_fields: value
            .as_object()
            .unwrap()
            .iter()
            .filter(|(name, _)| !OWN.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.to_string()))
            .collect(),
        ..Message::new(text(&value["role"]), text(&value["content"]))
    }
}

#[test]
fn prompts_match_transformers() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/templates.json");
    let whole: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut failures = Vec::new();
    for template in whole["templates"].as_array().unwrap() {
        let mut config = whole["tokens"].clone();
        config["chat_template"] = template["template"].clone();
        let made = ChatTemplate::from_config(&config.to_string());
        for case in template["cases"].as_array().unwrap() {
            let conversation = &whole["conversations"][case["conversation"].as_str().unwrap()];
            let list = |name: &str| conversation[name].as_array().unwrap().iter();
            let messages: Vec<Message> = list("messages").map(message).collect();
            let tools: Vec<Tool> =
                list("tools").map(|tool| Tool::from_json(&tool.to_string()).unwrap()).collect();
            let prompts = conversation["add_generation_prompt"].as_bool().unwrap();
            let arguments = match &conversation["arguments"] {
                Value::Null => TemplateArguments::default(),
                arguments => TemplateArguments::from_json(&arguments.to_string()).unwrap(),
            };
            let found = match &made {
                Ok(made) => {
                    let made = made.as_ref().unwrap();
                    made.render_with(&messages, &tools, &arguments, prompts)
                }
                Err(error) => {
                    failures.push(format!("{}: {error}", template["name"]));
                    break;
                }
            };
            let is_right = match (&found, case["text"].as_str()) {
                (Ok(found), Some(text)) => found == text,
                (found, None) => found.is_err(),
                _ => false,
            };
            if !is_right {
                let name = json!([template["name"], case["conversation"]]);
                failures.push(format!("{name}:\n {found:?}\n {case}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
