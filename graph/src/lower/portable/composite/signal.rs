//! Windows, which become constants, and short-time Fourier transforms.

use super::fourier::is_complex;
use super::{Builder, Info, Rule};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{
    AlphaBetaWindowArgs, AlphaWindowArgs, DefaultWindowArgs, KaiserWindowArgs, Operator, StftArgs,
    StftCenterArgs, WindowArgs,
};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::f64::consts::PI;
use torchlet_core::ScalarType;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::BARTLETT_WINDOW, |b, args| flagged(b, args, Window::Bartlett)),
    (Operator::BARTLETT_WINDOW_DEFAULT, |b, args| periodic(b, args, Window::Bartlett)),
    (Operator::BLACKMAN_WINDOW, |b, args| flagged(b, args, Window::Blackman)),
    (Operator::BLACKMAN_WINDOW_DEFAULT, |b, args| periodic(b, args, Window::Blackman)),
    (Operator::HAMMING_WINDOW, |b, args| flagged(b, args, Window::HAMMING)),
    (Operator::HAMMING_WINDOW_ALPHA, |b, args| {
        let call = AlphaWindowArgs::of(args)?;
        let window = Window::Cosine { alpha: b.number(call.alpha)?, beta: 0.46 };
        let is_periodic = b.truth(call.periodic)?;
        constant(b, call.window_length, is_periodic, window, call.out)
    }),
    (Operator::HAMMING_WINDOW_ALPHA_BETA, |b, args| {
        let call = AlphaBetaWindowArgs::of(args)?;
        let window = Window::Cosine { alpha: b.number(call.alpha)?, beta: b.number(call.beta)? };
        let is_periodic = b.truth(call.periodic)?;
        constant(b, call.window_length, is_periodic, window, call.out)
    }),
    (Operator::HAMMING_WINDOW_DEFAULT, |b, args| periodic(b, args, Window::HAMMING)),
    (Operator::HANN_WINDOW, |b, args| flagged(b, args, Window::HANN)),
    (Operator::HANN_WINDOW_DEFAULT, |b, args| periodic(b, args, Window::HANN)),
    (Operator::KAISER_WINDOW, |b, args| flagged(b, args, Window::kaiser(12.0))),
    (Operator::KAISER_WINDOW_BETA, |b, args| {
        let call = KaiserWindowArgs::of(args)?;
        let window = Window::kaiser(b.number(call.beta)?);
        let is_periodic = b.truth(call.periodic)?;
        constant(b, call.window_length, is_periodic, window, call.out)
    }),
    (Operator::KAISER_WINDOW_DEFAULT, |b, args| periodic(b, args, Window::kaiser(12.0))),
    (Operator::STFT, |b, args| {
        let call = StftArgs::of(args)?;
        stft(b, &call, call.input)
    }),
    (Operator::STFT_CENTER, |b, args| {
        let call = StftCenterArgs::of(args)?;
        let mut input = call.input;
        if b.optional(call.center).map_or(Ok(true), |id| b.truth(id))? {
            input = centered(b, &call)?;
        }
        let StftCenterArgs { n_fft, hop_length, win_length, window, normalized, .. } = call;
        let StftCenterArgs { onesided, return_complex, align_to_window, out, .. } = call;
        let call = StftArgs {
            input,
            n_fft,
            hop_length,
            win_length,
            window,
            normalized,
            onesided,
            return_complex,
            align_to_window,
            out,
        };
        stft(b, &call, input)
    }),
];

/// Maximum length of a window. An element of a Kaiser window costs up to a microsecond.
const MAX_WINDOW: usize = 1 << 20;

/// Window function of a position between 0 and 1.
#[derive(Clone, Copy)]
enum Window {
    Bartlett,
    Blackman,
    /// `alpha - beta * cos(2πx)`
    Cosine {
        alpha: f64,
        beta: f64,
    },
    Kaiser {
        beta: f64,
        /// The Bessel function of `beta`.
        scale: f64,
    },
}

