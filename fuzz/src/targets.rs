//! Fuzz targets. Results are ignored: the tests only require that parsing ends without a panic,
//! overflow, hang, or unlimited memory.

use super::mutate::{Random, mutate};
use torchlet::core::{
    ARENA_ALIGN, ArenaBlock, BundledProgram, DataMap, Limits, LoadOptions, Program, ProgramError,
    Registry, ValueMeta, ValueRef,
};
use torchlet::{Module, Tensor, Value};
use torchlet_devtools::{Profile, etdump, flame, trace};

/// A name, the function to test, and the extensions of suitable fixtures.
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    pub endings: &'static [&'static str],
}

pub const TARGETS: &[Target] = &[
    Target { name: "load", run: load, endings: &["pte", "bpte"] },
    Target { name: "load_and_run", run: load_and_run, endings: &["pte", "bpte"] },
    Target { name: "compile", run: compile, endings: &["pte", "bpte"] },
    Target { name: "control_flow", run: control_flow, endings: &[] },
    Target { name: "ptd", run: ptd, endings: &["ptd"] },
    Target { name: "bpte", run: bpte, endings: &["bpte"] },
    #[cfg(feature = "pt2")]
    Target { name: "pt2", run: load_and_run, endings: &["pt2"] },
    Target { name: "vgf", run: load_and_run, endings: &["vgf", "tosa"] },
    Target { name: "etdump", run: etdump, endings: &["etdp"] },
    #[cfg(feature = "safetensors")]
    Target { name: "training", run: training, endings: &["safetensors"] },
    #[cfg(feature = "llm")]
    Target { name: "sound", run: sound, endings: &["flac", "mp3", "wav"] },
    #[cfg(feature = "llm")]
    Target { name: "tokenizer", run: tokenizer, endings: &["model", "bin", "tiktoken"] },
    #[cfg(feature = "llm")]
    Target { name: "template", run: template, endings: &["jinja"] },
    #[cfg(feature = "grammar")]
    Target { name: "schema", run: schema, endings: &["schema"] },
];

/// Maximum number of items to inspect per collection.
const MANY: usize = 100;

/// Memory limit of a method: fixtures need less, other files are refused.
const MEMORY: u64 = 1 << 20;

/// Maximum backward jumps.
const JUMPS: u64 = 20;

/// Opens a program, out of its bundle if it is in one, and determines the memory requirements of
/// each method.
pub fn load(bytes: &[u8]) {
    let bundle = BundledProgram::is_bundled(bytes).then(|| BundledProgram::from_bytes(bytes));
    let program = bundle.and_then(|bundle| bundle.ok()?.program().ok());
    let aligned = Aligned::from(program.unwrap_or(bytes));
    let _ = load_aligned(aligned.bytes());
}

fn load_aligned(bytes: &[u8]) -> Result<(), ProgramError> {
    let program = Program::from_bytes(bytes)?;
    let Ok(registry) = Registry::new().with_kernels(&torchlet_portable::KERNELS) else {
        return Ok(());
    };
    let _ = program.data_names().map(|names| names.take(MANY).filter(Result::is_err).count());
    for name in program.method_names()?.take(MANY) {
        let Ok(meta) = program.method_meta(name?) else { continue };
        for index in 0..meta.value_count().min(MANY) {
            let _ = meta.value_meta(index);
        }
        for index in 0..meta.input_count().min(MANY) {
            let _ = meta.input(index);
        }
        for index in 0..meta.output_count().min(MANY) {
            let _ = meta.output(index);
        }
        for index in 0..meta.planned_buffer_count().min(MANY) {
            let _ = meta.planned_buffer_size(index);
        }
        let options = LoadOptions::default();
        if let Ok(bytes) = meta.table_bytes(&options.limits) {
            let mut tables = vec![ArenaBlock::UNINIT; bytes.div_ceil(ARENA_ALIGN)];
            let prepared = meta.prepare(ArenaBlock::bytes(&mut tables), &registry, options);
            let _ = prepared.map(|prepared| prepared.needs());
        }
    }
    Ok(())
}

/// Loads and runs each method in little memory, with inputs of zeros and of ones.
pub fn load_and_run(bytes: &[u8]) {
    let mut limits = Limits::default();
    limits.backward_jumps = JUMPS;
    let builder = Module::builder().threads(1).memory_limit(MEMORY).limits(limits);
    let Ok(mut module) = builder.from_bytes(bytes) else { return };
    let Ok(names) = module.method_names() else { return };
    for name in names.iter().take(4) {
        for fill in [Tensor::zeros, Tensor::ones] {
            let Ok(meta) = module.method_meta(name) else { continue };
            let input = |index| match meta.input(index) {
                Ok(Some(ValueMeta::Tensor(input))) if (input.info.nbytes() as u64) < MEMORY => {
                    let info = &input.info;
                    let shape: Vec<usize> = (0..info.rank()).map(|dim| info.size(dim)).collect();
                    fill(info.scalar_type, &shape).map_or(Value::None, Value::from)
                }
                Ok(Some(ValueMeta::Scalar(scalar))) => scalar.into(),
                _ => Value::None,
            };
            let inputs: Vec<Value> = (0..meta.input_count().min(16)).map(input).collect();
            if module.execute(name, inputs).is_ok() {
                let _ = module.reset(name);
            }
        }
    }
}

