//! Compares the declarations of modules in the catalogue with their SPIR-V, when this crate is
//! compiled.

use crate::spirv::{Declarations, Instruction, decoration, op};
use crate::{ConstantField, Feature, Field, Module, Scalar};

/// The number of specialisation constants for the workgroup size, with ids 0 to 2.
const WORKGROUP_CONSTANTS: u32 = 3;
/// An upper bound on the specialisation constants of a shader.
const MAX_CONSTANTS: usize = 64;
/// The number of push constant bytes that every Vulkan device supports.
const MAX_PUSH_BYTES: usize = 128;
const COMPUTE: u32 = 5;
const BUILT_IN_WORKGROUP_SIZE: u32 = 25;
const MODE_LOCAL_SIZE_ID: u32 = 38;

/// Storage classes of variables.
const UNIFORM_CONSTANT: u32 = 0;
const UNIFORM: u32 = 2;
const PUSH_CONSTANT: u32 = 9;
const STORAGE_BUFFER: u32 = 12;

/// Returns a description of the first difference between a module's declaration and its SPIR-V.
pub(crate) const fn mismatch(module: &Module) -> Option<&'static str> {
    let Some(spirv) = &Declarations::new(module.spirv) else {
        return Some("the file is not SPIR-V");
    };
    let checks = [
        entry_point(spirv),
        capabilities(spirv, module),
        bindings(spirv, module),
        workgroup_size(spirv),
        constants(spirv, module),
        parameters(spirv, module),
    ];
    let mut check = 0;
    while check < checks.len() {
        if checks[check].is_some() {
            return checks[check];
        }
        check += 1;
    }
    None
}

/// Returns the first difference found in several modules.
pub(crate) const fn first_mismatch(modules: &[Module]) -> Option<&'static str> {
    let mut module = 0;
    while module < modules.len() {
        if let Some(point) = mismatch(&modules[module]) {
            return Some(point);
        }
        module += 1;
    }
    None
}

const fn entry_point(spirv: &Declarations) -> Option<&'static str> {
    let Some(entry) = spirv.first(op::ENTRY_POINT) else {
        return Some("the module has no entry point");
    };
    if spirv.next(entry, op::ENTRY_POINT).is_some() {
        return Some("the module has several entry points");
    }
    if spirv.operand(entry, 0) != COMPUTE || !is_text(spirv, entry, 2, "main") {
        return Some("the entry point is not a compute shader's `main`");
    }
    None
}

/// Every capability must be part of Vulkan 1.1 or enabled by a declared feature.
const fn capabilities(spirv: &Declarations, module: &Module) -> Option<&'static str> {
    let mut found = spirv.first(op::CAPABILITY);
    while let Some(instruction) = found {
        let capability = spirv.operand(instruction, 0);
        let mut allowed = position(Feature::BASE_CAPABILITIES, capability).is_some();
        let mut feature = 0;
        while feature < module.features.len() {
            allowed |= position(module.features[feature].capabilities(), capability).is_some();
            feature += 1;
        }
        if !allowed {
            return Some("the shader uses a capability that no declared feature enables");
        }
        found = spirv.next(instruction, op::CAPABILITY);
    }
    None
}

/// Storage buffers must be in set 0, numbered from 0 without gaps; several blocks may share a
/// binding.
const fn bindings(spirv: &Declarations, module: &Module) -> Option<&'static str> {
    if module.bindings > u32::BITS as usize {
        return Some("the declaration has too many buffers to check");
    }
    let mut seen = 0_u32;
    let mut found = spirv.first(op::VARIABLE);
    while let Some(instruction) = found {
        let variable = spirv.operand(instruction, 1);
        match spirv.operand(instruction, 2) {
            STORAGE_BUFFER => {
                if !is(spirv.decoration(variable, decoration::DESCRIPTOR_SET), 0) {
                    return Some("a buffer is not in set 0");
                }
                match spirv.decoration(variable, decoration::BINDING) {
                    Some(binding) if (binding as usize) < module.bindings => seen |= 1 << binding,
                    _ => return Some("the shader binds an undeclared buffer"),
                }
            }
            UNIFORM | UNIFORM_CONSTANT => {
                return Some("the shader binds a resource other than a buffer");
            }
            _ => {}
        }
        found = spirv.next(instruction, op::VARIABLE);
    }
    if seen.count_ones() as usize != module.bindings {
        return Some("the declaration has a buffer that the shader does not bind");
    }
    None
}

