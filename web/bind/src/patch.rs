//! What makes one module of another one: the module for relaxed SIMD has the same functions, of
//! which a few differ, so that a page loads kilobytes for it, not another module.
//!
//! A patch is of numbers in seven bits a byte, the lowest first, with the eighth bit where more
//! follow: the length of what is made and a sum over its bytes (`sum = 31 * sum + byte`, in 32
//! bits), then until all is made: how many bytes follow that are new, and these; where the next
//! bytes are in the other module, as the distance `d` from behind those before (`2 * d`, or
//! `-2 * d - 1` where it is below zero); how many they are. `web/api/index.ts` applies it.

use std::collections::HashMap;

/// Bytes that have to be equal to be found again.
const BLOCK: usize = 32;

/// The patch that makes `to` of `from`.
pub(crate) fn between(from: &[u8], to: &[u8]) -> Vec<u8> {
    let blocks = from.chunks_exact(BLOCK).enumerate();
    let blocks: HashMap<&[u8], usize> = blocks.map(|(at, bytes)| (bytes, at * BLOCK)).collect();
    let mut patch = Vec::new();
    number(&mut patch, to.len());
    let sum = to.iter().fold(0u32, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    number(&mut patch, sum as usize);
    // Behind what was taken, in either module.
    let (mut taken, mut done) = (0usize, 0);
    let mut at = 0;
    while done < to.len() {
        let found = to.get(at..at + BLOCK).and_then(|bytes| {
            // Most often, it goes on where it was.
            let expected = (taken + at).wrapping_sub(done);
            let goes_on = from.get(expected..).is_some_and(|from| from.starts_with(bytes));
            if goes_on { Some(expected) } else { blocks.get(bytes).copied() }
        });
        let (start, source) = match found {
            Some(source) => {
                let before = same(to[done..at].iter().rev(), from[..source].iter().rev());
                (at - before, source - before)
            }
            None if at + BLOCK < to.len() => {
                at += 1;
                continue;
            }
            None => (to.len(), taken),
        };
        let length = same(to[start..].iter(), from[source..].iter());
        number(&mut patch, start - done);
        patch.extend_from_slice(&to[done..start]);
        let (ahead, back) = (source.wrapping_sub(taken), taken.wrapping_sub(source));
        number(&mut patch, if source >= taken { 2 * ahead } else { 2 * back - 1 });
        number(&mut patch, length);
        (taken, done) = (source + length, start + length);
        at = done;
    }
    patch
}

/// How many elements are equal from the beginning on.
fn same<'a>(a: impl Iterator<Item = &'a u8>, b: impl Iterator<Item = &'a u8>) -> usize {
    a.zip(b).take_while(|(a, b)| a == b).count()
}

fn number(patch: &mut Vec<u8>, mut value: usize) {
    while value > 0x7f {
        patch.push(value as u8 | 0x80);
        value >>= 7;
    }
    patch.push(value as u8);
}
