//! Front end for method instructions: converts straight-line instruction runs to graphs.
//!
//! The front end reverses the exporter's memory planning. `out` variants become functional
//! operators again, views become ordinary operators, and each write to a value creates a new value
//! (SSA form). Delegates with known graphs are inlined.

use crate::error::Error;
use crate::front::constants::{ConstantKey, Constants, Copies, key};
use crate::front::delegate::is_readable;
use crate::front::numbers::not_whole;
use crate::front::optional::{Optional, Set};
use crate::front::origins::Origins;
use crate::front::vocabulary::{Access, KernelSemantics, Vocabulary};
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::method::{Instruction, Method, MethodTensor, MethodValue};
use crate::operators::Operator;
use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::slice;
use torchlet_core::{DataMap, Scalar, ScalarType, ShapeDynamism};

/// A straight-line run of a method's instructions, as a graph.
#[derive(Debug, Clone, Default)]
pub struct Run<'p> {
    /// Range of the instructions that the graph replaces.
    pub instructions: Range<usize>,
    /// Graph that computes the same as the instructions.
    ///
    /// The inputs are method values that exist before the run. The outputs, and the new values of
    /// the updates, are the values that may be read outside the run: by other instructions, the
    /// caller, or the next execution.
    pub graph: Graph<'p>,
    /// Maps values of the graph to the method values that they represent.
    ///
    /// Values that overwrite an input have no entry: the graph's updates name the overwritten
    /// value.
    pub origins: BTreeMap<ValueId, usize>,
}

/// Front end that converts the instructions of a method to graphs.
pub struct FrontEnd<'m, 'p> {
    method: &'m Method<'p>,
    /// Graph of each delegate; `None` if unknown.
    delegates: &'m [Option<Graph<'p>>],
    constants: Constants<'p>,
    vocabulary: &'m Vocabulary,
    /// Method values that callers or instructions write.
    set: BTreeSet<usize>,
    /// Scalars that may hold something other than an integer.
    not_whole: BTreeSet<usize>,
    /// Method values that are initially `None`.
    optional: Optional,
    /// Number of references to each method value, from instructions and from the method's outputs.
    mentions: Vec<u32>,
    /// Node ids for calls inside delegates, if these calls get separate ids.
    origins: Option<&'m Origins>,
}

