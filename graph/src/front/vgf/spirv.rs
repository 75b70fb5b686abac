//! Reader of SPIR-V modules that hold data graphs: types, constants and one graph.
//!
//! The instructions are those of the extensions `SPV_ARM_graph`, `SPV_ARM_tensors` and
//! `SPV_EXT_replicated_composites`. An id is read only after the instruction that defines it, so
//! types, constants and calls have no cycles.

use crate::error::Error;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use half::f16;
use torchlet_core::ScalarType;
use torchlet_core::layout::MAX_RANK;

/// First word of a module.
const MAGIC: u32 = 0x0723_0203;
/// Words before the first instruction.
const HEADER: usize = 5;

/// Opcodes, of the SPIR-V specification and the extensions.
mod op {
    pub(super) const EXT_INST_IMPORT: u16 = 11;
    pub(super) const EXT_INST: u16 = 12;
    pub(super) const TYPE_BOOL: u16 = 20;
    pub(super) const TYPE_INT: u16 = 21;
    pub(super) const TYPE_FLOAT: u16 = 22;
    pub(super) const TYPE_ARRAY: u16 = 28;
    pub(super) const TYPE_STRUCT: u16 = 30;
    pub(super) const TYPE_POINTER: u16 = 32;
    pub(super) const CONSTANT_TRUE: u16 = 41;
    pub(super) const CONSTANT_FALSE: u16 = 42;
    pub(super) const CONSTANT: u16 = 43;
    pub(super) const CONSTANT_COMPOSITE: u16 = 44;
    pub(super) const CONSTANT_NULL: u16 = 46;
    pub(super) const VARIABLE: u16 = 59;
    pub(super) const DECORATE: u16 = 71;
    pub(super) const COMPOSITE_EXTRACT: u16 = 81;
    pub(super) const TYPE_TENSOR: u16 = 4163;
    pub(super) const GRAPH_CONSTANT: u16 = 4181;
    pub(super) const GRAPH_ENTRY_POINT: u16 = 4182;
    pub(super) const GRAPH: u16 = 4183;
    pub(super) const GRAPH_INPUT: u16 = 4184;
    pub(super) const GRAPH_SET_OUTPUT: u16 = 4185;
    pub(super) const GRAPH_END: u16 = 4186;
    pub(super) const TYPE_GRAPH: u16 = 4190;
    pub(super) const CONSTANT_COMPOSITE_REPLICATE: u16 = 4461;
    /// Names, capabilities, extensions, source lines and other instructions without effect here.
    pub(super) const IGNORED: [u16; 14] = [0, 2, 3, 4, 5, 6, 7, 8, 10, 14, 16, 17, 19, 33];
}

/// Decorations that locate a variable.
const BINDING: u32 = 33;
const DESCRIPTOR_SET: u32 = 34;

/// Limit on the values of an attribute: padding has two for each dim. Without a limit, a shape
/// stated in a few bytes would be copied for each result of its type.
const MAX_ATTRIBUTE: usize = 2 * MAX_RANK;

/// Id of a SPIR-V result.
pub(super) type Id = u32;

/// A type.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Type {
    Scalar(ScalarType),
    Array { item: Id, len: usize },
    Tensor(TensorType),
    Struct(Vec<Id>),
    Pointer(Id),
    Graph { inputs: Vec<Id>, outputs: Vec<Id> },
}

/// Type and shape of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TensorType {
    pub(super) scalar_type: ScalarType,
    pub(super) sizes: Vec<usize>,
}

impl TensorType {
    pub(super) fn numel(&self) -> Option<usize> {
        self.sizes.iter().try_fold(1usize, |numel, size| numel.checked_mul(*size))
    }

    pub(super) fn bytes(&self) -> Option<usize> {
        self.numel()?.checked_mul(self.scalar_type.size())
    }
}

/// A constant.
#[derive(Debug, Clone, PartialEq)]
enum Constant {
    Scalar(u64),
    Composite(Vec<Id>),
    /// Each item of the composite is this constant.
    Replicated(Id),
    Null,
    /// Constant of the container, by its number.
    Outside(u32),
}

