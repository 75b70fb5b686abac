//! Tiling of images, as the processors of vision-language models do it.

use super::{Filter, RgbImage};
use crate::error::Error;

/// Maximum number of tiles per image. Each tile occupies positions in the context.
const MAX_TILES: usize = 64;

/// Tiling algorithm: how an image is split into tiles of the encoder's input size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tiling {
    /// At most this many tiles. The image is scaled with its aspect ratio and placed in the top
    /// left corner of a black canvas of whole tiles. Used by Llama 3.2 Vision (`tile_crop`,
    /// `MllamaImageProcessor`).
    Canvas(usize),
    /// At most this many tiles, in the grid whose aspect ratio is closest to the image's. The image
    /// is stretched to the grid. If the grid has several tiles, a thumbnail of the whole image
    /// follows. Used by InternVL (`dynamic_preprocess`).
    Closest(usize),
    /// This many tiles along the longer side, for images of any size. The image is stretched to
    /// whole tiles, and a thumbnail of the whole image follows. Text between the tiles identifies
    /// them. Used by Idefics 3 and SmolVLM (`Idefics3Processor`).
    Rows(usize),
}

/// Part of an image in a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text with names of special tokens.
    Text(String),
    /// Image for the encoder.
    Tile(RgbImage),
}

impl Tiling {
    fn count(self) -> usize {
        match self {
            Tiling::Canvas(count) | Tiling::Closest(count) | Tiling::Rows(count) => count,
        }
    }

    /// Maximum number of tiles, including the thumbnail.
    pub fn max_tiles(self) -> usize {
        match self {
            Tiling::Canvas(count) => count,
            Tiling::Closest(count) => count.saturating_add(1),
            Tiling::Rows(count) => count.saturating_mul(count).saturating_add(1),
        }
    }

    fn check(self) -> Result<(), Error> {
        match self.count() > 0 && self.max_tiles() <= MAX_TILES + 1 {
            true => Ok(()),
            false => Err(Error::Setting {
                name: "tiles",
                value: self.count().to_string(),
                expected: "from 1 to 64, or from 1 to 8 for rows",
            }),
        }
    }
}

impl RgbImage {
    /// Splits the image into tiles of `size` (width, height), in row-major order.
    ///
    /// # Errors
    /// The number of tiles is 0 or too large, or `size` is not square.
    pub fn tiles(&self, size: [usize; 2], tiling: Tiling) -> Result<Vec<Piece>, Error> {
        tiling.check()?;
        let [width, height] = size;
        // Guarantees a divisor above 0, and no overflow below.
        super::bytes_of(width, height)?;
        if width != height {
            let message =
                format!("tiles must be square, but the encoder expects {width}×{height} pixels");
            return Err(Error::Image { message });
        }
        match tiling {
            Tiling::Canvas(most) => self.on_canvas(width, most),
            Tiling::Closest(most) => self.closest(width, most),
            Tiling::Rows(across) => self.in_rows(width, across),
        }
    }

    /// Splits an image whose sides are multiples of the tile size.
    fn cut(&self, side: usize) -> Result<Vec<Piece>, Error> {
        let mut pieces = Vec::new();
        for top in (0..self.height).step_by(side) {
            for left in (0..self.width).step_by(side) {
                pieces.push(Piece::Tile(self.crop([left, top], [side, side])?));
            }
        }
        Ok(pieces)
    }

    fn on_canvas(&self, side: usize, most: usize) -> Result<Vec<Piece>, Error> {
        let [width, height] = canvas([self.width, self.height], side, most);
        let [wide, high] = fitting([self.width, self.height], side, [width, height]);
        self.resized(wide, high, Filter::Bilinear)?.pad_black([width, height])?.cut(side)
    }

    fn closest(&self, side: usize, most: usize) -> Result<Vec<Piece>, Error> {
        let [columns, rows] = closest_grid([self.width, self.height], side, most);
        let whole = self.resized(columns * side, rows * side, Filter::Bicubic)?;
        let mut pieces = whole.cut(side)?;
        if pieces.len() > 1 {
            pieces.push(Piece::Tile(self.resized(side, side, Filter::Bicubic)?));
        }
        Ok(pieces)
    }

