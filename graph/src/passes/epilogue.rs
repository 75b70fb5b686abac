//! Fuses epilogues into matrix multiplications and convolutions: the addition of a tensor, then an
//! activation. The fused call is `torchlet.epilogue`.
//!
//! Needs: the fused forms of the processor, and a graph in which each value is produced once,
//! before its uses. Keeps: results that other calls read, and views between the calls; the fused
//! result is replaced by a view of the contraction's result. Rounding: none between the fused
//! calls.

use super::uses::{Uses, has_unique_producers, inputs};
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::{AddArgs, Operator};
use crate::target::FusedForms;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Maximum number of views between a contraction and its epilogue.
const MAX_VIEWS: usize = 16;

/// Fuses the epilogues that a processor supports, according to `forms`. Returns the number of fused
/// calls.
pub fn run(graph: &mut Graph<'_>, forms: &dyn FusedForms) -> usize {
    if !has_unique_producers(graph) {
        return 0;
    }
    let uses = Uses::of(graph);
    let nodes = core::mem::take(&mut graph.nodes);
    let mut pass = Pass { graph, forms, fused: Vec::new(), made: BTreeMap::new(), count: 0 };
    let mut results: BTreeMap<ValueId, Contraction> = BTreeMap::new();
    for node in nodes {
        if node.operator.traits().writes_arguments() {
            // Later fusions must not move reads past this write.
            results.clear();
        }
        let Some(out) = node.args.last().copied() else {
            pass.push(node);
            continue;
        };
        let mut read = pass.operands(&node).into_iter().filter(|id| uses.count_of(*id) == 1);
        let joined = read.find_map(|id| {
            let contraction = results.get(&id)?;
            Some((id, contraction.clone(), pass.join(contraction, &node, id)?))
        });
        let contraction = match joined {
            Some((id, contraction, call)) => {
                pass.count += 1;
                Some(pass.fuse(contraction, call, (id, out, node.id)))
            }
            None => {
                let contraction = pass.contraction(&results, &uses, &node);
                pass.push(node);
                contraction
            }
        };
        results.extend(contraction.map(|contraction| (out, contraction)));
    }
    let Pass { fused, count, .. } = pass;
    graph.nodes = fused.into_iter().flatten().collect();
    count
}

/// A call that can be extended by an epilogue, and the views of its result.
#[derive(Clone)]
struct Contraction {
    /// Indices of the call and of the views.
    calls: Vec<usize>,
    /// Whether the views keep the order of the elements.
    in_order: bool,
}

struct Pass<'g, 'p> {
    graph: &'g Graph<'p>,
    forms: &'g dyn FusedForms,
    /// The calls so far. Calls that moved leave `None`.
    fused: Vec<Option<Node>>,
    /// For each result, the index of its call.
    made: BTreeMap<ValueId, usize>,
    count: usize,
}

impl Pass<'_, '_> {
    fn push(&mut self, node: Node) {
        for id in node.args.last().map_or(&[][..], |out| self.graph.items(out)) {
            self.made.insert(*id, self.fused.len());
        }
        self.fused.push(Some(node));
    }

