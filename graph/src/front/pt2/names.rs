//! Names of operators, and what calls do to the memory of their arguments.

use crate::operators::Operator;
use alloc::format;

/// What a call does to the memory of its first argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing: the output has its own memory.
    None,
    /// The output shares it.
    View,
    /// The output shares it if the argument is row-major in memory.
    ViewIfContiguous,
    /// The output shares it if it has the same dtype.
    ViewIfSame,
    /// The call overwrites it.
    InPlace,
}

/// An operator, and the effect of its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Resolved {
    pub(super) operator: Operator,
    pub(super) effect: Effect,
}

/// Views, with the operators that copy.
const VIEWS: &[(&str, Operator)] = &[
    ("aten.alias.default", Operator::ALIAS_COPY),
    ("aten.broadcast_to.default", Operator::EXPAND_COPY),
    ("aten.data.default", Operator::ALIAS_COPY),
    ("aten.lift.default", Operator::ALIAS_COPY),
    ("aten.lift_fresh.default", Operator::ALIAS_COPY),
    ("aten.moveaxis.int", Operator::MOVEDIM),
    ("aten.moveaxis.intlist", Operator::MOVEDIM),
    ("aten.positive.default", Operator::ALIAS_COPY),
    ("aten.resolve_conj.default", Operator::ALIAS_COPY),
    ("aten.resolve_neg.default", Operator::ALIAS_COPY),
    ("aten.tensor_split.indices", Operator::TENSOR_SPLIT_INDICES),
    ("aten._unsafe_view.default", Operator::VIEW_COPY),
    ("aten.as_strided.default", Operator::AS_STRIDED_COPY),
    ("aten.chunk.default", Operator::CHUNK),
    ("aten.detach.default", Operator::DETACH_COPY),
    ("aten.detach_.default", Operator::DETACH_COPY),
    ("aten.diagonal.default", Operator::DIAGONAL_COPY),
    ("aten.expand.default", Operator::EXPAND_COPY),
    ("aten.expand_as.default", Operator::EXPAND_AS),
    ("aten.movedim.intlist", Operator::MOVEDIM),
    ("aten.movedim.int", Operator::MOVEDIM),
    ("aten.imag.default", Operator::IMAG),
    ("aten.mT.default", Operator::MT),
    ("aten.narrow.default", Operator::NARROW),
    ("aten.numpy_T.default", Operator::NUMPY_T),
    ("aten.permute.default", Operator::PERMUTE_COPY),
    ("aten.real.default", Operator::REAL),
    ("aten.select.int", Operator::SELECT_COPY_INT),
    ("aten.slice.Tensor", Operator::SLICE_COPY_TENSOR),
    ("aten.split.Tensor", Operator::SPLIT_COPY_TENSOR),
    ("aten.split.sizes", Operator::SPLIT_WITH_SIZES_COPY),
    ("aten.split_with_sizes.default", Operator::SPLIT_WITH_SIZES_COPY),
    ("aten.squeeze.default", Operator::SQUEEZE_COPY),
    ("aten.squeeze.dim", Operator::SQUEEZE_COPY_DIM),
    ("aten.squeeze.dims", Operator::SQUEEZE_COPY_DIMS),
    ("aten.swapaxes.default", Operator::TRANSPOSE_COPY_INT),
    ("aten.swapdims.default", Operator::TRANSPOSE_COPY_INT),
    ("aten.t.default", Operator::T_COPY),
    ("aten.tensor_split.sections", Operator::TENSOR_SPLIT),
    ("aten.transpose.int", Operator::TRANSPOSE_COPY_INT),
    ("aten.unbind.int", Operator::UNBIND_COPY_INT),
    ("aten.unflatten.int", Operator::UNFLATTEN),
    ("aten.unsafe_chunk.default", Operator::CHUNK),
    ("aten.unsafe_split.Tensor", Operator::SPLIT_COPY_TENSOR),
    ("aten.unsafe_split_with_sizes.default", Operator::SPLIT_WITH_SIZES_COPY),
    ("aten.unfold.default", Operator::UNFOLD_COPY),
    ("aten.unsqueeze.default", Operator::UNSQUEEZE_COPY),
    ("aten.view.default", Operator::VIEW_COPY),
    ("aten.view_as.default", Operator::VIEW_AS),
    ("aten.view_as_complex.default", Operator::VIEW_AS_COMPLEX_COPY),
    ("aten.view_as_real.default", Operator::VIEW_AS_REAL_COPY),
];

