//! Responses, complete or as streamed events.

use super::likelihood::Likelihoods;
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};
use torchlet::llm::{
    Finish, Generation, Logprobs, OutputPart, Tokenizer, Tool, ToolCall, ToolCalls,
};

/// Properties shared by all parts of a response.
pub(in super::super) struct Answer<'a> {
    pub(in super::super) model: &'a str,
    pub(in super::super) id: String,
    pub(in super::super) created: u64,
    pub(in super::super) is_chat: bool,
    /// The functions that may be called, and whether several at once.
    pub(in super::super) tools: Vec<Tool>,
    pub(in super::super) calls_several: bool,
    /// Whether log probabilities are requested.
    pub(in super::super) tells_logprobs: bool,
    pub(in super::super) tokenizer: &'a Tokenizer,
}

impl Answer<'_> {
    fn object(&self, kind: &str, choices: Value) -> Value {
        json!({
            "id": self.id, "object": kind, "created": self.created, "model": self.model,
            "choices": choices
        })
    }

    /// A stream event with a choice.
    fn event(&self, choice: Value) -> Value {
        let kind = if self.is_chat { "chat.completion.chunk" } else { "text_completion" };
        self.object(kind, json!([choice]))
    }

    /// Starts a choice.
    pub(in super::super) fn choice(&self, index: usize) -> Choice<'_> {
        let found = (!self.tools.is_empty()).then(|| ToolCalls::of(&self.tools).in_parts());
        let likelihoods =
            self.tells_logprobs.then(|| Likelihoods::new(self.tokenizer, self.is_chat));
        let (untold, has_begun, has_ended) = (Vec::new(), false, false);
        Choice { answer: self, index, found, calls: 0, likelihoods, untold, has_begun, has_ended }
    }

    /// The last event, with token counts.
    pub(in super::super) fn usage(&self, prompt: usize, generated: usize) -> Value {
        let kind = if self.is_chat { "chat.completion.chunk" } else { "text_completion" };
        let mut event = self.object(kind, json!([]));
        event["usage"] = usage(prompt, generated);
        event
    }

    /// The complete response.
    pub(in super::super) fn whole(&self, generations: &[Box<Generation>], prompt: usize) -> Value {
        let choices = generations.iter().enumerate();
        let choices = choices.map(|(index, generation)| self.choice(index).whole(generation));
        let kind = if self.is_chat { "chat.completion" } else { "text_completion" };
        let mut answer = self.object(kind, choices.collect());
        let generated = generations.iter().map(|generation| generation.stats.generated_tokens);
        answer["usage"] = usage(prompt, generated.sum());
        answer
    }
}

/// A choice of a response. Finds and numbers the function calls in its text.
pub(in super::super) struct Choice<'a> {
    answer: &'a Answer<'a>,
    index: usize,
    /// Parser for function calls; `None` without functions.
    found: Option<ToolCalls>,
    calls: usize,
    likelihoods: Option<Likelihoods<'a>>,
    /// Log probabilities not yet sent, because their text may become part of a function call.
    untold: Vec<Logprobs>,
    has_begun: bool,
    /// Whether the only permitted call is complete.
    has_ended: bool,
}

