//! What was compiled to what, and why.

use crate::front::CallOrigin;
use crate::graph::Node;
use alloc::string::String;
use alloc::vec::Vec;

/// What became of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Its methods, in the order of the file.
    pub methods: Vec<MethodReport>,
}

/// What became of a method.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MethodReport {
    /// Its name.
    pub name: String,
    /// What of the exported method each number of a call stands for: nothing for views that have no
    /// instruction there.
    pub origins: Vec<Option<CallOrigin>>,
    /// Its calls, in the order in which they run.
    pub calls: Vec<PlacedCall>,
    /// The parts that these make, in the order in which they run, and how long each takes.
    pub parts: Vec<PartReport>,
    /// What decided whether a device with memory of its own has any of them, for each run of calls
    /// between jumps.
    pub decisions: Vec<String>,
    /// What of a quantized method kernels compute in floating point, and what that costs: a
    /// sentence for each operator. Only where there is nothing but kernels, as on microcontrollers.
    pub floating: Vec<String>,
    /// The backend of each of its delegates.
    pub delegates: Vec<String>,
    /// Its delegates that were not taken apart, though they were made for the compiler or for GPUs:
    /// the number of each, and why.
    pub apart: Vec<(usize, String)>,
    /// Why it was left as it was exported, if it was.
    pub as_exported: Option<String>,
}

/// Calls that run in one place, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartReport {
    /// Where they run.
    pub place: Place,
    /// How many there are.
    pub calls: usize,
    /// How long they take there, if it can be told.
    pub own: Option<Estimate>,
    /// How long they would take on those others that take all of them.
    pub others: Vec<Estimate>,
}

/// How long calls take on a processor, by a simple model: a rough figure.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Estimate {
    /// The backend of the processor, or `kernels`.
    pub processor: String,
    /// Billionths of a second.
    pub nanoseconds: u64,
}

/// A call, and where it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlacedCall {
    /// Its number: of what it comes from, [`MethodReport::origin`] tells.
    pub number: u32,
    /// Its operator, or those that were fused into it.
    pub operator: String,
    /// Where it runs.
    pub place: Place,
    /// Why no processor has it that is preferred to this one; empty if there is none.
    pub reason: String,
}

/// Where a call runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// On a processor, in this delegate of the method.
    Device(usize),
    /// By a kernel on the host.
    Host,
}

impl PlacedCall {
    pub(crate) fn new(node: &Node, place: Place, reason: String) -> Self {
        PlacedCall { number: node.id, operator: node.title(), place, reason }
    }
}

impl MethodReport {
    /// What of the exported method the call of a number comes from, if anything.
    pub fn origin(&self, number: u32) -> Option<CallOrigin> {
        self.origins.get(usize::try_from(number).ok()?).copied().flatten()
    }

    /// How many calls run in delegates.
    pub fn on_device(&self) -> usize {
        self.calls.iter().filter(|call| matches!(call.place, Place::Device(_))).count()
    }

    /// How many billionths of a second it takes, if that can be told.
    pub fn nanoseconds(&self) -> Option<u64> {
        let parts = self.parts.iter().map(|part| Some(part.own.as_ref()?.nanoseconds));
        parts.reduce(|a, b| Some(a?.saturating_add(b?))).flatten()
    }
}

/// What a place is in bytes.
const DEVICE: u64 = 0;
const HOST: u64 = 1;

