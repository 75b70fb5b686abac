//! Scratch memory for split-K: partial sums of the workgroups that share a tile (`splits.glsl`).

use crate::derived::{Derived, Shared};
use crate::encoder::Encoder;
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_shaders::Element;

/// Returns the memory for partial sums of `splits` workgroups per tile, and the counters of
/// finished workgroups. `out` is the output of the call, which has `now` tiles, at most `bound`.
pub(super) fn parts(
    e: &mut Encoder<'_, '_>,
    out: &Operand,
    [now, bound]: [usize; 2],
    splits: usize,
    tile: [usize; 2],
) -> Result<[Operand; 2], Error> {
    if !e.limits().device_scope {
        return Err(Error::unsupported(
            "a sum that workgroups of one dispatch share; the device has no barriers between them",
        ));
    }
    let sums = e.temporary(Element::F32, &[now, splits, tile.iter().product()])?;
    let counts = counts_for(bound).filter(|counts| now.div_ceil(4) <= *counts);
    let counts = counts.ok_or_else(|| {
        Error::invalid("internal error: a split GEMM has more tiles than planned")
    })?;
    // Neighbouring calls that are independent use different counters, so that neither waits for the
    // other.
    let shares = out.id % TURNS;
    let counts = e.derived(Derived::Shared(Shared { counts, shares }))?;
    Ok([sums, counts])
}

/// Returns the number of groups of four counters for a number of tiles. Few choices allow many
/// calls to share one allocation.
fn counts_for(tiles: usize) -> Option<usize> {
    tiles.div_ceil(4).max(MIN_COUNTS).checked_next_power_of_two()
}

/// The minimum number of groups of counters.
const MIN_COUNTS: usize = 256;

/// The number of consecutive outputs that have separate counters.
const TURNS: usize = 4;

#[cfg(test)]
mod tests {
    #[test]
    fn there_is_a_count_for_each_tile() {
        for tiles in [1, 1023, 1024, 1025, 4096, 4097] {
            let counts = super::counts_for(tiles).unwrap();
            assert!(tiles <= counts * 4 && counts * 4 <= (2 * tiles).max(1024), "{tiles}");
        }
        assert_eq!(super::counts_for(usize::MAX), Some(1 << (usize::BITS - 2)));
    }
}
