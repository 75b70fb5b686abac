//! `torchlet diff`.

pub(crate) mod expose;
mod recorded;
mod table;
#[cfg(test)]
mod tests;

use crate::arguments::{Backend, DiffArguments, ModelOptions, Way};
use crate::budget::Budget;
use crate::failure::Failure;
use crate::{bench, model, report};
use expose::{Exposed, Origin};
use recorded::Recorded;
use torchlet::{FileAccess, Limits, Module, ModuleBuilder, RunOn, Tensor, Value};
use torchlet_devtools::Difference;

/// What the process ends with when values differ.
const DIFFERENT: u8 = 1;

/// How far one value is from the one that is expected.
struct Compared {
    /// What made it; `None` for outputs of the program as it is run without looking into it.
    origin: Option<Origin>,
    /// The position among the outputs.
    output: usize,
    /// Type and shape.
    what: String,
    difference: Result<Difference, String>,
}

#[derive(Debug, Clone, Copy)]
struct Tolerance {
    rtol: f64,
    atol: f64,
}

impl Compared {
    fn is_close(&self) -> bool {
        self.difference.as_ref().is_ok_and(Difference::is_close)
    }
}

/// Runs a program in two ways and compares all values. Gives the status that the process ends with.
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
    let plain = builder(arguments, Way::Kernels)?.run_on(RunOn::AsExported);
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
    let run = |way: Way| {
        let builder = builder(arguments, way)?;
        // As kernels run it, the exposed program is not changed any more.
        let builder = if way == Way::Kernels { builder.run_on(RunOn::AsExported) } else { builder };
        run(builder, &exposed.bytes, &method, &inputs)
    };
    let right = run(arguments.right)?;
    // As it is run without looking into it, more is fused.
    let whole = |way: Way| {
        let mut module = builder(arguments, way)?.load(&arguments.model)?;
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
        None => table::way(arguments.left).to_owned(),
    };
    if arguments.json {
        println!("{}", table::object(&compared));
    } else {
        table::show(&compared, &left, table::way(arguments.right));
    }
    Ok(compared.iter().all(Compared::is_close))
}

/// A builder for one way to run the program.
fn builder(arguments: &DiffArguments, way: Way) -> Result<ModuleBuilder, Failure> {
    let options = ModelOptions {
        data: arguments.data.clone(),
        threads: None,
        tier: None,
        backend: if way == Way::Vulkan { Backend::Vulkan } else { Backend::Cpu },
        device: arguments.device.clone().filter(|_| way == Way::Vulkan),
        pipeline_cache: None,
        tune: None,
        compile_cache: Some("off".into()),
        memory_limit: arguments.memory_limit,
        jump_limit: arguments.jump_limit,
    };
    if way != Way::Kernels {
        return model::builder(&options);
    }
    let mut limits = Limits::HOST;
    limits.backward_jumps = arguments.jump_limit;
    // Without the engine, what delegates compute is left to kernels.
    let mut builder = Module::builder()
        .file_access(FileAccess::Map)
        .memory_limit(arguments.memory_limit.saturating_mul(1 << 20))
        .limits(limits)
        .run_on(RunOn::Cpu)
        .without_default_backends();
    for path in &arguments.data {
        builder = builder.data(path);
    }
    Ok(builder)
}

/// All values of the exposed program.
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
    let inner = left.iter().zip(right).skip(exposed.outputs).zip(&exposed.values);
    let inner = inner.map(|((left, right), origin)| (Some(origin.clone()), 0, right, Some(left)));
    let whole = left_whole.iter().zip(right_whole).enumerate();
    let whole = whole.map(|(index, (left, right))| (None, index, right, Some(left)));
    inner
        .chain(whole)
        .filter_map(|(origin, output, right, left)| {
            of_values(origin, output, right, left?, tolerance)
        })
        .collect()
}

fn against_recorded(
    exposed: &Exposed,
    recorded: &Recorded,
    right: &[Value],
    right_whole: &[Value],
    tolerance: Tolerance,
) -> Vec<Compared> {
    let mut compared = Vec::new();
    if exposed.is_as_exported {
        for (right, origin) in right.iter().skip(exposed.outputs).zip(&exposed.values) {
            if let Some(left) = recorded.value(origin) {
                let left = Value::Tensor(left.clone());
                compared.extend(of_values(Some(origin.clone()), 0, right, &left, tolerance));
            }
        }
    }
    for (index, right) in right_whole.iter().enumerate() {
        if let Some(left) = recorded.output(index) {
            let left = Value::Tensor(left.clone());
            compared.extend(of_values(None, index, right, &left, tolerance));
        }
    }
    compared
}

/// Compares two values; `None` for those that are neither tensors nor numbers.
fn of_values(
    origin: Option<Origin>,
    output: usize,
    found: &Value,
    expected: &Value,
    tolerance: Tolerance,
) -> Option<Compared> {
    let (found, expected) = (as_tensor(found)?, as_tensor(expected)?);
    let what = found.info().to_string();
    // Exporters leave out views, so that the same elements may have another shape.
    let difference = if found.numel() == expected.numel() {
        let numbers = |tensor: &Tensor| tensor.to_f64_vec().map_err(|error| error.to_string());
        numbers(&found).and_then(|found| {
            let expected = numbers(&expected)?;
            let finite = expected.iter().filter(|value| value.is_finite());
            let squares: f64 = finite.clone().map(|value| value * value).sum();
            let scale = (squares / finite.count().max(1) as f64).sqrt().max(1.0);
            Ok(Difference::of(found, expected, tolerance.rtol, tolerance.atol * scale))
        })
    } else {
        Err(format!("the shape {:?} is expected, found {:?}", expected.shape(), found.shape()))
    };
    Some(Compared { origin, output, what, difference })
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
