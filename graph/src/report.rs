//! Compilation report: where each call runs, and why.

use crate::front::CallOrigin;
use crate::graph::Node;
use alloc::string::String;
use alloc::vec::Vec;

/// Compilation report of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// One report per method, in the order of the file.
    pub methods: Vec<MethodReport>,
}

/// Compilation report of a method.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MethodReport {
    /// Name of the method.
    pub name: String,
    /// Maps each call number of the report to the call of the exported method; `None` for views
    /// without an instruction in the exported method. See [`MethodReport::origin`].
    pub origins: Vec<Option<CallOrigin>>,
    /// Calls in execution order.
    pub calls: Vec<CallReport>,
    /// Parts of the method in execution order: consecutive calls on the same processor, with time
    /// estimates.
    pub parts: Vec<PartReport>,
    /// Choices between devices with their own memory and other processors, as sentences with the
    /// estimated times. One sentence for each run of calls between jumps.
    pub decisions: Vec<String>,
    /// Operators of a quantized method that kernels compute in floating point, 4-bit weights that
    /// are stored in 8 bits, and the memory that this costs: one sentence for each. Empty unless
    /// the program was compiled for kernels only, as for microcontrollers.
    pub fallbacks: Vec<String>,
    /// Name of the backend of each delegate.
    pub delegates: Vec<String>,
    /// Calls that delegates fuse when they are loaded, as pairs: index of the delegate, and the
    /// names of the fused operators joined by ` + ` or the name of the operator that replaces them.
    pub fused: Vec<(usize, String)>,
    /// Delegates that could not be read as graphs although their format is known, as pairs of index
    /// and reason.
    pub unreadable_delegates: Vec<(usize, String)>,
    /// Why the method was left unchanged; `None` if it was compiled.
    pub unchanged_reason: Option<String>,
}

/// Consecutive calls that run on the same processor.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartReport {
    /// Processor that runs the calls.
    pub location: Location,
    /// Number of calls.
    pub calls: usize,
    /// Estimated time on this processor, if known.
    pub own: Option<Estimate>,
    /// Estimated time on each other processor that supports all of the calls.
    pub others: Vec<Estimate>,
}

/// Estimated time of some calls on one processor, by a simple cost model. A rough estimate.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Estimate {
    /// Name of the processor's backend, or `kernels`.
    pub processor: String,
    /// Time in nanoseconds.
    pub nanoseconds: u64,
}

/// A call and its processor.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallReport {
    /// Number of the call; [`MethodReport::origin`] maps it to the exported method.
    pub number: u32,
    /// Name of the operator, or names of the fused operators joined by ` + `.
    pub operator: String,
    /// Processor that runs the call.
    pub location: Location,
    /// Why no preferred processor runs the call; empty if the call runs on its preferred processor.
    pub reason: String,
}

/// Where calls run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Location {
    /// In the delegate of this index.
    Device(usize),
    /// In a kernel on the host.
    Host,
}

impl CallReport {
    pub(crate) fn new(node: &Node, location: Location, reason: String) -> Self {
        CallReport { number: node.id, operator: node.title(), location, reason }
    }
}

impl MethodReport {
    /// Returns the call of the exported method that corresponds to a call number; `None` if no such
    /// call exists.
    pub fn origin(&self, number: u32) -> Option<CallOrigin> {
        self.origins.get(usize::try_from(number).ok()?).copied().flatten()
    }

    /// Returns the number of calls that run in delegates.
    pub fn on_device(&self) -> usize {
        self.calls.iter().filter(|call| matches!(call.location, Location::Device(_))).count()
    }

    /// Returns the estimated time of a run in nanoseconds; `None` if the time of any part is
    /// unknown.
    pub fn nanoseconds(&self) -> Option<u64> {
        let parts = self.parts.iter().map(|part| Some(part.own.as_ref()?.nanoseconds));
        parts.reduce(|a, b| Some(a?.saturating_add(b?))).flatten()
    }
}

/// Tags of serialized places.
const DEVICE: u64 = 0;
const HOST: u64 = 1;

