//! What workgroups leave to each other that share the sums of a tile: `splits.glsl`.

use crate::derived::{Derived, Shared};
use crate::encoder::Encoder;
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_shaders::Element;

/// The parts that so many workgroups leave of each tile of so many rows and columns, and how many
/// of a tile are there: of so many tiles now and at most, in a call that writes `out`.
pub(super) fn parts(
    e: &mut Encoder<'_, '_>,
    out: &Operand,
    [now, bound]: [usize; 2],
    splits: usize,
    tile: [usize; 2],
) -> Result<[Operand; 2], Error> {
    let sums = e.temporary(Element::F32, &[now, splits, tile.iter().product()])?;
    let counts = counts_for(bound).filter(|counts| now.div_ceil(4) <= *counts);
    let counts = counts.ok_or_else(|| Error::invalid("a product exceeds its bound"))?;
    // Neighbours that do not depend on each other have different ones, so that neither waits for
    // the other.
    let shares = out.id % TURNS;
    let counts = e.derived(Derived::Shared(Shared { counts, shares }))?;
    Ok([sums, counts])
}

/// Groups of four counts of splits that are done, for so many tiles: few choices, so that many
/// products share one.
fn counts_for(tiles: usize) -> Option<usize> {
    tiles.div_ceil(4).max(LEAST_COUNTS).checked_next_power_of_two()
}

/// Such groups at least.
const LEAST_COUNTS: usize = 256;

/// How many products have counts of their own before they are shared.
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
