//! The command as people use it, on the fixtures.

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

/// Runs the command in the folder of the fixtures.
fn torchlet(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_torchlet"));
    // What an earlier run compiled would not be compiled.
    command.env("TORCHLET_COMPILE_CACHE", "off");
    command.current_dir(fixture("")).args(arguments).output().unwrap()
}

fn stdout(arguments: &[&str]) -> String {
    let output = torchlet(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The error of a run that must fail: one line.
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

/// A folder of this test, gone when it ends.
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
fn errors_are_one_sentence_with_a_way_out() {
    assert!(error(&["run", "nothing.pte"]).contains("nothing.pte"));
    assert!(error(&["inspect", "README.md"]).contains("README.md"));
    assert!(error(&["run", ADD, "--method", "backward"]).contains("--method"));
    assert!(error(&["run", ADD, "--image", "digits/image_2.png"]).contains("takes an image"));
    assert!(error(&["run", "digits/digits.pte"]).contains("--random"));
    assert!(error(&["run", ADD, "--ones", "--memory-limit", "0"]).contains("--memory-limit"));
    let looping = ["run", "programs/map.bpte", "--random", "--jump-limit"];
    assert!(error(&[&looping[..], &["2"]].concat()).contains("--jump-limit"));
    for right in ["kernels", "cpu"] {
        let compared = ["diff", "programs/map.bpte", "--random", "--right", right, "--jump-limit"];
        assert!(error(&[&compared[..], &["2"]].concat()).contains("--jump-limit allows others"));
    }
    let unplanned = error(&["run", "digits/digits_external.pte", "--ones"]);
    assert!(unplanned.contains("--data") || unplanned.contains("not registered"), "{unplanned}");
}

/// What is piped to a program that has read enough ends quietly.
#[test]
fn readers_may_leave() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_torchlet"));
    command.current_dir(fixture("")).args(["verify", "--json", ADD]).stdout(writer);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

/// What cannot be written for another reason is told.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_told() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_torchlet"));
    command.current_dir(fixture("")).args(["verify", "--json", ADD]).stdout(full);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("cannot write to the standard output"), "{error}");
}
