//! GEMMs whose weights are stored with one row per output column: quantized weights, and those of
//! linear layers.

use super::bias_of;
use crate::derived::{Derived, Nibbles};
use crate::encoder::Encoder;
use crate::error::Error;
use crate::ops::window::checked_numel;
use crate::tensors::Operand;
use torchlet_graph::graph::{Node, ValueId};
use torchlet_graph::operators::{
    ArgumentCount, LinearArgs, LinearInt8Args, LinearQ4gswArgs, LinearQ8cswArgs, LinearQcs4wArgs,
    Operator, QuantizedLinear, WeightInt8packMmArgs, WeightPacking,
};
use torchlet_shaders::Element;

/// The storage format of weights, with the values that shaders use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ops) enum WeightForm {
    Bytes = 0,
    LowFirst = 1,
    HighFirst = 2,
    /// 16-bit and 32-bit floats, not quantized.
    Halves = 3,
    Floats = 4,
}

impl From<WeightPacking> for WeightForm {
    fn from(packing: WeightPacking) -> Self {
        match packing {
            WeightPacking::Bytes => WeightForm::Bytes,
            WeightPacking::LowNibbleFirst => WeightForm::LowFirst,
            WeightPacking::HighNibbleFirst => WeightForm::HighFirst,
        }
    }
}

impl WeightForm {
    pub(super) fn is_quantized(self) -> bool {
        !matches!(self, WeightForm::Halves | WeightForm::Floats)
    }

    /// Returns the number of weights in 16 bytes.
    pub(super) fn in_16_bytes(self) -> usize {
        match self {
            WeightForm::Bytes => 16,
            WeightForm::LowFirst | WeightForm::HighFirst => 32,
            WeightForm::Halves => 8,
            WeightForm::Floats => 4,
        }
    }
}

/// The operators that multiply floats by quantized weights and for which GEMV kernels exist. Each
/// has the function that reads its arguments.
const OF_FLOATS: &[(Operator, Reader)] = &[
    (Operator::WEIGHT_INT8PACK_MM, |args| Ok(WeightInt8packMmArgs::of(args)?.into())),
    (Operator::ET_VK_LINEAR_QCS4W, |args| Ok(LinearQcs4wArgs::of(args)?.into())),
    (Operator::ET_VK_LINEAR_Q8CSW, |args| Ok(LinearQ8cswArgs::of(args)?.into())),
    (Operator::LINEAR_INT8, |args| Ok(LinearInt8Args::of(args)?.into())),
    (Operator::ET_VK_LINEAR_Q4GSW, |args| Ok(LinearQ4gswArgs::of(args)?.into())),
    (Operator::ET_VK_Q4GSW_LINEAR, |args| Ok(LinearQ4gswArgs::of(args)?.into())),
];

/// Reads the arguments of a matrix multiplication with quantized weights.
type Reader = fn(&[ValueId]) -> Result<QuantizedLinear, ArgumentCount>;

fn of_floats(operator: Operator) -> Option<Reader> {
    OF_FLOATS.iter().find(|(own, _)| *own == operator).map(|(_, read)| *read)
}

/// Whether an operator multiplies floats by weights for which GEMV kernels exist: quantized
/// weights, or those of a linear layer.
pub(crate) fn weighs_floats(operator: Operator) -> bool {
    operator == Operator::LINEAR || of_floats(operator).is_some()
}

/// Parses a call of an operator for which [`weighs_floats`] returns true.
pub(in crate::ops) fn weighted(e: &mut Encoder<'_, '_>, call: &Node) -> Result<Weighted, Error> {
    if call.operator == Operator::LINEAR {
        return plain(e, &call.args);
    }
    let read = of_floats(call.operator).ok_or_else(|| {
        Error::Invalid(format!("internal error: {:?} is not a linear layer", call.operator))
    })?;
    Weighted::of(e, &read(&call.args)?)
}

/// A GEMM whose weights have one row per output column; shared by all kernels for such GEMMs.
pub(in crate::ops) struct Weighted {
    pub(in crate::ops) input: Operand,
    pub(in crate::ops) weight: Operand,
    pub(super) form: WeightForm,
    /// The number of bytes per row of the weights.
    pub(super) weight_row: usize,
    /// The scales of quantized weights; an unused placeholder for other weights.
    pub(in crate::ops) scales: Operand,
    /// Whether grouped scales are `[rows, groups]`. Otherwise, they are `[groups, rows]`.
    pub(super) scales_in_rows: bool,
    /// The row length of grouped scales, and the number of terms per group.
    pub(super) scale_row: usize,
    pub(super) group: usize,
    pub(in crate::ops) bias: Option<Operand>,
    pub(in crate::ops) out: Operand,
    pub(in crate::ops) m: usize,
    pub(in crate::ops) n: usize,
    pub(in crate::ops) k: usize,
}

