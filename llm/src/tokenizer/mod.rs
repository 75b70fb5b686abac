//! Tokenizers: encoding of text, and decoding of tokens.
//!
//! The crate `kitoken` reads the formats of Hugging Face (`tokenizer.json`), SentencePiece,
//! tiktoken and Tekken; `llama2c.rs` reads llama2.c's. Files are untrusted: sizes are limited, and
//! panics in `kitoken` are caught and become errors.

mod added;
mod bytes;
mod charsmap;
mod growth;
mod llama2c;
mod merges;
mod pipeline;
mod rewrite;
mod scripts;
mod stream;
mod unigram;

pub use stream::TextStream;

use crate::error::Error;
use charsmap::CharacterMap;
use kitoken::convert::{
    convert_sentencepiece, convert_tekken, convert_tiktoken, convert_tokenizers,
};
use kitoken::{
    CharsMap, Decoding, Definition, Normalization, Processing, Regex, SpecialToken,
    SpecialTokenKind, Split, SplitBehavior,
};
use llama2c::Llama2c;
use pipeline::Pipeline;
use rewrite::Bytes;
use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use unigram::{Kind, Unigrams};

/// Maximum file size; the largest vocabularies have 40 MB.
const MAX_BYTES: u64 = 128 << 20;
/// Maximum factor by which replacements may lengthen a text. Real files need tens at most, by the
/// upper bound computed here.
const MAX_GROWTH: usize = 4096;
/// Maximum length of a text in bytes after replacements.
const MAX_TEXT: usize = 1 << 30;

/// Llama 3's pre-tokenization pattern, which tiktoken files do not contain.
const LLAMA3_PIECES: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Llama 3's special tokens, in vocabulary order after all others. `None` stands for reserved
/// tokens.
const LLAMA3_SPECIAL: [Option<&str>; 11] = [
    Some("<|begin_of_text|>"),
    Some("<|end_of_text|>"),
    None,
    None,
    Some("<|finetune_right_pad_id|>"),
    None,
    Some("<|start_header_id|>"),
    Some("<|end_header_id|>"),
    Some("<|eom_id|>"),
    Some("<|eot_id|>"),
    Some("<|python_tag|>"),
];
const LLAMA3_SPECIAL_COUNT: usize = 256;

/// File format of a tokenizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenizerFormat {
    /// Hugging Face's `tokenizer.json`.
    HuggingFace,
    /// A SentencePiece model.
    SentencePiece,
    /// Lines of base64 tokens with their ranks. Pre-tokenization and special tokens are those of
    /// Llama 3, unless the number of tokens identifies another known vocabulary.
    Tiktoken,
    /// Mistral's `tekken.json`.
    Tekken,
    /// llama2.c's `tokenizer.bin`, with or without ExecuTorch's header.
    Llama2c,
}

/// Encodes text to tokens, and decodes tokens to text.
pub struct Tokenizer {
    format: TokenizerFormat,
    model: Model,
    special: BTreeMap<String, u32>,
    bos: Option<u32>,
    eos: Option<u32>,
    size: usize,
    /// Maximum factor by which normalization lengthens a text.
    growth: usize,
}

enum Model {
    Kitoken(Box<Pipeline>),
    Llama2c(Llama2c),
    Empty,
}

