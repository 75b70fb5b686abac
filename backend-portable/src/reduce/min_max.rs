//! Maxima and minima, argmax and argmin, `any` and `all`.

use super::engine::Order::{Index, Memory};
use super::reducers::{AnyAll, ArgExtreme, Max, Min, Ordered};
use super::{
    Dims, Form, double, expect_same_layout, expect_type, reduced, reduced_of_some, single,
};
use crate::elementwise::{ByCompute, by_compute, can_cast};
use crate::number::{Compute, ComputeType, unsupported};
use crate::table::kernels;
use torchlet_core::Param::{Bool, Int, IntList, OptionalInt, OptionalIntList, Out, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError, Plan, Prepare, ScalarType};

kernels! {
    /// `aten::amax.out(self, dim, keepdim, out)`: the maximum over `dim`.
    AMAX_OUT = Kernel::new("aten::amax.out", &[Tensor, IntList, Bool, Out], |ctx| {
        extreme(ctx, DIMS, 3, by_compute!(amax))
    });
    /// `aten::amin.out(self, dim, keepdim, out)`: the minimum over `dim`.
    AMIN_OUT = Kernel::new("aten::amin.out", &[Tensor, IntList, Bool, Out], |ctx| {
        extreme(ctx, DIMS, 3, by_compute!(amin))
    });
    /// `aten::max.unary_out(self, out)`: the maximum of all values.
    MAX_OUT = Kernel::new("aten::max.unary_out", &[Tensor, Out], |ctx| {
        extreme(ctx, Form::ALL, 1, by_compute!(max))
    });
    /// `aten::min.unary_out(self, out)`: the minimum of all values.
    MIN_OUT = Kernel::new("aten::min.unary_out", &[Tensor, Out], |ctx| {
        extreme(ctx, Form::ALL, 1, by_compute!(min))
    });
    /// `aten::max.dim_max(self, dim, keepdim, max, max_values)`: the maxima and their indices.
    MAX_DIM_OUT = Kernel::new("aten::max.dim_max", &[Tensor, Int, Bool, Out, Out], |ctx| {
        extreme_with_index(ctx, by_compute!(max_dim))
    });
    /// `aten::min.dim_min(self, dim, keepdim, min, min_indices)`: the minima and their indices.
    MIN_DIM_OUT = Kernel::new("aten::min.dim_min", &[Tensor, Int, Bool, Out, Out], |ctx| {
        extreme_with_index(ctx, by_compute!(min_dim))
    });
    /// `aten::argmax.out(self, dim, keepdim, out)`: the index of the maximum over `dim`, or of all
    /// values.
    ARGMAX_OUT = Kernel::new("aten::argmax.out", &[Tensor, OptionalInt, Bool, Out], |ctx| {
        arg_extreme(ctx, by_compute!(argmax))
    });
    /// `aten::argmin.out(self, dim, keepdim, out)`: the index of the minimum over `dim`, or of all
    /// values.
    ARGMIN_OUT = Kernel::new("aten::argmin.out", &[Tensor, OptionalInt, Bool, Out], |ctx| {
        arg_extreme(ctx, by_compute!(argmin))
    });
    /// `aten::any.all_out(self, out)`: whether any value is nonzero.
    ANY_ALL_OUT = Kernel::new("aten::any.all_out", &[Tensor, Out], |ctx| {
        any_or_all(ctx, Form::ALL, 1, by_compute!(any_of_all))
    });
    /// `aten::any.out(self, dim, keepdim, out)`: whether any value over `dim` is nonzero.
    ANY_OUT = Kernel::new("aten::any.out", &[Tensor, Int, Bool, Out], |ctx| {
        any_or_all(ctx, EXACT_DIMS, 3, by_compute!(any))
    });
    /// `aten::any.dims_out(self, dim, keepdim, out)`: whether any value over several dims is
    /// nonzero.
    ANY_DIMS_OUT = Kernel::new(
        "aten::any.dims_out",
        &[Tensor, OptionalIntList, Bool, Out],
        |ctx| any_or_all(ctx, EXACT_DIMS, 3, by_compute!(any)),
    );
    /// `aten::all.all_out(self, out)`: whether all values are nonzero.
    ALL_ALL_OUT = Kernel::new("aten::all.all_out", &[Tensor, Out], |ctx| {
        any_or_all(ctx, Form::ALL, 1, by_compute!(all_of_all))
    });
    /// `aten::all.out(self, dim, keepdim, out)`: whether all values over `dim` are nonzero.
    ALL_OUT = Kernel::new("aten::all.out", &[Tensor, Int, Bool, Out], |ctx| {
        any_or_all(ctx, EXACT_DIMS, 3, by_compute!(all))
    });
    /// `aten::all.dims_out(self, dim, keepdim, out)`: whether all values over several dims are
    /// nonzero.
    ALL_DIMS_OUT = Kernel::new(
        "aten::all.dims_out",
        &[Tensor, OptionalIntList, Bool, Out],
        |ctx| any_or_all(ctx, EXACT_DIMS, 3, by_compute!(all)),
    );
}

