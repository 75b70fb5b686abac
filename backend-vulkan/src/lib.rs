//! The Vulkan delegate: runs what ExecuTorch's `VulkanPartitioner` lowers, on any Vulkan 1.1 device.
//!
//! A blob is read into a graph ([`ir`]), which knows nothing of the blob. Operators ([`ops`]) encode the graph into
//! dispatches over tensors ([`encoder`]); tensors are placed in memory by their lifetimes ([`memory_plan`]); the dispatches
//! are recorded once and replayed ([`compiled`]). Everything Vulkan is below [`device`].
//!
//! Layouts in the blob are hints for phones: here, tensors are row-major in buffers. 64-bit types are narrowed as the
//! exporter does. The Vulkan loader is opened at run time; where there is none, the backend says so.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![allow(rustdoc::private_intra_doc_links)]

mod blob;
mod compiled;
mod device;
mod encoder;
mod error;
mod ir;
mod memory_plan;
mod ops;
mod passes;
mod tensors;
mod trace;
mod transfer;

pub use device::{DeviceInfo, DeviceKind, devices};

use compiled::Compiled;
use device::Context;
use error::Error;
use std::sync::{Arc, Mutex};
use torchlet_core::{
    Backend, Delegate, DelegateBox, DelegateCall, DelegateError, DelegateInfo, InitContext,
    OptionValue, delegate_size,
};

/// The backend for programs lowered with `VulkanPartitioner`. All its delegates share one device context.
///
/// The device is the most capable one, unless `with_device` or the environment variable `TORCHLET_VULKAN_DEVICE` names
/// another, by index or by a part of its name; the runtime option `device` does for one method.
#[derive(Default)]
pub struct VulkanBackend {
    device: Option<String>,
    context: Arc<Mutex<Option<Arc<Context>>>>,
}

impl VulkanBackend {
    /// A backend that opens its device when it is first needed.
    pub fn new() -> Self {
        Self::default()
    }

    /// A backend on the device of this index or part of a name.
    pub fn with_device(device: impl Into<String>) -> Self {
        VulkanBackend { device: Some(device.into()), ..Self::default() }
    }

    fn context(&self) -> Result<Arc<Context>, Error> {
        let mut slot = self.context.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(context) = &*slot {
            return Ok(context.clone());
        }
        let context = Context::open(self.device.as_deref())?;
        *slot = Some(context.clone());
        Ok(context)
    }

    /// Forgets a context whose device was lost, so that the next load opens it anew.
    fn forget(&self) {
        *self.context.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
    }
}

impl Backend for VulkanBackend {
    fn name(&self) -> &'static str {
        "VulkanBackend"
    }

    fn is_available(&self) -> Result<(), DelegateError> {
        self.context().map(drop).map_err(DelegateError::from)
    }

    fn arena_bytes(&self, _delegate: &DelegateInfo<'_>) -> Result<usize, DelegateError> {
        Ok(delegate_size::<VulkanDelegate>())
    }

    fn init<'m>(
        &self,
        context: &mut InitContext<'_, 'm>,
    ) -> Result<DelegateBox<'m>, DelegateError> {
        let mut watch = trace::Stopwatch::new(context.is_traced());
        let named = context.options().find_map(|(key, value)| match (key, value) {
            ("device", OptionValue::String(name)) => Some(name),
            _ => None,
        });
        let device = match named {
            Some(name) => Context::open(Some(name))?,
            None => self.context()?,
        };
        watch.lap("open device");
        let graph =
            blob::read(context.processed().bytes(), context.info()).map_err(DelegateError::from)?;
        watch.lap("read graph");
        let traced = context.is_traced();
        let compiled = Compiled::new(&device, graph, traced, &mut watch).inspect_err(|error| {
            if error.is_device_loss() {
                self.forget();
            }
        })?;
        watch.report(|event| context.trace(event));
        context.place(VulkanDelegate { compiled: Box::new(compiled), shared: self.context.clone() })
    }
}

/// A compiled graph as a delegate.
struct VulkanDelegate {
    compiled: Box<Compiled>,
    shared: Arc<Mutex<Option<Arc<Context>>>>,
}

impl VulkanDelegate {
    fn checked(&self, result: Result<(), Error>) -> Result<(), DelegateError> {
        if result.as_ref().is_err_and(Error::is_device_loss) {
            *self.shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
        }
        result.map_err(DelegateError::from)
    }
}

impl Delegate for VulkanDelegate {
    fn execute(&mut self, call: &mut DelegateCall<'_, '_>) -> Result<(), DelegateError> {
        let result = self.compiled.run(call);
        self.checked(result)
    }

    fn reset(&mut self) -> Result<(), DelegateError> {
        let result = self.compiled.reset();
        self.checked(result)
    }
}
