//! `torchlet transcribe`.

use super::generate::{show, show_stats};
use super::options::TranscribeArguments;
use super::{needed_tokenizer_file, stop_on_interrupt};
use crate::failure::Failure;
use crate::model;
use std::path::Path;
use torchlet::llm::{
    AudioClip, Overrides, Sampling, Segment, Task, Tokenizer, Transcriber, TranscriptionConfig,
};

/// Transcribes an audio file and prints the text as it is generated.
pub(crate) fn transcribe(arguments: &TranscribeArguments) -> Result<(), Failure> {
    let (program, tokens) = (&arguments.program, &arguments.tokens);
    let sound = AudioClip::load(&arguments.sound)?;
    let tokenizer_file = needed_tokenizer_file(program, tokens)?;
    let tokenizer = Tokenizer::load(&tokenizer_file)?;
    let module = model::open(&program.model, &program.model_options)?;
    let overrides = Overrides { max_context_len: program.max_context_len, ..tokens.overrides() };
    let mut transcriber = Transcriber::new(module, tokenizer, &overrides)?;
    set_tokens(&mut transcriber, arguments, &tokenizer_file)?;
    stop_on_interrupt(transcriber.stop_handle())?;
    let config = TranscriptionConfig {
        start: (!arguments.start_id.is_empty()).then(|| arguments.start_id.clone()),
        language: arguments.spoken.clone(),
        task: if arguments.translate { Task::Translate } else { Task::Transcribe },
        timestamps: arguments.timestamps,
        max_new_tokens: arguments.max_new_tokens,
        sampling: Sampling { temperature: arguments.temperature, ..Sampling::default() },
    };
    let stop = transcriber.stop_handle();
    let transcription = transcriber.transcribe(&sound, &config, |text| {
        if !arguments.timestamps && show(text).is_err() {
            // The reader of standard output is gone.
            stop.stop();
        }
    })?;
    for segment in &transcription.segments {
        let _ = show(&line(segment));
    }
    if !arguments.timestamps {
        let _ = show("\n");
    }
    show_stats(arguments.stats, &transcription.generation);
    Ok(())
}

/// Applies the suppressed tokens of `generation_config.json` and of the command line.
fn set_tokens(
    transcriber: &mut Transcriber,
    arguments: &TranscribeArguments,
    tokenizer: &Path,
) -> Result<(), Failure> {
    let beside = tokenizer.with_file_name("generation_config.json");
    let config = arguments.generation_config.clone().or(beside.is_file().then_some(beside));
    let mut tokens = transcriber.tokens().clone();
    if let Some(path) = config {
        tokens.configure(&crate::budget::read_text(&path)?)?;
    }
    tokens.suppress.extend(&arguments.suppress_id);
    transcriber.set_tokens(tokens);
    Ok(())
}

/// Formats a segment as `[00:01.50 --> 00:02.00] text`.
fn line(segment: &Segment) -> String {
    let clock = |seconds: f32| {
        let hundredths = (seconds * 100.0).round() as u64;
        format!("{:02}:{:02}.{:02}", hundredths / 6000, hundredths / 100 % 60, hundredths % 100)
    };
    format!("[{} --> {}] {}\n", clock(segment.from), clock(segment.to), segment.text.trim())
}
