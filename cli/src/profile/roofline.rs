//! What the processors that a program ran on can do, measured: arithmetic by large products, memory
//! by sums of tensors that caches do not hold. Both are programs of one call, opened and run as
//! others are, so that the figures are what torchlet reaches there at best, with these threads,
//! now. They take about half a second, and are not kept: clocks, and what else runs, differ from
//! hour to hour.

use super::work::{Amount, is_work};
use crate::arguments::{Backend, ModelOptions, Roofline};
use crate::failure::Failure;
use crate::model;
use crate::terminal::{WARN, paint};
use half::f16;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use torchlet::Module;
use torchlet::core::{Rates, ScalarType, ShapeDynamism, TensorInfo};
use torchlet::graph::Target as _;
use torchlet::graph::method::{
    Instruction, Method, MethodTensor, MethodValue, Program, TensorData,
};
use torchlet_devtools::{Profile, Recorder, Row};

/// Where calls run: what they are held against is another for each.
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

/// What a processor can do at best.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Roof {
    /// Arithmetic operations in a second.
    pub(super) operations: f64,
    /// Bytes that are read and written in a second.
    pub(super) bytes: f64,
    /// What the arithmetic was measured in; `None` for the compiler's model.
    pub(super) measured: Option<ScalarType>,
}

impl Roof {
    /// Nanoseconds that so much takes at least.
    pub(super) fn bound(&self, amount: Amount) -> f64 {
        let nanosecond = |rate: f64| rate / 1e9;
        let arithmetic = amount.operations / nanosecond(self.operations);
        arithmetic.max(amount.bytes / nanosecond(self.bytes))
    }

    fn modelled(rates: Rates) -> Self {
        Roof { operations: rates.operations, bytes: rates.bytes, measured: None }
    }
}

/// What a processor can do: as it was asked for, and by the compiler's model where that cannot be
/// measured, as on a GPU that has no clock.
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
        Processor::Gpu => model::gpu_rates(),
    };
    let measured = match how {
        Roofline::None => return None,
        Roofline::Model => None,
        // The program ran: that what it is compared with does not is no reason to keep its times
        // back.
        Roofline::Measured => measured(processor, scalar_type, options).unwrap_or_else(|failure| {
            let note = format!("what this machine can do was not measured: {failure}");
            anstream::eprintln!("{}", paint(WARN, note));
            None
        }),
    };
    measured.or_else(|| modelled().map(Roof::modelled))
}

/// The time to run for each of the two figures.
const TIME: Duration = Duration::from_millis(250);
/// Sides of the square matrices that are multiplied: each product is eight times the one before.
const SIDES: [i32; 5] = [256, 512, 1024, 2048, 4096];
/// Elements of the tensors that are added up on a GPU, from what phones do in milliseconds to what
/// the largest caches do not hold.
const LENGTHS: [i32; 4] = [1 << 22, 1 << 23, 1 << 24, 1 << 25];

fn measured(
    processor: Processor,
    scalar_type: ScalarType,
    options: &ModelOptions,
) -> Result<Option<Roof>, Failure> {
    let operations = |side: i32| 2.0 * f64::from(side).powi(3);
    let product = |side| Trial::product(processor, scalar_type, side, options);
    let bytes = |length: i32| 3.0 * 4.0 * f64::from(length);
    let sum = |length| Trial::sum(processor, length, options);
    let of_host = [uncached_length()];
    let lengths: &[i32] = if processor == Processor::Cpu { &of_host } else { &LENGTHS };
    // Small matrices are no work, small tensors lie in caches: the best counts of the first, the
    // largest of the others.
    let operations = rate(&SIDES, operations, product, f64::max)?;
    let rates = (operations, rate(lengths, bytes, sum, |_, last| last)?);
    let (Some(operations), Some(bytes)) = rates else { return Ok(None) };
    Ok(Some(Roof { operations, bytes, measured: Some(scalar_type) }))
}

