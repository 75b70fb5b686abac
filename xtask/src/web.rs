//! Builds, packs and tests the JavaScript package and the page, in Node and in a browser.

use crate::process::{self, command, output, root, target_dir};
use crate::tools;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

const TARGET: &str = "wasm32-unknown-unknown";
/// Target features of the two modules: those of all browsers since 2023, and additional ones of
/// some. A module is valid as a whole or not at all.
const FEATURES: [&str; 2] = ["+simd128", "+simd128,+relaxed-simd"];
/// Stack size as for native threads, because files can nest.
const FLAGS: &str = "-C link-arg=-zstack-size=4194304";
/// Maximum compressed size of the package: 1,687,016 bytes at the last change, which added the
/// reader of VGF files and decompositions.
const MAX_PACKED_BYTES: u64 = 1_750_000;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Measure a program in Node, in Chromium and natively on one thread, in turns
    #[arg(long, value_name = "FILE")]
    speed: Option<PathBuf>,
    /// Also test the page in a browser with this program
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Write screenshots of the page to this folder
    #[arg(long, value_name = "FOLDER")]
    pictures: Option<PathBuf>,
}

/// Build profile of the module.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Build {
    /// Fast to build, for tests.
    Light,
    /// Small and fast, for users.
    Release,
}

/// Checks that the package can be built and tested on this machine.
pub(crate) fn check() -> Result<()> {
    tools::targets(&[TARGET])?;
    tools::node()?;
    tools::chromium()?;
    Ok(())
}

/// Builds and packs the release package and the page.
pub(crate) fn run(options: &Options) -> Result<()> {
    tools::targets(&[TARGET])?;
    tools::node()?;
    let package = build(Build::Release)?;
    let module = package.join("dist/torchlet.wasm");
    let pack = command("npm", &["pack", "--silent", "--pack-destination", ".."]);
    // `npm pack` prints the name of the archive.
    let packed = String::from_utf8(output(in_folder(pack, &package))?)?;
    let archive = package.with_file_name(packed.trim());
    let (bytes, packed) = (std::fs::metadata(&module)?.len(), std::fs::metadata(&archive)?.len());
    println!("{}: {bytes} bytes; {}: {packed} bytes", module.display(), archive.display());
    println!("{}", package.with_file_name("torchlet.html").display());
    if packed > MAX_PACKED_BYTES {
        bail!("the package has {packed} bytes, more than the limit of {MAX_PACKED_BYTES}");
    }
    if let Some(model) = &options.speed {
        speed(&package, model)?;
    }
    if options.model.is_some() || options.pictures.is_some() {
        tools::chromium()?;
        drive(&package, options.model.as_deref(), options.pictures.as_deref())?;
    }
    Ok(())
}

/// Builds the package quickly, and tests it.
pub(crate) fn test() -> Result<()> {
    let package = build(Build::Light)?;
    let files = ["--test", "tests/package.test.mjs", "tests/workers.test.mjs"];
    let mut test = command("node", &files);
    test.env("TORCHLET_PACKAGE", &package);
    process::run(in_folder(test, &sources()))?;
    drive(&package, None, None)
}

fn sources() -> PathBuf {
    root().join("web")
}

fn in_folder(mut command: std::process::Command, folder: &Path) -> std::process::Command {
    command.current_dir(folder);
    command
}

