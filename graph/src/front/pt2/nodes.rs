//! Calls of a program, converted to a graph of functional operators.

use super::bind::{STRIDED, assign, is_scalar, with_scalar};
use super::schema::{
    Argument, Graph as Source, Hint, Name, NamedArgument, Node as Call, OptionalTensor, SymExpr,
    SymInt, SymIntArgument, TensorMeta, Text,
};
use super::signature::Translated;
use super::translator::{Named, Translator};
use super::weights::scalar_type;
use crate::error::Error;
use crate::graph::{Node, Tensor, Value, ValueId};
use crate::operators::Operator;
use crate::operators::aten::{self, Memory};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use torchlet_core::ScalarType;
use torchlet_core::layout::MAX_RANK;

/// Shapes and dtypes of a program or subgraph.
type Metas<'a, 'j> = &'a BTreeMap<Text<'j>, TensorMeta<'j>>;

impl<'j, 'p> Translator<'j, 'p> {
    /// Converts the program.
    ///
    /// # Errors
    /// The program is malformed, or has unsupported calls; the message lists all of them.
    pub(super) fn translate(mut self) -> Result<Translated<'p>, Error> {
        let module = &self.program.graph_module;
        let buffers = self.inputs()?;
        self.guards()?;
        self.calls(&module.graph)?;
        for (call, tensor, before) in &self.sharing {
            if self.aliases.writes(*tensor) != *before {
                self.unsupported.insert(format!(
                    "{call}: a later write to an argument or a result, which share memory"
                ));
            }
        }
        if !self.unsupported.is_empty() {
            let list: Vec<String> = self.unsupported.into_iter().collect();
            return Err(Error::Unsupported(list.join("; ")));
        }
        self.outputs(&buffers)
    }

    /// Converts the calls of a graph. Its inputs have names already.
    pub(super) fn calls(&mut self, source: &'j Source<'j>) -> Result<(), Error> {
        for call in &source.nodes {
            self.next();
            let before = self.graph.nodes.len();
            let done = self.one(source, call);
            // Reading a view of a tensor that was overwritten adds calls.
            self.computed.spend_calls(self.graph.nodes.len().saturating_sub(before))?;
            match done {
                Err(Error::Unsupported(why)) => {
                    let target = call.target.strip_prefix("torch.ops.").unwrap_or(&call.target);
                    self.unsupported.insert(match why.is_empty() {
                        true => String::from(target),
                        false => format!("{target}: {why}"),
                    });
                    // The rest of the program is checked, too.
                    match self.results(source, call) {
                        Ok(results) => {
                            results.into_iter().for_each(|(name, value)| self.name(name, value));
                        }
                        Err(_) => self.omit(call),
                    }
                }
                // A result of an unsupported call has no value.
                Err(Error::Invalid(_)) if !self.unsupported.is_empty() => self.omit(call),
                Err(Error::Invalid(why)) => {
                    return Err(Error::Invalid(format!("call of {}: {why}", call.target)));
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Converts a call.
    fn one(&mut self, source: &'j Source<'j>, call: &'j Call<'j>) -> Result<(), Error> {
        let target = call.target.as_ref();
        let name = target.strip_prefix("torch.ops.").unwrap_or(target);
        if let Some(done) = self.check(name, call)? {
            return Ok(done);
        }
        if name.starts_with("higher_order.wrap_with_") {
            return self.inline(call);
        }
        if let Some(done) = self.integer_call(source, name, call)? {
            return Ok(done);
        }
        if let Some(done) = self.control_flow(source, name, call)? {
            return Ok(done);
        }
        let Some(aten::Named { operator, memory }) = aten::named(name) else {
            let operator = aten::out_variant(name).ok_or_else(unsupported)?;
            return self.out_variant(source, call, operator);
        };
        let out = self.output_type(source, call);
        let (operator, args) = self.assigned(operator, &call.inputs, out)?;
        let target = match call.inputs.first().map(|input| &input.arg) {
            Some(Argument::Tensor(tensor)) => match self.names.get(tensor.name.as_ref()) {
                Some(Named::Tensor(alias)) => Some((*alias, tensor)),
                _ => None,
            },
            _ => None,
        };
        if operator == Operator::AS_STRIDED_COPY {
            let meta = target.and_then(|(_, own)| source.tensor_values.get(own.name.as_ref()));
            let is_plain =
                |it: &TensorMeta<'_>| is_contiguous(it) && hint(&it.storage_offset) == Some(0);
            if !meta.is_some_and(is_plain) {
                return Err(Error::unsupported("strides in a tensor that is not contiguous"));
            }
        }
        if memory == Memory::Overwritten {
            let (alias, tensor) = target.ok_or_else(unsupported)?;
            return self.in_place(source, call, (operator, args), alias, &tensor.name);
        }
        let shares = match (memory, target) {
            (Memory::View | Memory::Reshaped, Some(_)) => true,
            (Memory::ViewIfContiguous, Some((_, tensor))) => {
                // Copies are contiguous; views of tensors that are not contiguous are not.
                let is_contiguous =
                    |name: &str| source.tensor_values.get(name).is_some_and(is_contiguous);
                let out = call.outputs.iter().flat_map(|output| names(output)).next();
                is_contiguous(&tensor.name) || !out.is_some_and(is_contiguous)
            }
            (Memory::ViewIfSame, Some((_, tensor))) => self.is_unchanged(source, tensor, call),
            _ => false,
        };
        let results = self.results(source, call)?;
        let made: Vec<ValueId> = results.iter().map(|(_, value)| *value).collect();
        let out = match (&call.outputs[..], &made[..]) {
            ([Argument::Tensors(_)], _) => self.push(Value::List(made.clone())),
            (_, [one]) => *one,
            _ => self.push(Value::List(made.clone())),
        };
        let parent = target.filter(|_| shares).map(|(parent, _)| parent);
        let mut views = match parent {
            Some(_) => self.views(operator, &args, &made).into_iter(),
            None => Vec::new().into_iter(),
        };
        for (name, value) in results {
            match (parent, views.next()) {
                (Some(parent), Some(view)) if self.graph.tensor(value).is_some() => {
                    let alias = self.aliases.add_view(parent, view, value);
                    self.names.extend(name.map(|name| (name, Named::Tensor(alias))));
                    if let (Memory::Reshaped, Some((_, own))) = (memory, target) {
                        self.names.insert(&own.name, Named::Tensor(alias));
                    }
                }
                _ => self.name(name, value),
            }
        }
        self.call(operator, &args, out);
        // Conjugates are views in PyTorch.
        let is_conjugate = ["aten._conj.default", "aten.conj.default"].contains(&name);
        if makes_views_of_all(operator) || is_permuting_einsum(name, call) || is_conjugate {
            let tensors = call.inputs.iter().map(|input| &input.arg).chain(&call.outputs);
            for tensor in tensors.flat_map(names) {
                if let Some(Named::Tensor(alias)) = self.names.get(tensor) {
                    self.sharing.push((name, *alias, self.aliases.writes(*alias)));
                }
            }
        }
        Ok(())
    }

    /// The arguments of a call, and the operator for their kinds.
    pub(super) fn assigned<'a>(
        &mut self,
        mut operator: Operator,
        inputs: impl IntoIterator<Item = &'a NamedArgument<'j>>,
        out: Option<ScalarType>,
    ) -> Result<(Operator, Vec<ValueId>), Error>
    where
        'j: 'a,
    {
        let given = assign(operator.parameters(), inputs)?;
        let second = given.get(1).copied().flatten();
        if second.is_some_and(is_scalar)
            && let Some(scalar) = with_scalar(operator)
        {
            operator = scalar;
        }
        let mut args = Vec::with_capacity(given.len() + 1);
        for (parameter, given) in operator.parameters().iter().zip(&given) {
            args.push(self.argument(parameter, *given, out)?);
        }
        Ok((operator, args))
    }

    /// Calls that compute or read integers. Returns `None` for other calls.
    fn integer_call(
        &mut self,
        source: &'j Source<'j>,
        name: &str,
        call: &'j Call<'j>,
    ) -> Result<Option<()>, Error> {
        let [Argument::SymInt(SymIntArgument::Name(out))] = &call.outputs[..] else {
            return Ok(None);
        };
        let is_read = matches!(name, "aten.item.default" | "aten._local_scalar_dense.default");
        let value = match self.symbolic(&source.sym_int_values, out) {
            // Assertions check that an element has the only value that the program allows.
            value if is_read => match self.graph.values.get(value) {
                Some(Value::Int(only)) => self.push(Value::SymInt(*only)),
                _ => value,
            },
            value => value,
        };
        self.names.insert(out, Named::Number(value));
        if !matches!(self.graph.values.get(value), Some(Value::SymInt(_))) {
            return Ok(Some(()));
        }
        let operator = match name {
            "aten.sym_size.int" => Operator::SYM_SIZE_INT,
            "aten.sym_numel.default" => Operator::SYM_NUMEL,
            "aten.item.default" | "aten._local_scalar_dense.default" => {
                Operator::LOCAL_SCALAR_DENSE
            }
            "_operator.add" => Operator::SYM_ADD,
            "_operator.sub" => Operator::SYM_SUB,
            "_operator.mul" => Operator::SYM_MUL,
            "_operator.floordiv" => Operator::SYM_FLOORDIV,
            "_operator.mod" => Operator::EXECUTORCH_PRIM_MOD_SCALAR,
            "_operator.neg" => Operator::EXECUTORCH_PRIM_NEG_SCALAR,
            "torch.sym_max" => Operator::EXECUTORCH_PRIM_SYM_MAX_SCALAR,
            "torch.sym_min" => Operator::EXECUTORCH_PRIM_SYM_MIN_SCALAR,
            "torch.sym_ite" => Operator::EXECUTORCH_PRIM_SYM_ITE_SCALAR,
            _ => return Err(unsupported()),
        };
        let given = assign(operator.parameters(), &call.inputs)?;
        let mut args = Vec::with_capacity(given.len() + 1);
        for (parameter, given) in operator.parameters().iter().zip(&given) {
            args.push(self.argument(parameter, *given, None)?);
        }
        self.call(operator, &args, value);
        Ok(Some(()))
    }

    /// Converts the calls of a subgraph that always runs, in a context that does not affect
    /// inference.
    fn inline(&mut self, call: &'j Call<'j>) -> Result<(), Error> {
        let is_graph = |input: &NamedArgument<'_>| matches!(input.arg, Argument::Graph(_));
        let at = call.inputs.iter().position(is_graph).ok_or_else(unsupported)?;
        // Autocast has arguments: a device, a dtype, whether it is enabled.
        if call.target.contains("autocast")
            && !matches!(call.inputs.get(2).map(|it| &it.arg), Some(Argument::Bool(false)))
        {
            return Err(Error::unsupported(
                "autocast changes the dtypes of calls; export after run_decompositions()",
            ));
        }
        let (_, behind) = call.inputs.split_at_checked(at).ok_or_else(unsupported)?;
        let Some((NamedArgument { arg: Argument::Graph(inner), .. }, operands)) =
            behind.split_first()
        else {
            return Err(unsupported());
        };
        let inner = &*inner.graph;
        let mut own = BTreeMap::new();
        if operands.len() != inner.inputs.len() {
            return Err(Error::invalid("the inputs of a subgraph do not match its operands"));
        }
        for (input, operand) in inner.inputs.iter().zip(operands) {
            for (name, outer) in names(input).into_iter().zip(names(&operand.arg)) {
                own.insert(name, self.lookup(outer)?);
            }
        }
        let outer = core::mem::replace(&mut self.names, own);
        let done = self.calls(inner);
        let own = core::mem::replace(&mut self.names, outer);
        done?;
        let outputs = call.outputs.iter().flat_map(|output| names(output));
        let results = inner.outputs.iter().flat_map(|output| names(output));
        for (name, inner) in outputs.zip(results) {
            let missing = || Error::Invalid(format!("the output `{inner}` of a subgraph"));
            let named = own.get(inner).copied().ok_or_else(missing)?;
            self.names.insert(name, named);
        }
        Ok(())
    }

    /// Leaves out a call, and remembers its results.
    fn omit(&mut self, call: &'j Call<'j>) {
        for name in call.outputs.iter().flat_map(|output| names(output)) {
            self.names.insert(name, Named::Omitted);
        }
    }

    /// Adds the values that a call returns, with their names. An output that is not computed has no
    /// name.
    pub(super) fn results(
        &mut self,
        source: &'j Source<'j>,
        call: &'j Call<'j>,
    ) -> Result<Vec<(Option<&'j str>, ValueId)>, Error> {
        let mut results = Vec::with_capacity(call.outputs.len());
        for output in &call.outputs {
            if let Argument::Tensors(items) = output {
                for item in items {
                    let value = self.described(&source.tensor_values, &item.name)?;
                    results.push((Some(item.name.as_ref()), value));
                }
            } else {
                let value = self.new_result(source, output)?;
                results.push((names(output).first().copied(), value));
            }
        }
        Ok(results)
    }

    /// Names a result that shares no memory.
    pub(super) fn name(&mut self, name: Option<&'j str>, value: ValueId) {
        let named = match self.graph.tensor(value) {
            Some(_) => Named::Tensor(self.aliases.add(value)),
            None => Named::Number(value),
        };
        self.names.extend(name.map(|name| (name, named)));
    }

    /// Adds a value for an output of a call.
    fn new_result(
        &mut self,
        source: &'j Source<'j>,
        output: &'j Argument<'j>,
    ) -> Result<ValueId, Error> {
        Ok(match output {
            Argument::Tensor(tensor) | Argument::OptionalTensor(OptionalTensor::Tensor(tensor)) => {
                self.described(&source.tensor_values, &tensor.name)?
            }
            Argument::SymInt(SymIntArgument::Name(name)) => {
                self.symbolic(&source.sym_int_values, name)
            }
            // An output that is not computed.
            Argument::None(_) | Argument::OptionalTensor(OptionalTensor::None(_)) => {
                self.push(Value::Tensor(Tensor {
                    scalar_type: ScalarType::Float,
                    host_type: ScalarType::Float,
                    sizes: [0].to_vec(),
                    dynamic: false,
                    data: None,
                    changes: None,
                }))
            }
            Argument::SymFloat(_) | Argument::SymBool(_) => {
                return Err(Error::Unsupported(format!("{} as the result", output.kind())));
            }
            _ => self.push(Value::None),
        })
    }

    /// The dtype of the first output of a call.
    pub(super) fn output_type(&self, source: &Source<'j>, call: &Call<'j>) -> Option<ScalarType> {
        let first = call.outputs.iter().flat_map(|output| names(output)).next()?;
        scalar_type(source.tensor_values.get(first)?.dtype)
    }

    /// Whether a conversion returns its input: one that changes neither dtype nor strides.
    fn is_unchanged(&self, source: &Source<'j>, input: &Name<'j>, call: &Call<'j>) -> bool {
        let is_copy =
            |it: &NamedArgument<'j>| it.name == "copy" && matches!(it.arg, Argument::Bool(true));
        let meta = |name: &str| source.tensor_values.get(name);
        let out = call.outputs.iter().flat_map(names).next().and_then(meta);
        let (Some(own), Some(out)) = (meta(&input.name), out) else { return false };
        own.dtype == out.dtype && has_same_strides(own, out) && !call.inputs.iter().any(is_copy)
    }

    /// Adds a tensor as the program describes it.
    pub(super) fn described(&mut self, metas: Metas<'_, 'j>, name: &str) -> Result<ValueId, Error> {
        let meta = metas.get(name);
        let meta =
            meta.ok_or_else(|| Error::Invalid(format!("the tensor `{name}` has no shape")))?;
        if meta.layout != STRIDED {
            return Err(Error::Unsupported(format!("the sparse tensor `{name}`")));
        }
        let known = scalar_type(meta.dtype);
        let scalar_type = known.ok_or_else(|| {
            Error::Unsupported(format!("the tensor `{name}` of dtype number {}", meta.dtype))
        })?;
        if meta.sizes.len() > MAX_RANK {
            return Err(Error::Unsupported(format!(
                "the tensor `{name}` of {} dims; at most {MAX_RANK}",
                meta.sizes.len()
            )));
        }
        let mut sizes = Vec::with_capacity(meta.sizes.len());
        let mut varying = Vec::with_capacity(meta.sizes.len());
        for size in &meta.sizes {
            let (bound, varies) = self.symbols.bound(size)?;
            sizes.push(bound);
            varying.push(varies);
        }
        let dynamic = varying.contains(&true);
        if dynamic {
            self.varying.insert(self.graph.values.len(), varying);
        }
        let host_type = scalar_type;
        Ok(self.push(Value::Tensor(Tensor {
            scalar_type,
            host_type,
            sizes,
            dynamic,
            data: None,
            changes: None,
        })))
    }

    /// Adds an integer: a constant if the program gives it a single value.
    pub(super) fn symbolic(
        &mut self,
        symbols: &BTreeMap<Text<'j>, SymInt<'j>>,
        name: &str,
    ) -> ValueId {
        let value = match symbols.get(name) {
            Some(SymInt::Int(number)) => Value::Int(*number),
            Some(expr @ SymInt::Expr(SymExpr { hint, .. })) => match self.symbols.constant(expr) {
                Some(number) => Value::Int(number),
                None => Value::SymInt(match hint {
                    Some(Hint::Int(hint)) => *hint,
                    _ => 0,
                }),
            },
            None => Value::SymInt(0),
        };
        self.push(value)
    }

    pub(super) fn lookup(&self, name: &str) -> Result<Named, Error> {
        let unknown = || Error::Invalid(format!("the name `{name}` is not defined"));
        self.names.get(name).copied().ok_or_else(unknown)
    }

    /// The current value of a tensor.
    pub(super) fn tensor(&mut self, name: &str) -> Result<ValueId, Error> {
        match self.lookup(name)? {
            Named::Tensor(alias) => self.aliases.read(&mut self.graph, alias),
            _ => Err(Error::Invalid(format!("`{name}` is no tensor"))),
        }
    }

    /// The value of an integer.
    pub(super) fn number(&mut self, name: &str) -> Result<ValueId, Error> {
        match self.lookup(name)? {
            Named::Number(value) => Ok(value),
            Named::Tensor(_) => Err(Error::Invalid(format!("`{name}` is a tensor"))),
            Named::Omitted => {
                Err(Error::Unsupported(format!("the symbolic boolean `{name}` as an argument")))
            }
        }
    }

    pub(super) fn push(&mut self, value: Value<'p>) -> ValueId {
        super::aliases::push(&mut self.graph, value)
    }

    pub(super) fn call(&mut self, operator: Operator, inputs: &[ValueId], out: ValueId) {
        let args = inputs.iter().copied().chain([out]).collect();
        self.graph.nodes.push(Node { id: self.number, operator, args, parts: Vec::new() });
    }
}

/// Whether the outputs of an operator are views of the members of its first argument.
fn makes_views_of_all(operator: Operator) -> bool {
    let operators = [
        Operator::ATLEAST_1D_SEQUENCE,
        Operator::ATLEAST_2D_SEQUENCE,
        Operator::ATLEAST_3D_SEQUENCE,
        Operator::BROADCAST_TENSORS,
        Operator::MESHGRID,
    ];
    operators.contains(&operator)
}

/// Whether a call only permutes the dims of a tensor, so that its result is a view.
fn is_permuting_einsum(name: &str, call: &Call<'_>) -> bool {
    let Some(Argument::String(equation)) = call.inputs.first().map(|input| &input.arg) else {
        return false;
    };
    let sorted = |text: &str| {
        let mut letters: Vec<char> = text.chars().filter(|it| !it.is_whitespace()).collect();
        letters.sort_unstable();
        letters
    };
    name == "aten.einsum.default"
        && !equation.contains(',')
        && equation.split_once("->").is_none_or(|(from, to)| sorted(from) == sorted(to))
}

pub(super) fn unsupported() -> Error {
    Error::unsupported("")
}

/// The names in an argument.
pub(super) fn names<'a>(argument: &'a Argument<'_>) -> Vec<&'a str> {
    match argument {
        Argument::Tensor(tensor) | Argument::OptionalTensor(OptionalTensor::Tensor(tensor)) => {
            [tensor.name.as_ref()].to_vec()
        }
        Argument::Tensors(items) => items.iter().map(|item| item.name.as_ref()).collect(),
        Argument::SymInt(SymIntArgument::Name(name)) => [name.as_ref()].to_vec(),
        Argument::SymBool(super::schema::SymBoolArgument::Name(name))
        | Argument::SymFloat(super::schema::SymFloatArgument::Name(name)) => {
            [name.as_ref()].to_vec()
        }
        _ => Vec::new(),
    }
}

/// The value of a size or stride at export, if it is known.
fn hint(size: &SymInt<'_>) -> Option<i64> {
    match size {
        SymInt::Int(size) | SymInt::Expr(SymExpr { hint: Some(Hint::Int(size)), .. }) => {
            Some(*size)
        }
        SymInt::Expr(_) => None,
    }
}

/// Whether a tensor is row-major in memory, as far as sizes are known.
fn is_contiguous(meta: &TensorMeta<'_>) -> bool {
    let mut expected = Some(1i64);
    meta.sizes.iter().zip(&meta.strides).rev().all(|(size, stride)| {
        let size = hint(size);
        let is = match (expected, hint(stride)) {
            (Some(expected), Some(stride)) => size == Some(1) || stride == expected,
            _ => true,
        };
        expected = expected.and_then(|expected| expected.checked_mul(size?));
        is
    })
}

/// Whether two tensors of one shape have the same order of elements in memory, as far as sizes are
/// known.
fn has_same_strides(a: &TensorMeta<'_>, b: &TensorMeta<'_>) -> bool {
    a.sizes.iter().zip(a.strides.iter().zip(&b.strides)).all(|(size, (a, b))| {
        let (a, b) = (hint(a), hint(b));
        hint(size) == Some(1) || a.is_none() || b.is_none() || a == b
    })
}
