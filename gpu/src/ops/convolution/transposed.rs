//! Transposed convolutions.

use super::Shape;
use crate::derived::Matrices;
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::ops::matmul::{Product, workgroup};
use crate::ops::weights::transposed;
use crate::ops::window::Window;
use crate::stages::Epilogue;
use crate::tensors::{Operand, padded_bytes};
use torchlet_shaders::{
    ConvolutionFold, ConvolutionFoldPush, ConvolutionTransposed, ConvolutionTransposedPush, Element,
};

/// The minimum number of terms per output element for which a GEMM with a following fold (col2im)
/// is faster than one dispatch.
const MIN_TERMS: usize = 32;
/// The minimum number of input channels for GEMM and fold: with fewer channels, the GEMM mainly
/// writes.
const MIN_CHANNELS: usize = 8;
/// The maximum size of the GEMM's result, as a multiple of the output elements, and in bytes. A
/// large result exceeds all caches and is streamed through memory.
const MAX_PRODUCTS: usize = 16;
const MAX_BYTES: u64 = 256 << 20;

impl Shape {
    pub(super) fn transposed(self, e: &mut Encoder<'_, '_>) -> Result<(), Error> {
        match self.folded_plane(e) {
            Some(plane) => self.folded(e, plane),
            None => self.gathered(e),
        }
    }

    /// If GEMM and fold are faster than one dispatch, returns the maximum number of elements of an
    /// input plane.
    fn folded_plane(&self, e: &Encoder<'_, '_>) -> Option<usize> {
        if self.depth.is_some() {
            return None;
        }
        let bounds = e.bound_sizes(&self.input);
        let all: usize = bounds.iter().product();
        let plane = all / (self.most * self.groups * self.in_channels).max(1);
        let taps = |window: &Window| (window.kernel as usize).div_ceil(window.stride as usize);
        let terms = self.in_channels * self.window.iter().map(taps).product::<usize>();
        let products = [self.most, self.groups, self.out_channels, self.taps(), plane];
        let products =
            products.into_iter().try_fold(1usize, |numel, size| numel.checked_mul(size))?;
        let out = self.bound * self.most * self.groups * self.out_channels;
        let is_worthwhile = self.in_channels >= MIN_CHANNELS && terms >= MIN_TERMS;
        let bytes = padded_bytes(Element::F32, products);
        let fits = products <= out.saturating_mul(MAX_PRODUCTS)
            && bytes <= e.limits().tensor.min(MAX_BYTES);
        (is_worthwhile && fits).then_some(plane)
    }

    /// Emits a GEMM of the weights and the input planes, and the fold of its result.
    fn folded(self, e: &mut Encoder<'_, '_>, most_of_plane: usize) -> Result<(), Error> {
        let (groups, terms) = (self.groups, self.in_channels);
        let (rows, plane) = (self.out_channels * self.taps(), self.size.iter().product());
        // The weights are only padded: the input channels are the rows.
        let matrices = Matrices { count: groups * terms, rows, columns: 1 };
        let weights = transposed(e, &self.weight, matrices)?;
        let sizes = [self.batch * groups, rows, plane];
        // 32-bit floats instead of fp16, so that sums are rounded only once.
        let products = e.temporary(Element::F32, &sizes)?;
        // The GEMM's result has a dynamic shape if the output has one.
        let out = Operand { value: self.out.value, ..products.clone() };
        let mut product = Product::new(weights, self.input.clone(), out, [rows, plane, terms]);
        product.a_transposed = true;
        product.batches = self.batch * groups;
        product.period = Some(groups);
        product.epilogue = Some(Epilogue::none());
        product.bound = Some([self.most * groups, rows, most_of_plane]);
        product.encode(e)?;
        self.fold(e, &products)
    }

