//! Tests with hand-written blobs: variants that no fixture contains, and malformed blobs.

use super::*;
use crate::tables::{Offset, table};
use crate::testing::outputs;
use alloc::string::ToString;
use alloc::vec;
use flatbuffers::FlatBufferBuilder;
use torchlet_core::{ScalarType, TensorRef};

const FLOAT: u8 = 1;
const PACKED_BY_CHANNEL: u8 = 8;
const ROUNDED: u8 = 9;
const PACKED_BY_GROUP: u8 = 10;
const NONE: u32 = u32::MAX;

/// Builder for a blob. Constants follow the graph; constant 0 means "not constant".
struct Blob {
    b: FlatBufferBuilder<'static>,
    values: Vec<Offset>,
    nodes: Vec<Offset>,
    constants: Vec<Offset>,
    data: Vec<u8>,
    inputs: Vec<u32>,
    outputs: Vec<u32>,
}

impl Blob {
    fn new() -> Self {
        let mut b = FlatBufferBuilder::new();
        let none = table(&mut b, |_| {});
        let (values, nodes, data) = (Vec::new(), Vec::new(), Vec::new());
        let (inputs, outputs) = (Vec::new(), Vec::new());
        Blob { b, values, nodes, constants: vec![none], data, inputs, outputs }
    }

    fn constant(&mut self, bytes: &[u8]) -> u32 {
        let (offset, size) = (self.data.len() as u64, bytes.len() as u64);
        self.data.extend(bytes);
        self.constants.push(table(&mut self.b, |t| {
            t.scalar(0, offset);
            t.scalar(1, size);
        }));
        self.constants.len() as u32 - 1
    }

    fn tensor(&mut self, datatype: u8, dims: &[u32], constant: u32, external: u32) -> Offset {
        let dims = self.b.create_vector(dims);
        table(&mut self.b, |t| {
            t.scalar(0, u16::from(datatype));
            t.offset(2, dims);
            t.scalar(3, constant);
            t.scalar(4, external);
        })
    }

    fn push(&mut self, kind: u8, value: Offset) -> u32 {
        self.values.push(table(&mut self.b, |t| {
            t.scalar(0, kind);
            t.offset(1, value);
        }));
        self.values.len() as u32 - 1
    }

    /// Adds a value that calls compute.
    fn value(&mut self, dims: &[u32]) -> u32 {
        let tensor = self.tensor(FLOAT, dims, 0, NONE);
        self.push(1, tensor)
    }

    fn input(&mut self, dims: &[u32]) -> u32 {
        let tensor = self.tensor(FLOAT, dims, 0, self.inputs.len() as u32);
        let id = self.push(1, tensor);
        self.inputs.push(id);
        id
    }

    /// Adds an output; call it after all inputs.
    fn output(&mut self, dims: &[u32]) -> u32 {
        let external = (self.inputs.len() + self.outputs.len()) as u32;
        let tensor = self.tensor(FLOAT, dims, 0, external);
        let id = self.push(1, tensor);
        self.outputs.push(id);
        id
    }

    fn floats(&mut self, dims: &[u32], numbers: &[f32]) -> u32 {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let constant = self.constant(&bytes);
        let tensor = self.tensor(FLOAT, dims, constant, NONE);
        self.push(1, tensor)
    }

    fn quantized(&mut self, tensor: Offset, kind: u8, parameters: Offset) -> u32 {
        let value = table(&mut self.b, |t| {
            t.offset(0, tensor);
            t.scalar(1, kind);
            t.offset(2, parameters);
        });
        self.push(2, value)
    }

    /// Adds a call whose fields are all `u32`.
    fn node(&mut self, name: &str, fields: &[(u16, u32)]) {
        let kind = nodes::number(name).unwrap();
        let call = table(&mut self.b, |t| fields.iter().for_each(|(at, it)| t.scalar(*at, *it)));
        self.nodes.push(table(&mut self.b, |t| {
            t.scalar(0, kind);
            t.offset(1, call);
        }));
    }

