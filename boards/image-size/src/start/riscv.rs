//! RISC-V.

/// RAM of the board.
pub(crate) const RAM: usize = 0x8008_0000;

#[riscv_rt::entry]
fn main() -> ! {
    crate::run()
}
