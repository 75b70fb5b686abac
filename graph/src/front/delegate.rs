//! Reads the graph of a delegate and binds it to the delegate's call in the method.

use super::vulkan::{self, Argument, Bound};
use super::{vgf, xnnpack};
use crate::blob;
use crate::budget::Computed;
use crate::error::Error;
use crate::graph::{Graph, Value};
use crate::method::{Delegate, Instruction, Method, MethodValue};
use crate::named::Named;
use alloc::borrow::Cow;
use alloc::format;
use alloc::vec::Vec;
use torchlet_core::ShapeDynamism;

/// Whether a delegate's graph can be read: blobs of the Vulkan, XNNPACK and VGF partitioners, and
/// blobs of this compiler for any backend.
pub(crate) fn is_readable(delegate: &Delegate<'_>) -> bool {
    let bytes = &delegate.processed;
    match &*delegate.backend {
        vulkan::BACKEND if vulkan::is_blob(bytes) => true,
        xnnpack::BACKEND if xnnpack::is_blob(bytes) => true,
        vgf::BACKEND if vgf::is_blob(bytes) => true,
        vgf::tosa::BACKEND if vgf::tosa::is_blob(bytes) => true,
        _ => blob::is_blob(bytes),
    }
}

/// Whether a backend is ExecuTorch's Vulkan backend: the only backend for devices other than the
/// CPU whose exported delegates this compiler can read.
pub fn is_exported_for_device(backend: &str) -> bool {
    backend == vulkan::BACKEND
}

/// Backends whose delegates run only compiled, with the names of their formats.
const ONLY_COMPILED: [(&str, &str); 3] =
    [(xnnpack::BACKEND, "XNNPACK"), (vgf::BACKEND, "VGF"), (vgf::tosa::BACKEND, "TOSA")];

/// Whether delegates of a backend run only compiled: this compiler reads them, and none of the
/// project's backends runs them as exported.
pub fn runs_only_compiled(backend: &str) -> bool {
    only_compiled(backend).is_some()
}

/// The format of delegates that run only compiled; `None` for other backends.
pub(crate) fn only_compiled(backend: &str) -> Option<&'static str> {
    ONLY_COMPILED.iter().find(|(id, _)| *id == backend).map(|(_, name)| *name)
}

/// Reads the keys of the named data that a delegate uses; `None` if its format is unknown.
///
/// # Errors
/// The bytes are malformed.
pub(crate) fn keys(bytes: &[u8]) -> Result<Option<Vec<&str>>, Error> {
    if blob::is_blob(bytes) {
        return blob::keys(bytes).map(Some);
    }
    if vulkan::is_blob(bytes) {
        return vulkan::keys(bytes).map(Some);
    }
    if vgf::is_blob(bytes) || vgf::tosa::is_blob(bytes) {
        return Ok(Some(Vec::new()));
    }
    xnnpack::is_blob(bytes).then(|| xnnpack::keys(bytes)).transpose()
}

/// Whether a delegate was lowered for a device other than the CPU.
pub(crate) fn is_for_device(delegate: &Delegate<'_>) -> bool {
    // VGF programs are for devices that few machines have.
    !runs_only_compiled(&delegate.backend)
}

