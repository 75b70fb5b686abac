//! What this build of the library supports, and its log.

use crate::error::{Failure, Throw};
use crate::logging;
use crate::text::array;
use jni::objects::{JClass, JObjectArray, JString};
use jni::{EnvUnowned, jni_mangle};
use torchlet::{DEVICE_APIS, RunOn};

/// Prepares the library. Java calls it first.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn start<'local>(mut env: EnvUnowned<'local>, _: JClass<'local>) -> JString<'local> {
    env.with_env(|env| -> Result<_, Failure> {
        logging::start();
        Ok(env.new_string(env!("CARGO_PKG_VERSION"))?)
    })
    .resolve::<Throw>()
}

/// The names of all kernels, once per specialization.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn operator_names<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
) -> JObjectArray<'local, JString<'local>> {
    env.with_env(|env| {
        let names: Vec<&str> =
            torchlet::portable::KERNELS.iter().map(|kernel| kernel.name).collect();
        array(env, &names)
    })
    .resolve::<Throw>()
}

/// Supported delegate backends. XNNPACK programs are compiled for the CPU engine or a GPU.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn backend_names<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
) -> JObjectArray<'local, JString<'local>> {
    env.with_env(|env| {
        let devices = DEVICE_APIS.iter().map(|api| api.backend_name());
        let names: Vec<&str> = ["XnnpackBackend", torchlet::portable::engine::BACKEND_NAME]
            .into_iter()
            .chain(devices)
            .collect();
        array(env, &names)
    })
    .resolve::<Throw>()
}

/// The names that `Module.Builder.runOn` accepts.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn processor_names<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
) -> JObjectArray<'local, JString<'local>> {
    env.with_env(|env| {
        let names: Vec<&str> = RunOn::all().map(RunOn::name).collect();
        array(env, &names)
    })
    .resolve::<Throw>()
}

/// The newest log lines.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn log_lines<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
) -> JObjectArray<'local, JString<'local>> {
    env.with_env(|env| array(env, &logging::lines())).resolve::<Throw>()
}
