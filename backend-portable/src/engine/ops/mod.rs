//! Operators of the engine. Each lowering appends steps to a plan, or only defines its result as a
//! view of an existing buffer.

mod attention;
mod convolution;
mod dynamic;
mod elementwise;
mod epilogue;
mod int8;
mod matmul;
mod moves;
mod norm;
mod phases;
mod pool;
mod resize;
mod rows;
mod sums;

pub(super) use epilogue::{EngineForms, Epilogue};
pub(super) use moves::{Copy, copy};
pub(super) use phases::Taps;

use super::builder::{Builder, Refusal};
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::Operator;

/// Lowering function of an operator. Its arguments are those of the call, the output last.
pub(super) type Operation = fn(&mut Builder<'_, '_>, &[ValueId]) -> Result<(), Refusal>;

/// Returns the lowering function of an operator.
pub(super) fn find(operator: Operator) -> Option<Operation> {
    Some(match operator {
        Operator::CONVOLUTION => convolution::convolution,
        Operator::MAX_POOL2D_WITH_INDICES => pool::largest,
        Operator::AVG_POOL2D => pool::average,
        Operator::ADAPTIVE_AVG_POOL2D => pool::adaptive_average,
        Operator::EPILOGUE => epilogue::epilogue,
        Operator::LINEAR => matmul::linear,
        Operator::ADDMM => matmul::addmm,
        Operator::MM | Operator::BMM => matmul::matmul,
        Operator::ATTENTION => attention::attention,
        Operator::ET_VK_SDPA => attention::sdpa,
        Operator::SOFTMAX => rows::softmax,
        Operator::LOG_SOFTMAX => rows::log_softmax,
        Operator::NATIVE_LAYER_NORM => rows::layer_norm,
        Operator::NATIVE_BATCH_NORM_LEGIT_NO_TRAINING => norm::batch_norm,
        Operator::MEAN_DIM => sums::mean,
        Operator::SUM_DIM_INT_LIST => sums::sum,
        Operator::CONSTANT_PAD_ND => resize::pad,
        Operator::UPSAMPLE_NEAREST2D_VEC => resize::nearest,
        Operator::PERMUTE_COPY => moves::permute,
        Operator::TRANSPOSE_COPY_INT => moves::transpose,
        Operator::VIEW_COPY => moves::view,
        Operator::SQUEEZE_COPY_DIM | Operator::SQUEEZE_COPY_DIMS => moves::squeeze,
        Operator::UNSQUEEZE_COPY => moves::unsqueeze,
        Operator::CLONE
        | Operator::ALIAS_COPY
        | Operator::DETACH_COPY
        | Operator::TO_COPY
        | Operator::DIM_ORDER_OPS_CLONE_DIM_ORDER
        | Operator::DIM_ORDER_OPS_TO_DIM_ORDER_COPY => moves::same,
        Operator::EXPAND_COPY => moves::expand,
        Operator::SLICE_COPY_TENSOR => moves::slice,
        Operator::SELECT_COPY_INT => moves::select,
        Operator::SPLIT_WITH_SIZES_COPY => moves::split_with_sizes,
        Operator::SPLIT_COPY_TENSOR => moves::split,
        Operator::CAT => moves::cat,
        Operator::PACKED => packed,
        Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR => int8::quantize,
        Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR => int8::dequantize,
        Operator::ET_VK_Q8TA_CONV2D | Operator::ET_VK_Q8TA_CONV2D_DW => int8::convolution,
        Operator::ET_VK_Q8TA_CONV2D_TRANSPOSED => int8::transposed,
        Operator::ET_VK_Q8TA_LINEAR => int8::linear,
        Operator::DYNAMIC_CONVOLUTION => int8::dynamic,
        Operator::DYNAMIC_LINEAR => dynamic::linear,
        Operator::ET_VK_Q8TA_ADD => int8::add,
        Operator::ET_VK_Q8TA_RELU => int8::relu,
        Operator::Q8TA_LOOKUP => int8::lookup,
        Operator::Q8TA_MUL => int8::mul,
        Operator::RESCALED_ARITHMETIC => int8::rescaled,
        Operator::UPSAMPLE_BILINEAR2D_VEC => resize::bilinear,
        other => return elementwise::find(other),
    })
}

/// Whether an operator only permutes, reshapes or selects elements of its input.
pub(super) fn only_rearranges(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::VIEW_COPY
            | Operator::EXPAND_COPY
            | Operator::SLICE_COPY_TENSOR
            | Operator::SELECT_COPY_INT
    )
}

/// Registers weights that were packed ahead of time. The arguments are pairs of packed data and
/// form, then the weights that they replace.
fn packed(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let (out, forms) =
        args.split_last().ok_or("packed weights: the call has no output argument")?;
    let (forms, []) = forms.as_chunks::<2>() else {
        return Err("packed weights: expected pairs of form and data".into());
    };
    forms.iter().try_for_each(|[data, form]| builder.define_packed(*out, *form, *data))
}

/// Normalizes a dim that may be negative.
fn dimension(dim: i64, rank: usize) -> Result<usize, Refusal> {
    let rank = i64::try_from(rank).unwrap_or(i64::MAX);
    let wrapped = if dim < 0 { dim.saturating_add(rank) } else { dim };
    match usize::try_from(wrapped) {
        Ok(dim) if wrapped < rank => Ok(dim),
        _ => Err(std::format!("dim {dim} is out of range for rank {rank}")),
    }
}

/// Returns the first argument of a call, and its output.
fn ends(args: &[ValueId]) -> Result<(ValueId, ValueId), Refusal> {
    match args {
        [input, .., out] => Ok((*input, *out)),
        _ => Err(std::format!("expected an input and an output, found {} arguments", args.len())),
    }
}
