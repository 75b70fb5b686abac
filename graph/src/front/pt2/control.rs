//! Calls with subgraphs: `torch.cond`, `while_loop`, `map` and `scan`.

use super::flow::Event;
use super::nodes::{names, unsupported};
use super::schema::{Argument, Graph as Source, NamedArgument, Node as Call, SymIntArgument};
use super::translator::{Named, Translator};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::Operator;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

impl<'j, 'p> Translator<'j, 'p> {
    /// Converts a call with subgraphs. Returns `None` for other calls.
    ///
    /// # Errors
    /// The call is malformed, or a subgraph overwrites its operands.
    pub(super) fn control_flow(
        &mut self,
        source: &'j Source<'j>,
        name: &str,
        call: &'j Call<'j>,
    ) -> Result<Option<()>, Error> {
        match name {
            "higher_order.cond" => self.cond(source, call)?,
            "higher_order.while_loop" => self.while_loop(source, call)?,
            // A map is a scan that carries nothing.
            "higher_order.map_impl" => {
                let [body, xs, rest] = &call.inputs[..] else { return Err(unsupported()) };
                self.scan(source, call, subgraph(body)?, [None, Some(xs), Some(rest)])?;
            }
            "higher_order.scan" => {
                let [body, init, xs, rest] = &call.inputs[..] else { return Err(unsupported()) };
                self.scan(source, call, subgraph(body)?, [Some(init), Some(xs), Some(rest)])?;
            }
            _ => return Ok(None),
        }
        Ok(Some(()))
    }

    fn cond(&mut self, source: &'j Source<'j>, call: &'j Call<'j>) -> Result<(), Error> {
        let [predicate, yes, no, operands] = &call.inputs[..] else { return Err(unsupported()) };
        let operands = self.operands(operands)?;
        let condition = match &predicate.arg {
            Argument::Tensor(tensor) => self.tensor(&tensor.name)?,
            other => self
                .truth(other)
                .ok_or_else(|| Error::Unsupported(format!("{} as the predicate", other.kind())))?,
        };
        let results = self.results(source, call)?;
        let outs: Vec<ValueId> = results.iter().map(|(_, value)| *value).collect();
        let (otherwise, end) = (self.flow.label(), self.flow.label());
        self.event(Event::JumpFalse { condition, to: otherwise });
        for (branch, is_last) in [(yes, false), (no, true)] {
            let made = self.subgraph(subgraph(branch)?, &operands)?;
            self.copy_all(&made, &outs)?;
            if !is_last {
                self.event(Event::Jump(end));
                self.event(Event::Label(otherwise));
            }
        }
        self.event(Event::Label(end));
        results.into_iter().for_each(|(name, value)| self.name(name, value));
        Ok(())
    }

    fn while_loop(&mut self, source: &'j Source<'j>, call: &'j Call<'j>) -> Result<(), Error> {
        let [condition, body, carried, rest] = &call.inputs[..] else { return Err(unsupported()) };
        let (condition, body) = (subgraph(condition)?, subgraph(body)?);
        let (initial, rest) = (self.operands(carried)?, self.operands(rest)?);
        let results = self.results(source, call)?;
        let carried: Vec<ValueId> = results.iter().map(|(_, value)| *value).collect();
        self.copy_all(&initial, &carried)?;
        let operands = [&carried[..], &rest[..]].concat();
        let (start, end) = (self.flow.label(), self.flow.label());
        self.event(Event::Label(start));
        let made = self.subgraph(condition, &operands)?;
        let [condition] = made[..] else {
            return Err(Error::invalid("the condition of a loop: expected one output"));
        };
        self.event(Event::JumpFalse { condition, to: end });
        let made = self.subgraph(body, &operands)?;
        self.carry(&made, &carried)?;
        self.event(Event::Jump(start));
        self.event(Event::Label(end));
        results.into_iter().for_each(|(name, value)| self.name(name, value));
        Ok(())
    }

