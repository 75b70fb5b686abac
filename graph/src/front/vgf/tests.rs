//! Tests with hand-written files: what no fixture contains, and malicious files.

use super::*;
use crate::calls::delegates;
use crate::method::{
    Delegate, Instruction, Method, MethodTensor, MethodValue, Program, TensorData,
};
use crate::tables::{Offset, table};
use alloc::borrow::Cow;
use alloc::string::ToString;
use flatbuffers::FlatBufferBuilder;
use spirv::TOSA;
use torchlet_core::{ShapeDynamism, TensorInfo};

/// Assembler of a SPIR-V module.
struct Assembler {
    words: Vec<u32>,
    last: Id,
}

const BOOL: Id = 1;
const INT8: Id = 2;
const INT32: Id = 3;
const FLOAT: Id = 4;
const SET: Id = 5;

/// Numbers of instructions.
mod op {
    pub(super) const TYPE_ARRAY: u32 = 28;
    pub(super) const TYPE_STRUCT: u32 = 30;
    pub(super) const CONSTANT: u32 = 43;
    pub(super) const COMPOSITE: u32 = 44;
    pub(super) const NULL: u32 = 46;
    pub(super) const TYPE_TENSOR: u32 = 4163;
    pub(super) const REPLICATE: u32 = 4461;
}

impl Assembler {
    fn new() -> Self {
        let mut it = Assembler { words: vec![0x0723_0203, 0x0001_0600, 0, 0, 0], last: SET };
        it.instruction(11, &[&[SET], &text(TOSA)[..]].concat());
        it.instruction(20, &[BOOL]);
        it.instruction(21, &[INT8, 8, 0]);
        it.instruction(21, &[INT32, 32, 0]);
        it.instruction(22, &[FLOAT, 32]);
        it
    }

    fn instruction(&mut self, opcode: u32, words: &[u32]) {
        self.words.push((words.len() as u32 + 1) << 16 | opcode);
        self.words.extend(words);
    }

    fn id(&mut self) -> Id {
        self.last += 1;
        self.last
    }

    /// Adds a type.
    fn add_type(&mut self, opcode: u32, words: &[u32]) -> Id {
        let id = self.id();
        self.instruction(opcode, &[&[id], words].concat());
        id
    }

    /// Adds a constant.
    fn constant(&mut self, opcode: u32, of: Id, words: &[u32]) -> Id {
        let id = self.id();
        self.instruction(opcode, &[&[of, id], words].concat());
        id
    }

    fn int(&mut self, value: u32) -> Id {
        self.constant(op::CONSTANT, INT32, &[value])
    }

    fn array(&mut self, item: Id, len: u32) -> Id {
        let len = self.int(len);
        self.add_type(op::TYPE_ARRAY, &[item, len])
    }

    fn list(&mut self, items: &[u32]) -> Id {
        let of = self.array(INT32, items.len() as u32);
        let items: Vec<Id> = items.iter().map(|item| self.int(*item)).collect();
        self.constant(op::COMPOSITE, of, &items)
    }

    fn tensor(&mut self, of: Id, sizes: &[u32]) -> Id {
        let (rank, shape) = (self.int(sizes.len() as u32), self.list(sizes));
        self.add_type(op::TYPE_TENSOR, &[of, rank, shape])
    }

    /// Adds a graph named `main` with one output, which `body` computes with calls, and no input.
    fn graph(mut self, of: Id, body: impl FnOnce(&mut Self) -> Id) -> Vec<u8> {
        let pointer = self.add_type(32, &[0, of]);
        let variable = self.id();
        self.instruction(59, &[pointer, variable, 0]);
        let graph_type = self.add_type(4190, &[0, of]);
        let (graph, zero) = (self.id(), self.int(0));
        self.instruction(4182, &[&[graph], &text("main")[..], &[variable]].concat());
        self.instruction(4183, &[graph_type, graph]);
        let out = body(&mut self);
        self.instruction(4185, &[out, zero]);
        self.instruction(4186, &[]);
        self.bytes()
    }

    fn call(&mut self, of: Id, op: &str, operands: &[Id]) -> Id {
        let number = (0..).find(|number| format!("{:?}", ops::op(*number).unwrap()) == op);
        let id = self.id();
        self.instruction(12, &[&[of, id, SET, number.unwrap()], operands].concat());
        id
    }

    fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn read(&self) -> Result<spirv::Module, Error> {
        spirv::Module::read(&self.bytes())
    }
}

/// A string in words, with a zero byte at the end.
fn text(text: &str) -> Vec<u32> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(bytes.len() / 4 * 4 + 4, 0);
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

