//! What programs are compiled for, of the processors that there are.

use super::Compiling;
use crate::files::OpenProgram;
use torchlet_core::{Rates, Registry};
use torchlet_graph::{self as graph, Compiled, Processors};

/// The backend of programs that were lowered for GPUs.
pub(super) const GPU: &str = "VulkanBackend";
/// The backend of programs that were compiled for CPUs.
pub(super) const CPU_ENGINE: &str = "TorchletCpu";

/// What packs weights for the CPU engine.
#[cfg(feature = "portable")]
pub(super) type Packer = torchlet_portable::engine::WeightPacker;
/// There is none.
#[cfg(not(feature = "portable"))]
pub(super) type Packer = core::convert::Infallible;

/// What a program is compiled for, and all else that decides what comes of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Goal {
    pub(super) processor: Processor,
    /// The threads of the CPU.
    pub(super) threads: usize,
}

/// The processors that are considered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Processor {
    Cpu,
    /// A GPU for all that it takes, and the CPU for the rest.
    Gpu(Option<Rates>),
    /// A GPU and the CPU, each for what it does faster, if it is known how fast the GPU is; else as
    /// before.
    Fastest(Option<Rates>),
}

/// A GPU that is worth asking for.
pub(super) fn gpu(registry: &Registry<'_>) -> Option<Processor> {
    let backend = registry.backend(GPU)?;
    let rates = backend.rates();
    // The engine is faster than software that does as if it was a GPU.
    if rates.is_some_and(|rates| rates.emulated) {
        return None;
    }
    backend.is_available().ok().map(|()| Processor::Fastest(rates))
}

/// The GPU that was asked for by name, whatever it is.
pub(super) fn any_gpu(registry: &Registry<'_>) -> Processor {
    Processor::Gpu(registry.backend(GPU).and_then(|backend| backend.rates()))
}

impl Goal {
    /// All of it as a text, for the cache.
    pub(super) fn key(&self) -> String {
        // Weights are packed for one kind of machine.
        #[cfg(feature = "portable")]
        let machine = Packer::machine();
        #[cfg(not(feature = "portable"))]
        let machine = "";
        format!("{self:?} {:?} {machine}", self.kernels())
    }

    /// What packs weights meanwhile, if anything does: it outlives what is made.
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

    /// The CPU engine, if the registry has it. Without it, there are the kernels.
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

/// Any GPU, at these rates: what is compiled runs on others, too.
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
    fn whatever_decides_is_in_the_key() {
        let rates = Rates {
            operations: 1e12,
            bytes: 1e11,
            call: 1e-6,
            region: 1e-4,
            transfer: 1e10,
            fuses: true,
            emulated: false,
        };
        let goal = |processor| Goal { processor, threads: 2 };
        let goals = [
            goal(Processor::Cpu),
            Goal { threads: 3, ..goal(Processor::Cpu) },
            goal(Processor::Gpu(None)),
            goal(Processor::Gpu(Some(rates))),
            goal(Processor::Fastest(Some(rates))),
            goal(Processor::Fastest(Some(Rates { transfer: 1e9, ..rates }))),
        ];
        let keys: std::collections::BTreeSet<String> = goals.iter().map(Goal::key).collect();
        assert_eq!(keys.len(), goals.len());
    }
}
