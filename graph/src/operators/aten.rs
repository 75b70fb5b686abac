//! PyTorch's names of operators, and the memory that results share with arguments.
//!
//! Descriptions have functional names, such as `aten.add.Tensor`. Programs before functionalization
//! and users of tensors also name in-place forms (`aten.add_.Tensor`), views (`aten.view.default`)
//! and synonyms (`aten.subtract.Tensor`).

use super::Operator;
use Memory::*;
use alloc::format;
use alloc::vec::Vec;

/// Memory of a call's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Memory {
    /// The result has memory of its own.
    Separate,
    /// The result is a view of the first argument.
    View,
    /// The result is a view of the first argument if its strides allow it.
    ViewIfContiguous,
    /// The result is the first argument if dtype and memory format are those of the result.
    ViewIfSame,
    /// The result is the first argument, which is overwritten.
    Overwritten,
    /// The result is the first argument, which becomes a view of its former self.
    Reshaped,
}

/// Operator that a name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// The functional operator.
    pub operator: Operator,
    /// The memory of the result.
    pub memory: Memory,
}

/// Names that differ from those of descriptions, and descriptions whose results share memory.
/// Schemas are those of the operators.
const NAMES: &[(&str, Operator, Memory)] = &[
    ("aten.__and__.Scalar", Operator::BITWISE_AND_SCALAR, Separate),
    ("aten.__and__.Tensor", Operator::BITWISE_AND_TENSOR, Separate),
    ("aten.__iand__.Scalar", Operator::BITWISE_AND_SCALAR, Overwritten),
    ("aten.__iand__.Tensor", Operator::BITWISE_AND_TENSOR, Overwritten),
    ("aten.__ilshift__.Scalar", Operator::LSHIFT_SCALAR, Overwritten),
    ("aten.__ilshift__.Tensor", Operator::LSHIFT_TENSOR, Overwritten),
    ("aten.__ior__.Scalar", Operator::BITWISE_OR_SCALAR, Overwritten),
    ("aten.__ior__.Tensor", Operator::BITWISE_OR_TENSOR, Overwritten),
    ("aten.__irshift__.Scalar", Operator::RSHIFT_SCALAR, Overwritten),
    ("aten.__irshift__.Tensor", Operator::RSHIFT_TENSOR, Overwritten),
    ("aten.__ixor__.Scalar", Operator::BITWISE_XOR_SCALAR, Overwritten),
    ("aten.__ixor__.Tensor", Operator::BITWISE_XOR_TENSOR, Overwritten),
    ("aten.__or__.Scalar", Operator::BITWISE_OR_SCALAR, Separate),
    ("aten.__or__.Tensor", Operator::BITWISE_OR_TENSOR, Separate),
    ("aten.__xor__.Scalar", Operator::BITWISE_XOR_SCALAR, Separate),
    ("aten.__xor__.Tensor", Operator::BITWISE_XOR_TENSOR, Separate),
    ("aten._conj.default", Operator::CONJ_COPY, Separate),
    ("aten._index_put_impl.default", Operator::INDEX_PUT, Separate),
    ("aten._prelu_kernel.default", Operator::PRELU, Separate),
    ("aten._reshape_copy.default", Operator::VIEW_COPY, Separate),
    ("aten._to_copy.default", Operator::TO_COPY, Separate),
    ("aten._unsafe_index.Tensor", Operator::INDEX_TENSOR, Separate),
    ("aten._unsafe_view.default", Operator::VIEW_COPY, View),
    ("aten.absolute.default", Operator::ABS, Separate),
    ("aten.adaptive_avg_pool2d.default", Operator::ADAPTIVE_AVG_POOL2D, Separate),
    ("aten.adaptive_avg_pool3d.default", Operator::ADAPTIVE_AVG_POOL3D, Separate),
    ("aten.alias.default", Operator::ALIAS_COPY, View),
    ("aten.arccos.default", Operator::ACOS, Separate),
    ("aten.arccosh.default", Operator::ACOSH, Separate),
    ("aten.arcsin.default", Operator::ASIN, Separate),
    ("aten.arcsinh.default", Operator::ASINH, Separate),
    ("aten.arctan.default", Operator::ATAN, Separate),
    ("aten.arctan2.default", Operator::ATAN2, Separate),
    ("aten.arctanh.default", Operator::ATANH, Separate),
    ("aten.argwhere.default", Operator::NONZERO, Separate),
    ("aten.as_strided.default", Operator::AS_STRIDED_COPY, View),
    ("aten.as_strided_.default", Operator::AS_STRIDED_COPY, Reshaped),
    ("aten.atleast_1d.default", Operator::ATLEAST_1D, View),
    ("aten.atleast_2d.default", Operator::ATLEAST_2D, View),
    ("aten.atleast_3d.default", Operator::ATLEAST_3D, View),
    ("aten.broadcast_to.default", Operator::EXPAND_COPY, View),
    ("aten.chain_matmul.default", Operator::LINALG_MULTI_DOT, Separate),
    ("aten.chunk.default", Operator::CHUNK, View),
    ("aten.clamp_max.Tensor", Operator::MINIMUM, Separate),
    ("aten.clamp_min.Tensor", Operator::MAXIMUM, Separate),
    ("aten.clip.Tensor", Operator::CLAMP_TENSOR, Separate),
    ("aten.clip.default", Operator::CLAMP, Separate),
    ("aten.concat.default", Operator::CAT, Separate),
    ("aten.concatenate.default", Operator::CAT, Separate),
    ("aten.conj.default", Operator::CONJ_PHYSICAL, Separate),
    ("aten.contiguous.default", Operator::CONTIGUOUS, ViewIfSame),
    ("aten.count_nonzero.dim_IntList", Operator::COUNT_NONZERO, Separate),
    ("aten.data.default", Operator::ALIAS_COPY, View),
    ("aten.detach.default", Operator::DETACH_COPY, View),
    ("aten.detach_.default", Operator::DETACH_COPY, View),
    ("aten.diagonal.default", Operator::DIAGONAL_COPY, View),
    ("aten.divide.Scalar", Operator::DIV_SCALAR, Separate),
    ("aten.divide.Scalar_mode", Operator::DIV_SCALAR_MODE, Separate),
    ("aten.divide.Tensor", Operator::DIV_TENSOR, Separate),
    ("aten.divide.Tensor_mode", Operator::DIV_TENSOR_MODE, Separate),
    ("aten.dropout.default", Operator::DROPOUT, View),
    ("aten.dropout_.default", Operator::DROPOUT, View),
    ("aten.dsplit.array", Operator::DSPLIT_ARRAY, View),
    ("aten.dsplit.int", Operator::DSPLIT_INT, View),
    ("aten.embedding_bag.default", Operator::EMBEDDING_BAG_COMPOSITE, Separate),
    ("aten.expand.default", Operator::EXPAND_COPY, View),
    ("aten.expand_as.default", Operator::EXPAND_AS, View),
    ("aten.feature_dropout.default", Operator::DROPOUT, View),
    ("aten.fix.default", Operator::TRUNC, Separate),
    ("aten.flatten.using_ints", Operator::FLATTEN, ViewIfContiguous),
    ("aten.float_power.Scalar", Operator::FLOAT_POWER_TENSOR, Separate),
    ("aten.floor_divide.Scalar", Operator::FLOOR_DIVIDE, Separate),
    ("aten.floor_divide_.Scalar", Operator::FLOOR_DIVIDE, Overwritten),
    ("aten.floor_divide_.Tensor", Operator::FLOOR_DIVIDE, Overwritten),
    ("aten.ger.default", Operator::OUTER, Separate),
    ("aten.gradient.array", Operator::GRADIENT, Separate),
    ("aten.gradient.scalararray", Operator::GRADIENT, Separate),
    ("aten.greater.Scalar", Operator::GT_SCALAR, Separate),
    ("aten.greater.Tensor", Operator::GT_TENSOR, Separate),
    ("aten.greater_equal.Scalar", Operator::GE_SCALAR, Separate),
    ("aten.greater_equal.Tensor", Operator::GE_TENSOR, Separate),
    ("aten.hsplit.array", Operator::HSPLIT_ARRAY, View),
    ("aten.hsplit.int", Operator::HSPLIT_INT, View),
    ("aten.imag.default", Operator::IMAG, View),
    ("aten.inverse.default", Operator::LINALG_INV, Separate),
    ("aten.isin.Scalar_Tensor", Operator::ISIN, Separate),
    ("aten.isin.Tensor_Scalar", Operator::ISIN, Separate),
    ("aten.less.Scalar", Operator::LT_SCALAR, Separate),
    ("aten.less.Tensor", Operator::LT_TENSOR, Separate),
    ("aten.less_equal.Scalar", Operator::LE_SCALAR, Separate),
    ("aten.less_equal.Tensor", Operator::LE_TENSOR, Separate),
    ("aten.lift.default", Operator::ALIAS_COPY, View),
    ("aten.lift_fresh.default", Operator::ALIAS_COPY, View),
    ("aten.linalg_det.default", Operator::DET, Separate),
    ("aten.linalg_matmul.default", Operator::MATMUL, Separate),
    ("aten.linalg_matrix_exp.default", Operator::LINALG_MATRIX_EXP, Separate),
    ("aten.linalg_matrix_power.default", Operator::MATRIX_POWER, Separate),
    ("aten.linalg_norm.ord_str", Operator::LINALG_MATRIX_NORM_STR, Separate),
    ("aten.linalg_pinv.atol_rtol_float", Operator::LINALG_PINV, Separate),
    ("aten.linalg_slogdet.default", Operator::SLOGDET, Separate),
    ("aten.mT.default", Operator::MT, View),
    ("aten.matrix_exp.default", Operator::LINALG_MATRIX_EXP, Separate),
    ("aten.max.other", Operator::MAXIMUM, Separate),
    ("aten.meshgrid.default", Operator::MESHGRID, Separate),
    ("aten.min.other", Operator::MINIMUM, Separate),
    ("aten.moveaxis.int", Operator::MOVEDIM, View),
    ("aten.moveaxis.intlist", Operator::MOVEDIM, View),
    ("aten.movedim.int", Operator::MOVEDIM, View),
    ("aten.movedim.intlist", Operator::MOVEDIM, View),
    ("aten.multiply.Scalar", Operator::MUL_SCALAR, Separate),
    ("aten.multiply.Tensor", Operator::MUL_TENSOR, Separate),
    ("aten.mv.default", Operator::MATMUL, Separate),
    ("aten.nanquantile.scalar", Operator::NANQUANTILE, Separate),
    ("aten.narrow.default", Operator::NARROW, View),
    ("aten.native_channel_shuffle.default", Operator::CHANNEL_SHUFFLE, Separate),
    ("aten.negative.default", Operator::NEG, Separate),
    ("aten.nll_loss.default", Operator::NLL_LOSS_ND, Separate),
    ("aten.nll_loss2d.default", Operator::NLL_LOSS_ND, Separate),
    ("aten.not_equal.Scalar", Operator::NE_SCALAR, Separate),
    ("aten.not_equal.Tensor", Operator::NE_TENSOR, Separate),
    ("aten.numpy_T.default", Operator::NUMPY_T, View),
    ("aten.permute.default", Operator::PERMUTE_COPY, View),
    ("aten.positive.default", Operator::ALIAS_COPY, View),
    // The base of `pow.Scalar` is a scalar, but that of the in-place form is a tensor.
    ("aten.pow_.Scalar", Operator::POW_TENSOR_SCALAR, Overwritten),
    ("aten.quantile.scalar", Operator::QUANTILE, Separate),
    ("aten.ravel.default", Operator::FLATTEN, ViewIfContiguous),
    ("aten.real.default", Operator::REAL, View),
    ("aten.reshape.default", Operator::RESHAPE, ViewIfContiguous),
    ("aten.reshape_as.default", Operator::VIEW_AS, ViewIfContiguous),
    ("aten.resolve_conj.default", Operator::ALIAS_COPY, View),
    ("aten.resolve_neg.default", Operator::ALIAS_COPY, View),
    ("aten.row_stack.default", Operator::VSTACK, Separate),
    (
        "aten.scaled_dot_product_attention_math.default",
        Operator::SCALED_DOT_PRODUCT_ATTENTION,
        Separate,
    ),
    ("aten.select.int", Operator::SELECT_COPY_INT, View),
    ("aten.slice.Tensor", Operator::SLICE_COPY_TENSOR, View),
    ("aten.special_digamma.default", Operator::DIGAMMA, Separate),
    ("aten.special_erf.default", Operator::ERF, Separate),
    ("aten.special_erfc.default", Operator::ERFC, Separate),
    ("aten.special_erfinv.default", Operator::ERFINV, Separate),
    ("aten.special_exp2.default", Operator::EXP2, Separate),
    ("aten.special_expit.default", Operator::SIGMOID, Separate),
    ("aten.special_expm1.default", Operator::EXPM1, Separate),
    ("aten.special_gammainc.default", Operator::IGAMMA, Separate),
    ("aten.special_gammaincc.default", Operator::IGAMMAC, Separate),
    ("aten.special_gammaln.default", Operator::LGAMMA, Separate),
    ("aten.special_i0.default", Operator::I0, Separate),
    ("aten.special_log1p.default", Operator::LOG1P, Separate),
    ("aten.special_log_softmax.int", Operator::LOG_SOFTMAX_INT, Separate),
    ("aten.special_logit.default", Operator::LOGIT, Separate),
    ("aten.special_logsumexp.default", Operator::LOGSUMEXP, Separate),
    ("aten.special_multigammaln.default", Operator::MVLGAMMA, Separate),
    ("aten.special_polygamma.default", Operator::POLYGAMMA, Separate),
    ("aten.special_psi.default", Operator::DIGAMMA, Separate),
    ("aten.special_round.default", Operator::ROUND_DECIMALS, Separate),
    ("aten.special_sinc.default", Operator::SINC, Separate),
    ("aten.special_softmax.int", Operator::SOFTMAX_INT, Separate),
    ("aten.special_xlog1py.other_scalar", Operator::SPECIAL_XLOG1PY, Separate),
    ("aten.special_xlog1py.self_scalar", Operator::SPECIAL_XLOG1PY, Separate),
    ("aten.special_xlogy.default", Operator::XLOGY, Separate),
    ("aten.special_xlogy.other_scalar", Operator::XLOGY, Separate),
    ("aten.special_xlogy.self_scalar", Operator::XLOGY, Separate),
    ("aten.split.Tensor", Operator::SPLIT_COPY_TENSOR, View),
    ("aten.split.sizes", Operator::SPLIT_WITH_SIZES_COPY, View),
    ("aten.split_with_sizes.default", Operator::SPLIT_WITH_SIZES_COPY, View),
    ("aten.squeeze.default", Operator::SQUEEZE_COPY, View),
    ("aten.squeeze.dim", Operator::SQUEEZE_COPY_DIM, View),
    ("aten.squeeze.dims", Operator::SQUEEZE_COPY_DIMS, View),
    ("aten.squeeze_.default", Operator::SQUEEZE_COPY, Reshaped),
    ("aten.squeeze_.dim", Operator::SQUEEZE_COPY_DIM, Reshaped),
    ("aten.squeeze_.dims", Operator::SQUEEZE_COPY_DIMS, Reshaped),
    ("aten.subtract.Scalar", Operator::SUB_SCALAR, Separate),
    ("aten.subtract.Tensor", Operator::SUB_TENSOR, Separate),
    ("aten.swapaxes.default", Operator::TRANSPOSE_COPY_INT, View),
    ("aten.swapaxes_.default", Operator::TRANSPOSE_COPY_INT, Reshaped),
    ("aten.swapdims.default", Operator::TRANSPOSE_COPY_INT, View),
    ("aten.swapdims_.default", Operator::TRANSPOSE_COPY_INT, Reshaped),
    ("aten.t.default", Operator::T_COPY, View),
    ("aten.t_.default", Operator::T_COPY, Reshaped),
    ("aten.tensor_split.indices", Operator::TENSOR_SPLIT_INDICES, View),
    ("aten.tensor_split.sections", Operator::TENSOR_SPLIT, View),
    ("aten.to.device", Operator::TO_DEVICE, ViewIfSame),
    ("aten.to.dtype", Operator::TO_DTYPE, ViewIfSame),
    ("aten.to.dtype_layout", Operator::TO_DTYPE_LAYOUT, ViewIfSame),
    ("aten.to.other", Operator::TO_OTHER, ViewIfSame),
    ("aten.transpose.int", Operator::TRANSPOSE_COPY_INT, View),
    ("aten.transpose_.default", Operator::TRANSPOSE_COPY_INT, Reshaped),
    ("aten.trapz.dx", Operator::TRAPEZOID_DX, Separate),
    ("aten.trapz.x", Operator::TRAPEZOID_X, Separate),
    ("aten.true_divide.Scalar", Operator::DIV_SCALAR, Separate),
    ("aten.true_divide.Tensor", Operator::DIV_TENSOR, Separate),
    ("aten.type_as.default", Operator::TYPE_AS, ViewIfSame),
    ("aten.unbind.int", Operator::UNBIND_COPY_INT, View),
    ("aten.unflatten.int", Operator::UNFLATTEN, View),
    ("aten.unfold.default", Operator::UNFOLD_COPY, View),
    ("aten.unsafe_chunk.default", Operator::CHUNK, View),
    ("aten.unsafe_split.Tensor", Operator::SPLIT_COPY_TENSOR, View),
    ("aten.unsafe_split_with_sizes.default", Operator::SPLIT_WITH_SIZES_COPY, View),
    ("aten.unsqueeze.default", Operator::UNSQUEEZE_COPY, View),
    ("aten.unsqueeze_.default", Operator::UNSQUEEZE_COPY, Reshaped),
    ("aten.vdot.default", Operator::DOT, Separate),
    ("aten.view.default", Operator::VIEW_COPY, View),
    ("aten.view_as.default", Operator::VIEW_AS, View),
    ("aten.view_as_complex.default", Operator::VIEW_AS_COMPLEX_COPY, View),
    ("aten.view_as_real.default", Operator::VIEW_AS_REAL_COPY, View),
    ("aten.vsplit.array", Operator::VSPLIT_ARRAY, View),
    ("aten.vsplit.int", Operator::VSPLIT_INT, View),
    ("aten.where.Scalar", Operator::WHERE_SELF, Separate),
    ("aten.where.ScalarOther", Operator::WHERE_SELF, Separate),
    ("aten.where.ScalarSelf", Operator::WHERE_SELF, Separate),
    ("aten.xlogy.Scalar_Other", Operator::XLOGY, Separate),
    ("aten.xlogy.Scalar_Self", Operator::XLOGY, Separate),
    ("aten.zero.default", Operator::ZEROS_LIKE, Separate),
];

