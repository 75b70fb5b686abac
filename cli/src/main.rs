//! The `torchlet` command.

use std::panic;
use std::process::{ExitCode, exit};

/// The status of a program that ended because nobody reads what it prints, as shells have it: 128
/// and the number of `SIGPIPE`.
const NO_READER: i32 = 141;

/// How the standard library ends its words for a pipe whose reader is gone: by the system's number,
/// of Unix and of Windows.
const CLOSED: &[&str] =
    if cfg!(windows) { &["(os error 109)", "(os error 232)"] } else { &["(os error 32)"] };

fn main() -> ExitCode {
    // `torchlet verify … | head` ends when its reader does, without a word.
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |what| {
        let text = what.payload().downcast_ref::<String>();
        match text.and_then(|text| text.strip_prefix("failed printing to stdout: ")) {
            Some(why) if CLOSED.iter().any(|closed| why.ends_with(closed)) => exit(NO_READER),
            Some(why) => {
                eprintln!("error: cannot write to the standard output: {why}");
                exit(1);
            }
            None => report(what),
        }
    }));
    ExitCode::from(torchlet_cli::run_command(std::env::args_os()))
}
