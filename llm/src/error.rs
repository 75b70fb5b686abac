//! Error type.

use crate::model::Failure;
use std::fmt;
use std::path::PathBuf;

/// Error of opening or running a language model.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read.
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The tokenizer file is malformed or not supported.
    Tokenizer {
        /// Cause.
        message: String,
    },
    /// A chat template is malformed, or rejects the messages.
    Template {
        /// Cause.
        message: String,
    },
    /// A grammar is malformed, too large or not supported.
    Grammar {
        /// Cause.
        message: String,
    },
    /// The system is overloaded; a retry may succeed.
    Overloaded {
        /// What failed.
        message: String,
    },
    /// A bug in this crate or in a dependency, which was caught.
    Defect {
        /// What failed.
        message: String,
    },
    /// A sound is malformed or not supported.
    Audio {
        /// Cause.
        message: String,
    },
    /// A function definition or a function call is malformed.
    Tool {
        /// Cause.
        message: String,
    },
    /// An image has an invalid size.
    Image {
        /// Cause.
        message: String,
    },
    /// The program failed.
    Model {
        /// The failed action.
        action: String,
        /// Cause.
        source: Failure,
    },
    /// The program's methods, inputs or outputs do not match any supported interface.
    Interface {
        /// Name of the method.
        method: String,
        /// The mismatch.
        message: String,
    },
    /// A metadata method returns an invalid value.
    Metadata {
        /// Name of the method.
        method: String,
        /// The mismatch.
        message: String,
    },
    /// The context is too small for more tokens.
    ContextFull {
        /// Tokens in the context.
        position: usize,
        /// Tokens to be added.
        tokens: usize,
        /// Maximum number of tokens in the context.
        limit: usize,
    },
    /// The context is empty, and no prompt was given.
    NoPrompt,
    /// A setting is out of range.
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// The invalid value.
        value: String,
        /// Accepted values.
        expected: &'static str,
    },
    /// A setting refers to a token outside the vocabulary.
    UnknownToken {
        /// Name of the setting.
        name: &'static str,
        /// The token.
        token: u32,
        /// Size of the program's vocabulary.
        vocabulary: usize,
    },
    /// The prompt contains a token outside the vocabulary. The tokenizer probably belongs to
    /// another model.
    ForeignToken {
        /// The token.
        token: u32,
        /// Size of the program's vocabulary.
        vocabulary: usize,
    },
    /// No token can be sampled: no logit is greater than minus infinity.
    NoToken {
        /// Number of logits.
        logits: usize,
    },
}

/// Allocates room for `count` elements, whose number a file or a request decides.
///
/// # Errors
/// Too little memory is left; `purpose` names the elements in the message.
pub(crate) fn reserve<T>(count: usize, purpose: &str) -> Result<Vec<T>, Error> {
    let mut elements = Vec::new();
    elements.try_reserve_exact(count).map_err(|_| {
        let bytes = count.saturating_mul(size_of::<T>());
        Error::Overloaded { message: format!("cannot allocate {bytes} bytes for {purpose}") }
    })?;
    Ok(elements)
}

/// Allocates `count` copies of `value`, as [`reserve`] does.
pub(crate) fn filled<T: Clone>(value: T, count: usize, purpose: &str) -> Result<Vec<T>, Error> {
    let mut elements = reserve(count, purpose)?;
    elements.resize(count, value);
    Ok(elements)
}

impl Error {
    /// Checks that tokens are in the vocabulary, whose size is the maximum of the program's
    /// metadata and its number of logits.
    pub(crate) fn check_known(
        tokens: &[u32],
        vocabulary: Option<usize>,
        logits: usize,
    ) -> Result<(), Error> {
        // If neither is known, every token is accepted.
        let vocabulary = vocabulary.unwrap_or(0).max(logits);
        let is_foreign =
            |token: &&u32| usize::try_from(**token).map_or(true, |at| at >= vocabulary);
        match tokens.iter().find(is_foreign).filter(|_| vocabulary > 0) {
            Some(&token) => Err(Error::ForeignToken { token, vocabulary }),
            None => Ok(()),
        }
    }

