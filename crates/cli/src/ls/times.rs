//! Styles of times, by the names that ls(1) has for them.

use shoal::raw::Time;

use crate::clock::{format, is_recent};

/// A style of times: formats for those of the last half year, and for others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Style {
    recent: String,
    other: String,
}

impl Style {
    /// Reads the name of a style, or `+FORMAT`.
    pub(crate) fn parse(text: &str) -> Result<Style, String> {
        let style =
            |recent: &str, other: &str| Style { recent: recent.into(), other: other.into() };
        Ok(match text {
            "full-iso" => style("%Y-%m-%d %H:%M:%S.%N %z", "%Y-%m-%d %H:%M:%S.%N %z"),
            "long-iso" => style("%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M"),
            "iso" => style("%m-%d %H:%M", "%Y-%m-%d "),
            "locale" => style("%b %e %H:%M", "%b %e  %Y"),
            _ => {
                match text.strip_prefix('+').map(|formats| formats.split_once('\n').ok_or(formats))
                {
                    // As in ls(1), the first line is for other times.
                    Some(Ok((other, recent))) => style(recent, other),
                    Some(Err(both)) => style(both, both),
                    None => {
                        return Err(format!(
                            "'{text}' is no style: write full-iso, long-iso, iso, locale or +FORMAT"
                        ));
                    }
                }
            }
        })
    }

    /// Appends a time to a text.
    pub(crate) fn show(&self, text: &mut String, time: Time, now: Time) {
        format(text, time, if is_recent(time, now) { &self.recent } else { &self.other });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles() {
        let now = Time { sec: 1_700_000_000, nsec: 0 };
        let times = [now, Time { sec: now.sec - 20_000_000, nsec: 7 }];
        let cases: &[(&str, [&str; 2])] = &[
            ("long-iso", ["2023-11-14 22:13", "2023-03-28 10:40"]),
            ("iso", ["11-14 22:13", "2023-03-28 "]),
            ("locale", ["Nov 14 22:13", "Mar 28  2023"]),
            ("+%s\n%H", ["22", "1680000000"]),
            (
                "full-iso",
                ["2023-11-14 22:13:20.000000000 +0000", "2023-03-28 10:40:00.000000007 +0000"],
            ),
        ];
        for (name, expected) in cases {
            let style = Style::parse(name).expect(name);
            let shown = times.map(|time| {
                let mut text = String::new();
                style.show(&mut text, time, now);
                text
            });
            assert_eq!(shown, *expected, "{name}");
        }
        assert!(Style::parse("short").is_err());
    }
}
