//! The queues of a device: one for compute, and one for uploads if a dedicated transfer family
//! exists.

use ash::vk;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A queue and its properties.
#[derive(Clone)]
pub(crate) struct Lane {
    pub(crate) family: u32,
    /// Whether the lane accepts only copies.
    pub(crate) copies_only: bool,
    // Lanes may share a queue, and then share the lock that guards it.
    queue: Arc<Mutex<vk::Queue>>,
}

impl Lane {
    pub(super) fn new(family: u32, queue: vk::Queue) -> Self {
        Lane { family, copies_only: false, queue: Arc::new(Mutex::new(queue)) }
    }

    /// Returns a lane for the same queue that accepts only copies.
    pub(super) fn for_copies(&self) -> Self {
        Lane { copies_only: true, ..self.clone() }
    }

    /// Locks the queue for one submission.
    pub(super) fn queue(&self) -> MutexGuard<'_, vk::Queue> {
        // Poisoning can be ignored: a panic cannot leave it half-changed.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pipeline stages and access types that the commands of a lane may use, for barriers.
pub(super) struct Scope {
    pub(super) stages: vk::PipelineStageFlags,
    pub(super) writes: vk::AccessFlags,
    pub(super) all: vk::AccessFlags,
}

impl Scope {
    /// Returns the scope of a lane. Lanes for copies have no shader stage.
    pub(super) fn of(lane: &Lane) -> Self {
        let copies = Scope {
            stages: vk::PipelineStageFlags::TRANSFER,
            writes: vk::AccessFlags::TRANSFER_WRITE,
            all: vk::AccessFlags::TRANSFER_READ | vk::AccessFlags::TRANSFER_WRITE,
        };
        if lane.copies_only {
            return copies;
        }
        Scope {
            stages: copies.stages | vk::PipelineStageFlags::COMPUTE_SHADER,
            writes: copies.writes | vk::AccessFlags::SHADER_WRITE,
            all: copies.all | vk::AccessFlags::SHADER_READ | vk::AccessFlags::SHADER_WRITE,
        }
    }

    /// Records that later commands wait for earlier ones, and see what these wrote. The caller is
    /// recording `commands`, outside of any render pass.
    pub(super) fn record_barrier(&self, device: &ash::Device, commands: vk::CommandBuffer) {
        let barrier =
            [vk::MemoryBarrier::default().src_access_mask(self.writes).dst_access_mask(self.all)];
        let none = Default::default();
        // SAFETY: the caller is recording the command buffer, outside of any render pass.
        unsafe {
            device.cmd_pipeline_barrier(
                commands,
                self.stages,
                self.stages,
                none,
                &barrier,
                &[],
                &[],
            );
        }
    }
}

fn first(
    families: &[vk::QueueFamilyProperties],
    fits: impl Fn(vk::QueueFlags) -> bool,
) -> Option<u32> {
    let family =
        families.iter().position(|family| family.queue_count > 0 && fits(family.queue_flags));
    family.and_then(|family| u32::try_from(family).ok())
}

/// Returns the index of the first queue family that supports compute.
pub(super) fn compute_family(families: &[vk::QueueFamilyProperties]) -> Option<u32> {
    first(families, |flags| flags.contains(vk::QueueFlags::COMPUTE))
}

/// Returns the index of the first dedicated transfer family, whose copy engines work concurrently
/// with compute. Graphics and compute families support transfers implicitly, so they do not count.
/// Neither do video and optical flow families, whose copies are meant for their own data.
pub(super) fn transfer_family(families: &[vk::QueueFamilyProperties]) -> Option<u32> {
    let others = vk::QueueFlags::GRAPHICS
        | vk::QueueFlags::COMPUTE
        | vk::QueueFlags::VIDEO_DECODE_KHR
        | vk::QueueFlags::VIDEO_ENCODE_KHR
        | vk::QueueFlags::OPTICAL_FLOW_NV;
    let transfers = |flags: vk::QueueFlags| {
        flags.contains(vk::QueueFlags::TRANSFER) && !flags.intersects(others)
    };
    first(families, transfers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: vk::QueueFlags = vk::QueueFlags::GRAPHICS;
    const C: vk::QueueFlags = vk::QueueFlags::COMPUTE;
    const T: vk::QueueFlags = vk::QueueFlags::TRANSFER;
    const S: vk::QueueFlags = vk::QueueFlags::SPARSE_BINDING;
    const D: vk::QueueFlags = vk::QueueFlags::VIDEO_DECODE_KHR;
    const E: vk::QueueFlags = vk::QueueFlags::VIDEO_ENCODE_KHR;
    const O: vk::QueueFlags = vk::QueueFlags::OPTICAL_FLOW_NV;

    /// Returns the compute family and the transfer family among families with these flags and queue
    /// counts.
    fn chosen(families: &[(vk::QueueFlags, u32)]) -> (Option<u32>, Option<u32>) {
        let family = |(flags, count): &(vk::QueueFlags, u32)| {
            vk::QueueFamilyProperties::default().queue_flags(*flags).queue_count(*count)
        };
        let families: Vec<_> = families.iter().map(family).collect();
        (compute_family(&families), transfer_family(&families))
    }

    #[test]
    fn dedicated_transfer_families_are_found() {
        let nvidia = [
            (G | C | T | S, 16),
            (T | S, 2),
            (C | T | S, 8),
            (T | S | D, 4),
            (T | S | E, 3),
            (T | S | O, 1),
        ];
        assert_eq!(chosen(&nvidia), (Some(0), Some(1)));
        // On headless devices, the transfer family may come last.
        let headless = [(C | T | S, 8), (T | S | D, 4), (T | S | O, 1), (T | S, 2)];
        assert_eq!(chosen(&headless), (Some(0), Some(3)));
        let amd = [(G | C | T | S, 1), (C | T | S, 4), (D, 1), (E, 1), (T | S, 2)];
        assert_eq!(chosen(&amd), (Some(0), Some(4)));
        let intel = [(G | C | T | S, 1), (C | T | S, 1), (D | T, 2), (T | S, 1)];
        assert_eq!(chosen(&intel), (Some(0), Some(3)));
    }

    #[test]
    fn no_dedicated_transfer_family() {
        assert_eq!(chosen(&[(G | C | T, 2)]), (Some(0), None), "Mali");
        assert_eq!(chosen(&[(G | C | T | S, 1), (C | T | S, 4), (D, 1)]), (Some(0), None), "RADV");
        assert_eq!(chosen(&[(G | C, 3)]), (Some(0), None), "Adreno");
        assert_eq!(chosen(&[(G | C | T, 1)]), (Some(0), None), "lavapipe");
        assert_eq!(chosen(&[(G, 1), (C, 1), (T, 0)]), (Some(1), None));
        assert_eq!(chosen(&[(T, 1)]), (None, Some(0)));
        assert_eq!(chosen(&[]), (None, None));
    }

    #[test]
    fn copy_lanes_have_copy_scope() {
        let lane = Lane::new(0, vk::Queue::null());
        let (usual, copies) = (Scope::of(&lane), Scope::of(&lane.for_copies()));
        assert!(usual.stages.contains(vk::PipelineStageFlags::COMPUTE_SHADER));
        assert_eq!(copies.stages, vk::PipelineStageFlags::TRANSFER);
        let shader = vk::AccessFlags::SHADER_READ | vk::AccessFlags::SHADER_WRITE;
        assert!(usual.all.contains(shader) && !copies.all.intersects(shader));
        assert!(!copies.writes.intersects(shader));
    }
}
