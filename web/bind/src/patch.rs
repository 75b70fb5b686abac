//! Binary patches between modules: the module for relaxed SIMD differs in a few functions only, so
//! a page loads kilobytes for it instead of a second module.
//!
//! A patch consists of LEB128 integers (seven bits per byte, lowest first, eighth bit set if more
//! follow): the length of the result and a checksum over its bytes (`sum = 31 * sum + byte`, in 32
//! bits). Then, until the result is complete: a number of new bytes, followed by these bytes; the
//! distance `d` of the next copy's source from the end of the previous one in the other module
//! (`2 * d`, or `-2 * d - 1` if negative); its length. `web/api/index.ts` applies it.

use std::collections::HashMap;

/// Minimum match length in bytes.
const BLOCK: usize = 32;

/// Creates the patch from `from` to `to`.
pub(crate) fn between(from: &[u8], to: &[u8]) -> Vec<u8> {
    let blocks = from.chunks_exact(BLOCK).enumerate();
    let blocks: HashMap<&[u8], usize> = blocks.map(|(at, bytes)| (bytes, at * BLOCK)).collect();
    let mut patch = Vec::new();
    number(&mut patch, to.len());
    let sum = to.iter().fold(0u32, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    number(&mut patch, sum as usize);
    // End of the last copy in the source, and of the completed part of the result.
    let (mut taken, mut done) = (0usize, 0);
    let mut at = 0;
    while done < to.len() {
        let found = to.get(at..at + BLOCK).and_then(|bytes| {
            // Usually a match continues at the same distance.
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

/// Length of the common prefix.
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