/// The workgroup size must be constants 0 to 2: by a built-in vector, or by an execution mode in
/// newer versions.
const fn workgroup_size(spirv: &Declarations) -> Option<&'static str> {
    let mode = spirv.first_with(op::EXECUTION_MODE_ID, &[(1, MODE_LOCAL_SIZE_ID)]);
    let vector = match spirv.decorated(decoration::BUILT_IN, BUILT_IN_WORKGROUP_SIZE) {
        Some(vector) => spirv.object(op::SPEC_CONSTANT_COMPOSITE, vector),
        None => None,
    };
    let Some(size) = (if mode.is_some() { mode } else { vector }) else {
        return Some("the workgroup size is fixed");
    };
    let mut dimension = 0;
    while dimension < WORKGROUP_CONSTANTS {
        let constant = spirv.operand(size, 2 + dimension as usize);
        if !is(spirv.decoration(constant, decoration::SPEC_ID), dimension) {
            return Some("the workgroup size is not given by specialisation constants 0 to 2");
        }
        dimension += 1;
    }
    None
}

const fn constants(spirv: &Declarations, module: &Module) -> Option<&'static str> {
    // Objects by constant number, 0 if absent, and the range of their ids.
    let mut objects = [0; MAX_CONSTANTS];
    let (mut count, mut least, mut most) = (0, u32::MAX, 0);
    let decorations = [(1, decoration::SPEC_ID)];
    let mut found = spirv.first_with(op::DECORATE, &decorations);
    while let Some(instruction) = found {
        let id = spirv.operand(instruction, 2);
        if id >= WORKGROUP_CONSTANTS {
            let number = (id - WORKGROUP_CONSTANTS) as usize;
            if number >= MAX_CONSTANTS || constant_at(module, number).is_none() {
                return Some("the shader has an undeclared specialisation constant");
            }
            let object = spirv.operand(instruction, 0);
            if !is_word(spirv, object) {
                return Some("a specialisation constant is neither a 32-bit integer nor a boolean");
            }
            objects[number] = object;
            least = if object < least { object } else { least };
            most = if object > most { object } else { most };
            count += 1;
        }
        found = spirv.next_with(instruction, op::DECORATE, &decorations);
    }
    // `spirv-val` checks that ids are unique.
    if constant_at(module, count).is_some() {
        return Some("the declaration has a specialisation constant that the shader lacks");
    }
    found = spirv.first(op::NAME);
    while let Some(name) = found {
        let object = spirv.operand(name, 0);
        if least <= object
            && object <= most
            && let Some(number) = position(&objects, object)
            && let Some((field, index)) = constant_at(module, number)
            && !abbreviates(spirv, name, 1, field.name, index)
        {
            return Some("the order or names of specialisation constants differ");
        }
        found = spirv.next(name, op::NAME);
    }
    None
}

/// Returns the field with the constant of this number, and the index in the field if it is an
/// array.
const fn constant_at(
    module: &Module,
    number: usize,
) -> Option<(&'static ConstantField, Option<u32>)> {
    let (mut before, mut field) = (0, 0);
    while field < module.constants.len() {
        let here = &module.constants[field];
        if number < before + here.count {
            let index = if here.count == 1 { None } else { Some((number - before) as u32) };
            return Some((here, index));
        }
        before += here.count;
        field += 1;
    }
    None
}

const fn is_word(spirv: &Declarations, constant: u32) -> bool {
    if let Some(instruction) = spirv.object(op::SPEC_CONSTANT, constant) {
        let integer = spirv.object(op::TYPE_INT, spirv.operand(instruction, 0));
        return matches!(integer, Some(integer) if spirv.operand(integer, 1) == 32);
    }
    spirv.object(op::SPEC_CONSTANT_TRUE, constant).is_some()
        || spirv.object(op::SPEC_CONSTANT_FALSE, constant).is_some()
}

/// Checks the block of push constants, and the block of parameters in memory.
const fn parameters(spirv: &Declarations, module: &Module) -> Option<&'static str> {
    if module.in_memory > module.push.len() {
        return Some("more parameters are in memory than declared");
    }
    let pushed = module.push.len() - module.in_memory;
    let (first, rest) = module.push.split_at(pushed);
    match (spirv.first_with(op::VARIABLE, &[(2, PUSH_CONSTANT)]), first.is_empty()) {
        (None, true) => {}
        (None, false) => return Some("the shader has no push constants"),
        (Some(_), true) if module.in_memory > 0 => {
            return Some("the shader has both push constants and a buffer for them");
        }
        (Some(block), _) => {
            let point = members(spirv, block, first);
            if point.is_some() {
                return point;
            }
        }
    }
    if rest.is_empty() {
        return None;
    }
    match last_buffer(spirv, module) {
        Some(block) => members(spirv, block, rest),
        None => Some("the shader has no buffer for parameters"),
    }
}

