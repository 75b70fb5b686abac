//! Compiles the schema of a request in a process of its own before a session does.
//!
//! The compiler is a dependency without limits for time and memory, and [`Grammar::json_schema`]
//! only estimates what a schema needs. Where the estimate is wrong, the limits of this process end
//! it, and the server refuses the schema. A schema that compiles here also compiles in the server:
//! the model's vocabulary does not change the grammar.
//!
//! Requests wait in the order of their arrival. Of two requests from one address, the second waits
//! for the first, so that one client cannot occupy all processes.

use crate::failure::Failure;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use torchlet::llm::Grammar;

/// Hidden subcommand that compiles the schema from its standard input.
pub(crate) const COMPILE_SCHEMA: &str = "__compile-schema";

/// Time limit. Schemas within the limits of [`Grammar::json_schema`] take about a second in a
/// release build.
const TIMEOUT: Duration = Duration::from_secs(if cfg!(debug_assertions) { 60 } else { 10 });
/// Memory limit in bytes, on Linux, for all of the process's mappings. 256 MiB are the compiler's
/// stack, of which unused pages occupy no memory.
#[cfg(target_os = "linux")]
const MEMORY: u64 = 1 << 30;
/// Maximum processes at once.
const MAX_PROCESSES: usize = 2;
/// Time limit for waiting for other schemas.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Interval of checks for the end of the process, and for disconnected clients.
const POLL: Duration = Duration::from_millis(5);
/// Maximum bytes of an error message of the process.
const MAX_MESSAGE: u64 = 4096;
/// Maximum number and total bytes of the texts of schemas that are known to compile.
const MAX_KNOWN: (usize, usize) = (256, 4 << 20);

/// Exit status of the process if the compiler rejects the schema.
const REJECTED: i32 = 3;

/// Result of a trial.
#[derive(Debug, PartialEq)]
pub(super) enum Trial {
    /// The schema compiles.
    Compiled(Grammar),
    /// HTTP status and message.
    Refused(u16, String),
    /// The client disconnected.
    Abandoned,
}

/// Trials of all requests.
#[derive(Default)]
pub(super) struct Trials {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The owners of running processes; `None` is this machine, whose share is not limited.
    running: Vec<Option<IpAddr>>,
    /// Numbers and owners of waiting requests, in the order of their arrival.
    waiting: VecDeque<(u64, Option<IpAddr>)>,
    next: u64,
    /// Schemas that compiled, oldest first: clients send the same schema many times.
    known: VecDeque<(String, Grammar)>,
    known_bytes: usize,
}

impl State {
    /// Whether a waiting request is the first that may start.
    fn may_start(&self, number: u64) -> bool {
        let has_share = |owner: &Option<IpAddr>| owner.is_none() || !self.running.contains(owner);
        let first = self.waiting.iter().find(|(_, owner)| has_share(owner));
        self.running.len() < MAX_PROCESSES && first.is_some_and(|(first, _)| *first == number)
    }
}

/// A waiting request.
struct Place<'t>(&'t Trials, u64);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting.retain(|(number, _)| *number != self.1);
    }
}

/// A share of the processes.
struct Share<'t>(&'t Trials, Option<IpAddr>);

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let running = &mut self.0.lock().running;
        if let Some(at) = running.iter().position(|owner| *owner == self.1) {
            running.swap_remove(at);
        }
    }
}

