//! Compute pipelines, made once per device for each shader and set of constants.

use crate::error::Error;
use ash::vk;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use torchlet_shaders::Module;

/// A shader, its specialisation constants and its workgroup size.
#[derive(Debug, Clone)]
pub(crate) struct PipelineKey {
    pub(crate) module: Module,
    pub(crate) constants: Vec<u32>,
    pub(crate) workgroup: [u32; 3],
}

impl PartialEq for PipelineKey {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}
impl Eq for PipelineKey {}
impl std::hash::Hash for PipelineKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl PipelineKey {
    fn identity(&self) -> (&'static str, &[u32], [u32; 3]) {
        (self.module.name, &self.constants, self.workgroup)
    }
}

/// A pipeline with its layouts.
pub(crate) struct Pipeline {
    pub(crate) raw: vk::Pipeline,
    pub(crate) layout: vk::PipelineLayout,
    pub(crate) set_layout: vk::DescriptorSetLayout,
    device: ash::Device,
}

/// The pipelines of a device.
pub(crate) struct Pipelines {
    made: Mutex<HashMap<PipelineKey, Arc<Pipeline>>>,
    cache: vk::PipelineCache,
    device: ash::Device,
}

impl Pipelines {
    pub(crate) fn new(device: ash::Device) -> Self {
        // SAFETY: an empty cache has no preconditions. Without one (out of memory), pipelines are made all the same.
        let cache = unsafe { device.create_pipeline_cache(&Default::default(), None) }
            .unwrap_or(vk::PipelineCache::null());
        Pipelines { made: Mutex::default(), cache, device }
    }

    /// The pipeline of this key, made if need be.
    pub(crate) fn get(&self, key: &PipelineKey) -> Result<Arc<Pipeline>, Error> {
        let lock = || self.made.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(pipeline) = lock().get(key) {
            return Ok(pipeline.clone());
        }
        // Made without the lock, so that several threads make several at a time.
        let pipeline = Arc::new(Pipeline::new(&self.device, self.cache, key)?);
        Ok(lock().entry(key.clone()).or_insert(pipeline).clone())
    }
}

impl Drop for Pipelines {
    fn drop(&mut self) {
        // SAFETY: the cache is not in use: pipelines are made through `&self` only.
        unsafe { self.device.destroy_pipeline_cache(self.cache, None) };
    }
}

impl Pipeline {
    fn new(
        device: &ash::Device,
        cache: vk::PipelineCache,
        key: &PipelineKey,
    ) -> Result<Self, Error> {
        let module = &key.module;
        let bindings: Vec<_> = (0..module.bindings as u32)
            .map(|binding| {
                vk::DescriptorSetLayoutBinding::default()
                    .binding(binding)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
            })
            .collect();
        let create = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        // SAFETY: the create info is complete and lives through the call.
        let set_layout = unsafe { device.create_descriptor_set_layout(&create, None) }
            .map_err(Error::of("vkCreateDescriptorSetLayout"))?;
        // From here on, dropping `pipeline` destroys what was made.
        let mut pipeline = Pipeline {
            raw: vk::Pipeline::null(),
            layout: vk::PipelineLayout::null(),
            set_layout,
            device: device.clone(),
        };
        let set_layouts = [set_layout];
        let ranges = [vk::PushConstantRange::default()
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
            .size(module.push_bytes() as u32)];
        let mut create = vk::PipelineLayoutCreateInfo::default().set_layouts(&set_layouts);
        if module.push_bytes() > 0 {
            create = create.push_constant_ranges(&ranges);
        }
        // SAFETY: as above; the range is within the 128 bytes that every device has (tested in torchlet-shaders).
        pipeline.layout = unsafe { device.create_pipeline_layout(&create, None) }
            .map_err(Error::of("vkCreatePipelineLayout"))?;

        let words: Vec<u32> = module
            .spirv
            .chunks_exact(4)
            .map(|word| word.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte)))
            .collect();
        let create = vk::ShaderModuleCreateInfo::default().code(&words);
        // SAFETY: the words are a module that spirv-val accepted when the shaders were built.
        let shader = unsafe { device.create_shader_module(&create, None) }
            .map_err(Error::of("vkCreateShaderModule"))?;
        let constants: Vec<u32> = key.workgroup.iter().chain(&key.constants).copied().collect();
        let entries: Vec<_> = (0..constants.len() as u32)
            .map(|id| vk::SpecializationMapEntry { constant_id: id, offset: 4 * id, size: 4 })
            .collect();
        let specialization = vk::SpecializationInfo::default()
            .map_entries(&entries)
            .data(bytemuck::cast_slice(&constants));
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(shader)
            .name(c"main")
            .specialization_info(&specialization);
        let create =
            [vk::ComputePipelineCreateInfo::default().stage(stage).layout(pipeline.layout)];
        // SAFETY: stage and layout were made above for the same declaration of bindings and push constants.
        let made = unsafe { device.create_compute_pipelines(cache, &create, None) };
        // SAFETY: a shader module is not needed once pipelines are made from it.
        unsafe { device.destroy_shader_module(shader, None) };
        match made {
            Ok(pipelines) => {
                pipeline.raw = pipelines.first().copied().unwrap_or_default();
                Ok(pipeline)
            }
            Err((_, error)) => Err(Error::Vulkan("vkCreateComputePipelines", error)),
        }
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        // SAFETY: recordings hold the pipelines they use by reference count and wait for their submissions, so the
        // objects are idle; null handles are ignored.
        unsafe {
            self.device.destroy_pipeline(self.raw, None);
            self.device.destroy_pipeline_layout(self.layout, None);
            self.device.destroy_descriptor_set_layout(self.set_layout, None);
        }
    }
}
