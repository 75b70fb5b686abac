//! Code generation: the source text of a program's module.

pub(crate) mod compiled;
mod method;

use crate::{Analysis, MethodAnalysis, Program, Slot};
use std::fmt::{LowerHex, Write};
use std::path::{Path, PathBuf};
use torchlet_core::{RuntimeFeatures, Scalar, ScalarType, TensorInfo};
use torchlet_portable::{Types, Variants};

/// The name of the module that the programs of an image share.
pub(crate) const IMAGE: &str = "torchlet_image";

/// Inputs of the code generation of a module.
pub(crate) struct Source<'a> {
    pub(crate) program: &'a Program,
    /// The file to embed.
    pub(crate) embedded: &'a Path,
    pub(crate) data: &'a [PathBuf],
    pub(crate) analysis: &'a Analysis,
    pub(crate) shares_activations: bool,
}

/// Converts a name to a Rust identifier.
pub(crate) fn identifier(name: &str) -> String {
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let mut text: String = name.chars().map(|c| if is_part(c) { c } else { '_' }).collect();
    if !text.starts_with(|first: char| first.is_ascii_alphabetic()) {
        text.insert_str(0, "p_");
    }
    // Keywords that cannot be names of modules or functions.
    const KEYWORDS: &str = "Self abstract as async await become box break const continue crate do \
        dyn else enum extern false final fn for gen if impl in let loop macro match mod move mut \
        override priv pub ref return self static struct super trait true try type typeof unsafe \
        unsized use virtual where while yield";
    if KEYWORDS.split_whitespace().any(|keyword| keyword == text) {
        text.push('_');
    }
    text
}

/// Identifier of a method's module and function, distinct from the other items in the program's
/// module.
pub(crate) fn method_identifier(name: &str) -> String {
    const OWN: [&str; 10] = [
        "Error",
        "Model",
        "TakeOnce",
        "constants",
        "core",
        "data",
        "firmware",
        "load",
        "load_with",
        "registry",
    ];
    let mut text = identifier(name);
    if OWN.contains(&text.as_str()) {
        text.push('_');
    }
    text
}

/// Escapes a name from a file for comments: it may contain line breaks followed by anything.
fn escaped(name: &str) -> String {
    name.escape_debug().collect()
}

/// The module of a program.
pub(crate) fn program(source: &Source<'_>) -> String {
    let mut text = String::new();
    text.push_str(HEAD);
    let path = source.embedded.to_string_lossy();
    line(&mut text, "/// The program, aligned for its weights.");
    line(&mut text, &format!("pub static PROGRAM: &[u8] = &{};", embedded(&path)));
    kernels(&mut text, source);
    registry(&mut text, source);
    data(&mut text, source.data);
    for found in &source.analysis.methods {
        method::write(&mut text, found, source.shares_activations);
    }
    model(&mut text, source);
    text
}

/// A set in a symbol that the optimiser can evaluate.
fn exported_set(text: &mut String, symbol: &str, of: &str, bits: impl LowerHex) {
    line(text, "#[allow(non_upper_case_globals)]\n#[unsafe(no_mangle)]");
    line(text, &format!("static {symbol}: {of} ="));
    line(text, &format!("    {of}::from_bits({bits:#x});"));
}

