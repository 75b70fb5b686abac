use super::*;
use serde_json::json;

fn of(schema: &Value) -> u64 {
    measure(schema, Work(MAX_MEASURING_STEPS)).unwrap_or(u64::MAX)
}

/// `count` spellings of references to the same node at `#/x/0/0/…`.
fn spellings(prefix: &str, count: usize) -> Vec<Value> {
    let names = ["0", "00", "+0"];
    let spelled = |mut at: usize| {
        let digit = |_| {
            let name = names[at % names.len()];
            at /= names.len();
            name
        };
        let path: Vec<&str> = (0..7).map(digit).collect();
        json!({"$ref": format!("#/{prefix}/{}", path.join("/"))})
    };
    (0..count).map(spelled).collect()
}

/// Measuring each of these schemas of some hundred kilobytes took minutes.
#[test]
fn measuring_many_references_is_bounded() {
    let large = 100_000;
    let wide = |value: Value| vec![value; large];
    let names: Map<String, Value> = (0..large / 2).map(|at| (format!("{at}"), json!(1))).collect();
    let parts = [
        json!({"prefixItems": wide(json!({}))}),
        json!({"anyOf": wide(json!({}))}),
        json!({"const": wide(json!(0))}),
        json!({"enum": wide(json!(0))}),
        json!({"properties": names}),
        json!({"x": wide(json!(0))}),
        Value::Object(names.clone()),
        json!({"type": wide(json!("null"))}),
        json!({"required": wide(json!("a"))}),
    ];
    for part in parts {
        let x = (0..7).fold(part, |inner, _| json!([inner]));
        for key in ["anyOf", "allOf", "prefixItems"] {
            let schema = json!({key: spellings("x", 1300), "x": x});
            assert!(schema.to_string().len() < 1 << 20);
            assert!(check(&schema).is_err());
            // This terminates even without the check of levels.
            of(&schema);
        }
    }
    let error = check(&json!({"items": {"type": vec!["null"; 8]}})).unwrap_err();
    assert!(error.contains("lists 8 types"), "{error}");
    assert_eq!(check(&json!({"type": vec!["null"; 7]})), Ok(()));
}

/// Compiling each of these schemas of some kilobytes took seconds to minutes, or gigabytes.
#[test]
fn many_properties_and_values_are_counted() {
    let properties = |count: usize, schema: &Value| {
        let all = (0..count).map(|at| (format!("k{at}"), schema.clone()));
        Value::Object(all.collect())
    };
    let object = |count| json!({"properties": properties(count, &json!({}))});
    assert!(of(&object(2000)) < MAX_COST && of(&object(3000)) > MAX_COST);
    let inherited = |count| json!({"allOf": [object(count), object(count)]});
    assert!(of(&inherited(900)) < MAX_COST && of(&inherited(1500)) > MAX_COST);
    let required = |count: usize| {
        json!({
            "required": (0..count).map(|at| format!("k{at}")).collect::<Vec<_>>()
        })
    };
    assert!(of(&required(2000)) < MAX_COST && of(&required(3000)) > MAX_COST);
    for key in ["minProperties", "maxProperties"] {
        let counted = |count| json!({"properties": properties(count, &json!({})), key: 1});
        assert!(of(&counted(100)) < MAX_COST && of(&counted(200)) > MAX_COST, "{key}");
        let beside = json!({"allOf": [object(200), {key: 1}]});
        assert!(of(&beside) > MAX_COST, "{key}");
    }
    let constant = |count| json!({"const": properties(count, &json!(1))});
    assert!(of(&constant(1500)) < MAX_COST && of(&constant(3000)) > MAX_COST);
    let texts = |count: usize| (0..count).map(|at| format!("v{at}")).collect::<Vec<_>>();
    assert!(of(&json!({"enum": texts(50_000)})) < MAX_COST);
    for key in ["const", "enum"] {
        let array = |count| json!({key: [texts(count)]});
        assert!(of(&array(25_000)) < MAX_COST && of(&array(40_000)) > MAX_COST, "{key}");
    }
    // Alternatives are merged with adjacent keywords.
    let long = json!({"const": "x".repeat(20_000), "enum": texts(5000)});
    assert!(of(&long) > MAX_COST);
    let both = |count| json!({"allOf": [{"enum": texts(count)}, {"enum": texts(count)}]});
    assert!(of(&both(150)) < MAX_COST && of(&both(300)) > MAX_COST);
    assert!(of(&json!({"oneOf": [{"enum": texts(5000)}, {"type": "null"}]})) < MAX_COST);
    let pattern = |count: usize| {
        let all = (0..count).map(|at| (format!("^[ab]*a[ab]{{16}}x{at}$"), json!({})));
        json!({"patternProperties": all.collect::<Map<_, _>>()})
    };
    assert!(of(&pattern(30)) < MAX_COST && of(&pattern(100)) > MAX_COST);
}

