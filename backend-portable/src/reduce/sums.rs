//! Sums, products, means and variances.

use super::adding::sums;
use super::engine::Order::Memory;
use super::engine::Reducer;
use super::reducers::{AnyAll, Max, Min, Moments, Ordered, Product, Spread, Sum};
use super::{Dims, Form, complex, double, expect_same_layout, reduced, single};
use crate::elementwise::complex::by_part;
use crate::elementwise::{Arithmetic, by_compute, can_cast};
use crate::number::{Compute, ComputeType, unsupported};
use crate::real::Real;
use crate::table::kernels;
use torchlet_core::Param::{
    Bool, Int, OptionalInt, OptionalIntList, OptionalScalar, Out, Scalar, Tensor,
};
use torchlet_core::rules::reduced_count;
use torchlet_core::{Arguments, Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, ScalarType};

kernels! {
    /// `aten::sum.IntList_out(self, dim, keepdim, dtype, out)`: the sum over `dim`.
    SUM_OUT = Kernel::new(
        "aten::sum.IntList_out",
        &[Tensor, OptionalIntList, Bool, OptionalInt, Out],
        |ctx| {
            fn of_complex<C: Real + Arithmetic>(ctx: &mut Invoke) -> Result<(), KernelError> {
                complex::sums::<C, false>(ctx, DIMS, 4)
            }
            match complex::plan(ctx, DIMS, 4, by_part!(of_complex))? {
                Some(plan) => Ok(plan),
                None => accumulate(ctx, DIMS, 3, 4, by_compute!(sum), any),
            }
        },
    );
    /// `aten::mean.out(self, dim, keepdim, dtype, out)`: the mean over `dim`.
    MEAN_OUT = Kernel::new(
        "aten::mean.out",
        &[Tensor, OptionalIntList, Bool, OptionalInt, Out],
        |ctx| {
            fn of_complex<C: Real + Arithmetic>(ctx: &mut Invoke) -> Result<(), KernelError> {
                complex::sums::<C, true>(ctx, DIMS, 4)
            }
            match complex::plan(ctx, DIMS, 4, by_part!(of_complex))? {
                Some(plan) => Ok(plan),
                None => floating(ctx, DIMS, &[4], [mean::<f32>, mean::<f64>]),
            }
        },
    );
    /// `aten::mean.dtype_out(self, dtype, out)`: the mean of all values.
    MEAN_ALL_OUT = Kernel::new(
        "aten::mean.dtype_out",
        &[Tensor, OptionalInt, Out],
        |ctx| {
            fn of_complex<C: Real + Arithmetic>(ctx: &mut Invoke) -> Result<(), KernelError> {
                complex::sums::<C, true>(ctx, Form::ALL, 2)
            }
            match complex::plan(ctx, Form::ALL, 2, by_part!(of_complex))? {
                Some(plan) => Ok(plan),
                None => floating(ctx, Form::ALL, &[2], [mean_all::<f32>, mean_all::<f64>]),
            }
        },
    );
    /// `aten::prod.out(self, dtype, out)`: the product of all values.
    PROD_OUT = Kernel::new(
        "aten::prod.out",
        &[Tensor, OptionalInt, Out],
        |ctx| accumulate(ctx, Form::ALL, 1, 2, by_compute!(product_of_all), all_of_all),
    );
    /// `aten::prod.int_out(self, dim, keepdim, dtype, out)`: the product over `dim`.
    PROD_DIM_OUT = Kernel::new(
        "aten::prod.int_out",
        &[Tensor, Int, Bool, OptionalInt, Out],
        |ctx| accumulate(ctx, ONE, 3, 4, by_compute!(product), all),
    );
    /// `aten::linalg_vector_norm.out(self, ord, dim, keepdim, dtype, out)`: the p-norm. Orders
    /// infinity, minus infinity and 0 yield the maximum magnitude, the minimum magnitude and the
    /// number of nonzero values.
    LINALG_VECTOR_NORM_OUT = Kernel::new(
        "aten::linalg_vector_norm.out",
        &[Tensor, Scalar, OptionalIntList, Bool, OptionalInt, Out],
        |ctx| {
            let found = ctx.info(0)?.scalar_type;
            if !found.is_floating() {
                return Err(unsupported(0, found));
            }
            floating(ctx, NORM, &[5], [norm::<f32>, norm::<f64>])
        },
    );
    /// `aten::var.out(self, dim, unbiased, keepdim, out)`: the variance over `dim`; `unbiased`
    /// selects Bessel's correction.
    VAR_OUT = Kernel::new(
        "aten::var.out",
        &[Tensor, OptionalIntList, Bool, Bool, Out],
        |ctx| floating(ctx, VAR, &[4], [variance::<f32, false>, variance::<f64, false>]),
    );
    /// `aten::var.correction_out(self, dim, correction, keepdim, out)`: the variance over `dim`,
    /// with `correction` fewer degrees of freedom.
    VAR_CORRECTION_OUT = Kernel::new(
        "aten::var.correction_out",
        &[Tensor, OptionalIntList, OptionalScalar, Bool, Out],
        |ctx| floating(ctx, VAR, &[4], [variance::<f32, false>, variance::<f64, false>]),
    );
    /// `aten::std.out(self, dim, unbiased, keepdim, out)`: the standard deviation over `dim`;
    /// `unbiased` selects Bessel's correction.
    STD_OUT = Kernel::new(
        "aten::std.out",
        &[Tensor, OptionalIntList, Bool, Bool, Out],
        |ctx| floating(ctx, VAR, &[4], [variance::<f32, true>, variance::<f64, true>]),
    );
    /// `aten::std.correction_out(self, dim, correction, keepdim, out)`: the standard deviation over
    /// `dim`, with `correction` fewer degrees of freedom.
    STD_CORRECTION_OUT = Kernel::new(
        "aten::std.correction_out",
        &[Tensor, OptionalIntList, OptionalScalar, Bool, Out],
        |ctx| floating(ctx, VAR, &[4], [variance::<f32, true>, variance::<f64, true>]),
    );
    /// `aten::var_mean.correction_out(self, dim, correction, keepdim, out0, out1)`: variance and
    /// mean over `dim`; the variance has `correction` fewer degrees of freedom.
    VAR_MEAN_OUT = Kernel::new(
        "aten::var_mean.correction_out",
        &[Tensor, OptionalIntList, OptionalScalar, Bool, Out, Out],
        |ctx| {
            let plan = floating(ctx, VAR, &[4, 5], [var_mean::<f32>, var_mean::<f64>])?;
            expect_same_layout(ctx, [4, 5])?;
            Ok(plan)
        },
    );
}

