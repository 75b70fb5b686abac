//! Reads ETDumps of torchlet and of the C++ runtime. Files are untrusted.

use super::{kinds, names};
use crate::recording::{
    AllocationRecord, Event, Kind, Location, Recording, Run, RunKind, ValueKind, ValueRecord,
};
use std::fmt;
use std::ops::Range;
use torchlet_core::ScalarType;
use torchlet_core::format::Malformed;
use torchlet_core::format::flatbuffer::{Table, Vector};

torchlet_core::flatbuffer_table! { DumpTable { 0 version: u32, 1 runs: Vector<'a, RunTable<'a>>, } }
torchlet_core::flatbuffer_table! {
    RunTable {
        0 name: &'a str,
        1 test_case: Option<i32>,
        2 allocators: Vector<'a, AllocatorTable<'a>>,
        3 events: Vector<'a, EventTable<'a>>,
    }
}
torchlet_core::flatbuffer_table! {
    /// Exactly one of the fields is set.
    EventTable {
        0 profile: ProfileTable<'a>,
        1 allocation: AllocationTable<'a>,
        2 debug: DebugTable<'a>,
    }
}
torchlet_core::flatbuffer_table! { AllocatorTable { 0 name: &'a str, } }
torchlet_core::flatbuffer_table! { AllocationTable { 0 allocator: i32, 1 bytes: u64, } }
torchlet_core::flatbuffer_table! {
    ProfileTable {
        0 name: &'a str,
        2 instruction: Option<i32>,
        3 delegate_number: Option<i32>,
        4 delegate_name: &'a str,
        5 metadata: Vector<'a, u8>,
        6 start: u64,
        7 end: u64,
    }
}
torchlet_core::flatbuffer_table! {
    DebugTable {
        1 instruction: Option<i32>,
        2 entry: EntryTable<'a>,
        3 delegate_number: Option<i32>,
        4 delegate_name: &'a str,
        5 name: &'a str,
    }
}
torchlet_core::flatbuffer_table! {
    EntryTable {
        0 kind: i8,
        1 tensor: TensorTable<'a>,
        2 list: ListTable<'a>,
        3 int: IntTable<'a>,
        4 float: FloatTable<'a>,
        5 double: DoubleTable<'a>,
        6 truth: TruthTable<'a>,
        7 output: TruthTable<'a>,
    }
}
torchlet_core::flatbuffer_table! { IntTable { 0 value: i64, } }
torchlet_core::flatbuffer_table! { FloatTable { 0 bits: u32, } }
torchlet_core::flatbuffer_table! { DoubleTable { 0 value: f64, } }
torchlet_core::flatbuffer_table! {
    TensorTable {
        0 scalar_type: i8,
        1 sizes: Vector<'a, i64>,
        3 offset: i64,
    }
}
torchlet_core::flatbuffer_table! { ListTable { 0 tensors: Vector<'a, TensorTable<'a>>, } }
torchlet_core::flatbuffer_table! { TruthTable { 0 value: bool, } }

/// A file cannot be read as an ETDump.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// The file has another identifier.
    NotADump,
    /// The file is shorter than its size prefix.
    Truncated {
        /// Size according to the prefix.
        claimed: u64,
        /// Actual size.
        found: u64,
    },
    /// A part of the file is invalid.
    Malformed(Malformed),
    /// Parts of the file are shared, so that it describes more data than it has bytes.
    TooMuch,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::NotADump => f.write_str(
                "not an ETDump (identifier ED00); expected a file written by `--etdump` or \
                 ExecuTorch's event tracer",
            ),
            ReadError::Truncated { claimed, found } => {
                write!(f, "the ETDump is truncated: expected {claimed} bytes, found {found}")
            }
            ReadError::Malformed(what) => write!(f, "the ETDump is malformed: {what}"),
            ReadError::TooMuch => {
                f.write_str("the ETDump is malformed: it describes more data than it contains")
            }
        }
    }
}

impl std::error::Error for ReadError {}

impl From<Malformed> for ReadError {
    fn from(error: Malformed) -> Self {
        ReadError::Malformed(error)
    }
}

