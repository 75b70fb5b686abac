//! AMX tile configuration and multiplication.
//!
//! Tile registers 0 to 3 hold sums, 4 and 5 rows, 6 and 7 weights. Each multiplication is one block
//! of assembly, so only the configuration, and no tile data, persists between blocks.

use super::{HEIGHT, STEPS};
use crate::compute::int8::{LANES, STEP};
use core::arch::asm;
use core::marker::PhantomData;

/// Tile configuration of this thread. Dropping it releases the tiles, so that the system need not
/// save them.
pub(super) struct Tiles(PhantomData<*const ()>);

/// Memory operand of `ldtilecfg`.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start: u8,
    reserved: [u8; 14],
    /// Bytes of a row of each tile.
    widths: [u16; 16],
    /// Rows of each tile.
    heights: [u8; 16],
}

impl Tiles {
    /// Configures tiles of `rows` rows with `steps` steps each.
    ///
    /// # Safety
    /// The processor has AMX and this process may use it. `rows` is 1 to [`HEIGHT`], and `steps` is
    /// 1 to [`STEPS`]. No other configuration is in use on this thread.
    pub(super) unsafe fn new(rows: usize, steps: usize) -> Self {
        debug_assert!((1..=HEIGHT).contains(&rows) && (1..=STEPS).contains(&steps));
        let mut configuration = Configuration {
            palette: 1,
            start: 0,
            reserved: [0; 14],
            widths: [0; 16],
            heights: [0; 16],
        };
        let (sums, quantized, weights) = (0..4, 4..6, 6..8);
        configuration.widths[sums.start..weights.end].fill((LANES * STEP) as u16);
        configuration.widths[quantized.clone()].fill((steps * STEP) as u16);
        configuration.heights[sums.start..quantized.end].fill(rows as u8);
        configuration.heights[weights].fill(steps as u8);
        // SAFETY: guaranteed by the caller; the palette supports these tile sizes.
        unsafe {
            asm!(
                "ldtilecfg [{}]", in(reg) &raw const configuration,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, preserves_flags, readonly),
            );
        }
        Tiles(PhantomData)
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: the processor has the instruction, since a configuration exists.
        unsafe {
            asm!(
                "tilerelease",
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, preserves_flags, nomem),
            );
        }
    }
}

/// Sums of two tiles of rows with two panels, ordered by tile, then by panel.
#[repr(align(64))]
pub(in crate::compute::int8) struct Sums(pub(super) [[[i32; LANES]; HEIGHT]; 4]);

/// Loop counts and byte strides of a multiplication.
#[repr(C)]
pub(super) struct Walk {
    /// Number of lines of a row, and number of tiles of a line.
    pub(super) lines: usize,
    pub(super) tiles: usize,
    /// Stride between the tiles of a line.
    pub(super) along: usize,
    /// Distance from the end of a line's last tile to the start of the next line.
    pub(super) skip: isize,
    /// Stride between weight tiles.
    pub(super) down: usize,
    /// Distance from the end of a row's last tile back to the overlapping tile, and the weights of
    /// that tile; null if absent.
    pub(super) back: isize,
    pub(super) last: [*const i8; 2],
}

/// Loads a tile of each panel and row, and accumulates their products.
macro_rules! tile {
    ($dot:literal, 1, 1) => {
        concat!(
            "tileloadd tmm4, [{a0} + {row_stride}*1]\n",
            "tileloadd tmm6, [{b0} + {line}*1]\n",
            $dot,
            " tmm0, tmm4, tmm6\n",
        )
    };
    ($dot:literal, 1, 2) => {
        concat!(
            tile!($dot, 1, 1),
            "tileloadd tmm7, [{b1} + {line}*1]\n",
            $dot,
            " tmm1, tmm4, tmm7\n",
        )
    };
    ($dot:literal, 2, 1) => {
        concat!(
            tile!($dot, 1, 1),
            "tileloadd tmm5, [{a1} + {row_stride}*1]\n",
            $dot,
            " tmm2, tmm5, tmm6\n",
        )
    };
    ($dot:literal, 2, 2) => {
        concat!(
            tile!($dot, 1, 2),
            "tileloadd tmm5, [{a1} + {row_stride}*1]\n",
            $dot,
            " tmm2, tmm5, tmm6\n",
            $dot,
            " tmm3, tmm5, tmm7\n",
        )
    };
}

