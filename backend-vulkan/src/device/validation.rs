//! Violates Vulkan's rules on purpose. Running the tests under validation layers proves nothing if
//! the layers are not active. `cargo xtask test vulkan` therefore runs this first, and expects
//! messages from the layers.

use super::buffer::{Buffer, MemoryKind};
use super::context::Context;
use super::options::Options;
use ash::vk;

#[test]
#[ignore = "violates the rules of Vulkan, for validation layers to report"]
fn rules_are_broken() {
    let context = Context::open(&Options::default()).unwrap();
    let device = &context.raw;
    let empty = vk::BufferCreateInfo::default().usage(vk::BufferUsageFlags::STORAGE_BUFFER);
    // SAFETY: a buffer of zero bytes violates a rule; drivers reject it or return a handle that is
    // not used.
    if let Ok(buffer) = unsafe { device.create_buffer(&empty, None) } {
        // SAFETY: it was just created, and nothing uses it.
        unsafe { device.destroy_buffer(buffer, None) };
    }

    let buffer = Buffer::new(&context, 64, MemoryKind::Device).unwrap();
    let create = vk::CommandPoolCreateInfo::default().queue_family_index(context.compute.family);
    // SAFETY: the queue family is the device's.
    let pool = unsafe { device.create_command_pool(&create, None) }.unwrap();
    let allocate =
        vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
    // SAFETY: the pool was just created. The commands write the same bytes without a barrier
    // between them, which the layers should report; they are never submitted.
    unsafe {
        let commands = device.allocate_command_buffers(&allocate).unwrap()[0];
        device.begin_command_buffer(commands, &Default::default()).unwrap();
        device.cmd_fill_buffer(commands, buffer.raw, 0, 64, 1);
        device.cmd_fill_buffer(commands, buffer.raw, 0, 64, 2);
        device.end_command_buffer(commands).unwrap();
        device.destroy_command_pool(pool, None);
    }
}