/// Operators that return their argument, or a view of it, if they can.
const MAYBE_VIEWS: &[(&str, Operator, Effect)] = &[
    ("aten._to_copy.default", Operator::TO_COPY, Effect::None),
    ("aten.__iand__.Scalar", Operator::BITWISE_AND_SCALAR, Effect::InPlace),
    ("aten.__iand__.Tensor", Operator::BITWISE_AND_TENSOR, Effect::InPlace),
    ("aten.__ior__.Scalar", Operator::BITWISE_OR_SCALAR, Effect::InPlace),
    ("aten.__ior__.Tensor", Operator::BITWISE_OR_TENSOR, Effect::InPlace),
    ("aten.__ixor__.Scalar", Operator::BITWISE_XOR_SCALAR, Effect::InPlace),
    ("aten.__ixor__.Tensor", Operator::BITWISE_XOR_TENSOR, Effect::InPlace),
    ("aten.contiguous.default", Operator::CONTIGUOUS, Effect::ViewIfSame),
    ("aten.dropout.default", Operator::DROPOUT, Effect::View),
    ("aten.dropout_.default", Operator::DROPOUT, Effect::View),
    ("aten.feature_dropout.default", Operator::DROPOUT, Effect::View),
    ("aten.flatten.using_ints", Operator::FLATTEN, Effect::ViewIfContiguous),
    // `pow.Scalar` has a scalar base.
    ("aten.pow_.Scalar", Operator::POW_TENSOR_SCALAR, Effect::InPlace),
    ("aten.ravel.default", Operator::FLATTEN, Effect::ViewIfContiguous),
    ("aten.reshape.default", Operator::RESHAPE, Effect::ViewIfContiguous),
    ("aten.reshape_as.default", Operator::VIEW_AS, Effect::ViewIfContiguous),
    ("aten.to.device", Operator::TO_DEVICE, Effect::ViewIfSame),
    ("aten.to.dtype", Operator::TO_DTYPE, Effect::ViewIfSame),
    ("aten.to.dtype_layout", Operator::TO_DTYPE_LAYOUT, Effect::ViewIfSame),
    ("aten.to.other", Operator::TO_OTHER, Effect::ViewIfSame),
    ("aten.type_as.default", Operator::TYPE_AS, Effect::ViewIfSame),
];

/// Names that differ from those of the descriptions, for the same schema.
const RENAMED: &[(&str, Operator)] = &[
    ("aten._conj.default", Operator::CONJ_COPY),
    ("aten.__and__.Scalar", Operator::BITWISE_AND_SCALAR),
    ("aten.__and__.Tensor", Operator::BITWISE_AND_TENSOR),
    ("aten.__or__.Scalar", Operator::BITWISE_OR_SCALAR),
    ("aten.__or__.Tensor", Operator::BITWISE_OR_TENSOR),
    ("aten.__xor__.Scalar", Operator::BITWISE_XOR_SCALAR),
    ("aten.__xor__.Tensor", Operator::BITWISE_XOR_TENSOR),
    ("aten._index_put_impl.default", Operator::INDEX_PUT),
    ("aten.arccos.default", Operator::ACOS),
    ("aten.arccosh.default", Operator::ACOSH),
    ("aten.arcsin.default", Operator::ASIN),
    ("aten.arcsinh.default", Operator::ASINH),
    ("aten.arctan.default", Operator::ATAN),
    ("aten.arctan2.default", Operator::ATAN2),
    ("aten.arctanh.default", Operator::ATANH),
    ("aten.clamp_max.Tensor", Operator::MINIMUM),
    ("aten.clamp_min.Tensor", Operator::MAXIMUM),
    ("aten.clip.Tensor", Operator::CLAMP_TENSOR),
    ("aten.conj.default", Operator::CONJ_PHYSICAL),
    ("aten.divide.Tensor_mode", Operator::DIV_TENSOR_MODE),
    ("aten.divide.Scalar_mode", Operator::DIV_SCALAR_MODE),
    ("aten.fix.default", Operator::TRUNC),
    ("aten.floor_divide.Scalar", Operator::FLOOR_DIVIDE),
    ("aten.ger.default", Operator::OUTER),
    ("aten.linalg_matmul.default", Operator::MATMUL),
    ("aten.mv.default", Operator::MATMUL),
    ("aten.native_channel_shuffle.default", Operator::CHANNEL_SHUFFLE),
    ("aten.row_stack.default", Operator::VSTACK),
    ("aten.scaled_dot_product_attention_math.default", Operator::SCALED_DOT_PRODUCT_ATTENTION),
    ("aten.special_exp2.default", Operator::EXP2),
    ("aten.special_expm1.default", Operator::EXPM1),
    ("aten.special_log1p.default", Operator::LOG1P),
    ("aten.special_log_softmax.int", Operator::LOG_SOFTMAX_INT),
    ("aten.true_divide.Scalar", Operator::DIV_SCALAR),
    ("aten.where.Scalar", Operator::WHERE_SELF),
    ("aten.where.ScalarOther", Operator::WHERE_SELF),
    ("aten.where.ScalarSelf", Operator::WHERE_SELF),
    ("aten.zero.default", Operator::ZEROS_LIKE),
    ("aten._prelu_kernel.default", Operator::PRELU),
    ("aten.absolute.default", Operator::ABS),
    ("aten.adaptive_avg_pool2d.default", Operator::ADAPTIVE_AVG_POOL2D),
    ("aten.adaptive_avg_pool3d.default", Operator::ADAPTIVE_AVG_POOL3D),
    ("aten.clip.default", Operator::CLAMP),
    ("aten.concat.default", Operator::CAT),
    ("aten.concatenate.default", Operator::CAT),
    ("aten.divide.Tensor", Operator::DIV_TENSOR),
    ("aten.divide.Scalar", Operator::DIV_SCALAR),
    ("aten.greater.Scalar", Operator::GT_SCALAR),
    ("aten.greater.Tensor", Operator::GT_TENSOR),
    ("aten.greater_equal.Scalar", Operator::GE_SCALAR),
    ("aten.greater_equal.Tensor", Operator::GE_TENSOR),
    ("aten.less.Scalar", Operator::LT_SCALAR),
    ("aten.less.Tensor", Operator::LT_TENSOR),
    ("aten.less_equal.Scalar", Operator::LE_SCALAR),
    ("aten.less_equal.Tensor", Operator::LE_TENSOR),
    ("aten.max.other", Operator::MAXIMUM),
    ("aten.meshgrid.default", Operator::MESHGRID),
    ("aten.min.other", Operator::MINIMUM),
    ("aten.multiply.Scalar", Operator::MUL_SCALAR),
    ("aten.multiply.Tensor", Operator::MUL_TENSOR),
    ("aten.negative.default", Operator::NEG),
    ("aten.not_equal.Scalar", Operator::NE_SCALAR),
    ("aten.not_equal.Tensor", Operator::NE_TENSOR),
    ("aten.special_erf.default", Operator::ERF),
    ("aten.special_expit.default", Operator::SIGMOID),
    ("aten.special_softmax.int", Operator::SOFTMAX_INT),
    ("aten.subtract.Scalar", Operator::SUB_SCALAR),
    ("aten.subtract.Tensor", Operator::SUB_TENSOR),
    ("aten.true_divide.Tensor", Operator::DIV_TENSOR),
    ("aten._unsafe_index.Tensor", Operator::INDEX_TENSOR),
    ("aten._reshape_copy.default", Operator::VIEW_COPY),
];

