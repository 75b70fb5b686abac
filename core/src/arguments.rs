//! Access to the arguments of a call.

use crate::bounded::Bounded;
use crate::dtype::ScalarType;
use crate::error::KernelError;
use crate::layout::TensorInfo;
use crate::param::Param;
use crate::runtime_features::{RuntimeFeatures, has};
use crate::value::{Scalar, Value, list_index};
use crate::values::{Tensor, Values};

/// Maximum number of integers in a list that [`Arguments::ints`] returns.
pub const MAX_INTS: usize = 16;

/// A short list of integers.
pub type Ints = Bounded<i64, MAX_INTS>;

/// Splits bytes into elements of `N` bytes.
pub(crate) fn elements<const N: usize>(bytes: &[u8]) -> &[[u8; N]] {
    bytes.as_chunks::<N>().0
}

/// Arguments of a call, indexed from 0 in the order of the operator's schema.
#[derive(Debug)]
pub struct Arguments<'c, 'm> {
    pub(crate) values: &'c mut Values<'m>,
    args: &'m [[u8; 4]],
    pub(crate) params: &'m [Param],
}

/// Error of arguments with fewer items than the operator reads.
const TOO_SHORT: &str = "the list has too few items";

impl<'c, 'm> Arguments<'c, 'm> {
    pub(crate) fn new(
        values: &'c mut Values<'m>,
        args: &'m [[u8; 4]],
        params: &'m [Param],
    ) -> Self {
        Arguments { values, args, params }
    }