#[test]
fn levels_include_referenced_schemas() {
    let chain = |count: usize| {
        let link = |at| (format!("d{at}"), json!({"$ref": format!("#/$defs/d{}", at + 1)}));
        let mut defs: Map<String, Value> = (0..count).map(link).collect();
        defs.insert(format!("d{count}"), json!({"type": "integer"}));
        json!({"$ref": "#/$defs/d0", "$defs": defs})
    };
    // The schema has 3 levels, and each of the 11 referenced schemas has one.
    assert_eq!(levels(&chain(10), &mut Work(MAX_MEASURING_STEPS)), Ok(3 + 11));
    let twice = json!({"items": {"$ref": "#"}, "prefixItems": [{"$ref": "#/"}, {"$ref": "#"}]});
    assert_eq!(levels(&twice, &mut Work(MAX_MEASURING_STEPS)), Ok(3 * 3));
    assert_eq!(levels(&json!({"const": [[[1]]]}), &mut Work(MAX_MEASURING_STEPS)), Ok(4));
}

/// References resolve as in the compiler.
#[test]
fn references_resolve_as_in_the_compiler() {
    let both = json!({"$defs": {"a/b": {"type": "null"}, "a~1b": {"type": "object"}, "c": [1]}});
    assert_eq!(target(&both, "#/$defs/a~1b").unwrap(), &json!({"type": "object"}));
    assert_eq!(target(&both, "#/$defs/a/b"), None);
    assert_eq!(target(&both, "#/$defs/c/0").unwrap(), &json!(1));
    assert_eq!(target(&both, "#/"), Some(&both));
    assert_eq!(target(&both, "other"), None);
}

/// A realistic data model: hundreds of records that extend and refer to each other, some
/// optional.
#[test]
fn realistic_large_schemas_are_accepted() {
    let mut defs = Map::new();
    let known = json!({"properties": {
        "id": {"type": "string", "format": "uuid"},
        "meta": {"type": "object", "properties": {
            "created": {"type": "string", "format": "date-time"},
            "by": {"type": "string", "pattern": "^[a-z]+$"}}}}, "required": ["id"]});
    defs.insert("base".into(), known);
    defs.insert("price".into(), json!({"type": "number", "minimum": 0, "multipleOf": 0.01}));
    for at in 0..400 {
        let other = format!("#/$defs/d{}", at * 7 % 400);
        let mut fields: Map<String, Value> = (0..20)
            .map(|field| {
                let schema = match field % 5 {
                    0 => json!({"type": "string", "maxLength": 80, "description": "A name."}),
                    1 => json!({"anyOf": [{"$ref": other}, {"type": "null"}], "default": null}),
                    2 => json!({"type": "array", "items": {"$ref": other}, "maxItems": 20}),
                    3 => json!({"allOf": [{"$ref": "#/$defs/price"}], "title": "Price"}),
                    _ => json!({"type": "string", "format": "date"}),
                };
                (format!("field{field}"), schema)
            })
            .collect();
        fields.insert("kind".into(), json!({"const": format!("d{at}")}));
        let meta = json!({"properties": {format!("at{at}"): {"format": "date-time"}}});
        fields.insert("meta".into(), meta);
        let own = json!({"type": "object", "properties": fields, "required": ["kind"]});
        defs.insert(format!("d{at}"), json!({"allOf": [{"$ref": "#/$defs/base"}, own]}));
    }
    let any: Vec<Value> = (0..400).map(|at| json!({"$ref": format!("#/$defs/d{at}")})).collect();
    let schema = json!({"type": "array", "items": {"anyOf": any}, "$defs": defs});
    assert!(schema.to_string().len() > 500_000);
    let cost = of(&schema);
    assert!(cost < MAX_COST / 2, "{cost}");
}

