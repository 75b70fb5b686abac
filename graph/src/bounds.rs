//! Value ranges of integer tensors.
//!
//! A processor with 32-bit integers can run a call on `i64` tensors in two cases: all values fit
//! into 32 bits ([`Bounds::fits_32_bits`]), or the call gives the same results for values that are
//! saturated to 32 bits ([`Bounds::tolerates_saturation`]). An example of the second case is an
//! index: if it is out of range, it stays out of range.

use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::{ClampArgs, Operator, Range, Saturation};
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Smallest and largest value, both inclusive.
pub type Interval = (i64, i64);

/// The range of `i32`.
const NARROW: Interval = (i32::MIN as i64, i32::MAX as i64);

/// Value ranges of a graph's integer tensors, as far as they are known.
#[derive(Debug, Clone)]
pub struct Bounds {
    intervals: Vec<Option<Interval>>,
    /// For each value, whether results are unchanged if its elements saturate to 32 bits.
    tolerant: Vec<bool>,
}

impl Bounds {
    /// Computes the ranges of a graph's values.
    pub fn of(graph: &Graph<'_>) -> Self {
        let mut bounds = Bounds {
            intervals: graph.values.iter().map(of_value).collect(),
            tolerant: vec![true; graph.values.len()],
        };
        // State is as unknown as inputs.
        let written = graph.nodes.iter().filter(|node| node.operator.traits().writes_arguments());
        let written = written.flat_map(|node| &node.args).copied();
        for id in graph.updates.iter().map(|(_, old)| *old).chain(written) {
            bounds.forget(graph, id);
        }
        for node in &graph.nodes {
            bounds.visit(graph, node);
        }
        for id in graph.outputs.iter().chain(graph.updates.iter().flat_map(|(a, b)| [a, b])) {
            bounds.refuse(*id);
        }
        for node in graph.nodes.iter().rev() {
            bounds.demand(graph, node);
        }
        bounds
    }

    /// Returns the range of a tensor's elements; `None` if it is unknown.
    pub fn interval(&self, id: ValueId) -> Option<Interval> {
        self.intervals.get(id).copied().flatten()
    }

    /// Whether all elements of a tensor fit into 32 bits.
    pub fn fits_32_bits(&self, id: ValueId) -> bool {
        self.interval(id).is_some_and(|interval| within(interval, NARROW))
    }

    /// Whether all uses of a value give the same results if its elements saturate to 32 bits.
    pub fn tolerates_saturation(&self, id: ValueId) -> bool {
        self.tolerant.get(id).copied().unwrap_or(false)
    }

    /// Whether saturating the argument at this position to 32 bits leaves results unchanged: those
    /// of the call itself, or those of all later calls that use the call's output.
    pub fn argument_tolerates(&self, graph: &Graph<'_>, node: &Node, position: usize) -> bool {
        let out = node.args.last().copied();
        let traits = node.operator.traits();
        let compared = || {
            let other = node.args.get(1 - position.min(1));
            let other = other.and_then(|id| self.number_or_interval(graph, *id));
            // Excludes the limits, as out-of-range values saturate to them.
            position < 2 && other.is_some_and(|other| within(other, (NARROW.0 + 1, NARROW.1 - 1)))
        };
        match traits.saturation {
            Saturation::Index(at) => position == usize::from(at),
            Saturation::Clamped => {
                let Ok(call) = ClampArgs::of(node) else { return false };
                let bound = |id: Option<ValueId>| self.number_or_interval(graph, id?);
                let narrow = |id| bound(id).is_some_and(|bound| within(bound, NARROW));
                position == 0 && narrow(call.min) && narrow(call.max)
            }
            Saturation::Compared => compared(),
            Saturation::ComparedInOrder => position == 5 || compared(),
            Saturation::Sign => position < 2,
            Saturation::Truth if position == 0 => {
                let out = out.and_then(|out| graph.values.get(out));
                matches!(out, Some(Value::Tensor(it)) if it.scalar_type == ScalarType::Bool)
            }
            Saturation::Never | Saturation::Truth => {
                let selects = traits.is_view || traits.range == Range::Selected;
                selects
                    && out
                        .is_some_and(|out| self.tolerates_saturation(out) && is_integer(graph, out))
            }
        }
    }

