//! Reader of TOSA flatbuffers (`.tosa`), versions 1.0 and 1.1 of the specification, which have the
//! operators of VGF graphs. ExecuTorch's TOSA partitioner writes them as delegates, and Arm's
//! compilers as intermediate files.
//!
//! The graph becomes a data graph in memory, with the operands that SPIR-V has: attributes are
//! constants in front of the tensors. Translation to calls is then the same.

use super::builder::Builder;
use super::calls::Calls;
use super::ops::op;
use super::spirv::{Call, Id, Module, Step, TensorType, Type};
use super::{add_step, bind_input, bind_output};
use crate::budget::{Budget, Computed};
use crate::error::Error;
use crate::front::Summary;
use crate::front::vulkan::{Argument, Bound};
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::format::flatbuffer::{Table, Vector};
use torchlet_core::layout::MAX_RANK;
use torchlet_core::{ScalarType, flatbuffer_table};

/// Backend id of delegates of ExecuTorch's TOSA partitioner.
pub(crate) const BACKEND: &str = "TOSABackend";
/// File identifier, at byte 4.
const IDENTIFIER: &[u8] = b"TOSA";

flatbuffer_table! {
    GraphTable { 0 version: VersionTable<'a>, 1 regions: Vector<'a, RegionTable<'a>>, }
}
flatbuffer_table! { VersionTable { 0 major: i32, 1 minor: i32, } }
flatbuffer_table! { RegionTable { 0 name: &'a str, 1 blocks: Vector<'a, BlockTable<'a>>, } }
flatbuffer_table! { BlockTable {
    0 name: &'a str,
    1 operators: Vector<'a, OperatorTable<'a>>,
    2 tensors: Vector<'a, TensorTable<'a>>,
    3 inputs: Vector<'a, &'a str>,
    4 outputs: Vector<'a, &'a str>,
    5 shapes: Vector<'a, ShapeTable<'a>>,
} }
flatbuffer_table! { TensorTable {
    0 name: &'a str,
    1 shape: Vector<'a, i32>,
    2 dtype: u32,
    3 data: Vector<'a, u8>,
    4 variable: bool,
    5 unranked: bool,
} }
flatbuffer_table! { ShapeTable { 0 name: &'a str, 1 rank: u32, 2 data: Vector<'a, u8>, } }
flatbuffer_table! { OperatorTable {
    0 number: u32,
    /// Type of the union in field 2: the same number.
    1 attribute_type: u8,
    2 attribute: AttributeTable<'a>,
    3 inputs: Vector<'a, &'a str>,
    4 outputs: Vector<'a, &'a str>,
} }
flatbuffer_table! {
    /// Attributes of an operator; [`ATTRIBUTES`] says which fields it has.
    AttributeTable { 0 first: u32, }
}

/// Kind of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ints,
    Int,
    Flag,
    /// Bytes of a value of the input's type.
    Value,
}

use Kind::{Flag, Int, Ints, Value};

/// The attributes that operators have as operands in front of their tensors: kind and field. The
/// numbers are those of SPIR-V; an operator of a flatbuffer has one more.
const ATTRIBUTES: &[(u32, &[(Kind, usize)])] = &[
    // ARGMAX: axis, NaN mode.
    (0, &[(Int, 0), (Int, 1)]),
    // AVG_POOL2D: kernel, stride, pad, accumulator.
    (1, &[(Ints, 0), (Ints, 1), (Ints, 2), (Int, 3)]),
    // CONV2D, CONV3D, DEPTHWISE_CONV2D: pad, stride, dilation, accumulator, local bound.
    (2, CONVOLUTION),
    (3, CONVOLUTION),
    (4, CONVOLUTION),
    // FFT2D: inverse, local bound.
    (5, &[(Flag, 0), (Flag, 1)]),
    // MAX_POOL2D: kernel, stride, pad, NaN mode.
    (7, &[(Ints, 0), (Ints, 1), (Ints, 2), (Int, 3)]),
    // RFFT2D: local bound.
    (8, &[(Flag, 0)]),
    // TRANSPOSE_CONV2D: output padding, stride, accumulator, local bound.
    (9, &[(Ints, 0), (Ints, 1), (Int, 3), (Flag, 2)]),
    // CLAMP: limits, NaN mode.
    (10, &[(Value, 0), (Value, 1), (Int, 2)]),
    // ARITHMETIC_RIGHT_SHIFT: rounding.
    (15, &[(Flag, 0)]),
    // MAXIMUM, MINIMUM: NaN mode.
    (25, &[(Int, 0)]),
    (26, &[(Int, 0)]),
    // REDUCE_*: axis; NaN mode of the largest and the smallest element.
    (48, AXIS),
    (49, AXIS),
    (50, &[(Int, 0), (Int, 1)]),
    (51, &[(Int, 0), (Int, 1)]),
    (52, AXIS),
    (53, AXIS),
    // CONCAT, REVERSE: axis.
    (54, AXIS),
    (57, AXIS),
    // TRANSPOSE: permutation.
    (60, &[(Ints, 0)]),
    // RESIZE: mode.
    (63, &[(Int, 0)]),
    // RESCALE: 32-bit multipliers, rounding mode, per channel, signs.
    (65, &[(Flag, 0), (Int, 1), (Flag, 2), (Flag, 3), (Flag, 4)]),
];
const CONVOLUTION: &[(Kind, usize)] = &[(Ints, 0), (Ints, 1), (Ints, 2), (Int, 4), (Flag, 3)];
const AXIS: &[(Kind, usize)] = &[(Int, 0)];

/// Number of operators that SPIR-V has, too; numbers that need no call.
const COMMON: u32 = 66;
const CONST: u32 = 67;
const IDENTITY: u32 = 68;
const CONST_SHAPE: u32 = 75;

/// Names of other operators, for error messages.
const OTHERS: [(u32, &str); 6] = [
    (69, "CUSTOM"),
    (70, "COND_IF"),
    (71, "WHILE_LOOP"),
    (72, "VARIABLE"),
    (73, "VARIABLE_WRITE"),
    (74, "VARIABLE_READ"),
];

/// Elements up to which a constant is one of the module, so that it may be an attribute.
const MAX_SMALL: usize = 2 * MAX_RANK;

/// Whether bytes are a TOSA flatbuffer.
pub(crate) fn is_blob(bytes: &[u8]) -> bool {
    bytes.get(4..8) == Some(IDENTIFIER)
}

/// A graph: its inputs and outputs, and the data graph.
pub(super) struct Graph<'p> {
    module: Module,
    steps: Vec<Step>,
    pub(super) inputs: Vec<(Id, TensorType)>,
    pub(super) outputs: Vec<(Id, TensorType)>,
    /// Contents of the module's outside constants.
    outside: BTreeMap<u32, Cow<'p, [u8]>>,
}

/// Summarizes a file.
///
/// # Errors
/// The file is malformed.
pub(crate) fn summarize(bytes: &[u8]) -> Result<Summary, Error> {
    let graph = Graph::read(bytes)?;
    let mut calls = Vec::new();
    for step in &graph.steps {
        if let Step::Call(call) = step {
            calls.push(format!("{:?}", op(call.number)?));
        }
    }
    Ok(Summary::new(calls, graph.outside.values().map(|data| data.len() as u64)))
}

/// Reads the graph of a delegate, and binds it to the arguments of a call; see
/// [`read`](super::read).
///
/// # Errors
/// The file is malformed, a call is unsupported, or the arguments do not fit.
pub(crate) fn read<'p>(
    bytes: &'p [u8],
    arguments: &[Argument],
    computed: &Computed,
) -> Result<Bound<'p>, Error> {
    let graph = Graph::read(bytes)?;
    if graph.inputs.len() + graph.outputs.len() != arguments.len() || graph.outputs.is_empty() {
        return Err(Error::Invalid(format!(
            "a TOSA graph with {} inputs and {} outputs is called with {} arguments",
            graph.inputs.len(),
            graph.outputs.len(),
            arguments.len()
        )));
    }
    let (inputs, outputs) = arguments.split_at_checked(graph.inputs.len()).unwrap_or_default();
    let mut calls = Calls::new(computed.clone());
    let mut given = Vec::new();
    for ((id, of), argument) in graph.inputs.iter().zip(inputs) {
        given.push((*id, bind_input(&mut calls, argument, of)?));
    }
    let mut builder = Builder::new(&graph.module, &mut calls, graph.outside);
    for (id, value) in given {
        builder.define(id, vec![value])?;
    }
    for step in &graph.steps {
        add_step(&mut builder, step)?;
    }
    let mut made = Vec::new();
    for (id, _) in &graph.outputs {
        made.push(builder.read(*id)?);
    }
    for (value, argument) in made.into_iter().zip(outputs) {
        bind_output(&mut calls, value, argument)?;
    }
    Ok(Bound { first_output: graph.inputs.len(), graph: calls.finish() })
}

