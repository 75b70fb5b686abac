//! Measures the peak rates of the processors that a program ran on: arithmetic with large matrix
//! multiplications, memory bandwidth with additions of tensors that exceed the caches.
//!
//! Both are single-call programs that run like any other, so the rates are what torchlet itself
//! reaches with the same number of threads. Measuring lasts about half a second, before and after
//! the program's runs; the larger rates count. They are not cached, because clocks and load change
//! over time.

use super::work::{Amount, is_work};
use crate::arguments::{ModelOptions, Roofline};
use crate::failure::Failure;
use crate::model;
use crate::terminal::{WARN, paint};
use half::f16;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use torchlet::core::{Rates, ScalarType, ShapeDynamism, TensorInfo};
use torchlet::graph::Target as _;
use torchlet::graph::method::{
    Instruction, Method, MethodTensor, MethodValue, Program, TensorData,
};
use torchlet::{Module, RunOn};
use torchlet_devtools::{Profile, Recorder, Row};

/// A processor, with its own peak rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Processor {
    Cpu,
    Gpu,
}

impl Processor {
    pub(super) fn of(row: &Row) -> Self {
        if row.on_device { Processor::Gpu } else { Processor::Cpu }
    }
}

/// Peak rates of a processor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Roof {
    /// Arithmetic operations per second.
    pub(super) operations: f64,
    /// Bytes read and written per second.
    pub(super) bytes: f64,
    /// Element type of the measured matrix multiplication; `None` for the compiler's cost model.
    pub(super) measured: Option<ScalarType>,
}

impl Roof {
    /// Minimum time for an amount of work, in nanoseconds.
    pub(super) fn bound(&self, amount: Amount) -> f64 {
        let nanosecond = |rate: f64| rate / 1e9;
        let arithmetic = amount.operations / nanosecond(self.operations);
        arithmetic.max(amount.bytes / nanosecond(self.bytes))
    }

    /// The larger of each rate, if both were measured in the same element type.
    pub(super) fn larger(self, other: &Roof) -> Self {
        if self.measured != other.measured {
            return self;
        }
        let operations = self.operations.max(other.operations);
        Roof { operations, bytes: self.bytes.max(other.bytes), ..self }
    }

    fn modelled(rates: Rates) -> Self {
        Roof { operations: rates.operations, bytes: rates.bytes, measured: None }
    }
}

/// Returns the peak rates of a processor, as requested. Falls back to the compiler's cost model
/// where measuring fails, as on GPUs without timestamps.
pub(super) fn roof(
    how: Roofline,
    processor: Processor,
    scalar_type: ScalarType,
    options: &ModelOptions,
    threads: usize,
) -> Option<Roof> {
    let modelled = || match processor {
        Processor::Cpu => {
            torchlet::portable::engine::CpuTarget::new().with_threads(threads).rates()
        }
        Processor::Gpu => model::device(options).and_then(|(_, rates)| rates),
    };
    let measured = match how {
        Roofline::None => return None,
        Roofline::Model => None,
        // The program itself ran, so a failed measurement must not hide its times.
        Roofline::Measured => measured(processor, scalar_type, options).unwrap_or_else(|failure| {
            let note = format!("cannot measure the peak rates of this machine: {failure}");
            anstream::eprintln!("{}", paint(WARN, note));
            None
        }),
    };
    measured.or_else(|| modelled().map(Roof::modelled))
}

/// Time limit for each of the two rates.
const TIME: Duration = Duration::from_millis(250);
/// Sizes of the square matrices; each multiplication has eight times the work of the previous one.
const SIDES: [i32; 5] = [256, 512, 1024, 2048, 4096];
/// Elements of the tensors that are added on a GPU: from milliseconds on a phone to more than the
/// largest caches hold.
const LENGTHS: [i32; 4] = [1 << 22, 1 << 23, 1 << 24, 1 << 25];

/// Measures the peak rates of a processor. `None` if the device has no clock.
pub(super) fn measured(
    processor: Processor,
    scalar_type: ScalarType,
    options: &ModelOptions,
) -> Result<Option<Roof>, Failure> {
    let operations = |side: i32| 2.0 * f64::from(side).powi(3);
    let matmul = |side| Trial::matmul(processor, scalar_type, side, options);
    let bytes = |length: i32| 3.0 * 4.0 * f64::from(length);
    let add = |length| Trial::add(processor, length, options);
    let of_host = [uncached_length()];
    let lengths: &[i32] = if processor == Processor::Cpu { &of_host } else { &LENGTHS };
    // Small matrices underutilize the processor, so the best rate counts. Small tensors fit into
    // caches, so the rate of the largest counts.
    let operations = rate(&SIDES, operations, matmul, f64::max)?;
    let rates = (operations, rate(lengths, bytes, add, |_, last| last)?);
    let (Some(operations), Some(bytes)) = rates else { return Ok(None) };
    Ok(Some(Roof { operations, bytes, measured: Some(scalar_type) }))
}

