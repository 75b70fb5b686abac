//! The `torchlet` command.

use std::panic;
use std::process::{ExitCode, exit};

/// The status of a program that ended because nobody reads what it prints, as shells have it: 128 and the number of `SIGPIPE`.
const NO_READER: i32 = 141;

fn main() -> ExitCode {
    // `torchlet verify … | head` ends when its reader does, without a word.
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |what| {
        let text = what.payload().downcast_ref::<String>();
        if text.is_some_and(|text| text.starts_with("failed printing to stdout")) {
            exit(NO_READER);
        }
        report(what);
    }));
    ExitCode::from(torchlet_cli::run_command(std::env::args_os()))
}
