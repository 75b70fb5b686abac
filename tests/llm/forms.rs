//! Small models in all forms of language models (`llm/forms`, exported by `llm/export/forms.py`)
//! match PyTorch.

use crate::{greedy, ids};
use serde_json::Value;
use torchlet::llm::{Error, GenerationConfig, Input, Model, Overrides, Runner, Shards, Tokenizer};
use torchlet::{Module, RunOn, ScalarType, Tensor};

const FORMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/llm/forms");
const PROCESSORS: [RunOn; 2] = [RunOn::AsExported, RunOn::Cpu];

pub(crate) fn module(name: &str, processor: RunOn) -> Module {
    let builder = Module::builder().run_on(processor).threads(1);
    builder.load(format!("{FORMS}/{name}.pte")).unwrap()
}

fn two_shards(processor: RunOn) -> Shards {
    let parts = ["shards_0", "shards_1"];
    Shards::new(
        parts.iter().map(|part| Box::new(module(part, processor)) as Box<dyn Model>).collect(),
    )
}

pub(crate) fn runner_with(name: &str, processor: RunOn, overrides: &Overrides) -> Runner {
    let made = match name {
        "shards" => Runner::new(two_shards(processor), Tokenizer::empty(), overrides),
        _ => Runner::new(module(name, processor), Tokenizer::empty(), overrides),
    };
    made.unwrap()
}

pub(crate) fn expected(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(format!("{FORMS}/expected.json")).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    all[name].as_array().unwrap().clone()
}

fn config(count: usize) -> GenerationConfig {
    GenerationConfig { num_bos: 0, ..greedy(count) }
}

/// Feeds each prompt as a whole; then the generated tokens again in two parts; then alternates with
/// a second session.
fn agrees_with_eager(name: &str, overrides: &Overrides) {
    agrees_on(&PROCESSORS, name, overrides);
}

fn agrees_on(processors: &[RunOn], name: &str, overrides: &Overrides) {
    for &processor in processors {
        let mut runner = runner_with(name, processor, overrides);
        let mut other = runner.session().unwrap();
        for case in expected(name).iter().filter(|case| case.get("ids").is_some()) {
            let (prompt, chosen) = (ids(&case["ids"]), ids(&case["chosen"]));
            runner.reset().unwrap();
            let found = runner.generate_tokens(&prompt, &config(chosen.len()), |_| ()).unwrap();
            assert_eq!(found.tokens, chosen, "{name} {processor:?}");
            other.reset().unwrap();
            other.prefill_tokens(&prompt).unwrap();
            runner.reset().unwrap();
            let half = chosen.len() / 2;
            runner.prefill_tokens(&[&prompt[..], &chosen[..half]].concat()).unwrap();
            other.prefill_tokens(&chosen[..1]).unwrap();
            let found = runner.generate("", &config(chosen.len() - half), |_| ()).unwrap();
            assert_eq!(found.tokens, &chosen[half..], "{name} {processor:?}, resumed");
            let found = other.generate("", &config(chosen.len() - 1), |_| ()).unwrap();
            assert_eq!(found.tokens, &chosen[1..], "{name} {processor:?}, beside another");
        }
    }
}

macro_rules! agrees {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            agrees_with_eager(stringify!($name), &Overrides::default());
        }
    )*};
}

agrees! {
    prefill_decode
    shards
    multimodal
    gemma4
    uncached_with_position
    llama_wide
    llama_one_by_one
    llama_all_logits
    llama_no_cache
    llama_quantized_cache
    llama_sliding_window
    llama_qwen
    llama_gemma
    llama_lfm
}

/// Programs with XNNPACK delegates, which are compiled. The reference of quantized ones is
/// ExecuTorch's runtime.
#[test]
fn xnnpack_programs_match_the_reference() {
    for name in ["llama_phi", "llama_8da4w", "llama_8da4w_shared"] {
        agrees_on(&[RunOn::Cpu], name, &Overrides::default());
    }
}

