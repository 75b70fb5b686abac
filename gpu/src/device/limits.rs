//! Device limits that encoding depends on.

use crate::error::Error;
use torchlet_graph::device::Property;
use torchlet_shaders::Module;

/// Workgroups per dim that every device supports.
pub(crate) const MAX_GROUPS: usize = 65535;

/// The maximum number of invocations per workgroup that shaders use. Vulkan guarantees 128; all
/// drivers for Vulkan 1.1 devices support at least 256.
pub const MAX_INVOCATIONS: u32 = 256;

/// The number of storage buffers that a device must support per shader; Vulkan guarantees 4.
/// Element-wise chains, GEMMs, tiled convolutions, recurrent layers and others bind up to this
/// many. Two kinds of shaders bind more: GEMVs that rotate their rows or write them to a cache
/// (`gemv_placed`), and tiled int8 convolutions (`convolution_int8`). Devices that support fewer
/// buffers use other kernels instead of them.
pub const NEEDED_BUFFERS: u32 = 7;

/// The limits that a device reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DeviceLimits {
    /// The maximum number of invocations per workgroup. 256 are required.
    pub invocations: u32,
    /// The maximum number of workgroups of a dispatch, in each dim. Larger work is folded
    /// into other dims or split into several dispatches.
    pub workgroups: [u32; 3],
    /// The maximum bytes of shared memory per workgroup.
    pub shared_memory: u32,
    /// The maximum number of storage buffers per shader. Some programs need 7.
    pub storage_buffers: u32,
    /// The maximum bytes of a tensor.
    pub tensor: u64,
    /// The maximum bytes of one memory allocation. Weights may be distributed over several
    /// allocations.
    pub allocation: u64,
}

impl From<DeviceLimits> for Property {
    fn from(limits: DeviceLimits) -> Self {
        Property::Object(vec![
            ("invocations", limits.invocations.into()),
            ("workgroups", limits.workgroups.into_iter().collect()),
            ("shared_memory", limits.shared_memory.into()),
            ("storage_buffers", limits.storage_buffers.into()),
            ("tensor", limits.tensor.into()),
            ("allocation", limits.allocation.into()),
        ])
    }
}

/// The device limits that encoding depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of workgroups of a dispatch, in each dim.
    pub workgroups: [u32; 3],
    /// The number of workgroups per dim beyond which work is folded into the next dim,
    /// or, for the last dim, split into several dispatches. Equals the device limit except in
    /// tests.
    pub fold_at: [u32; 3],
    /// The maximum bytes of a tensor.
    pub tensor: u64,
    /// The maximum bytes of shared memory per workgroup.
    pub shared: u32,
    /// The maximum number of storage buffers per shader.
    pub buffers: u32,
    /// The alignment of tensors, in bytes.
    pub align: u64,
    /// Whether the workgroups of a dispatch can exchange data in memory (barriers of device scope).
    pub device_scope: bool,
}

impl Limits {
    /// Limits that every accepted device supports: those that Vulkan 1.1 requires, and
    /// [`NEEDED_BUFFERS`].
    pub const MIN: Self = Limits {
        workgroups: [MAX_GROUPS as u32; 3],
        fold_at: [MAX_GROUPS as u32; 3],
        tensor: 1 << 27,
        shared: 1 << 14,
        buffers: NEEDED_BUFFERS,
        align: 256,
        device_scope: true,
    };

    /// Folds the workgroups of dim `along` into the next dim if they exceed the limit.
    /// Returns `None` if the next dim is in use or exceeds its limit.
    pub fn folded(&self, groups: [u32; 3], along: usize) -> Option<[u32; 3]> {
        let (count, most) = (*groups.get(along)?, *self.fold_at.get(along)?);
        let mut folded = groups;
        if count > most {
            let next = count.div_ceil(most);
            *folded.get_mut(along)? = count.div_ceil(next);
            *folded.get_mut(along + 1).filter(|groups| **groups == 1)? = next;
        }
        self.take(folded).then_some(folded)
    }

    /// Whether the device supports the number of buffers that a shader binds.
    pub fn bind(&self, module: &Module) -> bool {
        u32::try_from(module.bindings).is_ok_and(|count| count <= self.buffers)
    }

    /// Whether the device supports this many workgroups.
    fn take(&self, groups: [u32; 3]) -> bool {
        groups.iter().zip(self.workgroups).all(|(count, most)| *count <= most)
    }

    /// Rejects a dispatch with more workgroups than the device supports.
    pub fn check_workgroups(&self, shader: &str, groups: [u32; 3]) -> Result<(), Error> {
        match self.take(groups) {
            true => Ok(()),
            false => Err(Error::unsupported(format!(
                "shader {shader} with {groups:?} workgroups; the device limit is {:?}",
                self.workgroups
            ))),
        }
    }

    /// Rejects a tensor that is too large for a shader to bind.
    pub fn check_tensor(&self, shader: &str, bytes: u64) -> Result<(), Error> {
        match bytes <= self.tensor {
            true => Ok(()),
            false => Err(Error::unsupported(format!(
                "shader {shader} with a tensor of {bytes} bytes; the device limit is {}",
                self.tensor
            ))),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchlet_shaders::{MODULES, REPLAYED_MODULES};

    #[test]
    fn workgroups_fold_into_the_next_dimension() {
        let limits = Limits { workgroups: [10, 4, 5], fold_at: [10, 4, 5], ..Limits::default() };
        assert_eq!(limits.folded([10, 1, 1], 0), Some([10, 1, 1]));
        assert_eq!(limits.folded([11, 1, 1], 0), Some([6, 2, 1]));
        assert_eq!(limits.folded([40, 1, 1], 0), Some([10, 4, 1]));
        assert_eq!(limits.folded([41, 1, 1], 0), None);
        assert_eq!(limits.folded([1, 19, 1], 1), Some([1, 4, 5]));
        assert_eq!(limits.folded([1, 21, 1], 1), None);
        // The next dim is in use.
        assert_eq!(limits.folded([11, 2, 1], 0), None);
        assert_eq!(limits.folded([1, 1, 6], 2), None);
    }

    #[test]
    fn required_shaders_fit_the_buffer_limit() {
        let more = MODULES.iter().filter(|module| !Limits::MIN.bind(module));
        let more: Vec<&str> = more.map(|module| module.name).collect();
        let codes = ["convolution_int8", "convolution_int8_cooperative"];
        assert_eq!(more, [["gemv_placed", "gemv_placed_halves"], codes].concat());
        // The required number of buffers is not higher than necessary.
        assert!(REPLAYED_MODULES.iter().all(|module| Limits::MIN.bind(module)));
        let all = MODULES.iter().chain(REPLAYED_MODULES);
        let most = all.filter(|module| Limits::MIN.bind(module));
        assert_eq!(most.map(|module| module.bindings).max(), Some(NEEDED_BUFFERS as usize));
    }
}
