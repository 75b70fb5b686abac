//! Assigns the calls of a graph to processors by a cost model, and explains the choice.
//!
//! The time of a call is the longer of its arithmetic time and its memory time at the rates of the
//! processor, plus a fixed overhead per call. A region has a fixed launch overhead. If the
//! processor has its own memory, the region's inputs and outputs are also transferred. The
//! optimizer moves whole regions to other processors, and keeps each move that reduces the time of
//! the whole graph.

use crate::graph::{Graph, ValueId};
use crate::partition::{Part, arguments, partition};
use crate::processors::Processors;
use crate::report::{Estimate, Location, PartReport};
use crate::work::{self, Work};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::{Rates, Registry};

/// Limit on the calls examined by the optimizer. The optimizer's cost is the number of regions
/// times the number of calls, and programs may have any number of both.
const LOOKS: usize = 1 << 22;

/// Whether a processor runs a call.
#[derive(Clone, PartialEq)]
enum Answer {
    Takes,
    Refuses(String),
    /// The processor supports the call, but the whole graph is faster if another processor runs it.
    Leaves,
}

/// Assignment of the calls of a graph to processors.
pub(crate) struct Placement<'t> {
    processors: Processors<'t>,
    /// Processor of each call; `None` for kernels.
    on: Vec<Option<usize>>,
    /// For each processor, the answer for each call.
    answers: Vec<Vec<Answer>>,
    /// Cost of each call.
    works: Vec<Work>,
    /// Whether the registry has a kernel for each call.
    kernels: Vec<bool>,
    /// Total time in seconds before the optimizer moved regions.
    at_first: Option<f64>,
}

impl<'t> Placement<'t> {
    /// Assigns each call to the first processor that supports it. A processor runs only the regions
    /// that it considers worthwhile.
    pub(crate) fn preferred(
        graph: &Graph<'_>,
        processors: Processors<'t>,
        registry: &Registry<'_>,
    ) -> Self {
        let ask = |target: &&dyn crate::Target| {
            let answers = target.accepts_each(graph).into_iter();
            let mut answers: Vec<Answer> =
                answers.map(|it| it.map_or_else(Answer::Refuses, |()| Answer::Takes)).collect();
            answers.resize_with(graph.nodes.len(), || Answer::Refuses(String::new()));
            answers
        };
        let answers: Vec<Vec<Answer>> = processors.targets.iter().map(ask).collect();
        let kernels = graph.nodes.iter().map(|node| {
            node.operator.instruction().is_some_and(|name| registry.has_operator(name))
        });
        let (kernels, works) = (kernels.collect(), work::of_each(graph));
        let on = vec![None; graph.nodes.len()];
        let mut placement = Placement { processors, on, answers, works, kernels, at_first: None };
        placement.settle_all();
        placement.leave_what_gains_nothing(graph);
        placement
    }

    /// Restricts the assignment to processors that work in host memory.
    pub(crate) fn nearby(mut self, graph: &Graph<'_>) -> Self {
        for (target, answers) in self.processors.targets.iter().zip(&mut self.answers) {
            if !target.shares_memory() {
                let taken = answers.iter_mut().filter(|answer| **answer == Answer::Takes);
                taken.for_each(|answer| *answer = Answer::Leaves);
            }
        }
        self.settle_all();
        self.leave_what_gains_nothing(graph);
        self
    }

    fn settle_all(&mut self) {
        (0..self.on.len()).for_each(|call| self.settle(call));
    }

    /// Assigns a call to the first processor that supports it.
    fn settle(&mut self, call: usize) {
        let takes = |answers: &Vec<Answer>| matches!(answers.get(call), Some(Answer::Takes));
        if let Some(slot) = self.on.get_mut(call) {
            *slot = self.answers.iter().position(takes);
        }
    }

    /// Removes regions from processors that do not consider them worthwhile.
    fn leave_what_gains_nothing(&mut self, graph: &Graph<'_>) {
        for _ in self.processors.targets {
            let mut stays = true;
            for part in self.parts(graph) {
                let Part::Device(processor, region) = part else { continue };
                let Some(target) = self.processors.targets.get(processor) else { continue };
                let Err(why) = target.is_worthwhile(graph, &region) else { continue };
                self.answer(processor, &region.nodes, &Answer::Refuses(why));
                stays = false;
            }
            if stays {
                break;
            }
        }
    }

