//! Programs taken apart: what a file says of its methods, owned, so that it can be changed and
//! written again.

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
#[non_exhaustive]
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
#[non_exhaustive]
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
#[non_exhaustive]
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

    /// Removes the values and delegates that nothing mentions any more, but for state that has a
    /// name: programs are asked for it, also by methods that do not touch it. Gives what the number
    /// of each delegate that stays is now.
    pub fn forget_unused(&mut self) -> Vec<usize> {
        let mut used = alloc::vec![false; self.values.len()];
        let mut called = alloc::vec![false; self.delegates.len()];
        let interface = self.inputs.iter().chain(&self.outputs).copied();
        let args = self.instructions.iter().flat_map(Instruction::values);
        let is_state = |value: &MethodValue<'_>| match value {
            MethodValue::Tensor(tensor) => tensor.place.is_some() && tensor.name.is_some(),
            _ => false,
        };
        let values = self.values.iter().enumerate();
        let state: Vec<usize> =
            values.filter(|(_, value)| is_state(value)).map(|(at, _)| at).collect();
        // Lists are not nested: one round finds what is in them.
        for value in interface.chain(args).chain(state) {
            if used.get(value) == Some(&false) {
                for value in self.with_items(value) {
                    if let Some(used) = used.get_mut(value) {
                        *used = true;
                    }
                }
            }
        }
        for instruction in &self.instructions {
            if let Instruction::Delegate { delegate, .. } = instruction
                && let Some(called) = called.get_mut(*delegate)
            {
                *called = true;
            }
        }
        let free_of_used = |instruction: &Instruction| match instruction {
            Instruction::Free { value } => used.get(*value) == Some(&true),
            _ => true,
        };
        // Jumps count instructions: what they lead to would move.
        if !self.has_jumps() {
            self.instructions.retain(free_of_used);
        } else {
            for instruction in &self.instructions {
                if let Instruction::Free { value } = instruction
                    && let Some(used) = used.get_mut(*value)
                {
                    *used = true;
                }
            }
        }
        let (values, delegates) = (renumbered(&used), renumbered(&called));
        let new = |value: &mut usize| *value = values.get(*value).copied().unwrap_or(0);
        keep(&mut self.values, &used);
        keep(&mut self.delegates, &called);
        self.values.iter_mut().for_each(|value| value.items_mut(new));
        self.inputs.iter_mut().chain(&mut self.outputs).for_each(new);
        for instruction in &mut self.instructions {
            match instruction {
                Instruction::Kernel { args, .. } => args.iter_mut().for_each(new),
                Instruction::Delegate { delegate, args } => {
                    *delegate = delegates.get(*delegate).copied().unwrap_or(0);
                    args.iter_mut().for_each(new);
                }
                Instruction::Move { from, to } => [from, to].into_iter().for_each(new),
                Instruction::JumpFalse { condition, .. } => new(condition),
                Instruction::Free { value } => new(value),
            }
        }
        delegates
    }

    /// Whether instructions may be skipped, or run several times.
    pub(crate) fn has_jumps(&self) -> bool {
        let is_jump =
            |instruction: &Instruction| matches!(instruction, Instruction::JumpFalse { .. });
        self.instructions.iter().any(is_jump)
    }

    /// A value and, if it is a list, what is in it.
    pub(crate) fn with_items(&self, value: usize) -> impl Iterator<Item = usize> + use<'_, 'p> {
        let items = self.values.get(value).map(|value| value.items());
        core::iter::once(value).chain(items.into_iter().flatten())
    }

    /// The tensor of a value.
    pub fn tensor(&self, value: usize) -> Option<&MethodTensor<'p>> {
        match self.values.get(value) {
            Some(MethodValue::Tensor(tensor)) => Some(tensor),
            _ => None,
        }
    }
}

impl Instruction {
    /// The values that it has as arguments, in order; a tensor that it gives up is none.
    pub(crate) fn values(&self) -> impl Iterator<Item = usize> + '_ {
        let (args, others): (&[usize], [Option<usize>; 2]) = match self {
            Instruction::Kernel { args, .. } | Instruction::Delegate { args, .. } => {
                (args, [None, None])
            }
            Instruction::Move { from, to } => (&[], [Some(*from), Some(*to)]),
            Instruction::JumpFalse { condition, .. } => (&[], [Some(*condition), None]),
            Instruction::Free { .. } => (&[], [None, None]),
        };
        args.iter().copied().chain(others.into_iter().flatten())
    }
}

impl MethodValue<'_> {
    /// The values in a list.
    pub fn items(&self) -> impl Iterator<Item = usize> + '_ {
        let (some, others): (&[usize], &[Option<usize>]) = match self {
            MethodValue::Tensors(items) | MethodValue::Ints(items) => (items, &[]),
            MethodValue::OptionalTensors(items) => (&[], items),
            _ => (&[], &[]),
        };
        some.iter().copied().chain(others.iter().flatten().copied())
    }

    /// Whether it is a list of values.
    pub(crate) fn is_list(&self) -> bool {
        use MethodValue::{Ints, OptionalTensors, Tensors};
        matches!(self, Ints(_) | Tensors(_) | OptionalTensors(_))
    }

    /// How many values are in a list, or how many bytes a text has; 1 for anything else.
    pub(crate) fn len(&self) -> usize {
        match self {
            MethodValue::Tensors(items) | MethodValue::Ints(items) => items.len(),
            MethodValue::OptionalTensors(items) => items.len(),
            MethodValue::Doubles(items) => items.len(),
            MethodValue::Bools(items) => items.len(),
            MethodValue::String(text) => text.len(),
            _ => 1,
        }
    }

    fn items_mut(&mut self, change: impl Fn(&mut usize)) {
        match self {
            MethodValue::Tensors(items) | MethodValue::Ints(items) => {
                items.iter_mut().for_each(change);
            }
            MethodValue::OptionalTensors(items) => items.iter_mut().flatten().for_each(change),
            _ => {}
        }
    }
}

/// The number that each of a list gets when only some stay.
fn renumbered(stay: &[bool]) -> Vec<usize> {
    let mut next = 0;
    let numbers = stay.iter().map(|stays| {
        let number = next;
        next += usize::from(*stays);
        number
    });
    numbers.collect()
}

fn keep<T>(list: &mut Vec<T>, stay: &[bool]) {
    let mut stay = stay.iter();
    list.retain(|_| stay.next() == Some(&true));
}

impl MethodTensor<'_> {
    /// Whether its data is the program's, or external, and never changes.
    pub fn is_constant(&self) -> bool {
        self.place.is_none() && !matches!(self.data, TensorData::None)
    }
}