/// Quantized models match PyTorch's module with the group scales of the file.
///
/// The logits match until an activation lies between two quantized values and rounds differently,
/// which the KV cache then keeps. Later logits differ by the effect of such a rounding; so do those
/// of ExecuTorch's own runtime.
#[test]
fn quantized_models_match_pytorch() {
    const TIED: f32 = 0.1;
    for name in ["llama_8da4w", "llama_8da4w_shared"] {
        for case in expected(name) {
            let mut module = module(name, RunOn::Cpu);
            let mut tokens = ids(&case["ids"]);
            tokens.extend(ids(&case["chosen"]));
            let largest = case["largest"].as_array().unwrap();
            assert_eq!(largest.len(), tokens.len() - 1);
            let mut tied = None;
            for (at, (token, largest)) in tokens.iter().zip(largest).enumerate() {
                let token = Tensor::from_slice(&[1, 1], &[i64::from(*token)]).unwrap();
                let position = Tensor::from_slice(&[1], &[at as i64]).unwrap();
                let outputs = module.forward([token, position]).unwrap();
                let logits = outputs[0].tensor().unwrap().as_slice::<f32>().unwrap();
                for pair in largest.as_array().unwrap() {
                    let found = logits[pair[0].as_u64().unwrap() as usize];
                    let difference = (found - pair[1].as_f64().unwrap() as f32).abs();
                    assert!(difference < TIED, "{name}, behind {at}: {difference}");
                    if difference > 1e-5 {
                        tied.get_or_insert(at);
                    }
                }
            }
            assert!(tied.is_none_or(|at| at >= 5), "{name} parts behind {tied:?}");
        }
    }
}

/// With a sliding window, only the caller limits the length of a text.
#[test]
fn llama_attention_sink() {
    let overrides = Overrides { max_context_len: Some(1 << 20), ..Overrides::default() };
    agrees_with_eager("llama_attention_sink", &overrides);
}

/// Scalars derived from the position change in each run.
#[cfg(feature = "vulkan")]
#[test]
fn sliding_windows_match_pytorch_on_gpus() {
    if crate::device::device_is_there() {
        let processors = [RunOn::Device("vulkan")];
        agrees_on(&processors, "llama_sliding_window", &Overrides::default());
        let overrides = Overrides { max_context_len: Some(1 << 20), ..Overrides::default() };
        agrees_on(&processors, "llama_attention_sink", &overrides);
    }
}

/// The caches determine whether tokens can be removed. If not, the whole context is fed again.
#[test]
fn prompts_may_diverge_from_the_context() {
    let long = Overrides { max_context_len: Some(1 << 20), ..Overrides::default() };
    for (name, overrides, kept) in [
        ("prefill_decode", &Overrides::default(), 3),
        ("shards", &Overrides::default(), 3),
        ("llama_quantized_cache", &Overrides::default(), 3),
        ("llama_sliding_window", &Overrides::default(), 0),
        ("llama_attention_sink", &long, 0),
    ] {
        let case = &expected(name)[0];
        let (prompt, chosen) = (ids(&case["ids"]), ids(&case["chosen"]));
        let mut runner = runner_with(name, RunOn::Cpu, overrides);
        let other = [&prompt[..3], &[60, 61, 62, 63, 64, 65][..]].concat();
        runner.generate_tokens(&other, &config(50), |_| ()).unwrap();
        assert_eq!(runner.rewind_to_common_prefix(&prompt).unwrap(), kept, "{name}");
        let found = runner.generate_tokens(&prompt[kept..], &config(20), |_| ()).unwrap();
        assert_eq!(found.tokens, &chosen[..20], "{name}");
    }
}

