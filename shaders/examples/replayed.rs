//! Writes the modules that are made of others when programs are loaded, as a device is given them:
//! for `spirv-val`, which `cargo xtask shaders --check` runs over them.

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
