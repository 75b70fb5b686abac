//! Chat: generation of the next message of a conversation.

use super::Runner;
use crate::chat::{ChatTemplate, Message, TemplateArguments};
use crate::encoder::Input;
use crate::error::Error;
use crate::generation::{Generation, GenerationConfig};
use crate::placeholder::Placeholder;
use crate::tokenizer::Tokenizer;
use crate::tools::Tool;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

impl Runner {
    /// Sets the template that [`chat`](Self::chat) renders messages with.
    pub fn set_chat_template(&mut self, template: impl Into<Arc<ChatTemplate>>) {
        self.template = Some(template.into());
    }

    /// Sets additional template variables for all later calls, for example `enable_thinking`.
    pub fn set_template_arguments(&mut self, arguments: TemplateArguments) {
        self.arguments = arguments;
    }

    /// Sets whether names of control tokens in messages are tokenized as ordinary text, so that
    /// nobody can inject `<|im_start|>system` and speak as the system.
    ///
    /// This applies to all texts of messages from any role, including function results and the
    /// assistant's messages. The default is false, as in `transformers`: such names become control
    /// tokens.
    pub fn set_messages_are_text(&mut self, are_text: bool) {
        self.are_messages_text = are_text;
    }

    /// Additional template variables.
    pub fn template_arguments(&self) -> &TemplateArguments {
        &self.arguments
    }

    /// Returns the template that [`chat`](Self::chat) uses. Without a template set, chooses that of
    /// Llama 3 or ChatML from the tokenizer's special tokens.
    ///
    /// # Errors
    /// The tokenizer has the special tokens of neither.
    pub fn chat_template(&mut self) -> Result<Arc<ChatTemplate>, Error> {
        if self.template.is_none() {
            let has = |name| self.tokenizer.special(name).is_some();
            let known = match (has("<|start_header_id|>"), has("<|im_start|>")) {
                (true, _) => ChatTemplate::llama3(),
                (_, true) => ChatTemplate::chatml(),
                _ => {
                    let message = "the tokenizer has neither <|start_header_id|> nor \
                        <|im_start|>; set a template, such as that of tokenizer_config.json";
                    return Err(Error::Template { message: message.into() });
                }
            };
            self.template = Some(Arc::new(known));
        }
        self.template.clone().ok_or(Error::NoPrompt)
    }

    /// Generates the assistant's next message. The part of the prompt that is already in the KV
    /// cache, from this method or [`generate`](Self::generate), is not fed again.
    ///
    /// # Errors
    /// As [`generate`](Self::generate), or the template rejects the messages.
    pub fn chat(
        &mut self,
        messages: &[Message],
        config: &GenerationConfig,
        on_text: impl FnMut(&str),
    ) -> Result<Generation, Error> {
        self.chat_with_tools(messages, &[], config, on_text)
    }

    /// As [`chat`](Self::chat), with functions that the model may call.
    /// [`ToolCalls`](crate::ToolCalls) parses the calls from the output.
    ///
    /// # Errors
    /// As [`chat`](Self::chat), or the arguments of a call in a message are not a JSON object.
    pub fn chat_with_tools(
        &mut self,
        messages: &[Message],
        tools: &[Tool],
        config: &GenerationConfig,
        mut on_text: impl FnMut(&str),
    ) -> Result<Generation, Error> {
        let start = (SystemTime::now(), Instant::now());
        let tokens = self.prompt_tokens(messages, tools)?;
        let rest = self.rewind_to_common_prefix(&tokens)?;
        self.run(&[Input::Tokens(&tokens[rest..])], config, start, &mut on_text)
    }

