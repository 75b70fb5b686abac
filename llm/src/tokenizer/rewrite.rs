//! Rewrites a `tokenizer.json` for `kitoken` 0.11, which names some components differently,
//! interprets others differently, and lacks some. Files that would tokenize differently are
//! rejected.

use super::scripts;
use kitoken::Definition;
use kitoken::convert::convert_tokenizers;
use serde_json::{Map, Value, json};

/// Pre-tokenization pattern of `ByteLevel`.
const BYTE_LEVEL: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Definition of `\w` in `tokenizers`' regular expressions, and additional characters outside of
/// character classes.
const WORDS: &str = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}";
const MORE_WORDS: &str = "²³¹¼½¾";
/// Characters that `Nmt` removes, and those that it replaces with a space.
const NMT_REMOVED: &str = r"[\x{1}-\x{8}\x{b}\x{e}-\x{1f}\x{7f}\x{8f}\x{9f}]";
const NMT_SPACES: &str =
    r"[\t\n\x{c}\r\x{1680}\x{200b}-\x{200f}\x{2028}\x{2029}\x{2581}\x{feff}\x{fffd}]";
/// Characters that `BertNormalizer` removes with `clean_text`.
const BERT_REMOVED: &str = r"[\p{Cc}\p{Cf}\p{Co}\x{fffd}]";
/// Continuation prefix that no token has, so that words of a word-level vocabulary are never
/// combined.
const NOTHING: &str = "\u{10ffff}\u{10fffe}";

/// Maximum number of steps per component. Real files have ten at most, and each step processes the
/// whole text.
const MAX_STEPS: usize = 100;
/// Maximum length of `FixedLength`: the regular expression needs memory for each character.
const MAX_LENGTH: u64 = 1000;
/// Maximum number of special tokens in a template, which are sorted.
const MAX_TEMPLATE: usize = 4096;

/// Maximum numbers of tokens and merges; the largest vocabularies have 300,000 and 500,000.
pub(super) const MAX_TOKENS: usize = 1 << 20;
const MAX_MERGES: usize = 1 << 21;

/// Rejects files that would make loading or encoding slow.
fn check_counts(file: &Value) -> Result<(), String> {
    let within = |what: &str, count: usize, most: usize| match count > most {
        true => Err(format!("its {what} has {count} parts, more than {most}")),
        false => Ok(()),
    };
    let parts = [
        ("normalizer", "normalizers"),
        ("pre_tokenizer", "pretokenizers"),
        ("post_processor", "processors"),
        ("decoder", "decoders"),
    ];
    let model = &file["model"];
    let count = |list: &Value| {
        list.as_object().map_or_else(|| list.as_array().map_or(0, Vec::len), Map::len)
    };
    within("vocabulary", count(&model["vocab"]), MAX_TOKENS)?;
    within("list of merges", count(&model["merges"]), MAX_MERGES)?;
    for (name, list) in parts {
        let steps = flatten_steps(&file[name], list);
        within(name, steps.len(), MAX_STEPS)?;
        for step in steps {
            let tokens = step["special_tokens"].as_object().map_or(0, Map::len);
            within("template", tokens, MAX_TEMPLATE)?;
            for list in ["single", "pair"] {
                let count = step[list].as_array().map_or(0, Vec::len);
                within("template", count, MAX_TEMPLATE)?;
            }
        }
    }
    Ok(())
}

/// Byte-level steps outside of the definition.
#[derive(Debug, Default)]
pub(super) struct Bytes {
    /// Normalization steps before which bytes are mapped to the byte-level alphabet.
    pub(super) steps: Vec<usize>,
    /// Whether tokens decode through the byte-level alphabet.
    pub(super) are_names: bool,
}

/// A rewritten file.
#[derive(Debug)]
pub(super) struct Rewritten {
    pub(super) text: String,
    /// Number of normalization steps of the definition that come from the normalizer.
    pub(super) normalization: usize,
    pub(super) bytes: Bytes,
    /// Unigram scores; the text contains their ranks instead.
    pub(super) scores: Vec<f32>,
}

