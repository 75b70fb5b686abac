//! How much a schema becomes, before anything is made of it.
//!
//! Schemas that all have to hold are put together into one, by who reads them: alternatives of each with alternatives of the others, patterns with
//! patterns. A few hundred bytes can become billions in this way, and some of it is not counted there. So it is estimated here, from above.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The most that a schema may become: each is about 10 µs of the time until it can be used.
pub(super) const MOST: u64 = 100_000;
/// Schemas within one another, and references that are put together with others. Text of JSON has 128 of the first at most.
const DEPTH: u32 = 400;
/// Keywords that say nothing about values, beside a reference.
const NOTES: [&str; 12] = [
    "$ref",
    "$defs",
    "definitions",
    "$schema",
    "$id",
    "id",
    "$comment",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
];

/// Patterns that one text has to fit at once: whether any does takes longer for each by several times.
const PATTERNS: u64 = 8;
/// The work that is done to find out, in names of properties.
const WORK: usize = 1 << 21;

/// What a schema becomes.
#[derive(Clone)]
struct Cost<'a> {
    alternatives: u64,
    /// Of all alternatives together.
    size: u64,
    /// A number that all numbers are multiples of: an automaton has as many states. As a fraction, of this many decimals.
    multiple: (u64, u32),
    /// Patterns for names of properties, which are compared with one another.
    names: u64,
    /// Patterns that a text has to fit.
    patterns: u64,
    /// The same of texts within, by the property that they are within.
    within: BTreeMap<&'a str, u64>,
}

/// What texts are within that are in no property of a name.
const OTHERS: &str = "";

impl<'a> Cost<'a> {
    fn least() -> Self {
        let within = BTreeMap::new();
        Cost { alternatives: 1, size: 1, multiple: (1, 0), names: 0, patterns: 0, within }
    }

    fn too_much() -> Self {
        Cost { size: u64::MAX, ..Cost::least() }
    }

    fn total(&self) -> u64 {
        if self.deepest() > PATTERNS {
            return u64::MAX;
        }
        let states = if self.multiple.0 > 1 { self.multiple.0 } else { 0 };
        let compared = self.names.saturating_pow(3) / 100;
        let each = states.saturating_add(compared);
        self.size.saturating_add(self.alternatives.saturating_mul(each))
    }

    /// The most patterns that a text in it has to fit.
    fn deepest(&self) -> u64 {
        let named = self.within.iter().filter(|(name, _)| **name != OTHERS);
        let named = named.map(|(_, count)| *count).max().unwrap_or(0);
        let others = self.within.get(OTHERS).copied().unwrap_or(0);
        self.patterns.max(named.saturating_add(others))
    }

    /// Both at once.
    fn and(self, other: Self) -> Self {
        let (left, right) = (
            self.size.saturating_mul(other.alternatives),
            other.size.saturating_mul(self.alternatives),
        );
        Cost {
            alternatives: self.alternatives.saturating_mul(other.alternatives),
            size: left.saturating_add(right),
            multiple: common_multiple(self.multiple, other.multiple),
            names: self.names.saturating_add(other.names),
            patterns: self.patterns.saturating_add(other.patterns),
            within: joined(self.within, other.within, u64::saturating_add),
        }
    }

    /// One of them.
    fn or(self, other: Self) -> Self {
        Cost {
            alternatives: self.alternatives.saturating_add(other.alternatives),
            size: self.size.saturating_add(other.size),
            multiple: self.multiple.max(other.multiple),
            names: self.names.max(other.names),
            patterns: self.patterns.max(other.patterns),
            within: joined(self.within, other.within, u64::max),
        }
    }
}

/// What two maps have of each name, in a time that the smaller one takes.
fn joined<'a>(
    one: BTreeMap<&'a str, u64>,
    other: BTreeMap<&'a str, u64>,
    join: impl Fn(u64, u64) -> u64,
) -> BTreeMap<&'a str, u64> {
    let (mut larger, smaller) = if one.len() < other.len() { (other, one) } else { (one, other) };
    for (name, count) in smaller {
        let known = larger.entry(name).or_insert(0);
        *known = join(*known, count);
    }
    larger
}

/// What the whole of a schema becomes, with all that it refers to.
pub(super) fn of(schema: &Value) -> u64 {
    let mut costs = Costs {
        whole: schema,
        known: BTreeMap::new(),
        queued: BTreeSet::new(),
        waiting: Vec::new(),
        work: WORK,
    };
    let mut total = costs.of(schema, false, 0).total();
    // What is referred to becomes a part of its own once.
    while let Some(reference) = costs.waiting.pop() {
        total = total.saturating_add(costs.referred(reference, 0).total());
    }
    total
}

