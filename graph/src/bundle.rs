//! Writes bundled programs: a program with the test cases of another bundle.

use crate::error::Error;
use crate::tables::{Offset, table};
use alloc::vec::Vec;
use flatbuffers::{FlatBufferBuilder, WIPOffset};
use torchlet_core::{BundledProgram, Scalar, TensorRef, TestCase, ValueRef};

/// The version of the format that is written.
const VERSION: u32 = 2;

/// The most bytes that a bundle can have: half of what flatbuffers can.
const LARGEST: usize = 1 << 30;

/// More than a table takes without what it refers to.
const TABLE: usize = 64;

/// A program with the test cases of a bundle in the place of the bundle's own program.
///
/// # Errors
/// The test cases are malformed, or all of it is larger than such a file can be.
pub fn bundle(cases: &BundledProgram<'_>, program: &[u8]) -> Result<Vec<u8>, Error> {
    let mut writer = Writer { b: FlatBufferBuilder::new(), left: LARGEST };
    writer.charge(program.len())?;
    let mut suites = Vec::new();
    for suite in cases.suites()? {
        let suite = suite?;
        let mut cases = Vec::new();
        for case in suite.cases()? {
            cases.push(writer.case(&case?)?);
        }
        let name = suite.method_name()?;
        writer.charge(name.len())?;
        let (name, cases) = (writer.b.create_string(name), writer.b.create_vector(&cases));
        suites.push(table(&mut writer.b, |t| {
            t.offset(0, name);
            t.offset(1, cases);
        }));
    }
    let suites = writer.b.create_vector(&suites);
    let program = writer.b.create_vector(program);
    let root = table(&mut writer.b, |t| {
        t.scalar(0, VERSION);
        t.offset(1, suites);
        t.offset(2, program);
    });
    writer.b.finish(root, Some("BP08"));
    Ok(writer.b.finished_data().to_vec())
}

struct Writer {
    b: FlatBufferBuilder<'static>,
    /// Bytes that may still be written.
    left: usize,
}

type Values = WIPOffset<flatbuffers::Vector<'static, flatbuffers::ForwardsUOffset<Table>>>;
type Table = flatbuffers::TableFinishedWIPOffset;

impl Writer {
    /// Counts bytes and a table for them.
    fn charge(&mut self, bytes: usize) -> Result<(), Error> {
        let left = bytes.checked_add(TABLE).and_then(|bytes| self.left.checked_sub(bytes));
        let too_large = || {
            Error::unsupported("a bundle of more than a gigabyte; take the program out of it first")
        };
        self.left = left.ok_or_else(too_large)?;
        Ok(())
    }

    fn case(&mut self, case: &TestCase<'_>) -> Result<Offset, Error> {
        let mut values = Vec::new();
        for value in case.inputs()? {
            values.push(self.value(&value?)?);
        }
        let inputs: Values = self.b.create_vector(&values);
        values.clear();
        for value in case.expected_outputs()? {
            values.push(self.value(&value?)?);
        }
        let outputs = self.b.create_vector(&values);
        self.charge(0)?;
        Ok(table(&mut self.b, |t| {
            t.offset(0, inputs);
            t.offset(1, outputs);
        }))
    }

    fn value(&mut self, value: &ValueRef<'_>) -> Result<Offset, Error> {
        let (kind, inner) = match value {
            ValueRef::None => (0u8, None),
            ValueRef::Tensor(tensor) => (1, Some(self.tensor(tensor)?)),
            ValueRef::Scalar(Scalar::Int(value)) => {
                (2, Some(table(&mut self.b, |t| t.scalar(0, *value))))
            }
            ValueRef::Scalar(Scalar::Bool(value)) => {
                (3, Some(table(&mut self.b, |t| t.scalar(0, *value))))
            }
            ValueRef::Scalar(Scalar::Double(value)) => {
                (4, Some(table(&mut self.b, |t| t.double(0, *value))))
            }
            _ => return Err(Error::unsupported("a test case with a value of a kind of its own")),
        };
        self.charge(TABLE)?;
        Ok(table(&mut self.b, |t| {
            if let Some(inner) = inner {
                t.offset(1, inner.as_union_value());
            }
            t.scalar(0, kind);
        }))
    }

    fn tensor(&mut self, tensor: &TensorRef<'_>) -> Result<Offset, Error> {
        let (info, bytes) = (tensor.info(), tensor.bytes());
        self.charge(bytes.len() + TABLE)?;
        let sizes = self.b.create_vector(&info.sizes);
        let data = self.b.create_vector(bytes);
        let order = self.b.create_vector(&info.dim_order);
        Ok(table(&mut self.b, |t| {
            t.offset(1, sizes);
            t.offset(2, data);
            t.offset(3, order);
            t.scalar(0, info.scalar_type as i8);
        }))
    }
}