/// The items that the programs of an image share.
pub(crate) fn image(analyses: &[&Analysis], shares_activations: bool) -> String {
    let mut text = String::new();
    text.push_str(HEAD);
    // Compiled programs call functions for their types directly.
    let analyses: Vec<_> = analyses.iter().filter(|analysis| analysis.compiled.is_none()).collect();
    let types = analyses.iter().fold(Types::NONE, |all, analysis| all.union(analysis.types));
    line(
        &mut text,
        "/// The element types of all programs, for which kernels are compiled (`selected-dtypes`).",
    );
    exported_set(&mut text, "torchlet_types", "::torchlet::portable::Types", types.bits());
    let several = analyses.iter().map(|analysis| analysis.methods.len()).sum::<usize>() > 1;
    let turns = if several { RuntimeFeatures::SHARED_MEMORY } else { RuntimeFeatures::NONE };
    let uses = analyses.iter().fold(turns, |all, analysis| all.union(analysis.uses));
    line(
        &mut text,
        "/// The runtime features that the programs use, which are linked (`selected-dtypes`).",
    );
    exported_set(&mut text, "torchlet_features", "core::RuntimeFeatures", uses.bits());
    let paths = analyses.iter().fold(Variants::NONE, |all, analysis| all.union(analysis.paths));
    line(
        &mut text,
        "/// The algorithm variants that the kernels use, which are linked (`selected-dtypes`).",
    );
    exported_set(&mut text, "torchlet_variants", "::torchlet::portable::Variants", paths.bits());
    if !shares_activations {
        return text;
    }
    let methods = || analyses.iter().flat_map(|analysis| &analysis.methods);
    let buffers = methods().map(|method| method.planned.len()).max().unwrap_or(0);
    let largest = |index| methods().filter_map(|method| method.planned.get(index)).copied().max();
    let planned: Vec<usize> = (0..buffers).map(|index| largest(index).unwrap_or(0)).collect();
    let scratch = methods().map(|method| method.scratch).max().unwrap_or(0);
    sizes(&mut text, &planned, scratch);
    line(&mut text, "/// Takes the memory that all methods share.");
    line(&mut text, "///");
    line(&mut text, "/// # Errors");
    line(&mut text, "/// If it was already taken.");
    line(&mut text, "pub fn activations() -> Result<core::SharedMemory<'static>, Error> {");
    statics(&mut text, &planned, scratch);
    let taken = taken(&planned);
    let memory = format!("&mut [{taken}], &mut SCRATCH_MEMORY.take()?.0");
    line(&mut text, &format!("    Ok(core::SharedMemory::new({memory})?)"));
    line(&mut text, "}");
    text
}

const HEAD: &str = "// Generated by torchlet-build; regenerated when the program changes.

#[allow(unused_imports)]
use ::torchlet::core;
#[allow(unused_imports)]
use ::torchlet::firmware::{self, Error, TakeOnce};

";

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

fn embedded(path: &str) -> String {
    format!("core::AlignedBytes(*::core::include_bytes!({path:?})).0")
}

fn kernels(text: &mut String, source: &Source<'_>) {
    let operators = &source.analysis.operators;
    line(text, "\n/// The kernels that it calls, sorted by name; the linker drops all others.");
    line(text, &format!("pub static KERNELS: [core::Kernel; {}] = [", operators.len()));
    for name in operators {
        let own = source.program.kernels.iter().find(|(kernel, _)| kernel.name == name);
        match own {
            Some((_, path)) => line(text, &format!("    {},", path_from_module(path))),
            None => line(text, &format!("    ::torchlet::portable::kernel({name:?}),")),
        }
    }
    line(text, "];");
}

/// A path of the firmware, as written inside a module.
fn path_from_module(path: &str) -> String {
    match path.starts_with("crate::") || path.starts_with("::") {
        true => path.to_owned(),
        false => format!("::{path}"),
    }
}

fn registry(text: &mut String, source: &Source<'_>) {
    line(text, "\n/// The kernels and backends that it calls.");
    line(text, "///\n/// # Errors\n/// If they conflict.");
    line(text, "pub fn registry() -> Result<core::Registry<'static>, Error> {");
    let mut chain = "core::Registry::new().with_kernels(&KERNELS)?".to_owned();
    for (_, path) in &source.program.backends {
        chain += &format!(".with_backend(&{})?", path_from_module(path));
    }
    line(text, &format!("    Ok({chain})"));
    line(text, "}");
}