impl Choice<'_> {
    /// The index of the choice.
    pub(in super::super) fn index(&self) -> usize {
        self.index
    }

    /// Returns the events for a piece of text and its tokens.
    pub(in super::super) fn push(&mut self, text: String, tokens: Vec<Logprobs>) -> Vec<Value> {
        self.untold.extend(tokens);
        if let Some(likelihoods) = &mut self.likelihoods {
            likelihoods.add(&text);
        }
        let mut events: Vec<Value> = self.begin().into_iter().collect();
        for (said, call) in self.say(text) {
            events.push(self.said(&said, call));
        }
        events
    }

    /// Returns the last events, including tokens without text.
    pub(in super::super) fn end(
        &mut self,
        generation: &Generation,
        tokens: Vec<Logprobs>,
    ) -> Vec<Value> {
        let mut events: Vec<Value> = self.begin().into_iter().collect();
        for (said, call) in self.finish() {
            events.push(self.said(&said, call));
        }
        self.untold.extend(tokens);
        let mut choice = self.text(None);
        choice["finish_reason"] = reason(generation, self.calls).into();
        events.push(self.event(choice));
        events
    }

    /// The first event of a chat: the role.
    fn begin(&mut self) -> Option<Value> {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        (is_first && self.answer.is_chat).then(|| {
            let delta = json!({"role": "assistant", "content": ""});
            self.answer.event(json!({"index": self.index, "delta": delta, "finish_reason": null}))
        })
    }

    /// Parses a piece of text into text and calls.
    fn say(&mut self, text: String) -> Vec<(OutputPart, usize)> {
        let said = match &mut self.found {
            Some(found) => found.push(&text),
            None => vec![OutputPart::Text(text)],
        };
        self.numbered(said)
    }

    /// Returns what is left at the end of the text.
    fn finish(&mut self) -> Vec<(OutputPart, usize)> {
        let said = self.found.take().map(ToolCalls::finish).unwrap_or_default();
        self.numbered(said)
    }

    /// Adds to each part the index of its call, or of the last call before it.
    fn numbered(&mut self, said: Vec<OutputPart>) -> Vec<(OutputPart, usize)> {
        let mut numbered = Vec::new();
        for mut said in said {
            let is_more = matches!(said, OutputPart::Arguments(_));
            self.has_ended |= self.calls > 0 && !self.answer.calls_several && !is_more;
            if self.has_ended {
                break;
            }
            if let OutputPart::Call(call) | OutputPart::Begun(call) = &mut said {
                call.id = match self.index {
                    0 => format!("call_{}_{}", self.answer.id, self.calls),
                    index => format!("call_{}_{index}_{}", self.answer.id, self.calls),
                };
                self.calls += 1;
            }
            numbered.push((said, self.calls.saturating_sub(1)));
        }
        numbered
    }

    /// Returns an event with text or (a part of) a call.
    fn said(&mut self, said: &OutputPart, number: usize) -> Value {
        let choice = match said {
            OutputPart::Text(text) => self.text(Some(text)),
            OutputPart::Call(found) | OutputPart::Begun(found) => self.call(number, call(found)),
            OutputPart::Arguments(text) => {
                self.call(number, json!({"function": {"arguments": text}}))
            }
        };
        self.event(choice)
    }

    /// Builds a choice with a (partial) call.
    fn call(&self, number: usize, mut call: Value) -> Value {
        call["index"] = number.into();
        json!({"index": self.index, "delta": {"tool_calls": [call]}, "finish_reason": null})
    }

    fn text(&self, text: Option<&str>) -> Value {
        let index = self.index;
        if !self.answer.is_chat {
            let text = text.unwrap_or_default();
            return json!({"index": index, "text": text, "logprobs": null, "finish_reason": null});
        }
        let delta = text.map_or(json!({}), |text| json!({"content": text}));
        json!({"index": index, "delta": delta, "finish_reason": null})
    }

    /// Builds an event, with pending log probabilities.
    fn event(&mut self, mut choice: Value) -> Value {
        if let (Some(likelihoods), false) = (&mut self.likelihoods, self.untold.is_empty()) {
            choice["logprobs"] = likelihoods.tell(&std::mem::take(&mut self.untold));
        }
        self.answer.event(choice)
    }

    /// The complete choice.
    fn whole(mut self, generation: &Generation) -> Value {
        self.found = self.found.map(|_| ToolCalls::of(&self.answer.tools));
        let mut said = self.say(generation.text.clone());
        said.extend(self.finish());
        let (mut text, mut called) = (String::new(), Vec::new());
        for (said, _) in &said {
            match said {
                OutputPart::Text(said) => text += said,
                OutputPart::Call(found) | OutputPart::Begun(found) => called.push(call(found)),
                OutputPart::Arguments(_) => {}
            }
        }
        let likelihoods = self.likelihoods.as_mut().map(|likelihoods| {
            likelihoods.add(&generation.text);
            // A stop string is not part of the text.
            let is_cut = generation.finish == Finish::Stop;
            let all = generation.logprobs.iter().cloned();
            let tokens = all.filter(|chosen| !is_cut || chosen.offset < generation.text.len());
            likelihoods.tell(&tokens.collect::<Vec<_>>())
        });
        let (index, reason) = (self.index, reason(generation, called.len()));
        if !self.answer.is_chat {
            return json!({
                "index": index, "text": text, "logprobs": likelihoods, "finish_reason": reason
            });
        }
        let mut message = json!({"role": "assistant", "content": text, "refusal": null});
        if !called.is_empty() {
            if text.trim().is_empty() {
                message["content"] = Value::Null;
            }
            message["tool_calls"] = called.into();
        }
        json!({
            "index": index, "message": message, "logprobs": likelihoods, "finish_reason": reason
        })
    }
}

/// Formats a function call.
fn call(call: &ToolCall) -> Value {
    let ToolCall { id, name, arguments } = call;
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

pub(in super::super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn reason(generation: &Generation, calls: usize) -> &'static str {
    match generation.finish {
        Finish::Length | Finish::Context => "length",
        _ if calls > 0 => "tool_calls",
        _ => "stop",
    }
}

fn usage(prompt: usize, generated: usize) -> Value {
    json!({
        "prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated
    })
}

/// Formats an error.
pub(in super::super) fn error(status: u16, message: &str, code: Option<&str>) -> Value {
    let kind = match status {
        401 => "authentication_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    // Messages about a field begin with its quoted name.
    let field = message.strip_prefix('\'').and_then(|rest| rest.split('\'').next());
    let param = field.filter(|_| status < 500);
    json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
}