    fn forget(&mut self, graph: &Graph<'_>, id: ValueId) {
        if let (Some(Value::Tensor(tensor)), Some(slot)) =
            (graph.values.get(id), self.intervals.get_mut(id))
        {
            *slot = of_type(tensor).filter(|_| tensor.scalar_type != ScalarType::Long);
        }
    }

    fn refuse(&mut self, id: ValueId) {
        if let Some(slot) = self.tolerant.get_mut(id) {
            *slot = false;
        }
    }

    /// Propagates requirements from a call to its arguments. Calls are visited last to first.
    fn demand(&mut self, graph: &Graph<'_>, node: &Node) {
        let Some((_, inputs)) = node.args.split_last() else { return };
        for (position, id) in inputs.iter().enumerate() {
            if self.argument_tolerates(graph, node, position) {
                continue;
            }
            self.refuse(*id);
            if let Some(Value::List(items)) = graph.values.get(*id) {
                items.iter().for_each(|id| self.refuse(*id));
            }
        }
    }

    /// The range of a number, or of a tensor.
    fn number_or_interval(&self, graph: &Graph<'_>, id: ValueId) -> Option<Interval> {
        match graph.values.get(id)? {
            Value::Int(number) => Some((*number, *number)),
            Value::Bool(truth) => Some((i64::from(*truth), i64::from(*truth))),
            Value::Double(number) if *number as i64 as f64 == *number => {
                Some((*number as i64, *number as i64))
            }
            Value::Tensor(_) => self.interval(id),
            _ => None,
        }
    }

    /// The union of the ranges of a tensor, or of the members of a list.
    fn union(&self, graph: &Graph<'_>, id: ValueId) -> Option<Interval> {
        match graph.values.get(id)? {
            Value::List(items) => {
                items.iter().map(|id| self.interval(*id)).reduce(|a, b| Some(joined(a?, b?)))?
            }
            _ => self.number_or_interval(graph, id),
        }
    }

    /// Computes the ranges of a call's results.
    fn visit(&mut self, graph: &Graph<'_>, node: &Node) {
        let Some((out, args)) = node.args.split_last() else { return };
        for (position, out) in graph.items(out).iter().enumerate() {
            let Some(Value::Tensor(tensor)) = graph.values.get(*out) else { continue };
            let Some(declared) = of_type(tensor) else { continue };
            let made = self.result(graph, node.operator, args, position, tensor);
            // Values that do not fit a narrow type wrap into its range.
            let known = match made {
                Some(made) if within(made, declared) => Some(made),
                _ if tensor.scalar_type == ScalarType::Long => None,
                _ => Some(declared),
            };
            if let Some(slot) = self.intervals.get_mut(*out) {
                *slot = known;
            }
        }
    }