/// A call of the extended instruction set.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    pub(super) result_type: Id,
    pub(super) result: Id,
    pub(super) number: u32,
    pub(super) operands: Vec<Id>,
}

/// Instruction of the graph.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Call(Call),
    /// One item of a result that is a structure.
    Extract {
        result: Id,
        from: Id,
        index: usize,
    },
}

/// A graph: inputs and outputs by position.
#[derive(Debug, Clone, Default)]
pub(super) struct Body {
    pub(super) inputs: BTreeMap<usize, Id>,
    pub(super) steps: Vec<Step>,
    pub(super) outputs: BTreeMap<usize, Id>,
}

/// A module with one data graph.
#[derive(Debug, Clone, Default)]
pub(super) struct Module {
    types: BTreeMap<Id, Type>,
    constants: BTreeMap<Id, (Id, Constant)>,
    variables: BTreeMap<Id, Id>,
    /// Descriptor set and binding of variables.
    places: BTreeMap<Id, [Option<u32>; 2]>,
    /// Extended instruction sets.
    sets: BTreeMap<Id, String>,
    entries: Vec<(Id, String, Vec<Id>)>,
    graphs: BTreeMap<Id, (Id, Body)>,
    /// The last id of [`new_id`](Self::new_id).
    last: Id,
}

/// The extended instruction set that this front end reads.
pub(super) const TOSA: &str = "TOSA.001000.1";

fn bad(what: &str) -> Error {
    Error::Invalid(format!("SPIR-V: {what}"))
}

fn unsupported(what: &str) -> Error {
    Error::Unsupported(format!("SPIR-V: {what}"))
}

/// Operands of an instruction.
struct Words<'w>(&'w [u32]);

impl Words<'_> {
    fn next(&mut self) -> Result<u32, Error> {
        let (first, rest) = self.0.split_first().ok_or_else(|| bad("a truncated instruction"))?;
        self.0 = rest;
        Ok(*first)
    }

    fn rest(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.0).to_vec()
    }

    /// Reads a string, which ends with the word that has a zero byte.
    fn text(&mut self) -> Result<String, Error> {
        let mut bytes = Vec::new();
        loop {
            for byte in self.next()?.to_le_bytes() {
                if byte == 0 {
                    let text = String::from_utf8(bytes);
                    return text.map_err(|_| bad("a name that is not UTF-8"));
                }
                bytes.push(byte);
            }
        }
    }
}

