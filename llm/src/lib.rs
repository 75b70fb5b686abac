//! Language models: from a prompt to text, with whatever runs the program.
//!
//! A [`Runner`] has a loaded program, which it sees through the trait [`Model`] (the crate
//! `torchlet` implements it for its `Module`), and a [`Tokenizer`]. It asks the program for its
//! [`Metadata`], finds out how its methods take tokens and positions, feeds the prompt in the
//! largest pieces that these take, and then one token after the other, each chosen by a [`Sampler`]
//! from the logits of the one before. [`ChatTemplate`] makes a prompt of the messages of a
//! conversation; what the runner has already seen of it is not fed again.
//!
//! This crate computes nothing itself and knows no file format but those of tokenizers. It is no
//! server and runs nothing in threads of its own, but for templates, which need their stack;
//! several [sessions](Runner::session) over one program have caches of their own, and the program's
//! weights in common.
//!
//! Start reading at [`Runner::generate`], then `decoder.rs`, which knows the forms in which
//! programs come.

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
mod logprobs;
mod lookahead;
mod mark;
mod metadata;
mod model;
mod output;
mod picture;
mod runner;
mod sampler;
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
pub use logprobs::Logprobs;
pub use mark::Mark;
pub use metadata::{Metadata, Overrides};
pub use model::{Failure, Model};
pub use picture::{Filter, Picture, Piece, Tiling};
pub use runner::Runner;
pub use sampler::{Sampler, Sampling};
pub use shards::Shards;
pub use speech::{
    LogMel, Segment, Sound, SpeechTokens, Task, Transcriber, Transcription, TranscriptionConfig,
};
pub use stats::Stats;
pub use tokenizer::{TextStream, Tokenizer, TokenizerFormat};
pub use tools::{Said, Tool, ToolCall, ToolCalls};
