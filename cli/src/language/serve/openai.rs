//! The requests and answers of OpenAI's API, as far as they are supported. What is not, and would change the answer, is refused by name.

use super::pictures::data_uri;
use serde_json::{Map, Value, json};
use std::time::{SystemTime, UNIX_EPOCH};
#[cfg(feature = "grammar")]
use torchlet::llm::Grammar;
use torchlet::llm::{
    Finish, Generation, GenerationConfig, Mark, Message, Said, Sampling, TemplateArguments, Tool,
    ToolCall, ToolCalls,
};

/// What a text follows.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Prompt {
    /// Messages, in which a mark stands in the place of each picture, and the files of the pictures.
    Messages {
        messages: Vec<Message>,
        pictures: Vec<Vec<u8>>,
        mark: Mark,
    },
    Text(String),
}

/// A request for text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Completion {
    pub(super) prompt: Prompt,
    pub(super) config: GenerationConfig,
    /// What else the chat template is given.
    pub(super) arguments: TemplateArguments,
    /// The functions that may be called.
    pub(super) tools: Vec<Tool>,
    /// Whether several may be called at once.
    pub(super) calls_several: bool,
    /// Whether the answer comes in events.
    pub(super) stream: bool,
    /// Whether the last event tells how many tokens there were.
    pub(super) include_usage: bool,
}

/// Fields that change nothing about the answer of this server.
const WITHOUT_EFFECT: [&str; 9] = [
    "model",
    "user",
    "store",
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prediction",
];

/// The most functions of a request: as many as OpenAI takes. Each is an alternative of what a call may be.
const MAX_TOOLS: usize = 128;

