//! Requests and responses of OpenAI's API. Unsupported fields that would change the response are
//! refused by name.

mod answer;
mod likelihood;

pub(super) use answer::{Answer, error, now};

use super::images::data_uri;
use serde_json::{Map, Value, json};
#[cfg(feature = "grammar")]
use torchlet::llm::Grammar;
use torchlet::llm::{
    GenerationConfig, Message, Placeholder, Sampling, TemplateArguments, Tool, ToolCall,
};

/// The prompt of a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Prompt {
    /// Messages with a placeholder per image, and the image files.
    Messages {
        messages: Vec<Message>,
        images: Vec<Vec<u8>>,
        mark: Placeholder,
    },
    Text(String),
    /// Passed as given, without adding BOS.
    Tokens(Vec<u32>),
}

/// A request for text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Completion {
    /// The requested model.
    pub(super) model: Option<String>,
    pub(super) prompt: Prompt,
    pub(super) config: GenerationConfig,
    /// Number of choices.
    pub(super) choices: usize,
    /// Additional variables of the chat template.
    pub(super) arguments: TemplateArguments,
    /// The functions that the model may call.
    pub(super) tools: Vec<Tool>,
    /// Whether the model may call several functions at once.
    pub(super) calls_several: bool,
    /// Whether the response is streamed.
    pub(super) stream: bool,
    /// Whether the last event of a stream contains token counts.
    pub(super) include_usage: bool,
}

