//! Texts that the engine and the command write: numbers of things, dates.

use std::fmt::Display;

/// Returns a number with its noun: `1 change`, `2 changes`, `0 directories`.
pub fn counted(count: impl Display, noun: &str) -> String {
    let count = count.to_string();
    let vowel_before_y = ["ay", "ey", "oy", "uy"].iter().any(|end| noun.ends_with(end));
    match noun.strip_suffix('y').filter(|_| !vowel_before_y) {
        _ if count == "1" => format!("1 {noun}"),
        Some(stem) => format!("{count} {stem}ies"),
        None => format!("{count} {noun}s"),
    }
}

/// Returns year, month, day of a number of days since 1970 (proleptic Gregorian).
///
/// Days are counted from 1 March of year 0, so that the leap day is the last of its year and eras
/// of 400 years are all alike.
pub fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// Formats seconds since 1970 as `2026-11-20 16:47`, in UTC.
pub fn minutes(seconds: i64) -> String {
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    let second = seconds.rem_euclid(86_400);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", second / 3600, second / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_and_many() {
        for (count, noun, text) in [
            (1u64, "change", "1 change"),
            (0, "change", "0 changes"),
            (2, "directory", "2 directories"),
            (1, "directory", "1 directory"),
            (3, "key", "3 keys"),
        ] {
            assert_eq!(counted(count, noun), text);
        }
    }

    #[test]
    fn dates() {
        assert_eq!(minutes(0), "1970-01-01 00:00");
        assert_eq!(minutes(1_795_788_509), "2026-11-27 14:08");
        assert_eq!(minutes(-1), "1969-12-31 23:59");
        assert_eq!(civil(19_782), (2024, 2, 29));
    }
}
