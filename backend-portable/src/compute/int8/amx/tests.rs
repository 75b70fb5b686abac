//! Tests of the tiling of rows and lines. The tests of all instruction sets compare the results
//! with plain loops.

use super::*;
use crate::compute::int8::windows::Windows;
use std::vec;
use std::vec::Vec;
use torchlet_core::rules::window::Window;

#[test]
fn tiles_cover_each_step_once() {
    for lines in 1..4 {
        for line in 1..400 {
            let Some(depth) = KTiling::cut(line, lines) else {
                assert!(lines > 1, "a single line of {line} steps always fits");
                continue;
            };
            let (tiles, shared) = depth.tiles();
            let beside = shared.map_or(0, |shared| depth.steps - shared);
            assert!((1..=STEPS).contains(&depth.steps) && tiles > 0, "{line} {depth:?}");
            assert_eq!(tiles * depth.steps + beside, line, "{depth:?}");
            assert!(lines == 1 || shared.is_none(), "{depth:?}");
        }
    }
    assert!([12, 24, 36, 48, 96, 192].iter().all(|line| KTiling::cut(*line, 3).is_some()));
    assert!(KTiling::cut(37, 3).is_none(), "would need tiles of one step");
}

/// Returns the offset of each row in the blocks that cover `rows` rows. Asserts that the data has
/// all rows of each tile.
fn row_offsets(
    layout: &RowLayout,
    mut cursor: Cursor,
    rows: usize,
    bytes: usize,
    length: usize,
) -> Vec<usize> {
    let mut row_offsets = vec![];
    while row_offsets.len() < rows {
        let block = layout.block(&mut cursor, rows - row_offsets.len()).unwrap();
        row_offsets.extend(block.slots[..block.rows].iter().map(|slot| {
            let (slot, lane) = (usize::from(*slot) / LANES, usize::from(*slot) % LANES);
            let (tile, row) = (slot / (2 * HEIGHT), slot % (2 * HEIGHT));
            assert!(row < layout.height && tile < block.tiles && lane == 0);
            block.starts[tile] + row * layout.row_stride
        }));
        for start in &block.starts[..block.tiles] {
            assert!(start + (layout.height - 1) * layout.row_stride + length <= bytes);
        }
    }
    row_offsets
}

#[test]
fn tiles_have_each_row_once() {
    for (rows, stride, k) in [(1, 4, 4), (9, 8, 8), (16, 20, 12), (31, 64, 64), (100, 40, 40)] {
        let (bytes, depth) = ((rows - 1) * stride + k, KTiling::cut(k / STEP, 1).unwrap());
        let layout = RowLayout::of(bytes, depth, [stride, 0], true).unwrap();
        for first in [0, rows / 2, rows - 1] {
            let cursor = Cursor::of_rows(first * stride, stride);
            let wanted: Vec<usize> = (first..rows).map(|row| row * stride).collect();
            assert_eq!(
                row_offsets(&layout, cursor, rows - first, bytes, k),
                wanted,
                "{rows} {stride} {k}"
            );
        }
        assert_eq!(layout.height, rows.min(HEIGHT));
    }
}

#[test]
fn tiles_have_each_window_once() {
    let window =
        |kernel, stride, padding, dilation| Window::new(kernel, stride, padding, dilation).unwrap();
    for (input, axes) in [
        ([7, 7, 8], [window(3, 1, 1, 1), window(3, 1, 1, 1)]),
        ([14, 14, 4], [window(3, 2, 1, 1), window(3, 2, 1, 1)]),
        ([30, 33, 4], [window(3, 1, 1, 2), window(3, 1, 1, 1)]),
        ([5, 40, 12], [window(3, 1, 0, 1), window(2, 1, 0, 1)]),
        ([6, 5, 4], [window(2, 3, 1, 1), window(3, 1, 2, 1)]),
    ] {
        let windows = Windows::new(input, axes).unwrap();
        let padded = windows.padded().unwrap();
        let (batch, line) = (3, axes[1].kernel() * input[2]);
        let (bytes, rows) = (batch * padded.len, batch * windows.count());
        let (row_stride, line_stride) = (axes[1].stride() * input[2], padded.line_stride(&windows));
        let depth = KTiling::cut(line / STEP, axes[0].kernel()).unwrap();
        let layout = RowLayout::of(bytes, depth, [row_stride, line_stride], false).unwrap();
        let length = (axes[0].kernel() - 1) * line_stride + line;
        for first in [0, 1, rows / 2, rows - 1] {
            let cursor = Cursor::new(&windows, padded, first);
            let mut each = cursor;
            let wanted: Vec<usize> = (first..rows)
                .map(|_| {
                    let start = each.start();
                    each.advance();
                    start
                })
                .collect();
            assert_eq!(
                row_offsets(&layout, cursor, rows - first, bytes, length),
                wanted,
                "{input:?}"
            );
        }
    }
}
