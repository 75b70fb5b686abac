//! `torchlet convert`.

use crate::arguments::ConvertArguments;
use crate::failure::Failure;
use crate::lower::write;
use crate::terminal::{FAINT, WARN, bytes, count, paint};
use std::io::Write;
use std::path::Path;
use torchlet::core::DataLoader;
use torchlet::graph::{self, method::Program};
use torchlet::{FileAccess, Module, RunOn};

/// Rewrites a program. Debug information is not read and is thereby stripped.
pub(crate) fn convert(arguments: &ConvertArguments) -> Result<(), Failure> {
    // Files may be mapped: the help requires that they do not change while the command runs.
    let mut builder = Module::builder().file_access(FileAccess::Map).run_on(RunOn::AsExported);
    for path in &arguments.data {
        builder = builder.data(path);
    }
    let source = builder.load(&arguments.model)?;
    let program = source.program();
    let mut read = Program::read(&program).map_err(fail)?;
    let outside = read.embed(source.data()).map_err(fail)?;
    if let Some(path) = &arguments.split {
        split(&mut read, path)?;
    }
    let package = read.write().map_err(fail)?;
    let written = match source.bundled().filter(|_| !arguments.strip) {
        Some(cases) => {
            let bundle = graph::bundle(&cases, &package.to_bytes()).map_err(fail)?;
            write(&arguments.out, |file| file.write_all(&bundle))?;
            bundle.len() as u64
        }
        None => {
            write(&arguments.out, |file| package.write_to(|bytes| file.write_all(bytes)))?;
            package.size()
        }
    };
    let sizes = format!("{} -> {}", bytes(source.file_size()), bytes(written));
    anstream::println!("{}  {}", arguments.out.display(), paint(FAINT, sizes));
    if let Some(name) = outside.first() {
        let tensors = count(outside.len(), "tensor");
        let note = format!("the data of {tensors} (such as '{name}') remains in external files");
        anstream::println!("{}", paint(WARN, note));
    }
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
