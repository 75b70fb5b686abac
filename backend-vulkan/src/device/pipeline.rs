//! Compute pipelines, created once per device for each shader and set of specialisation constants.

use super::cache_file::CacheFile;
use crate::error::Error;
use ash::{ext, vk};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use torchlet_gpu::device::{DeviceFeature, DeviceFeatures, PipelineKey};
use torchlet_shaders::{Feature, Module};

/// Objects shared by the pipelines of one shader, which may have different specialisation
/// constants.
struct Shader {
    /// Null until a pipeline needs the shader module; pipelines from the driver's cache do not need
    /// it. Creating a module lasts milliseconds, so threads that need the same module wait for it.
    module: Mutex<vk::ShaderModule>,
    code: Module,
    /// The shader module identifier. Unset until the first pipeline is created; empty if the driver
    /// does not cache pipelines by identifier.
    identifier: OnceLock<Vec<u8>>,
    set_layout: vk::DescriptorSetLayout,
    layout: vk::PipelineLayout,
    device: ash::Device,
}

/// A compute pipeline.
pub(crate) struct Pipeline {
    pub(crate) raw: vk::Pipeline,
    key: PipelineKey,
    shader: Arc<Shader>,
}

/// The pipelines of a device.
pub(crate) struct Pipelines {
    made: Mutex<HashMap<PipelineKey, Arc<Pipeline>>>,
    shaders: Mutex<HashMap<&'static str, Arc<Shader>>>,
    /// The functions for shader module identifiers; `None` if identifiers are not used.
    identifiers: Option<ext::shader_module_identifier::Device>,
    /// The subgroup size, if the device can require full subgroups.
    full_subgroups: Option<u32>,
    cache: vk::PipelineCache,
    /// The file of the driver's pipeline cache, and the number of bytes that were last saved in it.
    file: Option<Mutex<(CacheFile, usize)>>,
    /// The number of pipelines created since the last save that the saved cache may lack.
    unsaved: AtomicUsize,
    device: ash::Device,
}

impl Pipelines {
    /// Creates an empty set of pipelines, with the driver cache from `file`.
    pub(crate) fn new(
        instance: &ash::Instance,
        device: ash::Device,
        file: Option<CacheFile>,
        features: &DeviceFeatures,
    ) -> Self {
        let known = file.as_ref().and_then(CacheFile::read).unwrap_or_default();
        let create = vk::PipelineCacheCreateInfo::default().initial_data(&known);
        // SAFETY: a driver of the same version returned the data for the same device, according to
        // its header and checksum.
        let made = unsafe { device.create_pipeline_cache(&create, None) };
        let (cache, saved) = match made {
            Ok(cache) => (cache, known.len()),
            // If the driver rejects the data, it starts with an empty cache; pipelines can also be
            // created without one. SAFETY: an empty cache has no preconditions.
            Err(_) => unsafe { device.create_pipeline_cache(&Default::default(), None) }
                .map_or((vk::PipelineCache::null(), 0), |cache| (cache, 0)),
        };
        // With an empty cache, identifiers are useless.
        let identifies = features.has(DeviceFeature::ShaderIdentifiers) && saved > 0;
        Pipelines {
            made: Mutex::default(),
            shaders: Mutex::default(),
            identifiers: identifies
                .then(|| ext::shader_module_identifier::Device::new(instance, &device)),
            full_subgroups: features
                .has(DeviceFeature::FullSubgroups)
                .then_some(features.subgroup_size),
            cache,
            file: file.map(|file| Mutex::new((file, saved))),
            unsaved: AtomicUsize::new(0),
            device,
        }
    }

    /// Returns the number of pipelines.
    pub(crate) fn count(&self) -> usize {
        lock(&self.made).len()
    }

