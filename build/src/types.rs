//! The element types that a program's kernels require.

use torchlet_core::{Elements, Kernel, Scalar, ScalarType};
use torchlet_graph::method::{Instruction, Method, MethodValue};
use torchlet_portable::Types;

/// The types of a method's calls.
///
/// Kernels compute in the types of their inputs. They compute in the type of an output only if
/// values are converted to it. Integer outputs of floating-point inputs are indices, which are
/// stored directly.
pub(crate) fn of(method: &Method<'_>, kernels: &[Kernel]) -> Types {
    let mut types = Types::NONE;
    for instruction in &method.instructions {
        let Instruction::Kernel { name, overload, args } = instruction else { continue };
        let full = if overload.is_empty() { name.clone() } else { format!("{name}.{overload}") };
        let Some(kernel) = kernels.iter().find(|kernel| kernel.name == full) else { continue };
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for (param, &value) in kernel.params.iter().zip(args) {
            let side = if param.is_out() { &mut outputs } else { &mut inputs };
            tensors(method, value, side);
        }
        if kernel.elements == Elements::Typed {
            continue;
        }
        for &found in inputs.iter().chain(&outputs) {
            types = types.with_element(found);
        }
        if kernel.elements == Elements::Moved {
            continue;
        }
        let all = kernel.elements == Elements::Computed;
        let has_fractions = inputs.iter().any(|found| found.is_floating());
        let computed = outputs.iter().filter(|found| !(has_fractions && found.is_integral(true)));
        for &found in inputs.iter().chain(computed).filter(|found| all || found.is_floating()) {
            types = types.with_computed(found);
        }
        if args.iter().any(|&value| is_fraction(method, value)) {
            types = types.with_computed(ScalarType::Float);
        }
    }
    types
}

/// Whether a value is a floating-point scalar, which makes integer tensors compute in floating
/// point.
fn is_fraction(method: &Method<'_>, value: usize) -> bool {
    matches!(method.values.get(value), Some(MethodValue::Scalar(Scalar::Double(_))))
}

/// Collects the element types of a tensor or tensor list.
fn tensors(method: &Method<'_>, value: usize, into: &mut Vec<ScalarType>) {
    match method.values.get(value) {
        Some(MethodValue::Tensor(tensor)) => into.push(tensor.info.scalar_type),
        Some(list @ (MethodValue::Tensors(_) | MethodValue::OptionalTensors(_))) => {
            list.items().for_each(|item| tensors(method, item, into));
        }
        _ => {}
    }
}
