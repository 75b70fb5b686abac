//! Removes unused SPIR-V declarations: views of buffers that a shader does not read, and their
//! types.
//!
//! Any word that equals an id counts as a use of it. So an unused declaration may stay, but a used
//! one is never removed.

use super::instructions::{HEADER, instructions, opcode};
use std::collections::{HashMap, HashSet};

const NAME: u32 = 5;
const MEMBER_NAME: u32 = 6;
const ENTRY_POINT: u32 = 15;
const FIRST_TYPE: u32 = 19;
const LAST_TYPE: u32 = 33;
const FIRST_CONSTANT: u32 = 41;
const LAST_CONSTANT: u32 = 46;
const VARIABLE: u32 = 59;
const DECORATE: u32 = 71;
const MEMBER_DECORATE: u32 = 72;
/// The decoration with a buffer's binding, and the storage class of buffers.
const BINDING: u32 = 33;
const STORAGE_BUFFER: u32 = 12;

/// Removes unused declarations. If a shader reads none of a binding's variables,
/// one of them stays.
pub(crate) fn remove(module: &[u32]) -> Vec<u32> {
    let mut module = module.to_vec();
    loop {
        let unused = unused(&module);
        if unused.is_empty() {
            return module;
        }
        let header = module.iter().take(HEADER).copied();
        let kept = instructions(&module).filter_map(|it| without(it, &unused)).flatten();
        module = header.chain(kept).collect();
    }
}

/// Ids that are declared but unused.
fn unused(module: &[u32]) -> HashSet<u32> {
    let mut bindings = HashMap::new();
    let mut used = HashSet::new();
    for instruction in instructions(module) {
        match instruction {
            [word, id, BINDING, number, ..] if opcode(*word) == DECORATE => {
                bindings.insert(*id, *number);
            }
            [word, _, entry, ..] if opcode(*word) == ENTRY_POINT => {
                used.insert(*entry);
            }
            [word, ..] if describes(*word) => {}
            [_, words @ ..] => {
                let own = declared(instruction);
                used.extend(words.iter().filter(|word| Some(**word) != own));
            }
            [] => {}
        }
    }
    let mut seen: HashSet<u32> =
        bindings.iter().filter(|(id, _)| used.contains(id)).map(|(_, number)| *number).collect();
    let goes = |instruction: &[u32]| {
        let id = declared(instruction).filter(|id| !used.contains(id))?;
        match bindings.get(&id) {
            // Keep the first variable of a binding that is never read.
            Some(number) => (!seen.insert(*number)).then_some(id),
            None => Some(id),
        }
    };
    instructions(module).filter_map(goes).collect()
}

/// Whether an instruction annotates another.
fn describes(word: u32) -> bool {
    matches!(opcode(word), NAME | MEMBER_NAME | DECORATE | MEMBER_DECORATE)
}

/// The id that a removable declaration defines.
fn declared(instruction: &[u32]) -> Option<u32> {
    match instruction {
        [word, id, ..] if (FIRST_TYPE..=LAST_TYPE).contains(&opcode(*word)) => Some(*id),
        [word, _, id, ..] if (FIRST_CONSTANT..=LAST_CONSTANT).contains(&opcode(*word)) => Some(*id),
        [word, _, id, STORAGE_BUFFER, ..] if opcode(*word) == VARIABLE => Some(*id),
        _ => None,
    }
}

/// Removes unused ids from an instruction; `None` if it is removed itself.
fn without(instruction: &[u32], unused: &HashSet<u32>) -> Option<Vec<u32>> {
    match instruction {
        [word, id, ..] if describes(*word) => (!unused.contains(id)).then(|| instruction.to_vec()),
        [word, _, _, rest @ ..] if opcode(*word) == ENTRY_POINT => {
            // The interface variables follow the name, whose last word contains a zero byte.
            let ends = |word: &u32| word.to_le_bytes().contains(&0);
            let name = rest.iter().position(ends).map_or(rest.len(), |at| at + 1);
            let (name, variables) = rest.split_at(name);
            let kept = variables.iter().filter(|id| !unused.contains(id));
            let mut words: Vec<u32> =
                instruction[..3].iter().chain(name).chain(kept).copied().collect();
            words[0] = opcode(*word) | (words.len() as u32) << 16;
            Some(words)
        }
        _ => {
            let goes = declared(instruction).is_some_and(|id| unused.contains(&id));
            (!goes).then(|| instruction.to_vec())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(opcode: u32, words: &[u32]) -> Vec<u32> {
        [&[(words.len() as u32 + 1) << 16 | opcode], words].concat()
    }

    #[test]
    fn unused_views_and_types_are_removed() {
        let header = vec![0x0723_0203, 0x0001_0600, 0, 99, 0];
        let main = u32::from_le_bytes(*b"abc\0");
        let entry =
            |variables: &[u32]| instruction(ENTRY_POINT, &[&[5, 50, main], variables].concat());
        let binding = |id| instruction(DECORATE, &[id, BINDING, 77]);
        let pointer = |id, to| instruction(32, &[id, STORAGE_BUFFER, to]);
        let variable = |of, id| instruction(VARIABLE, &[of, id, STORAGE_BUFFER]);
        let number = instruction(21, &[60, 32, 0]);
        let vector = instruction(23, &[61, 60, 2]);
        let load = instruction(61, &[60, 80, 71]);
        let all = [
            header.clone(),
            entry(&[71, 72]),
            binding(71),
            binding(72),
            number.clone(),
            vector,
            pointer(62, 60),
            pointer(63, 61),
            variable(62, 71),
            variable(63, 72),
            load.clone(),
        ];
        let kept = [
            header.clone(),
            entry(&[71]),
            binding(71),
            number.clone(),
            pointer(62, 60),
            variable(62, 71),
            load,
        ];
        assert_eq!(remove(&all.concat()), kept.concat());
        // If a shader reads none of a binding's variables, one of them stays.
        let [alone, both] = [&kept[..6], &all[..10]].map(|it| it.concat());
        assert_eq!(remove(&both), alone);
    }
}