/// A running process; ends it on drop.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Trials {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compiles a schema in a new process, unless it is known to compile. `owner` is the client's
    /// address, unless it is this machine.
    pub(super) fn run(
        &self,
        schema: &str,
        owner: Option<IpAddr>,
        is_gone: &mut dyn FnMut() -> bool,
    ) -> Trial {
        let mut command = match executable() {
            Ok(path) => Command::new(path),
            Err(error) => return cannot_start(&error),
        };
        command.arg(COMPILE_SCHEMA);
        self.run_in(command, schema, owner, TIMEOUT, is_gone)
    }

    fn run_in(
        &self,
        mut command: Command,
        schema: &str,
        owner: Option<IpAddr>,
        timeout: Duration,
        is_gone: &mut dyn FnMut() -> bool,
    ) -> Trial {
        let begin = Instant::now();
        let place = {
            let mut state = self.lock();
            state.next += 1;
            let number = state.next;
            state.waiting.push_back((number, owner));
            Place(self, number)
        };
        // Held until the schema is measured below.
        let _share = loop {
            {
                let mut state = self.lock();
                let known = state.known.iter().find(|(known, _)| known == schema);
                if let Some(grammar) = known.map(|(_, grammar)| grammar.clone()) {
                    drop(state);
                    return Trial::Compiled(grammar);
                }
                if state.may_start(place.1) {
                    state.running.push(owner);
                    break Share(self, owner);
                }
            }
            if is_gone() {
                return Trial::Abandoned;
            }
            if begin.elapsed() > MAX_WAIT {
                let message = "too many schemas are waiting to be compiled";
                return Trial::Refused(503, message.into());
            }
            std::thread::sleep(POLL);
        };
        drop(place);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = match command.spawn() {
            Ok(child) => Process(child),
            Err(error) => return cannot_start(&error),
        };
        let (input, errors) = (process.0.stdin.take(), process.0.stderr.take());
        let end = std::thread::scope(|scope| {
            // A process that does not read must not block this thread. Both threads end when the
            // process does, because that closes their pipes.
            scope.spawn(move || input.map(|mut input| input.write_all(schema.as_bytes())));
            let message = scope.spawn(move || {
                let mut message = Vec::new();
                if let Some(mut errors) = errors {
                    // What was read before an error is the message.
                    let _ = errors.by_ref().take(MAX_MESSAGE).read_to_end(&mut message);
                    let _ = std::io::copy(&mut errors, &mut std::io::sink());
                }
                String::from_utf8_lossy(&message).trim_end().to_owned()
            });
            let status = wait(&mut process.0, timeout, is_gone);
            drop(process);
            let message = message.join().unwrap_or_default();
            status.map(|status| (status, message))
        });
        match end {
            Err(trial) => trial,
            // The time is bounded: the process did the same.
            Ok((status, _)) if status.success() => match Grammar::json_schema(schema) {
                Ok(grammar) => {
                    self.remember(schema, &grammar);
                    Trial::Compiled(grammar)
                }
                Err(error) => Trial::Refused(400, error.to_string()),
            },
            Ok((status, message)) if status.code() == Some(REJECTED) => {
                Trial::Refused(400, message)
            }
            // Failed allocations and stack overflows end it by a signal, as does the time limit.
            Ok((status, _)) if status.code().is_none() => {
                Trial::Refused(400, "the schema needs too much memory or time to compile".into())
            }
            Ok((_, message)) => {
                let why = format!("the process that compiles schemas failed: {message}");
                Trial::Refused(503, why)
            }
        }
    }

    fn remember(&self, schema: &str, grammar: &Grammar) {
        let mut state = self.lock();
        state.known_bytes += schema.len();
        state.known.push_back((schema.into(), grammar.clone()));
        while state.known.len() > MAX_KNOWN.0 || state.known_bytes > MAX_KNOWN.1 {
            let Some((oldest, _)) = state.known.pop_front() else { break };
            state.known_bytes -= oldest.len();
        }
    }
}

fn cannot_start(error: &dyn std::fmt::Display) -> Trial {
    Trial::Refused(503, format!("cannot start a process to compile the schema: {error}"))
}

/// Path of this executable. On Linux, it stays valid if an update replaces the file.
fn executable() -> std::io::Result<std::path::PathBuf> {
    match cfg!(target_os = "linux") {
        true => Ok("/proc/self/exe".into()),
        false => std::env::current_exe(),
    }
}

/// Waits for the end of a process. Fails if it takes too long, or the client disconnects.
fn wait(
    child: &mut Child,
    timeout: Duration,
    is_gone: &mut dyn FnMut() -> bool,
) -> Result<ExitStatus, Trial> {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => {}
            Err(error) => return Err(cannot_start(&error)),
        }
        if begin.elapsed() > timeout {
            let message = format!("the schema takes more than {} s to compile", timeout.as_secs());
            return Err(Trial::Refused(400, message));
        }
        if is_gone() {
            return Err(Trial::Abandoned);
        }
        std::thread::sleep(POLL);
    }
}

/// The hidden subcommand: compiles the schema from standard input within the limits above.
pub(crate) fn compile_schema() -> Result<(), Failure> {
    limit_resources()?;
    // The server reports this process's standard error; panics become errors.
    std::panic::set_hook(Box::new(|_| ()));
    let mut schema = String::new();
    std::io::stdin()
        .read_to_string(&mut schema)
        .map_err(|error| Failure::new(format!("cannot read the schema: {error}")))?;
    let compiled = Grammar::json_schema(&schema).and_then(|grammar| grammar.compile_alone());
    if let Err(error) = compiled {
        eprintln!("{error}");
        std::process::exit(REJECTED);
    }
    Ok(())
}

/// Limits this process: memory, processor time, and core dumps. It ends with the server, and is the
/// first that the system ends if memory runs out.
#[cfg(target_os = "linux")]
fn limit_resources() -> Result<(), Failure> {
    use rustix::process::{
        Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit,
    };
    let fail = |error| Failure::new(format!("cannot limit resources: {error}"));
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(fail)?;
    // Without the right to do so, the process is as likely to be ended as others.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let limits =
        [(Resource::As, MEMORY), (Resource::Cpu, TIMEOUT.as_secs() + 5), (Resource::Core, 0)];
    for (resource, most) in limits {
        let most = getrlimit(resource).maximum.map_or(most, |hard| most.min(hard));
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        setrlimit(resource, limit).map_err(fail)?;
    }
    Ok(())
}

