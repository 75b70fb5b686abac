//! fp16 convolutions with stride one and overlapping windows. Workgroups stage a part of the image
//! in shared memory once for all taps, and subgroups multiply cooperative matrices from there.
//!
//! In contrast, an implicit GEMM ([`Tiling`](crate::ops::tiling::Tiling)) loads each element once
//! per tap. It can be divided into more workgroups, so it is better for smaller planes.

use super::Shape;
use crate::device::{MAX_GROUPS, is_parallel};
use crate::encoder::{Encoder, u32_of, write};
use crate::error::Error;
use crate::ops::splits;
use torchlet_shaders::{ConvolutionStaged, ConvolutionStagedPush, Element, Pipeline};

/// The algorithm of a convolution that both algorithms support.
#[derive(Debug, Clone, Copy)]
enum Way {
    Staged(Blocks),
    /// Implicit GEMM of weights and windows.
    Windows,
}

/// The division of work among workgroups. An image is divided into strips of columns, and a strip
/// into tiles of consecutive positions; see `convolution_staged.comp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Blocks {
    /// Output channels of a tile.
    tile_m: usize,
    /// Output columns of a strip, and the distance from one row of a strip to the next.
    strip: usize,
    pitch: usize,
    /// The number of workgroups that share the sums of a tile.
    splits: usize,
}

/// The properties of a convolution that determine its algorithm.
#[derive(Debug, Clone, Copy)]
struct Layer {
    batches: usize,
    /// Channels per group, of input and output. For 3D convolutions, each output plane counts as an
    /// image, and each input plane in its window as a channel.
    channels: [usize; 2],
    /// Rows and columns of the output.
    plane: [usize; 2],
    kernel: [usize; 2],
    dilation: [usize; 2],
}

/// Values derived from a layer and its blocks.
#[derive(Debug, Clone, Copy)]
struct Counts {
    /// Tiles per strip (`tiles`), and the number of workgroups over positions (`across`) and over
    /// output channels (`down`).
    tiles: usize,
    across: usize,
    down: usize,
    /// The number of positions that an invocation stages.
    places: usize,
}

impl Layer {
    /// Returns `None` if the stride is not one, or windows have only one element.
    fn of(shape: &Shape) -> Option<Self> {
        let sizes = |values: [i32; 2]| {
            let [y, x] = values.map(|value| usize::try_from(value).ok().filter(|it| *it > 0));
            Some([y?, x?])
        };
        let is_of_more = shape.window.iter().any(|it| it.kernel > 1);
        let overlaps = shape.window.iter().all(|it| it.stride == 1) && is_of_more;
        overlaps.then_some(())?;
        let [_, planes] = shape.planes();
        let depth = usize::try_from(shape.depth_window().kernel).ok()?;
        Some(Layer {
            batches: shape.batch.checked_mul(shape.groups)?.checked_mul(planes)?,
            channels: [shape.in_channels.checked_mul(depth)?, shape.out_channels],
            plane: shape.out_size,
            kernel: sizes(shape.window.map(|it| it.kernel))?,
            dilation: sizes(shape.window.map(|it| it.dilation))?,
        })
    }

    /// Returns how far a window reaches beyond its first element in a dim.
    fn reach(&self, dim: usize) -> usize {
        (self.kernel[dim] - 1).saturating_mul(self.dilation[dim])
    }

    /// Returns the workgroup counts; `None` if the blocks exceed the limits of the shader or the
    /// shared memory.
    fn counts(&self, blocks: &Blocks, shared: usize) -> Option<Counts> {
        let Blocks { tile_m, strip, pitch, .. } = *blocks;
        let [rows, columns] = self.plane;
        // The last row of a strip ends at the plane's edge.
        let tiles = (rows - 1).checked_mul(pitch)?.checked_add(strip)?.div_ceil(TILE_N);
        let across = columns.div_ceil(strip).checked_mul(tiles)?;
        let staged = self.reach(0).checked_mul(pitch)?.checked_add(self.reach(1))?;
        let places = staged.checked_add(TILE_N)?.div_ceil(LANES);
        let weights = self.kernel[0].checked_mul(self.kernel[1])?.checked_mul(CHANNELS)?;
        let staged = places.checked_mul(LANES * (CHANNELS + 8))?;
        let halves = weights.checked_mul(tile_m + 8)?.checked_add(staged)?;
        // The last four bytes hold the flag for the last workgroup of a tile.
        let results = LANES / SUBGROUP * SIDE * SIDE * size_of::<f32>() + 4;
        let bytes = halves.checked_mul(2)?.checked_add(results)?;
        let down = self.channels[1].div_ceil(tile_m);
        let fits = (weights * tile_m / 8).div_ceil(LANES) <= MAX_WEIGHTS
            && places <= MAX_PLACES
            && bytes <= shared
            && across.max(down) <= MAX_GROUPS;
        fits.then_some(Counts { tiles, across, down, places })
    }

