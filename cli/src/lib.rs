//! The `torchlet` command: runs, explains, checks and measures exported PyTorch programs.
//!
//! It is a library, too, so that others bring the command along: the Python package's is `python -m torchlet`.
//!
//! It is a thin shell around the `torchlet` crate and knows no kernel or file format but those of its inputs (`.npy`,
//! images). Start reading at [`arguments`], which is also what `--help` shows; each command has a module of its name.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod arguments;
mod bench;
mod bundle;
mod cases;
mod containers;
mod convert;
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
use clap::{CommandFactory, Parser};
use failure::Failure;
use std::ffi::OsString;

/// What the command ends with when its arguments make no sense.
const USAGE: u8 = 2;

/// What it ends with when it fails.
const FAILED: u8 = 1;

/// Runs the command with these arguments, the first of which is its name. Gives the status that the process should end with.
pub fn run_command(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let status = if error.use_stderr() { USAGE } else { 0 };
            // Nobody is there to be told that nobody reads it.
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
        Command::Devices { json } => {
            devices::devices(*json);
            Ok(())
        }
        Command::Completions { shell } => {
            let mut command = Arguments::command();
            clap_complete::generate(*shell, &mut command, "torchlet", &mut std::io::stdout());
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

/// Says what went wrong, and the way out.
pub(crate) fn report(failure: &Failure) {
    let (error, reset) = (terminal::BAD, terminal::BAD.render_reset());
    anstream::eprintln!("{error}error:{reset} {failure}");
}
