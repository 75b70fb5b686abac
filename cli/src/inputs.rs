//! Inputs of a run: from files, images, bundled test cases, or generated.

use crate::arguments::InputOptions;
use crate::budget::Budget;
use crate::failure::Failure;
use crate::terminal::{WARN, paint};
use crate::{cases, image_input, npy};
use std::path::Path;
use torchlet::core::{Scalar, ShapeDynamism, TensorMeta, ValueMeta};
use torchlet::{Module, ScalarType, Tensor, Value};

fn shape_of(meta: &TensorMeta<'_>) -> Vec<usize> {
    (0..meta.info.rank()).map(|dim| meta.info.size(dim)).collect()
}

/// Collects all inputs of a method. Values whose size a file decides count against the budget.
pub(crate) fn gather(
    module: &Module,
    method: &str,
    options: &InputOptions,
    budget: &mut Budget,
) -> Result<Vec<Value>, Failure> {
    let meta = module.method_meta(method)?;
    let malformed = |error| Failure::new(format!("method '{method}': {error}"));
    let slots: Vec<ValueMeta<'_>> = (0..meta.input_count())
        .map(|index| Ok(meta.input(index).map_err(malformed)?.unwrap_or(ValueMeta::None)))
        .collect::<Result<_, Failure>>()?;
    let mut values: Vec<Option<Value>> = vec![None; slots.len()];

    if let Some(path) = &options.image {
        let position = slots.iter().position(
            |slot| matches!(slot, ValueMeta::Tensor(meta) if image_input::is_image_input(&meta.info)),
        );
        let Some(position) = position else {
            return Err(Failure::new(format!(
                "method '{method}' has no image input (shape [batch, 1 or 3 \
                 channels, height, width])"
            )));
        };
        if let ValueMeta::Tensor(meta) = &slots[position] {
            budget
                .take(image_input::needed(&meta.info), format!("the image for input {position}"))?;
            let image = image_input::read(path, &meta.info, &options.mean, &options.std)?;
            values[position] = Some(image.into());
        }
    }
    let mut free: Vec<usize> = (0..slots.len()).filter(|index| values[*index].is_none()).collect();
    free.reverse();
    for path in &options.input {
        for tensor in read_file(path, free.last().map(|index| &slots[*index]), budget)? {
            let Some(index) = free.pop() else {
                let count = slots.len();
                return Err(Failure::new(format!(
                    "'{}' is one input too many: method '{method}' has {count}",
                    path.display()
                )));
            };
            values[index] = Some(fit(tensor, &slots[index], index)?);
        }
    }
    let fill = if let Some(seed) = options.random {
        Some(Fill::Random(seed))
    } else {
        options.ones.then_some(Fill::Ones)
    };
    if fill.is_none() && values.iter().all(Option::is_none) && !slots.is_empty() {
        for suite in cases::suites(module)? {
            if suite.method == method
                && let Some(case) = suite.cases.first()
            {
                return cases::inputs(case, budget);
            }
        }
    }
    let mut missing = Vec::new();
    for (index, (value, slot)) in values.iter_mut().zip(&slots).enumerate() {
        if value.is_none() {
            *value = made_up(slot, index, fill, budget)?;
        }
        if value.is_none() {
            missing.push(format!("{index} ({})", describe(slot)));
        }
    }
    if !missing.is_empty() {
        let plural = if missing.len() == 1 { "" } else { "s" };
        return Err(Failure::new(format!(
            "no value for input{plural} {} of '{method}'; pass files with --input, or use --random \
             or --ones",
            missing.join(", ")
        )));
    }
    Ok(values.into_iter().flatten().collect())
}

/// Describes the type and shape of an input or output.
pub(crate) fn describe(slot: &ValueMeta<'_>) -> String {
    match slot {
        ValueMeta::None => "None".into(),
        ValueMeta::Scalar(Scalar::Int(_)) => "int".into(),
        ValueMeta::Scalar(Scalar::Bool(_)) => "bool".into(),
        ValueMeta::Scalar(Scalar::Double(_)) => "float".into(),
        ValueMeta::String(text) => format!("the string {text:?}"),
        ValueMeta::List(len) => format!("list of {len}"),
        ValueMeta::Tensor(meta) if meta.dynamism == ShapeDynamism::Static => meta.info.to_string(),
        ValueMeta::Tensor(meta) => format!("at most {}", meta.info),
        _ => "unknown".into(),
    }
}

fn read_file(
    path: &Path,
    slot: Option<&ValueMeta<'_>>,
    budget: &mut Budget,
) -> Result<Vec<Tensor>, Failure> {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or("");
    match extension.to_ascii_lowercase().as_str() {
        "npy" => Ok(vec![npy::read(path, budget)?]),
        "npz" => npy::read_archive(path, budget),
        "bin" | "raw" => Ok(vec![read_bare(path, slot, budget)?]),
        "png" | "jpg" | "jpeg" => Err(Failure::new(format!(
            "'{}' is an image; pass it with --image instead of --input",
            path.display()
        ))),
        _ => Err(Failure::new(format!(
            "'{}' is not a supported input file: expected .npy, .npz or .bin",
            path.display()
        ))),
    }
}