/// Rewrites a file. Its lists of added tokens and of scores are left unchanged.
pub(super) fn of(file: &mut Value) -> Result<Rewritten, String> {
    check_counts(file)?;
    let mut normalizer = Vec::new();
    let mut bytes = Bytes::default();
    for step in flatten_steps(&file["normalizer"], "normalizers") {
        match is_byte_level(step) {
            true => {
                let before = small(&sequence("normalizers", normalizer.clone()))?;
                bytes.steps.push(before.config.normalization.len());
            }
            false => normalize(step, &mut normalizer),
        }
    }
    let small = small(&sequence("normalizers", normalizer.clone()))?;
    let normalization = small.config.normalization.len();
    let mut splits = Vec::new();
    for step in flatten_steps(&file["pre_tokenizer"], "pretokenizers") {
        split(step, &mut splits, &mut normalizer)?;
    }
    let mut decoders: Vec<Value> =
        flatten_steps(&file["decoder"], "decoders").into_iter().cloned().collect();
    // With a text pattern, `kitoken` takes the content literally.
    let is_expression = |step: &&mut Value| step["pattern"]["Regex"].is_string();
    decoders.iter_mut().filter(is_expression).for_each(make_literal);
    let mut processors: Vec<Value> =
        flatten_steps(&file["post_processor"], "processors").into_iter().cloned().collect();
    if !has_byte_level(&splits) {
        // `kitoken` supports the byte-level alphabet only with the `ByteLevel` pre-tokenizer. As a
        // post-processor, the step changes offsets, but no tokens.
        if decoders.iter().any(is_byte_level) && decoders.len() > 1 {
            return Err("its decoder combines ByteLevel with other steps".into());
        }
        bytes.are_names =
            decoders.iter().any(is_byte_level) || decoders.is_empty() && !bytes.steps.is_empty();
        decoders.retain(|step| !is_byte_level(step));
        processors.retain(|step| !is_byte_level(step));
    }
    let parts = file.as_object_mut().ok_or("it is not a JSON object")?;
    parts.insert("post_processor".into(), sequence("processors", processors));
    parts.insert("normalizer".into(), sequence("normalizers", normalizer));
    parts.insert("pre_tokenizer".into(), sequence("pretokenizers", splits));
    parts.insert("decoder".into(), sequence("decoders", decoders));
    let added = parts.get("added_tokens").cloned().unwrap_or_default();
    model(parts)?;
    let scores = file.get_mut("model").map(rank).unwrap_or_default();
    let text = file.to_string();
    set(file, "added_tokens", added);
    if !scores.is_empty() {
        let pieces = file.pointer_mut("/model/vocab").and_then(Value::as_array_mut);
        for (piece, score) in pieces.into_iter().flatten().zip(&scores) {
            set_score(piece, json!(score));
        }
    }
    Ok(Rewritten { text, normalization, bytes, scores })
}

/// Replaces unigram scores with their ranks, and returns the scores. Returns an empty list if the
/// model is not a valid unigram model.
///
/// If any crate in the build enables `serde_json`'s arbitrary precision, `kitoken` can only read
/// integers in a model.
fn rank(model: &mut Value) -> Vec<f32> {
    let is_unigram = model["type"] == "Unigram";
    let pieces = model.get_mut("vocab").and_then(Value::as_array_mut).filter(|_| is_unigram);
    let Some(pieces) = pieces else { return Vec::new() };
    let score = |piece: &Value| Some(piece[1].as_f64()? as f32);
    let Some(scores) = pieces.iter().map(score).collect::<Option<Vec<f32>>>() else {
        return Vec::new();
    };
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    order.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]));
    for (rank, place) in order.into_iter().enumerate() {
        if let Some(piece) = pieces.get_mut(place) {
            set_score(piece, rank.into());
        }
    }
    scores
}

/// Replaces the score of a piece, if it has one.
fn set_score(piece: &mut Value, score: Value) {
    if let Some(place) = piece.get_mut(1) {
        *place = score;
    }
}

/// Sets a field of an object. `value[field] = …` would panic if `value` is not an object.
fn set(value: &mut Value, field: &str, to: impl Into<Value>) {
    if let Some(fields) = value.as_object_mut() {
        fields.insert(field.into(), to.into());
    }
}

/// Definition of a single-token tokenizer with this normalizer.
pub(super) fn small(normalizer: &Value) -> Result<Definition, String> {
    let model = json!({"type": "BPE", "vocab": {"a": 0}, "merges": []});
    let file = json!({"added_tokens": [], "normalizer": normalizer, "model": model});
    convert_tokenizers(file.to_string()).map_err(|error| error.to_string())
}

fn sequence(list: &str, steps: Vec<Value>) -> Value {
    match steps.is_empty() {
        true => Value::Null,
        false => json!({"type": "Sequence", list: steps}),
    }
}

