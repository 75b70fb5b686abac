//! Calls in what a model says.

use super::parts::{self, Beginning, Nesting};
use super::{Said, Tool, ToolCall};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// What stands around a call in the form of Hermes and Qwen.
const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
/// What stands in front of calls, of which all the rest consists: Mistral's, Llama 3's.
const MARKS: [&str; 2] = ["[TOOL_CALLS]", "<|python_tag|>"];

/// Finds calls in what a model says, piece by piece.
///
/// These are objects with `name` and `arguments` (or `parameters`): in `<tool_call>`, as Hermes and
/// Qwen write them; as the whole text, several behind each other, as Llama 3 does; or behind
/// `[TOOL_CALLS]`, as Mistral. What is no call of one of the functions stays text.
#[derive(Debug)]
pub struct ToolCalls {
    names: Vec<String>,
    /// Whether calls are told of while they come.
    in_parts: bool,
    /// Whether what waits is told whole all the same.
    is_whole: bool,
    /// What was not given yet.
    waiting: String,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing, or a call, was there last, and space may have come behind it.
    Start {
        is_first: bool,
    },
    Text,
    /// Within the marks of a call.
    Call,
    /// In what is calls to its end, if that is what it is.
    Rest {
        is_first: bool,
    },
    /// In the arguments of a call, which is in what.
    Arguments(Nesting, Around),
    /// Behind these.
    Behind(Nesting, Around),
    /// Behind a call within its marks.
    Closing,
}

/// What a call is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Around {
    Marks,
    Rest,
}

/// What stands between calls.
const BETWEEN: [char; 4] = [';', ',', '[', ']'];

impl ToolCalls {
    /// Calls of these functions.
    pub fn of(tools: &[Tool]) -> Self {
        let names = tools.iter().map(|tool| tool.name.clone()).collect();
        let state = State::Start { is_first: true };
        ToolCalls { names, in_parts: false, is_whole: false, waiting: String::new(), state }
    }

    /// Tells of calls that name their function first while their arguments come: [`Said::Begun`],
    /// then [`Said::Arguments`], without the space between values. What then turns out to be no
    /// JSON cannot be taken back.
    #[must_use]
    pub fn in_parts(mut self) -> Self {
        self.in_parts = true;
        self
    }

    /// Goes on with more text, and gives what is known by then.
    pub fn push(&mut self, text: &str) -> Vec<Said> {
        self.waiting.push_str(text);
        let mut said = Vec::new();
        while self.step(&mut said) {}
        said
    }

    /// What is left at the end.
    pub fn finish(mut self) -> Vec<Said> {
        let mut said = Vec::new();
        let waiting = std::mem::take(&mut self.waiting);
        match self.state {
            State::Start { is_first: false } | State::Arguments(..) | State::Behind(..) => {}
            State::Closing => self.rest(&waiting, &mut said),
            State::Rest { is_first: false } => self.rest(&waiting, &mut said),
            State::Start { .. } | State::Text => give(&mut said, waiting),
            // A model may have ended where it should have closed the call.
            State::Call => {
                let inside = waiting.strip_prefix(OPEN).unwrap_or_default();
                self.calls_or_text(inside, &waiting, &mut said);
            }
            State::Rest { is_first: true } => {
                let mark = MARKS.into_iter().find(|mark| waiting.starts_with(mark));
                let inside = waiting.get(mark.map_or(0, str::len)..).unwrap_or_default();
                self.calls_or_text(inside, &waiting, &mut said);
            }
        }
        said
    }

