//! Rewrites 3-D convolutions and pooling as 2-D ones, for processors that support only those.
//!
//! An output slice of a 3-D convolution is a 2-D convolution over several input slices, one per
//! kernel plane. A copy gathers these slices, grouped by channel, which is the order that the
//! weights have already, and the output depth becomes part of the batch. Max pooling is applied to
//! planes and then over the depth, and so is average pooling if all windows have the same number of
//! elements.
//!
//! Needs: fixed shapes. Runs where processors are known: a call is rewritten only if `takes`
//! rejects it and accepts its replacement. Keeps: kernels of more than 16 planes, pooling whose
//! indices are used, and averages over windows of different sizes. Rounding: sums are computed in
//! another order.

use super::rewrite::{Rewriter, each_call};
use super::uses::inputs;
use super::views::view_into;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::Operator;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Maximum kernel depth. Each kernel plane costs a copy of the input.
const DEEPEST: usize = 16;

/// Whether a processor supports a call.
type Takes<'t> = dyn FnMut(&Graph<'_>, &Node) -> bool + 't;

/// Rewrites 3-D calls as 2-D calls. `takes` decides whether the processor supports a call. Returns
/// the number of changes.
pub fn run(graph: &mut Graph<'_>, takes: &mut Takes<'_>) -> usize {
    each_call(graph, |rewriter, node| match node.operator {
        Operator::CONVOLUTION => convolution(rewriter, node, takes).is_some(),
        Operator::MAX_POOL3D_WITH_INDICES => largest(rewriter, node, takes).is_some(),
        Operator::AVG_POOL3D => mean(rewriter, node, takes).is_some(),
        _ => false,
    })
}

