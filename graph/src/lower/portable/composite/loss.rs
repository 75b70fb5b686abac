//! Loss functions, and the distances that they are computed from.

use super::{Builder, Info, Rule};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{
    BceArgs, BceLogitsArgs, CrossEntropyArgs, HingeArgs, HuberArgs, KlDivArgs, LossArgs,
    NllLossArgs, Operator, PairwiseDistanceArgs, PoissonArgs, RankingArgs, SmoothL1Args,
    TripletArgs,
};
use alloc::vec;
use torchlet_core::ScalarType;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::BINARY_CROSS_ENTROPY, |b, args| {
        // `-(y * max(log(x), -100) + (1 - y) * max(log(1 - x), -100))`
        let call = BceArgs::of(args)?;
        let log = b.unary(Operator::LOG, call.input)?;
        let log = b.clamp(log, Some(-100.0), None)?;
        let negative = b.unary(Operator::NEG, call.input)?;
        let rest = b.unary(Operator::LOG1P, negative)?;
        let rest = b.clamp(rest, Some(-100.0), None)?;
        // `y * (rest - log) - rest`
        let difference = b.binary(Operator::SUB_TENSOR, rest, log)?;
        let part = b.binary(Operator::MUL_TENSOR, call.target, difference)?;
        let loss = b.binary(Operator::SUB_TENSOR, part, rest)?;
        let loss = weighted(b, loss, call.weight)?;
        reduced(b, loss, call.reduction, call.out)
    }),
    (Operator::BINARY_CROSS_ENTROPY_WITH_LOGITS, |b, args| {
        // `(1 - y) * x - (1 + (p - 1) * y) * log_sigmoid(x)`
        let call = BceLogitsArgs::of(args)?;
        let log = b.unary(Operator::LOG_SIGMOID, call.input)?;
        let log = match b.optional(call.pos_weight) {
            Some(weight) => {
                let factor = b.with_number(Operator::SUB_SCALAR, weight, 1.0)?;
                let factor = b.binary(Operator::MUL_TENSOR, factor, call.target)?;
                let factor = b.with_number(Operator::ADD_SCALAR, factor, 1.0)?;
                b.binary(Operator::MUL_TENSOR, factor, log)?
            }
            None => log,
        };
        let rest = b.with_number(Operator::RSUB_SCALAR, call.target, 1.0)?;
        let part = b.binary(Operator::MUL_TENSOR, rest, call.input)?;
        let loss = b.binary(Operator::SUB_TENSOR, part, log)?;
        let loss = weighted(b, loss, call.weight)?;
        reduced(b, loss, call.reduction, call.out)
    }),
    (Operator::COSINE_EMBEDDING_LOSS, cosine_embedding_loss),
    (Operator::CROSS_ENTROPY_LOSS, cross_entropy_loss),
    (Operator::HINGE_EMBEDDING_LOSS, |b, args| {
        let call = HingeArgs::of(args)?;
        let margin = b.optional_number(call.margin)?.unwrap_or(1.0);
        let hinge = b.with_number(Operator::RSUB_SCALAR, call.input, margin)?;
        let hinge = b.clamp(hinge, Some(0.0), None)?;
        let hinge = unless(b, hinge, call.target, 1.0)?;
        let own = unless(b, call.input, call.target, -1.0)?;
        let loss = b.binary(Operator::ADD_TENSOR, hinge, own)?;
        reduced(b, loss, call.reduction, call.out)
    }),
    (Operator::HUBER_LOSS, |b, args| {
        // `d² / 2` below delta, else `delta * (|d| - delta / 2)`
        let call = HuberArgs::of(args)?;
        let delta = b.optional_number(call.delta)?.unwrap_or(1.0);
        let loss = huber(b, call.input, call.target, delta)?;
        reduced(b, loss, call.reduction, call.out)
    }),
    (Operator::KL_DIV, kl_div),
    (Operator::L1_LOSS, |b, args| {
        let call = LossArgs::of(args)?;
        let difference = b.binary(Operator::SUB_TENSOR, call.input, call.target)?;
        let loss = b.unary(Operator::ABS, difference)?;
        reduced(b, loss, call.reduction, call.out)
    }),
    (Operator::MARGIN_RANKING_LOSS, |b, args| {
        // `max(0, -y * (a - b) + margin)`
        let call = RankingArgs::of(args)?;
        let margin = b.optional_number(call.margin)?.unwrap_or(0.0);
        let difference = b.binary(Operator::SUB_TENSOR, call.input2, call.input1)?;
        let loss = b.binary(Operator::MUL_TENSOR, call.target, difference)?;
        let loss = b.with_number(Operator::ADD_SCALAR, loss, margin)?;
        let loss = b.clamp(loss, Some(0.0), None)?;
        reduced(b, loss, call.reduction, call.out)
    }),
    (Operator::NLL_LOSS_ND, |b, args| {
        let call = NllLossArgs::of(args)?;
        let ignored = b.optional(call.ignore_index).map_or(Ok(-100), |it| b.int(it))?;
        negative_log_likelihood(b, call.input, (&call, ignored), 0.0)
    }),
    (Operator::PAIRWISE_DISTANCE, |b, args| {
        let call = PairwiseDistanceArgs::of(args)?;
        let p = b.optional_number(call.p)?.unwrap_or(2.0);
        let eps = b.optional_number(call.eps)?.unwrap_or(1e-6);
        let keepdim = b.truth(call.keepdim)?;
        let distance = distance(b, [call.x1, call.x2], p, eps, keepdim)?;
        b.finish_with(distance, call.out)
    }),
    (Operator::POISSON_NLL_LOSS, |b, args| {
        let call = PoissonArgs::of(args)?;
        if b.truth(call.full)? {
            return Err(Error::unsupported("poisson_nll_loss with Stirling's term"));
        }
        let loss = if b.truth(call.log_input)? {
            let power = b.unary(Operator::EXP, call.input)?;
            let part = b.binary(Operator::MUL_TENSOR, call.target, call.input)?;
            b.binary(Operator::SUB_TENSOR, power, part)?
        } else {
            let moved = b.with_number(Operator::ADD_SCALAR, call.input, b.number(call.eps)?)?;
            let log = b.unary(Operator::LOG, moved)?;
            let part = b.binary(Operator::MUL_TENSOR, call.target, log)?;
            b.binary(Operator::SUB_TENSOR, call.input, part)?
        };
        reduced(b, loss, Some(call.reduction), call.out)
    }),
    (Operator::SMOOTH_L1_LOSS, |b, args| {
        // `d² / (2 beta)` below beta, else `|d| - beta / 2`
        let call = SmoothL1Args::of(args)?;
        let beta = b.optional_number(call.beta)?.unwrap_or(1.0);
        let loss = if beta == 0.0 {
            let difference = b.binary(Operator::SUB_TENSOR, call.input, call.target)?;
            b.unary(Operator::ABS, difference)?
        } else {
            let loss = huber(b, call.input, call.target, beta)?;
            b.with_number(Operator::DIV_SCALAR, loss, beta)?
        };
        reduced(b, loss, call.reduction, call.out)
    }),
    (Operator::SOFT_MARGIN_LOSS, |b, args| {
        // `log(1 + exp(-y * x))`
        let call = LossArgs::of(args)?;
        let product = b.binary(Operator::MUL_TENSOR, call.target, call.input)?;
        let negative = b.unary(Operator::NEG, product)?;
        let power = b.unary(Operator::EXP, negative)?;
        let loss = b.unary(Operator::LOG1P, power)?;
        reduced(b, loss, call.reduction, call.out)
    }),
    (Operator::TRIPLET_MARGIN_LOSS, |b, args| {
        let call = TripletArgs::of(args)?;
        let margin = b.optional_number(call.margin)?.unwrap_or(1.0);
        let p = b.optional_number(call.p)?.unwrap_or(2.0);
        let eps = b.optional_number(call.eps)?.unwrap_or(1e-6);
        let near = distance(b, [call.anchor, call.positive], p, eps, false)?;
        let mut far = distance(b, [call.anchor, call.negative], p, eps, false)?;
        if b.truth(call.swap)? {
            let other = distance(b, [call.positive, call.negative], p, eps, false)?;
            far = b.binary(Operator::MINIMUM, far, other)?;
        }
        let loss = b.binary(Operator::SUB_TENSOR, near, far)?;
        let loss = b.with_number(Operator::ADD_SCALAR, loss, margin)?;
        let loss = b.clamp(loss, Some(0.0), None)?;
        reduced(b, loss, call.reduction, call.out)
    }),
];

