//! Detects whether the machine runs on a battery.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a battery reading stays valid. A reading costs tens of microseconds, or more if the
/// firmware is queried.
const VALIDITY: Duration = Duration::from_secs(5);

/// A time of the next reading that never comes, because the machine has no battery that could start
/// to discharge.
const NEVER: u64 = u64::MAX;

/// The machine's power source. It is read again periodically if it can change.
pub(crate) struct Power {
    since: Instant,
    is_battery: AtomicBool,
    /// The time of the next reading, in milliseconds.
    next: AtomicU64,
}

impl Power {
    /// Reads the current power source.
    pub(crate) fn new() -> Self {
        Self::of(read())
    }

    fn of(battery: Battery) -> Self {
        let next = if battery.can_change() { millis(VALIDITY) } else { NEVER };
        Power {
            since: Instant::now(),
            is_battery: AtomicBool::new(battery.is_used()),
            next: AtomicU64::new(next),
        }
    }

    /// Whether the machine runs on a battery, according to the latest reading.
    pub(crate) fn is_battery(&self) -> bool {
        self.at(self.since.elapsed(), read)
    }

    /// Whether the machine runs on a battery at time `now`; `read` reads the state of the battery.
    fn at(&self, now: Duration, look: impl FnOnce() -> Battery) -> bool {
        let (now, next) = (millis(now), self.next.load(Ordering::Relaxed));
        let later = now.saturating_add(millis(VALIDITY));
        let order = Ordering::Relaxed;
        // One thread reads the battery; the others continue with the old value.
        if now >= next && self.next.compare_exchange(next, later, order, order).is_ok() {
            self.is_battery.store(look().is_used(), order);
        }
        self.is_battery.load(order)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(NEVER - 1)
}

/// The state of the battery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Battery {
    /// The machine has no battery, or its state is unknown.
    None,
    Charged,
    Discharged,
    /// The battery is the only power source.
    Always,
}

impl Battery {
    fn is_used(self) -> bool {
        matches!(self, Battery::Discharged | Battery::Always)
    }

    fn can_change(self) -> bool {
        matches!(self, Battery::Charged | Battery::Discharged)
    }
}

/// Reads the state of the battery. Phones always count as battery-powered. Linux lists power
/// supplies in sysfs (Documentation/ABI/testing/sysfs-class-power). Other systems count as plugged
/// in.
fn read() -> Battery {
    if cfg!(any(target_os = "android", target_os = "ios")) {
        return Battery::Always;
    }
    match cfg!(target_os = "linux") {
        true => of_supplies(Path::new("/sys/class/power_supply")),
        false => Battery::None,
    }
}

/// Returns the state of the system battery among these power supplies: `Discharged` if any system
/// battery is discharging. Batteries of peripherals are ignored.
fn of_supplies(supplies: &Path) -> Battery {
    let of_system = |supply: &Path| {
        let says = |file: &str, text: &str| {
            fs::read_to_string(supply.join(file)).is_ok_and(|found| found.trim() == text)
        };
        (says("type", "Battery") && !says("scope", "Device")).then(|| says("status", "Discharging"))
    };
    let found = fs::read_dir(supplies).into_iter().flatten().flatten();
    let batteries = found.filter_map(|supply| of_system(&supply.path()));
    match batteries.reduce(|a, b| a || b) {
        None => Battery::None,
        Some(true) => Battery::Discharged,
        Some(false) => Battery::Charged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_discharging_system_batteries_count() {
        let folder = std::env::temp_dir().join(format!("torchlet-power-{}", std::process::id()));
        let supply = |name: &str, files: &[(&str, &str)]| {
            let supply = folder.join(name);
            fs::create_dir_all(&supply).unwrap();
            files.iter().for_each(|(file, text)| fs::write(supply.join(file), text).unwrap());
        };
        assert_eq!(of_supplies(&folder), Battery::None);
        supply("AC", &[("type", "Mains\n")]);
        supply("mouse", &[("type", "Battery"), ("status", "Discharging"), ("scope", "Device")]);
        assert_eq!(of_supplies(&folder), Battery::None);
        supply("BAT0", &[("type", "Battery\n"), ("status", "Charging\n")]);
        assert_eq!(of_supplies(&folder), Battery::Charged);
        supply("BAT1", &[("type", "Battery\n"), ("status", "Full\n")]);
        supply("BAT0", &[("status", "Discharging\n")]);
        assert_eq!(of_supplies(&folder), Battery::Discharged);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn battery_is_read_periodically() {
        let seconds = Duration::from_secs;
        let unasked = || -> Battery { panic!("it was read a moment ago") };
        let power = Power::of(Battery::Charged);
        assert!(!power.at(seconds(4), unasked));
        assert!(power.at(seconds(5), || Battery::Discharged), "unplugged");
        assert!(power.at(seconds(9), unasked));
        assert!(!power.at(seconds(60), || Battery::Charged));
        assert!(!power.at(seconds(64), unasked));
        // The battery is removed and inserted again.
        assert!(!power.at(seconds(65), || Battery::None));
        assert!(power.at(seconds(70), || Battery::Discharged));
        for (battery, used) in [(Battery::None, false), (Battery::Always, true)] {
            assert_eq!(Power::of(battery).at(seconds(1 << 40), unasked), used, "{battery:?}");
        }
    }
}
