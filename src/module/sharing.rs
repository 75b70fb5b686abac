//! Which methods of a program keep state together.
//!
//! ExecuTorch's `share_mutable_buffers` gives each mutable buffer of a model the same place in
//! every method, in a planned buffer of its own that every method lists in the same size. Nothing
//! in the file says so, but it shows: what lies in such a buffer is the same in all methods, or
//! elsewhere. Where an exporter plans activations, their ranges overlap as it comes.

use std::collections::BTreeMap;
use torchlet_core::{MethodMeta, Program, ProgramError, ScalarType, ValueMeta};

/// A tensor in a planned buffer: its bytes, its type, and its name where the exporter kept it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Resident<'p> {
    bytes: usize,
    scalar_type: ScalarType,
    name: Option<&'p str>,
}

impl Resident<'_> {
    /// Whether both are one tensor. Methods may differ in whether they name it.
    fn is(&self, other: &Self) -> bool {
        self.bytes == other.bytes
            && self.scalar_type == other.scalar_type
            && (self.name == other.name || self.name.is_none() || other.name.is_none())
    }
}

/// What lies in one planned buffer, by offset.
#[derive(Debug, Default)]
struct Residents<'p>(BTreeMap<usize, Resident<'p>>);

impl<'p> Residents<'p> {
    /// Adds a tensor; whether it is one that is there already, or apart from all of them.
    fn agrees(&mut self, offset: usize, tensor: Resident<'p>) -> bool {
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

/// The methods that have tensors in one planned buffer.
#[derive(Debug)]
struct Tenants<'p> {
    methods: Vec<&'p str>,
    bytes: usize,
    residents: Residents<'p>,
    agree: bool,
}

/// Which methods of a program use planned buffers behind the first, and how.
#[derive(Debug)]
pub(super) struct Sharing<'p> {
    /// The methods that keep state together: those with tensors in such a buffer, if its size is
    /// the same in all of them, and any two tensors there, of one method or of two, are the same or
    /// apart. None, if that does not hold of every such buffer that several methods use: methods
    /// share all of their buffers or none.
    pub(super) together: Vec<&'p str>,
    /// Whether methods can share such buffers: no two want one for something else.
    pub(super) agree: bool,
}

impl<'p> Sharing<'p> {
    pub(super) fn of(program: &Program<'p>) -> Result<Self, ProgramError> {
        let mut buffers: BTreeMap<usize, Tenants<'p>> = BTreeMap::new();
        // Every value takes four bytes at least. A file whose methods list the same ones again and
        // again is up to no good, and must not take more time than an honest one of its size.
        let mut steps = program.flatbuffer_size() / 4;
        for (position, name) in program.method_names()?.enumerate() {
            let meta = program.method_meta(name?)?;
            match steps.checked_sub(position.saturating_add(meta.value_count())) {
                Some(rest) => steps = rest,
                None => return Ok(Sharing { together: Vec::new(), agree: false }),
            }
            survey(&meta, &mut buffers)?;
        }
        let mut together: Vec<&'p str> = Vec::new();
        let mut agree = true;
        for tenants in buffers.into_values().filter(|tenants| tenants.methods.len() > 1) {
            agree &= tenants.agree;
            together.extend(tenants.methods);
        }
        if !agree {
            together.clear();
        }
        together.sort_unstable();
        together.dedup();
        Ok(Sharing { together, agree })
    }
}

/// Notes what a method has in its planned buffers behind the first.
fn survey<'p>(
    meta: &MethodMeta<'p>,
    buffers: &mut BTreeMap<usize, Tenants<'p>>,
) -> Result<(), ProgramError> {
    if meta.planned_buffer_count() < 2 {
        return Ok(());
    }
    for index in 0..meta.value_count() {
        let Some((buffer, offset)) = meta.planned_place(index)?.filter(|(buffer, _)| *buffer > 0)
        else {
            continue;
        };
        let Some(ValueMeta::Tensor(tensor)) = meta.value_meta(index)? else { continue };
        let bytes = meta.planned_buffer_size(buffer)?;
        let tenants = buffers.entry(buffer).or_insert_with(|| Tenants {
            methods: Vec::new(),
            bytes,
            residents: Residents::default(),
            agree: true,
        });
        if tenants.methods.last() != Some(&meta.name()) {
            tenants.methods.push(meta.name());
        }
        let resident = Resident {
            bytes: tensor.info.nbytes(),
            scalar_type: tensor.info.scalar_type,
            name: tensor.name,
        };
        tenants.agree &= tenants.bytes == bytes && tenants.residents.agrees(offset, resident);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident(bytes: usize, name: Option<&str>) -> Resident<'_> {
        Resident { bytes, scalar_type: ScalarType::Float, name }
    }

    fn agree(tensors: &[(usize, Resident<'_>)]) -> bool {
        let mut residents = Residents::default();
        tensors.iter().fold(true, |all, (offset, tensor)| all & residents.agrees(*offset, *tensor))
    }

    #[test]
    fn tensors_agree_if_they_are_the_same_or_apart() {
        let (small, large) = (resident(16, None), resident(32, None));
        assert!(agree(&[]));
        assert!(agree(&[(0, small), (16, large), (48, small), (0, small), (16, large)]));
        assert!(agree(&[(16, large), (0, small)]));
        // Neighbours in the way, before and behind, and another tensor at the same place.
        assert!(!agree(&[(0, large), (16, small)]));
        assert!(!agree(&[(16, small), (0, large)]));
        assert!(!agree(&[(0, small), (0, large)]));
        let other = Resident { scalar_type: ScalarType::Int, ..small };
        assert!(!agree(&[(0, small), (0, other)]));
        // Without elements, a tensor is in nobody's way.
        assert!(agree(&[(0, large), (16, resident(0, None))]));
    }

    #[test]
    fn names_must_not_differ() {
        let (a, b, none) = (resident(4, Some("a")), resident(4, Some("b")), resident(4, None));
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
    fn programs_that_share_state_are_told_from_others() {
        assert_eq!(shared_in("state_shared.bpte"), ["count", "read", "write"]);
        assert_eq!(shared_in("state_shared_unnamed.bpte"), ["count", "read", "write"]);
        assert_eq!(shared_in("state_shared_initialized.bpte"), ["count", "read", "write"]);
        for other in ["state_apart.bpte", "two_methods.bpte", "state_named.bpte", "cond.bpte"] {
            assert!(shared_in(other).is_empty(), "{other}");
        }
    }
}