    /// Returns the pipeline with this key, creating it if necessary.
    pub(crate) fn get(&self, key: &PipelineKey) -> Result<Arc<Pipeline>, Error> {
        if let Some(pipeline) = lock(&self.made).get(key) {
            return Ok(pipeline.clone());
        }
        let shader = self.shader(&key.module)?;
        // Created without the lock, so that several threads can create pipelines at the same time.
        // Shaders that use the invocation index within a subgroup need subgroups without gaps, and
        // shaders whose subgroups share work need the number of subgroups that fill the workgroup.
        let by_place = [Feature::SubgroupShuffle, Feature::CooperativeMatrix];
        let full = by_place.iter().any(|feature| key.module.features.contains(feature))
            && self.full_subgroups.is_some_and(|size| key.workgroup[0].is_multiple_of(size));
        let known =
            || self.identifiers.as_ref().map_or(Vec::new(), |it| identifier(it, &shader.code));
        shader.identifier.get_or_init(known);
        let (pipeline, remembered) = Pipeline::new(shader, self.cache, key, full)?;
        let pipeline = Arc::new(pipeline);
        if !remembered {
            self.unsaved.fetch_add(1, Ordering::Relaxed);
        }
        Ok(lock(&self.made).entry(key.clone()).or_insert(pipeline).clone())
    }

    fn shader(&self, module: &Module) -> Result<Arc<Shader>, Error> {
        let mut shaders = lock(&self.shaders);
        if let Some(shader) = shaders.get(module.name) {
            return Ok(shader.clone());
        }
        let shader = Arc::new(Shader::new(&self.device, module)?);
        shaders.insert(module.name, shader.clone());
        Ok(shader)
    }

