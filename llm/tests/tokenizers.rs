//! Tokenizers of all formats, compared with their Python packages (`export/tokenizer_forms.py`).

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use torchlet_llm::{TextStream, Tokenizer, TokenizerFormat};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/tokenizers")
}

/// The model's tokenizer is stored with the model.
fn path(name: &str) -> PathBuf {
    match name {
        "tokenizer.json" => folder().join("../../model/tokenizer.json"),
        _ => folder().join(name),
    }
}

fn expected() -> Vec<Value> {
    let text = std::fs::read_to_string(folder().join("expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn ids(case: &Value) -> Vec<u32> {
    case["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
fn tokens_match_the_python_packages() {
    let mut count = 0;
    for form in expected() {
        let name = form["file"].as_str().unwrap();
        let tokenizer = Tokenizer::load(path(name)).unwrap();
        for case in form["cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            // tiktoken was configured to treat special tokens as text; SentencePiece only supports
            // that.
            let found = match tokenizer.format() {
                TokenizerFormat::HuggingFace => tokenizer.encode(text),
                _ => tokenizer.encode_plain(text),
            };
            assert_eq!(found.unwrap(), ids(case), "{name}: {text:?}");
            count += 1;
        }
    }
    assert!(count >= 70, "{count}");
}

/// As in Phi 3: behaviour of `tokenizers` for `lstrip` and `rstrip`.
#[test]
fn added_tokens_strip_adjacent_spaces() {
    let text = std::fs::read_to_string(path("tokenizer.json")).unwrap();
    let mut file: Value = serde_json::from_str(&text).unwrap();
    for token in file["added_tokens"].as_array_mut().unwrap() {
        match token["content"].as_str().unwrap() {
            "<|im_start|>" => token["lstrip"] = true.into(),
            "<|im_end|>" => token["rstrip"] = true.into(),
            _ => {}
        }
    }
    let tokenizer = Tokenizer::from_bytes(file.to_string().as_bytes()).unwrap();
    let name = |name: &str| tokenizer.special(name).unwrap();
    let (start, end) = (name("<|im_start|>"), name("<|im_end|>"));
    let plain = |text: &str| tokenizer.encode_plain(text).unwrap();
    let found =
        tokenizer.encode("a \n<|im_start|> b <|im_end|>\n\u{a0} c <|im_end|> <|im_start|>d");
    let expected = [
        plain("a"),
        vec![start],
        plain(" b "),
        vec![end],
        plain("c "),
        vec![end, start],
        plain("d"),
    ];
    assert_eq!(found.unwrap(), expected.concat());
    // As ordinary text, they strip nothing.
    let text = "a <|im_start|> b";
    assert_eq!(tokenizer.decode(&plain(text)), text);
}

/// Tokens without text do not affect the spaces of later tokens.
#[test]
fn special_tokens_keep_spaces() {
    for name in ["bpe.model", "unigram.model", "tokenizer.json"] {
        let tokenizer = Tokenizer::load(path(name)).unwrap();
        let text = tokenizer.encode_plain("Hello world").unwrap();
        let silent = tokenizer.eos().unwrap();
        assert_eq!(tokenizer.decode(&[silent]), "", "{name}");
        for count in 0..20 {
            let specials = vec![silent; count];
            let tokens = [&text[..], &specials, &text, &specials[..count / 2], &text].concat();
            let mut stream = TextStream::new(&tokenizer, &[]);
            let pieces: String = tokens.iter().map(|token| stream.push(*token)).collect();
            assert_eq!(pieces + &stream.finish(), tokenizer.decode(&tokens), "{name} {count}");
        }
    }
}

#[test]
fn decoding_is_the_same_at_once_and_streamed() {
    for form in expected() {
        let name = form["file"].as_str().unwrap();
        let tokenizer = Tokenizer::load(path(name)).unwrap();
        for case in form["cases"].as_array().unwrap() {
            let (ids, decoded) = (ids(case), case["decoded"].as_str().unwrap());
            assert_eq!(tokenizer.decode(&ids), decoded, "{name}");
            let mut stream = TextStream::new(&tokenizer, &[]);
            let mut text = String::new();
            for id in ids {
                let piece = stream.push(id);
                assert!(!piece.contains('\u{fffd}'), "{name}: {piece:?} of {decoded:?}");
                text += &piece;
            }
            text += &stream.finish();
            assert_eq!(text, decoded, "{name}");
        }
    }
}

#[test]
fn formats_and_special_tokens_are_detected() {
    let special = |name: &str| {
        let tokenizer = Tokenizer::load(path(name)).unwrap();
        (tokenizer.format(), tokenizer.bos(), tokenizer.eos())
    };
    let size = Tokenizer::load(path("tokenizer.json")).unwrap().vocab_size();
    assert_eq!(size, 1024);
    assert_eq!(special("tokenizer.json"), (TokenizerFormat::HuggingFace, Some(0), Some(1)));
    let first = 1020;
    let expected = (TokenizerFormat::Tiktoken, Some(first), Some(first + 1));
    assert_eq!(special("llama3.tiktoken"), expected);
    let llama3 = Tokenizer::load(path("llama3.tiktoken")).unwrap();
    assert_eq!(llama3.special("<|eot_id|>"), Some(first + 9));
    assert_eq!(llama3.special_name(first + 9), Some("<|eot_id|>"));
    assert_eq!(llama3.special_name(first - 1), None);
    assert_eq!(special("tekken.json"), (TokenizerFormat::Tekken, Some(1), Some(2)));
    let tekken = Tokenizer::load(path("tekken.json")).unwrap();
    assert_eq!(tekken.special("[SYSTEM_PROMPT]"), Some(17));
    assert_eq!(tekken.encode("[SYSTEM_PROMPT]</s>").unwrap(), [17, 2]);
    assert_eq!(special("bpe.model"), (TokenizerFormat::SentencePiece, Some(1), Some(2)));
    assert_eq!(special("llama2c.bin"), (TokenizerFormat::Llama2c, Some(1), Some(2)));
    assert_eq!(special("llama2c_executorch.bin"), (TokenizerFormat::Llama2c, Some(1), Some(2)));
}

/// Truncated, modified or repeated files: an error, or a tokenizer that works for any text.
#[test]
fn damaged_files_are_refused_or_work() {
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below.max(1)
    };
    let names = [
        "llama3.tiktoken",
        "tekken.json",
        "bpe.model",
        "unigram.model",
        "llama2c.bin",
        "llama2c_executorch.bin",
    ];
    // Panics are caught and become errors; their messages would hide those of tests.
    std::panic::set_hook(Box::new(|_| ()));
    let (mut refused, mut works) = (0, 0);
    for name in names {
        let whole = std::fs::read(path(name)).unwrap();
        for round in 0..12 {
            let mut bytes = whole.clone();
            match round % 3 {
                0 => bytes.truncate(random(whole.len())),
                1 => bytes[random(whole.len())] ^= 1 << random(8),
                _ => (0..16).for_each(|at| bytes[at] = random(256) as u8),
            }
            match Tokenizer::from_bytes(&bytes) {
                Err(_) => refused += 1,
                Ok(tokenizer) => {
                    let _ = tokenizer.encode("Hello <s> 😀\n").map(|ids| tokenizer.decode(&ids));
                    tokenizer.decode(&[0, 1, 599, 70_000, u32::MAX]);
                    works += 1;
                }
            }
        }
    }
    let _ = std::panic::take_hook();
    assert!(refused > 10 && works > 3, "{refused} were refused, {works} work");
    for other in [&b""[..], b"{", b"{}", b"[]", b"\0\0\0\0", b"hello world\n"] {
        assert!(Tokenizer::from_bytes(other).is_err(), "{other:?}");
    }
}

/// The model's tokenizer with a field replaced.
fn changed(field: &str, value: Value) -> Result<Tokenizer, torchlet_llm::Error> {
    let mut file: Value =
        serde_json::from_slice(&std::fs::read(path("tokenizer.json")).unwrap()).unwrap();
    file[field] = value;
    Tokenizer::from_bytes(file.to_string().as_bytes())
}

/// Lengthening steps would together exceed any memory.
#[test]
fn multiplying_replacements_are_rejected() {
    let step = |count| json!({"type": "Sequence", "normalizers": vec![json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}); count]});
    assert!(changed("normalizer", step(40)).unwrap_err().to_string().contains("lengthen texts"));
    let few = changed("normalizer", step(2)).unwrap();
    assert_eq!(few.decode(&few.encode("ba").unwrap()), "baaaa");
    let step = json!({"type": "Replace", "pattern": {"Regex": ""}, "content": "a".repeat(4000)});
    let wide = changed("normalizer", step).unwrap();
    assert!(wide.encode(&"b".repeat(1 << 20)).unwrap_err().to_string().contains("too long"));
    let step = json!({"type": "Sequence", "normalizers": vec![json!({"type": "Replace", "pattern": {"Regex": "a+"}, "content": "$0$0"}); 9]});
    assert!(changed("normalizer", step).is_err());
    let step = json!({"type": "Sequence", "decoders": vec![json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}); 40]});
    assert!(changed("decoder", step).is_err());
}

