//! Operators that compute integers such as sizes at run time, and assertions.

use super::describe::*;
use super::*;

operators! {
    symbolic;
    SYM_ADD(SymBinaryArgs { a: Scalar, b: Scalar }) = "add" <- "executorch_prim::add.Scalar"
        { integers: Integers::IfArguments, is_symbolic: true, batching: Batching::Integers };
    ASSERT_ASYNC_MSG(input: Tensor, assert_msg: Str) = aten::_assert_async.msg <- msg
        { checks: true, batching: Batching::Check };
    ASSERT_SCALAR(input: Scalar, assert_msg: Str) = aten::_assert_scalar.default
        <- "aten::_assert_scalar" { checks: true, batching: Batching::Check };
    LOCAL_SCALAR_DENSE(UnaryArgs) = aten::_local_scalar_dense.default
        <- "aten::_local_scalar_dense" {
        data_dependent: DataDependent::Always, integers: Integers::IfArguments, is_symbolic: true,
        batching: Batching::Integer
    };
    SYM_CONSTRAIN_RANGE(size: Scalar, min: OptionalInt = None, max: OptionalInt = None)
        = aten::sym_constrain_range.default <- "aten::sym_constrain_range" {
        checks: true, batching: Batching::Check
    };
    SYM_CONSTRAIN_RANGE_FOR_SIZE(size: Scalar, min: OptionalInt = None, max: OptionalInt = None)
        = aten::sym_constrain_range_for_size.default <- "aten::sym_constrain_range_for_size"
        { checks: true, batching: Batching::Check };
    SYM_NUMEL(UnaryArgs) = aten::sym_numel.default <- "aten::sym_numel"
        { integers: Integers::Always };
    EXECUTORCH_PRIM_CEIL_SCALAR(a: Scalar) = executorch_prim::ceil.Scalar <- Scalar
        { integers: Integers::Always };
    EXECUTORCH_PRIM_EQ_SCALAR(SymBinaryArgs) = executorch_prim::eq.Scalar <- Scalar;
    EXECUTORCH_PRIM_ET_COPY_INDEX_TENSOR(input: Tensor, src: Tensor, index: Int)
        = executorch_prim::et_copy_index.tensor <- tensor { writes: ArgumentSet::of(&[0]) };
    EXECUTORCH_PRIM_ET_VIEW(ViewArgs) = executorch_prim::et_view.default <- default
        { folds: false };
    EXECUTORCH_PRIM_FLOORDIV_INT(a: Int, b: Int) = executorch_prim::floordiv.int <- int
        { integers: Integers::IfArguments };
    EXECUTORCH_PRIM_GE_SCALAR(SymBinaryArgs) = executorch_prim::ge.Scalar <- Scalar;
    EXECUTORCH_PRIM_GT_SCALAR(SymBinaryArgs) = executorch_prim::gt.Scalar <- Scalar;
    EXECUTORCH_PRIM_LE_SCALAR(SymBinaryArgs) = executorch_prim::le.Scalar <- Scalar;
    EXECUTORCH_PRIM_LT_SCALAR(SymBinaryArgs) = executorch_prim::lt.Scalar <- Scalar;
    EXECUTORCH_PRIM_MOD_SCALAR(a: Int, b: Int) = executorch_prim::mod.Scalar <- Scalar
        { integers: Integers::IfArguments, batching: Batching::Integers };
    EXECUTORCH_PRIM_MOD_INT(a: Int, b: Int) = executorch_prim::mod.int <- int
        { integers: Integers::IfArguments };
    EXECUTORCH_PRIM_NEG_SCALAR(a: Scalar) = executorch_prim::neg.Scalar <- Scalar
        { integers: Integers::IfArguments };
    EXECUTORCH_PRIM_ROUND_SCALAR(a: Scalar) = executorch_prim::round.Scalar <- Scalar
        { integers: Integers::Always };
    EXECUTORCH_PRIM_SYM_FLOAT_SCALAR(a: Scalar) = executorch_prim::sym_float.Scalar <- Scalar;
    EXECUTORCH_PRIM_SYM_INT_SCALAR(a: Scalar) = executorch_prim::sym_int.Scalar <- Scalar
        { integers: Integers::Always };
    EXECUTORCH_PRIM_SYM_ITE_SCALAR(b: Scalar, t: Scalar, f: Scalar)
        = executorch_prim::sym_ite.Scalar <- Scalar;
    EXECUTORCH_PRIM_SYM_MAX_SCALAR(SymBinaryArgs) = executorch_prim::sym_max.Scalar <- Scalar
        { integers: Integers::IfArguments };
    EXECUTORCH_PRIM_SYM_MIN_SCALAR(SymBinaryArgs) = executorch_prim::sym_min.Scalar <- Scalar
        { integers: Integers::IfArguments };
    EXECUTORCH_PRIM_SYM_NOT_SCALAR(a: Scalar) = executorch_prim::sym_not.Scalar <- Scalar;
    EXECUTORCH_PRIM_TRUEDIV_SCALAR(SymBinaryArgs) = executorch_prim::truediv.Scalar <- Scalar;
    EXECUTORCH_PRIM_TRUNC_SCALAR(a: Scalar) = executorch_prim::trunc.Scalar <- Scalar
        { integers: Integers::Always };
    SYM_FLOORDIV(SymBinaryArgs) = "floordiv" <- "executorch_prim::floordiv.Scalar"
        { integers: Integers::IfArguments, is_symbolic: true, batching: Batching::Integers };
    SYM_MUL(SymBinaryArgs) = "mul" <- "executorch_prim::mul.Scalar"
        { integers: Integers::IfArguments, is_symbolic: true, batching: Batching::Integers };
    SYM_SUB(SymBinaryArgs) = "sub" <- "executorch_prim::sub.Scalar"
        { integers: Integers::IfArguments, is_symbolic: true, batching: Batching::Integers };
    SYM_SIZE_INT(DimArgs) = "sym_size.int" <- "aten::sym_size.int"
        { integers: Integers::Always, is_symbolic: true, batching: Batching::Size };
}