    /// Saves the driver's cache if it grew since the last save. Errors are ignored: they only slow
    /// down the next start.
    pub(crate) fn save(&self) {
        let Some(file) = &self.file else { return };
        let made = self.unsaved.swap(0, Ordering::Relaxed);
        if made == 0 || self.cache == vk::PipelineCache::null() {
            return;
        }
        let mut file = lock(file);
        // SAFETY: the cache belongs to the device; the driver locks it for the time of the call.
        let Ok(data) = (unsafe { self.device.get_pipeline_cache_data(self.cache) }) else { return };
        if data.len() > file.1 && file.0.write(&data).is_ok() {
            file.1 = data.len();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Poisoning can be ignored: a panic cannot leave the guarded data half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Pipelines {
    fn drop(&mut self) {
        // SAFETY: the cache is not in use: pipelines are created through `&self` only.
        unsafe { self.device.destroy_pipeline_cache(self.cache, None) };
    }
}

impl Shader {
    fn new(device: &ash::Device, module: &Module) -> Result<Self, Error> {
        // From here on, dropping `shader` destroys the objects created so far.
        let mut shader = Shader {
            module: Mutex::new(vk::ShaderModule::null()),
            code: *module,
            identifier: OnceLock::new(),
            set_layout: vk::DescriptorSetLayout::null(),
            layout: vk::PipelineLayout::null(),
            device: device.clone(),
        };
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
        shader.set_layout = unsafe { device.create_descriptor_set_layout(&create, None) }
            .map_err(Error::of("vkCreateDescriptorSetLayout"))?;
        let set_layouts = [shader.set_layout];
        let ranges = [vk::PushConstantRange::default()
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
            .size(module.push_bytes() as u32)];
        let mut create = vk::PipelineLayoutCreateInfo::default().set_layouts(&set_layouts);
        if module.push_bytes() > 0 {
            create = create.push_constant_ranges(&ranges);
        }
        // SAFETY: as above; the range is within the 128 bytes that every device supports (tested in
        // torchlet-shaders).
        shader.layout = unsafe { device.create_pipeline_layout(&create, None) }
            .map_err(Error::of("vkCreatePipelineLayout"))?;
        Ok(shader)
    }

    /// Returns the shader module, creating it if necessary.
    fn module(&self) -> Result<vk::ShaderModule, Error> {
        let mut module = lock(&self.module);
        if *module == vk::ShaderModule::null() {
            let words = self.code.words();
            let create = vk::ShaderModuleCreateInfo::default().code(&words);
            // SAFETY: the words are a module that spirv-val accepted when the shaders were built,
            // or one derived from it by moving its parameters, which torchlet-shaders tests; the
            // device has the features that it needs (`Encoder::dispatch` checks).
            *module = unsafe { self.device.create_shader_module(&create, None) }
                .map_err(Error::of("vkCreateShaderModule"))?;
        }
        Ok(*module)
    }
}

/// Returns the driver's identifier of a module.
fn identifier(functions: &ext::shader_module_identifier::Device, code: &Module) -> Vec<u8> {
    let words = code.words();
    let create = vk::ShaderModuleCreateInfo::default().code(&words);
    let mut found = vk::ShaderModuleIdentifierEXT::default();
    let function = functions.fp().get_shader_module_create_info_identifier_ext;
    // SAFETY: the device was created with the extension and its feature, and both structures are
    // complete and live through the call.
    unsafe { function(functions.device(), &create, &mut found) };
    found.identifier.get(..found.identifier_size as usize).unwrap_or_default().to_vec()
}

impl Drop for Shader {
    fn drop(&mut self) {
        // SAFETY: the pipelines made from it hold the shader by reference count and are gone; null
        // handles are ignored.
        unsafe {
            self.device.destroy_shader_module(*lock(&self.module), None);
            self.device.destroy_pipeline_layout(self.layout, None);
            self.device.destroy_descriptor_set_layout(self.set_layout, None);
        }
    }
}

impl Pipeline {
    /// Creates a pipeline. Also returns whether the pipeline certainly came from the driver's
    /// cache.
    fn new(
        shader: Arc<Shader>,
        cache: vk::PipelineCache,
        key: &PipelineKey,
        full_subgroups: bool,
    ) -> Result<(Self, bool), Error> {
        let constants: Vec<u32> = key.workgroup.iter().chain(&key.constants).copied().collect();
        let entries: Vec<_> = (0..constants.len() as u32)
            .map(|id| vk::SpecializationMapEntry { constant_id: id, offset: 4 * id, size: 4 })
            .collect();
        let specialization = vk::SpecializationInfo::default()
            .map_entries(&entries)
            .data(bytemuck::cast_slice(&constants));
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .name(c"main")
            .specialization_info(&specialization)
            .flags(match full_subgroups {
                true => vk::PipelineShaderStageCreateFlags::REQUIRE_FULL_SUBGROUPS,
                false => vk::PipelineShaderStageCreateFlags::empty(),
            });
        let make = |stage: vk::PipelineShaderStageCreateInfo<'_>, flags| {
            let create = vk::ComputePipelineCreateInfo::default();
            let create = [create.stage(stage).layout(shader.layout).flags(flags)];
            // SAFETY: stage and layout were made for the same declaration of bindings and push
            // constants. Full subgroups are required only if the device supports them and the
            // workgroup size in x is a multiple of the subgroup size. A stage without a module has
            // its identifier, and the flag that goes with it.
            let made = unsafe { shader.device.create_compute_pipelines(cache, &create, None) };
            made.map(|made| made.first().copied().unwrap_or_default()).map_err(|(_, error)| error)
        };
        if let Some(known) = shader.identifier.get().filter(|known| !known.is_empty()) {
            let mut identifier =
                vk::PipelineShaderStageModuleIdentifierCreateInfoEXT::default().identifier(known);
            let stage = stage.push_next(&mut identifier);
            // If this fails, for example because the pipeline is not cached, it is created from the
            // module.
            let flags = vk::PipelineCreateFlags::FAIL_ON_PIPELINE_COMPILE_REQUIRED;
            if let Ok(raw) = make(stage, flags) {
                return Ok((Pipeline { raw, key: key.clone(), shader }, true));
            }
        }
        let made = make(stage.module(shader.module()?), vk::PipelineCreateFlags::empty());
        let raw = made.map_err(Error::of("vkCreateComputePipelines"))?;
        Ok((Pipeline { raw, key: key.clone(), shader }, false))
    }

    /// Whether the pipeline has this key.
    pub(crate) fn is_of(&self, key: &PipelineKey) -> bool {
        self.key == *key
    }

    pub(crate) fn layout(&self) -> vk::PipelineLayout {
        self.shader.layout
    }

    pub(crate) fn set_layout(&self) -> vk::DescriptorSetLayout {
        self.shader.set_layout
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        // SAFETY: recordings hold the pipelines they use by reference count and wait for their
        // submissions, so the pipeline is idle; a null handle is ignored.
        unsafe { self.shader.device.destroy_pipeline(self.raw, None) };
    }
}
