//! Bounds of symbolic sizes.
//!
//! PyTorch writes a size as an expression of SymPy, such as
//! `Mul(Integer(2), Symbol('s77', positive=True, integer=True))`, and earlier versions as `2*s77`.
//! The front end needs the largest value: that of the expression for the ranges of its symbols.

use super::cursor::Cursor;
use super::schema::{Hint, RangeConstraint, SymExpr, SymInt, Text};
use crate::error::Error;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Maximum nesting of an expression.
const DEPTH: usize = 64;
/// Maximum length of an expression, in bytes. Many outputs can refer to one expression.
const MAX_LENGTH: usize = 1 << 12;
/// Assumed upper bound of an unbounded symbol: this multiple of its size at export, but at least
/// [`UNBOUNDED_LEAST`].
const UNBOUNDED_FACTOR: i64 = 4;
const UNBOUNDED_LEAST: i64 = 16;
/// Ranges up to this size count as declared. PyTorch writes larger ones where none is declared.
const LARGEST: i64 = i32::MAX as i64;

/// Ranges of the symbols of a program.
#[derive(Default)]
pub(super) struct Symbols {
    ranges: BTreeMap<String, Interval>,
}

/// Smallest and largest value. Both are divided by `divisor`, which is 1 except for parts of
/// expressions such as `s0/2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Interval {
    low: i64,
    high: i64,
    divisor: i64,
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
            // Symbols of data-dependent integers start with a `u`, and may be negative.
            let is_size = !name.starts_with('u');
            let least = if is_size { 0 } else { -LARGEST };
            // Integers that are no sizes may be negative, too, if a range is declared.
            let declared = range.min_val.filter(|low| *low >= -LARGEST);
            let low = declared.unwrap_or(least).min(LARGEST);
            let hint = hints.get(name.as_ref()).copied().unwrap_or(0);
            let some = hint.saturating_mul(UNBOUNDED_FACTOR).max(UNBOUNDED_LEAST);
            // Nothing suggests a bound of a data-dependent integer.
            let some = is_size.then_some(some);
            let high = range.max_val.filter(|high| *high < LARGEST).or(some)?.max(low);
            Some((String::from(name.as_ref()), Interval::new(low, high)))
        });
        Symbols { ranges: ranges.collect() }
    }

    /// Returns the largest value of a size, and whether the size can have others.
    ///
    /// # Errors
    /// The expression has a symbol without a range, or an unknown function.
    pub(super) fn bound(&self, size: &SymInt<'_>) -> Result<(usize, bool), Error> {
        let Interval { low, high, .. } = self.interval(size)?;
        Ok((whole(high)?, low != high))
    }

    /// Returns the value of an integer, if it has only one.
    pub(super) fn constant(&self, number: &SymInt<'_>) -> Option<i64> {
        let Interval { low, high, .. } = self.interval(number).ok()?;
        (low == high).then_some(low)
    }

    /// Returns the smallest and the largest value of an integer.
    fn interval(&self, number: &SymInt<'_>) -> Result<Interval, Error> {
        let text = match number {
            SymInt::Int(number) => return Ok(Interval::new(*number, *number)),
            SymInt::Expr(expr) => expr.expr_str.as_ref(),
        };
        if text.len() > MAX_LENGTH {
            return Err(Error::Unsupported(format!(
                "the expression of a size has {} bytes; at most {MAX_LENGTH}",
                text.len()
            )));
        }
        let mut parser = Parser { text: Cursor::new(text), symbols: self, depth: 0 };
        let value = parser.sum().filter(|_| parser.text.is_at_end());
        value.and_then(Interval::rounded).ok_or_else(|| {
            Error::Unsupported(format!(
                "the size `{text}` has no bound; declare one with `torch.export.Dim` or \
                 `torch._check`"
            ))
        })
    }
}

fn whole(size: i64) -> Result<usize, Error> {
    usize::try_from(size).map_err(|_| Error::Invalid(format!("the size {size} is negative")))
}

