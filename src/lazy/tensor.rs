//! [`Tensor`]: creation, calls, views, in-place operators, reading.

use super::handle::{Handle, Slot, ViewStep, integers, reshaped};
use super::node::{Cell, Given, Value};
use super::record::{call, fail, record, resolve};
use super::{Arg, Device};
use crate::error::Error;
use crate::tensor::Tensor as HostTensor;
use std::fmt;
use std::sync::Arc;
use torchlet_core::rules::{View, normalize_dim};
use torchlet_core::{Element, ScalarType};
use torchlet_graph::operators::Operator;
use torchlet_graph::operators::aten::{Memory, shareable_memory};
use torchlet_graph::operators::views::permutation;

/// A tensor whose elements are computed when they are read.
///
/// Methods have PyTorch's names and meaning. They check shapes and dtypes, record a call, and
/// return at once. [`to_vec`](Self::to_vec), [`item`](Self::item) and
/// [`to_tensor`](Self::to_tensor) compute what was recorded.
///
/// A clone is the same tensor, as after `b = a` in Python: [in-place](Self#in-place-operators)
/// operators change both. Views share memory as in PyTorch.
///
/// Methods return errors of their arguments at once. Operators such as `+` cannot: a tensor that
/// they fail to compute remembers the error, and whatever reads or uses it returns that error.
///
/// # In-place operators
///
/// Methods that end with an underscore, and `+=` and the like, replace the elements of the tensor
/// and of all tensors that share its memory. Recorded calls that read the old elements keep them.
#[derive(Clone)]
pub struct Tensor(Arc<Slot>);

const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Tensor>();
    shared::<Device>();
};

impl Tensor {
    fn of(handle: Arc<Handle>) -> Self {
        Tensor(Slot::new(handle))
    }

    pub(super) fn of_value(value: Value) -> Self {
        Tensor::of(Handle::new(value))
    }

    /// The current value.
    pub(super) fn value(&self) -> Value {
        self.0.handle().value()
    }

    /// A tensor that cannot be computed.
    pub(super) fn failed(like: &Tensor, error: &Error) -> Self {
        let value = like.value();
        let failure = match error {
            Error::Call { operator, reason } => (operator.clone(), reason.clone()),
            other => ("a call".into(), other.to_string()),
        };
        let (device, own) = (value.cell.device.clone(), value.tensor_type().clone());
        Tensor::of_value(Value::first(Cell::failed(device, own, failure)))
    }

    /// Creates a tensor from elements in row-major order, on the CPU. Move it to another device
    /// with [`to`](Self::to).
    ///
    /// The elements are an input of compiled programs: other elements of the same shape and dtype
    /// need no new program.
    ///
    /// # Errors
    /// The shape does not match the number of elements, or memory is exhausted.
    pub fn from_slice<T: Element>(shape: &[usize], elements: &[T]) -> Result<Self, Error> {
        Tensor::from_tensor(HostTensor::from_slice(shape, elements)?)
    }

