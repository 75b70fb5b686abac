//! The module of a method: its memory, and the handle that runs it.

use super::{
    array, begin_method, begin_run, end_method, is_parameter, lent, line, names, parameters, reads,
    results, scalar_variant, sizes, slot_types, statics, taken,
};
use crate::{MethodAnalysis, Slot};

/// The module of a method.
pub(super) fn write(text: &mut String, found: &MethodAnalysis, is_shared: bool) {
    let mut inner = begin_method(found);
    let text_of_method = &mut inner;
    line(text_of_method, "/// Size of the arena in bytes.");
    line(text_of_method, &format!("pub const ARENA: usize = {};", found.arena));
    sizes(text_of_method, &found.planned, found.scratch);
    let lent = lent(found);
    let places: Vec<&str> = lent.iter().map(|(place, _)| place.as_str()).collect();
    let places = places.join(", ");
    line(
        text_of_method,
        "/// Values whose memory the caller lends, because the exporter planned none.",
    );
    line(
        text_of_method,
        &format!("pub const LENT: [firmware::Lent; {}] = [{places}];", lent.len()),
    );
    slot_types(text_of_method, found);
    memory(text_of_method, found, &lent, is_shared);
    handle(text_of_method, found, is_shared);
    end_method(text, found, "with its memory", &inner);
}

/// The memory of a method.
fn memory(text: &mut String, found: &MethodAnalysis, lent: &[(String, usize)], is_shared: bool) {
    let planned: &[usize] = if is_shared { &[] } else { &found.planned };
    let scratch = if is_shared { 0 } else { found.scratch };
    let (buffers, lends) = (planned.len(), lent.len());
    line(text, "/// Memory of the method.");
    line(text, &format!("pub type Memory = firmware::Memory<{buffers}, {lends}>;"));
    line(text, "\n/// Takes static memory of exactly the required sizes.");
    line(text, "///\n/// # Errors\n/// If it was already taken.");
    line(text, "pub fn memory() -> Result<Memory, Error> {");
    line(text, "    const BLOCKS: usize = ARENA.div_ceil(core::ARENA_ALIGN);");
    line(text, "    static ARENA_MEMORY: TakeOnce<[core::ArenaBlock; BLOCKS]> =");
    line(text, "        TakeOnce::new([core::ArenaBlock::UNINIT; BLOCKS]);");
    statics(text, planned, scratch);
    for (index, (_, size)) in lent.iter().enumerate() {
        line(
            text,
            &format!(
                "    static LENT_MEMORY_{index}: TakeOnce<core::AlignedBytes<[u8; {size}]>> ="
            ),
        );
        line(text, &format!("        TakeOnce::new(core::AlignedBytes([0; {size}]));"));
    }
    line(text, "    Ok(firmware::Memory {");
    line(text, "        arena: &mut core::ArenaBlock::bytes(ARENA_MEMORY.take()?)[..ARENA],");
    line(text, &format!("        planned: [{}],", taken(planned)));
    line(text, "        scratch: &mut SCRATCH_MEMORY.take()?.0,");
    let take = |index| format!("&mut LENT_MEMORY_{index}.take()?.0");
    let lent: Vec<String> = (0..lent.len()).map(take).collect();
    line(text, &format!("        lent: [{}],", lent.join(", ")));
    line(text, "    })\n}");
}

/// The type of a loaded method, with its functions.
fn handle(text: &mut String, found: &MethodAnalysis, is_shared: bool) {
    let (kind, generic, life, shared) = match is_shared {
        true => {
            let shared = "shared: &mut core::SharedMemory<'static>, ";
            ("core::SharedMethod<'static>", "<'a>", "'a ", shared)
        }
        false => ("core::Method<'static>", "", "", ""),
    };
    let (attached, seen) = match is_shared {
        true => ("self.0.attach(shared)?", "self.0.view(shared)?"),
        false => ("self.0.attached()", "&self.0"),
    };
    let parameters = parameters(found);
    let (names, results) = (names(found), results(found, life));
    line(text, "\n/// The loaded method.");
    // Shared methods do not implement `Debug`.
    if !is_shared {
        line(text, "#[derive(Debug)]");
    }
    line(text, &format!("pub struct Method({kind});"));
    line(text, "\nimpl Method {");
    line(
        text,
        "    /// Loads the method of a program, not necessarily the embedded one, into `memory`.",
    );
    line(
        text,
        "    ///\n    /// # Errors\n    /// If the program is invalid, or something is missing.",
    );
    line(text, "    pub fn load(");
    if is_shared {
        line(text, &format!("        {shared}"));
    }
    line(text, "        program: &core::Program<'static>,");
    line(text, "        registry: &core::Registry<'static>,");
    line(text, "        memory: Memory,");
    line(text, "        options: core::LoadOptions<'static>,");
    line(text, "    ) -> Result<Self, Error> {");
    let loaded = match is_shared {
        true => "firmware::load_shared(program, NAME, registry, shared, memory, LENT, options)",
        false => "firmware::load(program, NAME, registry, memory, LENT, options)",
    };
    line(text, &format!("        Ok(Method({loaded}?))\n    }}"));
    line(text, "\n    /// Sets the inputs. Every run consumes them.");
    line(text, "    ///\n    /// # Errors\n    /// If an input does not match.");
    line(
        text,
        &format!("    pub fn set_inputs(&mut self, {shared}{parameters}) -> Result<(), Error> {{"),
    );
    line(
        text,
        &format!(
            "        #[allow(unused_mut, unused_variables)]\n        let mut method = {attached};"
        ),
    );
    for (index, slot) in found.inputs.iter().enumerate() {
        match slot {
            Slot::Scalar(scalar) => {
                let kind = scalar_variant(scalar);
                line(
                    text,
                    &format!(
                        "        firmware::set_scalar(&mut method, {index}, \
                         core::Scalar::{kind}(input_{index}))?;"
                    ),
                );
            }
            Slot::Tensor { .. } if is_parameter(slot) => {
                let function = if array(slot).is_some() { "set_input" } else { "set_tensor" };
                line(
                    text,
                    &format!("        firmware::{function}(&mut method, {index}, input_{index})?;"),
                );
            }
            _ => {}
        }
    }
    line(text, "        Ok(())\n    }");
    line(text, "\n    /// The outputs of the last run.");
    line(
        text,
        "    ///\n    /// # Errors\n    /// If an output differs from the embedded program's, or \
         another method has used its memory since.",
    );
    let seen_shared = if is_shared { "shared: &'a core::SharedMemory<'static>" } else { "" };
    line(
        text,
        &format!(
            "    pub fn outputs{generic}(&{life}self, {seen_shared}) -> Result<{results}, Error> {{"
        ),
    );
    line(text, &format!("        #[allow(unused_variables)]\n        let method = {seen};"));
    line(text, &format!("        Ok({})\n    }}", reads(found)));
    line(text, "\n    /// Sets the inputs, runs the method and returns the outputs.");
    begin_run(text, "run", [&parameters, &results], is_shared);
    let pass = if is_shared { "shared, " } else { "" };
    line(text, &format!("        self.set_inputs({pass}{names})?;"));
    line(text, &format!("        {attached}.execute()?;"));
    line(text, &format!("        self.outputs({})\n    }}", if is_shared { "shared" } else { "" }));
    line(
        text,
        "\n    /// The underlying method of `torchlet-core`: to step through it, to reset its \
         state, to fill inputs in place.",
    );
    line(
        text,
        &format!("    pub fn as_core(&mut self) -> &mut {kind} {{\n        &mut self.0\n    }}"),
    );
    line(text, "}");
}
