//! Collects the facts about a program that `inspect` shows.

use crate::cases;
use crate::containers;
use crate::failure::Failure;
use crate::inputs::describe;
use std::borrow::Cow;
use std::collections::BTreeMap;
use torchlet::core::{
    Blob, DataMap, InstructionName, MethodMeta, ProgramError, ShapeDynamism, TableUse, ValueMeta,
};
use torchlet::graph::front::{Summary, runs_only_compiled, summarize, vgf};
use torchlet::graph::operators;
use torchlet::{DEVICE_APIS, Error, Limits, MemoryReport, Module};
use torchlet_build::Target;

pub(crate) struct Description {
    pub(crate) file_size: u64,
    pub(crate) bundled: bool,
    pub(crate) version: u32,
    pub(crate) flatbuffer: u64,
    pub(crate) segments: Vec<u64>,
    pub(crate) named_data: Vec<Named>,
    /// Contents of each data file.
    pub(crate) external: Vec<Vec<Named>>,
    pub(crate) methods: Vec<Method>,
    pub(crate) threads: usize,
    /// Name of the requested target.
    pub(crate) target: Option<String>,
}

/// A named blob.
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// Type and shape if it is a tensor.
    pub(crate) tensor: Option<String>,
}

pub(crate) struct Method {
    pub(crate) name: String,
    pub(crate) test_cases: usize,
    pub(crate) inputs: Vec<Slot>,
    pub(crate) outputs: Vec<Slot>,
    pub(crate) instructions: usize,
    /// Operators with their call counts, most frequent first.
    pub(crate) operators: Vec<Operator>,
    pub(crate) control: Control,
    pub(crate) delegates: Vec<Delegate>,
    /// Constants by element type.
    pub(crate) weights: Vec<Weights>,
    /// Names and types of tensors that keep their values between runs.
    pub(crate) state: Vec<(String, String)>,
    pub(crate) planned: Vec<u64>,
    pub(crate) memory: Result<MemoryReport, String>,
    pub(crate) missing_backends: Vec<String>,
    /// Memory use on the requested target.
    pub(crate) on_target: Option<Result<OnTarget, String>>,
}

/// Memory use of a method on another machine.
pub(crate) enum OnTarget {
    /// Exact memory use.
    Exact(MemoryReport),
    /// Tables only: the memory use of kernels and delegates depends on the processor, beyond what
    /// the target's name says.
    Tables(TableUse),
}

pub(crate) struct Slot {
    pub(crate) what: String,
    pub(crate) dynamic: bool,
    /// A tensor whose memory the caller provides.
    pub(crate) unplanned: bool,
}

pub(crate) struct Operator {
    pub(crate) name: String,
    pub(crate) calls: usize,
    pub(crate) available: bool,
}

#[derive(Default)]
pub(crate) struct Control {
    pub(crate) moves: usize,
    pub(crate) jumps: usize,
    pub(crate) frees: usize,
}

pub(crate) struct Delegate {
    pub(crate) backend: String,
    pub(crate) calls: usize,
    pub(crate) bytes: u64,
    /// Identifier of its data format, if it has one.
    pub(crate) format: Option<String>,
    pub(crate) compile_specs: Vec<(String, String)>,
    /// Contents, if the format is supported.
    pub(crate) graph: Option<Graph>,
}

/// Contents of a delegate.
pub(crate) struct Graph {
    /// Modules, segments and resources, if the format has them.
    pub(crate) parts: Vec<String>,
    pub(crate) operators: Vec<Operator>,
    pub(crate) constants: usize,
    pub(crate) constant_bytes: u64,
}

pub(crate) struct Weights {
    pub(crate) scalar_type: String,
    pub(crate) tensors: usize,
    pub(crate) elements: u64,
    pub(crate) bytes: u64,
}

pub(crate) fn malformed(error: ProgramError) -> Failure {
    Failure::new(format!("the file is malformed: {error}"))
}

impl Description {
    pub(crate) fn of(module: &Module, target: Option<&Target>) -> Result<Self, Failure> {
        let program = module.program();
        let segments = (0..program.segment_count())
            .map(|index| Ok(program.segment_size(index).map_err(malformed)? as u64))
            .collect::<Result<_, Failure>>()?;
        let mut named_data = Vec::new();
        for name in program.data_names().map_err(malformed)? {
            let name = name.map_err(malformed)?;
            let data = program.named_data(name).map_err(malformed)?;
            let bytes = data.map_or(0, |data| data.size() as u64);
            named_data.push(Named { name: name.into(), bytes, tensor: None });
        }
        let suites = cases::suites(module)?;
        let mut methods = Vec::new();
        for name in module.method_names()? {
            let cases = suites.iter().filter(|suite| suite.method == name);
            let test_cases = cases.map(|suite| suite.cases.len()).sum();
            methods.push(Method::of(module, &name, test_cases, target)?);
        }
        Ok(Description {
            file_size: module.file_size(),
            bundled: module.bundled().is_some(),
            version: program.version().map_err(malformed)?,
            flatbuffer: program.flatbuffer_size() as u64,
            segments,
            named_data,
            external: module.data().iter().map(external).collect::<Result<_, _>>()?,
            methods,
            threads: module.threads(),
            target: target.map(|target| target.name().to_owned()),
        })
    }
}

