//! Files that store compiled pipelines and autotuning results from one process to the next.
//!
//! The driver trusts the contents of the pipeline cache. `torchlet-cache` therefore rejects files
//! that another user could have written, and replaces files atomically. The header of a file
//! identifies the device and the driver, and has a checksum against corruption; an invalid file
//! counts as missing. Autotuning results are valid only for the shaders that were measured.

use ash::vk;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use torchlet_shaders::MODULES;

/// The kind of data in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    /// The driver's pipeline cache.
    Pipelines,
    /// Autotuning results: the fastest kernel variants.
    Choices,
}

impl Holds {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Holds::Pipelines => b"TORCHLPC",
            Holds::Choices => b"TORCHLCH",
        }
    }

    fn extension(self) -> &'static str {
        match self {
            Holds::Pipelines => "pipelines",
            Holds::Choices => "choices",
        }
    }

    /// Returns the version of the contents. For autotuning results, it is a digest of the shaders.
    /// The pipeline cache needs no digest, because the driver distinguishes shaders itself.
    fn version(self) -> u64 {
        static SHADERS: OnceLock<u64> = OnceLock::new();
        match self {
            Holds::Pipelines => VERSION,
            Holds::Choices => {
                *SHADERS.get_or_init(|| digest(MODULES.iter().map(|module| module.spirv)))
            }
        }
    }
}

const VERSION: u64 = 2;
/// The size of the header: magic, version, vendor, device, driver version, UUID, length, checksum.
const HEADER: usize = 8 + 8 + 3 * 4 + vk::UUID_SIZE + 8 + 8;
/// The size of the pipeline cache header that Vulkan defines: size, version, vendor, device, UUID.
const DRIVER_HEADER: usize = 4 * 4 + vk::UUID_SIZE;
/// The maximum size of a file. Pipeline caches for the shaders of this crate are smaller.
const MAX_FILE_SIZE: u64 = 256 << 20;

/// The device and driver that a cache belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheKey {
    pub(crate) vendor: u32,
    pub(crate) device: u32,
    pub(crate) driver: u32,
    pub(crate) uuid: [u8; vk::UUID_SIZE],
}

impl CacheKey {
    pub(crate) fn of(properties: &vk::PhysicalDeviceProperties) -> Self {
        CacheKey {
            vendor: properties.vendor_id,
            device: properties.device_id,
            driver: properties.driver_version,
            uuid: properties.pipeline_cache_uuid,
        }
    }

    /// Returns the file name, which differs between devices and driver UUIDs.
    fn file_name(&self, holds: Holds) -> String {
        let uuid: String = self.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("vulkan-{:04x}-{:04x}-{uuid}.{}", self.vendor, self.device, holds.extension())
    }

    fn bytes(&self) -> Vec<u8> {
        let numbers = [self.vendor, self.device, self.driver];
        numbers.iter().flat_map(|number| number.to_le_bytes()).chain(self.uuid).collect()
    }

    /// Whether the Vulkan header of the data names this device.
    fn matches(&self, data: &[u8]) -> bool {
        let expected: Vec<u8> = [DRIVER_HEADER as u32, 1, self.vendor, self.device]
            .iter()
            .flat_map(|number| number.to_ne_bytes())
            .chain(self.uuid)
            .collect();
        data.get(..DRIVER_HEADER) == Some(&expected)
    }
}

/// A cache file for one device.
#[derive(Debug, Clone)]
pub(crate) struct CacheFile {
    path: PathBuf,
    key: CacheKey,
    holds: Holds,
}

impl CacheFile {
    /// Returns the cache file of a device in a folder.
    pub(crate) fn new(folder: &Path, key: CacheKey, holds: Holds) -> Self {
        CacheFile { path: folder.join(key.file_name(holds)), key, holds }
    }

    /// Whether the data is valid for this file: the header of a pipeline cache must name the
    /// device.
    fn may_hold(&self, data: &[u8]) -> bool {
        self.holds != Holds::Pipelines || self.key.matches(data)
    }

    /// Returns the data of the file, if the file exists and is valid.
    pub(crate) fn read(&self) -> Option<Vec<u8>> {
        let mut file = Vec::new();
        let mut reader = torchlet_cache::open(&self.path).ok()?.take(MAX_FILE_SIZE + 1);
        reader.read_to_end(&mut file).ok().filter(|len| *len as u64 <= MAX_FILE_SIZE)?;
        let data = file.get(HEADER..)?;
        if file.get(..HEADER) != Some(&self.header(data)) || !self.may_hold(data) {
            return None;
        }
        file.drain(..HEADER);
        Some(file)
    }

    /// Replaces the contents of the file.
    pub(crate) fn write(&self, data: &[u8]) -> io::Result<()> {
        if !self.may_hold(data) || data.len() as u64 > MAX_FILE_SIZE - HEADER as u64 {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        torchlet_cache::replace(&self.path, |file| {
            file.write_all(&self.header(data))?;
            file.write_all(data)
        })
    }

    fn header(&self, data: &[u8]) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEADER);
        header.extend_from_slice(self.holds.magic());
        header.extend_from_slice(&self.holds.version().to_le_bytes());
        header.extend_from_slice(&self.key.bytes());
        header.extend_from_slice(&(data.len() as u64).to_le_bytes());
        header.extend_from_slice(&checksum(data).to_le_bytes());
        header
    }
}

