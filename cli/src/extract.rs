//! `torchlet extract`.

use crate::arguments::ExtractArguments;
use crate::failure::Failure;
use crate::terminal::{FAINT, NAME, bytes, paint};
use crate::{containers, model};
use std::path::{Component, Path, PathBuf};
use torchlet::Module;
use torchlet::core::ProgramError;

/// Maximum total size of the written files, as a multiple of the program's size. Parts may overlap
/// and methods may share delegates; a crafted file could refer to the same bytes without limit.
const MAX_GROWTH: u64 = 16;

/// Number of bytes that may still be written.
struct Room(u64);

/// Writes the payloads of all delegates, split into their parts, and the named data.
pub(crate) fn extract(arguments: &ExtractArguments) -> Result<(), Failure> {
    let module = model::as_exported(&arguments.model, &arguments.data)?;
    let mut room = Room(module.file_size().saturating_mul(MAX_GROWTH));
    let mut count = 0;
    containers::each(&module, |method, delegate, backend, data| {
        count += 1;
        let (container, parts) = containers::parts(backend, data);
        let folder = arguments.out.join(safe(&format!("{method}_{delegate}_{backend}")));
        anstream::println!(
            "{} {}  {container}, {}",
            paint(NAME, format!("{method} #{delegate}")),
            backend,
            bytes(data.len() as u64)
        );
        for part in parts {
            let path = folder.join(safe(&part.name));
            let contents = data.get(part.range.clone()).unwrap_or_default();
            room.write(&path, contents)?;
            anstream::println!(
                "  {}  {}",
                path.display(),
                paint(FAINT, bytes(contents.len() as u64))
            );
        }
        Ok(())
    })?;
    count += named_data(&module, &arguments.out, &mut room)?;
    if count == 0 {
        return Err(Failure::new(
            "the program has neither delegates nor named data, only kernel calls",
        ));
    }
    Ok(())
}

/// Writes the program's named data, which delegates refer to: libraries, weights, whole models.
fn named_data(module: &Module, out: &Path, room: &mut Room) -> Result<usize, Failure> {
    let malformed = |error: ProgramError| Failure::new(format!("the file is malformed: {error}"));
    let program = module.program();
    let mut count = 0;
    for name in program.data_names().map_err(malformed)? {
        let name = name.map_err(malformed)?;
        let Some(blob) = program.named_data(name).map_err(malformed)? else { continue };
        let mut contents = vec![0; blob.size()];
        blob.read(0, &mut contents).map_err(malformed)?;
        let path = out.join("named_data").join(safe(name));
        room.write(&path, &contents)?;
        let size = paint(FAINT, bytes(contents.len() as u64));
        anstream::println!("{}  {size}", path.display());
        count += 1;
    }
    Ok(count)
}

/// Sanitizes a path from a file so that it stays within the output folder.
fn safe(name: &str) -> PathBuf {
    let parts = Path::new(name).components().filter_map(|part| match part {
        Component::Normal(part) => Some(part),
        _ => None,
    });
    let path: PathBuf = parts.collect();
    if path.as_os_str().is_empty() { PathBuf::from("data.bin") } else { path }
}

impl Room {
    fn write(&mut self, path: &Path, contents: &[u8]) -> Result<(), Failure> {
        let left = self.0.checked_sub(contents.len() as u64).ok_or_else(|| {
            Failure::new(format!(
                "the file refers to the same bytes too often: its parts would be more than \
                 {MAX_GROWTH} times as large"
            ))
        })?;
        self.0 = left;
        let fail = |error: std::io::Error| {
            Failure::new(format!("cannot write '{}': {error}", path.display()))
        };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(fail)?;
        }
        std::fs::write(path, contents).map_err(fail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use torchlet::graph::method::Program;

    #[test]
    fn paths_stay_within_their_folder() {
        assert_eq!(safe("../../etc/passwd"), Path::new("etc/passwd"));
        assert_eq!(safe("/weights/a.bin"), Path::new("weights/a.bin"));
        assert_eq!(safe(".."), Path::new("data.bin"));
    }

    /// A constants table whose entries all span the whole data.
    #[test]
    fn repeated_bytes_are_limited() {
        const COUNT: u64 = 1000;
        const SIZE: u64 = 50_000;
        let mut table = b"CONST00\0".to_vec();
        table.extend(COUNT.to_le_bytes());
        for number in 0..COUNT {
            table.extend(number.to_le_bytes());
            table.extend([SIZE, 0].into_iter().flat_map(u64::to_le_bytes));
        }
        table.resize(table.len() + SIZE as usize, 7);
        let mut vgf = b"VGF1".to_vec();
        vgf.resize(64, 0);
        vgf.extend([128, table.len() as u64].into_iter().flat_map(u64::to_le_bytes));
        vgf.resize(128, 0);
        vgf.extend(table);
        let fixture = "/../tests/fixtures/formats/delegate_segment.pte";
        let fixture = format!("{}{fixture}", env!("CARGO_MANIFEST_DIR"));
        let source = Module::builder().run_on(torchlet::RunOn::AsExported).load(fixture).unwrap();
        let program = source.program();
        let mut program = Program::read(&program).unwrap();
        program.methods[0].delegates[0].processed = vgf.into();
        let folder = std::env::temp_dir().join(format!("torchlet-extract-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let model = folder.join("model.pte");
        let mut file = std::fs::File::create(&model).unwrap();
        program.write().unwrap().write_to(|bytes| file.write_all(bytes)).unwrap();
        let out = folder.join("out");
        let arguments = ExtractArguments { model, out, data: Vec::new() };
        let error = extract(&arguments).unwrap_err().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(error.contains("too often"), "{error}");
    }
}