    /// A loop over the first dim of tensors. The operands are the initial carried tensors, the
    /// tensors, and further operands of the body.
    fn scan(
        &mut self,
        source: &'j Source<'j>,
        call: &'j Call<'j>,
        body: &'j Source<'j>,
        operands: [Option<&'j NamedArgument<'j>>; 3],
    ) -> Result<(), Error> {
        let mut values = Vec::with_capacity(operands.len());
        for operand in operands {
            values.push(operand.map_or(Ok(Vec::new()), |operand| self.operands(operand))?);
        }
        let [initial, xs, rest] = &values[..] else { return Err(unsupported()) };
        let Some(first) = xs.first().copied() else { return Err(unsupported()) };
        let results = self.results(source, call)?;
        let outs: Vec<ValueId> = results.iter().map(|(_, value)| *value).collect();
        let (carried, stacked) = outs.split_at_checked(initial.len()).ok_or_else(outputs_differ)?;
        self.copy_all(initial, carried)?;
        // A tensor that grows with each iteration.
        let parts: Vec<ValueId> = stacked.iter().map(|out| self.growing(*out)).collect();

        let (zero, none) = (self.push(Value::Int(0)), self.push(Value::None));
        let count = self.first_size(first, zero)?;
        for part in &parts {
            self.start_with(count, zero, *part)?;
        }
        let counter = self.push(Value::SymInt(0));
        self.event(Event::Copy { from: zero, to: counter, none });
        let (start, end) = (self.flow.label(), self.flow.label());
        self.event(Event::Label(start));
        self.event(Event::JumpAtEnd { counter, count, to: end });
        let mut operands = carried.to_vec();
        for x in xs {
            operands.push(self.item(*x, zero, counter)?);
        }
        operands.extend(rest);
        let made = self.subgraph(body, &operands)?;
        let (next, items) = made.split_at_checked(carried.len()).ok_or_else(outputs_differ)?;
        if items.len() != stacked.len() {
            return Err(outputs_differ());
        }
        for (from, to) in items.iter().zip(&parts) {
            self.event(Event::Store { from: *from, to: *to, index: counter });
        }
        self.carry(next, carried)?;
        self.event(Event::Count(counter));
        self.event(Event::Jump(start));
        self.event(Event::Label(end));
        self.copy_all(&parts, stacked)?;
        results.into_iter().for_each(|(name, value)| self.name(name, value));
        Ok(())
    }

    /// Adds a dynamic tensor with the dtype and bounds of another.
    fn growing(&mut self, id: ValueId) -> ValueId {
        let new = super::aliases::like(&mut self.graph, id);
        if let Some(Value::Tensor(tensor)) = self.graph.values.get_mut(new) {
            tensor.dynamic = true;
        }
        new
    }

    /// The size of the first dim of a tensor.
    fn first_size(&mut self, id: ValueId, zero: ValueId) -> Result<ValueId, Error> {
        let tensor = self.graph.tensor(id).ok_or_else(unsupported)?;
        let size = *tensor.sizes.first().ok_or_else(unsupported)?;
        let size = i64::try_from(size).map_err(|_| unsupported())?;
        if !tensor.dynamic {
            return Ok(self.push(Value::Int(size)));
        }
        let out = self.push(Value::SymInt(size));
        self.call(Operator::SYM_SIZE_INT, &[id, zero], out);
        Ok(out)
    }

    /// Gives a tensor its first shape, in case that a loop with a dynamic number of iterations has
    /// none: `count` rows.
    fn start_with(&mut self, count: ValueId, zero: ValueId, part: ValueId) -> Result<(), Error> {
        if matches!(self.graph.values.get(count), Some(Value::Int(_))) {
            return Ok(());
        }
        let rows = self.growing(part);
        let sizes = self.graph.tensor(part).map(|tensor| tensor.sizes.clone());
        let mut list = vec![count];
        for size in sizes.unwrap_or_default().into_iter().skip(1) {
            list.push(self.push(Value::Int(size as i64)));
        }
        let (list, none) = (self.push(Value::List(list)), self.push(Value::None));
        self.next();
        self.call(Operator::FULL, &[list, zero, none, none, none, none], rows);
        self.copy_all(&[rows], &[part])
    }

    /// The part of a tensor at an index of the first dim.
    fn item(&mut self, id: ValueId, zero: ValueId, index: ValueId) -> Result<ValueId, Error> {
        let out = super::aliases::like(&mut self.graph, id);
        match self.graph.values.get_mut(out) {
            Some(Value::Tensor(tensor)) if !tensor.sizes.is_empty() => tensor.sizes.remove(0),
            _ => return Err(unsupported()),
        };
        self.call(Operator::SELECT_COPY_INT, &[id, zero, index], out);
        Ok(out)
    }

