//! Test cases of bundled programs, as values.

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

/// All test suites of a program; none if it is not a bundled one.
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

fn value(value: Result<ValueRef<'_>, ProgramError>) -> Result<Value, Failure> {
    Ok(match value.map_err(malformed)? {
        ValueRef::Scalar(scalar) => scalar.into(),
        ValueRef::String(text) => text.into(),
        ValueRef::Tensor(tensor) => Tensor::try_from(&tensor)?.into(),
        _ => Value::None,
    })
}

/// The inputs of a test case.
pub(crate) fn inputs(case: &TestCase<'_>) -> Result<Vec<Value>, Failure> {
    case.inputs().map_err(malformed)?.map(value).collect()
}

/// The outputs that a test case expects.
pub(crate) fn expected_outputs(case: &TestCase<'_>) -> Result<Vec<Value>, Failure> {
    case.expected_outputs().map_err(malformed)?.map(value).collect()
}
