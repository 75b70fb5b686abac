//! A queue of requests for text, and the sessions that work on it.

use super::openai::{Completion, Prompt};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use torchlet::llm::{Error, Generation, GenerationConfig, Runner};

/// What becomes of a request.
pub(super) enum Event {
    /// Text, as it comes.
    Text(String),
    /// All of it, and the number of tokens of its prompt, whether they were fed now or before.
    Done(Box<Generation>, usize),
    /// Why there is none, and whether the request is to blame.
    Failed { message: String, is_theirs: bool },
}

/// A request, and who waits for it.
struct Job {
    request: Completion,
    reply: Sender<Event>,
}

/// Numbers that monitors ask for.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) waiting: AtomicUsize,
    pub(super) running: AtomicUsize,
    pub(super) done: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) abandoned: AtomicU64,
    pub(super) prompt_tokens: AtomicU64,
    pub(super) generated_tokens: AtomicU64,
    pub(super) busy_microseconds: AtomicU64,
}

/// Where requests wait for a session.
pub(super) struct Queue {
    jobs: SyncSender<Job>,
    pub(super) counts: Arc<Counts>,
}

impl Queue {
    /// A queue of this length, and a thread for each session.
    pub(super) fn new(sessions: Vec<Runner>, length: usize) -> Self {
        let (sender, jobs) = sync_channel(length);
        let (jobs, counts) = (Arc::new(Mutex::new(jobs)), Arc::<Counts>::default());
        for mut runner in sessions {
            let (jobs, counts) = (jobs.clone(), counts.clone());
            std::thread::spawn(move || {
                while let Some(job) = next(&jobs) {
                    counts.waiting.fetch_sub(1, Ordering::Relaxed);
                    counts.running.fetch_add(1, Ordering::Relaxed);
                    work(&mut runner, &job, &counts);
                    counts.running.fetch_sub(1, Ordering::Relaxed);
                }
            });
        }
        Queue { jobs: sender, counts }
    }

    /// Lets a request wait; whether there was room.
    pub(super) fn push(&self, request: Completion, reply: Sender<Event>) -> bool {
        self.counts.waiting.fetch_add(1, Ordering::Relaxed);
        match self.jobs.try_send(Job { request, reply }) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
                false
            }
        }
    }

    /// Whether nothing waits or runs.
    pub(super) fn is_idle(&self) -> bool {
        self.counts.waiting.load(Ordering::Relaxed) + self.counts.running.load(Ordering::Relaxed)
            == 0
    }
}

fn next(jobs: &Mutex<Receiver<Job>>) -> Option<Job> {
    jobs.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

fn work(runner: &mut Runner, job: &Job, counts: &Counts) {
    // Who left while waiting is found out here.
    let is_there = job.reply.send(Event::Text(String::new())).is_ok();
    let result = if is_there { generate(runner, job) } else { Ok(None) };
    let event = match result {
        Ok(Some((generation, prompt))) => {
            let add = |count: &AtomicU64, number: usize| {
                count.fetch_add(number as u64, Ordering::Relaxed)
            };
            add(&counts.prompt_tokens, generation.stats.prompt_tokens);
            add(&counts.generated_tokens, generation.stats.generated_tokens);
            let time = u64::try_from(generation.stats.total.as_micros()).unwrap_or(u64::MAX);
            counts.busy_microseconds.fetch_add(time, Ordering::Relaxed);
            counts.done.fetch_add(1, Ordering::Relaxed);
            Event::Done(Box::new(generation), prompt)
        }
        Ok(None) => {
            counts.abandoned.fetch_add(1, Ordering::Relaxed);
            return;
        }
        Err(error) => {
            counts.failed.fetch_add(1, Ordering::Relaxed);
            let is_theirs = !matches!(error, Error::Model { .. } | Error::Interface { .. });
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            Event::Failed { message: format!("{error}{}", source.unwrap_or_default()), is_theirs }
        }
    };
    // Nobody may be left to hear it.
    let _ = job.reply.send(event);
}

/// The text, and the number of tokens of its prompt; nothing if nobody waits for it any more.
fn generate(runner: &mut Runner, job: &Job) -> Result<Option<(Generation, usize)>, Error> {
    let tokens = match &job.request.prompt {
        Prompt::Messages(messages) => runner.chat_tokens(messages)?,
        Prompt::Text(text) => {
            let bos = runner.metadata().bos_id;
            bos.into_iter().chain(runner.tokenizer().encode(text)?).collect()
        }
    };
    let limit = runner.metadata().max_context_len;
    if tokens.len() > limit {
        return Err(Error::ContextFull { position: 0, tokens: tokens.len(), limit });
    }
    let kept = runner.keep_common(&tokens)?;
    let (stop, mut is_there) = (runner.stop_handle(), true);
    let config: &GenerationConfig = &job.request.config;
    let generation = runner.generate_tokens(&tokens[kept..], config, |text| {
        if job.reply.send(Event::Text(text.into())).is_err() {
            is_there = false;
            stop.stop();
        }
    })?;
    Ok(is_there.then_some((generation, tokens.len())))
}
