//! Chat templates: render messages as a prompt.

mod arguments;
mod clock;
mod fields;
#[cfg(test)]
mod growth;
mod json;
mod limits;
mod python;
mod source;

pub use self::arguments::TemplateArguments;
use crate::error::Error;
use crate::tools::{Tool, ToolCall};
use limits::{Fuel, MAX_TEMPLATE, with_stack, with_stack_until};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Rest, merge_maps};
use minijinja::{Environment, Value, context};
use source::{CHARGE_FILTER, KEEP_FILTER};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Role of the sender: `system`, `user`, `assistant`, or `tool` for the result of a function.
    pub role: String,
    /// Text of the message.
    pub content: String,
    /// Function calls of the assistant.
    pub tool_calls: Vec<ToolCall>,
    /// Identifier of the call that this message is the result of.
    pub tool_call_id: Option<String>,
    /// Additional fields for templates that read them: names and JSON values, such as `name` and
    /// `"Ada"`, or `reasoning_content`. The fields above take precedence over fields of the same
    /// name.
    pub extra_fields: Vec<(String, String)>,
}

impl Message {
    /// Creates a message.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        let (role, content) = (role.into(), content.into());
        Message {
            role,
            content,
            tool_calls: Vec::new(),
            tool_call_id: None,
            extra_fields: Vec::new(),
        }
    }

    /// Visits all texts of the message mutably, including those in JSON.
    pub(crate) fn each_text(&mut self, visit: &mut dyn FnMut(&mut String)) -> Result<(), Error> {
        let Message { role, content, tool_calls, tool_call_id, extra_fields } = self;
        [role, content].into_iter().chain(tool_call_id).for_each(&mut *visit);
        for ToolCall { id, name, arguments } in tool_calls {
            [id, name].into_iter().for_each(&mut *visit);
            each_text_of_json(arguments, visit)?;
        }
        for (name, json) in extra_fields {
            visit(name);
            each_text_of_json(json, visit)?;
        }
        Ok(())
    }

    /// Converts to a template value. Absent fields are omitted.
    fn to_value(&self) -> Result<Value, Error> {
        let Message { role, content, tool_calls, tool_call_id, extra_fields } = self;
        let mut value = serde_json::Map::new();
        value.insert("role".into(), role.as_str().into());
        value.insert("content".into(), content.as_str().into());
        if !tool_calls.is_empty() {
            let calls: Result<Vec<_>, _> = tool_calls.iter().map(ToolCall::to_value).collect();
            value.insert("tool_calls".into(), calls?.into());
        }
        if let Some(id) = tool_call_id {
            value.insert("tool_call_id".into(), id.as_str().into());
        }
        for (name, json) in extra_fields {
            let fail = |error| Error::Template {
                message: format!("the message's '{name}' is not JSON: {error}"),
            };
            let other: serde_json::Value = serde_json::from_str(json).map_err(fail)?;
            value.entry(name).or_insert(other);
        }
        Ok(template_value(&value.into()))
    }
}

/// Maximum size of a `tokenizer_config.json`, in bytes.
const MAX_CONFIG: u64 = 16 << 20;

/// Lists functions in a system message, with calls in the format of Hermes and Qwen.
const CHATML: &str = "{% if tools %}{{ '<|im_start|>system\nFunctions that can be called, an object each:\n<tools>\n' }}\
    {% for tool in tools %}{{ tool | tojson + '\n' }}{% endfor %}{{ '</tools>\nA call is an object with the name of a function and its arguments:\n\
    <tool_call>\n{\"name\": \"...\", \"arguments\": {...}}\n</tool_call><|im_end|>\n' }}{% endif %}\
    {% for message in messages %}{% if message['role'] == 'tool' %}{{ '<|im_start|>user\n<tool_response>\n' + message['content'] + \
    '\n</tool_response><|im_end|>\n' }}{% else %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] }}\
    {% for call in message['tool_calls'] %}{{ '\n' if message['content'] or not loop.first }}{{ '<tool_call>\n{\"name\": ' + call.function.name | tojson + ', \"arguments\": ' + \
    call.function.arguments | tojson + '}\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\n' }}{% endif %}\
    {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// Lists functions in a system message, with calls in the format of Llama 3.1.
