//! How a device is opened: what the caller says, else what the environment says.

use super::features::DeviceFeature;
use crate::error::Error;
use std::path::PathBuf;
use std::time::Duration;

/// The environment variable that chooses a device: its index, or a part of its name.
pub const DEVICE_VARIABLE: &str = "TORCHLET_VULKAN_DEVICE";
/// The environment variable that names the folder in which pipelines are remembered, or is `off`.
pub const PIPELINE_CACHE_VARIABLE: &str = "TORCHLET_VULKAN_PIPELINE_CACHE";

/// The environment variable that names features to do without, separated by commas, or is `all`.
pub const DISABLE_VARIABLE: &str = "TORCHLET_VULKAN_DISABLE";
/// The environment variable that limits the memory on the device, in bytes.
pub const MEMORY_LIMIT_VARIABLE: &str = "TORCHLET_VULKAN_MEMORY_LIMIT";
/// The environment variable that limits the time of one run, in seconds; 0 for no limit.
pub const TIMEOUT_VARIABLE: &str = "TORCHLET_VULKAN_TIMEOUT";

/// The environment variable that says how long programs may be measured when they are loaded, in
/// seconds; 0 for not at all.
pub const TUNE_VARIABLE: &str = "TORCHLET_VULKAN_TUNE";

/// The environment variable that says whether matrix units are compared with what there is without:
/// `on` or `off`.
pub const MATRICES_VARIABLE: &str = "TORCHLET_VULKAN_PROBE_MATRICES";

/// The environment variable that says whether weights are read into the device's cache before they
/// are needed: `on` or `off`.
pub const PREFETCH_VARIABLE: &str = "TORCHLET_VULKAN_PREFETCH";
/// The environment variable that says how weights go to the device: `host`, `copy` or `transfer`.
pub const UPLOAD_VARIABLE: &str = "TORCHLET_VULKAN_UPLOAD";

/// How weights go to the device when a program is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Upload {
    /// The host writes them where they stay, if it sees all of the device's memory; else as
    /// [`Transfer`](Self::Transfer).
    #[default]
    Host,
    /// By way of memory of the host's own, from which the queue that computes copies them.
    Copy,
    /// The same by a queue for transfers alone, beside what computes, where the device has one;
    /// else as [`Copy`](Self::Copy).
    Transfer,
}

/// How a device is opened.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    /// The device: its index, or a part of its name. Without one, the most capable.
    pub(crate) device: Option<String>,
    /// The folder in which pipelines are remembered between runs, if they are.
    pub(crate) pipeline_cache: Option<PathBuf>,
    /// Features not to use.
    pub(crate) disabled: Vec<DeviceFeature>,
    /// The most bytes of device memory.
    pub(crate) memory_limit: Option<u64>,
    /// The longest that a run may take; zero for no limit.
    pub(crate) timeout: Option<Duration>,
    /// How long a program may be measured when it is loaded; zero for not at all.
    pub(crate) tune: Option<Duration>,
    /// Whether matrix units are compared with what there is without; so it is unless it is said.
    pub(crate) probe_matrices: Option<bool>,
    /// Whether weights are read into the device's cache before they are needed; where it is known
    /// to help unless it is said.
    pub(crate) prefetch: Option<bool>,
    /// How weights go to the device.
    pub(crate) upload: Option<Upload>,
    /// Whether the queue that computes stands in for one for transfers alone, where there is none.
    pub(crate) stand_in: bool,
    /// The way that calls go wherever they have so many.
    pub(crate) way: Option<u8>,
    /// The workgroups along a dimension from which on work goes on in the next, or in another
    /// dispatch.
    pub(crate) fold_at: Option<u32>,
    /// The storage buffers that a shader binds at most.
    pub(crate) buffers: Option<u32>,
    /// The invocations that keep the device busy.
    pub(crate) busy: Option<usize>,
    /// The most bytes to allocate in one piece.
    pub(crate) largest_allocation: Option<u64>,
}

impl Options {
    /// With what the environment says where the caller said nothing. Features that either disables
    /// are not used.
    pub(crate) fn or_environment(
        self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Error> {
        let folder = || variable(PIPELINE_CACHE_VARIABLE).filter(|folder| !folder.is_empty());
        let pipeline_cache = self.pipeline_cache.or_else(|| folder().map(PathBuf::from));
        let number = |name: &str, unit: &str| match variable(name) {
            Some(text) => text.trim().parse::<u64>().map(Some).map_err(|_| {
                let wanted = format!("not a whole number of {unit}");
                Error::Unavailable(format!("{name} is '{text}', {wanted}"))
            }),
            None => Ok(None),
        };
        let switch = |name: &str| match variable(name).as_deref().map(str::trim) {
            None | Some("") => Ok(None),
            Some("on") => Ok(Some(true)),
            Some("off") => Ok(Some(false)),
            Some(text) => Err(Error::Unavailable(format!("{name} is '{text}', not on or off"))),
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
                    "{DISABLE_VARIABLE} names '{name}'; there are {known}, subgroup and all"
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
            way: self.way,
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

/// What the variable says.
fn upload_of(text: &str) -> Result<Option<Upload>, Error> {
    Ok(match text.trim() {
        "" => None,
        "host" => Some(Upload::Host),
        "copy" => Some(Upload::Copy),
        "transfer" => Some(Upload::Transfer),
        _ => {
            return Err(Error::Unavailable(format!(
                "{UPLOAD_VARIABLE} is '{text}'; there are host, copy and transfer"
            )));
        }
    })
}

/// Where programs of this user keep what they can make again: the folder `torchlet` in
/// `$XDG_CACHE_HOME` or `~/.cache`, `~/Library/Caches` on macOS, `%LOCALAPPDATA%` on Windows.
/// `None` where the environment does not say.
pub fn user_cache_folder() -> Option<PathBuf> {
    cache_folder(|name| std::env::var_os(name).map(PathBuf::from))
}

fn cache_folder(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
    let folder = if cfg!(windows) {
        absolute("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        absolute("HOME").map(|home| home.join("Library/Caches"))
    } else {
        absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))
    };
    folder.map(|folder| folder.join("torchlet"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_is_heard_before_the_environment() {
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
        let said = of(MEMORY_LIMIT_VARIABLE, "4 GiB").unwrap_err().to_string();
        assert!(said.ends_with("is '4 GiB', not a whole number of bytes"), "{said}");
        let said = of(TUNE_VARIABLE, "0.5").unwrap_err().to_string();
        assert!(said.ends_with("is '0.5', not a whole number of seconds"), "{said}");
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

    #[cfg(target_os = "linux")]
    #[test]
    fn the_cache_folder_is_that_of_the_platform() {
        let home = |name: &str| (name == "HOME").then(|| PathBuf::from("/home/a"));
        assert_eq!(cache_folder(home), Some(PathBuf::from("/home/a/.cache/torchlet")));
        let both = |name: &str| match name {
            "XDG_CACHE_HOME" => Some(PathBuf::from("/cache")),
            name => home(name),
        };
        assert_eq!(cache_folder(both), Some(PathBuf::from("/cache/torchlet")));
        assert_eq!(cache_folder(|_| Some(PathBuf::from("relative"))), None);
    }
}
