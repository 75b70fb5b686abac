//! Training on the device.

use crate::buffer::DirectBuffer;
use crate::error::{Failure, Throw};
use crate::settings::{Settings, Source};
use crate::table::{Table, lock};
use crate::text::{string, strings};
use crate::values::{Argument, Results, arguments};
use jni::objects::{JClass, JLongArray, JObject, JObjectArray, JString};
use jni::sys::{jboolean, jdouble, jlong};
use jni::{Env, EnvUnowned, jni_mangle};
use std::sync::{LazyLock, Mutex};
use torchlet::core::{Scalar, ValueRef};
use torchlet::training::{Optimizer, Sgd, SgdOptions, TrainingModule};
use torchlet::{Tensor, Value};

static MODULES: LazyLock<Table<Mutex<TrainingModule>>> = LazyLock::new(Table::new);
static OPTIMIZERS: LazyLock<Table<Mutex<Sgd>>> = LazyLock::new(Table::new);

/// Opens a program that computes gradients. Returns its number.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn open_training<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    path: JString<'local>,
    settings: JObjectArray<'local, JString<'local>>,
) -> jlong {
    env.with_env(|env| -> Result<jlong, Failure> {
        let settings = Settings::of(strings(env, &settings, "settings")?);
        let source = Source::Path(string(env, &path, "model path")?);
        let (module, _) = settings.open(source)?;
        Ok(MODULES.add(Mutex::new(TrainingModule::new(module))))
    })
    .resolve::<Throw>()
}

/// Closes a program. A call that runs finishes first.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn close_training<'local>(mut env: EnvUnowned<'local>, _: JClass<'local>, module: jlong) {
    env.with_env(|_| -> Result<(), Failure> {
        MODULES.remove(module);
        Ok(())
    })
    .resolve::<Throw>();
}

/// Runs a method, and returns the outputs of the model.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn execute_forward_backward<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    module: jlong,
    method: JString<'local>,
    description: JLongArray<'local>,
    objects: JObjectArray<'local>,
) -> JObjectArray<'local> {
    env.with_env(|env| {
        let (module, method) = (MODULES.get(module)?, string(env, &method, "method")?);
        let inputs = values(&arguments(env, &description, &objects)?)?;
        let outputs = lock(&module)?.execute_forward_backward(&method, &inputs[..])?;
        let mut results = Results::new();
        for output in &outputs {
            let output = match output {
                Value::Tensor(tensor) => ValueRef::Tensor(tensor.as_tensor_ref()),
                Value::Int(value) => ValueRef::Scalar(Scalar::Int(*value)),
                Value::Float(value) => ValueRef::Scalar(Scalar::Double(*value)),
                Value::Bool(value) => ValueRef::Scalar(Scalar::Bool(*value)),
                Value::String(text) => ValueRef::String(text),
                _ => ValueRef::None,
            };
            results.push(env, &output)?;
        }
        results.finish(env)
    })
    .resolve::<Throw>()
}

/// Copies arguments.
fn values(arguments: &[Argument<'_>]) -> Result<Vec<Value>, Failure> {
    let value = |argument: &Argument<'_>| {
        Ok(match argument {
            Argument::None => Value::None,
            Argument::Scalar(scalar) => (*scalar).into(),
            Argument::String(text) => text.as_str().into(),
            Argument::Tensor(tensor) => tensor.to_tensor()?.into(),
        })
    };
    arguments.iter().map(value).collect()
}

/// Tensors after their names.
fn named<'local>(
    env: &mut Env<'local>,
    tensors: &[(String, Tensor)],
) -> Result<JObjectArray<'local>, Failure> {
    let mut results = Results::new();
    for (name, tensor) in tensors {
        results.push(env, &ValueRef::String(name))?;
        results.push(env, &ValueRef::Tensor(tensor.as_tensor_ref()))?;
    }
    results.finish(env)
}

