//! Joint iteration over the elements of tensors with different layouts.
//!
//! An output is dense: position `i` of its memory is its `i`-th element in memory order. A [`Walk`]
//! visits the output in that order. For each run over the innermost dim, it yields the positions of
//! the corresponding elements of each input. Dims that are contiguous with each other in all
//! tensors are merged, so most walks consist of a single run.

use torchlet_core::layout::MAX_RANK;
use torchlet_core::{KernelError, TensorInfo};

/// Iteration plan over an output and `N` inputs.
#[derive(Debug, Clone)]
pub(crate) struct Walk<const N: usize> {
    rank: usize,
    /// Sizes from outermost to innermost in the output's memory order.
    sizes: [usize; MAX_RANK],
    /// Strides of each input for each dim, in elements, in the same order.
    strides: [[isize; N]; MAX_RANK],
    /// Start position of each input.
    base: [isize; N],
    numel: usize,
}

/// Strides of one input over the dims of the output, and the position of its first element.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steps {
    /// Indexed by the output's dims, not by memory order.
    pub(crate) strides: [isize; MAX_RANK],
    /// Position of the element that corresponds to the output's first.
    pub(crate) base: isize,
}

impl Steps {
    /// Strides of an input that is broadcast to the output's shape; `None` if the shapes do not
    /// match.
    pub(crate) fn broadcast(out: &TensorInfo, input: &TensorInfo) -> Option<Self> {
        let missing = out.rank().checked_sub(input.rank())?;
        let own = input.strides();
        let mut strides = [0; MAX_RANK];
        for (dim, (&size, &stride)) in input.sizes.iter().zip(&own).enumerate() {
            let target = *out.sizes.get(dim + missing)?;
            if size != 1 && size != target {
                return None;
            }
            *strides.get_mut(dim + missing)? =
                if size == 1 { 0 } else { isize::try_from(stride).ok()? };
        }
        Some(Steps { strides, base: 0 })
    }
}

impl<const N: usize> Walk<N> {
    /// A walk over an output and inputs that are broadcast to its shape.
    pub(crate) fn broadcast(
        out: &TensorInfo,
        inputs: [&TensorInfo; N],
    ) -> Result<Self, KernelError> {
        let mut steps = [Steps { strides: [0; MAX_RANK], base: 0 }; N];
        for (arg, (steps, input)) in steps.iter_mut().zip(inputs).enumerate() {
            *steps = Steps::broadcast(out, input).ok_or(KernelError::argument(
                arg,
                "shape does not broadcast to that of the output",
            ))?;
        }
        Ok(Self::new(out, &steps))
    }

    /// A walk over an output and inputs with the given strides.
    pub(crate) fn new(out: &TensorInfo, inputs: &[Steps; N]) -> Self {
        let mut walk = Walk {
            rank: 0,
            sizes: [1; MAX_RANK],
            strides: [[0; N]; MAX_RANK],
            base: inputs.map(|input| input.base),
            numel: out.numel(),
        };
        for &dim in &out.dim_order {
            let dim = usize::from(dim);
            let size = out.size(dim);
            if size == 1 {
                continue;
            }
            let steps: [isize; N] =
                inputs.map(|input| input.strides.get(dim).copied().unwrap_or(0));
            walk.push(size, steps);
        }
        walk
    }

    /// Appends an inner dim. It is merged with its outer neighbour if the strides of all inputs
    /// permit.
    fn push(&mut self, size: usize, steps: [isize; N]) {
        if let Some(last) = self.rank.checked_sub(1)
            && let (Some(outer_size), Some(outer)) =
                (self.sizes.get_mut(last), self.strides.get_mut(last))
        {
            let inner = isize::try_from(size).unwrap_or(isize::MAX);
            let merges = outer
                .iter()
                .zip(&steps)
                .all(|(outer, step)| step.checked_mul(inner) == Some(*outer));
            if merges {
                *outer_size = outer_size.saturating_mul(size);
                *outer = steps;
                return;
            }
        }
        if let (Some(slot), Some(strides)) =
            (self.sizes.get_mut(self.rank), self.strides.get_mut(self.rank))
        {
            *slot = size;
            *strides = steps;
            self.rank += 1;
        }
    }

    /// Number of output elements.
    pub(crate) fn numel(&self) -> usize {
        self.numel
    }

    /// Sizes and strides from outermost to innermost, and the start positions of the inputs.
    pub(crate) fn levels(&self) -> (&[usize], &[[isize; N]], [isize; N]) {
        let sizes = self.sizes.get(..self.rank).unwrap_or(&[]);
        (sizes, self.strides.get(..self.rank).unwrap_or(&[]), self.base)
    }

    /// Whether every input starts at position 0 and has stride `step` in the order of the output.
    pub(crate) fn is_plain(&self, step: isize) -> bool {
        let steps = self.inner_steps().iter().all(|own| *own == step);
        self.base.iter().all(|base| *base == 0) && (self.rank == 0 || self.rank == 1 && steps)
    }