const DIMS: Form = Form { dims: Dims::List(1), keep: Some(2) };
const ONE: Form = Form { dims: Dims::One(1), keep: Some(2) };
const VAR: Form = Form { dims: Dims::List(1), keep: Some(3) };

const NORM: Form = Form { dims: Dims::List(2), keep: Some(3) };

/// Prepares sums and products. They convert values to the dtype of the output and compute in it.
fn accumulate(
    ctx: &mut Prepare,
    form: Form,
    dtype: usize,
    out: usize,
    functions: crate::elementwise::ByCompute,
    of_bool: InvokeFn,
) -> Result<Plan, KernelError> {
    reduced(ctx, form, &[out])?;
    let compute = castable(ctx, dtype, out)?;
    let truth = ctx.info(out)?.scalar_type == ScalarType::Bool;
    Ok(Plan::new(if truth { of_bool } else { functions.choose(compute) }))
}

/// Returns the compute type of the output for a reduction of argument 0. Fails unless the dtype in
/// argument `dtype` (default: that of the values) can be cast to the output's.
pub(crate) fn castable(
    args: &Arguments,
    dtype: usize,
    out: usize,
) -> Result<ComputeType, KernelError> {
    let found = args.info(0)?.scalar_type;
    ComputeType::of(found).ok_or(unsupported(0, found))?;
    let from = args.optional_scalar_type(dtype)?.unwrap_or(found);
    let to = args.info(out)?.scalar_type;
    let compute = ComputeType::of(to).filter(|_| can_cast(from, to));
    compute.ok_or(unsupported(out, to))
}

/// Prepares reductions that are only computed in floating point: in `f64` if the outputs are
/// doubles, else in `f32`.
fn floating(
    ctx: &mut Prepare,
    form: Form,
    outs: &[usize],
    functions: [InvokeFn; 2],
) -> Result<Plan, KernelError> {
    reduced(ctx, form, outs)?;
    let mut function = functions[0];
    for &out in outs {
        match ctx.info(out)?.scalar_type {
            ScalarType::Double => function = functions[1],
            found if found.is_floating() => {}
            found => return Err(unsupported(out, found)),
        }
    }
    Ok(Plan::new(function))
}

fn sum<C: Arithmetic>(ctx: &mut Invoke) -> Result<(), KernelError> {
    sums(ctx, DIMS, 4, |sum: C| sum)
}

fn any(ctx: &mut Invoke) -> Result<(), KernelError> {
    single::<f64, _, _>(ctx, DIMS, Memory, 4, &AnyAll::<false>, i64::from)
}

