//! What can go wrong, one type per operation, each with the place and the way out.
//!
//! Every error gives ExecuTorch's numeric code for the same condition from `code()`, for hosts that
//! exchange codes with its C++ runtime.

use crate::dtype::ScalarType;
use crate::format::flatbuffer::Malformed;
use crate::registry::Missing;
use core::fmt;

/// ExecuTorch's numeric error codes (`runtime/core/error.h`).
pub mod code {
    #![allow(missing_docs, reason = "the names are ExecuTorch's")]
    pub const INTERNAL: u32 = 0x01;
    pub const INVALID_STATE: u32 = 0x02;
    pub const NOT_SUPPORTED: u32 = 0x10;
    pub const INVALID_ARGUMENT: u32 = 0x12;
    pub const INVALID_TYPE: u32 = 0x13;
    pub const OPERATOR_MISSING: u32 = 0x14;
    pub const REGISTRATION_EXCEEDING_MAX_KERNELS: u32 = 0x15;
    pub const REGISTRATION_ALREADY_REGISTERED: u32 = 0x16;
    pub const NOT_FOUND: u32 = 0x20;
    pub const MEMORY_ALLOCATION_FAILED: u32 = 0x21;
    pub const ACCESS_FAILED: u32 = 0x22;
    pub const INVALID_PROGRAM: u32 = 0x23;
    pub const INVALID_EXTERNAL_DATA: u32 = 0x24;
    pub const OUT_OF_RESOURCES: u32 = 0x25;
    pub const DELEGATE_INVALID_COMPATIBILITY: u32 = 0x30;
    pub const DELEGATE_MEMORY_ALLOCATION_FAILED: u32 = 0x31;
    pub const DELEGATE_INVALID_HANDLE: u32 = 0x32;
}

/// A short text made at run time, cut where it does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Message(heapless::String<160>);

impl Message {
    /// Formats the arguments.
    pub fn new(arguments: fmt::Arguments<'_>) -> Self {
        struct Cut<'a>(&'a mut heapless::String<160>);
        impl fmt::Write for Cut<'_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                for character in text.chars() {
                    self.0.push(character).map_err(|_| fmt::Error)?;
                }
                Ok(())
            }
        }
        let mut message = Message::default();
        // An error only says that the text was cut.
        let _ = fmt::write(&mut Cut(&mut message.0), arguments);
        message
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The storage could not deliver bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ReadError {
    /// Where, in bytes from the start of the file.
    pub offset: u64,
    /// How many bytes were asked for.
    pub len: usize,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read {} bytes at byte {}; is the file complete?", self.len, self.offset)
    }
}

/// A program or data file cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ProgramError {
    /// The bytes are not those of such a file.
    Malformed(Malformed),
    /// The storage could not deliver.
    Read(ReadError),
    /// The buffer for the flatbuffer part of the file is too small.
    BufferTooSmall {
        /// Bytes that it must hold.
        needed: usize,
        /// Bytes that it holds.
        available: usize,
    },
    /// The storage cannot be borrowed from: a buffer must be supplied to read into.
    BufferRequired {
        /// Bytes that it must hold.
        needed: usize,
    },
    /// There is no method of that name.
    NoSuchMethod,
    /// Names of data occur in more than one place.
    DuplicateData,
}

impl ProgramError {
    /// ExecuTorch's code for the condition.
    pub fn code(&self) -> u32 {
        match self {
            ProgramError::Malformed(_) => code::INVALID_PROGRAM,
            ProgramError::Read(_) => code::ACCESS_FAILED,
            ProgramError::BufferTooSmall { .. } => code::MEMORY_ALLOCATION_FAILED,
            ProgramError::BufferRequired { .. } => code::INVALID_STATE,
            ProgramError::NoSuchMethod => code::INVALID_ARGUMENT,
            ProgramError::DuplicateData => code::INVALID_EXTERNAL_DATA,
        }
    }
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgramError::Malformed(malformed) => malformed.fmt(f),
            ProgramError::Read(read) => read.fmt(f),
            ProgramError::BufferTooSmall { needed, available } => {
                write!(f, "the program buffer holds {available} bytes and must hold {needed}")
            }
            ProgramError::BufferRequired { needed } => write!(
                f,
                "this storage cannot be borrowed from: supply a buffer of {needed} bytes to read into"
            ),
            ProgramError::NoSuchMethod => f.write_str("the program has no method of that name"),
            ProgramError::DuplicateData => f.write_str("two data files define the same name"),
        }
    }
}