    /// Declared parameters: the kernel's own slice, so that a function shared by several kernels
    /// can identify the called one. Empty for delegates.
    pub fn params(&self) -> &'m [Param] {
        self.params
    }

    /// Number of arguments.
    pub(crate) fn len(&self) -> usize {
        self.args.len()
    }

    /// Value index of an argument.
    pub(crate) fn index(&self, arg: usize) -> Option<usize> {
        Some(list_index(*self.args.get(arg)?))
    }

    #[cold]
    #[inline(never)]
    fn kind_error(&self, arg: usize, found: &Value<'_>) -> KernelError {
        // Delegates declare no parameters; they mostly request tensors.
        let expected = self.params.get(arg).copied().unwrap_or(Param::Tensor);
        KernelError::argument_kind(arg, expected, found.type_name())
    }

    #[cold]
    #[inline(never)]
    fn count_error(&self, arg: usize) -> KernelError {
        KernelError::argument_count(arg.saturating_add(1), self.len())
    }

    pub(crate) fn value(&self, arg: usize) -> Result<Value<'m>, KernelError> {
        self.index(arg)
            .and_then(|index| self.values.value(index))
            .ok_or_else(|| self.count_error(arg))
    }

    /// Checks that every argument has the kind that the operator's schema declares.
    pub(crate) fn check_kinds(&self) -> Result<(), KernelError> {
        if self.len() < self.params.len() {
            return Err(KernelError::argument_count(self.params.len(), self.len()));
        }
        for (arg, param) in self.params.iter().enumerate() {
            let value = self.value(arg)?;
            if param.kinds() & value.kind() == 0 {
                return Err(self.kind_error(arg, &value));
            }
        }
        Ok(())
    }

    /// Reads a scalar.
    ///
    /// # Errors
    /// The argument is not a scalar.
    pub fn scalar(&self, arg: usize) -> Result<Scalar, KernelError> {
        let value = self.value(arg)?;
        value.scalar().ok_or_else(|| self.kind_error(arg, &value))
    }

    /// Reads an optional scalar.
    ///
    /// # Errors
    /// The argument is of another kind.
    pub fn optional_scalar(&self, arg: usize) -> Result<Option<Scalar>, KernelError> {
        match self.value(arg)? {
            Value::None => Ok(None),
            _ => self.scalar(arg).map(Some),
        }
    }

    /// Reads an integer; floats are truncated.
    ///
    /// # Errors
    /// The argument is not a scalar.
    pub fn int(&self, arg: usize) -> Result<i64, KernelError> {
        let value = self.value(arg)?;
        integer(&value).ok_or_else(|| self.kind_error(arg, &value))
    }

    /// Reads an optional integer.
    ///
    /// # Errors
    /// The argument is of another kind.
    pub fn optional_int(&self, arg: usize) -> Result<Option<i64>, KernelError> {
        if self.is_none(arg) { Ok(None) } else { self.int(arg).map(Some) }
    }

    /// Reads a float.
    ///
    /// # Errors
    /// The argument is not a scalar.
    #[inline]
    pub fn float(&self, arg: usize) -> Result<f64, KernelError> {
        Ok(self.scalar(arg)?.to_f64())
    }

    /// Reads an optional float.
    ///
    /// # Errors
    /// The argument is of another kind.
    #[inline]
    pub fn optional_float(&self, arg: usize) -> Result<Option<f64>, KernelError> {
        Ok(self.optional_scalar(arg)?.map(Scalar::to_f64))
    }

    /// Reads a boolean.
    ///
    /// # Errors
    /// The argument is not a boolean or integer.
    pub fn bool(&self, arg: usize) -> Result<bool, KernelError> {
        match self.value(arg)? {
            Value::Bool(value) => Ok(value),
            Value::Int(value) => Ok(value.int() != 0),
            other => Err(self.kind_error(arg, &other)),
        }
    }

    /// Reads an optional dtype.
    ///
    /// # Errors
    /// The argument is of another kind, or not the number of a dtype.
    pub fn optional_scalar_type(&self, arg: usize) -> Result<Option<ScalarType>, KernelError> {
        let Some(number) = self.optional_int(arg)? else { return Ok(None) };
        let unknown = KernelError::argument(arg, "expected the number of a known dtype");
        ScalarType::from_number(number).map(Some).ok_or(unknown)
    }

    /// Reads an optional string.
    ///
    /// # Errors
    /// The argument is of another kind.
    pub fn optional_string(&self, arg: usize) -> Result<Option<&'m str>, KernelError> {
        match self.value(arg)? {
            Value::None => Ok(None),
            Value::String(text) if has(RuntimeFeatures::STRINGS) => {
                Ok(core::str::from_utf8(text).ok())
            }
            other => Err(self.kind_error(arg, &other)),
        }
    }

    /// Whether the argument is an absent optional.
    pub fn is_none(&self, arg: usize) -> bool {
        matches!(self.value(arg), Ok(Value::None))
    }

    /// Length of a list; a single integer counts as a list of one.
    ///
    /// # Errors
    /// The argument is not a list.
    pub fn list_len(&self, arg: usize) -> Result<usize, KernelError> {
        match self.value(arg)? {
            Value::Int(_) => Ok(1),
            Value::IntList(items) if has(RuntimeFeatures::NUMERIC_LISTS) => Ok(items.len()),
            Value::DoubleList(items) if has(RuntimeFeatures::NUMERIC_LISTS) => Ok(items.len()),
            Value::BoolList(items) if has(RuntimeFeatures::NUMERIC_LISTS) => Ok(items.len()),
            Value::TensorList(items, _) if has(RuntimeFeatures::TENSOR_LISTS) => Ok(items.len()),
            other => Err(self.kind_error(arg, &other)),
        }
    }

    /// Reads an item of an integer list.
    ///
    /// # Errors
    /// The argument is not an integer list, or `position` is out of range.
    pub fn list_int(&self, arg: usize, position: usize) -> Result<i64, KernelError> {
        let range = KernelError::argument(arg, TOO_SHORT);
        match self.value(arg)? {
            Value::IntList(items) if has(RuntimeFeatures::NUMERIC_LISTS) => {
                let index = i64::from_le_bytes(*items.get(position).ok_or(range)?);
                let item = usize::try_from(index).ok().and_then(|index| self.values.value(index));
                match item.as_ref().and_then(integer) {
                    Some(item) => Ok(item),
                    None => Err(KernelError::argument(arg, "expected a list of integers")),
                }
            }
            Value::Int(value) if position == 0 => Ok(value.int()),
            Value::Int(_) => Err(range),
            other => Err(self.kind_error(arg, &other)),
        }
    }

    /// Reads a list of at most [`MAX_INTS`] integers.
    ///
    /// # Errors
    /// The argument is not an integer list, or too long.
    pub fn ints(&self, arg: usize) -> Result<Ints, KernelError> {
        let mut ints = Ints::new();
        for position in 0..self.list_len(arg)? {
            ints.push(self.list_int(arg, position)?)
                .map_err(|_| KernelError::argument(arg, "the list has too many items"))?;
        }
        Ok(ints)
    }

    /// Reads an optional list of at most [`MAX_INTS`] integers.
    ///
    /// # Errors
    /// The argument is of another kind, or too long.
    pub fn optional_ints(&self, arg: usize) -> Result<Option<Ints>, KernelError> {
        if self.is_none(arg) { Ok(None) } else { self.ints(arg).map(Some) }
    }

    /// Reads an item of a float list.
    ///
    /// # Errors
    /// The argument is not a float list, or `position` is out of range.
    pub fn list_float(&self, arg: usize, position: usize) -> Result<f64, KernelError> {
        match self.value(arg)? {
            Value::DoubleList(items) if has(RuntimeFeatures::NUMERIC_LISTS) => {
                match items.get(position) {
                    Some(bytes) => Ok(f64::from_le_bytes(*bytes)),
                    None => Err(KernelError::argument(arg, TOO_SHORT)),
                }
            }
            other => Err(self.kind_error(arg, &other)),
        }
    }

    /// Reads an item of a boolean list.
    ///
    /// # Errors
    /// The argument is not a boolean list, or `position` is out of range.
    pub fn list_bool(&self, arg: usize, position: usize) -> Result<bool, KernelError> {
        match self.value(arg)? {
            Value::BoolList(items) if has(RuntimeFeatures::NUMERIC_LISTS) => {
                match items.get(position) {
                    Some(byte) => Ok(*byte != 0),
                    None => Err(KernelError::argument(arg, TOO_SHORT)),
                }
            }
            other => Err(self.kind_error(arg, &other)),
        }
    }

    /// Tensor slot of an argument; `None` for an absent optional.
    pub(crate) fn handle(&self, arg: usize) -> Result<Option<u32>, KernelError> {
        match self.value(arg)? {
            Value::None => Ok(None),
            Value::Tensor(handle) => Ok(Some(handle)),
            other => Err(self.kind_error(arg, &other)),
        }
    }

    /// Like [`handle`](Self::handle), for an item of a tensor list.
    pub(crate) fn list_handle(
        &self,
        arg: usize,
        position: usize,
    ) -> Result<Option<u32>, KernelError> {
        let (items, optional) = match self.value(arg)? {
            Value::TensorList(items, optional) if has(RuntimeFeatures::TENSOR_LISTS) => {
                (items, optional)
            }
            other => return Err(self.kind_error(arg, &other)),
        };
        let short = KernelError::argument(arg, TOO_SHORT);
        let entry = *items.get(position).ok_or(short)?;
        if optional && i32::from_le_bytes(entry) == -1 {
            return Ok(None);
        }
        match self.values.value(list_index(entry)) {
            Some(Value::Tensor(handle)) => Ok(Some(handle)),
            Some(Value::None) if optional => Ok(None),
            _ => Err(KernelError::argument(arg, "expected a list of tensors")),
        }
    }

    /// Returns a tensor argument.
    #[inline(never)]
    pub(crate) fn tensor_argument(&self, arg: usize) -> Option<Tensor<'_, 'm>> {
        self.values.tensor(self.handle(arg).ok()??)
    }

    fn info_of(&self, arg: usize, handle: Option<u32>) -> Result<TensorInfo, KernelError> {
        handle
            .and_then(|handle| self.values.tensor(handle))
            .map(|tensor| tensor.info())
            .ok_or(KernelError::argument(arg, "expected a tensor, found None"))
    }

    /// Dtype, shape and layout of a tensor argument, input or output.
    ///
    /// # Errors
    /// The argument is not a tensor.
    pub fn info(&self, arg: usize) -> Result<TensorInfo, KernelError> {
        let handle = self.handle(arg)?;
        self.info_of(arg, handle)
    }

    /// Dtype, shape and layout of an optional tensor.
    ///
    /// # Errors
    /// The argument is of another kind.
    pub fn optional_info(&self, arg: usize) -> Result<Option<TensorInfo>, KernelError> {
        match self.handle(arg)? {
            None => Ok(None),
            handle => self.info_of(arg, handle).map(Some),
        }
    }

    /// Dtype, shape and layout of an item of a tensor list.
    ///
    /// # Errors
    /// The argument is not a tensor list, or `position` is out of range.
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

    /// Whether a tensor argument has the same shape in every run. Otherwise, preparation at load
    /// time uses its upper bound.
    pub fn has_fixed_shape(&self, arg: usize) -> bool {
        self.tensor_argument(arg).is_none_or(|tensor| tensor.is_fixed())
    }

    /// Whether the data of a tensor argument never changes, so that it can be packed once.
    pub fn is_constant(&self, arg: usize) -> bool {
        self.tensor_argument(arg).is_some_and(|tensor| tensor.is_constant())
    }
}

/// Converts a scalar to an integer, like [`Scalar::to_i64`].
fn integer(value: &Value<'_>) -> Option<i64> {
    match *value {
        Value::Int(value) => Some(value.int()),
        Value::Bool(value) => Some(value.into()),
        Value::Double(value) if has(RuntimeFeatures::FLOAT_SCALARS) => {
            Some(Scalar::Double(value.double()).to_i64())
        }
        _ => None,
    }
}
