//! Tensors of the user: handles of values, which in-place operators replace, and views.
//!
//! A [`Slot`] is what PyTorch calls a tensor: `transpose_` replaces its [`Handle`]. A view knows
//! its parent and the operator that makes it. Handles of one storage share a version, which every
//! write increases; a handle with an older version computes its view again. A write to a view is
//! carried over to its parents with the inverse of each step, `slice_scatter` for `slice` and so
//! on. Strides are tracked only to decide as PyTorch does where `reshape` shares memory and `view`
//! fails.

use super::node::{Cell, Given, Value, lock};
use super::record::{call, fail};
use crate::error::Error;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use torchlet_core::rules::{View, view_sizes};
use torchlet_core::{ScalarType, TensorInfo};
use torchlet_graph::infer::TensorType;
use torchlet_graph::operators::Operator;
use torchlet_graph::operators::views::WriteBack;

/// Held while handles of a storage change. Nothing is computed meanwhile.
static CHANGES: Mutex<()> = Mutex::new(());

/// A tensor of the user, shared by its clones.
pub(super) struct Slot(Mutex<Arc<Handle>>);

impl Slot {
    pub(super) fn new(handle: Arc<Handle>) -> Arc<Self> {
        handle.add_user();
        Arc::new(Slot(Mutex::new(handle)))
    }

    pub(super) fn handle(&self) -> Arc<Handle> {
        lock(&self.0).clone()
    }

    /// Replaces the handle by a view of it.
    pub(super) fn replace(&self, handle: Arc<Handle>) {
        handle.add_user();
        let old = std::mem::replace(&mut *lock(&self.0), handle);
        old.remove_user();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let handle = self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        handle.remove_user();
    }
}

/// A view of a storage, or all of it.
pub(super) struct Handle {
    /// Number of tensors of the user.
    users: AtomicUsize,
    state: Mutex<State>,
}

struct State {
    /// Number of writes to the storage so far.
    storage: Arc<AtomicU64>,
    /// The tensor that this one is a view of, and how.
    view: Option<(Arc<Handle>, ViewStep)>,
    /// Sizes and strides in the storage; `None` if no strides describe it.
    layout: Option<View>,
    held: Held,
    version: u64,
}

/// An operator that makes a view, and its arguments behind the tensor.
#[derive(Clone)]
pub(super) struct ViewStep {
    pub(super) operator: Operator,
    pub(super) args: Vec<Given>,
}

/// A value, counted as held by a handle.
struct Held(Value);

impl Held {
    fn new(value: Value) -> Self {
        value.hold();
        Held(value)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.unhold();
    }
}

fn contiguous(of: &TensorType) -> Option<View> {
    View::of(&TensorInfo::contiguous(of.scalar_type, &of.sizes)?)
}

impl Handle {
    /// A tensor with memory of its own.
    pub(super) fn new(value: Value) -> Arc<Self> {
        let layout = contiguous(value.tensor_type());
        Handle::with(Arc::default(), None, layout, value, 0)
    }

    fn with(
        storage: Arc<AtomicU64>,
        view: Option<(Arc<Handle>, ViewStep)>,
        layout: Option<View>,
        value: Value,
        version: u64,
    ) -> Arc<Self> {
        let state = State { storage, view, layout, held: Held::new(value), version };
        Arc::new(Handle { users: AtomicUsize::new(0), state: Mutex::new(state) })
    }

    /// Counts a tensor of the user.
    fn add_user(&self) {
        if self.users.fetch_add(1, Ordering::Relaxed) == 0 {
            lock(&self.state).held.0.want();
        }
    }

    fn remove_user(&self) {
        if self.users.fetch_sub(1, Ordering::Relaxed) == 1 {
            lock(&self.state).held.0.unwant();
        }
    }

    /// Replaces the value.
    fn set(&self, value: Value, version: u64) {
        let mut state = lock(&self.state);
        let is_used = self.users.load(Ordering::Relaxed) > 0;
        if is_used {
            value.want();
            state.held.0.unwant();
        }
        let old = std::mem::replace(&mut state.held, Held::new(value));
        state.version = version;
        drop(state);
        // Freeing a chain of calls may take time.
        drop(old);
    }

    /// Dtype and shape.
    pub(super) fn tensor_type(&self) -> TensorType {
        lock(&self.state).held.0.tensor_type().clone()
    }

    pub(super) fn layout(&self) -> Option<View> {
        lock(&self.state).layout.clone()
    }

    /// Whether the elements are row-major in the storage.
    pub(super) fn is_contiguous(&self) -> bool {
        let Some(layout) = self.layout() else { return false };
        let mut expected = 1isize;
        layout.sizes().iter().zip(layout.strides().iter()).rev().all(|(size, step)| {
            let is = *size == 1 || *step == expected;
            expected = expected.saturating_mul((*size).max(1) as isize);
            is
        }) || layout.sizes().contains(&0)
    }

