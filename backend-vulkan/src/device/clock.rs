//! The timestamp clock of a device, and its relation to the host clock.

use super::instance::Instance;
use ash::{ext, vk};
use std::time::Instant;

/// The timestamp clock of a queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Clock {
    /// A mask of the valid bits of a timestamp.
    mask: u64,
    /// Nanoseconds per tick, as a fraction.
    pub(crate) nanoseconds_per_tick: (u64, u64),
}

impl Clock {
    /// Creates the clock of a queue whose timestamps have this many valid bits; `None` if the queue
    /// does not support timestamps.
    pub(crate) fn new(valid_bits: u32, nanoseconds_per_tick: f32) -> Option<Self> {
        if valid_bits == 0 || !nanoseconds_per_tick.is_finite() || nanoseconds_per_tick <= 0.0 {
            return None;
        }
        const DENOMINATOR: u64 = 1_000_000;
        let numerator = (f64::from(nanoseconds_per_tick) * DENOMINATOR as f64).round() as u64;
        Some(Clock {
            mask: u64::MAX.checked_shr(64u32.saturating_sub(valid_bits)).unwrap_or(0),
            nanoseconds_per_tick: (numerator.max(1), DENOMINATOR),
        })
    }

    /// Converts ticks to nanoseconds.
    pub(crate) fn nanoseconds(&self, ticks: u64) -> u64 {
        let (numerator, denominator) = self.nanoseconds_per_tick;
        let time = u128::from(ticks) * u128::from(numerator) / u128::from(denominator);
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// Converts nanoseconds to ticks.
    pub(crate) fn ticks(&self, nanoseconds: u64) -> u64 {
        let (numerator, denominator) = self.nanoseconds_per_tick;
        let ticks = u128::from(nanoseconds) * u128::from(denominator) / u128::from(numerator);
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// Returns timestamps as ticks since the first one, even if the clock overflows between them.
    pub(crate) fn since_first(&self, times: &[u64]) -> Vec<u64> {
        let first = times.first().copied().unwrap_or(0);
        times.iter().map(|time| time.wrapping_sub(first) & self.mask).collect()
    }
}

/// The function that reads the device clock and the host clock at the same time
/// (`VK_EXT_calibrated_timestamps`).
pub(crate) struct Calibration(ext::calibrated_timestamps::Device);

impl Calibration {
    /// Loads the function for a device that has the extension. Returns `None` if the clock of the
    /// device's queues cannot be read.
    pub(crate) fn new(
        instance: &Instance,
        physical: vk::PhysicalDevice,
        device: &ash::Device,
    ) -> Option<Self> {
        let domains = ext::calibrated_timestamps::Instance::new(&instance.entry, &instance.raw);
        // SAFETY: the device was enumerated from this instance, and lists the extension.
        let domains = unsafe { domains.get_physical_device_calibrateable_time_domains(physical) };
        domains.ok().filter(|domains| domains.contains(&vk::TimeDomainEXT::DEVICE))?;
        Some(Calibration(ext::calibrated_timestamps::Device::new(&instance.raw, device)))
    }

    /// Reads both clocks. Makes a few attempts, and returns the one that lasted the shortest time.
    pub(crate) fn now(&self) -> Option<(Instant, u64)> {
        let of_device =
            [vk::CalibratedTimestampInfoEXT::default().time_domain(vk::TimeDomainEXT::DEVICE)];
        let tries = (0..3).filter_map(|_| {
            let before = Instant::now();
            // SAFETY: the device lists the extension and was created with it, and has this clock.
            let (ticks, _) = unsafe { self.0.get_calibrated_timestamps(&of_device) }.ok()?;
            let took = before.elapsed();
            Some((took, before + took / 2, *ticks.first()?))
        });
        tries.min_by_key(|(took, ..)| *took).map(|(_, moment, ticks)| (moment, ticks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_without_valid_bits_has_no_clock() {
        assert_eq!(Clock::new(0, 1.0), None);
        assert_eq!(Clock::new(64, f32::NAN), None);
        assert_eq!(Clock::new(64, 0.0), None);
    }

    #[test]
    fn ticks_are_counted_across_an_overflow() {
        let clock = Clock::new(36, 1.0).unwrap();
        let top = (1 << 36) - 1;
        assert_eq!(clock.since_first(&[top - 1, top, 3]), [0, 1, 5]);
        // Bits beyond the valid ones are ignored.
        assert_eq!(clock.since_first(&[5 | 1 << 40, 7 | 1 << 50]), [0, 2]);
        let clock = Clock::new(64, 1.0).unwrap();
        assert_eq!(clock.since_first(&[u64::MAX, 4]), [0, 5]);
        assert!(clock.since_first(&[]).is_empty());
    }

    #[test]
    fn the_period_is_a_fraction() {
        assert_eq!(Clock::new(64, 1.0).unwrap().nanoseconds_per_tick, (1_000_000, 1_000_000));
        let clock = Clock::new(64, 2.5).unwrap();
        assert_eq!((clock.nanoseconds(4), clock.ticks(10)), (10, 4));
        assert_eq!(clock.nanoseconds(u64::MAX), u64::MAX);
        assert_eq!(Clock::new(64, 52.083_332).unwrap().nanoseconds_per_tick.0, 52_083_332);
    }
}
