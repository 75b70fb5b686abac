//! Tiled GEMMs, with operands staged in shared memory. A GEMM with dynamic shapes may have two
//! tilings, one of which is chosen by the current shape.

use super::{Epilogue, Product, Windows};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::ops::splits;
use crate::ops::tiling::{Constraints, Factors, Matrices, Shape, Tiling};
use crate::ops::window::Window;
use crate::tensors::Operand;
use torchlet_shaders::{
    ConvolutionTiled, ConvolutionTiledPush, Element, MatmulSum, MatmulSumPush, MatmulTiled,
    MatmulTiledPush,
};

/// Partial sums of the workgroups that share a tile (split-K).
struct Parts {
    /// The shader's code for how partial sums are added up.
    partial: u32,
    sums: Option<Operand>,
    /// Counters of the workgroups that have finished a tile.
    counts: Option<Operand>,
}

impl Product {
    /// Emits a tiled GEMM with this tiling. If shapes are dynamic and the GEMM has enough rows,
    /// emits it with large tiles instead.
    pub(super) fn in_tiles(
        self,
        e: &mut Encoder<'_, '_>,
        epilogue: &Epilogue,
        bound: Shape,
        tiling: Tiling,
    ) -> Result<(), Error> {
        let parts = self.parts(e, bound, &tiling)?;
        let means = Constraints::of(e, Factors::of(e, &self.a, &self.b));
        let large = match bound.varies && self.windows.is_none() {
            true => Tiling::large(bound, &means),
            false => None,
        };
        let Some(large) = large.filter(|large| *large != tiling) else {
            return self.tiled(e, epilogue, &tiling, parts);
        };
        // Scratch tensors exist for both tilings, since the next run may need the other tiling.
        let parts_of_large = self.parts(e, bound, &large)?;
        let (chosen, parts, other) = match large.suits(self.now(bound), e.processors()) {
            true => (large, parts_of_large, parts),
            false => (tiling, parts, parts_of_large),
        };
        other.sums.iter().chain(&other.counts).for_each(|it| e.reserve(it));
        self.tiled(e, epilogue, &chosen, parts)
    }

    /// Returns the current sizes of a GEMM whose maximum sizes are `bound`.
    fn now(&self, bound: Shape) -> Shape {
        Shape { batches: self.batches, m: self.m, n: self.n, ..bound }
    }

    /// Allocates the partial sums of the workgroups that share a tile.
    fn parts(
        &self,
        e: &mut Encoder<'_, '_>,
        bound: Shape,
        tiling: &Tiling,
    ) -> Result<Parts, Error> {
        let splits = tiling.splits;
        match (splits, tiling.apart || !e.limits().device_scope) {
            (1, _) => Ok(Parts { partial: 0, sums: None, counts: None }),
            (_, true) => {
                let sizes = [self.batches, splits * self.m, self.n.next_multiple_of(4)];
                let sums = e.temporary(Element::F32, &sizes)?;
                Ok(Parts { partial: 1, sums: Some(sums), counts: None })
            }
            (_, false) => {
                let tiles = [self.now(bound), bound].map(|shape| shape.tiles(tiling.tile));
                let [sums, counts] = splits::parts(e, &self.out, tiles, splits, tiling.tile)?;
                Ok(Parts { partial: 2, sums: Some(sums), counts: Some(counts) })
            }
        }
    }

