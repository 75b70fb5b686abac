//! Upper bound on the cost of compiling a schema, computed before compilation.
//!
//! llguidance merges schemas that must all match into one: it combines the alternatives of each
//! with those of the others, and patterns with patterns. A few hundred bytes can expand to
//! billions, and llguidance's own limits do not cover all of it.

use super::parts;
use super::worker::MAX_LEVELS;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum cost of a schema. A unit is about 10 µs of compilation in a release build, so this is
/// about 1 s.
pub(super) const MAX_COST: u64 = 100_000;
/// Maximum nesting of schemas, and of references that are merged with other schemas. JSON parsers
/// limit the former to 128.
const MAX_DEPTH: u32 = 400;
/// Keywords that do not constrain values. A schema beside them is not merged.
const ANNOTATIONS: [&str; 16] = [
    "$anchor",
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
    "readOnly",
    "writeOnly",
    "contentMediaType",
    "contentEncoding",
];

/// Keywords whose subschemas apply to the same value.
const ALTERNATIVES: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Maximum number of patterns that one string must match. Each additional pattern multiplies the
/// time of their intersection.
const MAX_PATTERNS: u64 = 8;
/// Properties of an object beyond this number cost quadratic time: 4.5 s for 4,000 properties,
/// which is one unit per [`PROPERTY_PAIRS_PER_UNIT`] pairs.
const FEW_PROPERTIES: u64 = 128;
const PROPERTY_PAIRS_PER_UNIT: u64 = 36;
/// As above for objects with `minProperties` or `maxProperties`. The compiler expands a list of all
/// properties for each of them, in cubic time: 0.7 s for 100.
const PROPERTY_TRIPLES_PER_UNIT: u64 = 15;
/// Pairs of items per unit in an array of `const` or `enum`. Arrays cost quadratic time: 2.6 s for
/// 60,000 items.
const ITEM_PAIRS_PER_UNIT: u64 = 14_000;
/// Units per `pattern` or `format`: the compiler checks whether any string matches.
const UNITS_PER_PATTERN: u64 = 4;
/// Units per class of Unicode characters (`\pL`) in a pattern.
const UNITS_PER_CLASS: u64 = 20;
/// As above if case is ignored: the compiler looks up the other cases of each character.
const UNITS_PER_CASELESS_CLASS: u64 = 200;
/// As above for a class in brackets with other characters than ASCII: 10 ms for 65,536 characters.
const UNITS_PER_CASELESS_RANGE: u64 = 1000;
/// Maximum units per pair of `patternProperties`, which are compared in pairs. The compiler gives
/// up after 10,000 steps, which last a millisecond.
const MAX_UNITS_PER_PATTERN_PAIR: u64 = 100;
/// Units per byte of a pair of patterns. Short patterns have few states to compare.
const UNITS_PER_PATTERN_BYTE: u64 = 4;
/// Bytes per unit of a value or property name. The compiler copies them for each alternative that
/// they are intersected with.
const BYTES_PER_UNIT: usize = 32;
/// Units per digit of a numeric bound. Bounds become regular expressions.
const UNITS_PER_DIGIT: u64 = 3;
/// Keywords of numeric bounds.
const BOUNDS: [&str; 4] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];
/// Keywords of string lengths. llguidance writes them as 32-bit counts of a regular expression.
const LENGTHS: [&str; 2] = ["minLength", "maxLength"];
/// Maximum decimals of `multipleOf`. llguidance computes with 32-bit powers of ten.
const MAX_DECIMALS: u32 = 8;
/// Maximum nesting of values whose patterns are tracked separately. Deeper patterns are attributed
/// to the enclosing value.
const MAX_TRACKED_LEVELS: u32 = 32;
/// Step budget for measuring a schema, about 0.3 s in a release build. Many references may lead to
/// the same subschema with different spellings (`#/x/0`, `#/x/00`), which the compiler treats as
/// different schemas.
const MAX_MEASURING_STEPS: usize = 1 << 21;
/// Steps per visited schema, in addition to one per keyword.
const STEPS_PER_VISIT: usize = 4;
/// Bytes of a reference per step, for comparisons.
const BYTES_PER_STEP: usize = 16;
/// Number of JSON types.
const TYPES: usize = 7;

