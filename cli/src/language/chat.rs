//! `torchlet chat`.

use super::generate::{peak_memory, show, show_schema_mismatch, show_stats};
use super::options::ChatArguments;
use super::{open_with_template, stop_on_interrupt};
use crate::failure::Failure;
use crate::terminal::{FAINT, TITLE, bytes, paint};
use std::io::{BufRead, ErrorKind, IsTerminal, Write};
use torchlet::llm::{Error, Finish, Message, Runner, Stats};

const HELP: &str = "/reset starts a new conversation, /stats shows statistics of the last answer, \
                    /help shows this, /quit ends; Ctrl-C ends an answer";

/// Chats with a model; each line of input is a message.
pub(crate) fn chat(arguments: &ChatArguments) -> Result<(), Failure> {
    let mut runner = open_with_template(&arguments.language, &arguments.template, 1)?;
    runner.chat_template()?;
    stop_on_interrupt(runner.stop_handle())?;
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if is_terminal {
        anstream::println!("{}", paint(FAINT, HELP));
    }
    let system = arguments.system.iter().map(|text| Message::new("system", text)).collect();
    let mut conversation =
        Conversation { messages: system, system: arguments.system.is_some(), last: None };
    let mut lines = std::io::stdin().lock().lines();
    loop {
        if is_terminal {
            anstream::print!("{} ", paint(TITLE, ">"));
            let _ = std::io::stdout().flush();
        }
        let Some(line) = lines.next() else { return Ok(()) };
        let line = match line {
            Ok(line) => line,
            // An invalid line must not end the conversation.
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                anstream::eprintln!("the line is not in UTF-8 and was ignored");
                continue;
            }
            Err(error) => return Err(Failure::new(format!("cannot read a message: {error}"))),
        };
        match line.trim() {
            "" => {}
            "/quit" | "/exit" => return Ok(()),
            "/help" => anstream::println!("{HELP}"),
            "/reset" => conversation.reset(&mut runner)?,
            "/stats" => conversation.show_stats(&runner),
            text if text.starts_with('/') => {
                anstream::eprintln!("unknown command {text}; {HELP}");
            }
            text => conversation.say(&mut runner, arguments, text)?,
        }
    }
}

struct Conversation {
    messages: Vec<Message>,
    /// Whether the first message is the system prompt.
    system: bool,
    last: Option<Stats>,
}

impl Conversation {
    fn reset(&mut self, runner: &mut Runner) -> Result<(), Failure> {
        self.messages.truncate(usize::from(self.system));
        Ok(runner.reset()?)
    }

    /// Adds a message to the conversation and shows the answer.
    fn say(
        &mut self,
        runner: &mut Runner,
        arguments: &ChatArguments,
        text: &str,
    ) -> Result<(), Failure> {
        self.messages.push(Message::new("user", text));
        let config = arguments.sampling.config()?;
        let answer = runner.chat(&self.messages, &config, |text| {
            // A closed output is reported by the next line.
            let _ = show(text);
        });
        let answer = match answer {
            Ok(answer) => answer,
            Err(error @ Error::ContextFull { .. }) => {
                self.messages.pop();
                anstream::eprintln!("{}; /reset starts a new conversation", Failure::from(error));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let _ = show("\n");
        match answer.finish {
            Finish::Context => anstream::eprintln!(
                "{}",
                paint(FAINT, "the context is full: /reset starts a new conversation")
            ),
            Finish::Stopped => anstream::eprintln!("{}", paint(FAINT, "stopped")),
            _ => {}
        }
        show_schema_mismatch(&answer, runner.metadata().max_context_len);
        show_stats(arguments.sampling.stats, &answer);
        self.messages.push(Message::new("assistant", answer.text));
        self.last = Some(answer.stats);
        Ok(())
    }

    fn show_stats(&self, runner: &Runner) {
        let (used, limit) = (runner.context().len(), runner.metadata().max_context_len);
        match &self.last {
            Some(stats) => anstream::println!("{stats}"),
            None => anstream::println!("no answer yet"),
        }
        anstream::println!("context      {used} of {limit} tokens");
        if let Some(peak) = peak_memory() {
            anstream::println!("peak memory  {}", bytes(peak));
        }
    }
}
