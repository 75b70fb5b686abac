//! The `torchlet` command.

#![forbid(unsafe_code)]

use std::panic;
use std::process::{ExitCode, exit};

/// Exit status after a closed pipe, as in shells: 128 plus the number of `SIGPIPE`.
const CLOSED_PIPE_STATUS: i32 = 141;

/// Endings of the standard library's messages for a closed pipe, on Unix and Windows.
const CLOSED: &[&str] =
    if cfg!(windows) { &["(os error 109)", "(os error 232)"] } else { &["(os error 32)"] };

fn main() -> ExitCode {
    // `torchlet verify … | head` ends silently when `head` does.
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |what| {
        let text = what.payload().downcast_ref::<String>();
        match text.and_then(|text| text.strip_prefix("failed printing to stdout: ")) {
            Some(why) if CLOSED.iter().any(|closed| why.ends_with(closed)) => {
                exit(CLOSED_PIPE_STATUS)
            }
            Some(why) => {
                eprintln!("error: cannot write to the standard output: {why}");
                exit(1);
            }
            None => report(what),
        }
    }));
    ExitCode::from(torchlet_cli::run_command(std::env::args_os()))
}
