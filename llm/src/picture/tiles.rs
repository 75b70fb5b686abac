//! How models want a picture cut into tiles.

use super::{Filter, Picture};
use crate::error::Error;

/// The most tiles of a picture: a prompt has a place for what an encoder makes of each.
const MAX_TILES: usize = 64;

/// How a picture becomes tiles of the size that a program's encoder takes, as the models' own
/// processors do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tiling {
    /// At most so many tiles of a canvas on which the picture lies as large as it can in the top
    /// left corner, undistorted; the rest is black. As Llama 3.2 Vision has it (`tile_crop`,
    /// `MllamaImageProcessor`).
    Canvas(usize),
    /// At most so many tiles, in the proportions that are the nearest to the picture's, which is
    /// stretched; where there are several, the whole picture as one more behind them. As InternVL
    /// has it (`dynamic_preprocess`).
    Closest(usize),
    /// So many tiles along the longer side, whatever the picture's size; the picture is stretched
    /// to whole tiles, and comes as a whole behind them. Text between says which tile is where. As
    /// Idefics 3 and SmolVLM have it (`Idefics3Processor`).
    Rows(usize),
}

/// A part of what stands for a picture in a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text, with names of special tokens.
    Text(String),
    /// What goes through the encoder.
    Tile(Picture),
}

impl Tiling {
    fn count(self) -> usize {
        match self {
            Tiling::Canvas(count) | Tiling::Closest(count) | Tiling::Rows(count) => count,
        }
    }

    /// The most tiles that there can be, the whole picture included.
    pub fn most(self) -> usize {
        match self {
            Tiling::Canvas(count) => count,
            Tiling::Closest(count) => count.saturating_add(1),
            Tiling::Rows(count) => count.saturating_mul(count).saturating_add(1),
        }
    }

    fn check(self) -> Result<(), Error> {
        match self.count() > 0 && self.most() <= MAX_TILES + 1 {
            true => Ok(()),
            false => Err(Error::Setting {
                name: "tiles",
                value: self.count().to_string(),
                expected: "from 1 to 64, of rows of tiles from 1 to 8",
            }),
        }
    }
}

impl Picture {
    /// The picture as tiles of `size`, width and height, in their order, row by row.
    ///
    /// # Errors
    /// There would be none or too many, or they are not square for a [`Tiling`] that has such
    /// alone.
    pub fn tiles(&self, size: [usize; 2], tiling: Tiling) -> Result<Vec<Piece>, Error> {
        tiling.check()?;
        let [width, height] = size;
        // So that what follows can divide by it, and count.
        super::bytes_of(width, height)?;
        if width != height {
            let message =
                format!("tiles are square, and the encoder takes {width}×{height} points");
            return Err(Error::Picture { message });
        }
        match tiling {
            Tiling::Canvas(most) => self.on_canvas(width, most),
            Tiling::Closest(most) => self.closest(width, most),
            Tiling::Rows(across) => self.in_rows(width, across),
        }
    }

    /// All tiles of a picture that consists of whole ones.
    fn cut(&self, side: usize) -> Result<Vec<Piece>, Error> {
        let mut pieces = Vec::new();
        for top in (0..self.height).step_by(side) {
            for left in (0..self.width).step_by(side) {
                pieces.push(Piece::Tile(self.part([left, top], [side, side])?));
            }
        }
        Ok(pieces)
    }

    fn on_canvas(&self, side: usize, most: usize) -> Result<Vec<Piece>, Error> {
        let [width, height] = canvas([self.width, self.height], side, most);
        let [wide, high] = fitting([self.width, self.height], side, [width, height]);
        self.resized(wide, high, Filter::Bilinear)?.on_black([width, height])?.cut(side)
    }

    fn closest(&self, side: usize, most: usize) -> Result<Vec<Piece>, Error> {
        let [columns, rows] = proportions([self.width, self.height], side, most);
        let whole = self.resized(columns * side, rows * side, Filter::Bicubic)?;
        let mut pieces = whole.cut(side)?;
        if pieces.len() > 1 {
            pieces.push(Piece::Tile(self.resized(side, side, Filter::Bicubic)?));
        }
        Ok(pieces)
    }

    fn in_rows(&self, side: usize, across: usize) -> Result<Vec<Piece>, Error> {
        let [wide, high] = longest([self.width, self.height], side * across);
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
                pieces.push(text(format!("{line}{AROUND}{place}")));
                pieces.push(tile);
            }
            pieces.push(text(format!("\n\n{AROUND}{GLOBAL}")));
        } else {
            pieces.push(text(format!("{AROUND}{GLOBAL}")));
        }
        pieces.push(Piece::Tile(whole.resized(side, side, Filter::Lanczos)?));
        pieces.push(text(AROUND.to_owned()));
        Ok(pieces)
    }
}

/// The special tokens of Idefics 3 around tiles, and in front of the whole picture.
const AROUND: &str = "<fake_token_around_image>";
const GLOBAL: &str = "<global-img>";

/// All numbers of columns and rows of at most so many tiles.
fn arrangements(most: usize) -> impl Iterator<Item = [usize; 2]> {
    let rows = move |columns: usize| (1..=most / columns).map(move |rows| [columns, rows]);
    (1..=most).flat_map(rows)
}

/// The size of the canvas on which a picture has the most points that are its own: that on which it
/// is enlarged the least, or else reduced the least; of equals, the smallest.
fn canvas(picture: [usize; 2], side: usize, most: usize) -> [usize; 2] {
    let scale = |canvas: [usize; 2]| {
        let [wide, high] = [0, 1].map(|at| canvas[at] as f64 / picture[at] as f64);
        wide.min(high)
    };
    let canvases: Vec<[usize; 2]> =
        arrangements(most).map(|tiles| tiles.map(|count| count * side)).collect();
    let scales = || canvases.iter().map(|canvas| scale(*canvas));
    let enlarged = scales().filter(|scale| *scale >= 1.0).min_by(f64::total_cmp);
    let chosen = enlarged.or_else(|| scales().max_by(f64::total_cmp));
    let best = canvases.iter().filter(|canvas| Some(scale(**canvas)) == chosen);
    best.min_by_key(|canvas| canvas[0] * canvas[1]).copied().unwrap_or([side; 2])
}

/// The size of a picture on its canvas: as large as it goes on, but no larger than it is where it
/// fills a tile.
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

/// The columns and rows in the proportions that are the nearest to a picture's: of equals, the
/// fewest, or more where the picture has points enough for them.
fn proportions(picture: [usize; 2], side: usize, most: usize) -> [usize; 2] {
    let ratio = |[wide, high]: [usize; 2]| wide as f64 / high as f64;
    let (own, area) = (ratio(picture), picture[0] as f64 * picture[1] as f64);
    let mut all: Vec<[usize; 2]> = arrangements(most).collect();
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

/// The size of a picture whose longer side has so many points; the other is even.
fn longest([width, height]: [usize; 2], points: usize) -> [usize; 2] {
    let ratio = width as f64 / height as f64;
    let even = |points: f64| (points as usize).next_multiple_of(2).max(1);
    let [wide, high] = match width >= height {
        true => [points, even(points as f64 / ratio)],
        false => [even(points as f64 * ratio), points],
    };
    [wide.max(1), high.max(1)]
}

/// The least whole tiles that a picture covers, and its other side in proportion to that.
fn whole_tiles([width, height]: [usize; 2], side: usize) -> [usize; 2] {
    let ratio = width as f64 / height as f64;
    let whole = |points: usize| points.max(1).next_multiple_of(side);
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
