//! The instructions of a SPIR-V module.
//!
//! The shader compiler includes this file too. It cannot depend on this crate, which contains the
//! compiled modules.

/// Words before the first instruction.
pub(crate) const HEADER: usize = 5;

/// Returns the opcode of an instruction from its first word.
pub(crate) fn opcode(word: u32) -> u32 {
    word & 0xffff
}

/// Iterates over the instructions: the upper half of the first word is the length in words.
pub(crate) fn instructions(module: &[u32]) -> impl Iterator<Item = &[u32]> {
    let mut rest = module.get(HEADER..).unwrap_or_default();
    std::iter::from_fn(move || {
        let length = (*rest.first()? >> 16) as usize;
        let (instruction, behind) = rest.split_at(length.clamp(1, rest.len()));
        rest = behind;
        Some(instruction)
    })
}
