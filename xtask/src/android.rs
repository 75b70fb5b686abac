//! Builds the archive for Android (AAR), with or without the NDK, and checks its libraries.
//!
//! Without the NDK, `rust-lld` links against stub libraries: they define the symbols of
//! `java/android/symbols.txt`, which Android has since API level 24, and nothing else. A library
//! that needs another symbol does not link. The unwinder, which the NDK has as an archive, is that
//! of Rust's musl target for the same processor.

mod checks;

use crate::java::{self, empty, package};
use crate::process::{self, command, output, target_dir};
use crate::tools;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Oldest supported version of Android: 7.0.
const API_LEVEL: u32 = 24;
/// Largest page size of Android devices, from version 15 on.
const PAGE_SIZE: u64 = 16 << 10;
const LIBRARY: &str = "libtorchlet_java.so";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The NDK that links the libraries [default: stub libraries]
    #[arg(long, env = "ANDROID_NDK_HOME", value_name = "FOLDER")]
    ndk: Option<PathBuf>,
    /// Build for this processor only, such as arm64-v8a
    #[arg(long)]
    abi: Vec<String>,
}

/// A processor of Android devices.
struct Abi {
    /// Its name in archives.
    name: &'static str,
    target: &'static str,
    /// Rust's target for musl with the same unwinder; `None` if only the NDK has one.
    musl: Option<&'static str>,
    /// Name of the NDK's compiler without API level.
    compiler: &'static str,
}

const ABIS: [Abi; 3] = [
    Abi {
        name: "arm64-v8a",
        target: "aarch64-linux-android",
        musl: Some("aarch64-unknown-linux-musl"),
        compiler: "aarch64-linux-android",
    },
    Abi {
        name: "x86_64",
        target: "x86_64-linux-android",
        musl: Some("x86_64-unknown-linux-musl"),
        compiler: "x86_64-linux-android",
    },
    Abi {
        name: "armeabi-v7a",
        target: "armv7-linux-androideabi",
        musl: None,
        compiler: "armv7a-linux-androideabi",
    },
];

/// A library of Android and its symbols.
pub(crate) struct SystemLibrary {
    pub(crate) name: String,
    pub(crate) symbols: Vec<String>,
}

/// Reads the list of symbols: a line in brackets names the library of the following ones.
fn system_libraries() -> Result<Vec<SystemLibrary>> {
    let list = package().join("android/symbols.txt");
    let text = std::fs::read_to_string(&list).with_context(|| list.display().to_string())?;
    let mut libraries: Vec<SystemLibrary> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(name) => {
                libraries.push(SystemLibrary { name: name.into(), symbols: Vec::new() });
            }
            None => {
                let library = libraries.last_mut().context("symbols.txt names no library first")?;
                library.symbols.push(line.into());
            }
        }
    }
    Ok(libraries)
}

pub(crate) fn run(options: &Options) -> Result<()> {
    tools::jdk()?;
    let libraries = system_libraries()?;
    let built = target_dir().join("java/android");
    let staged = empty(&built.join("aar"))?;
    for abi in &ABIS {
        if !options.abi.is_empty() && !options.abi.iter().any(|name| name == abi.name) {
            continue;
        }
        let library = match (&options.ndk, abi.musl) {
            (Some(ndk), _) => with_ndk(abi, ndk)?,
            (None, Some(musl)) => with_stubs(abi, musl, &libraries)?,
            (None, None) => {
                println!("{}: left out, it needs the NDK (ANDROID_NDK_HOME)", abi.name);
                continue;
            }
        };
        let data = std::fs::read(&library).with_context(|| library.display().to_string())?;
        checks::library(&data, &libraries, PAGE_SIZE).with_context(|| abi.name.to_owned())?;
        println!("{}: {} bytes", abi.name, data.len());
        let folder = staged.join("jni").join(abi.name);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(LIBRARY), data)?;
    }
    ensure!(staged.join("jni").is_dir(), "no library was built: check --abi and ANDROID_NDK_HOME");
    let archive = pack(&built, &staged)?;
    println!("{}: {} bytes", archive.display(), std::fs::metadata(&archive)?.len());
    let repository = java::publish(&archive, "torchlet-android", "aar")?;
    println!("Maven repository: {}", repository.display());
    Ok(())
}

/// A build of the library, without its linker.
fn build(target: &str) -> Result<Command> {
    tools::targets(&[target])?;
    let mut build = command("cargo", &["build", "--quiet", "--locked", "--release"]);
    build.args(["--target", target]).current_dir(package());
    build.env("CARGO_TARGET_DIR", target_dir()).env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    Ok(build)
}

/// Builds a library with a linker and linker arguments, and returns its path.
fn linked(abi: &Abi, linker: &Path, mut flags: Vec<String>) -> Result<PathBuf> {
    // 32-bit devices have pages of 4 KB, for which the alignment does no harm.
    flags.push(format!("-Clink-arg={}max-page-size={PAGE_SIZE}", argument(linker)));
    let name = abi.target.to_uppercase().replace('-', "_");
    let mut build = build(abi.target)?;
    build.env(format!("CARGO_TARGET_{name}_LINKER"), linker);
    build.env(format!("CARGO_TARGET_{name}_RUSTFLAGS"), flags.join(" "));
    process::run(build)?;
    Ok(target_dir().join(abi.target).join("release").join(LIBRARY))
}