    fn answer(&mut self, processor: usize, calls: &[usize], answer: &Answer) {
        for call in calls {
            let slot = self.answers.get_mut(processor).and_then(|answers| answers.get_mut(*call));
            if let Some(slot) = slot {
                *slot = answer.clone();
            }
            self.settle(*call);
        }
    }

    /// Moves regions away from devices with their own memory, one by one, if that reduces the total
    /// time. If a part runs elsewhere, also tries to move the device calls that this part depends
    /// on. The remaining calls of the device can then form a single region.
    pub(crate) fn improve(&mut self, graph: &Graph<'_>) {
        let mut looks = LOOKS / graph.nodes.len().max(1);
        let mut least = self.seconds(graph);
        self.at_first = Some(least);
        let makers = makers(graph);
        let mut goes_on = true;
        while core::mem::take(&mut goes_on) {
            for part in self.parts(graph) {
                let far: Vec<usize> = (0..self.processors.targets.len())
                    .filter(|place| self.is_far(*place))
                    .filter(|place| {
                        calls_of(&part).0.is_none_or(|own| own == *place || !self.is_far(own))
                    })
                    .collect();
                for processor in far {
                    if looks == 0 {
                        return;
                    }
                    looks -= 1;
                    let calls = match calls_of(&part) {
                        // An earlier step may have moved some of these calls.
                        (Some(own), calls) if own == processor => {
                            calls.iter().copied().filter(|it| self.is_on(*it, processor)).collect()
                        }
                        (_, calls) => self.awaited(graph, &makers, calls, processor),
                    };
                    if calls.is_empty() {
                        continue;
                    }
                    let before = self.on.clone();
                    self.answer(processor, &calls, &Answer::Leaves);
                    let seconds = self.seconds(graph);
                    if seconds < least {
                        (least, goes_on) = (seconds, true);
                    } else {
                        self.answer(processor, &calls, &Answer::Takes);
                        self.on = before;
                    }
                }
            }
        }
        self.leave_what_gains_nothing(graph);
    }

    /// Whether a processor has its own memory.
    fn is_far(&self, processor: usize) -> bool {
        self.processors.targets.get(processor).is_some_and(|target| !target.shares_memory())
    }

    fn is_on(&self, call: usize, processor: usize) -> bool {
        self.on.get(call).copied().flatten() == Some(processor)
    }

    /// Returns the calls on a processor that these calls depend on, in order.
    fn awaited(
        &self,
        graph: &Graph<'_>,
        makers: &BTreeMap<ValueId, usize>,
        calls: &[usize],
        processor: usize,
    ) -> Vec<usize> {
        let mut seen: BTreeSet<usize> = calls.iter().copied().collect();
        let mut next = calls.to_vec();
        let mut found = BTreeSet::new();
        while let Some(call) = next.pop() {
            if self.is_on(call, processor) {
                found.insert(call);
            }
            let Some(node) = graph.nodes.get(call) else { continue };
            let makers = arguments(graph, node).0.into_iter().filter_map(|id| makers.get(&id));
            next.extend(makers.copied().filter(|maker| seen.insert(*maker)));
        }
        found.into_iter().collect()
    }

    /// Returns the total time in seconds. It is infinite if a call lacks a kernel or a rate is
    /// unknown.
    pub(crate) fn seconds(&self, graph: &Graph<'_>) -> f64 {
        self.parts(graph).iter().map(|part| self.of_part(graph, part)).sum()
    }

    /// Returns the total time in seconds with devices that have their own memory, and whether any
    /// part runs on such a device. If the optimizer moved all parts away from such devices, the
    /// time is the one before optimization.
    pub(crate) fn far_seconds(&self, graph: &Graph<'_>) -> (f64, bool) {
        match (self.has_far_parts(graph), self.at_first) {
            (false, Some(seconds)) => (seconds, false),
            (any, _) => (self.seconds(graph), any),
        }
    }

    /// Whether any part runs on a device with its own memory.
    fn has_far_parts(&self, graph: &Graph<'_>) -> bool {
        self.parts(graph).iter().any(|part| calls_of(part).0.is_some_and(|own| self.is_far(own)))
    }