impl<'m, 'p> FrontEnd<'m, 'p> {
    /// Creates a front end for a method, the graphs of its delegates, and the external data that
    /// the method references.
    pub fn new(
        method: &'m Method<'p>,
        delegates: &'m [Option<Graph<'p>>],
        data: &'p [DataMap<'p>],
        vocabulary: &'m Vocabulary,
    ) -> Self {
        let mut front = FrontEnd {
            method,
            delegates,
            constants: Constants { data, copies: Copies::of(slice::from_ref(method)) },
            vocabulary,
            set: method.inputs.iter().copied().collect(),
            not_whole: not_whole(
                method,
                // Graphs read integers only to compute shapes.
                &|delegate| method.delegates.get(delegate).is_some_and(is_readable),
                &|name, overload| vocabulary.meaning(name, overload).is_some(),
            ),
            optional: Optional::of(method, delegates, vocabulary),
            mentions: vec![0; method.values.len()],
            origins: None,
        };
        for instruction in &method.instructions {
            front.mention(instruction.values());
            front.set.extend(front.written(instruction));
        }
        front.mention(method.outputs.iter().copied());
        front
    }

    /// Shares a budget for copied constants with other methods.
    pub(crate) fn within(mut self, copies: &Copies) -> Self {
        self.constants.copies = copies.clone();
        self
    }

    /// Uses these node ids for calls inside delegates.
    pub(crate) fn numbered(mut self, origins: &'m Origins) -> Self {
        self.origins = Some(origins);
        self
    }

    fn mention(&mut self, values: impl Iterator<Item = usize>) {
        for value in values.flat_map(|value| self.method.with_items(value)) {
            if let Some(count) = self.mentions.get_mut(value) {
                *count = count.saturating_add(1);
            }
        }
    }

    /// Returns the values that an instruction writes, as far as is known.
    fn written(&self, instruction: &Instruction) -> Vec<usize> {
        let from = match instruction {
            Instruction::Kernel { name, overload, args } => {
                match self.vocabulary.access(name, overload) {
                    Access::Outputs(first) => first,
                    // The remaining arguments are inputs, or repeat the target.
                    Access::InPlace(target) => {
                        return args.get(target).copied().into_iter().collect();
                    }
                    Access::Unknown => {
                        // Kernels declare the scalars that they write.
                        let first = self.vocabulary.first_number(name, overload);
                        let args = args.iter().copied().enumerate();
                        let args = args.filter(|(at, arg)| *at >= first || !self.is_scalar(*arg));
                        return args.flat_map(|(_, arg)| self.method.with_items(arg)).collect();
                    }
                }
            }
            Instruction::Delegate { delegate, .. } => {
                self.delegate(*delegate).map_or(0, |graph| graph.inputs.len())
            }
            Instruction::Move { to, .. } => return self.method.with_items(*to).collect(),
            Instruction::JumpFalse { .. } | Instruction::Free { .. } => return Vec::new(),
        };
        let written = instruction.values().skip(from);
        written.flat_map(|value| self.method.with_items(value)).collect()
    }

    fn is_scalar(&self, value: usize) -> bool {
        matches!(self.method.values.get(value), Some(MethodValue::Scalar(_)))
    }

    fn delegate(&self, index: usize) -> Option<&'m Graph<'p>> {
        self.delegates.get(index)?.as_ref()
    }

    /// Converts the method's instructions to graphs, one per run. Instructions that a graph cannot
    /// express are left out and separate the runs.
    ///
    /// # Errors
    /// The method is malformed.
    pub fn runs(&self) -> Result<Vec<Run<'p>>, Error> {
        let instructions = &self.method.instructions;
        let destinations: BTreeSet<usize> = instructions
            .iter()
            .filter_map(|instruction| match instruction {
                Instruction::JumpFalse { destination, .. } => Some(*destination),
                _ => None,
            })
            .collect();
        let mut runs = Vec::new();
        let mut start = 0;
        let mut set = Set::new(self.method, self.delegates, self.vocabulary);
        for index in 0..=instructions.len() {
            let is_destination = destinations.contains(&index);
            if is_destination {
                set.ends_run();
            }
            let fits = instructions.get(index).is_some_and(|instruction| {
                self.fits(instruction) && self.optional.are_known(instruction, &set)
            });
            if !fits || is_destination {
                runs.extend(self.run(start..index)?);
                start = if fits { index } else { index + 1 };
            }
            if let Some(instruction) = instructions.get(index) {
                set.passes(instruction, fits);
            }
        }
        Ok(runs)
    }

    /// Whether a graph can express an instruction.
    fn fits(&self, instruction: &Instruction) -> bool {
        let (args, enough) = match instruction {
            Instruction::Kernel { name, overload, args } => {
                let meaning = self.vocabulary.meaning(name, overload);
                let can_be_said = |meaning: KernelSemantics| match (meaning, args.get(1)) {
                    // With a batch size above 1, the indices would have to be pairs.
                    (KernelSemantics::UpdateCacheAt, Some(cache)) => {
                        let tensor = self.method.tensor(*cache);
                        tensor.is_some_and(|tensor| tensor.info.sizes.first() == Some(&1))
                    }
                    _ => true,
                };
                let fits = meaning.is_some_and(|meaning| {
                    args.len() >= meaning.fewest_arguments() && can_be_said(meaning)
                });
                (args, fits)
            }
            Instruction::Delegate { delegate, args } => {
                let graph = self.delegate(*delegate);
                let whole =
                    |graph: &Graph<'_>| graph.inputs.len() + graph.outputs.len() == args.len();
                (args, graph.is_some_and(whole))
            }
            Instruction::Free { .. } => return true,
            Instruction::Move { .. } | Instruction::JumpFalse { .. } => return false,
        };
        // Graphs represent scalars that are written as integers only. Lists are not nested.
        let is_whole =
            |arg: &usize| self.method.with_items(*arg).all(|it| !self.not_whole.contains(&it));
        enough
            && args.iter().all(is_whole)
            && args.iter().all(|arg| match self.method.values.get(*arg) {
                Some(MethodValue::Scalar(Scalar::Int(_))) => true,
                Some(MethodValue::Scalar(_)) => !self.set.contains(arg),
                Some(_) => true,
                None => false,
            })
    }

    /// Builds the graph of a run; `None` if the run only frees memory.
    fn run(&self, instructions: Range<usize>) -> Result<Option<Run<'p>>, Error> {
        let list = self.method.instructions.get(instructions.clone()).unwrap_or_default();
        if !list.iter().any(|instruction| !matches!(instruction, Instruction::Free { .. })) {
            return Ok(None);
        }
        let mut builder = Builder::new(self);
        for (position, instruction) in list.iter().enumerate() {
            builder.number = (instructions.start + position) as u32;
            builder.add(instruction)?;
        }
        Ok(Some(builder.finish(instructions)))
    }
}

