//! Compute pipelines, made once per device for each shader and set of constants.

use super::cache_file::CacheFile;
use super::features::{DeviceFeature, DeviceFeatures};
use crate::error::Error;
use ash::{ext, vk};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use torchlet_shaders::{Feature, Module};

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

/// What the pipelines of one shader have in common.
struct Shader {
    /// Null until a pipeline needs it: what the driver remembers needs none. Making one takes
    /// drivers milliseconds: who wants the same one meanwhile waits for it.
    module: Mutex<vk::ShaderModule>,
    code: Module,
    /// What stands for the module where the driver may remember the pipeline; empty if it does not,
    /// and not there until a pipeline is made.
    identifier: OnceLock<Vec<u8>>,
    set_layout: vk::DescriptorSetLayout,
    layout: vk::PipelineLayout,
    device: ash::Device,
}

/// A pipeline.
pub(crate) struct Pipeline {
    pub(crate) raw: vk::Pipeline,
    key: PipelineKey,
    shader: Arc<Shader>,
}

/// The pipelines of a device.
pub(crate) struct Pipelines {
    made: Mutex<HashMap<PipelineKey, Arc<Pipeline>>>,
    shaders: Mutex<HashMap<&'static str, Arc<Shader>>>,
    /// Tells what identifies shaders, where pipelines may be remembered by that.
    identifiers: Option<ext::shader_module_identifier::Device>,
    /// The invocations of a subgroup, where subgroups can be asked to be full.
    full_subgroups: Option<u32>,
    cache: vk::PipelineCache,
    /// Where the cache is saved, and the bytes that are there already.
    file: Option<Mutex<(CacheFile, usize)>>,
    /// How many pipelines that may not be in the cache were made since it was last looked at.
    unsaved: AtomicUsize,
    device: ash::Device,
}

impl Pipelines {
    /// No pipelines yet, with what `file` remembers of those that were made before.
    pub(crate) fn new(
        instance: &ash::Instance,
        device: ash::Device,
        file: Option<CacheFile>,
        features: &DeviceFeatures,
    ) -> Self {
        let known = file.as_ref().and_then(CacheFile::read).unwrap_or_default();
        let create = vk::PipelineCacheCreateInfo::default().initial_data(&known);
        // SAFETY: the data is what a driver of the same version gave for the same device, as its
        // header and checksum say.
        let made = unsafe { device.create_pipeline_cache(&create, None) };
        let (cache, saved) = match made {
            Ok(cache) => (cache, known.len()),
            // What the driver does not take is made anew. Without a cache, pipelines are made all
            // the same. SAFETY: an empty cache has no preconditions.
            Err(_) => unsafe { device.create_pipeline_cache(&Default::default(), None) }
                .map_or((vk::PipelineCache::null(), 0), |cache| (cache, 0)),
        };
        // What remembers nothing need not be asked.
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

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        lock(&self.made).len()
    }

    /// The pipeline of this key, made if need be.
    pub(crate) fn get(&self, key: &PipelineKey) -> Result<Arc<Pipeline>, Error> {
        if let Some(pipeline) = lock(&self.made).get(key) {
            return Ok(pipeline.clone());
        }
        let shader = self.shader(&key.module)?;
        // Made without the lock, so that several threads make several at a time. Shaders whose
        // invocations go by their place in a subgroup count on there being no gaps, and those whose
        // subgroups share work on as many subgroups as fill the workgroup.
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

    /// Saves the cache if there is more in it than was saved before. That it cannot be is no error:
    /// the next start takes longer, that is all.
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
    // A panic elsewhere cannot have left what is locked half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Pipelines {
    fn drop(&mut self) {
        // SAFETY: the cache is not in use: pipelines are made through `&self` only.
        unsafe { self.device.destroy_pipeline_cache(self.cache, None) };
    }
}

impl Shader {
    fn new(device: &ash::Device, module: &Module) -> Result<Self, Error> {
        // From here on, dropping `shader` destroys what was made.
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
        // SAFETY: as above; the range is within the 128 bytes that every device has (tested in
        // torchlet-shaders).
        shader.layout = unsafe { device.create_pipeline_layout(&create, None) }
            .map_err(Error::of("vkCreatePipelineLayout"))?;
        Ok(shader)
    }

    /// The module, made if need be.
    fn module(&self) -> Result<vk::ShaderModule, Error> {
        let mut module = lock(&self.module);
        if *module == vk::ShaderModule::null() {
            let words = self.code.words();
            let create = vk::ShaderModuleCreateInfo::default().code(&words);
            // SAFETY: the words are a module that spirv-val accepted when the shaders were built,
            // or made of one by moving its parameters, which torchlet-shaders tests; the device has
            // the features that it needs (`Encoder::dispatch` looks).
            *module = unsafe { self.device.create_shader_module(&create, None) }
                .map_err(Error::of("vkCreateShaderModule"))?;
        }
        Ok(*module)
    }
}

/// What the driver knows a module by.
fn identifier(functions: &ext::shader_module_identifier::Device, code: &Module) -> Vec<u8> {
    let words = code.words();
    let create = vk::ShaderModuleCreateInfo::default().code(&words);
    let mut found = vk::ShaderModuleIdentifierEXT::default();
    let function = functions.fp().get_shader_module_create_info_identifier_ext;
    // SAFETY: the device was made with the extension and its feature, and both structures are
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
    /// Also tells whether it is certain that the driver remembered it.
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
            // constants. Full subgroups are asked for where the device has them and the workgroup
            // is a multiple of their size along x. A stage without a module has its identifier, and
            // the flag that goes with it.
            let made = unsafe { shader.device.create_compute_pipelines(cache, &create, None) };
            made.map(|made| made.first().copied().unwrap_or_default()).map_err(|(_, error)| error)
        };
        if let Some(known) = shader.identifier.get().filter(|known| !known.is_empty()) {
            let mut identifier =
                vk::PipelineShaderStageModuleIdentifierCreateInfoEXT::default().identifier(known);
            let stage = stage.push_next(&mut identifier);
            // What the driver does not remember, or cannot make so for another reason, is made of
            // the module.
            let flags = vk::PipelineCreateFlags::FAIL_ON_PIPELINE_COMPILE_REQUIRED;
            if let Ok(raw) = make(stage, flags) {
                return Ok((Pipeline { raw, key: key.clone(), shader }, true));
            }
        }
        let made = make(stage.module(shader.module()?), vk::PipelineCreateFlags::empty());
        let raw = made.map_err(Error::of("vkCreateComputePipelines"))?;
        Ok((Pipeline { raw, key: key.clone(), shader }, false))
    }

    /// Whether it is the one of this key.
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
