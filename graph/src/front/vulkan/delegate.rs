//! The graph of a delegate of a method, bound to the call that the method makes.

use super::{Argument, Bound, is_blob, read};
use crate::graph::{Graph, Value};
use crate::method::{Instruction, Method, MethodValue};
use alloc::borrow::Cow;
use torchlet_core::{DataMap, Program, ShapeDynamism};

/// The graph of a delegate, whose inputs and outputs are the arguments of its call. `None` if it is not of this front-end, cannot be
/// understood, is called more than once, or keeps state: then it stays a delegate.
pub fn graph_of<'p>(
    method: &Method<'p>,
    delegate: usize,
    program: &Program<'p>,
    data: &'p [DataMap<'p>],
) -> Option<Graph<'p>> {
    let Cow::Borrowed(bytes) = method.delegates.get(delegate)?.processed else { return None };
    if !is_blob(bytes) {
        return None;
    }
    let named = |key: &str| {
        if let Some(blob) = program.named_data(key)? {
            return Ok(Some(blob));
        }
        for map in data {
            if let Some(blob) = map.get(key)? {
                return Ok(Some(blob));
            }
        }
        Ok(None)
    };
    let mut calls = method.instructions.iter().filter_map(|instruction| match instruction {
        Instruction::Delegate { delegate: called, args } if *called == delegate => Some(args),
        _ => None,
    });
    let (args, None) = (calls.next()?, calls.next()) else { return None };
    let arguments: Option<alloc::vec::Vec<Argument>> =
        args.iter().map(|arg| argument(method.values.get(*arg)?)).collect();
    let bound = Bound::new(read(bytes, &named).ok()?, &arguments?).ok()?;
    let changes =
        |value: &Value<'_>| matches!(value, Value::Tensor(tensor) if tensor.changes == Some(true));
    let keeps_state = !bound.graph.updates.is_empty() || bound.graph.values.iter().any(changes);
    (!keeps_state).then_some(bound.graph)
}

fn argument(value: &MethodValue<'_>) -> Option<Argument> {
    Some(match value {
        MethodValue::Tensor(tensor) => Argument::Tensor {
            scalar_type: tensor.info.scalar_type,
            sizes: (0..tensor.info.rank()).map(|dim| tensor.info.size(dim)).collect(),
            dynamic: tensor.dynamism != ShapeDynamism::Static,
        },
        MethodValue::Scalar(_) | MethodValue::None => Argument::Number,
        _ => return None,
    })
}