/// A graph under construction.
struct Builder<'f, 'm, 'p> {
    front: &'f FrontEnd<'m, 'p>,
    graph: Graph<'p>,
    origins: BTreeMap<ValueId, usize>,
    /// The graph value that currently represents each method value.
    current: BTreeMap<usize, ValueId>,
    /// Graph inputs, by the method value that they read.
    first: BTreeMap<usize, ValueId>,
    /// Method values that the run wrote.
    written: BTreeSet<usize>,
    /// Number of references to each method value from within the run.
    mentions: BTreeMap<usize, u32>,
    /// Values widened from 32-bit integers: narrowing them again is lossless.
    from_narrow: BTreeSet<ValueId>,
    /// Copied constants, by address.
    copied: BTreeMap<ConstantKey, ValueId>,
    /// Id of the current node.
    number: u32,
}

impl<'f, 'm, 'p> Builder<'f, 'm, 'p> {
    fn new(front: &'f FrontEnd<'m, 'p>) -> Self {
        Builder {
            front,
            graph: Graph::default(),
            origins: BTreeMap::new(),
            current: BTreeMap::new(),
            first: BTreeMap::new(),
            written: BTreeSet::new(),
            mentions: BTreeMap::new(),
            from_narrow: BTreeSet::new(),
            copied: BTreeMap::new(),
            number: 0,
        }
    }

    fn push(&mut self, value: Value<'p>) -> ValueId {
        self.graph.values.push(value);
        self.graph.values.len() - 1
    }

    fn call(&mut self, operator: Operator, args: Vec<ValueId>) {
        self.graph.nodes.push(Node { id: self.number, operator, args, parts: Vec::new() });
    }

    /// Returns the graph value that currently represents a method value.
    fn read(&mut self, value: usize) -> Result<ValueId, Error> {
        if let Some(id) = self.current.get(&value) {
            return Ok(*id);
        }
        let front = self.front;
        let is_set = front.set.contains(&value);
        let missing = || {
            Error::Invalid(format!("an instruction refers to value {value}, which does not exist"))
        };
        let read = match front.method.values.get(value).ok_or_else(missing)? {
            MethodValue::None if front.optional.is_number(value) => {
                return Ok(self.number(value, 0));
            }
            MethodValue::None => Value::None,
            MethodValue::Scalar(Scalar::Int(start)) if is_set => {
                return Ok(self.number(value, *start));
            }
            MethodValue::Scalar(Scalar::Int(number)) => Value::Int(*number),
            MethodValue::Scalar(Scalar::Double(number)) => Value::Double(*number),
            MethodValue::Scalar(Scalar::Bool(truth)) => Value::Bool(*truth),
            MethodValue::String(text) => Value::String(text.clone()),
            MethodValue::Doubles(items) => Value::DoubleList(items.clone()),
            MethodValue::Bools(items) => Value::BoolList(items.clone()),
            // List items may be overwritten later, so lists are not cached.
            MethodValue::Ints(items) => match self.known_integers(items) {
                Some(items) => Value::IntList(items),
                None => return self.read_list(items.iter().copied().map(Some)),
            },
            MethodValue::Tensors(items) => return self.read_list(items.iter().copied().map(Some)),
            MethodValue::OptionalTensors(items) => return self.read_list(items.iter().copied()),
            MethodValue::Tensor(tensor) => {
                if tensor.is_constant()
                    && let Some(id) = self.constant(value, tensor)?
                {
                    return Ok(id);
                }
                let id = self.push(Value::Tensor(described(tensor)));
                self.enters(value, id);
                return Ok(id);
            }
        };
        let id = self.push(read);
        self.current.insert(value, id);
        Ok(id)
    }