fn bad(what: &str) -> Error {
    Error::Invalid(format!("TOSA: {what}"))
}

/// The dtype of a number in the schema.
fn scalar_type(number: u32) -> Result<ScalarType, Error> {
    Ok(match number {
        1 => ScalarType::Bool,
        3 => ScalarType::Char,
        4 => ScalarType::Short,
        5 => ScalarType::Int,
        // 48-bit accumulators are stored in 64 bits.
        6 | 17 => ScalarType::Long,
        7 => ScalarType::Float,
        8 => ScalarType::Half,
        9 => ScalarType::BFloat16,
        other => {
            let name = match other {
                2 => "int4",
                11..=16 | 18 => "a narrow float",
                _ => "unknown",
            };
            return Err(Error::Unsupported(format!("TOSA: tensors of type {other} ({name})")));
        }
    })
}

impl<'p> Graph<'p> {
    /// Reads a file.
    ///
    /// # Errors
    /// The file is malformed, has another version, or more than one block of operators.
    pub(super) fn read(bytes: &'p [u8]) -> Result<Self, Error> {
        let root = GraphTable(Table::root(bytes)?);
        let version = root.version()?.ok_or_else(|| bad("a file without version"))?;
        let (major, minor) = (version.major()?, version.minor()?);
        if major != 1 {
            return Err(Error::Unsupported(format!(
                "TOSA version {major}.{minor}: expected version 1"
            )));
        }
        let mut budget = Budget::of(bytes);
        let regions = budget.all(root.regions()?)?;
        let [region] = &regions[..] else {
            return Err(Error::Unsupported(format!(
                "TOSA: {} regions, as control flow has: expected one",
                regions.len()
            )));
        };
        let blocks = budget.all(region.blocks()?)?;
        let [block] = &blocks[..] else {
            return Err(Error::Unsupported(format!("TOSA: {} blocks: expected one", blocks.len())));
        };
        let mut reader = Reader {
            graph: Graph {
                module: Module::default(),
                steps: Vec::new(),
                inputs: Vec::new(),
                outputs: Vec::new(),
                outside: BTreeMap::new(),
            },
            budget,
            known: BTreeMap::new(),
        };
        for tensor in reader.budget.all(block.tensors()?)? {
            reader.tensor(&tensor)?;
        }
        for shape in reader.budget.all(block.shapes()?)? {
            reader.shape(&shape)?;
        }
        for operator in reader.budget.all(block.operators()?)? {
            reader.operator(&operator)?;
        }
        reader.graph.inputs = reader.ends(block.inputs()?)?;
        reader.graph.outputs = reader.ends(block.outputs()?)?;
        Ok(reader.graph)
    }
}

