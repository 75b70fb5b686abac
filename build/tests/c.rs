//! C output: hostile names, damaged files and reasons. Results are compared in `tests/compiled`.

#![cfg(unix)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use torchlet_build::{CSource, Error, Program, Target};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name)
}

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c").join(name);
    fs::create_dir_all(&path).unwrap();
    path
}

fn target() -> Target {
    Target::parse("cortex-m4f").unwrap()
}

/// Compiles a program with all warnings as errors, and runs it on zeros under sanitizers.
fn check(folder: &Path, code: &CSource, arguments: &str) {
    fs::write(folder.join("it.c"), &code.source).unwrap();
    fs::write(folder.join("it.h"), &code.header).unwrap();
    let main = format!(
        "#include \"it.h\"\nint main(void)\n{{\n    static float input[1024], output[1024];\n    \
         {}({arguments});\n    return 0;\n}}\n",
        code.functions[0]
    );
    fs::write(folder.join("main.c"), main).unwrap();
    let options = "-std=c99 -pedantic -Wall -Wextra -Werror -O1 -fno-sanitize-recover=all \
        -fsanitize=address,undefined";
    let mut compile = Command::new("cc");
    compile.args(options.split_whitespace()).args(["main.c", "it.c", "-o", "it"]);
    let compiled = compile.current_dir(folder).output().expect("a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = Command::new(folder.join("it")).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// Replaces the name of the method in a file.
fn renamed(bytes: &[u8], name: &[u8; 7]) -> Vec<u8> {
    let (mut bytes, forward) = (bytes.to_vec(), b"forward");
    let places = (0..bytes.len() - forward.len()).filter(|&at| bytes[at..].starts_with(forward));
    let places: Vec<usize> = places.collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at..at + forward.len()].copy_from_slice(name);
    }
    bytes
}

#[test]
fn method_names_are_no_code() {
    let folder = folder("names");
    let bytes = fs::read(fixture("tinyml/digits.pte")).unwrap();
    for (name, function) in [
        (b"*/X();\n", "it_p___X____"),
        (b"??/\n#if", "it_p______if"),
        (b"\"\\\n%s*/", "it_p_____s__"),
        (b"int8_t;", "it_int8_t_"),
        (b"MAXIMUM", "it_MAXIMUM_"),
        (b"return ", "it_return_"),
    ] {
        let path = folder.join("it.pte");
        fs::write(&path, renamed(&bytes, name)).unwrap();
        let code = Program::new(&path).name("it").to_c(&target(), "it.h").unwrap();
        assert_eq!(code.functions, [function]);
        for text in [&code.source, &code.header] {
            let name = std::str::from_utf8(name).unwrap();
            assert!(!name.contains(['*', '\\', '?', ';']) || !text.contains(name.trim_end()));
        }
        check(&folder, &code, "input, output");
    }
}

#[test]
fn prefixes_are_identifiers() {
    let folder = folder("prefixes");
    for (name, function) in [
        ("2nd-model", "p_2nd_model_forward"),
        ("while", "while__forward"),
        ("tl", "p_tl_forward"),
        ("x(){}\nint y", "x_____int_y_forward"),
    ] {
        let program = Program::new(fixture("tinyml/mlp.pte")).name(name);
        let code = program.to_c(&target(), "it.h").unwrap();
        assert_eq!(code.functions, [function]);
        check(&folder, &code, "input, output");
    }
    for header in ["", "a b.h", "\".h", "a\n.h", "../a.h"] {
        let code = Program::new(fixture("tinyml/mlp.pte")).to_c(&target(), header);
        assert!(matches!(code, Err(Error::Name { .. })), "{header:?}");
    }
}

#[test]
fn reasons_are_those_of_rust() {
    let reasons = |name: &str| match Program::new(fixture(name)).to_c(&target(), "it.h") {
        Err(Error::NotCompiled { reasons, .. }) => reasons.join("; "),
        other => panic!("{other:?}"),
    };
    assert!(reasons("tinyml/lstm_step.pte").contains("state"));
    assert!(reasons("digits/digits_dynamic_batch.bpte").contains("has a dynamic shape"));
    assert!(reasons("ops/arithmetic/add_f32.bpte").contains("aten::add.out: has no compiled form"));
}

#[test]
fn only_used_kernels_are_written() {
    let code = |name: &str| Program::new(fixture(name)).to_c(&target(), "it.h").unwrap();
    let digits = code("tinyml/digits.pte").source;
    assert!(digits.contains("tl_convolve_packed(") && !digits.contains("tl_softmax"));
    assert!(!digits.contains("tl_average_pool") && !digits.contains("math.h"));
    let mlp = code("tinyml/mlp.pte").source;
    assert!(!mlp.contains("int8_t tl_") && mlp.contains("tl_convolve_float("), "{mlp}");
    let two = code("programs/two_methods.pte");
    assert_eq!(two.functions.len(), 2, "{:?}", two.functions);
    assert_eq!(two.source.matches("} tl_memory;").count(), 1);
}

/// What is compiled of damaged files stays inside its arrays.
#[test]
fn damaged_files_are_refused_or_harmless() {
    let folder = folder("damaged");
    let bytes = fs::read(fixture("tinyml/digits.pte")).unwrap();
    let path = folder.join("it.pte");
    let original = Program::new(fixture("tinyml/digits.pte")).name("it");
    let mut known = vec![original.to_c(&target(), "it.h").unwrap().source];
    let mut state = 7u64;
    for _ in 0..1000 {
        let mut bytes = bytes.clone();
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (state >> 33) as usize % 3600;
        bytes[at] = (state >> 20) as u8;
        fs::write(&path, &bytes).unwrap();
        let code = Program::new(&path).name("it").to_c(&target(), "it.h");
        let Ok(code) = code else { continue };
        let has_shapes = code.header.contains("input[64], float output[10]");
        if known.contains(&code.source) || !has_shapes {
            continue;
        }
        known.push(code.source.clone());
        // Each costs a run of the C compiler.
        if known.len() <= 20 {
            check(&folder, &code, "input, output");
        }
    }
    assert!(known.len() > 4, "{}", known.len());
}
