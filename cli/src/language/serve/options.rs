//! Command-line options of `torchlet serve`, for several models.

use crate::arguments::ModelOptions;
use crate::failure::Failure;
use crate::language::images::TilingOptions;
use crate::language::options::{
    LanguageOptions, PieceOptions, ProgramOptions, TemplateOptions, TokenOptions, template_argument,
};
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::str::FromStr;

const TEMPLATE_ARGUMENT: &str = "template-argument";

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// The programs (.pte). Requests refer to them by file name without .pte, or by NAME. With
    /// several models, prefix a value with MODEL= to set it for one model; without a prefix, it
    /// applies to all. --data and --template-argument add to the common values; others replace them
    #[arg(required = true, value_name = "[NAME=]MODEL")]
    models: Vec<OsString>,
    /// Next shard of a model that was split into several programs (repeatable)
    #[arg(long, value_name = "[MODEL=]FILE")]
    shard: Vec<OsString>,
    /// The tokenizer: tokenizer.json, SentencePiece, tiktoken, Tekken or llama2.c [default: a file
    /// beside the model]
    #[arg(long, short, value_name = "[MODEL=]FILE")]
    tokenizer: Vec<OsString>,
    /// Maximum tokens in the context; overrides the program's metadata
    #[arg(long, value_name = "[MODEL=]N")]
    max_context_len: Vec<OsString>,
    /// Maximum prompt tokens per run; overrides the program's metadata. Disconnected clients are
    /// noticed between runs
    #[arg(long, value_name = "[MODEL=]N")]
    max_seq_len: Vec<OsString>,
    /// The BOS token; overrides the program's metadata
    #[arg(long, value_name = "[MODEL=]ID")]
    bos_id: Vec<OsString>,
    /// An EOS token; overrides the program's metadata (repeatable)
    #[arg(long, value_name = "[MODEL=]ID")]
    eos_id: Vec<OsString>,
    /// A Jinja template, or a tokenizer_config.json with one [default: chat_template.jinja or
    /// tokenizer_config.json beside the tokenizer, else Llama 3's or ChatML]
    #[arg(long, value_name = "[MODEL=]FILE")]
    chat_template: Vec<OsString>,
    /// Set a template variable, such as enable_thinking=false (repeatable)
    #[arg(long, value_name = "[MODEL=]NAME=JSON")]
    template_argument: Vec<OsString>,
    /// Name of the model, if it is the only one [default: its file name without .pte]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Concurrent requests per model, each with a KV cache of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) sessions: u16,
    /// Concurrent requests per model that share each run, so that its weights are read once for
    /// all. Without effect on the texts. A program that cannot share runs serves as many requests
    /// with --sessions
    #[arg(long, value_name = "N", conflicts_with = "sessions")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) sequences: Option<u16>,
    /// Maximum waiting requests per model
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    pub(super) queue: u32,
    /// Maximum connections
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub(super) connections: usize,
    /// Maximum connections per address, except this machine's [default: a quarter of --connections]
    #[arg(long, value_name = "N")]
    pub(super) connections_per_address: Option<usize>,
    /// Parse control tokens in message text, as transformers does. A message can then forge
    /// messages of other roles
    #[arg(long)]
    control_tokens_in_messages: bool,
    /// Address to listen on; 0.0.0.0 serves the whole network
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(super) host: String,
    /// Port to listen on; 0 selects a free one
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub(super) port: u16,
    /// Additional host name of this server, such as that of a proxy (repeatable). Other names are
    /// refused while only this machine can connect
    #[arg(long, value_name = "NAME")]
    pub(super) allow_host: Vec<String>,
    /// API key that clients must send as `Authorization: Bearer KEY` [default: $TORCHLET_API_KEY,
    /// or no key]
    #[arg(long, value_name = "KEY")]
    pub(super) api_key: Option<String>,
    /// Subtract this mean from image values (0 to 1): one value, or one per channel
    #[arg(long, value_name = "M,...", value_delimiter = ',', allow_hyphen_values = true)]
    pub(super) mean: Vec<f32>,
    /// Then divide by this standard deviation: one value, or one per channel
    #[arg(long, value_name = "S,...", value_delimiter = ',')]
    pub(super) std: Vec<f32>,
    #[command(flatten)]
    pub(super) tiling: TilingOptions,
    /// `--data` may also be for one model, as MODEL=FILE.
    #[command(flatten)]
    model_options: ModelOptions,
}

/// A model with its options.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) name: String,
    pub(super) language: LanguageOptions,
    pub(super) template: TemplateOptions,
}

