//! How likely tokens were, as answers have it.

use serde_json::{Map, Value, json};
use torchlet::llm::{Logprobs, Tokenizer};

/// What OpenAI's API has for what is as good as impossible.
const LEAST: f32 = -9999.0;

/// Tells of the tokens of a text, one after the other.
pub(super) struct Likelihoods<'a> {
    tokenizer: &'a Tokenizer,
    is_chat: bool,
    text: String,
    /// How many characters so many bytes of the text are.
    counted: (usize, usize),
}

impl<'a> Likelihoods<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, is_chat: bool) -> Self {
        Likelihoods { tokenizer, is_chat, text: String::new(), counted: (0, 0) }
    }

    /// Adds text, of which tokens are told next.
    pub(super) fn add(&mut self, text: &str) {
        self.text += text;
    }

    pub(super) fn tell(&mut self, tokens: &[Logprobs]) -> Value {
        match self.is_chat {
            true => {
                let content: Vec<Value> = tokens.iter().map(|told| self.in_chat(told)).collect();
                json!({"content": content, "refusal": null})
            }
            false => self.in_text(tokens),
        }
    }

    fn in_chat(&self, told: &Logprobs) -> Value {
        let entry = |token: u32, logprob: f32| {
            let bytes = self.bytes(token, told.offset);
            let name = match &bytes {
                Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                None => self.special(token),
            };
            json!({"token": name, "logprob": logprob.max(LEAST), "bytes": bytes})
        };
        let mut whole = entry(told.token, told.logprob);
        let likeliest = told.likeliest.iter().map(|(token, logprob)| entry(*token, *logprob));
        whole["top_logprobs"] = likeliest.collect();
        whole
    }

    fn in_text(&mut self, tokens: &[Logprobs]) -> Value {
        let (mut names, mut logprobs) = (Vec::new(), Vec::new());
        let (mut likeliest, mut offsets) = (Vec::new(), Vec::new());
        for told in tokens {
            let name = self.name(told.token, told.offset);
            let others = told.likeliest.iter();
            let mut all: Map<String, Value> = others
                .map(|(token, logprob)| (self.name(*token, told.offset), logprob.max(LEAST).into()))
                .collect();
            // Also where it is none of them.
            all.insert(name.clone(), told.logprob.max(LEAST).into());
            names.push(name);
            logprobs.push(told.logprob.max(LEAST));
            likeliest.push(all);
            offsets.push(self.characters(told.offset));
        }
        json!({"tokens": names, "token_logprobs": logprobs, "top_logprobs": likeliest, "text_offset": offsets})
    }

    /// The text of a token that begins there, if it has one.
    fn bytes(&self, token: u32, offset: usize) -> Option<Vec<u8>> {
        let mut bytes = self.tokenizer.token_bytes(token);
        if bytes.is_empty() {
            return None;
        }
        // A space in front of a text may be left out.
        if offset == 0 && bytes.first() == Some(&b' ') && !self.text.starts_with(' ') {
            bytes.remove(0);
        }
        Some(bytes)
    }

    fn special(&self, token: u32) -> String {
        self.tokenizer.special_name(token).unwrap_or_default().into()
    }

    /// What a token is called where its text is all that tells it from others: also where that is a
    /// part of a character.
    fn name(&self, token: u32, offset: usize) -> String {
        let Some(bytes) = self.bytes(token, offset) else { return self.special(token) };
        String::from_utf8(bytes).unwrap_or_else(|error| {
            let bytes = error.as_bytes().iter().map(|byte| format!("\\x{byte:02x}"));
            format!("bytes:{}", bytes.collect::<String>())
        })
    }

    /// How many characters there are in front of that byte, which comes behind those that were
    /// asked for before.
    fn characters(&mut self, offset: usize) -> usize {
        let (from, count) = self.counted;
        if let Some(new) = self.text.get(from..offset) {
            self.counted = (offset, count + new.chars().count());
        }
        self.counted.1
    }
}
