//! State that methods keep between calls, alone or together.

use std::path::{Path, PathBuf};
use torchlet::{Module, RunOn, Tensor, Value};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/programs").join(name)
}

fn open(name: &str) -> Module {
    Module::load(fixture(name)).unwrap()
}

fn vector(elements: &[f32]) -> Tensor {
    Tensor::from_slice(&[elements.len()], elements).unwrap()
}

fn floats(outputs: &[Value]) -> Vec<f32> {
    outputs[0].tensor().unwrap().to_vec().unwrap()
}

/// Buffer `kept`: the output of `read` for zeros.
fn kept(module: &mut Module) -> Vec<f32> {
    floats(&module.execute("read", vector(&[0.0; 3])).unwrap())
}

/// Buffer `count`.
fn count(module: &mut Module) -> i64 {
    module.execute("count", ()).unwrap()[0].tensor().unwrap().item::<i64>().unwrap() / 10
}

fn write(module: &mut Module, elements: [f32; 3]) {
    let sum: f32 = elements.iter().sum();
    let expected = elements.map(|x| x.max(0.0) * 2.0 - sum);
    assert_eq!(floats(&module.execute("write", vector(&elements)).unwrap()), expected);
}

/// Programs exported with `share_mutable_buffers`, and the initial values of their two buffers.
const SHARED: [(&str, f32, i64); 3] = [
    ("state_shared.bpte", 0.0, 0),
    ("state_shared_unnamed.bpte", 0.0, 0),
    ("state_shared_initialized.bpte", 7.0, 100),
];

#[test]
fn methods_share_state() {
    for (name, first, calls) in SHARED {
        let mut module = open(name);
        write(&mut module, [1.0, -2.0, 3.0]);
        assert_eq!(kept(&mut module), [1.0, -2.0, 3.0], "{name}");
        assert_eq!(count(&mut module), calls + 1, "{name}");
        write(&mut module, [4.0, 5.0, 6.0]);
        assert_eq!(kept(&mut module), [4.0, 5.0, 6.0], "{name}");
        assert_eq!(count(&mut module), calls + 2, "{name}");

        // Common state is reset as a whole, even parts that a method does not use.
        for method in ["read", "write"] {
            module.reset(method).unwrap();
            let state = (kept(&mut module), count(&mut module));
            assert_eq!(state, (vec![first; 3], calls), "{name}");
            write(&mut module, [1.0; 3]);
        }

        // Another module over the same files has its own state.
        assert_eq!(kept(&mut module.share()), [first; 3], "{name}");
        assert!(module.is_method_loaded("read") && module.unload("read"));
        assert!(!module.is_method_loaded("write"));
        assert_eq!(kept(&mut module), [first; 3], "{name}");
    }
}

/// After a reset, nothing that another method wrote can be read, also if only delegates read it.
#[test]
fn state_that_a_method_only_reads_is_reset() {
    let read = |module: &mut Module| {
        let x = Tensor::from_slice(&[4, 64], &[0.5f32; 256]).unwrap();
        floats(&module.execute("read", x).unwrap())
    };
    for run_on in [RunOn::AsExported, RunOn::Cpu] {
        let open = || {
            let file = fixture("state_shared_rows.bpte");
            Module::builder().run_on(run_on).load(file).unwrap()
        };
        let fresh = read(&mut open());
        for method in ["read", "write"] {
            let mut module = open();
            let secret = Tensor::from_slice(&[4, 64], &[3.0f32; 256]).unwrap();
            module.execute("write", secret).unwrap();
            assert_ne!(read(&mut module), fresh, "{run_on:?}");
            module.reset(method).unwrap();
            assert_eq!(read(&mut module), fresh, "{run_on:?}, reset of {method}");
        }
    }
}

#[test]
fn initial_state_is_independent_of_the_first_method() {
    for (name, first, calls) in SHARED {
        assert_eq!(kept(&mut open(name)), [first; 3], "{name}");
        assert_eq!(count(&mut open(name)), calls, "{name}");
    }
}

#[test]
fn state_sharing_can_be_disabled() {
    let mut module = Module::builder().share_state(false).load(fixture(SHARED[0].0)).unwrap();
    write(&mut module, [1.0, 2.0, 3.0]);
    assert_eq!((kept(&mut module), count(&mut module)), (vec![0.0; 3], 0));
}

#[test]
fn methods_without_state_do_not_share() {
    let mut module = open("state_shared.bpte");
    module.execute("nothing", vector(&[0.0; 3])).unwrap();
    assert!(module.is_method_loaded("nothing") && !module.is_method_loaded("write"));
    write(&mut module, [1.0, 2.0, 3.0]);
    module.execute("nothing", vector(&[9.0; 3])).unwrap();
    assert_eq!(kept(&mut module), [1.0, 2.0, 3.0]);
}

