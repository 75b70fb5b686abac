//! Compares int8 kernels on random layers: this processor's instructions must yield the same
//! results as plain loops. Real networks have few shapes; these tests cover the remainders of loops
//! unrolled by four and eight.

mod plain;

use crate::{Failed, checked};
use defmt::println;
use torchlet::core::Serial;
use torchlet::core::rules::window::Window;
use torchlet::firmware::{Error, TakeOnce};
use torchlet::portable::compute::q8::convolve::{self, Convolution, Extent};
use torchlet::portable::compute::q8::depthwise::{self, Depthwise};
use torchlet::portable::compute::q8::gemm::{self, Rows, Target, Weights};
use torchlet::portable::compute::q8::{Results, Scale};
use torchlet::portable::compute::simd::Tier;

/// Number of layers of each kind.
const LAYERS: u32 = 100;

/// Maximum number of output channels.
const CHANNELS: usize = 48;

#[repr(C, align(16))]
struct Buffers {
    workspace: [i16; 2048],
    input: [i8; 4096],
    weights: [i8; 16 * 1024],
    /// The same weights in the order of a plain convolution.
    turned: [i8; 1024],
    outs: [[i8; 4096]; 2],
    multipliers: [i32; CHANNELS],
    shifts: [i32; CHANNELS],
    bias: [i32; CHANNELS],
}

static BUFFERS: TakeOnce<Buffers> = TakeOnce::new(Buffers {
    workspace: [0; 2048],
    input: [0; 4096],
    weights: [0; 16 * 1024],
    turned: [0; 1024],
    outs: [[0; 4096]; 2],
    multipliers: [0; CHANNELS],
    shifts: [0; CHANNELS],
    bias: [0; CHANNELS],
});

/// A linear congruential generator.
struct Rng(u32);

impl Rng {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 8
    }

    fn from(&mut self, first: i32, last: i32) -> i32 {
        first + (self.next() % (last - first + 1) as u32) as i32
    }

    /// A number in `1..=most`.
    fn count(&mut self, most: usize) -> usize {
        1 + self.next() as usize % most
    }

    fn fill_int8(&mut self, values: &mut [i8]) {
        // Extreme values more often than others.
        values.fill_with(|| match self.next() % 8 {
            0 => i8::MIN,
            1 => i8::MAX,
            _ => self.next() as i8,
        });
    }

    /// An input size, a window, and its number of positions.
    fn window(&mut self) -> (usize, Window, usize) {
        let (size, kernel) = (self.count(7), self.count(3));
        let (stride, padding) = (self.count(2), self.next() as usize % kernel);
        let dilation = self.count(2);
        let window = Window::new(kernel as i64, stride as i64, padding as i64, dilation as i64);
        let reach = (kernel - 1) * dilation + 1;
        match (window, (size + 2 * padding).checked_sub(reach)) {
            (Some(window), Some(rest)) => (size, window, rest / stride + 1),
            _ => (size, Window::ONE, size),
        }
    }
}

/// Computes random layers with both variants and compares the results.
pub(crate) fn all() -> Result<(), Failed> {
    let buffers = checked(BUFFERS.take())?;
    let mut numbers = Rng(1);
    for layer in 0..LAYERS {
        for (kind, run) in KINDS {
            let len = checked(run(&mut numbers, buffers))?;
            let [fast, plain] = &buffers.outs;
            if fast[..len] != plain[..len] {
                println!("error: {=str} {=u32} differs from plain loops", kind, layer);
                return Err(Failed);
            }
        }
    }
    if !plain::softmax_is_right(buffers) {
        println!("error: softmax differs from CMSIS-NN");
        return Err(Failed);
    }
    println!(
        "kernels: {=u32} random layers match plain loops, softmax matches CMSIS-NN",
        LAYERS * KINDS.len() as u32
    );
    Ok(())
}

/// Computes a layer into both outputs and returns its length.
type Run = fn(&mut Rng, &mut Buffers) -> Result<usize, Error>;

const KINDS: [(&str, Run); 7] = [
    ("matrix product", product),
    ("convolution", convolution),
    ("depthwise convolution", depthwise),
    ("average", plain::average),
    ("maximum", plain::largest),
    ("elementwise sum", plain::sum),
    ("elementwise product", plain::product),
];

