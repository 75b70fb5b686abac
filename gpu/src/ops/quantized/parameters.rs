//! Choice of scales and zero points from the range of values.

use super::convert::{blocks_of, bounds_at};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::ops::reduce::{Function, emit};
use crate::ops::views::gather;
use crate::ops::{Entry, operator};
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{
    ChooseQparamsPerTokenArgs, ChooseQparamsTensorArgs, Operator, TorchaoChooseQparamsAffineArgs,
};
use torchlet_shaders::{Element, Qparams, QparamsPush};

pub(in crate::ops) const OPERATORS: &[Entry] = &[
    operator(Operator::TORCHAO_CHOOSE_QPARAMS_AFFINE, choose_qparams_affine),
    operator(Operator::QUANTIZED_DECOMPOSED_CHOOSE_QPARAMS_TENSOR, |e, args| {
        let call = ChooseQparamsTensorArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let range = [e.float(call.quant_min)?, e.float(call.quant_max)?];
        let epsilon = e.float(call.eps)?;
        let [scale, zero] = two_outs(e, args)?;
        let sizes = e.tensor(scale)?.sizes;
        let outs = [scale, zero];
        choose(e, &input, input.numel(), &sizes, outs, Mapping::Asymmetric, range, Some(epsilon))
    }),
    operator(Operator::QUANTIZED_DECOMPOSED_CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC, |e, args| {
        let call = ChooseQparamsPerTokenArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let outs = two_outs(e, args)?;
        let mut sizes = input.sizes.clone();
        let count = sizes.last().copied().unwrap_or(1);
        if let Some(last) = sizes.last_mut() {
            *last = 1;
        }
        let epsilon = Some(f64::from(f32::EPSILON));
        choose(e, &input, count, &sizes, outs, Mapping::NearerEnd, [-128.0, 127.0], epsilon)
    }),
    operator(Operator::ETVK_CHOOSE_QPARAMS_PER_ROW, |e, args| {
        // The call has two separate outputs instead of a list.
        let [input, low, high, scale, zero] = args[..] else {
            return Err(Error::Invalid(format!(
                "expected 3 arguments and 2 outputs, found {} values",
                args.len()
            )));
        };
        let (input, outs) = (e.tensor(input)?, [scale, zero]);
        let low = e.optional_float(low)?.unwrap_or(-128.0);
        let high = e.optional_float(high)?.unwrap_or(127.0);
        let count = input.sizes.last().copied().unwrap_or(1);
        let sizes = input.sizes[..input.rank().saturating_sub(1)].to_vec();
        choose(e, &input, count, &sizes, outs, Mapping::Asymmetric, [low, high], None)
    }),
];

/// The algorithms for computing scales and zero points from a range, with the values that the
/// shader uses.
#[derive(Debug, Clone, Copy)]
enum Mapping {
    Asymmetric = 0,
    Symmetric = 1,
    SymmetricNoClipping = 2,
    NearerEnd = 3,
}

/// Returns the scale and zero point outputs of a call.
fn two_outs(e: &Encoder<'_, '_>, args: &[ValueId]) -> Result<[ValueId; 2], Error> {
    match e.outs(args)?[..] {
        [scale, zero] => Ok([scale, zero]),
        ref outs => Err(Error::Invalid(format!(
            "expected two outputs, scale and zero point, found {}",
            outs.len()
        ))),
    }
}

fn choose_qparams_affine(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = TorchaoChooseQparamsAffineArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let mapping = match e.optional_string(call.mapping_type)? {
        None | Some("ASYMMETRIC") => Mapping::Asymmetric,
        Some("SYMMETRIC") => Mapping::Symmetric,
        Some("SYMMETRIC_NO_CLIPPING_ERR") => Mapping::SymmetricNoClipping,
        Some(other) => return Err(Error::Unsupported(format!("mapping_type '{other}'"))),
    };
    let blocks = blocks_of(e, call.block_size, &input)?;
    let [scale, zero] = two_outs(e, args)?;
    let bounds = bounds_at(e, [call.quant_min, call.quant_max], e.tensor(zero)?.element)?;
    let epsilon = e.optional_float(call.eps)?;
    let keep = e.optional_bool(call.keepdim)?.unwrap_or(false);
    let counts: Vec<usize> =
        input.sizes.iter().zip(&blocks).map(|(size, block)| size / block).collect();
    // If blocks are not contiguous, the input is permuted first.
    let first = blocks.iter().position(|block| *block != 1).unwrap_or(0);
    let run = (first + 1..input.rank()).all(|dim| blocks[dim] == input.sizes[dim]);
    let source = if run {
        input.clone()
    } else {
        let own = input.strides();
        let mut view = counts.clone();
        view.extend(&blocks);
        let mut steps: Vec<i64> =
            own.iter().zip(&blocks).map(|(step, block)| (step * block) as i64).collect();
        steps.extend(own.iter().map(|step| *step as i64));
        let ordered = e.temporary(input.element, &view)?;
        gather(e, &input, &ordered, &view, &steps, 0)?;
        ordered
    };
    let sizes: Vec<usize> = if keep {
        counts
    } else {
        counts
            .iter()
            .zip(&blocks)
            .filter(|(_, block)| **block == 1)
            .map(|(count, _)| *count)
            .collect()
    };
    let expected = e.tensor(scale)?.sizes.len();
    // The exporter keeps dims with several blocks.
    let sizes = if sizes.len() == expected {
        sizes
    } else {
        let counts = input.sizes.iter().zip(&blocks).map(|(size, block)| (size / block, *block));
        if keep || expected == input.rank() {
            counts.map(|(count, _)| count).collect()
        } else {
            counts
                .filter(|(count, block)| *count != 1 || *block == 1)
                .map(|(count, _)| count)
                .collect()
        }
    };
    let count = blocks.iter().product();
    choose(e, &source, count, &sizes, [scale, zero], mapping, bounds, epsilon)
}

/// Emits the choice of a scale and zero point for each run of `count` elements.
#[allow(clippy::too_many_arguments)]
fn choose(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    count: usize,
    sizes: &[usize],
    [scale, zero]: [ValueId; 2],
    mapping: Mapping,
    [low, high]: [f64; 2],
    epsilon: Option<f64>,
) -> Result<(), Error> {
    let runs = input.numel() / count.max(1);
    if count == 0 || high <= low {
        return Err(Error::Invalid(format!(
            "expected a nonempty block and quant_min < quant_max, found {count} elements and \
             {low} to {high}"
        )));
    }
    let (scale, zero) = (e.resize(scale, sizes)?, e.resize(zero, sizes)?);
    if scale.numel() != runs || zero.numel() != runs {
        return Err(Error::Invalid(format!(
            "expected {runs} scales and zero points, one per block, found {} and {}",
            scale.numel(),
            zero.numel()
        )));
    }
    let least = e.temporary(Element::F32, &[runs])?;
    emit(e, Function::Min, input, None, &least, [count, 1], 1.0)?;
    let most = e.temporary(Element::F32, &[runs])?;
    emit(e, Function::Max, input, None, &most, [count, 1], 1.0)?;
    let default =
        if input.element == Element::F16 { 0.000_976_562_5 } else { f64::from(f32::EPSILON) };
    let push = QparamsPush {
        numel: u32_of(runs)?,
        low: low as f32,
        high: high as f32,
        epsilon: epsilon.unwrap_or(default) as f32,
    };
    let pipeline = Qparams { mapping: mapping as u32, scale: scale.element, zero: zero.element };
    let accesses = [read(least.id), read(most.id), write(scale.id), write(zero.id)];
    e.dispatch_by_four(&pipeline, accesses, &push, runs)
}
