//! Matrix multiplication (GEMM) for all operators: the choice of a kernel, and the division of its
//! work.
//!
//! Small GEMMs and those with few rows use a kernel in which each invocation reads its operands
//! from memory. A GEMM whose number of rows is dynamic uses this kernel whenever it has few rows,
//! such as for the next token after a prompt. All other GEMMs are tiled, with operands staged in
//! shared memory. If the tiles are too few to saturate the device, several workgroups share the
//! terms of a tile (split-K). The last workgroup to finish, or another dispatch, adds up their
//! sums.

use super::gemm_rows::FEW_ROWS;
use super::tiling::{Constraints, Factors, Shape, Tiling};
use super::window::{Depth, Window, checked_numel};
use crate::device::MAX_GROUPS;
use crate::encoder::{Encoder, u32_of};
use crate::error::Error;
use crate::stages::Epilogue;
use crate::tensors::Operand;

/// A matrix multiplication to encode: `out[m][n] = epilogue(alpha * sum of a[m][k] * b[k][n] +
/// beta * bias)` for each batch.
#[derive(Debug)]
pub(super) struct Product {
    a: Operand,
    b: Operand,
    pub(super) out: Operand,
    m: usize,
    n: usize,
    k: usize,
    pub(super) batches: usize,
    /// The number of batches after which `a` and the bias repeat.
    pub(super) period: Option<usize>,
    /// Whether `a` is `[k][m]`, as returned by [`transposed`](super::weights::transposed).
    pub(super) a_transposed: bool,
    /// Whether `b` is `[n][k]`. Only tiled GEMMs ([`is_tiled`](super::tiling::is_tiled)) with many
    /// rows support this.
    pub(super) b_transposed: bool,
    /// The bias, its batch stride, and its row and column strides.
    pub(super) bias: Option<(Operand, usize, [usize; 2])>,
    pub(super) alpha: f64,
    pub(super) beta: f64,
    /// An epilogue that replaces that of the call.
    pub(super) epilogue: Option<Epilogue>,
    /// The maximum numbers of batches, rows and columns, which determine the kernel. `None` if they
    /// equal the current ones.
    pub(super) bound: Option<[usize; 3]>,
    /// Whether another kernel computes the GEMM when it has few rows.
    pub(super) never_few: bool,
    /// The constants for normalising the rows of `a` while they are loaded
    /// ([`Normed`](crate::derived::Normed)). Only some tilings support this ([`Tiling::normed`]).
    pub(super) norm: Option<Operand>,
    /// If present, `b` contains images, and their windows are the columns of the second operand
    /// (implicit GEMM). Only tiled GEMMs ([`is_tiled`]) support this.
    pub(super) windows: Option<Windows>,
}

/// The windows of an image as the columns of a matrix, whose rows are the channels and their taps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows {
    /// The window in the dims of rows and columns.
    pub(super) window: [Window; 2],
    /// Rows and columns of the image.
    pub(super) size: [usize; 2],
    /// The number of elements of an image, over all channels.
    pub(super) picture: usize,
    /// The number of windows down and across.
    pub(super) count: [usize; 2],
    /// The depth dim of 3D convolutions.
    pub(super) depth: Option<Depth>,
}

/// Builds the pipeline of a GEMM kernel: the constants of bias and epilogue, which all GEMM kernels
/// share, and additional ones.
macro_rules! constants {
    ($pipeline:ident of $product:expr, $epilogue:expr, $bias:expr, $out:expr,
     {$($field:ident: $value:expr),* $(,)?}) => {
        $pipeline {
            bias: $bias.element,
            output: $out.element,
            out_aligned: $product.n.is_multiple_of(4),
            has_bias: $product.bias.is_some(),
            activation: $epilogue.activation,
            residual: $epilogue.residual.as_ref().map_or(Element::F32, |residual| residual.element),
            has_residual: $epilogue.residual.is_some(),
            $($field: $value,)*
        }
    };
}

/// Builds the push constants of a GEMM kernel: those that all GEMM kernels share, and additional
/// ones.
macro_rules! push {
    ($push:ident of $common:expr, {$($field:ident: $value:expr),* $(,)?}) => {
        $push {
            m: $common.m,
            n: $common.n,
            bias_batch: $common.bias_batch,
            period: $common.period,
            bias_row: $common.bias_row,
            bias_column: $common.bias_column,
            alpha: $common.alpha,
            beta: $common.beta,
            a: $common.a,
            b: $common.b,
            $($field: $value,)*
        }
    };
}

