//! `torchlet serve`: an HTTP server for language models with OpenAI's API.
//!
//! Each connection has a thread that reads one request and writes one response (`http.rs`), up to a
//! limit of connections. Requests for text wait in a bounded queue for a session of the model
//! (`models.rs`, `jobs.rs`). Threads and sockets of the standard library suffice: a model that
//! spends milliseconds per token serves hundreds of clients at most, and each costs one stack.

mod client;
mod guard;
mod http;
mod images;
mod jobs;
mod metrics;
mod models;
mod openai;
mod options;
#[cfg(feature = "grammar")]
mod trial;

pub(crate) use options::ServeArguments;
#[cfg(feature = "grammar")]
pub(crate) use trial::{COMPILE_SCHEMA, compile_schema};

use crate::failure::Failure;
use client::Client;
use guard::{Bodies, Guard, Shares};
use http::Request;
use jobs::{Event, Waiting};
use models::{Models, Served};
use openai::{Answer, Completion};
use serde_json::json;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};
#[cfg(feature = "grammar")]
use trial::Trial;

const PAGE: &str = include_str!("page.html");
/// Environment variable with the API key.
const KEY_VARIABLE: &str = "TORCHLET_API_KEY";
const JSON: &str = "application/json";
/// Deeply nested JSON requires some hundreds of kilobytes of stack in debug builds. Unused stack
/// pages cost no memory.
const STACK: usize = 2 << 20;
/// Interval of checks for disconnected clients.
const DISCONNECT_POLL: Duration = Duration::from_millis(25);
/// Interval of attempts to get a lock.
const TURN_POLL: Duration = Duration::from_millis(1);
/// Time limit for responses in progress at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);

struct Server {
    models: Models,
    guard: Guard,
    bodies: Bodies,
    shares: Shares,
    /// Serializes parsing: parsed JSON can need a hundred times the memory of its text.
    reading: Mutex<()>,
    #[cfg(feature = "grammar")]
    trials: trial::Trials,
    created: u64,
    requests: AtomicU64,
    connections: AtomicUsize,
    stopping: AtomicBool,
}

/// Serves models until Ctrl-C or SIGTERM.
pub(crate) fn serve(arguments: &ServeArguments) -> Result<(), Failure> {
    if arguments.api_key.as_deref() == Some("") {
        // An unset shell variable yields an empty key; that must not disable the check silently.
        return Err(Failure::new("--api-key is empty: omit it to serve without a key"));
    }
    let models = Models::open(arguments)?;
    let address = (arguments.host.as_str(), arguments.port);
    let listener = TcpListener::bind(address).map_err(|error| {
        Failure::new(format!("cannot listen on {}:{}: {error}", arguments.host, arguments.port))
    })?;
    let address = listener.local_addr().map_err(|error| Failure::new(error.to_string()))?;
    let server = Arc::new(Server {
        models,
        guard: Guard::new(
            arguments
                .api_key
                .clone()
                .or_else(|| std::env::var(KEY_VARIABLE).ok().filter(|key| !key.is_empty())),
            address.ip().is_loopback(),
            [std::slice::from_ref(&arguments.host), &arguments.allow_host].concat(),
        ),
        bodies: Bodies::default(),
        shares: Shares::new(arguments.connections, arguments.connections_per_address),
        reading: Mutex::default(),
        #[cfg(feature = "grammar")]
        trials: trial::Trials::default(),
        created: openai::now(),
        requests: AtomicU64::new(0),
        connections: AtomicUsize::new(0),
        stopping: AtomicBool::new(false),
    });
    let stopping = server.clone();
    let stop = Arc::new(move || {
        if stopping.stopping.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        // Wakes the accept loop with a connection.
        let _ = TcpStream::connect(address);
    });
    #[cfg(unix)]
    on_termination(stop.clone())?;
    ctrlc::set_handler(move || stop())
        .map_err(|error| Failure::new(format!("cannot handle Ctrl-C: {error}")))?;
    println!("listening on http://{address}");
    if server.guard.is_open() {
        anstream::eprintln!(
            "anyone who can connect to {address} can use it: require a key with --api-key or \
             ${KEY_VARIABLE}"
        );
    }
    for stream in listener.incoming() {
        if server.stopping.load(Ordering::Relaxed) {
            break;
        }
        match stream {
            Ok(stream) => accept(&server, stream),
            // For example, no file descriptors are left until other connections close.
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    drop(listener);
    let end = Instant::now() + SHUTDOWN_TIMEOUT;
    let is_busy = || !server.models.are_idle() || server.connections.load(Ordering::Relaxed) > 0;
    while is_busy() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Handles SIGTERM, the stop signal of service managers. SIGHUP is not handled, so `nohup` works.
#[cfg(unix)]
fn on_termination(stop: Arc<impl Fn() + Send + Sync + 'static>) -> Result<(), Failure> {
    let fail = |error| Failure::new(format!("cannot handle SIGTERM: {error}"));
    let mut signals =
        signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM]).map_err(fail)?;
    let thread = std::thread::Builder::new();
    thread.spawn(move || signals.forever().for_each(|_| stop())).map_err(fail)?;
    Ok(())
}

/// Counts an open connection.
struct Connection(Arc<Server>, Option<IpAddr>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
        self.0.shares.leave(self.1);
    }
}

