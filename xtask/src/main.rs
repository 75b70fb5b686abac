//! What developers of torchlet run. `cargo xtask --help` lists the commands; each is a module here.
//!
//! It uses stable cargo and the tools that each command names, nothing else. What it builds goes to
//! `target/`.

mod api;
mod bench;
mod board;
mod book;
mod capi;
mod deps;
mod dist;
mod fixtures;
mod fuzz;
mod msrv;
mod page;
mod process;
mod publish;
mod python;
mod schema;
mod shaders;
mod size;
mod sweep;
mod systems;
mod test;
mod tools;
mod vulkan;
mod web;
mod width;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "What developers of torchlet run")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs every check that a change must pass, or only the named ones
    Test(test::Options),
    /// Links the core for a microcontroller and prints what it takes in flash
    Size(size::Options),
    /// Runs the firmware images of boards/ in QEMU and compares what they print
    Board(board::Options),
    /// Builds the book as pages, follows their links, and looks for misspelled words
    Book(book::Options),
    /// Compares the public API of the libraries with the listings in api/
    Api(api::Options),
    /// Compares the header of the C interface with its sources, and runs programs in C and C++ that
    /// use it
    Capi(capi::Options),
    /// Measures models with torchlet and with ExecuTorch's own runtime, side by side
    Bench(bench::Options),
    /// Exports the programs in tests/fixtures anew
    Fixtures(fixtures::Options),
    /// Runs PyTorch's samples of its operators, for each type, and writes a table of what passes
    Sweep(sweep::Options),
    /// Searches for files that break what reads them, with cargo-fuzz
    Fuzz(fuzz::Options),
    /// Compiles the compute shaders
    Shaders(shaders::Options),
    /// Packs the command as users get it, with licences, checksums and a bill of materials
    Dist(dist::Options),
    /// Tests what runs elsewhere in emulators, and compiles what does not
    Systems(systems::Options),
    /// Builds the package for JavaScript and the page that runs programs in a browser
    Web(web::Options),
    /// Generates the flatbuffers code that tests compare our readers with
    Schema(schema::Options),
    /// Packs the crates as a registry gets them, in order, and sends nothing
    Publish(publish::Options),
    /// Checks licences, sources and duplicates of the dependencies
    Deps(deps::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Test(options) => test::run(&options),
        Command::Size(options) => size::run(&options),
        Command::Board(options) => board::run(&options),
        Command::Book(options) => book::run(&options),
        Command::Api(options) => api::run(&options),
        Command::Capi(options) => capi::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Fixtures(options) => fixtures::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Sweep(options) => sweep::run(&options),
        Command::Shaders(options) => shaders::run(&options),
        Command::Dist(options) => dist::run(&options),
        Command::Systems(options) => systems::run_all(&options),
        Command::Web(options) => web::run(&options),
        Command::Schema(options) => schema::run(&options),
        Command::Publish(options) => publish::run(&options),
        Command::Deps(options) => deps::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
