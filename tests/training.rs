//! Training of programs that compute gradients matches PyTorch.

use serde_json::Value as Json;
use torchlet::training::{Adam, AdamOptions, Optimizer, Sgd, SgdOptions, TrainingModule};
use torchlet::{Error, Module, RunOn, Tensor};

const FOLDER: &str = "tests/fixtures/training";

fn numbers(list: &Json) -> Vec<f32> {
    list.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
}

/// The batches in `layers.json`, and the results of PyTorch's optimizers.
fn page() -> (Vec<[Tensor; 2]>, Json) {
    let text = std::fs::read_to_string(format!("{FOLDER}/layers.json")).unwrap();
    let page: Json = serde_json::from_str(&text).unwrap();
    let batch = |batch: &Json| {
        let labels: Vec<i64> =
            numbers(&batch["labels"]).iter().map(|label| *label as i64).collect();
        let images = Tensor::from_vec(&[4, 5], numbers(&batch["x"])).unwrap();
        [images, Tensor::from_vec(&[4], labels).unwrap()]
    };
    let batches = page["batches"].as_array().unwrap().iter().map(batch).collect();
    (batches, page["optimizers"].clone())
}

/// Trains a module on the batches, and compares each loss and the final parameters.
fn train_as(mut module: TrainingModule, expected: &Json, optimizer: &mut impl Optimizer) {
    let (batches, _) = page();
    let losses = numbers(&expected["losses"]);
    assert_eq!(losses.len(), batches.len());
    for ([images, labels], expected) in batches.iter().zip(losses) {
        let outputs = module.execute_forward_backward("forward", [images, labels]).unwrap();
        assert_eq!(outputs.len(), 2);
        let loss: f32 = outputs[0].tensor().unwrap().item().unwrap();
        assert!((loss - expected).abs() < 1e-5, "a loss of {loss}, not {expected}");
        module.step("forward", optimizer).unwrap();
    }
    check_parameters(&mut module, expected);
}

/// Compares all parameters with PyTorch's final ones.
fn check_parameters(module: &mut TrainingModule, expected: &Json) {
    let parameters = module.named_parameters("forward").unwrap();
    assert_eq!(parameters.len(), expected["parameters"].as_object().unwrap().len());
    for (name, tensor) in parameters {
        let expected = numbers(&expected["parameters"][&name]);
        let expected = Tensor::from_vec(tensor.shape(), expected).unwrap();
        assert!(tensor.allclose(&expected, 1e-4, 2e-5), "{name}: {tensor}, not {expected}");
    }
}

#[test]
fn optimizers_match_pytorch() {
    let load = || TrainingModule::load(format!("{FOLDER}/layers.pte")).unwrap();
    let (_, expected) = page();
    let plain = SgdOptions { lr: 0.1, ..SgdOptions::default() };
    let sgd = [
        ("sgd", plain),
        (
            "sgd_momentum",
            SgdOptions { lr: 0.05, momentum: 0.9, dampening: 0.3, weight_decay: 0.01, ..plain },
        ),
        ("sgd_nesterov", SgdOptions { lr: 0.05, momentum: 0.9, nesterov: true, ..plain }),
    ];
    for (name, options) in sgd {
        train_as(load(), &expected[name], &mut Sgd::new(options));
    }
    let adam = [
        ("adam", AdamOptions { lr: 0.01, weight_decay: 0.02, ..AdamOptions::default() }),
        (
            "adam_amsgrad",
            AdamOptions { lr: 0.02, betas: [0.5, 0.7], amsgrad: true, ..AdamOptions::default() },
        ),
        ("adamw", AdamOptions { lr: 0.02, weight_decay: 0.1, ..AdamOptions::adamw() }),
    ];
    for (name, options) in adam {
        train_as(load(), &expected[name], &mut Adam::new(options));
    }
}

