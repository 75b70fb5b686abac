//! GEMMs of floats with weights of regular shape, which the fast kernels support: constant weights
//! whose rows consist of whole words, quantized in groups of a power of two.
//!
//! GEMMs with few rows are memory-bound, so a GEMV kernel reads each weight once. GEMMs with many
//! rows are compute-bound, so they are tiled, and quantized weights are dequantized first.

use super::weighted::{WeightForm, Weighted, weighted};
use crate::derived::{Derived, Matrices, Transposed};
use crate::device::{DeviceFeature, MAX_INVOCATIONS, is_parallel};
use crate::encoder::{Access, Encoder, read, u32_of, write};
use crate::error::Error;
use crate::ops::gemm_rows::{FEW_ROWS, MIN_GROUPS};
use crate::ops::matmul::Product;
use crate::ops::normed::Norm;
use crate::ops::placing::Placing;
use crate::ops::tiling::{Factors, is_tiled};
use crate::stages::Epilogue;
use crate::tensors::Operand;
use torchlet_graph::graph::Node;
use torchlet_shaders::{
    Element, Gemv, GemvGated, GemvGatedPush, GemvPlaced, GemvPlacedPush, GemvPush, Pipeline as _,
    UnpackWeights, UnpackWeightsPush,
};

/// The number of weights of a row that an invocation multiplies at a time.
const AT_ONCE: usize = 8;

/// The maximum number of groups of four sums per invocation in GEMV kernels, over all matrices.
const MAX_SUMS: u32 = 4;

/// The maximum number of parts of each sum in shared memory.
const MAX_PARTS: usize = 128;

/// The maximum bytes of dequantized weights.
const MAX_UNPACKED: usize = 1 << 29;

/// Builds the push constants of GEMV kernels, with additional fields.
macro_rules! gemv_push {
    ($push:ident, $regular:expr, $product:expr, $norm:expr,
     {$($field:ident: $value:expr),* $(,)?}) => {
        $push {
            m: u32_of($product.m)?,
            n: u32_of($product.n)?,
            k: u32_of($product.k)?,
            weight_row: u32_of($product.weight_row)?,
            group_shift: $regular.group_shift,
            scale_row: u32_of($regular.scale_row)?,
            epsilon: $norm.map_or(0.0, |norm| norm.epsilon as f32),
            $($field: $value,)*
        }
    };
}

/// Builds the pipeline of a GEMV kernel, with additional fields.
macro_rules! gemv {
    ($pipeline:ident, $regular:expr, $split:expr, $product:expr, $norm:expr,
     {$($field:ident: $value:expr),* $(,)?}) => {
        $pipeline {
            input: source($product, $norm).element,
            scale: $regular.scales.element,
            norm: $norm.map_or(Element::F32, |norm| norm.weight.element),
            output: $product.out.element,
            weight: $product.form as u32,
            grouped: $regular.grouped,
            wide: $regular.wide($product).is_some(),
            has_norm: $norm.is_some(),
            quads: $split.quads,
            teams: $split.teams,
            staged: $split.staged,
            $($field: $value,)*
        }
    };
}

/// Returns the tensor that a GEMV reads: the input of a fused norm, or the input of the GEMV.
fn source<'o>(it: &'o Weighted, norm: Option<&'o Norm>) -> &'o Operand {
    norm.map_or(&it.input, |norm| &norm.input)
}

/// The division of a GEMV among invocations. Invocations that share the sums of the same weight
/// rows form a team.
#[derive(Clone, Copy)]
struct Split {
    /// The number of invocations of a team.
    lanes: u32,
    /// Groups of four neighbouring outputs per team.
    quads: u32,
    /// Teams per workgroup.
    teams: u32,
    /// The number of groups of eight input elements in shared memory, including gaps between them;
    /// 0 if each invocation reads the input from memory.
    staged: u32,
}

impl Split {
    /// Returns the number of invocations per workgroup.
    fn workgroup(self) -> u32 {
        self.lanes * self.teams
    }

    /// Returns the number of invocations per workgroup, and the number of workgroups.
    fn invocations(self, it: &Weighted) -> [usize; 2] {
        let tiles = it.n / 4 / (self.quads * self.teams) as usize;
        [self.workgroup() as usize, tiles.saturating_mul(it.m)]
    }
}