/// Returns the name of the symbol that a size consists of.
pub(super) fn name<'s>(size: &'s SymInt<'_>) -> Option<&'s str> {
    match size {
        SymInt::Int(_) => None,
        SymInt::Expr(expr) => symbol(&expr.expr_str),
    }
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
    text: Cursor<'t>,
    symbols: &'t Symbols,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn word(&mut self) -> &'t str {
        self.text.take_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.')
    }

    /// Whether a name and `=` follow.
    fn is_option(&self) -> bool {
        let mut ahead = Parser { depth: 0, ..*self };
        let word = ahead.word();
        !word.is_empty() && ahead.text.eat("=")
    }

    fn sum(&mut self) -> Option<Interval> {
        self.depth += 1;
        if self.depth > DEPTH {
            return None;
        }
        let mut value = self.product()?;
        loop {
            if self.text.eat("+") {
                value = value.plus(self.product()?)?;
            } else if self.text.eat("-") {
                value = value.plus(self.product()?.negated())?;
            } else {
                self.depth -= 1;
                return Some(value);
            }
        }
    }

    fn product(&mut self) -> Option<Interval> {
        let mut value = self.power()?;
        loop {
            if self.text.eat("//") {
                value = value.over(self.power()?)?;
            } else if self.text.eat("/") {
                value = value.divided(self.power()?)?;
            } else if self.text.eat("*") {
                value = value.times(self.power()?)?;
            } else {
                return Some(value);
            }
        }
    }

    fn power(&mut self) -> Option<Interval> {
        let value = self.atom()?;
        if self.text.eat("**") { value.power(self.atom()?) } else { Some(value) }
    }

    fn atom(&mut self) -> Option<Interval> {
        if self.text.eat("-") {
            self.depth += 1;
            let value = if self.depth > DEPTH { None } else { self.atom() };
            self.depth -= 1;
            return value.map(Interval::negated);
        }
        if self.text.eat("(") {
            let value = self.sum()?;
            return self.text.eat(")").then_some(value);
        }
        let word = self.word();
        if !self.text.eat("(") {
            return match word.parse::<i64>() {
                Ok(number) => Some(Interval::new(number, number)),
                Err(_) => self.symbols.ranges.get(word).copied(),
            };
        }
        if word == "Symbol" {
            let (_, rest) = self.text.rest.split_once('\'')?;
            let (name, rest) = rest.split_once('\'')?;
            // Assumptions about the symbol follow.
            let (_, rest) = rest.split_once(')')?;
            self.text.rest = rest;
            return self.symbols.ranges.get(name).copied();
        }
        let mut args = Vec::new();
        loop {
            args.push(self.sum()?);
            if !self.text.eat(",") {
                break;
            }
            // Options such as `evaluate=False` follow the operands.
            if self.is_option() {
                let (_, rest) = self.text.rest.split_at_checked(self.text.rest.find(')')?)?;
                self.text.rest = rest;
                break;
            }
        }
        if !self.text.eat(")") {
            return None;
        }
        function(word, &args)
    }
}

/// Evaluates a function of SymPy, or of PyTorch's `torch/utils/_sympy/functions.py`.
fn function(name: &str, args: &[Interval]) -> Option<Interval> {
    let (first, rest) = args.split_first()?;
    let all = |combine: fn(Interval, Interval) -> Option<Interval>| {
        rest.iter().try_fold(*first, |value, arg| combine(value, *arg))
    };
    match (name, rest) {
        ("Integer" | "ToFloat" | "Identity", []) => Some(*first),
        ("Add", _) => all(Interval::plus),
        ("Mul", _) => all(Interval::times),
        ("Max", _) => all(|a, b| a.of_corners(b, i64::max)),
        ("Min", _) => all(|a, b| a.of_corners(b, i64::min)),
        ("FloorDiv" | "CleanDiv" | "PythonFloorDiv", [divisor]) => first.over(*divisor),
        ("Rational" | "IntTrueDiv", [divisor]) => first.divided(*divisor),
        ("CeilDiv", [divisor]) => {
            let value = first.over(*divisor)?;
            Some(Interval { high: value.high.saturating_add(1), ..value })
        }
        ("Mod" | "PythonMod", [divisor]) if divisor.low > 0 && divisor.divisor == 1 => {
            Some(Interval::new(0, divisor.high.saturating_sub(1)))
        }
        ("Pow" | "PowByNatural", [exponent]) => first.power(*exponent),
        // Rounding outwards covers every rounding.
        ("TruncToInt" | "FloorToInt" | "CeilToInt" | "floor" | "ceiling", []) => first.rounded(),
        _ => None,
    }
}

impl Interval {
    fn new(low: i64, high: i64) -> Self {
        Interval { low, high, divisor: 1 }
    }

    /// The smallest interval of integers that contains this one.
    fn rounded(self) -> Option<Self> {
        let (low, high) = (self.low.checked_div_euclid(self.divisor)?, self.high);
        let down = high.checked_div_euclid(self.divisor)?;
        let is_whole = high.checked_rem_euclid(self.divisor)? == 0;
        Some(Self::new(low, if is_whole { down } else { down.saturating_add(1) }))
    }