/// A field's value, and whether it asks for nothing but what happens anyway.
type Neutral = (&'static str, fn(&Value) -> bool);
const UNSUPPORTED: [Neutral; 15] = [
    ("functions", |value| value.as_array().is_some_and(Vec::is_empty)),
    ("function_call", |value| value == "none"),
    ("n", |value| value.as_f64() == Some(1.0)),
    ("best_of", |value| value.as_f64() == Some(1.0)),
    ("frequency_penalty", |value| value.as_f64() == Some(0.0)),
    ("presence_penalty", |value| value.as_f64() == Some(0.0)),
    ("logprobs", |value| value == false),
    ("top_logprobs", |_| false),
    ("echo", |value| value == false),
    ("suffix", |_| false),
    ("modalities", |value| *value == json!(["text"])),
    ("audio", |_| false),
    ("reasoning_effort", |_| false),
    ("verbosity", |value| value == "medium"),
    ("web_search_options", |_| false),
];

impl Completion {
    /// What a body asks for.
    pub(super) fn read(body: &[u8], is_chat: bool) -> Result<Self, String> {
        let body: Value = serde_json::from_slice(body)
            .map_err(|error| format!("the body is not JSON: {error}"))?;
        let Value::Object(mut fields) = body else {
            return Err("the body should be an object".into());
        };
        fields.retain(|name, value| !value.is_null() && !WITHOUT_EFFECT.contains(&name.as_str()));
        for (name, is_neutral) in UNSUPPORTED {
            if fields.remove(name).is_some_and(|value| !is_neutral(&value)) {
                return Err(format!("'{name}' is not supported"));
            }
        }
        let mut fields = Fields(fields);
        #[cfg(not(feature = "grammar"))]
        fields.refuse_grammars()?;
        let prompt = match is_chat {
            true => fields.messages()?,
            false => Prompt::Text(fields.prompt()?),
        };
        let (tools, is_forced) = fields.tools()?;
        let arguments = fields.template_arguments()?;
        for (name, is_there) in
            [("tools", !tools.is_empty()), ("chat_template_kwargs", !arguments.is_empty())]
        {
            if !is_chat && is_there {
                return Err(format!("'{name}' are for conversations"));
            }
        }
        let calls_several =
            fields.take("parallel_tool_calls", "true or false", Value::as_bool)?.unwrap_or(true);
        #[cfg(feature = "grammar")]
        let grammar = match (fields.grammar()?, is_forced) {
            (Some(_), true) => {
                return Err("'response_format' and 'tool_choice' ask for different things".into());
            }
            (grammar, false) => grammar,
            (None, true) => {
                let schema = Grammar::json_schema(&Tool::call_schema(&tools));
                Some(schema.map_err(|error| format!("'tools': {error}"))?)
            }
        };
        #[cfg(not(feature = "grammar"))]
        if is_forced {
            return Err("'tool_choice' is not supported but for 'none' and 'auto': this is built without grammars".into());
        }
        let usual = Sampling::default();
        let config = GenerationConfig {
            max_new_tokens: fields.most_tokens()?,
            stop: fields.stop()?,
            #[cfg(feature = "grammar")]
            grammar,
            sampling: Sampling {
                temperature: fields.number("temperature")?.unwrap_or(1.0),
                top_p: fields.number("top_p")?.unwrap_or(1.0),
                min_p: fields.number("min_p")?.unwrap_or(0.0),
                top_k: fields
                    .whole("top_k")?
                    .map_or(0, |count| usize::try_from(count).unwrap_or(usize::MAX)),
                repetition_penalty: fields.number("repetition_penalty")?.unwrap_or(1.0),
                seed: fields.seed()?,
                logit_bias: fields.logit_bias()?,
                ..usual
            },
            ..GenerationConfig::default()
        };
        let stream = fields.truth("stream")?;
        let include_usage = fields.include_usage(stream)?;
        if let Some(name) = fields.0.keys().next() {
            return Err(format!("'{name}' is not known"));
        }
        Ok(Completion { prompt, config, arguments, tools, calls_several, stream, include_usage })
    }

    pub(super) fn is_chat(&self) -> bool {
        matches!(self.prompt, Prompt::Messages { .. })
    }
}

struct Fields(Map<String, Value>);

impl Fields {
    fn take<T>(
        &mut self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let value = self.0.remove(name);
        let read =
            |value: Value| read(&value).ok_or_else(|| format!("'{name}' should be {expected}"));
        value.map(read).transpose()
    }

    fn number(&mut self, name: &str) -> Result<Option<f32>, String> {
        self.take(name, "a number", |value| value.as_f64().map(|number| number as f32))
    }

    fn whole(&mut self, name: &str) -> Result<Option<u64>, String> {
        self.take(name, "a whole number from 0", Value::as_u64)
    }

    fn truth(&mut self, name: &str) -> Result<bool, String> {
        Ok(self.take(name, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    /// The most tokens of the answer, which has two names.
    fn most_tokens(&mut self) -> Result<Option<usize>, String> {
        let (new, old) = (self.whole("max_completion_tokens")?, self.whole("max_tokens")?);
        match (new, old) {
            (Some(new), Some(old)) if new != old => {
                Err("'max_completion_tokens' and 'max_tokens' ask for different things".into())
            }
            _ => Ok(new.or(old).map(|count| usize::try_from(count).unwrap_or(usize::MAX))),
        }
    }

    /// Whether the last event should tell how many tokens there were.
    fn include_usage(&mut self, stream: bool) -> Result<bool, String> {
        let Some(options) = self.0.remove("stream_options") else { return Ok(false) };
        if !stream {
            return Err("'stream_options' is for answers in events: 'stream' should be true".into());
        }
        let Value::Object(fields) = options else {
            return Err("'stream_options' should be an object".into());
        };
        let mut options = Fields(fields);
        options.0.retain(|_, value| !value.is_null());
        // What lengthens events so that their length tells less of a network's text: this has no effect on the text.
        options
            .truth("include_obfuscation")
            .map_err(|error| format!("'stream_options': {error}"))?;
        let include =
            options.truth("include_usage").map_err(|error| format!("'stream_options': {error}"))?;
        match options.0.keys().next() {
            Some(name) => Err(format!("'stream_options': '{name}' is not known")),
            None => Ok(include),
        }
    }

    /// What else the chat template is given, as in other servers.
    fn template_arguments(&mut self) -> Result<TemplateArguments, String> {
        let Some(arguments) = self.0.remove("chat_template_kwargs") else {
            return Ok(TemplateArguments::default());
        };
        TemplateArguments::from_json(&arguments.to_string())
            .map_err(|error| format!("'chat_template_kwargs': {error}"))
    }

    fn seed(&mut self) -> Result<Option<u64>, String> {
        self.take("seed", "a whole number", |value| {
            value.as_u64().or(value.as_i64().map(i64::cast_unsigned))
        })
    }

    fn stop(&mut self) -> Result<Vec<String>, String> {
        let found = self.take("stop", "a text or up to 16 texts", |value| match value {
            Value::String(text) => Some(vec![text.clone()]),
            Value::Array(texts) if texts.len() <= 16 => {
                texts.iter().map(|text| text.as_str().map(String::from)).collect()
            }
            _ => None,
        });
        Ok(found?.unwrap_or_default())
    }

    /// What the answer has to be: `text`, `json_object`, or `json_schema` with a schema.
    #[cfg(feature = "grammar")]
    fn grammar(&mut self) -> Result<Option<Grammar>, String> {
        let Some(format) = self.0.remove("response_format") else { return Ok(None) };
        match format["type"].as_str() {
            Some("text") => Ok(None),
            Some("json_object") => Ok(Some(Grammar::json_object())),
            Some("json_schema") if format["json_schema"]["schema"].is_object() => {
                Grammar::json_schema(&format["json_schema"]["schema"].to_string())
                    .map(Some)
                    .map_err(|error| error.to_string())
            }
            _ => Err("'response_format' should be of type 'text', 'json_object', or 'json_schema' with 'json_schema.schema'".into()),
        }
    }

    #[cfg(not(feature = "grammar"))]
    fn refuse_grammars(&mut self) -> Result<(), String> {
        let format = self.0.remove("response_format");
        match format.is_some_and(|format| format["type"] != "text") {
            true => {
                Err("'response_format' is not supported: this is built without grammars".into())
            }
            false => Ok(()),
        }
    }

    fn logit_bias(&mut self) -> Result<Vec<(u32, f32)>, String> {
        let found = self.take("logit_bias", "an object of tokens and numbers", |value| {
            let biases = value.as_object()?.iter();
            biases.map(|(token, bias)| Some((token.parse().ok()?, bias.as_f64()? as f32))).collect()
        });
        Ok(found?.unwrap_or_default())
    }

    fn prompt(&mut self) -> Result<String, String> {
        let found = self.take("prompt", "a text", |value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Array(texts) if texts.len() == 1 => texts[0].as_str().map(String::from),
            _ => None,
        });
        found?.filter(|text| !text.is_empty()).ok_or_else(|| "'prompt' is missing".into())
    }

    fn messages(&mut self) -> Result<Prompt, String> {
        let (mut messages, mut pictures) = (Vec::new(), Vec::new());
        let list =
            self.take("messages", "a list of objects with 'role' and 'content'", |value| {
                value.as_array().cloned()
            })?;
        let list = list.unwrap_or_default();
        let mut written = Vec::new();
        let others = ["tools", "chat_template_kwargs"].iter().filter_map(|name| self.0.get(*name));
        list.iter().chain(others).for_each(|value| texts(value, &mut written));
        let mark = Mark::unlike(written);
        for (number, value) in list.iter().enumerate() {
            let read = message(value, &mark, &mut pictures);
            messages.push(read.map_err(|error| format!("'messages[{number}]': {error}"))?);
        }
        match messages.is_empty() {
            true => Err("'messages' is missing".into()),
            false => Ok(Prompt::Messages { messages, pictures, mark }),
        }
    }

    /// The functions that may be called, and whether one has to be.
    fn tools(&mut self) -> Result<(Vec<Tool>, bool), String> {
        let list = self.0.remove("tools").unwrap_or_else(|| json!([]));
        let Value::Array(list) = list else {
            return Err("'tools' should be a list of functions".into());
        };
        if list.len() > MAX_TOOLS {
            return Err(format!("'tools' has {} functions, more than {MAX_TOOLS}", list.len()));
        }
        let mut tools: Vec<Tool> = Vec::new();
        for (number, value) in list.iter().enumerate() {
            let tool = Tool::from_json(&value.to_string())
                .map_err(|error| format!("'tools[{number}]': {error}"))?;
            if tools.iter().any(|other| other.name() == tool.name()) {
                return Err(format!("'tools[{number}]': '{}' is there already", tool.name()));
            }
            tools.push(tool);
        }
        let choice = self.0.remove("tool_choice").unwrap_or_else(|| "auto".into());
        let named = choice["function"]["name"].as_str().filter(|_| choice["type"] == "function");
        match (choice.as_str(), named) {
            (Some("none"), _) => return Ok((Vec::new(), false)),
            (Some("auto"), _) => return Ok((tools, false)),
            (Some("required"), _) if !tools.is_empty() => return Ok((tools, true)),
            (_, Some(name)) => tools.retain(|tool| tool.name() == name),
            _ => tools.clear(),
        }
        match tools.is_empty() {
            true => Err("'tool_choice' should be 'none', 'auto', 'required' where there are 'tools', or {\"type\": \"function\", \"function\": {\"name\": one of them}}".into()),
            false => Ok((tools, true)),
        }
    }
}

/// All texts in a value: a template may write any of them.
fn texts<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
        Value::Object(fields) => {
            for (name, value) in fields {
                found.push(name);
                texts(value, found);
            }
        }
        _ => {}
    }
}

/// Fields of a message that are read by themselves.
const OF_MESSAGES: [&str; 4] = ["role", "content", "tool_calls", "tool_call_id"];
/// Fields of a message that are not supported: what is in them is said otherwise now, or is no text.
const UNSUPPORTED_IN_MESSAGES: [&str; 3] = ["function_call", "audio", "refusal"];

/// A message, whose pictures are added to others.
fn message(value: &Value, mark: &Mark, pictures: &mut Vec<Vec<u8>>) -> Result<Message, String> {
    let role = value["role"].as_str().ok_or("'role' should be a text")?;
    let tool_calls = match &value["tool_calls"] {
        Value::Null => Vec::new(),
        Value::Array(calls) => calls.iter().map(tool_call).collect::<Result<_, _>>()?,
        _ => return Err("'tool_calls' should be a list".into()),
    };
    let tool_call_id = match &value["tool_call_id"] {
        Value::Null => None,
        Value::String(id) => Some(id.clone()),
        _ => return Err("'tool_call_id' should be a text".into()),
    };
    let content = match &value["content"] {
        Value::Null if !tool_calls.is_empty() => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let mut content = String::new();
            for part in parts {
                content += &content_part(part, mark, pictures)?;
            }
            content
        }
        _ => return Err("'content' should be a text, or a list of parts".into()),
    };
    // What newer models call the system.
    let role = if role == "developer" { "system" } else { role };
    let mut others = Vec::new();
    for (name, value) in
        value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null())
    {
        match name.as_str() {
            name if OF_MESSAGES.contains(&name) => {}
            name if UNSUPPORTED_IN_MESSAGES.contains(&name) => {
                return Err(format!("'{name}' is not supported"));
            }
            // The template may look at it: a name, or what an assistant thought.
            name => others.push((name.to_owned(), value.to_string())),
        }
    }
    Ok(Message { tool_calls, tool_call_id, others, ..Message::new(role, content) })
}