    /// Adds an integer that others write as a graph input, with its initial value.
    fn number(&mut self, value: usize, start: i64) -> ValueId {
        let id = self.push(Value::SymInt(start));
        self.enters(value, id);
        id
    }

    /// Adds a constant of the method; `None` if its data is not available.
    fn constant(
        &mut self,
        value: usize,
        tensor: &MethodTensor<'p>,
    ) -> Result<Option<ValueId>, Error> {
        let constants = &self.front.constants;
        let Some(bytes) = constants.bytes(tensor)? else { return Ok(None) };
        let place = match bytes {
            Cow::Borrowed(bytes) => key(bytes, &tensor.info),
            Cow::Owned(_) => None,
        };
        let known = place.as_ref().and_then(|place| self.copied.get(place)).copied();
        let id = match known {
            Some(id) => id,
            None => {
                let data = Some(constants.in_order(bytes, &tensor.info)?);
                let id = self.push(Value::Tensor(Tensor { data, ..described(tensor) }));
                self.origins.insert(id, value);
                self.copied.extend(place.map(|place| (place, id)));
                id
            }
        };
        self.current.insert(value, id);
        Ok(Some(id))
    }

    /// Adds a value that exists before the run as a graph input.
    fn enters(&mut self, value: usize, id: ValueId) {
        self.graph.inputs.push(id);
        self.origins.insert(id, value);
        self.first.insert(value, id);
        self.current.insert(value, id);
    }

    fn known_integers(&self, items: &[usize]) -> Option<Vec<i64>> {
        let known = |item: &usize| match self.front.method.values.get(*item) {
            Some(MethodValue::Scalar(Scalar::Int(number))) if !self.front.set.contains(item) => {
                Some(*number)
            }
            _ => None,
        };
        items.iter().map(known).collect()
    }

    fn read_list(&mut self, items: impl Iterator<Item = Option<usize>>) -> Result<ValueId, Error> {
        let mut list = Vec::new();
        for item in items {
            list.push(match item {
                Some(item) => self.read(item)?,
                None => self.push(Value::None),
            });
        }
        Ok(self.push(Value::List(list)))
    }

    /// Adds a new graph value that represents a method value from now on.
    fn result(&mut self, value: usize) -> Result<ValueId, Error> {
        let id = match self.front.method.values.get(value) {
            // State outside the memory plan: `Method::place_state` has not run.
            Some(MethodValue::Tensor(tensor)) if tensor.is_constant() => {
                return Err(Error::unsupported("a write to a constant tensor"));
            }
            Some(MethodValue::Tensor(tensor)) => self.push(Value::Tensor(described(tensor))),
            Some(MethodValue::Scalar(Scalar::Int(number))) => self.push(Value::SymInt(*number)),
            Some(MethodValue::None) => self.push(Value::SymInt(0)),
            Some(MethodValue::Tensors(items)) => {
                let items = items.iter().map(|item| self.result(*item));
                let items = items.collect::<Result<Vec<ValueId>, Error>>()?;
                // A list has no value of its own: readers of the list read its items.
                return Ok(self.push(Value::List(items)));
            }
            _ => {
                return Err(Error::Invalid(format!(
                    "value {value}, written by an instruction: expected a tensor or scalar"
                )));
            }
        };
        self.becomes(value, id);
        Ok(id)
    }

