//! Parses the declarations of a SPIR-V module in `const` functions, for comparison with the
//! catalogue at compile time.
//!
//! All relevant instructions precede the first function: names, decorations, types, constants,
//! variables.

use crate::instructions::HEADER;

const MAGIC: u32 = 0x0723_0203;

/// Opcodes of SPIR-V instructions.
pub(crate) mod op {
    pub(crate) const NAME: u32 = 5;
    pub(crate) const MEMBER_NAME: u32 = 6;
    pub(crate) const ENTRY_POINT: u32 = 15;
    pub(crate) const CAPABILITY: u32 = 17;
    /// The first and last opcode of type instructions.
    pub(crate) const FIRST_TYPE: u32 = 19;
    pub(crate) const LAST_TYPE: u32 = 39;
    pub(crate) const TYPE_INT: u32 = 21;
    pub(crate) const TYPE_FLOAT: u32 = 22;
    pub(crate) const TYPE_ARRAY: u32 = 28;
    pub(crate) const TYPE_STRUCT: u32 = 30;
    pub(crate) const TYPE_POINTER: u32 = 32;
    pub(crate) const FIRST_CONSTANT: u32 = 41;
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

/// SPIR-V decorations.
pub(crate) mod decoration {
    pub(crate) const SPEC_ID: u32 = 1;
    pub(crate) const ARRAY_STRIDE: u32 = 6;
    pub(crate) const BUILT_IN: u32 = 11;
    pub(crate) const NON_WRITABLE: u32 = 24;
    pub(crate) const BINDING: u32 = 33;
    pub(crate) const DESCRIPTOR_SET: u32 = 34;
    pub(crate) const OFFSET: u32 = 35;
}

/// An upper bound on the ids of a module.
const MAX_OBJECTS: usize = 8192;

/// Reads a word of a module. This is a macro because every declaration needs it, and a call costs
/// many times as much as the body when the compiler evaluates it.
macro_rules! number {
    ($word:expr) => {{
        let word: [u8; 4] = $word;
        word[0] as u32 | (word[1] as u32) << 8 | (word[2] as u32) << 16 | (word[3] as u32) << 24
    }};
}

/// Returns the length of an instruction in words, from the upper half of its first word: at least
/// one.
macro_rules! length {
    ($word:expr) => {{
        let word: [u8; 4] = $word;
        let length = word[2] as usize | (word[3] as usize) << 8;
        if length == 0 { 1 } else { length }
    }};
}

/// Returns the opcode of an instruction, from the lower half of its first word.
macro_rules! opcode {
    ($word:expr) => {{
        let word: [u8; 4] = $word;
        word[0] as u32 | (word[1] as u32) << 8
    }};
}

/// The declarations of a module. The boundaries of their sections limit each search, which matters
/// because this runs in the compiler.
pub(crate) struct Declarations {
    words: &'static [[u8; 4]],
    /// The word indices where the sections begin: names, decorations, and types with constants and
    /// variables; and the index where the last section ends.
    names: usize,
    decorations: usize,
    types: usize,
    end: usize,
    /// For each id of a type, constant or variable, the word index of its declaration; 0 for other
    /// ids.
    objects: [u32; MAX_OBJECTS],
}

/// An instruction, identified by the index of its first word.
#[derive(Clone, Copy)]
pub(crate) struct Instruction(usize);

impl Declarations {
    /// Finds the sections of a module. Returns `None` if the bytes are not a SPIR-V module.
    pub(crate) const fn new(spirv: &'static [u8]) -> Option<Self> {
        let (words, rest) = spirv.as_chunks::<4>();
        if !rest.is_empty() || words.len() < HEADER || number!(words[0]) != MAGIC {
            return None;
        }
        let (mut names, mut decorations, mut types) = (0, 0, 0);
        let mut objects = [0; MAX_OBJECTS];
        let mut at = HEADER;
        while at < words.len() {
            let opcode = opcode!(words[at]);
            match opcode {
                op::NAME | op::MEMBER_NAME if names == 0 => names = at,
                op::DECORATE | op::MEMBER_DECORATE if decorations == 0 => decorations = at,
                op::FIRST_TYPE..=op::LAST_TYPE if types == 0 => types = at,
                op::FUNCTION => break,
                _ => {}
            }
            // In types, the result id is the first operand. In all other instructions, it follows
            // the type.
            let place = match opcode {
                op::FIRST_TYPE..=op::LAST_TYPE => at + 1,
                op::FIRST_CONSTANT..=op::VARIABLE => at + 2,
                _ => words.len(),
            };
            if place < words.len() {
                let object = number!(words[place]) as usize;
                assert!(object < MAX_OBJECTS, "a module declares more objects than MAX_OBJECTS");
                objects[object] = at as u32;
            }
            at += length!(words[at]);
        }
        let end = if at < words.len() { at } else { words.len() };
        types = if types == 0 { end } else { types };
        decorations = if decorations == 0 { types } else { decorations };
        names = if names == 0 { decorations } else { names };
        Some(Declarations { words, names, decorations, types, end, objects })
    }