fn accept(server: &Arc<Server>, mut stream: TcpStream) {
    let address = stream.peer_addr().map(|address| address.ip()).ok();
    let count = server.connections.fetch_add(1, Ordering::Relaxed);
    let has_share = server.shares.enter(address);
    let connection = Connection(server.clone(), address);
    if !has_share || count >= server.shares.max_connections {
        let message = match has_share {
            true => "too many connections",
            false => "too many connections from this address: see --connections-per-address",
        };
        let error = openai::error(503, message, None).to_string();
        let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
        let _ = http::respond(&mut stream, 503, JSON, error.as_bytes());
        return;
    }
    let thread = std::thread::Builder::new().stack_size(STACK);
    // If no thread can be created, dropping the stream closes the connection.
    let _ = thread.spawn(move || {
        // I/O errors mean that the client is gone.
        let _ = connection.0.handle(&mut stream);
    });
}

impl Server {
    fn handle(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let check = |request: &Request| {
            self.guard.check(request)?;
            self.bodies.admit(request.length)
        };
        // The reservation lasts as long as the request.
        let (request, _room) = match http::read(stream, check) {
            Ok(read) => read,
            Err(Some((status, message))) => {
                let code = (status == 401).then_some("invalid_api_key");
                fail(stream, status, &message, code)?;
                http::drain(stream);
                return Ok(());
            }
            Err(None) => return Ok(()),
        };
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/") => http::respond(stream, 200, "text/html; charset=utf-8", PAGE.as_bytes()),
            ("GET", "/health") => {
                let (status, body) = self.models.health();
                http::respond(stream, status, JSON, body.as_bytes())
            }
            ("GET", "/metrics") => {
                let metrics = metrics::of(&self.requests, &self.connections, &self.models);
                http::respond(stream, 200, "text/plain; version=0.0.4", metrics.as_bytes())
            }
            ("GET", "/v1/models") => {
                let all: Vec<_> = self.models.iter().map(|model| self.tell(model)).collect();
                let list = json!({"object": "list", "data": all});
                http::respond(stream, 200, JSON, list.to_string().as_bytes())
            }
            ("POST", "/v1/chat/completions") => self.complete(stream, &request, true),
            ("POST", "/v1/completions") => self.complete(stream, &request, false),
            ("GET", path) if path.starts_with("/v1/models/") => {
                let name = path.strip_prefix("/v1/models/").unwrap_or_default();
                match self.models.named(&http::decoded(name)) {
                    Ok(model) => {
                        let body = self.tell(model).to_string();
                        http::respond(stream, 200, JSON, body.as_bytes())
                    }
                    Err(refusal) => refuse(stream, &refusal),
                }
            }
            (
                _,
                "/"
                | "/health"
                | "/metrics"
                | "/v1/models"
                | "/v1/chat/completions"
                | "/v1/completions",
            ) => fail(stream, 405, "this path does not support the request's method", None),
            _ => fail(stream, 404, "this path does not exist", None),
        }
    }

    fn tell(&self, model: &Served) -> serde_json::Value {
        json!({
            "id": model.name, "object": "model", "created": self.created, "owned_by": "torchlet"
        })
    }

    /// Ends a request whose client is gone, or which the server will not answer any more.
    fn left(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        match self.stopping.load(Ordering::Relaxed) {
            true => fail(stream, 503, "the server is shutting down", None),
            false => Ok(()),
        }
    }

    fn complete(
        &self,
        stream: &mut TcpStream,
        request: &Request,
        is_chat: bool,
    ) -> std::io::Result<()> {
        let _room = match self.bodies.admit_fields(&request.body) {
            Ok(room) => room,
            Err((status, message)) => return fail(stream, status, &message, None),
        };
        let mut client = Client::new(request.knows_interim);
        // Before the client can disconnect, after which the address is unknown.
        #[cfg(feature = "grammar")]
        let owner = guard::owner(stream.peer_addr().map(|address| address.ip()).ok());
        let mut is_gone = || self.stopping.load(Ordering::Relaxed) || client.is_gone(stream);
        let Some(alone) = turn(&self.reading, &mut is_gone) else {
            return self.left(stream);
        };
        let read = Completion::parse(&request.body, is_chat);
        drop(alone);
        let parsed = match read {
            Ok(parsed) => parsed,
            Err(message) => return fail(stream, 400, &message, None),
        };
        #[cfg_attr(not(feature = "grammar"), expect(unused_mut))]
        let mut request = parsed.completion;
        #[cfg(feature = "grammar")]
        if let Some((schema, field)) = parsed.schema {
            match self.trials.run(&schema, owner, &mut is_gone) {
                Trial::Compiled(grammar) => request.config.grammar = Some(grammar),
                Trial::Refused(status, message) => {
                    return fail(stream, status, &format!("{field}{message}"), None);
                }
                Trial::Abandoned => return self.left(stream),
            }
        }
        let model = match self.models.asked_for(request.model.as_deref()) {
            Ok(model) => model,
            Err(refusal) => return refuse(stream, &refusal),
        };
        let (is_chat, streams, include_usage) =
            (request.is_chat(), request.stream, request.include_usage);
        let (choices, tells_logprobs) = (request.choices, request.config.logprobs.is_some());
        let (tools, calls_several) = (request.tools.clone(), request.calls_several);
        if !model.queue.is_alive() {
            return fail(stream, 503, "the model failed and could not be reloaded", None);
        }
        if self.stopping.load(Ordering::Relaxed) {
            return fail(stream, 503, "the server is shutting down", None);
        }
        let waiting = model.queue.push(request);
        let Some(Waiting { events, .. }) = &waiting else {
            return fail(stream, 429, "the queue is full", Some("queue_full"));
        };
        let number = self.requests.load(Ordering::Relaxed);
        let id = format!("{}-{}-{number}", if is_chat { "chatcmpl" } else { "cmpl" }, self.created);
        let created = openai::now();
        let answer = Answer {
            model: &model.name,
            id,
            created,
            is_chat,
            tools,
            calls_several,
            tells_logprobs,
            tokenizer: &model.tokenizer,
        };
        match streams {
            true => stream_answer(stream, &mut client, &answer, events, choices, include_usage),
            false => whole_answer(stream, &mut client, &answer, events, choices),
        }
    }
}