mod plain;
mod tiles;

use plain::Plain;

/// The algorithm of a GEMM.
#[derive(Debug, Clone, Copy)]
enum Way {
    Tiles(Tiling),
    Plain(Plain),
}

impl Way {
    /// Returns alternatives for autotuning; those of an untiled GEMM include these tiles.
    fn others(&self, bound: Shape, shared: u32, tiles: Option<Tiling>, halves: bool) -> Vec<Self> {
        match self {
            Way::Tiles(tiling) => {
                tiling.others(bound, shared).into_iter().map(Way::Tiles).collect()
            }
            Way::Plain(plain) => {
                let whole = tiles.map(|tiling| Tiling { splits: 1, ..tiling });
                let whole = whole.filter(|whole| tiles != Some(*whole));
                let in_tiles = tiles.into_iter().chain(whole).map(Way::Tiles);
                plain.others(bound, halves).into_iter().map(Way::Plain).chain(in_tiles).collect()
            }
        }
    }
}

/// The push constants common to all GEMM kernels.
struct Common {
    m: u32,
    n: u32,
    bias_batch: u32,
    period: u32,
    bias_row: u32,
    bias_column: u32,
    alpha: f32,
    beta: f32,
    a: f32,
    b: f32,
}

/// The row and batch strides of the operands.
struct Pitches {
    a: usize,
    b: usize,
    a_batch: usize,
    b_batch: usize,
}

impl Product {
    pub(super) fn new(a: Operand, b: Operand, out: Operand, [m, n, k]: [usize; 3]) -> Self {
        Product {
            a,
            b,
            out,
            m,
            n,
            k,
            batches: 1,
            period: None,
            a_transposed: false,
            b_transposed: false,
            bias: None,
            alpha: 1.0,
            beta: 1.0,
            epilogue: None,
            bound: None,
            never_few: false,
            windows: None,
            norm: None,
        }
    }

    /// Emits the dispatches of the GEMM.
    pub(super) fn encode(mut self, e: &mut Encoder<'_, '_>) -> Result<(), Error> {
        let bias = self.bias.as_ref().map(|bias| &bias.0);
        for operand in [Some(&self.a), Some(&self.b), Some(&self.out), bias].into_iter().flatten() {
            checked_numel(&operand.sizes)?;
            if !operand.element.is_floating() {
                return Err(Error::unsupported(format!(
                    "GEMM with a tensor of type {:?}; expected floating point",
                    operand.element
                )));
            }
        }
        if self.batches * self.m * self.n == 0 {
            return Ok(());
        }
        // With other shapes, a single dispatch may read memory that several dispatches write now.
        // The output must therefore not overlap the inputs.
        e.reserve(&self.out);
        let epilogue = self.epilogue.take().or_else(|| e.take_epilogue());
        let epilogue = epilogue.unwrap_or_else(Epilogue::none);
        let [batches, m, n] = self.bound.unwrap_or([self.batches, self.m, self.n]);
        let [a_sizes, b_sizes] = [&self.a, &self.b].map(|factor| e.bound_sizes(factor));
        let k = if self.a_transposed { None } else { a_sizes.last().copied() };
        let (k, windows) = (k.unwrap_or(self.k), self.windows.is_some());
        // Alignment is derived from the largest shape, too. If rows of the current shape are
        // unaligned, the tiles are the same, but each load has fewer elements.
        let rows = self.rows([batches, m, n, k], [&a_sizes, &b_sizes]);
        let octets = rows.iter().all(|pitch| pitch.is_multiple_of(8));
        let varies = e.is_dynamic(&self.out);
        let bound = Shape { batches, m, n, k, windows, octets, varies };
        let may_be_few = !windows && !self.a_transposed && !self.b_transposed && !self.never_few;
        if varies && m > FEW_ROWS && may_be_few && self.m <= FEW_ROWS {
            let few = Shape { m: if self.m == 1 { 1 } else { FEW_ROWS }, ..bound };
            let (pipeline, workgroup) = self.few(e, &epilogue, few)?;
            return self.plain(e, &epilogue, &pipeline, workgroup);
        }
        let factors = Factors::of(e, &self.a, &self.b);
        let (halves, means) = (self.has_wide_halves(), Constraints::of(e, factors));
        let (busy, shared) = (e.busy(), e.shared_memory());
        let (way, tiles) = match Tiling::of(bound, &means) {
            Some(tiling) => (Way::Tiles(tiling), None),
            None if windows || self.b_transposed => {
                return Err(Error::unsupported(
                    "an untiled GEMM of windows, or with a transposed operand",
                ));
            }
            None => {
                let tiles = Tiling::of_any(bound, &means);
                (Way::Plain(Plain::of(bound, busy, halves)), tiles)
            }
        };
        let orders = [self.a_transposed, self.b_transposed];
        let question = (factors, self.out.element, orders, bound, self.windows);
        if self.norm.is_some() {
            let missing = || Error::unsupported("an untiled GEMM with a fused layer norm");
            let tiling = Tiling::normed(bound, &means).ok_or_else(missing)?;
            let others = |tiling: &Tiling| tiling.others_normed(bound, shared);
            let tiling = e.choose(&self.out, (question, "normed"), tiling, others);
            return self.in_tiles(e, &epilogue, bound, tiling);
        }
        match e.choose(&self.out, question, way, |way| way.others(bound, shared, tiles, halves)) {
            Way::Tiles(tiling) => self.in_tiles(e, &epilogue, bound, tiling),
            Way::Plain(plain) => {
                let (pipeline, workgroup) = self.plain_pipeline(&epilogue, bound, plain)?;
                self.plain(e, &epilogue, &pipeline, workgroup)
            }
        }
    }

