//! Owned, mutable representation of a program file and its methods, which can be written back to a
//! file.

use alloc::borrow::Cow;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use torchlet_core::{Scalar, ShapeDynamism, TensorInfo};

/// A program.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Program<'p> {
    /// Methods.
    pub methods: Vec<Method<'p>>,
    /// Named data, which delegates read by key.
    pub named: Vec<(String, Cow<'p, [u8]>)>,
}

/// A method: instructions over values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Method<'p> {
    /// Name.
    pub name: String,
    /// Values. Every value index, here and in instructions, is in range.
    pub values: Vec<MethodValue<'p>>,
    /// Indices of the values that callers set.
    pub inputs: Vec<usize>,
    /// Indices of the values that callers read.
    pub outputs: Vec<usize>,
    /// Instructions, in order.
    pub instructions: Vec<Instruction>,
    /// Delegates that instructions call.
    pub delegates: Vec<Delegate<'p>>,
    /// Size of each planned buffer in bytes.
    pub planned: Vec<usize>,
}

/// A value of a method.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum MethodValue<'p> {
    /// `None`.
    None,
    /// A scalar, with its initial value.
    Scalar(Scalar),
    /// A string.
    String(String),
    /// A list of integers: indices of scalar values.
    Ints(Vec<usize>),
    /// A list of floats.
    Doubles(Vec<f64>),
    /// A list of booleans.
    Bools(Vec<bool>),
    /// A list of tensors: indices of tensor values.
    Tensors(Vec<usize>),
    /// A list of optional tensors.
    OptionalTensors(Vec<Option<usize>>),
    /// A tensor.
    Tensor(MethodTensor<'p>),
}

/// A tensor of a method.
#[derive(Debug, Clone, PartialEq)]
pub struct MethodTensor<'p> {
    /// Dtype, shape and dim order; the shape is an upper bound if dynamic.
    pub info: TensorInfo,
    /// Whether the shape can change.
    pub dynamism: ShapeDynamism,
    /// Planned buffer, and the byte offset in it.
    pub location: Option<(usize, usize)>,
    /// Data.
    pub data: TensorData<'p>,
    /// Fully qualified name, if the exporter kept it.
    pub name: Option<String>,
}

/// Data of a tensor: the contents of a constant, or the initial contents of a tensor in planned
/// memory.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub enum TensorData<'p> {
    /// No data.
    #[default]
    None,
    /// Stored in the program.
    Inside(Cow<'p, [u8]>),
    /// Stored in external data, under the tensor's name.
    Outside,
}

/// An instruction of a method.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Instruction {
    /// Runs a kernel.
    Kernel {
        /// Operator name with namespace, such as `aten::add`.
        name: String,
        /// Overload, such as `out`.
        overload: String,
        /// Value indices of the arguments.
        args: Vec<usize>,
    },
    /// Runs a delegate.
    Delegate {
        /// Index into the method's delegates.
        delegate: usize,
        /// Value indices of the inputs, then of the outputs.
        args: Vec<usize>,
    },
    /// Copies the value `from` to the value `to`.
    Move {
        /// Source value.
        from: usize,
        /// Destination value.
        to: usize,
    },
    /// Jumps if a condition is false.
    JumpFalse {
        /// Value of the condition.
        condition: usize,
        /// Index of the instruction to jump to; the number of instructions for the end.
        destination: usize,
    },
    /// Frees the memory of a tensor.
    Free {
        /// Value of the tensor.
        value: usize,
    },
}

/// A delegate: a lowered part of a method.
#[derive(Debug, Clone, PartialEq)]
pub struct Delegate<'p> {
    /// Id of the backend.
    pub backend: String,
    /// Processed blob for the backend.
    pub processed: Cow<'p, [u8]>,
    /// Compile specs, as key and value.
    pub specs: Vec<(String, Vec<u8>)>,
}

impl<'p> Method<'p> {
    /// Adds a value and returns its index.
    pub fn add(&mut self, value: MethodValue<'p>) -> usize {
        self.values.push(value);
        self.values.len() - 1
    }

