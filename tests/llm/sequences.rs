//! Several sessions in one run compute what each computes alone.

use crate::forms::expected;
use crate::{greedy, ids};
use std::collections::BTreeMap;
use torchlet::llm::{GenerationConfig, Overrides, Runner, Tokenizer};
use torchlet::{Module, RunOn, Tensor};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/llm/model");
const FORMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/llm/forms");

fn load(file: &str, sequences: usize) -> Module {
    let builder = Module::builder().run_on(RunOn::Cpu).threads(2).sequences(sequences);
    builder.load(file).unwrap()
}

fn batched(file: &str, sequences: usize) -> Module {
    let module = load(file, sequences);
    assert!(module.sequences_error().is_none(), "{file}: {:?}", module.sequences_error());
    assert_eq!(module.sequences(), sequences);
    module
}

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end
    }
}

/// Logits of the last token, after tokens from a position on.
fn alone(module: &mut Module, tokens: &[i64], position: usize) -> Vec<f32> {
    let tokens = Tensor::from_slice(&[1, tokens.len()], tokens).unwrap();
    let position = Tensor::from_slice(&[1], &[position as i64]).unwrap();
    let outputs = module.forward([tokens, position]).unwrap();
    outputs[0].tensor().unwrap().as_slice::<f32>().unwrap().to_vec()
}

/// The same for several rows: their slots, tokens and positions.
fn together(module: &mut Module, rows: &[(usize, Vec<i64>, usize)]) -> Vec<Vec<f32>> {
    let (count, length) = (rows.len(), rows[0].1.len());
    let all = |of: &dyn Fn(&(usize, Vec<i64>, usize)) -> i64| -> Vec<i64> {
        rows.iter().map(of).collect()
    };
    let tokens: Vec<i64> = rows.iter().flat_map(|row| row.1.clone()).collect();
    let tokens = Tensor::from_slice(&[count, 1, length], &tokens).unwrap();
    let positions = Tensor::from_slice(&[count, 1], &all(&|row| row.2 as i64)).unwrap();
    let slots = Tensor::from_slice(&[count], &all(&|row| row.0 as i64)).unwrap();
    let outputs = module.forward([tokens, positions, slots]).unwrap();
    let logits = outputs[0].tensor().unwrap().as_slice::<f32>().unwrap();
    logits.chunks(logits.len() / count).map(<[f32]>::to_vec).collect()
}

/// Sessions that join and leave at random, in random slots, with prompts in random pieces.
fn random_schedule(file: &str, seed: u64) {
    const SLOTS: usize = 5;
    let mut module = batched(file, SLOTS);
    let mut plain = load(file, 1);
    let mut random = Random(seed);
    // Tokens so far, and logits after each piece, by slot.
    let mut sessions: BTreeMap<usize, Vec<(Vec<i64>, Vec<f32>)>> = BTreeMap::new();
    let mut checked = 0;
    for _ in 0..40 {
        let slot = random.below(SLOTS);
        if random.below(3) == 0 {
            // The slot's session ends: all its pieces once more, alone.
            let mut position = 0;
            for (tokens, logits) in sessions.remove(&slot).unwrap_or_default() {
                let expected = alone(&mut plain, &tokens, position);
                let differing = expected.iter().zip(&logits).filter(|(a, b)| a != b).count();
                assert_eq!(differing, 0, "{file}: {} tokens at {position}", tokens.len());
                position += tokens.len();
                checked += 1;
            }
        }
        let length = [1, 1, 1, 2, 7, 20][random.below(6)];
        let mut rows = Vec::new();
        for slot in 0..SLOTS {
            if random.below(3) > 0 {
                let pieces = sessions.entry(slot).or_default();
                let position = pieces.iter().map(|(tokens, _)| tokens.len()).sum();
                let tokens = (0..length).map(|_| random.below(1000) as i64).collect();
                rows.push((slot, tokens, position));
            }
        }
        if rows.is_empty() {
            continue;
        }
        let start = random.below(rows.len());
        rows.rotate_left(start);
        let found = together(&mut module, &rows);
        for ((slot, tokens, _), logits) in rows.into_iter().zip(found) {
            sessions.get_mut(&slot).unwrap().push((tokens, logits));
        }
    }
    assert!(checked > 20, "{checked}");
}

#[test]
fn rows_are_computed_as_if_alone() {
    for file in ["fp32", "8da4w"] {
        random_schedule(&format!("{MODEL}/{file}.pte"), 7);
    }
}

