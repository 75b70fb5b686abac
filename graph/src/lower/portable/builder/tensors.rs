//! Builder methods for tensor operations: arithmetic, shapes, matrix multiplication.

use super::{Builder, Info, Size};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::Operator;
use alloc::format;
use alloc::vec::Vec;
use torchlet_core::ScalarType;
use torchlet_core::rules::broadcast;

impl Builder<'_, '_> {
    /// Elementwise function.
    pub(crate) fn unary(&mut self, operator: Operator, value: ValueId) -> Result<ValueId, Error> {
        let info = self.info(value)?;
        Ok(self.call(operator, &[value], info))
    }

    /// Elementwise function with a scalar.
    pub(crate) fn with_number(
        &mut self,
        operator: Operator,
        value: ValueId,
        number: f64,
    ) -> Result<ValueId, Error> {
        let info = self.info(value)?;
        let number = self.new_number(number);
        // These have an `alpha`.
        Ok(match operator {
            Operator::ADD_SCALAR | Operator::SUB_SCALAR | Operator::RSUB_SCALAR => {
                let one = self.new_int(1);
                self.call(operator, &[value, number, one], info)
            }
            _ => self.call(operator, &[value, number], info),
        })
    }

    /// Comparison with a scalar.
    pub(crate) fn compared(
        &mut self,
        operator: Operator,
        value: ValueId,
        number: f64,
    ) -> Result<ValueId, Error> {
        let info = self.info(value)?.with_type(ScalarType::Bool);
        let number = self.new_number(number);
        Ok(self.call(operator, &[value, number], info))
    }

    /// Clamp to optional limits.
    pub(crate) fn clamp(
        &mut self,
        value: ValueId,
        low: Option<f64>,
        high: Option<f64>,
    ) -> Result<ValueId, Error> {
        let info = self.info(value)?;
        let mut bound = |bound: Option<f64>| match bound {
            Some(bound) => self.new_number(bound),
            None => self.none(),
        };
        let (low, high) = (bound(low), bound(high));
        Ok(self.call(Operator::CLAMP, &[value, low, high], info))
    }

    /// Elementwise function of two tensors, with broadcasting and dtype promotion.
    pub(crate) fn binary(
        &mut self,
        operator: Operator,
        a: ValueId,
        b: ValueId,
    ) -> Result<ValueId, Error> {
        let (one, other) = (self.info(a)?, self.info(b)?);
        let promoted = one.scalar_type.promote(other.scalar_type);
        let scalar_type = promoted.ok_or_else(|| {
            Error::Invalid(format!(
                "operand dtypes {} and {} have no common dtype",
                one.scalar_type, other.scalar_type
            ))
        })?;
        let made = Info {
            scalar_type,
            sizes: broadcast_sizes(&one.sizes, &other.sizes)?,
            dynamic: one.dynamic || other.dynamic,
        };
        Ok(match operator {
            Operator::ADD_TENSOR | Operator::SUB_TENSOR => {
                let factor = self.new_int(1);
                self.call(operator, &[a, b, factor], made)
            }
            _ => self.call(operator, &[a, b], made),
        })
    }

    /// Comparison of two tensors.
    pub(crate) fn comparison(
        &mut self,
        operator: Operator,
        a: ValueId,
        b: ValueId,
    ) -> Result<ValueId, Error> {
        let (one, other) = (self.info(a)?, self.info(b)?);
        let made = Info {
            scalar_type: ScalarType::Bool,
            sizes: broadcast_sizes(&one.sizes, &other.sizes)?,
            dynamic: one.dynamic || other.dynamic,
        };
        Ok(self.call(operator, &[a, b], made))
    }

    /// Replaces elements by a number where a mask is true.
    pub(crate) fn masked(
        &mut self,
        value: ValueId,
        mask: ValueId,
        number: f64,
    ) -> Result<ValueId, Error> {
        let (info, other) = (self.info(value)?, self.info(mask)?);
        let sizes = broadcast_sizes(&info.sizes, &other.sizes)?;
        let number = self.new_number(number);
        let made = Info { sizes, dynamic: info.dynamic || other.dynamic, ..info };
        Ok(self.call(Operator::MASKED_FILL_SCALAR, &[value, mask, number], made))
    }

    /// Reshapes a tensor.
    pub(crate) fn view(&mut self, value: ValueId, sizes: &[Size]) -> Result<ValueId, Error> {
        let info = self.info(value)?;
        let shape = self.sizes(sizes)?;
        let made = info.with_sizes(sizes.iter().map(|size| size.bound).collect());
        Ok(self.call(Operator::VIEW_COPY, &[value, shape], made))
    }

    /// Creates a tensor of a known shape that is filled with a number.
    pub(crate) fn filled(&mut self, made: Info, number: f64) -> Result<ValueId, Error> {
        let sizes: Vec<i64> = made.sizes.iter().map(|size| *size as i64).collect();
        let (sizes, number, none) = (self.new_ints(&sizes), self.new_number(number), self.none());
        Ok(self.call(Operator::FULL, &[sizes, number, none, none, none, none], made))
    }

