//! Operators for views, permutations, copies, padding, concatenation and splitting.

use super::describe::*;
use super::*;

operators! {
    shape;
    CONJ_COPY(UnaryArgs) = aten::_conj_copy.default <- out;
    RESHAPE_ALIAS_COPY(input: Tensor, size: Ints, stride: Ints) = aten::_reshape_alias_copy.default
        <- out;
    TO_COPY(
        input: Tensor, dtype: OptionalDtype = None, layout: OptionalLayout = None,
        device: OptionalDevice = None, pin_memory: OptionalBool = None,
        non_blocking: Bool = false, memory_format: OptionalMemoryFormat = None
    ) = aten::_to_copy.default <- out without 1..5 {
        layout: MemoryLayout::MemoryFormat(6), non_blocking: Some(5), is_view: true,
        shape: Shape::Same, saturation: Saturation::Truth, batching: Batching::Broadcast };
    ALIAS_COPY(UnaryArgs) = aten::alias_copy.default <- out {
        is_view: true, batching: Batching::Broadcast
    };
    AS_STRIDED_COPY(AsStridedArgs {
        input: Tensor, size: Ints, stride: Ints, storage_offset: OptionalInt = None
    }) = aten::as_strided_copy.default <- out { cost: Cost::Selection };
    CAT(CatArgs { tensors: Tensors, dim: Int = 0 }) = aten::cat.default <- out {
        moves_elements: true, range: Range::Selected,
        batching: Batching::Dims(ArgumentSet::of(&[1]))
    };
    CLONE(input: Tensor, memory_format: OptionalMemoryFormat = None)
        = aten::clone.default <- out {
        layout: MemoryLayout::MemoryFormat(1), is_view: true, shape: Shape::Same,
        batching: Batching::Broadcast
    };
    CONSTANT_PAD_ND(ConstantPadArgs { input: Tensor, pad: Ints, value: Scalar = 0 })
        = aten::constant_pad_nd.default <- out {
        moves_elements: true, range: Range::Padded,
        batching: Batching::Leading(ArgumentSet::of(&[0]))
    };
    COPY(CopyArgs { input: Tensor, src: Tensor, non_blocking: Bool = false }) = aten::copy.default
        <- out { batching: Batching::Into };
    COPY_ATEN(CopyArgs) = aten::copy_.default <- "aten::copy_"
        { writes: ArgumentSet::of(&[0]), outputs: Outputs::InPlace };
    DETACH_COPY(UnaryArgs) = aten::detach_copy.default <- out {
        is_view: true, batching: Batching::Broadcast
    };
    DIAGONAL_COPY(DiagonalArgs { input: Tensor, offset: Int = 0, dim1: Int = 0, dim2: Int = 1 })
        = aten::diagonal_copy.default <- out;
    EXPAND_COPY(ExpandArgs { input: Tensor, size: Ints, implicit: Bool = false })
        = aten::expand_copy.default <- out {
        moves_elements: true, range: Range::Selected, batching: Batching::Sizes(FirstSize::Kept)
    };
    FLIP(DimsArgs { input: Tensor, dims: Ints }) = aten::flip.default <- out {
        moves_elements: true, range: Range::Selected,
        batching: Batching::Dims(ArgumentSet::of(&[1]))
    };
    LIFT_FRESH_COPY(UnaryArgs) = aten::lift_fresh_copy.default <- out {
        is_view: true, batching: Batching::Broadcast
    };
    PERMUTE(DimsArgs) = aten::permute.default { range: Range::Selected };
    PERMUTE_COPY(DimsArgs) = aten::permute_copy.default <- out {
        moves_elements: true, shape: Shape::Permuted, range: Range::Selected,
        batching: Batching::Permutation
    };
    PIXEL_SHUFFLE(PixelShuffleArgs { input: Tensor, upscale_factor: Int })
        = aten::pixel_shuffle.default <- out { moves_elements: true };
    PIXEL_UNSHUFFLE(input: Tensor, downscale_factor: Int) = aten::pixel_unshuffle.default <- out
        { moves_elements: true };
    REFLECTION_PAD1D(PadArgs { input: Tensor, padding: Ints }) = aten::reflection_pad1d.default
        <- out { moves_elements: true, range: Range::Selected };
    REFLECTION_PAD1D_BACKWARD(grad_output: Tensor, input: Tensor, padding: Ints)
        = aten::reflection_pad1d_backward.default <- grad_input;
    REFLECTION_PAD2D(PadArgs) = aten::reflection_pad2d.default <- out
        { moves_elements: true, range: Range::Selected };
    REFLECTION_PAD2D_BACKWARD(grad_output: Tensor, input: Tensor, padding: Ints)
        = aten::reflection_pad2d_backward.default <- grad_input;
    REFLECTION_PAD3D(PadArgs) = aten::reflection_pad3d.default <- out { range: Range::Selected };
    REFLECTION_PAD3D_BACKWARD(grad_output: Tensor, input: Tensor, padding: Ints)
        = aten::reflection_pad3d_backward.default <- grad_input;
    REPEAT(RepeatArgs { input: Tensor, repeats: Ints }) = aten::repeat.default <- out {
        moves_elements: true, range: Range::Selected, batching: Batching::Sizes(FirstSize::Once)
    };
    REPLICATION_PAD1D(PadArgs) = aten::replication_pad1d.default <- out
        { moves_elements: true, range: Range::Selected };
    REPLICATION_PAD1D_BACKWARD(grad_output: Tensor, input: Tensor, padding: Ints)
        = aten::replication_pad1d_backward.default <- grad_input;
    REPLICATION_PAD2D(PadArgs) = aten::replication_pad2d.default <- out
        { moves_elements: true, range: Range::Selected };
    REPLICATION_PAD2D_BACKWARD(grad_output: Tensor, input: Tensor, padding: Ints)
        = aten::replication_pad2d_backward.default <- grad_input;
    REPLICATION_PAD3D(PadArgs) = aten::replication_pad3d.default <- out { range: Range::Selected };
    REPLICATION_PAD3D_BACKWARD(grad_output: Tensor, input: Tensor, padding: Ints)
        = aten::replication_pad3d_backward.default <- grad_input;
    RESIZE(input: Tensor, size: Ints, memory_format: OptionalMemoryFormat = None)
        = aten::resize.default <- out { folds: false };
    ROLL(input: Tensor, shifts: Ints, dims: Ints = []) = aten::roll.default <- out
        { range: Range::Selected };
    SPLIT_COPY_TENSOR(SplitArgs { input: Tensor, split_size: Int, dim: Int = 0 })
        = aten::split_copy.Tensor <- Tensor_out {
        outputs: Outputs::List, range: Range::Selected,
        batching: Batching::Dims(ArgumentSet::of(&[2]))
    };
    SPLIT_WITH_SIZES_COPY(SplitWithSizesArgs { input: Tensor, split_sizes: Ints, dim: Int = 0 })
        = aten::split_with_sizes_copy.default <- out {
        outputs: Outputs::List, range: Range::Selected,
        batching: Batching::Dims(ArgumentSet::of(&[2]))
    };
    SQUEEZE_COPY(UnaryArgs) = aten::squeeze_copy.default <- out { is_view: true };
    SQUEEZE_COPY_DIM(DimArgs) = aten::squeeze_copy.dim <- dim_out {
        is_view: true, moves_elements: true, shape: Shape::SameNumel,
        batching: Batching::Dims(ArgumentSet::of(&[1]))
    };
    SQUEEZE_COPY_DIMS(input: Tensor, dim: Ints) = aten::squeeze_copy.dims
        <- dims_out {
        is_view: true, moves_elements: true, shape: Shape::SameNumel,
        batching: Batching::Dims(ArgumentSet::of(&[1]))
    };
    STACK(CatArgs) = aten::stack.default <- out {
        range: Range::Selected, batching: Batching::Dims(ArgumentSet::of(&[1]))
    };
    T_COPY(UnaryArgs) = aten::t_copy.default <- out
        { shape: Shape::Permuted, range: Range::Selected };
    TRANSPOSE_COPY_INT(TransposeArgs { input: Tensor, dim0: Int, dim1: Int })
        = aten::transpose_copy.int <- int_out {
        moves_elements: true, shape: Shape::Permuted, range: Range::Selected,
        batching: Batching::Dims(ArgumentSet::of(&[1, 2]))
    };
    TRIL(input: Tensor, diagonal: Int = 0) = aten::tril.default <- out {
        batching: Batching::Leading(ArgumentSet::of(&[0]))
    };
    TRIU(input: Tensor, diagonal: Int = 0) = aten::triu.default <- out {
        batching: Batching::Leading(ArgumentSet::of(&[0]))
    };
    UNBIND_COPY_INT(UnbindArgs { input: Tensor, dim: Int = 0 }) = aten::unbind_copy.int <- int_out {
        outputs: Outputs::List, range: Range::Selected,
        batching: Batching::Dims(ArgumentSet::of(&[1]))
    };
    UNFOLD_COPY(UnfoldArgs { input: Tensor, dimension: Int, size: Int, step: Int })
        = aten::unfold_copy.default <- out { range: Range::Selected };
    UNSQUEEZE_COPY(DimArgs) = aten::unsqueeze_copy.default <- out {
        is_view: true, moves_elements: true, shape: Shape::SameNumel,
        batching: Batching::Dims(ArgumentSet::of(&[1]))
    };
    VIEW_AS_COMPLEX_COPY(UnaryArgs) = aten::view_as_complex_copy.default <- out;
    VIEW_AS_REAL_COPY(UnaryArgs) = aten::view_as_real_copy.default <- out;
    VIEW_COPY(ViewArgs { input: Tensor, size: Ints }) = aten::view_copy.default <- out {
        is_view: true, moves_elements: true, shape: Shape::SameNumel,
        batching: Batching::Sizes(FirstSize::Batch)
    };
    DIM_ORDER_OPS_CLONE_DIM_ORDER(
        input: Tensor, non_blocking: Bool = false, dim_order: OptionalInts = None
    ) = dim_order_ops::_clone_dim_order.default <- out {
        layout: MemoryLayout::DimOrder(2), non_blocking: Some(1), is_view: true,
        shape: Shape::Same, batching: Batching::Broadcast };
    DIM_ORDER_OPS_TO_DIM_ORDER_COPY(
        input: Tensor, dtype: OptionalDtype = None, layout: OptionalLayout = None,
        device: OptionalDevice = None, pin_memory: OptionalBool = None,
        non_blocking: Bool = false, dim_order: OptionalInts = None
    ) = dim_order_ops::_to_dim_order_copy.default <- out without 1..5 {
        layout: MemoryLayout::DimOrder(6), non_blocking: Some(5), is_view: true,
        shape: Shape::Same, saturation: Saturation::Truth, batching: Batching::Broadcast };
    ET_VK_PREPACK(UnaryArgs) = et_vk::prepack.default { is_view: true };
}