    /// Whether there may be more to say.
    fn step(&mut self, said: &mut Vec<Said>) -> bool {
        match self.state {
            State::Start { is_first } => {
                let rest = self.waiting.trim_start();
                if rest.is_empty() {
                    return false;
                }
                if is_first && rest.starts_with('{') {
                    self.state = State::Rest { is_first };
                    return true;
                }
                if OPEN.starts_with(rest) && rest.len() < OPEN.len() {
                    return false;
                }
                if !is_first && rest.starts_with(OPEN) {
                    self.waiting = rest.to_owned();
                }
                self.state = State::Text;
                true
            }
            State::Text => {
                let marks = || MARKS.into_iter().chain([OPEN]);
                let found = marks().filter_map(|mark| Some((self.waiting.find(mark)?, mark)));
                if let Some((at, mark)) = found.min() {
                    let rest = self.waiting.split_off(at);
                    give(said, std::mem::replace(&mut self.waiting, rest));
                    self.state = match mark == OPEN {
                        true => State::Call,
                        false => State::Rest { is_first: true },
                    };
                    return true;
                }
                // A mark may have begun.
                let begun = marks().map(|mark| crate::output::overlap(&self.waiting, mark)).max();
                let rest = self.waiting.split_off(self.waiting.len() - begun.unwrap_or(0));
                give(said, std::mem::replace(&mut self.waiting, rest));
                false
            }
            State::Call => {
                let end = self.waiting.find(CLOSE);
                if self.begin(OPEN.len(), &[], Around::Marks, said) {
                    return true;
                }
                let Some(end) = end else { return false };
                self.is_whole = false;
                let rest = self.waiting.split_off(end + CLOSE.len());
                let whole = std::mem::replace(&mut self.waiting, rest);
                let inside = whole.get(OPEN.len()..end).unwrap_or_default();
                let is_call = self.calls_or_text(inside, &whole, said);
                self.state = if is_call { State::Start { is_first: false } } else { State::Text };
                true
            }
            State::Rest { is_first } => {
                let mark = MARKS.into_iter().find(|mark| self.waiting.starts_with(mark));
                let mark = mark.filter(|_| is_first).map_or(0, str::len);
                self.begin(mark, &BETWEEN, Around::Rest, said)
            }
            State::Arguments(mut nesting, around) => {
                let waiting = std::mem::take(&mut self.waiting);
                let (passed, rest) = nesting.pass(&waiting);
                if !passed.is_empty() {
                    said.push(Said::Arguments(passed));
                }
                self.state = match rest {
                    // In the call itself.
                    Some(_) => State::Behind(Nesting::within(1), around),
                    None => State::Arguments(nesting, around),
                };
                self.waiting = rest.unwrap_or_default().to_owned();
                rest.is_some()
            }
            State::Behind(mut nesting, around) => {
                let waiting = std::mem::take(&mut self.waiting);
                let rest = nesting.pass(&waiting).1;
                self.state = match (rest, around) {
                    (None, _) => State::Behind(nesting, around),
                    (Some(_), Around::Marks) => State::Closing,
                    (Some(_), Around::Rest) => State::Rest { is_first: false },
                };
                self.waiting = rest.unwrap_or_default().to_owned();
                rest.is_some()
            }
            State::Closing => {
                let Some(end) = self.waiting.find(CLOSE) else { return false };
                let rest = self.waiting.split_off(end + CLOSE.len());
                let between = std::mem::replace(&mut self.waiting, rest);
                self.rest(between.get(..end).unwrap_or_default(), said);
                self.state = State::Start { is_first: false };
                true
            }
        }
    }

    /// Tells of a call that begins behind so many bytes of what waits, if it does and that is
    /// wanted.
    fn begin(&mut self, at: usize, between: &[char], around: Around, said: &mut Vec<Said>) -> bool {
        if !self.in_parts || self.is_whole {
            return false;
        }
        let text = self.waiting.get(at..).unwrap_or_default();
        match parts::beginning(text, &self.names, between) {
            Beginning::Open => false,
            Beginning::Other => {
                self.is_whole = true;
                false
            }
            Beginning::Call { name, arguments } => {
                let (id, none) = (String::new(), String::new());
                said.push(Said::Begun(ToolCall { id, name, arguments: none }));
                self.waiting.drain(..at + arguments);
                self.state = State::Arguments(Nesting::within(0), around);
                true
            }
        }
    }