/// Position of the identifier in a flatbuffer.
const IDENTIFIER: std::ops::Range<usize> = 4..8;

/// Reads an ETDump, with or without a size prefix, and its values from a debug buffer (which may be
/// empty).
///
/// Times are interpreted as nanoseconds, which holds unless the platform's clock has another unit.
///
/// # Errors
/// The bytes are not an ETDump, or are malformed.
pub fn read(bytes: &[u8], buffer: Vec<u8>) -> Result<Recording, ReadError> {
    let is_dump = |bytes: &[u8]| bytes.get(IDENTIFIER) == Some(b"ED00");
    let bytes = match bytes.split_first_chunk::<4>() {
        Some((size, rest)) if is_dump(rest) => {
            let claimed = u32::from_le_bytes(*size);
            let cut = ReadError::Truncated { claimed: claimed.into(), found: rest.len() as u64 };
            usize::try_from(claimed).ok().and_then(|size| rest.get(..size)).ok_or(cut)?
        }
        _ if is_dump(bytes) => bytes,
        _ => return Err(ReadError::NotADump),
    };
    let root = DumpTable(Table::root(bytes)?);
    // In a valid file, each run and event has its own bytes.
    let (left, buffer_len) = (bytes.len(), buffer.len());
    let mut reader =
        Reader { left, buffer: buffer_len, values: buffer_len, numbers: Vec::new(), last: None };
    let mut recording = Recording { buffer, ..Recording::default() };
    let runs = root.runs()?;
    reader.charge(runs.len(), 4)?;
    for table in runs.iter() {
        recording.runs.push(reader.run(&table?)?);
    }
    recording.buffer.append(&mut reader.numbers);
    Ok(recording)
}

struct Reader {
    /// Bytes of the file that are not accounted for yet.
    left: usize,
    /// Size of the debug buffer, and the bytes of it not assigned to a value yet. Values do not
    /// overlap.
    buffer: usize,
    values: usize,
    /// Scalars, which dumps store inline. They are appended to the debug buffer.
    numbers: Vec<u8>,
    /// Owner of the last value, and its number of values so far.
    last: Option<((bool, Option<u32>), usize)>,
}

impl Reader {
    /// Accounts for items with a minimum size.
    fn charge(&mut self, items: usize, each: usize) -> Result<(), ReadError> {
        let bytes = items.checked_mul(each).ok_or(ReadError::TooMuch)?;
        self.left = self.left.checked_sub(bytes).ok_or(ReadError::TooMuch)?;
        Ok(())
    }

    /// Reads a text. Short texts are not charged, because writers share equal names of events.
    fn text(&mut self, text: Option<&str>) -> Result<String, ReadError> {
        let text = text.unwrap_or_default();
        if text.len() > MAX_SHARED_TEXT {
            self.charge(text.len(), 1)?;
        }
        Ok(text.into())
    }

    fn run(&mut self, table: &RunTable<'_>) -> Result<Run, ReadError> {
        let name = self.text(table.name()?)?;
        let kind = match name.as_str() {
            "Load" | names::LOAD => RunKind::Load,
            "Execute" => RunKind::Execute,
            _ => RunKind::Other,
        };
        let mut run = Run::new(kind, &name);
        run.test_case = index(table.test_case()?);
        self.last = None;
        let names = table.allocators()?;
        self.charge(names.len(), 4)?;
        let mut allocators = Vec::new();
        for allocator in names.iter() {
            allocators.push(self.text(allocator?.name()?)?);
        }
        let events = table.events()?;
        self.charge(events.len(), 4)?;
        for event in events.iter() {
            let event = event?;
            if let Some(profile) = event.profile()? {
                if let Some(event) = self.profile(&profile)? {
                    run.events.push(event);
                }
            } else if let Some(debug) = event.debug()? {
                self.debug(&debug, &mut run)?;
            } else if let Some(allocation) = event.allocation()? {
                let number = allocation.allocator()?.checked_sub(1);
                let number = number.and_then(|number| usize::try_from(number).ok());
                let allocator = number.and_then(|number| allocators.get(number));
                self.charge(1, 16)?;
                run.allocations.push(AllocationRecord {
                    // Each record owns a copy of the name.
                    allocator: self.text(allocator.map(String::as_str))?,
                    bytes: allocation.bytes()?,
                    time: None,
                });
            }
        }
        // In the C++ runtime, the caller names runs.
        if kind == RunKind::Other && run.events.iter().any(|event| event.kind == Kind::Execute) {
            run.kind = RunKind::Execute;
        }
        Ok(run)
    }

