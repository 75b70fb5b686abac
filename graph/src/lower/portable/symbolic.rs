//! Integers that calls find out.

use super::Rule;
use crate::operators::Operator;

pub(super) const RULES: &[(Operator, Rule)] = &[(Operator::ET_VK_SELECT_AS_SYMINT, |b, args| {
    let (input, info) = b.tensor(args, 0)?;
    let dim = info.dim(b.int(args, 1)?)?;
    let index = b.index(b.int(args, 2)?, info.size(dim))?;
    let out = b.out(args)?;
    // The element is the first one of what is behind it.
    let rest = b.slice_known(input, dim, index, index + 1, 1)?;
    b.call_into(Operator::LOCAL_SCALAR_DENSE, &[rest], out);
    Ok(())
})];
