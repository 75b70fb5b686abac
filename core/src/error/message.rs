//! Short formatted texts for errors.

use core::fmt;

/// Maximum length in bytes.
#[cfg(feature = "messages")]
const CAPACITY: usize = 160;

/// A short formatted text, truncated to its capacity.
///
/// Without the feature `messages`, only literals are kept: formatting code occupies kilobytes of
/// flash, and `defmt` formats on the host.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Message {
    #[cfg(feature = "messages")]
    text: heapless::String<CAPACITY>,
    #[cfg(not(feature = "messages"))]
    text: &'static str,
}

impl Message {
    /// Formats the arguments.
    #[cfg(feature = "messages")]
    pub fn new(arguments: fmt::Arguments<'_>) -> Self {
        struct Cut<'a>(&'a mut heapless::String<CAPACITY>);
        impl fmt::Write for Cut<'_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                for character in text.chars() {
                    self.0.push(character).map_err(|_| fmt::Error)?;
                }
                Ok(())
            }
        }
        let mut message = Message::default();
        // An error only means that the text was truncated.
        let _ = fmt::write(&mut Cut(&mut message.text), arguments);
        message
    }

    /// Formats the arguments.
    #[cfg(not(feature = "messages"))]
    pub fn new(arguments: fmt::Arguments<'_>) -> Self {
        Message { text: arguments.as_str().unwrap_or("(feature `messages` is off)") }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        #[allow(
            clippy::needless_borrow,
            reason = "depending on the feature, it is a string or a slice"
        )]
        &self.text
    }
}

impl From<&'static str> for Message {
    #[cfg(feature = "messages")]
    fn from(text: &'static str) -> Self {
        Message::new(format_args!("{text}"))
    }
    #[cfg(not(feature = "messages"))]
    fn from(text: &'static str) -> Self {
        Message { text }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for Message {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "{}", self.as_str());
    }
}
