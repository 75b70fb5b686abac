//! Analysis of a program before it is embedded.

use crate::{Target, types};
use std::collections::BTreeSet;
use std::fmt;
use torchlet_core::{
    ArenaBlock, ArenaUse, DataMap, InitError, InstructionName, Kernel, Limits, LoadOptions,
    MethodMeta, Program, ProgramError, Registry, RuntimeFeatures, Scalar, ShapeDynamism,
    TensorInfo, ValueMeta,
};
use torchlet_portable::{Types, Variants, record_variants};

/// The requirements of a program on a machine.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Analysis {
    /// The requested methods.
    pub methods: Vec<MethodAnalysis>,
    /// The operators that the methods call, sorted.
    pub operators: BTreeSet<String>,
    /// The element types that the kernels of these operators require.
    pub types: Types,
    /// The optional runtime features that the methods use.
    pub uses: RuntimeFeatures,
    /// The algorithm variants that the kernels of these operators use.
    pub paths: Variants,
    /// Size in bytes of the program as embedded, without external data.
    pub program: u64,
    /// Operators of a quantized program that compute in floating point after it was
    /// [lowered](crate::Program::lowered), and 4-bit weights that are stored in 8 bits: one
    /// sentence about the cost of each.
    pub fallbacks: Vec<String>,
    /// Sizes of the [compiled](crate::Program::compiled) program; `None` if it is interpreted.
    pub compiled: Option<CompiledSizes>,
    /// Reasons why it is interpreted although it should be compiled.
    pub not_compiled: Vec<String>,
}

/// Sizes of a compiled program in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompiledSizes {
    /// Weights and other constants, in flash.
    pub constants: usize,
    /// Activation memory of all methods, in RAM.
    pub memory: usize,
}

/// The requirements of a method.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MethodAnalysis {
    /// Name of the method.
    pub name: String,
    /// Size of its arena in bytes: tables, copied constants, packed weights.
    pub arena: usize,
    /// Breakdown of the arena.
    pub arena_use: ArenaUse,
    /// Sizes of its planned buffers in bytes.
    pub planned: Vec<usize>,
    /// Size of its scratch memory in bytes.
    pub scratch: usize,
    /// The optional runtime features that it uses.
    pub uses: RuntimeFeatures,
    /// The algorithm variants that its kernels use.
    pub paths: Variants,
    /// Its inputs.
    pub inputs: Vec<Slot>,
    /// Its outputs.
    pub outputs: Vec<Slot>,
    /// State for which the exporter planned no memory: index of the value, and size in bytes.
    pub lent_state: Vec<(usize, usize)>,
    /// Whether it keeps state in activation memory, which it therefore cannot share with other
    /// methods.
    pub keeps_state: bool,
}

/// An input or output.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Slot {
    /// A tensor.
    Tensor {
        /// Dtype, shape and layout.
        info: TensorInfo,
        /// Whether its shape may differ in each run, up to that of `info`.
        is_dynamic: bool,
        /// Whether the caller must lend its memory.
        is_lent: bool,
    },
    /// A scalar, with its value at export.
    Scalar(Scalar),
    /// A constant value: absent, a string or a list.
    Other,
}

/// The operators and backends that a method calls and that are not registered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missing {
    /// Names of operators.
    pub operators: Vec<String>,
    /// Names of backends.
    pub backends: Vec<String>,
}

