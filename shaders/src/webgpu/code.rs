//! A SPIR-V module as a list of instructions that passes change.

use crate::instructions::{HEADER, instructions, opcode};
use std::collections::HashMap;

/// Opcodes of SPIR-V instructions.
pub(super) mod op {
    pub(crate) const NAME: u32 = 5;
    pub(crate) const MEMBER_NAME: u32 = 6;
    pub(crate) const STRING: u32 = 7;
    pub(crate) const EXT_INST_IMPORT: u32 = 11;
    pub(crate) const EXT_INST: u32 = 12;
    pub(crate) const ENTRY_POINT: u32 = 15;
    pub(crate) const EXECUTION_MODE: u32 = 16;
    pub(crate) const FIRST_TYPE: u32 = 19;
    pub(crate) const TYPE_BOOL: u32 = 20;
    pub(crate) const TYPE_INT: u32 = 21;
    pub(crate) const TYPE_FLOAT: u32 = 22;
    pub(crate) const TYPE_VECTOR: u32 = 23;
    pub(crate) const TYPE_RUNTIME_ARRAY: u32 = 29;
    pub(crate) const TYPE_STRUCT: u32 = 30;
    pub(crate) const TYPE_POINTER: u32 = 32;
    pub(crate) const LAST_TYPE: u32 = 39;
    pub(crate) const CONSTANT_TRUE: u32 = 41;
    pub(crate) const CONSTANT_FALSE: u32 = 42;
    pub(crate) const CONSTANT: u32 = 43;
    pub(crate) const CONSTANT_COMPOSITE: u32 = 44;
    pub(crate) const SPEC_CONSTANT_TRUE: u32 = 48;
    pub(crate) const SPEC_CONSTANT_FALSE: u32 = 49;
    pub(crate) const SPEC_CONSTANT: u32 = 50;
    pub(crate) const SPEC_CONSTANT_COMPOSITE: u32 = 51;
    pub(crate) const SPEC_CONSTANT_OP: u32 = 52;
    pub(crate) const FUNCTION: u32 = 54;
    pub(crate) const FUNCTION_PARAMETER: u32 = 55;
    pub(crate) const FUNCTION_END: u32 = 56;
    pub(crate) const FUNCTION_CALL: u32 = 57;
    pub(crate) const VARIABLE: u32 = 59;
    pub(crate) const LOAD: u32 = 61;
    pub(crate) const STORE: u32 = 62;
    pub(crate) const ACCESS_CHAIN: u32 = 65;
    pub(crate) const DECORATE: u32 = 71;
    pub(crate) const MEMBER_DECORATE: u32 = 72;
    pub(crate) const VECTOR_SHUFFLE: u32 = 79;
    pub(crate) const COMPOSITE_CONSTRUCT: u32 = 80;
    pub(crate) const COMPOSITE_EXTRACT: u32 = 81;
    pub(crate) const COMPOSITE_INSERT: u32 = 82;
    pub(crate) const BITCAST: u32 = 124;
    pub(crate) const I_ADD: u32 = 128;
    pub(crate) const I_SUB: u32 = 130;
    pub(crate) const I_MUL: u32 = 132;
    pub(crate) const U_DIV: u32 = 134;
    pub(crate) const U_MOD: u32 = 137;
    pub(crate) const IS_NAN: u32 = 156;
    pub(crate) const IS_INF: u32 = 157;
    pub(crate) const LOGICAL_OR: u32 = 166;
    pub(crate) const LOGICAL_AND: u32 = 167;
    pub(crate) const LOGICAL_NOT: u32 = 168;
    pub(crate) const SELECT: u32 = 169;
    pub(crate) const F_ORD_EQUAL: u32 = 180;
    pub(crate) const F_UNORD_NOT_EQUAL: u32 = 183;
    pub(crate) const I_EQUAL: u32 = 170;
    pub(crate) const I_NOT_EQUAL: u32 = 171;
    pub(crate) const U_GREATER_THAN: u32 = 172;
    pub(crate) const U_GREATER_THAN_EQUAL: u32 = 174;
    pub(crate) const U_LESS_THAN: u32 = 176;
    pub(crate) const U_LESS_THAN_EQUAL: u32 = 178;
    pub(crate) const SHIFT_RIGHT_LOGICAL: u32 = 194;
    pub(crate) const BITWISE_OR: u32 = 197;
    pub(crate) const BITWISE_AND: u32 = 199;
    pub(crate) const FIRST_ATOMIC: u32 = 227;
    pub(crate) const ATOMIC_STORE: u32 = 228;
    pub(crate) const LAST_ATOMIC: u32 = 242;
    pub(crate) const PHI: u32 = 245;
    pub(crate) const LOOP_MERGE: u32 = 246;
    pub(crate) const SELECTION_MERGE: u32 = 247;
    pub(crate) const LABEL: u32 = 248;
    pub(crate) const BRANCH: u32 = 249;
    pub(crate) const BRANCH_CONDITIONAL: u32 = 250;
    pub(crate) const SWITCH: u32 = 251;
    pub(crate) const UNREACHABLE: u32 = 255;
}

