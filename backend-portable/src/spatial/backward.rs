//! Gradients of convolutions in plain loops, for training.

use super::convolution::Call;
use super::convolve_plain::Job;
use super::feature_map::{CHANNELS, DIMS, FeatureMap, SPACE};
use crate::linear::Ring;
use crate::number::{ComputeType, load, store, unsupported};
use crate::table::kernels;
use torchlet_core::Param::{Bool, BoolList, Int, IntList, OptionalIntList, Out, Tensor};
use torchlet_core::rules::window::{ConvolutionKind, convolution, convolution_windows};
use torchlet_core::{
    Arguments, Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, ScalarType, TensorInfo,
};

kernels! { BACKWARD:
    /// `aten::convolution_backward.out(grad_output, input, weight, bias_sizes,
    /// stride, padding, dilation, transposed, output_padding, groups,
    /// output_mask, grad_input, grad_weight, grad_bias)`: the gradients of input, weight and bias,
    /// as far as `output_mask` requests them.
    CONVOLUTION_BACKWARD_OUT = Kernel::new(
        "aten::convolution_backward.out",
        &[
            Tensor,
            Tensor,
            Tensor,
            OptionalIntList,
            IntList,
            IntList,
            IntList,
            Bool,
            IntList,
            Int,
            BoolList,
            Out,
            Out,
            Out,
        ],
        prepare_convolution,
    );
}

const GRAD_INPUT: usize = 11;
const GRAD_WEIGHT: usize = 12;
const GRAD_BIAS: usize = 13;

pub(super) fn by_type(found: ScalarType, functions: [InvokeFn; 3]) -> Result<Plan, KernelError> {
    let [f32, f64, i64] = functions;
    Ok(Plan::new(match ComputeType::of(found).ok_or(unsupported(0, found))? {
        ComputeType::F32 => f32,
        ComputeType::F64 => f64,
        ComputeType::I64 => i64,
    }))
}

pub(super) fn shape_mismatch(arg: usize) -> KernelError {
    KernelError::argument(arg, "shape does not match those of the other inputs")
}

pub(super) fn feature_map(
    info: &TensorInfo,
    spatial: usize,
    arg: usize,
) -> Result<FeatureMap, KernelError> {
    FeatureMap::new(info, spatial).ok_or(KernelError::rank(arg, info.rank()))
}

/// Which gradients are requested: of the input, the weights and the bias.
fn mask(ctx: &Arguments) -> Result<[bool; 3], KernelError> {
    Ok([ctx.list_bool(10, 0)?, ctx.list_bool(10, 1)?, ctx.list_bool(10, 2)?])
}

fn prepare_convolution(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let (grad, input, weight) = (ctx.info(0)?, ctx.info(1)?, ctx.info(2)?);
    let windows = convolution_windows(&weight.sizes, &ctx.ints(4)?, &ctx.ints(5)?, &ctx.ints(6)?)
        .ok_or(shape_mismatch(4))?;
    let kind = ConvolutionKind {
        transposed: ctx.bool(7)?,
        output_padding: &ctx.ints(8)?,
        groups: ctx.int(9)?,
    };
    let sizes =
        convolution(&input.sizes, &weight.sizes, &windows, kind).ok_or(shape_mismatch(1))?;
    if sizes != grad.sizes {
        return Err(shape_mismatch(0));
    }
    let channels = i32::try_from(feature_map(&grad, windows.len(), 0)?.sizes[CHANNELS]);
    let bias = [channels.map_err(|_| shape_mismatch(0))?];
    let wanted = mask(ctx)?;
    let outputs: [(usize, &[i32]); 3] =
        [(GRAD_INPUT, &input.sizes), (GRAD_WEIGHT, &weight.sizes), (GRAD_BIAS, &bias)];
    for ((out, sizes), _) in outputs.into_iter().zip(wanted).filter(|(_, wanted)| *wanted) {
        ctx.resize(out, sizes)?;
        let found = ctx.info(out)?.scalar_type;
        if found != grad.scalar_type {
            return Err(unsupported(out, found));
        }
    }
    for (arg, info) in [(1, &input), (2, &weight)] {
        if info.scalar_type != grad.scalar_type || info.scalar_type == ScalarType::Bool {
            return Err(unsupported(arg, info.scalar_type));
        }
    }
    by_type(
        grad.scalar_type,
        [run_convolution::<f32>, run_convolution::<f64>, run_convolution::<i64>],
    )
}