impl Tokenizer {
    /// Opens a tokenizer in any [format](TokenizerFormat), which is detected.
    ///
    /// # Errors
    /// The file cannot be read, or is not a tokenizer.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let fail = |source| Error::Read { path: path.into(), source };
        let bytes = torchlet_cache::read_at_most(path, MAX_BYTES).map_err(fail)?;
        let made = Tokenizer::from_bytes(&bytes);
        made.map_err(|error| match error {
            Error::Tokenizer { message } => {
                Error::tokenizer(format!("'{}': {message}", path.display()))
            }
            other => other,
        })
    }

    /// Parses a tokenizer in any [format](TokenizerFormat), which is detected.
    ///
    /// # Errors
    /// The bytes are not a tokenizer.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let format = TokenizerFormat::of(bytes).ok_or_else(|| {
            Error::tokenizer(
                "unknown format; expected tokenizer.json, a SentencePiece model, a tiktoken file, \
                 tekken.json, or llama2.c's tokenizer.bin",
            )
        })?;
        if format == TokenizerFormat::Llama2c {
            let model = Llama2c::read(bytes).map_err(Error::tokenizer)?;
            let (bos, eos, size) = (Some(model.bos), Some(model.eos), model.len());
            let special = BTreeMap::from([("<s>".into(), model.bos), ("</s>".into(), model.eos)]);
            let model = Model::Llama2c(model);
            return Ok(Tokenizer { format, model, special, bos, eos, size, growth: 1 });
        }
        // `kitoken` panics on some damaged files, for example with an empty vocabulary.
        let made = catch_unwind(AssertUnwindSafe(|| Tokenizer::of_kitoken(format, bytes)));
        made.unwrap_or_else(|_| Err(Error::tokenizer(format!("the {format:?} file is damaged"))))
    }

    /// A tokenizer without vocabulary, for callers that provide and consume tokens.
    pub fn empty() -> Self {
        Tokenizer {
            format: TokenizerFormat::Tiktoken,
            model: Model::Empty,
            special: BTreeMap::new(),
            bos: None,
            eos: None,
            size: 0,
            growth: 1,
        }
    }

    fn of_kitoken(format: TokenizerFormat, bytes: &[u8]) -> Result<Self, Error> {
        let mut file = match format {
            TokenizerFormat::HuggingFace => serde_json::from_slice(bytes)
                .map_err(|error| Error::tokenizer(error.to_string()))?,
            _ => serde_json::Value::Null,
        };
        let maps = match format {
            TokenizerFormat::HuggingFace => charsmap::of_json(&file),
            TokenizerFormat::SentencePiece => charsmap::of_sentencepiece(bytes),
            _ => Ok(Vec::new()),
        };
        let maps = maps.map_err(Error::tokenizer)?;
        let mut of_map = 1;
        for map in &maps {
            of_map = charsmap::check(map).map_err(Error::tokenizer)?.max(of_map);
        }
        // Formats other than `tokenizer.json` match added tokens in normalized text.
        let (mut before, mut bytes_of, mut scores) = (usize::MAX, Bytes::default(), Vec::new());
        let kind = match format {
            TokenizerFormat::SentencePiece => Kind::of(bytes).map_err(Error::tokenizer)?,
            _ => Kind::Pairs,
        };
        let mut unigrams = Unigrams::of_json(&file);
        let definition = match format {
            TokenizerFormat::HuggingFace => {
                let rewritten = rewrite::of(&mut file)
                    .map_err(|error| Error::tokenizer(format!("{format:?}: {error}")))?;
                (before, scores) = (rewritten.normalization, rewritten.scores);
                bytes_of = rewritten.bytes;
                convert_tokenizers(rewritten.text)
            }
            TokenizerFormat::SentencePiece => match kind {
                Kind::Pairs => convert_sentencepiece(bytes),
                _ => convert_sentencepiece(unigram::as_unigrams(bytes)),
            },
            TokenizerFormat::Tekken => convert_tekken(bytes),
            _ => convert_tiktoken(bytes),
        };
        let fail = |error: &dyn std::fmt::Display| Error::tokenizer(format!("{format:?}: {error}"));
        let mut definition = definition.map_err(|error| fail(&error))?;
        if let kitoken::Model::Unigram { vocab, scores: ranks } = &mut definition.model {
            for (token, rank) in vocab.iter().zip(ranks) {
                *rank = scores.get(token.id as usize).copied().unwrap_or(*rank);
            }
        }
        if format == TokenizerFormat::SentencePiece {
            // SentencePiece uses -1 for absent special tokens, often for padding.
            definition.specials.retain(|token| i32::try_from(token.id).is_ok());
        }
        replace_maps(format, &mut definition, &maps).map_err(Error::tokenizer)?;
        if format == TokenizerFormat::Tiktoken {
            like_llama3(&mut definition).map_err(|error| fail(&error))?;
        }
        if format == TokenizerFormat::Tekken {
            name_specials(&mut definition, bytes);
        }
        // The program limits the prompt length; padding and truncation are settings of training
        // runs.
        let is_length = |step: &Processing| {
            matches!(step, Processing::Pad { .. } | Processing::Truncate { .. })
        };
        definition.config.processing.retain(|step| !is_length(step));
        if definition.model.vocab().is_empty() {
            return Err(Error::tokenizer("it has no tokens"));
        }
        let map = match (format, maps.iter().find(|map| !map.is_empty())) {
            (TokenizerFormat::SentencePiece, Some(map)) => {
                let own = definition.specials.iter();
                let own = own.filter(|token| token.kind == SpecialTokenKind::Priority);
                let own: Vec<&str> =
                    own.filter_map(|token| std::str::from_utf8(&token.bytes).ok()).collect();
                Some(CharacterMap::new(map, &own).map_err(Error::tokenizer)?)
            }
            _ => None,
        };
        if format == TokenizerFormat::SentencePiece {
            let unknown = |token: &&SpecialToken| token.kind == SpecialTokenKind::Unknown;
            let unknown = definition.specials.iter().find(unknown).map(|token| token.id);
            // Consecutive unknown characters become a single token. Only the leading space of a
            // text is removed, even if spaces are suffixes of words.
            definition
                .config
                .processing
                .retain(|step| !matches!(step, Processing::Collapse { .. }));
            let collapse = unknown.map(|id| Processing::Collapse { id });
            definition.config.processing.extend(collapse);
            for step in &mut definition.config.decoding {
                if let Decoding::Strip { left, right, .. } = step {
                    (*left, *right) = (1, 0);
                }
            }
            if kind != Kind::Pairs {
                let read = Unigrams::of_sentencepiece(bytes, kind, unknown);
                unigrams = Some(read.map_err(Error::tokenizer)?);
            }
            if unigrams.is_some() || pipeline::has_pieces_across_words(&definition.model) {
                definition.config.split.clear();
            }
        }
        let (mut growth, behind) = growth::of(&definition, of_map);
        // The name of a byte has at most two bytes.
        bytes_of.steps.iter().for_each(|_| growth = growth.saturating_mul(2));
        let longest = definition.model.vocab().iter().map(|token| token.bytes.len()).max();
        let is_long = behind.saturating_mul(longest.unwrap_or(0)) > MAX_TEXT;
        if growth.max(behind) > MAX_GROWTH || is_long {
            let factor = growth.max(behind);
            let message = format!(
                "its replacements may lengthen texts {factor} times, the limit is {MAX_GROWTH}"
            );
            return Err(Error::tokenizer(message));
        }
        let special: BTreeMap<String, u32> = definition
            .specials
            .iter()
            .filter_map(|token| Some((String::from_utf8(token.bytes.clone()).ok()?, token.id)))
            .collect();
        let ids = definition.model.vocab().iter().map(|token| token.id);
        let ids = ids.chain(definition.specials.iter().map(|token| token.id));
        let size = ids.max().map_or(0, |id| (id as usize).saturating_add(1));
        if size > rewrite::MAX_TOKENS {
            let message =
                format!("it has the token {}, more than {}", size - 1, rewrite::MAX_TOKENS);
            return Err(Error::tokenizer(message));
        }
        let find = |names: &[&str]| names.iter().find_map(|name| special.get(*name).copied());
        let bos = find(&["<|begin_of_text|>", "<s>", "<bos>", "<|startoftext|>", "[CLS]"]);
        let eos =
            find(&["<|end_of_text|>", "</s>", "<eos>", "<|endoftext|>", "<|im_end|>", "[SEP]"]);
        let byte_tokens = match format {
            TokenizerFormat::HuggingFace | TokenizerFormat::SentencePiece => {
                unigram::byte_tokens(bytes, &file)
            }
            _ => Vec::new(),
        };
        let steps = (before, bytes_of);
        let pipeline = Pipeline::new(definition, steps, map, (unigrams, &byte_tokens), &file)
            .map_err(|error| fail(&error))?;
        Ok(Tokenizer {
            format,
            model: Model::Kitoken(Box::new(pipeline)),
            special,
            bos,
            eos,
            size,
            growth,
        })
    }

    /// File format of the tokenizer.
    pub fn format(&self) -> TokenizerFormat {
        self.format
    }

    /// Largest token plus one.
    pub fn vocab_size(&self) -> usize {
        self.size
    }

    /// Begin-of-text token, by its usual names.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// End-of-text token, by its usual names.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Special token with this name.
    pub fn special(&self, name: &str) -> Option<u32> {
        self.special.get(name).copied()
    }

    /// Name of a special token. Special tokens decode to no text.
    pub fn special_name(&self, token: u32) -> Option<&str> {
        self.specials().find(|(_, other)| *other == token).map(|(name, _)| name)
    }

    /// All special tokens with their names.
    pub(crate) fn specials(&self) -> impl Iterator<Item = (&str, u32)> {
        self.special.iter().map(|(name, token)| (name.as_str(), *token))
    }

    /// Encodes a text. Names of special tokens in the text become these tokens. No BOS or EOS is
    /// added.
    ///
    /// # Errors
    /// A part of the text has no token.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        self.encode_with(text, true, None)
    }

    /// Encodes a text in which names of special tokens are ordinary text. Use this for untrusted
    /// text.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>, Error> {
        self.encode_with(text, false, None)
    }

    /// A character that occurs in none of the texts and in no added token.
    pub(crate) fn unused_character<'t>(
        &'t self,
        texts: impl Iterator<Item = &'t str>,
    ) -> Option<char> {
        // Noncharacters, which should not occur in text, and private-use characters.
        let all = ['\u{fdd0}'..='\u{fdef}', '\u{e000}'..='\u{f8ff}', '\u{f0000}'..='\u{ffffd}'];
        let names = match &self.model {
            Model::Empty | Model::Llama2c(_) => None,
            Model::Kitoken(pipeline) => Some(pipeline.added_names()),
        };
        let mut used = HashSet::new();
        for text in texts.chain(names.into_iter().flatten()) {
            used.extend(text.chars().filter(|character| *character >= '\u{e000}'));
        }
        all.into_iter().flatten().find(|character| !used.contains(character))
    }

    /// Splits the names of special tokens in a text with a mark. `None` if it contains none.
    pub(crate) fn divide(&self, text: &str, mark: char) -> Result<Option<String>, Error> {
        match &self.model {
            Model::Empty | Model::Llama2c(_) => Ok(None),
            Model::Kitoken(pipeline) => {
                self.check_length(text)?;
                catch_unwind(AssertUnwindSafe(|| pipeline.divide(text, mark)))
                    .map_err(|_| Error::tokenizer("it cannot normalize: its file is damaged"))
            }
        }
    }

    fn check_length(&self, text: &str) -> Result<(), Error> {
        match text.len().saturating_mul(self.growth) > MAX_TEXT {
            true => Err(Error::tokenizer(format!(
                "a text of {} bytes is too long, the limit is {}",
                text.len(),
                MAX_TEXT / self.growth.max(1)
            ))),
            false => Ok(()),
        }
    }

    /// As [`encode`](Self::encode), except that names [split](Self::divide) with the mark are
    /// ordinary text. The mark is removed.
    pub(crate) fn encode_divided(&self, text: &str, mark: char) -> Result<Vec<u32>, Error> {
        self.encode_with(text, true, Some(mark))
    }

    fn encode_with(
        &self,
        text: &str,
        specials: bool,
        mark: Option<char>,
    ) -> Result<Vec<u32>, Error> {
        self.check_length(text)?;
        match &self.model {
            Model::Empty if text.is_empty() => Ok(Vec::new()),
            Model::Empty => Err(Error::tokenizer("no tokenizer is set, but text requires one")),
            Model::Llama2c(model) => Ok(model.encode(text)),
            Model::Kitoken(pipeline) => catch_unwind(AssertUnwindSafe(|| {
                pipeline.encode(text, specials, mark)
            }))
            .map_err(|_| {
                Error::tokenizer(
                    "it cannot encode: its file is damaged, or a pattern fails on such a long text",
                )
            })?
            .map_err(|error| Error::tokenizer(error.to_string())),
        }
    }

    /// Decodes tokens to bytes. Special and unknown tokens are skipped.
    pub fn decode_bytes(&self, tokens: &[u32]) -> Vec<u8> {
        match &self.model {
            Model::Empty => Vec::new(),
            Model::Llama2c(model) => model.decode(tokens),
            Model::Kitoken(pipeline) => {
                let decode = |tokens: &[u32]| {
                    catch_unwind(AssertUnwindSafe(|| pipeline.decode(tokens))).ok().flatten()
                };
                decode(tokens).unwrap_or_else(|| {
                    let known = |token: &u32| decode(std::slice::from_ref(token)).is_some();
                    let tokens: Vec<u32> = tokens.iter().copied().filter(known).collect();
                    decode(&tokens).unwrap_or_default()
                })
            }
        }
    }

    /// Bytes that a token adds after other text, possibly part of a character. Empty for special
    /// tokens.
    pub fn token_bytes(&self, token: u32) -> Vec<u8> {
        let (behind, before) = self.beginning();
        self.added(&behind, &before, token)
    }

    /// As [`token_bytes`](Self::token_bytes), for every token.
    #[cfg(feature = "grammar")]
    pub(crate) fn token_texts(&self) -> Vec<Vec<u8>> {
        let (behind, before) = self.beginning();
        let tokens = 0..u32::try_from(self.size).unwrap_or(u32::MAX);
        tokens.map(|token| self.added(&behind, &before, token)).collect()
    }

    /// A preceding text, as tokens and bytes: leading spaces of a text would be removed.
    fn beginning(&self) -> (Vec<u32>, Vec<u8>) {
        let behind = self.encode_plain("a").unwrap_or_default();
        let before = self.decode_bytes(&behind);
        (behind, before)
    }

    fn added(&self, behind: &[u32], before: &[u8], token: u32) -> Vec<u8> {
        let both = self.decode_bytes(&[behind, &[token]].concat());
        both.strip_prefix(before).unwrap_or_default().to_vec()
    }

    /// Decodes tokens to text, with replacement characters for invalid UTF-8. [`TextStream`]
    /// decodes incrementally.
    pub fn decode(&self, tokens: &[u32]) -> String {
        String::from_utf8_lossy(&self.decode_bytes(tokens)).into_owned()
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (format, size) = (&self.format, &self.size);
        f.debug_struct("Tokenizer")
            .field("format", format)
            .field("size", size)
            .finish_non_exhaustive()
    }
}

