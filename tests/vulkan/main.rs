//! Programs lowered with `VulkanPartitioner`, on the Vulkan device of this machine. Without a
//! device, the tests report that they were skipped.

#![cfg(feature = "vulkan")]

mod argmax;
mod blob;
mod cells;
mod clock;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/vulkan.rs"]
mod device;
mod fixtures;
mod foreign;
mod layers;
mod limits;
mod names;
mod portable;
mod prefetch;
mod processors;
mod replay;
mod rewritten;
mod shapes;
mod sharing;
mod state;
mod tuning;
mod uploads;
mod volumes;
