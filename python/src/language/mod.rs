//! Language models: runners, their tokenizers, and transcribers.
//!
//! What is set by name comes as objects of Python (`torchlet/llm.py`), whose attributes are read here.

use crate::error::{Failure, invalid, invalid_state};
use crate::module::{Module, Source};
use crate::shared::Shared;
use crate::tensor::Tensor;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use torchlet::core::{ScalarType, TensorInfo};
use torchlet::llm::{
    self, Finish, Input, Mark, Message, Piece, Said, Stop, Tiling, Tool, ToolCall, ToolCalls,
};

/// What a generation gives: text, tokens, why it ended, and what it took.
type Generated<'py> = (String, Vec<u32>, &'static str, Bound<'py, PyDict>);
/// What a transcription gives: a generation, segments, and the language.
type Transcribed<'py> = (Generated<'py>, Vec<(f32, f32, String)>, Option<String>);

/// Text to tokens and back.
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

    /// One without tokens, for models that are fed these.
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

/// What is to be believed in place of what a program says.
#[derive(FromPyObject)]
struct Overrides {
    max_seq_len: Option<usize>,
    max_context_len: Option<usize>,
    bos_id: Option<u32>,
    eos_ids: Option<Vec<u32>>,
}

impl From<Overrides> for llm::Overrides {
    fn from(given: Overrides) -> Self {
        let Overrides { max_seq_len, max_context_len, bos_id, eos_ids } = given;
        llm::Overrides { max_seq_len, max_context_len, bos_id, eos_ids }
    }
}

/// How tokens are chosen.
#[derive(FromPyObject)]
struct Sampling {
    temperature: f32,
    top_k: usize,
    top_p: f32,
    min_p: f32,
    repetition_penalty: f32,
    repetition_window: usize,
    logit_bias: Vec<(u32, f32)>,
    seed: Option<u64>,
}

impl From<Sampling> for llm::Sampling {
    fn from(given: Sampling) -> Self {
        llm::Sampling {
            repetition_penalty: given.repetition_penalty,
            repetition_window: given.repetition_window,
            logit_bias: given.logit_bias,
            temperature: given.temperature,
            top_k: given.top_k,
            top_p: given.top_p,
            min_p: given.min_p,
            seed: given.seed,
        }
    }
}

/// How much is generated, and how.
#[derive(FromPyObject)]
struct Config {
    sampling: Sampling,
    max_new_tokens: Option<usize>,
    seq_len: Option<usize>,
    echo: bool,
    ignore_eos: bool,
    num_bos: usize,
    num_eos: usize,
    stop: Vec<String>,
    lookahead: usize,
    json_schema: Option<String>,
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
            grammar,
        })
    }
}

/// What a sound is written down with.
#[derive(FromPyObject)]
struct TranscriptionConfig {
    sampling: Sampling,
    language: Option<String>,
    translate: bool,
    timestamps: bool,
    max_new_tokens: Option<usize>,
    start: Option<Vec<u32>>,
}

/// A part of a prompt, which lends nothing of Python's.
enum Part {
    Text(String),
    Tokens(Vec<u32>),
    Image(torchlet::Tensor),
    Audio(torchlet::Tensor),
    Picture(Picture),
}

/// A picture that is not yet what the program takes, and how it becomes that.
struct Picture {
    points: llm::Picture,
    tiling: Option<Tiling>,
    mean: [f32; 3],
    std: [f32; 3],
}

/// Points, how they are cut and into how many tiles, what is subtracted from values, and what divides them.
type PictureSource<'py> = (Bound<'py, PyAny>, Option<String>, usize, Vec<f32>, Vec<f32>);

impl Picture {
    fn of((points, tiling, tiles, mean, std): PictureSource<'_>) -> PyResult<Self> {
        let none = || invalid(format!("{} has neither a buffer nor DLPack", points.get_type()));
        let tensor = Tensor::from_object(&points)?.ok_or_else(none)?.facade(points.py())?;
        let (height, width) = match (tensor.scalar_type(), tensor.shape()) {
            (ScalarType::Byte, [height, width, 3]) => (*height, *width),
            (scalar_type, shape) => {
                let found = format!("{} {shape:?}", scalar_type.name());
                return Err(invalid(format!("a picture is uint8 [height, width, 3], not {found}")));
            }
        };
        let points = tensor.to_vec::<u8>().map_err(Failure::from)?;
        let tiling = match tiling.as_deref() {
            None => None,
            Some("canvas") => Some(Tiling::Canvas(tiles)),
            Some("closest") => Some(Tiling::Closest(tiles)),
            Some("rows") => Some(Tiling::Rows(tiles)),
            Some(other) => {
                let known = "'canvas', 'closest' and 'rows'";
                return Err(invalid(format!("there is no tiling {other:?}; there are {known}")));
            }
        };
        let each = |name: &str, values: Vec<f32>| match *values {
            [one] => Ok([one; 3]),
            [red, green, blue] => Ok([red, green, blue]),
            _ => Err(invalid(format!("{name} has {} values, not 1 or 3", values.len()))),
        };
        let (mean, std) = (each("mean", mean)?, each("std", std)?);
        if !mean.iter().chain(&std).all(|value| value.is_finite()) || std.contains(&0.0) {
            return Err(invalid("mean and std are finite, and std is not 0".into()));
        }
        let points = llm::Picture::from_rgb(width, height, points).map_err(Failure::from)?;
        Ok(Picture { points, tiling, mean, std })
    }

