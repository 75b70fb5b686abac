//! Reference implementations: pooling, addition and multiplication are recomputed element by
//! element. Softmax is compared with the hash of the results of CMSIS-NN's C code.

use super::{Buffers, Rng};
use torchlet::core::Serial;
use torchlet::core::rules::window::Window;
use torchlet::firmware::Error;
use torchlet::portable::compute::q8::Scale;
use torchlet::portable::compute::q8::convolve::Extent;
use torchlet::portable::compute::q8::elementwise::{Context, Product, Sum, add, multiply};
use torchlet::portable::compute::q8::pool::{Pooling, pool};
use torchlet::portable::compute::q8::softmax::Softmax;
use torchlet::portable::compute::simd::Tier;

pub(super) fn average(numbers: &mut Rng, buffers: &mut Buffers) -> Result<usize, Error> {
    Ok(pooled(numbers, buffers, Pooling::Average))
}

pub(super) fn largest(numbers: &mut Rng, buffers: &mut Buffers) -> Result<usize, Error> {
    let bounds = match numbers.count(2) {
        1 => (-128, 127),
        _ => (numbers.from(-128, 0), numbers.from(1, 127)),
    };
    Ok(pooled(numbers, buffers, Pooling::Max(bounds.0, bounds.1)))
}

/// Input position of a tap, or `None` in the padding.
fn inside(window: &Window, (at, tap): (usize, usize), size: usize) -> Option<usize> {
    let place = at * window.stride() + tap * window.dilation();
    place.checked_sub(window.padding()).filter(|place| *place < size)
}

fn pooled(numbers: &mut Rng, buffers: &mut Buffers, pooling: Pooling) -> usize {
    let ((rows, down, to_rows), (columns, across, to_columns)) =
        (numbers.window(), numbers.window());
    let channels = numbers.count(super::CHANNELS);
    let from = Extent { rows, columns, channels };
    let to = Extent { rows: to_rows, columns: to_columns, channels };
    numbers.fill_int8(&mut buffers.input);
    let len = to.rows * to.columns * channels;
    let [fast, plain] = &mut buffers.outs;
    let (input, windows) = (&buffers.input, [down, across]);
    pool(Tier::detect(), &Serial, pooling, windows, [from, to], input, &mut fast[..len]);
    for (index, out) in plain[..len].iter_mut().enumerate() {
        let (pixel, channel) = (index / channels, index % channels);
        let (row, column) = (pixel / to.columns, pixel % to.columns);
        let (mut sum, mut count, mut most) = (0i32, 0i32, i32::from(i8::MIN));
        for tall in 0..down.kernel() {
            for wide in 0..across.kernel() {
                let y = inside(&down, (row, tall), from.rows);
                let x = inside(&across, (column, wide), from.columns);
                let (Some(y), Some(x)) = (y, x) else { continue };
                let code = input[(y * from.columns + x) * channels + channel].into();
                (sum, count, most) = (sum + code, count + 1, most.max(code));
            }
        }
        *out = match pooling {
            Pooling::Average => {
                let half = if sum > 0 { count / 2 } else { -(count / 2) };
                ((sum + half) / count.max(1)) as i8
            }
            Pooling::Max(least, greatest) => most.max(least).min(greatest) as i8,
        };
    }
    len
}

/// A random scale as in real networks, or, rarely, with a left shift.
fn scale(numbers: &mut Rng) -> Result<Scale, Error> {
    let multiplier = 0x4000_0000 + (numbers.next() % 0x4000_0000) as i32;
    let greatest = if numbers.count(4) == 1 { 2 } else { 0 };
    let shift = numbers.from(-14, greatest);
    Scale::new(multiplier.into(), shift.into()).ok_or(Error::Length { expected: 1, found: 0 })
}

fn context() -> Context<'static> {
    Context { tier: Tier::detect(), parallel: &Serial }
}

/// Fills the input with two consecutive rows of random values and returns their length.
fn pairs(numbers: &mut Rng, buffers: &mut Buffers) -> usize {
    numbers.fill_int8(&mut buffers.input);
    numbers.count(buffers.input.len() / 4)
}

pub(super) fn sum(numbers: &mut Rng, buffers: &mut Buffers) -> Result<usize, Error> {
    let len = pairs(numbers, buffers);
    let sum = Sum {
        zeros: [numbers.from(-128, 127), numbers.from(-128, 127)],
        scales: [scale(numbers)?, scale(numbers)?],
        headroom: numbers.from(0, 20) as u32,
        scale: scale(numbers)?,
        offset: numbers.from(-128, 127),
        bounds: (numbers.from(-128, 0), numbers.from(1, 127)),
    };
    let inputs = [&buffers.input[..len], &buffers.input[len..2 * len]];
    let [fast, plain] = &mut buffers.outs;
    add(context(), sum, inputs, &mut fast[..len]);
    for (index, out) in plain[..len].iter_mut().enumerate() {
        let [a, b] = [0, 1].map(|side| {
            let code = i32::from(inputs[side][index]) - sum.zeros[side];
            sum.scales[side].apply(code << sum.headroom)
        });
        let code = sum.scale.apply(a.wrapping_add(b)) + sum.offset;
        *out = code.max(sum.bounds.0).min(sum.bounds.1) as i8;
    }
    Ok(len)
}

pub(super) fn product(numbers: &mut Rng, buffers: &mut Buffers) -> Result<usize, Error> {
    let len = pairs(numbers, buffers);
    let product = Product {
        zeros: [numbers.from(-128, 127), numbers.from(-128, 127)],
        scale: scale(numbers)?,
        offset: numbers.from(-128, 127),
        bounds: (numbers.from(-128, 0), numbers.from(1, 127)),
    };
    let inputs = [&buffers.input[..len], &buffers.input[len..2 * len]];
    let [fast, plain] = &mut buffers.outs;
    multiply(context(), product, inputs, &mut fast[..len]);
    for (index, out) in plain[..len].iter_mut().enumerate() {
        let [a, b] = [0, 1].map(|side| i32::from(inputs[side][index]) - product.zeros[side]);
        let code = product.scale.apply(a * b) + product.offset;
        *out = code.max(product.bounds.0).min(product.bounds.1) as i8;
    }
    Ok(len)
}

/// Number of softmax rows, and the FNV-1a hash of the results of CMSIS-NN's C code for the same
/// values; the kernels' unit tests use the same.
const ROWS: usize = 3_000;
const HASH: u64 = 0x63d6_1842_fd75_2ec4;

/// Whether softmax matches CMSIS-NN.
pub(super) fn softmax_is_right(buffers: &mut Buffers) -> bool {
    let mut numbers = Rng(2);
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for _ in 0..ROWS {
        let len = numbers.count(40);
        let spread = 1 + numbers.next() % 255;
        let values = &mut buffers.input[..len];
        values.fill_with(|| ((numbers.next() % spread) as i32 - 128) as i8);
        let multiplier = 0x4000_0000 + (numbers.next() % 0x4000_0000) as i32;
        let shift = 18 + numbers.next() % 6;
        let mut least = -(((31i64 << 26) >> shift) as i32);
        if numbers.next() % 4 == 0 {
            least = -((numbers.next() % 200) as i32);
        }
        let out = &mut buffers.outs[0][..len];
        Softmax { multiplier, shift, least }.row(values, out);
        for code in out {
            hash = (hash ^ u64::from(*code as u8)).wrapping_mul(0x100_0000_01b3);
        }
    }
    hash == HASH
}