/// Whether quantized weights with these rows, columns and group size have a regular shape.
pub(crate) fn are_regular(rows: usize, columns: usize, group: usize) -> bool {
    rows.is_multiple_of(4)
        && columns.is_multiple_of(AT_ONCE)
        && (group >= columns || (group.is_power_of_two() && group >= AT_ONCE))
}

/// The scales and the maximum size of a GEMM with weights of regular shape.
pub(in crate::ops) struct Regular {
    grouped: bool,
    group_shift: u32,
    /// The scales, transposed to `[rows, groups]` if necessary, and the row length of that tensor.
    /// If weights are not grouped, the row length is 1.
    scales: Operand,
    scale_row: usize,
    /// The maximum number of rows.
    most_rows: usize,
}

impl Regular {
    /// Returns `None` if only the generic kernel supports the GEMM.
    pub(in crate::ops) fn of(
        e: &mut Encoder<'_, '_>,
        it: &Weighted,
    ) -> Result<Option<Self>, Error> {
        let bound = e.bound_sizes(&it.out);
        let most_rows = bound.split_last().map_or(1, |(_, rows)| rows.iter().product());
        if !it.form.is_quantized() {
            return Ok(Self::of_numbers(e, it, most_rows));
        }
        let grouped = it.k > it.group;
        let row_unit = if it.form == WeightForm::Bytes { AT_ONCE } else { AT_ONCE / 2 };
        let shape = are_regular(it.n, it.k, it.group)
            && it.weight_row.is_multiple_of(row_unit)
            && it.scales.element.is_floating()
            && it.bias.as_ref().is_none_or(|bias| bias.element.is_floating());
        if !shape {
            return Ok(None);
        }
        let (mut scales, mut scale_row) = (it.scales.clone(), 1);
        if grouped && it.scales_in_rows {
            scale_row = it.k / it.group;
        } else if grouped {
            let Some(source) = e.constant(scales.id) else { return Ok(None) };
            let groups = scales.numel() / it.scale_row.max(1);
            if groups.checked_mul(it.scale_row) != Some(scales.numel()) {
                return Ok(None);
            }
            let matrices = Matrices { count: 1, rows: groups, columns: it.scale_row };
            scale_row = matrices.pitch();
            scales = e.derived(Derived::Transposed(Transposed { source, matrices }))?;
        }
        let group_shift = if grouped { it.group.trailing_zeros() } else { 0 };
        Ok(Some(Regular { grouped, group_shift, scales, scale_row, most_rows }))
    }

    /// Describes a GEMM with unquantized weights. Returns `None` unless it has few rows, or tiles
    /// that read weights in this layout.
    fn of_numbers(e: &Encoder<'_, '_>, it: &Weighted, most_rows: usize) -> Option<Self> {
        let (scales, factors) = (it.scales.clone(), Factors::of(e, &it.input, &it.weight));
        let regular = Regular { grouped: false, group_shift: 0, scales, scale_row: 1, most_rows };
        let floating = [&it.input, &it.weight, &it.out].into_iter().chain(&it.bias);
        // Dynamic weight shapes would need other temporary tensors.
        let fixed = e.constant(it.weight.id).is_some() || !e.is_dynamic(&it.weight);
        let fits = fixed
            && it.n.is_multiple_of(4)
            && it.n > 0
            && floating.into_iter().all(|operand| operand.element.is_floating())
            && it.n.checked_mul(it.weight_row).is_some_and(|bytes| u32::try_from(bytes).is_ok())
            && regular.wide(it).is_some();
        // Software devices transpose rows within each tile. If only tiles use the weights, it is
        // better to transpose them once.
        let in_tiles = (e.is_dynamic(&it.out) || is_parallel(e.busy()))
            && is_tiled(e, factors, [1, most_rows, it.n, it.k]);
        (fits && (most_rows <= FEW_ROWS || in_tiles)).then_some(regular)
    }

    /// Chooses the division of a GEMV with this number of matrices and an optional fused norm.
    fn split(
        &self,
        e: &Encoder<'_, '_>,
        it: &Weighted,
        norm: Option<&Norm>,
        matrices: usize,
    ) -> Split {
        let lanes = self.lanes(it);
        if let Some((teams, staged)) = self.teams(e, it, norm, matrices) {
            return Split { lanes, quads: 1, teams, staged };
        }
        // As many outputs per team as leave enough work for the device, because they share one read
        // of the input and its norm.
        let invocations = (it.n / 4).saturating_mul(lanes as usize);
        let fits = |quads: &u32| {
            let quads = *quads as usize;
            it.n.is_multiple_of(4 * quads) && invocations / quads >= e.busy()
        };
        let most = MAX_SUMS / matrices as u32;
        let quads = [MAX_SUMS, MAX_SUMS / 2].into_iter().find(fits).unwrap_or(1).min(most);
        Split { lanes, quads, teams: 1, staged: 0 }
    }

