//! Speech recognition: features match Hugging Face's, and a small encoder-decoder
//! (`llm/export/speech.py`) matches PyTorch.

use crate::forms::module;
use crate::ids;
use serde_json::Value;
use torchlet::core::{MethodMeta, TensorInfo, ValueRef};
use torchlet::llm::{
    AudioClip, Error, Failure, Finish, LogMel, Model, Overrides, SpeechTokens, Task, Tokenizer,
    Transcriber, TranscriptionConfig,
};
use torchlet::{Module, RunOn};

const FORMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/llm/forms");

fn expected() -> Value {
    serde_json::from_str(&std::fs::read_to_string(format!("{FORMS}/speech.json")).unwrap()).unwrap()
}

fn sound() -> AudioClip {
    AudioClip::load(format!("{FORMS}/speech.wav")).unwrap()
}

#[test]
fn features_match_whisper() {
    let sound = sound();
    assert_eq!((sound.rate(), sound.samples().len()), (LogMel::RATE, 24_000));
    for case in expected()["features"].as_array().unwrap() {
        let number = |name: &str| case[name].as_u64().unwrap() as usize;
        let (bins, frames) = (number("bins"), number("frames"));
        assert_eq!(LogMel::samples(frames), number("seconds") * 16_000);
        let most = case["samples"].as_u64().map_or(24_000, |count| count as usize);
        let mel = LogMel::new(bins).unwrap();
        let made = mel.features(&sound.samples()[..most], frames).unwrap();
        let mean = made.iter().map(|value| f64::from(*value)).sum::<f64>() / made.len() as f64;
        assert!((mean - case["mean"].as_f64().unwrap()).abs() < 1e-4, "{mean}");
        for some in case["some"].as_array().unwrap() {
            let at = |index: usize| some[index].as_u64().unwrap() as usize;
            let (found, expected) = (made[at(0) * frames + at(1)], some[2].as_f64().unwrap());
            assert!((f64::from(found) - expected).abs() < 1e-3, "{some}: {found}");
        }
    }
}

#[test]
fn transcriptions_match_pytorch() {
    let expected = expected();
    let (start, chosen) = (ids(&expected["start"]), ids(&expected["chosen"]));
    for processor in [RunOn::AsExported, RunOn::Cpu] {
        let module = module("speech", processor);
        // Only the context length ends the text.
        let overrides = Overrides { eos_ids: Some(vec![9999]), ..Overrides::default() };
        let mut transcriber = Transcriber::new(module, Tokenizer::empty(), &overrides).unwrap();
        let config = TranscriptionConfig { start: Some(start.clone()), ..Default::default() };
        for _ in 0..2 {
            let found = transcriber.transcribe(&sound(), &config, |_| ()).unwrap().generation;
            assert_eq!((found.tokens, found.finish), (chosen.clone(), Finish::Context));
        }
        let short = TranscriptionConfig { max_new_tokens: Some(5), ..config.clone() };
        // Twice the length of a chunk: the second half is silence.
        let mut samples = sound().samples().to_vec();
        samples.resize(64_000, 0.0);
        let long = AudioClip::new(16_000, samples).unwrap();
        let found = transcriber.transcribe(&long, &short, |_| ()).unwrap().generation;
        assert_eq!((&found.tokens[..5], found.tokens.len()), (&chosen[..5], 10));
        assert_eq!(found.finish, Finish::Length);
        let refused = transcriber.transcribe(&sound(), &TranscriptionConfig::default(), |_| ());
        assert!(matches!(&refused, Err(Error::Tokenizer { message }) if message.contains("start")));
        let foreign = TranscriptionConfig { start: Some(vec![start[0], 61]), ..config };
        let refused = transcriber.transcribe(&sound(), &foreign, |_| ());
        assert!(matches!(refused, Err(Error::ForeignToken { token: 61, vocabulary: 61 })));
    }
    let refused = Transcriber::new(
        module("multimodal", RunOn::Cpu),
        Tokenizer::empty(),
        &Overrides::default(),
    );
    assert!(refused.unwrap_err().to_string().contains("encoder"));
}

/// A program with the method names of early Optimum versions.
struct OldNames(Module);

/// Maps an old method name to the program's.
fn own(name: &str) -> &str {
    if name == "decoder" { "text_decoder" } else { name }
}

impl Model for OldNames {
    fn method_names(&self) -> Result<Vec<String>, Failure> {
        let names = Model::method_names(&self.0)?;
        Ok(names.iter().map(|name| name.trim_start_matches("text_").to_owned()).collect())
    }

