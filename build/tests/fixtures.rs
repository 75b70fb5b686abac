//! Compares the code generated for fixture programs with the properties of the loaded programs.

use std::fs;
use std::path::{Path, PathBuf};
use torchlet_build::{Error, Image, Program, Target, Written};
use torchlet_core::{ArenaBlock, Kernel, LoadOptions, Registry};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name)
}

/// A folder for generated files, deleted when the test has passed.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }
}

fn cortex_m() -> Target {
    Target::parse("thumbv7em-none-eabihf").unwrap()
}

fn write(folder: &Folder, program: Program) -> Result<Written, Error> {
    Image::new().program(program).write_for(&cortex_m(), &folder.0)
}

/// The program that an image embeds.
fn program_bytes(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    match torchlet_core::BundledProgram::is_bundled(&bytes) {
        true => {
            let bundle = torchlet_core::BundledProgram::from_bytes(&bytes).unwrap();
            bundle.program().unwrap().to_vec()
        }
        false => bytes,
    }
}

fn loads(bytes: &[u8], method: &str, kernels: &[Kernel]) -> bool {
    let registry = Registry::new().with_kernels(kernels).unwrap();
    let meta = torchlet_core::Program::from_bytes(bytes).unwrap().method_meta(method).unwrap();
    let mut tables = vec![ArenaBlock::UNINIT; 1 << 14];
    meta.prepare(ArenaBlock::bytes(&mut tables), &registry, LoadOptions::default()).is_ok()
}

/// For programs of several operator families: the listed kernels are sufficient and necessary.
#[test]
fn kernel_tables_are_exact() {
    let folder = Folder::new("exact");
    let families = ["digits/digits.bpte", "digits/digits_int8.bpte", "digits/digits_half.bpte"];
    let ops = fs::read_dir(fixture("ops")).unwrap().flat_map(|family| {
        let files = fs::read_dir(family.unwrap().path()).unwrap();
        let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some_and(|ending| ending == "bpte"));
        files.sort();
        files.into_iter().step_by(16)
    });
    let mut count = 0;
    for path in families.map(fixture).into_iter().chain(ops) {
        let written = match write(&folder, Program::new(&path).name("it")) {
            // Some fixtures use operators without portable kernels.
            Err(Error::Missing { .. }) => continue,
            written => written.unwrap(),
        };
        count += 1;
        let analysis = &written.programs[0].1;
        let named = |name: &&Kernel| analysis.operators.contains(name.name);
        let kernels: Vec<Kernel> =
            torchlet_portable::KERNELS.iter().filter(named).copied().collect();
        assert_eq!(kernels.len(), analysis.operators.len());
        let bytes = program_bytes(&path);
        let method = &analysis.methods[0].name;
        assert!(loads(&bytes, method, &kernels), "{}", path.display());
        for without in 0..kernels.len() {
            let mut fewer = kernels.clone();
            let name = fewer.remove(without).name;
            assert!(!loads(&bytes, method, &fewer), "{} without {name}", path.display());
        }
        let text = folder.text("it.rs");
        let lines: Vec<&str> =
            text.lines().filter(|line| line.contains("portable::kernel(")).collect();
        assert_eq!(lines.len(), kernels.len());
        assert!(lines.is_sorted(), "{lines:?}");
    }
    assert!(count > 30, "{count} programs");
}

