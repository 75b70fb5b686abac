//! Recognizes files of other formats that are opened as programs or as external weights.
//!
//! Typical cases are checkpoints, exports for other runtimes and failed downloads. The first bytes
//! identify the format, and each format has a different remedy.

use crate::files::Role;

/// Actual format of a file that was expected to be something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Foreign {
    /// Name of the format, with an article.
    pub(crate) found: &'static str,
    /// What the user can do.
    pub(crate) remedy: &'static str,
}

const EXPORT: &str = "export the model with ExecuTorch: torch.export.export(model, inputs), \
    to_edge_transform_and_lower(...).to_executorch(), and write its buffer to a .pte file";
const LOAD: &str = "load it into the model in Python, then export the model with ExecuTorch";
const DOWNLOAD: &str = "download the file itself";

/// Recognizes the format of a file that does not match `role`.
pub(crate) fn recognize(bytes: &[u8], role: Role) -> Option<Foreign> {
    let is = |at: usize, magic: &[u8]| bytes.get(at..).is_some_and(|rest| rest.starts_with(magic));
    let of = |found, remedy| Some(Foreign { found, remedy });
    if bytes.is_empty() {
        return of("an empty file", "write or download it again");
    }
    if is(0, b"version https://git-lfs.github.com/") {
        return of(
            "a Git LFS pointer",
            "run `git lfs pull` in its repository, or download the file itself",
        );
    }
    if is_html(bytes) {
        return of("an HTML page", DOWNLOAD);
    }
    if is(0, b"PK\x03\x04") {
        return Some(archive(bytes, role));
    }
    if is(0, b"GGUF") {
        return of(
            "a GGUF file",
            "export the original PyTorch model with ExecuTorch; GGUF contains only weights",
        );
    }
    if is(4, b"TFL3") {
        return of("a TensorFlow Lite model", EXPORT);
    }
    if role == Role::Data && (is(4, b"ET12") || is(4, b"BP08")) {
        return of("a program", "pass external weights, or omit the file");
    }
    if role == Role::Program && is(4, b"FT01") {
        return of(
            "a .ptd file of external weights",
            "open the program, and pass this file as data (`--data`)",
        );
    }
    if is(4, b"ED00") {
        return of("an ETDump of a run", "open the program; `torchlet profile --from` shows dumps");
    }
    if is_safetensors(bytes) {
        return of("a safetensors file of weights", LOAD);
    }
    if is(0, b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19") {
        return of("a PyTorch checkpoint from before version 1.6", LOAD);
    }
    if is_onnx(bytes) {
        return of("an ONNX model", EXPORT);
    }
    if is(0, b"\x93NUMPY") {
        return of("a NumPy array", "open the program, and pass this file with --input");
    }
    if is(0, b"\x1f\x8b") || is(0, b"\x28\xb5\x2f\xfd") || is(257, b"ustar") {
        return of("a compressed file or an archive", "unpack it");
    }
    None
}

/// PyTorch files are ZIP archives. Their entry names, listed at the end of the archive, identify
/// the format.
fn archive(bytes: &[u8], role: Role) -> Foreign {
    const LIST: usize = 1 << 16;
    let (front, _) = bytes.split_at(bytes.len().min(LIST));
    let (_, end) = bytes.split_at(bytes.len().saturating_sub(LIST));
    let has = |name: &str| {
        let is_name = |window: &[u8]| window == name.as_bytes();
        [end, front].into_iter().any(|part| part.windows(name.len()).any(is_name))
    };
    let (found, remedy) = if has("ETRECORD_V0") {
        ("an ETRecord", "open the program, and pass this file with --etrecord")
    } else if has("/archive_format") || has("exported_program.json") {
        let remedy = match role {
            Role::Program => FROM_PT2,
            Role::Data => "open it as the program",
        };
        ("an exported program of torch.export.save (.pt2)", remedy)
    } else if has("/code/__torch__") {
        ("a TorchScript program", LOAD)
    } else if has("/data.pkl") {
        ("a PyTorch checkpoint of torch.save (.pt, .pth)", LOAD)
    } else if has(".npy") {
        ("an archive of NumPy arrays", "open the program, and pass this file with --input")
    } else {
        ("a ZIP archive", "unpack it, or export the model with ExecuTorch")
    };
    Foreign { found, remedy }
}

