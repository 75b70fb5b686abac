//! Generates the JavaScript glue of the torchlet-web modules:
//! `torchlet-web-bind MODULE RELAXED FOLDER`.
//!
//! `wasm-bindgen` generates glue for a single module instance. Here it is wrapped in a function
//! that creates an instance per call, so that each program has memory of its own. The second
//! module, built with relaxed SIMD, is stored as a patch of the first (`patch.rs`).

mod patch;

use anyhow::{Context, Result, ensure};
use std::path::Path;
use wasm_bindgen_cli_support::Bindgen;

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let module = arguments.next().context("the module is missing")?;
    let relaxed = arguments.next().context("the module with relaxed SIMD is missing")?;
    let folder = arguments.next().context("the folder for what is made is missing")?;
    let folder = Path::new(&folder);
    let (other_text, relaxed) = bind(Path::new(&relaxed), folder)?;
    let (text, module) = bind(Path::new(&module), folder)?;
    // The function must work with either module.
    ensure!(text == other_text, "the modules are not of the same sources");
    std::fs::write(folder.join("torchlet.relaxed"), patch::between(&module, &relaxed))?;
    std::fs::write(folder.join("torchlet.wasm"), module)?;
    let engine = format!(
        "/* Made by wasm-bindgen of web/src. Each call makes an instance of the module. */\n\
         export function instantiate(module) {{\n{text}\nwasm_bindgen.initSync({{ module }});\nreturn wasm_bindgen;\n}}\n"
    );
    Ok(std::fs::write(folder.join("engine.js"), engine)?)
}

/// Returns the glue of a module, and the processed module.
fn bind(module: &Path, folder: &Path) -> Result<(String, Vec<u8>)> {
    Bindgen::new()
        .input_path(module)
        .out_name("torchlet")
        .no_modules(true)?
        .typescript(false)
        .remove_name_section(true)
        .remove_producers_section(true)
        .generate(folder)?;
    let (glue, bound) = (folder.join("torchlet.js"), folder.join("torchlet_bg.wasm"));
    let text = std::fs::read_to_string(&glue).with_context(|| glue.display().to_string())?;
    let bytes = std::fs::read(&bound).with_context(|| bound.display().to_string())?;
    std::fs::remove_file(glue)?;
    std::fs::remove_file(bound)?;
    Ok((text, bytes))
}
