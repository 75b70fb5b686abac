//! Programs and their methods.

use crate::buffer::DirectBuffer;
use crate::error::{Failure, Throw};
use crate::plan::{self, origin};
use crate::settings::{Settings, Source};
use crate::table::{Table, lock};
use crate::text::{array, string, strings};
use crate::values::{Argument, Results, arguments, kind, longs, set_input};
use jni::objects::{JByteArray, JClass, JLongArray, JObject, JObjectArray, JString};
use jni::sys::{jboolean, jlong};
use jni::{EnvUnowned, jni_mangle};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};
use torchlet::core::{Scalar, ShapeDynamism, TensorInfo, ValueMeta};
use torchlet::{Canceller, Error};
use torchlet_devtools::Recorder;
use torchlet_devtools::etdump::{self, DelegateIds};

/// A program that threads use in turn.
pub(crate) struct Module {
    state: Mutex<State>,
    canceller: Canceller,
    recorder: Option<Arc<Recorder>>,
}

struct State {
    module: torchlet::Module,
    /// Tensor inputs by method.
    inputs: HashMap<String, Vec<Option<TensorInfo>>>,
}

static MODULES: LazyLock<Table<Module>> = LazyLock::new(Table::new);

impl State {
    /// Loads a method and records its inputs, unless that was done.
    fn load(&mut self, method: &str) -> Result<(), Failure> {
        self.module.load_method(method)?;
        if self.inputs.contains_key(method) {
            return Ok(());
        }
        let meta = self.module.method_meta(method)?;
        let tensor = |index| {
            Ok(match meta.input(index)? {
                Some(ValueMeta::Tensor(tensor)) => Some(tensor.info),
                _ => None,
            })
        };
        let inputs: Result<_, Failure> = (0..meta.input_count()).map(tensor).collect();
        self.inputs.insert(method.into(), inputs?);
        Ok(())
    }

    /// Copies arguments into the inputs of a loaded method.
    fn set_inputs(&mut self, method: &str, arguments: &[Argument<'_>]) -> Result<(), Failure> {
        let taken = self.inputs.get(method).map_or(&[][..], Vec::as_slice);
        let (expected, found) = (taken.len(), arguments.len());
        if found > expected {
            return Err(Error::TooManyInputs { method: method.into(), expected, found }.into());
        }
        if found < expected {
            let plural = if expected == 1 { "" } else { "s" };
            return Err(Failure::invalid(format!(
                "'{method}' expects {expected} input{plural}, found {found}"
            )));
        }
        let mut loaded = self.module.method(method)?;
        for (index, (taken, argument)) in taken.iter().zip(arguments).enumerate() {
            set_input(&mut loaded, index, taken.as_ref(), argument)?;
        }
        Ok(())
    }
}

/// Opens a program from a file, or from a direct buffer, which is copied. Returns its number.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn open_module<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    path: JString<'local>,
    bytes: JObject<'local>,
    settings: JObjectArray<'local, JString<'local>>,
) -> jlong {
    env.with_env(|env| -> Result<jlong, Failure> {
        let settings = Settings::of(strings(env, &settings, "settings")?);
        let source = match bytes.is_null() {
            true => Source::Path(string(env, &path, "model path")?),
            false => Source::Bytes(DirectBuffer::of(env, &bytes)?.to_vec()?),
        };
        let (module, recorder) = settings.open(source)?;
        log::info!("opened a program of {} bytes, {}", module.file_size(), origin(&module));
        let canceller = module.canceller();
        let state = Mutex::new(State { module, inputs: HashMap::new() });
        Ok(MODULES.add(Module { state, canceller, recorder }))
    })
    .resolve::<Throw>()
}

/// Closes a program. Calls that run finish first.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn close_module<'local>(mut env: EnvUnowned<'local>, _: JClass<'local>, module: jlong) {
    env.with_env(|_| -> Result<(), Failure> {
        MODULES.remove(module);
        Ok(())
    })
    .resolve::<Throw>();
}

/// The number of open programs, for tests of leaks.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn open_modules<'local>(mut env: EnvUnowned<'local>, _: JClass<'local>) -> jlong {
    env.with_env(|_| -> Result<jlong, Failure> { Ok(MODULES.len() as jlong) }).resolve::<Throw>()
}

/// The names of the methods, in the order of the file.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn method_names<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    module: jlong,
) -> JObjectArray<'local, JString<'local>> {
    env.with_env(|env| {
        let module = MODULES.get(module)?;
        let names = lock(&module.state)?.module.method_names()?;
        array(env, &names)
    })
    .resolve::<Throw>()
}

/// The backends of a method's delegates, each once.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn method_backends<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    module: jlong,
    method: JString<'local>,
) -> JObjectArray<'local, JString<'local>> {
    env.with_env(|env| {
        let (module, method) = (MODULES.get(module)?, string(env, &method, "method")?);
        let mut backends: Vec<String> = Vec::new();
        {
            let state = lock(&module.state)?;
            let meta = state.module.method_meta(&method)?;
            for index in 0..meta.delegate_count() {
                let backend = meta.delegate_backend(index).unwrap_or_default();
                if !backends.iter().any(|other| other == backend) {
                    backends.push(backend.into());
                }
            }
        }
        array(env, &backends)
    })
    .resolve::<Throw>()
}

