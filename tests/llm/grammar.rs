//! Text constrained by a JSON schema, whatever the model prefers.

use crate::{greedy, runner};
use serde_json::Value;
use torchlet::RunOn;
use torchlet::llm::{Error, Finish, GenerationConfig, Grammar, Runner, Sampling};

const PERSON: &str = r##"{
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "tribe": {"enum": ["Levi", "Judah", "Dan"]},
        "age": {"type": "integer", "minimum": 1, "maximum": 120},
        "is_king": {"type": "boolean"},
        "weight": {"type": ["integer", "null"], "minimum": 0, "maximum": 9},
        "sons": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"$ref": "#/$defs/son"}}
    },
    "required": ["name", "tribe", "age", "is_king", "sons"],
    "additionalProperties": false,
    "$defs": {"son": {"type": "object", "properties": {"name": {"type": "string", "pattern": "^[A-Z][a-z]{1,8}$"}}, "required": ["name"], "additionalProperties": false}}
}"##;

fn config(grammar: Grammar, temperature: f32, seed: u64) -> GenerationConfig {
    let sampling = Sampling { temperature, seed: Some(seed), ..Sampling::default() };
    let grammar = Some(grammar);
    GenerationConfig { sampling, grammar, ignore_eos: false, ..greedy(400) }
}

/// Asserts that a text is a JSON object that matches the schema of a person.
fn check(text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let known = ["name", "tribe", "age", "is_king", "weight", "sons"];
    let person = value.as_object().unwrap();
    assert!(person.keys().all(|key| known.contains(&key.as_str())), "{text}");
    assert!(person["name"].as_str().unwrap().chars().count() <= 12, "{text}");
    assert!(["Levi", "Judah", "Dan"].contains(&person["tribe"].as_str().unwrap()), "{text}");
    assert!((1..=120).contains(&person["age"].as_i64().unwrap()), "{text}");
    assert!(person["is_king"].is_boolean(), "{text}");
    if let Some(weight) = person.get("weight").filter(|weight| !weight.is_null()) {
        assert!((0.0..=9.0).contains(&weight.as_f64().unwrap()), "{text}");
    }
    let sons = person["sons"].as_array().unwrap();
    assert!((1..=3).contains(&sons.len()), "{text}");
    for son in sons {
        let name = son["name"].as_str().unwrap();
        assert!(son.as_object().unwrap().len() == 1 && name.is_ascii(), "{text}");
        assert!(name.starts_with(|first: char| first.is_ascii_uppercase()), "{text}");
    }
}

fn say(runner: &mut Runner, config: &GenerationConfig) -> (String, Finish) {
    runner.reset().unwrap();
    let mut pieces = String::new();
    let said = runner.generate("He wrote:", config, |text| pieces += text).unwrap();
    assert_eq!(said.text, pieces);
    assert!(said.fits || said.finish != Finish::Stop, "{}", said.text);
    (said.text, said.finish)
}

#[test]
fn text_matches_the_schema_at_any_temperature() {
    let mut runner = runner("8da4w", RunOn::Cpu);
    let grammar = Grammar::json_schema(PERSON).unwrap();
    for (temperature, seeds) in [(0.0, 1), (1.0, 20), (5.0, 20)] {
        for seed in 0..seeds {
            let (text, finish) = say(&mut runner, &config(grammar.clone(), temperature, seed));
            assert_eq!(finish, Finish::Stop, "{text}");
            check(&text);
        }
    }
    // Later text is unconstrained again.
    let free = runner.generate("", &greedy(5), |_| ()).unwrap();
    assert_eq!(free.tokens.len(), 5);
}