/// Parameters in a separate file, and programs that run as exported, are trained the same way.
#[test]
fn parameters_in_external_data() {
    let (_, expected) = page();
    for run_on in [RunOn::Cpu, RunOn::AsExported] {
        let builder = Module::builder().run_on(run_on);
        let module = builder
            .data(format!("{FOLDER}/layers_external.ptd"))
            .load(format!("{FOLDER}/layers_external.pte"))
            .unwrap();
        let options = SgdOptions { lr: 0.1, ..SgdOptions::default() };
        train_as(TrainingModule::new(module), &expected["sgd"], &mut Sgd::new(options));
    }
}

/// Some parameters may have their own learning rate: here zero, so that they stay constant.
#[test]
fn per_parameter_options() {
    let mut module = TrainingModule::load(format!("{FOLDER}/layers.pte")).unwrap();
    let (batches, _) = page();
    let [images, labels] = &batches[0];
    let before = module.named_parameters("forward").unwrap();
    let mut optimizer = Sgd::new(SgdOptions { lr: 0.1, ..SgdOptions::default() });
    let fixed = "model.0.weight";
    optimizer.exceptions.insert(fixed.into(), SgdOptions { lr: 0.0, ..SgdOptions::default() });
    module.execute_forward_backward("forward", [images, labels]).unwrap();
    module.step("forward", &mut optimizer).unwrap();
    let after = module.named_parameters("forward").unwrap();
    for ((name, before), (_, after)) in before.iter().zip(&after) {
        assert_eq!(before == after, name == fixed, "{name}");
    }
    // Restores the old values.
    for (name, tensor) in &before {
        module.set_parameter("forward", name, tensor).unwrap();
    }
    assert_eq!(module.named_parameters("forward").unwrap(), before);
}

#[test]
fn untrainable_programs_are_reported() {
    let mut module = TrainingModule::load("tests/fixtures/digits/digits.pte").unwrap();
    let image = Tensor::zeros(torchlet::ScalarType::Float, &[1, 1, 8, 8]).unwrap();
    let error = module.execute_forward_backward("forward", [&image]).unwrap_err();
    assert!(error.to_string().contains("_export_forward_backward"), "{error}");
    let error = module.named_parameters("backward").unwrap_err();
    assert!(
        matches!(&error, Error::NoSuchMethod { method, .. } if method == "backward"),
        "{error}"
    );

    let mut module = TrainingModule::load(format!("{FOLDER}/layers.pte")).unwrap();
    let error = module.step("forward", &mut Sgd::new(SgdOptions::default())).unwrap_err();
    assert!(error.to_string().contains("no gradients"), "{error}");
    let error = module.set_parameter("forward", "model.0.wait", &image).unwrap_err();
    assert!(error.to_string().contains("forward/model.0.wait"), "{error}");
    let error = module.set_parameter("forward", "model.0.weight", &image).unwrap_err();
    assert!(matches!(error, Error::State { .. }), "{error}");
}

/// An out-of-range label ends a run half-way: the partial results are not used as gradients.
#[test]
fn failed_runs_leave_no_gradients() {
    let mut module = TrainingModule::load(format!("{FOLDER}/layers.pte")).unwrap();
    let (batches, _) = page();
    let [images, labels] = &batches[0];
    module.execute_forward_backward("forward", [images, labels]).unwrap();
    assert!(!module.named_gradients("forward").unwrap().is_empty());
    let wrong = Tensor::from_vec(&[4], vec![7i64; 4]).unwrap();
    module.execute_forward_backward("forward", [images, &wrong]).unwrap_err();
    let error = module.named_gradients("forward").unwrap_err();
    assert!(error.to_string().contains("no gradients"), "{error}");
    module.execute_forward_backward("forward", [images, labels]).unwrap();
    module.step("forward", &mut Sgd::new(SgdOptions::default())).unwrap();
}

