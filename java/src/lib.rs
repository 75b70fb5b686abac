//! The native part of torchlet for Java, Kotlin and Android: programs, language models, training.
//!
//! It is small and typed: the Java classes in `java/classes` have the API of ExecuTorch's Android
//! library, and call the native methods of one class, `dev.torchlet.internal.Native`, with numbers,
//! strings and buffers. Each function here that is marked `jni_mangle` is one of them. Start
//! reading at [`module`].
//!
//! - Objects of this side are entries of a [`table`], known to Java by numbers that are never
//!   reused: a stale number is an exception.
//! - Errors and panics become Java exceptions ([`error`]); none unwinds into the JVM.
//! - Memory of Java is read and written in [`buffer`] only, which has all `unsafe` code, except for
//!   the call that writes to Android's log.

mod buffer;
mod error;
#[cfg(feature = "llm")]
mod language;
#[cfg(target_os = "android")]
mod logcat;
mod logging;
mod module;
mod plan;
mod runtime;
mod settings;
mod table;
mod text;
mod training;
mod values;