/// Compares the types, offsets and names of a block's members with these fields.
const fn members(
    spirv: &Declarations,
    variable: Instruction,
    fields: &[Field],
) -> Option<&'static str> {
    let Some(pointer) = spirv.object(op::TYPE_POINTER, spirv.operand(variable, 0)) else {
        return Some("the parameters have no type");
    };
    let structure = spirv.operand(pointer, 2);
    let Some(block) = spirv.object(op::TYPE_STRUCT, structure) else {
        return Some("the parameters are not a structure");
    };
    if spirv.operands(block) - 1 != fields.len() {
        return Some("the number of parameters differs");
    }
    let (mut offset, mut member) = (0, 0);
    while member < fields.len() {
        let field = &fields[member];
        if !has_type(spirv, spirv.operand(block, 1 + member), field) {
            return Some("the types of parameters differ");
        }
        let place = spirv.member_decoration(structure, member as u32, decoration::OFFSET);
        if !is(place, offset as u32) {
            return Some("the offsets of parameters differ");
        }
        offset += 4 * field.count;
        member += 1;
    }
    if offset > MAX_PUSH_BYTES {
        return Some("the parameters exceed the guaranteed size of push constants");
    }
    let mut found = spirv.first(op::MEMBER_NAME);
    while let Some(name) = found {
        let member = spirv.operand(name, 1) as usize;
        if spirv.operand(name, 0) == structure
            && member < fields.len()
            && !is_text(spirv, name, 2, fields[member].name)
        {
            return Some("the order or names of parameters differ");
        }
        found = spirv.next(name, op::MEMBER_NAME);
    }
    None
}

/// Returns the variable of the last buffer.
const fn last_buffer(spirv: &Declarations, module: &Module) -> Option<Instruction> {
    let mut found = spirv.first(op::VARIABLE);
    while let Some(instruction) = found {
        let binding = spirv.decoration(spirv.operand(instruction, 1), decoration::BINDING);
        if spirv.operand(instruction, 2) == STORAGE_BUFFER
            && matches!(binding, Some(binding) if binding as usize + 1 == module.bindings)
        {
            return found;
        }
        found = spirv.next(instruction, op::VARIABLE);
    }
    None
}

const fn has_type(spirv: &Declarations, declared: u32, field: &Field) -> bool {
    let Some(array) = spirv.object(op::TYPE_ARRAY, declared) else {
        return field.count == 1 && is_scalar(spirv, declared, field.scalar);
    };
    let length = match spirv.object(op::CONSTANT, spirv.operand(array, 2)) {
        Some(constant) => spirv.operand(constant, 2) as usize,
        None => 0,
    };
    length == field.count
        && is(spirv.decoration(declared, decoration::ARRAY_STRIDE), 4)
        && is_scalar(spirv, spirv.operand(array, 1), field.scalar)
}

const fn is_scalar(spirv: &Declarations, declared: u32, scalar: Scalar) -> bool {
    let signed = match scalar {
        Scalar::F32 => {
            let float = spirv.object(op::TYPE_FLOAT, declared);
            return matches!(float, Some(float) if spirv.operand(float, 1) == 32);
        }
        Scalar::U32 => 0,
        Scalar::I32 => 1,
    };
    let integer = spirv.object(op::TYPE_INT, declared);
    matches!(integer, Some(integer)
        if spirv.operand(integer, 1) == 32 && spirv.operand(integer, 2) == signed)
}

const fn is(value: Option<u32>, expected: u32) -> bool {
    matches!(value, Some(value) if value == expected)
}

/// Returns the index of a value in a list.
const fn position(list: &[u32], value: u32) -> Option<usize> {
    let mut index = 0;
    while index < list.len() {
        if list[index] == value {
            return Some(index);
        }
        index += 1;
    }
    None
}

/// Whether two strings are equal.
pub(crate) const fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut index = 0;
    while index < a.len() && index < b.len() && a[index] == b[index] {
        index += 1;
    }
    index == a.len() && index == b.len()
}

