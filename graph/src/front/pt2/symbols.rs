//! Bounds of symbolic sizes.
//!
//! PyTorch writes a size as an expression of SymPy, such as
//! `Mul(Integer(2), Symbol('s77', positive=True, integer=True))`, and earlier versions as `2*s77`.
//! The front end needs the largest value: that of the expression for the ranges of its symbols.

use super::schema::{Hint, RangeConstraint, SymExpr, SymInt, Text};
use crate::error::Error;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Maximum nesting of an expression.
const DEPTH: usize = 64;
/// Bound of a symbol without one: a multiple of the size at export, and at least this much.
const UNBOUNDED_FACTOR: i64 = 4;
const UNBOUNDED_LEAST: i64 = 16;
/// Ranges up to this size count as declared. PyTorch writes larger ones where none is declared.
const LARGEST: i64 = i32::MAX as i64;

/// Ranges of the symbols of a program.
#[derive(Default)]
pub(super) struct Symbols {
    ranges: BTreeMap<String, Interval>,
}

/// Smallest and largest value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Interval {
    low: i64,
    high: i64,
}

impl Symbols {
    /// Collects the ranges. `sizes` are all sizes of the program: a symbol without an upper bound
    /// gets one from its value at export.
    pub(super) fn new<'s>(
        constraints: &BTreeMap<Text<'_>, RangeConstraint>,
        sizes: impl Iterator<Item = &'s SymInt<'s>>,
    ) -> Self {
        let mut hints: BTreeMap<&str, i64> = BTreeMap::new();
        for size in sizes {
            if let SymInt::Expr(SymExpr { expr_str, hint: Some(Hint::Int(hint)) }) = size
                && let Some(name) = symbol(expr_str)
            {
                hints.insert(name, *hint);
            }
        }
        let ranges = constraints.iter().filter_map(|(name, range)| {
            let low = range.min_val.unwrap_or(0).clamp(0, LARGEST);
            let hint = hints.get(name.as_ref()).copied().unwrap_or(0);
            let some = hint.saturating_mul(UNBOUNDED_FACTOR).max(UNBOUNDED_LEAST);
            // Symbols of sizes that depend on data start with a `u`. Nothing suggests a bound.
            let some = (!name.starts_with('u')).then_some(some);
            let high = range.max_val.filter(|high| *high < LARGEST).or(some)?.max(low);
            Some((String::from(name.as_ref()), Interval { low, high }))
        });
        Symbols { ranges: ranges.collect() }
    }

    /// Returns the largest value of a size, and whether the size can have others.
    ///
    /// # Errors
    /// The expression has a symbol without a range, or an unknown function.
    pub(super) fn bound(&self, size: &SymInt<'_>) -> Result<(usize, bool), Error> {
        let text = match size {
            SymInt::Int(size) => return Ok((whole(*size)?, false)),
            SymInt::Expr(expr) => expr.expr_str.as_ref(),
        };
        let mut parser = Parser { rest: text, symbols: self, depth: 0 };
        let value = parser.sum().filter(|_| parser.rest.trim().is_empty());
        let interval = value.ok_or_else(|| {
            Error::Unsupported(format!(
                "the size `{text}` has no bound; declare one with `torch.export.Dim` or \
                 `torch._check`"
            ))
        })?;
        Ok((whole(interval.high.max(0))?, interval.low != interval.high))
    }
}

fn whole(size: i64) -> Result<usize, Error> {
    usize::try_from(size).map_err(|_| Error::Invalid(format!("the size {size} is negative")))
}

/// Returns the name of the symbol that an expression consists of.
fn symbol(text: &str) -> Option<&str> {
    let name = match text.strip_prefix("Symbol('") {
        Some(rest) => rest.split('\'').next()?,
        None => text,
    };
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (is_name && !name.is_empty()).then_some(name)
}

