//! Tables of a blob, from ExecuTorch's `backends/xnnpack/serialization/schema.fbs`. Floats are read
//! as bits.

use torchlet_core::flatbuffer_table;
use torchlet_core::format::flatbuffer::Vector;

flatbuffer_table! { GraphTable {
    0 version: &'a str,
    1 nodes: Vector<'a, NodeTable<'a>>,
    2 values: Vector<'a, ValueTable<'a>>,
    /// Number of arguments of the delegate call.
    3 externals: u32,
    4 input_ids: Vector<'a, u32>,
    5 output_ids: Vector<'a, u32>,
    8 constants: Vector<'a, ConstantTable<'a>>,
} }
flatbuffer_table! {
    /// A byte range: an offset into the constants, or named data if the offset is `u64::MAX`.
    ConstantTable { 0 offset: u64, 1 size: u64, 2 named_key: &'a str, }
}
flatbuffer_table! {
    /// A value: field 0 is the union's type, field 1 its table.
    ValueTable { 0 kind: u8, }
}
flatbuffer_table! { TensorTable {
    /// A short in the schema; all defined values fit into a byte.
    0 datatype: u8,
    1 rank: u32,
    2 dims: Vector<'a, u32>,
    /// 0 for non-constant tensors.
    3 constant: u32,
    /// Argument index in the delegate call.
    4 external_id: u32,
    5 flags: u32,
    6 id: u32,
} }
flatbuffer_table! {
    /// A quantized value: field 1 is the union's type, field 2 its table.
    QuantizedTable { 0 tensor: TensorTable<'a>, 1 kind: u8, }
}
flatbuffer_table! { PerTensorTable { 0 scale: u32, 1 zero_point: i32, } }
flatbuffer_table! { PerChannelTable {
    0 scales: Vector<'a, u32>,
    1 dim: i32,
    2 constant: u32,
    3 count: u32,
} }
flatbuffer_table! { PerGroupTable {
    0 scales: Vector<'a, u32>,
    1 dim: i32,
    2 group_size: i32,
    4 constant: u32,
    5 count: u32,
} }
flatbuffer_table! { PerRowTable { 0 inner_dims: i32, } }
flatbuffer_table! {
    /// A call: field 0 is the union's type, field 1 its table.
    NodeTable { 0 kind: u8, 2 debug_handle: u32, 3 limits: LimitsTable<'a>, }
}
flatbuffer_table! { LimitsTable { 0 low: u32, 1 high: u32, } }
flatbuffer_table! { UnaryTable { 0 input: u32, 1 output: u32, 2 flags: u32, } }
flatbuffer_table! { BinaryTable { 0 first: u32, 1 second: u32, 2 output: u32, 3 flags: u32, } }
flatbuffer_table! { LinearTable {
    0 input: u32,
    1 filter: u32,
    2 bias: u32,
    3 output: u32,
    4 flags: u32,
} }
flatbuffer_table! { TransposeTable {
    0 rank: u32,
    1 order: Vector<'a, u32>,
    2 input: u32,
    3 output: u32,
} }
flatbuffer_table! { ResizeTable {
    0 height: u32,
    1 width: u32,
    2 input: u32,
    3 output: u32,
    4 flags: u32,
} }
flatbuffer_table! { PadTable {
    0 before: Vector<'a, u32>,
    1 after: Vector<'a, u32>,
    2 value: u32,
    3 input: u32,
    4 output: u32,
} }
flatbuffer_table! { ReshapeTable {
    0 rank: u32,
    1 sizes: Vector<'a, u32>,
    2 input: u32,
    3 output: u32,
} }
flatbuffer_table! { SliceTable {
    0 rank: u32,
    1 offsets: Vector<'a, u32>,
    2 sizes: Vector<'a, u32>,
    3 input: u32,
    4 output: u32,
} }
flatbuffer_table! {
    /// The fifth input was added to the schema later.
    CatTable {
        0 axis: u32,
        1 first: u32,
        2 second: u32,
        3 third: u32,
        4 fourth: u32,
        5 output: u32,
        7 fifth: u32,
    }
}
flatbuffer_table! {
    /// `ELU` and leaky `ReLU`: alpha or slope, and a tensor.
    SlopeTable { 0 slope: u32, 1 input: u32, 2 output: u32, }
}
flatbuffer_table! { AttentionTable {
    0 query: u32,
    1 key: u32,
    2 value: u32,
    3 scale: u32,
    4 mask: u32,
    5 output: u32,
} }
flatbuffer_table! { ConvolutionTable {
    0 top: u32,
    1 right: u32,
    2 bottom: u32,
    3 left: u32,
    4 kernel_height: u32,
    5 kernel_width: u32,
    6 stride_height: u32,
    7 stride_width: u32,
    8 dilation_height: u32,
    9 dilation_width: u32,
    10 group_inputs: u32,
    11 group_outputs: u32,
    12 groups: u32,
    13 adjustment_height: u32,
    14 adjustment_width: u32,
    15 input: u32,
    16 filter: u32,
    17 bias: u32,
    18 output: u32,
    19 flags: u32,
} }
flatbuffer_table! { PoolTable {
    0 top: u32,
    1 right: u32,
    2 bottom: u32,
    3 left: u32,
    4 height: u32,
    5 width: u32,
    6 stride_height: u32,
    7 stride_width: u32,
    8 dilation_height: u32,
    9 dilation_width: u32,
    10 input: u32,
    11 output: u32,
    12 flags: u32,
} }
