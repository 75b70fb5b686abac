//! Builds the book with mdBook, rewrites and checks its links, and checks the spelling of all
//! texts.

use crate::process::{self, command, output, root, succeeds, target_dir};
use crate::tools;
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The version to install; an installed one is used as it is.
const MDBOOK: &str = "^0.5";

/// Path of files in the repository's web interface.
const FILES: &str = "/blob/main/";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Write screenshots of the pages to this folder: light, dark, and phone width
    #[arg(long, value_name = "FOLDER")]
    pictures: Option<PathBuf>,
}

/// Builds the pages. Installs mdBook under the target folder if it is missing.
pub(crate) fn run(options: &Options) -> Result<()> {
    spelling()?;
    let mdbook = installed().map_or_else(install, Ok)?;
    build(&mdbook)?;
    if let Some(folder) = &options.pictures {
        pictures(folder)?;
    }
    println!("{}", pages_folder().join("index.html").display());
    Ok(())
}

/// The check for every change: spelling, and the pages if mdBook is installed.
pub(crate) fn check() -> Result<()> {
    spelling()?;
    match installed() {
        Some(mdbook) => build(&mdbook),
        None => {
            println!(
                "skipping the pages, because mdBook is not installed; `cargo xtask book` installs \
                 it"
            );
            Ok(())
        }
    }
}

/// Checks all texts for known misspellings. `.codespellrc` lists exceptions.
fn spelling() -> Result<()> {
    tools::codespell()?;
    let endings = ["md", "rs", "toml", "py", "ts", "js", "mjs", "html", "h", "hpp", "c", "cpp"];
    let patterns = endings.map(|ending| format!("*.{ending}"));
    let mut files = command("git", &["ls-files", "-z", "--"]);
    files.args(patterns).arg(":!tests/fixtures").arg(":!llm/model");
    let files = String::from_utf8(output(files)?)?;
    let files: Vec<&str> = files.split_terminator('\0').collect();
    if files.is_empty() {
        bail!("git lists no text files");
    }
    process::run_quietly(command("codespell", &files), &format!("codespell, {} files", files.len()))
}

fn tools_folder() -> PathBuf {
    target_dir().join("tools")
}

fn pages_folder() -> PathBuf {
    target_dir().join("book")
}

/// Finds mdBook on the machine or under the target folder.
fn installed() -> Option<String> {
    let own = tools_folder().join("bin/mdbook").to_string_lossy().into_owned();
    ["mdbook".to_owned(), own].into_iter().find(|name| succeeds(name, &["--version"]))
}

fn install() -> Result<String> {
    let mut install = command("cargo", &["install", "--quiet", "--locked", "mdbook"]);
    install.args(["--no-default-features", "--version", MDBOOK, "--root"]).arg(tools_folder());
    process::run(install)?;
    installed().context("mdBook was installed but cannot be started")
}

/// Builds the pages, refuses warnings, and rewrites and checks links.
fn build(mdbook: &str) -> Result<()> {
    let folder = pages_folder();
    let mut build = command(mdbook, &["build", "docs", "--dest-dir"]);
    build.arg(&folder);
    let result = build.output().with_context(|| format!("cannot start {mdbook}"))?;
    let text = String::from_utf8_lossy(&result.stderr);
    if !result.status.success() || text.contains("WARN") || text.contains("ERROR") {
        bail!("mdBook printed warnings:\n{text}");
    }
    let repository = repository()?;
    let mut pages = BTreeMap::new();
    for entry in folder.read_dir()? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "html") {
            let page = std::fs::read_to_string(&path)?;
            let page = outside(&page, &root(), &repository)?;
            std::fs::write(&path, &page)?;
            pages.insert(path, page);
        }
    }
    let faults: Vec<String> =
        pages.iter().flat_map(|(path, page)| dead_links(path, page, &pages)).collect();
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    println!("{} pages in {}", pages.len(), folder.display());
    Ok(())
}

/// The repository's address from the manifest.
fn repository() -> Result<String> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml"))?;
    let line = manifest.lines().find_map(|line| line.strip_prefix("repository = \""));
    let address = line.and_then(|rest| rest.strip_suffix('"'));
    Ok(address.context("Cargo.toml has no repository")?.to_owned())
}

