//! Makes a module of the program that `MODEL` names.

fn main() -> Result<(), torchlet_build::Error> {
    println!("cargo::rustc-link-search={}", env!("CARGO_MANIFEST_DIR"));
    println!("cargo::rerun-if-changed=memory.x");
    println!("cargo::rerun-if-changed=device.x");
    println!("cargo::rustc-link-arg=-Tlink.x");
    println!("cargo::rerun-if-env-changed=MODEL");
    let digits = "../../tests/fixtures/digits/digits.pte";
    let model = std::env::var("MODEL").unwrap_or_else(|_| digits.into());
    torchlet_build::Program::new(model).name("model").lowered().write()
}
