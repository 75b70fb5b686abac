//! Registry of the available kernels and backends, built and passed in by the caller.

use crate::backend::Backend;
use crate::dtype::ScalarType;
use crate::error::code;
use crate::kernel::Kernel;
use crate::meta::MethodMeta;
use crate::runtime_features::{RuntimeFeatures, has};
use crate::values::Tensor;
use core::cmp::Ordering;
use core::fmt;

/// Maximum number of kernel tables in a registry.
pub const MAX_TABLES: usize = 8;
/// Maximum number of backends in a registry.
pub const MAX_BACKENDS: usize = 8;

/// Errors of building a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum RegistryError {
    /// Two kernels with this name are registered for the same dtypes and layouts.
    DuplicateKernel {
        /// Name of the operator.
        name: &'static str,
    },
    /// A table is not sorted by name.
    Unsorted {
        /// First name that is out of order.
        name: &'static str,
    },
    /// More than [`MAX_TABLES`] tables.
    TooManyTables,
    /// Two backends have the same name.
    DuplicateBackend {
        /// Name of the backend.
        name: &'static str,
    },
    /// More than [`MAX_BACKENDS`] backends.
    TooManyBackends,
}

impl RegistryError {
    /// Corresponding ExecuTorch error code.
    pub fn code(&self) -> u32 {
        match self {
            RegistryError::DuplicateKernel { .. } | RegistryError::DuplicateBackend { .. } => {
                code::REGISTRATION_ALREADY_REGISTERED
            }
            RegistryError::TooManyTables | RegistryError::TooManyBackends => {
                code::REGISTRATION_EXCEEDING_MAX_KERNELS
            }
            RegistryError::Unsorted { .. } => code::INVALID_ARGUMENT,
        }
    }
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegistryError::DuplicateKernel { name } => {
                write!(f, "two kernels are registered for {name} with the same dtypes and layouts")
            }
            RegistryError::Unsorted { name } => {
                write!(f, "a kernel table is not sorted by name: {name} is out of order")
            }
            RegistryError::TooManyTables => {
                write!(f, "more than {MAX_TABLES} kernel tables; merge some")
            }
            RegistryError::DuplicateBackend { name } => write!(f, "two backends are named {name}"),
            RegistryError::TooManyBackends => {
                write!(f, "more than {MAX_BACKENDS} backends")
            }
        }
    }
}

impl core::error::Error for RegistryError {}

/// The kernels and backends that programs can use.
///
/// Kernels come in tables sorted by name, usually `static`; unlisted kernels are not linked. A
/// kernel with a matching key takes precedence over the one without a key; if several keys match,
/// the first in table order wins. Registering the same key twice is an error.
#[derive(Clone, Copy, Default)]
pub struct Registry<'r> {
    /// The registered tables; the rest of the array is empty.
    tables: [&'r [Kernel]; MAX_TABLES],
    backends: [Option<&'r dyn Backend>; MAX_BACKENDS],
}

impl fmt::Debug for Registry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernels: usize = self.tables.iter().map(|table| table.len()).sum();
        write!(f, "Registry({kernels} kernels, {} backends)", self.backends().count())
    }
}

/// Finds the kernels with this name in a sorted table.
fn kernels_named<'r>(table: &'r [Kernel], name: &OperatorName<'_>) -> &'r [Kernel] {
    let first = table.partition_point(|kernel| name.compare(kernel.name).is_gt());
    let tail = table.get(first..).unwrap_or(&[]);
    let count = tail.iter().take_while(|kernel| name.compare(kernel.name).is_eq()).count();
    tail.get(..count).unwrap_or(&[])
}

impl<'r> Registry<'r> {
    /// Creates an empty registry.
    pub const fn new() -> Self {
        Registry { tables: [&[]; MAX_TABLES], backends: [None; MAX_BACKENDS] }
    }

