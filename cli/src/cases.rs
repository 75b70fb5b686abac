//! Test cases of bundled programs as values.

use crate::budget::Budget;
use crate::failure::Failure;
use torchlet::core::{ProgramError, TestCase, ValueRef};
use torchlet::{Module, Tensor, Value};

/// The test cases of one method, in order.
pub(crate) struct Suite<'m> {
    pub(crate) method: &'m str,
    pub(crate) cases: Vec<TestCase<'m>>,
}

fn malformed(error: ProgramError) -> Failure {
    Failure::new(format!("the test cases are malformed: {error}"))
}

/// Returns all test suites of a program; empty unless it is a bundled program.
pub(crate) fn suites(module: &Module) -> Result<Vec<Suite<'_>>, Failure> {
    let Some(bundled) = module.bundled() else { return Ok(Vec::new()) };
    let mut suites = Vec::new();
    for suite in bundled.suites().map_err(malformed)? {
        let suite = suite.map_err(malformed)?;
        suites.push(Suite {
            method: suite.method_name().map_err(malformed)?,
            cases: suite
                .cases()
                .map_err(malformed)?
                .collect::<Result<_, _>>()
                .map_err(malformed)?,
        });
    }
    Ok(suites)
}

/// Copies values of a test case. They count against the budget because many of them may share the
/// same bytes of the file.
fn copies<'c>(
    values: impl Iterator<Item = Result<ValueRef<'c>, ProgramError>>,
    budget: &mut Budget,
) -> Result<Vec<Value>, Failure> {
    let copy = |value: Result<ValueRef<'_>, ProgramError>| {
        Ok(match value.map_err(malformed)? {
            ValueRef::Scalar(scalar) => scalar.into(),
            ValueRef::String(text) => {
                budget.take(text.len(), "a string of the test case")?;
                text.into()
            }
            ValueRef::Tensor(tensor) => {
                budget.take(tensor.bytes().len(), "a tensor of the test case")?;
                Tensor::try_from(&tensor)?.into()
            }
            _ => Value::None,
        })
    };
    values.map(copy).collect()
}

/// The inputs of a test case.
pub(crate) fn inputs(case: &TestCase<'_>, budget: &mut Budget) -> Result<Vec<Value>, Failure> {
    copies(case.inputs().map_err(malformed)?, budget)
}

/// The outputs that a test case expects.
pub(crate) fn expected_outputs(
    case: &TestCase<'_>,
    budget: &mut Budget,
) -> Result<Vec<Value>, Failure> {
    copies(case.expected_outputs().map_err(malformed)?, budget)
}
