//! Rewrites a module into SPIR-V that translates to WGSL, for devices behind WebGPU.
//!
//! WGSL lacks several constructs that the modules use. The specialisation constants get their
//! values, and code that is unreachable with these values is removed ([`specialize`]). Push
//! constants move to a buffer. Each buffer gets one variable ([`views`]). Infinities and NaN are
//! computed from their bits ([`floats`]).

mod code;
mod floats;
mod specialize;
mod views;

use crate::replayed;
use code::{Code, decoration, op};
use std::collections::{BTreeSet, HashSet};

/// A shader for WebGPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebGpuShader {
    /// The SPIR-V, which translates to WGSL.
    pub words: Vec<u32>,
    /// The bindings of the buffers that the shader uses with these constants, in order. All are
    /// declared as writable, except that of the parameters.
    pub buffers: Vec<u32>,
    /// The binding of the buffer with all parameters that are not in a buffer in Vulkan, or with
    /// those that are, if the shader uses any.
    pub parameters: Option<u32>,
}

impl crate::Module {
    /// Returns the module for WebGPU, with a workgroup of this size and these specialisation
    /// constants, from id 3 on. Push constants are in a buffer behind the others.
    ///
    /// `same` lists pairs of bindings that are the same memory in a dispatch, the lower one first.
    /// The shader uses only the first of each pair, since WebGPU refuses bindings that overlap.
    ///
    /// # Errors
    /// The module uses a construct that WGSL lacks.
    pub fn webgpu(
        &self,
        workgroup: [u32; 3],
        constants: &[u32],
        same: &[[u32; 2]],
    ) -> Result<WebGpuShader, String> {
        let words = match self.push_bytes() {
            0 => self.words(),
            _ => replayed::in_buffer(&self.words(), self.bindings as u32),
        };
        let values: Vec<u32> = workgroup.iter().chain(constants).copied().collect();
        let parameters = match (self.push_bytes(), self.in_memory) {
            (0, 0) => None,
            (0, _) => self.bindings.checked_sub(1),
            _ => Some(self.bindings),
        };
        rewrite(&words, &values, same, parameters.map(|binding| binding as u32))
    }
}

fn rewrite(
    words: &[u32],
    values: &[u32],
    same: &[[u32; 2]],
    parameters: Option<u32>,
) -> Result<WebGpuShader, String> {
    let mut code = Code::parse(words);
    let constants = specialize::specialize(&mut code, values)?;
    specialize::prune(&mut code, &constants);
    views::merge(&mut code, same)?;
    floats::replace_functions(&mut code);
    floats::replace_constants(&mut code);
    make_writable(&mut code, parameters);
    remove_annotations(&mut code);
    let buffers: BTreeSet<u32> = code
        .globals
        .iter()
        .filter(|it| it.opcode == op::DECORATE && it.operand(1) == decoration::BINDING)
        .map(|it| it.operand(2))
        .collect();
    let parameters = parameters.filter(|binding| buffers.contains(binding));
    let buffers = buffers.into_iter().collect();
    Ok(WebGpuShader { words: code.words(), buffers, parameters })
}

/// Removes the names and decorations of what was removed.
fn remove_annotations(code: &mut Code) {
    let all = code.globals.iter().chain(&code.functions);
    let defined: HashSet<u32> = all.filter_map(|it| it.result()).collect();
    code.globals.retain(|it| match it.opcode {
        op::NAME | op::MEMBER_NAME | op::DECORATE | op::MEMBER_DECORATE => {
            defined.contains(&it.operand(0))
        }
        _ => true,
    });
}

