//! Inputs and outputs of methods, as Java passes them.
//!
//! Values are an array of objects (buffers and strings) and an array of `long`. The latter holds
//! for each value its kind, then: for a tensor the dtype, the number of dims, and the sizes; for a
//! number its bits; for a string or `None` nothing. `dev.torchlet.internal.Values` is the other
//! side.

use crate::buffer::DirectBuffer;
use crate::error::Failure;
use jni::objects::{JByteBuffer, JLongArray, JObject, JObjectArray, JString, JValue};
use jni::sys::jlong;
use jni::{Env, jni_sig, jni_str};
use torchlet::core::layout::{MAX_RANK, same_layout};
use torchlet::core::{Scalar, ScalarType, TensorInfo, ValueRef};
use torchlet::{Method, Tensor, Value};

/// Kinds of values: type codes of ExecuTorch's `EValue`.
pub(crate) mod kind {
    use jni::sys::jlong;

    pub(crate) const NONE: jlong = 0;
    pub(crate) const TENSOR: jlong = 1;
    pub(crate) const STRING: jlong = 2;
    pub(crate) const DOUBLE: jlong = 3;
    pub(crate) const INT: jlong = 4;
    pub(crate) const BOOL: jlong = 5;
    /// A list, which only metadata of methods mention.
    pub(crate) const LIST: jlong = 6;
}

/// An input.
pub(crate) enum Argument<'frame> {
    None,
    Scalar(Scalar),
    String(String),
    Tensor(Input<'frame>),
}

/// A tensor in a direct buffer.
pub(crate) struct Input<'frame> {
    scalar_type: ScalarType,
    shape: Vec<usize>,
    data: DirectBuffer<'frame>,
}

impl Input<'_> {
    /// Copies the tensor.
    pub(crate) fn to_tensor(&self) -> Result<Tensor, Failure> {
        Ok(Tensor::from_bytes(self.scalar_type, &self.shape, &self.data.to_vec()?)?)
    }
}

fn malformed() -> Failure {
    Failure::Argument("malformed description of values".into())
}

/// Reads the values that Java passes to a method.
pub(crate) fn arguments<'frame>(
    env: &mut Env<'frame>,
    description: &JLongArray<'_>,
    objects: &JObjectArray<'_>,
) -> Result<Vec<Argument<'frame>>, Failure> {
    let mut words = vec![0; description.len(env)?];
    description.get_region(env, 0, &mut words)?;
    let mut words = words.into_iter();
    let mut next = || words.next().ok_or_else(malformed);
    let mut arguments = Vec::new();
    for index in 0..objects.len(env)? {
        arguments.push(match next()? {
            kind::NONE => Argument::None,
            kind::DOUBLE => Argument::Scalar(Scalar::Double(f64::from_bits(next()? as u64))),
            kind::INT => Argument::Scalar(Scalar::Int(next()?)),
            kind::BOOL => Argument::Scalar(Scalar::Bool(next()? != 0)),
            kind::STRING => {
                let text = objects.get_element(env, index)?;
                let text = env.cast_local::<JString>(text)?;
                Argument::String(crate::text::string(env, &text, "input")?)
            }
            kind::TENSOR => {
                let scalar_type = ScalarType::from_number(next()?).ok_or_else(malformed)?;
                let rank = usize::try_from(next()?).map_err(|_| malformed())?;
                if rank > MAX_RANK {
                    return Err(Failure::invalid(format!(
                        "input {index}: expected at most {MAX_RANK} dims, found {rank}"
                    )));
                }
                let sizes = (0..rank).map(|_| usize::try_from(next()?).map_err(|_| malformed()));
                let shape = sizes.collect::<Result<Vec<usize>, Failure>>()?;
                let buffer = objects.get_element(env, index)?;
                let data = DirectBuffer::of(env, &buffer)?;
                let element = scalar_type.size();
                let bytes = shape.iter().try_fold(element, |bytes, size| bytes.checked_mul(*size));
                if bytes != Some(data.len()) {
                    return Err(Failure::invalid(format!(
                        "input {index}: a {} tensor of shape {shape:?} expects {} bytes, found a \
                         buffer of {}",
                        scalar_type.name(),
                        bytes.map_or("too many".into(), |bytes| bytes.to_string()),
                        data.len()
                    )));
                }
                Argument::Tensor(Input { scalar_type, shape, data })
            }
            _ => return Err(malformed()),
        });
    }
    Ok(arguments)
}