/// Redirects links to files outside the book to the repository, because pages are published alone.
/// mdBook rewrites all `.md` links to `.html`.
fn outside(page: &str, root: &Path, repository: &str) -> Result<String> {
    const LINK: &str = "href=\"../";
    let mut mended = String::with_capacity(page.len());
    let mut rest = page;
    while let Some((before, behind)) = rest.split_once(LINK) {
        let (target, behind) = behind.split_once('"').context("an unterminated link")?;
        let (file, heading) = target.split_once('#').map_or((target, None), |(a, b)| (a, Some(b)));
        let file = match file.strip_suffix(".html") {
            Some(name) if !root.join(file).exists() => format!("{name}.md"),
            _ => file.to_owned(),
        };
        if !root.join(&file).exists() {
            bail!("a link leads to {file}, which does not exist");
        }
        let heading = heading.map(|heading| format!("#{heading}")).unwrap_or_default();
        mended.push_str(&format!("{before}href=\"{repository}{FILES}{file}{heading}\""));
        rest = behind;
    }
    mended.push_str(rest);
    Ok(mended)
}

/// Values of an attribute.
fn values<'a>(page: &'a str, attribute: &str) -> Vec<&'a str> {
    let start = format!(" {attribute}=\"");
    let found = page.match_indices(&start).map(|(at, _)| &page[at + start.len()..]);
    found.filter_map(|rest| rest.split_once('"')).map(|(value, _)| value).collect()
}

/// Links of a page to missing files and headings.
fn dead_links(path: &Path, page: &str, pages: &BTreeMap<PathBuf, String>) -> Vec<String> {
    // The 404 page has links relative to the site root; the print page has the headings of all
    // chapters.
    if path.file_name().is_some_and(|name| name == "404.html" || name == "print.html") {
        return Vec::new();
    }
    let links: BTreeSet<&str> =
        values(page, "href").into_iter().chain(values(page, "src")).collect();
    let is_dead = |link: &&str| {
        if link.contains(':') || link.is_empty() {
            return false;
        }
        let (file, heading) = link.split_once('#').unwrap_or((link, ""));
        let target = match file {
            "" => path.to_owned(),
            file => path.with_file_name(file),
        };
        let has_heading = heading.is_empty()
            || pages.get(&target).is_some_and(|page| values(page, "id").contains(&heading));
        !(target.exists() && has_heading)
    };
    let dead = links.into_iter().filter(is_dead);
    dead.map(|link| format!("{}: broken link {link}", path.display())).collect()
}

/// Takes screenshots of some pages in a browser.
fn pictures(folder: &Path) -> Result<()> {
    let browser = tools::chromium()?;
    std::fs::create_dir_all(folder)?;
    let folder = std::path::absolute(folder)?;
    for page in ["introduction", "first-result", "kernel", "profiling", "porting"] {
        let address =
            format!("file://{}", pages_folder().join(page).with_extension("html").display());
        for (kind, size, flags) in [
            ("light", "1280,1400", &["--blink-settings=preferredColorScheme=1"][..]),
            ("dark", "1280,1400", &["--blink-settings=preferredColorScheme=0"]),
            ("phone", "500,1400", &["--blink-settings=preferredColorScheme=1"]),
        ] {
            let picture = folder.join(format!("{page}-{kind}.png"));
            let mut shot = command(browser, &["--headless", "--no-sandbox", "--hide-scrollbars"]);
            shot.args(flags).arg(format!("--window-size={size}"));
            shot.arg(format!("--screenshot={}", picture.display())).arg(&address);
            process::run_quietly(shot, &picture.display().to_string())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_book_lead_to_the_repository() {
        let page = r#"<a href="../CONTRIBUTING.html#add-a-pass">a</a> <a href="kernel.html">b</a>"#;
        let mended = outside(page, &root(), "https://example.org/r").unwrap();
        assert_eq!(
            mended,
            r#"<a href="https://example.org/r/blob/main/CONTRIBUTING.md#add-a-pass">a</a> <a href="kernel.html">b</a>"#
        );
        let error = outside(r#"<a href="../NOTHING.html">"#, &root(), "").unwrap_err();
        assert!(error.to_string().contains("NOTHING.md"), "{error}");
    }

    #[test]
    fn dead_links_are_found() {
        let here = root().join("Cargo.toml");
        let page = r##"<h2 id="one"></h2><a href="#one"></a><a href="#two"></a><img src="none.png"><a href="deny.toml">"##;
        let pages = BTreeMap::from([(here.clone(), page.to_owned())]);
        let dead = dead_links(&here, page, &pages);
        assert_eq!(dead.len(), 2, "{dead:?}");
        assert!(dead[0].contains("#two") && dead[1].contains("none.png"), "{dead:?}");
    }
}
