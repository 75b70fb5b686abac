//! Products of floating-point numbers with quantized weights of regular shape, which the fast kernels take: rows of whole words, groups of a
//! power of two, constants.
//!
//! Of few rows, memory decides: a kernel that reads each weight once. Of many, arithmetic does: the weights become floating-point numbers, and
//! the product one in tiles.

use super::linear::{WeightForm, Weighted};
use crate::derived::{Derived, Matrices, Transposed};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::ops::matmul::{Product, is_tiled};
use crate::tensors::Operand;
use torchlet_shaders::{
    Element, GemvQuantized, GemvQuantizedPush, UnpackWeights, UnpackWeightsPush,
};

/// The rows up to which weights are read anew for each.
const FEW_ROWS: usize = 4;

/// The elements of a row of weights that an invocation multiplies at a time.
const AT_ONCE: usize = 8;

/// The most bytes of weights that are unpacked.
const MOST_UNPACKED: usize = 1 << 29;

/// What is known of such a product.
pub(super) struct Regular {
    grouped: bool,
    group_shift: u32,
    /// Scales by row of the weights, and how many a row has: the others are by group.
    scales: Operand,
    scale_row: usize,
    /// The rows of the product at most.
    most_rows: usize,
}

impl Regular {
    /// `None` if the product is for the kernel that takes any.
    pub(super) fn of(e: &mut Encoder<'_, '_>, it: &Weighted<'_>) -> Result<Option<Self>, Error> {
        let grouped = it.k > it.group;
        let row_unit = if it.form == WeightForm::Bytes { AT_ONCE } else { AT_ONCE / 2 };
        let shape = it.n.is_multiple_of(4)
            && it.k.is_multiple_of(AT_ONCE)
            && it.weight_row.is_multiple_of(row_unit)
            && (!grouped || (it.group.is_power_of_two() && it.group >= AT_ONCE))
            && it.scales.element.is_floating()
            && it.bias.is_none_or(|bias| bias.element.is_floating());
        if !shape {
            return Ok(None);
        }
        let bound = e.bound_sizes(it.out);
        let most_rows = bound.split_last().map_or(1, |(_, rows)| rows.iter().product());
        let (mut scales, mut scale_row) = (it.scales.clone(), 1);
        if grouped {
            let Some(source) = e.constant(scales.id) else { return Ok(None) };
            let groups = scales.numel() / it.scale_row.max(1);
            if groups.checked_mul(it.scale_row) != Some(scales.numel()) {
                return Ok(None);
            }
            let matrices = Matrices { count: 1, rows: groups, columns: it.scale_row };
            scale_row = matrices.pitch();
            scales = e.derived(Derived::Transposed(Transposed { source, matrices }))?;
        }
        let group_shift = if grouped { it.group.trailing_zeros() } else { 0 };
        Ok(Some(Regular { grouped, group_shift, scales, scale_row, most_rows }))
    }

    /// Emits the dispatches; `false` if there is no kernel for so many rows.
    pub(super) fn encode(&self, e: &mut Encoder<'_, '_>, it: &Weighted<'_>) -> Result<bool, Error> {
        for operand in [it.weight, it.input, it.out] {
            u32_of(operand.numel())?;
        }
        let (pipeline, workgroup) = self.gemv(it);
        if it.m <= FEW_ROWS {
            return self.few_rows(e, it, &pipeline, workgroup).map(|()| true);
        }
        let element = it.input.element;
        let bytes = it.n.saturating_mul(it.k).saturating_mul(element.size());
        // Other calls may have few rows, and read the scales then.
        e.also(&pipeline, workgroup);
        e.reserve(&self.scales);
        let tiled = is_tiled(e, [element; 2], [1, self.most_rows, it.n, it.k]);
        if !tiled || bytes > MOST_UNPACKED {
            return Ok(false);
        }
        self.many_rows(e, it).map(|()| true)
    }

