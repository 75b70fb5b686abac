//! Greedy decoding reads only the argmax of the logits from the device, with identical results.

use crate::forms::{expected, runner_with};
use crate::{greedy, ids};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use torchlet::core::{MethodMeta, TensorInfo, ValueRef};
use torchlet::llm::{
    Failure, GenerationConfig, Model, Overrides, Runner, Sampling, Shards, Tokenizer,
};
use torchlet::{Module, RunOn};

/// A program that counts argmax requests and reads of the logits.
struct Counted {
    program: Module,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    asked: AtomicUsize,
    shown: AtomicUsize,
}

impl Model for Counted {
    fn method_names(&self) -> Result<Vec<String>, Failure> {
        Ok(self.program.method_names()?)
    }

    fn method_meta(&self, method: &str) -> Result<MethodMeta<'_>, Failure> {
        Ok(self.program.method_meta(method)?)
    }

    fn load(&mut self, method: &str) -> Result<(), Failure> {
        Ok(self.program.load_method(method)?)
    }

    fn run(
        &mut self,
        method: &str,
        inputs: &[ValueRef<'_>],
        read: &mut dyn FnMut(usize, ValueRef<'_>),
    ) -> Result<(), Failure> {
        Model::run(&mut self.program, method, inputs, &mut |index, value| {
            let is_first = index == 0 && !inputs.is_empty();
            self.counts.shown.fetch_add(usize::from(is_first), Ordering::Relaxed);
            read(index, value);
        })
    }

    fn run_argmax(
        &mut self,
        method: &str,
        inputs: &[ValueRef<'_>],
        read: &mut dyn FnMut(usize, ValueRef<'_>),
    ) -> Result<Option<Vec<Option<u32>>>, Failure> {
        self.counts.asked.fetch_add(1, Ordering::Relaxed);
        self.program.run_argmax(method, inputs, &mut |index, value| {
            self.counts.shown.fetch_add(usize::from(index == 0), Ordering::Relaxed);
            read(index, value);
        })
    }

    fn reset(&mut self, method: &str) -> Result<(), Failure> {
        Model::reset(&mut self.program, method)
    }

    fn state(&mut self, method: &str) -> Result<Vec<TensorInfo>, Failure> {
        self.program.state(method)
    }

    fn new_instance(&self) -> Box<dyn Model> {
        Box::new(Counted { program: self.program.share(), counts: self.counts.clone() })
    }
}

fn counted(name: &str, processor: RunOn) -> (Runner, Arc<Counts>) {
    let counts = Arc::<Counts>::default();
    let count = |name| {
        let program = crate::forms::module(name, processor);
        Box::new(Counted { program, counts: counts.clone() }) as Box<dyn Model>
    };
    let parts = match name {
        "shards" => vec![count("shards_0"), count("shards_1")],
        _ => vec![count(name)],
    };
    let made = Runner::new(Shards::new(parts), Tokenizer::empty(), &Overrides::default());
    (made.unwrap(), counts)
}

/// Greedy sampling that must read the logits.
fn by_logits(config: GenerationConfig) -> GenerationConfig {
    let sampling = Sampling { logit_bias: vec![(0, 0.0)], ..Sampling::greedy() };
    GenerationConfig { sampling, ..config }
}

fn config(count: usize, lookahead: usize) -> GenerationConfig {
    GenerationConfig { num_bos: 0, lookahead, ..greedy(count) }
}

fn agrees(name: &str, processor: RunOn, lookahead: usize) {
    let (mut runner, counts) = counted(name, processor);
    let case = &expected(name)[0];
    let (prompt, chosen) = (ids(&case["ids"]), ids(&case["chosen"]));
    let count = chosen.len().min(24);
    let is_device = processor == RunOn::Device("vulkan");
    let plain = config(count, lookahead);
    for turn in 0..2 {
        runner.reset().unwrap();
        counts.asked.store(0, Ordering::Relaxed);
        counts.shown.store(0, Ordering::Relaxed);
        let found = runner.generate_tokens(&prompt, &plain, |_| ()).unwrap();
        assert_eq!(found.tokens, &chosen[..count], "{name} {processor:?} {turn}");
        assert!(counts.asked.load(Ordering::Relaxed) > 0, "{name} {processor:?}");
        if is_device && name != "shards" && name != "multimodal" {
            assert_eq!(counts.shown.load(Ordering::Relaxed), 0, "{name} {processor:?}");
        }
        // Each generation may sample differently.
        runner.reset().unwrap();
        let half = count / 2;
        let mut tokens = Vec::new();
        for (part, prompt) in [(half, prompt.as_slice()), (1, &[]), (count - half - 1, &[])] {
            let plain = config(part, lookahead);
            let config = if tokens.len() == half { plain } else { by_logits(plain) };
            counts.asked.store(0, Ordering::Relaxed);
            tokens.extend(runner.generate_tokens(prompt, &config, |_| ()).unwrap().tokens);
            let is_asked = counts.asked.load(Ordering::Relaxed) > 0;
            assert_eq!(is_asked, config.sampling.logit_bias.is_empty(), "{name}");
        }
        assert_eq!(tokens, &chosen[..count], "{name} {processor:?} in parts");
        // Log probabilities require the logits; the tokens stay the same.
        runner.reset().unwrap();
        counts.asked.store(0, Ordering::Relaxed);
        let config = GenerationConfig { logprobs: Some(2), ..plain.clone() };
        let found = runner.generate_tokens(&prompt, &config, |_| ()).unwrap();
        assert_eq!(counts.asked.load(Ordering::Relaxed), 0, "{name}");
        assert_eq!(found.tokens, &chosen[..count], "{name} {processor:?} with likelihoods");
        let told = found.logprobs.iter();
        assert!(told.clone().all(|told| told.top[0] == (told.token, told.logprob)), "{name}");
        assert_eq!(told.map(|told| told.token).collect::<Vec<_>>(), found.tokens);
    }
}

const FORMS: [&str; 6] = [
    "prefill_decode",
    "shards",
    "multimodal",
    "uncached_with_position",
    "llama_all_logits",
    "llama_no_cache",
];

#[test]
fn only_the_argmax_is_read_on_the_cpu() {
    for processor in [RunOn::AsExported, RunOn::Cpu] {
        for name in FORMS {
            agrees(name, processor, 0);
        }
        agrees("llama_all_logits", processor, 4);
    }
}

#[test]
#[cfg(feature = "vulkan")]
fn only_the_argmax_is_read_back_from_gpus() {
    if crate::device::device_is_there() {
        for name in FORMS {
            agrees(name, RunOn::Device("vulkan"), 0);
        }
        agrees("llama_all_logits", RunOn::Device("vulkan"), 4);
    }
}

/// With a limit of zero tokens, the next generation may sample differently, and the caller may read
/// the logits.
#[test]
fn zero_tokens_leave_the_logits_readable() {
    let case = &expected("prefill_decode")[0];
    let (prompt, chosen) = (ids(&case["ids"]), ids(&case["chosen"]));
    let mut runner = runner_with("prefill_decode", RunOn::Cpu, &Overrides::default());
    let short = GenerationConfig { seq_len: Some(prompt.len()), ..config(9, 0) };
    for nothing in [config(0, 0), short] {
        runner.reset().unwrap();
        let found = runner.generate_tokens(&prompt, &nothing, |_| ()).unwrap();
        assert!(found.tokens.is_empty());
        assert!(runner.logits().is_some());
        let found = runner.generate_tokens(&[], &by_logits(config(5, 0)), |_| ()).unwrap();
        assert_eq!(found.tokens, &chosen[..5]);
    }
}
