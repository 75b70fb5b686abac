//! Speech: sounds, what is computed of them for models, and programs that write down what is said.

mod mel;
mod sound;
mod tokens;
mod transcriber;

pub use mel::LogMel;
pub use sound::Sound;
pub use tokens::SpeechTokens;
pub use transcriber::{Segment, Task, Transcriber, Transcription, TranscriptionConfig};
