//! Depthwise separable convolutions: a depthwise convolution followed by a pointwise convolution.
//!
//! [`crate::passes`] fuses the two into calls of `torchlet.separable`. For small planes, a single
//! kernel computes both, since the launch overhead of a dispatch exceeds the computing time; the
//! depthwise convolution is then repeated for each block of output channels. Otherwise, the two
//! convolutions are dispatched separately.

use super::convolution::{Shape, by_row};
use super::weights::transposed;
use super::window::checked_numel;
use super::{Entry, epilogue, find, operator};
use crate::derived::Matrices;
use crate::device::{MAX_GROUPS, MAX_INVOCATIONS, is_parallel};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use torchlet_graph::graph::{Node, ValueId};
use torchlet_graph::operators::Operator;
use torchlet_shaders::{ConvolutionSeparable, ConvolutionSeparablePush, Element, Pipeline};

pub(super) const OPERATORS: &[Entry] = &[operator(Operator::SEPARABLE, encode)];

/// The original calls: the depthwise convolution with its activation, and the pointwise convolution
/// with its epilogue.
fn encode(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let parts = e.parts();
    let is_gemm = |part: &Node| find(part.operator).is_some_and(|it| it.takes_epilogue);
    let second = parts.iter().skip(1).position(is_gemm);
    let (first, second) =
        second.and_then(|place| parts.split_at_checked(place + 1)).ok_or_else(|| {
            Error::invalid("internal error: expected a depthwise and a pointwise convolution")
        })?;
    let first = shape(e, first, args)?;
    let second = shape(e, second, args)?;
    let (Some(first), Some(second)) = (first, second) else { return Ok(()) };
    let residual = second.epilogue.residual.as_ref().map(|residual| residual.numel());
    epilogue::check(residual, second.out.numel())?;
    let pair = Pair::of(e, &first, &second);
    let way = pair.as_ref().and_then(|pair| Way::of(e, pair, &second));
    match (pair, way) {
        (Some(pair), Some(Way::Together(blocks))) => together(e, &first, second, &pair, &blocks),
        (_, way) => {
            if way.is_some() {
                e.settle();
            }
            first.encode(e)?;
            second.encode(e)
        }
    }
}

/// Parses a convolution with its epilogue; `None` if the output is empty.
fn shape(
    e: &mut Encoder<'_, '_>,
    parts: &[Node],
    args: &[ValueId],
) -> Result<Option<Shape>, Error> {
    let (call, rest) = parts
        .split_first()
        .ok_or_else(|| Error::invalid("internal error: a convolution is missing"))?;
    if !rest.is_empty() {
        let epilogue = epilogue::of(e, rest, args)?;
        e.set_epilogue(epilogue);
    }
    let shape = Shape::of(e, call);
    e.take_epilogue();
    shape
}

/// The algorithm of a separable convolution.
#[derive(Debug, Clone, Copy)]
enum Way {
    Together(Blocks),
    Apart,
}

impl Way {
    /// Chooses the algorithm; `None` if only separate dispatches are reasonable.
    fn of(e: &mut Encoder<'_, '_>, pair: &Pair, second: &Shape) -> Option<Self> {
        let (processors, shared) = (e.processors(), e.shared_memory());
        let ways = pair.ways(processors, shared);
        let (cost, _) = *ways.first()?;
        // Software devices have no launch overhead.
        let parallel = is_parallel(e.busy());
        let apart = pair.cost_apart(processors);
        let (first, others) = match parallel && cost <= apart {
            true => (Way::Together(ways.first()?.1), Some(Way::Apart)),
            // The estimated difference is so large that tuning is pointless.
            false if parallel && cost > 4 * apart => return None,
            false => (Way::Apart, None),
        };
        let rest = if others.is_some() { ways.get(1..)? } else { &ways };
        let rest: Vec<Way> = rest.iter().map(|(_, blocks)| Way::Together(*blocks)).collect();
        let others = |_: &Way| others.into_iter().chain(rest).collect();
        Some(e.choose(&second.out, ("separable", pair), first, others))
    }
}

/// The properties of a separable convolution that determine the algorithm. Dynamic sizes are at
/// their maximum.
#[derive(Debug, Clone, Copy)]
struct Pair {
    batch: usize,
    /// Channels of the input and of the output.
    channels: [usize; 2],
    /// Rows and columns of the output.
    plane: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    padding_x: usize,
    /// Whether all input rows start at multiples of four elements.
    aligned: bool,
    /// The types of the input and of the pointwise weights.
    elements: [Element; 2],
}

