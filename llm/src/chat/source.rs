//! What is rewritten in the source of a template before minijinja reads it.
//!
//! - `a ~ b` becomes `(a)|string ~ (b)|string`: minijinja would write lists, truths and `none`
//!   otherwise than Python does, and would pay for what a list holds only behind it, though one
//!   that holds another twice, and that as well, is written without end.
//! - Lists, maps and tuples, and what is set in a namespace, pass through the filter [`PAID`] where
//!   they are made, so that nothing of that kind comes to be. So do operands with `*` and `+`,
//!   which repeat and join lists without a copy of them, and what is looked for by `in`, which
//!   minijinja writes as text where it looks in a text.
//! - `{% generation %}`, by which Hugging Face marks what an assistant said, is a condition that
//!   holds.

/// The filter that takes fuel for all that a value holds, and is else without effect.
pub(super) const PAID: &str = "__paid";

/// A template's source, rewritten. What is malformed stays so.
pub(super) fn rewrite(source: &str) -> String {
    let mut reader = Reader { source, at: 0, edits: Vec::new() };
    while reader.skip_text() {}
    // Behind one another: those of one place in the order in which they were made, but what opens
    // earlier, which is known later, comes first.
    let mut edits = reader.edits;
    edits.sort_by_key(|edit| edit.at);
    let mut rewritten = String::with_capacity(source.len() + edits.len() * 12);
    let mut at = 0;
    for Edit { at: place, removed, text } in edits {
        rewritten.push_str(&source[at..place]);
        rewritten.push_str(&text);
        at = place + removed;
    }
    rewritten + &source[at..]
}

/// Text that stands at a place, instead of so many bytes.
struct Edit {
    at: usize,
    removed: usize,
    text: String,
}

/// What is known of the inside of brackets, or of all of a tag.
struct Frame {
    /// What ends it.
    close: char,
    opened: usize,
    /// Whether it makes a list, a map, or, if there is a comma, a tuple.
    is_literal: bool,
    has_comma: bool,
    /// Where the present operand of `~` begins.
    operand: Option<usize>,
    /// Whether it stands behind a `~`.
    is_joined: bool,
    /// Where the present sum begins, of which an operand of `~` is a part.
    sum: Option<usize>,
    /// Whether it has a `*` or `+`, which may make a list.
    has_sum: bool,
    /// Whether a text is an operand of these: then they make a text, or fail.
    has_text: bool,
    /// Whether the last token can be the end of a value, so that a bracket behind it belongs to it.
    is_value: bool,
    /// Whether a name follows that is none of a variable, as behind a dot.
    is_named: bool,
}

impl Frame {
    fn new(close: char, opened: usize, is_literal: bool) -> Self {
        Frame {
            close,
            opened,
            is_literal,
            has_comma: false,
            operand: None,
            is_joined: false,
            sum: None,
            has_sum: false,
            has_text: false,
            is_value: false,
            is_named: false,
        }
    }
}

/// The part of a `for` or a `set` that names variables, and what comes behind it.
#[derive(PartialEq)]
enum Part {
    /// Variables, up to an `in` or a `=`.
    Targets {
        is_set: bool,
    },
    /// What is set, from a place on.
    Set {
        start: usize,
        is_field: bool,
    },
    Other,
}

struct Reader<'s> {
    source: &'s str,
    at: usize,
    edits: Vec<Edit>,
}

impl<'s> Reader<'s> {
    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn insert(&mut self, at: usize, text: impl Into<String>) {
        self.edits.push(Edit { at, removed: 0, text: text.into() });
    }

