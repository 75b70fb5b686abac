//! Date formatting for templates.

use std::time::{SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAY: u64 = 24 * 60 * 60;

/// Formats a time in UTC like `strftime`; the standard library has no time zones. Unknown
/// directives are kept.
pub(super) fn format(format: &str, time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (seconds / DAY, seconds % DAY);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let (weekday, month_name) = (DAYS[(days + 4) as usize % 7], MONTHS[month as usize - 1]);
    let twelve = (hour + 11) % 12 + 1;
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        let mut code = characters.next();
        let is_bare = code == Some('-');
        if is_bare {
            code = characters.next();
        }
        let two = |number: u64| match is_bare {
            true => number.to_string(),
            false => format!("{number:02}"),
        };
        let whole = |format_of: &str| self::format(format_of, time);
        let piece: String = match code {
            Some('a') => weekday[..3].into(),
            Some('A') => weekday.into(),
            Some('b' | 'h') => month_name[..3].into(),
            Some('B') => month_name.into(),
            Some('d') => two(day),
            Some('e') => format!("{day:2}"),
            Some('m') => two(month),
            Some('y') => two(year % 100),
            Some('Y') => year.to_string(),
            Some('H') => two(hour),
            Some('I') => two(twelve),
            Some('M') => two(minute),
            Some('S') => two(second),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.into(),
            Some('j') => {
                let before: u64 = (1..month).map(|month| length(year, month)).sum();
                format!("{:03}", before + day)
            }
            Some('F') => whole("%Y-%m-%d"),
            Some('T') => whole("%H:%M:%S"),
            Some('R') => whole("%H:%M"),
            Some('D') => whole("%m/%d/%y"),
            Some('s') => seconds.to_string(),
            Some('z') => "+0000".into(),
            Some('Z') => "UTC".into(),
            Some('%') => "%".into(),
            other => {
                let mut kept = String::from(if is_bare { "%-" } else { "%" });
                kept.extend(other);
                kept
            }
        };
        text.push_str(&piece);
    }
    text
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn length(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Year, month and day (1-based) of a number of days after 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    // The calendar repeats every 400 years.
    const AGE: u64 = 146_097;
    let (mut year, mut left, mut month) = (1970 + days / AGE * 400, days % AGE, 1);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    while left >= length(year, month) {
        left -= length(year, month);
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Expected results are those of Python's `strftime`.
    #[test]
    fn times_are_formatted() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(format("%d %b %Y", at(1_721_952_000)), "26 Jul 2024");
        assert_eq!(
            format("%A, %B %-d, %Y, %j", at(951_782_400)),
            "Tuesday, February 29, 2000, 060"
        );
        assert_eq!(
            format("%I:%M %p %y %F %T%%%Q", at(1_700_000_000)),
            "10:13 PM 23 2023-11-14 22:13:20%%Q"
        );
        assert_eq!(format("%Y-%m-%d %H %a", at(13_569_465_600)), "2400-01-01 00 Sat");
        assert_eq!(format("%F %j", at(0)), "1970-01-01 001");
    }
}