    /// Repeats dims of size one up to known sizes.
    pub(crate) fn expand(&mut self, value: ValueId, sizes: &[usize]) -> Result<ValueId, Error> {
        let info = self.info(value)?;
        let list: Vec<i64> = sizes.iter().map(|size| *size as i64).collect();
        let (list, no) = (self.new_ints(&list), self.push(Value::Bool(false)));
        let made = info.with_sizes(sizes.to_vec());
        Ok(self.call(Operator::EXPAND_COPY, &[value, list, no], made))
    }

    /// Reshapes a tensor to known sizes.
    pub(crate) fn view_known(&mut self, value: ValueId, sizes: &[usize]) -> Result<ValueId, Error> {
        let sizes: Vec<Size> = sizes.iter().map(|size| self.known(*size)).collect();
        self.view(value, &sizes)
    }

    /// Flattens all dims.
    pub(crate) fn flat(&mut self, value: ValueId) -> Result<ValueId, Error> {
        let info = self.info(value)?;
        let bound = info.sizes.iter().fold(1usize, |bound, size| bound.saturating_mul(*size));
        let size = match info.dynamic {
            true => Size { bound, value: self.new_int(-1) },
            false => self.known(bound),
        };
        self.view(value, &[size])
    }

    /// Flattens all dims but the last.
    pub(crate) fn rows(&mut self, value: ValueId) -> Result<ValueId, Error> {
        let info = self.info(value)?;
        let last = info.last();
        let rows = info.sizes.split_last().map_or(1, |(_, outer)| {
            outer.iter().fold(1usize, |rows, size| rows.saturating_mul(*size))
        });
        let any = self.new_int(-1);
        let last = self.known(last);
        self.view(value, &[Size { bound: rows, value: any }, last])
    }

    /// Permutes the dims.
    pub(crate) fn permute(&mut self, value: ValueId, order: &[usize]) -> Result<ValueId, Error> {
        let info = self.info(value)?;
        let dims: Vec<i64> = order.iter().map(|dim| *dim as i64).collect();
        let dims = self.new_ints(&dims);
        let made = info.with_sizes(order.iter().map(|dim| info.size(*dim)).collect());
        Ok(self.call(Operator::PERMUTE_COPY, &[value, dims], made))
    }

    /// Inserts a dim of size one.
    pub(crate) fn unsqueeze(&mut self, value: ValueId, dim: usize) -> Result<ValueId, Error> {
        let info = self.info(value)?;
        let mut sizes = info.sizes.clone();
        if dim > sizes.len() {
            return Err(Error::Invalid(format!("dim {dim} is out of range for shape {sizes:?}")));
        }
        sizes.insert(dim, 1);
        let dim = self.new_int(dim as i64);
        Ok(self.call(Operator::UNSQUEEZE_COPY, &[value, dim], info.with_sizes(sizes)))
    }

    /// Slices a dim.
    pub(crate) fn slice(
        &mut self,
        value: ValueId,
        dim: usize,
        start: ValueId,
        end: ValueId,
        step: usize,
    ) -> Result<ValueId, Error> {
        let info = self.info(value)?;
        let mut sizes = info.sizes.clone();
        let (mut dynamic, step) = (info.dynamic, step.max(1));
        if let Some(size) = sizes.get_mut(dim) {
            match (self.value(start)?, self.value(end)?) {
                (Value::Int(start), Value::Int(end)) => {
                    let start = usize::try_from(*start).unwrap_or(0).min(*size);
                    let end = usize::try_from(*end).unwrap_or(0).clamp(start, *size);
                    *size = (end - start).div_ceil(step);
                }
                _ => dynamic = true,
            }
        }
        let (dim, step) = (self.new_int(dim as i64), self.new_int(step as i64));
        let made = Info { sizes, dynamic, ..info };
        Ok(self.call(Operator::SLICE_COPY_TENSOR, &[value, dim, start, end, step], made))
    }

    /// Slices a dim with known limits. Returns the tensor itself if nothing would change.
    pub(crate) fn slice_known(
        &mut self,
        value: ValueId,
        dim: usize,
        start: usize,
        end: usize,
        step: usize,
    ) -> Result<ValueId, Error> {
        let info = self.info(value)?;
        if start == 0 && step == 1 && end == info.size(dim) && !info.dynamic {
            return Ok(value);
        }
        let (start, end) = (self.new_int(start as i64), self.new_int(end as i64));
        self.slice(value, dim, start, end, step)
    }

    /// Concatenates tensors over a dim.
    pub(crate) fn cat(&mut self, values: &[ValueId], dim: usize) -> Result<ValueId, Error> {
        let mut made: Option<Info> = None;
        for value in values {
            let info = self.info(*value)?;
            match &mut made {
                None => made = Some(info),
                Some(made) => {
                    made.dynamic |= info.dynamic;
                    if let Some(size) = made.sizes.get_mut(dim) {
                        *size = size.saturating_add(info.size(dim));
                    }
                }
            }
        }
        let made =
            made.ok_or_else(|| Error::invalid("tensors: expected at least one, found none"))?;
        let (list, dim) = (self.push(Value::List(values.to_vec())), self.new_int(dim as i64));
        Ok(self.call(Operator::CAT, &[list, dim], made))
    }

