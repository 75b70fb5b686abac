//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use torchlet::Limits;
use torchlet::portable::compute::simd::Tier;
use torchlet_build::Target;

/// Runs PyTorch programs that were exported with ExecuTorch (.pte), in pure Rust.
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
    /// Takes the data of delegates out of a program, with what it consists of, whatever backend it
    /// is for.
    #[command(after_help = "Examples:
  torchlet extract model.pte --out delegates")]
    Extract(ExtractArguments),
    /// Writes a program anew: with external weights within or all weights without, without debug
    /// information, without test cases if asked for.
    #[command(after_help = "Examples:
  torchlet convert model.pte --data weights.ptd -o model_whole.pte
  torchlet convert model.pte --split weights.ptd -o model_small.pte
  torchlet convert model.bpte --strip -o model.pte")]
    Convert(ConvertArguments),
    /// Adds a test case to a program: inputs, and the outputs that it should give.
    #[command(after_help = "Without --expect, the outputs are what the program gives here.

Examples:
  torchlet bundle model.pte --input x.npy --expect y.npy -o model.bpte
  torchlet bundle model.bpte --random 7 --backend as-exported -o model.bpte   (one more)")]
    Bundle(BundleArguments),
    /// Runs the test cases of bundled programs and compares with the outputs that they expect.
    #[command(after_help = "Exit status: 0 if all pass, 1 if some differ, 2 if some could not run.