#[test]
fn state_among_activations_is_not_shared() {
    let mut module = open("state_apart.bpte");
    write(&mut module, [1.0, 2.0, 3.0]);
    assert_eq!((kept(&mut module), count(&mut module)), (vec![0.0; 3], 0));
    // This memory cannot be shared in turn.
    let shared = || Module::builder().share_activations(true);
    let error = shared().load(fixture("state_apart.bpte")).unwrap().load_method("read");
    let error = error.unwrap_err().to_string();
    assert!(error.contains("keeps state among its activations"), "{error}");
}

#[test]
fn methods_share_activation_memory() {
    let shared = |name| Module::builder().share_activations(true).load(fixture(name)).unwrap();
    let mut module = shared("two_methods.bpte");
    let [a, b] =
        [3, 1].map(|rows| Tensor::rand(torchlet::ScalarType::Float, &[rows, 4], 7).unwrap());
    let expected = open("two_methods.bpte").forward(&a).unwrap();
    let encoded = open("two_methods.bpte").execute("encode", &b).unwrap();
    for _ in 0..2 {
        assert_eq!(module.forward(&a).unwrap(), expected);
        assert!(module.is_method_loaded("encode"));
        assert_eq!(module.execute("encode", &b).unwrap(), encoded);
    }
    // State outside the activations is preserved.
    let mut module = shared("state_shared.bpte");
    write(&mut module, [1.0, 2.0, 3.0]);
    module.execute("nothing", vector(&[9.0; 3])).unwrap();
    assert_eq!(kept(&mut module), [1.0, 2.0, 3.0]);
}

#[test]
fn outputs_in_place_last_until_another_method_runs() {
    let mut module = open("state_shared.bpte");
    write(&mut module, [1.0, 2.0, 3.0]);
    let mut method = module.method("read").unwrap();
    method.execute(&[vector(&[1.0; 3]).into()]).unwrap();
    let mut copied = [0.0f32; 3];
    method.output_into(0, &mut copied).unwrap();
    assert_eq!(copied, [2.0, 3.0, 4.0]);
}

#[test]
fn state_is_read_and_written_by_name() {
    let mut module = open("state_shared.bpte");
    write(&mut module, [1.0, 2.0, 3.0]);
    let mut method = module.method("read").unwrap();
    let names: Vec<_> = method.state().unwrap().into_iter().map(|state| state.name).collect();
    assert_eq!(names, [Some("kept".into()), Some("count".into())]);
    let state = method.state_named("kept").unwrap();
    assert_eq!(state.info.to_string(), "float32[3]");
    assert_eq!(method.read_state(state.value).unwrap(), vector(&[1.0, 2.0, 3.0]));
    method.write_state(state.value, &vector(&[7.0, 8.0, 9.0])).unwrap();
    let wrong = method.write_state(state.value, &vector(&[0.0; 4])).unwrap_err();
    assert!(wrong.to_string().contains("expected shape [3], found [4]"), "{wrong}");
    assert!(method.state_named("lost").unwrap_err().to_string().contains("read/lost"));
    assert!(method.read_state(1000).is_err());
    assert_eq!(kept(&mut module), [7.0, 8.0, 9.0]);
}

#[cfg(feature = "safetensors")]
#[test]
fn state_is_saved_and_loaded() {
    use torchlet::Error;
    for (name, ..) in SHARED {
        let mut module = open(name);
        write(&mut module, [1.0, 2.0, 3.0]);
        let calls = count(&mut module);
        let saved = module.save_state().unwrap();
        let mut other = open(name);
        other.load_state(&saved).unwrap();
        assert_eq!((kept(&mut other), count(&mut other)), (vec![1.0, 2.0, 3.0], calls), "{name}");
    }
    let mut named = open("state_named.bpte");
    let (before, x) = (named.save_state().unwrap(), Tensor::full(&[2, 3], 1.0f32).unwrap());
    // No method was loaded yet.
    named.load_state(&before).unwrap();
    named.forward(&x).unwrap();
    let (saved, next) = (named.save_state().unwrap(), named.forward(&x).unwrap());
    assert_ne!(named.forward(&x).unwrap(), next);
    named.load_state(&saved).unwrap();
    assert_eq!(named.forward(&x).unwrap(), next);

    // Mismatching state is rejected without any change.
    let other = open("state_shared.bpte").load_state(&saved).unwrap_err();
    assert!(matches!(&other, Error::StateNames { unknown, .. } if unknown.len() == 2), "{other}");
    for len in 0..saved.len() {
        assert!(named.load_state(&saved[..len]).is_err(), "{len}");
    }
    let mut damaged = saved.clone();
    for (place, original) in saved.iter().enumerate() {
        damaged[place] = original ^ 0x11;
        let _ = named.load_state(&damaged);
        damaged[place] = *original;
    }
}
