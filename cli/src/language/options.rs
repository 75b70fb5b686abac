//! The command line of language models.

use super::pictures::TilingOptions;
use crate::arguments::ModelOptions;
use crate::failure::Failure;
use clap::Args;
use std::path::PathBuf;
use torchlet::llm::{GenerationConfig, Overrides, Sampling, TemplateArguments};

/// The program that is run.
#[derive(Debug, Clone, Args)]
pub(crate) struct ProgramOptions {
    /// The program, .pte
    pub(crate) model: PathBuf,
    /// The most tokens in the context, in place of what the program says
    #[arg(long, value_name = "N")]
    pub(crate) max_context_len: Option<usize>,
    #[command(flatten)]
    pub(crate) model_options: ModelOptions,
}

/// In which pieces programs and prompts come.
#[derive(Debug, Clone, Args)]
pub(crate) struct PieceOptions {
    /// A program that goes on where the one before it ends, where a model was cut into several; may
    /// be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) shard: Vec<PathBuf>,
    /// The most tokens of a prompt at once, in place of what the program says; between them it is
    /// noticed that it was stopped, or who asked has gone
    #[arg(long, value_name = "N")]
    pub(crate) max_seq_len: Option<usize>,
}

/// Text as tokens.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TokenOptions {
    /// Its tokenizer: tokenizer.json, SentencePiece, tiktoken, Tekken or llama2.c [default: one
    /// beside the model]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// The token in front of a text, in place of what the program says
    #[arg(long, value_name = "ID")]
    pub(crate) bos_id: Option<u32>,
    /// A token that ends a text, in place of what the program says; may be given several times
    #[arg(long, value_name = "ID")]
    pub(crate) eos_id: Vec<u32>,
}

/// A language model.
#[derive(Debug, Args)]
pub(crate) struct LanguageOptions {
    #[command(flatten)]
    pub(crate) program: ProgramOptions,
    #[command(flatten)]
    pub(crate) pieces: PieceOptions,
    #[command(flatten)]
    pub(crate) tokens: TokenOptions,
}

/// How messages become a prompt.
#[derive(Debug, Args)]
pub(crate) struct TemplateOptions {
    /// A Jinja template, or a tokenizer_config.json with one [default: chat_template.jinja or
    /// tokenizer_config.json beside the tokenizer, else Llama 3's or ChatML]
    #[arg(long, value_name = "FILE")]
    pub(crate) chat_template: Option<PathBuf>,
    /// Give the template a variable, such as enable_thinking=false; may be given several times
    #[arg(long, value_name = "NAME=JSON", value_parser = template_argument)]
    pub(crate) template_argument: Vec<(String, String)>,
    /// Read names of control tokens in messages as these tokens, as transformers does, instead of
    /// as text: then whoever writes a message can speak for others
    #[arg(long)]
    pub(crate) control_tokens_in_messages: bool,
}

impl TemplateOptions {
    /// What the template is given besides the messages.
    pub(crate) fn arguments(&self) -> Result<TemplateArguments, Failure> {
        let mut arguments = TemplateArguments::default();
        for (name, json) in &self.template_argument {
            arguments.set(name, json)?;
        }
        Ok(arguments)
    }
}

/// How text is made.
#[derive(Debug, Args)]
pub(crate) struct SamplingOptions {
    /// The most tokens to generate [default: as many as the context has room for]
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) max_new_tokens: Option<usize>,
    /// The most tokens in the context, those of the prompt included
    #[arg(long, value_name = "N")]
    pub(crate) seq_len: Option<usize>,
    /// How much is left to chance; 0 takes the likeliest token
    #[arg(long, value_name = "T", default_value_t = 0.8)]
    pub(crate) temperature: f32,
    /// Consider this many of the likeliest tokens; 0 is all
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub(crate) top_k: usize,
    /// Consider the likeliest tokens that together have this probability
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    pub(crate) top_p: f32,
    /// Consider tokens that are at least this part as likely as the likeliest
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub(crate) min_p: f32,
    /// Make tokens that were there before less likely, above 1
    #[arg(long, value_name = "R", default_value_t = 1.0)]
    pub(crate) repetition_penalty: f32,
    /// Make tokens less likely for each time that they were generated, above 0, or likelier
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_hyphen_values = true)]
    pub(crate) frequency_penalty: f32,
    /// Make tokens less likely that were generated, however often, above 0, or likelier
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_hyphen_values = true)]
    pub(crate) presence_penalty: f32,
    /// Add to a token's logit; may be given several times
    #[arg(long, value_name = "ID=BIAS", value_parser = bias, allow_hyphen_values = true)]
    pub(crate) logit_bias: Vec<(u32, f32)>,
    /// The same seed gives the same text [default: another each time]
    #[arg(long, value_name = "SEED")]
    pub(crate) seed: Option<u64>,
    /// End at this text; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
    /// Feed up to N tokens before they are chosen, where the text had them behind the same ones
    /// before
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) lookahead: usize,
    /// Write JSON that fits this schema: a file, or the schema itself
    #[cfg(feature = "grammar")]
    #[arg(long, value_name = "SCHEMA")]
    pub(crate) json_schema: Option<String>,
    /// Show what it took, on standard error: for people, or ExecuTorch's `PyTorchObserver` line
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    pub(crate) stats: Option<StatsForm>,
}

/// How statistics are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StatsForm {
    /// For people
    Text,
    /// `PyTorchObserver {...}`
    Json,
}