/// Returns the operator of a name such as `aten.add_.Tensor`.
pub fn named(name: &str) -> Option<Named> {
    if let Ok(at) = NAMES.binary_search_by(|(own, ..)| (*own).cmp(name)) {
        let (_, operator, memory) = NAMES[at];
        return Some(Named { operator, memory });
    }
    if let Some(operator) = functional(name) {
        return Some(Named { operator, memory: Separate });
    }
    // In-place forms end with an underscore.
    let (path, overload) = name.rsplit_once('.')?;
    let path = path.strip_suffix('_').filter(|path| !path.ends_with('_'))?;
    let plain = format!("{path}.{overload}");
    let synonym = NAMES.iter().find(|(own, _, memory)| *own == plain && *memory == Separate);
    let operator = synonym.map(|(_, operator, _)| *operator).or_else(|| functional(&plain))?;
    Some(Named { operator, memory: Overwritten })
}

/// Returns the operator of a description that does not write to its arguments. Operators that do
/// have in-place names.
fn functional(name: &str) -> Option<Operator> {
    Operator::named(name).filter(|operator| !operator.traits().writes_arguments())
}

/// Returns the functional operator of an out variant such as `aten.add.out`. A call overwrites the
/// tensors that are passed for the outputs.
pub fn out_variant(name: &str) -> Option<Operator> {
    let (path, overload) = name.rsplit_once('.')?;
    let instruction = format!("{}.{overload}", path.replacen('.', "::", 1));
    let described = Operator::of_instruction(&instruction);
    if let Some(operator) = described.filter(|operator| !operator.traits().writes_arguments()) {
        return Some(operator);
    }
    let special = OUT_OVERLOADS.iter().find(|(own, _)| *own == name);
    let plain = match (special, overload.strip_suffix("out")) {
        (Some((_, plain)), _) => [*plain; 2],
        (None, Some("")) => ["default", "Tensor"],
        (None, plain) => [plain?.strip_suffix('_')?; 2],
    };
    let mut named = plain.iter().filter_map(|plain| named(&format!("{path}.{plain}")));
    named.find(|named| named.memory == Separate).map(|named| named.operator)
}