    fn bytes(mut self) -> Vec<u8> {
        let nodes = self.b.create_vector(&self.nodes);
        let values = self.b.create_vector(&self.values);
        let (inputs, outputs) =
            (self.b.create_vector(&self.inputs), self.b.create_vector(&self.outputs));
        let constants = self.b.create_vector(&self.constants);
        let root = table(&mut self.b, |t| {
            t.offset(1, nodes);
            t.offset(2, values);
            t.offset(4, inputs);
            t.offset(5, outputs);
            t.offset(8, constants);
        });
        self.b.finish(root, Some("XN01"));
        let graph = self.b.finished_data();
        let (header, size) = (32u32, graph.len() as u32);
        let mut bytes = b"\0\0\0\0XH00\x1e\0".to_vec();
        bytes.extend(header.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend((header + size).to_le_bytes());
        bytes.extend((self.data.len() as u64).to_le_bytes());
        bytes.resize(header as usize, 0);
        bytes.extend(graph);
        bytes.extend(&self.data);
        bytes
    }
}

fn argument(sizes: &[usize]) -> Argument {
    let order = (0..sizes.len()).collect();
    Argument::Tensor {
        scalar_type: ScalarType::Float,
        sizes: sizes.to_vec(),
        dynamic: false,
        order,
    }
}

fn bound(bytes: &[u8], arguments: &[&[usize]]) -> Result<Bound<'static>, Error> {
    let arguments: Vec<Argument> = arguments.iter().map(|sizes| argument(sizes)).collect();
    let bytes = Vec::leak(bytes.to_vec());
    read(bytes, &|_| Ok(None), &arguments)
}

/// Runs a blob with one input and one output.
fn run(blob: Blob, input: (&[usize], &[f32]), output: &[usize]) -> Vec<f32> {
    let mut graph = bound(&blob.bytes(), &[input.0, output]).unwrap().graph;
    crate::passes::verify::verify(&graph).unwrap();
    crate::lower::portable::run(&mut graph).unwrap();
    let sizes: Vec<i32> = input.0.iter().map(|size| *size as i32).collect();
    let input = TensorRef::from_slice(&sizes, input.1).unwrap();
    outputs(&graph, &[input]).remove(0)
}

/// Two rows of three int4 weights from -8 to 7. The upper nibble of each row's last byte is unused.
const WEIGHTS: [u8; 4] = [0x90, 0x0f, 0x8a, 0x07];

#[test]
fn weights_of_four_bits_have_a_scale_for_each_row() {
    let mut blob = Blob::new();
    let (x, y) = (blob.input(&[1, 3]), blob.output(&[1, 2]));
    let weights = blob.constant(&WEIGHTS);
    let scales: Vec<u8> = [0.5f32, 2.0].iter().flat_map(|scale| scale.to_le_bytes()).collect();
    let scales = blob.constant(&scales);
    let tensor = blob.tensor(PACKED_BY_CHANNEL, &[2, 3], weights, NONE);
    let parameters = table(&mut blob.b, |t| {
        t.scalar(2, scales);
        t.scalar(3, 2u32);
    });
    let weights = blob.quantized(tensor, 1, parameters);
    blob.node("FullyConnected", &[(0, x), (1, weights), (2, NONE), (3, y)]);
    // [-8, 1, 7] / 2 and [2, 0, -1] * 2.
    let found = run(blob, (&[1, 3], &[1.0, 10.0, 100.0]), &[1, 2]);
    assert_eq!(found, [-4.0 + 5.0 + 350.0, 4.0 - 200.0]);
}

#[test]
fn weights_of_four_bits_have_a_scale_for_each_group() {
    let mut blob = Blob::new();
    let (x, y) = (blob.input(&[1, 4]), blob.output(&[1, 1]));
    let weights = blob.constant(&[0x98, 0xba]);
    // 1 and 4 as bf16.
    let scales = blob.constant(&[0x80, 0x3f, 0x80, 0x40]);
    let tensor = blob.tensor(PACKED_BY_GROUP, &[1, 4], weights, NONE);
    let parameters = table(&mut blob.b, |t| {
        t.scalar(2, 2i32);
        t.scalar(4, scales);
        t.scalar(5, 2u32);
    });
    let weights = blob.quantized(tensor, 4, parameters);
    blob.node("FullyConnected", &[(0, x), (1, weights), (2, NONE), (3, y)]);
    // [0, 1] and [2, 3] * 4.
    assert_eq!(run(blob, (&[1, 4], &[1.0, 10.0, 100.0, 1000.0]), &[1, 1]), [12_810.0]);
}

#[test]
fn padding_may_be_uneven() {
    // 2x2 filter, with one row of padding at the bottom and one column at the right.
    let mut blob = Blob::new();
    let (x, y) = (blob.input(&[1, 2, 2, 1]), blob.output(&[1, 2, 2, 1]));
    let filter = blob.floats(&[1, 2, 2, 1], &[1.0, 2.0, 3.0, 4.0]);
    let shape = [(1, 1), (2, 1), (4, 2), (5, 2), (6, 1), (7, 1), (8, 1), (9, 1), (10, 1), (11, 1)];
    let fields = [(12, 1), (15, x), (16, filter), (17, NONE), (18, y)];
    blob.node("Conv2d", &[&shape[..], &fields[..]].concat());
    let found = run(blob, (&[1, 2, 2, 1], &[1.0, 2.0, 3.0, 4.0]), &[1, 2, 2, 1]);
    assert_eq!(found, [30.0, 14.0, 11.0, 4.0]);
}

