//! Labels of commands in traces.

use crate::device::PipelineKey;

/// The label of a recorded command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The operator and the shader, or the transfer.
    pub name: String,
    /// The id of the operator's call in the blob, or the position of the input or output.
    pub id: u32,
    /// The output shape, the shader variant, and the choices made by autotuning.
    pub detail: String,
    /// The index of the graph's call that the command belongs to.
    pub call: Option<usize>,
}

/// The specialisation constants that define how work is divided. Together with the module name and
/// the workgroup size, they distinguish variants.
const DIVISION: &[&str] = &[
    "rows",
    "quads",
    "shares",
    "tile",
    "tile_m",
    "tile_n",
    "tile_k",
    "tile_x",
    "tile_y",
    "lanes",
    "sums",
    "channels",
    "teams",
    "parts",
    "key_parts",
    "value_parts",
    "term_parts",
];

/// Describes the variant of a shader for users: the workgroup size, and the constants that divide
/// the work.
pub(crate) fn variant(key: &PipelineKey) -> String {
    let [x, y, z] = key.workgroup;
    let mut text = format!("{x}×{y}×{z} invocations");
    let mut values = key.constants.iter();
    for field in key.module.constants {
        let own = values.by_ref().take(field.count);
        if DIVISION.contains(&field.name) {
            own.for_each(|value| text.push_str(&format!(", {} {value}", field.name)));
        } else {
            own.for_each(drop);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchlet_shaders::{AttentionCooperative, Element, Pipeline};

    #[test]
    fn variant_lists_workgroup_and_division() {
        let pipeline = AttentionCooperative {
            mask: Element::F32,
            output: Element::F16,
            has_mask: false,
            causal: true,
            hidden_zeros: false,
            sides: 4,
            value_sides: 4,
            parts: 2,
            key_parts: 2,
            value_parts: 1,
        };
        let module = AttentionCooperative::MODULE;
        let key = PipelineKey { module, constants: pipeline.constants(), workgroup: [64, 1, 1] };
        assert_eq!(variant(&key), "64×1×1 invocations, parts 2, key_parts 2, value_parts 1");
        // Array constants, which have several values under one name, are skipped.
        let fields = torchlet_shaders::Pointwise::MODULE.constants;
        let constants = (0..fields.iter().map(|field| field.count as u32).sum()).collect();
        let module = torchlet_shaders::Pointwise::MODULE;
        let key = PipelineKey { module, constants, workgroup: [64, 2, 1] };
        assert_eq!(variant(&key), "64×2×1 invocations");
    }

    #[test]
    fn division_constants_exist_in_shaders() {
        let of = |name: &str| {
            let mut modules = torchlet_shaders::MODULES.iter();
            modules.any(|module| module.constants.iter().any(|field| field.name == name))
        };
        assert!(DIVISION.iter().all(|name| of(name)), "{DIVISION:?}");
    }
}
