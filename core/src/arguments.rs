//! Reading the arguments of a call, whether from a loaded method or straight from its file.

use crate::dtype::ScalarType;
use crate::error::KernelError;
use crate::format::flatbuffer::Vector;
use crate::format::program_schema::{EValue, EValueTable, TensorTable};
use crate::kernel::Param;
use crate::layout::{DimOrder, Sizes, TensorInfo, checked_nbytes, is_permutation};
use crate::memory::ARENA_ALIGN;
use crate::value::{Scalar, Value, list_index};
use crate::values::{Roles, Values};

/// The most integers in a list that [`Arguments::ints`] returns.
pub const MAX_INTS: usize = 16;
/// Arguments that share memory with outputs.
pub(crate) type SharedInputs = heapless::Vec<usize, 4>;

/// A short list of integers.
pub type Ints = heapless::Vec<i64, MAX_INTS, u8>;

/// Where the values of arguments are.
#[derive(Debug)]
pub(crate) enum ArgumentSource<'c, 'm> {
    /// In the file: before anything is loaded, to find out what loading will need.
    File { values: Vector<'m, EValueTable<'m>>, args: Vector<'m, i32> },
    /// In a loaded method.
    Loaded { values: &'c mut Values<'m>, args: &'m [[u8; 4]] },
}

/// The bytes of a vector, cut into elements of `N`.
pub(crate) fn elements<const N: usize>(bytes: &[u8]) -> &[[u8; N]] {
    bytes.as_chunks::<N>().0
}

impl<'m> ArgumentSource<'_, 'm> {
    pub(crate) fn len(&self) -> usize {
        match self {
            ArgumentSource::File { args, .. } => args.len(),
            ArgumentSource::Loaded { args, .. } => args.len(),
        }
    }

    /// The value index of an argument.
    fn index(&self, arg: usize) -> Option<usize> {
        let index = match self {
            ArgumentSource::File { args, .. } => args.get(arg).ok()??,
            ArgumentSource::Loaded { args, .. } => list_index(*args.get(arg)?),
        };
        usize::try_from(index).ok()
    }

    fn value(&self, index: usize) -> Option<Value<'m>> {
        match self {
            ArgumentSource::Loaded { values, .. } => values.value(index),
            ArgumentSource::File { values, .. } => {
                Some(match values.get(index).ok()??.value().ok()? {
                    EValue::None => Value::None,
                    EValue::Int(value) => Value::Int(value),
                    EValue::Bool(value) => Value::Bool(value),
                    EValue::Double(value) => Value::Double(value),
                    EValue::String(value) => Value::String(value),
                    EValue::Tensor(_) => Value::Tensor(u32::try_from(index).ok()?),
                    EValue::IntList(items) => Value::IntList(elements(items.bytes())),
                    EValue::DoubleList(items) => Value::DoubleList(elements(items.bytes())),
                    EValue::BoolList(items) => Value::BoolList(items.bytes()),
                    EValue::TensorList(items) => Value::TensorList(elements(items.bytes()), false),
                    EValue::OptionalTensorList(items) => {
                        Value::TensorList(elements(items.bytes()), true)
                    }
                })
            }
        }
    }

    /// The tensor of a [`Value::Tensor`]: a slot of a loaded method, a value index in a file.
    fn tensor(&self, handle: u32) -> Option<TensorInfo> {
        match self {
            ArgumentSource::Loaded { values, .. } => Some(values.tensor(handle)?.info()),
            ArgumentSource::File { values, .. } => tensor_info(&file_tensor(values, handle)?),
        }
    }

    fn is_constant(&self, handle: u32) -> bool {
        match self {
            ArgumentSource::Loaded { values, .. } => {
                values.tensor(handle).is_some_and(|tensor| tensor.constant)
            }
            ArgumentSource::File { values, .. } => {
                file_tensor(values, handle).is_some_and(|tensor| is_constant(&tensor))
            }
        }
    }
}

/// The memory that a tensor can use: a range in one of several memories.
#[derive(Debug, Clone, Copy)]
struct Extent {
    memory: usize,
    start: usize,
    len: usize,
}

impl Extent {
    fn overlaps(&self, other: &Extent) -> bool {
        self.memory == other.memory
            && self.len != 0
            && other.len != 0
            && self.start < other.start.saturating_add(other.len)
            && other.start < self.start.saturating_add(self.len)
    }
}

