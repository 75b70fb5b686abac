//! The command as people use it, on the fixtures.

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
fn run_takes_a_bundled_case_if_nothing_is_given() {
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
    assert!(error(&["run", ADD, "-i", &bare]).contains("has 60 bytes, the file 7"));
    std::fs::write(folder.path("x.npy"), b"no array").unwrap();
    assert!(error(&["run", ADD, "-i", &folder.path("x.npy")]).contains("not a valid .npy file"));
}

#[test]
fn random_inputs_repeat() {
    let run = |seed| {
        let text = stdout(&["run", ADD, "--random", seed]);
        text.split("\n\n").next().unwrap().to_string()
    };
    assert_eq!(run("5"), run("5"));
    assert_ne!(run("5"), run("6"));
}

#[test]
fn profiles_show_operators() {
    let text = stdout(&["run", ADD, "--random", "--profile", "--iterations", "4"]);
    assert!(text.contains("aten::add.out") && text.contains("share"), "{text}");
}

#[test]
fn errors_are_one_sentence_with_a_way_out() {
    assert!(error(&["run", "nothing.pte"]).contains("nothing.pte"));
    assert!(error(&["inspect", "README.md"]).contains("README.md"));
    assert!(error(&["run", ADD, "--method", "backward"]).contains("--method"));
    assert!(error(&["run", ADD, "--image", "digits/image_2.png"]).contains("takes an image"));
    assert!(error(&["run", "digits/digits.pte"]).contains("--random"));
    assert!(error(&["run", ADD, "--ones", "--memory-limit", "0"]).contains("--memory-limit"));
    let unplanned = error(&["run", "digits/digits_external.pte", "--ones"]);
    assert!(unplanned.contains("--data") || unplanned.contains("not registered"), "{unplanned}");
}

