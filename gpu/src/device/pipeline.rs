//! The identity of a compute pipeline.

use torchlet_shaders::Module;

/// The key of a compute pipeline: a shader, its specialisation constants and its workgroup size.
#[derive(Debug, Clone)]
pub struct PipelineKey {
    /// The shader module.
    pub module: Module,
    /// The values of the specialisation constants.
    pub constants: Vec<u32>,
    /// The invocations of a workgroup in each dim.
    pub workgroup: [u32; 3],
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
