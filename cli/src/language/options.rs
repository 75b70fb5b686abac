//! Command-line options of language models.

use super::images::TilingOptions;
use crate::arguments::ModelOptions;
use crate::failure::Failure;
use clap::Args;
use std::path::PathBuf;
use torchlet::llm::{GenerationConfig, Overrides, Sampling, TemplateArguments};

/// The program to run.
#[derive(Debug, Clone, Args)]
pub(crate) struct ProgramOptions {
    /// The program (.pte)
    pub(crate) model: PathBuf,
    /// Maximum tokens in the context; overrides the program's metadata
    #[arg(long, value_name = "N")]
    pub(crate) max_context_len: Option<usize>,
    #[command(flatten)]
    pub(crate) model_options: ModelOptions,
}

/// Sharded programs and chunked prompts.
#[derive(Debug, Clone, Args)]
pub(crate) struct PieceOptions {
    /// Next shard of a model that was split into several programs (repeatable)
    #[arg(long, value_name = "FILE")]
    pub(crate) shard: Vec<PathBuf>,
    /// Maximum prompt tokens per run; overrides the program's metadata. Stop requests and
    /// disconnected clients are noticed between runs
    #[arg(long, value_name = "N")]
    pub(crate) max_seq_len: Option<usize>,
}

/// Tokenizer and special tokens.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TokenOptions {
    /// The tokenizer: tokenizer.json, SentencePiece, tiktoken, Tekken or llama2.c [default: a file
    /// beside the model]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// The BOS token; overrides the program's metadata
    #[arg(long, value_name = "ID")]
    pub(crate) bos_id: Option<u32>,
    /// An EOS token; overrides the program's metadata (repeatable)
    #[arg(long, value_name = "ID")]
    pub(crate) eos_id: Vec<u32>,
}

/// A language model and its tokenizer.
#[derive(Debug, Args)]
pub(crate) struct LanguageOptions {
    #[command(flatten)]
    pub(crate) program: ProgramOptions,
    #[command(flatten)]
    pub(crate) pieces: PieceOptions,
    #[command(flatten)]
    pub(crate) tokens: TokenOptions,
}

/// Chat template options.
#[derive(Debug, Args)]
pub(crate) struct TemplateOptions {
    /// A Jinja template, or a tokenizer_config.json with one [default: chat_template.jinja or
    /// tokenizer_config.json beside the tokenizer, else Llama 3's or ChatML]
    #[arg(long, value_name = "FILE")]
    pub(crate) chat_template: Option<PathBuf>,
    /// Set a template variable, such as enable_thinking=false (repeatable)
    #[arg(long, value_name = "NAME=JSON", value_parser = template_argument)]
    pub(crate) template_argument: Vec<(String, String)>,
    /// Parse control tokens in message text, as transformers does. A message can then forge
    /// messages of other roles
    #[arg(long)]
    pub(crate) control_tokens_in_messages: bool,
}

impl TemplateOptions {
    /// Returns the template's additional variables.
    pub(crate) fn arguments(&self) -> Result<TemplateArguments, Failure> {
        let mut arguments = TemplateArguments::default();
        for (name, json) in &self.template_argument {
            arguments.set(name, json)?;
        }
        Ok(arguments)
    }
}

