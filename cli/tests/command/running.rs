//! Commands that run, verify and measure programs.

use crate::{ADD, Folder, error, fixture, json, stdout, torchlet};
use std::process::Command;

#[test]
fn run_uses_a_bundled_case_by_default() {
    let text = stdout(&["run", ADD]);
    assert!(text.contains("output 0 float32[3, 5]\ntensor([["), "{text}");
    assert!(!text.contains('\u{1b}'), "colours only on a terminal");
}

#[test]
fn run_reads_and_writes_arrays() {
    let folder = Folder::new("arrays");
    let ones = stdout(&["run", ADD, "--ones", "--out", &folder.path("")]);
    assert!(ones.contains("[2., 2., 2., 2., 2.]"), "{ones}");
    let twos = folder.path("output_0.npy");
    let fours = stdout(&["run", ADD, "--input", &twos, "--input", &twos]);
    assert!(fours.contains("[4., 4., 4., 4., 4.]"), "{fours}");
    let mixed = stdout(&["run", ADD, "-i", &twos, "--ones"]);
    assert!(mixed.contains("[3., 3., 3., 3., 3.]"), "{mixed}");

    let bare = folder.path("bare.bin");
    std::fs::write(&bare, 0.5f32.to_le_bytes().repeat(15)).unwrap();
    let one = stdout(&["run", ADD, "-i", &bare, "-i", &bare, "--iterations", "3"]);
    assert!(one.contains("[1., 1., 1., 1., 1.]") && one.contains("3 runs"), "{one}");

    let archive = folder.path("both.npz");
    let mut zip = zip::ZipWriter::new(std::fs::File::create(&archive).unwrap());
    for name in ["a.npy", "b.npy"] {
        zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        std::io::Write::write_all(&mut zip, &std::fs::read(&twos).unwrap()).unwrap();
    }
    zip.finish().unwrap();
    assert!(stdout(&["run", ADD, "-i", &archive]).contains("[4., 4., 4., 4., 4.]"));

    let third = error(&["run", ADD, "-i", &archive, "-i", &twos]);
    assert!(third.contains("one input too many"), "{third}");
    std::fs::write(&bare, [0; 7]).unwrap();
    assert!(error(&["run", ADD, "-i", &bare]).contains("expected 60 bytes, found 7"));
    std::fs::write(folder.path("x.npy"), b"no array").unwrap();
    assert!(error(&["run", ADD, "-i", &folder.path("x.npy")]).contains("not a valid .npy file"));
}

#[test]
fn random_inputs_are_reproducible() {
    let run = |seed| {
        let text = stdout(&["run", ADD, "--random", seed]);
        text.split("\n\n").next().unwrap().to_string()
    };
    assert_eq!(run("5"), run("5"));
    assert_ne!(run("5"), run("6"));
}

#[test]
fn verify_compares() {
    assert!(stdout(&["verify", ADD]).contains("pass"));
    let output = torchlet(&["verify", ADD, "digits/digits.pte", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().map(json).collect();
    assert_eq!((lines.len(), lines[0]["status"].as_str()), (2, Some("pass")));
    assert_eq!((lines[0]["max_abs"].as_f64(), lines[0]["error"].is_null()), (Some(0.0), true));
    assert_eq!(lines[1]["status"], "error");
    assert!(lines[1]["error"].as_str().unwrap().contains("test cases"));
    assert!(text.starts_with("{\"file\":\"ops/arithmetic/add_f32.bpte\",\"status\":\"pass\""));

    // Flip a bit of an expected output.
    let folder = Folder::new("verify");
    let mut bytes = std::fs::read(fixture(ADD)).unwrap();
    let expected = expected_bytes();
    let place = bytes.windows(expected.len()).position(|window| window == expected).unwrap();
    bytes[place + 3] ^= 0x40;
    let changed = folder.path("changed.bpte");
    std::fs::write(&changed, bytes).unwrap();
    let output = torchlet(&["verify", &changed, ADD]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("1 of 15 elements differ; element 0 is"), "{text}");
    assert!(text.contains("1 passed, 1 differ"), "{text}");
}

#[test]
fn instruction_set_tiers_are_selectable() {
    let verify = |tier| {
        let model = "xnnpack/network/inverted.bpte";
        let tolerances = ["--rtol", "1e-4", "--atol", "1e-5"];
        let line = ["verify", model, "--backend", "cpu", "--tier", tier];
        torchlet(&[&line[..], &tolerances].concat())
    };
    let said = String::from_utf8(verify("mmx").stderr).unwrap();
    let (_, tiers) = said.split_once("expected a tier of this processor: ").unwrap();
    let tiers = tiers.lines().next().unwrap_or_default();
    assert!(tiers.starts_with("scalar"), "{said}");
    for tier in tiers.split(", ") {
        let output = verify(tier);
        assert!(output.status.success(), "{tier}: {output:?}");
    }
}

/// Bytes of the first expected output of the first case.
fn expected_bytes() -> Vec<u8> {
    let module = torchlet::Module::load(fixture(ADD)).unwrap();
    let suite = module.bundled().unwrap().suites().unwrap().next().unwrap().unwrap();
    let case = suite.cases().unwrap().next().unwrap().unwrap();
    match case.expected_outputs().unwrap().next().unwrap().unwrap() {
        torchlet::core::ValueRef::Tensor(tensor) => tensor.bytes().to_vec(),
        _ => panic!("not a tensor"),
    }
}

#[test]
fn bench_measures() {
    let arguments = ["bench", ADD, "--iterations", "7", "--warmup", "1", "--threads", "1"];
    let object = json(&stdout(&[&arguments[..], &["--json"]].concat()));
    for key in ["median_ms", "min_ms", "p90_ms", "load_ms"] {
        assert!(object[key].as_f64().unwrap() > 0.0, "{key}");
    }
    assert!(object["min_ms"].as_f64() <= object["median_ms"].as_f64());
    assert_eq!((&object["iterations"], &object["threads"]), (&7.into(), &1.into()));
    assert_eq!(object["backend"], "auto");
    assert!(cfg!(not(target_os = "linux")) || object["peak_bytes"].as_u64().unwrap() > 100_000);
    assert!(stdout(&arguments).contains("median"));
}

/// Without a Vulkan driver or loader, the error says so.
#[test]
fn vulkan_without_a_driver_is_an_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_torchlet"));
    for variable in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"] {
        command.env(variable, "/nonexistent.json");
    }
    let arguments = ["run", ADD, "--backend", "vulkan"];
    let output = command.current_dir(fixture("")).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
}
