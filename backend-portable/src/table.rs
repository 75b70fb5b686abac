//! Building the sorted kernel table at compile time.

use torchlet_core::{Kernel, KernelError, Param, Plan, Prepare};

/// Declares the operators of a file: a public constant for each, and `KERNELS`, the list of all.
///
/// `/// What it computes.`, then `NAME = kernel expression;`.
macro_rules! kernels {
    ($($(#[$doc:meta])* $id:ident = $kernel:expr;)*) => {
        $($(#[$doc])* pub const $id: torchlet_core::Kernel = $kernel;)*

        /// The kernels of this file.
        pub const KERNELS: &[torchlet_core::Kernel] = &[$($id),*];
    };
}
pub(crate) use kernels;

/// The same kernel under another name.
pub(crate) const fn renamed(kernel: Kernel, name: &'static str) -> Kernel {
    kernel.renamed(name)
}

const fn never(_: &mut Prepare) -> Result<Plan, KernelError> {
    Err(KernelError::Unsupported { what: "no kernel" })
}

const fn less(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() {
        if a[i] != b[i] {
            return a[i] < b[i];
        }
        i += 1;
    }
    a.len() < b.len()
}

/// Number of kernels in several lists.
pub(crate) const fn count(lists: &[&[Kernel]]) -> usize {
    let (mut total, mut i) = (0, 0);
    while i < lists.len() {
        total += lists[i].len();
        i += 1;
    }
    total
}

/// The kernels of several lists, sorted by name. `N` must be their [`count`].
///
/// In constants only: what could go wrong is an error of the compiler there.
pub(crate) const fn sorted<const N: usize>(lists: &[&[Kernel]]) -> [Kernel; N] {
    const EMPTY: Kernel = Kernel::new("", &[] as &[Param], never);
    let mut table = [EMPTY; N];
    let (mut len, mut i) = (0, 0);
    while i < lists.len() {
        let mut j = 0;
        while j < lists[i].len() {
            let kernel = lists[i][j];
            let mut place = len;
            while place > 0 && less(kernel.name, table[place - 1].name) {
                table[place] = table[place - 1];
                place -= 1;
            }
            // A second kernel of a name has to be for types or layouts of its own.
            if place > 0
                && !less(table[place - 1].name, kernel.name)
                && kernel.key.is_none()
                && table[place - 1].key.is_none()
            {
                panic!("two kernels have the same name");
            }
            table[place] = kernel;
            len += 1;
            j += 1;
        }
        i += 1;
    }
    table
}
