//! Removes names from SPIR-V, a tenth of its size. Names that are compared with declarations stay.

use super::instructions::{HEADER, instructions, opcode};
use std::collections::HashSet;

const NAME: u32 = 5;
const MEMBER_NAME: u32 = 6;
const POINTER: u32 = 32;
const DECORATE: u32 = 71;
/// Decorations of specialization constants and blocks, and the storage class of push constants.
const SPEC_ID: u32 = 1;
const BLOCK: u32 = 2;
const PUSH_CONSTANT: u32 = 9;

/// Removes all names except those of specialization constants and of parameter members (push
/// constants, or blocks with several members).
pub(crate) fn strip(module: &[u32]) -> Vec<u32> {
    let all = |of: fn(&[u32]) -> Option<u32>| -> HashSet<u32> {
        instructions(module).filter_map(of).collect()
    };
    let constants = all(|it| match it {
        [word, constant, SPEC_ID, ..] if opcode(*word) == DECORATE => Some(*constant),
        _ => None,
    });
    let pushed = all(|it| match it {
        [word, _, PUSH_CONSTANT, pushed] if opcode(*word) == POINTER => Some(*pushed),
        _ => None,
    });
    let blocks = all(|it| match it {
        [word, block, BLOCK] if opcode(*word) == DECORATE => Some(*block),
        _ => None,
    });
    let of_several = all(|it| match it {
        [word, structure, 1, ..] if opcode(*word) == MEMBER_NAME => Some(*structure),
        _ => None,
    });
    let are_parameters = |structure: &u32| {
        pushed.contains(structure) || (blocks.contains(structure) && of_several.contains(structure))
    };
    let stays = |instruction: &&[u32]| match instruction {
        [word, named, ..] if opcode(*word) == NAME => constants.contains(named),
        [word, named, ..] if opcode(*word) == MEMBER_NAME => are_parameters(named),
        _ => true,
    };
    let header = module.iter().take(HEADER).copied();
    header.chain(instructions(module).filter(stays).flatten().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_constants_and_parameters_stay() {
        let header = [0x0723_0203, 0x0001_0300, 0, 9, 0];
        let name = |of: u32| [3 << 16 | NAME, of, u32::from_le_bytes(*b"abc\0")];
        let member =
            |of: u32, at: u32| [4 << 16 | MEMBER_NAME, of, at, u32::from_le_bytes(*b"m\0\0\0")];
        let block = |of: u32| [3 << 16 | DECORATE, of, BLOCK];
        let pushed = [4 << 16 | POINTER, 9, PUSH_CONSTANT, 4];
        let decorated = [4 << 16 | DECORATE, 8, SPEC_ID, 3];
        let binding = [4 << 16 | DECORATE, 7, 33, 0];
        let blocks = [&block(4)[..], &block(5), &block(6), &pushed].concat();
        // Push constants, elements of a buffer, parameters in a buffer, and a struct.
        let members = [member(4, 0), member(6, 0), member(6, 1)].concat();
        let others = [member(5, 0), member(3, 0), member(3, 1)].concat();
        let names = [&name(7)[..], &name(8), &members, &others].concat();
        let rest = [&decorated[..], &binding, &blocks].concat();
        let all = [&header[..], &names, &rest].concat();
        let left = [&header[..], &name(8), &members, &rest].concat();
        assert_eq!(strip(&all), left);
        assert_eq!(strip(&left), left);
    }
}
