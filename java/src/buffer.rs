//! Memory of direct buffers: the `unsafe` code of this crate.
//!
//! Threads of Java may write to a direct buffer at any time, so its memory is copied through raw
//! pointers, and never referenced. An input is copied once, from the buffer to where the program
//! reads it. What a racing thread writes meanwhile is an input of undefined content, as in Java.

use crate::error::Failure;
use jni::objects::{JByteBuffer, JClass, JObject};
use jni::refs::Global;
use jni::{Env, jni_sig, jni_str};
use std::marker::PhantomData;
use std::sync::OnceLock;

/// The memory of a direct buffer, for as long as the native method that received it runs.
pub(crate) struct DirectBuffer<'frame> {
    start: *mut u8,
    len: usize,
    /// The local reference, which keeps the buffer alive, lives as long as the frame.
    frame: PhantomData<JObject<'frame>>,
}

/// Buffer classes, with the bytes of an element.
type Classes = [(Global<JClass<'static>>, usize); 6];

/// Looks up the buffer classes once. They belong to the JVM and are never unloaded.
fn classes(env: &mut Env<'_>) -> Result<&'static Classes, Failure> {
    static CLASSES: OnceLock<Classes> = OnceLock::new();
    if let Some(classes) = CLASSES.get() {
        return Ok(classes);
    }
    let mut class = |name, size| {
        let class = env.find_class(name)?;
        Ok::<_, Failure>((env.new_global_ref(class)?, size))
    };
    let classes = [
        class(jni_str!("java/nio/ByteBuffer"), 1)?,
        class(jni_str!("java/nio/FloatBuffer"), 4)?,
        class(jni_str!("java/nio/LongBuffer"), 8)?,
        class(jni_str!("java/nio/IntBuffer"), 4)?,
        class(jni_str!("java/nio/ShortBuffer"), 2)?,
        class(jni_str!("java/nio/DoubleBuffer"), 8)?,
    ];
    Ok(CLASSES.get_or_init(|| classes))
}

impl<'frame> DirectBuffer<'frame> {
    /// Finds the memory of a direct buffer of any element type. Position and limit of the buffer
    /// do not matter.
    pub(crate) fn of(env: &mut Env<'_>, buffer: &JObject<'frame>) -> Result<Self, Failure> {
        let mut element = None;
        for (class, size) in classes(env)? {
            if env.is_instance_of(buffer, class)? {
                element = Some(*size);
                break;
            }
        }
        let refused = |found| {
            Failure::invalid(format!(
                "expected a direct buffer of bytes, numbers or shorts, found {found}"
            ))
        };
        if buffer.is_null() {
            return Err(refused("null"));
        }
        let element = element.ok_or_else(|| refused("an object of another class"))?;
        // SAFETY: the two functions below accept any `java.nio.Buffer`, which the object is. They
        // only read its address and capacity, and return null and -1 if it is not direct.
        let view = unsafe { env.as_cast_unchecked::<JByteBuffer>(buffer) };
        let capacity = env.get_direct_buffer_capacity(&view);
        let capacity = capacity.map_err(|_| refused("a buffer on the heap"))?;
        if capacity == 0 {
            // The address of an empty buffer may be null.
            return Ok(DirectBuffer { start: std::ptr::null_mut(), len: 0, frame: PhantomData });
        }
        let start = env.get_direct_buffer_address(&view);
        let start = start.map_err(|_| refused("a buffer on the heap"))?;
        // The capacity counts elements.
        let len = capacity.checked_mul(element).ok_or_else(|| refused("an impossible size"))?;
        Ok(DirectBuffer { start, len, frame: PhantomData })
    }

    /// As [`of`](Self::of), but refuses read-only buffers.
    pub(crate) fn writable(env: &mut Env<'_>, buffer: &JObject<'frame>) -> Result<Self, Failure> {
        let memory = Self::of(env, buffer)?;
        let (name, signature) = (jni_str!("isReadOnly"), jni_sig!("()Z"));
        if env.call_method(buffer, name, signature, &[])?.z()? {
            return Err(Failure::invalid(
                "expected a writable buffer, found a read-only one".into(),
            ));
        }
        Ok(memory)
    }

    /// Size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Copies the first bytes of the buffer, as many as `target` has. Returns false, and copies
    /// nothing, if the buffer is smaller.
    pub(crate) fn read(&self, target: &mut [u8]) -> bool {
        if target.len() > self.len {
            return false;
        }
        if !target.is_empty() {
            // SAFETY: the buffer has at least this many bytes, and lives while the frame does. The
            // target is memory of Rust, which no buffer of Java overlaps: the runtime lends none.
            unsafe { self.start.copy_to_nonoverlapping(target.as_mut_ptr(), target.len()) };
        }
        true
    }

    /// Copies all bytes.
    pub(crate) fn to_vec(&self) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        let needed = self.len as u64;
        let reserved = bytes.try_reserve_exact(self.len);
        reserved.map_err(|_| torchlet::Error::OutOfMemory { needed })?;
        bytes.resize(self.len, 0);
        self.read(&mut bytes);
        Ok(bytes)
    }

    /// Overwrites the first bytes of a [writable](Self::writable) buffer. Returns false, and writes
    /// nothing, if the buffer is smaller.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() > self.len {
            return false;
        }
        if !bytes.is_empty() {
            // SAFETY: as in `read`; writing to a writable buffer is what its class permits.
            unsafe { self.start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        true
    }
}
