//! Benchmarks of operators on a GPU with typical shapes, compared with the device's peak rates,
//! measured in the same run, and with PyTorch on CUDA.
//!
//! As with models (`vulkan.rs`), exported programs can be copied to another machine:
//! `xtask bench kernels --kernels FOLDER --torchlet FILE`.

use super::{date, exported, json, number, processors, this_command, torchlet};
use crate::fixtures::python;
use crate::process::{self, command, root};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

#[derive(clap::Args)]
pub(crate) struct KernelOptions {
    /// Programs from tests/bench/vulkan_kernels.py [default: export them first]
    #[arg(long, value_name = "FOLDER")]
    kernels: Option<PathBuf>,
    /// A built torchlet [default: build one]
    #[arg(long, value_name = "FILE")]
    torchlet: Option<PathBuf>,
    /// Python with PyTorch, and for exporting, the packages of tests/bench/requirements-vulkan.txt
    /// [default: a virtual environment under target/]
    #[arg(long, env = "TORCHLET_PYTHON")]
    python: Option<PathBuf>,
    /// An operator to measure, such as conv_wide_fp16 (repeatable) [default: all]
    #[arg(long, value_name = "NAME")]
    kernel: Vec<String>,
    /// Runs per operator
    #[arg(long, default_value_t = 50)]
    iterations: u32,
    /// Omit PyTorch
    #[arg(long)]
    alone: bool,
}

/// A row of the table: the script's name, the operator family, shape and precision.
struct Kernel {
    name: String,
    family: String,
    shape: String,
    precision: String,
}

/// Measurements of an operator, in microseconds on the device.
struct Measured {
    time: f64,
    /// Minimum time at the device's peak rates.
    bound: f64,
    /// The achieved rate of the limiting resource, with its unit.
    rate: String,
    shaders: String,
}

pub(crate) fn run(options: &KernelOptions) -> Result<()> {
    let requirements = root().join("tests/bench/requirements-vulkan.txt");
    let python = python(options.python.as_ref(), "bench-vulkan", &requirements)?;
    let kernels = chosen(&python, &options.kernel)?;
    let folder = match &options.kernels {
        Some(folder) => folder.clone(),
        None => export(&python, &kernels)?,
    };
    let torchlet = torchlet(options.torchlet.as_ref())?;
    let (peer, why_not) =
        if options.alone { (BTreeMap::new(), None) } else { time_peer(&python, &kernels)? };
    let mut faults = Vec::new();
    println!(
        "| family | shape | dtype | torchlet, µs | achieved | of peak | PyTorch CUDA, µs | shaders |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for kernel in &kernels {
        let file = folder.join(format!("{}.pte", kernel.name));
        let measured = match measure(&torchlet, &file, options.iterations) {
            Ok(measured) => measured,
            Err(fault) => {
                faults.push(format!("{}: {fault:#}", file.display()));
                continue;
            }
        };
        let Measured { time, bound, rate, shaders } = measured;
        let Kernel { family, shape, precision, .. } = kernel;
        let share = 100.0 * bound / time;
        let peer = peer.get(&kernel.name).map_or("–".to_owned(), |time| format!("{time:.1}"));
        println!(
            "| {family} | {shape} | {precision} | {time:.1} | {rate} | {share:.0} % | {peer} | {shaders} |"
        );
    }
    println!(
        "\nMedians of {} runs on the device, each dispatch timed; batch 1. The rates of the device \
         are measured in the same run. PyTorch's times are those of a captured graph of many \
         calls; for 4-bit and 8-bit weights, of 16-bit ones.",
        options.iterations
    );
    if let Some(why) = why_not {
        println!("Not measured: PyTorch on CUDA: {why}.");
    }
    println!("{}; {}\n{}", processors(), date(), this_command());
    if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("\n")) }
}

fn script() -> String {
    root().join("tests/bench/vulkan_kernels.py").to_string_lossy().into_owned()
}

/// The selected rows from the script's list.
fn chosen(python: &str, names: &[String]) -> Result<Vec<Kernel>> {
    let listed = process::output(command(python, &[&script(), "list"]))?;
    let mut kernels = Vec::new();
    for line in String::from_utf8_lossy(&listed).lines() {
        let [name, family, shape, precision] = line.split('\t').collect::<Vec<_>>()[..] else {
            continue;
        };
        if names.is_empty() || names.iter().any(|chosen| chosen == name) {
            let [name, family, shape, precision] =
                [name, family, shape, precision].map(str::to_owned);
            kernels.push(Kernel { name, family, shape, precision });
        }
    }
    if kernels.is_empty() || (!names.is_empty() && kernels.len() < names.len()) {
        bail!("missing from the profile, at least one of: {}", names.join(", "));
    }
    Ok(kernels)
}

/// Exports the programs on first use.
fn export(python: &str, kernels: &[Kernel]) -> Result<PathBuf> {
    let names = kernels.iter().map(|kernel| kernel.name.clone());
    exported("bench/kernels", names, "pte", command(python, &[&script(), "export"]))
}