    /// Names the tensors among `state` without initial data that only delegates access. The runtime
    /// does not know which arguments a delegate reads, so that it would take such tensors for
    /// results of delegates: a reset would keep what another method wrote to them.
    pub(crate) fn name_state(&mut self, state: &BTreeSet<usize>) {
        let calls = |is_delegate: bool| {
            let instructions = self.instructions.iter().filter(move |instruction| {
                matches!(instruction, Instruction::Delegate { .. }) == is_delegate
                    && !matches!(instruction, Instruction::Free { .. })
            });
            let values = instructions.flat_map(Instruction::values);
            values.flat_map(|value| self.with_items(value)).collect::<BTreeSet<usize>>()
        };
        let (by_delegates, by_others) = (calls(true), calls(false));
        for value in state.iter().filter(|it| by_delegates.contains(it) && !by_others.contains(it))
        {
            if let Some(MethodValue::Tensor(tensor)) = self.values.get_mut(*value)
                && tensor.name.is_none()
                && tensor.data == TensorData::None
                && let Some((buffer, offset)) = tensor.location
            {
                tensor.name = Some(format!("state {buffer}:{offset}"));
            }
        }
    }

    /// Removes unreferenced values and delegates, and returns the new index of each remaining
    /// delegate.
    ///
    /// Named state stays: callers may ask a program for it, even through methods that do not use
    /// it.
    pub fn forget_unused(&mut self) -> Vec<usize> {
        let mut used = alloc::vec![false; self.values.len()];
        let mut called = alloc::vec![false; self.delegates.len()];
        let interface = self.inputs.iter().chain(&self.outputs).copied();
        let args = self.instructions.iter().flat_map(Instruction::values);
        let is_state = |value: &MethodValue<'_>| match value {
            MethodValue::Tensor(tensor) => tensor.location.is_some() && tensor.name.is_some(),
            _ => false,
        };
        let values = self.values.iter().enumerate();
        let state: Vec<usize> =
            values.filter(|(_, value)| is_state(value)).map(|(at, _)| at).collect();
        // Lists are not nested, so one pass finds all items.
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
        // Jump destinations are instruction indices, so removing an instruction would invalidate
        // them.
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

    /// Whether instructions may be skipped or run repeatedly.
    pub(crate) fn has_jumps(&self) -> bool {
        let is_jump =
            |instruction: &Instruction| matches!(instruction, Instruction::JumpFalse { .. });
        self.instructions.iter().any(is_jump)
    }

    /// Returns a value and, if it is a list, its items.
    pub(crate) fn with_items(&self, value: usize) -> impl Iterator<Item = usize> + use<'_, 'p> {
        let items = self.values.get(value).map(|value| value.items());
        core::iter::once(value).chain(items.into_iter().flatten())
    }

    /// Returns the tensor of a value; `None` for other values.
    pub fn tensor(&self, value: usize) -> Option<&MethodTensor<'p>> {
        match self.values.get(value) {
            Some(MethodValue::Tensor(tensor)) => Some(tensor),
            _ => None,
        }
    }
}

impl Instruction {
    /// Returns the value indices of the arguments, in order. The tensor of `Free` is not an
    /// argument.
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
    /// Returns the indices of a list's items, skipping `None`. Empty for values that are not lists.
    pub fn items(&self) -> impl Iterator<Item = usize> + '_ {
        let (some, others): (&[usize], &[Option<usize>]) = match self {
            MethodValue::Tensors(items) | MethodValue::Ints(items) => (items, &[]),
            MethodValue::OptionalTensors(items) => (&[], items),
            _ => (&[], &[]),
        };
        some.iter().copied().chain(others.iter().flatten().copied())
    }

    /// Whether the value is a list of value indices.
    pub(crate) fn is_list(&self) -> bool {
        use MethodValue::{Ints, OptionalTensors, Tensors};
        matches!(self, Ints(_) | Tensors(_) | OptionalTensors(_))
    }

    /// Returns the length of a list, or of a string in bytes; 1 for other values.
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

/// Returns the new index of each kept element.
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
    /// Whether the tensor never changes: it has data, in the program or an external file, but no
    /// planned memory.
    pub fn is_constant(&self) -> bool {
        self.location.is_none() && !matches!(self.data, TensorData::None)
    }
}
