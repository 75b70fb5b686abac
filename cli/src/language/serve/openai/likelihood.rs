//! Log probabilities in OpenAI's format.

use serde_json::{Map, Value, json};
use torchlet::llm::{Logprobs, Tokenizer};

/// OpenAI's value for negligible probabilities.
const MIN: f32 = -9999.0;

/// Formats the log probabilities of a text's tokens, in order.
pub(super) struct Likelihoods<'a> {
    tokenizer: &'a Tokenizer,
    is_chat: bool,
    text: String,
    /// A byte offset in the text, and the number of characters before it.
    counted: (usize, usize),
}

impl<'a> Likelihoods<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, is_chat: bool) -> Self {
        Likelihoods { tokenizer, is_chat, text: String::new(), counted: (0, 0) }
    }

    /// Appends the text of the next tokens.
    pub(super) fn add(&mut self, text: &str) {
        self.text += text;
    }

    pub(super) fn tell(&mut self, tokens: &[Logprobs]) -> Value {
        match self.is_chat {
            true => {
                let content: Vec<Value> =
                    tokens.iter().map(|chosen| self.in_chat(chosen)).collect();
                json!({"content": content, "refusal": null})
            }
            false => self.in_text(tokens),
        }
    }

    fn in_chat(&self, chosen: &Logprobs) -> Value {
        let entry = |token: u32, logprob: f32| {
            let bytes = self.bytes(token, chosen.offset);
            let name = match &bytes {
                Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                None => self.special(token),
            };
            json!({"token": name, "logprob": logprob.max(MIN), "bytes": bytes})
        };
        let mut whole = entry(chosen.token, chosen.logprob);
        let top = chosen.top.iter().map(|(token, logprob)| entry(*token, *logprob));
        whole["top_logprobs"] = top.collect();
        whole
    }

    fn in_text(&mut self, tokens: &[Logprobs]) -> Value {
        let (mut names, mut logprobs) = (Vec::new(), Vec::new());
        let (mut top, mut offsets) = (Vec::new(), Vec::new());
        for chosen in tokens {
            let name = self.name(chosen.token, chosen.offset);
            let others = chosen.top.iter();
            let mut all: Map<String, Value> = others
                .map(|(token, logprob)| (self.name(*token, chosen.offset), logprob.max(MIN).into()))
                .collect();
            // Also if it is not among the most likely tokens.
            all.insert(name.clone(), chosen.logprob.max(MIN).into());
            names.push(name);
            logprobs.push(chosen.logprob.max(MIN));
            top.push(all);
            offsets.push(self.characters(chosen.offset));
        }
        json!({
            "tokens": names, "token_logprobs": logprobs, "top_logprobs": top, "text_offset": offsets
        })
    }

    /// The bytes of a token at an offset; `None` for tokens without text.
    fn bytes(&self, token: u32, offset: usize) -> Option<Vec<u8>> {
        let mut bytes = self.tokenizer.token_bytes(token);
        if bytes.is_empty() {
            return None;
        }
        // Tokenizers may strip a leading space.
        if offset == 0 && bytes.first() == Some(&b' ') && !self.text.starts_with(' ') {
            bytes.remove(0);
        }
        Some(bytes)
    }

    fn special(&self, token: u32) -> String {
        self.tokenizer.special_name(token).unwrap_or_default().into()
    }

    /// Returns a token's name for responses that identify tokens by text; partial characters are
    /// escaped.
    fn name(&self, token: u32, offset: usize) -> String {
        let Some(bytes) = self.bytes(token, offset) else { return self.special(token) };
        String::from_utf8(bytes).unwrap_or_else(|error| {
            let bytes = error.as_bytes().iter().map(|byte| format!("\\x{byte:02x}"));
            format!("bytes:{}", bytes.collect::<String>())
        })
    }

    /// The number of characters before a byte offset; offsets must not decrease between calls.
    fn characters(&mut self, offset: usize) -> usize {
        let (from, count) = self.counted;
        if let Some(new) = self.text.get(from..offset) {
            self.counted = (offset, count + new.chars().count());
        }
        self.counted.1
    }
}