    fn floats(&self, id: ValueId) -> Option<&Tensor<'_>> {
        self.graph.tensor(id).filter(|tensor| tensor.scalar_type.is_floating())
    }

    /// Returns the contraction whose result a call produces, directly or as a view of it.
    fn contraction(
        &self,
        results: &BTreeMap<ValueId, Contraction>,
        uses: &Uses,
        node: &Node,
    ) -> Option<Contraction> {
        let index = self.fused.len();
        if self.forms.has_epilogue(self.graph, node) {
            return Some(Contraction { calls: vec![index], in_order: true });
        }
        let (input, out) = (*node.args.first()?, *node.args.last()?);
        let in_order = node.operator.traits().is_view;
        if !in_order && !self.forms.is_view(node.operator) {
            return None;
        }
        let producer = results.get(&input).filter(|_| uses.count_of(input) == 1)?;
        if producer.calls.len() > MAX_VIEWS {
            return None;
        }
        let [given, viewed] = [input, out].map(|id| self.graph.tensor(id));
        (given?.scalar_type == viewed?.scalar_type).then(|| Contraction {
            calls: producer.calls.iter().copied().chain([index]).collect(),
            in_order: producer.in_order && in_order,
        })
    }

    /// Returns the tensors that a call may add or apply an activation to; at most three, which are
    /// too many. Calls in malformed files may have any number of arguments.
    fn operands(&self, node: &Node) -> Vec<ValueId> {
        let is_epilogue =
            node.operator == Operator::ADD_TENSOR || self.forms.is_activation(self.graph, node);
        let is_tensor = |id: &&ValueId| self.graph.tensor(**id).is_some();
        let operands = inputs(node).iter().filter(|_| is_epilogue).filter(is_tensor);
        operands.copied().take(3).collect()
    }

    /// Returns the contraction with `node`, which reads `result`, appended to its epilogue.
    fn join(&self, contraction: &Contraction, node: &Node, result: ValueId) -> Option<Node> {
        let index = *contraction.calls.first()?;
        let call = self.fused.get(index)?.as_ref()?;
        let out = *node.args.last()?;
        let [between, after] = [self.graph.tensor(result)?, self.graph.tensor(out)?];
        if between.sizes != after.sizes || between.scalar_type != after.scalar_type {
            return None;
        }
        let parts = match call.parts.as_slice() {
            [] => vec![call.clone()],
            parts => parts.to_vec(),
        };
        let is_sum = |part: &Node| part.operator == Operator::ADD_TENSOR;
        let mut epilogue = parts.iter().skip(1);
        let (own, inputs) = call.args.split_last()?;
        let mut args = inputs.to_vec();
        match self.operands(node)[..] {
            // An activation comes last.
            [_] if !is_sum(node) && epilogue.all(is_sum) => {}
            [a, b] if is_sum(node) && a != b && epilogue.next().is_none() => {
                let alpha = AddArgs::of(node).ok()?.alpha;
                let other = if a == result { b } else { a };
                // Leading dims of size one are irrelevant.
                let own = |sizes: &[usize]| -> Vec<usize> {
                    sizes.iter().copied().skip_while(|size| *size == 1).collect()
                };
                let addend = self.floats(other).filter(|_| self.floats(result).is_some())?;
                let is_there = self.forms.moves_contractions()
                    || self.made.get(&other).is_none_or(|made| *made < index);
                if !alpha.is_none_or(|alpha| is_one(self.graph, alpha))
                    || own(&addend.sizes) != own(&after.sizes)
                    || !contraction.in_order
                    || !is_there
                {
                    return None;
                }
                args.push(other);
            }
            _ => return None,
        }
        args.push(*own);
        let parts = parts.into_iter().chain([node.clone()]).collect();
        Some(Node { id: node.id, operator: Operator::EPILOGUE, args, parts })
    }

    /// Replaces a contraction by the fused call, and the fused result by a view.
    fn fuse(
        &mut self,
        contraction: Contraction,
        call: Node,
        (read, out, id): (ValueId, ValueId, u32),
    ) -> Contraction {
        let Contraction { mut calls, in_order } = contraction;
        if self.forms.moves_contractions() {
            // All of them move to the index of the fused call, since it may read values produced in
            // between.
            let fused = &mut self.fused;
            let moved: Vec<Node> =
                calls.iter().filter_map(|index| fused.get_mut(*index)?.take()).collect();
            calls = (self.fused.len()..self.fused.len() + moved.len()).collect();
            moved.into_iter().for_each(|node| self.push(node));
        }
        if let Some(slot) = calls.first().and_then(|first| self.fused.get_mut(*first)) {
            *slot = Some(call);
        }
        calls.push(self.fused.len());
        let args = vec![read, out];
        self.push(Node { id, operator: Operator::ALIAS_COPY, args, parts: Vec::new() });
        Contraction { calls, in_order }
    }
}

