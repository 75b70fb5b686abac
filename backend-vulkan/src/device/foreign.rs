//! Vulkan objects of foreign shaders: images with samplers, pipelines with any descriptor layout,
//! and a command buffer of dispatches and copies.
//!
//! Every command waits for the one before it. Images are in the general layout, except during
//! copies.

use super::Context;
use super::buffer::Buffer;
use super::completion::Completion;
use super::queues::Scope;
use crate::error::Error;
use ash::vk;
use gpu_allocator::MemoryLocation;
use gpu_allocator::vulkan::{Allocation, AllocationCreateDesc, AllocationScheme};
use std::ffi::CString;
use std::sync::Arc;

/// Width and height of an image.
pub(crate) type Extent = [u32; 2];

/// Numbers of `VkFilter`, `VkSamplerAddressMode` and `VkBorderColor`, in range: minification,
/// magnification, two address modes, border color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SamplerConfig([i32; 5]);

impl SamplerConfig {
    /// Checks the numbers.
    pub(crate) fn new(numbers: [u32; 5]) -> Result<Self, Error> {
        // Up to clamp-to-border, and up to opaque white for integers: the values of Vulkan 1.0.
        const LARGEST: [u32; 5] = [1, 1, 3, 3, 5];
        match numbers.iter().zip(LARGEST).all(|(number, largest)| *number <= largest) {
            true => Ok(SamplerConfig(numbers.map(u32::cast_signed))),
            false => Err(Error::unsupported(format!("a sampler with the settings {numbers:?}"))),
        }
    }

    pub(crate) fn filters_linearly(self) -> bool {
        self.0[0] == 1 || self.0[1] == 1
    }
}

/// How shaders use an image: all of them together.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct ImageUses {
    pub(crate) is_storage: bool,
    pub(crate) is_sampled: bool,
    /// Whether a sampler filters linearly.
    pub(crate) is_filtered: bool,
}

/// An image, its view and its memory.
pub(crate) struct Image {
    raw: vk::Image,
    view: vk::ImageView,
    extent: Extent,
    allocation: Option<Allocation>,
    counted: u64,
    context: Arc<Context>,
}

impl Image {
    /// Creates a 2D image with unspecified contents, for some use. `bytes` is the size of its
    /// texels.
    pub(crate) fn new(
        context: &Arc<Context>,
        format: u32,
        extent: Extent,
        uses: ImageUses,
        bytes: u64,
    ) -> Result<Self, Error> {
        let format = vk::Format::from_raw(format.cast_signed());
        let mut usage = vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST;
        if uses.is_storage {
            usage |= vk::ImageUsageFlags::STORAGE;
        }
        if uses.is_sampled {
            usage |= vk::ImageUsageFlags::SAMPLED;
        }
        let largest = context.largest_image(format, usage, uses.is_filtered);
        let largest = largest.ok_or_else(|| {
            let filter = if uses.is_filtered { " and linear filters" } else { "" };
            Error::unsupported(format!("images of format {format:?} with usage {usage:?}{filter}"))
        })?;
        if extent[0] > largest[0] || extent[1] > largest[1] {
            return Err(Error::unsupported(format!(
                "an image of {extent:?} texels; the device limit is {largest:?}"
            )));
        }
        context.check_memory(bytes, super::MemoryKind::Device)?;
        let create = vk::ImageCreateInfo::default()
            .image_type(vk::ImageType::TYPE_2D)
            .format(format)
            .extent(vk::Extent3D { width: extent[0], height: extent[1], depth: 1 })
            .mip_levels(1)
            .array_layers(1)
            .samples(vk::SampleCountFlags::TYPE_1)
            .tiling(vk::ImageTiling::OPTIMAL)
            .usage(usage);
        // SAFETY: the create info is complete; format, usage and extent are supported.
        let raw = unsafe { context.raw.create_image(&create, None) }
            .map_err(Error::of("vkCreateImage"))?;
        // From here on, dropping `image` destroys the objects created so far.
        let mut image = Image {
            raw,
            view: vk::ImageView::null(),
            extent,
            allocation: None,
            counted: 0,
            context: context.clone(),
        };
        // SAFETY: the image was just created.
        let requirements = unsafe { context.raw.get_image_memory_requirements(raw) };
        context.meter.add(requirements.size)?;
        image.counted = requirements.size;
        let allocation = context.allocator().allocate(&AllocationCreateDesc {
            name: "image",
            requirements,
            location: MemoryLocation::GpuOnly,
            linear: false,
            allocation_scheme: AllocationScheme::DedicatedImage(raw),
        });
        let allocation = allocation
            .map_err(|error| Error::OutOfMemory(format!("an image of {bytes} bytes: {error}")))?;
        // SAFETY: the memory was allocated for this image's requirements and is bound once.
        let bound =
            unsafe { context.raw.bind_image_memory(raw, allocation.memory(), allocation.offset()) };
        image.allocation = Some(allocation);
        bound.map_err(Error::of("vkBindImageMemory"))?;
        let create = vk::ImageViewCreateInfo::default()
            .image(raw)
            .view_type(vk::ImageViewType::TYPE_2D)
            .format(format)
            .subresource_range(WHOLE);
        // SAFETY: the image has memory, and the view has its type and format.
        image.view = unsafe { context.raw.create_image_view(&create, None) }
            .map_err(Error::of("vkCreateImageView"))?;
        Ok(image)
    }
}

