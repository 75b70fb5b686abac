//! Writes through views: how the tensor that a view belongs to changes.

use super::Operator;
use alloc::vec::Vec;
use torchlet_core::rules::normalize_dim;

/// How a write to a view changes the tensor that it is a view of.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteBack {
    /// The new tensor is a call of this operator, with the old tensor, the new elements of the view
    /// and the further arguments of the view.
    Scatter(Operator),
    /// The new tensor has the elements of the view, with its dims in this order.
    Permute(Vec<i64>),
    /// The new tensor has the elements of the view, in the same order and another shape. This holds
    /// only if both have equally many elements.
    Reshape,
}

/// Views whose elements are those of their input in the same order, if they are equally many.
/// Operators with the trait `is_view` are further ones.
const SAME_ORDER: &[Operator] = &[
    Operator::ATLEAST_1D,
    Operator::ATLEAST_2D,
    Operator::ATLEAST_3D,
    Operator::CONTIGUOUS,
    Operator::DROPOUT,
    Operator::EXPAND_AS,
    Operator::EXPAND_COPY,
    Operator::FLATTEN,
    Operator::RESHAPE,
    Operator::TO_DEVICE,
    Operator::TO_DTYPE,
    Operator::TO_DTYPE_LAYOUT,
    Operator::TO_OTHER,
    Operator::TYPE_AS,
    Operator::UNFLATTEN,
    Operator::VIEW_AS,
    Operator::VIEW_COPY,
];

impl WriteBack {
    /// Returns how a write to a view by `operator` changes a tensor of `rank` dims. `integers`
    /// returns an argument of the call: a list of integers, or a list of one for an integer.
    /// Returns `None` if writes through such a view are not supported.
    pub fn of(
        operator: Operator,
        rank: usize,
        integers: impl Fn(usize) -> Option<Vec<i64>>,
    ) -> Option<Self> {
        use Operator as O;
        Some(match operator {
            O::SLICE_TENSOR | O::SLICE_COPY_TENSOR => WriteBack::Scatter(O::SLICE_SCATTER),
            O::SELECT_INT | O::SELECT_COPY_INT => WriteBack::Scatter(O::SELECT_SCATTER),
            O::DIAGONAL_COPY => WriteBack::Scatter(O::DIAGONAL_SCATTER),
            O::AS_STRIDED_COPY => WriteBack::Scatter(O::AS_STRIDED_SCATTER),
            _ if SAME_ORDER.contains(&operator) || operator.traits().is_view => WriteBack::Reshape,
            _ => {
                let order = permutation(operator, rank, integers)?;
                let mut inverse = alloc::vec![0; rank];
                for (to, from) in order.iter().enumerate() {
                    *inverse.get_mut(usize::try_from(*from).ok()?)? = to as i64;
                }
                WriteBack::Permute(inverse)
            }
        })
    }
}

/// Returns the dims of the input in the order of the output, for an operator that permutes dims;
/// `None` for other operators and for invalid dims. `integers` is as in [`WriteBack::of`].
pub fn permutation(
    operator: Operator,
    rank: usize,
    integers: impl Fn(usize) -> Option<Vec<i64>>,
) -> Option<Vec<i64>> {
    use Operator as O;
    let dims = |argument: usize| -> Option<Vec<usize>> {
        integers(argument)?.into_iter().map(|dim| normalize_dim(dim, rank)).collect()
    };
    let mut order: Vec<usize> = (0..rank).collect();
    match operator {
        O::PERMUTE | O::PERMUTE_COPY => {
            order = dims(1)?;
            let is_permutation = order.len() == rank && (0..rank).all(|dim| order.contains(&dim));
            is_permutation.then_some(())?;
        }
        O::TRANSPOSE_COPY_INT => {
            let ([a], [b]) = (&dims(1)?[..], &dims(2)?[..]) else { return None };
            // Tensors without dims have a dim 0.
            if (*a).max(*b) < rank {
                order.swap(*a, *b);
            }
        }
        O::T_COPY | O::NUMPY_T => order.reverse(),
        O::MT => order.swap(rank.checked_sub(2)?, rank - 1),
        O::MOVEDIM => {
            let (from, to) = (dims(1)?, dims(2)?);
            let mut others = (0..rank).filter(|dim| !from.contains(dim));
            for (at, slot) in order.iter_mut().enumerate() {
                *slot = match to.iter().position(|dim| *dim == at) {
                    Some(position) => *from.get(position)?,
                    None => others.next()?,
                };
            }
        }
        _ => return None,
    }
    Some(order.into_iter().map(|dim| dim as i64).collect())
}

/// Returns the dim that a split of a tensor of `rank` dims divides, for an operator whose name
/// implies it; `None` for other operators.
pub fn split_dim(operator: Operator, rank: usize) -> Option<usize> {
    use Operator as O;
    match operator {
        O::HSPLIT_ARRAY | O::HSPLIT_INT => Some(usize::from(rank > 1)),
        O::VSPLIT_ARRAY | O::VSPLIT_INT => Some(0),
        O::DSPLIT_ARRAY | O::DSPLIT_INT => Some(2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn order(operator: Operator, args: &[&[i64]]) -> Option<Vec<i64>> {
        permutation(operator, 3, |argument| {
            args.get(argument.checked_sub(1)?).map(|it| it.to_vec())
        })
    }

    #[test]
    fn permutations_are_pytorchs() {
        // `torch.empty(2, 3, 4)`: shapes (4, 2, 3), (4, 3, 2), (4, 3, 2), (2, 4, 3), (3, 4, 2).
        assert_eq!(order(Operator::PERMUTE_COPY, &[&[-1, 0, 1]]), Some(vec![2, 0, 1]));
        assert_eq!(order(Operator::TRANSPOSE_COPY_INT, &[&[0], &[-1]]), Some(vec![2, 1, 0]));
        assert_eq!(order(Operator::NUMPY_T, &[]), Some(vec![2, 1, 0]));
        assert_eq!(order(Operator::MT, &[]), Some(vec![0, 2, 1]));
        assert_eq!(order(Operator::MOVEDIM, &[&[0], &[2]]), Some(vec![1, 2, 0]));
        for (operator, args) in [
            (Operator::PERMUTE_COPY, &[&[0i64, 1, 1][..]][..]),
            (Operator::PERMUTE_COPY, &[&[0, 1]]),
            (Operator::TRANSPOSE_COPY_INT, &[&[0], &[3]]),
            (Operator::MOVEDIM, &[&[0, 1], &[2]]),
            (Operator::RELU, &[]),
        ] {
            assert_eq!(order(operator, args), None, "{operator:?} {args:?}");
        }
    }

    #[test]
    fn writes_use_the_inverse() {
        let of = |operator, args: &[i64]| WriteBack::of(operator, 3, |_| Some(args.to_vec()));
        let permuted = WriteBack::Permute(vec![1, 2, 0]);
        assert_eq!(of(Operator::PERMUTE_COPY, &[2, 0, 1]), Some(permuted));
        let scatter = WriteBack::Scatter(Operator::SLICE_SCATTER);
        assert_eq!(of(Operator::SLICE_COPY_TENSOR, &[]), Some(scatter));
        assert_eq!(of(Operator::UNSQUEEZE_COPY, &[]), Some(WriteBack::Reshape));
        assert_eq!(of(Operator::UNFOLD_COPY, &[]), None);
    }
}
