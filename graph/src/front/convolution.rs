//! The convolution that front ends make of layers in other formats.

use crate::graph::{Value, ValueId};
use crate::operators::Operator;
use alloc::vec::Vec;

/// Parameters of a convolution of channels-first images.
pub(super) struct Convolution {
    pub(super) stride: Vec<i64>,
    pub(super) padding: Vec<i64>,
    pub(super) dilation: Vec<i64>,
    /// `output_padding` of a transposed convolution.
    pub(super) transposed: Option<Vec<i64>>,
    pub(super) groups: i64,
}

impl Convolution {
    /// The operator, and its arguments without the output. `push` adds a value.
    pub(super) fn call(
        self,
        [input, weight, bias]: [ValueId; 3],
        push: &mut dyn FnMut(Value<'static>) -> ValueId,
    ) -> (Operator, [ValueId; 9]) {
        let transposed = self.transposed.is_some();
        let output_padding = self.transposed.unwrap_or_else(|| alloc::vec![0; self.stride.len()]);
        let inputs = [
            input,
            weight,
            bias,
            push(Value::IntList(self.stride)),
            push(Value::IntList(self.padding)),
            push(Value::IntList(self.dilation)),
            push(Value::Bool(transposed)),
            push(Value::IntList(output_padding)),
            push(Value::Int(self.groups)),
        ];
        (Operator::CONVOLUTION, inputs)
    }
}
