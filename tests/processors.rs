//! Every program gives PyTorch's numbers on every processor, whatever it was exported for: as exported, on the CPU, compiled for kernels
//! alone, and on a GPU. Where there is none, the last is not run, and says so.

#[cfg(all(feature = "std", feature = "portable"))]
mod common;
#[cfg(feature = "vulkan")]
#[path = "common/vulkan.rs"]
mod device;

#[cfg(all(feature = "std", feature = "portable"))]
mod tests {
    use crate::common::{Fixture, check, check_all, fixtures, open};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use torchlet::core::Registry;
    use torchlet::portable::KERNELS;
    use torchlet::{Module, ModuleBuilder, RunOn};
    use torchlet_graph::cpu;

    /// Operators that there is no kernel for, as `bundled.rs` has them.
    const MISSING: &[&str] = &["aten::_trilinear.out"];

    /// The programs that there are backends for.
    fn programs() -> Vec<Fixture> {
        let known = |fixture: &Fixture| {
            fixture.backends.iter().all(|backend| backend == "VulkanBackend")
                && !fixture.operators.iter().any(|name| MISSING.contains(&name.as_str()))
        };
        let programs: Vec<Fixture> = fixtures().into_iter().filter(known).collect();
        assert!(programs.len() > 1500, "the manifest lists {} programs", programs.len());
        programs
    }

    /// Runs all test cases of programs on what `runner` makes of them.
    fn check_programs(
        programs: &[Fixture],
        runner: impl Fn(&Fixture, &Module) -> Result<Module, String> + Sync,
    ) {
        let cases = AtomicUsize::new(0);
        let failures = check_all(programs, |fixture| {
            let source = open(fixture, Module::builder().run_on(RunOn::AsExported));
            let source = source.map_err(|error| error.to_string())?;
            let mut runner = runner(fixture, &source)?;
            cases.fetch_add(check(&mut runner, &source, fixture)?, Ordering::Relaxed);
            Ok(())
        });
        println!("{} cases of {} programs", cases.into_inner(), programs.len());
        assert!(
            failures.is_empty(),
            "{} programs differ:\n{}",
            failures.len(),
            failures.join("\n")
        );
    }

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
