//! Builds the jar for the JVM with the native library inside, and tests it.

use crate::process::{self, command, root, target_dir};
use crate::tools;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// Version of the package, as in `java/Cargo.toml`.
pub(crate) const VERSION: &str = "0.1.0";
/// Maven coordinates: group, which is also the package, and artifact.
const GROUP: &str = "dev.torchlet";
const ARTIFACT: &str = "torchlet";

/// Checks that the package can be tested on this machine.
pub(crate) fn check() -> Result<()> {
    tools::jdk()?;
    tools::kotlin()?;
    tools::junit().map(drop)
}

/// Builds the release jar, and a local Maven repository with it.
pub(crate) fn run() -> Result<()> {
    tools::jdk()?;
    let jar = jar(&folder("release"), &native("release")?)?;
    let published = publish(&jar, ARTIFACT, "jar")?;
    println!("{}: {} bytes", jar.display(), std::fs::metadata(&jar)?.len());
    println!("Maven repository: {}", published.display());
    Ok(())
}

/// Builds the jar quickly, and runs the tests on the JVM.
pub(crate) fn test() -> Result<()> {
    let mut clippy = command("cargo", &["clippy", "--quiet", "--locked", "--"]);
    clippy.args(["--deny", "warnings"]).env("CARGO_TARGET_DIR", target_dir());
    process::run(in_package(clippy))?;
    let built = folder("dev");
    let jar = jar(&built, &native("dev")?)?;

    let classes = empty(&built.join("tests"))?;
    let junit = tools::junit()?;
    let path = |jars: &[&Path]| {
        let all = jars.iter().copied().chain(junit.iter().map(PathBuf::as_path));
        std::env::join_paths(all).context("a path has a separator")
    };
    let mut compile = command("javac", &["--release", "8", "-Xlint:all,-options", "-Werror", "-d"]);
    compile.arg(&classes).arg("-cp").arg(path(&[&jar])?);
    compile.args(sources(&package().join("tests"))?);
    process::run_quietly(compile, "javac java/tests")?;

    // -Xcheck:jni reports misuse of JNI, and the small heap makes the collector run often.
    let mut test = command("java", &["-Xcheck:jni", "-Xmx256m", "-ea", "-cp"]);
    test.arg(path(&[&jar, &classes])?);
    test.arg(format!("-Ddev.torchlet.tests={}", root().display()));
    test.arg("org.junit.runner.JUnitCore").args(test_classes(&classes)?);
    let mut warnings = 0;
    process::watch(test, |line| {
        warnings += usize::from(line.contains("WARNING in native method"));
    })?;
    if warnings > 0 {
        bail!("-Xcheck:jni reported {warnings} warnings");
    }
    examples(&jar, &built)
}

/// Runs the programs of the book's page.
fn examples(jar: &Path, built: &Path) -> Result<()> {
    let page = root().join("docs/java.md");
    let text = std::fs::read_to_string(&page).with_context(|| page.display().to_string())?;
    // Other blocks are parts of programs.
    let program = |language: &str| {
        let start = format!("```{language}\nimport ");
        let block = text.split_once(&start).and_then(|(_, rest)| rest.split_once("```"));
        let block = block.with_context(|| format!("docs/java.md has no program in {language}"))?;
        Ok::<_, anyhow::Error>(format!("import {}", block.0))
    };
    let folder = empty(&built.join("examples"))?;
    let (java, kotlin) = (folder.join("Digits.java"), folder.join("Main.kt"));
    std::fs::write(&java, program("java")?)?;
    std::fs::write(&kotlin, program("kotlin")?)?;
    let path = std::env::join_paths([&folder, jar]).context("a path has a separator")?;
    let with_path = |program: &str| {
        let mut command = command(program, &["-cp"]);
        command.arg(&path);
        command
    };
    let mut javac = with_path("javac");
    javac.arg("-d").arg(&folder).arg(&java);
    process::run_quietly(javac, "javac docs/java.md")?;
    let mut run = with_path("java");
    run.arg("Digits");
    process::run(run)?;
    let mut kotlinc = with_path("kotlinc");
    kotlinc.arg("-d").arg(&folder).arg(&kotlin);
    process::run_quietly(kotlinc, "kotlinc docs/java.md")?;
    let mut run = with_path("kotlin");
    run.arg("MainKt");
    process::run(run)
}

