//! Mutation tests of the parsers of images, arrays and ETRecords: each mutated file is parsed or
//! refused, without a panic and within the memory limits.

use crate::budget::Budget;
use crate::profile::source::Source;
use crate::{image_input, npy};
use image::{DynamicImage, ImageFormat};
use std::io::{Cursor, Write};

/// Mutants per file.
const ROUNDS: usize = 400;

/// Mutates bytes: bit flips, extreme values, truncation, copied ranges.
fn damage(bytes: &mut Vec<u8>, random: &mut u64) {
    let mut below = |bound: usize| {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        (*random % bound.max(1) as u64) as usize
    };
    for _ in 0..1 + below(6) {
        let (at, other) = (below(bytes.len()), below(bytes.len()));
        let len = (1 + below(16)).min(bytes.len() - at.max(other));
        match below(5) {
            0 => bytes[at] ^= 1 << below(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][below(5)],
            2 => bytes[at..at + len].fill(0xff),
            3 => bytes.copy_within(at..at + len, other),
            _ if bytes.len() > 32 && below(4) == 0 => bytes.truncate(at.max(16)),
            _ => bytes[at] = bytes[at].wrapping_add(1),
        }
    }
}

/// Parses a valid file, then its mutants.
fn campaign(original: &[u8], mut parse: impl FnMut(&[u8]) -> bool) {
    assert!(parse(original), "the file itself is refused");
    let mut random = 0x9e37_79b9_7f4a_7c15;
    let mut refused = 0;
    for _ in 0..ROUNDS {
        let mut bytes = original.to_vec();
        damage(&mut bytes, &mut random);
        refused += usize::from(!parse(&bytes));
    }
    assert!(refused > 0, "no damage was noticed");
}

#[test]
fn damaged_images_are_images_or_errors() {
    let points = (0..24 * 17 * 3).map(|at| (at * 37 % 251) as u8).collect();
    let image = image::RgbImage::from_raw(24, 17, points).unwrap();
    for format in [ImageFormat::Png, ImageFormat::Jpeg] {
        let mut file = Cursor::new(Vec::new());
        DynamicImage::ImageRgb8(image.clone()).write_to(&mut file, format).unwrap();
        campaign(file.get_ref(), |bytes| image_input::open(bytes).is_ok());
    }
}

#[test]
fn damaged_archives_are_arrays_or_errors() {
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 5), }";
    let header = format!("{header:<117}\n");
    let mut array = b"\x93NUMPY\x01\x00".to_vec();
    array.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    array.extend(header.bytes());
    array.extend([0; 60]);
    let folder = std::env::temp_dir().join(format!("torchlet-damaged-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("damaged.npz");
    for method in [zip::CompressionMethod::Stored, zip::CompressionMethod::Deflated] {
        let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        for name in ["a.npy", "b.npy"] {
            archive.start_file(name, options).unwrap();
            archive.write_all(&array).unwrap();
        }
        let file = archive.finish().unwrap();
        campaign(file.get_ref(), |bytes| {
            std::fs::write(&path, bytes).unwrap();
            npy::read_archive(&path, &mut Budget::new(1)).is_ok()
        });
    }
    campaign(&array, |bytes| {
        std::fs::write(&path, bytes).unwrap();
        npy::read(&path, &mut Budget::new(1)).is_ok()
    });
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn damaged_etrecords_are_sources_or_errors() {
    let node = |operator: &str, handle: usize, module: &str| {
        serde_json::json!({
            "target": format!("executorch.exir.dialects.edge.ops.{operator}"),
            "metadata": {
                "debug_handle": handle.to_string(),
                "nn_module_stack": format!("L__self__{module},{module},torch.nn.Linear"),
            },
        })
    };
    let nodes = [node("aten.linear.default", 1, "body"), node("aten.relu.default", 2, "act")];
    let graph = serde_json::json!({ "graph_module": { "graph": { "nodes": nodes } } });
    let handles = r#"{"forward": {"0": [1, 2], "1": 2}}"#;
    let delegates = r#"{"forward": {"0": {"name": "A", "delegate_map": {"0": [1], "7": [2]}}}}"#;
    let folder = std::env::temp_dir().join(format!("torchlet-records-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("etrecord.bin");
    for method in [zip::CompressionMethod::Stored, zip::CompressionMethod::Deflated] {
        let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        for (name, text) in [
            ("debug_handle_map", handles),
            ("edge_dialect_exported_program/forward", &graph.to_string()),
            ("delegate_map", delegates),
        ] {
            archive.start_file(name, options).unwrap();
            archive.write_all(text.as_bytes()).unwrap();
        }
        let file = archive.finish().unwrap();
        campaign(file.get_ref(), |bytes| {
            std::fs::write(&path, bytes).unwrap();
            Source::read(&path, None).is_ok()
        });
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
