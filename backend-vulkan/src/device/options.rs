//! How a device is opened: what the caller says, else what the environment says.

use std::path::PathBuf;

/// The environment variable that chooses a device: its index, or a part of its name.
pub const DEVICE_VARIABLE: &str = "TORCHLET_VULKAN_DEVICE";
/// The environment variable that names the folder in which pipelines are remembered, or is `off`.
pub const PIPELINE_CACHE_VARIABLE: &str = "TORCHLET_VULKAN_PIPELINE_CACHE";

/// How a device is opened.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    /// The device: its index, or a part of its name. Without one, the most capable.
    pub(crate) device: Option<String>,
    /// The folder in which pipelines are remembered between runs, if they are.
    pub(crate) pipeline_cache: Option<PathBuf>,
}

impl Options {
    /// With what the environment says where the caller said nothing.
    pub(crate) fn or_environment(self, variable: impl Fn(&str) -> Option<String>) -> Self {
        let folder = || variable(PIPELINE_CACHE_VARIABLE).filter(|folder| !folder.is_empty());
        let pipeline_cache = self.pipeline_cache.or_else(|| folder().map(PathBuf::from));
        Options {
            device: self.device.or_else(|| variable(DEVICE_VARIABLE)),
            pipeline_cache: pipeline_cache.filter(|folder| folder.as_os_str() != "off"),
        }
    }
}

/// Where programs of this user keep what they can make again: the folder `torchlet` in `$XDG_CACHE_HOME` or `~/.cache`,
/// `~/Library/Caches` on macOS, `%LOCALAPPDATA%` on Windows. `None` where the environment does not say.
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
        let options = Options::default().or_environment(environment);
        assert_eq!(options.device.as_deref(), Some("1"));
        assert_eq!(options.pipeline_cache, Some(PathBuf::from("/cache")));
        let own = Options { device: Some("2".into()), pipeline_cache: Some("off".into()) };
        let options = own.or_environment(environment);
        assert_eq!((options.device.as_deref(), options.pipeline_cache), (Some("2"), None));
        let options = Options::default().or_environment(|_| Some(String::new()));
        assert_eq!(options.pipeline_cache, None);
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
