//! `torchlet diff`.

pub(crate) mod expose;
mod recorded;
mod table;
#[cfg(test)]
mod tests;

use crate::arguments::{DiffArguments, ExecutionPath, ModelOptions};
use crate::budget::Budget;
use crate::failure::Failure;
use crate::{bench, model, report};
use expose::{Exposed, Origin, Step};
use recorded::Recorded;
use std::collections::BTreeMap;
use torchlet::{Module, ModuleBuilder, RunOn, ScalarType, Tensor, Value};
use torchlet_devtools::Difference;

/// Exit status if values differ.
const DIFFERENT: u8 = 1;

/// Comparison of a value with its reference.
struct Compared {
    /// The call that computed it; `None` for outputs of the unmodified program.
    origin: Option<Origin>,
    /// Index among the outputs.
    output: usize,
    /// Type and shape.
    what: String,
    difference: Result<Difference, String>,
    /// Whether it is in tolerance only because of its quantization step.
    is_off_by_a_step: bool,
}

/// Tolerances from the command line; `None` selects the defaults of a value's type.
#[derive(Debug, Clone, Copy, Default)]
struct Tolerance {
    rtol: Option<f64>,
    atol: Option<f64>,
}

impl Tolerance {
    /// Returns `[rtol, atol]` for a value.
    fn of(self, expected: &Tensor) -> [f64; 2] {
        let [rtol, atol] = match expected.scalar_type() {
            ScalarType::Half => [1e-2, 5e-3],
            ScalarType::BFloat16 => [5e-2, 2e-2],
            other if other.is_floating() => [1e-3, 1e-4],
            _ => [0.0, 0.0],
        };
        [self.rtol.unwrap_or(rtol), self.atol.unwrap_or(atol)]
    }
}

/// Instructions whose results are off by a quantization step, with that step. Values computed from
/// them may be off by a step as well.
#[derive(Debug, Default)]
struct Steps(BTreeMap<usize, Option<f64>>);

impl Steps {
    /// The additional tolerance of a value due to quantization steps, if any.
    fn allowed(&self, origin: &Origin) -> Option<f64> {
        if let Some(Step(step)) = origin.step {
            return Some(step);
        }
        let mut before = origin.made_of.iter().filter_map(|at| self.0.get(at)).peekable();
        before.peek()?;
        let of_inputs = before.flatten().copied().reduce(f64::max);
        origin.next_step.map(|Step(step)| step).or(of_inputs)
    }

    /// Records a compared value.
    fn note(&mut self, compared: &Compared, allowed: Option<f64>) {
        if let Some(origin) = compared.origin.as_ref().filter(|_| compared.is_off_by_a_step) {
            self.0.insert(origin.instruction, allowed);
        }
    }
}

impl Compared {
    fn is_close(&self) -> bool {
        self.difference.as_ref().is_ok_and(Difference::is_close)
    }
}

/// Runs a program in two configurations and compares all values. Returns the exit status.
pub(crate) fn diff(arguments: &DiffArguments) -> u8 {
    match compare(arguments) {
        Ok(true) => 0,
        Ok(false) => DIFFERENT,
        Err(failure) => {
            report(&failure);
            crate::FAILED
        }
    }
}

fn compare(arguments: &DiffArguments) -> Result<bool, Failure> {
    let plain = builder(arguments, ExecutionPath::Kernels)?.run_on(RunOn::AsExported);
    let file = plain.load(&arguments.model)?;
    let method = model::choose_method(&file, arguments.method.as_deref())?;
    let mut budget = Budget::new(arguments.memory_limit);
    let inputs = bench::inputs(&file, &method, &arguments.inputs, &mut budget)?;
    let exposed = Exposed::of(&file, &method)?;
    let tolerance = Tolerance { rtol: arguments.rtol, atol: arguments.atol };
    let recorded = match (&arguments.against, &arguments.etdump, &arguments.debug_buffer) {
        (Some(path), ..) => Some(Recorded::archive(path, &mut budget)?.check(&exposed, path)?),
        (_, Some(dump), Some(buffer)) => Some(Recorded::dump(dump, buffer)?.check(&exposed, dump)?),
        _ => None,
    };
    let run = |execution: ExecutionPath| {
        let builder = builder(arguments, execution)?;
        // Kernels run the exposed program unchanged; it is not compiled again.
        let builder = if execution == ExecutionPath::Kernels {
            builder.run_on(RunOn::AsExported)
        } else {
            builder
        };
        run(builder, &exposed.bytes, &method, &inputs)
    };
    let right = run(arguments.right)?;
    // The unmodified program: more of it is fused than in the exposed one.
    let whole = |execution: ExecutionPath| {
        let mut module = builder(arguments, execution)?.load(&arguments.model)?;
        Ok::<_, Failure>(module.method(&method)?.execute(&inputs)?)
    };
    let right_whole = whole(arguments.right)?;
    let compared = match &recorded {
        Some(recorded) => against_recorded(&exposed, recorded, &right, &right_whole, tolerance),
        None => {
            let (left, left_whole) = (run(arguments.left)?, whole(arguments.left)?);
            against_run(&exposed, [&left, &left_whole], [&right, &right_whole], tolerance)
        }
    };
    let left = match &recorded {
        Some(_) => "recorded".to_owned(),
        None => arguments.left.name().to_owned(),
    };
    if arguments.json {
        println!("{}", table::object(&compared));
    } else {
        table::show(&compared, &left, arguments.right.name());
    }
    Ok(compared.iter().all(Compared::is_close))
}

