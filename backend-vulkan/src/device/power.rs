//! Whether the machine runs on a battery.

use std::fs;
use std::path::Path;

/// Whether the machine runs on a battery: phones always do; Linux tells of its power supplies
/// (Documentation/ABI/testing/sysfs-class-power). Elsewhere nothing is known, and it counts as plugged in.
pub(crate) fn is_battery() -> bool {
    if cfg!(any(target_os = "android", target_os = "ios")) {
        return true;
    }
    cfg!(target_os = "linux") && is_discharging(Path::new("/sys/class/power_supply"))
}

/// Whether a battery among these power supplies is being discharged. Those of a mouse or keyboard do not count.
fn is_discharging(supplies: &Path) -> bool {
    let of_system = |supply: &Path| {
        let says = |file: &str, text: &str| {
            fs::read_to_string(supply.join(file)).is_ok_and(|found| found.trim() == text)
        };
        says("type", "Battery") && says("status", "Discharging") && !says("scope", "Device")
    };
    let found = fs::read_dir(supplies).into_iter().flatten().flatten();
    found.map(|supply| supply.path()).any(|supply| of_system(&supply))
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
        assert!(!is_discharging(&folder));
        supply("AC", &[("type", "Mains\n")]);
        supply("mouse", &[("type", "Battery"), ("status", "Discharging"), ("scope", "Device")]);
        supply("BAT0", &[("type", "Battery\n"), ("status", "Charging\n")]);
        assert!(!is_discharging(&folder));
        supply("BAT0", &[("status", "Discharging\n")]);
        assert!(is_discharging(&folder));
        fs::remove_dir_all(&folder).unwrap();
    }
}