/// Applies the reduction of a loss: 0: none, 1: mean, 2: sum.
pub(super) fn reduced(
    b: &mut Builder<'_, '_>,
    loss: ValueId,
    reduction: Option<ValueId>,
    out: ValueId,
) -> Result<(), Error> {
    let none = b.none();
    match b.optional(reduction).map_or(Ok(1), |id| b.int(id))? {
        0 => b.finish_with(loss, out)?,
        1 => b.call_into(Operator::MEAN, &[loss, none], out),
        _ => {
            let no = b.push(Value::Bool(false));
            b.call_into(Operator::SUM_DIM_INT_LIST, &[loss, none, no, none], out);
        }
    }
    Ok(())
}

fn weighted(
    b: &mut Builder<'_, '_>,
    loss: ValueId,
    weight: Option<ValueId>,
) -> Result<ValueId, Error> {
    match b.optional(weight) {
        Some(weight) => b.binary(Operator::MUL_TENSOR, loss, weight),
        None => Ok(loss),
    }
}

/// Replaces elements by zero where the target has this value.
fn unless(
    b: &mut Builder<'_, '_>,
    value: ValueId,
    target: ValueId,
    number: f64,
) -> Result<ValueId, Error> {
    let is_number = b.compared(Operator::EQ_SCALAR, target, number)?;
    b.masked(value, is_number, 0.0)
}

