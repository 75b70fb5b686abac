//! Constrained decoding: grammars that generated text must match, implemented by the crate
//! `llguidance`.

mod alternatives;
mod bounds;
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

/// Maximum schema size in bytes. Compiling needs tens of times as much memory.
const MAX_SCHEMA: usize = 1 << 20;
/// Allowed whitespace between JSON tokens: none, a space, or a line break with indentation.
/// Unbounded whitespace would let a model repeat it forever.
const SPACE: &str = r"\x20|\n\x20{0,32}";
/// Key of llguidance's settings in a schema.
const OPTIONS: &str = "x-guidance";
/// Maximum number of grammar symbols, of up to a kilobyte each.
const MAX_GRAMMAR: usize = 200_000;
/// Maximum number of lexer states, of 1 to 2 kB each. The lexer adds states during generation.
const MAX_STATES: usize = 100_000;
/// Maximum number of items of the Earley parser in one row, and in one mask. An object has about
/// six in a row for each property that may follow. Every schema within the compile budget fits.
const MAX_ITEMS: usize = 100_000;
/// Maximum number of characters of llguidance's messages, which may contain the whole schema.
const MAX_MESSAGE: usize = 1000;
/// Prefix with which llguidance marks special tokens.
const NO_TEXT: u8 = 0xff;

/// A grammar that generated text must match.
#[derive(Debug, Clone, PartialEq)]
pub struct Grammar {
    /// JSON text. Parsed values would need a hundred times the memory, and many requests may be
    /// queued.
    schema: String,
}

