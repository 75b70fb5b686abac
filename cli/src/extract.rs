//! `torchlet extract`.

use crate::arguments::ExtractArguments;
use crate::containers;
use crate::failure::Failure;
use crate::terminal::{FAINT, NAME, bytes, paint};
use std::path::{Component, Path, PathBuf};
use torchlet::core::ProgramError;
use torchlet::{FileAccess, Module, RunOn};

/// Writes the data of delegates, and the parts that it consists of.
pub(crate) fn extract(arguments: &ExtractArguments) -> Result<(), Failure> {
    // The help says that files must not change meanwhile.
    let mut builder = Module::builder().file_access(FileAccess::Map).run_on(RunOn::AsExported);
    for path in &arguments.data {
        builder = builder.data(path);
    }
    let module = builder.load(&arguments.model)?;
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
            write(&path, contents)?;
            anstream::println!(
                "  {}  {}",
                path.display(),
                paint(FAINT, bytes(contents.len() as u64))
            );
        }
        Ok(())
    })?;
    count += named_data(&module, &arguments.out)?;
    if count == 0 {
        return Err(Failure::new(
            "the program has neither delegates nor named data; all of it is calls of kernels",
        ));
    }
    Ok(())
}

/// Writes the named data of the program, which delegates refer to: libraries, weights, whole models.
fn named_data(module: &Module, out: &Path) -> Result<usize, Failure> {
    let malformed = |error: ProgramError| Failure::new(format!("the file is malformed: {error}"));
    let program = module.program();
    let mut count = 0;
    for name in program.data_names().map_err(malformed)? {
        let name = name.map_err(malformed)?;
        let Some(blob) = program.named_data(name).map_err(malformed)? else { continue };
        let mut contents = vec![0; blob.size()];
        blob.read(0, &mut contents).map_err(malformed)?;
        let path = out.join("named_data").join(safe(name));
        write(&path, &contents)?;
        let size = paint(FAINT, bytes(contents.len() as u64));
        anstream::println!("{}  {size}", path.display());
        count += 1;
    }
    Ok(count)
}

/// A path that stays within its folder, whatever a file says.
fn safe(name: &str) -> PathBuf {
    let parts = Path::new(name).components().filter_map(|part| match part {
        Component::Normal(part) => Some(part),
        _ => None,
    });
    let path: PathBuf = parts.collect();
    if path.as_os_str().is_empty() { PathBuf::from("data.bin") } else { path }
}

fn write(path: &Path, contents: &[u8]) -> Result<(), Failure> {
    let fail =
        |error: std::io::Error| Failure::new(format!("cannot write '{}': {error}", path.display()));
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(fail)?;
    }
    std::fs::write(path, contents).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_within_their_folder() {
        assert_eq!(safe("../../etc/passwd"), Path::new("etc/passwd"));
        assert_eq!(safe("/weights/a.bin"), Path::new("weights/a.bin"));
        assert_eq!(safe(".."), Path::new("data.bin"));
    }
}