/// A shape in an error message: the rank, and the first dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ShapeNote {
    rank: u8,
    sizes: [i32; 6],
}

impl ShapeNote {
    /// Notes a shape.
    pub fn new(sizes: &[i32]) -> Self {
        let mut note = ShapeNote { rank: sizes.len().min(255) as u8, sizes: [0; 6] };
        for (noted, &size) in note.sizes.iter_mut().zip(sizes) {
            *noted = size;
        }
        note
    }
}

impl fmt::Display for ShapeNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (position, size) in self.sizes.iter().take(usize::from(self.rank)).enumerate() {
            let separator = if position == 0 { "" } else { ", " };
            write!(f, "{separator}{size}")?;
        }
        f.write_str(if usize::from(self.rank) > self.sizes.len() { ", ...]" } else { "]" })
    }
}

/// A kernel cannot be prepared or run with the arguments it has. Arguments count from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum KernelError {
    /// The call has fewer arguments than the operator.
    ArgumentCount {
        /// How many the operator has.
        expected: usize,
        /// How many the call has.
        found: usize,
    },
    /// An argument is a value of another kind.
    ArgumentKind {
        /// Which argument.
        arg: usize,
        /// What the operator takes there.
        expected: &'static str,
        /// What the program has there.
        found: &'static str,
    },
    /// The kernel does not support this element type of an argument.
    ScalarType {
        /// Which argument.
        arg: usize,
        /// Its type.
        found: ScalarType,
    },
    /// Data was viewed as another element type than it has.
    ElementType {
        /// The type of the view.
        expected: ScalarType,
        /// The type of the data.
        found: ScalarType,
    },
    /// Data is not aligned for its element type.
    Alignment {
        /// The type of the data.
        scalar_type: ScalarType,
    },
    /// A tensor has the wrong number of dimensions.
    Rank {
        /// Which argument.
        arg: usize,
        /// Its number of dimensions.
        found: usize,
    },
    /// A tensor has another shape than it must have, and cannot be given that shape.
    Shape {
        /// Which argument.
        arg: usize,
        /// What it must be.
        expected: ShapeNote,
        /// What it is.
        found: ShapeNote,
    },
    /// A tensor's memory layout (dim order) is not supported.
    Layout {
        /// Which argument.
        arg: usize,
    },
    /// The value of an argument is out of range.
    Argument {
        /// Which argument.
        arg: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A combination of arguments is valid but not implemented.
    Unsupported {
        /// What is not implemented.
        what: &'static str,
    },
    /// A tensor has no memory: bind its input or output first.
    Unbound {
        /// Which argument.
        arg: usize,
    },
    /// A tensor that is written lies in read-only memory.
    ReadOnly {
        /// Which argument.
        arg: usize,
    },
    /// A tensor that is written shares memory with another argument.
    Overlap {
        /// The tensor that is written.
        arg: usize,
        /// The other one.
        other: usize,
    },
    /// An argument was asked for as something that it is not declared as, or twice for writing.
    Access {
        /// Which argument.
        arg: usize,
    },
    /// The scratch memory is too small.
    Scratch {
        /// Bytes needed.
        needed: usize,
        /// Bytes there.
        available: usize,
    },
}

impl KernelError {
    /// Whether the error may go away with other shapes or scalars: what is prepared before the values are
    /// known cannot judge it.
    pub(crate) fn depends_on_values(&self) -> bool {
        matches!(
            self,
            KernelError::Shape { .. } | KernelError::Argument { .. } | KernelError::Rank { .. }
        )
    }