    /// Returns the number of teams that share the input in shared memory, and the size of that
    /// memory in groups of eight elements. Returns `None` if each invocation reads the input from
    /// memory.
    fn teams(
        &self,
        e: &Encoder<'_, '_>,
        it: &Weighted,
        norm: Option<&Norm>,
        matrices: usize,
    ) -> Option<(u32, u32)> {
        let elements = self.wide(it)?;
        let (best, features) = (Gemv::BETTER.first()?, e.features());
        let halves = it.form.is_quantized()
            && features.have(best.features)
            && source(it, norm).element == Element::F16;
        // The shader identifies teams by subgroup invocation indices.
        if !halves || !features.has(DeviceFeature::FullSubgroups) {
            return None;
        }
        let staged = it.k / AT_ONCE + it.k / elements;
        let sums = matrices * MAX_PARTS * size_of::<[f32; 4]>() + MAX_PARTS * size_of::<f32>();
        if (staged + 1) * size_of::<[u32; 4]>() + sums > e.shared_memory() as usize {
            return None;
        }
        let quads = it.n / 4;
        let fits = |teams: &u32| {
            let (count, workgroup) = (*teams as usize, self.lanes(it) * teams);
            quads.is_multiple_of(count)
                && quads / count >= e.busy() / e.profile().gemv_invocations
                && workgroup <= MAX_INVOCATIONS
                && workgroup.is_multiple_of(features.subgroup_size)
                && workgroup / features.subgroup_size <= MAX_PARTS as u32
        };
        let teams = [8, 4, 2].into_iter().find(fits)?;
        Some((teams, u32::try_from(staged).ok()?))
    }

    /// Emits the GEMM. Returns `false` if no kernel exists for this many rows.
    pub(in crate::ops) fn encode(
        &self,
        e: &mut Encoder<'_, '_>,
        it: &Weighted,
        epilogue: &Epilogue,
        norm: Option<&Norm>,
    ) -> Result<bool, Error> {
        for operand in [&it.weight, &it.input, &it.out] {
            u32_of(operand.numel())?;
        }
        if it.m > FEW_ROWS {
            return self.many_rows(e, it, epilogue);
        }
        let (pipeline, split) = self.gemv(e, it, epilogue, norm);
        let push = gemv_push!(GemvPush, self, it, norm, { a: epilogue.a, b: epilogue.b });
        let input = source(it, norm);
        let residual = epilogue.residual.as_ref();
        let accesses = [
            read(input.id),
            read(it.weight.id),
            read(self.scales.id),
            read(it.bias.as_ref().unwrap_or(input).id),
            read(residual.unwrap_or(input).id),
            read(norm.map_or(input, |norm| &norm.weight).id),
            write(it.out.id),
        ];
        let workgroup = [split.workgroup(), 1];
        e.dispatch_along_y(&pipeline, accesses, &push, split.invocations(it), workgroup)?;
        Ok(true)
    }

    /// Returns the pipeline of the GEMV kernel, and the division of its work.
    fn gemv(
        &self,
        e: &Encoder<'_, '_>,
        it: &Weighted,
        epilogue: &Epilogue,
        norm: Option<&Norm>,
    ) -> (Gemv, Split) {
        let split = self.split(e, it, norm, 1);
        let residual = epilogue.residual.as_ref();
        let pipeline = gemv!(Gemv, self, split, it, norm, {
            activation: epilogue.activation,
            bias: it.bias.as_ref().map_or(Element::F32, |bias| bias.element),
            has_bias: it.bias.is_some(),
            residual: residual.map_or(Element::F32, |residual| residual.element),
            has_residual: residual.is_some(),
        });
        (pipeline, split)
    }

