//! What was compiled to what, and why.

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
    /// Its calls, in the order in which they run.
    pub calls: Vec<PlacedCall>,
    /// The backend of each of its delegates.
    pub delegates: Vec<String>,
    /// Its delegates that were not taken apart, though they were made for the compiler or for GPUs: the number of each, and why.
    pub apart: Vec<(usize, String)>,
    /// Why it was left as it was exported, if it was.
    pub as_exported: Option<String>,
}

/// A call, and where it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlacedCall {
    /// The instruction of the file that it came from.
    pub instruction: u32,
    /// Its operator, or those that were fused into it.
    pub operator: String,
    /// Where it runs.
    pub place: Place,
}

/// Where a call runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// On the device, in this delegate of the method.
    Device(usize),
    /// On the host, and why.
    Host(String),
}

impl PlacedCall {
    pub(crate) fn new(instruction: u32, operator: String, place: Place) -> Self {
        PlacedCall { instruction, operator, place }
    }
}

impl MethodReport {
    /// How many calls run on the device.
    pub fn on_device(&self) -> usize {
        self.calls.iter().filter(|call| matches!(call.place, Place::Device(_))).count()
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
                put(&mut bytes, call.instruction as usize);
                put_text(&mut bytes, &call.operator);
                match &call.place {
                    Place::Device(delegate) => {
                        bytes.extend(DEVICE.to_le_bytes());
                        put(&mut bytes, *delegate);
                    }
                    Place::Host(reason) => {
                        bytes.extend(HOST.to_le_bytes());
                        put_text(&mut bytes, reason);
                    }
                }
            }
        }
        bytes
    }

    /// The report that [`to_bytes`](Self::to_bytes) made these of; `None` if it did not.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let mut methods = Vec::new();
        for _ in 0..number(&mut rest)? {
            let name = text(&mut rest)?;
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
                let instruction = u32::try_from(number(&mut rest)?).ok()?;
                let operator = text(&mut rest)?;
                let place = match number(&mut rest)? as u64 {
                    DEVICE => Place::Device(number(&mut rest)?),
                    HOST => Place::Host(text(&mut rest)?),
                    _ => return None,
                };
                calls.push(PlacedCall { instruction, operator, place });
            }
            methods.push(MethodReport { name, calls, delegates, apart, as_exported });
        }
        rest.is_empty().then_some(Report { methods })
    }
}

fn put(bytes: &mut Vec<u8>, number: usize) {
    bytes.extend((number as u64).to_le_bytes());
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put(bytes, text.len());
    bytes.extend(text.as_bytes());
}

fn number(rest: &mut &[u8]) -> Option<usize> {
    let (number, behind) = rest.split_first_chunk::<8>()?;
    *rest = behind;
    usize::try_from(u64::from_le_bytes(*number)).ok()
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
    use alloc::vec;

    #[test]
    fn reports_are_kept_as_bytes() {
        let call = |place| PlacedCall::new(7, String::from("a + b"), place);
        let calls = vec![call(Place::Device(3)), call(Place::Host(String::from("why")))];
        let (as_exported, apart) = (Some(String::from("so")), vec![(0, String::from("it keeps"))]);
        let (name, delegates) = (String::from("m"), vec![String::from("a backend")]);
        let method = MethodReport { name, calls, delegates, apart, as_exported };
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