    /// Adds a table of kernels, sorted by name.
    ///
    /// # Errors
    /// The table is not sorted or contains a registered kernel, or the registry has [`MAX_TABLES`]
    /// tables.
    pub fn with_kernels(mut self, table: &'r [Kernel]) -> Result<Self, RegistryError> {
        let mut rest = table;
        while let Some((kernel, tail)) = rest.split_first() {
            if let Some(next) = tail.first()
                && next.name < kernel.name
            {
                return Err(RegistryError::Unsorted { name: next.name });
            }
            let name = OperatorName { name: kernel.name, overload: "" };
            let is_duplicate = |other: &Kernel| other.key == kernel.key;
            // Kernels of the same name are adjacent in this table.
            let mut same = tail.iter().take_while(|other| other.name == kernel.name);
            let mut tables = self.tables.iter();
            if same.any(is_duplicate)
                || tables.any(|table| kernels_named(table, &name).iter().any(is_duplicate))
            {
                return Err(RegistryError::DuplicateKernel { name: kernel.name });
            }
            rest = tail;
        }
        let free = self.tables.iter_mut().find(|table| table.is_empty());
        *free.ok_or(RegistryError::TooManyTables)? = table;
        Ok(self)
    }

    /// Adds a backend.
    ///
    /// # Errors
    /// A backend of that name is registered, or the registry has [`MAX_BACKENDS`] backends.
    pub fn with_backend(mut self, backend: &'r dyn Backend) -> Result<Self, RegistryError> {
        let name = backend.name();
        if self.backend(name).is_some() {
            return Err(RegistryError::DuplicateBackend { name });
        }
        let free = self.backends.iter_mut().find(|slot| slot.is_none());
        *free.ok_or(RegistryError::TooManyBackends)? = Some(backend);
        Ok(self)
    }

    /// Looks up a backend by name.
    pub fn backend(&self, name: &str) -> Option<&'r dyn Backend> {
        self.backends().find(|backend| backend.name() == name)
    }

    /// All kernels, table by table.
    pub fn kernels(&self) -> impl Iterator<Item = &'r Kernel> {
        self.tables.iter().flat_map(|table| table.iter())
    }

    /// All backends.
    pub fn backends(&self) -> impl Iterator<Item = &'r dyn Backend> {
        self.backends.iter().copied().flatten()
    }

    /// Whether a kernel is registered for this operator.
    pub fn has_operator(&self, name: &str) -> bool {
        self.has(&OperatorName { name, overload: "" })
    }

    fn has(&self, name: &OperatorName<'_>) -> bool {
        self.tables.iter().any(|table| !kernels_named(table, name).is_empty())
    }

    /// Finds the kernel with this name whose key matches the tensor arguments, or else the one
    /// without a key. `tensor` returns the n-th tensor argument.
    pub(crate) fn find<'t, 'm: 't>(
        &self,
        name: &OperatorName<'_>,
        tensor: impl Fn(usize) -> Option<Tensor<'t, 'm>>,
    ) -> Option<&'r Kernel> {
        let fits = |key: &[(ScalarType, &[u8])]| {
            key.iter().enumerate().all(|(position, (scalar_type, dim_order))| {
                tensor(position).is_some_and(|tensor| {
                    tensor.scalar_type == *scalar_type
                        && (dim_order.is_empty() || tensor.has_order(dim_order))
                })
            })
        };
        let mut fallback = None;
        for table in &self.tables {
            for kernel in kernels_named(table, name) {
                match kernel.key {
                    Some(key) if fits(key) => return Some(kernel),
                    Some(_) => {}
                    None => fallback = Some(kernel),
                }
            }
        }
        fallback
    }
}

/// Operators and backends that a method needs and a registry lacks.
#[derive(Debug, Clone)]
pub struct Missing<'p> {
    pub(crate) meta: MethodMeta<'p>,
    pub(crate) registry: &'p Registry<'p>,
}

impl<'p> Missing<'p> {
    /// Names of the missing operators.
    pub fn operators(&self) -> impl Iterator<Item = OperatorName<'p>> + use<'p> {
        let registry = self.registry;
        self.meta.operators().flatten().filter(move |name| !registry.has(name))
    }