/// A network with random weights learns handwritten digits.
#[test]
fn digits_are_learned() {
    const SIDE: usize = 8;
    const ROW: usize = SIDE * SIDE + 1;
    const BATCH: usize = 20;
    let file = std::fs::read(format!("{FOLDER}/digits.bin")).unwrap();
    let batches: Vec<[Tensor; 2]> = file
        .chunks_exact(ROW * BATCH)
        .map(|rows| {
            let rows = rows.chunks_exact(ROW).map(|row| row.split_at(ROW - 1));
            let pixels = rows.clone().flat_map(|(pixels, _)| pixels).map(|p| f32::from(*p) / 16.0);
            let images = Tensor::from_vec(&[BATCH, 1, SIDE, SIDE], pixels.collect::<Vec<_>>());
            let labels: Vec<i64> = rows.map(|(_, label)| label[0].into()).collect();
            [images.unwrap(), Tensor::from_vec(&[BATCH], labels).unwrap()]
        })
        .collect();
    let (train, held_out) = batches.split_at(600 / BATCH);
    let mut module = TrainingModule::load(format!("{FOLDER}/digits.pte")).unwrap();
    let right = |module: &mut TrainingModule| {
        let mut right = 0;
        for [images, labels] in held_out {
            let outputs = module.execute_forward_backward("forward", [images, labels]).unwrap();
            let found = outputs[1].tensor().unwrap().to_vec::<i64>().unwrap();
            right +=
                found.iter().zip(labels.to_vec::<i64>().unwrap()).filter(|(a, b)| *a == b).count();
        }
        right as f64 / (held_out.len() * BATCH) as f64
    };
    assert!(right(&mut module) < 0.3);
    let mut optimizer = Adam::new(AdamOptions { lr: 0.01, ..AdamOptions::adamw() });
    for _ in 0..4 {
        for [images, labels] in train {
            module.execute_forward_backward("forward", [images, labels]).unwrap();
            module.step("forward", &mut optimizer).unwrap();
        }
    }
    // PyTorch reaches 91.5 % with the same weights and steps.
    let accuracy = right(&mut module);
    assert!((accuracy - 0.915).abs() < 0.02, "{accuracy}");
}

/// Saving parameters and optimizer state to a file.
#[cfg(feature = "safetensors")]
mod saved {
    use super::*;

    /// Trains on some batches.
    fn train(module: &mut TrainingModule, optimizer: &mut impl Optimizer, batches: &[[Tensor; 2]]) {
        for [images, labels] in batches {
            module.execute_forward_backward("forward", [images, labels]).unwrap();
            module.step("forward", optimizer).unwrap();
        }
    }

    /// Stopping and resuming from a saved state yields bit-identical parameters.
    fn check_resume<O: Optimizer + Clone>(made: &O) {
        let load = || TrainingModule::load(format!("{FOLDER}/layers.pte")).unwrap();
        let (batches, _) = page();
        for stop in 0..batches.len() {
            let (before, after) = batches.split_at(stop);
            let (mut through, mut optimizer) = (load(), made.clone());
            train(&mut through, &mut optimizer, before);
            let saved = through.save_training("forward", &optimizer).unwrap();
            train(&mut through, &mut optimizer, after);

            // The state of another optimizer is discarded.
            let (mut resumed, mut optimizer) = (load(), made.clone());
            train(&mut resumed, &mut optimizer, &batches);
            resumed.load_training("forward", &mut optimizer, &saved).unwrap();
            assert_eq!(resumed.save_training("forward", &optimizer).unwrap(), saved);
            let error = resumed.step("forward", &mut optimizer).unwrap_err();
            assert!(error.to_string().contains("no gradients"), "{error}");
            train(&mut resumed, &mut optimizer, after);
            let [expected, found] = [&mut through, &mut resumed]
                .map(|module| module.named_parameters("forward").unwrap());
            assert_eq!(found, expected, "after {stop} batches");
        }
    }