    /// Strides of the inputs within a run.
    pub(crate) fn inner_steps(&self) -> [isize; N] {
        match self.rank.checked_sub(1) {
            Some(last) => self.strides.get(last).copied().unwrap_or([0; N]),
            None => [0; N],
        }
    }

    /// Calls `run(start, inputs, len)` for runs that cover output positions `from..to`. `start` is
    /// the run's first output position, `inputs` holds the input positions of that element.
    pub(crate) fn for_each_run(
        &self,
        from: usize,
        to: usize,
        run: &mut dyn FnMut(usize, [isize; N], usize),
    ) {
        let to = to.min(self.numel);
        if from >= to {
            return;
        }
        let last = self.rank.saturating_sub(1);
        // Decompose `from` into an index for each dim.
        let mut index = [0usize; MAX_RANK];
        let mut rest = from;
        for dim in (0..self.rank).rev() {
            if let (Some(slot), Some(&size)) = (index.get_mut(dim), self.sizes.get(dim)) {
                *slot = rest % size.max(1);
                rest /= size.max(1);
            }
        }
        let mut at = self.base;
        for dim in 0..self.rank {
            let (Some(&position), Some(steps)) = (index.get(dim), self.strides.get(dim)) else {
                return;
            };
            for (at, step) in at.iter_mut().zip(steps) {
                *at = at.wrapping_add(step.wrapping_mul(position as isize));
            }
        }
        let mut position = from;
        while position < to {
            let (Some(inner_index), Some(&inner_size), Some(&inner)) =
                (index.get_mut(last), self.sizes.get(last), self.strides.get(last))
            else {
                return;
            };
            let len = (inner_size.saturating_sub(*inner_index)).max(1).min(to - position);
            run(position, at, len);
            position += len;
            // Advance the innermost index, then carry outwards.
            *inner_index += len;
            for (at, step) in at.iter_mut().zip(&inner) {
                *at = at.wrapping_add(step.wrapping_mul(len as isize));
            }
            let mut dim = last;
            while dim > 0 && index.get(dim) == self.sizes.get(dim) {
                let (Some(&size), Some(&steps)) = (self.sizes.get(dim), self.strides.get(dim))
                else {
                    return;
                };
                for (at, step) in at.iter_mut().zip(&steps) {
                    *at = at.wrapping_sub(step.wrapping_mul(size as isize));
                }
                if let Some(slot) = index.get_mut(dim) {
                    *slot = 0;
                }
                dim -= 1;
                let outer = self.strides.get(dim).copied().unwrap_or([0; N]);
                if let Some(slot) = index.get_mut(dim) {
                    *slot += 1;
                }
                for (at, step) in at.iter_mut().zip(&outer) {
                    *at = at.wrapping_add(*step);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchlet_core::ScalarType;

    fn visit<const N: usize>(walk: &Walk<N>, from: usize, to: usize) -> Vec<(usize, [isize; N])> {
        let mut seen = Vec::new();
        walk.for_each_run(from, to, &mut |start, inputs, len| {
            for i in 0..len {
                let mut at = inputs;
                for (at, step) in at.iter_mut().zip(walk.inner_steps()) {
                    *at += step * i as isize;
                }
                seen.push((start + i, at));
            }
        });
        seen
    }

    #[test]
    fn visits_every_element_once() {
        let out = TensorInfo::contiguous(ScalarType::Float, &[2, 3, 4]).unwrap();
        let a = TensorInfo::contiguous(ScalarType::Float, &[3, 1]).unwrap();
        let mut b = out.clone();
        b.dim_order = torchlet_core::Bounded::from_slice(&[2, 0, 1]).unwrap();
        let walk = Walk::broadcast(&out, [&a, &b]).unwrap();
        let all = visit(&walk, 0, 24);
        for (i, (position, [at_a, at_b])) in all.iter().enumerate() {
            let (x, y, z) = (i / 12, i / 4 % 3, i % 4);
            assert_eq!((*position, *at_a, *at_b), (i, y as isize, (z * 6 + x * 3 + y) as isize));
        }
        for from in 0..24 {
            for to in from..=24 {
                assert_eq!(visit(&walk, from, to), all[from..to]);
            }
        }
    }

    #[test]
    fn equal_layouts_merge_to_one_run() {
        let out = TensorInfo::contiguous(ScalarType::Float, &[2, 3, 4]).unwrap();
        let walk = Walk::broadcast(&out, [&out, &out]).unwrap();
        let mut runs = 0;
        walk.for_each_run(0, 24, &mut |_, _, len| {
            runs += 1;
            assert_eq!(len, 24);
        });
        assert_eq!(runs, 1);
    }

    #[test]
    fn zero_dim_and_empty_tensors() {
        let number = TensorInfo::contiguous(ScalarType::Float, &[]).unwrap();
        assert_eq!(visit(&Walk::broadcast(&number, [&number]).unwrap(), 0, 1), [(0, [0])]);
        let empty = TensorInfo::contiguous(ScalarType::Float, &[2, 0]).unwrap();
        assert_eq!(visit(&Walk::broadcast(&empty, [&number]).unwrap(), 0, 1), []);
        assert!(Walk::broadcast(&number, [&empty]).is_err());
    }
}
