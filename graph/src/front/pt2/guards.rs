//! Conditions on sizes that the program checks when it runs, as PyTorch does: guards of its inputs,
//! and assertions between its calls.
//!
//! PyTorch writes a guard as Python code, such as `L['y'].size()[0] == 2*L['x'].size()[0]`, where
//! `L` holds the arguments of `forward`. Guards become calls that compute integers and booleans.
//! Left out are guards on strides, with functions other than `torch.sym_max` and `torch.sym_min`,
//! that divide on one side of `and` or `or`, and whose input cannot be told from others.

use super::cursor::Cursor;
use super::flow::Event;
use super::nodes::names;
use super::schema::{Argument, InputSpec, Node as Call, SymBoolArgument, SymInt, SymIntArgument};
use super::translator::{Named, Translator};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::Operator;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Bound;

/// Maximum nesting of a guard.
const DEPTH: usize = 64;
/// Maximum length of a guard, in bytes. PyTorch writes longer ones for models whose layers divide
/// sizes repeatedly.
const MAX_LENGTH: usize = 1 << 12;
/// Maximum number of characters of a guard that an error shows.
const SHOWN: usize = 200;
/// Number of names that are searched for one that could be confused with another.
const MAX_AMBIGUOUS: usize = 64;
/// PyTorch assumes that sizes have at least this value, and runs smaller ones all the same.
const ASSUMED_LEAST: i64 = 2;

/// Values of expressions: constants, and calls by operator and arguments.
#[derive(Default)]
struct Known {
    constants: BTreeMap<i64, ValueId>,
    calls: BTreeMap<(&'static str, Vec<ValueId>), ValueId>,
    /// Conditions that are checked.
    checked: BTreeSet<ValueId>,
}

/// Value of an expression.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Number {
    Constant(i64),
    Computed(ValueId),
}

impl<'j, 'p> Translator<'j, 'p> {
    /// Adds checks of the inputs: ranges of dims, dims that share a symbol, static dims of tensors
    /// with dynamic ones, and guards.
    ///
    /// # Errors
    /// The guards need more calls than the archive may have.
    pub(super) fn guards(&mut self) -> Result<(), Error> {
        let mut known = Known::default();
        let program = self.program;
        let mut symbols: BTreeMap<&str, (ValueId, String)> = BTreeMap::new();
        for spec in &program.graph_module.signature.input_specs {
            let InputSpec::User(input) = spec else { continue };
            let Argument::Tensor(tensor) = &input.arg else { continue };
            let name = tensor.name.as_ref();
            let Some(meta) = program.graph_module.graph.tensor_values.get(name) else { continue };
            let Some(input) = self.names.get(name).copied() else { continue };
            for (dim, size) in meta.sizes.iter().enumerate() {
                let Some(Number::Computed(value)) = self.size(&mut known, input, dim as i64) else {
                    continue;
                };
                let text = format!("{name}.size()[{dim}]");
                if let SymInt::Int(only) = size {
                    let expected = self.constant(&mut known, *only);
                    let condition = self.compare(&mut known, "==", value, expected);
                    self.assert(condition, &format!("{text} == {only}"));
                }
                let Some(symbol) = super::symbols::name(size) else { continue };
                if let Some((other, before)) = symbols.get(symbol) {
                    let condition = self.compare(&mut known, "==", value, *other);
                    known.checked.insert(condition);
                    self.assert(condition, &format!("{text} == {before}"));
                    continue;
                }
                let range = program.range_constraints.get(symbol);
                let least = range.and_then(|range| range.min_val).unwrap_or(0);
                if least > ASSUMED_LEAST {
                    let bound = self.constant(&mut known, least);
                    let condition = self.compare(&mut known, ">=", value, bound);
                    self.assert(condition, &format!("{text} >= {least}"));
                }
                if let Some(most) = range.and_then(|range| range.max_val)
                    && most < i64::from(i32::MAX)
                {
                    let bound = self.constant(&mut known, most);
                    let condition = self.compare(&mut known, "<=", value, bound);
                    self.assert(condition, &format!("{text} <= {most}"));
                }
                symbols.insert(symbol, (value, text));
            }
        }
        for guard in &program.guards_code {
            let before = self.graph.nodes.len();
            // A part of a guard that is left out adds calls that nothing reads.
            if guard.len() <= MAX_LENGTH {
                let mut parser = Parser::new(guard, &mut known);
                if let Some(Number::Computed(condition)) = parser.guard(self)
                    && known.checked.insert(condition)
                {
                    self.assert(condition, &shown(guard));
                }
            }
            self.computed.spend_calls(self.graph.nodes.len().saturating_sub(before))?;
        }
        Ok(())
    }

