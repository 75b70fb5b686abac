//! Speech: sounds, log-mel features, and speech-to-text programs.

#[cfg(feature = "sounds")]
mod compressed;
mod mel;
mod sound;
mod tokens;
mod transcriber;

pub use mel::LogMel;
pub use sound::AudioClip;
pub use tokens::SpeechTokens;
pub use transcriber::{Segment, Task, Transcriber, Transcription, TranscriptionConfig};
