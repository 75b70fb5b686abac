//! Element moves, pooling, means and softmax of int8 activations.

use super::{Codes, HIGHEST, LOWEST, Made, dequantized, like, lookup, nearest, produce_unmoved};
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::{
    AdaptivePoolArgs, AvgPoolArgs, ConstantPadArgs, Operator, Q8taAvgPool2dArgs, Q8taSoftmaxArgs,
    SoftmaxArgs, SumArgs,
};
use crate::passes::rewrite::Rewriter;
use crate::passes::uses::inputs;
use alloc::borrow::Cow;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;
use torchlet_core::rules::normalize_dim;

/// Maximum length of a chain of element-moving calls that is followed.
const MOVES: u32 = 4;

/// Applies an element-moving call to quantized values. Inputs with another scale or zero point are
/// requantized first.
pub(super) fn moved(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    move_codes(rewriter, result.value, result.codes, out, takes, MOVES)
}

/// Produces `out`, the quantized form of a value, from the quantized inputs of the calls that
/// produce the value.
fn move_codes(
    rewriter: &mut Rewriter<'_, '_>,
    id: ValueId,
    wanted: Codes,
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
    depth: u32,
) -> Option<()> {
    let node = rewriter.producer(id).filter(|_| rewriter.uses(id) == 1 && depth > 0)?;
    let operator = node.operator;
    let mut args = inputs(node).to_vec();
    let source = *args.first().filter(|_| operator.traits().moves_elements)?;
    if operator == Operator::CONSTANT_PAD_ND {
        let padding = ConstantPadArgs::of(node).ok()?.value;
        let padding = match padding {
            id if rewriter.is_none(id.as_ref()) => 0.0,
            id => rewriter.number(id?)?,
        };
        let padding = nearest(padding / wanted.scale).saturating_add(wanted.zero);
        let padding = rewriter.value(Value::Int(padding.clamp(LOWEST, HIGHEST)));
        args.truncate(2);
        args.push(padding);
    }
    let mut codes = |rewriter: &mut Rewriter<'_, '_>, id: ValueId| {
        let tensor = rewriter.tensor(id)?.clone();
        let (scalar_type, host_type) = (ScalarType::Char, ScalarType::Char);
        let between = Tensor { scalar_type, host_type, data: None, ..tensor };
        if let Some((codes, from)) = dequantized(rewriter, id) {
            if from.is(wanted) {
                return Some(codes);
            }
            let between = rewriter.value(Value::Tensor(between));
            let args = lookup(rewriter, codes, from.table_to(wanted), between, takes)?;
            rewriter.call(Operator::Q8TA_LOOKUP, &args, between);
            return Some(between);
        }
        let between = rewriter.value(Value::Tensor(between));
        let result = Made { value: id, relu: false, codes: wanted };
        move_codes(rewriter, id, wanted, between, takes, depth - 1)
            .or_else(|| produce_unmoved(rewriter, &result, between, takes))?;
        Some(between)
    };
    let source = match (operator, rewriter.get(source).cloned()) {
        (Operator::CAT, Some(Value::List(items))) => {
            let items: Option<Vec<ValueId>> =
                items.into_iter().map(|id| codes(rewriter, id)).collect();
            rewriter.value(Value::List(items?))
        }
        (Operator::CAT, _) => return None,
        _ => codes(rewriter, source)?,
    };
    *args.first_mut()? = source;
    if !rewriter.is_taken(operator, &args, out, takes) {
        return None;
    }
    rewriter.call(operator, &args, out);
    Some(())
}

/// Applies max pooling to quantized values.
pub(super) fn largest(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    let node = rewriter.producer(result.value).filter(|_| rewriter.uses(result.value) == 1)?;
    if node.operator != Operator::MAX_POOL2D_WITH_INDICES {
        return None;
    }
    let (taken, list) = (inputs(node).to_vec(), *node.args.last()?);
    let Some(Value::List(outs)) = rewriter.get(list) else { return None };
    let &[largest, indices] = &outs[..] else { return None };
    let (input, rest) = taken.split_first()?;
    let (input, from) = source(rewriter, *input, takes, MOVES)?;
    if largest != result.value || rewriter.uses(indices) > 0 {
        return None;
    }
    let requantized = after(rewriter, from, result.codes, out, takes)?;
    let made = requantized.map_or(out, |[made, _]| made);
    let (scalar_type, sizes) = (rewriter.scalar_type(indices)?, rewriter.sizes(indices)?.to_vec());
    let indices = rewriter.new_tensor(scalar_type, sizes);
    let outs = rewriter.value(Value::List(vec![made, indices]));
    let args = [&[input], rest].concat();
    if !rewriter.is_taken(Operator::MAX_POOL2D_WITH_INDICES, &args, outs, takes) {
        return None;
    }
    rewriter.call(Operator::MAX_POOL2D_WITH_INDICES, &args, outs);
    requantized.into_iter().for_each(|args| rewriter.call(Operator::Q8TA_LOOKUP, &args, out));
    Some(())
}

