//! Fused operators, and operators for training.

use super::describe::*;
use super::*;

operators! {
    fused;
    ET_VK_ADAMW_STEP(AdamwStepArgs {
        param: Tensor, m: Tensor, v: Tensor, grad: Tensor, lr: Float, beta1: Float, beta2: Float,
        eps: Float, weight_decay: Float, bias_correction1: Float, bias_correction2: Float
    }) = et_vk::adamw_step.default { writes: ArgumentSet::ALL };
    ET_VK_FUSED_CE(FusedCeArgs { logits: Tensor, labels: Tensor, n_valid: Float })
        = et_vk::fused_ce.default;
    ET_VK_Q4GSW_REQUANT(Q4gswRequantArgs { latent: Tensor, scales: Tensor, group_size: Int })
        = et_vk::q4gsw_requant.default { writes: ArgumentSet::ALL };
    CHAIN(..) = "torchlet.chain";
    CONVOLUTION_CHANNELS_LAST(..) = "torchlet.convolution_channels_last";
    EPILOGUE(..) = "torchlet.epilogue";
    GATED(..) = "torchlet.gated";
    NORMED_SUM(..) = "torchlet.normed_sum";
    PACKED(..) = "torchlet.packed";
    TO_CHANNELS_LAST(UnaryArgs) = "torchlet.to_channels_last";
    TO_CHANNELS_FIRST(UnaryArgs) = "torchlet.to_channels_first";
    RECURRENT(RecurrentArgs {
        input: Tensor, h: Tensor, c: OptionalTensor, weight: Tensor, bias: OptionalTensor,
        cell: Int, steps: Int, first: Int, next: Int, first_out: Int, next_out: Int
    }) = "torchlet.recurrent";
    RMS_NORM_PROLOGUE(RmsNormArgs) = "torchlet.rms_norm_prologue" { shape: Shape::Same };
    SEPARABLE(..) = "torchlet.separable";
    SHADER(ShaderArgs {
        inputs: Tensors, code: Tensor, name: Str, entry: Str, bindings: Ints, groups: Ints,
        push: Ints
    }) = "torchlet.shader" { outputs: Outputs::List, folds: false };
}