/// A call of a function, as the assistant's message has it.
fn tool_call(value: &Value) -> Result<ToolCall, String> {
    let function = &value["function"];
    let (Some(id), Some(name), Some(arguments)) =
        (value["id"].as_str(), function["name"].as_str(), function["arguments"].as_str())
    else {
        return Err("a part of 'tool_calls' should be {\"id\": ..., \"type\": \"function\", \"function\": {\"name\": ..., \"arguments\": ...}}".into());
    };
    Ok(ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() })
}

/// The text of a part of a message's content, or what stands for its picture.
fn content_part(part: &Value, mark: &Mark, pictures: &mut Vec<Vec<u8>>) -> Result<String, String> {
    match (part["type"].as_str(), &part["text"], &part["image_url"]["url"]) {
        (Some("text"), Value::String(text), _) => Ok(text.clone()),
        (Some("image_url"), _, Value::String(url)) => {
            pictures.push(data_uri(url)?);
            Ok(mark.as_str().into())
        }
        _ => Err("a part of 'content' should be {\"type\": \"text\", \"text\": ...} or {\"type\": \"image_url\", \"image_url\": {\"url\": ...}}".into()),
    }
}

/// What all parts of an answer have.
pub(super) struct Answer<'a> {
    pub(super) model: &'a str,
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) is_chat: bool,
    /// The functions that may be called, and whether several at once.
    pub(super) tools: Vec<Tool>,
    pub(super) calls_several: bool,
}