impl TokenOptions {
    /// What is to be believed of tokens in place of what the program says.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            bos_id: self.bos_id,
            eos_ids: (!self.eos_id.is_empty()).then(|| self.eos_id.clone()),
            ..Overrides::default()
        }
    }
}

impl LanguageOptions {
    /// What is to be believed in place of what the program says.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            max_context_len: self.program.max_context_len,
            max_seq_len: self.pieces.max_seq_len,
            ..self.tokens.overrides()
        }
    }
}

pub(super) fn template_argument(text: &str) -> Result<(String, String), String> {
    let (name, json) = text.split_once('=').ok_or("it should be a name, '=' and JSON")?;
    let refuse = |error| format!("{error}; a text stands in quotes, as in {name}='\"...\"'");
    TemplateArguments::default().set(name, json).map_err(refuse)?;
    Ok((name.into(), json.into()))
}

fn bias(text: &str) -> Result<(u32, f32), String> {
    let (token, bias) = text.split_once('=').ok_or("it should be a token, '=' and a number")?;
    let token = token.parse().map_err(|error| format!("the token '{token}': {error}"))?;
    Ok((token, bias.parse().map_err(|error| format!("the bias '{bias}': {error}"))?))
}

impl SamplingOptions {
    /// What the text has to be.
    #[cfg(feature = "grammar")]
    fn grammar(&self) -> Result<Option<torchlet::llm::Grammar>, Failure> {
        let Some(schema) = &self.json_schema else { return Ok(None) };
        let text = match schema.trim_start().starts_with('{') {
            true => schema.clone(),
            false => std::fs::read_to_string(schema)
                .map_err(|error| Failure::new(format!("cannot read '{schema}': {error}")))?,
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
    /// What the text follows [default: standard input]
    #[arg(long, short, value_name = "TEXT")]
    pub(crate) prompt: Option<String>,
    #[command(flatten)]
    pub(crate) sampling: SamplingOptions,
    /// A picture, in the place of the next `<image>` in the prompt, or in front of it where there
    /// is none; may be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) image: Vec<PathBuf>,
    /// Subtracted from the picture's values, which are from 0 to 1: one number, or one for each
    /// channel
    #[arg(
        long,
        value_name = "M,...",
        value_delimiter = ',',
        allow_hyphen_values = true,
        requires = "image"
    )]
    pub(crate) mean: Vec<f32>,
    /// What the picture's values are divided by, behind that
    #[arg(long, value_name = "S,...", value_delimiter = ',', requires = "image")]
    pub(crate) std: Vec<f32>,
    #[command(flatten)]
    pub(crate) tiling: TilingOptions,
    /// A sound, .wav, .flac or .mp3, in the place of the next `<audio>` in the prompt, or in front
    /// of it; may be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) audio: Vec<PathBuf>,
    /// Tokens that mark the beginning of a text, in front of the prompt [default: 1, where there is
    /// such a token]
    #[arg(long, value_name = "N")]
    pub(crate) num_bos: Option<usize>,
    /// Go on behind tokens that end a text
    #[arg(long)]
    pub(crate) ignore_eos: bool,
    /// Show the prompt, too
    #[arg(long)]
    pub(crate) echo: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ChatArguments {
    #[command(flatten)]
    pub(crate) language: LanguageOptions,
    #[command(flatten)]
    pub(crate) template: TemplateOptions,
    /// What the model is told before the conversation
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
    /// What is listened to: .wav, .flac or .mp3
    pub(crate) sound: PathBuf,
    /// The language that is spoken, such as en [default: the likeliest, where the vocabulary has
    /// languages]
    #[arg(long = "language", value_name = "NAME")]
    pub(crate) spoken: Option<String>,
    /// Write what is said in English
    #[arg(long)]
    pub(crate) translate: bool,
    /// Write when it is said, too: a line for each segment, at the end
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// Hugging Face's generation_config.json, which tells what tokens are never chosen [default:
    /// one beside the tokenizer]
    #[arg(long, value_name = "FILE")]
    pub(crate) generation_config: Option<PathBuf>,
    /// A token that is never chosen; may be given several times
    #[arg(long, value_name = "ID")]
    pub(crate) suppress_id: Vec<u32>,
    /// A token that the decoder is fed first, in place of Whisper's; may be given several times
    #[arg(long, value_name = "ID", conflicts_with_all = ["spoken", "translate"])]
    pub(crate) start_id: Vec<u32>,
    /// The most tokens for each piece of the sound [default: as many as there is room for]
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) max_new_tokens: Option<usize>,
    /// How much is left to chance; 0 takes the likeliest token
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    pub(crate) temperature: f32,
    /// Show what it took, on standard error: for people, or ExecuTorch's `PyTorchObserver` line
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    pub(crate) stats: Option<StatsForm>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchLlmArguments {
    #[command(flatten)]
    pub(crate) program: ProgramOptions,
    #[command(flatten)]
    pub(crate) pieces: PieceOptions,
    /// Lengths of prompts
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,16,64,128")]
    pub(crate) prompt_tokens: Vec<usize>,
    /// Tokens to generate behind each
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) tokens: usize,
    /// Rounds, of which the fastest counts
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Measure, too, how fast as many threads read memory
    #[arg(long)]
    pub(crate) bandwidth: bool,
    /// Show where the time of a prompt of a new length and of a token goes, behind all else: being
    /// told of each part takes time itself, on GPUs about 1 µs each
    #[arg(long)]
    pub(crate) parts: bool,
    /// Print one JSON object a line for each length
    #[arg(long)]
    pub(crate) json: bool,
}
