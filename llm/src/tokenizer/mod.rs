//! Text to tokens and back.
//!
//! The formats of Hugging Face (`tokenizer.json`), SentencePiece, tiktoken and Tekken are those of
//! the crate `kitoken`; llama2.c's is ours (`llama2c.rs`). Files are hostile: how large they may be
//! is bounded, and should the crate panic at one, that is an error here.

mod added;
mod bytes;
mod charsmap;
mod growth;
mod llama2c;
mod pairs;
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

/// Larger files are no tokenizers: those of the largest vocabularies have 40 MB.
const MAX_BYTES: u64 = 128 << 20;
/// What replaces parts of texts may make a text this many times as long. That of files in use is
/// tens at most, as it is counted here.
const MAX_GROWTH: usize = 4096;
/// The longest text, once parts of it have been replaced.
const MAX_TEXT: usize = 1 << 30;

/// How Llama 3 cuts text before it merges: what tiktoken files leave to whoever reads them.
const LLAMA3_PIECES: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Llama 3's special tokens, in the order in which they follow the others; `None` are reserved
/// ones.
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

/// What kind of file a tokenizer came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenizerFormat {
    /// Hugging Face's `tokenizer.json`.
    HuggingFace,
    /// A SentencePiece model.
    SentencePiece,
    /// Lines of tokens in base 64 and their ranks; cut and with special tokens as Llama 3's, unless
    /// the number of tokens is another known one's.
    Tiktoken,
    /// Mistral's `tekken.json`.
    Tekken,
    /// llama2.c's `tokenizer.bin`, with or without the header of ExecuTorch.
    Llama2c,
}

/// Makes tokens of text, and text of tokens.
pub struct Tokenizer {
    format: TokenizerFormat,
    model: Model,
    special: BTreeMap<String, u32>,
    bos: Option<u32>,
    eos: Option<u32>,
    size: usize,
    /// How many times as long a text may become before it is cut.
    growth: usize,
}

enum Model {
    Kitoken(Box<Pipeline>),
    Llama2c(Llama2c),
    Empty,
}