type Times = BTreeMap<String, f64>;

/// Returns PyTorch's times by name, or the reason why they are missing.
fn time_peer(python: &str, kernels: &[Kernel]) -> Result<(Times, Option<String>)> {
    let mut time = command(python, &[&script(), "time"]);
    time.args(kernels.iter().map(|kernel| &kernel.name)).stderr(Stdio::null());
    let written = process::output(time)?;
    let text = String::from_utf8_lossy(&written);
    if let Some(why) = text.trim().strip_prefix("not here: ") {
        return Ok((Times::new(), Some(why.to_owned())));
    }
    let pairs = text.lines().filter_map(|line| line.split_once('\t'));
    Ok((
        pairs.filter_map(|(name, time)| Some((name.to_owned(), time.parse().ok()?))).collect(),
        None,
    ))
}

fn measure(torchlet: &Path, file: &Path, iterations: u32) -> Result<Measured> {
    let iterations = iterations.to_string();
    let arguments = ["profile", "--json", "--backend", "vulkan", "--roofline", "measured"];
    let mut profile = command(&torchlet.to_string_lossy(), &arguments);
    profile.args(["--iterations", &iterations]).arg(file).stderr(Stdio::null());
    judge(&json(profile)?)
}

/// Returns the GPU's measured peak rates from a profile, in operations and bytes per second.
pub(super) fn rates(profile: &Value) -> Result<[f64; 2]> {
    let roofs = profile["roofline"].as_array().context("torchlet profile measures no device")?;
    let gpu = roofs
        .iter()
        .find(|roof| roof["processor"] == "gpu")
        .context("no GPU in the measured rates")?;
    let rates = [number(gpu, "operations")?, number(gpu, "bytes")?];
    if rates.iter().any(|rate| *rate <= 0.0) {
        bail!("no rate: {gpu}");
    }
    Ok(rates)
}

/// Evaluates the dispatches of a program's profile.
fn judge(profile: &Value) -> Result<Measured> {
    let calls = profile["calls"].as_array().context("torchlet profile lists no calls")?;
    // Transfers, type conversions, and the expansion of small inputs (which costs little) are not
    // part of the operator.
    let made = ["aten._to_copy.", "aten.repeat.", "aten.view_copy.", "aten.slice_copy."];
    let is_operator =
        |name: &str| name.contains('.') && !made.iter().any(|other| name.starts_with(other));
    let dispatches = || {
        calls.iter().filter(|call| {
            call["on_device"] == true && call["name"].as_str().is_some_and(is_operator)
        })
    };
    let sum = |of: &dyn Fn(&Value) -> &Value| -> f64 {
        dispatches().filter_map(|call| of(call).as_f64()).sum()
    };
    let time = sum(&|call| &call["nanoseconds"]["p50"]) / 1e3;
    let (operations, bytes) = (sum(&|call| &call["operations"]), sum(&|call| &call["bytes"]));
    let [arithmetic, memory] = rates(profile)?;
    if time <= 0.0 {
        bail!("nothing ran on a device");
    }
    let bounds = [operations / arithmetic * 1e6, bytes / memory * 1e6];
    let rate = match bounds[0] > bounds[1] {
        true if operations / time >= 1e6 => format!("{:.1} TFLOP/s", operations / time / 1e6),
        true => format!("{:.1} GFLOP/s", operations / time / 1e3),
        false => format!("{:.0} GB/s", bytes / time / 1e3),
    };
    let shader = |call: &Value| -> Option<String> {
        let (_, shader) = call["name"].as_str()?.rsplit_once(" (")?;
        Some(shader.trim_end_matches(')').to_owned())
    };
    let mut shaders: Vec<String> = dispatches().filter_map(shader).collect();
    shaders.dedup();
    Ok(Measured { time, bound: bounds[0].max(bounds[1]), rate, shaders: shaders.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn dispatches_are_compared_with_their_limit() {
        let call = |name, time, operations, bytes| {
            json!({
                "name": name, "on_device": true, "nanoseconds": { "p50": time },
                "operations": operations, "bytes": bytes
            })
        };
        let profile = json!({
            "calls": [
                call("input (copy)", 9e9, 0.0, 0.0),
                call("aten._to_copy.default (gather)", 9e9, 0.0, 0.0),
                call("aten.repeat.default (gather)", 9e9, 0.0, 1e9),
                call("aten.mm.default (unpack_weights)", 2e3, 0.0, 0.0),
                call("aten.mm.default (matmul_tiled)", 8e3, 1e8, 1e3),
            ],
            "roofline": [{ "processor": "gpu", "operations": 2e13, "bytes": 1e12 }],
        });
        let measured = judge(&profile).unwrap();
        assert_eq!((measured.time, measured.bound), (10.0, 5.0));
        assert_eq!(measured.rate, "10.0 TFLOP/s");
        assert_eq!(measured.shaders, "unpack_weights, matmul_tiled");
        assert!(judge(&json!({ "calls": [], "roofline": [] })).is_err());
    }
}