impl ServeArguments {
    /// Returns the models, each with the options that apply to it.
    pub(super) fn described(&self) -> Result<Vec<Described>, Failure> {
        let mut models: Vec<(String, PathBuf)> = Vec::new();
        for text in &self.models {
            let (name, path) = named(text);
            if models.iter().any(|(other, _)| *other == name) {
                return Err(Failure::new(format!(
                    "two models have the name '{name}': rename one of them with NAME=FILE"
                )));
            }
            models.push((name, path));
        }
        match (&self.name, models.as_mut_slice()) {
            (Some(name), [(only, _)]) => only.clone_from(name),
            (Some(_), _) => {
                return Err(Failure::new(
                    "--name is for a single model: name each of several with NAME=FILE",
                ));
            }
            (None, _) => {}
        }
        let names: Vec<&str> = models.iter().map(|(name, _)| name.as_str()).collect();
        let described =
            models.iter().map(|(name, path)| self.describe(Scope { name, names: &names }, path));
        described.collect()
    }

    fn describe(&self, scope: Scope<'_>, path: &Path) -> Result<Described, Failure> {
        let paths = |option: &str, values| -> Result<Vec<PathBuf>, Failure> {
            scope.both(values).into_iter().map(|value| scope.path(option, value)).collect()
        };
        if let ([_, _, ..], Some(shard)) = (scope.names, scope.common(&self.shard)) {
            return Err(Failure::new(format!(
                "--shard {}: with several models, name the model of the shard with MODEL=FILE",
                shard.display()
            )));
        }
        let mut model_options = self.model_options.clone();
        let data: Vec<OsString> = model_options.data.drain(..).map(OsString::from).collect();
        model_options.data = paths("data", &data)?;
        let mut arguments = Vec::new();
        // The last value of a variable wins: that of the model.
        for text in scope.both(&self.template_argument) {
            let text = text.to_string_lossy();
            let read = template_argument(&text);
            arguments.push(read.map_err(|error| scope.wrong(TEMPLATE_ARGUMENT, &text, error))?);
        }
        let program = ProgramOptions {
            model: path.into(),
            max_context_len: scope.number("max-context-len", &self.max_context_len)?,
            model_options,
        };
        let pieces = PieceOptions {
            shard: paths("shard", &self.shard)?,
            max_seq_len: scope.number("max-seq-len", &self.max_seq_len)?,
        };
        let ends = scope.nearest(&self.eos_id).into_iter().map(|id| scope.parsed("eos-id", id));
        let tokens = TokenOptions {
            tokenizer: scope.file("tokenizer", &self.tokenizer)?,
            bos_id: scope.number("bos-id", &self.bos_id)?,
            eos_id: ends.collect::<Result<_, _>>()?,
        };
        let language = LanguageOptions { program, pieces, tokens };
        let template = TemplateOptions {
            chat_template: scope.file("chat-template", &self.chat_template)?,
            template_argument: arguments,
            control_tokens_in_messages: self.control_tokens_in_messages,
        };
        Ok(Described { name: scope.name.into(), language, template })
    }
}

/// Splits `NAME=FILE`. Without a valid name, or if the whole text is a file, the name is the file
/// name without extension.
fn named(text: &OsStr) -> (String, PathBuf) {
    let path = Path::new(text);
    let parts = text.to_str().and_then(|text| text.split_once('='));
    match parts.filter(|(name, _)| !name.is_empty() && !name.contains(['/', '\\'])) {
        Some((name, path)) if !Path::new(text).is_file() => (name.into(), path.into()),
        _ => (path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), path.into()),
    }
}

/// Selects the option values of one model.
#[derive(Clone, Copy)]
struct Scope<'a> {
    name: &'a str,
    names: &'a [&'a str],
}