    /// Creates a tensor without dims. A number that changes from run to run should be such a tensor
    /// instead of an argument: arguments are part of the compiled program.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn scalar<T: Element>(value: T) -> Result<Self, Error> {
        Tensor::from_slice(&[], &[value])
    }

    /// Creates a tensor from one with elements, on the CPU.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn from_tensor(tensor: HostTensor) -> Result<Self, Error> {
        let tensor = tensor.to_contiguous()?;
        Ok(Tensor::of_value(Value::first(Cell::leaf(Device::cpu(), tensor, false))))
    }

    /// Computes the tensor, and marks its elements as weights: they are compiled into programs, and
    /// packed for the device once per program. A program is compiled for each set of weights, and
    /// has a copy of them, so only tensors that many runs share should be weights.
    ///
    /// # Errors
    /// As [`to_tensor`](Self::to_tensor).
    pub fn into_weight(self) -> Result<Self, Error> {
        let (device, tensor) = (self.device(), self.to_tensor()?);
        Ok(Tensor::of_value(Value::first(Cell::leaf(device, tensor, true))))
    }

    /// Returns the tensor on a device. Moving a recorded tensor to another device computes it. The
    /// elements stay in the memory of the host: each run copies its inputs to the device.
    ///
    /// # Errors
    /// The tensor cannot be computed.
    pub fn to(&self, device: &Device) -> Result<Self, Error> {
        let value = self.value();
        if value.cell.device == *device {
            return Ok(self.clone());
        }
        let tensor = self.to_tensor()?;
        let cell = Cell::moved(device.clone(), tensor, &value.cell);
        Ok(Tensor::of_value(Value::first(cell)))
    }

    /// Returns a tensor with the same elements and memory of its own, as `clone` in Python. A Rust
    /// clone is the same tensor.
    ///
    /// ```
    /// use torchlet::lazy::Tensor;
    ///
    /// let x = Tensor::from_slice(&[2], &[1.0f32, 2.0])?;
    /// let copy = x.copy();
    /// x.zero_()?;
    /// assert_eq!(copy.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), torchlet::Error>(())
    /// ```
    #[must_use]
    pub fn copy(&self) -> Self {
        // Values never change.
        Tensor::of_value(self.value())
    }

    /// Returns the device.
    pub fn device(&self) -> Device {
        self.value().cell.device.clone()
    }

    /// Returns the shape, without computing the tensor.
    pub fn shape(&self) -> Vec<usize> {
        self.0.handle().tensor_type().shape()
    }

    /// Returns the shape as the integers that operators accept.
    pub fn sizes(&self) -> Vec<i64> {
        self.0.handle().tensor_type().sizes.iter().map(|size| (*size).into()).collect()
    }

    /// Returns the number of dims.
    pub fn rank(&self) -> usize {
        self.0.handle().tensor_type().sizes.len()
    }

    /// Returns the dtype.
    pub fn scalar_type(&self) -> ScalarType {
        self.0.handle().tensor_type().scalar_type
    }

    /// Computes the tensor and returns it with its elements. Later reads return the same elements.
    ///
    /// # Errors
    /// A recorded call failed, or the device lacks an operator and is
    /// [strict](Device::strict).
    pub fn to_tensor(&self) -> Result<HostTensor, Error> {
        let value = self.value();
        let device = value.cell.device.clone();
        device.compute(&value)
    }

    /// Computes the tensor and returns its elements in row-major order.
    ///
    /// # Errors
    /// As [`to_tensor`](Self::to_tensor), or the dtype is not `T`.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, Error> {
        self.to_tensor()?.to_vec()
    }

    /// Computes the tensor and returns its only element.
    ///
    /// # Errors
    /// As [`to_vec`](Self::to_vec), or the tensor has another number of elements.
    pub fn item<T: Element>(&self) -> Result<T, Error> {
        self.to_tensor()?.item()
    }

    /// Records a call of an operator by its name: `relu`, `softmax.int` or `aten::add.Tensor`. The
    /// tensor is its first argument. Absent arguments have the defaults of PyTorch's schema.
    ///
    /// ```
    /// use torchlet::lazy::Tensor;
    ///
    /// let x = Tensor::from_slice(&[3], &[1.0f32, 2.0, 3.0])?;
    /// let y = x.call("cumsum", [0.into()])?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 3.0, 6.0]);
    /// # Ok::<(), torchlet::Error>(())
    /// ```
    ///
    /// # Errors
    /// The operator is unknown, or PyTorch rejects the arguments.
    pub fn call(&self, name: &str, args: impl IntoIterator<Item = Arg>) -> Result<Self, Error> {
        one(name, self.call_all(name, args)?)
    }

    /// As [`call`](Self::call), for operators with several results.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub fn call_all(
        &self,
        name: &str,
        args: impl IntoIterator<Item = Arg>,
    ) -> Result<Vec<Self>, Error> {
        call_named(None, name, std::iter::once(Arg::from(self)).chain(args).collect())
    }

    /// Records a call that overwrites the tensor, by the name of the operator: `relu_` or
    /// `aten::add_.Tensor`. `transpose_`, `t_`, `squeeze_` and `unsqueeze_` change the shape of
    /// this tensor only, as in PyTorch.
    ///
    /// # Errors
    /// As [`call`](Self::call), the operator has no in-place form, or the result does not fit the
    /// tensor.
    pub fn call_in_place(
        &self,
        name: &str,
        args: impl IntoIterator<Item = Arg>,
    ) -> Result<Self, Error> {
        let plain: String = match name.rsplit_once("_.") {
            Some((base, overload)) => format!("{base}.{overload}"),
            None => name.strip_suffix('_').unwrap_or(name).into(),
        };
        let named = resolve(&plain)?;
        let args: Vec<Arg> = args.into_iter().collect();
        let all: Vec<Arg> = std::iter::once(Arg::from(self)).chain(args.iter().cloned()).collect();
        let operator = named.choose(&all)?;
        if !named.copies && IN_PLACE_VIEWS.contains(&operator) {
            return self.become_view(operator, args);
        }
        if shareable_memory(operator) != Memory::Separate {
            return Err(fail(name, "no in-place form exists"));
        }
        self.overwrite(operator, args)
    }

    /// Overwrites the tensor with the result of a call, converted to its dtype.
    pub(super) fn overwrite(&self, operator: Operator, args: Vec<Arg>) -> Result<Self, Error> {
        let (handle, name) = (self.0.handle(), operator.name());
        let own = handle.tensor_type();
        if handle.overlaps_itself() {
            let reason = "the tensor is expanded, so several elements share memory; overwrite a \
                          `contiguous` copy";
            return Err(fail(name, reason));
        }
        let all = std::iter::once(Arg::from(self)).chain(args).collect();
        let made = record(None, operator, all)?;
        let [value] = &made[..] else { return Err(fail(name, "no in-place form exists")) };
        let result = value.tensor_type();
        if result.sizes != own.sizes {
            let (expected, found) = (own.shape(), result.shape());
            let reason = format!("the result has shape {found:?}, the tensor {expected:?}");
            return Err(fail(name, reason));
        }
        if !can_cast(result.scalar_type, own.scalar_type) {
            let (from, to) = (result.scalar_type, own.scalar_type);
            return Err(fail(name, format!("the result of dtype {from} cannot become {to}")));
        }
        let value = converted(value.clone(), own.scalar_type)?;
        handle.write(|_| Ok(value))?;
        Ok(self.clone())
    }

    /// Overwrites the tensor with the elements of another, which are broadcast and converted.
    ///
    /// # Errors
    /// The shapes do not broadcast.
    pub fn copy_(&self, source: &Tensor) -> Result<Self, Error> {
        let (handle, name) = (self.0.handle(), "aten.copy_");
        if handle.overlaps_itself() {
            let reason = "the tensor is expanded, so several elements share memory";
            return Err(fail(name, reason));
        }
        let own = handle.tensor_type();
        let mut value = source.to(&self.device())?.value();
        if value.tensor_type().sizes != own.sizes {
            let args = vec![Given::Value(value), Given::Ints(self.sizes()), Given::Bool(false)];
            value = first(call(None, Operator::EXPAND_COPY, args)?)?;
        }
        let value = converted(value, own.scalar_type)?;
        handle.write(|_| Ok(value))?;
        Ok(self.clone())
    }

    /// Overwrites all elements with a number.
    ///
    /// # Errors
    /// The tensor is expanded.
    pub fn fill_(&self, value: impl Into<Arg>) -> Result<Self, Error> {
        self.overwrite(Operator::FILL_SCALAR, vec![value.into()])
    }

    /// Overwrites all elements with zeros.
    ///
    /// # Errors
    /// The tensor is expanded.
    pub fn zero_(&self) -> Result<Self, Error> {
        self.fill_(0)
    }

    /// Turns the tensor into a view of itself, as `transpose_` does.
    pub(super) fn become_view(&self, operator: Operator, args: Vec<Arg>) -> Result<Self, Error> {
        let all = std::iter::once(Arg::from(self)).chain(args).collect();
        let view = one(operator.name(), apply(None, operator, all)?)?;
        self.0.replace(view.0.handle());
        Ok(self.clone())
    }

    /// Whether the elements are row-major in the memory that views share.
    pub fn is_contiguous(&self) -> bool {
        self.0.handle().is_contiguous()
    }
}