impl Report {
    /// The report as bytes, for [`from_bytes`](Self::from_bytes) of the same version.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, self.methods.len());
        for method in &self.methods {
            put_text(&mut bytes, &method.name);
            put(&mut bytes, method.origins.len());
            method.origins.iter().for_each(|origin| put_origin(&mut bytes, *origin));
            put(&mut bytes, method.delegates.len());
            method.delegates.iter().for_each(|backend| put_text(&mut bytes, backend));
            put(&mut bytes, method.apart.len());
            for (delegate, why) in &method.apart {
                put(&mut bytes, *delegate);
                put_text(&mut bytes, why);
            }
            put(&mut bytes, usize::from(method.as_exported.is_some()));
            method.as_exported.iter().for_each(|why| put_text(&mut bytes, why));
            put(&mut bytes, method.calls.len());
            for call in &method.calls {
                put(&mut bytes, call.number as usize);
                put_text(&mut bytes, &call.operator);
                put_place(&mut bytes, &call.place);
                put_text(&mut bytes, &call.reason);
            }
            put(&mut bytes, method.parts.len());
            for part in &method.parts {
                put_place(&mut bytes, &part.place);
                put(&mut bytes, part.calls);
                put_estimates(&mut bytes, part.own.as_slice());
                put_estimates(&mut bytes, &part.others);
            }
            put(&mut bytes, method.decisions.len());
            method.decisions.iter().for_each(|why| put_text(&mut bytes, why));
            put(&mut bytes, method.floating.len());
            method.floating.iter().for_each(|text| put_text(&mut bytes, text));
        }
        bytes
    }

    /// The report that [`to_bytes`](Self::to_bytes) made these of; `None` if it did not.
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
            let mut apart = Vec::new();
            for _ in 0..number(&mut rest)? {
                apart.push((number(&mut rest)?, text(&mut rest)?));
            }
            let as_exported = match number(&mut rest)? {
                0 => None,
                _ => Some(text(&mut rest)?),
            };
            let mut calls = Vec::new();
            for _ in 0..number(&mut rest)? {
                let id = u32::try_from(number(&mut rest)?).ok()?;
                let operator = text(&mut rest)?;
                let (place, reason) = (place(&mut rest)?, text(&mut rest)?);
                calls.push(PlacedCall { number: id, operator, place, reason });
            }
            let mut parts = Vec::new();
            for _ in 0..number(&mut rest)? {
                let (place, calls) = (place(&mut rest)?, number(&mut rest)?);
                let (own, others) = (estimates(&mut rest)?.pop(), estimates(&mut rest)?);
                parts.push(PartReport { place, calls, own, others });
            }
            let mut decisions = Vec::new();
            for _ in 0..number(&mut rest)? {
                decisions.push(text(&mut rest)?);
            }
            let mut floating = Vec::new();
            for _ in 0..number(&mut rest)? {
                floating.push(text(&mut rest)?);
            }
            methods.push(MethodReport {
                name,
                origins,
                calls,
                parts,
                decisions,
                floating,
                delegates,
                apart,
                as_exported,
            });
        }
        rest.is_empty().then_some(Report { methods })
    }
}

fn put(bytes: &mut Vec<u8>, number: usize) {
    bytes.extend((number as u64).to_le_bytes());
}

/// How many numbers follow: none, an instruction, or a part as well.
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

fn put_place(bytes: &mut Vec<u8>, place: &Place) {
    match place {
        Place::Device(delegate) => {
            bytes.extend(DEVICE.to_le_bytes());
            put(bytes, *delegate);
        }
        Place::Host => bytes.extend(HOST.to_le_bytes()),
    }
}

fn put_estimates(bytes: &mut Vec<u8>, estimates: &[Estimate]) {
    put(bytes, estimates.len());
    for estimate in estimates {
        put_text(bytes, &estimate.processor);
        bytes.extend(estimate.nanoseconds.to_le_bytes());
    }
}

fn place(rest: &mut &[u8]) -> Option<Place> {
    match wide(rest)? {
        DEVICE => Some(Place::Device(number(rest)?)),
        HOST => Some(Place::Host),
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
        let call = |place| PlacedCall::new(&node, place, String::from("why"));
        let calls = vec![call(Place::Device(3)), call(Place::Host)];
        let (as_exported, apart) = (Some(String::from("so")), vec![(0, String::from("it keeps"))]);
        let (name, delegates) = (String::from("m"), vec![String::from("a backend")]);
        let estimate = |nanoseconds| Estimate { processor: String::from("p"), nanoseconds };
        let (own, others) = (Some(estimate(2)), vec![estimate(u64::MAX), estimate(3)]);
        let part = PartReport { place: Place::Device(3), calls: 1, own, others };
        let parts = vec![part.clone(), PartReport { own: Some(estimate(5)), ..part.clone() }];
        let decisions = vec![String::from("because")];
        let floating = vec![String::from("2 calls")];
        let call = CallOrigin::of(4);
        let origins = vec![Some(call), None, Some(CallOrigin { part: Some(u32::MAX), ..call })];
        let method = MethodReport {
            name,
            origins,
            calls,
            parts,
            decisions,
            floating,
            delegates,
            apart,
            as_exported,
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
        // Counts are not believed.
        assert_eq!(Report::from_bytes(&[0xff; 64]), None);
    }
}