    /// What the program takes, and the text between.
    fn parts(&self, runner: &llm::Runner) -> Result<Vec<Part>, Failure> {
        let none = || Failure::invalid("the program takes no pictures".into());
        let info = runner.image_input().ok_or_else(none)?;
        let shape: Vec<usize> = (0..info.rank()).map(|dim| info.size(dim)).collect();
        let (height, width) = match *shape {
            [1, 3, height, width] | [3, height, width] => (height, width),
            _ => {
                let message = format!("the program takes {info}, not a picture in colour");
                return Err(Failure::invalid(message));
            }
        };
        let pieces = match self.tiling {
            Some(tiling) => self.points.tiles([width, height], tiling)?,
            None => {
                vec![Piece::Tile(self.points.resized(width, height, llm::Filter::Bilinear)?)]
            }
        };
        let part = |piece: Piece| {
            let tile = match piece {
                Piece::Text(text) => return Ok(Part::Text(text)),
                Piece::Tile(tile) => tile,
            };
            let values = match info.scalar_type {
                ScalarType::Byte => {
                    let values = tile.planes([0.0; 3], [1.0; 3]).into_iter();
                    values.map(|value| (value * 255.0).round()).collect()
                }
                _ => tile.planes(self.mean, self.std),
            };
            let tensor = torchlet::Tensor::from_vec(&shape, values)?.to_type(info.scalar_type)?;
            Ok(Part::Image(tensor))
        };
        pieces.into_iter().map(part).collect()
    }
}

impl Part {
    /// A part by what it is called.
    fn of((kind, value): &(String, Bound<'_, PyAny>)) -> PyResult<Self> {
        let tensor = || {
            let none = || invalid(format!("{} has neither a buffer nor DLPack", value.get_type()));
            let tensor = Tensor::from_object(value)?.ok_or_else(none)?;
            Ok::<_, PyErr>(tensor.facade(value.py())?)
        };
        Ok(match kind.as_str() {
            "text" => Part::Text(value.extract()?),
            "tokens" => Part::Tokens(value.extract()?),
            "image" => Part::Image(tensor()?),
            "audio" => Part::Audio(tensor()?),
            "picture" => Part::Picture(Picture::of(value.extract()?)?),
            other => return Err(invalid(format!("{other:?} is no part of a prompt"))),
        })
    }

    /// What the program takes: pictures as its encoder does, and these and sounds in its memory order.
    fn laid_out(self, runner: &llm::Runner) -> Result<Vec<Part>, Failure> {
        let mut parts = match self {
            Part::Picture(picture) => picture.parts(runner)?,
            part => vec![part],
        };
        parts.iter_mut().try_for_each(|part| part.lay_out(runner))?;
        Ok(parts)
    }

    fn lay_out(&mut self, runner: &llm::Runner) -> Result<(), Failure> {
        let (tensor, info) = match self {
            Part::Image(tensor) => (tensor, runner.image_input()),
            Part::Audio(tensor) => (tensor, runner.audio_input()),
            Part::Text(_) | Part::Tokens(_) | Part::Picture(_) => return Ok(()),
        };
        if let Some(info) = info
            && info.rank() == tensor.dim_order().len()
        {
            *tensor = tensor.to_dim_order(&info.dim_order)?;
        }
        Ok(())
    }

    fn input(&self) -> Input<'_> {
        match self {
            Part::Text(text) => Input::Text(text),
            Part::Tokens(tokens) => Input::Tokens(tokens),
            Part::Image(tensor) => Input::Image(tensor.as_tensor_ref()),
            Part::Audio(tensor) => Input::Audio(tensor.as_tensor_ref()),
            // None is left once parts are laid out.
            Part::Picture(_) => Input::Tokens(&[]),
        }
    }
}