#[test]
fn growing_schemas_are_rejected() {
    let chain = |count: usize, link: &dyn Fn(Value) -> Value| {
        let defs: Map<String, Value> = (0..count)
            .map(|at| (format!("d{at}"), link(json!({"$ref": format!("#/$defs/d{}", at + 1)}))))
            .chain([(format!("d{count}"), json!({"type": "object", "minProperties": 1}))])
            .collect();
        json!({"$ref": "#/$defs/d0", "$defs": defs})
    };
    let twice = |next: Value| json!({"allOf": [next, next]});
    let either = |next: Value| {
        json!({
            "allOf": [{"anyOf": [next, {"type": "null"}]}, {"anyOf": [next, {"const": 1}]}]
        })
    };
    let once = |next: Value| json!({"type": "object", "properties": {"next": next}});
    assert!(of(&chain(10, &twice)) < MAX_COST && of(&chain(20, &twice)) > MAX_COST);
    assert!(of(&chain(12, &either)) > MAX_COST);
    assert!(of(&chain(5000, &once)) < MAX_COST);
    let nested = (0..60).fold(
        json!({"type": "string"}),
        |inner, _| json!({"oneOf": [{"type": "null"}, {"type": "array", "items": inner}]}),
    );
    assert!(of(&nested) < 1000);
    // Several patterns for one string, for one property, and for separate properties.
    let patterns =
        |part: &dyn Fn(usize) -> Value| of(&json!({"allOf": (0..9).map(part).collect::<Vec<_>>()}));
    let pattern = |at: usize| json!({"type": "string", "pattern": format!("a{at}")});
    assert!(patterns(&pattern) > MAX_COST);
    assert!(patterns(&|at| json!({"properties": {"a": pattern(at)}})) > MAX_COST);
    assert!(patterns(&|at| json!({"items": pattern(at)})) > MAX_COST);
    assert!(patterns(&|at| json!({"properties": {format!("a{at}"): pattern(at)}})) < 100);
    // Nested: strings are distinguished by their full path, up to a maximum depth.
    let within = |outer: usize, inner: &dyn Fn(usize) -> Value| {
        let wrap = |inner: Value, _| json!({"properties": {"meta": inner}});
        patterns(&|at| (0..outer).fold(json!({"properties": inner(at)}), wrap))
    };
    for outer in [0, 1, 2, 20] {
        assert!(within(outer, &|at| json!({format!("f{at}"): {"format": "date-time"}})) < 1000);
        assert!(within(outer, &|at| json!({"f": pattern(at)})) > MAX_COST);
        assert!(within(outer, &|at| json!({"f": {"items": pattern(at)}})) > MAX_COST);
    }
    assert!(within(100, &|at| json!({"f": pattern(at)})) > MAX_COST);
    let uneven = |at: usize| {
        let wrap = |inner: Value, _| json!({"properties": {"meta": inner}});
        let inner = json!({"properties": {"f": pattern(at), "g": if at.is_multiple_of(2) { pattern(at) } else { json!({"items": pattern(at)}) }}});
        (0..MAX_TRACKED_LEVELS - 1).fold(inner, wrap)
    };
    assert!(patterns(&uneven) > MAX_COST);
    let places = |at: usize| match at {
        0..5 => json!({"properties": {"a": {"properties": {"b": pattern(at)}}}}),
        _ => json!({"additionalProperties": {"properties": {"b": pattern(at)}}}),
    };
    assert!(patterns(&places) > MAX_COST);
    let either = |at: usize| {
        json!({
            "anyOf": [{"properties": {"a": {"properties": {"b": pattern(at)}}}}, {"type": "null"}]
        })
    };
    assert!(patterns(&either) > MAX_COST);
    // Many references to a large schema, and deeply nested ones, are bounded work.
    let all: Map<String, Value> = (0..5000).map(|at| (format!("f{at}"), pattern(at))).collect();
    let uses = vec![json!({"$ref": "#/$defs/all"}); 10_000];
    assert!(of(&json!({"allOf": uses, "$defs": {"all": {"properties": all}}})) > MAX_COST);
    let mut defs: Map<String, Value> = (0..10_000)
        .map(|at| {
            let next = json!([{"$ref": format!("#/$defs/d{}", at + 1)}, {"pattern": "a"}]);
            (format!("d{at}"), json!({"properties": {"next": {"allOf": next}}}))
        })
        .collect();
    let first: Vec<Value> =
        (0..10_000).map(|at| json!({"$ref": format!("#/$defs/d{at}")})).collect();
    defs.insert("d10000".into(), pattern(0));
    of(&json!({"prefixItems": first, "$defs": defs}));
    // Behind references that are a property's whole schema: patterns of one property are
    // merged, and those of separate properties are not.
    let behind = |part: &dyn Fn(usize, Value) -> Value, circle: bool| {
        let name = |at: usize| json!({"$ref": format!("#/$defs/p{at}")});
        let more = |at: usize| if circle { json!({"items": name(at)}) } else { json!({}) };
        let defs: Map<String, Value> = (0..14)
            .map(|at| (format!("p{at}"), json!({"allOf": [pattern(at), more(at)]})))
            .collect();
        let all: Vec<Value> = (0..14).map(|at| part(at, name(at))).collect();
        of(&json!({"allOf": all, "$defs": defs}))
    };
    for circle in [false, true] {
        assert!(behind(&|_, part| json!({"properties": {"a": part}}), circle) > MAX_COST);
        assert!(behind(&|_, part| json!({"items": {"items": part}}), circle) > MAX_COST);
        let own = |at: usize, part| json!({"properties": {format!("a{at}"): part}});
        assert!(behind(&own, circle) < 1000);
    }
    // On a cycle: the referring schema is measured before the pattern.
    let mut defs: Map<String, Value> = (0..14)
        .flat_map(|at| {
            let back = json!({"items": {"$ref": format!("#/$defs/b{at}")}});
            let one = json!({"anyOf": [pattern(at), back]});
            let other = json!({"properties": {"p": {"$ref": format!("#/$defs/a{at}")}}});
            [(format!("a{at}"), one), (format!("b{at}"), other)]
        })
        .collect();
    let refer = |name: &str, at: usize| json!({"$ref": format!("#/$defs/{name}{at}")});
    let ways: Vec<Value> = (0..14).map(|at| refer("a", at)).collect();
    let all: Vec<Value> = (0..14).map(|at| json!({"items": refer("b", at)})).collect();
    defs.insert("all".into(), json!({"allOf": all}));
    let around = json!({"prefixItems": ways, "contains": {"$ref": "#/$defs/all"}, "$defs": defs});
    assert!(of(&around) > MAX_COST);
    // Deeper than the stack.
    assert!(of(&chain(50_000, &twice)) > MAX_COST);
    let recursive = json!({
        "$ref": "#/$defs/a",
        "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"type": "object"}]}}
    });
    assert!(of(&recursive) < 100);
    // A referenced schema is compiled once, and again if it is merged with something.
    let uses = |count: usize, more: Value| {
        let mut all: Map<String, Value> =
            (0..count).map(|at| (format!("p{at}"), json!({"$ref": "#/$defs/m"}))).collect();
        all.insert("a".into(), more);
        of(&json!({"properties": all, "$defs": {"m": {"type": "integer", "multipleOf": 1000}}}))
    };
    let once = uses(1, Value::Bool(true));
    assert!((1000..1100).contains(&once) && uses(110, Value::Bool(true)) == once + 109);
    assert!(uses(1, json!({"$ref": "#/$defs/m", "minimum": 0})) > once + 1000);
    let combined = |key: &str, all: &[f64]| {
        let all: Vec<Value> = all.iter().map(|multiple| json!({"multipleOf": multiple})).collect();
        of(&json!({"items": {key: all}}))
    };
    let multiples = |all: &[f64]| combined("allOf", all);
    assert!(multiples(&[0.01]) < 10 && multiples(&[1000.0, 0.5]) < 20_000);
    assert!(multiples(&[97.0, 89.0]) < MAX_COST && multiples(&[97.0, 89.0, 83.0]) > MAX_COST);
    assert!(multiples(&[1e300]) > MAX_COST && multiples(&[1e-300, 3.0]) > MAX_COST);
    assert!(multiples(&[0.0]) < 10);
    // Alternatives of numbers become one automaton: these took gigabytes.
    for key in ["anyOf", "oneOf"] {
        assert!(combined(key, &[20_011.0, 20_021.0]) > MAX_COST, "{key}");
        assert!(combined(key, &[997.0, 991.0, 983.0]) > MAX_COST, "{key}");
        assert!(combined(key, &[211.0, 197.0]) < MAX_COST, "{key}");
        assert!(combined(key, &[0.01, 0.05, 0.1]) < 100, "{key}");
    }
    let named = |count: usize| {
        let patterns: Map<String, Value> =
            (0..count).map(|at| (format!("^{at}"), Value::Bool(true))).collect();
        of(&json!({"patternProperties": patterns}))
    };
    assert!(named(100) < MAX_COST && named(300) > MAX_COST);
}

