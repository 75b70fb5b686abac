//! Options for opening a device. Options that the caller does not set come from environment
//! variables.

use crate::error::Error;
use std::path::PathBuf;
use std::time::Duration;
use torchlet_gpu::device::DeviceFeature;

/// Environment variable that selects a device by index or by part of its name.
pub const DEVICE_VARIABLE: &str = "TORCHLET_VULKAN_DEVICE";
/// Environment variable that sets the folder of the pipeline cache; `off` disables the cache.
pub const PIPELINE_CACHE_VARIABLE: &str = "TORCHLET_VULKAN_PIPELINE_CACHE";

/// Environment variable that lists the features to disable, separated by commas; `all` disables
/// all.
pub const DISABLE_VARIABLE: &str = "TORCHLET_VULKAN_DISABLE";
/// Environment variable that limits device memory, in bytes.
pub const MEMORY_LIMIT_VARIABLE: &str = "TORCHLET_VULKAN_MEMORY_LIMIT";
/// Environment variable that limits the duration of one run, in seconds; 0 disables the limit.
pub const TIMEOUT_VARIABLE: &str = "TORCHLET_VULKAN_TIMEOUT";

/// Environment variable that sets the autotuning time per program load, in seconds; 0 disables
/// autotuning.
pub const TUNE_VARIABLE: &str = "TORCHLET_VULKAN_TUNE";

/// Environment variable that sets whether matrix units are benchmarked before they are used: `on`
/// or `off`.
pub const MATRICES_VARIABLE: &str = "TORCHLET_VULKAN_PROBE_MATRICES";

/// Environment variable that sets whether weights are prefetched into the device's cache: `on` or
/// `off`.
pub const PREFETCH_VARIABLE: &str = "TORCHLET_VULKAN_PREFETCH";
/// Environment variable that sets how weights are uploaded: `host`, `copy` or `transfer`.
pub const UPLOAD_VARIABLE: &str = "TORCHLET_VULKAN_UPLOAD";

/// The way in which weights are uploaded when a program is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Upload {
    /// The host writes weights directly to device memory, if it can map all of that memory.
    /// Otherwise, like [`Transfer`](Self::Transfer).
    #[default]
    Host,
    /// The compute queue copies weights from host memory.
    Copy,
    /// A dedicated transfer queue copies weights from host memory, concurrently with the compute
    /// queue. Without such a queue, like [`Copy`](Self::Copy).
    Transfer,
}

/// Options for opening a device.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    /// The index of the device or a part of its name; `None` selects the most capable device.
    pub(crate) device: Option<String>,
    /// The folder of the pipeline cache, if any.
    pub(crate) pipeline_cache: Option<PathBuf>,
    /// Features that must not be used.
    pub(crate) disabled: Vec<DeviceFeature>,
    /// The limit on device memory, in bytes.
    pub(crate) memory_limit: Option<u64>,
    /// The timeout of a run; zero for no limit.
    pub(crate) timeout: Option<Duration>,
    /// The autotuning time per program load; zero disables autotuning.
    pub(crate) tune: Option<Duration>,
    /// Whether matrix units are benchmarked before they are used; `true` by default.
    pub(crate) probe_matrices: Option<bool>,
    /// Whether weights are prefetched into the device's cache; by default only where this is known
    /// to be faster.
    pub(crate) prefetch: Option<bool>,
    /// How weights are uploaded when a program is loaded.
    pub(crate) upload: Option<Upload>,
    /// Whether the compute queue stands in for a missing transfer queue.
    pub(crate) stand_in: bool,
    /// The kernel variant index that all calls use if they have it.
    pub(crate) variant: Option<u8>,
    /// The number of workgroups per dim beyond which work is folded or split.
    pub(crate) fold_at: Option<u32>,
    /// The maximum number of storage buffers per shader.
    pub(crate) buffers: Option<u32>,
    /// The number of invocations that saturate the device.
    pub(crate) busy: Option<usize>,
    /// The maximum size of one memory allocation, in bytes.
    pub(crate) largest_allocation: Option<u64>,
}

