//! Commands that show properties of programs.

use crate::{ADD, Folder, error, json, stdout, torchlet};

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
fn inspect_shows_the_memory_for_a_target() {
    let folder = Folder::new("board");
    let file = folder.path("digits.pte");
    stdout(&["lower", "digits/digits.pte", "--for", "mcu", "-o", &file]);
    let model = ["inspect", &file, "--target"];
    let object = json(&stdout(&[&model[..], &["thumbv7em-none-eabihf", "--json"]].concat()));
    assert_eq!(object["target"], "thumbv7em-none-eabihf");
    let told = &object["methods"][0]["on_target"];
    // Equal to the firmware's needs, which refuses one byte less (`cargo xtask board`).
    let log = include_str!("../../../boards/qemu-cortex-m4/expected.txt");
    for line in [
        format!("arena: {} bytes", told["arena"]),
        format!("planned: {} bytes", told["planned"]),
        format!("scratch: {} bytes", told["scratch"]),
    ] {
        assert!(log.lines().any(|found| found == line), "{line} is not in\n{log}");
    }
    assert!(stdout(&[&model[..], &["32"]].concat()).contains("scratch"));
    // For processors with vector instructions, the target's name does not determine all needs.
    let here = json(&stdout(&["inspect", &file, "--target", "64", "--json"]));
    let there = &here["methods"][0]["on_target"];
    assert!(there["tables"].as_u64() > told["arena"].as_u64() && there["scratch"].is_null());
    assert_eq!(torchlet(&[&model[..], &["abacus"]].concat()).status.code(), Some(2));
    assert!(stdout(&["--help"]).contains("mapped into memory"));
}

#[test]
fn size_reports_flash_and_ram() {
    let size = ["size", "digits/digits.pte", "--lower"];
    let object = json(&stdout(&[&size[..], &["--json"]].concat()));
    assert_eq!(object["target"], "thumbv7em-none-eabihf");
    // Equal to the firmware's needs (`cargo xtask board`).
    let log = include_str!("../../../boards/qemu-cortex-m4/expected.txt");
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
    // As exported, it uses other kernels.
    assert!(stdout(&["size", "digits/digits.pte"]).contains("batch_norm"));
    // A program with an operator that has no kernel.
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
fn pages_are_self_contained() {
    let folder = Folder::new("pages");
    let (page, saved) = (folder.path("digits.html"), folder.path("digits.json"));
    stdout(&["profile", "digits/digits.pte", "--backend", "as-exported", "--save", &saved]);
    stdout(&["inspect", "digits/digits.pte", "--html", &page, "--profile", &saved]);
    let page = std::fs::read_to_string(&page).unwrap();
    for loads in ["<link", "src=", "@import", "http://", "https://"] {
        let names = page.matches(loads).count();
        // An XML namespace is not fetched.
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

    // The compiled program has the same weights again, plain or packed.
    let exported = |it: &&serde_json::Value| it["side"] == "exported";
    let constants = data["constants"].as_array().unwrap();
    let bytes = constants.iter().filter(exported).map(|it| it["bytes"].as_u64().unwrap());
    let bytes: u64 = bytes.sum();
    assert!(bytes > 0 && bytes <= data["bytes"].as_u64().unwrap(), "{bytes}");

    let svg = stdout(&["inspect", "digits/digits.pte", "--svg", "memory"]);
    assert!(svg.starts_with("<svg") && svg.contains("in use at most"), "{svg}");
}

#[test]
fn licences_of_named_data_are_listed() {
    let text = stdout(&["inspect", "formats/delegate_named_data.pte", "--licences"]);
    assert!(text.contains("no licence found"), "{text}");
    assert!(stdout(&["inspect", ADD, "--licences"]).contains("no named data"));
}

#[test]
fn plans_show_instruction_indices() {
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

/// Calls on the preferred processor are summarized, without trailing blanks.
#[test]
fn plans_are_summarized() {
    for (model, backend) in [("models/bert.bpte", "cpu"), ("vulkan/model/residual.bpte", "cpu")] {
        let text = stdout(&["inspect", model, "--plan", "--backend", backend]);
        let (_, plan) = text.split_once("\ncompiled\n").unwrap();
        assert!(plan.lines().all(|line| line.trim_end() == line), "{plan}");
        assert!(plan.lines().count() < 25 && !plan.contains("65535"), "{plan}");
        let object = json(&stdout(&["inspect", model, "--plan", "--backend", backend, "--json"]));
        let calls = object["plan"][0]["calls"].as_array().unwrap();
        assert!(calls.len() > 15 && calls.iter().all(|call| call["part"] != 65535), "{model}");
    }
}

/// Plans list the calls that a delegate fuses.
#[test]
fn plans_show_fused_calls() {
    let model = "vulkan/model/residual.bpte";
    let layer = "aten.convolution.default + aten.add.Tensor";
    for backend in ["cpu", "vulkan"] {
        let object = json(&stdout(&["inspect", model, "--plan", "--backend", backend, "--json"]));
        let fused = object["plan"][0]["fused"].as_array().unwrap();
        let operators = |call: &serde_json::Value| call["operators"].as_str().unwrap().to_owned();
        assert!(fused.iter().any(|call| operators(call).contains(layer)), "{backend}: {fused:?}");
        assert!(stdout(&["inspect", model, "--plan", "--backend", backend]).contains(layer));
    }
}

/// Calls of decomposed delegates keep the exporter's indices, whether or not they are decomposed
/// before compilation.
#[test]
fn plans_show_indices_of_calls_in_delegates() {
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