/// Sampling and generation options.
#[derive(Debug, Args)]
pub(crate) struct SamplingOptions {
    /// Maximum tokens to generate [default: limited by the context only]
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) max_new_tokens: Option<usize>,
    /// Maximum tokens in the context, including the prompt
    #[arg(long, value_name = "N")]
    pub(crate) seq_len: Option<usize>,
    /// Sampling temperature; 0 is greedy
    #[arg(long, value_name = "T", default_value_t = 0.8)]
    pub(crate) temperature: f32,
    /// Sample from the K most likely tokens; 0 disables the limit
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub(crate) top_k: usize,
    /// Sample from the most likely tokens with this total probability (nucleus sampling)
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    pub(crate) top_p: f32,
    /// Sample from tokens with at least this fraction of the highest probability
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub(crate) min_p: f32,
    /// Penalty for tokens that are already in the context, if above 1
    #[arg(long, value_name = "R", default_value_t = 1.0)]
    pub(crate) repetition_penalty: f32,
    /// Penalty per previous occurrence of a token in the generated text; negative values encourage
    /// tokens
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_hyphen_values = true)]
    pub(crate) frequency_penalty: f32,
    /// Penalty for tokens that occur in the generated text; negative values encourage tokens
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_hyphen_values = true)]
    pub(crate) presence_penalty: f32,
    /// Add a bias to a token's logit (repeatable)
    #[arg(long, value_name = "ID=BIAS", value_parser = bias, allow_hyphen_values = true)]
    pub(crate) logit_bias: Vec<(u32, f32)>,
    /// Random seed, for reproducible text [default: random]
    #[arg(long, value_name = "SEED")]
    pub(crate) seed: Option<u64>,
    /// Stop at this text (repeatable)
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
    /// Lookahead decoding: guess up to N tokens from earlier repetitions in the text, and verify
    /// them in one run
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) lookahead: usize,
    /// Constrain the output to JSON that matches this schema: a file, or the schema itself
    #[cfg(feature = "grammar")]
    #[arg(long, value_name = "SCHEMA")]
    pub(crate) json_schema: Option<String>,
    /// Show statistics on standard error: as text, or as ExecuTorch's `PyTorchObserver` line
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    pub(crate) stats: Option<StatsForm>,
}

/// Format of statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StatsForm {
    /// Text
    Text,
    /// `PyTorchObserver {...}`
    Json,
}

impl TokenOptions {
    /// Returns the overrides of token metadata.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            bos_id: self.bos_id,
            eos_ids: (!self.eos_id.is_empty()).then(|| self.eos_id.clone()),
            ..Overrides::default()
        }
    }
}

impl LanguageOptions {
    /// Returns the overrides of the program's metadata.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            max_context_len: self.program.max_context_len,
            max_seq_len: self.pieces.max_seq_len,
            ..self.tokens.overrides()
        }
    }
}

pub(super) fn template_argument(text: &str) -> Result<(String, String), String> {
    let (name, json) = text.split_once('=').ok_or("expected NAME=JSON")?;
    let refuse = |error| format!("{error}; quote strings, as in {name}='\"...\"'");
    TemplateArguments::default().set(name, json).map_err(refuse)?;
    Ok((name.into(), json.into()))
}

fn bias(text: &str) -> Result<(u32, f32), String> {
    let (token, bias) = text.split_once('=').ok_or("expected TOKEN=BIAS")?;
    let token = token.parse().map_err(|error| format!("the token '{token}': {error}"))?;
    Ok((token, bias.parse().map_err(|error| format!("the bias '{bias}': {error}"))?))
}

impl SamplingOptions {
    /// Compiles the JSON schema, if given.
    #[cfg(feature = "grammar")]
    fn grammar(&self) -> Result<Option<torchlet::llm::Grammar>, Failure> {
        let Some(schema) = &self.json_schema else { return Ok(None) };
        let text = match schema.trim_start().starts_with('{') {
            true => schema.clone(),
            false => crate::budget::read_text(schema.as_ref())?,
        };
        Ok(Some(torchlet::llm::Grammar::json_schema(&text)?))
    }

    pub(crate) fn config(&self) -> Result<GenerationConfig, Failure> {
        Ok(GenerationConfig {
            max_new_tokens: self.max_new_tokens,
            seq_len: self.seq_len,
            sampling: Sampling {
                temperature: self.temperature,
                top_k: self.top_k,
                top_p: self.top_p,
                min_p: self.min_p,
                repetition_penalty: self.repetition_penalty,
                frequency_penalty: self.frequency_penalty,
                presence_penalty: self.presence_penalty,
                logit_bias: self.logit_bias.clone(),
                seed: self.seed,
                ..Sampling::default()
            },
            stop: self.stop.clone(),
            lookahead: self.lookahead,
            #[cfg(feature = "grammar")]
            grammar: self.grammar()?,
            ..GenerationConfig::default()
        })
    }
}

