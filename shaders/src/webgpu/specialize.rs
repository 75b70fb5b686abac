//! Replaces specialisation constants with their values, and removes the code that is unreachable
//! with them.

use super::code::{Code, Instruction, decoration, op};
use std::collections::{HashMap, HashSet};

/// The built-in that the workgroup size was decorated with.
const WORKGROUP_SIZE: u32 = 25;
/// The execution mode with the workgroup size.
const LOCAL_SIZE: u32 = 17;

/// The value of a constant.
#[derive(Debug, Clone)]
enum Value {
    Scalar(u32),
    Composite(Vec<u32>),
}

/// Gives specialisation constants their values, by id; those beyond keep their default. Returns
/// the values of all scalar constants.
pub(super) fn specialize(code: &mut Code, values: &[u32]) -> Result<HashMap<u32, u32>, String> {
    let mut ids = HashMap::new();
    let mut bools = HashSet::new();
    let mut known: HashMap<u32, Value> = HashMap::new();
    let mut globals = Vec::with_capacity(code.globals.len());
    for it in std::mem::take(&mut code.globals) {
        let (kind, id) = (it.operand(0), it.operand(1));
        match it.opcode {
            op::DECORATE if it.operand(1) == decoration::SPEC_ID => {
                ids.insert(it.operand(0), it.operand(2));
                continue;
            }
            op::DECORATE
                if it.operand(1) == decoration::BUILT_IN && it.operand(2) == WORKGROUP_SIZE =>
            {
                continue;
            }
            op::EXECUTION_MODE if it.operand(1) == LOCAL_SIZE => {
                let size = values.get(..3).ok_or("no workgroup size")?;
                let operands = [&[it.operand(0), LOCAL_SIZE], size].concat();
                globals.push(Instruction { operands, ..it });
                continue;
            }
            op::TYPE_BOOL => {
                bools.insert(it.operand(0));
            }
            _ => {}
        }
        let given = |default: u32| {
            let at = ids.get(&id).and_then(|at| values.get(*at as usize));
            at.copied().unwrap_or(default)
        };
        let value = match it.opcode {
            op::CONSTANT if it.operands.len() == 3 => Value::Scalar(it.operand(2)),
            op::CONSTANT_TRUE => Value::Scalar(1),
            op::CONSTANT_FALSE => Value::Scalar(0),
            op::SPEC_CONSTANT => Value::Scalar(given(it.operand(2))),
            op::SPEC_CONSTANT_TRUE => Value::Scalar(given(1)),
            op::SPEC_CONSTANT_FALSE => Value::Scalar(given(0)),
            op::CONSTANT_COMPOSITE | op::SPEC_CONSTANT_COMPOSITE => {
                Value::Composite(it.operands.get(2..).unwrap_or_default().to_vec())
            }
            op::SPEC_CONSTANT_OP => {
                let operands = it.operands.get(3..).unwrap_or_default();
                let found = evaluate(it.operand(2), operands, &known);
                found.ok_or_else(|| format!("a constant operation of opcode {}", it.operand(2)))?
            }
            _ => {
                globals.push(it);
                continue;
            }
        };
        globals.push(match &value {
            Value::Scalar(value) if bools.contains(&kind) => {
                let opcode = if *value == 0 { op::CONSTANT_FALSE } else { op::CONSTANT_TRUE };
                Instruction::new(opcode, &[kind, id])
            }
            Value::Scalar(value) => Instruction::new(op::CONSTANT, &[kind, id, *value]),
            Value::Composite(parts) => {
                let operands = [&[kind, id], parts.as_slice()].concat();
                Instruction { opcode: op::CONSTANT_COMPOSITE, operands }
            }
        });
        known.insert(id, value);
    }
    code.globals = globals;
    let scalar = |(id, value)| match value {
        Value::Scalar(value) => Some((id, value)),
        Value::Composite(_) => None,
    };
    Ok(known.into_iter().filter_map(scalar).collect())
}

