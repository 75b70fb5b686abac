//! Request queue, and the session threads that serve it.

use super::images::parts;
use super::openai::{self, Completion};
use crate::failure::Failure;
use crate::language::images::ImageOptions;
use crate::language::inputs::Part;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use torchlet::llm::{
    Error, Finish, Generation, GenerationConfig, Input, Logprobs, Message, Placeholder, Runner,
    TemplateArguments,
};

/// Progress of a request.
pub(super) enum Event {
    /// A piece of text, with the log probabilities of its tokens if they are requested and
    /// streamed.
    Text(String, Vec<Logprobs>),
    /// A finished choice: the generation, the number of prompt tokens, and the log probabilities of
    /// the remaining tokens, which produced no text and did not end it.
    Done { generation: Box<Generation>, prompt: usize, rest: Vec<Logprobs> },
    /// Error message and HTTP status.
    Failed { message: String, status: u16 },
}

/// Error message and HTTP status.
struct Refusal {
    message: String,
    status: u16,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::Overloaded { .. } => 503,
            Error::Model { .. } | Error::Interface { .. } | Error::Defect { .. } => 500,
            _ => 400,
        };
        let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
        Refusal { message: format!("{error}{}", source.unwrap_or_default()), status }
    }
}

impl From<Failure> for Refusal {
    /// Invalid images are client errors.
    fn from(failure: Failure) -> Self {
        Refusal { message: failure.to_string(), status: 400 }
    }
}

/// Settings shared by all requests.
struct Usual {
    image_options: ImageOptions,
    /// Default variables of the chat template.
    arguments: TemplateArguments,
}

/// A request and the channel for its events.
struct Job {
    request: Completion,
    reply: Sender<Event>,
    waiting: Weak<()>,
}

/// The client's end of a request. Dropping it cancels the request.
pub(super) struct Waiting {
    pub(super) events: Receiver<Event>,
    _there: Arc<()>,
}

/// Metrics of a model.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Number of session threads.
    pub(super) sessions: AtomicUsize,
    pub(super) waiting: AtomicUsize,
    pub(super) running: AtomicUsize,
    pub(super) done: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) abandoned: AtomicU64,
    pub(super) prompt_tokens: AtomicU64,
    pub(super) generated_tokens: AtomicU64,
    pub(super) busy_microseconds: AtomicU64,
}

/// The queue of a model.
pub(super) struct Queue {
    jobs: SyncSender<Job>,
    pub(super) counts: Arc<Counts>,
}

impl Queue {
    /// Creates a queue of this capacity and starts a thread for each session.
    pub(super) fn new(sessions: Vec<Runner>, length: usize, image_options: &ImageOptions) -> Self {
        let (sender, jobs) = sync_channel(length);
        let (jobs, counts) = (Arc::new(Mutex::new(jobs)), Arc::<Counts>::default());
        counts.sessions.store(sessions.len(), Ordering::Relaxed);
        for runner in sessions {
            let (jobs, counts) = (jobs.clone(), counts.clone());
            let usual = Usual {
                image_options: image_options.clone(),
                arguments: runner.template_arguments().clone(),
            };
            std::thread::spawn(move || {
                serve(runner, &jobs, &counts, &usual);
                counts.sessions.fetch_sub(1, Ordering::Relaxed);
            });
        }
        Queue { jobs: sender, counts }
    }