/// Arguments of the lookup that requantizes the result of a call. `Some(None)` if the parameters
/// are already the wanted ones.
fn after(
    rewriter: &mut Rewriter<'_, '_>,
    from: Codes,
    to: Codes,
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<Option<[ValueId; 2]>> {
    if from.is(to) {
        return Some(None);
    }
    let between = like(rewriter, out)?;
    lookup(rewriter, between, from.table_to(to), out, takes).map(Some)
}

/// Maximum ratio of the input step to the result step for averages, which are first rounded to the
/// input step. With a ratio `r`, the error is at most `(r + 1) / 2` result steps.
const COARSER: f64 = 3.0;

/// Averages quantized values, if no window counts padding.
pub(super) fn averaged(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    let node = rewriter.producer(result.value).filter(|_| rewriter.uses(result.value) == 1)?;
    let node = node.clone();
    let averages = [Operator::AVG_POOL2D, Operator::ADAPTIVE_AVG_POOL2D, Operator::MEAN_DIM];
    if !averages.contains(&node.operator) {
        return None;
    }
    let (input, from) = source(rewriter, *inputs(&node).first()?, takes, MOVES)?;
    if from.scale > COARSER * result.codes.scale {
        return None;
    }
    let sizes = rewriter.sizes(input)?.to_vec();
    let requantized = |rewriter: &mut Rewriter<'_, '_>,
                       takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool| {
        let requantized = after(rewriter, from, result.codes, out, takes)?;
        Some((requantized.map_or(out, |[made, _]| made), requantized))
    };
    match node.operator {
        Operator::AVG_POOL2D => {
            let call = AvgPoolArgs::of(&node).ok()?;
            let ints = |id: Option<ValueId>| match id.filter(|id| !rewriter.is_none(Some(id))) {
                Some(id) => rewriter.ints(id),
                None => Some(Cow::Owned(Vec::new())),
            };
            let is_padded = ints(call.padding)?.iter().any(|pad| *pad != 0);
            let has_stride = !ints(call.stride)?.is_empty();
            let counts_padding = rewriter.flag(call.count_include_pad.as_ref(), true)?;
            if is_padded && counts_padding || !rewriter.is_none(call.divisor_override.as_ref()) {
                return None;
            }
            let kernel_sizes = rewriter.ints(call.kernel_size)?.into_owned();
            let stride = call.stride.filter(|_| has_stride);
            let stride = stride.unwrap_or_else(|| rewriter.value(Value::IntList(kernel_sizes)));
            let padding = call.padding.filter(|_| is_padded);
            let padding = padding.unwrap_or_else(|| rewriter.value(Value::IntList(vec![0, 0])));
            let ceil_mode = call.ceil_mode;
            let ceil_mode = ceil_mode.unwrap_or_else(|| rewriter.value(Value::Bool(false)));
            let (made, requantized) = requantized(rewriter, takes)?;
            let kernel_size = call.kernel_size;
            let call =
                Q8taAvgPool2dArgs { input, kernel_size, stride, padding, ceil_mode, out: made };
            pool(rewriter, &call, takes)?;
            requantized.into_iter().for_each(|it| rewriter.call(Operator::Q8TA_LOOKUP, &it, out));
        }
        Operator::ADAPTIVE_AVG_POOL2D => {
            let call = AdaptivePoolArgs::of(&node).ok()?;
            let ([_, _, height, width], true) = (&sizes[..], rewriter.has_fixed_shapes()) else {
                return None;
            };
            let size = rewriter.ints(call.output_size)?.into_owned();
            let [rows, columns] = [*size.first()?, *size.last()?];
            let window = |all: usize, count: i64| {
                let count = usize::try_from(count).ok().filter(|count| *count > 0)?;
                all.is_multiple_of(count).then(|| (all / count) as i64)
            };
            let kernel = vec![window(*height, rows)?, window(*width, columns)?];
            let (made, requantized) = requantized(rewriter, takes)?;
            whole_windows(rewriter, input, kernel, made, takes)?;
            requantized.into_iter().for_each(|it| rewriter.call(Operator::Q8TA_LOOKUP, &it, out));
        }
        Operator::MEAN_DIM if rewriter.has_fixed_shapes() => {
            let dims = rewriter.ints(SumArgs::of(&node).ok()?.dim)?.into_owned();
            let rank = sizes.len();
            let dims = dims.iter().map(|dim| normalize_dim(*dim, rank));
            let mut dims: Vec<usize> = dims.collect::<Option<_>>()?;
            dims.sort_unstable();
            dims.dedup();
            let (made, requantized) = requantized(rewriter, takes)?;
            mean(rewriter, input, &sizes, &dims, made, takes)?;
            requantized.into_iter().for_each(|it| rewriter.call(Operator::Q8TA_LOOKUP, &it, out));
        }
        _ => return None,
    }
    Some(())
}

fn pool(
    rewriter: &mut Rewriter<'_, '_>,
    call: &Q8taAvgPool2dArgs,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    let inputs = call.inputs();
    if !rewriter.is_taken(Operator::Q8TA_AVG_POOL2D, &inputs, call.out, takes) {
        return None;
    }
    rewriter.call(Operator::Q8TA_AVG_POOL2D, &inputs, call.out);
    Some(())
}

/// Averages non-overlapping windows without padding.
fn whole_windows(
    rewriter: &mut Rewriter<'_, '_>,
    input: ValueId,
    kernel: Vec<i64>,
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    let kernel_size = rewriter.value(Value::IntList(kernel));
    let call = Q8taAvgPool2dArgs {
        input,
        kernel_size,
        stride: kernel_size,
        padding: rewriter.value(Value::IntList(vec![0, 0])),
        ceil_mode: rewriter.value(Value::Bool(false)),
        out,
    };
    pool(rewriter, &call, takes)
}

/// Averages over adjacent dims, viewed as height and width of images.
fn mean(
    rewriter: &mut Rewriter<'_, '_>,
    input: ValueId,
    sizes: &[usize],
    dims: &[usize],
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    let (first, last) = (*dims.first()?, *dims.last()?);
    if last - first + 1 != dims.len() {
        return None;
    }
    let count = |sizes: &[usize]| sizes.iter().try_fold(1usize, |all, size| all.checked_mul(*size));
    let image = if sizes.len() == 4 && dims == [2, 3] {
        input
    } else {
        // The dims before become the batch, those after become the channels.
        let (before, after) = (count(sizes.get(..first)?)?, count(sizes.get(last + 1..)?)?);
        let within = match sizes.get(first..=last)? {
            &[height, width] => [height, width],
            other => [count(other)?, 1],
        };
        let last = [before, within[0], within[1], after];
        let shape = rewriter.value(Value::IntList(last.map(|size| size as i64).to_vec()));
        let seen = match sizes == last {
            true => input,
            false => rewriter.call_new(
                Operator::VIEW_COPY,
                &[input, shape],
                ScalarType::Char,
                last.to_vec(),
            ),
        };
        let order = rewriter.value(Value::IntList(vec![0, 3, 1, 2]));
        let first = vec![before, after, within[0], within[1]];
        rewriter.call_new(Operator::PERMUTE_COPY, &[seen, order], ScalarType::Char, first)
    };
    let [batch, channels, height, width] = *rewriter.sizes(image)? else { return None };
    let kernel = vec![height as i64, width as i64];
    let wanted = rewriter.sizes(out)?.to_vec();
    if wanted == [batch, channels, 1, 1] {
        return whole_windows(rewriter, image, kernel, out, takes);
    }
    let made = rewriter.new_tensor(ScalarType::Char, vec![batch, channels, 1, 1]);
    whole_windows(rewriter, image, kernel, made, takes)?;
    let shape = wanted.iter().map(|size| *size as i64).collect();
    let shape = rewriter.value(Value::IntList(shape));
    rewriter.call(Operator::VIEW_COPY, &[made, shape], out);
    Some(())
}

/// Quantizes a softmax whose result has the only parameters that kernels produce: scale 1/256, zero
/// point -128.
pub(super) fn softmax(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    let node = rewriter.producer(result.value).filter(|node| node.operator == Operator::SOFTMAX)?;
    let SoftmaxArgs { input, dim, .. } = SoftmaxArgs::of(node).ok()?;
    let is_usual = result.codes.is(Codes { scale: 1.0 / 256.0, zero: LOWEST });
    if rewriter.uses(result.value) != 1 || !is_usual {
        return None;
    }
    let (input, from) = dequantized(rewriter, input)?;
    let [input_scale, input_zero_point] = from.values(rewriter);
    let inputs = Q8taSoftmaxArgs { input, input_scale, input_zero_point, dim, out }.inputs();
    if !rewriter.is_taken(Operator::Q8TA_SOFTMAX, &inputs, out, takes) {
        return None;
    }
    rewriter.call(Operator::Q8TA_SOFTMAX, &inputs, out);
    Some(())
}

/// Follows a tensor back to the quantized values that it was dequantized from. Element moves on the
/// way are repeated on the quantized values.
fn source(
    rewriter: &mut Rewriter<'_, '_>,
    id: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
    depth: u32,
) -> Option<(ValueId, Codes)> {
    if let Some(found) = dequantized(rewriter, id) {
        return Some(found);
    }
    let node =
        rewriter.producer(id).filter(|node| depth > 0 && node.operator.traits().moves_elements)?;
    let (operator, mut args) = (node.operator, inputs(node).to_vec());
    if matches!(operator, Operator::CAT | Operator::CONSTANT_PAD_ND) {
        return None;
    }
    let (input, from) = source(rewriter, *args.first()?, takes, depth - 1)?;
    *args.first_mut()? = input;
    let (scalar_type, host_type) = (ScalarType::Char, ScalarType::Char);
    let moved = Tensor { scalar_type, host_type, data: None, ..rewriter.tensor(id)?.clone() };
    let moved = rewriter.value(Value::Tensor(moved));
    if !rewriter.is_taken(operator, &args, moved, takes) {
        return None;
    }
    rewriter.call(operator, &args, moved);
    Some((moved, from))
}
