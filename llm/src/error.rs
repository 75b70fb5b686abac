//! What can go wrong.

use crate::model::Failure;
use std::fmt;
use std::path::PathBuf;

/// Why a language model could not be opened or run.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read.
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A tokenizer's data is damaged or of a kind that is not supported.
    Tokenizer {
        /// What is wrong.
        message: String,
    },
    /// A chat template is damaged, or refuses the messages.
    Template {
        /// What is wrong.
        message: String,
    },
    /// A grammar is damaged or too large, or asks for what is not supported.
    Grammar {
        /// What is wrong.
        message: String,
    },
    /// Too much else is at work: the same may succeed later.
    Overloaded {
        /// What could not be done.
        message: String,
    },
    /// A defect of this crate, or of one that it uses, which was contained.
    Defect {
        /// What failed.
        message: String,
    },
    /// A sound is damaged or of a kind that is not supported.
    Sound {
        /// What is wrong.
        message: String,
    },
    /// A function that a model may call, or a call of one, is malformed.
    Tool {
        /// What is wrong.
        message: String,
    },
    /// A picture is of a size that it cannot have.
    Picture {
        /// What is wrong.
        message: String,
    },
    /// The program failed.
    Model {
        /// What it was to do.
        action: String,
        /// Why it could not.
        source: Failure,
    },
    /// The program's methods, inputs or outputs are not those of a language model.
    Interface {
        /// The method.
        method: String,
        /// What was expected and found.
        message: String,
    },
    /// A method that tells of the program gives what cannot be.
    Metadata {
        /// The method.
        method: String,
        /// What was expected and found.
        message: String,
    },
    /// The context has no room for these tokens.
    ContextFull {
        /// Tokens that are in it.
        position: usize,
        /// Tokens that should be added.
        tokens: usize,
        /// The most tokens that it takes.
        limit: usize,
    },
    /// There is nothing to continue: no prompt was given, now or before.
    NoPrompt,
    /// A setting is out of its range.
    Setting {
        /// Which.
        name: &'static str,
        /// What it was.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// A setting is about a token that the program does not know.
    UnknownToken {
        /// Which setting.
        name: &'static str,
        /// The token.
        token: u32,
        /// How many tokens the program has logits of, from 0 on.
        vocabulary: usize,
    },
    /// What is to be fed has a token that the program does not know: its tokenizer is that of
    /// another model, most likely.
    ForeignToken {
        /// The token.
        token: u32,
        /// How many tokens the program knows, from 0 on.
        vocabulary: usize,
    },
    /// No token can be chosen: the model gave no number that is larger than minus infinity.
    NoToken {
        /// How many logits there were.
        logits: usize,
    },
}

impl Error {
    /// Whether a program knows tokens: as many as it says, or has logits of.
    pub(crate) fn check_known(
        tokens: &[u32],
        vocabulary: Option<usize>,
        logits: usize,
    ) -> Result<(), Error> {
        // What neither says is not known.
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

    /// Of a run with so many tokens: says that they are more than the program says that it takes,
    /// where they are.
    pub(crate) fn beyond(self, tokens: usize, said: Option<usize>) -> Error {
        match (self, said) {
            (Error::Model { action, source }, Some(said)) if tokens > said => {
                let action = format!(
                    "{action} with {tokens} tokens in its context: it says that it takes {said}, and max_context_len was set to more"
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
            Error::Defect { message } => write!(f, "{message}; this is a defect"),
            Error::Sound { message } => write!(f, "sound: {message}"),
            Error::Tool { message } => write!(f, "function: {message}"),
            Error::Picture { message } => write!(f, "picture: {message}"),
            Error::Grammar { message } => write!(f, "grammar: {message}"),
            Error::Model { action, .. } => write!(f, "cannot {action}"),
            Error::Interface { method, message } => {
                write!(f, "method '{method}' is not one of a language model: {message}")
            }
            Error::Metadata { method, message } => {
                let advice = match crate::metadata::is_overridden(method) {
                    true => "override it to use the program all the same",
                    false => {
                        "export the program again without that method, or with what is expected of it"
                    }
                };
                write!(f, "metadata method '{method}': {message}; {advice}")
            }
            Error::ContextFull { position, tokens, limit } => {
                let instead = if *position == 0 { "shorten the prompt" } else { "reset it" };
                write!(
                    f,
                    "the context is full: {position} tokens are in it and {tokens} more should be, but it takes {limit}; {instead}, or export \
                     the program with a larger max_context_length"
                )
            }
            Error::NoPrompt => f.write_str("there is no prompt, and none was given before"),
            Error::Setting { name, value, expected } => {
                write!(f, "{name} is {value}, but should be {expected}")
            }
            Error::UnknownToken { name, token, vocabulary } => write!(
                f,
                "{name} is about the token {token}, but the program has logits of {vocabulary} tokens: it should be below {vocabulary}"
            ),
            Error::ForeignToken { token, vocabulary } => write!(
                f,
                "the prompt has the token {token}, but the program knows {vocabulary} tokens, from 0 on: give it the tokenizer that it was \
                 exported with"
            ),
            Error::NoToken { logits } => write!(
                f,
                "no token can be chosen: none of the {logits} logits is larger than minus infinity"
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
    fn a_prompt_that_never_fits_is_to_be_shorter() {
        let text = |position| Error::ContextFull { position, tokens: 9, limit: 8 }.to_string();
        assert!(text(0).contains("shorten the prompt"), "{}", text(0));
        assert!(text(3).contains("reset it"), "{}", text(3));
    }

    #[test]
    fn what_cannot_be_overridden_is_not_said_to_be() {
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