#[test]
fn calls_that_newer_exporters_do_not_write_are_understood() {
    let mut blob = Blob::new();
    let (x, y) = (blob.input(&[1, 1, 2, 1]), blob.output(&[1, 1, 2, 1]));
    let scale = blob.floats(&[1], &[0.5]);
    let mask = blob.floats(&[2, 2], &[0.0, f32::NEG_INFINITY, f32::NEG_INFINITY, 0.0]);
    let elu = blob.value(&[1, 1, 2, 1]);
    blob.node("ELU", &[(0, 2f32.to_bits()), (1, x), (2, elu)]);
    // With this mask, each query only attends to its own key.
    let all = [(0, x), (1, x), (2, elu), (3, scale), (4, mask), (5, y)];
    blob.node("ScaledDotProductAttention", &all);
    let found = run(blob, (&[1, 1, 2, 1], &[3.0, -f32::INFINITY.recip() - 1.0]), &[1, 1, 2, 1]);
    assert!((found[0] - 3.0).abs() < 1e-6 && (found[1] - 2.0 * (-1f32).exp_m1()).abs() < 1e-6);
}

#[test]
fn what_is_between_calls_has_the_shape_that_they_make() {
    // The exporter describes dynamically quantized tensors this way before it knows that their
    // consumer is a convolution.
    let mut blob = Blob::new();
    let (x, y) = (blob.input(&[1, 2, 1, 3]), blob.output(&[1, 2, 1, 3]));
    let between = blob.value(&[1, 3, 2, 1]);
    blob.node("Convert", &[(0, x), (1, between)]);
    blob.node("Negate", &[(0, between), (1, y)]);
    let input = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    assert_eq!(run(blob, (&[1, 2, 1, 3], &input), &[1, 2, 1, 3]), input.map(|number| -number));
}

#[test]
fn windows_are_rounded_together_and_rows_one_by_one() {
    // Pixels of two channels. For the ranges 0 to 10.2 and 0 to 2.55, the zero point is the
    // smallest quantized value.
    let rounded = |sizes: [u32; 4], inner: i32| {
        let mut blob = Blob::new();
        let (x, y) = (blob.input(&sizes), blob.output(&sizes));
        let tensor = blob.tensor(ROUNDED, &sizes, 0, NONE);
        let parameters = table(&mut blob.b, |t| t.scalar(0, inner));
        let codes = blob.quantized(tensor, 3, parameters);
        blob.node("Convert", &[(0, x), (1, codes)]);
        blob.node("Convert", &[(0, codes), (1, y)]);
        let sizes = sizes.map(|size| size as usize);
        run(blob, (&sizes, &[10.2, 0.05, 2.55, 0.018]), &sizes)
    };
    let apart = [10.2, 0.04, 2.55, 0.02];
    for (sizes, inner, expected) in [
        // Two images of one pixel.
        ([2, 1, 1, 2], 1, apart),
        ([2, 1, 1, 2], 3, apart),
        // One image of two pixels, which share a scale in the last case.
        ([1, 1, 2, 2], 1, apart),
        ([1, 1, 2, 2], 3, [10.2, 0.04, 2.56, 0.0]),
    ] {
        let found = rounded(sizes, inner);
        let close = found.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-5);
        assert!(close, "{sizes:?} by {inner}: {found:?}");
    }
}

#[test]
fn blobs_are_summarized() {
    let mut blob = Blob::new();
    let (x, y) = (blob.input(&[2]), blob.output(&[2]));
    let (number, between) = (blob.floats(&[2], &[1.0, 2.0]), blob.value(&[2]));
    blob.node("Add", &[(0, x), (1, number), (2, between)]);
    blob.node("Add", &[(0, between), (1, number), (2, y)]);
    let summary = summarize(&blob.bytes()).unwrap();
    assert_eq!(summary.calls, [("Add".to_string(), 2)]);
    assert_eq!((summary.constants, summary.constant_bytes), (1, 8));
    assert!(summarize(b"\0\0\0\0XH00").is_err());
}

