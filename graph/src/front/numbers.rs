//! Finds the scalars of a method that are integers in every run. The initial value in the file does
//! not tell the type of the values that instructions write later.

use super::vocabulary::full_name;
use crate::method::{Instruction, Method, MethodValue};
use crate::operators::{Integers, Operator};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use torchlet_core::Scalar;

/// Returns the scalars that instructions may set to something other than an integer.
///
/// `whole` decides whether a delegate returns only integers. `has_meaning` decides whether a graph
/// can express a kernel; the scalar outputs of such a kernel follow all of its inputs.
pub(super) fn not_whole(
    method: &Method<'_>,
    whole: &dyn Fn(usize) -> bool,
    has_meaning: &dyn Fn(&str, &str) -> bool,
) -> BTreeSet<usize> {
    let is_scalar =
        |value: &usize| matches!(method.values.get(*value), Some(MethodValue::Scalar(_)));
    // Results of each instruction, and the inputs that determine whether they are integers; `None`
    // if the results can be anything.
    let mut made: Vec<(&[usize], Option<&[usize]>)> = Vec::new();
    let mut next: Vec<usize> = Vec::new();
    for instruction in &method.instructions {
        match instruction {
            Instruction::Kernel { name, overload, args } => {
                let Some((_, inputs)) = args.split_last() else { continue };
                let results = args.get(inputs.len()..).unwrap_or_default();
                let has_meaning = has_meaning(name, overload);
                let name = full_name(name, overload);
                let operator = Operator::of_instruction(&name);
                let integers = operator.map_or(Integers::Unknown, |it| it.traits().integers);
                if integers == Integers::Always {
                    continue;
                }
                let of_whole = integers == Integers::IfArguments;
                // Other kernels may have scalar outputs at any position.
                let known = has_meaning
                    || name.starts_with("aten::")
                    || name.starts_with("executorch_prim::")
                    || operator.is_some();
                if known {
                    made.push((results, of_whole.then_some(inputs)));
                } else {
                    next.extend(args.iter().copied().filter(is_scalar));
                }
            }
            Instruction::Delegate { delegate, .. } if whole(*delegate) => {}
            Instruction::Delegate { args, .. } => {
                next.extend(args.iter().copied().filter(is_scalar));
            }
            Instruction::Move { from, to } => {
                made.push((core::slice::from_ref(to), Some(core::slice::from_ref(from))));
            }
            Instruction::JumpFalse { .. } | Instruction::Free { .. } => {}
        }
    }
    // Instructions may also write values that are initially `None`.
    let is_number = |value: &usize| {
        is_scalar(value) || matches!(method.values.get(*value), Some(MethodValue::None))
    };
    made.retain(|(results, _)| results.iter().any(is_number));
    let starts_whole = |value: &usize| match method.values.get(*value) {
        Some(MethodValue::Scalar(Scalar::Int(_)) | MethodValue::None) => true,
        Some(MethodValue::Tensor(tensor)) => tensor.info.scalar_type.is_integral(false),
        _ => false,
    };
    // Maps each scalar to the results that are computed from it.
    let mut readers: BTreeMap<usize, Vec<&[usize]>> = BTreeMap::new();
    for (results, inputs) in made {
        match inputs.filter(|inputs| inputs.iter().all(starts_whole)) {
            Some(inputs) => inputs.iter().for_each(|input| {
                readers.entry(*input).or_default().push(results);
            }),
            None => next.extend(results.iter().filter(|value| is_number(value))),
        }
    }
    let mut found = BTreeSet::new();
    while let Some(value) = next.pop() {
        if found.insert(value) {
            let results = readers.remove(&value).into_iter().flatten().flatten();
            next.extend(results.filter(|value| is_number(value)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::{MethodTensor, TensorData};
    use alloc::string::{String, ToString};
    use alloc::vec;
    use torchlet_core::{ScalarType, ShapeDynamism, TensorInfo};

    #[test]
    fn numbers_are_followed() {
        let int = || MethodValue::Scalar(Scalar::Int(0));
        let half = MethodValue::Scalar(Scalar::Double(0.5));
        let call = |name: &str, args: &[usize]| {
            let (name, overload) = name.split_once('.').unwrap_or((name, ""));
            let args = args.to_vec();
            Instruction::Kernel { name: name.to_string(), overload: overload.to_string(), args }
        };
        let method = Method {
            values: [(0..8).map(|_| int()).collect(), vec![half]].concat(),
            instructions: vec![
                call("aten::sym_numel", &[8, 0]),
                call("executorch_prim::add.Scalar", &[0, 0, 1]),
                call("executorch_prim::mul.Scalar", &[1, 8, 2]),
                call("executorch_prim::trunc.Scalar", &[2, 3]),
                // In a loop, the negation reads the value that the later move writes.
                call("executorch_prim::neg.Scalar", &[5, 4]),
                Instruction::Move { from: 2, to: 5 },
                call("own::kernel", &[6, 8]),
                call("dim_order_ops::_clone_dim_order.out", &[0, 1, 0, 9]),
                Instruction::Delegate { delegate: 0, args: vec![7] },
            ],
            ..Method::default()
        };
        let found: Vec<usize> = not_whole(&method, &|_| true, &|_, _| false).into_iter().collect();
        assert_eq!(found, [2, 4, 5, 6, 8]);
        assert!(not_whole(&method, &|_| false, &|_, _| false).contains(&7));
        // A known kernel writes only its last argument, if that is a scalar.
        let is_own = |name: &str, _: &str| name == "own::kernel";
        let found: Vec<usize> = not_whole(&method, &|_| true, &is_own).into_iter().collect();
        assert_eq!(found, [2, 4, 5, 8]);
    }

    #[test]
    fn elements_of_integers_are_integers() {
        let tensor = |scalar_type| {
            MethodValue::Tensor(MethodTensor {
                info: TensorInfo::contiguous(scalar_type, &[1]).unwrap(),
                dynamism: ShapeDynamism::Static,
                location: None,
                data: TensorData::None,
                name: None,
            })
        };
        let element = |from, to| Instruction::Kernel {
            name: "aten::_local_scalar_dense".to_string(),
            overload: String::new(),
            args: vec![from, to],
        };
        let number = || MethodValue::Scalar(Scalar::Int(0));
        let types = [ScalarType::Long, ScalarType::Int, ScalarType::Float, ScalarType::Bool];
        let method = Method {
            values: types.into_iter().map(tensor).chain((0..4).map(|_| number())).collect(),
            instructions: (0..4).map(|at| element(at, at + 4)).collect(),
            ..Method::default()
        };
        let found: Vec<usize> = not_whole(&method, &|_| true, &|_, _| true).into_iter().collect();
        assert_eq!(found, [6, 7]);
    }
}