    /// Converts a call that checks a condition, or one that computes a boolean from integers.
    /// Returns `None` for other calls.
    ///
    /// # Errors
    /// The call is malformed.
    pub(super) fn check(&mut self, name: &str, call: &'j Call<'j>) -> Result<Option<()>, Error> {
        let first = call.inputs.first().map(|input| &input.arg);
        match name {
            "aten._assert_scalar.default" | "aten._functional_assert_scalar.default" => {
                if let Some(condition) = first.and_then(|arg| self.truth(arg)) {
                    self.assert(condition, &message(call));
                }
            }
            "aten._assert_async.default"
            | "aten._assert_async.msg"
            | "aten._functional_assert_async.msg" => {
                if let Some(Argument::Tensor(tensor)) = first {
                    let condition = self.tensor(&tensor.name)?;
                    self.assert(condition, &message(call));
                }
            }
            "aten.sym_constrain_range.default" | "aten.sym_constrain_range_for_size.default" => {
                let Some(Argument::SymInt(SymIntArgument::Name(size))) = first else {
                    return Ok(Some(()));
                };
                let Some(Named::Number(value)) = self.names.get(size.as_ref()).copied() else {
                    return Ok(Some(()));
                };
                let mut known = Known::default();
                let given = |name: &str| {
                    call.inputs.iter().find_map(|input| match input.arg {
                        Argument::Int(bound) if input.name == name => Some(bound),
                        _ => None,
                    })
                };
                let zero = name.contains("for_size").then_some(0);
                let bounds = [(">=", given("min").max(zero)), ("<=", given("max"))];
                for (sign, bound) in bounds {
                    let Some(bound) = bound else { continue };
                    let limit = self.constant(&mut known, bound);
                    let condition = self.compare(&mut known, sign, value, limit);
                    self.assert(condition, &format!("{size} {sign} {bound}"));
                }
            }
            // Dtypes and layouts are those of the program.
            "aten._assert_tensor_metadata.default" => {}
            _ => return self.boolean(name, call),
        }
        for name in call.outputs.iter().flat_map(|output| names(output)) {
            self.names.insert(name, Named::Omitted);
        }
        Ok(Some(()))
    }

    /// Converts a call whose result is a boolean computed from integers.
    fn boolean(&mut self, name: &str, call: &'j Call<'j>) -> Result<Option<()>, Error> {
        let [Argument::SymBool(SymBoolArgument::Name(out))] = &call.outputs[..] else {
            return Ok(None);
        };
        let mut known = Known::default();
        let mut args = Vec::with_capacity(call.inputs.len());
        for input in &call.inputs {
            args.extend(self.truth(&input.arg));
        }
        let value = match (name, &args[..]) {
            (_, []) => None,
            ("_operator.eq", [a, b]) => Some(self.compare(&mut known, "==", *a, *b)),
            ("_operator.ne", [a, b]) => Some(self.compare(&mut known, "!=", *a, *b)),
            ("_operator.lt", [a, b]) => Some(self.compare(&mut known, "<", *a, *b)),
            ("_operator.le", [a, b]) => Some(self.compare(&mut known, "<=", *a, *b)),
            ("_operator.gt", [a, b]) => Some(self.compare(&mut known, ">", *a, *b)),
            ("_operator.ge", [a, b]) => Some(self.compare(&mut known, ">=", *a, *b)),
            ("_operator.and_", [a, b]) => Some(self.both(&mut known, *a, *b)),
            ("_operator.or_", [a, b]) => Some(self.either(&mut known, *a, *b)),
            ("torch.sym_not", [a]) => {
                Some(self.compute(&mut known, Operator::EXECUTORCH_PRIM_SYM_NOT_SCALAR, &[*a]))
            }
            _ => None,
        };
        // Floats computed from sizes are not supported; neither are booleans computed from them.
        self.names.insert(out, value.map_or(Named::Omitted, Named::Number));
        Ok(Some(()))
    }