impl Weighted {
    pub(super) fn of(e: &mut Encoder<'_, '_>, linear: &QuantizedLinear) -> Result<Self, Error> {
        let input = e.tensor(linear.input)?;
        let weight = e.tensor(linear.weights)?;
        let scales = e.tensor(linear.weight_scales)?;
        let (Some(k), 2) = (input.sizes.last().copied(), weight.rank()) else {
            return Err(Error::Invalid(format!(
                "input shape {:?} does not match weight shape {:?}",
                input.sizes, weight.sizes
            )));
        };
        let (n, weight_row) = (weight.size(0), weight.size(1));
        let m = input.numel() / k.max(1);
        let bytes = if linear.packing == WeightPacking::Bytes { k } else { k.div_ceil(2) };
        if weight.element.size() != 1 || bytes > weight_row || k == 0 {
            return Err(Error::Invalid(format!(
                "input shape {:?} does not match weight shape {:?}",
                input.sizes, weight.sizes
            )));
        }
        let groups = if linear.scales_in_rows { scales.numel() / n.max(1) } else { 1 };
        if linear.scales_in_rows
            && (groups.checked_mul(n) != Some(scales.numel()) || !k.is_multiple_of(groups.max(1)))
        {
            return Err(Error::Invalid(format!(
                "{} weight scales do not divide weights of {n} rows and {k} columns into groups",
                scales.numel()
            )));
        }
        let group = match linear.group_size {
            None => k / groups.max(1),
            Some(size) => usize::try_from(e.int(size)?).unwrap_or(0),
        };
        if group == 0 {
            return Err(Error::invalid("group size: expected at least 1"));
        }
        let scale_row = match (linear.group_size, scales.sizes.last()) {
            (Some(_), Some(row)) => *row,
            _ => n,
        };
        let groups = if linear.group_size.is_some() { k.div_ceil(group) } else { 1 };
        let needed = groups.checked_mul(scale_row);
        if scale_row < n || needed.is_none_or(|count| count > scales.numel()) {
            return Err(Error::Invalid(format!(
                "weight scales: expected {groups} groups of at least {n}, found shape {:?}",
                scales.sizes
            )));
        }
        let bias = bias_of(e, linear.bias, n)?;
        let mut sizes = input.sizes.clone();
        if let Some(last) = sizes.last_mut() {
            *last = n;
        }
        let out = e.out(&[linear.out])?;
        let out = e.resize(out.id, &sizes)?;
        if out.element.is_floating() == linear.output_parameters.is_some() {
            let expected = if out.element.is_floating() { "an integer type" } else { "floats" };
            return Err(Error::Invalid(format!(
                "output: expected {expected}, found {:?}",
                out.element
            )));
        }
        let (mut form, mut weight, mut weight_row) = (linear.packing.into(), weight, weight_row);
        let bits = e.optional_int(linear.bits)?;
        if bits == Some(4)
            && k == weight_row
            && k.is_multiple_of(2)
            && let Some(source) = e.constant(weight.id)
        {
            // Packing to 4 bits halves the bytes to read.
            weight = e.derived(Derived::Nibbles(Nibbles { source, rows: n, columns: k }))?;
            (form, weight_row) = (WeightForm::LowFirst, k / 2);
        }
        Ok(Weighted {
            input,
            weight,
            form,
            weight_row,
            scales,
            scales_in_rows: linear.scales_in_rows,
            scale_row,
            group,
            bias,
            out,
            m,
            n,
            k,
        })
    }

    /// A GEMM of `m` rows of `k` elements and `n` rows of unquantized weights.
    pub(in crate::ops) fn of_numbers(
        input: Operand,
        weight: Operand,
        bias: Option<Operand>,
        out: Operand,
        [m, n, k]: [usize; 3],
    ) -> Result<Self, Error> {
        let form =
            if weight.element == Element::F16 { WeightForm::Halves } else { WeightForm::Floats };
        let weight_row = k.checked_mul(weight.element.size());
        let weight_row =
            weight_row.ok_or_else(|| Error::unsupported(format!("weight rows of {k} elements")))?;
        let scales = weight.clone();
        let (scale_row, group) = (n, k);
        Ok(Weighted {
            input,
            weight,
            form,
            weight_row,
            scales,
            scales_in_rows: false,
            scale_row,
            group,
            bias,
            out,
            m,
            n,
            k,
        })
    }

    /// Whether input and output are floating point.
    pub(in crate::ops) fn is_of_floats(&self) -> bool {
        self.input.element.is_floating() && self.out.element.is_floating()
    }
}

/// Parses a linear layer, whose weight has one row per output column.
pub(in crate::ops) fn plain(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<Weighted, Error> {
    let call = LinearArgs::of(args)?;
    let (input, weight) = (e.tensor(call.input)?, e.tensor(call.weight)?);
    let bias = e.optional_tensor(call.bias)?;
    let (Some((k, outer)), [n, weight_k]) = (input.sizes.split_last(), &weight.sizes[..]) else {
        return Err(Error::Invalid(format!(
            "expected an input of at least 1 dim and weights of 2 dims, found shapes {:?} and {:?}",
            input.sizes, weight.sizes
        )));
    };
    let (k, n) = (*k, *n);
    if k != *weight_k {
        let (input, weight) = (&input.sizes, &weight.sizes);
        return Err(Error::Invalid(format!(
            "input shape {input:?} does not match weight shape {weight:?}"
        )));
    }
    if let Some(bias) = bias.as_ref().filter(|bias| bias.sizes != [n]) {
        return Err(Error::Invalid(format!("bias: expected shape [{n}], found {:?}", bias.sizes)));
    }
    let m = checked_numel(outer)?;
    let mut sizes = outer.to_vec();
    sizes.push(n);
    let out = e.resize(e.out_id(args)?, &sizes)?;
    Weighted::of_numbers(input, weight, bias, out, [m, n, k])
}
