//! Epilogues of contractions: the addition of a tensor, then a clamp. A graph pass fuses them
//! ([`torchlet_graph::passes::epilogue`]).
//!
//! A contraction adds in place: it writes over the tensor that it adds. Whether nothing else needs
//! that tensor any more, and whether both have the same strides, is known only here; if not, the
//! addition and the clamp are steps of their own.

use super::elementwise::{Binary, broadcasting, clamped};
use super::find;
use crate::engine::builder::{Builder, Refusal};
use crate::engine::view::View;
use torchlet_graph::FusedForms;
use torchlet_graph::graph::{Graph, Node, Value, ValueId};
use torchlet_graph::operators::{AddArgs, ClampArgs, HardtanhArgs, MmArgs, Operator, Q8taReluArgs};

/// The fused forms that the engine has.
pub(in crate::engine) struct EngineForms;

impl FusedForms for EngineForms {
    fn has_epilogue(&self, graph: &Graph<'_>, contraction: &Node) -> bool {
        match contraction.operator {
            Operator::CONVOLUTION
            | Operator::LINEAR
            | Operator::ADDMM
            | Operator::ET_VK_Q8TA_CONV2D
            | Operator::ET_VK_Q8TA_CONV2D_DW
            | Operator::ET_VK_Q8TA_LINEAR => true,
            // Batches of matrices have no epilogue.
            Operator::MM => MmArgs::of(contraction)
                .ok()
                .and_then(|call| graph.tensor(call.mat2))
                .is_some_and(|matrix| matrix.sizes.len() == 2),
            _ => false,
        }
    }

    fn is_activation(&self, graph: &Graph<'_>, node: &Node) -> bool {
        limits(node, |id| graph.values.get(id)).is_some_and(|[min, max]| min <= max)
    }

    fn is_view(&self, operator: Operator) -> bool {
        matches!(
            operator,
            Operator::PERMUTE_COPY
                | Operator::TRANSPOSE_COPY_INT
                | Operator::EXPAND_COPY
                | Operator::SLICE_COPY_TENSOR
                | Operator::SELECT_COPY_INT
        )
    }

    /// A contraction adds in place, so the tensor must exist before it.
    fn moves_contractions(&self) -> bool {
        false
    }
}

/// The limits of a clamp: of floats, or of quantized values with the same parameters before and
/// after. `None` for other calls.
fn limits<'v, 'p: 'v>(
    node: &Node,
    value: impl Fn(ValueId) -> Option<&'v Value<'p>>,
) -> Option<[f32; 2]> {
    let number = |id: ValueId| match value(id)? {
        Value::Int(number) => Some(*number as f64),
        Value::Double(number) => Some(*number),
        _ => None,
    };
    let bound = |id: Option<ValueId>, absent: f64| match id.and_then(&value) {
        None | Some(Value::None) => Some(absent),
        Some(_) => number(id?),
    };
    let all = [f64::NEG_INFINITY, f64::INFINITY];
    let limits = match node.operator {
        Operator::RELU => [0.0, all[1]],
        Operator::HARDTANH => {
            let call = HardtanhArgs::of(node).ok()?;
            [number(call.min_val?)?, number(call.max_val?)?]
        }
        Operator::CLAMP => {
            let call = ClampArgs::of(node).ok()?;
            [bound(call.min, all[0])?, bound(call.max, all[1])?]
        }
        Operator::ET_VK_Q8TA_RELU => {
            let call = Q8taReluArgs::of(node).ok()?;
            let scales = [number(call.input_scale)?, number(call.output_scale)?];
            let zeros = [number(call.input_zero_point)?, number(call.output_zero_point)?];
            let is_clamp = scales[0] as f32 == scales[1] as f32 && zeros[0] == zeros[1];
            // The zero point is the quantized value of zero.
            [is_clamp.then_some(zeros[1])?, all[1]]
        }
        _ => return None,
    };
    Some(limits.map(|limit| limit as f32))
}

/// What remains to be done to the result of a contraction.
#[derive(Debug, Default)]
pub(in crate::engine) struct Epilogue {
    addend: Option<View>,
    limits: Option<[f32; 2]>,
}

impl Epilogue {
    /// If the contraction can write over the tensor to add, makes that its output. Returns the
    /// factor of the previous elements of the output.
    pub(super) fn add_in_place(&mut self, builder: &mut Builder<'_, '_>, out: &mut View) -> f32 {
        let fits = |addend: &mut View| {
            let same = addend.reshaped(&out.sizes);
            same.is_some_and(|it| it.has_strides(&out.strides)) && builder.can_add_to(addend)
        };
        let Some(addend) = self.addend.take_if(fits) else { return 0.0 };
        builder.overwrite(&addend);
        out.buffer = addend.buffer;
        1.0
    }

    /// Returns the limits of the clamp, if the contraction does everything before it.
    pub(super) fn take_limits(&mut self) -> [f32; 2] {
        let limits = if self.addend.is_none() { self.limits.take() } else { None };
        limits.unwrap_or([f32::NEG_INFINITY, f32::INFINITY])
    }

    /// Returns the limits of the clamp, for contractions that cannot add a tensor.
    pub(super) fn only_limits(&mut self) -> Result<[f32; 2], Refusal> {
        match self.addend {
            Some(_) => {
                Err("an addition fused into a convolution or linear layer with int8 output".into())
            }
            None => Ok(self.take_limits()),
        }
    }

    /// Adds the steps of what remains to be done.
    pub(super) fn apply(
        self,
        builder: &mut Builder<'_, '_>,
        mut result: View,
    ) -> Result<View, Refusal> {
        if let Some(mut addend) = self.addend {
            if addend.numel() == result.numel() {
                addend = builder.reshaped(&addend, &result.sizes)?;
            }
            builder.hold(&result);
            let sum = broadcasting(builder, &result, &addend, Binary::Add);
            builder.release(&result);
            result = sum?;
        }
        if let Some(limits) = self.limits {
            builder.hold(&result);
            let clamped = clamped(builder, &result, limits);
            builder.release(&result);
            result = clamped?;
        }
        Ok(result)
    }
}

/// A contraction with an epilogue.
pub(super) fn epilogue(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let (contraction, rest) = builder
        .parts()
        .split_first()
        .ok_or("internal error: an epilogue without a convolution or GEMM")?;
    let lower = find(contraction.operator).filter(|_| builder.has_epilogue(contraction));
    let lower = lower.ok_or("an epilogue of an operator for which the CPU engine has none")?;
    let (_, inputs) = args.split_last().ok_or("the call has no output argument")?;
    let mut epilogue = Epilogue::default();
    // While weights are packed, shapes may be upper bounds that do not match.
    let rest = if builder.is_plan() { rest } else { &[] };
    for part in rest {
        match part.operator {
            Operator::ADD_TENSOR => {
                let call = AddArgs::of(part)?;
                // The other operand is the contraction's result, or a view of it.
                let id = if inputs.contains(&call.input) { call.input } else { call.other };
                epilogue.addend = Some(builder.view(id)?);
            }
            _ => {
                let limits = limits(part, |id| Some(builder.value(id)));
                epilogue.limits = Some(limits.ok_or("an epilogue with an unknown activation")?);
            }
        }
    }
    builder.set_epilogue(epilogue);
    lower(builder, &contraction.args)
}