/// A parameter per dim: three values, or one for all dims.
fn three(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<[i64; 3]> {
    match *rewriter.ints(id)? {
        [all] => Some([all; 3]),
        [depth, height, width] => Some([depth, height, width]),
        _ => None,
    }
}

fn ints(rewriter: &mut Rewriter<'_, '_>, items: &[i64]) -> ValueId {
    rewriter.value(Value::IntList(items.to_vec()))
}

fn int(rewriter: &mut Rewriter<'_, '_>, value: i64) -> ValueId {
    rewriter.value(Value::Int(value))
}

/// Adds a view with these sizes.
fn view(rewriter: &mut Rewriter<'_, '_>, input: ValueId, sizes: &[usize]) -> Option<ValueId> {
    let known: Vec<i64> =
        sizes.iter().map(|size| i64::try_from(*size).ok()).collect::<Option<_>>()?;
    let (known, scalar_type) = (ints(rewriter, &known), rewriter.scalar_type(input)?);
    Some(rewriter.call_new(Operator::VIEW_COPY, &[input, known], scalar_type, sizes.to_vec()))
}

/// The sizes of a tensor of rank 5, if they are fixed.
fn volumes(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<[usize; 5]> {
    let tensor = rewriter.tensor(id).filter(|tensor| !tensor.dynamic)?;
    tensor.sizes[..].try_into().ok()
}

/// A 2-D convolution that replaces a 3-D one.
struct Planar {
    weight: ValueId,
    /// The sizes of the reshaped weights.
    weights: [usize; 4],
    /// The arguments after input and weights.
    rest: [ValueId; 7],
    made: ValueId,
}

impl Planar {
    /// Prepares the 2-D replacement of a convolution, if it is supported. The sizes are those of
    /// input, weights and result; `window` holds stride, padding and dilation.
    fn asked(
        rewriter: &mut Rewriter<'_, '_>,
        node: &Node,
        [sizes, weights, made]: [[usize; 4]; 3],
        window: [[i64; 2]; 3],
        takes: &mut Takes<'_>,
    ) -> Option<Self> {
        let (taken, out) = (inputs(node), *node.args.last()?);
        let &[input, weight, bias, _, _, _, _, _, groups] = taken else { return None };
        let input_like = rewriter.new_tensor(rewriter.scalar_type(input)?, sizes.to_vec());
        let made = rewriter.new_tensor(rewriter.scalar_type(out)?, made.to_vec());
        let [stride, padding, dilation] = window.map(|two| ints(rewriter, &two));
        let (no, none) = (rewriter.value(Value::Bool(false)), ints(rewriter, &[0, 0]));
        let rest = [bias, stride, padding, dilation, no, none, groups];
        let args = [&[input_like, weight], &rest[..]].concat();
        // The weights keep their data, with other sizes, so that constants are recognized.
        let flat = &mut |place: usize, tensor: &mut Tensor<'_>| {
            if place == 1 {
                tensor.sizes = weights.to_vec();
            }
            Some(())
        };
        let is_taken = rewriter.is_taken_once(Operator::CONVOLUTION, &args, made, flat, takes);
        is_taken.then_some(Planar { weight, weights, rest, made })
    }

    /// Adds the call, and returns its output.
    fn call(self, rewriter: &mut Rewriter<'_, '_>, input: ValueId) -> Option<ValueId> {
        let weight = view(rewriter, self.weight, &self.weights)?;
        let args = [&[input, weight], &self.rest[..]].concat();
        rewriter.call(Operator::CONVOLUTION, &args, self.made);
        Some(self.made)
    }
}

/// Rewrites a convolution over the depth alone: a 2-D convolution over depth and flattened plane
/// positions. Views of input and output suffice.
fn through_depth(
    rewriter: &mut Rewriter<'_, '_>,
    node: &Node,
    [step, margin, apart]: [i64; 3],
    takes: &mut Takes<'_>,
) -> Option<()> {
    let (&[input, weight, ..], out) = (inputs(node), *node.args.last()?) else { return None };
    let [batch, channels, depth, height, width] = volumes(rewriter, input)?;
    let [outs, of_group, kernel, _, _] = volumes(rewriter, weight)?;
    let [_, _, depth_out, _, _] = volumes(rewriter, out)?;
    let plane = height.checked_mul(width)?;
    let sizes = [batch, channels, depth, plane];
    let shapes = [sizes, [outs, of_group, kernel, 1], [batch, outs, depth_out, plane]];
    let window = [[step, 1], [margin, 0], [apart, 1]];
    let planar = Planar::asked(rewriter, node, shapes, window, takes)?;
    let input = view(rewriter, input, &sizes)?;
    let made = planar.call(rewriter, input)?;
    view_into(rewriter, made, out)
}

fn convolution(rewriter: &mut Rewriter<'_, '_>, node: &Node, takes: &mut Takes<'_>) -> Option<()> {
    let (taken, out) = (inputs(node), *node.args.last()?);
    let &[input, weight, _, stride, padding, dilation, transposed, ..] = taken else { return None };
    let [batch, channels, depth, height, width] = volumes(rewriter, input)?;
    let [outs, of_group, kernel, kernel_height, kernel_width] = volumes(rewriter, weight)?;
    let [_, _, depth_out, height_out, width_out] = volumes(rewriter, out)?;
    let scalar_type = rewriter.scalar_type(input)?;
    let [stride, padding, dilation] = [stride, padding, dilation].map(|id| three(rewriter, id));
    let ([step, stride @ ..], [margin, padding @ ..], [apart, dilation @ ..]) =
        (stride?, padding?, dilation?);
    // Padding as large as the kernel would be gathered and convolved in vain.
    let reach = i64::try_from(kernel).ok()?.checked_mul(apart)?;
    let fits = (1..=DEEPEST).contains(&kernel)
        && step > 0
        && apart > 0
        && (0..reach).contains(&margin)
        && depth_out > 0;
    if !fits
        || rewriter.flag(Some(&transposed), false)?
        || rewriter.is_taken(node.operator, taken, out, takes)
    {
        return None;
    }

    let pointwise = [kernel_height, kernel_width] == [1, 1]
        && [stride, padding, dilation] == [[1, 1], [0, 0], [1, 1]];
    if pointwise && through_depth(rewriter, node, [step, margin, apart], takes).is_some() {
        return Some(());
    }
    // Ask for support of the 2-D convolution before adding calls. Its input holds all slices that
    // it reads, grouped by channel.
    let planes = batch.checked_mul(depth_out)?;
    let stacked = [planes, channels.checked_mul(kernel)?, height, width];
    let weights = [outs, of_group.checked_mul(kernel)?, kernel_height, kernel_width];
    let shapes = [stacked, weights, [planes, outs, height_out, width_out]];
    let planar = Planar::asked(rewriter, node, shapes, [stride, padding, dilation], takes)?;

    let margins = usize::try_from(margin).ok()?.checked_mul(2)?;
    let padded = match margin {
        0 => input,
        _ => {
            let sizes = [batch, channels, depth.checked_add(margins)?, height, width];
            let (margins, zero) =
                (ints(rewriter, &[0, 0, 0, 0, margin, margin]), rewriter.value(Value::Double(0.0)));
            let args = [input, margins, zero];
            rewriter.call_new(Operator::CONSTANT_PAD_ND, &args, scalar_type, sizes.to_vec())
        }
    };
    // One copy gathers all slices: for each output slice and channel, as many as the kernel is
    // deep.
    let [plane, line] = [height.checked_mul(width)?, width].map(|it| i64::try_from(it).ok());
    let (plane, line) = (plane?, line?);
    let deep = i64::try_from(depth.checked_add(margins)?).ok()?;
    let channel = plane.checked_mul(deep)?;
    let volume = channel.checked_mul(i64::try_from(channels).ok()?)?;
    let strides = [volume, plane.checked_mul(step)?, channel, plane.checked_mul(apart)?, line, 1];
    let sizes = [batch, depth_out, channels, kernel, height, width];
    let known = sizes.map(|size| i64::try_from(size).unwrap_or(i64::MAX));
    let args = [padded, ints(rewriter, &known), ints(rewriter, &strides), int(rewriter, 0)];
    let ordered = rewriter.call_new(Operator::AS_STRIDED_COPY, &args, scalar_type, sizes.to_vec());
    let input = view(rewriter, ordered, &stacked)?;
    let made = planar.call(rewriter, input)?;
    let made = view(rewriter, made, &[batch, depth_out, outs, height_out, width_out])?;
    let order = ints(rewriter, &[0, 2, 1, 3, 4]);
    rewriter.call(Operator::PERMUTE_COPY, &[made, order], out);
    Some(())
}

fn largest(rewriter: &mut Rewriter<'_, '_>, node: &Node, takes: &mut Takes<'_>) -> Option<()> {
    let list = *node.args.last()?;
    let Some(Value::List(outs)) = rewriter.get(list) else { return None };
    let &[out, indices] = &outs[..] else { return None };
    if rewriter.uses(indices) > 0 {
        return None;
    }
    let dilation = inputs(node).get(4).copied();
    let dilation = match dilation {
        Some(id) => three(rewriter, id)?,
        None => [1; 3],
    };
    by_planes(rewriter, node, out, Some(dilation), takes)
}

fn mean(rewriter: &mut Rewriter<'_, '_>, node: &Node, takes: &mut Takes<'_>) -> Option<()> {
    let (taken, out) = (inputs(node), *node.args.last()?);
    let padding = match taken.get(3) {
        Some(id) if !rewriter.is_none(Some(id)) => three(rewriter, *id)?,
        _ => [0; 3],
    };
    let counts_padding = rewriter.flag(taken.get(5), true)? || padding == [0; 3];
    if !counts_padding || !rewriter.is_none(taken.get(6)) {
        return None;
    }
    by_planes(rewriter, node, out, None, takes)
}

/// Rewrites pooling as pooling over planes, followed by pooling over the depth. `dilation` is
/// present for max pooling.
fn by_planes(
    rewriter: &mut Rewriter<'_, '_>,
    node: &Node,
    out: ValueId,
    dilation: Option<[i64; 3]>,
    takes: &mut Takes<'_>,
) -> Option<()> {
    let taken = inputs(node);
    let (input, kernel) = (*taken.first()?, three(rewriter, *taken.get(1)?)?);
    let or = |id: Option<&ValueId>, none: [i64; 3]| match id {
        Some(id) if !rewriter.is_none(Some(id)) && !rewriter.ints(*id)?.is_empty() => {
            three(rewriter, *id)
        }
        _ => Some(none),
    };
    let (stride, padding) = (or(taken.get(2), kernel)?, or(taken.get(3), [0; 3])?);
    let ceil = taken.get(if dilation.is_some() { 5 } else { 4 });
    if rewriter.flag(ceil, false)?
        || rewriter.is_taken(node.operator, taken, *node.args.last()?, takes)
    {
        return None;
    }
    let [batch, channels, depth, height, width] = volumes(rewriter, input)?;
    let [_, _, depth_out, height_out, width_out] = volumes(rewriter, out)?;
    let scalar_type: ScalarType = rewriter.scalar_type(out)?;
    let (rows, plane) = (batch.checked_mul(channels)?, height_out.checked_mul(width_out)?);
    let operator = match dilation {
        Some(_) => Operator::MAX_POOL2D,
        None => Operator::AVG_POOL2D,
    };
    // First over the last two dims, then over the first one with a second dim that stays unchanged.
    let over = |of: [i64; 3], alone: i64| [[of[1], of[2]], [of[0], alone]];
    let (kernel, stride, padding) = (over(kernel, 1), over(stride, 1), over(padding, 0));
    let dilation = dilation.map(|dilation| over(dilation, 1));
    let mut args = [Vec::new(), Vec::new()];
    for (turn, args) in args.iter_mut().enumerate() {
        let all = [Some(kernel), Some(stride), Some(padding), dilation];
        for two in all.into_iter().flatten() {
            args.push(ints(rewriter, two.get(turn)?));
        }
        args.push(rewriter.value(Value::Bool(false)));
        if dilation.is_none() {
            args.push(rewriter.value(Value::Bool(true)));
            args.push(rewriter.value(Value::None));
        }
    }
    let [over_planes, over_depth] = args;
    let shapes = [
        [rows, depth, height, width],
        [rows, depth, height_out, width_out],
        [rows, 1, depth, plane],
        [rows, 1, depth_out, plane],
    ];
    let like = shapes.map(|sizes| rewriter.new_tensor(scalar_type, sizes.to_vec()));
    let both = [([like[0], like[1]], &over_planes), ([like[2], like[3]], &over_depth)];
    for ([input, out], args) in both {
        if !rewriter.is_taken(operator, &[&[input], &args[..]].concat(), out, takes) {
            return None;
        }
    }
    let [planes, pooled, lines, last] = shapes;
    let input = view(rewriter, input, &planes)?;
    let args = [&[input], &over_planes[..]].concat();
    let input = rewriter.call_new(operator, &args, scalar_type, pooled.to_vec());
    let input = view(rewriter, input, &lines)?;
    let args = [&[input], &over_depth[..]].concat();
    let made = rewriter.call_new(operator, &args, scalar_type, last.to_vec());
    let sizes = rewriter.sizes(out)?.iter().map(|size| i64::try_from(*size).ok());
    let sizes: Vec<i64> = sizes.collect::<Option<_>>()?;
    let sizes = ints(rewriter, &sizes);
    rewriter.call(Operator::VIEW_COPY, &[made, sizes], out);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::text;
    use alloc::format;
    use alloc::string::String;

    /// A processor that supports only calls whose first argument has rank 4.
    fn takes(graph: &Graph<'_>, node: &Node) -> bool {
        let first = node.args.first().and_then(|id| graph.values.get(*id));
        matches!(first, Some(Value::Tensor(tensor)) if tensor.sizes.len() == 4)
    }

    fn numbers(count: usize) -> String {
        let all = (0..count).map(|at| format!("{}", (at * 7919 % 1009) as f32 / 512.0 - 1.0));
        all.collect::<Vec<_>>().join(" ")
    }

    /// Operators after the pass. Asserts that the results are unchanged.
    fn rewritten(text: &str) -> Vec<&'static str> {
        let mut whole = text::parse(text);
        crate::lower::portable::run(&mut whole).unwrap();
        let mut graph = text::after(text, |graph| run(graph, &mut takes));
        let operators = text::operators(&graph);
        crate::lower::portable::run(&mut graph).unwrap();
        let outputs = [whole, graph].map(|graph| crate::testing::outputs(&graph, &[]).concat());
        let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-4;
        assert_eq!(outputs[0].len(), outputs[1].len());
        assert!(outputs[0].iter().zip(&outputs[1]).all(near), "{outputs:?}");
        operators
    }

    #[test]
    fn convolutions_are_those_of_planes() {
        for (weights, sizes, rest, depth) in [
            (216, "4,2,3,3,3", "[1,1,1], [1,1,1], [1,1,1], false, [0,0,0], 1", "5,4,6"),
            (96, "4,2,3,2,2", "[2,1,2], [0,1,0], [1,1,1], false, [0,0,0], 1", "2,5,3"),
            (24, "4,1,3,1,2", "[1,2,1], [2,0,0], [2,1,1], false, [0,0,0], 2", "5,2,5"),
            (8, "4,2,1,1,1", "[1], [0], [1], false, [0], 1", "5,4,6"),
            (24, "4,2,3,1,1", "[2,1,1], [2,0,0], [2,1,1], false, [0], 1", "3,4,6"),
            (8, "4,2,1,1,1", "[1,2,1], [0], [1], false, [0], 1", "5,2,6"),
        ] {
            let text = format!(
                "const x f32[2,2,5,4,6] = {}
                 const w f32[{sizes}] = {}
                 const b f32[4] = 1 2 3 4
                 y f32[2,4,{depth}] = aten.convolution.default(x, w, b, {rest})
                 out y",
                numbers(480),
                numbers(weights)
            );
            let operators = rewritten(&text);
            // Over the depth alone, views suffice.
            let is_along_depth = sizes.ends_with(",1,1") && !rest.starts_with("[1,2,1]");
            let copies = operators.contains(&"aten.as_strided_copy.default");
            assert_eq!(copies, !is_along_depth, "{operators:?}");
        }
    }

    #[test]
    fn pooling_is_that_of_planes() {
        for (call, sizes) in [
            ("aten.avg_pool3d.default(x, [2,2,3], [1,2,3], [1,0,1], false, true, none)", "6,2,2"),
            ("aten.avg_pool3d.default(x, [2], [], [0], false, false, none)", "2,2,3"),
        ] {
            let y = format!("y f32[2,2,{sizes}] = {call}");
            let x = format!("const x f32[2,2,5,4,6] = {}", numbers(480));
            let operators = rewritten(&[&x, &y[..], "out y"].join("\n"));
            assert_eq!(operators.iter().filter(|name| name.contains("avg_pool2d")).count(), 2);
        }
        let x = format!("const x f32[2,2,5,4,6] = {}", numbers(480));
        let largest = "[y f32[2,2,3,3,4], i i64[2,2,3,3,4]] = \
            aten.max_pool3d_with_indices.default(x, [3,2,3], [2,1,1], [1,0,0], [1,1,1], false)";
        let operators = rewritten(&[&x, largest, "out y"].join("\n"));
        assert_eq!(operators.iter().filter(|name| name.contains("max_pool2d")).count(), 2);
    }

    #[test]
    fn what_planes_do_not_make_stays() {
        let kept = |text: &str| {
            let graph = text::after(text, |graph| run(graph, &mut takes));
            text::operators(&graph).len() == 1
        };
        let x = "in x f32[1,2,5,4,6]";
        // Windows with fewer elements at the edge, used indices, an explicit divisor.
        let edges = "y f32[1,2,6,5,7] = aten.avg_pool3d.default(x, [2,2,2], [1,1,1], [1,1,1], \
            false, false, none)";
        assert!(kept(&[x, edges, "out y"].join("\n")));
        let divided = "y f32[1,2,4,3,5] = aten.avg_pool3d.default(x, [2,2,2], [1,1,1], [0,0,0], \
            false, true, 5)";
        assert!(kept(&[x, divided, "out y"].join("\n")));
        let indices = "[y f32[1,2,4,3,5], i i64[1,2,4,3,5]] = \
            aten.max_pool3d_with_indices.default(x, [2,2,2], [1,1,1], [0,0,0], [1,1,1], false)";
        assert!(kept(&[x, indices, "out y i"].join("\n")));
        let transposed = "const w f32[2,3,1,1,1] = 0.5
            y f32[1,3,5,4,6] = aten.convolution.default(x, w, none, [1,1,1], [0,0,0], [1,1,1], \
                true, [0,0,0], 1)";
        assert!(kept(&[x, transposed, "out y"].join("\n")));
        let deep = "in d f32[1,1,500,1,1]
            const w f32[1,1,400,1,1] = 0.5
            y f32[1,1,101,1,1] = aten.convolution.default(d, w, none, [1,1,1], [0,0,0], [1,1,1], \
                false, [0,0,0], 1)";
        assert!(kept(&[deep, "out y"].join("\n")));
        let apart = "const w f32[1,2,2,1,1] = 0.5
            y f32[1,1,1000004,4,6] = aten.convolution.default(x, w, none, [1,1,1], [500000,0,0], \
                [1,1,1], false, [0,0,0], 1)";
        assert!(kept(&[x, apart, "out y"].join("\n")));
    }
}