/// Remaining steps for measuring a schema.
struct Work(usize);

impl Work {
    fn charge(&mut self, steps: usize) -> Result<(), String> {
        self.0 = self.0.checked_sub(steps).ok_or_else(|| {
            format!(
                "measuring the schema needs more than {MAX_MEASURING_STEPS} steps: it is too \
                 large, or refers to the same large subschema by many spellings; spell these \
                 references identically"
            )
        })?;
        Ok(())
    }
}

/// Compilation cost of a schema.
#[derive(Clone)]
struct Cost<'a> {
    alternatives: u64,
    /// Total over all alternatives.
    size: u64,
    /// Least common multiple of all `multipleOf`s, as an integer and a number of decimals. The
    /// automaton has this many states, whether numbers must match all of them or any: alternatives
    /// of numbers become one automaton, too.
    multiple: (u64, u32),
    /// As above for all nested values: those of two schemas may be merged.
    within: (u64, u32),
    /// Number of patterns for property names, which are compared in pairs.
    names: u64,
    /// Total bytes of these patterns.
    name_bytes: u64,
    /// Number of named properties of an object.
    properties: u64,
    /// Whether `minProperties` or `maxProperties` apply.
    is_counted: bool,
    /// Number of named properties and positions of an array (`prefixItems`), with those nested in
    /// them.
    places: u64,
    /// Units of the schemas for all other properties and items. Merging copies them to each place
    /// of the other schema.
    rest: u64,
    /// Alternatives of these schemas.
    rest_alternatives: u64,
    /// Patterns that strings must match.
    patterns: Patterns<'a>,
}

/// Number of patterns that a value and its nested values must match.
#[derive(Clone, Default)]
struct Patterns<'a> {
    own: u64,
    /// Maximum number of patterns for nested values that are not tracked separately.
    further: u64,
    /// Nested values by property name. `None` stands for all other positions.
    within: BTreeMap<Option<&'a str>, Patterns<'a>>,
    /// Maximum number of patterns for a value within a named property.
    most_named: u64,
    /// Nesting depth of the tracked values.
    levels: u32,
}

impl<'a> Patterns<'a> {
    /// Maximum number of patterns for any string in it. Patterns for any position may also apply to
    /// a named property.
    fn most(&self) -> u64 {
        self.own.max(self.most_within()).saturating_add(self.further)
    }

    fn most_within(&self) -> u64 {
        let others = self.within.get(&None).map_or(0, Patterns::most);
        self.most_named.saturating_add(others)
    }

    /// As [`most`](Self::most) for nested values, without tracking them separately, which bounds
    /// the size.
    fn blurred(&self) -> Self {
        let further = self.most_within().saturating_add(self.further);
        Patterns { own: self.own, further, ..Patterns::default() }
    }

    /// Number of values that are tracked separately.
    fn count(&self) -> usize {
        1 + self.within.values().map(Patterns::count).sum::<usize>()
    }

    /// Adds patterns of a nested value, merging them with `join`.
    fn put(&mut self, name: Option<&'a str>, mut part: Self, join: fn(u64, u64) -> u64) {
        let most = part.most();
        if most == 0 {
            return;
        }
        if part.levels >= MAX_TRACKED_LEVELS {
            part = Patterns { further: most, ..Patterns::default() };
        }
        self.levels = self.levels.max(part.levels + 1);
        let place = self.within.entry(name).or_default();
        *place = std::mem::take(place).joined(part, join);
        if name.is_some() {
            self.most_named = self.most_named.max(place.most());
        }
    }

    /// Merges two trees position by position, in time proportional to the smaller one.
    fn joined(self, other: Self, join: fn(u64, u64) -> u64) -> Self {
        let is_larger = self.within.len() >= other.within.len();
        let (mut larger, smaller) = if is_larger { (self, other) } else { (other, self) };
        larger.own = join(larger.own, smaller.own);
        larger.further = join(larger.further, smaller.further);
        larger.most_named = larger.most_named.max(smaller.most_named);
        for (name, part) in smaller.within {
            larger.put(name, part, join);
        }
        larger
    }
}

