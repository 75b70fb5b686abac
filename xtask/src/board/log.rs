//! Parses the log lines of the firmware.

use anyhow::{Context, Result};

/// Results of one model.
#[derive(Default, Debug)]
pub(crate) struct Ran {
    /// Its name; a suffix after a space marks a special run.
    pub(crate) model: String,
    /// Bytes of program, arena, planned buffers and scratch memory.
    pub(crate) sizes: [u64; 4],
    pub(crate) outputs: Vec<Output>,
    pub(crate) class: Option<usize>,
    pub(crate) stack: u64,
    pub(crate) load_ticks: u64,
    pub(crate) run_ticks: u64,
    /// Operators with their ticks.
    pub(crate) operators: Vec<(String, u64)>,
}

/// The elements of an output.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) is_float: bool,
    pub(crate) bytes: Vec<u8>,
}

/// Parses the results of each model, in order.
pub(crate) fn parse(lines: &[String]) -> Result<Vec<Ran>> {
    let mut all: Vec<Ran> = Vec::new();
    for line in lines {
        let Some((model, text)) = line.split_once(": ") else { continue };
        let words: Vec<&str> = text.split(' ').collect();
        if let ["program", program, "arena", arena, "planned", planned, "scratch", scratch] =
            words[..]
        {
            let mut sizes = [0; 4];
            for (size, text) in sizes.iter_mut().zip([program, arena, planned, scratch]) {
                *size = text.parse().with_context(|| line.clone())?;
            }
            all.push(Ran { model: model.to_owned(), sizes, ..Ran::default() });
            continue;
        }
        if words[0] == "output" && !all.iter().any(|ran| ran.model == model) {
            all.push(Ran { model: model.to_owned(), ..Ran::default() });
        }
        let Some(ran) = all.last_mut().filter(|ran| ran.model == model) else { continue };
        ran.take(&words).with_context(|| line.clone())?;
    }
    Ok(all)
}

impl Ran {
    fn take(&mut self, words: &[&str]) -> Result<()> {
        match words {
            ["load", "ticks", ticks] => self.load_ticks = ticks.parse()?,
            ["run", "ticks", ticks] => self.run_ticks = ticks.parse()?,
            ["stack", bytes] => self.stack = bytes.parse()?,
            ["class", class] => self.class = Some(class.parse()?),
            ["ticks", "of", _, name, ticks] => {
                self.operators.push((name.trim_end_matches(':').to_owned(), ticks.parse()?));
            }
            ["output", _, kind, bytes @ ..] => {
                let list = bytes.concat();
                let list = list.strip_prefix('[').and_then(|list| list.strip_suffix(']'));
                let list = list.context("a list")?;
                let bytes = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
                self.outputs.push(Output { is_float: *kind == "Float", bytes });
            }
            _ => {}
        }
        Ok(())
    }
}