/// A checksum against accidental corruption: FNV-1a over 64-bit words, with the high bits folded
/// in.
fn checksum(data: &[u8]) -> u64 {
    let (words, rest) = data.as_chunks::<8>();
    let step = |sum: u64, word: u64| {
        let sum = (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        sum ^ sum >> 29
    };
    let sum =
        words.iter().fold(0xcbf2_9ce4_8422_2325, |sum, word| step(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| step(sum, u64::from(*byte)))
}

/// Returns a digest of shader modules.
fn digest<'m>(modules: impl Iterator<Item = &'m [u8]>) -> u64 {
    let sums: Vec<u8> = modules.flat_map(|spirv| checksum(spirv).to_le_bytes()).collect();
    checksum(&sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: CacheKey = CacheKey { vendor: 0x10de, device: 7, driver: 9, uuid: [5; 16] };

    /// A temporary folder, deleted on drop.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("torchlet-cache-{name}-{}", std::process::id());
            Folder(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn driver_data(key: &CacheKey) -> Vec<u8> {
        let numbers = [32, 1, key.vendor, key.device];
        let header = numbers.iter().flat_map(|number: &u32| number.to_ne_bytes());
        header.chain(key.uuid).chain(0..=99).collect()
    }

    #[test]
    fn cache_file_round_trips() {
        let folder = Folder::new("written");
        let file = CacheFile::new(&folder.0.join("deep"), KEY, Holds::Pipelines);
        assert_eq!(file.read(), None);
        let data = driver_data(&KEY);
        file.write(&data).unwrap();
        assert_eq!(file.read(), Some(data.clone()));
        let longer = [data, vec![1; 1000]].concat();
        file.write(&longer).unwrap();
        assert_eq!(file.read(), Some(longer));
        assert_eq!(std::fs::read_dir(folder.0.join("deep")).unwrap().count(), 1);
    }

    #[test]
    fn corrupt_or_foreign_files_are_rejected() {
        let folder = Folder::new("damaged");
        let file = CacheFile::new(&folder.0, KEY, Holds::Pipelines);
        let data = driver_data(&KEY);
        file.write(&data).unwrap();
        let whole = std::fs::read(&file.path).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            std::fs::write(&file.path, &changed).unwrap();
            assert_eq!(file.read(), None, "byte {at}");
            std::fs::write(&file.path, &whole[..at]).unwrap();
            assert_eq!(file.read(), None, "cut at {at}");
        }
        std::fs::write(&file.path, [whole.as_slice(), &[0]].concat()).unwrap();
        assert_eq!(file.read(), None);
        std::fs::write(&file.path, &whole).unwrap();
        assert_eq!(file.read(), Some(data));
        // The same file for another driver version.
        let other = CacheFile { key: CacheKey { driver: 10, ..KEY }, ..file.clone() };
        assert_eq!(other.read(), None);
    }

    #[test]
    fn kinds_of_files_are_distinct() {
        let folder = Folder::new("kinds");
        let choices = CacheFile::new(&folder.0, KEY, Holds::Choices);
        choices.write(b"any").unwrap();
        assert_eq!(choices.read().as_deref(), Some(&b"any"[..]));
        let pipelines = CacheFile::new(&folder.0, KEY, Holds::Pipelines);
        std::fs::copy(&choices.path, &pipelines.path).unwrap();
        assert_eq!(pipelines.read(), None);
    }

    #[test]
    fn data_of_another_device_is_rejected() {
        let folder = Folder::new("other");
        let file = CacheFile::new(&folder.0, KEY, Holds::Pipelines);
        assert!(file.write(&driver_data(&CacheKey { device: 8, ..KEY })).is_err());
        assert!(file.write(&[]).is_err());
        assert_eq!(file.read(), None);
    }

    #[test]
    fn tuning_results_depend_on_shaders() {
        let [a, b, changed] = [[1u8, 2, 3, 4], [5, 6, 7, 8], [5, 6, 7, 9]];
        let of = |modules: &[&[u8]]| digest(modules.iter().copied());
        assert_eq!(of(&[&a, &b]), of(&[&a, &b]));
        for other in [of(&[&a, &changed]), of(&[&b, &a]), of(&[&a]), of(&[&a, &b, &b])] {
            assert_ne!(other, of(&[&a, &b]));
        }
        let header = |holds| CacheFile::new(Path::new(""), KEY, holds).header(&[]);
        let version = Holds::Choices.version().to_le_bytes();
        assert_eq!(header(Holds::Choices)[8..16], version);
        assert_ne!(header(Holds::Pipelines)[8..16], version);
    }

    #[test]
    fn concurrent_writers_leave_a_valid_file() {
        let folder = Folder::new("writers");
        let data = driver_data(&KEY);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (folder, data) = (&folder.0, &data);
                scope.spawn(move || {
                    let data = [data.as_slice(), &vec![thread; 1 << 12]].concat();
                    let file = CacheFile::new(folder, KEY, Holds::Pipelines);
                    for _ in 0..20 {
                        file.write(&data).unwrap();
                        assert_eq!(file.read().map(|found| found.len()), Some(data.len()));
                    }
                });
            }
        });
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
    }
}