fn product<C: Arithmetic>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    single(ctx, ONE, Memory, 4, &Product, |product: C| product)
}

fn all(ctx: &mut Invoke) -> Result<(), KernelError> {
    single::<f64, _, _>(ctx, ONE, Memory, 4, &AnyAll::<true>, i64::from)
}

fn product_of_all<C: Arithmetic>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    single(ctx, Form::ALL, Memory, 2, &Product, |product: C| product)
}

fn all_of_all(ctx: &mut Invoke) -> Result<(), KernelError> {
    single::<f64, _, _>(ctx, Form::ALL, Memory, 2, &AnyAll::<true>, i64::from)
}

fn mean_in<C: Real + Arithmetic>(
    ctx: &mut Invoke,
    form: Form,
    out: usize,
) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let input = ctx.info(0)?;
    let count = C::count(reduced_count(&input.sizes, form.dims(ctx, input.rank())?));
    sums(ctx, form, out, |sum: C| sum / count)
}

fn mean<C: Real + Arithmetic>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    mean_in::<C>(ctx, DIMS, 4)
}

fn mean_all<C: Real + Arithmetic>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    mean_in::<C>(ctx, Form::ALL, 2)
}

fn norm<C: Real + Arithmetic + Ordered>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let order = C::of_scalar(ctx.scalar(1)?);
    let infinity = C::real(f64::INFINITY);
    let same = |sum: C| sum;
    if order == infinity {
        return single(ctx, NORM, Memory, 5, &Norm(C::magnitude, Max, C::default()), same);
    }
    if order == -infinity {
        return single(ctx, NORM, Memory, 5, &Norm(C::magnitude, Min, infinity), same);
    }
    if order == C::default() {
        let count = |x: C| C::of_bool(x != C::default());
        return single(ctx, NORM, Memory, 5, &Norm(count, Sum, C::default()), same);
    }
    if order == C::count(1) {
        return single(ctx, NORM, Memory, 5, &Norm(C::magnitude, Sum, C::default()), same);
    }
    if order == C::count(2) {
        let square = |x: C| x * x;
        return single(ctx, NORM, Memory, 5, &Norm(square, Sum, C::default()), |sum: C| sum.sqrt());
    }
    let power = move |x: C| x.magnitude().pow(order);
    let root = C::count(1) / order;
    single(ctx, NORM, Memory, 5, &Norm(power, Sum, C::default()), |sum: C| sum.pow(root))
}

/// A reducer over a function of the values; the third field is the result for no values.
struct Norm<F, R, C>(F, R, C);

impl<C: Compute, F: Fn(C) -> C + Sync, R: Reducer<C, State = C>> Reducer<C> for Norm<F, R, C> {
    type State = C;
    fn start(&self) -> C {
        // Magnitudes are not negative, so the maximum of no values is zero.
        self.2
    }
    fn fold(&self, state: &mut C, values: &[C], first: usize) {
        let mut block = [C::default(); 32];
        for (number, values) in values.chunks(32).enumerate() {
            let block = &mut block[..values.len()];
            block.iter_mut().zip(values).for_each(|(slot, value)| *slot = (self.0)(*value));
            self.1.fold(state, block, first + number * 32);
        }
    }
    fn fold_each(&self, states: &mut [C], values: &[C], number: usize) {
        for (state, value) in states.iter_mut().zip(values) {
            self.1.fold_each(core::slice::from_mut(state), &[(self.0)(*value)], number);
        }
    }
    fn merge(&self, a: C, b: C) -> C {
        self.1.merge(a, b)
    }
}

/// The correction in argument 2: a scalar, by default 1; or a bool for `unbiased`.
fn correction<C: Real>(ctx: &Invoke) -> Result<C, KernelError> {
    Ok(ctx.optional_scalar(2)?.map_or(C::count(1), C::of_scalar))
}

fn variance<C: Real, const ROOT: bool>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let correction = correction::<C>(ctx)?;
    single(ctx, VAR, Memory, 4, &Moments, |spread: Spread<C>| {
        let variance = spread.variance(correction);
        if ROOT { variance.sqrt() } else { variance }
    })
}

fn var_mean<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let correction = correction::<C>(ctx)?;
    let variance = |spread: Spread<C>| spread.variance(correction);
    let nan = C::default() / C::default();
    let mean = |spread: Spread<C>| if spread.count == C::default() { nan } else { spread.mean };
    double(ctx, VAR, Memory, [4, 5], &Moments, (variance, mean))
}
