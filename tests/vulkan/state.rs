//! State that delegates keep between calls.

use crate::common::{check, fixture, folder, open};
use crate::device::{device_is_there, on_device};
use torchlet::{Module, RunOn, ScalarType, Tensor};

const STATEFUL: &[&str] = &[
    "vulkan/program/running_sum.bpte",
    "vulkan/program/cache.bpte",
    "vulkan/state/apart.bpte",
    "vulkan/state/ring.bpte",
    "vulkan/state/delay_aliased.bpte",
    "vulkan/state/two_states_aliased.bpte",
    "vulkan/state/unread_input.bpte",
    "vulkan/state/weight.bpte",
    "vulkan/state/linear.bpte",
    "vulkan/state/linear_aliased.bpte",
    "vulkan/state/conv2d.bpte",
    "vulkan/state/transposed_aliased.bpte",
    "vulkan/state/batch_norm.bpte",
];

/// Files that do not specify which new value belongs to which buffer, or which argument is which
/// input; with the number of inputs, and a part of the error message.
const REFUSED: &[(&str, usize, &str)] = &[
    ("vulkan/state/overwritten_input.bpte", 2, "in several ways"),
    ("vulkan/program/two_states.bpte", 1, "alias_buffer_mutations"),
    ("vulkan/state/delay.bpte", 1, "alias_buffer_mutations"),
    // The new value of one buffer, the old value of the other, is not written.
    ("vulkan/state/fibonacci.bpte", 1, "constants 0, 2"),
    // Nor are the contents of the other.
    ("vulkan/state/fibonacci_aliased.bpte", 1, "lost a buffer"),
];

#[test]
fn state_persists_until_reset() {
    if !device_is_there() {
        return;
    }
    for file in STATEFUL {
        let fixture = fixture(file);
        let source = open(&fixture, on_device()).unwrap();
        let mut module = source.share();
        check(&mut module, &source, &fixture).unwrap_or_else(|what| panic!("{file}: {what}"));
        // The state has changed; otherwise, this test would prove nothing.
        if !file.contains("cache") {
            assert!(check(&mut module, &source, &fixture).is_err(), "{file} has no state");
        }
        module.reset("forward").unwrap();
        check(&mut module, &source, &fixture)
            .unwrap_or_else(|what| panic!("{file}, after a reset: {what}"));
    }
}

#[test]
fn ambiguous_state_is_rejected() {
    if !device_is_there() {
        return;
    }
    for (file, inputs, reason) in REFUSED {
        let mut module =
            Module::builder().run_on(RunOn::AsExported).load(folder().join(file)).unwrap();
        let input = Tensor::ones(ScalarType::Float, &[2, 3]).unwrap();
        let error = module.forward(vec![&input; *inputs]).unwrap_err();
        assert!(format!("{error:?} {error}").contains(reason), "{file}: {error}");
    }
}

#[test]
fn every_module_has_its_own_state() {
    if !device_is_there() {
        return;
    }
    for file in STATEFUL {
        let fixture = fixture(file);
        let source = open(&fixture, on_device()).unwrap();
        let mut modules: Vec<Module> = (0..3).map(|_| source.share()).collect();
        let bundle = source.bundled().unwrap();
        let suite = bundle.suites().unwrap().next().unwrap().unwrap();
        // Interleaved: each step on every module before the next step.
        for case in suite.cases().unwrap() {
            let case = case.unwrap();
            for module in &mut modules {
                crate::common::check_case(module, "forward", &case, &fixture)
                    .unwrap_or_else(|what| panic!("{file}: {what}"));
            }
        }
    }
}
