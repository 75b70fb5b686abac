//! Arithmetic of codes whose rounding is XNNPACK's: codes that lie in the middle between two, as happens often, become the same one.

use super::builder::{Builder, Limits};
use super::values::Coding;
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::Operator;
use torchlet_core::ScalarType;

/// What codes of 8 bits stand for: `(code - zero) * scale`.
#[derive(Clone, Copy, PartialEq)]
struct Codes {
    scale: f32,
    zero: i32,
}

impl Codes {
    /// Those of a value of the blob, if it has such.
    fn of(builder: &Builder<'_>, id: ValueId) -> Result<Option<Self>, Error> {
        let is_char = builder.tensor(id)?.scalar_type == ScalarType::Char;
        Ok(match builder.coding(id) {
            Coding::PerTensor { scale, zero_point: zero } if is_char => {
                let is_usual = scale.is_normal() && scale > 0.0 && i8::try_from(zero).is_ok();
                is_usual.then_some(Codes { scale, zero })
            }
            _ => None,
        })
    }

    /// The code of a number, as a number.
    fn code(self, number: f32) -> f32 {
        libm::rintf(number * (1.0 / self.scale) + self.zero as f32)
    }

    /// Whether limits leave all codes.
    fn lie_within(self, Limits { low, high }: Limits) -> bool {
        self.code(low) <= f32::from(i8::MIN) && self.code(high) >= f32::from(i8::MAX)
    }
}

/// How XNNPACK makes the code of a mean out of a sum of codes: by one product and one sum, which has the code of zero in it already when it
/// is rounded. Means are often exactly between two codes, and are the even one of these here; numbers that are rounded before the
/// code of zero is added would be the other one, if that is odd.
pub(super) struct MeanOfCodes {
    factor: f32,
    offset: f32,
    to: Codes,
}

impl MeanOfCodes {
    /// For codes of 8 bits, whose sums `f32` has exactly, in whichever order.
    pub(super) fn of(
        builder: &Builder<'_>,
        [input, out]: [ValueId; 2],
        count: usize,
    ) -> Result<Option<Self>, Error> {
        const MOST: usize = 1 << 17;
        let (Some(from), Some(to)) = (Codes::of(builder, input)?, Codes::of(builder, out)?) else {
            return Ok(None);
        };
        // Shapes that vary have no number of elements yet.
        if builder.is_dynamic() || !(1..MOST).contains(&count) {
            return Ok(None);
        }
        let factor = from.scale / to.scale * (1.0 / count as f32);
        let offset = to.zero as f32 - count as f32 * from.zero as f32 * factor;
        let is_known = factor.is_finite() && offset.is_finite();
        Ok(is_known.then_some(MeanOfCodes { factor, offset, to }))
    }

    pub(super) fn add(
        &self,
        builder: &mut Builder<'_>,
        [input, out]: [ValueId; 2],
        keeps: bool,
        sizes: &[usize],
        limits: Option<Limits>,
    ) -> Result<(), Error> {
        let codes = builder.codes(input)?;
        let dims = builder.ints([1, 2]);
        let (keep, none) = (builder.push(Value::Bool(keeps)), builder.none());
        let sum = builder.call(Operator::SUM_DIM_INT_LIST, &[codes, dims, keep, none], sizes)?;
        let (factor, offset, one) =
            (builder.number(self.factor), builder.number(self.offset), builder.int(1));
        let scaled = builder.call(Operator::MUL_TENSOR, &[sum, factor], sizes)?;
        let mut found = builder.call(Operator::ADD_TENSOR, &[scaled, offset, one], sizes)?;
        if let Some(Limits { low, high }) = limits {
            found = builder
                .limited(found, Limits { low: self.to.code(low), high: self.to.code(high) })?;
        }
        builder.store_rounded(found, out)
    }
}

/// Adds a sum, or a difference, of codes, and says whether it did: XNNPACK multiplies them with whole numbers of 21 bits, and shifts the sum.
pub(super) fn sum(
    builder: &mut Builder<'_>,
    [first, second, out]: [ValueId; 3],
    is_difference: bool,
    limits: Option<Limits>,
) -> Result<bool, Error> {
    /// What may be between the scale of an operand and that of the result.
    const RATIOS: core::ops::Range<f32> = 1.0 / 1024.0..256.0;
    let (Some(one), Some(other), Some(to)) =
        (Codes::of(builder, first)?, Codes::of(builder, second)?, Codes::of(builder, out)?)
    else {
        return Ok(false);
    };
    let ratios = [one.scale / to.scale, other.scale / to.scale];
    let sizes = builder.sizes(out)?;
    // Others are repeated before they are added.
    let is_whole = builder.sizes(first)? == sizes || builder.sizes(second)? == sizes;
    let are_known = builder.is_known(first) && builder.is_known(second);
    if !are_known || !is_whole || !ratios.iter().all(|ratio| RATIOS.contains(ratio)) {
        return Ok(false);
    }
    // The larger multiplier has 21 bits.
    let shift = 20 - libm::ilogbf(ratios[0].max(ratios[1]));
    let multiplier = |ratio: f32| libm::rint(libm::scalbn(ratio.into(), shift)) as i64;
    let [one_times, other_times] = ratios.map(multiplier);
    let other_times = if is_difference { -other_times } else { other_times };
    let mut inputs = alloc::vec![first, second];
    let numbers =
        [one_times, one.zero.into(), other_times, other.zero.into(), shift.into(), to.zero.into()];
    inputs.extend(numbers.map(|number| builder.push(Value::Int(number))));
    let found = builder.call(Operator::Q8TA_ADD_FIXED, &inputs, &sizes)?;
    match limits.filter(|limits| !to.lie_within(*limits)) {
        None => builder.store_codes(found, out)?,
        Some(limits) => {
            let numbers = builder.numbers_of(found, out)?;
            builder.store(numbers, out, Some(limits))?;
        }
    }
    Ok(true)
}