const fn is_text(spirv: &Declarations, at: Instruction, operand: usize, text: &str) -> bool {
    let text = text.as_bytes();
    let mut index = 0;
    while index < text.len() {
        if spirv.text_byte(at, operand, index) != text[index] {
            return false;
        }
        index += 1;
    }
    spirv.text_byte(at, operand, index) == 0
}

/// Whether a name in the shader, in capitals, equals a name in the declaration, or has abbreviated
/// words: `OUT_ALIGNED` matches `output_aligned`. The index of an array element is appended:
/// `TYPE_2` matches `types[2]`.
const fn abbreviates(
    spirv: &Declarations,
    at: Instruction,
    operand: usize,
    name: &str,
    index: Option<u32>,
) -> bool {
    let name = name.as_bytes();
    let (mut short, mut long) = (0, 0);
    loop {
        let byte = spirv.text_byte(at, operand, short);
        if byte == 0 || byte == b'_' {
            while long < name.len() && name[long] != b'_' {
                long += 1;
            }
            if short > 0 && long == name.len() {
                return match index {
                    Some(index) => byte == b'_' && is_number(spirv, at, operand, short + 1, index),
                    None => byte == 0,
                };
            }
        }
        if long >= name.len() || name[long].to_ascii_uppercase() != byte {
            return false;
        }
        (short, long) = (short + 1, long + 1);
    }
}