/// Each step processes the whole text, and templates are sorted.
#[test]
fn too_many_steps_are_rejected() {
    let strip = json!({"type": "Strip", "strip_left": true, "strip_right": true});
    let steps =
        |count: usize| json!({"type": "Sequence", "normalizers": vec![strip.clone(); count]});
    assert!(changed("normalizer", steps(10)).is_ok());
    let refused = changed("normalizer", steps(101)).unwrap_err().to_string();
    assert!(refused.contains("its normalizer has 101 parts"), "{refused}");
    let tokens = |count: usize| -> serde_json::Map<String, Value> {
        let token = |at: usize| json!({"id": format!("<{at}>"), "ids": [at], "tokens": ["a"]});
        (0..count).map(|at| (format!("<{at}>"), token(at))).collect()
    };
    let template = json!({
        "type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": tokens(5000)
    });
    let refused = changed("post_processor", template).unwrap_err().to_string();
    assert!(refused.contains("its template has 5000 parts"), "{refused}");
}

/// Padding and truncation are settings of training runs, not of prompts.
#[test]
fn prompts_are_neither_truncated_nor_padded() {
    let usual =
        Tokenizer::load(path("tokenizer.json")).unwrap().encode("In the beginning").unwrap();
    let cut =
        json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
    assert_eq!(changed("truncation", cut).unwrap().encode("In the beginning").unwrap(), usual);
    let fill = json!({"strategy": {"Fixed": 4_000_000_000u32}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
        "pad_type_id": 0, "pad_token": "<|begin_of_text|>"});
    assert_eq!(changed("padding", fill).unwrap().encode("In the beginning").unwrap(), usual);
}