impl Window {
    const HAMMING: Self = Window::Cosine { alpha: 0.54, beta: 0.46 };
    const HANN: Self = Window::Cosine { alpha: 0.5, beta: 0.5 };

    fn kaiser(beta: f64) -> Self {
        Window::Kaiser { beta, scale: bessel_i0(beta) }
    }

    fn at(self, x: f64) -> f64 {
        match self {
            Window::Bartlett => 1.0 - (2.0 * x - 1.0).abs(),
            Window::Blackman => {
                0.42 - 0.5 * libm::cos(2.0 * PI * x) + 0.08 * libm::cos(4.0 * PI * x)
            }
            Window::Cosine { alpha, beta } => alpha - beta * libm::cos(2.0 * PI * x),
            Window::Kaiser { beta, scale } => {
                let side = 2.0 * x - 1.0;
                bessel_i0(beta * libm::sqrt((1.0 - side * side).max(0.0))) / scale
            }
        }
    }
}

/// The modified Bessel function of order 0, by its power series.
fn bessel_i0(x: f64) -> f64 {
    let quarter = x * x / 4.0;
    let (mut sum, mut term) = (1.0, 1.0);
    for k in 1..500 {
        term *= quarter / f64::from(k * k);
        sum += term;
        if term < sum * 1e-17 {
            break;
        }
    }
    sum
}

fn periodic(b: &mut Builder<'_, '_>, args: &[ValueId], window: Window) -> Result<(), Error> {
    let call = DefaultWindowArgs::of(args)?;
    constant(b, call.window_length, true, window, call.out)
}

fn flagged(b: &mut Builder<'_, '_>, args: &[ValueId], window: Window) -> Result<(), Error> {
    let call = WindowArgs::of(args)?;
    let is_periodic = b.truth(call.periodic)?;
    constant(b, call.window_length, is_periodic, window, call.out)
}

/// A window of constant length. The last element of a periodic one is left out.
fn constant(
    b: &mut Builder<'_, '_>,
    length: ValueId,
    is_periodic: bool,
    window: Window,
    out: ValueId,
) -> Result<(), Error> {
    let length = usize::try_from(b.int(length)?).unwrap_or(0);
    if length > MAX_WINDOW {
        return Err(Error::unsupported("a window of more than 2^20 elements"));
    }
    b.spend(length.saturating_mul(16))?;
    let steps = if is_periodic { length } else { length.saturating_sub(1) };
    let value = |at: usize| match length {
        1 => 1.0,
        _ => window.at(at as f64 / steps as f64),
    };
    let bytes = (0..length).flat_map(|at| value(at).to_le_bytes()).collect();
    let values = b.constant(ScalarType::Double, vec![length], bytes)?;
    b.finish_with(values, out)
}

/// The signal, padded so that each frame is around its position.
fn centered(b: &mut Builder<'_, '_>, call: &StftCenterArgs) -> Result<ValueId, Error> {
    let info = b.static_info(call.input, "stft")?;
    let count = usize::try_from(b.int(call.n_fft)?).unwrap_or(0) / 2;
    let pads = b.new_ints(&[count as i64, count as i64]);
    let length = info.last().saturating_add(count.saturating_mul(2));
    let mode = b.text(call.pad_mode)?;
    let operator = match mode.as_deref().unwrap_or("reflect") {
        "reflect" => Operator::REFLECTION_PAD1D,
        "replicate" => Operator::REPLICATION_PAD1D,
        "constant" => Operator::CONSTANT_PAD_ND,
        mode => return Err(Error::Unsupported(format!("stft with the padding `{mode}`"))),
    };
    let batch = if info.rank() == 1 { 1 } else { info.size(0) };
    let input = b.view_known(call.input, &[batch, info.last()])?;
    let made = info.with_sizes(vec![batch, length]);
    let padded = match operator {
        Operator::CONSTANT_PAD_ND => {
            let zero = b.new_int(0);
            b.call(operator, &[input, pads, zero], made)
        }
        _ => b.call(operator, &[input, pads], made),
    };
    if info.rank() == 1 { b.view_known(padded, &[length]) } else { Ok(padded) }
}