impl Grammar {
    /// JSON that matches a schema.
    ///
    /// Unsupported features are rejected when a generation starts: references to other files, and
    /// `oneOf` if two alternatives could match at once. Alternatives should have different types,
    /// or differ in a required property by `const` or `enum`.
    ///
    /// The length of the text is unlimited unless the schema limits it; a generation may end before
    /// the text is complete. Numbers with bounds have a magnitude of at most 9.2e18.
    ///
    /// # Errors
    /// - The schema is malformed, has more than 1 MiB, or more than 4,000 levels (the sum over the
    ///   schema and each referenced one).
    /// - It contains llguidance settings (`x-guidance`), or a `oneOf` with too many alternatives.
    /// - A `multipleOf` is a fraction that the parser cannot represent, such as 0.0021.
    /// - A `minimum` is greater than 9.2e18, or a `maximum` less than -9.2e18.
    /// - It would take more than about a second to compile. Expensive in large numbers: properties
    ///   of one object (thousands, or hundreds with `minProperties` or `maxProperties`),
    ///   alternatives and values within `allOf`, `$ref` with siblings, several patterns for one
    ///   string, `multipleOf`, `patternProperties`.
    pub fn json_schema(schema: &str) -> Result<Self, Error> {
        fn fail<T>(message: String) -> Result<T, Error> {
            Err(Error::Grammar { message })
        }
        if schema.len() > MAX_SCHEMA {
            return fail(format!("it has {} bytes, more than {MAX_SCHEMA}", schema.len()));
        }
        match serde_json::from_str::<Value>(schema) {
            // The settings could make llguidance lenient, for example.
            Ok(Value::Object(fields)) if fields.contains_key(OPTIONS) => {
                fail(format!("'{OPTIONS}' is not supported"))
            }
            Ok(mut value @ Value::Object(_)) => {
                cost::check(&value).or_else(fail)?;
                let is_narrowed = bounds::narrow(&mut value).or_else(fail)?;
                match alternatives::separate(&mut value) {
                    Ok(is_separated) if is_separated || is_narrowed => {
                        Ok(Grammar { schema: value.to_string() })
                    }
                    Ok(_) => Ok(Grammar { schema: schema.into() }),
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

    /// Any JSON object.
    pub fn json_object() -> Self {
        Grammar { schema: r#"{"type": "object"}"#.into() }
    }

    /// Compiles the grammar for a vocabulary of single bytes, and computes which of them may come
    /// first.
    ///
    /// A generation compiles the grammar in the same way, for the model's vocabulary. Its time and
    /// memory are limited only as far as [`json_schema`](Self::json_schema) estimates them. A
    /// program that accepts schemas of strangers can call this function in another process first,
    /// whose time and memory the operating system limits.
    ///
    /// # Errors
    /// The compiler rejects the schema, or it takes more than 60 seconds.
    pub fn compile_alone(&self) -> Result<(), Error> {
        let bytes = (0..NO_TEXT).map(|byte| vec![byte]).collect();
        if let Some(mut constraint) = Vocabulary::of_texts(bytes)?.constraint(self, &|| false)? {
            constraint.mask(&mut [], &[], &|| false)?;
        }
        Ok(())
    }
}

/// A tokenizer's vocabulary for llguidance.
pub(crate) struct Vocabulary {
    parsers: Arc<ParserFactory>,
    gate: Gate,
    /// Virtual token that stands for all end-of-text tokens.
    end: u32,
}

impl Vocabulary {
    pub(crate) fn of(tokenizer: &Tokenizer) -> Result<Self, Error> {
        Vocabulary::of_texts(tokenizer.token_texts())
    }

    fn of_texts(mut words: Vec<Vec<u8>>) -> Result<Self, Error> {
        for word in &mut words {
            if word.first() == Some(&NO_TEXT) {
                word.clear();
            }
        }
        let too_many = |_| Error::Grammar { message: "the vocabulary has too many tokens".into() };
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

    /// Compiles a grammar. `None` if `is_left` aborted it.
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

/// A compiled grammar, with its state after the text so far.
pub(crate) struct Constraint {
    worker: Worker,
    end: u32,
}

impl Constraint {
    /// Masks the logits of forbidden tokens. `ends` are the end-of-text tokens. Returns false if
    /// `is_left` aborted it.
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

    /// Advances by a sampled token. Returns whether more tokens may follow.
    pub(crate) fn accept(&mut self, token: u32) -> Result<bool, Error> {
        self.ask(move |matcher| {
            matcher.consume_token(token).map_err(|error| refuse(&error))?;
            Ok(!matcher.is_stopped())
        })
    }

    /// Whether the text so far is a complete match.
    pub(crate) fn fits(&mut self) -> bool {
        self.ask(|matcher| Ok(matcher.is_accepting().unwrap_or(false))).unwrap_or(false)
    }

    /// Restarts with a text, which need not end at a token boundary.
    pub(crate) fn follow(&mut self, text: &str) -> Result<(), Error> {
        let text = text.to_owned();
        self.ask(move |matcher| {
            let tokens = matcher.tok_env().map_err(|error| refuse(&error))?;
            let tokens = tokens.tok_trie().greedy_tokenize(text.as_bytes());
            matcher.reset().map_err(|error| refuse(&error))?;
            matcher.consume_tokens(&tokens).map_err(|error| refuse(&error))
        })
    }

    /// Runs short work: a token is a few bytes, and the text is at most the generated one.
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

/// Message of llguidance without the source location. Replaces the name of an enum variant,
/// messages that contain a whole regular expression, and a message that recommends a setting which
/// this crate does not offer (it would treat any `oneOf` as `anyOf`).
fn readable(message: &str) -> String {
    if message.starts_with("NoExtensionBias") {
        return "no text can match the schema: a reference may lead back to itself".into();
    }
    if message.contains("coerce_one_of") {
        return "two alternatives of 'oneOf' could match at once: they must have different types, \
                or differ by 'const' or 'enum' in a required property; write 'anyOf' if several \
                may match"
            .into();
    }
    if message.contains("Failed to generate regex for") {
        return "the range of a number is not supported: expected at least one bound within ±1e18"
            .into();
    }
    if message.contains("Unable to determine if regex is empty") {
        return "the 'pattern', 'format', 'minLength' and 'maxLength' of a string are too complex \
                together: leave one of them out, or write a simpler pattern"
            .into();
    }
    if message.contains("too many expressions") || message.contains("too many states") {
        return format!(
            "the strings and numbers of the schema exceed the lexer's limits ({MAX_STATES} states, \
             and a number of expressions per step): write simpler patterns, and smaller lengths \
             and 'multipleOf'"
        );
    }
    if message.contains("symbols.len()") {
        return "the schema has too many parts for the compiler: more than 65,000 symbols".into();
    }
    let told = message.split("\n<backtrace>").next().unwrap_or_default();
    told.trim_end().chars().take(MAX_MESSAGE).collect()
}