    /// Emits the dispatches of a tiling.
    fn tiled(
        self,
        e: &mut Encoder<'_, '_>,
        epilogue: &Epilogue,
        tiling: &Tiling,
        Parts { partial, sums, counts }: Parts,
    ) -> Result<(), Error> {
        let (pitches, common) = (self.pitches(), self.common(epilogue)?);
        let [tile_m, tile_n] = tiling.tile;
        let splits = tiling.splits;
        let terms = self.k.div_ceil(splits).next_multiple_of(tiling.terms.max(32));
        let a_aligned = if self.a_transposed { pitches.a } else { self.k };
        let (a_alignment, b_alignment) = match self.windows {
            None => (alignment(a_aligned), alignment(pitches.b)),
            Some(_) => (alignment(a_aligned), 1),
        };
        let exact = tiling.matrices.is_some() && e.features().fill_subgroups_of_32();
        // If the number of terms is dynamic, all shapes use the generic pipeline.
        let varies = [&self.a, &self.b].iter().all(|factor| e.is_dynamic(factor));
        // Every split starts before the last term.
        let all_have = (splits - 1).saturating_mul(terms) < self.k;
        let whole = self.k.is_multiple_of(tiling.terms) && all_have && !varies;
        let may_be_direct = whole && tiling.matrices == Some(Matrices::Halves);
        let a_direct = may_be_direct && (self.a_transposed || a_alignment == 8);
        let b_direct = may_be_direct && b_alignment == 8;
        let rows = self.batches * self.m;
        let bias = self.bias_or(&self.a);
        let residual = epilogue.residual.as_ref().unwrap_or(&self.a);
        let (apart, here) = match counts {
            None => (sums.as_ref(), None),
            Some(_) => (None, sums.as_ref()),
        };
        let out = apart.unwrap_or(&self.out);
        let accesses = [
            read(bias.id),
            read(residual.id),
            write(out.id),
            read(self.a.id),
            read(self.b.id),
            // Unused bindings get any tensor that the dispatch writes.
            self.norm.as_ref().map_or(write(here.unwrap_or(out).id), |norm| read(norm.id)),
            write(counts.as_ref().unwrap_or(out).id),
        ];
        let tiles = [
            self.n.div_ceil(tile_n) * tiling.lanes as usize,
            self.m.div_ceil(tile_m),
            self.batches * splits,
        ];
        /// Emits the dispatch of a tiled pipeline, with these additional constants and parameters.
        macro_rules! dispatch {
            ($pipeline:ident, {$($constant:tt)*}, $push:ident, {$($parameter:tt)*}) => {{
                let pipeline = constants!($pipeline of self, epilogue, bias, out, {
                    a: self.a.element,
                    b: self.b.element,
                    a_transposed: self.a_transposed,
                    a_aligned: a_alignment,
                    b_aligned: b_alignment,
                    tile_m: u32_of(tile_m)?,
                    tile_n: u32_of(tile_n)?,
                    partial: partial,
                    tile_k: u32_of(tiling.terms)?,
                    $($constant)*
                });
                let push = push!($push of common, {
                    k: u32_of(self.k)?,
                    a_pitch: u32_of(pitches.a)?,
                    b_pitch: u32_of(pitches.b)?,
                    a_batch: u32_of(pitches.a_batch)?,
                    b_batch: u32_of(pitches.b_batch)?,
                    splits: u32_of(splits)?,
                    terms: u32_of(terms)?,
                    base_z: 0,
                    $($parameter)*
                });
                let module = tiling.module::<$pipeline>();
                e.dispatch_module(module, &pipeline, accesses, &push, tiles, [tiling.lanes, 1, 1])?;
            }};
        }
        match &self.windows {
            None => dispatch!(
                MatmulTiled, {
                    b_transposed: self.b_transposed,
                    lanes: tiling.lanes,
                    term_parts: tiling.term_parts,
                    normed: self.norm.is_some(),
                    exact: exact,
                    a_direct: a_direct,
                    b_direct: b_direct,
                    unguarded: a_direct && b_direct && tiling.is_wide(),
                },
                MatmulTiledPush, {}
            ),
            Some(Windows { window: [y, x], size: [in_y, in_x], count, depth, .. }) => {
                let z = depth.map_or(Window::NONE, |depth| depth.window);
                dispatch!(
                    ConvolutionTiled, {
                        kernel_y: y.kernel as u32,
                        kernel_x: x.kernel as u32,
                        stride_y: y.stride as u32,
                        stride_x: x.stride as u32,
                        dilation_y: y.dilation as u32,
                        dilation_x: x.dilation as u32,
                        lanes: tiling.lanes,
                        term_parts: tiling.term_parts,
                        kernel_z: depth.map_or(0, |_| z.kernel as u32),
                        stride_z: z.stride as u32,
                        dilation_z: z.dilation as u32,
                        exact: exact,
                        a_direct: a_direct,
                    },
                    ConvolutionTiledPush, {
                        in_y: *in_y as i32,
                        in_x: *in_x as i32,
                        out_x: count[1] as i32,
                        padding_y: y.padding,
                        padding_x: x.padding,
                        in_z: depth.map_or(1, |depth| depth.size as i32),
                        out_y: count[0] as i32,
                        padding_z: z.padding,
                    }
                );
            }
        }
        let Some(parts) = apart else { return Ok(()) };
        let pipeline = constants!(MatmulSum of self, epilogue, bias, self.out, {});
        let push = push!(MatmulSumPush of common, {
            batches: u32_of(self.batches)?,
            splits: u32_of(splits)?,
        });
        let accesses = [read(bias.id), read(residual.id), write(self.out.id), read(parts.id)];
        e.dispatch_by_four(&pipeline, accesses, &push, rows * self.n.next_multiple_of(4))
    }
}

/// Returns the number of elements to whose multiples all rows are aligned, given the row stride: 1,
/// 4 or 8.
fn alignment(pitch: usize) -> u32 {
    match pitch {
        pitch if pitch.is_multiple_of(8) => 8,
        pitch if pitch.is_multiple_of(4) => 4,
        _ => 1,
    }
}
