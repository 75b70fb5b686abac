//! Cortex-M.

use cortex_m as _;

/// RAM of the board.
pub(crate) const RAM: usize = 0x2003_0000;

#[cortex_m_rt::entry]
fn main() -> ! {
    crate::run()
}

/// The chip's own interrupts, as many as the Cortex-M4 of Arm's MPS2 board has. Without this table,
/// `cortex-m-rt` reserves 240.
#[unsafe(link_section = ".vector_table.interrupts")]
#[unsafe(no_mangle)]
static __INTERRUPTS: [unsafe extern "C" fn(); 32] = {
    unsafe extern "C" {
        fn DefaultHandler();
    }
    [DefaultHandler; 32]
};