/// Finds the calls in an answer, and numbers them.
pub(super) struct Calls<'a> {
    answer: &'a Answer<'a>,
    /// Where there are no functions, all is text.
    found: Option<ToolCalls>,
    count: usize,
}

impl Calls<'_> {
    /// What is said by then, each part with the number of calls so far.
    pub(super) fn push(&mut self, text: String) -> Vec<(Said, usize)> {
        let said = match &mut self.found {
            Some(found) => found.push(&text),
            None => vec![Said::Text(text)],
        };
        self.numbered(said)
    }

    /// What is left at the end.
    pub(super) fn finish(&mut self) -> Vec<(Said, usize)> {
        let said = self.found.take().map(ToolCalls::finish).unwrap_or_default();
        self.numbered(said)
    }

    /// How many calls there were.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    fn numbered(&mut self, said: Vec<Said>) -> Vec<(Said, usize)> {
        let mut numbered = Vec::new();
        for mut said in said {
            // Behind the only call that there may be, there is nothing.
            if self.count > 0 && !self.answer.calls_several {
                break;
            }
            if let Said::Call(call) = &mut said {
                call.id = format!("call_{}_{}", self.answer.id, self.count);
                self.count += 1;
            }
            numbered.push((said, self.count));
        }
        numbered
    }
}

