//! Writes the modules that are derived at load time, as passed to a device, so that
//! `cargo xtask shaders --check` can run `spirv-val` on them.

use std::path::PathBuf;
use torchlet_shaders::REPLAYED_MODULES;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder: PathBuf = std::env::args_os().nth(1).ok_or("usage: replayed FOLDER")?.into();
    for module in REPLAYED_MODULES {
        let bytes: Vec<u8> = module.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        std::fs::write(folder.join(module.name).with_extension("spv"), bytes)?;
    }
    Ok(())
}
