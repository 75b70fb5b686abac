//! Generates the module of the program in `MODEL`, compiled if `COMPILED` is set, and passes the
//! memory map to the linker.

fn main() -> Result<(), torchlet_build::Error> {
    let processor = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let folder = format!("{}/{processor}", env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rustc-link-search={folder}");
    println!("cargo::rerun-if-changed={folder}");
    if processor.starts_with("riscv") {
        // Cortex-M start-up code includes it itself.
        println!("cargo::rustc-link-arg=-Tmemory.x");
    }
    println!("cargo::rustc-link-arg=-Tlink.x");
    println!("cargo::rerun-if-env-changed=MODEL");
    let digits = "../../tests/fixtures/digits/digits.pte";
    let model = std::env::var("MODEL").unwrap_or_else(|_| digits.into());
    println!("cargo::rerun-if-env-changed=COMPILED");
    let program = torchlet_build::Program::new(model).name("model");
    match std::env::var_os("COMPILED") {
        Some(_) => program.compiled_only().write(),
        None => program.lowered().write(),
    }
}
