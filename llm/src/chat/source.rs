//! Rewrites the source of a template before minijinja parses it.
//!
//! - `a ~ b` becomes `(a)|string ~ (b)|string`. minijinja formats lists, Booleans and `none`
//!   differently from Python. It also charges fuel for a list only after formatting it, and nested
//!   lists that contain another list twice grow exponentially.
//! - Lists, maps and tuples pass through the filter [`CHARGE_FILTER`] when created, which bounds
//!   their size. So do operands with `*` and `+`, which repeat and join lists without a copy, and
//!   left operands of `in`, which minijinja formats to search in a string. Values assigned to
//!   namespace fields pass through [`KEEP_FILTER`].
//! - `{% generation %}`, which marks the assistant's text for Hugging Face, becomes
//!   `{% if true %}`.

/// Filter that charges fuel for everything that a value contains, and returns it unchanged.
pub(super) const CHARGE_FILTER: &str = "__paid";
/// The filter for values that a namespace is to keep.
pub(super) const KEEP_FILTER: &str = "__kept";

/// Rewrites a template. Malformed source stays malformed.
pub(super) fn rewrite(source: &str) -> String {
    let mut reader = Reader { source, at: 0, edits: Vec::new() };
    while reader.skip_text() {}
    // Apply edits in order. Edits at the same offset keep their order after this stable sort; a
    // bracket that opens earlier is known later, but sorts first.
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

/// Replaces `removed` bytes at offset `at` with `text`.
struct Edit {
    at: usize,
    removed: usize,
    text: String,
}

/// State of the parser inside brackets, or in a whole tag.
struct Frame {
    /// Closing character.
    close: char,
    opened: usize,
    /// Whether it is a list, a map, or, if it contains a comma, a tuple.
    is_literal: bool,
    has_comma: bool,
    /// Start of the current operand of `~`.
    operand: Option<usize>,
    /// Whether the current operand follows a `~`.
    is_joined: bool,
    /// Start of the current sum, which contains the operand of `~`.
    sum: Option<usize>,
    /// Whether the sum contains a `*` or `+`, which may create a list.
    has_sum: bool,
    /// Whether an operand of the sum is a string: then the result is a string or an error.
    has_text: bool,
    /// Whether the last token can end a value. A bracket after it is then a call or an index.
    is_value: bool,
    /// Whether the next name is not a variable, for example after a dot.
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

/// Parts of a `for` or `set` tag.
#[derive(PartialEq)]
enum Part {
    /// Target variables, up to `in` or `=`.
    Targets {
        is_set: bool,
    },
    /// Assigned value, from an offset on.
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

    /// Advances past the next tag. Returns false if there is none.
    fn skip_text(&mut self) -> bool {
        let rest = self.rest();
        let mut braces = rest.match_indices('{').map(|(at, _)| at);
        let Some(start) = braces.find(|at| rest[at + 1..].starts_with(['{', '%', '#'])) else {
            return false;
        };
        self.at += start;
        let is_tag = self.rest().starts_with("{%");
        let is_comment = self.rest().starts_with("{#");
        self.at += 2;
        if self.rest().starts_with(['-', '+']) {
            self.at += 1;
        }
        if is_comment {
            return self.skip_behind("#}");
        }
        if let Some(length) = plain_tag(self.rest(), "raw").filter(|_| is_tag) {
            self.at += length;
            return self.skip_raw();
        }
        self.skip_space();
        let (mut part, mut is_call) = (Part::Other, false);
        if is_tag {
            let (begin, keyword) = (self.at, self.name());
            match keyword {
                "for" => part = Part::Targets { is_set: false },
                "set" => part = Part::Targets { is_set: true },
                // The arguments of a call block are declared like parameters.
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
            let rest = self.rest();
            let marked = rest.strip_prefix(['-', '+']).unwrap_or(rest);
            if let Some(length) = plain_tag(marked, "endraw") {
                self.at += rest.len() - marked.len() + length;
                return true;
            }
        }
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Reads a name or a number.
    fn name(&mut self) -> &'s str {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.at += end;
        // Sign of an exponent.
        let is_power =
            rest.starts_with(|c: char| c.is_ascii_digit()) && rest[..end].ends_with(['e', 'E']);
        if is_power && rest[end..].starts_with(['-', '+']) {
            self.at += 1;
        }
        &rest[..end]
    }

    /// Skips a quoted string. Replaces escape sequences that mean the same in Jinja as in Python,
    /// but something else in minijinja.
    fn skip_quoted(&mut self, quote: char) {
        let start = self.at;
        let mut characters = self.rest().char_indices().skip(1);
        while let Some((at, character)) = characters.next() {
            if character == '\\' {
                let rest = &self.source[start + at + 1..];
                characters.next();
                if let Some((length, text)) = escaped(rest) {
                    let edit = Edit { at: start + at, removed: 1 + length, text };
                    self.edits.push(edit);
                }
            } else if character == quote {
                self.at += at + 1;
                return;
            }
        }
        self.at = self.source.len();
    }

    /// Parses the code of a tag up to its end.
    fn code(&mut self, end: &str, mut part: Part, is_call: bool) -> bool {
        let mut frames = vec![Frame::new('\0', self.at, false)];
        frames[0].is_value = is_call;
        // End of the last token, and whether an assignment target is a namespace field.
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
                    let filter = if is_field { KEEP_FILTER } else { CHARGE_FILTER };
                    self.insert(start, "(");
                    self.insert(behind, format!(")|{filter}"));
                }
                // The text up to `endset`, after filters that may return something else.
                if part == (Part::Targets { is_set: true }) && is_field {
                    self.insert(behind, format!("|{KEEP_FILTER}"));
                }
                self.at += rest.len() - marked.len() + end.len();
                return true;
            }
            let start = self.at;
            match character {
                '\'' | '"' => {
                    self.begin_operand(frame, start);
                    self.skip_quoted(character);
                    // A filter or an index after it may turn the string into a list.
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
                    // minijinja reports mismatched brackets.
                    if is_whole || frame.close != character {
                        return true;
                    }
                    if frame.is_literal && (character != ')' || frame.has_comma) {
                        let opened = frame.opened;
                        self.insert(opened, "(");
                        self.insert(self.at, format!("|{CHARGE_FILTER})"));
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
            // `is not` is followed by another test name.
            frame.is_named = name == "not";
            frame.is_value = true;
            return;
        }
        match name {
            "and" | "or" | "not" | "in" | "if" | "elif" | "else" | "recursive" => {
                let is_target = is_whole && matches!(part, Part::Targets { .. });
                // `not` after a value starts `not in`.
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

    /// Ends the current sum, and wraps it in the filter `CHARGE_FILTER` if it may create a list.
    fn end_sum(&mut self, frame: &mut Frame, at: usize) {
        self.end_operand(frame, at);
        if let Some(begin) = frame.sum.take()
            && frame.has_sum
            && !frame.has_text
        {
            self.insert(begin, "(");
            self.insert(at, format!(")|{CHARGE_FILTER}"));
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

/// The length of the rest of a tag that is only this word, including its end. Like minijinja, which
/// reads other tags with this word as text or code.
fn plain_tag(rest: &str, word: &str) -> Option<usize> {
    let is_space = |character: char| character.is_ascii_whitespace();
    let behind = rest.trim_start_matches(is_space).strip_prefix(word)?;
    let behind = behind.trim_start_matches(is_space);
    let behind = behind.strip_prefix(['-', '+']).unwrap_or(behind).strip_prefix("%}")?;
    Some(rest.len() - behind.len())
}

/// The text for an escape sequence, and its length in bytes behind the backslash. `None` if
/// minijinja reads it as Python does.
fn escaped(rest: &str) -> Option<(usize, String)> {
    let text = match rest.chars().next()? {
        // A line that goes on in the next one.
        '\n' => String::new(),
        '\r' if rest.starts_with("\r\n") => return Some((2, String::new())),
        'a' => "\\x07".into(),
        'v' => "\\x0b".into(),
        // Not an escape sequence.
        '/' => "\\\\/".into(),
        'U' => {
            let is_digit = |digits: &&str| digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            let digits = rest.get(1..9).filter(is_digit)?;
            let character = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32)?;
            let mut units = [0; 2];
            let units = character.encode_utf16(&mut units).iter();
            return Some((9, units.map(|unit| format!("\\u{unit:04x}")).collect()));
        }
        _ => return None,
    };
    Some((1, text))
}