    fn parent(&self) -> Option<(Arc<Handle>, ViewStep)> {
        lock(&self.state).view.clone()
    }

    /// Returns the current value.
    pub(super) fn value(self: &Arc<Self>) -> Value {
        let _changes = lock(&CHANGES);
        self.current()
    }

    fn current(self: &Arc<Self>) -> Value {
        // The views between this tensor and the nearest up-to-date one.
        let mut stale = Vec::new();
        let mut at = self.clone();
        let mut value = loop {
            let state = lock(&at.state);
            let version = state.storage.load(Ordering::Relaxed);
            match &state.view {
                Some((parent, step)) if state.version != version => {
                    let next = parent.clone();
                    let own = (at.clone(), step.clone(), version);
                    drop(state);
                    stale.push(own);
                    at = next;
                }
                _ => break state.held.0.clone(),
            }
        };
        for (handle, step, version) in stale.into_iter().rev() {
            value = step.of(value);
            handle.set(value.clone(), version);
        }
        value
    }

    /// Returns a view of the tensor.
    pub(super) fn view(
        self: &Arc<Self>,
        step: ViewStep,
        layout: impl FnOnce(View) -> Option<View>,
    ) -> Result<Arc<Self>, Error> {
        let _changes = lock(&CHANGES);
        let parent = self.current();
        let args = std::iter::once(Given::Value(parent)).chain(step.args.iter().cloned());
        let value = call(None, step.operator, args.collect())?.into_iter().next();
        let value = value.ok_or_else(|| fail(step.operator.name(), "expected a result"))?;
        let layout = self.layout().and_then(layout);
        let (storage, version) = {
            let state = lock(&self.state);
            (state.storage.clone(), state.storage.load(Ordering::Relaxed))
        };
        Ok(Handle::with(storage, Some((self.clone(), step)), layout, value, version))
    }

    /// Replaces the elements of the tensor, and of all that share its memory.
    pub(super) fn write(
        self: &Arc<Self>,
        make: impl FnOnce(Value) -> Result<Value, Error>,
    ) -> Result<(), Error> {
        let _changes = lock(&CHANGES);
        let value = make(self.current())?;
        let mut path = Vec::new();
        let mut at = self.clone();
        while let Some((parent, step)) = at.parent() {
            path.push((parent.clone(), step));
            at = parent;
        }
        let mut changed = vec![(self.clone(), value)];
        for (parent, step) in path {
            let Some((_, new)) = changed.last() else { break };
            let new = step.written(parent.current(), new.clone())?;
            changed.push((parent, new));
        }
        let version = lock(&at.state).storage.fetch_add(1, Ordering::Relaxed) + 1;
        for (handle, value) in changed {
            handle.set(value, version);
        }
        Ok(())
    }

    /// Whether writing to the tensor is defined: no two elements share memory.
    pub(super) fn overlaps_itself(&self) -> bool {
        self.layout().is_some_and(|layout| {
            layout
                .sizes()
                .iter()
                .zip(layout.strides().iter())
                .any(|(size, step)| *size > 1 && *step == 0)
        })
    }
}

impl Drop for Handle {
    /// Frees long chains of views in a loop: recursion would overflow the stack.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut next = state.view.take();
        while let Some((parent, _)) = next {
            next = Arc::into_inner(parent).and_then(|mut parent| {
                let state = parent.state.get_mut();
                state.unwrap_or_else(std::sync::PoisonError::into_inner).view.take()
            });
        }
    }
}

/// Maximum number of writes to different parts of a tensor among which an earlier write to the same
/// part is found.
const MAX_PARTS: usize = 32;

/// Returns a tensor without an earlier write to a part that is about to be overwritten, so that a
/// loop that writes and reads only parts of a tensor does not collect writes to the whole.
fn without_overwritten(
    old: &Value,
    scatter: Operator,
    part: &[Given],
) -> Result<Option<Value>, Error> {
    // Later writes to other parts.
    let mut later = Vec::new();
    let mut at = old.clone();
    let mut base = loop {
        let Some(recorded) = at.cell.recorded() else { return Ok(None) };
        let is_write =
            [Operator::SLICE_SCATTER, Operator::SELECT_SCATTER, Operator::DIAGONAL_SCATTER]
                .contains(&recorded.operator);
        let (true, [Given::Value(base), _, own @ ..]) = (is_write, &recorded.args[..]) else {
            return Ok(None);
        };
        if recorded.operator == scatter && own == part {
            break base.clone();
        }
        if later.len() == MAX_PARTS {
            return Ok(None);
        }
        at = base.clone();
        later.push(recorded);
    };
    for recorded in later.into_iter().rev() {
        let rest = recorded.args.iter().skip(1).cloned();
        let args = std::iter::once(Given::Value(base)).chain(rest).collect();
        let made = call(None, recorded.operator, args)?.into_iter().next();
        base = made.ok_or_else(|| fail(recorded.operator.name(), "expected a result"))?;
    }
    Ok(Some(base))
}

