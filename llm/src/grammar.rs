//! Text that has to be of a form: which tokens may come next, by the crate `llguidance`.

mod alternatives;
mod cost;
mod parts;

use crate::error::Error;
use crate::tokenizer::Tokenizer;
use llguidance::api::{GrammarInit, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{JsonCompileOptions, Matcher, ParserFactory};
use serde_json::Value;
use std::sync::Arc;

/// Longer schemas are refused: what is made of one is some tens of times as long.
const MAX_SCHEMA: usize = 1 << 20;
/// Between parts of JSON: nothing, a space, or a new line with spaces. Without a bound, a model that has nothing to say could say that for ever.
const SPACE: &str = r"\x20|\n\x20{0,32}";
/// Where a schema has settings for the crate.
const OPTIONS: &str = "x-guidance";
/// Characters of what the crate says that are told: it may have the whole schema in it.
const MAX_MESSAGE: usize = 1000;
/// How the crate marks what is not text.
const NO_TEXT: u8 = 0xff;

/// What a text has to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Grammar {
    /// As text: values take a hundred times as much, and many of these may wait.
    schema: String,
}

impl Grammar {
    /// JSON that a schema allows. What a schema asks for and this cannot promise is refused when a text is generated: references to other files, and
    /// `oneOf` where two alternatives could hold at once (they should be of different types, or differ in a property that they require, by `const`
    /// or `enum`). As long as a schema leaves open how long a text is, so does this: a generation may end before the text does.
    ///
    /// # Errors
    /// It is malformed, has more than 1 MiB, settings of the crate that reads it (`x-guidance`), or a `oneOf` of too many alternatives; or it would
    /// become too large, where what has to hold at once is put together: alternatives within `allOf`, `$ref` beside others, patterns of one text,
    /// `multipleOf`, `patternProperties`.
    pub fn json_schema(schema: &str) -> Result<Self, Error> {
        let fail = |message: String| Err(Error::Grammar { message });
        if schema.len() > MAX_SCHEMA {
            return fail(format!("it has {} bytes, more than {MAX_SCHEMA}", schema.len()));
        }
        match serde_json::from_str::<Value>(schema) {
            // What the crate is told there would be how it reads the rest: leniently, say.
            Ok(Value::Object(fields)) if fields.contains_key(OPTIONS) => {
                fail(format!("'{OPTIONS}' is not supported"))
            }
            Ok(value @ Value::Object(_)) if cost::of(&value) > cost::MOST => fail(
                "the schema becomes too large: what has to hold at once ('allOf', '$ref' beside others, patterns of one text, 'multipleOf', 'patternProperties') is put together"
                    .into(),
            ),
            Ok(mut value @ Value::Object(_)) => match alternatives::separate(&mut value) {
                Ok(true) => Ok(Grammar { schema: value.to_string() }),
                Ok(false) => Ok(Grammar { schema: schema.into() }),
                Err(count) => fail(format!(
                    "'oneOf' has {count} alternatives, more than {}",
                    alternatives::MAX_ALTERNATIVES
                )),
            },
            Ok(_) => fail("a schema should be an object".into()),
            Err(error) => fail(format!("the schema is not JSON: {error}")),
        }
    }

    /// Any object in JSON.
    pub fn json_object() -> Self {
        Grammar { schema: r#"{"type": "object"}"#.into() }
    }
}

/// A tokenizer's tokens, as grammars look at them.
pub(crate) struct Vocabulary {
    parsers: ParserFactory,
    /// What stands for all tokens that end a text: none of the tokenizer's.
    end: u32,
}

impl Vocabulary {
    pub(crate) fn of(tokenizer: &Tokenizer) -> Result<Self, Error> {
        let mut words = tokenizer.token_texts();
        for word in &mut words {
            if word.first() == Some(&NO_TEXT) {
                word.clear();
            }
        }
        let too_many = |_| Error::Grammar { message: "there are too many tokens".into() };
        let end = u32::try_from(words.len()).map_err(too_many)?;
        words.push([&[NO_TEXT], "<|end|>".as_bytes()].concat());
        let trie = TokTrie::from(&TokRxInfo::new(end + 1, end), &words);
        let tokens: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut parsers = ParserFactory::new_simple(&tokens).map_err(|error| refuse(&error))?;
        parsers.quiet().limits_mut().verbose_errors = false;
        Ok(Vocabulary { parsers, end })
    }

