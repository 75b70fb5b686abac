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
    /// It is malformed.
    pub fn new(template: &str, bos: Option<&str>, eos: Option<&str>) -> Result<Self, Error> {
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
        environment.add_template_owned("chat", template.to_owned()).map_err(fail)?;
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

    /// That of a `tokenizer_config.json`, if it has one.
    ///
    /// # Errors
    /// The file cannot be read or is malformed.
    pub fn load(path: impl AsRef<Path>) -> Result<Option<Self>, Error> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::Read { path: path.into(), source })?;
        ChatTemplate::from_config(&text)
    }

    /// That of the text of a `tokenizer_config.json`, if it has one: where it has several, that named `default`.
    ///
    /// # Errors
    /// It is malformed.
    pub fn from_config(text: &str) -> Result<Option<Self>, Error> {
        let config: serde_json::Value = serde_json::from_str(text).map_err(|error| {
            Error::Template { message: format!("tokenizer_config.json: {error}") }
        })?;
        let token = |name: &str| {
            let token = &config[name];
            token.as_str().or_else(|| token["content"].as_str())
        };
        let template = &config["chat_template"];
        let named = || {
            let list = template.as_array()?;
            let default = list.iter().find(|entry| entry["name"] == "default").or(list.first())?;
            default["template"].as_str()
        };
        let template = template.as_str().or_else(named);
        let make = |template| ChatTemplate::new(template, token("bos_token"), token("eos_token"));
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
        template
            .render(context! { messages, add_generation_prompt, bos_token, eos_token })
            .map_err(fail)
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
}