/// Flattens nested sequences of steps.
fn flatten_steps<'f>(step: &'f Value, list: &str) -> Vec<&'f Value> {
    let (mut steps, mut waiting) = (Vec::new(), vec![step]);
    while let Some(step) = waiting.pop() {
        match step[list].as_array().filter(|_| step["type"] == "Sequence") {
            Some(inner) => waiting.extend(inner.iter().rev()),
            None if step.is_null() => {}
            None => steps.push(step),
        }
    }
    steps
}

fn is_byte_level(step: &Value) -> bool {
    step["type"] == "ByteLevel"
}

/// Whether a pre-tokenization step maps bytes to the byte-level alphabet.
fn has_byte_level(splits: &[Value]) -> bool {
    splits.iter().any(is_byte_level)
}

fn normalize(step: &Value, steps: &mut Vec<Value>) {
    let replace = |pattern: &str, content: &str| {
        json!({
            "type": "Replace", "pattern": {"Regex": pattern}, "content": content
        })
    };
    let mut step = step.clone();
    if step["type"] == "Nmt" {
        steps.extend([replace(NMT_REMOVED, ""), replace(NMT_SPACES, " ")]);
        return;
    }
    if step["type"] == "BertNormalizer" && step["clean_text"] == true {
        // Unlike `kitoken`, keep unassigned characters.
        set(&mut step, "clean_text", false);
        steps.extend([replace(r"[\t\n\r]", " "), replace(BERT_REMOVED, ""), replace(r"\s", " ")]);
    }
    let lowers = step["type"] == "Lowercase"
        || step["type"] == "BertNormalizer" && step["lowercase"] == true;
    if lowers {
        // Character by character, sigma becomes σ. Lowercasing a text would map a final sigma to ς.
        steps.push(json!({"type": "Replace", "pattern": {"String": "Σ"}, "content": "σ"}));
    }
    if step["type"] == "Strip" {
        set(&mut step, "type", "StripNormalizer");
    }
    make_literal(&mut step);
    steps.push(step);
}

/// Makes the replacement literal, instead of referring to capture groups.
fn make_literal(step: &mut Value) {
    if step["type"] == "Replace" {
        let content = step["content"].as_str().unwrap_or_default();
        let content = content.replace('$', "$$");
        set(step, "content", content);
        expand_word_classes(step);
    }
}

/// Replaces `\w` and `\W` in a pattern with their definition in `tokenizers`, which does not
/// include join controls.
fn expand_word_classes(step: &mut Value) {
    let Some(pattern) = step["pattern"]["Regex"].as_str() else { return };
    let (mut spelled, mut depth, mut rest) = (String::new(), 0usize, pattern.chars());
    while let Some(character) = rest.next() {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if character != '\\' {
            spelled.push(character);
            continue;
        }
        let more = if depth == 0 { MORE_WORDS } else { "" };
        match rest.next() {
            Some('w') => spelled += &format!("[{WORDS}{more}]"),
            Some('W') => spelled += &format!("[^{WORDS}{more}]"),
            // Word boundaries in `kitoken`, but literal characters in `tokenizers`.
            Some(escaped @ ('<' | '>')) => spelled.push(escaped),
            escaped => spelled.extend([Some('\\'), escaped].into_iter().flatten()),
        }
    }
    if let Some(pattern) = step.get_mut("pattern") {
        set(pattern, "Regex", spelled);
    }
}

