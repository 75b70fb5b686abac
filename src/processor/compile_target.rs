//! Compilation targets of a program.

use super::Compiling;
use crate::devices::{DEVICE_APIS, device_api, is_covered};
use crate::files::OpenProgram;
use torchlet_core::{Rates, Registry};
use torchlet_graph::device::DeviceApi;
use torchlet_graph::{self as graph, Compiled, Processors};

/// Backend of programs compiled for the CPU engine.
pub(super) const CPU_ENGINE: &str = "TorchletCpu";

/// Packs weights for the CPU engine.
#[cfg(feature = "portable")]
pub(super) type Packer = torchlet_portable::engine::WeightPacker;
/// Without the CPU engine, weights are never packed.
#[cfg(not(feature = "portable"))]
pub(super) type Packer = core::convert::Infallible;

/// Target of a compilation, with every setting that affects the result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CompileTarget {
    pub(super) processor: Processor,
    /// Number of CPU threads.
    pub(super) threads: usize,
    /// Number of sequences of a run; 1 for programs as exported.
    pub(super) sequences: usize,
    /// Whether foreign shaders may run.
    pub(super) foreign_shaders: bool,
}

/// Processors that the compiler considers. Devices have the name of their API.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Processor {
    Cpu,
    /// The device for every operator that it supports, and the CPU for the rest.
    Device(&'static str, Option<Rates>),
    /// The device or the CPU for each part, whichever is faster. Without known rates, as
    /// [`Device`](Self::Device).
    Fastest(&'static str, Option<Rates>),
}

/// The first device that is available and not emulated.
pub(super) fn device(registry: &Registry<'_>) -> Option<Processor> {
    DEVICE_APIS.iter().filter(|api| !is_covered(**api)).find_map(|api| {
        let backend = registry.backend(api.backend_name())?;
        let rates = backend.rates();
        // Software drivers are slower than the CPU engine.
        if rates.is_some_and(|rates| rates.emulated) {
            return None;
        }
        backend.is_available().ok().map(|()| Processor::Fastest(api.name(), rates))
    })
}

/// An explicitly requested device, emulated or not.
pub(super) fn requested(name: &str, registry: &Registry<'_>) -> Result<Processor, graph::Error> {
    let api = api(name)?;
    let backend = registry.backend(api.backend_name());
    Ok(Processor::Device(api.name(), backend.and_then(|backend| backend.rates())))
}

fn api(name: &str) -> Result<&'static dyn DeviceApi, graph::Error> {
    device_api(name).map_err(|error| graph::Error::unsupported(&error.to_string()))
}

impl Processor {
    /// Whether this is a device of the API with this name.
    pub(super) fn is_of(&self, api: Option<&str>) -> bool {
        match self {
            Processor::Cpu => false,
            Processor::Device(name, _) | Processor::Fastest(name, _) => api == Some(name),
        }
    }
}

impl CompileTarget {
    /// Text form for the cache key.
    pub(super) fn key(&self) -> String {
        // Packed weights depend on the CPU.
        #[cfg(feature = "portable")]
        let machine = Packer::machine();
        #[cfg(not(feature = "portable"))]
        let machine = "";
        format!("{self:?} {:?} {machine}", self.kernels())
    }

    /// Creates the weight packer, if the CPU engine is the target. It must outlive the compiled
    /// program, which borrows the weights.
    #[cfg(feature = "portable")]
    pub(super) fn packer(&self, compiling: &Compiling<'_>) -> Option<Packer> {
        let packs =
            self.processor == Processor::Cpu && compiling.registry.backend(CPU_ENGINE).is_some();
        packs.then(|| Packer::new((compiling.parallel)()))
    }

    #[cfg(not(feature = "portable"))]
    pub(super) fn packer(&self, _: &Compiling<'_>) -> Option<Packer> {
        None
    }