    /// Enqueues a request; `None` if the queue is full.
    pub(super) fn push(&self, request: Completion) -> Option<Waiting> {
        let ((reply, events), there) = (channel(), Arc::new(()));
        let waiting = Arc::downgrade(&there);
        self.counts.waiting.fetch_add(1, Ordering::Relaxed);
        match self.jobs.try_send(Job { request, reply, waiting }) {
            Ok(()) => Some(Waiting { events, _there: there }),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// Whether any session is left.
    pub(super) fn is_alive(&self) -> bool {
        self.counts.sessions.load(Ordering::Relaxed) > 0
    }

    /// Whether no request is waiting or running.
    pub(super) fn is_idle(&self) -> bool {
        self.counts.waiting.load(Ordering::Relaxed) + self.counts.running.load(Ordering::Relaxed)
            == 0
    }
}

fn next(jobs: &Mutex<Receiver<Job>>) -> Option<Job> {
    jobs.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

/// Serves requests until the queue is closed. A session that panics is replaced, because the state
/// of its caches is unknown; so is one that shared a run with it.
fn serve(mut runner: Runner, jobs: &Mutex<Receiver<Job>>, counts: &Counts, usual: &Usual) {
    while let Some(job) = next(jobs) {
        counts.waiting.fetch_sub(1, Ordering::Relaxed);
        counts.running.fetch_add(1, Ordering::Relaxed);
        let worked = catch_unwind(AssertUnwindSafe(|| {
            if runner.is_lost() {
                runner.replace()?;
            }
            work(&mut runner, &job, counts, usual);
            Ok::<(), torchlet::llm::Error>(())
        }));
        counts.running.fetch_sub(1, Ordering::Relaxed);
        if !matches!(worked, Ok(Ok(()))) {
            counts.failed.fetch_add(1, Ordering::Relaxed);
            let message = "internal error: the session panicked".into();
            let _ = job.reply.send(Event::Failed { message, status: 500 });
            match catch_unwind(AssertUnwindSafe(|| runner.replace())) {
                Ok(Ok(())) => {}
                _ => return,
            }
        }
    }
}

fn work(runner: &mut Runner, job: &Job, counts: &Counts, usual: &Usual) {
    let is_left = {
        let waiting = job.waiting.clone();
        move || waiting.strong_count() == 0
    };
    runner.stop_when(is_left.clone());
    let result = match is_left() {
        true => Ok(false),
        false => answer(runner, job, counts, usual, &is_left),
    };
    let abandon = || {
        counts.abandoned.fetch_add(1, Ordering::Relaxed);
    };
    match result {
        Ok(true) => {}
        Ok(false) => abandon(),
        // Errors after a disconnect count as abandoned, not failed.
        Err(_) if is_left() => abandon(),
        Err(Refusal { message, status }) => {
            counts.failed.fetch_add(1, Ordering::Relaxed);
            // The client may be gone.
            let _ = job.reply.send(Event::Failed { message, status });
        }
    }
}

/// A prompt to feed to the model.
enum Prompt<'j> {
    Tokens(Vec<u32>),
    /// Messages with a placeholder per image, and the parts of each image.
    Pictures {
        messages: &'j [Message],
        mark: &'j Placeholder,
        images: Vec<Vec<Part>>,
    },
}

/// Generates the requested choices in turn. Returns whether the client waited for all of them.
fn answer(
    runner: &mut Runner,
    job: &Job,
    counts: &Counts,
    usual: &Usual,
    is_left: &dyn Fn() -> bool,
) -> Result<bool, Refusal> {
    let Completion { config, arguments, choices, stream, .. } = &job.request;
    runner.set_template_arguments(arguments.clone().or(&usual.arguments));
    let prompt = prompt(runner, job, usual)?;
    let (sender, receiver) = channel();
    let is_told = *stream && config.logprobs.is_some();
    runner.on_token(move |_, logprobs| {
        if let Some(logprobs) = logprobs.filter(|_| is_told) {
            let _ = sender.send(logprobs.clone());
        }
    });
    for choice in 0..*choices {
        let mut config = config.clone();
        // Each choice has a seed of its own; the first equals that of a single choice.
        let seed = &mut config.sampling.seed;
        *seed = seed.map(|seed| seed.wrapping_add(choice as u64));
        let (generation, prompt) = generate(runner, job, &prompt, &config, &receiver)?;
        if is_left() {
            return Ok(false);
        }
        let add =
            |count: &AtomicU64, number: usize| count.fetch_add(number as u64, Ordering::Relaxed);
        add(&counts.prompt_tokens, generation.stats.prompt_tokens);
        add(&counts.generated_tokens, generation.stats.generated_tokens);
        let time = u64::try_from(generation.stats.total.as_micros()).unwrap_or(u64::MAX);
        counts.busy_microseconds.fetch_add(time, Ordering::Relaxed);
        counts.done.fetch_add(1, Ordering::Relaxed);
        let rest = receiver.try_iter().filter(|_| generation.finish != Finish::Stop).collect();
        // The client may be gone.
        let _ = job.reply.send(Event::Done { generation: Box::new(generation), prompt, rest });
    }
    Ok(true)
}

fn prompt<'j>(runner: &mut Runner, job: &'j Job, usual: &Usual) -> Result<Prompt<'j>, Refusal> {
    let tokens: Vec<u32> = match &job.request.prompt {
        openai::Prompt::Messages { messages, images, mark } if !images.is_empty() => {
            let images = parts(runner, images, &usual.image_options)?;
            return Ok(Prompt::Pictures { messages, mark, images });
        }
        openai::Prompt::Messages { messages, .. } => {
            runner.chat_tokens_with_tools(messages, &job.request.tools)?
        }
        openai::Prompt::Text(text) => {
            let bos = runner.metadata().bos_id;
            bos.into_iter().chain(runner.tokenizer().encode(text)?).collect()
        }
        openai::Prompt::Tokens(tokens) => tokens.clone(),
    };
    let limit = runner.metadata().max_context_len;
    match tokens.len() > limit {
        true => Err(Error::ContextFull { position: 0, tokens: tokens.len(), limit }.into()),
        false => Ok(Prompt::Tokens(tokens)),
    }
}

