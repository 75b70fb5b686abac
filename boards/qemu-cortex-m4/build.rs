//! Generates the program's module, and passes the memory map and the script for `defmt` strings to
//! the linker.

fn main() -> Result<(), torchlet_build::Error> {
    println!("cargo::rustc-link-search={}", env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rerun-if-changed=memory.x");
    println!("cargo::rustc-link-arg=-Tlink.x");
    println!("cargo::rustc-link-arg=-Tdefmt.x");
    // Any program with one input array and one output array works: `MODEL=other.pte cargo build`.
    println!("cargo::rerun-if-env-changed=MODEL");
    let model = option("MODEL", "../../tests/fixtures/digits/digits.pte");
    torchlet_build::Program::new(model).name("model").lowered().write()
}

fn option(name: &str, otherwise: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| otherwise.into())
}