#[test]
fn arguments_are_described_as_they_lie_in_memory() {
    // Pixels by channels, once with both sizes equal.
    for (rows, columns) in [(2usize, 3usize), (2, 2)] {
        let mut blob = Blob::new();
        let memory = [columns as u32, rows as u32];
        let (x, y) = (blob.input(&memory), blob.output(&memory));
        let slopes: Vec<f32> = (0..rows).map(|row| 10f32.powi(row as i32)).collect();
        let slopes = blob.floats(&[rows as u32], &slopes);
        blob.node("Multiply", &[(0, x), (1, slopes), (2, y)]);
        let given = Argument::Tensor {
            scalar_type: ScalarType::Float,
            sizes: vec![rows, columns],
            dynamic: false,
            order: vec![1, 0],
        };
        let bytes = Vec::leak(blob.bytes());
        let graph = read(bytes, &|_| Ok(None), &[given.clone(), given]).unwrap().graph;
        let numbers: Vec<f32> = (0..rows * columns).map(|at| at as f32).collect();
        let input = TensorRef::from_slice(&[rows as i32, columns as i32], &numbers).unwrap();
        let scaled = numbers.iter().enumerate();
        let expected: Vec<f32> =
            scaled.map(|(at, number)| number * 10f32.powi((at / columns) as i32)).collect();
        assert_eq!(outputs(&graph, &[input]), [expected]);
    }
}

#[test]
fn what_is_wrong_is_refused() {
    let refused = |build: &dyn Fn(&mut Blob, [u32; 2]), what: &str| {
        let mut blob = Blob::new();
        let ends = [blob.input(&[2, 3]), blob.output(&[2, 3])];
        build(&mut blob, ends);
        let error = bound(&blob.bytes(), &[&[2, 3], &[2, 3]]).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    };
    refused(&|_, _| {}, "argument 1, an output of an XNNPACK delegate, is never written");
    refused(&|blob, [x, _]| blob.node("Abs", &[(0, x), (1, x)]), "written twice");
    refused(
        &|blob, [x, y]| {
            let later = blob.value(&[2, 3]);
            blob.node("Abs", &[(0, later), (1, y)]);
            blob.node("Abs", &[(0, x), (1, later)]);
        },
        "read before it is written",
    );
    refused(&|blob, [x, y]| blob.node("Add", &[(0, x), (1, 99), (2, y)]), "value 99");
    refused(&|blob, [x, y]| blob.node("ArgMaxPooling2d", &[(0, x), (1, y)]), "ArgMaxPooling2d");
    refused(
        &|blob, [x, y]| {
            let constant = blob.constant(&[0; 8]);
            let tensor = blob.tensor(FLOAT, &[2, 3], constant, NONE);
            let short = blob.push(1, tensor);
            blob.node("Add", &[(0, x), (1, short), (2, y)]);
        },
        "outside the delegate's data",
    );
    let wrong = |sizes: &[usize]| {
        let mut blob = Blob::new();
        let (x, y) = (blob.input(&[2, 3]), blob.output(&[2, 3]));
        blob.node("Abs", &[(0, x), (1, y)]);
        bound(&blob.bytes(), &[&[2, 3], sizes]).map(|bound| bound.first_output)
    };
    assert_eq!(wrong(&[2, 3]), Ok(1));
    assert!(wrong(&[3, 2]).unwrap_err().to_string().contains("[3, 2]"));
    assert!(bound(b"\0\0\0\0XH00", &[]).is_err());
    let mut lost = Blob::new();
    let (x, y) = (lost.input(&[2, 3]), lost.value(&[2, 3]));
    lost.node("Abs", &[(0, x), (1, y)]);
    let error = bound(&lost.bytes(), &[&[2, 3], &[2, 3]]).unwrap_err();
    assert!(error.to_string().contains("no outputs"), "{error}");
}

#[test]
fn what_values_share_is_not_unpacked_without_end() {
    let with = |values: usize| {
        let mut blob = Blob::new();
        let (x, y) = (blob.input(&[1, 2]), blob.output(&[1, 2]));
        let packed = blob.constant(&vec![0; 1 << 17]);
        for _ in 0..values {
            let tensor = blob.tensor(PACKED_BY_CHANNEL, &[1, 1 << 18], packed, NONE);
            blob.push(1, tensor);
        }
        blob.node("Abs", &[(0, x), (1, y)]);
        bound(&blob.bytes(), &[&[1, 2], &[1, 2]]).map(|_| ())
    };
    assert_eq!(with(12), Ok(()));
    assert!(with(13).unwrap_err().to_string().contains("share"));
}
