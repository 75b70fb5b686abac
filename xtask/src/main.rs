//! Developer commands of torchlet. `cargo xtask --help` lists them; each is a module here.
//!
//! They need stable cargo, and the tools that each command names. Build results go to `target/`.

#![forbid(unsafe_code)]

mod android;
mod api;
mod arduino;
mod bench;
mod board;
mod book;
mod c_programs;
mod capi;
mod deps;
mod dist;
mod fixtures;
mod fuzz;
mod java;
mod modules;
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
#[command(name = "cargo xtask", about = "Development tasks of torchlet")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run all checks that a change must pass, or only the named ones
    Test(test::Options),
    /// Link the core for a microcontroller and print its size in flash
    Size(size::Options),
    /// Run the firmware images of boards/ in QEMU and compare their output
    Board(board::Options),
    /// Build the book, check its links, and check the spelling
    Book(book::Options),
    /// Compare the public API of the libraries with the listings in api/
    Api(api::Options),
    /// Compare the C header with its sources, and run programs in C and C++ that use it
    Capi(capi::Options),
    /// Make the Arduino library, and run its sketches in QEMU
    Arduino,
    /// Run programs in C (`torchlet compile`) in QEMU, and check their size and speed
    CPrograms(c_programs::Options),
    /// Benchmark models with torchlet and with ExecuTorch's runtime
    Bench(bench::Options),
    /// Export the programs in tests/fixtures
    Fixtures(fixtures::Options),
    /// Run PyTorch's operator samples for each type, and write a table of the results
    Sweep(sweep::Options),
    /// Fuzz the parsers with cargo-fuzz
    Fuzz(fuzz::Options),
    /// Compile the compute shaders
    Shaders(shaders::Options),
    /// Pack a release archive of the command, with licences, checksums and a bill of materials
    Dist(dist::Options),
    /// Test other systems in emulators, or at least compile for them
    Systems(systems::Options),
    /// Build the package for JavaScript, and the page that runs programs in a browser
    Web(web::Options),
    /// Build the jar for the JVM, and a local Maven repository with it
    Java,
    /// Build the archive for Android, and check its native libraries
    Android(android::Options),
    /// Generate the flatbuffers readers that tests compare torchlet's with
    Schema(schema::Options),
    /// Pack the crates for publication in dependency order, without uploading
    Publish(publish::Options),
    /// Check licences, sources and duplicates of the dependencies
    Deps(deps::Options),
    /// Check that modules do not import each other in circles
    Modules(modules::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Test(options) => test::run(&options),
        Command::Size(options) => size::run(&options),
        Command::Board(options) => board::run(&options),
        Command::Book(options) => book::run(&options),
        Command::Api(options) => api::run(&options),
        Command::Capi(options) => capi::run(&options),
        Command::Arduino => arduino::run(),
        Command::CPrograms(options) => c_programs::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Fixtures(options) => fixtures::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Sweep(options) => sweep::run(&options),
        Command::Shaders(options) => shaders::run(&options),
        Command::Dist(options) => dist::run(&options),
        Command::Systems(options) => systems::run_all(&options),
        Command::Web(options) => web::run(&options),
        Command::Java => java::run(),
        Command::Android(options) => android::run(&options),
        Command::Schema(options) => schema::run(&options),
        Command::Publish(options) => publish::run(&options),
        Command::Deps(options) => deps::run(&options),
        Command::Modules(options) => modules::run(&options),
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