#[test]
fn exclusive_alternatives_are_supported() {
    let mut runner = runner("8da4w", RunOn::Cpu);
    // Unions with a discriminator, as data class libraries write them.
    let shapes = r##"{
        "type": "object",
        "properties": {"shape": {
            "discriminator": {"propertyName": "kind", "mapping": {"a": "#/$defs/A", "b": "#/$defs/B"}},
            "oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]
        }},
        "required": ["shape"],
        "additionalProperties": false,
        "$defs": {
            "A": {
                "type": "object",
                "properties": {"kind": {"const": "a"}, "size": {"type": "integer", "minimum": 0, "maximum": 9}},
                "required": ["kind", "size"],
                "additionalProperties": false
            },
            "B": {
                "type": "object",
                "properties": {"kind": {"const": "b"}, "round": {"type": "boolean"}},
                "required": ["kind", "round"],
                "additionalProperties": false
            }
        }
    }"##;
    let mut kinds = std::collections::BTreeSet::new();
    for seed in 0..12 {
        let grammar = Grammar::json_schema(shapes).unwrap();
        let (text, finish) = say(&mut runner, &config(grammar, 5.0, seed));
        assert_eq!(finish, Finish::Stop, "{text}");
        let value: Value = serde_json::from_str(&text).unwrap();
        let shape = &value["shape"];
        let is_a = shape["kind"] == "a" && shape["size"].is_u64();
        assert!(is_a || shape["kind"] == "b" && shape["round"].is_boolean(), "{text}");
        kinds.insert(is_a);
    }
    assert_eq!(kinds.len(), 2);
    for schema in [
        r#"{"oneOf": [{"const": 1}, {"enum": [2, 3]}]}"#,
        r#"{"oneOf": [{"type": "boolean"}, {"type": ["null", "integer"], "enum": [4]}], "anyOf": [{"const": 4}]}"#,
    ] {
        let (text, finish) =
            say(&mut runner, &config(Grammar::json_schema(schema).unwrap(), 1.0, 1));
        assert!(["1", "2", "3", "4"].contains(&text.as_str()) && finish == Finish::Stop, "{text}");
    }
}