/// Merging copies the schema of all other items or properties to each named one: a few kilobytes
/// took gigabytes.
#[test]
fn copies_of_merged_schemas_are_counted() {
    let values: Vec<String> = (0..1000).map(|at| format!("v{at}")).collect();
    let values = json!({"enum": values});
    let places = vec![json!({}); 1000];
    let names: Map<String, Value> = (0..1000).map(|at| (format!("k{at}"), json!({}))).collect();
    let required: Vec<String> = (0..1000).map(|at| format!("k{at}")).collect();
    let nested = json!({"prefixItems": vec![json!({}); 40]});
    for [one, other] in [
        [json!({"items": values}), json!({"prefixItems": places})],
        [json!({"additionalProperties": values}), json!({"properties": names})],
        [json!({"patternProperties": {"^k": values}}), json!({"required": required})],
        [json!({"items": values}), json!({"items": values})],
        [json!({"items": values}), json!({"anyOf": vec![json!({"prefixItems": [{}]}); 1000]})],
        [json!({"items": {"items": values}}), json!({"prefixItems": vec![nested; 40]})],
    ] {
        assert!(of(&json!({"allOf": [one, other]})) > MAX_COST, "{other}");
        assert!(of(&one) < MAX_COST / 4 && of(&other) < MAX_COST / 4);
    }
}

