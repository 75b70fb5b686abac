//! Commands that write files: `lower`, `convert`, `extract`, `bundle`.

use crate::{ADD, Folder, error, fixture, json, stdout, torchlet};

#[test]
fn compile_writes_c() {
    let folder = Folder::new("compile");
    let (source, header) = (folder.path("digits.c"), folder.path("digits.h"));
    let text = stdout(&["compile", "tinyml/digits.pte", "-o", &source]);
    assert!(text.contains("function  digits_forward\n"), "{text}");
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    let signature = "void digits_forward(const float input[64], float output[10])";
    assert!(read(&source).contains(&format!("{signature}\n{{")));
    assert!(read(&header).contains(&format!("{signature};")));
    // A program of another format, for another processor, with another name.
    let archive = "pt2/convolutions.pt2";
    let compile = ["compile", archive, "--to", "c", "--target", "cortex-m0", "--name", "int t"];
    let output = torchlet(&[&compile[..], &["-o", &source, "--json"]].concat());
    if output.status.success() {
        let object = json(&String::from_utf8(output.stdout).unwrap());
        assert_eq!(object["functions"], serde_json::json!(["int_t_forward"]));
    } else {
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("cannot be compiled: method 'forward': instruction "), "{text}");
    }
    let lstm = error(&["compile", "tinyml/lstm_step.pte", "-o", &source]);
    assert!(lstm.contains("lstm_step.pte cannot be compiled: method 'forward': "), "{lstm}");
    assert!(error(&["compile", "tinyml/digits.pte", "-o", &header]).contains("must not end in .h"));
    let quoted = folder.path("a\"b.c");
    let quoted = error(&["compile", "tinyml/digits.pte", "-o", &quoted]);
    assert!(quoted.contains("of the header has other characters"), "{quoted}");
    let nowhere = ["compile", "tinyml/digits.pte", "--method", "backward", "-o", &source];
    assert!(error(&nowhere).contains("has no method 'backward'"));
}

/// Firmware tests compile such headers (`cargo xtask arduino`).
#[test]
fn convert_writes_headers() {
    let folder = Folder::new("header");
    let header = folder.path("my-digits 2.h");
    stdout(&["convert", "tinyml/digits.pte", "-o", &header]);
    let text = std::fs::read_to_string(&header).unwrap();
    let (_, rest) =
        text.split_once("static const unsigned char my_digits_2_program[] = {").unwrap();
    let (numbers, rest) = rest.split_once("};").unwrap();
    let numbers = numbers.split(',').map(str::trim).filter(|number| !number.is_empty());
    let bytes: Vec<u8> = numbers.map(|number| number.parse().unwrap()).collect();
    let written = folder.path("digits.pte");
    stdout(&["convert", "tinyml/digits.pte", "-o", &written]);
    assert_eq!(bytes, std::fs::read(&written).unwrap());
    let kernels: Vec<&str> = rest
        .split("&torchlet_kernel_")
        .skip(1)
        .map(|rest| rest.split(',').next().unwrap())
        .collect();
    assert_eq!(
        kernels,
        [
            "cortex_m_dequantize_per_tensor_out",
            "cortex_m_quantize_per_tensor_out",
            "cortex_m_quantized_conv2d_out",
            "cortex_m_quantized_depthwise_conv2d_out",
            "cortex_m_quantized_linear_out",
            "cortex_m_quantized_max_pool2d_out",
            "dim_order_ops__clone_dim_order_out",
        ]
    );
    // Firmware cannot run delegates.
    let refused = error(&["convert", "xnnpack/tiles/sizes.bpte", "-o", &header]);
    assert!(refused.contains("lower --for mcu"), "{refused}");
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
        // A delegate for Vulkan needs a GPU, or is recompiled for the CPU.
        let backend = if target == "vulkan" { "auto" } else { "as-exported" };
        let text = stdout(&[&verify[..], &["--backend", backend]].concat());
        assert!(text.contains("pass"), "{target}: {text}");
        // No temporary file is left.
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
fn compile_cache_folder_is_configurable() {
    let folder = Folder::new("kept");
    let cache = folder.path("cache");
    let vision = "vulkan/model/vision.bpte";
    let plan = |cache: &str| {
        stdout(&["inspect", vision, "--plan", "--backend", "cpu", "--compile-cache", cache])
    };
    assert!(plan(&cache).contains("\ncompiled\n"));
    let again = plan(&cache);
    assert!(
        again.contains("\nloaded from the cache of compiled programs\n") && again.contains("CPU"),
        "{again}"
    );
    assert!(plan("off").contains("\ncompiled\n"));
    assert_eq!(std::fs::read_dir(cache).unwrap().count(), 1);
}

#[test]
fn delegates_are_extracted() {
    let folder = Folder::new("delegates");
    let out = folder.path("parts");
    let model = "vulkan/linear/linear_batch.bpte";
    assert!(stdout(&["extract", model, "--out", &out]).contains("Vulkan: graph"));
    let graph = std::fs::read(format!("{out}/forward_0_VulkanBackend/graph.fb")).unwrap();
    assert_eq!(&graph[4..8], b"VK00");
    assert!(error(&["extract", "digits/digits.pte", "--out", &out]).contains("neither delegates"));
}

#[test]
fn programs_are_rewritten() {
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
fn weights_are_split_off_and_embedded() {
    let folder = Folder::new("split");
    // Constants of kernels, of delegates by name and inline, and test cases.
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
    // Outputs that differ from the program's fail the verification.
    stdout(&["run", ADD, "--ones", "--out", &folder.path("")]);
    let (wrong, output) = (folder.path("wrong.bpte"), folder.path("output_0.npy"));
    stdout(&["bundle", ADD, "-i", &output, "-i", &output, "--expect", &output, "-o", &wrong]);
    assert_eq!(torchlet(&["verify", &wrong]).status.code(), Some(1));
    let both =
        error(&["bundle", ADD, "--ones", "--expect", &output, "--expect", &output, "-o", &wrong]);
    assert!(both.contains("has 1 outputs, but --expect has 2 files"), "{both}");
}

/// The `.vgf` inside a program runs like the program.
#[test]
fn vgf_files_run_alone() {
    let folder = Folder::new("vgf");
    let program = "vgf/network/convolutions_fp32.bpte";
    let bytes = std::fs::read(fixture(program)).unwrap();
    let start = bytes.windows(4).position(|four| four == b"VGF1").unwrap();
    let file = folder.path("model.vgf");
    std::fs::write(&file, &bytes[start..]).unwrap();
    // The time follows the outputs.
    let run = |program| stdout(&["run", program, "--ones"]).split("\n\n").next().map(String::from);
    assert_eq!(run(&file), run(program));
    let text = stdout(&["inspect", &file]);
    for part in ["method forward", "VgfBackend", "segment 0  graph", "R32_SFLOAT [1, 3, 16, 16]"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}