/// Out variants whose overloads are not those of the functional operators, followed by `out`.
const OUT_OVERLOADS: &[(&str, &str)] = &[
    ("aten.divide.out_mode", "Tensor_mode"),
    ("aten.linalg_eigh.eigvals", "default"),
    ("aten.linalg_svd.U", "default"),
    ("aten.max.out", "other"),
    ("aten.min.out", "other"),
    ("aten.xlogy.OutScalar_Other", "Scalar_Other"),
    ("aten.xlogy.OutScalar_Self", "Scalar_Self"),
    ("aten.xlogy.OutTensor", "Tensor"),
];

/// Returns the overloads of a name such as `aten.add`, with their operators.
pub fn overloads(base: &str) -> Vec<(&'static str, Operator)> {
    let overload = |name: &'static str| {
        name.strip_prefix(base)?.strip_prefix('.').filter(|overload| !overload.contains('.'))
    };
    let synonyms = NAMES.iter().filter(|(.., memory)| ![Overwritten, Reshaped].contains(memory));
    let synonyms = synonyms.filter_map(|(name, operator, _)| Some((overload(name)?, *operator)));
    let mut found: Vec<(&str, Operator)> = synonyms.collect();
    let described = Operator::all().filter_map(|it| Some((overload(it.name())?, it)));
    let others: Vec<_> =
        described.filter(|(own, _)| !found.iter().any(|(known, _)| known == own)).collect();
    found.extend(others);
    found
}