    fn plus(self, other: Self) -> Option<Self> {
        let divisor = self.divisor.checked_mul(other.divisor)?;
        let sum = |a: i64, b: i64| {
            let (a, b) = (a.saturating_mul(other.divisor), b.saturating_mul(self.divisor));
            a.saturating_add(b)
        };
        Some(Interval { low: sum(self.low, other.low), high: sum(self.high, other.high), divisor })
    }

    fn negated(self) -> Self {
        let (low, high) = (self.high.saturating_neg(), self.low.saturating_neg());
        Interval { low, high, ..self }
    }

    /// The interval of a function of integers that is monotonic in each operand.
    fn of_corners(self, other: Self, function: impl Fn(i64, i64) -> i64) -> Option<Self> {
        let (a, b) = (function(self.low, other.low), function(self.low, other.high));
        let (c, d) = (function(self.high, other.low), function(self.high, other.high));
        (self.divisor == 1 && other.divisor == 1)
            .then(|| Self::new(a.min(b).min(c).min(d), a.max(b).max(c).max(d)))
    }

    fn times(self, other: Self) -> Option<Self> {
        let divisor = self.divisor.checked_mul(other.divisor)?;
        let (a, b) = (Self::new(self.low, self.high), Self::new(other.low, other.high));
        Some(Interval { divisor, ..a.of_corners(b, i64::saturating_mul)? })
    }

    /// Floor division. A divisor of zero is an error at run time.
    fn over(self, other: Self) -> Option<Self> {
        let floor = |a: i64, b: i64| a.checked_div_euclid(b).unwrap_or(i64::MAX);
        let other =
            if other.low == 0 { Interval { low: other.high.min(1), ..other } } else { other };
        if other.low > 0 { self.of_corners(other, floor) } else { None }
    }

    /// Exact division by a constant.
    fn divided(self, other: Self) -> Option<Self> {
        let is_known = other.low == other.high && other.low > 0 && other.divisor == 1;
        let divisor = self.divisor.checked_mul(other.low).filter(|_| is_known)?;
        Some(Interval { divisor, ..self })
    }

    fn power(self, other: Self) -> Option<Self> {
        let is_known = other.low == other.high && other.divisor == 1;
        let exponent = u32::try_from(other.low).ok().filter(|_| is_known)?;
        (self.low >= 0 && self.divisor == 1).then(|| {
            Self::new(self.low.saturating_pow(exponent), self.high.saturating_pow(exponent))
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
            (Cow::Borrowed("u0"), range(-4, Some(0))),
            (Cow::Borrowed("s3"), range(-5, Some(9))),
            (Cow::Borrowed("s4"), range(i64::MIN, Some(9))),
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
            ("Mul(Rational(1, 2), Symbol('s0', integer=True))", 32),
            ("Mul(Symbol('s0', integer=True), Rational(3, 4), evaluate=False)", 48),
            ("3*s0/4 + s1", 58),
            // A divisor of zero is an error at run time.
            ("s0 // s1", 64),
            ("Add(Symbol('u0', integer=True), Integer(10))", 10),
            ("s2", 400),
            ("-s3", 5),
            ("8 - s3", 13),
            ("8 - s4", 8),
        ] {
            assert_eq!(bound(text), Some((expected, true)), "{text}");
        }
        assert_eq!(bound("Integer(3)"), Some((3, false)));
    }

    #[test]
    fn integers_may_be_negative() {
        let constant = |text: &str| {
            let expr = SymExpr { expr_str: text.into(), hint: None };
            symbols().constant(&SymInt::Expr(expr))
        };
        assert_eq!(constant("u0"), None);
        assert_eq!(constant("Integer(-3)"), Some(-3));
        assert_eq!(constant("Mul(Integer(-1), Integer(2))"), Some(-2));
    }

    #[test]
    fn unknown_expressions_are_refused() {
        let deep = "(".repeat(100_000);
        let minus = "-".repeat(100_000);
        let long = format!("Add(1{})", ", 1".repeat(2000));
        for text in [
            "s9",
            "Foo(s0)",
            "s0 +",
            "",
            "Mul(s0",
            "s0 // u0",
            "ß",
            "Rational(1, s0)",
            &deep,
            &minus,
            &long,
        ] {
            assert_eq!(bound(text), None, "{text}");
        }
    }
}