fn external(map: &DataMap<'_>) -> Result<Vec<Named>, Failure> {
    let mut entries = Vec::new();
    for name in map.names().map_err(malformed)? {
        let name = name.map_err(malformed)?;
        let bytes = map.get(name).map_err(malformed)?.map_or(0, |data| data.size() as u64);
        let tensor = map.layout(name).map_err(malformed)?.map(|info| info.to_string());
        entries.push(Named { name: name.into(), bytes, tensor });
    }
    Ok(entries)
}

fn slot(value: Option<ValueMeta<'_>>) -> Slot {
    let value = value.unwrap_or(ValueMeta::None);
    let (dynamic, unplanned) = match &value {
        ValueMeta::Tensor(meta) => {
            (meta.dynamism != ShapeDynamism::Static, !meta.planned && !meta.constant)
        }
        _ => (false, false),
    };
    Slot { what: describe(&value), dynamic, unplanned }
}

impl Method {
    fn of(
        module: &Module,
        name: &str,
        test_cases: usize,
        target: Option<&Target>,
    ) -> Result<Self, Failure> {
        let meta = module.method_meta(name)?;
        let memory = module.memory_report(name);
        let (missing_operators, missing_backends) = match &memory {
            Err(Error::Missing { operators, backends, .. }) => {
                (operators.clone(), backends.clone())
            }
            _ => Default::default(),
        };
        let missing_backends: Vec<String> = missing_backends;
        let (compiled, missing_backends): (Vec<String>, Vec<String>) =
            missing_backends.into_iter().partition(|backend| runs_only_compiled(backend));
        let memory = match memory {
            Err(_)
                if !compiled.is_empty()
                    && missing_operators.is_empty()
                    && missing_backends.is_empty() =>
            {
                Err(String::from(COMPILED))
            }
            memory => memory.map_err(|error| Failure::from(error).to_string()),
        };
        let (operators, control, calls) = instructions(&meta, &missing_operators)?;
        let delegates = (0..meta.delegate_count())
            .map(|index| delegate(&meta, index, calls.get(&index).copied().unwrap_or(0)))
            .collect::<Result<_, _>>()?;
        let (weights, state) = tensors(&meta)?;
        let inputs = (0..meta.input_count()).map(|index| meta.input(index).map(slot));
        let outputs = (0..meta.output_count()).map(|index| meta.output(index).map(slot));
        Ok(Method {
            name: name.into(),
            test_cases,
            inputs: inputs.collect::<Result<_, _>>().map_err(malformed)?,
            outputs: outputs.collect::<Result<_, _>>().map_err(malformed)?,
            instructions: meta.instruction_count(),
            operators,
            control,
            delegates,
            weights,
            state,
            planned: (0..meta.planned_buffer_count())
                .map(|index| Ok(meta.planned_buffer_size(index).map_err(malformed)? as u64))
                .collect::<Result<_, Failure>>()?,
            memory,
            missing_backends,
            on_target: target.map(|target| on_target(module, &meta, target)),
        })
    }
}

/// Why the memory use of programs for XNNPACK and VGF is unknown.
const COMPILED: &str = "it depends on the compilation at load time, see --plan";

fn on_target(module: &Module, meta: &MethodMeta<'_>, target: &Target) -> Result<OnTarget, String> {
    if target.has_vectors() || meta.delegate_count() > 0 {
        let tables = meta.table_use(&Limits::HOST, target.pointer_width());
        return tables.map(OnTarget::Tables).map_err(|error| error.to_string());
    }
    let report = module.memory_report_on(meta.name(), target.machine());
    report.map(OnTarget::Exact).map_err(|error| Failure::from(error).to_string())
}

type Instructions = (Vec<Operator>, Control, BTreeMap<usize, usize>);

/// Returns operators with call counts, control flow, and call counts of delegates.
fn instructions(meta: &MethodMeta<'_>, missing: &[String]) -> Result<Instructions, Failure> {
    let mut operators: BTreeMap<String, usize> = BTreeMap::new();
    let mut control = Control::default();
    let mut delegates: BTreeMap<usize, usize> = BTreeMap::new();
    for instruction in meta.instruction_names().map_err(malformed)? {
        match instruction.map_err(malformed)? {
            InstructionName::Kernel(name) => *operators.entry(name.to_string()).or_default() += 1,
            InstructionName::Delegate(index) => *delegates.entry(index).or_default() += 1,
            InstructionName::Move => control.moves += 1,
            InstructionName::JumpFalse => control.jumps += 1,
            InstructionName::Free => control.frees += 1,
            _ => {}
        }
    }
    let mut operators: Vec<Operator> = operators
        .into_iter()
        .map(|(name, calls)| Operator { available: !missing.contains(&name), name, calls })
        .collect();
    operators.sort_by_key(|operator| std::cmp::Reverse(operator.calls));
    Ok((operators, control, delegates))
}