/// Returns the memory of an operator's result, under the name by which its result shares the most:
/// functional programs use the same operators for copies.
pub fn shareable_memory(operator: Operator) -> Memory {
    let mut memories = NAMES.iter().filter(|(_, own, _)| *own == operator).map(|it| it.2);
    memories
        .find(|memory| [View, ViewIfContiguous, ViewIfSame].contains(memory))
        .unwrap_or(Separate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted() {
        assert!(NAMES.is_sorted_by(|(one, ..), (other, ..)| one < other));
    }

    #[test]
    fn names_have_operators_and_memory() {
        for (name, operator, memory) in [
            ("aten.relu.default", Operator::RELU, Separate),
            ("aten.relu_.default", Operator::RELU, Overwritten),
            ("aten.add_.Tensor", Operator::ADD_TENSOR, Overwritten),
            ("aten.copy_.default", Operator::COPY, Overwritten),
            ("aten.index_put_.default", Operator::INDEX_PUT, Overwritten),
            ("aten.view.default", Operator::VIEW_COPY, View),
            ("aten.subtract_.Tensor", Operator::SUB_TENSOR, Overwritten),
            ("aten.pow_.Scalar", Operator::POW_TENSOR_SCALAR, Overwritten),
            ("aten.__ior__.Tensor", Operator::BITWISE_OR_TENSOR, Overwritten),
            ("aten.unsafe_chunk.default", Operator::CHUNK, View),
        ] {
            assert_eq!(named(name), Some(Named { operator, memory }), "{name}");
        }
        for name in ["", "aten", "aten.nothing.default", "aten.__.default", "x.relu_.default"] {
            assert_eq!(named(name), None, "{name}");
        }
    }

    #[test]
    fn out_variants_have_functional_operators() {
        for (name, operator) in [
            ("aten.add.out", Operator::ADD_TENSOR),
            ("aten.subtract.out", Operator::SUB_TENSOR),
            ("aten.matmul.out", Operator::MATMUL),
            ("aten.softmax.int_out", Operator::SOFTMAX_INT),
            ("aten.sort.values", Operator::SORT),
            ("aten.max.out", Operator::MAXIMUM),
        ] {
            assert_eq!(out_variant(name), Some(operator), "{name}");
        }
        for name in ["aten.add.Tensor", "aten.view.out", "aten.nothing.out", "add.out", "out"] {
            assert_eq!(out_variant(name), None, "{name}");
        }
    }

    #[test]
    fn synonyms_are_overloads() {
        let mut found = overloads("aten.divide");
        found.sort_unstable();
        assert_eq!(found.len(), 4);
        assert_eq!(found[1], ("Scalar_mode", Operator::DIV_SCALAR_MODE));
        // The view has the name of another description.
        assert_eq!(overloads("aten.select"), [("int", Operator::SELECT_COPY_INT)]);
        assert_eq!(overloads("aten.nothing"), []);
    }
}
