//! Moves a module's push constants into a buffer, for dispatches that are recorded once and run
//! with changing parameters.
//!
//! The function of the shader does not change. The parameter block keeps its layout; only the
//! storage class changes, for the variable of the block and for pointers into it.

use crate::instructions::{HEADER, instructions, opcode};
use crate::spirv::{decoration, op};

const PUSH_CONSTANT: u32 = 9;
const STORAGE_BUFFER: u32 = 12;

/// Returns the module with its push constants moved to the buffer with this binding.
pub(crate) fn in_buffer(module: &[u32], binding: u32) -> Vec<u32> {
    let header = module.iter().take(HEADER);
    let mut moved: Vec<u32> = header.copied().collect();
    let block = instructions(module).find_map(|instruction| match *instruction {
        [word, _, variable, PUSH_CONSTANT] if opcode(word) == op::VARIABLE => Some(variable),
        _ => None,
    });
    let mut decorated = false;
    for instruction in instructions(module) {
        let decorates = instruction.first().is_some_and(|word| opcode(*word) == op::DECORATE);
        if let Some(block) = block
            && decorates
            && !decorated
        {
            for (what, value) in [(decoration::DESCRIPTOR_SET, 0), (decoration::BINDING, binding)] {
                moved.extend([4 << 16 | op::DECORATE, block, what, value]);
            }
            moved.extend([3 << 16 | op::DECORATE, block, decoration::NON_WRITABLE]);
            decorated = true;
        }
        match *instruction {
            [word, pointer, PUSH_CONSTANT, to] if opcode(word) == op::TYPE_POINTER => {
                moved.extend([word, pointer, STORAGE_BUFFER, to]);
            }
            [word, pointer, variable, PUSH_CONSTANT] if opcode(word) == op::VARIABLE => {
                moved.extend([word, pointer, variable, STORAGE_BUFFER]);
            }
            _ => moved.extend_from_slice(instruction),
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use crate::{MODULES, Module, REPLAYED_MODULES, check};

    /// The checks of compiled modules also apply to derived modules: the last buffer has the
    /// parameters, and no push constants are left.
    #[test]
    fn moved_parameters_match_the_declaration() {
        assert!(!REPLAYED_MODULES.is_empty());
        for module in REPLAYED_MODULES {
            assert!(module.moves && module.push_bytes() == 0, "{}", module.name);
            let bytes: Vec<u8> =
                module.words().iter().flat_map(|word| word.to_le_bytes()).collect();
            let compiled = Module { spirv: bytes.leak(), moves: false, ..*module };
            assert_eq!(check::mismatch(&compiled), None, "{}", module.name);
        }
    }

    #[test]
    fn only_storage_classes_change() {
        for module in REPLAYED_MODULES {
            let own = MODULES.iter().find(|own| module.name == format!("{}_replayed", own.name));
            let (words, moved) = (own.unwrap().words(), module.words());
            // The new instructions follow the decoration with the binding.
            let new = words.iter().zip(&moved).position(|(old, new)| old != new).unwrap();
            let rest = words[new..].iter().zip(&moved[new + 11..]);
            let other = rest.filter(|(old, new)| old != new);
            assert_eq!(moved.len(), words.len() + 11, "{}", module.name);
            assert!({ other }.all(|classes| classes == (&9, &12)), "{}", module.name);
        }
    }

    #[test]
    fn truncated_modules_do_not_panic() {
        let words = REPLAYED_MODULES[0].words();
        for end in 0..words.len().min(400) {
            super::in_buffer(&words[..end], 2);
        }
        super::in_buffer(&[0; 9], 2);
    }
}