/// The division of work among workgroups; see `convolution_separable.comp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Blocks {
    /// Rows and columns of the output tile, and its channels.
    tile: [usize; 2],
    tile_m: usize,
    /// The number of output channels per invocation.
    rows: usize,
    /// The number of input channels per iteration.
    channels: usize,
    /// The number of invocations that share a sum.
    shares: usize,
}

/// Values derived from the blocks. The shader computes them from its constants too.
#[derive(Debug, Clone, Copy)]
struct Counts {
    lanes: usize,
    /// The number of staged groups of four elements per channel, and the distance from one channel
    /// to the next.
    quads: usize,
    pitch: usize,
    /// The number of staged groups of four elements for a row of four neighbouring outputs.
    run_quads: usize,
    taps: usize,
    /// Per invocation and iteration: groups of four elements loaded, groups of four computed, and
    /// multiplications. Also the number of iterations.
    times: usize,
    items: usize,
    terms: usize,
    turns: usize,
}

impl Pair {
    /// Returns the properties of the two convolutions, if one kernel can compute both.
    fn of(e: &Encoder<'_, '_>, first: &Shape, second: &Shape) -> Option<Self> {
        let bound = e.bound_sizes(&second.out);
        let is_varying = e.is_dynamic(&second.out);
        let (columns, rest) = bound.split_last()?;
        let rows = if second.weight.rank() == 4 { *rest.last()? } else { 1 };
        let [y, x] = first.window;
        let size = |value: i32| usize::try_from(value).ok();
        let short = by_row(&x) && y.reach() <= 16 && y.stride <= 4 && x.kernel * y.kernel <= 49;
        let constant = [&first.weight, &second.weight].map(|it| e.constant(it.id).is_some());
        // 2D only, without depth.
        let fits = second.weight.rank() <= 4
            && first.is_depthwise()
            && first.out_channels == 1
            && first.epilogue.residual.is_none()
            && second.is_pointwise()
            && second.groups == 1
            && second.input.id == first.out.id
            && (second.batch, second.size) == (first.batch, first.out_size)
            && second.in_channels == first.groups
            && short
            && constant == [true; 2]
            && e.features().have(ConvolutionSeparable::MODULE.features);
        fits.then_some(Pair {
            batch: second.most,
            channels: [first.groups, second.out_channels],
            plane: [rows, *columns],
            kernel: [size(y.kernel)?, size(x.kernel)?],
            stride: [size(y.stride)?, size(x.stride)?],
            dilation: [size(y.dilation)?, size(x.dilation)?],
            padding_x: size(x.padding)?,
            aligned: first.size[1].is_multiple_of(4) && !is_varying,
            elements: [first.input.element, second.weight.element],
        })
    }

    /// Returns the number of input elements in a dim on which `outputs` neighbouring outputs
    /// depend.
    fn reach(&self, dim: usize, outputs: usize) -> usize {
        (outputs - 1) * self.stride[dim] + (self.kernel[dim] - 1) * self.dilation[dim] + 1
    }

    fn counts(&self, blocks: &Blocks) -> Counts {
        let Blocks { tile: [y, x], tile_m, rows, channels, shares } = *blocks;
        let runs = x / 4 * y;
        let lanes = tile_m / rows * runs * shares;
        let offset = if self.aligned { (4 - self.padding_x % 4) % 4 } else { 3 };
        let taps = self.reach(1, 4);
        let quads = self.reach(0, y) * (offset + self.reach(1, x)).div_ceil(4);
        Counts {
            lanes,
            quads,
            pitch: quads | 1,
            run_quads: (offset + taps).div_ceil(4),
            taps,
            times: channels.div_ceil((lanes / quads).max(1)),
            items: (channels * runs).div_ceil(lanes),
            terms: channels / shares,
            turns: self.channels[0].div_ceil(channels),
        }
    }

    /// Returns the number of staged groups of four elements, and of other vectors in shared memory.
    fn shared(&self, blocks: &Blocks, counts: &Counts) -> [usize; 2] {
        let Blocks { tile: [y, x], rows, channels, shares, .. } = *blocks;
        let sums = if shares > 1 { counts.lanes * rows } else { 1 };
        [channels * counts.pitch, (channels * (x / 4) * y).max(sums)]
    }

