//! Memory for vectors: whole cache lines.

use bytemuck::{Pod, Zeroable};
use std::vec::Vec;

/// Elements of a cache line, at whose multiples buffers start.
pub(super) const LINE: usize = 16;

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([f32; LINE]);

/// A fixed number of elements, zero at first, that start with a cache line.
#[derive(Debug)]
pub(super) struct Lines {
    lines: Vec<Line>,
    len: usize,
}

impl Lines {
    /// `None` if there is not so much memory.
    pub(super) fn zeroed(len: usize) -> Option<Self> {
        let lines = bytemuck::allocation::try_zeroed_vec(len.div_ceil(LINE)).ok()?;
        Some(Lines { lines, len })
    }

    /// A copy of elements.
    pub(super) fn of(elements: &[f32]) -> Option<Self> {
        let mut lines = Self::zeroed(elements.len())?;
        lines.as_mut_slice().copy_from_slice(elements);
        Some(lines)
    }

    pub(super) fn as_slice(&self) -> &[f32] {
        let all: &[f32] = bytemuck::cast_slice(&self.lines);
        all.get(..self.len).unwrap_or(all)
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [f32] {
        let all: &mut [f32] = bytemuck::cast_slice_mut(&mut self.lines);
        let len = self.len.min(all.len());
        all.split_at_mut(len).0
    }
}
