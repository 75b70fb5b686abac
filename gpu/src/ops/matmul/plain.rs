//! Untiled GEMMs, in which each invocation reads its operands from memory.

use super::{Epilogue, MIN_TERMS, Product, SHARES, share, workgroup};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::ops::tiling::Shape;
use torchlet_shaders::{Element, Matmul, MatmulPush};

/// The division of an untiled GEMM among invocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plain {
    /// The number of rows per invocation.
    rows: usize,
    /// The number of invocations that share a sum.
    shares: usize,
    /// The number of groups of four columns per invocation: 1 or 2.
    quads: usize,
}

impl Plain {
    /// Chooses the division. `halves` means that the second operand is fp16 and that eight of its
    /// values can be read at once.
    pub(super) fn of(bound: Shape, busy: usize, halves: bool) -> Self {
        let rows: usize = match bound.m {
            1 => 1,
            2 => 2,
            3 | 4 | 9..=12 => 4,
            _ => 8,
        };
        let (columns, tiles) = (bound.n.div_ceil(4), bound.m.div_ceil(rows));
        // Neighbouring invocations read neighbouring elements of `b`: if fewer invocations share a
        // sum, more of them do so.
        let choices = if tiles > 1 { [32, 16, 4] } else { SHARES };
        let invocations = columns.saturating_mul(tiles).saturating_mul(bound.batches);
        // Twice the columns halve the number of loads, if enough invocations remain. With more rows
        // per invocation, the sums would need too much shared memory.
        let wide = halves && tiles == 1 && rows <= 2 && invocations / 2 >= busy / SHARES[0];
        let quads = if wide { 2 } else { 1 };
        Plain { rows, shares: share(busy, invocations / quads, bound.k, choices), quads }
    }

    /// Returns alternatives for autotuning, with other rows, shares or columns.
    pub(super) fn others(&self, bound: Shape, halves: bool) -> Vec<Self> {
        let rows = [1, 2, 4, 8].map(|rows| Plain { rows, ..*self });
        let shares = [1, 4, 16, 32, 64].map(|shares| Plain { shares, ..*self });
        let fits = |plain: &Self| {
            plain != self
                && plain.rows < 2 * bound.m
                && (plain.quads == 1 || (halves && plain.rows <= 2))
                && (plain.shares == 1 || bound.k >= plain.shares * MIN_TERMS)
        };
        let columns = Plain { quads: 3 - self.quads, ..*self };
        rows.into_iter().chain(shares).chain([columns]).filter(fits).collect()
    }

    /// Returns a workgroup for this many groups of columns and of rows.
    fn workgroup(&self, columns: usize, tiles: usize, second: Element) -> [u32; 3] {
        let sums = self.rows * self.quads;
        match second {
            // A memory transaction has 32 bytes. Four neighbours that read four fp16 values each
            // use one transaction; this is also faster than two neighbours that read eight values
            // each.
            Element::F16 if self.shares == 64 && tiles == 1 && columns >= 4 && sums <= 4 => {
                [4, 1, 64]
            }
            _ => workgroup(columns, tiles, self.shares),
        }
    }
}

impl Product {
    /// Returns the pipeline for few rows, and the size of its workgroup.
    pub(super) fn few(
        &self,
        e: &Encoder<'_, '_>,
        epilogue: &Epilogue,
        bound: Shape,
    ) -> Result<(Matmul, [u32; 3]), Error> {
        self.plain_pipeline(epilogue, bound, Plain::of(bound, e.busy(), self.has_wide_halves()))
    }

    /// Whether the second operand is fp16 and the untiled kernel can read eight values at once.
    pub(super) fn has_wide_halves(&self) -> bool {
        self.b.element == Element::F16 && !self.a_transposed && self.pitches().b.is_multiple_of(8)
    }