impl Missing {
    /// The operators and backends of a method that a registry lacks.
    pub fn of(meta: &MethodMeta<'_>, registry: &Registry<'_>) -> Self {
        let missing = meta.missing(registry);
        Missing {
            operators: missing.operators().map(|name| name.to_string()).collect(),
            backends: missing.backends().map(String::from).collect(),
        }
    }

    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.operators.is_empty() && self.backends.is_empty()
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.operators.is_empty() {
            write!(f, "no kernel for {}", self.operators.join(", "))?;
            write!(f, "; export without these operators, or add kernels for them ")?;
            write!(f, "(Program::kernel in a build script)")?;
            if let Some(feature) = torchlet_portable::OMITTED_FEATURE {
                write!(f, "; some need the feature `{feature}` of torchlet-build and torchlet")?;
            }
        }
        if !self.backends.is_empty() {
            let separator = if self.operators.is_empty() { "" } else { ". " };
            let names = self.backends.join(", ");
            write!(
                f,
                "{separator}no backend {names}; lower the program (`torchlet size --lower`, or \
                 Program::lowered in a build script), which converts Vulkan and XNNPACK delegates; \
                 export without the backend; or add it (Program::backend)"
            )?;
        }
        Ok(())
    }
}

/// Reason why a method cannot be loaded.
#[derive(Debug)]
pub(crate) enum Obstacle {
    Program(ProgramError),
    NoSuchMethod { methods: Vec<String> },
    Missing(Missing),
    Init(InitError),
}

impl From<ProgramError> for Obstacle {
    fn from(error: ProgramError) -> Self {
        Obstacle::Program(error)
    }
}

impl From<InitError> for Obstacle {
    fn from(error: InitError) -> Self {
        Obstacle::Init(error)
    }
}