    /// Returns the blocks with tiles of height `tile_m` for which workgroups compute and stage the
    /// fewest positions.
    fn in_strips(&self, tile_m: usize, shared: usize) -> Option<(Blocks, Counts)> {
        let columns = self.plane[1];
        let strips = (MIN_STRIP..=MAX_STRIP).step_by(4).map(|most| match columns.div_ceil(most) {
            0 | 1 => columns,
            // Strips start at multiples of four positions, so that groups of four lie in one
            // strip.
            count => columns.div_ceil(count).next_multiple_of(4),
        });
        let blocks = strips.filter_map(|strip| {
            let pitch = strip.checked_add(self.reach(1))?.checked_next_multiple_of(4)?;
            let blocks = Blocks { tile_m, strip, pitch, splits: 1 };
            Some((blocks, self.counts(&blocks, shared)?))
        });
        // Staging a position costs about as much as multiplying it by half of the weights.
        blocks.min_by_key(|(_, counts)| {
            counts.across.saturating_mul(2 * TILE_N + counts.places * LANES)
        })
    }

    /// Returns the best blocks, if they are faster than an implicit GEMM on a device with this many
    /// processors.
    ///
    /// A workgroup with twice the output channels does not last twice as long. The number of
    /// workgroups should therefore be close to the number of processors: at least three quarters
    /// for small tiles, and a bit less than half for large ones, because two workgroups can share
    /// the sums of a large tile.
    fn blocks(&self, processors: usize, shared: usize) -> Option<Blocks> {
        let [inputs, outputs] = self.channels;
        if inputs < CHANNELS || outputs <= 16 {
            return None;
        }
        // Large tiles may exceed the output channels by at most an eighth.
        let is_full = |tile_m: usize| outputs.next_multiple_of(tile_m) <= outputs / 8 * 9;
        let of = |tile_m: usize, least: usize| {
            let (blocks, counts) = self.in_strips(tile_m, shared)?;
            let groups = counts.across.saturating_mul(counts.down).saturating_mul(self.batches);
            let shares = groups.saturating_mul(2) <= processors && inputs > CHANNELS;
            (groups >= least).then_some(Blocks { splits: if shares { 2 } else { 1 }, ..blocks })
        };
        let large = if is_full(64) { of(64, processors / 2 - processors / 16) } else { None };
        large.or_else(|| of(32, processors / 4 * 3))
    }
}

impl Shape {
    /// Returns the blocks of a staged convolution, if staging is faster.
    pub(super) fn staged(&self, e: &mut Encoder<'_, '_>) -> Option<Blocks> {
        let halves = [self.input.element, self.weight.element] == [Element::F16; 2];
        let able = e.features().multiply_halves() && e.can_run(&ConvolutionStaged::MODULE);
        let parallel = is_parallel(e.busy());
        if !halves || !able || !parallel || e.is_dynamic(&self.out) {
            return None;
        }
        let layer = Layer::of(self)?;
        let blocks = layer.blocks(e.processors(), e.shared_memory() as usize)?;
        let question = ("staged", layer, self.depth);
        match e.choose(&self.out, question, Way::Staged(blocks), |_| vec![Way::Windows]) {
            Way::Staged(blocks) => Some(blocks),
            Way::Windows => {
                // Autotuning only chooses between the two algorithms; it does not also tune the
                // tiling of the implicit GEMM.
                e.settle();
                None
            }
        }
    }

