//! Optimization passes over graphs.
//!
//! Each pass is a module, and the module documentation is the contract of the pass. "Needs" lists
//! preconditions, "Keeps" what the pass leaves unchanged, and "Rounding" how results may change.
//! The module's `run` returns the number of changes. [`run`] runs all passes of [`PASSES`] in order
//! on a graph that [`verify`](verify::verify) accepts.
//!
//! All passes keep the ids of inputs, outputs and updates. A call that overwrites a value in place
//! stays where it is, and so do the calls that read that value. If sizes are only upper bounds,
//! passes draw no conclusions from them.
//!
//! [`PASSES`] does not contain the passes that depend on the processor:
//!
//! - [`permuted`] and [`strided`] need certain operators.
//! - [`tosa`], [`quantized`], [`dynamic`], [`dynamic_convolution`], [`lookup`] and [`volumes`]
//!   query which calls a processor supports, and run before constant folding.
//! - [`pieces`] depends on a single device and is run by backends.
//! - [`epilogue`] fuses the calls for which a processor has [fused forms](crate::FusedForms).
//!   Backends run it when they load a region, since compiled programs contain the calls before
//!   fusion.

pub mod activations;
pub mod attention;
pub mod batch_norm;
pub mod common;
mod constant;
pub mod dead;
pub mod dynamic;
pub mod dynamic_convolution;
pub mod epilogue;
pub mod linear;
pub mod lookup;
mod masks;
pub mod narrow;
pub mod permuted;
pub mod pieces;
pub mod quantized;
pub mod redundant;
mod rewrite;
pub mod rms_norm;
mod shapes;
pub mod softmax;
pub mod strided;
#[cfg(test)]
pub(crate) mod text;
pub mod tosa;
pub mod uses;
pub mod verify;
mod views;
pub mod volumes;
mod weights;

use crate::error::Error;
use crate::graph::Graph;
use alloc::format;