const LLAMA3: &str = "{{ bos_token }}{% if tools %}{{ '<|start_header_id|>system<|end_header_id|>\n\nFunctions that can be called, an object each:\n' }}\
    {% for tool in tools %}{{ tool | tojson + '\n' }}{% endfor %}{{ 'A call is an object with the name of a function and its arguments, and nothing else:\n\
    {\"name\": \"...\", \"parameters\": {...}}<|eot_id|>' }}{% endif %}\
    {% for message in messages %}{{ '<|start_header_id|>' + ('ipython' if message['role'] == 'tool' else message['role']) + '<|end_header_id|>\n\n' + \
    message['content'] | trim }}{% for call in message['tool_calls'] %}{{ '{\"name\": ' + call.function.name | tojson + ', \"parameters\": ' + \
    call.function.arguments | tojson + '}' }}{{ '; ' if not loop.last }}{% endfor %}{{ '<|eot_id|>' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}";

/// Prompt format of a model: a Jinja template, as in Hugging Face's `tokenizer_config.json`.
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// Special tokens, by their names in templates.
    tokens: BTreeMap<&'static str, String>,
    /// Number of abandoned renderings that still run.
    left: Arc<AtomicUsize>,
}

/// The usual name of the file with the special tokens.
const CONFIG: &str = "tokenizer_config.json";

