//! Serializes a program: the extended header, a flatbuffer of ExecuTorch's `program.fbs`
//! (identifier `ET12`), and data segments.

use crate::error::Error;
use crate::method::{
    Delegate, Instruction, Method, MethodTensor, MethodValue, Program, TensorData,
};
use crate::package::{DATA_ALIGN, Package};
use crate::tables::{Fields, Offset, table, with_header};
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};
use torchlet_core::{DataLoader, Scalar};

/// Size of the extended header in bytes: magic, header length, size of the flatbuffer, offset of
/// the segments, and their size.
const HEADER_BYTES: usize = 32;

impl<'p> Program<'p> {
    /// Serializes the program. Borrowed data stays borrowed.
    ///
    /// # Errors
    /// The program exceeds the limits of the format.
    pub fn write(self) -> Result<Package<'p>, Error> {
        let mut writer = Writer { b: FlatBufferBuilder::new(), data: Data::default() };
        let mut plans = Vec::new();
        for method in self.methods {
            plans.push(writer.method(method)?);
        }
        let plans = writer.b.create_vector(&plans);
        let mut named = Vec::new();
        for (key, bytes) in self.named {
            let segment = writer.data.segment(bytes);
            let key = writer.b.create_string(&key);
            named.push(writer.table(|t| {
                t.offset(0, key);
                t.scalar(1, segment);
            }));
        }
        writer.finish(plans, &named)
    }
}

/// Collects the data of a program into segments. The first segment holds all constants.
#[derive(Default)]
struct Data<'p> {
    /// Offsets of the constants. Entry 0 means "no data".
    constants: Package<'p>,
    offsets: Vec<u64>,
    segments: Vec<Cow<'p, [u8]>>,
    /// Indices of borrowed constants and segments, by address and length: shared data is written
    /// once.
    known_constants: BTreeMap<(usize, usize), u32>,
    known_segments: BTreeMap<(usize, usize), u32>,
}

/// Returns address and length of borrowed bytes.
#[expect(clippy::ptr_arg, reason = "distinguishes borrowed from owned bytes")]
fn location_of(bytes: &Cow<'_, [u8]>) -> Option<(usize, usize)> {
    match bytes {
        Cow::Borrowed(bytes) => Some((bytes.as_ptr() as usize, bytes.len())),
        Cow::Owned(_) => None,
    }
}

impl<'p> Data<'p> {
    /// Adds a constant and returns its index.
    fn constant(&mut self, bytes: Cow<'p, [u8]>) -> u32 {
        let place = location_of(&bytes);
        if let Some(known) = place.and_then(|place| self.known_constants.get(&place)) {
            return *known;
        }
        if self.offsets.is_empty() {
            self.offsets.push(0);
        }
        self.offsets.push(self.constants.push(bytes));
        let index = self.offsets.len() as u32 - 1;
        self.known_constants.extend(place.map(|place| (place, index)));
        index
    }

    /// Adds a segment and returns its index.
    fn segment(&mut self, bytes: Cow<'p, [u8]>) -> u32 {
        let place = location_of(&bytes);
        if let Some(known) = place.and_then(|place| self.known_segments.get(&place)) {
            return *known;
        }
        self.segments.push(bytes);
        let index = self.segments.len() as u32;
        self.known_segments.extend(place.map(|place| (place, index)));
        index
    }
}

struct Writer<'p> {
    b: FlatBufferBuilder<'static>,
    data: Data<'p>,
}

impl<'p> Writer<'p> {
    fn table(&mut self, fill: impl FnOnce(&mut Fields<'_>)) -> Offset {
        table(&mut self.b, fill)
    }

    /// Writes a table with one field, a vector or string, for a union.
    fn holding<T>(&mut self, offset: WIPOffset<T>) -> Offset {
        self.table(|t| t.offset(0, offset))
    }

    fn indices(
        &mut self,
        items: &[usize],
    ) -> Result<WIPOffset<flatbuffers::Vector<'static, i32>>, Error> {
        let items: Result<Vec<i32>, Error> = items.iter().map(|item| number(*item)).collect();
        Ok(self.b.create_vector(&items?))
    }