/// The layout of images, except during copies: shaders may write them.
const GENERAL: vk::ImageLayout = vk::ImageLayout::GENERAL;

/// The only mip level and layer of an image.
const WHOLE: vk::ImageSubresourceRange = vk::ImageSubresourceRange {
    aspect_mask: vk::ImageAspectFlags::COLOR,
    base_mip_level: 0,
    level_count: 1,
    base_array_layer: 0,
    layer_count: 1,
};

impl Drop for Image {
    fn drop(&mut self) {
        self.context.meter.remove(self.counted);
        if self.context.is_abandoned() {
            // The device may still use the memory, so it is leaked.
            std::mem::forget(self.allocation.take());
            return;
        }
        // SAFETY: the owner waits for every submission that uses the image, so it is idle; null
        // handles are ignored.
        unsafe {
            self.context.raw.destroy_image_view(self.view, None);
            self.context.raw.destroy_image(self.raw, None);
        }
        if let Some(allocation) = self.allocation.take() {
            // An error would mean that the allocation belongs to another allocator.
            let _ = self.context.allocator().free(allocation);
        }
    }
}

/// What a descriptor refers to.
#[derive(Clone, Copy)]
pub(crate) enum Bound<'r> {
    Buffer(&'r Buffer, u64),
    StorageImage(&'r Image),
    SampledImage(&'r Image),
    Combined(&'r Image, SamplerConfig),
}

impl Bound<'_> {
    fn kind(self) -> vk::DescriptorType {
        match self {
            Bound::Buffer(..) => vk::DescriptorType::STORAGE_BUFFER,
            Bound::StorageImage(_) => vk::DescriptorType::STORAGE_IMAGE,
            Bound::SampledImage(_) => vk::DescriptorType::SAMPLED_IMAGE,
            Bound::Combined(..) => vk::DescriptorType::COMBINED_IMAGE_SAMPLER,
        }
    }
}

/// A descriptor: set, binding, resource.
pub(crate) type Slot<'r> = (u32, u32, Bound<'r>);

/// A pipeline with its descriptors.
pub(crate) struct ForeignPipeline {
    module: vk::ShaderModule,
    set_layouts: Vec<vk::DescriptorSetLayout>,
    layout: vk::PipelineLayout,
    raw: vk::Pipeline,
    pool: vk::DescriptorPool,
    sets: Vec<vk::DescriptorSet>,
    samplers: Vec<vk::Sampler>,
    /// Zeros as push constants.
    push: Vec<u8>,
    context: Arc<Context>,
}

impl ForeignPipeline {
    /// Creates a pipeline. The caller has checked the module against the slots, which differ in set
    /// and binding, against the number of bytes of push constants, and against the device. Images
    /// of the slots were created for their kind of descriptor and sampler.
    pub(crate) fn new(
        context: &Arc<Context>,
        words: &[u32],
        entry: &str,
        slots: &[Slot<'_>],
        push: u32,
    ) -> Result<Self, Error> {
        let entry = CString::new(entry)
            .map_err(|_| Error::invalid("the name of an entry point has a zero byte"))?;
        // From here on, dropping `pipeline` destroys the objects created so far.
        let mut pipeline = ForeignPipeline {
            module: vk::ShaderModule::null(),
            set_layouts: Vec::new(),
            layout: vk::PipelineLayout::null(),
            raw: vk::Pipeline::null(),
            pool: vk::DescriptorPool::null(),
            sets: Vec::new(),
            samplers: Vec::new(),
            push: vec![0; push as usize],
            context: context.clone(),
        };
        let device = &context.raw;
        let count = slots.iter().map(|(set, ..)| set + 1).max().unwrap_or(0);
        for number in 0..count {
            let own = slots.iter().filter(|(set, ..)| *set == number);
            let bindings: Vec<_> = own
                .map(|(_, binding, bound)| {
                    vk::DescriptorSetLayoutBinding::default()
                        .binding(*binding)
                        .descriptor_type(bound.kind())
                        .descriptor_count(1)
                        .stage_flags(vk::ShaderStageFlags::COMPUTE)
                })
                .collect();
            let create = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
            // SAFETY: the create info is complete, and the bindings differ.
            let made = unsafe { device.create_descriptor_set_layout(&create, None) };
            pipeline.set_layouts.push(made.map_err(Error::of("vkCreateDescriptorSetLayout"))?);
        }
        let ranges = [vk::PushConstantRange::default()
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
            .size(push)];
        let mut create = vk::PipelineLayoutCreateInfo::default().set_layouts(&pipeline.set_layouts);
        if push > 0 {
            create = create.push_constant_ranges(&ranges);
        }
        // SAFETY: the create info is complete; the range is within the device's limit.
        pipeline.layout = unsafe { device.create_pipeline_layout(&create, None) }
            .map_err(Error::of("vkCreatePipelineLayout"))?;
        let create = vk::ShaderModuleCreateInfo::default().code(words);
        // SAFETY: the caller allowed foreign shaders, which includes that the driver trusts them.
        // `spirv::check` states what was checked; other rules of SPIR-V are the module's author's.
        pipeline.module = unsafe { device.create_shader_module(&create, None) }
            .map_err(Error::of("vkCreateShaderModule"))?;
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(pipeline.module)
            .name(&entry);
        let create =
            [vk::ComputePipelineCreateInfo::default().stage(stage).layout(pipeline.layout)];
        // SAFETY: the module has the entry point, and the layout has its resources and as many
        // push constants as its block. As above, the driver trusts the code.
        let made =
            unsafe { device.create_compute_pipelines(vk::PipelineCache::null(), &create, None) };
        let made = made.map_err(|(_, error)| Error::Vulkan("vkCreateComputePipelines", error))?;
        pipeline.raw = made.first().copied().unwrap_or_default();
        pipeline.bind(slots)?;
        Ok(pipeline)
    }

    /// Allocates and writes the descriptor sets.
    fn bind(&mut self, slots: &[Slot<'_>]) -> Result<(), Error> {
        let device = &self.context.raw;
        if self.set_layouts.is_empty() {
            return Ok(());
        }
        let count = u32::try_from(slots.len()).unwrap_or(u32::MAX).max(1);
        let kinds = [
            vk::DescriptorType::STORAGE_BUFFER,
            vk::DescriptorType::STORAGE_IMAGE,
            vk::DescriptorType::SAMPLED_IMAGE,
            vk::DescriptorType::COMBINED_IMAGE_SAMPLER,
        ];
        let sizes = kinds.map(|ty| vk::DescriptorPoolSize { ty, descriptor_count: count });
        let create = vk::DescriptorPoolCreateInfo::default()
            .max_sets(self.set_layouts.len() as u32)
            .pool_sizes(&sizes);
        // SAFETY: the create info is complete.
        self.pool = unsafe { device.create_descriptor_pool(&create, None) }
            .map_err(Error::of("vkCreateDescriptorPool"))?;
        let allocate = vk::DescriptorSetAllocateInfo::default()
            .descriptor_pool(self.pool)
            .set_layouts(&self.set_layouts);
        // SAFETY: the pool has room for these sets.
        self.sets = unsafe { device.allocate_descriptor_sets(&allocate) }
            .map_err(Error::of("vkAllocateDescriptorSets"))?;
        for (set, binding, bound) in slots {
            let Some(set) = self.sets.get(*set as usize) else { continue };
            let write = vk::WriteDescriptorSet::default()
                .dst_set(*set)
                .dst_binding(*binding)
                .descriptor_type(bound.kind());
            let (buffers, images);
            let write = match *bound {
                Bound::Buffer(buffer, range) => {
                    let info = vk::DescriptorBufferInfo { buffer: buffer.raw, offset: 0, range };
                    buffers = [info];
                    write.buffer_info(&buffers)
                }
                Bound::StorageImage(image) | Bound::SampledImage(image) => {
                    images = [image_info(image, vk::Sampler::null())];
                    write.image_info(&images)
                }
                Bound::Combined(image, config) => {
                    let sampler = sampler(device, config)?;
                    self.samplers.push(sampler);
                    images = [image_info(image, sampler)];
                    write.image_info(&images)
                }
            };
            // SAFETY: the set's layout has this binding of this type, the resource is alive and
            // was created for it, and the set is not in use.
            unsafe { device.update_descriptor_sets(&[write], &[]) };
        }
        Ok(())
    }
}

fn image_info(image: &Image, sampler: vk::Sampler) -> vk::DescriptorImageInfo {
    vk::DescriptorImageInfo { sampler, image_view: image.view, image_layout: GENERAL }
}

fn sampler(device: &ash::Device, config: SamplerConfig) -> Result<vk::Sampler, Error> {
    let SamplerConfig([min, mag, u, v, border]) = config;
    let create = vk::SamplerCreateInfo::default()
        .min_filter(vk::Filter::from_raw(min))
        .mag_filter(vk::Filter::from_raw(mag))
        .mipmap_mode(vk::SamplerMipmapMode::NEAREST)
        .address_mode_u(vk::SamplerAddressMode::from_raw(u))
        .address_mode_v(vk::SamplerAddressMode::from_raw(v))
        .address_mode_w(vk::SamplerAddressMode::CLAMP_TO_EDGE)
        .border_color(vk::BorderColor::from_raw(border));
    // SAFETY: the numbers are those of Vulkan 1.0 (`SamplerConfig::new`).
    unsafe { device.create_sampler(&create, None) }.map_err(Error::of("vkCreateSampler"))
}

impl Drop for ForeignPipeline {
    fn drop(&mut self) {
        if self.context.is_abandoned() {
            return;
        }
        let device = &self.context.raw;
        // SAFETY: the recording that uses the objects is dropped first and waits for its
        // submissions; each object is destroyed once, and null handles are ignored.
        unsafe {
            device.destroy_pipeline(self.raw, None);
            device.destroy_descriptor_pool(self.pool, None);
            device.destroy_shader_module(self.module, None);
            device.destroy_pipeline_layout(self.layout, None);
            for layout in &self.set_layouts {
                device.destroy_descriptor_set_layout(*layout, None);
            }
            for sampler in &self.samplers {
                device.destroy_sampler(*sampler, None);
            }
        }
    }
}

/// A command of a [`ForeignRecording`].
pub(crate) enum ForeignCommand<'c> {
    Copy { from: &'c Buffer, to: &'c Buffer, bytes: u64 },
    Zero { buffer: &'c Buffer, bytes: u64 },
    ToImage { from: &'c Buffer, to: &'c Image },
    FromImage { from: &'c Image, to: &'c Buffer },
    Dispatch { pipeline: &'c ForeignPipeline, groups: [u32; 3] },
}

/// A command buffer that can run repeatedly.
pub(crate) struct ForeignRecording {
    pool: vk::CommandPool,
    commands: vk::CommandBuffer,
    completion: Completion,
    context: Arc<Context>,
}

impl ForeignRecording {
    /// Records commands. The caller keeps the objects that they use alive longer than the
    /// recording, and has checked sizes and workgroups.
    pub(crate) fn new(
        context: &Arc<Context>,
        images: &[&Image],
        commands: &[ForeignCommand<'_>],
    ) -> Result<Self, Error> {
        let device = &context.raw;
        let mut recording = ForeignRecording {
            pool: vk::CommandPool::null(),
            commands: vk::CommandBuffer::null(),
            completion: Completion::new(context, context.compute.clone())?,
            context: context.clone(),
        };
        let create =
            vk::CommandPoolCreateInfo::default().queue_family_index(context.compute.family);
        // SAFETY: the queue family is the device's.
        recording.pool = unsafe { device.create_command_pool(&create, None) }
            .map_err(Error::of("vkCreateCommandPool"))?;
        let allocate = vk::CommandBufferAllocateInfo::default()
            .command_pool(recording.pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: the pool was just created.
        let buffers = unsafe { device.allocate_command_buffers(&allocate) }
            .map_err(Error::of("vkAllocateCommandBuffers"))?;
        recording.commands = buffers.first().copied().unwrap_or_default();
        // SAFETY: the command buffer is in its initial state.
        unsafe { device.begin_command_buffer(recording.commands, &Default::default()) }
            .map_err(Error::of("vkBeginCommandBuffer"))?;
        recording.transition(images, vk::ImageLayout::UNDEFINED, GENERAL);
        for command in commands {
            recording.add(command);
            recording.barrier();
        }
        let Scope { stages, writes, .. } = Scope::of(&context.compute);
        let barrier = [vk::MemoryBarrier::default()
            .src_access_mask(writes)
            .dst_access_mask(vk::AccessFlags::HOST_READ)];
        // SAFETY: the command buffer is being recorded, outside of any render pass.
        unsafe {
            let (buffer, host) = (recording.commands, vk::PipelineStageFlags::HOST);
            device.cmd_pipeline_barrier(
                buffer,
                stages,
                host,
                Default::default(),
                &barrier,
                &[],
                &[],
            );
            device.end_command_buffer(buffer)
        }
        .map_err(Error::of("vkEndCommandBuffer"))?;
        Ok(recording)
    }

    /// Changes the layout of images. From `UNDEFINED`, their contents become undefined.
    fn transition(&self, images: &[&Image], from: vk::ImageLayout, to: vk::ImageLayout) {
        let Scope { stages, writes, all } = Scope::of(&self.context.compute);
        let barriers: Vec<_> = images
            .iter()
            .map(|image| {
                vk::ImageMemoryBarrier::default()
                    .src_access_mask(writes)
                    .dst_access_mask(all)
                    .old_layout(from)
                    .new_layout(to)
                    .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                    .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                    .image(image.raw)
                    .subresource_range(WHOLE)
            })
            .collect();
        // SAFETY: the command buffer is being recorded, and the images are alive, in the layout
        // `from` (each command leaves them in the general one).
        unsafe {
            self.context.raw.cmd_pipeline_barrier(
                self.commands,
                stages,
                stages,
                Default::default(),
                &[],
                &[],
                &barriers,
            );
        }
    }

    fn barrier(&self) {
        Scope::of(&self.context.compute).record_barrier(&self.context.raw, self.commands);
    }

    fn add(&self, command: &ForeignCommand<'_>) {
        let (device, buffer) = (&self.context.raw, self.commands);
        // Some devices copy faster in the layouts made for it.
        let (source, target) =
            (vk::ImageLayout::TRANSFER_SRC_OPTIMAL, vk::ImageLayout::TRANSFER_DST_OPTIMAL);
        // SAFETY: the command buffer is being recorded. Copies and fills are within their buffers
        // and images, and sizes of fills are multiples of four. Pipeline, layout and sets were made
        // for one another, and the workgroups are within the limits.
        unsafe {
            match command {
                ForeignCommand::Copy { from, to, bytes } => {
                    let region = [vk::BufferCopy { src_offset: 0, dst_offset: 0, size: *bytes }];
                    device.cmd_copy_buffer(buffer, from.raw, to.raw, &region);
                }
                ForeignCommand::Zero { buffer: filled, bytes } => {
                    device.cmd_fill_buffer(buffer, filled.raw, 0, *bytes, 0);
                }
                ForeignCommand::ToImage { from, to } => {
                    let region = [region(to)];
                    self.transition(&[to], GENERAL, target);
                    device.cmd_copy_buffer_to_image(buffer, from.raw, to.raw, target, &region);
                    self.transition(&[to], target, GENERAL);
                }
                ForeignCommand::FromImage { from, to } => {
                    let region = [region(from)];
                    self.transition(&[from], GENERAL, source);
                    device.cmd_copy_image_to_buffer(buffer, from.raw, source, to.raw, &region);
                    self.transition(&[from], source, GENERAL);
                }
                ForeignCommand::Dispatch { pipeline, groups } => {
                    let point = vk::PipelineBindPoint::COMPUTE;
                    device.cmd_bind_pipeline(buffer, point, pipeline.raw);
                    let (layout, sets) = (pipeline.layout, &pipeline.sets);
                    if !sets.is_empty() {
                        device.cmd_bind_descriptor_sets(buffer, point, layout, 0, sets, &[]);
                    }
                    if !pipeline.push.is_empty() {
                        let stage = vk::ShaderStageFlags::COMPUTE;
                        device.cmd_push_constants(buffer, layout, stage, 0, &pipeline.push);
                    }
                    device.cmd_dispatch(buffer, groups[0], groups[1], groups[2]);
                }
            }
        }
    }

    /// Runs the commands, unless the run is cancelled.
    pub(crate) fn run(&mut self, is_cancelled: &dyn Fn() -> bool) -> Result<(), Error> {
        self.completion.wait()?;
        self.completion.submit(self.commands)?;
        self.completion.wait_unless(is_cancelled)
    }

    /// Waits for a run that was cancelled.
    pub(crate) fn wait(&self) -> Result<(), Error> {
        self.completion.wait()
    }
}

/// The whole image, tightly packed in a buffer.
fn region(image: &Image) -> vk::BufferImageCopy {
    let [width, height] = image.extent;
    vk::BufferImageCopy {
        image_subresource: vk::ImageSubresourceLayers {
            aspect_mask: vk::ImageAspectFlags::COLOR,
            mip_level: 0,
            base_array_layer: 0,
            layer_count: 1,
        },
        image_extent: vk::Extent3D { width, height, depth: 1 },
        ..Default::default()
    }
}

impl Drop for ForeignRecording {
    fn drop(&mut self) {
        // If a submission never ends, waiting marks the context as abandoned. On a lost device,
        // nothing is pending.
        let _ = self.wait();
        if self.context.is_abandoned() {
            return;
        }
        // SAFETY: every submission was waited for; null is ignored.
        unsafe { self.context.raw.destroy_command_pool(self.pool, None) };
    }
}
