//! What a device takes at most, as far as encoding depends on it.

use crate::error::Error;
use ash::vk;
use torchlet_shaders::Module;

/// Workgroups along a dimension that every device takes.
pub(crate) const MOST_GROUPS: usize = 65535;

/// The invocations of a workgroup, at most. Vulkan asks for 128; all drivers of devices with Vulkan
/// 1.1 have more.
pub(crate) const MOST_INVOCATIONS: u32 = 256;

/// The storage buffers of the shaders that programs cannot do without. Vulkan asks for 4; chains of
/// element-wise functions, products, convolutions in tiles, recurrent layers and their like bind so
/// many. Products that rotate their rows or put them into a cache (`gemv_placed`), and those of
/// codes of 8 bits in tiles (`convolution_codes`), bind more: where there are fewer, other kernels
/// do that.
pub(crate) const NEEDED_BUFFERS: u32 = 7;

/// What a device says that it takes at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DeviceLimits {
    /// Invocations of a workgroup; 256 are needed.
    pub invocations: u32,
    /// Workgroups of a dispatch, in each dimension; more work is folded over them, or takes several
    /// dispatches.
    pub workgroups: [u32; 3],
    /// Bytes that a workgroup shares.
    pub shared_memory: u32,
    /// Storage buffers that a shader binds; 7 are needed.
    pub storage_buffers: u32,
    /// Bytes of a tensor.
    pub tensor: u64,
    /// Bytes that are allocated in one piece; weights may lie in several.
    pub allocation: u64,
}

impl DeviceLimits {
    pub(super) fn of(device: &vk::PhysicalDeviceLimits, allocation: u64) -> Self {
        DeviceLimits {
            invocations: invocations_of(device),
            workgroups: device.max_compute_work_group_count,
            shared_memory: device.max_compute_shared_memory_size,
            storage_buffers: buffers_of(device),
            tensor: device.max_storage_buffer_range.into(),
            allocation,
        }
    }
}

/// What a device takes at most, as encoding asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Workgroups of a dispatch, in each dimension.
    pub(crate) workgroups: [u32; 3],
    /// Workgroups along one dimension from which on work goes on in the next, or behind the last
    /// one in another dispatch: as many as there can be, but in tests.
    pub(crate) fold_at: [u32; 3],
    /// Bytes of a tensor.
    pub(crate) tensor: u64,
    /// Bytes of the memory that a workgroup shares.
    pub(crate) shared: u32,
    /// Storage buffers that a shader binds.
    pub(crate) buffers: u32,
    /// What tensors begin at multiples of, in bytes.
    pub(crate) align: u64,
}

impl Limits {
    /// What every device takes that is not refused: Vulkan 1.1, table "Required Limits", and
    /// [`lacking`].
    pub(crate) const LEAST: Self = Limits {
        workgroups: [MOST_GROUPS as u32; 3],
        fold_at: [MOST_GROUPS as u32; 3],
        tensor: 1 << 27,
        shared: 1 << 14,
        buffers: NEEDED_BUFFERS,
        align: 256,
    };

    /// Those of a device; work is folded from `fold_at` workgroups on, and shaders bind `buffers`,
    /// if that is less.
    pub(crate) fn of(
        device: &vk::PhysicalDeviceLimits,
        fold_at: Option<u32>,
        buffers: Option<u32>,
    ) -> Self {
        let workgroups = device.max_compute_work_group_count;
        Limits {
            workgroups,
            fold_at: workgroups.map(|most| most.min(fold_at.unwrap_or(most)).max(1)),
            tensor: device.max_storage_buffer_range.into(),
            shared: device.max_compute_shared_memory_size,
            buffers: buffers_of(device).min(buffers.unwrap_or(u32::MAX)),
            // Shaders read four elements at a time.
            align: device.min_storage_buffer_offset_alignment.max(16),
        }
    }

    /// The workgroups of a dispatch along one dimension, gone on with in the next one where the
    /// device takes no more of them in this one. `None` if it takes so many in neither.
    pub(crate) fn folded(&self, groups: [u32; 3], along: usize) -> Option<[u32; 3]> {
        let (count, most) = (*groups.get(along)?, *self.fold_at.get(along)?);
        let mut folded = groups;
        if count > most {
            let next = count.div_ceil(most);
            *folded.get_mut(along)? = count.div_ceil(next);
            *folded.get_mut(along + 1).filter(|groups| **groups == 1)? = next;
        }
        self.take(folded).then_some(folded)
    }

    /// Whether a shader binds no more buffers than the device takes.
    pub(crate) fn bind(&self, module: &Module) -> bool {
        u32::try_from(module.bindings).is_ok_and(|count| count <= self.buffers)
    }

    /// Whether the device takes so many workgroups.
    fn take(&self, groups: [u32; 3]) -> bool {
        groups.iter().zip(self.workgroups).all(|(count, most)| *count <= most)
    }

    /// Refuses more workgroups of a shader than the device takes.
    pub(crate) fn check_workgroups(&self, shader: &str, groups: [u32; 3]) -> Result<(), Error> {
        match self.take(groups) {
            true => Ok(()),
            false => Err(Error::unsupported(format!(
                "{shader}: {groups:?} workgroups; the device takes at most {:?}",
                self.workgroups
            ))),
        }
    }