impl Options {
    /// Sets the options that the caller did not set from the environment. Features that either of
    /// the two disables are disabled.
    pub(crate) fn or_environment(
        self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Error> {
        let folder = || variable(PIPELINE_CACHE_VARIABLE).filter(|folder| !folder.is_empty());
        let pipeline_cache = self.pipeline_cache.or_else(|| folder().map(PathBuf::from));
        let number = |name: &str, unit: &str| match variable(name) {
            Some(text) => text.trim().parse::<u64>().map(Some).map_err(|_| {
                let wanted = format!("expected an integer number of {unit}");
                Error::Unavailable(format!("{name} is '{text}', {wanted}"))
            }),
            None => Ok(None),
        };
        let switch = |name: &str| match variable(name).as_deref().map(str::trim) {
            None | Some("") => Ok(None),
            Some("on") => Ok(Some(true)),
            Some("off") => Ok(Some(false)),
            Some(text) => {
                Err(Error::Unavailable(format!("{name} is '{text}', expected 'on' or 'off'")))
            }
        };
        let mut disabled = self.disabled;
        let names = variable(DISABLE_VARIABLE).unwrap_or_default();
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let features = DeviceFeature::named(name);
            if features.is_empty() {
                let known: Vec<&str> =
                    DeviceFeature::ALL.iter().map(|feature| feature.name()).collect();
                let known = known.join(", ");
                return Err(Error::Unavailable(format!(
                    "{DISABLE_VARIABLE} contains '{name}', expected {known}, subgroup or all"
                )));
            }
            disabled.extend(features);
        }
        Ok(Options {
            device: self.device.or_else(|| variable(DEVICE_VARIABLE)),
            pipeline_cache: pipeline_cache.filter(|folder| folder.as_os_str() != "off"),
            disabled,
            probe_matrices: match self.probe_matrices {
                Some(probe) => Some(probe),
                None => switch(MATRICES_VARIABLE)?,
            },
            prefetch: match self.prefetch {
                Some(prefetch) => Some(prefetch),
                None => switch(PREFETCH_VARIABLE)?,
            },
            upload: match self.upload {
                Some(upload) => Some(upload),
                None => upload_of(variable(UPLOAD_VARIABLE).as_deref().unwrap_or_default())?,
            },
            stand_in: self.stand_in,
            variant: self.variant,
            fold_at: self.fold_at,
            buffers: self.buffers,
            busy: self.busy,
            largest_allocation: self.largest_allocation,
            memory_limit: match self.memory_limit {
                Some(limit) => Some(limit),
                None => number(MEMORY_LIMIT_VARIABLE, "bytes")?,
            },
            timeout: match self.timeout {
                Some(timeout) => Some(timeout),
                None => number(TIMEOUT_VARIABLE, "seconds")?.map(Duration::from_secs),
            },
            tune: match self.tune {
                Some(time) => Some(time),
                None => number(TUNE_VARIABLE, "seconds")?.map(Duration::from_secs),
            },
        })
    }
}

/// Parses an environment variable, if it is set.
fn upload_of(text: &str) -> Result<Option<Upload>, Error> {
    Ok(match text.trim() {
        "" => None,
        "host" => Some(Upload::Host),
        "copy" => Some(Upload::Copy),
        "transfer" => Some(Upload::Transfer),
        _ => {
            return Err(Error::Unavailable(format!(
                "{UPLOAD_VARIABLE} is '{text}', expected host, copy or transfer"
            )));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caller_options_override_the_environment() {
        let environment = |name: &str| match name {
            DEVICE_VARIABLE => Some("1".to_owned()),
            PIPELINE_CACHE_VARIABLE => Some("/cache".to_owned()),
            _ => None,
        };
        let options = Options::default().or_environment(environment).unwrap();
        assert_eq!(options.device.as_deref(), Some("1"));
        assert_eq!(options.pipeline_cache, Some(PathBuf::from("/cache")));
        let own = Options {
            device: Some("2".into()),
            pipeline_cache: Some("off".into()),
            ..Options::default()
        };
        let options = own.or_environment(environment).unwrap();
        assert_eq!((options.device.as_deref(), options.pipeline_cache), (Some("2"), None));
        let empty = |name: &str| (name == PIPELINE_CACHE_VARIABLE).then(String::new);
        let options = Options::default().or_environment(empty).unwrap();
        assert_eq!(options.pipeline_cache, None);
    }

    #[test]
    fn the_environment_limits_and_disables() {
        let of = |name: &'static str, value: &'static str| {
            Options::default()
                .or_environment(move |asked: &str| (asked == name).then(|| value.to_owned()))
        };
        let options = of(DISABLE_VARIABLE, "fp16, subgroup").unwrap();
        assert_eq!(options.disabled.len(), 5);
        assert_eq!(of(DISABLE_VARIABLE, "all").unwrap().disabled, DeviceFeature::ALL);
        assert!(of(DISABLE_VARIABLE, "fp17").is_err());
        assert_eq!(of(MEMORY_LIMIT_VARIABLE, "4096").unwrap().memory_limit, Some(4096));
        let message = of(MEMORY_LIMIT_VARIABLE, "4 GiB").unwrap_err().to_string();
        assert!(message.ends_with("is '4 GiB', expected an integer number of bytes"), "{message}");
        let message = of(TUNE_VARIABLE, "0.5").unwrap_err().to_string();
        assert!(message.ends_with("is '0.5', expected an integer number of seconds"), "{message}");
        assert_eq!(of(TIMEOUT_VARIABLE, "0").unwrap().timeout, Some(Duration::ZERO));
        assert!(of(TIMEOUT_VARIABLE, "-1").is_err());
        assert_eq!(of(MATRICES_VARIABLE, "off").unwrap().probe_matrices, Some(false));
        assert_eq!(of(MATRICES_VARIABLE, "on").unwrap().probe_matrices, Some(true));
        assert_eq!(of(PREFETCH_VARIABLE, "off").unwrap().prefetch, Some(false));
        assert_eq!(of(PREFETCH_VARIABLE, "").unwrap().prefetch, None);
        assert_eq!(of(MATRICES_VARIABLE, "").unwrap().probe_matrices, None);
        assert!(of(MATRICES_VARIABLE, "perhaps").is_err());
        assert_eq!(of(UPLOAD_VARIABLE, "copy").unwrap().upload, Some(Upload::Copy));
        assert_eq!(of(UPLOAD_VARIABLE, "transfer").unwrap().upload, Some(Upload::Transfer));
        assert_eq!(of(UPLOAD_VARIABLE, "").unwrap().upload, None);
        assert!(of(UPLOAD_VARIABLE, "mail").is_err());
    }
}
