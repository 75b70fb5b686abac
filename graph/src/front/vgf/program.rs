//! A VGF file on its own: a program whose method calls the file as its delegate.

use super::{BACKEND, Container, Resource, tensor_type};
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
    let mut method = Method { name: String::from("forward"), ..Method::default() };
    let mut args = Vec::new();
    for resource in container.inputs.iter().chain(&container.outputs) {
        let info = info(&container, *resource)?;
        args.push(method.add(MethodValue::Tensor(MethodTensor {
            info,
            dynamism: ShapeDynamism::Static,
            location: None,
            data: TensorData::None,
            name: None,
        })));
    }
    let (inputs, outputs) = args.split_at_checked(container.inputs.len()).unwrap_or_default();
    (method.inputs, method.outputs) = (inputs.to_vec(), outputs.to_vec());
    method.instructions.push(Instruction::Delegate { delegate: 0, args });
    let (backend, processed) = (String::from(BACKEND), Cow::Borrowed(bytes));
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
    let sizes = of.sizes.iter().map(|size| i32::try_from(*size).ok());
    let sizes = sizes.collect::<Option<Vec<i32>>>();
    sizes.and_then(|sizes| TensorInfo::contiguous(scalar_type, &sizes)).ok_or_else(|| {
        Error::Unsupported(format!("VGF resource {resource}: the shape {:?}", of.sizes))
    })
}
