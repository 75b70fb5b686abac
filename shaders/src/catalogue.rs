//! The list of shaders. Adding one is: a GLSL file, and an entry here.

use crate::{Constant, Element, Module, Pipeline, PushConstants, PushField};

/// The most dimensions that shaders walk over; dimensions that are walked alike count as one.
pub const MAX_DIMS: usize = 8;

/// Declares pipelines: a module's name, its number of buffers, its specialisation constants in the order of their
/// numbers from 3 on, and its push constants in the order of the shader's block.
macro_rules! pipelines {
    ($($(#[$doc:meta])* $name:ident, $push:ident = $file:literal, $bindings:literal buffers, {
        $($constant:ident: $constant_type:ty),* $(,)?
    }, {
        $($field:ident: $field_type:ty),* $(,)?
    };)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            #[allow(missing_docs, reason = "the fields are the shader's")]
            pub struct $name {
                $(pub $constant: $constant_type,)*
            }

            #[doc = concat!("The push constants of [`", stringify!($name), "`].")]
            #[derive(Debug, Clone, Copy, PartialEq)]
            #[allow(missing_docs, reason = "the fields are the shader's")]
            pub struct $push {
                $(pub $field: $field_type,)*
            }

            impl Pipeline for $name {
                const MODULE: Module = Module {
                    name: $file,
                    spirv: include_bytes!(concat!("../spv/", $file, ".spv")),
                    bindings: $bindings,
                    push_bytes: <$push as PushConstants>::BYTES,
                    constants: [$(stringify!($constant)),*].len(),
                };
                type Bindings<B> = [B; $bindings];
                type Push = $push;

                fn constants(&self) -> Vec<u32> {
                    vec![$(Constant::bits(&self.$constant)),*]
                }
            }

            impl PushConstants for $push {
                const BYTES: usize = 0 $(+ size_of::<$field_type>())*;
                fn bytes(&self) -> Vec<u8> {
                    let mut bytes = Vec::with_capacity(Self::BYTES);
                    $(self.$field.append(&mut bytes);)*
                    bytes
                }
            }
        )*

        /// Every module of the catalogue.
        pub const MODULES: &[Module] = &[$($name::MODULE),*];
    };
}

pipelines! {
    /// A function of one tensor, four elements an invocation.
    Unary, UnaryPush = "unary", 2 buffers, {
        function: u32, input: Element, output: Element,
    }, {
        numel: u32, a: f32, b: f32,
    };

    /// A function of two tensors that are broadcast to the output's shape, four elements an invocation.
    Binary, BinaryPush = "binary", 3 buffers, {
        function: u32, a: Element, b: Element, output: Element, same_layout: bool,
    }, {
        numel: u32, alpha: f32, sizes: [u32; MAX_DIMS], a_strides: [u32; MAX_DIMS], b_strides: [u32; MAX_DIMS],
    };

    /// Gathers elements of a strided view of the input: permutes, slices, expands, converts.
    Gather, GatherPush = "gather", 2 buffers, {
        input: Element, output: Element, contiguous: bool,
    }, {
        numel: u32, base: i32, sizes: [u32; MAX_DIMS], strides: [i32; MAX_DIMS],
    };

    /// Writes a number to all elements.
    Fill, FillPush = "fill", 1 buffers, {
        output: Element,
    }, {
        numel: u32, value: f32, step: f32,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Push constants must fit what every Vulkan device has: 128 bytes.
    #[test]
    fn modules_are_spirv_and_fit() {
        for module in MODULES {
            assert_eq!(module.spirv.get(..4), Some(&[3, 2, 0x23, 7][..]), "{}", module.name);
            assert!(module.push_bytes <= 128, "{}: {}", module.name, module.push_bytes);
        }
    }
}