impl Module {
    /// Reads a module.
    ///
    /// # Errors
    /// The module is malformed, or has instructions that data graphs do not have.
    pub(super) fn read(code: &[u8]) -> Result<Self, Error> {
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap_or_default());
        let words: Vec<u32> = code.chunks_exact(4).map(word).collect();
        if words.first() != Some(&MAGIC) || !code.len().is_multiple_of(4) {
            return Err(bad("the module does not start with the magic number"));
        }
        let mut module = Module::default();
        let mut open = None;
        let mut rest = words.get(HEADER..).ok_or_else(|| bad("a truncated header"))?;
        while let [first, ..] = rest {
            let (len, opcode) = ((first >> 16) as usize, (first & 0xFFFF) as u16);
            let taken = rest.get(1..len).filter(|_| len > 0);
            let mut taken = Words(taken.ok_or_else(|| bad("a truncated instruction"))?);
            rest = rest.get(len..).unwrap_or_default();
            module.instruction(opcode, &mut taken, &mut open)?;
        }
        match open {
            None => Ok(module),
            Some(_) => Err(bad("a graph without an end")),
        }
    }

    fn instruction(
        &mut self,
        opcode: u16,
        words: &mut Words<'_>,
        open: &mut Option<(Id, Id, Body)>,
    ) -> Result<(), Error> {
        match opcode {
            op::EXT_INST_IMPORT => {
                let (id, name) = (words.next()?, words.text()?);
                self.define(id)?;
                self.sets.insert(id, name);
            }
            op::DECORATE => {
                let (id, decoration) = (words.next()?, words.next()?);
                let place = self.places.entry(id).or_default();
                match decoration {
                    DESCRIPTOR_SET => place[0] = Some(words.next()?),
                    BINDING => place[1] = Some(words.next()?),
                    _ => {}
                }
            }
            op::TYPE_BOOL => self.add_type(words, |_, _| Ok(Type::Scalar(ScalarType::Bool)))?,
            op::TYPE_INT => self.add_type(words, |_, words| {
                // Integers are signless; operators say how they read them.
                Ok(Type::Scalar(match words.next()? {
                    8 => ScalarType::Char,
                    16 => ScalarType::Short,
                    32 => ScalarType::Int,
                    // 48-bit accumulators are stored in 64 bits.
                    48 | 64 => ScalarType::Long,
                    bits => return Err(unsupported(&format!("integers of {bits} bits"))),
                }))
            })?,
            op::TYPE_FLOAT => self.add_type(words, |_, words| {
                let (bits, encoding) = (words.next()?, words.next().ok());
                Ok(Type::Scalar(match (bits, encoding) {
                    (16, None) => ScalarType::Half,
                    (32, None) => ScalarType::Float,
                    (16, Some(0)) => ScalarType::BFloat16,
                    (8, _) => return Err(unsupported("8-bit floats")),
                    _ => return Err(unsupported(&format!("floats of {bits} bits"))),
                }))
            })?,
            op::TYPE_ARRAY => self.add_type(words, |module, words| {
                let item = module.type_id(words.next()?)?;
                match module.index(words.next()?)? {
                    0 => Err(bad("an array without items")),
                    len => Ok(Type::Array { item, len }),
                }
            })?,
            op::TYPE_STRUCT => self.add_type(words, |module, words| {
                let items = words.rest();
                items.iter().try_for_each(|id| module.type_id(*id).map(drop))?;
                Ok(Type::Struct(items))
            })?,
            op::TYPE_POINTER => self.add_type(words, |module, words| {
                words.next()?;
                Ok(Type::Pointer(module.type_id(words.next()?)?))
            })?,
            op::TYPE_TENSOR => self.add_type(words, Self::tensor_type)?,
            op::TYPE_GRAPH => self.add_type(words, |module, words| {
                let count = usize::try_from(words.next()?).unwrap_or(usize::MAX);
                let all = words.rest();
                all.iter().try_for_each(|id| module.type_id(*id).map(drop))?;
                let parts = all.split_at_checked(count);
                let (inputs, outputs) =
                    parts.ok_or_else(|| bad("a graph type with fewer types than inputs"))?;
                Ok(Type::Graph { inputs: inputs.to_vec(), outputs: outputs.to_vec() })
            })?,
            op::CONSTANT_TRUE => self.add_constant(words, |_, _| Ok(Constant::Scalar(1)))?,
            op::CONSTANT_FALSE => self.add_constant(words, |_, _| Ok(Constant::Scalar(0)))?,
            op::CONSTANT => self.add_constant(words, |_, words| {
                let low = words.next()?;
                Ok(Constant::Scalar(u64::from(words.next().unwrap_or(0)) << 32 | u64::from(low)))
            })?,
            op::CONSTANT_COMPOSITE => self.add_constant(words, |module, words| {
                let items = words.rest();
                items.iter().try_for_each(|id| module.constant(*id).map(drop))?;
                match items.is_empty() {
                    true => Err(bad("a composite constant without items")),
                    false => Ok(Constant::Composite(items)),
                }
            })?,
            op::CONSTANT_COMPOSITE_REPLICATE => self.add_constant(words, |module, words| {
                let item = words.next()?;
                module.constant(item)?;
                Ok(Constant::Replicated(item))
            })?,
            op::CONSTANT_NULL => self.add_constant(words, |_, _| Ok(Constant::Null))?,
            op::GRAPH_CONSTANT => {
                self.add_constant(words, |_, words| Ok(Constant::Outside(words.next()?)))?;
            }
            op::VARIABLE => {
                let (pointer, id) = (words.next()?, words.next()?);
                let Some(Type::Pointer(to)) = self.types.get(&pointer) else {
                    return Err(bad("a variable whose type is not a pointer"));
                };
                let to = *to;
                self.define(id)?;
                self.variables.insert(id, to);
            }
            op::GRAPH_ENTRY_POINT => {
                let (graph, name) = (words.next()?, words.text()?);
                self.entries.push((graph, name, words.rest()));
            }
            op::GRAPH => {
                let (graph_type, id) = (words.next()?, words.next()?);
                if open.is_some() {
                    return Err(bad("a graph inside a graph"));
                }
                self.define(id)?;
                *open = Some((id, graph_type, Body::default()));
            }
            op::GRAPH_END => {
                let (id, graph_type, body) =
                    open.take().ok_or_else(|| bad("the end of a graph that does not begin"))?;
                self.graphs.insert(id, (graph_type, body));
            }
            op::GRAPH_INPUT | op::GRAPH_SET_OUTPUT | op::EXT_INST | op::COMPOSITE_EXTRACT => {
                let (_, _, body) =
                    open.as_mut().ok_or_else(|| bad("a graph instruction outside a graph"))?;
                self.graph_instruction(opcode, words, body)?;
            }
            _ if op::IGNORED.contains(&opcode) => {}
            _ => {
                return Err(unsupported(&format!("instruction {opcode} in a module with a graph")));
            }
        }
        Ok(())
    }

    fn graph_instruction(
        &mut self,
        opcode: u16,
        words: &mut Words<'_>,
        body: &mut Body,
    ) -> Result<(), Error> {
        let twice = |there: Option<Id>| match there {
            None => Ok(()),
            Some(_) => Err(bad("an input or output of a graph is given twice")),
        };
        match opcode {
            op::GRAPH_INPUT => {
                self.type_id(words.next()?)?;
                let (id, index) = (words.next()?, words.next()?);
                let index = self.index(index)?;
                if !words.0.is_empty() {
                    return Err(unsupported("arrays of tensors as graph inputs"));
                }
                self.define(id)?;
                twice(body.inputs.insert(index, id))?;
            }
            op::GRAPH_SET_OUTPUT => {
                let (id, index) = (words.next()?, words.next()?);
                let index = self.index(index)?;
                if !words.0.is_empty() {
                    return Err(unsupported("arrays of tensors as graph outputs"));
                }
                twice(body.outputs.insert(index, id))?;
            }
            op::EXT_INST => {
                let (result_type, result) = (self.type_id(words.next()?)?, words.next()?);
                let set = words.next()?;
                let name = self.sets.get(&set).map_or("", String::as_str);
                if name != TOSA {
                    return Err(unsupported(&format!(
                        "instruction set {name:?}: expected {TOSA:?}"
                    )));
                }
                self.define(result)?;
                let (number, operands) = (words.next()?, words.rest());
                body.steps.push(Step::Call(Call { result_type, result, number, operands }));
            }
            _ => {
                self.type_id(words.next()?)?;
                let (result, from) = (words.next()?, words.next()?);
                let index = usize::try_from(words.next()?).unwrap_or(usize::MAX);
                self.define(result)?;
                body.steps.push(Step::Extract { result, from, index });
            }
        }
        Ok(())
    }

    fn add_type(
        &mut self,
        words: &mut Words<'_>,
        read: impl FnOnce(&Self, &mut Words<'_>) -> Result<Type, Error>,
    ) -> Result<(), Error> {
        let id = words.next()?;
        let found = read(self, words)?;
        self.define(id)?;
        self.types.insert(id, found);
        Ok(())
    }

    fn add_constant(
        &mut self,
        words: &mut Words<'_>,
        read: impl FnOnce(&Self, &mut Words<'_>) -> Result<Constant, Error>,
    ) -> Result<(), Error> {
        let (of, id) = (self.type_id(words.next()?)?, words.next()?);
        let found = read(self, words)?;
        self.define(id)?;
        self.constants.insert(id, (of, found));
        Ok(())
    }

    /// An id that nothing has. For modules that are not read from SPIR-V.
    pub(super) fn new_id(&mut self) -> Id {
        self.last = self.last.saturating_add(1);
        self.last
    }

    /// Adds a type.
    pub(super) fn new_type(&mut self, of: Type) -> Id {
        let id = self.new_id();
        self.types.insert(id, of);
        id
    }

    /// Adds a constant of the type `of` whose items, of the type `item`, have these bits.
    pub(super) fn new_composite(&mut self, of: Id, item: Id, bits: &[u64]) -> Id {
        let mut items = Vec::new();
        for bits in bits {
            let id = self.new_id();
            self.constants.insert(id, (item, Constant::Scalar(*bits)));
            items.push(id);
        }
        let id = self.new_id();
        self.constants.insert(id, (of, Constant::Composite(items)));
        id
    }

    /// Adds a constant whose contents are outside of the module.
    pub(super) fn new_outside(&mut self, of: Id, number: u32) -> Id {
        let id = self.new_id();
        self.constants.insert(id, (of, Constant::Outside(number)));
        id
    }

    /// Checks that an id is new.
    fn define(&self, id: Id) -> Result<(), Error> {
        let in_graphs = self.graphs.contains_key(&id) || self.sets.contains_key(&id);
        let is_known = self.types.contains_key(&id) || self.constants.contains_key(&id);
        match is_known || in_graphs || self.variables.contains_key(&id) {
            true => Err(Error::Invalid(format!("SPIR-V: id {id} is defined twice"))),
            false => Ok(()),
        }
    }

    fn type_id(&self, id: Id) -> Result<Id, Error> {
        self.type_of(id).map(|_| id)
    }

    pub(super) fn type_of(&self, id: Id) -> Result<&Type, Error> {
        let found = self.types.get(&id);
        found.ok_or_else(|| Error::Invalid(format!("SPIR-V: id {id} is not a type")))
    }

    fn constant(&self, id: Id) -> Result<&(Id, Constant), Error> {
        let found = self.constants.get(&id);
        found.ok_or_else(|| Error::Invalid(format!("SPIR-V: id {id} is not a constant")))
    }

    /// Whether an id is a constant.
    pub(super) fn is_constant(&self, id: Id) -> bool {
        self.constants.contains_key(&id)
    }

    fn tensor_type(&self, words: &mut Words<'_>) -> Result<Type, Error> {
        let Type::Scalar(scalar_type) = *self.type_of(words.next()?)? else {
            return Err(bad("a tensor whose elements are not scalars"));
        };
        let (Ok(rank), Ok(shape)) = (words.next(), words.next()) else {
            return Err(unsupported("a tensor without a shape"));
        };
        let sizes = self.list(shape)?;
        let sizes: Option<Vec<usize>> =
            sizes.into_iter().map(|size| usize::try_from(size).ok()).collect();
        let sizes = sizes.filter(|sizes| !sizes.contains(&0));
        let sizes = sizes.ok_or_else(|| bad("a size that is not positive"))?;
        if sizes.len() > MAX_RANK {
            return Err(unsupported(&format!(
                "a tensor of rank {}: expected at most {MAX_RANK}",
                sizes.len()
            )));
        }
        let found = TensorType { scalar_type, sizes };
        if found.bytes().is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            return Err(bad("a tensor that exceeds the address space"));
        }
        if self.index(rank)? != found.sizes.len() {
            return Err(bad("a tensor whose rank differs from its shape"));
        }
        Ok(Type::Tensor(found))
    }

    /// The type of a tensor.
    pub(super) fn tensor(&self, id: Id) -> Result<&TensorType, Error> {
        match self.type_of(id)? {
            Type::Tensor(found) => Ok(found),
            _ => Err(bad("an operand or result that is not a tensor")),
        }
    }

    /// The type of a constant tensor.
    pub(super) fn constant_type(&self, id: Id) -> Result<&TensorType, Error> {
        self.tensor(self.constant(id)?.0)
    }

    /// A constant index, size or dim.
    fn index(&self, id: Id) -> Result<usize, Error> {
        usize::try_from(self.int(id)?).map_err(|_| bad("a negative index"))
    }

    /// The value of a scalar constant that is an integer or a boolean.
    pub(super) fn int(&self, id: Id) -> Result<i64, Error> {
        match self.list(id)?[..] {
            [value] => Ok(value),
            _ => Err(Error::Invalid(format!("SPIR-V: id {id}: expected one integer"))),
        }
    }

    /// The values of a constant of integers, signed, in memory order.
    pub(super) fn list(&self, id: Id) -> Result<Vec<i64>, Error> {
        let (of, bytes) = self.attribute(id)?;
        if of.is_floating() {
            return Err(Error::Invalid(format!("SPIR-V: id {id}: expected integers")));
        }
        let size = of.size();
        let signed = |bytes: &[u8]| {
            let value = bytes.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
            let unused = 64 - 8 * size as u32;
            (value << unused).cast_signed() >> unused
        };
        Ok(bytes.chunks_exact(size).map(signed).collect())
    }

    /// The value of a constant that is one float or integer.
    pub(super) fn number(&self, id: Id) -> Result<f64, Error> {
        let (of, bytes) = self.attribute(id)?;
        match (of, &bytes[..]) {
            (ScalarType::Float, [a, b, c, d]) => Ok(f32::from_le_bytes([*a, *b, *c, *d]).into()),
            (ScalarType::BFloat16, [a, b]) => Ok(f32::from_le_bytes([0, 0, *a, *b]).into()),
            (ScalarType::Half, [a, b]) => Ok(f16::from_le_bytes([*a, *b]).to_f64()),
            _ => Ok(self.int(id)? as f64),
        }
    }

    /// Dtype and contents of an attribute.
    fn attribute(&self, id: Id) -> Result<(ScalarType, Vec<u8>), Error> {
        let (of, constant) = self.constant(id)?;
        let (scalar_type, numel) = (self.scalar_type(*of, 0)?, self.numel(*of, 0)?);
        if numel > MAX_ATTRIBUTE {
            return Err(Error::Invalid(format!(
                "SPIR-V: id {id}: expected at most {MAX_ATTRIBUTE} values of an attribute, found \
                 {numel}"
            )));
        }
        match constant {
            Constant::Outside(_) => {
                Err(unsupported("an attribute that is a constant outside the module"))
            }
            _ => Ok((scalar_type, self.contents(id)?)),
        }
    }

    /// The type of the elements of a scalar, array or tensor.
    fn scalar_type(&self, id: Id, depth: usize) -> Result<ScalarType, Error> {
        match self.type_of(id)? {
            Type::Scalar(found) => Ok(*found),
            Type::Tensor(found) => Ok(found.scalar_type),
            Type::Array { item, .. } if depth < MAX_RANK => self.scalar_type(*item, depth + 1),
            _ => Err(bad("a constant of this type")),
        }
    }

    /// Number of elements of a scalar, array or tensor.
    fn numel(&self, id: Id, depth: usize) -> Result<usize, Error> {
        let found = match self.type_of(id)? {
            Type::Scalar(_) => Some(1),
            Type::Tensor(found) => found.numel(),
            Type::Array { item, len } if depth < MAX_RANK => {
                self.numel(*item, depth + 1)?.checked_mul(*len)
            }
            _ => None,
        };
        found.ok_or_else(|| bad("a constant of this type"))
    }

    /// The number of a constant of the container; `None` if the module states the contents.
    pub(super) fn outside(&self, id: Id) -> Result<Option<u32>, Error> {
        match self.constant(id)? {
            (_, Constant::Outside(number)) => Ok(Some(*number)),
            _ => Ok(None),
        }
    }

    /// The contents of a constant that the module states, in memory order. They can be much larger
    /// than the module: the caller bounds their size.
    pub(super) fn contents(&self, id: Id) -> Result<Vec<u8>, Error> {
        let (of, _) = self.constant(id)?;
        let mut bytes = Vec::new();
        self.fill(id, self.scalar_type(*of, 0)?, &mut bytes, usize::MAX, 0)?;
        Ok(bytes)
    }

    /// Appends the contents of a constant of up to `limit` bytes, those before it included.
    ///
    /// Each constant appends at least an element, so the number of visited constants is at most
    /// that of the elements times the depth, even if composites share their items.
    fn fill(
        &self,
        id: Id,
        of: ScalarType,
        bytes: &mut Vec<u8>,
        limit: usize,
        depth: usize,
    ) -> Result<(), Error> {
        let (own, constant) = self.constant(id)?;
        if depth > MAX_RANK {
            return Err(bad("a constant that is nested too deeply"));
        }
        if self.scalar_type(*own, 0)? != of {
            return Err(bad("a constant whose items have another type"));
        }
        let start = bytes.len();
        let len = self.numel(*own, 0)?.checked_mul(of.size());
        let end = len.and_then(|len| start.checked_add(len)).filter(|end| *end <= limit);
        let end = end.ok_or_else(|| bad("a constant that exceeds its type"))?;
        match constant {
            Constant::Scalar(value) => {
                bytes.extend(value.to_le_bytes().get(..of.size()).unwrap_or_default());
            }
            Constant::Null => bytes.resize(end, 0),
            Constant::Composite(items) => {
                for item in items {
                    self.fill(*item, of, bytes, end, depth + 1)?;
                }
            }
            Constant::Replicated(item) => {
                self.fill(*item, of, bytes, end, depth + 1)?;
                let one = bytes.len() - start;
                if !(end - start).is_multiple_of(one) {
                    return Err(bad("a constant that repeats an item of another size"));
                }
                while bytes.len() < end {
                    let more = (bytes.len() - start).min(end - bytes.len());
                    bytes.extend_from_within(start..start + more);
                }
            }
            Constant::Outside(_) => return Err(bad("a graph constant inside a constant")),
        }
        match bytes.len() == end {
            true => Ok(()),
            false => Err(Error::Invalid(format!(
                "SPIR-V: constant {id}: expected {} bytes, as its type has, found {}",
                end - start,
                bytes.len() - start
            ))),
        }
    }

    /// The graph of an entry point, and its interface: for each input, then each output, the type,
    /// the descriptor set and the binding.
    ///
    /// # Errors
    /// There is no such entry point, or its interface does not fit the graph.
    pub(super) fn entry(&self, name: &str) -> Result<Entry<'_>, Error> {
        let mut named = self.entries.iter().filter(|(_, own, _)| own == name);
        let (Some((graph, _, interface)), None) = (named.next(), named.next()) else {
            let name = name.to_string();
            return Err(Error::Invalid(format!("SPIR-V: expected one entry point {name:?}")));
        };
        let (of, body) =
            self.graphs.get(graph).ok_or_else(|| bad("an entry point without its graph"))?;
        let Type::Graph { inputs, outputs } = self.type_of(*of)? else {
            return Err(bad("a graph whose type is not a graph type"));
        };
        if interface.len() != inputs.len() + outputs.len() {
            return Err(bad("an entry point whose variables do not fit its graph"));
        }
        let mut places = Vec::new();
        for (variable, of) in interface.iter().zip(inputs.iter().chain(outputs)) {
            if self.variables.get(variable) != Some(of) {
                return Err(bad("an entry point whose variables do not fit its graph"));
            }
            let place = self.places.get(variable).copied().unwrap_or_default();
            places.push((*of, [place[0].unwrap_or(0), place[1].unwrap_or(0)]));
        }
        let positions = |count: usize| (0..count).collect::<Vec<_>>();
        let fits = |given: &BTreeMap<usize, Id>, count: usize| {
            given.keys().copied().collect::<Vec<_>>() == positions(count)
        };
        // A graph need not read all of its inputs.
        let reads = body.inputs.keys().all(|index| *index < inputs.len());
        if !reads || !fits(&body.outputs, outputs.len()) {
            return Err(bad("a graph whose inputs or outputs do not fit its type"));
        }
        let outputs = places.split_off(inputs.len());
        Ok(Entry { inputs: places, outputs, body })
    }
}

/// A graph with its interface: type, descriptor set and binding of each input and output.
pub(super) struct Entry<'m> {
    pub(super) inputs: Vec<(Id, [u32; 2])>,
    pub(super) outputs: Vec<(Id, [u32; 2])>,
    pub(super) body: &'m Body,
}
