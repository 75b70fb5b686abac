//! Messages of a conversation.

use super::Runner;
use crate::chat::{ChatTemplate, Message, TemplateArguments};
use crate::encoder::Input;
use crate::error::Error;
use crate::generation::{Generation, GenerationConfig};
use crate::mark::Mark;
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

    /// How [`chat`](Self::chat) makes a prompt of messages: what was set, or Llama 3's or ChatML, by the special tokens that there are.
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

    /// Generates the assistant's next message of a conversation. What of it was fed before, here or by [`generate`](Self::generate), is not
    /// fed again.
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

    /// The same, where these functions may be called: [`ToolCalls`](crate::ToolCalls) finds the calls in what is said.
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

    /// The same, with pictures and sounds, of one or several parts each, in the places of their marks. All of it is fed: nothing tells one picture
    /// from another among what was.
    ///
    /// # Errors
    /// As [`chat_with_tools`](Self::chat_with_tools) and [`generate_from`](Self::generate_from), or the template left out a mark.
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

    fn prompt_tokens(&mut self, messages: &[Message], tools: &[Tool]) -> Result<Vec<u32>, Error> {
        match self.divided(messages)? {
            Some((mark, messages)) => {
                let prompt = self.chat_prompt(&messages, tools)?;
                self.tokenizer.encode_divided(&prompt, mark.as_str())
            }
            None => {
                let prompt = self.chat_prompt(messages, tools)?;
                self.tokenizer.encode(&prompt)
            }
        }
    }

    /// The messages with a mark in each name of a control token, and the mark, if there are such
    /// names and they should be text.
    fn divided(&self, messages: &[Message]) -> Result<Option<(Mark, Vec<Message>)>, Error> {
        if !self.are_messages_text {
            return Ok(None);
        }
        let mut texts = Vec::new();
        for message in messages {
            message.clone().each_text(&mut |text| texts.push(text.to_owned()))?;
        }
        let names = self.tokenizer.specials().map(|(name, _)| name);
        let mark = Mark::unlike(texts.iter().map(String::as_str).chain(names));
        let (mut messages, mut has_names) = (messages.to_vec(), false);
        for message in &mut messages {
            message.each_text(&mut |text| {
                if let Some(divided) = self.tokenizer.divide(text, mark.as_str()) {
                    (*text, has_names) = (divided, true);
                }
            })?;
        }
        Ok(has_names.then_some((mark, messages)))
    }
}