/// Messages, and the pictures and sounds whose places are marked in them.
struct Conversation {
    messages: Vec<Message>,
    objects: Vec<Part>,
    mark: Mark,
    tools: Vec<Tool>,
    arguments: llm::TemplateArguments,
}

/// Who says it, what, the functions that are called (identifier, name, arguments), the call that this is the result of, and other fields with their
/// JSON.
type Spoken<'py> = (
    String,
    Vec<(String, Bound<'py, PyAny>)>,
    Vec<(String, String, String)>,
    Option<String>,
    Vec<(String, String)>,
);

impl Conversation {
    fn of(spoken: Vec<Spoken<'_>>, tools: &[String], arguments: &str) -> PyResult<Self> {
        let arguments = llm::TemplateArguments::from_json(arguments).map_err(Failure::from)?;
        let tools: Result<Vec<Tool>, _> = tools.iter().map(|tool| Tool::from_json(tool)).collect();
        let tools = tools.map_err(Failure::from)?;
        let mut read = Vec::new();
        for (role, content, calls, tool_call_id, others) in spoken {
            let content: PyResult<Vec<Part>> = content.iter().map(Part::of).collect();
            read.push((role, content?, calls, tool_call_id, others));
        }
        let texts = read.iter().flat_map(|(_, content, ..)| content);
        let mark = Mark::unlike(texts.filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            _ => None,
        }));
        let (mut messages, mut objects) = (Vec::new(), Vec::new());
        for (role, content, calls, tool_call_id, others) in read {
            let mut text = String::new();
            for part in content {
                match part {
                    Part::Text(part) => text += &part,
                    part => {
                        text += mark.as_str();
                        objects.push(part);
                    }
                }
            }
            let call = |(id, name, arguments)| ToolCall { id, name, arguments };
            let tool_calls = calls.into_iter().map(call).collect();
            messages.push(Message { tool_calls, tool_call_id, others, ..Message::new(role, text) });
        }
        Ok(Conversation { messages, objects, mark, tools, arguments })
    }

    fn answer(
        self,
        runner: &mut llm::Runner,
        config: &llm::GenerationConfig,
        hear: &mut dyn FnMut(&str),
    ) -> Result<llm::Generation, Failure> {
        let Conversation { messages, objects, mark, tools, arguments } = self;
        runner.set_template_arguments(arguments);
        if objects.is_empty() {
            return Ok(runner.chat_with_tools(&messages, &tools, config, hear)?);
        }
        let laid_out = objects.into_iter().map(|part| part.laid_out(runner));
        let objects = laid_out.collect::<Result<Vec<Vec<Part>>, Failure>>()?;
        let inputs: Vec<Vec<Input<'_>>> =
            objects.iter().map(|parts| parts.iter().map(Part::input).collect()).collect();
        Ok(runner.chat_from(&messages, &tools, (&mark, &inputs), config, hear)?)
    }
}

/// What a prompt is: plain text has tokens in front and behind, and messages go on where those before ended.
enum Prompt {
    Text(String),
    Parts(Vec<Part>),
    Messages(Conversation),
}

/// Shows pieces of text to Python until it raises something: then the generation ends, and that is its error.
struct Listener {
    callback: Option<Py<PyAny>>,
    stop: Stop,
    turn: Option<Py<Turn>>,
    raised: Option<PyErr>,
}

impl Listener {
    fn new(callback: Option<Py<PyAny>>, stop: &Stop, turn: Option<Py<Turn>>) -> Self {
        Listener { callback, stop: stop.clone(), turn, raised: None }
    }

    fn hear(&mut self, piece: &str) {
        if self.raised.is_some() {
            return;
        }
        let told = Python::attach(|py| {
            // Ctrl-C ends a generation.
            py.check_signals()?;
            self.callback.as_ref().map_or(Ok(()), |callback| callback.call1(py, (piece,)).map(drop))
        });
        if let Err(error) = told {
            self.raised = Some(error);
            self.stop.stop();
        }
    }
}

/// How far a generation is that others may give up.
#[derive(Default)]
enum Progress {
    #[default]
    Waits,
    /// This ends it.
    Runs(Stop),
    IsOver,
}

/// A generation's turn to use its model, which may be given up before it comes and while it lasts.
#[pyclass(frozen, module = "torchlet._torchlet")]
#[derive(Default)]
pub(crate) struct Turn(Mutex<Progress>);

impl Turn {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It has the model.
    fn begin(&self, stop: &Stop) -> PyResult<()> {
        let mut progress = self.progress();
        if let Progress::IsOver = *progress {
            return Err(invalid_state("it was given up before its turn came"));
        }
        *progress = Progress::Runs(stop.clone());
        Ok(())
    }

