//! Release archives of the command.
//!
//! An archive contains the command, the licences of its components, and a bill of materials;
//! `SHA256SUMS` has the checksums. Builds are reproducible: files have the time of the commit, and
//! machine-specific paths are replaced; `--check` compares two builds. Requires GNU tar and gzip.

mod bill;

use crate::process::{self, cargo, command, output, root, target_dir};
use crate::tools;
use anyhow::{Context, Result, bail};
use bill::Bill;
use std::path::{Path, PathBuf};

/// A target that needs no system libraries; so it lacks Vulkan.
const STATIC: &str = "x86_64-unknown-linux-musl";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The target triple; cargo must be configured with its linker
    #[arg(long, default_value = STATIC)]
    target: String,
    /// Build again from a copy of the sources in another folder, and compare
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let target = options.target.as_str();
    tools::targets(&[target])?;
    let out = target_dir().join("dist");
    let archive = archive(target, &root(), &target_dir().join("dist-build"), &out)?;
    let name = file_name(&archive);
    let mut sums = command("sha256sum", &[&name]);
    sums.current_dir(&out);
    let sums = output(sums)?;
    std::fs::write(out.join("SHA256SUMS"), &sums)?;
    print!("{}", String::from_utf8_lossy(&sums));
    println!("{}: {} bytes", archive.display(), std::fs::metadata(&archive)?.len());
    if options.check {
        let elsewhere = std::env::temp_dir().join(format!("torchlet-dist-{}", std::process::id()));
        let result = again(target, &elsewhere, &archive);
        std::fs::remove_dir_all(&elsewhere)?;
        result?;
        println!("identical when built from {}", elsewhere.display());
    }
    Ok(())
}

/// Builds an archive from a copy of the sources, and compares it with another.
fn again(target: &str, folder: &Path, with: &Path) -> Result<()> {
    let sources = folder.join("sources");
    std::fs::create_dir_all(&sources)?;
    // Files known to git, in their current state.
    let copy = "git ls-files -z | tar --null -T - -cf - | tar -xf - -C \"$0\"";
    process::run(command("sh", &["-c", copy, &sources.to_string_lossy()]))?;
    let other = archive(target, &sources, &folder.join("build"), &folder.join("dist"))?;
    if std::fs::read(&other)? != std::fs::read(with)? {
        let kept = with.with_extension("other.gz");
        std::fs::copy(&other, &kept)?;
        bail!("{} and {} differ", with.display(), kept.display());
    }
    Ok(())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Builds the command from the sources, and packs it.
fn archive(target: &str, sources: &Path, build: &Path, out: &Path) -> Result<PathBuf> {
    let is_static = target.contains("musl");
    let features = if is_static { "llm,serve" } else { "llm,serve,vulkan" };
    let package = ["--package", "torchlet-cli", "--no-default-features", "--features", features];
    let here = ["--target", target, "--locked"];

    let time = output(command("git", &["log", "-1", "--format=%ct"]))?;
    let time = String::from_utf8(time)?.trim().to_owned();
    auditable()?;
    let build_command = ["auditable", "build", "--quiet", "--release"];
    let mut compile = cargo(&[&build_command, &package[..], &here].concat());
    compile.args(["--config", "profile.release.strip=\"symbols\""]);
    compile.current_dir(sources).env("CARGO_TARGET_DIR", build);
    compile.env("SOURCE_DATE_EPOCH", &time).env("CARGO_INCREMENTAL", "0");
    compile.env("RUSTFLAGS", remapped(sources)?);
    process::run(compile)?;

    let mut tree =
        cargo(&[&["tree", "--edges", "normal,no-proc-macro"], &package[..], &here].concat());
    tree.args(["--prefix", "depth", "--format", " {p}"]).current_dir(sources);
    let tree = String::from_utf8(output(tree)?)?;
    let mut metadata = cargo(&["metadata", "--format-version", "1", "--locked", "--all-features"]);
    metadata.current_dir(sources);
    let metadata = serde_json::from_slice(&output(metadata)?)?;
    let bill = Bill::of(&tree, &metadata, &std::fs::read_to_string(sources.join("Cargo.lock"))?)?;

    let name = format!("torchlet-{}-{target}", bill.version());
    let folder = build.join("archive").join(&name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    let program = if target.contains("windows") { "torchlet.exe" } else { "torchlet" };
    let built = build.join(target).join("release").join(program);
    let bytes = std::fs::read(&built).with_context(|| built.display().to_string())?;
    if !bytes.windows(DEPENDENCIES.len()).any(|part| part == DEPENDENCIES) {
        bail!("{} has no dependency list: cargo auditable did not add one", built.display());
    }
    std::fs::copy(&built, folder.join(program)).with_context(|| built.display().to_string())?;
    for file in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        std::fs::copy(sources.join(file), folder.join(file)).with_context(|| file.to_owned())?;
    }
    std::fs::write(folder.join("THIRD-PARTY.txt"), bill.licences(is_static)?)?;
    let bom = serde_json::to_string_pretty(&bill.cyclone_dx(&time, target))?;
    std::fs::write(folder.join("torchlet.cdx.json"), bom + "\n")?;

    std::fs::create_dir_all(out)?;
    let archive = out.join(format!("{name}.tar.gz"));
    // Without `--mode`, modes depend on the umask.
    let pack = "tar --sort=name --format=ustar --mtime=\"@$2\" --owner=0 --group=0 --numeric-owner \
                --mode=u=rwX,go=rX -cf - \"$0\" | gzip -9n > \"$1\"";
    let mut tar = command("sh", &["-c", pack, &name, &archive.to_string_lossy(), &time]);
    tar.current_dir(build.join("archive"));
    process::run(tar)?;
    Ok(archive)
}

/// Section of an executable that lists its dependencies, for scanners such as `cargo audit bin`. On
/// macOS and Windows, the name is shortened or padded.
const DEPENDENCIES: &[u8] = b"dep-v0";

/// Installs `cargo auditable`, which embeds the list of dependencies, if it is missing.
fn auditable() -> Result<()> {
    if !process::succeeds("cargo", &["auditable", "--version"]) {
        process::run(cargo(&["install", "--quiet", "--locked", "cargo-auditable@0.7.7"]))?;
    }
    Ok(())
}

/// Flags that remap machine-specific paths: of the sources, of dependencies, and of the standard
/// library.
fn remapped(sources: &Path) -> Result<String> {
    let home = match std::env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => std::env::home_dir().context("no home folder")?.join(".cargo"),
    };
    let sysroot = String::from_utf8(output(command("rustc", &["--print", "sysroot"]))?)?;
    let paths = [(sources, "/torchlet"), (&home, "/cargo"), (Path::new(sysroot.trim()), "/rust")];
    let flags = paths.map(|(path, to)| format!("--remap-path-prefix={}={to}", path.display()));
    Ok(flags.join(" "))
}
