//! A program that is compiled in order to be measured.

use crate::error::Error;
use crate::load::{Build, Planned};
use crate::session::Session;
use crate::stopwatch::Stopwatch;
use std::collections::{HashMap, HashSet};
use torchlet_gpu::device::TuningKey;
use torchlet_gpu::{Choices, tuning};
use torchlet_graph::graph::Graph;

/// A graph that is compiled with one variant index.
pub(crate) struct Trial {
    session: Session,
    /// The tuning questions, by the index of their call.
    questions: HashMap<usize, TuningKey>,
}

impl Trial {
    pub(crate) fn new(build: Build<'_>, graph: &Graph<'_>, variant: u8) -> Result<Self, Error> {
        let build = Build { traced: true, trial: true, ..build };
        let (choices, mut watch) = (Choices::forced(variant), Stopwatch::new(false));
        let planned = Planned::new(build, graph.clone(), Vec::new(), choices, &mut watch)?;
        let session = planned.load(build, &HashSet::new(), &mut watch)?;
        let session = session.record(build, &mut watch)?;
        let questions = session.questions();
        Ok(Trial { session, questions })
    }
}

impl tuning::Trial for Trial {
    type Error = Error;

    fn questions(&self) -> &HashMap<usize, TuningKey> {
        &self.questions
    }

    fn run(&mut self) -> Result<HashMap<usize, u64>, Error> {
        let mut ticks = HashMap::new();
        for (call, time) in self.session.measure()? {
            if self.questions.contains_key(&call) {
                *ticks.entry(call).or_default() += time;
            }
        }
        Ok(ticks)
    }
}
