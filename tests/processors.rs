//! Every program gives PyTorch's numbers on every processor, whatever it was exported for: as exported, on the CPU, compiled for kernels
//! alone. On GPUs, `vulkan/processors.rs` has the same.

#[cfg(all(feature = "std", feature = "portable"))]
mod common;

#[cfg(all(feature = "std", feature = "portable"))]
mod tests {
    use crate::common::{Fixture, check_programs, open, programs};
    use torchlet::core::Registry;
    use torchlet::portable::KERNELS;
    use torchlet::{Module, ModuleBuilder, RunOn};
    use torchlet_graph::cpu;

    /// For the CPU alone.
    fn plain() -> ModuleBuilder {
        Module::builder().threads(1).without_default_backends()
    }

    fn opened(fixture: &Fixture, builder: ModuleBuilder) -> Result<Module, String> {
        open(fixture, builder).map_err(|error| error.to_string())
    }

    #[test]
    fn cpus_give_pytorchs_numbers() {
        check_programs(&programs(), |fixture, _| opened(fixture, plain().run_on(RunOn::Cpu)));
    }

    #[test]
    fn kernels_alone_give_pytorchs_numbers() {
        let registry = Registry::new().with_kernels(&KERNELS).unwrap();
        check_programs(&programs(), |_, source| {
            let compiled = cpu::compile(&source.program(), source.data(), &registry);
            let mut program = compiled.map_err(|error| error.to_string())?.program;
            let outside = program.embed(source.data()).map_err(|error| error.to_string())?;
            if !outside.is_empty() {
                return Err(format!("{outside:?} are outside"));
            }
            let package = program.write().map_err(|error| error.to_string())?;
            let module = plain().run_on(RunOn::AsExported).from_bytes(package.to_bytes());
            module.map_err(|error| error.to_string())
        });
    }
}
