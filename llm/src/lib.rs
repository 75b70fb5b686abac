//! Language models: text generation from a prompt, over any program runtime.
//!
//! A [`Runner`] owns a loaded program, accessed through the trait [`Model`] (the crate `torchlet`
//! implements it for its `Module`), and a [`Tokenizer`]. It reads the program's [`Metadata`] and
//! detects how its methods accept tokens and positions. Then it prefills the prompt in the largest
//! possible chunks and decodes token by token; a [`Sampler`] chooses each token from the logits. A
//! [`ChatTemplate`] renders the messages of a conversation as a prompt; the prefix that is already
//! in the KV cache is not fed again.
//!
//! This crate has no kernels, and reads no file formats except those of tokenizers, sounds and chat
//! templates. It is not a server. Its only threads render templates and evaluate grammars. Several
//! [sessions](Runner::session) over one program share its weights and have separate KV caches.
//!
//! Start reading at [`Runner::generate`], then `decoder.rs`, which describes the supported program
//! interfaces.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod chat;
mod decoder;
mod encoder;
mod error;
mod form;
mod generation;
#[cfg(feature = "grammar")]
mod grammar;
mod image;
mod logprobs;
mod lookahead;
mod metadata;
mod model;
mod output;
mod placeholder;
mod runner;
mod sampler;
mod sequences;
mod shards;
mod speech;
mod stats;
mod tokenizer;
mod tools;

pub use chat::{ChatTemplate, Message, TemplateArguments};
pub use encoder::Input;
pub use error::Error;
pub use generation::{Finish, Generation, GenerationConfig, Stop};
#[cfg(feature = "grammar")]
pub use grammar::Grammar;
pub use image::{Filter, Piece, RgbImage, Tiling};
pub use logprobs::Logprobs;
pub use metadata::{Metadata, Overrides};
pub use model::{Failure, Model};
pub use placeholder::Placeholder;
pub use runner::Runner;
pub use sampler::{Sampler, Sampling};
pub use shards::Shards;
pub use speech::{
    AudioClip, LogMel, Segment, SpeechTokens, Task, Transcriber, Transcription, TranscriptionConfig,
};
pub use stats::Stats;
pub use tokenizer::{TextStream, Tokenizer, TokenizerFormat};
pub use tools::{OutputPart, Tool, ToolCall, ToolCalls};