impl TokenizerFormat {
    /// Detects the format from the start of a file.
    fn of(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok();
        let begin = text.map(str::trim_start).and_then(|text| text.chars().next());
        match (text, begin) {
            (Some(text), Some('{')) => {
                Some(match !has_key(text, "\"model\"") && has_key(text, "\"token_bytes\"") {
                    true => TokenizerFormat::Tekken,
                    false => TokenizerFormat::HuggingFace,
                })
            }
            (Some(text), Some(_)) if is_tiktoken(text) => Some(TokenizerFormat::Tiktoken),
            _ if Llama2c::read(bytes).is_ok() => Some(TokenizerFormat::Llama2c),
            // The first field of a SentencePiece model is a piece with its length.
            _ if bytes.first() == Some(&0x0a) => Some(TokenizerFormat::SentencePiece),
            _ => None,
        }
    }
}

/// Whether a JSON text contains this key. Tokens may contain the same text, without a colon.
fn has_key(text: &str, key: &str) -> bool {
    text.match_indices(key).any(|(at, _)| text[at + key.len()..].trim_start().starts_with(':'))
}

fn is_tiktoken(text: &str) -> bool {
    let line = text.lines().next().unwrap_or_default();
    line.split_once(' ').is_some_and(|(token, rank)| {
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
        !token.is_empty() && token.bytes().all(is_base64) && rank.trim().parse::<u32>().is_ok()
    })
}

