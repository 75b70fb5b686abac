//! Programs in C have the results of the same programs in Rust, bit by bit, without a warning of
//! the compiler or a finding of its sanitizers. `TORCHLET_C_PROGRAMS` is a folder to which
//! programs, inputs and outputs are written, for tests on other processors
//! (`cargo xtask c-programs`).

#![cfg(unix)]

#[macro_use]
mod common;

use common::{cases, words};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use torchlet::firmware::Nested;

each_program!(program);

/// Processors for which the build script wrote C: with packed weights, and without.
const TARGETS: [&str; 2] = ["cortex-m4f", "cortex-m0"];

const OPTIONS: &str = "-std=c99 -pedantic -Wall -Wextra -Werror -O1 -fno-sanitize-recover=all \
    -fsanitize=address,undefined";

/// Runs a program in C on inputs, which follow each other.
fn run(source: &Path, name: &str, sizes: [usize; 2], inputs: &[u8]) -> Vec<u8> {
    let program = source.with_extension("program");
    let mut compile = Command::new("cc");
    compile.args(OPTIONS.split_whitespace());
    compile.arg("-I").arg(source.parent().unwrap()).arg("-o").arg(&program);
    compile.arg(format!("-DHEADER=\"{name}.h\"")).arg(format!("-DRUN={name}_forward"));
    compile.arg(format!("-DINPUTS={}", sizes[0])).arg(format!("-DOUTPUTS={}", sizes[1]));
    compile.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run.c")).arg(source);
    let compiled = compile.output().expect("a C compiler, as the linker of Rust needs");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let mut child = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let inputs = inputs.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&inputs));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    writer.join().unwrap().unwrap();
    output.stdout
}

/// Writes a program with its first case, for firmware.
fn export(folder: &Path, source: &Path, input: &[u8], output: &[u8]) {
    fs::create_dir_all(folder).unwrap();
    for ending in ["c", "h"] {
        let from = source.with_extension(ending);
        fs::copy(&from, folder.join(from.file_name().unwrap())).unwrap();
    }
    let mut text = String::new();
    for (name, bytes) in [("INPUT", input), ("EXPECTED", output)] {
        let words = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        let words: Vec<String> = words.map(|word| format!("{word:#x}u")).collect();
        text += &format!("static const uint32_t {name}[] = {{{}}};\n", words.join(", "));
    }
    let case = source.with_extension("case.h");
    fs::write(folder.join(case.file_name().unwrap()), text).unwrap();
}

macro_rules! check {
    ($($name:ident $exact:literal $file:expr),*) => {$(
        #[test]
        fn $name() {
            let name = stringify!($name);
            let mut model = $name::load().unwrap();
            let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
            let cases = cases(name, $exact, $file);
            for (input, interpreted) in &cases {
                let values = words(input);
                let [values] = $name::forward::Input0::nested(&values) else {
                    panic!("{} values", values.len())
                };
                let output = model.forward(values).unwrap();
                let output = <$name::forward::Output0>::flat(std::slice::from_ref(output));
                let output: Vec<u8> = output.iter().flat_map(|word| word.to_le_bytes()).collect();
                assert!(!$exact || output == *interpreted);
                inputs.push(input.clone());
                outputs.push(output);
            }
            let sizes = [inputs[0].len() / 4, outputs[0].len() / 4];
            for target in TARGETS {
                let source = Path::new(env!("OUT_DIR")).join(target).join(name);
                let source = source.with_extension("c");
                let found = run(&source, name, sizes, &inputs.concat());
                assert_eq!(found, outputs.concat(), "{target}");
                if let Some(folder) = std::env::var_os("TORCHLET_C_PROGRAMS") {
                    let folder = PathBuf::from(folder).join(target);
                    export(&folder, &source, &inputs[0], &outputs[0]);
                }
            }
        }
    )*};
}

mod same {
    use super::*;

    each_program!(check);
}