impl<'a> Cost<'a> {
    fn least() -> Self {
        let patterns = Patterns::default();
        Cost {
            alternatives: 1,
            size: 1,
            multiple: (1, 0),
            within: (1, 0),
            names: 0,
            name_bytes: 0,
            properties: 0,
            is_counted: false,
            places: 0,
            rest: 0,
            rest_alternatives: 0,
            patterns,
        }
    }

    fn too_much() -> Self {
        Cost { size: u64::MAX, ..Cost::least() }
    }

    fn total(&self) -> u64 {
        if self.patterns.most() > MAX_PATTERNS {
            return u64::MAX;
        }
        let states = if self.multiple.0 > 1 { self.multiple.0 } else { 0 };
        let each = states.saturating_add(self.names_total()).saturating_add(self.object_total());
        self.size.saturating_add(self.alternatives.saturating_mul(each))
    }

    /// Units for comparing name patterns with one another and with property names.
    fn names_total(&self) -> u64 {
        let pairs = self.names.saturating_mul(self.names.saturating_sub(1)) / 2;
        let bytes = self.name_bytes.checked_div(self.names).unwrap_or(0);
        let pair = bytes.saturating_mul(UNITS_PER_PATTERN_BYTE).min(MAX_UNITS_PER_PATTERN_PAIR);
        let matched = self.names.saturating_mul(self.properties) / 10;
        pairs.saturating_mul(pair).saturating_add(matched)
    }

    /// Units for the properties of an object.
    fn object_total(&self) -> u64 {
        let many = self.properties.saturating_sub(FEW_PROPERTIES);
        let pairs = many.saturating_pow(2) / PROPERTY_PAIRS_PER_UNIT;
        let triples = match self.is_counted {
            true => self.properties.saturating_pow(3) / PROPERTY_TRIPLES_PER_UNIT,
            false => 0,
        };
        pairs.saturating_add(triples)
    }

    /// Cost of the conjunction of two schemas.
    fn and(self, other: Self) -> Self {
        let (left, right) = (
            self.size.saturating_mul(other.alternatives),
            other.size.saturating_mul(self.alternatives),
        );
        // Values that only one schema restricts are not merged.
        let merged = match self.within.0 > 1 && other.within.0 > 1 {
            true => common_multiple(self.within, other.within).0,
            false => 0,
        };
        let copied = [
            merged,
            self.rest.saturating_mul(other.places),
            other.rest.saturating_mul(self.places),
            self.rest_alternatives.saturating_mul(other.rest_alternatives),
        ];
        Cost {
            alternatives: self.alternatives.saturating_mul(other.alternatives),
            size: copied.into_iter().fold(left.saturating_add(right), u64::saturating_add),
            places: self.places.saturating_add(other.places),
            rest: self.rest.saturating_add(other.rest),
            rest_alternatives: self.rest_alternatives.max(other.rest_alternatives),
            multiple: common_multiple(self.multiple, other.multiple),
            within: common_multiple(self.within, other.within),
            names: self.names.saturating_add(other.names),
            name_bytes: self.name_bytes.saturating_add(other.name_bytes),
            properties: self.properties.saturating_add(other.properties),
            is_counted: self.is_counted || other.is_counted,
            patterns: self.patterns.joined(other.patterns, u64::saturating_add),
        }
    }

    /// Cost of the disjunction of two schemas.
    fn or(self, other: Self) -> Self {
        Cost {
            alternatives: self.alternatives.saturating_add(other.alternatives),
            size: self.size.saturating_add(other.size),
            // Each alternative is merged with another schema on its own.
            places: self.places.saturating_add(other.places),
            rest: self.rest.saturating_add(other.rest),
            rest_alternatives: self.rest_alternatives.saturating_add(other.rest_alternatives),
            multiple: common_multiple(self.multiple, other.multiple),
            within: common_multiple(self.within, other.within),
            names: self.names.max(other.names),
            name_bytes: self.name_bytes.max(other.name_bytes),
            properties: self.properties.max(other.properties),
            is_counted: self.is_counted || other.is_counted,
            patterns: self.patterns.joined(other.patterns, u64::max),
        }
    }
}

