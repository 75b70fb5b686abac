//! Argmax of outputs on the device.

use crate::device::{Random, device_is_there, on_device};
use std::sync::Arc;
use torchlet::core::{Scalar, ScalarType, ShapeDynamism, TensorInfo};
use torchlet::vulkan::VulkanBackend;
use torchlet::{Error, Module, ModuleBuilder, RunOn, Tensor};
use torchlet_graph::method::{Instruction, Method, MethodTensor, MethodValue, Program, TensorData};

/// A program with outputs `-x` and `x + x` for a matrix with this upper-bound shape.
fn program(scalar_type: ScalarType, sizes: [usize; 2]) -> Vec<u8> {
    let bytes = sizes[0] * sizes[1] * scalar_type.size();
    let planned = vec![0, bytes, bytes, bytes];
    let mut method = Method { name: "forward".into(), planned, ..Method::default() };
    let sizes = sizes.map(|size| size as i32);
    let values = [1, 2, 3].map(|buffer| {
        let info = TensorInfo::contiguous(scalar_type, &sizes).unwrap();
        let (location, data) = (Some((buffer, 0)), TensorData::None);
        let dynamism = ShapeDynamism::DynamicBound;
        method.add(MethodValue::Tensor(MethodTensor { info, dynamism, location, data, name: None }))
    });
    let one = method.add(MethodValue::Scalar(Scalar::Int(1)));
    let call = |name: &str, overload: &str, args: &[usize]| Instruction::Kernel {
        name: name.into(),
        overload: overload.into(),
        args: args.to_vec(),
    };
    let [x, negative, twice] = values;
    method.instructions = vec![
        call("aten::neg", "out", &[x, negative, negative]),
        call("aten::add", "out", &[x, x, one, twice, twice]),
    ];
    (method.inputs, method.outputs) = (vec![x], vec![negative, twice]);
    let program = Program { methods: vec![method], named: Vec::new() };
    program.write().unwrap().to_bytes()
}

/// A matrix with many equal values and some NaNs.
fn matrix(random: &mut Random, scalar_type: ScalarType, sizes: [usize; 2]) -> Tensor {
    let special =
        [f32::NAN, f32::NEG_INFINITY, f32::INFINITY, 0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 1e-7];
    let mut numbers = Vec::new();
    for _ in 0..sizes[0] {
        // Few distinct values per row; some rows have no maximum.
        let distinct = 1 + random.below(special.len());
        let first = random.below(special.len());
        let pick = |at: usize| special[(first + at) % special.len()];
        numbers.extend((0..sizes[1]).map(|_| pick(random.below(distinct))));
    }
    Tensor::from_slice(&sizes, &numbers).unwrap().to_type(scalar_type).unwrap()
}

/// Index of the first maximum of each row.
fn argmax(tensor: &Tensor) -> Vec<Option<u32>> {
    let numbers = tensor.to_type(ScalarType::Float).unwrap();
    let rows = numbers.as_slice::<f32>().unwrap().chunks_exact(tensor.shape()[1]);
    let first = |row: &[f32]| {
        let mut best = None;
        for (at, number) in (0u32..).zip(row) {
            if *number > best.map_or(f32::NEG_INFINITY, |best: u32| row[best as usize]) {
                best = Some(at);
            }
        }
        best
    };
    rows.map(first).collect()
}

fn check(builder: ModuleBuilder, scalar_type: ScalarType, bound: [usize; 2]) {
    let mut random = Random::new(11);
    let mut module = builder.from_bytes(program(scalar_type, bound)).unwrap();
    for turn in 0..6 {
        // The upper-bound shape, then smaller ones; each runs twice in a row to replay recorded
        // command buffers.
        let sizes = if turn < 2 { bound } else { bound.map(|most| 1 + random.below(most)) };
        for _ in 0..2 {
            let x = matrix(&mut random, scalar_type, sizes);
            let expected = module.forward(&x).unwrap();
            let mut method = module.method("forward").unwrap();
            for (output, expected) in expected.iter().enumerate() {
                method.set_input(0, &x.clone().into()).unwrap();
                let found = method.run_argmax(output).unwrap().expect("the device looks for them");
                assert_eq!(found, argmax(expected.tensor().unwrap()), "{sizes:?} {output}");
            }
            // Outputs without argmax are returned.
            let first = method.output_value(0).unwrap();
            let bytes = |value: &torchlet::Value| value.tensor().unwrap().bytes().to_vec();
            assert_eq!(bytes(&first), bytes(&expected[0]));
        }
    }
}

/// Rows that fit one workgroup and rows split among several; many rows and a single one; also
/// outputs that the device writes to host memory.
#[test]
fn first_maximum_of_each_row() {
    if !device_is_there() {
        return;
    }
    for scalar_type in [ScalarType::Float, ScalarType::Half] {
        for bound in [[1, 1], [3, 5], [2, 2048], [1, 20_011], [70, 4100], [700, 17]] {
            check(on_device(), scalar_type, bound);
            let busy = Arc::new(VulkanBackend::builder().busy_invocations(1 << 16).build());
            check(on_device().backend(busy), scalar_type, bound);
        }
    }
}

/// Rows beyond the maximum number of workgroups in one dim continue in the next.
#[test]
fn rows_fold_into_the_next_dimension() {
    if !device_is_there() {
        return;
    }
    let folded = VulkanBackend::builder().fold_workgroups_at(13).busy_invocations(1 << 20);
    check(on_device().backend(Arc::new(folded.build())), ScalarType::Float, [200, 4500]);
}

/// The CPU writes the output instead; an output index out of range is an error.
#[test]
fn cpus_write_the_output() {
    let builder = Module::builder().run_on(RunOn::Cpu);
    let mut module = builder.from_bytes(program(ScalarType::Float, [2, 3])).unwrap();
    let x = Tensor::from_slice(&[2, 3], &[1.0f32, -2.0, 3.0, 4.0, 5.0, -6.0]).unwrap();
    let mut method = module.method("forward").unwrap();
    method.set_input(0, &x.into()).unwrap();
    assert_eq!(method.run_argmax(0).unwrap(), None);
    let negative = method.output_value(0).unwrap();
    assert_eq!(negative.tensor().unwrap().as_slice::<f32>().unwrap(), [-1., 2., -3., -4., -5., 6.]);
    assert!(matches!(method.run_argmax(2), Err(Error::Output { index: 2, .. })));
}
