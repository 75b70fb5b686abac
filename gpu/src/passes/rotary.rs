//! Fuses rotary embeddings (RoPE) that are written as separate operators, as in programs that were
//! not lowered for a GPU.
//!
//! Supported forms: neighbouring pairs, `cat(r · c - i · s, r · s + i · c)` where `r` and `i` are
//! the elements of a pair, and half-split heads, `x · c + cat(-x₂, x₁) · s`. The fused call
//! computes in `f32` and rounds once.

use super::{Producers, floating, remove};
use std::collections::HashSet;
use torchlet_graph::graph::{Graph, Node, Value, ValueId};
use torchlet_graph::operators::Operator;
use torchlet_graph::passes::epilogue::is_one;

pub(super) fn fuse(graph: &mut Graph<'_>) {
    let search = Search { producers: Producers::of(graph), graph };
    let mut found = Vec::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        let mut gone = Vec::new();
        let rotation = match node.operator {
            Operator::CAT => search.neighbours(node, &mut gone),
            Operator::ADD_TENSOR => search.halves(node, &mut gone),
            _ => None,
        };
        let Some(rotation) = rotation else { continue };
        // Inputs must not be overwritten between the fused calls.
        let first = gone.iter().min().copied().unwrap_or(index);
        let mut between = graph.nodes.get(first..index).unwrap_or_default().iter();
        if between.all(|node| !node.operator.traits().writes_arguments()) {
            found.push((index, rotation, gone));
        }
    }
    let mut all_gone = HashSet::new();
    for (index, Rotation { input, angles: [cosine, sine], form }, gone) in found {
        let form_id = graph.values.len();
        if let Some(slot) = graph.nodes.get_mut(index)
            && let Some(out) = slot.args.last().copied()
        {
            graph.values.push(Value::Int(form));
            let args = vec![input, cosine, sine, form_id, out];
            *slot = Node { id: slot.id, operator: Operator::ROTARY, args, parts: Vec::new() };
            all_gone.extend(gone);
        }
    }
    remove(graph, &all_gone);
}

/// Operators that remove a dim of size one, and operators that add one.
const NARROWER: [Operator; 3] =
    [Operator::SQUEEZE_COPY_DIM, Operator::SQUEEZE_COPY_DIMS, Operator::VIEW_COPY];
const WIDER: [Operator; 2] = [Operator::UNSQUEEZE_COPY, Operator::VIEW_COPY];

struct Rotation {
    input: ValueId,
    angles: [ValueId; 2],
    form: i64,
}

struct Search<'g, 'p> {
    graph: &'g Graph<'p>,
    producers: Producers<'g, 'p>,
}

impl Search<'_, '_> {
    /// Returns the arguments of the call that produces a value, if its operator is one of
    /// `operators` and the value is read `uses` times. The index of the call is added to `gone`.
    fn call(
        &self,
        id: ValueId,
        operators: &[Operator],
        uses: usize,
        gone: &mut Vec<usize>,
    ) -> Option<&[ValueId]> {
        let (index, node) = self.producers.producer_with_uses(id, uses)?;
        if !operators.contains(&node.operator) || !node.parts.is_empty() {
            return None;
        }
        gone.push(index);
        Some(&node.args)
    }

