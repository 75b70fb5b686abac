//! Text that has to be of a form: which tokens may come next, by the crate `llguidance`.

mod alternatives;
mod cost;
mod parts;
mod worker;

use crate::error::Error;
use crate::tokenizer::Tokenizer;
use llguidance::api::{GrammarInit, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{JsonCompileOptions, Matcher, ParserFactory};
use serde_json::Value;
use std::sync::Arc;
use worker::{Gate, Worker};

/// Longer schemas are refused: what is made of one is some tens of times as long.
const MAX_SCHEMA: usize = 1 << 20;
/// Between parts of JSON: nothing, a space, or a new line with spaces. Without a bound, a model
/// that has nothing to say could say that for ever.
const SPACE: &str = r"\x20|\n\x20{0,32}";
/// Where a schema has settings for the crate.
const OPTIONS: &str = "x-guidance";
/// Symbols in the rules of a compiled grammar, which are up to a kilobyte each.
const MAX_GRAMMAR: usize = 200_000;
/// States of the lexer of a compiled grammar, which are 1 to 2 kB each. It adds states as text is
/// generated.
const MAX_STATES: usize = 100_000;
/// Items of the Earley parser in one row, and in one mask. An object has about six in a row for
/// each property that may follow: every schema whose compilation is affordable fits.
const MAX_ITEMS: usize = 100_000;
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
    /// JSON that a schema allows. What a schema asks for and this cannot promise is refused when a
    /// text is generated: references to other files, and `oneOf` where two alternatives could hold
    /// at once (they should be of different types, or differ in a property that they require, by
    /// `const` or `enum`). As long as a schema leaves open how long a text is, so does this: a
    /// generation may end before the text does.
    ///
    /// # Errors
    /// It is malformed, has more than 1 MiB, more than 4,000 levels (those of the schema and of
    /// each that is referred to, together), settings of the crate that reads it (`x-guidance`), or
    /// a `oneOf` of too many alternatives; or compiling it would take too long: objects with
    /// thousands of properties, or hundreds with `minProperties` or `maxProperties`; alternatives
    /// and values within `allOf`, `$ref` beside others, patterns of one text, `multipleOf`,
    /// `patternProperties`.
    pub fn json_schema(schema: &str) -> Result<Self, Error> {
        fn fail<T>(message: String) -> Result<T, Error> {
            Err(Error::Grammar { message })
        }
        if schema.len() > MAX_SCHEMA {
            return fail(format!("it has {} bytes, more than {MAX_SCHEMA}", schema.len()));
        }
        match serde_json::from_str::<Value>(schema) {
            // What the crate is told there would be how it reads the rest: leniently, say.
            Ok(Value::Object(fields)) if fields.contains_key(OPTIONS) => {
                fail(format!("'{OPTIONS}' is not supported"))
            }
            Ok(mut value @ Value::Object(_)) => {
                cost::check(&value).or_else(fail)?;
                match alternatives::separate(&mut value) {
                    Ok(true) => Ok(Grammar { schema: value.to_string() }),
                    Ok(false) => Ok(Grammar { schema: schema.into() }),
                    Err(count) => fail(format!(
                        "'oneOf' has {count} alternatives, more than {}",
                        alternatives::MAX_ALTERNATIVES
                    )),
                }
            }
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
    parsers: Arc<ParserFactory>,
    gate: Gate,
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
        let limits = parsers.quiet().limits_mut();
        limits.verbose_errors = false;
        (limits.max_grammar_size, limits.max_lexer_states) = (MAX_GRAMMAR, MAX_STATES);
        (limits.max_items_in_row, limits.step_max_items) = (MAX_ITEMS, MAX_ITEMS);
        Ok(Vocabulary { parsers: Arc::new(parsers), gate: Gate::default(), end })
    }

    /// What follows a grammar from its beginning; nothing if `is_left` says that it is not wanted
    /// any more.
    pub(crate) fn constraint(
        &self,
        grammar: &Grammar,
        is_left: &dyn Fn() -> bool,
    ) -> Result<Option<Constraint>, Error> {
        let (parsers, schema) = (self.parsers.clone(), grammar.schema.clone());
        let worker = Worker::start(&self.gate, is_left, move || compile(&parsers, &schema))?;
        Ok(worker.map(|worker| Constraint { worker, end: self.end }))
    }
}

fn compile(parsers: &ParserFactory, schema: &str) -> Result<Matcher, Error> {
    let options = JsonCompileOptions {
        whitespace_pattern: Some(SPACE.into()),
        ..JsonCompileOptions::default()
    };
    let mut schema = serde_json::from_str(schema).map_err(|error| refuse(&error))?;
    options.apply_to(&mut schema);
    let init = GrammarInit::Serialized(TopLevelGrammar::from_json_schema(schema));
    let made = llguidance::panic_utils::catch_unwind(std::panic::AssertUnwindSafe(|| {
        parsers.create_parser_from_init_default(init)
    }));
    let matcher = Matcher::new(made);
    match matcher.get_error() {
        Some(message) => Err(Error::Grammar { message: readable(&message) }),
        None => Ok(matcher),
    }
}

/// A grammar, and how much of a text it has seen.
pub(crate) struct Constraint {
    worker: Worker,
    end: u32,
}

impl Constraint {
    /// Masks the logits of tokens that the grammar forbids; `ends` end the text. Returns false if
    /// `is_left` ended it first.
    pub(crate) fn mask(
        &mut self,
        logits: &mut [f32],
        ends: &[u32],
        is_left: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        let mask = |matcher: &mut Matcher| matcher.compute_mask().map_err(|error| refuse(&error));
        let Some(allowed) = self.worker.ask(is_left, mask)? else { return Ok(false) };
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
        Ok(true)
    }

    /// Goes on behind a token that was chosen; whether anything may follow it.
    pub(crate) fn accept(&mut self, token: u32) -> Result<bool, Error> {
        self.ask(move |matcher| {
            matcher.consume_token(token).map_err(|error| refuse(&error))?;
            Ok(!matcher.is_stopped())
        })
    }

    /// Whether what was accepted may end there.
    pub(crate) fn fits(&mut self) -> bool {
        self.ask(|matcher| Ok(matcher.is_accepting().unwrap_or(false))).unwrap_or(false)
    }

    /// Begins again, and goes through a text, which need not end where one of its tokens did.
    pub(crate) fn follow(&mut self, text: &str) -> Result<(), Error> {
        let text = text.to_owned();
        self.ask(move |matcher| {
            let tokens = matcher.tok_env().map_err(|error| refuse(&error))?;
            let tokens = tokens.tok_trie().greedy_tokenize(text.as_bytes());
            matcher.reset().map_err(|error| refuse(&error))?;
            matcher.consume_tokens(&tokens).map_err(|error| refuse(&error))
        })
    }

    /// Does what takes little time: a token is a few bytes, a text not more than was generated.
    fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Matcher) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let asked = self.worker.ask(&|| false, work)?;
        asked.ok_or_else(|| refuse(&"the generation was stopped"))
    }
}

fn refuse(error: &dyn std::fmt::Display) -> Error {
    Error::Grammar { message: readable(&format!("{error:#}")) }
}

/// What the crate says, without the place in its code, nor the name of a setting that is not
/// offered: it would make `anyOf` of any `oneOf`.
fn readable(message: &str) -> String {
    if message.contains("coerce_one_of") {
        return "two alternatives of 'oneOf' could hold at once: they should be of different types, or differ by 'const' or 'enum' in a property that \
                they require; where it does not matter how many hold, write 'anyOf'"
            .into();
    }
    let told = message.split("\n<backtrace>").next().unwrap_or_default();
    told.trim_end().chars().take(MAX_MESSAGE).collect()
}
