//! The open devices of a backend.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use torchlet_core::DelegateError;

/// A device that a backend has opened.
pub trait OpenDevice {
    /// The error of the device's API.
    type Error: Into<DelegateError>;

    /// Whether the device is not lost.
    fn works(&self) -> bool;

    /// Whether an error means that the device is lost.
    fn is_loss(error: &Self::Error) -> bool;
}

type Devices<D> = HashMap<Option<String>, Arc<D>>;

/// Open devices, by the requested device name; `None` is the backend's own choice. Clones share
/// their devices.
#[derive(Debug)]
pub struct DevicePool<D>(Arc<Mutex<Devices<D>>>);

impl<D> Default for DevicePool<D> {
    fn default() -> Self {
        DevicePool(Arc::default())
    }
}

impl<D> Clone for DevicePool<D> {
    fn clone(&self) -> Self {
        DevicePool(self.0.clone())
    }
}

impl<D: OpenDevice> DevicePool<D> {
    fn lock(&self) -> MutexGuard<'_, Devices<D>> {
        // Poisoning can be ignored: a panic cannot leave the map half-changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the device of this name, which `open` opens if it is not open or is lost.
    ///
    /// # Errors
    /// The device cannot be opened.
    pub fn find_or_open(
        &self,
        named: Option<&str>,
        open: impl FnOnce(Option<String>) -> Result<Arc<D>, D::Error>,
    ) -> Result<Arc<D>, D::Error> {
        // The lock is held while a device is opened, so that it is opened only once.
        let mut devices = self.lock();
        let key = named.map(str::to_owned);
        if let Some(device) = devices.get(&key).filter(|device| device.works()) {
            return Ok(device.clone());
        }
        let device = open(key.clone())?;
        devices.insert(key, device.clone());
        Ok(device)
    }

    /// Returns the backend's own choice if it is open. Does not wait for a device that is just
    /// being opened.
    pub fn chosen(&self) -> Option<Arc<D>> {
        match self.0.try_lock() {
            Ok(devices) => devices.get(&None).cloned(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().get(&None).cloned(),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns all open devices.
    pub fn open(&self) -> Vec<Arc<D>> {
        self.lock().values().cloned().collect()
    }

    /// Converts the result of work on a device. Forgets a lost device, so that the next load opens
    /// it again.
    ///
    /// # Errors
    /// That of the work.
    pub fn checked<T>(
        &self,
        device: &Arc<D>,
        result: Result<T, D::Error>,
    ) -> Result<T, DelegateError> {
        if result.as_ref().is_err_and(D::is_loss) {
            self.lock().retain(|_, open| !Arc::ptr_eq(open, device));
        }
        result.map_err(Into::into)
    }
}
