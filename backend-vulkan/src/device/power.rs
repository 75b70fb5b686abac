//! Whether the machine runs on a battery.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long what was read of a battery counts. To read it takes tens of microseconds, and more
/// where the firmware is asked.
const COUNTS: Duration = Duration::from_secs(5);

/// No battery that could be discharged later.
const NEVER: u64 = u64::MAX;

/// The machine's power, which can change: it is looked at again now and then, if there is a
/// battery.
pub(crate) struct Power {
    since: Instant,
    is_battery: AtomicBool,
    /// The millisecond from which on it is looked at again.
    next: AtomicU64,
}

impl Power {
    /// As it is now.
    pub(crate) fn new() -> Self {
        Self::of(read())
    }

    fn of(battery: Battery) -> Self {
        let next = if battery.can_change() { millis(COUNTS) } else { NEVER };
        Power {
            since: Instant::now(),
            is_battery: AtomicBool::new(battery.is_used()),
            next: AtomicU64::new(next),
        }
    }

    /// Whether the machine runs on a battery, as far as it was looked at.
    pub(crate) fn is_battery(&self) -> bool {
        self.at(self.since.elapsed(), read)
    }

    /// The same after so much time, with what looks at it.
    fn at(&self, now: Duration, look: impl FnOnce() -> Battery) -> bool {
        let (now, next) = (millis(now), self.next.load(Ordering::Relaxed));
        let later = now.saturating_add(millis(COUNTS));
        let order = Ordering::Relaxed;
        // One thread looks, and the others go on.
        if now >= next && self.next.compare_exchange(next, later, order, order).is_ok() {
            self.is_battery.store(look().is_used(), order);
        }
        self.is_battery.load(order)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(NEVER - 1)
}

/// What is known of a battery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Battery {
    /// There is none, or nothing is known of it.
    None,
    Charged,
    Discharged,
    /// Nothing else gives power for long.
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

/// The machine's battery: phones always run on theirs; Linux tells of its power supplies
/// (Documentation/ABI/testing/sysfs-class-power). Elsewhere nothing is known, and it counts as
/// plugged in.
fn read() -> Battery {
    if cfg!(any(target_os = "android", target_os = "ios")) {
        return Battery::Always;
    }
    match cfg!(target_os = "linux") {
        true => of_supplies(Path::new("/sys/class/power_supply")),
        false => Battery::None,
    }
}

/// The battery among these power supplies: one that is discharged, if there are several. Those of a
/// mouse or keyboard do not count.
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
    fn batteries_of_the_system_count_while_they_are_discharged() {
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
    fn a_battery_is_looked_at_again_now_and_then() {
        let seconds = Duration::from_secs;
        let unasked = || -> Battery { panic!("it was looked at a moment ago") };
        let power = Power::of(Battery::Charged);
        assert!(!power.at(seconds(4), unasked));
        assert!(power.at(seconds(5), || Battery::Discharged), "unplugged");
        assert!(power.at(seconds(9), unasked));
        assert!(!power.at(seconds(60), || Battery::Charged));
        assert!(!power.at(seconds(64), unasked));
        // It was taken out, and comes back.
        assert!(!power.at(seconds(65), || Battery::None));
        assert!(power.at(seconds(70), || Battery::Discharged));
        for (battery, used) in [(Battery::None, false), (Battery::Always, true)] {
            assert_eq!(Power::of(battery).at(seconds(1 << 40), unasked), used, "{battery:?}");
        }
    }
}