fn first(made: Vec<Value>) -> Result<Value, Error> {
    made.into_iter().next().ok_or_else(|| fail("a call", "expected a result"))
}

pub(super) fn one(name: &str, made: Vec<Tensor>) -> Result<Tensor, Error> {
    let count = made.len();
    let mut made = made.into_iter();
    match (made.next(), made.next()) {
        (Some(tensor), None) => Ok(tensor),
        _ => Err(fail(name, format!("the operator returns {count} tensors; use `call_all`"))),
    }
}

/// Whether an in-place operator may convert its result. Source: `c10::canCast`.
fn can_cast(from: ScalarType, to: ScalarType) -> bool {
    let is_floating = !from.is_integral(true);
    (!is_floating || !to.is_integral(true)) && (from == ScalarType::Bool || to != ScalarType::Bool)
}

fn converted(value: Value, to: ScalarType) -> Result<Value, Error> {
    if value.tensor_type().scalar_type == to {
        return Ok(value);
    }
    let mut args = vec![Given::Value(value), Given::Int(to as i64)];
    args.extend(std::iter::repeat_n(Given::None, 3));
    args.extend([Given::Bool(false), Given::None]);
    first(call(None, Operator::TO_COPY, args)?)
}

/// Records a call by its name.
pub(super) fn call_named(
    device: Option<&Device>,
    name: &str,
    args: Vec<Arg>,
) -> Result<Vec<Tensor>, Error> {
    let named = resolve(name)?;
    let operator = named.choose(&args)?;
    if named.copies {
        let made = record(device, operator, args)?;
        return Ok(made.into_iter().map(Tensor::of_value).collect());
    }
    apply(device, operator, args)
}