/// What is done in a second, in trials of growing sizes, each of which does so much: `choose` takes
/// the rate so far or the next. `None` where no time can be told.
fn rate(
    sizes: &[i32],
    amount: impl Fn(i32) -> f64,
    trial: impl Fn(i32) -> Result<Trial, Failure>,
    choose: impl Fn(f64, f64) -> f64,
) -> Result<Option<f64>, Failure> {
    let mut chosen: Option<f64> = None;
    // What all of them took, and how much the last one did in which time. (Loading is not counted:
    // the first time, pipelines are made then.)
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

/// A program of one call, ready to run.
struct Trial {
    module: Module,
    /// What tells of the time on a device.
    recorder: Option<Arc<Recorder>>,
}

/// Runs before those that count: memory is touched, clocks rise.
const WARMUP: u32 = 1;
const RUNS: u32 = 3;
/// The method's name.
const METHOD: &str = "forward";

impl Trial {
    /// A square matrix by another, which is a constant, as weights are.
    fn product(
        processor: Processor,
        scalar_type: ScalarType,
        side: i32,
        options: &ModelOptions,
    ) -> Result<Self, Failure> {
        let mut builder = Builder::new(scalar_type, &[side, side])?;
        let factor = builder.input();
        let weights = builder.constant();
        builder.load("aten::mm", &[factor, weights], processor, options)
    }

    /// Two tensors, element by element.
    fn sum(processor: Processor, length: i32, options: &ModelOptions) -> Result<Self, Failure> {
        let mut builder = Builder::new(ScalarType::Float, &[length])?;
        let (left, right) = (builder.input(), builder.input());
        let one = builder.method.add(MethodValue::Scalar(torchlet::core::Scalar::Int(1)));
        builder.load("aten::add", &[left, right, one], processor, options)
    }

    /// Seconds of the fastest run; `None` if the device does not tell.
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

/// Seconds that the device computed in what was recorded, without what came to it and went from it.
fn on_device(recorder: &Recorder) -> Option<f64> {
    let profile = Profile::of(&recorder.take(), 0);
    let rows = profile.rows.iter().filter(|row| row.on_device && is_work(row));
    let nanoseconds: u64 = rows.flat_map(|row| &row.times).sum();
    (nanoseconds > 0).then_some(nanoseconds as f64 / 1e9)
}

/// A method of one call, all of whose tensors are alike.
struct Builder {
    method: Method<'static>,
    info: TensorInfo,
    /// Bytes of a tensor.
    size: usize,
}

/// At what multiples tensors start.
const ALIGN: usize = 64;
/// The most memory that is measured with, in MiB.
const MOST_MEMORY: u64 = 1024;

impl Builder {
    fn new(scalar_type: ScalarType, sizes: &[i32]) -> Result<Self, Failure> {
        let info = TensorInfo::contiguous(scalar_type, sizes);
        let info =
            info.ok_or_else(|| Failure::new("there is no room for what is measured with"))?;
        let size = info.nbytes().next_multiple_of(ALIGN);
        let method = Method { name: METHOD.to_owned(), planned: vec![0, 0], ..Method::default() };
        Ok(Builder { method, info, size })
    }

    fn tensor(&mut self, place: Option<(usize, usize)>, data: TensorData<'static>) -> usize {
        let (info, dynamism, name) = (self.info.clone(), ShapeDynamism::Static, None);
        self.method.add(MethodValue::Tensor(MethodTensor { info, dynamism, place, data, name }))
    }

    /// A tensor with memory of its own.
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
        // Exporters write results twice.
        let args = [arguments, &[out, out]].concat();
        self.method.instructions.push(Instruction::Kernel { name, overload, args });
        let program = Program { methods: vec![self.method], named: Vec::new() };
        let package = program.write().map_err(|error| Failure::new(error.to_string()))?;
        let (backend, recorder) = match processor {
            Processor::Cpu => (Backend::Cpu, None),
            Processor::Gpu => (Backend::Vulkan, Some(Arc::new(Recorder::new()))),
        };
        // It is compiled once and never again: a cache would keep what nobody asks for.
        let compile_cache = Some(PathBuf::from("off"));
        let options = ModelOptions {
            data: Vec::new(),
            backend,
            compile_cache,
            // The limit that was asked for is the program's.
            memory_limit: MOST_MEMORY,
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

/// Fills memory with numbers between -1/2 and 1/2, one like the other to no power-saving circuit.
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

/// Bytes of a tensor on the host: between what no cache of a small machine holds, and what is
/// quickly read.
const BYTES: std::ops::RangeInclusive<u64> = 16 << 20..=256 << 20;
/// The last cache, where the system does not tell.
const USUAL_CACHE: u64 = 32 << 20;

/// Elements of each of three tensors that are three times what the last caches hold together, if
/// memory has room for four times as much.
fn uncached_length() -> i32 {
    let wanted = last_caches().unwrap_or(USUAL_CACHE);
    let most = available_memory().map_or(u64::MAX, |bytes| bytes / 12);
    let bytes = wanted.min(most).clamp(*BYTES.start(), *BYTES.end());
    i32::try_from(bytes / 4).unwrap_or(i32::MAX)
}

/// Bytes of the last caches of all processors, each of which some of them share.
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

/// Bytes that programs can have before others have to go.
fn available_memory() -> Option<u64> {
    let file = std::fs::read_to_string("/proc/meminfo").ok()?;
    kibibytes(file.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?)
}

/// A number of kibibytes, as the system writes it: `512K`, or `512 kB`.
fn kibibytes(text: &str) -> Option<u64> {
    let digits = text.trim().trim_end_matches(['K', 'k', 'B', ' ']);
    digits.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command};
    use clap::Parser;
    use torchlet::graph::Place;

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
        // From the slowest that anybody has to what no thread can.
        assert!((1e7..1e13).contains(&roof.operations), "{roof:?}");
        assert!((1e7..1e13).contains(&roof.bytes), "{roof:?}");
    }

    #[test]
    fn what_is_measured_is_what_was_asked_for() {
        let options = options("1");
        let mut product = Trial::product(Processor::Cpu, ScalarType::Float, 64, &options).unwrap();
        assert!(product.fastest().unwrap().unwrap() > 0.0);
        // The engine computes it, as it does those of programs.
        let parts = &product.module.plan().unwrap().methods[0].parts;
        assert!(parts.iter().all(|part| part.place == Place::Device(0)), "{parts:?}");
        let mut method = product.module.method(METHOD).unwrap();
        let factor: Vec<f32> = method.input_mut(0).unwrap().data_mut::<f32>().unwrap().to_vec();
        // Input and constant are the same numbers.
        let expected: f32 = (0..64).map(|at| factor[at] * factor[64 * at]).sum();
        let outputs = method.output_value(0).unwrap();
        let first = outputs.tensor().unwrap().as_slice::<f32>().unwrap()[0];
        assert!((first - expected).abs() < 1e-4, "{first} {expected}");

        let mut sum = Trial::sum(Processor::Cpu, 5000, &options).unwrap();
        assert!(sum.fastest().unwrap().unwrap() > 0.0);
        let mut method = sum.module.method(METHOD).unwrap();
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