/// Random requantization parameters for a number of channels.
macro_rules! results {
    ($numbers:ident, $buffers:ident, $channels:expr) => {{
        let (channels, numbers) = ($channels, &mut *$numbers);
        // Mostly right shifts as in real networks, which have their own loops.
        let greatest = if numbers.count(4) == 1 { 2 } else { -1 };
        $buffers.multipliers.fill_with(|| 0x4000_0000 + (numbers.next() % 0x4000_0000) as i32);
        $buffers.shifts.fill_with(|| numbers.from(-14, greatest));
        $buffers.bias.fill_with(|| numbers.from(-20_000, 20_000));
        let bounds = match numbers.count(2) {
            1 => (-128, 127),
            _ => (numbers.from(-128, 0), numbers.from(1, 127)),
        };
        let (bias, offset) = (&$buffers.bias[..channels], numbers.from(-128, 127));
        let scale = Scale::new($buffers.multipliers[0].into(), $buffers.shifts[0].into());
        match (numbers.count(2), scale) {
            (1, Some(scale)) => Results::uniform(scale, bias, offset, bounds),
            _ => {
                let (multipliers, shifts) =
                    (&$buffers.multipliers[..channels], &$buffers.shifts[..channels]);
                let results = Results::per_channel(multipliers, shifts, bias, offset, bounds);
                results.ok_or(Error::Length { expected: channels, found: 0 })?
            }
        }
    }};
}

fn product(numbers: &mut Rng, buffers: &mut Buffers) -> Result<usize, Error> {
    let (depth, channels, count) = (numbers.count(150), numbers.count(CHANNELS), numbers.count(2));
    numbers.fill_int8(&mut buffers.input);
    numbers.fill_int8(&mut buffers.weights);
    let results = results!(numbers, buffers, channels);
    let offset = if numbers.count(3) == 1 { numbers.from(-9, 9) } else { 0 };
    let weights = Weights { data: &buffers.weights, depth, channels, offset };
    let rows = Rows { data: &buffers.input, stride: depth, count, offset: numbers.from(-127, 128) };
    let workspaces: [&mut [i16]; 2] = [&mut buffers.workspace, &mut []];
    for (out, workspace) in buffers.outs.iter_mut().zip(workspaces) {
        let target = Target { results: &results, first: 0, out, out_stride: channels };
        gemm::multiply(Tier::detect(), rows, weights, target, workspace);
    }
    Ok(count * channels)
}

fn convolution(numbers: &mut Rng, buffers: &mut Buffers) -> Result<usize, Error> {
    let groups = numbers.count(2);
    let (depth, channels) = (numbers.count(36 / groups), numbers.count(CHANNELS / groups) * groups);
    let ((rows, down, to_rows), (columns, across, to_columns)) =
        (numbers.window(), numbers.window());
    let from = Extent { rows, columns, channels: depth * groups };
    let to = Extent { rows: to_rows, columns: to_columns, channels };
    numbers.fill_int8(&mut buffers.input);
    numbers.fill_int8(&mut buffers.weights);
    let results = results!(numbers, buffers, channels);
    let offset = numbers.from(-127, 128);
    let windows = [down, across];
    let convolution = Convolution { from, to, windows, transposed: false, depth, offset, results };
    let len = to.rows * to.columns * to.channels;
    let workspaces: [&mut [i16]; 2] = [&mut buffers.workspace, &mut []];
    for (out, workspace) in buffers.outs.iter_mut().zip(workspaces) {
        let (input, weights, out) = (&buffers.input, &buffers.weights, &mut out[..len]);
        let tier = Tier::detect();
        convolve::convolve(tier, &Serial, &convolution, input, weights, out, workspace);
    }
    Ok(len)
}

/// Computed as depthwise convolution, and as grouped convolution with one group per channel.
fn depthwise(numbers: &mut Rng, buffers: &mut Buffers) -> Result<usize, Error> {
    let multiplier = match numbers.count(2) {
        1 => [2, 3, 4, 8, 16, 32, 48][numbers.count(7) - 1],
        _ => 1,
    };
    let inputs = numbers.count(CHANNELS / multiplier);
    let channels = inputs * multiplier;
    let ((rows, down, to_rows), (columns, across, to_columns)) =
        (numbers.window(), numbers.window());
    let from = Extent { rows, columns, channels: inputs };
    let to = Extent { rows: to_rows, columns: to_columns, channels };
    numbers.fill_int8(&mut buffers.input);
    numbers.fill_int8(&mut buffers.weights);
    let taps = down.kernel() * across.kernel();
    for (place, turned) in buffers.turned[..taps * channels].iter_mut().enumerate() {
        *turned = buffers.weights[place % taps * channels + place / taps];
    }
    let results = results!(numbers, buffers, channels);
    let (offset, windows) = (numbers.from(-127, 128), [down, across]);
    let len = to.rows * to.columns * to.channels;
    let [fast, plain] = &mut buffers.outs;
    let layer = Depthwise { from, to, windows, multiplier, offset, results };
    let (tier, input) = (Tier::detect(), &buffers.input);
    depthwise::convolve(tier, &Serial, &layer, input, &buffers.weights, &mut fast[..len]);
    let layer = Convolution { from, to, windows, transposed: false, depth: 1, offset, results };
    let plain = &mut plain[..len];
    convolve::convolve(tier, &Serial, &layer, input, &buffers.turned, plain, &mut []);
    Ok(len)
}
