//! Numbers and text as a report shows them.

/// Returns a number with three digits that count, and with commas from 10,000 on.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    if !(1e-4..1e15).contains(&size) {
        return format!("{value:.2e}");
    }
    if size >= 999.5 {
        return commas(value);
    }
    let digits = (2 - size.log10().floor() as i32).max(0) as usize;
    let text = format!("{value:.digits$}");
    // 9.999 becomes 10.00 by rounding.
    let count = text.chars().filter(char::is_ascii_digit).count();
    if size >= 1.0 && count > 3 && text.contains('.') {
        let cut = text[..text.len() - 1].trim_end_matches('.');
        return cut.to_owned();
    }
    text
}

/// Returns a number for an axis: without zeros that say nothing.
pub(super) fn tick(value: f64) -> String {
    let text = number(value);
    if text.contains('e') {
        return format!("{value:e}");
    }
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

/// Returns a whole number with commas between its thousands.
fn commas(value: f64) -> String {
    let whole = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) && whole.len() > 4 {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("−{text}") } else { text }
}

/// Returns a range: one number if both ends are shown the same.
pub(super) fn range(low: f64, high: f64) -> String {
    let [low, high] = [low, high].map(number);
    if low == high { low } else { format!("{low}–{high}") }
}

/// Returns a ratio: two digits behind the point, or two that count if it is small.
pub(super) fn ratio(value: f64) -> String {
    if value >= 9.995 || value == 0.0 {
        return number(value);
    }
    let digits = (1.0 - value.log10().floor()).clamp(2.0, 8.0) as usize;
    format!("{value:.digits$}")
}

/// Escapes text for HTML and for attributes of it.
pub(super) fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c => out.push(c),
        }
    }
    out
}

/// Escapes text for Markdown, also within a table.
pub(super) fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '\n' | '\r' => out.push(' '),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let cases = [
            (0.0, "0"),
            (561.1159, "561"),
            (56.11, "56.1"),
            (9.999, "10.0"),
            (99.96, "100"),
            (0.0561, "0.0561"),
            (1234.0, "1234"),
            (12_345.6, "12,346"),
            (1_234_567.0, "1,234,567"),
            (-12_345.0, "−12,345"),
            (1.5e-6, "1.50e-6"),
        ];
        for (value, expected) in cases {
            assert_eq!(number(value), expected);
        }
        assert_eq!(number(f64::NAN), "NaN");
        assert_eq!((tick(0.5), tick(100.0), tick(20.0)), ("0.5".into(), "100".into(), "20".into()));
        assert_eq!((range(1.0, 1.0), range(1.0, 2.0)), ("1.00".into(), "1.00–2.00".into()));
        let ratios = [12.345, 1.2345, 0.5, 0.06789].map(ratio);
        assert_eq!(ratios, ["12.3", "1.23", "0.50", "0.068"]);
        assert_eq!((tick(1e-5), tick(1_000_000.0)), ("1e-5".into(), "1,000,000".into()));
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(html("<a b=\"c\">&'"), "&lt;a b=&quot;c&quot;&gt;&amp;&#39;");
        assert_eq!(markdown("a|b*c_<d>"), "a\\|b\\*c\\_&lt;d&gt;");
    }
}