fn data(text: &mut String, paths: &[PathBuf]) {
    line(text, "\n/// The external data of the program.");
    line(text, "///\n/// # Errors\n/// If a file is malformed, or the data was already taken.");
    line(text, "pub fn data() -> Result<&'static [core::DataMap<'static>], Error> {");
    if paths.is_empty() {
        line(text, "    Ok(&[])\n}");
        return;
    }
    let count = paths.len();
    line(text, &format!("    static MAPS: TakeOnce<Option<[core::DataMap<'static>; {count}]>> ="));
    line(text, "        TakeOnce::new(None);");
    line(text, &format!("    static FILES: [&[u8]; {count}] = ["));
    for path in paths {
        line(text, &format!("        &{},", embedded(&path.to_string_lossy())));
    }
    line(text, "    ];");
    let open = |index| format!("core::DataMap::from_bytes(FILES[{index}])?");
    let opened: Vec<String> = (0..count).map(open).collect();
    line(text, &format!("    Ok(MAPS.take()?.insert([{}]))\n}}", opened.join(", ")));
}

/// Constants for planned and scratch memory.
fn sizes(text: &mut String, planned: &[usize], scratch: usize) {
    line(text, "/// Size of each planned buffer in bytes.");
    line(text, &format!("pub const PLANNED: [usize; {}] = {planned:?};", planned.len()));
    line(text, "/// Size of the scratch memory in bytes.");
    line(text, &format!("pub const SCRATCH: usize = {scratch};"));
}

/// Static planned and scratch memory, in a function.
fn statics(text: &mut String, planned: &[usize], scratch: usize) {
    let bytes = |size: usize| format!("TakeOnce<core::AlignedBytes<[u8; {size}]>>");
    let empty = |size: usize| format!("TakeOnce::new(core::AlignedBytes([0; {size}]))");
    for (index, &size) in planned.iter().enumerate() {
        let (kind, value) = (bytes(size), empty(size));
        line(text, &format!("    static PLANNED_MEMORY_{index}: {kind} = {value};"));
    }
    let (kind, value) = (bytes(scratch), empty(scratch));
    line(text, &format!("    static SCRATCH_MEMORY: {kind} = {value};"));
}

/// Expressions that take the planned buffers of [`statics`].
fn taken(planned: &[usize]) -> String {
    let take = |index| format!("&mut PLANNED_MEMORY_{index}.take()?.0");
    (0..planned.len()).map(take).collect::<Vec<_>>().join(", ")
}

/// The values whose memory the caller lends, with their sizes in bytes.
fn lent(method: &MethodAnalysis) -> Vec<(String, usize)> {
    let of = |kind: &'static str, slots: &[Slot]| {
        let slots = slots.iter().enumerate();
        let lent = slots.filter_map(|(index, slot)| Some((index, slot.lent()?)));
        lent.map(|(index, bytes)| (format!("firmware::Lent::{kind}({index})"), bytes))
            .collect::<Vec<_>>()
    };
    let mut all = of("Input", &method.inputs);
    all.extend(of("Output", &method.outputs));
    let states = method.lent_state.iter();
    all.extend(states.map(|(value, bytes)| (format!("firmware::Lent::State({value})"), *bytes)));
    all
}

