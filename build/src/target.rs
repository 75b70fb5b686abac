//! The machine for which the image is built.

use torchlet_core::{Machine, PointerWidth};

/// Processors, and their target triples.
const PROCESSORS: &[(&str, &str)] = &[
    ("cortex-m0", "thumbv6m-none-eabi"),
    ("cortex-m0plus", "thumbv6m-none-eabi"),
    ("cortex-m3", "thumbv7m-none-eabi"),
    ("cortex-m4", "thumbv7em-none-eabi"),
    ("cortex-m4f", "thumbv7em-none-eabihf"),
    ("cortex-m7", "thumbv7em-none-eabihf"),
    ("cortex-m23", "thumbv8m.base-none-eabi"),
    ("cortex-m33", "thumbv8m.main-none-eabihf"),
    ("cortex-m55", "thumbv8m.main-none-eabihf"),
    ("cortex-m85", "thumbv8m.main-none-eabihf"),
];

/// A target machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    name: String,
    width: PointerWidth,
    has_vectors: bool,
}

impl Target {
    /// Parses a target triple, such as `thumbv7em-none-eabihf`, a processor such as `cortex-m4f`,
    /// or a pointer width, `32` or `64`.
    ///
    /// # Errors
    /// If the pointer width of the target is unknown.
    pub fn parse(name: &str) -> Result<Self, String> {
        let processor = PROCESSORS.iter().find(|(processor, _)| *processor == name);
        let name = processor.map_or(name, |(_, triple)| *triple);
        let starts = |with: &[&str]| with.iter().any(|start| name.starts_with(start));
        let is_32 = [
            "32", "thumb", "arm", "riscv32", "i386", "i586", "i686", "wasm32", "xtensa", "mips-",
            "mipsel-",
        ];
        let is_64 = [
            "64",
            "x86_64",
            "aarch64",
            "arm64",
            "riscv64",
            "powerpc64",
            "loongarch64",
            "s390x",
            "wasm64",
        ];
        let width = match name {
            // Checked first, because `arm64` also starts with `arm`.
            _ if starts(&is_64) => PointerWidth::Bits64,
            _ if starts(&is_32) => PointerWidth::Bits32,
            _ => return Err("unknown pointer width; use 32 or 64 instead of the target".into()),
        };
        let has_vectors =
            starts(&["64", "x86_64", "aarch64", "arm64"]) && !name.ends_with("softfloat");
        Ok(Target { name: name.into(), width, has_vectors })
    }

    /// The target of a build script, from Cargo's variables, whatever its name.
    pub(crate) fn described(name: &str, width: &str, arch: &str) -> Result<Self, String> {
        let width = match width {
            "32" => PointerWidth::Bits32,
            "64" => PointerWidth::Bits64,
            _ => return Err(format!("unsupported pointer width {width}; expected 32 or 64")),
        };
        let has_vectors = matches!(arch, "x86_64" | "aarch64") && !name.ends_with("softfloat");
        Ok(Target { name: name.into(), width, has_vectors })
    }

    /// The name from which it was created.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether compiled programs use the DSP extension of Cortex-M4 and M7. (On Cortex-M33, it is
    /// an option that the name does not tell; Cortex-M55 has vectors.)
    pub(crate) fn has_dsp(&self) -> bool {
        self.name.starts_with("thumbv7em")
    }

    /// Whether programs in C use the DSP extension. It is an option of Armv8-M Mainline; kernels in
    /// C also have loops without it.
    pub(crate) fn has_dsp_in_c(&self) -> bool {
        self.has_dsp() || self.name.starts_with("thumbv8m.main")
    }

    /// The machine for which methods are prepared.
    pub fn machine(&self) -> Machine {
        Machine::Scalar(self.width)
    }

    /// Pointer width of the machine.
    pub fn pointer_width(&self) -> PointerWidth {
        self.width
    }

    /// Whether its kernels use vector instructions, so that their requirements depend on the
    /// processor.
    pub fn has_vectors(&self) -> bool {
        self.has_vectors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointer_width_of_triples() {
        let width = |name| Target::parse(name).map(|target| target.pointer_width());
        assert_eq!(width("thumbv7em-none-eabihf"), Ok(PointerWidth::Bits32));
        assert_eq!(width("riscv32imac-unknown-none-elf"), Ok(PointerWidth::Bits32));
        assert_eq!(width("arm64e-apple-ios"), Ok(PointerWidth::Bits64));
        assert_eq!(width("64"), Ok(PointerWidth::Bits64));
        assert!(width("pdp11").unwrap_err().contains("use 32 or 64"));
    }

    #[test]
    fn processors_have_triples() {
        for (name, triple) in PROCESSORS {
            let target = Target::parse(name).unwrap();
            assert_eq!((target.name(), target.has_vectors()), (*triple, false));
            assert_eq!(target.pointer_width(), PointerWidth::Bits32);
        }
        assert!(Target::parse("cortex-a53").is_err());
    }

    #[test]
    fn custom_targets_use_cargo_variables() {
        let board = Target::described("our_board", "32", "arm").unwrap();
        assert_eq!((board.pointer_width(), board.has_vectors()), (PointerWidth::Bits32, false));
        let server = Target::described("our_server", "64", "x86_64").unwrap();
        assert_eq!((server.pointer_width(), server.has_vectors()), (PointerWidth::Bits64, true));
        assert!(
            Target::described("avr", "16", "avr")
                .unwrap_err()
                .contains("unsupported pointer width 16")
        );
    }

    #[test]
    fn vector_support_by_target() {
        let has_vectors = |name| Target::parse(name).map(|target| target.has_vectors());
        assert_eq!(has_vectors("aarch64-unknown-none"), Ok(true));
        assert_eq!(has_vectors("aarch64-unknown-none-softfloat"), Ok(false));
        assert_eq!(has_vectors("thumbv8m.main-none-eabihf"), Ok(false));
    }
}