/// Records a call; views share the memory of their first argument.
pub(super) fn apply(
    device: Option<&Device>,
    operator: Operator,
    args: Vec<Arg>,
) -> Result<Vec<Tensor>, Error> {
    let made = record(device, operator, args.clone())?;
    let Some(Arg::Tensor(tensor)) = args.first() else {
        return Ok(made.into_iter().map(Tensor::of_value).collect());
    };
    let handle = tensor.0.handle();
    // The call has all arguments, with defaults.
    let recorded = made.first().and_then(|value| value.cell.recorded());
    let Some(recorded) = recorded else {
        return Ok(made.into_iter().map(Tensor::of_value).collect());
    };
    let operator = recorded.operator;
    let rest: Vec<Given> = recorded.args.iter().skip(1).cloned().collect();
    if let Some(parts) = parts(operator, &rest, &made, tensor.rank()) {
        let views = parts.into_iter().map(|step| view(&handle, step));
        return views.collect();
    }
    use Operator as O;
    let flag = |name: &str| {
        let at = operator.parameters().iter().position(|parameter| parameter.name == name);
        at.and_then(|at| recorded.args.get(at)) == Some(&Given::Bool(true))
    };
    let keeps_type = made.iter().all(|it| it.tensor_type() == &handle.tensor_type());
    let is_same = match operator {
        O::CONTIGUOUS => handle.is_contiguous(),
        O::TO_DTYPE | O::TYPE_AS | O::TO_OTHER | O::TO_DEVICE | O::TO_DTYPE_LAYOUT => {
            keeps_type && !flag("copy")
        }
        O::DROPOUT => true,
        _ => false,
    };
    if is_same {
        return Ok(vec![tensor.clone()]);
    }
    let is_whole = || handle.is_contiguous() && handle.layout().is_some_and(|it| it.base() == 0);
    if operator == O::AS_STRIDED_COPY && !is_whole() {
        let reason = "strides in a tensor that is a part of another or not row-major in memory";
        return Err(fail(operator.name(), reason));
    }
    let is_view = makes_views(operator) && made.len() == 1;
    let shares = match operator {
        O::VIEW_COPY | O::VIEW_AS | O::UNFLATTEN | O::RESHAPE | O::FLATTEN => {
            let sizes = made.first().map(|value| value.tensor_type().sizes.clone());
            let layout = handle.layout();
            layout.zip(sizes).is_some_and(|(own, sizes)| reshaped(&own, &sizes).is_some())
        }
        _ => is_view,
    };
    if is_view && !shares && matches!(operator, O::VIEW_COPY | O::VIEW_AS | O::UNFLATTEN) {
        let reason = "the elements are not row-major in memory; use `reshape`, which copies";
        return Err(fail(operator.name(), reason));
    }
    if !shares {
        return Ok(made.into_iter().map(Tensor::of_value).collect());
    }
    // Reshapes become views by size, so that they apply to later values as well.
    let step = match (operator, made.first()) {
        (
            O::VIEW_AS | O::UNFLATTEN | O::RESHAPE | O::FLATTEN | O::VIEW_COPY | O::SQUEEZE_COPY,
            Some(value),
        ) => {
            let sizes = value.tensor_type().sizes.iter().map(|size| (*size).into()).collect();
            ViewStep { operator: O::VIEW_COPY, args: vec![Given::Ints(sizes)] }
        }
        (O::EXPAND_AS, Some(value)) => {
            let sizes = value.tensor_type().sizes.iter().map(|size| (*size).into()).collect();
            let args = vec![Given::Ints(sizes), Given::Bool(false)];
            ViewStep { operator: O::EXPAND_COPY, args }
        }
        _ => match permutation(operator, tensor.rank(), integers(&rest)) {
            Some(order) => ViewStep { operator: O::PERMUTE_COPY, args: vec![Given::Ints(order)] },
            None => ViewStep { operator, args: rest },
        },
    };
    Ok(vec![view(&handle, step)?])
}

/// Views that have an in-place form, which changes the shape of the tensor only.
const IN_PLACE_VIEWS: &[Operator] = &[
    Operator::DETACH_COPY,
    Operator::SQUEEZE_COPY,
    Operator::SQUEEZE_COPY_DIM,
    Operator::SQUEEZE_COPY_DIMS,
    Operator::T_COPY,
    Operator::TRANSPOSE_COPY_INT,
    Operator::UNSQUEEZE_COPY,
];

