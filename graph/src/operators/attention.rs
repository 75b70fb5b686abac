//! Operators for attention, rotary embeddings and KV caches.

use super::describe::*;
use super::*;

operators! {
    attention;
    ET_VK_APPLY_ROTARY_EMB(ApplyRotaryEmbArgs {
        xq: Tensor, xk: Tensor, freqs_cos: Tensor, freqs_sin: Tensor
    }) = et_vk::apply_rotary_emb.default;
    ET_VK_APPLY_ROTARY_EMB_HF(ApplyRotaryEmbHfArgs {
        xq: Tensor, xk: Tensor, freqs_cos: Tensor, freqs_sin: Tensor, start_pos: Int
    }) = et_vk::apply_rotary_emb_hf.default;
    ET_VK_APPLY_ROTARY_EMB_INTERLEAVED(ApplyRotaryEmbInterleavedArgs {
        input: Tensor, freqs_cis: Tensor
    }) = et_vk::apply_rotary_emb_interleaved.default;
    ET_VK_SDPA(
        q: Tensor, k: Tensor, v: Tensor, attn_mask: OptionalTensor = None,
        scale: OptionalFloat = None
    ) = et_vk::sdpa.default
        { narrow_inputs: 3, cost: Cost::Attention { keys: 1, dim: 2 }, shape: Shape::Attention };
    LLAMA_CHANNELWISE_GATED_DELTA_RULE(
        query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor,
        initial_state: Tensor
    ) = llama::channelwise_gated_delta_rule.default <- out { folds: false };
    LLAMA_CUSTOM_QUANTIZED_SDPA(
        query: Tensor, key: Tensor, value: Tensor, start_pos: Int,
        attn_mask: OptionalTensor = None, dropout_p: Float = 0.0, is_causal: Bool = false,
        scale: OptionalFloat = None, q_zero_points: OptionalTensor = None,
        q_scales: OptionalTensor = None, k_zero_points: OptionalTensor = None,
        k_scales: OptionalTensor = None, v_zero_points: OptionalTensor = None,
        v_scales: OptionalTensor = None, is_seq_at_dim_2: Bool = false
    ) = llama::custom_quantized_sdpa.default <- out { folds: false };
    LLAMA_CUSTOM_SDPA(CustomSdpaArgs {
        query: Tensor, key: Tensor, value: Tensor, start_pos: Int,
        attn_mask: OptionalTensor = None, dropout_p: Float = 0.0, is_causal: Bool = false,
        scale: OptionalFloat = None
    }) = llama::custom_sdpa.default <- out {
        cost: Cost::Attention { keys: 1, dim: 1 }, batching: Batching::CachedAttention
    };
    LLAMA_FALLBACK(UnaryArgs) = llama::fallback.default <- out;
    LLAMA_FAST_HADAMARD_TRANSFORM(mat: Tensor) = llama::fast_hadamard_transform.default <- out {
        batching: Batching::Leading(ArgumentSet::of(&[0]))
    };
    LLAMA_GATED_DELTA_RULE(
        query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor,
        initial_state: Tensor
    ) = llama::gated_delta_rule.default <- out { folds: false };
    LLAMA_QUANTIZED_MOE_FFN(
        input: Tensor, gate_weight: Tensor, expert_bias: Tensor, packed_w13: Tensor,
        packed_w2: Tensor, num_activated_experts: Int, num_experts: Int, hidden_dim: Int,
        dim: Int, group_size: Int, weight_nbit: Int, score_func: Str, route_scale: Float
    ) = llama::quantized_moe_ffn.default <- out { folds: false };
    LLAMA_UPDATE_CACHE(UpdateCacheArgs { value: Tensor, cache: Tensor, start_pos: Int })
        = llama::update_cache.default {
        writes: ArgumentSet::of(&[1]), batching: Batching::CacheUpdate
    };
    SDPA_WITH_KV_CACHE(SdpaWithKvCacheArgs {
        query: Tensor, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor,
        start_pos: Int, seq_len: Int, attn_mask: OptionalTensor = None, dropout_p: Float = 0.0,
        is_causal: Bool = false, scale: OptionalFloat = None
    }) = "sdpa_with_kv_cache.default"
        { writes: ArgumentSet::of(&[3, 4]), cost: Cost::Attention { keys: 3, dim: 1 } };
    TESTING_COMPUTE_ATTN_WEIGHT_WITH_KV_CACHE(SdpaWithKvCacheArgs)
        = testing::compute_attn_weight_with_kv_cache.default { writes: ArgumentSet::of(&[3, 4]) };
    ATTENTION(AttentionArgs {
        query: Tensor, key: Tensor, value: Tensor, mask: OptionalTensor, scale: OptionalFloat,
        offset: OptionalInt = None
    }) = "torchlet.attention"
        { narrow_inputs: 3, cost: Cost::Attention { keys: 1, dim: 2 }, shape: Shape::Attention };
    SLOTS_PUT(SlotsPutArgs {
        state: Tensor, slots: Tensor, positions: OptionalTensor, value: Tensor, dim: Int
    }) = "torchlet.slots_put" <- "torchlet::slots_put.out" { updates_input: true };
    SLOTS_SDPA(SlotsSdpaArgs {
        query: Tensor, key: Tensor, value: Tensor, slots: Tensor, starts: Tensor,
        attn_mask: OptionalTensor, dropout_p: Float, is_causal: Bool, scale: OptionalFloat
    }) = "torchlet.slots_sdpa" <- "torchlet::slots_sdpa.out"
        { cost: Cost::Attention { keys: 1, dim: 2 } };
    ROTARY(RotaryArgs { input: Tensor, cosine: Tensor, sine: Tensor, form: Int })
        = "torchlet.rotary";
    UPDATE_CACHE(UpdateCacheArgs) = "update_cache.default" {
        writes: ArgumentSet::of(&[1]), batching: Batching::CacheUpdate
    };
}