impl ArgumentSource<'_, '_> {
    /// The memory of a tensor in its largest shape; `None` if it has none yet, or none that is ever written.
    fn extent(&self, handle: u32) -> Option<Extent> {
        match self {
            ArgumentSource::Loaded { values, .. } => {
                let tensor = values.tensor(handle)?;
                let data = tensor.data?;
                let len = tensor.capacity.min(data.len());
                Some(Extent { memory: 0, start: data.addr(), len })
            }
            ArgumentSource::File { values, .. } => {
                let tensor = file_tensor(values, handle)?;
                let place = tensor.allocation_info().ok()??;
                let memory = usize::try_from(place.memory_id().ok()?).ok()?;
                let low = u64::from(place.memory_offset_low().ok()?);
                let high = u64::from(place.memory_offset_high().ok()?);
                let start = usize::try_from(low | high << 32).ok()?;
                Some(Extent { memory, start, len: tensor_info(&tensor)?.nbytes() })
            }
        }
    }
}

fn file_tensor<'m>(values: &Vector<'m, EValueTable<'m>>, index: u32) -> Option<TensorTable<'m>> {
    match values.get(usize::try_from(index).ok()?).ok()??.value().ok()? {
        EValue::Tensor(tensor) => Some(tensor),
        _ => None,
    }
}

/// Whether a tensor's data comes with the program or from outside and never changes.
pub(crate) fn is_constant(tensor: &TensorTable<'_>) -> bool {
    let allocated = tensor.allocation_info().is_ok_and(|info| info.is_some());
    let external = tensor
        .extra_tensor_info()
        .ok()
        .flatten()
        .is_some_and(|extra| extra.location().is_ok_and(|location| location == 1));
    let stored = tensor.data_buffer_idx().is_ok_and(|index| index > 0);
    !allocated && (stored || external)
}

/// Type, bound shape and layout of a tensor as the file has it; `None` if they are not valid.
pub(crate) fn tensor_info(tensor: &TensorTable<'_>) -> Option<TensorInfo> {
    let scalar_type = ScalarType::from_number(tensor.scalar_type().ok()?.into())?;
    let mut sizes = Sizes::new();
    for size in tensor.sizes().ok()?.iter() {
        sizes.push(size.ok()?).ok()?;
    }
    let dim_order = DimOrder::from_slice(tensor.dim_order().ok()?.bytes()).ok()?;
    let consistent = dim_order.len() == sizes.len() && is_permutation(&dim_order);
    checked_nbytes(scalar_type, &sizes)?;
    consistent.then_some(TensorInfo { scalar_type, sizes, dim_order })
}

/// The arguments of a call. Arguments count from 0, in the order of the operator's schema.
#[derive(Debug)]
pub struct Arguments<'c, 'm> {
    pub(crate) source: ArgumentSource<'c, 'm>,
    pub(crate) params: &'m [Param],
}

impl<'c, 'm> Arguments<'c, 'm> {
    pub(crate) fn new(source: ArgumentSource<'c, 'm>, params: &'m [Param]) -> Self {
        Arguments { source, params }
    }

    fn kind_error(&self, arg: usize, found: &Value<'_>) -> KernelError {
        let expected = self.params.get(arg).map_or("argument", |param| param.name());
        KernelError::ArgumentKind { arg, expected, found: found.type_name() }
    }

