//! Tables of `.bpte` files, by field number (ExecuTorch's published `bundled_program_schema.fbs`,
//! identifier `BP08`).

use super::flatbuffer::Vector;

crate::flatbuffer_table! {
    /// Root of a bundled program.
    BundledTable {
        0 version: u32,
        1 method_test_suites: Vector<'a, TestSuiteTable<'a>>,
        2 program: Vector<'a, u8>,
    }
}

crate::flatbuffer_table! {
    /// Test cases of one method.
    TestSuiteTable {
        0 method_name: &'a str,
        1 test_cases: Vector<'a, TestCaseTable<'a>>,
    }
}

crate::flatbuffer_table! {
    /// Test inputs and the expected outputs.
    TestCaseTable {
        0 inputs: Vector<'a, BundledValueTable<'a>>,
        1 expected_outputs: Vector<'a, BundledValueTable<'a>>,
    }
}

crate::flatbuffer_table! {
    /// A value as a union: field 0 is the type (1 tensor, 2 int, 3 bool, 4 double), field 1 the
    /// table.
    BundledValueTable {
        0 kind: u8,
    }
}

crate::flatbuffer_table! {
    /// A tensor with its data.
    BundledTensorTable {
        0 scalar_type: i8,
        1 sizes: Vector<'a, i32>,
        2 data: Vector<'a, u8>,
        3 dim_order: Vector<'a, u8>,
    }
}
