//! Language models: runners, their tokenizers, and transcribers.

mod conversation;
mod hearing;
mod parts;
mod settings;
mod transcriber;

pub(crate) use hearing::Turn;
pub(crate) use transcriber::Transcriber;

use crate::error::Failure;
use crate::module::{Module, Source};
use crate::tensor::Tensor;
use conversation::{Conversation, Spoken};
use hearing::{Listener, Model};
use parts::Part;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use settings::{Config, Overrides};
use std::path::PathBuf;
use std::sync::Arc;
use torchlet::core::TensorInfo;
use torchlet::llm::{self, Finish, Input, OutputPart, Stop, ToolCalls};

/// Log probabilities at a position: token, log probability, the most likely tokens with theirs, and
/// the character offset.
type Logprobs = (u32, f32, Vec<(u32, f32)>, usize);
/// Result of a generation: text, tokens, log probabilities, finish reason, statistics.
type Generated<'py> = (String, Vec<u32>, Vec<Logprobs>, &'static str, Bound<'py, PyDict>);

/// A tokenizer.
#[pyclass(frozen, module = "torchlet._torchlet")]
pub(crate) struct Tokenizer(Arc<llm::Tokenizer>);

#[pymethods]
impl Tokenizer {
    #[staticmethod]
    fn open(py: Python<'_>, source: Source) -> PyResult<Self> {
        let opened = py.detach(|| match source {
            Source::Bytes(bytes) => llm::Tokenizer::from_bytes(&bytes),
            Source::Path(path) => llm::Tokenizer::load(path),
        });
        Ok(Tokenizer(Arc::new(opened.map_err(Failure::from)?)))
    }

    /// A tokenizer without tokens, for models that are fed token ids.
    #[staticmethod]
    fn empty() -> Self {
        Tokenizer(Arc::new(llm::Tokenizer::empty()))
    }

    #[pyo3(signature = (text, special = true))]
    fn encode(&self, text: &str, special: bool) -> PyResult<Vec<u32>> {
        let encoded = if special { self.0.encode(text) } else { self.0.encode_plain(text) };
        Ok(encoded.map_err(Failure::from)?)
    }

    fn decode(&self, tokens: Vec<u32>) -> String {
        self.0.decode(&tokens)
    }

    #[getter]
    fn vocab_size(&self) -> usize {
        self.0.vocab_size()
    }

    #[getter]
    fn bos(&self) -> Option<u32> {
        self.0.bos()
    }

    #[getter]
    fn eos(&self) -> Option<u32> {
        self.0.eos()
    }
}

/// A prompt. Plain text gets BOS and EOS tokens; messages continue the cached conversation.
enum Prompt {
    Text(String),
    Parts(Vec<Part>),
    Messages(Conversation),
}

/// Statistics with the names of `torchlet.llm.Stats`; times are in seconds.
fn statistics<'py>(py: Python<'py>, stats: &llm::Stats) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    for (name, count) in [
        ("prompt_tokens", stats.prompt_tokens),
        ("generated_tokens", stats.generated_tokens),
        ("accepted_tokens", stats.accepted_tokens),
    ] {
        found.set_item(name, count)?;
    }
    for (name, time) in [
        ("load", stats.load),
        ("prefill", stats.prefill),
        ("first_token", stats.first_token),
        ("total", stats.total),
        ("sampling", stats.sampling),
        ("execution", stats.execution),
    ] {
        found.set_item(name, time.as_secs_f64())?;
    }
    found.set_item("prefill_rate", stats.prefill_rate())?;
    found.set_item("decode_rate", stats.decode_rate())?;
    found.set_item("json", stats.json())?;
    Ok(found)
}

fn generated<'py>(py: Python<'py>, made: llm::Generation) -> PyResult<Generated<'py>> {
    let finish = match made.finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::Context => "context",
        Finish::Stopped => "stopped",
        _ => "unknown",
    };
    let offset = |bytes| made.text.get(..bytes).map_or(0, |before: &str| before.chars().count());
    let logprobs = made.logprobs.into_iter().map(|told| {
        let offset = offset(told.offset);
        (told.token, told.logprob, told.top, offset)
    });
    let logprobs = logprobs.collect();
    Ok((made.text, made.tokens, logprobs, finish, statistics(py, &made.stats)?))
}

/// A language model with its tokenizer and context.
#[pyclass(frozen, module = "torchlet._torchlet")]
pub(crate) struct Runner {
    model: Model<llm::Runner>,
    stop: Stop,
}

