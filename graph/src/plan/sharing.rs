//! Tensors that share memory: views with their sources, and the operands of moves.

use super::lifetimes::each_tensor;
use crate::method::{Instruction, Method};
use alloc::vec;
use alloc::vec::Vec;

/// Disjoint sets of values (union-find).
pub(super) struct Sharing {
    parents: Vec<usize>,
    views: Vec<bool>,
}

impl Sharing {
    pub(super) fn of(method: &Method<'_>) -> Self {
        let count = method.values.len();
        let mut sharing = Sharing { parents: (0..count).collect(), views: vec![false; count] };
        for instruction in &method.instructions {
            match instruction {
                Instruction::Kernel { name, args, .. } if name == "executorch_prim::et_view" => {
                    let [source, _, view, ..] = args[..] else { continue };
                    sharing.join(source, view);
                    if let Some(slot) = sharing.views.get_mut(view) {
                        *slot = true;
                    }
                }
                // After a move, the target refers to the tensor of the source.
                Instruction::Move { from, to } => {
                    each_tensor(method, *from, &mut |item| sharing.join(*from, item));
                    each_tensor(method, *to, &mut |item| sharing.join(*to, item));
                    sharing.join(*from, *to);
                }
                _ => {}
            }
        }
        sharing
    }

    /// Returns the representative of the set that contains a value.
    pub(super) fn root(&mut self, value: usize) -> usize {
        let mut at = value;
        while let Some(parent) = self.parents.get(at).copied().filter(|parent| *parent != at) {
            // Path halving.
            let next = self.parents.get(parent).copied().unwrap_or(parent);
            if let Some(slot) = self.parents.get_mut(at) {
                *slot = next;
            }
            at = next;
        }
        at
    }

    /// Whether a value is a view of another one.
    pub(super) fn is_view(&self, value: usize) -> bool {
        self.views.get(value).copied().unwrap_or(false)
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        if let Some(slot) = self.parents.get_mut(b) {
            *slot = a;
        }
    }
}