/// The inputs and then the outputs of a method: the number of inputs, then for each value its kind;
/// for tensors also dtype, whether the shape is an upper bound, number of dims, and sizes.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn method_interface<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    module: jlong,
    method: JString<'local>,
) -> JLongArray<'local> {
    env.with_env(|env| {
        let (module, method) = (MODULES.get(module)?, string(env, &method, "method")?);
        let words = {
            let state = lock(&module.state)?;
            let meta = state.module.method_meta(&method)?;
            let mut words = vec![meta.input_count() as jlong];
            for index in 0..meta.input_count() {
                describe(&mut words, meta.input(index)?);
            }
            for index in 0..meta.output_count() {
                describe(&mut words, meta.output(index)?);
            }
            words
        };
        longs(env, &words)
    })
    .resolve::<Throw>()
}

fn describe(words: &mut Vec<jlong>, value: Option<ValueMeta<'_>>) {
    match value {
        Some(ValueMeta::Tensor(tensor)) => {
            let is_bound = tensor.dynamism != ShapeDynamism::Static;
            let (dtype, rank) = (tensor.info.scalar_type as jlong, tensor.info.rank() as jlong);
            words.extend([kind::TENSOR, dtype, jlong::from(is_bound), rank]);
            words.extend(tensor.info.sizes.iter().map(|size| jlong::from(*size)));
        }
        Some(ValueMeta::Scalar(Scalar::Int(_))) => words.push(kind::INT),
        Some(ValueMeta::Scalar(Scalar::Double(_))) => words.push(kind::DOUBLE),
        Some(ValueMeta::Scalar(Scalar::Bool(_))) => words.push(kind::BOOL),
        Some(ValueMeta::String(_)) => words.push(kind::STRING),
        Some(ValueMeta::List(_)) => words.push(kind::LIST),
        _ => words.push(kind::NONE),
    }
}

/// Loads a method, unless it is loaded.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn load_method<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    module: jlong,
    method: JString<'local>,
) {
    env.with_env(|env| {
        let (module, method) = (MODULES.get(module)?, string(env, &method, "method")?);
        lock(&module.state)?.load(&method)
    })
    .resolve::<Throw>();
}

/// Sets the inputs, runs a method, and copies the outputs.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn execute<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    module: jlong,
    method: JString<'local>,
    description: JLongArray<'local>,
    objects: JObjectArray<'local>,
) -> JObjectArray<'local> {
    env.with_env(|env| {
        let (module, method) = (MODULES.get(module)?, string(env, &method, "method")?);
        let arguments = arguments(env, &description, &objects)?;
        let mut state = lock(&module.state)?;
        state.load(&method)?;
        state.set_inputs(&method, &arguments)?;
        let mut loaded = state.module.method(&method)?;
        loaded.run()?;
        loaded.check_output_copies()?;
        let mut results = Results::new();
        for index in 0..loaded.output_count() {
            results.push(env, &loaded.output(index)?)?;
        }
        results.finish(env)
    })
    .resolve::<Throw>()
}

/// Restores the initial state of a method.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn reset_method<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    module: jlong,
    method: JString<'local>,
) {
    env.with_env(|env| -> Result<(), Failure> {
        let (module, method) = (MODULES.get(module)?, string(env, &method, "method")?);
        Ok(lock(&module.state)?.module.reset(&method)?)
    })
    .resolve::<Throw>();
}

/// Memory of a method in bytes: arena, planned, scratch, and unplanned inputs, outputs and state.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn method_memory<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    module: jlong,
    method: JString<'local>,
) -> JLongArray<'local> {
    env.with_env(|env| {
        let (module, method) = (MODULES.get(module)?, string(env, &method, "method")?);
        let report = lock(&module.state)?.module.memory_report(&method)?;
        let planned: usize = report.planned.iter().sum();
        let bytes = [report.arena, planned, report.scratch, report.unplanned];
        longs(env, &bytes.map(|bytes| bytes as jlong))
    })
    .resolve::<Throw>()
}

/// What was compiled for which processor, as text.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn module_plan<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    module: jlong,
) -> JString<'local> {
    env.with_env(|env| -> Result<_, Failure> {
        let module = MODULES.get(module)?;
        let text = plan::text(&lock(&module.state)?.module);
        Ok(env.new_string(text)?)
    })
    .resolve::<Throw>()
}

/// Cancels the current run and all later ones, or with `is_cancelled` false, permits runs again.
/// Does not wait for a run.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn set_cancelled<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    module: jlong,
    is_cancelled: jboolean,
) {
    env.with_env(|_| -> Result<(), Failure> {
        let canceller = &MODULES.get(module)?.canceller;
        match is_cancelled {
            true => canceller.cancel(),
            false => canceller.resume(),
        }
        Ok(())
    })
    .resolve::<Throw>();
}

/// The recorded events as an ETDump, or `null` if nothing is recorded.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn module_etdump<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    module: jlong,
) -> JByteArray<'local> {
    env.with_env(|env| -> Result<_, Failure> {
        let module = MODULES.get(module)?;
        let Some(recorder) = &module.recorder else { return Ok(JByteArray::default()) };
        let dump = etdump::write(&recorder.recording(), DelegateIds::Names);
        Ok(env.byte_array_from_slice(&dump)?)
    })
    .resolve::<Throw>()
}
