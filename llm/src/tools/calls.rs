//! [`ToolCalls`]: streaming parser for function calls in a model's output.

use super::parts::{self, Beginning, Nesting};
use super::{OutputPart, Tool, ToolCall};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Tags around a call in the format of Hermes and Qwen.
const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
/// Markers after which the rest of the output consists of calls: Mistral's and Llama 3's.
const MARKS: [&str; 2] = ["[TOOL_CALLS]", "<|python_tag|>"];

/// Streaming parser for function calls in a model's output.
///
/// Calls are objects with `name` and `arguments` (or `parameters`). They appear in `<tool_call>`
/// tags (Hermes, Qwen), as the entire output, possibly several in a row (Llama 3), or after
/// `[TOOL_CALLS]` (Mistral). Everything that is not a call of a known function stays text.
#[derive(Debug)]
pub struct ToolCalls {
    names: Vec<String>,
    /// Whether calls are reported incrementally.
    in_parts: bool,
    /// Whether the waiting call cannot be reported incrementally.
    is_whole: bool,
    /// Text that was not reported yet.
    waiting: String,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// At the start or after a call; whitespace may follow.
    Start {
        is_first: bool,
    },
    Text,
    /// Inside call tags.
    Call,
    /// In output that consists of calls to its end, if it parses.
    Rest {
        is_first: bool,
    },
    /// In the arguments of a call.
    Arguments(Nesting, Around),
    /// After the arguments, before the end of the call's object.
    Behind(Nesting, Around),
    /// After a call's object, before its closing tag.
    Closing,
}

/// Context of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Around {
    Marks,
    Rest,
}

/// Separators between calls.
const BETWEEN: [char; 4] = [';', ',', '[', ']'];

impl ToolCalls {
    /// Creates a parser for calls of these functions.
    pub fn of(tools: &[Tool]) -> Self {
        let names = tools.iter().map(|tool| tool.name.clone()).collect();
        let state = State::Start { is_first: true };
        ToolCalls { names, in_parts: false, is_whole: false, waiting: String::new(), state }
    }

    /// Reports calls incrementally if they name their function first: [`OutputPart::Begun`], then
    /// [`OutputPart::Arguments`] with whitespace between JSON tokens removed. Malformed JSON that
    /// is detected later cannot be withdrawn.
    #[must_use]
    pub fn in_parts(mut self) -> Self {
        self.in_parts = true;
        self
    }

    /// Appends text, and returns the parts that are known by now.
    pub fn push(&mut self, text: &str) -> Vec<OutputPart> {
        self.waiting.push_str(text);
        let mut said = Vec::new();
        while self.step(&mut said) {}
        said
    }

    /// Ends the output, and returns the remaining parts.
    pub fn finish(mut self) -> Vec<OutputPart> {
        let mut said = Vec::new();
        let waiting = std::mem::take(&mut self.waiting);
        match self.state {
            State::Start { is_first: false } | State::Arguments(..) | State::Behind(..) => {}
            State::Closing => self.rest(&waiting, &mut said),
            State::Rest { is_first: false } => self.rest(&waiting, &mut said),
            State::Start { .. } | State::Text => give(&mut said, waiting),
            // The model may have ended instead of closing the call.
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

    /// Advances the parser. Returns false if more text is needed.
    fn step(&mut self, said: &mut Vec<OutputPart>) -> bool {
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
                // The text may end with the start of a marker.
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
                    said.push(OutputPart::Arguments(passed));
                }
                self.state = match rest {
                    // Continue in the enclosing object of the call.
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

    /// Reports the start of a call at byte offset `at` of the waiting text, in incremental mode.
    fn begin(
        &mut self,
        at: usize,
        between: &[char],
        around: Around,
        said: &mut Vec<OutputPart>,
    ) -> bool {
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
                said.push(OutputPart::Begun(ToolCall { id, name, arguments: none }));
                self.waiting.drain(..at + arguments);
                self.state = State::Arguments(Nesting::within(0), around);
                true
            }
        }
    }

    /// Reports the text that follows a call.
    fn rest(&self, text: &str, said: &mut Vec<OutputPart>) {
        let is_between = |c: char| c.is_whitespace() || c == ';' || c == ',';
        let text = text.trim_start_matches(is_between);
        let inside = text.trim_end_matches(|c: char| c.is_whitespace() || c == ']');
        if !inside.is_empty() {
            self.calls_or_text(inside, text, said);
        }
    }

    /// Reports the calls that `inside` consists of, or else `whole` as text. Returns whether calls
    /// were found.
    fn calls_or_text(&self, inside: &str, whole: &str, said: &mut Vec<OutputPart>) -> bool {
        let calls = self.calls(inside).filter(|calls| !calls.is_empty());
        match &calls {
            Some(calls) => said.extend(calls.iter().cloned().map(OutputPart::Call)),
            None => give(said, whole.to_owned()),
        }
        calls.is_some()
    }

    /// Parses a sequence of call objects, or of lists of them.
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

    /// Parses a call object. The arguments keep the model's notation except for whitespace, because
    /// numbers may have any length.
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
        // Some models write the arguments as a JSON string.
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

/// Appends text to the last part, or adds a part.
fn give(said: &mut Vec<OutputPart>, text: String) {
    match said.last_mut() {
        _ if text.is_empty() => {}
        Some(OutputPart::Text(last)) => last.push_str(&text),
        _ => said.push(OutputPart::Text(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::tests::tools;

    /// Parsed output as text, with calls in brackets. Independent of the chunk size.
    fn heard(text: &str) -> String {
        let shown = |said: Vec<OutputPart>| {
            let one = |said: &OutputPart| match said {
                OutputPart::Text(text) | OutputPart::Arguments(text) => text.clone(),
                OutputPart::Call(call) => format!("[{}{}]", call.name, call.arguments),
                OutputPart::Begun(call) => format!("[{}", call.name),
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
            // The end of incremental arguments is not reported.
            let joined = all(size, true).replace(']', "");
            assert_eq!(joined, whole.replace(']', ""), "in parts, in pieces of {size}");
        }
        whole
    }

    #[test]
    fn all_call_formats_are_parsed() {
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
    fn other_output_stays_text() {
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
    fn arguments_are_streamed() {
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
        let part = |text: &str| OutputPart::Arguments(text.into());
        assert_eq!(
            said,
            [
                vec![OutputPart::Text("So: ".into())],
                none(),
                none(),
                vec![OutputPart::Begun(begun), part("{\"x\"")],
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