#[test]
fn generated_code_matches_the_file() {
    let folder = Folder::new("embedded");
    let path = fixture("digits/digits.bpte");
    let written = write(&folder, Program::new(&path)).unwrap();
    assert_eq!(written.sources, std::slice::from_ref(&path));
    assert_eq!(fs::read(folder.0.join("digits.pte")).unwrap(), program_bytes(&path));
    let text = folder.text("digits.rs");
    for line in [
        "pub type Input0 = [[[[f32; 8]; 8]; 1]; 1];",
        "pub type Output0 = [[f32; 10]; 1];",
        "pub const PLANNED: [usize; 1] = [14336];",
        "pub const LENT: [firmware::Lent; 0] = [];",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let exported = fs::metadata(folder.0.join("digits.pte")).unwrap().len();
    write(&folder, Program::new(&path).lowered()).unwrap();
    assert!(fs::metadata(folder.0.join("digits.pte")).unwrap().len() < exported);
    assert!(!folder.text("digits.rs").contains("batch_norm"));
}

#[test]
fn external_data_is_embedded() {
    let folder = Folder::new("outside");
    let model = || Program::new(fixture("digits/digits_external.pte")).name("digits");
    let data = fixture("digits/digits_external._default_external_constant.ptd");
    let error = write(&folder, model()).unwrap_err().to_string();
    assert!(error.contains("method 'forward'"), "{error}");
    let written = write(&folder, model().data(&data)).unwrap();
    assert_eq!(written.sources.len(), 2);
    let text = folder.text("digits.rs");
    assert!(text.contains("DataMap::from_bytes(FILES[0])?"), "{text}");
    // A lowered program contains the data.
    write(&folder, model().data(&data).lowered()).unwrap();
    assert!(!folder.text("digits.rs").contains("FILES"));
}

#[test]
fn unplanned_values_get_memory() {
    let folder = Folder::new("unplanned");
    write(&folder, Program::new(fixture("digits/digits_unplanned_io.bpte"))).unwrap();
    let text = folder.text("digits_unplanned_io.rs");
    let lent = "pub const LENT: [firmware::Lent; 2] = \
                [firmware::Lent::Input(0), firmware::Lent::Output(0)];";
    assert!(text.contains(lent), "{text}");
    assert!(
        text.contains("static LENT_MEMORY_1: TakeOnce<core::AlignedBytes<[u8; 40]>>"),
        "{text}"
    );
}

#[test]
fn dynamic_shapes_are_tensor_refs() {
    let folder = Folder::new("dynamic");
    write(&folder, Program::new(fixture("digits/digits_dynamic_batch.bpte"))).unwrap();
    let text = folder.text("digits_dynamic_batch.rs");
    let run = "pub fn run(&mut self, input_0: &core::TensorRef<'_>) \
               -> Result<core::TensorRef<'_>, Error>";
    assert!(text.contains(run), "{text}");
}

/// Arrays are in memory order, which is that of the shape unless channels are really innermost.
#[test]
fn arrays_are_in_memory_order() {
    let folder = Folder::new("order");
    write(&folder, Program::new(fixture("tinyml/digits.pte")).name("one_channel")).unwrap();
    let text = folder.text("one_channel.rs");
    assert!(text.contains("pub type Input0 = [[[[f32; 8]; 8]; 1]; 1];"), "{text}");
    let several = fixture("tinyml/image_classification.pte");
    write(&folder, Program::new(several)).unwrap();
    let text = folder.text("image_classification.rs");
    assert!(text.contains("pub type Input0 = [[[[f32; 3]; 32]; 32]; 1];"), "{text}");
}

#[test]
fn programs_share_activations() {
    let folder = Folder::new("shared");
    let digits = || Program::new(fixture("digits/digits.pte"));
    let half = Program::new(fixture("digits/digits_half.bpte")).name("half");
    let image = Image::new().program(digits()).program(half).share_activations();
    let written = image.write_for(&cortex_m(), &folder.0).unwrap();
    let methods = || written.programs.iter().flat_map(|(_, analysis)| &analysis.methods);
    let largest = methods().map(|method| method.planned[0]).max().unwrap();
    let scratch = methods().map(|method| method.scratch).max().unwrap();
    let text = folder.text("torchlet_image.rs");
    assert!(text.contains(&format!("pub const PLANNED: [usize; 1] = [{largest}];")), "{text}");
    assert!(text.contains(&format!("pub const SCRATCH: usize = {scratch};")), "{text}");
    let twice = Image::new().program(digits()).program(digits());
    let error = twice.write_for(&cortex_m(), &folder.0).unwrap_err().to_string();
    assert!(error.contains("'digits' is already used by another module"), "{error}");
}

/// Scratch tensors that the exporter reserves for operators are not state.
#[test]
fn int8_networks_share_activations() {
    let folder = Folder::new("shared_int8");
    let models = ["digits", "keyword_spotting", "image_classification", "visual_wake_words"];
    let image = models.iter().fold(Image::new(), |image, model| {
        image.program(Program::new(fixture(&format!("tinyml/{model}.pte"))).name(model))
    });
    let written = image.share_activations().write_for(&cortex_m(), &folder.0).unwrap();
    for (name, analysis) in &written.programs {
        assert!(analysis.methods.iter().all(|method| !method.keeps_state), "{name}");
    }
    let methods = written.programs.iter().flat_map(|(_, analysis)| &analysis.methods);
    let largest = methods.map(|method| method.planned[0]).max().unwrap();
    let text = folder.text("torchlet_image.rs");
    assert!(text.contains(&format!("pub const PLANNED: [usize; 1] = [{largest}];")), "{text}");
}

#[test]
fn state_in_activation_memory_is_not_shared() {
    let folder = Folder::new("state");
    let image = || {
        let lstm = Program::new(fixture("tinyml/lstm_step.pte"));
        Image::new().program(lstm).program(Program::new(fixture("digits/digits.pte")))
    };
    image().write_for(&cortex_m(), &folder.0).unwrap();
    let error = image().share_activations().write_for(&cortex_m(), &folder.0).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("method 'forward' of lstm_step reads activation memory before writing it"),
        "{error}"
    );
}