    fn profile(&mut self, table: &ProfileTable<'_>) -> Result<Option<Event>, ReadError> {
        self.charge(1, 16)?;
        let mut name = self.text(table.name()?)?;
        let (number, text) = (index(table.delegate_number()?), self.text(table.delegate_name()?)?);
        let is_part = number.is_some() || !text.is_empty();
        let instruction = index(table.instruction()?);
        let kind = match name.as_str() {
            _ if is_part && instruction.is_some() => Kind::DelegatePart,
            _ if is_part => Kind::DelegateInitPart,
            // Duplicates the kernel's own event.
            names::OPERATOR => return Ok(None),
            names::DELEGATE => Kind::Delegate,
            names::INIT | names::LOAD => Kind::Load,
            names::EXECUTE => Kind::Execute,
            _ if name.starts_with(names::CALL) => Kind::Operator,
            _ if name.ends_with(names::DELEGATE_INIT) => Kind::DelegateInit,
            _ => Kind::Other,
        };
        let mut part = number;
        match kind {
            Kind::Operator => name = name.trim_start_matches(names::CALL).to_owned(),
            Kind::DelegatePart | Kind::DelegateInitPart if !text.is_empty() => {
                let (front, behind) = text.rsplit_once('_').unwrap_or((&text, ""));
                part = part.or_else(|| behind.parse().ok());
                if name.is_empty() {
                    name = if part.is_some() { front.to_owned() } else { text.clone() };
                }
            }
            _ => {}
        }
        let detail = table.metadata()?.bytes();
        self.charge(detail.len(), 1)?;
        let is_device = is_part && instruction.is_some() && detail != b"host";
        Ok(Some(Event {
            kind,
            name,
            instruction: instruction.and_then(|number| u32::try_from(number).ok()),
            part: part.and_then(|number| u32::try_from(number).ok()),
            detail: detail.to_vec(),
            location: if is_device { Location::Device } else { Location::Host(0) },
            start: table.start()?,
            end: table.end()?,
        }))
    }

    fn debug(&mut self, table: &DebugTable<'_>, run: &mut Run) -> Result<(), ReadError> {
        self.charge(1, 16)?;
        let Some(entry) = table.entry()? else { return Ok(()) };
        let is_output = match entry.output()? {
            Some(truth) => truth.value()?,
            None => false,
        };
        let name = self.text(table.name()?)?;
        let text = self.text(table.delegate_name()?)?;
        let part = index(table.delegate_number()?)
            .or_else(|| text.rsplit_once('_').and_then(|(_, number)| number.parse().ok()));
        let instruction = index(table.instruction()?).filter(|_| !is_output);
        let value_owner = |position| ValueOwner {
            instruction,
            part,
            name: if name.is_empty() { text.clone() } else { name.clone() },
            position,
        };
        // Values of an instruction are consecutive, in the order of its arguments.
        let owner = (is_output, value_owner(0).number());
        let position = match self.last {
            Some((last, count)) if last == owner => count,
            _ => 0,
        };
        let mut count = 1;
        match entry.kind()? {
            kinds::TENSOR => {
                if let Some(tensor) = entry.tensor()? {
                    let kind = ValueKind::Tensor;
                    run.values.extend(self.tensor(&tensor, kind, value_owner(position))?);
                }
            }
            kinds::TENSOR_LIST => {
                if let Some(list) = entry.list()? {
                    let tensors = list.tensors()?;
                    self.charge(tensors.len(), 4)?;
                    for (number, tensor) in tensors.iter().enumerate() {
                        let (kind, value_owner) =
                            (ValueKind::Item(number), value_owner(position + number));
                        run.values.extend(self.tensor(&tensor?, kind, value_owner)?);
                    }
                    count = tensors.len();
                }
            }
            _ => {
                if let Some((scalar_type, bytes)) = number(&entry)? {
                    run.values.push(self.number(scalar_type, &bytes, value_owner(position)));
                }
            }
        }
        self.last = Some((owner, position.saturating_add(count)));
        Ok(())
    }

