//! Grammar constraint of a generation. Without the feature `grammar`, everything is allowed.

use crate::error::Error;
#[cfg(feature = "grammar")]
use crate::grammar::Constraint;

/// Grammar constraint and its state.
#[derive(Default)]
pub(crate) struct Form {
    #[cfg(feature = "grammar")]
    constraint: Option<Constraint>,
}

#[cfg(feature = "grammar")]
impl Form {
    /// Whether any text is allowed.
    pub(crate) fn is_free(&self) -> bool {
        self.constraint.is_none()
    }

    pub(crate) fn new(constraint: Constraint) -> Self {
        Form { constraint: Some(constraint) }
    }

    /// Masks the logits of tokens that the grammar forbids. `ends` are the end-of-text tokens.
    /// Returns false if `is_left` aborted it.
    pub(crate) fn mask(
        &mut self,
        logits: &mut [f32],
        ends: &[u32],
        is_left: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        let constraint = self.constraint.as_mut();
        constraint.map_or(Ok(true), |constraint| constraint.mask(logits, ends, is_left))
    }

    /// Advances by a token. Returns whether more tokens may follow.
    pub(crate) fn accept(&mut self, token: u32) -> Result<bool, Error> {
        self.constraint.as_mut().map_or(Ok(true), |constraint| constraint.accept(token))
    }

    /// Whether the text is complete. A text truncated at a stop string is passed as `cut`, because
    /// its tokens do not match it.
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
