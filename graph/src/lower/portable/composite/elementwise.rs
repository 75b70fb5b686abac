//! Element-wise functions.

use super::{Builder, Rule};
use crate::error::Error;
use crate::graph::ValueId;
use crate::operators::{Operator, PreluArgs};

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::MISH, |b, args| {
        // `x * tanh(softplus(x))`
        let (input, out) = b.ends(args)?;
        let (one, twenty) = (b.new_int(1), b.new_int(20));
        let info = b.info(input)?;
        let soft = b.call(Operator::SOFTPLUS, &[input, one, twenty], info);
        let factor = b.unary(Operator::TANH, soft)?;
        let product = b.binary(Operator::MUL_TENSOR, input, factor)?;
        b.finish_with(product, out)
    }),
    (Operator::PRELU, prelu),
    (Operator::SELU, |b, args| {
        let (input, out) = b.ends(args)?;
        let (alpha, scale) = (1.673_263_242_354_377_2, 1.050_700_987_355_480_5);
        let (alpha, scale, one) = (b.new_number(alpha), b.new_number(scale), b.new_int(1));
        b.call_into(Operator::ELU, &[input, alpha, scale, one], out);
        Ok(())
    }),
    (Operator::SQUARE, |b, args| {
        let (input, out) = b.ends(args)?;
        b.call_into(Operator::MUL_TENSOR, &[input, input], out);
        Ok(())
    }),
];

/// `x` where positive, else `weight * x`, with a weight for each channel.
fn prelu(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = PreluArgs::of(args)?;
    let (input, info) = b.tensor(call.input)?;
    let mut weight = call.weight;
    let own = b.info(weight)?;
    if own.rank() <= 1 && own.size(0) != 1 && info.rank() > 2 {
        let mut sizes = alloc::vec![1; info.rank()];
        if let Some(slot) = sizes.get_mut(1) {
            *slot = own.size(0);
        }
        weight = b.view_known(weight, &sizes)?;
    }
    let negative = b.binary(Operator::MUL_TENSOR, input, weight)?;
    let is_positive = b.compared(Operator::GT_SCALAR, input, 0.0)?;
    b.call_into(Operator::WHERE_SELF, &[is_positive, input, negative], call.out);
    Ok(())
}