/// The struct of all methods of the program.
fn model(text: &mut String, source: &Source<'_>) {
    let methods = &source.analysis.methods;
    let is_shared = source.shares_activations;
    line(text, "\n/// The loaded program.");
    line(text, "pub struct Model {");
    for found in methods {
        let (name, module) = (escaped(&found.name), method_identifier(&found.name));
        line(text, &format!("    /// Method `{name}`.\n    pub {module}: {module}::Method,"));
    }
    line(text, "}");
    let (shared, pass) = match is_shared {
        true => ("shared: &mut core::SharedMemory<'static>", "shared"),
        false => ("", ""),
    };
    line(text, "\n/// Loads the program into static memory.");
    line(text, "///\n/// # Errors\n/// If it was already loaded, or loading fails.");
    line(text, &format!("pub fn load({shared}) -> Result<Model, Error> {{"));
    let comma = if is_shared { "shared, " } else { "" };
    line(text, &format!("    load_with({comma}core::LoadOptions::default())\n}}"));
    line(text, "\n/// Like `load`, with options such as a tracer.");
    line(text, "///\n/// # Errors\n/// If it was already loaded, or loading fails.");
    let separator = if is_shared { ", " } else { "" };
    line(
        text,
        &format!(
            "pub fn load_with({shared}{separator}options: core::LoadOptions<'static>) \
             -> Result<Model, Error> {{"
        ),
    );
    line(text, "    let program = core::Program::from_bytes(PROGRAM)?;");
    line(text, "    let (registry, options) = (registry()?, options.with_data(data()?));");
    line(text, "    Ok(Model {");
    for found in methods {
        let module = method_identifier(&found.name);
        line(text, &format!("        {module}: {module}::Method::load("));
        line(
            text,
            &format!("            {comma}&program, &registry, {module}::memory()?, options,"),
        );
        line(text, "        )?,");
    }
    line(text, "    })\n}");
    line(text, "\nimpl Model {");
    for found in methods {
        let (name, module) = (escaped(&found.name), method_identifier(&found.name));
        let life = if is_shared { "'a " } else { "" };
        let qualified = |text: String| qualify(&text, &module);
        let (parameters, results) = (qualified(parameters(found)), qualified(results(found, life)));
        line(text, &format!("    /// Runs method `{name}`."));
        begin_run(text, &module, [&parameters, &results], is_shared);
        let pass = if is_shared { format!("{pass}, ") } else { String::new() };
        line(text, &format!("        self.{module}.run({pass}{})\n    }}", names(found)));
    }
    line(text, "}");
}

/// Qualifies the types of a method's module for use outside of it.
fn qualify(text: &str, module: &str) -> String {
    text.replace("&Input", &format!("&{module}::Input"))
        .replace("&Output", &format!("&{module}::Output"))
        .replace("&'a Output", &format!("&'a {module}::Output"))
}

/// Whether an input is an argument of the function.
fn is_parameter(slot: &Slot) -> bool {
    match slot {
        Slot::Tensor { info, .. } => info.nbytes() > 0,
        Slot::Scalar(_) => true,
        Slot::Other => false,
    }
}

fn parameters(method: &MethodAnalysis) -> String {
    let mut text = String::new();
    for (index, slot) in method.inputs.iter().enumerate().filter(|(_, slot)| is_parameter(slot)) {
        let kind = match slot {
            Slot::Scalar(scalar) => scalar_type(scalar).to_owned(),
            _ if array(slot).is_some() => format!("&Input{index}"),
            _ => "&core::TensorRef<'_>".to_owned(),
        };
        let separator = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{separator}input_{index}: {kind}");
    }
    text
}

fn names(method: &MethodAnalysis) -> String {
    let set = method.inputs.iter().enumerate().filter(|(_, slot)| is_parameter(slot));
    set.map(|(index, _)| format!("input_{index}")).collect::<Vec<_>>().join(", ")
}

/// Return type of a method: the only output, or a tuple of all.
fn results(method: &MethodAnalysis, life: &str) -> String {
    let of = |(index, slot): (usize, &Slot)| match slot {
        Slot::Scalar(_) => "core::Scalar".to_owned(),
        Slot::Other => "()".to_owned(),
        Slot::Tensor { .. } if array(slot).is_some() => format!("&{life}Output{index}"),
        Slot::Tensor { .. } if life.is_empty() => "core::TensorRef<'_>".to_owned(),
        Slot::Tensor { .. } => "core::TensorRef<'a>".to_owned(),
    };
    tuple(method.outputs.iter().enumerate().map(of).collect())
}