/// Whether the rest of a string in the module, starting with a byte, is this number.
const fn is_number(
    spirv: &Declarations,
    at: Instruction,
    operand: usize,
    begin: usize,
    number: u32,
) -> bool {
    let (mut value, mut byte) = (0, begin);
    loop {
        let digit = spirv.text_byte(at, operand, byte);
        if digit == 0 {
            return byte > begin && value == number;
        }
        if !digit.is_ascii_digit() || value > number {
            return false;
        }
        value = 10 * value + (digit - b'0') as u32;
        byte += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MODULES, Matmul, MatmulPush, Pipeline, Pointwise, PointwisePush, PushConstants};

    const MATMUL: Module = Matmul::MODULE;

    #[test]
    fn declarations_agree() {
        for module in MODULES {
            assert_eq!(mismatch(module), None, "{}", module.name);
        }
    }

    #[test]
    fn every_module_is_declared_once() {
        let mut declared: Vec<String> = MODULES.iter().map(|m| format!("{}.spv", m.name)).collect();
        declared.sort();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/spv");
        let name = |file: std::io::Result<std::fs::DirEntry>| file.unwrap().file_name();
        let files = std::fs::read_dir(folder).unwrap().map(name);
        let mut files: Vec<_> = files.map(|name| name.into_string().unwrap()).collect();
        files.sort();
        assert_eq!(declared, files);
    }

    /// The modules are embedded in programs, so the modules must stay small.
    #[test]
    fn modules_are_few_and_small() {
        let bytes: usize = MODULES.iter().map(|module| module.spirv.len()).sum();
        assert!(MODULES.len() < 100, "{} modules", MODULES.len());
        assert!(bytes < 2_000_000, "{bytes} bytes");
    }

    /// A dispatch may be split in z, so shaders must not use the z workgroup index or count
    /// directly, except where y is folded into z.
    #[test]
    fn shaders_use_base_z() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/glsl");
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let source = std::fs::read_to_string(&path).unwrap();
            let uses = source.matches("gl_WorkGroupID.z").count();
            let expected = if path.ends_with("tensor.glsl") { 2 } else { 0 };
            assert_eq!(uses, expected, "{}", path.display());
            assert!(!source.contains("gl_NumWorkGroups.z"), "{}", path.display());
        }
        assert_eq!(<MatmulPush as PushConstants>::BASE_Z, Some(4 * 15));
        assert_eq!(<PointwisePush as PushConstants>::BASE_Z, None);
    }

    #[test]
    fn bindings_are_counted() {
        let fewer = Module { bindings: MATMUL.bindings - 1, ..MATMUL };
        assert_eq!(mismatch(&fewer), Some("the shader binds an undeclared buffer"));
        let more = Module { bindings: MATMUL.bindings + 1, ..MATMUL };
        let expected = "the declaration has a buffer that the shader does not bind";
        assert_eq!(mismatch(&more), Some(expected));
    }

    /// Returns the module with one specialisation constant changed.
    fn with_constant(module: Module, at: usize, changed: ConstantField) -> Module {
        let mut constants = module.constants.to_vec();
        constants[at] = changed;
        Module { constants: constants.leak(), ..module }
    }

    #[test]
    fn constants_have_an_order_and_names() {
        let fewer = Module { constants: &MATMUL.constants[1..], ..MATMUL };
        let expected = "the shader has an undeclared specialisation constant";
        assert_eq!(mismatch(&fewer), Some(expected));
        let two = ConstantField { count: 2, ..MATMUL.constants[0] };
        let more = with_constant(MATMUL, 0, two);
        let expected = "the declaration has a specialisation constant that the shader lacks";
        assert_eq!(mismatch(&more), Some(expected));
        let swapped = with_constant(MATMUL, 0, MATMUL.constants[1]);
        let expected = "the order or names of specialisation constants differ";
        assert_eq!(mismatch(&swapped), Some(expected));
        let array = Pointwise::MODULE.constants[3];
        assert!(array.count > 1);
        let renamed = ConstantField { name: "layouts", ..array };
        assert_eq!(mismatch(&with_constant(Pointwise::MODULE, 3, renamed)), Some(expected));
    }

    /// Returns the module with one push constant changed.
    fn with_push(at: usize, changed: Field) -> Module {
        let mut push = MATMUL.push.to_vec();
        push[at] = changed;
        Module { push: push.leak(), ..MATMUL }
    }

    #[test]
    fn push_constants_are_compared() {
        let fewer = Module { push: &MATMUL.push[1..], ..MATMUL };
        assert_eq!(mismatch(&fewer), Some("the number of parameters differs"));
        let none = Module { push: &[], ..MATMUL };
        assert_eq!(mismatch(&none), Some("the number of parameters differs"));
        let other = with_push(0, Field { scalar: Scalar::F32, ..MATMUL.push[0] });
        assert_eq!(mismatch(&other), Some("the types of parameters differ"));
        let longer = with_push(0, Field { count: 2, ..MATMUL.push[0] });
        assert_eq!(mismatch(&longer), Some("the types of parameters differ"));
        let swapped = with_push(0, MATMUL.push[1]);
        let expected = "the order or names of parameters differ";
        assert_eq!(mismatch(&swapped), Some(expected));
    }

    /// Returns the module with one word changed: the first one equal to `old`.
    fn with_word(old: u32, new: u32) -> Module {
        let mut spirv = MATMUL.spirv.to_vec();
        let at = spirv.chunks_exact(4).position(|word| word == old.to_le_bytes());
        let at = 4 * at.expect("the word occurs in the module");
        spirv[at..at + 4].copy_from_slice(&new.to_le_bytes());
        Module { spirv: spirv.leak(), ..MATMUL }
    }

    #[test]
    fn capabilities_need_features() {
        // Replaces the operand of `OpCapability Shader`, which is 1.
        let mut spirv = MATMUL.spirv.to_vec();
        assert_eq!(spirv[20..28], [17, 0, 2, 0, 1, 0, 0, 0]);
        spirv[24] = 9;
        let half = Module { spirv: spirv.leak(), ..MATMUL };
        let expected = "the shader uses a capability that no declared feature enables";
        assert_eq!(mismatch(&half), Some(expected));
        let declared = Module { features: &[Feature::Float16Arithmetic], ..half };
        assert_eq!(mismatch(&declared), None);
    }

    #[test]
    fn invalid_files_are_rejected() {
        let empty = Module { spirv: &[], ..MATMUL };
        assert_eq!(mismatch(&empty), Some("the file is not SPIR-V"));
        let cut = Module { spirv: &MATMUL.spirv[..MATMUL.spirv.len() - 1], ..MATMUL };
        assert_eq!(mismatch(&cut), Some("the file is not SPIR-V"));
        let header = Module { spirv: &MATMUL.spirv[..20], ..MATMUL };
        assert_eq!(mismatch(&header), Some("the module has no entry point"));
        let other = with_word(0x6e69_616d, 0x7465_7267);
        let expected = "the entry point is not a compute shader's `main`";
        assert_eq!(mismatch(&other), Some(expected));
    }

    /// Truncated modules are handled without panics.
    #[test]
    fn truncated_modules_are_rejected() {
        for end in (0..MATMUL.spirv.len()).step_by(4).take(200) {
            assert!(mismatch(&Module { spirv: &MATMUL.spirv[..end], ..MATMUL }).is_some());
        }
    }
}
