//! Reference values recorded by other tools.

use super::expose::{Exposed, Origin};
use crate::budget::{self, Budget};
use crate::failure::Failure;
use crate::npy;
use std::collections::BTreeMap;
use std::path::Path;
use torchlet::Tensor;
use torchlet_devtools::{Recording, RunKind, ValueKind, ValueRecord, etdump};

/// Recorded values by instruction and result index, and recorded outputs.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    values: BTreeMap<(usize, usize), Tensor>,
    outputs: BTreeMap<usize, Tensor>,
}

impl Recorded {
    pub(super) fn value(&self, origin: &Origin) -> Option<&Tensor> {
        self.values.get(&(origin.instruction, origin.result))
    }

    pub(super) fn output(&self, index: usize) -> Option<&Tensor> {
        self.outputs.get(&index)
    }

    pub(super) fn check(self, exposed: &Exposed, path: &Path) -> Result<Self, Failure> {
        if self.values.is_empty() && self.outputs.is_empty() {
            let path = path.display();
            return Err(Failure::new(format!("'{path}' has no values to compare")));
        }
        if !exposed.is_as_exported && self.outputs.is_empty() {
            return Err(Failure::new(format!(
                "'{}' has values per instruction, but the program has delegates, whose calls have \
                 none; record a program that was exported without delegates",
                path.display()
            )));
        }
        Ok(self)
    }

    /// Reads an archive of arrays named `instruction_4`, `instruction_4.1`, `output_0`.
    pub(super) fn archive(path: &Path, budget: &mut Budget) -> Result<Self, Failure> {
        let mut recorded = Recorded::default();
        for (name, tensor) in npy::read_named(path, budget)? {
            let number = |text: &str| text.parse::<usize>().ok();
            if let Some(index) = name.strip_prefix("output_").and_then(number) {
                recorded.outputs.insert(index, tensor);
            } else if let Some(index) = name.strip_prefix("instruction_") {
                let (instruction, result) = index.split_once('.').unwrap_or((index, "0"));
                if let (Some(instruction), Some(result)) = (number(instruction), number(result)) {
                    recorded.values.insert((instruction, result), tensor);
                }
            }
        }
        Ok(recorded)
    }

    /// Reads the values of the last run of an ETDump.
    pub(super) fn dump(dump: &Path, buffer: &Path) -> Result<Self, Failure> {
        let read = |path: &Path| budget::read_file(path, budget::MAX_RECORDING);
        let recording = etdump::read(&read(dump)?, read(buffer)?)
            .map_err(|error| Failure::new(format!("'{}': {error}", dump.display())))?;
        let mut recorded = Recorded::default();
        let Some(run) = recording.runs.iter().rev().find(|run| run.kind == RunKind::Execute) else {
            return Ok(recorded);
        };
        for value in run.values.iter().filter(|value| is_compared(value)) {
            let tensor = tensor(&recording, value)?;
            match value.instruction {
                Some(instruction) => {
                    let instruction = instruction as usize;
                    let own = recorded.values.range((instruction, 0)..=(instruction, usize::MAX));
                    let result = own.last().map_or(0, |((_, last), _)| last.saturating_add(1));
                    recorded.values.insert((instruction, result), tensor);
                }
                None => {
                    recorded.outputs.insert(value.position, tensor);
                }
            }
        }
        Ok(recorded)
    }
}

/// Scalars and values within delegates have no counterpart in an exposed program.
fn is_compared(value: &ValueRecord) -> bool {
    value.part.is_none() && (value.instruction.is_none() || value.kind != ValueKind::Scalar)
}

fn tensor(recording: &Recording, value: &ValueRecord) -> Result<Tensor, Failure> {
    let sizes: Vec<usize> =
        value.sizes.iter().map(|size| usize::try_from(*size).unwrap_or(0)).collect();
    let bytes = recording.bytes(value).unwrap_or_default();
    Ok(Tensor::from_bytes(value.scalar_type, &sizes, bytes)?)
}
