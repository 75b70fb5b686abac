//! Compute pipelines, created once per device for each shader and set of specialisation constants.

use crate::device::Context;
use crate::error::Error;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use torchlet_gpu::device::PipelineKey;
use torchlet_shaders::WebGpuShader;

/// A compute pipeline.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) raw: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
    /// The bindings of the layout. Those from the number of tensors on are parameters.
    pub(crate) bindings: Vec<u32>,
}

/// The pipelines of a device.
#[derive(Debug, Default)]
pub(crate) struct Pipelines(Mutex<HashMap<Key, Arc<Pipeline>>>);

/// The identity of a pipeline. In addition to the planned one, it has pairs of bindings that are
/// the same memory: the first one of each pair is used for both.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) planned: PipelineKey,
    pub(crate) same: Vec<[u32; 2]>,
}

impl Pipelines {
    /// Returns the pipeline with this key, creating it if necessary.
    pub(crate) fn get(&self, context: &Context, key: &Key) -> Result<Arc<Pipeline>, Error> {
        if let Some(pipeline) = self.lock().get(key) {
            return Ok(pipeline.clone());
        }
        // Created without the lock, so that several threads can create pipelines at the same time.
        let pipeline = Arc::new(Pipeline::new(context, key)?);
        Ok(self.lock().entry(key.clone()).or_insert(pipeline).clone())
    }

    /// Returns the number of pipelines.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Pipeline>>> {
        // Poisoning can be ignored: a panic cannot leave the guarded data half-changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pipeline {
    fn new(context: &Context, key: &Key) -> Result<Self, Error> {
        let PipelineKey { module, constants, workgroup } = &key.planned;
        let name = module.name;
        let shader = module.webgpu(*workgroup, constants, &key.same);
        let WebGpuShader { words, buffers, parameters } = shader.map_err(|what| {
            torchlet_gpu::Error::Unsupported(format!("shader {name} in WebGPU: {what}"))
        })?;
        let entries: Vec<_> = buffers
            .iter()
            .map(|binding| wgpu::BindGroupLayoutEntry {
                binding: *binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Storage {
                        read_only: parameters == Some(*binding),
                    },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            })
            .collect();
        let device = &context.device;
        context.checked("creating a pipeline", || {
            let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: Some(name),
                entries: &entries,
            });
            let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: Some(name),
                bind_group_layouts: &[Some(&layout)],
                immediate_size: 0,
            });
            let shader = device.create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some(name),
                source: wgpu::ShaderSource::SpirV(Cow::Owned(words)),
            });
            let raw = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(name),
                layout: Some(&pipeline_layout),
                module: &shader,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions {
                    // Shaders write shared memory before they read it.
                    zero_initialize_workgroup_memory: false,
                    ..Default::default()
                },
                cache: None,
            });
            Pipeline { raw, layout, bindings: buffers }
        })
    }
}

#[cfg(test)]
mod tests {
    use torchlet_shaders::{MODULES, REPLAYED_MODULES};
    use wgpu::naga::front::spv;
    use wgpu::naga::valid::{Capabilities, ValidationFlags, Validator};

    /// The capabilities of every WebGPU device.
    const WEBGPU: Capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32;

    #[test]
    fn modules_without_features_translate() {
        let plain = MODULES.iter().chain(REPLAYED_MODULES).filter(|it| it.features.is_empty());
        let mut count = 0;
        // The first constant often selects a function.
        let all = plain.flat_map(|module| {
            let functions = module.constants.first().is_some_and(|it| it.name == "function");
            (0..if functions { 48 } else { 1 }).map(move |function| (module, function))
        });
        for (module, function) in all {
            let shader = module.webgpu([64, 1, 1], &[function], &[]).unwrap();
            let options = spv::Options { adjust_coordinate_space: false, ..Default::default() };
            let parsed = spv::Frontend::new(shader.words.iter().copied(), &options).parse();
            let parsed =
                parsed.unwrap_or_else(|error| panic!("{}, {function}: {error}", module.name));
            let checked = Validator::new(ValidationFlags::all(), WEBGPU).validate(&parsed);
            checked.unwrap_or_else(|error| panic!("{}, {function}: {error:?}", module.name));
            count += 1;
        }
        assert!(count > 60, "{count} modules");
    }
}