/// Lookahead decoding does not change the tokens.
#[test]
fn lookahead_decoding_keeps_the_text() {
    let case = &expected("llama_all_logits")[0];
    let (prompt, chosen) = (ids(&case["ids"]), ids(&case["chosen"]));
    // The prompt contains the text already, so that much of it is predicted.
    let told = [&prompt[..], &chosen[..20], &prompt[..]].concat();
    for processor in PROCESSORS {
        let mut runner = runner_with("llama_all_logits", processor, &Overrides::default());
        let mut foreseen = 0;
        for prompt in [&prompt, &told] {
            runner.reset().unwrap();
            let plain = runner.generate_tokens(prompt, &config(30), |_| ()).unwrap();
            for lookahead in [1, 4, 100] {
                runner.reset().unwrap();
                let config = GenerationConfig { lookahead, ..config(17) };
                let mut found = runner.generate_tokens(prompt, &config, |_| ()).unwrap();
                foreseen += found.stats.accepted_tokens;
                // Continues from the middle of a predicted sequence.
                let config = GenerationConfig { lookahead, ..self::config(13) };
                found.tokens.extend(runner.generate("", &config, |_| ()).unwrap().tokens);
                assert_eq!(found.tokens, plain.tokens, "{lookahead} {processor:?}");
                assert_eq!(runner.context().len(), prompt.len() + 29);
            }
        }
        assert!(foreseen > 0);
    }
    let mut last_alone = runner_with("llama_wide", RunOn::Cpu, &Overrides::default());
    let wanted = GenerationConfig { lookahead: 2, ..config(5) };
    let refused = last_alone.generate_tokens(&[5], &wanted, |_| ()).unwrap_err();
    assert!(matches!(refused, Error::Setting { name: "lookahead", .. }), "{refused}");
}

/// Programs that do not belong together are errors.
#[test]
fn shards_in_the_wrong_order_are_errors() {
    let parts = ["shards_1", "shards_0"].map(|part| Box::new(module(part, RunOn::Cpu)));
    let parts = parts.into_iter().map(|part| part as Box<dyn Model>).collect();
    let refused = Runner::new(Shards::new(parts), Tokenizer::empty(), &Overrides::default());
    assert!(refused.unwrap_err().to_string().contains("input 0: expected tokens"));
    let parts = ["shards_0", "shards_0"].map(|part| Box::new(module(part, RunOn::Cpu)));
    let parts = parts.into_iter().map(|part| part as Box<dyn Model>).collect();
    let made = Runner::new(Shards::new(parts), Tokenizer::empty(), &Overrides::default());
    let refused = made.unwrap().prefill_tokens(&[1, 2]).unwrap_err();
    let source = std::error::Error::source(&refused).unwrap().to_string();
    assert!(source.contains("the next program"), "{source}");
    let none = Runner::new(Shards::new(Vec::new()), Tokenizer::empty(), &Overrides::default());
    assert!(none.is_err());
}