#[test]
fn inspect_explains() {
    let text = stdout(&["inspect", "digits/digits.bpte"]);
    for part in ["method forward", "test cases", "float32[1, 1, 8, 8]", "aten::convolution.out"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let object = json(&stdout(&["inspect", "digits/digits.bpte", "--json"]));
    let method = &object["methods"][0];
    assert_eq!(method["inputs"][0]["value"], "float32[1, 1, 8, 8]");
    assert_eq!(method["operators"][0]["calls"], 2);
    assert!(method["weights"][0]["elements"].as_u64().unwrap() > 3000);

    let add = json(&stdout(&["inspect", ADD, "--json"]));
    let memory = &add["methods"][0]["memory"];
    let parts = memory["arena_parts"].as_object().unwrap();
    let sum: u64 = parts.values().map(|part| part.as_u64().unwrap()).sum();
    assert_eq!(memory["arena"], sum);

    let delegates = json(&stdout(&["inspect", "formats/delegate_compile_specs.pte", "--json"]));
    let delegate = &delegates["methods"][0]["delegates"][0];
    assert_eq!(delegate["available"], false);
    assert!(!delegate["compile_specs"].as_array().unwrap().is_empty());

    let relu = "vulkan/activation/relu.bpte";
    let lowered = json(&stdout(&["inspect", relu, "--json"]));
    let graph = &lowered["methods"][0]["delegates"][0]["graph"];
    if cfg!(feature = "vulkan") {
        assert_eq!(graph["operators"][0]["name"], "aten.relu.default");
        assert_eq!(graph["operators"][0]["available"], true);
        assert!(stdout(&["inspect", relu]).contains("1  aten.relu.default"));
    } else {
        assert!(graph.is_null());
    }

    let compiled = "xnnpack/convolution/conv2d.bpte";
    let text = stdout(&["inspect", compiled]);
    assert!(text.contains("compiled when") && text.contains("1  Conv2d"), "{text}");
    assert!(!text.contains("not available"), "{text}");
    let object = json(&stdout(&["inspect", compiled, "--json"]));
    assert_eq!(object["methods"][0]["delegates"][0]["available"], true);

    let data = "digits/digits_external._default_external_constant.ptd";
    let external = stdout(&["inspect", "digits/digits_external.pte", "--data", data]);
    assert!(external.contains("data file 0"), "{external}");
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

    // An expected output is changed.
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
fn tiers_of_the_processor_are_chosen() {
    let verify = |tier| {
        let model = "xnnpack/network/inverted.bpte";
        let tolerances = ["--rtol", "1e-4", "--atol", "1e-5"];
        let line = ["verify", model, "--backend", "cpu", "--tier", tier];
        torchlet(&[&line[..], &tolerances].concat())
    };
    let said = String::from_utf8(verify("mmx").stderr).unwrap();
    let (_, tiers) = said.split_once("this processor has ").unwrap();
    let tiers = tiers.lines().next().unwrap_or_default();
    assert!(tiers.starts_with("scalar"), "{said}");
    for tier in tiers.split(", ") {
        let output = verify(tier);
        assert!(output.status.success(), "{tier}: {output:?}");
    }
}

/// The bytes of the first expected output of the first case.
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

/// Without a driver that the loader finds, or without a loader, Vulkan is not to be had, and says so.
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

#[test]
fn inspect_tells_the_memory_of_a_board() {
    let folder = Folder::new("board");
    let file = folder.path("digits.pte");
    stdout(&["lower", "digits/digits.pte", "--for", "mcu", "-o", &file]);
    let model = ["inspect", &file, "--target"];
    let object = json(&stdout(&[&model[..], &["thumbv7em-none-eabihf", "--json"]].concat()));
    assert_eq!(object["target"], "thumbv7em-none-eabihf");
    let told = &object["methods"][0]["on_target"];
    // To the byte what the firmware has, one byte less of which it refuses (`cargo xtask board`).
    let log = include_str!("../../boards/qemu-cortex-m4/expected.txt");
    for line in [
        format!("arena: {} bytes", told["arena"]),
        format!("planned: {} bytes", told["planned"]),
        format!("scratch: {} bytes", told["scratch"]),
    ] {
        assert!(log.lines().any(|found| found == line), "{line} is not in\n{log}");
    }
    assert!(stdout(&[&model[..], &["32"]].concat()).contains("scratch"));
    // Of a processor with vector instructions, its name does not tell all.
    let here = json(&stdout(&["inspect", &file, "--target", "64", "--json"]));
    let there = &here["methods"][0]["on_target"];
    assert!(there["tables"].as_u64() > told["arena"].as_u64() && there["scratch"].is_null());
    assert_eq!(torchlet(&[&model[..], &["abacus"]].concat()).status.code(), Some(2));
    assert!(stdout(&["--help"]).contains("mapped into memory"));
}

#[test]
fn size_tells_what_an_image_takes() {
    let size = ["size", "digits/digits.pte", "--lower"];
    let object = json(&stdout(&[&size[..], &["--json"]].concat()));
    assert_eq!(object["target"], "thumbv7em-none-eabihf");
    // To the byte what the firmware has (`cargo xtask board`).
    let log = include_str!("../../boards/qemu-cortex-m4/expected.txt");
    let method = &object["methods"][0];
    let kernels = object["kernels"].as_array().unwrap().len();
    for line in [
        format!("program: {} bytes, {kernels} kernels", object["program"]),
        format!("arena: {} bytes", method["arena"]),
        format!("planned: {} bytes", method["planned"]),
        format!("scratch: {} bytes", method["scratch"]),
    ] {
        assert!(log.lines().any(|found| found == line), "{line} is not in\n{log}");
    }
    assert_eq!(object["types"], serde_json::json!(["int64", "float32"]));
    assert_eq!(method["outputs"], serde_json::json!(["float32[1, 10]"]));
    let text = stdout(&size);
    assert!(text.contains("aten::convolution.out") && text.contains("scratch"), "{text}");
    // As exported, it has other kernels.
    assert!(stdout(&["size", "digits/digits.pte"]).contains("batch_norm"));
    // A program with an operator that nobody has.
    let folder = Folder::new("size");
    let fixture =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/ops/linear/bilinear.bpte");
    let mut bytes = std::fs::read(fixture).unwrap();
    let (known, unknown) = (b"aten::_trilinear", b"aten::_unknowntw");
    let places = bytes.windows(known.len()).enumerate().filter(|(_, bytes)| bytes == known);
    let places: Vec<usize> = places.map(|(place, _)| place).collect();
    for place in places {
        bytes[place..place + known.len()].copy_from_slice(unknown);
    }
    let file = folder.path("unknown.bpte");
    std::fs::write(&file, bytes).unwrap();
    let missing = error(&["size", &file]);
    assert!(missing.contains("no kernel for aten::_unknowntw.out"), "{missing}");
    let server = error(&["size", "digits/digits.pte", "--target", "x86_64-unknown-linux-gnu"]);
    assert!(server.contains("depends on the processor"), "{server}");
}

#[test]
fn lower_writes_programs() {
    let folder = Folder::new("lower");
    let vision = "vulkan/model/vision.bpte";
    let mut targets = vec!["cpu", "mcu"];
    if cfg!(feature = "vulkan") {
        targets.push("vulkan");
    }
    for target in targets {
        let file = folder.path(&format!("{target}.bpte"));
        let text = stdout(&["lower", vision, "--for", target, "-o", &file]);
        assert!(text.contains("forward  11 calls, 5 delegates -> "), "{text}");
        let verify = ["verify", &file, "--rtol", "1e-3", "--atol", "1e-3"];
        // What has delegates still finds a GPU here, or is a program for the CPU again.
        let backend = if target == "vulkan" { "auto" } else { "as-exported" };
        let text = stdout(&[&verify[..], &["--backend", backend]].concat());
        assert!(text.contains("pass"), "{target}: {text}");
        // Nothing but the file, which is whole when it has its name.
        assert!(
            !std::fs::read_dir(&folder.0)
                .unwrap()
                .any(|entry| { entry.unwrap().file_name().to_string_lossy().ends_with(".part") })
        );
    }
    let external = "programs/external_a.pte";
    let out = folder.path("external.pte");
    let without = error(&["lower", external, "--for", "mcu", "-o", &out]);
    assert!(without.contains("pass the files with --data"), "{without}");
    let data = "programs/external_a.shared.ptd";
    let lower = ["lower", external, "--data", data, "--for", "mcu", "-o", &out, "--json"];
    let object = json(&stdout(&lower));
    assert_eq!(object["external"], serde_json::json!([]));
    assert_eq!(object["methods"][0]["name"], "forward");
    assert!(object["bytes_after"].as_u64().unwrap() > 0);
    let run = |arguments: &[&str]| {
        let text = stdout(&[&["run", "--ones"], arguments].concat());
        text.split("\n\n").next().unwrap().to_owned()
    };
    assert_eq!(run(&[&out]), run(&[external, "--data", data]));
    assert!(
        error(&["lower", "formats/delegate_inline.pte", "--for", "mcu", "-o", &out])
            .contains("BackendWithCompilerDemo")
    );
    let nowhere = folder.path("no/such.pte");
    assert!(
        error(&["lower", external, "--data", data, "--for", "cpu", "-o", &nowhere])
            .contains("such.pte")
    );
}

#[test]
fn compiled_programs_are_kept_where_asked() {
    let folder = Folder::new("kept");
    let cache = folder.path("cache");
    let vision = "vulkan/model/vision.bpte";
    let plan = |cache: &str| {
        stdout(&["inspect", vision, "--plan", "--backend", "cpu", "--compile-cache", cache])
    };
    assert!(plan(&cache).contains("\ncompiled\n"));
    let again = plan(&cache);
    assert!(
        again.contains("\ncompiled before; from the cache\n") && again.contains("CPU"),
        "{again}"
    );
    assert!(plan("off").contains("\ncompiled\n"));
    assert_eq!(std::fs::read_dir(cache).unwrap().count(), 1);
}

#[test]
fn dumps_are_written_and_read() {
    let folder = Folder::new("dumps");
    let [dump, values] = ["run.etdp", "values.bin"].map(|name| folder.path(name));
    let run = ["run", "digits/digits.pte", "--random", "--iterations", "4"];
    stdout(&[&run[..], &["--etdump", &dump, "--debug-buffer", &values]].concat());
    let bytes = std::fs::read(&dump).unwrap();
    assert_eq!(&bytes[8..12], b"ED00");
    // The last of what is recorded are ten logits.
    assert!(std::fs::metadata(&values).unwrap().len() > 40);
    let object = json(&stdout(&["profile", "--from", &dump, "--json"]));
    assert_eq!(object["runs"], 4);
    let names: Vec<_> = object["operators"].as_array().unwrap().iter().collect();
    assert!(names.iter().any(|row| row["name"] == "convolution.out" && row["calls"] == 2));

    // What a run made is what the next one makes.
    let same = ["diff", "digits/digits.pte", "--random", "--right", "kernels"];
    let same = stdout(&[&same[..], &["--etdump", &dump, "--debug-buffer", &values]].concat());
    assert!(same.contains("all in tolerance") && same.contains("output 0"), "{same}");
    std::fs::write(&dump, &bytes[..50]).unwrap();
    assert!(error(&["profile", "--from", &dump]).contains("cut short"));
    assert!(error(&["profile", "--from", "digits/digits.pte"]).contains("no ETDump"));
    let run = ["run", "xnnpack/parts/each_call.bpte", "--random", "--etdump", &dump];
    let output = torchlet(&run);
    assert!(String::from_utf8_lossy(&output.stderr).contains("other numbers than in its ETRecord"));
    // What would be ignored is refused.
    for ignored in [["--iterations", "9"], ["--backend", "cpu"], ["--roofline", "none"]] {
        let output = torchlet(&[&["profile", "--from", &dump][..], &ignored].concat());
        assert_eq!(output.status.code(), Some(2), "{ignored:?}");
    }
    let both = ["inspect", "digits/digits.pte", "--html", &folder.path("both.html"), "--json"];
    assert_eq!(torchlet(&both).status.code(), Some(2));
}

#[test]
fn profiles_are_saved_drawn_and_compared() {
    let folder = Folder::new("profiles");
    let [trace, flame, saved] = ["t.json", "f.svg", "p.json"].map(|name| folder.path(name));
    let files = ["--trace", &trace, "--flame", &flame, "--save", &saved];
    let model = ["profile", "digits/digits.pte", "--backend", "as-exported", "--iterations", "3"];
    let text = stdout(&[&model[..], &files].concat());
    for part in ["aten::convolution.out", "between them", "p90", "roof  operator", "measured:"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let model = [&model[..], &["--roofline", "model"]].concat();
    assert!(stdout(&model).contains("by the compiler's model:"));
    let without = stdout(&["profile", "digits/digits.pte", "--roofline", "none"]);
    assert!(!without.contains("roofline"), "{without}");
    let trace = json(&std::fs::read_to_string(&trace).unwrap());
    let events = trace["traceEvents"].as_array().unwrap();
    let is_slice = |event: &&serde_json::Value| event["ph"] == "X" && event["dur"].is_f64();
    // A load, and warm-up and measured runs of nine calls each.
    assert!(events.iter().filter(is_slice).count() > 6 * 9);
    assert!(std::fs::read_to_string(&flame).unwrap().contains("aten::addmm.out"));
    let again = stdout(&[&model[..], &["--against", &saved]].concat());
    assert!(again.contains("against the earlier profile") && again.contains("one run"), "{again}");
    assert!(error(&["profile", "digits/digits.pte", "--against", &flame]).contains("no profile"));

    let object = json(&stdout(&[&model[..], &["--json"]].concat()));
    let addmm =
        object["calls"].as_array().unwrap().iter().find(|it| it["name"] == "aten::addmm.out");
    // Ten sums of 256 products.
    assert_eq!(addmm.unwrap()["operations"], 2.0 * 2560.0);
    assert!(addmm.unwrap()["roof_share"].as_f64().unwrap() > 0.0);
    let roof = &object["roofline"][0];
    assert_eq!(roof["processor"], "cpu");
    assert!(roof["operations"].as_f64() > Some(0.0) && roof["measured_in"].is_null(), "{roof}");
    // Its first case has fewer rows than there may be: nobody knows what calls take then.
    let fewer = stdout(&["profile", "programs/dynamic_rows.bpte", "--roofline", "model"]);
    assert!(fewer.contains("the roofline is left out"), "{fewer}");
    assert!(!fewer.contains("operations a byte"), "{fewer}");
}

#[test]
fn runs_are_compared_value_by_value() {
    let text = stdout(&["diff", "digits/digits.pte"]);
    assert!(text.contains("cpu against kernels") && text.contains("#2 aten::relu.out"), "{text}");
    let object = json(&stdout(&["diff", "digits/digits.pte", "--json"]));
    assert_eq!(object["close"], true);
    assert!(object["values"].as_array().unwrap().len() > 8);
    let none =
        torchlet(&["diff", "digits/digits.pte", "--rtol", "0", "--atol", "0", "--right", "cpu"]);
    assert!(matches!(none.status.code(), Some(0 | 1)));
}

#[test]
fn pages_need_nothing_else() {
    let folder = Folder::new("pages");
    let (page, saved) = (folder.path("digits.html"), folder.path("digits.json"));
    stdout(&["profile", "digits/digits.pte", "--backend", "as-exported", "--save", &saved]);
    stdout(&["inspect", "digits/digits.pte", "--html", &page, "--profile", &saved]);
    let page = std::fs::read_to_string(&page).unwrap();
    for loads in ["<link", "src=", "@import", "http://", "https://"] {
        let names = page.matches(loads).count();
        // A name of a format is no address.
        let svg = page.matches("'http://www.w3.org/2000/svg'").count();
        assert_eq!(names, if loads == "http://" { svg } else { 0 }, "{loads}");
    }
    let start = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let data = json(page[start..].split("</script>").next().unwrap());
    let graph = &data["methods"][0]["graphs"][0]["views"][0]["graph"];
    let nodes = graph["nodes"].as_array().unwrap();
    let relu = nodes.iter().find(|node| node["n"] == "aten::relu.out").unwrap();
    assert!(relu["t"].as_f64().unwrap() > 0.0 && relu["i"] == 2, "{relu}");
    assert_eq!(graph["edges"].as_array().unwrap().len(), nodes.len() - 1);
    let plan = &data["methods"][0]["memory"][0]["plan"]["buffers"][0];
    assert!(plan["peak"].as_u64().unwrap() <= plan["bytes"].as_u64().unwrap());
    assert!(
        data["constants"].as_array().unwrap().iter().any(|it| it["figures"]["bars"].is_array())
    );

    let svg = stdout(&["inspect", "digits/digits.pte", "--svg", "memory"]);
    assert!(svg.starts_with("<svg") && svg.contains("in use at most"), "{svg}");
}

#[test]
fn delegates_are_taken_out() {
    let folder = Folder::new("delegates");
    let out = folder.path("parts");
    let model = "vulkan/linear/linear_batch.bpte";
    assert!(stdout(&["extract", model, "--out", &out]).contains("Vulkan: a graph"));
    let graph = std::fs::read(format!("{out}/forward_0_VulkanBackend/graph.fb")).unwrap();
    assert_eq!(&graph[4..8], b"VK00");
    assert!(error(&["extract", "digits/digits.pte", "--out", &out]).contains("neither delegates"));
}

#[test]
fn programs_are_written_anew() {
    let folder = Folder::new("anew");
    let (whole, plain) = (folder.path("whole.pte"), folder.path("plain.pte"));
    let data = "digits/digits_external._default_external_constant.ptd";
    stdout(&["convert", "digits/digits_external.pte", "--data", data, "-o", &whole]);
    let outputs = |model: &[&str]| {
        let text =
            stdout(&[&["run"], model, &["--random", "3", "--backend", "as-exported"]].concat());
        text.split("\n\n").next().unwrap().to_string()
    };
    assert_eq!(outputs(&[&whole]), outputs(&["digits/digits_external.pte", "--data", data]));
    stdout(&["convert", "digits/digits.bpte", "--strip", "-o", &plain]);
    let object = json(&stdout(&["inspect", &plain, "--json"]));
    assert_eq!(
        (&object["bundled"], &object["methods"][0]["name"]),
        (&false.into(), &"forward".into())
    );
    assert_eq!(outputs(&[&plain]), outputs(&["digits/digits.bpte"]));
}

#[test]
fn weights_go_out_of_programs_and_back() {
    let folder = Folder::new("split");
    // Constants of kernels; of a delegate, by name and within its blob; test cases.
    for model in ["digits/digits.bpte", "xnnpack/linear/linear.bpte", "models/autoencoder.bpte"] {
        let (small, data, whole) =
            (folder.path("small.bpte"), folder.path("data.ptd"), folder.path("whole.bpte"));
        let expected = stdout(&["verify", model, "--json"]);
        stdout(&["convert", model, "--split", &data, "-o", &small]);
        let missing = error(&["run", &small]);
        assert!(missing.contains("--data") || missing.contains(".ptd"), "{model}: {missing}");
        let passed = |arguments: &[&str]| {
            json(&stdout(&[&["verify", "--json"], arguments].concat()))["cases"].clone()
        };
        assert_eq!(passed(&[&small, "--data", &data]), json(&expected)["cases"], "{model}");
        stdout(&["convert", &small, "--data", &data, "-o", &whole]);
        assert_eq!(passed(&[&whole]), json(&expected)["cases"], "{model}");
    }
    assert!(
        error(&["convert", ADD, "--split", &folder.path("x"), "-o", &folder.path("y")])
            .contains("no constants")
    );
}

#[test]
fn test_cases_are_added() {
    let folder = Folder::new("cases");
    let (one, two) = (folder.path("one.bpte"), folder.path("two.bpte"));
    let of_file = |file: &str| json(&stdout(&["verify", file, "--json"]))["cases"].clone();
    assert!(
        stdout(&["bundle", "digits/digits.pte", "--random", "5", "-o", &one])
            .contains("1 test case")
    );
    assert_eq!(of_file(&one), 1);
    assert!(stdout(&["bundle", &one, "--ones", "-o", &two]).contains("2 test cases"));
    assert_eq!(of_file(&two), 2);
    // Outputs that the program does not give are told apart.
    stdout(&["run", ADD, "--ones", "--out", &folder.path("")]);
    let (wrong, output) = (folder.path("wrong.bpte"), folder.path("output_0.npy"));
    stdout(&["bundle", ADD, "-i", &output, "-i", &output, "--expect", &output, "-o", &wrong]);
    assert_eq!(torchlet(&["verify", &wrong]).status.code(), Some(1));
    let both =
        error(&["bundle", ADD, "--ones", "--expect", &output, "--expect", &output, "-o", &wrong]);
    assert!(both.contains("has 1 outputs, --expect gives 2"), "{both}");
}

#[test]
fn licences_of_named_data_are_listed() {
    let text = stdout(&["inspect", "formats/delegate_named_data.pte", "--licences"]);
    assert!(text.contains("says nothing of a licence"), "{text}");
    assert!(stdout(&["inspect", ADD, "--licences"]).contains("no named data"));
}

#[test]
fn profiles_tell_of_memory() {
    let object = json(&stdout(&["profile", "digits/digits.pte", "--json", "--iterations", "1"]));
    assert!(object["memory"]["arena"].as_u64().unwrap() > 100, "{}", object["memory"]);
    let folder = Folder::new("memory");
    let trace = folder.path("trace.json");
    let text = stdout(&["profile", "digits/digits.pte", "--iterations", "1", "--trace", &trace]);
    assert!(text.contains("memory") && text.contains("planned memory"), "{text}");
    let trace = json(&std::fs::read_to_string(&trace).unwrap());
    let events = trace["traceEvents"].as_array().unwrap();
    assert!(events.iter().any(|event| event["ph"] == "C" && event["args"]["arena"].is_u64()));
}

#[test]
fn regions_of_the_cpu_are_seen_into() {
    let model = "models/autoencoder.bpte";
    let object =
        json(&stdout(&["profile", model, "--backend", "cpu", "--json", "--iterations", "2"]));
    let calls = object["calls"].as_array().unwrap();
    let linear = calls.iter().filter(|call| call["name"] == "aten.linear.default");
    assert!(linear.clone().count() > 2);
    for call in linear {
        assert!(call["part"].is_u64() && call["operations"].as_f64().unwrap() > 0.0, "{call}");
    }
    // The engine adds in another order than kernels do.
    let object = json(&stdout(&["diff", model, "--left", "kernels", "--right", "cpu", "--json"]));
    assert_eq!(object["close"], true);
    let values = object["values"].as_array().unwrap();
    assert!(values.iter().any(|value| value["max"].as_f64().unwrap() > 0.0));
}

#[test]
fn values_within_delegates_are_recorded_where_asked_for() {
    let folder = Folder::new("inside");
    let (dump, buffer) = (folder.path("run.etdp"), folder.path("values.bin"));
    let recorded = |more: &[&str]| {
        let model = "xnnpack/network/attention.bpte";
        let options = ["--backend", "cpu", "--etdump", &dump, "--debug-buffer", &buffer];
        stdout(&[&["run", model], &options[..], more].concat());
        let read = |path: &str| std::fs::read(path).unwrap();
        torchlet_devtools::etdump::read(&read(&dump), read(&buffer)).unwrap()
    };
    let values = |recording: &torchlet_devtools::Recording, name: &str| {
        let run = recording.runs.iter().find(|run| run.name == name);
        run.map_or(0, |run| run.values.len())
    };
    let (without, with) = (recorded(&[]), recorded(&["--inside"]));
    assert_eq!(values(&without, "Inside"), 0);
    let less = recorded(&["--events", "methods", "--values", "outputs"]);
    assert!(less.runs.iter().all(|run| run.events.len() == 1), "{less:?}");
    assert!(values(&less, "Execute") > 0 && values(&less, "Execute") < values(&with, "Inside"));
    // All is in one delegate, which shows its output alone.
    assert!(values(&with, "Inside") > 3 + values(&without, "Execute"), "{:?}", with.runs.len());
}

#[test]
fn plans_have_the_numbers_of_instructions() {
    let model = "models/bert.bpte";
    let object = json(&stdout(&["inspect", model, "--plan", "--backend", "cpu", "--json"]));
    let method = &object["methods"][0];
    let instructions = method["instructions"].as_u64().unwrap();
    let calls = object["plan"][0]["calls"].as_array().unwrap();
    let numbers: Vec<u64> = calls.iter().filter_map(|call| call["instruction"].as_u64()).collect();
    assert!(
        !numbers.is_empty() && numbers.iter().all(|number| *number < instructions),
        "{numbers:?}"
    );
    let views = calls.iter().filter(|call| call["instruction"].is_null());
    assert!(views.clone().count() > 0, "the exporter left views out");
    assert!(views.into_iter().all(|call| call["operator"].as_str().unwrap().contains("view")));
}

/// Calls of delegates that are taken apart are told apart by the exporter's numbers, whether they become instructions first or not.
#[test]
fn plans_have_the_numbers_of_calls_in_delegates() {
    for (model, backend) in [
        ("vulkan/model/residual.bpte", "cpu"),
        ("vulkan/model/residual.bpte", "vulkan"),
        ("xnnpack/network/inverted.bpte", "cpu"),
    ] {
        let object = json(&stdout(&["inspect", model, "--plan", "--backend", backend, "--json"]));
        let calls = object["plan"][0]["calls"].as_array().unwrap();
        let convolutions =
            calls.iter().filter(|call| call["operator"].as_str().unwrap().contains("conv"));
        let numbers: Vec<_> = convolutions
            .map(|call| (call["instruction"].as_u64(), call["part"].as_u64()))
            .collect();
        assert!(
            numbers.iter().all(|(instruction, part)| instruction.is_some() && part.is_some()),
            "{numbers:?}"
        );
        let mut apart = numbers.clone();
        apart.sort_unstable();
        apart.dedup();
        assert!(
            apart.len() > 1 && apart.len() == numbers.len(),
            "{model} on {backend}: {numbers:?}"
        );
    }
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