impl<'a> Scope<'a> {
    /// Splits a value into the model that it names, if any, and the rest.
    fn split<'v>(&self, value: &'v OsStr) -> (Option<&'v str>, &'v OsStr) {
        let parts = value.to_str().and_then(|text| text.split_once('='));
        match parts.filter(|(name, _)| self.names.contains(name)) {
            Some((name, value)) => (Some(name), OsStr::new(value)),
            None => (None, value),
        }
    }

    /// The first value for all models.
    fn common<'v>(&self, values: &'v [OsString]) -> Option<&'v OsStr> {
        let mut values = values.iter().map(|value| self.split(value));
        values.find_map(|(name, value)| name.is_none().then_some(value))
    }

    /// The values for a model, or without a name, the common ones.
    fn of<'v>(&self, name: Option<&str>, values: &'v [OsString]) -> Vec<&'v OsStr> {
        let values = values.iter().map(|value| self.split(value));
        values.filter(|(wanted, _)| *wanted == name).map(|(_, value)| value).collect()
    }

    /// The common values, followed by those of this model.
    fn both<'v>(&self, values: &'v [OsString]) -> Vec<&'v OsStr> {
        let mut both = self.of(None, values);
        both.extend(self.of(Some(self.name), values));
        both
    }

    /// The values of this model, or without any, the common ones.
    fn nearest<'v>(&self, values: &'v [OsString]) -> Vec<&'v OsStr> {
        let own = self.of(Some(self.name), values);
        if own.is_empty() { self.of(None, values) } else { own }
    }

    /// Like [`nearest`](Self::nearest), for an option with a single value.
    fn one<'v>(&self, option: &str, values: &'v [OsString]) -> Result<Option<&'v OsStr>, Failure> {
        match self.nearest(values).as_slice() {
            [] => Ok(None),
            [only] => Ok(Some(only)),
            _ => {
                Err(Failure::new(format!("--{option} is set twice for the model '{}'", self.name)))
            }
        }
    }

    fn number<T: FromStr<Err: std::fmt::Display>>(
        &self,
        option: &str,
        values: &[OsString],
    ) -> Result<Option<T>, Failure> {
        self.one(option, values)?.map(|value| self.parsed(option, value)).transpose()
    }

    fn parsed<T: FromStr<Err: std::fmt::Display>>(
        &self,
        option: &str,
        value: &OsStr,
    ) -> Result<T, Failure> {
        let value = value.to_string_lossy();
        value.parse().map_err(|error| self.wrong(option, &value, error))
    }

    fn file(&self, option: &str, values: &[OsString]) -> Result<Option<PathBuf>, Failure> {
        self.one(option, values)?.map(|value| self.path(option, value)).transpose()
    }

    /// A file; its name may contain `=`.
    fn path(&self, option: &str, value: &OsStr) -> Result<PathBuf, Failure> {
        let text = value.to_string_lossy();
        if unknown_name(&text).is_some() && !Path::new(value).exists() {
            return Err(self.wrong(option, &text, "no such file"));
        }
        Ok(value.into())
    }

    /// The error for an invalid value; lists the models if the value may name an unknown one.
    fn wrong(&self, option: &str, value: &str, error: impl std::fmt::Display) -> Failure {
        let names: Vec<String> = self.names.iter().map(|name| format!("'{name}'")).collect();
        // Template arguments contain `=` themselves.
        let (_, rest) = value.split_once('=').unwrap_or_default();
        let name =
            unknown_name(value).filter(|_| option != TEMPLATE_ARGUMENT || rest.contains('='));
        let hint = name.map_or(String::new(), |name| {
            format!("; '{name}' is not a model: expected one of {}", names.join(", "))
        });
        Failure::new(format!("--{option} '{value}': {error}{hint}"))
    }
}