    /// Emits the dispatch of these blocks.
    pub(super) fn in_blocks(self, e: &mut Encoder<'_, '_>, blocks: Blocks) -> Result<(), Error> {
        let unfit = || {
            Error::invalid("internal error: the block sizes of a convolution do not fit its shape")
        };
        let layer = Layer::of(&self).ok_or_else(unfit)?;
        let counts = layer.counts(&blocks, e.shared_memory() as usize).ok_or_else(unfit)?;
        let Blocks { tile_m, strip, pitch, splits } = blocks;
        let weights = self.weights(e)?;
        let parts = match splits {
            1 => None,
            _ => {
                let tiles = (counts.across * counts.down).saturating_mul(layer.batches);
                Some(splits::parts(e, &self.out, [tiles; 2], splits, [tile_m, TILE_N])?)
            }
        };
        let (bias, residual) = (self.bias(), self.residual());
        let ([y, x], [out_y, out_x]) = (self.window, self.out_size);
        let z = self.depth_window();
        let pipeline = ConvolutionStaged {
            bias: bias.element,
            output: self.out.element,
            out_aligned: out_x.is_multiple_of(4) && strip.is_multiple_of(4),
            has_bias: self.bias.is_some(),
            activation: self.epilogue.activation,
            residual: residual.element,
            has_residual: self.epilogue.residual.is_some(),
            tile_m: u32_of(tile_m)?,
            tile_n: u32_of(TILE_N)?,
            partial: if parts.is_some() { 2 } else { 0 },
            lanes: u32_of(LANES)?,
            kernel_y: y.kernel as u32,
            kernel_x: x.kernel as u32,
            dilation_y: y.dilation as u32,
            dilation_x: x.dilation as u32,
            places: u32_of(counts.places)?,
            kernel_z: self.depth.map_or(0, |_| z.kernel as u32),
            stride_z: z.stride as u32,
            dilation_z: z.dilation as u32,
        };
        let ([channels, _], a_pitch) = (layer.channels, weights.size(2));
        let ([in_z, out_z], [places, out_places]) = (self.planes(), self.places());
        let push = ConvolutionStagedPush {
            m: u32_of(self.out_channels)?,
            n: u32_of(out_places)?,
            bias_batch: u32_of(self.out_channels)?,
            period: u32_of(self.groups)?,
            bias_row: 1,
            bias_column: 0,
            alpha: 1.0,
            beta: 1.0,
            a: self.epilogue.a,
            b: self.epilogue.b,
            k: u32_of(channels)?,
            a_pitch: u32_of(a_pitch)?,
            a_batch: u32_of(self.terms() * a_pitch)?,
            b_batch: u32_of(self.in_channels * places)?,
            splits: u32_of(splits)?,
            channels: u32_of(channels.div_ceil(splits).next_multiple_of(CHANNELS))?,
            in_y: self.size[0] as i32,
            in_x: self.size[1] as i32,
            out_y: u32_of(out_y)?,
            out_x: u32_of(out_x)?,
            padding_y: y.padding,
            padding_x: x.padding,
            pitch: u32_of(pitch)?,
            strip: u32_of(strip)?,
            tiles: u32_of(counts.tiles)?,
            in_z: in_z as i32,
            out_z: u32_of(out_z)?,
            padding_z: z.padding,
            base_z: 0,
        };
        // Unused bindings get any tensor that the dispatch writes.
        let [sums, done] = parts.map_or([self.out.id; 2], |parts| parts.map(|part| part.id));
        let [input, weight, bias, residual, out] = self.accesses(&weights);
        let accesses = [bias, residual, out, weight, input, write(sums), write(done)];
        let invocations =
            [counts.across * LANES, counts.down, layer.batches.saturating_mul(splits)];
        let module = ConvolutionStaged::MODULE;
        e.dispatch_module(module, &pipeline, accesses, &push, invocations, [pipeline.lanes, 1, 1])
    }
}

/// The number of positions of a tile (`TILE_N`), and of invocations of a workgroup (`LANES`). Other
/// values were slower, except for few output channels.
const TILE_N: usize = 128;
const LANES: usize = 256;

/// The minimum number of columns of a strip, unless the plane has fewer, and roughly the maximum
/// number of positions that are staged.
const MIN_STRIP: usize = 16;
const MAX_STRIP: usize = 512;

/// Rows and columns of cooperative matrices, and the invocations of a subgroup.
const SIDE: usize = 16;
const SUBGROUP: usize = 32;

/// Channels that workgroups load at a time, as in the shader.
const CHANNELS: usize = 16;

