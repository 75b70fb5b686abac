//! Compares the outputs of a board with those of the host for the same model and input.

use super::log::{Output, Ran};
use crate::process::{self, command, root, target_dir};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Tolerance of floats: `absolute + relative * |expected|`.
const TOLERANCE: (f32, f32) = (1e-4, 1e-4);

/// Name of a substituted model that a board was built with, and its file below `tests/fixtures`.
pub(super) const OWN: &str = "own";
pub(super) const OWN_FILE: &str = "tinyml/explicit_layout.bpte";

/// Source of a firmware model, and the number of runs before its output is compared, as in
/// `boards/firmware/build.rs`.
fn source(model: &str) -> (PathBuf, &'static str) {
    let fixtures = root().join("tests/fixtures");
    // A suffix after a space marks a special run.
    match model.split(' ').next().unwrap_or(model) {
        "digits" => (fixtures.join("digits/digits.bpte"), "1"),
        OWN => (fixtures.join(OWN_FILE), "1"),
        "digits_int8" | "picture" => (fixtures.join("tinyml/digits.bpte"), "1"),
        model @ ("lstm_step" | "lstm_step_apart") => {
            (fixtures.join("tinyml").join(model).with_extension("bpte"), "3")
        }
        model => (fixtures.join("tinyml").join(model).with_extension("bpte"), "1"),
    }
}

/// Whether a fixture's outputs equal PyTorch's bit for bit, as those of 8-bit models do; then they
/// must equal the host's too.
fn is_exact(file: &Path) -> Result<bool> {
    let fixtures = root().join("tests/fixtures");
    let manifest = std::fs::read_to_string(fixtures.join("manifest.json"))?;
    let manifest: Vec<serde_json::Value> = serde_json::from_str(&manifest)?;
    let name = file.strip_prefix(&fixtures)?.to_str().context("a name of the repository")?;
    let entry = manifest.iter().find(|entry| entry["file"] == name);
    let entry = entry.with_context(|| format!("the manifest has no {name}"))?;
    Ok(entry["rtol"] == 0.0 && entry["atol"] == 0.0)
}

/// The digit image that is an input of the digit classifiers.
fn picture() -> String {
    root().join("tests/fixtures/digits/image_2.npy").to_string_lossy().into_owned()
}

/// The argument for a board that reads the model from a file.
pub(crate) fn argument(model: &str) -> String {
    let (file, runs) = source(model);
    format!("{model}={runs}={}", file.display())
}

/// Outputs of the host, computed once per model.
#[derive(Default)]
pub(crate) struct Host {
    torchlet: Option<PathBuf>,
    outputs: BTreeMap<String, Vec<Array>>,
}

impl Host {
    /// Compares the outputs of a model on a board.
    pub(crate) fn compare(&mut self, ran: &Ran) -> Result<()> {
        let model = &ran.model;
        if !self.outputs.contains_key(model) {
            let outputs = self.run(model).with_context(|| format!("{model} on the host"))?;
            self.outputs.insert(model.clone(), outputs);
        }
        let host = &self.outputs[model];
        let (found, expected) = (ran.outputs.len(), host.len());
        ensure!(found == expected, "{model}: {found} outputs, but {expected} on the host");
        for (index, (board, host)) in ran.outputs.iter().zip(host).enumerate() {
            let exact = is_exact(&source(model).0)?;
            host.compare(board, exact).with_context(|| format!("{model}: output {index}"))?;
        }
        Ok(())
    }

    /// The host's float outputs of a digit classifier for the digit image.
    pub(super) fn picture(&mut self, program: &str) -> Result<Vec<f32>> {
        let arrays = self.torchlet("picture", &root().join(program), &["--input", &picture()])?;
        let [array] = &arrays[..] else { bail!("{} outputs instead of one", arrays.len()) };
        ensure!(array.is_float, "no floats");
        Ok(floats(&array.bytes).collect())
    }

    fn run(&mut self, model: &str) -> Result<Vec<Array>> {
        if model.starts_with("picture ") {
            let program = root().join("tests/fixtures/tinyml/digits.pte");
            return self.torchlet("picture", &program, &["--input", &picture()]);
        }
        let (file, runs) = source(model);
        self.torchlet(model, &file, &["--iterations", runs])
    }

    /// Returns the outputs of `torchlet run`.
    fn torchlet(&mut self, name: &str, file: &Path, options: &[&str]) -> Result<Vec<Array>> {
        let torchlet = match &self.torchlet {
            Some(path) => path.clone(),
            None => self.torchlet.insert(process::built("torchlet")?).clone(),
        };
        let out = target_dir().join("boards/host").join(name);
        // Files of an earlier run would count as outputs.
        let _ = std::fs::remove_dir_all(&out);
        std::fs::create_dir_all(&out)?;
        let mut run = command(&torchlet.to_string_lossy(), &["run", "--backend", "as-exported"]);
        run.arg(file).args(["--compile-cache", "off"]).args(options);
        run.arg("--out").arg(&out).stdout(Stdio::null());
        process::run(run)?;
        let path = |index| out.join(format!("output_{index}.npy"));
        let paths = (0..).map(path).take_while(|path| path.is_file());
        paths.map(|path| Array::read(&path)).collect()
    }
}

/// The elements of a `.npy` file.
struct Array {
    is_float: bool,
    bytes: Vec<u8>,
}

impl Array {
    fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path)?;
        // Version 1: six bytes of magic, two bytes of version, two bytes of header size.
        let head = bytes.first_chunk::<10>().context("a .npy file is longer")?;
        let end = 10 + usize::from(u16::from_le_bytes([head[8], head[9]]));
        let text = bytes.get(10..end).context("a .npy file has a header")?;
        let is_float = String::from_utf8_lossy(text).contains("<f4");
        Ok(Array { is_float, bytes: bytes[end..].to_vec() })
    }

    fn compare(&self, board: &Output, exact: bool) -> Result<()> {
        let (found, expected) = (board.bytes.len(), self.bytes.len());
        ensure!(found == expected, "{found} bytes, but {expected} on the host");
        ensure!(board.is_float == self.is_float, "the type differs from the host");
        if exact || !self.is_float {
            let differs = self.bytes.iter().zip(&board.bytes).position(|(a, b)| a != b);
            let Some(place) = differs else { return Ok(()) };
            bail!("byte {place} is {}, but {} on the host", board.bytes[place], self.bytes[place]);
        }
        for (index, (found, host)) in floats(&board.bytes).zip(floats(&self.bytes)).enumerate() {
            let allowed = TOLERANCE.0 + TOLERANCE.1 * host.abs();
            ensure!(
                (found - host).abs() <= allowed,
                "element {index} is {found}, but {host} on the host"
            );
        }
        Ok(())
    }
}

pub(super) fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}
