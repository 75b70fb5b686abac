//! Reducers: sums, products, extremes and moments.

use super::engine::Reducer;
use crate::elementwise::Arithmetic;
use crate::number::Compute;
use crate::real::Real;

/// Number of independent partial results of a fold.
const LANES: usize = 16;

/// Maximum number of values that are folded sequentially, as in PyTorch, so that sums are the same
/// in the last bit.
const FEW: usize = 4;

/// Folds values in [`LANES`] lanes, which are then merged as a tree.
#[inline(always)]
pub(crate) fn fold_lanes<C: Copy, A: Copy>(
    start: A,
    values: &[C],
    fold: impl Fn(A, C) -> A,
    merge: impl Fn(A, A) -> A,
) -> A {
    if values.len() <= FEW {
        return values.iter().fold(start, |state, value| fold(state, *value));
    }
    let mut lanes = [start; LANES];
    let (blocks, rest) = values.as_chunks::<LANES>();
    for block in blocks {
        for (lane, value) in lanes.iter_mut().zip(block) {
            *lane = fold(*lane, *value);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane = fold(*lane, *value);
    }
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] = merge(lanes[i], lanes[i + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// A reducer whose state is a value, and which folds and merges with the same binary function.
macro_rules! fold_of_two {
    ($(#[$doc:meta])* $name:ident: $bound:ident, $start:expr, $function:expr) => {
        $(#[$doc])*
        pub(crate) struct $name;
        impl<C: $bound> Reducer<C> for $name {
            type State = C;
            #[inline(always)]
            fn start(&self) -> C {
                $start
            }
            #[inline(always)]
            fn fold(&self, state: &mut C, values: &[C], _: usize) {
                *state = $function(*state, fold_lanes($start, values, $function, $function));
            }
            #[inline(always)]
            fn fold_each(&self, states: &mut [C], values: &[C], _: usize) {
                for (state, value) in states.iter_mut().zip(values) {
                    *state = $function(*state, *value);
                }
            }
            #[inline(always)]
            fn merge(&self, a: C, b: C) -> C {
                $function(a, b)
            }
        }
    };
}

fold_of_two! {
    /// The sum; integers wrap.
    Sum: Arithmetic, C::default(), |a: C, b: C| a.add(b)
}
fold_of_two! {
    /// The product; integers wrap.
    Product: Arithmetic, C::of_bool(true), |a: C, b: C| a.mul(b)
}
fold_of_two! {
    /// The maximum; NaN if any value is NaN.
    Max: Ordered, C::LOWEST, |a: C, b: C| if b.above(a) { b } else { a }
}
fold_of_two! {
    /// The minimum; NaN if any value is NaN.
    Min: Ordered, C::HIGHEST, |a: C, b: C| if b.below(a) { b } else { a }
}

/// Values that can be compared. NaN is both greater and less than every value.
pub(crate) trait Ordered: Compute {
    /// Lower bound of all values.
    const LOWEST: Self;
    /// Upper bound of all values.
    const HIGHEST: Self;
    /// Whether `self` is greater or NaN. If both are NaN, either may be kept.
    fn above(self, other: Self) -> bool;
    /// Whether `self` is less or NaN.
    fn below(self, other: Self) -> bool;
}

macro_rules! ordered_floats {
    ($($t:ident),*) => {$(impl Ordered for $t {
        const LOWEST: $t = $t::NEG_INFINITY;
        const HIGHEST: $t = $t::INFINITY;
        // Branch-free, so that loops over values vectorize.
        #[inline(always)]
        fn above(self, other: $t) -> bool {
            (self > other) | self.is_nan()
        }
        #[inline(always)]
        fn below(self, other: $t) -> bool {
            (self < other) | self.is_nan()
        }
    })*};
}
ordered_floats!(f32, f64);

impl Ordered for i64 {
    const LOWEST: i64 = i64::MIN;
    const HIGHEST: i64 = i64::MAX;
    #[inline(always)]
    fn above(self, other: i64) -> bool {
        self > other
    }
    #[inline(always)]
    fn below(self, other: i64) -> bool {
        self < other
    }
}

/// The maximum or minimum and the index of its first occurrence; the first NaN if any value is NaN.
pub(crate) struct ArgExtreme<const MAX: bool>;

impl<const MAX: bool> ArgExtreme<MAX> {
    /// Returns the better of two values: the maximum or minimum.
    #[inline(always)]
    fn better<C: Ordered>(a: C, b: C) -> C {
        let second = if MAX { b.above(a) } else { b.below(a) };
        if second { b } else { a }
    }
    /// Whether `a` is strictly better than `b`.
    #[inline(always)]
    fn beats<C: Ordered>(a: C, b: C) -> bool {
        !b.is_nan() && if MAX { a.above(b) } else { a.below(b) }
    }
}

impl<C: Ordered, const MAX: bool> Reducer<C> for ArgExtreme<MAX> {
    type State = (C, usize);
    #[inline(always)]
    fn start(&self) -> (C, usize) {
        // Every value beats this one or equals it, so the first index is correct.
        (if MAX { C::LOWEST } else { C::HIGHEST }, 0)
    }
    #[inline(always)]
    fn fold(&self, state: &mut (C, usize), values: &[C], first: usize) {
        let (start, _) = Reducer::<C>::start(self);
        let best = fold_lanes(start, values, Self::better, Self::better);
        if Self::beats(best, state.0) {
            // Neither beats the other: equal, or both NaN.
            let is_best = |value: &C| !Self::beats(best, *value);
            let number = values.iter().position(is_best).unwrap_or(0);
            *state = (best, first + number);
        }
    }
    #[inline(always)]
    fn fold_each(&self, states: &mut [(C, usize)], values: &[C], number: usize) {
        for (state, value) in states.iter_mut().zip(values) {
            if Self::beats(*value, state.0) {
                *state = (*value, number);
            }
        }
    }
    #[inline(always)]
    fn merge(&self, a: (C, usize), b: (C, usize)) -> (C, usize) {
        if Self::beats(b.0, a.0) { b } else { a }
    }
}

/// Whether any value is nonzero; with `ALL`, whether all are.
pub(crate) struct AnyAll<const ALL: bool>;

impl<C: Compute, const ALL: bool> Reducer<C> for AnyAll<ALL> {
    type State = bool;
    #[inline(always)]
    fn start(&self) -> bool {
        ALL
    }
    #[inline(always)]
    fn fold(&self, state: &mut bool, values: &[C], _: usize) {
        *state = if ALL {
            *state && values.iter().all(|value| value.truth())
        } else {
            *state || values.iter().any(|value| value.truth())
        };
    }
    #[inline(always)]
    fn fold_each(&self, states: &mut [bool], values: &[C], _: usize) {
        for (state, value) in states.iter_mut().zip(values) {
            *state = Reducer::<C>::merge(self, *state, value.truth());
        }
    }
    #[inline(always)]
    fn merge(&self, a: bool, b: bool) -> bool {
        if ALL { a & b } else { a | b }
    }
}

/// Count, mean, and sum of squared deviations. The mean is stored as a sum of two values, because
/// the rounding error of a large mean would affect the squares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread<C> {
    pub(crate) count: C,
    pub(crate) mean: C,
    /// Rounding error of the mean.
    pub(crate) low: C,
    pub(crate) squares: C,
}

/// Adds two values; returns the rounded sum and its rounding error.
#[inline(always)]
fn split_sum<C: Real>(high: C, low: C) -> (C, C) {
    let sum = high + low;
    let rest = low - (sum - high);
    // Infinities have no rounding error.
    (sum, if rest.is_nan() { C::default() } else { rest })
}

impl<C: Real> Spread<C> {
    /// The variance with `correction` fewer degrees of freedom.
    pub(crate) fn variance(&self, correction: C) -> C {
        let freedom = self.count - correction;
        self.squares / if freedom > C::default() { freedom } else { C::default() }
    }
}

/// Mean and variance of the values.
pub(crate) struct Moments;

impl<C: Real> Reducer<C> for Moments {
    type State = Spread<C>;
    #[inline(always)]
    fn start(&self) -> Spread<C> {
        Spread { count: C::default(), mean: C::default(), low: C::default(), squares: C::default() }
    }
    #[inline(always)]
    fn fold(&self, state: &mut Spread<C>, values: &[C], _: usize) {
        if values.is_empty() {
            return;
        }
        let (zero, count) = (C::default(), C::count(values.len()));
        let add = |a: C, b: C| a + b;
        let mean = fold_lanes(zero, values, add, add) / count;
        let distance = |sum: C, x: C| sum + (x - mean);
        let rest = fold_lanes(zero, values, distance, add) / count;
        let square = |sum: C, x: C| sum + (x - mean) * (x - mean);
        let squares = fold_lanes(zero, values, square, add) - rest * rest * count;
        let (mean, low) = split_sum(mean, rest);
        *state = self.merge(*state, Spread { count, mean, low, squares });
    }
    #[inline(always)]
    fn fold_each(&self, states: &mut [Spread<C>], values: &[C], _: usize) {
        // All states contain the same number of values.
        let count = states.first().map_or(C::default(), |state| state.count) + C::count(1);
        let weight = C::count(1) / count;
        for (state, value) in states.iter_mut().zip(values) {
            let distance = (*value - state.mean) - state.low;
            state.count = count;
            (state.mean, state.low) = split_sum(state.mean, state.low + distance * weight);
            state.squares = state.squares + distance * ((*value - state.mean) - state.low);
        }
    }
    #[inline(always)]
    fn merge(&self, a: Spread<C>, b: Spread<C>) -> Spread<C> {
        let zero = C::default();
        if a.count == zero {
            return b;
        }
        if b.count == zero {
            return a;
        }
        let count = a.count + b.count;
        let weight = b.count / count;
        let distance = (b.mean - a.mean) + (b.low - a.low);
        let (mean, low) = split_sum(a.mean, a.low + distance * weight);
        Spread {
            count,
            mean,
            low,
            squares: a.squares + b.squares + distance * distance * (a.count * weight),
        }
    }
}