    fn shared_bytes(&self, blocks: &Blocks, counts: &Counts) -> usize {
        let [staged, partials] = self.shared(blocks, counts);
        // An unused array has one element.
        staged * 4 * self.elements[0].size() + partials * 16 + 16
    }

    /// Chooses the number of channels per iteration: as many as fit, evenly distributed over
    /// iterations.
    fn blocks(&self, mut blocks: Blocks, shared: usize) -> Option<Blocks> {
        let all = self.channels[0].next_multiple_of(blocks.shares);
        let fits = |channels: usize| {
            let blocks = Blocks { channels, ..blocks };
            let counts = self.counts(&blocks);
            counts.quads <= counts.lanes
                && counts.lanes <= MAX_INVOCATIONS as usize
                && counts.times * self.elements[0].size() <= MAX_IMPORTED
                && counts.items <= MAX_ITEMS
                && counts.terms * blocks.rows <= MAX_TERMS
                && self.shared_bytes(&blocks, &counts) <= shared
        };
        let (mut least, mut beyond) = (0, all / blocks.shares + 1);
        while beyond - least > 1 {
            let middle = least + (beyond - least) / 2;
            match fits(middle * blocks.shares) {
                true => least = middle,
                false => beyond = middle,
            }
        }
        let most = Some(least * blocks.shares).filter(|most| *most > 0)?;
        let turns = self.channels[0].div_ceil(most);
        blocks.channels = self.channels[0].div_ceil(turns).next_multiple_of(blocks.shares);
        Some(blocks)
    }

    /// Returns the best blocks, and alternatives with other tiles, each with the estimated cost.
    fn ways(&self, processors: usize, shared: u32) -> Vec<(usize, Blocks)> {
        let shared = (shared as usize).min(MAX_SHARED);
        let mut found: Vec<(usize, Blocks)> = Vec::new();
        let [rows_of_plane, columns] = self.plane;
        for (y, x) in [1, 2, 4, 8].into_iter().flat_map(|y| [4, 8, 16, 32].map(|x| (y, x))) {
            if (y > 1 && y >= 2 * rows_of_plane) || (x > 4 && x >= 2 * columns) {
                continue;
            }
            let tiles = rows_of_plane.div_ceil(y).saturating_mul(columns.div_ceil(x));
            if tiles.max(self.channels[1] / 8) > MAX_GROUPS {
                continue;
            }
            for tile_m in [8, 16, 24, 32, 48, 64] {
                if tile_m > 8 && tile_m >= self.channels[1] + 8 {
                    continue;
                }
                let mut best: Option<(usize, Blocks)> = None;
                for (rows, shares) in [4, 8]
                    .into_iter()
                    .flat_map(|rows| [1, 2, 4, 8, 16, 32, 64].map(|it| (rows, it)))
                {
                    let blocks = Blocks { tile: [y, x], tile_m, rows, channels: 1, shares };
                    let lanes = tile_m / rows * y * (x / 4) * shares;
                    if !(MIN_LANES..=MAX_INVOCATIONS as usize).contains(&lanes) {
                        continue;
                    }
                    let Some(blocks) = self.blocks(blocks, shared) else { continue };
                    let cost = self.cost(&blocks, processors);
                    if best.is_none_or(|(least, _)| cost < least) {
                        best = Some((cost, blocks));
                    }
                }
                found.extend(best);
            }
        }
        found.sort_by_key(|(cost, _)| *cost);
        found.truncate(WAYS);
        found
    }

    /// Cost model: estimates the cycles on a device whose processors have four schedulers that each
    /// issue for 32 invocations.
    fn cost(&self, blocks: &Blocks, processors: usize) -> usize {
        let counts = self.counts(blocks);
        let Counts { lanes, run_quads, taps, times, items, terms, turns, .. } = counts;
        let halves = self.elements[0] == Element::F16;
        let [kernel_y, kernel_x] = self.kernel;
        let shifted = match (self.aligned, halves) {
            (true, _) => 0,
            (false, true) => taps + 2,
            (false, false) => 2 * taps,
        };
        let row = 2 * run_quads + shifted + 2 * taps + 4 * kernel_x + 8;
        let bring = times * 12;
        let make = items * (kernel_y * (row + kernel_x) + 30);
        let multiply = terms * (blocks.rows * 5 + 6);
        let turn = bring + make + multiply + 40;
        let each = turns.saturating_mul(turn).saturating_add(blocks.rows * blocks.shares);
        let issue = each.saturating_mul(lanes.div_ceil(32)) / 4;
        let [rows, columns] = self.plane;
        let [y, x] = blocks.tile;
        let groups = [self.batch, rows.div_ceil(y), columns.div_ceil(x)];
        let groups = groups.into_iter().chain([self.channels[1].div_ceil(blocks.tile_m)]);
        let groups = groups.fold(1, usize::saturating_mul);
        let resident = groups.div_ceil(processors);
        // A few subgroups cannot hide the latency of their own instructions.
        let waiting = 16_usize.div_ceil(resident.saturating_mul(lanes.div_ceil(32)).min(16));
        let issue = issue.saturating_mul(resident).saturating_mul(waiting);
        let waits = turns.saturating_mul(600);
        issue.saturating_add(waits).saturating_add(2500 + blocks.shares * SHARE + lanes)
    }

