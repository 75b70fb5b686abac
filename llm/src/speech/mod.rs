//! Speech: sounds, what is computed of them for models, and programs that write down what is said.

mod mel;
mod sound;
mod transcriber;

pub use mel::LogMel;
pub use sound::Sound;
pub use transcriber::{Transcriber, TranscriptionConfig};