    /// What follows a grammar from its beginning.
    pub(crate) fn constraint(&self, grammar: &Grammar) -> Result<Constraint, Error> {
        let options = JsonCompileOptions {
            whitespace_pattern: Some(SPACE.into()),
            ..JsonCompileOptions::default()
        };
        let mut schema = serde_json::from_str(&grammar.schema).map_err(|error| refuse(&error))?;
        options.apply_to(&mut schema);
        let init = GrammarInit::Serialized(TopLevelGrammar::from_json_schema(schema));
        let made = llguidance::panic_utils::catch_unwind(std::panic::AssertUnwindSafe(|| {
            self.parsers.create_parser_from_init_default(init)
        }));
        let matcher = Matcher::new(made);
        match matcher.get_error() {
            Some(message) => Err(Error::Grammar { message: readable(&message) }),
            None => Ok(Constraint { matcher, end: self.end }),
        }
    }
}

/// A grammar, and how much of a text it has seen.
pub(crate) struct Constraint {
    matcher: Matcher,
    end: u32,
}

impl Constraint {
    /// Leaves the logits of those tokens that may come next, of which `ends` end the text.
    pub(crate) fn mask(&mut self, logits: &mut [f32], ends: &[u32]) -> Result<(), Error> {
        let allowed = self.matcher.compute_mask().map_err(|error| refuse(&error))?;
        let may_end = allowed.is_allowed(self.end);
        let ends: Vec<(u32, f32)> =
            ends.iter().filter_map(|&token| Some((token, *logits.get(token as usize)?))).collect();
        for (token, logit) in (0u32..).zip(logits.iter_mut()) {
            if token >= self.end || !allowed.is_allowed(token) {
                *logit = f32::NEG_INFINITY;
            }
        }
        for (token, logit) in ends {
            logits[token as usize] = if may_end { logit } else { f32::NEG_INFINITY };
        }
        Ok(())
    }

    /// Goes on behind a token that was chosen; whether anything may follow it.
    pub(crate) fn accept(&mut self, token: u32) -> Result<bool, Error> {
        self.matcher.consume_token(token).map_err(|error| refuse(&error))?;
        Ok(!self.matcher.is_stopped())
    }

    /// Whether what was accepted may end there.
    pub(crate) fn fits(&mut self) -> bool {
        self.matcher.is_accepting().unwrap_or(false)
    }

    /// Begins again, and goes through a text, which need not end where one of its tokens did.
    pub(crate) fn follow(&mut self, text: &str) -> Result<(), Error> {
        let tokens = self.matcher.tok_env().map_err(|error| refuse(&error))?;
        let tokens = tokens.tok_trie().greedy_tokenize(text.as_bytes());
        self.matcher.reset().map_err(|error| refuse(&error))?;
        self.matcher.consume_tokens(&tokens).map_err(|error| refuse(&error))
    }
}

fn refuse(error: &dyn std::fmt::Display) -> Error {
    Error::Grammar { message: readable(&format!("{error:#}")) }
}

/// What the crate says, without the place in its code, nor the name of a setting that is not offered: it would make `anyOf` of any `oneOf`.
fn readable(message: &str) -> String {
    if message.contains("coerce_one_of") {
        return "two alternatives of 'oneOf' could hold at once: they should be of different types, or differ by 'const' or 'enum' in a property that \
                they require; where it does not matter how many hold, write 'anyOf'"
            .into();
    }
    let told = message.split("\n<backtrace>").next().unwrap_or_default();
    told.trim_end().chars().take(MAX_MESSAGE).collect()
}
