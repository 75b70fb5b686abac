//! The `torchlet` command: runs, inspects, verifies and measures exported PyTorch programs.
//!
//! It is also a library, so that other packages can embed the command, as `python -m torchlet`
//! does.
//!
//! The crate is a thin layer over `torchlet`; it contains no kernels, and no file formats but those
//! of inputs (`.npy`, images). Start reading at [`arguments`], the source of `--help`; each command
//! has a module of its name.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod arguments;
mod bench;
mod budget;
mod bundle;
mod cases;
mod compile;
mod containers;
mod convert;
#[cfg(test)]
mod damaged;
mod devices;
mod diff;
mod etdump;
mod extract;
mod failure;
mod image_input;
mod inputs;
mod inspect;
#[cfg(feature = "llm")]
mod language;
mod lower;
mod model;
mod npy;
mod profile;
mod run;
mod size;
mod summary;
mod terminal;
mod verify;

use arguments::{Arguments, Command};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use failure::Failure;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Exit status for invalid arguments.
const USAGE: u8 = 2;

/// Exit status for failures.
const FAILED: u8 = 1;

/// Runs the command and returns its exit status. The first argument is the command's name.
///
/// With the feature `serve`, the command `serve` starts the current executable with the argument
/// `__compile-schema`, so an executable that offers `serve` must pass its arguments to this
/// function.
pub fn run_command(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            if let Some(failure) = command_is_a_file(&error) {
                report(&failure);
                return USAGE;
            }
            let status = if error.use_stderr() { USAGE } else { 0 };
            // A failed write to standard error cannot be reported.
            let _ = error.print();
            return status;
        }
    };
    let result = match &arguments.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Inspect(arguments) => inspect::inspect(arguments),
        Command::Convert(arguments) => convert::convert(arguments),
        Command::Bundle(arguments) => bundle::bundle(arguments),
        Command::Extract(arguments) => extract::extract(arguments),
        Command::Verify(arguments) => return verify::verify(arguments),
        Command::Lower(arguments) => lower::lower(arguments),
        Command::Size(arguments) => size::size(arguments),
        Command::Compile(arguments) => compile::compile(arguments),
        Command::Bench(arguments) => bench::bench(arguments),
        Command::Profile(arguments) => profile::profile(arguments),
        Command::Diff(arguments) => return diff::diff(arguments),
        #[cfg(feature = "llm")]
        Command::Generate(arguments) => language::generate(arguments),
        #[cfg(feature = "llm")]
        Command::Chat(arguments) => language::chat(arguments),
        #[cfg(feature = "llm")]
        Command::Transcribe(arguments) => language::transcribe(arguments),
        #[cfg(feature = "llm")]
        Command::BenchLlm(arguments) => language::bench(arguments),
        #[cfg(feature = "serve")]
        Command::Serve(arguments) => language::serve(arguments),
        #[cfg(all(feature = "serve", feature = "grammar"))]
        Command::CompileSchema => language::compile_schema(),
        Command::Devices { json } => {
            devices::devices(*json);
            Ok(())
        }
        Command::Completions { shell } => {
            let (mut command, mut script) = (Arguments::command(), Vec::new());
            clap_complete::generate(*shell, &mut command, "torchlet", &mut script);
            // Printed as all other output, so that write errors are handled in one place.
            print!("{}", String::from_utf8_lossy(&script));
            Ok(())
        }
    };
    match result {
        Ok(()) => 0,
        Err(failure) => {
            report(&failure);
            FAILED
        }
    }
}

/// The error for a file name in place of a subcommand: `torchlet model.pte`.
fn command_is_a_file(error: &clap::Error) -> Option<Failure> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let path = Path::new(word);
    let is_program =
        path.extension().is_some_and(|ending| ["pte", "bpte"].map(OsStr::new).contains(&ending));
    (is_program || path.is_file()).then(|| {
        Failure::new(format!(
            "'{word}' is a file, but expected a command first: `torchlet run {word}` runs a \
             program, `torchlet inspect {word}` describes it"
        ))
    })
}

/// Prints a failure to standard error.
pub(crate) fn report(failure: &Failure) {
    let (error, reset) = (terminal::BAD, terminal::BAD.render_reset());
    anstream::eprintln!("{error}error:{reset} {failure}");
}
