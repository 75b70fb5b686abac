//! Compiled programs in C.

use crate::compiled::{Compiled, Kernels, Language};
use crate::load::Loaded;
use crate::{Analysis, CompiledSizes, Error, Program, Target, code, image, names};

/// A program compiled to C99: a source file and a header.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CSource {
    /// Text of the source file, which includes the header.
    pub source: String,
    /// Text of the header.
    pub header: String,
    /// Name of the function of each method.
    pub functions: Vec<String>,
    /// Constants and activation memory. All methods share the memory.
    pub sizes: CompiledSizes,
    /// Inputs and outputs of the methods, and what was lowered.
    pub analysis: Analysis,
}

impl Program {
    /// Compiles the program to C, for firmware without Rust: kernels, weights, one static
    /// activation memory, and a function for each method, such as
    /// `void digits_forward(const float input[64], float output[10])` for a program with the
    /// [name](Self::name) `digits`. The program is [lowered](Self::lowered). Results are those of
    /// [`compiled`](Self::compiled) programs, bit by bit.
    ///
    /// `header` is the name of the header that the source includes: letters, digits, `_`, `.`
    /// and `-`.
    ///
    /// # Errors
    /// If the program cannot be read or compiled, or has custom kernels.
    pub fn to_c(self, target: &Target, header: &str) -> Result<CSource, Error> {
        let is_part = |char: char| char.is_ascii_alphanumeric() || "_.-".contains(char);
        if header.is_empty() || !header.chars().all(is_part) {
            let reason =
                "of the header has other characters than letters, digits, '_', '.' and '-'";
            return Err(Error::Name { name: header.into(), reason });
        }
        let name = names::c_prefix(&self.module());
        let program = self.lowered();
        let Loaded { bytes, analysis, .. } = Loaded::of(&program, target)?;
        image::check_distinct(&analysis, |method| code::c::function_name(&name, method))?;
        let path = || program.path.clone();
        let read = torchlet_core::Program::from_bytes(&bytes);
        let read = read.map_err(|source| Error::Format { path: path(), source })?;
        let read = torchlet_graph::method::Program::read(&read);
        let read = read.map_err(|source| Error::Lower { path: path(), source })?;
        let kernels = Kernels { language: Language::C, are_packed: target.has_dsp_in_c() };
        let code = Compiled::of(&read, &program, &analysis, kernels)
            .and_then(|compiled| code::c::program(&compiled, &analysis, &name, header));
        let code = code.map_err(|reasons| Error::NotCompiled { path: path(), reasons })?;
        let sizes = CompiledSizes { constants: code.constants, memory: code.memory };
        let function = |method| code::c::function_name(&name, method);
        let functions = analysis.methods.iter().map(function).collect();
        let code::c::Code { source, header, .. } = code;
        Ok(CSource { source, header, functions, sizes, analysis })
    }
}
