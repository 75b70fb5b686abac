//! Rewrites infinities and NaN, which WGSL has neither as constants nor as functions that test for
//! them, and functions that depend on the bits of floats.

use super::code::{Code, Instruction, PRIVATE, op};
use std::collections::{HashMap, HashSet};

/// The bits of infinity, and those of a float without its sign.
const INFINITY: u32 = 0x7f80_0000;
const MAGNITUDE: u32 = 0x7fff_ffff;

/// The bits of a float's exponent, shifted to the lowest ones.
const EXPONENT: u32 = 0xff;
/// The bits of a float's sign and mantissa, and the exponent of those from 1/2 to 1.
const FRACTION: u32 = 0x807f_ffff;
const HALF: u32 = 0x3f00_0000;
/// `frexp` as an instruction of `GLSL.std.450`.
const FREXP_STRUCT: u32 = 52;

/// Appends the replacements of instructions.
struct Writer<'c> {
    code: &'c mut Code,
    out: Vec<Instruction>,
}

impl Writer<'_> {
    fn emit(&mut self, opcode: u32, kind: u32, operands: &[u32]) -> u32 {
        let id = self.code.fresh();
        self.emit_as(opcode, [kind, id], operands);
        id
    }

    fn emit_as(&mut self, opcode: u32, [kind, id]: [u32; 2], operands: &[u32]) {
        let operands = [&[kind, id], operands].concat();
        self.out.push(Instruction { opcode, operands });
    }

    /// Compares the bits of a float or vector, without the sign, with those of infinity.
    fn compare(&mut self, opcode: u32, result: [u32; 2], value: u32, count: u32) {
        let bits = self.code.uints(count);
        let code = &mut *self.code;
        let [mask, infinity] = [MAGNITUDE, INFINITY].map(|it| code.uint_constant(it, count));
        let raw = self.emit(op::BITCAST, bits, &[value]);
        let magnitude = self.emit(op::BITWISE_AND, bits, &[raw, mask]);
        self.emit_as(opcode, result, &[magnitude, infinity]);
    }

    /// Splits a float into significand and exponent. Subnormal numbers, infinities and NaN stay
    /// whole, with an exponent of zero.
    fn split(&mut self, [kind, id]: [u32; 2], value: u32) {
        let float = self.code.type_of(op::TYPE_FLOAT, &[32]);
        let (bool, int) =
            (self.code.type_of(op::TYPE_BOOL, &[]), self.code.type_of(op::TYPE_INT, &[32, 1]));
        let uint = self.code.uint();
        let code = &mut *self.code;
        let [exponent, zero, shift, fraction, half, bias] =
            [EXPONENT, 0, 23, FRACTION, HALF, 126].map(|it| code.uint_constant(it, 1));
        let none = code.constant(int, &[0]);
        let bits = self.emit(op::BITCAST, uint, &[value]);
        let high = self.emit(op::SHIFT_RIGHT_LOGICAL, uint, &[bits, shift]);
        let power = self.emit(op::BITWISE_AND, uint, &[high, exponent]);
        let is_small = self.emit(op::I_EQUAL, bool, &[power, zero]);
        let is_large = self.emit(op::I_EQUAL, bool, &[power, exponent]);
        let is_whole = self.emit(op::LOGICAL_OR, bool, &[is_small, is_large]);
        let kept = self.emit(op::BITWISE_AND, uint, &[bits, fraction]);
        let raw = self.emit(op::BITWISE_OR, uint, &[kept, half]);
        let scaled = self.emit(op::BITCAST, float, &[raw]);
        let less = self.emit(op::I_SUB, uint, &[power, bias]);
        let signed = self.emit(op::BITCAST, int, &[less]);
        let significand = self.emit(op::SELECT, float, &[is_whole, value, scaled]);
        let power = self.emit(op::SELECT, int, &[is_whole, none, signed]);
        self.emit_as(op::COMPOSITE_CONSTRUCT, [kind, id], &[significand, power]);
    }
}

/// Replaces what WGSL lacks or defines otherwise: tests for infinities and NaN by comparisons of
/// bits; `!=`, which is true for NaN, by the opposite of `==`; and `frexp` of scalars, which the
/// translation refuses.
pub(super) fn replace_functions(code: &mut Code) {
    let types = code.types();
    let functions = std::mem::take(&mut code.functions);
    let mut writer = Writer { code, out: Vec::with_capacity(functions.len()) };
    for it in functions {
        let (result, value) = ([it.operand(0), it.operand(1)], it.operand(2));
        let vector = |code: &Code, id: u32| types.get(&id).and_then(|kind| code.vector(*kind));
        match it.opcode {
            op::IS_NAN | op::IS_INF => {
                let count = vector(writer.code, value).map_or(1, |(_, count)| count);
                let opcode = if it.opcode == op::IS_NAN { op::U_GREATER_THAN } else { op::I_EQUAL };
                writer.compare(opcode, result, value, count);
            }
            op::F_UNORD_NOT_EQUAL => {
                let equal = writer.emit(op::F_ORD_EQUAL, result[0], &[value, it.operand(3)]);
                writer.emit_as(op::LOGICAL_NOT, result, &[equal]);
            }
            op::EXT_INST
                if it.operand(3) == FREXP_STRUCT
                    && vector(writer.code, it.operand(4)).is_none_or(|(_, count)| count == 1) =>
            {
                writer.split(result, it.operand(4));
            }
            _ => writer.out.push(it),
        }
    }
    let out = writer.out;
    code.functions = out;
}

