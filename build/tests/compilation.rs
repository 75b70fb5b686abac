//! Which programs are compiled, what the others are told, and damaged files. The results of
//! compiled programs are compared in `tests/compiled`.

use std::fs;
use std::path::{Path, PathBuf};
use torchlet_build::{Error, Image, Program, Target, Written};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name)
}

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compilation").join(name);
    fs::create_dir_all(&path).unwrap();
    path
}

fn write(image: &Image, folder: &Path) -> Result<Written, Error> {
    image.write_for(&Target::parse("thumbv7em-none-eabihf").unwrap(), folder)
}

fn only(name: &str) -> Image {
    Image::new().program(Program::new(fixture(name)).name("it").compiled_only())
}

#[test]
fn int8_networks_are_compiled() {
    let folder = folder("int8");
    // The activations of the largest layer, its workspace, and alignment.
    for (name, memory, constants) in [
        ("digits", 1_968, 4_300),
        ("keyword_spotting", 16_384, 28_976),
        ("image_classification", 50_016, 82_000),
        ("visual_wake_words", 55_344, 252_000),
        ("anomaly_detection", 3_200, 272_000),
    ] {
        let written = write(&only(&format!("tinyml/{name}.pte")), &folder).unwrap();
        let sizes = written.programs[0].1.compiled.unwrap();
        assert!(sizes.memory <= memory, "{name}: {sizes:?}");
        assert!(sizes.constants <= constants, "{name}: {sizes:?}");
        let text = fs::read_to_string(folder.join("it.rs")).unwrap();
        assert!(!text.contains("PROGRAM") && !text.contains("kernel("), "{text}");
        // Nothing of the interpreter is requested for it.
        let shared = fs::read_to_string(folder.join("torchlet_image.rs")).unwrap();
        assert!(shared.contains("from_bits(0x0)"), "{shared}");
    }
}

#[test]
fn padding_and_reordering_are_merged() {
    let folder = folder("merged");
    write(&only("tinyml/digits.pte"), &folder).unwrap();
    let text = fs::read_to_string(folder.join("it.rs")).unwrap();
    // The flattened image is channels last.
    assert!(!text.contains("Permute"), "{text}");
    write(&only("tinyml/keyword_spotting.pte"), &folder).unwrap();
    let text = fs::read_to_string(folder.join("it.rs")).unwrap();
    assert!(!text.contains("calls::Pad"), "{text}");
    // The first layer, of one input channel and 40 taps, is computed as a plain convolution.
    assert!(text.contains("static CALL_1: calls::ConvolvePacked "), "{text}");
}

/// Without its algorithm, a convolution of volumes would be computed as one of images.
#[test]
fn images_contain_the_algorithms_of_convolutions() {
    let folder = folder("algorithms");
    let variants = |name: &str| {
        write(&only(name), &folder).unwrap();
        let shared = fs::read_to_string(folder.join("torchlet_image.rs")).unwrap();
        let (_, text) = shared.split_once("torchlet_variants").unwrap();
        text.split_once("from_bits(").unwrap().1.split_once(')').unwrap().0.to_owned()
    };
    let [volume, image] = ["conv3d_plain", "conv2d_plain"]
        .map(|name| variants(&format!("ops/convolution/{name}.bpte")));
    assert!(volume != "0x0" && image != "0x0" && volume != image, "{volume} {image}");
}

#[test]
fn other_programs_name_the_reasons() {
    let folder = folder("reasons");
    let reason = |image: &Image| write(image, &folder).unwrap_err().to_string();
    let state = reason(&only("tinyml/lstm_step.pte"));
    assert!(state.contains("cannot be compiled: method 'forward': "), "{state}");
    assert!(state.contains("state"), "{state}");
    let dynamic = reason(&only("digits/digits_dynamic_batch.bpte"));
    assert!(dynamic.contains("input 0") && dynamic.contains("has a dynamic shape"), "{dynamic}");
    let program = || Program::new(fixture("tinyml/digits.pte"));
    let shared = Image::new().program(program().compiled_only()).share_activations();
    assert!(reason(&shared).contains("shares activations"));
    let linear = torchlet_portable::kernel("cortex_m::quantized_linear.out");
    let own = program().kernel(linear, "crate::LINEAR").compiled_only();
    let own = reason(&Image::new().program(own));
    assert!(own.contains("cortex_m::quantized_linear.out is a custom kernel"), "{own}");
}

#[test]
fn fallback_is_interpreted() {
    let folder = folder("fallback");
    let lstm = Program::new(fixture("tinyml/lstm_step.pte")).name("it").compiled();
    let written = write(&Image::new().program(lstm), &folder).unwrap();
    let analysis = &written.programs[0].1;
    assert!(analysis.compiled.is_none() && !analysis.not_compiled.is_empty(), "{analysis:?}");
    assert!(fs::read_to_string(folder.join("it.rs")).unwrap().contains("PROGRAM"));
}

/// A file is untrusted: names become no code, and damage is an error or harmless.
#[test]
fn damaged_files_do_not_panic() {
    let folder = folder("damaged");
    let bytes = fs::read(fixture("tinyml/digits.pte")).unwrap();
    let path = folder.join("it.pte");
    let (mut written, mut state) = (0, 1u64);
    for _ in 0..1000 {
        let mut bytes = bytes.clone();
        for _ in 0..3 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (state >> 33) as usize % 3600;
            bytes[at] = (state >> 20) as u8;
        }
        fs::write(&path, &bytes).unwrap();
        let image = Image::new().program(Program::new(&path).name("it").compiled());
        written += usize::from(write(&image, &folder).is_ok());
    }
    assert!((1..1000).contains(&written), "{written}");
}

#[test]
fn method_names_are_no_code() {
    let folder = folder("names");
    let mut bytes = fs::read(fixture("tinyml/digits.pte")).unwrap();
    let name = b"forward";
    let at: Vec<usize> =
        (0..bytes.len() - name.len()).filter(|&at| bytes[at..].starts_with(name)).collect();
    assert!(!at.is_empty());
    for at in at {
        bytes[at..at + name.len()].copy_from_slice(b"}\nX!();");
    }
    let path = folder.join("it.pte");
    fs::write(&path, bytes).unwrap();
    let image = Image::new().program(Program::new(&path).name("it").compiled_only());
    write(&image, &folder).unwrap();
    let text = fs::read_to_string(folder.join("it.rs")).unwrap();
    assert!(text.contains("pub mod p___X____ {"), "{text}");
    assert!(!text.contains("X!();\n") && text.contains(r#"= "}\nX!();";"#), "{text}");
}
