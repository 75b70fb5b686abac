//! Vulkan benchmarks of torchlet and of other runtimes, with the same networks on the same device.
//!
//! Without `--models`, the models are exported first. To measure on a machine without Python or
//! network, export and build elsewhere, then copy `xtask`, `torchlet` and the folder of models:
//! `xtask bench vulkan --models FOLDER --torchlet FILE`.

use super::peer::{Peer, Start};
use super::{
    date, devices, exported, json, median, number, processor_count, processors, this_command,
    torchlet,
};
use crate::fixtures::python;
use crate::process::{command, root};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(clap::Args)]
pub(crate) struct VulkanOptions {
    /// Programs from tests/bench/vulkan_models.py [default: export them first]
    #[arg(long, value_name = "FOLDER")]
    models: Option<PathBuf>,
    /// A built torchlet [default: build one]
    #[arg(long, value_name = "FILE")]
    torchlet: Option<PathBuf>,
    /// Python with the packages of tests/bench/requirements-vulkan.txt [default: a virtual
    /// environment under target/; with --models, no Python and no peers]
    #[arg(long, env = "TORCHLET_PYTHON")]
    python: Option<PathBuf>,
    /// A model to measure, such as resnet18_fp16 (repeatable) [default: all]
    #[arg(long, value_name = "NAME")]
    model: Vec<String>,
    /// Number of rounds in which the runtimes take turns
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Inferences per runtime and round
    #[arg(long, default_value_t = 100)]
    iterations: u32,
    /// Also measure with kernels autotuned for this many seconds
    #[arg(long, value_name = "SECONDS")]
    tune: Option<u32>,
    /// Omit the peers
    #[arg(long)]
    alone: bool,
}

/// Rows of the table: title, name in the export script, precision.
const MODELS: &[(&str, &str, &str)] = &[
    ("MobileNetV2", "mobilenet_v2", "fp32"),
    ("MobileNetV2", "mobilenet_v2", "fp16"),
    ("ResNet-18", "resnet18", "fp32"),
    ("ResNet-18", "resnet18", "fp16"),
    ("ResNet-50", "resnet50", "fp32"),
    ("ResNet-50", "resnet50", "fp16"),
    ("MobileNetV3-small", "mobilenet_v3_small", "fp16"),
    ("SqueezeNet 1.1", "squeezenet1_1", "fp16"),
    ("EDSR-like, twice 64×64", "edsr", "fp32"),
    ("U-Net-like, 128×128", "unet", "fp32"),
    ("ViT-B/16", "vit_b_16", "fp32"),
    ("ViT-B/16", "vit_b_16", "fp16"),
    ("BERT-like encoder, 64 tokens", "bert", "fp32"),
    ("LSTM classifier, 24 steps", "lstm", "fp32"),
    ("two layers of GRU cells of 256, 50 steps", "gru", "fp16"),
    ("generator of a DCGAN", "generator", "fp32"),
    ("vocoder like HiFi-GAN, 50 frames", "vocoder", "fp32"),
    ("digits classifier", "digits", "fp32"),
];

/// Other runtimes: name in the script, and title.
const PEERS: &[(&str, &str)] = &[
    ("executorch", "ExecuTorch Vulkan"),
    ("ncnn", "ncnn Vulkan"),
    ("cuda", "PyTorch CUDA"),
    ("cuda-graph", "CUDA graph"),
];

/// Absolute and relative tolerance of outputs.
fn tolerance(precision: &str) -> &'static str {
    if precision == "fp16" { "2e-2" } else { "1e-3" }
}

struct Bench<'o> {
    options: &'o VulkanOptions,
    torchlet: PathBuf,
    models: PathBuf,
    python: Option<String>,
    /// Folder of torchlet's pipeline cache between runs.
    cache: PathBuf,
    /// Unavailable peers, with reasons.
    not_here: BTreeMap<&'static str, String>,
}

/// Measurements of a model in milliseconds.
#[derive(Default)]
struct Row {
    inference: Vec<f64>,
    /// With autotuned kernels.
    tuned: Vec<f64>,
    /// Inferences without the compiler: each delegate of the file on its own.
    as_exported: Vec<f64>,
    on_device: Vec<f64>,
    open_device: Vec<f64>,
    cold: Vec<f64>,
    warm: Vec<f64>,
    peers: BTreeMap<&'static str, Vec<f64>>,
}

