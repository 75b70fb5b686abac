//! `torchlet run`.

use crate::arguments::{RunArguments, Values};
use crate::budget::read_text;
use crate::failure::Failure;
use crate::terminal::{FAINT, NAME, TITLE, bytes, duration, paint, progress};
use crate::{etdump, inputs, model, npy, summary};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use torchlet::{Profiler, ScalarType, Tensor, Value};

/// Runs a program and shows its outputs.
pub(crate) fn run(arguments: &RunArguments) -> Result<(), Failure> {
    let labels = arguments.labels.as_deref().map(read_labels).transpose()?;
    let profiler = arguments.profile.is_some().then(|| Arc::new(Profiler::new()));
    if arguments.recording.inside && arguments.recording.values == Values::Outputs {
        return Err(Failure::new(
            "--inside records intermediate values, which --values outputs omits; omit one of them",
        ));
    }
    let recorder = etdump::recorder(&arguments.recording).map(Arc::new);
    let mut module = match (&recorder, &profiler) {
        (Some(recorder), _) => etdump::open(&arguments.model, &arguments.model_options, recorder)?,
        (None, profiler) => {
            let mut builder = model::builder(&arguments.model_options)?;
            if let Some(profiler) = profiler {
                builder = builder.event_tracer(profiler.clone());
            }
            builder.load(&arguments.model)?
        }
    };
    let name = model::choose_method(&module, arguments.method.as_deref())?;
    let mut budget = model::budget(&mut module, &name, &arguments.model_options)?;
    let values = inputs::gather(&module, &name, &arguments.inputs, &mut budget)?;
    let mut method = module.method(&name)?;

    let bar = progress(arguments.iterations.into(), "running");
    let mut times = Vec::new();
    let mut outputs = Vec::new();
    for _ in 0..arguments.iterations {
        let start = Instant::now();
        outputs = method.execute(&values)?;
        times.push(start.elapsed());
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let Some(recorder) = &recorder {
        if arguments.recording.inside {
            let options = &arguments.model_options;
            etdump::record_inside(recorder, &arguments.model, &name, &values, options)?;
        }
        etdump::write(&arguments.recording, &recorder.take())?;
    }

    for (index, output) in outputs.iter().enumerate() {
        show_output(index, output);
    }
    let wanted =
        arguments.top.or((labels.is_some() || arguments.inputs.image.is_some()).then_some(5));
    if let (Some(top), Some(Value::Tensor(scores))) = (wanted, outputs.first()) {
        show_top(scores, top, labels.as_deref().unwrap_or_default())?;
    }
    if let Some(directory) = &arguments.out {
        write_outputs(directory, &outputs)?;
    }
    show_times(&mut times);
    if let (Some(profiler), Some(detail)) = (&profiler, arguments.profile) {
        summary::show(profiler, detail);
        let memory = module.device_memory();
        if memory.peak > 0 {
            let (used, peak) = (bytes(memory.used), bytes(memory.peak));
            anstream::println!("\n{used} of device memory in use, at most {peak}");
        }
    }
    Ok(())
}

/// Maximum number of elements shown on a terminal; `--out` writes all.
const MAX_SHOWN: usize = 100;

fn show_output(index: usize, output: &Value) {
    let kind = match output {
        Value::Tensor(tensor) => tensor.info().to_string(),
        other => other.kind().into(),
    };
    anstream::println!("{} {}", paint(TITLE, format!("output {index}")), paint(NAME, kind));
    anstream::println!("{output:.MAX_SHOWN$}");
}

fn read_labels(path: &Path) -> Result<Vec<String>, Failure> {
    Ok(read_text(path)?.lines().map(|line| line.trim().into()).collect())
}

/// Returns scores that already are probabilities unchanged, else their softmax.
fn probabilities(scores: &[f64]) -> Vec<f64> {
    let sum: f64 = scores.iter().sum();
    if scores.iter().all(|score| (0.0..=1.0).contains(score)) && (sum - 1.0).abs() < 1e-2 {
        return scores.to_vec();
    }
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

/// Formats a probability as a percentage, seven characters wide; small ones do not become zero.
fn percent(probability: f64) -> String {
    match 100.0 * probability {
        percent if percent > 0.0 && percent < 0.005 => " <0.01%".into(),
        percent => format!("{percent:6.2}%"),
    }
}

/// Formats a score with four decimals, or in scientific notation if that loses precision.
fn digits(score: f64) -> String {
    let size = score.abs();
    if size != 0.0 && !size.is_nan() && !(1e-3..=1e8).contains(&size) {
        return format!("{score:.4e}");
    }
    format!("{score:.4}")
}

/// Shows the largest scores of each row, best first, with their class names.
fn show_top(scores: &Tensor, top: usize, labels: &[String]) -> Result<(), Failure> {
    let classes = scores.shape().last().copied().unwrap_or(0);
    if classes == 0 || scores.numel() == 0 {
        return Ok(());
    }
    let values = scores.to_type(ScalarType::Double)?.to_vec::<f64>()?;
    let rows = values.chunks(classes);
    let several = rows.len() > 1;
    for (number, row) in rows.enumerate() {
        let chances = probabilities(row);
        let mut order: Vec<usize> = (0..classes).collect();
        order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
        let title = if several { format!("\ntop of row {number}") } else { "\ntop".into() };
        anstream::println!("{}", paint(TITLE, title));
        for class in order.into_iter().take(top) {
            let label = labels.get(class).map_or(String::new(), |label| format!("  {label}"));
            let chance = percent(chances[class]);
            let score = paint(FAINT, format!("score {}", digits(row[class])));
            anstream::println!("{chance}  {class:>4}{}  {score}", paint(NAME, label));
        }
    }
    Ok(())
}

fn write_outputs(directory: &Path, outputs: &[Value]) -> Result<(), Failure> {
    std::fs::create_dir_all(directory).map_err(|error| {
        Failure::new(format!("cannot create the folder '{}': {error}", directory.display()))
    })?;
    for (index, output) in outputs.iter().enumerate() {
        let tensor = match output {
            Value::Tensor(tensor) => tensor.clone(),
            Value::Int(value) => Tensor::scalar(*value)?,
            Value::Float(value) => Tensor::scalar(*value)?,
            Value::Bool(value) => Tensor::from_bools(&[], &[*value])?,
            _ => continue,
        };
        let path = directory.join(format!("output_{index}.npy"));
        npy::write(&path, &tensor)?;
        anstream::println!("{}", paint(FAINT, format!("wrote {}", path.display())));
    }
    Ok(())
}

fn show_times(times: &mut [Duration]) {
    times.sort();
    let text = match times {
        [] => return,
        [one] => duration(*one),
        many => format!(
            "{} runs: fastest {}, median {}",
            many.len(),
            duration(many[0]),
            duration(many[many.len() / 2])
        ),
    };
    anstream::println!("\n{}", paint(FAINT, text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_scores_are_not_zero() {
        assert_eq!(
            [0.0, 3.2e-5, -1.5, 12345.0].map(digits),
            ["0.0000", "3.2000e-5", "-1.5000", "12345.0000"]
        );
        assert_eq!([0.0, 3.2e-5, 0.9977].map(percent), ["  0.00%", " <0.01%", " 99.77%"]);
    }

    #[test]
    fn scores_become_probabilities_once() {
        assert_eq!(probabilities(&[0.25, 0.75]), [0.25, 0.75]);
        let softmax = probabilities(&[1000.0, 1000.0]);
        assert_eq!(softmax, [0.5, 0.5]);
        let softmax = probabilities(&[-2.0, 3.0, 0.5]);
        assert!((softmax.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
}
