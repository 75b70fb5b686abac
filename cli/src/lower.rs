//! `torchlet lower`: writes programs compiled for a processor.

use crate::arguments::{LowerArguments, LowerFor};
use crate::failure::Failure;
use crate::model;
use crate::terminal::{FAINT, NAME, WARN, count, paint};
use anstream::println;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use torchlet::DEVICE_APIS;
use torchlet::core::{BundledProgram, DataLoader, DataMap, Program, Registry};
use torchlet::graph::method::{self, Instruction};
use torchlet::graph::{self, Compiled, Package, Processors};

/// Effect of lowering on a method.
struct Change {
    name: String,
    /// Calls of kernels and delegates, before and after.
    calls: [usize; 2],
    delegates: [usize; 2],
    /// Quantized operators that are still computed in floating point.
    fallbacks: Vec<String>,
}

/// Lowers a program and writes it.
pub(crate) fn lower(arguments: &LowerArguments) -> Result<(), Failure> {
    let source = model::as_exported(&arguments.model, &arguments.data)?;
    let registry = Registry::new().with_kernels(&torchlet::portable::KERNELS);
    let registry = registry.map_err(|error| Failure::new(error.to_string()))?;
    let program = source.program();
    let before = method::Program::read(&program).map_err(failure)?;
    let compiled = compile(arguments, &program, source.data(), &registry)?;
    let (mut after, report) = (compiled.program, compiled.report);
    check_delegates(&report)?;
    let outside = after.embed(source.data()).map_err(failure)?;
    if arguments.processor == LowerFor::Mcu {
        check_firmware_support(&after, &outside)?;
    }
    let changes = changes(&before, &after, &report);
    let package = after.write().map_err(failure)?;
    let written = write_package(&arguments.out, &package, source.bundled().as_ref())?;
    show(arguments, &changes, &outside, [source.file_size(), written]);
    Ok(())
}

fn failure(error: graph::Error) -> Failure {
    Failure::new(format!("cannot lower the program: {error}"))
}

fn compile<'p>(
    arguments: &LowerArguments,
    program: &Program<'p>,
    data: &'p [DataMap<'p>],
    registry: &Registry<'_>,
) -> Result<Compiled<'p>, Failure> {
    let api = match arguments.processor {
        LowerFor::Device(name) => DEVICE_APIS.iter().find(|api| api.name() == name),
        LowerFor::Cpu | LowerFor::Mcu => None,
    };
    let shaders = api.filter(|_| arguments.allow_foreign_shaders);
    let shaders = shaders.and_then(|api| api.shader_target(None));
    if arguments.allow_foreign_shaders && shaders.is_none() {
        let able = DEVICE_APIS.iter().filter(|api| api.shader_target(None).is_some());
        let able: Vec<&str> = able.map(|api| api.name()).collect();
        return Err(Failure::new(format!(
            "--allow-foreign-shaders needs --for {}: nothing else runs shaders",
            able.join(" or --for ")
        )));
    }
    match arguments.processor {
        LowerFor::Cpu => {
            let engine = torchlet::portable::engine::CpuTarget::new();
            graph::cpu::compile(program, data, Processors::preferring(&[&engine]), registry)
        }
        // Firmware links kernels only, without the engine.
        LowerFor::Mcu => graph::cpu::compile(program, data, Processors::NONE, registry),
        LowerFor::Device(_) => {
            let target = api.map(|api| api.target(None));
            let targets: Vec<&dyn graph::Target> =
                target.as_deref().into_iter().chain(shaders.as_deref()).collect();
            graph::compile(program, data, Processors::preferring(&targets), registry)
        }
    }
    .map_err(failure)
}

/// Fails if a delegate that cannot be read is left: no run of the result could load it.
fn check_delegates(report: &graph::Report) -> Result<(), Failure> {
    for method in &report.methods {
        if let Some((delegate, why)) = method.unreadable_delegates.first() {
            let backend = method.delegates.get(*delegate).map_or("", String::as_str);
            return Err(Failure::new(format!(
                "cannot lower the program: method '{}': {backend} delegate: {why}",
                method.name
            )));
        }
    }
    Ok(())
}

/// Fails if a program requires features that firmware lacks.
fn check_firmware_support(
    program: &method::Program<'_>,
    outside: &BTreeSet<String>,
) -> Result<(), Failure> {
    if let Some(name) = outside.first() {
        let others = outside.len();
        return Err(Failure::new(format!(
            "the data of {} (such as '{name}') is external; pass the files with --data",
            count(others, "tensor"),
        )));
    }
    let mut delegates = program.methods.iter().flat_map(|method| &method.delegates);
    match delegates.next() {
        Some(delegate) => Err(Failure::new(format!(
            "the program has a delegate for {}, which cannot be lowered; export it without \
             delegates",
            delegate.backend
        ))),
        None => Ok(()),
    }
}

