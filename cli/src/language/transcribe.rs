//! `torchlet transcribe`.

use super::generate::{show, show_stats};
use super::needed_tokenizer_file;
use super::options::TranscribeArguments;
use crate::failure::Failure;
use crate::model;
use torchlet::llm::{Sampling, Sound, Tokenizer, Transcriber, TranscriptionConfig};

/// Writes down what is said in a sound, as it is heard.
pub(crate) fn transcribe(arguments: &TranscribeArguments) -> Result<(), Failure> {
    let options = &arguments.language;
    let has_others = options.chat_template.is_some() || options.max_seq_len.is_some();
    if !options.shard.is_empty() || has_others {
        let message = "--shard, --chat-template and --max-seq-len are not for speech";
        return Err(Failure::new(message));
    }
    let sound = Sound::load(&arguments.sound)?;
    let tokenizer = Tokenizer::load(needed_tokenizer_file(options)?)?;
    let module = model::open(&options.model, &options.model_options)?;
    let mut transcriber = Transcriber::new(module, tokenizer, &options.overrides())?;
    let config = TranscriptionConfig {
        start: (!arguments.start_id.is_empty()).then(|| arguments.start_id.clone()),
        language: arguments.spoken.clone(),
        max_new_tokens: arguments.max_new_tokens,
        sampling: Sampling { temperature: arguments.temperature, ..Sampling::default() },
    };
    let said = transcriber.transcribe(&sound, &config, |text| {
        // Where nobody reads it, the end comes soon.
        let _ = show(text);
    })?;
    let _ = show("\n");
    show_stats(arguments.stats, &said);
    Ok(())
}
