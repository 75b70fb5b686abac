//! Tiled int8 convolutions and GEMMs with integer sums. The generic convolution kernel uses integer
//! sums too; the generic GEMM kernel uses floating-point sums.
//!
//! 16 terms at a time are processed; they must be contiguous in both operands. The channels of an
//! image are therefore packed first (channels last). The channels of the weights are packed when a
//! graph is compiled.

use super::channels_last::to_channels_last;
use crate::derived::{Derived, GROUP, Packed, Rows};
use crate::device::is_parallel;
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::ops::splits;
use crate::ops::tiling::MAX_SPLITS;
use crate::tensors::Operand;
use torchlet_shaders::functions::codes as functions;
use torchlet_shaders::{ConvolutionInt8, ConvolutionInt8Push, Element, Module, Pipeline as _};

/// A convolution or GEMM to encode.
pub(super) struct Product<'o> {
    pub(super) input: &'o Operand,
    /// Scale and zero point of the input.
    pub(super) parameters: [f64; 2],
    /// The rows of weights. In a grouped convolution, each group has the same number of rows.
    pub(super) weights: Packed,
    /// One scale per row of weights.
    pub(super) scales: &'o Operand,
    pub(super) bias: Option<&'o Operand>,
    pub(super) out: &'o Operand,
    /// Scale and zero point of the output, if it is quantized.
    pub(super) out_parameters: [f64; 2],
    /// The minimum and maximum of the results.
    pub(super) clamp: [f64; 2],
    /// The windows of a convolution; `None` for a GEMM.
    pub(super) windows: Option<Windows>,
    /// Whether input and output are in channels-last layout ([`to_channels_last`]). Only
    /// convolutions with a single group support this.
    pub(super) is_channels_last: bool,
    /// A lookup table that is applied to the quantized output.
    pub(super) table: Option<&'o Operand>,
}

/// The windows of a convolution over images.
pub(super) struct Windows {
    pub(super) groups: usize,
    /// Rows and columns of an image, and of the output.
    pub(super) size: [usize; 2],
    pub(super) out_size: [usize; 2],
    pub(super) kernel: [usize; 2],
    pub(super) stride: [usize; 2],
    pub(super) padding: [usize; 2],
    pub(super) dilation: [usize; 2],
}

/// The tiling of a GEMM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tiles {
    /// Rows and columns of a tile, and groups of 16 terms loaded at a time.
    tile: [usize; 2],
    units: usize,
    lanes: usize,
    /// The number of workgroups that share the terms of a tile (split-K).
    splits: usize,
}

impl Tiles {
    /// Returns the tiling of a GEMM of `[batches, rows, columns]` with `units` groups of 16 terms,
    /// on a device with this many processors, which `busy` invocations saturate.
    fn of(
        shape: [usize; 3],
        units: usize,
        [processors, busy]: [usize; 2],
        shared: u32,
    ) -> Option<Self> {
        let [_, m, n] = shape;
        let parallel = is_parallel(busy);
        let large = Tiles { tile: [128; 2], units: 4, lanes: 256, splits: 1 };
        if parallel && m.min(n) >= 128 && large.count(shape) >= processors && large.fits(shared) {
            return Some(large);
        }
        let wanted = (busy / LANES).max(1);
        let small = Tiles { tile: [32; 2], units: 4, lanes: LANES, splits: 1 };
        let is_small = parallel && small.count(shape) <= wanted;
        // A few small tiles are faster than large tiles that several workgroups share, unless each
        // tile sums many terms.
        let few = small.count(shape).saturating_mul(16) <= wanted;
        let is_shared = units >= MANY_UNITS || (units >= MANY_UNITS / 2 && few);
        if is_small && !is_shared {
            let most = match units {
                9..=16 | 32.. => 16,
                5.. => 8,
                _ => 4,
            };
            let brought = [16, 8, 4].into_iter().filter(|units| *units <= most);
            let found = brought.map(|units| Tiles { units, ..small }).find(|it| it.fits(shared));
            if found.is_some() {
                return found;
            }
        }
        let tile = match (m <= 32, n <= 32) {
            _ if is_small && units < 2 * MANY_UNITS => [32, 64],
            (true, false) => [32, 64],
            (false, true) => [64, 32],
            _ => [64, 64],
        };
        let most = units.div_ceil(MIN_UNITS_OF_SPLIT).clamp(1, MAX_SPLITS);
        let whole = Tiles { tile, units: 4, lanes: LANES, splits: 1 };
        let splits = (wanted / whole.count(shape).max(1)).clamp(1, most);
        let tiles = Tiles { splits, ..whole };
        let more = Tiles { units: 8, ..tiles };
        [more, tiles].into_iter().find(|it| (it.units == 4 || units >= 8) && it.fits(shared))
    }

