//! Command-line arguments.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use torchlet::portable::compute::simd::Tier;
use torchlet::{DEVICE_APIS, DEVICE_NAMES, Limits, RunOn};
use torchlet_build::Target;

/// Runs programs of ExecuTorch (.pte), torch.export (.pt2) and Arm (.vgf, .tosa), in pure Rust.
#[derive(Debug, Parser)]
#[command(name = "torchlet", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Examples:
  torchlet inspect model.pte
  torchlet run model.pte --image cat.jpg --labels labels.txt
  torchlet verify *.bpte
  torchlet bench model.pte --threads 4

Files of programs and weights are mapped into memory: do not change them while the command runs.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs a program and shows its outputs.
    #[command(after_help = "Examples:
  torchlet run digits.pte --image digit.png --labels labels.txt --top 3
  torchlet run model.pte --input tokens.npy --input mask.npy --out results
  torchlet run model.pte --random 1 --iterations 20 --profile
  torchlet run model.pte --random --etdump run.etdp --debug-buffer values.bin
  torchlet run model.bpte            (the inputs of its first test case)")]
    Run(RunArguments),
    /// Shows what a program consists of: methods, inputs and outputs, operators, delegates, memory.
    #[command(after_help = "Examples:
  torchlet inspect model.pte
  torchlet inspect model.pte --target thumbv7em-none-eabihf
  torchlet inspect model.pte --json | jq '.methods[].operators'
  torchlet inspect model.pte --html model.html --etrecord model.etrecord
  torchlet inspect model.pte --svg memory > memory.svg")]
    Inspect(InspectArguments),
    /// Writes the payload of every delegate, and its parts, to files; supports payloads of any
    /// backend.
    #[command(after_help = "Examples:
  torchlet extract model.pte --out delegates")]
    Extract(ExtractArguments),
    /// Rewrites a program: embeds or splits off its weights, and strips debug information and, with
    /// --strip, test cases.
    #[command(after_help = "Examples:
  torchlet convert model.pte --data weights.ptd -o model_whole.pte
  torchlet convert model.pte --split weights.ptd -o model_small.pte
  torchlet convert model.bpte --strip -o model.pte
  torchlet convert model.pte -o model.h   (for firmware in C, and for Arduino)")]
    Convert(ConvertArguments),
    /// Adds a test case to a program: inputs and their expected outputs.
    #[command(after_help = "Without --expect, the program's outputs here are the expected ones.

Examples:
  torchlet bundle model.pte --input x.npy --expect y.npy -o model.bpte
  torchlet bundle model.bpte --random 7 --backend as-exported -o model.bpte   (adds a case)")]
    Bundle(BundleArguments),
    /// Runs the test cases of bundled programs and compares the outputs with the expected ones.
    #[command(after_help = "Exit status: 0 if all pass, 1 if some differ, 2 if some failed to run.