/// Returns the result of an operation on constants.
fn evaluate(opcode: u32, operands: &[u32], known: &HashMap<u32, Value>) -> Option<Value> {
    let operand = |at: usize| operands.get(at).copied();
    let scalar = |at: usize| match known.get(&operand(at)?)? {
        Value::Scalar(value) => Some(*value),
        Value::Composite(_) => None,
    };
    if opcode == op::COMPOSITE_EXTRACT {
        return match known.get(&operand(0)?)? {
            Value::Composite(parts) => known.get(parts.get(operand(1)? as usize)?).cloned(),
            Value::Scalar(_) => None,
        };
    }
    let a = scalar(0)?;
    match opcode {
        op::SELECT => return known.get(&operand(if a != 0 { 1 } else { 2 })?).cloned(),
        op::LOGICAL_NOT => return Some(Value::Scalar(u32::from(a == 0))),
        _ => {}
    }
    let b = scalar(1)?;
    Some(Value::Scalar(match opcode {
        op::I_ADD => a.wrapping_add(b),
        op::I_SUB => a.wrapping_sub(b),
        op::I_MUL => a.wrapping_mul(b),
        // Results of divisions by zero are undefined, and occur in branches that are not taken.
        op::U_DIV => a.checked_div(b).unwrap_or(0),
        op::U_MOD => a.checked_rem(b).unwrap_or(0),
        op::SHIFT_RIGHT_LOGICAL => a.checked_shr(b).unwrap_or(0),
        op::BITWISE_AND => a & b,
        op::BITWISE_OR => a | b,
        op::LOGICAL_OR => u32::from(a != 0 || b != 0),
        op::LOGICAL_AND => u32::from(a != 0 && b != 0),
        op::I_EQUAL => u32::from(a == b),
        op::I_NOT_EQUAL => u32::from(a != b),
        op::U_GREATER_THAN => u32::from(a > b),
        op::U_GREATER_THAN_EQUAL => u32::from(a >= b),
        op::U_LESS_THAN => u32::from(a < b),
        op::U_LESS_THAN_EQUAL => u32::from(a <= b),
        _ => return None,
    }))
}

/// Removes branches that constants decide, and the functions and variables that only they use.
pub(super) fn prune(code: &mut Code, constants: &HashMap<u32, u32>) {
    let mut functions: Vec<Vec<Instruction>> = Vec::new();
    for it in std::mem::take(&mut code.functions) {
        if it.opcode == op::FUNCTION || functions.is_empty() {
            functions.push(Vec::new());
        }
        if let Some(last) = functions.last_mut() {
            last.push(it);
        }
    }
    let functions: Vec<Vec<Instruction>> =
        functions.into_iter().map(|function| prune_function(function, constants)).collect();
    let id = |function: &[Instruction]| function.first().map_or(0, |first| first.operand(1));
    let by_id: HashMap<u32, &Vec<Instruction>> =
        functions.iter().map(|function| (id(function), function)).collect();
    let entry = code.globals.iter().find(|it| it.opcode == op::ENTRY_POINT);
    let mut open: Vec<u32> = entry.map(|it| it.operand(1)).into_iter().collect();
    let mut called = HashSet::new();
    while let Some(id) = open.pop() {
        let Some(function) = by_id.get(&id).filter(|_| called.insert(id)) else { continue };
        let calls = function.iter().filter(|it| it.opcode == op::FUNCTION_CALL);
        open.extend(calls.map(|it| it.operand(2)));
    }
    code.functions =
        functions.into_iter().filter(|it| called.contains(&id(it))).flatten().collect();
    remove_unused_variables(code);
}

fn remove_unused_variables(code: &mut Code) {
    let used: HashSet<u32> =
        code.functions.iter().flat_map(|it| it.operands.iter().copied()).collect();
    let variables = code.globals.iter().filter(|it| it.opcode == op::VARIABLE);
    let unused: HashSet<u32> =
        variables.map(|it| it.operand(1)).filter(|id| !used.contains(id)).collect();
    code.globals.retain(|it| match it.opcode {
        op::VARIABLE => !unused.contains(&it.operand(1)),
        op::DECORATE | op::NAME => !unused.contains(&it.operand(0)),
        _ => true,
    });
    for it in code.globals.iter_mut().filter(|it| it.opcode == op::ENTRY_POINT) {
        // The name, which ends with a zero byte, is followed by the variables.
        let ends = |word: &u32| word.to_le_bytes().contains(&0);
        let Some(name) = it.operands.iter().skip(2).position(ends) else { continue };
        let mut at = 0;
        it.operands.retain(|id| {
            at += 1;
            at <= name + 3 || !unused.contains(id)
        });
    }
}

/// A block of a function.
struct Block {
    label: u32,
    body: Vec<Instruction>,
}

impl Block {
    fn last(&self) -> Option<&Instruction> {
        self.body.last()
    }

