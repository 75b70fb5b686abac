//! `torchlet compile`: writes a program as code for firmware.

use crate::arguments::{CompileArguments, Language};
use crate::failure::Failure;
use crate::lower;
use crate::terminal::{NAME, WARN, grouped, paint};
use anstream::println;
use serde_json::json;
use std::io::Write;
use torchlet_build::{Error, Program};

/// Compiles a program and writes source and header.
pub(crate) fn compile(arguments: &CompileArguments) -> Result<(), Failure> {
    let Language::C = arguments.language;
    let (source, header) = (&arguments.out, arguments.out.with_extension("h"));
    if *source == header {
        return Err(Failure::new("the source file must not end in .h, as the header does"));
    }
    let text =
        |name: Option<&std::ffi::OsStr>| name.unwrap_or_default().to_string_lossy().into_owned();
    let name = arguments.name.clone().unwrap_or_else(|| text(source.file_stem()));
    let mut program = Program::new(&arguments.model).name(&name);
    for path in &arguments.data {
        program = program.data(path);
    }
    for method in &arguments.method {
        program = program.method(method);
    }
    let code = program.to_c(&arguments.target, &text(header.file_name()));
    let code = code.map_err(|error| match error {
        Error::NotCompiled { path, reasons } => {
            let path = path.display();
            Failure::new(format!("{path} cannot be compiled: {}", reasons.join("; ")))
        }
        error => Failure::new(error.to_string()),
    })?;
    lower::write(source, |file| file.write_all(code.source.as_bytes()))?;
    lower::write(&header, |file| file.write_all(code.header.as_bytes()))?;
    if arguments.json {
        let object = json!({
            "source": source,
            "header": header,
            "functions": code.functions,
            "constants": code.sizes.constants,
            "memory": code.sizes.memory,
            "fallbacks": code.analysis.fallbacks,
        });
        std::println!("{object}");
        return Ok(());
    }
    println!("{}, {}", paint(NAME, source.display()), paint(NAME, header.display()));
    println!("constants {:>9}", grouped(code.sizes.constants as u64));
    println!("memory    {:>9}", grouped(code.sizes.memory as u64));
    for function in &code.functions {
        println!("function  {}", paint(NAME, function));
    }
    for text in &code.analysis.fallbacks {
        println!("{}", paint(WARN, text));
    }
    Ok(())
}
