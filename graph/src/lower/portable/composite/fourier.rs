//! Fourier transforms of real and complex tensors.

use super::{Builder, Rule};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{FftnArgs, Operator};
use alloc::format;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::FFT_FFT, |b, args| transform(b, args, Form::Complex, true)),
    (Operator::FFT_FFT2, |b, args| transform(b, args, Form::Complex, true)),
    (Operator::FFT_FFTN, |b, args| transform(b, args, Form::Complex, true)),
    (Operator::FFT_IFFT, |b, args| transform(b, args, Form::Complex, false)),
    (Operator::FFT_IFFT2, |b, args| transform(b, args, Form::Complex, false)),
    (Operator::FFT_IFFTN, |b, args| transform(b, args, Form::Complex, false)),
    (Operator::FFT_IRFFT, |b, args| transform(b, args, Form::ToReal, false)),
    (Operator::FFT_IRFFT2, |b, args| transform(b, args, Form::ToReal, false)),
    (Operator::FFT_IRFFTN, |b, args| transform(b, args, Form::ToReal, false)),
    (Operator::FFT_RFFT, |b, args| transform(b, args, Form::OfReal, true)),
    (Operator::FFT_RFFT2, |b, args| transform(b, args, Form::OfReal, true)),
    (Operator::FFT_RFFTN, |b, args| transform(b, args, Form::OfReal, true)),
    (Operator::IMAG, |b, args| part(b, args, 1)),
    (Operator::REAL, |b, args| part(b, args, 0)),
];

/// Which side of a transform is real. The real side's spectrum has only half of the last dim.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Complex,
    OfReal,
    ToReal,
}

pub(super) fn is_complex(scalar_type: ScalarType) -> bool {
    matches!(
        scalar_type,
        ScalarType::ComplexHalf | ScalarType::ComplexFloat | ScalarType::ComplexDouble
    )
}

fn transform(
    b: &mut Builder<'_, '_>,
    args: &[ValueId],
    form: Form,
    forward: bool,
) -> Result<(), Error> {
    let call = FftnArgs::of(args)?;
    let info = b.info(call.input)?;
    let made = b.info(call.out)?;
    let given = b.ints(call.s)?;
    let mut dims = Vec::new();
    for dim in b.ints(call.dim)? {
        dims.push(info.dim(dim)?);
    }
    if b.optional(call.dim).is_none() {
        let count = if given.is_empty() { info.rank() } else { given.len() };
        dims = (info.rank().saturating_sub(count)..info.rank()).collect();
    }
    for (position, dim) in dims.iter().enumerate() {
        let halves = form != Form::Complex && position + 1 == dims.len();
        let (own, other) = (info.size(*dim), made.size(*dim));
        let fits = match (halves, form) {
            (true, Form::OfReal) => other == own / 2 + 1,
            (true, Form::ToReal) => own == other / 2 + 1,
            _ => own == other,
        };
        if !fits {
            return Err(Error::Unsupported(format!(
                "a Fourier transform that pads or cuts dim {dim} from {own} to {other}"
            )));
        }
    }
    let norm = b.text(call.norm)?;
    // 0: none, 1: by the square root of the number of elements, 2: by their number.
    let norm = match (norm.as_deref().unwrap_or("backward"), forward) {
        ("backward", true) | ("forward", false) => 0,
        ("ortho", _) => 1,
        ("backward", false) | ("forward", true) => 2,
        (other, _) => return Err(Error::Invalid(format!("Fourier transform with norm `{other}`"))),
    };
    let last = dims.last().map_or(1, |dim| made.size(*dim));
    let list: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
    let (list, norm) = (b.new_ints(&list), b.new_int(norm));
    match form {
        Form::ToReal => {
            let size = b.new_int(last as i64);
            b.call_into(Operator::FFT_C2R, &[call.input, list, norm, size], call.out);
        }
        _ if !is_complex(info.scalar_type) => {
            let input = match made.scalar_type {
                ScalarType::ComplexDouble => b.cast(call.input, ScalarType::Double)?,
                _ => b.cast(call.input, ScalarType::Float)?,
            };
            let onesided = b.push(Value::Bool(form == Form::OfReal));
            let inputs = [input, list, norm, onesided];
            if forward {
                b.call_into(Operator::FFT_R2C, &inputs, call.out);
            } else {
                return Err(Error::unsupported("an inverse Fourier transform of real values"));
            }
        }
        _ => {
            let forward = b.push(Value::Bool(forward));
            b.call_into(Operator::FFT_C2C, &[call.input, list, norm, forward], call.out);
        }
    }
    Ok(())
}

/// The real (0) or imaginary (1) part.
fn part(b: &mut Builder<'_, '_>, args: &[ValueId], at: i64) -> Result<(), Error> {
    let (input, out) = b.ends(args)?;
    let info = b.info(input)?;
    if !is_complex(info.scalar_type) {
        return b.stand_in(input, out);
    }
    let scalar_type = b.info(out)?.scalar_type;
    let mut sizes = info.sizes.clone();
    sizes.push(2);
    let made = info.with_sizes(sizes).with_type(scalar_type);
    let pairs = b.call(Operator::VIEW_AS_REAL_COPY, &[input], made);
    let (last, at) = (b.new_int(-1), b.new_int(at));
    b.call_into(Operator::SELECT_COPY_INT, &[pairs, last, at], out);
    Ok(())
}
