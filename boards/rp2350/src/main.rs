#![doc = env!("CARGO_PKG_DESCRIPTION")]
#![no_std]
#![no_main]

/// Minimal image definition block for the boot ROM: an image for the Arm cores in the secure state
/// (RP2350 datasheet, 5.9.5.1).
#[unsafe(link_section = ".start_block")]
#[used]
static IMAGE: [u32; 5] = [0xffff_ded3, 0x1021_0142, 0x0000_01ff, 0x0000_0000, 0xab12_3579];

#[cortex_m_rt::entry]
fn main() -> ! {
    firmware::run()
}