fn split(step: &Value, steps: &mut Vec<Value>, normalizer: &mut Vec<Value>) -> Result<(), String> {
    let pattern = |pattern: &str, behavior: &str| {
        json!({
            "type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": false
        })
    };
    let mut step = step.clone();
    expand_word_classes(&mut step);
    let is_first = steps.is_empty();
    let prefixes = |step: &Value| match step["type"].as_str() {
        Some("ByteLevel") => step["add_prefix_space"] == true,
        Some("Metaspace") => step["prepend_scheme"] != "never" && step["add_prefix_space"] != false,
        _ => false,
    };
    match step["type"].as_str().unwrap_or_default() {
        "ByteLevel" if step["use_regex"] != false => {
            refuse_prefix(prefixes(&step) && !is_first)?;
            // The prefix space is added before the text is split.
            set(&mut step, "use_regex", false);
            steps.push(step);
            steps.push(pattern(BYTE_LEVEL, "Isolated"));
            return Ok(());
        }
        name @ ("FixedLength" | "UnicodeScripts") if has_byte_level(steps) => {
            return Err(format!("{name} after ByteLevel is not supported"));
        }
        "FixedLength" => {
            let length = if step["length"].is_null() { Some(5) } else { step["length"].as_u64() };
            let length = length.filter(|length| (1..=MAX_LENGTH).contains(length));
            let length = length.ok_or_else(|| {
                format!("FixedLength is {}, not from 1 to {MAX_LENGTH}", step["length"])
            })?;
            step = pattern(&format!("(?s:.){{1,{length}}}"), "Isolated");
        }
        // Splitting a text of a single script again changes nothing.
        "UnicodeScripts"
            if steps.iter().any(|step| step["pattern"]["Regex"] == scripts::expression()) =>
        {
            return Ok(());
        }
        "UnicodeScripts" => {
            // Inverted, so that matches are kept.
            step = pattern(&scripts::expression(), "Removed");
            set(&mut step, "invert", true);
        }
        "WhitespaceSplit" => step = pattern(r"\s+", "Removed"),
        "Metaspace" if !is_first && prefixes(&step) => {
            // Words with one space before each.
            let is_spaces = |step: &Value| *step == pattern(r"\s+", "Removed");
            let words = std::mem::take(steps);
            refuse_prefix(!words.iter().all(is_spaces) || step["prepend_scheme"] == "first")?;
            let spaces = json!({"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "});
            let ends = json!({"type": "StripNormalizer", "strip_left": true, "strip_right": true});
            normalizer.extend([spaces, ends]);
        }
        "CharDelimiterSplit" => set(&mut step, "type", "Delimiter"),
        "Split" if step["invert"] == true => {
            let behavior = step["behavior"].as_str().unwrap_or_default();
            if !matches!(behavior, "Removed" | "Isolated") {
                return Err(format!(
                    "an inverted Split with behavior {behavior:?} is not supported"
                ));
            }
        }
        _ => refuse_prefix(prefixes(&step) && !is_first)?,
    }
    steps.push(step);
    Ok(())
}

fn refuse_prefix(is_inside: bool) -> Result<(), String> {
    match is_inside {
        true => {
            Err("adding a space before each part of a text that is already split is not supported"
                .into())
        }
        false => Ok(()),
    }
}

