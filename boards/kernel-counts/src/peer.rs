//! The same layers with another library's kernels, linked by
//! `cargo xtask bench layers --cmsis-nn DIR --tflite-micro DIR`.

use crate::layers::{Kind, Layer};
use crate::memory::Memory;

/// As in `peer/peer.h`.
#[repr(C)]
struct Call {
    kind: i32,
    from: [i32; 3],
    to: [i32; 3],
    kernel: [i32; 2],
    stride: [i32; 2],
    padding: [i32; 2],
    depth_multiplier: i32,
    shift: i32,
    input: *const i8,
    second: *const i8,
    out: *mut i8,
    multipliers: *mut i32,
    shifts: *mut i32,
    bias: *const i32,
    workspace: *mut i16,
    workspace_bytes: i32,
}

unsafe extern "C" {
    fn peer_prepare(call: *const Call) -> i32;
    fn peer_run(call: *const Call) -> i32;
}

/// A layer prepared for the kernels of the peer (CMSIS-NN, TensorFlow Lite Micro).
pub struct Peer<'a>(Call, core::marker::PhantomData<&'a mut Memory>);

impl<'a> Peer<'a> {
    /// Performs the one-time preparation of loading a network. `None` if memory is insufficient.
    pub fn prepare(layer: &Layer, memory: &'a mut Memory) -> Option<Self> {
        const NONE: [[usize; 2]; 3] = [[1, 1], [1, 1], [0, 0]];
        let (kind, sides, depth_multiplier) = match layer.kind {
            Kind::Convolution(sides) => (0, sides, 1),
            Kind::Depthwise(sides, outputs) => (1, sides, outputs),
            Kind::Linear => (2, NONE, 1),
            Kind::Average(sides) => (3, sides, 1),
            Kind::Max(sides) => (4, sides, 1),
            Kind::Sum => (5, NONE, 1),
            Kind::Product => (6, NONE, 1),
            Kind::Softmax => (7, NONE, 1),
        };
        let numbers = |sizes: [usize; 2]| sizes.map(|size| size as i32);
        let call = Call {
            kind,
            from: layer.from.map(|size| size as i32),
            to: layer.to.map(|size| size as i32),
            kernel: numbers(sides[0]),
            stride: numbers(sides[1]),
            padding: numbers(sides[2]),
            depth_multiplier: depth_multiplier as i32,
            shift: layer.shift,
            input: memory.input.as_ptr(),
            second: memory.second.as_ptr(),
            out: memory.out.as_mut_ptr(),
            multipliers: memory.multipliers.as_mut_ptr(),
            shifts: memory.shifts.as_mut_ptr(),
            bias: memory.bias.as_ptr(),
            workspace: memory.workspace.as_mut_ptr(),
            workspace_bytes: size_of_val(&memory.workspace) as i32,
        };
        // SAFETY: the memory is larger than the layers, as our own kernels check, and is borrowed
        // for as long as this lives.
        let fits = unsafe { peer_prepare(&call) } != 0;
        fits.then_some(Peer(call, core::marker::PhantomData))
    }

    /// Computes the layer. Returns whether that succeeded.
    pub fn run(&mut self) -> bool {
        // SAFETY: as above; the workspace has the size that `prepare` requested.
        unsafe { peer_run(&self.0) != 0 }
    }
}
