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
    /// How many delegates it has.
    pub delegates: usize,
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