/// Replaces the character maps of a tokenizer with the complete, validated ones.
fn replace_maps(
    format: TokenizerFormat,
    definition: &mut Definition,
    maps: &[Vec<u8>],
) -> Result<(), String> {
    let mut whole = maps.iter().filter(|map| !map.is_empty()).peekable();
    let read =
        |map: &[u8]| CharsMap::try_from(charsmap::padded(map)).map_err(|error| error.to_string());
    let steps = &mut definition.config.normalization;
    let is_mapped = |step: &Normalization| matches!(step, Normalization::CharsMap { .. });
    if let (TokenizerFormat::SentencePiece, Some(map), false) =
        (format, whole.peek(), steps.iter().any(is_mapped))
    {
        // SentencePiece applies the map; the normalizer's name only tells its origin. `kitoken`'s
        // normalizer of that name uses another Unicode version.
        use Normalization::{CaseFold, NMT, Unicode};
        let is_named =
            |step: &Normalization| matches!(step, Unicode { .. } | NMT | CaseFold { .. });
        let at = steps.iter().position(is_named).unwrap_or(0);
        steps.retain(|step| !is_named(step));
        steps.insert(at, Normalization::CharsMap { map: read(map)? });
    }
    for step in steps {
        let Normalization::CharsMap { map } = step else { continue };
        let found = whole.next().ok_or("it has a character map in an unexpected position")?;
        *map = read(found)?;
    }
    match whole.next() {
        None => Ok(()),
        Some(_) => Err("it has a character map in an unexpected position".into()),
    }
}