Examples:
  torchlet verify model.bpte
  torchlet verify cases/*.bpte --rtol 1e-4 --atol 1e-5
  torchlet verify model.bpte --data weights.ptd --json")]
    Verify(VerifyArguments),
    /// Compiles a program for a processor ahead of time: for targets without a compiler, or to load
    /// faster.
    #[command(after_help = "Examples:
  torchlet lower model.pte --for cpu -o model_cpu.pte
  torchlet lower model_cpu.pte --for mcu -o model_mcu.pte
  torchlet lower model.pte --data weights.ptd --for cpu -o model_cpu.pte
  torchlet lower model.bpte --for cpu -o model_cpu.bpte   (keeps its test cases)")]
    Lower(LowerArguments),
    /// Reports the memory, kernels and element types that a program needs in a firmware image,
    /// without building one.
    #[command(after_help = "Examples:
  torchlet size model.pte
  torchlet size model.pte --lower --target riscv32imac-unknown-none-elf
  torchlet size model.pte --data weights.ptd --json")]
    Size(SizeArguments),
    /// Compiles a program to code for firmware: a source file with its kernels and weights, and a
    /// header with a function for each method.
    #[command(after_help = "Examples:
  torchlet compile model.pte --to c --target cortex-m4f -o model.c   (and model.h)
  torchlet compile model.pt2 --target cortex-m0 --name keywords -o src/model.c")]
    Compile(CompileArguments),
    /// Measures a program: inference time, load time, peak memory.
    #[command(after_help = "Examples:
  torchlet bench model.pte
  torchlet bench model.pte --threads 1 --iterations 200 --json")]
    Bench(BenchArguments),
    /// Profiles a program by operator, by call and by source module, and compares it with the
    /// device's limits (roofline).
    #[command(after_help = "Examples:
  torchlet profile model.pte
  torchlet profile model.pte --backend cpu --trace trace.json      (for ui.perfetto.dev)
  torchlet profile model.pte --etrecord model.etrecord --flame flame.svg
  torchlet profile model.pte --save before.json; torchlet profile model.pte --against before.json
  torchlet profile --from run.etdp")]
    Profile(ProfileArguments),
    /// Runs a program in two configurations, compares every intermediate value, and shows the first
    /// call that differs.
    #[command(after_help = "Exit status: 0 if all values are in tolerance, 1 if some are not.

Examples:
  torchlet diff model.pte --left kernels --right cpu --random
  torchlet diff model.pte --right cpu --against recorded.npz --input x.npy   (torchlet.devtools.record wrote it)
  torchlet diff model.pte --right kernels --etdump run.etdp --debug-buffer values.bin --input x.npy")]
    Diff(DiffArguments),
    /// Generates text with a language model and prints it as it is generated.
    #[cfg(feature = "llm")]
    #[command(after_help = "Examples:
  torchlet generate model.pte --tokenizer tokenizer.json --prompt 'Once upon a time' --temperature 0
  echo 'Once upon a time' | torchlet generate model.pte -n 64 --seed 1 --stats
  torchlet generate model.pte --prompt 'Who was king?' --json-schema person.json
  torchlet generate model.pte --prompt '<image> What is this?' --image picture.png
  torchlet generate first.pte --shard second.pte --prompt 'Once upon a time'")]
    Generate(crate::language::GenerateArguments),
    /// Chats with a language model.
    #[cfg(feature = "llm")]
    #[command(after_help = "Examples:
  torchlet chat model.pte
  torchlet chat model.pte --system 'Be brief.' --temperature 0.6 --top-p 0.9")]
    Chat(crate::language::ChatArguments),
    /// Transcribes speech with a model such as Whisper (methods encoder and text_decoder).
    #[cfg(feature = "llm")]
    #[command(after_help = "Examples:
  torchlet transcribe whisper.pte speech.wav
  torchlet transcribe whisper.pte speech.wav --language de --stats")]
    Transcribe(crate::language::TranscribeArguments),
    /// Measures a language model: prompt processing and token generation speed.
    #[cfg(feature = "llm")]
    #[command(after_help = "Examples:
  torchlet bench-llm model.pte
  torchlet bench-llm model.pte --prompt-tokens 32,512 --tokens 128 --json")]
    BenchLlm(crate::language::BenchLlmArguments),
    /// Serves language models over HTTP with OpenAI's API, and a chat page.
    #[cfg(feature = "serve")]
    #[command(after_help = "Examples:
  torchlet serve model.pte
  curl http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \\
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"stream\": true}'

GET / is a chat page, /health replies ok, /metrics has metrics for Prometheus.")]
    Serve(crate::language::ServeArguments),
    /// Compiles the JSON schema from standard input; `serve` starts this process.
    #[cfg(all(feature = "serve", feature = "grammar"))]
    #[command(name = crate::language::COMPILE_SCHEMA, hide = true)]
    CompileSchema,
    /// Lists the processors and GPUs that programs can run on.
    Devices {
        /// Print JSON with all properties of each device
        #[arg(long)]
        json: bool,
    },
    /// Prints a completion script for a shell.
    #[command(after_help = "Examples:
  torchlet completions bash > ~/.local/share/bash-completion/completions/torchlet
  torchlet completions zsh > ~/.zfunc/_torchlet")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Options for loading a program.
#[derive(Debug, Clone, Args)]
pub(crate) struct ModelOptions {
    /// External weights of the program (repeatable)
    #[arg(long, value_name = "FILE.ptd")]
    pub(crate) data: Vec<PathBuf>,
    /// Number of kernel threads [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Highest CPU instruction set tier to use, for comparisons and debugging; `torchlet devices`
    /// shows the available tiers [default: the highest]
    #[arg(long, value_name = "TIER", value_parser = tier)]
    pub(crate) tier: Option<Tier>,
    /// Where to run the program
    #[arg(long, value_parser = backends(), default_value_t)]
    pub(crate) backend: RunOn,
    /// Allow compute shaders of the file, which are code of its author, to run on the GPU; see
    /// SECURITY.md
    #[arg(long)]
    pub(crate) allow_foreign_shaders: bool,
    /// GPU index or a part of its name, as in `torchlet devices`; not with `--backend cpu`
    /// [default: the most capable GPU]
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Folder of the GPU pipeline cache, or `off` [default: the user's cache folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) pipeline_cache: Option<PathBuf>,
    /// Autotune GPU kernels for about this long when a program is first loaded; the results are
    /// stored in the pipeline cache [default: 0 (off), or the device's environment variable]
    #[arg(long, value_name = "SECONDS", value_parser = whole_seconds)]
    pub(crate) tune: Option<u64>,
    /// Folder of the compiled-program cache, or `off` [default: the user's cache folder, or
    /// $TORCHLET_COMPILE_CACHE]
    #[arg(long, value_name = "DIR")]
    pub(crate) compile_cache: Option<PathBuf>,
    /// Memory limit of a method in MiB, including copies of its outputs and inputs read from files
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    pub(crate) memory_limit: u64,
    /// Maximum backward jumps per run: a loop that exceeds it fails. Use less for untrusted
    /// programs
    #[arg(long, value_name = "N", default_value_t = Limits::HOST.backward_jumps)]
    pub(crate) jump_limit: u64,
}

/// Parser of a choice between fixed values, each with its help, and the device APIs of this build.
fn choice<T: Clone + Send + Sync + 'static>(
    fixed: Vec<(PossibleValue, T)>,
    device: fn(&'static str) -> T,
) -> impl TypedValueParser<Value = T> {
    let devices = DEVICE_APIS.iter().map(move |api| {
        let help = format!("{}; the CPU runs what it does not support", api.description());
        (PossibleValue::new(api.name()).help(help), device(api.name()))
    });
    let choices: Vec<(PossibleValue, T)> = fixed.into_iter().chain(devices).collect();
    let values = choices.iter().map(|(value, _)| value.clone());
    let missing =
        DEVICE_NAMES.iter().filter(|name| !DEVICE_APIS.iter().any(|api| api.name() == **name));
    let values = values.chain(missing.map(|name| PossibleValue::new(*name).hide(true)));
    PossibleValuesParser::new(values.collect::<Vec<_>>()).try_map(move |name| {
        let chosen = choices.iter().find(|(value, _)| value.matches(&name, false));
        chosen
            .map(|(_, choice)| choice.clone())
            .ok_or_else(|| format!("this torchlet was built without the feature `{name}`"))
    })
}

fn value(name: &'static str, help: &'static str) -> PossibleValue {
    PossibleValue::new(name).help(help)
}

fn backends() -> impl TypedValueParser<Value = RunOn> {
    let fixed = vec![
        (value("auto", "The best available processor for the program"), RunOn::Auto),
        (value("cpu", "The CPU only").alias("portable"), RunOn::Cpu),
        (value("as-exported", "The backends that the exporter chose"), RunOn::AsExported),
    ];
    choice(fixed, RunOn::Device)
}

fn whole_seconds(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| "expected a whole number of seconds, such as 60".to_owned())
}

/// Looks up an available tier by name.
fn tier(name: &str) -> Result<Tier, String> {
    Tier::available().find(|tier| tier.name() == name).ok_or_else(|| {
        let all: Vec<&str> = Tier::available().map(Tier::name).collect();
        format!("expected a tier of this processor: {}", all.join(", "))
    })
}

/// Sources of a method's inputs.
#[derive(Debug, Args)]
pub(crate) struct InputOptions {
    /// An input: .npy, .npz (several inputs) or .bin (raw elements); repeatable, in order
    #[arg(long, short, value_name = "FILE")]
    pub(crate) input: Vec<PathBuf>,
    /// An image for the first image input, scaled and cropped to its size
    #[arg(long, value_name = "FILE")]
    pub(crate) image: Option<PathBuf>,
    /// Subtract this mean from the image's values (0 to 1): one value, or one per channel
    #[arg(long, value_name = "M", value_delimiter = ',', requires = "image")]
    #[arg(allow_negative_numbers = true)]
    pub(crate) mean: Vec<f32>,
    /// Then divide by this standard deviation: one value, or one per channel
    #[arg(long, value_name = "S", value_delimiter = ',', requires = "image")]
    pub(crate) std: Vec<f32>,
    /// Fill all other inputs with random values from this seed
    #[arg(long, value_name = "SEED", num_args = 0..=1, default_missing_value = "0")]
    pub(crate) random: Option<u64>,
    /// Fill all other inputs with ones
    #[arg(long, conflicts_with = "random")]
    pub(crate) ones: bool,
}

impl InputOptions {
    /// All inputs random, from this seed.
    pub(crate) fn random(seed: u64) -> Self {
        InputOptions {
            input: Vec::new(),
            image: None,
            mean: Vec::new(),
            std: Vec::new(),
            random: Some(seed),
            ones: false,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The program (.pte, .bpte, .pt2, .vgf or .tosa)
    pub(crate) model: PathBuf,
    /// The method [default: forward, or the only one]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) method: Option<String>,
    #[command(flatten)]
    pub(crate) inputs: InputOptions,
    #[command(flatten)]
    pub(crate) model_options: ModelOptions,
    /// Class names, one per line, for the top values of the first output
    #[arg(long, value_name = "FILE")]
    pub(crate) labels: Option<PathBuf>,
    /// Show the K largest values of the first output [default: 5, with --labels or --image]
    #[arg(long, value_name = "K")]
    pub(crate) top: Option<usize>,
    /// Write each output to DIR as output_0.npy, output_1.npy, ...
    #[arg(long, short, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Number of runs; the outputs of the last one are shown
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) iterations: u32,
    /// Show the time per operator, or also per call within delegates
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "operators")]
    pub(crate) profile: Option<Profile>,
    #[command(flatten)]
    pub(crate) recording: RecordingOptions,
}

/// Options for recordings that ExecuTorch's tools read.
#[derive(Debug, Args)]
pub(crate) struct RecordingOptions {
    /// Write all events as an ETDump for ExecuTorch's Inspector. The program then runs as exported,
    /// so that instruction indices match its ETRecord, unless --backend is given or it has XNNPACK
    /// delegates
    #[arg(long, value_name = "FILE.etdp", conflicts_with = "profile")]
    pub(crate) etdump: Option<PathBuf>,
    /// Write intermediate values and outputs to this file
    #[arg(long, value_name = "FILE", requires = "etdump")]
    pub(crate) debug_buffer: Option<PathBuf>,
    /// Events to record: of methods as a whole, or all
    #[arg(long, value_enum, default_value_t, requires = "etdump")]
    pub(crate) events: Events,
    /// Values to record: the program's outputs only, or also intermediate values
    #[arg(long, value_enum, default_value_t, requires = "debug_buffer")]
    pub(crate) values: Values,
    /// Also write values from within delegates and compiled regions. The program is decomposed into
    /// single calls and runs once more; its values are in a separate block `Inside` of the ETDump,
    /// with the instruction indices of the decomposed program
    #[arg(long, requires = "debug_buffer")]
    pub(crate) inside: bool,
    /// Maximum size of the recorded values, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, requires = "debug_buffer")]
    pub(crate) debug_buffer_limit: usize,
    /// How delegate parts are identified: by readable names, or by the exporter's debug handles,
    /// which an ETRecord resolves
    #[arg(long, value_enum, default_value_t, requires = "etdump")]
    pub(crate) delegate_ids: DelegateIds,
}

/// Events to record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Events {
    /// Loads and runs of methods
    Methods,
    /// All events
    #[default]
    All,
}

/// Values to record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Values {
    /// The program's outputs
    Outputs,
    /// Intermediate values as well
    #[default]
    All,
}

/// How delegate parts are identified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum DelegateIds {
    /// Names followed by debug handles
    #[default]
    Names,
    /// The exporter's debug handles
    Numbers,
}

/// Level of detail of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    /// The time of each operator.
    Operators,
    /// The time of each call within a delegate as well.
    Calls,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArguments {
    /// The program (.pte, .bpte, .pt2, .vgf or .tosa)
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) model_options: ModelOptions,
    /// Show the memory plan for another machine: a target triple, such as thumbv7em-none-eabihf, or
    /// 32 or 64 (pointer width in bits)
    #[arg(long, value_name = "TRIPLE", value_parser = Target::parse)]
    pub(crate) target: Option<Target>,
    /// Show the processor of each call with --backend, the reason, and what is fused
    #[arg(long)]
    pub(crate) plan: bool,
    /// List named data, of the program and of --data, and the licence that it states
    #[arg(long, conflicts_with_all = ["target", "plan", "html", "svg"])]
    pub(crate) licences: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a self-contained HTML page: graphs as exported and as compiled with --backend, memory
    /// plan, weights, contents of the file
    #[arg(long, value_name = "FILE.html", conflicts_with_all = ["target", "plan", "json", "svg"])]
    pub(crate) html: Option<PathBuf>,
    /// Show PyTorch source modules on the page, from the exporter's ETRecord
    #[arg(long, value_name = "FILE", requires = "html")]
    pub(crate) etrecord: Option<PathBuf>,
    /// Show times on the page, from a profile written by `torchlet profile --save`
    #[arg(long, value_name = "FILE.json", requires = "html")]
    pub(crate) profile: Option<PathBuf>,
    /// Print a diagram as SVG
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with_all = ["target", "plan", "json"])]
    pub(crate) svg: Option<Diagram>,
}

/// A diagram of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Diagram {
    /// The memory plan of its first method: offset and lifetime of each tensor
    Memory,
}

#[derive(Debug, Args)]
pub(crate) struct ExtractArguments {
    /// The program (.pte, .bpte, .pt2, .vgf or .tosa)
    pub(crate) model: PathBuf,
    /// The output folder
    #[arg(long, short, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// External weights that delegates may refer to (repeatable)
    #[arg(long, value_name = "FILE.ptd")]
    pub(crate) data: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CompileArguments {
    /// The program (.pte, .bpte, .pt2, .vgf or .tosa)
    pub(crate) model: PathBuf,
    /// The language
    #[arg(long = "to", value_enum, value_name = "LANGUAGE", default_value_t)]
    pub(crate) language: Language,
    /// The processor: cortex-m0, cortex-m4f and so on, or a target triple; the code runs on others,
    /// too
    #[arg(long, value_name = "PROCESSOR", value_parser = Target::parse)]
    #[arg(default_value = "cortex-m4f")]
    pub(crate) target: Target,
    /// The source file to write; the header is written beside it
    #[arg(long, short, value_name = "FILE.c")]
    pub(crate) out: PathBuf,
    /// Prefix of the functions [default: the name of the source file]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// A method to compile (repeatable) [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) method: Vec<String>,
    /// External weights of the program (repeatable)
    #[arg(long, value_name = "FILE.ptd")]
    pub(crate) data: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Language of compiled programs. (Build scripts of firmware in Rust write Rust.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Language {
    /// C99
    #[default]
    C,
}

#[derive(Debug, Args)]
pub(crate) struct SizeArguments {
    /// The program (.pte, .bpte, .pt2, .vgf or .tosa)
    pub(crate) model: PathBuf,
    /// The machine: a target triple, such as thumbv7em-none-eabihf, or 32 (pointer width in bits)
    #[arg(long, value_name = "TRIPLE", value_parser = Target::parse)]
    #[arg(default_value = "thumbv7em-none-eabihf")]
    pub(crate) target: Target,
    /// Lower the program to kernels first, as `lower --for mcu` does
    #[arg(long)]
    pub(crate) lower: bool,
    /// External weights of the program (repeatable)
    #[arg(long, value_name = "FILE.ptd")]
    pub(crate) data: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// The bundled programs
    #[arg(required = true, value_name = "FILE.bpte")]
    pub(crate) files: Vec<PathBuf>,
    /// Relative tolerance [default: 1e-5 for float32, 5e-3 for float16, 3e-2 for bfloat16, 1e-7 for
    /// float64, and 0 for integers; the narrowest type that an output depends on decides]
    #[arg(long, value_name = "R")]
    pub(crate) rtol: Option<f64>,
    /// Absolute tolerance [default: a share of the largest expected value of the output: 1e-4 for
    /// float32, 2e-2 for float16, else the relative tolerance; one quantization step for up to a
    /// third of the elements of a quantized output]
    #[arg(long, value_name = "A")]
    pub(crate) atol: Option<f64>,
    #[command(flatten)]
    pub(crate) model_options: ModelOptions,
    /// Print one JSON object per file, each on a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Targets of `lower`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LowerFor {
    /// The CPU of a host.
    Cpu,
    /// A microcontroller: kernels only, and no data outside the file.
    Mcu,
    /// The device API with this name.
    Device(&'static str),
}

fn lowering_targets() -> impl TypedValueParser<Value = LowerFor> {
    let mcu = "A microcontroller: kernels only, and no data outside the file";
    let fixed = vec![
        (value("cpu", "The CPU of a host"), LowerFor::Cpu),
        (value("mcu", mcu), LowerFor::Mcu),
    ];
    choice(fixed, LowerFor::Device)
}

#[derive(Debug, Args)]
pub(crate) struct LowerArguments {
    /// The program (.pte, .bpte, .pt2, .vgf or .tosa)
    pub(crate) model: PathBuf,
    /// The processor to lower for
    #[arg(long = "for", value_parser = lowering_targets(), value_name = "PROCESSOR")]
    pub(crate) processor: LowerFor,
    /// The output file
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// External weights of the program (repeatable). They are embedded in the output
    #[arg(long, value_name = "FILE.ptd")]
    pub(crate) data: Vec<PathBuf>,
    /// Lower compute shaders of the file, which are code of its author, for the GPU. Running the
    /// output needs this option again; see SECURITY.md
    #[arg(long)]
    pub(crate) allow_foreign_shaders: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// The program (.pte, .bpte, .pt2, .vgf or .tosa)
    pub(crate) model: PathBuf,
    /// The method [default: forward, or the only one]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) method: Option<String>,
    #[command(flatten)]
    pub(crate) inputs: InputOptions,
    #[command(flatten)]
    pub(crate) model_options: ModelOptions,
    /// Number of inferences to measure. Each includes copying the inputs; outputs are read in place
    #[arg(long, value_name = "N", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) iterations: u32,
    /// Number of warm-up inferences
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) warmup: u32,
    /// Increment this integer input by one per inference, starting at 0, such as a position in a
    /// sequence
    #[arg(long, value_name = "INPUT")]
    pub(crate) count: Option<usize>,
    /// Also measure the time on the device, in a separate run
    #[arg(long)]
    pub(crate) device_time: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ProfileArguments {
    /// The program (.pte, .bpte, .pt2, .vgf or .tosa)
    #[arg(required_unless_present = "from")]
    pub(crate) model: Option<PathBuf>,
    /// Show an ETDump, of torchlet or of ExecuTorch's runtime, instead of running a program
    #[arg(long, value_name = "FILE.etdp", conflicts_with_all = ["model", "InputOptions", "ModelOptions", "iterations", "warmup"])]
    pub(crate) from: Option<PathBuf>,
    /// The method [default: forward, or the only one]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) method: Option<String>,
    #[command(flatten)]
    pub(crate) inputs: InputOptions,
    #[command(flatten)]
    pub(crate) model_options: ModelOptions,
    /// Number of inferences to measure
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) iterations: u32,
    /// Number of warm-up inferences
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) warmup: u32,
    /// Show all calls, not only the longest
    #[arg(long)]
    pub(crate) calls: bool,
    /// Sum times by PyTorch source module, from the exporter's ETRecord
    #[arg(long, value_name = "FILE")]
    pub(crate) etrecord: Option<PathBuf>,
    /// Write a trace for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE.json")]
    pub(crate) trace: Option<PathBuf>,
    /// Write a flame graph
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) flame: Option<PathBuf>,
    /// Write the profile, for later comparisons with --against
    #[arg(long, value_name = "FILE.json")]
    pub(crate) save: Option<PathBuf>,
    /// Compare with a profile written by --save; the largest slowdowns come first
    #[arg(long, value_name = "FILE.json")]
    pub(crate) against: Option<PathBuf>,
    /// Peak rates to compare calls with: measured here (half a second per processor), from the
    /// compiler's cost model, or none
    #[arg(long, value_enum, default_value_t, conflicts_with = "from")]
    pub(crate) roofline: Roofline,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Source of the processors' peak rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Roofline {
    /// Measured
    #[default]
    Measured,
    /// From the compiler's cost model
    Model,
    /// Not shown
    None,
}

/// A configuration to run a program in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExecutionPath {
    /// CPU kernels only, one call after the other.
    Kernels,
    /// Compiled for this processor.
    Compiled(RunOn),
}

impl ExecutionPath {
    /// Returns the name of the option.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ExecutionPath::Kernels => "kernels",
            ExecutionPath::Compiled(processor) => processor.name(),
        }
    }
}

fn execution_paths() -> impl TypedValueParser<Value = ExecutionPath> {
    let kernels = value("kernels", "CPU kernels only, one call after the other").alias("portable");
    let fixed = vec![
        (kernels, ExecutionPath::Kernels),
        (value("cpu", "Compiled for the CPU"), ExecutionPath::Compiled(RunOn::Cpu)),
    ];
    choice(fixed, |name| ExecutionPath::Compiled(RunOn::Device(name)))
}

#[derive(Debug, Args)]
pub(crate) struct DiffArguments {
    /// The program (.pte, .bpte, .pt2, .vgf or .tosa)
    pub(crate) model: PathBuf,
    /// The reference configuration
    #[arg(long, value_parser = execution_paths(), default_value = "kernels")]
    #[arg(conflicts_with_all = ["against", "etdump"])]
    pub(crate) left: ExecutionPath,
    /// The configuration to compare with the reference
    #[arg(long, value_parser = execution_paths(), default_value = "cpu")]
    pub(crate) right: ExecutionPath,
    /// Use the values in this archive as the reference; torchlet.devtools.record writes it from
    /// PyTorch
    #[arg(long, value_name = "FILE.npz", conflicts_with = "etdump")]
    pub(crate) against: Option<PathBuf>,
    /// Use the values of this ETDump as the reference
    #[arg(long, value_name = "FILE.etdp", requires = "debug_buffer")]
    pub(crate) etdump: Option<PathBuf>,
    /// The debug buffer of the ETDump, which holds its values
    #[arg(long, value_name = "FILE", requires = "etdump")]
    pub(crate) debug_buffer: Option<PathBuf>,
    /// The method [default: forward, or the only one]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) method: Option<String>,
    #[command(flatten)]
    pub(crate) inputs: InputOptions,
    /// External weights of the program (repeatable)
    #[arg(long, value_name = "FILE.ptd")]
    pub(crate) data: Vec<PathBuf>,
    /// GPU index or a part of its name
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Relative tolerance [default: 1e-3 for float32, 1e-2 for float16, 5e-2 for bfloat16, and 0
    /// for integers; quantized values, and values computed from quantized ones that are one step
    /// off, may differ by one quantization step]
    #[arg(long, value_name = "R")]
    pub(crate) rtol: Option<f64>,
    /// Absolute tolerance as a multiple of the RMS of the expected tensor, or of 1 if that is
    /// larger [default: 1e-4 for float32, 5e-3 for float16, 2e-2 for bfloat16, and 0 for integers]
    #[arg(long, value_name = "A")]
    pub(crate) atol: Option<f64>,
    /// Memory limit of the method in MiB; all of its intermediate values are kept
    #[arg(long, value_name = "MIB", default_value_t = 8192)]
    pub(crate) memory_limit: u64,
    /// Maximum backward jumps per run: a loop that exceeds it fails
    #[arg(long, value_name = "N", default_value_t = Limits::HOST.backward_jumps)]
    pub(crate) jump_limit: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConvertArguments {
    /// The program (.pte, .bpte, .pt2, .vgf or .tosa)
    pub(crate) model: PathBuf,
    /// The output file; for FILE.h, a C header with the program and a list of its kernels
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// External weights to embed in the output (repeatable)
    #[arg(long, value_name = "FILE.ptd")]
    pub(crate) data: Vec<PathBuf>,
    /// Write constants and named data to this file, as external data of the output
    #[arg(long, value_name = "FILE.ptd")]
    pub(crate) split: Option<PathBuf>,
    /// Omit test cases
    #[arg(long)]
    pub(crate) strip: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BundleArguments {
    /// The program (.pte), or a bundled program (.bpte) to add a test case to
    pub(crate) model: PathBuf,
    /// The output file
    #[arg(long, short, value_name = "FILE.bpte")]
    pub(crate) out: PathBuf,
    /// The method [default: forward, or the only one]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) method: Option<String>,
    #[command(flatten)]
    pub(crate) inputs: InputOptions,
    /// Expected outputs: .npy, or .npz (several outputs); repeatable, in order [default: the
    /// outputs of a run on this machine]
    #[arg(long, value_name = "FILE")]
    pub(crate) expect: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) model_options: ModelOptions,
}