/// Returns what may be the name of an unknown model.
fn unknown_name(value: &str) -> Option<&str> {
    let (name, _) = value.split_once('=')?;
    (!name.is_empty() && !name.contains(['/', '\\'])).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: ServeArguments,
    }

    fn described(line: &[&str]) -> Result<Vec<Described>, String> {
        let line = Line::try_parse_from([&["serve"], line].concat()).map_err(|e| e.to_string())?;
        line.arguments.described().map_err(|error| error.to_string())
    }

    #[test]
    fn models_are_named_by_file_or_option() {
        let names = |line: &[&str]| -> Result<_, String> {
            let models = described(line)?.into_iter();
            Ok(models.map(|model| (model.name, model.language.program.model)).collect::<Vec<_>>())
        };
        let pair = |name: &str, path: &str| (name.to_owned(), PathBuf::from(path));
        assert_eq!(names(&["a/b.pte"]), Ok(vec![pair("b", "a/b.pte")]));
        assert_eq!(names(&["a/b.pte", "--name", "c"]), Ok(vec![pair("c", "a/b.pte")]));
        assert_eq!(
            names(&["a/b.pte", "x:1=c/b.pte", "./y=z.pte"]),
            Ok(vec![pair("b", "a/b.pte"), pair("x:1", "c/b.pte"), pair("y=z", "./y=z.pte")])
        );
        for (line, error) in [
            (&["a/b.pte", "c/b.pte"][..], "two models have the name 'b'"),
            (&["a.pte", "b.pte", "--name", "c"], "--name is for a single model"),
            (&["a.pte", "b.pte", "--shard", "c.pte"], "--shard c.pte: with several models"),
            (&[], "required"),
        ] {
            let found = names(line).unwrap_err();
            assert!(found.contains(error), "{found}");
        }
    }

    #[test]
    fn options_apply_to_one_model_or_all() {
        let line = [
            "a.pte",
            "b=x/c.pte",
            "--tokenizer",
            "all.json",
            "--tokenizer",
            "b=own.json",
            "--shard",
            "b=d.pte",
            "--eos-id",
            "7",
            "--eos-id",
            "b=8",
            "--eos-id",
            "b=9",
            "--max-context-len",
            "a=64",
            "--template-argument",
            "b=x=1",
            "--template-argument",
            "y=2",
            "--data",
            "a=w.ptd",
            "--chat-template",
            "./c=t.jinja",
        ];
        let [a, b] = described(&line).unwrap().try_into().unwrap();
        let (a_language, b_language) = (&a.language, &b.language);
        assert_eq!(a_language.tokens.tokenizer.as_deref(), Some(Path::new("all.json")));
        assert_eq!(b_language.tokens.tokenizer.as_deref(), Some(Path::new("own.json")));
        assert!(a_language.pieces.shard.is_empty());
        assert_eq!(b_language.pieces.shard, [Path::new("d.pte")]);
        assert_eq!(
            (&a_language.tokens.eos_id[..], &b_language.tokens.eos_id[..]),
            (&[7][..], &[8, 9][..])
        );
        assert_eq!(
            (a_language.program.max_context_len, b_language.program.max_context_len),
            (Some(64), None)
        );
        assert_eq!(a_language.program.model_options.data, [Path::new("w.ptd")]);
        assert!(b_language.program.model_options.data.is_empty());
        let one = |name: &str, json: &str| vec![(name.to_owned(), json.to_owned())];
        assert_eq!(a.template.template_argument, one("y", "2"));
        assert_eq!(b.template.template_argument, [one("y", "2"), one("x", "1")].concat());
        // A path, not a model's name.
        let file = Some(Path::new("./c=t.jinja"));
        assert_eq!(a.template.chat_template.as_deref(), file);
        for (line, error) in [
            (["a.pte", "--eos-id", "x"], "--eos-id 'x'"),
            (["a.pte", "--max-seq-len", "a=-1"], "--max-seq-len '-1'"),
            (["a.pte", "--template-argument", "a=1=2=3"], "--template-argument"),
        ] {
            let found = described(&line).unwrap_err();
            assert!(found.contains(error), "{found}");
        }
        for line in [
            ["a.pte", "big=b.pte", "--max-context-len", "bog=64"],
            ["a.pte", "big=b.pte", "--eos-id", "bog=64"],
            ["a.pte", "big=b.pte", "--tokenizer", "bog=t.json"],
            ["a.pte", "big=b.pte", "--data", "bog=w.ptd"],
            ["a.pte", "big=b.pte", "--template-argument", "bog=x=1"],
        ] {
            let found = described(&line).unwrap_err();
            assert!(found.contains("'bog'") && found.contains("'a', 'big'"), "{found}");
        }
        let found = described(&["a.pte", "--template-argument", "think=yes"]).unwrap_err();
        assert!(
            found.contains("--template-argument 'think=yes'") && !found.contains("'a'"),
            "{found}"
        );
        let twice = ["a.pte", "--tokenizer", "a=1", "--tokenizer", "a=2"];
        assert!(described(&twice).unwrap_err().contains("twice for the model 'a'"));
    }

    /// Values of list options accumulate; other values of a model override the common ones.
    #[test]
    fn lists_are_joined_and_single_values_overridden() {
        let line = "a.pte b.pte --data a=own.ptd --data all.ptd --template-argument b=depth=1 --template-argument b=think=true \
            --template-argument think=false --eos-id 7 --eos-id a=8 --bos-id 1 --bos-id b=2";
        let line: Vec<&str> = line.split_whitespace().collect();
        let [a, b] = described(&line).unwrap().try_into().unwrap();
        assert_eq!(
            a.language.program.model_options.data,
            [Path::new("all.ptd"), Path::new("own.ptd")]
        );
        assert_eq!(b.language.program.model_options.data, [Path::new("all.ptd")]);
        let pair = |name: &str, json: &str| (name.to_owned(), json.to_owned());
        assert_eq!(a.template.template_argument, [pair("think", "false")]);
        let all = [pair("think", "false"), pair("depth", "1"), pair("think", "true")];
        assert_eq!(b.template.template_argument, all);
        assert_eq!(
            (&a.language.tokens.eos_id[..], &b.language.tokens.eos_id[..]),
            (&[8][..], &[7][..])
        );
        assert_eq!((a.language.tokens.bos_id, b.language.tokens.bos_id), (Some(1), Some(2)));
    }
}