fn changes(
    before: &method::Program<'_>,
    after: &method::Program<'_>,
    report: &graph::Report,
) -> Vec<Change> {
    let calls = |method: &method::Method<'_>| {
        let is_call = |instruction: &&Instruction| {
            matches!(instruction, Instruction::Kernel { .. } | Instruction::Delegate { .. })
        };
        method.instructions.iter().filter(is_call).count()
    };
    let methods = before.methods.iter().zip(&after.methods);
    let floating = |name: &str| {
        let own = report.methods.iter().find(|method| method.name == name);
        own.map_or_else(Vec::new, |own| own.fallbacks.clone())
    };
    let change = |(before, after): (&method::Method<'_>, &method::Method<'_>)| Change {
        name: before.name.clone(),
        fallbacks: floating(&before.name),
        calls: [calls(before), calls(after)],
        delegates: [before.delegates.len(), after.delegates.len()],
    };
    methods.map(change).collect()
}

/// Writes a program, within a bundle if it has test cases. Returns the size of the file.
pub(crate) fn write_package(
    path: &Path,
    package: &Package<'_>,
    cases: Option<&BundledProgram<'_>>,
) -> Result<u64, Failure> {
    if let Some(cases) = cases {
        let bundle = graph::bundle(cases, &package.to_bytes());
        let bundle =
            bundle.map_err(|error| Failure::new(format!("cannot write a bundle: {error}")))?;
        write(path, |file| file.write_all(&bundle))?;
        return Ok(bundle.len() as u64);
    }
    write(path, |file| package.write_to(|bytes| file.write_all(bytes)))?;
    Ok(package.size())
}

/// Says that the data of tensors is still outside a written program.
pub(crate) fn note_external(tensors: &BTreeSet<String>) {
    if let Some(name) = tensors.first() {
        let count = count(tensors.len(), "tensor");
        let note = format!("the data of {count} (such as '{name}') remains in external files");
        println!("{}", paint(WARN, note));
    }
}

/// Replaces a file atomically: the old file may be the input that is being read. Devices and pipes
/// are written to, and symbolic links are followed.
pub(crate) fn write(
    path: &Path,
    contents: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), Failure> {
    let fail = |error: io::Error| Failure::new(format!("{}: {error}", path.display()));
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let mut file = BufWriter::new(OpenOptions::new().write(true).open(path).map_err(fail)?);
        return contents(&mut file).and_then(|()| file.flush()).map_err(fail);
    }
    let target = std::fs::canonicalize(path);
    let target = target.as_deref().unwrap_or(path);
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = target.with_file_name(name);
    let created = OpenOptions::new().write(true).create_new(true).open(&part);
    let written = created.and_then(|file| {
        let mut file = BufWriter::new(file);
        contents(&mut file)?;
        file.flush()?;
        std::fs::rename(&part, target)
    });
    if written.is_err() {
        // Best effort: the write error is reported.
        let _ = std::fs::remove_file(&part);
    }
    written.map_err(fail)
}

fn show(
    arguments: &LowerArguments,
    changes: &[Change],
    outside: &BTreeSet<String>,
    bytes: [u64; 2],
) {
    if arguments.json {
        let methods = changes.iter().map(|change| {
            json!({
                "name": change.name,
                "calls_before": change.calls[0],
                "calls_after": change.calls[1],
                "delegates_before": change.delegates[0],
                "delegates_after": change.delegates[1],
                "fallbacks": change.fallbacks,
            })
        });
        let object = json!({
            "file": arguments.out.display().to_string(),
            "methods": methods.collect::<Vec<_>>(),
            "bytes_before": bytes[0],
            "bytes_after": bytes[1],
            "external": outside,
        });
        std::println!("{object}");
        return;
    }
    for Change { name, calls, delegates, fallbacks } in changes {
        let was = format!("{}, {}", count(calls[0], "call"), count(delegates[0], "delegate"));
        let is = format!("{}, {}", count(calls[1], "call"), count(delegates[1], "delegate"));
        println!("{}  {was} -> {is}", paint(NAME, name));
        for text in fallbacks {
            println!("  {}", paint(WARN, text));
        }
    }
    let sizes =
        format!("{} -> {}", count(bytes[0] as usize, "byte"), count(bytes[1] as usize, "byte"));
    println!("{}  {}", arguments.out.display(), paint(FAINT, sizes));
    note_external(outside);
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn outputs_keep_links_and_pipes() {
        let folder = std::env::temp_dir().join(format!("torchlet-lower-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [file, link, pipe] = ["file", "link", "pipe"].map(|name| folder.join(name));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write(&link, |out| out.write_all(b"new")).unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || {
                let mut text = String::new();
                File::open(pipe).unwrap().read_to_string(&mut text).unwrap();
                text
            }
        });
        write(&pipe, |out| out.write_all(b"streamed")).unwrap();
        assert_eq!(reader.join().unwrap(), "streamed");
        assert!(!std::fs::metadata(&pipe).unwrap().is_file());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
