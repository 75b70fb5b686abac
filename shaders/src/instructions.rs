//! The instructions of a SPIR-V module.
//!
//! The program that compiles shaders has this file, too. It cannot depend on this crate, which
//! holds what it compiles.

/// Words before the first instruction.
pub(crate) const HEADER: usize = 5;

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