    /// As [`chat_with_tools`](Self::chat_with_tools), and replaces each placeholder in the messages
    /// by an image or a sound. An image or a sound is a list of one or more inputs. Feeds the whole
    /// prompt, because images in the KV cache cannot be compared with new ones.
    ///
    /// # Errors
    /// As [`chat_with_tools`](Self::chat_with_tools) and [`generate_from`](Self::generate_from), or
    /// the template dropped a placeholder.
    pub fn chat_from(
        &mut self,
        messages: &[Message],
        tools: &[Tool],
        (mark, objects): (&Placeholder, &[Vec<Input<'_>>]),
        config: &GenerationConfig,
        mut on_text: impl FnMut(&str),
    ) -> Result<Generation, Error> {
        let start = (SystemTime::now(), Instant::now());
        let divided = self.divided(messages)?;
        let prompt = self.chat_prompt(divided.as_ref().map_or(messages, |all| &all.1), tools)?;
        let inputs = mark.place(&prompt, objects)?;
        self.rewind_to_common_prefix(&[])?;
        self.divider = divided.map(|(mark, _)| mark);
        let generation = self.run(&inputs, config, start, &mut on_text);
        self.divider = None;
        generation
    }

    /// Tokens of the prompt that [`chat`](Self::chat) renders.
    ///
    /// # Errors
    /// The template rejects the messages.
    pub fn chat_tokens(&mut self, messages: &[Message]) -> Result<Vec<u32>, Error> {
        self.prompt_tokens(messages, &[])
    }

    /// Text of the prompt that [`chat_with_tools`](Self::chat_with_tools) renders.
    ///
    /// # Errors
    /// The template rejects the messages.
    pub fn chat_prompt(&mut self, messages: &[Message], tools: &[Tool]) -> Result<String, Error> {
        let (template, should_stop) = (self.chat_template()?, &self.should_stop);
        let prompt =
            template.render_until(messages, tools, &self.arguments, true, &|| should_stop())?;
        prompt.ok_or_else(|| Error::Template { message: "rendering was stopped".into() })
    }

    /// Tokens of the prompt that [`chat_with_tools`](Self::chat_with_tools) renders.
    ///
    /// # Errors
    /// As [`chat_with_tools`](Self::chat_with_tools).
    pub fn chat_tokens_with_tools(
        &mut self,
        messages: &[Message],
        tools: &[Tool],
    ) -> Result<Vec<u32>, Error> {
        self.prompt_tokens(messages, tools)
    }

    fn divided(&self, messages: &[Message]) -> Result<Option<(char, Vec<Message>)>, Error> {
        match self.are_messages_text {
            true => divided(&self.tokenizer, messages),
            false => Ok(None),
        }
    }

    fn prompt_tokens(&mut self, messages: &[Message], tools: &[Tool]) -> Result<Vec<u32>, Error> {
        match self.divided(messages)? {
            Some((mark, messages)) => {
                let prompt = self.chat_prompt(&messages, tools)?;
                self.tokenizer.encode_divided(&prompt, mark)
            }
            None => {
                let prompt = self.chat_prompt(messages, tools)?;
                self.tokenizer.encode(&prompt)
            }
        }
    }
}

/// Splits each control-token name in the messages with a mark. Returns the mark and the messages,
/// or `None` if nothing was split.
fn divided(
    tokenizer: &Tokenizer,
    messages: &[Message],
) -> Result<Option<(char, Vec<Message>)>, Error> {
    let mut texts = Vec::new();
    for message in messages {
        message.clone().each_text(&mut |text| texts.push(text.to_owned()))?;
    }
    let mark = tokenizer.unused_character(texts.iter().map(String::as_str));
    let mark = mark.ok_or_else(|| Error::Template {
        message: "the messages contain every private-use character, but one must be unused to \
                  mark names of control tokens"
            .into(),
    })?;
    let (mut messages, mut has_names, mut failed) = (messages.to_vec(), false, None);
    for message in &mut messages {
        message.each_text(&mut |text| match tokenizer.divide(text, mark) {
            Ok(Some(divided)) => (*text, has_names) = (divided, true),
            Ok(None) => {}
            Err(error) => failed = Some(error),
        })?;
    }
    if let Some(error) = failed {
        return Err(error);
    }
    Ok(has_names.then_some((mark, messages)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::ToolCall;
    use serde_json::json;

    fn tokenizer(specials: &[&str], normalizer: &serde_json::Value, normalized: bool) -> Tokenizer {
        let all: Vec<char> = (' '..='~').chain("\u{fffc}\u{fffd}ＳＵ＜＞é".chars()).collect();
        let vocab: serde_json::Map<String, serde_json::Value> =
            all.iter().enumerate().map(|(at, one)| (one.to_string(), json!(at))).collect();
        let added: Vec<serde_json::Value> = specials
            .iter()
            .enumerate()
            .map(|(at, name)| {
                json!({"id": 200 + at, "content": name, "special": true, "normalized": normalized,
                    "single_word": false, "lstrip": false, "rstrip": false})
            })
            .collect();
        let model = json!({"type": "BPE", "vocab": vocab, "merges": []});
        let file = json!({"added_tokens": added, "normalizer": normalizer, "model": model});
        Tokenizer::from_bytes(file.to_string().as_bytes()).unwrap()
    }

    /// Messages with a control-token name in every field.
    fn hostile(name: &str) -> Vec<Message> {
        let call = ToolCall {
            id: name.into(),
            name: format!("f{name}"),
            arguments: json!({"x": name, name: [name, {"y": name}]}).to_string(),
        };
        vec![
            Message::new("user", format!("a{name}b{name}{name}")),
            Message { tool_calls: vec![call], ..Message::new("assistant", "\u{fffc}") },
            Message {
                tool_call_id: Some(name.into()),
                extra_fields: vec![("note".into(), json!({"z": name}).to_string())],
                ..Message::new("tool", name)
            },
        ]
    }

    /// Number of control tokens, with names in messages interpreted and with names as text.
    fn count(tokenizer: &Tokenizer, messages: &[Message]) -> (usize, usize) {
        let template = "{% for m in messages %}{{ m.role + ': ' + m.content }}{{ m | tojson }}\
            {{ m.tool_calls | tojson if m.tool_calls }}{% endfor %}";
        let template = ChatTemplate::new(template, None, None).unwrap();
        let render = |messages: &[Message]| {
            let arguments = TemplateArguments::default();
            template.render_until(messages, &[], &arguments, true, &|| false).unwrap().unwrap()
        };
        let specials = |tokens: Vec<u32>| tokens.iter().filter(|token| **token >= 200).count();
        let plain = tokenizer.encode(&render(messages)).unwrap();
        let (mark, divided) = divided(tokenizer, messages).unwrap().expect("there are names");
        let text = tokenizer.encode_divided(&render(&divided), mark).unwrap();
        // The remaining tokens are the same.
        assert_eq!(text, tokenizer.encode_plain(&render(messages)).unwrap());
        (specials(plain), specials(text))
    }

    #[test]
    fn messages_cannot_inject_control_tokens() {
        let null = serde_json::Value::Null;
        let shapes: [&[&str]; 5] = [
            &["|s|"],
            &["\u{fffc}0", "0\u{fffd}", "|\u{fffc}", "\u{fffc}", "|s|"],
            &["ab", "bc", "abc", "|s|"],
            &["\u{fdd0}s", "s\u{e000}", "|s|", "|\u{fffc}0\u{fffd}s|"],
            &["|", "||", "|||", "|s|"],
        ];
        for specials in shapes {
            for name in specials {
                if *name == "ab" {
                    continue;
                }
                let found = count(&tokenizer(specials, &null, false), &hostile(name));
                assert!(found.0 > 5, "{specials:?} {name}: {found:?}");
                assert_eq!(found.1, 0, "{specials:?} {name}");
            }
        }
    }

    /// Names that are matched after normalization.
    #[test]
    fn messages_cannot_inject_normalized_names() {
        for (normalizer, name) in [("Lowercase", "|Su|"), ("NFKC", "|ＳＵ|"), ("NFKC", "|SU|")] {
            let specials = [if normalizer == "NFKC" { "|SU|" } else { "|su|" }];
            let tokenizer = tokenizer(&specials, &json!({"type": normalizer}), true);
            let found = count(&tokenizer, &hostile(name));
            assert!(found.0 > 5, "{name}: {found:?}");
            assert_eq!(found.1, 0, "{name}");
        }
    }
}
