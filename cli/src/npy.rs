//! NumPy files: `.npy` holds one array, `.npz` is an archive of several.

use crate::budget::Budget;
use crate::failure::Failure;
use std::borrow::Cow;
use std::io::Read;
use std::path::Path;
use torchlet::{ScalarType, Tensor};

const MAGIC: &[u8] = b"\x93NUMPY";

/// NumPy names of element types. Types that NumPy lacks are written as raw bytes (`V`).
const TYPES: &[(&str, ScalarType)] = &[
    ("b1", ScalarType::Bool),
    ("u1", ScalarType::Byte),
    ("i1", ScalarType::Char),
    ("i2", ScalarType::Short),
    ("i4", ScalarType::Int),
    ("i8", ScalarType::Long),
    ("u2", ScalarType::UInt16),
    ("u4", ScalarType::UInt32),
    ("u8", ScalarType::UInt64),
    ("f2", ScalarType::Half),
    ("f4", ScalarType::Float),
    ("f8", ScalarType::Double),
    ("c8", ScalarType::ComplexFloat),
    ("c16", ScalarType::ComplexDouble),
    // As `ml_dtypes` writes it.
    ("V2", ScalarType::BFloat16),
];

/// Returns the text between `start` and `end` after a key.
fn field<'h>(header: &'h str, key: &str, start: char, end: char) -> Option<&'h str> {
    let after = header.split_once(&format!("'{key}'"))?.1;
    let after = after.trim_start().strip_prefix(':')?.trim_start().strip_prefix(start)?;
    Some(after.split_once(end)?.0)
}

/// Parses a `.npy` file.
fn parse(bytes: &[u8]) -> Result<Tensor, String> {
    let bad = |what: &str| format!("not a valid .npy file ({what})");
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| bad("the magic bytes are missing"))?;
    let (&[major, _], rest) = rest.split_first_chunk::<2>().ok_or_else(|| bad("truncated"))?;
    let (header_len, rest) = if major == 1 {
        let (len, rest) = rest.split_first_chunk::<2>().ok_or_else(|| bad("truncated"))?;
        (usize::from(u16::from_le_bytes(*len)), rest)
    } else {
        let (len, rest) = rest.split_first_chunk::<4>().ok_or_else(|| bad("truncated"))?;
        (usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX), rest)
    };
    let (header, data) = rest.split_at_checked(header_len).ok_or_else(|| bad("truncated"))?;
    let header = std::str::from_utf8(header).map_err(|_| bad("header"))?;

    let descr = field(header, "descr", '\'', '\'').ok_or_else(|| bad("descr"))?;
    let (order, name) = descr.split_at_checked(1).ok_or_else(|| bad("descr"))?;
    let scalar_type = TYPES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, scalar_type)| *scalar_type)
        .ok_or_else(|| format!("NumPy dtype '{descr}' is not supported; convert the array"))?;
    let swapped = order == if cfg!(target_endian = "big") { "<" } else { ">" };
    let fortran = match header.split_once("'fortran_order'") {
        Some((_, after)) => after.trim_start_matches([':', ' ']).starts_with("True"),
        None => return Err(bad("no fortran_order")),
    };
    let shape = field(header, "shape", '(', ')').ok_or_else(|| bad("shape"))?;
    let shape: Vec<usize> = shape
        .split(',')
        .map(str::trim)
        .filter(|size| !size.is_empty())
        .map(|size| size.parse().map_err(|_| bad("shape")))
        .collect::<Result<_, _>>()?;

    let size = scalar_type.size();
    let count = shape.iter().try_fold(size, |product, size| product.checked_mul(*size));
    let data = count.and_then(|count| data.get(..count)).ok_or_else(|| bad("too few elements"))?;
    let mut data = Cow::Borrowed(data);
    if swapped {
        let part = if name.starts_with('c') { size / 2 } else { size };
        data.to_mut().chunks_exact_mut(part).for_each(<[u8]>::reverse);
    }
    let tensor = |shape: &[usize]| {
        Tensor::from_bytes(scalar_type, shape, &data).map_err(|error| error.to_string())
    };
    if !fortran {
        return tensor(&shape);
    }
    // Fortran order is the memory layout of the transposed array.
    let reversed: Vec<usize> = shape.iter().rev().copied().collect();
    let dims: Vec<u8> = (0..shape.len() as u8).rev().collect();
    tensor(&reversed)?.permute(&dims).map_err(|error| error.to_string())
}

fn in_file(path: &Path, what: impl std::fmt::Display) -> Failure {
    Failure::new(format!("'{}': {what}", path.display()))
}

/// Reads a `.npy` file. Its size counts against the budget.
pub(crate) fn read(path: &Path, budget: &mut Budget) -> Result<Tensor, Failure> {
    let bytes = budget.read(path)?;
    parse(&bytes).map_err(|what| in_file(path, what))
}

/// Reads all arrays of a `.npz` file, in its order.
pub(crate) fn read_archive(path: &Path, budget: &mut Budget) -> Result<Vec<Tensor>, Failure> {
    Ok(read_named(path, budget)?.into_iter().map(|(_, tensor)| tensor).collect())
}

