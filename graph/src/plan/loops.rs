//! Loops of a method, which extend the lifetimes of tensors.

use super::arena::Lifetime;
use crate::method::{Instruction, Method};
use alloc::vec::Vec;

/// Maximum number of separate loops. If a method has more, they are merged into one; no real
/// program does.
const MAX: usize = 256;

/// Loops of a method, any two of them nested or disjoint. Inner loops come first.
pub(super) struct Loops(Vec<Loop>);

#[derive(Clone, Copy)]
struct Loop {
    time: Lifetime,
    /// Whether the loop contains jumps, so that a value may originate in an earlier iteration.
    branches: bool,
}

impl Loops {
    pub(super) fn of(method: &Method<'_>) -> Self {
        let mut jumps = Vec::new();
        let mut loops = Vec::new();
        for (at, instruction) in method.instructions.iter().enumerate() {
            if let Instruction::JumpFalse { destination, .. } = instruction {
                jumps.push(at);
                if *destination <= at {
                    loops.push(Loop {
                        time: Lifetime { first: *destination, last: at },
                        branches: false,
                    });
                }
            }
        }
        if loops.len() > MAX {
            let all = loops.iter().copied().reduce(joined);
            loops.clear();
            loops.extend(all);
        }
        for each in &mut loops {
            let from = jumps.partition_point(|jump| *jump < each.time.first);
            let to = jumps.partition_point(|jump| *jump < each.time.last);
            each.branches |= from < to;
        }
        while let Some((a, b)) = crossing(&loops) {
            let other = loops.swap_remove(b);
            if let Some(slot) = loops.get_mut(a) {
                *slot = joined(*slot, other);
            }
        }
        loops.sort_unstable_by_key(|each| each.time.last - each.time.first);
        Loops(loops)
    }

    /// Extends a lifetime to a whole loop if the value is also used outside, or may survive from
    /// one iteration to the next.
    pub(super) fn extend(&self, time: &mut Lifetime) {
        for each in &self.0 {
            let beyond = !each.time.contains(time) || each.branches;
            if each.time.overlaps(time) && beyond {
                time.include(each.time);
            }
        }
    }
}

fn joined(a: Loop, b: Loop) -> Loop {
    let mut time = a.time;
    time.include(b.time);
    Loop { time, branches: true }
}

/// Finds two loops that overlap without being nested.
fn crossing(loops: &[Loop]) -> Option<(usize, usize)> {
    loops.iter().enumerate().find_map(|(b, other)| {
        let cross = |each: &Loop| {
            each.time.overlaps(&other.time)
                && !each.time.contains(&other.time)
                && !other.time.contains(&each.time)
        };
        Some((loops.iter().take(b).position(cross)?, b))
    })
}
