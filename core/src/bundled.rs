//! Bundled programs (`.bpte`): a program with test inputs and PyTorch's reference outputs.

use crate::arguments::elements;
use crate::error::ProgramError;
use crate::format::Part;
use crate::format::bundled_schema::{
    BundledTable, BundledTensorTable, BundledValueTable, TestCaseTable, TestSuiteTable,
};
use crate::format::flatbuffer::{Table, Vector};
use crate::format::program_schema::{BoolTable, DoubleTable, IntTable};
use crate::layout::TensorInfo;
use crate::tensor::{TensorRef, ValueRef};
use crate::value::Scalar;

/// A bundled program.
#[derive(Debug, Clone, Copy)]
pub struct BundledProgram<'p> {
    root: BundledTable<'p>,
}

/// The test cases of one method.
#[derive(Debug, Clone, Copy)]
pub struct TestSuite<'p>(TestSuiteTable<'p>);

/// Test inputs and the expected outputs.
#[derive(Debug, Clone, Copy)]
pub struct TestCase<'p>(TestCaseTable<'p>);

impl<'p> BundledProgram<'p> {
    /// Checks for the file identifier of bundled programs.
    pub fn is_bundled(bytes: &[u8]) -> bool {
        bytes.get(4..8) == Some(b"BP08")
    }

    /// Opens a bundled program.
    ///
    /// # Errors
    /// The bytes are not a valid bundled program.
    pub fn from_bytes(bytes: &'p [u8]) -> Result<Self, ProgramError> {
        if !Self::is_bundled(bytes) {
            return Err(Part::BundleIdentifier.at(4).into());
        }
        Ok(BundledProgram { root: BundledTable(Table::root(bytes)?) })
    }

    /// Bytes of the contained program, for [`Program::from_bytes`](crate::Program::from_bytes).
    ///
    /// # Errors
    /// The file is malformed.
    pub fn program(&self) -> Result<&'p [u8], ProgramError> {
        Ok(self.root.program()?.bytes())
    }

    /// The test suites, in the order of the file.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn suites(
        &self,
    ) -> Result<impl Iterator<Item = Result<TestSuite<'p>, ProgramError>> + use<'p>, ProgramError>
    {
        Ok(self.root.method_test_suites()?.iter().map(|suite| Ok(TestSuite(suite?))))
    }
}

impl<'p> TestSuite<'p> {
    /// Name of the tested method.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn method_name(&self) -> Result<&'p str, ProgramError> {
        Ok(self.0.method_name()?.unwrap_or(""))
    }

    /// The test cases, in order. A program with state must run them in order on one loaded method.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn cases(
        &self,
    ) -> Result<impl Iterator<Item = Result<TestCase<'p>, ProgramError>> + use<'p>, ProgramError>
    {
        Ok(self.0.test_cases()?.iter().map(|case| Ok(TestCase(case?))))
    }
}

impl<'p> TestCase<'p> {
    /// The inputs.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn inputs(
        &self,
    ) -> Result<impl Iterator<Item = Result<ValueRef<'p>, ProgramError>> + use<'p>, ProgramError>
    {
        Ok(self.0.inputs()?.iter().map(|value| decode(&value?)))
    }

    /// PyTorch's reference outputs.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn expected_outputs(
        &self,
    ) -> Result<impl Iterator<Item = Result<ValueRef<'p>, ProgramError>> + use<'p>, ProgramError>
    {
        Ok(self.0.expected_outputs()?.iter().map(|value| decode(&value?)))
    }
}

fn decode<'p>(value: &BundledValueTable<'p>) -> Result<ValueRef<'p>, ProgramError> {
    let kind = value.kind()?;
    let malformed = Part::BundledValue.at(usize::from(kind));
    let Some(table) = value.0.union_value(1)? else {
        return if kind == 0 { Ok(ValueRef::None) } else { Err(malformed.into()) };
    };
    Ok(match kind {
        0 => ValueRef::None,
        1 => ValueRef::Tensor(tensor(&BundledTensorTable(table))?),
        2 => ValueRef::Scalar(Scalar::Int(IntTable(table).value()?)),
        3 => ValueRef::Scalar(Scalar::Bool(BoolTable(table).value()?)),
        4 => ValueRef::Scalar(Scalar::Double(DoubleTable(table).value()?)),
        _ => return Err(malformed.into()),
    })
}

fn tensor<'p>(table: &BundledTensorTable<'p>) -> Result<TensorRef<'p>, ProgramError> {
    let malformed = Part::BundledValue.at(1);
    let shape: Vector<'p, i32> = table.sizes()?;
    let sizes = elements::<4>(shape.bytes()).iter().map(|bytes| Some(i32::from_le_bytes(*bytes)));
    let info = TensorInfo::checked(table.scalar_type()?.into(), sizes, table.dim_order()?.bytes())
        .ok_or(malformed)?;
    let data = table.data()?.bytes().get(..info.nbytes()).ok_or(malformed)?;
    TensorRef::new(info, data).ok_or(malformed.into())
}