/// Creates a builder for a configuration.
fn builder(arguments: &DiffArguments, execution: ExecutionPath) -> Result<ModuleBuilder, Failure> {
    let backend = match execution {
        ExecutionPath::Compiled(processor) => processor,
        ExecutionPath::Kernels => RunOn::Cpu,
    };
    let options = ModelOptions {
        data: arguments.data.clone(),
        threads: None,
        tier: None,
        allow_foreign_shaders: false,
        backend,
        device: arguments.device.clone().filter(|_| matches!(backend, RunOn::Device(_))),
        pipeline_cache: None,
        tune: None,
        compile_cache: Some("off".into()),
        memory_limit: arguments.memory_limit,
        jump_limit: arguments.jump_limit,
    };
    if execution != ExecutionPath::Kernels {
        return model::builder(&options);
    }
    // Without the engine, delegates are decomposed into kernel calls.
    Ok(model::without_devices(&options).run_on(RunOn::Cpu).without_default_backends())
}

/// Runs the exposed program and returns all its values.
fn run(
    builder: ModuleBuilder,
    bytes: &[u8],
    method: &str,
    inputs: &[Value],
) -> Result<Vec<Value>, Failure> {
    let mut module: Module = builder.from_bytes(bytes.to_vec())?;
    Ok(module.method(method)?.execute(inputs)?)
}

fn against_run(
    exposed: &Exposed,
    [left, left_whole]: [&[Value]; 2],
    [right, right_whole]: [&[Value]; 2],
    tolerance: Tolerance,
) -> Vec<Compared> {
    let inner = left.iter().zip(right).skip(exposed.outputs);
    let mut compared = Vec::new();
    let mut steps = Steps::default();
    for ((left, right), origin) in inner.zip(&exposed.values) {
        compared.extend(of_inner(origin, right, left, tolerance, &mut steps));
    }
    for (index, (left, right)) in left_whole.iter().zip(right_whole).enumerate() {
        compared.extend(of_output(exposed, index, right, left, tolerance));
    }
    compared
}

fn against_recorded(
    exposed: &Exposed,
    recorded: &Recorded,
    right: &[Value],
    right_whole: &[Value],
    tolerance: Tolerance,
) -> Vec<Compared> {
    let mut compared = Vec::new();
    let mut steps = Steps::default();
    if exposed.is_as_exported {
        for (right, origin) in right.iter().skip(exposed.outputs).zip(&exposed.values) {
            if let Some(left) = recorded.value(origin) {
                let left = Value::Tensor(left.clone());
                compared.extend(of_inner(origin, right, &left, tolerance, &mut steps));
            }
        }
    }
    for (index, right) in right_whole.iter().enumerate() {
        if let Some(left) = recorded.output(index) {
            let left = Value::Tensor(left.clone());
            compared.extend(of_output(exposed, index, right, &left, tolerance));
        }
    }
    compared
}

/// Compares an intermediate value.
fn of_inner(
    origin: &Origin,
    found: &Value,
    expected: &Value,
    tolerance: Tolerance,
    steps: &mut Steps,
) -> Option<Compared> {
    let allowed = steps.allowed(origin);
    let compared = of_values(Some(origin.clone()), 0, [found, expected], tolerance, allowed)?;
    steps.note(&compared, allowed);
    Some(compared)
}

/// Compares an output of the unmodified program.
fn of_output(
    exposed: &Exposed,
    index: usize,
    found: &Value,
    expected: &Value,
    tolerance: Tolerance,
) -> Option<Compared> {
    let step = exposed.output_steps.get(index).copied().flatten();
    of_values(None, index, [found, expected], tolerance, step.map(|Step(step)| step))
}

/// Compares two values; `None` unless both are tensors or scalars. `step` is an additional absolute
/// tolerance.
fn of_values(
    origin: Option<Origin>,
    output: usize,
    [found, expected]: [&Value; 2],
    tolerance: Tolerance,
    step: Option<f64>,
) -> Option<Compared> {
    let (found, expected) = (as_tensor(found)?, as_tensor(expected)?);
    let what = found.info().to_string();
    let [rtol, atol] = tolerance.of(&expected);
    // Exporters elide views, so the same elements may have another shape.
    let difference = if found.numel() == expected.numel() {
        let numbers = |tensor: &Tensor| tensor.to_f64_vec().map_err(|error| error.to_string());
        numbers(&found).and_then(|found| {
            let expected = numbers(&expected)?;
            let finite = expected.iter().filter(|value| value.is_finite());
            let squares: f64 = finite.clone().map(|value| value * value).sum();
            let scale = (squares / finite.count().max(1) as f64).sqrt().max(1.0);
            let within = |atol: f64| {
                Difference::of(found.iter().copied(), expected.iter().copied(), rtol, atol)
            };
            let plain = within(atol * scale);
            let Some(step) = step.filter(|_| !plain.is_close()) else { return Ok((plain, false)) };
            // Rounded values differ by a step, up to `f32` rounding.
            let stepped = within((atol * scale).max(step * (1.0 + 1e-5)));
            let is_close = stepped.is_close();
            Ok((stepped, is_close))
        })
    } else {
        Err(format!("expected shape {:?}, found {:?}", expected.shape(), found.shape()))
    };
    let is_off_by_a_step = difference.as_ref().is_ok_and(|(_, is_off)| *is_off);
    let difference = difference.map(|(difference, _)| difference);
    Some(Compared { origin, output, what, difference, is_off_by_a_step })
}

fn as_tensor(value: &Value) -> Option<Tensor> {
    match value {
        Value::Tensor(tensor) => Some(tensor.clone()),
        Value::Int(value) => Tensor::scalar(*value).ok(),
        Value::Float(value) => Tensor::scalar(*value).ok(),
        Value::Bool(value) => Tensor::from_bools(&[], &[*value]).ok(),
        _ => None,
    }
}