impl Runner {
    fn new(runner: llm::Runner) -> Self {
        let stop = runner.stop_handle();
        Runner { model: Model::new(runner), stop }
    }

    fn run(
        &self,
        py: Python<'_>,
        prompt: Prompt,
        config: Config,
        on_text: Option<Py<PyAny>>,
        turn: Option<Py<Turn>>,
    ) -> PyResult<llm::Generation> {
        let config = llm::GenerationConfig::try_from(config)?;
        let listener = Listener::new(on_text, &self.stop, turn);
        self.model.heard(py, listener, |runner, hear| match prompt {
            Prompt::Text(text) => Ok(runner.generate(&text, &config, hear)?),
            Prompt::Parts(parts) => {
                let laid_out = parts.into_iter().map(|part| part.laid_out(runner));
                let parts = laid_out.collect::<Result<Vec<Vec<Part>>, Failure>>()?;
                let inputs: Vec<Input<'_>> = parts.iter().flatten().map(Part::input).collect();
                Ok(runner.generate_from(&inputs, &config, hear)?)
            }
            Prompt::Messages(conversation) => conversation.answer(runner, &config, hear),
        })
    }
}

#[pymethods]
impl Runner {
    /// Creates a runner of one program, or of several shards.
    #[staticmethod]
    fn open(
        py: Python<'_>,
        programs: Vec<Bound<'_, Module>>,
        tokenizer: &Tokenizer,
        overrides: Overrides,
    ) -> PyResult<Self> {
        let programs: PyResult<Vec<torchlet::Module>> =
            programs.iter().map(|module| module.get().program(py)).collect();
        let (mut programs, tokenizer) = (programs?, tokenizer.0.clone());
        let overrides = overrides.into();
        let opened = py.detach(|| match programs.len() {
            1 => llm::Runner::new(programs.remove(0), tokenizer, &overrides),
            _ => {
                let shards = programs.into_iter().map(|program| Box::new(program) as _).collect();
                llm::Runner::new(llm::Shards::new(shards), tokenizer, &overrides)
            }
        });
        Ok(Runner::new(opened.map_err(Failure::from)?))
    }

    fn session(&self, py: Python<'_>) -> PyResult<Self> {
        Ok(Runner::new(self.model.with(py, |runner| Ok(runner.session()?))?))
    }

    /// Sets the chat template from a file or Jinja text. Returns whether the file has a template.
    fn set_chat_template(&self, py: Python<'_>, source: TemplateSource) -> PyResult<bool> {
        self.model.with(py, |runner| {
            let template = match source {
                TemplateSource::Text(text) => {
                    let tokenizer = runner.tokenizer();
                    let name = |token: Option<u32>| tokenizer.special_name(token?);
                    let (bos, eos) = (name(tokenizer.bos()), name(tokenizer.eos()));
                    Some(llm::ChatTemplate::new(&text, bos, eos)?)
                }
                TemplateSource::File(path) => llm::ChatTemplate::load(path)?,
            };
            let is_there = template.is_some();
            if let Some(template) = template {
                runner.set_chat_template(template);
            }
            Ok(is_there)
        })
    }

