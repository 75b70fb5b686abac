#![doc = env!("CARGO_PKG_DESCRIPTION")]
#![no_std]
#![no_main]

#[riscv_rt::entry]
fn main() -> ! {
    firmware::run()
}
