//! Symbolic integers: computed on the host, while encoding.

use super::{Operator, operator};
use crate::encoder::Encoder;
use crate::error::Error;
use crate::ir::ValueId;

pub(super) const OPERATORS: &[Operator] = &[
    operator("add", |e, args| binary(e, args, |a, b| a.checked_add(b))),
    operator("sub", |e, args| binary(e, args, |a, b| a.checked_sub(b))),
    operator("mul", |e, args| binary(e, args, |a, b| a.checked_mul(b))),
    operator("floordiv", |e, args| {
        binary(e, args, |a, b| {
            let (quotient, rest) = (a.checked_div(b)?, a.checked_rem(b)?);
            Some(if rest != 0 && (rest < 0) != (b < 0) { quotient - 1 } else { quotient })
        })
    }),
    operator("sym_size.int", |e, args| {
        let input = e.tensor(e.arg(args, 0)?)?;
        let dim = input.dim(e.int(e.arg(args, 1)?)?)?;
        e.set_int(e.arg(args, 2)?, input.size(dim) as i64)
    }),
    operator(SELECT_AS_SYMINT, |e, args| {
        let input = e.tensor(e.arg(args, 0)?)?;
        let dim = input.dim(e.int(e.arg(args, 1)?)?)?;
        let index = torchlet_core::rules::normalize_index(e.int(e.arg(args, 2)?)?, input.size(dim));
        let index = index.ok_or_else(|| Error::invalid("the index is out of range"))?;
        let at = index * input.strides().get(dim).copied().unwrap_or(1);
        // While memory is planned no input has a value: the one that the exporter saw stays.
        match e.host_int(input.id, at)? {
            Some(value) => e.set_int(e.arg(args, 3)?, value),
            None => Ok(()),
        }
    }),
];

/// The operator that reads an input on the host.
pub(crate) const SELECT_AS_SYMINT: &str = "et_vk.select_as_symint.default";

fn binary(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    function: impl FnOnce(i64, i64) -> Option<i64>,
) -> Result<(), Error> {
    let (a, b) = (e.int(e.arg(args, 0)?)?, e.int(e.arg(args, 1)?)?);
    let result = function(a, b).ok_or_else(|| Error::invalid("the result is out of range"))?;
    e.set_int(e.arg(args, 2)?, result)
}
