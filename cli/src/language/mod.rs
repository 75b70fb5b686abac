//! Language models: `torchlet generate`, `chat`, `transcribe`, `bench-llm` and `serve`.

mod bandwidth;
mod bench;
mod chat;
mod generate;
mod images;
mod inputs;
mod options;
mod parts;
#[cfg(feature = "serve")]
mod serve;
mod transcribe;

pub(crate) use bench::bench;
pub(crate) use chat::chat;
pub(crate) use generate::generate;
pub(crate) use options::{
    BenchLlmArguments, ChatArguments, GenerateArguments, TranscribeArguments,
};
#[cfg(all(feature = "serve", feature = "grammar"))]
pub(crate) use serve::{COMPILE_SCHEMA, compile_schema};
#[cfg(feature = "serve")]
pub(crate) use serve::{ServeArguments, serve};
pub(crate) use transcribe::transcribe;

use crate::failure::Failure;
use crate::model;
use options::{LanguageOptions, ProgramOptions, TemplateOptions, TokenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use torchlet::core::ValueMeta;
use torchlet::llm::{ChatTemplate, Error, Model, Runner, Shards, Stop, Tokenizer};
use torchlet::{Module, Profiler};

/// Names of tokenizer files that are looked for beside a model.
const TOKENIZERS: [&str; 5] =
    ["tokenizer.json", "tokenizer.model", "tokenizer.bin", "tekken.json", "tokenizer.tiktoken"];

/// Files beside a tokenizer that may contain a chat template; newer models have it in a separate
/// file.
const TEMPLATES: [&str; 2] = ["chat_template.jinja", "tokenizer_config.json"];

/// Hint for programs that are not language models.
const OTHER_PROGRAMS: &str = "; use `torchlet run` for programs that are not language models";

/// Whether a method has an integer tensor as input, as token inputs are. Malformed metadata is
/// reported elsewhere.
fn has_token_input(module: &Module) -> bool {
    let names = module.method_names().unwrap_or_default();
    names.iter().any(|name| {
        let Ok(meta) = module.method_meta(name) else { return false };
        (0..meta.input_count()).any(|index| match meta.input(index) {
            Ok(Some(ValueMeta::Tensor(tensor))) => tensor.info.scalar_type.is_integral(false),
            _ => false,
        })
    })
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let hint = match &error {
            Error::Template { .. } => "; pass another with --chat-template",
            Error::ForeignToken { .. } => " (--tokenizer)",
            Error::Interface { .. } => OTHER_PROGRAMS,
            _ => "",
        };
        let text = error.to_string();
        let source = match error {
            // Adds the hint of the inner error, except for `--method`, which these commands lack.
            Error::Model { source, .. } => Some(match source.downcast::<torchlet::Error>() {
                Ok(source) if !matches!(*source, torchlet::Error::NoSuchMethod { .. }) => {
                    Failure::from(*source).to_string()
                }
                Ok(source) => source.to_string(),
                Err(source) => source.to_string(),
            }),
            other => std::error::Error::source(&other).map(ToString::to_string),
        };
        let source = source.map(|source| format!(": {source}"));
        Failure::new(format!("{text}{}{hint}", source.unwrap_or_default()))
    }
}

/// Returns the requested tokenizer file, or one beside the model.
fn tokenizer_file(program: &ProgramOptions, tokens: &TokenOptions) -> Option<PathBuf> {
    tokens.tokenizer.clone().or_else(|| {
        let folder = program.model.parent().unwrap_or(Path::new("."));
        TOKENIZERS.iter().map(|name| folder.join(name)).find(|path| path.is_file())
    })
}

fn needed_tokenizer_file(
    program: &ProgramOptions,
    tokens: &TokenOptions,
) -> Result<PathBuf, Failure> {
    if let Some(file) = tokenizer_file(program, tokens) {
        return Ok(file);
    }
    // Report a file that is not a language model before a missing tokenizer.
    let module = model::builder(&program.model_options)?.load(&program.model)?;
    if !has_token_input(&module) {
        let path = program.model.display();
        return Err(Failure::new(format!(
            "'{path}' is not a language model: no method has a token input{OTHER_PROGRAMS}"
        )));
    }
    let names = TOKENIZERS.join(", ");
    Err(Failure::new(format!(
        "no tokenizer: pass one with --tokenizer, or put one next to the model, named one of \
         {names}"
    )))
}

