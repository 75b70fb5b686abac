//! Detects the DSP extension (`cfg(arm_dsp)`) and the Helium vector extension, MVE
//! (`cfg(arm_mve)`), of Cortex-M targets. Stable Rust has no `cfg` for either. On Armv7E-M
//! (`cfg(armv7em)`), which always has the DSP extension, whole functions may be assembly: the
//! assembler does not know the features of `target-cpu`.

use std::env;

/// Armv8-M processors for which rustc enables the DSP extension by default. All Armv7E-M processors
/// have it.
const WITH_DSP: &[&str] = &["cortex-m33", "cortex-m35p", "cortex-m55", "cortex-m85", "star-mc1"];
/// Processors for which rustc also enables integer MVE by default.
const WITH_MVE: &[&str] = &["cortex-m55", "cortex-m85"];

fn main() {
    println!("cargo:rustc-check-cfg=cfg(arm_dsp, arm_mve, armv7em)");
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
    // MVE implies the DSP extension, and `-mve` disables it explicitly.
    let declined = asked(&[], &["-mve", "-mve.fp"]);
    let mve = asked(WITH_MVE, &["+mve", "+mve.fp"]) && !declined;
    let dsp = mve || asked(WITH_DSP, &["+dsp"]);
    let is_mainline = target.starts_with("thumbv8m.main");
    let is_armv7em = target.starts_with("thumbv7em");
    if is_armv7em {
        println!("cargo:rustc-cfg=armv7em");
    }
    if is_armv7em || is_mainline && dsp {
        println!("cargo:rustc-cfg=arm_dsp");
    }
    if is_mainline && mve {
        println!("cargo:rustc-cfg=arm_mve");
    }
}