    /// Returns the row strides of operands with these shapes.
    fn rows(&self, [batches, m, n, k]: [usize; 4], [a, b]: [&[usize]; 2]) -> [usize; 2] {
        let first = match self.a_transposed {
            true => a.last().copied().unwrap_or(m),
            false => k,
        };
        let second = match b.last() {
            _ if self.b_transposed => k,
            // Transposed weights are padded.
            Some(pitch) if *pitch >= n && b.len() == 3 && batches == 1 => *pitch,
            _ => n,
        };
        [first, second]
    }

    fn pitches(&self) -> Pitches {
        let (m, n, k) = (self.m, self.n, self.k);
        let [a, b] = self.rows([self.batches, m, n, k], [&self.a.sizes, &self.b.sizes]);
        let a_batch = if self.a_transposed { k * a } else { m * k };
        let b_rows = if self.b_transposed { n } else { k };
        let b_batch = self.windows.map_or(b_rows * b, |windows| windows.picture);
        Pitches { a, b, a_batch, b_batch }
    }

    fn common(&self, epilogue: &Epilogue) -> Result<Common, Error> {
        let (bias_batch, [bias_row, bias_column]) =
            self.bias.as_ref().map_or((0, [0, 0]), |(_, batch, strides)| (*batch, *strides));
        Ok(Common {
            m: u32_of(self.m)?,
            n: u32_of(self.n)?,
            bias_batch: u32_of(bias_batch)?,
            period: u32_of(self.period.unwrap_or(self.batches).max(1))?,
            bias_row: u32_of(bias_row)?,
            bias_column: u32_of(bias_column)?,
            alpha: self.alpha as f32,
            beta: self.beta as f32,
            a: epilogue.a,
            b: epilogue.b,
        })
    }

    /// Returns the bias, or any tensor for the unused binding.
    fn bias_or<'p>(&'p self, other: &'p Operand) -> &'p Operand {
        self.bias.as_ref().map_or(other, |bias| &bias.0)
    }
}

/// The numbers of invocations that may share a sum. Few choices keep the number of pipelines small.
pub(super) const SHARES: [usize; 3] = [64, 16, 4];

/// Chooses the number of invocations that share a sum over `count` terms. `tiles` times that number
/// does not exceed the number of invocations that saturate the device.
pub(super) fn share(busy: usize, tiles: usize, count: usize, choices: [usize; 3]) -> usize {
    let worthwhile = |shares: usize| {
        tiles.saturating_mul(shares) <= busy && count >= shares.saturating_mul(MIN_TERMS)
    };
    choices.into_iter().find(|shares| worthwhile(*shares)).unwrap_or(1)
}

/// The minimum number of terms that each invocation adds up.
const MIN_TERMS: usize = 8;

