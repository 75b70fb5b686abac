//! Rewrites infinities and NaN, which WGSL has neither as constants nor as functions that test for
//! them.

use super::code::{Code, Instruction, PRIVATE, op};
use std::collections::{HashMap, HashSet};

/// The bits of infinity, and those of a float without its sign.
const INFINITY: u32 = 0x7f80_0000;
const MAGNITUDE: u32 = 0x7fff_ffff;

/// Replaces tests for infinities and NaN by comparisons of bits.
pub(super) fn replace_tests(code: &mut Code) {
    let types = code.types();
    let functions = std::mem::take(&mut code.functions);
    let mut out = Vec::with_capacity(functions.len());
    for it in functions {
        let compare = match it.opcode {
            op::IS_NAN => op::U_GREATER_THAN,
            op::IS_INF => op::I_EQUAL,
            _ => {
                out.push(it);
                continue;
            }
        };
        let (kind, id, value) = (it.operand(0), it.operand(1), it.operand(2));
        let count = types.get(&value).and_then(|kind| code.vector(*kind)).map_or(1, |it| it.1);
        let bits = code.uints(count);
        let (mask, infinity) =
            (code.uint_constant(MAGNITUDE, count), code.uint_constant(INFINITY, count));
        let (raw, magnitude) = (code.fresh(), code.fresh());
        out.push(Instruction::new(op::BITCAST, &[bits, raw, value]));
        out.push(Instruction::new(op::BITWISE_AND, &[bits, magnitude, raw, mask]));
        out.push(Instruction::new(compare, &[kind, id, magnitude, infinity]));
    }
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
