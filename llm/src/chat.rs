//! From messages to a prompt.

use crate::error::Error;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, Value, context};
use std::path::Path;

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who says it: `system`, `user` or `assistant`.
    pub role: String,
    /// What.
    pub content: String,
}

impl Message {
    /// A message.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Message { role: role.into(), content: content.into() }
    }
}

const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}\
    {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

const LLAMA3: &str = "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + \
    message['content'] | trim + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}\
    {% endif %}";

/// Instructions that a template may take: those of models have a few hundred for each message.
const FUEL: u64 = 2_000_000;
/// Templates of models are shorter. Longer ones could be read for minutes: constants of an expression are looked for once for each of its operators.
const MAX_TEMPLATE: usize = 64 << 10;
/// An operator in front of an operator, or a list in a list, takes a part of the stack, and nothing counts these. So there is as much as the largest
/// template, or as all of the fuel, can use; what is not used takes no memory.
const STACK: usize = if cfg!(target_pointer_width = "64") { 1 << 30 } else { 64 << 20 };

/// How a model wants the messages of a conversation to be written: a Jinja template, as Hugging Face's `tokenizer_config.json` has one.
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: Option<String>,
    eos: Option<String>,
}

impl ChatTemplate {
    /// A template in Jinja, which is given `messages`, `add_generation_prompt`, `bos_token` and `eos_token`.
    ///
    /// # Errors
    /// It is malformed or too long.
    pub fn new(template: &str, bos: Option<&str>, eos: Option<&str>) -> Result<Self, Error> {
        if template.len() > MAX_TEMPLATE {
            let message = format!("it has {} bytes, more than {MAX_TEMPLATE}", template.len());
            return Err(Error::Template { message });
        }
        let mut environment = Environment::new();
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true);
        environment.set_syntax(syntax.build().map_err(fail)?);
        environment.set_fuel(Some(FUEL));
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<Value, _> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        });
        let source = template.to_owned();
        with_stack(|| environment.add_template_owned("chat", source).map_err(fail))?;
        Ok(ChatTemplate { environment, bos: bos.map(Into::into), eos: eos.map(Into::into) })
    }

    /// `<|im_start|>user`, a line each, `<|im_end|>`.
    pub fn chatml() -> Self {
        ChatTemplate::new(CHATML, None, None).unwrap_or_else(|error| unreachable!("{error}"))
    }

    /// Llama 3's: `<|start_header_id|>user<|end_header_id|>`, an empty line, the message, `<|eot_id|>`.
    pub fn llama3() -> Self {
        let bos = Some("<|begin_of_text|>");
        ChatTemplate::new(LLAMA3, bos, None).unwrap_or_else(|error| unreachable!("{error}"))
    }

    /// That of a file: a template in Jinja, as `chat_template.jinja`, whose tokens are those of a `tokenizer_config.json` beside it; or that of a
    /// `tokenizer_config.json`, if it has one.
    ///
    /// # Errors
    /// A file cannot be read or is malformed.
    pub fn load(path: impl AsRef<Path>) -> Result<Option<Self>, Error> {
        let path = path.as_ref();
        let read = |path: &Path| {
            std::fs::read_to_string(path)
                .map_err(|source| Error::Read { path: path.into(), source })
        };
        let text = read(path)?;
        if path.extension().is_some_and(|extension| extension == "json") {
            return ChatTemplate::from_config(&text);
        }
        let config = path.with_file_name("tokenizer_config.json");
        let config = match config.is_file() {
            true => parse(&read(&config)?)?,
            false => serde_json::Value::Null,
        };
        ChatTemplate::new(&text, token(&config, "bos_token"), token(&config, "eos_token")).map(Some)
    }

    /// That of the text of a `tokenizer_config.json`, if it has one: where it has several, that named `default`.
    ///
    /// # Errors
    /// It is malformed.
    pub fn from_config(text: &str) -> Result<Option<Self>, Error> {
        let config = parse(text)?;
        let template = &config["chat_template"];
        let named = || {
            let list = template.as_array()?;
            let default = list.iter().find(|entry| entry["name"] == "default").or(list.first())?;
            default["template"].as_str()
        };
        let template = template.as_str().or_else(named);
        let (bos, eos) = (token(&config, "bos_token"), token(&config, "eos_token"));
        let make = |template| ChatTemplate::new(template, bos, eos);
        template.map(make).transpose()
    }

    /// The prompt: all messages, and the beginning of the assistant's next one if wanted.
    ///
    /// # Errors
    /// The template refuses the messages, or takes too long.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<String, Error> {
        let messages: Vec<Value> =
            messages.iter().map(|Message { role, content }| context! { role, content }).collect();
        let (bos_token, eos_token) = (self.bos.as_deref(), self.eos.as_deref());
        let bos_token = bos_token.unwrap_or_default();
        let eos_token = eos_token.unwrap_or_default();
        let template = self.environment.get_template("chat").map_err(fail)?;
        with_stack(|| {
            template
                .render(context! { messages, add_generation_prompt, bos_token, eos_token })
                .map_err(fail)
        })
    }
}

