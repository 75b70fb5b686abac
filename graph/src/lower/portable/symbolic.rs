//! Lowers integers that are computed at run time.

use super::Rule;
use crate::operators::{Operator, SelectArgs};

pub(super) const RULES: &[(Operator, Rule)] = &[(Operator::ET_VK_SELECT_AS_SYMINT, |b, args| {
    let call = SelectArgs::of(args)?;
    let (input, info) = b.tensor(call.input)?;
    let dim = info.dim(b.int(call.dim)?)?;
    let index = b.index(b.int(call.index)?, info.size(dim))?;
    let out = b.out(args)?;
    // The kernel reads the first element of the slice.
    let rest = b.slice_known(input, dim, index, index + 1, 1)?;
    b.call_into(Operator::LOCAL_SCALAR_DENSE, &[rest], out);
    Ok(())
})];