    /// Emits a GEMV whose rows are written to another tensor, and possibly rotated.
    pub(in crate::ops) fn place(
        &self,
        e: &mut Encoder<'_, '_>,
        it: &Weighted,
        norm: Option<&Norm>,
        placing: &Placing<'_>,
    ) -> Result<(), Error> {
        let mut split = self.split(e, it, norm, 1);
        if placing.in_pairs() && split.quads * split.teams == 1 {
            split.quads = 2;
        }
        let [cosine, sine] = placing.angles().unwrap_or([&it.input; 2]);
        let pipeline = gemv!(GemvPlaced, self, split, it, norm, {
            rotation: placing.form(),
            bias: it.bias.as_ref().map_or(Element::F32, |bias| bias.element),
            has_bias: it.bias.is_some(),
            angle: cosine.element,
        });
        let pipeline = GemvPlaced { output: placing.out.element, ..pipeline };
        for operand in [&it.weight, &it.input, placing.out] {
            u32_of(operand.numel())?;
        }
        let rotary = &placing.push;
        let push = gemv_push!(GemvPlacedPush, self, it, norm, {
            depth: rotary.depth,
            positions: rotary.positions,
            rotated: rotary.rotated,
            angle_row: rotary.angle_row,
            angle_head: rotary.angle_head,
            out_batch: rotary.out_batch,
            start: rotary.start,
            out_start: rotary.out_start,
        });
        let input = source(it, norm);
        let accesses = [
            read(input.id),
            read(it.weight.id),
            read(self.scales.id),
            read(it.bias.as_ref().unwrap_or(input).id),
            read(cosine.id),
            read(norm.map_or(input, |norm| &norm.weight).id),
            write(placing.out.id),
            read(sine.id),
        ];
        let workgroup = [split.workgroup(), 1];
        e.dispatch_along_y(&pipeline, accesses, &push, split.invocations(it), workgroup)
    }

    /// Returns the number of invocations per team.
    fn lanes(&self, it: &Weighted) -> u32 {
        // One iteration lasts as long as the memory latency, so the number of iterations should be
        // small. Two short iterations, however, are faster than twice as many invocations per sum.
        let turns = match self.wide(it) {
            Some(elements) => it.k / elements,
            None => (it.k / AT_ONCE).div_ceil(2),
        };
        turns.next_power_of_two().clamp(32, 128) as u32
    }

    /// Returns the number of weights in 16 bytes, if each invocation loads that many at a time and
    /// a row is long enough for all invocations of a subgroup.
    fn wide(&self, it: &Weighted) -> Option<usize> {
        let elements = it.form.in_16_bytes();
        let fits = it.k.is_multiple_of(elements)
            && it.weight_row.is_multiple_of(16)
            && (!self.grouped || it.group >= elements)
            && it.k / elements >= MIN_GROUPS;
        fits.then_some(elements)
    }

    /// Emits the GEMM for many rows. Returns `false` if no kernel supports it.
    fn many_rows(
        &self,
        e: &mut Encoder<'_, '_>,
        it: &Weighted,
        epilogue: &Epilogue,
    ) -> Result<bool, Error> {
        if !it.form.is_quantized() {
            self.in_tiles(e, it, epilogue, it.weight.clone())?;
            return Ok(true);
        }
        let element = it.input.element;
        let bytes = it.n.saturating_mul(it.k).saturating_mul(element.size());
        e.reserve(&self.scales);
        let tiled = is_tiled(e, [element; 2].into(), [1, self.most_rows, it.n, it.k]);
        if !tiled || bytes > MAX_UNPACKED {
            return Ok(false);
        }
        let unpacked = e.temporary(it.input.element, &[it.k, it.n])?;
        let push = UnpackWeightsPush {
            n: u32_of(it.n)?,
            k: u32_of(it.k)?,
            weight_row: u32_of(it.weight_row)?,
            group_shift: self.group_shift,
            scale_row: u32_of(self.scale_row)?,
        };
        u32_of(unpacked.numel())?;
        let pipeline = UnpackWeights {
            scale: self.scales.element,
            output: unpacked.element,
            weight: it.form as u32,
            grouped: self.grouped,
        };
        let accesses = [read(it.weight.id), read(self.scales.id), write(unpacked.id)];
        let invocations = [it.n / 4, it.k / AT_ONCE, 1];
        e.dispatch(&pipeline, accesses, &push, invocations, [16, 8, 1])?;
        self.in_tiles(e, it, epilogue, unpacked)?;
        Ok(true)
    }