/// Measures a rate per second in trials of growing sizes within [`TIME`]. `choose` combines the
/// rate so far with the next one. `None` if the device has no clock.
fn rate(
    sizes: &[i32],
    amount: impl Fn(i32) -> f64,
    trial: impl Fn(i32) -> Result<Trial, Failure>,
    choose: impl Fn(f64, f64) -> f64,
) -> Result<Option<f64>, Failure> {
    let mut chosen: Option<f64> = None;
    // Total time, and amount and time of the last trial. Loading is excluded, because it may
    // compile pipelines.
    let mut spent = Duration::ZERO;
    let mut before: Option<(f64, Duration)> = None;
    for size in sizes {
        let amount = amount(*size);
        let expected = before.map(|(less, took)| took.mul_f64(amount / less));
        if expected.is_some_and(|expected| spent + expected > TIME) {
            break;
        }
        let mut trial = trial(*size)?;
        let start = Instant::now();
        let Some(seconds) = trial.fastest()? else { return Ok(None) };
        let took = start.elapsed();
        spent += took;
        before = Some((amount, took));
        let rate = amount / seconds;
        chosen = Some(chosen.map_or(rate, |chosen| choose(chosen, rate)));
    }
    Ok(chosen)
}

/// A program with one call, ready to run.
struct Trial {
    module: Module,
    /// Recorder of device times, for a GPU.
    recorder: Option<Arc<Recorder>>,
}

/// Warm-up runs, which fault memory in and raise clocks.
const WARMUP: u32 = 1;
const RUNS: u32 = 3;
/// The method's name.
const METHOD: &str = "forward";

impl Trial {
    /// Multiplies a square matrix by a constant one, as weights are constant.
    fn matmul(
        processor: Processor,
        scalar_type: ScalarType,
        side: i32,
        options: &ModelOptions,
    ) -> Result<Self, Failure> {
        let mut builder = Builder::new(scalar_type, &[side, side])?;
        let lhs = builder.input();
        let weights = builder.constant();
        builder.load("aten::mm", &[lhs, weights], processor, options)
    }

    /// Adds two tensors.
    fn add(processor: Processor, length: i32, options: &ModelOptions) -> Result<Self, Failure> {
        let mut builder = Builder::new(ScalarType::Float, &[length])?;
        let (left, right) = (builder.input(), builder.input());
        let one = builder.method.add(MethodValue::Scalar(torchlet::core::Scalar::Int(1)));
        builder.load("aten::add", &[left, right, one], processor, options)
    }

    /// Returns the fastest run in seconds; `None` if the device has no clock.
    fn fastest(&mut self) -> Result<Option<f64>, Failure> {
        let mut method = self.module.method(METHOD)?;
        let mut fastest = f64::INFINITY;
        for round in 0..WARMUP + RUNS {
            let start = Instant::now();
            method.run()?;
            let seconds = match &self.recorder {
                None => start.elapsed().as_secs_f64(),
                Some(recorder) => match on_device(recorder) {
                    Some(seconds) => seconds,
                    None => return Ok(None),
                },
            };
            if round >= WARMUP {
                fastest = fastest.min(seconds);
            }
        }
        Ok((fastest > 0.0).then_some(fastest))
    }
}

/// Returns the recorded compute time of the device in seconds, excluding transfers.
fn on_device(recorder: &Recorder) -> Option<f64> {
    let profile = Profile::of(&recorder.take(), 0);
    let rows = profile.rows.iter().filter(|row| row.on_device && is_work(row));
    let nanoseconds: u64 = rows.flat_map(|row| &row.times).sum();
    (nanoseconds > 0).then_some(nanoseconds as f64 / 1e9)
}

/// Builds a method with one call, whose tensors all have the same type and shape.
struct Builder {
    method: Method<'static>,
    info: TensorInfo,
    /// Bytes per tensor.
    size: usize,
}

/// Alignment of tensors.
const ALIGN: usize = 64;
/// Memory limit of a trial, in MiB.
const MAX_MEMORY: u64 = 1024;

