//! What calls take, and what devices can do.

use crate::model;
use std::collections::BTreeMap;
use torchlet::Module;
use torchlet::core::{Rates, Registry};
use torchlet::graph::{self, Target};
use torchlet_devtools::Row;

/// Arithmetic and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Amount {
    pub(super) operations: f64,
    pub(super) bytes: f64,
}

impl Amount {
    pub(super) fn add(&mut self, other: Amount) {
        self.operations += other.operations;
        self.bytes += other.bytes;
    }
}

/// What the calls of a method take, as far as that follows from shapes.
#[derive(Debug, Clone, Default)]
pub(super) struct Work {
    calls: BTreeMap<(u32, Option<u32>), Amount>,
    /// What the processor can do, by the compiler's model of it.
    pub(super) rates: Option<Rates>,
}

impl Work {
    pub(super) fn of(module: &Module, method: &str) -> Self {
        let Ok(registry) = Registry::new().with_kernels(&torchlet::portable::KERNELS) else {
            return Work::default();
        };
        let mut work = Work::default();
        // What graphs do not say is shown without: the times are what matters.
        let methods = graph::work(&module.program(), module.data(), &registry).unwrap_or_default();
        for (_, calls) in methods.into_iter().filter(|(name, _)| name == method) {
            for call in calls {
                let Ok(instruction) = u32::try_from(call.instruction) else { continue };
                let amount = Amount { operations: call.operations, bytes: call.bytes };
                work.calls.entry((instruction, call.part)).or_default().add(amount);
            }
        }
        let meta = module.method_meta(method).ok();
        let delegates = meta.iter().flat_map(|meta| {
            (0..meta.delegate_count()).map(|index| meta.delegate_backend(index).unwrap_or(""))
        });
        let is_vulkan = delegates.collect::<Vec<_>>().contains(&"VulkanBackend");
        work.rates = rates(is_vulkan, module.threads());
        work
    }

    /// What a row takes in a run.
    pub(super) fn row(&self, row: &Row) -> Amount {
        let of = |part| row.instruction.and_then(|at| self.calls.get(&(at, part))).copied();
        let each = match row.part {
            // The dispatches of one call share its number: the one that is no copy counts.
            Some(part) if is_work(&row.name) => of(Some(part)),
            Some(_) => None,
            // In a loop, an instruction runs several times.
            None => of(None).map(|each| Amount {
                operations: each.operations * row.calls as f64,
                bytes: each.bytes * row.calls as f64,
            }),
        };
        each.unwrap_or_default()
    }
}

/// Whether a part of a delegate computes: transfers have numbers, too, of another kind.
fn is_work(name: &str) -> bool {
    name.contains("::") || name.contains('.')
}

/// What the processor can do: of GPUs, what those of its kind do, as their drivers tell no more.
fn rates(is_vulkan: bool, threads: usize) -> Option<Rates> {
    if is_vulkan {
        return model::gpu_rates();
    }
    torchlet::portable::engine::CpuTarget::new().with_threads(threads).rates()
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchlet_devtools::Profile;

    #[test]
    fn calls_in_loops_count_each_time() {
        let saved = serde_json::json!({
            "format": "torchlet profile 1", "runs": [9], "load": [],
            "rows": [{ "name": "aten::add.out", "detail": "", "instruction": 2, "calls": 3, "times": [9] }],
        });
        let profile = Profile::from_json(&saved).unwrap();
        let mut work = Work::default();
        work.calls.insert((2, None), Amount { operations: 10.0, bytes: 4.0 });
        assert_eq!(work.row(&profile.rows[0]), Amount { operations: 30.0, bytes: 12.0 });
    }
}
