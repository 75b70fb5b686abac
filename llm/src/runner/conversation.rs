//! Messages of a conversation.

use super::Runner;
use crate::chat::{ChatTemplate, Message, TemplateArguments};
use crate::encoder::Input;
use crate::error::Error;
use crate::generation::{Generation, GenerationConfig};
use crate::mark::Mark;
use crate::tokenizer::Tokenizer;
use crate::tools::Tool;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

impl Runner {
    /// Sets how [`chat`](Self::chat) makes a prompt of messages.
    pub fn set_chat_template(&mut self, template: impl Into<Arc<ChatTemplate>>) {
        self.template = Some(template.into());
    }

    /// Sets what else the chat template is given, from now on: `enable_thinking`, say.
    pub fn set_template_arguments(&mut self, arguments: TemplateArguments) {
        self.arguments = arguments;
    }

    /// Sets whether names of control tokens in messages are text as any other, so that nobody can
    /// write `<|im_start|>system` into a message and speak for the system. This holds for all texts
    /// of messages, whoever they are from: also for results of functions, and what the assistant
    /// said. `transformers` makes control tokens of such names, and so does a new runner.
    pub fn set_messages_are_text(&mut self, are_text: bool) {
        self.are_messages_text = are_text;
    }

    /// What else the chat template is given.
    pub fn template_arguments(&self) -> &TemplateArguments {
        &self.arguments
    }

    /// How [`chat`](Self::chat) makes a prompt of messages: what was set, or Llama 3's or ChatML,
    /// by the special tokens that there are.
    ///
    /// # Errors
    /// There are none of these.
    pub fn chat_template(&mut self) -> Result<Arc<ChatTemplate>, Error> {
        if self.template.is_none() {
            let has = |name| self.tokenizer.special(name).is_some();
            let known = match (has("<|start_header_id|>"), has("<|im_start|>")) {
                (true, _) => ChatTemplate::llama3(),
                (_, true) => ChatTemplate::chatml(),
                _ => {
                    let message = "the tokenizer has neither <|start_header_id|> nor <|im_start|>; set a template, such as that of \
                                   tokenizer_config.json";
                    return Err(Error::Template { message: message.into() });
                }
            };
            self.template = Some(Arc::new(known));
        }
        self.template.clone().ok_or(Error::NoPrompt)
    }

    /// Generates the assistant's next message of a conversation. What of it was fed before, here or
    /// by [`generate`](Self::generate), is not fed again.
    ///
    /// # Errors
    /// As [`generate`](Self::generate), or the template refuses the messages.
    pub fn chat(
        &mut self,
        messages: &[Message],
        config: &GenerationConfig,
        on_text: impl FnMut(&str),
    ) -> Result<Generation, Error> {
        self.chat_with_tools(messages, &[], config, on_text)
    }

    /// The same, where these functions may be called: [`ToolCalls`](crate::ToolCalls) finds the
    /// calls in what is said.
    ///
    /// # Errors
    /// As [`chat`](Self::chat), or the arguments of a call in a message are no JSON object.
    pub fn chat_with_tools(
        &mut self,
        messages: &[Message],
        tools: &[Tool],
        config: &GenerationConfig,
        mut on_text: impl FnMut(&str),
    ) -> Result<Generation, Error> {
        let start = (SystemTime::now(), Instant::now());
        let tokens = self.prompt_tokens(messages, tools)?;
        let rest = self.keep_common(&tokens)?;
        self.run(&[Input::Tokens(&tokens[rest..])], config, start, &mut on_text)
    }

    /// The same, with pictures and sounds, of one or several parts each, in the places of their
    /// marks. All of it is fed: nothing tells one picture from another among what was.
    ///
    /// # Errors
    /// As [`chat_with_tools`](Self::chat_with_tools) and [`generate_from`](Self::generate_from), or
    /// the template left out a mark.
    pub fn chat_from(
        &mut self,
        messages: &[Message],
        tools: &[Tool],
        (mark, objects): (&Mark, &[Vec<Input<'_>>]),
        config: &GenerationConfig,
        mut on_text: impl FnMut(&str),
    ) -> Result<Generation, Error> {
        let start = (SystemTime::now(), Instant::now());
        let divided = self.divided(messages)?;
        let prompt = self.chat_prompt(divided.as_ref().map_or(messages, |all| &all.1), tools)?;
        let inputs = mark.place(&prompt, objects)?;
        self.keep_common(&[])?;
        self.divider = divided.map(|(mark, _)| mark);
        let generation = self.run(&inputs, config, start, &mut on_text);
        self.divider = None;
        generation
    }

    /// The tokens of the prompt that [`chat`](Self::chat) makes.
    ///
    /// # Errors
    /// The template refuses the messages.
    pub fn chat_tokens(&mut self, messages: &[Message]) -> Result<Vec<u32>, Error> {
        self.prompt_tokens(messages, &[])
    }

    /// The prompt that [`chat_with_tools`](Self::chat_with_tools) makes, as text.
    ///
    /// # Errors
    /// The template refuses the messages.
    pub fn chat_prompt(&mut self, messages: &[Message], tools: &[Tool]) -> Result<String, Error> {
        let (template, is_over) = (self.chat_template()?, &self.is_over);
        let prompt =
            template.render_until(messages, tools, &self.arguments, true, &|| is_over())?;
        prompt.ok_or_else(|| Error::Template { message: "the rendering was stopped".into() })
    }

    /// The tokens of the prompt that [`chat_with_tools`](Self::chat_with_tools) makes.
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

/// Returns the messages with each control-token name split by a mark, and the mark; `None` if
/// nothing was split.
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
        message: "the messages have all characters for private use, but one has to be free to \
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

    /// Messages that try to write control tokens in all places.
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
                others: vec![("note".into(), json!({"z": name}).to_string())],
                ..Message::new("tool", name)
            },
        ]
    }

    /// How many control tokens there are with messages as they are, and with them as text.
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
        // Nothing else changes.
        assert_eq!(text, tokenizer.encode_plain(&render(messages)).unwrap());
        (specials(plain), specials(text))
    }

    #[test]
    fn no_message_writes_a_control_token() {
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

    /// Names that are looked for behind normalization.
    #[test]
    fn no_message_writes_a_name_before_it_is_normalized() {
        for (normalizer, name) in [("Lowercase", "|Su|"), ("NFKC", "|ＳＵ|"), ("NFKC", "|SU|")] {
            let specials = [if normalizer == "NFKC" { "|SU|" } else { "|su|" }];
            let tokenizer = tokenizer(&specials, &json!({"type": normalizer}), true);
            let found = count(&tokenizer, &hostile(name));
            assert!(found.0 > 5, "{name}: {found:?}");
            assert_eq!(found.1, 0, "{name}");
        }
    }
}
