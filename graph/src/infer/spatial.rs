//! Convolutions, pooling and resizing.

use super::{Call, Results, Rule, TensorType, one, push, size};
use crate::operators::Operator as O;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;
use torchlet_core::layout::Sizes;
use torchlet_core::rules::window::{
    ConvolutionKind, adaptive_pooling, convolution, convolution_windows, pooling, windows,
};

pub(super) fn rule(operator: O) -> Option<Rule> {
    Some(match operator {
        O::CONVOLUTION => |call| {
            let lists = [call.ints(3)?, call.ints(4)?, call.ints(5)?];
            convolved(call, lists, (call.flag(6)?, &call.ints(7)?, call.int(8)?))
        },
        O::CONV1D | O::CONV2D | O::CONV3D => |call| {
            let lists = [call.ints(3)?, call.ints(4)?, call.ints(5)?];
            convolved(call, lists, (false, &[], call.int(6)?))
        },
        O::CONV1D_PADDING | O::CONV2D_PADDING | O::CONV3D_PADDING => padded_by_name,
        O::CONV_TRANSPOSE1D | O::CONV_TRANSPOSE2D_INPUT | O::CONV_TRANSPOSE3D_INPUT => |call| {
            let lists = [call.ints(3)?, call.ints(4)?, call.ints(7)?];
            convolved(call, lists, (true, &call.ints(5)?, call.int(6)?))
        },
        O::AVG_POOL1D => |call| averaged(call, 1),
        O::AVG_POOL2D => |call| averaged(call, 2),
        O::AVG_POOL3D => |call| averaged(call, 3),
        O::MAX_POOL1D => |call| maximum(call, 1),
        O::MAX_POOL2D => |call| maximum(call, 2),
        O::MAX_POOL3D => |call| maximum(call, 3),
        O::MAX_POOL2D_WITH_INDICES => |call| with_indices(maximum(call, 2)?),
        O::MAX_POOL3D_WITH_INDICES => |call| with_indices(maximum(call, 3)?),
        O::ADAPTIVE_AVG_POOL1D => |call| adaptive(call, 1),
        O::ADAPTIVE_AVG_POOL2D => |call| adaptive(call, 2),
        O::ADAPTIVE_AVG_POOL3D => |call| adaptive(call, 3),
        O::ADAPTIVE_MAX_POOL1D => |call| with_indices(adaptive(call, 1)?),
        O::ADAPTIVE_MAX_POOL2D => |call| with_indices(adaptive(call, 2)?),
        O::ADAPTIVE_MAX_POOL3D => |call| with_indices(adaptive(call, 3)?),
        O::UPSAMPLE_NEAREST1D_VEC
        | O::UPSAMPLE_NEAREST2D_VEC
        | O::UPSAMPLE_NEAREST3D_VEC
        | O::UPSAMPLE_NEAREST_EXACT1D_VEC
        | O::UPSAMPLE_NEAREST_EXACT2D_VEC
        | O::UPSAMPLE_NEAREST_EXACT3D_VEC => |call| resized(call, Some(2)),
        O::UPSAMPLE_BILINEAR2D_VEC
        | O::UPSAMPLE_BICUBIC2D_VEC
        | O::UPSAMPLE_LINEAR1D_VEC
        | O::UPSAMPLE_TRILINEAR3D_VEC => |call| resized(call, Some(3)),
        O::UPSAMPLE_NEAREST2D
        | O::UPSAMPLE_BILINEAR2D
        | O::UPSAMPLE_BICUBIC2D
        | O::UPSAMPLE_BILINEAR2D_AA
        | O::UPSAMPLE_BICUBIC2D_AA => |call| resized(call, None),
        O::GRID_SAMPLER | O::GRID_SAMPLER_2D => |call| {
            let (input, grid) = (call.tensor(0)?, call.tensor(1)?);
            match (&input.sizes[..], &grid.sizes[..]) {
                ([batch, channels, _, _], [own, height, width, 2]) if batch == own => {
                    let sizes = [*batch, *channels, *height, *width];
                    one(input.scalar_type, Sizes::from_slice(&sizes).unwrap_or_default())
                }
                _ => Err(format!("shapes {:?} and {:?} do not fit", input.sizes, grid.sizes)),
            }
        },
        _ => return None,
    })
}

fn convolved(
    call: &Call<'_>,
    [stride, padding, dilation]: [Vec<i64>; 3],
    (transposed, output_padding, groups): (bool, &[i64], i64),
) -> Results {
    let (input, weight) = (call.tensor(0)?, call.tensor(1)?);
    if input.scalar_type != weight.scalar_type {
        let (a, b) = (input.scalar_type, weight.scalar_type);
        return Err(format!("expected one dtype, found {a} and {b}"));
    }
    let kind = ConvolutionKind { transposed, output_padding, groups };
    let windows = convolution_windows(&weight.sizes, &stride, &padding, &dilation);
    let sizes =
        windows.and_then(|windows| convolution(&input.sizes, &weight.sizes, &windows, kind));
    let wrong = || {
        format!(
            "an input of shape {:?} and weights of {:?} do not fit (stride {stride:?}, padding \
             {padding:?}, dilation {dilation:?}, {groups} groups)",
            input.sizes, weight.sizes
        )
    };
    let sizes = sizes.ok_or_else(wrong)?;
    let spatial = weight.rank().saturating_sub(2);
    let channels = sizes.len().checked_sub(spatial + 1).and_then(|at| sizes.get(at));
    if let (Some(bias), Some(channels)) = (call.optional_tensor(2), channels)
        && bias.sizes[..] != [*channels]
    {
        return Err(format!("a bias of shape {:?}: expected [{channels}]", bias.sizes));
    }
    one(input.scalar_type, sizes)
}

