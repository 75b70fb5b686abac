//! What a text has to be, if anything, whether or not this is built to know of grammars.

use crate::error::Error;
#[cfg(feature = "grammar")]
use crate::grammar::Constraint;

/// What a text has to be, and has been so far.
#[derive(Default)]
pub(crate) struct Form {
    #[cfg(feature = "grammar")]
    constraint: Option<Constraint>,
}

#[cfg(feature = "grammar")]
impl Form {
    /// Whether it may be anything.
    pub(crate) fn is_free(&self) -> bool {
        self.constraint.is_none()
    }

    pub(crate) fn new(constraint: Constraint) -> Self {
        Form { constraint: Some(constraint) }
    }

    /// Masks the logits of tokens that the grammar forbids; `ends` end the text. Returns false if
    /// `is_left` ended it first.
    pub(crate) fn mask(
        &mut self,
        logits: &mut [f32],
        ends: &[u32],
        is_left: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        let constraint = self.constraint.as_mut();
        constraint.map_or(Ok(true), |constraint| constraint.mask(logits, ends, is_left))
    }

    /// Goes on behind a token; whether anything may follow it.
    pub(crate) fn accept(&mut self, token: u32) -> Result<bool, Error> {
        self.constraint.as_mut().map_or(Ok(true), |constraint| constraint.accept(token))
    }

    /// Whether the text is all that it has to be. One that was cut is given: not all of its tokens
    /// count.
    pub(crate) fn fits(&mut self, cut: Option<&str>) -> bool {
        let Some(constraint) = &mut self.constraint else { return true };
        cut.is_none_or(|text| constraint.follow(text).is_ok()) && constraint.fits()
    }
}

#[cfg(not(feature = "grammar"))]
impl Form {
    pub(crate) fn is_free(&self) -> bool {
        true
    }

    pub(crate) fn mask(
        &mut self,
        _: &mut [f32],
        _: &[u32],
        _: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        Ok(true)
    }

    pub(crate) fn accept(&mut self, _: u32) -> Result<bool, Error> {
        Ok(true)
    }

    pub(crate) fn fits(&mut self, _: Option<&str>) -> bool {
        true
    }
}
