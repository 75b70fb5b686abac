//! Served models, each with its own queue, sessions and tokenizer.

use super::jobs::Queue;
use super::options::{Described, ServeArguments};
use crate::failure::Failure;
use crate::language::images::ImageOptions;
use crate::language::open_with_template;
use std::sync::Arc;
use torchlet::llm::{Runner, Tokenizer};

/// A served model.
pub(super) struct Served {
    pub(super) name: String,
    pub(super) queue: Queue,
    pub(super) tokenizer: Arc<Tokenizer>,
}

/// All models, at least one.
pub(super) struct Models(Vec<Served>);

/// Error response for a request without a valid model.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) message: String,
    pub(super) code: Option<&'static str>,
}

/// Maximum characters of an unknown model name in messages.
const MAX_NAME: usize = 100;

impl Models {
    pub(super) fn open(arguments: &ServeArguments) -> Result<Self, Failure> {
        let image_options = ImageOptions {
            mean: arguments.mean.clone(),
            std: arguments.std.clone(),
            tiling: arguments.tiling.tiling(),
        };
        let described = arguments.described()?;
        // All models are loaded before any serves requests.
        let mut opened = Vec::new();
        for Described { name, language, template } in &described {
            let fail = |failure: Failure| match described.len() {
                1 => failure,
                _ => Failure::new(format!("{name}: {failure}")),
            };
            let sequences = usize::from(arguments.sequences.unwrap_or(1));
            let runner = open_with_template(language, template, sequences).map_err(fail)?;
            if let Some(info) = runner.image_input() {
                image_options.check(info).map_err(fail)?;
            }
            opened.push((name.clone(), runner));
        }
        let has_image_options = !image_options.mean.is_empty()
            || !image_options.std.is_empty()
            || image_options.tiling.is_some();
        if has_image_options && opened.iter().all(|(_, runner)| runner.image_input().is_none()) {
            return Err(Failure::new(
                "--mean, --std and --tiling require a program with a vision_encoder",
            ));
        }
        let serve = |(name, runner): (String, Runner)| {
            let (tokenizer, mut sessions) = (runner.tokenizer().clone(), Vec::new());
            for _ in 1..arguments.sequences.unwrap_or(arguments.sessions) {
                sessions.push(runner.session()?);
            }
            sessions.push(runner);
            let queue = Queue::new(sessions, arguments.queue as usize, &image_options);
            Ok(Served { name, queue, tokenizer })
        };
        Ok(Models(opened.into_iter().map(serve).collect::<Result<_, Failure>>()?))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Served> {
        self.0.iter()
    }

    /// Status and body of `/health`. It needs no key, so it reveals numbers but no names of models.
    pub(super) fn health(&self) -> (u16, String) {
        health(self.iter().filter(|model| model.queue.is_alive()).count(), self.0.len())
    }

    /// Whether no request is waiting or running.
    pub(super) fn are_idle(&self) -> bool {
        self.iter().all(|model| model.queue.is_idle())
    }

    /// Returns the requested model. With a single model, any name is accepted, because clients have
    /// built-in names.
    pub(super) fn asked_for(&self, name: Option<&str>) -> Result<&Served, Refusal> {
        match (self.0.as_slice(), name) {
            ([only], _) => Ok(only),
            (_, Some(name)) => self.named(name),
            (_, None) => {
                let message = format!("'model' is missing; available models: {}", self.names());
                Err(Refusal { status: 400, message, code: None })
            }
        }
    }

    /// Returns the model of this name.
    pub(super) fn named(&self, name: &str) -> Result<&Served, Refusal> {
        self.iter().find(|model| model.name == name).ok_or_else(|| {
            let name: String = name.chars().take(MAX_NAME).collect();
            let message =
                format!("the model '{name}' does not exist; available models: {}", self.names());
            Refusal { status: 404, message, code: Some("model_not_found") }
        })
    }

    fn names(&self) -> String {
        let names: Vec<String> = self.iter().map(|model| format!("'{}'", model.name)).collect();
        names.join(", ")
    }
}

fn health(alive: usize, all: usize) -> (u16, String) {
    match alive {
        _ if alive == all => (200, r#"{"status":"ok"}"#.into()),
        0 => (503, r#"{"status":"failed"}"#.into()),
        _ => (200, format!(r#"{{"status":"degraded","models":{all},"failed":{}}}"#, all - alive)),
    }
}

#[cfg(test)]
mod tests {
    use super::health;

    /// Restarting a degraded server would end the models that still work.
    #[test]
    fn health_requires_one_working_model() {
        assert_eq!(health(2, 2), (200, r#"{"status":"ok"}"#.into()));
        assert_eq!(health(1, 3), (200, r#"{"status":"degraded","models":3,"failed":2}"#.into()));
        for all in [1, 3] {
            assert_eq!(health(0, all), (503, r#"{"status":"failed"}"#.into()));
        }
    }
}
