//! Speech recognition.

use super::hearing::{Listener, Model};
use super::settings::{Overrides, TranscriptionConfig};
use super::{Generated, Tokenizer, generated};
use crate::error::{Failure, invalid};
use crate::module::{Module, Source};
use crate::tensor::Tensor;
use pyo3::prelude::*;
use torchlet::core::ScalarType;
use torchlet::llm::{self, Stop};

/// Result of a transcription: generation, segments, language.
type Transcribed<'py> = (Generated<'py>, Vec<(f32, f32, String)>, Option<String>);

/// A speech recognition model.
#[pyclass(frozen, module = "torchlet._torchlet")]
pub(crate) struct Transcriber {
    model: Model<llm::Transcriber>,
    stop: Stop,
}

#[pymethods]
impl Transcriber {
    /// Creates a transcriber; `generation_config` is the text of Hugging Face's file of that name.
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

    /// Transcribes a WAV, FLAC or MP3 file, or samples at a given rate.
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
                let tensor = Tensor::from_object(sound)?.ok_or_else(|| {
                    invalid(format!("expected samples, found {}", sound.get_type()))
                })?;
                let samples = tensor.facade()?.to_type(ScalarType::Float);
                let samples = samples.and_then(|tensor| tensor.to_vec::<f32>());
                llm::AudioClip::new(rate, samples.map_err(Failure::from)?)
            }
            None => match sound.extract()? {
                Source::Bytes(bytes) => llm::AudioClip::from_bytes(&bytes),
                Source::Path(path) => llm::AudioClip::load(path),
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