    /// Lets a graph value represent a method value from now on.
    fn becomes(&mut self, value: usize, id: ValueId) {
        let before = self.current.insert(value, id);
        self.written.insert(value);
        if self.first.contains_key(&value) {
            return;
        }
        if let Some(before) = before.filter(|before| self.origins.get(before) == Some(&value)) {
            self.origins.remove(&before);
        }
        self.origins.insert(id, value);
    }

    fn add(&mut self, instruction: &Instruction) -> Result<(), Error> {
        for value in instruction.values().flat_map(|value| self.front.method.with_items(value)) {
            *self.mentions.entry(value).or_default() += 1;
        }
        match instruction {
            Instruction::Kernel { name, overload, args } => {
                let meaning = self.front.vocabulary.meaning(name, overload);
                self.kernel(meaning.ok_or_else(unknown)?, args)
            }
            Instruction::Delegate { delegate, args } => {
                let graph = self.front.delegate(*delegate).ok_or_else(unknown)?;
                self.inline(graph, args)
            }
            Instruction::Free { .. } => Ok(()),
            Instruction::Move { .. } | Instruction::JumpFalse { .. } => Err(unknown()),
        }
    }

    fn kernel(&mut self, meaning: KernelSemantics, args: &[usize]) -> Result<(), Error> {
        match (meaning, args) {
            (KernelSemantics::View, [source, shape, out, ..]) => {
                let (source, shape) = (self.read(*source)?, self.read(*shape)?);
                let out = self.result(*out)?;
                self.call(Operator::VIEW_COPY, vec![source, shape, out]);
            }
            (KernelSemantics::Copy, [target, source, ..]) => {
                let (old, new) = (self.read(*target)?, self.read(*source)?);
                let new = self.converted(new, old);
                // A graph value that already represents another method value is cloned, unless an
                // update copies it at the end.
                if self.first.contains_key(target) || !self.origins.contains_key(&new) {
                    self.becomes(*target, new);
                } else {
                    let result = self.result(*target)?;
                    let none = self.push(Value::None);
                    self.call(Operator::CLONE, vec![new, none, result]);
                }
            }
            (KernelSemantics::InPlace(operator, inputs), [target, ..]) => {
                let mut read = Vec::new();
                for arg in args.iter().take(inputs) {
                    read.push(self.read(*arg)?);
                }
                let new = self.result(*target)?;
                read.push(new);
                self.call(operator, read);
            }
            (KernelSemantics::UpdateCache, [value, cache, start, ..]) => {
                self.update_cache([*value, *cache], *start)?;
            }
            (KernelSemantics::UpdateCacheAt, [value, cache, _, indices, ..]) => {
                let (value, old) = (self.read(*value)?, self.read(*cache)?);
                let (all, indices) = (self.push(Value::None), self.read(*indices)?);
                let positions = self.push(Value::List(vec![all, indices]));
                let (no, new) = (self.push(Value::Bool(false)), self.result(*cache)?);
                self.call(Operator::INDEX_PUT, vec![old, positions, value, no, new]);
            }
            (
                KernelSemantics::UpdateCachesAndAttend,
                [query, key, value, keys, values, start, _, mask, dropout, causal, scale, out, ..],
            ) => {
                self.update_cache([*key, *keys], *start)?;
                self.update_cache([*value, *values], *start)?;
                let args = [query, keys, values, start, mask, dropout, causal, scale];
                let read = args.into_iter().map(|arg| self.read(*arg));
                let mut read = read.collect::<Result<Vec<ValueId>, Error>>()?;
                read.push(self.result(*out)?);
                self.call(Operator::LLAMA_CUSTOM_SDPA, read);
            }
            (KernelSemantics::Functional { operator, inputs, outputs }, args) => {
                let (inputs, results) = args.split_at_checked(inputs).ok_or_else(unknown)?;
                let results = results.get(..outputs).ok_or_else(unknown)?;
                let mut read = Vec::new();
                for (position, arg) in inputs.iter().enumerate() {
                    if position == operator.omitted_arguments().start {
                        for _ in operator.omitted_arguments() {
                            read.push(self.push(Value::None));
                        }
                    }
                    read.push(self.read(*arg)?);
                }
                while read.len() < operator.omitted_arguments().end {
                    read.push(self.push(Value::None));
                }
                let results = results.iter().map(|out| self.result(*out));
                let results = results.collect::<Result<Vec<ValueId>, Error>>()?;
                read.push(match results[..] {
                    [result] => result,
                    _ => self.push(Value::List(results)),
                });
                self.call(operator, read);
            }
            _ => return Err(unknown()),
        }
        Ok(())
    }