/// With the feature `pt2`, only damaged archives arrive here.
const FROM_PT2: &str = if cfg!(feature = "pt2") {
    "the archive is damaged or incomplete; save or download it again"
} else {
    "enable the feature `pt2` of torchlet, or lower it with ExecuTorch: \
     to_edge_transform_and_lower(torch.export.load(file)).to_executorch(), and write its buffer \
     to a .pte file"
};

fn is_html(bytes: &[u8]) -> bool {
    let text = bytes.trim_ascii_start();
    let starts = |begin: &[u8]| {
        text.get(..begin.len()).is_some_and(|front| front.eq_ignore_ascii_case(begin))
    };
    starts(b"<!doctype html") || starts(b"<html")
}

/// A safetensors file starts with the length of its JSON header.
fn is_safetensors(bytes: &[u8]) -> bool {
    let Some((len, rest)) = bytes.split_first_chunk::<8>() else { return false };
    let len = usize::try_from(u64::from_le_bytes(*len)).unwrap_or(usize::MAX);
    rest.starts_with(b"{") && rest.len() >= len
}

/// An ONNX file is a protobuf message. Its first field is the format version, a small integer; the
/// next is a name, a graph or an operator set.
fn is_onnx(bytes: &[u8]) -> bool {
    matches!(bytes, [0x08, 1..=30, 0x12 | 0x1a | 0x22 | 0x32 | 0x3a | 0x42, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Start of a ZIP archive whose first entry is called `name`.
    fn zip(name: &str) -> Vec<u8> {
        let mut bytes = b"PK\x03\x04".to_vec();
        bytes.resize(26, 0);
        bytes.extend((name.len() as u16).to_le_bytes());
        bytes.extend([0, 0]);
        bytes.extend(name.as_bytes());
        bytes
    }

    #[test]
    fn other_formats_are_recognized() {
        let [data, script] = ["model/data.pkl", "model/code/__torch__/model.py"].map(zip);
        let [exported, older] =
            ["model/archive_format", "serialized_exported_program.json"].map(zip);
        let (record, arrays) = (zip("ETRECORD_V0"), zip("x.npy"));
        // The central directory follows all entries.
        let far = [zip("model/data/weights/weight_0"), vec![0; 1 << 18], exported.clone()].concat();
        for (bytes, expected) in [
            (&b""[..], "empty"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS"),
            (b"\n <!DOCTYPE html><html>", "HTML"),
            (b"<HTML lang=en>", "HTML"),
            (b"GGUF\x03\0\0\0", "GGUF"),
            (b"\x1c\0\0\0TFL3", "TensorFlow Lite"),
            (b"\x08\0\0\0FT01", ".ptd"),
            (b"\x02\0\0\0\0\0\0\0{}", "safetensors"),
            (b"\x08\x08\x12\x07pytorch", "ONNX"),
            (b"\x93NUMPY\x01\0", "NumPy array"),
            (b"\x1f\x8b\x08", "compressed"),
            (&data, "torch.save"),
            (&script, "TorchScript"),
            (&exported, "torch.export.save"),
            (&far, "torch.export.save"),
            (&record, "ETRecord"),
            (&older, "torch.export.save"),
            (&arrays, "NumPy arrays"),
            (&zip("a/b/c"), "ZIP"),
            (&zip("a")[..20], "ZIP"),
        ] {
            let found = recognize(bytes, Role::Program).map(|foreign| foreign.found);
            assert!(found.is_some_and(|found| found.contains(expected)), "{expected}: {found:?}");
        }
        let program = recognize(b"\x08\0\0\0ET12", Role::Data).map(|foreign| foreign.found);
        assert_eq!(program, Some("a program"));
        assert_eq!(recognize(b"\x08\0\0\0FT01", Role::Data), None);
        let remedy = recognize(&exported, Role::Data).map(|foreign| foreign.remedy);
        assert_eq!(remedy, Some("open it as the program"));
        for bytes in [&b"x"[..], b"\x08\x01", b"\xff\0\0\0\0\0\0\0{}", b"\x08\0\0\0ET12"] {
            assert_eq!(recognize(bytes, Role::Program), None, "{bytes:?}");
        }
    }
}