/// Reads the graph of a delegate, and binds it to the arguments of a call. `computed` is shared by
/// all delegates of the program.
///
/// # Errors
/// The bytes are malformed, data is missing, or the arguments do not fit.
pub(crate) fn read<'p>(
    bytes: &'p [u8],
    named: &Named<'_, 'p>,
    arguments: &[Argument],
    computed: &Computed,
) -> Result<Bound<'p>, Error> {
    if xnnpack::is_blob(bytes) {
        return xnnpack::read(bytes, named, arguments);
    }
    if vgf::is_blob(bytes) {
        return vgf::read(bytes, arguments, computed);
    }
    if vgf::tosa::is_blob(bytes) {
        return vgf::tosa::read(bytes, arguments, computed);
    }
    if !blob::is_blob(bytes) {
        return Bound::new(vulkan::read(bytes, named)?, arguments);
    }
    let mut graph = blob::read(bytes, named)?;
    graph.mark_changes();
    let ids = graph.inputs.iter().chain(&graph.outputs);
    let fits = ids.clone().zip(arguments).all(|(id, argument)| fits(&graph, *id, argument));
    let count = ids.count();
    if count != arguments.len() {
        return Err(Error::Invalid(format!(
            "delegate call: expected {count} arguments, found {}",
            arguments.len()
        )));
    }
    if !fits {
        return Err(Error::invalid(
            "delegate call: the dtypes and shapes of the arguments do not match the delegate's \
             graph",
        ));
    }
    Ok(Bound { first_output: graph.inputs.len(), graph })
}

/// Whether a value has the dtype and shape of an argument.
fn fits(graph: &Graph<'_>, id: usize, argument: &Argument) -> bool {
    match (graph.values.get(id), argument) {
        (Some(Value::Tensor(tensor)), Argument::Tensor { scalar_type, sizes, .. }) => {
            tensor.host_type == *scalar_type && tensor.sizes == *sizes
        }
        (Some(Value::SymInt(_)), Argument::Number) => true,
        _ => false,
    }
}

/// Returns the graph of a delegate, with the arguments of its call as inputs and outputs; `None` if
/// the format is unknown. `computed` is shared by all delegates of the program.
///
/// # Errors
/// The graph is malformed or unsupported, is not called exactly once, or has fused calls already.
/// The delegate is then kept as it is.
pub(crate) fn graph_of<'p>(
    method: &Method<'p>,
    delegate: usize,
    named: &Named<'_, 'p>,
    computed: &Computed,
) -> Option<Result<Graph<'p>, Error>> {
    let readable = method.delegates.get(delegate).filter(|delegate| is_readable(delegate))?;
    Some(read_once(method, delegate, &readable.processed, named, computed))
}

fn read_once<'p>(
    method: &Method<'p>,
    delegate: usize,
    processed: &Cow<'p, [u8]>,
    named: &Named<'_, 'p>,
    computed: &Computed,
) -> Result<Graph<'p>, Error> {
    let Cow::Borrowed(bytes) = *processed else {
        return Err(Error::unsupported(
            "a delegate in storage without zero-copy access; read the file into memory",
        ));
    };
    let mut calls = method.instructions.iter().filter_map(|instruction| match instruction {
        Instruction::Delegate { delegate: called, args } if *called == delegate => Some(args),
        _ => None,
    });
    let (Some(args), None) = (calls.next(), calls.next()) else {
        return Err(Error::unsupported("a delegate that is not called exactly once"));
    };
    let arguments: Option<Vec<Argument>> = args.iter().map(|arg| argument(method, *arg)).collect();
    let arguments = arguments.ok_or_else(|| {
        Error::unsupported("a delegate call with an argument other than a tensor or scalar")
    })?;
    let graph = read(bytes, named, &arguments, computed)?.graph;
    match graph.nodes.iter().any(|node| !node.parts.is_empty()) {
        true => Err(Error::unsupported("a delegate whose graph has calls that are already fused")),
        false => Ok(graph),
    }
}

/// Describes an argument of a delegate call; `None` if delegates do not support its kind.
pub(crate) fn argument(method: &Method<'_>, value: usize) -> Option<Argument> {
    Some(match method.values.get(value)? {
        MethodValue::Tensor(tensor) => Argument::Tensor {
            scalar_type: tensor.info.scalar_type,
            sizes: (0..tensor.info.rank()).map(|dim| tensor.info.size(dim)).collect(),
            dynamic: tensor.dynamism != ShapeDynamism::Static,
            order: tensor.info.dim_order.iter().map(|dim| usize::from(*dim)).collect(),
        },
        MethodValue::Scalar(_) | MethodValue::None => Argument::Number,
        _ => return None,
    })
}
