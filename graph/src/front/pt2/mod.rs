//! Front end for `.pt2` archives: programs that `torch.export.save` writes.
//!
//! An archive is a ZIP file with stored entries (`zip`): a graph in JSON (`schema`), and the raw
//! storages of the weights (`weights`). Programs may be in any form that `torch.export` produces:
//!
//! - Before decomposition, calls are composite operators such as `aten.conv2d.default`. They are
//!   described like any other operator, and [`crate::lower::portable`] lowers them.
//! - The training form has in-place operators and views, which `aliases` makes functional.
//! - After `run_decompositions()`, calls are functional operators of core ATen.
//!
//! `signature` converts inputs and outputs, `nodes` and `sharing` the calls, `bind` arguments,
//! `control` conditionals and loops, and `guards` conditions on sizes; `flow` lists jumps and
//! checks. `symbols` bounds symbolic sizes, and `assemble` makes a method of the graph. Nothing is
//! unpickled.
//!
//! Format: `torch/export/pt2_archive/_package.py` and `torch/_export/serde/schema.py` in
//! pytorch/pytorch.

mod aliases;
mod assemble;
mod bind;
mod control;
mod cursor;
mod flow;
mod guards;
mod nodes;
mod schema;
mod sharing;
mod signature;
mod symbols;
mod translator;
mod weights;
mod zip;

use crate::budget::Computed;
use crate::error::Error;
use crate::method::{Method, Program};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use schema::{ExportedProgram, Version, Versioned};
use translator::Translator;
use weights::Weights;
use zip::{Archive, folder};

/// The first bytes of an archive.
pub(crate) const MAGIC: &[u8] = b"PK\x03\x04";

/// Entry that identifies the format, and its contents.
const FORMAT: (&str, &[u8]) = ("archive_format", b"pt2");
/// Entry of archives that PyTorch wrote before version 2.8.
const OLD_PROGRAM: &str = "serialized_exported_program.json";
/// Major version of the schema.
const MAJOR: u64 = 8;

/// Whether a file is an archive of `torch.export.save`.
pub(crate) fn is_archive(file: &[u8]) -> bool {
    let Ok(archive) = Archive::read(file) else { return false };
    is_old(&archive) || folder(&archive, FORMAT.0).is_some()
}

fn is_old(archive: &Archive<'_>) -> bool {
    archive.names().any(|name| name.ends_with(OLD_PROGRAM))
}

/// Converts an archive to a program. The data of weights is borrowed.
///
/// # Errors
/// The archive is malformed, or the program has unsupported features; the message names all of
/// them.
pub(crate) fn read(file: &[u8]) -> Result<Program<'_>, Error> {
    let archive = Archive::read(file)?;
    if is_old(&archive) {
        return Err(Error::unsupported(
            "an archive written by PyTorch before version 2.8, whose weights are pickled; load it \
             with torch.export.load and save it with a newer version",
        ));
    }
    let root = folder(&archive, FORMAT.0).ok_or_else(|| Error::invalid("no archive_format"))?;
    let entry = |path: &str| archive.get(&format!("{root}{path}"));
    if entry(FORMAT.0)?.is_some_and(|found| found != FORMAT.1) {
        return Err(Error::invalid("the archive_format is not pt2"));
    }
    if entry("byteorder")?.is_some_and(|order| order != b"little") {
        return Err(Error::unsupported("weights in big-endian byte order"));
    }
    let models = format!("{root}models/");
    let models: Vec<&str> = archive
        .names()
        .filter_map(|name| name.strip_prefix(models.as_str())?.strip_suffix(".json"))
        .collect();
    let computed = Computed::beside(file.len());
    let mut methods = Vec::new();
    for model in &models {
        // A single program is a module's `forward`.
        let name = if models.len() == 1 { "forward" } else { model };
        methods.push(method(&archive, root, (model, name), &computed)?);
    }
    if methods.is_empty() {
        return Err(Error::unsupported(
            "an archive without a program; compiled libraries of AOTInductor are not supported",
        ));
    }
    Ok(Program { methods, named: Vec::new() })
}

/// Converts a model of an archive to a method.
fn method<'p>(
    archive: &Archive<'p>,
    root: &str,
    (model, name): (&str, &str),
    computed: &Computed,
) -> Result<Method<'p>, Error> {
    let required = |path: String| -> Result<&'p [u8], Error> {
        let found = archive.get(&path)?;
        found.ok_or_else(|| Error::Invalid(format!("the archive has no entry '{path}'")))
    };
    let text = required(format!("{root}models/{model}.json"))?;
    let weights = format!("{root}data/weights/");
    let constants = format!("{root}data/constants/");
    let weight_list = required(format!("{weights}{model}_weights_config.json"))?;
    let constant_list = required(format!("{constants}{model}_constants_config.json"))?;
    let program: ExportedProgram<'_> =
        serde_json::from_slice(text).map_err(|error| of_json(text, &error))?;
    if program.schema_version.major != MAJOR {
        return Err(of_version(&program.schema_version));
    }
    let weights = Weights::new(archive, weights, weight_list, computed)?;
    let constants = Weights::new(archive, constants, constant_list, computed)?;
    let translated = Translator::new(&program, [&weights, &constants], computed).translate()?;
    assemble::method(translated, name, computed)
}

/// Describes why a program cannot be parsed: a different version is the likely cause.
fn of_json(text: &[u8], error: &serde_json::Error) -> Error {
    match serde_json::from_slice::<Versioned>(text) {
        Ok(Versioned { schema_version }) if schema_version.major != MAJOR => {
            of_version(&schema_version)
        }
        _ => Error::Invalid(format!("model.json: {error}")),
    }
}

fn of_version(version: &Version) -> Error {
    let Version { major, minor } = version;
    Error::Unsupported(format!(
        "version {major}.{minor} of the schema of torch.export.save; expected version {MAJOR}"
    ))
}