/// SPIR-V decorations.
pub(super) mod decoration {
    pub(crate) const SPEC_ID: u32 = 1;
    pub(crate) const BLOCK: u32 = 2;
    pub(crate) const ARRAY_STRIDE: u32 = 6;
    pub(crate) const BUILT_IN: u32 = 11;
    pub(crate) const COHERENT: u32 = 23;
    pub(crate) const NON_WRITABLE: u32 = 24;
    pub(crate) const BINDING: u32 = 33;
    pub(crate) const DESCRIPTOR_SET: u32 = 34;
    pub(crate) const OFFSET: u32 = 35;
}

pub(super) const STORAGE_BUFFER: u32 = 12;
pub(super) const PRIVATE: u32 = 6;

/// An instruction: its opcode, and the words after the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) opcode: u32,
    pub(super) operands: Vec<u32>,
}

impl Instruction {
    pub(super) fn new(opcode: u32, operands: &[u32]) -> Self {
        Instruction { opcode, operands: operands.to_vec() }
    }

    /// Returns an operand, or 0, which is never an id, if the instruction has fewer.
    pub(super) fn operand(&self, at: usize) -> u32 {
        self.operands.get(at).copied().unwrap_or(0)
    }

    /// Returns the type and the id of the result, if the instruction has both.
    pub(super) fn typed_result(&self) -> Option<(u32, u32)> {
        let has = match self.opcode {
            op::EXT_INST..=14 => self.opcode == op::EXT_INST,
            1 | op::CONSTANT_TRUE..=op::FUNCTION_PARAMETER => true,
            op::FUNCTION_CALL..=op::LOAD => true,
            op::ACCESS_CHAIN..=70 => true,
            77..=223 => true,
            op::FIRST_ATOMIC..=op::LAST_ATOMIC => self.opcode != op::ATOMIC_STORE,
            op::PHI => true,
            261..=366 => !matches!(self.opcode, 317..=319 | 330..=332),
            _ => false,
        };
        has.then(|| (self.operand(0), self.operand(1)))
    }

    /// Returns the id of the result.
    pub(super) fn result(&self) -> Option<u32> {
        match self.opcode {
            op::STRING | op::EXT_INST_IMPORT | op::FIRST_TYPE..=op::LAST_TYPE | op::LABEL => {
                Some(self.operand(0))
            }
            _ => self.typed_result().map(|(_, id)| id),
        }
    }

    /// Returns the operands of an instruction in a function that are ids of values.
    pub(super) fn values(&mut self) -> impl Iterator<Item = &mut u32> {
        let len = self.operands.len();
        let range = match self.opcode {
            op::LOAD => 2..3,
            op::STORE => 0..2,
            op::VARIABLE => 3..len,
            op::EXT_INST => 4..len,
            op::COMPOSITE_EXTRACT => 2..3,
            op::COMPOSITE_INSERT | op::VECTOR_SHUFFLE => 2..4,
            op::SELECTION_MERGE | op::LOOP_MERGE | op::LABEL | op::BRANCH => 0..0,
            op::BRANCH_CONDITIONAL | op::SWITCH => 0..1,
            op::FUNCTION | op::FUNCTION_END | op::FUNCTION_PARAMETER => 0..0,
            op::FUNCTION_CALL => 3..len,
            _ if self.typed_result().is_some() => 2..len,
            _ => 0..len,
        };
        let range = range.start.min(len)..range.end.min(len);
        self.operands.get_mut(range).unwrap_or_default().iter_mut()
    }
}

/// A SPIR-V module.
pub(super) struct Code {
    header: Vec<u32>,
    /// All instructions before the first function.
    pub(super) globals: Vec<Instruction>,
    /// All functions, one after another.
    pub(super) functions: Vec<Instruction>,
    /// The types and constants that passes added, by their instruction without the result.
    interned: HashMap<(u32, Vec<u32>), u32>,
}

