//! What instructions call, in the words of graphs.

use crate::operators::Operator;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use torchlet_core::{Kernel, Param, Registry};

/// What a call of a kernel means in a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Meaning {
    /// An operator, with outputs behind its inputs: a tensor, a number or a list each. What follows
    /// them is what the call returns, the outputs again.
    Functional {
        /// The functional operator.
        operator: Operator,
        /// How many arguments are inputs.
        inputs: usize,
        /// How many arguments are outputs.
        outputs: usize,
    },
    /// The third argument becomes the first in the shape of the second.
    View,
    /// The first argument takes the value of the second, which may be broadcast to it.
    Copy,
    /// The first argument becomes what this operator makes of this many arguments.
    InPlace(Operator, usize),
    /// The second argument, a cache, takes the first from the position on that the third says. What
    /// is behind them means nothing.
    UpdateCache,
    /// The same at the positions that the fourth argument has, of one sample. The third means
    /// nothing. Negative positions, which the kernel refuses, count from the end of the cache, as
    /// `index_put`'s do.
    UpdateCacheAt,
    /// As `UpdateCache` for two caches (arguments 1 and 3, 2 and 4, the position is 5), over which
    /// the first argument attends then.
    UpdateCachesAndAttend,
}

/// What a kernel's call does with its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Those before this one are read; the others are written, and were not read.
    Outputs(usize),
    /// The one of this number is read and written, the others are read.
    InPlace(usize),
    /// Each may be read and written.
    Unknown,
}

impl Meaning {
    /// How many arguments a call has at least.
    pub(crate) fn fewest_arguments(self) -> usize {
        match self {
            Meaning::Functional { inputs, outputs, .. } => inputs + outputs,
            Meaning::View => 3,
            Meaning::Copy => 2,
            Meaning::InPlace(_, inputs) => inputs,
            Meaning::UpdateCache => 4,
            Meaning::UpdateCacheAt => 5,
            Meaning::UpdateCachesAndAttend => 12,
        }
    }
}

/// What kernels of a registry mean in graphs.
#[derive(Debug, Clone, Default)]
pub struct Vocabulary {
    meanings: BTreeMap<&'static str, Meaning>,
    /// The first argument of each kernel that is a number which it sets.
    numbers: BTreeMap<&'static str, usize>,
    /// The arguments of kernels that are memory to work in, of those that have some.
    scratch: BTreeMap<&'static str, Vec<usize>>,
    /// The arguments of kernels that they write.
    written: BTreeMap<&'static str, Vec<usize>>,
}

impl Vocabulary {
    /// Looks up the kernels of a registry.
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

    /// The arguments of a call that are memory to work in: nothing is read there that the call did
    /// not write.
    pub(crate) fn scratch(&self, name: &str, overload: &str) -> &[usize] {
        self.scratch.get(full_name(name, overload).as_str()).map_or(&[], Vec::as_slice)
    }

    /// The arguments that a kernel of the registry writes.
    pub(crate) fn written(&self, name: &str, overload: &str) -> &[usize] {
        self.written.get(full_name(name, overload).as_str()).map_or(&[], Vec::as_slice)
    }

    /// The first argument of a call that can be a number which it sets: of kernels that are not
    /// there, any can.
    pub(crate) fn first_number(&self, name: &str, overload: &str) -> usize {
        self.numbers.get(full_name(name, overload).as_str()).copied().unwrap_or(0)
    }

    /// What a call means, if graphs can say it.
    pub fn meaning(&self, name: &str, overload: &str) -> Option<Meaning> {
        self.meanings.get(full_name(name, overload).as_str()).copied()
    }

    /// What a call does with its arguments, as far as graphs can say what it means.
    pub(crate) fn access(&self, name: &str, overload: &str) -> Access {
        match self.meaning(name, overload) {
            Some(Meaning::Functional { inputs, .. }) => Access::Outputs(inputs),
            Some(Meaning::View) => Access::Outputs(2),
            Some(Meaning::Copy | Meaning::InPlace(..)) => Access::InPlace(0),
            Some(Meaning::UpdateCache | Meaning::UpdateCacheAt) => Access::InPlace(1),
            Some(Meaning::UpdateCachesAndAttend) | None => Access::Unknown,
        }
    }
}

/// The name of an operator with its overload.
pub(crate) fn full_name(name: &str, overload: &str) -> String {
    let parts = [name, overload];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(".")
}

fn meaning(kernel: &Kernel, operators: &BTreeMap<&str, Operator>) -> Option<Meaning> {
    match kernel.name {
        "executorch_prim::et_view.default" => return Some(Meaning::View),
        "aten::copy_" => return Some(Meaning::Copy),
        "llama::update_cache.out" => return Some(Meaning::UpdateCache),
        "llama::update_cache_with_indices.out" => return Some(Meaning::UpdateCacheAt),
        "llama::sdpa_with_kv_cache.out" => return Some(Meaning::UpdateCachesAndAttend),
        "aten::index_put_" => {
            return Some(Meaning::InPlace(Operator::INDEX_PUT, kernel.params.len()));
        }
        _ => {}
    }
    let operator = *operators.get(kernel.name)?;
    let outputs = kernel.params.iter().rev().take_while(|param| param.is_out()).count();
    let inputs = kernel.params.len() - outputs;
    // What writes to other arguments, too, or to nothing, is no function.
    let is_function = outputs > 0 && outputs == kernel.params.iter().filter(|p| p.is_out()).count();
    let gives_numbers = kernel.params.contains(&Param::OutScalar);
    (is_function && (!gives_numbers || operator.traits().is_symbolic))
        .then_some(Meaning::Functional { operator, inputs, outputs })
}
