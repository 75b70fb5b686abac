//! Says whether the target has the DSP extension of Cortex-M (`cfg(arm_dsp)`), for which stable Rust has no `cfg`.

use std::env;

/// Processors of ARMv8-M whose DSP extension the compiler takes for granted. Of ARMv7E-M, all have it.
const WITH_DSP: &[&str] = &["cortex-m33", "cortex-m35p", "cortex-m55", "cortex-m85", "star-mc1"];

fn main() {
    println!("cargo:rustc-check-cfg=cfg(arm_dsp)");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
    let target = env::var("TARGET").unwrap_or_default();
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let asked = flags.split('\x1f').any(|flag| {
        let values = |name| flag.split_once(name).into_iter().flat_map(|(_, list)| list.split(','));
        values("target-cpu=").any(|cpu| WITH_DSP.contains(&cpu))
            || values("target-feature=").any(|feature| feature == "+dsp")
    });
    if target.starts_with("thumbv7em") || target.starts_with("thumbv8m.main") && asked {
        println!("cargo:rustc-cfg=arm_dsp");
    }
}