/// Whether the factor of a sum is absent or one.
pub fn is_one(graph: &Graph<'_>, factor: ValueId) -> bool {
    match graph.values.get(factor) {
        Some(Value::None | Value::Int(1)) => true,
        Some(Value::Double(factor)) => *factor == 1.0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::text::{operators, parse};
    use crate::passes::verify;

    /// Linear layers with residuals and ReLU.
    struct Forms {
        moves: bool,
    }

    impl FusedForms for Forms {
        fn has_epilogue(&self, _: &Graph<'_>, contraction: &Node) -> bool {
            contraction.operator == Operator::LINEAR
        }

        fn is_activation(&self, _: &Graph<'_>, node: &Node) -> bool {
            node.operator == Operator::RELU
        }

        fn is_view(&self, operator: Operator) -> bool {
            operator == Operator::PERMUTE_COPY
        }

        fn moves_contractions(&self) -> bool {
            self.moves
        }
    }

    const VALUES: &str = "in x f32[4,4]
        const w f32[4,4] = 0.5
        const one f32[] = 1
        ";

    /// Returns the titles of the calls after fusion.
    fn fused(text: &str, moves: bool) -> Vec<alloc::string::String> {
        let mut graph = parse(&alloc::format!("{VALUES}{text}"));
        run(&mut graph, &Forms { moves });
        verify::verify(&graph).unwrap();
        graph.nodes.iter().map(Node::title).collect()
    }

    const LAYER: &str = "aten.linear.default + aten.add.Tensor + aten.relu.default";
    const VIEW: &str = "aten.alias_copy.default";

    #[test]
    fn sums_and_activations_become_epilogues() {
        let text = "r f32[4,4] = aten.neg.default(x)
            a f32[4,4] = aten.linear.default(x, w, none)
            s f32[4,4] = aten.add.Tensor(a, r, 1)
            y f32[4,4] = aten.relu.default(s)
            out y";
        for moves in [false, true] {
            assert_eq!(fused(text, moves), ["aten.neg.default", LAYER, VIEW, VIEW]);
        }
    }

    #[test]
    fn contractions_that_stay_add_only_earlier_tensors() {
        let text = "a f32[4,4] = aten.linear.default(x, w, none)
            r f32[4,4] = aten.neg.default(x)
            s f32[4,4] = aten.add.Tensor(a, r, 1)
            y f32[4,4] = aten.relu.default(s)
            out y";
        assert_eq!(fused(text, true), ["aten.neg.default", LAYER, VIEW, VIEW]);
        assert_eq!(fused(text, false).len(), 4);
        // Of two, the later one adds.
        let text = "a f32[4,4] = aten.linear.default(x, w, none)
            b f32[4,4] = aten.linear.default(x, w, none)
            y f32[4,4] = aten.add.Tensor(a, b, 1)
            out y";
        let later = "aten.linear.default + aten.add.Tensor";
        assert_eq!(fused(text, false), ["aten.linear.default", later, VIEW]);
    }

    #[test]
    fn only_activations_are_fused_through_permutations() {
        let text = "a f32[4,4] = aten.linear.default(x, w, none)
            p f32[4,4] = aten.permute_copy.default(a, [1, 0])
            y f32[4,4] = aten.relu.default(p)
            out y";
        let layer = "aten.linear.default + aten.relu.default";
        assert_eq!(fused(text, false), [layer, "aten.permute_copy.default", VIEW]);
        let sum = text.replace("aten.relu.default(p)", "aten.add.Tensor(p, x, 1)");
        assert_eq!(fused(&sum, false).len(), 3);
    }

    /// Only floats are added, and malformed calls with many operands are skipped.
    #[test]
    fn sums_of_integers_and_of_many_operands_stay() {
        let integers = "const i i8[4,4] = 1
            const v i8[4,4] = 1
            a i8[4,4] = aten.linear.default(i, v, none)
            s i8[4,4] = aten.add.Tensor(a, x, 1)
            out s";
        let many = "a f32[4,4] = aten.linear.default(x, w, none)
            b f32[4,4] = aten.linear.default(x, w, none)
            c f32[4,4] = aten.linear.default(x, w, none)
            y f32[4,4] = aten.relu.default(a, b, c)
            out y";
        for text in [integers, many] {
            let mut graph = parse(&alloc::format!("{VALUES}{text}"));
            assert_eq!(run(&mut graph, &Forms { moves: false }), 0);
        }
    }

    #[test]
    fn other_sums_stay() {
        let text = "a f32[4,4] = aten.linear.default(x, w, none)
            y f32[4,4] = aten.add.Tensor(a, x, 1)
            out y";
        let kept = |text: &str| {
            let mut graph = parse(&alloc::format!("{VALUES}{text}"));
            run(&mut graph, &Forms { moves: true });
            operators(&graph).contains(&"aten.add.Tensor")
        };
        assert!(!kept(text));
        assert!(kept(&text.replace("(a, x, 1)", "(a, x, 2)")), "a factor");
        assert!(kept(&text.replace("(a, x, 1)", "(a, a, 1)")), "twice the same");
        assert!(kept(&text.replace("(a, x, 1)", "(a, one, 1)")), "broadcast");
        assert!(kept(&text.replace("out y", "out y a")), "another reader");
    }
}
