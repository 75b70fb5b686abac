//! Maps kernel calls to graph operators.

use crate::operators::Operator;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use torchlet_core::{Kernel, Param, Registry};

/// Semantics of a kernel call in a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KernelSemantics {
    /// A functional operator. The arguments of the kernel are the inputs, then the outputs, then
    /// the outputs once more as return values. Each output is a tensor, an integer or a list.
    Functional {
        /// The functional operator.
        operator: Operator,
        /// Number of input arguments.
        inputs: usize,
        /// Number of output arguments.
        outputs: usize,
    },
    /// Writes argument 0, viewed in the shape of argument 1, to argument 2.
    View,
    /// Copies argument 1 to argument 0, with broadcasting.
    Copy,
    /// Overwrites argument 0 with the result of the operator, applied to the given number of
    /// arguments.
    InPlace(Operator, usize),
    /// Writes argument 0 to the cache in argument 1, from the position in argument 2 on. Further
    /// arguments are ignored.
    UpdateCache,
    /// Writes argument 0 to the cache in argument 1, at the indices in argument 3; the batch size
    /// is 1. Argument 2 is ignored.
    ///
    /// In a graph, negative indices count from the end of the cache, as in `index_put`. The kernel
    /// rejects negative indices.
    UpdateCacheAt,
    /// Updates two caches like `UpdateCache`, then computes attention of argument 0 over them.
    /// Arguments 1 and 2 are written to the caches in arguments 3 and 4, from the position in
    /// argument 5 on.
    UpdateCachesAndAttend,
}

/// Accesses of a kernel call to its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Arguments before this index are read; the others are written without being read.
    Outputs(usize),
    /// The argument at this index is read and written, the others are only read.
    InPlace(usize),
    /// Any argument may be read and written.
    Unknown,
}

impl KernelSemantics {
    /// Returns the minimum number of arguments of a call.
    pub(crate) fn fewest_arguments(self) -> usize {
        match self {
            KernelSemantics::Functional { inputs, outputs, .. } => inputs + outputs,
            KernelSemantics::View => 3,
            KernelSemantics::Copy => 2,
            KernelSemantics::InPlace(_, inputs) => inputs,
            KernelSemantics::UpdateCache => 4,
            KernelSemantics::UpdateCacheAt => 5,
            KernelSemantics::UpdateCachesAndAttend => 12,
        }
    }
}

/// Graph semantics of the kernels of a registry.
#[derive(Debug, Clone, Default)]
pub struct Vocabulary {
    meanings: BTreeMap<&'static str, KernelSemantics>,
    /// Index of each kernel's first scalar output.
    numbers: BTreeMap<&'static str, usize>,
    /// Indices of scratch buffers, for kernels that have any.
    scratch: BTreeMap<&'static str, Vec<usize>>,
    /// Indices of the arguments that a kernel writes.
    written: BTreeMap<&'static str, Vec<usize>>,
}

impl Vocabulary {
    /// Collects the kernels of a registry.
    pub fn of(registry: &Registry<'_>) -> Self {
        let operators: BTreeMap<&str, Operator> = Operator::all()
            .filter_map(|operator| Some((operator.instruction()?, operator)))
            .collect();
        let meanings = registry
            .kernels()
            .filter_map(|kernel| Some((kernel.name, meaning(kernel, &operators)?)))
            .collect();
        let (mut numbers, mut scratch) = (BTreeMap::new(), BTreeMap::new());
        let mut written: BTreeMap<&'static str, Vec<usize>> = BTreeMap::new();
        for kernel in registry.kernels() {
            let params = kernel.params.iter().enumerate();
            let places: Vec<usize> = params
                .filter_map(|(place, param)| (*param == Param::Scratch).then_some(place))
                .collect();
            if !places.is_empty() {
                scratch.insert(kernel.name, places);
            }
            let outs = kernel.params.iter().enumerate().filter(|(_, param)| param.is_out());
            written.entry(kernel.name).or_default().extend(outs.map(|(place, _)| place));
            let is_set = |param: &Param| *param == Param::OutScalar;
            let first = kernel.params.iter().position(is_set).unwrap_or(kernel.params.len());
            numbers
                .entry(kernel.name)
                .and_modify(|it: &mut usize| *it = first.min(*it))
                .or_insert(first);
        }
        Vocabulary { meanings, numbers, scratch, written }
    }

    /// Returns the indices of a call's scratch buffers. A kernel reads nothing from them that it
    /// did not write in the same call.
    pub(crate) fn scratch(&self, name: &str, overload: &str) -> &[usize] {
        self.scratch.get(full_name(name, overload).as_str()).map_or(&[], Vec::as_slice)
    }

    /// Returns the indices of the arguments that a kernel of the registry writes.
    pub(crate) fn written(&self, name: &str, overload: &str) -> &[usize] {
        self.written.get(full_name(name, overload).as_str()).map_or(&[], Vec::as_slice)
    }

    /// Returns the index of the first argument that may be a scalar output; 0 for unknown kernels.
    pub(crate) fn first_number(&self, name: &str, overload: &str) -> usize {
        self.numbers.get(full_name(name, overload).as_str()).copied().unwrap_or(0)
    }

    /// Returns the semantics of a call; `None` if graphs cannot express it.
    pub fn meaning(&self, name: &str, overload: &str) -> Option<KernelSemantics> {
        self.meanings.get(full_name(name, overload).as_str()).copied()
    }

    /// Returns the accesses of a call to its arguments; [`Access::Unknown`] if graphs cannot
    /// express it.
    pub(crate) fn access(&self, name: &str, overload: &str) -> Access {
        match self.meaning(name, overload) {
            Some(KernelSemantics::Functional { inputs, .. }) => Access::Outputs(inputs),
            Some(KernelSemantics::View) => Access::Outputs(2),
            Some(KernelSemantics::Copy | KernelSemantics::InPlace(..)) => Access::InPlace(0),
            Some(KernelSemantics::UpdateCache | KernelSemantics::UpdateCacheAt) => {
                Access::InPlace(1)
            }
            Some(KernelSemantics::UpdateCachesAndAttend) | None => Access::Unknown,
        }
    }
}

/// Joins the name of an operator and its overload.
pub(crate) fn full_name(name: &str, overload: &str) -> String {
    let parts = [name, overload];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(".")
}

fn meaning(kernel: &Kernel, operators: &BTreeMap<&str, Operator>) -> Option<KernelSemantics> {
    match kernel.name {
        "executorch_prim::et_view.default" => return Some(KernelSemantics::View),
        "aten::copy_" => return Some(KernelSemantics::Copy),
        "llama::update_cache.out" => return Some(KernelSemantics::UpdateCache),
        "llama::update_cache_with_indices.out" => return Some(KernelSemantics::UpdateCacheAt),
        "llama::sdpa_with_kv_cache.out" => return Some(KernelSemantics::UpdateCachesAndAttend),
        "aten::index_put_" => {
            return Some(KernelSemantics::InPlace(Operator::INDEX_PUT, kernel.params.len()));
        }
        _ => {}
    }
    let operator = *operators.get(kernel.name)?;
    let outputs = kernel.params.iter().rev().take_while(|param| param.is_out()).count();
    let inputs = kernel.params.len() - outputs;
    // A kernel without outputs, or that also writes other arguments, is not functional.
    let is_function = outputs > 0 && outputs == kernel.params.iter().filter(|p| p.is_out()).count();
    let gives_numbers = kernel.params.contains(&Param::OutScalar);
    (is_function && (!gives_numbers || operator.traits().is_symbolic))
        .then_some(KernelSemantics::Functional { operator, inputs, outputs })
}
