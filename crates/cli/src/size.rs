//! Sizes as people write and read them: binary multiples, `8G`, `64 MiB`.

/// Units, each 1024 times the one before.
const UNITS: &[u8] = b"KMGTPE";

/// Most digits behind the point.
const PART_MAX: usize = 18;

/// Parses `8G`, `512`, `64MiB`, `1.5t`: a number and an optional binary unit. Rounds down.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let explain = |what: &str| {
        format!("'{text}' {what}: write a whole number of bytes, or one with K, M, G or T, as 1.5G")
    };
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    if digits == 0 {
        return Err(explain("is not a size"));
    }
    let (number, rest) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| explain("is too large"))?;
    let (part, unit) = match rest.strip_prefix('.') {
        None => ("", rest),
        Some(rest) => {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            rest.split_at(digits)
        }
    };
    let power = unit_power(unit).ok_or_else(|| explain("is not a size"))?;
    // A point without digits behind it, and a part of a byte.
    if rest.starts_with('.') && (part.is_empty() || part.len() > PART_MAX || power == 0) {
        return Err(explain("is not a size"));
    }
    let factor = 1024u64.checked_pow(power);
    let bytes = factor.and_then(|factor| {
        let whole = 10u128.pow(part.len() as u32);
        let part = u128::from(part.parse().unwrap_or(0u64)) * u128::from(factor) / whole;
        number.checked_mul(factor)?.checked_add(part as u64)
    });
    bytes.filter(|it| i64::try_from(*it).is_ok()).ok_or_else(|| explain("is too large"))
}

/// Returns the power of 1024 of a unit; `None` when it is no unit.
fn unit_power(unit: &str) -> Option<u32> {
    let upper = unit.trim_start().to_ascii_uppercase();
    let letter = match upper.as_str() {
        "" | "B" => return Some(0),
        other => {
            other.strip_suffix("IB").or_else(|| other.strip_suffix('B')).unwrap_or(other).as_bytes()
        }
    };
    match letter {
        [one] => UNITS.iter().position(|unit| unit == one).map(|at| at as u32 + 1),
        _ => None,
    }
}

/// A unit in which sizes are printed, rounded up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unit {
    bytes: u64,
    /// Printed behind the number, if the unit was given without one.
    suffix: String,
}

impl Unit {
    /// A unit of so many bytes, at least 1.
    pub(crate) fn of(bytes: u64) -> Unit {
        Unit { bytes, suffix: String::new() }
    }

    /// Parses a unit as `du -B` has it: `4096`, `2M`; `M` or `MiB`, which is printed behind the
    /// number; `MB`, 1000 kB of 1000 bytes.
    pub(crate) fn parse(text: &str) -> Result<Unit, String> {
        let explain = || {
            format!("'{text}' is no unit: write a number, one with K, M, G or T, or a letter alone")
        };
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, letters) = text.split_at(digits);
        let number: u64 = if digits == 0 { 1 } else { number.parse().map_err(|_| explain())? };
        let (base, letter, behind) = match letters.as_bytes() {
            [] if digits > 0 => (1024, None, ""),
            [letter] => (1024, Some(*letter), ""),
            [letter, b'B'] => (1000, Some(*letter), "B"),
            [letter, b'i', b'B'] => (1024, Some(*letter), "iB"),
            _ => return Err(explain()),
        };
        let power = match letter.map(|letter| letter.to_ascii_uppercase()) {
            None => 0,
            Some(letter) => {
                UNITS.iter().position(|unit| *unit == letter).ok_or_else(explain)? as u32 + 1
            }
        };
        let bytes = u64::checked_pow(base, power).and_then(|unit| unit.checked_mul(number));
        let bytes = bytes.filter(|bytes| *bytes > 0).ok_or_else(explain)?;
        let suffix = match letter {
            Some(b'k' | b'K') if digits == 0 && base == 1000 => "kB".to_owned(),
            Some(letter) if digits == 0 => {
                format!("{}{behind}", char::from(letter.to_ascii_uppercase()))
            }
            _ => String::new(),
        };
        Ok(Unit { bytes, suffix })
    }

    /// Formats a size.
    pub(crate) fn show(&self, size: u64) -> String {
        format!("{}{}", size.div_ceil(self.bytes), self.suffix)
    }
}

