//! Operators that create tensors: constants and sequences.

use super::describe::*;
use super::*;

operators! {
    creation;
    ARANGE(ArangeArgs {
        end: Scalar, dtype: OptionalDtype = None, layout: OptionalLayout = None,
        device: OptionalDevice = None, pin_memory: OptionalBool = None
    }) = aten::arange.default <- out without 1..5 { range: Range::Counted };
    ARANGE_START_STEP(ArangeStartStepArgs {
        start: Scalar, end: Scalar, step: Scalar = 1, dtype: OptionalDtype = None,
        layout: OptionalLayout = None, device: OptionalDevice = None,
        pin_memory: OptionalBool = None
    }) = aten::arange.start_step <- start_out without 3..7 { range: Range::CountedFrom };
    EMPTY_MEMORY_FORMAT(
        size: Ints, dtype: OptionalDtype = None, layout: OptionalLayout = None,
        device: OptionalDevice = None, pin_memory: OptionalBool = None,
        memory_format: OptionalMemoryFormat = None
    ) = aten::empty.memory_format <- out without 1..5 { layout: MemoryLayout::MemoryFormat(5) };
    EMPTY_PERMUTED(
        size: Ints, physical_layout: Ints, dtype: OptionalDtype = None,
        layout: OptionalLayout = None, device: OptionalDevice = None,
        pin_memory: OptionalBool = None
    ) = aten::empty_permuted.default <- out without 2..6;
    EMPTY_STRIDED(
        size: Ints, stride: Ints, dtype: OptionalDtype = None, layout: OptionalLayout = None,
        device: OptionalDevice = None, pin_memory: OptionalBool = None
    ) = aten::empty_strided.default <- out without 2..6 { folds: false };
    EYE(
        n: Int, dtype: OptionalDtype = None, layout: OptionalLayout = None,
        device: OptionalDevice = None, pin_memory: OptionalBool = None
    ) = aten::eye.default <- out without 1..5;
    EYE_M(
        n: Int, m: Int, dtype: OptionalDtype = None, layout: OptionalLayout = None,
        device: OptionalDevice = None, pin_memory: OptionalBool = None
    ) = aten::eye.m <- m_out without 2..6;
    FILL_SCALAR(FillArgs { input: Tensor, value: Scalar }) = aten::fill.Scalar <- Scalar_out
        { range: Range::Argument(1), batching: Batching::Broadcast };
    FILL_TENSOR(input: Tensor, value: Tensor) = aten::fill.Tensor <- Tensor_out;
    FULL(FullArgs {
        size: Ints, fill_value: Scalar, dtype: OptionalDtype = None,
        layout: OptionalLayout = None, device: OptionalDevice = None,
        pin_memory: OptionalBool = None
    }) = aten::full.default <- out without 2..6 { range: Range::Argument(1) };
    FULL_LIKE(FullLikeArgs {
        input: Tensor, fill_value: Scalar, dtype: OptionalDtype = None,
        layout: OptionalLayout = None, device: OptionalDevice = None,
        pin_memory: OptionalBool = None, memory_format: OptionalMemoryFormat = None
    }) = aten::full_like.default <- out without 2..6 {
        layout: MemoryLayout::MemoryFormat(6), range: Range::Argument(1),
        batching: Batching::Broadcast
    };
    NEW_EMPTY_STRIDED(
        input: Tensor, size: Ints, stride: Ints, dtype: OptionalDtype = None,
        layout: OptionalLayout = None, device: OptionalDevice = None,
        pin_memory: OptionalBool = None
    ) = aten::new_empty_strided.default <- out without 3..7 { folds: false };
    ONES(OnesArgs {
        size: Ints, dtype: OptionalDtype = None, layout: OptionalLayout = None,
        device: OptionalDevice = None, pin_memory: OptionalBool = None
    }) = aten::ones.default <- out without 1..5 { range: Range::Within(1, 1) };
    ONES_LIKE(OnesLikeArgs {
        input: Tensor, dtype: OptionalDtype = None, layout: OptionalLayout = None,
        device: OptionalDevice = None, pin_memory: OptionalBool = None,
        memory_format: OptionalMemoryFormat = None
    }) = aten::ones_like.default <- out without 1..5 {
        range: Range::Within(1, 1), batching: Batching::Broadcast
    };
    SCALAR_TENSOR(ScalarTensorArgs {
        s: Scalar, dtype: OptionalDtype = None, layout: OptionalLayout = None,
        device: OptionalDevice = None, pin_memory: OptionalBool = None
    }) = aten::scalar_tensor.default <- out without 1..5
        { range: Range::Argument(0), batching: Batching::Filled };
    TRIL_INDICES(
        row: Int, col: Int, offset: Int = 0, dtype: OptionalDtype = 4,
        layout: OptionalLayout = None, device: OptionalDevice = None,
        pin_memory: OptionalBool = None
    ) = aten::tril_indices.default <- out without 3..7;
    TRIU_INDICES(
        row: Int, col: Int, offset: Int = 0, dtype: OptionalDtype = 4,
        layout: OptionalLayout = None, device: OptionalDevice = None,
        pin_memory: OptionalBool = None
    ) = aten::triu_indices.default <- out without 3..7;
    ZEROS(OnesArgs) = aten::zeros.default <- out without 1..5 { range: Range::Within(0, 0) };
    ZEROS_LIKE(OnesLikeArgs) = aten::zeros_like.default <- out without 1..5
        { range: Range::Within(0, 0), batching: Batching::Broadcast };
    DIM_ORDER_OPS_EMPTY_DIM_ORDER(
        size: Ints, dtype: OptionalDtype = None, layout: OptionalLayout = None,
        device: OptionalDevice = None, pin_memory: OptionalBool = None,
        dim_order: OptionalInts = None
    ) = dim_order_ops::_empty_dim_order.default <- out without 1..5
        { layout: MemoryLayout::DimOrder(5) };
}