    /// Writes a value into a cache, from position `start` on.
    fn update_cache(&mut self, [value, cache]: [usize; 2], start: usize) -> Result<(), Error> {
        let mut args = vec![self.read(value)?, self.read(cache)?, self.read(start)?];
        args.push(self.result(cache)?);
        self.call(Operator::UPDATE_CACHE, args);
        Ok(())
    }

    /// Converts a tensor to the dtype and shape of another.
    fn converted(&mut self, id: ValueId, like: ValueId) -> ValueId {
        let tensor = |id| match self.graph.values.get(id) {
            Some(Value::Tensor(tensor)) => Some(tensor),
            _ => None,
        };
        let (Some(tensor), Some(like_tensor)) = (tensor(id), tensor(like)) else { return id };
        let same = tensor.scalar_type == like_tensor.scalar_type
            && tensor.sizes == like_tensor.sizes
            && !tensor.dynamic
            && !like_tensor.dynamic;
        if same {
            return id;
        }
        let result = Tensor { data: None, ..like_tensor.clone() };
        let flag = self.push(Value::Bool(false));
        let result = self.push(Value::Tensor(result));
        self.call(Operator::COPY, vec![like, id, flag, result]);
        result
    }

    /// Casts a tensor to or from the dtype of a delegate's argument.
    fn cast(&mut self, id: ValueId, scalar_type: ScalarType) -> ValueId {
        let tensor = match self.graph.values.get(id) {
            Some(Value::Tensor(tensor)) if tensor.scalar_type != scalar_type => tensor,
            _ => return id,
        };
        let (from, like) =
            (tensor.scalar_type, Tensor { data: None, changes: None, ..tensor.clone() });
        let result = Tensor { scalar_type, host_type: scalar_type, ..like.clone() };
        let none = self.push(Value::None);
        let id = match (from, scalar_type) {
            (ScalarType::Long, ScalarType::Int) if !self.from_narrow.contains(&id) => {
                self.saturated(id, like)
            }
            _ => id,
        };
        let number = self.push(Value::Int(scalar_type as i64));
        let result = self.push(Value::Tensor(result));
        self.call(Operator::TO_COPY, vec![id, number, none, none, none, none, none, result]);
        if (from, scalar_type) == (ScalarType::Int, ScalarType::Long) {
            self.from_narrow.insert(result);
        }
        result
    }

    /// Clamps to the range of `int32`, as delegates do when they run on their own: an index that is
    /// out of range stays out of range.
    fn saturated(&mut self, id: ValueId, like: Tensor<'p>) -> ValueId {
        let [low, high] = [i32::MIN, i32::MAX].map(|bound| self.push(Value::Int(bound.into())));
        let result = self.push(Value::Tensor(like));
        self.call(Operator::CLAMP, vec![id, low, high, result]);
        result
    }

