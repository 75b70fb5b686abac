//! Colours, units and progress bars. Colours and progress bars are disabled if the output is not a
//! terminal.

use anstyle::{AnsiColor, Color, Style};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

const fn coloured(color: AnsiColor) -> Style {
    Style::new().fg_color(Some(Color::Ansi(color)))
}

pub(crate) const BAD: Style = coloured(AnsiColor::Red).bold();
pub(crate) const GOOD: Style = coloured(AnsiColor::Green);
pub(crate) const WARN: Style = coloured(AnsiColor::Yellow);
pub(crate) const NAME: Style = coloured(AnsiColor::Cyan);
pub(crate) const TITLE: Style = Style::new().bold();
pub(crate) const FAINT: Style = Style::new().dimmed();

/// Applies a style to a text.
pub(crate) fn paint(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

pub(crate) use torchlet::graph::device::format_bytes as bytes;

/// Formats a number with separators: `1,234,567`.
pub(crate) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its noun: `one case`, `2 cases`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number as u64))
}

/// Formats a duration with a unit.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        s if s >= 1.0 => format!("{s:.3} s"),
        s if s >= 1e-3 => format!("{:.3} ms", s * 1e3),
        s => format!("{:.2} µs", s * 1e6),
    }
}

/// Creates a progress bar; hidden if standard error is not a terminal or for a single step.
pub(crate) fn progress(steps: u64, what: &'static str) -> ProgressBar {
    let bar = if steps > 1 { ProgressBar::new(steps) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} ({eta})");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.set_message(what);
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        let texts = [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB")];
        for (count, text) in texts {
            assert_eq!(bytes(count), text);
        }
        assert_eq!(bytes(3 << 50), "3072.0 TiB");
        assert_eq!([grouped(0), grouped(999), grouped(1000)], ["0", "999", "1,000"]);
        assert_eq!(grouped(1234567), "1,234,567");
        assert_eq!([count(1, "case"), count(2, "case")], ["1 case", "2 cases"]);
        assert_eq!(duration(Duration::from_micros(1500)), "1.500 ms");
        assert_eq!(duration(Duration::from_nanos(1500)), "1.50 µs");
    }
}
