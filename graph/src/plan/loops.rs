//! Loops: what they do to the time that tensors are needed.

use super::room::Lifetime;
use crate::method::{Instruction, Method};
use alloc::vec::Vec;

/// Loops that are told apart. More, which no real program has, count as one.
const MOST: usize = 256;

/// The loops of a method: of any two, either one lies in the other or they lie apart. Inner ones
/// come first.
pub(super) struct Loops(Vec<Loop>);

#[derive(Clone, Copy)]
struct Loop {
    time: Lifetime,
    /// Whether there are jumps within, so that a value may be of an earlier round.
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
        if loops.len() > MOST {
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

    /// What lives in a loop and elsewhere, or may live from one round to the next, lives throughout
    /// it.
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

/// Two loops that overlap, neither of them within the other.
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