    /// ExecuTorch's code for the condition.
    pub fn code(&self) -> u32 {
        match self {
            KernelError::ArgumentKind { .. }
            | KernelError::ScalarType { .. }
            | KernelError::ElementType { .. } => code::INVALID_TYPE,
            KernelError::Layout { .. } | KernelError::Unsupported { .. } => code::NOT_SUPPORTED,
            KernelError::Unbound { .. } => code::INVALID_STATE,
            KernelError::ReadOnly { .. }
            | KernelError::Overlap { .. }
            | KernelError::Alignment { .. } => code::INVALID_PROGRAM,
            KernelError::Access { .. } => code::INTERNAL,
            KernelError::Scratch { .. } => code::MEMORY_ALLOCATION_FAILED,
            _ => code::INVALID_ARGUMENT,
        }
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelError::ArgumentCount { expected, found } => {
                write!(f, "the call has {found} arguments, the operator {expected}")
            }
            KernelError::ArgumentKind { arg, expected, found } => {
                write!(f, "argument {arg} is a {found}, expected a {expected}")
            }
            KernelError::ScalarType { arg, found } => {
                write!(f, "argument {arg} has type {found}, which this kernel does not support")
            }
            KernelError::ElementType { expected, found } => {
                write!(f, "data of type {found} was viewed as {expected}")
            }
            KernelError::Alignment { scalar_type } => {
                write!(f, "data of type {scalar_type} is not aligned to its elements")
            }
            KernelError::Rank { arg, found } => {
                write!(f, "argument {arg} has {found} dimensions, which the operator does not take")
            }
            KernelError::Shape { arg, expected, found } => {
                write!(f, "argument {arg} has shape {found}, expected {expected}")
            }
            KernelError::Layout { arg } => {
                write!(f, "argument {arg} has a memory layout that this kernel does not support")
            }
            KernelError::Argument { arg, what } => write!(f, "argument {arg}: {what}"),
            KernelError::Unsupported { what } => write!(f, "not supported: {what}"),
            KernelError::Unbound { arg } => {
                write!(
                    f,
                    "argument {arg} has no memory; bind that input or output before execution"
                )
            }
            KernelError::ReadOnly { arg } => {
                write!(f, "argument {arg} is written but lies in read-only memory")
            }
            KernelError::Overlap { arg, other } => {
                write!(f, "argument {arg} is written and shares memory with argument {other}")
            }
            KernelError::Access { arg } => {
                write!(
                    f,
                    "argument {arg} was accessed in a way that its declaration does not allow"
                )
            }
            KernelError::Scratch { needed, available } => {
                write!(f, "scratch memory holds {available} bytes and must hold {needed}")
            }
        }
    }
}

/// A backend cannot take or run a delegate.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum DelegateError {
    /// The backend cannot work here: no device, no driver.
    Unavailable(Message),
    /// The processed bytes are not what the backend understands.
    InvalidData(Message),
    /// The delegate needs an operator, type or feature that the backend does not have.
    Unsupported(Message),
    /// Not enough memory, of the method arena, the host or a device.
    OutOfMemory(Message),
    /// The device failed while running.
    Device(Message),
    /// An argument does not fit.
    Argument(KernelError),
}

impl DelegateError {
    /// ExecuTorch's code for the condition.
    pub fn code(&self) -> u32 {
        match self {
            DelegateError::Unavailable(_) => code::NOT_FOUND,
            DelegateError::InvalidData(_) | DelegateError::Unsupported(_) => {
                code::DELEGATE_INVALID_COMPATIBILITY
            }
            DelegateError::OutOfMemory(_) => code::DELEGATE_MEMORY_ALLOCATION_FAILED,
            DelegateError::Device(_) => code::INTERNAL,
            DelegateError::Argument(error) => error.code(),
        }
    }
}

impl fmt::Display for DelegateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DelegateError::Unavailable(message) => {
                write!(f, "the backend is not available: {message}")
            }
            DelegateError::InvalidData(message) => write!(f, "invalid delegate data: {message}"),
            DelegateError::Unsupported(message) => write!(f, "not supported: {message}"),
            DelegateError::OutOfMemory(message) => write!(f, "out of memory: {message}"),
            DelegateError::Device(message) => write!(f, "device failure: {message}"),
            DelegateError::Argument(error) => error.fmt(f),
        }
    }
}

/// Which of the memories that a caller supplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum MemoryKind {
    /// The method arena.
    Arena,
    /// A planned buffer, by index.
    Planned(usize),
    /// The scratch memory.
    Scratch,
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryKind::Arena => f.write_str("the method arena"),
            MemoryKind::Planned(index) => write!(f, "planned buffer {index}"),
            MemoryKind::Scratch => f.write_str("the scratch memory"),
        }
    }
}