/// Sessions of a runner, on threads, generate what PyTorch does; each feeds the prompts in another
/// order, and more sessions than slots share the memory of several batches.
#[test]
fn sessions_of_runners_match_pytorch() {
    for name in [
        "llama_all_logits",
        "llama_gemma",
        "llama_lfm",
        "llama_one_by_one",
        "llama_phi",
        "llama_qwen",
        "llama_sliding_window",
        "llama_wide",
        "prefill_decode",
    ] {
        let module = batched(&format!("{FORMS}/{name}.pte"), 3);
        let first = Runner::new(module, Tokenizer::empty(), &Overrides::default()).unwrap();
        let mut sessions: Vec<Runner> = (0..4).map(|_| first.session().unwrap()).collect();
        sessions.push(first);
        let cases: Vec<_> =
            expected(name).into_iter().filter(|case| case.get("ids").is_some()).collect();
        std::thread::scope(|scope| {
            for (number, mut session) in sessions.into_iter().enumerate() {
                let cases = &cases;
                scope.spawn(move || {
                    for at in 0..2 * cases.len() {
                        let case = &cases[(at + number) % cases.len()];
                        let (prompt, chosen) = (ids(&case["ids"]), ids(&case["chosen"]));
                        session.reset().unwrap();
                        let config = GenerationConfig { num_bos: 0, ..greedy(chosen.len()) };
                        let found = session.generate_tokens(&prompt, &config, |_| ()).unwrap();
                        assert_eq!(found.tokens, chosen, "{name}, session {number}");
                    }
                });
            }
        });
    }
}

/// A slot that a session left is empty for the next one, also with recurrent state.
#[test]
fn slots_are_cleared() {
    let module = batched(&format!("{FORMS}/llama_lfm.pte"), 2);
    let mut first = Runner::new(module, Tokenizer::empty(), &Overrides::default()).unwrap();
    let case = &expected("llama_lfm")[0];
    let (prompt, chosen) = (ids(&case["ids"]), ids(&case["chosen"]));
    for _ in 0..3 {
        let mut session = first.session().unwrap();
        let config = GenerationConfig { num_bos: 0, ..greedy(chosen.len()) };
        assert_eq!(session.generate_tokens(&prompt, &config, |_| ()).unwrap().tokens, chosen);
        first.prefill_tokens(&prompt[..1]).unwrap();
    }
}

/// The error of a run names what does not fit, and the slots' contents stay.
#[test]
fn rows_that_do_not_fit_are_refused() {
    let file = format!("{MODEL}/fp32.pte");
    let (mut module, mut plain) = (batched(&file, 3), load(&file, 1));
    let row = |slot: i64, token: i64, position: i64| (slot, token, position);
    let mut run = |rows: &[(i64, i64, i64)]| {
        let of = |part: fn(&(i64, i64, i64)) -> i64| rows.iter().map(part).collect::<Vec<i64>>();
        let count = rows.len();
        let tokens = Tensor::from_slice(&[count, 1, 1], &of(|row| row.1)).unwrap();
        let positions = Tensor::from_slice(&[count, 1], &of(|row| row.2)).unwrap();
        let slots = Tensor::from_slice(&[count], &of(|row| row.0)).unwrap();
        let outputs = module.forward([tokens, positions, slots]).map_err(|it| it.to_string())?;
        let logits = outputs[0].tensor().unwrap().as_slice::<f32>().unwrap();
        Ok::<_, String>(logits[logits.len() - logits.len() / count..].to_vec())
    };
    run(&[row(0, 5, 0), row(2, 7, 0)]).unwrap();
    for rows in [
        &[row(0, 5, 1), row(3, 5, 0)][..],
        &[row(-1, 5, 0)],
        &[row(1, 5, 0), row(1, 6, 0)],
        &[row(0, 5, 1), row(1, 5, 512)],
        &[row(1, 5, -1)],
        &[row(0, 5, 1), row(1, 1024, 0)],
        &[row(0, 5, 0), row(1, 5, 0), row(2, 5, 0), row(0, 5, 1)],
    ] {
        assert!(run(rows).is_err(), "{rows:?}");
    }
    // As if nothing had happened.
    alone(&mut plain, &[7], 0);
    assert_eq!(run(&[row(2, 9, 1)]).unwrap(), alone(&mut plain, &[9], 1));
}

/// Programs that cannot share runs name the reason, and run as usual.
#[test]
fn other_programs_run_as_exported() {
    for (name, reason) in [
        ("llama_no_cache", "none of its methods keeps a KV cache"),
        ("llama_quantized_cache", "several sequences in method 'forward': "),
    ] {
        let module = load(&format!("{FORMS}/{name}.pte"), 3);
        let found = module.sequences_error().unwrap().to_string();
        assert!(found.contains(reason), "{name}: {found}");
        assert_eq!(module.sequences(), 1);
        let mut runner = Runner::new(module, Tokenizer::empty(), &Overrides::default()).unwrap();
        let case = &expected(name)[0];
        let (prompt, chosen) = (ids(&case["ids"]), ids(&case["chosen"]));
        let config = GenerationConfig { num_bos: 0, ..greedy(chosen.len()) };
        assert_eq!(runner.generate_tokens(&prompt, &config, |_| ()).unwrap().tokens, chosen);
    }
}