    fn method(&mut self, method: Method<'p>) -> Result<Offset, Error> {
        let mut values = Vec::new();
        for value in method.values {
            values.push(self.value(value)?);
        }
        let values = self.b.create_vector(&values);
        let (inputs, outputs) = (self.indices(&method.inputs)?, self.indices(&method.outputs)?);
        let mut names: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let mut instructions = Vec::new();
        for instruction in &method.instructions {
            instructions.push(self.instruction(instruction, &mut names)?);
        }
        let instructions = self.b.create_vector(&instructions);
        let chain = self.table(|t| t.offset(2, instructions));
        let chains = self.b.create_vector(&[chain]);
        let mut operators = Vec::new();
        let mut names: Vec<((&str, &str), usize)> = names.into_iter().collect();
        names.sort_unstable_by_key(|(_, index)| *index);
        for ((name, overload), _) in names {
            let name = self.b.create_shared_string(name);
            let overload = self.b.create_shared_string(overload);
            operators.push(self.table(|t| {
                t.offset(0, name);
                t.offset(1, overload);
            }));
        }
        let operators = self.b.create_vector(&operators);
        let mut delegates = Vec::new();
        for delegate in method.delegates {
            delegates.push(self.delegate(delegate));
        }
        let delegates = self.b.create_vector(&delegates);
        let mut planned = alloc::vec![0i64];
        for size in &method.planned {
            planned.push(i64::try_from(*size).map_err(|_| too_large())?);
        }
        let planned = self.b.create_vector(&planned);
        let name = self.b.create_string(&method.name);
        Ok(self.table(|t| {
            t.offset(0, name);
            t.offset(2, values);
            t.offset(3, inputs);
            t.offset(4, outputs);
            t.offset(5, chains);
            t.offset(6, operators);
            t.offset(7, delegates);
            t.offset(8, planned);
        }))
    }

    fn value(&mut self, value: MethodValue<'p>) -> Result<Offset, Error> {
        let (kind, table) = match value {
            MethodValue::None => (1u8, self.table(|_| {})),
            MethodValue::Scalar(Scalar::Int(value)) => (2, self.table(|t| t.scalar(0, value))),
            MethodValue::Scalar(Scalar::Bool(value)) => (3, self.table(|t| t.scalar(0, value))),
            MethodValue::Scalar(Scalar::Double(value)) => (4, self.table(|t| t.double(0, value))),
            MethodValue::Tensor(tensor) => (5, self.tensor(tensor)?),
            MethodValue::String(text) => {
                let text = self.b.create_string(&text);
                (6, self.holding(text))
            }
            MethodValue::Ints(items) => {
                let items: Vec<i64> = items.iter().map(|item| *item as i64).collect();
                let items = self.b.create_vector(&items);
                (7, self.holding(items))
            }
            MethodValue::Doubles(items) => {
                let items = self.b.create_vector(&items);
                (8, self.holding(items))
            }
            MethodValue::Bools(items) => {
                let items = self.b.create_vector(&items);
                (9, self.holding(items))
            }
            MethodValue::Tensors(items) => {
                let items = self.indices(&items)?;
                (10, self.holding(items))
            }
            MethodValue::OptionalTensors(items) => {
                let items = items.iter().map(|item| item.map_or(Ok(-1), number));
                let items: Vec<i32> = items.collect::<Result<_, Error>>()?;
                let items = self.b.create_vector(&items);
                (11, self.holding(items))
            }
        };
        Ok(self.union(kind, table))
    }

    /// Writes a union: field 0 is its type, field 1 its table.
    fn union(&mut self, kind: u8, table: Offset) -> Offset {
        let value: WIPOffset<UnionWIPOffset> = table.as_union_value();
        self.table(|t| {
            t.offset(1, value);
            t.scalar(0, kind);
        })
    }

    fn tensor(&mut self, tensor: MethodTensor<'p>) -> Result<Offset, Error> {
        let outside = matches!(tensor.data, TensorData::Outside);
        let data = match tensor.data {
            TensorData::Inside(bytes) => self.data.constant(bytes),
            TensorData::None | TensorData::Outside => 0,
        };
        let sizes = self.b.create_vector(&tensor.info.sizes);
        let order = self.b.create_vector(&tensor.info.dim_order);
        let place = match tensor.location {
            Some((buffer, offset)) => {
                let buffer = u32::try_from(buffer + 1).map_err(|_| too_large())?;
                let offset = offset as u64;
                Some(self.table(|t| {
                    t.scalar(0, buffer);
                    t.scalar(1, offset as u32);
                    t.scalar(2, (offset >> 32) as u32);
                }))
            }
            None => None,
        };
        let extra = match &tensor.name {
            Some(name) => {
                let name = self.b.create_string(name);
                Some(self.table(|t| {
                    t.offset(1, name);
                    t.scalar(2, i8::from(outside));
                }))
            }
            None => None,
        };
        let info = &tensor.info;
        let dynamism = tensor.dynamism as i8;
        Ok(self.table(|t| {
            t.offset(2, sizes);
            t.offset(3, order);
            t.scalar(5, data);
            if let Some(place) = place {
                t.offset(6, place);
            }
            if let Some(extra) = extra {
                t.offset(9, extra);
            }
            t.scalar(0, info.scalar_type as i8);
            t.scalar(8, dynamism);
        }))
    }

