//! Operators for selection, indexing, scattering, sorting, searching and embeddings.

use super::describe::*;
use super::*;

operators! {
    indexing;
    EMBEDDING_BAG(
        weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: Bool = false,
        mode: Int = 0, sparse: Bool = false, per_sample_weights: OptionalTensor = None,
        include_last_offset: Bool = false, padding_idx: Int = -1
    ) = aten::_embedding_bag.default <- out { folds: false };
    EMBEDDING_BAG_FORWARD_ONLY(
        weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: Bool = false,
        mode: Int = 0, sparse: Bool = false, per_sample_weights: OptionalTensor = None,
        include_last_offset: Bool = false, padding_idx: Int = -1
    ) = aten::_embedding_bag_forward_only.default <- out { folds: false };
    UNIQUE2(
        input: Tensor, sorted: Bool = true, return_inverse: Bool = false,
        return_counts: Bool = false
    ) = aten::_unique2.default <- out { data_dependent: DataDependent::Always };
    AS_STRIDED_SCATTER(
        input: Tensor, src: Tensor, size: Ints, stride: Ints, storage_offset: OptionalInt = None
    ) = aten::as_strided_scatter.default <- out;
    BUCKETIZE_TENSOR(BucketizeTensorArgs {
        input: Tensor, boundaries: Tensor, out_int32: Bool = false, right: Bool = false
    }) = aten::bucketize.Tensor <- Tensor_out
        { range: Range::Insertion(1), saturation: Saturation::Compared };
    DIAGONAL_SCATTER(input: Tensor, src: Tensor, offset: Int = 0, dim1: Int = 0, dim2: Int = 1)
        = aten::diagonal_scatter.default <- out { updates_input: true };
    EMBEDDING(EmbeddingArgs {
        weight: Tensor, indices: Tensor, padding_idx: Int = -1, scale_grad_by_freq: Bool = false,
        sparse: Bool = false
    }) = aten::embedding.default <- out {
        weights: Some(0), cost: Cost::Selection, range: Range::Selected,
        saturation: Saturation::Index(1), batching: Batching::Leading(ArgumentSet::of(&[1])) };
    EMBEDDING_DENSE_BACKWARD(
        grad_output: Tensor, indices: Tensor, num_weights: Int, padding_idx: Int,
        scale_grad_by_freq: Bool
    ) = aten::embedding_dense_backward.default <- out { folds: false };
    GATHER(GatherArgs { input: Tensor, dim: Int, index: Tensor, sparse_grad: Bool = false })
        = aten::gather.default <- out {
        cost: Cost::Selection, range: Range::Selected, saturation: Saturation::Index(2),
        batching: Batching::Dims(ArgumentSet::of(&[1]))
    };
    INDEX_TENSOR(IndexArgs { input: Tensor, indices: OptionalTensors }) = aten::index.Tensor
        <- Tensor_out {
        data_dependent: DataDependent::Masks, moves_elements: true, narrow_inputs: 1,
        cost: Cost::Selection, range: Range::Selected, saturation: Saturation::Index(1),
        batching: Batching::Index
    };
    INDEX_PUT(IndexPutArgs {
        input: Tensor, indices: OptionalTensors, values: Tensor, accumulate: Bool = false
    }) = aten::index_put.default <- out {
        updates_input: true, saturation: Saturation::Index(1), batching: Batching::IndexPut
    };
    INDEX_PUT_ATEN(IndexPutArgs) = aten::index_put_.default <- "aten::index_put_"
        { writes: ArgumentSet::of(&[0]), outputs: Outputs::InPlace };
    INDEX_REDUCE(
        input: Tensor, dim: Int, index: Tensor, source: Tensor, reduce: Str,
        include_self: Bool = true
    ) = aten::index_reduce.default <- out;
    INDEX_SELECT(IndexSelectArgs { input: Tensor, dim: Int, index: Tensor })
        = aten::index_select.default <- out {
        moves_elements: true, narrow_inputs: 1, cost: Cost::Selection, range: Range::Selected,
        saturation: Saturation::Index(2), batching: Batching::Index };
    KTHVALUE(input: Tensor, k: Int, dim: Int = -1, keepdim: Bool = false) = aten::kthvalue.default
        <- values;
    MASKED_FILL_SCALAR(MaskedFillArgs { input: Tensor, mask: Tensor, value: Scalar })
        = aten::masked_fill.Scalar <- Scalar_out {
        range: Range::Either(0, 2), batching: Batching::Broadcast
    };
    MASKED_SCATTER(MaskedScatterArgs { input: Tensor, mask: Tensor, source: Tensor })
        = aten::masked_scatter.default <- out { range: Range::Either(0, 2) };
    MASKED_SELECT(input: Tensor, mask: Tensor) = aten::masked_select.default <- out
        { data_dependent: DataDependent::Always };
    MODE(input: Tensor, dim: Int = -1, keepdim: Bool = false) = aten::mode.default <- values;
    NARROW_COPY(input: Tensor, dim: Int, start: Int, length: Int)
        = aten::narrow_copy.default <- out;
    NONZERO(UnaryArgs) = aten::nonzero.default <- out { data_dependent: DataDependent::Always };
    NONZERO_STATIC(input: Tensor, size: Int, fill_value: Int = -1) = aten::nonzero_static.default
        <- out;
    PUT(input: Tensor, index: Tensor, source: Tensor, accumulate: Bool = false) = aten::put.default
        <- out;
    REPEAT_INTERLEAVE_TENSOR(repeats: Tensor, output_size: OptionalInt = None)
        = aten::repeat_interleave.Tensor <- Tensor_out { data_dependent: DataDependent::Always };
    REPEAT_INTERLEAVE_SELF_INT(RepeatInterleaveArgs {
        input: Tensor, repeats: Int, dim: OptionalInt = None, output_size: OptionalInt = None
    }) = aten::repeat_interleave.self_int { range: Range::Selected };
    SCATTER_REDUCE(ScatterReduceArgs {
        input: Tensor, dim: Int, index: Tensor, src: Tensor, reduce: Str
    }) = aten::scatter.reduce <- reduce_out { folds: false, saturation: Saturation::Index(2) };
    SCATTER_SRC(ScatterArgs { input: Tensor, dim: Int, index: Tensor, src: Tensor })
        = aten::scatter.src <- src_out {
        updates_input: true, range: Range::Either(0, 3), saturation: Saturation::Index(2),
        batching: Batching::Dims(ArgumentSet::of(&[1]))
    };
    SCATTER_VALUE(ScatterValueArgs { input: Tensor, dim: Int, index: Tensor, value: Scalar })
        = aten::scatter.value <- value_out {
        updates_input: true, range: Range::Either(0, 3), saturation: Saturation::Index(2),
        batching: Batching::Dims(ArgumentSet::of(&[1]))
    };
    SCATTER_VALUE_REDUCE(ScatterValueReduceArgs {
        input: Tensor, dim: Int, index: Tensor, value: Scalar, reduce: Str
    }) = aten::scatter.value_reduce <- value_reduce_out
        { folds: false, saturation: Saturation::Index(2) };
    SCATTER_ADD(ScatterArgs) = aten::scatter_add.default <- out {
        updates_input: true, saturation: Saturation::Index(2),
        batching: Batching::Dims(ArgumentSet::of(&[1]))
    };
    SCATTER_REDUCE_TWO(ScatterReduceTwoArgs {
        input: Tensor, dim: Int, index: Tensor, src: Tensor, reduce: Str,
        include_self: Bool = true
    }) = aten::scatter_reduce.two <- two_out { saturation: Saturation::Index(2) };
    SEARCHSORTED_SCALAR(
        sorted_sequence: Tensor, input: Scalar, out_int32: Bool = false, right: Bool = false,
        side: OptionalStr = None, sorter: OptionalTensor = None
    ) = aten::searchsorted.Scalar <- Scalar_out
        { range: Range::Insertion(0), saturation: Saturation::ComparedInOrder };
    SEARCHSORTED_TENSOR(SearchsortedArgs {
        sorted_sequence: Tensor, input: Tensor, out_int32: Bool = false, right: Bool = false,
        side: OptionalStr = None, sorter: OptionalTensor = None
    }) = aten::searchsorted.Tensor <- Tensor_out
        { range: Range::Insertion(0), saturation: Saturation::ComparedInOrder };
    SELECT_INT(SelectArgs { input: Tensor, dim: Int, index: Int }) = aten::select.int
        { range: Range::Selected };
    SELECT_COPY_INT(SelectArgs) = aten::select_copy.int <- int_out {
        moves_elements: true, cost: Cost::Selection, range: Range::Selected,
        batching: Batching::Selection
    };
    SELECT_SCATTER(SelectScatterArgs { input: Tensor, src: Tensor, dim: Int, index: Int })
        = aten::select_scatter.default <- out {
        updates_input: true, range: Range::Either(0, 1),
        batching: Batching::Dims(ArgumentSet::of(&[2]))
    };
    SLICE_TENSOR(SliceArgs {
        input: Tensor, dim: Int = 0, start: OptionalInt = None, end: OptionalInt = None,
        step: Int = 1
    }) = aten::slice.Tensor { range: Range::Selected };
    SLICE_COPY_TENSOR(SliceArgs) = aten::slice_copy.Tensor <- Tensor_out {
        moves_elements: true, cost: Cost::Selection, range: Range::Selected,
        batching: Batching::Selection
    };
    SLICE_SCATTER(SliceScatterArgs {
        input: Tensor, src: Tensor, dim: Int = 0, start: OptionalInt = None,
        end: OptionalInt = None, step: Int = 1
    }) = aten::slice_scatter.default <- out {
        updates_input: true, range: Range::Either(0, 1),
        batching: Batching::Dims(ArgumentSet::of(&[2]))
    };
    SORT(SortArgs { input: Tensor, dim: Int = -1, descending: Bool = false }) = aten::sort.default
        <- values {
        range: Range::ValuesAndIndices, batching: Batching::Dims(ArgumentSet::of(&[1]))
    };
    SORT_STABLE(SortStableArgs {
        input: Tensor, stable: OptionalBool, dim: Int = -1, descending: Bool = false
    }) = aten::sort.stable <- values_stable { range: Range::ValuesAndIndices };
    TOPK(TopkArgs {
        input: Tensor, k: Int, dim: Int = -1, largest: Bool = true, sorted: Bool = true
    }) = aten::topk.default <- values {
        range: Range::ValuesAndIndices, batching: Batching::Dims(ArgumentSet::of(&[2]))
    };
    UNIQUE_CONSECUTIVE(
        input: Tensor, return_inverse: Bool = false, return_counts: Bool = false,
        dim: OptionalInt = None
    ) = aten::unique_consecutive.default <- out { data_dependent: DataDependent::Always };
    UNIQUE_DIM(
        input: Tensor, dim: Int, sorted: Bool = true, return_inverse: Bool = false,
        return_counts: Bool = false
    ) = aten::unique_dim.default <- out { data_dependent: DataDependent::Always };
    ET_VK_EMBEDDING_Q4GSW(EmbeddingQ4gswArgs {
        weight: Tensor, weight_scales: Tensor, group_size: Int, indices: Tensor,
        is_linear_weight: Bool = false
    }) = et_vk::embedding_q4gsw.default { cost: Cost::Selection };
    ET_VK_SELECT_AS_SYMINT(SelectArgs) = et_vk::select_as_symint.default;
}