const DIMS: Form = Form { dims: Dims::List(1), keep: Some(2) };
/// For operators whose list of one dim may be given as an integer.
const EXACT_DIMS: Form = Form { dims: Dims::ExactList(1), keep: Some(2) };
const ONE: Form = Form { dims: Dims::One(1), keep: Some(2) };

fn choose(args: &Prepare, functions: ByCompute) -> Result<Plan, KernelError> {
    let found = args.info(0)?.scalar_type;
    let compute = ComputeType::of(found).ok_or(unsupported(0, found))?;
    // As `i64`, values from 2^63 on would be negative.
    if found == ScalarType::UInt64 {
        return Err(unsupported(0, found));
    }
    Ok(Plan::new(functions.choose(compute)))
}

fn extreme(
    ctx: &mut Prepare,
    form: Form,
    out: usize,
    functions: ByCompute,
) -> Result<Plan, KernelError> {
    let input = reduced_of_some(ctx, form, &[out])?;
    let found = ctx.info(out)?.scalar_type;
    if !can_cast(input.scalar_type, found) {
        return Err(unsupported(out, found));
    }
    choose(ctx, functions)
}

fn extreme_with_index(ctx: &mut Prepare, functions: ByCompute) -> Result<Plan, KernelError> {
    let input = reduced_of_some(ctx, ONE, &[3, 4])?;
    expect_type(ctx, 3, input.scalar_type)?;
    expect_type(ctx, 4, ScalarType::Long)?;
    expect_same_layout(ctx, [3, 4])?;
    choose(ctx, functions)
}

fn arg_extreme(ctx: &mut Prepare, functions: ByCompute) -> Result<Plan, KernelError> {
    reduced_of_some(ctx, ONE, &[3])?;
    expect_type(ctx, 3, ScalarType::Long)?;
    choose(ctx, functions)
}

fn any_or_all(
    ctx: &mut Prepare,
    form: Form,
    out: usize,
    functions: ByCompute,
) -> Result<Plan, KernelError> {
    let input = reduced(ctx, form, &[out])?;
    match ctx.info(out)?.scalar_type {
        ScalarType::Bool | ScalarType::Byte => {}
        found => return Err(unsupported(out, found)),
    }
    let compute = ComputeType::of(input.scalar_type);
    Ok(Plan::new(functions.choose(compute.ok_or(unsupported(0, input.scalar_type))?)))
}

fn amax<C: Ordered>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    single(ctx, DIMS, Memory, 3, &Max, |value: C| value)
}

fn amin<C: Ordered>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    single(ctx, DIMS, Memory, 3, &Min, |value: C| value)
}

fn max<C: Ordered>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    single(ctx, Form::ALL, Memory, 1, &Max, |value: C| value)
}

fn min<C: Ordered>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    single(ctx, Form::ALL, Memory, 1, &Min, |value: C| value)
}

fn value<C: Ordered>((value, _): (C, usize)) -> C {
    value
}

fn number<C: Ordered>((_, number): (C, usize)) -> i64 {
    number as i64
}

fn max_dim<C: Ordered>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    double(ctx, ONE, Index, [3, 4], &ArgExtreme::<true>, (value::<C>, number::<C>))
}

fn min_dim<C: Ordered>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    double(ctx, ONE, Index, [3, 4], &ArgExtreme::<false>, (value::<C>, number::<C>))
}

fn argmax<C: Ordered>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    single(ctx, ONE, Index, 3, &ArgExtreme::<true>, number::<C>)
}

fn argmin<C: Ordered>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    single(ctx, ONE, Index, 3, &ArgExtreme::<false>, number::<C>)
}

fn any<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    single::<C, _, _>(ctx, EXACT_DIMS, Memory, 3, &AnyAll::<false>, i64::from)
}

fn all<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    single::<C, _, _>(ctx, EXACT_DIMS, Memory, 3, &AnyAll::<true>, i64::from)
}

fn any_of_all<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    single::<C, _, _>(ctx, Form::ALL, Memory, 1, &AnyAll::<false>, i64::from)
}

fn all_of_all<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    single::<C, _, _>(ctx, Form::ALL, Memory, 1, &AnyAll::<true>, i64::from)
}