    /// Returns alternatives for autotuning. Each differs in the tile, in the number of splits, or
    /// in the number of terms loaded at a time.
    fn others(&self, units: usize, shared: u32) -> Vec<Self> {
        let small = [[64, 64], [32, 64], [64, 32]].map(|tile| Tiles { tile, ..*self });
        // With small tiles, adding up the sums of splits does not use all invocations.
        let least = Tiles { tile: [32; 2], splits: 1, ..*self };
        let splits = [self.splits * 2, self.splits / 2, self.splits * 4, self.splits * 8];
        let splits = splits.map(|splits| Tiles { splits, ..*self });
        let more = [4, 8, 16].map(|units| Tiles { units, ..*self });
        let both = [8, 16].map(|units| Tiles { units, ..least });
        let fits = |it: &Tiles| {
            let of_lanes = it.lanes == LANES && (it.tile != [32; 2] || it.splits == 1);
            it != self
                && of_lanes
                && (1..=units.min(MAX_SPLITS)).contains(&it.splits)
                && it.units <= units.next_power_of_two().max(4)
                && it.fits(shared)
        };
        let all = small.into_iter().chain([least]).chain(splits).chain(more).chain(both);
        let all = all.map(|it| Tiles { lanes: LANES, ..it });
        all.filter(fits).collect()
    }

    /// Returns the number of tiles for `[batches, rows, columns]`.
    fn count(&self, [batches, m, n]: [usize; 3]) -> usize {
        let [rows, columns] = self.tile;
        m.div_ceil(rows).saturating_mul(n.div_ceil(columns)).saturating_mul(batches)
    }

    /// Whether an invocation's loads fit into the registers of the shader, and shared memory can
    /// hold both operands and the result matrices of the subgroups.
    fn fits(&self, shared: u32) -> bool {
        let brought = self.tile.iter().map(|side| side * self.units / self.lanes);
        if brought.max().is_some_and(|units| units > MAX_IMPORTED) {
            return false;
        }
        let factors = self.tile.iter().sum::<usize>() * (self.units + 1) * GROUP;
        factors + self.lanes / 32 * 16 * 16 * size_of::<i32>() + size_of::<u32>() <= shared as usize
    }
}

/// The maximum number of groups of 16 terms that an invocation loads at a time for one operand.
const MAX_IMPORTED: usize = 8;

/// Invocations per workgroup, except for large tiles.
const LANES: usize = 128;

/// The minimum number of groups of 16 terms for which split-K is faster; half of it if the GEMM has
/// few tiles.
const MANY_UNITS: usize = 96;

/// The minimum number of groups of 16 terms per split.
const MIN_UNITS_OF_SPLIT: usize = 16;

/// The minimum rows, columns and terms of a tiled GEMM. Operands in channels-last layout are tiled
/// with any number of terms.
const MIN_SIDE: usize = 16;
const MIN_TERMS: usize = 32;

/// With at most this many terms, sums fit in 32 bits: each term is at most 2^14, and so is the
/// zero-point correction.
const MAX_TERMS: usize = 1 << 15;