    fn instruction<'m>(
        &mut self,
        instruction: &'m Instruction,
        operators: &mut BTreeMap<(&'m str, &'m str), usize>,
    ) -> Result<Offset, Error> {
        let (kind, table) = match instruction {
            Instruction::Kernel { name, overload, args } => {
                let operator = (name.as_str(), overload.as_str());
                let next = operators.len();
                let index = *operators.entry(operator).or_insert(next);
                (1u8, self.call(index, args)?)
            }
            Instruction::Delegate { delegate, args } => (2, self.call(*delegate, args)?),
            Instruction::Move { from, to } => (3, self.pair(*from, *to)?),
            Instruction::JumpFalse { condition, destination } => {
                (4, self.pair(*condition, *destination)?)
            }
            Instruction::Free { value } => (5, self.pair(*value, 0)?),
        };
        Ok(self.union(kind, table))
    }

    fn call(&mut self, index: usize, args: &[usize]) -> Result<Offset, Error> {
        let index: i32 = number(index)?;
        let args = self.indices(args)?;
        Ok(self.table(|t| {
            t.scalar(0, index);
            t.offset(1, args);
        }))
    }

    fn pair(&mut self, first: usize, second: usize) -> Result<Offset, Error> {
        let (first, second) = (number(first)?, number(second)?);
        Ok(self.table(|t| {
            t.scalar(0, first);
            t.scalar(1, second);
        }))
    }

    fn delegate(&mut self, delegate: Delegate<'p>) -> Offset {
        let backend = self.b.create_shared_string(&delegate.backend);
        let segment = self.data.segment(delegate.processed);
        let processed = self.table(|t| {
            t.scalar(0, 1i8);
            t.scalar(1, segment);
        });
        let mut specs = Vec::new();
        for (key, value) in &delegate.specs {
            let (key, value) = (self.b.create_string(key), self.b.create_vector(value));
            specs.push(self.table(|t| {
                t.offset(0, key);
                t.offset(1, value);
            }));
        }
        let specs = self.b.create_vector(&specs);
        self.table(|t| {
            t.offset(0, backend);
            t.offset(1, processed);
            t.offset(2, specs);
        })
    }

    /// Writes the root table and assembles the pieces of the file.
    fn finish<T>(mut self, plans: WIPOffset<T>, named: &[Offset]) -> Result<Package<'p>, Error> {
        let Data { constants, mut offsets, segments, .. } = core::mem::take(&mut self.data);
        if offsets.is_empty() {
            // Without any entry, the C++ runtime looks for constants in the old format and refuses
            // the program.
            offsets.push(0);
        }
        // Offsets and sizes of the segments, relative to the first.
        let mut starts = alloc::vec![(0u64, constants.size())];
        let mut end = starts[0].1;
        for bytes in &segments {
            let start = end.next_multiple_of(DATA_ALIGN);
            starts.push((start, bytes.len() as u64));
            end = start + bytes.len() as u64;
        }
        let mut tables = Vec::new();
        for (offset, size) in starts {
            tables.push(self.table(|t| {
                t.scalar(0, offset);
                t.scalar(1, size);
            }));
        }
        let tables = self.b.create_vector(&tables);
        let offsets = self.b.create_vector(&offsets);
        let constant_segment = self.table(|t| t.offset(1, offsets));
        let named = self.b.create_vector(named);
        let root = self.table(|t| {
            t.offset(1, plans);
            t.offset(4, tables);
            t.offset(5, constant_segment);
            t.offset(7, named);
        });
        self.b.finish(root, Some("ET12"));
        let flatbuffer = self.b.finished_data();
        let size = (flatbuffer.len() + HEADER_BYTES) as u64;
        let numbers = [size, size.next_multiple_of(DATA_ALIGN), end];
        let flatbuffer = with_header(flatbuffer, *b"eh00", &numbers);
        let mut package = Package::default();
        package.push(Cow::Owned(flatbuffer));
        package.append(constants);
        for bytes in segments {
            package.push(bytes);
        }
        Ok(package)
    }
}

fn too_large() -> Error {
    Error::invalid("the program exceeds the 32-bit indices of the .pte format")
}

fn number(index: usize) -> Result<i32, Error> {
    i32::try_from(index).map_err(|_| too_large())
}