    /// Returns the blocks that this one branches to.
    fn targets(&self) -> Vec<u32> {
        let Some(last) = self.last() else { return Vec::new() };
        match last.opcode {
            op::BRANCH => vec![last.operand(0)],
            op::BRANCH_CONDITIONAL => vec![last.operand(1), last.operand(2)],
            op::SWITCH => {
                let cases = last.operands.iter().skip(3).step_by(2).copied();
                [last.operand(1)].into_iter().chain(cases).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the block's merge instruction.
    fn merge(&self) -> Option<&Instruction> {
        let is_merge =
            |it: &&Instruction| matches!(it.opcode, op::SELECTION_MERGE | op::LOOP_MERGE);
        self.body.len().checked_sub(2).and_then(|at| self.body.get(at)).filter(is_merge)
    }
}

fn prune_function(function: Vec<Instruction>, constants: &HashMap<u32, u32>) -> Vec<Instruction> {
    let start = function.iter().position(|it| it.opcode == op::LABEL).unwrap_or(function.len());
    let mut head: Vec<Instruction> = function;
    let mut rest = head.split_off(start);
    let end = rest.pop();
    let mut blocks: Vec<Block> = Vec::new();
    for it in rest {
        match (it.opcode, blocks.last_mut()) {
            (op::LABEL, _) => blocks.push(Block { label: it.operand(0), body: Vec::new() }),
            (_, Some(block)) => block.body.push(it),
            (_, None) => {}
        }
    }
    blocks.iter_mut().for_each(|block| decide(block, constants));

    let places: HashMap<u32, usize> =
        blocks.iter().enumerate().map(|(at, block)| (block.label, at)).collect();
    let reach = |from: Vec<u32>, follows: &dyn Fn(&Block) -> Vec<u32>| {
        let (mut open, mut reached) = (from, HashSet::new());
        while let Some(label) = open.pop() {
            let Some(block) = places.get(&label).and_then(|at| blocks.get(*at)) else { continue };
            if reached.insert(label) {
                open.extend(follows(block));
            }
        }
        reached
    };
    let first = blocks.first().map(|block| block.label).into_iter().collect();
    let reached = reach(first, &Block::targets);
    // Merge instructions refer to blocks that nothing may branch to any more.
    let mut stubs: HashMap<u32, Instruction> = HashMap::new();
    for block in blocks.iter().filter(|block| reached.contains(&block.label)) {
        let Some(merge) = block.merge() else { continue };
        stubs.insert(merge.operand(0), Instruction::new(op::UNREACHABLE, &[]));
        if merge.opcode == op::LOOP_MERGE {
            stubs.insert(merge.operand(1), Instruction::new(op::BRANCH, &[block.label]));
        }
    }
    stubs.retain(|label, _| !reached.contains(label));
    blocks.retain_mut(|block| match stubs.remove(&block.label) {
        Some(stub) => {
            block.body = vec![stub];
            true
        }
        None => reached.contains(&block.label),
    });
    let mut sources: HashMap<u32, HashSet<u32>> = HashMap::new();
    for block in &blocks {
        for target in block.targets() {
            sources.entry(target).or_default().insert(block.label);
        }
    }
    for block in blocks {
        let from = sources.remove(&block.label).unwrap_or_default();
        head.push(Instruction::new(op::LABEL, &[block.label]));
        for mut it in block.body {
            if it.opcode == op::PHI {
                let mut operands: Vec<u32> = it.operands.iter().take(2).copied().collect();
                let pairs = it.operands.get(2..).unwrap_or_default().as_chunks::<2>().0;
                operands.extend(pairs.iter().filter(|pair| from.contains(&pair[1])).flatten());
                it.operands = operands;
            }
            head.push(it);
        }
    }
    head.extend(end);
    head
}

/// Replaces a branch that a constant decides.
fn decide(block: &mut Block, constants: &HashMap<u32, u32>) {
    let is_loop = block.merge().is_some_and(|it| it.opcode == op::LOOP_MERGE);
    let Some(last) = block.last() else { return };
    let Some(value) = constants.get(&last.operand(0)) else { return };
    match last.opcode {
        op::BRANCH_CONDITIONAL if !is_loop => {
            let target = last.operand(if *value != 0 { 1 } else { 2 });
            let has_merge = block.merge().is_some();
            block.body.pop();
            if has_merge {
                block.body.pop();
            }
            block.body.push(Instruction::new(op::BRANCH, &[target]));
        }
        op::SWITCH => {
            let cases = last.operands.get(2..).unwrap_or_default().as_chunks::<2>().0;
            let case = cases.iter().find(|case| case[0] == *value);
            let target = case.map_or(last.operand(1), |case| case[1]);
            let selector = last.operand(0);
            // Stays a switch, since its cases may branch to the end of it.
            block.body.pop();
            block.body.push(Instruction::new(op::SWITCH, &[selector, target]));
        }
        _ => {}
    }
}
