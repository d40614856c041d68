//! Times as text: `2026-11-20 16:47:05`, always UTC.
//!
//! A volume is read on other machines than the one that wrote it, so listings do not depend on
//! the local time zone.

use shoal::Time;

const SECONDS_PER_DAY: i64 = 86_400;

/// Year, month, day of a number of days since 1970 (proleptic Gregorian).
///
/// Days are counted from 1 March of year 0, so that the leap day is the last of its year and eras
/// of 400 years are all alike.
fn civil(days: i64) -> (i64, i64, i64) {
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

/// `2026-11-20 16:47`.
pub fn minutes(time: Time) -> String {
    let (year, month, day) = civil(time.sec.div_euclid(SECONDS_PER_DAY));
    let second = time.sec.rem_euclid(SECONDS_PER_DAY);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", second / 3600, second / 60 % 60)
}

/// `2026-11-20 16:47:05.123456789 UTC`.
pub fn full(time: Time) -> String {
    format!("{}:{:02}.{:09} UTC", minutes(time), time.sec.rem_euclid(60), time.nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
