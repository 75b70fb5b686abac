//! End-to-end tests of the command on the fixtures.

mod files;
mod inspecting;
mod recording;
mod running;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const ADD: &str = "ops/arithmetic/add_f32.bpte";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name)
}

/// Runs the command in the fixtures folder.
fn torchlet(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_torchlet"));
    // Programs from the cache would not be compiled.
    command.env("TORCHLET_COMPILE_CACHE", "off");
    command.current_dir(fixture("")).args(arguments).output().unwrap()
}

fn stdout(arguments: &[&str]) -> String {
    let output = torchlet(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Standard error of a failing run: one line.
fn error(arguments: &[&str]) -> String {
    let output = torchlet(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    assert!(text.starts_with("error: "), "{text}");
    text
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

/// A temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("torchlet-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().into()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn help_has_examples() {
    for command in ["run", "inspect", "verify", "lower", "bench"] {
        assert!(stdout(&[command, "--help"]).contains("Examples:"));
    }
    assert!(stdout(&["--version"]).starts_with("torchlet "));
    assert!(stdout(&["completions", "bash"]).contains("_torchlet"));
    assert!(stdout(&["devices"]).contains("portable"));
    let devices: serde_json::Value = serde_json::from_str(&stdout(&["devices", "--json"])).unwrap();
    assert!(devices["portable"]["threads"].as_u64() > Some(0), "{devices}");
    assert_eq!(torchlet(&["run"]).status.code(), Some(2));
}

#[test]
fn errors_are_one_sentence_with_a_hint() {
    assert!(error(&["run", "nothing.pte"]).contains("nothing.pte"));
    assert!(error(&["inspect", "README.md"]).contains("README.md"));
    assert!(error(&["run", ADD, "--method", "backward"]).contains("--method"));
    assert!(error(&["run", ADD, "--image", "digits/image_2.png"]).contains("has no image input"));
    assert!(error(&["run", "digits/digits.pte"]).contains("--random"));
    assert!(error(&["run", ADD, "--ones", "--memory-limit", "0"]).contains("--memory-limit"));
    let looping = ["run", "programs/map.bpte", "--random", "--jump-limit"];
    assert!(error(&[&looping[..], &["2"]].concat()).contains("--jump-limit"));
    for right in ["kernels", "cpu"] {
        let compared = ["diff", "programs/map.bpte", "--random", "--right", right, "--jump-limit"];
        assert!(error(&[&compared[..], &["2"]].concat()).contains("raise it with --jump-limit"));
    }
    let unplanned = error(&["run", "digits/digits_external.pte", "--ones"]);
    assert!(unplanned.contains("--data") || unplanned.contains("not registered"), "{unplanned}");
}

#[test]
fn files_of_other_formats_are_named() {
    let folder = Folder::new("formats");
    for (name, bytes, expected) in [
        ("a.pt", &b"PK\x03\x04\0a/data.pkl"[..], ["PyTorch checkpoint", "export the model"]),
        ("a.pt2", b"PK\x03\x04\0a/archive_format", ["torch.export.save", "again"]),
        ("a.onnx", b"\x08\x08\x12\x07pytorch", ["ONNX", "to_executorch"]),
        ("a.gguf", b"GGUF\x03\0\0\0", ["GGUF", "export the original"]),
        ("a.safetensors", b"\x02\0\0\0\0\0\0\0{}", ["safetensors", "export the model"]),
        ("a.tflite", b"\x1c\0\0\0TFL3", ["TensorFlow Lite", "to_executorch"]),
        ("a.pte", b"version https://git-lfs.github.com/spec/v1\n", ["Git LFS", "git lfs pull"]),
        ("b.pte", b"<!DOCTYPE html>\n<html>", ["HTML", "download"]),
        ("c.pte", b"", ["empty", "again"]),
    ] {
        let path = folder.path(name);
        std::fs::write(&path, bytes).unwrap();
        for command in ["run", "inspect"] {
            let text = error(&[command, &path]);
            let is_said = |part: &&str| text.contains(part);
            assert!(expected.iter().all(is_said), "{name}: {text}");
        }
    }
}

#[cfg(feature = "llm")]
#[test]
fn other_programs_are_not_language_models() {
    for command in ["generate", "chat", "bench-llm"] {
        let model = [command, "digits/digits.pte"];
        let tokenizer = ["--tokenizer", "../../llm/model/tokenizer.json"];
        let mut lines = vec![model.to_vec()];
        if command != "bench-llm" {
            lines.push([model, tokenizer].concat());
        }
        for line in lines {
            let prompt = if command == "generate" { &["--prompt", "x"][..] } else { &[] };
            let text = error(&[&line[..], prompt].concat());
            assert!(text.contains("torchlet run"), "{line:?}: {text}");
        }
    }
}

#[test]
fn a_file_instead_of_a_command_is_explained() {
    let output = torchlet(&["digits/digits.pte"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("torchlet run digits/digits.pte"), "{text}");
    let unknown = String::from_utf8(torchlet(&["rum"]).stderr).unwrap();
    assert!(unknown.contains("run") && !unknown.contains("is a file"), "{unknown}");
}

/// The command ends silently if the reader of its output does.
#[test]
fn closed_pipes_are_not_errors() {
    for arguments in [
        &["verify", "--json", ADD][..],
        &["completions", "bash"],
        &["run", ADD, "--ones"],
        &["inspect", ADD],
        &["devices"],
        &["size", ADD, "--json"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_torchlet"));
        command.current_dir(fixture("")).args(arguments).stdout(writer);
        // Mesa looks for a Wayland display, and reports a missing variable on standard error.
        command.env("XDG_RUNTIME_DIR", std::env::temp_dir());
        let output = command.output().unwrap();
        // Output through `anstream` ignores a closed pipe.
        assert!(matches!(output.status.code(), Some(0 | 141)), "{arguments:?}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    }
}

/// Inputs whose size the file decides are bounded by the memory limit.
#[test]
#[cfg(target_os = "linux")]
fn inputs_count_against_the_memory_limit() {
    // Enlarges the inputs to 1.3 GiB.
    let bytes = std::fs::read(fixture(ADD)).unwrap();
    let sizes: Vec<u8> = [3i32, 5].iter().flat_map(|size| size.to_le_bytes()).collect();
    let places = bytes.windows(sizes.len()).enumerate();
    let places = places.filter(|(_, window)| *window == sizes).map(|(place, _)| place);
    let mut changed = bytes.clone();
    for place in places.collect::<Vec<_>>() {
        changed[place..place + 4].copy_from_slice(&(1i32 << 26).to_le_bytes());
    }
    assert_ne!(changed, bytes);
    let folder = Folder::new("inputs");
    let file = folder.path("large.bpte");
    std::fs::write(&file, changed).unwrap();
    for command in ["run", "bench", "profile", "diff"] {
        let mut limited = Command::new("sh");
        // In KiB: enough for the command itself, but not for the inputs.
        limited.args([
            "-c",
            "ulimit -v 1000000; exec \"$0\" \"$@\"",
            env!("CARGO_BIN_EXE_torchlet"),
        ]);
        limited.args([command, &file, "--random", "--memory-limit", "256"]);
        if command != "diff" {
            limited.args(["--compile-cache", "off", "--threads", "1", "--backend", "as-exported"]);
        }
        let output = limited.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{command}: {output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!text.contains("out of memory"), "{command}: {text}");
    }
}

/// Other write errors are reported.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_torchlet"));
    command.current_dir(fixture("")).args(["verify", "--json", ADD]).stdout(full);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("cannot write to the standard output"), "{error}");
}
