//! Metadata of a program: methods without inputs that return constants.

use crate::error::Error;
use crate::model::Model;
use torchlet_core::{ScalarType, ValueRef};

/// Metadata of a program, with defaults for missing values.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// Maximum number of tokens per call of a method (`get_max_seq_len`).
    pub max_seq_len: usize,
    /// Maximum context length, including generated tokens (`get_max_context_len`). Default:
    /// `max_seq_len`.
    pub max_context_len: usize,
    /// Vocabulary size (`get_vocab_size`).
    pub vocab_size: Option<usize>,
    /// Whether the program has a KV cache (`use_kv_cache`). Default: whether it has a position
    /// input.
    pub use_kv_cache: bool,
    /// Whether the number of tokens is dynamic (`enable_dynamic_shape`). Default: whether the input
    /// shape is.
    pub enable_dynamic_shape: bool,
    /// BOS token (`get_bos_id`).
    pub bos_id: Option<u32>,
    /// EOS tokens (`get_eos_ids`).
    pub eos_ids: Vec<u32>,
    /// Whether an EOS token follows the prompt (`append_eos_to_prompt`).
    pub append_eos_to_prompt: bool,
}

/// Values that override a program's metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// See [`Metadata::max_seq_len`].
    pub max_seq_len: Option<usize>,
    /// See [`Metadata::max_context_len`].
    pub max_context_len: Option<usize>,
    /// See [`Metadata::bos_id`].
    pub bos_id: Option<u32>,
    /// See [`Metadata::eos_ids`].
    pub eos_ids: Option<Vec<u32>>,
}

/// Metadata methods that [`Overrides`] can replace.
const MAX_SEQ_LEN: [&str; 2] = ["get_max_seq_len", "max_seq_len"];
const MAX_CONTEXT_LEN: [&str; 2] = ["get_max_context_len", "max_context_len"];
const EOS_IDS: [&str; 3] = ["get_eos_ids", "eos_ids", "get_eos_id"];
const BOS_ID: [&str; 2] = ["get_bos_id", "bos_id"];

/// Whether [`Overrides`] can replace the value of a metadata method.
pub(crate) fn is_overridden(method: &str) -> bool {
    [&MAX_SEQ_LEN[..], &MAX_CONTEXT_LEN, &EOS_IDS, &BOS_ID].concat().contains(&method)
}

/// Properties of the method interface, as defaults for missing metadata.
pub(crate) struct Interface {
    /// Maximum number of tokens of the input.
    pub(crate) tokens: usize,
    pub(crate) is_dynamic: bool,
    pub(crate) has_position: bool,
}

impl Metadata {
    pub(crate) fn read(
        model: &mut dyn Model,
        interface: &Interface,
        overrides: &Overrides,
    ) -> Result<Self, Error> {
        for (name, limit) in
            [("max_seq_len", overrides.max_seq_len), ("max_context_len", overrides.max_context_len)]
        {
            if limit == Some(0) {
                let expected = "1 or more";
                return Err(Error::Setting { name, value: "0".into(), expected });
            }
        }
        let names = model.method_names().map_err(Error::model("list the program's methods"))?;
        let mut reader = Reader { model, names };
        let length = overrides
            .max_seq_len
            .map_or_else(|| reader.count(&MAX_SEQ_LEN), |length| Ok(Some(length)))?;
        let max_seq_len = length.unwrap_or(match interface.tokens {
            // ExecuTorch's default, for programs that accept one token per call.
            0 | 1 => 128,
            tokens => tokens,
        });
        let context = overrides
            .max_context_len
            .map_or_else(|| reader.count(&MAX_CONTEXT_LEN), |length| Ok(Some(length)))?;
        let has_cache = reader.truth(&["use_kv_cache", "get_use_kv_cache"])?;
        let varies = reader.truth(&["enable_dynamic_shape", "get_enable_dynamic_shape"])?;
        let append = reader.truth(&["append_eos_to_prompt", "get_append_eos_to_prompt"])?;
        let eos = reader.tokens(&EOS_IDS, overrides.eos_ids.as_ref())?;
        let bos = reader.tokens(&BOS_ID, overrides.bos_id.map(|id| vec![id]).as_ref())?;
        Ok(Metadata {
            max_seq_len,
            max_context_len: context.unwrap_or(max_seq_len),
            vocab_size: reader.count(&["get_vocab_size", "vocab_size"])?,
            use_kv_cache: has_cache.unwrap_or(interface.has_position),
            enable_dynamic_shape: varies.unwrap_or(interface.is_dynamic),
            bos_id: bos.first().copied(),
            eos_ids: eos,
            append_eos_to_prompt: append.unwrap_or(false),
        })
    }
}