/// Other systems have no such limits; the server ends the process after [`TIMEOUT`].
#[cfg(not(target_os = "linux"))]
fn limit_resources() -> Result<(), Failure> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const LONG: Duration = Duration::from_secs(60);

    fn schema(title: &str) -> String {
        format!(r#"{{"type": "integer", "title": "{title}"}}"#)
    }

    fn refusal(trial: Trial) -> (u16, String) {
        match trial {
            Trial::Refused(status, message) => (status, message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn results_of_processes_are_distinguished() {
        let trials = Trials::default();
        let run = |script: &str, timeout| {
            trials.run_in(shell(script), script, None, timeout, &mut || false)
        };
        let rejected = run("cat > /dev/null; echo the reason >&2; exit 3", LONG);
        assert_eq!(refusal(rejected), (400, "the reason".into()));
        let (status, message) = refusal(run("kill -ABRT $$", LONG));
        assert!(status == 400 && message.contains("memory"), "{message}");
        let (status, message) = refusal(run("echo why >&2; exit 1", LONG));
        assert!(status == 503 && message.contains("why"), "{message}");
        let (status, message) = refusal(run("exec sleep 100", Duration::from_millis(50)));
        assert!(status == 400 && message.contains("0 s to compile"), "{message}");
        let missing = Command::new("/nowhere/torchlet");
        let (status, message) = refusal(trials.run_in(missing, "{}", None, LONG, &mut || false));
        assert!(status == 503 && message.contains("cannot start"), "{message}");
        // A process that writes more than a message, and one that reads nothing.
        let long = refusal(run("yes | head -c 1000000 >&2; exit 3", LONG)).1;
        assert!(long.len() <= MAX_MESSAGE as usize);
        let large = schema(&" ".repeat(1 << 19));
        let compiled = trials.run_in(shell("exit 0"), &large, None, LONG, &mut || false);
        assert_eq!(compiled, Trial::Compiled(Grammar::json_schema(&large).unwrap()));
        // A process that accepts what the server refuses.
        let (status, message) = refusal(run("exit 0", LONG));
        assert!(status == 400 && message.contains("not JSON"), "{message}");
        assert!(trials.lock().running.is_empty() && trials.lock().waiting.is_empty());
    }

    #[test]
    fn disconnects_end_the_process_and_the_wait_for_others() {
        let trials = Trials::default();
        let begin = Instant::now();
        let mut looks = 0;
        let mut leave = || {
            looks += 1;
            looks > 3
        };
        assert_eq!(
            trials.run_in(shell("exec sleep 100"), "a", None, LONG, &mut leave),
            Trial::Abandoned
        );
        trials.lock().running = vec![None; MAX_PROCESSES];
        assert_eq!(trials.run_in(shell("exit 0"), "a", None, LONG, &mut || true), Trial::Abandoned);
        assert!(begin.elapsed() < LONG);
        assert!(trials.lock().waiting.is_empty());
    }

    #[test]
    fn requests_start_in_order_but_one_per_address() {
        let address = |last| Some(IpAddr::from([10, 0, 0, last]));
        let waiting = [(1, address(1)), (2, address(1)), (3, address(2)), (4, None)].into();
        let mut state = State { waiting, ..State::default() };
        let first = |state: &State| (1..=4).find(|number| state.may_start(*number));
        for (number, owner) in [(1, address(1)), (3, address(2))] {
            assert_eq!(first(&state), Some(number));
            state.running.push(owner);
            state.waiting.retain(|(waiting, _)| *waiting != number);
        }
        assert_eq!(first(&state), None);
        state.running = vec![address(1)];
        // This machine has no limit of its own.
        assert_eq!(first(&state), Some(4));
        state.running = vec![None];
        assert_eq!(first(&state), Some(2));
    }

    /// A schema that compiled once starts no process again. Old ones are forgotten.
    #[test]
    fn known_schemas_start_no_process() {
        let trials = Trials::default();
        let run = |script: &str, schema: &str| {
            trials.run_in(shell(script), schema, None, LONG, &mut || false)
        };
        let [known, unknown] = ["known", "unknown"].map(schema);
        let compiled = Trial::Compiled(Grammar::json_schema(&known).unwrap());
        assert_eq!(run("exit 0", &known), compiled);
        assert_eq!(run("exit 1", &known), compiled);
        assert!(matches!(run("exit 1", &unknown), Trial::Refused(..)));
        let any = Grammar::json_object();
        let large = "x".repeat(MAX_KNOWN.1);
        trials.remember(&large, &any);
        assert!(matches!(run("exit 1", &known), Trial::Refused(..)));
        assert_eq!(run("exit 1", &large), Trial::Compiled(any.clone()));
        for at in 0..=MAX_KNOWN.0 {
            trials.remember(&at.to_string(), &any);
        }
        let state = trials.lock();
        assert_eq!(state.known.len(), MAX_KNOWN.0);
        let bytes = state.known.iter().map(|(schema, _)| schema.len());
        assert_eq!(state.known_bytes, bytes.sum::<usize>());
    }
}
