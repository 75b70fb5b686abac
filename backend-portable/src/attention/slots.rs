//! State with a slot for each of several sequences.

use crate::index::Indices;
use crate::shape::{bad, contiguous, of_type, same_type, updated};
use crate::table::kernels;
use torchlet_core::Param::{Int, OptionalTensor, Out, Tensor};
use torchlet_core::{
    Invoke, Kernel, KernelError, Plan, Prepare, ScalarType, TensorInfo, TensorRef,
};

kernels! { SLOTS:
    /// `torchlet::slots_put.out(state, slots, positions, value, dim, out)`: a copy of `state`
    /// `[slot, ...]` in which row `i` of `value` replaces the contents of slot `slots[i]`. With
    /// `positions` `[row, n]`, row `i` replaces only the positions `positions[i]` of dim `dim`,
    /// which counts the dims of a slot.
    SLOTS_PUT_OUT = Kernel::new(
        "torchlet::slots_put.out",
        &[Tensor, Tensor, OptionalTensor, Tensor, Int, Out],
        |ctx| {
            let info = ctx.info(0)?;
            ctx.resize(5, &info.sizes)?;
            same_type(ctx, 0, 5)?;
            Shape::of(ctx)?;
            Ok(Plan::new(put))
        },
    )
    .updating(5, 0);
}

/// Returns the slots of an argument, which are distinct.
pub(super) fn checked<'c>(
    slots: &TensorRef<'c>,
    arg: usize,
    count: usize,
) -> Result<&'c [i64], KernelError> {
    let list: &[i64] = slots.data()?;
    for (at, slot) in list.iter().enumerate() {
        if !usize::try_from(*slot).is_ok_and(|slot| slot < count) {
            return Err(bad(arg, "slot is out of range"));
        }
        // Few rows run at a time, so this is fast.
        if list.get(..at).is_some_and(|before| before.contains(slot)) {
            return Err(bad(arg, "expected distinct slots"));
        }
    }
    Ok(list)
}

/// Sizes of a write: `rows` values to slots, each of `outer` groups of `length` vectors.
struct Shape {
    slots: usize,
    rows: usize,
    outer: usize,
    /// Number of positions in a slot, and in a value.
    capacity: usize,
    length: usize,
    /// Bytes of a vector.
    vector: usize,
}

impl Shape {
    fn of(ctx: &mut Prepare) -> Result<Self, KernelError> {
        for arg in [0, 1, 3] {
            contiguous(arg, &ctx.info(arg)?)?;
        }
        same_type(ctx, 3, 0)?;
        let (info, slots, value) = (ctx.info(0)?, ctx.info(1)?, ctx.info(3)?);
        of_type(1, &slots, ScalarType::Long)?;
        let positions = ctx.optional_info(2)?;
        if let Some(positions) = &positions {
            of_type(2, positions, ScalarType::Long)?;
            contiguous(2, positions)?;
        }
        let dim = ctx.int(4)?;
        Shape::new(&info, &slots, positions.as_ref(), &value, dim)
    }

    fn new(
        info: &TensorInfo,
        slots: &TensorInfo,
        positions: Option<&TensorInfo>,
        value: &TensorInfo,
        dim: i64,
    ) -> Result<Self, KernelError> {
        if slots.rank() != 1 {
            return Err(KernelError::rank(1, slots.rank()));
        }
        let (rows, rank) = (slots.size(0), info.rank());
        if rank == 0 || value.rank() != rank || value.size(0) != rows {
            return Err(bad(3, "expected the shape of the state, with a row for each slot"));
        }
        // Without positions, a slot is a single vector.
        let dim = match positions {
            None => 0,
            Some(_) => usize::try_from(dim)
                .ok()
                .and_then(|dim| dim.checked_add(1))
                .filter(|dim| *dim < rank)
                .ok_or(bad(4, "dim is out of range"))?,
        };
        if (1..rank).any(|at| at != dim && value.size(at) != info.size(at)) {
            return Err(bad(3, "expected the shape of the state, with a row for each slot"));
        }
        let (capacity, length) = match positions {
            None => (1, 1),
            Some(positions) => {
                let length = value.size(dim);
                if positions.rank() != 2 || positions.size(0) != rows || positions.size(1) != length
                {
                    return Err(bad(
                        2,
                        "expected a position for each row and position of the value",
                    ));
                }
                (info.size(dim), length)
            }
        };
        let product = |dims: core::ops::Range<usize>| {
            dims.map(|dim| info.size(dim)).try_fold(1usize, usize::checked_mul)
        };
        let large = || bad(0, "shape is too large");
        let outer = if dim == 0 { Some(1) } else { product(1..dim) };
        let vector = product(dim + 1..rank)
            .and_then(|count| count.checked_mul(info.scalar_type.size()))
            .ok_or_else(large)?;
        let outer = outer.ok_or_else(large)?;
        Ok(Shape { slots: info.size(0), rows, outer, capacity, length, vector })
    }
}

fn put(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (slots, value) = (ctx.tensor(1)?, ctx.tensor(3)?);
    let (info, positions) = (ctx.info(0)?, ctx.optional_tensor(2)?);
    let positions_info = positions.as_ref().map(TensorRef::info);
    let shape = Shape::new(&info, slots.info(), positions_info, value.info(), ctx.int(4)?)?;
    let slots = checked(&slots, 1, shape.slots)?;
    let positions = match &positions {
        None => None,
        Some(positions) => Some(Indices::checked(positions, 2, 0, shape.capacity)?),
    };
    let source = value.bytes();
    let target = updated(ctx, 5)?.into_bytes();
    let Shape { outer, capacity, length, vector, .. } = shape;
    if vector == 0 {
        return Ok(());
    }
    let mut source = source.chunks_exact(vector);
    for (row, slot) in slots.iter().take(shape.rows).enumerate() {
        let slot = usize::try_from(*slot).unwrap_or(0);
        for group in 0..outer {
            for position in 0..length {
                let to = match &positions {
                    None => 0,
                    Some(positions) => {
                        let at = positions.at((row * length + position) as isize);
                        usize::try_from(at).unwrap_or(usize::MAX)
                    }
                };
                // No overflow: slot, group and position are inside the state.
                let at = ((slot * outer + group) * capacity).saturating_add(to);
                let at = at.saturating_mul(vector);
                let target = target.get_mut(at..at.saturating_add(vector));
                if let (Some(target), Some(source)) = (target, source.next()) {
                    target.copy_from_slice(source);
                }
            }
        }
    }
    Ok(())
}