impl Tokenizer {
    /// Opens a tokenizer of any of the [formats](TokenizerFormat), found out by its contents.
    ///
    /// # Errors
    /// The file cannot be read, or is not a tokenizer.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let fail = |source| Error::Read { path: path.into(), source };
        let size = std::fs::metadata(path).map_err(fail)?.len();
        if size > MAX_BYTES {
            let message = format!("'{}' has {size} bytes, more than {MAX_BYTES}", path.display());
            return Err(Error::tokenizer(message));
        }
        let made = Tokenizer::from_bytes(&std::fs::read(path).map_err(fail)?);
        made.map_err(|error| match error {
            Error::Tokenizer { message } => {
                Error::tokenizer(format!("'{}': {message}", path.display()))
            }
            other => other,
        })
    }

    /// A tokenizer in memory.
    ///
    /// # Errors
    /// The bytes are not those of a tokenizer.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let format = TokenizerFormat::of(bytes).ok_or_else(|| {
            Error::tokenizer(
                "the file is none of tokenizer.json, a SentencePiece model, tiktoken's, tekken.json, llama2.c's tokenizer.bin",
            )
        })?;
        if format == TokenizerFormat::Llama2c {
            let model = Llama2c::read(bytes).map_err(Error::tokenizer)?;
            let (bos, eos, size) = (Some(model.bos), Some(model.eos), model.len());
            let special = BTreeMap::from([("<s>".into(), model.bos), ("</s>".into(), model.eos)]);
            let model = Model::Llama2c(model);
            return Ok(Tokenizer { format, model, special, bos, eos, size, growth: 1 });
        }
        // The reader of these files has places where it panics at a damaged one, an empty
        // vocabulary for example.
        let made = catch_unwind(AssertUnwindSafe(|| Tokenizer::of_kitoken(format, bytes)));
        made.unwrap_or_else(|_| Err(Error::tokenizer(format!("the {format:?} file is damaged"))))
    }

    /// A tokenizer that knows no token: for those who have tokens, and want some.
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
        // Others are looked through for added tokens when they were normalised.
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
            // What there is none of has the number -1, as padding of most.
            definition.specials.retain(|token| i32::try_from(token.id).is_ok());
        }
        replace_maps(format, &mut definition, &maps).map_err(Error::tokenizer)?;
        if format == TokenizerFormat::Tiktoken {
            like_llama3(&mut definition).map_err(|error| fail(&error))?;
        }
        if format == TokenizerFormat::Tekken {
            name_specials(&mut definition, bytes);
        }
        // How long a prompt may be is the program's business; those of some training runs are cut
        // or filled up.
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
            // Of unknown characters in a row, there is one; and it is the space in front that a
            // text loses, also where they are behind words.
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
        // A name of a byte has two bytes at most.
        bytes_of.steps.iter().for_each(|_| growth = growth.saturating_mul(2));
        let longest = definition.model.vocab().iter().map(|token| token.bytes.len()).max();
        let is_long = behind.saturating_mul(longest.unwrap_or(0)) > MAX_TEXT;
        if growth.max(behind) > MAX_GROWTH || is_long {
            let factor = growth.max(behind);
            let message = format!("its replacements make texts up to {factor} times as long");
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
            let message = format!("it has a token {}, beyond {}", size - 1, rewrite::MAX_TOKENS);
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

    /// What kind of file it came from.
    pub fn format(&self) -> TokenizerFormat {
        self.format
    }

    /// One more than the largest token.
    pub fn vocab_size(&self) -> usize {
        self.size
    }

    /// The token in front of a text, by its usual names.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token behind a text, by its usual names.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// A special token, by its name.
    pub fn special(&self, name: &str) -> Option<u32> {
        self.special.get(name).copied()
    }

    /// The name of a special token; such a token has no text.
    pub fn special_name(&self, token: u32) -> Option<&str> {
        self.specials().find(|(_, other)| *other == token).map(|(name, _)| name)
    }

    /// All special tokens, with their names.
    pub(crate) fn specials(&self) -> impl Iterator<Item = (&str, u32)> {
        self.special.iter().map(|(name, token)| (name.as_str(), *token))
    }

    /// The tokens of a text, in which names of special tokens are these. None is added.
    ///
    /// # Errors
    /// A part of the text has no token.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        self.encode_with(text, true, None)
    }

    /// The tokens of a text, in which names of special tokens are text as any other, as it should
    /// be where somebody else wrote it.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>, Error> {
        self.encode_with(text, false, None)
    }

    /// A character that is in none of the texts and in no name of a token that is looked for.
    pub(crate) fn unused_character<'t>(
        &'t self,
        texts: impl Iterator<Item = &'t str>,
    ) -> Option<char> {
        // Noncharacters, which no text should have, and those for private use.
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

    /// A text in which a mark divides the names of special tokens; `None` if it has none.
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
            true => Err(Error::tokenizer(format!("a text of {} bytes is too long", text.len()))),
            false => Ok(()),
        }
    }

    /// The same as [`encode`](Self::encode), where names that a mark [divides](Self::divide) are
    /// text, without the mark.
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
            Model::Empty => Err(Error::tokenizer("there is none, and text needs one")),
            Model::Llama2c(model) => Ok(model.encode(text)),
            Model::Kitoken(pipeline) => {
                catch_unwind(AssertUnwindSafe(|| pipeline.encode(text, specials, mark)))
                    .map_err(|_| {
                        Error::tokenizer("it cannot encode: its file is damaged, or one of its patterns gives up on a text this long")
                    })?
                    .map_err(|error| Error::tokenizer(error.to_string()))
            }
        }
    }

    /// The bytes of tokens. Special tokens, and those that the tokenizer does not know, have none.
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

    /// What a token adds to a text behind others, which may be a part of a character: nothing,
    /// where it is special.
    pub fn token_bytes(&self, token: u32) -> Vec<u8> {
        let (behind, before) = self.beginning();
        self.added(&behind, &before, token)
    }

    /// The same of each token.
    #[cfg(feature = "grammar")]
    pub(crate) fn token_texts(&self) -> Vec<Vec<u8>> {
        let (behind, before) = self.beginning();
        let tokens = 0..u32::try_from(self.size).unwrap_or(u32::MAX);
        tokens.map(|token| self.added(&behind, &before, token)).collect()
    }

    /// Something in front, as tokens and as text: spaces at the beginning of a text are left out.
    fn beginning(&self) -> (Vec<u32>, Vec<u8>) {
        let behind = self.encode_plain("a").unwrap_or_default();
        let before = self.decode_bytes(&behind);
        (behind, before)
    }

    fn added(&self, behind: &[u32], before: &[u8], token: u32) -> Vec<u8> {
        let both = self.decode_bytes(&[behind, &[token]].concat());
        both.strip_prefix(before).unwrap_or_default().to_vec()
    }

    /// The text of tokens; what is no text is replaced. [`TextStream`] does this token by token.
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
    /// What a file is, by how it begins.
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
            // The first field of a SentencePiece model: a piece, with its length.
            _ if bytes.first() == Some(&0x0a) => Some(TokenizerFormat::SentencePiece),
            _ => None,
        }
    }
}

/// Whether there is such a key in JSON: tokens may have the same text.
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

/// Gives a tokenizer its maps of characters whole, as they were looked at.
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
        // SentencePiece follows the map, and its name says only where that came from: what goes by
        // the name is of another Unicode's rules.
        use Normalization::{CaseFold, NMT, Unicode};
        let is_named =
            |step: &Normalization| matches!(step, Unicode { .. } | NMT | CaseFold { .. });
        let at = steps.iter().position(is_named).unwrap_or(0);
        steps.retain(|step| !is_named(step));
        steps.insert(at, Normalization::CharsMap { map: read(map)? });
    }
    for step in steps {
        let Normalization::CharsMap { map } = step else { continue };
        let found = whole.next().ok_or("it has a map of characters in a place of its own")?;
        *map = read(found)?;
    }
    match whole.next() {
        None => Ok(()),
        Some(_) => Err("it has a map of characters in a place of its own".into()),
    }
}

/// Gives special tokens of a Tekken file the names that newer ones have for them, in place of those
/// of the first.
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

/// Gives a tiktoken file how Llama 3 cuts text and its special tokens, unless it is one that others
/// are known for by its size.
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