/// The maximum number of loads per invocation that the shader supports: groups of eight weights,
/// and positions.
const MAX_WEIGHTS: usize = 12;
const MAX_PLACES: usize = 4;

#[cfg(test)]
mod tests {
    use super::{Blocks, Layer};
    use crate::device::DeviceFeatures;
    use crate::encode::encode;
    use crate::state::State;
    use std::collections::HashSet;
    use torchlet_core::ScalarType;
    use torchlet_graph::graph::{Graph, Node, Tensor, Value};
    use torchlet_graph::operators::Operator;

    /// Returns the shader and the workgroups of an fp16 convolution with these shapes of input,
    /// weights and result, a padding of one element, and a device with 132 processors.
    fn dispatched_of(
        sizes: [&[usize]; 3],
        stride: &[i64],
        groups: usize,
        dynamic: bool,
    ) -> (&'static str, [u32; 3]) {
        let tensor = |sizes: &[usize], is_constant: bool| {
            Value::Tensor(Tensor {
                scalar_type: ScalarType::Half,
                host_type: ScalarType::Half,
                sizes: sizes.to_vec(),
                dynamic: dynamic && !is_constant,
                data: is_constant.then(|| vec![0; sizes.iter().product::<usize>() * 2].into()),
                changes: None,
            })
        };
        let [input, weight, out] = sizes;
        let ints = |item: i64| Value::IntList(vec![item; stride.len()]);
        let graph = Graph {
            values: vec![
                tensor(input, false),
                tensor(weight, true),
                Value::None,
                Value::IntList(stride.to_vec()),
                ints(1),
                Value::Bool(false),
                ints(0),
                Value::Int(groups as i64),
                tensor(out, false),
            ],
            nodes: vec![Node::new(Operator::CONVOLUTION, vec![0, 1, 2, 3, 4, 4, 5, 6, 7, 8])],
            inputs: vec![0],
            outputs: vec![8],
            ..Graph::default()
        };
        let mut state = State::new(&graph, HashSet::new()).unwrap();
        state.busy = 132 * 512;
        state.features = DeviceFeatures::multiplying_halves();
        state.limits.shared = 48 << 10;
        let (steps, _) = encode(&graph, &mut state, true).unwrap();
        assert_eq!(steps.len(), 1);
        (steps[0].key.module.name, steps[0].groups)
    }

    /// Returns the shader and the workgroups of a convolution over a square plane.
    fn dispatched(
        batch: usize,
        groups: usize,
        [inputs, outputs]: [usize; 2],
        side: usize,
        dynamic: bool,
    ) -> (&'static str, [u32; 3]) {
        let input = [batch, groups * inputs, side, side];
        let out = [batch, groups * outputs, side, side];
        let weight = [groups * outputs, inputs, 3, 3];
        dispatched_of([&input, &weight, &out], &[1, 1], groups, dynamic)
    }

    /// Returns the shader and the workgroups of a convolution over eight planes, with these strides
    /// in depth, and in rows and columns.
    fn dispatched_volumes(
        batch: usize,
        [inputs, outputs]: [usize; 2],
        side: usize,
        [step_z, step]: [usize; 2],
    ) -> (&'static str, [u32; 3]) {
        let input = [batch, inputs, 8, side, side];
        let out = [batch, outputs, 8 / step_z, side.div_ceil(step), side.div_ceil(step)];
        let weight = [outputs, inputs, 3, 3, 3];
        let stride = [step_z, step, step].map(|step| step as i64);
        dispatched_of([&input, &weight, &out], &stride, 1, false)
    }

    /// Workgroups over positions, output channels, and images × groups × shares of sums.
    #[test]
    fn each_tile_has_workgroups() {
        let staged = |groups| ("convolution_staged", groups);
        // Two strips of 112 rows of 56 positions, 4 apart: 53 tiles of 128 each.
        assert_eq!(dispatched(1, 1, [64, 64], 112, false), staged([106, 1, 1]));
        assert_eq!(dispatched(3, 1, [64, 100], 112, false), staged([106, 4, 3]));
        // Rows of 30 and 2, in eight tiles, each shared by two workgroups.
        assert_eq!(dispatched(1, 1, [512, 512], 30, false), staged([8, 8, 2]));
        assert_eq!(dispatched(3, 5, [32, 32], 30, false), staged([8, 1, 15]));
        for (channels, side, dynamic) in [([64, 64], 112, true), ([256, 256], 14, false)] {
            let (module, _) = dispatched(1, 1, channels, side, dynamic);
            assert_eq!(module, "convolution_cooperative");
        }
    }