/// A request whose schema is not compiled yet.
pub(super) struct Parsed {
    pub(super) completion: Completion,
    /// The schema, and a prefix for its error messages.
    #[cfg(feature = "grammar")]
    pub(super) schema: Option<(String, &'static str)>,
}

/// The response format.
#[cfg(feature = "grammar")]
enum Form {
    Object,
    Schema(String),
}

/// Accepted fields without effect on this server.
const WITHOUT_EFFECT: [&str; 8] = [
    "user",
    "store",
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prediction",
];

/// Maximum functions per request, the same as OpenAI's. Each adds an alternative to the grammar.
const MAX_TOOLS: usize = 128;
/// Maximum choices per request. They are generated in turn after a single prefill, while other
/// requests wait.
const MAX_CHOICES: usize = 16;
/// Maximum `top_logprobs`.
const MAX_TOP_LOGPROBS: u64 = 20;

/// A field's name, and a test whether a value equals the default behaviour.
type Neutral = (&'static str, fn(&Value) -> bool);
const UNSUPPORTED: [Neutral; 9] = [
    ("functions", |value| value.as_array().is_some_and(Vec::is_empty)),
    ("function_call", |value| value == "none"),
    ("echo", |value| value == false),
    ("suffix", |value| value == ""),
    ("modalities", |value| *value == json!(["text"])),
    ("audio", |_| false),
    ("reasoning_effort", |_| false),
    ("verbosity", |value| value == "medium"),
    ("web_search_options", |_| false),
];

impl Completion {
    /// Parses a request and prepares its schema for the compiler.
    #[cfg(test)]
    pub(super) fn read(body: &[u8], is_chat: bool) -> Result<Self, String> {
        let parsed = Self::parse(body, is_chat)?;
        #[cfg_attr(not(feature = "grammar"), expect(unused_mut))]
        let mut completion = parsed.completion;
        #[cfg(feature = "grammar")]
        if let Some((schema, field)) = parsed.schema {
            let grammar = Grammar::json_schema(&schema);
            completion.config.grammar = Some(grammar.map_err(|error| format!("{field}{error}"))?);
        }
        Ok(completion)
    }

    /// Parses a request without compiling its schema.
    pub(super) fn parse(body: &[u8], is_chat: bool) -> Result<Parsed, String> {
        let body: Value = serde_json::from_slice(body)
            .map_err(|error| format!("the body is not JSON: {error}"))?;
        let Value::Object(mut fields) = body else {
            return Err("the body should be a JSON object".into());
        };
        fields.retain(|name, value| !value.is_null() && !WITHOUT_EFFECT.contains(&name.as_str()));
        for (name, is_neutral) in UNSUPPORTED {
            if fields.remove(name).is_some_and(|value| !is_neutral(&value)) {
                return Err(format!("'{name}' is not supported"));
            }
        }
        let mut fields = Fields(fields);
        // With a single model, any value is accepted.
        let model = fields.0.remove("model").map(|model| match model {
            Value::String(name) => name,
            other => other.to_string(),
        });
        #[cfg(not(feature = "grammar"))]
        fields.refuse_grammars()?;
        let prompt = match is_chat {
            true => fields.messages()?,
            false => fields.prompt()?,
        };
        let (tools, is_forced) = fields.tools()?;
        let arguments = fields.template_arguments()?;
        for (name, is_there) in
            [("tools", !tools.is_empty()), ("chat_template_kwargs", !arguments.is_empty())]
        {
            if !is_chat && is_there {
                return Err(format!("'{name}' is supported for chat completions only"));
            }
        }
        let calls_several =
            fields.take("parallel_tool_calls", "a boolean", Value::as_bool)?.unwrap_or(true);
        #[cfg(feature = "grammar")]
        let (grammar, schema) = match (fields.grammar()?, is_forced) {
            (Some(_), true) => {
                return Err("'response_format' contradicts 'tool_choice'".into());
            }
            (None, true) => (None, Some((Tool::call_schema(&tools), "'tools': "))),
            (Some(Form::Schema(schema)), false) => (None, Some((schema, ""))),
            (Some(Form::Object), false) => (Some(Grammar::json_object()), None),
            (None, false) => (None, None),
        };
        #[cfg(not(feature = "grammar"))]
        if is_forced {
            return Err("'tool_choice' should be 'none' or 'auto': this build has no grammars \
                        (constrained generation)"
                .into());
        }
        let usual = Sampling::default();
        let choices = fields.choices()?;
        let config = GenerationConfig {
            max_new_tokens: fields.max_tokens()?,
            stop: fields.stop()?,
            logprobs: fields.logprobs(is_chat)?,
            #[cfg(feature = "grammar")]
            grammar,
            sampling: Sampling {
                temperature: fields.number("temperature")?.unwrap_or(1.0),
                top_p: fields.number("top_p")?.unwrap_or(1.0),
                min_p: fields.number("min_p")?.unwrap_or(0.0),
                top_k: fields
                    .non_negative("top_k")?
                    .map_or(0, |count| usize::try_from(count).unwrap_or(usize::MAX)),
                repetition_penalty: fields.number("repetition_penalty")?.unwrap_or(1.0),
                frequency_penalty: fields.penalty("frequency_penalty")?,
                presence_penalty: fields.penalty("presence_penalty")?,
                seed: fields.seed()?,
                logit_bias: fields.logit_bias()?,
                ..usual
            },
            ..GenerationConfig::default()
        };
        let stream = fields.boolean("stream")?;
        let include_usage = fields.include_usage(stream)?;
        if let Some(name) = fields.0.keys().next() {
            return Err(format!("'{name}' is not a known field"));
        }
        let completion = Completion {
            model,
            prompt,
            config,
            choices,
            arguments,
            tools,
            calls_several,
            stream,
            include_usage,
        };
        Ok(Parsed {
            completion,
            #[cfg(feature = "grammar")]
            schema,
        })
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

    fn non_negative(&mut self, name: &str) -> Result<Option<u64>, String> {
        self.take(name, "a non-negative integer", Value::as_u64)
    }

    fn boolean(&mut self, name: &str) -> Result<bool, String> {
        Ok(self.take(name, "a boolean", Value::as_bool)?.unwrap_or(false))
    }

    /// Number of choices; `best_of` must equal it.
    fn choices(&mut self) -> Result<usize, String> {
        let mut count = |name| {
            let expected = format!("an integer from 1 to {MAX_CHOICES}");
            let fits = |value: &Value| {
                (1..=MAX_CHOICES).find(|count| value.as_f64() == Some(*count as f64))
            };
            self.take(name, &expected, fits)
        };
        let (choices, best_of) = (count("n")?.unwrap_or(1), count("best_of")?);
        match best_of.is_some_and(|best_of| best_of != choices) {
            true => Err("'best_of' should equal 'n'".into()),
            false => Ok(choices),
        }
    }

    /// Number of most likely tokens to report per position, in addition to the chosen one.
    fn logprobs(&mut self, is_chat: bool) -> Result<Option<usize>, String> {
        let expected = format!("an integer from 0 to {MAX_TOP_LOGPROBS}");
        let count = |value: &Value| {
            let count = value.as_u64().filter(|count| *count <= MAX_TOP_LOGPROBS)?;
            usize::try_from(count).ok()
        };
        if !is_chat {
            let count = |value: &Value| match value {
                Value::Bool(false) => Some(None),
                value => count(value).map(Some),
            };
            return Ok(self.take("logprobs", &expected, count)?.flatten());
        }
        let is_asked = self.boolean("logprobs")?;
        match self.take("top_logprobs", &expected, count)? {
            Some(1..) if !is_asked => Err("'top_logprobs' requires 'logprobs' to be true".into()),
            count => Ok(is_asked.then_some(count.unwrap_or(0))),
        }
    }

    fn penalty(&mut self, name: &str) -> Result<f32, String> {
        let fits = |value: &Value| {
            let number = value.as_f64().filter(|number| (-2.0..=2.0).contains(number))?;
            Some(number as f32)
        };
        Ok(self.take(name, "a number from -2 to 2", fits)?.unwrap_or(0.0))
    }

    /// Maximum tokens to generate, under either of its two names.
    fn max_tokens(&mut self) -> Result<Option<usize>, String> {
        let (new, old) =
            (self.non_negative("max_completion_tokens")?, self.non_negative("max_tokens")?);
        match (new, old) {
            (Some(new), Some(old)) if new != old => {
                Err("'max_completion_tokens' contradicts 'max_tokens'".into())
            }
            _ => Ok(new.or(old).map(|count| usize::try_from(count).unwrap_or(usize::MAX))),
        }
    }

    /// Whether the last event should contain token counts.
    fn include_usage(&mut self, stream: bool) -> Result<bool, String> {
        let Some(options) = self.0.remove("stream_options") else { return Ok(false) };
        if !stream {
            return Err("'stream_options' requires 'stream' to be true".into());
        }
        let Value::Object(fields) = options else {
            return Err("'stream_options' should be an object".into());
        };
        let mut options = Fields(fields);
        options.0.retain(|_, value| !value.is_null());
        // Obfuscation pads events to hide token lengths from eavesdroppers; it does not affect the
        // text.
        options
            .boolean("include_obfuscation")
            .map_err(|error| format!("'stream_options': {error}"))?;
        let include = options
            .boolean("include_usage")
            .map_err(|error| format!("'stream_options': {error}"))?;
        match options.0.keys().next() {
            Some(name) => Err(format!("'stream_options': '{name}' is not a known field")),
            None => Ok(include),
        }
    }

    /// Additional variables of the chat template, as in other servers.
    fn template_arguments(&mut self) -> Result<TemplateArguments, String> {
        let Some(arguments) = self.0.remove("chat_template_kwargs") else {
            return Ok(TemplateArguments::default());
        };
        TemplateArguments::from_json(&arguments.to_string())
            .map_err(|error| format!("'chat_template_kwargs': {error}"))
    }

    fn seed(&mut self) -> Result<Option<u64>, String> {
        self.take("seed", "an integer", |value| {
            value.as_u64().or(value.as_i64().map(i64::cast_unsigned))
        })
    }

    fn stop(&mut self) -> Result<Vec<String>, String> {
        let found = self.take("stop", "a string or at most 16 strings", |value| match value {
            Value::String(text) => Some(vec![text.clone()]),
            Value::Array(texts) if texts.len() <= 16 => {
                texts.iter().map(|text| text.as_str().map(String::from)).collect()
            }
            _ => None,
        });
        Ok(found?.unwrap_or_default())
    }

    /// The response format: `text`, `json_object`, or `json_schema` with a schema.
    #[cfg(feature = "grammar")]
    fn grammar(&mut self) -> Result<Option<Form>, String> {
        let Some(format) = self.0.remove("response_format") else { return Ok(None) };
        match format["type"].as_str() {
            Some("text") => Ok(None),
            Some("json_object") => Ok(Some(Form::Object)),
            Some("json_schema") if format["json_schema"]["schema"].is_object() => {
                Ok(Some(Form::Schema(format["json_schema"]["schema"].to_string())))
            }
            _ => {
                Err("'response_format' should be of type 'text', 'json_object', or 'json_schema' \
                      with 'json_schema.schema'"
                    .into())
            }
        }
    }

    #[cfg(not(feature = "grammar"))]
    fn refuse_grammars(&mut self) -> Result<(), String> {
        let format = self.0.remove("response_format");
        match format.is_some_and(|format| format["type"] != "text") {
            true => Err("'response_format' is not supported: this build has no grammars".into()),
            false => Ok(()),
        }
    }

    fn logit_bias(&mut self) -> Result<Vec<(u32, f32)>, String> {
        let found = self.take("logit_bias", "an object that maps tokens to numbers", |value| {
            let biases = value.as_object()?.iter();
            biases.map(|(token, bias)| Some((token.parse().ok()?, bias.as_f64()? as f32))).collect()
        });
        Ok(found?.unwrap_or_default())
    }

    fn prompt(&mut self) -> Result<Prompt, String> {
        let found = self.take("prompt", "a single string, or its tokens", |value| {
            let only = match value {
                Value::Array(several) => match several.as_slice() {
                    [only @ (Value::String(_) | Value::Array(_))] => only,
                    _ => value,
                },
                _ => value,
            };
            match only {
                Value::String(text) => Some(Prompt::Text(text.clone())),
                // `u32::MAX` marks image positions in a context.
                Value::Array(tokens) => {
                    let token = |token: &Value| {
                        u32::try_from(token.as_u64()?).ok().filter(|token| *token != u32::MAX)
                    };
                    tokens.iter().map(token).collect::<Option<_>>().map(Prompt::Tokens)
                }
                _ => None,
            }
        });
        let is_empty = |prompt: &Prompt| match prompt {
            Prompt::Text(text) => text.is_empty(),
            Prompt::Tokens(tokens) => tokens.is_empty(),
            Prompt::Messages { .. } => false,
        };
        match found?.ok_or("'prompt' is missing")? {
            prompt if is_empty(&prompt) => Err("'prompt' is empty".into()),
            prompt => Ok(prompt),
        }
    }

    fn messages(&mut self) -> Result<Prompt, String> {
        let (mut messages, mut images) = (Vec::new(), Vec::new());
        let list =
            self.take("messages", "a list of objects with 'role' and 'content'", |value| {
                value.as_array().cloned()
            })?;
        let list = list.unwrap_or_default();
        let mut written = Vec::new();
        let others = ["tools", "chat_template_kwargs"].iter().filter_map(|name| self.0.get(*name));
        list.iter().chain(others).for_each(|value| texts(value, &mut written));
        let mark = Placeholder::not_in(written);
        for (number, value) in list.iter().enumerate() {
            let read = message(value, &mark, &mut images);
            messages.push(read.map_err(|error| format!("'messages[{number}]': {error}"))?);
        }
        match messages.is_empty() {
            true => Err("'messages' is missing".into()),
            false => Ok(Prompt::Messages { messages, images, mark }),
        }
    }

    /// The functions that may be called, and whether a call is required.
    fn tools(&mut self) -> Result<(Vec<Tool>, bool), String> {
        let list = self.0.remove("tools").unwrap_or_else(|| json!([]));
        let Value::Array(list) = list else {
            return Err("'tools' should be a list of functions".into());
        };
        if list.len() > MAX_TOOLS {
            return Err(format!(
                "'tools' has {} functions, at most {MAX_TOOLS} are allowed",
                list.len()
            ));
        }
        let mut tools: Vec<Tool> = Vec::new();
        for (number, value) in list.iter().enumerate() {
            let tool = Tool::from_json(&value.to_string())
                .map_err(|error| format!("'tools[{number}]': {error}"))?;
            if tools.iter().any(|other| other.name() == tool.name()) {
                return Err(format!("'tools[{number}]': duplicate name '{}'", tool.name()));
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
            true => Err("'tool_choice' should be 'none', 'auto', 'required' (with 'tools'), or \
                         {\"type\": \"function\", \"function\": {\"name\": NAME}} with the name of \
                         one of the 'tools'"
                .into()),
            false => Ok((tools, true)),
        }
    }
}

/// Collects all strings in a value, since a template may print any of them.
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

/// Message fields with special treatment.
const MESSAGE_FIELDS: [&str; 4] = ["role", "content", "tool_calls", "tool_call_id"];
/// Unsupported message fields: deprecated, or not text.
const UNSUPPORTED_IN_MESSAGES: [&str; 3] = ["function_call", "audio", "refusal"];

/// Parses a message and appends its images to `images`.
fn message(
    value: &Value,
    mark: &Placeholder,
    images: &mut Vec<Vec<u8>>,
) -> Result<Message, String> {
    let role = value["role"].as_str().ok_or("'role' should be a string")?;
    let tool_calls = match &value["tool_calls"] {
        Value::Null => Vec::new(),
        Value::Array(calls) => calls.iter().map(tool_call).collect::<Result<_, _>>()?,
        _ => return Err("'tool_calls' should be a list".into()),
    };
    let tool_call_id = match &value["tool_call_id"] {
        Value::Null => None,
        Value::String(id) => Some(id.clone()),
        _ => return Err("'tool_call_id' should be a string".into()),
    };
    let content = match &value["content"] {
        Value::Null if !tool_calls.is_empty() => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let mut content = String::new();
            for part in parts {
                content += &content_part(part, mark, images)?;
            }
            content
        }
        _ => return Err("'content' should be a string or a list of parts".into()),
    };
    // The name of the system role in newer models.
    let role = if role == "developer" { "system" } else { role };
    let mut extra_fields = Vec::new();
    for (name, value) in
        value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null())
    {
        match name.as_str() {
            name if MESSAGE_FIELDS.contains(&name) => {}
            name if UNSUPPORTED_IN_MESSAGES.contains(&name) => {
                return Err(format!("'{name}' is not supported"));
            }
            // Passed to the template, which may use it: for example a name, or reasoning content.
            name => extra_fields.push((name.to_owned(), value.to_string())),
        }
    }
    Ok(Message { tool_calls, tool_call_id, extra_fields, ..Message::new(role, content) })
}

/// Parses a function call of an assistant message.
fn tool_call(value: &Value) -> Result<ToolCall, String> {
    let function = &value["function"];
    let (Some(id), Some(name), Some(arguments)) =
        (value["id"].as_str(), function["name"].as_str(), function["arguments"].as_str())
    else {
        return Err("a part of 'tool_calls' should be {\"id\": ..., \"type\": \"function\", \
                    \"function\": {\"name\": ..., \"arguments\": ...}}"
            .into());
    };
    Ok(ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() })
}

/// Returns the text of a content part, or the placeholder of its image.
fn content_part(
    part: &Value,
    mark: &Placeholder,
    images: &mut Vec<Vec<u8>>,
) -> Result<String, String> {
    match (part["type"].as_str(), &part["text"], &part["image_url"]["url"]) {
        (Some("text"), Value::String(text), _) => Ok(text.clone()),
        (Some("image_url"), _, Value::String(url)) => {
            images.push(data_uri(url)?);
            Ok(mark.as_str().into())
        }
        _ => {
            Err("a part of 'content' should be {\"type\": \"text\", \"text\": ...} or {\"type\": \
                  \"image_url\", \"image_url\": {\"url\": ...}}"
                .into())
        }
    }
}

#[cfg(test)]
mod tests;
