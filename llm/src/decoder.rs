//! Supported program interfaces, and how tokens are fed to each.
//!
//! | methods | signature | use |
//! |---|---|---|
//! | `forward` | tokens, position → logits | prefill and decode |
//! | `forward` | tokens → logits | no cache: the whole context on each call |
//! | `prefill`, `decode` | as `forward` | separate methods for prefill and decode |
//! | `token_embedding`, `text_decoder` | tokens → embeddings; embeddings, position → logits | prefill and decode; also named `token_embeddings`, `decoder` |
//! | `text_decoder` | tokens, position, embeddings → logits | prefill and decode; Gemma 4, which uses the embeddings at image and sound positions |
//!
//! Tokens are 64- or 32-bit integers of shape `[1, n]` or `[n]`, where n is static or has a bound.
//! The position input holds the position of the first token, or of every token. Logits are returned
//! for the last token, or for every token. Programs with a `text_decoder` may have encoders for
//! images and sounds (`encoder.rs`).

mod inputs;
mod logits;

pub(crate) use logits::rows;

use crate::encoder::{Encoded, Encoders, check_size};
use crate::error::{Error, filled};
use crate::metadata::Interface;
use crate::model::{Failure, Model};
use inputs::{Elements, Position, Sequence, leading_ones};
use logits::{argmax_rows, requested_rows};
use std::ops::Range;
use torchlet_core::{
    Scalar, ScalarType, ShapeDynamism, TensorInfo, TensorRef, ValueMeta, ValueRef,
};

/// Names of the embedding method and of the decoder that accepts embeddings.
const EMBEDDINGS: [(&str, &str); 2] =
    [("token_embedding", "text_decoder"), ("token_embeddings", "decoder")];

/// Detected interface of a program.
#[derive(Debug)]
pub(crate) struct Decoder {
    embedding: Option<Stage>,
    /// Encoders for images and sounds, if the decoder accepts embeddings.
    pub(crate) encoders: Encoders,
    prefill: Stage,
    decode: Stage,
}

/// Properties of the state that a program keeps between calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StateLimits {
    /// Whether tokens can be rolled back by setting the position. That requires a slot per position
    /// in every state tensor. Recurrent states and sliding windows have no such dim.
    pub(crate) can_roll_back: bool,
    /// Maximum number of tokens per call. A ring-buffer cache has twice as many slots as its
    /// window. More tokens per call than the window would overwrite entries that the first tokens
    /// attend to. An unknown number of slots are attention sinks, so the limit is half of the
    /// window.
    pub(crate) max_tokens: usize,
}