/// The Fourier transforms of overlapping frames of a real signal.
fn stft(b: &mut Builder<'_, '_>, call: &StftArgs, input: ValueId) -> Result<(), Error> {
    let info: Info = b.static_info(input, "stft")?;
    if is_complex(info.scalar_type) {
        return Err(Error::unsupported("stft of a complex signal"));
    }
    let size = usize::try_from(b.int(call.n_fft)?).ok().filter(|size| *size > 0);
    let size = size.ok_or_else(|| Error::invalid("stft: n_fft is not positive"))?;
    let positive = |b: &Builder<'_, '_>, id: Option<ValueId>, default: usize| {
        let found = b.optional(id).map_or(Ok(default as i64), |id| b.int(id))?;
        let found = usize::try_from(found).ok().filter(|found| *found > 0);
        found.ok_or_else(|| Error::invalid("stft: a length is not positive"))
    };
    let hop = positive(b, call.hop_length, (size / 4).max(1))?;
    let width = positive(b, call.win_length, size)?;
    let length = info.last();
    if length < size || width > size || info.rank() > 2 || b.truth(call.align_to_window)? {
        return Err(Error::Unsupported(format!(
            "stft with frames of {size} elements, windows of {width}, of shape {:?}",
            info.sizes
        )));
    }
    let batch = if info.rank() == 1 { 1 } else { info.size(0) };
    let frames = (length - size) / hop + 1;
    let signal = b.view_known(input, &[batch, length])?;
    let (one, count, step) = (b.new_int(1), b.new_int(size as i64), b.new_int(hop as i64));
    let made = info.with_sizes(vec![batch, frames, size]);
    let mut parts = b.call(Operator::UNFOLD_COPY, &[signal, one, count, step], made);
    // A narrower window is in the middle of the frame.
    let left = (size - width) / 2;
    let window = match b.optional(call.window) {
        Some(window) => Some(window),
        None if width < size => {
            let made = Info { sizes: vec![width], dynamic: false, ..info.clone() };
            Some(b.filled(made, 1.0)?)
        }
        None => None,
    };
    if let Some(mut window) = window {
        if width < size {
            let (pads, zero) = ([left, size - width - left].map(|pad| pad as i64), b.new_int(0));
            let (pads, made) = (b.new_ints(&pads), b.info(window)?.with_sizes(vec![size]));
            window = b.call(Operator::CONSTANT_PAD_ND, &[window, pads, zero], made);
        }
        parts = b.binary(Operator::MUL_TENSOR, parts, window)?;
    }
    let is_onesided = b.optional(call.onesided).map_or(Ok(true), |id| b.truth(id))?;
    let bins = if is_onesided { size / 2 + 1 } else { size };
    let complex = match info.scalar_type {
        ScalarType::Double => ScalarType::ComplexDouble,
        _ => ScalarType::ComplexFloat,
    };
    let dims = b.new_ints(&[2]);
    // 0: no scaling, 1: by the square root of the number of elements.
    let scaling = i64::from(b.truth(call.normalized)?);
    let (scaling, onesided) = (b.new_int(scaling), b.push(Value::Bool(is_onesided)));
    let made = Info { scalar_type: complex, sizes: vec![batch, frames, bins], dynamic: false };
    let spectrum = b.call(Operator::FFT_R2C, &[parts, dims, scaling, onesided], made);
    let mut value = b.permute(spectrum, &[0, 2, 1])?;
    let out = b.info(call.out)?;
    if !is_complex(out.scalar_type) {
        let made = Info {
            scalar_type: info.scalar_type,
            sizes: vec![batch, bins, frames, 2],
            dynamic: false,
        };
        value = b.call(Operator::VIEW_AS_REAL_COPY, &[value], made);
    }
    let sizes: Vec<usize> = out.sizes;
    let value = b.view_known(value, &sizes)?;
    b.finish_with(value, call.out)
}
