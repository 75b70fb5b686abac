//! Options of a program to be opened, as pairs of name and value.

use crate::error::Failure;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use torchlet::{Error, FileAccess, ModuleBuilder, RunOn, UnknownProcessor};
use torchlet_devtools::Recorder;

/// Where a program is read from.
pub(crate) enum Source {
    Path(String),
    Bytes(Vec<u8>),
}

/// Options of a program.
#[derive(Default)]
pub(crate) struct Settings {
    /// In the order given; names may repeat.
    pairs: Vec<(String, String)>,
}

fn parsed<T: FromStr>(name: &str, value: &str) -> Result<T, Failure> {
    value.parse().map_err(|_| Failure::Argument(format!("{name}: {value:?} is out of range")))
}

impl Settings {
    /// Reads alternating names and values.
    pub(crate) fn of(words: Vec<String>) -> Self {
        let mut words = words.into_iter();
        let mut pairs = Vec::new();
        while let (Some(name), Some(value)) = (words.next(), words.next()) {
            pairs.push((name, value));
        }
        Settings { pairs }
    }

    fn last(&self, name: &str) -> Option<&str> {
        self.pairs.iter().rev().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Opens a program, with the recorder of its events if they are wanted.
    pub(crate) fn open(
        &self,
        source: Source,
    ) -> Result<(torchlet::Module, Option<Arc<Recorder>>), Failure> {
        let recorder = self.last("record").map(|_| Arc::new(Recorder::new()));
        let access = match self.last("load_mode") {
            Some("map") => FileAccess::Map,
            Some("lock" | "lock_if_allowed") => FileAccess::MapLocked,
            _ => FileAccess::Read,
        };
        let builder = self.builder(access, recorder.clone())?;
        let opened = match source {
            Source::Bytes(bytes) => builder.from_bytes(bytes),
            Source::Path(path) => match builder.load(Path::new(&path)) {
                Err(Error::File { .. }) if self.last("load_mode") == Some("lock_if_allowed") => {
                    self.builder(FileAccess::Map, recorder.clone())?.load(Path::new(&path))
                }
                opened => opened,
            },
        };
        Ok((opened?, recorder))
    }

    fn builder(
        &self,
        access: FileAccess,
        recorder: Option<Arc<Recorder>>,
    ) -> Result<ModuleBuilder, Failure> {
        let mut builder = torchlet::Module::builder().file_access(access);
        if let Some(recorder) = recorder {
            builder = builder.event_tracer(recorder);
        }
        for (name, value) in &self.pairs {
            builder = match name.as_str() {
                "run_on" => {
                    let unknown = |error: UnknownProcessor| Failure::Argument(error.to_string());
                    builder.run_on(value.parse::<RunOn>().map_err(unknown)?)
                }
                "threads" => builder.threads(parsed(name, value)?),
                "memory_limit" => builder.memory_limit(parsed(name, value)?),
                "compile_cache" => builder.compile_cache(value),
                "data" => builder.data(value),
                "load_mode" | "record" => builder,
                _ => match name.strip_prefix("option:").and_then(|name| name.split_once(':')) {
                    Some((backend, key)) => {
                        builder.backend_option(backend, key, parsed::<i64>(name, value)?)
                    }
                    None => return Err(Failure::Argument(format!("unknown option {name:?}"))),
                },
            };
        }
        Ok(builder)
    }
}
