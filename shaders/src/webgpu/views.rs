//! Gives each storage buffer one variable.
//!
//! Shaders view the same buffer as an array of words, of pairs and of quads of words, as variables
//! with the same binding. WGSL has one variable per binding. Here, it is an array of quads, whose
//! words are accessed as the elements of a vector; or an array of words, if words are accessed by
//! atomic operations. Bindings that are the same memory also get one variable.

use super::code::{Code, Instruction, STORAGE_BUFFER, decoration, op};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A variable that views a buffer as an array.
#[derive(Debug, Clone, Copy)]
struct View {
    /// The buffer's binding.
    binding: u32,
    /// The type of the elements' components, and how many components an element has.
    scalar: u32,
    width: u32,
}

/// The variable of a buffer.
#[derive(Debug, Clone, Copy)]
struct Target {
    variable: u32,
    /// Whether its elements are quads; otherwise, they are words.
    quads: bool,
}

/// A pointer into a view.
#[derive(Debug, Clone, Copy)]
struct Pointer {
    view: View,
    target: Target,
    index: u32,
    /// The component of the element, if the pointer is to a single one.
    component: Option<u32>,
}

/// Merges the variables of each buffer. `same` lists pairs of bindings that are the same buffer.
pub(super) fn merge(code: &mut Code, same: &[[u32; 2]]) -> Result<(), String> {
    let first = |binding: u32| {
        let pair = same.iter().find(|[_, other]| *other == binding);
        pair.map_or(binding, |[first, _]| *first)
    };
    let bindings: HashMap<u32, u32> = code
        .globals
        .iter()
        .filter(|it| it.opcode == op::DECORATE && it.operand(1) == decoration::BINDING)
        .map(|it| (it.operand(0), it.operand(2)))
        .collect();
    let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for it in code.globals.iter().filter(|it| it.opcode == op::VARIABLE) {
        if let Some(binding) = bindings.get(&it.operand(1)) {
            groups.entry(first(*binding)).or_default().push(it.operand(1));
        }
    }
    let is_moved = |binding: u32, variable: &u32| bindings.get(variable) != Some(&binding);
    groups.retain(|binding, variables| {
        variables.len() > 1 || variables.iter().any(|variable| is_moved(*binding, variable))
    });
    let mut views = HashMap::new();
    for (binding, variables) in &groups {
        for variable in variables {
            let view = view(code, *variable, *binding);
            views.insert(*variable, view.ok_or("a buffer with a view that is not an array")?);
        }
    }
    let atomic = atomics(code, &views);
    let mut targets = HashMap::new();
    for binding in groups.keys() {
        let quads = !atomic.contains(binding);
        let width = if quads { 4 } else { 1 };
        let variable = declare(code, *binding, width);
        targets.insert(*binding, Target { variable, quads });
    }
    rewrite(code, &views, &targets)?;
    let is_old = |id: &u32| views.contains_key(id);
    code.globals.retain(|it| match it.opcode {
        op::VARIABLE => !is_old(&it.operand(1)),
        op::DECORATE | op::NAME => !is_old(&it.operand(0)),
        _ => true,
    });
    for it in code.globals.iter_mut().filter(|it| it.opcode == op::ENTRY_POINT) {
        it.operands.retain(|id| !is_old(id));
    }
    Ok(())
}

/// Returns the view of a variable, which is a struct with one array.
fn view(code: &Code, variable: u32, binding: u32) -> Option<View> {
    let pointer = code.global(code.global(variable)?.operand(0))?;
    let block = code.global(pointer.operand(2))?;
    let array =
        code.global(block.operands.get(1).copied().filter(|_| block.operands.len() == 2)?)?;
    if array.opcode != op::TYPE_RUNTIME_ARRAY {
        return None;
    }
    let (scalar, width) = code.vector(array.operand(1))?;
    // Components are 32 bits.
    let bits = code.global(scalar)?.operand(1);
    (bits == 32 && matches!(width, 1 | 2 | 4)).then_some(View { binding, scalar, width })
}

/// Returns the buffers with words that atomic operations access.
fn atomics(code: &Code, views: &HashMap<u32, View>) -> HashSet<u32> {
    let mut pointers: HashMap<u32, u32> = HashMap::new();
    let mut found = HashSet::new();
    for it in &code.functions {
        if it.opcode == op::ACCESS_CHAIN
            && let Some(view) = views.get(&it.operand(2))
        {
            pointers.insert(it.operand(1), view.binding);
        }
        if (op::FIRST_ATOMIC..=op::LAST_ATOMIC).contains(&it.opcode) {
            let at = if it.opcode == op::ATOMIC_STORE { 0 } else { 2 };
            found.extend(pointers.get(&it.operand(at)));
        }
    }
    found
}