impl ChatTemplate {
    /// Parses a Jinja template. Its variables are `messages`, `tools`, `add_generation_prompt`,
    /// `bos_token` and `eos_token`.
    ///
    /// # Errors
    /// The template is malformed or too long.
    pub fn new(template: &str, bos: Option<&str>, eos: Option<&str>) -> Result<Self, Error> {
        let check = |source: &str, how: &str| match source.len() {
            length if length > MAX_TEMPLATE => {
                let message = format!("it has {length} bytes{how}, more than {MAX_TEMPLATE}");
                Err(Error::Template { message })
            }
            _ => Ok(()),
        };
        check(template, "")?;
        let source = source::rewrite(template);
        check(&source, " after expansion of each ~ and list")?;
        let mut environment = Environment::new();
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true);
        environment.set_syntax(syntax.build().map_err(fail)?);
        environment.set_unknown_method_callback(python::method);
        environment.add_filter("tojson", json::tojson);
        environment.add_filter("string", python::text);
        environment.add_filter("join", python::join);
        environment.add_filter("format", python::format);
        environment.add_filter("batch", python::batch);
        environment.add_filter("slice", python::slice);
        environment.add_filter("map", python::map);
        environment.add_filter("sum", python::sum);
        environment.add_filter(CHARGE_FILTER, python::charged);
        environment.add_filter(KEEP_FILTER, python::kept);
        environment.add_test("lower", python::is_lower);
        environment.add_test("upper", python::is_upper);
        environment.add_test("sequence", python::is_sequence);
        // Jinja does not have these, and they nest lists without charging fuel.
        environment.remove_filter("zip");
        environment.remove_filter("chain");
        // `debug` prints the whole context without charging fuel.
        environment.remove_global("debug");
        environment.set_formatter(|out, state, value| {
            let text = python::text(value)?;
            minijinja::escape_formatter(out, state, &text)
        });
        environment.add_function("raise_exception", python::raise_exception);
        environment.add_function("strftime_now", |format: &str| {
            // Three characters produce at most ten (`%-F` is a date).
            limits::charge_bytes(format.len().saturating_mul(8))?;
            Ok::<_, minijinja::Error>(clock::format(format, std::time::SystemTime::now()))
        });
        environment.add_function("dict", python::dict);
        environment.add_function("namespace", python::namespace);
        environment.add_function("joiner", minijinja_contrib::globals::joiner);
        environment.add_function("cycler", |items: Rest<Value>| {
            minijinja_contrib::globals::cycler(items.0)
        });
        with_stack(|| environment.add_template_owned("chat", source).map_err(fail))?;
        // Templates expect these to be defined.
        let tokens = [("bos_token", bos), ("eos_token", eos)];
        let tokens =
            tokens.map(|(name, token)| (name, token.unwrap_or_default().to_owned())).into();
        Ok(ChatTemplate { environment, tokens, left: Arc::default() })
    }

    /// ChatML: `<|im_start|>user`, a line break, the message, `<|im_end|>`.
    pub fn chatml() -> Self {
        ChatTemplate::new(CHATML, None, None).unwrap_or_else(|error| unreachable!("{error}"))
    }

    /// Llama 3: `<|start_header_id|>user<|end_header_id|>`, an empty line, the message,
    /// `<|eot_id|>`.
    pub fn llama3() -> Self {
        let bos = Some("<|begin_of_text|>");
        ChatTemplate::new(LLAMA3, bos, None).unwrap_or_else(|error| unreachable!("{error}"))
    }

    /// Loads a template from a file: either a Jinja template such as `chat_template.jinja`, with
    /// special tokens from a `tokenizer_config.json` beside it, or the template in a
    /// `tokenizer_config.json`, if it has one.
    ///
    /// # Errors
    /// A file cannot be read or is malformed.
    pub fn load(path: impl AsRef<Path>) -> Result<Option<Self>, Error> {
        let path = path.as_ref();
        ChatTemplate::load_with_config(path, path.with_file_name(CONFIG))
    }

    /// Like [`load`](Self::load), with the special tokens of a Jinja template from this
    /// `tokenizer_config.json`, which is that of the model, if the template lies elsewhere. It need
    /// not exist.
    ///
    /// # Errors
    /// A file cannot be read or is malformed.
    pub fn load_with_config(
        path: impl AsRef<Path>,
        config: impl AsRef<Path>,
    ) -> Result<Option<Self>, Error> {
        let (path, config) = (path.as_ref(), config.as_ref());
        let read = |path: &Path, most: u64| {
            let fail = |source| Error::Read { path: path.into(), source };
            let bytes = torchlet_cache::read_at_most(path, most).map_err(fail)?;
            String::from_utf8(bytes).map_err(|error| fail(std::io::Error::other(error)))
        };
        let is_config = path.extension().is_some_and(|extension| extension == "json");
        let text = read(path, if is_config { MAX_CONFIG } else { MAX_TEMPLATE as u64 })?;
        if is_config {
            return ChatTemplate::from_config(&text);
        }
        let config = match config.is_file() {
            true => parse(&read(config, MAX_CONFIG)?)?,
            false => serde_json::Value::Null,
        };
        ChatTemplate::with_tokens(&text, &config).map(Some)
    }

    /// Parses the template in the text of a `tokenizer_config.json`, if it has one. Of several
    /// templates, the one named `default` is used.
    ///
    /// # Errors
    /// The text or the template is malformed.
    pub fn from_config(text: &str) -> Result<Option<Self>, Error> {
        let config = parse(text)?;
        let template = &config["chat_template"];
        let named = || {
            let list = template.as_array()?;
            let default = list.iter().find(|entry| entry["name"] == "default").or(list.first())?;
            default["template"].as_str()
        };
        let template = template.as_str().or_else(named);
        template.map(|template| ChatTemplate::with_tokens(template, &config)).transpose()
    }

    /// Parses a template, with the special tokens of a `tokenizer_config.json`.
    fn with_tokens(template: &str, config: &serde_json::Value) -> Result<Self, Error> {
        let mut template =
            ChatTemplate::new(template, token(config, "bos_token"), token(config, "eos_token"))?;
        for name in ["unk_token", "pad_token", "sep_token", "cls_token", "mask_token"] {
            template.tokens.extend(token(config, name).map(|token| (name, token.to_owned())));
        }
        Ok(template)
    }

    /// Renders a prompt of all messages, with the header of the assistant's next message if
    /// `add_generation_prompt` is set.
    ///
    /// # Errors
    /// The template rejects the messages, or runs out of fuel.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<String, Error> {
        self.render_with_tools(messages, &[], add_generation_prompt)
    }

    /// As [`render`](Self::render), with functions that the model may call.
    ///
    /// # Errors
    /// As [`render`](Self::render), or the arguments of a call in a message are not a JSON object.
    pub fn render_with_tools(
        &self,
        messages: &[Message],
        tools: &[Tool],
        add_generation_prompt: bool,
    ) -> Result<String, Error> {
        self.render_with(messages, tools, &TemplateArguments::default(), add_generation_prompt)
    }

    /// As [`render_with_tools`](Self::render_with_tools), with additional template variables.
    ///
    /// # Errors
    /// As [`render_with_tools`](Self::render_with_tools).
    pub fn render_with(
        &self,
        messages: &[Message],
        tools: &[Tool],
        arguments: &TemplateArguments,
        add_generation_prompt: bool,
    ) -> Result<String, Error> {
        let rendered =
            self.render_until(messages, tools, arguments, add_generation_prompt, &|| false)?;
        rendered.ok_or_else(|| Error::Template { message: "rendering was stopped".into() })
    }

    /// As [`render_with`](Self::render_with). Returns `None` if `is_abandoned` abandons the
    /// rendering.
    pub(crate) fn render_until(
        &self,
        messages: &[Message],
        tools: &[Tool],
        arguments: &TemplateArguments,
        add_generation_prompt: bool,
        is_abandoned: &dyn Fn() -> bool,
    ) -> Result<Option<String>, Error> {
        let messages: Result<Vec<Value>, Error> = messages.iter().map(Message::to_value).collect();
        let messages = messages?;
        // Undefined if empty, because templates test whether tools exist.
        let tools = (!tools.is_empty()).then(|| {
            let values = tools.iter().map(|tool| template_value(&tool.definition()));
            values.collect::<Vec<_>>()
        });
        let tokens =
            Value::from_pairs(self.tokens.iter().map(|(name, token)| (*name, token.as_str())));
        let arguments = arguments.to_value();
        // transformers always passes this variable, too.
        let none = context! { documents => () };
        // Later entries take precedence.
        let others = merge_maps([none, tokens, arguments.clone()]);
        let given = messages.iter().chain(tools.iter().flatten()).chain([&arguments]);
        let mut environment = self.environment.clone();
        let fuel = Fuel::new(given);
        environment.set_fuel(Some(fuel.instructions));
        with_stack_until(&self.left, is_abandoned, move || {
            fuel.set_byte_budget();
            let template = environment.get_template("chat").map_err(fail)?;
            template
                .render(context! { messages, tools, add_generation_prompt, ..others })
                .map_err(fail)
        })
    }
}

