//! What delegates keep from call to call.

use crate::common::{check, fixture, open};
use crate::device::device_is_there;
use torchlet::Module;

const STATEFUL: &[&str] = &[
    "vulkan/program/running_sum.bpte",
    "vulkan/program/two_states.bpte",
    "vulkan/program/cache.bpte",
];

#[test]
fn it_persists_until_it_is_reset() {
    if !device_is_there() {
        return;
    }
    for file in STATEFUL {
        let fixture = fixture(file);
        let source = open(&fixture, Module::builder()).unwrap();
        let mut module = source.share();
        check(&mut module, &source, &fixture).unwrap_or_else(|what| panic!("{file}: {what}"));
        // The state has changed by now, or this test would prove nothing.
        if !file.contains("cache") {
            assert!(check(&mut module, &source, &fixture).is_err(), "{file} has no state");
        }
        module.reset("forward").unwrap();
        check(&mut module, &source, &fixture)
            .unwrap_or_else(|what| panic!("{file}, after a reset: {what}"));
    }
}

#[test]
fn every_module_has_its_own() {
    if !device_is_there() {
        return;
    }
    for file in STATEFUL {
        let fixture = fixture(file);
        let source = open(&fixture, Module::builder()).unwrap();
        let mut modules: Vec<Module> = (0..3).map(|_| source.share()).collect();
        let bundle = source.bundled().unwrap();
        let suite = bundle.suites().unwrap().next().unwrap().unwrap();
        // In turns: each step on every module before the next step.
        for case in suite.cases().unwrap() {
            let case = case.unwrap();
            for module in &mut modules {
                crate::common::check_case(module, "forward", &case, &fixture)
                    .unwrap_or_else(|what| panic!("{file}: {what}"));
            }
        }
    }
}