/// Prefix of the option `-z` for a linker, or for a compiler that calls one.
fn argument(linker: &Path) -> &'static str {
    if linker.ends_with("rust-lld") { "-z" } else { "-Wl,-z," }
}

fn with_ndk(abi: &Abi, ndk: &Path) -> Result<PathBuf> {
    let host = format!("{}-x86_64", std::env::consts::OS.replace("macos", "darwin"));
    let compiler = ndk
        .join("toolchains/llvm/prebuilt")
        .join(host)
        .join("bin")
        .join(format!("{}{API_LEVEL}-clang", abi.compiler));
    if !compiler.is_file() {
        bail!("{} is missing: expected the folder of an NDK (r25 or later)", compiler.display());
    }
    linked(abi, &compiler, Vec::new())
}

fn with_stubs(abi: &Abi, musl: &str, libraries: &[SystemLibrary]) -> Result<PathBuf> {
    tools::targets(&[abi.target, musl])?;
    let sysroot = String::from_utf8(output(command("rustc", &["--print", "sysroot"]))?)?;
    let version = String::from_utf8(output(command("rustc", &["--version", "--verbose"]))?)?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc --version --verbose names no host")?;
    let targets = Path::new(sysroot.trim()).join("lib/rustlib");
    let lld = targets.join(host).join("bin/rust-lld");

    let folder = empty(&target_dir().join("java/android/stubs").join(abi.name))?;
    for library in libraries {
        stub(abi, &lld, &folder, library)?;
    }
    let unwinder = targets.join(musl).join("lib/self-contained/libunwind.a");
    std::fs::copy(&unwinder, folder.join("libunwind.a"))
        .with_context(|| unwinder.display().to_string())?;
    let shim = folder.join("shim.o");
    object(abi, &package().join("android/shim.rs"), &shim)?;
    let flags = vec![
        // `rust-lld` is told which linker to be.
        "-Clinker-flavor=ld.lld".into(),
        format!("-Clink-arg=-L{}", folder.display()),
        format!("-Clink-arg={}", shim.display()),
        "-Clink-arg=--no-undefined".into(),
        // Only the functions of this library are exported, not those of the unwinder.
        "-Clink-arg=--exclude-libs=ALL".into(),
    ];
    linked(abi, &lld, flags)
}

/// Compiles a Rust file to an object file.
fn object(abi: &Abi, source: &Path, target: &Path) -> Result<()> {
    let mut compile = command("rustc", &["--crate-type=lib", "--emit=obj", "--edition=2024"]);
    compile.args(["-Cpanic=abort", "-Copt-level=2", "-Crelocation-model=pic", "--target"]);
    compile.arg(abi.target).arg(source).arg("-o").arg(target);
    process::run_quietly(compile, &format!("rustc {}", source.display()))
}

/// Creates a library that defines the symbols of one of Android's, for the linker.
fn stub(abi: &Abi, lld: &Path, folder: &Path, library: &SystemLibrary) -> Result<()> {
    // The linker needs names only.
    let mut text = String::from("#![no_std]\n#![no_builtins]\n#![allow(non_snake_case)]\n");
    for symbol in &library.symbols {
        text += &format!("#[unsafe(no_mangle)] extern \"C\" fn {symbol}() {{}}\n");
    }
    let stem = library.name.trim_end_matches(".so");
    let (source, compiled) = (folder.join(format!("{stem}.rs")), folder.join(format!("{stem}.o")));
    std::fs::write(&source, text)?;
    object(abi, &source, &compiled)?;
    let mut link = Command::new(lld);
    link.args(["-flavor", "gnu", "-shared", "-soname", &library.name, "-o"]);
    link.arg(folder.join(&library.name)).arg(&compiled);
    process::run_quietly(link, &format!("rust-lld {}", library.name))
}

/// Packs the archive.
fn pack(built: &Path, staged: &Path) -> Result<PathBuf> {
    let classes = empty(&built.join("classes"))?;
    java::classes(&classes)?;
    let mut jar = command("jar", &["--create", "--file"]);
    jar.arg(staged.join("classes.jar")).arg("-C").arg(&classes).arg(".");
    process::run_quietly(jar, "jar classes.jar")?;
    for name in ["AndroidManifest.xml", "proguard.txt"] {
        let from = package().join("android").join(name);
        std::fs::copy(&from, staged.join(name)).with_context(|| from.display().to_string())?;
    }
    // Archives list their resources, of which this one has none.
    std::fs::write(staged.join("R.txt"), "")?;
    let archive = built.join(format!("torchlet-android-{}.aar", java::VERSION));
    let mut pack = command("jar", &["--create", "--no-manifest", "--file"]);
    pack.arg(&archive).arg("-C").arg(staged).arg(".");
    process::run_quietly(pack, "jar torchlet-android.aar")?;
    Ok(archive)
}