Examples:
  torchlet verify model.bpte
  torchlet verify cases/*.bpte --rtol 1e-4 --atol 1e-5
  torchlet verify model.bpte --data weights.ptd --json")]
    Verify(VerifyArguments),
    /// Writes a program as it is compiled for a processor: for those that cannot compile it
    /// themselves, or to load it faster.
    #[command(after_help = "Examples:
  torchlet lower model.pte --for vulkan -o model_vulkan.pte
  torchlet lower model_vulkan.pte --for mcu -o model_mcu.pte
  torchlet lower model.pte --data weights.ptd --for cpu -o model_cpu.pte
  torchlet lower model.bpte --for cpu -o model_cpu.bpte   (its test cases go with it)")]
    Lower(LowerArguments),
    /// Tells what a program takes in a firmware image: memory, kernels, element types, without
    /// building one.
    #[command(after_help = "Examples:
  torchlet size model.pte
  torchlet size model.pte --lower --target riscv32imac-unknown-none-elf
  torchlet size model.pte --data weights.ptd --json")]
    Size(SizeArguments),
    /// Measures a program: time of an inference, time to load, peak memory.
    #[command(after_help = "Examples:
  torchlet bench model.pte
  torchlet bench model.pte --threads 1 --iterations 200 --json")]
    Bench(BenchArguments),
    /// Shows where the time of a program goes: by operator, by call, by module of its source, and
    /// how that compares with what the device can do.
    #[command(after_help = "Examples:
  torchlet profile model.pte
  torchlet profile model.pte --backend vulkan --trace trace.json      (for ui.perfetto.dev)
  torchlet profile model.pte --etrecord model.etrecord --flame flame.svg
  torchlet profile model.pte --save before.json; torchlet profile model.pte --against before.json
  torchlet profile --from run.etdp")]
    Profile(ProfileArguments),
    /// Runs a program in two ways, and says value by value how far they are apart, and which call
    /// is the first that differs.
    #[command(after_help = "Exit status: 0 if all values are in tolerance, 1 if some are not.

Examples:
  torchlet diff model.pte --left kernels --right vulkan --random
  torchlet diff model.pte --right cpu --against recorded.npz --input x.npy   (torchlet.devtools.record wrote it)
  torchlet diff model.pte --right kernels --etdump run.etdp --debug-buffer values.bin --input x.npy")]
    Diff(DiffArguments),
    /// Generates text with a language model, as it comes.
    #[cfg(feature = "llm")]
    #[command(after_help = "Examples:
  torchlet generate model.pte --tokenizer tokenizer.json --prompt 'Once upon a time' --temperature 0
  echo 'Once upon a time' | torchlet generate model.pte -n 64 --seed 1 --stats
  torchlet generate model.pte --prompt 'Who was king?' --json-schema person.json
  torchlet generate model.pte --prompt '<image> What is this?' --image picture.png
  torchlet generate first.pte --shard second.pte --prompt 'Once upon a time'")]
    Generate(crate::language::GenerateArguments),
    /// Talks with a language model.
    #[cfg(feature = "llm")]
    #[command(after_help = "Examples:
  torchlet chat model.pte
  torchlet chat model.pte --system 'Be brief.' --temperature 0.6 --top-p 0.9")]
    Chat(crate::language::ChatArguments),
    /// Writes down what is said in a sound, with a program that hears (Whisper and its like:
    /// encoder and text_decoder).
    #[cfg(feature = "llm")]
    #[command(after_help = "Examples:
  torchlet transcribe whisper.pte speech.wav
  torchlet transcribe whisper.pte speech.wav --language de --stats")]
    Transcribe(crate::language::TranscribeArguments),
    /// Measures a language model: how fast it takes prompts and generates text.
    #[cfg(feature = "llm")]
    #[command(after_help = "Examples:
  torchlet bench-llm model.pte
  torchlet bench-llm model.pte --prompt-tokens 32,512 --tokens 128 --json")]
    BenchLlm(crate::language::BenchLlmArguments),
    /// Serves a language model, as OpenAI's API, with a page to talk with it.
    #[cfg(feature = "serve")]
    #[command(after_help = "Examples:
  torchlet serve model.pte
  curl http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \\
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"stream\": true}'

GET / is a page, /health says ok, /metrics has numbers for Prometheus.")]
    Serve(crate::language::ServeArguments),
    /// Shows what programs can run on here.
    Devices {
        /// As JSON, with all that is known of each device.
        #[arg(long)]
        json: bool,
    },
    /// Writes completions for a shell to standard output.
    #[command(after_help = "Examples:
  torchlet completions bash > ~/.local/share/bash-completion/completions/torchlet
  torchlet completions zsh > ~/.zfunc/_torchlet")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// What programs run on, however they were lowered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Backend {
    /// The best that there is for the program
    #[default]
    Auto,
    /// The CPU alone
    #[value(alias = "portable")]
    Cpu,
    /// A GPU, through Vulkan, for all that it takes
    Vulkan,
    /// What the exporter chose
    AsExported,
}

impl Backend {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Backend::Auto => "auto",
            Backend::Cpu => "cpu",
            Backend::Vulkan => "vulkan",
            Backend::AsExported => "as exported",
        }
    }

    /// What that is to modules.
    pub(crate) fn run_on(self) -> torchlet::RunOn {
        match self {
            Backend::Auto => torchlet::RunOn::Auto,
            Backend::Cpu => torchlet::RunOn::Cpu,
            Backend::Vulkan => torchlet::RunOn::Vulkan,
            Backend::AsExported => torchlet::RunOn::AsExported,
        }
    }
}

/// How a program is opened.
#[derive(Debug, Clone, Args)]
pub(crate) struct ModelOptions {
    /// External weights that the program needs; may be given several times
    #[arg(long, value_name = "FILE.ptd")]
    pub(crate) data: Vec<PathBuf>,
    /// Threads that kernels use [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Use the CPU's instructions up to these alone, to compare, or to look for a fault:
    /// `torchlet devices` shows the best, which are the default
    #[arg(long, value_name = "TIER", value_parser = tier)]
    pub(crate) tier: Option<Tier>,
    /// What to run on
    #[arg(long, value_enum, default_value_t)]
    pub(crate) backend: Backend,
    /// The GPU: its index or a part of its name, as `torchlet devices` shows them; not with
    /// `--backend cpu` [default: the most capable]
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Where compiled GPU pipelines are remembered, or `off` [default: the user's cache folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) pipeline_cache: Option<PathBuf>,
    /// Measure for about so long which kernels the GPU runs fastest, when a program is loaded for
    /// the first time; what is found is kept with the pipelines [default: 0, not at all, or
    /// $TORCHLET_VULKAN_TUNE]
    #[arg(long, value_name = "SECONDS", value_parser = whole_seconds)]
    pub(crate) tune: Option<u64>,
    /// Where compiled programs are kept, or `off` [default: the user's cache folder, or
    /// $TORCHLET_COMPILE_CACHE]
    #[arg(long, value_name = "DIR")]
    pub(crate) compile_cache: Option<PathBuf>,
    /// The most memory that a method may take, in MiB: with copies of its outputs, and with its
    /// inputs, where files decide their size
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    pub(crate) memory_limit: u64,
    /// The most backward jumps of a run: a program with a loop that goes on for longer fails there.
    /// Less is for programs that are not trusted
    #[arg(long, value_name = "N", default_value_t = Limits::HOST.backward_jumps)]
    pub(crate) jump_limit: u64,
}

fn whole_seconds(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| "a whole number of seconds is wanted, such as 60".to_owned())
}

/// A tier of this processor, by its name.
fn tier(name: &str) -> Result<Tier, String> {
    Tier::available().find(|tier| tier.name() == name).ok_or_else(|| {
        let all: Vec<&str> = Tier::available().map(Tier::name).collect();
        format!("this processor has {}", all.join(", "))
    })
}

/// Where inputs come from.
#[derive(Debug, Args)]
pub(crate) struct InputOptions {
    /// An input: .npy, .npz (several inputs) or .bin (bare elements); may be given several times,
    /// in order
    #[arg(long, short, value_name = "FILE")]
    pub(crate) input: Vec<PathBuf>,
    /// An image for the first input that takes one, scaled and cropped to its size
    #[arg(long, value_name = "FILE")]
    pub(crate) image: Option<PathBuf>,
    /// Subtracted from the image's values, which go from 0 to 1: one number, or one per channel
    #[arg(long, value_name = "M", value_delimiter = ',', requires = "image")]
    #[arg(allow_negative_numbers = true)]
    pub(crate) mean: Vec<f32>,
    /// Divides the image's values after that: one number, or one per channel
    #[arg(long, value_name = "S", value_delimiter = ',', requires = "image")]
    pub(crate) std: Vec<f32>,
    /// Fill all other inputs at random, from this seed
    #[arg(long, value_name = "SEED", num_args = 0..=1, default_missing_value = "0")]
    pub(crate) random: Option<u64>,
    /// Fill all other inputs with ones
    #[arg(long, conflicts_with = "random")]
    pub(crate) ones: bool,
}

impl InputOptions {
    /// All inputs at random, from this seed.
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
    /// The program, .pte or .bpte
    pub(crate) model: PathBuf,
    /// The method [default: forward, or the only one]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) method: Option<String>,
    #[command(flatten)]
    pub(crate) inputs: InputOptions,
    #[command(flatten)]
    pub(crate) model_options: ModelOptions,
    /// Names of classes, one a line, for the largest values of the first output
    #[arg(long, value_name = "FILE")]
    pub(crate) labels: Option<PathBuf>,
    /// Show the K largest values of the first output [default: 5, with --labels or --image]
    #[arg(long, value_name = "K")]
    pub(crate) top: Option<usize>,
    /// Write each output to DIR, as output_0.npy and so on
    #[arg(long, short, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Run so many times; the outputs of the last run are shown
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) iterations: u32,
    /// Show where the time goes: by operator, or also each call of a delegate
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "operators")]
    pub(crate) profile: Option<Profile>,
    #[command(flatten)]
    pub(crate) recording: RecordingOptions,
}

/// What is recorded for ExecuTorch's tools.
#[derive(Debug, Args)]
pub(crate) struct RecordingOptions {
    /// Write all events as an ETDump, which ExecuTorch's Inspector reads. The program runs as it
    /// was exported then, unless --backend says otherwise or it has delegates for XNNPACK, so that
    /// instructions have the numbers that an ETRecord knows
    #[arg(long, value_name = "FILE.etdp", conflicts_with = "profile")]
    pub(crate) etdump: Option<PathBuf>,
    /// Write the values to this file that instructions made, and the outputs of the program
    #[arg(long, value_name = "FILE", requires = "etdump")]
    pub(crate) debug_buffer: Option<PathBuf>,
    /// Which events: of methods as a whole, or of everything in them
    #[arg(long, value_enum, default_value_t, requires = "etdump")]
    pub(crate) events: Events,
    /// Which values: what the program returns, or also what instructions make on the way
    #[arg(long, value_enum, default_value_t, requires = "debug_buffer")]
    pub(crate) values: Values,
    /// Write what calls within delegates and compiled regions make, too: the program is taken apart
    /// for that and runs once more, and the dump has a block of its own, `Inside`, whose
    /// instructions are those of the program taken apart
    #[arg(long, requires = "debug_buffer")]
    pub(crate) inside: bool,
    /// The most bytes of values, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, requires = "debug_buffer")]
    pub(crate) debug_buffer_limit: usize,
    /// What parts of delegates are called by: names to be read, or the exporter's numbers, which an
    /// ETRecord resolves
    #[arg(long, value_enum, default_value_t, requires = "etdump")]
    pub(crate) delegate_ids: DelegateIds,
}

/// Which events are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Events {
    /// Loads and runs as a whole
    Methods,
    /// Everything
    #[default]
    All,
}

/// Which values are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Values {
    /// What the program returns
    Outputs,
    /// What instructions make, too
    #[default]
    All,
}

/// What parts of delegates are called by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum DelegateIds {
    /// Names, with numbers behind
    #[default]
    Names,
    /// The exporter's numbers
    Numbers,
}

/// How much a profile tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    /// The time of each operator.
    Operators,
    /// The time of each call in a delegate as well.
    Calls,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArguments {
    /// The program, .pte or .bpte
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) model_options: ModelOptions,
    /// Tell memory on another machine: a target triple, such as thumbv7em-none-eabihf, or 32 or 64
    /// (bits of a pointer)
    #[arg(long, value_name = "TRIPLE", value_parser = Target::parse)]
    pub(crate) target: Option<Target>,
    /// Show where each call would run with --backend, and why, and what is fused
    #[arg(long)]
    pub(crate) plan: bool,
    /// List named data, of the program and of --data, and what it says of its licence
    #[arg(long, conflicts_with_all = ["target", "plan", "html", "svg"])]
    pub(crate) licences: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a page to look at in a browser, which needs nothing else: graphs as exported and as
    /// compiled with --backend, memory, weights, what the file consists of
    #[arg(long, value_name = "FILE.html", conflicts_with_all = ["target", "plan", "json", "svg"])]
    pub(crate) html: Option<PathBuf>,
    /// Show modules of the PyTorch source on the page, which the exporter's ETRecord tells
    #[arg(long, value_name = "FILE", requires = "html")]
    pub(crate) etrecord: Option<PathBuf>,
    /// Show times on the page, which `torchlet profile --save` wrote
    #[arg(long, value_name = "FILE.json", requires = "html")]
    pub(crate) profile: Option<PathBuf>,
    /// Print a picture
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with_all = ["target", "plan", "json"])]
    pub(crate) svg: Option<Picture>,
}

/// A picture of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Picture {
    /// The memory plan of its first method: which tensor lies where, and from when to when
    Memory,
}

#[derive(Debug, Args)]
pub(crate) struct ExtractArguments {
    /// The program, .pte or .bpte
    pub(crate) model: PathBuf,
    /// The folder to write to
    #[arg(long, short, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// External weights, which delegates may take their data from; may be given several times
    #[arg(long, value_name = "FILE.ptd")]
    pub(crate) data: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SizeArguments {
    /// The program, .pte or .bpte
    pub(crate) model: PathBuf,
    /// The machine: a target triple, such as thumbv7em-none-eabihf, or 32 (bits of a pointer)
    #[arg(long, value_name = "TRIPLE", value_parser = Target::parse)]
    #[arg(default_value = "thumbv7em-none-eabihf")]
    pub(crate) target: Target,
    /// Look at what the compiler makes of it for kernels alone, as lower --for mcu
    #[arg(long)]
    pub(crate) lower: bool,
    /// External weights that the program needs; may be given several times
    #[arg(long, value_name = "FILE.ptd")]
    pub(crate) data: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// Bundled programs
    #[arg(required = true, value_name = "FILE.bpte")]
    pub(crate) files: Vec<PathBuf>,
    /// Tolerance in relation to the expected value [default: 1e-5 for float32, 5e-3 for float16,
    /// 3e-2 for bfloat16, 1e-7 for float64, and 0 for integers]
    #[arg(long, value_name = "R")]
    pub(crate) rtol: Option<f64>,
    /// Absolute tolerance [default: that of --rtol, times the largest value of the expected output]
    #[arg(long, value_name = "A")]
    pub(crate) atol: Option<f64>,
    #[command(flatten)]
    pub(crate) model_options: ModelOptions,
    /// Print one JSON object a line for each file
    #[arg(long)]
    pub(crate) json: bool,
}

/// What programs are lowered for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LowerFor {
    /// The CPU of a host
    Cpu,
    /// GPUs, through Vulkan; the CPU runs what they do not take
    Vulkan,
    /// A microcontroller: kernels alone, and no data outside of the file
    Mcu,
}

#[derive(Debug, Args)]
pub(crate) struct LowerArguments {
    /// The program, .pte or .bpte
    pub(crate) model: PathBuf,
    /// What to lower it for
    #[arg(long = "for", value_enum, value_name = "PROCESSOR")]
    pub(crate) processor: LowerFor,
    /// The file to write
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// External weights that the program needs; may be given several times. They become part of
    /// what is written
    #[arg(long, value_name = "FILE.ptd")]
    pub(crate) data: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// The program, .pte or .bpte
    pub(crate) model: PathBuf,
    /// The method [default: forward, or the only one]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) method: Option<String>,
    #[command(flatten)]
    pub(crate) inputs: InputOptions,
    #[command(flatten)]
    pub(crate) model_options: ModelOptions,
    /// Inferences to measure: inputs are copied to where the method has them, outputs stay where
    /// they can be read
    #[arg(long, value_name = "N", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) iterations: u32,
    /// Inferences before that
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) warmup: u32,
    /// Count this input, an integer, up from 0, one each inference: as the position in a sequence
    #[arg(long, value_name = "INPUT")]
    pub(crate) count: Option<usize>,
    /// Measure the time on the device, too, in a run of its own that asks for it
    #[arg(long)]
    pub(crate) device_time: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ProfileArguments {
    /// The program, .pte or .bpte
    #[arg(required_unless_present = "from")]
    pub(crate) model: Option<PathBuf>,
    /// Show what an ETDump tells, of torchlet or of ExecuTorch's runtime, instead of running a
    /// program
    #[arg(long, value_name = "FILE.etdp", conflicts_with_all = ["model", "InputOptions", "ModelOptions", "iterations", "warmup"])]
    pub(crate) from: Option<PathBuf>,
    /// The method [default: forward, or the only one]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) method: Option<String>,
    #[command(flatten)]
    pub(crate) inputs: InputOptions,
    #[command(flatten)]
    pub(crate) model_options: ModelOptions,
    /// Inferences to measure
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) iterations: u32,
    /// Inferences before that
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) warmup: u32,
    /// Show each call, not only the longest
    #[arg(long)]
    pub(crate) calls: bool,
    /// Add up by module of the PyTorch source, which the exporter's ETRecord tells
    #[arg(long, value_name = "FILE")]
    pub(crate) etrecord: Option<PathBuf>,
    /// Write a time line for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE.json")]
    pub(crate) trace: Option<PathBuf>,
    /// Write a flame graph
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) flame: Option<PathBuf>,
    /// Write the profile, to be compared with later ones
    #[arg(long, value_name = "FILE.json")]
    pub(crate) save: Option<PathBuf>,
    /// Compare with a profile that was written earlier: what became slower comes first
    #[arg(long, value_name = "FILE.json")]
    pub(crate) against: Option<PathBuf>,
    /// What the processors can do that the program runs on, which its calls are held against:
    /// measured here, in half a second for each processor; the compiler's model of their kind; or
    /// nothing
    #[arg(long, value_enum, default_value_t, conflicts_with = "from")]
    pub(crate) roofline: Roofline,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where what processors can do is known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Roofline {
    /// Measured
    #[default]
    Measured,
    /// The compiler's model
    Model,
    /// Left out
    None,
}

/// A way to run a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// CPU kernels alone, one call after the other
    #[value(alias = "portable")]
    Kernels,
    /// The CPU, compiled
    Cpu,
    /// A GPU, through Vulkan, for all that it takes
    Vulkan,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArguments {
    /// The program, .pte or .bpte
    pub(crate) model: PathBuf,
    /// What is expected: how the program runs
    #[arg(long, value_enum, default_value = "kernels", conflicts_with_all = ["against", "etdump"])]
    pub(crate) left: Way,
    /// What is compared with it
    #[arg(long, value_enum, default_value = "cpu")]
    pub(crate) right: Way,
    /// Expect the values in this archive, which were recorded in PyTorch
    #[arg(long, value_name = "FILE.npz", conflicts_with = "etdump")]
    pub(crate) against: Option<PathBuf>,
    /// Expect the values of this ETDump
    #[arg(long, value_name = "FILE.etdp", requires = "debug_buffer")]
    pub(crate) etdump: Option<PathBuf>,
    /// The bytes of these values
    #[arg(long, value_name = "FILE", requires = "etdump")]
    pub(crate) debug_buffer: Option<PathBuf>,
    /// The method [default: forward, or the only one]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) method: Option<String>,
    #[command(flatten)]
    pub(crate) inputs: InputOptions,
    /// External weights that the program needs; may be given several times
    #[arg(long, value_name = "FILE.ptd")]
    pub(crate) data: Vec<PathBuf>,
    /// The GPU: its index or a part of its name
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Tolerance in relation to the expected value [default: 1e-3 for float32, 1e-2 for float16,
    /// 5e-2 for bfloat16, and 0 for integers; quantized values, and what is computed from some that
    /// are a step off, may be off by one quantization step]
    #[arg(long, value_name = "R")]
    pub(crate) rtol: Option<f64>,
    /// Tolerance in relation to the root of the mean square of the expected tensor, and at least in
    /// relation to 1 [default: 1e-4 for float32, 5e-3 for float16, 2e-2 for bfloat16, and 0 for
    /// integers]
    #[arg(long, value_name = "A")]
    pub(crate) atol: Option<f64>,
    /// The most memory that the method may take, all of whose values are kept, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 8192)]
    pub(crate) memory_limit: u64,
    /// The most backward jumps of a run: a program with a loop that goes on for longer fails there
    #[arg(long, value_name = "N", default_value_t = Limits::HOST.backward_jumps)]
    pub(crate) jump_limit: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConvertArguments {
    /// The program, .pte or .bpte
    pub(crate) model: PathBuf,
    /// The file to write
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// External weights, which become part of what is written; may be given several times
    #[arg(long, value_name = "FILE.ptd")]
    pub(crate) data: Vec<PathBuf>,
    /// Write constants and named data to this file, which the program takes them from then
    #[arg(long, value_name = "FILE.ptd")]
    pub(crate) split: Option<PathBuf>,
    /// Leave test cases out
    #[arg(long)]
    pub(crate) strip: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BundleArguments {
    /// The program, .pte, or .bpte to add to its test cases
    pub(crate) model: PathBuf,
    /// The file to write
    #[arg(long, short, value_name = "FILE.bpte")]
    pub(crate) out: PathBuf,
    /// The method [default: forward, or the only one]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) method: Option<String>,
    #[command(flatten)]
    pub(crate) inputs: InputOptions,
    /// Expected outputs: .npy, or .npz (several outputs); may be given several times, in order
    /// [default: what the program gives here]
    #[arg(long, value_name = "FILE")]
    pub(crate) expect: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) model_options: ModelOptions,
}