/// Reads raw elements with the type and shape of the input. The first dim of a dynamic shape is
/// derived from the file's size.
fn read_bare(
    path: &Path,
    slot: Option<&ValueMeta<'_>>,
    budget: &mut Budget,
) -> Result<Tensor, Failure> {
    let in_file = |what: String| Failure::new(format!("'{}': {what}", path.display()));
    let bytes = budget.read(path)?;
    let Some(ValueMeta::Tensor(meta)) = slot else {
        return Err(in_file("expected a tensor input for a .bin file".into()));
    };
    let mut shape = shape_of(meta);
    let row = shape.iter().skip(1).product::<usize>() * meta.info.scalar_type.size();
    if meta.dynamism != ShapeDynamism::Static
        && row > 0
        && let Some(first) = shape.first_mut()
    {
        *first = (bytes.len() / row).min(*first);
    }
    Tensor::from_bytes(meta.info.scalar_type, &shape, &bytes).map_err(|_| {
        let (expected, found) = (meta.info.nbytes(), bytes.len());
        in_file(format!("input {}: expected {expected} bytes, found {found}", meta.info))
    })
}

/// Converts a tensor for an input: to a scalar for scalar inputs, and to the input's element type
/// within the kinds integer and float.
fn fit(tensor: Tensor, slot: &ValueMeta<'_>, index: usize) -> Result<Value, Failure> {
    let scalar_type = match slot {
        ValueMeta::Tensor(meta) => meta.info.scalar_type,
        ValueMeta::Scalar(scalar) if tensor.numel() == 1 => {
            let numbers = tensor.to_f64_vec()?;
            let number = numbers.first().copied().unwrap_or_default();
            return Ok(match scalar {
                Scalar::Double(_) => Value::Float(number),
                Scalar::Bool(_) => Value::Bool(number != 0.0),
                Scalar::Int(_) => {
                    Value::Int(tensor.reshape(&[])?.to_type(ScalarType::Long)?.item::<i64>()?)
                }
            });
        }
        _ => return Ok(tensor.into()),
    };
    let found = tensor.scalar_type();
    if found == scalar_type {
        return Ok(tensor.into());
    }
    let to_float = scalar_type.is_floating() && (found.is_floating() || found.is_integral(true));
    let to_int = scalar_type.is_integral(false) && found.is_integral(true);
    if !(to_float || to_int) {
        return Err(Failure::new(format!(
            "input {index}: expected {scalar_type}, but the file has {found}; convert it first"
        )));
    }
    let note = format!("input {index}: converted from {found} to {scalar_type}");
    anstream::eprintln!("{} {note}", paint(WARN, "note:"));
    Ok(tensor.to_type(scalar_type)?.into())
}

#[derive(Debug, Clone, Copy)]
enum Fill {
    Random(u64),
    Ones,
}

/// Generates a value; `None` without a fill. Scalars and strings keep their exported values.
fn made_up(
    slot: &ValueMeta<'_>,
    index: usize,
    fill: Option<Fill>,
    budget: &mut Budget,
) -> Result<Option<Value>, Failure> {
    Ok(match (slot, fill) {
        (ValueMeta::None, _) => Some(Value::None),
        (ValueMeta::String(text), _) => Some((*text).into()),
        (ValueMeta::Scalar(scalar), Some(_)) => Some((*scalar).into()),
        (ValueMeta::Tensor(meta), Some(fill)) => {
            budget.take(meta.info.nbytes(), format!("input {index} ({})", describe(slot)))?;
            let (scalar_type, shape) = (meta.info.scalar_type, shape_of(meta));
            let tensor = match fill {
                Fill::Ones => Tensor::ones(scalar_type, &shape)?,
                Fill::Random(seed) => {
                    let seed = seed.wrapping_add((index as u64).wrapping_mul(0x1_0001));
                    random(scalar_type, &shape, seed)?
                }
            };
            Some(tensor.into())
        }
        _ => None,
    })
}

/// Random elements. Wide integers are 0 or 1, because they are often indices.
fn random(scalar_type: ScalarType, shape: &[usize], seed: u64) -> Result<Tensor, torchlet::Error> {
    let range = match scalar_type {
        _ if scalar_type.is_floating() => return Tensor::rand(scalar_type, shape, seed),
        ScalarType::Byte => 0..256,
        ScalarType::Char => -128..128,
        _ => 0..2,
    };
    Tensor::randint(scalar_type, shape, range, seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchlet::graph::method::Program;

    /// A program that has one tensor as thousands of inputs.
    #[test]
    fn generated_inputs_respect_the_budget() {
        let file = "/../tests/fixtures/digits/digits.pte";
        let file = format!("{}{file}", env!("CARGO_MANIFEST_DIR"));
        let open = || Module::builder().run_on(torchlet::RunOn::AsExported);
        let source = open().load(file).unwrap();
        let program = source.program();
        let mut program = Program::read(&program).unwrap();
        let input = program.methods[0].inputs[0];
        program.methods[0].inputs = vec![input; 5000];
        let module = open().from_bytes(program.write().unwrap().to_bytes()).unwrap();
        let options = InputOptions::random(0);
        // Each input has 256 bytes.
        let error = gather(&module, "forward", &options, &mut Budget::new(1)).unwrap_err();
        assert!(error.to_string().contains("input 4096"), "{error}");
        assert_eq!(gather(&module, "forward", &options, &mut Budget::new(2)).unwrap().len(), 5000);
    }
}