/// Builds module, glue, interface and page. Returns the folder of the package; the page is beside
/// it.
fn build(build: Build) -> Result<PathBuf> {
    let profile = match build {
        Build::Light => "dev",
        Build::Release => "release",
    };
    let folder = if build == Build::Light { "debug" } else { "release" };
    let built = target_dir().join(TARGET).join(folder).join("torchlet_web.wasm");
    let modules = target_dir().join("web").join(profile);
    std::fs::create_dir_all(&modules)?;
    let modules = ["plain.wasm", "relaxed.wasm"].map(|name| modules.join(name));
    for (features, module) in FEATURES.iter().zip(&modules) {
        let cargo = ["build", "--quiet", "--locked", "--target", TARGET, "--profile", profile];
        let mut cargo = command("cargo", &cargo);
        // Clippy covers neither this target nor this package, so compiler warnings are errors here.
        let deny = if build == Build::Light { " -D warnings" } else { "" };
        let flags = format!("-C target-feature={features} {FLAGS}{deny}");
        cargo.env("CARGO_TARGET_DIR", target_dir()).env("RUSTFLAGS", flags);
        process::run(in_folder(cargo, &sources()))?;
        std::fs::copy(&built, module).with_context(|| built.display().to_string())?;
    }

    let package = target_dir().join("web").join(profile).join("package");
    let dist = package.join("dist");
    if dist.exists() {
        std::fs::remove_dir_all(&dist)?;
    }
    std::fs::create_dir_all(&dist)?;
    let mut bind = command("cargo", &["run", "--quiet", "--locked", "--"]);
    bind.args(&modules).arg(&dist).env("CARGO_TARGET_DIR", target_dir());
    process::run(in_folder(bind, &sources().join("bind")))?;

    npm_packages()?;
    let mut types = command("node", &["node_modules/typescript/bin/tsc", "--outDir"]);
    types.arg(&dist);
    process::run(in_folder(types, &sources()))?;
    for (from, to) in [
        ("web/package.json", "package.json"),
        ("web/README.md", "README.md"),
        ("web/api/engine.d.ts", "dist/engine.d.ts"),
        ("LICENSE-MIT", "LICENSE-MIT"),
        ("LICENSE-APACHE", "LICENSE-APACHE"),
    ] {
        let from = root().join(from);
        std::fs::copy(&from, package.join(to)).with_context(|| from.display().to_string())?;
    }
    let mut page = command("node", &["page/build.mjs"]);
    page.arg(&package).arg(package.with_file_name("torchlet.html"));
    process::run(in_folder(page, &sources()))?;
    Ok(package)
}

/// Installs the packages of the lock file, unless they are up to date.
fn npm_packages() -> Result<()> {
    let (lock, stamp) =
        (sources().join("package-lock.json"), sources().join("node_modules/.torchlet-lock"));
    let wanted = std::fs::read(&lock).with_context(|| lock.display().to_string())?;
    if std::fs::read(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(());
    }
    let mut install = command("npm", &["ci", "--no-audit", "--no-fund", "--ignore-scripts"]);
    install.env("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1");
    process::run(in_folder(install, &sources()))?;
    Ok(std::fs::write(stamp, wanted)?)
}

/// Tests the page in a browser.
fn drive(package: &Path, model: Option<&Path>, pictures: Option<&Path>) -> Result<()> {
    let mut test = command("node", &["tests/page.mjs", "--browser"]);
    test.arg(tools::chromium()?).arg("--package").arg(package);
    test.arg("--page").arg(package.with_file_name("torchlet.html"));
    for (option, path) in [("--model", model), ("--pictures", pictures)] {
        if let Some(path) = path {
            test.arg(option).arg(std::path::absolute(path)?);
        }
    }
    process::run(in_folder(test, &sources()))
}

/// Measures a program in all engines in turns, and prints the ratios of the fastest runs.
fn speed(package: &Path, model: &Path) -> Result<()> {
    let build = ["build", "--quiet", "--release", "--package", "torchlet-cli"];
    process::run(process::cargo(&[&build[..], &["--no-default-features"]].concat()))?;
    let torchlet = target_dir().join("release/torchlet");
    let model = std::path::absolute(model)?;
    let chromium = tools::chromium()?;
    let kinds =
        [("plain", "node"), ("relaxed", "node"), ("plain", chromium), ("relaxed", chromium)];
    let mut engines = kinds.map(|kind| (kind, f64::INFINITY));
    let mut fastest = f64::INFINITY;
    for _ in 0..5 {
        let mut native = command(&torchlet.to_string_lossy(), &["bench", "--json", "--random"]);
        native.args(["--backend", "cpu", "--threads", "1", "--iterations", "20"]).arg(&model);
        let native = serde_json::from_slice::<serde_json::Value>(&output(native)?)?;
        let native =
            native["min_ms"].as_f64().context("the output of torchlet bench has no min_ms")?;
        fastest = fastest.min(native);
        for ((kind, engine), fastest) in &mut engines {
            let mut web = command("node", &["tests/speed.mjs"]);
            web.args([package, &model]).args([kind, engine]);
            let web = String::from_utf8(output(in_folder(web, &sources()))?)?;
            *fastest = web.trim().parse::<f64>().context("the time is not a number")?.min(*fastest);
        }
    }
    println!("native, 1 thread: {fastest:.2} ms");
    for ((kind, engine), time) in engines {
        println!(
            "{engine}, {kind} SIMD: {time:.2} ms, {:.2} times the native time",
            time / fastest
        );
    }
    Ok(())
}