/// `m * (|d| - m / 2)` with `m = min(|d|, delta)`
fn huber(
    b: &mut Builder<'_, '_>,
    input: ValueId,
    target: ValueId,
    delta: f64,
) -> Result<ValueId, Error> {
    let difference = b.binary(Operator::SUB_TENSOR, input, target)?;
    let size = b.unary(Operator::ABS, difference)?;
    let near = b.clamp(size, None, Some(delta))?;
    let half = b.with_number(Operator::MUL_SCALAR, near, 0.5)?;
    let rest = b.binary(Operator::SUB_TENSOR, size, half)?;
    b.binary(Operator::MUL_TENSOR, near, rest)
}

/// The norm of `x - y + eps` over the last dim.
fn distance(
    b: &mut Builder<'_, '_>,
    [x, y]: [ValueId; 2],
    p: f64,
    eps: f64,
    keepdim: bool,
) -> Result<ValueId, Error> {
    let difference = b.binary(Operator::SUB_TENSOR, x, y)?;
    let difference = b.with_number(Operator::ADD_SCALAR, difference, eps)?;
    let mut made = b.info(difference)?;
    let last = made.sizes.pop();
    if keepdim && last.is_some() {
        made.sizes.push(1);
    }
    let (dims, p, none) = (b.new_ints(&[-1]), b.new_number(p), b.none());
    let inputs = [difference, p, dims, b.push(Value::Bool(keepdim)), none];
    Ok(b.call(Operator::LINALG_VECTOR_NORM, &inputs, made))
}