/// Loads a program and its tokenizer.
fn open(options: &LanguageOptions) -> Result<Runner, Failure> {
    runner(options, Tokenizer::load(needed_tokenizer_file(&options.program, &options.tokens)?)?)
}

/// Loads a program, its tokenizer and its chat template.
fn open_with_template(
    options: &LanguageOptions,
    template_options: &TemplateOptions,
    sequences: usize,
) -> Result<Runner, Failure> {
    let arguments = template_options.arguments()?;
    let path = needed_tokenizer_file(&options.program, &options.tokens)?;
    let tokenizer = Tokenizer::load(&path)?;
    let mut runner = runner_for(options, tokenizer, Purpose { sequences, profiler: None })?;
    runner.set_template_arguments(arguments);
    runner.set_messages_are_text(!template_options.control_tokens_in_messages);
    let beside = TEMPLATES.map(|name| path.with_file_name(name));
    let file =
        template_options.chat_template.as_ref().or(beside.iter().find(|file| file.is_file()));
    // The special tokens are those of the tokenizer, unless the template has its own beside it.
    let load = |file: &PathBuf| {
        let own = file.with_file_name("tokenizer_config.json");
        let config = if own.is_file() { own } else { path.with_file_name("tokenizer_config.json") };
        ChatTemplate::load_with_config(file, config)
    };
    let template = file.map(load).transpose()?.flatten();
    if let (Some(path), None) = (&template_options.chat_template, &template) {
        return Err(Failure::new(format!("'{}' has no chat template", path.display())));
    }
    if let Some(template) = template {
        runner.set_chat_template(template);
    }
    Ok(runner)
}

fn runner(options: &LanguageOptions, tokenizer: Tokenizer) -> Result<Runner, Failure> {
    runner_for(options, tokenizer, Purpose { sequences: 1, profiler: None })
}

/// What a runner is used for.
struct Purpose {
    /// Number of sessions that share runs.
    sequences: usize,
    profiler: Option<Arc<Profiler>>,
}

/// Like [`runner`], for a purpose.
fn runner_for(
    options: &LanguageOptions,
    tokenizer: Tokenizer,
    Purpose { sequences, profiler }: Purpose,
) -> Result<Runner, Failure> {
    let start = Instant::now();
    let is_sharded = !options.pieces.shard.is_empty();
    if is_sharded && sequences > 1 {
        anstream::eprintln!("sessions do not share runs: the model is split into several programs");
    }
    let sequences = if is_sharded { 1 } else { sequences };
    let open = |path: &Path| -> Result<Module, Failure> {
        let builder = model::builder(&options.program.model_options)?;
        let builder = match &profiler {
            Some(profiler) => builder.event_tracer(profiler.clone()),
            None => builder,
        };
        let module = builder.sequences(sequences).load(path)?;
        if let Some(why) = module.sequences_error() {
            anstream::eprintln!("sessions do not share runs: {why}");
        }
        Ok(module)
    };
    let module = open(&options.program.model)?;
    let overrides = options.overrides();
    if !is_sharded {
        let opened = start.elapsed();
        return Ok(Runner::new(module, tokenizer, &overrides)?.with_load_time(opened));
    }
    let mut programs: Vec<Box<dyn Model>> = vec![Box::new(module)];
    for shard in &options.pieces.shard {
        programs.push(Box::new(open(shard)?));
    }
    let opened = start.elapsed();
    Ok(Runner::new(Shards::new(programs), tokenizer, &overrides)?.with_load_time(opened))
}

/// Makes Ctrl-C stop the current generation. Without one, or on the second press, it ends the
/// process.
fn stop_on_interrupt(stop: Stop) -> Result<(), Failure> {
    ctrlc::set_handler(move || {
        if stop.is_idle() {
            std::process::exit(130);
        }
        stop.stop();
    })
    .map_err(|error| Failure::new(format!("cannot handle Ctrl-C: {error}")))
}