/// Waits for a lock; `None` if the request is abandoned first.
fn turn<'m>(mutex: &'m Mutex<()>, is_gone: &mut dyn FnMut() -> bool) -> Option<MutexGuard<'m, ()>> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(error)) => return Some(error.into_inner()),
            Err(TryLockError::WouldBlock) if is_gone() => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(TURN_POLL),
        }
    }
}

fn fail(
    stream: &mut TcpStream,
    status: u16,
    message: &str,
    code: Option<&str>,
) -> std::io::Result<()> {
    http::respond(stream, status, JSON, openai::error(status, message, code).to_string().as_bytes())
}

fn refuse(stream: &mut TcpStream, refusal: &models::Refusal) -> std::io::Result<()> {
    fail(stream, refusal.status, &refusal.message, refusal.code)
}

fn failed(stream: &mut TcpStream, message: &str, status: u16) -> std::io::Result<()> {
    let code = message.contains("context is full").then_some("context_length_exceeded");
    fail(stream, status, message, code)
}

fn whole_answer(
    stream: &mut TcpStream,
    client: &mut Client,
    answer: &Answer<'_>,
    events: &Receiver<Event>,
    choices: usize,
) -> std::io::Result<()> {
    let mut generations = Vec::new();
    while let Some(event) = next(stream, client, events) {
        match event {
            Event::Text(..) => {}
            Event::Done { generation, prompt, .. } => {
                generations.push(generation);
                if generations.len() == choices {
                    let whole = answer.whole(&generations, prompt).to_string();
                    return http::respond(stream, 200, JSON, whole.as_bytes());
                }
            }
            Event::Failed { message, status } => return failed(stream, &message, status),
        }
    }
    match client.is_gone(stream) {
        true => Ok(()),
        false => fail(stream, 503, "the server is shutting down", None),
    }
}

