#![doc = env!("CARGO_PKG_DESCRIPTION")]
#![no_std]
#![no_main]

#[cortex_m_rt::entry]
fn main() -> ! {
    firmware::run()
}
