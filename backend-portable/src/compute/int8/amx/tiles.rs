//! Tiles: their configuration, and products of them.
//!
//! Registers 0 to 3 have sums, 4 and 5 codes of rows, 6 and 7 weights. Each product is one block of
//! assembly, so that no value is in a tile between blocks; what is there is the configuration.

use super::{HEIGHT, STEPS};
use crate::compute::int8::{LANES, STEP};
use core::arch::asm;
use core::marker::PhantomData;

/// The configuration of this thread's tiles. Without one, tiles are no state that a system has to
/// keep.
pub(super) struct Tiles(PhantomData<*const ()>);

/// As instructions read it.
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
    /// Tiles of so many rows, and so many steps of each.
    ///
    /// # Safety
    /// The processor has AMX and this process may use it. There are one row and one step or more,
    /// [`HEIGHT`] and [`STEPS`] at most. No other configuration is in use on this thread.
    pub(super) unsafe fn new(rows: usize, steps: usize) -> Self {
        debug_assert!((1..=HEIGHT).contains(&rows) && (1..=STEPS).contains(&steps));
        let mut configuration = Configuration {
            palette: 1,
            start: 0,
            reserved: [0; 14],
            widths: [0; 16],
            heights: [0; 16],
        };
        let (sums, codes, weights) = (0..4, 4..6, 6..8);
        configuration.widths[sums.start..weights.end].fill((LANES * STEP) as u16);
        configuration.widths[codes.clone()].fill((steps * STEP) as u16);
        configuration.heights[sums.start..codes.end].fill(rows as u8);
        configuration.heights[weights].fill(steps as u8);
        // SAFETY: the caller's promise; tiles are of sizes that the palette has.
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
        // SAFETY: the processor has the instruction, since there was a configuration.
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

/// The sums of two tiles of rows by two panels: those of a tile are together, of one panel and then
/// the other.
#[repr(align(64))]
pub(in crate::compute::int8) struct Sums(pub(super) [[[i32; LANES]; HEIGHT]; 4]);

/// Which codes are multiplied.
#[repr(C)]
pub(super) struct Walk {
    /// Lines of rows, and tiles of each.
    pub(super) lines: usize,
    pub(super) tiles: usize,
    /// From a tile of rows to the next one.
    pub(super) along: usize,
    /// From behind the last tile of a line to the next line.
    pub(super) skip: isize,
    /// From a tile of weights to the next one.
    pub(super) down: usize,
    /// From behind the last tile of a row to one more, of which these are the weights, if there are
    /// any.
    pub(super) back: isize,
    pub(super) last: [*const i8; 2],
}

/// Loads a tile of each panel and row, and adds their products.
macro_rules! tile {
    ($dot:literal, 1, 1) => {
        concat!(
            "tileloadd tmm4, [{a0} + {apart}*1]\n",
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
            "tileloadd tmm5, [{a1} + {apart}*1]\n",
            $dot,
            " tmm2, tmm5, tmm6\n",
        )
    };
    ($dot:literal, 2, 2) => {
        concat!(
            tile!($dot, 1, 2),
            "tileloadd tmm5, [{a1} + {apart}*1]\n",
            $dot,
            " tmm2, tmm5, tmm6\n",
            $dot,
            " tmm3, tmm5, tmm7\n",
        )
    };
}

/// Writes the sums of so many tiles of rows and panels.
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

/// Where tiles of rows begin, and how far apart rows are; where panels begin; which codes are
/// multiplied.
pub(super) struct Sources {
    pub(super) a: [*const i8; 2],
    pub(super) apart: usize,
    pub(super) b: [*const i8; 2],
    pub(super) walk: Walk,
}

/// A product of so many tiles of rows and panels.
macro_rules! product {
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
            apart = in(reg) $sources.apart,
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

/// Multiplies `M` tiles of rows by `V` panels, two at most. Codes of rows are `FLIPPED`: unsigned,
/// with 128 added.
///
/// # Safety
/// There are `M` tiles of as many rows as the [configuration](Tiles) has: each row has lines as the
/// walk says, with as many steps in each tile as the configuration has. `V` panels have as many
/// steps, and so have their last tiles, if there are any. There are one line and one tile or more.
pub(super) unsafe fn product<const M: usize, const V: usize, const FLIPPED: bool>(
    _: &Tiles,
    sources: &Sources,
    sums: &mut Sums,
) {
    // SAFETY: the caller's promise; the assembly reads what it says, writes as many sums as there
    // are rows, and keeps the stack.
    unsafe {
        match (M, V, FLIPPED) {
            (1, 1, false) => product!("tdpbssd", 1, 1, sources, sums),
            (1, _, false) => product!("tdpbssd", 1, 2, sources, sums),
            (_, 1, false) => product!("tdpbssd", 2, 1, sources, sums),
            (_, _, false) => product!("tdpbssd", 2, 2, sources, sums),
            (1, 1, true) => product!("tdpbusd", 1, 1, sources, sums),
            (1, _, true) => product!("tdpbusd", 1, 2, sources, sums),
            (_, 1, true) => product!("tdpbusd", 2, 1, sources, sums),
            (_, _, true) => product!("tdpbusd", 2, 2, sources, sums),
        }
    }
}