    /// Refuses a tensor of more bytes than a shader of the device can bind.
    pub(crate) fn check_tensor(&self, shader: &str, bytes: u64) -> Result<(), Error> {
        match bytes <= self.tensor {
            true => Ok(()),
            false => Err(Error::unsupported(format!(
                "{shader}: a tensor of {bytes} bytes; the device binds at most {}",
                self.tensor
            ))),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::LEAST
    }
}

/// The storage buffers that a shader of a device binds at most.
fn buffers_of(device: &vk::PhysicalDeviceLimits) -> u32 {
    device.max_per_stage_descriptor_storage_buffers.min(device.max_descriptor_set_storage_buffers)
}

/// The invocations of a workgroup at most, which may lie along either of the first two dimensions.
fn invocations_of(device: &vk::PhysicalDeviceLimits) -> u32 {
    let [x, y, _] = device.max_compute_work_group_size;
    device.max_compute_work_group_invocations.min(x).min(y)
}

/// What a device lacks of what all shaders count on, in words for the user.
pub(crate) fn lacking(device: &vk::PhysicalDeviceLimits) -> Option<String> {
    let needs = [
        ("invocations in a workgroup", invocations_of(device), MOST_INVOCATIONS),
        ("storage buffers for a shader", buffers_of(device), NEEDED_BUFFERS),
    ];
    let (what, has, needed) = needs.into_iter().find(|(_, has, needed)| has < needed)?;
    Some(format!("it has {has} {what}; {needed} are needed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchlet_shaders::{MODULES, REPLAYED_MODULES};

    #[test]
    fn what_exceeds_a_dimension_goes_on_in_the_next() {
        let limits = Limits { workgroups: [10, 4, 5], fold_at: [10, 4, 5], ..Limits::default() };
        assert_eq!(limits.folded([10, 1, 1], 0), Some([10, 1, 1]));
        assert_eq!(limits.folded([11, 1, 1], 0), Some([6, 2, 1]));
        assert_eq!(limits.folded([40, 1, 1], 0), Some([10, 4, 1]));
        assert_eq!(limits.folded([41, 1, 1], 0), None);
        assert_eq!(limits.folded([1, 19, 1], 1), Some([1, 4, 5]));
        assert_eq!(limits.folded([1, 21, 1], 1), None);
        // The next dimension is in use.
        assert_eq!(limits.folded([11, 2, 1], 0), None);
        assert_eq!(limits.folded([1, 1, 6], 2), None);
    }

    #[test]
    fn devices_that_cannot_run_all_shaders_are_told_apart() {
        let mut device = vk::PhysicalDeviceLimits {
            max_compute_work_group_invocations: 256,
            max_compute_work_group_size: [256, 256, 64],
            max_per_stage_descriptor_storage_buffers: 16,
            max_descriptor_set_storage_buffers: 96,
            ..Default::default()
        };
        assert_eq!(lacking(&device), None);
        device.max_compute_work_group_invocations = 128;
        let said = lacking(&device).unwrap();
        assert_eq!(said, "it has 128 invocations in a workgroup; 256 are needed");
        device.max_compute_work_group_invocations = 1024;
        device.max_per_stage_descriptor_storage_buffers = 7;
        assert_eq!(lacking(&device), None);
        device.max_descriptor_set_storage_buffers = 6;
        let said = lacking(&device).unwrap();
        assert_eq!(said, "it has 6 storage buffers for a shader; 7 are needed");
        device.max_per_stage_descriptor_storage_buffers = 4;
        assert!(lacking(&device).unwrap().starts_with("it has 4 storage buffers for a shader"));
    }

    #[test]
    fn all_devices_bind_what_programs_cannot_do_without() {
        let more = MODULES.iter().filter(|module| !Limits::LEAST.bind(module));
        let more: Vec<&str> = more.map(|module| module.name).collect();
        let codes = ["convolution_codes", "convolution_codes_cooperative"];
        assert_eq!(more, [["gemv_placed", "gemv_placed_halves"], codes].concat());
        // And no more is asked for than that takes.
        assert!(REPLAYED_MODULES.iter().all(|module| Limits::LEAST.bind(module)));
        let all = MODULES.iter().chain(REPLAYED_MODULES);
        let most = all.filter(|module| Limits::LEAST.bind(module));
        assert_eq!(most.map(|module| module.bindings).max(), Some(NEEDED_BUFFERS as usize));
    }

    #[test]
    fn devices_tell_how_many_buffers_they_bind() {
        let device = vk::PhysicalDeviceLimits {
            max_per_stage_descriptor_storage_buffers: 16,
            max_descriptor_set_storage_buffers: 8,
            ..Default::default()
        };
        assert_eq!(Limits::of(&device, None, None).buffers, 8);
        assert_eq!(Limits::of(&device, None, Some(7)).buffers, 7);
        assert_eq!(Limits::of(&device, None, Some(9)).buffers, 8);
    }
}