/// Visits all texts of a JSON value mutably. The JSON is rewritten if one of them changes.
fn each_text_of_json(json: &mut String, visit: &mut dyn FnMut(&mut String)) -> Result<(), Error> {
    fn each(value: &mut serde_json::Value, visit: &mut dyn FnMut(&mut String)) {
        match value {
            serde_json::Value::String(text) => visit(text),
            serde_json::Value::Array(items) => items.iter_mut().for_each(|item| each(item, visit)),
            serde_json::Value::Object(fields) => {
                let all = std::mem::take(fields).into_iter().map(|(mut name, mut value)| {
                    visit(&mut name);
                    each(&mut value, visit);
                    (name, value)
                });
                *fields = all.collect();
            }
            _ => {}
        }
    }
    let fail =
        |error| Error::Template { message: format!("a message contains invalid JSON: {error}") };
    let mut value: serde_json::Value = serde_json::from_str(json).map_err(fail)?;
    let mut is_changed = false;
    each(&mut value, &mut |text: &mut String| {
        let before = text.clone();
        visit(text);
        is_changed |= *text != before;
    });
    if is_changed {
        *json = value.to_string();
    }
    Ok(())
}

/// Parses a `tokenizer_config.json`.
fn parse(text: &str) -> Result<serde_json::Value, Error> {
    serde_json::from_str(text)
        .map_err(|error| Error::Template { message: format!("tokenizer_config.json: {error}") })
}