impl Product<'_> {
    /// Returns `[batches, rows, columns]` of the GEMM, where each group counts as a batch.
    fn shape(&self, out_sizes: &[usize]) -> Option<[usize; 3]> {
        let numel = |sizes: &[usize]| sizes.iter().try_fold(1usize, |a, b| a.checked_mul(*b));
        match (&self.windows, out_sizes) {
            (Some(_), [batches, places, _]) if self.is_channels_last => {
                Some([*batches, *places, self.weights.rows.count])
            }
            (None, [rows @ .., _]) => Some([1, numel(rows)?, self.weights.rows.count]),
            (Some(windows), [batches @ .., _, height, width]) => {
                let rows = self.weights.rows.count / windows.groups;
                Some([
                    numel(batches)?.checked_mul(windows.groups)?,
                    rows,
                    height.checked_mul(*width)?,
                ])
            }
            _ => None,
        }
    }

    /// Emits the dispatches; returns `false` if the generic kernels must be used.
    pub(super) fn encode(&self, e: &mut Encoder<'_, '_>) -> Result<bool, Error> {
        let matrix_k = e.features().multiply_codes();
        let Rows { parts, codes, .. } = self.weights.rows;
        let units = self.weights.rows.padded() / GROUP * parts;
        let types = self.input.element == Element::I8
            && self.scales.element.is_floating()
            && self.bias.is_none_or(|bias| bias.element.is_floating())
            && (self.out.element.is_floating() || self.out.element == Element::I8);
        let groups = self.windows.as_ref().map_or(1, |windows| windows.groups);
        let whole = match self.windows {
            // The padding of groups must be small; images with few channels would be mostly
            // padding.
            Some(_) => codes * if groups == 1 { 8 } else { 2 } >= self.weights.rows.padded(),
            None => codes.is_multiple_of(GROUP),
        };
        let [scale, zero] = self.parameters;
        let computes = e.can_run(&module(matrix_k));
        let bound = e.bound_sizes(self.out);
        let (Some(now), Some(bound)) = (self.shape(&self.out.sizes), self.shape(&bound)) else {
            return Ok(false);
        };
        let [_, most_rows, most_columns] = bound;
        if !types
            || !whole
            || !computes
            || zero != f64::from(zero as i8)
            || most_rows.min(most_columns) < MIN_SIDE
            || (!self.is_channels_last && parts.saturating_mul(codes) < MIN_TERMS)
            || units > MAX_TERMS / GROUP
        {
            return Ok(false);
        }
        let tiles = Tiles::of(bound, units, [e.processors(), e.busy()], e.shared_memory());
        let Some(tiles) = tiles.filter(|tiles| self.fits(e, bound, tiles)) else {
            return Ok(false);
        };
        let kernel =
            self.windows.as_ref().map(|it| (it.kernel, it.stride, it.size, self.is_channels_last));
        let question = ("codes", matrix_k, bound, units, kernel, self.out.element);
        let shared = e.shared_memory();
        let tiles = e.choose(self.out, question, tiles, |first| first.others(units, shared));
        if !self.fits(e, bound, &tiles) {
            return Ok(false);
        }
        if now.contains(&0) {
            return Ok(true);
        }
        for operand in [self.input, self.out] {
            u32_of(operand.numel())?;
        }
        let weights = e.derived(Derived::Packed(self.weights))?;
        let packed = match &self.windows {
            Some(windows) if !self.is_channels_last => {
                // Each group is packed separately.
                let plane = windows.size[0] * windows.size[1];
                Some(to_channels_last(e, self.input, [codes, plane])?)
            }
            _ => None,
        };
        let [batches, m, n] = now;
        let shares = match tiles.splits {
            1 => None,
            splits => {
                let tile_counts = [now, bound].map(|shape| tiles.count(shape));
                Some(splits::parts(e, self.out, tile_counts, splits, tiles.tile)?)
            }
        };
        let [part, counts] = match &shares {
            Some([parts, counts]) => [parts, counts],
            // Unused bindings get any tensor that the dispatch writes.
            None => [self.out; 2],
        };
        let bias = self.bias.unwrap_or(self.scales);
        let pipeline = ConvolutionInt8 {
            scale: self.scales.element,
            bias: bias.element,
            output: self.out.element,
            out_aligned: self.is_channels_last || n.is_multiple_of(4),
            has_bias: self.bias.is_some(),
            form: match self.windows {
                None => functions::ROWS,
                Some(_) if self.is_channels_last => functions::PLACES,
                Some(_) => functions::PLANES,
            },
            tile_m: u32_of(tiles.tile[0])?,
            tile_n: u32_of(tiles.tile[1])?,
            tile_k: u32_of(tiles.units)?,
            shared: shares.is_some(),
            lanes: u32_of(tiles.lanes)?,
            matrix_k: matrix_k.unwrap_or(GROUP as u32),
            recoded: self.table.is_some(),
        };
        let split_units = units.div_ceil(tiles.splits).next_multiple_of(tiles.units);
        let [low, high] = self.clamp;
        let pitch = if self.is_channels_last { n.next_multiple_of(GROUP) } else { n };
        let push = ConvolutionInt8Push {
            m: u32_of(m)?,
            n: u32_of(n)?,
            pitch: u32_of(pitch)?,
            units: u32_of(units)?,
            splits: u32_of(tiles.splits)?,
            split_units: u32_of(split_units)?,
            zero: zero as i32,
            scale: scale as f32,
            out_inverse: (1.0 / self.out_parameters[0]) as f32,
            out_zero: self.out_parameters[1] as f32,
            low: low as f32,
            high: high as f32,
            ..self.placed()?
        };
        let first = packed.as_ref().unwrap_or(self.input).id;
        let [a, b] = match self.windows {
            Some(_) if !self.is_channels_last => [weights.id, first],
            _ => [first, weights.id],
        };
        let accesses = [
            read(a),
            read(b),
            read(self.scales.id),
            read(bias.id),
            write(self.out.id),
            write(part.id),
            write(counts.id),
            // The unused binding gets any tensor.
            read(self.table.unwrap_or(self.scales).id),
        ];
        let invocations = [
            n.div_ceil(tiles.tile[1]) * tiles.lanes,
            m.div_ceil(tiles.tile[0]),
            batches * tiles.splits,
        ];
        let workgroup = [pipeline.lanes, 1, 1];
        e.dispatch_module(module(matrix_k), &pipeline, accesses, &push, invocations, workgroup)?;
        Ok(true)
    }

    /// Whether the device supports the dispatch and its temporary tensors, which other kernels do
    /// not need. GEMMs with a dynamic number of rows are excluded: tiles are slow for few rows.
    fn fits(&self, e: &Encoder<'_, '_>, bound: [usize; 3], tiles: &Tiles) -> bool {
        let (limits, [batches, m, n]) = (e.limits(), bound);
        let [rows, columns] = tiles.tile;
        let groups = [n.div_ceil(columns), m.div_ceil(rows), batches.saturating_mul(tiles.splits)];
        let most = limits.fold_at.map(|most| most as usize);
        let numel = e.bound_sizes(self.input).into_iter().fold(1, usize::saturating_mul);
        let packed = match self.windows {
            Some(_) if !self.is_channels_last => {
                (numel / self.weights.rows.codes.max(1)).saturating_mul(self.weights.rows.padded())
            }
            _ => 0,
        };
        let parts = match tiles.splits {
            1 => 0,
            _ => groups.into_iter().fold(rows * columns * size_of::<i32>(), usize::saturating_mul),
        };
        let [across, down, _] = most;
        let is_taken = groups[0] <= across && groups[1] <= down;
        let varies = self.windows.is_none() && e.is_dynamic(self.out);
        is_taken && !varies && packed.max(parts) as u64 <= limits.tensor
    }

    /// Returns the window parameters; unused for a GEMM.
    fn placed(&self) -> Result<ConvolutionInt8Push, Error> {
        let none = ConvolutionInt8Push {
            m: 0,
            n: 0,
            units: 0,
            splits: 1,
            split_units: 0,
            groups: 1,
            place_units: 1,
            in_y: 1,
            in_x: 1,
            out_x: 1,
            kernel_x: 1,
            stride_y: 1,
            stride_x: 1,
            dilation_y: 1,
            dilation_x: 1,
            padding_y: 0,
            padding_x: 0,
            zero: 0,
            scale: 1.0,
            out_inverse: 1.0,
            out_zero: 0.0,
            low: 0.0,
            high: 0.0,
            pitch: 0,
            base_z: 0,
        };
        let Some(windows) = &self.windows else { return Ok(none) };
        let i32_of = |size: usize| {
            i32::try_from(size).map_err(|_| {
                Error::unsupported(format!(
                    "convolution with a size of {size}; the limit is 2^31 - 1"
                ))
            })
        };
        let [in_y, in_x] = windows.size;
        let ([stride_y, stride_x], [padding_y, padding_x]) = (windows.stride, windows.padding);
        let [dilation_y, dilation_x] = windows.dilation;
        Ok(ConvolutionInt8Push {
            groups: u32_of(windows.groups)?,
            place_units: u32_of(self.weights.rows.padded() / GROUP)?,
            in_y: i32_of(in_y)?,
            in_x: i32_of(in_x)?,
            out_x: i32_of(windows.out_size[1])?,
            kernel_x: i32_of(windows.kernel[1])?,
            stride_y: i32_of(stride_y)?,
            stride_x: i32_of(stride_x)?,
            dilation_y: i32_of(dilation_y)?,
            dilation_x: i32_of(dilation_x)?,
            padding_y: i32_of(padding_y)?,
            padding_x: i32_of(padding_x)?,
            ..none
        })
    }
}