/// Renames special tokens of a Tekken file to the names given in newer files.
fn name_specials(definition: &mut Definition, bytes: &[u8]) {
    let file: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
    let named = file["special_tokens"].as_array().into_iter().flatten();
    for (id, name) in
        named.filter_map(|token| Some((token["rank"].as_u64()?, token["token_str"].as_str()?)))
    {
        if let Some(token) = definition.specials.iter_mut().find(|token| u64::from(token.id) == id)
        {
            token.bytes = name.into();
        }
    }
    definition.specials.sort();
}

/// Sets Llama 3's pre-tokenization and special tokens for a tiktoken file, unless its size
/// identifies another known vocabulary.
fn like_llama3(definition: &mut Definition) -> Result<(), Box<dyn std::error::Error>> {
    let count = definition.model.vocab().len();
    // GPT-2 to GPT-4o, Kimi and Llama 4.
    if matches!(count, 50_000..=50_300 | 100_000..=100_300 | 163_584 | 199_990..=200_100) {
        return Ok(());
    }
    let pattern = Regex::new(LLAMA3_PIECES).map_err(|error| error.to_string())?.into();
    definition.config.split = vec![Split::Pattern { pattern, behavior: SplitBehavior::Isolate }];
    let mut reserved = 0;
    definition.specials = (0..LLAMA3_SPECIAL_COUNT)
        .map(|at| {
            let name = LLAMA3_SPECIAL.get(at).copied().flatten().map(String::from);
            let name = name.unwrap_or_else(|| {
                reserved += 1;
                format!("<|reserved_special_token_{}|>", reserved - 1)
            });
            SpecialToken {
                id: u32::try_from(count + at).unwrap_or(u32::MAX),
                bytes: name.into_bytes(),
                kind: SpecialTokenKind::Control,
                ident: None,
                score: at as f32,
                extract: true,
            }
        })
        .collect();
    Ok(())
}
