//! Names and text from files, for identifiers, comments and messages of generated code.

/// Keywords that cannot be names of modules or functions.
const KEYWORDS: &str = "Self abstract as async await become box break const continue crate do \
    dyn else enum extern false final fn for gen if impl in let loop macro match mod move mut \
    override priv pub ref return self static struct super trait true try type typeof unsafe \
    unsized use virtual where while yield";

/// Names that the module of a program uses itself: its items, imports, and types of the prelude.
const OWN: &str = "Error Model Option Result TakeOnce bool constants core data f64 firmware i64 \
    load load_with registry u8";

/// Converts a name to a Rust identifier.
pub(crate) fn identifier(name: &str) -> String {
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let mut text: String = name.chars().map(|c| if is_part(c) { c } else { '_' }).collect();
    if !text.starts_with(|first: char| first.is_ascii_alphabetic()) {
        text.insert_str(0, "p_");
    }
    if contains(KEYWORDS, &text) {
        text.push('_');
    }
    text
}

/// Identifier of a method's module and function, distinct from the other names in the program's
/// module.
pub(crate) fn method_identifier(name: &str) -> String {
    let mut text = identifier(name);
    if contains(OWN, &text) {
        text.push('_');
    }
    text
}

/// Converts a name to the part of a C identifier that follows a prefix and `_`. Names of types and
/// macros of the standard library, such as `int8_t` and `INT8_MAX`, cannot result.
pub(crate) fn c_identifier(name: &str) -> String {
    let mut text = identifier(name);
    if text == "t" || !text.contains(|char: char| char.is_ascii_lowercase()) {
        text.push('_');
    }
    text
}

/// Converts a name to the prefix of the functions of a program in C, which differs from that of its
/// kernels.
pub(crate) fn c_prefix(name: &str) -> String {
    let mut text = identifier(name);
    if text.eq_ignore_ascii_case("tl") || text.to_ascii_lowercase().starts_with("tl_") {
        text.insert_str(0, "p_");
    }
    text
}

/// Text for C comments: all but letters, digits and a few marks is replaced, so that it neither
/// ends the comment nor continues its line.
pub(crate) fn comment(text: &str) -> String {
    let is_safe = |char: char| char.is_ascii_alphanumeric() || " _.,[]".contains(char);
    text.chars().map(|char| if is_safe(char) { char } else { '_' }).collect()
}

fn contains(list: &str, text: &str) -> bool {
    list.split_whitespace().any(|known| known == text)
}

/// Escapes text for comments and messages: it may contain line breaks followed by anything.
pub(crate) fn escaped(text: &str) -> String {
    text.escape_debug().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_identifiers() {
        assert_eq!(identifier("digits"), "digits");
        assert_eq!(identifier("mobilenet-v2.int8"), "mobilenet_v2_int8");
        assert_eq!(identifier("2nd"), "p_2nd");
        assert_eq!(identifier("match"), "match_");
        assert_eq!(identifier("Self"), "Self_");
        assert_eq!(method_identifier("forward"), "forward");
    }

    #[test]
    fn methods_have_no_name_of_generated_code() {
        for name in ["Model", "Option", "Result", "bool", "f64", "i64", "u8"] {
            assert_eq!(method_identifier(name), format!("{name}_"));
        }
    }

    #[test]
    fn names_in_c() {
        assert_eq!(c_identifier("forward"), "forward");
        assert_eq!(c_identifier("t"), "t_");
        assert_eq!(c_identifier("MAX"), "MAX_");
        assert_eq!(c_identifier("x(){}\nint y"), "x_____int_y");
        assert_eq!(c_prefix("keyword-spotting"), "keyword_spotting");
        assert_eq!([c_prefix("tl"), c_prefix("TL_x")], ["p_tl", "p_TL_x"]);
        assert_eq!(comment("a */ int b; \\\n??/ float32[1, 2]"), "a __ int b_ _____ float32[1, 2]");
    }

    #[test]
    fn names_cannot_escape_comments() {
        assert_eq!(escaped("forward"), "forward");
        assert!(!escaped("a\npub fn b() {}\r\u{2028}").contains(['\n', '\r', '\u{2028}']));
    }
}
