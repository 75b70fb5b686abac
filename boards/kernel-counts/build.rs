//! Passes the memory map to the linker, and the path of the peer's kernels if present.

fn main() {
    let target = std::env::var("TARGET").unwrap_or_default();
    let chip = if target.starts_with("thumbv8m") { "cortex-m55" } else { "cortex-m4" };
    let folder = format!("{}/{chip}", env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rustc-link-search={folder}");
    println!("cargo::rerun-if-changed={folder}/memory.x");
    println!("cargo::rustc-link-arg=-Tlink.x");
    println!("cargo::rustc-check-cfg=cfg(peer)");
    println!("cargo::rerun-if-env-changed=PEER");
    if let Ok(peer) = std::env::var("PEER") {
        println!("cargo::rustc-cfg=peer");
        println!("cargo::rustc-link-search={peer}");
        println!("cargo::rustc-link-lib=static=peer");
        println!("cargo::rerun-if-changed={peer}/libpeer.a");
    }
}