/// Declares all buffers but one as writable, because the memory of several tensors is in one buffer
/// and WebGPU has one usage per buffer and dispatch.
fn make_writable(code: &mut Code, parameters: Option<u32>) {
    let parameters = code.globals.iter().find_map(|it| {
        let is_binding = it.opcode == op::DECORATE && it.operand(1) == decoration::BINDING;
        (is_binding && Some(it.operand(2)) == parameters).then(|| it.operand(0))
    });
    code.globals.retain(|it| match it.opcode {
        op::DECORATE => {
            let what = it.operand(1);
            let is_own = Some(it.operand(0)) == parameters;
            what != decoration::COHERENT && (what != decoration::NON_WRITABLE || is_own)
        }
        op::MEMBER_DECORATE => {
            !matches!(it.operand(2), decoration::COHERENT | decoration::NON_WRITABLE)
        }
        _ => true,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Binary, Element, MODULES, Module, Pipeline, REPLAYED_MODULES, Unary};

    /// The modules that need no optional feature.
    fn plain() -> impl Iterator<Item = &'static Module> {
        MODULES.iter().chain(REPLAYED_MODULES).filter(|module| module.features.is_empty())
    }

    fn code(shader: &WebGpuShader) -> Code {
        Code::parse(&shader.words)
    }

    /// The bindings of all variables.
    fn bindings(code: &Code) -> Vec<u32> {
        let all = code.globals.iter();
        let decorations =
            all.filter(|it| it.opcode == op::DECORATE && it.operand(1) == decoration::BINDING);
        decorations.map(|it| it.operand(2)).collect()
    }

    #[test]
    fn modules_lose_what_wgsl_lacks() {
        assert!(plain().count() > 60);
        for module in plain() {
            let shader = module.webgpu([64, 1, 1], &[], &[]).unwrap();
            let code = code(&shader);
            let name = module.name;
            for it in code.globals.iter().chain(&code.functions) {
                let is_spec = (op::SPEC_CONSTANT_TRUE..=op::SPEC_CONSTANT_OP).contains(&it.opcode);
                assert!(!is_spec, "{name}: {it:?}");
                assert!(
                    !matches!(it.opcode, op::IS_NAN | op::IS_INF | op::F_UNORD_NOT_EQUAL),
                    "{name}: {it:?}"
                );
                // Push constants.
                let is_pushed = it.opcode == op::VARIABLE && it.operand(2) == 9;
                assert!(!is_pushed, "{name}: {it:?}");
            }
            let mut found = bindings(&code);
            found.sort_unstable();
            assert_eq!(found, shader.buffers, "{name}: one variable for each buffer");
            let least = u32::try_from(module.bindings).unwrap();
            assert!(shader.buffers.iter().all(|it| *it <= least), "{name}: {:?}", shader.buffers);
        }
    }

    #[test]
    fn parameters_stay_read_only() {
        for module in plain() {
            let shader = module.webgpu([64, 1, 1], &[], &[]).unwrap();
            let code = code(&shader);
            let decorates = |it: &&code::Instruction| it.opcode == op::DECORATE;
            let fixed = code.globals.iter().filter(decorates);
            let fixed = fixed.filter(|it| it.operand(1) == decoration::NON_WRITABLE).count();
            assert_eq!(fixed, usize::from(shader.parameters.is_some()), "{}", module.name);
        }
        let parameters = |module: Module| module.webgpu([64, 1, 1], &[], &[]).unwrap().parameters;
        assert_eq!(parameters(Binary::MODULE), Some(3));
        assert_eq!(parameters(crate::Gather::REPLAYED.unwrap()), Some(2));
    }

    #[test]
    fn constants_decide_what_is_left() {
        let words = |input, output| {
            let pipeline = Unary { function: 0, input, output };
            Unary::MODULE.webgpu([64, 1, 1], &pipeline.constants(), &[]).unwrap().words
        };
        let whole = Unary::MODULE.words().len();
        let floats = words(Element::F32, Element::F32);
        let bytes = words(Element::U8, Element::Bool);
        assert!(floats.len() < whole && bytes.len() < whole && floats != bytes);
        // The workgroup size is the entry point's.
        let sized = Unary::MODULE.webgpu([32, 4, 2], &[], &[]).unwrap();
        let sizes = Code::parse(&sized.words);
        let mode = sizes.globals.iter().find(|it| it.opcode == op::EXECUTION_MODE).unwrap();
        assert_eq!(mode.operands[1..], [17, 32, 4, 2]);
    }

    #[test]
    fn atomic_buffers_stay_arrays_of_words() {
        // fp16 outputs of GEMMs are written by atomic operations; those of fp32 are not.
        let atomics = |output: Element| {
            let mut constants = vec![0; 32];
            constants[0] = output as u32;
            constants[1] = output as u32;
            let shader = crate::MatmulSum::MODULE.webgpu([64, 1, 1], &constants, &[]).unwrap();
            let code = code(&shader);
            let all = code.functions.iter();
            let range = op::FIRST_ATOMIC..=op::LAST_ATOMIC;
            all.filter(|it| range.contains(&it.opcode)).count()
        };
        assert_eq!(atomics(Element::F32), 0);
        assert!(atomics(Element::F16) > 0);
    }

    #[test]
    fn the_same_memory_has_one_binding() {
        let shader = |same: &[[u32; 2]]| Binary::MODULE.webgpu([64, 1, 1], &[], same).unwrap();
        assert_eq!(shader(&[]).buffers, [0, 1, 2, 3]);
        // In place, of a tensor with itself, and both.
        assert_eq!(shader(&[[0, 2]]).buffers, [0, 1, 3]);
        assert_eq!(shader(&[[0, 1]]).buffers, [0, 2, 3]);
        let all = shader(&[[0, 1], [0, 2]]);
        assert_eq!((all.buffers.as_slice(), all.parameters), (&[0, 3][..], Some(3)));
        assert_eq!(bindings(&code(&all)).len(), 2);
    }

    #[test]
    fn truncated_modules_do_not_panic() {
        for module in [Binary::MODULE, Unary::MODULE] {
            let words = module.words();
            for end in (0..words.len()).step_by(7) {
                let _ = rewrite(&words[..end], &[64, 1, 1], &[[0, 2]], Some(3));
            }
        }
        let _ = rewrite(&[0; 9], &[], &[], None);
        assert!(rewrite(&Unary::MODULE.words(), &[], &[], None).is_err(), "no workgroup size");
    }
}