    pub(crate) fn model(action: impl Into<String>) -> impl FnOnce(Failure) -> Error {
        let action = action.into();
        move |source| Error::Model { action, source }
    }

    /// Extends an error with a hint, if the context had more tokens than the program declares.
    pub(crate) fn with_context_hint(self, tokens: usize, declared: Option<usize>) -> Error {
        match (self, declared) {
            (Error::Model { action, source }, Some(declared)) if tokens > declared => {
                let action = format!(
                    "{action} with {tokens} tokens in the context: the program declares a limit of \
                     {declared}, and max_context_len overrides it with a larger one"
                );
                Error::Model { action, source }
            }
            (error, _) => error,
        }
    }

    pub(crate) fn interface(method: &str, message: impl Into<String>) -> Error {
        Error::Interface { method: method.into(), message: message.into() }
    }

    pub(crate) fn tokenizer(message: impl Into<String>) -> Error {
        Error::Tokenizer { message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Read { path, .. } => write!(f, "cannot read {}", path.display()),
            Error::Tokenizer { message } => write!(f, "tokenizer: {message}"),
            Error::Template { message } => write!(f, "chat template: {message}"),
            Error::Overloaded { message } => f.write_str(message),
            Error::Defect { message } => write!(f, "internal error: {message}"),
            Error::Audio { message } => write!(f, "sound: {message}"),
            Error::Tool { message } => write!(f, "function: {message}"),
            Error::Image { message } => write!(f, "image: {message}"),
            Error::Grammar { message } => write!(f, "grammar: {message}"),
            Error::Model { action, .. } => write!(f, "cannot {action}"),
            Error::Interface { method, message } => {
                write!(f, "method '{method}' does not match a language model: {message}")
            }
            Error::Metadata { method, message } => {
                let advice = match crate::metadata::is_overridden(method) {
                    true => "override it to use the program anyway",
                    false => "export the program again without this method, or with a valid value",
                };
                write!(f, "metadata method '{method}': {message}; {advice}")
            }
            Error::ContextFull { position, tokens, limit } => {
                let instead = if *position == 0 { "shorten the prompt" } else { "reset it" };
                write!(
                    f,
                    "the context is full: {position} tokens and {tokens} new ones exceed the \
                     limit of {limit}; {instead}, or export the program with a larger \
                     max_context_length"
                )
            }
            Error::NoPrompt => f.write_str("the prompt is empty, and so is the context"),
            Error::Setting { name, value, expected } => {
                write!(f, "{name} is {value}, expected {expected}")
            }
            Error::UnknownToken { name, token, vocabulary } => write!(
                f,
                "{name} contains the token {token}, but the vocabulary has {vocabulary} tokens"
            ),
            Error::ForeignToken { token, vocabulary } => write!(
                f,
                "the prompt contains the token {token}, but the vocabulary has {vocabulary} \
                 tokens; use the tokenizer that the program was exported with"
            ),
            Error::NoToken { logits } => write!(
                f,
                "no token can be sampled: none of the {logits} logits is greater than minus \
                 infinity"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Read { source, .. } => Some(source),
            Error::Model { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_context_advice_depends_on_position() {
        let text = |position| Error::ContextFull { position, tokens: 9, limit: 8 }.to_string();
        assert!(text(0).contains("shorten the prompt"), "{}", text(0));
        assert!(text(3).contains("reset it"), "{}", text(3));
    }

    #[test]
    fn override_advice_only_if_possible() {
        let text = |method: &str| {
            Error::Metadata { method: method.into(), message: "expected a count".into() }
                .to_string()
        };
        for method in ["get_max_seq_len", "max_context_len", "get_eos_ids", "get_bos_id"] {
            assert!(text(method).contains("override it"), "{method}");
        }
        for method in ["get_vocab_size", "use_kv_cache", "enable_dynamic_shape"] {
            assert!(text(method).contains("export the program again"), "{method}");
        }
    }
}
