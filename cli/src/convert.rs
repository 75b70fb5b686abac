//! `torchlet convert`.

use crate::arguments::ConvertArguments;
use crate::failure::Failure;
use crate::lower::{note_external, write, write_package};
use crate::model;
use crate::terminal::{FAINT, bytes, paint};
use std::io::Write;
use std::path::Path;
use torchlet::core::DataLoader;
use torchlet::graph::{self, method::Program};

/// Rewrites a program. Debug information is not read and is thereby stripped.
pub(crate) fn convert(arguments: &ConvertArguments) -> Result<(), Failure> {
    let source = model::as_exported(&arguments.model, &arguments.data)?;
    let program = source.program();
    let mut read = Program::read(&program).map_err(fail)?;
    let outside = read.embed(source.data()).map_err(fail)?;
    if let Some(path) = &arguments.split {
        split(&mut read, path)?;
    }
    let package = read.write().map_err(fail)?;
    let cases = source.bundled().filter(|_| !arguments.strip);
    let written = write_package(&arguments.out, &package, cases.as_ref())?;
    let sizes = format!("{} -> {}", bytes(source.file_size()), bytes(written));
    anstream::println!("{}  {}", arguments.out.display(), paint(FAINT, sizes));
    note_external(&outside);
    Ok(())
}

fn fail(error: graph::Error) -> Failure {
    Failure::new(format!("cannot serialize the program: {error}"))
}

/// Moves the program's constants and named data to a file.
fn split(program: &mut Program<'_>, path: &Path) -> Result<(), Failure> {
    let data = program.split().map_err(fail)?;
    let nothing = || Failure::new("the program has no constants to move out; omit --split");
    let data = data.ok_or_else(nothing)?;
    write(path, |file| data.write_to(|bytes| file.write_all(bytes)))?;
    anstream::println!("{}  {}", path.display(), paint(FAINT, bytes(data.size())));
    Ok(())
}
