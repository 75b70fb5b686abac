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
    fn names_cannot_escape_comments() {
        assert_eq!(escaped("forward"), "forward");
        assert!(!escaped("a\npub fn b() {}\r\u{2028}").contains(['\n', '\r', '\u{2028}']));
    }
}
