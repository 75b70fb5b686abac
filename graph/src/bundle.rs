//! Writes bundled programs: files with a program and test cases for it. Test cases can be copied
//! from another bundle.

use crate::error::Error;
use crate::tables::{Offset, table};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use flatbuffers::{FlatBufferBuilder, WIPOffset};
use torchlet_core::{BundledProgram, Scalar, TensorRef, ValueRef};

/// Version of the format.
const VERSION: u32 = 2;

/// Maximum size of a bundle in bytes: half the limit of flatbuffers.
const LARGEST: usize = 1 << 30;

/// Upper bound for the size of a table, without the data that it refers to.
const TABLE: usize = 64;

type Values = WIPOffset<flatbuffers::Vector<'static, flatbuffers::ForwardsUOffset<Table>>>;
type Table = flatbuffers::TableFinishedWIPOffset;

/// Replaces the program in a bundle and keeps the bundle's test cases.
///
/// # Errors
/// The test cases are malformed, or the result exceeds the size limit.
pub fn bundle(cases: &BundledProgram<'_>, program: &[u8]) -> Result<Vec<u8>, Error> {
    let mut bundle = Bundle::default();
    bundle.add_all(cases)?;
    bundle.finish(program)
}

/// Builder for a bundled program.
pub struct Bundle {
    b: FlatBufferBuilder<'static>,
    /// Remaining bytes.
    left: usize,
    /// Test cases by method, in order.
    suites: Vec<(String, Vec<Offset>)>,
}

impl Default for Bundle {
    fn default() -> Self {
        Bundle { b: FlatBufferBuilder::new(), left: LARGEST, suites: Vec::new() }
    }
}

impl core::fmt::Debug for Bundle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Bundle").field("suites", &self.suites.len()).finish_non_exhaustive()
    }
}

impl Bundle {
    /// Adds the test cases of another bundle.
    ///
    /// # Errors
    /// The test cases are malformed, or the bundle exceeds the size limit.
    pub fn add_all(&mut self, cases: &BundledProgram<'_>) -> Result<(), Error> {
        for suite in cases.suites()? {
            let suite = suite?;
            let method = suite.method_name()?;
            // Keeps suites without test cases.
            self.suite(method)?;
            for case in suite.cases()? {
                let case = case?;
                let inputs = case.inputs()?.collect::<Result<Vec<_>, _>>()?;
                let outputs = case.expected_outputs()?.collect::<Result<Vec<_>, _>>()?;
                self.add(method, &inputs, &outputs)?;
            }
        }
        Ok(())
    }

    /// Adds a test case of a method: its inputs and the expected outputs.
    ///
    /// # Errors
    /// A test case cannot hold a value of this kind, or the bundle exceeds the size limit.
    pub fn add(
        &mut self,
        method: &str,
        inputs: &[ValueRef<'_>],
        expected: &[ValueRef<'_>],
    ) -> Result<(), Error> {
        let (inputs, expected) = (self.values(inputs)?, self.values(expected)?);
        self.charge(0)?;
        let case = table(&mut self.b, |t| {
            t.offset(0, inputs);
            t.offset(1, expected);
        });
        self.suite(method)?.push(case);
        Ok(())
    }

    /// Returns the bundle file, which contains `program` and the test cases.
    ///
    /// # Errors
    /// The bundle exceeds the size limit.
    pub fn finish(mut self, program: &[u8]) -> Result<Vec<u8>, Error> {
        self.charge(program.len())?;
        let mut suites = Vec::new();
        for (name, cases) in core::mem::take(&mut self.suites) {
            let (name, cases) = (self.b.create_string(&name), self.b.create_vector(&cases));
            suites.push(table(&mut self.b, |t| {
                t.offset(0, name);
                t.offset(1, cases);
            }));
        }
        let suites = self.b.create_vector(&suites);
        let program = self.b.create_vector(program);
        let root = table(&mut self.b, |t| {
            t.scalar(0, VERSION);
            t.offset(1, suites);
            t.offset(2, program);
        });
        self.b.finish(root, Some("BP08"));
        Ok(self.b.finished_data().to_vec())
    }

    /// Returns the test cases of a method, and adds an empty suite if it has none.
    fn suite(&mut self, method: &str) -> Result<&mut Vec<Offset>, Error> {
        let place = match self.suites.iter().position(|(name, _)| name == method) {
            Some(place) => place,
            None => {
                self.charge(method.len())?;
                self.suites.push((method.to_owned(), Vec::new()));
                self.suites.len() - 1
            }
        };
        let suite = self.suites.get_mut(place).map(|(_, cases)| cases);
        suite.ok_or_else(|| Error::invalid("internal error: a suite of test cases is missing"))
    }

    /// Charges bytes and a table against the size limit.
    fn charge(&mut self, bytes: usize) -> Result<(), Error> {
        let left = bytes.checked_add(TABLE).and_then(|bytes| self.left.checked_sub(bytes));
        let too_large =
            || Error::unsupported("a bundle larger than 1 GiB; extract the program from it first");
        self.left = left.ok_or_else(too_large)?;
        Ok(())
    }

    fn values(&mut self, values: &[ValueRef<'_>]) -> Result<Values, Error> {
        let values: Vec<Offset> =
            values.iter().map(|value| self.value(value)).collect::<Result<_, _>>()?;
        Ok(self.b.create_vector(&values))
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
            _ => {
                return Err(Error::unsupported(
                    "a test case with a value other than a tensor, a scalar or None",
                ));
            }
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
