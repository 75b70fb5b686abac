//! Inference on a model's input: logs outputs, memory and time.

use crate::memory::{Memory, Sizes};
use crate::models::Model;
use crate::watch::{OperatorTimer, ticks};
use crate::{Failed, checked, stack};
use defmt::println;
use torchlet::core::{
    Attached, InputError, LoadOptions, Method, Program, Registry, ScalarType, TensorRef, ValueMeta,
    ValueRef,
};
use torchlet::firmware::Error;

/// Loads a model into memory of these sizes and calls a function with it.
pub(crate) fn with<'m, R>(
    model: &Model,
    program: &Program<'m>,
    (memory, sizes): (&'m mut Memory<'_>, Sizes),
    options: LoadOptions<'m>,
    then: impl FnOnce(&mut Method<'m>) -> Result<R, Error>,
) -> Result<R, Error> {
    let registry = Registry::new().with_kernels(model.kernels)?;
    memory.lend(&sizes, |memory| {
        then(&mut program.load_method("forward", &registry, memory, options)?)
    })
}

/// Sets the input of a loaded model.
pub(crate) fn set_input(model: &Model, method: &mut Attached<'_, '_>) -> Result<(), Error> {
    let kind = || InputError::Kind { expected: "tensor", found: "another value" };
    let Ok(Some(ValueMeta::Tensor(input))) = method.meta().input(0) else {
        return Err(kind().into());
    };
    let (expected, found) = (input.info.nbytes(), model.input.len());
    let input = TensorRef::new(input.info, model.input).ok_or(Error::Length { expected, found })?;
    Ok(method.set_input_tensor(0, &input)?)
}

/// Runs a model with exactly the memory that the build determined, and logs its outputs, memory and
/// time.
pub(crate) fn all(model: &Model, memory: &mut Memory<'_>) -> Result<(), Failed> {
    let Model { name, .. } = *model;
    println!(
        "{=str}: program {=usize} arena {=usize} planned {=usize} scratch {=usize}",
        name,
        model.program.len(),
        model.arena,
        model.planned.iter().sum::<usize>(),
        model.scratch,
    );
    let sizes = Sizes::of(model);
    let depth = stack::paint();
    let program = checked(Program::from_bytes(model.program))?;
    let options = LoadOptions::default;
    let (loaded, load) = ticks(|| with(model, &program, (memory, sizes), options(), |_| Ok(())));
    checked(loaded)?;
    println!("{=str}: load ticks {=u64}", name, load);
    let run = with(model, &program, (memory, sizes), options(), |method| {
        let mut first = None;
        for _ in 0..model.runs {
            set_input(model, &mut method.attached())?;
            let (result, taken) = ticks(|| method.execute());
            result?;
            first.get_or_insert(taken);
        }
        log_outputs(name, "", method)?;
        Ok(first.unwrap_or(0))
    });
    let run = checked(run)?;
    println!("{=str}: stack {=usize}", name, stack::used(depth));
    println!("{=str}: run ticks {=u64}", name, run);
    let costs = OperatorTimer { name };
    let options = options().with_tracer(&costs);
    checked(with(model, &program, (memory, sizes), options, |method| {
        set_input(model, &mut method.attached())?;
        Ok(method.execute()?)
    }))
}

/// Logs the outputs as bytes, and the argmax of the first one: the class of a classifier.
pub(crate) fn log_outputs(name: &str, variant: &str, method: &Method<'_>) -> Result<(), Error> {
    for index in 0..method.output_count() {
        let ValueRef::Tensor(output) = method.output(index)? else { continue };
        let kind = output.info().scalar_type;
        let bytes = output.bytes();
        println!("{=str}{=str}: output {=usize} {} {=[u8]}", name, variant, index, kind, bytes);
        let class = match kind {
            ScalarType::Float => argmax(output.data::<f32>()?),
            ScalarType::Char => argmax(output.data::<i8>()?),
            _ => continue,
        };
        println!("{=str}{=str}: class {=usize}", name, variant, class);
    }
    Ok(())
}

/// Index of the maximum.
fn argmax<T: PartialOrd>(elements: &[T]) -> usize {
    let mut largest = 0;
    for (index, element) in elements.iter().enumerate() {
        if *element > elements[largest] {
            largest = index;
        }
    }
    largest
}