    /// Inlines the nodes of a delegate's graph. The state of the delegate is among its inputs.
    fn inline(&mut self, graph: &Graph<'p>, args: &[usize]) -> Result<(), Error> {
        let (inputs, outputs) = args.split_at_checked(graph.inputs.len()).ok_or_else(unknown)?;
        let mut ids: BTreeMap<ValueId, ValueId> = BTreeMap::new();
        for (inner, arg) in graph.inputs.iter().zip(inputs) {
            let mut id = self.read(*arg)?;
            if let Some(Value::Tensor(tensor)) = graph.values.get(*inner) {
                id = self.cast(id, tensor.scalar_type);
            }
            ids.insert(*inner, id);
        }
        let next = self.graph.values.len();
        let others = (0..graph.values.len()).filter(|id| !ids.contains_key(id));
        let others: Vec<ValueId> = others.collect();
        for (place, inner) in others.iter().enumerate() {
            ids.insert(*inner, next + place);
        }
        let outer = |inner: &ValueId| ids.get(inner).copied().ok_or_else(unknown);
        for inner in &others {
            let value = match graph.values.get(*inner) {
                Some(Value::List(items)) => {
                    Value::List(items.iter().map(outer).collect::<Result<_, Error>>()?)
                }
                Some(Value::Tensor(tensor)) => {
                    Value::Tensor(Tensor { host_type: tensor.scalar_type, ..tensor.clone() })
                }
                Some(value) => value.clone(),
                None => Value::None,
            };
            self.graph.values.push(value);
        }
        let instruction = self.number;
        for node in &graph.nodes {
            let args = node.args.iter().map(outer).collect::<Result<_, Error>>()?;
            let own = self.front.origins.map(|origins| origins.number(instruction, node.id));
            self.number = own.unwrap_or(instruction);
            self.call(node.operator, args);
        }
        self.number = instruction;
        let made: BTreeSet<ValueId> =
            graph.nodes.iter().filter_map(|node| node.args.last().copied()).collect();
        for (inner, arg) in graph.outputs.iter().zip(outputs) {
            let mut id = outer(inner)?;
            if let Some(tensor) = self.front.method.tensor(*arg) {
                id = self.cast(id, tensor.info.scalar_type);
            }
            // Values that already represent another method value, or that no node computed, are
            // cloned.
            let is_new = made.contains(inner) || id != outer(inner)?;
            if !is_new || self.origins.contains_key(&id) {
                let result = self.result(*arg)?;
                let none = self.push(Value::None);
                self.call(Operator::CLONE, vec![id, none, result]);
            } else {
                self.becomes(*arg, id);
            }
        }
        let given: BTreeMap<ValueId, usize> =
            graph.inputs.iter().copied().zip(inputs.iter().copied()).collect();
        for (new, old) in &graph.updates {
            self.becomes(*given.get(old).ok_or_else(unknown)?, outer(new)?);
        }
        Ok(())
    }

    /// Makes values with outside readers outputs, and turns writes to inputs into updates.
    fn finish(mut self, instructions: Range<usize>) -> Run<'p> {
        for value in &self.written {
            let Some(id) = self.current.get(value).copied() else { continue };
            if let Some(first) = self.first.get(value) {
                if *first != id {
                    self.graph.updates.push((id, *first));
                }
                continue;
            }
            let inside = self.mentions.get(value).copied().unwrap_or(0);
            if self.front.mentions.get(*value).is_some_and(|all| *all > inside) {
                self.graph.outputs.push(id);
            }
        }
        Run { instructions, graph: self.graph, origins: self.origins }
    }
}

fn unknown() -> Error {
    Error::invalid("internal error: a run contains an instruction without a graph form")
}

/// Describes a tensor of a method, without its data.
fn described<'p>(tensor: &MethodTensor<'_>) -> Tensor<'p> {
    Tensor {
        scalar_type: tensor.info.scalar_type,
        host_type: tensor.info.scalar_type,
        sizes: (0..tensor.info.rank()).map(|dim| tensor.info.size(dim)).collect(),
        dynamic: tensor.dynamism != ShapeDynamism::Static,
        data: None,
        changes: None,
    }
}

#[cfg(test)]
mod tests;