struct Costs<'a> {
    whole: &'a Value,
    /// By reference; while one is looked at, it is not counted within itself.
    known: BTreeMap<&'a str, Cost<'a>>,
    /// References that stand alone somewhere, each once.
    queued: BTreeSet<&'a str>,
    /// Those of them that are not counted yet.
    waiting: Vec<&'a str>,
    work: usize,
}

impl<'a> Costs<'a> {
    /// What a schema becomes, be it put together with another or not.
    fn of(&mut self, schema: &'a Value, is_put_together: bool, depth: u32) -> Cost<'a> {
        let Value::Object(fields) = schema else { return Cost::least() };
        if depth > DEPTH {
            return Cost::too_much();
        }
        let mut cost = self.own(fields, depth);
        let parts = list(fields, "allOf");
        let is_alone = fields.keys().all(|key| NOTES.contains(&key.as_str()));
        if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
            if is_put_together || !is_alone {
                cost = cost.and(self.referred(reference, depth + 1));
            } else if self.queued.insert(reference) {
                self.waiting.push(reference);
            }
        }
        let is_one = parts.len() == 1 && fields.len() == 1;
        for part in parts {
            cost = cost.and(self.of(part, is_put_together || !is_one, depth + 1));
        }
        for key in ["anyOf", "oneOf"] {
            let is_put_together = is_put_together || fields.len() > 1;
            let each = list(fields, key).iter();
            let each = each.map(|one| self.of(one, is_put_together, depth + 1));
            let Some(mut one) = each.reduce(Cost::or) else { continue };
            if key == "oneOf" {
                // Each is compared with each.
                let pairs = one.alternatives.saturating_mul(one.alternatives);
                one.size = one.size.saturating_add(pairs / 16);
            }
            cost = cost.and(one);
        }
        cost
    }