impl Analysis {
    /// Analyses the named methods of a program, or all if no name is given. Errors include the
    /// method's name.
    pub(crate) fn of(
        program: &Program<'_>,
        methods: &[String],
        data: &[DataMap<'_>],
        registry: &Registry<'_>,
        target: &Target,
    ) -> Result<Self, (String, Obstacle)> {
        let whole = |error: ProgramError| (String::new(), error.into());
        let present: Vec<&str> =
            program.method_names().and_then(|names| names.collect()).map_err(whole)?;
        let mut names: Vec<&str> = methods.iter().map(String::as_str).collect();
        if names.is_empty() {
            names.clone_from(&present);
        }
        let (operators, types) = (BTreeSet::new(), Types::NONE);
        let program_bytes = program.file_size();
        let mut analysis = Analysis {
            methods: Vec::new(),
            operators,
            types,
            uses: RuntimeFeatures::NONE,
            paths: Variants::NONE,
            program: program_bytes,
            fallbacks: Vec::new(),
            compiled: None,
            not_compiled: Vec::new(),
        };
        let kernels: Vec<Kernel> = registry.kernels().copied().collect();
        let whole_program = torchlet_graph::method::Program::read(program);
        for name in names {
            let fail = |obstacle| (name.to_owned(), obstacle);
            if !present.contains(&name) {
                let methods = present.iter().map(|name| (*name).to_owned()).collect();
                return Err(fail(Obstacle::NoSuchMethod { methods }));
            }
            let method = program.method_meta(name).map_err(|error| fail(error.into()))?;
            analysis.operators.extend(called(&method).map_err(|error| fail(error.into()))?);
            let method = MethodAnalysis::of(&method, data, registry, target).map_err(fail)?;
            analysis.uses = analysis.uses.union(method.uses);
            analysis.paths = analysis.paths.union(method.paths);
            analysis.methods.push(method);
            let read = whole_program.as_ref().ok();
            let read = read.and_then(|read| read.methods.iter().find(|method| method.name == name));
            // If the method cannot be parsed, any type is possible.
            let types = read.map_or(Types::ALL, |method| types::of(method, &kernels));
            analysis.types = analysis.types.union(types);
        }
        Ok(analysis)
    }
}

/// The operators that a method calls. Its operator table may list others.
fn called(meta: &MethodMeta<'_>) -> Result<BTreeSet<String>, ProgramError> {
    let mut names = BTreeSet::new();
    for instruction in meta.instruction_names()? {
        if let InstructionName::Kernel(name) = instruction? {
            names.insert(name.to_string());
        }
    }
    Ok(names)
}

impl MethodAnalysis {
    fn of(
        meta: &MethodMeta<'_>,
        data: &[DataMap<'_>],
        registry: &Registry<'_>,
        target: &Target,
    ) -> Result<Self, Obstacle> {
        let missing = Missing::of(meta, registry);
        if !missing.is_empty() {
            return Err(Obstacle::Missing(missing));
        }
        let options = LoadOptions::default().with_limits(Limits::FIRMWARE);
        let options = options.with_machine(target.machine()).with_data(data);
        let bytes = meta.table_bytes(&options.limits)?;
        let mut tables = vec![ArenaBlock::UNINIT; bytes.div_ceil(torchlet_core::ARENA_ALIGN)];
        let tables = ArenaBlock::bytes(&mut tables);
        let (prepared, paths) = record_variants(|| meta.prepare(tables, registry, options));
        let prepared = prepared?;
        let uses = prepared.uses()?;
        // With other shapes, kernels may choose other variants.
        let paths = if uses.has(RuntimeFeatures::VARIABLE) { Variants::ALL } else { paths };
        let needs = prepared.needs();
        let planned = (0..meta.planned_buffer_count()).map(|at| meta.planned_buffer_size(at));
        let slot = |value: Option<ValueMeta<'_>>| value.map_or(Slot::Other, Slot::of);
        let inputs = (0..meta.input_count()).map(|index| Ok(slot(meta.input(index)?)));
        let outputs = (0..meta.output_count()).map(|index| Ok(slot(meta.output(index)?)));
        let state = prepared.state().filter(|state| !state.bound);
        let mut keeps_state = false;
        for state in prepared.state().filter(|state| state.bound) {
            keeps_state |= meta.planned_offset(state.value)?.is_some_and(|(buffer, _)| buffer == 0);
        }
        Ok(MethodAnalysis {
            name: meta.name().into(),
            arena: needs.whole_arena(),
            arena_use: prepared.arena_use(),
            planned: planned.collect::<Result<_, ProgramError>>()?,
            scratch: needs.scratch,
            uses,
            paths,
            inputs: inputs.collect::<Result<_, ProgramError>>()?,
            outputs: outputs.collect::<Result<_, ProgramError>>()?,
            lent_state: state.map(|state| (state.value, state.info.nbytes())).collect(),
            keeps_state,
        })
    }

    /// Bytes that the caller lends for values for which the exporter planned no memory.
    pub fn lent(&self) -> usize {
        let slots = self.inputs.iter().chain(&self.outputs).filter_map(Slot::lent);
        slots.chain(self.lent_state.iter().map(|state| state.1)).sum()
    }

    /// Total memory in bytes.
    pub fn total(&self) -> usize {
        self.arena + self.planned.iter().sum::<usize>() + self.scratch + self.lent()
    }
}

impl Slot {
    fn of(value: ValueMeta<'_>) -> Self {
        match value {
            ValueMeta::Tensor(tensor) => Slot::Tensor {
                is_dynamic: tensor.dynamism != ShapeDynamism::Static,
                is_lent: !tensor.planned && !tensor.constant,
                info: tensor.info,
            },
            ValueMeta::Scalar(scalar) => Slot::Scalar(scalar),
            _ => Slot::Other,
        }
    }

    /// Bytes that the caller must lend.
    pub(crate) fn lent(&self) -> Option<usize> {
        match self {
            Slot::Tensor { info, is_lent: true, .. } if info.nbytes() > 0 => Some(info.nbytes()),
            _ => None,
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Slot::Tensor { info, is_dynamic: true, .. } => write!(f, "at most {info}"),
            Slot::Tensor { info, .. } => info.fmt(f),
            Slot::Scalar(Scalar::Int(_)) => f.write_str("int"),
            Slot::Scalar(Scalar::Bool(_)) => f.write_str("bool"),
            Slot::Scalar(Scalar::Double(_)) => f.write_str("float"),
            Slot::Other => f.write_str("nothing"),
        }
    }
}