/// A method cannot be loaded.
#[derive(Debug)]
#[non_exhaustive]
pub enum InitError<'p> {
    /// The file is not well-formed, or cannot be read.
    Program(ProgramError),
    /// Operators or backends of the method are not registered.
    Missing(Missing<'p>),
    /// A memory that the caller supplied is too small.
    MemoryTooSmall {
        /// Which one.
        memory: MemoryKind,
        /// Bytes that it must hold.
        needed: usize,
        /// Bytes that it holds.
        available: usize,
    },
    /// A memory that the caller supplied does not start at a multiple of
    /// [`ARENA_ALIGN`](crate::ARENA_ALIGN) bytes.
    MemoryMisaligned {
        /// Which one.
        memory: MemoryKind,
    },
    /// The number of planned buffers differs.
    PlannedBuffers {
        /// How many the method has.
        expected: usize,
        /// How many were supplied.
        found: usize,
    },
    /// The method's sizes add up to more than this machine can address.
    TooLarge,
    /// A value of the method is inconsistent.
    Value {
        /// Its index.
        index: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// Data that the program expects from outside is missing or differs.
    ExternalData {
        /// The name of the data.
        name: &'p str,
        /// What is wrong.
        what: &'static str,
    },
    /// An instruction is inconsistent.
    Instruction {
        /// Its index.
        index: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// An operator cannot run with the arguments that the method gives it.
    Kernel {
        /// The instruction's index.
        instruction: usize,
        /// The operator.
        operator: &'p str,
        /// Why.
        source: KernelError,
    },
    /// A backend refused a delegate.
    Delegate {
        /// The delegate's index.
        index: usize,
        /// The backend's name.
        backend: &'p str,
        /// Why.
        source: DelegateError,
    },
}

impl InitError<'_> {
    /// ExecuTorch's code for the condition.
    pub fn code(&self) -> u32 {
        match self {
            InitError::Program(error) => error.code(),
            InitError::Missing(missing) => missing.code(),
            InitError::MemoryTooSmall { .. } | InitError::TooLarge => {
                code::MEMORY_ALLOCATION_FAILED
            }
            InitError::MemoryMisaligned { .. } | InitError::PlannedBuffers { .. } => {
                code::INVALID_ARGUMENT
            }
            InitError::Value { .. } | InitError::Instruction { .. } => code::INVALID_PROGRAM,
            InitError::ExternalData { .. } => code::INVALID_EXTERNAL_DATA,
            InitError::Kernel { source, .. } => source.code(),
            InitError::Delegate { source, .. } => source.code(),
        }
    }
}

impl fmt::Display for InitError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InitError::Program(error) => error.fmt(f),
            InitError::Missing(missing) => missing.fmt(f),
            InitError::MemoryTooSmall { memory, needed, available } => {
                write!(f, "{memory} holds {available} bytes and must hold {needed}")
            }
            InitError::MemoryMisaligned { memory } => write!(
                f,
                "{memory} must start at a multiple of {} bytes; AlignedBytes does",
                crate::memory::ARENA_ALIGN
            ),
            InitError::PlannedBuffers { expected, found } => {
                write!(f, "{found} planned buffers were supplied, the method has {expected}")
            }
            InitError::TooLarge => {
                f.write_str("the method needs more memory than can be addressed")
            }
            InitError::Value { index, what } => write!(f, "value {index}: {what}"),
            InitError::ExternalData { name, what } => write!(f, "external data '{name}': {what}"),
            InitError::Instruction { index, what } => write!(f, "instruction {index}: {what}"),
            InitError::Kernel { instruction, operator, source } => {
                write!(f, "instruction {instruction}, {operator}: {source}")
            }
            InitError::Delegate { index, backend, source } => {
                write!(f, "delegate {index} ({backend}): {source}")
            }
        }
    }
}

/// An input cannot be set.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum InputError {
    /// There is no such input or output.
    Index {
        /// The index that was asked for.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// The value is of another kind.
    Kind {
        /// What the method takes there.
        expected: &'static str,
        /// What was given.
        found: &'static str,
    },
    /// The tensor is of another element type.
    ScalarType {
        /// What the method takes there.
        expected: ScalarType,
        /// What was given.
        found: ScalarType,
    },
    /// The tensor's shape does not fit: it differs from a static shape or exceeds a bound.
    Shape {
        /// The shape, or the bound.
        expected: ShapeNote,
        /// What was given.
        found: ShapeNote,
        /// Whether `expected` is a bound.
        bound: bool,
    },
    /// The tensor's memory layout (dim order) differs.
    Layout,
    /// The tensor is not memory-planned and has no memory yet: bind it first.
    Unbound,
    /// The tensor has memory of its own already (it is memory-planned or constant).
    Planned,
    /// The memory is too small for the tensor.
    TooSmall {
        /// Bytes that it must hold.
        needed: usize,
        /// Bytes that it holds.
        available: usize,
    },
    /// The memory is not aligned to the tensor's elements.
    Misaligned,
}