/// A call as answers have it.
fn call(call: &ToolCall) -> Value {
    let ToolCall { id, name, arguments } = call;
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn finish(generation: &Generation, calls: usize) -> &'static str {
    match generation.finish {
        Finish::Length | Finish::Context => "length",
        _ if calls > 0 => "tool_calls",
        _ => "stop",
    }
}

fn usage(generation: &Generation, prompt: usize) -> Value {
    let generated = generation.stats.generated_tokens;
    json!({"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated})
}

impl Answer<'_> {
    fn object(&self, kind: &str, choices: Value) -> Value {
        json!({"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices})
    }

    fn chunk(&self, text: Option<&str>, reason: Option<&str>) -> Value {
        if !self.is_chat {
            let text = text.unwrap_or_default();
            return self.object(
                "text_completion",
                json!([{"index": 0, "text": text, "logprobs": null, "finish_reason": reason}]),
            );
        }
        let delta = text.map_or(json!({}), |text| json!({"content": text}));
        self.object(
            "chat.completion.chunk",
            json!([{"index": 0, "delta": delta, "finish_reason": reason}]),
        )
    }

    /// The first event of a conversation: who speaks.
    pub(super) fn begin(&self) -> Option<Value> {
        let delta = json!({"role": "assistant", "content": ""});
        self.is_chat.then(|| {
            self.object(
                "chat.completion.chunk",
                json!([{"index": 0, "delta": delta, "finish_reason": null}]),
            )
        })
    }

    /// For what the answer says.
    pub(super) fn calls(&self) -> Calls<'_> {
        let found = (!self.tools.is_empty()).then(|| ToolCalls::of(&self.tools));
        Calls { answer: self, found, count: 0 }
    }

    /// An event with text, or with a call; `calls` are all so far, this one included.
    pub(super) fn said(&self, said: &Said, calls: usize) -> Value {
        match said {
            Said::Text(text) => self.chunk(Some(text), None),
            Said::Call(found) => {
                let mut call = call(found);
                call["index"] = (calls.saturating_sub(1)).into();
                let delta = json!({"tool_calls": [call]});
                self.object(
                    "chat.completion.chunk",
                    json!([{"index": 0, "delta": delta, "finish_reason": null}]),
                )
            }
        }
    }

    /// The last events.
    pub(super) fn end(
        &self,
        generation: &Generation,
        prompt: usize,
        calls: usize,
        include_usage: bool,
    ) -> Vec<Value> {
        let mut events = vec![self.chunk(None, Some(finish(generation, calls)))];
        if include_usage {
            let kind = if self.is_chat { "chat.completion.chunk" } else { "text_completion" };
            let mut event = self.object(kind, json!([]));
            event["usage"] = usage(generation, prompt);
            events.push(event);
        }
        events
    }

    /// All of it at once.
    pub(super) fn whole(&self, generation: &Generation, prompt: usize) -> Value {
        let mut calls = self.calls();
        let mut said = calls.push(generation.text.clone());
        said.extend(calls.finish());
        let (mut text, mut called) = (String::new(), Vec::new());
        for (said, _) in &said {
            match said {
                Said::Text(said) => text += said,
                Said::Call(found) => called.push(call(found)),
            }
        }
        let reason = finish(generation, called.len());
        let mut answer = match self.is_chat {
            true => {
                let mut message = json!({"role": "assistant", "content": text, "refusal": null});
                if !called.is_empty() {
                    if text.trim().is_empty() {
                        message["content"] = Value::Null;
                    }
                    message["tool_calls"] = called.into();
                }
                let choices = json!([{"index": 0, "message": message, "logprobs": null, "finish_reason": reason}]);
                self.object("chat.completion", choices)
            }
            false => {
                let choices = json!([{"index": 0, "text": generation.text, "logprobs": null, "finish_reason": reason}]);
                self.object("text_completion", choices)
            }
        };
        answer["usage"] = usage(generation, prompt);
        answer
    }
}

/// What went wrong.
pub(super) fn error(status: u16, message: &str, code: Option<&str>) -> Value {
    let kind = match status {
        401 => "authentication_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

#[cfg(test)]
mod tests;