    /// Reads on behind the next tag, if there is one.
    fn skip_text(&mut self) -> bool {
        let rest = self.rest();
        let mut braces = rest.match_indices('{').map(|(at, _)| at);
        let Some(start) = braces.find(|at| rest[at + 1..].starts_with(['{', '%', '#'])) else {
            return false;
        };
        self.at += start;
        let is_tag = self.rest().starts_with("{%");
        if self.rest().starts_with("{#") {
            return self.skip_behind("#}");
        }
        self.at += 2;
        if self.rest().starts_with(['-', '+']) {
            self.at += 1;
        }
        self.skip_space();
        let (mut part, mut is_call) = (Part::Other, false);
        if is_tag {
            let (begin, keyword) = (self.at, self.name());
            match keyword {
                "raw" => return self.skip_raw(),
                "for" => part = Part::Targets { is_set: false },
                "set" => part = Part::Targets { is_set: true },
                // What it passes on is named as a function's parameters are.
                "call" => is_call = true,
                "generation" | "endgeneration" => {
                    let text = if keyword == "generation" { "if true" } else { "endif" };
                    self.edits.push(Edit { at: begin, removed: keyword.len(), text: text.into() });
                }
                _ => {}
            }
        }
        self.code(if is_tag { "%}" } else { "}}" }, part, is_call)
    }

    fn skip_behind(&mut self, what: &str) -> bool {
        let found = self.rest().find(what);
        self.at += found.map_or(self.rest().len(), |at| at + what.len());
        found.is_some()
    }

    fn skip_raw(&mut self) -> bool {
        loop {
            if !self.skip_behind("{%") {
                return false;
            }
            if self.rest().starts_with(['-', '+']) {
                self.at += 1;
            }
            self.skip_space();
            if self.name() == "endraw" {
                return true;
            }
        }
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// The name or number that comes next.
    fn name(&mut self) -> &'s str {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.at += end;
        // The sign of a number's exponent.
        let is_power =
            rest.starts_with(|c: char| c.is_ascii_digit()) && rest[..end].ends_with(['e', 'E']);
        if is_power && rest[end..].starts_with(['-', '+']) {
            self.at += 1;
        }
        &rest[..end]
    }

    /// The text in quotes that comes next.
    fn skip_quoted(&mut self, quote: char) {
        let mut characters = self.rest().char_indices().skip(1);
        while let Some((at, character)) = characters.next() {
            if character == '\\' {
                characters.next();
            } else if character == quote {
                self.at += at + 1;
                return;
            }
        }
        self.at = self.source.len();
    }

    /// What is in a tag, and its end.
    fn code(&mut self, end: &str, mut part: Part, is_call: bool) -> bool {
        let mut frames = vec![Frame::new('\0', self.at, false)];
        frames[0].is_value = is_call;
        // Where the last token ended, and whether one of those that are set is in a namespace.
        let (mut behind, mut is_field) = (self.at, false);
        loop {
            self.skip_space();
            let rest = self.rest();
            let Some(character) = rest.chars().next() else { return false };
            let is_whole = frames.len() == 1;
            let Some(frame) = frames.last_mut() else { return false };
            let marked = rest.strip_prefix(['-', '+']).unwrap_or(rest);
            if is_whole && marked.starts_with(end) {
                self.end_sum(frame, behind);
                if let Part::Set { start, is_field } = part
                    && start < behind
                    && (is_field || frame.has_comma)
                {
                    self.insert(start, "(");
                    self.insert(behind, format!(")|{PAID}"));
                }
                self.at += rest.len() - marked.len() + end.len();
                return true;
            }
            let start = self.at;
            match character {
                '\'' | '"' => {
                    self.begin_operand(frame, start);
                    self.skip_quoted(character);
                    // What is behind may make a list of the text.
                    frame.has_text |= !self.rest().trim_start().starts_with(['.', '|', '[']);
                    (frame.is_value, frame.is_named) = (true, false);
                }
                '(' | '[' | '{' => {
                    self.begin_operand(frame, start);
                    let is_target = matches!(part, Part::Targets { .. });
                    let is_literal = !frame.is_value && !is_target;
                    let close = match character {
                        '(' => ')',
                        '[' => ']',
                        _ => '}',
                    };
                    (frame.is_value, frame.is_named) = (true, false);
                    frames.push(Frame::new(close, start, is_literal));
                    self.at += 1;
                }
                ')' | ']' | '}' => {
                    self.end_sum(frame, behind);
                    self.at += 1;
                    // What does not match is left to minijinja to tell of.
                    if is_whole || frame.close != character {
                        return true;
                    }
                    if frame.is_literal && (character != ')' || frame.has_comma) {
                        let opened = frame.opened;
                        self.insert(opened, "(");
                        self.insert(self.at, format!("|{PAID})"));
                    }
                    frames.pop();
                }
                '~' => {
                    let begin = frame.operand.unwrap_or(start);
                    if !frame.is_joined {
                        self.insert(begin, "(");
                    }
                    self.insert(behind, ")|string");
                    (frame.operand, frame.is_joined) = (None, true);
                    (frame.is_value, frame.is_named) = (false, false);
                    self.at += 1;
                }
                '_' | '0'..='9' => self.read_name(frame, is_whole, behind, &mut part),
                character if character.is_alphabetic() => {
                    self.read_name(frame, is_whole, behind, &mut part);
                }
                '.' | '|' => {
                    is_field |= matches!(part, Part::Targets { is_set: true });
                    (frame.is_value, frame.is_named) = (false, true);
                    self.at += 1;
                }
                '*' | '/' | '%' => {
                    frame.has_sum |= character == '*';
                    (frame.is_value, frame.is_named) = (false, false);
                    self.at += 1;
                }
                '-' | '+' if !frame.is_value => {
                    self.begin_operand(frame, start);
                    self.at += 1;
                }
                '-' | '+' => {
                    self.end_operand(frame, behind);
                    frame.has_sum |= character == '+';
                    self.at += 1;
                }
                _ => {
                    self.end_sum(frame, behind);
                    frame.has_comma |= character == ',';
                    self.at += character.len_utf8();
                    let is_compared = self.rest().starts_with('=');
                    if is_compared && matches!(character, '=' | '!' | '<' | '>') {
                        self.at += 1;
                    } else if is_whole
                        && character == '='
                        && part == (Part::Targets { is_set: true })
                    {
                        self.skip_space();
                        part = Part::Set { start: self.at, is_field };
                        frame.has_comma = false;
                    }
                }
            }
            behind = self.at;
        }
    }