    /// Others may have the model from now on, and are not to be stopped.
    fn finish(&self) {
        *self.progress() = Progress::IsOver;
    }
}

#[pymethods]
impl Turn {
    #[new]
    fn new() -> Self {
        Turn::default()
    }

    /// Gives it up. One that runs ends before its next token or part of its prompt, or with its next piece of text.
    fn end(&self) {
        let mut progress = self.progress();
        if let Progress::Runs(stop) = &*progress {
            stop.stop();
        }
        *progress = Progress::IsOver;
    }

    #[getter]
    fn is_over(&self) -> bool {
        matches!(*self.progress(), Progress::IsOver)
    }
}

/// A model that shows text to Python while it is locked. The thread that uses it is known: what listens to it, or a finaliser that happens
/// to run then, would wait for itself.
struct Model<T> {
    shared: Shared<T>,
    user: Mutex<Option<ThreadId>>,
}

/// Forgets who used a model.
struct Using<'u>(&'u Mutex<Option<ThreadId>>);

impl Drop for Using<'_> {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl<T: Send> Model<T> {
    fn new(model: T) -> Self {
        Model { shared: Shared::new(model), user: Mutex::default() }
    }

    fn check(&self) -> PyResult<()> {
        let user = *self.user.lock().unwrap_or_else(PoisonError::into_inner);
        if user == Some(std::thread::current().id()) {
            let sentence = "what listens to a model cannot use it; end the generation first";
            return Err(invalid_state(sentence));
        }
        Ok(())
    }

    fn with<R: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut T) -> Result<R, Failure> + Send,
    ) -> PyResult<R> {
        self.check()?;
        self.shared.with(py, body)
    }

    /// Does something that gives text to a listener, piece by piece.
    fn heard<R: Send>(
        &self,
        py: Python<'_>,
        mut listener: Listener,
        body: impl FnOnce(&mut T, &mut dyn FnMut(&str)) -> Result<R, Failure> + Send,
    ) -> PyResult<R> {
        self.check()?;
        let mut guard = self.shared.lock(py)?;
        let using = Using(&self.user);
        *self.user.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(std::thread::current().id());
        if let Some(turn) = &listener.turn {
            turn.get().begin(&listener.stop)?;
        }
        let model: &mut T = &mut guard;
        let made = py.detach(|| body(model, &mut |piece| listener.hear(piece)));
        if let Some(turn) = &listener.turn {
            turn.get().finish();
        }
        drop(using);
        drop(guard);
        match listener.raised {
            Some(error) => Err(error),
            None => Ok(made?),
        }
    }
}

/// Names are those of `torchlet.llm.Stats`; times are in seconds.
fn statistics<'py>(py: Python<'py>, stats: &llm::Stats) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    for (name, count) in [
        ("prompt_tokens", stats.prompt_tokens),
        ("generated_tokens", stats.generated_tokens),
        ("foreseen_tokens", stats.foreseen_tokens),
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
    Ok((made.text, made.tokens, finish, statistics(py, &made.stats)?))
}

