//! Tables of the container, from `schema/vgf.fbs` of Arm's `ai-ml-sdk-vgf-library`, and as its
//! `vgf_dump` prints them.

use torchlet_core::flatbuffer_table;
use torchlet_core::format::flatbuffer::Vector;

flatbuffer_table! { ModulesTable { 0 modules: Vector<'a, ModuleTable<'a>>, } }
flatbuffer_table! { ModuleTable {
    /// 0: compute, 1: graph.
    0 kind: u8,
    1 name: &'a str,
    2 entry_point: &'a str,
    /// Type of the union in field 4. 1: SPIR-V, 2: GLSL, 3: HLSL.
    3 language: u8,
    4 code: CodeTable<'a>,
} }
flatbuffer_table! {
    /// SPIR-V words.
    CodeTable { 0 words: Vector<'a, u32>, }
}
flatbuffer_table! {
    /// GLSL or HLSL source.
    TextTable { 0 text: &'a str, }
}
flatbuffer_table! { SequenceTable {
    0 segments: Vector<'a, SegmentTable<'a>>,
    1 inputs: Vector<'a, SlotTable<'a>>,
    2 outputs: Vector<'a, SlotTable<'a>>,
    3 input_names: Vector<'a, &'a str>,
    4 output_names: Vector<'a, &'a str>,
} }
flatbuffer_table! { SegmentTable {
    /// 0: compute, 1: graph.
    0 kind: u8,
    1 name: &'a str,
    2 module: u32,
    3 sets: Vector<'a, SetTable<'a>>,
    4 inputs: Vector<'a, SlotTable<'a>>,
    5 outputs: Vector<'a, SlotTable<'a>>,
    6 constants: Vector<'a, u32>,
    7 dispatch_shape: Vector<'a, u32>,
    8 push_constants: Vector<'a, RangeTable<'a>>,
    /// Newer files only; older ones number graph constants by position in `constants`.
    9 constant_bindings: Vector<'a, ConstantBindingTable<'a>>,
} }
flatbuffer_table! {
    SetTable {
        0 bindings: Vector<'a, SlotTable<'a>>,
        /// Newer files only; negative or absent if position numbers the sets.
        1 set: Option<i32>,
    }
}
flatbuffer_table! {
    /// A binding and the index of the resource that is bound.
    SlotTable { 0 binding: u32, 1 resource: u32, }
}
flatbuffer_table! { RangeTable { 0 stages: u32, 1 offset: u32, 2 size: u32, } }
flatbuffer_table! {
    /// Number of a graph constant in SPIR-V, and its index among the constants.
    ConstantBindingTable { 0 graph_constant: u32, 1 constant: u32, }
}
flatbuffer_table! { ResourcesTable { 0 resources: Vector<'a, ResourceTable<'a>>, } }
flatbuffer_table! { ResourceTable {
    0 descriptor_type: u32,
    1 format: u32,
    /// 0: input, 1: output, 2: intermediate, 3: constant.
    2 category: u8,
    3 description: DescriptionTable<'a>,
    /// Type of the union in field 5. 1: sampler.
    4 extra: u8,
    5 sampler: SamplerTable<'a>,
    /// Absent or -1 if the resource shares its memory with no other.
    6 alias_group: Option<i32>,
} }
flatbuffer_table! {
    /// Numbers of `VkFilter`, `VkSamplerAddressMode` and `VkBorderColor`.
    SamplerTable {
        0 min_filter: u32,
        1 mag_filter: u32,
        2 address_mode_u: u32,
        3 address_mode_v: u32,
        4 border_color: u32,
    }
}
flatbuffer_table! {
    DescriptionTable { 0 shape: Vector<'a, u64>, 1 strides: Vector<'a, u64>, }
}
flatbuffer_table! {
    /// Constants of older files.
    OldConstantsTable { 0 constants: Vector<'a, OldConstantTable<'a>>, }
}
flatbuffer_table! {
    OldConstantTable { 0 resource: u32, 2 raw: Vector<'a, u8>, }
}
