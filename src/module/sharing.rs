//! Detects which methods of a program share state.
//!
//! ExecuTorch's `share_mutable_buffers` assigns each mutable buffer of a model the same offset in
//! every method, in a separate planned buffer with the same size in all methods. The file does not
//! record this, but it is visible in the memory plan: tensors of different methods in that buffer
//! are either identical or disjoint. The ranges of planned activations overlap arbitrarily instead.

use std::collections::BTreeMap;
use torchlet_core::{MethodMeta, Program, ProgramError, ScalarType, ValueMeta};

/// A tensor in a planned buffer: its size, dtype, and name if the exporter kept it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PlannedTensor<'p> {
    bytes: usize,
    scalar_type: ScalarType,
    name: Option<&'p str>,
}

impl PlannedTensor<'_> {
    /// Whether both describe the same tensor. A name may be missing in some methods.
    fn is(&self, other: &Self) -> bool {
        self.bytes == other.bytes
            && self.scalar_type == other.scalar_type
            && (self.name == other.name || self.name.is_none() || other.name.is_none())
    }
}

/// Tensors in one planned buffer, by offset.
#[derive(Debug, Default)]
struct PlannedTensors<'p>(BTreeMap<usize, PlannedTensor<'p>>);

impl<'p> PlannedTensors<'p> {
    /// Adds a tensor. Returns whether it equals one that is present, or is disjoint from all of
    /// them.
    fn agrees(&mut self, offset: usize, tensor: PlannedTensor<'p>) -> bool {
        if tensor.bytes == 0 {
            return true;
        }
        if let Some(other) = self.0.get_mut(&offset) {
            let same = other.is(&tensor);
            other.name = other.name.or(tensor.name);
            return same;
        }
        let before = self.0.range(..offset).next_back();
        let after = self.0.range(offset..).next();
        let is_apart = before.is_none_or(|(start, other)| other.bytes <= offset - start)
            && after.is_none_or(|(start, _)| tensor.bytes <= start - offset);
        self.0.insert(offset, tensor);
        is_apart
    }
}

/// Methods with tensors in one planned buffer.
#[derive(Debug)]
struct BufferUsers<'p> {
    methods: Vec<&'p str>,
    bytes: usize,
    tensors: PlannedTensors<'p>,
    agree: bool,
}

/// How the methods of a program use planned buffers after the first one.
#[derive(Debug)]
pub(super) struct Sharing<'p> {
    /// Methods that share state: those with tensors in a planned buffer after the first. The buffer
    /// must have the same size in all of them, and any two tensors in it must be identical or
    /// disjoint. Empty if this fails for any such buffer used by several methods: methods share all
    /// of these buffers or none.
    pub(super) together: Vec<&'p str>,
    /// Whether the buffers can be shared: no two methods use one for different tensors.
    pub(super) agree: bool,
}

impl<'p> Sharing<'p> {
    pub(super) fn of(program: &Program<'p>) -> Result<Self, ProgramError> {
        let mut buffers: BTreeMap<usize, BufferUsers<'p>> = BTreeMap::new();
        // Every value occupies at least four bytes in the file. Malicious files list the same
        // values in many methods; they must not cost more time than a valid file of the same size.
        let mut steps = program.flatbuffer_size() / 4;
        for (position, name) in program.method_names()?.enumerate() {
            let meta = program.method_meta(name?)?;
            match steps.checked_sub(position.saturating_add(meta.value_count())) {
                Some(rest) => steps = rest,
                None => return Ok(Sharing { together: Vec::new(), agree: false }),
            }
            collect_planned_tensors(&meta, &mut buffers)?;
        }
        let mut together: Vec<&'p str> = Vec::new();
        let mut agree = true;
        for users in buffers.into_values().filter(|users| users.methods.len() > 1) {
            agree &= users.agree;
            together.extend(users.methods);
        }
        if !agree {
            together.clear();
        }
        together.sort_unstable();
        together.dedup();
        Ok(Sharing { together, agree })
    }
}

/// Records the tensors of a method in planned buffers after the first.
fn collect_planned_tensors<'p>(
    meta: &MethodMeta<'p>,
    buffers: &mut BTreeMap<usize, BufferUsers<'p>>,
) -> Result<(), ProgramError> {
    if meta.planned_buffer_count() < 2 {
        return Ok(());
    }
    for index in 0..meta.value_count() {
        let Some((buffer, offset)) = meta.planned_offset(index)?.filter(|(buffer, _)| *buffer > 0)
        else {
            continue;
        };
        let Some(ValueMeta::Tensor(tensor)) = meta.value_meta(index)? else { continue };
        let bytes = meta.planned_buffer_size(buffer)?;
        let users = buffers.entry(buffer).or_insert_with(|| BufferUsers {
            methods: Vec::new(),
            bytes,
            tensors: PlannedTensors::default(),
            agree: true,
        });
        if users.methods.last() != Some(&meta.name()) {
            users.methods.push(meta.name());
        }
        let planned = PlannedTensor {
            bytes: tensor.info.nbytes(),
            scalar_type: tensor.info.scalar_type,
            name: tensor.name,
        };
        users.agree &= users.bytes == bytes && users.tensors.agrees(offset, planned);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(bytes: usize, name: Option<&str>) -> PlannedTensor<'_> {
        PlannedTensor { bytes, scalar_type: ScalarType::Float, name }
    }

    fn agree(tensors: &[(usize, PlannedTensor<'_>)]) -> bool {
        let mut found = PlannedTensors::default();
        tensors.iter().fold(true, |all, (offset, tensor)| all & found.agrees(*offset, *tensor))
    }

    #[test]
    fn identical_or_disjoint_tensors_agree() {
        let (small, large) = (planned(16, None), planned(32, None));
        assert!(agree(&[]));
        assert!(agree(&[(0, small), (16, large), (48, small), (0, small), (16, large)]));
        assert!(agree(&[(16, large), (0, small)]));
        // Overlaps with the preceding and the following tensor, and different tensors at one
        // offset.
        assert!(!agree(&[(0, large), (16, small)]));
        assert!(!agree(&[(16, small), (0, large)]));
        assert!(!agree(&[(0, small), (0, large)]));
        let other = PlannedTensor { scalar_type: ScalarType::Int, ..small };
        assert!(!agree(&[(0, small), (0, other)]));
        // An empty tensor overlaps nothing.
        assert!(agree(&[(0, large), (16, planned(0, None))]));
    }

    #[test]
    fn different_names_disagree() {
        let (a, b, none) = (planned(4, Some("a")), planned(4, Some("b")), planned(4, None));
        assert!(agree(&[(0, a), (0, none), (0, a)]));
        assert!(!agree(&[(0, a), (0, b)]));
        assert!(!agree(&[(0, none), (0, a), (0, b)]));
    }

    fn shared_in(name: &str) -> Vec<String> {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/programs");
        let module = crate::Module::load(path.join(name)).unwrap();
        let sharing = Sharing::of(&module.program()).unwrap();
        assert!(sharing.agree);
        sharing.together.into_iter().map(String::from).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "opens files")]
    fn detects_shared_state() {
        assert_eq!(shared_in("state_shared.bpte"), ["count", "read", "write"]);
        assert_eq!(shared_in("state_shared_unnamed.bpte"), ["count", "read", "write"]);
        assert_eq!(shared_in("state_shared_initialized.bpte"), ["count", "read", "write"]);
        for other in ["state_apart.bpte", "two_methods.bpte", "state_named.bpte", "cond.bpte"] {
            assert!(shared_in(other).is_empty(), "{other}");
        }
    }
}
