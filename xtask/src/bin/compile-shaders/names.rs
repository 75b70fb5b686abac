//! Names in SPIR-V: those that are compared with declarations stay, the others, a tenth of all bytes, go.

use std::collections::HashSet;

/// Words before the first instruction.
pub(crate) const HEADER: usize = 5;
const NAME: u32 = 5;
const DECORATE: u32 = 71;
/// The decoration of specialisation constants.
const SPEC_ID: u32 = 1;

/// The module without the names of all but its specialisation constants, and of the members of its blocks.
pub(crate) fn strip(module: &[u32]) -> Vec<u32> {
    let constants: HashSet<u32> = instructions(module)
        .filter_map(|instruction| match instruction {
            [word, constant, SPEC_ID, ..] if opcode(*word) == DECORATE => Some(*constant),
            _ => None,
        })
        .collect();
    let stays = |instruction: &&[u32]| match instruction {
        [word, named, ..] if opcode(*word) == NAME => constants.contains(named),
        _ => true,
    };
    let header = module.iter().take(HEADER).copied();
    header.chain(instructions(module).filter(stays).flatten().copied()).collect()
}

/// The number of an instruction, by its first word.
pub(crate) fn opcode(word: u32) -> u32 {
    word & 0xffff
}

/// The instructions: the upper half of the first word of each says how many words it has.
pub(crate) fn instructions(module: &[u32]) -> impl Iterator<Item = &[u32]> {
    let mut rest = module.get(HEADER..).unwrap_or_default();
    std::iter::from_fn(move || {
        let length = (*rest.first()? >> 16) as usize;
        let (instruction, behind) = rest.split_at(length.clamp(1, rest.len()));
        rest = behind;
        Some(instruction)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_specialisation_constants_stay() {
        let header = [0x0723_0203, 0x0001_0300, 0, 9, 0];
        let name = |of: u32| [3 << 16 | NAME, of, u32::from_le_bytes(*b"abc\0")];
        let member = [4 << 16 | 6, 4, 0, u32::from_le_bytes(*b"m\0\0\0")];
        let decorated = [4 << 16 | DECORATE, 8, SPEC_ID, 3];
        let binding = [4 << 16 | DECORATE, 7, 33, 0];
        let all = [&header[..], &name(7), &name(8), &member, &decorated, &binding].concat();
        let left = [&header[..], &name(8), &member, &decorated, &binding].concat();
        assert_eq!(strip(&all), left);
        assert_eq!(strip(&left), left);
    }
}