/// An optimization pass.
pub struct Pass {
    /// Name of the pass.
    pub name: &'static str,
    /// Runs the pass. Returns the number of changes.
    pub run: fn(&mut Graph<'_>) -> usize,
}

/// Lists passes by module name.
macro_rules! passes {
    ($($module:ident),* $(,)?) => { &[$(Pass { name: stringify!($module), run: $module::run }),*] };
}

/// All passes that do not depend on the processor, in the order that they run. Pattern matching
/// needs graphs without redundant or duplicate calls, so those are removed first, and again after
/// the patterns.
pub const PASSES: &[Pass] = passes![
    redundant,
    common,
    dead,
    softmax,
    dead,
    attention,
    linear,
    dead,
    batch_norm,
    rms_norm,
    activations,
    narrow,
    redundant,
    common,
    dead,
];

/// Runs all passes.
///
/// # Errors
/// The graph is invalid, or, in debug builds, which verify after each pass, a pass made it invalid.
pub fn run(graph: &mut Graph<'_>) -> Result<(), Error> {
    verify::verify(graph)?;
    for pass in PASSES {
        (pass.run)(graph);
        if cfg!(debug_assertions) {
            let named = |error| {
                Error::Invalid(format!("internal error: {error} (after the pass `{}`)", pass.name))
            };
            verify::verify(graph).map_err(named)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Value;
    use alloc::string::ToString;

    /// A graph with a pattern for every pass.
    const TEXT: &str = "in x f32[2,4,8]
        in m f32[4,4]
        const w f32[8,8] = 0.5
        const b f32[8] = 1
        const one f32[] = 1
        const half f32[] = 0.5
        t f32[8,8] = aten.permute_copy.default(w, [1, 0])
        x2 f32[8,8] = aten.view_copy.default(x, [8, 8])
        y f32[8,8] = aten.addmm.default(b, x2, t)
        [z f32[8,8], z1 f32[0], z2 f32[0]] = \
            aten._native_batch_norm_legit_no_training.default(y, b, b, b, b, 0.1, 1e-5)
        q f32[2,4,8] = aten.view_copy.default(z, [2, 4, 8])
        k f32[2,8,4] = aten.permute_copy.default(q, [0, 2, 1])
        ks f32[2,8,4] = aten.mul.Tensor(k, half)
        s f32[2,4,4] = aten.bmm.default(q, ks)
        sm f32[2,4,4] = aten.add.Tensor(s, m, one)
        p f32[2,4,4] = aten._softmax.default(sm, -1, false)
        o f32[2,4,8] = aten.bmm.default(p, q)
        oc f32[2,4,8] = aten.clone.default(o, none)
        g f32[2,4,8] = aten.sigmoid.default(oc)
        h f32[2,4,8] = aten.mul.Tensor(oc, g)
        sq f32[2,4,8] = aten.pow.Tensor_Scalar(h, 2)
        mean f32[2,4,1] = aten.mean.dim(sq, [-1], true)
        me f32[2,4,1] = aten.add.Scalar(mean, 1e-6, 1)
        r f32[2,4,1] = aten.rsqrt.default(me)
        n f32[2,4,8] = aten.mul.Tensor(h, r)
        nw f32[2,4,8] = aten.mul.Tensor(n, b)
        c f32[4,4,8] = aten.cat.default([nw, h], 0)
        d f32[2,4,8] = aten.slice_copy.Tensor(c, 0, 1, 3, 1)
        out d h";

    #[test]
    fn all_find_what_they_look_for() {
        let mut graph = text::parse(TEXT);
        run(&mut graph).unwrap();
        let expected = [
            "aten.linear.default",
            "aten.view_copy.default",
            "et_vk.sdpa.default",
            "aten.view_copy.default",
            "aten.silu.default",
            "et_vk.rms_norm.default",
            "aten.cat.default",
            "aten.slice_copy.Tensor",
        ];
        let found = text::operators(&graph);
        for operator in expected {
            assert!(found.contains(&operator), "{operator} in {found:?}");
        }
        assert!(found.len() <= 12, "{found:?}");
        // A second run changes nothing.
        let calls = text::calls(&graph);
        run(&mut graph).unwrap();
        assert_eq!(text::calls(&graph), calls);
    }

    #[test]
    fn damaged_graphs_do_no_harm() {
        let mut seed = 1u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % below
        };
        let rounds = if cfg!(miri) { 20 } else { 800 };
        for _ in 0..rounds {
            let mut graph = text::parse(TEXT);
            for _ in 0..=random(3) {
                let (node, value) = (random(graph.nodes.len()), random(graph.values.len() + 1));
                let args = graph.nodes[node].args.len();
                match random(6) {
                    0 | 1 => graph.nodes[node].args[random(args)] = value,
                    2 => drop(graph.nodes[node].args.remove(random(args))),
                    3 => graph.nodes[node].operator = graph.nodes[random(20)].operator,
                    4 => match graph.values.get_mut(value) {
                        Some(Value::Tensor(tensor)) if !tensor.sizes.is_empty() => {
                            let dim = random(tensor.sizes.len());
                            tensor.sizes[dim] = [0, 1, 2, 8, 1 << 40][random(5)];
                        }
                        Some(Value::IntList(items)) if !items.is_empty() => {
                            items[0] = [-9, 0, 1, 2, i64::MIN, i64::MAX][random(6)];
                        }
                        Some(Value::Int(number)) => {
                            *number = [-9, 0, 3, i64::MIN, i64::MAX][random(5)];
                        }
                        _ => {}
                    },
                    _ => graph.outputs.push(value),
                }
            }
            for pass in [run, |graph: &mut Graph<'_>| {
                strided::run(graph);
                verify::verify(graph)
            }] {
                let right = verify::verify(&graph).is_ok();
                let result = pass(&mut graph);
                // Invalid graphs are rejected, and valid graphs stay valid.
                assert_eq!(
                    result.is_ok(),
                    right,
                    "{:?}",
                    result.map_err(|error| error.to_string())
                );
                if !right {
                    break;
                }
            }
        }
    }
}
