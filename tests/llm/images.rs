//! Image tiles are identical to those of Hugging Face's processors with Pillow
//! (`llm/export/images.py`).

use serde_json::Value;
use torchlet::llm::{Error, Filter, Piece, RgbImage, Tiling};

fn expected() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/llm/forms/images.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The script's test image: edges, gradients and noise.
fn picture(width: usize, height: usize) -> RgbImage {
    let point = |x: usize, y: usize, c: usize| {
        (x * x * 7 + y * 13 * (c + 1) + x * y * 3 + 80 * ((x / 9 + y / 5) % 2)) % 256
    };
    let row = |y| (0..width).flat_map(move |x| (0..3).map(move |c| point(x, y, c) as u8));
    RgbImage::from_rgb(width, height, (0..height).flat_map(row).collect()).unwrap()
}

/// CRC-32, as in `zlib.crc32`.
fn checksum(bytes: &[u8]) -> u64 {
    let byte = |sum: u32, byte: &u8| {
        let shift = |sum: u32, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg());
        (0..8).fold(sum ^ u32::from(*byte), shift)
    };
    u64::from(!bytes.iter().fold(u32::MAX, byte))
}

fn described(picture: &RgbImage) -> [u64; 3] {
    [picture.width() as u64, picture.height() as u64, checksum(picture.as_rgb())]
}

fn numbers(value: &Value) -> Vec<[u64; 3]> {
    let tile = |tile: &Value| [0, 1, 2].map(|at| tile[at].as_u64().unwrap());
    value.as_array().unwrap().iter().map(tile).collect()
}

fn tiles(pieces: &[Piece]) -> Vec<[u64; 3]> {
    let tile = |piece: &Piece| match piece {
        Piece::Tile(picture) => Some(described(picture)),
        Piece::Text(_) => None,
    };
    pieces.iter().filter_map(tile).collect()
}

#[test]
fn tiles_match_hugging_faces_processors() {
    let expected = expected();
    let side = expected["side"].as_u64().unwrap() as usize;
    for case in expected["cases"].as_array().unwrap() {
        let size = ["width", "height"].map(|name| case[name].as_u64().unwrap() as usize);
        let picture = picture(size[0], size[1]);
        for (name, filter) in [
            ("bilinear", Filter::Bilinear),
            ("bicubic", Filter::Bicubic),
            ("lanczos", Filter::Lanczos),
        ] {
            let found = picture.resized(61, 23, filter).unwrap();
            let expected = case["resized"][name].as_u64().unwrap();
            assert_eq!(described(&found), [61, 23, expected], "{size:?} {name}");
        }
        let check = |name: &str, tiling: fn(usize) -> Tiling| {
            for (most, expected) in case[name].as_object().unwrap() {
                let tiling = tiling(most.parse().unwrap());
                let pieces = picture.tiles([side, side], tiling).unwrap();
                let expected = expected.get("tiles").unwrap_or(expected);
                assert_eq!(tiles(&pieces), numbers(expected), "{size:?} {tiling:?}");
                assert!(tiles(&pieces).len() <= tiling.max_tiles(), "{size:?} {tiling:?}");
            }
        };
        check("canvas", Tiling::Canvas);
        check("closest", Tiling::Closest);
        check("rows", Tiling::Rows);
    }
}

/// The prompt text of `Idefics3Processor`, where `#` stands for a tile's tokens.
#[test]
fn prompt_text_locates_the_tiles() {
    let text = |width, height, across| {
        let pieces = picture(width, height).tiles([8, 8], Tiling::Rows(across)).unwrap();
        let text = pieces.iter().map(|piece| match piece {
            Piece::Text(text) => text.as_str(),
            Piece::Tile(_) => "#",
        });
        text.collect::<String>()
    };
    let fake = "<fake_token_around_image>";
    assert_eq!(text(8, 8, 1), format!("{fake}<global-img>#{fake}"));
    assert_eq!(
        text(20, 19, 2),
        format!(
            "{fake}<row_1_col_1>#{fake}<row_1_col_2>#\n{fake}<row_2_col_1>#{fake}<row_2_col_2>#\n\n{fake}<global-img>#{fake}"
        )
    );
}

#[test]
fn invalid_images_are_errors() {
    let is_refused = |result: Result<Vec<Piece>, Error>| match result {
        Err(Error::Image { message }) => message,
        Err(other) => other.to_string(),
        Ok(_) => panic!("it should be refused"),
    };
    assert!(RgbImage::from_rgb(2, 2, vec![0; 11]).is_err());
    assert!(RgbImage::from_rgb(0, 2, Vec::new()).is_err());
    assert!(RgbImage::from_rgb(usize::MAX, 2, Vec::new()).is_err());
    let small = picture(4, 4);
    assert!(is_refused(small.tiles([8, 9], Tiling::Canvas(4))).contains("square"));
    for tiling in [Tiling::Canvas(0), Tiling::Closest(65), Tiling::Rows(9), Tiling::Rows(1 << 40)] {
        assert!(is_refused(small.tiles([8, 8], tiling)).contains("tiles"), "{tiling:?}");
    }
    assert!(is_refused(small.tiles([1 << 14, 1 << 14], Tiling::Rows(8))).contains("pixels"));
    assert!(is_refused(small.tiles([0, 0], Tiling::Canvas(4))).contains("pixels"));
    // A thin image becomes a tile, too.
    let line = RgbImage::from_rgb(9000, 1, vec![200; 27_000]).unwrap();
    for tiling in [Tiling::Canvas(64), Tiling::Closest(64), Tiling::Rows(8)] {
        assert!(!line.tiles([8, 8], tiling).unwrap().is_empty());
    }
}