/// Parser that evaluates an expression over intervals.
struct Parser<'t> {
    rest: &'t str,
    symbols: &'t Symbols,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn eat(&mut self, text: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn word(&mut self) -> &'t str {
        self.rest = self.rest.trim_start();
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
        let end = self.rest.bytes().position(|byte| !is_part(byte)).unwrap_or(self.rest.len());
        // The end is the start of a character: all bytes before it are ASCII.
        let (word, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        word
    }

    fn sum(&mut self) -> Option<Interval> {
        self.depth += 1;
        if self.depth > DEPTH {
            return None;
        }
        let mut value = self.product()?;
        loop {
            if self.eat("+") {
                value = value.plus(self.product()?);
            } else if self.eat("-") {
                value = value.plus(self.product()?.negated());
            } else {
                self.depth -= 1;
                return Some(value);
            }
        }
    }

    fn product(&mut self) -> Option<Interval> {
        let mut value = self.power()?;
        loop {
            if self.eat("//") || self.eat("/") {
                value = value.over(self.power()?)?;
            } else if self.eat("*") {
                value = value.times(self.power()?);
            } else {
                return Some(value);
            }
        }
    }

    fn power(&mut self) -> Option<Interval> {
        let value = self.atom()?;
        if self.eat("**") { value.power(self.atom()?) } else { Some(value) }
    }

    fn atom(&mut self) -> Option<Interval> {
        if self.eat("-") {
            self.depth += 1;
            let value = if self.depth > DEPTH { None } else { self.atom() };
            self.depth -= 1;
            return value.map(Interval::negated);
        }
        if self.eat("(") {
            let value = self.sum()?;
            return self.eat(")").then_some(value);
        }
        let word = self.word();
        if !self.eat("(") {
            return match word.parse::<i64>() {
                Ok(number) => Some(Interval { low: number, high: number }),
                Err(_) => self.symbols.ranges.get(word).copied(),
            };
        }
        if word == "Symbol" {
            let (_, rest) = self.rest.split_once('\'')?;
            let (name, rest) = rest.split_once('\'')?;
            // Assumptions about the symbol follow.
            let (_, rest) = rest.split_once(')')?;
            self.rest = rest;
            return self.symbols.ranges.get(name).copied();
        }
        let mut args = Vec::new();
        loop {
            args.push(self.sum()?);
            if !self.eat(",") {
                break;
            }
            // Options such as `evaluate=False` follow the operands.
            let options = self.rest.split(')').next().unwrap_or_default();
            if let Some((name, _)) = options.split_once('=')
                && name.trim().bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_')
            {
                self.rest = self.rest.get(options.len()..)?;
                break;
            }
        }
        if !self.eat(")") {
            return None;
        }
        function(word, &args)
    }
}

/// Evaluates a function of SymPy, or of PyTorch's `torch/utils/_sympy/functions.py`.
fn function(name: &str, args: &[Interval]) -> Option<Interval> {
    let (first, rest) = args.split_first()?;
    let all = |combine: fn(Interval, Interval) -> Interval| {
        rest.iter().fold(*first, |value, arg| combine(value, *arg))
    };
    match (name, rest) {
        ("Integer", []) => Some(*first),
        ("Add", _) => Some(all(Interval::plus)),
        ("Mul", _) => Some(all(Interval::times)),
        ("Max", _) => {
            Some(all(|a, b| Interval { low: a.low.max(b.low), high: a.high.max(b.high) }))
        }
        ("Min", _) => {
            Some(all(|a, b| Interval { low: a.low.min(b.low), high: a.high.min(b.high) }))
        }
        ("FloorDiv" | "CleanDiv" | "IntTrueDiv" | "PythonFloorDiv", [divisor]) => {
            first.over(*divisor)
        }
        ("CeilDiv" | "CeilToInt", [divisor]) => {
            let value = first.over(*divisor)?;
            Some(Interval { low: value.low, high: value.high.saturating_add(1) })
        }
        ("Rational", [divisor]) => Some(Interval { high: first.over(*divisor)?.high, low: 0 }),
        ("Mod" | "PythonMod", [divisor]) if divisor.low > 0 => {
            Some(Interval { low: 0, high: divisor.high.saturating_sub(1) })
        }
        ("Pow" | "PowByNatural", [exponent]) => first.power(*exponent),
        ("TruncToInt" | "FloorToInt" | "floor" | "ToFloat" | "Identity", []) => Some(*first),
        ("ceiling" | "CeilToInt", []) => {
            Some(Interval { high: first.high.saturating_add(1), ..*first })
        }
        _ => None,
    }
}

