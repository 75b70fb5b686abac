//! A language model split into several programs.

use crate::model::{Failure, Model};
use std::fmt;
use torchlet_core::{MethodMeta, ScalarType, TensorInfo, TensorRef, ValueMeta, ValueRef};

/// A pipeline of programs that together are a language model.
///
/// Each method of the first program runs in all programs that have it. The first output of one
/// program is the first input of the next. The other inputs, such as the position, are passed to
/// every program that accepts them. Metadata methods may be in any program.
pub struct Shards(Vec<Box<dyn Model>>);

/// First output of a program, to be passed to the next one.
struct Passed {
    scalar_type: ScalarType,
    sizes: Vec<i32>,
    bytes: Vec<u8>,
}

impl Shards {
    /// Creates a pipeline of programs, in order.
    pub fn new(programs: Vec<Box<dyn Model>>) -> Self {
        Shards(programs)
    }

    /// Indices of the programs with a method.
    fn programs_with(&self, method: &str) -> Result<Vec<usize>, Failure> {
        let mut found = Vec::new();
        for (at, program) in self.0.iter().enumerate() {
            if program.method_names()?.iter().any(|name| name == method) {
                found.push(at);
            }
        }
        match found.is_empty() {
            true => Err(format!("no program has a method '{method}'").into()),
            false => Ok(found),
        }
    }

    /// Runs a method in all programs that have it; `run` runs the last one.
    fn run_to_last<T>(
        &mut self,
        method: &str,
        inputs: &[ValueRef<'_>],
        run: impl FnOnce(&mut dyn Model, &[ValueRef<'_>]) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut indices = self.programs_with(method)?;
        if self.method_meta(method)?.input_count() == 0 {
            // Several programs may have the same metadata method.
            indices.truncate(1);
        }
        let (last, before) =
            indices.split_last().ok_or("expected at least one program, found none")?;
        let mut passed: Option<Passed> = None;
        for &at in before {
            let given = given(self.0[at].as_ref(), method, inputs, passed.as_ref())?;
            let mut next = None;
            self.0[at].run(method, &given, &mut |index, value| {
                if index == 0 {
                    next = pass(value);
                }
            })?;
            let of_program = || {
                format!("program {at}, output 0: expected a contiguous tensor for the next program")
            };
            passed = Some(next.ok_or_else(of_program)?);
        }
        let given = given(self.0[*last].as_ref(), method, inputs, passed.as_ref())?;
        run(self.0[*last].as_mut(), &given)
    }
}

/// Copies a contiguous tensor.
fn pass(value: ValueRef<'_>) -> Option<Passed> {
    let ValueRef::Tensor(tensor) = value else { return None };
    let info = tensor.info();
    let sizes: Vec<i32> = info.sizes.iter().copied().collect();
    // Another dim order would be misread.
    let contiguous = TensorInfo::contiguous(info.scalar_type, &sizes)?;
    (contiguous == *info).then(|| Passed {
        scalar_type: info.scalar_type,
        sizes,
        bytes: tensor.bytes().to_vec(),
    })
}

impl Model for Shards {
    fn method_names(&self) -> Result<Vec<String>, Failure> {
        let mut names = Vec::new();
        for program in &self.0 {
            for name in program.method_names()? {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        Ok(names)
    }

    fn method_meta(&self, method: &str) -> Result<MethodMeta<'_>, Failure> {
        let first = self.programs_with(method)?.first().copied().unwrap_or(0);
        self.0.get(first).ok_or("expected at least one program, found none")?.method_meta(method)
    }

    fn output_info(&self, method: &str) -> Result<Option<TensorInfo>, Failure> {
        let last = self.programs_with(method)?.last().copied().unwrap_or(0);
        self.0.get(last).ok_or("expected at least one program, found none")?.output_info(method)
    }

    fn load(&mut self, method: &str) -> Result<(), Failure> {
        for at in self.programs_with(method)? {
            self.0[at].load(method)?;
        }
        Ok(())
    }

    fn run(
        &mut self,
        method: &str,
        inputs: &[ValueRef<'_>],
        read: &mut dyn FnMut(usize, ValueRef<'_>),
    ) -> Result<(), Failure> {
        self.run_to_last(method, inputs, |last, given| last.run(method, given, read))
    }

    fn run_argmax(
        &mut self,
        method: &str,
        inputs: &[ValueRef<'_>],
        read: &mut dyn FnMut(usize, ValueRef<'_>),
    ) -> Result<Option<Vec<Option<u32>>>, Failure> {
        self.run_to_last(method, inputs, |last, given| last.run_argmax(method, given, read))
    }

    fn reset(&mut self, method: &str) -> Result<(), Failure> {
        for at in self.programs_with(method)? {
            self.0[at].reset(method)?;
        }
        Ok(())
    }

    fn state(&mut self, method: &str) -> Result<Vec<TensorInfo>, Failure> {
        let mut state = Vec::new();
        for at in self.programs_with(method)? {
            state.extend(self.0[at].state(method)?);
        }
        Ok(state)
    }

    fn new_instance(&self) -> Box<dyn Model> {
        Box::new(Shards(self.0.iter().map(|program| program.new_instance()).collect()))
    }
}

/// Inputs of a program: the output of the previous one in place of the first input, and as many of
/// the other inputs as it accepts.
fn given<'a>(
    program: &dyn Model,
    method: &str,
    inputs: &[ValueRef<'a>],
    passed: Option<&'a Passed>,
) -> Result<Vec<ValueRef<'a>>, Failure> {
    let Some(Passed { scalar_type, sizes, bytes }) = passed else { return Ok(inputs.to_vec()) };
    let meta = program.method_meta(method)?;
    let count = meta.input_count();
    let info = TensorInfo::contiguous(*scalar_type, sizes)
        .ok_or_else(|| format!("output 0 of the previous program: shape {sizes:?} is too large"))?;
    let first = TensorRef::new(info, bytes)
        .ok_or("internal error: a tensor between programs does not match its shape")?;
    match meta.input(0)? {
        Some(ValueMeta::Tensor(tensor)) if tensor.info.scalar_type == *scalar_type => {}
        other => {
            let message = format!(
                "input 0 of the next program: expected a tensor of {scalar_type:?} {sizes:?}, which \
                 the previous program returns, found {other:?}"
            );
            return Err(message.into());
        }
    }
    let rest = inputs.iter().skip(1).take(count.saturating_sub(1));
    Ok([ValueRef::Tensor(first)].into_iter().chain(rest.cloned()).collect())
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shards").field(&self.0.len()).finish()
    }
}
