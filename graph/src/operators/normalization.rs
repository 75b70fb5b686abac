//! Operators for normalization, softmax and dropout.

use super::describe::*;
use super::*;

operators! {
    normalization;
    BATCH_NORM_NO_UPDATE(
        input: Tensor, weight: OptionalTensor, bias: OptionalTensor, running_mean: OptionalTensor,
        running_var: OptionalTensor, momentum: Float, eps: Float
    ) = aten::_batch_norm_no_update.default <- out;
    LOG_SOFTMAX(SoftmaxArgs { input: Tensor, dim: Int, half_to_float: Bool })
        = aten::_log_softmax.default <- out {
        narrow_inputs: 1, batching: Batching::Dims(ArgumentSet::of(&[1]))
    };
    NATIVE_BATCH_NORM_LEGIT(
        input: Tensor, weight: OptionalTensor, bias: OptionalTensor, running_mean: Tensor,
        running_var: Tensor, training: Bool, momentum: Float, eps: Float
    ) = aten::_native_batch_norm_legit.default <- out { folds: false };
    NATIVE_BATCH_NORM_LEGIT_NO_STATS(BatchNormNoStatsArgs {
        input: Tensor, weight: OptionalTensor, bias: OptionalTensor, training: Bool,
        momentum: Float, eps: Float
    }) = aten::_native_batch_norm_legit.no_stats <- no_stats_out { folds: false };
    NATIVE_BATCH_NORM_LEGIT_NO_TRAINING(BatchNormArgs {
        input: Tensor, weight: OptionalTensor, bias: OptionalTensor, running_mean: Tensor,
        running_var: Tensor, momentum: Float, eps: Float
    }) = aten::_native_batch_norm_legit_no_training.default <- out;
    SOFTMAX(SoftmaxArgs) = aten::_softmax.default <- out {
        narrow_inputs: 1, shape: Shape::Same, batching: Batching::Dims(ArgumentSet::of(&[1]))
    };
    NATIVE_DROPOUT(input: Tensor, p: Float, train: OptionalBool)
        = aten::native_dropout.default <- out { is_random: true };
    NATIVE_GROUP_NORM(GroupNormArgs {
        input: Tensor, weight: OptionalTensor, bias: OptionalTensor, batch: Int, channels: Int,
        area: Int, group: Int, eps: Float
    }) = aten::native_group_norm.default <- out;
    NATIVE_GROUP_NORM_BACKWARD(
        grad_out: Tensor, input: Tensor, mean: Tensor, rstd: Tensor, weight: OptionalTensor,
        batch: Int, channels: Int, area: Int, group: Int, output_mask: Bools
    ) = aten::native_group_norm_backward.default <- out;
    NATIVE_LAYER_NORM(LayerNormArgs {
        input: Tensor, normalized_shape: Ints, weight: OptionalTensor, bias: OptionalTensor,
        eps: Float
    }) = aten::native_layer_norm.default <- out {
        batching: Batching::Leading(ArgumentSet::of(&[0]))
    };
    NATIVE_LAYER_NORM_BACKWARD(
        grad_out: Tensor, input: Tensor, normalized_shape: Ints, mean: Tensor, rstd: Tensor,
        weight: OptionalTensor, bias: OptionalTensor, output_mask: Bools
    ) = aten::native_layer_norm_backward.default <- out;
    ET_VK_RMS_NORM(RmsNormArgs { input: Tensor, weight: Tensor, eps: Float })
        = et_vk::rms_norm.default {
        shape: Shape::Same, batching: Batching::Leading(ArgumentSet::of(&[0]))
    };
}