impl Builder {
    fn new(scalar_type: ScalarType, sizes: &[i32]) -> Result<Self, Failure> {
        let info = TensorInfo::contiguous(scalar_type, sizes);
        let info = info.ok_or_else(|| Failure::new("cannot allocate the buffers for measuring"))?;
        let size = info.nbytes().next_multiple_of(ALIGN);
        let method = Method { name: METHOD.to_owned(), planned: vec![0, 0], ..Method::default() };
        Ok(Builder { method, info, size })
    }

    fn tensor(&mut self, location: Option<(usize, usize)>, data: TensorData<'static>) -> usize {
        let (info, dynamism, name) = (self.info.clone(), ShapeDynamism::Static, None);
        self.method.add(MethodValue::Tensor(MethodTensor { info, dynamism, location, data, name }))
    }

    /// Adds a tensor with planned memory of its own.
    fn planned(&mut self) -> usize {
        let end = self.method.planned.get(1).copied().unwrap_or(0);
        if let Some(bytes) = self.method.planned.get_mut(1) {
            *bytes += self.size;
        }
        self.tensor(Some((1, end)), TensorData::None)
    }

    fn input(&mut self) -> usize {
        let input = self.planned();
        self.method.inputs.push(input);
        input
    }

    fn constant(&mut self) -> usize {
        let mut data = vec![0; self.info.nbytes()];
        fill(&mut data, self.info.scalar_type);
        self.tensor(None, TensorData::Inside(Cow::Owned(data)))
    }

    fn load(
        mut self,
        operator: &str,
        arguments: &[usize],
        processor: Processor,
        options: &ModelOptions,
    ) -> Result<Trial, Failure> {
        let out = self.planned();
        self.method.outputs.push(out);
        let (name, overload) = (operator.to_owned(), "out".to_owned());
        // Exporters pass results twice.
        let args = [arguments, &[out, out]].concat();
        self.method.instructions.push(Instruction::Kernel { name, overload, args });
        let program = Program { methods: vec![self.method], named: Vec::new() };
        let package = program.write().map_err(|error| Failure::new(error.to_string()))?;
        let (backend, recorder) = match processor {
            Processor::Cpu => (RunOn::Cpu, None),
            Processor::Gpu => {
                let device = model::device(options).map_or(RunOn::Auto, |(device, _)| device);
                (device, Some(Arc::new(Recorder::new())))
            }
        };
        // Each program is compiled once only, so caching it is useless.
        let compile_cache = Some(PathBuf::from("off"));
        let options = ModelOptions {
            data: Vec::new(),
            backend,
            // The program is generated.
            allow_foreign_shaders: false,
            compile_cache,
            // The requested limit applies to the user's program.
            memory_limit: MAX_MEMORY,
            ..options.clone()
        };
        let mut builder = model::builder(&options)?;
        if let Some(recorder) = &recorder {
            builder = builder.event_tracer(recorder.clone());
        }
        let mut module = builder.from_bytes(package.to_bytes())?;
        let mut method = module.method(METHOD)?;
        for input in 0..method.input_count() {
            fill(method.input_mut(input)?.bytes_mut(), self.info.scalar_type);
        }
        if let Some(recorder) = &recorder {
            recorder.take();
        }
        Ok(Trial { module, recorder })
    }
}

/// Fills memory with random values in [-1/2, 1/2): constant data would let power-saving circuits
/// raise clocks.
fn fill(bytes: &mut [u8], scalar_type: ScalarType) {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    let mut block = Vec::new();
    for _ in 0..1 << 14 {
        match scalar_type {
            ScalarType::Half => block.extend(f16::from_f32(next()).to_le_bytes()),
            _ => block.extend(next().to_le_bytes()),
        }
    }
    for part in bytes.chunks_mut(block.len()) {
        let (values, _) = block.split_at(part.len());
        part.copy_from_slice(values);
    }
}

/// Limits of a tensor's size on the host: larger than the caches of a small machine, yet quickly
/// read.
const BYTES: std::ops::RangeInclusive<u64> = 16 << 20..=256 << 20;
/// Assumed size of the last-level caches if the system does not report it.
const DEFAULT_CACHE_BYTES: u64 = 32 << 20;

/// Elements per tensor: each of the three tensors is as large as all last-level caches together,
/// but they use at most a quarter of the available memory.
fn uncached_length() -> i32 {
    let wanted = last_caches().unwrap_or(DEFAULT_CACHE_BYTES);
    let most = available_memory().map_or(u64::MAX, |bytes| bytes / 12);
    let bytes = wanted.min(most).clamp(*BYTES.start(), *BYTES.end());
    i32::try_from(bytes / 4).unwrap_or(i32::MAX)
}