/// Returns the shader for a device with int8 matrices of `matrix_k` terms, or without int8
/// matrices.
pub(super) fn module(matrix_k: Option<u32>) -> Module {
    let better = ConvolutionInt8::BETTER.first().filter(|_| matrix_k.is_some());
    better.copied().unwrap_or(ConvolutionInt8::MODULE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{DeviceFeature, DeviceFeatures};
    use crate::encode::encode;
    use crate::ops::testing::tensor;
    use crate::state::State;
    use std::collections::HashSet;
    use torchlet_core::ScalarType;
    use torchlet_graph::graph::{Graph, Node, Value};
    use torchlet_graph::operators::Operator;

    const BUSY: usize = 1 << 18;

    #[test]
    fn tiles_fit_and_are_shared_where_they_are_few() {
        let shared = 48 << 10;
        let of = |shape, units| Tiles::of(shape, units, [BUSY / 512, BUSY], shared).unwrap();
        assert_eq!(
            of([1, 4096, 4096], 64),
            Tiles { tile: [128; 2], units: 4, lanes: 256, splits: 1 }
        );
        let few = of([1, 512, 49], 288);
        assert_eq!((few.tile, few.units, few.splits), ([64, 64], 8, 18));
        assert_eq!(of([1, 32, 49], 2), Tiles { tile: [32, 32], units: 4, lanes: 128, splits: 1 });
        assert_eq!(of([1, 4900, 20], 9).tile, [32, 32]);
        assert_eq!(of([16, 4900, 20], 9).tile, [64, 32]);
        let many = of([1, 49, 160], 60);
        assert_eq!((many.tile, many.units, many.splits), ([32, 64], 8, 4));
        assert_eq!(of([usize::MAX, 64, 64], 9).splits, 1);
        // The loads of alternatives fit into registers, for any amount of shared memory.
        for first in [of([1, 4096, 4096], 64), few, many, of([1, 196, 64], 24)] {
            let others = first.others(64, 1 << 20);
            let brought = |it: &Tiles| it.tile.map(|side| side * it.units / it.lanes);
            assert!(
                !others.is_empty()
                    && others
                        .iter()
                        .all(|it| brought(it).iter().all(|units| (1..=8).contains(units))),
                "{others:?}"
            );
            assert!(others.iter().all(|it| it.tile != [32; 2] || it.splits == 1), "{others:?}");
        }
        // With less shared memory, fewer terms are loaded at a time, or tiles are not used.
        let least = Tiles { tile: [64, 64], units: 4, lanes: 128, splits: 18 };
        assert_eq!(Tiles::of([1, 512, 49], 288, [BUSY / 512, BUSY], 16 << 10), Some(least));
        assert_eq!(Tiles::of([1, 512, 49], 288, [BUSY / 512, BUSY], 8 << 10), None);
    }

    /// Returns the shaders of a grouped convolution with 3×3 windows and these channels on a
    /// device.
    fn shaders(features: DeviceFeatures, channels: [usize; 2], groups: usize) -> Vec<&'static str> {
        shaders_with(features, 8, channels, groups)
    }

    /// Returns these shaders for a device with this limit on buffers.
    fn shaders_with(
        features: DeviceFeatures,
        buffers: u32,
        channels: [usize; 2],
        groups: usize,
    ) -> Vec<&'static str> {
        let [inputs, outputs] = channels;
        let row = inputs / groups * 9;
        let char = ScalarType::Char;
        let float = ScalarType::Float;
        let mut values = vec![
            tensor(char, &[1, inputs, 8, 7], false),
            tensor(char, &[outputs, row], true),
            tensor(float, &[outputs], true),
            tensor(char, &[1, outputs, 8, 7], false),
        ];
        values.extend([Value::Double(0.5), Value::Int(3), Value::None]);
        values.extend([[3, 3], [1, 1]].map(|list| Value::IntList(list.to_vec())));
        values.push(Value::Int(groups as i64));
        // Arguments: input, its scale and zero point, weights, their sums, scales, output scale and
        // zero point, bias, kernel, stride, padding, dilation, groups.
        let args = vec![0, 4, 5, 1, 2, 2, 4, 5, 6, 7, 8, 8, 8, 9, 3];
        let nodes = vec![Node::new(Operator::ET_VK_Q8TA_CONV2D, args)];
        let graph = Graph { values, nodes, inputs: vec![0], outputs: vec![3], ..Graph::default() };
        let mut state = State::new(&graph, HashSet::new()).unwrap();
        state.features = features;
        state.limits.buffers = buffers;
        let steps = encode(&graph, &mut state, true).unwrap().0;
        steps.iter().map(|step| step.key.module.name).collect()
    }

    #[test]
    fn devices_have_the_kernel_that_they_can_run() {
        let dot = || DeviceFeatures::only(&[DeviceFeature::IntegerDotProduct], 32);
        let tiles = ["pack_int8", "convolution_int8"];
        assert_eq!(shaders(dot(), [16, 32], 1), tiles);
        assert_eq!(shaders(dot(), [32, 32], 2), tiles);
        let matrices = ["pack_int8", "convolution_int8_cooperative"];
        assert_eq!(shaders(DeviceFeatures::multiplying_codes(32), [16, 32], 1), matrices);
        assert_eq!(shaders(DeviceFeatures::multiplying_codes(16), [16, 32], 1), matrices);
        // Too few buffers; no features; few output channels; groups that would be mostly padding.
        let any = ["convolution_quantized"];
        assert_eq!(shaders_with(dot(), 7, [16, 32], 1), any);
        assert_eq!(shaders(DeviceFeatures::default(), [16, 32], 1), any);
        assert_eq!(shaders(dot(), [16, 15], 1), any);
        assert_eq!(shaders(dot(), [12, 48], 3), any);
        assert_eq!(shaders(dot(), [4, 48], 1), tiles);
        assert_eq!(shaders(dot(), [1, 48], 1), any);
    }
}
