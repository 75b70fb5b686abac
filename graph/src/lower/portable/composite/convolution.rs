//! Convolutions over one to three dims, with and without a batch.

use super::super::convolution::plain;
use super::{Builder, Info, Rule};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{ConvArgs, ConvPaddingArgs, ConvTransposeArgs, Operator};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::CONV1D, |b, args| ordinary(b, args, 1)),
    (Operator::CONV2D, |b, args| ordinary(b, args, 2)),
    (Operator::CONV3D, |b, args| ordinary(b, args, 3)),
    (Operator::CONV1D_PADDING, |b, args| padded(b, args, 1)),
    (Operator::CONV2D_PADDING, |b, args| padded(b, args, 2)),
    (Operator::CONV3D_PADDING, |b, args| padded(b, args, 3)),
    (Operator::CONV_TRANSPOSE1D, |b, args| transposed(b, args, 1)),
    (Operator::CONV_TRANSPOSE2D_INPUT, |b, args| transposed(b, args, 2)),
    (Operator::CONV_TRANSPOSE3D_INPUT, |b, args| transposed(b, args, 3)),
];

/// Arguments of `aten.convolution`, over `dims` dims.
struct Convolution {
    input: ValueId,
    weight: ValueId,
    bias: Option<ValueId>,
    stride: Vec<i64>,
    padding: Vec<i64>,
    dilation: Vec<i64>,
    output_padding: Vec<i64>,
    transposed: bool,
    groups: i64,
}

/// A list with an item per dim; one item applies to all of them.
fn each(
    b: &Builder<'_, '_>,
    list: Option<ValueId>,
    default: i64,
    dims: usize,
) -> Result<Vec<i64>, Error> {
    let items = b.ints(list)?;
    Ok(match items[..] {
        [] => vec![default; dims],
        [item] => vec![item; dims],
        _ => items,
    })
}

fn number(b: &Builder<'_, '_>, id: Option<ValueId>, default: i64) -> Result<i64, Error> {
    b.optional(id).map_or(Ok(default), |id| b.int(id))
}

fn ordinary(b: &mut Builder<'_, '_>, args: &[ValueId], dims: usize) -> Result<(), Error> {
    let call = ConvArgs::of(args)?;
    let convolution = Convolution {
        input: call.input,
        weight: call.weight,
        bias: b.optional(call.bias),
        stride: each(b, call.stride, 1, dims)?,
        padding: each(b, call.padding, 0, dims)?,
        dilation: each(b, call.dilation, 1, dims)?,
        output_padding: vec![0; dims],
        transposed: false,
        groups: number(b, call.groups, 1)?,
    };
    convolution.emit(b, call.out, dims)
}

fn transposed(b: &mut Builder<'_, '_>, args: &[ValueId], dims: usize) -> Result<(), Error> {
    let call = ConvTransposeArgs::of(args)?;
    let convolution = Convolution {
        input: call.input,
        weight: call.weight,
        bias: b.optional(call.bias),
        stride: each(b, call.stride, 1, dims)?,
        padding: each(b, call.padding, 0, dims)?,
        dilation: each(b, call.dilation, 1, dims)?,
        output_padding: each(b, call.output_padding, 0, dims)?,
        transposed: true,
        groups: number(b, call.groups, 1)?,
    };
    convolution.emit(b, call.out, dims)
}

/// A convolution with `padding` "same" or "valid". An odd padding has its larger half at the end.
fn padded(b: &mut Builder<'_, '_>, args: &[ValueId], dims: usize) -> Result<(), Error> {
    let call = ConvPaddingArgs::of(args)?;
    let mode = b.text(call.padding)?;
    let dilation = each(b, call.dilation, 1, dims)?;
    let weight = b.info(call.weight)?;
    let mut padding = vec![0i64; dims];
    let mut behind = vec![0i64; dims];
    match mode.as_deref() {
        Some("same") => {
            let kernel = weight.sizes.iter().skip(2).zip(&dilation);
            for ((kernel, dilation), (front, back)) in
                kernel.zip(padding.iter_mut().zip(&mut behind))
            {
                let size = i64::try_from(*kernel).unwrap_or(i64::MAX).saturating_sub(1);
                let total = size.saturating_mul(*dilation).max(0);
                (*front, *back) = (total / 2, total % 2);
            }
        }
        None | Some("valid") => {}
        Some(other) => {
            return Err(Error::Invalid(format!("convolution with the padding `{other}`")));
        }
    }
    let mut input = call.input;
    if behind.iter().any(|count| *count > 0) {
        let info = b.info(input)?;
        let first = info.rank().saturating_sub(dims);
        let mut sizes = info.sizes.clone();
        for (size, count) in sizes.iter_mut().skip(first).zip(&behind) {
            *size = size.saturating_add(usize::try_from(*count).unwrap_or(0));
        }
        // From the last dim on: elements before, elements behind.
        let pads: Vec<i64> = behind.iter().rev().flat_map(|count| [0, *count]).collect();
        let (pads, zero) = (b.new_ints(&pads), b.new_int(0));
        input = b.call(Operator::CONSTANT_PAD_ND, &[input, pads, zero], info.with_sizes(sizes));
    }
    let convolution = Convolution {
        input,
        weight: call.weight,
        bias: b.optional(call.bias),
        stride: each(b, call.stride, 1, dims)?,
        padding,
        dilation,
        output_padding: vec![0; dims],
        transposed: false,
        groups: number(b, call.groups, 1)?,
    };
    convolution.emit(b, call.out, dims)
}

impl Convolution {
    fn emit(self, b: &mut Builder<'_, '_>, out: ValueId, dims: usize) -> Result<(), Error> {
        let rank = b.info(self.input)?.rank();
        if rank == dims + 2 {
            return self.emit_batch(b, self.input, out);
        }
        if rank != dims + 1 {
            return Err(Error::Invalid(format!(
                "convolution of an input of rank {rank}: expected {} or {}",
                dims + 1,
                dims + 2
            )));
        }
        let input = b.unsqueeze(self.input, 0)?;
        let mut info: Info = b.info(out)?;
        info.sizes.insert(0, 1);
        let batch = b.new_tensor(info);
        self.emit_batch(b, input, batch)?;
        let zero = b.new_int(0);
        b.call_into(Operator::SQUEEZE_COPY_DIM, &[batch, zero], out);
        Ok(())
    }

    fn emit_batch(
        &self,
        b: &mut Builder<'_, '_>,
        input: ValueId,
        out: ValueId,
    ) -> Result<(), Error> {
        let bias = match self.bias {
            Some(bias) => bias,
            None => b.none(),
        };
        let lists = [&self.stride, &self.padding, &self.dilation, &self.output_padding];
        let [stride, padding, dilation, output_padding] = lists.map(|list| b.new_ints(list));
        let (transposed, groups) = (b.push(Value::Bool(self.transposed)), b.new_int(self.groups));
        let args = [
            input,
            self.weight,
            bias,
            stride,
            padding,
            dilation,
            transposed,
            output_padding,
            groups,
            out,
        ];
        plain(b, &args)
    }
}