impl ViewStep {
    /// Applies a view to another tensor of the same dtype and shape as before.
    fn of(&self, value: Value) -> Value {
        let args = std::iter::once(Given::Value(value.clone())).chain(self.args.iter().cloned());
        let made = call(None, self.operator, args.collect());
        let made = made.and_then(|made| {
            made.into_iter().next().ok_or_else(|| fail(self.operator.name(), "expected a result"))
        });
        match made {
            Ok(made) => made,
            Err(error) => {
                let (device, like) = (value.cell.device.clone(), value.tensor_type().clone());
                let failure = (self.operator.name().into(), error.to_string());
                Value::first(Cell::failed(device, like, failure))
            }
        }
    }

    /// Returns `old` with the elements that the view selects replaced by `new`.
    fn written(&self, old: Value, new: Value) -> Result<Value, Error> {
        let unsupported =
            || fail(self.operator.name(), "writing through this view is not supported");
        let (own, view) = (old.tensor_type().clone(), new.tensor_type().clone());
        let write_back = WriteBack::of(self.operator, own.sizes.len(), integers(&self.args));
        let made = match write_back.ok_or_else(unsupported)? {
            WriteBack::Scatter(scatter) => {
                let old = without_overwritten(&old, scatter, &self.args)?.unwrap_or(old);
                let args = [Given::Value(old), Given::Value(new)].into_iter();
                call(None, scatter, args.chain(self.args.iter().cloned()).collect())?
            }
            WriteBack::Permute(order) => {
                let args = vec![Given::Value(new), Given::Ints(order)];
                call(None, Operator::PERMUTE_COPY, args)?
            }
            WriteBack::Reshape => {
                let count = |of: &TensorType| of.shape().iter().product::<usize>();
                let sizes: Vec<i64> = own.sizes.iter().map(|size| (*size).into()).collect();
                if count(&own) != count(&view) || view_sizes(count(&own), &sizes).is_none() {
                    return Err(unsupported());
                }
                call(None, Operator::VIEW_COPY, vec![Given::Value(new), Given::Ints(sizes)])?
            }
            _ => return Err(unsupported()),
        };
        made.into_iter().next().ok_or_else(|| fail(self.operator.name(), "expected a result"))
    }
}

/// The integers among the arguments behind a tensor, by position in the call.
pub(super) fn integers(args: &[Given]) -> impl Fn(usize) -> Option<Vec<i64>> {
    |argument| match args.get(argument.checked_sub(1)?)? {
        Given::Int(number) => Some(vec![*number]),
        Given::Ints(numbers) => Some(numbers.clone()),
        _ => None,
    }
}

/// Strides with which a tensor has other sizes and shares its memory; `None` if it cannot.
///
/// Source: `at::detail::computeStride`.
pub(super) fn reshaped(view: &View, sizes: &[i32]) -> Option<View> {
    let numel: i64 = view.sizes().iter().map(|size| i64::from(*size)).product();
    let offset = i64::try_from(view.base()).ok()?;
    let wide: Vec<i64> = sizes.iter().map(|size| (*size).into()).collect();
    if numel == 0 {
        let info = TensorInfo::contiguous(ScalarType::Byte, sizes)?;
        return View::of(&info);
    }
    let old: Vec<(i64, i64)> = (view.sizes().iter())
        .zip(view.strides().iter())
        .map(|(size, step)| (i64::from(*size), *step as i64))
        .collect();
    if old.is_empty() {
        return View::as_strided(1, &wide, &vec![1; sizes.len()], 0);
    }
    let mut steps = vec![0i64; sizes.len()];
    let mut at = sizes.len();
    let (mut elements, mut own) = (1i64, 1i64);
    let mut base = old.last().map_or(1, |(_, step)| *step);
    for (dim, (size, _)) in old.iter().enumerate().rev() {
        elements = elements.checked_mul(*size)?;
        let before = dim.checked_sub(1).and_then(|dim| old.get(dim));
        // A chunk of dims that are contiguous with each other ends here.
        let next = elements.checked_mul(base)?;
        let ends = before.is_none_or(|(size, step)| *size != 1 && *step != next);
        if !ends {
            continue;
        }
        while at > 0 && (own < elements || sizes[at - 1] == 1) {
            steps[at - 1] = own.checked_mul(base)?;
            own = own.checked_mul(wide[at - 1])?;
            at -= 1;
        }
        if own != elements {
            return None;
        }
        if let Some((_, step)) = before {
            (base, elements, own) = (*step, 1, 1);
        }
    }
    if at != 0 {
        return None;
    }
    let mut span = 0i64;
    for (size, step) in wide.iter().zip(&steps) {
        span = span.checked_add((size - 1).checked_mul(*step)?)?;
    }
    let numel = usize::try_from(offset.checked_add(span)?.checked_add(1)?).ok()?;
    View::as_strided(numel, &wide, &steps, offset)
}
