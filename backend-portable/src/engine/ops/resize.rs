//! What makes pictures larger: borders of one number, and repeated pixels.

use super::moves::copy;
use super::{argument, output};
use crate::compute::gemm::ShapeMismatch;
use crate::engine::builder::{Builder, Refusal};
use crate::engine::plan::{Io, Step};
use std::vec::Vec;
use torchlet_graph::graph::{Value, ValueId};

/// `constant_pad_nd(self, pad, value)`: the elements before and behind each dimension, from the last one on.
pub(super) fn pad(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let input = builder.view(argument(args, 0)?)?;
    let pads = builder.integers(argument(args, 1)?)?;
    let value = builder.optional_number(argument(args, 2)?)?.unwrap_or(0.0) as f32;
    let (pads, []) = pads.as_chunks::<2>() else { return Err("a border of one side".into()) };
    if pads.len() > input.sizes.len() {
        return Err("more dimensions than it has".into());
    }
    // What is left of the input, the shape of the result, and where it goes there.
    let (mut kept, mut sizes) = (input.clone(), input.sizes.clone());
    let mut places = Vec::new();
    for (dim, [before, behind]) in (0..input.sizes.len()).rev().zip(pads) {
        let size = sizes.get(dim).copied().unwrap_or(0);
        let cut = |pad: i64| usize::try_from(pad.saturating_neg()).unwrap_or(0);
        let added = |pad: i64| usize::try_from(pad).unwrap_or(0);
        let end = size.saturating_sub(cut(*behind));
        kept = kept.sliced(dim, cut(*before), end, 1).ok_or("a border that leaves nothing")?;
        let own = end - cut(*before);
        let all = own.checked_add(added(*before)).and_then(|all| all.checked_add(added(*behind)));
        if let Some(slot) = sizes.get_mut(dim) {
            *slot = all.ok_or("a border that is too large")?;
        }
        places.push((dim, added(*before), own));
    }
    if sizes == kept.sizes {
        return builder.define(output(args)?, kept);
    }
    let result = builder.make_in_order(&sizes, &input.order())?;
    let mut inside = result.clone();
    for (dim, start, len) in places {
        let end = start.checked_add(len).ok_or("a border that is too large")?;
        inside = inside.sliced(dim, start, end, 1).ok_or("a border that is too large")?;
    }
    builder.push(Fill { value }, &[], &result);
    copy(builder, &kept, &inside);
    builder.define(output(args)?, result)
}

/// The same number everywhere.
struct Fill {
    value: f32,
}

impl Step for Fill {
    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        io.out.fill(self.value);
        Ok(())
    }
}

/// `upsample_nearest2d(input, output_size, scale_factors)`, where each pixel comes as often as the others.
pub(super) fn nearest(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let input = builder.view(argument(args, 0)?)?;
    let &[batch, channels, height, width] = &input.sizes[..] else {
        return Err("the engine makes batches of pictures larger".into());
    };
    let sizes = builder.integers(argument(args, 1)?)?;
    let factors: &[f64] = match builder.value(argument(args, 2)?) {
        Value::DoubleList(factors) => factors,
        _ => &[],
    };
    let mut times = [1usize; 2];
    for (dim, (slot, size)) in times.iter_mut().zip([height, width]).enumerate() {
        let (all, scale) = match (sizes.get(dim), factors.get(dim)) {
            (Some(all), _) => (usize::try_from(*all).unwrap_or(0), size as f32 / *all as f32),
            (None, Some(factor)) => ((size as f64 * factor) as usize, (1.0 / factor) as f32),
            (None, None) => return Err("neither sizes nor factors".into()),
        };
        *slot = all / size.max(1);
        // As the kernel finds the pixel that each takes.
        let is_even = (0..all).all(|at| (at as f32 * scale) as usize == at / (*slot).max(1));
        if *slot == 0 || *slot * size != all || !is_even {
            return Err("pixels that come more often than others".into());
        }
    }
    let [tall, wide] = times;
    let sizes = [batch, channels, height * tall, width * wide];
    let result = builder.make_in_order(&sizes, &input.order())?;
    let apart = [batch, channels, height, tall, width, wide];
    let target = result.reshaped(&apart).ok_or("pixels that do not come apart")?;
    let source = input.reshaped(&[batch, channels, height, 1, width, 1]);
    let source = source.and_then(|source| source.expanded(&apart));
    copy(builder, &source.ok_or("pixels that do not come apart")?, &target);
    builder.define(output(args)?, result)
}
