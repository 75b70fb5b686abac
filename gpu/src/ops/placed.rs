//! GEMVs whose kernel rotates the result or writes it to a cache: queries, keys and values of
//! language models.
//!
//! For few rows, the separate dispatch of a rotation or cache update costs only launch overhead.
//! The GEMV is therefore fused into the call that reads its result. The GEMV kernel rotates the
//! rows and writes them to their final location.

use super::caches;
use super::gemm_rows::FEW_ROWS;
use super::normed::Norm;
use super::placing::Placing;
use super::quantized::{Regular, Weighted, weighs_floats, weighted};
use crate::encoder::Encoder;
use crate::error::Error;
use crate::stages::Epilogue;
use crate::state::LateFusion;
use crate::tensors::Operand;
use torchlet_graph::graph::{Node, ValueId};
use torchlet_graph::operators::Operator;
use torchlet_shaders::{GemvPlaced, Pipeline};

/// The maximum number of views between a GEMV and its reader.
const MAX_VIEWS: usize = 4;

/// If the current call is a GEMV of few rows, fuses it into the call that reads its result. The
/// largest shape decides whether that call supports it.
pub(super) fn leave(e: &mut Encoder<'_, '_>, it: &Weighted, norm: Option<&Norm>) -> bool {
    if !e.operator().is_ok_and(weighs_floats) || !e.can_run(&GemvPlaced::MODULE) {
        return false;
    }
    // Constants are available at any time.
    let constant = [&it.weight, &it.scales].into_iter().chain(&it.bias);
    let able = it.is_of_floats()
        && (e.is_dynamic(&it.out) || it.m <= FEW_ROWS)
        && constant.into_iter().all(|operand| e.is_constant(operand.id));
    let inputs = norm.map_or_else(|| vec![&it.input], |norm| vec![&norm.input, &norm.weight]);
    let takes =
        |e: &Encoder<'_, '_>, node: &Node, place| able && caches::places(e, node, place, it);
    leave_to(e, LateFusion::Gemv, (&it.out, 0), &inputs, takes)
}

/// If an output of the current call has only one reader, directly or through views, fuses the
/// output into that call. `takes` returns whether the reader supports this, given its argument
/// index. The reader then reads `inputs` instead.
pub(super) fn leave_to(
    e: &mut Encoder<'_, '_>,
    fusion: LateFusion,
    out: (&Operand, usize),
    inputs: &[&Operand],
    takes: impl Fn(&Encoder<'_, '_>, &Node, usize) -> bool,
) -> bool {
    e.leave(fusion, out, inputs, |e| {
        let Taker { call, place, views } = taker(e, out.0)?;
        takes(e, call, place).then_some(views)
    })
}

/// The only call that reads a value, directly or through views.
struct Taker<'e> {
    call: &'e Node,
    /// The index of the argument that is the value or the last view of it.
    place: usize,
    views: Vec<ValueId>,
}

fn taker<'e>(e: &Encoder<'e, '_>, value: &Operand) -> Option<Taker<'e>> {
    let mut value = value.clone();
    let mut views = Vec::new();
    loop {
        let [call] = e.readers(value.value)[..] else { return None };
        let mut places = call.args.iter().enumerate().filter(|(_, arg)| **arg == value.value);
        let (place, _) = places.next()?;
        if places.next().is_some() || !call.parts.is_empty() {
            return None;
        }
        if !is_view(call.operator) {
            return Some(Taker { call, place, views });
        }
        let view = e.tensor(*call.args.last()?).ok()?;
        if place > 0 || view.element != value.element || views.len() == MAX_VIEWS {
            return None;
        }
        views.push(view.value);
        value = view;
    }
}

/// Whether the output of an operator has the elements of its input in the same order.
fn is_view(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::VIEW_COPY
            | Operator::UNSQUEEZE_COPY
            | Operator::SQUEEZE_COPY_DIM
            | Operator::SQUEEZE_COPY_DIMS
    )
}

/// If a value is the result of a GEMV that was fused into its readers, or a view of that result,
/// returns the GEMV.
fn left<'e>(e: &Encoder<'e, '_>, value: &Operand) -> Option<&'e Node> {
    e.left(e.whole(value)?, LateFusion::Gemv).map(|(call, _)| call)
}