    /// The value of a boolean or an integer, if it is supported.
    pub(super) fn truth(&mut self, argument: &Argument<'j>) -> Option<ValueId> {
        match argument {
            Argument::Bool(truth) | Argument::SymBool(SymBoolArgument::Bool(truth)) => {
                Some(self.push(Value::Bool(*truth)))
            }
            Argument::Int(number) | Argument::SymInt(SymIntArgument::Int(number)) => {
                Some(self.push(Value::Int(*number)))
            }
            Argument::SymBool(SymBoolArgument::Name(name))
            | Argument::SymInt(SymIntArgument::Name(name)) => match self.names.get(name.as_ref()) {
                Some(Named::Number(value)) => Some(*value),
                _ => None,
            },
            _ => None,
        }
    }

    /// Adds a check. `message` is the condition that must hold.
    fn assert(&mut self, condition: ValueId, message: &str) {
        let message = self.push(Value::String(message.into()));
        self.next();
        self.flow.add(self.number, Event::Assert { condition, message });
        self.next();
    }

    /// The size of a dim of an input.
    fn size(&mut self, known: &mut Known, input: Named, dim: i64) -> Option<Number> {
        let Named::Tensor(alias) = input else { return None };
        let tensor = self.aliases.read(&mut self.graph, alias).ok()?;
        let own = self.graph.tensor(tensor)?;
        let bound = *usize::try_from(dim).ok().and_then(|dim| own.sizes.get(dim))?;
        if !own.dynamic {
            return Some(Number::Constant(i64::try_from(bound).ok()?));
        }
        let dim = self.constant(known, dim);
        Some(Number::Computed(self.compute(known, Operator::SYM_SIZE_INT, &[tensor, dim])))
    }

    fn constant(&mut self, known: &mut Known, number: i64) -> ValueId {
        *known.constants.entry(number).or_insert_with(|| self.push(Value::Int(number)))
    }

    /// Adds a call, or returns the result of an earlier equal one.
    fn compute(&mut self, known: &mut Known, operator: Operator, args: &[ValueId]) -> ValueId {
        let key = (operator.name(), args.to_vec());
        if let Some(value) = known.calls.get(&key) {
            return *value;
        }
        let out = self.push(Value::SymInt(0));
        self.call(operator, args, out);
        known.calls.insert(key, out);
        out
    }

    fn compare(&mut self, known: &mut Known, sign: &str, a: ValueId, b: ValueId) -> ValueId {
        let operator = match sign {
            "<" => Operator::EXECUTORCH_PRIM_LT_SCALAR,
            "<=" => Operator::EXECUTORCH_PRIM_LE_SCALAR,
            ">" => Operator::EXECUTORCH_PRIM_GT_SCALAR,
            ">=" => Operator::EXECUTORCH_PRIM_GE_SCALAR,
            _ => Operator::EXECUTORCH_PRIM_EQ_SCALAR,
        };
        // Equality has no order, so that a guard on equal sizes finds the check of both dims.
        let is_equality = matches!(sign, "==" | "!=");
        let [a, b] = if is_equality { [a.min(b), a.max(b)] } else { [a, b] };
        let holds = self.compute(known, operator, &[a, b]);
        if sign != "!=" {
            return holds;
        }
        self.compute(known, Operator::EXECUTORCH_PRIM_SYM_NOT_SCALAR, &[holds])
    }

    fn both(&mut self, known: &mut Known, a: ValueId, b: ValueId) -> ValueId {
        self.compute(known, Operator::EXECUTORCH_PRIM_SYM_ITE_SCALAR, &[a, b, a])
    }

    fn either(&mut self, known: &mut Known, a: ValueId, b: ValueId) -> ValueId {
        self.compute(known, Operator::EXECUTORCH_PRIM_SYM_ITE_SCALAR, &[a, a, b])
    }

    /// The input that a guard names by its path in the arguments of `forward`.
    fn input(&self, path: &[&str]) -> Option<Named> {
        // An input has the name of its path in lower case, which is without `kwargs` for those of
        // `**kwargs`. Inputs whose names would be equal get numbers.
        let name = |path: &[&str]| {
            let text = path.join("_").to_ascii_lowercase();
            text.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
        };
        let from = |prefix: &str| {
            let names = self.names.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
            names.map(|(name, _)| *name)
        };
        let begins = |prefix: &str| from(prefix).next().is_some_and(|it| it.starts_with(prefix));
        let is_numbered = |name: &str| {
            let prefix = format!("{name}_");
            let rest = from(&prefix).map_while(|name| name.strip_prefix(prefix.as_str()));
            rest.take(MAX_AMBIGUOUS).any(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let (first, inner) = path.split_first()?;
        let whole = name(path);
        let found = match self.names.get(whole.as_str()) {
            Some(found) => (whole, *found),
            None if inner.is_empty() || begins(&name(&[*first])) => return None,
            None => {
                let inner = name(inner);
                let found = *self.names.get(inner.as_str())?;
                (inner, found)
            }
        };
        if is_numbered(&found.0) { None } else { Some(found.1) }
    }
}

/// The message of an assertion.
fn message(call: &Call<'_>) -> String {
    let text = call.inputs.iter().find_map(|input| match &input.arg {
        Argument::String(text) => Some(text.as_ref()),
        _ => None,
    });
    shown(text.unwrap_or("an assertion of the program"))
}

/// A guard as an error shows it.
fn shown(guard: &str) -> String {
    let mut parts = guard.split("L['");
    let mut text = String::from(parts.next().unwrap_or(""));
    for part in parts {
        text.push_str(&part.replacen("']", "", 1));
    }
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or("")),
        None => text,
    }
}

