//! Makes a module of the program, and tells the linker where memory is, and where the texts of log
//! lines go.

fn main() -> Result<(), torchlet_build::Error> {
    println!("cargo::rustc-link-search={}", env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rerun-if-changed=memory.x");
    println!("cargo::rustc-link-arg=-Tlink.x");
    println!("cargo::rustc-link-arg=-Tdefmt.x");
    // Any program with one array as its input and one as its output will do:
    // `MODEL=other.pte cargo build`.
    println!("cargo::rerun-if-env-changed=MODEL");
    let model = option("MODEL", "../../tests/fixtures/digits/digits.pte");
    torchlet_build::Program::new(model).name("model").lowered().write()
}

fn option(name: &str, otherwise: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| otherwise.into())
}
