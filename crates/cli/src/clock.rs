//! Times as text: `2026-11-20 16:47:05`, always UTC, and the fields of strftime(3) in the C locale.
//!
//! A volume is read on other machines than the one that wrote it, so listings do not depend on
//! the local time zone.

use std::fmt::Write;

use shoal::raw::Time;
use shoal::raw::text::{self, civil};

const SECONDS_PER_DAY: i64 = 86_400;

/// Returns the days from 1970 to a date: the reverse of [`civil`].
fn days_to(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Formats a time as `2026-11-20 16:47`.
pub(crate) fn minutes(time: Time) -> String {
    text::minutes(time.sec)
}

/// Formats a time as `2026-11-20 16:47:05.123456789 UTC`.
pub(crate) fn full(time: Time) -> String {
    format!("{}:{:02}.{:09} UTC", minutes(time), time.sec.rem_euclid(60), time.nsec)
}

/// Formats a length of time by its two largest units: `3 d 4 h`, `12 s`.
pub(crate) fn span(seconds: u64) -> String {
    let units = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let first = units.iter().position(|(unit, _)| seconds >= *unit).unwrap_or(3);
    let (mut rest, mut text) = (seconds, String::new());
    for (unit, name) in units.iter().skip(first).take(2) {
        let count = rest / unit;
        rest %= unit;
        if count > 0 || text.is_empty() {
            let _ = write!(text, "{}{count} {name}", if text.is_empty() { "" } else { " " });
        }
    }
    text
}

/// A time of day on a date of the proleptic Gregorian calendar, in UTC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Date {
    year: i64,
    month: i64,
    day: i64,
    /// Days since 1 January.
    day_of_year: i64,
    /// 0 is Sunday.
    weekday: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

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
const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

impl Date {
    /// Returns the date and time of day of a time.
    pub(crate) fn of(time: Time) -> Date {
        let days = time.sec.div_euclid(SECONDS_PER_DAY);
        let second = time.sec.rem_euclid(SECONDS_PER_DAY);
        let (year, month, day) = civil(days);
        Date {
            year,
            month,
            day,
            day_of_year: days - days_to(year, 1, 1),
            weekday: (days + 4).rem_euclid(7),
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
        }
    }

    /// Returns year and number of its week as ISO 8601 counts them: a week belongs to the year of
    /// its Thursday.
    fn iso_week(&self) -> (i64, i64) {
        let monday_based = (self.weekday + 6) % 7;
        let thursday = days_to(self.year, self.month, self.day) - monday_based + 3;
        let (year, ..) = civil(thursday);
        (year, (thursday - days_to(year, 1, 1)) / 7 + 1)
    }

    /// Returns one field of strftime(3), in the C locale; `None`: there is no such field here.
    /// Fields of the time since 1970 are not among them.
    pub(crate) fn field(&self, letter: u8) -> Option<String> {
        let mut text = String::new();
        self.put(&mut text, letter).then_some(text)
    }

    /// Appends one field; `false`: there is no such field.
    fn put(&self, text: &mut String, letter: u8) -> bool {
        let month = MONTHS[self.month as usize - 1];
        let day = DAYS[self.weekday as usize];
        let hour12 = (self.hour + 11) % 12 + 1;
        match letter {
            b'a' => text.push_str(&day[..3]),
            b'A' => text.push_str(day),
            b'b' | b'h' => text.push_str(&month[..3]),
            b'B' => text.push_str(month),
            b'C' => two(text, '0', self.year.div_euclid(100)),
            b'd' => two(text, '0', self.day),
            b'e' => two(text, ' ', self.day),
            b'g' => two(text, '0', self.iso_week().0.rem_euclid(100)),
            b'G' => number(text, self.iso_week().0),
            b'H' => two(text, '0', self.hour),
            b'I' => two(text, '0', hour12),
            b'j' => text.push_str(&format!("{:03}", self.day_of_year + 1)),
            b'k' => two(text, ' ', self.hour),
            b'l' => two(text, ' ', hour12),
            b'm' => two(text, '0', self.month),
            b'M' => two(text, '0', self.minute),
            b'p' => text.push_str(if self.hour < 12 { "AM" } else { "PM" }),
            b'S' => two(text, '0', self.second),
            b'u' => number(text, (self.weekday + 6) % 7 + 1),
            b'U' => two(text, '0', (self.day_of_year + 7 - self.weekday) / 7),
            b'V' => two(text, '0', self.iso_week().1),
            b'w' => number(text, self.weekday),
            b'W' => two(text, '0', (self.day_of_year + 7 - (self.weekday + 6) % 7) / 7),
            b'y' => two(text, '0', self.year.rem_euclid(100)),
            b'Y' => number(text, self.year),
            b'Z' => text.push_str("UTC"),
            b'c' => self.put_all(text, b"a b e H:M:S Y"),
            b'D' | b'x' => self.put_all(text, b"m/d/y"),
            b'F' => self.put_all(text, b"Y-m-d"),
            b'r' => self.put_all(text, b"I:M:S p"),
            b'R' => self.put_all(text, b"H:M"),
            b'T' | b'X' => self.put_all(text, b"H:M:S"),
            _ => return false,
        }
        true
    }

    /// Appends the fields of letters, and what is between them.
    fn put_all(&self, text: &mut String, letters: &[u8]) {
        for letter in letters {
            if !letter.is_ascii_alphabetic() {
                text.push(char::from(*letter));
            } else {
                self.put(text, *letter);
            }
        }
    }
}

/// Appends a number of two digits, or of more.
fn two(text: &mut String, fill: char, value: i64) {
    let digit = |value: i64| char::from(b'0' + value as u8);
    match value {
        0..10 => text.extend([fill, digit(value)]),
        10..100 => text.extend([digit(value / 10), digit(value % 10)]),
        _ => number(text, value),
    }
}

fn number(text: &mut String, value: i64) {
    // A string takes everything.
    let _ = write!(text, "{value}");
}

/// Appends a time in a format of strftime(3); a field that there is not stays as it is written.
pub(crate) fn format(text: &mut String, time: Time, format: &str) {
    let (date, mut letters) = (Date::of(time), format.chars());
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        match letters.next() {
            Some('s') => number(text, time.sec),
            Some('N') => text.push_str(&format!("{:09}", time.nsec)),
            Some('z') => text.push_str("+0000"),
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('%') | None => text.push('%'),
            Some(other) => {
                if !u8::try_from(other).is_ok_and(|letter| date.put(text, letter)) {
                    text.extend(['%', other]);
                }
            }
        }
    }
}

