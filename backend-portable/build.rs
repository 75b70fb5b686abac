//! Says whether the target has the DSP extension of Cortex-M (`cfg(arm_dsp)`) and its vectors
//! (`cfg(arm_mve)`: Helium), for which stable Rust has no `cfg`.

use std::env;

/// Processors of ARMv8-M whose DSP extension the compiler takes for granted. Of ARMv7E-M, all have
/// it.
const WITH_DSP: &[&str] = &["cortex-m33", "cortex-m35p", "cortex-m55", "cortex-m85", "star-mc1"];
/// Those whose vectors of integers it takes for granted, too.
const WITH_MVE: &[&str] = &["cortex-m55", "cortex-m85"];

fn main() {
    println!("cargo:rustc-check-cfg=cfg(arm_dsp, arm_mve)");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
    let target = env::var("TARGET").unwrap_or_default();
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let asked = |cpus: &[&str], features: &[&str]| {
        flags.split('\x1f').any(|flag| {
            let values =
                |name| flag.split_once(name).into_iter().flat_map(|(_, list)| list.split(','));
            values("target-cpu=").any(|cpu| cpus.contains(&cpu))
                || values("target-feature=").any(|feature| features.contains(&feature))
        })
    };
    // Vectors come with the DSP extension, and can be declined by name.
    let declined = asked(&[], &["-mve", "-mve.fp"]);
    let mve = asked(WITH_MVE, &["+mve", "+mve.fp"]) && !declined;
    let dsp = mve || asked(WITH_DSP, &["+dsp"]);
    let is_mainline = target.starts_with("thumbv8m.main");
    if target.starts_with("thumbv7em") || is_mainline && dsp {
        println!("cargo:rustc-cfg=arm_dsp");
    }
    if is_mainline && mve {
        println!("cargo:rustc-cfg=arm_mve");
    }
}