/// `1 - cos` for targets of 1, `max(0, cos - margin)` for targets of -1.
fn cosine_embedding_loss(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    const EPSILON: f64 = 1e-12;
    let call = RankingArgs::of(args)?;
    let margin = b.optional_number(call.margin)?.unwrap_or(0.0);
    let last = b.info(call.input1)?.rank().saturating_sub(1);
    let summed = |b: &mut Builder<'_, '_>, x: ValueId, y: ValueId| {
        let product = b.binary(Operator::MUL_TENSOR, x, y)?;
        let mut made = b.info(product)?;
        made.sizes.pop();
        let (dims, no) = (b.new_ints(&[last as i64]), b.push(Value::Bool(false)));
        let none = b.none();
        let inputs = [product, dims, no, none];
        Ok::<_, Error>(b.call(Operator::SUM_DIM_INT_LIST, &inputs, made))
    };
    let product = summed(b, call.input1, call.input2)?;
    let one = summed(b, call.input1, call.input1)?;
    let one = b.with_number(Operator::ADD_SCALAR, one, EPSILON)?;
    let other = summed(b, call.input2, call.input2)?;
    let other = b.with_number(Operator::ADD_SCALAR, other, EPSILON)?;
    let sizes = b.binary(Operator::MUL_TENSOR, one, other)?;
    let sizes = b.unary(Operator::SQRT, sizes)?;
    let cosine = b.binary(Operator::DIV_TENSOR, product, sizes)?;
    let near = b.with_number(Operator::RSUB_SCALAR, cosine, 1.0)?;
    let is_near = b.compared(Operator::NE_SCALAR, call.target, 1.0)?;
    let near = b.masked(near, is_near, 0.0)?;
    let far = b.with_number(Operator::SUB_SCALAR, cosine, margin)?;
    let far = b.clamp(far, Some(0.0), None)?;
    let is_far = b.compared(Operator::NE_SCALAR, call.target, -1.0)?;
    let far = b.masked(far, is_far, 0.0)?;
    let loss = b.binary(Operator::ADD_TENSOR, near, far)?;
    reduced(b, loss, call.reduction, call.out)
}

fn kl_div(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = KlDivArgs::of(args)?;
    let loss = if b.truth(call.log_target)? {
        let power = b.unary(Operator::EXP, call.target)?;
        let difference = b.binary(Operator::SUB_TENSOR, call.target, call.input)?;
        b.binary(Operator::MUL_TENSOR, power, difference)?
    } else {
        // `y * log(y) - y * x`, where zeros have no logarithm.
        let log = b.unary(Operator::LOG, call.target)?;
        let part = b.binary(Operator::MUL_TENSOR, call.target, log)?;
        let part = unless(b, part, call.target, 0.0)?;
        let product = b.binary(Operator::MUL_TENSOR, call.target, call.input)?;
        b.binary(Operator::SUB_TENSOR, part, product)?
    };
    reduced(b, loss, call.reduction, call.out)
}

/// The dim of the classes, the second one of batches.
fn class_dim(info: &Info) -> usize {
    usize::from(info.rank() > 1)
}

fn cross_entropy_loss(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = CrossEntropyArgs::of(args)?;
    let info = b.info(call.input)?;
    let classes = class_dim(&info);
    let smoothing = b.optional_number(call.label_smoothing)?.unwrap_or(0.0);
    refuse_varying_classes(b, call.input, smoothing, call.weight)?;
    let (dim, no) = (b.new_int(classes as i64), b.push(Value::Bool(false)));
    let log = b.call(Operator::LOG_SOFTMAX, &[call.input, dim, no], info.clone());
    if !b.info(call.target)?.scalar_type.is_floating() {
        let ignored = b.optional(call.ignore_index).map_or(Ok(-100), |it| b.int(it))?;
        let CrossEntropyArgs { input, target, weight, reduction, ignore_index, out, .. } = call;
        let nll = NllLossArgs { input, target, weight, reduction, ignore_index, out };
        return negative_log_likelihood(b, log, (&nll, ignored), smoothing);
    }
    // Targets are probabilities.
    let mut target = call.target;
    if smoothing > 0.0 {
        target = b.with_number(Operator::MUL_SCALAR, target, 1.0 - smoothing)?;
        let share = smoothing / info.size(classes).max(1) as f64;
        target = b.with_number(Operator::ADD_SCALAR, target, share)?;
    }
    let mut product = b.binary(Operator::MUL_TENSOR, log, target)?;
    if let Some(weight) = b.optional(call.weight) {
        let weight = along(b, weight, classes, info.rank())?;
        product = b.binary(Operator::MUL_TENSOR, product, weight)?;
    }
    let negative = b.unary(Operator::NEG, product)?;
    let mut made = info.clone();
    if classes < made.rank() {
        made.sizes.remove(classes);
    }
    let (dims, none) = (b.new_ints(&[classes as i64]), b.none());
    let inputs = [negative, dims, no, none];
    let loss = b.call(Operator::SUM_DIM_INT_LIST, &inputs, made);
    reduced(b, loss, call.reduction, call.out)
}

