//! Integers that calls find out.

use super::Rule;
use crate::operators::{Operator, SelectArgs};

pub(super) const RULES: &[(Operator, Rule)] = &[(Operator::ET_VK_SELECT_AS_SYMINT, |b, args| {
    let call = SelectArgs::of(args)?;
    let (input, info) = b.tensor(call.input)?;
    let dim = info.dim(b.int(call.dim)?)?;
    let index = b.index(b.int(call.index)?, info.size(dim))?;
    let out = b.out(args)?;
    // The element is the first one of what is behind it.
    let rest = b.slice_known(input, dim, index, index + 1, 1)?;
    b.call_into(Operator::LOCAL_SCALAR_DENSE, &[rest], out);
    Ok(())
})];
