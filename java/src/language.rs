//! Language models.

use crate::error::{Failure, Throw};
use crate::settings::{Settings, Source};
use crate::table::{Table, lock};
use crate::text::{string, strings};
use crate::values::{Argument, arguments};
use jni::objects::{JClass, JLongArray, JObject, JObjectArray, JString, JValue};
use jni::sys::{jboolean, jfloat, jint, jlong};
use jni::{Env, EnvUnowned, jni_mangle, jni_sig, jni_str};
use std::sync::{LazyLock, Mutex};
use std::time::Instant;
use torchlet::llm::{self, GenerationConfig, Input, Sampling, Stop, Tokenizer};

/// A language model with its context, which threads use in turn. Any thread may stop it.
struct Runner {
    runner: Mutex<llm::Runner>,
    stop: Stop,
}

static RUNNERS: LazyLock<Table<Runner>> = LazyLock::new(Table::new);

/// Opens a language model and its tokenizer. Returns its number.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn open_runner<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    path: JString<'local>,
    tokenizer: JString<'local>,
    settings: JObjectArray<'local, JString<'local>>,
    is_multimodal: jboolean,
) -> jlong {
    env.with_env(|env| -> Result<jlong, Failure> {
        let start = Instant::now();
        let settings = Settings::of(strings(env, &settings, "settings")?);
        let tokenizer = Tokenizer::load(string(env, &tokenizer, "tokenizer path")?)?;
        let path = string(env, &path, "model path")?;
        let (module, _) = settings.open(Source::Path(path))?;
        let opened = start.elapsed();
        let runner = llm::Runner::new(module, tokenizer, &llm::Overrides::default())?;
        let runner = runner.with_load_time(opened);
        if is_multimodal && runner.image_input().is_none() && runner.audio_input().is_none() {
            let message =
                "expected a multimodal program, found one without encoders; open it as text";
            return Err(Failure::invalid(message.into()));
        }
        let stop = runner.stop_handle();
        Ok(RUNNERS.add(Runner { runner: Mutex::new(runner), stop }))
    })
    .resolve::<Throw>()
}

/// Closes a language model. A generation that runs finishes first.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn close_runner<'local>(mut env: EnvUnowned<'local>, _: JClass<'local>, runner: jlong) {
    env.with_env(|_| -> Result<(), Failure> {
        RUNNERS.remove(runner);
        Ok(())
    })
    .resolve::<Throw>();
}

/// A count of Java: negative if there is none.
fn count(number: jint) -> Option<usize> {
    usize::try_from(number).ok()
}

/// Passes a piece of text to the callback, whose exception becomes pending.
fn tell(env: &mut Env<'_>, callback: &JObject<'_>, text: &str) -> Result<(), Failure> {
    // A frame for each piece, because local references are few.
    env.with_local_frame(4, |env| {
        let text = env.new_string(text)?;
        let (name, signature) = (jni_str!("onResult"), jni_sig!("(Ljava/lang/String;)V"));
        env.call_method(callback, name, signature, &[JValue::Object(&text)])?;
        Ok(())
    })
}

/// Generates text after a prompt, passes it to the callback, and returns the statistics as JSON. An
/// exception of the callback ends the generation.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn generate<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    runner: jlong,
    prompt: JString<'local>,
    max_new_tokens: jint,
    seq_len: jint,
    temperature: jfloat,
    echo: jboolean,
    num_bos: jint,
    num_eos: jint,
    callback: JObject<'local>,
) -> JString<'local> {
    env.with_env(|env| -> Result<_, Failure> {
        let (runner, prompt) = (RUNNERS.get(runner)?, string(env, &prompt, "prompt")?);
        let config = GenerationConfig {
            echo,
            max_new_tokens: count(max_new_tokens),
            seq_len: count(seq_len),
            num_bos: count(num_bos).unwrap_or(0),
            num_eos: count(num_eos).unwrap_or(0),
            sampling: Sampling { temperature, ..Sampling::default() },
            ..GenerationConfig::default()
        };
        let mut told = Ok(());
        let generation = {
            let mut model = lock(&runner.runner)?;
            model.generate(&prompt, &config, |text| {
                if told.is_ok() {
                    told = tell(env, &callback, text);
                    if told.is_err() {
                        runner.stop.stop();
                    }
                }
            })
        };
        told?;
        Ok(env.new_string(generation?.stats.json())?)
    })
    .resolve::<Throw>()
}

/// Feeds text without generating.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn prefill_text<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    runner: jlong,
    text: JString<'local>,
    num_bos: jint,
) {
    env.with_env(|env| {
        let (runner, text) = (RUNNERS.get(runner)?, string(env, &text, "prompt")?);
        feed(&mut *lock(&runner.runner)?, &[Input::Text(&text)], num_bos)
    })
    .resolve::<Throw>();
}

/// Feeds an image or audio without generating: a tensor for the encoder. A dim of size one in front
/// is added or removed as the encoder expects.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn prefill_tensor<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    runner: jlong,
    is_image: jboolean,
    description: JLongArray<'local>,
    objects: JObjectArray<'local>,
    num_bos: jint,
) {
    env.with_env(|env| {
        let runner = RUNNERS.get(runner)?;
        let arguments = arguments(env, &description, &objects)?;
        let [Argument::Tensor(tensor)] = &arguments[..] else {
            return Err(Failure::invalid("expected one tensor".into()));
        };
        let tensor = tensor.to_tensor()?;
        let mut model = lock(&runner.runner)?;
        let info = if is_image { model.image_input() } else { model.audio_input() };
        let rank = info.map(|info| info.rank()).ok_or_else(|| {
            let kind = if is_image { "images" } else { "audio" };
            Failure::invalid(format!("the program does not accept {kind}: it has no encoder"))
        })?;
        let shape = match tensor.shape() {
            [1, rest @ ..] if rest.len() == rank => rest.to_vec(),
            shape if shape.len() + 1 == rank => [&[1], shape].concat(),
            shape => shape.to_vec(),
        };
        let tensor = tensor.reshape(&shape)?;
        let reference = tensor.as_tensor_ref();
        let input = if is_image { Input::Image(reference) } else { Input::Audio(reference) };
        feed(&mut model, &[input], num_bos)
    })
    .resolve::<Throw>();
}

/// Feeds inputs without generating.
fn feed(model: &mut llm::Runner, inputs: &[Input<'_>], num_bos: jint) -> Result<(), Failure> {
    let config = GenerationConfig {
        max_new_tokens: Some(0),
        num_bos: count(num_bos).unwrap_or(0),
        ..GenerationConfig::default()
    };
    model.generate_from(inputs, &config, |_| ())?;
    Ok(())
}

/// Clears the context.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn reset_runner<'local>(mut env: EnvUnowned<'local>, _: JClass<'local>, runner: jlong) {
    env.with_env(|_| -> Result<(), Failure> {
        let runner = RUNNERS.get(runner)?;
        lock(&runner.runner)?.reset()?;
        Ok(())
    })
    .resolve::<Throw>();
}

/// Ends the current generation, if any. Does not wait for it.
#[jni_mangle("dev.torchlet.internal.Native")]
pub fn stop_runner<'local>(mut env: EnvUnowned<'local>, _: JClass<'local>, runner: jlong) {
    env.with_env(|_| -> Result<(), Failure> {
        RUNNERS.get(runner)?.stop.stop();
        Ok(())
    })
    .resolve::<Throw>();
}