    fn result(
        &self,
        graph: &Graph<'_>,
        operator: Operator,
        args: &[ValueId],
        position: usize,
        out: &Tensor<'_>,
    ) -> Option<Interval> {
        let arg = |at: usize| args.get(at).copied();
        let of = |at: usize| self.union(graph, arg(at)?);
        let both = || Some((of(0)?, of(1)?));
        let factor = |at: usize| match arg(at).and_then(|id| graph.values.get(id)) {
            None | Some(Value::None) => Some((1, 1)),
            Some(_) => of(at),
        };
        let index = |at: usize| Some((0, self.last_index(graph, arg(at)?)?));
        let traits = operator.traits();
        match traits.range {
            Range::Unknown if traits.is_view => of(0),
            Range::Unknown => None,
            Range::Selected => of(0),
            Range::Argument(at) => of(at.into()),
            Range::Either(a, b) => Some(joined(of(a.into())?, of(b.into())?)),
            Range::Within(low, high) => Some((low.into(), high.into())),
            Range::Sum => sum(of(0)?, product(of(1)?, factor(2)?)?),
            Range::Difference => sum(of(0)?, negative(product(of(1)?, factor(2)?)?)?),
            Range::ReversedDifference => sum(of(1)?, negative(product(of(0)?, factor(2)?)?)?),
            Range::Product => product(of(0)?, of(1)?),
            Range::Negated => negative(of(0)?),
            Range::Absolute => of(0).and_then(|it| Some(joined((0, 0), joined(it, negative(it)?)))),
            Range::Relu => of(0).map(|(low, high)| (low.max(0), high.max(0))),
            Range::Minimum => both().map(|(a, b)| (a.0.min(b.0), a.1.min(b.1))),
            Range::Maximum => both().map(|(a, b)| (a.0.max(b.0), a.1.max(b.1))),
            Range::Clamped => self.clamped(graph, args),
            Range::Padded => Some(joined(of(0)?, joined((0, 0), factor(2)?))),
            Range::Counted | Range::CountedFrom => {
                let (start, step) = match traits.range {
                    Range::Counted => ((0, 0), (1, 1)),
                    _ if matches!(graph.values.get(arg(0)?), Some(Value::None)) => {
                        ((0, 0), factor(2)?)
                    }
                    _ => (of(0)?, factor(2)?),
                };
                let last = i64::try_from(numel(&out.sizes)).ok()?.saturating_sub(1).max(0);
                Some(joined(start, sum(start, product(step, (0, last))?)?))
            }
            Range::Index => index(0),
            Range::ValuesAndIndices if position == 0 => of(0),
            Range::OnlyIndices if position == 0 => None,
            Range::ValuesAndIndices | Range::OnlyIndices => {
                (position == 1).then(|| index(0)).flatten()
            }
            Range::SumOfMany => {
                let count = index(0)?.1.checked_add(1)?;
                product(of(0)?, (0, count))
            }
            // The insertion index may follow the last element.
            Range::Insertion(at) => Some((0, index(at.into())?.1.checked_add(1)?)),
            Range::Quotient => {
                let (a, b) = both()?;
                // Integer divisors do not increase the magnitude; rounding down can decrease a
                // negative quotient by one.
                let magnitude = a.0.checked_abs()?.max(a.1.checked_abs()?);
                (b.0 > 0 || b.1 < 0).then_some((-magnitude, magnitude))
            }
            Range::Remainder => {
                let (low, high) = of(1)?;
                (low > 0 || high < 0).then_some((low.min(0), high.max(0)))
            }
            Range::TowardsZero => of(0).map(|(low, high)| (low.min(0), high.max(0))),
            Range::ShiftedLeft => {
                let ((low, high), (least, most)) = both()?;
                let factor = 1_i64.checked_shl(u32::try_from(most).ok()?).filter(|by| *by > 0)?;
                let times = (low.min(0).checked_mul(factor)?, high.max(0).checked_mul(factor)?);
                (least >= 0).then_some(times)
            }
            // The result has no bits that a nonnegative operand lacks.
            Range::And => {
                let least = [of(0), of(1)].into_iter().flatten().filter(|it| it.0 >= 0);
                match least.map(|it| it.1).min() {
                    Some(high) => Some((0, high)),
                    None => (within(of(0)?, NARROW) && within(of(1)?, NARROW)).then_some(NARROW),
                }
            }
            Range::Or => (within(of(0)?, NARROW) && within(of(1)?, NARROW)).then_some(NARROW),
            Range::Not => within(of(0)?, NARROW).then_some(NARROW),
        }
    }

    fn clamped(&self, graph: &Graph<'_>, args: &[ValueId]) -> Option<Interval> {
        let bound = |at: usize| args.get(at).and_then(|id| self.number_or_interval(graph, *id));
        let (low, high) = self.union(graph, *args.first()?).unwrap_or((i64::MIN, i64::MAX));
        let (least, most) =
            (bound(1).map_or(i64::MIN, |it| it.0), bound(2).map_or(i64::MAX, |it| it.1));
        Some((low.max(least).min(most), high.max(least).min(most)))
    }

    /// The index of the last element of a tensor.
    fn last_index(&self, graph: &Graph<'_>, id: ValueId) -> Option<i64> {
        let Value::Tensor(tensor) = graph.values.get(id)? else { return None };
        Some(i64::try_from(numel(&tensor.sizes)).ok()?.saturating_sub(1).max(0))
    }
}

fn is_integer(graph: &Graph<'_>, id: ValueId) -> bool {
    let integer = |id: &ValueId| match graph.values.get(*id) {
        Some(Value::Tensor(tensor)) => tensor.scalar_type == ScalarType::Long,
        _ => false,
    };
    match graph.values.get(id) {
        Some(Value::List(items)) => items.iter().all(integer),
        _ => integer(&id),
    }
}

/// The range of an integer type.
fn of_type(tensor: &Tensor<'_>) -> Option<Interval> {
    Some(match tensor.scalar_type {
        ScalarType::Bool => (0, 1),
        ScalarType::Byte => (0, u8::MAX.into()),
        ScalarType::Char => (i8::MIN.into(), i8::MAX.into()),
        ScalarType::Short => (i16::MIN.into(), i16::MAX.into()),
        ScalarType::Int => NARROW,
        ScalarType::Long => (i64::MIN, i64::MAX),
        _ => return None,
    })
}

