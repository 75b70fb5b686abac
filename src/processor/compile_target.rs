//! Compilation targets of a program.

use super::Compiling;
use crate::files::OpenProgram;
use torchlet_core::{Rates, Registry};
use torchlet_graph::{self as graph, Compiled, Processors};

/// Backend of programs lowered for GPUs.
pub(super) const GPU: &str = "VulkanBackend";
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
}

/// Devices that the compiler considers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Processor {
    Cpu,
    /// The GPU for every operator that it supports, and the CPU for the rest.
    Gpu(Option<Rates>),
    /// The GPU or the CPU for each part, whichever is faster. Without known GPU rates, as
    /// [`Gpu`](Self::Gpu).
    Fastest(Option<Rates>),
}

/// The GPU, if it is available and not a software driver.
pub(super) fn gpu(registry: &Registry<'_>) -> Option<Processor> {
    let backend = registry.backend(GPU)?;
    let rates = backend.rates();
    // Software Vulkan drivers are slower than the CPU engine.
    if rates.is_some_and(|rates| rates.emulated) {
        return None;
    }
    backend.is_available().ok().map(|()| Processor::Fastest(rates))
}

/// The explicitly requested GPU, of any kind.
pub(super) fn any_gpu(registry: &Registry<'_>) -> Processor {
    Processor::Gpu(registry.backend(GPU).and_then(|backend| backend.rates()))
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
        let rates = match self.processor {
            Processor::Cpu => {
                let targets: Vec<&dyn graph::Target> = engine.as_deref().into_iter().collect();
                let processors = own(Processors::preferring(&targets));
                #[cfg(feature = "portable")]
                if let Some(packer) = packer {
                    return graph::cpu::compile_packed(program, data, processors, packer, registry);
                }
                let _ = packer;
                return graph::cpu::compile(program, data, processors, registry);
            }
            Processor::Gpu(rates) | Processor::Fastest(rates) => rates,
        };
        let gpu = gpu_target(rates)?;
        let targets: Vec<&dyn graph::Target> =
            [gpu.as_ref()].into_iter().chain(engine.as_deref()).collect();
        let processors = match self.processor {
            Processor::Fastest(_) => Processors::cheapest(&targets),
            _ => Processors::preferring(&targets),
        };
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

/// A generic GPU target with these rates. The compiled program also runs on other GPUs.
#[cfg(feature = "vulkan")]
fn gpu_target(rates: Option<Rates>) -> Result<Box<dyn graph::Target>, graph::Error> {
    Ok(Box::new(torchlet_vulkan::VulkanTarget::any().with_rates(rates)))
}

#[cfg(not(feature = "vulkan"))]
fn gpu_target(_: Option<Rates>) -> Result<Box<dyn graph::Target>, graph::Error> {
    Err(graph::Error::unsupported("GPUs; enable torchlet's feature `vulkan`"))
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
        let compile_target = |processor| CompileTarget { processor, threads: 2 };
        let targets = [
            compile_target(Processor::Cpu),
            CompileTarget { threads: 3, ..compile_target(Processor::Cpu) },
            compile_target(Processor::Gpu(None)),
            compile_target(Processor::Gpu(Some(rates))),
            compile_target(Processor::Fastest(Some(rates))),
            compile_target(Processor::Fastest(Some(Rates { transfer: 1e9, ..rates }))),
        ];
        let keys: std::collections::BTreeSet<String> =
            targets.iter().map(CompileTarget::key).collect();
        assert_eq!(keys.len(), targets.len());
    }
}