/// Reads all arrays of a `.npz` file with their names. Sizes count against the budget: a small
/// compressed archive can hold large arrays.
pub(crate) fn read_named(
    path: &Path,
    budget: &mut Budget,
) -> Result<Vec<(String, Tensor)>, Failure> {
    // Archives are read from their end, which a pipe does not have before its writer ends.
    let file = torchlet_cache::open_regular(path).map_err(|error| in_file(path, error))?;
    let mut archive = zip::ZipArchive::new(file).map_err(|error| in_file(path, error))?;
    let mut tensors = Vec::new();
    for index in 0..archive.len() {
        let entry = archive.by_index(index).map_err(|error| in_file(path, error))?;
        let name = entry.name().map_err(|error| in_file(path, error))?;
        let name = name.trim_end_matches(".npy").to_owned();
        let size = usize::try_from(entry.size()).unwrap_or(usize::MAX);
        budget.take(size, format!("'{}': array '{name}'", path.display()))?;
        let mut bytes = Vec::new();
        // The size in the archive may be wrong.
        let read = entry.take(size as u64).read_to_end(&mut bytes);
        read.map_err(|error| in_file(path, error))?;
        tensors.push((name, parse(&bytes).map_err(|what| in_file(path, what))?));
    }
    Ok(tensors)
}

/// Encodes a tensor as a `.npy` file in row-major order. bfloat16, which NumPy lacks, is converted
/// to float32; other types that NumPy lacks are stored as raw bytes.
fn encode(tensor: &Tensor) -> Result<Vec<u8>, torchlet::Error> {
    let tensor = match tensor.scalar_type() {
        ScalarType::BFloat16 => tensor.to_type(ScalarType::Float)?,
        _ => tensor.to_contiguous()?,
    };
    let scalar_type = tensor.scalar_type();
    let name = TYPES.iter().find(|(_, known)| *known == scalar_type).map(|(name, _)| *name);
    let order = match scalar_type.size() {
        1 => '|',
        _ if cfg!(target_endian = "big") => '>',
        _ => '<',
    };
    let name = match name {
        Some(name) => format!("{order}{name}"),
        None => format!("|V{}", scalar_type.size()),
    };
    let mut shape: String = tensor.shape().iter().map(|size| format!("{size}, ")).collect();
    if tensor.rank() > 1 {
        shape.truncate(shape.len() - 2);
    }
    let mut header =
        format!("{{'descr': '{name}', 'fortran_order': False, 'shape': ({}), }}", shape.trim_end());
    // The data is aligned to 64 bytes.
    let unpadded = MAGIC.len() + 4 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(64) - unpadded));
    header.push('\n');
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(tensor.bytes());
    Ok(bytes)
}

/// Writes a tensor to a `.npy` file.
pub(crate) fn write(path: &Path, tensor: &Tensor) -> Result<(), Failure> {
    std::fs::write(path, encode(tensor)?)
        .map_err(|error| Failure::new(format!("cannot write '{}': {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(text: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn tensors_round_trip() {
        for shape in [&[][..], &[3], &[0], &[2, 3], &[1, 2, 3, 4]] {
            for number in 0..30 {
                let scalar_type = ScalarType::from_number(number).unwrap();
                let Ok(tensor) = Tensor::ones(scalar_type, shape) else { continue };
                let bytes = encode(&tensor).unwrap();
                let back = parse(&bytes).unwrap();
                if scalar_type == ScalarType::BFloat16 {
                    assert_eq!(back, tensor.to_type(ScalarType::Float).unwrap());
                } else {
                    assert_eq!(back, tensor);
                }
                assert_eq!((bytes.len() - tensor.bytes().len().max(back.bytes().len())) % 64, 0);
                for len in 0..bytes.len() {
                    let cut = parse(&bytes[..len]);
                    assert!(cut.is_err() || tensor.numel() == 0, "{len}");
                }
            }
        }
    }

    #[test]
    fn headers_as_numpy_writes_them() {
        let tensor = Tensor::from_slice(&[2, 1], &[1.0f32, 2.0]).unwrap();
        let bytes = encode(&tensor).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }"));
        let one = encode(&Tensor::from_slice(&[1], &[true as u8]).unwrap()).unwrap();
        assert!(String::from_utf8_lossy(&one).contains("'descr': '|u1'"));
        assert!(String::from_utf8_lossy(&one).contains("'shape': (1,), }"));
    }

    #[cfg(unix)]
    #[test]
    fn archives_are_not_read_from_pipes() {
        let pipe = std::env::temp_dir().join(format!("torchlet-npz-{}", std::process::id()));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let error = read_archive(&pipe, &mut Budget::new(1)).unwrap_err().to_string();
        assert!(error.contains("a pipe"), "{error}");
        std::fs::remove_file(&pipe).unwrap();
    }

    #[test]
    fn column_major_and_big_endian_arrays_are_converted() {
        let text = "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }\n";
        let data: Vec<u8> = [1i16, 4, 2, 5, 3, 6].iter().flat_map(|x| x.to_be_bytes()).collect();
        let tensor = parse(&header(text, &data)).unwrap();
        assert_eq!(tensor.to_vec::<i16>().unwrap(), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn malformed_headers_are_errors() {
        for text in [
            "",
            "{'descr': '<f4'}",
            "{'descr': '', 'fortran_order': False, 'shape': (1,)}",
            "{'descr': '<M8', 'fortran_order': False, 'shape': (1,)}",
            "{'descr': 'é4', 'fortran_order': False, 'shape': (1,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4)}",
        ] {
            assert!(parse(&header(text, &[0; 64])).is_err(), "{text}");
        }
    }
}
