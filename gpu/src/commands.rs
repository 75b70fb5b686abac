//! Commands over named buffers, which a backend records into a command buffer.

use crate::device::PipelineKey;
use std::borrow::Cow;

/// A buffer that a plan names and a backend allocates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BufferId {
    /// Intermediate tensors, by the buffer's index in the memory plan.
    Tensors(usize),
    /// Constants and state that belong to the graph, by index.
    Constants(usize),
    /// Constants that graphs share, by index.
    Weights(usize),
    /// Staging memory that the host writes inputs to.
    Inputs,
    /// Staging memory that the host reads outputs from.
    Outputs,
    /// Staging memory that the host writes shader parameters to.
    ParameterStaging,
    /// The parameters that shaders read from memory.
    Parameters,
    /// Partial results of a [`Search`](crate::Search).
    Search,
    /// The output of weight prefetches; nothing reads it.
    PrefetchOutput,
}

/// A range of a buffer that a command reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields have their usual names")]
pub struct Binding<B = BufferId> {
    pub buffer: B,
    pub offset: u64,
    pub size: u64,
    pub written: bool,
}

impl<B: PartialEq> Binding<B> {
    /// Whether two ranges share bytes.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.buffer == other.buffer
            && self.offset < other.offset + other.size
            && other.offset < self.offset + self.size
    }
}

impl Binding {
    /// Maps the buffer name to a backend's buffer.
    pub fn resolve<B, E>(
        self,
        resolve: impl FnOnce(BufferId) -> Result<B, E>,
    ) -> Result<Binding<B>, E> {
        let Binding { buffer, offset, size, written } = self;
        Ok(Binding { buffer: resolve(buffer)?, offset, size, written })
    }
}

/// A dispatch or a copy.
#[derive(Debug, Clone)]
pub enum Command<'s, B = BufferId> {
    /// Runs a shader on buffer ranges.
    Dispatch {
        /// The pipeline that runs the shader.
        key: Cow<'s, PipelineKey>,
        /// The buffers, in the order of the shader's bindings.
        bindings: Vec<Binding<B>>,
        /// The push constants, as bytes.
        push: Cow<'s, [u8]>,
        /// The number of workgroups in each dim.
        groups: [u32; 3],
    },
    /// Copies bytes; `from` determines the size.
    #[allow(missing_docs, reason = "the fields have their usual names")]
    Copy { from: Binding<B>, to: Binding<B> },
}

impl<'s> Command<'s> {
    /// Maps all buffer names to a backend's buffers.
    ///
    /// # Errors
    /// Fails if `resolve` fails.
    pub fn resolve<B, E>(
        self,
        resolve: impl Fn(BufferId) -> Result<B, E>,
    ) -> Result<Command<'s, B>, E> {
        Ok(match self {
            Command::Dispatch { key, bindings, push, groups } => {
                let bindings = bindings.into_iter().map(|binding| binding.resolve(&resolve));
                Command::Dispatch {
                    key,
                    bindings: bindings.collect::<Result<_, E>>()?,
                    push,
                    groups,
                }
            }
            Command::Copy { from, to } => {
                Command::Copy { from: from.resolve(&resolve)?, to: to.resolve(&resolve)? }
            }
        })
    }
}
