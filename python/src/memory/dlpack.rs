//! Structures of DLPack 1.x, as in its header.

use std::ffi::{CStr, c_void};
use torchlet::core::ScalarType;

pub(super) const TENSOR: &CStr = c"dltensor";
pub(super) const USED_TENSOR: &CStr = c"used_dltensor";
pub(super) const VERSIONED: &CStr = c"dltensor_versioned";
pub(super) const USED_VERSIONED: &CStr = c"used_dltensor_versioned";

/// The version of these structures.
pub(super) const VERSION: Version = Version { major: 1, minor: 0 };
/// Flag of read-only memory.
pub(super) const READ_ONLY: u64 = 1;

/// Host memory.
pub(super) const CPU: Device = Device { kind: 1, id: 0 };
/// Host memory that a GPU can also read.
const CUDA_HOST: i32 = 3;

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Device {
    pub(super) kind: i32,
    pub(super) id: i32,
}

impl Device {
    /// Whether the CPU can read it.
    pub(super) fn is_host(self) -> bool {
        [CPU.kind, CUDA_HOST].contains(&self.kind)
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(C)]
pub(super) struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
pub(super) struct Tensor {
    pub(super) data: *mut c_void,
    pub(super) device: Device,
    pub(super) ndim: i32,
    pub(super) dtype: DataType,
    pub(super) shape: *mut i64,
    pub(super) strides: *mut i64,
    pub(super) byte_offset: u64,
}

#[repr(C)]
pub(super) struct Managed {
    pub(super) tensor: Tensor,
    pub(super) context: *mut c_void,
    pub(super) deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Version {
    pub(super) major: u32,
    pub(super) minor: u32,
}

#[repr(C)]
pub(super) struct ManagedVersioned {
    pub(super) version: Version,
    pub(super) context: *mut c_void,
    pub(super) deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    pub(super) flags: u64,
    pub(super) tensor: Tensor,
}

/// DLPack type codes and bits of element types.
const TYPES: &[(ScalarType, u8, u8)] = &[
    (ScalarType::Char, 0, 8),
    (ScalarType::Short, 0, 16),
    (ScalarType::Int, 0, 32),
    (ScalarType::Long, 0, 64),
    (ScalarType::Byte, 1, 8),
    (ScalarType::UInt16, 1, 16),
    (ScalarType::UInt32, 1, 32),
    (ScalarType::UInt64, 1, 64),
    (ScalarType::Half, 2, 16),
    (ScalarType::Float, 2, 32),
    (ScalarType::Double, 2, 64),
    (ScalarType::BFloat16, 4, 16),
    (ScalarType::ComplexHalf, 5, 32),
    (ScalarType::ComplexFloat, 5, 64),
    (ScalarType::ComplexDouble, 5, 128),
    (ScalarType::Bool, 6, 8),
    (ScalarType::Float8E4M3FN, 10, 8),
    (ScalarType::Float8E4M3FNUZ, 11, 8),
    (ScalarType::Float8E5M2, 12, 8),
    (ScalarType::Float8E5M2FNUZ, 13, 8),
];

impl DataType {
    /// The corresponding PyTorch element type, if any.
    pub(super) fn scalar_type(self) -> Option<ScalarType> {
        let found = |(_, code, bits): &&(ScalarType, u8, u8)| {
            self == DataType { code: *code, bits: *bits, lanes: 1 }
        };
        TYPES.iter().find(found).map(|(scalar_type, _, _)| *scalar_type)
    }

    /// The DLPack type of an element type, if any.
    pub(super) fn of(scalar_type: ScalarType) -> Option<Self> {
        let found = TYPES.iter().find(|(other, _, _)| *other == scalar_type)?;
        Some(DataType { code: found.1, bits: found.2, lanes: 1 })
    }
}