    /// Returns the pipeline of an untiled GEMM, and the size of its workgroup.
    pub(super) fn plain_pipeline(
        &self,
        epilogue: &Epilogue,
        bound: Shape,
        plain: Plain,
    ) -> Result<(Matmul, [u32; 3]), Error> {
        let (pitches, Plain { rows, shares, quads }) = (self.pitches(), plain);
        let (columns, tiles) = (bound.n.div_ceil(4 * quads), bound.m.div_ceil(rows));
        let workgroup = plain.workgroup(columns, tiles, self.b.element);
        let partials = match shares {
            1 => 1,
            _ => quads * rows * workgroup.iter().product::<u32>() as usize,
        };
        let bias = self.bias_or(&self.a);
        let pipeline = constants!(Matmul of self, epilogue, bias, self.out, {
            a: self.a.element,
            b: self.b.element,
            a_transposed: self.a_transposed,
            a_aligned: self.k.is_multiple_of(4),
            b_aligned: pitches.b.is_multiple_of(4),
            rows: u32_of(rows)?,
            shares: u32_of(shares)?,
            partials: u32_of(partials)?,
            quads: u32_of(quads)?,
        });
        Ok((pipeline, workgroup))
    }

    /// Emits an untiled GEMM.
    pub(super) fn plain(
        self,
        e: &mut Encoder<'_, '_>,
        epilogue: &Epilogue,
        pipeline: &Matmul,
        workgroup: [u32; 3],
    ) -> Result<(), Error> {
        let (pitches, common) = (self.pitches(), self.common(epilogue)?);
        let bias = self.bias_or(&self.a);
        let residual = epilogue.residual.as_ref().unwrap_or(&self.a);
        let push = push!(MatmulPush of common, {
            k: u32_of(self.k)?,
            a_pitch: u32_of(pitches.a)?,
            b_pitch: u32_of(pitches.b)?,
            a_batch: u32_of(pitches.a_batch)?,
            b_batch: u32_of(pitches.b_batch)?,
            base_z: 0,
        });
        let accesses = [
            read(bias.id),
            read(residual.id),
            write(self.out.id),
            read(self.a.id),
            read(self.b.id),
        ];
        let (rows, shares) = (pipeline.rows as usize, pipeline.shares as usize);
        let columns = 4 * pipeline.quads as usize;
        let invocations = [self.n.div_ceil(columns), self.m.div_ceil(rows), self.batches * shares];
        e.dispatch(pipeline, accesses, &push, invocations, workgroup)
    }
}

#[cfg(test)]
mod tests {
    use super::Plain;
    use crate::device::DeviceKind;
    use crate::ops::tiling::Shape;
    use torchlet_shaders::Element;

    #[test]
    fn invocations_read_twice_the_columns_where_enough_remain() {
        let busy = DeviceKind::Discrete.busy_invocations();
        let plain = |m, n, k, halves| {
            let shape = Shape { batches: 1, m, n, k, windows: false, octets: true, varies: false };
            let plain = Plain::of(shape, busy, halves);
            [plain.rows, plain.shares, plain.quads]
        };
        assert_eq!(plain(1, 8192, 2048, true), [1, 64, 2]);
        assert_eq!(plain(1, 8192, 2048, false), [1, 16, 1]);
        assert_eq!(plain(1, 2048, 8192, true), [1, 64, 1]);
        assert_eq!(plain(1, 128_256, 2048, true), [1, 4, 2]);
        assert_eq!(plain(4, 8192, 2048, true), [4, 16, 1]);
    }

    /// No variant uses more shared memory than every device has.
    #[test]
    fn sums_that_are_shared_fit_any_device() {
        let busy = [DeviceKind::Discrete, DeviceKind::Integrated, DeviceKind::Cpu];
        let columns = [40, 256, 2048, 8192];
        let sizes = (1..=9).flat_map(|m| columns.map(|n| (m, n)));
        let sizes = sizes.flat_map(|(m, n)| [600, 8192].map(|k| (m, n, k)));
        for ((m, n, k), busy) in sizes.flat_map(|sizes| busy.map(|busy| (sizes, busy))) {
            let shape = Shape { batches: 1, m, n, k, windows: false, octets: true, varies: false };
            for halves in [false, true] {
                let first = Plain::of(shape, busy.busy_invocations(), halves);
                for plain in [first].into_iter().chain(first.others(shape, halves)) {
                    let (columns, tiles) = (n.div_ceil(4 * plain.quads), m.div_ceil(plain.rows));
                    for element in [Element::F32, Element::F16] {
                        let [x, y, z] = plain.workgroup(columns, tiles, element);
                        let sums = plain.rows * plain.quads * (x * y * z) as usize;
                        assert!(plain.shares == 1 || sums * 16 <= 16 << 10, "{plain:?}");
                        assert!(x * y * z <= 256 && z <= 64, "{plain:?}");
                    }
                }
            }
        }
    }
}