/// Units for a pattern.
fn regex(pattern: &str) -> u64 {
    (pattern.len() as u64 / 2).saturating_add(classes(pattern))
}

/// Units for the classes of characters in a pattern.
fn classes(pattern: &str) -> u64 {
    // Flags are letters between `(?` and `)` or `:`; those after `-` are turned off.
    let is_caseless = pattern.split("(?").skip(1).any(|rest| {
        let is_flag = |letter: char| letter.is_ascii_alphabetic();
        let end = rest.find(|letter| !is_flag(letter)).unwrap_or(rest.len());
        rest.get(..end).is_some_and(|flags| flags.contains('i'))
    });
    let named = pattern.matches("\\p").count() + pattern.matches("\\P").count();
    let each = if is_caseless { UNITS_PER_CASELESS_CLASS } else { UNITS_PER_CLASS };
    let named = (named as u64).saturating_mul(each);
    if !is_caseless {
        return named;
    }
    let is_wide = |class: &&str| {
        let class = class.split(']').next().unwrap_or_default();
        !class.is_ascii() || ["\\u", "\\x", "\\U"].iter().any(|escape| class.contains(escape))
    };
    let ranges = pattern.split('[').skip(1).filter(is_wide).count() as u64;
    named.saturating_add(ranges.saturating_mul(UNITS_PER_CASELESS_RANGE))
}

/// Fails if llguidance cannot represent a string length. (`bounds.rs` checks those of numbers.)
fn representable(fields: &Map<String, Value>) -> Result<(), String> {
    for key in LENGTHS {
        let Some(length) = fields.get(key).and_then(Value::as_f64) else { continue };
        if length > f64::from(u32::MAX) {
            return Err(format!("'{key}' is {length}, more than {}", u32::MAX));
        }
    }
    Ok(())
}

/// Returns an error if compiling a schema would exceed the time or stack limit.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    let mut work = Work(MAX_MEASURING_STEPS);
    if levels(schema, &mut work)? > MAX_LEVELS {
        return Err(format!(
            "the schema has more than {MAX_LEVELS} levels, including those of referenced schemas"
        ));
    }
    match measure(schema, work)? > MAX_COST {
        true => Err(format!(
            "the schema becomes too large (more than {MAX_COST} units): it has too many \
             properties, values or patterns, or combines schemas ('allOf', '$ref' with siblings, \
             'minProperties', patterns of one string, 'patternProperties', and different \
             'multipleOf' that all or any must match)"
        )),
        false => Ok(()),
    }
}

/// Total cost of a schema, including everything that it refers to.
fn measure(schema: &Value, mut work: Work) -> Result<u64, String> {
    let (references, has_cycles) = references(schema, &mut work)?;
    let mut costs = Costs {
        whole: schema,
        known: BTreeMap::new(),
        alone: BTreeSet::new(),
        seen: BTreeMap::new(),
        work,
    };
    if has_cycles {
        // Values on a cycle are complete in the second pass.
        costs.see(&references)?;
        costs.known.clear();
    }
    costs.see(&references)?;
    let own = costs.of(schema, false, 0)?.total();
    // A referenced schema is compiled once on its own.
    let alone = costs.alone.iter().filter_map(|reference| costs.known.get(reference));
    Ok(alone.fold(own, |total, cost| total.saturating_add(cost.total())))
}