/// Numbers of nested values are merged, too.
#[test]
fn multiples_of_nested_values_are_counted() {
    let both = |nest: &dyn Fn(Value) -> Value| {
        let of = |multiple: u64| nest(json!({"type": "integer", "multipleOf": multiple}));
        json!({"allOf": [of(9973), of(9967)]})
    };
    assert!(of(&both(&|number| json!({"items": number}))) > MAX_COST);
    assert!(of(&both(&|number| json!({"properties": {"a": {"items": number}}}))) > MAX_COST);
    let one = json!({"multipleOf": 9973});
    assert!(of(&json!({"properties": {"a": one, "b": {"type": "string"}}})) < MAX_COST / 4);
    let items = json!({"items": {"prefixItems": vec![json!({}); 2000]}});
    let values: Vec<String> = (0..1000).map(|at| format!("v{at}")).collect();
    let values = json!({"items": {"items": {"enum": values}}});
    assert!(of(&json!({"allOf": [items, values]})) > MAX_COST);
}

#[test]
fn classes_of_characters_are_counted() {
    let of = |pattern: &str| of(&json!({"pattern": pattern}));
    assert!(of(&r"(?i)^\pL$".repeat(1000)) > MAX_COST);
    assert!(of(&r"(?s-m)\pL".repeat(1000)) < MAX_COST / 2);
    assert!(of(&r"(?si:[\u0000-\uffff])".repeat(200)) > MAX_COST);
    assert!(of(&"(?i)[a-z]".repeat(1000)) < MAX_COST / 10);
    assert!(of(&"[\u{0}-\u{ffff}]".repeat(200)) < MAX_COST / 10);
    assert!(of("(?i)[ä-ü]") >= UNITS_PER_CASELESS_RANGE);
}
