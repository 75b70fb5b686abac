//! Makes a module of the program, and tells the linker where memory is.

#[path = "../link.rs"]
mod link;

fn main() -> Result<(), torchlet_build::Error> {
    link::main();
    torchlet_build::Program::new("../../tests/fixtures/tinyml/digits.pte").write()
}
