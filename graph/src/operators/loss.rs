//! Loss functions and distances that PyTorch decomposes. Reductions are 0: none, 1: mean, 2: sum.

use super::describe::*;
use super::*;

operators! {
    loss;
    BINARY_CROSS_ENTROPY(BceArgs {
        input: Tensor, target: Tensor, weight: OptionalTensor = None, reduction: Int = 1
    }) = aten::binary_cross_entropy.default;
    BINARY_CROSS_ENTROPY_WITH_LOGITS(BceLogitsArgs {
        input: Tensor, target: Tensor, weight: OptionalTensor = None,
        pos_weight: OptionalTensor = None, reduction: Int = 1
    }) = aten::binary_cross_entropy_with_logits.default;
    COSINE_EMBEDDING_LOSS(RankingArgs {
        input1: Tensor, input2: Tensor, target: Tensor, margin: Float = 0.0, reduction: Int = 1
    }) = aten::cosine_embedding_loss.default;
    CROSS_ENTROPY_LOSS(CrossEntropyArgs {
        input: Tensor, target: Tensor, weight: OptionalTensor = None, reduction: Int = 1,
        ignore_index: Int = -100, label_smoothing: Float = 0.0
    }) = aten::cross_entropy_loss.default;
    HINGE_EMBEDDING_LOSS(HingeArgs {
        input: Tensor, target: Tensor, margin: Float = 1.0, reduction: Int = 1
    }) = aten::hinge_embedding_loss.default;
    HUBER_LOSS(HuberArgs {
        input: Tensor, target: Tensor, reduction: Int = 1, delta: Float = 1.0
    }) = aten::huber_loss.default;
    KL_DIV(KlDivArgs {
        input: Tensor, target: Tensor, reduction: Int = 1, log_target: Bool = false
    }) = aten::kl_div.default;
    L1_LOSS(LossArgs) = aten::l1_loss.default;
    MARGIN_RANKING_LOSS(RankingArgs) = aten::margin_ranking_loss.default;
    NLL_LOSS_ND(NllLossArgs {
        input: Tensor, target: Tensor, weight: OptionalTensor = None, reduction: Int = 1,
        ignore_index: Int = -100
    }) = aten::nll_loss_nd.default;
    PAIRWISE_DISTANCE(PairwiseDistanceArgs {
        x1: Tensor, x2: Tensor, p: Float = 2.0, eps: Float = 1e-06, keepdim: Bool = false
    }) = aten::pairwise_distance.default;
    POISSON_NLL_LOSS(PoissonArgs {
        input: Tensor, target: Tensor, log_input: Bool, full: Bool, eps: Float, reduction: Int
    }) = aten::poisson_nll_loss.default;
    SMOOTH_L1_LOSS(SmoothL1Args {
        input: Tensor, target: Tensor, reduction: Int = 1, beta: Float = 1.0
    }) = aten::smooth_l1_loss.default;
    SOFT_MARGIN_LOSS(LossArgs) = aten::soft_margin_loss.default;
    TRIPLET_MARGIN_LOSS(TripletArgs {
        anchor: Tensor, positive: Tensor, negative: Tensor, margin: Float = 1.0, p: Float = 2.0,
        eps: Float = 1e-06, swap: Bool = false, reduction: Int = 1
    }) = aten::triplet_margin_loss.default;
}
