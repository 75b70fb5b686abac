//! State that only one region accesses is stored in that region, on the device. It remains part of
//! the method's state: listed, read, written, saved, reset.

use crate::common::{check, fixture, open};
use crate::device::device_is_there;
use torchlet::{Module, ModuleBuilder, RunOn, Tensor, Value};

/// Files, and the number of their state tensors when compiled for GPUs, in delegates or in the
/// method itself.
const FILES: &[(&str, usize)] = &[
    ("vulkan/program/running_sum.bpte", 1),
    ("vulkan/program/cache.bpte", 2),
    ("vulkan/program/noted.bpte", 1),
    ("vulkan/state/apart.bpte", 3),
    ("vulkan/state/ring.bpte", 2),
    ("vulkan/state/delay_aliased.bpte", 2),
    ("vulkan/state/two_states_aliased.bpte", 2),
    ("vulkan/state/unread_input.bpte", 1),
    ("programs/state_window.bpte", 1),
    ("cells/key_value.bpte", 2),
    ("cells/rows.bpte", 1),
    ("cells/recurrent.bpte", 1),
    ("cells/line.bpte", 2),
    ("cells/swap.bpte", 2),
    ("cells/given.bpte", 1),
    ("cells/noted.bpte", 1),
    ("cells/twice.bpte", 1),
    ("vulkan/cells/key_value.bpte", 2),
    ("vulkan/cells/rows.bpte", 1),
    ("vulkan/cells/recurrent.bpte", 1),
    ("vulkan/cells/noted.bpte", 1),
];

fn for_gpus() -> ModuleBuilder {
    Module::builder().threads(1).run_on(RunOn::Device("vulkan"))
}

/// Contents of all state tensors of a module's method.
fn state(module: &mut Module) -> Vec<Tensor> {
    let method = module.method("forward").unwrap();
    let state = method.state().unwrap();
    state.iter().map(|state| method.read_state(state.value).unwrap()).collect()
}

/// Inputs of a file's first test case.
fn first_inputs(module: &Module) -> Vec<Value> {
    let bundle = module.bundled().unwrap();
    let suite = bundle.suites().unwrap().next().unwrap().unwrap();
    let case = suite.cases().unwrap().next().unwrap().unwrap();
    crate::common::inputs(&case).unwrap()
}

#[test]
fn state_stays_in_its_region() {
    if !device_is_there() {
        return;
    }
    for (file, count) in FILES {
        let fixture = fixture(file);
        let source = open(&fixture, for_gpus()).unwrap();
        let mut module = source.share();
        let before = state(&mut module);
        assert_eq!(before.len(), *count, "{file}");
        check(&mut module, &source, &fixture).unwrap_or_else(|what| panic!("{file}: {what}"));
        assert_ne!(state(&mut module), before, "{file}");
        module.reset("forward").unwrap();
        assert_eq!(state(&mut module), before, "{file}");
        check(&mut module, &source, &fixture)
            .unwrap_or_else(|what| panic!("{file}, after a reset: {what}"));
    }
}

#[test]
fn state_is_read_written_saved_and_loaded() {
    if !device_is_there() {
        return;
    }
    for (file, _) in FILES {
        let fixture = fixture(file);
        let mut module = open(&fixture, for_gpus()).unwrap();
        let inputs = first_inputs(&module);
        module.forward(&inputs[..]).unwrap();
        let kept = state(&mut module);
        #[cfg(feature = "safetensors")]
        let saved = module.save_state().unwrap();
        let next = module.forward(&inputs[..]).unwrap();
        #[cfg(feature = "safetensors")]
        {
            let mut other = module.share();
            other.load_state(&saved).unwrap();
            assert_eq!(state(&mut other), kept, "{file}");
            assert_eq!(other.forward(&inputs[..]).unwrap(), next, "{file}");
        }
        let mut method = module.method("forward").unwrap();
        for (tensor, info) in kept.iter().zip(method.state().unwrap()) {
            method.write_state(info.value, tensor).unwrap();
            let larger = Tensor::zeros(tensor.scalar_type(), &[1000]).unwrap();
            assert!(method.write_state(info.value, &larger).is_err(), "{file}");
        }
        assert!(method.read_state(100_000).is_err());
        assert_eq!(module.forward(&inputs[..]).unwrap(), next, "{file}");
    }
}