/// Text of a special token, which is a string or an object with `content`.
fn token<'c>(config: &'c serde_json::Value, name: &str) -> Option<&'c str> {
    let token = &config[name];
    token.as_str().or_else(|| token["content"].as_str())
}

/// Converts JSON to a template value. Fields keep their order.
fn template_value(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(value) => (*value).into(),
        serde_json::Value::String(text) => text.as_str().into(),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => number.into(),
            (_, Some(number)) => number.into(),
            _ => number.as_f64().unwrap_or(f64::NAN).into(),
        },
        serde_json::Value::Array(items) => items.iter().map(template_value).collect(),
        serde_json::Value::Object(fields) => {
            Value::from_pairs(fields.iter().map(|(name, value)| (name, template_value(value))))
        }
    }
}

fn fail(error: minijinja::Error) -> Error {
    Error::Template { message: error.to_string() }
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> [Message; 3] {
        [
            Message::new("system", "Be brief."),
            Message::new("user", " Hello? "),
            Message::new("assistant", "Yes."),
        ]
    }

    /// Expected results are those of Hugging Face's `apply_chat_template`.
    #[test]
    fn built_in_templates_match_transformers() {
        let chatml = ChatTemplate::chatml().render(&messages()[..2], true).unwrap();
        assert_eq!(
            chatml,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hello? <|im_end|>\n<|im_start|>assistant\n"
        );
        let llama3 = ChatTemplate::llama3().render(&messages(), false).unwrap();
        assert_eq!(
            llama3,
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>\
             <|start_header_id|>user<|end_header_id|>\n\nHello?<|eot_id|>\
             <|start_header_id|>assistant<|end_header_id|>\n\nYes.<|eot_id|>"
        );
    }

    #[test]
    fn template_files_use_tokens_of_the_config() {
        let folder = std::env::temp_dir().join(format!("torchlet-chat-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let template = folder.join("chat_template.jinja");
        std::fs::write(&template, "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}")
            .unwrap();
        let render = || {
            ChatTemplate::load(&template).unwrap().unwrap().render(&messages()[..1], true).unwrap()
        };
        assert_eq!(render(), "Be brief.");
        let config = folder.join("tokenizer_config.json");
        std::fs::write(&config, r#"{"bos_token": "<s>", "eos_token": {"content": "</s>"}}"#)
            .unwrap();
        assert_eq!(render(), "<s>Be brief.</s>");
        // The configuration itself has no template.
        assert!(ChatTemplate::load(&config).unwrap().is_none());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn templates_use_python_methods_and_reject_messages() {
        let template = "{%- for message in messages %}\n  {%- if message.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}\n\
            {{- message.content.strip().split(' ')[0].upper() }}{{ eos_token }}\n{%- endfor %}";
        let template = ChatTemplate::new(template, None, Some("</s>")).unwrap();
        assert_eq!(template.render(&messages(), true).unwrap(), "BE</s>HELLO?</s>YES.</s>");
        let refused = template.render(&[Message::new("tool", "x")], true).unwrap_err();
        assert!(refused.to_string().contains("no tools"), "{refused}");
    }

    /// JSON and variables are as in Hugging Face's `apply_chat_template` (`json.dumps`).
    #[test]
    fn templates_receive_functions() {
        let template = "{%- if tools %}{{ tools | tojson }} {{ tools[0] | tojson(indent=2) }}{% endif %}\
            {%- for m in messages %} {{ m.role }}{% if 'tool_calls' in m %}{{ m.tool_calls[0].function.arguments | tojson }}{% endif %}\
            {%- if 'tool_call_id' in m %}{{ m.tool_call_id }}{% endif %}{% endfor %}";
        let template = ChatTemplate::new(template, None, None).unwrap();
        let tool = Tool::from_json(r#"{"type":"function","function":{"name":"f<é'>"}}"#).unwrap();
        let call = |arguments: &str| ToolCall {
            id: "c1".into(),
            name: "f".into(),
            arguments: arguments.into(),
        };
        let calls = |arguments| Message {
            tool_calls: vec![call(arguments)],
            ..Message::new("assistant", "")
        };
        let result = Message { tool_call_id: Some("c1".into()), ..Message::new("tool", "7") };
        let messages = [Message::new("user", "x"), calls(r#"{"a":[1,2.5],"b":{}}"#), result];
        assert_eq!(
            template.render_with_tools(&messages, std::slice::from_ref(&tool), true).unwrap(),
            "[{\"type\": \"function\", \"function\": {\"name\": \"f<é'>\"}}] {\n  \"type\": \"function\",\n  \"function\": {\n    \
             \"name\": \"f<é'>\"\n  }\n} user assistant{\"a\": [1, 2.5], \"b\": {}} toolc1"
        );
        assert_eq!(template.render(&messages[..1], true).unwrap(), " user");
        assert!(template.render(&[calls("[]")], true).is_err());
        let chatml = ChatTemplate::chatml();
        let prompt =
            chatml.render_with_tools(&messages, std::slice::from_ref(&tool), true).unwrap();
        assert!(prompt.starts_with("<|im_start|>system\nFunctions"), "{prompt}");
        assert!(prompt.contains("\"f<é'>\"") && prompt.ends_with(
            "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5], \"b\": {}}}\n\
             </tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n7\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
        ), "{prompt}");
        let prompt = ChatTemplate::llama3().render_with_tools(&messages, &[tool], true).unwrap();
        assert!(prompt.ends_with(
            "assistant<|end_header_id|>\n\n{\"name\": \"f\", \"parameters\": {\"a\": [1, 2.5], \"b\": {}}}<|eot_id|>\
             <|start_header_id|>ipython<|end_header_id|>\n\n7<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
        ), "{prompt}");
    }

    /// As `json.dumps`, with the options that Hugging Face's `tojson` passes on.
    #[test]
    fn tojson_supports_separators() {
        let write = |options: &str| {
            let source = format!("{{{{ {{'a': [1, 'b'], 'c': []}}|tojson({options}) }}}}");
            ChatTemplate::new(&source, None, None)?.render(&[], true)
        };
        assert_eq!(write("").unwrap(), r#"{"a": [1, "b"], "c": []}"#);
        assert_eq!(write("separators=(',', ':')").unwrap(), r#"{"a":[1,"b"],"c":[]}"#);
        assert_eq!(write("indent=1").unwrap(), "{\n \"a\": [\n  1,\n  \"b\"\n ],\n \"c\": []\n}");
        assert!(write("separators=(',',)").is_err() && write("separators=1").is_err());
        assert!(write("colour=1").is_err());
    }

    #[test]
    fn configs_have_one_or_several_templates() {
        let plain = r#"{"chat_template": "{{ bos_token }}a", "bos_token": {"content": "<s>"}}"#;
        let render = |config: &str| {
            ChatTemplate::from_config(config).unwrap().unwrap().render(&[], true).unwrap()
        };
        assert_eq!(render(plain), "<s>a");
        let named = r#"{"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}"#;
        assert_eq!(render(named), "d");
        assert!(ChatTemplate::from_config("{}").unwrap().is_none());
        assert!(ChatTemplate::from_config("[").is_err());
        assert!(ChatTemplate::new("{% for %}", None, None).is_err());
    }

    /// Definitions nested up to the limit of the JSON parser.
    #[test]
    fn nested_function_definitions_are_rendered() {
        let tool = |depth: usize| {
            let (open, close) = ("{\"items\":".repeat(depth), "}".repeat(depth));
            Tool::from_json(&format!(
                r#"{{"type": "function", "function": {{"name": "f", "parameters": {open}{{}}{close}}}}}"#
            ))
        };
        let depth = (1..200).take_while(|depth| tool(*depth).is_ok()).count();
        assert!((100..199).contains(&depth), "{depth}");
        let messages = [Message::new("user", "x")];
        let prompt =
            ChatTemplate::chatml().render_with_tools(&messages, &[tool(depth).unwrap()], true);
        assert_eq!(prompt.unwrap().matches("items").count(), depth);
    }
}