/// Whether the result of an operator can be a view of the first argument.
fn makes_views(operator: Operator) -> bool {
    matches!(shareable_memory(operator), Memory::View | Memory::ViewIfContiguous)
}

/// The views that an operator with a list of results returns.
fn parts(operator: Operator, args: &[Given], made: &[Value], rank: usize) -> Option<Vec<ViewStep>> {
    use Operator as O;
    let dim = match (operator, args) {
        (O::UNBIND_COPY_INT, [Given::Int(dim)]) => {
            let step = |index: usize| ViewStep {
                operator: O::SELECT_COPY_INT,
                args: vec![Given::Int(*dim), Given::Int(index as i64)],
            };
            return Some((0..made.len()).map(step).collect());
        }
        (
            O::SPLIT_COPY_TENSOR | O::SPLIT_WITH_SIZES_COPY | O::CHUNK | O::TENSOR_SPLIT,
            [_, Given::Int(dim)],
        ) => *dim,
        _ => return None,
    };
    let at = normalize_dim(dim, rank)?;
    let mut start = 0i64;
    let step = |value: &Value| {
        let length = value.tensor_type().sizes.get(at).copied().unwrap_or(0);
        let bounds = [start, start + i64::from(length), 1];
        start = bounds[1];
        let args = std::iter::once(dim).chain(bounds).map(Given::Int).collect();
        ViewStep { operator: O::SLICE_COPY_TENSOR, args }
    };
    Some(made.iter().map(step).collect())
}

fn view(handle: &Arc<Handle>, step: ViewStep) -> Result<Tensor, Error> {
    // A slice by length is one by its end.
    let step = match (step.operator, &step.args[..]) {
        (Operator::NARROW, [Given::Int(dim), Given::Int(start), Given::Int(length)]) => {
            let rank = handle.tensor_type().sizes.len();
            let size = normalize_dim(*dim, rank)
                .and_then(|dim| handle.tensor_type().sizes.get(dim).copied())
                .unwrap_or(0);
            let start = if *start < 0 { start.saturating_add(size.into()) } else { *start };
            let numbers = [*dim, start, start.saturating_add(*length), 1];
            let args = numbers.map(Given::Int).to_vec();
            ViewStep { operator: Operator::SLICE_COPY_TENSOR, args }
        }
        _ => step,
    };
    let own = step.clone();
    Ok(Tensor::of(handle.view(step, |layout| strided(&own, layout))?))
}

/// Sizes and strides of a view.
fn strided(step: &ViewStep, view: View) -> Option<View> {
    use Given::{Int, Ints, None as Absent};
    use Operator as O;
    let optional = |given: &Given| match given {
        Int(number) => Some(*number),
        _ => None,
    };
    match (step.operator, &step.args[..]) {
        (O::ALIAS_COPY | O::DETACH_COPY, _) => Some(view),
        (O::PERMUTE_COPY, [Ints(dims)]) => view.permute(dims),
        (O::SELECT_COPY_INT, [Int(dim), Int(index)]) => view.select(*dim, *index),
        (O::SLICE_COPY_TENSOR, [Int(dim), start @ (Int(_) | Absent), end, Int(by)]) => {
            view.slice(*dim, optional(start), optional(end), *by)
        }
        (O::SQUEEZE_COPY_DIM, [Int(dim)]) => view.squeeze(&[*dim]),
        (O::SQUEEZE_COPY_DIMS, [Ints(dims)]) => view.squeeze(dims),
        (O::UNSQUEEZE_COPY, [Int(dim)]) => view.unsqueeze(*dim),
        (O::EXPAND_COPY, [Ints(sizes), ..]) => view.expand(sizes),
        (O::DIAGONAL_COPY, [Int(offset), Int(a), Int(b)]) => view.diagonal(*offset, *a, *b),
        (O::UNFOLD_COPY, [Int(dim), Int(size), Int(by)]) => view.unfold(*dim, *size, *by),
        (O::VIEW_COPY, [Ints(sizes)]) => {
            let sizes: Option<Vec<i32>> =
                sizes.iter().map(|size| i32::try_from(*size).ok()).collect();
            reshaped(&view, &sizes?)
        }
        _ => None,
    }
}

impl fmt::Debug for Tensor {
    /// Writes dtype, shape and device. Nothing is computed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({} {:?}, {})", self.scalar_type(), self.shape(), self.device())
    }
}
