//! Records of pax: `LENGTH KEY=VALUE\n`, in a member before the one that they describe.

use std::collections::BTreeMap;

use crate::limits::EXTENSION_MAX;

/// Records by key. An empty value takes a record back.
#[derive(Default, Debug)]
pub(crate) struct Records {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Bytes of all keys and values.
    bytes: usize,
}

impl Records {
    /// Adds the records that are in some bytes, in place of those with the same keys. `None` if
    /// they are not what they should be.
    pub(crate) fn read(&mut self, mut bytes: &[u8]) -> Option<()> {
        while !bytes.is_empty() {
            let space = bytes.iter().take(20).position(|byte| *byte == b' ')?;
            let len: usize = digits(&bytes[..space])?.try_into().ok()?;
            let (record, rest) = bytes.split_at_checked(len)?;
            let record = record.get(space + 1..)?.strip_suffix(b"\n")?;
            let equals = record.iter().position(|byte| *byte == b'=')?;
            let (key, value) = (record[..equals].to_vec(), record[equals + 1..].to_vec());
            self.bytes += key.len() + value.len();
            let key_len = key.len();
            if let Some(old) = self.values.insert(key, value) {
                self.bytes -= key_len + old.len();
            }
            bytes = rest;
        }
        Some(())
    }

    /// Returns whether there are more than are kept.
    pub(crate) fn are_too_many(&self) -> bool {
        self.bytes > EXTENSION_MAX
    }

    /// Returns the value of a key.
    pub(crate) fn find(&self, key: &str) -> Option<&[u8]> {
        self.values.get(key.as_bytes()).map(Vec::as_slice)
    }

    /// Returns the rest of each key that begins with a prefix, and its value.
    pub(crate) fn with_prefix<'r>(
        &'r self,
        prefix: &'r str,
    ) -> impl Iterator<Item = (&'r [u8], &'r [u8])> {
        let from = self.values.range(prefix.as_bytes().to_vec()..);
        from.map_while(move |(key, value)| Some((key.strip_prefix(prefix.as_bytes())?, &value[..])))
    }
}

/// The records that count for a member: its own, and those of all members.
#[derive(Clone, Copy)]
pub(crate) struct Both<'r> {
    /// Its own.
    pub own: &'r Records,
    /// Those of all members.
    pub global: &'r Records,
}

impl<'r> Both<'r> {
    /// Returns the value of a key; `None` if there is none or it is empty.
    pub(crate) fn get(self, key: &str) -> Option<&'r [u8]> {
        let found = self.own.find(key).or_else(|| self.global.find(key));
        found.filter(|value| !value.is_empty())
    }

    /// Returns the number that is the value of a key; `Some(None)` if it is not one.
    pub(crate) fn number(self, key: &str) -> Option<Option<u64>> {
        self.get(key).map(digits)
    }
}

/// Appends a record. Its length counts its own digits.
pub(crate) fn push(bytes: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut len = rest;
    loop {
        let with_digits = rest + len.to_string().len();
        if with_digits == len {
            break;
        }
        len = with_digits;
    }
    bytes.extend_from_slice(len.to_string().as_bytes());
    bytes.push(b' ');
    bytes.extend_from_slice(key);
    bytes.push(b'=');
    bytes.extend_from_slice(value);
    bytes.push(b'\n');
}

/// Returns a decimal number.
pub(crate) fn digits(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(text).ok()?.parse().ok()).flatten()
}

/// Returns seconds and nanoseconds of a decimal number; what is finer is cut off.
pub(crate) fn time(text: &[u8]) -> Option<(i64, u32)> {
    let (is_negative, text) = match text.strip_prefix(b"-") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let dot = text.iter().position(|byte| *byte == b'.').unwrap_or(text.len());
    let whole = digits(&text[..dot])?;
    let fraction = text.get(dot + 1..).unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |at| fraction.get(at).map_or(0, |byte| u32::from(byte - b'0'));
    let nsec = (0..9).fold(0, |sum, at| sum * 10 + digit(at));
    if !is_negative {
        return Some((i64::try_from(whole).ok()?, nsec));
    }
    let sec = 0i64.checked_sub_unsigned(whole)?;
    match nsec {
        0 => Some((sec, 0)),
        nsec => Some((sec.checked_sub(1)?, 1_000_000_000 - nsec)),
    }
}

/// Writes a time as [`time`] reads it.
pub(crate) fn time_text((sec, nsec): (i64, u32)) -> String {
    match (sec, nsec) {
        (sec, 0) => sec.to_string(),
        (0.., nsec) => format!("{sec}.{nsec:09}"),
        (sec, nsec) => format!("-{}.{:09}", -(sec + 1), 1_000_000_000 - nsec),
    }
}

/// Writes the name of an extended attribute as part of a key, which has no `=`; as GNU tar does.
pub(crate) fn encoded(name: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(name.len());
    for byte in name {
        match byte {
            b'%' => encoded.extend_from_slice(b"%25"),
            b'=' => encoded.extend_from_slice(b"%3D"),
            byte => encoded.push(*byte),
        }
    }
    encoded
}

/// Reads the name of an extended attribute in a key.
pub(crate) fn decoded(mut name: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(name.len());
    while let Some((first, rest)) = name.split_first() {
        let (byte, rest) = match name {
            [b'%', b'2', b'5', rest @ ..] => (b'%', rest),
            [b'%', b'3', b'D', rest @ ..] => (b'=', rest),
            _ => (*first, rest),
        };
        decoded.push(byte);
        name = rest;
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_counts_itself() {
        for len in [0, 1, 80, 89, 90, 91, 92, 93, 980, 990, 995, 9990] {
            let mut bytes = Vec::new();
            push(&mut bytes, b"key", &vec![b'v'; len]);
            push(&mut bytes, b"other", b"1");
            let mut records = Records::default();
            assert_eq!(records.read(&bytes), Some(()));
            assert_eq!(records.find("key").map(<[u8]>::len), Some(len));
            assert_eq!(records.find("other"), Some(&b"1"[..]));
            assert_eq!(records.bytes, 3 + len + 6);
            assert_eq!(records.read(b"11 other=\n"), None, "a byte is missing");
            assert_eq!(records.read(b"9 other=\n"), Some(()));
            assert_eq!(records.bytes, 3 + len + 5);
        }
    }

    #[test]
    fn wrong_records_are_refused() {
        for bad in [&b"x"[..], b"3 a", b"999 a=b\n", b"6 ab\n\n", b"6 a=bb", b"-6 a=b\n", b"2 a=\n"]
        {
            assert_eq!(Records::default().read(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn times_come_back() {
        for time_is in [
            (0, 0),
            (1, 5),
            (-1, 0),
            (-1, 999_999_999),
            (-7, 1),
            (1 << 40, 123_456_789),
            (i64::MIN, 0),
        ] {
            assert_eq!(time(time_text(time_is).as_bytes()), Some(time_is));
        }
        assert_eq!(time(b"-1.5"), Some((-2, 500_000_000)));
        assert_eq!(time(b"1.12345678999"), Some((1, 123_456_789)));
        for bad in [&b""[..], b".5", b"1.x", b"--1", b"1e5", b"99999999999999999999"] {
            assert_eq!(time(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn attribute_names_come_back() {
        for name in [&b"user.a"[..], b"user.a=b%", b"user.%3D=", b"%"] {
            assert_eq!(decoded(&encoded(name)), name);
            assert!(!encoded(name).contains(&b'='));
        }
    }
}