    /// Emits a tiled GEMM with floating-point weights. Dequantized weights are stored in columns,
    /// others in rows.
    fn in_tiles(
        &self,
        e: &mut Encoder<'_, '_>,
        it: &Weighted,
        epilogue: &Epilogue,
        weights: Operand,
    ) -> Result<(), Error> {
        let mut product =
            Product::new(it.input.clone(), weights, it.out.clone(), [it.m, it.n, it.k]);
        product.b_transposed = !it.form.is_quantized();
        product.bias = it.bias.clone().map(|bias| (bias, 0, [0, 1]));
        product.epilogue = Some(epilogue.clone());
        product.bound = Some([1, self.most_rows, it.n]);
        product.never_few = true;
        product.encode(e)
    }
}

/// A gated pair of GEMVs: the activation of one multiplied by the other one, both of the same rows.
pub(in crate::ops) struct Gated {
    pipeline: GemvGated,
    push: GemvGatedPush,
    accesses: [Access; 6],
    invocations: [usize; 2],
    numel: usize,
}

/// Returns `None` if the kernel does not support these GEMVs or their number of rows.
pub(in crate::ops) fn gated(
    e: &mut Encoder<'_, '_>,
    products: [&Node; 2],
    epilogue: &Epilogue,
) -> Result<Option<Gated>, Error> {
    let [product, other] = products;
    let (it, other) = (weighted(e, product)?, weighted(e, other)?);
    let alike = it.is_of_floats()
        && [&it, &other].iter().all(|it| it.bias.is_none())
        && [it.m, it.n, it.k, it.weight_row, it.group]
            == [other.m, other.n, other.k, other.weight_row, other.group]
        && (it.form, it.input.id, it.out.element)
            == (other.form, other.input.id, other.out.element);
    let (Some(regular), Some(second)) = (Regular::of(e, &it)?, Regular::of(e, &other)?) else {
        return Ok(None);
    };
    let scales = [&regular.scales, &second.scales];
    if !alike || scales[0].element != scales[1].element || scales[0].sizes != scales[1].sizes {
        return Ok(None);
    }
    let norm = Norm::of(e, &it.input)?;
    let norm = norm.as_ref();
    let input = source(&it, norm);
    if it.m > FEW_ROWS {
        scales.into_iter().for_each(|scales| e.reserve(scales));
        return Ok(None);
    }
    let split = regular.split(e, &it, norm, 2);
    let pipeline = gemv!(GemvGated, regular, split, &it, norm, {
        activation: epilogue.activation,
    });
    for operand in [&it.weight, &other.weight, input, &it.out] {
        u32_of(operand.numel())?;
    }
    let accesses = [
        read(input.id),
        read(it.weight.id),
        read(scales[0].id),
        read(other.weight.id),
        read(scales[1].id),
        read(norm.map_or(input, |norm| &norm.weight).id),
    ];
    let push = gemv_push!(GemvGatedPush, regular, &it, norm, {
        a: epilogue.a,
        b: epilogue.b,
    });
    let (invocations, numel) = (split.invocations(&it), it.out.numel());
    Ok(Some(Gated { pipeline, push, accesses, invocations, numel }))
}

impl Gated {
    /// Returns the number of output elements.
    pub(in crate::ops) fn numel(&self) -> usize {
        self.numel
    }