    #[test]
    fn training_resumes_from_a_saved_state() {
        check_resume(&Sgd::new(SgdOptions { lr: 0.1, ..SgdOptions::default() }));
        let momentum =
            SgdOptions { lr: 0.05, momentum: 0.9, dampening: 0.3, ..SgdOptions::default() };
        check_resume(&Sgd::new(SgdOptions { nesterov: true, dampening: 0.0, ..momentum }));
        check_resume(&Sgd::new(momentum));
        check_resume(&Adam::new(AdamOptions { lr: 0.02, amsgrad: true, ..AdamOptions::default() }));
        check_resume(&Adam::new(AdamOptions::adamw()));
    }

    /// Resumes from PyTorch's parameters and optimizer state after half of the steps.
    fn check_resume_from_pytorch<O: Optimizer + Clone>(name: &str, mut optimizer: O) {
        let (batches, expected) = page();
        let mut module = TrainingModule::load(format!("{FOLDER}/layers.pte")).unwrap();
        let saved = std::fs::read(format!("{FOLDER}/saved_{name}.safetensors")).unwrap();
        module.load_training("forward", &mut optimizer, &saved).unwrap();
        train(&mut module, &mut optimizer, &batches[batches.len() / 2..]);
        check_parameters(&mut module, &expected[name]);
    }

    #[test]
    fn training_resumes_from_pytorch() {
        let plain = SgdOptions { lr: 0.1, ..SgdOptions::default() };
        check_resume_from_pytorch("sgd", Sgd::new(plain));
        let momentum =
            SgdOptions { lr: 0.05, momentum: 0.9, dampening: 0.3, weight_decay: 0.01, ..plain };
        check_resume_from_pytorch("sgd_momentum", Sgd::new(momentum));
        let adam =
            AdamOptions { lr: 0.02, betas: [0.5, 0.7], amsgrad: true, ..AdamOptions::default() };
        check_resume_from_pytorch("adam_amsgrad", Adam::new(adam));
    }

    /// Truncated files and files of other formats are errors that change nothing.
    #[test]
    fn mismatching_saved_training_is_rejected() {
        let load = || TrainingModule::load(format!("{FOLDER}/layers.pte")).unwrap();
        let (batches, _) = page();
        let (mut module, mut adam) = (load(), Adam::new(AdamOptions::adamw()));
        train(&mut module, &mut adam, &batches);
        let saved = module.save_training("forward", &adam).unwrap();

        let mut other = load();
        let mut fresh = Adam::new(AdamOptions::adamw());
        let before = other.save_training("forward", &fresh).unwrap();
        let mut refuse = |bytes: &[u8], says: &str| {
            let error = other.load_training("forward", &mut fresh, bytes).unwrap_err();
            assert!(error.to_string().contains(says), "{error} instead of {says}");
            assert_eq!(other.save_training("forward", &fresh).unwrap(), before);
        };
        for length in (0..saved.len()).step_by(13) {
            refuse(&saved[..length], "saved state");
        }
        let replaced = |from: &str, to: &str| {
            assert_eq!(from.len(), to.len());
            let (mut bytes, from) = (saved.clone(), from.as_bytes());
            let at = bytes.windows(from.len()).position(|bytes| bytes == from).unwrap();
            bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
            bytes
        };
        refuse(&replaced("model.0.weight/exp_avg\"", "model.0.weight/exp_ave\""), "exp_avg");
        refuse(&replaced("model.0.weight/step", "model.0.weight/stem"), "stem");
        refuse(&replaced("model.0.weight/step", "model.9.weight/step"), "model.0.weight");
        refuse(&replaced("\"model.0.weight\"", "\"model.0.wait..\""), "model.0.wait..");

        // The state of one kind of optimizer does not fit another; an empty state fits both.
        let error = module.load_training("forward", &mut Sgd::new(SgdOptions::default()), &saved);
        assert!(error.unwrap_err().to_string().contains("unexpected entry"));
        module.load_training("forward", &mut adam, &before).unwrap();
        assert_eq!(module.save_training("forward", &adam).unwrap(), before);
    }
}