pub(crate) fn run(options: &VulkanOptions) -> Result<()> {
    let chosen = choose(&options.model)?;
    let mut bench = Bench::new(options, &chosen)?;
    let (mut open_device, mut faults) = (Vec::new(), Vec::new());
    bench.print_header();
    for (label, model, precision) in chosen {
        let file = bench.models.join(format!("{model}_{precision}.bpte"));
        if !file.is_file() {
            faults.push(format!("{}: not there", file.display()));
            continue;
        }
        eprintln!("{label}, {precision}");
        if let Err(fault) = bench.verify(&file, precision) {
            faults.push(format!("{}: {fault:#}", file.display()));
        }
        match bench.measure(&file, model, precision) {
            Ok(row) => bench.print_row(label, precision, row, &mut open_device),
            Err(fault) => faults.push(format!("{}: {fault:#}", file.display())),
        }
    }
    bench.print_conditions(&mut open_device);
    if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("\n")) }
}

type Choice = (&'static str, &'static str, &'static str);

fn choose(names: &[String]) -> Result<Vec<Choice>> {
    let is = |choice: &Choice, name: &String| format!("{}_{}", choice.1, choice.2) == *name;
    for name in names {
        if !MODELS.iter().any(|choice| is(choice, name)) {
            bail!("unknown model {name}");
        }
    }
    let named = |choice: &&Choice| names.is_empty() || names.iter().any(|name| is(choice, name));
    Ok(MODELS.iter().filter(named).copied().collect())
}

impl<'o> Bench<'o> {
    /// Prepares models, Python and torchlet.
    fn new(options: &'o VulkanOptions, chosen: &[Choice]) -> Result<Self> {
        let requirements = root().join("tests/bench/requirements-vulkan.txt");
        let python = match (&options.python, &options.models) {
            (None, Some(_)) => None,
            (given, _) => Some(python(given.as_ref(), "bench-vulkan", &requirements)?),
        };
        let models = match (&options.models, &python) {
            (Some(models), _) => models.clone(),
            (None, python) => export(python.as_deref().context("no Python")?, chosen)?,
        };
        let torchlet = torchlet(options.torchlet.as_ref())?;
        let models = std::path::absolute(models)?;
        let cache = format!("torchlet-bench-{}", std::process::id());
        let cache = std::env::temp_dir().join(cache);
        let python = if options.alone { None } else { python };
        let not_here = BTreeMap::new();
        Ok(Bench { options, torchlet, models, python, cache, not_here })
    }

    /// A torchlet command. The driver's own caches are off; with them, only the first load would be
    /// cold.
    fn torchlet(&self, backend: &str, arguments: &[&str]) -> Command {
        let mut torchlet = command(&self.torchlet.to_string_lossy(), arguments);
        torchlet.args(["--backend", backend, "--json"]);
        torchlet.env("__GL_SHADER_DISK_CACHE", "0").env("MESA_SHADER_CACHE_DISABLE", "true");
        torchlet
    }

    /// Compares the outputs with PyTorch's.
    fn verify(&self, file: &Path, precision: &str) -> Result<()> {
        let tolerance = tolerance(precision);
        let mut verify =
            self.torchlet("vulkan", &["verify", "--rtol", tolerance, "--atol", tolerance]);
        // The output says more than the exit status.
        let written = verify.arg(file).stderr(Stdio::inherit()).output()?.stdout;
        let verdict: Value = serde_json::from_slice(&written).context("torchlet verify")?;
        if verdict["status"] != "pass" {
            bail!("wrong: {}", verdict["error"]);
        }
        Ok(())
    }

    fn measure(&mut self, file: &Path, model: &str, precision: &str) -> Result<Row> {
        let mut row = Row::default();
        let mut peers = self.start_peers(file, model, precision)?;
        for _ in 0..self.options.rounds {
            self.turn(file, &mut row)?;
            for (name, peer) in &mut peers {
                match peer.measure(self.options.iterations) {
                    Ok(times) => row.peers.entry(name).or_default().extend(times),
                    Err(fault) => eprintln!("{name}: {fault:#}"),
                }
            }
        }
        Ok(row)
    }

    /// A cold load without cached pipelines, then a warm load and the inferences.
    fn turn(&self, file: &Path, row: &mut Row) -> Result<()> {
        let _ = std::fs::remove_dir_all(&self.cache);
        row.cold.push(number(&self.bench("vulkan", file, 1, None)?, "load_ms")?);
        let result = self.bench("vulkan", file, self.options.iterations, None)?;
        row.warm.push(number(&result, "load_ms")?);
        row.inference.push(number(&result, "median_ms")?);
        row.open_device.push(number(&result, "open_device_ms")?);
        row.on_device.extend(result["on_device_ms"].as_f64());
        let as_exported = self.bench("as-exported", file, self.options.iterations, None)?;
        row.as_exported.push(number(&as_exported, "median_ms")?);
        if let Some(seconds) = self.options.tune {
            // Tuning results apply from the next load on, as for users.
            self.bench("vulkan", file, 1, Some(seconds))?;
            let tuned = self.bench("vulkan", file, self.options.iterations, None)?;
            row.tuned.push(number(&tuned, "median_ms")?);
        }
        Ok(())
    }

    fn bench(
        &self,
        backend: &str,
        file: &Path,
        iterations: u32,
        tune: Option<u32>,
    ) -> Result<Value> {
        let iterations = iterations.to_string();
        let arguments = ["bench", "--device-time", "--iterations", &iterations];
        let mut bench = self.torchlet(backend, &arguments);
        bench.arg("--pipeline-cache").arg(&self.cache).arg(file);
        if let Some(seconds) = tune {
            bench.args(["--tune", &seconds.to_string()]);
        }
        json(bench)
    }

    /// Starts the peers that can run the model.
    fn start_peers(
        &mut self,
        file: &Path,
        model: &str,
        precision: &str,
    ) -> Result<Vec<(&'static str, Peer)>> {
        let Some(python) = &self.python else { return Ok(Vec::new()) };
        let script = root().join("tests/bench/vulkan_peers.py");
        let threads = processor_count();
        let mut peers = Vec::new();
        for (name, _) in PEERS {
            let arguments = [name, model, precision, &*file.to_string_lossy()];
            match Peer::start(python, &script, &arguments, threads) {
                Ok(Start::Ready(mut peer)) => match peer.measure(5) {
                    Ok(_) => peers.push((*name, peer)),
                    Err(fault) => eprintln!("{name}: {fault:#}"),
                },
                Ok(Start::NotHere(why)) => {
                    self.not_here.insert(name, why);
                }
                Err(fault) => eprintln!("{name}: {fault:#}"),
            }
        }
        Ok(peers)
    }

    fn print_header(&self) {
        let peers: String = self.peers().map(|(_, label)| format!(" {label} |")).collect();
        println!(
            "| model | precision | torchlet | tuned | as exported | on the GPU | load, cold | load, warm |{peers}\n{}|",
            "|---".repeat(8 + self.peers().count())
        );
    }

    /// Rows are printed as they are measured, so that an interrupted run is not wasted.
    fn print_row(&self, label: &str, precision: &str, mut row: Row, open_device: &mut Vec<f64>) {
        open_device.append(&mut row.open_device);
        let Row { inference, tuned, as_exported, on_device, cold, warm, .. } = &mut row;
        let times = [inference, tuned, as_exported, on_device, cold, warm];
        let mut cells: Vec<String> = times.into_iter().map(|times| cell(times)).collect();
        for (name, _) in self.peers() {
            cells.push(cell(row.peers.get_mut(name).unwrap_or(&mut Vec::new())));
        }
        println!("| {label} | {precision} | {} |", cells.join(" | "));
    }

    /// The peers that have a column.
    fn peers(&self) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
        PEERS.iter().filter(|_| self.python.is_some())
    }

    fn print_conditions(&self, open_device: &mut [f64]) {
        println!(
            "\nMedians, batch 1, inputs and outputs on the host. Cold loads compile pipelines, warm \
             loads use the pipeline cache; the driver's own cache is off. Before the first load of \
             a process, opening the device lasts {}.",
            cell(open_device)
        );
        let why_not = match &self.python {
            Some(_) => self.not_here.clone(),
            None => PEERS.iter().map(|(name, _)| (*name, "no Python for it".to_owned())).collect(),
        };
        for (name, label) in PEERS {
            if let Some(why) = why_not.get(name) {
                println!("Not measured: {label}: {why}.");
            }
        }
        let devices = devices(&self.torchlet);
        println!("{devices}; {}; {}\n{}", processors(), date(), this_command());
    }
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.cache);
    }
}

/// Exports the models on first use.
fn export(python: &str, chosen: &[Choice]) -> Result<PathBuf> {
    let names = chosen.iter().map(|(_, model, precision)| format!("{model}_{precision}"));
    let script = root().join("tests/bench/vulkan_models.py");
    exported("bench/vulkan", names, "bpte", command(python, &[&script.to_string_lossy()]))
}

/// A median with three significant digits.
fn cell(times: &mut [f64]) -> String {
    match median(times) {
        time if time.is_nan() => "–".to_owned(),
        time if time < 10.0 => format!("{time:.2} ms"),
        time if time < 100.0 => format!("{time:.1} ms"),
        time => format!("{time:.0} ms"),
    }
}