    /// What a schema says itself.
    fn own(&mut self, fields: &'a Map<String, Value>, depth: u32) -> Cost<'a> {
        let mut cost = Cost::least();
        let mut add = |costs: &mut Self, name: &'a str, schema: &'a Value| {
            let part = costs.of(schema, false, depth + 1);
            cost.size = cost.size.saturating_add(part.total());
            let patterns = part.deepest();
            if patterns > 0 {
                let known = cost.within.entry(name).or_insert(0);
                *known = patterns.max(*known);
            }
        };
        for (key, value) in fields {
            match (key.as_str(), value) {
                ("properties", Value::Object(all)) => {
                    all.iter().for_each(|(name, schema)| add(self, name, schema));
                }
                ("patternProperties" | "dependentSchemas", Value::Object(all)) => {
                    all.values().for_each(|schema| add(self, OTHERS, schema));
                }
                ("prefixItems" | "items", Value::Array(all)) => {
                    all.iter().for_each(|schema| add(self, OTHERS, schema));
                }
                (
                    "items"
                    | "additionalItems"
                    | "additionalProperties"
                    | "contains"
                    | "not"
                    | "if"
                    | "then"
                    | "else"
                    | "propertyNames",
                    schema,
                ) => add(self, OTHERS, schema),
                _ => {}
            }
        }
        if let Some(Value::Object(all)) = fields.get("patternProperties") {
            cost.names = all.len() as u64;
        }
        let texts = ["pattern", "format"].iter().filter(|key| fields.contains_key(**key));
        cost.patterns = texts.count() as u64;
        if let Some(multiple) = fields.get("multipleOf").and_then(Value::as_f64) {
            cost.multiple = fraction(multiple);
        }
        cost
    }

    fn referred(&mut self, reference: &'a str, depth: u32) -> Cost<'a> {
        if let Some(cost) = self.known.get(reference) {
            let Some(left) = self.work.checked_sub(cost.within.len()) else {
                return Cost::too_much();
            };
            self.work = left;
            return cost.clone();
        }
        self.known.insert(reference, Cost::least());
        // What leads elsewhere is refused by who reads the schema.
        let schema = reference.strip_prefix('#').and_then(|path| self.whole.pointer(path));
        let cost = schema.map_or(Cost::least(), |schema| self.of(schema, true, depth));
        self.known.insert(reference, cost.clone());
        cost
    }
}

fn list<'v>(fields: &'v Map<String, Value>, key: &str) -> &'v [Value] {
    fields.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A number without its point, and how many of its digits are behind it.
fn fraction(number: f64) -> (u64, u32) {
    // Never with an exponent.
    let text = number.abs().to_string();
    let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
    let digits = format!("{whole}{decimals}").parse().unwrap_or(u64::MAX);
    (digits, u32::try_from(decimals.len()).unwrap_or(u32::MAX))
}

fn common_multiple(one: (u64, u32), other: (u64, u32)) -> (u64, u32) {
    let decimals = one.1.max(other.1);
    let scaled = |(number, own): (u64, u32)| {
        10u64.checked_pow(decimals - own).map_or(u64::MAX, |scale| number.saturating_mul(scale))
    };
    let (one, other) = (scaled(one), scaled(other));
    let (mut divisor, mut rest) = (one, other);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    let multiple = one.checked_div(divisor).unwrap_or(0).saturating_mul(other);
    let (mut multiple, mut decimals) = (multiple.max(1), decimals);
    while decimals > 0 && multiple.is_multiple_of(10) {
        (multiple, decimals) = (multiple / 10, decimals - 1);
    }
    (multiple, decimals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn schemas_that_grow_are_found() {
        let chain = |count: usize, link: &dyn Fn(Value) -> Value| {
            let defs: Map<String, Value> = (0..count)
                .map(|at| (format!("d{at}"), link(json!({"$ref": format!("#/$defs/d{}", at + 1)}))))
                .chain([(format!("d{count}"), json!({"type": "object", "minProperties": 1}))])
                .collect();
            json!({"$ref": "#/$defs/d0", "$defs": defs})
        };
        let twice = |next: Value| json!({"allOf": [next, next]});
        let either = |next: Value| json!({"allOf": [{"anyOf": [next, {"type": "null"}]}, {"anyOf": [next, {"const": 1}]}]});
        let once = |next: Value| json!({"type": "object", "properties": {"next": next}});
        assert!(of(&chain(10, &twice)) < MOST && of(&chain(20, &twice)) > MOST);
        assert!(of(&chain(12, &either)) > MOST);
        assert!(of(&chain(5000, &once)) < MOST);
        let nested = (0..60).fold(
            json!({"type": "string"}),
            |inner, _| json!({"oneOf": [{"type": "null"}, {"type": "array", "items": inner}]}),
        );
        assert!(of(&nested) < 1000);
        // As many patterns for one text, or for one property, and for several.
        let patterns = |part: &dyn Fn(usize) -> Value| {
            of(&json!({"allOf": (0..9).map(part).collect::<Vec<_>>()}))
        };
        let pattern = |at: usize| json!({"type": "string", "pattern": format!("a{at}")});
        assert!(patterns(&pattern) > MOST);
        assert!(patterns(&|at| json!({"properties": {"a": pattern(at)}})) > MOST);
        assert!(patterns(&|at| json!({"items": pattern(at)})) > MOST);
        assert!(patterns(&|at| json!({"properties": {format!("a{at}"): pattern(at)}})) < 100);
        // Deeper than there is stack for.
        assert!(of(&chain(50_000, &twice)) > MOST);
        let recursive = json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"type": "object"}]}}});
        assert!(of(&recursive) < 100);
        // What is referred to is made once, however often, and also where it is put together with something before.
        let uses = |count: usize, more: Value| {
            let mut all: Map<String, Value> =
                (0..count).map(|at| (format!("p{at}"), json!({"$ref": "#/$defs/m"}))).collect();
            all.insert("a".into(), more);
            of(&json!({"properties": all, "$defs": {"m": {"type": "integer", "multipleOf": 1000}}}))
        };
        let once = uses(1, Value::Bool(true));
        assert!((1000..1100).contains(&once) && uses(110, Value::Bool(true)) == once + 109);
        assert!(uses(1, json!({"$ref": "#/$defs/m", "minimum": 0})) > once + 1000);
        let multiples = |all: &[f64]| {
            of(
                &json!({"allOf": all.iter().map(|multiple| json!({"multipleOf": multiple})).collect::<Vec<_>>()}),
            )
        };
        assert!(multiples(&[0.01]) < 10 && multiples(&[1000.0, 0.5]) < 20_000);
        assert!(multiples(&[97.0, 89.0]) < MOST && multiples(&[97.0, 89.0, 83.0]) > MOST);
        assert!(multiples(&[1e300]) > MOST && multiples(&[1e-300, 3.0]) > MOST);
        assert!(multiples(&[0.0]) < 10);
        let named = |count: usize| {
            let patterns: Map<String, Value> =
                (0..count).map(|at| (format!("^{at}"), Value::Bool(true))).collect();
            of(&json!({"patternProperties": patterns}))
        };
        assert!(named(100) < MOST && named(300) > MOST);
    }
}