/// Copies of the parameters of a method, each after its name.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn named_parameters<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    module: jlong,
    method: JString<'local>,
) -> JObjectArray<'local> {
    env.with_env(|env| {
        let (module, method) = (MODULES.get(module)?, string(env, &method, "method")?);
        let tensors = lock(&module)?.named_parameters(&method)?;
        named(env, &tensors)
    })
    .resolve::<Throw>()
}

/// Copies of the gradients of the last run, each after its parameter's name.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn named_gradients<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    module: jlong,
    method: JString<'local>,
) -> JObjectArray<'local> {
    env.with_env(|env| {
        let (module, method) = (MODULES.get(module)?, string(env, &method, "method")?);
        let tensors = lock(&module)?.named_gradients(&method)?;
        named(env, &tensors)
    })
    .resolve::<Throw>()
}

/// Overwrites parameters of a method: names, and as many tensors.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn set_parameters<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    module: jlong,
    method: JString<'local>,
    names: JObjectArray<'local, JString<'local>>,
    description: JLongArray<'local>,
    objects: JObjectArray<'local>,
) {
    env.with_env(|env| {
        let (module, method) = (MODULES.get(module)?, string(env, &method, "method")?);
        let names = strings(env, &names, "names")?;
        let arguments = arguments(env, &description, &objects)?;
        if names.len() != arguments.len() {
            let (names, values) = (names.len(), arguments.len());
            return Err(Failure::invalid(format!("{names} names of parameters, {values} values")));
        }
        let mut module = lock(&module)?;
        for (name, argument) in names.iter().zip(&arguments) {
            let Argument::Tensor(tensor) = argument else {
                return Err(Failure::invalid(format!("parameter '{name}': expected a tensor")));
            };
            module.set_parameter(&method, name, &tensor.to_tensor()?)?;
        }
        Ok(())
    })
    .resolve::<Throw>();
}

/// Creates an optimizer. Returns its number.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn open_sgd<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    lr: jdouble,
    momentum: jdouble,
    dampening: jdouble,
    weight_decay: jdouble,
    nesterov: jboolean,
) -> jlong {
    env.with_env(|_| -> Result<jlong, Failure> {
        let options = SgdOptions { lr, momentum, dampening, weight_decay, nesterov };
        Ok(OPTIMIZERS.add(Mutex::new(Sgd::new(options))))
    })
    .resolve::<Throw>()
}

/// Closes an optimizer.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn close_sgd<'local>(mut env: EnvUnowned<'local>, _: JClass<'local>, optimizer: jlong) {
    env.with_env(|_| -> Result<(), Failure> {
        OPTIMIZERS.remove(optimizer);
        Ok(())
    })
    .resolve::<Throw>();
}

/// Updates a parameter in its direct buffer from a gradient.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn step_sgd<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    optimizer: jlong,
    name: JString<'local>,
    parameter: JObject<'local>,
    gradient: JObject<'local>,
) {
    env.with_env(|env| {
        let (optimizer, name) = (OPTIMIZERS.get(optimizer)?, string(env, &name, "name")?);
        let mut target = DirectBuffer::writable(env, &parameter)?;
        let gradient = floats(&DirectBuffer::of(env, &gradient)?)?;
        let mut parameter = floats(&target)?;
        if gradient.len() != parameter.len() {
            return Err(Failure::invalid(format!(
                "the gradient of '{name}': expected {} elements, found {}",
                parameter.len(),
                gradient.len()
            )));
        }
        lock(&optimizer)?.update(&name, &mut parameter, &gradient);
        let bytes: Vec<u8> = parameter.iter().flat_map(|value| value.to_ne_bytes()).collect();
        target.write(&bytes);
        Ok(())
    })
    .resolve::<Throw>();
}

/// The elements of a buffer of `float32`.
fn floats(buffer: &DirectBuffer<'_>) -> Result<Vec<f32>, Failure> {
    let bytes = buffer.to_vec()?;
    let (elements, _) = bytes.as_chunks::<4>();
    Ok(elements.iter().map(|element| f32::from_ne_bytes(*element)).collect())
}