    /// Returns an operand by index. Returns 0 for an index beyond the end; no relevant operand
    /// is 0.
    pub(crate) const fn operand(&self, instruction: Instruction, index: usize) -> u32 {
        let at = instruction.0 + 1 + index;
        if 1 + index < length!(self.words[instruction.0]) && at < self.words.len() {
            number!(self.words[at])
        } else {
            0
        }
    }

    /// Returns the number of operands.
    pub(crate) const fn operands(&self, instruction: Instruction) -> usize {
        length!(self.words[instruction.0]) - 1
    }

    /// Returns the first declaration with this opcode.
    pub(crate) const fn first(&self, opcode: u32) -> Option<Instruction> {
        self.from(self.section(opcode), opcode, &[])
    }

    /// Returns the next declaration with this opcode.
    pub(crate) const fn next(&self, after: Instruction, opcode: u32) -> Option<Instruction> {
        self.next_with(after, opcode, &[])
    }

    /// Returns the first declaration with this opcode and these operands, given as pairs of index
    /// and value.
    pub(crate) const fn first_with(
        &self,
        opcode: u32,
        operands: &[(usize, u32)],
    ) -> Option<Instruction> {
        self.from(self.section(opcode), opcode, operands)
    }

    /// Returns the next declaration with this opcode and these operands.
    pub(crate) const fn next_with(
        &self,
        after: Instruction,
        opcode: u32,
        operands: &[(usize, u32)],
    ) -> Option<Instruction> {
        self.from(after.0 + length!(self.words[after.0]), opcode, operands)
    }

    /// Returns the word index where the section with this opcode begins.
    const fn section(&self, opcode: u32) -> usize {
        match opcode {
            op::NAME | op::MEMBER_NAME => self.names,
            op::DECORATE | op::MEMBER_DECORATE => self.decorations,
            op::FIRST_TYPE..=op::VARIABLE => self.types,
            _ => HEADER,
        }
    }

    const fn from(
        &self,
        begin: usize,
        wanted: u32,
        operands: &[(usize, u32)],
    ) -> Option<Instruction> {
        let end = match wanted {
            op::NAME | op::MEMBER_NAME => self.decorations,
            op::DECORATE | op::MEMBER_DECORATE => self.types,
            op::FIRST_TYPE..=op::VARIABLE => self.end,
            _ => self.names,
        };
        let mut at = begin;
        while at < end {
            let word = self.words[at];
            if opcode!(word) == wanted {
                let mut operand = 0;
                while operand < operands.len() {
                    let (index, value) = operands[operand];
                    let place = at + 1 + index;
                    let there = 1 + index < length!(word) && place < self.words.len();
                    if !there || number!(self.words[place]) != value {
                        break;
                    }
                    operand += 1;
                }
                if operand == operands.len() {
                    return Some(Instruction(at));
                }
            }
            at += length!(word);
        }
        None
    }

    /// Returns the declaration of a type, constant or variable, if it has this opcode.
    pub(crate) const fn object(&self, opcode: u32, object: u32) -> Option<Instruction> {
        if object as usize >= MAX_OBJECTS {
            return None;
        }
        let at = self.objects[object as usize] as usize;
        if at > 0 && opcode!(self.words[at]) == opcode { Some(Instruction(at)) } else { None }
    }

    /// Returns the value of a decoration of an object.
    pub(crate) const fn decoration(&self, object: u32, decoration: u32) -> Option<u32> {
        match self.first_with(op::DECORATE, &[(1, decoration), (0, object)]) {
            Some(instruction) => Some(self.operand(instruction, 2)),
            None => None,
        }
    }

    /// Returns the id of the object with this value of a decoration.
    pub(crate) const fn decorated(&self, decoration: u32, value: u32) -> Option<u32> {
        match self.first_with(op::DECORATE, &[(1, decoration), (2, value)]) {
            Some(instruction) => Some(self.operand(instruction, 0)),
            None => None,
        }
    }

    /// Returns the value of a decoration of a structure member.
    pub(crate) const fn member_decoration(
        &self,
        structure: u32,
        member: u32,
        decoration: u32,
    ) -> Option<u32> {
        let operands = [(2, decoration), (1, member), (0, structure)];
        match self.first_with(op::MEMBER_DECORATE, &operands) {
            Some(instruction) => Some(self.operand(instruction, 3)),
            None => None,
        }
    }

    /// Returns a byte of the string that begins at an operand; 0 at its end.
    pub(crate) const fn text_byte(
        &self,
        instruction: Instruction,
        operand: usize,
        byte: usize,
    ) -> u8 {
        let word = self.operand(instruction, operand + byte / 4);
        (word >> (8 * (byte % 4))) as u8
    }
}