impl Metadata {
    /// Context length that a program declares, if the override is larger. Runs beyond the declared
    /// length fail, unless the program evicts old tokens (attention sinks).
    pub(crate) fn declared_context_len(
        model: &mut dyn Model,
        overrides: &Overrides,
    ) -> Result<Option<usize>, Error> {
        let Some(limit) = overrides.max_context_len else { return Ok(None) };
        let names = model.method_names().map_err(Error::model("list the program's methods"))?;
        let mut reader = Reader { model, names };
        // The declared value may be invalid, which is one reason to override it.
        let said = [&MAX_CONTEXT_LEN, &MAX_SEQ_LEN]
            .into_iter()
            .find_map(|names| reader.count(names).ok().flatten());
        Ok(said.filter(|said| *said < limit))
    }

    /// First token of the decoder in an encoder-decoder program (`decoder_start_token_id`, as
    /// exported by Optimum).
    pub(crate) fn decoder_start(model: &mut dyn Model) -> Result<Option<u32>, Error> {
        let names = model.method_names().map_err(Error::model("list the program's methods"))?;
        let tokens = Reader { model, names }.tokens(&["decoder_start_token_id"], None)?;
        Ok(tokens.first().copied())
    }
}

struct Reader<'m> {
    model: &'m mut dyn Model,
    names: Vec<String>,
}

impl Reader<'_> {
    /// Runs the first existing method of `spellings`, and returns its name and all returned
    /// integers.
    fn read<'n>(&mut self, spellings: &[&'n str]) -> Result<Option<(&'n str, Vec<i64>)>, Error> {
        let found = spellings.iter().find(|name| self.names.iter().any(|other| other == *name));
        let Some(&method) = found else { return Ok(None) };
        let (mut values, mut odd) = (Vec::new(), false);
        let mut read = |_: usize, value: ValueRef<'_>| match integers(&value) {
            Some(integers) if values.len() + integers.len() <= 1 << 16 => values.extend(integers),
            _ => odd = true,
        };
        self.model
            .run(method, &[], &mut read)
            .map_err(Error::model(format!("run the metadata method '{method}'")))?;
        if odd || values.is_empty() {
            let message = "expected integers, found another value".into();
            return Err(Error::Metadata { method: method.into(), message });
        }
        Ok(Some((method, values)))
    }

    fn count(&mut self, spellings: &[&str]) -> Result<Option<usize>, Error> {
        let Some((method, values)) = self.read(spellings)? else { return Ok(None) };
        let value = values.first().copied().unwrap_or(0);
        match i32::try_from(value) {
            Ok(count) if count > 0 => Ok(Some(count as usize)),
            _ => {
                let message = format!("expected an integer from 1 to {}, found {value}", i32::MAX);
                Err(Error::Metadata { method: method.into(), message })
            }
        }
    }

    fn truth(&mut self, spellings: &[&str]) -> Result<Option<bool>, Error> {
        let found = self.read(spellings)?;
        Ok(found.map(|(_, values)| values.first().is_some_and(|value| *value != 0)))
    }

    fn tokens(
        &mut self,
        spellings: &[&str],
        instead: Option<&Vec<u32>>,
    ) -> Result<Vec<u32>, Error> {
        if let Some(tokens) = instead {
            return Ok(tokens.clone());
        }
        let Some((method, values)) = self.read(spellings)? else { return Ok(Vec::new()) };
        // Exporters write -1 for absent tokens.
        let tokens = values.iter().filter(|value| **value != -1).map(|value| {
            u32::try_from(*value).map_err(|_| {
                let message = format!("expected a token, found {value}");
                Error::Metadata { method: method.into(), message }
            })
        });
        tokens.collect()
    }
}

fn integers(value: &ValueRef<'_>) -> Option<Vec<i64>> {
    match value {
        ValueRef::Scalar(scalar) => Some(vec![scalar.to_i64()]),
        ValueRef::Tensor(tensor) => match tensor.info().scalar_type {
            ScalarType::Long => Some(tensor.data::<i64>().ok()?.to_vec()),
            ScalarType::Int => Some(tensor.data::<i32>().ok()?.iter().map(|&v| v.into()).collect()),
            ScalarType::Bool => Some(tensor.bytes().iter().map(|&v| i64::from(v != 0)).collect()),
            _ => None,
        },
        _ => None,
    }
}