/// Declares a buffer as an array of unsigned integers, or of vectors of them.
fn declare(code: &mut Code, binding: u32, width: u32) -> u32 {
    let element = code.uints(width);
    let array = code.type_of(op::TYPE_RUNTIME_ARRAY, &[element]);
    let block = code.type_of(op::TYPE_STRUCT, &[array]);
    // The first buffer with this type decorates it.
    let is_new = !code.globals.iter().any(|it| {
        it.opcode == op::DECORATE && (it.operand(0), it.operand(1)) == (block, decoration::BLOCK)
    });
    if is_new {
        code.decorate(op::DECORATE, &[array, decoration::ARRAY_STRIDE, 4 * width]);
        code.decorate(op::DECORATE, &[block, decoration::BLOCK]);
        code.decorate(op::MEMBER_DECORATE, &[block, 0, decoration::OFFSET, 0]);
    }
    let pointer = code.type_of(op::TYPE_POINTER, &[STORAGE_BUFFER, block]);
    let variable = code.fresh();
    code.decorate(op::DECORATE, &[variable, decoration::DESCRIPTOR_SET, 0]);
    code.decorate(op::DECORATE, &[variable, decoration::BINDING, binding]);
    code.globals.push(Instruction::new(op::VARIABLE, &[pointer, variable, STORAGE_BUFFER]));
    variable
}

/// Appends the instructions that access the merged variables.
struct Writer<'c> {
    code: &'c mut Code,
    types: &'c HashMap<u32, u32>,
    out: Vec<Instruction>,
}

impl Writer<'_> {
    fn emit(&mut self, opcode: u32, kind: u32, operands: &[u32]) -> u32 {
        let id = self.code.fresh();
        self.emit_as(opcode, kind, id, operands);
        id
    }

    fn emit_as(&mut self, opcode: u32, kind: u32, id: u32, operands: &[u32]) {
        let operands = [&[kind, id], operands].concat();
        self.out.push(Instruction { opcode, operands });
    }

    fn operation(&mut self, opcode: u32, a: u32, b: u32) -> u32 {
        let uint = self.code.uint();
        let b = self.code.uint_constant(b, 1);
        self.emit(opcode, uint, &[a, b])
    }

    /// Returns an index as an unsigned integer.
    fn unsigned(&mut self, index: u32) -> u32 {
        let uint = self.code.uint();
        match self.types.get(&index) {
            Some(kind) if *kind != uint => self.emit(op::BITCAST, uint, &[index]),
            _ => index,
        }
    }

    /// Returns a pointer to a quad.
    fn quad(&mut self, target: Target, index: u32) -> u32 {
        let quad = self.code.uints(4);
        let pointer = self.code.type_of(op::TYPE_POINTER, &[STORAGE_BUFFER, quad]);
        let zero = self.code.uint_constant(0, 1);
        self.emit(op::ACCESS_CHAIN, pointer, &[target.variable, zero, index])
    }

    /// Returns pointers to the words that a pointer refers to.
    fn words(&mut self, pointer: Pointer) -> Vec<u32> {
        let uint = self.code.uint();
        let kind = self.code.type_of(op::TYPE_POINTER, &[STORAGE_BUFFER, uint]);
        let zero = self.code.uint_constant(0, 1);
        let Pointer { view, target, component, .. } = pointer;
        let index = self.unsigned(pointer.index);
        // The first word, counted from the start of the buffer.
        let start = match view.width {
            1 => index,
            width => self.operation(op::I_MUL, index, width),
        };
        let words = match component {
            Some(component) => {
                let component = self.unsigned(component);
                vec![self.emit(op::I_ADD, uint, &[start, component])]
            }
            None => {
                let first = [start].into_iter();
                let others: Vec<u32> =
                    (1..view.width).map(|at| self.operation(op::I_ADD, start, at)).collect();
                first.chain(others).collect()
            }
        };
        let mut pointers = Vec::new();
        for word in words {
            pointers.push(if target.quads {
                let quad = self.operation(op::SHIFT_RIGHT_LOGICAL, word, 2);
                let lane = self.operation(op::BITWISE_AND, word, 3);
                self.emit(op::ACCESS_CHAIN, kind, &[target.variable, zero, quad, lane])
            } else {
                self.emit(op::ACCESS_CHAIN, kind, &[target.variable, zero, word])
            });
        }
        pointers
    }

    fn load(&mut self, kind: u32, id: u32, pointer: Pointer) {
        let width = if pointer.component.is_some() { 1 } else { pointer.view.width };
        let bits = self.code.uints(width);
        let is_bits = kind == bits;
        let loaded = if is_bits { id } else { self.code.fresh() };
        if pointer.target.quads && width == 4 {
            let index = self.unsigned(pointer.index);
            let quad = self.quad(pointer.target, index);
            self.emit_as(op::LOAD, bits, loaded, &[quad]);
        } else {
            let words = self.words(pointer);
            let uint = self.code.uint();
            if let [word] = words[..] {
                self.emit_as(op::LOAD, uint, loaded, &[word]);
            } else {
                let parts: Vec<u32> =
                    words.into_iter().map(|word| self.emit(op::LOAD, uint, &[word])).collect();
                self.emit_as(op::COMPOSITE_CONSTRUCT, bits, loaded, &parts);
            }
        }
        if !is_bits {
            self.emit_as(op::BITCAST, kind, id, &[loaded]);
        }
    }

    fn store(&mut self, value: u32, pointer: Pointer) {
        let width = if pointer.component.is_some() { 1 } else { pointer.view.width };
        let bits = self.code.uints(width);
        let uint = self.code.uint();
        let is_bits = pointer.view.scalar == uint;
        let value = if is_bits { value } else { self.emit(op::BITCAST, bits, &[value]) };
        if pointer.target.quads && width == 4 {
            let index = self.unsigned(pointer.index);
            let quad = self.quad(pointer.target, index);
            self.out.push(Instruction::new(op::STORE, &[quad, value]));
            return;
        }
        let words = self.words(pointer);
        for (at, word) in (0..).zip(&words) {
            let part = match words.len() {
                1 => value,
                _ => self.emit(op::COMPOSITE_EXTRACT, uint, &[value, at]),
            };
            self.out.push(Instruction::new(op::STORE, &[*word, part]));
        }
    }
}