    /// Emits the fold: for each output element, adds those elements of
    /// `[output plane][taps][input plane]` that contribute to it.
    fn fold(self, e: &mut Encoder<'_, '_>, products: &Operand) -> Result<(), Error> {
        let [y, x] = self.window;
        let steps =
            self.window.map(|window| window.stride / common(window.stride, window.dilation));
        let pipeline = ConvolutionFold {
            products: products.element,
            bias: self.bias().element,
            output: self.out.element,
            has_bias: self.bias.is_some(),
            stride_y: y.stride as u32,
            stride_x: x.stride as u32,
            dilation_y: y.dilation as u32,
            dilation_x: x.dilation as u32,
            step_y: steps[0] as u32,
            step_x: steps[1] as u32,
            activation: self.epilogue.activation,
            residual: self.residual().element,
            has_residual: self.epilogue.residual.is_some(),
        };
        let push = ConvolutionFoldPush {
            numel: u32_of(self.out.numel())?,
            channels: u32_of(self.groups * self.out_channels)?,
            in_y: u32_of(self.size[0])?,
            in_x: u32_of(self.size[1])?,
            out_y: u32_of(self.out_size[0])?,
            out_x: u32_of(self.out_size[1])?,
            kernel_y: y.kernel as u32,
            kernel_x: x.kernel as u32,
            padding_y: y.padding as u32,
            padding_x: x.padding as u32,
            a: self.epilogue.a,
            b: self.epilogue.b,
        };
        let accesses =
            [read(products.id), read(self.bias().id), read(self.residual().id), write(self.out.id)];
        e.dispatch_by_four(&pipeline, accesses, &push, self.out.numel())
    }

    /// Emits one dispatch, in which each output element gathers the input elements that contribute
    /// to it.
    fn gathered(self, e: &mut Encoder<'_, '_>) -> Result<(), Error> {
        let ([y, x], z) = (self.window, self.depth_window());
        let [planes, out_planes] = self.planes();
        let matrices = Matrices {
            count: self.groups * self.in_channels,
            rows: self.out_channels,
            columns: self.taps(),
        };
        let weights = transposed(e, &self.weight, matrices)?;
        let rows: usize = if self.out_channels > 4 { 8 } else { 4 };
        let pipeline = ConvolutionTransposed {
            input: self.input.element,
            weight: weights.element,
            bias: self.bias().element,
            output: self.out.element,
            rows: u32_of(rows)?,
            has_bias: self.bias.is_some(),
            activation: self.epilogue.activation,
            residual: self.residual().element,
            has_residual: self.epilogue.residual.is_some(),
        };
        let push = ConvolutionTransposedPush {
            groups: u32_of(self.groups)?,
            in_channels: u32_of(self.in_channels)?,
            out_channels: u32_of(self.out_channels)?,
            pitch: u32_of(weights.size(2))?,
            in_y: self.size[0] as i32,
            in_x: self.size[1] as i32,
            out_y: u32_of(self.out_size[0])?,
            out_x: u32_of(self.out_size[1])?,
            kernel_y: y.kernel,
            kernel_x: x.kernel,
            stride_y: y.stride,
            stride_x: x.stride,
            padding_y: y.padding,
            padding_x: x.padding,
            dilation_y: y.dilation,
            dilation_x: x.dilation,
            in_z: planes as i32,
            out_z: u32_of(out_planes)?,
            kernel_z: z.kernel,
            stride_z: z.stride,
            padding_z: z.padding,
            dilation_z: z.dilation,
            a: self.epilogue.a,
            b: self.epilogue.b,
            base_z: 0,
        };
        let accesses = self.accesses(&weights);
        let down = self.out_channels.div_ceil(rows);
        let workgroup = workgroup(self.bound.div_ceil(4), down, 1);
        let positions = self.out_size[0] * self.out_size[1].div_ceil(4);
        let images = self.batch * self.groups * out_planes;
        e.dispatch(&pipeline, accesses, &push, [positions, down, images], workgroup)
    }
}

/// Returns the greatest common divisor of two positive integers.
fn common(a: i32, b: i32) -> i32 {
    if b == 0 { a } else { common(b, a % b) }
}
