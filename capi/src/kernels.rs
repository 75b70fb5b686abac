//! CPU kernels as separate symbols, so that the linker keeps only those that a program names.
//!
//! `list.rs` and `torchlet_kernels.h` are generated from the kernel table of `torchlet-portable` by
//! `cargo xtask capi --overwrite`; a test compares them.

pub mod list;

use torchlet_core::Kernel;

/// A kernel of torchlet, for `torchlet_registry_add_kernels`. Programs only take its address.
#[repr(transparent)]
pub struct torchlet_kernel(Kernel);

impl torchlet_kernel {
    pub(crate) fn kernel(&self) -> Kernel {
        self.0
    }
}

/// Defines the symbols.
macro_rules! symbols {
    ($($(#[$condition:meta])* $symbol:ident = $name:literal;)*) => {
        $(
            $(#[$condition])*
            #[doc = concat!("`", $name, "`.")]
            #[allow(non_upper_case_globals, reason = "named after its C symbol")]
            #[unsafe(no_mangle)]
            pub static $symbol: $crate::kernels::torchlet_kernel =
                $crate::kernels::torchlet_kernel(torchlet_portable::kernel($name));
        )*
    };
}
use symbols;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::string::String;
    use std::vec::Vec;
    use std::{env, format, fs, path::Path};

    /// The symbol of an operator.
    fn symbol(name: &str) -> String {
        let word =
            |character: char| if character.is_ascii_alphanumeric() { character } else { '_' };
        let words: String = name.replace("::", "_").chars().map(word).collect();
        format!("torchlet_kernel_{words}")
    }

    #[cfg(feature = "linalg-special")]
    #[test]
    fn every_kernel_has_a_symbol() {
        let mut symbols = BTreeMap::new();
        for kernel in &torchlet_portable::KERNELS {
            let former = symbols.insert(symbol(kernel.name), kernel.name);
            assert!(former.is_none_or(|former| former == kernel.name), "{former:?}");
        }
        let mut list = String::from(
            "//! Symbols of the kernels. `cargo xtask capi --overwrite` writes this file.\n\n\
             super::symbols! {\n",
        );
        let mut header = String::from(
            "/* The kernels of torchlet, for torchlet_registry_add_kernels.\n\
             \x20* `cargo xtask capi --overwrite` writes this file. */\n\n\
             #ifndef TORCHLET_KERNELS_H\n#define TORCHLET_KERNELS_H\n\n#include \"torchlet.h\"\n\n\
             #ifdef __cplusplus\nextern \"C\" {\n#endif\n\n",
        );
        let optional: Vec<&str> =
            torchlet_portable::LINALG_SPECIAL.iter().copied().flatten().map(|it| it.name).collect();
        let (optional, base): (Vec<_>, Vec<_>) =
            symbols.iter().partition(|(_, name)| optional.contains(name));
        for (symbol, name) in base {
            list += &format!("    {symbol} = \"{name}\";\n");
            header += &format!("extern const torchlet_kernel {symbol};\n");
        }
        header += "\n/* Kernels of torch.linalg and torch.special, in libraries with the feature \
                   `linalg-special` or `std`. */\n";
        for (symbol, name) in optional {
            list += "    #[cfg(feature = \"linalg-special\")]\n";
            list += &format!("    {symbol} = \"{name}\";\n");
            header += &format!("extern const torchlet_kernel {symbol};\n");
        }
        list += "}\n";
        header += "\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n";
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for (path, text) in [("src/kernels/list.rs", list), ("include/torchlet_kernels.h", header)]
        {
            let path = root.join(path);
            if env::var_os("TORCHLET_OVERWRITE").is_some() {
                fs::write(&path, &text).unwrap();
            }
            let found = fs::read_to_string(&path).unwrap_or_default();
            let hint = "does not match the table of kernels: run `cargo xtask capi --overwrite`";
            assert!(found == text, "{} {hint}", path.display());
        }
    }
}