/// All references that a schema contains directly or indirectly, dependencies first except on
/// cycles. Also returns whether cycles exist.
fn references<'v>(whole: &'v Value, work: &mut Work) -> Result<(Vec<&'v str>, bool), String> {
    let (mut ordered, mut begun, mut ended) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let mut has_cycles = false;
    let mut waiting = vec![(None, named_in(whole, work)?)];
    while let Some((reference, next)) = waiting.last_mut() {
        match next.pop() {
            Some(next) if begun.insert(next) => {
                let named = target(whole, next).map(|schema| named_in(schema, work));
                waiting.push((Some(next), named.transpose()?.unwrap_or_default()));
            }
            Some(next) => has_cycles |= !ended.contains(next),
            None => {
                ordered.extend(*reference);
                ended.extend(*reference);
                waiting.pop();
            }
        }
    }
    Ok((ordered, has_cycles))
}

/// References in a schema, without those in definitions.
fn named_in<'v>(schema: &'v Value, work: &mut Work) -> Result<Vec<&'v str>, String> {
    let (mut found, mut waiting) = (Vec::new(), vec![schema]);
    while let Some(schema) = waiting.pop() {
        work.charge(1)?;
        let Value::Object(fields) = schema else { continue };
        work.charge(fields.len())?;
        if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
            work.charge(reference.len() / BYTES_PER_STEP)?;
            found.push(reference);
        }
        for (key, value) in fields.iter().filter(|(key, _)| !ANNOTATIONS.contains(&key.as_str())) {
            waiting.extend(parts::of(key, value).into_iter().map(|(_, schema)| schema));
        }
    }
    Ok(found)
}

/// Resolves a reference as the compiler does: names are compared verbatim, and `#/` is the whole
/// schema. The compiler rejects other references.
fn target<'v>(whole: &'v Value, reference: &str) -> Option<&'v Value> {
    match reference {
        "#" | "#/" => Some(whole),
        _ => reference.strip_prefix("#/")?.split('/').try_fold(whole, |value, name| match value {
            Value::Array(items) => items.get(name.parse::<usize>().ok()?),
            value => value.get(name),
        }),
    }
}

/// Maximum recursion depth of the compiler: the sum of the depths of the schema and of each
/// referenced schema, because each of these is entered once. Counting stops beyond [`MAX_LEVELS`].
fn levels(schema: &Value, work: &mut Work) -> Result<usize, String> {
    let (mut seen, mut waiting) = (BTreeSet::new(), vec![schema]);
    while let Some(value) = waiting.pop() {
        match value {
            Value::Array(items) => waiting.extend(items),
            Value::Object(fields) => {
                seen.extend(fields.get("$ref").and_then(Value::as_str));
                waiting.extend(fields.values());
            }
            _ => {}
        }
    }
    let mut levels = depth(schema, work)?;
    for reference in seen {
        if levels > MAX_LEVELS {
            break;
        }
        let own = target(schema, reference).map_or(Ok(1), |target| depth(target, work))?;
        levels = levels.saturating_add(own);
    }
    Ok(levels)
}

/// Nesting depth of arrays and objects.
fn depth(value: &Value, work: &mut Work) -> Result<usize, String> {
    work.charge(1)?;
    let mut most = 0;
    match value {
        Value::Array(items) => {
            for item in items {
                most = most.max(depth(item, work)?);
            }
        }
        Value::Object(fields) => {
            for field in fields.values() {
                most = most.max(depth(field, work)?);
            }
        }
        _ => return Ok(0),
    }
    Ok(1 + most)
}

struct Costs<'a> {
    whole: &'a Value,
    /// Cost by reference. While a reference is being measured, it costs nothing within itself.
    known: BTreeMap<&'a str, Cost<'a>>,
    /// References that occur alone, without a merge.
    alone: BTreeSet<&'a str>,
    /// Patterns behind references. If properties of one name are merged, so are the schemas that
    /// they refer to.
    seen: BTreeMap<&'a str, Patterns<'a>>,
    work: Work,
}

