//! How sums of products of bytes are computed: beside the instructions for `f32`, processors of one
//! tier differ in these.

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
    Squares,
}

/// The instructions for sums of products of bytes. As [`Tier`], a value other than the plain one
/// proves that the processor has them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Dots(Kind);

/// What loops are written for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Instructions {
    /// Plain Rust.
    Plain,
    /// AVX2: products of pairs of 16 bits.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 with VNNI: products of four unsigned and signed bytes at a time.
    #[cfg(target_arch = "x86_64")]
    Vnni,
    /// 64-bit Arm's `dotprod`: products of four signed bytes at a time.
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Dot,
    /// 64-bit Arm's `i8mm` as well: products of matrices of 2×8 and 8×2 signed bytes.
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Squares,
}

impl Dots {
    /// Plain Rust, right on every processor.
    pub(crate) const PLAIN: Dots = Dots(Kind::Plain);

    /// The best instructions within a tier.
    pub(crate) fn of(tier: Tier) -> Self {
        Dots::available(tier).last().unwrap_or(Dots::PLAIN)
    }

    /// All that there are within a tier, slowest first; the plain ones are always among them.
    pub(crate) fn available(tier: Tier) -> impl Iterator<Item = Dots> {
        let kinds: &'static [(Kind, fn(Tier) -> bool)] = &[
            (Kind::Plain, |_| true),
            // Tiers of x86-64 but the plain one have AVX2.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx2, |tier| tier != Tier::SCALAR),
            #[cfg(target_arch = "x86_64")]
            (Kind::Vnni, |tier| tier.is_avx512() && has_vnni()),
            #[cfg(target_arch = "x86_64")]
            (Kind::Amx, |tier| tier.is_amx() && has_vnni()),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            (Kind::Dot, |tier| tier != Tier::SCALAR && has_dotprod()),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            (Kind::Squares, |tier| tier != Tier::SCALAR && has_dotprod() && has_i8mm()),
        ];
        kinds.iter().filter(move |(_, present)| present(tier)).map(|(kind, _)| Dots(*kind))
    }

    /// What to compute with.
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
            Kind::Squares => Instructions::Squares,
        }
    }

    /// Whether there are AMX's tiles as well: products of matrices of 16×64 and 64×16 bytes.
    #[cfg(target_arch = "x86_64")]
    pub(crate) const fn has_tiles(self) -> bool {
        matches!(self.0, Kind::Amx)
    }

    /// What is added to each code of the left operand of a product: some instructions take unsigned
    /// ones.
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
