//! Calls that share memory with their arguments or overwrite them.

use super::aliases::{AliasId, PARTS, View};
use super::nodes::{names, unsupported};
use super::schema::{Argument, Graph as Source, KEYWORD, NamedArgument, Node as Call};
use super::translator::{Named, Translator};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::lower::portable::narrow_end;
use crate::operators::Operator;
use crate::operators::views::split_dim;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::rules::normalize_dim;

impl<'j, 'p> Translator<'j, 'p> {
    /// A call that overwrites the tensors that are passed for its outputs.
    pub(super) fn out_variant(
        &mut self,
        source: &'j Source<'j>,
        call: &'j Call<'j>,
        operator: Operator,
    ) -> Result<(), Error> {
        let is_out = |input: &&NamedArgument<'j>| {
            let mut parameters = operator.parameters().iter();
            matches!(input.arg, Argument::Tensor(_))
                && input.kind.is_none_or(|kind| kind == KEYWORD)
                && parameters.all(|parameter| parameter.name != input.name)
                && input.name != "self"
        };
        let (outs, inputs): (Vec<_>, Vec<_>) = call.inputs.iter().partition(is_out);
        let out = self.output_type(source, call);
        let (operator, args) = self.assigned(operator, inputs, out)?;
        let results = self.results(source, call)?;
        if results.len() != outs.len() {
            return Err(unsupported());
        }
        let made: Vec<ValueId> = results.iter().map(|(_, value)| *value).collect();
        let out = match made[..] {
            [one] => one,
            _ => self.push(Value::List(made)),
        };
        self.call(operator, &args, out);
        for ((name, value), target) in results.into_iter().zip(outs) {
            let Some(own) = names(&target.arg).first().copied() else { continue };
            let Named::Tensor(alias) = self.lookup(own)? else { return Err(unsupported()) };
            let before = self.tensor(own)?;
            let sizes = |id: ValueId| self.graph.tensor(id).map(|it| &it.sizes);
            if sizes(before) != sizes(value) {
                return Err(Error::unsupported("an output argument of another shape"));
            }
            self.aliases.write(&mut self.graph, alias, value)?;
            self.names.extend(name.map(|name| (name, Named::Tensor(alias))));
        }
        Ok(())
    }

    /// How each output of a view operator is computed on its own.
    pub(super) fn views(
        &mut self,
        operator: Operator,
        args: &[ValueId],
        made: &[ValueId],
    ) -> Vec<View> {
        let rest: Vec<ValueId> = args.iter().skip(1).copied().collect();
        let input = args.first().and_then(|input| self.graph.tensor(*input));
        let dim = match split_dim(operator, input.map_or(0, |input| input.sizes.len())) {
            Some(dim) => self.push(Value::Int(dim as i64)),
            None => rest.last().copied().unwrap_or_default(),
        };
        match operator {
            Operator::UNBIND_COPY_INT => (0..made.len() as i64)
                .map(|index| {
                    let index = self.push(Value::Int(index));
                    View { operator: Operator::SELECT_COPY_INT, rest: vec![dim, index] }
                })
                .collect(),
            // The indices may decrease, so parts may overlap.
            Operator::TENSOR_SPLIT_INDICES => {
                let indices = match rest.first().and_then(|id| self.graph.values.get(*id)) {
                    Some(Value::IntList(indices)) => indices.clone(),
                    _ => return Vec::new(),
                };
                let starts = core::iter::once(0).chain(indices.iter().copied());
                let ends = indices.iter().copied().chain([i64::MAX]);
                let bounds: Vec<(i64, i64)> = starts.zip(ends).collect();
                bounds.into_iter().map(|(start, end)| self.slice(dim, start, end)).collect()
            }
            _ if PARTS.contains(&operator)
                && made.iter().all(|id| self.graph.tensor(*id).is_some_and(|it| !it.dynamic)) =>
            {
                let sizes = |id: &ValueId| self.graph.tensor(*id).map(|it| it.sizes.as_slice());
                let rank = made.first().and_then(sizes).map_or(0, <[usize]>::len);
                let at = match self.graph.values.get(dim) {
                    Some(Value::Int(dim)) => normalize_dim(*dim, rank).unwrap_or(0),
                    _ => 0,
                };
                let size = |id: &ValueId| sizes(id).and_then(|it| it.get(at)).copied().unwrap_or(0);
                let sizes: Vec<usize> = made.iter().map(size).collect();
                let mut start = 0usize;
                let mut views = Vec::with_capacity(made.len());
                for size in sizes {
                    let end = start.saturating_add(size);
                    views.push(self.slice(dim, start as i64, end as i64));
                    start = end;
                }
                views
            }
            Operator::NARROW => match (rest.first(), rest.get(1), rest.get(2)) {
                (Some(dim), Some(start), Some(length)) => {
                    let end = self.end(*start, *length);
                    let one = self.push(Value::Int(1));
                    let rest = vec![*dim, *start, end, one];
                    vec![View { operator: Operator::SLICE_COPY_TENSOR, rest }]
                }
                _ => Vec::new(),
            },
            _ => made.iter().map(|_| View { operator, rest: rest.clone() }).collect(),
        }
    }

    fn slice(&mut self, dim: ValueId, start: i64, end: i64) -> View {
        let bounds = [start, end, 1].map(|bound| self.push(Value::Int(bound)));
        View { operator: Operator::SLICE_COPY_TENSOR, rest: [&[dim], &bounds[..]].concat() }
    }

    /// The end of a part of a dim.
    fn end(&mut self, start: ValueId, length: ValueId) -> ValueId {
        let int = |id: ValueId| match self.graph.values.get(id) {
            Some(Value::Int(number)) => Some(*number),
            _ => None,
        };
        match (int(start), int(length)) {
            (Some(start), Some(length)) => self.push(Value::Int(narrow_end(start, length))),
            _ => {
                let end = self.push(Value::SymInt(0));
                self.call(Operator::SYM_ADD, &[start, length], end);
                end
            }
        }
    }

    /// A call that overwrites its first argument.
    pub(super) fn in_place(
        &mut self,
        source: &'j Source<'j>,
        call: &'j Call<'j>,
        (operator, args): (Operator, Vec<ValueId>),
        alias: AliasId,
        own: &str,
    ) -> Result<(), Error> {
        let out = self.described(&source.tensor_values, own)?;
        self.call(operator, &args, out);
        self.aliases.write(&mut self.graph, alias, out)?;
        for name in call.outputs.iter().flat_map(|output| names(output)) {
            self.names.insert(name, Named::Tensor(alias));
        }
        Ok(())
    }
}
