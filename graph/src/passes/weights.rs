//! Quantized constant weights with one scale per output channel.

use super::rewrite::Rewriter;
use super::views::{permutation, reshaped};
use crate::graph::{Node, Tensor, Value, ValueId};
use crate::operators::Operator;
use alloc::borrow::Cow;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Quantized constant weights, with permuted dims, and the scale of each output channel, which is
/// one of the dims.
pub(super) struct Weights {
    codes: ValueId,
    /// For each dim of the weights, the dim of the quantized constant.
    order: Vec<usize>,
    pub(super) scales: ValueId,
}

impl Weights {
    pub(super) fn of(
        rewriter: &mut Rewriter<'_, '_>,
        id: ValueId,
        channels: usize,
    ) -> Option<Self> {
        let moved = rewriter
            .producer(id)
            .and_then(|node| permutation(rewriter, node).or_else(|| single_moved(rewriter, node)));
        let (id, order) = match moved {
            Some(moved) => moved,
            None => (id, (0..rewriter.sizes(id)?.len()).collect()),
        };
        if let Some(own) = Self::of_one_scale(rewriter, id, &order, channels) {
            return Some(own);
        }
        let taken = rewriter.call_of(id, Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_CHANNEL)?;
        let [codes, scales, zeros, axis, ..] = *taken else { return None };
        let (tensor, _) = rewriter.constant(codes)?;
        let own = *order.get(channels)?;
        let channels = *tensor.sizes.get(own)?;
        let axis = usize::try_from(rewriter.int(axis)?).ok();
        let has_codes = tensor.scalar_type == ScalarType::Char
            && axis == Some(own)
            && tensor.sizes.len() == order.len();
        let (scale, _) = rewriter.constant(scales)?;
        let has_scales = scale.scalar_type == ScalarType::Float && scale.sizes == [channels];
        let no_zeros = rewriter.is_none(Some(&zeros))
            || rewriter.constant(zeros).is_some_and(|(_, data)| data.iter().all(|byte| *byte == 0));
        (has_codes && has_scales && no_zeros).then_some(Weights { codes, order, scales })
    }

    /// Weights with a single scale, which is repeated for each channel.
    fn of_one_scale(
        rewriter: &mut Rewriter<'_, '_>,
        id: ValueId,
        order: &[usize],
        channels: usize,
    ) -> Option<Self> {
        let taken = rewriter.call_of(id, Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR)?;
        let [codes, scale, zero, ..] = *taken else { return None };
        let (tensor, _) = rewriter.constant(codes)?;
        let count = *tensor.sizes.get(*order.get(channels)?)?;
        let has_codes = tensor.scalar_type == ScalarType::Char && tensor.sizes.len() == order.len();
        let scale = rewriter.number(scale)? as f32;
        if !has_codes || rewriter.int(zero)? != 0 || !scale.is_normal() || scale < 0.0 {
            return None;
        }
        let scales = Tensor {
            scalar_type: ScalarType::Float,
            host_type: ScalarType::Float,
            sizes: vec![count],
            dynamic: false,
            data: Some(Cow::Owned(scale.to_le_bytes().repeat(count))),
            changes: Some(false),
        };
        let scales = rewriter.value(Value::Tensor(scales));
        Some(Weights { codes, order: order.to_vec(), scales })
    }

    /// The sizes of the weights.
    pub(super) fn sizes(&self, rewriter: &Rewriter<'_, '_>) -> Option<Vec<usize>> {
        let sizes = rewriter.sizes(self.codes)?;
        self.order.iter().map(|dim| sizes.get(*dim).copied()).collect()
    }

    /// The quantized weights as a constant with these sizes, and the dims of the weights in this
    /// order.
    pub(super) fn packed(
        &self,
        rewriter: &mut Rewriter<'_, '_>,
        order: &[usize],
        sizes: Vec<usize>,
    ) -> Option<ValueId> {
        let dims: Option<Vec<usize>> =
            order.iter().map(|dim| self.order.get(*dim).copied()).collect();
        let dims = dims?;
        let (tensor, data) = rewriter.constant(self.codes)?;
        // Dims of size one may be anywhere.
        let is_single = |dim: &usize| tensor.sizes.get(*dim) == Some(&1);
        let is_in_order = dims.iter().filter(|dim| !is_single(dim)).is_sorted();
        if is_in_order && tensor.sizes == sizes {
            return Some(self.codes);
        }
        let data = match is_in_order {
            true => tensor.data.clone()?,
            false => Cow::Owned(permuted(data, &tensor.sizes, &dims)?),
        };
        let tensor = Tensor { sizes, data: Some(data), ..tensor.clone() };
        Some(rewriter.value(Value::Tensor(tensor)))
    }
}