    fn int(&self, id: ValueId) -> Option<i64> {
        match self.graph.values.get(id)? {
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// Whether a dim index, which may count from the end, is that of the last dim.
    fn is_last(&self, dim: ValueId, rank: usize) -> bool {
        let is = |dim: i64| usize::try_from(dim).is_ok_and(|dim| dim.checked_add(1) == Some(rank));
        self.int(dim).is_some_and(|dim| dim == -1 || is(dim))
    }

    /// Returns the two operands of a multiplication.
    fn factors(&self, id: ValueId, gone: &mut Vec<usize>) -> Option<[ValueId; 2]> {
        let args = self.call(id, &[Operator::MUL_TENSOR], 1, gone)?;
        args.first_chunk().copied()
    }

    /// Returns the two operands of a sum or a difference without a scale.
    fn terms(
        &self,
        id: ValueId,
        operator: Operator,
        gone: &mut Vec<usize>,
    ) -> Option<[ValueId; 2]> {
        let args = self.call(id, &[operator], 1, gone)?;
        self.two(args)
    }

    fn two(&self, args: &[ValueId]) -> Option<[ValueId; 2]> {
        let [a, b, factor @ .., _] = args else { return None };
        let plain = factor.iter().all(|factor| is_one(self.graph, *factor));
        plain.then_some([*a, *b])
    }

    /// Returns the two items of a concatenation over the last dim.
    fn joined(&self, args: &[ValueId]) -> Option<[ValueId; 2]> {
        let [items, dim @ .., out] = args else { return None };
        let rank = self.sizes(*out)?.len();
        let along = dim.first().is_some_and(|dim| self.is_last(*dim, rank));
        let Some(Value::List(items)) = self.graph.values.get(*items) else { return None };
        items.as_slice().try_into().ok().filter(|_| along)
    }

    /// Returns the input of a slice of the last dim, and its start and end.
    fn slice(&self, args: &[ValueId]) -> Option<(ValueId, usize, usize)> {
        let [input, dim, start, end, step @ .., _] = args else { return None };
        let sizes = self.sizes(*input)?;
        let (rank, size) = (sizes.len(), *sizes.last()?);
        let bound = |id: ValueId, default: usize| match self.graph.values.get(id)? {
            Value::None => Some(default),
            Value::Int(at) if *at < 0 => size.checked_sub(usize::try_from(at.unsigned_abs()).ok()?),
            Value::Int(at) => Some(usize::try_from(*at).unwrap_or(usize::MAX).min(size)),
            _ => None,
        };
        let fits = self.is_last(*dim, rank) && step.iter().all(|step| self.int(*step) == Some(1));
        let (start, end) = (bound(*start, 0)?, bound(*end, size)?);
        fits.then_some((*input, start, end))
    }

    /// If a value holds the first or the second elements of the pairs of a tensor, returns that
    /// tensor.
    fn element(&self, id: ValueId, which: usize, gone: &mut Vec<usize>) -> Option<ValueId> {
        // Each element of a pair is multiplied twice.
        if let Some([input, dim, index, _]) = self.call(id, &[Operator::SELECT_COPY_INT], 2, gone) {
            let sizes = self.sizes(*input)?;
            let (index, which) = (self.int(*index)?, which as i64);
            let fits = self.is_last(*dim, sizes.len())
                && sizes.last() == Some(&2)
                && (index == which || index == which - 2);
            return fits.then_some(*input);
        }
        let squeezed = self.call(id, &NARROWER, 2, gone)?.first()?;
        let slice = self.call(*squeezed, &[Operator::SLICE_COPY_TENSOR], 1, gone)?;
        let (input, start, end) = self.slice(slice)?;
        let sizes = self.sizes(input)?;
        let (last, others) = sizes.split_last()?;
        // Only the last dim is removed.
        let same = *last == 2 && *others == self.sizes(id)?;
        ((start, end) == (which, which + 1) && same).then_some(input)
    }

    fn sizes(&self, id: ValueId) -> Option<Vec<usize>> {
        floating(self.graph, id).map(|tensor| tensor.sizes)
    }

    /// Whether the shape of the angles matches the rotated rows, or broadcasts to them.
    fn are_angles(&self, angles: [ValueId; 2], rows: &[usize]) -> bool {
        let all = angles.map(|id| floating(self.graph, id));
        let [Some(cosine), Some(sine)] = all else { return false };
        // Missing dims have size one.
        let mut own = cosine.sizes.iter().rev().copied().chain(std::iter::repeat(1));
        let broadcast = rows
            .iter()
            .rev()
            .take(3)
            .all(|row| own.next().is_some_and(|own| own == *row || own == 1));
        let batches = cosine.sizes.iter().rev().skip(3).all(|size| *size == 1);
        cosine.sizes == sine.sizes
            && cosine.element == sine.element
            && cosine.element.is_floating()
            && batches
            && broadcast
            && cosine.sizes.last() == rows.last()
    }

    fn neighbours(&self, node: &Node, gone: &mut Vec<usize>) -> Option<Rotation> {
        let out = *node.args.last()?;
        let [first, second] = self.joined(&node.args)?;
        let first = *self.call(first, &WIDER, 1, gone)?.first()?;
        let second = *self.call(second, &WIDER, 1, gone)?.first()?;
        let [rc, is] = self.terms(first, Operator::SUB_TENSOR, gone)?;
        let [a, b] = self.terms(second, Operator::ADD_TENSOR, gone)?;
        let (rc, is) = (self.factors(rc, gone)?, self.factors(is, gone)?);
        let (a, b) = (self.factors(a, gone)?, self.factors(b, gone)?);
        let swapped = |[a, b]: [ValueId; 2]| [b, a];
        for [r, cosine] in [rc, swapped(rc)] {
            for [i, sine] in [is, swapped(is)] {
                let has =
                    |pair: [ValueId; 2], one: [ValueId; 2]| pair == one || swapped(pair) == one;
                let turned = (has(a, [r, sine]) && has(b, [i, cosine]))
                    || (has(b, [r, sine]) && has(a, [i, cosine]));
                let mut parts = Vec::new();
                if !turned {
                    continue;
                }
                let (Some(input), Some(other)) =
                    (self.element(r, 0, &mut parts), self.element(i, 1, &mut parts))
                else {
                    continue;
                };
                let sizes = self.sizes(input)?;
                let fits = input == other
                    && sizes.len() == 5
                    && self.sizes(out)? == sizes
                    && self.sizes(r)? == sizes[..4]
                    && self.sizes(first)? == sizes[..4]
                    && self.are_angles([cosine, sine], &sizes[..4]);
                if fits {
                    gone.extend(parts);
                    return Some(Rotation { input, angles: [cosine, sine], form: 0 });
                }
            }
        }
        None
    }

    fn halves(&self, node: &Node, gone: &mut Vec<usize>) -> Option<Rotation> {
        let [a, b] = self.two(&node.args)?;
        let out = *node.args.last()?;
        [[a, b], [b, a]].into_iter().find_map(|[plain, turned]| {
            let mut parts = Vec::new();
            let (plain, turned) =
                (self.factors(plain, &mut parts)?, self.factors(turned, &mut parts)?);
            let [input, cosine, sine] =
                [turned, [turned[1], turned[0]]].into_iter().find_map(|[joined, sine]| {
                    let mut own = Vec::new();
                    let input = self.half_turned(joined, &mut own)?;
                    let cosine = match plain {
                        [x, cosine] | [cosine, x] if x == input => cosine,
                        _ => return None,
                    };
                    parts.extend(own);
                    Some([input, cosine, sine])
                })?;
            let sizes = self.sizes(input)?;
            let fits = sizes.len() == 4
                && self.sizes(out)? == sizes
                && self.are_angles([cosine, sine], &sizes);
            if fits {
                gone.extend(parts);
            }
            fits.then_some(Rotation { input, angles: [cosine, sine], form: 1 })
        })
    }

    /// If a value is the negated second half of a tensor followed by its first half, returns that
    /// tensor.
    fn half_turned(&self, id: ValueId, gone: &mut Vec<usize>) -> Option<ValueId> {
        let args = self.call(id, &[Operator::CAT], 1, gone)?;
        let [negative, first] = self.joined(args)?;
        let second = *self.call(negative, &[Operator::NEG], 1, gone)?.first()?;
        let (input, middle, end) =
            self.slice(self.call(second, &[Operator::SLICE_COPY_TENSOR], 1, gone)?)?;
        let (other, start, first_end) =
            self.slice(self.call(first, &[Operator::SLICE_COPY_TENSOR], 1, gone)?)?;
        let size = *self.sizes(input)?.last()?;
        let fits = input == other
            && (start, first_end, middle, end) == (0, size / 2, size / 2, size)
            && size.is_multiple_of(2);
        fits.then_some(input)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::tensor;
    use torchlet_core::ScalarType;

    /// Builds graphs with rotations for tests.
    #[derive(Default)]
    struct Build {
        graph: Graph<'static>,
    }

    impl Build {
        fn value(&mut self, value: Value<'static>) -> ValueId {
            self.graph.values.push(value);
            self.graph.values.len() - 1
        }

        fn float(&mut self, sizes: &[usize]) -> ValueId {
            self.value(tensor(ScalarType::Float, sizes, false))
        }

        fn call(&mut self, operator: Operator, args: &[ValueId], sizes: &[usize]) -> ValueId {
            let out = self.float(sizes);
            self.graph.nodes.push(Node::new(operator, [args, &[out]].concat()));
            out
        }

        fn slice(&mut self, of: ValueId, [dim, start, end]: [i64; 3], sizes: &[usize]) -> ValueId {
            let bounds = [dim, start, end, 1].map(|number| self.value(Value::Int(number)));
            self.call(Operator::SLICE_COPY_TENSOR, &[&[of], &bounds[..]].concat(), sizes)
        }

        fn joined(&mut self, items: [ValueId; 2], sizes: &[usize]) -> ValueId {
            let items = self.value(Value::List(items.to_vec()));
            let dim = self.value(Value::Int(-1));
            self.call(Operator::CAT, &[items, dim], sizes)
        }

        fn operators(mut self, outputs: &[ValueId]) -> Vec<Operator> {
            self.graph.outputs = outputs.to_vec();
            fuse(&mut self.graph);
            self.graph.nodes.iter().map(|node| node.operator).collect()
        }
    }

    /// Adds a rotation of neighbouring pairs; `second` selects the second elements. Returns the
    /// result, and the value with the first elements.
    fn neighbours(second: [i64; 3]) -> (Build, ValueId, ValueId) {
        let mut build = Build::default();
        let (all, each) = (&[1, 3, 2, 4, 2][..], &[1, 3, 2, 4][..]);
        let (one, x) = (&[1, 3, 2, 4, 1][..], build.float(all));
        let [cosine, sine] = [(); 2].map(|()| build.float(&[1, 3, 1, 4]));
        let last = build.value(Value::Int(4));
        let [r, i] = [[4, 0, 1], second].map(|index| {
            let slice = build.slice(x, index, one);
            build.call(Operator::SQUEEZE_COPY_DIM, &[slice, last], each)
        });
        let mut product = |a, b| build.call(Operator::MUL_TENSOR, &[a, b], each);
        let [rc, is, rs, ic] =
            [[r, cosine], [i, sine], [sine, r], [i, cosine]].map(|[a, b]| product(a, b));
        let first = build.call(Operator::SUB_TENSOR, &[rc, is], each);
        let other = build.call(Operator::ADD_TENSOR, &[ic, rs], each);
        let items =
            [first, other].map(|item| build.call(Operator::UNSQUEEZE_COPY, &[item, last], one));
        let out = build.joined(items, all);
        (build, out, r)
    }

    #[test]
    fn neighbour_rotations_are_fused() {
        let (build, out, _) = neighbours([4, 1, 2]);
        assert_eq!(build.operators(&[out]), [Operator::ROTARY]);
    }

    #[test]
    fn other_neighbour_patterns_stay() {
        // Both selections read the same elements, or selected elements have other readers.
        let (build, out, _) = neighbours([4, 0, 1]);
        assert!(!build.operators(&[out]).contains(&Operator::ROTARY));
        let (build, out, first) = neighbours([4, 1, 2]);
        assert!(!build.operators(&[out, first]).contains(&Operator::ROTARY));
        let (mut build, out, first) = neighbours([4, 1, 2]);
        build.graph.nodes.insert(6, Node::new(Operator::UPDATE_CACHE, vec![first, 0, first]));
        assert!(!build.operators(&[out]).contains(&Operator::ROTARY));
    }

    /// Adds a rotation of half-split rows of `size` elements, whose second half starts at `middle`.
    fn halves(size: usize, middle: i64) -> Vec<Operator> {
        let mut build = Build::default();
        let (all, half) = (&[1, 2, 3, size][..], &[1, 2, 3, size / 2][..]);
        let x = build.float(all);
        let [cosine, sine] = [(); 2].map(|()| build.float(&[3, size]));
        // Exporters write `i64::MAX` as the end of a slice that reaches to the end.
        let second = build.slice(x, [3, middle, i64::MAX], half);
        let negative = build.call(Operator::NEG, &[second], half);
        let first = build.slice(x, [-1, 0, middle], half);
        let turned = build.joined([negative, first], all);
        let plain = build.call(Operator::MUL_TENSOR, &[x, cosine], all);
        let turned = build.call(Operator::MUL_TENSOR, &[turned, sine], all);
        let out = build.call(Operator::ADD_TENSOR, &[plain, turned], all);
        build.operators(&[out])
    }

    #[test]
    fn half_split_rotations_are_fused() {
        assert_eq!(halves(8, 4), [Operator::ROTARY]);
        assert!(!halves(8, 3).contains(&Operator::ROTARY));
        assert!(!halves(7, 3).contains(&Operator::ROTARY));
    }
}