/// A `tokenizer_config.json`.
fn parse(text: &str) -> Result<serde_json::Value, Error> {
    serde_json::from_str(text)
        .map_err(|error| Error::Template { message: format!("tokenizer_config.json: {error}") })
}

/// The text of a special token, which has one or is one.
fn token<'c>(config: &'c serde_json::Value, name: &str) -> Option<&'c str> {
    let token = &config[name];
    token.as_str().or_else(|| token["content"].as_str())
}

/// Does something where there is stack enough for it.
fn with_stack<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    let refuse = |message: String| Err(Error::Template { message });
    std::thread::scope(|scope| {
        match std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work) {
            Ok(thread) => thread.join().unwrap_or_else(|_| refuse("it cannot be read".into())),
            Err(error) => refuse(format!("there is no thread to read it: {error}")),
        }
    })
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

    /// What Hugging Face's `apply_chat_template` makes of these messages.
    #[test]
    fn known_templates_write_what_python_writes() {
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
    fn a_template_in_a_file_of_its_own_has_the_tokens_of_the_configuration() {
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
        // The configuration itself has none.
        assert!(ChatTemplate::load(&config).unwrap().is_none());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn templates_use_methods_of_python_and_refuse_messages() {
        let template = "{%- for message in messages %}\n  {%- if message.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}\n\
            {{- message.content.strip().split(' ')[0].upper() }}{{ eos_token }}\n{%- endfor %}";
        let template = ChatTemplate::new(template, None, Some("</s>")).unwrap();
        assert_eq!(template.render(&messages(), true).unwrap(), "BE</s>HELLO?</s>YES.</s>");
        let refused = template.render(&[Message::new("tool", "x")], true).unwrap_err();
        assert!(refused.to_string().contains("no tools"), "{refused}");
    }

    #[test]
    fn configurations_name_templates_in_several_ways() {
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

    #[test]
    fn endless_templates_end() {
        let loops = "{% for a in range(9999) %}{% for b in range(9999) %}{% set c = b %}{% endfor %}{% endfor %}";
        assert!(ChatTemplate::new(loops, None, None).unwrap().render(&[], true).is_err());
    }

    /// Texts that double take fuel by their length.
    #[test]
    fn templates_have_no_memory_without_limit() {
        let double = "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
        for source in [double, "{{ 'a' * 100000000000 }}", "{{ '%99999999999d'|format(1) }}"] {
            let template = ChatTemplate::new(source, None, None).unwrap();
            assert!(template.render(&[], true).is_err(), "{source}");
        }
    }

    /// What is nested deeply is worked on or refused, and overflows no stack.
    #[test]
    fn deep_templates_end() {
        let room = MAX_TEMPLATE - 64;
        let (minus, or) = ("-".repeat(room), "1 ~ ".repeat(2000));
        let filters = "|abs".repeat(2000);
        for source in [
            format!("{{{{ {minus}1 }}}}"),
            format!("{{{{ {or}1 }}}}"),
            format!("{{{{ 1{filters} }}}}"),
            format!("{{{{ {}1{} }}}}", "(".repeat(room / 2), ")".repeat(room / 2)),
            "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}".into(),
            "{% set ns = namespace(x=[1]) %}{% for a in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}".into(),
            "{% set ns = namespace(x=[1]) %}{% for a in range(9000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x == ns.x }}{{ ns.x }}".into(),
        ] {
            let _ = ChatTemplate::new(&source, None, None)
                .and_then(|template| template.render(&[], true));
        }
        assert!(ChatTemplate::new(&" ".repeat(MAX_TEMPLATE + 1), None, None).is_err());
    }
}