    fn in_rows(&self, side: usize, across: usize) -> Result<Vec<Piece>, Error> {
        let [wide, high] = size_with_longest_side([self.width, self.height], side * across);
        let first = self.resized(wide, high, Filter::Lanczos)?;
        let [wide, high] = whole_tiles([wide, high], side);
        let whole = first.resized(wide, high, Filter::Lanczos)?;
        let text = |text: String| Piece::Text(text);
        let mut pieces = Vec::new();
        if whole.width > side || whole.height > side {
            let columns = whole.width / side;
            for (number, tile) in whole.cut(side)?.into_iter().enumerate() {
                let (row, column) = (number / columns, number % columns);
                let line = if row > 0 && column == 0 { "\n" } else { "" };
                let place = format!("<row_{}_col_{}>", row + 1, column + 1);
                pieces.push(text(format!("{line}{TILE_MARKER}{place}")));
                pieces.push(tile);
            }
            pieces.push(text(format!("\n\n{TILE_MARKER}{THUMBNAIL_MARKER}")));
        } else {
            pieces.push(text(format!("{TILE_MARKER}{THUMBNAIL_MARKER}")));
        }
        pieces.push(Piece::Tile(whole.resized(side, side, Filter::Lanczos)?));
        pieces.push(text(TILE_MARKER.to_owned()));
        Ok(pieces)
    }
}

/// Special tokens of Idefics 3 around tiles, and before the thumbnail.
const TILE_MARKER: &str = "<fake_token_around_image>";
const THUMBNAIL_MARKER: &str = "<global-img>";

/// All grids, as columns and rows, of at most `most` tiles.
fn grids(most: usize) -> impl Iterator<Item = [usize; 2]> {
    let rows = move |columns: usize| (1..=most / columns).map(move |rows| [columns, rows]);
    (1..=most).flat_map(rows)
}

/// Canvas size for an image: the one that enlarges it least, or else reduces it least. Ties go to
/// the smallest canvas.
fn canvas(picture: [usize; 2], side: usize, most: usize) -> [usize; 2] {
    let scale = |canvas: [usize; 2]| {
        let [wide, high] = [0, 1].map(|at| canvas[at] as f64 / picture[at] as f64);
        wide.min(high)
    };
    let canvases: Vec<[usize; 2]> =
        grids(most).map(|tiles| tiles.map(|count| count * side)).collect();
    let scales = || canvases.iter().map(|canvas| scale(*canvas));
    let enlarged = scales().filter(|scale| *scale >= 1.0).min_by(f64::total_cmp);
    let chosen = enlarged.or_else(|| scales().max_by(f64::total_cmp));
    let best = canvases.iter().filter(|canvas| Some(scale(**canvas)) == chosen);
    best.min_by_key(|canvas| canvas[0] * canvas[1]).copied().unwrap_or([side; 2])
}

/// Size of an image on its canvas: scaled to fit, but not enlarged beyond the tile size.
fn fitting(picture: [usize; 2], side: usize, canvas: [usize; 2]) -> [usize; 2] {
    let target = [0, 1].map(|at| picture[at].max(side).min(canvas[at]));
    let [wide, high] = [0, 1].map(|at| target[at] as f64 / picture[at] as f64);
    let scaled =
        |at: usize, scale: f64| ((picture[at] as f64 * scale) as usize).clamp(1, target[at]);
    match wide < high {
        true => [target[0], scaled(1, wide)],
        false => [scaled(0, high), target[1]],
    }
}

/// The grid whose aspect ratio is closest to the image's. Ties go to the smallest grid, or to a
/// larger one if the image has enough pixels.
fn closest_grid(picture: [usize; 2], side: usize, most: usize) -> [usize; 2] {
    let ratio = |[wide, high]: [usize; 2]| wide as f64 / high as f64;
    let (own, area) = (ratio(picture), picture[0] as f64 * picture[1] as f64);
    let mut all: Vec<[usize; 2]> = grids(most).collect();
    all.sort_by_key(|tiles| tiles[0] * tiles[1]);
    let (mut least, mut best) = (f64::INFINITY, [1, 1]);
    for tiles in all {
        let difference = (own - ratio(tiles)).abs();
        let room = 0.5 * (side * side) as f64 * (tiles[0] * tiles[1]) as f64;
        if difference < least || (difference == least && area > room) {
            (least, best) = (difference, tiles);
        }
    }
    best
}

/// Image size with `pixels` pixels on the longer side. The other side is even.
fn size_with_longest_side([width, height]: [usize; 2], pixels: usize) -> [usize; 2] {
    let ratio = width as f64 / height as f64;
    let even = |pixels: f64| (pixels as usize).next_multiple_of(2).max(1);
    let [wide, high] = match width >= height {
        true => [pixels, even(pixels as f64 / ratio)],
        false => [even(pixels as f64 * ratio), pixels],
    };
    [wide.max(1), high.max(1)]
}

/// Rounds an image size up to whole tiles. The shorter side keeps the aspect ratio first.
fn whole_tiles([width, height]: [usize; 2], side: usize) -> [usize; 2] {
    let ratio = width as f64 / height as f64;
    let whole = |pixels: usize| pixels.max(1).next_multiple_of(side);
    match width >= height {
        true => {
            let wide = whole(width);
            [wide, whole((wide as f64 / ratio) as usize)]
        }
        false => {
            let high = whole(height);
            [whole((high as f64 * ratio) as usize), high]
        }
    }
}