/// Returns the size of a workgroup for `across` by `down` tiles, in which `shares` invocations in z
/// share a sum.
pub(super) fn workgroup(across: usize, down: usize, shares: usize) -> [u32; 3] {
    match (shares, across > 1, down > 1) {
        // A number of rows beyond the workgroup limit of devices.
        (1, true, true) if down.div_ceil(4) > MAX_GROUPS => [1, 64, 1],
        (1, true, true) => [16, 4, 1],
        (1, _, false) => [64, 1, 1],
        (1, false, true) => [1, 64, 1],
        (4, true, true) => [16, 2, 4],
        (4, _, false) => [32, 1, 4],
        (4, false, true) => [1, 32, 4],
        (16, true, _) => [8, 1, 16],
        (16, false, _) => [1, 8, 16],
        (32, true, _) => [4, 1, 32],
        (32, false, _) => [1, 4, 32],
        (_, true, _) => [2, 1, 64],
        (_, false, _) => [1, 2, 64],
    }
}

#[cfg(test)]
mod tests {
    use crate::device::{DeviceFeatures, DeviceKind};
    use crate::encode::encode;
    use crate::state::State;
    use crate::steps::Step;
    use crate::warmup;
    use std::collections::HashSet;
    use torchlet_core::ScalarType;
    use torchlet_graph::graph::{Graph, Node, Tensor, Value};
    use torchlet_graph::operators::Operator;
    use torchlet_shaders::{MatmulPush, PushConstants};

