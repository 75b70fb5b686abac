//! What calls do besides making a new value.

use crate::operators::Operator;

impl Operator {
    /// Whether a call writes to tensors among its arguments, besides its output: then calls cannot move past it.
    pub fn writes_arguments(self) -> bool {
        matches!(
            self,
            Operator::SDPA_WITH_KV_CACHE
                | Operator::UPDATE_CACHE
                | Operator::LLAMA_UPDATE_CACHE
                | Operator::TESTING_COMPUTE_ATTN_WEIGHT_WITH_KV_CACHE
                | Operator::ET_VK_Q4GSW_REQUANT
                | Operator::ET_VK_ADAMW_STEP
                | Operator::COPY_ATEN
                | Operator::INDEX_PUT_ATEN
        )
    }

    /// Whether the output is the first argument's elements in order, perhaps in another shape or type.
    pub fn is_view(self) -> bool {
        matches!(
            self,
            Operator::VIEW_COPY
                | Operator::UNSQUEEZE_COPY
                | Operator::SQUEEZE_COPY_DIM
                | Operator::SQUEEZE_COPY_DIMS
                | Operator::CLONE
                | Operator::ALIAS_COPY
                | Operator::DETACH_COPY
                | Operator::LIFT_FRESH_COPY
                | Operator::TO_COPY
                | Operator::DIM_ORDER_OPS_TO_DIM_ORDER_COPY
                | Operator::DIM_ORDER_OPS_CLONE_DIM_ORDER
                | Operator::ET_VK_PREPACK
        )
    }
}