impl Code {
    pub(super) fn parse(words: &[u32]) -> Self {
        let header = words.iter().take(HEADER).copied().collect();
        let all = instructions(words).filter_map(|it| {
            let (first, operands) = it.split_first()?;
            Some(Instruction::new(opcode(*first), operands))
        });
        let (mut globals, mut functions) = (Vec::new(), Vec::new());
        for instruction in all {
            let is_global = functions.is_empty() && instruction.opcode != op::FUNCTION;
            if is_global { &mut globals } else { &mut functions }.push(instruction);
        }
        Code { header, globals, functions, interned: HashMap::new() }
    }

    pub(super) fn words(&self) -> Vec<u32> {
        let mut words = self.header.clone();
        for Instruction { opcode, operands } in self.globals.iter().chain(&self.functions) {
            words.push((operands.len() as u32 + 1) << 16 | opcode);
            words.extend(operands);
        }
        words
    }

    /// Returns an id that no instruction uses.
    pub(super) fn fresh(&mut self) -> u32 {
        match self.header.get_mut(3) {
            Some(bound) => {
                *bound += 1;
                *bound - 1
            }
            None => 0,
        }
    }

    /// Returns the type of each value.
    pub(super) fn types(&self) -> HashMap<u32, u32> {
        let all = self.globals.iter().chain(&self.functions);
        all.filter_map(Instruction::typed_result).map(|(kind, id)| (id, kind)).collect()
    }

    /// Returns the global instruction with this result.
    pub(super) fn global(&self, id: u32) -> Option<&Instruction> {
        self.globals.iter().find(|it| it.result() == Some(id))
    }

    /// Returns the type of an instruction's operands, which is added if the module lacks it.
    pub(super) fn type_of(&mut self, opcode: u32, operands: &[u32]) -> u32 {
        let key = (opcode, operands.to_vec());
        if let Some(id) = self.interned.get(&key) {
            return *id;
        }
        let same =
            |it: &&Instruction| it.opcode == opcode && it.operands.get(1..) == Some(operands);
        // Arrays and structs have decorations, so that equal ones may differ.
        let is_plain = !matches!(opcode, op::TYPE_RUNTIME_ARRAY | op::TYPE_STRUCT);
        let found = self.globals.iter().filter(|_| is_plain).find(same).map(|it| it.operand(0));
        let id = found.unwrap_or_else(|| {
            let id = self.fresh();
            let all: Vec<u32> = [id].into_iter().chain(operands.iter().copied()).collect();
            self.globals.push(Instruction::new(opcode, &all));
            id
        });
        self.interned.insert(key, id);
        id
    }

    pub(super) fn uint(&mut self) -> u32 {
        self.type_of(op::TYPE_INT, &[32, 0])
    }

    /// Returns the type of a vector of unsigned integers; of one if `count` is 1.
    pub(super) fn uints(&mut self, count: u32) -> u32 {
        let uint = self.uint();
        if count == 1 { uint } else { self.type_of(op::TYPE_VECTOR, &[uint, count]) }
    }

    /// Returns a constant, which is added if the module lacks it.
    pub(super) fn constant(&mut self, kind: u32, value: &[u32]) -> u32 {
        let opcode = if value.len() == 1 { op::CONSTANT } else { op::CONSTANT_COMPOSITE };
        let key = (opcode, [&[kind], value].concat());
        if let Some(id) = self.interned.get(&key) {
            return *id;
        }
        let id = self.fresh();
        self.globals.push(Instruction::new(opcode, &[&[kind, id], value].concat()));
        self.interned.insert(key, id);
        id
    }

    /// Returns an unsigned integer, or a vector of them.
    pub(super) fn uint_constant(&mut self, value: u32, count: u32) -> u32 {
        let uint = self.uint();
        let one = self.constant(uint, &[value]);
        if count == 1 {
            return one;
        }
        let kind = self.uints(count);
        self.constant(kind, &vec![one; count as usize])
    }

    /// Adds a decoration before the first type.
    pub(super) fn decorate(&mut self, opcode: u32, operands: &[u32]) {
        let at = self
            .globals
            .iter()
            .position(|it| (op::FIRST_TYPE..=op::LAST_TYPE).contains(&it.opcode));
        let at = at.unwrap_or(self.globals.len());
        self.globals.insert(at, Instruction::new(opcode, operands));
    }

    /// Returns the scalar type of a type, and the number of its elements; 1 for scalars.
    pub(super) fn vector(&self, kind: u32) -> Option<(u32, u32)> {
        let found = self.global(kind)?;
        match found.opcode {
            op::TYPE_VECTOR => Some((found.operand(1), found.operand(2))),
            op::TYPE_BOOL | op::TYPE_INT | op::TYPE_FLOAT => Some((kind, 1)),
            _ => None,
        }
    }
}