    /// Each output plane is computed like an image if staging is used. In an implicit GEMM, the
    /// positions of all planes are the columns of one matrix.
    #[test]
    fn planes_are_computed_as_pictures_are() {
        // 27 tiles of 56 rows of 56 positions, 4 apart, for each of eight or four planes.
        let staged = |planes| ("convolution_staged", [27, 1, planes]);
        assert_eq!(dispatched_volumes(1, [64, 64], 56, [1, 1]), staged(8));
        assert_eq!(dispatched_volumes(3, [64, 64], 56, [2, 1]), staged(12));
        // 14 rows and columns of eight planes.
        let (module, groups) = dispatched_volumes(1, [64, 128], 28, [1, 2]);
        assert_eq!(module, "convolution_cooperative");
        assert_eq!(groups[0], (8 * 14 * 14_u32).div_ceil(32));
    }

    /// Returns the blocks on a device with 132 processors and 48 KiB of shared memory.
    fn blocks(channels: [usize; 2], side: usize) -> Option<Blocks> {
        let layer =
            Layer { batches: 1, channels, plane: [side; 2], kernel: [3; 2], dilation: [1; 2] };
        layer.blocks(132, 48 << 10)
    }

    #[test]
    fn large_planes_are_staged() {
        let tile = |channels, side| blocks(channels, side).map(|it| (it.tile_m, it.splits));
        assert_eq!(tile([64, 64], 256), Some((64, 1)));
        assert_eq!(tile([256, 256], 56), Some((64, 1)));
        assert_eq!(tile([512, 512], 30), Some((64, 2)));
        assert_eq!(tile([128, 128], 56), Some((32, 1)));
        // A quarter or half of tiles of 64 would be empty.
        assert_eq!(tile([96, 96], 60), Some((32, 1)));
        assert_eq!(tile([32, 32], 112), Some((32, 1)));
    }

    #[test]
    fn small_planes_and_few_channels_are_not() {
        assert_eq!(blocks([256, 256], 32), None);
        assert_eq!(blocks([512, 512], 7), None);
        assert_eq!(blocks([3, 64], 256), None);
        assert_eq!(blocks([64, 3], 256), None);
    }

    #[test]
    fn groups_of_four_places_are_within_a_strip() {
        for side in 1..400 {
            let layer = Layer {
                batches: 1,
                channels: [64, 64],
                plane: [side; 2],
                kernel: [3; 2],
                dilation: [1; 2],
            };
            let (Blocks { strip, pitch, .. }, counts) = layer.in_strips(64, 48 << 10).unwrap();
            assert!(strip == side || strip.is_multiple_of(4), "{side}: {strip}");
            assert!(pitch.is_multiple_of(4) && pitch >= strip + 2, "{side}: {pitch}");
            // Tiles cover all positions of a strip, and all strips exist.
            assert!(counts.tiles * super::TILE_N >= (side - 1) * pitch + strip);
            assert!(counts.across >= side.div_ceil(strip) * counts.tiles);
            assert!(counts.places * super::LANES >= super::TILE_N + 2 * pitch + 2);
        }
    }

    #[test]
    fn whatever_does_not_fit_has_no_blocks() {
        let layer = |kernel: usize, dilation: usize, plane: [usize; 2]| Layer {
            batches: 1,
            channels: [64, 64],
            plane,
            kernel: [kernel; 2],
            dilation: [dilation; 2],
        };
        // Too many taps, too far-reaching windows, and sizes that overflow.
        assert!(layer(7, 1, [128; 2]).in_strips(64, 48 << 10).is_none());
        assert!(layer(3, 512, [128; 2]).in_strips(64, 48 << 10).is_none());
        assert!(layer(usize::MAX / 2, 3, [128; 2]).in_strips(64, 48 << 10).is_none());
        assert!(layer(3, 1, [usize::MAX, 64]).in_strips(64, 48 << 10).is_none());
        assert!(layer(3, 1, [128; 2]).in_strips(64, 16 << 10).is_none());
    }
}
