//! `torchlet generate`.

use super::inputs::{Part, parts};
use super::options::{GenerateArguments, StatsForm};
use super::{open, stop_on_interrupt};
use crate::budget;
use crate::failure::Failure;
use std::io::{IsTerminal, Read, Write};
use torchlet::llm::{Finish, Generation, GenerationConfig, Input};

const NO_PROMPT: &str = "no prompt: pass one with --prompt or on standard input";

/// Generates text after a prompt and streams it to standard output.
pub(crate) fn generate(arguments: &GenerateArguments) -> Result<(), Failure> {
    let prompt = match &arguments.prompt {
        Some(prompt) => prompt.clone(),
        None => read_prompt()?,
    };
    let is_text = arguments.image.is_empty() && arguments.audio.is_empty();
    // With `--prompt ''`, generation starts from the BOS token, if the model has one.
    if is_text && prompt.is_empty() && arguments.prompt.is_none() {
        return Err(Failure::new(NO_PROMPT));
    }
    if arguments.image.is_empty() && arguments.tiling.tiling().is_some() {
        return Err(Failure::new("--tiling requires an image: pass one with --image"));
    }
    let mut runner = open(&arguments.language)?;
    let has_bos = runner.metadata().bos_id.is_some();
    let num_bos = match arguments.num_bos {
        Some(1..) if !has_bos => {
            return Err(Failure::new(
                "--num-bos: neither the program nor the tokenizer has a BOS token",
            ));
        }
        number => number.unwrap_or(usize::from(has_bos)),
    };
    let config = GenerationConfig {
        echo: arguments.echo,
        ignore_eos: arguments.ignore_eos,
        num_bos,
        ..arguments.sampling.config()?
    };
    stop_on_interrupt(runner.stop_handle())?;
    let mut closed = Ok(());
    let stop = runner.stop_handle();
    let on_text = |text: &str| {
        if closed.is_ok() {
            closed = show(text);
        }
        if closed.is_err() {
            // The reader of standard output is gone.
            stop.stop();
        }
    };
    let generation = if is_text {
        runner.generate(&prompt, &config, on_text)?
    } else {
        let parts = parts(&runner, arguments, &prompt)?;
        if arguments.echo {
            let _ = show(&prompt);
        }
        // The runner would echo placeholders for images and audio.
        let config = GenerationConfig { echo: false, ..config };
        let inputs: Vec<Input<'_>> = parts.iter().map(Part::input).collect();
        runner.generate_from(&inputs, &config, on_text)?
    };
    if std::io::stdout().is_terminal() || !generation.text.ends_with('\n') {
        let _ = show("\n");
    }
    show_schema_mismatch(&generation, runner.metadata().max_context_len);
    show_stats(arguments.sampling.stats, &generation);
    Ok(())
}

/// Reports a text that was cut off before it matches its schema.
pub(super) fn show_schema_mismatch(generation: &Generation, limit: usize) {
    if generation.fits {
        return;
    }
    let why = match generation.finish {
        Finish::Length => "allow more tokens with --max-new-tokens or --seq-len".into(),
        Finish::Context => format!("the context of {limit} tokens is full"),
        Finish::Stop => "a --stop text ended it".into(),
        _ => "it was interrupted".into(),
    };
    anstream::eprintln!("the text does not match the schema: {why}");
}

fn read_prompt() -> Result<String, Failure> {
    if std::io::stdin().is_terminal() {
        return Err(Failure::new(NO_PROMPT));
    }
    let mut prompt = String::new();
    std::io::stdin()
        .take(budget::MAX_TEXT + 1)
        .read_to_string(&mut prompt)
        .map_err(|error| Failure::new(format!("cannot read the prompt: {error}")))?;
    if prompt.len() as u64 > budget::MAX_TEXT {
        return Err(Failure::new("the prompt has more than 16 MiB"));
    }
    Ok(prompt.trim_end_matches(['\r', '\n']).into())
}

/// Writes and flushes text.
pub(super) fn show(text: &str) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

/// Shows the statistics of a generation.
pub(super) fn show_stats(form: Option<StatsForm>, generation: &Generation) {
    match form {
        Some(StatsForm::Json) => anstream::eprintln!("PyTorchObserver {}", generation.stats.json()),
        Some(StatsForm::Text) => {
            anstream::eprintln!("{}", generation.stats);
            if let Some(peak) = peak_memory() {
                anstream::eprintln!("peak memory  {}", crate::terminal::bytes(peak));
            }
        }
        None => {}
    }
}

/// Peak resident memory of the process (Linux only).
pub(super) fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
