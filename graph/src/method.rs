//! Programs taken apart: what a file says of its methods, owned, so that it can be changed and written again.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use torchlet_core::{Scalar, ShapeDynamism, TensorInfo};

/// A program.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Program<'p> {
    /// Its methods.
    pub methods: Vec<Method<'p>>,
    /// Its named data, which delegates ask for.
    pub named: Vec<(String, Cow<'p, [u8]>)>,
}

/// A method: instructions over values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Method<'p> {
    /// Its name.
    pub name: String,
    /// Its values. Every index of a value, here and in instructions, lies within.
    pub values: Vec<MethodValue<'p>>,
    /// The values that callers set.
    pub inputs: Vec<usize>,
    /// The values that callers read.
    pub outputs: Vec<usize>,
    /// What it does, in order.
    pub instructions: Vec<Instruction>,
    /// The lowered parts that instructions call.
    pub delegates: Vec<Delegate<'p>>,
    /// Bytes of each planned buffer.
    pub planned: Vec<usize>,
}

/// A value of a method.
#[derive(Debug, Clone, PartialEq)]
pub enum MethodValue<'p> {
    /// Nothing.
    None,
    /// A number or truth value, as it is at the start.
    Scalar(Scalar),
    /// A string.
    String(String),
    /// The values that are the integers.
    Ints(Vec<usize>),
    /// Numbers.
    Doubles(Vec<f64>),
    /// Truth values.
    Bools(Vec<bool>),
    /// The values that are the tensors.
    Tensors(Vec<usize>),
    /// The same; some may be missing.
    OptionalTensors(Vec<Option<usize>>),
    /// A tensor.
    Tensor(MethodTensor<'p>),
}

/// A tensor of a method.
#[derive(Debug, Clone, PartialEq)]
pub struct MethodTensor<'p> {
    /// Type, shape and layout; the bound of the shape where it is dynamic.
    pub info: TensorInfo,
    /// Whether the shape can change.
    pub dynamism: ShapeDynamism,
    /// Its planned buffer, and the offset there in bytes.
    pub place: Option<(usize, usize)>,
    /// Its data.
    pub data: TensorData<'p>,
    /// Its name, where the exporter kept it.
    pub name: Option<String>,
}

/// The data of a tensor: all there is without a place, what it starts with otherwise.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum TensorData<'p> {
    /// None.
    #[default]
    None,
    /// Of the program.
    Inside(Cow<'p, [u8]>),
    /// In external data, under the tensor's name.
    Outside,
}

/// An instruction of a method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Instruction {
    /// Runs a kernel.
    Kernel {
        /// The operator, with namespace, such as `aten::add`.
        name: String,
        /// Which form of it, such as `out`.
        overload: String,
        /// The arguments.
        args: Vec<usize>,
    },
    /// Runs a delegate.
    Delegate {
        /// Its index among the method's.
        delegate: usize,
        /// The arguments: inputs, then outputs.
        args: Vec<usize>,
    },
    /// Copies a value to another.
    Move {
        /// The value that is copied.
        from: usize,
        /// The value that is overwritten.
        to: usize,
    },
    /// Continues elsewhere if a value is false.
    JumpFalse {
        /// The value.
        condition: usize,
        /// The instruction to continue at; the number of instructions for the end.
        destination: usize,
    },
    /// Gives up a tensor's memory.
    Free {
        /// The tensor.
        value: usize,
    },
}

/// A lowered part of a method.
#[derive(Debug, Clone, PartialEq)]
pub struct Delegate<'p> {
    /// The name of the backend that understands it.
    pub backend: String,
    /// What the backend understands.
    pub processed: Cow<'p, [u8]>,
    /// What the exporter added for the backend.
    pub specs: Vec<(String, Vec<u8>)>,
}

impl<'p> Method<'p> {
    /// Adds a value and gives its index.
    pub fn add(&mut self, value: MethodValue<'p>) -> usize {
        self.values.push(value);
        self.values.len() - 1
    }

    /// The tensor of a value.
    pub fn tensor(&self, value: usize) -> Option<&MethodTensor<'p>> {
        match self.values.get(value) {
            Some(MethodValue::Tensor(tensor)) => Some(tensor),
            _ => None,
        }
    }
}

impl MethodTensor<'_> {
    /// Whether its data is the program's, or external, and never changes.
    pub fn is_constant(&self) -> bool {
        self.place.is_none() && !matches!(self.data, TensorData::None)
    }
}
