//! Interface between torchlet and the crates of device APIs such as Vulkan.
//!
//! The crate of a device API has one static [`DeviceApi`], which torchlet's list of devices
//! (`src/devices.rs`) refers to. Compiling, loading, `--backend`, the Python package and the C
//! interface iterate over that list, so no other code names a device API.

use crate::Target;
use crate::operators::Operator;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;
use std::path::PathBuf;
use torchlet_core::{Backend, DelegateError, Rates};

/// An API for devices with memory of their own, which programs are compiled for.
pub trait DeviceApi: Sync {
    /// Returns the name of the API for users, in lower case, which is also the name of its cargo
    /// feature.
    fn name(&self) -> &'static str;

    /// Returns a noun phrase for help texts, such as "a GPU through Vulkan".
    fn description(&self) -> &'static str;

    /// Returns the name of the backend that runs the compiled delegates.
    fn backend_name(&self) -> &'static str;

    /// Creates the backend. The backend opens its device on first use.
    fn backend(&self, options: &DeviceOptions) -> Arc<dyn Backend + Send + Sync>;

    /// Returns the compiler target for devices of this API, with these performance estimates.
    fn target(&self, rates: Option<Rates>) -> Box<dyn Target>;

    /// Returns the compiler target for foreign shaders, if the backend runs them; see
    /// [`Operator::SHADER`].
    fn shader_target(&self, _rates: Option<Rates>) -> Option<Box<dyn Target>> {
        None
    }

    /// Whether the backend supports calls of an operator.
    fn supports(&self, operator: Operator) -> bool;

    /// Lists the devices of this machine, without opening any.
    ///
    /// # Errors
    /// A driver is missing, or an environment variable is invalid.
    fn devices(&self, options: &DeviceOptions) -> Result<Vec<DeviceListing>, DelegateError>;

    /// Returns the name of the environment variable for the folder of cached kernels; `None` if
    /// compiled kernels are not cached.
    fn cache_variable(&self) -> Option<&'static str> {
        None
    }
}

/// User options for opening a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceOptions {
    /// Index of the device, or part of its name. `None` selects the most capable device.
    pub device: Option<String>,
    /// Folder for cached kernels. If `None`, the environment variable determines it.
    pub cache: Option<PathBuf>,
    /// Time limit of autotuning, which runs when a program is first loaded.
    pub tune: Option<Duration>,
}

/// Description of a device.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceListing {
    /// Lines of text: name, kind and memory first, then details.
    pub lines: Vec<String>,
    /// All properties of the device, as pairs of name and value.
    pub properties: Vec<(&'static str, Property)>,
}

/// Property of a device.
#[derive(Debug, Clone, PartialEq)]
pub enum Property {
    /// Unknown.
    None,
    /// Yes or no.
    Bool(bool),
    /// A count or a size.
    Number(u64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Property>),
    /// Named properties.
    Object(Vec<(&'static str, Property)>),
}

/// Formats a number of bytes with a binary unit.
pub fn format_bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let (mut value, mut units) = (count as f64 / 1024.0, UNITS.iter());
    let mut unit = units.next().unwrap_or(&"");
    while let Some(larger) = units.next().filter(|_| value >= 1024.0) {
        (value, unit) = (value / 1024.0, larger);
    }
    format!("{value:.1} {unit}")
}

impl From<bool> for Property {
    fn from(value: bool) -> Self {
        Property::Bool(value)
    }
}

impl From<u64> for Property {
    fn from(value: u64) -> Self {
        Property::Number(value)
    }
}

impl From<u32> for Property {
    fn from(value: u32) -> Self {
        Property::Number(value.into())
    }
}

impl From<&str> for Property {
    fn from(value: &str) -> Self {
        Property::Text(value.into())
    }
}

impl From<String> for Property {
    fn from(value: String) -> Self {
        Property::Text(value)
    }
}

impl<T: Into<Property>> From<Option<T>> for Property {
    fn from(value: Option<T>) -> Self {
        value.map_or(Property::None, Into::into)
    }
}

impl<T: Into<Property>> FromIterator<T> for Property {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Property::List(items.into_iter().map(Into::into).collect())
    }
}