    fn read_name(&mut self, frame: &mut Frame, is_whole: bool, behind: usize, part: &mut Part) {
        let start = self.at;
        let name = self.name();
        if std::mem::take(&mut frame.is_named) {
            // Behind `is` there may be a `not`.
            frame.is_named = name == "not";
            frame.is_value = true;
            return;
        }
        match name {
            "and" | "or" | "not" | "in" | "if" | "elif" | "else" | "recursive" => {
                let is_target = is_whole && matches!(part, Part::Targets { .. });
                // `not` after a value begins `not in`.
                if matches!(name, "in" | "not") && frame.is_value && !is_target {
                    (frame.has_sum, frame.has_text) = (true, false);
                }
                self.end_sum(frame, behind);
                if name == "in" && is_whole && *part == (Part::Targets { is_set: false }) {
                    *part = Part::Other;
                }
            }
            "is" => (frame.is_value, frame.is_named) = (false, true),
            _ => {
                self.begin_operand(frame, start);
                frame.is_value = true;
            }
        }
    }

    fn begin_operand(&mut self, frame: &mut Frame, at: usize) {
        frame.sum.get_or_insert(at);
        if frame.operand.is_none() {
            frame.operand = Some(at);
            if frame.is_joined {
                self.insert(at, "(");
            }
        }
    }

    /// Ends the current sum and wraps it in the filter `PAID` if it may make a list.
    fn end_sum(&mut self, frame: &mut Frame, at: usize) {
        self.end_operand(frame, at);
        if let Some(begin) = frame.sum.take()
            && frame.has_sum
            && !frame.has_text
        {
            self.insert(begin, "(");
            self.insert(at, format!(")|{PAID}"));
        }
        (frame.has_sum, frame.has_text) = (false, false);
    }

    fn end_operand(&mut self, frame: &mut Frame, at: usize) {
        if frame.is_joined && frame.operand.is_some() {
            self.insert(at, ")|string");
        }
        (frame.operand, frame.is_joined) = (None, false);
        (frame.is_value, frame.is_named) = (false, false);
    }
}