/// A tensor by its name.
#[derive(Debug, Clone)]
struct Named {
    id: Id,
    /// Id of its type, and the type.
    of: Id,
    tensor: TensorType,
}

struct Reader<'p> {
    graph: Graph<'p>,
    budget: Budget,
    known: BTreeMap<&'p str, Named>,
}

impl<'p> Reader<'p> {
    fn names(&mut self, vector: Vector<'p, &'p str>) -> Result<Vec<&'p str>, Error> {
        self.budget.spend(vector.len().saturating_mul(4))?;
        vector.iter().map(|text| self.budget.text(Some(text?))).collect()
    }

    fn named(&self, name: &str) -> Result<&Named, Error> {
        let found = self.known.get(name);
        found.ok_or_else(|| Error::Invalid(format!("TOSA: there is no tensor {name:?}")))
    }

    fn ends(&mut self, vector: Vector<'p, &'p str>) -> Result<Vec<(Id, TensorType)>, Error> {
        let names = self.names(vector)?;
        let ends = names
            .into_iter()
            .map(|name| self.named(name).map(|found| (found.id, found.tensor.clone())));
        ends.collect()
    }

    fn add(&mut self, name: &'p str, id: Id, of: Id, tensor: TensorType) -> Result<(), Error> {
        match self.known.insert(name, Named { id, of, tensor }) {
            None => Ok(()),
            Some(_) => Err(Error::Invalid(format!("TOSA: two tensors are named {name:?}"))),
        }
    }

    fn tensor(&mut self, table: &TensorTable<'p>) -> Result<(), Error> {
        let name = self.budget.text(table.name()?)?;
        if table.variable()? || table.unranked()? {
            return Err(Error::Unsupported(format!(
                "TOSA: tensor {name:?}: state, or a tensor without rank"
            )));
        }
        let shape = self.budget.all(table.shape()?)?;
        let sizes = shape.iter().map(|size| usize::try_from(*size).ok().filter(|size| *size > 0));
        let sizes: Option<Vec<usize>> = sizes.collect();
        let sizes = sizes.filter(|sizes| sizes.len() <= MAX_RANK).ok_or_else(|| {
            Error::Unsupported(format!(
                "TOSA: tensor {name:?} of shape {shape:?}: expected a fixed shape of at most \
                 {MAX_RANK} dims"
            ))
        })?;
        let dtype = table.dtype()?;
        let tensor = TensorType { scalar_type: scalar_type(dtype)?, sizes };
        if tensor.bytes().is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            return Err(bad("a tensor that exceeds the address space"));
        }
        let of = self.graph.module.new_type(Type::Tensor(tensor.clone()));
        let data = table.data()?.bytes();
        let id = match data.is_empty() {
            true => self.graph.module.new_id(),
            false => {
                self.budget.spend(data.len())?;
                self.constant(name, of, &tensor, dtype, data)?
            }
        };
        self.add(name, id, of, tensor)
    }

    /// Adds a constant tensor.
    fn constant(
        &mut self,
        name: &str,
        of: Id,
        tensor: &TensorType,
        dtype: u32,
        data: &'p [u8],
    ) -> Result<Id, Error> {
        const INT48: u32 = 6;
        let numel = tensor.numel().unwrap_or(usize::MAX);
        let data = match dtype {
            INT48 => Cow::Owned(data.chunks_exact(6).flat_map(widened).collect::<Vec<u8>>()),
            _ => Cow::Borrowed(data),
        };
        // Serializers pad data.
        let bytes = tensor.bytes().unwrap_or(usize::MAX);
        if data.len() < bytes {
            return Err(Error::Invalid(format!(
                "TOSA: constant {name:?}: expected at least {bytes} bytes, found {}",
                data.len()
            )));
        }
        if numel <= MAX_SMALL {
            let item = self.graph.module.new_type(Type::Scalar(tensor.scalar_type));
            let size = tensor.scalar_type.size();
            let bits = data.get(..bytes).unwrap_or_default().chunks_exact(size).map(|bytes| {
                bytes.iter().rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte))
            });
            let bits: Vec<u64> = bits.collect();
            return Ok(self.graph.module.new_composite(of, item, &bits));
        }
        let number = u32::try_from(self.graph.outside.len()).unwrap_or(u32::MAX);
        let data = match data {
            Cow::Borrowed(data) => Cow::Borrowed(data.get(..bytes).unwrap_or_default()),
            Cow::Owned(mut data) => {
                data.truncate(bytes);
                Cow::Owned(data)
            }
        };
        self.graph.outside.insert(number, data);
        Ok(self.graph.module.new_outside(of, number))
    }

    /// Adds a constant shape: 64-bit integers.
    fn shape(&mut self, table: &ShapeTable<'p>) -> Result<(), Error> {
        let name = self.budget.text(table.name()?)?;
        let data = table.data()?.bytes();
        self.budget.spend(data.len())?;
        let values: Vec<i64> =
            data.as_chunks::<8>().0.iter().map(|it| i64::from_le_bytes(*it)).collect();
        let rank = usize::try_from(table.rank()?).unwrap_or(usize::MAX);
        if rank > MAX_SMALL || values.len() < rank {
            return Err(Error::Unsupported(format!(
                "TOSA: shape {name:?}: expected a constant of up to {MAX_SMALL} sizes"
            )));
        }
        let id = self.list(values.get(..rank).unwrap_or_default());
        let tensor = TensorType { scalar_type: ScalarType::Long, sizes: vec![rank] };
        let of = self.graph.module.new_type(Type::Tensor(tensor.clone()));
        self.add(name, id, of, tensor)
    }

    /// Adds a list of integers.
    fn list(&mut self, values: &[i64]) -> Id {
        let module = &mut self.graph.module;
        let item = module.new_type(Type::Scalar(ScalarType::Long));
        let of = TensorType { scalar_type: ScalarType::Long, sizes: vec![values.len()] };
        let of = module.new_type(Type::Tensor(of));
        let bits: Vec<u64> = values.iter().map(|value| value.cast_unsigned()).collect();
        module.new_composite(of, item, &bits)
    }

    fn operator(&mut self, table: &OperatorTable<'p>) -> Result<(), Error> {
        self.budget.spend(OPERATOR_BYTES)?;
        let number = table.number()?;
        let inputs = self.names(table.inputs()?)?;
        let outputs = self.names(table.outputs()?)?;
        if number == CONST || number == CONST_SHAPE {
            return Ok(());
        }
        if number == IDENTITY {
            let ([input], [output]) = (&inputs[..], &outputs[..]) else {
                return Err(bad("IDENTITY of several tensors"));
            };
            let id = self.named(input)?.id;
            if let Some(named) = self.known.get_mut(output) {
                named.id = id;
            }
            return Ok(());
        }
        let number = number.checked_sub(1).filter(|number| *number < COMMON).ok_or_else(|| {
            let name = OTHERS.iter().find(|(other, _)| *other == number).map(|(_, name)| *name);
            let name =
                name.map_or_else(|| format!("{number}"), |name| format!("{number} ({name})"));
            Error::Unsupported(format!("TOSA operator {name}"))
        })?;
        let mut operands = Vec::new();
        let attributes = ATTRIBUTES.iter().find(|(own, _)| *own == number);
        for (kind, field) in attributes.map_or(&[][..], |(_, fields)| *fields) {
            let attribute = table.attribute()?.map(|it| it.0);
            let id = self.attribute(attribute, *kind, *field, inputs.first().copied())?;
            operands.push(id);
        }
        for name in &inputs {
            operands.push(self.named(name)?.id);
        }
        let results: Vec<Named> =
            outputs.iter().map(|name| self.named(name).cloned()).collect::<Result<_, _>>()?;
        let module = &mut self.graph.module;
        match &results[..] {
            [Named { id, of, .. }] => {
                let (result_type, result) = (*of, *id);
                self.graph.steps.push(Step::Call(Call { result_type, result, number, operands }));
            }
            results => {
                let types = results.iter().map(|it| it.of).collect();
                let (result_type, result) = (module.new_type(Type::Struct(types)), module.new_id());
                self.graph.steps.push(Step::Call(Call { result_type, result, number, operands }));
                for (index, item) in results.iter().enumerate() {
                    let step = Step::Extract { result: item.id, from: result, index };
                    self.graph.steps.push(step);
                }
            }
        }
        Ok(())
    }

    /// Adds an attribute as a constant.
    fn attribute(
        &mut self,
        table: Option<Table<'p>>,
        kind: Kind,
        field: usize,
        input: Option<&str>,
    ) -> Result<Id, Error> {
        let table = table.ok_or_else(|| bad("an operator without its attributes"))?;
        self.budget.spend(ATTRIBUTE_BYTES)?;
        Ok(match kind {
            Ints => {
                let items = self.budget.all(table.get::<Vector<'p, i32>>(field)?)?;
                if items.len() > MAX_SMALL {
                    return Err(bad("a list of attributes that is too long"));
                }
                let items: Vec<i64> = items.into_iter().map(i64::from).collect();
                self.list(&items)
            }
            Int => {
                let value = table.get::<i32>(field)?;
                self.list(&[value.into()])
            }
            Flag => {
                let value = table.get::<bool>(field)?;
                self.list(&[value.into()])
            }
            Value => {
                let bytes = table.get::<Vector<'p, u8>>(field)?.bytes();
                self.budget.spend(bytes.len())?;
                let input = input.ok_or_else(|| bad("an operator without inputs"))?;
                let scalar_type = self.named(input)?.tensor.scalar_type;
                let bytes = bytes.get(..scalar_type.size());
                let bytes = bytes.ok_or_else(|| bad("a limit of CLAMP without its bytes"))?;
                let bits = bytes.iter().rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
                let module = &mut self.graph.module;
                let item = module.new_type(Type::Scalar(scalar_type));
                let of = module.new_type(Type::Tensor(TensorType { scalar_type, sizes: vec![1] }));
                module.new_composite(of, item, &[bits])
            }
        })
    }
}

/// Minimum bytes of an operator's table, and of an attribute. Operators may share tables, each of
/// which becomes calls and constants of its own.
const OPERATOR_BYTES: usize = 24;
const ATTRIBUTE_BYTES: usize = 12;

/// 64 bits of a 48-bit integer.
fn widened(bytes: &[u8]) -> [u8; 8] {
    let bits = bytes.iter().rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    ((bits << 16).cast_signed() >> 16).to_le_bytes()
}
