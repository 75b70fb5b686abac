//! `torchlet convert`.

use crate::arguments::ConvertArguments;
use crate::failure::Failure;
use crate::lower::{note_external, write, write_package};
use crate::model;
use crate::terminal::{FAINT, bytes, paint};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use torchlet::core::DataLoader;
use torchlet::graph;
use torchlet::graph::method::{Instruction, Program};
use torchlet::portable::KERNELS;

/// Rewrites a program. Debug information is not read and is thereby stripped.
pub(crate) fn convert(arguments: &ConvertArguments) -> Result<(), Failure> {
    let source = model::as_exported(&arguments.model, &arguments.data)?;
    let program = source.program();
    let mut read = Program::read(&program).map_err(fail)?;
    let outside = read.embed(source.data()).map_err(fail)?;
    if let Some(path) = &arguments.split {
        split(&mut read, path)?;
    }
    let is_header = arguments.out.extension().is_some_and(|extension| extension == "h");
    let kernels = if is_header { Some(kernels(&read)?) } else { None };
    let package = read.write().map_err(fail)?;
    let written = match kernels {
        Some(kernels) => {
            let header = header(&package.to_bytes(), &kernels, &arguments.out);
            write(&arguments.out, |file| file.write_all(header.as_bytes()))?;
            package.size()
        }
        None => {
            let cases = source.bundled().filter(|_| !arguments.strip);
            write_package(&arguments.out, &package, cases.as_ref())?
        }
    };
    let sizes = format!("{} -> {}", bytes(source.file_size()), bytes(written));
    anstream::println!("{}  {}", arguments.out.display(), paint(FAINT, sizes));
    note_external(&outside);
    Ok(())
}

fn fail(error: graph::Error) -> Failure {
    Failure::new(format!("cannot serialize the program: {error}"))
}

/// Names in the C library of the kernels that a program needs.
fn kernels(program: &Program<'_>) -> Result<BTreeSet<String>, Failure> {
    let mut kernels = BTreeSet::new();
    for method in &program.methods {
        if let Some(delegate) = method.delegates.first() {
            return Err(Failure::new(format!(
                "the method '{}' has a delegate for {}, which firmware lacks: lower the program \
                 first, with `torchlet lower --for mcu`",
                method.name, delegate.backend
            )));
        }
        for instruction in &method.instructions {
            if let Instruction::Kernel { name, overload, .. } = instruction {
                let name = if overload.is_empty() { name } else { &format!("{name}.{overload}") };
                if !KERNELS.iter().any(|kernel| kernel.name == *name) {
                    return Err(Failure::new(format!("the C library has no kernel {name}")));
                }
                kernels.insert(format!("torchlet_kernel_{}", identifier(&name.replace("::", "_"))));
            }
        }
    }
    // C has no empty arrays.
    match kernels.is_empty() {
        true => Err(Failure::new("the program calls no kernels, so no header can list them")),
        false => Ok(kernels),
    }
}

/// A C and C++ header with a program and its kernels, for firmware that links the C library. Its
/// names begin with the name of the file.
fn header(bytes: &[u8], kernels: &BTreeSet<String>, path: &Path) -> String {
    /// Bytes per line.
    const LINE: usize = 24;
    let stem = identifier(&path.file_stem().unwrap_or_default().to_string_lossy());
    let mut text = format!(
        "/* A program for torchlet, and its kernels: written by `torchlet convert`. */\n\n\
         #ifndef TORCHLET_PROGRAM_{0}\n#define TORCHLET_PROGRAM_{0}\n\n\
         #include <torchlet.h>\n#include <torchlet_kernels.h>\n\n\
         /* With this alignment, weights are used in place. */\n\
         #ifdef __cplusplus\nalignas(TORCHLET_ALIGN)\n#else\n_Alignas(TORCHLET_ALIGN)\n#endif\n\
         static const unsigned char {stem}_program[] = {{\n",
        stem.to_uppercase()
    );
    for line in bytes.chunks(LINE) {
        let numbers: Vec<String> = line.iter().map(u8::to_string).collect();
        text.push_str(&format!("    {},\n", numbers.join(",")));
    }
    text.push_str(&format!("}};\n\nstatic const torchlet_kernel *const {stem}_kernels[] = {{\n"));
    for kernel in kernels {
        text.push_str(&format!("    &{kernel},\n"));
    }
    text.push_str("};\n\n#endif\n");
    text
}

/// A C identifier from a name: other characters than ASCII letters and digits become underscores.
fn identifier(name: &str) -> String {
    let valid = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
    let name: String = name.chars().map(valid).collect();
    match name.starts_with(|first: char| first.is_ascii_digit()) || name.is_empty() {
        true => format!("_{name}"),
        false => name,
    }
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