/// Compiles a program for kernels, and opens the result.
pub fn compile(bytes: &[u8]) {
    let bundle = BundledProgram::is_bundled(bytes).then(|| BundledProgram::from_bytes(bytes));
    let program = bundle.and_then(|bundle| bundle.ok()?.program().ok());
    let Ok(program) = Program::from_bytes(program.unwrap_or(bytes)) else { return };
    let Ok(registry) = Registry::new().with_kernels(&torchlet_portable::KERNELS) else { return };
    let kernels = torchlet::graph::Processors::NONE;
    let compiled = torchlet::graph::cpu::compile(&program, &[], kernels, &registry);
    let Ok(package) = compiled.and_then(|compiled| compiled.program.write()) else { return };
    load(&package.to_bytes());
}

/// Generates a random program with control flow and state, and compares its compiled variants with
/// its kernels. The bytes only select the program.
pub fn control_flow(bytes: &[u8]) {
    let seed = bytes
        .iter()
        .fold(bytes.len() as u32, |seed, byte| seed.wrapping_mul(0x0100_0193) ^ u32::from(*byte));
    super::flow::check(seed, &[torchlet::RunOn::Cpu]);
}

/// Opens external data and reads all of it.
pub fn ptd(bytes: &[u8]) {
    let aligned = Aligned::from(bytes);
    let _ = ptd_aligned(aligned.bytes());
}

fn ptd_aligned(bytes: &[u8]) -> Result<(), ProgramError> {
    let data = DataMap::from_bytes(bytes)?;
    for name in data.names()?.take(MANY) {
        let name = name?;
        let _ = data.layout(name);
        if let Ok(Some(blob)) = data.get(name) {
            let _ = blob.lend();
            let _ = blob.read(0, &mut [0; 8]);
            let _ = blob.read(blob.size(), &mut [0; 1]);
        }
    }
    Ok(())
}

/// Opens a bundled program and reads all test cases.
pub fn bpte(bytes: &[u8]) {
    let aligned = Aligned::from(bytes);
    let _ = bpte_aligned(aligned.bytes());
}

fn bpte_aligned(bytes: &[u8]) -> Result<(), ProgramError> {
    let bundle = BundledProgram::from_bytes(bytes)?;
    let _ = bundle.program().map(<[u8]>::len);
    for suite in bundle.suites()?.take(MANY) {
        let suite = suite?;
        let _ = suite.method_name();
        for case in suite.cases()?.take(MANY) {
            let case = case?;
            for value in case.inputs()?.take(MANY).chain(case.expected_outputs()?.take(MANY)) {
                if let Ok(ValueRef::Tensor(tensor)) = value {
                    let _ = tensor.bytes().iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
                }
            }
        }
    }
    Ok(())
}

/// Reads an ETDump with a debug buffer as long as the file, and applies the profiling tools to it.
pub fn etdump(bytes: &[u8]) {
    if let Ok(recording) = etdump::read(bytes, bytes.to_vec()) {
        let written = etdump::write(&recording, etdump::DelegateIds::Names);
        let again = etdump::read(&written, recording.buffer.clone());
        assert!(again.is_ok(), "the written file cannot be read: {again:?}");
        let _ = Profile::of(&recording, 0).by_operator();
        let _ = trace::object(&recording, "fuzzed");
        let _ = flame::svg(&recording, "fuzzed");
    }
}

/// Resumes training from a checkpoint. A refused file must change nothing, an accepted one must be
/// saved unchanged, and the next step must succeed.
#[cfg(feature = "safetensors")]
pub fn training(bytes: &[u8]) {
    use torchlet::training::{Adam, AdamOptions, Sgd, SgdOptions};
    let sgd = SgdOptions { momentum: 0.9, ..SgdOptions::default() };
    go_on(Sgd::new(sgd), bytes);
    go_on(Adam::new(AdamOptions { amsgrad: true, ..AdamOptions::default() }), bytes);
}

#[cfg(feature = "safetensors")]
fn go_on(mut optimizer: impl torchlet::training::Optimizer + Clone, bytes: &[u8]) {
    const MODEL: &[u8] = include_bytes!("../../tests/fixtures/training/layers.pte");
    const METHOD: &str = "forward";
    let builder = Module::builder().threads(1).run_on(torchlet::RunOn::AsExported);
    let module = builder.from_static(MODEL).expect("a program of the tests");
    let mut module = torchlet::training::TrainingModule::new(module);
    let before = module.save_training(METHOD, &optimizer).expect("parameters can be saved");
    let taken = module.load_training(METHOD, &mut optimizer, bytes);
    let after = module.save_training(METHOD, &optimizer).expect("parameters can be saved");
    if taken.is_err() {
        assert!(before == after, "a rejected file changed parameters");
        return;
    }
    let mut other = optimizer.clone();
    module.load_training(METHOD, &mut other, &after).expect("saved parameters can be loaded");
    let again = module.save_training(METHOD, &other).expect("parameters can be saved");
    assert!(after == again, "saved and loaded parameters differ");
    let images = Tensor::ones(torchlet::ScalarType::Float, &[4, 5]).expect("a small tensor");
    let labels = Tensor::zeros(torchlet::ScalarType::Long, &[4]).expect("a small tensor");
    if module.execute_forward_backward(METHOD, [&images, &labels]).is_ok() {
        module.step(METHOD, &mut other).expect("gradients exist");
    }
}