impl Interval {
    fn plus(self, other: Self) -> Self {
        Interval {
            low: self.low.saturating_add(other.low),
            high: self.high.saturating_add(other.high),
        }
    }

    fn negated(self) -> Self {
        Interval { low: self.high.saturating_neg(), high: self.low.saturating_neg() }
    }

    /// The interval of a function that is monotonic in each operand.
    fn of_corners(self, other: Self, function: impl Fn(i64, i64) -> i64) -> Self {
        let (a, b) = (function(self.low, other.low), function(self.low, other.high));
        let (c, d) = (function(self.high, other.low), function(self.high, other.high));
        Interval { low: a.min(b).min(c).min(d), high: a.max(b).max(c).max(d) }
    }

    fn times(self, other: Self) -> Self {
        self.of_corners(other, i64::saturating_mul)
    }

    /// Floor division.
    fn over(self, other: Self) -> Option<Self> {
        let floor = |a: i64, b: i64| a.checked_div_euclid(b).unwrap_or(i64::MAX);
        (other.low > 0).then(|| self.of_corners(other, floor))
    }

    fn power(self, other: Self) -> Option<Self> {
        let exponent = u32::try_from(other.low).ok().filter(|_| other.low == other.high)?;
        (self.low >= 0).then(|| Interval {
            low: self.low.saturating_pow(exponent),
            high: self.high.saturating_pow(exponent),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::Cow;

    fn symbols() -> Symbols {
        let range = |low, high| RangeConstraint { min_val: Some(low), max_val: high };
        let constraints = [
            (Cow::Borrowed("s0"), range(2, Some(64))),
            (Cow::Borrowed("s1"), range(0, Some(10))),
            (Cow::Borrowed("s2"), range(1, None)),
        ];
        let hint = SymInt::Expr(SymExpr {
            expr_str: "Symbol('s2', integer=True)".into(),
            hint: Some(Hint::Int(100)),
        });
        Symbols::new(&constraints.into_iter().collect(), [hint].iter())
    }

    fn bound(text: &str) -> Option<(usize, bool)> {
        let expr = SymExpr { expr_str: text.into(), hint: None };
        symbols().bound(&SymInt::Expr(expr)).ok()
    }

    #[test]
    fn expressions_are_bounded() {
        for (text, expected) in [
            ("Symbol('s0', positive=True, integer=True)", 64),
            ("Mul(Integer(2), Symbol('s0', positive=True, integer=True))", 128),
            ("Add(Integer(-1), Symbol('s0', positive=True, integer=True))", 63),
            ("FloorDiv(Add(Symbol('s0', integer=True), Integer(7)), Integer(8))", 8),
            ("Max(Symbol('s0', integer=True), Symbol('s1', integer=True))", 64),
            ("Mod(Symbol('s0', integer=True), Integer(8))", 7),
            ("Pow(Symbol('s1', integer=True), Integer(2))", 100),
            ("2*s0 + s1*(s0 - 1)", 758),
            ("s0 // 2", 32),
            ("-s1 + 12", 12),
            ("s2", 400),
        ] {
            assert_eq!(bound(text), Some((expected, true)), "{text}");
        }
        assert_eq!(bound("Integer(3)"), Some((3, false)));
    }

    #[test]
    fn unknown_expressions_are_refused() {
        let deep = "(".repeat(100_000);
        let minus = "-".repeat(100_000);
        for text in ["s9", "Foo(s0)", "s0 +", "", "Mul(s0", "s0 // s1", "ß", &deep, &minus] {
            assert_eq!(bound(text), None, "{text}");
        }
    }
}