impl<'a> Costs<'a> {
    /// Measures all references.
    fn see(&mut self, references: &[&'a str]) -> Result<(), String> {
        for &reference in references {
            if !self.known.contains_key(reference) {
                self.referred(reference, 0)?;
            }
            let patterns = self.known.get(reference).map(|cost| cost.patterns.blurred());
            self.seen.insert(reference, patterns.unwrap_or_default());
        }
        Ok(())
    }

    /// Cost of a schema. `is_merged` means that it is merged with others.
    fn of(&mut self, schema: &'a Value, is_merged: bool, depth: u32) -> Result<Cost<'a>, String> {
        self.work.charge(STEPS_PER_VISIT)?;
        let Value::Object(fields) = schema else { return Ok(Cost::least()) };
        self.work.charge(fields.len())?;
        if depth > MAX_DEPTH {
            return Ok(Cost::too_much());
        }
        let mut cost = self.own(fields, depth)?;
        let parts = list(fields, "allOf");
        let is_alone = |only: &str| {
            fields.keys().all(|key| key == only || ANNOTATIONS.contains(&key.as_str()))
        };
        if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
            if is_merged || !is_alone("$ref") {
                cost = cost.and(self.referred(reference, depth + 1)?);
            } else {
                self.work.charge(reference.len() / BYTES_PER_STEP)?;
                self.alone.insert(reference);
                let seen = self.seen.get(reference).cloned().unwrap_or_default();
                cost.patterns = cost.patterns.joined(seen, u64::saturating_add);
            }
        }
        let is_one = parts.len() == 1 && is_alone("allOf");
        for part in parts {
            cost = cost.and(self.of(part, is_merged || !is_one, depth + 1)?);
        }
        for key in ["anyOf", "oneOf"] {
            let is_merged = is_merged || !is_alone(key);
            let (mut within, mut either) = (0u64, None);
            for one in list(fields, key) {
                let cost = self.of(one, is_merged, depth + 1)?;
                within = within.saturating_add(cost.alternatives.saturating_pow(2));
                either = Some(match either {
                    Some(either) => Cost::or(either, cost),
                    None => cost,
                });
            }
            let Some(mut one) = either else { continue };
            if key == "oneOf" {
                // llguidance compares alternatives of `oneOf` in pairs.
                let pairs = one.alternatives.saturating_pow(2).saturating_sub(within);
                one.size = one.size.saturating_add(pairs / 16);
            }
            cost = cost.and(one);
        }
        Ok(cost)
    }

    /// Cost of a schema's own keywords.
    fn own(&mut self, fields: &'a Map<String, Value>, depth: u32) -> Result<Cost<'a>, String> {
        let types = list(fields, "type").len();
        if types > TYPES {
            return Err(format!("a 'type' lists {types} types, but JSON has {TYPES}"));
        }
        let mut cost = Cost::least();
        for (key, value) in fields {
            if ANNOTATIONS.contains(&key.as_str()) || ALTERNATIVES.contains(&key.as_str()) {
                continue;
            }
            for (name, schema) in parts::of(key, value) {
                let part = self.of(schema, false, depth + 1)?;
                let total = part.total();
                cost.size = cost.size.saturating_add(total);
                cost.within =
                    common_multiple(cost.within, common_multiple(part.within, part.multiple));
                if key == "prefixItems" || key == "properties" || value.is_array() {
                    cost.places = cost.places.saturating_add(1).saturating_add(part.places);
                } else {
                    cost.places = cost.places.saturating_add(part.places);
                    cost.rest = cost.rest.saturating_add(total);
                    cost.rest_alternatives =
                        cost.rest_alternatives.saturating_add(part.alternatives);
                }
                let name = name.filter(|_| key == "properties");
                cost.patterns.put(name, part.patterns, u64::max);
            }
        }
        if let Some(Value::Object(all)) = fields.get("patternProperties") {
            cost.names = all.len() as u64;
            cost.name_bytes = all.keys().map(|pattern| pattern.len() as u64).sum();
            let units = all.keys().map(|pattern| regex(pattern));
            cost.size = units.fold(cost.size, u64::saturating_add);
        }
        let named = fields.get("properties").and_then(Value::as_object).map_or(0, Map::len);
        // A required name counts as a property even without a schema.
        cost.properties = (named + list(fields, "required").len()) as u64;
        cost.places = cost.places.saturating_add(list(fields, "required").len() as u64);
        cost.is_counted =
            ["minProperties", "maxProperties"].iter().any(|key| fields.contains_key(*key));
        let texts = ["pattern", "format"].iter().filter(|key| fields.contains_key(**key));
        cost.patterns.own = texts.count() as u64;
        let pattern = fields.get("pattern").and_then(Value::as_str).unwrap_or_default();
        let pattern = regex(pattern);
        representable(fields)?;
        let bounds = BOUNDS.iter().filter_map(|key| fields.get(*key));
        let digits: u64 = bounds.map(digits).sum();
        let names = fields.get("properties").and_then(Value::as_object).into_iter().flatten();
        let required = list(fields, "required").iter().filter_map(Value::as_str);
        let names = names.map(|(name, _)| name.as_str()).chain(required);
        let names: usize = names.map(|name| name.len() / BYTES_PER_UNIT).sum();
        cost.size =
            [cost.patterns.own.saturating_mul(UNITS_PER_PATTERN), pattern, digits, names as u64]
                .into_iter()
                .fold(cost.size, u64::saturating_add);
        if let Some(value) = fields.get("const") {
            cost = cost.and(self.values(std::slice::from_ref(value))?);
        }
        if fields.contains_key("enum") {
            cost = cost.and(self.values(list(fields, "enum"))?);
        }
        if let Some(multiple) = fields.get("multipleOf").and_then(Value::as_f64) {
            cost.multiple = fraction(multiple);
            if cost.multiple.1 > MAX_DECIMALS {
                return Err(format!(
                    "'multipleOf' has more than {MAX_DECIMALS} decimals: {multiple}"
                ));
            }
        }
        Ok(cost)
    }

    /// Cost of a list of allowed values.
    fn values(&mut self, values: &[Value]) -> Result<Cost<'a>, String> {
        let mut size = 0u64;
        for value in values {
            size = size.saturating_add(self.value(value)?);
        }
        Ok(Cost { alternatives: (values.len() as u64).max(1), size, ..Cost::least() })
    }

    /// Units for a value of `const` or `enum`, in addition to its alternative: one per nested
    /// value, and more for long strings.
    fn value(&mut self, value: &Value) -> Result<u64, String> {
        self.work.charge(1)?;
        let long = |text: &str| (text.len() / BYTES_PER_UNIT) as u64;
        let mut size = 0u64;
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(_) => size = digits(value) / BYTES_PER_UNIT as u64,
            Value::String(text) => size = long(text),
            Value::Array(items) => {
                size = (items.len() as u64).saturating_pow(2) / ITEM_PAIRS_PER_UNIT;
                for item in items {
                    size = size.saturating_add(self.value(item)?.saturating_add(1));
                }
            }
            Value::Object(fields) => {
                let properties = Cost { properties: fields.len() as u64, ..Cost::least() };
                size = properties.object_total();
                for (name, value) in fields {
                    let inner = self.value(value)?.saturating_add(1).saturating_add(long(name));
                    size = size.saturating_add(inner);
                }
            }
        }
        Ok(size)
    }

    fn referred(&mut self, reference: &'a str, depth: u32) -> Result<Cost<'a>, String> {
        self.work.charge(reference.len() / BYTES_PER_STEP)?;
        if let Some(cost) = self.known.get(reference) {
            self.work.charge(cost.patterns.count())?;
            return Ok(cost.clone());
        }
        self.known.insert(reference, Cost::least());
        let cost = match target(self.whole, reference) {
            Some(schema) => self.of(schema, true, depth)?,
            None => Cost::least(),
        };
        self.known.insert(reference, cost.clone());
        Ok(cost)
    }
}

fn list<'v>(fields: &'v Map<String, Value>, key: &str) -> &'v [Value] {
    fields.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Units for a numeric bound: its digits without an exponent, as the compiler writes them.
fn digits(number: &Value) -> u64 {
    let digits = number.as_f64().map_or(0, |number| number.to_string().len());
    (digits as u64).saturating_mul(UNITS_PER_DIGIT)
}

/// A number as an integer and its number of decimals.
fn fraction(number: f64) -> (u64, u32) {
    // The format never uses an exponent.
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
mod tests;