    /// The values of the tensors and integers in an argument.
    fn operands(&mut self, argument: &'j NamedArgument<'j>) -> Result<Vec<ValueId>, Error> {
        match &argument.arg {
            // Integers beside tensors are written like tensors.
            Argument::Tensors(operands) => {
                operands.iter().map(|operand| self.value(&operand.name)).collect()
            }
            Argument::SymInts(operands) => {
                let operand = |operand: &'j SymIntArgument<'j>| match operand {
                    SymIntArgument::Int(number) => Ok(self.push(Value::Int(*number))),
                    SymIntArgument::Name(name) => self.number(name),
                };
                operands.iter().map(operand).collect()
            }
            other => {
                let kind = other.kind();
                Err(Error::Unsupported(format!("{kind} as operands of a subgraph")))
            }
        }
    }

    /// The current value of a tensor or an integer.
    fn value(&mut self, name: &str) -> Result<ValueId, Error> {
        match self.names.get(name) {
            Some(Named::Number(value)) => Ok(*value),
            _ => self.tensor(name),
        }
    }

    /// Converts the calls of a subgraph. Returns the values of its outputs.
    fn subgraph(
        &mut self,
        inner: &'j Source<'j>,
        operands: &[ValueId],
    ) -> Result<Vec<ValueId>, Error> {
        let inputs: Vec<&'j str> = inner.inputs.iter().flat_map(names).collect();
        if inputs.len() != operands.len() {
            return Err(Error::Invalid(format!(
                "a subgraph: expected {} operands, found {}",
                inputs.len(),
                operands.len()
            )));
        }
        let mut own = BTreeMap::new();
        let mut aliases = Vec::with_capacity(operands.len());
        for (name, value) in inputs.into_iter().zip(operands) {
            let named = match self.graph.tensor(*value) {
                Some(_) => Named::Tensor(self.aliases.add(*value)),
                None => Named::Number(*value),
            };
            if let Named::Tensor(alias) = named {
                aliases.push(alias);
            }
            own.insert(name, named);
        }
        self.next();
        let outer = core::mem::replace(&mut self.names, own);
        let made = self.calls(inner).and_then(|()| {
            let outputs = inner.outputs.iter().map(|output| match self.truth(output) {
                Some(number) => Ok(vec![number]),
                None => names(output).into_iter().map(|name| self.tensor(name)).collect(),
            });
            Ok(outputs.collect::<Result<Vec<Vec<ValueId>>, Error>>()?.concat())
        });
        self.names = outer;
        if aliases.into_iter().any(|alias| self.aliases.is_written(alias)) {
            return Err(Error::unsupported("a subgraph that overwrites its operands"));
        }
        made
    }

    fn copy_all(&mut self, from: &[ValueId], to: &[ValueId]) -> Result<(), Error> {
        if from.len() != to.len() {
            return Err(outputs_differ());
        }
        let none = self.push(Value::None);
        for (from, to) in from.iter().zip(to) {
            if from != to {
                self.event(Event::Copy { from: *from, to: *to, none });
            }
        }
        Ok(())
    }

    /// Copies the results of an iteration to the carried tensors. Results that are carried tensors
    /// themselves are read before any is overwritten.
    fn carry(&mut self, made: &[ValueId], carried: &[ValueId]) -> Result<(), Error> {
        let mut from = made.to_vec();
        let overwritten: BTreeSet<ValueId> = carried.iter().copied().collect();
        let none = self.push(Value::None);
        for (from, to) in from.iter_mut().zip(carried) {
            if *from == *to || !overwritten.contains(from) {
                continue;
            }
            if self.graph.tensor(*from).is_some() {
                let copy = super::aliases::like(&mut self.graph, *from);
                self.next();
                self.call(Operator::CLONE, &[*from, none], copy);
                *from = copy;
            } else {
                let copy = self.push(Value::SymInt(0));
                self.event(Event::Copy { from: *from, to: copy, none });
                *from = copy;
            }
        }
        self.copy_all(&from, carried)
    }

    fn event(&mut self, event: Event) {
        self.next();
        self.flow.add(self.number, event);
        self.next();
    }
}

fn subgraph<'j>(argument: &'j NamedArgument<'j>) -> Result<&'j Source<'j>, Error> {
    match &argument.arg {
        Argument::Graph(inner) => Ok(&inner.graph),
        other => Err(Error::Invalid(format!(
            "expected a subgraph as an argument, found {}",
            other.kind()
        ))),
    }
}

fn outputs_differ() -> Error {
    Error::invalid("the outputs of a subgraph and of its call differ in number")
}