impl Report {
    /// Serializes the report for [`from_bytes`](Self::from_bytes) of the same version of this
    /// crate.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, self.methods.len());
        for method in &self.methods {
            put_text(&mut bytes, &method.name);
            put(&mut bytes, method.origins.len());
            method.origins.iter().for_each(|origin| put_origin(&mut bytes, *origin));
            put(&mut bytes, method.delegates.len());
            method.delegates.iter().for_each(|backend| put_text(&mut bytes, backend));
            for pairs in [&method.fused, &method.unreadable_delegates] {
                put(&mut bytes, pairs.len());
                for (delegate, text) in pairs {
                    put(&mut bytes, *delegate);
                    put_text(&mut bytes, text);
                }
            }
            put(&mut bytes, usize::from(method.unchanged_reason.is_some()));
            method.unchanged_reason.iter().for_each(|why| put_text(&mut bytes, why));
            put(&mut bytes, method.calls.len());
            for call in &method.calls {
                put(&mut bytes, call.number as usize);
                put_text(&mut bytes, &call.operator);
                put_location(&mut bytes, &call.location);
                put_text(&mut bytes, &call.reason);
            }
            put(&mut bytes, method.parts.len());
            for part in &method.parts {
                put_location(&mut bytes, &part.location);
                put(&mut bytes, part.calls);
                put_estimates(&mut bytes, part.own.as_slice());
                put_estimates(&mut bytes, &part.others);
            }
            put(&mut bytes, method.decisions.len());
            method.decisions.iter().for_each(|why| put_text(&mut bytes, why));
            put(&mut bytes, method.fallbacks.len());
            method.fallbacks.iter().for_each(|text| put_text(&mut bytes, text));
        }
        bytes
    }

    /// Parses the output of [`to_bytes`](Self::to_bytes). Returns `None` for malformed bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let mut methods = Vec::new();
        for _ in 0..number(&mut rest)? {
            let name = text(&mut rest)?;
            let mut origins = Vec::new();
            for _ in 0..number(&mut rest)? {
                origins.push(origin(&mut rest)?);
            }
            let mut delegates = Vec::new();
            for _ in 0..number(&mut rest)? {
                delegates.push(text(&mut rest)?);
            }
            let mut pairs = || -> Option<Vec<(usize, String)>> {
                (0..number(&mut rest)?)
                    .map(|_| Some((number(&mut rest)?, text(&mut rest)?)))
                    .collect()
            };
            let (fused, unreadable_delegates) = (pairs()?, pairs()?);
            let unchanged_reason = match number(&mut rest)? {
                0 => None,
                _ => Some(text(&mut rest)?),
            };
            let mut calls = Vec::new();
            for _ in 0..number(&mut rest)? {
                let id = u32::try_from(number(&mut rest)?).ok()?;
                let operator = text(&mut rest)?;
                let (location, reason) = (location(&mut rest)?, text(&mut rest)?);
                calls.push(CallReport { number: id, operator, location, reason });
            }
            let mut parts = Vec::new();
            for _ in 0..number(&mut rest)? {
                let (location, calls) = (location(&mut rest)?, number(&mut rest)?);
                let (own, others) = (estimates(&mut rest)?.pop(), estimates(&mut rest)?);
                parts.push(PartReport { location, calls, own, others });
            }
            let mut decisions = Vec::new();
            for _ in 0..number(&mut rest)? {
                decisions.push(text(&mut rest)?);
            }
            let mut fallbacks = Vec::new();
            for _ in 0..number(&mut rest)? {
                fallbacks.push(text(&mut rest)?);
            }
            methods.push(MethodReport {
                name,
                origins,
                calls,
                parts,
                decisions,
                fallbacks,
                delegates,
                fused,
                unreadable_delegates,
                unchanged_reason,
            });
        }
        rest.is_empty().then_some(Report { methods })
    }
}

fn put(bytes: &mut Vec<u8>, number: usize) {
    bytes.extend((number as u64).to_le_bytes());
}

/// Writes an origin as a count of fields, followed by the fields: no field, the instruction, or the
/// instruction and the id of the call inside the delegate.
fn put_origin(bytes: &mut Vec<u8>, origin: Option<CallOrigin>) {
    let Some(CallOrigin { instruction, part }) = origin else { return put(bytes, 0) };
    put(bytes, 1 + usize::from(part.is_some()));
    put(bytes, instruction);
    part.into_iter().for_each(|part| put(bytes, part as usize));
}