/// Recursive-descent parser of guards, with the precedence of Python.
struct Parser<'t, 'k> {
    text: Cursor<'t>,
    depth: usize,
    known: &'k mut Known,
    /// Whether it has `and` or `or`, of which Python computes both sides only if needed.
    joins: bool,
    /// Whether it divides by a number that may be zero.
    divides: bool,
}

impl<'t, 'k> Parser<'t, 'k> {
    fn new(guard: &'t str, known: &'k mut Known) -> Self {
        Parser { text: Cursor::new(guard), depth: 0, known, joins: false, divides: false }
    }

    fn eat_word(&mut self, word: &str) -> bool {
        self.text.rest = self.text.rest.trim_start();
        match self.text.rest.strip_prefix(word) {
            Some(rest) if !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') => {
                self.text.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// A whole guard.
    fn guard(&mut self, to: &mut Translator<'_, '_>) -> Option<Number> {
        let value = self.either(to)?;
        let is_whole = self.text.is_at_end();
        (is_whole && !(self.joins && self.divides)).then_some(value)
    }

    fn either(&mut self, to: &mut Translator<'_, '_>) -> Option<Number> {
        self.depth += 1;
        if self.depth > DEPTH {
            return None;
        }
        let mut value = self.both(to)?;
        while self.eat_word("or") {
            self.joins = true;
            let other = self.both(to)?;
            let (a, b) = (self.value(to, value), self.value(to, other));
            value = Number::Computed(to.either(self.known, a, b));
        }
        self.depth -= 1;
        Some(value)
    }

    fn both(&mut self, to: &mut Translator<'_, '_>) -> Option<Number> {
        let mut value = self.comparison(to)?;
        while self.eat_word("and") {
            self.joins = true;
            let other = self.comparison(to)?;
            let (a, b) = (self.value(to, value), self.value(to, other));
            value = Number::Computed(to.both(self.known, a, b));
        }
        Some(value)
    }

    fn comparison(&mut self, to: &mut Translator<'_, '_>) -> Option<Number> {
        if self.eat_word("not") {
            let value = self.nested(to, Self::comparison)?;
            let value = self.value(to, value);
            let operator = Operator::EXECUTORCH_PRIM_SYM_NOT_SCALAR;
            return Some(Number::Computed(to.compute(self.known, operator, &[value])));
        }
        let value = self.sum(to)?;
        let Some(sign) =
            ["==", "!=", "<=", ">=", "<", ">"].into_iter().find(|it| self.text.eat(it))
        else {
            return Some(value);
        };
        let other = self.sum(to)?;
        let (a, b) = (self.value(to, value), self.value(to, other));
        Some(Number::Computed(to.compare(self.known, sign, a, b)))
    }

    fn sum(&mut self, to: &mut Translator<'_, '_>) -> Option<Number> {
        let mut value = self.product(to)?;
        loop {
            let (operator, constant): (_, fn(i64, i64) -> Option<i64>) = if self.text.eat("+") {
                (Operator::SYM_ADD, i64::checked_add)
            } else if self.text.eat("-") {
                (Operator::SYM_SUB, i64::checked_sub)
            } else {
                return Some(value);
            };
            let other = self.product(to)?;
            value = self.combine(to, operator, [value, other], constant)?;
        }
    }

    fn product(&mut self, to: &mut Translator<'_, '_>) -> Option<Number> {
        let mut value = self.power(to)?;
        loop {
            let (operator, constant): (_, fn(i64, i64) -> Option<i64>) = if self.text.eat("//") {
                (Operator::SYM_FLOORDIV, |_, _| None)
            } else if self.text.eat("%") {
                (Operator::EXECUTORCH_PRIM_MOD_SCALAR, |_, _| None)
            } else if self.text.rest.trim_start().starts_with("**") {
                return None;
            } else if self.text.eat("*") {
                (Operator::SYM_MUL, i64::checked_mul)
            } else {
                return Some(value);
            };
            let other = self.power(to)?;
            let is_division = operator != Operator::SYM_MUL;
            let may_be_zero = matches!(other, Number::Constant(0) | Number::Computed(_));
            self.divides |= is_division && may_be_zero;
            value = self.combine(to, operator, [value, other], constant)?;
        }
    }

    /// A power with a small constant exponent.
    fn power(&mut self, to: &mut Translator<'_, '_>) -> Option<Number> {
        let value = self.atom(to)?;
        if !self.text.eat("**") {
            return Some(value);
        }
        let Number::Constant(exponent @ 1..=8) = self.atom(to)? else { return None };
        let mut result = value;
        for _ in 1..exponent {
            result = self.combine(to, Operator::SYM_MUL, [result, value], i64::checked_mul)?;
        }
        Some(result)
    }

    fn atom(&mut self, to: &mut Translator<'_, '_>) -> Option<Number> {
        if self.text.eat("-") {
            return match self.nested(to, Self::power)? {
                Number::Constant(number) => number.checked_neg().map(Number::Constant),
                computed @ Number::Computed(_) => {
                    let zero = Number::Constant(0);
                    self.combine(to, Operator::SYM_SUB, [zero, computed], i64::checked_sub)
                }
            };
        }
        if self.text.eat("(") {
            let value = self.either(to)?;
            return self.text.eat(")").then_some(value);
        }
        for (name, operator) in [
            ("torch.sym_max", Operator::EXECUTORCH_PRIM_SYM_MAX_SCALAR),
            ("torch.sym_min", Operator::EXECUTORCH_PRIM_SYM_MIN_SCALAR),
        ] {
            if self.eat_word(name) {
                if !self.text.eat("(") {
                    return None;
                }
                let a = self.either(to)?;
                let b = if self.text.eat(",") { self.either(to)? } else { return None };
                let value = self.combine(to, operator, [a, b], |_, _| None)?;
                return self.text.eat(")").then_some(value);
            }
        }
        if self.eat_word("L") {
            return self.input(to);
        }
        self.number().map(Number::Constant)
    }

    /// A size of an input, or an input that is an integer.
    fn input(&mut self, to: &mut Translator<'_, '_>) -> Option<Number> {
        let mut path = Vec::new();
        while self.text.eat("[") {
            let (key, rest) = self.text.rest.split_once(']')?;
            path.push(key.trim_matches('\''));
            self.text.rest = rest;
        }
        let input = to.input(&path)?;
        if self.text.eat(".size()[") {
            let dim = self.number()?;
            return if self.text.eat("]") { to.size(self.known, input, dim) } else { None };
        }
        match input {
            Named::Number(value) if !self.text.rest.starts_with('.') => {
                Some(Number::Computed(value))
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Option<i64> {
        let digits = self.text.take_while(|byte| byte.is_ascii_digit());
        if self.text.rest.starts_with(['.', 'e', '_']) {
            return None;
        }
        digits.parse().ok()
    }

    fn nested(
        &mut self,
        to: &mut Translator<'_, '_>,
        parse: fn(&mut Self, &mut Translator<'_, '_>) -> Option<Number>,
    ) -> Option<Number> {
        self.depth += 1;
        if self.depth > DEPTH {
            return None;
        }
        let value = parse(self, to);
        self.depth -= 1;
        value
    }

    fn value(&mut self, to: &mut Translator<'_, '_>, number: Number) -> ValueId {
        match number {
            Number::Constant(number) => to.constant(self.known, number),
            Number::Computed(value) => value,
        }
    }

    fn combine(
        &mut self,
        to: &mut Translator<'_, '_>,
        operator: Operator,
        [a, b]: [Number; 2],
        constant: fn(i64, i64) -> Option<i64>,
    ) -> Option<Number> {
        if let (Number::Constant(a), Number::Constant(b)) = (a, b)
            && let Some(number) = constant(a, b)
        {
            return Some(Number::Constant(number));
        }
        let (a, b) = (self.value(to, a), self.value(to, b));
        Some(Number::Computed(to.compute(self.known, operator, &[a, b])))
    }
}