/// A language model with its tokenizer and what it has seen.
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
    /// A runner of a program, or of several that are one model's.
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

    /// Sets the chat template of a file, or the Jinja text of one. Whether there was one.
    fn set_chat_template(&self, py: Python<'_>, source: TemplateSource) -> PyResult<bool> {
        self.model.with(py, |runner| {
            let template = match source {
                TemplateSource::Text(text) => {
                    let name =
                        |token: Option<u32>| token.map(|token| runner.tokenizer().decode(&[token]));
                    let (bos, eos) =
                        (name(runner.tokenizer().bos()), name(runner.tokenizer().eos()));
                    Some(llm::ChatTemplate::new(&text, bos.as_deref(), eos.as_deref())?)
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

    /// Parts are `("text", str)`, `("tokens", list)`, `("image", tensor)`, `("audio", tensor)` and `("picture", (points, tiling, tiles, mean, std))`.
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

    /// Messages are who says it, parts, calls of functions, the call that it is the result of and other fields; functions and what else the template
    /// is given are JSON. Gives the calls beside the rest of the text.
    #[pyo3(signature = (messages, tools, arguments, config, on_text, turn = None))]
    #[expect(clippy::too_many_arguments, reason = "they are those of Python's method")]
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
                    Said::Text(text) => made.text += &text,
                    Said::Call(call) => called.push((call.name, call.arguments)),
                }
            }
        }
        Ok((generated(py, made)?, called))
    }

    fn prefill(&self, py: Python<'_>, prompt: &str) -> PyResult<()> {
        self.model.with(py, |runner| Ok(runner.prefill(prompt)?))
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

    /// The tokens that were fed; `None` stands for each place of a picture or a sound.
    fn context(&self, py: Python<'_>) -> PyResult<Vec<Option<u32>>> {
        let known = |token: &u32| (*token != u32::MAX).then_some(*token);
        self.model.with(py, |runner| Ok(runner.context().iter().map(known).collect()))
    }

    /// The logits of the token that was fed last, unless another was chosen by them.
    fn logits(&self, py: Python<'_>) -> PyResult<Option<Tensor>> {
        self.model.with(py, |runner| {
            let Some(logits) = runner.logits() else { return Ok(None) };
            let tensor = torchlet::Tensor::from_slice(&[logits.len()], logits)?;
            Tensor::copy_of(&tensor.as_tensor_ref()).map(Some)
        })
    }

    /// What the program says of itself, by the names of its methods.
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

    /// Element type and shape of pictures and of sounds, where the program takes any.
    fn takes(&self, py: Python<'_>) -> PyResult<(Option<Shape>, Option<Shape>)> {
        let shape = |info: &TensorInfo| (info.scalar_type.name(), info.sizes.to_vec());
        self.model.with(py, |runner| {
            Ok((runner.image_input().map(shape), runner.audio_input().map(shape)))
        })
    }
}

/// Element type and sizes.
type Shape = (&'static str, Vec<i32>);

/// A template by its file, or its text.
#[derive(FromPyObject)]
enum TemplateSource {
    #[pyo3(transparent)]
    Text(String),
    #[pyo3(transparent)]
    File(PathBuf),
}

/// A program that hears and writes.
#[pyclass(frozen, module = "torchlet._torchlet")]
pub(crate) struct Transcriber {
    model: Model<llm::Transcriber>,
    stop: Stop,
}

#[pymethods]
impl Transcriber {
    /// A transcriber; `generation_config` is the text of Hugging Face's file of that name.
    #[staticmethod]
    fn open(
        py: Python<'_>,
        program: &Module,
        tokenizer: &Tokenizer,
        overrides: Overrides,
        generation_config: Option<String>,
    ) -> PyResult<Self> {
        let (program, tokenizer) = (program.program(py)?, tokenizer.0.clone());
        let overrides = overrides.into();
        let opened = py.detach(|| {
            let mut transcriber = llm::Transcriber::new(program, tokenizer, &overrides)?;
            if let Some(text) = generation_config {
                let mut tokens = transcriber.tokens().clone();
                tokens.configure(&text)?;
                transcriber.set_tokens(tokens);
            }
            Ok(transcriber)
        });
        let transcriber = opened.map_err(|error: llm::Error| Failure::from(error))?;
        let stop = transcriber.stop_handle();
        Ok(Transcriber { model: Model::new(transcriber), stop })
    }

    fn stop(&self) {
        self.stop.stop();
    }

    /// Writes down what is said in a WAV file, or in samples at a rate.
    fn transcribe<'py>(
        &self,
        py: Python<'py>,
        sound: &Bound<'py, PyAny>,
        rate: Option<u32>,
        config: TranscriptionConfig,
        on_text: Option<Py<PyAny>>,
    ) -> PyResult<Transcribed<'py>> {
        let sound = match rate {
            Some(rate) => {
                let tensor = Tensor::from_object(sound)?
                    .ok_or_else(|| invalid(format!("{} are no samples", sound.get_type())))?;
                let samples = tensor.facade(py)?.to_type(ScalarType::Float);
                let samples = samples.and_then(|tensor| tensor.to_vec::<f32>());
                llm::Sound::new(rate, samples.map_err(Failure::from)?)
            }
            None => match sound.extract()? {
                Source::Bytes(bytes) => llm::Sound::from_wav(&bytes),
                Source::Path(path) => llm::Sound::load(path),
            },
        };
        let sound = sound.map_err(Failure::from)?;
        let config = llm::TranscriptionConfig {
            start: config.start,
            language: config.language,
            task: if config.translate { llm::Task::Translate } else { llm::Task::Transcribe },
            timestamps: config.timestamps,
            max_new_tokens: config.max_new_tokens,
            sampling: config.sampling.into(),
        };
        let listener = Listener::new(on_text, &self.stop, None);
        let said = self.model.heard(py, listener, |transcriber, hear| {
            Ok(transcriber.transcribe(&sound, &config, hear)?)
        })?;
        let segments = said.segments.into_iter();
        let segments = segments.map(|segment| (segment.from, segment.to, segment.text)).collect();
        Ok((generated(py, said.generation)?, segments, said.language))
    }
}