    #[pyo3(signature = (prompt, config, on_text, turn = None))]
    fn generate<'py>(
        &self,
        py: Python<'py>,
        prompt: String,
        config: Config,
        on_text: Option<Py<PyAny>>,
        turn: Option<Py<Turn>>,
    ) -> PyResult<Generated<'py>> {
        generated(py, self.run(py, Prompt::Text(prompt), config, on_text, turn)?)
    }

    /// Parts are `("text", str)`, `("tokens", list)`, `("image", tensor)`, `("audio", tensor)` and
    /// `("picture", (pixels, tiling, tiles, mean, std))`.
    #[pyo3(signature = (parts, config, on_text, turn = None))]
    fn generate_from<'py>(
        &self,
        py: Python<'py>,
        parts: Vec<(String, Bound<'py, PyAny>)>,
        config: Config,
        on_text: Option<Py<PyAny>>,
        turn: Option<Py<Turn>>,
    ) -> PyResult<Generated<'py>> {
        let parts: PyResult<Vec<Part>> = parts.iter().map(Part::of).collect();
        generated(py, self.run(py, Prompt::Parts(parts?), config, on_text, turn)?)
    }

    /// Messages consist of role, parts, function calls, call id, and other fields; functions and
    /// template variables are JSON. Returns function calls separately from the text.
    #[pyo3(signature = (messages, tools, arguments, config, on_text, turn = None))]
    #[expect(
        clippy::too_many_arguments,
        reason = "they are the keyword arguments of the Python method"
    )]
    fn chat<'py>(
        &self,
        py: Python<'py>,
        messages: Vec<Spoken<'py>>,
        tools: Vec<String>,
        arguments: &str,
        config: Config,
        on_text: Option<Py<PyAny>>,
        turn: Option<Py<Turn>>,
    ) -> PyResult<(Generated<'py>, Vec<(String, String)>)> {
        let conversation = Conversation::of(messages, &tools, arguments)?;
        let calls = (!tools.is_empty()).then(|| ToolCalls::of(&conversation.tools));
        let prompt = Prompt::Messages(conversation);
        let mut made = self.run(py, prompt, config, on_text, turn)?;
        let mut called = Vec::new();
        if let Some(mut calls) = calls {
            let mut said = calls.push(&std::mem::take(&mut made.text));
            said.extend(calls.finish());
            for said in said {
                match said {
                    OutputPart::Text(text) => made.text += &text,
                    OutputPart::Call(call) | OutputPart::Begun(call) => {
                        called.push((call.name, call.arguments))
                    }
                    OutputPart::Arguments(_) => {}
                }
            }
        }
        Ok((generated(py, made)?, called))
    }

    fn prefill(&self, py: Python<'_>, prompt: &str) -> PyResult<()> {
        self.model.with(py, |runner| Ok(runner.prefill(prompt)?))
    }

    fn prefill_tokens(&self, py: Python<'_>, tokens: Vec<u32>) -> PyResult<()> {
        self.model.with(py, |runner| Ok(runner.prefill_tokens(&tokens)?))
    }

    fn warmup(&self, py: Python<'_>, prompt: &str, tokens: usize) -> PyResult<()> {
        self.model.with(py, |runner| Ok(runner.warmup(prompt, tokens)?))
    }

    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.model.with(py, |runner| Ok(runner.reset()?))
    }

    fn stop(&self) {
        self.stop.stop();
    }

    /// The tokens in the context; `None` for each position of an image or audio.
    fn context(&self, py: Python<'_>) -> PyResult<Vec<Option<u32>>> {
        let known = |token: &u32| (*token != u32::MAX).then_some(*token);
        self.model.with(py, |runner| Ok(runner.context().iter().map(known).collect()))
    }

    /// The logits after the last token, unless a token was sampled from them.
    fn logits(&self, py: Python<'_>) -> PyResult<Option<Tensor>> {
        self.model.with(py, |runner| {
            let Some(logits) = runner.logits() else { return Ok(None) };
            let tensor = torchlet::Tensor::from_slice(&[logits.len()], logits)?;
            Tensor::copy_of(&tensor.as_tensor_ref()).map(Some)
        })
    }

    /// The program's metadata, by names of its metadata methods.
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let metadata = self.model.with(py, |runner| Ok(runner.metadata().clone()))?;
        let found = PyDict::new(py);
        found.set_item("max_seq_len", metadata.max_seq_len)?;
        found.set_item("max_context_len", metadata.max_context_len)?;
        found.set_item("vocab_size", metadata.vocab_size)?;
        found.set_item("use_kv_cache", metadata.use_kv_cache)?;
        found.set_item("enable_dynamic_shape", metadata.enable_dynamic_shape)?;
        found.set_item("bos_id", metadata.bos_id)?;
        found.set_item("eos_ids", metadata.eos_ids)?;
        found.set_item("append_eos_to_prompt", metadata.append_eos_to_prompt)?;
        Ok(found)
    }

    /// Element type and shape of image and audio inputs, if supported.
    fn takes(&self, py: Python<'_>) -> PyResult<(Option<Shape>, Option<Shape>)> {
        let shape = |info: &TensorInfo| (info.scalar_type.name(), info.sizes.to_vec());
        self.model.with(py, |runner| {
            Ok((runner.image_input().map(shape), runner.audio_input().map(shape)))
        })
    }
}

/// Element type and sizes.
type Shape = (&'static str, Vec<i32>);

/// A template as text or file.
#[derive(FromPyObject)]
enum TemplateSource {
    #[pyo3(transparent)]
    Text(String),
    #[pyo3(transparent)]
    File(PathBuf),
}
