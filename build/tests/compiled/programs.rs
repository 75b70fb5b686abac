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
