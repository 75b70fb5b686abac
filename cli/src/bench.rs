//! `torchlet bench`.

use crate::arguments::{BenchArguments, InputOptions};
use crate::budget::Budget;
use crate::failure::Failure;
use crate::terminal::{FAINT, TITLE, bytes, paint, progress};
use crate::{cases, model, summary};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use torchlet::{Method, Module, Profiler, RunOn, ScalarType, Value};

/// Maximum inferences for device times, which vary little.
const MAX_DEVICE_ITERATIONS: u32 = 20;

/// Measures a program.
pub(crate) fn bench(arguments: &BenchArguments) -> Result<(), Failure> {
    let start = Instant::now();
    let builder = model::builder(&arguments.model_options)?;
    // Timed separately so that loads can be compared: otherwise the device opens while the program
    // is read.
    model::open_device(&arguments.model_options)?;
    let device = start.elapsed();
    let start = Instant::now();
    let mut module = builder.load(&arguments.model)?;
    let name = model::choose_method(&module, arguments.method.as_deref())?;
    let mut budget = model::budget(&mut module, &name, &arguments.model_options)?;
    let load = start.elapsed();

    let mut values = inputs(&module, &name, &arguments.inputs, &mut budget)?;
    let threads = module.threads();
    let mut method = module.method(&name)?;
    let rounds = arguments.warmup.saturating_add(arguments.iterations);
    let bar = progress(rounds.into(), "measuring");
    let mut times = Vec::new();
    for round in 0..rounds {
        count(&mut values, arguments.count, round)?;
        let start = Instant::now();
        infer(&mut method, &values)?;
        let time = start.elapsed();
        if round >= arguments.warmup {
            times.push(time);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let time_on_device = if arguments.device_time { device_time(arguments)? } else { None };

    times.sort();
    let (min, median, p90) = (times[0], percentile(&times, 50), percentile(&times, 90));
    let peak = peak_memory();
    let on_device = module.device_memory();
    let backend = arguments.model_options.backend.name();
    if arguments.json {
        let object = json!({
            "median_ms": millis(median),
            "min_ms": millis(min),
            "p90_ms": millis(p90),
            "on_device_ms": time_on_device.map(millis),
            "open_device_ms": millis(device),
            "load_ms": millis(load),
            "peak_bytes": peak,
            "device_bytes": on_device.used,
            "device_peak_bytes": on_device.peak,
            "iterations": arguments.iterations,
            "backend": backend,
            "threads": threads,
        });
        println!("{object}");
        return Ok(());
    }
    let line = |what: &str, text: String| anstream::println!("{:12}{text}", paint(TITLE, what));
    let ms = |time| format!("{:>10.3} ms", millis(time));
    line("median      ", ms(median));
    line("min         ", ms(min));
    line("p90         ", ms(p90));
    if let Some(time) = time_on_device {
        line("device time ", ms(time));
    }
    if matches!(arguments.model_options.backend, RunOn::Device(_)) {
        line("open device ", ms(device));
    }
    line("load        ", ms(load));
    if let Some(peak) = peak {
        line("peak memory ", format!("{:>13}", bytes(peak)));
    }
    if on_device.peak > 0 {
        let (used, peak) = (bytes(on_device.used), bytes(on_device.peak));
        line("on device   ", format!("{used:>13}, at most {peak}"));
    }
    let plural = if threads == 1 { "" } else { "s" };
    let how = format!("{} inferences, {backend}, {threads} thread{plural}", arguments.iterations);
    anstream::println!("{}", paint(FAINT, how));
    Ok(())
}

/// Runs one inference: copies the inputs into the method and reads the outputs in place.
fn infer(method: &mut Method<'_>, values: &[Value]) -> Result<(), Failure> {
    method.execute_in_place(values)?;
    for index in 0..method.output_count() {
        std::hint::black_box(method.output(index)?);
    }
    Ok(())
}

/// Returns the mean time of an inference on the device. Uses a separate load with a profiler, which
/// slows execution down a little.
fn device_time(arguments: &BenchArguments) -> Result<Option<Duration>, Failure> {
    let profiler = Arc::new(Profiler::new());
    let builder = model::builder(&arguments.model_options)?.event_tracer(profiler.clone());
    let mut module = builder.load(&arguments.model)?;
    let name = model::choose_method(&module, arguments.method.as_deref())?;
    let mut budget = model::budget(&mut module, &name, &arguments.model_options)?;
    let mut values = inputs(&module, &name, &arguments.inputs, &mut budget)?;
    let mut method = module.method(&name)?;
    count(&mut values, arguments.count, 0)?;
    for _ in 0..arguments.warmup {
        infer(&mut method, &values)?;
    }
    let before = summary::on_devices(&profiler);
    let iterations = arguments.iterations.min(MAX_DEVICE_ITERATIONS);
    for round in 0..iterations {
        count(&mut values, arguments.count, round)?;
        infer(&mut method, &values)?;
    }
    let time = summary::on_devices(&profiler).saturating_sub(before);
    Ok((!time.is_zero()).then(|| time / iterations))
}

/// Sets the input that `--count` names to `number`.
fn count(values: &mut [Value], input: Option<usize>, number: u32) -> Result<(), Failure> {
    let Some(input) = input else { return Ok(()) };
    match values.get_mut(input) {
        Some(Value::Int(value)) => *value = number.into(),
        Some(Value::Tensor(tensor)) => match tensor.scalar_type() {
            ScalarType::Long => tensor.as_mut_slice::<i64>()?.fill(number.into()),
            ScalarType::Int => tensor.as_mut_slice::<i32>()?.fill(number as i32),
            other => {
                return Err(Failure::new(format!(
                    "--count {input}: expected an int32 or int64 input, found {other}"
                )));
            }
        },
        Some(other) => {
            return Err(Failure::new(format!(
                "--count {input}: expected an integer input, found {}",
                other.kind()
            )));
        }
        None => {
            let found = values.len();
            return Err(Failure::new(format!("--count {input}: the method has {found} inputs")));
        }
    }
    Ok(())
}

/// Inputs from the options; without any, from a bundled test case; else random ones.
pub(crate) fn inputs(
    module: &Module,
    method: &str,
    options: &InputOptions,
    budget: &mut Budget,
) -> Result<Vec<Value>, Failure> {
    let nothing_given = options.input.is_empty() && options.image.is_none() && !options.ones;
    let has_case = cases::suites(module)?
        .iter()
        .any(|suite| suite.method == method && !suite.cases.is_empty());
    if nothing_given && options.random.is_none() && !has_case {
        let random = InputOptions::random(0);
        return crate::inputs::gather(module, method, &random, budget);
    }
    crate::inputs::gather(module, method, options, budget)
}

/// The smallest time that is not exceeded by `percent` percent of the times (nearest rank).
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted[rank.min(sorted.len()) - 1]
}

fn millis(time: Duration) -> f64 {
    // Clocks have nanosecond resolution; more digits would be noise.
    (time.as_secs_f64() * 1e9).round() / 1e6
}

/// Peak resident memory of this process, including mapped files (Linux only).
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let times: Vec<Duration> = (1..=10).map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 50), Duration::from_millis(5));
        assert_eq!(percentile(&times, 90), Duration::from_millis(9));
        assert_eq!(percentile(&times[..1], 90), Duration::from_millis(1));
        assert_eq!(millis(Duration::from_micros(1500)), 1.5);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn peak_memory_is_reported() {
        assert!(peak_memory().unwrap() > 100_000);
    }
}
