//! Makes the glue between the module of torchlet-web and JavaScript: `torchlet-web-bind MODULE FOLDER`.
//!
//! `wasm-bindgen` makes it for one instance of the module. Here, it becomes a function that makes an instance each time, so that each program has
//! memory of its own.

use anyhow::{Context, Result};
use std::path::Path;
use wasm_bindgen_cli_support::Bindgen;

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let module = arguments.next().context("the module is missing")?;
    let folder = arguments.next().context("the folder for what is made is missing")?;
    let folder = Path::new(&folder);
    Bindgen::new()
        .input_path(&module)
        .out_name("torchlet")
        .no_modules(true)?
        .typescript(false)
        .remove_name_section(true)
        .remove_producers_section(true)
        .generate(folder)?;
    let glue = folder.join("torchlet.js");
    let text = std::fs::read_to_string(&glue).with_context(|| glue.display().to_string())?;
    let engine = format!(
        "/* Made by wasm-bindgen of web/src. Each call makes an instance of the module. */\n\
         export function instantiate(module) {{\n{text}\nwasm_bindgen.initSync({{ module }});\nreturn wasm_bindgen;\n}}\n"
    );
    std::fs::write(folder.join("engine.js"), engine)?;
    std::fs::remove_file(glue)?;
    std::fs::rename(folder.join("torchlet_bg.wasm"), folder.join("torchlet.wasm"))?;
    Ok(())
}