/// Computes constants that are infinite or NaN, or contain such, at the start of each function that
/// uses them, from bits that compilers do not know.
pub(super) fn replace_constants(code: &mut Code) {
    let float = code.type_of(op::TYPE_FLOAT, &[32]);
    let mut scalars: HashMap<u32, u32> = HashMap::new();
    let mut composites: HashMap<u32, (u32, Vec<u32>)> = HashMap::new();
    for it in &code.globals {
        let (kind, id) = (it.operand(0), it.operand(1));
        let parts = it.operands.get(2..).unwrap_or_default();
        match it.opcode {
            op::CONSTANT if kind == float && it.operand(2) & INFINITY == INFINITY => {
                scalars.insert(id, it.operand(2));
            }
            op::CONSTANT_COMPOSITE
                if parts
                    .iter()
                    .any(|part| scalars.contains_key(part) || composites.contains_key(part)) =>
            {
                composites.insert(id, (kind, parts.to_vec()));
            }
            _ => {}
        }
    }
    if scalars.is_empty() {
        return;
    }
    let uint = code.uint();
    let pointer = code.type_of(op::TYPE_POINTER, &[PRIVATE, uint]);
    let mut variables: HashMap<u32, u32> = HashMap::new();
    let functions = std::mem::take(&mut code.functions);
    let mut out: Vec<Instruction> = Vec::with_capacity(functions.len());
    let mut rest = functions.into_iter().peekable();
    while rest.peek().is_some() {
        let mut function: Vec<Instruction> = Vec::new();
        for it in rest.by_ref() {
            let ends = it.opcode == op::FUNCTION_END;
            function.push(it);
            if ends {
                break;
            }
        }
        let mut used: HashSet<u32> = HashSet::new();
        for it in &mut function {
            used.extend(it.values().map(|id| *id));
        }
        let mut own = Vec::new();
        let mut made: HashMap<u32, u32> = HashMap::new();
        let mut needed: Vec<u32> = used
            .into_iter()
            .filter(|id| scalars.contains_key(id) || composites.contains_key(id))
            .collect();
        needed.sort_unstable();
        for id in needed {
            make(code, id, &scalars, &composites, &mut variables, (&mut made, &mut own), pointer);
        }
        // Variables come first in the first block.
        let at = function.iter().rposition(|it| it.opcode == op::VARIABLE);
        let at = at.or_else(|| function.iter().position(|it| it.opcode == op::LABEL));
        for it in &mut function {
            for id in it.values() {
                *id = made.get(id).copied().unwrap_or(*id);
            }
        }
        let at = at.map_or(function.len(), |at| at + 1);
        function.splice(at..at, own);
        out.append(&mut function);
    }
    code.functions = out;
    let gone = |id: &u32| scalars.contains_key(id) || composites.contains_key(id);
    code.globals.retain(|it| {
        !matches!(it.opcode, op::CONSTANT | op::CONSTANT_COMPOSITE) || !gone(&it.operand(1))
    });
}

/// Appends the instructions that compute a constant, and returns its id in this function.
fn make(
    code: &mut Code,
    id: u32,
    scalars: &HashMap<u32, u32>,
    composites: &HashMap<u32, (u32, Vec<u32>)>,
    variables: &mut HashMap<u32, u32>,
    (made, out): (&mut HashMap<u32, u32>, &mut Vec<Instruction>),
    pointer: u32,
) -> u32 {
    if let Some(known) = made.get(&id) {
        return *known;
    }
    let own = match (scalars.get(&id), composites.get(&id)) {
        (Some(bits), _) => {
            let variable = *variables.entry(*bits).or_insert_with(|| {
                let value = code.uint_constant(*bits, 1);
                let variable = code.fresh();
                let operands = [pointer, variable, PRIVATE, value];
                code.globals.push(Instruction::new(op::VARIABLE, &operands));
                variable
            });
            let (uint, float) = (code.uint(), code.type_of(op::TYPE_FLOAT, &[32]));
            let (loaded, own) = (code.fresh(), code.fresh());
            out.push(Instruction::new(op::LOAD, &[uint, loaded, variable]));
            out.push(Instruction::new(op::BITCAST, &[float, own, loaded]));
            own
        }
        (None, Some((kind, parts))) => {
            let parts: Vec<u32> = parts
                .iter()
                .map(|part| make(code, *part, scalars, composites, variables, (made, out), pointer))
                .collect();
            let own = code.fresh();
            let operands = [&[*kind, own], parts.as_slice()].concat();
            out.push(Instruction { opcode: op::COMPOSITE_CONSTRUCT, operands });
            own
        }
        (None, None) => return id,
    };
    made.insert(id, own);
    own
}