    /// Adds a scalar after the debug buffer.
    fn number(
        &mut self,
        scalar_type: ScalarType,
        bytes: &[u8],
        value_owner: ValueOwner,
    ) -> ValueRecord {
        let start = self.buffer + self.numbers.len();
        self.numbers.extend_from_slice(bytes);
        let data = start..self.buffer + self.numbers.len();
        value_owner.value(ValueKind::Scalar, scalar_type, Vec::new(), data)
    }

    /// Reads a tensor. `None` if it exceeds the buffer, or its dtype is unknown.
    fn tensor(
        &mut self,
        table: &TensorTable<'_>,
        kind: ValueKind,
        value_owner: ValueOwner,
    ) -> Result<Option<ValueRecord>, ReadError> {
        let sizes = table.sizes()?;
        self.charge(sizes.len(), 8)?;
        let sizes: Vec<i64> = sizes.iter().collect::<Result<_, Malformed>>()?;
        let Some(scalar_type) = ScalarType::from_number(table.scalar_type()?.into()) else {
            return Ok(None);
        };
        let bytes = sizes.iter().try_fold(scalar_type.size(), |bytes, size| {
            bytes.checked_mul(usize::try_from(*size).ok()?)
        });
        let start = usize::try_from(table.offset()?).ok();
        let end = start.zip(bytes).and_then(|(start, bytes)| start.checked_add(bytes));
        let (Some(start), Some(end)) = (start, end.filter(|end| *end <= self.buffer)) else {
            return Ok(None);
        };
        self.values = self.values.checked_sub(end - start).ok_or(ReadError::TooMuch)?;
        Ok(Some(value_owner.value(kind, scalar_type, sizes, start..end)))
    }
}

/// The scalar of an entry as an element. `None` if it has none.
fn number(entry: &EntryTable<'_>) -> Result<Option<(ScalarType, Vec<u8>)>, Malformed> {
    let double = |value: f64| (ScalarType::Double, value.to_le_bytes().to_vec());
    let truth = |value: bool| (ScalarType::Bool, vec![u8::from(value)]);
    let int = |value: i64| (ScalarType::Long, value.to_le_bytes().to_vec());
    Ok(match entry.kind()? {
        kinds::INT => entry.int()?.map(|table| table.value()).transpose()?.map(int),
        kinds::BOOL => entry.truth()?.map(|table| table.value()).transpose()?.map(truth),
        kinds::FLOAT => {
            let bits = entry.float()?.map(|table| table.bits()).transpose()?;
            bits.map(|bits| double(f32::from_bits(bits).into()))
        }
        kinds::DOUBLE => entry.double()?.map(|table| table.value()).transpose()?.map(double),
        _ => None,
    })
}

/// Maximum length of texts that may be shared.
const MAX_SHARED_TEXT: usize = 256;

/// Owner of a value.
struct ValueOwner {
    instruction: Option<usize>,
    part: Option<usize>,
    name: String,
    position: usize,
}

impl ValueOwner {
    fn number(&self) -> Option<u32> {
        self.instruction.and_then(|number| u32::try_from(number).ok())
    }

    fn value(
        self,
        kind: ValueKind,
        scalar_type: ScalarType,
        sizes: Vec<i64>,
        data: Range<usize>,
    ) -> ValueRecord {
        ValueRecord {
            instruction: self.number(),
            part: self.part.and_then(|part| u32::try_from(part).ok()),
            name: self.name,
            position: self.position,
            kind,
            scalar_type,
            sizes,
            data,
        }
    }
}

/// Index that is -1 or missing if absent.
fn index(number: Option<i32>) -> Option<usize> {
    usize::try_from(number?).ok()
}