/// A VGF file from its sections.
fn file(sections: [&[u8]; 3]) -> Vec<u8> {
    let mut bytes = b"VGF1".to_vec();
    bytes.resize(16, 0);
    let mut start = 128u64;
    for section in sections {
        let len = section.len() as u64;
        bytes.extend([start, len].into_iter().flat_map(u64::to_le_bytes));
        start += len;
    }
    bytes.resize(128, 0);
    bytes.extend(sections.concat());
    bytes
}

fn finished(build: impl FnOnce(&mut FlatBufferBuilder<'static>) -> Offset) -> Vec<u8> {
    let mut b = FlatBufferBuilder::new();
    let root = build(&mut b);
    b.finish_minimal(root);
    b.finished_data().to_vec()
}

/// A section with `count` references to one graph module with this name.
fn modules(name: &str, code: &[u8], count: usize) -> Vec<u8> {
    finished(|b| {
        let words: Vec<u32> =
            code.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let words = b.create_vector(&words);
        let code = table(b, |t| t.offset(0, words));
        let (name, entry_point) = (b.create_string(name), b.create_string("main"));
        let module = table(b, |t| {
            t.scalar(0, 1u8);
            t.offset(1, name);
            t.offset(2, entry_point);
            t.scalar(3, 1u8);
            t.offset(4, code);
        });
        let all = b.create_vector(&vec![module; count]);
        table(b, |t| t.offset(0, all))
    })
}

/// A file whose graph has one output, resource 0, and no input.
fn file_of(code: &[u8], format: u32, shape: &[u64]) -> Vec<u8> {
    let sequence = finished(|b| {
        let slot = table(b, |_| {});
        let slots = b.create_vector(&[slot]);
        let set = table(b, |t| t.offset(0, slots));
        let sets = b.create_vector(&[set]);
        let segment = table(b, |t| {
            t.scalar(0, 1u8);
            t.offset(3, sets);
        });
        let segments = b.create_vector(&[segment]);
        table(b, |t| {
            t.offset(0, segments);
            t.offset(2, slots);
        })
    });
    let resources = finished(|b| {
        let shape = b.create_vector(shape);
        let description = table(b, |t| t.offset(0, shape));
        let resource = table(b, |t| {
            t.scalar(1, format);
            t.scalar(2, 1u8);
            t.offset(3, description);
        });
        let all = b.create_vector(&[resource]);
        table(b, |t| t.offset(0, all))
    });
    file([&modules("graph", code, 1), &sequence, &resources])
}

const R32_SFLOAT: u32 = 100;

fn floats(sizes: &[usize]) -> Argument {
    Argument::Tensor {
        scalar_type: ScalarType::Float,
        sizes: sizes.to_vec(),
        dynamic: false,
        order: (0..sizes.len()).collect(),
    }
}

/// `ABS` of a zero-filled tensor.
fn filled(sizes: &[u32]) -> Vec<u8> {
    let mut code = Assembler::new();
    let of = code.tensor(FLOAT, sizes);
    let zeros = code.constant(op::NULL, of, &[]);
    let code = code.graph(of, |code| code.call(of, "ABS", &[zeros]));
    file_of(&code, R32_SFLOAT, &sizes.iter().map(|size| u64::from(*size)).collect::<Vec<_>>())
}

#[test]
fn hand_written_files_are_read() {
    let file = filled(&[2, 3]);
    let bound = read(&file, &[floats(&[2, 3])], &Computed::new()).unwrap();
    let operators: Vec<&str> = bound.graph.nodes.iter().map(|it| it.operator.name()).collect();
    assert_eq!(operators, ["aten.abs.default"]);
}

/// Exporters number descriptor sets only if the position does not.
#[test]
fn sets_have_the_number_of_their_position() {
    let sequence = finished(|b| {
        let slots = [0, 1, 2].map(|resource: u32| {
            let slot = table(b, |t| t.scalar(1, resource));
            b.create_vector(&[slot])
        });
        let sets: Vec<Offset> = [(slots[0], None), (slots[1], None), (slots[2], Some(7i32))]
            .into_iter()
            .map(|(slots, number)| {
                table(b, |t| {
                    t.offset(0, slots);
                    number.iter().for_each(|number| t.scalar(1, *number));
                })
            })
            .collect();
        let sets = b.create_vector(&sets);
        let segment = table(b, |t| t.offset(3, sets));
        let segments = b.create_vector(&[segment]);
        let names = ["x", "y"].map(|name| b.create_string(name));
        let [input_names, output_names] = names.map(|name| b.create_vector(&[name]));
        table(b, |t| {
            t.offset(0, segments);
            t.offset(3, input_names);
            t.offset(4, output_names);
        })
    });
    let bytes = file([&[], &sequence, &[]]);
    let container = Container::read(&bytes).unwrap();
    let bound: Vec<[u32; 2]> =
        container.segments[0].bindings.iter().map(|it| [it.set, it.resource as u32]).collect();
    assert_eq!(bound, [[0, 0], [1, 1], [7, 2]]);
    assert_eq!((container.input_names, container.output_names), (vec!["x"], vec!["y"]));
}

/// A file on its own is a program with one delegate, which borrows the file.
#[test]
fn files_are_programs() {
    let file = filled(&[2, 3]);
    let program = program(&file).unwrap();
    let [method] = &program.methods[..] else { panic!() };
    assert_eq!((&method.inputs[..], &method.outputs[..]), (&[][..], &[0][..]));
    assert_eq!(method.tensor(0).unwrap().info.sizes[..], [2, 3]);
    assert!(matches!(method.delegates[0].processed, Cow::Borrowed(_)));
    let code = Assembler::new().bytes();
    for (format, expected) in [
        (13, Some(ScalarType::Byte)),
        (14, Some(ScalarType::Char)),
        (98, Some(ScalarType::UInt32)),
        (1_000_460_000, Some(ScalarType::Bool)),
        // 64-bit floats.
        (112, None),
    ] {
        let file = file_of(&code, format, &[4]);
        let found = super::program(&file);
        let found = found.map(|it| it.methods[0].tensor(0).unwrap().info.scalar_type);
        assert_eq!(found.ok(), expected);
    }
    for shape in [vec![1; MAX_RANK + 1], vec![u64::MAX], vec![1 << 31]] {
        assert!(super::program(&file_of(&code, R32_SFLOAT, &shape)).is_err(), "{shape:?}");
    }
}

/// Each module is a reference of four bytes to the same name.
#[test]
fn shared_names_are_bounded_by_the_file() {
    let code = Assembler::new().bytes();
    for (count, fits) in [(1, true), (200, false)] {
        let bytes = file([&modules(&"n".repeat(400), &code, count), &[], &[]]);
        assert_eq!(Container::read(&bytes).is_ok(), fits, "{count}");
    }
}

#[test]
fn tensors_have_a_limited_rank_and_positive_sizes() {
    for (sizes, expected) in [
        (vec![1; MAX_RANK], None),
        (vec![1; MAX_RANK + 1], Some("a tensor of rank 17: expected at most 16")),
        (vec![1; 1000], Some("expected at most 32 values of an attribute, found 1000")),
        (vec![2, 0], Some("a size that is not positive")),
        (vec![2, u32::MAX], Some("a size that is not positive")),
    ] {
        let mut code = Assembler::new();
        code.tensor(INT8, &sizes);
        let why = code.read().err().map(|error| error.to_string());
        assert!(why.as_ref().is_some() == expected.is_some(), "{why:?}");
        assert!(expected.is_none_or(|expected| why.unwrap().contains(expected)));
    }
}

#[test]
fn attributes_have_a_limited_length() {
    let mut code = Assembler::new();
    let lists = [32, 33].map(|len| code.list(&vec![7; len]));
    let module = code.read().unwrap();
    assert_eq!(module.list(lists[0]).unwrap(), [7; 32]);
    assert!(module.list(lists[1]).is_err());
}

/// Composites without items could share further composites, so that reading a constant would not
/// end.
#[test]
fn constants_have_items() {
    let mut code = Assembler::new();
    let of = code.array(INT32, 2);
    code.constant(op::COMPOSITE, of, &[]);
    assert!(code.read().unwrap_err().to_string().contains("a composite constant without items"));
    let mut code = Assembler::new();
    code.array(INT32, 0);
    assert!(code.read().unwrap_err().to_string().contains("an array without items"));
}

/// Weights of a depthwise convolution, `[3, 3, C, 1]`: composites of one item each.
#[test]
fn constants_are_nested_as_deeply_as_their_shape() {
    let (mut code, channels) = (Assembler::new(), 40);
    let items: Vec<Id> =
        (0..channels).map(|item| code.constant(op::CONSTANT, INT8, &[item])).collect();
    let types = [1, channels, 3].iter().fold(vec![INT8], |mut types, len| {
        types.push(code.array(types[types.len() - 1], *len));
        types
    });
    let of = code.tensor(INT8, &[3, 3, channels, 1]);
    let ones: Vec<Id> =
        items.iter().map(|item| code.constant(op::COMPOSITE, types[1], &[*item])).collect();
    let row = code.constant(op::COMPOSITE, types[2], &ones);
    let plane = code.constant(op::COMPOSITE, types[3], &[row; 3]);
    let whole = code.constant(op::COMPOSITE, of, &[plane; 3]);
    let found = code.read().unwrap().contents(whole).unwrap();
    let expected: Vec<u8> = (0..9).flat_map(|_| 0..channels as u8).collect();
    assert_eq!(found, expected);
}

#[test]
fn repeated_items_fill_a_constant_exactly() {
    for (len, fits) in [(6, true), (7, false)] {
        let mut code = Assembler::new();
        let (of, whole) = (code.array(INT8, 2), code.tensor(INT8, &[len]));
        let items = [1, 2].map(|item| code.constant(op::CONSTANT, INT8, &[item]));
        let item = code.constant(op::COMPOSITE, of, &items);
        let whole = code.constant(op::REPLICATE, whole, &[item]);
        let found = code.read().unwrap().contents(whole);
        assert_eq!(found.ok(), fits.then(|| vec![1, 2, 1, 2, 1, 2]));
    }
}

/// A composite whose items are larger than the type says, or that contains itself in other types.
#[test]
fn constants_do_not_exceed_their_type() {
    let mut code = Assembler::new();
    let (small, large) = (code.tensor(INT8, &[4]), code.tensor(INT8, &[1 << 20, 1 << 10]));
    let zeros = code.constant(op::NULL, large, &[]);
    let whole = code.constant(op::COMPOSITE, small, &[zeros; 100]);
    let why = code.read().unwrap().contents(whole).unwrap_err();
    assert!(why.to_string().contains("a constant that exceeds its type"));
    let mut code = Assembler::new();
    let of = code.tensor(INT8, &[1]);
    let mut nested = code.constant(op::NULL, of, &[]);
    for _ in 0..1000 {
        nested = code.constant(op::COMPOSITE, of, &[nested]);
    }
    let why = code.read().unwrap().contents(nested).unwrap_err();
    assert!(why.to_string().contains("nested too deeply"));
}

/// A file of a few bytes states a tensor of 160 MiB: one delegate of a program may, not each.
#[test]
fn computed_constants_are_bounded_over_all_delegates() {
    let (rows, columns) = (160 << 8, 1 << 10);
    let file = filled(&[rows, columns]);
    let info = TensorInfo::contiguous(ScalarType::Float, &[rows as i32, columns as i32]).unwrap();
    let mut method = Method { name: "forward".to_string(), ..Method::default() };
    for delegate in 0..3 {
        let (backend, processed) = (BACKEND.to_string(), Cow::Borrowed(&file[..]));
        method.delegates.push(Delegate { backend, processed, specs: Vec::new() });
        let out = method.add(MethodValue::Tensor(MethodTensor {
            info: info.clone(),
            dynamism: ShapeDynamism::Static,
            location: None,
            data: TensorData::None,
            name: None,
        }));
        method.outputs.push(out);
        method.instructions.push(Instruction::Delegate { delegate, args: vec![out] });
    }
    method.plan().unwrap();
    let package = Program { methods: vec![method], named: Vec::new() }.write().unwrap();
    let bytes = package.to_bytes();
    let program = torchlet_core::Program::from_bytes(&bytes).unwrap();
    let found = delegates(&program, &[], "forward").unwrap();
    let why: Vec<Option<String>> =
        found.iter().map(|it| Some(it.as_ref()?.as_ref().err()?.to_string())).collect();
    assert_eq!(why[0], None);
    for why in &why[1..] {
        assert!(why.as_ref().unwrap().contains("grows by more than 256 MiB"));
    }
}

/// The tables of a transform are counted before they are computed.
#[test]
fn tables_of_transforms_are_bounded() {
    let size = 512;
    let mut code = Assembler::new();
    let of = code.tensor(FLOAT, &[1, size, size]);
    let both = code.add_type(op::TYPE_STRUCT, &[of, of]);
    let (zeros, no) = (code.constant(op::NULL, of, &[]), code.constant(42, BOOL, &[]));
    let real = code.id();
    let code = code.graph(of, |code| {
        let made = code.call(both, "FFT2D", &[no, no, zeros, zeros]);
        code.instruction(81, &[of, real, made, 0]);
        real
    });
    let file = file_of(&code, R32_SFLOAT, &[1, size.into(), size.into()]);
    let arguments = [floats(&[1, size as usize, size as usize])];
    // The input and four tables of a MiB.
    for (left, fits) in [(5, true), (4, false)] {
        let computed = Computed::new();
        computed.spend((256 - left) << 20).unwrap();
        let found = read(&file, &arguments, &computed);
        assert_eq!(found.is_ok(), fits, "{:?}", found.err());
    }
}
