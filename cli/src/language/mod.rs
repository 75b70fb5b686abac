//! Language models: `torchlet generate`, `chat`, `bench-llm` and `serve`.

mod bench;
mod chat;
mod generate;
mod options;
#[cfg(feature = "serve")]
mod serve;

pub(crate) use bench::bench;
pub(crate) use chat::chat;
pub(crate) use generate::generate;
#[cfg(feature = "serve")]
pub(crate) use options::ServeArguments;
pub(crate) use options::{BenchLlmArguments, ChatArguments, GenerateArguments};
#[cfg(feature = "serve")]
pub(crate) use serve::serve;

use crate::failure::Failure;
use crate::model;
use options::LanguageOptions;
use std::path::{Path, PathBuf};
use std::time::Instant;
use torchlet::llm::{ChatTemplate, Error, Overrides, Runner, Stop, Tokenizer};

/// What tokenizers are called, where they lie beside their models.
const TOKENIZERS: [&str; 5] =
    ["tokenizer.json", "tokenizer.model", "tokenizer.bin", "tekken.json", "tokenizer.tiktoken"];

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
        let hint = match &error {
            Error::Template { .. } => "; give another with --chat-template",
            _ => "",
        };
        Failure::new(format!("{error}{}{hint}", source.unwrap_or_default()))
    }
}

/// The tokenizer's file: the one that was asked for, else one beside the model.
fn tokenizer_file(options: &LanguageOptions) -> Option<PathBuf> {
    options.tokenizer.clone().or_else(|| {
        let folder = options.model.parent().unwrap_or(Path::new("."));
        TOKENIZERS.iter().map(|name| folder.join(name)).find(|path| path.is_file())
    })
}

/// Opens a program and its tokenizer.
fn open(options: &LanguageOptions) -> Result<Runner, Failure> {
    let path = tokenizer_file(options).ok_or_else(|| {
        let names = TOKENIZERS.join(", ");
        Failure::new(format!(
            "no tokenizer: give one with --tokenizer, or put one beside the model, as {names}"
        ))
    })?;
    let mut runner = runner(options, Tokenizer::load(&path)?)?;
    let config = path.with_file_name("tokenizer_config.json");
    let template = match &options.chat_template {
        Some(path) if path.extension().is_some_and(|extension| extension == "json") => {
            ChatTemplate::load(path)?
        }
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                Failure::new(format!("cannot read '{}': {error}", path.display()))
            })?;
            Some(ChatTemplate::new(&text, None, None)?)
        }
        None if config.is_file() => ChatTemplate::load(&config)?,
        None => None,
    };
    if let Some(template) = template {
        runner.set_chat_template(template);
    }
    Ok(runner)
}

fn runner(options: &LanguageOptions, tokenizer: Tokenizer) -> Result<Runner, Failure> {
    let start = Instant::now();
    let module = model::open(&options.model, &options.model_options)?;
    let opened = start.elapsed();
    let overrides = Overrides {
        max_context_len: options.max_context_len,
        max_seq_len: options.max_seq_len,
        eos_ids: (!options.eos_id.is_empty()).then(|| options.eos_id.clone()),
        ..Overrides::default()
    };
    Ok(Runner::new(module, tokenizer, &overrides)?.opened_in(opened))
}

/// Lets Ctrl-C end a generation, and the program only where there is none, or it is pressed again.
fn stop_on_interrupt(stop: Stop) -> Result<(), Failure> {
    ctrlc::set_handler(move || {
        if stop.is_idle() {
            std::process::exit(130);
        }
        stop.stop();
    })
    .map_err(|error| Failure::new(format!("cannot listen for Ctrl-C: {error}")))
}