/// Requested result for some of the tokens that are fed.
pub(crate) enum RequestedOutput<'w> {
    /// Logits, concatenated over the tokens.
    Logits(&'w mut Vec<f32>),
    /// Argmax of the logits of each token, `None` if no logit is greater than minus infinity. The
    /// device may compute it without transferring the logits.
    Argmax(&'w mut Vec<Option<u32>>),
}

/// A method that accepts tokens or embeddings.
#[derive(Debug, Clone, PartialEq)]
struct Stage {
    method: String,
    tokens: Sequence,
    position: Position,
    /// Dtype and width of an additional embeddings input. It is ignored for text tokens.
    extra_embeddings: Option<(ScalarType, usize)>,
    /// Whether the first output has a row for each token, instead of the last one only.
    logits_per_token: bool,
    /// Size of the last dim of that output.
    vocabulary_len: usize,
}

impl Stage {
    fn of(model: &dyn Model, method: &str, takes_tokens: bool) -> Result<Self, Error> {
        let meta = model
            .method_meta(method)
            .map_err(Error::model(format!("read the inputs of the method '{method}'")))?;
        let fail = |message: String| Error::interface(method, message);
        let input = |index| {
            meta.input(index).map_err(|source| Error::Model {
                action: format!("read input {index} of the method '{method}'"),
                source: Box::new(source),
            })
        };
        let count = meta.input_count();
        if !(1..=3).contains(&count) {
            return Err(fail(format!(
                "expected 1 to 3 inputs (tokens, a position, embeddings), found {count}"
            )));
        }
        let tokens = match input(0)? {
            Some(ValueMeta::Tensor(tensor)) => {
                let is_dynamic = tensor.dynamism != ShapeDynamism::Static;
                Sequence::of(&tensor.info, is_dynamic, takes_tokens).ok_or_else(|| {
                    let expected = if takes_tokens { "tokens" } else { "embeddings of tokens" };
                    fail(format!("input 0: expected {expected}, found {}", describe(&tensor.info)))
                })?
            }
            other => return Err(fail(format!("input 0: expected a tensor, found {other:?}"))),
        };
        let position = match (count, input(1)) {
            (1, _) => Position::Absent,
            (_, Ok(Some(ValueMeta::Scalar(Scalar::Int(_))))) => Position::Number,
            (_, Ok(Some(ValueMeta::Tensor(tensor)))) => {
                let (info, bound) = (&tensor.info, tokens.bound);
                let is_dynamic = tensor.dynamism != ShapeDynamism::Static;
                Position::of(info, is_dynamic, bound).ok_or_else(|| {
                    fail(format!("input 1: expected an integer position, found {}", describe(info)))
                })?
            }
            (_, other) => {
                return Err(fail(format!(
                    "input 1: expected an integer position, found {:?}",
                    other?
                )));
            }
        };
        let extra_embeddings = match (count, takes_tokens) {
            (3, true) => match input(2)? {
                Some(ValueMeta::Tensor(tensor)) => {
                    check_size(method, &tensor.info)?;
                    let is_dynamic = tensor.dynamism != ShapeDynamism::Static;
                    let found = Sequence::of(&tensor.info, is_dynamic, false)
                        .filter(|found| tensor.info.sizes.len() == 3 && found.bound == tokens.bound)
                        .and_then(|found| Some((found.scalar_type, found.width?)));
                    let info = &tensor.info;
                    let expected = "input 2: expected embeddings with a row per token, found";
                    Some(found.ok_or_else(|| fail(format!("{expected} {}", describe(info))))?)
                }
                other => return Err(fail(format!("input 2: expected a tensor, found {other:?}"))),
            },
            (3, false) => {
                return Err(fail("expected 2 inputs (embeddings, a position), found 3".into()));
            }
            _ => None,
        };
        let action = format!("read the outputs of the method '{method}'");
        let output = model.output_info(method).map_err(Error::model(action))?;
        let sizes: Vec<usize> = output
            .iter()
            .flat_map(|info| info.sizes.iter().map(|&size| usize::try_from(size).unwrap_or(0)))
            .collect();
        let rows = sizes
            .split_last()
            .map(|(_, rows)| rows.iter().try_fold(1usize, |a, b| a.checked_mul(*b)));
        let logits_per_token =
            tokens.is_dynamic && tokens.bound > 1 && rows.flatten() == Some(tokens.bound);
        let vocabulary_len = sizes.last().copied().unwrap_or(0);
        Ok(Stage {
            method: method.into(),
            tokens,
            position,
            extra_embeddings,
            logits_per_token,
            vocabulary_len,
        })
    }

    /// Number of tokens for the next call, given `available` tokens. 0 if the method has a static
    /// shape and fewer tokens are available.
    fn chunk_len(&self, available: usize) -> usize {
        match self.tokens.is_dynamic {
            true => available.min(self.tokens.bound),
            false if available >= self.tokens.bound => self.tokens.bound,
            false => 0,
        }
    }

    /// Runs the method through `run`, on `count` tokens whose elements are in `first`.
    fn run<T>(
        &self,
        first: &Elements<'_>,
        count: usize,
        position: usize,
        run: impl FnOnce(&str, &[ValueRef<'_>]) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        let too_large = || {
            let message =
                format!("{count} tokens from position {position} exceed 32-bit positions");
            Error::interface(&self.method, message)
        };
        let positions = match &self.position {
            Position::Each { .. } => position..position.saturating_add(count),
            _ => position..position + 1,
        };
        let positions: Result<Vec<i32>, _> = positions.map(i32::try_from).collect();
        let positions = positions.map_err(|_| too_large())?;
        let wide: Vec<i64> = positions.iter().map(|&place| place.into()).collect();
        let second = match &self.position {
            Position::Absent => None,
            Position::Number => {
                Some(ValueRef::Scalar(Scalar::Int(wide.first().copied().unwrap_or(0))))
            }
            Position::First { scalar_type, rank } | Position::Each { scalar_type, rank } => {
                let sizes = leading_ones(*rank, &[positions.len()]);
                let tensor = match scalar_type {
                    ScalarType::Int => TensorRef::from_slice(&sizes, &positions),
                    _ => TensorRef::from_slice(&sizes, &wide),
                };
                Some(ValueRef::Tensor(tensor.ok_or_else(too_large)?))
            }
        };
        let sizes = match self.tokens.width {
            None => leading_ones(self.tokens.rank, &[count]),
            Some(width) => leading_ones(self.tokens.rank, &[count, width]),
        };
        let mismatch = || {
            let (method, count) = (&self.method, first.count());
            Error::interface(
                method,
                format!("expected an input of shape {sizes:?}, found {count} elements"),
            )
        };
        let first = ValueRef::Tensor(first.tensor(&sizes).ok_or_else(mismatch)?);
        let nothing: Vec<u8>;
        let third = match self.extra_embeddings {
            None => None,
            Some((scalar_type, width)) => {
                let sizes = leading_ones(3, &[count, width]);
                let info = TensorInfo::contiguous(scalar_type, &sizes).ok_or_else(mismatch)?;
                nothing = filled(0, info.nbytes(), "the additional embeddings")?;
                Some(ValueRef::Tensor(TensorRef::new(info, &nothing).ok_or_else(mismatch)?))
            }
        };
        let inputs: Vec<_> = [Some(first), second, third].into_iter().flatten().collect();
        let action = format!("run '{}' on {count} tokens at position {position}", self.method);
        run(&self.method, &inputs).map_err(Error::model(action))
    }

    /// Runs the method, and reads the requested results for some of its tokens.
    fn run_and_read(
        &self,
        model: &mut dyn Model,
        first: &Elements<'_>,
        count: usize,
        position: usize,
        requested: Option<(Range<usize>, RequestedOutput<'_>)>,
    ) -> Result<(), Error> {
        let mut found = Err("output 0: expected a tensor".into());
        match requested {
            None => {
                found = Ok(());
                self.run(first, count, position, |method, inputs| {
                    model.run(method, inputs, &mut |_, _| ())
                })?;
            }
            Some((requested, RequestedOutput::Logits(logits))) => {
                let mut read = |index: usize, value: ValueRef<'_>| {
                    if let (0, ValueRef::Tensor(tensor)) = (index, value) {
                        found = rows(&tensor, count, &requested, logits);
                    }
                };
                self.run(first, count, position, |method, inputs| {
                    model.run(method, inputs, &mut read)
                })?;
            }
            Some((requested, RequestedOutput::Argmax(argmax_tokens))) => {
                let mut read = |index: usize, value: ValueRef<'_>| {
                    if let (0, ValueRef::Tensor(tensor)) = (index, value) {
                        found = argmax_rows(&tensor, count, &requested, argmax_tokens);
                    }
                };
                let known = self.run(first, count, position, |method, inputs| {
                    model.run_argmax(method, inputs, &mut read)
                })?;
                if let Some(known) = known {
                    argmax_tokens.clear();
                    let range = requested_rows(known.len(), count, &requested);
                    found = match range.and_then(|range| known.get(range)) {
                        Some(known) => {
                            argmax_tokens.extend_from_slice(known);
                            Ok(())
                        }
                        None => {
                            let rows = known.len();
                            Err(format!(
                                "output 0: expected logits of {count} tokens, found {rows} rows"
                            ))
                        }
                    };
                }
            }
        }
        found.map_err(|message| Error::interface(&self.method, message))
    }
}

/// Whether a state tensor of this shape has a slot per position: a KV cache or its scales,
/// `[batch, positions, heads, width]`, possibly with the second and third dim swapped, or a vector
/// of positions.
fn has_slot_per_position(sizes: &[i32], positions: usize) -> bool {
    let is_enough = |size: &i32| usize::try_from(*size).is_ok_and(|size| size >= positions);
    match sizes {
        [_, first, second, _] => is_enough(first) || is_enough(second),
        [size] => is_enough(size),
        _ => false,
    }
}

fn describe(info: &TensorInfo) -> String {
    format!("a tensor of {:?} {:?}", info.scalar_type, &info.sizes[..])
}

impl Decoder {
    /// Detects the interface of a program.
    pub(crate) fn of(model: &dyn Model) -> Result<Self, Error> {
        let names = model.method_names().map_err(Error::model("list the program's methods"))?;
        let has = |name: &str| names.iter().any(|other| other == name);
        if let Some((embedding, decoder)) =
            EMBEDDINGS.into_iter().find(|(embedding, decoder)| has(embedding) && has(decoder))
        {
            let decode = Stage::of(model, decoder, false)?;
            let embedding = Some(Stage::of(model, embedding, true)?);
            let encoders = Encoders::of(model, &names)?;
            return Ok(Decoder { embedding, encoders, prefill: decode.clone(), decode });
        }
        let (prefill, decode) = match (has("prefill") && has("decode"), has("forward")) {
            (true, _) => ("prefill", "decode"),
            (_, true) => ("forward", "forward"),
            _ if has("text_decoder") => ("text_decoder", "text_decoder"),
            _ => {
                return Err(Error::interface(
                    "forward",
                    format!(
                        "the program has neither this method nor 'prefill' and 'decode'; \
                         its methods are {}",
                        names.join(", ")
                    ),
                ));
            }
        };
        let (prefill, decode) = (Stage::of(model, prefill, true)?, Stage::of(model, decode, true)?);
        Ok(Decoder { embedding: None, encoders: Encoders::default(), prefill, decode })
    }

    pub(crate) fn interface(&self) -> Interface {
        let embedding = self.embedding.as_ref().map_or(usize::MAX, |stage| stage.tokens.bound);
        Interface {
            tokens: self.prefill.tokens.bound.min(embedding),
            is_dynamic: self.prefill.tokens.is_dynamic,
            has_position: self.has_position(),
        }
    }

    /// Determines how the state behaves for this context length.
    pub(crate) fn state_limits(
        &self,
        model: &mut dyn Model,
        context: usize,
    ) -> Result<StateLimits, Error> {
        let mut state_limits =
            StateLimits { can_roll_back: self.has_position(), max_tokens: usize::MAX };
        if !self.has_position() {
            return Ok(state_limits);
        }
        for stage in self.stages() {
            let action = format!("list the state of the method '{}'", stage.method);
            let state = model.state(&stage.method).map_err(Error::model(action))?;
            for info in state {
                state_limits.can_roll_back &= has_slot_per_position(&info.sizes, context);
                // Vector that maps the slots of a ring-buffer cache to positions.
                if let ([size], ScalarType::Long) = (&info.sizes[..], info.scalar_type)
                    && let Ok(size) = usize::try_from(*size)
                    && size < context
                {
                    state_limits.max_tokens = state_limits.max_tokens.min((size / 4).max(1));
                }
            }
        }
        Ok(state_limits)
    }

    /// Whether tokens have positions in a cache.
    pub(crate) fn has_position(&self) -> bool {
        self.decode.position != Position::Absent
    }

    fn stages(&self) -> impl Iterator<Item = &Stage> {
        let prefill = Some(&self.prefill).filter(|prefill| **prefill != self.decode);
        self.embedding.iter().chain(prefill).chain([&self.decode])
    }

    pub(crate) fn load(&self, model: &mut dyn Model) -> Result<(), Error> {
        for stage in self.stages() {
            let action = format!("load the method '{}'", stage.method);
            model.load(&stage.method).map_err(Error::model(action))?;
        }
        self.encoders.load(model)
    }

    pub(crate) fn reset(&self, model: &mut dyn Model) -> Result<(), Error> {
        for stage in self.stages() {
            let action = format!("reset the method '{}'", stage.method);
            model.reset(&stage.method).map_err(Error::model(action))?;
        }
        Ok(())
    }

    /// Number of tokens for the next call, at most `limit`.
    pub(crate) fn chunk(&self, available: usize, limit: usize) -> usize {
        let max_tokens =
            self.embedding.as_ref().map_or(available, |stage| stage.chunk_len(available));
        let max_tokens = max_tokens.min(limit.max(1));
        match self.prefill.chunk_len(max_tokens) {
            0 => self.decode.chunk_len(max_tokens).max(1),
            count => count,
        }
    }

    /// Number of embedding rows for the next call.
    pub(crate) fn rows(&self, available: usize, limit: usize) -> usize {
        self.decode.chunk_len(available.min(limit.max(1))).max(1)
    }

    /// Feeds tokens from a position on. `requested` is the result for the last token.
    pub(crate) fn step(
        &self,
        model: &mut dyn Model,
        tokens: &[u32],
        position: usize,
        requested: Option<RequestedOutput<'_>>,
    ) -> Result<(), Error> {
        let single = tokens.len() == 1 && self.decode.chunk_len(1) == 1;
        let stage = if single { &self.decode } else { &self.prefill };
        let requested = requested.map(|requested| (tokens.len() - 1..tokens.len(), requested));
        self.feed(stage, model, tokens, position, requested)
    }

    /// Maximum number of tokens per call with logits for each token, or 0.
    pub(crate) fn lookahead(&self) -> usize {
        let Stage { tokens, logits_per_token, .. } = &self.prefill;
        let embedded = self.embedding.as_ref().map_or(usize::MAX, |stage| {
            if stage.tokens.is_dynamic { stage.tokens.bound } else { 0 }
        });
        if *logits_per_token && self.has_position() { tokens.bound.min(embedded) } else { 0 }
    }

    /// Feeds tokens from a position on. `requested` is the result for each token, in order.
    pub(crate) fn step_each(
        &self,
        model: &mut dyn Model,
        tokens: &[u32],
        position: usize,
        requested: RequestedOutput<'_>,
    ) -> Result<(), Error> {
        self.feed(&self.prefill, model, tokens, position, Some((0..tokens.len(), requested)))
    }

    /// Number of logits per token.
    pub(crate) fn vocabulary(&self) -> usize {
        self.decode.vocabulary_len
    }

    /// Runs a stage on tokens, or on their embeddings.
    fn feed(
        &self,
        stage: &Stage,
        model: &mut dyn Model,
        tokens: &[u32],
        position: usize,
        requested: Option<(Range<usize>, RequestedOutput<'_>)>,
    ) -> Result<(), Error> {
        let mut embeddings = Vec::new();
        let elements = match &self.embedding {
            None => Elements::of_tokens(tokens, stage.tokens.scalar_type),
            Some(embedding) => {
                let elements = Elements::of_tokens(tokens, embedding.tokens.scalar_type);
                let mut found = None;
                let mut read = |index: usize, value: ValueRef<'_>| {
                    if let (0, ValueRef::Tensor(tensor)) = (index, value) {
                        embeddings.extend_from_slice(tensor.bytes());
                        found = Some(tensor.info().scalar_type);
                    }
                };
                embedding.run(&elements, tokens.len(), position, |method, inputs| {
                    model.run(method, inputs, &mut read)
                })?;
                if found != Some(stage.tokens.scalar_type) {
                    let expected = stage.tokens.scalar_type;
                    let found = found.map_or("no tensor".to_owned(), |found| found.to_string());
                    let message = format!(
                        "output 0: expected a tensor of {expected}, as '{}' expects, found {found}",
                        stage.method
                    );
                    return Err(Error::interface(&embedding.method, message));
                }
                Elements::Bytes { scalar_type: stage.tokens.scalar_type, bytes: &embeddings }
            }
        };
        stage.run_and_read(model, &elements, tokens.len(), position, requested)
    }

    /// Feeds rows of an encoder's output from a position on. `requested` is the result for the last
    /// row.
    pub(crate) fn step_encoded(
        &self,
        model: &mut dyn Model,
        encoded: &Encoded,
        rows: Range<usize>,
        position: usize,
        requested: Option<RequestedOutput<'_>>,
    ) -> Result<(), Error> {
        let stage = &self.decode;
        let Sequence { scalar_type, width, .. } = stage.tokens;
        if encoded.scalar_type != scalar_type || width != Some(encoded.width) {
            let Encoded { scalar_type: found, width: elements, .. } = encoded;
            let expected = width.map_or("tokens".to_owned(), |width| {
                format!("{width} elements of {scalar_type} per token")
            });
            let message = format!(
                "input 0: expected {expected}, found {elements} elements of {found} from the \
                 encoder"
            );
            return Err(Error::interface(&stage.method, message));
        }
        let count = rows.len();
        let bytes = encoded.rows(rows).unwrap_or_default();
        let requested = requested.map(|requested| (count.saturating_sub(1)..count, requested));
        stage.run_and_read(
            model,
            &Elements::Bytes { scalar_type, bytes },
            count,
            position,
            requested,
        )
    }

    /// Feeds the whole context to a method without a cache. `requested` is the result for the last
    /// token.
    pub(crate) fn step_uncached(
        &self,
        model: &mut dyn Model,
        tokens: &[u32],
        requested: Option<RequestedOutput<'_>>,
    ) -> Result<(), Error> {
        let stage = &self.prefill;
        let Sequence { bound, is_dynamic, .. } = self.embedding.as_ref().unwrap_or(stage).tokens;
        let last = tokens.len().saturating_sub(1);
        let mut padded = tokens.to_vec();
        if !is_dynamic && padded.len() < bound {
            // Attention is causal: padding does not affect earlier tokens.
            padded.resize(bound, 0);
        }
        self.feed(stage, model, &padded, 0, requested.map(|it| (last..last + 1, it)))
    }
}
