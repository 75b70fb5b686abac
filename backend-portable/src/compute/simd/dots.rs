//! Instruction sets for int8 dot products. Processors with the same `f32` tier can differ in these.

use super::Tier;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Kind {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Vnni,
    #[cfg(target_arch = "x86_64")]
    Amx,
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Dot,
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    I8mm,
}

/// Instruction set for int8 dot products. As with [`Tier`], a value other than [`Dots::PLAIN`]
/// proves that the processor has the instructions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Dots(Kind);

/// Instruction sets for which int8 kernels exist.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Instructions {
    /// Plain Rust.
    Plain,
    /// AVX2: multiply-add of pairs of 16-bit integers.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 VNNI: dot products of four unsigned with four signed bytes.
    #[cfg(target_arch = "x86_64")]
    Vnni,
    /// `dotprod` of 64-bit Arm: dot products of four signed bytes.
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Dot,
    /// `dotprod` and `i8mm` of 64-bit Arm: matrix multiplication of 2×8 with 8×2 signed bytes.
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    I8mm,
}

impl Dots {
    /// Plain Rust, valid on every processor.
    pub(crate) const PLAIN: Dots = Dots(Kind::Plain);

    /// The best instructions within a tier.
    pub(crate) fn of(tier: Tier) -> Self {
        Dots::available(tier).last().unwrap_or(Dots::PLAIN)
    }

    /// All instruction sets available within a tier, slowest first. The first is always plain Rust.
    pub(crate) fn available(tier: Tier) -> impl Iterator<Item = Dots> {
        let kinds: &'static [(Kind, fn(Tier) -> bool)] = &[
            (Kind::Plain, |_| true),
            // Every x86-64 tier except the scalar one includes AVX2.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx2, |tier| tier != Tier::SCALAR),
            #[cfg(target_arch = "x86_64")]
            (Kind::Vnni, |tier| tier.is_avx512() && has_vnni()),
            #[cfg(target_arch = "x86_64")]
            (Kind::Amx, |tier| tier.is_amx() && has_vnni()),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            (Kind::Dot, |tier| tier != Tier::SCALAR && has_dotprod()),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            (Kind::I8mm, |tier| tier != Tier::SCALAR && has_dotprod() && has_i8mm()),
        ];
        kinds.iter().filter(move |(_, present)| present(tier)).map(|(kind, _)| Dots(*kind))
    }

    /// The instruction set to run kernels with.
    pub(crate) const fn instructions(self) -> Instructions {
        match self.0 {
            Kind::Plain => Instructions::Plain,
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => Instructions::Avx2,
            #[cfg(target_arch = "x86_64")]
            Kind::Vnni | Kind::Amx => Instructions::Vnni,
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Kind::Dot => Instructions::Dot,
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Kind::I8mm => Instructions::I8mm,
        }
    }

    /// Whether AMX tiles are available in addition: matrix multiplication of 16×64 with 64×16
    /// bytes.
    #[cfg(target_arch = "x86_64")]
    pub(crate) const fn has_tiles(self) -> bool {
        matches!(self.0, Kind::Amx)
    }

    /// Offset added to each quantized value of the left operand, for instructions that need it
    /// unsigned.
    pub(crate) const fn offset(self) -> i32 {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Vnni | Kind::Amx => 128,
            _ => 0,
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn has_vnni() -> bool {
    std::arch::is_x86_feature_detected!("avx512vnni")
}

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
fn has_dotprod() -> bool {
    std::arch::is_aarch64_feature_detected!("dotprod")
}

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
fn has_i8mm() -> bool {
    std::arch::is_aarch64_feature_detected!("i8mm")
}
