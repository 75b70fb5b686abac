//! Programs lowered for Vulkan run on portable kernels and match PyTorch's outputs.

#[cfg(all(feature = "std", feature = "portable"))]
mod common;

#[cfg(all(feature = "std", feature = "portable"))]
mod tests {
    use crate::common::{Fixture, allow_steps_at_ties, check, check_all, fixtures, folder, open};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use torchlet::Module;
    use torchlet::core::{BundledProgram, DataMap, Program, Registry};

    /// A fixture with its delegates replaced by portable instructions.
    fn portable(fixture: &Fixture) -> Result<Vec<u8>, String> {
        let read = |file: &str| std::fs::read(folder().join(file)).map_err(|e| e.to_string());
        let file = read(&fixture.file)?;
        let bytes = if BundledProgram::is_bundled(&file) {
            let bundle = BundledProgram::from_bytes(&file).map_err(|e| e.to_string())?;
            bundle.program().map_err(|e| e.to_string())?
        } else {
            &file
        };
        let data: Result<Vec<Vec<u8>>, String> =
            fixture.data.iter().map(|name| read(name)).collect();
        let data = data?;
        let maps: Result<Vec<DataMap<'_>>, _> =
            data.iter().map(|bytes| DataMap::from_bytes(bytes)).collect();
        let maps = maps.map_err(|e| e.to_string())?;
        let program = Program::from_bytes(bytes).map_err(|e| e.to_string())?;
        let registry = Registry::new().with_kernels(&torchlet::portable::KERNELS);
        let registry = registry.map_err(|e| e.to_string())?;
        let lowered = torchlet_graph::cpu::to_portable(&program, &maps, &registry);
        let lowered = lowered.map_err(|e| e.to_string())?;
        Ok(lowered.write().map_err(|e| e.to_string())?.to_bytes())
    }

    #[test]
    fn outputs_match_pytorch() {
        let needs = |fixture: &Fixture| fixture.backends.iter().any(|name| name == "VulkanBackend");
        let mut fixtures: Vec<Fixture> = fixtures().into_iter().filter(needs).collect();
        allow_steps_at_ties(&mut fixtures);
        assert!(fixtures.len() > 400, "the manifest lists {} files for Vulkan", fixtures.len());
        let cases = AtomicUsize::new(0);
        let failures = check_all(&fixtures, |fixture| {
            let builder = || Module::builder().threads(1).without_default_backends();
            let source = open(fixture, builder()).map_err(|e| e.to_string())?;
            let module = builder().from_bytes(portable(fixture)?).map_err(|e| e.to_string())?;
            cases.fetch_add(check(&mut module.share(), &source, fixture)?, Ordering::Relaxed);
            Ok(())
        });
        assert!(failures.is_empty(), "{} files differ:\n{}", failures.len(), failures.join("\n"));
        println!("{} cases of {} files", cases.into_inner(), fixtures.len());
    }
}