    /// Interleaves the elements of two tensors over the last dim.
    pub(crate) fn interleave(&mut self, a: ValueId, b: ValueId) -> Result<ValueId, Error> {
        let info = self.info(a)?;
        let last = info.rank().saturating_sub(1);
        let pairs = [self.unsqueeze(a, last + 1)?, self.unsqueeze(b, last + 1)?];
        let pairs = self.cat(&pairs, last + 1)?;
        let mut sizes = Vec::new();
        for dim in 0..last {
            sizes.push(self.size(a, dim)?);
        }
        sizes.push(self.known(info.last().saturating_mul(2)));
        self.view(pairs, &sizes)
    }

    /// Matrix multiplication, batched or not.
    pub(crate) fn matmul(&mut self, a: ValueId, b: ValueId) -> Result<ValueId, Error> {
        let (one, other) = (self.info(a)?, self.info(b)?);
        let mut sizes = one.sizes.clone();
        if let Some(last) = sizes.last_mut() {
            *last = other.last();
        }
        let operator = if sizes.len() == 2 { Operator::MM } else { Operator::BMM };
        let made = Info { sizes, dynamic: one.dynamic || other.dynamic, ..one };
        Ok(self.call(operator, &[a, b], made))
    }

    /// Linear layer with weights `[out, in]` and an optional bias.
    pub(crate) fn linear(
        &mut self,
        value: ValueId,
        weight: ValueId,
        bias: Option<ValueId>,
    ) -> Result<ValueId, Error> {
        let info = self.info(value)?;
        let mut sizes = info.sizes.clone();
        if let Some(last) = sizes.last_mut() {
            *last = self.info(weight)?.size(0);
        }
        let bias = match bias {
            Some(bias) => bias,
            None => self.none(),
        };
        Ok(self.call(Operator::LINEAR, &[value, weight, bias], info.with_sizes(sizes)))
    }

    /// Reduction over dims, which stay with a size of one.
    pub(crate) fn reduce(
        &mut self,
        operator: Operator,
        value: ValueId,
        dims: &[usize],
    ) -> Result<ValueId, Error> {
        let info = self.info(value)?;
        let mut sizes = info.sizes.clone();
        for (dim, size) in sizes.iter_mut().enumerate() {
            if dims.contains(&dim) {
                *size = 1;
            }
        }
        let dims: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
        let (dims, keep) = (self.new_ints(&dims), self.push(Value::Bool(true)));
        let made = info.with_sizes(sizes);
        Ok(match operator {
            Operator::AMAX | Operator::AMIN => self.call(operator, &[value, dims, keep], made),
            // The Euclidean norm. The kernel accumulates fp16 in fp32.
            Operator::LINALG_VECTOR_NORM => {
                let (two, none) = (self.new_int(2), self.none());
                self.call(operator, &[value, two, dims, keep, none], made)
            }
            _ => {
                let none = self.none();
                self.call(operator, &[value, dims, keep, none], made)
            }
        })
    }

    /// Softmax or log-softmax over the last dim.
    pub(crate) fn softmax(&mut self, operator: Operator, value: ValueId) -> Result<ValueId, Error> {
        let info = self.info(value)?;
        let (last, no) = (self.new_int(-1), self.push(Value::Bool(false)));
        Ok(self.call(operator, &[value, last, no], info))
    }

    /// The integers from `start` to before `end`.
    pub(crate) fn range(
        &mut self,
        start: ValueId,
        end: ValueId,
        bound: usize,
    ) -> Result<ValueId, Error> {
        let dynamic =
            !matches!((self.value(start)?, self.value(end)?), (Value::Int(_), Value::Int(_)));
        let (one, none) = (self.new_int(1), self.none());
        let made = Info { scalar_type: ScalarType::Long, sizes: [bound].to_vec(), dynamic };
        let inputs = [start, end, one, none, none, none, none];
        Ok(self.call(Operator::ARANGE_START_STEP, &inputs, made))
    }
}

/// The broadcast shape of two shapes.
pub(crate) fn broadcast_sizes(a: &[usize], b: &[usize]) -> Result<Vec<usize>, Error> {
    let narrow = |sizes: &[usize]| -> Option<Vec<i32>> {
        sizes.iter().map(|size| i32::try_from(*size).ok()).collect()
    };
    let sizes = narrow(a).zip(narrow(b)).and_then(|(a, b)| broadcast(&a, &b));
    let sizes =
        sizes.ok_or_else(|| Error::Invalid(format!("shapes {a:?} and {b:?} do not broadcast")))?;
    Ok(sizes.iter().map(|size| usize::try_from(*size).unwrap_or(0)).collect())
}
