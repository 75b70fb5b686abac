//! Inputs and outputs of a program: those of the user, and the tensors that the archive stores.

use super::aliases::AliasId;
use super::flow::Flow;
use super::schema::{Argument, InputSpec, Name, OutputSpec, SymIntArgument};
use super::translator::{Named, Translator};
use super::weights::Stored;
use crate::error::Error;
use crate::graph::{Graph, Tensor, Value, ValueId};
use crate::lower::portable::VaryingDims;
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A converted program.
pub(super) struct Translated<'p> {
    /// The graph. Inputs are those of the user; state has no data.
    pub(super) graph: Graph<'p>,
    /// Buffers and parameters that the program writes, with their initial contents.
    pub(super) state: Vec<State<'p>>,
    /// The dims of dynamic tensors that vary.
    pub(super) varying: VaryingDims,
    pub(super) flow: Flow,
}

/// Tensor that keeps its contents between runs.
pub(super) struct State<'p> {
    pub(super) value: ValueId,
    pub(super) name: String,
    pub(super) data: Cow<'p, [u8]>,
}

/// A tensor with data.
pub(super) struct Buffer {
    alias: AliasId,
    value: ValueId,
}

impl<'j, 'p> Translator<'j, 'p> {
    /// Adds the inputs. Returns the tensors with data, by the names of their arguments.
    pub(super) fn inputs(&mut self) -> Result<BTreeMap<&'j str, Buffer>, Error> {
        let module = &self.program.graph_module;
        let mut buffers = BTreeMap::new();
        let mut missing = Vec::new();
        for spec in &module.signature.input_specs {
            let (arg, name): (&'j Name<'j>, &'j str) = match spec {
                InputSpec::User(input) => {
                    self.user_input(&input.arg)?;
                    continue;
                }
                InputSpec::Fixed(_) | InputSpec::Token(_) => continue,
                InputSpec::CustomObj(_) => {
                    self.unsupported.insert("custom objects as constants".into());
                    continue;
                }
                InputSpec::Parameter(input) => (&input.arg, &input.parameter_name),
                InputSpec::Buffer(input) => (&input.arg, &input.buffer_name),
                InputSpec::Constant(input) => (&input.arg, &input.tensor_constant_name),
            };
            let stored = match self.weights[0].get(name)? {
                None => self.weights[1].get(name)?,
                found => found,
            };
            let Some(Stored { scalar_type, sizes, data }) = stored else {
                missing.push(name);
                continue;
            };
            let value = self.push(Value::Tensor(Tensor {
                scalar_type,
                host_type: scalar_type,
                sizes,
                dynamic: false,
                data: Some(data),
                changes: Some(false),
            }));
            let alias = self.aliases.add(value);
            self.names.insert(&arg.name, Named::Tensor(alias));
            buffers.insert(name, Buffer { alias, value });
        }
        if !missing.is_empty() {
            return Err(Error::Invalid(format!(
                "the archive has no data of {}",
                missing.join(", ")
            )));
        }
        Ok(buffers)
    }

    fn user_input(&mut self, arg: &'j Argument<'j>) -> Result<(), Error> {
        match arg {
            Argument::Tensor(tensor) => {
                let metas = &self.program.graph_module.graph.tensor_values;
                let value = self.described(metas, &tensor.name)?;
                self.graph.inputs.push(value);
                let alias = self.aliases.add(value);
                self.names.insert(&tensor.name, Named::Tensor(alias));
            }
            Argument::SymInt(SymIntArgument::Name(name)) => {
                let symbols = &self.program.graph_module.graph.sym_int_values;
                let value = self.symbolic(symbols, name);
                let value = match self.graph.values.get(value) {
                    Some(Value::SymInt(_)) => value,
                    _ => self.push(Value::SymInt(0)),
                };
                self.graph.inputs.push(value);
                self.names.insert(name, Named::Number(value));
            }
            // The caller passes nothing for values that were fixed at export.
            Argument::None(_)
            | Argument::Int(_)
            | Argument::Float(_)
            | Argument::Bool(_)
            | Argument::String(_)
            | Argument::SymInt(SymIntArgument::Int(_)) => {}
            other => {
                self.unsupported.insert(format!("{} as an input", other.kind()));
            }
        }
        Ok(())
    }

    /// Adds outputs and state updates.
    pub(super) fn outputs(
        mut self,
        buffers: &BTreeMap<&'j str, Buffer>,
    ) -> Result<Translated<'p>, Error> {
        let module = &self.program.graph_module;
        let mut updates: BTreeMap<&'j str, ValueId> = BTreeMap::new();
        let specs = module.signature.output_specs.iter();
        for (spec, output) in specs.zip(&module.graph.outputs) {
            match spec {
                OutputSpec::User(_) => {
                    let value = self.user_output(output)?;
                    self.graph.outputs.push(value);
                }
                OutputSpec::Buffer(spec) => {
                    updates.insert(&spec.buffer_name, self.tensor(&spec.arg.name)?);
                }
                OutputSpec::Parameter(spec) => {
                    updates.insert(&spec.parameter_name, self.tensor(&spec.arg.name)?);
                }
                OutputSpec::Input(spec) => {
                    return Err(Error::Unsupported(format!(
                        "the program overwrites its input `{}`",
                        spec.user_input_name
                    )));
                }
                OutputSpec::Token(_) => {}
                OutputSpec::Loss(_)
                | OutputSpec::ParameterGradient(_)
                | OutputSpec::InputGradient(_) => {
                    return Err(Error::unsupported("outputs of training: losses and gradients"));
                }
            }
        }
        let inputs = module.signature.input_specs.iter();
        for spec in inputs {
            if let InputSpec::User(input) = spec
                && let Argument::Tensor(tensor) = &input.arg
                && let Some(Named::Tensor(alias)) = self.names.get(tensor.name.as_ref())
                && self.aliases.is_written(*alias)
            {
                return Err(Error::Unsupported(format!(
                    "the program overwrites its input `{}`",
                    tensor.name
                )));
            }
        }
        let mut state = Vec::new();
        for (name, buffer) in buffers {
            if self.aliases.is_written(buffer.alias) {
                let value = self.aliases.read(&mut self.graph, buffer.alias)?;
                updates.entry(name).or_insert(value);
            }
            let Some(new) = updates.get(name).copied().filter(|new| *new != buffer.value) else {
                continue;
            };
            self.graph.updates.push((new, buffer.value));
            if let Some(Value::Tensor(tensor)) = self.graph.values.get_mut(buffer.value)
                && let Some(data) = tensor.data.take()
            {
                tensor.changes = None;
                state.push(State { value: buffer.value, name: String::from(*name), data });
            }
        }
        Ok(Translated { graph: self.graph, state, varying: self.varying, flow: self.flow })
    }

    fn user_output(&mut self, output: &'j Argument<'j>) -> Result<ValueId, Error> {
        Ok(match output {
            Argument::Tensor(tensor) => self.tensor(&tensor.name)?,
            Argument::SymInt(SymIntArgument::Name(name)) => self.number(name)?,
            Argument::Int(number) | Argument::SymInt(SymIntArgument::Int(number)) => {
                self.push(Value::Int(*number))
            }
            Argument::Float(number) => self.push(Value::Double(number.0)),
            Argument::Bool(truth) => self.push(Value::Bool(*truth)),
            Argument::None(_) => self.push(Value::None),
            other => {
                return Err(Error::Unsupported(format!("{} as an output", other.kind())));
            }
        })
    }
}