fn reads(method: &MethodAnalysis) -> String {
    let of = |(index, slot): (usize, &Slot)| match slot {
        Slot::Scalar(_) => format!("firmware::scalar(method, {index})?"),
        Slot::Other => "()".to_owned(),
        Slot::Tensor { .. } if array(slot).is_some() => {
            format!("firmware::output(method, {index})?")
        }
        Slot::Tensor { .. } => format!("firmware::tensor(method, {index})?"),
    };
    tuple(method.outputs.iter().enumerate().map(of).collect())
}

fn tuple(items: Vec<String>) -> String {
    match &items[..] {
        [one] => one.clone(),
        all => format!("({})", all.join(", ")),
    }
}

fn scalar_type(scalar: &Scalar) -> &'static str {
    match scalar {
        Scalar::Int(_) => "i64",
        Scalar::Bool(_) => "bool",
        Scalar::Double(_) => "f64",
    }
}

fn scalar_variant(scalar: &Scalar) -> &'static str {
    match scalar {
        Scalar::Int(_) => "Int",
        Scalar::Bool(_) => "Bool",
        Scalar::Double(_) => "Double",
    }
}

/// The array type of a tensor, in memory order, if its shape is static and its elements are
/// numbers.
fn array(slot: &Slot) -> Option<String> {
    let Slot::Tensor { info, is_dynamic: false, .. } = slot else { return None };
    let mut text = element(info)?.to_owned();
    // If dims of size one make the order ambiguous, the order of the shape is used.
    let is_plain = info.is_contiguous();
    for (place, &dim) in info.dim_order.iter().enumerate().rev() {
        let size = info.sizes.get(if is_plain { place } else { usize::from(dim) })?;
        if *size < 1 {
            return None;
        }
        text = format!("[{text}; {size}]");
    }
    Some(text)
}

fn element(info: &TensorInfo) -> Option<&'static str> {
    Some(match info.scalar_type {
        ScalarType::Byte => "u8",
        ScalarType::Char => "i8",
        ScalarType::Short => "i16",
        ScalarType::Int => "i32",
        ScalarType::Long => "i64",
        ScalarType::Half => "firmware::f16",
        ScalarType::Float => "f32",
        ScalarType::Double => "f64",
        ScalarType::Bool => "core::Bool",
        ScalarType::BFloat16 => "firmware::bf16",
        ScalarType::UInt16 => "u16",
        ScalarType::UInt32 => "u32",
        ScalarType::UInt64 => "u64",
        _ => return None,
    })
}

/// The first lines of a function that sets the inputs of a method, runs it and returns the outputs.
fn begin_run(text: &mut String, name: &str, [parameters, results]: [&str; 2], is_shared: bool) {
    let (generic, life, shared) = match is_shared {
        true => ("<'a>", "'a ", "shared: &'a mut core::SharedMemory<'static>, "),
        false => ("", "", ""),
    };
    line(
        text,
        "    ///\n    /// # Errors\n    /// If an input does not match, or an instruction fails.",
    );
    line(
        text,
        &format!(
            "    pub fn {name}{generic}(&{life}mut self, {shared}{parameters}) \
             -> Result<{results}, Error> {{"
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_identifiers() {
        assert_eq!(identifier("digits"), "digits");
        assert_eq!(identifier("mobilenet-v2.int8"), "mobilenet_v2_int8");
        assert_eq!(identifier("2nd"), "p_2nd");
        assert_eq!(identifier("match"), "match_");
        assert_eq!(identifier("Self"), "Self_");
        assert_eq!(method_identifier("Model"), "Model_");
        assert_eq!(method_identifier("forward"), "forward");
    }

    #[test]
    fn names_cannot_escape_comments() {
        assert_eq!(escaped("forward"), "forward");
        assert!(!escaped("a\npub fn b() {}\r\u{2028}").contains(['\n', '\r', '\u{2028}']));
    }
}