/// Returns the tensors that the fused GEMV of `value` reads; empty if no GEMV was fused.
pub(super) fn read_by_left(
    e: &mut Encoder<'_, '_>,
    value: &Operand,
) -> Result<Vec<Operand>, Error> {
    let Some(call) = left(e, value) else { return Ok(Vec::new()) };
    let of_norm = e.prologue(e.ends(&call.args)?.0);
    let read = of_norm.map_or(call.args.get(..1), |norm| norm.args.get(..2));
    read.unwrap_or_default().iter().map(|id| e.tensor(*id)).collect()
}

/// If `value` is the result of a fused GEMV, emits the GEMV so that it writes to the target
/// `placing`. Returns `false` if no GEMV was fused. Also returns `false` if the kernel does not
/// support the target; the GEMV then writes `value`.
pub(super) fn place(
    e: &mut Encoder<'_, '_>,
    value: &Operand,
    placing: &Placing<'_>,
) -> Result<bool, Error> {
    let Some(call) = left(e, value) else { return Ok(false) };
    let columns = e.out(&call.args)?.sizes.last().copied().unwrap_or(1);
    if !e.is_planning() && value.numel() / columns.max(1) > FEW_ROWS {
        return Ok(false);
    }
    let it = weighted(e, call)?;
    let norm = Norm::of(e, &it.input)?;
    let norm = norm.as_ref();
    let Some(regular) = Regular::of(e, &it)? else { return Ok(false) };
    // For all shapes, the inputs must still be alive here, and the output must be alive already.
    [&it.input, &it.out].into_iter().for_each(|operand| e.reserve(operand));
    if it.m > FEW_ROWS {
        return Ok(false);
    }
    if placing.fits(&it) {
        regular.place(e, &it, norm, placing)?;
        return Ok(true);
    }
    // The head size differs from the one for which memory was planned.
    regular.encode(e, &it, &Epilogue::none(), norm)?;
    Ok(false)
}

#[cfg(test)]
mod tests {
    use crate::device::{DeviceFeature, DeviceFeatures, DeviceKind};
    use crate::encode::encode;
    use crate::ops::testing::tensor;
    use crate::state::State;
    use crate::warmup;
    use std::collections::HashSet;
    use torchlet_core::ScalarType;
    use torchlet_graph::graph::{Graph, Node, Tensor, Value, ValueId};
    use torchlet_graph::operators::Operator;
    use torchlet_shaders::{GemvPlaced, Pipeline};

    const FLOAT: ScalarType = ScalarType::Float;