    /// Cost model: estimates the cycles of separate dispatches.
    fn cost_apart(&self, processors: usize) -> usize {
        let [channels, outputs] = self.channels;
        let plane = self.plane.into_iter().chain([self.batch]).fold(1, usize::saturating_mul);
        let taps = self.kernel[0] * self.kernel[1];
        let each = channels.saturating_mul(4 * taps + outputs);
        let work = plane.saturating_mul(each) / (processors * 128);
        work.saturating_add(2 * DISPATCH)
    }
}

/// The estimated cycles of a small dispatch that waits for another dispatch.
const DISPATCH: usize = 9500;

/// The estimated cycles for each additional invocation that shares a sum: 16 invocations with two
/// blocks of channels are faster than 32 with one block.
const SHARE: usize = 144;

/// The maximum work per invocation that the shader supports: bytes loaded for each of four
/// elements, groups of four computed, and weights.
const MAX_IMPORTED: usize = 40;
const MAX_ITEMS: usize = 4;
const MAX_TERMS: usize = 64;

/// The minimum number of invocations per workgroup.
const MIN_LANES: usize = 32;

/// The maximum bytes of shared memory: with more, few workgroups run concurrently.
const MAX_SHARED: usize = 48 << 10;

/// The number of fused variants that autotuning compares.
const WAYS: usize = 5;

