//! Tables of `.ptd` files, by field number (ExecuTorch's published `flat_tensor.fbs`, identifier
//! `FT01`).

use super::flatbuffer::Vector;
use super::program_schema::DataSegment;

crate::flatbuffer_table! {
    /// Root of a `.ptd` file.
    FlatTensorTable {
        0 version: u32,
        1 segments: Vector<'a, DataSegment<'a>>,
        2 named_data: Vector<'a, NamedTensor<'a>>,
    }
}

crate::flatbuffer_table! {
    /// A named segment, with a layout if it is a tensor.
    NamedTensor {
        0 key: &'a str,
        1 segment_index: u32,
        2 tensor_layout: TensorLayoutTable<'a>,
    }
}

crate::flatbuffer_table! {
    /// Dtype and shape of a tensor.
    TensorLayoutTable {
        0 scalar_type: i8,
        1 sizes: Vector<'a, i32>,
        2 dim_order: Vector<'a, u8>,
    }
}