/// The initial range of a value, from constant data or from its type.
fn of_value(value: &Value<'_>) -> Option<Interval> {
    let Value::Tensor(tensor) = value else { return None };
    match (&tensor.data, tensor.scalar_type) {
        (Some(data), ScalarType::Long) if tensor.changes != Some(true) => {
            let numbers = data.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes));
            numbers.map(|number| (number, number)).reduce(joined).or(Some((0, 0)))
        }
        (_, ScalarType::Long) => None,
        _ => of_type(tensor),
    }
}

fn numel(sizes: &[usize]) -> usize {
    sizes.iter().fold(1, |numel, size| numel.saturating_mul(*size))
}

fn within((low, high): Interval, (least, most): Interval) -> bool {
    least <= low && high <= most
}

fn joined(a: Interval, b: Interval) -> Interval {
    (a.0.min(b.0), a.1.max(b.1))
}

fn sum(a: Interval, b: Interval) -> Option<Interval> {
    Some((a.0.checked_add(b.0)?, a.1.checked_add(b.1)?))
}

fn negative((low, high): Interval) -> Option<Interval> {
    Some((high.checked_neg()?, low.checked_neg()?))
}

fn product(a: Interval, b: Interval) -> Option<Interval> {
    let ends =
        [a.0.checked_mul(b.0), a.0.checked_mul(b.1), a.1.checked_mul(b.0), a.1.checked_mul(b.1)];
    let ends: Option<Vec<i64>> = ends.into_iter().collect();
    ends?.into_iter().map(|end| (end, end)).reduce(joined)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::Cow;

    fn tensor(scalar_type: ScalarType, size: usize, data: Option<&[i64]>) -> Value<'static> {
        let bytes = |data: &[i64]| data.iter().flat_map(|number| number.to_le_bytes()).collect();
        Value::Tensor(Tensor {
            scalar_type,
            host_type: scalar_type,
            sizes: vec![size],
            dynamic: false,
            data: data.map(|data| Cow::Owned(bytes(data))),
            changes: None,
        })
    }

    #[test]
    fn what_follows_from_constants_is_known() {
        let long = |data| tensor(ScalarType::Long, 3, data);
        let graph = Graph {
            values: vec![
                long(Some(&[-4, 0, 9])),
                tensor(ScalarType::Bool, 3, None),
                long(None),
                long(None),
                long(None),
                Value::Int(1 << 40),
                Value::None,
            ],
            nodes: vec![
                Node::new(Operator::SUB_TENSOR, vec![1, 0, 6, 2]),
                Node::new(Operator::MUL_TENSOR, vec![2, 5, 3]),
                Node::new(Operator::VIEW_COPY, vec![2, 6, 4]),
            ],
            outputs: vec![3],
            ..Graph::default()
        };
        let bounds = Bounds::of(&graph);
        assert_eq!(bounds.interval(2), Some((-9, 5)));
        assert_eq!(bounds.interval(3), Some((-9 << 40, 5 << 40)));
        assert_eq!(bounds.interval(4), Some((-9, 5)));
        assert!(bounds.fits_32_bits(2) && !bounds.fits_32_bits(3));
    }

    #[test]
    fn bits_are_known() {
        let long = |data| tensor(ScalarType::Long, 3, data);
        let values = [long(Some(&[-40, 0, 90])), long(None), Value::Int(2), Value::Int(15)];
        let calls = [
            (Operator::RSHIFT_SCALAR, 0, 2, Some((-40, 90))),
            (Operator::LSHIFT_SCALAR, 0, 2, Some((-160, 360))),
            (Operator::LSHIFT_SCALAR, 1, 2, None),
            (Operator::BITWISE_AND_SCALAR, 0, 3, Some((0, 15))),
            (Operator::BITWISE_AND_TENSOR, 0, 0, Some(NARROW)),
            (Operator::BITWISE_AND_SCALAR, 1, 3, Some((0, 15))),
            (Operator::BITWISE_OR_SCALAR, 0, 3, Some(NARROW)),
            (Operator::BITWISE_XOR_SCALAR, 1, 3, None),
        ];
        for (operator, a, b, expected) in calls {
            let mut graph = Graph { values: values.to_vec(), outputs: vec![4], ..Graph::default() };
            graph.values.push(long(None));
            graph.nodes.push(Node::new(operator, vec![a, b, 4]));
            assert_eq!(Bounds::of(&graph).interval(4), expected, "{operator:?} of {a} and {b}");
        }
    }

    #[test]
    fn places_of_what_is_put_in_order_are_known() {
        let long = |data| tensor(ScalarType::Long, 3, data);
        let graph = Graph {
            values: vec![
                tensor(ScalarType::Float, 3, None),
                Value::Int(2),
                tensor(ScalarType::Float, 2, None),
                tensor(ScalarType::Long, 2, None),
                Value::List(vec![2, 3]),
                long(Some(&[-4, 0, 9])),
                Value::Int(5),
                long(None),
                Value::Int(0),
                long(None),
            ],
            nodes: vec![
                Node::new(Operator::TOPK, vec![0, 1, 4]),
                Node::new(Operator::FMOD_SCALAR, vec![5, 6, 7]),
                Node::new(Operator::SCATTER_VALUE, vec![5, 8, 3, 6, 9]),
            ],
            outputs: vec![7, 9],
            ..Graph::default()
        };
        let bounds = Bounds::of(&graph);
        assert_eq!(bounds.interval(3), Some((0, 2)));
        assert_eq!(bounds.interval(7), Some((-4, 9)));
        assert_eq!(bounds.interval(9), Some((-4, 9)));
    }

    #[test]
    fn indices_may_be_saturated() {
        let long = || tensor(ScalarType::Long, 3, None);
        let float = || tensor(ScalarType::Float, 3, None);
        let mut graph = Graph {
            values: vec![long(), long(), float(), float(), Value::None, long(), Value::Int(7)],
            nodes: vec![
                Node::new(Operator::VIEW_COPY, vec![0, 4, 1]),
                Node::new(Operator::EMBEDDING, vec![2, 1, 3]),
                Node::new(Operator::EQ_SCALAR, vec![1, 6, 3]),
            ],
            outputs: vec![3],
            ..Graph::default()
        };
        let bounds = Bounds::of(&graph);
        assert!(bounds.tolerates_saturation(0) && bounds.tolerates_saturation(1));
        assert!(!bounds.fits_32_bits(0));
        // Not if the value itself is used, or if it is compared with a limit.
        graph.values[6] = Value::Int(i32::MAX.into());
        assert!(!Bounds::of(&graph).tolerates_saturation(0));
        graph.values[6] = Value::Int(0);
        graph.nodes.push(Node::new(Operator::ADD_TENSOR, vec![1, 1, 5]));
        assert!(!Bounds::of(&graph).tolerates_saturation(1));
    }

    #[test]
    fn masks_may_be_saturated() {
        let long = || tensor(ScalarType::Long, 3, None);
        let truths = || tensor(ScalarType::Bool, 3, None);
        let mut graph = Graph {
            values: vec![long(), truths(), Value::None, long(), truths()],
            nodes: vec![
                Node::new(Operator::TO_COPY, vec![0, 2, 1]),
                Node::new(Operator::LOGICAL_AND, vec![1, 3, 4]),
            ],
            outputs: vec![4],
            ..Graph::default()
        };
        let bounds = Bounds::of(&graph);
        assert!(bounds.tolerates_saturation(0) && bounds.tolerates_saturation(3));
        // Not if the values are converted to numbers.
        graph.values[1] = tensor(ScalarType::Float, 3, None);
        assert!(!Bounds::of(&graph).tolerates_saturation(0));
    }

    #[test]
    fn what_is_looked_for_among_known_numbers_may_be_saturated() {
        let long = |data| tensor(ScalarType::Long, 3, data);
        let mut graph = Graph {
            values: vec![
                long(None),
                long(Some(&[-4, 0, 9])),
                Value::Bool(false),
                Value::Bool(false),
                long(None),
            ],
            nodes: vec![Node::new(Operator::BUCKETIZE_TENSOR, vec![0, 1, 2, 3, 4])],
            outputs: vec![4],
            ..Graph::default()
        };
        let bounds = Bounds::of(&graph);
        assert!(bounds.tolerates_saturation(0));
        assert_eq!(bounds.interval(4), Some((0, 3)));
        // A value that saturates to an equal boundary would be placed after it.
        graph.values[1] = long(Some(&[-4, 0, i32::MAX.into()]));
        assert!(!Bounds::of(&graph).tolerates_saturation(0));
    }
}