/// Returns the next event; `None` if the client is gone or no session is left. Sessions notice by
/// the drop of [`Waiting`].
fn next(stream: &TcpStream, client: &mut Client, events: &Receiver<Event>) -> Option<Event> {
    loop {
        match events.recv_timeout(DISCONNECT_POLL) {
            Ok(event @ Event::Text(..)) if client.is_gone(stream) => drop(event),
            Ok(event) => return Some(event),
            Err(RecvTimeoutError::Timeout) if !client.is_gone(stream) => continue,
            Err(_) => {}
        }
        return None;
    }
}

fn stream_answer(
    stream: &mut TcpStream,
    client: &mut Client,
    answer: &Answer<'_>,
    events: &Receiver<Event>,
    choices: usize,
    include_usage: bool,
) -> std::io::Result<()> {
    let (mut choice, mut has_begun, mut generated) = (answer.choice(0), false, 0);
    while let Some(event) = next(stream, client, events) {
        let mut is_done = false;
        let events = match event {
            Event::Failed { message, status } if !has_begun => {
                return failed(stream, &message, status);
            }
            Event::Failed { message, status } => {
                let error = openai::error(status.max(500), &message, None);
                return http::event(stream, &error.to_string());
            }
            Event::Text(text, tokens) => choice.push(text, tokens),
            Event::Done { generation, prompt, rest } => {
                let mut events = choice.end(&generation, rest);
                generated += generation.stats.generated_tokens;
                is_done = choice.index() + 1 == choices;
                match is_done {
                    true => events.extend(include_usage.then(|| answer.usage(prompt, generated))),
                    false => choice = answer.choice(choice.index() + 1),
                }
                events
            }
        };
        if !std::mem::replace(&mut has_begun, true) {
            http::begin_events(stream)?;
            client.begin_events();
        }
        for event in events {
            http::event(stream, &event.to_string())?;
        }
        if is_done {
            http::event(stream, "[DONE]")?;
            return stream.shutdown(std::net::Shutdown::Write);
        }
    }
    Ok(())
}