    pub(super) fn compile<'p>(
        &self,
        open: &'p OpenProgram,
        packer: Option<&'p Packer>,
        registry: &Registry<'_>,
    ) -> Result<Compiled<'p>, graph::Error> {
        let (program, data) = (&open.program(), open.data());
        let engine = self.engine(registry);
        let own = |targets| match self.kernels() {
            Some(rates) => Processors::with_kernels(targets, rates),
            None => targets,
        };
        let (name, rates) = match self.processor {
            Processor::Cpu => {
                let targets: Vec<&dyn graph::Target> = engine.as_deref().into_iter().collect();
                let processors = own(Processors::preferring(&targets));
                #[cfg(feature = "portable")]
                let packing = packer.map(|packer| packer as &dyn graph::Packer);
                #[cfg(not(feature = "portable"))]
                let packing = None;
                if self.sequences > 1 {
                    let count = self.sequences;
                    return graph::sequences::compile(
                        program, data, count, processors, packing, registry,
                    );
                }
                #[cfg(feature = "portable")]
                if let Some(packer) = packer {
                    return graph::cpu::compile_packed(program, data, processors, packer, registry);
                }
                let _ = packer;
                return graph::cpu::compile(program, data, processors, registry);
            }
            Processor::Device(name, rates) | Processor::Fastest(name, rates) => (name, rates),
        };
        // A generic device with these rates: the program also runs on others.
        let device = api(name)?.target(rates);
        let shaders = match self.foreign_shaders {
            true => api(name)?.shader_target(rates),
            false => None,
        };
        let devices = [device.as_ref()].into_iter().chain(shaders.as_deref());
        let targets: Vec<&dyn graph::Target> = devices.chain(engine.as_deref()).collect();
        let processors = match self.processor {
            Processor::Fastest(..) => Processors::cheapest(&targets),
            _ => Processors::preferring(&targets),
        };
        if self.sequences > 1 {
            let (count, processors) = (self.sequences, own(processors));
            return graph::sequences::compile(program, data, count, processors, None, registry);
        }
        graph::compile(program, data, own(processors), registry)
    }

    /// The CPU engine as a target, if it is registered.
    fn engine(&self, registry: &Registry<'_>) -> Option<Box<dyn graph::Target>> {
        registry.backend(CPU_ENGINE)?;
        #[cfg(feature = "portable")]
        return Some(Box::new(
            torchlet_portable::engine::CpuTarget::new().with_threads(self.threads),
        ));
        #[cfg(not(feature = "portable"))]
        return None;
    }

    fn kernels(&self) -> Option<Rates> {
        #[cfg(feature = "portable")]
        return Some(torchlet_portable::engine::kernel_rates(self.threads));
        #[cfg(not(feature = "portable"))]
        return None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_contains_all_settings() {
        let rates = Rates {
            operations: 1e12,
            bytes: 1e11,
            call: 1e-6,
            region: 1e-4,
            transfer: 1e10,
            fuses: true,
            emulated: false,
        };
        let compile_target = |processor| CompileTarget {
            processor,
            threads: 2,
            sequences: 1,
            foreign_shaders: false,
        };
        let targets = [
            compile_target(Processor::Cpu),
            CompileTarget { threads: 3, ..compile_target(Processor::Cpu) },
            CompileTarget { sequences: 2, ..compile_target(Processor::Cpu) },
            CompileTarget { foreign_shaders: true, ..compile_target(Processor::Cpu) },
            compile_target(Processor::Device("vulkan", None)),
            compile_target(Processor::Device("vulkan", Some(rates))),
            compile_target(Processor::Fastest("vulkan", Some(rates))),
            compile_target(Processor::Fastest("vulkan", Some(Rates { transfer: 1e9, ..rates }))),
        ];
        let keys: std::collections::BTreeSet<String> =
            targets.iter().map(CompileTarget::key).collect();
        assert_eq!(keys.len(), targets.len());
    }
}