    fn of_part(&self, graph: &Graph<'_>, part: &Part) -> f64 {
        let (own, _) = calls_of(part);
        self.on_processor(graph, part, own).unwrap_or(f64::INFINITY)
    }

    /// Returns the time of a part in seconds on a processor, or on kernels for `None`. Returns
    /// `None` if the processor does not support one of the calls, or if rates are unknown.
    fn on_processor(
        &self,
        graph: &Graph<'_>,
        part: &Part,
        processor: Option<usize>,
    ) -> Option<f64> {
        let (_, calls) = calls_of(part);
        let takes = |call: &usize| match processor {
            None => self.kernels.get(*call).copied().unwrap_or(false),
            Some(place) => {
                let answer = self.answers.get(place).and_then(|answers| answers.get(*call));
                matches!(answer, Some(Answer::Takes | Answer::Leaves))
            }
        };
        let rates = self.processors.rates(processor).filter(|_| calls.iter().all(takes))?;
        let each = calls.iter().filter_map(|call| self.works.get(*call));
        let seconds: f64 = each.map(|work| work.seconds(&rates)).sum();
        Some(seconds + crossing(graph, part, &rates))
    }

    /// For each call, whether a kernel runs it.
    pub(crate) fn on_host(&self) -> Vec<bool> {
        self.on.iter().map(Option::is_none).collect()
    }

    /// Returns the parts of the graph.
    pub(crate) fn parts(&self, graph: &Graph<'_>) -> Vec<Part> {
        partition(graph, &self.on)
    }

    /// Returns the reason why no preferred processor runs a call; empty if the call runs on its
    /// preferred processor.
    pub(crate) fn reason(&self, call: usize) -> String {
        let own = self.on.get(call).copied().flatten().unwrap_or(self.answers.len());
        let before = self.processors.targets.iter().zip(&self.answers).take(own);
        let reasons = before.filter_map(|(target, answers)| {
            let why = match answers.get(call)? {
                Answer::Refuses(why) if !why.is_empty() => why.as_str(),
                Answer::Leaves => "an estimated slowdown of the graph",
                _ => return None,
            };
            Some(match self.processors.targets.len() {
                1 => String::from(why),
                _ => format!("{}: {why}", target.backend()),
            })
        });
        let reasons: Vec<String> = reasons.collect();
        reasons.join("; ")
    }

    /// Creates the report of a part.
    pub(crate) fn describe(
        &self,
        graph: &Graph<'_>,
        part: &Part,
        location: Location,
    ) -> PartReport {
        let (own, calls) = calls_of(part);
        let others = (0..self.processors.targets.len()).map(Some).chain([None]);
        let estimate = |processor: Option<usize>| {
            let seconds = self.on_processor(graph, part, processor)?;
            let processor = String::from(self.processors.name(processor));
            Some(Estimate { processor, nanoseconds: (seconds * 1e9) as u64 })
        };
        let others = others.filter(|other| *other != own).filter_map(estimate).collect();
        PartReport { location, calls: calls.len(), own: estimate(own), others }
    }
}

/// Maps each value to the call that produces it.
fn makers(graph: &Graph<'_>) -> BTreeMap<ValueId, usize> {
    let results = |(index, node)| arguments(graph, node).1.into_iter().map(move |id| (id, index));
    graph.nodes.iter().enumerate().flat_map(results).collect()
}

/// Returns the processor and the calls of a part.
fn calls_of(part: &Part) -> (Option<usize>, &[usize]) {
    match part {
        Part::Host(nodes) => (None, nodes),
        Part::Device(processor, region) => (Some(*processor), &region.nodes),
    }
}

/// Returns the launch and transfer time of a part in seconds.
fn crossing(graph: &Graph<'_>, part: &Part, rates: &Rates) -> f64 {
    let bytes = match part {
        // Transfers between kernels and a region are counted as inputs and outputs of the region.
        Part::Host(_) => 0.0,
        Part::Device(_, region) => {
            work::bytes(graph, &region.inputs) + work::bytes(graph, &region.outputs)
        }
    };
    rates.region + bytes / rates.transfer
}

#[cfg(test)]
mod tests;
