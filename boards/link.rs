//! Build script of all boards: passes the board's memory map and the linker script of its start-up
//! code to the linker.

use std::env::var;

pub fn main() {
    let folder = var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo:rustc-link-search={folder}");
    println!("cargo:rerun-if-changed=memory.x");
    scripts();
}

/// Passes the linker scripts.
pub fn scripts() {
    let scripts: &[&str] = match var("CARGO_CFG_TARGET_ARCH").unwrap_or_default().as_str() {
        "arm" => &["link.x"],
        "aarch64" => &["image.ld", "memory.x"],
        _ => &["memory.x", "link.x"],
    };
    for script in scripts.iter().chain(&["defmt.x"]) {
        println!("cargo:rustc-link-arg=-T{script}");
    }
}