    fn gemv(&self, it: &Weighted<'_>) -> (GemvQuantized, [u32; 3]) {
        let residual = it.epilogue.residual.as_ref();
        let wide = self.wide(it);
        // On an NVIDIA H200, one turn takes as long as memory takes to answer, so there are as few as there can be; but where turns are short,
        // two are faster than twice as many invocations that share a sum.
        let turns = match wide {
            Some(elements) => it.k / elements,
            None => (it.k / AT_ONCE).div_ceil(2),
        };
        let lanes = turns.next_power_of_two().clamp(32, 128) as u32;
        let pipeline = GemvQuantized {
            input: it.input.element,
            scale: self.scales.element,
            bias: it.bias.map_or(Element::F32, |bias| bias.element),
            output: it.out.element,
            weight: it.form as u32,
            has_bias: it.bias.is_some(),
            grouped: self.grouped,
            activation: it.epilogue.activation,
            residual: residual.map_or(Element::F32, |residual| residual.element),
            has_residual: residual.is_some(),
            wide: wide.is_some(),
        };
        (pipeline, [lanes, 1, 1])
    }

    /// The elements in 16 bytes of a row of weights, where invocations take so many at a time and there are enough for a subgroup.
    fn wide(&self, it: &Weighted<'_>) -> Option<usize> {
        let elements = if it.form == WeightForm::Bytes { 16 } else { 32 };
        let fits = it.k.is_multiple_of(elements)
            && it.weight_row.is_multiple_of(16)
            && (!self.grouped || it.group >= elements)
            && it.k / elements >= 32;
        fits.then_some(elements)
    }

    fn few_rows(
        &self,
        e: &mut Encoder<'_, '_>,
        it: &Weighted<'_>,
        pipeline: &GemvQuantized,
        [lanes, ..]: [u32; 3],
    ) -> Result<(), Error> {
        let push = GemvQuantizedPush {
            m: u32_of(it.m)?,
            n: u32_of(it.n)?,
            k: u32_of(it.k)?,
            weight_row: u32_of(it.weight_row)?,
            group_shift: self.group_shift,
            scale_row: u32_of(self.scale_row)?,
            a: it.epilogue.a,
            b: it.epilogue.b,
        };
        let accesses = [
            read(it.input.id),
            read(it.weight.id),
            read(self.scales.id),
            read(it.bias.unwrap_or(it.input).id),
            read(it.epilogue.residual.as_ref().unwrap_or(it.input).id),
            write(it.out.id),
        ];
        let tiles = (it.n / 4).saturating_mul(it.m);
        e.dispatch_along_y(pipeline, accesses, &push, [lanes as usize, tiles], [lanes, 1])
    }

    fn many_rows(&self, e: &mut Encoder<'_, '_>, it: &Weighted<'_>) -> Result<(), Error> {
        let unpacked = e.temporary(it.input.element, &[it.k, it.n])?;
        let push = UnpackWeightsPush {
            n: u32_of(it.n)?,
            k: u32_of(it.k)?,
            weight_row: u32_of(it.weight_row)?,
            group_shift: self.group_shift,
            scale_row: u32_of(self.scale_row)?,
        };
        u32_of(unpacked.numel())?;
        let pipeline = UnpackWeights {
            scale: self.scales.element,
            output: unpacked.element,
            weight: it.form as u32,
            grouped: self.grouped,
        };
        let accesses = [read(it.weight.id), read(self.scales.id), write(unpacked.id)];
        let invocations = [it.n / 4, it.k / AT_ONCE, 1];
        e.dispatch(&pipeline, accesses, &push, invocations, [16, 8, 1])?;
        let mut product =
            Product::new(it.input.clone(), unpacked, it.out.clone(), [it.m, it.n, it.k]);
        product.bias = it.bias.map(|bias| (bias.clone(), 0, [0, 1]));
        product.epilogue = Some(it.epilogue.clone());
        product.bound = Some([1, self.most_rows, it.n]);
        product.encode(e)
    }
}