    /// Gives what is left behind a call.
    fn rest(&self, text: &str, said: &mut Vec<Said>) {
        let is_between = |c: char| c.is_whitespace() || c == ';' || c == ',';
        let text = text.trim_start_matches(is_between);
        let inside = text.trim_end_matches(|c: char| c.is_whitespace() || c == ']');
        if !inside.is_empty() {
            self.calls_or_text(inside, text, said);
        }
    }

    /// Gives the calls that a text consists of; if it does not, the text around it. Whether there
    /// were some.
    fn calls_or_text(&self, inside: &str, whole: &str, said: &mut Vec<Said>) -> bool {
        let calls = self.calls(inside).filter(|calls| !calls.is_empty());
        match &calls {
            Some(calls) => said.extend(calls.iter().cloned().map(Said::Call)),
            None => give(said, whole.to_owned()),
        }
        calls.is_some()
    }

    /// The calls that a text consists of: objects, or lists of such, one behind the other.
    fn calls(&self, text: &str) -> Option<Vec<ToolCall>> {
        let mut rest = text.trim();
        let mut calls = Vec::new();
        while !rest.is_empty() {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
            let value = values.next()?.ok()?.get();
            rest = rest.get(values.byte_offset()..)?;
            rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ';');
            match value.starts_with('[') {
                true => {
                    for value in serde_json::from_str::<Vec<&RawValue>>(value).ok()? {
                        calls.push(self.call(value.get())?);
                    }
                }
                false => calls.push(self.call(value)?),
            }
        }
        Some(calls)
    }

    /// The call that an object is. Its arguments stay what the model wrote, but for the space
    /// between values: numbers may be of any length.
    fn call(&self, object: &str) -> Option<ToolCall> {
        let fields =
            |object: &'_ str| serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(object);
        let mut object = fields(object).ok()?;
        if let Some(function) = object.get("function").filter(|it| it.get().starts_with('{')) {
            object = fields(function.get()).ok()?;
        }
        let name: String = serde_json::from_str(object.get("name")?.get()).ok()?;
        let given = |name: &str| object.get(name).map(|it| it.get()).filter(|it| *it != "null");
        let arguments = given("arguments").or(given("parameters")).unwrap_or("{}");
        // Some write them as a text with JSON in it.
        let inner = match arguments.starts_with('"') {
            true => serde_json::from_str::<String>(arguments).ok()?,
            false => arguments.to_owned(),
        };
        let inner = inner.trim();
        let is_object = inner.starts_with('{') && serde_json::from_str::<&RawValue>(inner).is_ok();
        (is_object && self.names.contains(&name)).then(|| {
            let arguments = Nesting::within(0).pass(inner).0;
            ToolCall { id: String::new(), name, arguments }
        })
    }
}

