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
use std::collections::HashSet;

impl crate::Module {
    /// Returns the module as SPIR-V that translates to WGSL, with a workgroup of this size and
    /// these specialisation constants, from id 3 on. Parameters are in a buffer behind the others,
    /// which is the only one that is declared as read-only.
    ///
    /// # Errors
    /// The module uses a construct that WGSL lacks.
    pub fn webgpu(&self, workgroup: [u32; 3], constants: &[u32]) -> Result<Vec<u32>, String> {
        let words = match self.push_bytes() {
            0 => self.words(),
            _ => replayed::in_buffer(&self.words(), self.bindings as u32),
        };
        let values: Vec<u32> = workgroup.iter().chain(constants).copied().collect();
        rewrite(&words, &values, self.webgpu_parameters())
    }

    /// Returns the binding of the buffer with the parameters, if the shader has any.
    pub fn webgpu_parameters(&self) -> Option<usize> {
        match (self.push_bytes(), self.in_memory) {
            (0, 0) => None,
            (0, _) => self.bindings.checked_sub(1),
            _ => Some(self.bindings),
        }
    }
}

fn rewrite(words: &[u32], values: &[u32], parameters: Option<usize>) -> Result<Vec<u32>, String> {
    let mut code = Code::parse(words);
    let constants = specialize::specialize(&mut code, values)?;
    specialize::prune(&mut code, &constants);
    views::merge(&mut code)?;
    floats::replace_tests(&mut code);
    floats::replace_constants(&mut code);
    make_writable(&mut code, parameters);
    remove_annotations(&mut code);
    Ok(code.words())
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
fn make_writable(code: &mut Code, parameters: Option<usize>) {
    let parameters = code.globals.iter().find_map(|it| {
        let is_binding = it.opcode == op::DECORATE && it.operand(1) == decoration::BINDING;
        (is_binding && Some(it.operand(2) as usize) == parameters).then(|| it.operand(0))
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
