//! Messages of a conversation.

use super::parts::Part;
use crate::error::Failure;
use pyo3::prelude::*;
use torchlet::llm::{self, Input, Message, Placeholder, Tool, ToolCall};

/// Messages with placeholders for images and audio, and these objects.
pub(super) struct Conversation {
    messages: Vec<Message>,
    objects: Vec<Part>,
    mark: Placeholder,
    pub(super) tools: Vec<Tool>,
    arguments: llm::TemplateArguments,
}

/// A message: role, content, function calls (id, name, arguments), id of the call that this is the
/// result of, and other fields as JSON.
pub(super) type Spoken<'py> = (
    String,
    Vec<(String, Bound<'py, PyAny>)>,
    Vec<(String, String, String)>,
    Option<String>,
    Vec<(String, String)>,
);

impl Conversation {
    pub(super) fn of(spoken: Vec<Spoken<'_>>, tools: &[String], arguments: &str) -> PyResult<Self> {
        let arguments = llm::TemplateArguments::from_json(arguments).map_err(Failure::from)?;
        let tools: Result<Vec<Tool>, _> = tools.iter().map(|tool| Tool::from_json(tool)).collect();
        let tools = tools.map_err(Failure::from)?;
        let mut read = Vec::new();
        for (role, content, calls, tool_call_id, extra_fields) in spoken {
            let content: PyResult<Vec<Part>> = content.iter().map(Part::of).collect();
            read.push((role, content?, calls, tool_call_id, extra_fields));
        }
        let texts = read.iter().flat_map(|(_, content, ..)| content);
        let mark = Placeholder::not_in(texts.filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            _ => None,
        }));
        let (mut messages, mut objects) = (Vec::new(), Vec::new());
        for (role, content, calls, tool_call_id, extra_fields) in read {
            let mut text = String::new();
            for part in content {
                match part {
                    Part::Text(part) => text += &part,
                    part => {
                        text += mark.as_str();
                        objects.push(part);
                    }
                }
            }
            let call = |(id, name, arguments)| ToolCall { id, name, arguments };
            let tool_calls = calls.into_iter().map(call).collect();
            messages.push(Message {
                tool_calls,
                tool_call_id,
                extra_fields,
                ..Message::new(role, text)
            });
        }
        Ok(Conversation { messages, objects, mark, tools, arguments })
    }

    pub(super) fn answer(
        self,
        runner: &mut llm::Runner,
        config: &llm::GenerationConfig,
        hear: &mut dyn FnMut(&str),
    ) -> Result<llm::Generation, Failure> {
        let Conversation { messages, objects, mark, tools, arguments } = self;
        runner.set_template_arguments(arguments);
        if objects.is_empty() {
            return Ok(runner.chat_with_tools(&messages, &tools, config, hear)?);
        }
        let laid_out = objects.into_iter().map(|part| part.laid_out(runner));
        let objects = laid_out.collect::<Result<Vec<Vec<Part>>, Failure>>()?;
        let inputs: Vec<Vec<Input<'_>>> =
            objects.iter().map(|parts| parts.iter().map(Part::input).collect()).collect();
        Ok(runner.chat_from(&messages, &tools, (&mark, &inputs), config, hear)?)
    }
}