fn model(parts: &mut Map<String, Value>) -> Result<(), String> {
    let model = parts.get_mut("model").ok_or("it has no 'model'")?;
    let prefix = model["continuing_subword_prefix"].as_str().unwrap_or_default();
    if model["type"] == "BPE" && !prefix.is_empty() {
        return Err(format!("BPE with continuing_subword_prefix {prefix:?} is not supported"));
    }
    // `tokenizers` skips the version line of merge files at any position.
    if let Some(merges) = model.get_mut("merges").and_then(Value::as_array_mut) {
        merges.retain(|pair| !pair.as_str().is_some_and(|line| line.starts_with("#version")));
    }
    // A word-level model is WordPiece without continuation pieces.
    let is_words = model["type"] == "WordLevel";
    if let (true, Some(model)) = (is_words, model.as_object_mut()) {
        model.insert("type".into(), "WordPiece".into());
        model.insert("continuing_subword_prefix".into(), NOTHING.into());
        model.insert("max_input_chars_per_word".into(), u32::MAX.into());
    }
    // `kitoken` requires the unknown token among the added tokens, although it is not matched in
    // texts.
    let is_unigram = model["type"] == "Unigram";
    let (unknown, id) = match (model["unk_token"].as_str(), model["unk_id"].as_u64()) {
        (Some(name), _) => (name.to_owned(), model["vocab"][name].as_u64()),
        (None, Some(id)) if is_unigram => {
            let piece = usize::try_from(id).map_or(&Value::Null, |at| &model["vocab"][at]);
            let missing = || format!("its unknown token {id} is not in the vocabulary");
            (piece[0].as_str().ok_or_else(missing)?.to_owned(), Some(id))
        }
        _ => return Ok(()),
    };
    let list = parts.entry("added_tokens").or_insert(Value::Null);
    let is_there = |token: &Value| token["content"] == unknown.as_str();
    if list.as_array().is_some_and(|list| list.iter().any(is_there)) {
        return Ok(());
    }
    let Some(id) = id else {
        return Err(format!("its unknown token {unknown:?} is not in the vocabulary"));
    };
    let token = json!({"id": id, "content": unknown, "single_word": false, "lstrip": false,
        "rstrip": false, "normalized": false, "special": true});
    match list.as_array_mut() {
        Some(list) => list.push(token),
        None => *list = vec![token].into(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wrong JSON types are errors, not panics.
    #[test]
    fn wrong_json_types_do_not_panic() {
        let parts =
            ["model", "normalizer", "pre_tokenizer", "post_processor", "decoder", "added_tokens"];
        let kinds =
            [json!(0), json!(""), json!([]), json!([[]]), json!(null), json!(true), json!({})];
        let steps =
            ["BertNormalizer", "Strip", "Replace", "ByteLevel", "Split", "CharDelimiterSplit"];
        for part in parts {
            let steps = steps.iter().flat_map(|step| {
                let inner = kinds.iter().map(move |kind| {
                    json!({
                        "type": step, "clean_text": true, "pattern": kind, "content": kind
                    })
                });
                inner.clone().chain(inner.map(|step| {
                    json!({
                        "type": "Sequence", "pretokenizers": [step]
                    })
                }))
            });
            let vocab =
                kinds.iter().map(|kind| json!({"type": "Unigram", "vocab": [kind, ["a", 1.0]]}));
            for kind in kinds.iter().cloned().chain(steps).chain(vocab) {
                let mut file = json!({"added_tokens": [], part: kind});
                let _ = of(&mut file);
            }
        }
        for mut file in kinds {
            let _ = of(&mut file);
        }
    }

    #[test]
    fn nested_sequences_are_flattened() {
        let named = |name: &str| json!({"type": name});
        let inner = sequence("normalizers", vec![named("b"), named("c")]);
        let all = sequence("normalizers", vec![named("a"), inner, named("d")]);
        let names: Vec<&Value> =
            flatten_steps(&all, "normalizers").iter().map(|step| &step["type"]).collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
        assert!(flatten_steps(&Value::Null, "normalizers").is_empty());
    }

    #[test]
    fn unsupported_steps_are_rejected() {
        let file = |cut: Value, model: Value| json!({"pre_tokenizer": cut, "model": model});
        let pairs = json!({"type": "BPE", "vocab": {"a": 0}, "merges": []});
        let of = |file: &Value| of(&mut file.clone());
        let refused = |file: &Value| of(file).unwrap_err();
        let cut = |steps: &[Value]| sequence("pretokenizers", steps.to_vec());
        let digits = json!({"type": "Digits", "individual_digits": true});
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true});
        let inside = file(cut(&[digits.clone(), bytes.clone()]), pairs.clone());
        assert!(refused(&inside).contains("before each part"));
        assert!(of(&file(cut(&[bytes.clone(), digits.clone()]), pairs.clone())).is_ok());
        let spaces = json!({
            "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true
        });
        let inside = file(cut(&[digits, spaces]), pairs.clone());
        assert!(refused(&inside).contains("before each part"));
        let inverted = json!({
            "type": "Split", "pattern": {"String": "a"}, "behavior": "Contiguous", "invert": true
        });
        assert!(refused(&file(inverted, pairs.clone())).contains("Contiguous"));
        for (step, expected) in [
            (json!({"type": "FixedLength", "length": 0}), "is 0, not from 1 to"),
            (json!({"type": "FixedLength", "length": 1e9}), "not from 1 to"),
            (cut(&[bytes.clone(), json!({"type": "UnicodeScripts"})]), "after ByteLevel"),
        ] {
            let found = refused(&file(step, pairs.clone()));
            assert!(found.contains(expected), "{found}");
        }
        let mut inside = pairs;
        inside["continuing_subword_prefix"] = "##".into();
        assert!(refused(&file(Value::Null, inside)).contains("##"));
        let many = |count: usize| Value::Array(vec![Value::Null; count]);
        for (name, count) in [("vocab", MAX_TOKENS), ("merges", MAX_MERGES)] {
            let model = json!({"type": "Unigram", name: many(count + 1)});
            let found = refused(&file(Value::Null, model));
            assert!(found.contains(&format!("has {} parts", count + 1)), "{found}");
        }
        let words = json!({"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "<unk>"});
        assert!(refused(&file(Value::Null, words)).contains("<unk>"));
        assert!(of(&json!([])).is_err() && of(&json!({})).is_err());
    }
}