#[derive(Debug, Args)]
pub(crate) struct GenerateArguments {
    #[command(flatten)]
    pub(crate) language: LanguageOptions,
    /// The text to continue [default: standard input]
    #[arg(long, short, value_name = "TEXT")]
    pub(crate) prompt: Option<String>,
    #[command(flatten)]
    pub(crate) sampling: SamplingOptions,
    /// An image for the next `<image>` in the prompt, or before the prompt if it has none
    /// (repeatable)
    #[arg(long, value_name = "FILE")]
    pub(crate) image: Vec<PathBuf>,
    /// Subtract this mean from the image's values (0 to 1): one value, or one per channel
    #[arg(
        long,
        value_name = "M,...",
        value_delimiter = ',',
        allow_hyphen_values = true,
        requires = "image"
    )]
    pub(crate) mean: Vec<f32>,
    /// Then divide by this standard deviation: one value, or one per channel
    #[arg(long, value_name = "S,...", value_delimiter = ',', requires = "image")]
    pub(crate) std: Vec<f32>,
    #[command(flatten)]
    pub(crate) tiling: TilingOptions,
    /// An audio file (.wav, .flac, .mp3) for the next `<audio>` in the prompt, or before the prompt
    /// if it has none (repeatable)
    #[arg(long, value_name = "FILE")]
    pub(crate) audio: Vec<PathBuf>,
    /// Number of BOS tokens before the prompt [default: 1 if the model has a BOS token]
    #[arg(long, value_name = "N")]
    pub(crate) num_bos: Option<usize>,
    /// Continue after EOS tokens
    #[arg(long)]
    pub(crate) ignore_eos: bool,
    /// Also print the prompt
    #[arg(long)]
    pub(crate) echo: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ChatArguments {
    #[command(flatten)]
    pub(crate) language: LanguageOptions,
    #[command(flatten)]
    pub(crate) template: TemplateOptions,
    /// The system prompt
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    #[command(flatten)]
    pub(crate) sampling: SamplingOptions,
}

#[derive(Debug, Args)]
pub(crate) struct TranscribeArguments {
    #[command(flatten)]
    pub(crate) program: ProgramOptions,
    #[command(flatten)]
    pub(crate) tokens: TokenOptions,
    /// The audio file: .wav, .flac or .mp3
    pub(crate) sound: PathBuf,
    /// The spoken language, such as en [default: detected, if the vocabulary has language tokens]
    #[arg(long = "language", value_name = "NAME")]
    pub(crate) spoken: Option<String>,
    /// Translate to English
    #[arg(long)]
    pub(crate) translate: bool,
    /// Print timestamps: one line per segment, at the end
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// Hugging Face's generation_config.json with the tokens to suppress [default: the file beside
    /// the tokenizer]
    #[arg(long, value_name = "FILE")]
    pub(crate) generation_config: Option<PathBuf>,
    /// A token to suppress (repeatable)
    #[arg(long, value_name = "ID")]
    pub(crate) suppress_id: Vec<u32>,
    /// A token to start decoding with, instead of Whisper's (repeatable)
    #[arg(long, value_name = "ID", conflicts_with_all = ["spoken", "translate"])]
    pub(crate) start_id: Vec<u32>,
    /// Maximum tokens per audio segment [default: limited by the context only]
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) max_new_tokens: Option<usize>,
    /// Sampling temperature; 0 is greedy
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    pub(crate) temperature: f32,
    /// Show statistics on standard error: as text, or as ExecuTorch's `PyTorchObserver` line
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    pub(crate) stats: Option<StatsForm>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchLlmArguments {
    #[command(flatten)]
    pub(crate) program: ProgramOptions,
    #[command(flatten)]
    pub(crate) pieces: PieceOptions,
    /// Prompt lengths in tokens
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,16,64,128")]
    pub(crate) prompt_tokens: Vec<usize>,
    /// Number of tokens to generate after each prompt
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) tokens: usize,
    /// Number of rounds; the fastest counts
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Also measure these numbers of sessions that share runs, each with a prompt of the first
    /// length
    #[arg(long, value_name = "N", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) sequences: Vec<u16>,
    /// Also measure the memory read bandwidth with the same number of threads
    #[arg(long)]
    pub(crate) bandwidth: bool,
    /// Also profile a prompt of a new length, and a token, by operator. Profiling costs time
    /// itself, about 1 µs per operator on GPUs
    #[arg(long)]
    pub(crate) parts: bool,
    /// Print one JSON object per prompt length, each on a line
    #[arg(long)]
    pub(crate) json: bool,
}