    fn tensor(scalar_type: ScalarType, dynamic: bool, sizes: &[usize]) -> Value<'static> {
        Value::Tensor(Tensor {
            scalar_type,
            host_type: scalar_type,
            sizes: sizes.to_vec(),
            dynamic,
            data: None,
            changes: None,
        })
    }

    /// A graph of one GEMM: two operands and a result.
    fn of_two(operator: Operator, values: Vec<Value<'static>>) -> Graph<'static> {
        let nodes = vec![Node::new(operator, vec![0, 1, 2])];
        Graph { values, nodes, inputs: vec![0, 1], outputs: vec![2], ..Graph::default() }
    }

    /// A GEMM that has as many tiles as counters, with several workgroups per tile.
    #[test]
    fn products_of_any_number_of_tiles_are_shared() {
        let tensor = |sizes: [usize; 2]| tensor(ScalarType::Float, false, &sizes);
        let side = |tiles: usize| tiles * 64;
        for [across, down] in [[31, 33], [32, 32], [41, 25]] {
            let (m, n, k) = (side(down), side(across), 2048);
            let graph = of_two(Operator::MM, vec![tensor([m, k]), tensor([k, n]), tensor([m, n])]);
            let mut state = State::new(&graph, HashSet::new()).unwrap();
            state.busy = 1 << 19;
            let (steps, _) = encode(&graph, &mut state, true).unwrap();
            assert_eq!(steps.len(), 1);
            // Several workgroups share a tile, and the last one adds up their sums.
            assert!(steps[0].groups[2] > 1);
        }
    }

    /// Encodes a tiled fp16 GEMM.
    fn tiled(sizes: [usize; 3], dynamic: [bool; 2]) -> Step {
        let [m, n, k] = sizes;
        let tensor = |dynamic, sizes: [usize; 2]| tensor(ScalarType::Half, dynamic, &sizes);
        let graph = of_two(
            Operator::MM,
            vec![
                tensor(dynamic[0], [m, k]),
                tensor(dynamic[1], [k, n]),
                tensor(dynamic[0], [m, n]),
            ],
        );
        let mut state = State::new(&graph, HashSet::new()).unwrap();
        state.busy = DeviceKind::Discrete.busy_invocations();
        state.features = DeviceFeatures::multiplying_halves();
        state.features.subgroup_size = 32;
        state.limits.shared = 48 << 10;
        let mut steps = encode(&graph, &mut state, true).unwrap().0;
        assert_eq!(steps[0].key.module.name, "matmul_cooperative");
        steps.swap_remove(0)
    }

    /// Returns a specialisation constant of the pipeline by name.
    fn constant(step: &Step, name: &str) -> u32 {
        let key = &step.key;
        let place = key.module.constants.iter().position(|field| field.name == name).unwrap();
        key.constants[place]
    }

    #[test]
    fn splits_without_terms_bring_nothing() {
        let mut without = 0;
        let sides = [[64, 2016], [197, 768], [96, 1344]];
        let ks = || (384..1024).step_by(64);
        for ([m, n], k) in sides.into_iter().flat_map(|sides| ks().map(move |k| (sides, k))) {
            let step = tiled([m, n, k], [false; 2]);
            let (splits, of_step) = (step.groups[2] as usize, constant(&step, "tile_k"));
            let terms = k.div_ceil(splits).next_multiple_of(of_step as usize);
            if (splits - 1) * terms >= k {
                without += 1;
                assert_eq!(constant(&step, "a_direct"), 0, "{m}×{k} · {k}×{n}");
            }
        }
        assert!(without > 0);
    }

    #[test]
    fn addresses_are_found_once_where_steps_are_whole() {
        let factors = |sizes, dynamic| {
            let step = tiled(sizes, dynamic);
            ["a_direct", "b_direct", "unguarded"].map(|name| constant(&step, name))
        };
        assert_eq!(factors([4096, 4096, 4096], [false; 2]), [1, 1, 1]);
        assert_eq!(factors([512, 8192, 2048], [false; 2]), [1, 1, 0], "not wide");
        assert_eq!(factors([512, 8192, 2048], [true, false]), [1, 1, 0], "rows vary");
        assert_eq!(factors([512, 8192, 2048], [true; 2]), [0, 0, 0], "terms may vary");
        assert_eq!(factors([4096, 4096, 4104], [false; 2]), [0, 0, 0], "part of a step");
        assert_eq!(factors([512, 4092, 2048], [false; 2])[1..], [0, 0], "unaligned rows");
    }

    /// If more matrices exist than devices support in z, they are split into several dispatches of
    /// one pipeline. Each has the index of its first batch.
    #[test]
    fn batches_are_dispatched_in_turns() {
        let tensor = |sizes: [usize; 3]| tensor(ScalarType::Float, true, &sizes);
        let graph = of_two(
            Operator::BMM,
            vec![tensor([140_000, 2, 3]), tensor([140_000, 3, 2]), tensor([140_000, 2, 2])],
        );
        let mut state = State::new(&graph, HashSet::new()).unwrap();
        let planned = encode(&graph, &mut state, true).unwrap().0;
        assert_eq!(planned.len(), 3);
        for (batches, expected) in [
            (140_000, vec![(0, 65_535), (65_535, 65_535), (131_070, 8930)]),
            (65_536, vec![(0, 65_535), (65_535, 1)]),
            (65_535, vec![(0, 65_535)]),
            (1, vec![(0, 1)]),
        ] {
            for input in 0..2 {
                state.tensors[input].as_mut().unwrap().sizes[0] = batches;
            }
            let steps = encode(&graph, &mut state, false).unwrap().0;
            assert!(steps.iter().all(|step| step.key == planned[0].key));
            let place = <MatmulPush as PushConstants>::BASE_Z.unwrap();
            let found: Vec<(u32, u32)> = steps
                .iter()
                .map(|step| (*step.parameters[place..].first_chunk().unwrap(), step.groups[2]))
                .map(|(first, count)| (u32::from_le_bytes(first), count))
                .collect();
            assert_eq!(found, expected, "{batches}");
        }
    }

    /// More rows than the workgroup limit, each with few columns, for example the pixels of an
    /// image.
    #[test]
    fn many_rows_have_workgroups_for_more_of_them() {
        for (rows, workgroup) in [(2_000_000, [16, 4, 1]), (8_294_400, [1, 64, 1])] {
            let tensor = |sizes: [usize; 2]| tensor(ScalarType::Half, false, &sizes);
            let graph =
                of_two(Operator::MM, vec![tensor([rows, 3]), tensor([3, 8]), tensor([rows, 8])]);
            let mut state = State::new(&graph, HashSet::new()).unwrap();
            state.limits.tensor = u64::MAX;
            let (steps, _) = encode(&graph, &mut state, true).unwrap();
            assert_eq!((steps.len(), steps[0].key.workgroup), (1, workgroup), "{rows}");
        }
    }

    #[test]
    fn rows_that_stay_many_have_no_pipelines_for_few() {
        let tensor = |sizes: [usize; 2]| tensor(ScalarType::Half, false, &sizes);
        let graph = of_two(
            Operator::MM,
            vec![tensor([512, 2048]), tensor([2048, 2048]), tensor([512, 2048])],
        );
        let mut state = State::new(&graph, HashSet::new()).unwrap();
        encode(&graph, &mut state, true).unwrap();
        assert!(warmup::pipelines(&graph, &state, usize::MAX).is_empty());
    }

    /// The next token after a prompt uses another kernel than the prompt. Its pipeline is created
    /// at load time.
    #[test]
    fn few_rows_of_what_may_be_many_have_no_tiles() {
        let tensor = |sizes: [usize; 2], dynamic| tensor(ScalarType::Half, dynamic, &sizes);
        for kind in [DeviceKind::Discrete, DeviceKind::Cpu] {
            let graph = of_two(
                Operator::MM,
                vec![
                    tensor([512, 2048], true),
                    tensor([2048, 2048], false),
                    tensor([512, 2048], true),
                ],
            );
            let mut state = State::new(&graph, HashSet::new()).unwrap();
            state.busy = kind.busy_invocations();
            let (steps, _) = encode(&graph, &mut state, true).unwrap();
            assert_eq!(steps[0].key.module.name, "matmul_tiled");
            let made = warmup::pipelines(&graph, &state, usize::MAX);
            for rows in [1, 2, 3, 4, 5] {
                state.tensors[0].as_mut().unwrap().sizes[0] = rows;
                let (steps, _) = encode(&graph, &mut state, false).unwrap();
                let key = &steps[0].key;
                let few = key.module.name == "matmul";
                assert_eq!((steps.len(), few), (1, rows <= 4), "{rows}: {}", key.module.name);
                assert!(made.contains(key), "{rows}");
                if rows == 1 && kind == DeviceKind::Discrete {
                    assert_eq!(key.workgroup, [4, 1, 64]);
                }
            }
        }
    }

    /// The planned memory suffices for the tiles of fewer rows, and few rows do not use large
    /// tiles.
    #[test]
    fn large_tiles_are_for_many_rows_and_others_stay_possible() {
        let tensor = |sizes: [usize; 2], dynamic| tensor(ScalarType::Half, dynamic, &sizes);
        for (busy, most, n) in [(1 << 16, 512, 8192), (1 << 16, 511, 2048), (1 << 20, 4096, 4096)] {
            let k = 4096;
            let graph = of_two(
                Operator::MM,
                vec![tensor([most, k], true), tensor([k, n], false), tensor([most, n], true)],
            );
            let mut state = State::new(&graph, HashSet::new()).unwrap();
            state.busy = busy;
            state.features = DeviceFeatures::multiplying_halves();
            state.limits.shared = 48 << 10;
            let planned = encode(&graph, &mut state, true).unwrap().0;
            let used = planned.iter().flat_map(|step| &step.accesses).map(|it| it.tensor);
            let reserved = state.reserved.iter().map(|(_, tensor)| *tensor);
            let placed: HashSet<_> = used.chain(reserved).collect();
            let made = warmup::pipelines(&graph, &state, usize::MAX);
            for rows in [most, most / 2 + 1, 300, 200, 129, 64, 33, 20, 5] {
                state.tensors[0].as_mut().unwrap().sizes[0] = rows;
                let steps = encode(&graph, &mut state, false).unwrap().0;
                let large = steps[0].key.workgroup == [256, 1, 1];
                assert_eq!(large, rows == most || (large && rows > 85), "{rows} of {most}");
                for step in &steps {
                    assert!(made.contains(&step.key), "{rows} of {most}");
                    let accesses = step.accesses.iter();
                    assert!(accesses.clone().all(|it| placed.contains(&it.tensor)), "{rows}");
                }
            }
        }
    }

    /// Dynamic shapes use the tiles of the largest shape, for which memory is planned.
    #[test]
    fn smaller_factors_need_no_other_intermediate_tensors() {
        let tensor = |sizes: [usize; 3]| tensor(ScalarType::Half, true, &sizes);
        for most in [256, 384, 512] {
            let (weights, values) = (tensor([12, most, most]), tensor([12, most, 64]));
            let graph = of_two(Operator::BMM, vec![weights, values.clone(), values]);
            let mut state = State::new(&graph, HashSet::new()).unwrap();
            state.busy = DeviceKind::Discrete.busy_invocations();
            state.features = DeviceFeatures::multiplying_halves();
            let steps = encode(&graph, &mut state, true).unwrap().0.len();
            for keys in [77, 128, 250] {
                let sizes = [[12, keys, keys], [12, keys, 64]];
                for (input, sizes) in sizes.into_iter().enumerate() {
                    state.tensors[input].as_mut().unwrap().sizes = sizes.to_vec();
                }
                let found = encode(&graph, &mut state, false).unwrap().0.len();
                assert_eq!(found, steps, "{keys} of {most}");
            }
        }
    }
}