#[test]
fn a_method_named_twice_is_written_once() {
    let folder = Folder::new("twice");
    let program = Program::new(fixture("digits/digits.pte"));
    let program = program.method("forward").method("forward");
    let written = Image::new().program(program).write_for(&cortex_m(), &folder.0).unwrap();
    assert_eq!(written.programs[0].1.methods.len(), 1);
}

#[test]
fn missing_operators_and_backends_fail_by_name() {
    let folder = Folder::new("missing");
    let vulkan = fixture("vulkan/model/vision.bpte");
    let error = write(&folder, Program::new(&vulkan)).unwrap_err();
    assert!(error.to_string().contains("no backend VulkanBackend"), "{error}");
    // Cargo shows the error that `main` of a build script returns with `Debug`.
    assert_eq!(format!("{error:?}"), error.to_string());
    write(&folder, Program::new(&vulkan).lowered()).unwrap();

    let error = write(&folder, Program::new(fixture("digits/digits.pte")).method("backward"));
    let error = error.unwrap_err().to_string();
    assert!(error.ends_with("has no method 'backward'; available: forward"), "{error}");
    let error = write(&folder, Program::new(fixture("digits/nothing.pte"))).unwrap_err();
    assert!(error.to_string().contains("nothing.pte"), "{error}");
    let server = Target::parse("x86_64-unknown-linux-gnu").unwrap();
    let digits = Image::new().program(Program::new(fixture("digits/digits.pte")));
    let error = digits.write_for(&server, &folder.0).unwrap_err().to_string();
    assert!(error.contains("depends on the processor"), "{error}");
}

/// An operator without a kernel fails the build with its name, until a kernel is added.
#[test]
fn custom_kernels_override_builtin() {
    let folder = Folder::new("own");
    // The same program with another operator name of equal length, so that all offsets stay the
    // same.
    let mut bytes = program_bytes(&fixture("digits/digits.bpte"));
    let name = b"aten::relu";
    let places: Vec<usize> =
        (0..bytes.len() - name.len()).filter(|&at| bytes[at..].starts_with(name)).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at..at + name.len()].copy_from_slice(b"mine::ramp");
    }
    let path = folder.0.join("own.pte");
    fs::write(&path, bytes).unwrap();
    let error = write(&folder, Program::new(&path)).unwrap_err().to_string();
    assert!(error.contains("no kernel for mine::ramp.out"), "{error}");

    let ramp = torchlet_portable::elementwise::activation::RELU_OUT.renamed("mine::ramp.out");
    write(&folder, Program::new(&path).kernel(ramp, "crate::mine::RAMP_OUT")).unwrap();
    assert!(folder.text("own.rs").contains("    crate::mine::RAMP_OUT,"));
    let relu = torchlet_portable::elementwise::activation::RELU_OUT;
    let digits = Program::new(fixture("digits/digits.pte"));
    write(&folder, digits.kernel(relu, "mine::RELU_OUT")).unwrap();
    let text = folder.text("digits.rs");
    assert!(text.contains("    ::mine::RELU_OUT,") && !text.contains("kernel(\"aten::relu.out\")"));
}
