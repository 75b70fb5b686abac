//! The modules of a shader source.
//!
//! A source `NAME.comp` produces one module of that name for Vulkan 1.1, unless lines of it declare
//! others:
//!
//! ```text
//! //! module matmul
//! //! module matmul_half HALF WIDTH=8
//! //! module matmul_cooperative COOPERATIVE target=vulkan1.3
//! ```
//!
//! Each such line declares a module: its name, macros, and the Vulkan version if not 1.1.

use anyhow::{Context, Result, bail};
use glslang::VulkanVersion;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Prefix of a module declaration.
const DECLARATION: &str = "//! module ";

/// A module to compile.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) source: PathBuf,
    /// Macros with their values.
    pub(crate) macros: Vec<(String, Option<String>)>,
    pub(crate) target: VulkanVersion,
}

impl Module {
    /// Name of the source without extension.
    pub(crate) fn source_name(&self) -> &str {
        self.source.file_stem().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Parses the text after [`DECLARATION`].
    fn parse(source: &Path, declaration: &str) -> Result<Self> {
        let mut items = declaration.split_whitespace();
        let name = items.next().context("a module without a name")?.to_owned();
        if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_') {
            bail!("{name}: module names consist of lower-case letters, digits and underscores");
        }
        let mut module = Module {
            name,
            source: source.to_path_buf(),
            macros: Vec::new(),
            target: VulkanVersion::Vulkan1_1,
        };
        for item in items {
            match item.split_once('=') {
                Some(("target", version)) => module.target = target(version)?,
                Some((name, value)) => {
                    module.macros.push((name.to_owned(), Some(value.to_owned())))
                }
                None => module.macros.push((item.to_owned(), None)),
            }
        }
        Ok(module)
    }
}

fn target(version: &str) -> Result<VulkanVersion> {
    Ok(match version {
        "vulkan1.1" => VulkanVersion::Vulkan1_1,
        "vulkan1.2" => VulkanVersion::Vulkan1_2,
        "vulkan1.3" => VulkanVersion::Vulkan1_3,
        _ => bail!("target {version}: expected vulkan1.1, vulkan1.2 or vulkan1.3"),
    })
}

/// The modules of all sources in a folder, sorted by name.
pub(crate) fn all(sources: &Path) -> Result<Vec<Module>> {
    let mut modules = Vec::new();
    let entries =
        std::fs::read_dir(sources).with_context(|| format!("cannot read {}", sources.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "comp") {
            let text = std::fs::read_to_string(&path);
            let text = text.with_context(|| format!("cannot read {}", path.display()))?;
            modules.extend(of_source(&path, &text).with_context(|| path.display().to_string())?);
        }
    }
    modules.sort_by(|a, b| a.name.cmp(&b.name));
    let mut names = BTreeSet::new();
    for module in &modules {
        if !names.insert(&module.name) {
            bail!("several sources define the module {}", module.name);
        }
    }
    Ok(modules)
}

/// The modules of one source.
fn of_source(path: &Path, text: &str) -> Result<Vec<Module>> {
    let declarations = text.lines().filter_map(|line| line.strip_prefix(DECLARATION));
    let declared: Vec<Module> =
        declarations.map(|declaration| Module::parse(path, declaration)).collect::<Result<_>>()?;
    if !declared.is_empty() {
        return Ok(declared);
    }
    let name = path.file_stem().and_then(|name| name.to_str()).context("a name in UTF-8")?;
    Ok(vec![Module::parse(path, name)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_named_after_their_sources() {
        let modules = of_source(Path::new("glsl/unary.comp"), "#version 450\n").unwrap();
        assert_eq!(modules.len(), 1);
        assert_eq!(modules[0].name, "unary");
        assert_eq!(modules[0].target, VulkanVersion::Vulkan1_1);
        assert!(modules[0].macros.is_empty());
    }

    #[test]
    fn declarations_name_modules() {
        let text =
            "#version 450\n//! module mm\n//! module mm_half HALF WIDTH=8 target=vulkan1.3\n";
        let modules = of_source(Path::new("glsl/matmul.comp"), text).unwrap();
        assert_eq!(modules.len(), 2);
        assert_eq!((modules[0].name.as_str(), modules[0].source_name()), ("mm", "matmul"));
        assert_eq!(modules[1].name, "mm_half");
        let macros = [("HALF".to_owned(), None), ("WIDTH".to_owned(), Some("8".to_owned()))];
        assert_eq!(modules[1].macros, macros);
        assert_eq!(modules[1].target, VulkanVersion::Vulkan1_3);
    }

    #[test]
    fn invalid_declarations_are_errors() {
        for bad in ["", "Upper", "../up", "a target=vulkan9"] {
            assert!(Module::parse(Path::new("a.comp"), bad).is_err(), "{bad:?}");
        }
    }
}