fn origin(rest: &mut &[u8]) -> Option<Option<CallOrigin>> {
    let whole = match number(rest)? {
        0 => return Some(None),
        1 => return Some(Some(CallOrigin::of(number(rest)?))),
        2 => CallOrigin::of(number(rest)?),
        _ => return None,
    };
    Some(Some(CallOrigin { part: Some(u32::try_from(number(rest)?).ok()?), ..whole }))
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put(bytes, text.len());
    bytes.extend(text.as_bytes());
}

fn put_location(bytes: &mut Vec<u8>, location: &Location) {
    match location {
        Location::Device(delegate) => {
            bytes.extend(DEVICE.to_le_bytes());
            put(bytes, *delegate);
        }
        Location::Host => bytes.extend(HOST.to_le_bytes()),
    }
}

fn put_estimates(bytes: &mut Vec<u8>, estimates: &[Estimate]) {
    put(bytes, estimates.len());
    for estimate in estimates {
        put_text(bytes, &estimate.processor);
        bytes.extend(estimate.nanoseconds.to_le_bytes());
    }
}

fn location(rest: &mut &[u8]) -> Option<Location> {
    match wide(rest)? {
        DEVICE => Some(Location::Device(number(rest)?)),
        HOST => Some(Location::Host),
        _ => None,
    }
}

fn estimates(rest: &mut &[u8]) -> Option<Vec<Estimate>> {
    let mut estimates = Vec::new();
    for _ in 0..number(rest)? {
        estimates.push(Estimate { processor: text(rest)?, nanoseconds: wide(rest)? });
    }
    Some(estimates)
}

fn wide(rest: &mut &[u8]) -> Option<u64> {
    let (number, behind) = rest.split_first_chunk::<8>()?;
    *rest = behind;
    Some(u64::from_le_bytes(*number))
}

fn number(rest: &mut &[u8]) -> Option<usize> {
    usize::try_from(wide(rest)?).ok()
}

fn text(rest: &mut &[u8]) -> Option<String> {
    let len = number(rest)?;
    let (text, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    core::str::from_utf8(text).ok().map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::Operator;
    use alloc::vec;

    #[test]
    fn reports_are_kept_as_bytes() {
        let node = Node { id: 7, ..Node::new(Operator::ABS, Vec::new()) };
        let call = |location| CallReport::new(&node, location, String::from("why"));
        let calls = vec![call(Location::Device(3)), call(Location::Host)];
        let (unchanged_reason, unreadable_delegates) =
            (Some(String::from("so")), vec![(0, String::from("it keeps"))]);
        let (name, delegates) = (String::from("m"), vec![String::from("a backend")]);
        let estimate = |nanoseconds| Estimate { processor: String::from("p"), nanoseconds };
        let (own, others) = (Some(estimate(2)), vec![estimate(u64::MAX), estimate(3)]);
        let part = PartReport { location: Location::Device(3), calls: 1, own, others };
        let parts = vec![part.clone(), PartReport { own: Some(estimate(5)), ..part.clone() }];
        let decisions = vec![String::from("because")];
        let fallbacks = vec![String::from("2 calls")];
        let call = CallOrigin::of(4);
        let fused = vec![(3, String::from("a + b"))];
        let origins = vec![Some(call), None, Some(CallOrigin { part: Some(u32::MAX), ..call })];
        let method = MethodReport {
            name,
            origins,
            calls,
            parts,
            decisions,
            fallbacks,
            delegates,
            fused,
            unreadable_delegates,
            unchanged_reason,
        };
        assert_eq!(
            [method.origin(0), method.origin(1), method.origin(3)],
            [Some(call), None, None]
        );
        assert_eq!(method.nanoseconds(), Some(7));
        let parts = vec![PartReport { own: None, ..part.clone() }, part];
        assert_eq!(MethodReport { parts, ..method.clone() }.nanoseconds(), None);
        let methods = vec![method, MethodReport::default()];
        let report = Report { methods };
        let bytes = report.to_bytes();
        assert_eq!(Report::from_bytes(&bytes), Some(report));
        for end in 0..bytes.len() {
            assert_eq!(Report::from_bytes(&bytes[..end]), None);
        }
        // Lengths are not trusted: huge ones must not allocate.
        assert_eq!(Report::from_bytes(&[0xff; 64]), None);
    }
}