    /// Emits the dispatch of the gated pair.
    pub(in crate::ops) fn emit(&self, e: &mut Encoder<'_, '_>, out: &Operand) -> Result<(), Error> {
        let [input, weight, scale, other, other_scale, norm] = self.accesses;
        let accesses = [input, weight, scale, other, other_scale, norm, write(out.id)];
        let lanes = u32_of(self.invocations[0])?;
        e.dispatch_along_y(&self.pipeline, accesses, &self.push, self.invocations, [lanes, 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{DeviceFeatures, DeviceKind};
    use crate::encode::encode;
    use crate::ops::testing::tensor;
    use crate::state::State;
    use crate::warmup;
    use std::collections::HashSet;
    use torchlet_core::ScalarType;
    use torchlet_graph::graph::{Graph, Value};
    use torchlet_graph::operators::Operator;

    const TEAMS: [DeviceFeature; 4] = [
        DeviceFeature::Float16Arithmetic,
        DeviceFeature::SubgroupArithmetic,
        DeviceFeature::SubgroupShuffle,
        DeviceFeature::FullSubgroups,
    ];

    /// Returns the invocations per workgroup, the number of teams, and the size in shared memory of
    /// a row of 512 fp16 values.
    fn split(columns: usize, features: &[DeviceFeature], subgroup: u32, shared: u32) -> [u32; 3] {
        let half = ScalarType::Half;
        let values = vec![
            tensor(half, &[1, 512], false),
            tensor(ScalarType::Char, &[columns, 512], true),
            tensor(half, &[columns], true),
            tensor(half, &[1, columns], false),
        ];
        let nodes = vec![Node::new(Operator::WEIGHT_INT8PACK_MM, vec![0, 1, 2, 3])];
        let graph = Graph { values, nodes, inputs: vec![0], outputs: vec![3], ..Graph::default() };
        let mut state = State::new(&graph, HashSet::new()).unwrap();
        state.features = DeviceFeatures::only(features, subgroup);
        (state.limits.shared, state.busy) = (shared, 1);
        let steps = encode(&graph, &mut state, true).unwrap().0;
        let key = &steps[0].key;
        assert!(key.module.name.starts_with("gemv"), "{}", key.module.name);
        let constant = |name| {
            let at = key.module.constants.iter().position(|constant| constant.name == name);
            key.constants[at.unwrap()]
        };
        [key.workgroup[0], constant("teams"), constant("staged")]
    }

    #[test]
    fn teams_share_a_row_where_the_device_and_the_columns_allow_it() {
        let shared = 1 << 14;
        let staged = 512 / 8 + 512 / 16;
        assert_eq!(split(64, &TEAMS, 32, shared), [256, 8, staged]);
        assert_eq!(split(24, &TEAMS, 32, shared), [64, 2, staged]);
        // Subgroups larger than a team.
        assert_eq!(split(64, &TEAMS, 64, shared), [256, 8, staged]);
        // Shared memory suffices for the sums of this many subgroups.
        assert_eq!(split(64, &TEAMS, 1, shared), [128, 4, staged]);
        let alone = [32, 1, 0];
        assert_eq!(split(20, &TEAMS, 32, shared), alone);
        assert_eq!(split(64, &TEAMS[..3], 32, shared), alone);
        assert_eq!(split(64, &TEAMS[1..], 32, shared), alone);
        // Subgroups that workgroups do not fill.
        assert_eq!(split(64, &TEAMS, 512, shared), alone);
        let needed = (staged + 1) * 16 + 128 * 16 + 128 * 4;
        assert_eq!(split(64, &TEAMS, 32, needed), [256, 8, staged]);
        assert_eq!(split(64, &TEAMS, 32, needed - 1), alone);
    }

    /// Returns the shaders of a GEMM with an unquantized `[36, width]` matrix and a dynamic number
    /// of rows: for `most`, 33, 3 and 1 rows.
    fn shaders(scalar_type: ScalarType, width: usize, most: usize) -> Vec<String> {
        let rows_of = |width| tensor(scalar_type, &[most, width], false);
        let mut values = vec![rows_of(width), tensor(scalar_type, &[36, width], true), rows_of(36)];
        for value in [0, 2] {
            if let Value::Tensor(tensor) = &mut values[value] {
                tensor.dynamic = true;
            }
        }
        let nodes = vec![Node::new(Operator::LINEAR, vec![0, 1, 2])];
        let graph = Graph { values, nodes, inputs: vec![0], outputs: vec![2], ..Graph::default() };
        let mut state = State::new(&graph, HashSet::new()).unwrap();
        state.busy = DeviceKind::Cpu.busy_invocations();
        encode(&graph, &mut state, true).unwrap();
        let made = warmup::pipelines(&graph, &state, usize::MAX);
        let mut found = Vec::new();
        for rows in [most, 33, 3, 1] {
            state.tensors[0].as_mut().unwrap().sizes[0] = rows;
            let steps = encode(&graph, &mut state, false).unwrap().0;
            assert_eq!(steps.len(), 1);
            let key = &steps[0].key;
            assert!(rows == most || rows == 33 || made.contains(key), "{rows} rows");
            found.push(key.module.name.to_owned());
        }
        found
    }

    #[test]
    fn few_rows_read_rows_of_weights_as_they_lie_where_tiles_do_too() {
        let rows = ["matmul_tiled", "matmul_tiled", "gemv", "gemv"];
        assert_eq!(shaders(ScalarType::Half, 264, 40), rows);
        assert_eq!(shaders(ScalarType::Float, 132, 40), rows);
        // Rows that are not aligned to 16 bytes, or too short for a subgroup.
        let columns = ["matmul_tiled", "matmul_tiled", "matmul", "matmul"];
        assert_eq!(shaders(ScalarType::Half, 260, 40), columns);
        assert_eq!(shaders(ScalarType::Float, 124, 40), columns);
    }
}