    /// A graph that multiplies up to `most` rows of 128 elements by a 64 × 128 weight, views the
    /// result as eight heads of 8, and rotates it. With `other`, another call also reads the
    /// product.
    fn graph(most: usize, other: bool) -> Graph<'static> {
        let dynamic = |sizes: &[usize]| match tensor(FLOAT, sizes, false) {
            Value::Tensor(tensor) => Value::Tensor(Tensor { dynamic: true, ..tensor }),
            other => other,
        };
        let values = vec![
            dynamic(&[most, 128]),
            tensor(FLOAT, &[64, 128], true),
            dynamic(&[most, 64]),
            Value::IntList(vec![1, -1, 8, 4, 2]),
            dynamic(&[1, most, 8, 4, 2]),
            dynamic(&[most, 1, 4]),
            Value::Int(0),
            dynamic(&[1, most, 8, 4, 2]),
            dynamic(&[most, 64]),
        ];
        let calls: [(Operator, &[ValueId]); 3] = [
            (Operator::LINEAR, &[0, 1, 2]),
            (Operator::VIEW_COPY, &[2, 3, 4]),
            (Operator::ROTARY, &[4, 5, 5, 6, 7]),
        ];
        let mut nodes = calls.map(|(operator, args)| Node::new(operator, args.to_vec())).to_vec();
        nodes.extend(other.then(|| Node::new(Operator::ABS, vec![2, 8])));
        let outputs = if other { vec![7, 8] } else { vec![7] };
        Graph { values, nodes, inputs: vec![0, 5], outputs, ..Graph::default() }
    }

    /// Returns the shaders for each number of rows, if memory is planned for the maximum.
    fn shaders(
        graph: &Graph<'_>,
        features: &[DeviceFeature],
        rows: &[usize],
    ) -> Vec<Vec<&'static str>> {
        shaders_of(graph, features, GemvPlaced::MODULE.bindings, rows)
    }

    /// Returns these shaders for a device that limits the number of buffers of a shader.
    fn shaders_of(
        graph: &Graph<'_>,
        features: &[DeviceFeature],
        buffers: usize,
        rows: &[usize],
    ) -> Vec<Vec<&'static str>> {
        let mut state = State::new(graph, HashSet::new()).unwrap();
        state.features = DeviceFeatures::only(features, 32);
        state.limits.buffers = buffers as u32;
        state.busy = DeviceKind::Cpu.busy_invocations();
        let planned = encode(graph, &mut state, true).unwrap().0;
        let mut made = warmup::pipelines(graph, &state, usize::MAX);
        made.extend(planned.into_iter().map(|step| step.key));
        let with = |rows: &usize| {
            state.tensors[0].as_mut().unwrap().sizes[0] = *rows;
            state.tensors[5].as_mut().unwrap().sizes[0] = *rows;
            let (steps, _) = encode(graph, &mut state, false).unwrap();
            // All pipelines were created at load time.
            for step in &steps {
                let key = &step.key;
                assert!(made.contains(key), "{rows} rows: {} {:?}", key.module.name, key.constants);
            }
            steps.iter().map(|step| step.key.module.name).collect()
        };
        rows.iter().map(with).collect()
    }

    const SUBGROUPS: [DeviceFeature; 1] = [DeviceFeature::SubgroupArithmetic];

    #[test]
    fn products_of_few_rows_rotate_them() {
        let found = shaders(&graph(64, false), &SUBGROUPS, &[64, 5, 4, 1]);
        let apart = ["matmul_tiled", "rotary"];
        assert_eq!(found, [&apart[..], &apart[..], &["gemv_placed"], &["gemv_placed"]]);
    }

    #[test]
    fn where_fewer_buffers_are_bound_rotations_are_apart() {
        let placed = GemvPlaced::MODULE.bindings;
        assert_eq!(placed, 9, "eight, and one for changing parameters");
        let found = shaders_of(&graph(64, false), &SUBGROUPS, placed - 1, &[64, 4, 1]);
        let few = &["gemv_subgroups", "rotary"][..];
        assert_eq!(found, [&["matmul_tiled", "rotary"][..], few, few]);
    }

    #[test]
    fn what_may_be_overwritten_meanwhile_is_multiplied_where_it_was() {
        let mut computed = graph(64, false);
        if let Value::Tensor(weights) = &mut computed.values[1] {
            (weights.data, weights.dynamic) = (None, false);
        }
        computed.inputs.push(1);
        assert_eq!(shaders(&computed, &SUBGROUPS, &[1]), [["gemv_subgroups", "rotary"]]);
    }

    /// A rotation of two batches of two rows, viewed as `batches` batches and written to a cache.
    fn stored(batches: usize) -> Vec<&'static str> {
        let rows = 4 / batches;
        let values = vec![
            tensor(FLOAT, &[2, 2, 4, 4, 2], false),
            tensor(FLOAT, &[2, 1, 4], false),
            Value::Int(0),
            tensor(FLOAT, &[2, 2, 4, 4, 2], false),
            Value::IntList(vec![batches as i64, rows as i64, 4, 8]),
            tensor(FLOAT, &[batches, rows, 4, 8], false),
            tensor(FLOAT, &[batches, 10, 4, 8], true),
        ];
        let calls: [(Operator, &[ValueId]); 3] = [
            (Operator::ROTARY, &[0, 1, 1, 2, 3]),
            (Operator::VIEW_COPY, &[3, 4, 5]),
            (Operator::UPDATE_CACHE, &[5, 6, 2, 6]),
        ];
        let nodes = calls.map(|(operator, args)| Node::new(operator, args.to_vec())).to_vec();
        let graph =
            Graph { values, nodes, inputs: vec![0, 1], outputs: vec![6], ..Graph::default() };
        let mut state = State::new(&graph, HashSet::from([6])).unwrap();
        let (steps, _) = encode(&graph, &mut state, true).unwrap();
        steps.iter().map(|step| step.key.module.name).collect()
    }

    #[test]
    fn rotated_rows_are_stored_as_they_are_counted_there() {
        // The cache is copied first, since its old contents stay visible.
        assert_eq!(stored(2)[1..], ["rotary"]);
        assert_eq!(stored(1)[1..], ["rotary", "overwrite"]);
    }

    #[test]
    fn rotations_stay_where_others_take_the_product_or_devices_cannot_add_up() {
        let found = shaders(&graph(64, true), &SUBGROUPS, &[1]);
        assert_eq!(found, [["gemv_subgroups", "rotary", "unary"]]);
        assert_eq!(shaders(&graph(64, false), &[], &[1]), [["gemv", "rotary"]]);
    }
}
