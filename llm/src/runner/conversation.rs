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
        let prompt = self.chat_prompt(messages, tools)?;
        let inputs = mark.place(&prompt, objects)?;
        self.keep_common(&[])?;
        self.run(&inputs, config, start, &mut on_text)
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
        self.chat_template()?.render_with(messages, tools, &self.arguments, true)
    }

    fn prompt_tokens(&mut self, messages: &[Message], tools: &[Tool]) -> Result<Vec<u32>, Error> {
        let prompt = self.chat_prompt(messages, tools)?;
        self.tokenizer.encode(&prompt)
    }
}
