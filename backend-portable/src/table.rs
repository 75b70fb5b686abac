//! Builds the sorted kernel table at compile time.

use torchlet_core::{Kernel, KernelError, Param, Plan, Prepare, is_less};

/// Declares the operators of a file: a public constant for each, and the list `KERNELS` of all.
/// Files that are re-exported as one module name their list: `kernels! { VIEWS: … }`.
///
/// Each item is `/// What it computes.`, then `NAME = kernel expression;`.
macro_rules! kernels {
    ($list:ident: $($(#[$doc:meta])* $id:ident = $kernel:expr;)*) => {
        $($(#[$doc])* pub const $id: torchlet_core::Kernel = $kernel;)*

        /// The kernels of this file.
        pub const $list: &[torchlet_core::Kernel] = &[$($id),*];
    };
    ($($(#[$doc:meta])* $id:ident = $kernel:expr;)*) => {
        kernels! { KERNELS: $($(#[$doc])* $id = $kernel;)* }
    };
}
pub(crate) use kernels;

/// Returns the same kernel with another name.
pub(crate) const fn renamed(kernel: Kernel, name: &'static str) -> Kernel {
    kernel.renamed(name)
}

const fn never(_: &mut Prepare) -> Result<Plan, KernelError> {
    Err(KernelError::unsupported("internal error: a kernel without functions"))
}

const fn equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// Returns the kernel named `name`.
///
/// For constants, where a failure is a compile-time error.
pub(crate) const fn named(groups: &[&[&[Kernel]]], name: &str) -> Kernel {
    let mut group = 0;
    while group < groups.len() {
        let (lists, mut i) = (groups[group], 0);
        while i < lists.len() {
            let mut j = 0;
            while j < lists[i].len() {
                if equal(lists[i][j].name, name) {
                    return lists[i][j];
                }
                j += 1;
            }
            i += 1;
        }
        group += 1;
    }
    if crate::OMITTED_FEATURE.is_some() {
        panic!(
            "torchlet-portable has no kernel with this name without the feature `linalg-special`"
        )
    }
    panic!("torchlet-portable has no kernel with this name")
}

/// Total number of kernels in groups of lists.
pub(crate) const fn count(groups: &[&[&[Kernel]]]) -> usize {
    let (mut total, mut group) = (0, 0);
    while group < groups.len() {
        let (lists, mut i) = (groups[group], 0);
        while i < lists.len() {
            total += lists[i].len();
            i += 1;
        }
        group += 1;
    }
    total
}

/// The kernels of groups of lists, sorted by name. `N` must be their [`count`].
///
/// For constants only, where a failure is a compile-time error.
pub(crate) const fn sorted<const N: usize>(groups: &[&[&[Kernel]]]) -> [Kernel; N] {
    const EMPTY: Kernel = Kernel::new("", &[] as &[Param], never);
    let mut table = [EMPTY; N];
    let (mut len, mut group) = (0, 0);
    while group < groups.len() {
        let (lists, mut i) = (groups[group], 0);
        while i < lists.len() {
            let mut j = 0;
            while j < lists[i].len() {
                table[len] = lists[i][j];
                len += 1;
                j += 1;
            }
            i += 1;
        }
        group += 1;
    }
    // Bottom-up merge sort: constant evaluation limits the number of loop steps.
    let mut run = 1;
    while run < N {
        table = merged(&table, run);
        run *= 2;
    }
    let mut i = 1;
    while i < N {
        // A second kernel of the same name must have a key of dtypes or layouts.
        let (a, b) = (&table[i - 1], &table[i]);
        if equal(a.name, b.name) && a.key.is_none() && b.key.is_none() {
            panic!("two kernels have the same name");
        }
        i += 1;
    }
    table
}

/// Merges pairs of adjacent sorted runs of length `run`.
const fn merged<const N: usize>(table: &[Kernel; N], run: usize) -> [Kernel; N] {
    let (mut out, mut first) = (*table, 0);
    while first < N {
        let middle = if N - first < run { N } else { first + run };
        let end = if N - middle < run { N } else { middle + run };
        let (mut left, mut right, mut slot) = (first, middle, first);
        while slot < end {
            let takes_right =
                right < end && (left == middle || is_less(table[right].name, table[left].name));
            out[slot] = if takes_right { table[right] } else { table[left] };
            if takes_right {
                right += 1;
            } else {
                left += 1;
            }
            slot += 1;
        }
        first = end;
    }
    out
}

#[cfg(test)]
mod tests {
    use crate::{FAMILIES, LINALG_SPECIAL};
    use std::path::Path;
    use std::{fs, io};

    /// Number of files below a folder that declare kernels.
    fn count_declaring_files(folder: &Path) -> io::Result<usize> {
        let mut count = 0;
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            count += match path.is_dir() {
                true => count_declaring_files(&path)?,
                false => {
                    let text = fs::read_to_string(&path)?;
                    text.lines().filter(|line| line.starts_with("kernels! {")).count()
                }
            };
        }
        Ok(count)
    }

    /// Firmware tables look kernels up by name, so each name must identify one kernel.
    #[test]
    fn every_kernel_is_found_by_name() {
        for kernel in &crate::KERNELS {
            let found = crate::kernel(kernel.name);
            assert_eq!((found.name, found.key), (kernel.name, kernel.key));
            assert_eq!(found.prepare as usize, kernel.prepare as usize, "{}", kernel.name);
        }
        assert!(crate::KERNELS.windows(2).all(|pair| pair[0].name != pair[1].name));
    }

    #[test]
    #[should_panic = "no kernel with this name"]
    fn unknown_names_panic() {
        crate::kernel("aten::nothing.out");
    }

    #[test]
    fn every_kernel_list_is_registered() {
        if crate::OMITTED_FEATURE.is_none() {
            let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
            let lists = FAMILIES.len() + LINALG_SPECIAL.len();
            assert_eq!(count_declaring_files(&sources).unwrap(), lists);
        }
    }
}
