//! A VGF file on its own: a program whose method calls the file as its delegate.

use super::spirv::TensorType;
use super::{BACKEND, Container, Resource, tensor_type, tosa};
use crate::error::Error;
use crate::method::{
    Delegate, Instruction, Method, MethodTensor, MethodValue, Program, TensorData,
};
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::{ScalarType, ShapeDynamism, TensorInfo};

/// Converts a file to a program. The method `forward` has the inputs and outputs of the model
/// sequence, in their order. The file is borrowed.
///
/// # Errors
/// The file is malformed, or an input or output is not a tensor of a known format.
pub(crate) fn program(bytes: &[u8]) -> Result<Program<'_>, Error> {
    let container = Container::read(bytes)?;
    container.check()?;
    let infos = |resources: &[usize]| {
        let infos = resources.iter().map(|resource| info(&container, *resource));
        infos.collect::<Result<Vec<TensorInfo>, Error>>()
    };
    of_delegate(BACKEND, bytes, infos(&container.inputs)?, infos(&container.outputs)?)
}

/// Converts a TOSA flatbuffer to a program, as [`program`] does.
///
/// # Errors
/// The file is malformed or unsupported.
pub(crate) fn tosa_program(bytes: &[u8]) -> Result<Program<'_>, Error> {
    let graph = tosa::Graph::read(bytes)?;
    let infos = |ends: &[(u32, TensorType)]| {
        let infos = ends.iter().map(|(_, of)| {
            contiguous(of.scalar_type, &of.sizes).ok_or_else(|| {
                Error::Unsupported(format!("an input or output of shape {:?}", of.sizes))
            })
        });
        infos.collect::<Result<Vec<TensorInfo>, Error>>()
    };
    of_delegate(tosa::BACKEND, bytes, infos(&graph.inputs)?, infos(&graph.outputs)?)
}

/// A program whose method `forward` calls a delegate.
fn of_delegate<'p>(
    backend: &str,
    bytes: &'p [u8],
    inputs: Vec<TensorInfo>,
    outputs: Vec<TensorInfo>,
) -> Result<Program<'p>, Error> {
    let mut method = Method { name: String::from("forward"), ..Method::default() };
    let (mut args, count) = (Vec::new(), inputs.len());
    for info in inputs.into_iter().chain(outputs) {
        args.push(method.add(MethodValue::Tensor(MethodTensor {
            info,
            dynamism: ShapeDynamism::Static,
            location: None,
            data: TensorData::None,
            name: None,
        })));
    }
    let (inputs, outputs) = args.split_at_checked(count).unwrap_or_default();
    (method.inputs, method.outputs) = (inputs.to_vec(), outputs.to_vec());
    method.instructions.push(Instruction::Delegate { delegate: 0, args });
    let (backend, processed) = (String::from(backend), Cow::Borrowed(bytes));
    method.delegates.push(Delegate { backend, processed, specs: Vec::new() });
    method.plan()?;
    Ok(Program { methods: vec![method], named: Vec::new() })
}

/// Describes an input or output. Unlike in SPIR-V, integers have a sign.
fn info(container: &Container<'_>, resource: usize) -> Result<TensorInfo, Error> {
    let of = tensor_type(container, resource)?;
    let name = container.resources.get(resource).and_then(Resource::format_name);
    let scalar_type = match name {
        Some("R8_UINT") => ScalarType::Byte,
        Some("R16_UINT") => ScalarType::UInt16,
        Some("R32_UINT") => ScalarType::UInt32,
        _ => of.scalar_type,
    };
    contiguous(scalar_type, &of.sizes).ok_or_else(|| {
        Error::Unsupported(format!("VGF resource {resource}: the shape {:?}", of.sizes))
    })
}

fn contiguous(scalar_type: ScalarType, sizes: &[usize]) -> Option<TensorInfo> {
    let sizes: Option<Vec<i32>> = sizes.iter().map(|size| i32::try_from(*size).ok()).collect();
    TensorInfo::contiguous(scalar_type, &sizes?)
}
