//! Compiles a module to SPIR-V.

use crate::modules::Module;
use crate::{names, unused};
use anyhow::{Context, Result, anyhow, bail};
use glslang::error::GlslangError;
use glslang::include::{IncludeHandler, IncludeResult, IncludeType};
use glslang::{
    Compiler, CompilerOptions, ShaderInput, ShaderMessage, ShaderSource, ShaderStage,
    SourceLanguage, SpirvVersion, Target, VulkanVersion,
};
use std::path::Path;

/// Compiles a module; the result is the same on every machine.
pub(crate) fn compile(module: &Module, folder: &Path) -> Result<Vec<u8>> {
    let text = std::fs::read_to_string(&module.source)?;
    if text.contains('\0') {
        bail!("{} is not UTF-8", module.source.display());
    }
    let words = words(module, &text, folder)
        .with_context(|| format!("{} (module {})", module.source.display(), module.name))?;
    Ok(words.iter().flat_map(|word| word.to_le_bytes()).collect())
}

fn words(module: &Module, text: &str, folder: &Path) -> Result<Vec<u32>> {
    let compiler = Compiler::acquire().context("cannot start the GLSL compiler")?;
    let options = CompilerOptions {
        source_language: SourceLanguage::GLSL,
        target: Target::Vulkan {
            version: module.target,
            spirv_version: spirv_version(module.target),
        },
        version_profile: None,
        messages: ShaderMessage::VULKAN_RULES | ShaderMessage::SPV_RULES,
    };
    let source = ShaderSource::from(text);
    let macros: Vec<_> =
        module.macros.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
    let mut includes = Includes { folder };
    let input = ShaderInput::new(
        &source,
        ShaderStage::Compute,
        &options,
        Some(&macros[..]),
        Some(&mut includes),
    );
    let shader = compiler.create_shader(input.map_err(explain)?).map_err(explain)?;
    shader.compile().map(|words| unused::remove(&names::strip(&words))).map_err(explain)
}

/// Returns the compiler's log without its empty parts.
fn explain(error: GlslangError) -> anyhow::Error {
    match error {
        GlslangError::PreprocessError(log)
        | GlslangError::ParseError(log)
        | GlslangError::MapIoError(log)
        | GlslangError::LinkError(log) => anyhow!("{}", log.log.trim()),
        other => other.into(),
    }
}

/// The newest SPIR-V version that every driver of this Vulkan version supports.
fn spirv_version(target: VulkanVersion) -> SpirvVersion {
    match target {
        VulkanVersion::Vulkan1_2 => SpirvVersion::SPIRV1_5,
        VulkanVersion::Vulkan1_3 => SpirvVersion::SPIRV1_6,
        _ => SpirvVersion::SPIRV1_3,
    }
}

/// Resolves `#include` in the source folder.
struct Includes<'a> {
    folder: &'a Path,
}

impl IncludeHandler for Includes<'_> {
    fn include(
        &mut self,
        _: IncludeType,
        name: &str,
        _includer: &str,
        _depth: usize,
    ) -> Option<IncludeResult> {
        let data = std::fs::read_to_string(self.folder.join(name)).ok()?;
        Some(IncludeResult { name: name.to_owned(), data })
    }
}