/// Time after which listings show the year in place of the hour: half a mean Gregorian year.
const RECENT_SECONDS: i64 = 31_556_952 / 2;

/// Returns whether a time is within the half year before `now`, and not after it.
pub(crate) fn is_recent(time: Time, now: Time) -> bool {
    let order = |it: Time| (it.sec, it.nsec);
    let begin = Time { sec: now.sec - RECENT_SECONDS, nsec: now.nsec };
    order(begin) < order(time) && order(time) <= order(now)
}

/// Returns the time of this machine's clock.
pub(crate) fn now() -> Time {
    match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
        Ok(since) => Time { sec: since.as_secs() as i64, nsec: since.subsec_nanos() },
        Err(_) => Time { sec: 0, nsec: 0 },
    }
}

/// Reads `2026-11-20`, `2026-11-20 16:47`, `2026-11-20T16:47:05`, in UTC, or `@` and seconds since
/// 1970. `None`: it is none of these.
pub(crate) fn parse(text: &str) -> Option<Time> {
    let time = |sec| Time { sec, nsec: 0 };
    if let Some(seconds) = text.strip_prefix('@') {
        return seconds.parse().ok().map(time);
    }
    let (date, clock) = text.split_once([' ', 'T']).unwrap_or((text, "00:00"));
    let number = |text: Option<&str>, max: i64| -> Option<i64> {
        let text = text.filter(|it| !it.is_empty() && it.bytes().all(|b| b.is_ascii_digit()))?;
        text.parse().ok().filter(|number| *number <= max)
    };
    let mut fields = date.split('-');
    let year = number(fields.next(), 9999)?;
    let month = number(fields.next(), 12)?;
    let day = number(fields.next(), 31)?;
    let days = days_to(year, month.max(1), day);
    if fields.next().is_some() || civil(days) != (year, month, day) {
        return None;
    }
    let mut fields = clock.split(':');
    let hour = number(fields.next(), 23)?;
    let minute = number(fields.next(), 59)?;
    let second = fields.next().map_or(Some(0), |field| number(Some(field), 59))?;
    let is_end = fields.next().is_none();
    is_end.then(|| time(days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        for (seconds, text) in
            [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3661, "1 h 1 min"), (90_000, "1 d 1 h")]
        {
            assert_eq!(span(seconds), text);
        }
    }

    #[test]
    fn known_dates() {
        let cases: &[(i64, &str)] = &[
            (0, "1970-01-01 00:00"),
            (951_782_400, "2000-02-29 00:00"),
            (951_868_800, "2000-03-01 00:00"),
            (1_700_000_000, "2023-11-14 22:13"),
            (4_107_542_399, "2100-02-28 23:59"),
            (4_107_542_400, "2100-03-01 00:00"),
            (-1, "1969-12-31 23:59"),
        ];
        for (sec, text) in cases {
            assert_eq!(minutes(Time { sec: *sec, nsec: 0 }), *text);
        }
        let time = Time { sec: -1, nsec: 5 };
        assert_eq!(full(time), "1969-12-31 23:59:59.000000005 UTC");
    }

    #[test]
    fn days_there_and_back() {
        for days in (-800_000..800_000).step_by(13) {
            let (year, month, day) = civil(days);
            assert_eq!(days_to(year, month, day), days);
        }
    }

    #[test]
    fn written_times_are_read() {
        let cases: &[(&str, Option<i64>)] = &[
            ("1970-01-02", Some(86_400)),
            ("2023-11-14 22:13:20", Some(1_700_000_000)),
            ("2023-11-14T22:13", Some(1_699_999_980)),
            ("@-5", Some(-5)),
            ("2023-02-29", None),
            ("2023-00-01", None),
            ("2023-13-01", None),
            ("2023-11-14 24:00", None),
            ("2023-11-14 1", None),
            ("yesterday", None),
            ("", None),
        ];
        for (text, sec) in cases {
            assert_eq!(parse(text).map(|time| time.sec), *sec, "{text}");
        }
    }

    #[test]
    fn fields_are_those_of_the_c_locale() {
        let format = |time, format| {
            let mut text = String::new();
            super::format(&mut text, time, format);
            text
        };
        let time = Time { sec: 1_704_067_199, nsec: 5 };
        assert_eq!(
            format(time, "%c|%x|%X|%r"),
            "Sun Dec 31 23:59:59 2023|12/31/23|23:59:59|11:59:59 PM"
        );
        assert_eq!(format(time, "%j %U %W %V %G %u %w"), "365 53 52 52 2023 7 0");
        let monday = Time { sec: time.sec + 1, nsec: 0 };
        assert_eq!(
            format(monday, "%j %U %W %V %G %g %e%k%l %N %Q %%"),
            "001 00 01 01 2024 24  1 012 000000000 %Q %"
        );
    }
}