    /// Names of the missing backends. Consecutive delegates of the same backend yield one name.
    pub fn backends(&self) -> impl Iterator<Item = &'p str> + use<'p> {
        let Missing { meta, registry } = *self;
        let mut last = None;
        let count = if has(RuntimeFeatures::DELEGATES) { meta.delegate_count() } else { 0 };
        let names = (0..count).filter_map(move |index| meta.delegate_backend(index));
        names.filter(move |name| {
            registry.backend(name).is_none() && last.replace(*name) != Some(*name)
        })
    }

    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.operators().next().is_none() && self.backends().next().is_none()
    }

    /// Corresponding ExecuTorch error code.
    pub fn code(&self) -> u32 {
        if self.operators().next().is_some() { code::OPERATOR_MISSING } else { code::NOT_FOUND }
    }
}

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "operators not registered: ";
        for name in self.operators() {
            write!(f, "{separator}{name}")?;
            separator = ", ";
        }
        separator = if separator == ", " {
            "; backends not registered: "
        } else {
            "backends not registered: "
        };
        for name in self.backends() {
            write!(f, "{separator}{name}")?;
            separator = ", ";
        }
        Ok(())
    }
}

/// Operator name in a file, as name and overload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperatorName<'p> {
    pub(crate) name: &'p str,
    pub(crate) overload: &'p str,
}

impl<'p> OperatorName<'p> {
    /// The name without overload.
    pub fn name(&self) -> &'p str {
        self.name
    }

    /// The overload name, empty for the default overload.
    pub fn overload(&self) -> &'p str {
        self.overload
    }

    /// Compares with a full name, such as `aten::add.out`.
    fn compare(&self, other: &str) -> Ordering {
        let dot = if self.overload.is_empty() { "" } else { "." };
        let mut rest = other.as_bytes();
        for piece in [self.name, dot, self.overload] {
            let len = piece.len().min(rest.len());
            let start = rest.split_off(..len).unwrap_or_default();
            match piece.as_bytes().cmp(start) {
                Ordering::Equal => {}
                unequal => return unequal,
            }
        }
        0.cmp(&rest.len())
    }
}

impl fmt::Display for OperatorName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if !self.overload.is_empty() {
            write!(f, ".{}", self.overload)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::KernelError;
    use crate::kernel::KernelKey;

    const BYTES: KernelKey = &[(ScalarType::Byte, &[])];
    const FLOATS: KernelKey = &[(ScalarType::Float, &[])];

    const fn kernel(name: &'static str) -> Kernel {
        Kernel::new(name, &[], |_| Err(KernelError::unsupported("nothing")))
    }

    #[test]
    fn tables_must_be_sorted_without_duplicates() {
        let table = [
            kernel("a::a"),
            kernel("a::b"),
            kernel("a::b").keyed(BYTES),
            kernel("a::b").keyed(FLOATS),
            kernel("a::c").keyed(BYTES),
        ];
        let registry = Registry::new().with_kernels(&table).unwrap();
        assert!(registry.has_operator("a::b") && !registry.has_operator("a::d"));
        let twice = |name| Some(RegistryError::DuplicateKernel { name });
        let refused = |registry: Registry<'_>, table: &[Kernel]| registry.with_kernels(table).err();
        // A separate table may add keys that other tables lack.
        assert_eq!(refused(registry, &[kernel("a::b").keyed(BYTES)]), twice("a::b"));
        assert_eq!(refused(registry, &[kernel("a::c")]), None);
        let apart = [
            kernel("a::b").keyed(BYTES),
            kernel("a::b").keyed(FLOATS),
            kernel("a::b").keyed(BYTES),
        ];
        assert_eq!(refused(Registry::new(), &apart), twice("a::b"));
        assert_eq!(refused(Registry::new(), &[kernel("a::b"), kernel("a::b")]), twice("a::b"));
        let unsorted = [kernel("a::a"), kernel("a::c"), kernel("a::b")];
        assert_eq!(
            refused(Registry::new(), &unsorted),
            Some(RegistryError::Unsorted { name: "a::b" })
        );
    }
}