/// Stores the sums of all tiles of rows and panels.
macro_rules! store {
    (1, 1) => {
        "tilestored [{out} + {line}*1], tmm0\n"
    };
    (1, 2) => {
        concat!(store!(1, 1), "tilestored [{out} + {line}*1 + 1024], tmm1\n")
    };
    (2, 1) => {
        concat!(store!(1, 1), "tilestored [{out} + {line}*1 + 2048], tmm2\n")
    };
    (2, 2) => {
        concat!(
            store!(1, 2),
            "tilestored [{out} + {line}*1 + 2048], tmm2\n",
            "tilestored [{out} + {line}*1 + 3072], tmm3\n",
        )
    };
}

/// Addresses of the row tiles, their row stride, addresses of the panels, and the loop counts.
pub(super) struct Sources {
    pub(super) a: [*const i8; 2],
    pub(super) row_stride: usize,
    pub(super) b: [*const i8; 2],
    pub(super) walk: Walk,
}

/// Multiplies tiles of rows and panels.
macro_rules! multiply {
    ($dot:literal, $rows:tt, $panels:tt, $sources:ident, $sums:ident) => {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "mov {lines}, [{walk} + {LINES}]",
            "2:",
            "mov {tiles}, [{walk} + {TILES}]",
            "3:",
            tile!($dot, $rows, $panels),
            "add {a0}, [{walk} + {ALONG}]",
            "add {a1}, [{walk} + {ALONG}]",
            "add {b0}, [{walk} + {DOWN}]",
            "add {b1}, [{walk} + {DOWN}]",
            "dec {tiles}",
            "jnz 3b",
            "add {a0}, [{walk} + {SKIP}]",
            "add {a1}, [{walk} + {SKIP}]",
            "dec {lines}",
            "jnz 2b",
            "mov {b0}, [{walk} + {LAST}]",
            "mov {b1}, [{walk} + {LAST} + 8]",
            "test {b0}, {b0}",
            "jz 4f",
            "add {a0}, [{walk} + {BACK}]",
            "add {a1}, [{walk} + {BACK}]",
            tile!($dot, $rows, $panels),
            "4:",
            store!($rows, $panels),
            a0 = inout(reg) $sources.a[0] => _,
            a1 = inout(reg) $sources.a[1] => _,
            b0 = inout(reg) $sources.b[0] => _,
            b1 = inout(reg) $sources.b[1] => _,
            row_stride = in(reg) $sources.row_stride,
            line = in(reg) LANES * STEP,
            walk = in(reg) core::ptr::from_ref(&$sources.walk),
            out = in(reg) core::ptr::from_mut($sums),
            lines = out(reg) _,
            tiles = out(reg) _,
            LINES = const core::mem::offset_of!(Walk, lines),
            TILES = const core::mem::offset_of!(Walk, tiles),
            ALONG = const core::mem::offset_of!(Walk, along),
            SKIP = const core::mem::offset_of!(Walk, skip),
            DOWN = const core::mem::offset_of!(Walk, down),
            BACK = const core::mem::offset_of!(Walk, back),
            LAST = const core::mem::offset_of!(Walk, last),
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

/// Multiplies `M` tiles of rows with `V` panels, at most two each. With `FLIPPED`, left values are
/// unsigned, with 128 added.
///
/// # Safety
/// `a` has `M` tiles of as many rows as the [configuration](Tiles): each row has the lines and
/// tiles of the walk, and each tile as many steps as the configuration. The `V` panels, and their
/// last tiles if present, have as many steps. The walk has at least one line and one tile.
pub(super) unsafe fn multiply<const M: usize, const V: usize, const FLIPPED: bool>(
    _: &Tiles,
    sources: &Sources,
    sums: &mut Sums,
) {
    // SAFETY: guaranteed by the caller. The assembly reads only these addresses, writes the sums of
    // the configured rows, and leaves the stack unchanged.
    unsafe {
        match (M, V, FLIPPED) {
            (1, 1, false) => multiply!("tdpbssd", 1, 1, sources, sums),
            (1, _, false) => multiply!("tdpbssd", 1, 2, sources, sums),
            (_, 1, false) => multiply!("tdpbssd", 2, 1, sources, sums),
            (_, _, false) => multiply!("tdpbssd", 2, 2, sources, sums),
            (1, 1, true) => multiply!("tdpbusd", 1, 1, sources, sums),
            (1, _, true) => multiply!("tdpbusd", 1, 2, sources, sums),
            (_, 1, true) => multiply!("tdpbusd", 2, 1, sources, sums),
            (_, _, true) => multiply!("tdpbusd", 2, 2, sources, sums),
        }
    }
}
