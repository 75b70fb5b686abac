//! Programs that no fixture has, written for the test.

use torchlet_core::{Scalar, ScalarType, ShapeDynamism, TensorInfo};
use torchlet_graph::method::{Instruction, Method, MethodTensor, MethodValue, Program, TensorData};

/// Offset of the output in planned memory, beyond the input.
const OUTPUT: usize = 1 << 16;

/// A method `forward` under construction.
pub(crate) struct Builder(Method<'static>);

impl Builder {
    pub(crate) fn new() -> Self {
        Builder(Method { name: "forward".into(), ..Method::default() })
    }

    /// A tensor without data.
    pub(crate) fn tensor(&mut self, dtype: ScalarType, sizes: &[i32]) -> usize {
        self.tensor_at(dtype, sizes, None)
    }

    /// A tensor at an offset in planned memory.
    fn tensor_at(&mut self, dtype: ScalarType, sizes: &[i32], at: Option<usize>) -> usize {
        let info = TensorInfo::contiguous(dtype, sizes).expect("a small tensor");
        let (dynamism, data) = (ShapeDynamism::Static, TensorData::None);
        let location = at.map(|at| (0, at));
        self.0.add(MethodValue::Tensor(MethodTensor { info, dynamism, location, data, name: None }))
    }

    /// A constant with elements in no particular order.
    fn constant(
        &mut self,
        dtype: ScalarType,
        sizes: &[i32],
        element: impl Fn(i32) -> i32,
    ) -> usize {
        let count: i32 = sizes.iter().product();
        let bytes = (0..count).flat_map(|at| {
            let bytes = element(at * 7919 + 13).to_le_bytes();
            bytes.into_iter().take(dtype.size())
        });
        let bytes: Vec<u8> = bytes.collect();
        let info = TensorInfo::contiguous(dtype, sizes).expect("a small tensor");
        let (dynamism, data) = (ShapeDynamism::Static, TensorData::Inside(bytes.into()));
        let tensor = MethodTensor { info, dynamism, location: None, data, name: None };
        self.0.add(MethodValue::Tensor(tensor))
    }

    /// int8 weights.
    fn weights(&mut self, sizes: &[i32]) -> usize {
        self.constant(ScalarType::Char, sizes, |at| at % 255 - 127)
    }

    /// Bias, multipliers and shifts of channels.
    fn channels(&mut self, count: i32) -> [usize; 3] {
        let bias = self.constant(ScalarType::Int, &[count], |at| at % 4001 - 2000);
        let multipliers = self.constant(ScalarType::Int, &[count], |at| (1 << 30) + at * 977);
        let shifts = self.constant(ScalarType::Int, &[count], |at| -7 - at % 3);
        [bias, multipliers, shifts]
    }

    fn ints(&mut self, items: &[i64]) -> usize {
        let items = items.iter().map(|&item| self.int(item)).collect();
        self.0.add(MethodValue::Ints(items))
    }

    fn none(&mut self) -> usize {
        self.0.add(MethodValue::None)
    }

    fn bool(&mut self, value: bool) -> usize {
        self.0.add(MethodValue::Scalar(Scalar::Bool(value)))
    }

    /// Memory that compiled calls do not need.
    fn scratch(&mut self) -> usize {
        self.tensor(ScalarType::Byte, &[64])
    }

    /// A convolution whose weights have these sizes. `more` follows the padding: dilation, or a
    /// list before it, or a number behind it.
    fn convolve(
        &mut self,
        name: &str,
        [input, channels]: [usize; 2],
        weights: &[i32],
        [stride, padding]: [[i64; 2]; 2],
        more: &[usize],
        sizes: &[i32],
    ) -> usize {
        let weights = self.weights(weights);
        let [bias, multipliers, shifts] = self.channels(channels as i32);
        let windows = [self.ints(&stride), self.ints(&padding)];
        let numbers = [-5, 7, -110, 101].map(|number| self.int(number));
        let [offset, added, low, high] = numbers;
        let out = self.tensor(ScalarType::Char, sizes);
        let mut args = vec![input, weights, bias];
        args.extend(windows);
        args.extend(more);
        args.extend([offset, added, multipliers, shifts, low, high]);
        args.push(self.scratch());
        if name.contains("transpose") {
            args.push(self.scratch());
        }
        args.push(out);
        self.call(name, &args);
        out
    }

    pub(crate) fn int(&mut self, value: i64) -> usize {
        self.0.add(MethodValue::Scalar(Scalar::Int(value)))
    }

    fn double(&mut self, value: f64) -> usize {
        self.0.add(MethodValue::Scalar(Scalar::Double(value)))
    }

    pub(crate) fn call(&mut self, name: &str, args: &[usize]) {
        let (name, args) = (name.into(), args.to_vec());
        self.0.instructions.push(Instruction::Kernel { name, overload: "out".into(), args });
    }

    /// A quantized input of the method.
    pub(crate) fn input(&mut self, sizes: &[i32]) -> usize {
        let input = self.tensor_at(ScalarType::Float, sizes, Some(0));
        self.0.inputs.push(input);
        let out = self.tensor(ScalarType::Char, sizes);
        let args = self.quantization();
        let args = [&[input][..], &args, &[out]].concat();
        self.call("cortex_m::quantize_per_tensor", &args);
        out
    }

    /// Dequantizes a value as the output of the method.
    pub(crate) fn output(&mut self, value: usize, sizes: &[i32]) {
        let out = self.tensor_at(ScalarType::Float, sizes, Some(OUTPUT));
        let args = self.quantization();
        let args = [&[value][..], &args, &[out]].concat();
        self.call("cortex_m::dequantize_per_tensor", &args);
        self.0.outputs.push(out);
    }

    /// Scale, zero point, bounds and dtype.
    fn quantization(&mut self) -> [usize; 5] {
        let scale = self.double(1.0 / 64.0);
        let [zero, low, high, dtype] = [3, -128, 127, 1].map(|value| self.int(value));
        [scale, zero, low, high, dtype]
    }

    pub(crate) fn write(mut self) -> Result<Vec<u8>, torchlet_graph::Error> {
        self.0.plan()?;
        let program = Program { methods: vec![self.0], named: Vec::new() };
        Ok(program.write()?.to_bytes())
    }
}

/// Adds values to views of themselves.
pub(crate) fn sum_of_views() -> Result<Vec<u8>, torchlet_graph::Error> {
    let mut program = Builder::new();
    let sizes = [2, 8];
    let input = program.input(&sizes);
    let mut value = input;
    for shapes in [&[[2i32, 8]][..], &[[4, 4], [2, 8]]] {
        let mut view = value;
        for shape in shapes {
            let sizes = shape.map(|size| program.int(size.into())).to_vec();
            let sizes = program.0.add(MethodValue::Ints(sizes));
            let out = program.tensor(ScalarType::Char, shape);
            program.call("aten::view_copy", &[view, sizes, out]);
            view = out;
        }
        // Zero points, then scales of 1 and bounds.
        let numbers = [-3, 1 << 30, 1, -3, 1 << 30, 1, 3, 1 << 30, -19, -128, 127];
        let numbers = numbers.map(|value| program.int(value));
        let [a, b, c, d, e, f, rest @ ..] = numbers;
        let out = program.tensor(ScalarType::Char, &sizes);
        let args = [&[value, a, b, c, view, d, e, f][..], &rest, &[out]].concat();
        program.call("cortex_m::quantized_add", &args);
        value = out;
    }
    program.output(value, &sizes);
    program.write()
}

/// Convolutions of all kinds and pooling, without packed forms.
pub(crate) fn convolutions() -> Result<Vec<u8>, torchlet_graph::Error> {
    let mut program = Builder::new();
    let p = &mut program;
    let input = p.input(&[2, 7, 6, 6]);
    let dilation = p.ints(&[1, 2]);
    let strides = [[1, 1], [1, 1]];
    // Three groups.
    let plain = "cortex_m::quantized_conv2d_nhwc";
    let out = p.convolve(plain, [input, 9], &[9, 3, 2, 2], strides, &[dilation], &[2, 7, 6, 9]);
    let transposed = "cortex_m::quantized_transpose_conv2d_nhwc";
    let (extra, dilation) = (p.ints(&[1, 0]), p.ints(&[1, 2]));
    let (strides, more) = ([[2, 1], [1, 0]], [extra, dilation]);
    let out = p.convolve(transposed, [out, 5], &[5, 3, 2, 9], strides, &more, &[2, 14, 8, 5]);
    let depthwise = "cortex_m::quantized_depthwise_conv2d_nhwc";
    let (dilation, multiplier) = (p.ints(&[2, 1]), p.int(2));
    let (strides, more) = ([[2, 2], [2, 1]], [dilation, multiplier]);
    let out = p.convolve(depthwise, [out, 10], &[1, 3, 2, 10], strides, &more, &[2, 7, 5, 10]);
    let (dilation, one) = (p.ints(&[1, 1]), p.int(1));
    let (strides, more) = ([[1, 1], [2, 1]], [dilation, one]);
    let out = p.convolve(depthwise, [out, 10], &[1, 5, 3, 10], strides, &more, &[2, 7, 5, 10]);
    // An odd number of channels.
    let strides = [[1, 1], [0, 0]];
    let out = p.convolve(plain, [out, 7], &[7, 1, 1, 10], strides, &[dilation], &[2, 7, 5, 7]);
    let lists = [[3, 3], [2, 1], [1, 1]].map(|list| p.ints(&list));
    let (ceil, numbers) = (p.bool(false), [0, 1 << 30, 1].map(|number| p.int(number)));
    let (scratch, pooled) = (p.scratch(), p.tensor(ScalarType::Char, &[2, 4, 5, 7]));
    let args = [&[out][..], &lists, &[ceil], &numbers, &[scratch, pooled]].concat();
    p.call("cortex_m::quantized_avg_pool2d_nhwc", &args);
    let lists = [[2, 2], [1, 1], [1, 0], [2, 1]].map(|list| p.ints(&list));
    let (ceil, numbers) = (p.bool(false), [3, 3, -60, 50].map(|number| p.int(number)));
    let largest = p.tensor(ScalarType::Char, &[2, 4, 4, 7]);
    let args = [&[pooled][..], &lists, &[ceil], &numbers, &[largest]].concat();
    p.call("cortex_m::quantized_max_pool2d_nhwc", &args);
    program.output(largest, &[2, 4, 4, 7]);
    program.write()
}

/// Padding, a linear layer of several rows with an offset of the weights, softmax, and a sum of
/// tensors with unequal scales.
pub(crate) fn rows() -> Result<Vec<u8>, torchlet_graph::Error> {
    let mut program = Builder::new();
    let p = &mut program;
    let input = p.input(&[4, 8]);
    let (before, after) = (p.ints(&[0, 0, 1, 1]), p.ints(&[0, 0, 0, 1]));
    let (value, padded) = (p.int(-9), p.tensor(ScalarType::Char, &[5, 10]));
    p.call("cortex_m::pad", &[input, before, after, value, padded]);
    let weights = p.weights(&[6, 10]);
    let [bias, ..] = p.channels(6);
    let none = p.none();
    let numbers = [-3, 4, 2].map(|number| p.int(number));
    let scale = [p.ints(&[1_500_000_000]), p.ints(&[-8])];
    let bounds = [127, -128].map(|number| p.int(number));
    let linear = p.tensor(ScalarType::Char, &[5, 6]);
    let args = [&[padded, weights, bias, none][..], &numbers, &scale, &bounds, &[linear]].concat();
    p.call("cortex_m::quantized_linear", &args);
    let numbers = [-1, 3, -128, 1 << 30, 21, -120].map(|number| p.int(number));
    let softmax = p.tensor(ScalarType::Char, &[5, 6]);
    p.call("cortex_m::softmax", &[&[linear][..], &numbers, &[softmax]].concat());
    let a = [5, 1_100_000_000, -1].map(|number| p.int(number));
    let b = [-128, 1_900_000_000, -2].map(|number| p.int(number));
    let rest = [3, 1 << 30, -18, -128, 120].map(|number| p.int(number));
    let sum = p.tensor(ScalarType::Char, &[5, 6]);
    let args = [&[linear][..], &a, &[softmax], &b, &rest, &[sum]].concat();
    p.call("cortex_m::quantized_add", &args);
    program.output(sum, &[5, 6]);
    program.write()
}
