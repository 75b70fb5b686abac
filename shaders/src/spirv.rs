//! Reads what a SPIR-V module declares, in `const` functions: the catalogue is compared with it when this crate is compiled.
//!
//! Everything of interest stands before the first function: names, decorations, types, constants, variables.

use crate::instructions::HEADER;

const MAGIC: u32 = 0x0723_0203;

/// Numbers of instructions.
pub(crate) mod op {
    pub(crate) const NAME: u32 = 5;
    pub(crate) const MEMBER_NAME: u32 = 6;
    pub(crate) const ENTRY_POINT: u32 = 15;
    pub(crate) const CAPABILITY: u32 = 17;
    /// The types.
    pub(crate) const FIRST_TYPE: u32 = 19;
    pub(crate) const LAST_TYPE: u32 = 39;
    pub(crate) const TYPE_INT: u32 = 21;
    pub(crate) const TYPE_FLOAT: u32 = 22;
    pub(crate) const TYPE_ARRAY: u32 = 28;
    pub(crate) const TYPE_STRUCT: u32 = 30;
    pub(crate) const TYPE_POINTER: u32 = 32;
    pub(crate) const CONSTANT: u32 = 43;
    pub(crate) const FUNCTION: u32 = 54;
    pub(crate) const VARIABLE: u32 = 59;
    pub(crate) const DECORATE: u32 = 71;
    pub(crate) const MEMBER_DECORATE: u32 = 72;
    pub(crate) const SPEC_CONSTANT_TRUE: u32 = 48;
    pub(crate) const SPEC_CONSTANT_FALSE: u32 = 49;
    pub(crate) const SPEC_CONSTANT: u32 = 50;
    pub(crate) const SPEC_CONSTANT_COMPOSITE: u32 = 51;
    pub(crate) const EXECUTION_MODE_ID: u32 = 331;
}

/// Numbers of decorations.
pub(crate) mod decoration {
    pub(crate) const SPEC_ID: u32 = 1;
    pub(crate) const ARRAY_STRIDE: u32 = 6;
    pub(crate) const BUILT_IN: u32 = 11;
    pub(crate) const NON_WRITABLE: u32 = 24;
    pub(crate) const BINDING: u32 = 33;
    pub(crate) const DESCRIPTOR_SET: u32 = 34;
    pub(crate) const OFFSET: u32 = 35;
}

/// The number of an instruction, in the lower half of its first word.
const fn opcode(word: [u8; 4]) -> u32 {
    u32::from_le_bytes(word) & 0xffff
}

/// The words of an instruction, itself included, in the upper half of its first word: at least one.
const fn length(word: [u8; 4]) -> usize {
    let length = (u32::from_le_bytes(word) >> 16) as usize;
    if length == 0 { 1 } else { length }
}

/// The declarations of a module. They come in sections, so that few have to be looked at: this runs in the compiler.
#[derive(Clone, Copy)]
pub(crate) struct Declarations {
    words: &'static [[u8; 4]],
    /// Where names, decorations, and types with constants and variables begin, and where the last end.
    names: usize,
    decorations: usize,
    types: usize,
    end: usize,
}

/// An instruction, by the index of its first word.
#[derive(Clone, Copy)]
pub(crate) struct Instruction(usize);

impl Declarations {
    /// None where the bytes are no module.
    pub(crate) const fn new(spirv: &'static [u8]) -> Option<Self> {
        let (words, rest) = spirv.as_chunks::<4>();
        if !rest.is_empty() || words.len() < HEADER || u32::from_le_bytes(words[0]) != MAGIC {
            return None;
        }
        let (mut names, mut decorations, mut types) = (0, 0, 0);
        let mut at = HEADER;
        while at < words.len() {
            match opcode(words[at]) {
                op::NAME | op::MEMBER_NAME if names == 0 => names = at,
                op::DECORATE | op::MEMBER_DECORATE if decorations == 0 => decorations = at,
                op::FIRST_TYPE..=op::LAST_TYPE if types == 0 => types = at,
                op::FUNCTION => break,
                _ => {}
            }
            at += length(words[at]);
        }
        let end = if at < words.len() { at } else { words.len() };
        types = if types == 0 { end } else { types };
        decorations = if decorations == 0 { types } else { decorations };
        names = if names == 0 { decorations } else { names };
        Some(Declarations { words, names, decorations, types, end })
    }