/// Total size of the last-level caches, counting shared ones once.
fn last_caches() -> Option<u64> {
    let mut found: BTreeMap<(u32, String), u64> = BTreeMap::new();
    for processor in std::fs::read_dir("/sys/devices/system/cpu").ok()?.flatten() {
        let Ok(caches) = std::fs::read_dir(processor.path().join("cache")) else { continue };
        for cache in caches.flatten() {
            let read = |name| std::fs::read_to_string(cache.path().join(name)).ok();
            let level = read("level").and_then(|text| text.trim().parse().ok());
            let size = read("size").and_then(|text| kibibytes(&text));
            if let (Some(level), Some(size), Some(shared)) = (level, size, read("shared_cpu_list"))
            {
                found.insert((level, shared), size);
            }
        }
    }
    let last = found.keys().map(|(level, _)| *level).max()?;
    let sizes = found.iter().filter(|((level, _), _)| *level == last).map(|(_, size)| *size);
    Some(sizes.fold(0, u64::saturating_add))
}

/// Memory available without swapping, in bytes.
fn available_memory() -> Option<u64> {
    let file = std::fs::read_to_string("/proc/meminfo").ok()?;
    kibibytes(file.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?)
}

/// Parses a size in KiB as Linux prints it: `512K` or `512 kB`.
fn kibibytes(text: &str) -> Option<u64> {
    let digits = text.trim().trim_end_matches(['K', 'k', 'B', ' ']);
    digits.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command};
    use clap::Parser;
    use torchlet::graph::Location;

    fn options(threads: &str) -> ModelOptions {
        let line = ["torchlet", "profile", "x", "--threads", threads, "--memory-limit", "1"];
        match Arguments::parse_from(line).command {
            Command::Profile(arguments) => arguments.model_options,
            _ => unreachable!(),
        }
    }

    #[test]
    fn this_processor_is_measured() {
        let roof = roof(Roofline::Measured, Processor::Cpu, ScalarType::Float, &options("1"), 1);
        let roof = roof.unwrap();
        assert_eq!(roof.measured, Some(ScalarType::Float));
        // From the slowest processors in use to more than any thread can reach.
        assert!((1e7..1e13).contains(&roof.operations), "{roof:?}");
        assert!((1e7..1e13).contains(&roof.bytes), "{roof:?}");
    }

    #[test]
    fn the_larger_of_each_rate_counts() {
        let roof = |operations, bytes, measured| Roof { operations, bytes, measured };
        let (float, half) = (Some(ScalarType::Float), Some(ScalarType::Half));
        let after = roof(5.0, 2.0, float);
        assert_eq!(after.larger(&roof(3.0, 4.0, float)), roof(5.0, 4.0, float));
        assert_eq!(after.larger(&roof(9.0, 4.0, half)), after);
    }

    #[test]
    fn trials_run_the_requested_operator() {
        let options = options("1");
        let mut matmul = Trial::matmul(Processor::Cpu, ScalarType::Float, 64, &options).unwrap();
        assert!(matmul.fastest().unwrap().unwrap() > 0.0);
        // The engine runs it, as in user programs.
        let parts = &matmul.module.plan().unwrap().methods[0].parts;
        assert!(parts.iter().all(|part| part.location == Location::Device(0)), "{parts:?}");
        let mut method = matmul.module.method(METHOD).unwrap();
        let lhs: Vec<f32> = method.input_mut(0).unwrap().data_mut::<f32>().unwrap().to_vec();
        // Input and constant have equal values.
        let expected: f32 = (0..64).map(|at| lhs[at] * lhs[64 * at]).sum();
        let outputs = method.output_value(0).unwrap();
        let first = outputs.tensor().unwrap().as_slice::<f32>().unwrap()[0];
        assert!((first - expected).abs() < 1e-4, "{first} {expected}");

        let mut add = Trial::add(Processor::Cpu, 5000, &options).unwrap();
        assert!(add.fastest().unwrap().unwrap() > 0.0);
        let mut method = add.module.method(METHOD).unwrap();
        let left = method.input_mut(0).unwrap().data_mut::<f32>().unwrap()[4999];
        let outputs = method.output_value(0).unwrap();
        assert_eq!(outputs.tensor().unwrap().as_slice::<f32>().unwrap()[4999], 2.0 * left);
    }

    #[test]
    fn sizes_of_caches_are_read() {
        assert_eq!(kibibytes("512K\n"), Some(512 << 10));
        assert_eq!(kibibytes("       2048 kB"), Some(2 << 20));
        assert_eq!(kibibytes("x"), None);
        let bytes = u64::try_from(uncached_length()).unwrap() * 4;
        assert!(BYTES.contains(&bytes));
    }
}
