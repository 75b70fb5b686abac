//! `torchlet size`: the size of a program in a firmware image, by the same analysis as a build
//! script.

use crate::arguments::SizeArguments;
use crate::failure::Failure;
use crate::terminal::{FAINT, NAME, TITLE, WARN, count, grouped, paint};
use anstream::println;
use serde_json::{Value, json};
use torchlet_build::{Analysis, MethodAnalysis, Program, Slot};

/// Analyzes a program and shows its requirements.
pub(crate) fn size(arguments: &SizeArguments) -> Result<(), Failure> {
    let mut program = Program::new(&arguments.model);
    for path in &arguments.data {
        program = program.data(path);
    }
    if arguments.lower {
        program = program.lowered();
    }
    let analysis = program.analyze(&arguments.target);
    let analysis = analysis.map_err(|error| Failure::new(error.to_string()))?;
    match arguments.json {
        true => std::println!("{}", object(&analysis, arguments)),
        false => show(&analysis, arguments),
    }
    Ok(())
}

fn show(analysis: &Analysis, arguments: &SizeArguments) {
    println!("{}", paint(TITLE, format!("on {}", arguments.target.name())));
    println!("flash     program {}, and kernels", grouped(analysis.program));
    println!("kernels   {}", paint(FAINT, count(analysis.operators.len(), "operator")));
    for name in &analysis.operators {
        println!("          {}", paint(NAME, name.escape_debug().to_string()));
    }
    println!("types     {}", types(analysis).join(", "));
    for text in &analysis.fallbacks {
        println!("{}", paint(WARN, text));
    }
    for method in &analysis.methods {
        let MethodAnalysis { arena, arena_use, planned, scratch, .. } = method;
        println!("\n{}", paint(TITLE, method.name.escape_debug().to_string()));
        let parts = format!(
            "values {}, tensors {}, instructions {}, constants {}, packed weights {}",
            arena_use.values,
            arena_use.tensors,
            arena_use.instructions,
            arena_use.constants,
            arena_use.packed
        );
        println!("  arena   {:>9}  {}", grouped(*arena as u64), paint(FAINT, parts));
        for size in planned {
            println!("  planned {:>9}", grouped(*size as u64));
        }
        println!("  scratch {:>9}", grouped(*scratch as u64));
        if method.lent() > 0 {
            let note = paint(FAINT, "inputs, outputs and state outside the memory plan");
            println!("  lent    {:>9}  {note}", grouped(method.lent() as u64));
        }
        println!("  RAM     {:>9}", grouped(method.total() as u64));
        let line =
            |slots: &[Slot]| slots.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        println!("  inputs  {}", line(&method.inputs));
        println!("  outputs {}", line(&method.outputs));
    }
}

fn types(analysis: &Analysis) -> Vec<&'static str> {
    analysis.types.elements().map(|found| found.name()).collect()
}

fn object(analysis: &Analysis, arguments: &SizeArguments) -> Value {
    let methods = analysis.methods.iter().map(|method| {
        let texts = |slots: &[Slot]| slots.iter().map(ToString::to_string).collect::<Vec<_>>();
        json!({
            "name": method.name,
            "arena": method.arena,
            "planned": method.planned,
            "scratch": method.scratch,
            "lent": method.lent(),
            "total": method.total(),
            "inputs": texts(&method.inputs),
            "outputs": texts(&method.outputs),
        })
    });
    json!({
        "target": arguments.target.name(),
        "program": analysis.program,
        "kernels": analysis.operators,
        "types": types(analysis),
        "fallbacks": analysis.fallbacks,
        "methods": methods.collect::<Vec<_>>(),
    })
}