    /// An operand, from 0 on; 0, which nothing of interest is, where there are fewer.
    pub(crate) const fn operand(self, instruction: Instruction, index: usize) -> u32 {
        let at = instruction.0 + 1 + index;
        if index < self.operands(instruction) && at < self.words.len() {
            u32::from_le_bytes(self.words[at])
        } else {
            0
        }
    }

    /// How many operands there are.
    pub(crate) const fn operands(self, instruction: Instruction) -> usize {
        length(self.words[instruction.0]) - 1
    }

    /// The first declaration with this number.
    pub(crate) const fn first(self, opcode: u32) -> Option<Instruction> {
        let section = match opcode {
            op::NAME | op::MEMBER_NAME => self.names,
            op::DECORATE | op::MEMBER_DECORATE => self.decorations,
            op::FIRST_TYPE..=op::VARIABLE => self.types,
            _ => HEADER,
        };
        self.from(section, opcode)
    }

    /// The next declaration with this number.
    pub(crate) const fn next(self, after: Instruction, opcode: u32) -> Option<Instruction> {
        self.from(after.0 + length(self.words[after.0]), opcode)
    }

    const fn from(self, begin: usize, wanted: u32) -> Option<Instruction> {
        let end = match wanted {
            op::NAME | op::MEMBER_NAME => self.decorations,
            op::DECORATE | op::MEMBER_DECORATE => self.types,
            op::FIRST_TYPE..=op::VARIABLE => self.end,
            _ => self.names,
        };
        let mut at = begin;
        while at < end {
            let word = self.words[at];
            if word[0] as u32 | (word[1] as u32) << 8 == wanted {
                return Some(Instruction(at));
            }
            let length = word[2] as usize | (word[3] as usize) << 8;
            at += if length == 0 { 1 } else { length };
        }
        None
    }

    /// The declaration with this number whose operand is this.
    pub(crate) const fn find(self, opcode: u32, index: usize, value: u32) -> Option<Instruction> {
        let mut found = self.first(opcode);
        while let Some(instruction) = found {
            if self.operand(instruction, index) == value {
                return found;
            }
            found = self.next(instruction, opcode);
        }
        None
    }

    /// What a decoration says of an object.
    pub(crate) const fn decoration(self, object: u32, decoration: u32) -> Option<u32> {
        let mut found = self.first(op::DECORATE);
        while let Some(instruction) = found {
            if self.operand(instruction, 0) == object && self.operand(instruction, 1) == decoration
            {
                return Some(self.operand(instruction, 2));
            }
            found = self.next(instruction, op::DECORATE);
        }
        None
    }

    /// The object of which a decoration says this.
    pub(crate) const fn decorated(self, decoration: u32, value: u32) -> Option<u32> {
        let mut found = self.first(op::DECORATE);
        while let Some(instruction) = found {
            if self.operand(instruction, 1) == decoration && self.operand(instruction, 2) == value {
                return Some(self.operand(instruction, 0));
            }
            found = self.next(instruction, op::DECORATE);
        }
        None
    }

    /// What a decoration says of a member of a structure.
    pub(crate) const fn member_decoration(
        self,
        structure: u32,
        member: u32,
        decoration: u32,
    ) -> Option<u32> {
        let mut found = self.first(op::MEMBER_DECORATE);
        while let Some(instruction) = found {
            if self.operand(instruction, 0) == structure
                && self.operand(instruction, 1) == member
                && self.operand(instruction, 2) == decoration
            {
                return Some(self.operand(instruction, 3));
            }
            found = self.next(instruction, op::MEMBER_DECORATE);
        }
        None
    }

    /// A byte of the text that begins with an operand; 0 at its end.
    pub(crate) const fn text_byte(
        self,
        instruction: Instruction,
        operand: usize,
        byte: usize,
    ) -> u8 {
        let word = self.operand(instruction, operand + byte / 4);
        word.to_le_bytes()[byte % 4]
    }
}