    fn value(&self, arg: usize) -> Result<Value<'m>, KernelError> {
        self.source
            .index(arg)
            .and_then(|index| self.source.value(index))
            .ok_or(KernelError::ArgumentCount { expected: arg + 1, found: self.source.len() })
    }

    /// Checks that every argument is of the kind that the operator's schema has there.
    pub(crate) fn check_kinds(&self) -> Result<(), KernelError> {
        if self.source.len() < self.params.len() {
            return Err(KernelError::ArgumentCount {
                expected: self.params.len(),
                found: self.source.len(),
            });
        }
        for (arg, param) in self.params.iter().enumerate() {
            let value = self.value(arg)?;
            let fits = match (param, &value) {
                (Param::Tensor | Param::Out | Param::OptionalTensor, Value::Tensor(_)) => true,
                (Param::OptionalTensor, Value::None) => true,
                (Param::TensorList | Param::OutList, Value::TensorList(_, false)) => true,
                (Param::OptionalTensorList, Value::TensorList(..)) => true,
                (Param::Int | Param::OptionalInt, Value::Int(_) | Value::Bool(_)) => true,
                (Param::IntList | Param::OptionalIntList, Value::IntList(_) | Value::Int(_)) => {
                    true
                }
                (Param::Float | Param::OptionalFloat, Value::Double(_) | Value::Int(_)) => true,
                (Param::OptionalFloatList, Value::DoubleList(_)) => true,
                (Param::Bool | Param::OptionalBool, Value::Bool(_) | Value::Int(_)) => true,
                (Param::BoolList, Value::BoolList(_)) => true,
                (Param::Scalar | Param::OptionalScalar | Param::OutScalar, value) => {
                    value.scalar().is_some()
                        || *param == Param::OptionalScalar && matches!(value, Value::None)
                        // A number that a jump skipped may not be there yet.
                        || *param == Param::OutScalar && matches!(value, Value::None)
                }
                (Param::String | Param::OptionalString, Value::String(_)) => true,
                (
                    Param::OptionalInt
                    | Param::OptionalIntList
                    | Param::OptionalFloat
                    | Param::OptionalFloatList
                    | Param::OptionalBool
                    | Param::OptionalString,
                    Value::None,
                ) => true,
                _ => false,
            };
            if !fits {
                return Err(self.kind_error(arg, &value));
            }
        }
        Ok(())
    }

    /// A number.
    ///
    /// # Errors
    /// The argument is not a number.
    pub fn scalar(&self, arg: usize) -> Result<Scalar, KernelError> {
        let value = self.value(arg)?;
        value.scalar().ok_or_else(|| self.kind_error(arg, &value))
    }

    /// A number or nothing.
    ///
    /// # Errors
    /// The argument is something else.
    pub fn optional_scalar(&self, arg: usize) -> Result<Option<Scalar>, KernelError> {
        match self.value(arg)? {
            Value::None => Ok(None),
            _ => self.scalar(arg).map(Some),
        }
    }

    /// An integer.
    ///
    /// # Errors
    /// The argument is not a number.
    pub fn int(&self, arg: usize) -> Result<i64, KernelError> {
        Ok(self.scalar(arg)?.to_i64())
    }

    /// An integer or nothing.
    ///
    /// # Errors
    /// The argument is something else.
    pub fn optional_int(&self, arg: usize) -> Result<Option<i64>, KernelError> {
        Ok(self.optional_scalar(arg)?.map(Scalar::to_i64))
    }

    /// A floating-point number.
    ///
    /// # Errors
    /// The argument is not a number.
    #[inline]
    pub fn float(&self, arg: usize) -> Result<f64, KernelError> {
        Ok(self.scalar(arg)?.to_f64())
    }

    /// A floating-point number or nothing.
    ///
    /// # Errors
    /// The argument is something else.
    #[inline]
    pub fn optional_float(&self, arg: usize) -> Result<Option<f64>, KernelError> {
        Ok(self.optional_scalar(arg)?.map(Scalar::to_f64))
    }

    /// A truth value.
    ///
    /// # Errors
    /// The argument is not a truth value or integer.
    pub fn bool(&self, arg: usize) -> Result<bool, KernelError> {
        match self.value(arg)? {
            Value::Bool(value) => Ok(value),
            Value::Int(value) => Ok(value != 0),
            other => Err(self.kind_error(arg, &other)),
        }
    }

    /// An element type or nothing.
    ///
    /// # Errors
    /// The argument is something else, or not the number of a type.
    pub fn optional_scalar_type(&self, arg: usize) -> Result<Option<ScalarType>, KernelError> {
        let Some(number) = self.optional_int(arg)? else { return Ok(None) };
        let unknown = KernelError::Argument { arg, what: "not the number of an element type" };
        ScalarType::from_number(number).map(Some).ok_or(unknown)
    }

    /// A string or nothing.
    ///
    /// # Errors
    /// The argument is something else.
    pub fn optional_string(&self, arg: usize) -> Result<Option<&'m str>, KernelError> {
        match self.value(arg)? {
            Value::None => Ok(None),
            Value::String(text) => Ok(Some(text)),
            other => Err(self.kind_error(arg, &other)),
        }
    }

    /// Whether the argument is nothing.
    pub fn is_none(&self, arg: usize) -> bool {
        matches!(self.value(arg), Ok(Value::None))
    }

    /// Length of a list; a single integer is a list of one.
    ///
    /// # Errors
    /// The argument is not a list.
    pub fn list_len(&self, arg: usize) -> Result<usize, KernelError> {
        match self.value(arg)? {
            Value::IntList(items) => Ok(items.len()),
            Value::DoubleList(items) => Ok(items.len()),
            Value::BoolList(items) => Ok(items.len()),
            Value::TensorList(items, _) => Ok(items.len()),
            Value::Int(_) => Ok(1),
            other => Err(self.kind_error(arg, &other)),
        }
    }

    /// An element of a list of integers.
    ///
    /// # Errors
    /// The argument is not such a list, or shorter.
    pub fn list_int(&self, arg: usize, position: usize) -> Result<i64, KernelError> {
        let range = KernelError::Argument { arg, what: "list is too short" };
        match self.value(arg)? {
            Value::IntList(items) => {
                let index = i64::from_le_bytes(*items.get(position).ok_or(range)?);
                let item = usize::try_from(index).ok().and_then(|index| self.source.value(index));
                match item.and_then(|value| value.scalar()) {
                    Some(scalar) => Ok(scalar.to_i64()),
                    None => Err(KernelError::Argument { arg, what: "list item is not an integer" }),
                }
            }
            Value::Int(value) if position == 0 => Ok(value),
            Value::Int(_) => Err(range),
            other => Err(self.kind_error(arg, &other)),
        }
    }

    /// A list of at most [`MAX_INTS`] integers.
    ///
    /// # Errors
    /// The argument is not such a list, or longer.
    pub fn ints(&self, arg: usize) -> Result<Ints, KernelError> {
        let mut ints = Ints::new();
        for position in 0..self.list_len(arg)? {
            ints.push(self.list_int(arg, position)?)
                .map_err(|_| KernelError::Argument { arg, what: "list is too long" })?;
        }
        Ok(ints)
    }

    /// A list of at most [`MAX_INTS`] integers, or nothing.
    ///
    /// # Errors
    /// The argument is something else, or longer.
    pub fn optional_ints(&self, arg: usize) -> Result<Option<Ints>, KernelError> {
        if self.is_none(arg) { Ok(None) } else { self.ints(arg).map(Some) }
    }

    /// An element of a list of floating-point numbers.
    ///
    /// # Errors
    /// The argument is not such a list, or shorter.
    pub fn list_float(&self, arg: usize, position: usize) -> Result<f64, KernelError> {
        match self.value(arg)? {
            Value::DoubleList(items) => match items.get(position) {
                Some(bytes) => Ok(f64::from_le_bytes(*bytes)),
                None => Err(KernelError::Argument { arg, what: "list is too short" }),
            },
            other => Err(self.kind_error(arg, &other)),
        }
    }

    /// An element of a list of truth values.
    ///
    /// # Errors
    /// The argument is not such a list, or shorter.
    pub fn list_bool(&self, arg: usize, position: usize) -> Result<bool, KernelError> {
        match self.value(arg)? {
            Value::BoolList(items) => match items.get(position) {
                Some(byte) => Ok(*byte != 0),
                None => Err(KernelError::Argument { arg, what: "list is too short" }),
            },
            other => Err(self.kind_error(arg, &other)),
        }
    }

    /// The tensor slot (or, from a file, the value index) of an argument; `None` for nothing.
    pub(crate) fn handle(&self, arg: usize) -> Result<Option<u32>, KernelError> {
        match self.value(arg)? {
            Value::None => Ok(None),
            Value::Tensor(handle) => Ok(Some(handle)),
            other => Err(self.kind_error(arg, &other)),
        }
    }

    /// As [`handle`](Self::handle), for an element of a list of tensors.
    pub(crate) fn list_handle(
        &self,
        arg: usize,
        position: usize,
    ) -> Result<Option<u32>, KernelError> {
        let Value::TensorList(items, optional) = self.value(arg)? else {
            return Err(self.kind_error(arg, &self.value(arg)?));
        };
        let short = KernelError::Argument { arg, what: "list is too short" };
        let index = list_index(*items.get(position).ok_or(short)?);
        if optional && index == -1 {
            return Ok(None);
        }
        match usize::try_from(index).ok().and_then(|index| self.source.value(index)) {
            Some(Value::Tensor(handle)) => Ok(Some(handle)),
            Some(Value::None) if optional => Ok(None),
            _ => Err(KernelError::Argument { arg, what: "list item is not a tensor" }),
        }
    }

    /// Calls `visit` with argument, whether it is in a list, and handle of every tensor among the first `count` arguments.
    fn for_each_tensor(
        &self,
        count: usize,
        visit: &mut dyn FnMut(usize, bool, u32) -> Result<(), KernelError>,
    ) -> Result<(), KernelError> {
        for arg in 0..count {
            match self.value(arg) {
                Ok(Value::Tensor(handle)) => visit(arg, false, handle)?,
                Ok(Value::TensorList(items, _)) => {
                    for position in 0..items.len() {
                        if let Ok(Some(handle)) = self.list_handle(arg, position) {
                            visit(arg, true, handle)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The inputs that share memory with an output of the same call: exporters that work in place plan such. A call can run
    /// if it reads copies of them; with no others shared, references to all arguments' data can exist together.
    ///
    /// # Errors
    /// Two outputs share memory, or an output and an input in a list, or too many inputs are shared.
    pub(crate) fn shared_inputs(&self, roles: Roles<'_>) -> Result<SharedInputs, KernelError> {
        let mut shared = SharedInputs::new();
        // Behind the declared arguments, files repeat the outputs as return values.
        let count = roles.count(self.source.len());
        let mut order = 0usize;
        self.for_each_tensor(count, &mut |arg, _, handle| {
            order += 1;
            if !roles.is_out(arg) {
                return Ok(());
            }
            let written = self.source.extent(handle);
            let mut other_order = 0usize;
            self.for_each_tensor(count, &mut |other, in_list, other_handle| {
                other_order += 1;
                let overlaps = match (written, self.source.extent(other_handle)) {
                    (Some(a), Some(b)) => a.overlaps(&b),
                    _ => false,
                };
                if other_order == order || !(overlaps || handle == other_handle) {
                    return Ok(());
                }
                let overlap = KernelError::Overlap { arg, other };
                if roles.is_out(other) || in_list {
                    return Err(overlap);
                }
                if !shared.contains(&other) {
                    shared.push(other).map_err(|_| overlap)?;
                }
                Ok(())
            })
        })?;
        Ok(shared)
    }

    /// Bytes of scratch memory that copies of these inputs take in their largest shapes, on top of `scratch` bytes.
    pub(crate) fn scratch_with_copies(
        &self,
        scratch: usize,
        shared: &SharedInputs,
    ) -> Option<usize> {
        shared.iter().try_fold(scratch, |total, arg| {
            let bytes =
                self.handle(*arg).ok().flatten().and_then(|handle| self.source.extent(handle));
            let aligned = total.checked_next_multiple_of(ARENA_ALIGN)?;
            aligned.checked_add(bytes.map_or(0, |extent| extent.len))
        })
    }

    fn info_of(&self, arg: usize, handle: Option<u32>) -> Result<TensorInfo, KernelError> {
        handle
            .and_then(|handle| self.source.tensor(handle))
            .ok_or(KernelError::Argument { arg, what: "not a valid tensor" })
    }

    /// Type, shape and layout of a tensor argument, input or output.
    ///
    /// # Errors
    /// The argument is not a tensor.
    pub fn info(&self, arg: usize) -> Result<TensorInfo, KernelError> {
        let handle = self.handle(arg)?;
        self.info_of(arg, handle)
    }

    /// Type, shape and layout of an optional tensor.
    ///
    /// # Errors
    /// The argument is something else.
    pub fn optional_info(&self, arg: usize) -> Result<Option<TensorInfo>, KernelError> {
        match self.handle(arg)? {
            None => Ok(None),
            handle => self.info_of(arg, handle).map(Some),
        }
    }

    /// Type, shape and layout of an element of a list of tensors.
    ///
    /// # Errors
    /// The argument is not such a list, or shorter.
    pub fn list_info(
        &self,
        arg: usize,
        position: usize,
    ) -> Result<Option<TensorInfo>, KernelError> {
        match self.list_handle(arg, position)? {
            None => Ok(None),
            handle => self.info_of(arg, handle).map(Some),
        }
    }

    /// Whether the data of a tensor argument never changes, so that it can be packed once.
    pub fn is_constant(&self, arg: usize) -> bool {
        match self.handle(arg) {
            Ok(Some(handle)) => self.source.is_constant(handle),
            _ => false,
        }
    }
}
