//! Options, read by attribute name from Python objects (`torchlet/llm.py`).

use crate::error::Failure;
use pyo3::prelude::*;
use torchlet::llm;

/// Overrides of the program's metadata.
#[derive(FromPyObject)]
pub(super) struct Overrides {
    pub(super) max_seq_len: Option<usize>,
    pub(super) max_context_len: Option<usize>,
    pub(super) bos_id: Option<u32>,
    pub(super) eos_ids: Option<Vec<u32>>,
}

impl From<Overrides> for llm::Overrides {
    fn from(given: Overrides) -> Self {
        let Overrides { max_seq_len, max_context_len, bos_id, eos_ids } = given;
        llm::Overrides { max_seq_len, max_context_len, bos_id, eos_ids }
    }
}

/// Sampling options.
#[derive(FromPyObject)]
pub(super) struct Sampling {
    pub(super) temperature: f32,
    pub(super) top_k: usize,
    pub(super) top_p: f32,
    pub(super) min_p: f32,
    pub(super) repetition_penalty: f32,
    pub(super) repetition_window: usize,
    pub(super) frequency_penalty: f32,
    pub(super) presence_penalty: f32,
    pub(super) logit_bias: Vec<(u32, f32)>,
    pub(super) seed: Option<u64>,
}

impl From<Sampling> for llm::Sampling {
    fn from(given: Sampling) -> Self {
        llm::Sampling {
            repetition_penalty: given.repetition_penalty,
            repetition_window: given.repetition_window,
            frequency_penalty: given.frequency_penalty,
            presence_penalty: given.presence_penalty,
            logit_bias: given.logit_bias,
            temperature: given.temperature,
            top_k: given.top_k,
            top_p: given.top_p,
            min_p: given.min_p,
            seed: given.seed,
        }
    }
}

/// Generation options.
#[derive(FromPyObject)]
pub(super) struct Config {
    pub(super) sampling: Sampling,
    pub(super) max_new_tokens: Option<usize>,
    pub(super) seq_len: Option<usize>,
    pub(super) echo: bool,
    pub(super) ignore_eos: bool,
    pub(super) num_bos: usize,
    pub(super) num_eos: usize,
    pub(super) stop: Vec<String>,
    pub(super) lookahead: usize,
    pub(super) logprobs: Option<usize>,
    pub(super) json_schema: Option<String>,
}

impl TryFrom<Config> for llm::GenerationConfig {
    type Error = Failure;

    fn try_from(given: Config) -> Result<Self, Failure> {
        let grammar = given.json_schema.as_deref().map(llm::Grammar::json_schema).transpose()?;
        Ok(llm::GenerationConfig {
            echo: given.echo,
            max_new_tokens: given.max_new_tokens,
            seq_len: given.seq_len,
            sampling: given.sampling.into(),
            ignore_eos: given.ignore_eos,
            num_bos: given.num_bos,
            num_eos: given.num_eos,
            stop: given.stop,
            lookahead: given.lookahead,
            logprobs: given.logprobs,
            grammar,
        })
    }
}

/// Transcription options.
#[derive(FromPyObject)]
pub(super) struct TranscriptionConfig {
    pub(super) sampling: Sampling,
    pub(super) language: Option<String>,
    pub(super) translate: bool,
    pub(super) timestamps: bool,
    pub(super) max_new_tokens: Option<usize>,
    pub(super) start: Option<Vec<u32>>,
}