/// Adds text to that which is there.
fn give(said: &mut Vec<Said>, text: String) {
    match said.last_mut() {
        _ if text.is_empty() => {}
        Some(Said::Text(last)) => last.push_str(&text),
        _ => said.push(Said::Text(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::tests::tools;

    /// What is said, as a text in which calls stand in brackets, whatever the pieces in which it
    /// comes.
    fn heard(text: &str) -> String {
        let shown = |said: Vec<Said>| {
            let one = |said: &Said| match said {
                Said::Text(text) | Said::Arguments(text) => text.clone(),
                Said::Call(call) => format!("[{}{}]", call.name, call.arguments),
                Said::Begun(call) => format!("[{}", call.name),
            };
            said.iter().map(one).collect::<String>()
        };
        let all = |size: usize, in_parts: bool| {
            let calls = ToolCalls::of(&tools());
            let mut calls = if in_parts { calls.in_parts() } else { calls };
            let characters: Vec<char> = text.chars().collect();
            let pieces = characters.chunks(size).map(|piece| piece.iter().collect::<String>());
            let mut heard: String = pieces.map(|piece| shown(calls.push(&piece))).collect();
            heard += &shown(calls.finish());
            heard
        };
        let whole = all(10_000, false);
        for size in [1, 2, 3, 7, 10_000] {
            assert_eq!(all(size, false), whole, "in pieces of {size}");
            // Nothing tells where arguments in parts end.
            let joined = all(size, true).replace(']', "");
            assert_eq!(joined, whole.replace(']', ""), "in parts, in pieces of {size}");
        }
        whole
    }

    #[test]
    fn calls_are_found_in_the_forms_of_models() {
        let f = r#"{"name": "f", "arguments": {"x": 1}}"#;
        for (text, expected) in [
            ("Hello, <b>you</b>.\n", "Hello, <b>you</b>.\n"),
            (&format!("<tool_call>\n{f}\n</tool_call>"), r#"[f{"x":1}]"#),
            (
                &format!(
                    "Well. <tool_call>{f}</tool_call>\n<tool_call>\n{{\"name\": \"g\"}}\n</tool_call>\n"
                ),
                r#"Well. [f{"x":1}][g{}]"#,
            ),
            (&format!("<tool_call>{f}"), r#"[f{"x":1}]"#),
            (&format!("<tool_call>{f}</tool_call> and more"), r#"[f{"x":1}] and more"#),
            (&f.replace("arguments", "parameters"), r#"[f{"x":1}]"#),
            (&format!(" {f}; {f}"), r#"[f{"x":1}][f{"x":1}]"#),
            (&format!("<|python_tag|>{f}"), r#"[f{"x":1}]"#),
            (&format!("[TOOL_CALLS][{f}, {f}]"), r#"[f{"x":1}][f{"x":1}]"#),
            (r#"{"name": "f", "arguments": "{\"x\": 2}"}"#, r#"[f{"x":2}]"#),
            (r#"{"type": "function", "function": {"name": "g", "parameters": {}}}"#, "[g{}]"),
            (
                r#"{"name": "g", "arguments": {"a": " }\" é", "b": [{}]}, "id": "1"}"#,
                r#"[g{"a":" }\" é","b":[{}]}]"#,
            ),
            (
                r#"{"name": "g", "arguments": {"a": 12345678901234567890123, "b": "\u00e9"}}"#,
                r#"[g{"a":12345678901234567890123,"b":"\u00e9"}]"#,
            ),
            (
                &format!("[TOOL_CALLS][{f}, {{\"arguments\": {{}}, \"name\": \"g\"}}]"),
                r#"[f{"x":1}][g{}]"#,
            ),
            (
                &format!("<tool_call>{f} {{\"name\": \"g\"}}</tool_call> <tool_call>{f}"),
                r#"[f{"x":1}][g{}][f{"x":1}]"#,
            ),
        ] {
            assert_eq!(heard(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_call_stays_text() {
        for text in [
            "",
            " ",
            "{",
            r#"{"a": 1}"#,
            r#"{"name": "h", "arguments": {}}"#,
            r#"{"name": "f", "arguments": [1]}"#,
            r#"{"name": "f"} and that was it"#,
            "<tool_call>{\"name\": \"f\", </tool_call> so",
            "<tool_call></tool_call>",
            "a < b, <tool",
            "[TOOL_CALLS] are what?",
            "ends with <tool_cal",
        ] {
            assert_eq!(heard(text), text);
        }
    }

    #[test]
    fn arguments_come_as_they_are_said() {
        let mut calls = ToolCalls::of(&tools()).in_parts();
        let mut said = Vec::new();
        for piece in [
            "So: <tool",
            "_call>\n{\"name\": \"f\", ",
            "\"arguments\": ",
            "{\"x\"",
            ": ",
            "[1,",
            " 2]",
            "}",
            "}\n</tool_call>",
        ] {
            said.push(calls.push(piece));
        }
        let none = Vec::new;
        let begun = ToolCall { id: String::new(), name: "f".into(), arguments: String::new() };
        let part = |text: &str| Said::Arguments(text.into());
        assert_eq!(
            said,
            [
                vec![Said::Text("So: ".into())],
                none(),
                none(),
                vec![Said::Begun(begun), part("{\"x\"")],
                vec![part(":")],
                vec![part("[1,")],
                vec![part("2]")],
                vec![part("}")],
                none(),
            ]
        );
        assert!(calls.finish().is_empty());
    }
}