/// Fails if the number of classes is dynamic and the loss depends on it.
fn refuse_varying_classes(
    b: &Builder<'_, '_>,
    input: ValueId,
    smoothing: f64,
    weight: Option<ValueId>,
) -> Result<(), Error> {
    let classes = class_dim(&b.info(input)?);
    let depends = smoothing > 0.0 || b.optional(weight).is_some();
    match depends && !b.is_known(input, classes) {
        true => Err(Error::unsupported("weights or smoothing of a dynamic number of classes")),
        false => Ok(()),
    }
}

/// Reshapes a vector so that it broadcasts along a dim.
fn along(
    b: &mut Builder<'_, '_>,
    vector: ValueId,
    dim: usize,
    rank: usize,
) -> Result<ValueId, Error> {
    let mut sizes = vec![1; rank];
    if let Some(slot) = sizes.get_mut(dim) {
        *slot = b.info(vector)?.size(0);
    }
    b.view_known(vector, &sizes)
}

/// `-weight[target] * log[target]`, and the mean of all classes in the part `smoothing`. The mean
/// is that of the weights of all targets that are not ignored.
fn negative_log_likelihood(
    b: &mut Builder<'_, '_>,
    log: ValueId,
    (call, ignored): (&NllLossArgs, i64),
    smoothing: f64,
) -> Result<(), Error> {
    let info = b.info(log)?;
    let classes = class_dim(&info);
    let target = b.cast(call.target, ScalarType::Long)?;
    let is_ignored = b.compared(Operator::EQ_SCALAR, target, ignored as f64)?;
    let index = b.masked(target, is_ignored, 0.0)?;
    let weight = b.optional(call.weight);
    let weighted = match weight {
        Some(weight) => {
            let weight = along(b, weight, classes, info.rank())?;
            b.binary(Operator::MUL_TENSOR, log, weight)?
        }
        None => log,
    };
    let column = b.unsqueeze(index, classes)?;
    let (dim, no, none) = (b.new_int(classes as i64), b.push(Value::Bool(false)), b.none());
    let target_info = b.info(index)?;
    let picked = b.info(column)?.with_type(info.scalar_type);
    let chosen = b.call(Operator::GATHER, &[weighted, dim, column, no], picked);
    let per_target = target_info.with_type(info.scalar_type);
    let chosen = b.call(Operator::SQUEEZE_COPY_DIM, &[chosen, dim], per_target.clone());
    let loss = b.unary(Operator::NEG, chosen)?;
    let mut loss = b.masked(loss, is_ignored, 0.0)?;
    if smoothing > 0.0 {
        let dims = b.new_ints(&[classes as i64]);
        let inputs = [weighted, dims, no, none];
        let sum = b.call(Operator::SUM_DIM_INT_LIST, &inputs, per_target.clone());
        let sum = b.masked(sum, is_ignored, 0.0)?;
        let share = -smoothing / info.size(classes).max(1) as f64;
        let share = b.with_number(Operator::MUL_SCALAR, sum, share)?;
        let own = b.with_number(Operator::MUL_SCALAR, loss, 1.0 - smoothing)?;
        loss = b.binary(Operator::ADD_TENSOR, own, share)?;
    }
    if b.optional(call.reduction).map_or(Ok(1), |id| b.int(id))? != 1 {
        return reduced(b, loss, call.reduction, call.out);
    }
    let counted = match weight {
        Some(weight) => {
            let list = b.push(Value::List(vec![index]));
            b.call(Operator::INDEX_TENSOR, &[weight, list], per_target.clone())
        }
        None => {
            let counted = b.unary(Operator::LOGICAL_NOT, is_ignored)?;
            b.cast(counted, info.scalar_type)?
        }
    };
    let counted = b.masked(counted, is_ignored, 0.0)?;
    let made = b.info(call.out)?;
    let total = |b: &mut Builder<'_, '_>, value: ValueId| {
        b.call(Operator::SUM_DIM_INT_LIST, &[value, none, no, none], made.clone())
    };
    let (sum, count) = (total(b, loss), total(b, counted));
    b.call_into(Operator::DIV_TENSOR, &[sum, count], call.out);
    Ok(())
}