/// Formats `8.0 GiB`, `512 B`: three significant digits.
pub(crate) fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let letter = char::from(UNITS[unit - 1]);
    if value < 100.0 { format!("{value:.1} {letter}iB") } else { format!("{value:.0} {letter}iB") }
}

/// Formats `0`, `512`, `1.5K`, `23M` as the usual tools do: rounded up, two digits if there is one
/// before the point.
pub(crate) fn ceiling(value: u64) -> String {
    let mut unit: u128 = 1;
    let mut letter = None;
    let value = u128::from(value);
    for next in UNITS {
        // Rounding up must not show 1024 of a unit.
        if value.div_ceil(unit) < 1024 {
            break;
        }
        (unit, letter) = (unit * 1024, Some(char::from(*next)));
    }
    let Some(letter) = letter else { return value.to_string() };
    let tenths = (value * 10).div_ceil(unit);
    match tenths < 100 {
        true => format!("{}.{}{letter}", tenths / 10, tenths % 10),
        false => format!("{}{letter}", value.div_ceil(unit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        for (text, size, shown) in [
            ("1", 5, "5"),
            ("512", 1025, "3"),
            ("1K", 1025, "2"),
            ("K", 1025, "2K"),
            ("k", 1024, "1K"),
            ("kB", 1001, "2kB"),
            ("MiB", 1, "1MiB"),
            ("MB", 1_000_001, "2MB"),
            ("2M", 5 << 20, "3"),
        ] {
            assert_eq!(
                Unit::parse(text).map(|unit| unit.show(size)).as_deref(),
                Ok(shown),
                "{text}"
            );
        }
        for bad in ["", "0", "0K", "B", "x", "1x", "KiBB", "99999999999999999999", "16E"] {
            assert!(Unit::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_parse() {
        let cases: &[(&str, u64)] = &[
            ("0", 0),
            ("512", 512),
            ("4K", 4096),
            ("4k", 4096),
            ("64M", 64 << 20),
            ("64MiB", 64 << 20),
            ("64 MiB", 64 << 20),
            ("8G", 8 << 30),
            ("8GB", 8 << 30),
            ("2T", 2 << 40),
            ("12b", 12),
            ("1.5G", 3 << 29),
            ("0.5 KiB", 512),
            ("1.0005K", 1024),
            ("7.999999999999999999E", (8 << 60) - 2),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse(text), Ok(*bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_explained() {
        for text in [
            "", "G", "-1", "8X", "1.5", "1.G", ".5G", "1.5.5G", "1.5X", "1,5G", "8GG", "0x10",
            "8 G B", "é",
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains("is not a size") && error.contains("1.5G"), "{text}: {error}");
        }
        for text in ["99999999999999999999", "9999999T", "8E", "8.1E"] {
            assert!(parse(text).expect_err(text).contains("too large"), "{text}");
        }
    }

    #[test]
    fn sizes_read_well() {
        let cases: &[(u64, &str)] = &[
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (8 << 30, "8.0 GiB"),
            (150 << 20, "150 MiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(human(*bytes), *text);
        }
    }

    #[test]
    fn sizes_are_rounded_up_as_du_does() {
        let cases: &[(u64, &str)] = &[
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (5140, "5.1K"),
            (10_189, "10K"),
            (10_240, "10K"),
            (10_241, "11K"),
            (1023 << 10, "1023K"),
            ((1023 << 10) + 1, "1.0M"),
            (1 << 30, "1.0G"),
            (u64::MAX, "16E"),
        ];
        for (value, text) in cases {
            assert_eq!(ceiling(*value), *text, "{value}");
        }
    }
}