/// Quantized weights of a 2-D convolution.
pub(super) struct Filters {
    pub(super) weights: Weights,
    /// Height and width.
    pub(super) kernel: [usize; 2],
    /// Number of output channels.
    pub(super) channels: usize,
    /// Number of input channels per group.
    inputs: usize,
    groups: usize,
    is_transposed: bool,
}

impl Filters {
    pub(super) fn of(
        rewriter: &mut Rewriter<'_, '_>,
        weight: ValueId,
        is_transposed: bool,
        groups: ValueId,
    ) -> Option<Self> {
        let weights = Weights::of(rewriter, weight, usize::from(is_transposed))?;
        let [first, second, height, width] = *weights.sizes(rewriter)? else { return None };
        let [channels, inputs] = if is_transposed { [second, first] } else { [first, second] };
        let groups = usize::try_from(rewriter.int(groups)?).ok()?;
        // Groups of transposed convolutions share their scales.
        (groups == 1 || !is_transposed).then_some(Filters {
            weights,
            kernel: [height, width],
            channels,
            inputs,
            groups,
            is_transposed,
        })
    }

    /// Whether the convolution is depthwise.
    pub(super) fn are_single(&self) -> bool {
        self.inputs == 1 && self.groups == self.channels && self.channels > 1
    }

    /// The quantized weights as a matrix: a row per output channel, ordered by kernel position,
    /// then by input channel of the group.
    pub(super) fn rows(&self, rewriter: &mut Rewriter<'_, '_>) -> Option<ValueId> {
        let [height, width] = self.kernel;
        let row = height.checked_mul(width)?.checked_mul(self.inputs)?;
        let order = if self.is_transposed { [1, 2, 3, 0] } else { [0, 2, 3, 1] };
        self.weights.packed(rewriter, &order, vec![self.channels, row])
    }

    pub(super) fn kernel_size(&self, rewriter: &mut Rewriter<'_, '_>) -> ValueId {
        rewriter.value(Value::IntList(self.kernel.map(|size| size as i64).to_vec()))
    }
}

/// If a view moves only dims of size one: its input, and the input dim of each output dim.
fn single_moved(rewriter: &Rewriter<'_, '_>, node: &Node) -> Option<(ValueId, Vec<usize>)> {
    let source = reshaped(rewriter, node)?;
    let (from, to) = (rewriter.sizes(source)?, rewriter.sizes(*node.args.last()?)?);
    let of = |sizes: &[usize], single: bool| -> Vec<usize> {
        (0..sizes.len()).filter(|dim| (sizes.get(*dim) == Some(&1)) == single).collect()
    };
    let (mut own, mut single) = (of(from, false).into_iter(), of(from, true).into_iter());
    let mut order = Vec::new();
    for size in to {
        let dim = if *size == 1 { single.next()? } else { own.next()? };
        if from.get(dim) != Some(size) {
            return None;
        }
        order.push(dim);
    }
    (order.len() == from.len()).then_some((source, order))
}

/// Permutes the dims of a byte tensor.
fn permuted(bytes: &[u8], sizes: &[usize], order: &[usize]) -> Option<Vec<u8>> {
    let mut steps = vec![1usize; sizes.len()];
    for dim in (1..sizes.len()).rev() {
        *steps.get_mut(dim - 1)? = steps.get(dim)?.checked_mul(*sizes.get(dim)?)?;
    }
    let mut places = vec![0usize];
    for dim in order {
        let (size, step) = (*sizes.get(*dim)?, *steps.get(*dim)?);
        let next = places.iter().flat_map(|place| (0..size).map(move |at| place + at * step));
        places = next.collect();
    }
    places.into_iter().map(|place| bytes.get(place).copied()).collect()
}