/// Replaces all accesses to the views.
fn rewrite(
    code: &mut Code,
    views: &HashMap<u32, View>,
    targets: &HashMap<u32, Target>,
) -> Result<(), String> {
    let types = code.types();
    let functions = std::mem::take(&mut code.functions);
    let mut pointers: HashMap<u32, Pointer> = HashMap::new();
    let mut writer = Writer { code, types: &types, out: Vec::with_capacity(functions.len()) };
    for mut it in functions {
        if it.opcode == op::ACCESS_CHAIN
            && let Some(view) = views.get(&it.operand(2))
        {
            let target = *targets.get(&view.binding).ok_or("a buffer without a variable")?;
            let index = *it.operands.get(4).ok_or("a pointer to a whole array")?;
            let component = it.operands.get(5).copied();
            pointers.insert(it.operand(1), Pointer { view: *view, target, index, component });
            continue;
        }
        let is_atomic = (op::FIRST_ATOMIC..=op::LAST_ATOMIC).contains(&it.opcode);
        let at = match it.opcode {
            op::LOAD => 2,
            op::STORE | op::ATOMIC_STORE => 0,
            _ => 2,
        };
        let pointer = pointers.get(&it.operand(at)).copied();
        match (it.opcode, pointer) {
            (op::LOAD, Some(pointer)) => writer.load(it.operand(0), it.operand(1), pointer),
            (op::STORE, Some(pointer)) => writer.store(it.operand(1), pointer),
            (_, Some(pointer)) if is_atomic => {
                let words = writer.words(pointer);
                let [word] = words[..] else { return Err("an atomic vector".to_owned()) };
                if let Some(operand) = it.operands.get_mut(at) {
                    *operand = word;
                }
                writer.out.push(it);
            }
            _ => {
                let used =
                    it.values().any(|id| pointers.contains_key(id) || views.contains_key(id));
                if used {
                    return Err(format!("a pointer into a buffer in opcode {}", it.opcode));
                }
                writer.out.push(it);
            }
        }
    }
    let out = writer.out;
    code.functions = out;
    Ok(())
}