/// Decodes an audio file.
#[cfg(feature = "llm")]
pub fn sound(bytes: &[u8]) {
    let _ = torchlet::llm::AudioClip::from_bytes(bytes);
}

/// Opens a tokenizer, encodes texts and decodes the results.
#[cfg(feature = "llm")]
pub fn tokenizer(bytes: &[u8]) {
    let Ok(tokenizer) = torchlet::llm::Tokenizer::from_bytes(bytes) else { return };
    for text in
        ["", "a", "In the beginning", "\u{fb01}\u{bd} \u{1f600}e\u{301}\u{0}", "<s>[INST]  \n\n"]
    {
        for tokens in [tokenizer.encode(text), tokenizer.encode_plain(text)].into_iter().flatten() {
            let _ = tokenizer.decode(&tokens);
        }
    }
    let _ = tokenizer.decode(&[0, 1, 2, 3, 1000, u32::MAX]);
}

/// Parses a chat template and renders a conversation.
#[cfg(feature = "llm")]
pub fn template(bytes: &[u8]) {
    use torchlet::llm::{ChatTemplate, Message, Tool, ToolCall};
    const TOOL: &str = r#"{"type": "function", "function": {"name": "Add", "parameters": {"type": "object", "properties": {"a": {"type": "integer", "enum": [1, 2]}}}}}"#;
    let text = String::from_utf8_lossy(bytes);
    let Ok(template) = ChatTemplate::new(&text, Some("<s>"), Some("</s>")) else { return };
    let tool = Tool::from_json(TOOL).expect("a function");
    let call = ToolCall { id: "1".into(), name: "Add".into(), arguments: "{\"a\": 1}".into() };
    let messages = [
        Message::new("system", " Be brief. "),
        Message::new("user", "one\ntwo <|three|>"),
        Message { tool_calls: vec![call], ..Message::new("assistant", "") },
        Message { tool_call_id: Some("1".into()), ..Message::new("tool", "3") },
    ];
    let _ = template.render(&messages, true);
    let _ = template.render_with_tools(&messages, &[tool], false);
}

/// Parses a JSON schema and generates some tokens of matching text.
#[cfg(feature = "grammar")]
pub fn schema(bytes: &[u8]) {
    use std::cell::RefCell;
    use torchlet::llm::{GenerationConfig, Grammar, Overrides, Runner, Sampling, Tokenizer};
    const MODEL: &[u8] = include_bytes!("../../llm/model/8da4w.pte");
    const TOKENIZER: &[u8] = include_bytes!("../../llm/model/tokenizer.json");
    thread_local! {
        static RUNNER: RefCell<Runner> = RefCell::new({
            let module = Module::builder().threads(1).from_static(MODEL).expect("a program");
            let tokenizer = Tokenizer::from_bytes(TOKENIZER).expect("a tokenizer");
            Runner::new(module, tokenizer, &Overrides::default()).expect("a language model")
        });
    }
    let text = String::from_utf8_lossy(bytes);
    let Ok(grammar) = Grammar::json_schema(&text) else { return };
    let seed = bytes.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
    let sampling = Sampling { temperature: 1.5, seed: Some(seed), ..Sampling::default() };
    let config = GenerationConfig {
        grammar: Some(grammar),
        max_new_tokens: Some(12),
        sampling,
        ..GenerationConfig::default()
    };
    RUNNER.with_borrow_mut(|runner| {
        runner.reset().expect("caches can be reset");
        let _ = runner.generate("a", &config, |_| ());
    });
}

/// Runs a target on a file, and on accumulating mutations of it, which are reset after every
/// eighth.
pub fn campaign(run: fn(&[u8]), original: &[u8], seed: u32, rounds: usize) {
    run(original);
    let mut random = Random::new(seed);
    let mut bytes = original.to_vec();
    for round in 1..=rounds {
        if mutate(&mut bytes, &mut random) {
            run(&bytes);
        }
        if round % 8 == 0 {
            bytes.copy_from_slice(original);
        }
    }
}

/// A copy aligned to 16 bytes, so that constants can be borrowed.
struct Aligned {
    blocks: Vec<u128>,
    len: usize,
}

impl From<&[u8]> for Aligned {
    fn from(bytes: &[u8]) -> Self {
        let mut blocks = vec![0; bytes.len().div_ceil(16)];
        for (block, chunk) in blocks.iter_mut().zip(bytes.chunks(16)) {
            let mut whole = [0; 16];
            whole[..chunk.len()].copy_from_slice(chunk);
            *block = u128::from_ne_bytes(whole);
        }
        Aligned { blocks, len: bytes.len() }
    }
}

impl Aligned {
    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.blocks)[..self.len]
    }
}