/// Copies an argument into an input of a method; `taken` is the type and layout of a tensor input.
pub(crate) fn set_input(
    method: &mut Method<'_>,
    index: usize,
    taken: Option<&TensorInfo>,
    argument: &Argument<'_>,
) -> Result<(), Failure> {
    let value = match argument {
        Argument::Tensor(tensor) => {
            // Row-major, as tensors of Java are.
            let sizes: Vec<i32> =
                tensor.shape.iter().map(|size| i32::try_from(*size).unwrap_or(i32::MAX)).collect();
            let row_major: Vec<u8> = (0u8..).take(sizes.len()).collect();
            let lies_alike = taken.is_some_and(|taken| {
                taken.scalar_type == tensor.scalar_type
                    && taken.rank() == sizes.len()
                    && same_layout(&sizes, &row_major, &taken.dim_order)
            });
            if lies_alike {
                method.resize_input(index, &tensor.shape)?;
                if tensor.data.read(method.input_mut(index)?.bytes_mut()) {
                    return Ok(());
                }
            }
            // The layout is converted; another type or shape is refused.
            tensor.to_tensor()?.into()
        }
        Argument::None => Value::None,
        Argument::Scalar(scalar) => (*scalar).into(),
        Argument::String(text) => text.as_str().into(),
    };
    Ok(method.set_input(index, &value)?)
}

/// Values for Java, in the form that the top of this module describes.
pub(crate) struct Results<'local> {
    words: Vec<jlong>,
    objects: Vec<JObject<'local>>,
}

impl<'local> Results<'local> {
    pub(crate) fn new() -> Self {
        Results { words: Vec::new(), objects: Vec::new() }
    }

    /// Adds a value of the runtime, whose tensor is copied.
    pub(crate) fn push(
        &mut self,
        env: &mut Env<'local>,
        value: &ValueRef<'_>,
    ) -> Result<(), Failure> {
        let mut object = JObject::null();
        match value {
            ValueRef::None => self.words.push(kind::NONE),
            ValueRef::Scalar(Scalar::Double(value)) => {
                self.words.extend([kind::DOUBLE, value.to_bits() as jlong]);
            }
            ValueRef::Scalar(Scalar::Int(value)) => self.words.extend([kind::INT, *value]),
            ValueRef::Scalar(Scalar::Bool(value)) => {
                self.words.extend([kind::BOOL, jlong::from(*value)]);
            }
            ValueRef::String(text) => {
                self.words.push(kind::STRING);
                object = env.new_string(text)?.into();
            }
            ValueRef::Tensor(tensor) => {
                let info = tensor.info();
                let row_major: Vec<u8> = (0u8..).take(info.rank()).collect();
                object = if same_layout(&info.sizes, &info.dim_order, &row_major) {
                    copied(env, tensor.bytes())?.into()
                } else {
                    copied(env, Tensor::try_from(tensor)?.to_contiguous()?.bytes())?.into()
                };
                self.describe(info);
            }
            _ => return Err(Failure::invalid("a list output is not supported".into())),
        }
        self.objects.push(object);
        Ok(())
    }

    fn describe(&mut self, info: &TensorInfo) {
        self.words.extend([kind::TENSOR, info.scalar_type as jlong, info.rank() as jlong]);
        self.words.extend(info.sizes.iter().map(|size| jlong::from(*size)));
    }

    /// The array of objects, with the array of `long` as its last element.
    pub(crate) fn finish(self, env: &mut Env<'local>) -> Result<JObjectArray<'local>, Failure> {
        let words = longs(env, &self.words)?;
        let array = JObjectArray::<JObject>::new(env, self.objects.len() + 1, JObject::null())?;
        for (index, object) in self.objects.iter().enumerate() {
            array.set_element(env, index, object)?;
        }
        array.set_element(env, self.objects.len(), &words)?;
        Ok(array)
    }
}

/// Creates an array of `long`.
pub(crate) fn longs<'local>(
    env: &mut Env<'local>,
    words: &[jlong],
) -> Result<JLongArray<'local>, Failure> {
    let array = env.new_long_array(words.len())?;
    array.set_region(env, 0, words)?;
    Ok(array)
}

/// Copies bytes into a new direct buffer, which the garbage collector frees.
fn copied<'local>(env: &mut Env<'local>, bytes: &[u8]) -> Result<JByteBuffer<'local>, Failure> {
    let too_large = || {
        let found = bytes.len();
        Failure::invalid(format!("an output of {found} bytes: Java's buffers have at most 2 GiB"))
    };
    let len = i32::try_from(bytes.len()).map_err(|_| too_large())?;
    let buffer = env.call_static_method(
        jni_str!("java/nio/ByteBuffer"),
        jni_str!("allocateDirect"),
        jni_sig!("(I)Ljava/nio/ByteBuffer;"),
        &[JValue::Int(len)],
    )?;
    let buffer = env.cast_local::<JByteBuffer>(buffer.l()?)?;
    if !DirectBuffer::writable(env, &buffer)?.write(bytes) {
        return Err(too_large());
    }
    Ok(buffer)
}