/// Returns the operator of a name such as `aten.add_.Tensor`.
pub(super) fn resolve(name: &str) -> Option<Resolved> {
    let of = |operator, effect| Some(Resolved { operator, effect });
    if let Some((_, operator)) = VIEWS.iter().find(|(own, _)| *own == name) {
        return of(*operator, Effect::View);
    }
    if let Some((_, operator, effect)) = MAYBE_VIEWS.iter().find(|(own, ..)| *own == name) {
        return of(*operator, *effect);
    }
    if let Some(operator) = functional(name) {
        return of(operator, Effect::None);
    }
    // In-place forms end with an underscore.
    let (path, overload) = name.rsplit_once('.')?;
    let path = path.strip_suffix('_').filter(|path| !path.ends_with('_'))?;
    let operator = functional(&format!("{path}.{overload}"))?;
    of(operator, Effect::InPlace)
}

fn functional(name: &str) -> Option<Operator> {
    let renamed = RENAMED.iter().find(|(own, _)| *own == name).map(|(_, operator)| *operator);
    renamed.or_else(|| Operator::named(name)).filter(|operator| {
        // These write to arguments, and have in-place names.
        !operator.traits().writes_arguments()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_effects() {
        for (name, operator, effect) in [
            ("aten.relu.default", Operator::RELU, Effect::None),
            ("aten.relu_.default", Operator::RELU, Effect::InPlace),
            ("aten.add_.Tensor", Operator::ADD_TENSOR, Effect::InPlace),
            ("aten.copy_.default", Operator::COPY, Effect::InPlace),
            ("aten.index_put_.default", Operator::INDEX_PUT, Effect::InPlace),
            ("aten.view.default", Operator::VIEW_COPY, Effect::View),
            ("aten.subtract_.Tensor", Operator::SUB_TENSOR, Effect::InPlace),
            ("aten.pow_.Scalar", Operator::POW_TENSOR_SCALAR, Effect::InPlace),
            ("aten.__ior__.Tensor", Operator::BITWISE_OR_TENSOR, Effect::InPlace),
            ("aten.unsafe_chunk.default", Operator::CHUNK, Effect::View),
        ] {
            assert_eq!(resolve(name), Some(Resolved { operator, effect }), "{name}");
        }
        for name in ["", "aten", "aten.nothing.default", "aten.__.default", "x.relu_.default"] {
            assert_eq!(resolve(name), None, "{name}");
        }
    }
}
