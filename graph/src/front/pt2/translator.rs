//! State of the conversion of a program.

use super::aliases::{AliasId, Aliases};
use super::flow::Flow;
use super::schema::ExportedProgram;
use super::symbols::Symbols;
use super::weights::Weights;
use crate::budget::Computed;
use crate::graph::{Graph, ValueId};
use crate::lower::portable::VaryingDims;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

/// Meaning of a name in the program.
#[derive(Clone, Copy)]
pub(super) enum Named {
    Tensor(AliasId),
    Number(ValueId),
    /// The result of a call that was left out, such as a condition of an assertion.
    Omitted,
}

/// Converts a program.
pub(super) struct Translator<'j, 'p> {
    pub(super) program: &'j ExportedProgram<'j>,
    pub(super) weights: [&'j Weights<'j, 'p>; 2],
    pub(super) graph: Graph<'p>,
    pub(super) aliases: Aliases,
    pub(super) symbols: Symbols,
    pub(super) names: BTreeMap<&'j str, Named>,
    pub(super) varying: VaryingDims,
    /// Descriptions of unsupported calls.
    pub(super) unsupported: BTreeSet<String>,
    /// Tensors that share memory with others unknown to `aliases`: the call, the tensor, and the
    /// number of writes to it before the call.
    pub(super) sharing: Vec<(&'j str, AliasId, u32)>,
    /// Number of the current call or event.
    pub(super) number: u32,
    pub(super) flow: Flow,
    pub(super) computed: &'j Computed,
}

impl<'j, 'p> Translator<'j, 'p> {
    pub(super) fn new(
        program: &'j ExportedProgram<'j>,
        weights: [&'j Weights<'j, 'p>; 2],
        computed: &'j Computed,
    ) -> Self {
        let source = &program.graph_module.graph;
        let sizes = source.tensor_values.values().flat_map(|meta| &meta.sizes);
        let sizes = sizes.chain(source.sym_int_values.values());
        Translator {
            program,
            weights,
            graph: Graph::default(),
            aliases: Aliases::default(),
            symbols: Symbols::new(&program.range_constraints, sizes),
            names: BTreeMap::new(),
            varying: VaryingDims::default(),
            unsupported: BTreeSet::new(),
            sharing: Vec::new(),
            number: 0,
            flow: Flow::default(),
            computed,
        }
    }

    /// Begins the next call or event.
    pub(super) fn next(&mut self) {
        self.number = self.number.saturating_add(1);
        self.aliases.number = self.number;
    }
}