fn padded_by_name(call: &Call<'_>) -> Results {
    let (stride, dilation, groups) = (call.ints(3)?, call.ints(5)?, call.int(6)?);
    match call.text(4).as_deref() {
        Some("valid") => convolved(call, [stride, vec![0], dilation], (false, &[], groups)),
        Some("same") => {
            if stride.iter().any(|stride| *stride != 1) {
                return Err("padding 'same' requires a stride of 1".into());
            }
            // The spatial sizes stay; one window with its own size of padding checks the rest.
            let (input, weight) = (call.tensor(0)?, call.tensor(1)?);
            let spatial = weight.rank().saturating_sub(2);
            let results = convolved(
                call,
                [stride, dilated(&weight, &dilation), dilation],
                (false, &[], groups),
            )?;
            let own = input.sizes.iter().rev().take(spatial).rev();
            let keep = |result: TensorType| {
                let outer = result.rank().saturating_sub(spatial);
                let sizes = result.sizes.iter().take(outer).chain(own.clone()).copied().collect();
                TensorType::new(result.scalar_type, sizes)
            };
            Ok(results.into_iter().map(keep).collect())
        }
        _ => Err("padding: expected 'valid' or 'same'".into()),
    }
}

/// A padding that no kernel exceeds.
fn dilated(weight: &TensorType, dilation: &[i64]) -> Vec<i64> {
    let kernel = weight.sizes.iter().skip(2);
    let at = |dim: usize| dilation.get(dim).or(dilation.first()).copied().unwrap_or(1);
    kernel.enumerate().map(|(dim, size)| at(dim).saturating_mul((*size).into())).collect()
}

fn pooled(call: &Call<'_>, rank: usize, dilation: &[i64], ceil: bool) -> Results {
    let TensorType { scalar_type, sizes } = call.tensor(0)?;
    let (kernel, stride, padding) = (call.ints(1)?, call.ints(2)?, call.ints(3)?);
    let windows = windows(rank, &kernel, &stride, &padding, dilation);
    let wrong = || {
        format!(
            "shape {sizes:?} cannot be pooled (kernel {kernel:?}, stride {stride:?}, padding \
             {padding:?})"
        )
    };
    let windows = windows.ok_or_else(wrong)?;
    // PyTorch limits the padding to half of the kernel.
    if windows.iter().any(|window| window.padding() > window.kernel() / 2) {
        return Err(wrong());
    }
    one(scalar_type, pooling(&sizes, &windows, ceil).ok_or_else(wrong)?)
}

fn averaged(call: &Call<'_>, rank: usize) -> Results {
    pooled(call, rank, &[1], call.flag(4)?)
}

fn maximum(call: &Call<'_>, rank: usize) -> Results {
    pooled(call, rank, &call.ints(4)?, call.flag(5)?)
}

fn with_indices(results: Vec<TensorType>) -> Results {
    let index = |own: &TensorType| TensorType::new(ScalarType::Long, own.sizes.clone());
    let indices: Vec<TensorType> = results.iter().map(index).collect();
    Ok([results, indices].concat())
}

fn adaptive(call: &Call<'_>, rank: usize) -> Results {
    let TensorType { scalar_type, sizes } = call.tensor(0)?;
    let output = call.ints(1)?;
    let wrong = || format!("shape {sizes:?} cannot be pooled to {output:?}");
    one(scalar_type, adaptive_pooling(&sizes, &output, rank).ok_or_else(wrong)?)
}

/// Resized images. `factors` is the position of the scale factors, which an absent size needs.
fn resized(call: &Call<'_>, factors: Option<usize>) -> Results {
    let TensorType { scalar_type, sizes } = call.tensor(0)?;
    let wrong = || String::from("expected either output sizes or scale factors, one for each dim");
    let (outer, space) = sizes.split_at_checked(2).ok_or("expected at least 3 dims")?;
    let mut made: Sizes = outer.iter().copied().collect();
    let given = call.optional_ints(1)?;
    let factors = match factors.map(|at| call.value(at)) {
        Some(crate::graph::Value::DoubleList(items)) => Some(items),
        _ => None,
    };
    match (given, factors) {
        (Some(list), None) if list.len() == space.len() => {
            for item in list {
                push(&mut made, size(item)?)?;
            }
        }
        (None, Some(list)) if list.len() == space.len() => {
            for (factor, own) in list.iter().zip(space) {
                let scaled = f64::from(*own) * factor;
                if !(0.0..=f64::from(i32::MAX)).contains(&scaled) {
                    return Err(format!("a scale factor of {factor} is out of range"));
                }
                // Truncation is PyTorch's rounding.
                push(&mut made, scaled as i32)?;
            }
        }
        _ => return Err(wrong()),
    }
    if made.iter().skip(1).any(|size| *size < 1) {
        return Err(format!("shape {made:?}: expected positive sizes"));
    }
    one(scalar_type, made)
}