fn run_convolution<C: Ring>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (grad, input, weight) = (ctx.tensor(0)?, ctx.tensor(1)?, ctx.tensor(2)?);
    let windows = convolution_windows(&weight.sizes, &ctx.ints(4)?, &ctx.ints(5)?, &ctx.ints(6)?)
        .ok_or(shape_mismatch(4))?;
    let spatial = windows.len();
    let transposed = ctx.bool(7)?;
    let groups = usize::try_from(ctx.int(9)?).unwrap_or(1).max(1);
    let [of_input, of_weight, of_bias] = mask(ctx)?;
    let (grad_picture, weight_picture) =
        (feature_map(&grad, spatial, 0)?, feature_map(&weight, spatial, 2)?);
    let input_map = feature_map(&input, spatial, 1)?;
    let (scalar_type, size) = (grad.scalar_type, grad.scalar_type.size());
    if of_input {
        // The input gradient is the opposite convolution of the output gradient: a transposed one
        // for a plain convolution, a plain one for a transposed convolution.
        let out = ctx.out(GRAD_INPUT)?;
        let to = feature_map(&out, spatial, GRAD_INPUT)?;
        let back =
            Call::plain(windows.clone(), !transposed, groups, grad_picture, to, weight_picture);
        let job = Job {
            call: &back,
            scalar_type,
            input: grad.bytes(),
            weight: weight.bytes(),
            bias: None,
        };
        job.run::<C>(ctx.parallel(), out.into_bytes());
    }
    let read = |bytes: &[u8], at: usize| {
        let mut value = [C::default()];
        load(scalar_type, bytes, at as isize, 0, &mut value);
        value[0]
    };
    if of_weight {
        let mut out = ctx.out(GRAD_WEIGHT)?;
        let to = feature_map(&out, spatial, GRAD_WEIGHT)?;
        // Weight (a, b, tap) connects position o of `coarse`'s channel a with position
        // `o * stride - padding + tap * dilation` of `fine`'s channel b.
        let (coarse, fine) =
            if transposed { (&input_map, &grad_picture) } else { (&grad_picture, &input_map) };
        let (coarse_bytes, fine_bytes) =
            if transposed { (input.bytes(), grad.bytes()) } else { (grad.bytes(), input.bytes()) };
        let in_group = (coarse.sizes[CHANNELS] / groups).max(1);
        let missing = 3 - spatial;
        let empty = coarse.sizes.contains(&0) || fine.sizes.contains(&0);
        for_each(to.sizes, |index| {
            let [a, b, taps @ ..] = index;
            let b = a / in_group * to.sizes[1] + b;
            let mut sum = C::default();
            let counts = if empty { [0; DIMS] } else { coarse.sizes };
            for_each([counts[0], 1, counts[2], counts[3], counts[4]], |coarse_index| {
                let mut from = coarse_index[0] * coarse.strides[0] + a * coarse.strides[CHANNELS];
                let mut at = coarse_index[0] * fine.strides[0] + b * fine.strides[CHANNELS];
                for dim in 0..3 {
                    let o = coarse_index[SPACE + dim];
                    from += o * coarse.strides[SPACE + dim];
                    let position = match dim.checked_sub(missing).and_then(|i| windows.get(i)) {
                        Some(window) => window.origin(o).saturating_add(
                            (taps[dim] as i64).saturating_mul(window.dilation() as i64),
                        ),
                        None => 0,
                    };
                    match usize::try_from(position) {
                        Ok(position) if position < fine.sizes[SPACE + dim] => {
                            at += position * fine.strides[SPACE + dim];
                        }
                        _ => return,
                    }
                }
                sum = sum.mul_add(read(coarse_bytes, from), read(fine_bytes, at));
            });
            let at: usize = index.iter().zip(to.strides).map(|(i, stride)| i * stride).sum();
            if let Some(out) = out.bytes_mut().get_mut(at * size..(at + 1) * size) {
                store(scalar_type, out, &[sum]);
            }
        });
    }
    if of_bias {
        let out = ctx.out(GRAD_BIAS)?.into_bytes();
        let sizes = grad_picture.sizes;
        for (channel, out) in out.chunks_exact_mut(size).enumerate() {
            let mut sum = C::default();
            for_each([sizes[0], 1, sizes[2], sizes[3], sizes[4]], |mut at| {
                at[CHANNELS] = channel;
                let at = at.iter().zip(grad_picture.strides).map(|(i, stride)| i * stride).sum();
                sum = sum.mul_add(read(grad.bytes(), at), C::of_bool(true));
            });
            store(scalar_type, out, &[sum]);
        }
    }
    Ok(())
}

/// Calls `f` with every index below `sizes`.
pub(super) fn for_each(sizes: [usize; DIMS], mut f: impl FnMut([usize; DIMS])) {
    if sizes.contains(&0) {
        return;
    }
    let mut index = [0; DIMS];
    loop {
        f(index);
        let mut dim = DIMS - 1;
        loop {
            index[dim] += 1;
            if index[dim] < sizes[dim] {
                break;
            }
            index[dim] = 0;
            if dim == 0 {
                return;
            }
            dim -= 1;
        }
    }
}
