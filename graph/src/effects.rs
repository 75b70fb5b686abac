//! What calls do besides making their outputs.

use crate::operators::Operator;

/// More arguments than any operator has: all of them.
const ALL: &[usize] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

impl Operator {
    /// The arguments that it may write: calls before and after see different contents.
    pub fn writes(self) -> &'static [usize] {
        match self {
            Operator::COPY_ATEN
            | Operator::INDEX_PUT_ATEN
            | Operator::EXECUTORCH_PRIM_ET_COPY_INDEX_TENSOR => &[0],
            Operator::LLAMA_UPDATE_CACHE | Operator::UPDATE_CACHE => &[1],
            Operator::SDPA_WITH_KV_CACHE | Operator::TESTING_COMPUTE_ATTN_WEIGHT_WITH_KV_CACHE => {
                &[3, 4]
            }
            Operator::ET_VK_ADAMW_STEP | Operator::ET_VK_Q4GSW_REQUANT => ALL,
            _ => &[],
        }
    }

    /// Whether a run differs without it even if nobody takes its output: it writes, or it stops a
    /// run that is not right.
    pub fn has_effect(self) -> bool {
        let checks = matches!(
            self,
            Operator::ASSERT_ASYNC_MSG
                | Operator::ASSERT_SCALAR
                | Operator::SYM_CONSTRAIN_RANGE
                | Operator::SYM_CONSTRAIN_RANGE_FOR_SIZE
        );
        checks || !self.writes().is_empty()
    }

    /// Whether two calls with the same arguments may give different results.
    pub fn is_random(self) -> bool {
        matches!(
            self,
            Operator::RAND
                | Operator::RANDN
                | Operator::RAND_LIKE
                | Operator::RANDN_LIKE
                | Operator::RANDINT
                | Operator::RANDINT_LOW
                | Operator::RANDINT_LIKE
                | Operator::RANDPERM
                | Operator::MULTINOMIAL
                | Operator::NATIVE_DROPOUT
                | Operator::NORMAL_FLOAT_FLOAT
                | Operator::NORMAL_FLOAT_TENSOR
                | Operator::NORMAL_TENSOR_FLOAT
                | Operator::NORMAL_TENSOR_TENSOR
                | Operator::UNIFORM
                | Operator::EXPONENTIAL
                | Operator::GEOMETRIC
                | Operator::CAUCHY
                | Operator::LOG_NORMAL
                | Operator::POISSON
        )
    }

    /// Whether its output's shape depends on what is in its inputs, not on their shapes alone.
    pub fn has_data_dependent_shape(self) -> bool {
        matches!(
            self,
            Operator::NONZERO
                | Operator::BINCOUNT
                | Operator::MASKED_SELECT
                | Operator::UNIQUE2
                | Operator::UNIQUE_CONSECUTIVE
                | Operator::UNIQUE_DIM
                | Operator::REPEAT_INTERLEAVE_TENSOR
                | Operator::LOCAL_SCALAR_DENSE
        )
    }

    /// Whether a call writes to tensors among its arguments, besides its output: then calls cannot
    /// move past it.
    pub fn writes_arguments(self) -> bool {
        !self.writes().is_empty()
    }

    /// The arguments of an element-wise call that are tensors: each of their elements makes the
    /// element of the output with the same index, whatever the memory order. Only for operators
    /// that stand between layers of networks; empty for others.
    pub fn elementwise_operands(self) -> &'static [usize] {
        match self {
            Operator::ADD_TENSOR
            | Operator::SUB_TENSOR
            | Operator::MUL_TENSOR
            | Operator::ET_VK_Q8TA_ADD
            | Operator::Q8TA_MUL => &[0, 1],
            Operator::CORTEX_M_QUANTIZED_ADD => &[0, 4],
            Operator::CORTEX_M_QUANTIZED_MUL => &[0, 2],
            Operator::CLAMP
            | Operator::CORTEX_M_QUANTIZED_ACTIVATION
            | Operator::ELU
            | Operator::GELU
            | Operator::HARDSIGMOID
            | Operator::HARDSWISH
            | Operator::HARDTANH
            | Operator::LEAKY_RELU
            | Operator::RELU
            | Operator::SIGMOID
            | Operator::SILU
            | Operator::TANH
            | Operator::ET_VK_Q8TA_RELU
            | Operator::Q8TA_LOOKUP
            | Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR
            | Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR => &[0],
            _ => &[],
        }
    }

    /// Whether each element of the output is an element of the first argument, or of the tensors in
    /// that list, or a padding value. Kernels do that for elements of any type.
    pub fn moves_elements(self) -> bool {
        matches!(
            self,
            Operator::CAT
                | Operator::CONSTANT_PAD_ND
                | Operator::EXPAND_COPY
                | Operator::FLIP
                | Operator::INDEX_SELECT
                | Operator::INDEX_TENSOR
                | Operator::PERMUTE_COPY
                | Operator::PIXEL_SHUFFLE
                | Operator::PIXEL_UNSHUFFLE
                | Operator::REFLECTION_PAD1D
                | Operator::REFLECTION_PAD2D
                | Operator::REPEAT
                | Operator::REPLICATION_PAD1D
                | Operator::REPLICATION_PAD2D
                | Operator::SELECT_COPY_INT
                | Operator::SLICE_COPY_TENSOR
                | Operator::SQUEEZE_COPY_DIM
                | Operator::SQUEEZE_COPY_DIMS
                | Operator::TRANSPOSE_COPY_INT
                | Operator::UNSQUEEZE_COPY
                | Operator::UPSAMPLE_NEAREST2D_VEC
                | Operator::VIEW_COPY
        )
    }

    /// Whether the output is the first argument's elements in order, perhaps in another shape or
    /// type.
    pub fn is_view(self) -> bool {
        matches!(
            self,
            Operator::VIEW_COPY
                | Operator::UNSQUEEZE_COPY
                | Operator::SQUEEZE_COPY
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