/// Emits one dispatch for both convolutions.
fn together(
    e: &mut Encoder<'_, '_>,
    first: &Shape,
    second: Shape,
    pair: &Pair,
    blocks: &Blocks,
) -> Result<(), Error> {
    let [y, _] = first.window;
    let taps = pair.kernel[0] * pair.kernel[1];
    let matrices = Matrices { count: 1, rows: first.groups, columns: taps };
    let (a, w) = (second.weights(e)?, transposed(e, &first.weight, matrices)?);
    let (bias, residual, shift) = (second.bias(), second.residual(), first.bias());
    let counts = pair.counts(blocks);
    let [staged, partials] = pair.shared(blocks, &counts);
    let (staged_32, staged_16) = match first.input.element {
        Element::F32 => (staged, 1),
        _ => (1, staged),
    };
    let [tile_y, tile_x] = blocks.tile;
    let pipeline = ConvolutionSeparable {
        bias: bias.element,
        output: second.out.element,
        out_aligned: second.out_size[1].is_multiple_of(4) && !e.is_dynamic(&second.out),
        has_bias: second.bias.is_some(),
        activation: second.epilogue.activation,
        residual: residual.element,
        has_residual: second.epilogue.residual.is_some(),
        a: a.element,
        x: first.input.element,
        w: w.element,
        shift: shift.element,
        has_shift: first.bias.is_some(),
        between: first.epilogue.activation,
        rounded: first.out.element == Element::F16,
        kernel_x: u32_of(pair.kernel[1])?,
        kernel_y: u32_of(pair.kernel[0])?,
        stride_x: u32_of(pair.stride[1])?,
        stride_y: u32_of(pair.stride[0])?,
        dilation_x: u32_of(pair.dilation[1])?,
        dilation_y: u32_of(pair.dilation[0])?,
        padding_x: u32_of(pair.padding_x)?,
        x_aligned: pair.aligned,
        tile_x: u32_of(tile_x)?,
        tile_y: u32_of(tile_y)?,
        tile_m: u32_of(blocks.tile_m)?,
        sums: u32_of(blocks.rows)?,
        channels: u32_of(blocks.channels)?,
        shares: u32_of(blocks.shares)?,
        staged_32: u32_of(staged_32)?,
        staged_16: u32_of(staged_16)?,
        partials: u32_of(partials)?,
    };
    let [out_y, out_x] = second.out_size;
    let numel = checked_numel(&first.input.sizes)?;
    let push = ConvolutionSeparablePush {
        m: u32_of(second.out_channels)?,
        n: u32_of(out_y * out_x)?,
        bias_batch: 0,
        period: 1,
        bias_row: 1,
        bias_column: 0,
        alpha: 1.0,
        beta: 1.0,
        a: second.epilogue.a,
        b: second.epilogue.b,
        k: u32_of(first.groups)?,
        a_pitch: u32_of(a.size(2))?,
        w_pitch: u32_of(w.size(2))?,
        in_y: first.size[0] as i32,
        in_x: first.size[1] as i32,
        out_y: u32_of(out_y)?,
        out_x: u32_of(out_x)?,
        padding_y: y.padding,
        last: (numel.saturating_sub(1) / 4) as i32,
        c: first.epilogue.a,
        d: first.epilogue.b,
        base_z: 0,
    };
    let accesses = [
        read(bias.id),
        read(residual.id),
        write(second.out.id),
        read(a.id),
        read(first.input.id),
        read(w.id),
        read(shift.id),
    ];
    let lanes = u32_of(counts.lanes)?;
    let tiles = out_y.div_ceil(tile_y) * out_x.div_ceil(tile_x);
    let down = second.out_channels.div_ceil(blocks.tile_m);
    let invocations = [tiles * counts.lanes, down, second.batch];
    e.dispatch(&pipeline, accesses, &push, invocations, [lanes, 1, 1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{DeviceFeatures, DeviceKind};
    use crate::encode::encode;
    use crate::passes;
    use crate::state::State;
    use std::collections::HashSet;
    use torchlet_core::ScalarType;
    use torchlet_graph::graph::{Graph, Tensor, Value};

    /// A separable convolution from `channels` channels to `outputs`.
    fn graph(batch: usize, channels: usize, outputs: usize, side: usize) -> Graph<'static> {
        let tensor = |sizes: &[usize], is_constant: bool| {
            let bytes = sizes.iter().product::<usize>() * 2;
            Value::Tensor(Tensor {
                scalar_type: ScalarType::Half,
                host_type: ScalarType::Half,
                sizes: sizes.to_vec(),
                dynamic: false,
                data: is_constant.then(|| vec![0; bytes].into()),
                changes: None,
            })
        };
        let ints = |item: i64| Value::IntList(vec![item; 2]);
        let values = vec![
            tensor(&[batch, channels, side, side], false),
            tensor(&[channels, 1, 3, 3], true),
            tensor(&[outputs, channels, 1, 1], true),
            Value::None,
            ints(1),
            ints(0),
            Value::Bool(false),
            Value::Int(channels as i64),
            Value::Int(1),
            tensor(&[batch, channels, side, side], false),
            tensor(&[batch, channels, side, side], false),
            tensor(&[batch, outputs, side, side], false),
        ];
        let nodes = vec![
            Node::new(Operator::CONVOLUTION, vec![0, 1, 3, 4, 4, 4, 6, 5, 7, 9]),
            Node::new(Operator::RELU, vec![9, 10]),
            Node::new(Operator::CONVOLUTION, vec![10, 2, 3, 4, 5, 4, 6, 5, 8, 11]),
        ];
        let mut graph =
            Graph { values, nodes, inputs: vec![0], outputs: vec![11], ..Graph::default() };
        passes::run(&mut graph);
        graph
    }

    fn shaders(graph: &Graph<'_>, kind: DeviceKind) -> Vec<&'static str> {
        let mut state = State::new(graph, HashSet::new()).unwrap();
        state.busy = kind.busy_invocations();
        state.features = DeviceFeatures::multiplying_halves();
        state.limits.shared = 48 << 10;
        let (steps, _) = encode(graph, &mut state, true).unwrap();
        let (again, _) = encode(graph, &mut state, false).unwrap();
        assert_eq!(steps.len(), again.len());
        steps.iter().map(|step| step.key.module.name).collect()
    }

    #[test]
    fn small_planes_take_one_dispatch() {
        let discrete = DeviceKind::Discrete;
        for (channels, outputs, side) in
            [(32, 16, 112), (144, 24, 56), (384, 64, 14), (960, 160, 7), (960, 320, 7)]
        {
            let graph = graph(1, channels, outputs, side);
            assert_eq!(shaders(&graph, discrete), ["convolution_separable"], "{channels}");
        }
        let many = graph(64, 960, 320, 14);
        assert_eq!(shaders(&many, discrete).len(), 2);
        assert_eq!(shaders(&graph(1, 144, 24, 56), DeviceKind::Cpu).len(), 2);
    }

    /// All batch sizes use the algorithm that was chosen for the largest one: another algorithm
    /// would need other memory and weights.
    #[test]
    fn batches_that_vary_go_one_way() {
        for (channels, outputs, side) in [(144, 24, 56), (384, 96, 14), (960, 160, 7)] {
            for most in [2, 4, 16, 64] {
                let mut graph = graph(most, channels, outputs, side);
                for value in [0, 9, 10, 11] {
                    let Value::Tensor(tensor) = &mut graph.values[value] else {
                        panic!("no tensor")
                    };
                    tensor.dynamic = true;
                }
                let mut state = State::new(&graph, HashSet::new()).unwrap();
                state.busy = DeviceKind::Discrete.busy_invocations();
                state.features = DeviceFeatures::multiplying_halves();
                state.limits.shared = 48 << 10;
                let planned = encode(&graph, &mut state, true).unwrap().0;
                for batch in [1, most - 1] {
                    state.tensors[0].as_mut().unwrap().sizes[0] = batch;
                    let steps = encode(&graph, &mut state, false).unwrap().0;
                    let same =
                        steps.iter().map(|step| &step.key).eq(planned.iter().map(|it| &it.key));
                    assert!(same, "{batch} of {most}, {channels}");
                }
            }
        }
    }

    /// A tensor that is one unbatched image for the first convolution may be a batch of rows for
    /// the second.
    #[test]
    fn convolutions_of_other_pictures_are_apart() {
        let mut graph = graph(1, 8, 16, 8);
        for (value, sizes) in [(0, vec![8, 8, 8]), (1, vec![8, 1, 3])] {
            let Value::Tensor(tensor) = &mut graph.values[value] else { panic!("no tensor") };
            tensor.data = (value == 1).then(|| vec![0; 48].into());
            tensor.sizes = sizes;
        }
        for value in [9, 10, 11] {
            let Value::Tensor(tensor) = &mut graph.values[value] else { panic!("no tensor") };
            tensor.sizes = vec![if value == 11 { 16 } else { 8 }, 8, 8];
        }
        graph.values[4] = Value::IntList(vec![1]);
        let Value::IntList(none) = &mut graph.values[5] else { panic!("no list") };
        none.truncate(1);
        for shader in shaders(&graph, DeviceKind::Discrete) {
            assert_ne!(shader, "convolution_separable");
        }
    }

    /// Workgroups and shared memory fit any device, and the constants satisfy the shader's
    /// assumptions.
    #[test]
    fn blocks_fit_any_device() {
        let pairs = [(32, 16, 112), (7, 5, 3), (144, 24, 56), (576, 160, 7), (961, 321, 9)];
        let windows = [(1, 1, 1), (3, 1, 1), (3, 2, 1), (5, 2, 1), (3, 1, 3), (7, 1, 1), (2, 3, 2)];
        for ((channels, outputs, side), (kernel, stride, dilation)) in
            pairs.into_iter().flat_map(|pair| windows.map(|window| (pair, window)))
        {
            for element in [Element::F32, Element::F16] {
                let pair = Pair {
                    batch: 1,
                    channels: [channels, outputs],
                    plane: [side; 2],
                    kernel: [kernel; 2],
                    stride: [stride; 2],
                    dilation: [dilation; 2],
                    padding_x: 1,
                    aligned: side % 4 == 0,
                    elements: [element; 2],
                };
                for shared in [16 << 10, 48 << 10] {
                    let ways = pair.ways(128, shared);
                    assert!(!ways.is_empty(), "{pair:?}");
                    for (_, blocks) in ways {
                        let counts = pair.counts(&blocks);
                        assert!(pair.shared_bytes(&blocks, &counts) <= shared as usize);
                        assert!(counts.lanes <= 256 && counts.quads <= counts.lanes);
                        assert!(counts.run_quads <= 5 && counts.taps <= 16);
                        assert_eq!(blocks.tile_m % blocks.rows, 0);
                        assert_eq!(blocks.channels % blocks.shares, 0);
                        assert!(blocks.channels * counts.turns >= channels);
                    }
                }
            }
        }
    }
}
