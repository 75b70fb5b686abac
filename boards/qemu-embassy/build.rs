//! Generates the program's module, and passes the memory map to the linker.

#[path = "../link.rs"]
mod link;

fn main() -> Result<(), torchlet_build::Error> {
    link::main();
    torchlet_build::Program::new("../../tests/fixtures/tinyml/digits.pte").write()
}