impl InputError {
    /// ExecuTorch's code for the condition.
    pub fn code(&self) -> u32 {
        match self {
            InputError::Shape { .. } => code::NOT_SUPPORTED,
            InputError::Unbound | InputError::Planned => code::INVALID_STATE,
            InputError::Kind { .. } => code::INVALID_TYPE,
            _ => code::INVALID_ARGUMENT,
        }
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InputError::Index { index, count } => {
                write!(f, "index {index} is out of range: there are {count}")
            }
            InputError::Kind { expected, found } => {
                write!(f, "expected a {expected}, found a {found}")
            }
            InputError::ScalarType { expected, found } => {
                write!(f, "expected elements of type {expected}, found {found}")
            }
            InputError::Shape { expected, found, bound: false } => {
                write!(
                    f,
                    "expected shape {expected}, found {found}; export with dynamic shapes to vary it"
                )
            }
            InputError::Shape { expected, found, bound: true } => {
                write!(
                    f,
                    "shape {found} exceeds the bound {expected} that the program was exported with"
                )
            }
            InputError::Layout => {
                f.write_str("the tensor's dim order differs from the exported one")
            }
            InputError::Unbound => f.write_str(
                "the tensor has no memory: the program leaves it to the caller to bind some",
            ),
            InputError::Planned => {
                f.write_str("the tensor has memory of its own; it cannot be bound")
            }
            InputError::TooSmall { needed, available } => {
                write!(f, "the memory holds {available} bytes and must hold {needed}")
            }
            InputError::Misaligned => {
                f.write_str("the memory is not aligned to the tensor's elements")
            }
        }
    }
}

/// Why an instruction failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum InstructionError {
    /// In a kernel.
    Kernel(KernelError),
    /// In a delegate.
    Delegate(DelegateError),
    /// A jump's condition is not a truth value.
    Condition,
    /// More backward jumps than [`Method::set_jump_limit`](crate::Method::set_jump_limit) allows.
    JumpLimit,
}

/// A method failed while running.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ExecuteError {
    /// The instruction's index.
    pub instruction: usize,
    /// The operator or backend, where there is one.
    pub name: &'static str,
    /// Why.
    pub source: InstructionError,
}

impl ExecuteError {
    /// ExecuTorch's code for the condition.
    pub fn code(&self) -> u32 {
        match &self.source {
            InstructionError::Kernel(error) => error.code(),
            InstructionError::Delegate(error) => error.code(),
            InstructionError::Condition => code::INVALID_PROGRAM,
            InstructionError::JumpLimit => code::OUT_OF_RESOURCES,
        }
    }
}

impl fmt::Display for ExecuteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instruction {}", self.instruction)?;
        if !self.name.is_empty() {
            write!(f, ", {}", self.name)?;
        }
        match &self.source {
            InstructionError::Kernel(error) => write!(f, ": {error}"),
            InstructionError::Delegate(error) => write!(f, ": {error}"),
            InstructionError::Condition => {
                f.write_str(": the jump's condition is not a truth value")
            }
            InstructionError::JumpLimit => {
                f.write_str(": more backward jumps than the limit; raise it with set_jump_limit")
            }
        }
    }
}

impl core::error::Error for ReadError {}
impl core::error::Error for ProgramError {}
impl core::error::Error for KernelError {}
impl core::error::Error for DelegateError {}
impl core::error::Error for InitError<'_> {}
impl core::error::Error for InputError {}
impl core::error::Error for ExecuteError {}

impl From<Malformed> for ProgramError {
    fn from(malformed: Malformed) -> Self {
        ProgramError::Malformed(malformed)
    }
}
impl From<ReadError> for ProgramError {
    fn from(error: ReadError) -> Self {
        ProgramError::Read(error)
    }
}
impl<E: Into<ProgramError>> From<E> for InitError<'_> {
    fn from(error: E) -> Self {
        InitError::Program(error.into())
    }
}
impl From<KernelError> for DelegateError {
    fn from(error: KernelError) -> Self {
        DelegateError::Argument(error)
    }
}