    fn method_meta(&self, method: &str) -> Result<MethodMeta<'_>, Failure> {
        Model::method_meta(&self.0, own(method))
    }

    fn load(&mut self, method: &str) -> Result<(), Failure> {
        Model::load(&mut self.0, own(method))
    }

    fn run(
        &mut self,
        method: &str,
        inputs: &[ValueRef<'_>],
        read: &mut dyn FnMut(usize, ValueRef<'_>),
    ) -> Result<(), Failure> {
        Model::run(&mut self.0, own(method), inputs, read)
    }

    fn reset(&mut self, method: &str) -> Result<(), Failure> {
        Model::reset(&mut self.0, own(method))
    }

    fn state(&mut self, method: &str) -> Result<Vec<TensorInfo>, Failure> {
        Model::state(&mut self.0, own(method))
    }

    fn new_instance(&self) -> Box<dyn Model> {
        Box::new(OldNames(self.0.share()))
    }
}

#[test]
fn old_method_names_are_supported() {
    let expected = expected();
    let overrides = Overrides { eos_ids: Some(vec![9999]), ..Overrides::default() };
    let model = OldNames(module("speech", RunOn::Cpu));
    let mut transcriber = Transcriber::new(model, Tokenizer::empty(), &overrides).unwrap();
    let start = Some(ids(&expected["start"]));
    let config = TranscriptionConfig { start, ..Default::default() };
    for _ in 0..2 {
        let found = transcriber.transcribe(&sound(), &config, |_| ()).unwrap().generation;
        assert_eq!(found.tokens, ids(&expected["chosen"]));
    }
}

#[test]
fn transcriptions_are_stopped_from_another_thread() {
    let expected = expected();
    let start = Some(ids(&expected["start"]));
    let overrides = Overrides { eos_ids: Some(vec![9999]), ..Overrides::default() };
    let module = module("speech", RunOn::Cpu);
    let mut transcriber = Transcriber::new(module, Tokenizer::empty(), &overrides).unwrap();
    let config = TranscriptionConfig { start, ..Default::default() };
    let stop = transcriber.stop_handle();
    assert!(stop.is_idle());
    let hour = AudioClip::new(16_000, vec![0.0; 3600 * 16_000]).unwrap();
    let stopped = std::thread::scope(|threads| {
        let transcribing = threads.spawn(|| transcriber.transcribe(&hour, &config, |_| ()));
        while stop.is_idle() {
            std::thread::yield_now();
        }
        stop.stop();
        transcribing.join().unwrap().unwrap().generation
    });
    assert_eq!(stopped.finish, Finish::Stopped);
    // The next transcription runs to its end.
    let found = transcriber.transcribe(&sound(), &config, |_| ()).unwrap().generation;
    assert_eq!((found.tokens, found.finish), (ids(&expected["chosen"]), Finish::Context));
}

/// Matches Hugging Face's logits processors for Whisper (`llm/export/speech.py --rules`).
#[test]
fn logits_rules_match_hugging_face() {
    let rules = std::fs::read_to_string(format!("{FORMS}/speech_rules.json")).unwrap();
    let rules: Value = serde_json::from_str(&rules).unwrap();
    let mut tokens = SpeechTokens::default();
    tokens.configure(&rules["config"].to_string()).unwrap();
    let end = rules["config"]["eos_token_id"].as_u64().unwrap() as u32;
    let overrides = Overrides { eos_ids: Some(vec![end]), ..Overrides::default() };
    let module = module("speech", RunOn::Cpu);
    let mut transcriber = Transcriber::new(module, Tokenizer::empty(), &overrides).unwrap();
    for case in rules["cases"].as_array().unwrap() {
        tokens.suppress = ids(&case["suppress"]);
        tokens.suppress_first = ids(&case["suppress_first"]);
        transcriber.set_tokens(tokens.clone());
        let translates = case["task"] == "translate";
        let config = TranscriptionConfig {
            task: if translates { Task::Translate } else { Task::Transcribe },
            timestamps: case["timestamps"] == true,
            ..TranscriptionConfig::default()
        };
        let found = transcriber.transcribe(&sound(), &config, |_| ()).unwrap();
        assert_eq!(found.generation.tokens, ids(&case["chosen"]), "{case}");
        // The most probable language, because none was specified.
        assert_eq!(found.language.as_deref(), case["language"].as_str());
        assert_eq!(found.segments.is_empty(), !config.timestamps);
        let said: String = found.segments.iter().map(|segment| segment.text.as_str()).collect();
        assert!(!config.timestamps || said == found.generation.text, "{said}");
        let in_order = found.segments.iter().all(|segment| segment.from <= segment.to);
        assert!(in_order, "{:?}", found.segments);
    }
}

#[test]
fn missing_special_tokens_are_named() {
    let module = module("speech", RunOn::Cpu);
    let overrides = Overrides::default();
    let mut transcriber = Transcriber::new(module, Tokenizer::empty(), &overrides).unwrap();
    let mut refused = |config: TranscriptionConfig| {
        transcriber.transcribe(&sound(), &config, |_| ()).unwrap_err().to_string()
    };
    let usual = TranscriptionConfig::default;
    let timestamps = TranscriptionConfig { timestamps: true, ..usual() };
    assert!(refused(timestamps).contains("<|notimestamps|>"));
    let start = Some(vec![50]);
    let both = TranscriptionConfig { start, language: Some("en".into()), ..usual() };
    assert!(refused(both).contains("start"));
    let mut tokens = SpeechTokens::default();
    tokens.start = Some(50);
    transcriber.set_tokens(tokens);
    let mut refused = |config: TranscriptionConfig| {
        transcriber.transcribe(&sound(), &config, |_| ()).unwrap_err().to_string()
    };
    let language = TranscriptionConfig { language: Some("en".into()), ..usual() };
    assert!(refused(language).contains("<|en|>"));
    let task = TranscriptionConfig { task: Task::Translate, ..usual() };
    assert!(refused(task).contains("<|translate|>"));
}