/// Reads the identifier of a flatbuffer or backend header: two letters and two digits at offset 4.
fn format_identifier(data: &Blob<'_>) -> Option<String> {
    let mut head = [0; 8];
    data.read(0, &mut head).ok()?;
    let (letters, digits) = (&head[4..6], &head[6..8]);
    let known = letters.iter().all(u8::is_ascii_uppercase) && digits.iter().all(u8::is_ascii_digit);
    known.then(|| String::from_utf8_lossy(&head[4..8]).into_owned())
}

/// Formats a compile spec value as a string, an integer, or bytes.
fn spec_value(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if !text.is_empty() && !text.chars().any(char::is_control) => format!("{text:?}"),
        _ => match value {
            [byte] => byte.to_string(),
            [a, b, c, d] => i32::from_le_bytes([*a, *b, *c, *d]).to_string(),
            _ if value.len() <= 16 => format!("{value:?}"),
            _ => format!("{} bytes", value.len()),
        },
    }
}

fn delegate(meta: &MethodMeta<'_>, index: usize, calls: usize) -> Result<Delegate, Failure> {
    let info = meta.delegate(index, &[]).map_err(malformed)?;
    let specs = info.compile_specs().map(|spec| {
        let (key, value) = spec.map_err(malformed)?;
        Ok((key.into(), spec_value(value)))
    });
    Ok(Delegate {
        backend: info.backend().into(),
        calls,
        bytes: info.processed().size() as u64,
        format: format_identifier(&info.processed()),
        compile_specs: specs.collect::<Result<_, Failure>>()?,
        graph: graph(info.backend(), &info.processed()),
    })
}

/// Summarizes a delegate's graph; `None` if it is for no backend of this build, or cannot be
/// parsed.
fn graph(backend: &str, processed: &Blob<'_>) -> Option<Graph> {
    let api = DEVICE_APIS.iter().find(|api| api.backend_name() == backend);
    if !runs_only_compiled(backend) && api.is_none() {
        return None;
    }
    let bytes = match processed.lend() {
        Some(bytes) => Cow::Borrowed(bytes),
        None => {
            let mut bytes = vec![0; processed.size()];
            processed.read(0, &mut bytes).ok()?;
            Cow::Owned(bytes)
        }
    };
    let parts =
        if backend == vgf::BACKEND { containers::vgf::describe(&bytes) } else { Vec::new() };
    let Summary { calls, constants, constant_bytes, .. } = summarize(&bytes).ok()?;
    let supported = |name: &str| operators::Operator::named(name);
    let operator = |(name, calls): (String, usize)| Operator {
        available: api.is_none_or(|api| supported(&name).is_some_and(|it| api.supports(it))),
        name,
        calls,
    };
    let operators = calls.into_iter().map(operator).collect();
    Some(Graph { parts, operators, constants, constant_bytes })
}

type Tensors = (Vec<Weights>, Vec<(String, String)>);

/// Returns constants grouped by type, and named tensors that a method writes.
fn tensors(meta: &MethodMeta<'_>) -> Result<Tensors, Failure> {
    let mut weights: BTreeMap<&str, Weights> = BTreeMap::new();
    let mut state = Vec::new();
    for index in 0..meta.value_count() {
        let Some(ValueMeta::Tensor(tensor)) = meta.value_meta(index).map_err(malformed)? else {
            continue;
        };
        if tensor.constant {
            let name = tensor.info.scalar_type.name();
            let entry = weights.entry(name).or_insert_with(|| Weights {
                scalar_type: name.into(),
                tensors: 0,
                elements: 0,
                bytes: 0,
            });
            entry.tensors += 1;
            entry.elements = entry.elements.saturating_add(tensor.info.numel() as u64);
            entry.bytes = entry.bytes.saturating_add(tensor.info.nbytes() as u64);
        } else if let Some(name) = tensor.name {
            state.push((name.into(), tensor.info.to_string()));
        }
    }
    Ok((weights.into_values().collect(), state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compile_specs_are_readable() {
        assert_eq!(spec_value(b"hello"), "\"hello\"");
        assert_eq!(spec_value(&[1]), "1");
        assert_eq!(spec_value(&[1, 1, 0, 0]), "257");
        assert_eq!(spec_value(&[0xff, 0, 1]), "[255, 0, 1]");
        assert_eq!(spec_value(&[0xff; 40]), "40 bytes");
        assert_eq!(spec_value(&[]), "[]");
    }
}
