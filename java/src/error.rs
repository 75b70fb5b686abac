//! Java exceptions for errors and panics.

use jni::errors::ErrorPolicy;
use jni::objects::{JThrowable, JValue};
use jni::strings::JNIString;
use jni::{Env, jni_sig, jni_str};
use std::any::Any;
use torchlet::core::error::code;

/// Reason for which a native method throws an exception.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the runtime, with ExecuTorch's code: `ExecutorchRuntimeException`.
    Runtime(String, u32),
    /// An operation that is impossible in the current state: `IllegalStateException`.
    State(String),
    /// An argument that no object accepts: `IllegalArgumentException`.
    Argument(String),
    /// A call into Java failed. If it threw an exception, that one is pending.
    Java(jni::errors::Error),
}

impl Failure {
    /// An invalid argument of a method, with ExecuTorch's code.
    pub(crate) fn invalid(message: String) -> Self {
        Failure::Runtime(message, code::INVALID_ARGUMENT)
    }
}

impl From<jni::errors::Error> for Failure {
    fn from(error: jni::errors::Error) -> Self {
        Failure::Java(error)
    }
}

impl From<torchlet::Error> for Failure {
    fn from(error: torchlet::Error) -> Self {
        Failure::Runtime(error.to_string(), error.code())
    }
}

impl From<torchlet::core::ProgramError> for Failure {
    fn from(error: torchlet::core::ProgramError) -> Self {
        Failure::Runtime(error.to_string(), error.code())
    }
}

#[cfg(feature = "llm")]
impl From<torchlet::llm::Error> for Failure {
    fn from(error: torchlet::llm::Error) -> Self {
        use torchlet::llm::Error as E;
        let source = std::error::Error::source(&error);
        let code = match &error {
            E::Read { .. } => code::ACCESS_FAILED,
            E::Model { source, .. } => {
                source.downcast_ref().map_or(code::INTERNAL, torchlet::Error::code)
            }
            E::Interface { .. } | E::Metadata { .. } => code::INVALID_PROGRAM,
            E::ContextFull { .. } => code::OUT_OF_RESOURCES,
            E::NoToken { .. } => code::INTERNAL,
            _ => code::INVALID_ARGUMENT,
        };
        let cause = source.map(|source| format!(": {source}")).unwrap_or_default();
        Failure::Runtime(format!("{error}{cause}"), code)
    }
}

/// Policy of all native methods: throws the exception of a [`Failure`] or of a panic, and returns a
/// default value, which Java ignores.
pub(crate) struct Throw;

impl<T: Default> ErrorPolicy<T, Failure> for Throw {
    type Captures<'frame: 'method, 'method> = ();

    fn on_error<'frame: 'method, 'method>(
        env: &mut Env<'frame>,
        (): &mut (),
        failure: Failure,
    ) -> jni::errors::Result<T> {
        // An exception of a callback takes precedence.
        if !env.exception_check() {
            throw(env, failure);
        }
        Ok(T::default())
    }

    fn on_panic<'frame: 'method, 'method>(
        env: &mut Env<'frame>,
        (): &mut (),
        payload: Box<dyn Any + Send>,
    ) -> jni::errors::Result<T> {
        let message = match payload.downcast_ref::<&str>() {
            Some(message) => message,
            None => payload.downcast_ref::<String>().map_or("no message", String::as_str),
        };
        if !env.exception_check() {
            let message = format!("internal error, please report it: {message}");
            throw(env, Failure::Runtime(message, code::INTERNAL));
        }
        Ok(T::default())
    }
}

/// Makes an exception pending. `throw` and `throw_new` return an error to signal that.
fn throw(env: &mut Env<'_>, failure: Failure) {
    let (message, code) = match failure {
        Failure::Runtime(message, code) => (message, code),
        Failure::State(message) => {
            let message = JNIString::from(message);
            let _ = env.throw_new(jni_str!("java/lang/IllegalStateException"), &message);
            return;
        }
        Failure::Argument(message) => {
            let message = JNIString::from(message);
            let _ = env.throw_new(jni_str!("java/lang/IllegalArgumentException"), &message);
            return;
        }
        Failure::Java(error) => (format!("a call into Java failed: {error}"), code::INTERNAL),
    };
    log::error!("{message}");
    match exception(env, &message, code) {
        Ok(exception) => {
            let _ = env.throw(&exception);
        }
        // The exception class is missing or the heap is full; that exception is pending, or none.
        Err(_) if env.exception_check() => {}
        Err(_) => {
            let message = JNIString::from(message);
            let _ = env.throw_new(jni_str!("java/lang/RuntimeException"), &message);
        }
    }
}

/// Creates an `ExecutorchRuntimeException`.
fn exception<'local>(
    env: &mut Env<'local>,
    message: &str,
    code: u32,
) -> jni::errors::Result<JThrowable<'local>> {
    let class = env.find_class(jni_str!("dev/torchlet/ExecutorchRuntimeException"))?;
    let message = env.new_string(message)?;
    let code = i32::try_from(code).unwrap_or(i32::MAX);
    let made = env.call_static_method(
        class,
        jni_str!("makeExecutorchException"),
        jni_sig!("(ILjava/lang/String;)Ljava/lang/RuntimeException;"),
        &[JValue::Int(code), JValue::Object(&message)],
    )?;
    env.cast_local::<JThrowable>(made.l()?)
}