#[test]
fn schemas_with_one_value_determine_the_text() {
    let mut runner = runner("8da4w", RunOn::Cpu);
    for (schema, expected) in [
        (r#"{"const": {"é😀": [1, null]}}"#, r#"{"é😀":[1,null]}"#),
        (r#"{"enum": ["only"]}"#, r#""only""#),
        (r#"{"type": "string", "pattern": "^a{40}$"}"#, &format!("\"{}\"", "a".repeat(40))),
    ] {
        let grammar = Grammar::json_schema(schema).unwrap();
        let (text, finish) = say(&mut runner, &config(grammar, 1.0, 1));
        let (found, expected): (Value, Value) =
            (serde_json::from_str(&text).unwrap(), serde_json::from_str(expected).unwrap());
        assert_eq!((found, finish), (expected, Finish::Stop));
    }
    let (text, finish) = say(&mut runner, &config(Grammar::json_object(), 1.0, 3));
    if finish == Finish::Stop {
        assert!(serde_json::from_str::<Value>(&text).unwrap().is_object(), "{text}");
    }
    assert!(text.starts_with('{'), "{text}");
}

/// A text at the token limit may be complete.
#[test]
fn truncated_text_reports_whether_it_matches() {
    let mut runner = runner("8da4w", RunOn::Cpu);
    let mut fits = |schema: &str, count: usize, stop: &str| {
        runner.reset().unwrap();
        let grammar = Grammar::json_schema(schema).unwrap();
        let stop = (!stop.is_empty()).then(|| stop.into()).into_iter().collect();
        let config =
            GenerationConfig { max_new_tokens: Some(count), stop, ..config(grammar, 0.0, 1) };
        let said = runner.generate("He wrote:", &config, |_| ()).unwrap();
        (said.text, said.finish, said.fits)
    };
    let (digits, list) = (
        r#"{"type": "string", "pattern": "^a{3}"}"#,
        r#"{"type": "array", "items": {"const": 7}, "minItems": 9}"#,
    );
    let number = r#"{"type": "integer", "minimum": 0}"#;
    assert_eq!(fits(digits, 1, "").1, Finish::Length);
    assert!(!fits(digits, 1, "").2);
    let (text, finish, is_whole) = fits(number, 1, "");
    assert_eq!((finish, is_whole), (Finish::Length, true), "{text}");
    let (text, finish, is_whole) = fits(list, 40, ",");
    assert_eq!((text.replace(' ', "").as_str(), finish, is_whole), ("[7", Finish::Stop, false));
    let (text, finish, is_whole) = fits(r#"{"enum": [12345, 1234567]}"#, 40, "67");
    assert_eq!((text.as_str(), finish, is_whole), ("12345", Finish::Stop, true));
}

/// Small schemas that expand to large grammars are rejected at once; accepted ones compile quickly.
#[test]
fn oversized_schemas_are_rejected_quickly() {
    let start = std::time::Instant::now();
    let mut chain = String::new();
    for at in 0..25 {
        let next = format!(r##"{{"$ref": "#/$defs/d{}"}}"##, at + 1);
        chain += &format!(r#""d{at}": {{"allOf": [{next}, {next}]}}, "#);
    }
    chain += r#""d25": {"type": "string", "pattern": "a.*b"}"#;
    for schema in [
        format!(r##"{{"$ref": "#/$defs/d0", "$defs": {{{chain}}}}}"##),
        r#"{"type": "integer", "multipleOf": 1000003}"#.into(),
        r#"{"allOf": [{"multipleOf": 97}, {"multipleOf": 89}, {"multipleOf": 83}]}"#.into(),
    ] {
        let refused = Grammar::json_schema(&schema).unwrap_err().to_string();
        assert!(refused.contains("becomes too large"), "{refused}");
    }
    assert!(start.elapsed().as_millis() < 500, "{:?}", start.elapsed());
}

/// llguidance would permit values outside these bounds, or overflow.
#[test]
fn unrepresentable_numeric_bounds_are_errors() {
    for (schema, why) in [
        (r#"{"type": "integer", "minimum": 1e19, "maximum": 1e20}"#, "'minimum'"),
        (r#"{"type": "integer", "minimum": 9223372036854775807}"#, "'minimum'"),
        (r#"{"type": ["integer", "null"], "exclusiveMaximum": -1e19}"#, "'exclusiveMaximum'"),
        (r#"{"type": "number", "multipleOf": 1e-9}"#, "'multipleOf'"),
        (r#"{"type": "string", "minLength": 4294967296}"#, "'minLength'"),
        (r#"{"type": "string", "maxLength": 18446744073709551615}"#, "'maxLength'"),
    ] {
        let error = Grammar::json_schema(schema).unwrap_err().to_string();
        assert!(error.contains(why), "{schema}: {error}");
    }
    for schema in [
        r#"{"type": "integer", "minimum": 0, "maximum": 18446744073709551615}"#,
        r#"{"type": "integer", "minimum": -9223372036854775808}"#,
        r#"{"type": "number", "multipleOf": 1e-8}"#,
        r#"{"type": "string", "minLength": 4294967295}"#,
    ] {
        Grammar::json_schema(schema).unwrap();
    }
}

/// llguidance would permit the bounds themselves.
#[test]
fn exclusive_bounds_of_numbers_hold() {
    let mut runner = runner("8da4w", RunOn::Cpu);
    for (schema, low, high) in [
        (r#"{"type": "number", "exclusiveMinimum": 0, "maximum": 0.01}"#, 0.0, 0.02),
        (r#"{"type": "number", "minimum": -0.5, "exclusiveMaximum": 0}"#, -0.6, 0.0),
    ] {
        let schema =
            format!(r#"{{"type": "array", "minItems": 8, "maxItems": 8, "items": {schema}}}"#);
        let grammar = Grammar::json_schema(&schema).unwrap();
        for seed in 0..20 {
            let (text, finish) = say(&mut runner, &config(grammar.clone(), 2.0, seed));
            if finish == Finish::Stop {
                let values: Vec<f64> = serde_json::from_str(&text).unwrap();
                assert!(values.iter().all(|value| low < *value && *value < high), "{text}");
            }
        }
    }
}

/// The limits of `float64`, `int64` and `uint64`, which generators of schemas write.
#[test]
fn distant_bounds_of_numbers_hold() {
    let mut runner = runner("8da4w", RunOn::Cpu);
    for (kind, low, high) in [
        ("number", "-1e308", "1.7976931348623157e308"),
        ("integer", "-9223372036854775808", "9223372036854775807"),
        ("integer", "0", "18446744073709551615"),
    ] {
        let each = format!(r#"{{"type": "{kind}", "minimum": {low}, "maximum": {high}}}"#);
        let schema =
            format!(r#"{{"type": "array", "minItems": 8, "maxItems": 8, "items": {each}}}"#);
        let grammar = Grammar::json_schema(&schema).unwrap();
        let mut complete = 0;
        for seed in 0..20 {
            let (text, finish) = say(&mut runner, &config(grammar.clone(), 2.0, seed));
            if finish == Finish::Stop {
                let values: Vec<f64> = serde_json::from_str(&text).unwrap();
                let [low, high] = [low, high].map(|bound| bound.parse::<f64>().unwrap());
                assert!(values.iter().all(|value| low <= *value && *value <= high), "{text}");
                complete += 1;
            }
        }
        assert!(complete > 0, "{each}");
    }
    let fine = r#"{"type": "number", "multipleOf": 0.0007, "minimum": 0, "maximum": 1}"#;
    let config = config(Grammar::json_schema(fine).unwrap(), 1.0, 7);
    let (text, finish) = say(&mut runner, &config);
    if finish == Finish::Stop {
        let steps = text.parse::<f64>().unwrap() / 0.0007;
        assert!((steps - steps.round()).abs() < 1e-9, "{text}");
    }
}

/// The parser's default limits refuse about 350 optional properties at the first token.
#[test]
fn objects_may_have_hundreds_of_optional_properties() {
    let properties = (0..500).map(|at| format!(r#""p{at}": {{"type": "integer"}}"#));
    let properties = properties.collect::<Vec<_>>().join(", ");
    let schema = format!(
        r#"{{"type": "object", "properties": {{{properties}}}, "additionalProperties": false}}"#
    );
    let grammar = Grammar::json_schema(&schema).unwrap();
    let config = GenerationConfig { max_new_tokens: Some(12), ..config(grammar, 1.0, 7) };
    let (text, _) = say(&mut runner("8da4w", RunOn::Cpu), &config);
    assert!(text.starts_with(r#"{"p"#), "{text}");
}

#[test]
fn self_references_match_no_text() {
    let grammar = Grammar::json_schema(r##"{"$ref": "#"}"##).unwrap();
    let config = config(grammar, 1.0, 7);
    let error = runner("8da4w", RunOn::Cpu).generate("a", &config, |_| ()).unwrap_err().to_string();
    assert!(error.contains("no text can match the schema"), "{error}");
}

#[test]
fn unsupported_schemas_are_errors() {
    assert!(Grammar::json_schema("[]").is_err());
    assert!(Grammar::json_schema("{").is_err());
    let far = Grammar::json_schema(r#"{"type": "number", "minimum": 1e19}"#).unwrap_err();
    assert!(far.to_string().contains("'minimum' is 1"), "{far}");
    // The parser has an option to ignore unknown keywords.
    assert!(Grammar::json_schema(r#"{"x-guidance": {"lenient": true}, "oneOf": []}"#).is_err());
    assert!(Grammar::json_schema(&format!("{{\"a\": \"{}\"}}", "x".repeat(1 << 20))).is_err());
    assert!(
        Grammar::json_schema(&format!("{{\"oneOf\": [{}{{}}]}}", "{}, ".repeat(1000))).is_err()
    );
    let mut runner = runner("8da4w", RunOn::Cpu);
    let deep = format!("{}{{}}{}", r#"{"items": "#.repeat(100), "}".repeat(100));
    let wide = r#"{"type": "string", "pattern": "^((a{1,900}){1,900}){1,900}$"}"#;
    for (schema, part) in [
        (r#"{"oneOf": [{"type": "integer"}, {"type": "number"}]}"#, "'oneOf' could match at once"),
        (r#"{"oneOf": [{"const": 1}, {"enum": [1.0, 2]}]}"#, "'oneOf' could match at once"),
        // Neither requires the properties that differ.
        (
            r#"{"oneOf": [{"type": "object", "properties": {"k": {"const": 1}}}, {"type": "object", "properties": {"k": {"const": 2}}}]}"#,
            "'oneOf' could match at once",
        ),
        (r#"{"$ref": "https://example.com/other.json"}"#, ""),
        (r##"{"$ref": "#/$defs/none"}"##, ""),
        (r#"{"type": "string", "pattern": "(a"}"#, "(a\n    ^\nerror: unclosed group"),
        (r#"{"type": "integer", "minimum": 3, "maximum": 2}"#, ""),
        (r#"{"type": "sausage"}"#, "sausage"),
        (r#"{"type": "number", "minimum": 2e18}"#, "within ±1e18"),
        (
            r#"{"type": "string", "format": "email", "pattern": "^\\S+@\\S+\\.\\S+$", "maxLength": 254}"#,
            "leave one of them out",
        ),
    ] {
        let grammar = Grammar::json_schema(schema).unwrap();
        let refused = runner.generate("a", &config(grammar, 1.0, 1), |_| ());
        let Err(error @ Error::Grammar { .. }) = refused else { panic!("{schema}: {refused:?}") };
        assert!(error.to_string().contains(part), "{error}");
        runner.reset().unwrap();
    }
    // Accepted or rejected, but quickly.
    for schema in [&deep, wide] {
        let grammar = Grammar::json_schema(schema).unwrap();
        let _ = runner.generate("a", &config(grammar, 1.0, 1), |_| ());
        runner.reset().unwrap();
    }
    let both = GenerationConfig { ignore_eos: true, ..config(Grammar::json_object(), 1.0, 1) };
    assert!(runner.generate("a", &both, |_| ()).unwrap_err().to_string().contains("ignore_eos"));
}
