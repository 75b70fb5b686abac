//! Compile cache: cached programs are not compiled again; damaged entries and entries of other
//! programs are.

#[cfg(all(feature = "std", feature = "portable"))]
mod common;

#[cfg(all(feature = "std", feature = "portable"))]
mod tests {
    use crate::common::{check, fixture, folder, open};
    use std::path::{Path, PathBuf};
    use torchlet::core::BundledProgram;
    use torchlet::{Error, Module, Origin, RunOn};

    /// Lowered for a GPU, so that it needs compilation for the CPU; has state.
    const PROGRAM: &str = "vulkan/program/running_sum.bpte";

    /// A temporary folder, removed on drop.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("torchlet-compiled-{name}-{}", std::process::id());
            Folder(std::env::temp_dir().join(name))
        }

        fn files(&self) -> Vec<PathBuf> {
            let entries = std::fs::read_dir(&self.0).into_iter().flatten();
            entries.map(|entry| entry.unwrap().path()).collect()
        }

        /// Path of the only file.
        fn file(&self) -> PathBuf {
            let [file] = &self.files()[..] else { panic!("{:?}", self.files()) };
            file.clone()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Opens a fixture with a cache in this folder, and runs its test cases.
    fn run(file: &str, cache: &Path) -> Module {
        let fixture = fixture(file);
        let builder = Module::builder().threads(1).without_default_backends();
        let module = open(&fixture, builder.run_on(RunOn::Cpu).compile_cache(cache)).unwrap();
        check(&mut module.share(), &module, &fixture).unwrap();
        module
    }

    #[test]
    fn programs_are_compiled_once() {
        let folder = Folder::new("twice");
        let first = run(PROGRAM, &folder.0.join("deep"));
        assert_eq!(*first.origin(), Origin::Compiled);
        let second = run(PROGRAM, &folder.0.join("deep"));
        assert_eq!(*second.origin(), Origin::Cached);
        assert!(!first.plan().unwrap().methods[0].calls.is_empty());
        assert_eq!(first.plan(), second.plan());
        assert_eq!(std::fs::read_dir(folder.0.join("deep")).unwrap().count(), 1);
    }

    #[test]
    fn program_data_is_not_duplicated_in_the_cache() {
        let folder = Folder::new("shared");
        let mut found = false;
        for fixture in crate::common::fixtures() {
            if fixture.kind != "vulkan" || !fixture.file.contains("/model/") {
                continue;
            }
            let cache = folder.0.join(fixture.file.replace('/', "-"));
            let compiled = run(&fixture.file, &cache);
            assert_eq!(*run(&fixture.file, &cache).origin(), Origin::Cached, "{}", fixture.file);
            let file = std::fs::read_dir(&cache).unwrap().next().unwrap().unwrap();
            found |= file.metadata().unwrap().len() < compiled.file_size() / 2;
        }
        assert!(found, "no model's data was referred to");
    }

    #[test]
    fn damaged_entries_are_replaced() {
        let folder = Folder::new("damaged");
        run(PROGRAM, &folder.0);
        let path = folder.file();
        let whole = std::fs::read(&path).unwrap();
        let mut damaged: Vec<Vec<u8>> = Vec::new();
        for at in (0..whole.len()).step_by(397).chain((0..64).step_by(7)) {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            damaged.extend([changed, whole[..at].to_vec()]);
        }
        damaged.push([&whole[..], &[0]].concat());
        for bytes in damaged {
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(*run(PROGRAM, &folder.0).origin(), Origin::Compiled);
            assert_eq!(std::fs::read(&path).unwrap(), whole);
        }
        assert_eq!(*run(PROGRAM, &folder.0).origin(), Origin::Cached);
        assert_eq!(folder.file(), path);
    }

    #[test]
    fn each_program_has_its_own_entry() {
        let folder = Folder::new("other");
        let bytes = std::fs::read(crate::common::folder().join(PROGRAM)).unwrap();
        let bundle = BundledProgram::from_bytes(&bytes).unwrap();
        let mut program = bundle.program().unwrap().to_vec();
        let open = |bytes: &[u8], data: Option<&str>| {
            let mut builder = Module::builder().run_on(RunOn::Cpu).compile_cache(&folder.0);
            if let Some(data) = data {
                builder = builder.data(crate::common::folder().join(data));
            }
            let module = builder.from_bytes(bytes).unwrap();
            (module.origin().clone(), folder.files().len())
        };
        assert_eq!(open(&program, None), (Origin::Compiled, 1));
        assert_eq!(open(&program, None), (Origin::Cached, 1));
        let data = "programs/external_a.shared.ptd";
        assert_eq!(open(&program, Some(data)), (Origin::Compiled, 2));
        assert_eq!(open(&program, Some(data)), (Origin::Cached, 2));
        program.push(0);
        assert_eq!(open(&program, None), (Origin::Compiled, 3));
    }

    /// The second file must not get the compiled program of the first: anyone can create such
    /// pairs, with any contents.
    #[test]
    fn colliding_fast_hashes_have_separate_entries() {
        let folder = Folder::new("collision");
        let bytes = std::fs::read(crate::common::folder().join(PROGRAM)).unwrap();
        let mut program = BundledProgram::from_bytes(&bytes).unwrap().program().unwrap().to_vec();
        // XXH3 sums words in blocks of 1 KiB. If the high half of a word equals that of its secret,
        // the word adds only itself.
        program.resize(program.len().next_multiple_of(1024), 0);
        for (index, words) in [[1, 0], [0, 1]].into_iter().enumerate() {
            let mut tail = [0; 2048];
            tail[..8].copy_from_slice(&[words[0], 0, 0, 0, 0x23, 0xa4, 0x4b, 0xbe]);
            tail[64..72].copy_from_slice(&[words[1], 0, 0, 0, 0xf7, 0x21, 0xad, 0x1c]);
            let builder = Module::builder().run_on(RunOn::Cpu).compile_cache(&folder.0);
            let module = builder.from_bytes([&program[..], &tail].concat()).unwrap();
            assert_eq!(*module.origin(), Origin::Compiled);
            assert_eq!(folder.files().len(), index + 1);
        }
    }

    #[test]
    fn renamed_entries_are_rejected() {
        let folder = Folder::new("renamed");
        let other = "vulkan/program/cache.bpte";
        let [first, second] = [PROGRAM, other].map(|file| {
            let cache = folder.0.join(file.replace('/', "-"));
            run(file, &cache);
            std::fs::read_dir(&cache).unwrap().next().unwrap().unwrap().path()
        });
        std::fs::copy(&first, &second).unwrap();
        assert_eq!(*run(other, second.parent().unwrap()).origin(), Origin::Compiled);
        assert_eq!(*run(other, second.parent().unwrap()).origin(), Origin::Cached);
    }

    #[cfg(unix)]
    #[test]
    fn entries_writable_by_others_are_rejected() {
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new("permissions");
        run(PROGRAM, &folder.0);
        let path = folder.file();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        assert_eq!(*run(PROGRAM, &folder.0).origin(), Origin::Compiled);
        // The new file is not writable by others.
        assert_eq!(*run(PROGRAM, &folder.0).origin(), Origin::Cached);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_sockets_are_replaced() {
        use std::os::unix::fs::symlink;
        use std::os::unix::net::UnixListener;
        let folder = Folder::new("links");
        run(PROGRAM, &folder.0);
        let path = folder.file();
        let [aside, around] = ["aside", "around"].map(|name| folder.0.join(name));
        let place: [&dyn Fn(); 4] = [
            &|| {
                std::fs::copy(&path, &aside).unwrap();
                std::fs::remove_file(&path).unwrap();
                symlink(&aside, &path).unwrap();
            },
            &|| {
                std::fs::remove_file(&path).unwrap();
                symlink(&path, &path).unwrap();
            },
            &|| {
                std::fs::remove_file(&path).unwrap();
                // Socket paths have a short maximum length.
                drop(UnixListener::bind(&around).unwrap());
                std::fs::rename(&around, &path).unwrap();
            },
            &|| {
                std::fs::remove_file(&path).unwrap();
                symlink(&around, &path).unwrap();
            },
        ];
        for (index, place) in place.iter().enumerate() {
            place();
            assert_eq!(*run(PROGRAM, &folder.0).origin(), Origin::Compiled, "{index}");
            assert_eq!(*run(PROGRAM, &folder.0).origin(), Origin::Cached, "{index}");
        }
    }

    #[test]
    fn folder_instead_of_an_entry_is_ignored() {
        let folder = Folder::new("folders");
        run(PROGRAM, &folder.0);
        let path = folder.file();
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(*run(PROGRAM, &folder.0).origin(), Origin::Compiled);
        assert_eq!(folder.file(), path);
    }

    /// Opening a pipe blocks until a writer opens it.
    #[cfg(unix)]
    #[test]
    fn pipes_do_not_block() {
        let folder = Folder::new("pipe");
        run(PROGRAM, &folder.0);
        let path = folder.file();
        std::fs::remove_file(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let error = Module::load(&path).unwrap_err().to_string();
        assert!(error.contains("a pipe"), "{error}");
        assert_eq!(*run(PROGRAM, &folder.0).origin(), Origin::Compiled);
        assert_eq!(*run(PROGRAM, &folder.0).origin(), Origin::Cached);
    }

    #[test]
    fn unwritable_folder_is_ignored() {
        let folder = Folder::new("unwritable");
        std::fs::write(&folder.0, "a file").unwrap();
        assert_eq!(*run(PROGRAM, &folder.0).origin(), Origin::Compiled);
        std::fs::remove_file(&folder.0).unwrap();
    }

    #[test]
    fn uncompilable_programs_run_as_exported() {
        // It is ambiguous which buffer an output updates.
        let path = folder().join("vulkan/program/two_states.bpte");
        let open = |on| Module::builder().without_default_backends().run_on(on).load(&path);
        assert!(matches!(open(RunOn::Auto).unwrap().origin(), Origin::NotCompiled(_)));
        assert!(matches!(open(RunOn::Cpu), Err(Error::Compile { .. })));
        assert_eq!(*open(RunOn::AsExported).unwrap().origin(), Origin::Exported);
    }
}