/// The embeddings of text, an image, text, audio and text enter the KV cache in this order.
#[test]
fn prompts_contain_images_and_audio() {
    let cases = expected("multimodal");
    let (texts, case) = (&cases[..2], &cases[2]);
    let numbers = |name: &str| -> Vec<f32> {
        case[name].as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as f32).collect()
    };
    // Converts interleaved pixels to planes.
    let pixels = numbers("picture");
    let planes = (0..3).flat_map(|channel| pixels.iter().skip(channel).step_by(3));
    let planes: Vec<f32> = planes.map(|value| value / 255.0).collect();
    let picture = Tensor::from_vec(&[1, 3, 16, 16], planes).unwrap();
    let sound = Tensor::from_vec(&[1, 8, 11], numbers("sound")).unwrap();
    let (first, last) = (ids(&texts[0]["ids"]), ids(&texts[1]["ids"]));
    for processor in PROCESSORS {
        let mut runner = runner_with("multimodal", processor, &Overrides::default());
        let info = runner.image_input().unwrap();
        assert_eq!((info.scalar_type, &info.sizes[..]), (ScalarType::Float, &[1, 3, 16, 16][..]));
        assert_eq!(&runner.audio_input().unwrap().sizes[..], &[1, 8, 11]);
        let prompt = [
            Input::Tokens(&first),
            Input::Image(picture.as_tensor_ref()),
            Input::Tokens(&[9]),
            Input::Audio(sound.as_tensor_ref()),
            Input::Tokens(&last),
        ];
        let chosen = ids(&case["chosen"]);
        let found = runner.generate_from(&prompt, &config(chosen.len()), |_| ()).unwrap();
        assert_eq!(found.tokens, chosen, "{processor:?}");
        // Five tokens, four patches, one token, five frames, one token.
        assert_eq!(found.stats.prompt_tokens, 16);
        // BOS and EOS tokens enclose the whole prompt.
        let overrides =
            Overrides { bos_id: Some(3), eos_ids: Some(vec![4]), ..Overrides::default() };
        let mut ended = runner_with("multimodal", processor, &overrides);
        let around = GenerationConfig { num_bos: 2, num_eos: 1, ignore_eos: true, ..config(8) };
        let found = ended.generate_from(&prompt, &around, |_| ()).unwrap();
        assert_eq!(found.stats.prompt_tokens, 16 + 3);
        let ends = [Input::Tokens(&[3, 3]), Input::Tokens(&[4])];
        let all = [&ends[..1], &prompt, &ends[1..]].concat();
        ended.reset().unwrap();
        let plain = GenerationConfig { num_bos: 0, num_eos: 0, ..around };
        let expected = ended.generate_from(&all, &plain, |_| ()).unwrap();
        assert_eq!(found.tokens, expected.tokens);
        let none = Overrides { eos_ids: Some(Vec::new()), ..Overrides::default() };
        let mut none = runner_with("multimodal", processor, &none);
        let ended = GenerationConfig { num_eos: 1, ..config(8) };
        let refused = none.generate_from(&prompt, &ended, |_| ());
        assert!(matches!(refused, Err(Error::Setting { name: "num_eos", .. })));
        // An empty prompt continues the text.
        let found = runner.generate_from(&prompt[1..1], &config(1), |_| ()).unwrap();
        assert_eq!((found.stats.prompt_tokens, found.tokens.len()), (0, 1));
        let wrong = Tensor::from_vec(&[1, 3, 8, 8], vec![0.0f32; 192]).unwrap();
        let wrong = [Input::Image(wrong.as_tensor_ref())];
        assert!(matches!(
            runner.generate_from(&wrong, &config(1), |_| ()),
            Err(Error::Model { .. })
        ));
    }
    let mut text_alone = runner_with("prefill_decode", RunOn::Cpu, &Overrides::default());
    let refused = text_alone
        .generate_from(&[Input::Image(picture.as_tensor_ref())], &config(1), |_| ())
        .unwrap_err();
    assert!(refused.to_string().contains("vision_encoder"), "{refused}");
}

/// Recurrent state has no positions: if a prompt diverges from the context, all of it is fed again.
#[test]
fn recurrent_state_is_not_rewound() {
    for processor in PROCESSORS {
        let mut runner = runner_with("llama_lfm", processor, &Overrides::default());
        for case in expected("llama_lfm") {
            let (prompt, chosen) = (ids(&case["ids"]), ids(&case["chosen"]));
            runner.reset().unwrap();
            let found = runner.generate_tokens(&prompt, &config(chosen.len()), |_| ()).unwrap();
            assert_eq!(found.tokens, chosen, "{processor:?}");
            let (again, rest) = chosen.split_at(3);
            let again = [&prompt[..], again].concat();
            assert_eq!(runner.rewind_to_common_prefix(&again).unwrap(), 0, "{processor:?}");
            let found = runner.generate_tokens(&again, &config(rest.len()), |_| ()).unwrap();
            assert_eq!(found.tokens, rest, "{processor:?}, again");
        }
    }
}
