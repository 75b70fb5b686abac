//! Recordings of runs: times, values, differences.

use crate::{ADD, Folder, error, json, stdout, torchlet};

#[test]
fn profiles_show_operators() {
    let text = stdout(&["run", ADD, "--random", "--profile", "--iterations", "4"]);
    assert!(text.contains("aten::add.out") && text.contains("share"), "{text}");
}

#[test]
fn etdumps_are_written_and_read() {
    let folder = Folder::new("dumps");
    let [dump, values] = ["run.etdp", "values.bin"].map(|name| folder.path(name));
    let run = ["run", "digits/digits.pte", "--random", "--iterations", "4"];
    stdout(&[&run[..], &["--etdump", &dump, "--debug-buffer", &values]].concat());
    let bytes = std::fs::read(&dump).unwrap();
    assert_eq!(&bytes[8..12], b"ED00");
    // At least the ten logits.
    assert!(std::fs::metadata(&values).unwrap().len() > 40);
    let object = json(&stdout(&["profile", "--from", &dump, "--json"]));
    assert_eq!(object["runs"], 4);
    let names: Vec<_> = object["operators"].as_array().unwrap().iter().collect();
    assert!(names.iter().any(|row| row["name"] == "convolution.out" && row["calls"] == 2));

    // A run with the same inputs computes the same values.
    let same = ["diff", "digits/digits.pte", "--random", "--right", "kernels"];
    // `--device` applies to a side on a GPU only.
    stdout(&[&same[..], &["--device", "0"]].concat());
    let same = stdout(&[&same[..], &["--etdump", &dump, "--debug-buffer", &values]].concat());
    assert!(same.contains("all in tolerance") && same.contains("output 0"), "{same}");
    std::fs::write(&dump, &bytes[..50]).unwrap();
    assert!(error(&["profile", "--from", &dump]).contains("truncated"));
    assert!(error(&["profile", "--from", "digits/digits.pte"]).contains("not an ETDump"));
    let run = ["run", "xnnpack/parts/each_call.bpte", "--random", "--etdump", &dump];
    let output = torchlet(&run);
    assert!(String::from_utf8_lossy(&output.stderr).contains("differ from its ETRecord's"));
    // Options without effect are refused.
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
    for part in ["aten::convolution.out", "between calls", "p90", "roof  operator", "measured:"] {
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
    assert!(
        error(&["profile", "digits/digits.pte", "--against", &flame])
            .contains("not a profile written by torchlet")
    );

    let object = json(&stdout(&[&model[..], &["--json"]].concat()));
    let addmm =
        object["calls"].as_array().unwrap().iter().find(|it| it["name"] == "aten::addmm.out");
    // Ten dot products of length 256.
    assert_eq!(addmm.unwrap()["operations"], 2.0 * 2560.0);
    let share = addmm.unwrap()["roof_share"].as_f64().unwrap();
    assert!(0.0 < share && share <= 1.0, "{share}");
    let roof = &object["roofline"][0];
    assert_eq!(roof["processor"], "cpu");
    assert!(roof["operations"].as_f64() > Some(0.0) && roof["measured_in"].is_null(), "{roof}");
    // Its first test case has fewer rows than the upper bound, so the work is unknown.
    let fewer = stdout(&["profile", "programs/dynamic_rows.bpte", "--roofline", "model"]);
    assert!(fewer.contains("No roofline"), "{fewer}");
    assert!(!fewer.contains("operations per byte"), "{fewer}");
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
fn profiles_show_memory() {
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
fn profiles_show_parts_of_cpu_delegates() {
    let model = "models/autoencoder.bpte";
    let object =
        json(&stdout(&["profile", model, "--backend", "cpu", "--json", "--iterations", "2"]));
    let calls = object["calls"].as_array().unwrap();
    let is_linear =
        |call: &&serde_json::Value| call["name"].as_str().unwrap().contains("aten.linear.default");
    let linear = calls.iter().filter(is_linear);
    assert!(linear.clone().count() > 2);
    for call in linear {
        assert!(call["part"].is_u64() && call["operations"].as_f64().unwrap() > 0.0, "{call}");
    }
    // The engine sums in another order than kernels do.
    let object = json(&stdout(&["diff", model, "--left", "kernels", "--right", "cpu", "--json"]));
    assert_eq!(object["close"], true);
    let values = object["values"].as_array().unwrap();
    assert!(values.iter().any(|value| value["max"].as_f64().unwrap() > 0.0));
}

#[test]
fn values_inside_delegates_are_recorded_on_request() {
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
    // The whole graph is one delegate; without `--inside`, only its output is recorded.
    assert!(values(&with, "Inside") > 3 + values(&without, "Execute"), "{:?}", with.runs.len());
}