/// Generates a text. Returns it with the number of prompt tokens. Stops early if the client leaves.
fn generate(
    runner: &mut Runner,
    job: &Job,
    prompt: &Prompt<'_>,
    config: &GenerationConfig,
    receiver: &Receiver<Logprobs>,
) -> Result<(Generation, usize), Refusal> {
    let on_text = |text: &str| {
        // The runner checks for disconnected clients itself.
        let _ = job.reply.send(Event::Text(text.into(), receiver.try_iter().collect()));
    };
    match prompt {
        Prompt::Pictures { messages, mark, images } => {
            let inputs: Vec<Vec<Input<'_>>> =
                images.iter().map(|parts| parts.iter().map(Part::input).collect()).collect();
            let tools = &job.request.tools;
            let generation = runner.chat_from(messages, tools, (mark, &inputs), config, on_text)?;
            let prompt = generation.stats.prompt_tokens;
            Ok((generation, prompt))
        }
        Prompt::Tokens(tokens) => {
            let kept = runner.rewind_to_common_prefix(tokens)?;
            let new = tokens.get(kept..).unwrap_or_default();
            let generation = runner.generate_tokens(new, config, on_text)?;
            Ok((generation, tokens.len()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::SyncSender;
    use torchlet::Module;
    use torchlet::core::{MethodMeta, TensorInfo, ValueRef};
    use torchlet::llm::{Failure, Model, Overrides, Tokenizer};

    /// Called with the tokens before each run.
    type Before = Arc<dyn Fn(&[i64]) + Send + Sync>;

    /// A model that calls a function before each run.
    struct ObservedModel(Module, Before);

    impl Model for ObservedModel {
        fn method_names(&self) -> Result<Vec<String>, Failure> {
            Model::method_names(&self.0)
        }

        fn method_meta(&self, method: &str) -> Result<MethodMeta<'_>, Failure> {
            Model::method_meta(&self.0, method)
        }

        fn load(&mut self, method: &str) -> Result<(), Failure> {
            Model::load(&mut self.0, method)
        }

        fn run(
            &mut self,
            method: &str,
            inputs: &[ValueRef<'_>],
            read: &mut dyn FnMut(usize, ValueRef<'_>),
        ) -> Result<(), Failure> {
            if let Some(ValueRef::Tensor(tokens)) = inputs.first() {
                (self.1)(tokens.data::<i64>().unwrap_or_default());
            }
            Model::run(&mut self.0, method, inputs, read)
        }

        fn reset(&mut self, method: &str) -> Result<(), Failure> {
            Model::reset(&mut self.0, method)
        }

        fn state(&mut self, method: &str) -> Result<Vec<TensorInfo>, Failure> {
            Model::state(&mut self.0, method)
        }

        fn new_instance(&self) -> Box<dyn Model> {
            Box::new(ObservedModel(self.0.share(), self.1.clone()))
        }
    }

    const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../llm/model");

    /// A queue with one session, with at most `most` prompt tokens per run.
    fn watch(most: usize, before: impl Fn(&[i64]) + Send + Sync + 'static) -> (Queue, Tokenizer) {
        let module = Module::load(format!("{MODEL}/fp32.pte")).unwrap();
        let load = || Tokenizer::load(format!("{MODEL}/tokenizer.json")).unwrap();
        let overrides = Overrides { max_seq_len: Some(most), ..Overrides::default() };
        let runner =
            Runner::new(ObservedModel(module, Arc::new(before)), load(), &overrides).unwrap();
        (Queue::new(vec![runner], 8, &ImageOptions::default()), load())
    }

    fn push(queue: &Queue, prompt: &str) -> Waiting {
        let body = serde_json::json!({"prompt": prompt, "max_tokens": 3, "temperature": 0});
        queue.push(Completion::read(body.to_string().as_bytes(), false).unwrap()).unwrap()
    }

    fn ask(queue: &Queue, prompt: &str) -> Event {
        push(queue, prompt).events.iter().last().unwrap()
    }

    /// Clients retry 5xx statuses only.
    #[test]
    fn failures_have_the_status_of_their_cause() {
        let message = String::new;
        for (error, status) in [
            (Error::Overloaded { message: message() }, 503),
            (Error::Defect { message: message() }, 500),
            (Error::Template { message: message() }, 400),
            (Error::Grammar { message: message() }, 400),
        ] {
            assert_eq!(Refusal::from(error).status, status);
        }
    }

    #[test]
    fn a_session_that_panics_is_replaced() {
        const BAD: i64 = 77;
        let (queue, tokenizer) =
            watch(64, |tokens| assert!(!tokens.contains(&BAD), "a defect of the model"));
        let bad = tokenizer.decode(&[BAD as u32]);
        for _ in 0..3 {
            assert!(matches!(ask(&queue, "In the beginning"), Event::Done { .. }));
            assert!(matches!(ask(&queue, &bad), Event::Failed { status: 500, .. }));
        }
        assert!(queue.is_alive() && queue.is_idle());
        assert_eq!(queue.counts.failed.load(Ordering::Relaxed), 3);
    }

    /// The client of a prompt of many chunks leaves while the second chunk is fed.
    #[test]
    fn prefill_stops_when_the_client_disconnects() {
        let fed = Arc::<AtomicUsize>::default();
        let (begun, begins) = sync_channel(0);
        let (go, goes) = sync_channel::<()>(0);
        let rendezvous: Mutex<(SyncSender<()>, Receiver<()>)> = Mutex::new((begun, goes));
        let count = fed.clone();
        let (queue, tokenizer) = watch(4, move |_| {
            if count.fetch_add(1, Ordering::Relaxed) == 1 {
                let (begun, goes) = &*rendezvous.lock().unwrap();
                begun.send(()).unwrap();
                goes.recv().unwrap();
            }
        });
        let prompt = "In the beginning God created the heaven and the earth. ".repeat(4);
        assert!(tokenizer.encode(&prompt).unwrap().len() > 40);
        let client = push(&queue, &prompt);
        begins.recv().unwrap();
        drop(client);
        go.send(()).unwrap();
        // The next request starts at once and gets the right answer despite the partially filled
        // cache.
        let Event::Done { generation: found, .. } = ask(&queue, "In the beginning") else {
            panic!()
        };
        let counts = &queue.counts;
        assert_eq!(counts.abandoned.load(Ordering::Relaxed), 1);
        assert_eq!(counts.done.load(Ordering::Relaxed), 1);
        let other = watch(64, |_| ()).0;
        let Event::Done { generation: expected, .. } = ask(&other, "In the beginning") else {
            panic!()
        };
        assert_eq!(found.tokens, expected.tokens);
        // Two chunks, plus the prompt and at most two tokens of the next request.
        let fed = fed.load(Ordering::Relaxed);
        assert!(fed <= 2 + 2 + 2, "{fed} runs");
    }
}