/// A vocabulary may contain the word "model".
#[test]
fn words_are_not_mistaken_for_fields() {
    let mut file: Value =
        serde_json::from_slice(&std::fs::read(path("tekken.json")).unwrap()).unwrap();
    let last = file["vocab"].as_array().unwrap().len() - 1;
    file["vocab"][last]["token_bytes"] = json!("bW9kZWw=");
    file["vocab"][last]["token_str"] = json!("model");
    let tekken = Tokenizer::from_bytes(file.to_string().as_bytes()).unwrap();
    assert_eq!(tekken.format(), TokenizerFormat::Tekken);
}

/// Texts with mapped characters, which grow by a factor of up to eighteen, and files with a damaged
/// map or score.
#[test]
fn character_maps_are_applied() {
    let text = std::fs::read_to_string(folder().join("mapped.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
    let read = |name: &str| std::fs::read(folder().join(name)).unwrap();
    for name in ["mapped.model", "mapped_named.model"] {
        let tokenizer = Tokenizer::from_bytes(&read(name)).unwrap();
        for case in &cases {
            let text = case["text"].as_str().unwrap();
            assert_eq!(tokenizer.encode_plain(text).unwrap(), ids(case), "{name}: {text}");
        }
    }
    let file = read("mapped.model");
    // For any modified byte: a tokenizer or an error, and texts are encoded or rejected.
    for at in 0..file.len() {
        let mut damaged = file.clone();
        damaged[at] ^= 0x41;
        let Ok(tokenizer) = Tokenizer::from_bytes(&damaged) else { continue };
        for case in &cases {
            let _ = tokenizer.encode_plain(case["text"].as_str().unwrap());
        }
    }
}

#[test]
fn growing_replacements_are_rejected() {
    let file = |normalizer: &str| {
        let vocabulary = r#"{"a": 0, "b": 1}"#;
        format!(
            r#"{{"version": "1.0", "added_tokens": [], "normalizer": {normalizer}, "pre_tokenizer": null, "post_processor": null, "decoder": null,
                "model": {{"type": "BPE", "vocab": {vocabulary}, "merges": []}}}}"#
        )
    };
    let prepend = |length: usize| {
        file(&format!(r#"{{"type": "Prepend", "prepend": "{}"}}"#, "a".repeat(length)))
    };
    assert!(Tokenizer::from_bytes(prepend(3).as_bytes()).is_ok());
    let refused = Tokenizer::from_bytes(prepend(5000).as_bytes()).unwrap_err();
    assert!(refused.to_string().contains("may lengthen texts 5001 times"), "{refused}");
    let map = file(r#"{"type": "Precompiled", "precompiled_charsmap": "CAAAAAEAAAABAQAA"}"#);
    assert!(Tokenizer::from_bytes(map.as_bytes()).is_err());
}

fn read(name: &str) -> Vec<Value> {
    serde_json::from_str(&std::fs::read_to_string(folder().join(name)).unwrap()).unwrap()
}

/// Decodes tokens at once, and checks the incremental result.
fn decoded(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let mut stream = TextStream::new(tokenizer, &[]);
    let text: String = ids.iter().map(|id| stream.push(*id)).collect();
    assert_eq!(text + &stream.finish(), tokenizer.decode(ids));
    tokenizer.decode(ids)
}

/// Steps of real tokenizer files, compared with `tokenizers` (`export/tokenizer_steps.py`).
#[test]
fn tokenizer_steps_match_tokenizers() {
    let mut count = 0;
    for form in read("steps.json") {
        let name = &form["name"];
        let tokenizer = Tokenizer::from_bytes(form["tokenizer"].to_string().as_bytes());
        let tokenizer = tokenizer.unwrap_or_else(|error| panic!("{name}: {error}"));
        for case in form["cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            assert_eq!(tokenizer.encode(text).unwrap(), ids(case), "{name}: {text:?}");
            if let Some(expected) = case["decoded"].as_str() {
                assert_eq!(decoded(&tokenizer, &ids(case)), expected, "{name}: {text:?}");
            }
            // Names of special tokens in a unigram vocabulary are ordinary text here.
            let is_unigram = form["tokenizer"]["model"]["type"] == "Unigram";
            if !(is_unigram && text.contains("s>")) {
                let plain: Vec<u64> =
                    tokenizer.encode_plain(text).unwrap().iter().map(|id| u64::from(*id)).collect();
                assert_eq!(json!(plain), case["plain"], "{name}: {text:?}");
            }
            count += 1;
        }
    }
    assert!(count >= 90, "{count}");
}

/// Old format: lines, of which `tokenizers` skips version lines.
#[test]
fn merges_may_be_lines_after_a_version() {
    let all = read("steps.json");
    let form = all.iter().find(|form| form["name"] == "unreached").unwrap();
    let mut file = form["tokenizer"].clone();
    let pairs = file["model"]["merges"].as_array().unwrap().iter();
    let line =
        |pair: &Value| format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
    let lines = std::iter::once("#version: 0.2 of a file".to_owned()).chain(pairs.map(line));
    file["model"]["merges"] = lines.collect::<Vec<_>>().into();
    let tokenizer = Tokenizer::from_bytes(file.to_string().as_bytes()).unwrap();
    for case in form["cases"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        assert_eq!(tokenizer.encode(text).unwrap(), ids(case), "{text:?}");
    }
}

/// Only spaces, pieces across words, and mapped prefixes of combining sequences.
#[test]
fn normalization_matches_sentencepiece() {
    for form in read("spaces.json") {
        let name = form["file"].as_str().unwrap();
        let tokenizer = Tokenizer::load(path(name)).unwrap();
        for case in form["cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            assert_eq!(tokenizer.encode_plain(text).unwrap(), ids(case), "{name}: {text:?}");
            assert_eq!(decoded(&tokenizer, &ids(case)), case["decoded"], "{name}: {text:?}");
        }
    }
}

/// Byte tokens that duplicate a character decode to it; encoding uses the other token.
#[test]
fn duplicate_byte_tokens_decode() {
    let all = read("steps.json");
    let form = all.iter().find(|form| form["name"] == "unigram_bytes").unwrap();
    let tokenizer = Tokenizer::from_bytes(form["tokenizer"].to_string().as_bytes()).unwrap();
    let byte = |byte: u8| 3 + u32::from(byte);
    assert_eq!(tokenizer.decode(&[byte(b'A'), byte(b'B'), byte(b'\n')]), "AB\n");
    for name in ["bpe.model", "unigram.model"] {
        let tokenizer = Tokenizer::load(path(name)).unwrap();
        let all: Vec<u32> = (b'!'..=b'~').map(byte).collect();
        assert_eq!(tokenizer.decode(&all).as_bytes(), (b'!'..=b'~').collect::<Vec<u8>>(), "{name}");
    }
}

/// SentencePiece uses -1 for absent tokens, such as padding. Lists of all tokens are as long as the
/// largest token.
#[test]
fn absent_tokens_are_ignored() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tokenizers");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|ending| ending == "model") {
            let size = Tokenizer::load(&file).unwrap().vocab_size();
            assert!(size < 10_000, "{}: {size}", file.display());
            count += 1;
        }
    }
    assert!(count > 5, "{count} files");
}

#[test]
fn huge_token_ids_are_rejected() {
    let file = std::fs::read(path("tokenizer.json")).unwrap();
    let mut file: Value = serde_json::from_slice(&file).unwrap();
    let mut added = file["added_tokens"][0].clone();
    added["id"] = 4_294_967_294_u32.into();
    added["content"] = "<|far|>".into();
    file["added_tokens"].as_array_mut().unwrap().push(added);
    let refused = Tokenizer::from_bytes(file.to_string().as_bytes()).unwrap_err().to_string();
    assert!(refused.contains("4294967294"), "{refused}");
}