pub(crate) fn package() -> PathBuf {
    root().join("java")
}

fn folder(profile: &str) -> PathBuf {
    target_dir().join("java").join(profile)
}

fn in_package(mut command: std::process::Command) -> std::process::Command {
    command.current_dir(package());
    command
}

/// Removes what a folder has, and creates it.
pub(crate) fn empty(folder: &Path) -> Result<PathBuf> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    Ok(folder.to_path_buf())
}

/// Name of this machine's platform in the jar: that of `NativeLibrary.platform` in Java.
fn platform() -> String {
    format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH)
}

/// Builds the native library for this machine, and returns its path.
fn native(profile: &str) -> Result<PathBuf> {
    let mut build = command("cargo", &["build", "--quiet", "--locked", "--profile", profile]);
    build.env("CARGO_TARGET_DIR", target_dir());
    if profile == "release" {
        build.env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    }
    process::run(in_package(build))?;
    let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let folder = target_dir().join(if profile == "dev" { "debug" } else { profile });
    Ok(folder.join(format!("{prefix}torchlet_java{suffix}")))
}

/// Compiles the classes to a folder.
pub(crate) fn classes(folder: &Path) -> Result<()> {
    let mut compile = command("javac", &["--release", "8", "-Xlint:all,-options", "-Werror", "-d"]);
    compile.arg(folder).args(sources(&package().join("classes"))?);
    process::run_quietly(compile, "javac java/classes")
}

/// Packs the classes and the native library of this machine.
fn jar(folder: &Path, library: &Path) -> Result<PathBuf> {
    let staged = empty(&folder.join("jar"))?;
    classes(&staged)?;
    let natives = staged.join("natives").join(platform());
    std::fs::create_dir_all(&natives)?;
    let name = library.file_name().context("the library has no name")?;
    std::fs::copy(library, natives.join(name)).with_context(|| library.display().to_string())?;
    let licences = staged.join("META-INF");
    std::fs::create_dir_all(&licences)?;
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        std::fs::copy(root().join(name), licences.join(name))?;
    }
    let jar = folder.join(format!("{ARTIFACT}-{VERSION}.jar"));
    let mut pack = command("jar", &["--create", "--file"]);
    pack.arg(&jar).arg("-C").arg(&staged).arg(".");
    process::run_quietly(pack, "jar --create")?;
    Ok(jar)
}

/// Copies an archive to a local Maven repository, and returns the folder of the repository.
pub(crate) fn publish(archive: &Path, artifact: &str, packaging: &str) -> Result<PathBuf> {
    let repository = target_dir().join("java/maven");
    let folder = repository.join(GROUP.replace('.', "/")).join(artifact).join(VERSION);
    std::fs::create_dir_all(&folder)?;
    std::fs::copy(archive, folder.join(format!("{artifact}-{VERSION}.{packaging}")))?;
    let project = format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>{GROUP}</groupId>
  <artifactId>{artifact}</artifactId>
  <version>{VERSION}</version>
  <packaging>{packaging}</packaging>
  <name>torchlet</name>
  <description>Runs PyTorch programs exported by ExecuTorch</description>
  <licenses>
    <license><name>MIT OR Apache-2.0</name></license>
  </licenses>
</project>
"#
    );
    std::fs::write(folder.join(format!("{artifact}-{VERSION}.pom")), project)?;
    Ok(repository)
}

/// All Java files below a folder, in the order of their names.
fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    files(folder, "java")
}

fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, extension)?);
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The names of the compiled test classes, which end with `Test`.
fn test_classes(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for file in files(folder, "class")? {
        let name = file.strip_prefix(folder)?.with_extension("");
        let name = name.to_string_lossy().replace(std::path::MAIN_SEPARATOR, ".");
        if name.ends_with("Test") {
            names.push(name);
        }
    }
    match names.is_empty() {
        true => bail!("{} has no test classes", folder.display()),
        false => Ok(names),
    }
}
