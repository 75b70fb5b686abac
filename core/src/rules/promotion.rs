//! Dtype promotion of operands with different dtypes.

use crate::dtype::ScalarType;
use crate::layout::TensorInfo;
use crate::value::Scalar;

/// An operand of an operator, as far as dtype promotion is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand {
    scalar_type: ScalarType,
    /// 2 for tensors with dims, 1 for scalar tensors, 0 for scalars.
    priority: u8,
}

impl From<&TensorInfo> for Operand {
    fn from(info: &TensorInfo) -> Self {
        Operand { scalar_type: info.scalar_type, priority: if info.rank() > 0 { 2 } else { 1 } }
    }
}

impl From<Scalar> for Operand {
    fn from(scalar: Scalar) -> Self {
        Operand { scalar_type: scalar.scalar_type(), priority: 0 }
    }
}

/// Category: bool, integral or floating.
fn category(scalar_type: ScalarType) -> u8 {
    if scalar_type == ScalarType::Bool {
        0
    } else if scalar_type.is_integral(false) {
        1
    } else {
        2
    }
}

/// Result dtype of an operator. Tensors with dims determine the dtype within a category (bool,
/// integer, floating); scalar tensors, then scalars, only matter if they are of a higher category.
///
/// Source: `at::native::result_type`. `None` without operands, or if PyTorch does not define the
/// promotion.
pub fn result_type(operands: impl IntoIterator<Item = Operand>) -> Option<ScalarType> {
    let mut by_priority: [Option<ScalarType>; 3] = [None; 3];
    for operand in operands {
        let slot = by_priority.get_mut(usize::from(operand.priority))?;
        *slot = Some(match *slot {
            Some(so_far) => so_far.promote(operand.scalar_type)?,
            None => operand.scalar_type,
        });
    }
    let mut result: Option<ScalarType> = None;
    for lower in by_priority.into_iter().rev().flatten() {
        result = Some(match result {
            None => lower,
            Some(higher) if category(higher) >= category(lower) => higher,
            Some(higher) => higher.promote(lower)?,
        });
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use ScalarType as S;

    fn tensor(scalar_type: S, rank: usize) -> Operand {
        (&TensorInfo::contiguous(scalar_type, &[2, 2][..rank]).unwrap()).into()
    }

    /// Expected results of `torch.result_type`.
    #[test]
    fn result_type_matches_pytorch() {
        let number = |scalar: Scalar| Operand::from(scalar);
        let cases = [
            (tensor(S::Int, 2), tensor(S::Long, 0), S::Int),
            (tensor(S::Int, 2), tensor(S::Half, 0), S::Half),
            (tensor(S::Half, 1), tensor(S::Double, 0), S::Half),
            (tensor(S::Byte, 1), number(Scalar::Int(-1)), S::Byte),
            (tensor(S::Byte, 1), number(Scalar::Double(1.0)), S::Float),
            (tensor(S::Bool, 1), number(Scalar::Int(1)), S::Long),
            (tensor(S::Double, 0), tensor(S::Float, 0), S::Double),
            (tensor(S::Int, 0), number(Scalar::Int(1)), S::Int),
        ];
        for (a, b, expected) in cases {
            assert_eq!(result_type([a, b]), Some(expected), "{a:?} {b:?}");
        }
    }
}
